/* An engine's own attention as a backend; docs/bring_your_own_kernels.md quotes own_backend.c. */
#pragma once

#include "cgr/cgr.h"
#include "cgr/interop/block_table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the engine knows of its model. Pages are HND. */
typedef struct own_engine {
  const cgr_layer *layers;
  cgr_group group;
  int32_t max_requests, max_rows, max_seq_len;
  int32_t num_states; /* alive */
} own_engine;

/* What the kernel is launched with. A graph keeps it: addresses and the key's counts, nothing of one step. */
typedef struct own_args {
  cgr_block_table_input input;
  cgr_block_table_layout layout;
  cgr_device *device;
  char *plan; /* what the planner writes into the workspace, laid out as `layout` says */
  uint64_t plan_bytes;
  cgr_attention attention;
  cgr_layer layer;
  int32_t num_tokens;
} own_args;

/* Plain attention in fp32, causal, with the layer's scale: the engine's kernel, a function of the host here. Lengths and pages
 * are read from `plan` when it runs. Padded tokens get out 0 and lse -inf. `args` is an own_args. */
void own_kernel(const void *args);

/* `engine` lives as long as the runtime; its `layers` are needed from the capture on. */
cgr_status own_backend(own_engine *engine, cgr_backend *backend);

#ifdef __cplusplus
}
#endif

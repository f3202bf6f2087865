/* The parameters of a prologue.
 *
 * A line of parameters has to be fetched at its first use, and a warp waits for one after the other. So what a common step reads
 * comes together, in the order in which it is read. On compute capability 9.0 parameters begin 16 bytes after the start of a line
 * of 64; elsewhere these are up to a line more. */
#ifndef CGR_KERNELS_CUDA_STEP_PROLOGUE_ARGS_CUH
#define CGR_KERNELS_CUDA_STEP_PROLOGUE_ARGS_CUH

#include <stddef.h>

#include "kernels/step.h"

namespace cgr {

/* What the most common step (decode.cuh) needs, with one group four lines: they would be 14 in the struct of all devices. */
struct DecodeGroup { /* a line */
  const int32_t *page_table;
  int64_t page_table_stride;
  int32_t page_size, num_pages, read_trash_page, write_trash_page;
  uint32_t page_inverse;
  int32_t kernel_page_size; /* 0: page_size */
  int32_t *kv_indptr, *kv_last_page_len;
  int64_t *slot_mapping;
};
struct DecodeArgs {
  int32_t *request_rows;
  cgr__step_state *state;
  const unsigned char *inbox;
  int32_t *query_start_loc;
  int32_t allowed; /* whether the key allows it: a thread for each request, and a token */
  int32_t padded_requests, max_requests, max_changes;

  const int32_t *row_computed, *row_last_tokens;
  int32_t max_rows, max_len, token_stride, reorder_threshold;
  int64_t changes; /* their offset in the inbox */
  int32_t *seq_lens, *logits_indices, *input_ids;

  DecodeGroup group[CGR__MAX_GROUPS];
  int32_t *positions, *request_flags, *counts;
  int32_t *num_drafts; /* NULL in a runtime without guesses */
};
static_assert(sizeof(DecodeGroup) == 64 && (offsetof(DecodeArgs, row_computed) + 16) % 64 == 0 &&
                  (offsetof(DecodeArgs, group) + 16) % 64 == 0,
              "they fill lines");

/* The parameters of a prologue. */
struct PrologueArgs {
  DecodeArgs decode;
  cgr__step_args step;
  uint32_t page_inverse[CGR__MAX_GROUPS]; /* ~0u / page_size */
};

} // namespace cgr
#endif

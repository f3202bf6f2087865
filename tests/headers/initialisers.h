/* Every _INIT macro as an initialiser. */
#ifndef CGR_TESTS_HEADERS_INITIALISERS_H
#define CGR_TESTS_HEADERS_INITIALISERS_H

#include "tests/headers/check.h"

/* X(struct, its macro): every sized struct of the headers. */
#define SIZED_STRUCTS(X)                       \
  X(cgr_device_config, CGR_DEVICE_CONFIG_INIT) \
  X(cgr_device_info, CGR_DEVICE_INFO_INIT)     \
  X(cgr_group, CGR_GROUP_INIT)                 \
  X(cgr_layer, CGR_LAYER_INIT)                 \
  X(cgr_attention, CGR_ATTENTION_INIT)         \
  X(cgr_backend, CGR_BACKEND_INIT)             \
  X(cgr_plan_input, CGR_PLAN_INPUT_INIT)       \
  X(cgr_metadata, CGR_METADATA_INIT)           \
  X(cgr_buffer_decl, CGR_BUFFER_DECL_INIT)     \
  X(cgr_config, CGR_CONFIG_INIT)               \
  X(cgr_memory_sizes, CGR_MEMORY_SIZES_INIT)   \
  X(cgr_buffer_view, CGR_BUFFER_VIEW_INIT)     \
  X(cgr_request_info, CGR_REQUEST_INFO_INIT)   \
  X(cgr_record_info, CGR_RECORD_INFO_INIT)     \
  X(cgr_capture, CGR_CAPTURE_INIT)             \
  X(cgr_batch, CGR_BATCH_INIT)                 \
  X(cgr_step, CGR_STEP_INIT)                   \
  X(cgr_step_result, CGR_STEP_RESULT_INIT)     \
  X(cgr_stats, CGR_STATS_INIT)                 \
  X(cgr_graph_stats, CGR_GRAPH_STATS_INIT)

/* At file scope, where an initialiser must be constant, and const. */
#define FILE_SCOPE(type, init) static const type file_scope_##type = init;
SIZED_STRUCTS(FILE_SCOPE)
static const cgr_key file_scope_cgr_key = CGR_KEY_INIT;

#define ON_THE_STACK(type, init)                                                                             \
  {                                                                                                          \
    type local = init, array[2] = { init, init };                                                            \
    const struct {                                                                                           \
      int32_t before;                                                                                        \
      type inside;                                                                                           \
    } outer = { 1, init };                                                                                   \
    CHECK(local.size == sizeof local && array[1].size == sizeof local && outer.inside.size == sizeof local); \
    CHECK(file_scope_##type.size == sizeof local);                                                           \
  }

static int test_initialisers(void) {
  const int before = check_failures;
  cgr_key key = CGR_KEY_INIT;
  SIZED_STRUCTS(ON_THE_STACK)
  CHECK(file_scope_cgr_config.magic == CGR_CONFIG_MAGIC && file_scope_cgr_config.version == CGR_VERSION);
  CHECK(memcmp(&key, &file_scope_cgr_key, sizeof key) == 0 && key.kind == CGR_KIND_NONE && key.reserved[3] == 0);
  return check_failures - before;
}

#endif

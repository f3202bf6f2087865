/* Names of enumerators, and the table of statuses. tests/base/names_test.cc checks that no enumerator is left out. */
#ifndef CGR_TESTS_HEADERS_NAMES_H
#define CGR_TESTS_HEADERS_NAMES_H

#include "cgr/inspect.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "cgr/interop/nccl.h"
#include "cgr/ranks.h"
#include "cgr/tracing.h"
#include "tests/headers/check.h"

/* X(enum, first value, last value, step): flags double. */
#define NAMED_ENUMS(X)                                                              \
  X(cgr_dtype, CGR_DTYPE_NONE, CGR_DTYPE_I4, +1)                                    \
  X(cgr_device_kind, CGR_DEVICE_KIND_HOST, CGR_DEVICE_KIND_CUDA, +1)                \
  X(cgr_host_schedule, CGR_SCHEDULE_ASYNC, CGR_SCHEDULE_RANDOM, +1)                 \
  X(cgr_ranks_rule, CGR_RANKS_LARGEST, CGR_RANKS_SAME, +1)                          \
  X(cgr_wait_mode, CGR_WAIT_DEFAULT, CGR_WAIT_BLOCK, +1)                            \
  X(cgr_kv_layout, CGR_LAYOUT_NHD, CGR_LAYOUT_HND, +1)                              \
  X(cgr_layer_flag, CGR_LAYER_BIDIRECTIONAL, CGR_LAYER_ALIBI_SQRT, *2)              \
  X(cgr_attention_flag, CGR_ATTENTION_NO_APPEND, CGR_ATTENTION_TILED_SCALES, *2)    \
  X(cgr_transform_flag, CGR_TRANSFORM_NORM_PLUS_ONE, CGR_TRANSFORM_INTERLEAVED, *2) \
  X(cgr_backend_flag, CGR_BACKEND_APPENDS, CGR_BACKEND_DECODES_DRAFTS, *2)          \
  X(cgr_ability, CGR_ABILITY_WINDOW, CGR_ABILITY_SPARSE, *2)                        \
  X(cgr_planned, CGR_PLANNED_GROUP, CGR_PLANNED_SOFTCAP, *2)                        \
  X(cgr_plan_flag, CGR_PLAN_CAPTURE, CGR_PLAN_BOUNDS, *2)                           \
  X(cgr_graph_support, CGR_SUPPORT_DEFAULT, CGR_SUPPORT_ALWAYS, +1)                 \
  X(cgr_guard_error, CGR_GUARD_NONE, CGR_GUARD_RANK, +1)                            \
  X(cgr_fingerprint_part, CGR_FINGERPRINT_KEY, CGR_FINGERPRINT_INPUTS, +1)          \
  X(cgr_nccl_kind, CGR_NCCL_ALL_REDUCE, CGR_NCCL_ALL_TO_ALL, +1)                    \
  X(cgr_nccl_op, CGR_NCCL_SUM, CGR_NCCL_AVERAGE, +1)                                \
  X(cgr_nccl_flag, CGR_NCCL_KEEP, CGR_NCCL_MARKS, *2)                               \
  X(cgr_fa3_layout, CGR_FA3_UPSTREAM, CGR_FA3_VLLM, +1)                             \
  X(cgr_flashinfer_layout, CGR_FLASHINFER_V0_6_18, CGR_FLASHINFER_V0_7_1, +1)       \
  X(cgr_flashmla_layout, CGR_FLASHMLA_CURRENT, CGR_FLASHMLA_V1, +1)                 \
  X(cgr_graph_kind, CGR_KIND_NONE, CGR_KIND_FULL, +1)                               \
  X(cgr_graph_mode, CGR_MODE_DEFAULT, CGR_MODE_FULL_AND_PIECEWISE, +1)              \
  X(cgr_dimension, CGR_DIMENSION_TOKENS, CGR_DIMENSION_ROWS, +1)                    \
  X(cgr_source, CGR_SOURCE_DEVICE, CGR_SOURCE_STAGED, +1)                           \
  X(cgr_log_level, CGR_LOG_ERROR, CGR_LOG_INFO, +1)                                 \
  X(cgr_buffer, CGR_BUFFER_INPUT_IDS, CGR_BUFFER_ROW_DRAFT_TOKENS, +1)              \
  X(cgr_count, CGR_COUNT_REQUESTS, CGR_COUNT_APPEND_FIRST, +1)                      \
  X(cgr_request_flag, CGR_REQUEST_PARTIAL, CGR_REQUEST_PARTIAL, *2)                 \
  X(cgr_end, CGR_END_NONE, CGR_END_BEFORE, +1)                                      \
  X(cgr_reason, CGR_REASON_EXACT, CGR_REASON_TOO_PADDED, +1)                        \
  X(cgr_step_state, CGR_STEP_NONE, CGR_STEP_ABANDONED, +1)                          \
  X(cgr_graph_state, CGR_GRAPH_EMPTY, CGR_GRAPH_OVER_BUDGET, +1)                    \
  X(cgr_capture_flag, CGR_CAPTURE_MISSED, CGR_CAPTURE_MISSED, *2)                   \
  X(cgr_flight_outcome, CGR_FLIGHT_PREPARED, CGR_FLIGHT_INTERNAL, +1)               \
  X(cgr_timing_mode, CGR_TIMING_OFF, CGR_TIMING_LAYERS, +1)                         \
  X(cgr_phase, CGR_PHASE_STEP, CGR_PHASE_ATTENTION, +1)                             \
  X(cgr_struct, CGR_STRUCT_KEY, CGR_STRUCT_RANK_WATCH, +1)

#define CHECK_NAMES(type, first, last, step)                          \
  for (int i = (int)(first); i <= (int)(last); i = i step) {          \
    CHECK(type##_name((type)i) && type##_name((type)i)[0] != '\0');   \
    CHECK(type##_name((type)i) != type##_name((type)99));             \
    for (int j = (int)(first); j < i; j = j step)                     \
      CHECK(strcmp(type##_name((type)i), type##_name((type)j)) != 0); \
  }                                                                   \
  for (int k = 0; k < 4; k++)                                         \
    CHECK(type##_name((type)no_enumerators[k]) && strcmp(type##_name((type)no_enumerators[k]), "unknown") == 0);

static int test_names(void) {
  static const int no_enumerators[] = { -1, 99, 1000, 0x7fffffff };
  const int before = check_failures;
  NAMED_ENUMS(CHECK_NAMES)
  return check_failures - before;
}

static int test_statuses(void) {
  static const struct {
    cgr_status status;
    int number;
    const char *name, *text;
  } table[] = {
#define ROW(name, number, text) { name, number, #name, text },
    CGR_STATUS_LIST(ROW)
#undef ROW
  };
  static const int no_statuses[] = { -1, 30, 1000, 0x7fffffff };
  const int before = check_failures, count = (int)(sizeof table / sizeof table[0]);
  for (int i = 0; i < count; i++) {
    CHECK((int)table[i].status == table[i].number && table[i].number == i);
    CHECK(strcmp(cgr_status_name(table[i].status), table[i].name) == 0);
    CHECK(strcmp(cgr_status_text(table[i].status), table[i].text) == 0);
    for (int j = 0; j < i; j++)
      CHECK(strcmp(table[i].text, table[j].text) != 0);
  }
  for (int i = 0; i < 4; i++)
    CHECK(cgr_status_name((cgr_status)no_statuses[i]) && cgr_status_text((cgr_status)no_statuses[i]));
  CHECK(cgr_version() == CGR_VERSION && strncmp(cgr_build_info(), "cgr 0.11.0", 10) == 0);
  CHECK(cgr_dtype_size(CGR_DTYPE_BF16) == 2 && cgr_dtype_size(CGR_DTYPE_I64) == 8 && cgr_dtype_size(CGR_DTYPE_NONE) == 0);
  CHECK(cgr_dtype_bits(CGR_DTYPE_FP4_E2M1) == 4 && cgr_dtype_bits(CGR_DTYPE_I64) == 64 && cgr_dtype_bits(CGR_DTYPE_NONE) == 0);
  return check_failures - before;
}

#endif

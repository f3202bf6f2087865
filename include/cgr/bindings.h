/* All headers at once, for generators of bindings (bindgen, cffi, ...), and what these cannot take from them, since they see no
 * macros: the initial values of structs. Not included by cgr.h. */
#ifndef CGR_BINDINGS_H
#define CGR_BINDINGS_H

#include "cgr/ask.h"
#include "cgr/cgr.h"
#include "cgr/collectives.h"
#include "cgr/gather.h"
#include "cgr/inspect.h"
#include "cgr/interop/block_table.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "cgr/interop/nccl.h"
#include "cgr/names.h"
#include "cgr/planners.h"
#include "cgr/programs.h"
#include "cgr/ranks.h"
#include "cgr/stops.h"
#include "cgr/tracing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(kind, number, struct, macro): every sized struct, and what it begins as. Numbers are never reused. */
#define CGR_STRUCT_LIST(X)                                                                                    \
  X(CGR_STRUCT_DEVICE_CONFIG, 1, cgr_device_config, CGR_DEVICE_CONFIG_INIT)                                   \
  X(CGR_STRUCT_DEVICE_INFO, 2, cgr_device_info, CGR_DEVICE_INFO_INIT)                                         \
  X(CGR_STRUCT_GROUP, 3, cgr_group, CGR_GROUP_INIT)                                                           \
  X(CGR_STRUCT_LAYER, 4, cgr_layer, CGR_LAYER_INIT)                                                           \
  X(CGR_STRUCT_ATTENTION, 5, cgr_attention, CGR_ATTENTION_INIT)                                               \
  X(CGR_STRUCT_MERGE, 6, cgr_merge, CGR_MERGE_INIT)                                                           \
  X(CGR_STRUCT_VALUE_CHECK, 7, cgr_value_check, CGR_VALUE_CHECK_INIT)                                         \
  X(CGR_STRUCT_PLAN_KEY, 8, cgr_plan_key, CGR_PLAN_KEY_INIT)                                                  \
  X(CGR_STRUCT_PLAN_STEP, 9, cgr_plan_step, CGR_PLAN_STEP_INIT)                                               \
  X(CGR_STRUCT_BACKEND, 10, cgr_backend, CGR_BACKEND_INIT)                                                    \
  X(CGR_STRUCT_BUFFER_DECL, 11, cgr_buffer_decl, CGR_BUFFER_DECL_INIT)                                        \
  X(CGR_STRUCT_CONFIG, 12, cgr_config, CGR_CONFIG_INIT)                                                       \
  X(CGR_STRUCT_MEMORY_SIZES, 13, cgr_memory_sizes, CGR_MEMORY_SIZES_INIT)                                     \
  X(CGR_STRUCT_REQUEST_INFO, 14, cgr_request_info, CGR_REQUEST_INFO_INIT)                                     \
  X(CGR_STRUCT_BUFFER_VIEW, 15, cgr_buffer_view, CGR_BUFFER_VIEW_INIT)                                        \
  X(CGR_STRUCT_RECORD_INFO, 16, cgr_record_info, CGR_RECORD_INFO_INIT)                                        \
  X(CGR_STRUCT_BATCH, 17, cgr_batch, CGR_BATCH_INIT)                                                          \
  X(CGR_STRUCT_STEP, 18, cgr_step, CGR_STEP_INIT)                                                             \
  X(CGR_STRUCT_STEP_RESULT, 19, cgr_step_result, CGR_STEP_RESULT_INIT)                                        \
  X(CGR_STRUCT_CAPTURE, 20, cgr_capture, CGR_CAPTURE_INIT)                                                    \
  X(CGR_STRUCT_GRAPH_STATS, 21, cgr_graph_stats, CGR_GRAPH_STATS_INIT)                                        \
  X(CGR_STRUCT_CAPTURE_ESTIMATE, 22, cgr_capture_estimate, CGR_CAPTURE_ESTIMATE_INIT)                         \
  X(CGR_STRUCT_SELF_TEST, 23, cgr_self_test, CGR_SELF_TEST_INIT)                                              \
  X(CGR_STRUCT_AUDIT, 24, cgr_audit, CGR_AUDIT_INIT)                                                          \
  X(CGR_STRUCT_STATS, 25, cgr_stats, CGR_STATS_INIT)                                                          \
  X(CGR_STRUCT_KEY_STATS, 26, cgr_key_stats, CGR_KEY_STATS_INIT)                                              \
  X(CGR_STRUCT_FLIGHT_RECORD, 27, cgr_flight_record, CGR_FLIGHT_RECORD_INIT)                                  \
  X(CGR_STRUCT_SPAN, 28, cgr_span, CGR_SPAN_INIT)                                                             \
  X(CGR_STRUCT_PLAN_INPUT, 29, cgr_plan_input, CGR_PLAN_INPUT_INIT)                                           \
  X(CGR_STRUCT_METADATA, 30, cgr_metadata, CGR_METADATA_INIT)                                                 \
  X(CGR_STRUCT_FA3_INPUT, 31, cgr_fa3_input, CGR_FA3_INPUT_INIT)                                              \
  X(CGR_STRUCT_FA3_SIZES, 32, cgr_fa3_sizes, CGR_FA3_SIZES_INIT)                                              \
  X(CGR_STRUCT_FLASHINFER_DECODE_INPUT, 33, cgr_flashinfer_decode_input, CGR_FLASHINFER_DECODE_INPUT_INIT)    \
  X(CGR_STRUCT_FLASHINFER_PREFILL_INPUT, 34, cgr_flashinfer_prefill_input, CGR_FLASHINFER_PREFILL_INPUT_INIT) \
  X(CGR_STRUCT_FLASHINFER_PLAN, 35, cgr_flashinfer_plan, CGR_FLASHINFER_PLAN_INIT)                            \
  X(CGR_STRUCT_FLASHINFER_CASCADE, 36, cgr_flashinfer_cascade, CGR_FLASHINFER_CASCADE_INIT)                   \
  X(CGR_STRUCT_FLASHMLA_INPUT, 37, cgr_flashmla_input, CGR_FLASHMLA_INPUT_INIT)                               \
  X(CGR_STRUCT_BLOCK_TABLE_INPUT, 38, cgr_block_table_input, CGR_BLOCK_TABLE_INPUT_INIT)                      \
  X(CGR_STRUCT_BLOCK_TABLE_LAYOUT, 39, cgr_block_table_layout, CGR_BLOCK_TABLE_LAYOUT_INIT)                   \
  X(CGR_STRUCT_KEY_ADVICE, 40, cgr_key_advice, CGR_KEY_ADVICE_INIT)                                           \
  X(CGR_STRUCT_MEASURE, 41, cgr_measure, CGR_MEASURE_INIT)                                                    \
  X(CGR_STRUCT_GATHER, 42, cgr_gather, CGR_GATHER_INIT)                                                       \
  X(CGR_STRUCT_BACKEND_NEEDS, 43, cgr_backend_needs, CGR_BACKEND_NEEDS_INIT)                                  \
  X(CGR_STRUCT_QKV_TRANSFORM, 44, cgr_qkv_transform, CGR_QKV_TRANSFORM_INIT)                                  \
  X(CGR_STRUCT_EXCHANGE, 45, cgr_exchange, CGR_EXCHANGE_INIT)                                                 \
  X(CGR_STRUCT_BATCH_COUNTS, 46, cgr_batch_counts, CGR_BATCH_COUNTS_INIT)                                     \
  X(CGR_STRUCT_RANKS_CONFIG, 47, cgr_ranks_config, CGR_RANKS_CONFIG_INIT)                                     \
  X(CGR_STRUCT_RANK_PROPOSAL, 48, cgr_rank_proposal, CGR_RANK_PROPOSAL_INIT)                                  \
  X(CGR_STRUCT_AGREEMENT, 49, cgr_agreement, CGR_AGREEMENT_INIT)                                              \
  X(CGR_STRUCT_STOPS, 50, cgr_stops, CGR_STOPS_INIT)                                                          \
  X(CGR_STRUCT_RESOURCE, 51, cgr_resource, CGR_RESOURCE_INIT)                                                 \
  X(CGR_STRUCT_FINGERPRINT, 52, cgr_fingerprint, CGR_FINGERPRINT_INIT)                                        \
  X(CGR_STRUCT_PROGRESS, 53, cgr_progress, CGR_PROGRESS_INIT)                                                 \
  X(CGR_STRUCT_NCCL_FUNCTIONS, 54, cgr_nccl_functions, CGR_NCCL_FUNCTIONS_INIT)                               \
  X(CGR_STRUCT_NCCL_CONFIG, 55, cgr_nccl_config, CGR_NCCL_CONFIG_INIT)                                        \
  X(CGR_STRUCT_NCCL_INFO, 56, cgr_nccl_info, CGR_NCCL_INFO_INIT)                                              \
  X(CGR_STRUCT_NCCL_CALL, 57, cgr_nccl_call, CGR_NCCL_CALL_INIT)                                              \
  X(CGR_STRUCT_RANK_WATCH, 58, cgr_rank_watch, CGR_RANK_WATCH_INIT)

typedef enum cgr_struct {
  CGR_STRUCT_KEY = 0, /* cgr_key, which has no size and begins with zeros */
#define CGR_STRUCT_ENUM(kind, number, type, init) kind = number,
  CGR_STRUCT_LIST(CGR_STRUCT_ENUM)
#undef CGR_STRUCT_ENUM
} cgr_struct;

/* Makes the `size` bytes at `out` what the struct's _INIT macro is in the headers that the binding was made from: `size` is the
 * struct's size there, `header_version` CGR_HEADER_VERSION. A function and not a constant of the library, whose structs may be
 * larger than the binding's.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_init(cgr_struct kind, uint32_t header_version, void *out, size_t size);

/* Name ("cgr_config"); static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_struct_name(cgr_struct kind);

#ifdef __cplusplus
}
#endif
#endif

/* The sized structs of the public headers, in C11 and C++11. tests/base/sized_test.cc sees that none is left out. */
#ifndef CGR_TESTS_SUPPORT_SIZED_STRUCTS_H
#define CGR_TESTS_SUPPORT_SIZED_STRUCTS_H

/* X(struct, its macro): every sized struct of the headers. */
#define SIZED_STRUCTS(X)                                             \
  X(cgr_device_config, CGR_DEVICE_CONFIG_INIT)                       \
  X(cgr_device_info, CGR_DEVICE_INFO_INIT)                           \
  X(cgr_group, CGR_GROUP_INIT)                                       \
  X(cgr_layer, CGR_LAYER_INIT)                                       \
  X(cgr_attention, CGR_ATTENTION_INIT)                               \
  X(cgr_merge, CGR_MERGE_INIT)                                       \
  X(cgr_value_check, CGR_VALUE_CHECK_INIT)                           \
  X(cgr_plan_key, CGR_PLAN_KEY_INIT)                                 \
  X(cgr_plan_step, CGR_PLAN_STEP_INIT)                               \
  X(cgr_backend, CGR_BACKEND_INIT)                                   \
  X(cgr_plan_input, CGR_PLAN_INPUT_INIT)                             \
  X(cgr_metadata, CGR_METADATA_INIT)                                 \
  X(cgr_fa3_input, CGR_FA3_INPUT_INIT)                               \
  X(cgr_fa3_sizes, CGR_FA3_SIZES_INIT)                               \
  X(cgr_flashmla_input, CGR_FLASHMLA_INPUT_INIT)                     \
  X(cgr_block_table_input, CGR_BLOCK_TABLE_INPUT_INIT)               \
  X(cgr_block_table_layout, CGR_BLOCK_TABLE_LAYOUT_INIT)             \
  X(cgr_flashinfer_decode_input, CGR_FLASHINFER_DECODE_INPUT_INIT)   \
  X(cgr_flashinfer_prefill_input, CGR_FLASHINFER_PREFILL_INPUT_INIT) \
  X(cgr_flashinfer_plan, CGR_FLASHINFER_PLAN_INIT)                   \
  X(cgr_flashinfer_cascade, CGR_FLASHINFER_CASCADE_INIT)             \
  X(cgr_buffer_decl, CGR_BUFFER_DECL_INIT)                           \
  X(cgr_config, CGR_CONFIG_INIT)                                     \
  X(cgr_memory_sizes, CGR_MEMORY_SIZES_INIT)                         \
  X(cgr_buffer_view, CGR_BUFFER_VIEW_INIT)                           \
  X(cgr_request_info, CGR_REQUEST_INFO_INIT)                         \
  X(cgr_record_info, CGR_RECORD_INFO_INIT)                           \
  X(cgr_capture, CGR_CAPTURE_INIT)                                   \
  X(cgr_batch, CGR_BATCH_INIT)                                       \
  X(cgr_step, CGR_STEP_INIT)                                         \
  X(cgr_step_result, CGR_STEP_RESULT_INIT)                           \
  X(cgr_stats, CGR_STATS_INIT)                                       \
  X(cgr_graph_stats, CGR_GRAPH_STATS_INIT)                           \
  X(cgr_capture_estimate, CGR_CAPTURE_ESTIMATE_INIT)                 \
  X(cgr_self_test, CGR_SELF_TEST_INIT)                               \
  X(cgr_audit, CGR_AUDIT_INIT)                                       \
  X(cgr_key_stats, CGR_KEY_STATS_INIT)                               \
  X(cgr_flight_record, CGR_FLIGHT_RECORD_INIT)                       \
  X(cgr_span, CGR_SPAN_INIT)

#endif

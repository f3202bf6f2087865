/* Output structs of other sizes, in calls made outside record. */
#ifndef CGR_TESTS_HEADERS_OUTPUTS_H
#define CGR_TESTS_HEADERS_OUTPUTS_H

#include "cgr/ask.h"
#include "cgr/inspect.h"
#include "cgr/interop/block_table.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/tracing.h"
#include "tests/headers/sized.h"
#include "tests/headers/world.h"

static cgr_status get_device_info(void *context, void *given) {
  return cgr_device_get_info(((world *)context)->device, (cgr_device_info *)given);
}

static cgr_status get_needs(void *context, void *given) {
  const cgr_layer layer = CGR_LAYER_INIT;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  CHECK_OK(cgr_device_get_info(((world *)context)->device, &info));
  return cgr_backend_ask(NULL, &info, &layer, (cgr_backend_needs *)given);
}

static cgr_status get_flashinfer_plan(void *unused, void *given) {
  cgr_flashinfer_decode_input decode = CGR_FLASHINFER_DECODE_INPUT_INIT;
  (void)unused;
  decode.num_requests = decode.num_q_heads = decode.num_kv_heads = decode.head_dim = decode.page_size = decode.graph = 1;
  decode.num_multiprocessors = decode.blocks_per_multiprocessor = 2;
  return cgr_flashinfer_decode_size(&decode, (cgr_flashinfer_plan *)given);
}

static cgr_status get_sizes(void *context, void *given) {
  return cgr_runtime_memory(&((world *)context)->config, (cgr_memory_sizes *)given);
}

static cgr_status get_buffer(void *context, void *given) {
  return cgr_buffer_get(((world *)context)->runtime, NULL, CGR_BUFFER_PAGE_TABLE, 0, (cgr_buffer_view *)given);
}

static cgr_status get_declared(void *context, void *given) {
  return cgr_buffer_get(((world *)context)->runtime, NULL, CGR_BUFFER_DECLARED, 0, (cgr_buffer_view *)given);
}

static cgr_status get_request(void *context, void *given) {
  const world *w = (const world *)context;
  return cgr_request_get_info(w->runtime, w->row, (cgr_request_info *)given);
}

static cgr_status get_stats(void *context, void *given) {
  return cgr_runtime_stats(((world *)context)->runtime, (cgr_stats *)given);
}

static cgr_status get_graph_stats(void *context, void *given) {
  return cgr_runtime_graph_stats(((world *)context)->runtime, 0, (cgr_graph_stats *)given);
}

static cgr_status get_key_stats(void *context, void *given) {
  return cgr_runtime_key_stats(((world *)context)->runtime, 0, (cgr_key_stats *)given);
}

/* Only the newest: the step that has run, whose times do not change from call to call, nor does its record. */
static cgr_status get_record(void *context, void *given) {
  int32_t count = 0;
  return cgr_runtime_flight(((world *)context)->runtime, (cgr_flight_record *)given, 1, &count);
}

/* The first span of the step that has run. */
static cgr_status get_span(void *context, void *given) {
  const cgr_mark mark = { 0, 0, 1 };
  int32_t count = 0;
  return cgr_runtime_timing(((world *)context)->runtime, mark, (cgr_span *)given, 1, &count);
}

static cgr_status estimate_capture(void *context, void *given) {
  world *w = (world *)context;
  const cgr_capture how = world_capture(w);
  return cgr_runtime_estimate_capture(w->runtime, &how, (cgr_capture_estimate *)given);
}

static cgr_status advise_keys(void *context, void *given) {
  return cgr_runtime_advise_keys(((world *)context)->runtime, 0.0, NULL, 0, (cgr_key_advice *)given);
}

static cgr_status audit(void *context, void *given) {
  int32_t count = 0;
  const cgr_status status = cgr_runtime_audit(((world *)context)->runtime, (cgr_audit *)given, NULL, 0, &count);
  return status == CGR_ERROR_AUDIT ? CGR_OK : status; /* its memory is in no region */
}

static cgr_status get_fa3_sizes(void *context, void *given) {
  cgr_fa3_input fa3 = CGR_FA3_INPUT_INIT;
  (void)context;
  fa3.num_requests = fa3.num_q_heads = fa3.num_kv_heads = fa3.max_query_len = fa3.num_multiprocessors = 1;
  fa3.num_tokens = 3;
  fa3.num_splits = 2;
  fa3.head_dim = 64;
  fa3.dtype = CGR_DTYPE_BF16;
  return cgr_fa3_size(&fa3, (cgr_fa3_sizes *)given);
}

static cgr_status get_block_table_layout(void *unused, void *given) {
  cgr_block_table_input input = CGR_BLOCK_TABLE_INPUT_INIT;
  (void)unused;
  input.num_requests = input.query_len = input.max_seq_len = input.max_pages = input.num_rows = 1;
  input.page_size = 16;
  input.kv_layout = CGR_LAYOUT_HND;
  input.num_pages = input.page_table_stride = 1;
  return cgr_block_table_get_layout(&input, (cgr_block_table_layout *)given);
}

static int test_outputs(void) {
  const int before = check_failures;
  const size_t memory = offsetof(cgr_device_info, memory_free);
  world w;
  cgr_step step = CGR_STEP_INIT;
  world_run(&w);
  const cgr_batch batch = world_batch(&w);
  const sized_output outputs[] = {
    { "cgr_device_get_info: info", sizeof(cgr_device_info), memory, memory + sizeof(uint64_t), get_device_info },
    { "cgr_backend_ask: needs", sizeof(cgr_backend_needs), 0, 0, get_needs },
    { "cgr_flashinfer_decode_size: plan", sizeof(cgr_flashinfer_plan), 0, 0, get_flashinfer_plan },
    { "cgr_runtime_memory: sizes", sizeof(cgr_memory_sizes), 0, 0, get_sizes },
    { "cgr_fa3_size: sizes", sizeof(cgr_fa3_sizes), 0, 0, get_fa3_sizes },
    { "cgr_buffer_get: view", sizeof(cgr_buffer_view), 0, 0, get_buffer },
    { "cgr_buffer_get: view", sizeof(cgr_buffer_view), 0, 0, get_declared },
    { "cgr_request_get_info: info", sizeof(cgr_request_info), 0, 0, get_request },
    { "cgr_runtime_stats: stats", sizeof(cgr_stats), 0, 0, get_stats },
    { "cgr_runtime_graph_stats: stats", sizeof(cgr_graph_stats), 0, 0, get_graph_stats },
    { "cgr_runtime_key_stats: stats", sizeof(cgr_key_stats), 0, 0, get_key_stats },
    { "cgr_runtime_flight: records", sizeof(cgr_flight_record), offsetof(cgr_flight_record, at_ns),
      offsetof(cgr_flight_record, guard), get_record },
    { "cgr_runtime_timing: spans", sizeof(cgr_span), 0, 0, get_span },
    { "cgr_runtime_estimate_capture: estimate", sizeof(cgr_capture_estimate), 0, 0, estimate_capture },
    { "cgr_runtime_advise_keys: advice", sizeof(cgr_key_advice), 0, 0, advise_keys },
    { "cgr_block_table_get_layout: layout", sizeof(cgr_block_table_layout), 0, 0, get_block_table_layout },
    { "cgr_runtime_audit: audit", sizeof(cgr_audit), 0, 0, audit },
  };
  /* Runs a step first, for numbers that are not 0. */
  CHECK_OK(cgr_step_prepare(w.runtime, &batch, &step));
  CHECK_OK(cgr_step_launch(w.runtime, &step, w.stream));
  CHECK_OK(cgr_step_wait(w.runtime, step.mark, -1, NULL));
  for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
    check_output(&outputs[i], &w);
  world_close(&w);
  return check_failures - before;
}

#endif

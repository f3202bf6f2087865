/* Input structs of other sizes, in calls made outside record. */
#ifndef CGR_TESTS_HEADERS_INPUTS_H
#define CGR_TESTS_HEADERS_INPUTS_H

#include "cgr/gather.h"
#include "cgr/interop/block_table.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "cgr/planners.h"
#include "tests/headers/sized.h"
#include "tests/headers/world.h"

static cgr_status open_device(void *unused, void *given) {
  cgr_device *device = NULL;
  const cgr_status status = cgr_device_open("host", (const cgr_device_config *)given, &device);
  (void)unused;
  CHECK((status == CGR_OK) == (device != NULL));
  CHECK_OK(cgr_device_close(device));
  return status;
}

static cgr_status build_plan(void *unused, void *given) {
  int64_t plan[4096];
  (void)unused;
  return cgr_plan_build((const cgr_plan_input *)given, plan, sizeof plan);
}

static cgr_status build_decode(void *unused, void *given) {
  int64_t workspace[512];
  (void)unused;
  return cgr_flashinfer_decode_build((const cgr_flashinfer_decode_input *)given, workspace + (((uintptr_t)workspace >> 3) & 1),
                                     4000, NULL);
}

static cgr_status build_prefill(void *unused, void *given) {
  int64_t workspace[512];
  (void)unused;
  return cgr_flashinfer_prefill_build((const cgr_flashinfer_prefill_input *)given, workspace + (((uintptr_t)workspace >> 3) & 1),
                                      4000, NULL);
}

static cgr_status build_metadata(void *unused, void *given) {
  (void)unused;
  return cgr_metadata_build((const cgr_metadata *)given);
}

/* ---- formats */

static cgr_status build_flashmla(void *memory, void *given) {
  return cgr_flashmla_build((const cgr_flashmla_input *)given, memory, 4096);
}

static cgr_status build_block_table(void *memory, void *given) {
  return cgr_block_table_build((const cgr_block_table_input *)given, memory, 4096);
}

static cgr_status build_gather(void *unused, void *given) {
  (void)unused;
  return cgr_gather_build((const cgr_gather *)given);
}

static void test_gather_input(void) {
  static const int32_t indptr[] = { 0, 1 }, indices[] = { 1 };
  int32_t table[1], overflow[1];
  cgr_gather gather = CGR_GATHER_INIT;
  void *memory = NULL;
  CHECK(posix_memalign(&memory, 16, 512) == 0);
  memset(memory, 0x38, 512); /* ones, as codes */
  gather.num_requests = gather.num_kv_heads = gather.page_size = 1;
  gather.head_dim = 16;
  gather.num_pages = gather.capacity = 2;
  gather.table_stride = 1;
  CHECK_OK(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, memory, CGR_DTYPE_FP8_E4M3, 1, 1, 16, &gather.k, &gather.v));
  CHECK_OK(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, (unsigned char *)memory + 64, CGR_DTYPE_FP16, 1, 1, 16, &gather.out_k,
                                 &gather.out_v));
  gather.kv_indptr = indptr;
  gather.kv_indices = indices;
  gather.block_table = table;
  gather.overflow = overflow;
  const sized_input input = { "cgr_gather_build: gather", &gather, sizeof gather, sizeof gather, build_gather };
  check_input(&input, NULL);
  CHECK(table[0] == 1 && overflow[0] == 0 && ((uint16_t *)memory)[32] == 0 && ((uint16_t *)memory)[64] == 0x3c00);
  free(memory);
}

static void test_format_inputs(void) {
  static const int32_t lens[] = { 20, 700 }, rows[] = { 1, 0 }, starts[] = { 0, 1, 2 };
  int32_t table[22];
  cgr_flashmla_input flashmla = CGR_FLASHMLA_INPUT_INIT;
  cgr_block_table_input block_table = CGR_BLOCK_TABLE_INPUT_INIT;
  void *memory = NULL;
  CHECK(posix_memalign(&memory, 32, 4096) == 0);
  for (int32_t i = 0; i < 22; i++)
    table[i] = 2 + i;
  flashmla.num_requests = 2;
  flashmla.num_parts = 4;
  flashmla.seq_lens = lens;
  block_table.num_requests = block_table.num_rows = 2;
  block_table.query_len = 1;
  block_table.max_seq_len = 700;
  block_table.max_pages = 11;
  block_table.page_size = 64;
  block_table.kv_layout = CGR_LAYOUT_HND;
  block_table.num_pages = 1000;
  block_table.page_table_stride = 11;
  block_table.rows = rows;
  block_table.seq_lens = lens;
  block_table.query_start_loc = starts;
  block_table.page_table = table;
  const sized_input inputs[] = {
    { "cgr_flashmla_build: input", &flashmla, sizeof flashmla, offsetof(cgr_flashmla_input, topk_lens), build_flashmla },
    { "cgr_block_table_build: input", &block_table, sizeof block_table, offsetof(cgr_block_table_input, live_requests),
      build_block_table },
  };
  for (int i = 0; i < 2; i++)
    check_input(&inputs[i], memory);
  CHECK(((int32_t *)memory)[0] == 13 && ((int32_t *)memory)[11] == 2);
  free(memory);
}

/* ---- configurations */

/* As long as it has no count of its own, the first finding tells the status. */
static cgr_status validate(void *unused, void *given) {
  int32_t count = -1;
  cgr_finding findings[4];
  const cgr_status status = cgr_validate((const cgr_config *)given, NULL, findings, 4, &count);
  (void)unused;
  CHECK(status == CGR_OK ? count == 0 : count > 0 && findings[0].status == (int32_t)status);
  return status;
}

static cgr_status create(void *unused, void *given) {
  cgr_runtime *runtime = NULL;
  const cgr_status status = cgr_runtime_create((const cgr_config *)given, &runtime);
  (void)unused;
  CHECK((status == CGR_OK) == (runtime != NULL));
  CHECK_OK(cgr_runtime_destroy(runtime));
  return status;
}

static cgr_status measure(void *unused, void *given) {
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  const cgr_status status = cgr_runtime_memory((const cgr_config *)given, &sizes);
  (void)unused;
  CHECK((status == CGR_OK) == (sizes.device_bytes > 0));
  return status;
}

/* The elements of a configuration's arrays: all three calls read them. The message is that of the last call that failed. */
static cgr_status use_config(world *w) {
  const cgr_status status = create(w, &w->config);
  CHECK(validate(w, &w->config) == status);
  CHECK(measure(w, &w->config) == status);
  return status;
}

static cgr_status use_group(void *context, void *given) {
  world *w = (world *)context;
  w->config.groups = (const cgr_group *)given;
  return use_config(w);
}

static cgr_status use_layer(void *context, void *given) {
  world *w = (world *)context;
  w->config.layers = (const cgr_layer *)given;
  return use_config(w);
}

static cgr_status use_buffer(void *context, void *given) {
  world *w = (world *)context;
  w->config.buffers = (const cgr_buffer_decl *)given;
  return use_config(w);
}

/* ---- a runtime */

static cgr_status capture(void *context, void *given) {
  return cgr_runtime_capture(((world *)context)->runtime, (const cgr_capture *)given);
}

static cgr_status warm_up(void *context, void *given) {
  return cgr_runtime_warmup(((world *)context)->runtime, (const cgr_capture *)given);
}

static cgr_status choose(void *context, void *given) {
  cgr_key key;
  return cgr_step_choose(((world *)context)->runtime, (const cgr_batch *)given, &key);
}

static cgr_status prepare(void *context, void *given) {
  world *w = (world *)context;
  cgr_step step = CGR_STEP_INIT;
  const cgr_status status = cgr_step_prepare(w->runtime, (const cgr_batch *)given, &step);
  if (status == CGR_OK)
    CHECK_OK(cgr_step_cancel(w->runtime, &step));
  return status;
}

static cgr_status build_fa3(void *context, void *given) { return cgr_fa3_build((const cgr_fa3_input *)given, context, 4 * 17); }

/* ---- the parts */

static void test_fa3_inputs(void) {
  static const int32_t starts[] = { 0, 1 }, seq_lens[] = { 20 };
  uint64_t metadata[12]; /* with a place that is aligned to 16 bytes */
  cgr_fa3_input fa3 = CGR_FA3_INPUT_INIT;
  fa3.num_requests = fa3.num_q_heads = fa3.num_kv_heads = fa3.max_query_len = fa3.num_splits = fa3.num_multiprocessors = 1;
  fa3.head_dim = 64;
  fa3.dtype = CGR_DTYPE_BF16;
  fa3.max_seq_len = 32;
  fa3.query_start_loc = starts;
  fa3.seq_lens = seq_lens;
  const sized_input input = { "cgr_fa3_build: input", &fa3, sizeof fa3, offsetof(cgr_fa3_input, live_requests), build_fa3 };
  check_input(&input, (void *)(((uintptr_t)metadata + 15) / 16 * 16));
}

static void test_planner_inputs(void) {
  static const int32_t query_lens[] = { 3 }, seq_lens[] = { 20 }, rows[] = { 0 }, tokens[] = { 4, 5, 6 }, computed[] = { 17 };
  static const int32_t last_tokens[] = { 9 }, table[] = { 2, 3, 0, 0 };
  int64_t slots[4];
  int32_t indptr[2], lens[1], ids[4], positions[4], starts[2], seqs[1], request_rows[1], logits[1];
  cgr_plan_input plan = CGR_PLAN_INPUT_INIT;
  cgr_metadata metadata = CGR_METADATA_INIT;
  const cgr_metadata_group group = { 16, 0, 1, 0, WORLD_PAGES, table, 2, slots, indptr, lens };
  plan.num_requests = 1;
  plan.query_lens = query_lens;
  plan.seq_lens = seq_lens;
  plan.num_parts = 4;
  plan.prefill_tile_q = 16;
  metadata.num_requests = metadata.padded_requests = metadata.max_rows = metadata.num_groups = 1;
  metadata.padded_tokens = 4;
  metadata.max_seq_len = 32;
  metadata.rows = rows;
  metadata.query_lens = query_lens;
  metadata.tokens = tokens;
  metadata.row_computed = computed;
  metadata.row_last_tokens = last_tokens;
  metadata.groups = &group;
  metadata.input_ids = ids;
  metadata.positions = positions;
  metadata.query_start_loc = starts;
  metadata.seq_lens = seqs;
  metadata.request_rows = request_rows;
  metadata.logits_indices = logits;
  static const int32_t qo_indptr[] = { 0, 3 }, kv_indptr[] = { 0, 2 };
  cgr_flashinfer_decode_input decode = CGR_FLASHINFER_DECODE_INPUT_INIT;
  cgr_flashinfer_prefill_input prefill = CGR_FLASHINFER_PREFILL_INPUT_INIT;
  decode.num_requests = prefill.num_requests = 1;
  decode.kv_indptr = prefill.kv_indptr = kv_indptr;
  prefill.qo_indptr = qo_indptr;
  prefill.total_num_rows = 3;
  decode.num_q_heads = decode.num_kv_heads = prefill.num_q_heads = prefill.num_kv_heads = 1;
  decode.head_dim = prefill.head_dim_qk = prefill.head_dim_vo = 64;
  decode.page_size = prefill.page_size = 16;
  decode.num_multiprocessors = prefill.num_multiprocessors = 4;
  decode.blocks_per_multiprocessor = 2;
  const sized_input inputs[] = {
    { "cgr_flashinfer_decode_build: input", &decode, sizeof decode, offsetof(cgr_flashinfer_decode_input, graph), build_decode },
    { "cgr_flashinfer_prefill_build: input", &prefill, sizeof prefill, sizeof prefill, build_prefill },
    { "cgr_plan_build: input", &plan, sizeof plan, sizeof plan, build_plan },
    { "cgr_metadata_build: metadata", &metadata, sizeof metadata, sizeof metadata, build_metadata },
  };
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
    check_input(&inputs[i], NULL);
  CHECK(ids[0] == 4 && ids[2] == 6 && positions[0] == 17 && slots[2] == 3 * 16 + 3 && slots[3] == -1 && seqs[0] == 20);
}

static void test_config_inputs(void) {
  world w;
  world_open(&w);
  const cgr_config config = w.config;
  const sized_input inputs[] = {
    { "config", &config, sizeof config, offsetof(cgr_config, graph_mode), validate },
    { "config", &config, sizeof config, offsetof(cgr_config, graph_mode), create },
    { "config", &config, sizeof config, offsetof(cgr_config, graph_mode), measure },
    { "groups[0]", &w.group, sizeof w.group, offsetof(cgr_group, read_trash_page), use_group },
    { "layers[0]", w.layers, sizeof w.layers[0], offsetof(cgr_layer, v) + offsetof(cgr_kv_view, scale), use_layer },
    { "buffers[0]", &w.buffer, sizeof w.buffer, offsetof(cgr_buffer_decl, padding), use_buffer },
  };
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
    w.config = config;
    check_input(&inputs[i], &w);
  }
  world_close(&w);
}

static void test_runtime_inputs(void) {
  world w;
  world_run(&w);
  const cgr_batch batch = world_batch(&w);
  const cgr_capture how = world_capture(&w);
  const sized_input inputs[] = {
    { "capture", &how, sizeof how, offsetof(cgr_capture, keys), capture },
    { "capture", &how, sizeof how, offsetof(cgr_capture, keys), warm_up },
    { "batch", &batch, sizeof batch, offsetof(cgr_batch, flags), choose },
    { "batch", &batch, sizeof batch, offsetof(cgr_batch, flags), prepare },
  };
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
    check_input(&inputs[i], &w);
  world_close(&w);
}

static int test_inputs(void) {
  const int before = check_failures;
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.host_schedule = CGR_SCHEDULE_RANDOM;
  config.host_seed = 11;
  const sized_input device = { "cgr_device_open: config", &config, sizeof config, sizeof(uint32_t), open_device };
  check_input(&device, NULL);
  test_planner_inputs();
  test_fa3_inputs();
  test_gather_input();
  test_format_inputs();
  test_config_inputs();
  test_runtime_inputs();
  return check_failures - before;
}

#endif

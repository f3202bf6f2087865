/* A program outside the tree, both C11 and C++: one layer of attention, captured and replayed, on the host device. The layer's
 * inputs never change, so every output is the value that was put into the cache. */
#include <cgr/cgr.h>
#include <cgr/tracing.h>
#include <stdio.h>

enum { DIM = 8, TOKENS = 4, PAGES = 4, PAGE_SIZE = 16 };

static float q[TOKENS * DIM], k[TOKENS * DIM], v[TOKENS * DIM], out[TOKENS * DIM];
static float cache[2 * PAGES * PAGE_SIZE * DIM];

#define TRY(call)                                             \
  do {                                                        \
    if ((call) != CGR_OK) {                                   \
      fprintf(stderr, "%s: %s\n", #call, cgr_last_message()); \
      return 1;                                               \
    }                                                         \
  } while (0)

static cgr_status record(cgr_recorder *recorder, void *engine) {
  cgr_attention a = CGR_ATTENTION_INIT;
  (void)engine;
  (void)cgr_view_make(q, CGR_DTYPE_FP32, 1, DIM, &a.q);
  (void)cgr_view_make(k, CGR_DTYPE_FP32, 1, DIM, &a.k);
  (void)cgr_view_make(v, CGR_DTYPE_FP32, 1, DIM, &a.v);
  (void)cgr_view_make(out, CGR_DTYPE_FP32, 1, DIM, &a.out);
  return cgr_record_attention(recorder, &a);
}

static int create(cgr_device *device, cgr_runtime **runtime) {
  static cgr_group group = CGR_GROUP_INIT;
  static cgr_layer layer = CGR_LAYER_INIT;
  cgr_config config = CGR_CONFIG_INIT;
  group.num_pages = PAGES;
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = DIM;
  TRY(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, cache, CGR_DTYPE_FP32, PAGE_SIZE, 1, DIM, &layer.k, &layer.v));
  config.device_handle = device;
  config.groups = &group;
  config.num_groups = 1;
  config.layers = &layer;
  config.num_layers = 1;
  config.max_requests = 1;
  config.max_tokens = TOKENS;
  config.max_seq_len = 2 * PAGE_SIZE;
  TRY(cgr_runtime_create(&config, runtime));
  return 0;
}

static int step(cgr_runtime *runtime, cudaStream_t stream, const cgr_batch *batch) {
  cgr_step s = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  TRY(cgr_step_prepare(runtime, batch, &s));
  TRY(cgr_step_launch(runtime, &s, stream));
  TRY(cgr_step_wait(runtime, s.mark, -1, &result));
  if (result.num_requests == 1 && out[0] > 2.999f && out[0] < 3.001f)
    return 0;
  fprintf(stderr, "step %d has %d requests and %g\n", (int)s.mark.seq, result.num_requests, (double)out[0]);
  return 1;
}

static int run(cgr_device *device, cgr_runtime *runtime, cudaStream_t stream) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  cgr_stats stats = CGR_STATS_INIT;
  cgr_batch batch = CGR_BATCH_INIT;
  uint64_t replays = 0;
  int32_t row, page = 2, lens = 3, tokens[3] = { 1, 2, 3 }, region;
  void *const memory[] = { q, k, v, out, cache };
  const size_t bytes[] = { sizeof q, sizeof k, sizeof v, sizeof out, sizeof cache };
  (void)device;
  for (int i = 0; i < 5; i++)
    TRY(cgr_region_register(runtime, memory[i], bytes[i], &region));
  capture.record = record;
  TRY(cgr_runtime_capture(runtime, &capture));
  TRY(cgr_request_open(runtime, 7, &row));
  TRY(cgr_request_set_pages(runtime, row, 0, 0, &page, 1));
  batch.num_requests = 1;
  batch.rows = &row;
  batch.query_lens = &lens;
  batch.tokens = tokens;
  if (step(runtime, stream, &batch))
    return 1;
  batch.query_lens = NULL; /* one token a step from now on */
  batch.tokens = NULL;
  for (int i = 0; i < 5; i++)
    if (step(runtime, stream, &batch))
      return 1;
  TRY(cgr_runtime_stats(runtime, &stats));
  for (int reason = 0; reason < 16; reason++)
    replays += stats.by_reason[CGR_KIND_FULL][reason];
  printf("%s: %d replays\n", cgr_build_info(), (int)replays);
  return cgr_version() == CGR_VERSION && replays >= 6 ? 0 : 1;
}

int main(void) {
  cgr_device *device = NULL;
  cgr_runtime *runtime = NULL;
  cudaStream_t stream = NULL;
  int failed;
  for (int i = 0; i < TOKENS * DIM; i++)
    v[i] = 3.0f;
  TRY(cgr_device_open("host", NULL, &device));
  TRY(cgr_stream_create(device, &stream));
  failed = create(device, &runtime) || run(device, runtime, stream);
  TRY(cgr_runtime_destroy(runtime));
  TRY(cgr_stream_destroy(device, stream));
  TRY(cgr_device_close(device));
  return failed;
}

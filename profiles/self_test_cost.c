/* How long a self-test of the default sizes takes: 32 layers of eight empty kernels, append and attention, up to 512 requests and
 * 8192 tokens.
 *
 *   bazel-bin/profiles/self_test_cost [cuda:0|host] [layers] [pages]
 *
 * Findings are printed; there are none. */
#include <stdlib.h>

#include "cgr/tracing.h"
#include "profiles/support/bench.h"

#define MAX_FINDINGS 16

/* A step of the benchmark samples nothing: its tokens are 7. */
static cgr_status record(cgr_recorder *recorder, void *context) {
  const bench_engine *e = context;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_buffer_view tokens = CGR_BUFFER_VIEW_INIT;
  cgr_status status = bench_record(recorder, context);
  if (status == CGR_OK)
    status = cgr_record_get_info(recorder, &info);
  if (status == CGR_OK)
    status = cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &tokens);
  return status == CGR_OK ? cgr_fill(e->dev, tokens.data, 7, (size_t)info.num_requests * 4, info.stream) : status;
}

static void run(bench_engine *e, int32_t num_pages) {
  cgr_finding findings[MAX_FINDINGS];
  cgr_self_test test = CGR_SELF_TEST_INIT;
  cgr_stats before = CGR_STATS_INIT, after = CGR_STATS_INIT;
  int32_t count = 0;
  test.num_pages = num_pages;
  test.pages = e->page_order;
  test.max_token = 256;
  for (uint32_t seed = 1; seed <= 3; seed++) {
    test.seed = seed;
    bench_check(cgr_runtime_stats(e->rt, &before), "cgr_runtime_stats");
    double begin = bench_now_us();
    cgr_status status = cgr_runtime_self_test(e->rt, &test, findings, MAX_FINDINGS, &count);
    double ms = (bench_now_us() - begin) * 1e-3;
    bench_check(cgr_runtime_stats(e->rt, &after), "cgr_runtime_stats");
    printf("| %u | %d | %d | %llu | %.0f | %d |\n", seed, e->num_layers, after.num_graphs,
           (unsigned long long)(after.steps - before.steps), ms, count);
    for (int32_t i = 0; i < count && i < MAX_FINDINGS; i++)
      printf("%s: %s\n", findings[i].field, findings[i].text);
    bench_check(status, "cgr_runtime_self_test");
  }
}

int main(int argc, char **argv) {
  bench_engine e;
  bench_options o = { .device = argc > 1 ? argv[1] : NULL, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  int32_t num_pages = argc > 3 ? atoi(argv[3]) : 256;
  o.num_layers = argc > 2 ? atoi(argv[2]) : 32;
  if (o.num_layers < 1 || o.num_layers > 64 || num_pages < 4 || num_pages > 4000)
    bench_fail("usage: %s [cuda:0|host] [layers, 1 to 64] [pages, 4 to 4000]", argv[0]);
  o.page_size = 16;
  o.num_pages = 4096;
  o.fillers = 8;
  o.max_requests = 512;
  o.max_tokens = 8192;
  o.max_seq_len = 4096;
  o.mode = CGR_MODE_FULL;
  bench_open(&e, &o);
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = record;
  capture.engine = &e;
  bench_check(cgr_runtime_capture(e.rt, &capture), "cgr_runtime_capture");
  bench_print_head(stdout, e.dev, "profiles/self_test_cost");
  printf("# pages given: %d of 16 tokens\n", num_pages);
  printf("\n| seed | layers | graphs | steps | ms | findings |\n|---:|---:|---:|---:|---:|---:|\n");
  run(&e, num_pages);
  bench_close(&e);
  return 0;
}

/* What a FULL decode step costs the host: prepare and launch, for batches of 1 to 1024 requests, unchanged and while 1/16 of the
 * rows append a page; beside them the bare launch of the same executable graph in the same run. Then the capture of a ladder.
 *
 *   bazel-bin/profiles/step_cost [cuda:0|host] [steps]
 *
 * The step has 160 layers of append and attention: 323 kernel nodes. Every step is waited for outside of the measured time, so
 * that neither the ring nor the driver's queue pushes back. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "runtime/runtime.h"

#define LAYERS 160
#define WARMUP 50

typedef struct cost {
  double prepare, prepare_p99, launch, launch_p99, both, both_p99;
  uint32_t bytes;
} cost;

/* One of every `sixteenth` rows gets a page in each step: it overwrites the row's last page entry, which travels like a new one.
 */
static void append_pages(bench_engine *e, int32_t count, int32_t step) {
  int32_t page_index = e->max_seq_len / e->page_size - 1;
  for (int32_t i = step % 16; i < count; i += 16) {
    int32_t page = bench_take_page(e);
    bench_check(cgr_request_set_pages(e->rt, e->rows[i], 0, page_index, &page, 1), "cgr_request_set_pages");
  }
}

static cost measure(bench_engine *e, int32_t count, int32_t steps, int append) {
  for (int32_t i = 0; i < count; i++)
    bench_check(cgr_request_rewind(e->rt, e->rows[i], 16), "cgr_request_rewind");
  double *prepare = malloc((size_t)steps * sizeof *prepare), *launch = malloc((size_t)steps * sizeof *launch),
         *both = malloc((size_t)steps * sizeof *both);
  int32_t *tokens = calloc((size_t)count, sizeof *tokens);
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = count;
  batch.rows = e->rows;
  batch.tokens = tokens; /* the first step of fresh rows; then the device has them */
  cost result = { 0 };
  for (int32_t i = -WARMUP; i < steps; i++) {
    if (append)
      append_pages(e, count, i + WARMUP);
    cgr_step step = CGR_STEP_INIT;
    double t0 = bench_now_us();
    cgr_status prepared = cgr_step_prepare(e->rt, &batch, &step);
    double t1 = bench_now_us();
    cgr_status launched = prepared == CGR_OK ? cgr_step_launch(e->rt, &step, e->stream) : prepared;
    double t2 = bench_now_us();
    bench_check(launched, "step");
    if (step.key.kind != CGR_KIND_FULL)
      bench_check(cgr__fail(CGR_ERROR_STATE, "the step of %d requests ran eagerly", count), "step");
    bench_check(cgr_step_wait(e->rt, step.seq, NULL), "cgr_step_wait");
    batch.tokens = NULL;
    if (i < 0)
      continue;
    prepare[i] = t1 - t0;
    launch[i] = t2 - t1;
    both[i] = t2 - t0;
    result.bytes = step.bytes_staged;
  }
  result.prepare = bench_quantile(prepare, steps, 0.5);
  result.prepare_p99 = bench_quantile(prepare, steps, 0.99);
  result.launch = bench_quantile(launch, steps, 0.5);
  result.launch_p99 = bench_quantile(launch, steps, 0.99);
  result.both = bench_quantile(both, steps, 0.5);
  result.both_p99 = bench_quantile(both, steps, 0.99);
  free(prepare);
  free(launch);
  free(both);
  free(tokens);
  return result;
}

/* The same executable graph launched by itself. Its prologue finds an old slot and runs the step without requests: what the
 * host pays for the launch is the same. Only for the end of a runtime's life. */
static double bare_launch(bench_engine *e, int32_t bucket_index, int32_t steps, double *p99) {
  double *times = malloc((size_t)steps * sizeof *times);
  cgr__exec *exec = e->rt->graphs.entry[bucket_index].exec;
  uint64_t completed = cgr_runtime_completed(e->rt);
  for (int32_t i = -WARMUP; i < steps; i++) {
    double t0 = bench_now_us();
    int error = e->dev->ops->exec_launch(e->dev, exec, e->stream);
    double t1 = bench_now_us();
    if (error)
      bench_check(CGR_ERROR_DEVICE, "bare launch");
    completed++; /* waited for as cgr_step_wait does: the epilogue publishes these steps too */
    while (cgr_runtime_completed(e->rt) < completed)
      continue;
    if (i >= 0)
      times[i] = t1 - t0;
  }
  double median = bench_quantile(times, steps, 0.5);
  *p99 = bench_quantile(times, steps, 0.99);
  free(times);
  return median;
}

/* Every row has all its pages from the start; they are shared between rows, which a benchmark may do. */
static bench_options options_for(const char *device, const int32_t *buckets, int32_t num_buckets, int32_t max_requests,
                                 int32_t max_seq_len) {
  bench_options o = { device, LAYERS, 4, 1, 64, 16, max_requests, max_requests, max_seq_len, 1, 8192, buckets, num_buckets };
  return o;
}

static void step_table(const char *device, int32_t steps) {
  static const int32_t buckets[] = { 1, 8, 64, 256, 1024 };
  const int32_t num_buckets = (int32_t)(sizeof buckets / sizeof buckets[0]);
  bench_engine engine;
  int32_t max_seq_len = (16 + WARMUP + steps + 32) / 16 * 16;
  bench_options o = options_for(device, buckets, num_buckets, 1024, max_seq_len);
  bench_open(&engine, &o);
  bench_print_head(stdout, engine.dev, "profiles/step_cost");
  cost unchanged[8], appending[8];
  for (int32_t b = 0; b < num_buckets; b++) {
    bench_open_rows(&engine, buckets[b], 16, max_seq_len);
    unchanged[b] = measure(&engine, buckets[b], steps, 0);
    appending[b] = measure(&engine, buckets[b], steps, 1);
    bench_close_rows(&engine, buckets[b]);
  }
  printf("\n## Host time of a FULL decode step, microseconds: median (p99)\n");
  printf("| requests | prepare | launch | both | bytes staged | both, 1/16 of rows append a page | bytes | bare launch | ratio | "
         "ratio, appending |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int32_t b = 0; b < num_buckets; b++) {
    double p99, bare = bare_launch(&engine, b, steps, &p99);
    printf("| %d | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) | %u | %.2f (%.2f) | %u | %.2f (%.2f) | %.2f | %.2f |\n", buckets[b],
           unchanged[b].prepare, unchanged[b].prepare_p99, unchanged[b].launch, unchanged[b].launch_p99, unchanged[b].both,
           unchanged[b].both_p99, unchanged[b].bytes, appending[b].both, appending[b].both_p99, appending[b].bytes, bare, p99,
           unchanged[b].both / bare, appending[b].both / bare);
  }
  bench_close(&engine);
}

static void capture_table(const char *device) {
  bench_engine engine;
  bench_options o = options_for(device, NULL, 0, 512, 4096);
  bench_open(&engine, &o);
  double ms = 0.0;
  int64_t bytes = 0, nodes = 0;
  int32_t count = cgr_runtime_num_keys(engine.rt);
  for (int32_t i = 0; i < count; i++) {
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    bench_check(cgr_runtime_graph_stats(engine.rt, i, &stats), "cgr_runtime_graph_stats");
    ms += stats.capture_ms;
    bytes += stats.device_bytes;
    nodes = stats.num_nodes;
  }
  printf("\n## Capture of the default ladder up to 512\n| graphs | nodes each | ms in all | ms each | device bytes each |\n"
         "|---:|---:|---:|---:|---:|\n| %d | %lld | %.1f | %.2f | %.0f |\n",
         count, (long long)nodes, ms, ms / count, (double)bytes / count);
  bench_close(&engine);
}

int main(int argc, char **argv) {
  const char *device = argc > 1 ? argv[1] : NULL;
  int32_t steps = argc > 2 ? atoi(argv[2]) : 2000;
  if (steps < 10) {
    fprintf(stderr, "usage: step_cost [cuda:0|host] [steps, at least 10]\n");
    return 2;
  }
  step_table(device, steps);
  capture_table(device);
  return 0;
}

/* What timestamps inside the graph cost (cgr_config.timing): a decode of 16 requests as a FULL graph of 32 layers, without them,
 * of its phases, and of its layers too.
 *
 *   bazel-bin/profiles/timing_cost [cuda:0|host] [steps in a block] [blocks]
 *
 * A step's device time is the time from step to step while the next one is always launched before the last has ended, so that the
 * device does not wait for the host; steps for which this fails are counted (`late`). Its host time is that of prepare and
 * launch. The three run in turn, a block each; medians over the blocks. Then the clock: the smallest difference between two
 * stamps that is not 0, and how exactly it was compared with the host's. And what reading a step's spans costs. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "profiles/support/series.h"
#include "runtime/runtime.h"

#define LAYERS 32
#define REQUESTS 16
#define MAX_BLOCKS 1000
#define WARMUP 20
#define MAX_SPANS (CGR_PHASE_COUNT_ + 3 * LAYERS)

typedef struct side {
  bench_engine engine;
  double step[MAX_BLOCKS], host[MAX_BLOCKS]; /* us */
  int64_t nodes, late;                       /* late: steps launched when the one before had ended */
} side;

static void open_side(side *s, const char *device, int32_t timing) {
  static const int32_t buckets[] = { REQUESTS };
  const bench_options options = { .device = device,
                                  .num_layers = LAYERS,
                                  .num_q_heads = 4,
                                  .num_kv_heads = 1,
                                  .head_dim = 64,
                                  .page_size = 16,
                                  .num_pages = 1280,
                                  .max_requests = REQUESTS,
                                  .max_tokens = REQUESTS,
                                  .max_seq_len = 2048,
                                  .fillers = 8,
                                  .buckets = buckets,
                                  .num_buckets = 1,
                                  .timing = timing };
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  bench_open(&s->engine, &options);
  bench_open_rows(&s->engine, REQUESTS, 16, 1100);
  bench_flush(&s->engine);
  bench_check(cgr_runtime_graph_stats(s->engine.rt, 0, &stats), "cgr_runtime_graph_stats");
  s->nodes = stats.num_nodes;
}

/* Returns the number of the step; `*us` grows by what the host took. */
static uint64_t launch(bench_engine *e, double *us) {
  static const int32_t tokens[REQUESTS];
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  batch.num_requests = REQUESTS;
  batch.rows = e->rows;
  batch.tokens = tokens;
  double begin = bench_now_us();
  bench_check(cgr_step_prepare(e->rt, &batch, &step), "cgr_step_prepare");
  bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
  *us += bench_now_us() - begin;
  if (step.key.kind != CGR_KIND_FULL)
    bench_fail("the step was not replayed");
  return step.mark.seq;
}

/* Sequences begin again, so that every block has the same lengths. */
static void begin_block(bench_engine *e) {
  for (int32_t i = 0; i < REQUESTS; i++)
    bench_check(cgr_request_set_length(e->rt, e->rows[i], 16), "cgr_request_set_length");
  bench_flush(e);
}

static void run_block(side *s, int32_t steps, int32_t block) {
  double host = 0.0, unused = 0.0, begin = 0.0;
  uint64_t before = 0;
  begin_block(&s->engine);
  for (int32_t i = 0; i < WARMUP + steps; i++) {
    uint64_t seq = launch(&s->engine, i < WARMUP ? &unused : &host);
    s->late += i >= WARMUP && bench_completed(&s->engine) >= before;
    if (before)
      bench_wait(&s->engine, before);
    before = seq;
    if (i == WARMUP - 1)
      begin = bench_now_us(); /* one has ended, one is running: as at the end */
  }
  s->step[block] = (bench_now_us() - begin) / steps;
  s->host[block] = host / steps;
  bench_wait(&s->engine, before);
}

static void print_sides(side *sides, int32_t blocks) {
  double step[3], host[3];
  for (int i = 0; i < 3; i++) {
    step[i] = bench_quantile(sides[i].step, blocks, 0.5);
    host[i] = bench_quantile(sides[i].host, blocks, 0.5);
  }
  printf("| timing | nodes | us of a step on the device | more | us for each stamp | us of prepare and launch | late |\n");
  printf("|---|---:|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < 3; i++) {
    int64_t stamps = sides[i].nodes - sides[0].nodes;
    printf("| %d | %lld | %.2f | %.2f | %.2f | %.2f | %lld |\n", i, (long long)sides[i].nodes, step[i], step[i] - step[0],
           stamps > 0 ? (step[i] - step[0]) / (double)stamps : 0.0, host[i], (long long)sides[i].late);
  }
}

/* Of the stamps of some steps; and what reading them costs. */
static void print_clock(side *s, int32_t steps) {
  static cgr_span spans[MAX_SPANS];
  uint64_t least = UINT64_MAX;
  double unused = 0.0, *reads = malloc((size_t)steps * sizeof *reads);
  if (!reads)
    bench_fail("no memory");
  for (int i = 0; i < MAX_SPANS; i++)
    spans[i].size = sizeof spans[i];
  begin_block(&s->engine);
  for (int32_t i = 0; i < steps; i++) {
    int32_t count = 0;
    uint64_t seq = launch(&s->engine, &unused);
    bench_wait(&s->engine, seq);
    double begin = bench_now_us();
    bench_check(cgr_runtime_timing(s->engine.rt, (cgr_mark){ 0, 0, seq }, spans, MAX_SPANS, &count), "cgr_runtime_timing");
    reads[i] = bench_now_us() - begin;
    for (int32_t k = 1; k < count; k++) {
      uint64_t passed = spans[k].begin_ns - spans[k - 1].begin_ns;
      least = passed > 0 && passed < least ? passed : least;
    }
  }
  printf("\n| the clock | ns |\n|---|---:|\n");
  printf("| smallest difference between two stamps | %llu |\n", (unsigned long long)least);
  printf("| error of the comparison with the host's | %llu |\n", (unsigned long long)s->engine.rt->timing.clock.last.error_ns);
  printf("\nReading the spans of a step: %.1f us (median of %d).\n", bench_quantile(reads, steps, 0.5), steps);
  free(reads);
}

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  static side sides[3];
  if (b.steps > 1000)
    bench_fail("expected at most 1000 steps in a block");
  for (int32_t i = 0; i < 3; i++)
    open_side(&sides[i], b.device, i);
  bench_print_head(stdout, sides[0].engine.dev, "profiles/timing_cost");
  for (int32_t block = 0; block < b.blocks; block++)
    for (int i = 0; i < 3; i++)
      run_block(&sides[i], b.steps, block);
  print_sides(sides, b.blocks);
  print_clock(&sides[2], b.steps);
  fflush(stdout);
  for (int i = 0; i < 3; i++) {
    bench_close_rows(&sides[i].engine, REQUESTS);
    bench_close(&sides[i].engine);
  }
  return 0;
}

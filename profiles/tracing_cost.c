/* What the flight recorder and the statistics cost a step: the functions that a step calls for them, by themselves, over the
 * runtime's own ring and sums.
 *
 *   bazel-bin/profiles/tracing_cost [cuda:0|host] [steps of a block, in thousands] [blocks]
 *
 * A round is what a replayed step adds: a reading of the time stamp counter, or four if the step is timed (one in 8 here), the
 * notes of prepare, one record, and its share of the counting of records, which here, where no call waits for a step, one round
 * in CGR__FOLD_EVERY does for all. Warm: rounds one after the other. Cold: before each round 64 MB of other memory are touched,
 * which leaves nothing of the sums in any cache, and the record's line is prefetched, as cgr_step_prepare does. Both minus the
 * same loop without the round. Single rounds are timed one by one, with the reading of the counter that this takes. Target: 50
 * ns, warm, all together, and the counting above the 99th percentile. */
#include <stdlib.h>

#include "profiles/support/bench.h"
#include "profiles/support/series.h"
#include "runtime/report/report.h"
#include "runtime/runtime.h"

#define TARGET_NS 50.0
#define TOUCHED_BYTES ((size_t)64 << 20)
#define SINGLE_ROUNDS 100000
#define MOST_BLOCKS 1000

/* Kept from the compiler, which would otherwise drop what is never read. */
static volatile uint64_t seen;

static void read_counter(cgr_runtime *rt) {
  (void)rt;
  seen = cgr__ticks();
}

static void whole_round(cgr_runtime *rt) {
  uint64_t began = cgr__ticks();
  cgr__flight_prepared(rt, began);
  began = cgr__flight_launching(rt);
  rt->lane.prepared.seq++;
  cgr__flight_launched(rt, began);
}

static void nothing(cgr_runtime *rt) { rt->lane.prepared.seq++; }

/* ns of a call. */
static double time_warm(cgr_runtime *rt, void (*round)(cgr_runtime *rt), int32_t steps) {
  double begin = bench_now_us();
  for (int32_t i = 0; i < steps; i++)
    round(rt);
  return (bench_now_us() - begin) * 1e3 / steps;
}

/* As found by a step that comes milliseconds after the last. */
static void make_cold(cgr_runtime *rt, unsigned char *memory) {
  for (size_t at = 0; at < TOUCHED_BYTES; at += CGR__CACHE_LINE_BYTES)
    ((volatile unsigned char *)memory)[at]++;
  __builtin_prefetch(cgr__flight_at(&rt->flight, rt->flight.count), 1);
  uint64_t until = cgr__ticks() + 1000; /* what prepare and launch have to do meanwhile */
  while (cgr__ticks() < until)
    ;
}

/* The same, of the ticks that it takes itself. */
static double time_cold(cgr_runtime *rt, void (*round)(cgr_runtime *rt), int32_t steps, unsigned char *memory) {
  uint64_t ticks = 0;
  for (int32_t i = 0; i < steps; i++) {
    make_cold(rt, memory);
    uint64_t begin = cgr__ticks();
    round(rt);
    ticks += cgr__ticks() - begin;
  }
  cgr__tick_clock_compare(&rt->statistics.clock);
  return (double)ticks * rt->statistics.clock.ns_per_tick / steps;
}

/* Rounds one by one, in ns: all of them, and those that count records. `memory`: NULL: warm. */
static void time_single(cgr_runtime *rt, int32_t rounds, unsigned char *memory, double *all, double *folding,
                        int32_t *num_folding) {
  double ns_per_tick = rt->statistics.clock.ns_per_tick;
  *num_folding = 0;
  for (int32_t i = 0; i < rounds; i++) {
    uint64_t folded = rt->statistics.folded;
    if (memory)
      make_cold(rt, memory);
    uint64_t begin = cgr__ticks();
    whole_round(rt);
    all[i] = (double)(cgr__ticks() - begin) * ns_per_tick;
    if (rt->statistics.folded != folded)
      folding[(*num_folding)++] = all[i];
  }
}

static void print_single(cgr_runtime *rt, const char *name, int32_t rounds, unsigned char *memory) {
  static double all[SINGLE_ROUNDS], folding[SINGLE_ROUNDS];
  int32_t count;
  time_single(rt, rounds, memory, all, folding, &count);
  printf("| single rounds, %s: median, p99, p99.9 | %.0f, %.0f, %.0f | |\n", name, bench_quantile(all, rounds, 0.5),
         bench_quantile(all, rounds, 0.99), bench_quantile(all, rounds, 0.999));
  printf("| of these the %d that count %d records: median | %.0f | |\n", count, CGR__FOLD_EVERY,
         count > 0 ? bench_quantile(folding, count, 0.5) : 0.0);
}

typedef struct result {
  double warm[MOST_BLOCKS], all[MOST_BLOCKS], counter[MOST_BLOCKS], cold[MOST_BLOCKS];
} result;

static void measure(cgr_runtime *rt, int32_t steps, int32_t blocks, unsigned char *memory, result *r) {
  for (int32_t b = 0; b < blocks; b++) {
    double loop = time_warm(rt, nothing, steps);
    r->warm[b] = time_warm(rt, whole_round, steps) - loop;
    uint32_t time_mask = rt->flight.time_mask;
    rt->flight.time_mask = 0; /* every step */
    r->all[b] = time_warm(rt, whole_round, steps) - loop;
    rt->flight.time_mask = time_mask & 0xffu;
    r->counter[b] = time_warm(rt, read_counter, steps) - loop;
    int32_t few = CGR__FOLD_EVERY; /* one of them counts records */
    double bare = time_cold(rt, nothing, few, memory);
    r->cold[b] = time_cold(rt, whole_round, few, memory) - bare;
  }
}

/* One step through the public calls, so that the rounds repeat a real one. */
static void launch_one(bench_engine *e) {
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  int32_t tokens[8] = { 0 };
  batch.num_requests = 8;
  batch.rows = e->rows;
  batch.tokens = tokens;
  bench_check(cgr_step_prepare(e->rt, &batch, &step), "cgr_step_prepare");
  bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
  bench_wait(e, step.mark.seq);
  if (step.key.kind != CGR_KIND_FULL)
    bench_fail("the step was not replayed");
}

int main(int argc, char **argv) {
  const char *device = argc > 1 ? argv[1] : "cuda:0";
  int32_t steps = argc > 2 ? atoi(argv[2]) * 1000 : 1000000, blocks = argc > 3 ? atoi(argv[3]) : 21;
  static result r;
  static const int32_t buckets[] = { 8 };
  bench_engine e;
  const bench_options options = { .device = device,
                                  .num_layers = 1,
                                  .num_q_heads = 1,
                                  .num_kv_heads = 1,
                                  .head_dim = 64,
                                  .page_size = 16,
                                  .max_requests = 8,
                                  .max_tokens = 8,
                                  .max_seq_len = 64,
                                  .num_pages = 64,
                                  .buckets = buckets,
                                  .num_buckets = 1 };
  if (steps < 1000 || blocks < 1 || blocks > MOST_BLOCKS)
    bench_fail("usage: tracing_cost [device] [steps of a block, in thousands: 1 or more] [blocks: 1 .. %d]", MOST_BLOCKS);
  bench_open(&e, &options);
  bench_open_rows(&e, 8, 16, 48);
  bench_flush(&e);
  launch_one(&e);
  bench_print_head(stdout, e.dev, "profiles/tracing_cost");
  unsigned char *memory = malloc(TOUCHED_BYTES);
  if (!memory)
    bench_fail("no memory");
  measure(e.rt, steps, blocks, memory, &r);
  double warm = bench_quantile(r.warm, blocks, 0.5);
  printf("| ns a step | median of %d blocks | target |\n|---|---:|---:|\n", blocks);
  printf("| recorder and statistics | %.1f | %.0f |\n", warm, TARGET_NS);
  printf("| the same with every step timed | %.1f | |\n", bench_quantile(r.all, blocks, 0.5));
  printf("| one reading of the counter | %.1f | |\n", bench_quantile(r.counter, blocks, 0.5));
  printf("| recorder and statistics, other lines cold | %.1f | |\n", bench_quantile(r.cold, blocks, 0.5));
  print_single(e.rt, "warm", SINGLE_ROUNDS, NULL);
  print_single(e.rt, "cold", SINGLE_ROUNDS / 50, memory);
  free(memory);
  fflush(stdout);
  bench_close_rows(&e, 8);
  bench_close(&e);
  return 0;
}

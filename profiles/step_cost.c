/* What a FULL decode step costs the host, prepare and launch together, next to the bare launch of the same executable graph: for
 * batches of 1 to 1024 requests that do not change, while 1/16 of the rows append a page, and while one request leaves and
 * another comes (close, open, 40 pages) in every step, in its place or behind the others; given whole, and as the standing
 * batch. The target is that of the ratio, with that of the p99s' ratio in brackets; on the host device neither means anything.
 *
 *   bazel-bin/profiles/step_cost [cuda:0|host] [steps in a block] [blocks] [tables] [nodes of the graph]
 *
 * `tables` names some of these, e.g. "tight,loops"; without it all are run, which takes four minutes:
 *     tight    every step is waited for outside of the measured time, so that neither the ring nor the driver's queue pushes back
 *     loops    steps take 0.3, 1 and 5 ms on the GPU; the host launches one while the one before it runs, and waits as engines do
 *     touched  tight, with 64 MB of the host's memory touched between steps: cold caches
 *     changing loops and touched steps also of batches that change; only if it is named
 *     standing standing batches alone; only if it is named
 *     guesses  tight, of requests with 3 guesses each, some of which the device accepts: of no step the host knows the result
 * Loops and touched steps are slow: they have fewer and shorter blocks.
 *
 * Both sides run in turn, a block of one and a block of the other, in one process. Reported: the median over all steps, and the
 * median of the blocks' 99th percentiles. Ratios are medians over the pairs of blocks, so that other load on the machine
 * affects both sides. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "profiles/support/loads.h"
#include "profiles/support/series.h"
#include "runtime/step/step.h"
#include "runtime/runtime.h"

#define LAYERS 2
#define NODES 66 /* of the graph */
#define LENGTH 16
#define WARMUP 20
#define GUESSES 3
#define TOUCHED_BYTES ((size_t)64 << 20)

typedef struct loop {
  const char *table, *name;
  uint64_t pace_ns; /* a step takes that long; 0: it is waited for at once */
  bool touch;
  int32_t max_steps, max_blocks;
} loop;

static const loop loops[] = {
  { "tight", "tight", 0, false, 10000, 1000 },           { "loops", "steps of 0.3 ms", 300000, false, 200, 20 },
  { "loops", "steps of 1 ms", 1000000, false, 150, 10 }, { "loops", "steps of 5 ms", 5000000, false, 50, 10 },
  { "touched", "64 MB touched", 0, true, 50, 10 },       { "guesses", "tight", 0, false, 10000, 1000 },
};
#define NUM_LOOPS ((int)(sizeof loops / sizeof loops[0]))

typedef struct run {
  bench_engine *engine;
  const loop *loop;
  bench_load load;
  int32_t bucket;        /* index of the graph */
  int32_t steps, blocks; /* of a block; blocks of each side */
  unsigned char *touched;
  uint64_t bytes; /* staged by the last step */
  double wait_us; /* tight: from the end of a launch to the end of its step, on average */
} run;

static void touch(const run *r) {
  for (size_t i = 0; r->loop->touch && i < TOUCHED_BYTES; i += 64)
    ((volatile unsigned char *)r->touched)[i]++;
}

/* ------------------------------------------------------------------------------------------------------------- cgr's side */

/* After step `seq`, behind `before`. */
static void wait_for_step(run *r, uint64_t before, uint64_t seq) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  if (r->loop->pace_ns == 0)
    bench_wait(r->engine, seq);
  else if (before > 0)
    bench_check(cgr_step_wait(r->engine->rt, (cgr_mark){ 0, 0, before }, -1, &result), "cgr_step_wait");
}

static void cgr_block(run *r, bench_series *s) {
  uint64_t before = 0;
  double waited = 0.0;
  bench_load_rewind(&r->load, LENGTH); /* after a bare block the runtime sends all tables again */
  for (int32_t i = 0; i < WARMUP + r->steps; i++) {
    cgr_step step;
    bench_load_ahead(&r->load, i);
    touch(r);
    double begin = bench_now_us();
    cgr_status status = bench_load_step(&r->load, i, &step);
    double end = bench_now_us();
    bench_check(status, "step");
    wait_for_step(r, before, step.mark.seq);
    waited += bench_now_us() - end;
    bench_load_after(&r->load, &step);
    before = step.mark.seq;
    r->bytes = step.bytes_staged;
    if (i >= WARMUP)
      bench_series_add(s, end - begin);
  }
  bench_wait(r->engine, before);
  if (r->engine->draft_tokens) /* and takes the results, before rows go back to their first length */
    bench_check(cgr_step_wait(r->engine->rt, (cgr_mark){ 0, 0, before }, -1, NULL), "cgr_step_wait");
  r->wait_us = waited / (WARMUP + r->steps);
  bench_series_end_block(s);
}

/* ------------------------------------------------------------------------------------------------------------ bare launch */

/* Its steps have no requests, and may take less time: the host waits as long as for cgr's, so that both sides meet equally cold
 * caches. */
static void wait_for_launch(run *r, uint64_t seq, double end) {
  if (r->loop->pace_ns > 0) {
    bench_check(cgr__wait_completed(r->engine->rt, "bare launch", seq - 1, 60000), "bare launch");
    return;
  }
  bench_wait(r->engine, seq);
  while (bench_now_us() - end < r->wait_us)
    ;
}

/* The same executable graph launched by itself. Its prologue finds another step's number in the ring slot and runs without
 * requests; what the host pays for the launch is the same. Afterwards the runtime is told of the steps that it did not launch. */
static void bare_block(run *r, bench_series *s) {
  bench_engine *e = r->engine;
  cgr__exec *exec = e->rt->graphs.entry[r->bucket].exec;
  uint64_t seq = bench_completed(e);
  for (int32_t i = 0; i < WARMUP + r->steps; i++) {
    touch(r);
    double begin = bench_now_us();
    int error = e->dev->ops->exec_launch(e->dev, exec, e->stream);
    double end = bench_now_us();
    if (error)
      bench_check(CGR_ERROR_DEVICE, "bare launch");
    wait_for_launch(r, ++seq, end); /* the epilogue publishes these steps too */
    if (i >= WARMUP)
      bench_series_add(s, end - begin);
  }
  bench_wait(e, seq);
  e->rt->lane.launched = seq;
  bench_series_end_block(s);
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

static bool is_guessing(bench_load_kind kind) { return kind == BENCH_GUESSING || kind == BENCH_GUESSING_STANDING; }

static bool is_standing(bench_load_kind kind) {
  return kind == BENCH_GUESSING_STANDING || kind == BENCH_UNCHANGED_STANDING || kind == BENCH_APPENDING_STANDING ||
         kind == BENCH_CHURNING_STANDING;
}

static bool is_unchanged(bench_load_kind kind) { return kind == BENCH_UNCHANGED || kind == BENCH_UNCHANGED_STANDING; }

/* Most that prepare and launch may take, in bare launches; 0: not given. */
static double target_of(const run *r) {
  bool large = r->load.requests > 256;
  if (r->loop->pace_ns > 0 || r->loop->touch)
    return is_unchanged(r->load.kind) ? 1.25 : 0.0;
  switch (r->load.kind) {
  case BENCH_UNCHANGED:
  case BENCH_UNCHANGED_STANDING:
    return 1.1;
  case BENCH_GUESSING_STANDING: /* given whole, such a batch travels whole */
    return 1.2;
  case BENCH_APPENDING:
  case BENCH_APPENDING_STANDING:
    return large ? 1.4 : 1.25;
  case BENCH_CHURNING:
  case BENCH_MOVING_UP:
    return large ? 3.5 : 2.5;
  case BENCH_CHURNING_STANDING:
    return 2.5;
  default:
    return 0.0;
  }
}

static void print_target(const run *r) {
  double target = target_of(r);
  if (target > 0.0)
    printf(" %.2f", target);
  if (is_unchanged(r->load.kind) && r->loop->pace_ns == 0 && !r->loop->touch)
    printf(" (1.25)");
  printf(" |\n");
}

static void compare_costs(run *r) {
  double median, p99, bare, bare_p99;
  bench_series ours = bench_series_open(r->steps, r->blocks), theirs = bench_series_open(r->steps, r->blocks);
  for (int32_t b = 0; b < r->blocks; b++) {
    cgr_block(r, &ours);
    bare_block(r, &theirs);
  }
  double medians = bench_ratio(ours.medians, theirs.medians, r->blocks), p99s = bench_ratio(ours.p99s, theirs.p99s, r->blocks);
  bench_series_close(&ours, &median, &p99);
  bench_series_close(&theirs, &bare, &bare_p99);
  printf("| %d | %s | %s | %llu | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) |", r->load.requests, bench_load_names[r->load.kind],
         r->loop->name, (unsigned long long)r->bytes, median, p99, bare, bare_p99, medians, p99s);
  print_target(r);
  fflush(stdout);
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static void measure(bench_engine *e, int32_t bucket, bench_load_kind kind, const loop *l, const bench_blocks *b,
                    unsigned char *touched) {
  run r = { .engine = e, .loop = l, .bucket = bucket, .touched = touched };
  r.steps = smaller(b->steps, l->max_steps);
  r.blocks = smaller(b->blocks, l->max_blocks);
  r.load = bench_load_open(e, kind, e->rt->graphs.entry[bucket].key.num_requests, LENGTH, WARMUP + r.steps);
  bench_set_pace(e, l->pace_ns);
  compare_costs(&r);
  bench_set_pace(e, 0);
  bench_load_close(&r.load);
}

static void open_engine(bench_engine *e, const bench_blocks *b, int32_t nodes, int32_t guesses) {
  static const int32_t buckets[] = { 1, 8, 64, 256, 1024 };
  bench_options o = { .device = b->device, .num_layers = LAYERS, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  o.page_size = 16;
  o.max_requests = o.max_tokens = 1024;
  o.draft_tokens = guesses;
  o.max_seq_len = (LENGTH + (WARMUP + b->steps) * (1 + guesses) + 16 * (BENCH_PAGES_OF_A_NEW_REQUEST + 4)) / 16 * 16;
  o.num_pages = 4096;
  o.fillers =
      (nodes - 5) / LAYERS - 2; /* but for prologue, planner, fetch, the pace and the epilogue, and append and attention */
  o.paced = true;
  o.buckets = buckets;
  o.num_buckets = (int32_t)(sizeof buckets / sizeof buckets[0]);
  bench_open(e, &o);
}

static bool has_cell(const bench_engine *e, const char *tables, const loop *l, bench_load_kind kind, const cgr_key *key) {
  const int32_t requests = key->num_requests;
  if (is_guessing(kind) != (e->draft_tokens > 0) || is_guessing(kind) != (strcmp(l->table, "guesses") == 0) ||
      key->query_len != 1 + e->draft_tokens)
    return false;
  if (kind == BENCH_RESENT || !strstr(tables, l->table) || (e->is_host && requests > 64)) /* it would take too long */
    return false;
  if (strstr(tables, "standing") && !is_standing(kind))
    return false;
  if (l->pace_ns == 0 && !l->touch)
    return true;
  return requests != 1 && requests != 64 && (is_unchanged(kind) || strstr(tables, "changing"));
}

static void print_rows(bench_engine *e, const bench_blocks *b, const char *tables, unsigned char *touched) {
  for (int l = 0; l < NUM_LOOPS; l++)
    for (int kind = 0; kind < BENCH_NUM_LOADS; kind++)
      for (int32_t i = 0; i < e->rt->graphs.count; i++)
        if (has_cell(e, tables, &loops[l], (bench_load_kind)kind, &e->rt->graphs.entry[i].key))
          measure(e, i, (bench_load_kind)kind, &loops[l], b, touched);
}

static void step_table(const bench_blocks *b, const char *tables, int32_t nodes) {
  bench_engine e;
  unsigned char *touched = calloc(1, TOUCHED_BYTES);
  open_engine(&e, b, nodes, 0);
  bench_print_head(stdout, e.dev, "profiles/step_cost");
  printf("# blocks: %d of %d steps on each side, in turn; graph: %lld nodes\n", b->blocks, b->steps,
         (long long)e.rt->graphs.entry[0].num_nodes);
  for (int l = 0; l < NUM_LOOPS; l++)
    if (smaller(b->steps, loops[l].max_steps) < b->steps || smaller(b->blocks, loops[l].max_blocks) < b->blocks)
      printf("# blocks, %s: %d of %d steps\n", loops[l].name, smaller(b->blocks, loops[l].max_blocks),
             smaller(b->steps, loops[l].max_steps));
  printf("\n## Host time of a FULL decode step, microseconds: median (p99)\n"
         "| requests | batch | loop | bytes staged | prepare + launch | bare launch | ratio | target |\n"
         "|---:|---|---|---:|---:|---:|---:|---:|\n");
  print_rows(&e, b, tables, touched);
  bench_close(&e);
  if (strstr(tables, "guesses")) {
    open_engine(&e, b, nodes, GUESSES);
    print_rows(&e, b, tables, touched);
    bench_close(&e);
  }
  free(touched);
}

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  int32_t nodes = argc > 5 ? atoi(argv[5]) : NODES;
  const char *tables = argc > 4 ? argv[4] : "tight,loops,touched,guesses";
  if (nodes < 10 || nodes > 5000 ||
      !(strstr(tables, "tight") || strstr(tables, "loops") || strstr(tables, "touched") || strstr(tables, "guesses")))
    bench_fail("usage: %s [cuda:0|host] [steps in a block] [blocks] [tables: tight,loops,touched,guesses,changing,standing] "
               "[nodes of the graph, 10 to 5000]",
               argv[0]);
  step_table(&b, tables, nodes);
  return 0;
}

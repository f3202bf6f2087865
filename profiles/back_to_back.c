/* GPU time of a step when the GPU never waits for the host: cgr's FULL graph, next to the skeleton, which is the same graph with
 * empty kernels in place of cgr's own, on the same branches; next to it with kernels that do the least (support/sides.h), which
 * shows what the protocol costs anyone who follows it; and next to the engine's kernels alone.
 *
 *   bazel-bin/profiles/back_to_back [cuda:0|host] [steps in a burst, 2 to 60] [bursts] [requests]
 *
 * A burst is a kernel that spins, a mark, the steps, and a mark: kernels that write the GPU's clock. The host has enqueued all of
 * it before the spinning ends, so that every step was prepared ahead; bursts for which this fails are counted (`late`). The
 * sides take turns, a burst each. In `alone`, a burst is one step, and no step is prepared before the previous one has completed:
 * nothing can be fetched ahead, and both marks' own time counts.
 *
 * Four layers of four kernels of about 2 us on every multiprocessor, append and attention, lengths of 256 and a little more: what
 * is compared with cgr's burst runs at the lengths of its middle. Reported are the median over the bursts and their 99th
 * percentile; differences are medians over the turns. */
#include <stdlib.h>
#include <string.h>

#include "devices/error.h"
#include "profiles/support/bench.h"
#include "profiles/support/by_hand.h"
#include "profiles/support/loads.h"
#include "profiles/support/sides.h"
#include "runtime/runtime.h"

#define LAYERS 4
#define FILLERS 4
#define ITERATIONS 950 /* 2 us at 1.9 GHz */
#define LENGTH 256
#define RING_DEPTH 64
#define MAX_STEPS 60 /* of a burst: the ring holds them all */
#define WARMUP 2
#define ALONE_STEPS 10
#define MIN_SPIN_NS 50000
#define MAX_SPIN_NS 10000000

enum { CGR, SKELETON, LEAST, BARE, SIDES };
enum { PROLOGUE, PLANNER, FETCH, EPILOGUE, OWN }; /* cgr's kernels */

typedef struct options {
  const char *device;
  int32_t steps, bursts, requests; /* requests 0: all sizes */
} options;

typedef struct run {
  bench_engine *engine;
  bench_load load;
  uint64_t *marks; /* page-locked, two */
  cgr__exec *exec[SIDES];
  int32_t steps, bursts;
  uint64_t spin_ns; /* the host enqueues a burst in less */
  int32_t late;
  double *us[SIDES]; /* of a step, by burst */
  double *host_us;   /* of a step of cgr's */
} run;

/* ---------------------------------------------------------------------------------------------------------------- bursts */

static void enqueue(const run *r, const cgr__kernel *kernel, const void *args) {
  cgr_device *dev = r->engine->dev;
  bench_check(cgr__device_fail(dev, dev->ops->launch(dev, kernel, args, r->engine->stream), kernel->name), "a burst");
}

static void replay(const run *r, int side) {
  cgr_device *dev = r->engine->dev;
  bench_check(cgr__device_fail(dev, dev->ops->exec_launch(dev, r->exec[side], r->engine->stream), "launch"), "a burst");
}

static void synchronize(const run *r) { bench_check(cgr_stream_synchronize(r->engine->dev, r->engine->stream), "a burst"); }

/* Enqueues steps of cgr's, the first of them number `index`; returns what the host took for prepare and launch. */
static double run_steps(run *r, int32_t index, int32_t count) {
  double us = 0.0;
  for (int32_t i = index; i < index + count; i++) {
    cgr_step step;
    bench_load_ahead(&r->load, i);
    double begin = bench_now_us();
    bench_check(bench_load_step(&r->load, i, &step), "step");
    us += bench_now_us() - begin;
    bench_load_after(&r->load, &step);
  }
  return us;
}

/* Twice what the host took for this burst, and not much less than for those before. */
static uint64_t next_spin_ns(uint64_t spin_ns, double took_ns) {
  double ns = 2.0 * took_ns > 0.75 * (double)spin_ns ? 2.0 * took_ns : 0.75 * (double)spin_ns;
  return ns < MIN_SPIN_NS ? MIN_SPIN_NS : ns > MAX_SPIN_NS ? MAX_SPIN_NS : (uint64_t)ns;
}

/* Returns the time between the marks. `index` counts cgr's steps. */
static double burst(run *r, int side, int32_t index, int32_t steps, double *host_us) {
  double begin = bench_now_us();
  __atomic_store_n(&r->marks[0], 0, __ATOMIC_RELAXED);
  enqueue(r, &bench_kernel_spin, &(bench_spin){ .ns = r->spin_ns });
  enqueue(r, &bench_kernel_mark, &(bench_mark){ &r->marks[0] });
  if (side == CGR)
    *host_us = run_steps(r, index, steps);
  else
    for (int32_t i = 0; i < steps; i++)
      replay(r, side);
  enqueue(r, &bench_kernel_mark, &(bench_mark){ &r->marks[1] });
  r->late += __atomic_load_n(&r->marks[0], __ATOMIC_RELAXED) != 0;
  double took_ns = (bench_now_us() - begin) * 1000.0;
  synchronize(r);
  r->spin_ns = next_spin_ns(r->spin_ns, took_ns);
  return (double)(r->marks[1] - r->marks[0]) * 1e-3;
}

/* Rows at `length`, and WARMUP steps from there. */
static void begin(run *r, int32_t length) {
  bench_load_rewind(&r->load, length);
  (void)run_steps(r, 0, WARMUP);
  synchronize(r);
}

/* A burst of cgr's; then the others, at the lengths of its middle, in an order that changes. */
static void turn(run *r, int32_t number) {
  double host_us = 0.0;
  begin(r, LENGTH);
  r->us[CGR][number] = burst(r, CGR, WARMUP, r->steps, &host_us) / r->steps;
  r->host_us[number] = host_us / r->steps;
  begin(r, LENGTH + r->steps / 2);
  for (int i = 0; i < SIDES - 1; i++) {
    int side = SKELETON + (i + number) % (SIDES - 1);
    r->us[side][number] = burst(r, side, 0, r->steps, NULL) / r->steps;
  }
}

/* The same for steps that are not prepared ahead: each is a burst by itself. */
static void turn_alone(run *r, int32_t number) {
  for (int side = 0; side < SIDES; side++) {
    double sum = 0.0, host_us = 0.0, all_host_us = 0.0;
    begin(r, side == CGR ? LENGTH : LENGTH + ALONE_STEPS / 2);
    for (int32_t i = 0; i < ALONE_STEPS; i++) {
      sum += burst(r, side, WARMUP + i, 1, &host_us);
      all_host_us += host_us;
    }
    r->us[side][number] = sum / ALONE_STEPS;
    if (side == CGR)
      r->host_us[number] = all_host_us / ALONE_STEPS;
  }
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

static double difference(const run *r, int side, int other) {
  double *values = malloc((size_t)r->bursts * sizeof *values);
  for (int32_t b = 0; b < r->bursts; b++)
    values[b] = r->us[side][b] - r->us[other][b];
  double median = bench_quantile(values, r->bursts, 0.5);
  free(values);
  return median;
}

static void print(run *r, bool alone) {
  double ours = difference(r, CGR, SKELETON), least = difference(r, LEAST, SKELETON), skeleton = difference(r, SKELETON, BARE);
  printf("| %d | %s | %s |", r->load.requests, bench_load_names[r->load.kind], alone ? "alone" : "ahead");
  for (int side = 0; side < SIDES; side++) {
    double median = bench_quantile(r->us[side], r->bursts, 0.5);
    printf(" %.2f (%.2f) |", median, bench_quantile(r->us[side], r->bursts, 0.99));
  }
  printf(" %.2f | ", ours);
  if (alone)
    printf("| ");
  else
    printf("%.1f | ", r->load.requests > 256 ? 2.5 : 1.5);
  printf("%.2f | %.2f | %.2f | %d |\n", least, skeleton, bench_quantile(r->host_us, r->bursts, 0.5), r->late);
  fflush(stdout);
}

static void measure(run *r, bool alone) {
  r->spin_ns = MIN_SPIN_NS;
  (alone ? turn_alone : turn)(r, 0); /* warm, and how long the spinning must last is known */
  r->late = 0;
  for (int32_t b = 0; b < r->bursts; b++)
    (alone ? turn_alone : turn)(r, b);
  print(r, alone);
}

static void measure_size(bench_engine *e, int32_t bucket, const options *o, uint64_t *marks, const bench_least *memory) {
  static const bench_load_kind loads[] = { BENCH_UNCHANGED, BENCH_APPENDING, BENCH_RESENT };
  const cgr__graph_entry *ours = &e->rt->graphs.entry[bucket];
  cgr__graph_entry skeleton, least, bare;
  bench_capture_side(e, &ours->key, &(bench_side){ .bare = false }, &skeleton);
  bench_capture_side(e, &ours->key, &(bench_side){ .least = memory }, &least);
  bench_capture_side(e, &ours->key, &(bench_side){ .bare = true }, &bare);
  for (size_t l = 0; l < sizeof loads / sizeof loads[0]; l++) {
    run r = { .engine = e, .marks = marks, .steps = o->steps, .bursts = o->bursts };
    r.exec[CGR] = ours->exec;
    r.exec[SKELETON] = skeleton.exec;
    r.exec[LEAST] = least.exec;
    r.exec[BARE] = bare.exec;
    for (int side = 0; side < SIDES; side++)
      r.us[side] = malloc((size_t)o->bursts * sizeof *r.us[side]);
    r.host_us = malloc((size_t)o->bursts * sizeof *r.host_us);
    r.load = bench_load_open(e, loads[l], ours->key.num_requests, LENGTH, 2 * MAX_STEPS);
    measure(&r, false);
    if (loads[l] == BENCH_UNCHANGED)
      measure(&r, true);
    bench_load_close(&r.load);
    free(r.host_us);
    for (int side = 0; side < SIDES; side++)
      free(r.us[side]);
  }
  cgr__graph_drop(&e->rt->graphs, &skeleton);
  cgr__graph_drop(&e->rt->graphs, &least);
  cgr__graph_drop(&e->rt->graphs, &bare);
}

/* ----------------------------------------------------------------------------------------------------------- taken apart */

static const cgr__kernel *const own_kernels[OWN] = { [PROLOGUE] = &cgr__kernel_prologue,
                                                     [PLANNER] = &cgr__kernel_planner,
                                                     [FETCH] = &cgr__kernel_fetch,
                                                     [EPILOGUE] = &cgr__kernel_epilogue };

/* A burst of the skeleton and then one of each of `kernels` [from, to) in it; the differences go to `over` [OWN][bursts]. */
static void take_turns(run *r, cgr__graph_entry *kept, int from, int to, double *over) {
  cgr__exec *skeleton = r->exec[SKELETON];
  for (int32_t b = -1; b < r->bursts; b++) { /* the first warms up */
    double base = burst(r, SKELETON, 0, r->steps, NULL);
    for (int k = from; k < to; k++) {
      r->exec[SKELETON] = kept[k].exec;
      double us = burst(r, SKELETON, 0, r->steps, NULL);
      r->exec[SKELETON] = skeleton;
      if (b >= 0)
        over[k * r->bursts + b] = (us - base) / r->steps;
    }
  }
}

/* What each of cgr's kernels adds by itself. An unchanged step is committed by hand, together with the next one's ring slot, and
 * its ring slot is put into the inbox. No graph but the last holds an epilogue, so the device's counter stands still, and every
 * run of the prologue, planner and fetch sees the same step. The epilogue comes last: each run of it counts one step on. */
static void measure_apart(bench_engine *e, int32_t bucket, const options *o, uint64_t *marks) {
  const cgr_key *key = &e->rt->graphs.entry[bucket].key;
  cgr__graph_entry skeleton, kept[OWN];
  cgr_step step = CGR_STEP_INIT;
  run r = { .engine = e, .marks = marks, .steps = o->steps, .bursts = o->bursts, .spin_ns = MIN_SPIN_NS };
  double *over = calloc((size_t)OWN * (size_t)o->bursts, sizeof *over), sum = 0.0;
  bench_capture_side(e, key, &(bench_side){ .bare = false }, &skeleton);
  for (int k = 0; k < OWN; k++)
    bench_capture_side(e, key, &(bench_side){ .kept = own_kernels[k] }, &kept[k]);
  r.exec[SKELETON] = skeleton.exec;
  r.load = bench_load_open(e, BENCH_UNCHANGED, key->num_requests, LENGTH, 2 * MAX_STEPS);
  begin(&r, LENGTH);
  bench_commit(e, &r.load.batch, &step);
  bench_fill_inbox(e);
  take_turns(&r, kept, PROLOGUE, FETCH, over);
  take_turns(&r, kept, FETCH, EPILOGUE,
             over); /* after the prologue, which would read the ring slot once the inbox has the next step's */
  bench_take_back(e, &step);
  take_turns(&r, kept, EPILOGUE, OWN, over);
  bench_count_on(e);
  printf("| %d |", key->num_requests);
  for (int k = 0; k < OWN; k++) {
    double median = bench_quantile(&over[k * o->bursts], o->bursts, 0.5);
    printf(" %.2f |", median);
    sum += median;
  }
  printf(" %.2f |\n", sum);
  fflush(stdout);
  bench_load_close(&r.load);
  for (int k = 0; k < OWN; k++)
    cgr__graph_drop(&e->rt->graphs, &kept[k]);
  cgr__graph_drop(&e->rt->graphs, &skeleton);
  free(over);
}

static void print_shapes(const cgr__graph_entry *entry) {
  printf("# nodes of cgr's graph: %lld, width %lld\n", (long long)entry->num_nodes, (long long)entry->width);
}

static bench_least open_least(bench_engine *e) {
  const size_t bytes = BENCH_LEAST_WORDS * sizeof(uint64_t);
  void *device, *mapped;
  bench_check(cgr_memory_alloc(e->dev, bytes, &device), "cgr_memory_alloc");
  bench_check(cgr_memory_alloc_pinned(e->dev, bytes, &mapped), "cgr_memory_alloc_pinned");
  memset(mapped, 0, bytes);
  bench_check(cgr_copy(e->dev, device, mapped, bytes, e->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_copy");
  return (bench_least){ .device = device, .mapped = mapped };
}

static void close_least(bench_engine *e, const bench_least *least) {
  bench_check(cgr_memory_free(e->dev, least->device), "cgr_memory_free");
  bench_check(cgr_memory_free_pinned(e->dev, least->mapped), "cgr_memory_free_pinned");
}

static void table(const options *o) {
  static const int32_t buckets[] = { 1, 8, 64, 256, 1024 };
  const int32_t num_buckets = (int32_t)(sizeof buckets / sizeof buckets[0]);
  bench_options b = { .device = o->device, .num_layers = LAYERS, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  bench_engine e;
  void *marks;
  b.page_size = 16;
  b.max_requests = b.max_tokens = 1032;
  b.max_seq_len = LENGTH + 4 * MAX_STEPS;
  b.num_pages = 4096;
  b.ring_depth = RING_DEPTH;
  b.fillers = FILLERS;
  b.iterations = ITERATIONS;
  b.buckets = buckets;
  b.num_buckets = num_buckets;
  bench_open(&e, &b);
  bench_check(cgr_memory_alloc_pinned(e.dev, 2 * sizeof(uint64_t), &marks), "marks");
  bench_least least = open_least(&e);
  bench_check(cgr__device_fail(e.dev, e.dev->ops->preload(e.dev, &bench_kernel_mark), "preload"), "marks");
  bench_print_head(stdout, e.dev, "profiles/back_to_back");
  printf("# bursts: %d of %d steps of each side, in turn; alone: %d times %d of one step\n", o->bursts, o->steps, o->bursts,
         ALONE_STEPS);
  print_shapes(&e.rt->graphs.entry[0]);
  printf("\n## GPU time of a step, microseconds: median (p99 of the bursts)\n"
         "| requests | batch | steps | cgr | skeleton | least | bare | cgr - skeleton | target | least - skeleton | skeleton - "
         "bare | "
         "host | late |\n|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (int32_t i = 0; i < num_buckets; i++)
    if (o->requests == buckets[i] || (o->requests == 0 && (!e.is_host || buckets[i] <= 64))) /* the host takes its time */
      measure_size(&e, i, o, marks, &least);
  printf("\n## What one of cgr's kernels adds to the skeleton by itself, microseconds of a step (unchanged, fetched ahead)\n"
         "| requests | prologue | planner | fetch | epilogue | sum |\n|---:|---:|---:|---:|---:|---:|\n");
  for (int32_t i = 0; i < num_buckets; i++)
    if (o->requests == buckets[i] || (o->requests == 0 && (!e.is_host || buckets[i] <= 64)))
      measure_apart(&e, i, o, marks);
  close_least(&e, &least);
  bench_check(cgr_memory_free_pinned(e.dev, marks), "marks");
  bench_close(&e);
}

int main(int argc, char **argv) {
  options o = { argc > 1 ? argv[1] : NULL, argc > 2 ? atoi(argv[2]) : MAX_STEPS, argc > 3 ? atoi(argv[3]) : 50, 0 };
  o.requests = argc > 4 ? atoi(argv[4]) : 0;
  if (o.steps < 2 || o.steps > MAX_STEPS || o.bursts < 1 || o.bursts > 1000 || (argc > 1 && argv[1][0] == '-'))
    bench_fail("usage: %s [cuda:0|host] [steps in a burst, 2 to %d] [bursts, 1 to 1000] [requests]", argv[0], MAX_STEPS);
  table(&o);
  return 0;
}

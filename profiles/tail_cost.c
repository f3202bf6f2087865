/* The tail of what a step costs the host: percentiles of prepare and launch over many steps, next to the bare launch of the same
 * graph, and the causes of what took long.
 *
 *   bazel-bin/profiles/tail_cost [cuda:0|host] [thousands of tight steps] [seconds of each other loop] [what] [requests] [nodes]
 *
 * `what` names some of these, by default "tight,0.3ms,1ms,5ms,touched,busy":
 *     tight     every step is waited for outside of the measured time
 *     0.3ms, 1ms, 5ms   steps take that long on the GPU; the host launches one while the one before it runs
 *     touched   each loop also with memory touched between steps: 64 MB of the host's, or as much as half a step's time allows
 *     busy      each loop also next to a second thread, which touches 64 MB of its own and calls nothing
 *     standing  the batch is the standing one; without it the batch is given whole
 *     appending 1/16 of the rows get a page in each step; without it nothing changes
 *     pinned    each thread stays on a processor of its own (sched_setaffinity)
 *     locked    the memory of the process is locked (mlockall), after everything has been made
 *
 * Three sides run in turn, a block of each, and of tight steps four of cgr's: cgr; the bare launch; and nothing, a loop that
 * looks at the clock for as long as the median bare launch takes. What that last side shows is the machine's: interrupts, other
 * processes, the hypervisor.
 *
 * An outlier takes more than 10 us and more than twice the median. The kernel's counters of this thread, read before and after
 * each step, tell page faults and context switches. Other outliers are named by the part that took longest beyond its own median:
 * prepare, the driver's calls, the rest of the launch. An interrupt that switches no thread counts for the part that it hits; the
 * side of nothing has only a rest. The times of single steps go into a histogram of fixed size: measuring allocates nothing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <errno.h>
#include <float.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "profiles/support/bench.h"
#include "profiles/support/loads.h"
#include "profiles/support/tails.h"
#include "runtime/runtime.h"
#include "runtime/step/step.h"

#define LAYERS 2
#define NODES 66
#define LENGTH 16
#define WARMUP 20
#define MOST_STEPS 1000 /* of a block */
#define OUTLIER_US 10.0
#define TOUCHED_BYTES ((size_t)64 << 20)
#define TOUCHED_AT_ONCE ((size_t)64 << 10) /* between two looks at the clock */

typedef struct loop {
  const char *name;
  uint64_t pace_ns;             /* a step takes that long; 0: it is waited for at once */
  int32_t steps, touched_steps; /* of a block; of one in which memory is touched */
  int32_t others_every;         /* blocks of cgr's: one of each other side */
} loop;
static const loop loops[] = { { "tight", 0, MOST_STEPS, 50, 4 },
                              { "0.3ms", 300000, 300, 300, 1 },
                              { "1ms", 1000000, 200, 200, 1 },
                              { "5ms", 5000000, 50, 50, 1 } };
#define NUM_LOOPS ((int)(sizeof loops / sizeof loops[0]))

enum { CGR, BARE, NOTHING, NUM_SIDES };
static const char *const side_names[NUM_SIDES] = { "cgr", "bare launch", "nothing" };

typedef struct arguments {
  const char *device, *what;
  uint64_t tight_steps;
  double seconds;
  int32_t requests, nodes;
} arguments;

typedef struct run {
  const arguments *args;
  bench_engine *engine;
  const loop *loop;
  bool touches, busy;
  int32_t steps; /* of a block */
  bench_load load;
  unsigned char *memory;
  size_t touched; /* where touching goes on */
  double wait_us; /* tight: from the end of a launch to the end of its step, on average */
  double ns_per_tick;
  bench_tail *side; /* [NUM_SIDES] */
} run;

/* What is kept of a run for the tables. */
typedef struct row {
  const char *loop;
  bool touches, busy;
  uint64_t count[NUM_SIDES], causes[NUM_SIDES][BENCH_NUM_CAUSES];
  double us[NUM_SIDES][5], above_us[NUM_SIDES];
  bench_outlier worst[BENCH_TAIL_WORST];
  int32_t num_worst;
} row;
static const double quantiles[5] = { 0.5, 0.99, 0.999, 0.9999, 1.0 };

/* --------------------------------------------------------------------------------------------------- the driver's share */

/* In place of the device's operations. */
static struct {
  const cgr__device_ops *device;
  cgr__device_ops ops;
  uint64_t ticks; /* in its calls, since this was set to 0 */
} driver;

static int timed_status(cgr_device *dev, cudaStream_t stream, int *capturing) {
  uint64_t begin = cgr__ticks();
  int error = driver.device->capture_status(dev, stream, capturing);
  driver.ticks += cgr__ticks() - begin;
  return error;
}

static int timed_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  uint64_t begin = cgr__ticks();
  int error = driver.device->exec_launch(dev, exec, stream);
  driver.ticks += cgr__ticks() - begin;
  return error;
}

static void time_driver(cgr_device *dev) {
  driver.device = dev->ops;
  driver.ops = *dev->ops;
  driver.ops.capture_status = timed_status;
  driver.ops.exec_launch = timed_launch;
  dev->ops = &driver.ops;
}

/* ------------------------------------------------------------------------------------------------- what else the host does */

static void touch(run *r, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    ((volatile unsigned char *)r->memory)[(r->touched + i) % TOUCHED_BYTES]++;
  r->touched = (r->touched + bytes) % TOUCHED_BYTES;
}

/* All of it, or as long as half a step takes. */
static void touch_memory(run *r) {
  double until = bench_now_us() + (double)r->loop->pace_ns * 0.5e-3;
  if (!r->touches)
    return;
  for (size_t done = 0; done < TOUCHED_BYTES; done += TOUCHED_AT_ONCE) {
    touch(r, TOUCHED_AT_ONCE);
    if (r->loop->pace_ns > 0 && bench_now_us() >= until)
      return;
  }
}

static bool busy_ends;

static void *be_busy(void *memory) {
  while (!__atomic_load_n(&busy_ends, __ATOMIC_RELAXED))
    for (size_t i = 0; i < TOUCHED_BYTES; i += 64)
      ((volatile unsigned char *)memory)[i]++;
  return NULL;
}

/* The `index`-th processor, counted from the one that this thread is on, of those that it may use. */
static void pin_thread(pthread_t thread, int index, const cpu_set_t *allowed) {
  cpu_set_t one;
  int cpu = sched_getcpu();
  for (; cpu >= 0 && index > 0; index--)
    do
      cpu = (cpu + 1) % CPU_SETSIZE;
    while (!CPU_ISSET(cpu, allowed));
  CPU_ZERO(&one);
  CPU_SET(cpu < 0 ? 0 : cpu, &one);
  int error = pthread_setaffinity_np(thread, sizeof one, &one);
  if (error)
    bench_fail("pinned: pthread_setaffinity_np: %s", strerror(error));
}

/* Filled, so that no page is touched for the first time later. */
static unsigned char *make_memory(void) {
  unsigned char *memory = malloc(TOUCHED_BYTES);
  if (!memory)
    bench_fail("no memory");
  return memset(memory, 1, TOUCHED_BYTES);
}

/* ------------------------------------------------------------------------------------------------------------- the sides */

static void wait_for_step(run *r, uint64_t before, uint64_t seq) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  uint64_t wanted = r->loop->pace_ns == 0 ? seq : before;
  if (wanted > 0)
    bench_check(cgr_step_wait(r->engine->rt, (cgr_mark){ 0, 0, wanted }, -1, &result), "cgr_step_wait");
}

/* Prepares, launches and measures a step. */
static uint64_t do_step(run *r, bench_sample *s) {
  cgr_runtime *rt = r->engine->rt;
  cgr_step step = CGR_STEP_INIT;
  uint64_t folded = rt->statistics.folded;
  driver.ticks = 0;
  s->before = bench_count_thread();
  uint64_t begin = cgr__ticks();
  cgr_status status = cgr_step_prepare(rt, &r->load.batch, &step);
  uint64_t prepared = cgr__ticks();
  if (status == CGR_OK)
    status = cgr_step_launch(rt, &step, r->engine->stream);
  uint64_t end = cgr__ticks();
  s->after = bench_count_thread();
  bench_check(status, "step");
  s->counted = rt->statistics.folded != folded;
  s->ns[BENCH_PREPARE] = (double)(prepared - begin) * r->ns_per_tick;
  s->ns[BENCH_DRIVER] = (double)driver.ticks * r->ns_per_tick;
  s->ns[BENCH_REST] = (double)(end - prepared - driver.ticks) * r->ns_per_tick;
  bench_load_after(&r->load, &step);
  return step.mark.seq;
}

static void cgr_block(run *r, bench_tail *tail) {
  uint64_t before = 0;
  double waited = 0.0;
  bench_load_rewind(&r->load, LENGTH); /* after a bare block the runtime sends all tables again */
  for (int32_t i = 0; i < WARMUP + r->steps; i++) {
    bench_sample s = { .step = tail->count };
    bench_load_ahead(&r->load, i);
    touch_memory(r);
    uint64_t seq = do_step(r, &s);
    double end = bench_now_us();
    wait_for_step(r, before, seq);
    waited += bench_now_us() - end;
    before = seq;
    if (i >= WARMUP)
      bench_tail_add(tail, &s);
  }
  bench_wait(r->engine, before);
  r->wait_us = waited / (WARMUP + r->steps);
}

/* Steps of the bare graph have no requests and may take less time: the host waits as long as for cgr's. */
static void wait_for_launch(run *r, uint64_t seq) {
  double end = bench_now_us();
  bool is_paced = r->loop->pace_ns > 0;
  bench_check(cgr__wait_completed(r->engine->rt, "bare launch", is_paced ? seq - 1 : seq, 60000), "bare launch");
  while (!is_paced && bench_now_us() - end < r->wait_us)
    ;
}

/* The same executable graph launched by itself. Afterwards the runtime is told of the steps that it did not launch. */
static void bare_block(run *r, bench_tail *tail) {
  bench_engine *e = r->engine;
  uint64_t seq = bench_completed(e);
  for (int32_t i = 0; i < WARMUP + r->steps; i++) {
    bench_sample s = { .step = tail->count };
    touch_memory(r);
    driver.ticks = 0;
    s.before = bench_count_thread();
    int error = e->dev->ops->exec_launch(e->dev, e->rt->graphs.entry[0].exec, e->stream);
    s.after = bench_count_thread();
    s.ns[BENCH_DRIVER] = (double)driver.ticks * r->ns_per_tick;
    if (error)
      bench_check(CGR_ERROR_DEVICE, "bare launch");
    wait_for_launch(r, ++seq); /* the epilogue publishes these steps too */
    if (i >= WARMUP)
      bench_tail_add(tail, &s);
  }
  bench_wait(e, seq);
  e->rt->lane.launched = seq;
}

static void nothing_block(run *r, bench_tail *tail) {
  double ns = 0.0;
  for (int p = 0; p < BENCH_NUM_PARTS; p++)
    ns += r->side[BARE].median_ns[p];
  uint64_t ticks = (uint64_t)(ns / r->ns_per_tick), now = 0;
  for (int32_t i = 0; i < r->steps; i++) {
    bench_sample s = { .step = tail->count };
    s.before = bench_count_thread();
    uint64_t begin = cgr__ticks();
    while ((now = cgr__ticks()) - begin < ticks)
      ;
    s.after = bench_count_thread();
    s.ns[BENCH_REST] = (double)(now - begin) * r->ns_per_tick;
    bench_tail_add(tail, &s);
  }
}

/* ---------------------------------------------------------------------------------------------------------------- a run */

static void (*const blocks[NUM_SIDES])(run *r, bench_tail *tail) = { cgr_block, bare_block, nothing_block };

static bool is_over(const run *r, double began) {
  if (r->loop->pace_ns == 0 && !r->touches)
    return r->side[CGR].count >= r->args->tight_steps;
  return bench_now_us() - began >= r->args->seconds * 1e6;
}

static void keep(const run *r, row *kept) {
  kept->loop = r->loop->name;
  kept->touches = r->touches;
  kept->busy = r->busy;
  for (int side = 0; side < NUM_SIDES; side++) {
    const bench_tail *t = &r->side[side];
    kept->count[side] = t->count;
    kept->above_us[side] = t->above_us;
    memcpy(kept->causes[side], t->causes, sizeof t->causes);
    for (int q = 0; q < 5; q++)
      kept->us[side][q] = bench_tail_us(t, quantiles[q]);
  }
  memcpy(kept->worst, r->side[CGR].worst, sizeof kept->worst);
  kept->num_worst = r->side[CGR].num_worst;
}

/* A block of each side tells the medians, and is not counted. */
static void measure(run *r, row *kept) {
  double began = bench_now_us();
  for (int side = 0; side < NUM_SIDES; side++) {
    r->side[side].above_us = DBL_MAX;
    bench_tail_reset(&r->side[side]);
  }
  cgr__tick_clock_compare(&r->engine->rt->statistics.clock);
  r->ns_per_tick = r->engine->rt->statistics.clock.ns_per_tick;
  bench_set_pace(r->engine, r->loop->pace_ns);
  for (int side = 0; side < NUM_SIDES; side++) { /* the last one needs the median of the one before */
    blocks[side](r, &r->side[side]);
    bench_tail_learn(&r->side[side], OUTLIER_US);
  }
  for (int32_t round = 0; round == 0 || !is_over(r, began); round++)
    for (int side = 0; side < (round % r->loop->others_every == 0 ? NUM_SIDES : BARE); side++)
      blocks[side](r, &r->side[side]);
  bench_set_pace(r->engine, 0);
  keep(r, kept);
}

/* ---------------------------------------------------------------------------------------------------------------- tables */

static void print_case(const row *k) {
  printf("| %s | %s | %s |", k->loop, k->touches ? "touched" : "-", k->busy ? "busy" : "-");
}

static void print_percentiles(const row *rows, int32_t count) {
  printf("\n## Host time of prepare and launch, microseconds\n"
         "| loop | memory | second thread | side | steps | median | 99%% | 99.9%% | 99.99%% | longest |\n"
         "|---|---|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (const row *k = rows; k < rows + count; k++)
    for (int side = 0; side < NUM_SIDES; side++) {
      print_case(k);
      printf(" %s | %llu |", side_names[side], (unsigned long long)k->count[side]);
      for (int q = 0; q < 5; q++)
        printf(" %.2f |", k->us[side][q]);
      putchar('\n');
    }
  printf("\n## cgr over the bare launch\n"
         "| loop | memory | second thread | median ratio | 99%% ratio | 99.9%% ratio | 99.99%% ratio |\n"
         "|---|---|---|---:|---:|---:|---:|\n");
  for (const row *k = rows; k < rows + count; k++) {
    print_case(k);
    for (int q = 0; q < 4; q++)
      printf(" %.2fx |", k->us[CGR][q] / k->us[BARE][q]);
    putchar('\n');
  }
}

static void print_causes(const row *rows, int32_t count) {
  printf("\n## Outliers by cause: steps\n| loop | memory | second thread | side | above, us |");
  for (int c = 0; c < BENCH_NUM_CAUSES; c++)
    printf(" %s |", bench_cause_names[c]);
  printf("\n|---|---|---|---|---:|");
  for (int c = 0; c < BENCH_NUM_CAUSES; c++)
    printf("---:|");
  putchar('\n');
  for (const row *k = rows; k < rows + count; k++)
    for (int side = 0; side < NUM_SIDES; side++) {
      print_case(k);
      printf(" %s | %.1f |", side_names[side], k->above_us[side]);
      for (int c = 0; c < BENCH_NUM_CAUSES; c++)
        printf(" %llu |", (unsigned long long)k->causes[side][c]);
      putchar('\n');
    }
}

typedef struct worst_step {
  const row *row;
  const bench_outlier *step;
} worst_step;

static int compare_worst(const void *a, const void *b) {
  double x = ((const worst_step *)a)->step->us, y = ((const worst_step *)b)->step->us;
  return (x < y) - (x > y);
}

/* Of all loops. Lines of comment: they are for people. */
static void print_worst(const row *rows, int32_t count) {
  worst_step all[4 * NUM_LOOPS * BENCH_TAIL_WORST];
  size_t num = 0;
  for (const row *k = rows; k < rows + count; k++)
    for (int32_t i = 0; i < k->num_worst; i++)
      all[num++] = (worst_step){ k, &k->worst[i] };
  qsort(all, num, sizeof *all, compare_worst);
  printf("\n# the longest steps of cgr: microseconds (prepare, driver, rest), cause, step, loop\n");
  for (size_t i = 0; i < num && i < BENCH_TAIL_WORST; i++) {
    const bench_outlier *o = all[i].step;
    printf("# %9.2f (%.2f, %.2f, %.2f) %s, %llu, %s%s%s\n", o->us, o->parts[BENCH_PREPARE], o->parts[BENCH_DRIVER],
           o->parts[BENCH_REST], bench_cause_names[o->cause], (unsigned long long)o->step, all[i].row->loop,
           all[i].row->touches ? ", touched" : "", all[i].row->busy ? ", busy" : "");
  }
}

/* ------------------------------------------------------------------------------------------------------------------ main */

static void open_engine(bench_engine *e, const arguments *a) {
  bench_options o = { .device = a->device, .num_layers = LAYERS, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  o.page_size = 16;
  o.max_requests = o.max_tokens = a->requests;
  o.max_seq_len = (LENGTH + WARMUP + MOST_STEPS + 16 * 4) / 16 * 16;
  o.num_pages = 4096;
  o.fillers =
      (a->nodes - 5) / LAYERS - 2; /* but for prologue, planner, fetch, the pace and the epilogue, and append and attention */
  o.paced = true;
  o.buckets = &a->requests;
  o.num_buckets = 1;
  bench_open(e, &o);
}

static bool has(const arguments *a, const char *word) { return strstr(a->what, word) != NULL; }

static int32_t measure_all(run *r, row *rows) {
  int32_t count = 0;
  for (int touches = 0; touches <= has(r->args, "touched"); touches++)
    for (int l = 0; l < NUM_LOOPS; l++) {
      if (!has(r->args, loops[l].name))
        continue;
      r->loop = &loops[l];
      r->touches = touches;
      r->steps = touches ? loops[l].touched_steps : loops[l].steps;
      measure(r, &rows[count++]);
    }
  return count;
}

/* The second thread begins with the processors of the first one. */
static int32_t measure_with_busy_thread(run *r, row *rows, const cpu_set_t *allowed) {
  unsigned char *memory = make_memory();
  pthread_t thread;
  if (pthread_create(&thread, NULL, be_busy, memory))
    bench_fail("no second thread");
  if (has(r->args, "pinned"))
    pin_thread(thread, 1, allowed);
  r->busy = true;
  int32_t count = measure_all(r, rows);
  __atomic_store_n(&busy_ends, true, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  free(memory);
  return count;
}

/* `what` is words with commas between them. */
static bool are_known(const char *what) {
  static const char *const words[] = { "tight", "0.3ms",    "1ms",       "5ms",    "touched",
                                       "busy",  "standing", "appending", "pinned", "locked" };
  for (const char *end; *what != '\0'; what = *end ? end + 1 : end) {
    bool known = false;
    end = what + strcspn(what, ",");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
      known |= strlen(words[i]) == (size_t)(end - what) && strncmp(words[i], what, strlen(words[i])) == 0;
    if (!known)
      return false;
  }
  return true;
}

static arguments read_arguments(int argc, char **argv) {
  arguments a = {
    argc > 1 ? argv[1] : "cuda:0", argc > 4 ? argv[4] : "tight,0.3ms,1ms,5ms,touched,busy", 1000 * 1000, 5.0, 64, NODES
  };
  if (argc > 2)
    a.tight_steps = strtoull(argv[2], NULL, 10) * 1000;
  if (argc > 3)
    a.seconds = atof(argv[3]);
  if (argc > 5)
    a.requests = atoi(argv[5]);
  if (argc > 6)
    a.nodes = atoi(argv[6]);
  bool has_loop = false;
  for (int l = 0; l < NUM_LOOPS; l++)
    has_loop |= has(&a, loops[l].name);
  if (a.device[0] == '-' || a.tight_steps < 1000 || a.seconds <= 0.0 || !has_loop || !are_known(a.what) || a.requests < 1 ||
      a.requests > 1024 || a.nodes < 10 || a.nodes > 5000)
    bench_fail("usage: %s [cuda:0|host] [thousands of tight steps, 1 or more] [seconds of each other loop, above 0] [what: "
               "tight,0.3ms,1ms,5ms,touched,busy,standing,appending,pinned,locked] [requests, 1 to 1024] [nodes of the graph, 10 "
               "to 5000]",
               argv[0]);
  return a;
}

int main(int argc, char **argv) {
  const arguments a = read_arguments(argc, argv);
  static bench_tail sides[NUM_SIDES];
  static row rows[4 * NUM_LOOPS];
  bench_engine e;
  double began = bench_now_us();
  open_engine(&e, &a);
  run r = { .args = &a, .engine = &e, .memory = make_memory(), .side = sides };
  int kind = has(&a, "appending") ? BENCH_APPENDING : BENCH_UNCHANGED;
  if (has(&a, "standing"))
    kind += BENCH_UNCHANGED_STANDING;
  r.load = bench_load_open(&e, (bench_load_kind)kind, a.requests, LENGTH, WARMUP + MOST_STEPS);
  time_driver(e.dev);
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (has(&a, "pinned"))
    pin_thread(pthread_self(), 0, &allowed);
  if (has(&a, "locked") && mlockall(MCL_CURRENT | MCL_FUTURE))
    bench_fail("locked: mlockall: %s (as root, or with a larger `ulimit -l`)", strerror(errno));
  bench_print_head(stdout, e.dev, "profiles/tail_cost");
  printf("# batch: %d requests, %s; graph: %lld nodes; what: %s\n", a.requests, bench_load_names[kind],
         (long long)e.rt->graphs.entry[0].num_nodes, a.what);
  int32_t count = measure_all(&r, rows);
  if (has(&a, "busy"))
    count += measure_with_busy_thread(&r, rows + count, &allowed);
  print_percentiles(rows, count);
  print_causes(rows, count);
  print_worst(rows, count);
  printf("# took: %.0f s\n", (bench_now_us() - began) * 1e-6);
  e.dev->ops = driver.device;
  bench_load_close(&r.load);
  bench_close(&e);
  free(r.memory);
  return 0;
}

/* What a mixed step costs the host, prepare and launch together: 16 requests that decode and one with a chunk of 512 tokens, as a
 * FULL graph, in pieces, and eagerly; next to the same launches of graphs and kernels without cgr.
 *
 *   bazel-bin/profiles/mixed_cost [cuda:0|host] [steps in a block] [blocks]
 *
 * The sides run in turn, a block of each; reported are the median over all steps and the median of the blocks' 99th percentiles.
 * A third side takes the steps of the first apart: a clock around the driver's calls tells how much of launch is the driver's. 32
 * layers of eight empty kernels, append and attention: 323 kernel nodes. Every step is waited for outside of the measured time;
 * alone, the graphs run without requests, and the host waits as long after each launch, so that both sides meet equally cold
 * caches.
 *
 * Before and after it, what capturing costs: the default decode and mixed sizes, FULL and in pieces, as estimated and as spent.
 */
#include <stdlib.h>
#include <string.h>

#include "cgr/names.h"
#include "profiles/support/bench.h"
#include "profiles/support/series.h"
#include "runtime/runtime.h"

#define LAYERS 32
#define FILLERS 8
#define DECODES 16
#define CHUNK 512
#define CHUNKS 8 /* of a prompt */
#define REQUESTS (DECODES + 1)
#define TOKENS (DECODES + CHUNK)
#define WARMUP 20
#define MOST_LAUNCHES 512

/* -------------------------------------------------------------------------------------------------- what a step launches */

/* One launch of a replay, of a graph or of a kernel between two pieces. */
typedef struct one_launch {
  cgr__exec *exec; /* NULL: a kernel */
  const cgr__kernel *kernel;
  unsigned char args[CGR__MAX_CALL_ARGS];
} one_launch;

static one_launch launches[MOST_LAUNCHES];
static int32_t num_launches;
static const cgr__device_ops *real_ops; /* while the calls are watched */
static double driver_us;                /* in calls that are timed */

static one_launch *next_launch(void) {
  if (num_launches == MOST_LAUNCHES)
    bench_fail("a step has more than %d launches", MOST_LAUNCHES);
  return &launches[num_launches++];
}

static int see_graph(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  next_launch()->exec = exec;
  return real_ops->exec_launch(dev, exec, stream);
}

static int see_kernel(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  one_launch *l = next_launch();
  l->exec = NULL;
  l->kernel = kernel;
  memcpy(l->args, args, kernel->args_size);
  return real_ops->launch(dev, kernel, args, stream);
}

static int time_graph(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) {
  double begin = bench_now_us();
  int error = real_ops->exec_launch(dev, exec, stream);
  driver_us += bench_now_us() - begin;
  return error;
}

static int time_kernel(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  double begin = bench_now_us();
  int error = real_ops->launch(dev, kernel, args, stream);
  driver_us += bench_now_us() - begin;
  return error;
}

static void begin_watch(cgr_device *dev, bool timed) {
  static cgr__device_ops watching;
  real_ops = dev->ops;
  watching = *real_ops;
  watching.exec_launch = timed ? time_graph : see_graph;
  watching.launch = timed ? time_kernel : see_kernel;
  num_launches = 0;
  driver_us = 0.0;
  dev->ops = &watching;
}

static void end_watch(cgr_device *dev) { dev->ops = real_ops; }

/* ------------------------------------------------------------------------------------------------------------ both sides */

typedef struct run {
  bench_series prepare, own, driver; /* own, driver: the parts of launch */
  bench_engine *engine;
  cgr_graph_kind kind;
  int32_t steps, blocks;
  uint64_t bytes;
  double wait_us; /* from the end of a launch to the end of its step, on average */
} run;

static bench_options options(const char *device) {
  bench_options o = { .device = device, .num_layers = LAYERS, .num_q_heads = 4, .num_kv_heads = 1, .head_dim = 64 };
  o.page_size = 16;
  o.num_pages = 4096;
  o.fillers = FILLERS;
  return o;
}

/* Every CHUNKS steps the prompt begins again. */
static void begin_prompt(bench_engine *e, int32_t step) {
  if (step % CHUNKS != 0)
    return;
  for (int32_t i = 0; i < REQUESTS; i++)
    bench_check(cgr_request_set_length(e->rt, e->rows[i], i < DECODES ? 64 : 0), "cgr_request_set_length");
  bench_flush(e);
}

/* `s` NULL: the parts of launch. */
static void cgr_block(run *r, bench_series *s) {
  bench_engine *e = r->engine;
  int32_t lens[REQUESTS], tokens[TOKENS];
  cgr_key forced = CGR_KEY_INIT;
  cgr_batch batch = CGR_BATCH_INIT;
  for (int32_t i = 0; i < REQUESTS; i++)
    lens[i] = i < DECODES ? 1 : CHUNK;
  for (int32_t i = 0; i < TOKENS; i++)
    tokens[i] = i;
  forced.num_requests = REQUESTS;
  forced.num_tokens = TOKENS;
  batch.num_requests = REQUESTS;
  batch.rows = e->rows;
  batch.query_lens = lens;
  batch.tokens = tokens;
  batch.forced_key = r->kind == CGR_KIND_NONE ? &forced : NULL;
  double waited = 0.0;
  for (int32_t i = -WARMUP; i < r->steps; i++) {
    cgr_step step = CGR_STEP_INIT;
    begin_prompt(e, i + WARMUP);
    bool watches = s ? i == -1 : true;
    if (watches)
      begin_watch(e->dev, !s);
    double begin = bench_now_us();
    cgr_status status = cgr_step_prepare(e->rt, &batch, &step);
    double prepared = bench_now_us();
    if (status == CGR_OK)
      status = cgr_step_launch(e->rt, &step, e->stream);
    double end = bench_now_us();
    if (watches)
      end_watch(e->dev);
    bench_check(status, "step");
    if (step.key.kind != (int32_t)r->kind || step.key.num_tokens != TOKENS)
      bench_fail("the step ran as %s with %d tokens", cgr_graph_kind_name((cgr_graph_kind)step.key.kind), step.key.num_tokens);
    bench_wait(e, step.mark.seq);
    waited += bench_now_us() - end;
    r->bytes = step.bytes_staged;
    if (i >= 0 && s) {
      bench_series_add(s, end - begin);
      bench_series_add(&r->prepare, prepared - begin);
    } else if (i >= 0) {
      bench_series_add(&r->own, end - prepared - driver_us);
      bench_series_add(&r->driver, driver_us);
    }
  }
  r->wait_us = waited / (r->steps + WARMUP);
  bench_series_end_block(s ? s : &r->own);
  bench_series_end_block(s ? &r->prepare : &r->driver);
}

static cgr__graph_entry *find_entry(const run *r) {
  cgr__graphs *graphs = &r->engine->rt->graphs;
  int32_t index = cgr__mixed_find(graphs, TOKENS, REQUESTS);
  cgr__graph_entry *entry = index < 0 ? NULL : &graphs->entry[index];
  if (!entry || entry->key.kind != (int32_t)r->kind || entry->state != CGR_GRAPH_READY)
    bench_fail("there is no %s graph of %d tokens", cgr_graph_kind_name(r->kind), TOKENS);
  return entry;
}

/* The same launches as in the last warm-up step before. The prologue finds another step's number in the ring slot and runs
 * without requests; what the host pays is the same. Afterwards the runtime is told of the steps that it did not launch. */
static int launch_bare(const bench_engine *e) {
  const cgr__device_ops *ops = e->dev->ops;
  int error = 0;
  for (int32_t i = 0; i < num_launches && !error; i++) {
    const one_launch *l = &launches[i];
    error = l->exec ? ops->exec_launch(e->dev, l->exec, e->stream) : ops->launch(e->dev, l->kernel, l->args, e->stream);
  }
  return error;
}

static void bare_block(run *r, bench_series *s) {
  bench_engine *e = r->engine;
  uint64_t completed;
  for (int32_t i = -WARMUP; i < r->steps; i++) {
    begin_prompt(e, i + WARMUP);
    completed = bench_completed(e);
    double begin = bench_now_us();
    int error = launch_bare(e);
    double end = bench_now_us();
    if (error)
      bench_check(CGR_ERROR_DEVICE, "bare launch");
    bench_wait(e, ++completed); /* the epilogue publishes these steps too */
    e->rt->lane.launched = completed;
    while (bench_now_us() - end < r->wait_us)
      ;
    if (i >= 0)
      bench_series_add(s, end - begin);
  }
  bench_series_end_block(s);
}

static void compare_costs(run *r) {
  double median, p99, prepare, prepare_p99, own, driver, part_p99, bare = 0.0, bare_p99 = 0.0;
  r->prepare = bench_series_open(r->steps, r->blocks);
  r->own = bench_series_open(r->steps, r->blocks);
  r->driver = bench_series_open(r->steps, r->blocks);
  bench_series ours = bench_series_open(r->steps, r->blocks), theirs = bench_series_open(r->steps, r->blocks);
  for (int32_t b = 0; b < r->blocks; b++) {
    cgr_block(r, &ours);
    if (r->kind != CGR_KIND_NONE)
      bare_block(r, &theirs);
    cgr_block(r, NULL);
  }
  bench_series_close(&r->own, &own, &part_p99);
  bench_series_close(&r->driver, &driver, &part_p99);
  bench_series_close(&ours, &median, &p99);
  bench_series_close(&r->prepare, &prepare, &prepare_p99);
  printf("| %s | %d | %llu | %.2f (%.2f) | %.2f | %.2f | %.2f (%.2f) |",
         r->kind == CGR_KIND_NONE ? "eager" : cgr_graph_kind_name(r->kind),
         r->kind == CGR_KIND_NONE ? 0 : find_entry(r)->num_pieces, (unsigned long long)r->bytes, prepare, prepare_p99, own,
         driver, median, p99);
  if (r->kind == CGR_KIND_NONE) {
    printf(" | |\n");
    return;
  }
  bench_series_close(&theirs, &bare, &bare_p99);
  printf(" %.2f (%.2f) | %.2f |\n", bare, bare_p99, 1.1 * bare + 0.5);
  fflush(stdout);
}

static void step_table(const char *device, int32_t steps, int32_t blocks) {
  static const cgr_bucket bucket = { TOKENS, REQUESTS };
  static const cgr_graph_kind kinds[] = { CGR_KIND_FULL, CGR_KIND_PIECEWISE, CGR_KIND_NONE };
  for (int i = 0; i < 3; i++) {
    bench_engine engine;
    bench_options o = options(device);
    o.max_requests = REQUESTS;
    o.max_tokens = TOKENS;
    o.max_seq_len = CHUNKS * CHUNK;
    o.mode = kinds[i] == CGR_KIND_PIECEWISE ? CGR_MODE_PIECEWISE : CGR_MODE_FULL;
    o.mixed = &bucket;
    o.num_mixed = 1;
    bench_open(&engine, &o);
    if (i == 0) {
      printf("\n## Host time of a step of %d decodes and a chunk of %d tokens, microseconds: median (p99)\n"
             "| step | graphs | bytes staged | prepare | launch, cgr | launch, driver | prepare + launch | the same launches "
             "alone | "
             "goal: 1.1 x them + 0.5 |\n"
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
             DECODES, CHUNK);
    }
    bench_open_rows(&engine, REQUESTS, 0, CHUNKS * CHUNK);
    run r = { .engine = &engine, .kind = kinds[i], .steps = steps, .blocks = blocks };
    compare_costs(&r);
    bench_close(&engine);
  }
}

static bench_options capture_options(const char *device, bool pieces) {
  bench_options o = options(device);
  o.max_requests = 512;
  o.max_tokens = 8192;
  o.max_seq_len = 4096;
  o.mode = pieces ? CGR_MODE_PIECEWISE : CGR_MODE_FULL;
  return o;
}

static void print_capture(const bench_engine *e, const char *mode, const char *keys, bool mixed) {
  double ms = 0.0;
  int64_t bytes = 0, nodes = 0;
  int32_t count = 0, pieces = 0;
  int32_t num_keys = 0;
  bench_check(cgr_runtime_num_keys(e->rt, &num_keys), "cgr_runtime_num_keys");
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    bench_check(cgr_runtime_graph_stats(e->rt, i, &stats), "cgr_runtime_graph_stats");
    if ((stats.key.query_len == 0) != mixed)
      continue;
    count++;
    ms += stats.capture_ms;
    bytes += stats.device_bytes;
    nodes = stats.num_nodes;
    pieces = stats.num_pieces;
  }
  printf("| %s, %s | %d | %d | %lld | %.1f | %.2f | %.0f |\n", mode, keys, count, pieces, (long long)nodes, ms, ms / count,
         (double)bytes / count);
}

static void print_estimate(const bench_engine *e, const char *mode) {
  cgr_stats stats = CGR_STATS_INIT;
  bench_check(cgr_runtime_stats(e->rt, &stats), "cgr_runtime_stats");
  printf("# %s: estimated %.1f ms and %.1f MB from %d of %d keys; it took %.1f ms (%+.0f%%) and %.1f MB (%+.0f%%)\n", mode,
         e->estimate.ms, (double)e->estimate.bytes * 1e-6, e->estimate.num_measured, e->estimate.num_keys, stats.capture_ms,
         100.0 * (e->estimate.ms / stats.capture_ms - 1.0), (double)stats.graph_bytes * 1e-6,
         stats.graph_bytes > 0 ? 100.0 * ((double)e->estimate.bytes / (double)stats.graph_bytes - 1.0) : 0.0);
}

static void capture_table(const char *device, int32_t steps, int32_t blocks) {
  for (int pieces = 0; pieces < 2; pieces++) {
    bench_engine engine;
    bench_options o = capture_options(device, pieces);
    o.estimate = true;
    bench_open(&engine, &o);
    if (!pieces) {
      bench_print_head(stdout, engine.dev, "profiles/mixed_cost");
      printf("# blocks: %d of %d steps on each side, in turn\n", blocks, steps);
      printf("\n## Capture of the default sizes, up to 512 requests and 8192 tokens\n"
             "| mode, keys | keys | graphs each | nodes each | ms in all | ms each | device bytes each |\n"
             "|---|---:|---:|---:|---:|---:|---:|\n");
    }
    print_capture(&engine, pieces ? "piecewise" : "full", "decode", false);
    print_capture(&engine, pieces ? "piecewise" : "full", "mixed", true);
    print_estimate(&engine, pieces ? "piecewise" : "full");
    bench_close(&engine);
  }
}

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  capture_table(b.device, b.steps,
                b.blocks); /* first: a driver gives memory of graphs that were to later ones, and tells nothing of it */
  step_table(b.device, b.steps, b.blocks);
  return 0;
}

/* What launching a graph costs the host, against its forks and its width.
 *
 *   bazel-bin/profiles/fork_cost [cuda:0|host] [launches in a block] [blocks]
 *
 * Graphs of 320 empty kernels. Without a fork they are a line; with f forks, f kernels of it run alongside the next one, on
 * one side stream or on one of eight in turn, and are joined after it. The graphs take turns, a block of launches each; every
 * launch is waited for outside of the measured time. Reported are the median over all launches, the median of the blocks' 99th
 * percentiles, and the median over the line's. */
#include <stdlib.h>

#include "devices/error.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/series.h"

#define KERNELS 320
#define SIDES 64
#define WARMUP 20

typedef struct shape {
  int32_t forks, sides; /* forks 0: `sides` chains side by side */
} shape;

static const shape shapes[] = { { 0, 0 },   { 1, 1 }, { 8, 1 }, { 32, 1 }, { 160, 1 }, { 8, 8 },  { 32, 8 },
                                { 160, 8 }, { 0, 1 }, { 0, 3 }, { 0, 7 },  { 0, 15 },  { 0, 31 }, { 0, 63 } };
#define NUM_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

typedef struct streams {
  cudaStream_t main, side[SIDES];
  cgr__event *forked, *joined;
} streams;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

static void launch_empty(cgr_device *dev, cudaStream_t stream) {
  check_device(dev, dev->ops->launch(dev, &bench_kernel_empty, NULL, stream), "an empty kernel");
}

/* A kernel alongside another, both after what was before. */
static void enqueue_fork(cgr_device *dev, const streams *s, cudaStream_t side) {
  check_device(dev, dev->ops->event_record(dev, s->forked, s->main), "event_record");
  check_device(dev, dev->ops->event_wait(dev, s->forked, side), "event_wait");
  launch_empty(dev, side);
  check_device(dev, dev->ops->event_record(dev, s->joined, side), "event_record");
  launch_empty(dev, s->main);
  check_device(dev, dev->ops->event_wait(dev, s->joined, s->main), "event_wait");
}

/* The chains' kernels are enqueued in turn, so that they stay side by side. */
static void enqueue_chains(cgr_device *dev, const streams *s, int32_t sides) {
  launch_empty(dev, s->main);
  check_device(dev, dev->ops->event_record(dev, s->forked, s->main), "event_record");
  for (int32_t i = 0; i < sides; i++)
    check_device(dev, dev->ops->event_wait(dev, s->forked, s->side[i]), "event_wait");
  for (int32_t k = 0; k < KERNELS - 2; k++)
    launch_empty(dev, k % (sides + 1) == 0 ? s->main : s->side[k % (sides + 1) - 1]);
  for (int32_t i = 0; i < sides; i++) {
    check_device(dev, dev->ops->event_record(dev, s->joined, s->side[i]), "event_record");
    check_device(dev, dev->ops->event_wait(dev, s->joined, s->main), "event_wait");
  }
  launch_empty(dev, s->main);
}

static cgr__exec *make(cgr_device *dev, const streams *s, const shape *of, cgr__graph_info *info) {
  cgr__graph *graph;
  cgr__exec *exec;
  int32_t each = of->forks > 0 ? KERNELS / of->forks : KERNELS;
  check_device(dev, dev->ops->capture_begin(dev, s->main), "capture_begin");
  if (of->forks == 0)
    enqueue_chains(dev, s, of->sides);
  for (int32_t k = 0, forks = 0; of->forks > 0 && k < KERNELS; k++) {
    if (forks < of->forks && k % each == each - 1) {
      enqueue_fork(dev, s, s->side[forks % of->sides]);
      forks++;
    } else {
      launch_empty(dev, s->main);
    }
  }
  check_device(dev, dev->ops->capture_end(dev, s->main, &graph), "capture_end");
  check_device(dev, dev->ops->instantiate(dev, graph, &exec, info), "instantiate");
  check_device(dev, dev->ops->graph_destroy(dev, graph), "graph_destroy");
  return exec;
}

static void block(cgr_device *dev, cudaStream_t stream, cgr__exec *exec, bench_series *series) {
  for (int32_t i = -WARMUP; i < series->steps; i++) {
    double begin = bench_now_us();
    int error = dev->ops->exec_launch(dev, exec, stream);
    double end = bench_now_us();
    check_device(dev, error, "exec_launch");
    check_device(dev, dev->ops->stream_sync(dev, stream), "stream_sync");
    if (i >= 0)
      bench_series_add(series, end - begin);
  }
  bench_series_end_block(series);
}

static void run(cgr_device *dev, const streams *s, const bench_blocks *b) {
  cgr__exec *exec[NUM_SHAPES];
  cgr__graph_info info[NUM_SHAPES];
  bench_series series[NUM_SHAPES];
  double line = 0.0;
  for (int i = 0; i < NUM_SHAPES; i++) {
    exec[i] = make(dev, s, &shapes[i], &info[i]);
    series[i] = bench_series_open(b->steps, b->blocks);
  }
  for (int32_t k = 0; k < b->blocks; k++)
    for (int i = 0; i < NUM_SHAPES; i++)
      block(dev, s->main, exec[i], &series[i]);
  for (int i = 0; i < NUM_SHAPES; i++) {
    double median, p99;
    bench_series_close(&series[i], &median, &p99);
    line = i == 0 ? median : line;
    printf("| %d | %d | %lld | %lld | %.2f (%.2f) | %.2f |\n", shapes[i].forks, shapes[i].sides, (long long)info[i].num_nodes,
           (long long)info[i].width, median, p99, median / line);
    check_device(dev, dev->ops->exec_destroy(dev, exec[i]), "exec_destroy");
  }
}

int main(int argc, char **argv) {
  const bench_blocks b = bench_read_blocks(argc, argv);
  cgr_device *dev;
  streams s;
  bench_check(cgr_device_open(b.device, NULL, &dev), "cgr_device_open");
  bench_print_head(stdout, dev, "profiles/fork_cost");
  printf("# blocks: %d of %d launches of each graph, in turn\n", b.blocks, b.steps);
  printf("\n## Host time of a launch, microseconds: median (p99)\n"
         "| forks | side streams | nodes | width | launch | against the line |\n|---:|---:|---:|---:|---:|---:|\n");
  check_device(dev, dev->ops->preload(dev, &bench_kernel_empty), "preload");
  check_device(dev, dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &s.main), "stream_create");
  for (int i = 0; i < SIDES; i++)
    check_device(dev, dev->ops->stream_create(dev, CGR__STREAM_NORMAL, &s.side[i]), "stream_create");
  check_device(dev, dev->ops->event_create(dev, &s.forked), "event_create");
  check_device(dev, dev->ops->event_create(dev, &s.joined), "event_create");
  run(dev, &s, &b);
  check_device(dev, dev->ops->event_destroy(dev, s.forked), "event_destroy");
  check_device(dev, dev->ops->event_destroy(dev, s.joined), "event_destroy");
  check_device(dev, dev->ops->stream_destroy(dev, s.main), "stream_destroy");
  for (int i = 0; i < SIDES; i++)
    check_device(dev, dev->ops->stream_destroy(dev, s.side[i]), "stream_destroy");
  bench_check(cgr_device_close(dev), "cgr_device_close");
  return 0;
}

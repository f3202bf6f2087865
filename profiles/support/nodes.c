#include "profiles/support/nodes.h"

#include <stdlib.h>

#include "devices/error.h"

static void check_device(const bench_nodes *b, int error, const char *what) {
  bench_check(cgr__device_fail(b->dev, error, what), what);
}

static double replay(const bench_nodes *b, cgr__exec *exec, int32_t replays) {
  double *times = malloc((size_t)replays * sizeof *times);
  for (int32_t r = 0; r < replays; r++) {
    double begin = bench_now_us();
    check_device(b, b->dev->ops->exec_launch(b->dev, exec, b->stream), "launch");
    check_device(b, b->dev->ops->stream_sync(b->dev, b->stream), "wait");
    times[r] = (bench_now_us() - begin) / b->nodes;
  }
  double median = bench_quantile(times, replays, 0.5);
  free(times);
  return median;
}

double bench_node_us(const bench_nodes *b, const cgr__kernel *kernel, const void *args) {
  const cgr__device_ops *ops = b->dev->ops;
  cgr__graph *graph;
  cgr__exec *exec;
  check_device(b, ops->preload(b->dev, kernel), kernel->name);
  check_device(b, ops->capture_begin(b->dev, b->stream), "capture");
  for (int32_t i = 0; i < b->nodes; i++)
    check_device(b, ops->launch(b->dev, kernel, args, b->stream), kernel->name);
  check_device(b, ops->capture_end(b->dev, b->stream, &graph), "capture");
  check_device(b, ops->instantiate(b->dev, graph, &exec, NULL), "instantiate");
  (void)replay(b, exec, 3);
  double us = replay(b, exec, b->replays);
  check_device(b, ops->exec_destroy(b->dev, exec), "destroy");
  check_device(b, ops->graph_destroy(b->dev, graph), "destroy");
  return us;
}

bench_nodes bench_read_nodes(int argc, char **argv) {
  bench_nodes b = { .nodes = argc > 2 ? atoi(argv[2]) : 500, .replays = argc > 3 ? atoi(argv[3]) : 50 };
  if (b.nodes < 1 || b.nodes > 10000 || b.replays < 1 || b.replays > 10000 || (argc > 1 && argv[1][0] == '-'))
    bench_fail("usage: %s [cuda:0|host] [nodes in a graph, 1 to 10000] [replays, 1 to 10000]", argv[0]);
  return b;
}

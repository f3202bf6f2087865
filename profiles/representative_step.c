/* One representative step to look at with a profiler: 32 layers of attention as in Llama 3 8B, with copies, fills and kernels of
 * an engine between them, replayed or, with `--kind none`, run eagerly. These steps, and they alone, are between
 * cudaProfilerStart and cudaProfilerStop.
 *
 *   bazel-bin/profiles/representative_step [cuda:0|host] [--kind full|piecewise|none] [--requests N] [--length N]
 *                                          [--layers N] [--replays N] [--warm-up N] [--labels graph_labels.json]
 *
 * With Nsight Systems, down to the nodes of the graph, and what they take by phase:
 *   profiles/nsys.sh --labels labels.json bazel-bin/profiles/representative_step cuda:0 --labels labels.json
 *
 * With Nsight Compute one layer is enough, for all have the same kernels:
 *   profiles/ncu.sh bazel-bin/profiles/representative_step cuda:0 --layers 1 --replays 1
 * or what was launched in one of cgr's NVTX ranges:
 *   profiles/ncu.sh --range attention bazel-bin/profiles/representative_step cuda:0 --kind none --layers 1 --replays 1 */
#include "cgr/names.h"
#include "profiles/support/step32.h"

int main(int argc, char **argv) {
  const step32_options options = step32_read(argc, argv);
  step32 s;
  step32_open(&s, &options);
  bench_print_head(stdout, s.engine.dev, "profiles/representative_step");
  step32_run(&s, options.warmup);
  step32_fence(&s, true);
  double begin = bench_now_us();
  step32_run(&s, options.replays);
  double us = bench_now_us() - begin;
  step32_fence(&s, false);
  printf("# step: %s, %d layers, %d requests, %d tokens in each cache\n# %s: %d, %.1f us each, waited for one by one\n",
         cgr_graph_kind_name((cgr_graph_kind)s.key.kind), options.layers, options.requests, options.length,
         options.eager ? "steps" : "replays", options.replays, us / options.replays);
  step32_write_labels(&s);
  step32_close(&s);
  return 0;
}

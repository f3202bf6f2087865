/* GPU time of FlashAttention-3's scheduler metadata by itself, sorted and in one launch: the time of a graph of such nodes in
 * sequence, divided by their number, minus the same for an empty kernel.
 *
 *   bazel-bin/profiles/fa3_cost [cuda:0|host] [nodes in a graph] [replays] */
#include <string.h>

#include "devices/error.h"
#include "interop/fa3/host.h"
#include "interop/formats.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"

#define MAX_REQUESTS 4096

typedef struct fa3 {
  cgr_device *dev;
  cudaStream_t stream;
  int32_t *inputs, *device_inputs; /* page-locked and device: query_start_loc [MAX_REQUESTS + 1], seq_lens */
  size_t input_bytes;
  cgr__fa3_args args;
} fa3;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

static void open_fa3(fa3 *f, const char *device) {
  void *inputs, *device_inputs, *metadata;
  memset(f, 0, sizeof *f);
  f->input_bytes = (2 * MAX_REQUESTS + 1) * sizeof(int32_t);
  bench_check(cgr_device_open(device, NULL, &f->dev), "cgr_device_open");
  bench_check(cgr_stream_create(f->dev, &f->stream), "cgr_stream_create");
  bench_check(cgr_memory_alloc_pinned(f->dev, f->input_bytes, &inputs), "inputs");
  bench_check(cgr_memory_alloc(f->dev, f->input_bytes, &device_inputs), "inputs");
  bench_check(cgr_memory_alloc(f->dev, (1 + 4 * MAX_REQUESTS) * sizeof(int32_t), &metadata), "metadata");
  f->inputs = inputs;
  f->device_inputs = device_inputs;
  f->args.query_start_loc = f->device_inputs;
  f->args.seq_lens = f->device_inputs + MAX_REQUESTS + 1;
  f->args.metadata = metadata;
}

static void close_fa3(fa3 *f) {
  bench_check(cgr_memory_free_pinned(f->dev, f->inputs), "inputs");
  bench_check(cgr_memory_free(f->dev, f->device_inputs), "inputs");
  bench_check(cgr_memory_free(f->dev, f->args.metadata), "metadata");
  bench_check(cgr_stream_destroy(f->dev, f->stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(f->dev), "cgr_device_close");
}

/* Decodes at lengths of 1 to 8192, in a buffer for max_requests. */
static void put_batch(fa3 *f, int32_t layout, int32_t requests, int32_t max_requests) {
  int32_t *seq_lens = f->inputs + MAX_REQUESTS + 1;
  cgr_fa3_input input = CGR_FA3_INPUT_INIT, in;
  cgr_fa3_sizes sizes;
  for (int32_t i = 0; i < requests; i++) {
    f->inputs[i] = i;
    seq_lens[i] = 1 + i * 2663 % 8192;
  }
  f->inputs[requests] = requests;
  input.layout = layout;
  input.num_requests = requests;
  input.max_requests = max_requests;
  input.num_q_heads = 32;
  input.num_kv_heads = 8;
  input.head_dim = 128;
  input.dtype = CGR_DTYPE_BF16;
  input.page_size = 16;
  input.max_query_len = 1;
  input.max_seq_len = 8192;
  input.causal = 1;
  input.num_splits = 32;
  input.num_multiprocessors = 132;
  bench_check(cgr__fa3_read_key("fa3_cost", &input, &in, &sizes, &f->args.c), "cgr__fa3_read_key");
  bench_check(cgr_copy(f->dev, f->device_inputs, f->inputs, f->input_bytes, f->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(f->dev, f->stream), "cgr_stream_synchronize");
}

int main(int argc, char **argv) {
  static const int32_t counts[] = { 1, 8, 32, 64, 256, 512, 992, 1024, 4096 };
  bench_nodes b = bench_read_nodes(argc, argv);
  fa3 f;
  open_fa3(&f, argc > 1 ? argv[1] : NULL);
  b.dev = f.dev;
  b.stream = f.stream;
  check_device(f.dev, f.dev->ops->preload(f.dev, &cgr__kernel_fa3), "preload");
  bench_print_head(stdout, f.dev, "profiles/fa3_cost");
  double empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n| decodes | upstream, us | vllm, us | upstream, for up to %d | target |\n"
         "|---|---:|---:|---:|---:|\n",
         empty, MAX_REQUESTS);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    printf("| %d |", counts[i]);
    for (int column = 0; column < 3; column++) {
      put_batch(&f, column == 1 ? CGR_FA3_VLLM : CGR_FA3_UPSTREAM, counts[i], column == 2 ? MAX_REQUESTS : 0);
      printf(" %.2f |", bench_node_us(&b, &cgr__kernel_fa3, &f.args) - empty);
    }
    printf(counts[i] <= 1024 ? " 4.0 |\n" : " |\n");
  }
  close_fa3(&f);
  return 0;
}

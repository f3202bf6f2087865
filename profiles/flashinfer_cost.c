/* GPU time of the kernel that plans for FlashInfer: the time of a graph of such nodes in sequence, divided by their number, minus
 * the same for an empty kernel. Decode on CUDA cores (9 CTAs on an SM), decode with tensor cores, and prefill; KV of 1 to 8192
 * tokens in pages of 16, 8 KV heads of 4 query heads, head dim 128.
 *
 *   bazel-bin/profiles/flashinfer_cost [cuda:0|host] [nodes in a graph] [replays] */
#include <string.h>

#include "devices/error.h"
#include "interop/flashinfer/host.h"
#include "interop/formats.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"

#define MAX_REQUESTS 4096

typedef enum kind { DECODE, TENSOR_CORES, PREFILL } kind;

typedef struct shape {
  const char *name;
  kind kind;
  int32_t requests, rows, kv_heads;
} shape;

static const shape shapes[] = {
  { "decode, 1 request", DECODE, 1, 1, 8 },
  { "decode, 64 requests", DECODE, 64, 1, 8 },
  { "decode, 64 requests, 1 KV head", DECODE, 64, 1, 1 },
  { "decode, 1024 requests, 1 KV head", DECODE, 1024, 1, 1 },
  { "decode, 1024 requests", DECODE, 1024, 1, 8 },
  { "decode, 4096 requests", DECODE, 4096, 1, 8 },
  { "tensor cores, 1 request", TENSOR_CORES, 1, 1, 8 },
  { "tensor cores, 24 requests", TENSOR_CORES, 24, 1, 8 },
  { "tensor cores, 256 requests, 1 KV head", TENSOR_CORES, 256, 1, 1 },
  { "tensor cores, 1024 requests", TENSOR_CORES, 1024, 1, 8 },
  { "prefill, 1 request of 8192 rows", PREFILL, 1, 8192, 8 },
  { "prefill, 16 requests of 512 rows", PREFILL, 16, 512, 8 },
  { "prefill, 1024 requests of 8 rows", PREFILL, 1024, 8, 8 },
};

typedef struct planner {
  cgr_device *dev;
  cudaStream_t stream;
  int32_t *inputs, *device_inputs; /* page-locked and device: qo_indptr, kv_indptr [MAX_REQUESTS + 1] */
  size_t input_bytes;
} planner;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

static void open_planner(planner *p, const char *device) {
  void *inputs, *device_inputs;
  bench_check(cgr_device_open(device, NULL, &p->dev), "cgr_device_open");
  bench_check(cgr_stream_create(p->dev, &p->stream), "cgr_stream_create");
  p->input_bytes = 2 * (MAX_REQUESTS + 1) * sizeof(int32_t);
  bench_check(cgr_memory_alloc_pinned(p->dev, p->input_bytes, &inputs), "inputs");
  bench_check(cgr_memory_alloc(p->dev, p->input_bytes, &device_inputs), "inputs");
  p->inputs = inputs;
  p->device_inputs = device_inputs;
}

static void close_planner(planner *p) {
  bench_check(cgr_memory_free_pinned(p->dev, p->inputs), "free");
  bench_check(cgr_memory_free(p->dev, p->device_inputs), "free");
  bench_check(cgr_stream_destroy(p->dev, p->stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(p->dev), "cgr_device_close");
}

static void put_batch(planner *p, const shape *s) {
  int32_t *qo = p->inputs, *kv = p->inputs + MAX_REQUESTS + 1;
  memset(p->inputs, 0, p->input_bytes);
  for (int32_t i = 0; i < s->requests; i++) {
    qo[i + 1] = qo[i] + s->rows;
    kv[i + 1] = kv[i] + (s->rows + i * 2663 % 8192 + 16) / 16;
  }
  bench_check(cgr_copy(p->dev, p->device_inputs, p->inputs, p->input_bytes, p->stream), "copy");
  bench_check(cgr_stream_synchronize(p->dev, p->stream), "copy");
}

static void make_key(const shape *s, cgr__flashinfer_key *key) {
  bool open;
  if (s->kind == DECODE) {
    cgr_flashinfer_decode_input in = CGR_FLASHINFER_DECODE_INPUT_INIT, full;
    in.num_requests = s->requests;
    in.num_kv_heads = s->kv_heads;
    in.num_q_heads = 4 * s->kv_heads;
    in.head_dim = 128;
    in.page_size = 16;
    in.num_multiprocessors = 132;
    in.blocks_per_multiprocessor = 9;
    in.graph = 1;
    bench_check(cgr__flashinfer_read_decode_key("flashinfer_cost", &in, &full, key, &open), "decode");
    return;
  }
  cgr_flashinfer_prefill_input in = CGR_FLASHINFER_PREFILL_INPUT_INIT, full;
  in.num_requests = s->requests;
  in.total_num_rows = s->requests * s->rows;
  in.num_kv_heads = s->kv_heads;
  in.num_q_heads = 4 * s->kv_heads;
  in.head_dim_qk = in.head_dim_vo = 128;
  in.page_size = 16;
  in.num_multiprocessors = 132;
  in.graph = 1;
  bench_check(cgr__flashinfer_read_prefill_key("flashinfer_cost", &in, &full, key, &open), "prefill");
}

static double measure(planner *p, const bench_nodes *b, const shape *s) {
  cgr__flashinfer_args args;
  void *workspace;
  memset(&args, 0, sizeof args);
  make_key(s, &args.key);
  put_batch(p, s);
  bench_check(cgr_memory_alloc(p->dev, (size_t)args.key.at.bytes, &workspace), "workspace");
  args.qo_indptr = s->kind == PREFILL ? p->device_inputs : NULL;
  args.kv_indptr = p->device_inputs + MAX_REQUESTS + 1;
  args.int_workspace = workspace;
  check_device(p->dev, p->dev->ops->preload(p->dev, &cgr__kernel_flashinfer), "preload");
  double us = bench_node_us(b, &cgr__kernel_flashinfer, &args);
  bench_check(cgr_memory_free(p->dev, workspace), "free");
  return us;
}

int main(int argc, char **argv) {
  bench_nodes b = bench_read_nodes(argc, argv);
  planner p;
  open_planner(&p, argc > 1 ? argv[1] : NULL);
  b.dev = p.dev;
  b.stream = p.stream;
  bench_print_head(stdout, p.dev, "profiles/flashinfer_cost");
  double empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n| plan | us | target |\n|---|---:|---:|\n", empty);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    double us = measure(&p, &b, &shapes[i]) - empty;
    printf("| %s | %.2f | %s |\n", shapes[i].name, us, shapes[i].requests <= 1024 ? "4.0" : "");
  }
  close_planner(&p);
  return 0;
}

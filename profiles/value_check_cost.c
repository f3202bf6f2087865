/* GPU time of a search for NaN and infinities (cgr_record_check_values) by itself: the time of a graph of such nodes in sequence,
 * divided by their number, minus the same for an empty kernel. Every node reads the same rows, which are in L2 if they fit, as
 * they are after the kernel that wrote them. Next to it what reading the bytes once takes at the rate of a streaming read.
 *
 *   bazel-bin/profiles/value_check_cost [cuda:0|host] [nodes in a graph] [replays] */
#include <stdlib.h>
#include <string.h>

#include "devices/error.h"
#include "kernels/values.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"
#include "profiles/support/read.h"

#define MAX_REQUESTS 1024
#define MOST_BYTES ((size_t)256 * 128256 * 4)

typedef struct shape {
  const char *name;
  int32_t requests, query_len; /* the rows are tokens if query_len is above 1, else requests */
  int64_t width;
  int32_t dtype;
} shape;

static const shape shapes[] = {
  { "logits of 1 request, fp32", 1, 1, 128256, CGR_DTYPE_FP32 },
  { "logits of 8 requests, fp32", 8, 1, 128256, CGR_DTYPE_FP32 },
  { "logits of 64 requests, fp32", 64, 1, 128256, CGR_DTYPE_FP32 },
  { "logits of 256 requests, fp32", 256, 1, 128256, CGR_DTYPE_FP32 },
  { "logits of 256 requests, bf16", 256, 1, 128256, CGR_DTYPE_BF16 },
  { "outputs of 64 decodes, bf16", 64, 1, 4096, CGR_DTYPE_BF16 },
  { "outputs of 16 chunks of 512, bf16", 16, 512, 4096, CGR_DTYPE_BF16 },
};

typedef struct search {
  cgr_device *dev;
  cudaStream_t stream;
  unsigned char *memory; /* of the device: words, counts, starts, lengths, then the rows */
  cgr__check_values_args args;
} search;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

#define NUM_WORDS (16 + 2 * MAX_REQUESTS + 1)

static void open_search(search *s, const char *device) {
  size_t state = (sizeof(cgr__step_state) + 255) / 256 * 256, flags = MAX_REQUESTS * sizeof(uint64_t);
  size_t words = (NUM_WORDS * sizeof(int32_t) + 255) / 256 * 256, bytes = state + flags + words + MOST_BYTES;
  void *memory;
  memset(s, 0, sizeof *s);
  bench_check(cgr_device_open(device, NULL, &s->dev), "cgr_device_open");
  bench_check(cgr_stream_create(s->dev, &s->stream), "cgr_stream_create");
  bench_check(cgr_memory_alloc(s->dev, bytes, &memory), "cgr_memory_alloc");
  bench_check(cgr_fill(s->dev, memory, 0, bytes, s->stream), "cgr_fill");
  s->memory = memory;
  s->args.state = (const cgr__step_state *)memory;
  s->args.flags = (uint64_t *)(void *)(s->memory + state);
  s->args.counts = (const int32_t *)(void *)(s->memory + state + flags);
  s->args.query_start_loc = s->args.counts + 16;
  s->args.seq_lens = s->args.query_start_loc + MAX_REQUESTS + 1;
  s->args.data = s->memory + state + flags + words;
}

static void close_search(search *s) {
  bench_check(cgr_memory_free(s->dev, s->memory), "cgr_memory_free");
  bench_check(cgr_stream_destroy(s->dev, s->stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(s->dev), "cgr_device_close");
}

static void put_shape(search *s, const shape *sh) {
  int32_t *words = calloc(NUM_WORDS, sizeof *words), *start = words + 16, *lens = start + MAX_REQUESTS + 1;
  words[CGR_COUNT_REQUESTS] = sh->requests;
  words[CGR_COUNT_TOKENS] = sh->requests * sh->query_len;
  for (int32_t i = 0; i < sh->requests; i++) {
    start[i + 1] = start[i] + sh->query_len;
    lens[i] = sh->query_len;
  }
  bench_check(cgr_copy(s->dev, (void *)(uintptr_t)s->args.counts, words, NUM_WORDS * sizeof *words, s->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(s->dev, s->stream), "cgr_copy");
  free(words);
  s->args.by_request = sh->query_len == 1;
  s->args.num_rows = sh->requests * sh->query_len;
  s->args.width = s->args.stride = sh->width;
  s->args.dtype = sh->dtype;
}

int main(int argc, char **argv) {
  bench_nodes b = bench_read_nodes(argc, argv);
  search s;
  open_search(&s, argc > 1 ? argv[1] : NULL);
  check_device(s.dev, s.dev->ops->preload(s.dev, &cgr__kernel_check_values), "preload");
  b.dev = s.dev;
  b.stream = s.stream;
  bench_print_head(stdout, s.dev, "profiles/value_check_cost");
  double rate = bench_read_bandwidth(s.dev, s.stream), empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n# read: %.2f TB/s\n\n", empty, rate * 1e-12);
  printf("| rows | MB | us | us of reading them once |\n|---|---:|---:|---:|\n");
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    put_shape(&s, &shapes[i]);
    double bytes = (double)s.args.num_rows * (double)s.args.width * (double)cgr_dtype_size((cgr_dtype)s.args.dtype);
    printf("| %s | %.2f | %.2f | %.2f |\n", shapes[i].name, bytes * 1e-6,
           bench_node_us(&b, &cgr__kernel_check_values, &s.args) - empty, bytes / rate * 1e6);
    fflush(stdout);
  }
  close_search(&s);
  return 0;
}

/* GPU time of the kernel that transforms q, k and v and appends k and v (cgr_attention.transform), next to the same work in two
 * kernels: one that transforms q, k and v in place, and the append. Each is the time of a graph of such nodes in sequence,
 * divided by their number, minus the same for an empty kernel, so `saved` counts one node less as well. What comes out of the
 * cache's and the activations' bytes at the rate of a streaming read is `floor`.
 *
 *   bazel-bin/profiles/transform_cost [cuda:0|host] [nodes in a graph] [replays]
 *
 * 32 query heads, 8 KV heads, head dim 128, bf16; page size 16; tokens of consecutive positions in consecutive slots. */
#include <math.h>
#include <stdlib.h>

#include "devices/error.h"
#include "kernels/append.h"
#include "kernels/transform.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"
#include "profiles/support/read.h"

enum { Q_HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, PAGE_SIZE = 16, MAX_TOKENS = 8192, NUM_COUNTS = 16 };

typedef struct shape {
  const char *name;
  cgr_dtype cache;
  bool norms, biases; /* as Qwen3 has, as Qwen2 has; both have rope */
} shape;

static const shape shapes[] = {
  { "rope", CGR_DTYPE_BF16, false, false },
  { "norms and rope", CGR_DTYPE_BF16, true, false },
  { "biases and rope", CGR_DTYPE_BF16, false, true },
  { "norms and rope, cache of e4m3", CGR_DTYPE_FP8_E4M3, true, false },
};
static const int32_t token_counts[] = { 1, 64, 512, MAX_TOKENS };

enum { Q, K, V, CACHE, BIAS, NORM, ANGLES, WORDS, SLOTS, NUM_ARRAYS };

typedef struct arrays {
  bench_nodes nodes;
  void *of[NUM_ARRAYS];
} arrays;

static void put(const arrays *a, int array, const void *from, size_t bytes) {
  bench_check(cgr_copy(a->nodes.dev, a->of[array], from, bytes, a->nodes.stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(a->nodes.dev, a->nodes.stream), "cgr_copy");
}

/* Positions and slots are those of one long request. */
static void put_tokens(const arrays *a) {
  float *angles = malloc(sizeof *angles * MAX_TOKENS * HEAD_DIM);
  int32_t *words = calloc(NUM_COUNTS + MAX_TOKENS, sizeof *words);
  int64_t *slots = malloc(sizeof *slots * MAX_TOKENS);
  words[CGR_COUNT_TOKENS] = MAX_TOKENS;
  for (int32_t t = 0; t < MAX_TOKENS; t++) {
    words[NUM_COUNTS + t] = t;
    slots[t] = t;
    for (int32_t d = 0; d < HEAD_DIM / 2; d++) {
      const double angle = t * pow(10000.0, -2.0 * d / HEAD_DIM);
      angles[t * HEAD_DIM + d] = (float)cos(angle);
      angles[t * HEAD_DIM + HEAD_DIM / 2 + d] = (float)sin(angle);
    }
  }
  put(a, ANGLES, angles, sizeof *angles * MAX_TOKENS * HEAD_DIM);
  put(a, WORDS, words, sizeof *words * (NUM_COUNTS + MAX_TOKENS));
  put(a, SLOTS, slots, sizeof *slots * MAX_TOKENS);
  free(angles);
  free(words);
  free(slots);
}

static void open_arrays(arrays *a, const char *device) {
  const size_t token = HEAD_DIM * (size_t)MAX_TOKENS;
  bench_check(cgr_device_open(device, NULL, &a->nodes.dev), "cgr_device_open");
  bench_check(cgr_stream_create(a->nodes.dev, &a->nodes.stream), "cgr_stream_create");
  const size_t elements[NUM_ARRAYS] = {
    [Q] = Q_HEADS * token,    [K] = KV_HEADS * token, [V] = KV_HEADS * token,          [CACHE] = 2 * KV_HEADS * token,
    [BIAS] = Q_HEADS * 128,   [NORM] = HEAD_DIM,      [ANGLES] = 2 * token /* fp32 */, [WORDS] = 2 * (NUM_COUNTS + MAX_TOKENS),
    [SLOTS] = 4 * MAX_TOKENS,
  };
  for (int i = 0; i < NUM_ARRAYS; i++)
    a->of[i] = bench_make_tensor(a->nodes.dev, a->nodes.stream, CGR_DTYPE_BF16, elements[i]);
  put_tokens(a);
}

static cgr__transformed transformed(const arrays *a, const shape *s, int array, int32_t heads, const cgr_kv_view *to) {
  cgr__transformed t = { .num_heads = heads, .head_dim = HEAD_DIM };
  bench_check(cgr_view_make(a->of[array], CGR_DTYPE_BF16, heads, HEAD_DIM, &t.from), "cgr_view_make");
  t.bias = s->biases ? a->of[BIAS] : NULL;
  t.norm = s->norms && array != V ? a->of[NORM] : NULL;
  t.rotary_dim = array == V ? 0 : HEAD_DIM;
  if (to)
    t.to = *to;
  return t;
}

typedef struct times {
  double append, one, two; /* us: of the append alone, of one kernel, of two */
} times;

static times measure(const arrays *a, const shape *s, int32_t tokens, double empty) {
  cgr_kv_view k, v;
  const int32_t *words = a->of[WORDS];
  bench_check(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, a->of[CACHE], s->cache, PAGE_SIZE, KV_HEADS, HEAD_DIM, &k, &v), "views");
  cgr__transform_args t = { .cos_sin = a->of[ANGLES], .positions = words + NUM_COUNTS, .counts = words };
  t.slot_mapping = a->of[SLOTS];
  t.num_pages = MAX_TOKENS / PAGE_SIZE, t.page_size = PAGE_SIZE;
  t.num_tokens = tokens, t.num_positions = MAX_TOKENS, t.epsilon = CGR__TRANSFORM_EPSILON;
  t.tensor[CGR__TRANSFORM_Q] = transformed(a, s, Q, Q_HEADS, NULL);
  t.tensor[CGR__TRANSFORM_K] = transformed(a, s, K, KV_HEADS, &k);
  t.tensor[CGR__TRANSFORM_V] = transformed(a, s, V, KV_HEADS, &v);
  cgr__transform_args in_place = t;
  in_place.tensor[CGR__TRANSFORM_K].to.base = NULL;
  in_place.tensor[CGR__TRANSFORM_V].to.base = NULL;
  if (!cgr__is_transformed(&in_place.tensor[CGR__TRANSFORM_V]))
    in_place.tensor[CGR__TRANSFORM_V].num_heads = 0;
  const cgr__append_args append = { .k_cache = k,
                                    .v_cache = v,
                                    .k = t.tensor[CGR__TRANSFORM_K].from,
                                    .v = t.tensor[CGR__TRANSFORM_V].from,
                                    .slot_mapping = t.slot_mapping,
                                    .num_pages = t.num_pages,
                                    .page_size = PAGE_SIZE,
                                    .num_tokens = tokens,
                                    .num_kv_heads = KV_HEADS,
                                    .head_dim = HEAD_DIM,
                                    .head_dim_v = HEAD_DIM };
  times us = { .append = bench_node_us(&a->nodes, &cgr__kernel_append, &append) - empty };
  us.one = bench_node_us(&a->nodes, &cgr__kernel_transform, &t) - empty;
  us.two = us.append + bench_node_us(&a->nodes, &cgr__kernel_transform, &in_place);
  return us;
}

/* q is read and written, k and v are read, the cache is written. */
static double bytes_of(const shape *s, int32_t tokens) {
  const double element = (double)cgr_dtype_size(s->cache);
  return (double)tokens * HEAD_DIM * (2.0 * 2 * Q_HEADS + 2 * (2.0 + element) * KV_HEADS);
}

int main(int argc, char **argv) {
  arrays a = { .nodes = bench_read_nodes(argc, argv) };
  open_arrays(&a, argc > 1 ? argv[1] : NULL);
  const double bandwidth = bench_read_bandwidth(a.nodes.dev, a.nodes.stream);
  bench_print_head(stdout, a.nodes.dev, "profiles/transform_cost");
  const double empty = bench_node_us(&a.nodes, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n| transform | tokens | append us | one kernel us | two kernels us | saved us | "
         "floor us |\n"
         "|---|---:|---:|---:|---:|---:|---:|\n",
         empty);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (size_t n = 0; n < sizeof token_counts / sizeof token_counts[0]; n++) {
      const times us = measure(&a, &shapes[i], token_counts[n], empty);
      printf("| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f |\n", shapes[i].name, token_counts[n], us.append, us.one, us.two,
             us.two - us.one, bytes_of(&shapes[i], token_counts[n]) / bandwidth * 1e6);
      fflush(stdout);
    }
  bench_close_device(a.nodes.dev, a.nodes.stream, a.of, NUM_ARRAYS);
  return 0;
}

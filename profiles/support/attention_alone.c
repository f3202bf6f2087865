#include "profiles/support/attention_alone.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "devices/error.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/quantise.h"
#include "kernels/reference/reference.h"
#include "planners/attention/plan_host.h"
#include "profiles/support/attention_check.h"

#define MAX_MEMORY 16

typedef struct alone {
  const bench_attention *b;
  cgr__plans plans;
  cgr__attention_args args; /* of node 0; a node has request rows and a prefill queue of its own */
  cgr__plan_header header;
  bench_attention_result result;
  int32_t num_sets, num_tokens;
  int32_t *query_start, *table; /* on the host: [num_requests + 1], [num_sets][num_requests][stride] */
  int64_t stride;
  cgr__append_args append;
  int64_t *slots;         /* device: [num_sets][num_tokens] */
  int32_t *rows, *queues; /* device: [num_sets][num_requests], [nodes + 1], the last one for the launch that is checked */
  float *lse;             /* device */
  void *memory[MAX_MEMORY];
  int num_memory;
} alone;

static void check_device(const alone *a, int error, const char *what) {
  bench_check(cgr__device_fail(a->b->dev, error, what), what);
}

static void synchronize(const alone *a) { bench_check(cgr_stream_synchronize(a->b->dev, a->b->stream), "synchronize"); }

/* Device memory with `data` in it, or zeros. */
static void *upload(alone *a, const void *data, size_t bytes) {
  void *memory;
  const bench_attention *b = a->b;
  bench_check(cgr_memory_alloc(b->dev, bytes, &memory), "memory");
  if (data)
    bench_check(cgr_copy(b->dev, memory, data, bytes, b->stream), "upload");
  else
    bench_check(cgr_fill(b->dev, memory, 0, bytes, b->stream), "fill");
  synchronize(a);
  a->memory[a->num_memory++] = memory;
  return memory;
}

static void *download(const alone *a, const void *memory, size_t bytes) {
  void *data = malloc(bytes);
  bench_check(cgr_copy(a->b->dev, data, memory, bytes, a->b->stream), "download");
  synchronize(a);
  return data;
}

/* --------------------------------------------------------------------------------------------------------- layer and plan */

/* Of i8: a factor for each token of K and each channel of V. */
static void arrange_factors(cgr_kv_view *k, cgr_kv_view *v, int32_t num_kv_heads, int32_t head_dim) {
  k->scale_stride_token = v->scale_stride_d = 1;
  k->scale_stride_head = BENCH_PAGE_SIZE;
  k->scale_stride_page = (int64_t)num_kv_heads * BENCH_PAGE_SIZE;
  v->scale_stride_head = head_dim;
}

static cgr_layer make_layer(cgr_dtype dtype, cgr_dtype cache_dtype, int32_t num_q_heads, int32_t num_kv_heads, int32_t head_dim) {
  cgr_layer layer = CGR_LAYER_INIT;
  layer.num_q_heads = num_q_heads;
  layer.num_kv_heads = num_kv_heads;
  layer.head_dim = layer.head_dim_v = head_dim;
  layer.dtype = layer.out_dtype = (int32_t)dtype;
  layer.k.dtype = layer.v.dtype = (int32_t)cache_dtype;
  if (cache_dtype == CGR_DTYPE_I8) { /* their memory is made later (make_factors) */
    static _Alignas(16) float factors[4];
    layer.k.scale = layer.v.scale = factors;
    arrange_factors(&layer.k, &layer.v, num_kv_heads, head_dim);
  }
  return layer;
}

static const cgr__kernel_kind *choose(cgr_device *dev, const cgr_layer *layer, cgr_device_info *info) {
  cgr__findings findings;
  cgr__findings_init(&findings, NULL, 0);
  *info = (cgr_device_info)CGR_DEVICE_INFO_INIT;
  bench_check(cgr_device_get_info(dev, info), "cgr_device_get_info");
  const cgr__kernel_kind *kind = cgr__kernel_kind_choose(info, layer, 1, &findings);
  if (!kind || findings.count > 0)
    bench_fail("no kernel kind for %d heads, %d KV heads, head dim %d", layer->num_q_heads, layer->num_kv_heads, layer->head_dim);
  return kind;
}

const cgr__kernel_kind *bench_attention_kind(cgr_device *dev, int32_t num_q_heads, int32_t num_kv_heads, int32_t head_dim,
                                             int32_t *num_parts) {
  cgr_device_info info;
  cgr_layer layer = make_layer(CGR_DTYPE_BF16, CGR_DTYPE_BF16, num_q_heads, num_kv_heads, head_dim);
  const cgr__kernel_kind *kind = choose(dev, &layer, &info);
  *num_parts = cgr__plan_device_parts(&kind->plan, &info, &layer);
  return kind;
}

static void make_class(alone *a) {
  const bench_attention *b = a->b;
  cgr_device_info info;
  cgr_layer layer = make_layer(b->dtype, b->cache_dtype, b->num_q_heads, b->num_kv_heads, b->head_dim);
  const cgr__kernel_kind *kind = choose(b->dev, &layer, &info);
  const cgr__plan_options options = { b->num_parts, b->num_requests, a->num_tokens, false };
  cgr__findings findings;
  cgr__findings_init(&findings, NULL, 0);
  cgr__kernel_kinds_plan(&info, &layer, &kind, 1, &options, &a->plans, &findings);
  if (findings.count > 0 || a->plans.num_classes != 1)
    bench_fail("no plan for %d requests of %d tokens", b->num_requests, a->num_tokens);
  cgr__plan_class *c = &a->plans.classes[0];
  if (b->costs) {
    c->cost_tile = b->costs->cost_tile;
    c->cost_kv = b->costs->cost_kv;
    c->snap = b->costs->snap;
  }
  a->result.num_parts = c->num_parts;
  if (b->serial)
    c->mixed_parts = 0;
  if (b->decode_parts > 0) { /* whatever the queue costs */
    c->mixed_parts = b->decode_parts;
    c->prefill_cost_tile = 1;
    c->memory_parts = 0;
  }
  a->args.plan_class = *c;
  cgr__attention_set_heads(&a->args, b->num_q_heads, b->num_kv_heads, cgr__plan_block_heads(&kind->plan, &layer));
  a->args.decode_lines = a->plans.decode_lines[0];
  a->args.prefill_lines = a->plans.prefill_lines[0];
  a->args.shared_bytes = a->plans.shared_bytes[0];
}

static void make_plan(alone *a) {
  const cgr__plan_class *c = &a->plans.classes[0];
  size_t bytes = (size_t)cgr__plan_bytes(c);
  void *plan = calloc(1, bytes), *scratch = malloc(cgr__plan_scratch_bytes(c));
  cgr__plan_fill(c, a->query_start, a->b->seq_lens, a->b->num_requests, scratch, plan);
  a->header = *(const cgr__plan_header *)plan;
  a->result.decode_parts = a->header.decode_parts;
  const cgr__plan_part *parts = (const cgr__plan_part *)(const void *)((const cgr__plan_header *)plan + 1);
  const char *entries = (const char *)plan + cgr__plan_entries_offset(c);
  a->result.num_items = a->header.num_items * c->stripes;
  for (int32_t p = 0; p < c->num_parts; p++)
    a->result.cuts += parts[p].begin.kv > 0 ? c->stripes : 0;
  for (int32_t e = 0; e < a->header.num_entries; e++)
    a->result.num_splits += ((const cgr__plan_entry *)(const void *)entries)[e].count > 1 ? c->head_blocks * c->stripes : 0;
  a->args.plan = upload(a, plan, bytes);
  free(plan);
  free(scratch);
}

/* ----------------------------------------------------------------------------------------------------- batch and buffers */

void bench_attention_set_shape(bench_attention *b, const bench_shape *s) {
  int32_t count = bench_shape_requests(s);
  int32_t *query_lens = malloc((size_t)count * sizeof *query_lens), *seq_lens = malloc((size_t)count * sizeof *seq_lens);
  for (int32_t i = 0; i < count; i++) {
    query_lens[i] = bench_shape_query_len(s, i);
    seq_lens[i] = bench_shape_seq_len(s, i);
  }
  b->num_q_heads = s->num_q_heads;
  b->num_kv_heads = s->num_kv_heads;
  b->head_dim = s->head_dim;
  b->dtype = s->dtype;
  b->cache_dtype = s->cache_dtype;
  b->page_size = BENCH_PAGE_SIZE;
  b->num_requests = count;
  b->query_lens = query_lens;
  b->seq_lens = seq_lens;
}

static int32_t pages_of(const bench_attention *b, int32_t request) {
  return (b->seq_lens[request] + b->page_size - 1) / b->page_size;
}

static void make_table(alone *a) {
  const bench_attention *b = a->b;
  for (int32_t i = 0; i < b->num_requests; i++)
    a->stride = pages_of(b, i) > a->stride ? pages_of(b, i) : a->stride;
  int32_t own = b->num_requests - b->num_shared; /* requests with pages of their own */
  int64_t needed = b->num_shared > 0 ? a->stride : 0, there = b->num_pages - 2, next = 0, shared = 0;
  for (int32_t i = 0; i < own; i++)
    needed += pages_of(b, i);
  if (needed > there)
    bench_fail("the pool has %lld pages, the batch needs %lld", (long long)there, (long long)needed);
  a->num_sets = !b->cold ? 1 : there / needed < b->nodes ? (int32_t)(there / needed) : b->nodes;
  int32_t num_rows = a->num_sets * b->num_requests, *rows = malloc((size_t)num_rows * sizeof *rows);
  int32_t *order = bench_make_page_order(b->num_pages);
  size_t bytes = (size_t)num_rows * (size_t)a->stride * sizeof *a->table;
  a->table = calloc(1, bytes);
  for (int32_t r = 0; r < num_rows; r++) {
    int32_t request = r % b->num_requests;
    rows[r] = r;
    if (request == own)
      shared = next; /* those of the set come after its others */
    else if (request > own)
      next = shared;
    for (int32_t p = 0; p < pages_of(b, request); p++)
      a->table[r * a->stride + p] = order[next++];
    if (request == b->num_requests - 1 && own < b->num_requests)
      next = shared + a->stride;
  }
  a->args.page_table = upload(a, a->table, bytes);
  a->rows = upload(a, rows, (size_t)num_rows * sizeof *rows);
  free(order);
  free(rows);
}

static void make_batch(alone *a) {
  const bench_attention *b = a->b;
  int32_t counts[16] = { 0 }, longest = 0;
  a->query_start = calloc((size_t)b->num_requests + 1, sizeof *a->query_start);
  for (int32_t i = 0; i < b->num_requests; i++) {
    a->query_start[i + 1] = a->query_start[i] + b->query_lens[i];
    longest = b->query_lens[i] > longest ? b->query_lens[i] : longest;
  }
  a->num_tokens = a->query_start[b->num_requests];
  counts[CGR_COUNT_REQUESTS] = counts[CGR_COUNT_PADDED_REQUESTS] = b->num_requests;
  counts[CGR_COUNT_TOKENS] = counts[CGR_COUNT_PADDED_TOKENS] = a->num_tokens;
  a->args.query_start_loc = upload(a, a->query_start, ((size_t)b->num_requests + 1) * sizeof *a->query_start);
  a->args.seq_lens = upload(a, b->seq_lens, (size_t)b->num_requests * sizeof *b->seq_lens);
  a->args.counts = upload(a, counts, sizeof counts);
  a->args.num_tokens = a->num_tokens;
  a->args.max_query_len = longest; /* as the key of a step that has a graph of this length */
}

/* Factor i of i8: about as large as those of the batch would be. */
static float given_factor(size_t i) { return (float)(1 + i * 7 % 13) / 1024.0f; }

static float *upload_factors(alone *a, size_t count) {
  float *factors = malloc(count * sizeof *factors);
  for (size_t i = 0; i < count; i++)
    factors[i] = given_factor(i);
  float *there = upload(a, factors, count * sizeof *factors);
  free(factors);
  return there;
}

static void make_factors(alone *a) {
  const bench_attention *b = a->b;
  cgr_kv_view *k = &a->args.k_cache, *v = &a->args.v_cache;
  arrange_factors(k, v, b->num_kv_heads, b->head_dim);
  k->scale = upload_factors(a, (size_t)(b->num_pages * k->scale_stride_page));
  v->scale = upload_factors(a, (size_t)b->num_kv_heads * (size_t)b->head_dim);
}

static void make_buffers(alone *a) {
  const bench_attention *b = a->b;
  const cgr__plans *p = &a->plans;
  const cgr__step_error none = { .row = -1 };
  a->lse = upload(a, NULL, (size_t)a->num_tokens * (size_t)b->num_q_heads * sizeof *a->lse);
  a->queues = upload(a, NULL, ((size_t)b->nodes + 1) * sizeof *a->queues);
  a->args.plan_counters = upload(a, NULL, (size_t)p->num_partials * sizeof(int32_t));
  a->args.partial_out = upload(a, NULL, (size_t)(p->partial_vectors * p->partial_dim) * sizeof(float));
  a->args.partial_state = upload(a, NULL, (size_t)p->partial_vectors * 2 * sizeof(float));
  a->args.error = upload(a, &none, sizeof none);
  bench_check(cgr_view_make(b->q, b->dtype, b->num_q_heads, b->head_dim, &a->args.q), "q");
  bench_check(cgr_view_make(b->out, b->dtype, b->num_q_heads, b->head_dim, &a->args.out), "out");
  bench_check(cgr_kv_view_make_pair(CGR_LAYOUT_NHD, b->cache, b->cache_dtype, b->page_size, b->num_kv_heads, b->head_dim,
                                    &a->args.k_cache, &a->args.v_cache),
              "the cache");
  if (b->cache_dtype == CGR_DTYPE_I8)
    make_factors(a);
  a->args.group = (cgr__group_geometry){ b->page_size, .read_trash_page = 0, .write_trash_page = 1, 0, b->num_pages, a->stride };
  a->args.head_dim = a->args.head_dim_v = b->head_dim;
  a->args.scale = 1.0f / sqrtf((float)b->head_dim);
}

/* ---------------------------------------------------------------------------------------------------------------- append */

/* Where a token of the batch is in the pool. */
static int64_t slot_of(const alone *a, int32_t set, int32_t token) {
  const bench_attention *b = a->b;
  int32_t request = 0;
  while (a->query_start[request + 1] <= token)
    request++;
  int32_t at = b->seq_lens[request] - (a->query_start[request + 1] - token);
  int64_t page = a->table[(set * b->num_requests + request) * a->stride + at / b->page_size];
  return page * b->page_size + at % b->page_size;
}

/* As in the runtime, whose prologue writes the slots. */
static void make_append(alone *a) {
  const bench_attention *b = a->b;
  cgr__append_args *to = &a->append;
  int32_t num_slots = a->num_sets * a->num_tokens;
  int64_t *slots = malloc((size_t)num_slots * sizeof *slots);
  for (int32_t i = 0; i < num_slots; i++)
    slots[i] = slot_of(a, i / a->num_tokens, i % a->num_tokens);
  a->slots = upload(a, slots, (size_t)num_slots * sizeof *slots);
  free(slots);
  to->k_cache = a->args.k_cache;
  to->v_cache = a->args.v_cache;
  bench_check(cgr_view_make(b->k, b->dtype, b->num_kv_heads, b->head_dim, &to->k), "k");
  bench_check(cgr_view_make(b->v, b->dtype, b->num_kv_heads, b->head_dim, &to->v), "v");
  to->num_pages = b->num_pages;
  to->page_size = b->page_size;
  to->num_tokens = a->num_tokens;
  to->num_kv_heads = b->num_kv_heads;
  to->head_dim = to->head_dim_v = b->head_dim;
  check_device(a, b->dev->ops->preload(b->dev, &cgr__kernel_append), "preload");
}

/* The factor of element i of a token in i8: K's, from the largest element of the head, or V's own. */
static float factor_of(const alone *a, int kind, const uint16_t *elements, size_t i) {
  const size_t dim = (size_t)a->b->head_dim, first = i / dim * dim;
  float most = 0.0f;
  if (kind == 1)
    return given_factor(i);
  for (size_t d = 0; d < dim; d++)
    most = fmaxf(most, fabsf((float)cgr__reference_load((int32_t)a->b->dtype, elements + first + d)));
  return most / CGR__I8_MAX;
}

/* K or V (kind 1) of a token as the cache has it. */
static void *token_as_cached(const alone *a, int kind, const void *from, size_t count) {
  const bench_attention *b = a->b;
  uint16_t *elements = download(a, from, count * 2);
  if (b->cache_dtype == b->dtype)
    return elements;
  uint8_t *codes = malloc(count);
  for (size_t i = 0; i < count; i++) {
    const float factor = b->cache_dtype == CGR_DTYPE_I8 ? factor_of(a, kind, elements, i) : 1.0f;
    codes[i] = cgr__quantise((float)cgr__reference_load((int32_t)b->dtype, elements + i), factor, (int32_t)b->cache_dtype);
  }
  free(elements);
  return codes;
}

/* The first, the middle and the last token of the batch are where they belong. */
static void check_append(const alone *a, int32_t set) {
  const bench_attention *b = a->b;
  size_t count = (size_t)b->num_kv_heads * (size_t)b->head_dim, line = count * cgr_dtype_size(b->cache_dtype);
  size_t half = line * (size_t)b->page_size;
  for (int32_t i = 0; i < 3; i++) {
    int32_t token = (a->num_tokens - 1) * i / 2;
    size_t slot = (size_t)slot_of(a, set, token), page_size = (size_t)b->page_size;
    const char *k_there = (const char *)b->cache + slot / page_size * half * 2 + slot % page_size * line;
    void *got[2] = { download(a, k_there, line), download(a, k_there + half, line) };
    void *want[2] = { token_as_cached(a, 0, (const uint16_t *)b->k + (size_t)token * count, count),
                      token_as_cached(a, 1, (const uint16_t *)b->v + (size_t)token * count, count) };
    for (int kind = 0; kind < 2; kind++) {
      if (memcmp(got[kind], want[kind], line) != 0)
        bench_fail("%s of token %d of the batch is not what was to be appended", kind == 0 ? "K" : "V", token);
      free(got[kind]);
      free(want[kind]);
    }
  }
}

static void open_alone(alone *a, const bench_attention *b) {
  memset(a, 0, sizeof *a);
  a->b = b;
  make_batch(a);
  make_class(a);
  make_table(a);
  make_plan(a);
  make_buffers(a);
  if (b->k)
    make_append(a);
  check_device(a, b->dev->ops->preload(b->dev, &cgr__kernel_attention), "preload");
}

static void close_alone(alone *a) {
  for (int i = 0; i < a->num_memory; i++)
    bench_check(cgr_memory_free(a->b->dev, a->memory[i]), "free");
  free(a->query_start);
  free(a->table);
}

/* ------------------------------------------------------------------------------------------------------------------ runs */

/* The arrival counters return to zero by themselves, a prefill queue's head does not: each node has a prefill queue of its own.
 */
static void enqueue(alone *a, int32_t node, int32_t queue) {
  const int32_t set = node % a->num_sets;
  cgr__attention_args args = a->args;
  cgr__append_args append = a->append;
  if (a->b->k) {
    append.slot_mapping = a->slots + (ptrdiff_t)set * a->num_tokens;
    append.attention_follows = 1; /* as in a step */
    check_device(a, a->b->dev->ops->launch(a->b->dev, &cgr__kernel_append, &append, a->b->stream), "append");
    args.after_append = 1;
  }
  args.request_rows = a->rows + set * a->b->num_requests;
  args.prefill_queue = a->queues + queue;
  check_device(a, a->b->dev->ops->launch(a->b->dev, &cgr__kernel_attention, &args, a->b->stream), "attention");
}

static size_t out_bytes(const alone *a) { return (size_t)a->num_tokens * (size_t)a->b->num_q_heads * (size_t)a->b->head_dim * 2; }

/* Whatever is not written is NaN, of bf16 and of fp16. */
static void poison_out(const alone *a) { bench_check(cgr_fill(a->b->dev, a->b->out, 0xff, out_bytes(a), a->b->stream), "fill"); }

/* What the graph's last node must write, checked. */
static void *solve(alone *a) {
  const bench_attention *b = a->b;
  int32_t last = b->nodes - 1, set = last % a->num_sets;
  poison_out(a);
  bench_check(cgr_view_make(a->lse, CGR_DTYPE_FP32, b->num_q_heads, 1, &a->args.lse), "lse");
  enqueue(a, last, b->nodes);
  a->args.lse.data = NULL; /* the steps of the engines here do not ask for it */
  synchronize(a);
  if (b->k)
    check_append(a, set);
  void *out = download(a, b->out, out_bytes(a));
  float *lse = download(a, a->lse, (size_t)a->num_tokens * (size_t)b->num_q_heads * sizeof *lse);
  a->result.error =
      bench_attention_check(b, &(bench_attention_output){ a->query_start, a->table + set * b->num_requests * a->stride, a->stride,
                                                          (const cgr_kv_view[]){ a->args.k_cache, a->args.v_cache }, out, lse });
  free(lse);
  return out;
}

static cgr__exec *capture(alone *a, cgr__graph **graph) {
  const bench_attention *b = a->b;
  cgr__exec *exec;
  check_device(a, b->dev->ops->capture_begin(b->dev, b->stream), "capture");
  if (a->header.num_items > 0)
    bench_check(cgr_fill(b->dev, a->queues, 0, (size_t)b->nodes * sizeof *a->queues, b->stream), "fill");
  for (int32_t i = 0; i < b->nodes; i++)
    enqueue(a, i, i);
  check_device(a, b->dev->ops->capture_end(b->dev, b->stream, graph), "capture");
  check_device(a, b->dev->ops->instantiate(b->dev, *graph, &exec, NULL), "instantiate");
  return exec;
}

/* In microseconds. */
static double launch(const alone *a, cgr__exec *exec, int32_t times) {
  double begin = bench_now_us();
  for (int32_t i = 0; i < times; i++)
    check_device(a, a->b->dev->ops->exec_launch(a->b->dev, exec, a->b->stream), "launch");
  synchronize(a);
  return bench_now_us() - begin;
}

/* The graph is launched several times before the host waits, 20 ms in all, so the host's time to wake up does not count. */
static double replay(const alone *a, cgr__exec *exec) {
  const bench_attention *b = a->b;
  double *times = malloc((size_t)b->replays * sizeof *times);
  (void)launch(a, exec, 1);
  double once = launch(a, exec, 1);
  int32_t launches = once > 20000.0 ? 1 : once < 500.0 ? 40 : (int32_t)(20000.0 / once);
  (void)launch(a, exec, launches);
  for (int32_t r = 0; r < b->replays; r++)
    times[r] = launch(a, exec, launches) / launches / b->nodes;
  double median = bench_quantile(times, b->replays, 0.5);
  free(times);
  return median;
}

/* Every CTA, except on the host, asks once more than there are items. */
static void check_counters(const alone *a) {
  cgr__step_error *error = download(a, a->args.error, sizeof *error);
  int32_t *queues = download(a, a->queues, ((size_t)a->b->nodes + 1) * sizeof *queues);
  int32_t *arrivals = download(a, a->args.plan_counters, (size_t)a->plans.num_partials * sizeof *arrivals);
  const cgr__plan_class *c = &a->plans.classes[0];
  int32_t items = a->result.num_items, most = items > 0 ? items + c->num_parts * c->stripes : 0;
  if (error->error != 0)
    bench_fail("guard %d in row %d, page %d of it: %lld", error->error, error->row, error->index, (long long)error->value);
  for (int32_t i = 0; i <= a->b->nodes; i++)
    if (queues[i] < items || queues[i] > most)
      bench_fail("node %d took %d items of the prefill queue, expected %d to %d", i, queues[i], items, most);
  for (int64_t i = 0; i < a->plans.num_partials; i++)
    if (arrivals[i] != 0)
      bench_fail("the arrival counter of slot %lld was left at %d", (long long)i, arrivals[i]);
  free(arrivals);
  free(queues);
  free(error);
}

bench_attention_result bench_attention_run(const bench_attention *b) {
  alone a;
  cgr__graph *graph;
  open_alone(&a, b);
  void *want = solve(&a);
  cgr__exec *exec = capture(&a, &graph);
  a.result.us = replay(&a, exec);
  poison_out(&a);
  (void)launch(&a, exec, 1);
  void *got = download(&a, b->out, out_bytes(&a));
  if (memcmp(got, want, out_bytes(&a)) != 0)
    bench_fail("the graph's output is not that of the launch before");
  check_counters(&a);
  free(got);
  free(want);
  check_device(&a, b->dev->ops->exec_destroy(b->dev, exec), "destroy");
  check_device(&a, b->dev->ops->graph_destroy(b->dev, graph), "destroy");
  close_alone(&a);
  return a.result;
}

/* Attention on a processor: the parts of the plan one after the other, each as the CUDA kernel would run it, with the same
 * items, partials, arrival counters and order of merging, so that a wrong plan gives a wrong result here too.
 *
 * A q tile of one head block has lines = tokens * heads <= 64 lines, line r being head r % heads of token r / heads. K and V are
 * read row by row through pointers: an fp32 cache in place, others through a scratch tile. Nothing that no line of
 * the tile sees is read. Codes are decoded without their factors (quantise.h). K's multiplies the scale of the scores, or the
 * scores of its token, and V's what an item has added up. Sums run in a fixed order (four vectors of four numbers, or one row
 * after the other), so that the bits do not depend on the compiler's choice of instructions. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "base/convert.h"
#include "kernels/host/kind.h"
#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"
#include "kernels/quantise.h"

#define MAX_HEAD_DIM CGR__HOST_MAX_HEAD_DIM
#define TILE_LINES CGR__HOST_TILE_LINES
#define TILE_KV CGR__HOST_TILE_KV
#define LOG2E 1.44269504088896340736f
#define LN2 0.69314718055994530942f

/* A vector of the processor, unaligned in memory; GCC and Clang compile it for any machine. */
typedef float floats4 __attribute__((vector_size(16)));

typedef struct tile {
  const cgr__attention_args *args;
  const int32_t *pages; /* row of the page table */
  int32_t row_of_table;
  int32_t start, query_len, seq_len; /* of the request: its first token in the step, its new tokens, what it attends in */
  int32_t query_begin, tokens;       /* new tokens of the tile; query_begin: counted in the request */
  cgr__plan_range kv;                /* tokens that any line sees */
  int32_t kv_head, head_begin, heads;
  int32_t lines, head_dim, head_dim_v;
  float scale; /* of q.k, with K's factor of the KV head */
} tile;

typedef struct tile_state {
  float out[TILE_LINES][MAX_HEAD_DIM]; /* not normalised */
  float max[TILE_LINES], sum[TILE_LINES];
} tile_state;

typedef struct kv_scratch {
  const float *rows[TILE_KV];
  float values[TILE_KV][MAX_HEAD_DIM];
  float factors[TILE_KV]; /* of K's tokens, where they have their own */
} kv_scratch;

static floats4 load_floats4(const float *from) {
  floats4 v;
  memcpy(&v, from, sizeof v);
  return v;
}

static void store_floats4(float *to, floats4 v) { memcpy(to, &v, sizeof v); }

static float dot(const float *a, const float *b, int32_t n) {
  floats4 s0 = { 0 }, s1 = { 0 }, s2 = { 0 }, s3 = { 0 };
  int32_t d = 0;
  for (; d + 16 <= n; d += 16) {
    s0 += load_floats4(a + d) * load_floats4(b + d);
    s1 += load_floats4(a + d + 4) * load_floats4(b + d + 4);
    s2 += load_floats4(a + d + 8) * load_floats4(b + d + 8);
    s3 += load_floats4(a + d + 12) * load_floats4(b + d + 12);
  }
  if (d < n) { /* n is a multiple of 8 */
    s0 += load_floats4(a + d) * load_floats4(b + d);
    s1 += load_floats4(a + d + 4) * load_floats4(b + d + 4);
  }
  floats4 s = (s0 + s1) + (s2 + s3);
  return (s[0] + s[1]) + (s[2] + s[3]);
}

/* out += sum over t of p[t] * rows[t], one t after the other. */
static void add_rows(float *out, const float *const *rows, const float *p, int32_t count, int32_t n) {
  int32_t d = 0;
  for (; d + 16 <= n; d += 16) {
    floats4 s0 = load_floats4(out + d), s1 = load_floats4(out + d + 4);
    floats4 s2 = load_floats4(out + d + 8), s3 = load_floats4(out + d + 12);
    for (int32_t t = 0; t < count; t++) {
      s0 += p[t] * load_floats4(rows[t] + d);
      s1 += p[t] * load_floats4(rows[t] + d + 4);
      s2 += p[t] * load_floats4(rows[t] + d + 8);
      s3 += p[t] * load_floats4(rows[t] + d + 12);
    }
    store_floats4(out + d, s0);
    store_floats4(out + d + 4, s1);
    store_floats4(out + d + 8, s2);
    store_floats4(out + d + 12, s3);
  }
  if (d < n) {
    floats4 s0 = load_floats4(out + d), s1 = load_floats4(out + d + 4);
    for (int32_t t = 0; t < count; t++) {
      s0 += p[t] * load_floats4(rows[t] + d);
      s1 += p[t] * load_floats4(rows[t] + d + 4);
    }
    store_floats4(out + d, s0);
    store_floats4(out + d + 4, s1);
  }
}

static void scale_row(float *row, float factor, int32_t n) {
  for (int32_t d = 0; d < n; d += CGR__VECTOR_ELEMENTS)
    for (int32_t e = 0; e < CGR__VECTOR_ELEMENTS; e++)
      row[d + e] *= factor;
}

/* The element that a line of the tile has in q, out or lse. */
static void locate_row(const tile *work, int32_t r, int64_t *token, int64_t *head) {
  *token = work->start + work->query_begin + r / work->heads;
  *head = work->head_begin + r % work->heads;
}

/* Tokens of the sequence that line r sees. */
static cgr__plan_range row_range(const tile *work, int32_t r) {
  int32_t query = work->query_begin + r / work->heads;
  return cgr__plan_kv_tokens(&work->args->plan_class, work->query_len, work->seq_len, query, query);
}

/* Whether each token of K has a factor of its own. */
static bool has_token_factors(const cgr__attention_args *args) {
  return cgr__is_quantised(args->k_cache.dtype) && cgr__scales_are_written(&args->k_cache);
}

/* What the codes of the KV head are multiplied by. */
static float factor_of(const cgr_kv_view *cache, int32_t kv_head) {
  return cgr__is_quantised(cache->dtype) && cache->scale ? *cgr__scale_at(cache, 0, 0, kv_head, 0) : 1.0f;
}

static tile open_tile(const cgr__attention_args *args, const cgr__plan_item *item) {
  cgr__head_block block = cgr__attention_head_block(args, item->head_block);
  const cgr__plan_class *c = &args->plan_class;
  tile work;
  work.args = args;
  work.row_of_table = args->request_rows[item->request];
  work.pages = c->sees == CGR__SEES_STEP ? NULL : args->page_table + work.row_of_table * args->group.page_table_stride;
  work.start = args->query_start_loc[item->request];
  work.query_len = args->query_start_loc[item->request + 1] - work.start;
  work.seq_len = cgr__plan_seen_len(c, work.query_len, args->seq_lens[item->request]);
  work.query_begin = item->query_begin;
  work.tokens = item->num_queries;
  work.kv = cgr__plan_kv_tokens(c, work.query_len, work.seq_len, item->query_begin, item->query_begin + item->num_queries - 1);
  work.kv_head = block.kv_head;
  work.head_begin = block.head;
  work.heads = block.heads;
  work.lines = work.tokens * work.heads;
  work.head_dim = args->head_dim;
  work.head_dim_v = args->head_dim_v;
  work.scale = args->scale * (has_token_factors(args) ? 1.0f : factor_of(&args->k_cache, work.kv_head));
  return work;
}

static void load_queries(const tile *work, float (*q)[MAX_HEAD_DIM]) {
  const cgr_view *view = &work->args->q;
  for (int32_t r = 0; r < work->lines; r++) {
    int64_t token, head;
    locate_row(work, r, &token, &head);
    int64_t element = token * view->stride_token + head * view->stride_head;
    const unsigned char *from = (const unsigned char *)view->data + element * cgr__element_size(view->dtype);
    cgr__row_to_float(q[r], from, view->dtype, work->head_dim);
  }
}

/* Page `index` of the row; one that is outside the pool, or that may not be read, is reported and read as the read-trash page. */
static int64_t page_of(const tile *work, int32_t index) {
  int32_t page = work->pages[index];
  if (page >= 0 && page < work->args->group.num_pages && page != work->args->group.write_trash_page)
    return page;
  cgr__host_claim_error(work->args->error, CGR_GUARD_PAGE, work->row_of_table, index, page);
  return work->args->group.read_trash_page;
}

/* The element at which token `position` of the sequence has its K or V. */
static const unsigned char *element_at(const tile *work, const cgr_kv_view *cache, const cgr_view *step, int64_t page,
                                       int32_t position) {
  int64_t size = cgr__element_size(cache->dtype);
  if (work->args->plan_class.sees == CGR__SEES_STEP)
    return (const unsigned char *)step->data +
           ((work->start + position) * step->stride_token + work->kv_head * step->stride_head) * size;
  int32_t offset = position % work->args->group.page_size;
  return (const unsigned char *)cache->base +
         (page * cache->stride_page + offset * cache->stride_token + work->kv_head * cache->stride_head) * size;
}

/* K or V of one token to fp32. */
static void load_row(float *to, const unsigned char *from, int32_t dtype, int32_t n) {
  for (int32_t d = 0; cgr__is_quantised(dtype) && d < n; d++)
    to[d] = cgr__code_value(from[d], dtype);
  if (!cgr__is_quantised(dtype))
    cgr__row_to_float(to, from, dtype, n);
}

/* Points scratch->rows at tokens `range` of K or V, the first of which is `begin`. */
static void load_kv(const tile *work, const cgr_kv_view *cache, const cgr_view *step, int32_t head_dim, int32_t begin,
                    cgr__plan_range range, kv_scratch *scratch) {
  int32_t page_size = work->args->group.page_size;
  int64_t page = 0;
  for (int32_t position = range.begin; position < range.end; position++) {
    int32_t t = position - begin;
    bool is_first = position == range.begin || position % page_size == 0;
    if (is_first && work->args->plan_class.sees != CGR__SEES_STEP)
      page = page_of(work, position / page_size);
    const unsigned char *from = element_at(work, cache, step, page, position);
    if (cache->dtype == CGR_DTYPE_FP32) {
      scratch->rows[t] = (const float *)(const void *)from;
    } else {
      load_row(scratch->values[t], from, cache->dtype, head_dim);
      scratch->rows[t] = scratch->values[t];
    }
  }
}

/* The factors of K's tokens `range`. */
static void load_factors(const tile *work, int32_t begin, cgr__plan_range range, kv_scratch *scratch) {
  const int32_t page_size = work->args->group.page_size;
  for (int32_t position = range.begin; position < range.end; position++)
    scratch->factors[position - begin] =
        *cgr__scale_at(&work->args->k_cache, page_of(work, position / page_size), position % page_size, work->kv_head, 0);
}

/* The score that q.k of line r and token `position` becomes, in units of log2(e). */
static float score_of(const tile *work, int32_t r, int32_t position, float product) {
  const cgr__attention_args *a = work->args;
  if (a->softcap == 0.0f && !a->alibi_slopes)
    return product * (work->scale * LOG2E);
  float score = product * work->scale;
  if (a->softcap != 0.0f)
    score = a->softcap * tanhf(score / a->softcap);
  if (a->alibi_slopes) {
    int32_t query = work->seq_len - work->query_len + work->query_begin + r / work->heads;
    float distance = (float)(position < query ? query - position : position - query);
    score -= a->alibi_slopes[work->head_begin + r % work->heads] * (a->alibi_sqrt ? sqrtf(distance) : distance);
  }
  return score * LOG2E;
}

/* What P is rounded to before it meets V: V's dtype, as a tensor core takes both; for codes of 8 bits fp16, which holds them all.
 */
static int32_t weight_dtype(const cgr__attention_args *args) {
  return cgr__is_quantised(args->v_cache.dtype) ? CGR_DTYPE_FP16 : args->v_cache.dtype;
}

/* Turns `count` scores into P and folds their maximum and sum into line r; what the line holds so far is rescaled. */
static void update_row(const tile *work, tile_state *state, int32_t r, float *scores, int32_t count) {
  float max = state->max[r];
  for (int32_t t = 0; t < count; t++)
    max = scores[t] > max ? scores[t] : max;
  float base = max == -INFINITY ? 0.0f : max; /* -inf - -inf is NaN */
  float rescale = exp2f(state->max[r] - base), sum = 0.0f;
  for (int32_t t = 0; t < count; t++) {
    scores[t] = exp2f(scores[t] - base);
    sum += scores[t];
  }
  if (rescale != 1.0f)
    scale_row(state->out[r], rescale, work->head_dim_v);
  state->sum[r] = state->sum[r] * rescale + sum;
  state->max[r] = max;
  cgr__round_row(scores, weight_dtype(work->args), count);
}

static cgr__plan_range overlap(cgr__plan_range a, cgr__plan_range b) {
  cgr__plan_range both = { a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end };
  return both;
}

/* One KV tile for all lines. */
static void attend_kv_tile(const tile *work, const float (*q)[MAX_HEAD_DIM], int32_t kv_tile, tile_state *state,
                           kv_scratch *scratch) {
  const cgr__attention_args *args = work->args;
  float scores[TILE_LINES][TILE_KV];
  cgr__plan_range seen[TILE_LINES]; /* of the tile's tokens; empty where masks hide all of them */
  int32_t begin = kv_tile * TILE_KV;
  const cgr__plan_range tokens = { begin, begin + TILE_KV }, needed = overlap(tokens, work->kv);
  const bool by_token = has_token_factors(args);
  load_kv(work, &args->k_cache, &args->k, work->head_dim, begin, needed, scratch);
  if (by_token)
    load_factors(work, begin, needed, scratch);
  for (int32_t r = 0; r < work->lines; r++) {
    seen[r] = overlap(needed, row_range(work, r));
    for (int32_t p = seen[r].begin; p < seen[r].end; p++) {
      const float product = dot(q[r], scratch->rows[p - begin], work->head_dim);
      scores[r][p - begin] = score_of(work, r, p, by_token ? product * scratch->factors[p - begin] : product);
    }
    if (seen[r].begin < seen[r].end)
      update_row(work, state, r, scores[r] + (seen[r].begin - begin), seen[r].end - seen[r].begin);
  }
  load_kv(work, &args->v_cache, &args->v, work->head_dim_v, begin, needed, scratch);
  for (int32_t r = 0; r < work->lines; r++) {
    int32_t t = seen[r].begin - begin, count = seen[r].end - seen[r].begin;
    if (count > 0)
      add_rows(state->out[r], scratch->rows + t, scores[r] + t, count, work->head_dim_v);
  }
}

static void reset_state(const tile *work, tile_state *state) {
  for (int32_t r = 0; r < work->lines; r++) {
    memset(state->out[r], 0, (size_t)work->head_dim_v * sizeof state->out[r][0]);
    state->max[r] = -INFINITY;
    state->sum[r] = 0.0f;
  }
}

/* Multiplies sums of V's codes by their factors: of the channels, or of the KV head. */
static void apply_v_factors(const tile *work, tile_state *state) {
  const cgr_kv_view *v = &work->args->v_cache;
  const bool by_channel = v->scale && v->scale_stride_d != 0;
  const float one = by_channel ? 1.0f : factor_of(v, work->kv_head);
  for (int32_t r = 0; r < work->lines; r++) {
    if (one != 1.0f)
      scale_row(state->out[r], one, work->head_dim_v);
    for (int32_t d = 0; by_channel && d < work->head_dim_v; d++)
      state->out[r][d] *= *cgr__scale_at(v, 0, 0, work->kv_head, d);
  }
}

static void attend_item(const tile *work, const cgr__plan_item *item, tile_state *state) {
  float q[TILE_LINES][MAX_HEAD_DIM];
  kv_scratch scratch;
  load_queries(work, q);
  reset_state(work, state);
  for (int32_t kv = item->kv_begin; kv < item->kv_end; kv++)
    attend_kv_tile(work, (const float(*)[MAX_HEAD_DIM])q, kv, state, &scratch);
  apply_v_factors(work, state);
}

static void write_lse(const cgr__attention_args *args, int64_t token, int64_t head, float value) {
  if (args->lse.data)
    ((float *)args->lse.data)[token * args->lse.stride_token + head * args->lse.stride_head] = value;
}

static void *output_row(const cgr__attention_args *args, int64_t token, int64_t head) {
  int64_t element = token * args->out.stride_token + head * args->out.stride_head;
  return (unsigned char *)args->out.data + element * cgr__element_size(args->out.dtype);
}

/* The sink joins line r: one more score, without a value. */
static void add_sink(const tile *work, tile_state *state, int32_t r, int64_t head) {
  float sink = work->args->sinks[head] * LOG2E;
  float max = state->max[r] > sink ? state->max[r] : sink, rescale = exp2f(state->max[r] - max);
  if (state->sum[r] == 0.0f)
    return;
  if (rescale != 1.0f)
    scale_row(state->out[r], rescale, work->head_dim_v);
  state->sum[r] = state->sum[r] * rescale + exp2f(sink - max);
  state->max[r] = max;
}

static void write_output(const cgr__attention_args *args, void *to, const float *line, int32_t n) {
  const float scale = args->out_scale ? *args->out_scale : 1.0f;
  if (args->out.dtype != CGR_DTYPE_FP8_E4M3) {
    cgr__row_from_float(to, line, args->out.dtype, n);
    return;
  }
  for (int32_t d = 0; d < n; d++)
    ((uint8_t *)to)[d] = cgr__quantise(line[d], scale, CGR_DTYPE_FP8_E4M3);
}

/* Normalises the lines and writes out and lse. */
static void write_lines(const tile *work, tile_state *state) {
  const cgr__attention_args *args = work->args;
  for (int32_t r = 0; r < work->lines; r++) {
    int64_t token, head;
    locate_row(work, r, &token, &head);
    if (args->sinks)
      add_sink(work, state, r, head);
    float sum = state->sum[r];
    scale_row(state->out[r], sum == 0.0f ? 0.0f : 1.0f / sum, work->head_dim_v);
    write_output(args, output_row(args, token, head), state->out[r], work->head_dim_v);
    write_lse(args, token, head, sum == 0.0f ? -INFINITY : (state->max[r] + log2f(sum)) * LN2);
  }
}

/* -------------------------------------------------------------------------------------------------------------- partials */

static void write_partial(const tile *work, const tile_state *state, int32_t partial) {
  const cgr__attention_args *args = work->args;
  int64_t at = cgr__attention_partial_line(args, partial);
  for (int32_t r = 0; r < work->lines; r++) {
    memcpy(args->partial_out + (at + r) * work->head_dim_v, state->out[r], (size_t)work->head_dim_v * sizeof(float));
    args->partial_state[(at + r) * 2] = state->max[r];
    args->partial_state[(at + r) * 2 + 1] = state->sum[r];
  }
}

/* Adds a partial to line r. An empty line takes it over bit for bit, so it does not matter which part folds how far. */
static void fold_line(const tile *work, tile_state *state, int32_t r, float max, float sum, const float *out) {
  float new_max = state->max[r] > max ? state->max[r] : max;
  float base = new_max == -INFINITY ? 0.0f : new_max;
  float mine = exp2f(state->max[r] - base), other = exp2f(max - base);
  if (mine != 1.0f)
    scale_row(state->out[r], mine, work->head_dim_v);
  add_rows(state->out[r], &out, &other, 1, work->head_dim_v);
  state->sum[r] = state->sum[r] * mine + sum * other;
  state->max[r] = new_max;
}

/* Adds the content of a partial to the state. */
static void fold_partial(const tile *work, int32_t partial, tile_state *state) {
  const cgr__attention_args *args = work->args;
  int64_t at = cgr__attention_partial_line(args, partial);
  for (int32_t r = 0; r < work->lines; r++)
    fold_line(work, state, r, args->partial_state[(at + r) * 2], args->partial_state[(at + r) * 2 + 1],
              args->partial_out + (at + r) * work->head_dim_v);
}

/* What a partial holds comes first: the state becomes (partial, state). */
static void fold_before(const tile *work, int32_t partial, tile_state *state) {
  tile_state own = *state;
  reset_state(work, state);
  fold_partial(work, partial, state);
  for (int32_t r = 0; r < work->lines; r++)
    fold_line(work, state, r, own.max[r], own.sum[r], own.out[r]);
}

/* Leaves the partial, and merges if it is the last one of the tile to arrive. */
static void finish_shared(const tile *work, const cgr__plan_item *item, tile_state *state) {
  int32_t *arrived = &work->args->plan_counters[item->first];
  if (++*arrived < item->count)
    return;
  *arrived = 0;
  reset_state(work, state);
  for (int32_t i = 0; i < item->count; i++)
    fold_partial(work, item->first + i, state);
  write_lines(work, state);
}

/* ----------------------------------------------------------------------------------------------------------------- parts */

static void run_item(const cgr__attention_args *args, const cgr__plan_item *item, tile_state *state) {
  tile work = open_tile(args, item);
  attend_item(&work, item, state);
  if (item->fold >= 0)
    fold_before(&work, item->fold, state);
  if (item->partial < 0) {
    write_lines(&work, state);
    return;
  }
  write_partial(&work, state, item->partial);
  if (item->count > 0)
    finish_shared(&work, item, state);
}

static void run_part(const cgr__attention_args *args, const cgr__plan_part *part, int32_t p, int32_t stripe, tile_state *state) {
  const int32_t *decodes = args->plan + cgr__plan_decodes_offset(&args->plan_class) / (int64_t)sizeof(int32_t);
  const cgr__plan_batch batch = { args->query_start_loc, args->seq_lens, decodes };
  cgr__plan_walk walk = cgr__plan_walk_begin(part, &batch);
  cgr__plan_item item;
  while (cgr__plan_walk_next(&walk, &args->plan_class, part, p, &batch, &item)) {
    cgr__plan_item_in_stripe(&args->plan_class, stripe, &item);
    run_item(args, &item, state);
  }
}

/* `num_items`: of all stripes. */
static void run_prefills(const cgr__attention_args *args, int32_t num_items, tile_state *state) {
  const cgr__plan_class *c = &args->plan_class;
  const cgr__plan_entry *entries =
      (const cgr__plan_entry *)(const void *)((const char *)args->plan + cgr__plan_entries_offset(c));
  while (*args->prefill_queue < num_items) {
    int32_t taken = (*args->prefill_queue)++, stripe = taken % c->stripes, i = taken / c->stripes;
    const cgr__plan_entry *entry = &entries[i / c->head_blocks];
    int32_t query_len = args->query_start_loc[entry->request + 1] - args->query_start_loc[entry->request];
    cgr__plan_item item = cgr__plan_prefill_item(c, entry, i % c->head_blocks, query_len);
    cgr__plan_item_in_stripe(c, stripe, &item);
    run_item(args, &item, state);
  }
}

static void clear_token(const cgr__attention_args *args, int64_t token) {
  for (int32_t h = 0; h < args->num_q_heads; h++) {
    memset(output_row(args, token, h), 0, (size_t)(args->head_dim_v * cgr__element_size(args->out.dtype)));
    write_lse(args, token, h, -INFINITY);
  }
}

/* The tokens that no tile covers: the padding, and those of refused requests. */
static void clear_unowned(const cgr__attention_args *args, int32_t num_emptied) {
  for (int32_t t = args->counts[CGR_COUNT_TOKENS]; t < args->num_tokens; t++)
    clear_token(args, t);
  for (int32_t i = 0; i < args->counts[CGR_COUNT_REQUESTS] && num_emptied > 0; i++)
    if (args->seq_lens[i] == 0)
      for (int32_t t = args->query_start_loc[i]; t < args->query_start_loc[i + 1]; t++)
        clear_token(args, t);
}

void cgr__host_attention(const void *pointer) {
  const cgr__attention_args *args = (const cgr__attention_args *)pointer;
  const cgr__plan_header *header = (const cgr__plan_header *)(const void *)args->plan;
  const cgr__plan_part *parts = (const cgr__plan_part *)(header + 1);
  tile_state state;
  const int32_t num_stripes = args->plan_class.stripes;
  for (int32_t cta = 0; cta < header->num_parts * num_stripes; cta++)
    run_part(args, &parts[cta / num_stripes], cta / num_stripes, cta % num_stripes, &state);
  run_prefills(args, header->num_items * num_stripes, &state);
  clear_unowned(args, header->num_emptied);
}

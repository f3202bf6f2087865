#include "examples/llama/factors.h"

#include <math.h>

#include "examples/llama/serve.h"

#define MARGIN 1.5f  /* other text may have larger values than the measured tokens */
#define GUESS 0.125f /* until they are measured: values up to 16 fit */
enum { MOST_TOKENS = 256 };

/* ------------------------------------------------------------------------------------------------------------- memory */

static size_t channels(const llama_config *c) { return (size_t)c->num_kv_heads * (size_t)c->head_dim; }

void llama_factors_lay_out(const llama_config *c, const llama_limits *n, llama_arena *arena, llama_factors *f) {
  f->k = llama_arena_take(arena, (size_t)n->num_pages * (size_t)c->num_kv_heads * (size_t)n->page_size, sizeof(*f->k));
  f->v = llama_arena_take(arena, channels(c), sizeof(*f->v));
  f->maxima = llama_arena_take(arena, channels(c), sizeof(*f->maxima));
}

/* As the append writes those of K, and as cgr_measure has the maxima of V. */
void llama_factors_describe(const llama_config *c, const llama_limits *n, const llama_factors *f, cgr_layer *layer) {
  layer->k.scale = f->k;
  layer->k.scale_stride_token = 1;
  layer->k.scale_stride_head = n->page_size;
  layer->k.scale_stride_page = (int64_t)n->page_size * c->num_kv_heads;
  layer->v.scale = f->v;
  layer->v.scale_stride_d = 1;
  layer->v.scale_stride_head = c->head_dim;
}

/* ------------------------------------------------------------------------------------------------------------ measure */

/* A step of `count` tokens of a request that has pages for them. */
static int run_step(llama_engine *e, int32_t row, int32_t count) {
  int32_t tokens[MOST_TOKENS], pages[MOST_TOKENS];
  const int32_t num_pages = (count + e->limits.page_size - 1) / e->limits.page_size;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  uint32_t state = 12345;
  for (int32_t i = 0; i < count; i++, state = state * 1664525u + 1013904223u)
    tokens[i] = (int32_t)((state >> 8) % (uint32_t)e->weights->config.vocab_size);
  for (int32_t p = 0; p < num_pages; p++)
    pages[p] = p + 2; /* 0 and 1 are cgr's */
  TRY_CGR(cgr_request_set_pages(e->runtime, row, 0, 0, pages, num_pages));
  batch.num_requests = 1;
  batch.rows = &row;
  batch.query_lens = &count;
  batch.tokens = tokens;
  TRY_CGR(cgr_step_prepare_wait(e->runtime, &batch, &step, -1, e->stream));
  TRY_CGR(cgr_step_launch(e->runtime, &step, e->stream));
  return llama_wait(e, step.mark, NULL);
}

/* Before the first capture, so steps are eager, and graphs do not measure. */
static int run_measuring_step(llama_engine *e, const cgr_capture *capture) {
  const llama_limits *n = &e->limits;
  int32_t count = n->max_tokens < n->max_seq_len ? n->max_tokens : n->max_seq_len, row = -1;
  const int64_t room = (int64_t)(n->num_pages - 2) * n->page_size;
  count = count < room ? count : (int32_t)room;
  e->measures_v = true;
  TRY_CGR(cgr_runtime_warmup(e->runtime, capture));
  TRY_CGR(cgr_request_open(e->runtime, 0, &row));
  TRY(run_step(e, row, count < MOST_TOKENS ? count : MOST_TOKENS));
  TRY_CGR(cgr_request_close(e->runtime, row));
  e->measures_v = false;
  return 0;
}

/* Of one layer. `values` is pinned. */
static int set_factors(llama_engine *e, const llama_factors *f, float *values) {
  const size_t count = channels(&e->weights->config), bytes = count * sizeof(*values);
  TRY_CGR(cgr_copy(e->device, values, f->maxima, bytes, e->stream));
  TRY_CGR(cgr_stream_synchronize(e->device, e->stream));
  for (size_t i = 0; i < count; i++)
    values[i] = values[i] > 0.0f && isfinite(values[i]) ? values[i] * MARGIN / 127.0f : GUESS;
  TRY_CGR(cgr_copy(e->device, f->v, values, bytes, e->stream));
  TRY_CGR(cgr_stream_synchronize(e->device, e->stream));
  return 0;
}

static int fill_factors(llama_engine *e, float *values) {
  const size_t count = channels(&e->weights->config);
  for (size_t i = 0; i < count; i++)
    values[i] = GUESS;
  for (int32_t l = 0; l < e->weights->config.num_layers; l++)
    TRY_CGR(cgr_copy(e->device, e->factors[l].v, values, count * sizeof(*values), e->stream));
  TRY_CGR(cgr_stream_synchronize(e->device, e->stream));
  return 0;
}

static int measure_all_layers(llama_engine *e, const cgr_capture *capture, float *values) {
  TRY(fill_factors(e, values));
  TRY(run_measuring_step(e, capture));
  for (int32_t l = 0; l < e->weights->config.num_layers; l++)
    TRY(set_factors(e, &e->factors[l], values));
  return 0;
}

int llama_factors_measure(llama_engine *e, const cgr_capture *capture) {
  void *pinned = NULL;
  TRY_CGR(cgr_memory_alloc_pinned(e->device, channels(&e->weights->config) * sizeof(float), &pinned));
  int result = measure_all_layers(e, capture, pinned);
  cgr_memory_free_pinned(e->device, pinned);
  return result;
}

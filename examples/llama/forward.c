/* One step of a model, written once: cgr calls llama_record for eager steps and, once per key, to capture it. */
#include <cgr/cgr.h>

#include "examples/llama/engine.h"

/* Passes a status on; the only way out of a function here before its end. */
#define PASS(call)                   \
  do {                               \
    cgr_status pass_status = (call); \
    if (pass_status != CGR_OK)       \
      return pass_status;            \
  } while (0)

typedef struct pass {
  cgr_recorder *recorder;
  const llama_engine *engine;
  const llama_config *config;
  llama_ops *ops;
  int32_t dtype;
  int32_t tokens, requests; /* padded */
  int32_t width;            /* tokens of a request whose logits are computed */
  cudaStream_t stream;
} pass;

static cgr_status begin(cgr_recorder *recorder, const llama_engine *e, pass *p) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  PASS(cgr_record_get_info(recorder, &info));
  *p = (pass){ recorder,
               e,
               &e->weights->config,
               e->ops,
               e->weights->dtype,
               info.num_tokens,
               info.num_requests,
               llama_engine_width(e, &info.key),
               info.stream };
  return CGR_OK;
}

static cgr_status embed(const pass *p, void *out) {
  llama_embed_args args = { out,       p->engine->weights->embedding, p->engine->input_ids,
                            p->tokens, p->config->hidden_size,        p->config->vocab_size,
                            p->dtype };
  return p->ops->embed(p->ops, &args, p->stream);
}

static cgr_status rmsnorm(const pass *p, void *out, const void *in, const void *weight, int32_t rows) {
  llama_rmsnorm_args args = { out, in, weight, rows, p->config->hidden_size, p->dtype, p->config->norm_eps };
  return p->ops->rmsnorm(p->ops, &args, p->stream);
}

/* What x is multiplied by, and what is added to the product: NULL for nothing. */
typedef struct projection {
  llama_matrix matrix;
  const void *weight, *bias;
} projection;

static cgr_status gemm(const pass *p, projection by, void *out, const void *x, int32_t n, int32_t k) {
  llama_gemm_args args = { .out = out, .x = x, .weight = by.weight, .bias = by.bias, .n = n, .k = k, .matrix = by.matrix };
  args.rows = p->tokens;
  args.dtype = args.out_dtype = p->dtype;
  return p->ops->gemm(p->ops, &args, p->stream);
}

/* out += x * weight^T: a projection back into the residual stream. Each rank has some columns of x; their products are added up,
 * and the first rank's has the stream and the bias in it. */
static cgr_status gemm_add(const pass *p, projection by, void *out, const void *x, int32_t k) {
  const llama_engine *e = p->engine;
  const bool first = e->weights->split.rank == 0;
  llama_gemm_args args = { .out = out, .x = x, .weight = by.weight, .k = k, .matrix = by.matrix };
  args.bias = first ? by.bias : NULL;
  args.rows = p->tokens;
  args.n = p->config->hidden_size;
  args.dtype = args.out_dtype = p->dtype;
  args.add = first;
  PASS(p->ops->gemm(p->ops, &args, p->stream));
  const char *what = by.matrix == LLAMA_O ? "attention" : "mlp";
  return e->team ? llama_team_sum(e->team, p->recorder, what, out, (uint64_t)p->tokens * (uint64_t)args.n, p->dtype) : CGR_OK;
}

static cgr_status rope(const pass *p, void *qkv, const llama_layer_weights *w) {
  const llama_config *c = p->config;
  llama_rope_args args = { .qk = qkv, .positions = p->engine->positions, .angles = p->engine->angles, .tokens = p->tokens };
  args.stride_token = (int64_t)(c->num_q_heads + 2 * c->num_kv_heads) * c->head_dim;
  args.q_norm = w->q_norm;
  args.k_norm = w->k_norm;
  args.eps = c->norm_eps;
  args.q_heads = c->num_q_heads;
  args.heads = c->num_q_heads + c->num_kv_heads;
  args.head_dim = c->head_dim;
  args.dtype = p->dtype;
  args.max_positions = p->engine->limits.max_seq_len;
  return p->ops->rope(p->ops, &args, p->stream);
}

static cgr_status silu(const pass *p, void *out, const void *gate_up) {
  llama_silu_args args = { out, gate_up, p->tokens, p->config->intermediate_size, p->dtype, 0 };
  return p->ops->silu(p->ops, &args, p->stream);
}

/* With guesses: whose logits are computed. */
static cgr_status places(const pass *p) {
  const llama_engine *e = p->engine;
  const llama_guessing *g = &e->guessing;
  if (!g->places)
    return CGR_OK;
  llama_places_args args = { g->places, g->place_rows, e->logits_indices, g->num_drafts, e->request_rows, p->requests, p->width };
  return p->ops->places(p->ops, &args, p->stream);
}

static cgr_status gather(const pass *p, void *out, const void *in) {
  const llama_engine *e = p->engine;
  const int32_t *indices = e->guessing.places ? e->guessing.places : e->logits_indices;
  llama_gather_args args = { out, in, indices, p->requests * p->width, p->config->hidden_size, p->tokens, p->dtype };
  return p->ops->gather(p->ops, &args, p->stream);
}

static cgr_status head(const pass *p, float *logits, const void *x) {
  llama_gemm_args args = { .out = logits, .x = x, .weight = p->engine->weights->head, .rows = p->requests * p->width };
  args.n = (int32_t)p->engine->weights->vocab.count;
  args.k = p->config->hidden_size;
  args.dtype = p->dtype;
  args.out_dtype = CGR_DTYPE_FP32;
  args.matrix = LLAMA_HEAD;
  return p->ops->gemm(p->ops, &args, p->stream);
}

/* The best of all ranks: each has sampled from the tokens that it has logits of. */
static cgr_status pick(const pass *p, int32_t *out) {
  const llama_engine *e = p->engine;
  const llama_pick_args args = { out, e->all_best, p->requests * p->width, e->weights->split.ranks };
  if (!e->team)
    return CGR_OK;
  PASS(llama_team_gather(e->team, p->recorder, e->best, e->all_best, (uint64_t)args.rows * sizeof(*e->best)));
  return p->ops->pick(p->ops, &args, p->stream);
}

/* The arguments are copied with the call, so they hold the engine's address. */
typedef struct sample_args {
  const llama_engine *engine;
} sample_args;

static cgr_status verify(const pass *p) {
  const llama_engine *e = p->engine;
  const llama_guessing *g = &e->guessing;
  if (!g->places)
    return CGR_OK;
  llama_verify_args args = { .next_tokens = e->next_tokens, .num_accepted = g->num_accepted, .draft_tokens = g->draft_tokens };
  args.sampled = g->sampled;
  args.indices = g->places;
  args.num_drafts = g->num_drafts;
  args.request_rows = e->request_rows;
  args.input_ids = e->input_ids;
  args.positions = e->positions;
  args.noise = e->noise;
  args.rates = g->rates;
  args.requests = p->requests;
  args.width = p->width;
  args.stride = 1 + e->limits.draft.count;
  args.num_data = e->limits.max_requests + 1;
  args.tokens = p->tokens;
  args.vocab = p->config->vocab_size;
  return p->ops->verify(p->ops, &args, p->stream);
}

/* Of each token whose logits there are; then guesses are accepted or not. */
static cgr_status sample(cgr_recorder *recorder, const void *pointer) {
  const llama_engine *e = ((const sample_args *)pointer)->engine;
  const llama_guessing *g = &e->guessing;
  pass p;
  PASS(begin(recorder, e, &p));
  llama_sample_args args = { g->sampled ? g->sampled : e->next_tokens,
                             e->logits,
                             g->place_rows ? g->place_rows : e->request_rows,
                             e->noise,
                             e->temperatures,
                             e->positions,
                             g->places ? g->places : e->logits_indices,
                             p.requests * p.width,
                             (int32_t)e->weights->vocab.count,
                             e->limits.max_requests + 1,
                             p.tokens,
                             (int32_t)e->weights->vocab.first,
                             0,
                             e->best };
  PASS(p.ops->sample(p.ops, &args, p.stream));
  PASS(pick(&p, args.out));
  return verify(&p);
}

/* V's maxima, while factors are measured. */
static cgr_status measure_values(cgr_recorder *recorder, const llama_engine *e, int32_t layer) {
  cgr_measure measure = CGR_MEASURE_INIT;
  if (!e->measures_v)
    return CGR_OK;
  measure.view = e->attention[layer].v;
  measure.num_heads = e->weights->config.num_kv_heads;
  measure.head_dim = e->weights->config.head_dim;
  measure.maxima = e->factors[layer].maxima;
  return cgr_record_measure(recorder, &measure);
}

cgr_status llama_record(cgr_recorder *recorder, void *engine) {
  llama_engine *e = engine;
  pass p;
  PASS(begin(recorder, e, &p));
  const llama_config *c = p.config;
  const int32_t hidden = c->hidden_size, inner = c->intermediate_size;
  const int32_t q_size = c->num_q_heads * c->head_dim, kv_size = c->num_kv_heads * c->head_dim;
  e->records++;

  PASS(embed(&p, e->x));
  for (int32_t l = 0; l < c->num_layers; l++) {
    const llama_layer_weights *w = &e->weights->layers[l];
    PASS(rmsnorm(&p, e->normed, e->x, w->attention_norm, p.tokens));
    PASS(gemm(&p, (projection){ LLAMA_QKV, w->qkv, w->qkv_bias }, e->qkv, e->normed, q_size + 2 * kv_size, hidden));
    PASS(rope(&p, e->qkv, w));
    PASS(measure_values(recorder, e, l));
    PASS(cgr_record_attention(recorder, &e->attention[l]));
    PASS(gemm_add(&p, (projection){ LLAMA_O, w->o, w->o_bias }, e->x, e->attended, q_size));

    PASS(rmsnorm(&p, e->normed, e->x, w->mlp_norm, p.tokens));
    PASS(gemm(&p, (projection){ LLAMA_GATE_UP, w->gate_up, NULL }, e->gate_up, e->normed, 2 * inner, hidden));
    PASS(silu(&p, e->inner, e->gate_up));
    PASS(gemm_add(&p, (projection){ LLAMA_DOWN, w->down, NULL }, e->x, e->inner, inner));
  }
  PASS(places(&p));
  PASS(gather(&p, e->last, e->x));
  PASS(rmsnorm(&p, e->last, e->last, e->weights->norm, p.requests * p.width));
  PASS(head(&p, e->logits, e->last));
  const sample_args args = { e };
  return cgr_record_call(recorder, sample, &args, sizeof(args));
}

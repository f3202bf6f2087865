#include "examples/llama/engine.h"

#include "examples/llama/factors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int llama_cgr(cgr_status status, const char *call) {
  if (status == CGR_OK)
    return 0;
  const char *why = cgr_last_message();
  size_t length = strcspn(call, "(");
  if (strncmp(why, call, length) == 0) /* most messages begin with the call */
    return llama_fail("%s (%s)", why, cgr_status_name(status));
  return llama_fail("%.*s: %s (%s)", (int)length, call, why, cgr_status_name(status));
}

/* ------------------------------------------------------------------------------------------------------------- memory */

static void lay_out_guessing(llama_engine *e, llama_arena *arena, size_t places) {
  e->guessing.places = llama_arena_take(arena, places, sizeof(int32_t));
  e->guessing.place_rows = llama_arena_take(arena, places, sizeof(int32_t));
  e->guessing.sampled = llama_arena_take(arena, places, sizeof(int32_t));
}

static void lay_out_activations(llama_engine *e) {
  const llama_config *c = &e->weights->config;
  const llama_limits *n = &e->limits;
  llama_arena *arena = &e->activations;
  size_t element = cgr_dtype_size((cgr_dtype)e->weights->dtype);
  size_t width = 1 + (size_t)n->draft.count, tokens = (size_t)llama_gemm_rows(n->max_tokens);
  size_t requests = (size_t)llama_gemm_rows(n->max_requests * (int32_t)width); /* rows of logits */
  size_t hidden = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size, head_dim = (size_t)c->head_dim;
  size_t q_heads = (size_t)c->num_q_heads, kv_heads = (size_t)c->num_kv_heads;
  arena->used = 0;
  e->x = llama_arena_take(arena, tokens * hidden, element);
  e->normed = llama_arena_take(arena, tokens * hidden, element);
  e->qkv = llama_arena_take(arena, tokens * (q_heads + 2 * kv_heads) * head_dim, element);
  e->attended = llama_arena_take(arena, tokens * q_heads * head_dim, element);
  e->gate_up = llama_arena_take(arena, tokens * 2 * inner, element);
  e->inner = llama_arena_take(arena, tokens * inner, element);
  e->last = llama_arena_take(arena, requests * hidden, element);
  e->logits = llama_arena_take(arena, requests * (size_t)e->weights->vocab.count, sizeof(float));
  if (e->weights->split.ranks > 1) {
    e->best = llama_arena_take(arena, (size_t)n->max_requests * width, sizeof(*e->best));
    e->all_best = llama_arena_take(arena, (size_t)n->max_requests * width * (size_t)e->weights->split.ranks, sizeof(*e->best));
  }
  e->angles = llama_arena_take(arena, (size_t)n->max_seq_len * head_dim, sizeof(float));
  if (width > 1)
    lay_out_guessing(e, arena, (size_t)n->max_requests * width);
}

size_t llama_engine_activations(const llama_limits *limits, const llama_weights *weights) {
  llama_engine e = { .limits = *limits, .weights = weights };
  lay_out_activations(&e);
  return e.activations.used;
}

cgr_dtype llama_cache_dtype(const llama_limits *limits, const llama_weights *weights) {
  return (cgr_dtype)(limits->kv_dtype == CGR_DTYPE_NONE ? weights->dtype : limits->kv_dtype);
}

/* Elements of K (or of V) of one layer. */
static size_t cache_elements(const llama_engine *e) {
  const llama_config *c = &e->weights->config;
  return (size_t)e->limits.num_pages * (size_t)e->limits.page_size * (size_t)c->num_kv_heads * (size_t)c->head_dim;
}

static void lay_out_caches(llama_engine *e) {
  size_t element = cgr_dtype_size(llama_cache_dtype(&e->limits, e->weights));
  e->cache.used = 0;
  for (int32_t l = 0; l < e->weights->config.num_layers; l++) {
    e->caches[l] = llama_arena_take(&e->cache, 2 * cache_elements(e), element);
    if (e->factors)
      llama_factors_lay_out(&e->weights->config, &e->limits, &e->cache, &e->factors[l]);
  }
}

/* Zeroed memory: page 0 must be finite, and so should be whatever no step has written yet. */
static int allocate(llama_engine *e, llama_arena *arena) {
  void *memory = NULL;
  TRY_CGR(cgr_memory_alloc(e->device, arena->used, &memory));
  arena->base = memory;
  TRY_CGR(cgr_fill(e->device, memory, 0, arena->used, e->stream));
  return 0;
}

static int send_angles(llama_engine *e) {
  const llama_config *c = &e->weights->config;
  size_t half = (size_t)c->head_dim / 2, bytes = (size_t)e->limits.max_seq_len * 2 * half * sizeof(float);
  float frequencies[128]; /* head_dim is at most 256 */
  void *pinned = NULL;
  llama_rope_frequencies(c, frequencies);
  TRY_CGR(cgr_memory_alloc_pinned(e->device, bytes, &pinned));
  float *angles = pinned;
  for (size_t p = 0; p < (size_t)e->limits.max_seq_len; p++)
    for (size_t i = 0; i < half; i++) {
      float angle = (float)p * frequencies[i];
      angles[2 * half * p + i] = (float)cos(angle);
      angles[2 * half * p + half + i] = (float)sin(angle);
    }
  cgr_status status = cgr_copy(e->device, e->angles, pinned, bytes, e->stream);
  if (status == CGR_OK)
    status = cgr_stream_synchronize(e->device, e->stream);
  cgr_memory_free_pinned(e->device, pinned);
  return llama_cgr(status, "cgr_copy");
}

static int make_memory(llama_engine *e) {
  int32_t layers = e->weights->config.num_layers;
  e->caches = calloc((size_t)layers, sizeof(*e->caches));
  e->attention = calloc((size_t)layers, sizeof(*e->attention));
  if (e->limits.kv_dtype == CGR_DTYPE_I8)
    e->factors = calloc((size_t)layers, sizeof(*e->factors));
  if (!e->caches || !e->attention || (e->limits.kv_dtype == CGR_DTYPE_I8 && !e->factors))
    return llama_fail("no memory");
  lay_out_activations(e);
  TRY(allocate(e, &e->activations));
  lay_out_activations(e);
  lay_out_caches(e);
  TRY(allocate(e, &e->cache));
  lay_out_caches(e);
  return send_angles(e);
}

/* ------------------------------------------------------------------------------------------------------------ runtime */

static int describe_layer(const llama_engine *e, int32_t l, cgr_layer *layer) {
  const llama_config *c = &e->weights->config;
  const llama_limits *n = &e->limits;
  cgr_dtype dtype = llama_cache_dtype(n, e->weights);
  char *k = e->caches[l], *v = k + cache_elements(e) * cgr_dtype_size(dtype);
  *layer = (cgr_layer)CGR_LAYER_INIT;
  layer->num_q_heads = c->num_q_heads;
  layer->num_kv_heads = c->num_kv_heads;
  layer->head_dim = c->head_dim;
  layer->dtype = e->weights->dtype;
  /* A window that no sequence outgrows hides nothing: the layer is then planned and computed as if it had none. */
  if (c->windowed[l] && c->window < n->max_seq_len)
    layer->window_left = c->window;
  TRY_CGR(cgr_kv_view_make(n->layout, k, dtype, n->page_size, c->num_kv_heads, c->head_dim, &layer->k));
  TRY_CGR(cgr_kv_view_make(n->layout, v, dtype, n->page_size, c->num_kv_heads, c->head_dim, &layer->v));
  if (e->factors)
    llama_factors_describe(c, n, &e->factors[l], layer);
  return 0;
}

static int describe_attention(llama_engine *e, int32_t l) {
  const llama_config *c = &e->weights->config;
  cgr_dtype dtype = (cgr_dtype)e->weights->dtype;
  size_t head = (size_t)c->head_dim * cgr_dtype_size(dtype);
  cgr_attention *a = &e->attention[l];
  *a = (cgr_attention)CGR_ATTENTION_INIT;
  a->layer = l;
  /* q, k and v are heads of one tensor: the same strides, different base addresses. */
  TRY_CGR(cgr_view_make(e->qkv, dtype, c->num_q_heads + 2 * c->num_kv_heads, c->head_dim, &a->q));
  a->k = a->v = a->q;
  a->k.data = (char *)e->qkv + (size_t)c->num_q_heads * head;
  a->v.data = (char *)a->k.data + (size_t)c->num_kv_heads * head;
  TRY_CGR(cgr_view_make(e->attended, dtype, c->num_q_heads, c->head_dim, &a->out));
  return 0;
}

static int find_buffer(llama_engine *e, cgr_buffer which, int32_t index, void **data) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  TRY_CGR(cgr_buffer_get(e->runtime, NULL, which, index, &view));
  *data = view.data;
  return 0;
}

static int register_regions(llama_engine *e) {
  int32_t region;
  TRY_CGR(cgr_region_register(e->runtime, e->weights->arena.base, e->weights->arena.used, &region));
  TRY_CGR(cgr_region_register(e->runtime, e->activations.base, e->activations.used, &region));
  if (e->ops->workspace)
    TRY_CGR(cgr_region_register(e->runtime, e->ops->workspace, e->ops->workspace_bytes, &region));
  return 0;
}

static int find_guessing(llama_engine *e) {
  void *drafts, *accepted, *tokens, *rates = NULL;
  TRY(find_buffer(e, CGR_BUFFER_NUM_DRAFTS, 0, &drafts));
  TRY(find_buffer(e, CGR_BUFFER_NUM_ACCEPTED, 0, &accepted));
  TRY(find_buffer(e, CGR_BUFFER_DRAFT_TOKENS, 0, &tokens));
  if (e->limits.draft.kind == LLAMA_DRAFT_COIN)
    TRY(find_buffer(e, CGR_BUFFER_DECLARED, LLAMA_DATA_RATE, &rates));
  e->guessing.num_drafts = drafts;
  e->guessing.num_accepted = accepted;
  e->guessing.draft_tokens = tokens;
  e->guessing.rates = rates;
  return 0;
}

static int find_buffers(llama_engine *e) {
  void *input_ids, *positions, *indices, *rows, *next, *noise, *temperatures;
  TRY(find_buffer(e, CGR_BUFFER_INPUT_IDS, 0, &input_ids));
  TRY(find_buffer(e, CGR_BUFFER_POSITIONS, 0, &positions));
  TRY(find_buffer(e, CGR_BUFFER_LOGITS_INDICES, 0, &indices));
  TRY(find_buffer(e, CGR_BUFFER_REQUEST_ROWS, 0, &rows));
  TRY(find_buffer(e, CGR_BUFFER_NEXT_TOKENS, 0, &next));
  TRY(find_buffer(e, CGR_BUFFER_DECLARED, LLAMA_DATA_NOISE, &noise));
  TRY(find_buffer(e, CGR_BUFFER_DECLARED, LLAMA_DATA_TEMPERATURE, &temperatures));
  e->input_ids = input_ids;
  e->positions = positions;
  e->logits_indices = indices;
  e->request_rows = rows;
  e->next_tokens = next;
  e->noise = noise;
  e->temperatures = temperatures;
  return e->limits.draft.count ? find_guessing(e) : 0;
}

/* Padded requests keep the padding: a temperature of 0, so no noise is computed for them. */
static void declare_data(cgr_buffer_decl *data) {
  for (int i = 0; i <= LLAMA_DATA_RATE; i++) {
    data[i] = (cgr_buffer_decl)CGR_BUFFER_DECL_INIT;
    data[i].dimension = CGR_DIMENSION_ROWS;
    data[i].source = CGR_SOURCE_STAGED;
  }
  data[LLAMA_DATA_NOISE].name = "noise";
  data[LLAMA_DATA_NOISE].dtype = CGR_DTYPE_I32;
  data[LLAMA_DATA_NOISE].width = 2;
  data[LLAMA_DATA_TEMPERATURE].name = "temperature";
  data[LLAMA_DATA_TEMPERATURE].dtype = CGR_DTYPE_FP32;
  data[LLAMA_DATA_RATE].name = "rate";
  data[LLAMA_DATA_RATE].dtype = CGR_DTYPE_FP32;
}

static int create_runtime(llama_engine *e, const cgr_layer *layers) {
  const llama_limits *n = &e->limits;
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = n->page_size;
  group.num_pages = n->num_pages;
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = e->device;
  config.groups = &group;
  config.num_groups = 1;
  cgr_buffer_decl data[LLAMA_DATA_RATE + 1];
  declare_data(data);
  config.buffers = data;
  config.num_buffers = LLAMA_NUM_DATA + (n->draft.kind == LLAMA_DRAFT_COIN);
  config.num_draft_tokens = n->draft.count;
  config.batch_invariant = n->batch_invariant;
  config.layers = layers;
  config.num_layers = e->weights->config.num_layers;
  config.max_requests = n->max_requests;
  config.max_tokens = n->max_tokens;
  config.max_seq_len = n->max_seq_len;
  config.max_changes = n->max_changes;
  config.graph_mode = n->graph_mode;
  config.timing = n->timing;
  TRY_CGR(cgr_runtime_create(&config, &e->runtime));
  return 0;
}

static int make_runtime(llama_engine *e) {
  int32_t num_layers = e->weights->config.num_layers;
  int result = 0;
  cgr_layer *layers = calloc((size_t)num_layers, sizeof(*layers));
  if (!layers)
    return llama_fail("no memory");
  for (int32_t l = 0; l < num_layers && result == 0; l++)
    result = describe_layer(e, l, &layers[l]) != 0 || describe_attention(e, l) != 0 ? -1 : 0;
  if (result == 0)
    result = create_runtime(e, layers);
  free(layers);
  TRY(result);
  TRY(register_regions(e));
  return find_buffers(e);
}

int llama_engine_create(const llama_limits *limits, const llama_weights *weights, llama_ops *ops, cudaStream_t stream,
                        llama_engine **engine) {
  *engine = NULL;
  llama_engine *e = calloc(1, sizeof(*e));
  if (!e)
    return llama_fail("no memory");
  e->limits = *limits;
  e->weights = weights;
  e->ops = ops;
  e->device = ops->device;
  e->stream = stream;
  if (make_memory(e) != 0 || make_runtime(e) != 0 || llama_team_open(ops->ranks, e->runtime, &e->team) != 0) {
    llama_engine_destroy(e);
    return -1;
  }
  *engine = e;
  return 0;
}

int32_t llama_engine_width(const llama_engine *e, const cgr_key *key) {
  const int32_t most = 1 + e->limits.draft.count;
  return key->query_len == 0 || key->query_len > most ? most : key->query_len;
}

/* The warm-up lets cuBLASLt choose and load its kernels, which a capture would have to do at a worse moment. */
int llama_engine_capture(llama_engine *e) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = llama_record;
  capture.engine = e;
  if (e->factors)
    TRY(llama_factors_measure(e, &capture));
  if (e->team)
    return llama_team_capture(e->team, &capture);
  TRY_CGR(cgr_runtime_warmup(e->runtime, &capture));
  TRY_CGR(cgr_runtime_capture(e->runtime, &capture));
  return 0;
}

void llama_engine_destroy(llama_engine *e) {
  if (!e)
    return;
  llama_team_leave(e->team);
  cgr_runtime_destroy(e->runtime);
  llama_team_close(e->team);
  if (e->stream)
    cgr_stream_synchronize(e->device, e->stream);
  cgr_memory_free(e->device, e->activations.base);
  cgr_memory_free(e->device, e->cache.base);
  free(e->caches);
  free(e->factors);
  free(e->attention);
  free(e);
}

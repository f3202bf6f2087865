/* Weights on the device, in the layouts that the step wants: q, k and v are one matrix, gate and up another. */
#include <cgr/names.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/engine.h"
#include "examples/llama/room.h"

#define CHUNK ((uint64_t)1 << 20) /* elements that travel at once */

void *llama_arena_take(llama_arena *arena, size_t count, size_t element) {
  size_t offset = (arena->used + 255) & ~(size_t)255;
  arena->used = offset + count * element;
  return arena->base ? arena->base + offset : NULL;
}

/* A tied model has no head of its own. */
static void lay_out(llama_weights *w, bool tied) {
  const llama_config *c = &w->config;
  size_t element = cgr_dtype_size((cgr_dtype)w->dtype);
  size_t hidden = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size, vocab = (size_t)c->vocab_size;
  size_t q_size = (size_t)c->num_q_heads * (size_t)c->head_dim, kv_size = (size_t)c->num_kv_heads * (size_t)c->head_dim;
  w->arena.used = 0;
  w->embedding = llama_arena_take(&w->arena, vocab * hidden, element);
  w->head = tied ? w->embedding : llama_arena_take(&w->arena, vocab * hidden, element);
  w->norm = llama_arena_take(&w->arena, hidden, element);
  for (int32_t l = 0; l < c->num_layers; l++) {
    llama_layer_weights *layer = &w->layers[l];
    layer->attention_norm = llama_arena_take(&w->arena, hidden, element);
    layer->qkv = llama_arena_take(&w->arena, (q_size + 2 * kv_size) * hidden, element);
    layer->qkv_bias = c->qkv_bias ? llama_arena_take(&w->arena, q_size + 2 * kv_size, element) : NULL;
    layer->q_norm = c->qk_norm ? llama_arena_take(&w->arena, (size_t)c->head_dim, element) : NULL;
    layer->k_norm = c->qk_norm ? llama_arena_take(&w->arena, (size_t)c->head_dim, element) : NULL;
    layer->o = llama_arena_take(&w->arena, hidden * q_size, element);
    layer->o_bias = c->o_bias ? llama_arena_take(&w->arena, hidden, element) : NULL;
    layer->mlp_norm = llama_arena_take(&w->arena, hidden, element);
    layer->gate_up = llama_arena_take(&w->arena, 2 * inner * hidden, element);
    layer->down = llama_arena_take(&w->arena, hidden * inner, element);
  }
}

typedef struct upload {
  cgr_device *device;
  cudaStream_t stream;
  void *staging; /* pinned, CHUNK elements */
  int32_t dtype;
} upload;

/* Copies a tensor to `to` and moves `to` past it. */
static int send(upload *u, const llama_tensor *tensor, char **to) {
  size_t element = cgr_dtype_size((cgr_dtype)u->dtype);
  for (uint64_t first = 0; first < tensor->count; first += CHUNK) {
    uint64_t count = tensor->count - first < CHUNK ? tensor->count - first : CHUNK;
    llama_tensor_read(tensor, first, count, u->dtype, u->staging);
    TRY_CGR(cgr_copy(u->device, *to, u->staging, count * element, u->stream));
    TRY_CGR(cgr_stream_synchronize(u->device, u->stream));
    *to += count * element;
  }
  return 0;
}

static int send_one(upload *u, const llama_tensor *tensor, void *to) {
  char *place = to;
  return send(u, tensor, &place);
}

/* Biases and norms of the attention, where the model has them. */
static int send_extras(upload *u, const llama_model_layer *from, const llama_layer_weights *to) {
  char *qkv_bias = to->qkv_bias;
  if (to->qkv_bias) {
    TRY(send(u, from->q_bias, &qkv_bias));
    TRY(send(u, from->k_bias, &qkv_bias));
    TRY(send(u, from->v_bias, &qkv_bias));
  }
  if (to->o_bias)
    TRY(send_one(u, from->o_bias, to->o_bias));
  if (!to->q_norm)
    return 0;
  TRY(send_one(u, from->q_norm, to->q_norm));
  return send_one(u, from->k_norm, to->k_norm);
}

static int send_all(upload *u, const llama_model *model, const llama_weights *w) {
  TRY(send_one(u, model->embedding, w->embedding));
  if (w->head != w->embedding)
    TRY(send_one(u, model->head, w->head));
  TRY(send_one(u, model->norm, w->norm));
  for (int32_t l = 0; l < w->config.num_layers; l++) {
    const llama_model_layer *from = &model->layers[l];
    const llama_layer_weights *to = &w->layers[l];
    char *qkv = to->qkv, *gate_up = to->gate_up;
    TRY(send_one(u, from->attention_norm, to->attention_norm));
    TRY(send(u, from->q, &qkv));
    TRY(send(u, from->k, &qkv));
    TRY(send(u, from->v, &qkv));
    TRY(send_one(u, from->o, to->o));
    TRY(send_one(u, from->mlp_norm, to->mlp_norm));
    TRY(send(u, from->gate, &gate_up));
    TRY(send(u, from->up, &gate_up));
    TRY(send_one(u, from->down, to->down));
    TRY(send_extras(u, from, to));
  }
  return 0;
}

/* Device memory for all of them, without values. */
static int allocate(llama_weights *w, bool tied, cgr_device *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  char what[64];
  void *memory = NULL;
  w->layers = calloc((size_t)w->config.num_layers, sizeof(*w->layers));
  if (!w->layers)
    return llama_fail("no memory");
  lay_out(w, tied);
  TRY_CGR(cgr_device_get_info(device, &info));
  snprintf(what, sizeof(what), "the weights in %s take", cgr_dtype_name((cgr_dtype)w->dtype));
  TRY(llama_room_check(what, w->arena.used, llama_room(&info)));
  TRY_CGR(cgr_memory_alloc(device, w->arena.used, &memory));
  w->arena.base = memory;
  lay_out(w, tied);
  return 0;
}

int llama_weights_allocate(const llama_config *config, bool tied, cgr_device *device, int32_t dtype, llama_weights **weights) {
  *weights = NULL;
  llama_weights *w = calloc(1, sizeof(*w));
  if (!w)
    return llama_fail("no memory");
  w->config = *config;
  w->dtype = dtype;
  if (allocate(w, tied, device) != 0) {
    llama_weights_free(device, w);
    return -1;
  }
  *weights = w;
  return 0;
}

static int load(const llama_model *model, upload *u, const llama_weights *w) {
  TRY_CGR(cgr_stream_create(u->device, &u->stream));
  TRY_CGR(cgr_memory_alloc_pinned(u->device, CHUNK * cgr_dtype_size((cgr_dtype)u->dtype), &u->staging));
  return send_all(u, model, w);
}

int llama_weights_load(const llama_model *model, cgr_device *device, int32_t dtype, llama_weights **weights) {
  *weights = NULL;
  upload u = { device, NULL, NULL, dtype };
  llama_weights *w;
  TRY(llama_weights_allocate(&model->config, model->head == model->embedding, device, dtype, &w));
  int result = load(model, &u, w);
  cgr_memory_free_pinned(device, u.staging);
  if (u.stream)
    cgr_stream_destroy(device, u.stream);
  if (result != 0) {
    llama_weights_free(device, w);
    return -1;
  }
  *weights = w;
  return 0;
}

void llama_weights_free(cgr_device *device, llama_weights *w) {
  if (!w)
    return;
  cgr_memory_free(device, w->arena.base);
  free(w->layers);
  free(w);
}

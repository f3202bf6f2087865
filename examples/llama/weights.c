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
static void lay_out(llama_weights *w) {
  const llama_config *c = &w->config;
  size_t element = cgr_dtype_size((cgr_dtype)w->dtype);
  size_t hidden = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size, vocab = (size_t)c->vocab_size;
  size_t q_size = (size_t)c->num_q_heads * (size_t)c->head_dim, kv_size = (size_t)c->num_kv_heads * (size_t)c->head_dim;
  w->arena.used = 0;
  w->embedding = llama_arena_take(&w->arena, vocab * hidden, element);
  if (!w->tied)
    w->head = llama_arena_take(&w->arena, (size_t)w->vocab.count * hidden, element);
  else if (w->embedding)
    w->head = (char *)w->embedding + (size_t)w->vocab.first * hidden * element;
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

/* Copies elements [first, first + count) of a tensor to `to`, and moves `to` past them. */
static int send(upload *u, const llama_tensor *tensor, uint64_t first, uint64_t count, char **to) {
  size_t element = cgr_dtype_size((cgr_dtype)u->dtype);
  for (uint64_t done = 0; done < count;) {
    uint64_t some = count - done < CHUNK ? count - done : CHUNK;
    llama_tensor_read(tensor, first + done, some, u->dtype, u->staging);
    TRY_CGR(cgr_copy(u->device, *to, u->staging, some * element, u->stream));
    TRY_CGR(cgr_stream_synchronize(u->device, u->stream));
    *to += some * element;
    done += some;
  }
  return 0;
}

/* All of a tensor. */
static int send_one(upload *u, const llama_tensor *tensor, void *to) {
  char *place = to;
  return send(u, tensor, 0, tensor->count, &place);
}

/* Some rows of a matrix, or elements of a vector. `to` moves past them. */
static int send_rows(upload *u, const llama_tensor *tensor, llama_span rows, char **to) {
  uint64_t columns = tensor->count / (uint64_t)tensor->shape[0];
  return send(u, tensor, (uint64_t)rows.first * columns, (uint64_t)rows.count * columns, to);
}

/* Some columns of a matrix, of which a row fits the staging memory. */
static int send_columns(upload *u, const llama_tensor *tensor, llama_span columns, char *to) {
  size_t element = cgr_dtype_size((cgr_dtype)u->dtype), row = (size_t)columns.count * element;
  uint64_t rows = (uint64_t)tensor->shape[0], all = (uint64_t)tensor->shape[1], most = CHUNK / (uint64_t)columns.count;
  if (columns.count == (int64_t)all)
    return send_one(u, tensor, to);
  for (uint64_t first = 0; first < rows; first += most) {
    uint64_t count = rows - first < most ? rows - first : most;
    for (uint64_t i = 0; i < count; i++)
      llama_tensor_read(tensor, (first + i) * all + (uint64_t)columns.first, (uint64_t)columns.count, u->dtype,
                        (char *)u->staging + i * row);
    TRY_CGR(cgr_copy(u->device, to + first * row, u->staging, count * row, u->stream));
    TRY_CGR(cgr_stream_synchronize(u->device, u->stream));
  }
  return 0;
}

/* Of the model's heads and columns, those of the rank. */
typedef struct share {
  llama_span q, kv, inner; /* rows of the matrices */
} share;

static share share_of(const llama_config *c, llama_split split) {
  const llama_span q = llama_split_q_heads(c, split), kv = llama_split_kv_heads(c, split);
  return (share){ { q.first * c->head_dim, q.count * c->head_dim },
                  { kv.first * c->head_dim, kv.count * c->head_dim },
                  llama_split_inner(c, split) };
}

/* Biases and norms of the attention, where the model has them. */
static int send_extras(upload *u, const llama_model_layer *from, const share *part, const llama_layer_weights *to) {
  char *qkv_bias = to->qkv_bias;
  if (to->qkv_bias) {
    TRY(send_rows(u, from->q_bias, part->q, &qkv_bias));
    TRY(send_rows(u, from->k_bias, part->kv, &qkv_bias));
    TRY(send_rows(u, from->v_bias, part->kv, &qkv_bias));
  }
  if (to->o_bias)
    TRY(send_one(u, from->o_bias, to->o_bias));
  if (!to->q_norm)
    return 0;
  TRY(send_one(u, from->q_norm, to->q_norm));
  return send_one(u, from->k_norm, to->k_norm);
}

static int send_layer(upload *u, const llama_model_layer *from, const share *part, const llama_layer_weights *to) {
  char *qkv = to->qkv, *gate_up = to->gate_up;
  TRY(send_one(u, from->attention_norm, to->attention_norm));
  TRY(send_rows(u, from->q, part->q, &qkv));
  TRY(send_rows(u, from->k, part->kv, &qkv));
  TRY(send_rows(u, from->v, part->kv, &qkv));
  TRY(send_columns(u, from->o, part->q, to->o));
  TRY(send_one(u, from->mlp_norm, to->mlp_norm));
  TRY(send_rows(u, from->gate, part->inner, &gate_up));
  TRY(send_rows(u, from->up, part->inner, &gate_up));
  TRY(send_columns(u, from->down, part->inner, to->down));
  return send_extras(u, from, part, to);
}

static int send_all(upload *u, const llama_model *model, const llama_weights *w) {
  const share part = share_of(&model->config, w->split);
  char *head = w->head;
  TRY(send_one(u, model->embedding, w->embedding));
  if (!w->tied)
    TRY(send_rows(u, model->head, w->vocab, &head));
  TRY(send_one(u, model->norm, w->norm));
  for (int32_t l = 0; l < w->config.num_layers; l++)
    TRY(send_layer(u, &model->layers[l], &part, &w->layers[l]));
  return 0;
}

/* Device memory for all of them, without values. */
static int allocate(llama_weights *w, cgr_device *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  char what[64];
  void *memory = NULL;
  w->layers = calloc((size_t)w->config.num_layers, sizeof(*w->layers));
  if (!w->layers)
    return llama_fail("no memory");
  lay_out(w);
  TRY_CGR(cgr_device_get_info(device, &info));
  snprintf(what, sizeof(what), "the weights in %s take", cgr_dtype_name((cgr_dtype)w->dtype));
  TRY(llama_room_check(what, w->arena.used, llama_room(&info)));
  TRY_CGR(cgr_memory_alloc(device, w->arena.used, &memory));
  w->arena.base = memory;
  lay_out(w);
  return 0;
}

int llama_weights_allocate(const llama_config *config, llama_split split, bool tied, cgr_device *device, int32_t dtype,
                           llama_weights **weights) {
  *weights = NULL;
  llama_weights *w = calloc(1, sizeof(*w));
  if (!w)
    return llama_fail("no memory");
  w->config = llama_split_config(config, split);
  w->split = split;
  w->vocab = llama_split_vocab(config, split);
  w->tied = tied;
  w->dtype = dtype;
  if (allocate(w, device) != 0) {
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

int llama_weights_load(const llama_model *model, llama_split split, cgr_device *device, int32_t dtype, llama_weights **weights) {
  *weights = NULL;
  upload u = { device, NULL, NULL, dtype };
  llama_weights *w;
  TRY(llama_weights_allocate(&model->config, split, model->head == model->embedding, device, dtype, &w));
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

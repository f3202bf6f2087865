#include "examples/llama/model.h"

#include <cgr/cgr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"

static int refuse_shape(const llama_tensor *tensor, int64_t rows, int64_t columns) {
  char got[LLAMA_MAX_RANK * 24] = "";
  size_t length = 0;
  for (int32_t i = 0; i < tensor->rank; i++)
    length += (size_t)snprintf(got + length, sizeof(got) - length, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
  return llama_fail("tensor %s has shape [%s], expected [%lld%s%.0lld]", tensor->name, got, (long long)rows, columns ? ", " : "",
                    (long long)columns);
}

/* A tensor of this name and shape [rows, columns], or [rows] when columns is 0. */
static int find_tensor(const llama_model *model, const char *name, int64_t rows, int64_t columns, const llama_tensor **found) {
  const llama_tensor *tensor = llama_checkpoint_find(model->checkpoint, name);
  if (!tensor)
    return llama_fail("tensor %s is missing, expected it for this config.json", name);
  int rank = columns ? 2 : 1;
  if (tensor->rank != rank || tensor->shape[0] != rows || (columns && tensor->shape[1] != columns))
    return refuse_shape(tensor, rows, columns);
  if (tensor->dtype == CGR_DTYPE_NONE)
    return llama_fail("tensor %s has dtype %s, expected F32, F16 or BF16", name, tensor->type);
  *found = tensor;
  return 0;
}

static int find_in_layer(const llama_model *model, int layer, const char *part, int64_t rows, int64_t columns,
                         const llama_tensor **found) {
  char name[128];
  snprintf(name, sizeof(name), "model.layers.%d.%s", layer, part);
  return find_tensor(model, name, rows, columns, found);
}

/* What the attention of some models has besides its projections. */
static int find_extras(llama_model *model, int l) {
  const llama_config *c = &model->config;
  llama_model_layer *layer = &model->layers[l];
  int64_t q_size = (int64_t)c->num_q_heads * c->head_dim, kv_size = (int64_t)c->num_kv_heads * c->head_dim;
  if (c->qkv_bias) {
    TRY(find_in_layer(model, l, "self_attn.q_proj.bias", q_size, 0, &layer->q_bias));
    TRY(find_in_layer(model, l, "self_attn.k_proj.bias", kv_size, 0, &layer->k_bias));
    TRY(find_in_layer(model, l, "self_attn.v_proj.bias", kv_size, 0, &layer->v_bias));
  }
  if (c->o_bias)
    TRY(find_in_layer(model, l, "self_attn.o_proj.bias", c->hidden_size, 0, &layer->o_bias));
  if (!c->qk_norm)
    return 0;
  TRY(find_in_layer(model, l, "self_attn.q_norm.weight", c->head_dim, 0, &layer->q_norm));
  return find_in_layer(model, l, "self_attn.k_norm.weight", c->head_dim, 0, &layer->k_norm);
}

static int find_layer(llama_model *model, int l) {
  const llama_config *c = &model->config;
  llama_model_layer *layer = &model->layers[l];
  int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  int64_t q_size = (int64_t)c->num_q_heads * c->head_dim, kv_size = (int64_t)c->num_kv_heads * c->head_dim;
  TRY(find_in_layer(model, l, "input_layernorm.weight", hidden, 0, &layer->attention_norm));
  TRY(find_in_layer(model, l, "self_attn.q_proj.weight", q_size, hidden, &layer->q));
  TRY(find_in_layer(model, l, "self_attn.k_proj.weight", kv_size, hidden, &layer->k));
  TRY(find_in_layer(model, l, "self_attn.v_proj.weight", kv_size, hidden, &layer->v));
  TRY(find_in_layer(model, l, "self_attn.o_proj.weight", hidden, q_size, &layer->o));
  TRY(find_in_layer(model, l, "post_attention_layernorm.weight", hidden, 0, &layer->mlp_norm));
  TRY(find_in_layer(model, l, "mlp.gate_proj.weight", inner, hidden, &layer->gate));
  TRY(find_in_layer(model, l, "mlp.up_proj.weight", inner, hidden, &layer->up));
  TRY(find_in_layer(model, l, "mlp.down_proj.weight", hidden, inner, &layer->down));
  return find_extras(model, l);
}

/* The embedding and the output projection. In transformers 5, "tied" says what a file may leave out: if it has only one of the
 * two tensors, that one stands for both; two that differ stay two. */
static int find_ends(llama_model *model) {
  static const char embedding[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
  const llama_config *c = &model->config;
  int has_embedding = llama_checkpoint_find(model->checkpoint, embedding) != NULL;
  int has_head = llama_checkpoint_find(model->checkpoint, head) != NULL;
  if (has_embedding || !has_head || !c->tied)
    TRY(find_tensor(model, embedding, c->vocab_size, c->hidden_size, &model->embedding));
  if (has_head || !c->tied)
    TRY(find_tensor(model, head, c->vocab_size, c->hidden_size, &model->head));
  if (!c->tied)
    return 0;
  if (!model->head || (model->embedding && llama_tensor_equal(model->embedding, model->head)))
    model->head = model->embedding;
  if (!model->embedding)
    model->embedding = model->head;
  model->tie_broken = model->head != model->embedding;
  return 0;
}

static int find_all(llama_model *model) {
  const llama_config *c = &model->config;
  TRY(find_ends(model));
  TRY(find_tensor(model, "model.norm.weight", c->hidden_size, 0, &model->norm));
  model->layers = calloc((size_t)c->num_layers, sizeof(*model->layers));
  if (!model->layers)
    return llama_fail("no memory");
  for (int l = 0; l < c->num_layers; l++)
    TRY(find_layer(model, l));
  return 0;
}

static int read_model(const char *folder, llama_model *model) {
  TRY(llama_config_read(folder, &model->config));
  TRY(llama_checkpoint_open(folder, &model->checkpoint));
  if (find_all(model) != 0)
    return llama_fail_in(folder);
  char *tokenizer = llama_join(folder, "tokenizer.json");
  if (!tokenizer)
    return -1;
  model->has_tokenizer = access(tokenizer, F_OK) == 0;
  free(tokenizer);
  return 0;
}

int llama_model_open(const char *folder, llama_model **out) {
  *out = NULL;
  llama_model *model = calloc(1, sizeof(*model));
  if (!model)
    return llama_fail("no memory");
  if (read_model(folder, model) != 0) {
    llama_model_close(model);
    return -1;
  }
  *out = model;
  return 0;
}

void llama_model_close(llama_model *model) {
  if (!model)
    return;
  llama_checkpoint_close(model->checkpoint);
  free(model->layers);
  free(model);
}

int64_t llama_parameters(const llama_model *model) {
  const llama_config *c = &model->config;
  int64_t hidden = c->hidden_size, inner = c->intermediate_size, ends = c->tied && !model->tie_broken ? 1 : 2;
  int64_t q_size = (int64_t)c->num_q_heads * c->head_dim, kv_size = (int64_t)c->num_kv_heads * c->head_dim;
  int64_t layer = 2 * hidden + 2 * q_size * hidden + 2 * kv_size * hidden + 3 * hidden * inner;
  if (c->qkv_bias)
    layer += q_size + 2 * kv_size;
  if (c->o_bias)
    layer += hidden;
  if (c->qk_norm)
    layer += 2 * (int64_t)c->head_dim;
  return ends * c->vocab_size * hidden + c->num_layers * layer + hidden;
}

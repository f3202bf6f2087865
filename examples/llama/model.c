#include "examples/llama/model.h"

#include <cgr/cgr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"

/* A tensor of this name and shape [rows, columns], or [rows] when columns is 0. */
static int find(const llama_model *model, const char *name, int64_t rows, int64_t columns, const llama_tensor **found) {
  const llama_tensor *tensor = llama_checkpoint_find(model->checkpoint, name);
  if (!tensor)
    return llama_fail("tensor %s: missing", name);
  int rank = columns ? 2 : 1;
  if (tensor->rank != rank || tensor->shape[0] != rows || (columns && tensor->shape[1] != columns))
    return llama_fail("tensor %s: expected shape [%lld%s%.0lld], got %lld.. of rank %d", name, (long long)rows,
                      columns ? ", " : "", (long long)columns, tensor->rank ? (long long)tensor->shape[0] : 0LL, tensor->rank);
  if (tensor->dtype == CGR_DTYPE_NONE)
    return llama_fail("tensor %s: expected a dtype of F32, F16 or BF16", name);
  *found = tensor;
  return 0;
}

static int find_in_layer(const llama_model *model, int layer, const char *part, int64_t rows, int64_t columns,
                         const llama_tensor **found) {
  char name[128];
  snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, part);
  return find(model, name, rows, columns, found);
}

static int find_layer(llama_model *model, int l) {
  const llama_config *c = &model->config;
  llama_model_layer *layer = &model->layers[l];
  int64_t hidden = c->hidden_size, inner = c->intermediate_size;
  int64_t q_size = (int64_t)c->num_q_heads * c->head_dim, kv_size = (int64_t)c->num_kv_heads * c->head_dim;
  TRY(find_in_layer(model, l, "input_layernorm", hidden, 0, &layer->attention_norm));
  TRY(find_in_layer(model, l, "self_attn.q_proj", q_size, hidden, &layer->q));
  TRY(find_in_layer(model, l, "self_attn.k_proj", kv_size, hidden, &layer->k));
  TRY(find_in_layer(model, l, "self_attn.v_proj", kv_size, hidden, &layer->v));
  TRY(find_in_layer(model, l, "self_attn.o_proj", hidden, q_size, &layer->o));
  TRY(find_in_layer(model, l, "post_attention_layernorm", hidden, 0, &layer->mlp_norm));
  TRY(find_in_layer(model, l, "mlp.gate_proj", inner, hidden, &layer->gate));
  TRY(find_in_layer(model, l, "mlp.up_proj", inner, hidden, &layer->up));
  return find_in_layer(model, l, "mlp.down_proj", hidden, inner, &layer->down);
}

static int read_model(const char *folder, llama_model *model) {
  const llama_config *c = &model->config;
  TRY(llama_config_read(folder, &model->config));
  TRY(llama_checkpoint_open(folder, &model->checkpoint));
  TRY(find(model, "model.embed_tokens.weight", c->vocab_size, c->hidden_size, &model->embedding));
  TRY(find(model, "model.norm.weight", c->hidden_size, 0, &model->norm));
  model->head = model->embedding;
  if (!c->tied)
    TRY(find(model, "lm_head.weight", c->vocab_size, c->hidden_size, &model->head));
  model->layers = calloc((size_t)c->num_layers, sizeof(*model->layers));
  if (!model->layers)
    return llama_fail("no memory");
  for (int l = 0; l < c->num_layers; l++)
    TRY(find_layer(model, l));
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

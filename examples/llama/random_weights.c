#include "examples/llama/random_weights.h"

#include "examples/llama/random.h"

#define STANDARD_DEVIATION 0.02f /* what transformers initialises a Llama with */

typedef struct filling {
  llama_ops *ops;
  cudaStream_t stream;
  llama_random seeds; /* of the tensors, in their order */
  int32_t dtype;
} filling;

static int fill(filling *f, void *out, size_t count, float std) {
  const llama_fill_args args = { out, count, llama_random_next(&f->seeds), std, 1.0f, f->dtype, 0 };
  return llama_cgr(f->ops->fill(f->ops, &args, f->stream), "the kernel of random weights");
}

static int fill_matrix(filling *f, void *out, size_t rows, size_t columns) {
  return fill(f, out, rows * columns, STANDARD_DEVIATION);
}

static int fill_norm(filling *f, void *out, size_t size) { return fill(f, out, size, 0.0f); }

static int fill_all(filling *f, const llama_weights *w) {
  const llama_config *c = &w->config;
  size_t hidden = (size_t)c->hidden_size, inner = (size_t)c->intermediate_size, vocab = (size_t)c->vocab_size;
  size_t q_size = (size_t)c->num_q_heads * (size_t)c->head_dim, kv_size = (size_t)c->num_kv_heads * (size_t)c->head_dim;
  TRY(fill_matrix(f, w->embedding, vocab, hidden));
  if (w->head != w->embedding)
    TRY(fill_matrix(f, w->head, vocab, hidden));
  TRY(fill_norm(f, w->norm, hidden));
  for (int32_t l = 0; l < c->num_layers; l++) {
    const llama_layer_weights *layer = &w->layers[l];
    TRY(fill_norm(f, layer->attention_norm, hidden));
    TRY(fill_matrix(f, layer->qkv, q_size + 2 * kv_size, hidden));
    TRY(fill_matrix(f, layer->o, hidden, q_size));
    TRY(fill_norm(f, layer->mlp_norm, hidden));
    TRY(fill_matrix(f, layer->gate_up, 2 * inner, hidden));
    TRY(fill_matrix(f, layer->down, hidden, inner));
  }
  TRY_CGR(cgr_stream_synchronize(f->ops->device, f->stream));
  return 0;
}

int llama_weights_random(const llama_config *config, llama_ops *ops, int32_t dtype, uint64_t seed, cudaStream_t stream,
                         llama_weights **weights) {
  filling f = { ops, stream, { seed }, dtype };
  *weights = NULL;
  llama_weights *w;
  TRY(llama_weights_allocate(config, config->tied, ops->device, dtype, &w));
  if (fill_all(&f, w) != 0) {
    llama_weights_free(ops->device, w);
    return -1;
  }
  *weights = w;
  return 0;
}

#include "examples/llama/random_weights.h"

#include "examples/llama/random.h"

#define STANDARD_DEVIATION 0.02f /* what transformers initialises a Llama with */

typedef struct filling {
  llama_ops *ops;
  cudaStream_t stream;
  llama_random seeds; /* of the tensors, in their order */
  int32_t dtype;
} filling;

/* A matrix, of which parts are filled: all of them have its seed. */
typedef struct matrix {
  uint64_t seed, columns;
} matrix;

static matrix next_matrix(filling *f, size_t columns) { return (matrix){ llama_random_next(&f->seeds), columns }; }

static int fill(filling *f, void *out, size_t count, float std) {
  llama_fill_args args = { .out = out, .count = count, .std = std, .constant = 1.0f, .dtype = f->dtype };
  args.seed = llama_random_next(&f->seeds);
  args.row = args.stride = count;
  return llama_cgr(f->ops->fill(f->ops, &args, f->stream), "the kernel of random weights");
}

static int fill_matrix(filling *f, void *out, size_t rows, size_t columns) {
  return fill(f, out, rows * columns, STANDARD_DEVIATION);
}

static int fill_norm(filling *f, void *out, size_t size) { return fill(f, out, size, 0.0f); }

/* Some rows and columns of a matrix. `*out` moves past them. */
static int fill_part(filling *f, const matrix *m, llama_span rows, llama_span columns, char **out) {
  llama_fill_args args = { .out = *out, .seed = m->seed, .std = STANDARD_DEVIATION, .dtype = f->dtype };
  args.first = (uint64_t)rows.first * m->columns + (uint64_t)columns.first;
  args.row = (uint64_t)columns.count;
  args.stride = m->columns;
  args.count = (uint64_t)rows.count * args.row;
  *out += args.count * cgr_dtype_size((cgr_dtype)f->dtype);
  return llama_cgr(f->ops->fill(f->ops, &args, f->stream), "the kernel of random weights");
}

static llama_span times(llama_span span, int64_t factor) { return (llama_span){ span.first * factor, span.count * factor }; }

static llama_span after(llama_span span, int64_t first) { return (llama_span){ span.first + first, span.count }; }

static int fill_attention(filling *f, const llama_config *whole, llama_split split, const llama_layer_weights *layer) {
  const int64_t head = whole->head_dim, q_size = whole->num_q_heads * head, kv_size = whole->num_kv_heads * head;
  const llama_span q = times(llama_split_q_heads(whole, split), head), kv = times(llama_split_kv_heads(whole, split), head);
  const llama_span hidden = { 0, whole->hidden_size };
  char *qkv_out = layer->qkv, *o_out = layer->o;
  const matrix qkv = next_matrix(f, (size_t)hidden.count);
  TRY(fill_part(f, &qkv, q, hidden, &qkv_out));
  TRY(fill_part(f, &qkv, after(kv, q_size), hidden, &qkv_out));
  TRY(fill_part(f, &qkv, after(kv, q_size + kv_size), hidden, &qkv_out));
  const matrix o = next_matrix(f, (size_t)q_size);
  return fill_part(f, &o, hidden, q, &o_out);
}

static int fill_mlp(filling *f, const llama_config *whole, llama_split split, const llama_layer_weights *layer) {
  const llama_span hidden = { 0, whole->hidden_size }, inner = llama_split_inner(whole, split);
  char *gate_up_out = layer->gate_up, *down_out = layer->down;
  const matrix gate_up = next_matrix(f, (size_t)hidden.count);
  TRY(fill_part(f, &gate_up, inner, hidden, &gate_up_out));
  TRY(fill_part(f, &gate_up, after(inner, whole->intermediate_size), hidden, &gate_up_out));
  const matrix down = next_matrix(f, (size_t)whole->intermediate_size);
  return fill_part(f, &down, hidden, inner, &down_out);
}

static int fill_head(filling *f, const llama_weights *w) {
  const llama_span hidden = { 0, w->config.hidden_size };
  char *out = w->head;
  if (w->tied)
    return 0;
  const matrix head = next_matrix(f, (size_t)hidden.count);
  return fill_part(f, &head, w->vocab, hidden, &out);
}

static int fill_all(filling *f, const llama_config *whole, llama_split split, const llama_weights *w) {
  size_t hidden = (size_t)whole->hidden_size;
  TRY(fill_matrix(f, w->embedding, (size_t)whole->vocab_size, hidden));
  TRY(fill_head(f, w));
  TRY(fill_norm(f, w->norm, hidden));
  for (int32_t l = 0; l < whole->num_layers; l++) {
    const llama_layer_weights *layer = &w->layers[l];
    TRY(fill_norm(f, layer->attention_norm, hidden));
    TRY(fill_attention(f, whole, split, layer));
    TRY(fill_norm(f, layer->mlp_norm, hidden));
    TRY(fill_mlp(f, whole, split, layer));
  }
  TRY_CGR(cgr_stream_synchronize(f->ops->device, f->stream));
  return 0;
}

int llama_weights_random(const llama_config *config, llama_split split, llama_ops *ops, int32_t dtype, uint64_t seed,
                         cudaStream_t stream, llama_weights **weights) {
  filling f = { ops, stream, { seed }, dtype };
  *weights = NULL;
  llama_weights *w;
  TRY(llama_weights_allocate(config, split, config->tied, ops->device, dtype, &w));
  if (fill_all(&f, config, split, w) != 0) {
    llama_weights_free(ops->device, w);
    return -1;
  }
  *weights = w;
  return 0;
}

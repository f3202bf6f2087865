/* A model on disk: its shape and its tensors, found and checked, not yet on a device. */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include <stdbool.h>

#include "examples/llama/config.h"
#include "examples/llama/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llama_model_layer {
  const llama_tensor *attention_norm;           /* [hidden] */
  const llama_tensor *q, *k, *v;                /* [heads * head_dim, hidden] */
  const llama_tensor *o;                        /* [hidden, q heads * head_dim] */
  const llama_tensor *q_bias, *k_bias, *v_bias; /* [heads * head_dim]; NULL: none */
  const llama_tensor *o_bias;                   /* [hidden]; NULL: none */
  const llama_tensor *q_norm, *k_norm;          /* [head_dim]; NULL: none */
  const llama_tensor *mlp_norm;                 /* [hidden] */
  const llama_tensor *gate, *up;                /* [intermediate, hidden] */
  const llama_tensor *down;                     /* [hidden, intermediate] */
} llama_model_layer;

typedef struct llama_model {
  llama_config config;
  llama_checkpoint *checkpoint;
  const llama_tensor *embedding; /* [vocab, hidden] */
  const llama_tensor *norm;      /* [hidden] */
  const llama_tensor *head;      /* [vocab, hidden]; the embedding when tied */
  bool tie_broken;               /* config.json says tied, but the file has both and they differ */
  llama_model_layer *layers;     /* [num_layers] */
  bool has_tokenizer;            /* the folder has a tokenizer.json: its tokens are not bytes */
} llama_model;

/* Every tensor that the shape asks for is there, with its shape and a dtype of fp32, fp16 or bf16. */
int llama_model_open(const char *folder, llama_model **model);
void llama_model_close(llama_model *model);

/* Weights of all tensors; a tied embedding counts once. */
int64_t llama_parameters(const llama_model *model);

#ifdef __cplusplus
}
#endif
#endif

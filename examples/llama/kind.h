/* The kinds of models, and how each differs from a Llama. */
#ifndef LLAMA_KIND_H
#define LLAMA_KIND_H

#include "examples/llama/config.h"
#include "examples/llama/json.h"

/* Which layers have a window. */
typedef enum llama_windows {
  LLAMA_WINDOWS_NONE,
  LLAMA_WINDOWS_ALL,   /* if sliding_window is a number */
  LLAMA_WINDOWS_CHOSEN /* if use_sliding_window is true: those that layer_types or max_window_layers select */
} llama_windows;

typedef struct llama_kind {
  const char *model_type, *architecture;
  int32_t kv_heads;      /* num_key_value_heads when it is absent; 0: as many as q heads */
  int32_t head_dim;      /* when it is absent; 0: hidden_size / num_attention_heads */
  int32_t max_positions; /* max_position_embeddings when it is absent */
  bool divides;          /* num_attention_heads must divide hidden_size even if head_dim is given */
  bool bias_switch;      /* attention_bias gives q, k, v and o a bias */
  bool qkv_bias;         /* q, k and v have one in any case */
  bool qk_norm;
  llama_windows windows;
} llama_kind;

/* By config.json's model_type. */
int llama_kind_read(const cJSON *json, const llama_kind **kind);

/* The fields of `config` that describe the attention of each layer; its number of layers is known. */
int llama_kind_attention(const llama_kind *kind, const cJSON *json, llama_config *config);

#endif

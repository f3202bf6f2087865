/* What config.json says: the shape of a Llama, Mistral, Qwen2 or Qwen3. What transformers 5 refuses is refused, and so is what
 * this engine does not compute. */
#ifndef LLAMA_CONFIG_H
#define LLAMA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum llama_rope_type { LLAMA_ROPE_DEFAULT, LLAMA_ROPE_LINEAR, LLAMA_ROPE_LLAMA3 } llama_rope_type;

typedef struct llama_rope {
  llama_rope_type type;
  double theta;
  double factor;                            /* LINEAR and LLAMA3 */
  double low_freq_factor, high_freq_factor; /* LLAMA3 */
  double original_positions;                /* LLAMA3: the context that the model was first trained with */
} llama_rope;

#define LLAMA_MAX_EOS 16
#define LLAMA_MAX_LAYERS 1024

typedef struct llama_config {
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t num_layers;
  int32_t num_q_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t vocab_size;
  int32_t max_positions;
  bool tied;                       /* the output projection is the embedding */
  bool qkv_bias, o_bias;           /* of the projections of attention */
  bool qk_norm;                    /* each head of q and k is normed before it is rotated */
  int32_t window;                  /* keys that a query sees in a windowed layer, its own included; 0: all */
  bool windowed[LLAMA_MAX_LAYERS]; /* by layer; none without a window */
  float norm_eps;
  llama_rope rope;
  int32_t bos_token; /* -1: none */
  int32_t num_eos;
  int32_t eos_tokens[LLAMA_MAX_EOS];
} llama_config;

/* From the text of a config.json. */
int llama_config_parse(const char *text, size_t size, llama_config *config);
/* From a folder's config.json, plus the end tokens of its generation_config.json, if there is one. */
int llama_config_read(const char *folder, llama_config *config);

/* Frequencies [head_dim / 2] of the rotary embedding after scaling: the angle at position p is p * frequency. */
void llama_rope_frequencies(const llama_config *config, float *frequencies);

#ifdef __cplusplus
}
#endif
#endif

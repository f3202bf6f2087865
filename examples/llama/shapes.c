#include "examples/llama/shapes.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"

#define LLAMA_3                                                                                    \
  "\"model_type\": \"llama\", \"vocab_size\": 128256, \"max_position_embeddings\": 131072, "       \
  "\"num_key_value_heads\": 8, \"num_attention_heads\": 32, \"rms_norm_eps\": 1e-5, "              \
  "\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", \"low_freq_factor\": 1, " \
  "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, \"factor\": "

static const struct shape {
  const char *name, *config;
} shapes[] = {
  { "1b", /* Llama 3.2 1B */
    "{" LLAMA_3 "32}, \"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 16, "
    "\"head_dim\": 64, \"tie_word_embeddings\": true}" },
  { "8b", /* Llama 3.1 8B */
    "{" LLAMA_3 "8}, \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"head_dim\": 128, \"tie_word_embeddings\": false}" },
  { "tiny", /* for the host device, and for tests */
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"max_position_embeddings\": 2048, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 1, \"head_dim\": 64, \"hidden_size\": 64, \"intermediate_size\": 128, "
    "\"num_hidden_layers\": 2, \"tie_word_embeddings\": false}" },
};

int llama_shape_open(const char *name, llama_model **model) {
  const struct shape *shape = NULL;
  *model = NULL;
  for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
    if (strcmp(shapes[i].name, name) == 0)
      shape = &shapes[i];
  if (!shape)
    return llama_fail("--random-weights is %s, expected 1b, 8b or tiny", *name ? name : "empty");
  llama_model *m = calloc(1, sizeof(*m));
  if (!m)
    return llama_fail("no memory");
  if (llama_config_parse(shape->config, strlen(shape->config), &m->config) != 0) {
    llama_model_close(m);
    return -1;
  }
  *model = m;
  return 0;
}

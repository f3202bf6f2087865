#include "examples/llama/kind.h"

#include <stdio.h>

#include "examples/llama/error.h"

/* The numbers are transformers' defaults for absent fields. */
static const llama_kind kinds[] = {
  { .model_type = "llama", .architecture = "LlamaForCausalLM", .divides = true, .max_positions = 2048, .bias_switch = true },
  { .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .kv_heads = 8,
    .max_positions = 131072,
    .windows = LLAMA_WINDOWS_ALL },
  { .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .kv_heads = 32,
    .max_positions = 32768,
    .qkv_bias = true,
    .windows = LLAMA_WINDOWS_CHOSEN },
  { .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .kv_heads = 32,
    .head_dim = 128,
    .max_positions = 32768,
    .bias_switch = true,
    .qk_norm = true,
    .windows = LLAMA_WINDOWS_CHOSEN },
};

#define NUM_KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))
#define DEFAULT_WINDOW 4096    /* sliding_window when it is absent */
#define DEFAULT_FULL_LAYERS 28 /* max_window_layers when it is absent */

int llama_kind_read(const cJSON *json, const llama_kind **kind) {
  const cJSON *type = llama_json_find(json, "model_type");
  for (int i = 0; i < NUM_KINDS; i++)
    if (llama_json_is(type, kinds[i].model_type)) {
      *kind = &kinds[i];
      return 0;
    }
  return llama_json_unexpected(type, "model_type", "\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"");
}

/* null means no window; absent means the default one. A window sees at least its own token. */
static int read_window(const cJSON *json, int32_t *window) {
  *window = DEFAULT_WINDOW;
  const cJSON *item = llama_json_find(json, "sliding_window");
  if (!cJSON_IsNull(item))
    return llama_json_int(json, "sliding_window", 1, INT32_MAX, window);
  *window = 0;
  return 0;
}

/* One layer by its name in layer_types. */
static int read_layer_type(const cJSON *item, int32_t layer, llama_config *config) {
  char name[32];
  config->windowed[layer] = llama_json_is(item, "sliding_attention");
  if (llama_json_is(item, "full_attention") || (config->windowed[layer] && config->window))
    return 0;
  snprintf(name, sizeof(name), "layer_types[%d]", layer);
  return llama_json_unexpected(item, name,
                               config->window ? "\"full_attention\" or \"sliding_attention\""
                                              : "\"full_attention\" in a model without a window");
}

static int read_layer_types(const cJSON *list, llama_config *config) {
  int32_t layer = 0;
  if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != config->num_layers) {
    char expected[64];
    snprintf(expected, sizeof(expected), "a list of %d, one per layer", config->num_layers);
    return llama_json_unexpected(list, "layer_types", expected);
  }
  for (const cJSON *item = list->child; item; item = item->next)
    TRY(read_layer_type(item, layer++, config));
  return 0;
}

/* Despite its name, max_window_layers is the number of layers at the bottom that have no window. */
static int read_chosen_windows(const cJSON *json, llama_config *config) {
  bool on = false;
  int32_t full = DEFAULT_FULL_LAYERS;
  const cJSON *types = llama_json_member(json, "layer_types");
  TRY(llama_json_bool(json, "use_sliding_window", &on));
  if (on)
    TRY(read_window(json, &config->window));
  if (types)
    return read_layer_types(types, config);
  TRY(llama_json_int(json, "max_window_layers", 0, INT32_MAX, &full));
  for (int32_t l = 0; l < config->num_layers; l++)
    config->windowed[l] = config->window && l >= full;
  return 0;
}

static int read_windows(llama_windows windows, const cJSON *json, llama_config *config) {
  const cJSON *types = llama_json_member(json, "layer_types");
  if (windows == LLAMA_WINDOWS_CHOSEN)
    return read_chosen_windows(json, config);
  if (types)
    return llama_json_unexpected(types, "layer_types", "none: all layers of this model_type are alike");
  if (windows == LLAMA_WINDOWS_ALL)
    TRY(read_window(json, &config->window));
  for (int32_t l = 0; l < config->num_layers; l++)
    config->windowed[l] = config->window != 0;
  return 0;
}

int llama_kind_attention(const llama_kind *kind, const cJSON *json, llama_config *config) {
  bool biased = false;
  if (kind->bias_switch)
    TRY(llama_json_bool(json, "attention_bias", &biased));
  config->qkv_bias = kind->qkv_bias || biased;
  config->o_bias = biased;
  config->qk_norm = kind->qk_norm;
  return read_windows(kind->windows, json, config);
}

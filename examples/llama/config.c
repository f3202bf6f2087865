/* config.json, as transformers writes it for LlamaForCausalLM: version 4 (rope_theta, rope_scaling) and 5 (rope_parameters). */
#include "examples/llama/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"

#define CONFIG_LIMIT ((size_t)4 << 20) /* bytes */
#define ABSENT (-1)

/* An optional switch that must be off: what this engine does not compute must not be asked for. */
static int refuse(const cJSON *json, const char *name) {
  int32_t on = 0;
  TRY(llama_json_bool(json, name, &on));
  return on ? llama_fail("%s: true is not supported", name) : 0;
}

static int demand_text(const cJSON *json, const char *name, const char *expected) {
  const cJSON *item = llama_json_member(json, name);
  if (!item || (cJSON_IsString(item) && strcmp(item->valuestring, expected) == 0))
    return 0;
  return llama_fail("%s: expected \"%s\", got %s", name, expected, cJSON_IsString(item) ? item->valuestring : "something else");
}

static int read_refusals(const cJSON *json) {
  TRY(demand_text(json, "model_type", "llama"));
  TRY(demand_text(json, "hidden_act", "silu"));
  TRY(refuse(json, "attention_bias"));
  TRY(refuse(json, "mlp_bias"));
  if (llama_json_member(json, "quantization_config"))
    return llama_fail("quantization_config: quantised weights are not supported");
  double rotary = 1.0;
  TRY(llama_json_double(json, "partial_rotary_factor", 0.0, 1.0, &rotary));
  return rotary == 1.0 ? 0 : llama_fail("partial_rotary_factor: expected 1, got %g", rotary);
}

static int required(const cJSON *json, const char *name, int64_t high, int32_t *value) {
  *value = ABSENT;
  TRY(llama_json_int(json, name, 1, high, value));
  return *value == ABSENT ? llama_fail("%s: missing", name) : 0;
}

static int read_shape(const cJSON *json, llama_config *config) {
  TRY(required(json, "hidden_size", 1 << 20, &config->hidden_size));
  TRY(required(json, "intermediate_size", 1 << 22, &config->intermediate_size));
  TRY(required(json, "num_hidden_layers", 1024, &config->num_layers));
  TRY(required(json, "num_attention_heads", 4096, &config->num_q_heads));
  TRY(required(json, "vocab_size", 1 << 24, &config->vocab_size));
  config->num_kv_heads = config->num_q_heads;
  TRY(llama_json_int(json, "num_key_value_heads", 1, 4096, &config->num_kv_heads));
  if (config->num_q_heads % config->num_kv_heads)
    return llama_fail("num_key_value_heads: %d does not divide num_attention_heads %d", config->num_kv_heads,
                      config->num_q_heads);

  config->head_dim = ABSENT;
  TRY(llama_json_int(json, "head_dim", 1, 256, &config->head_dim));
  if (config->head_dim == ABSENT) {
    if (config->hidden_size % config->num_q_heads)
      return llama_fail("num_attention_heads: %d does not divide hidden_size %d", config->num_q_heads, config->hidden_size);
    config->head_dim = config->hidden_size / config->num_q_heads;
  }
  if (config->head_dim % 8 || config->head_dim > 256)
    return llama_fail("head_dim: expected a multiple of 8 up to 256, got %d", config->head_dim);
  if (config->hidden_size % 8 || config->intermediate_size % 8)
    return llama_fail("hidden_size and intermediate_size: expected multiples of 8, got %d and %d", config->hidden_size,
                      config->intermediate_size);
  config->max_positions = 2048;
  return llama_json_int(json, "max_position_embeddings", 1, 1 << 26, &config->max_positions);
}

static int read_scaling(const cJSON *scaling, const llama_config *config, llama_rope *rope) {
  const cJSON *type = llama_json_member(scaling, "rope_type");
  if (!type)
    type = llama_json_member(scaling, "type");
  if (!type)
    return 0;
  const char *name = cJSON_IsString(type) ? type->valuestring : "something else";
  if (strcmp(name, "default") == 0)
    return 0;
  if (strcmp(name, "linear") == 0)
    rope->type = LLAMA_ROPE_LINEAR;
  else if (strcmp(name, "llama3") == 0)
    rope->type = LLAMA_ROPE_LLAMA3;
  else
    return llama_fail("rope_type: expected default, linear or llama3, got %s", name);

  rope->factor = ABSENT;
  TRY(llama_json_double(scaling, "factor", 1e-3, 1e6, &rope->factor));
  if (rope->factor == ABSENT)
    return llama_fail("factor: missing in the %s scaling", name);
  if (rope->type == LLAMA_ROPE_LINEAR)
    return 0;
  rope->low_freq_factor = 1.0;
  rope->high_freq_factor = 4.0;
  rope->original_positions = config->max_positions;
  TRY(llama_json_double(scaling, "low_freq_factor", 1e-6, 1e6, &rope->low_freq_factor));
  TRY(llama_json_double(scaling, "high_freq_factor", 1e-6, 1e6, &rope->high_freq_factor));
  TRY(llama_json_double(scaling, "original_max_position_embeddings", 1, 1e9, &rope->original_positions));
  if (rope->high_freq_factor <= rope->low_freq_factor)
    return llama_fail("high_freq_factor: expected more than low_freq_factor %g, got %g", rope->low_freq_factor,
                      rope->high_freq_factor);
  return 0;
}

static int read_rope(const cJSON *json, llama_config *config) {
  config->rope.theta = 10000.0;
  TRY(llama_json_double(json, "rope_theta", 1e-3, 1e12, &config->rope.theta));
  static const char *const names[] = { "rope_scaling", "rope_parameters" };
  for (int i = 0; i < 2; i++) {
    const cJSON *scaling = llama_json_member(json, names[i]);
    if (!scaling)
      continue;
    if (!cJSON_IsObject(scaling))
      return llama_fail("%s: expected an object", names[i]);
    TRY(llama_json_double(scaling, "rope_theta", 1e-3, 1e12, &config->rope.theta));
    TRY(read_scaling(scaling, config, &config->rope));
  }
  return 0;
}

static int read_eos(const cJSON *item, llama_config *config) {
  uint64_t token = 0;
  if (config->num_eos == LLAMA_MAX_EOS)
    return llama_fail("eos_token_id: more than %d tokens", LLAMA_MAX_EOS);
  TRY(llama_json_whole(item, "eos_token_id", &token));
  if (token < (uint64_t)config->vocab_size)
    config->eos_tokens[config->num_eos++] = (int32_t)token;
  return 0;
}

static int read_tokens(const cJSON *json, llama_config *config) {
  config->bos_token = ABSENT;
  TRY(llama_json_int(json, "bos_token_id", -1, INT32_MAX, &config->bos_token));
  if (config->bos_token >= config->vocab_size)
    config->bos_token = ABSENT;
  const cJSON *eos = llama_json_member(json, "eos_token_id");
  if (!eos)
    return 0;
  if (!cJSON_IsArray(eos))
    return read_eos(eos, config);
  for (const cJSON *item = eos->child; item; item = item->next)
    TRY(read_eos(item, config));
  return 0;
}

static int read_config(const cJSON *json, llama_config *config) {
  double eps = 1e-6;
  TRY(read_refusals(json));
  TRY(read_shape(json, config));
  TRY(read_rope(json, config));
  TRY(read_tokens(json, config));
  TRY(llama_json_double(json, "rms_norm_eps", 0.0, 1.0, &eps));
  config->norm_eps = (float)eps;
  return llama_json_bool(json, "tie_word_embeddings", &config->tied);
}

int llama_config_parse(const char *json, size_t size, llama_config *config) {
  memset(config, 0, sizeof(*config));
  cJSON *object = NULL;
  TRY(llama_json_parse(json, size, "config.json", &object));
  int result = read_config(object, config);
  cJSON_Delete(object);
  return result == 0 ? 0 : llama_fail_in("config.json");
}

int llama_config_read(const char *folder, llama_config *config) {
  char *path = llama_join(folder, "config.json"), *text = NULL;
  size_t size = 0;
  if (!path)
    return -1;
  int result = llama_read_file(path, CONFIG_LIMIT, &text, &size);
  free(path);
  if (result == 0)
    result = llama_config_parse(text, size, config);
  free(text);
  return result;
}

void llama_rope_frequencies(const llama_config *config, float *frequencies) {
  const llama_rope *rope = &config->rope;
  const double pi = 3.14159265358979323846;
  for (int i = 0; i < config->head_dim / 2; i++) {
    double frequency = 1.0 / pow(rope->theta, 2.0 * i / config->head_dim);
    if (rope->type == LLAMA_ROPE_LINEAR)
      frequency /= rope->factor;
    if (rope->type == LLAMA_ROPE_LLAMA3) {
      /* Waves that fit the first context often enough stay, long ones are stretched, those between are blended. */
      double turns = rope->original_positions * frequency / (2.0 * pi);
      double keep = (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
      keep = keep < 0.0 ? 0.0 : keep > 1.0 ? 1.0 : keep;
      frequency = keep * frequency + (1.0 - keep) * frequency / rope->factor;
    }
    frequencies[i] = (float)frequency;
  }
}

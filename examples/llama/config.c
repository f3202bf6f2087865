/* config.json, as transformers writes it: version 4 (rope_theta, rope_scaling) and 5 (rope_parameters). */
#include "examples/llama/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/error.h"
#include "examples/llama/json.h"
#include "examples/llama/kind.h"

#define CONFIG_LIMIT ((size_t)4 << 20) /* bytes */
#define ABSENT (-1)

/* An optional switch that must be off, because this engine does not compute what it asks for. */
static int refuse(const cJSON *json, const char *name) {
  bool on = false;
  TRY(llama_json_bool(json, name, &on));
  return on ? llama_json_unexpected(llama_json_find(json, name), name, "false: there are no such biases here") : 0;
}

/* A file for another head or another model can have the same tensors: only its name tells them apart. No name at all is fine, as
 * it is for transformers. */
static int check_architecture(const cJSON *json, const llama_kind *kind) {
  const cJSON *list = llama_json_member(json, "architectures");
  if (!list || (cJSON_IsArray(list) && !list->child))
    return 0;
  for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
    if (llama_json_is(item, kind->architecture))
      return 0;
  char expected[64];
  snprintf(expected, sizeof(expected), "a list with \"%s\"", kind->architecture);
  return llama_json_unexpected(list, "architectures", expected);
}

static int read_refusals(const cJSON *json, const llama_kind *kind) {
  const cJSON *act = llama_json_find(json, "hidden_act");
  TRY(check_architecture(json, kind));
  if (act && !llama_json_is(act, "silu"))
    return llama_json_unexpected(act, "hidden_act", "\"silu\"");
  if (!kind->bias_switch)
    TRY(refuse(json, "attention_bias"));
  TRY(refuse(json, "mlp_bias"));
  const cJSON *quantised = llama_json_member(json, "quantization_config");
  return quantised ? llama_json_unexpected(quantised, "quantization_config", "none: quantised weights are not supported") : 0;
}

static int required(const cJSON *json, const char *name, int64_t high, int32_t *value) {
  *value = ABSENT;
  TRY(llama_json_int(json, name, 1, high, value));
  return *value == ABSENT ? llama_json_unexpected(NULL, name, "a whole number") : 0;
}

/* The number of heads, of q and of k and v. */
static int read_head_counts(const cJSON *json, const llama_kind *kind, llama_config *config) {
  TRY(required(json, "num_attention_heads", 4096, &config->num_q_heads));
  config->num_kv_heads = config->num_q_heads;
  if (!llama_json_find(json, "num_key_value_heads") && kind->kv_heads)
    config->num_kv_heads = kind->kv_heads;
  if (llama_json_member(json, "num_key_value_heads"))
    TRY(llama_json_int(json, "num_key_value_heads", 1, 4096, &config->num_kv_heads));
  if (config->num_q_heads % config->num_kv_heads)
    return llama_fail("num_key_value_heads is %d, expected a divisor of num_attention_heads %d", config->num_kv_heads,
                      config->num_q_heads);
  return 0;
}

/* For a Llama, transformers requires that the heads divide the hidden size even if head_dim is given. */
static int read_heads(const cJSON *json, const llama_kind *kind, llama_config *config) {
  TRY(read_head_counts(json, kind, config));
  bool given = kind->head_dim ? llama_json_find(json, "head_dim") : llama_json_member(json, "head_dim");
  bool divides = kind->divides || (!given && !kind->head_dim);
  if (divides && config->hidden_size % config->num_q_heads)
    return llama_fail("num_attention_heads is %d, expected a divisor of hidden_size %d", config->num_q_heads,
                      config->hidden_size);
  config->head_dim = kind->head_dim ? kind->head_dim : config->hidden_size / config->num_q_heads;
  if (given)
    TRY(llama_json_int(json, "head_dim", 1, 256, &config->head_dim));
  if (config->head_dim % 8 || config->head_dim > 256)
    return llama_fail("head_dim is %d, expected a multiple of 8 up to 256", config->head_dim);
  return 0;
}

static int read_shape(const cJSON *json, const llama_kind *kind, llama_config *config) {
  TRY(required(json, "hidden_size", 1 << 20, &config->hidden_size));
  TRY(required(json, "intermediate_size", 1 << 22, &config->intermediate_size));
  TRY(required(json, "num_hidden_layers", LLAMA_MAX_LAYERS, &config->num_layers));
  TRY(required(json, "vocab_size", 1 << 24, &config->vocab_size));
  config->max_positions = kind->max_positions;
  TRY(llama_json_int(json, "max_position_embeddings", 1, 1 << 26, &config->max_positions));
  if (config->hidden_size % 8)
    return llama_fail("hidden_size is %d, expected a multiple of 8", config->hidden_size);
  if (config->intermediate_size % 8)
    return llama_fail("intermediate_size is %d, expected a multiple of 8", config->intermediate_size);
  return read_heads(json, kind, config);
}

/* Not defaulted: the meaning of a llama3 scaling is in its four numbers. */
static int read_llama3(const cJSON *json, const cJSON *scaling, llama_rope *rope) {
  static const char *const names[] = { "low_freq_factor", "high_freq_factor", "original_max_position_embeddings" };
  double *const values[] = { &rope->low_freq_factor, &rope->high_freq_factor, &rope->original_positions };
  for (int i = 0; i < 3; i++) {
    if (!llama_json_find(scaling, names[i]))
      return llama_json_unexpected(NULL, names[i], "a number in the llama3 scaling");
    TRY(llama_json_double(scaling, names[i], 1e-6, 1e9, values[i]));
  }
  if (rope->high_freq_factor <= rope->low_freq_factor)
    return llama_fail("high_freq_factor is %g, expected more than low_freq_factor %g", rope->high_freq_factor,
                      rope->low_freq_factor);
  /* In version 5 alone, a value outside the scaling would override the one inside: refused unless they agree. */
  double outside = rope->original_positions;
  if (llama_json_member(json, names[2]))
    TRY(llama_json_double(json, names[2], 1e-6, 1e9, &outside));
  return outside == rope->original_positions
             ? 0
             : llama_fail("%s is %g, expected %g as in the llama3 scaling", names[2], outside, rope->original_positions);
}

static int read_scaling(const cJSON *json, const cJSON *scaling, llama_rope *rope) {
  const cJSON *type = llama_json_find(scaling, "rope_type");
  if (!type)
    type = llama_json_find(scaling, "type");
  if (!type || llama_json_is(type, "default"))
    return 0;
  if (llama_json_is(type, "linear"))
    rope->type = LLAMA_ROPE_LINEAR;
  else if (llama_json_is(type, "llama3"))
    rope->type = LLAMA_ROPE_LLAMA3;
  else
    return llama_json_unexpected(type, "rope_type", "\"default\", \"linear\" or \"llama3\"");
  if (!llama_json_find(scaling, "factor"))
    return llama_json_unexpected(NULL, "factor", "a number in the linear or llama3 scaling");
  TRY(llama_json_double(scaling, "factor", 1e-3, 1e6, &rope->factor));
  return rope->type == LLAMA_ROPE_LLAMA3 ? read_llama3(json, scaling, rope) : 0;
}

/* This engine rotates all dimensions of a head. */
static int check_rotary(const cJSON *object) {
  const cJSON *item = llama_json_member(object, "partial_rotary_factor");
  if (!item || (cJSON_IsNumber(item) && item->valuedouble == 1.0))
    return 0;
  return llama_json_unexpected(item, "partial_rotary_factor", "1 or none");
}

/* A rope_scaling that is not empty takes the place of rope_parameters, as in transformers. */
static int read_rope(const cJSON *json, llama_config *config) {
  static const char *const names[] = { "rope_parameters", "rope_scaling" };
  const cJSON *chosen = NULL;
  TRY(check_rotary(json));
  for (int i = 0; i < 2; i++) {
    const cJSON *object = llama_json_member(json, names[i]);
    if (object && !cJSON_IsObject(object))
      return llama_json_unexpected(object, names[i], "an object or null");
    TRY(check_rotary(object));
    if (object && object->child)
      chosen = object;
  }
  config->rope.theta = 10000.0;
  const cJSON *holder = llama_json_find(chosen, "rope_theta") ? chosen : json;
  TRY(llama_json_double(holder, "rope_theta", 1e-3, 1e12, &config->rope.theta));
  return read_scaling(json, chosen, &config->rope);
}

static int add_eos(const cJSON *item, llama_config *config) {
  uint64_t token = 0;
  TRY(llama_json_whole(item, "eos_token_id", &token));
  for (int32_t i = 0; i < config->num_eos; i++)
    if ((uint64_t)config->eos_tokens[i] == token)
      return 0;
  if (token >= (uint64_t)config->vocab_size)
    return 0; /* never sampled */
  if (config->num_eos == LLAMA_MAX_EOS)
    return llama_fail("eos_token_id: more than %d tokens, expected at most that", LLAMA_MAX_EOS);
  config->eos_tokens[config->num_eos++] = (int32_t)token;
  return 0;
}

/* One token or a list; joined with what was read before. */
static int read_eos(const cJSON *json, llama_config *config) {
  const cJSON *eos = llama_json_member(json, "eos_token_id");
  if (!eos)
    return 0;
  if (!cJSON_IsArray(eos))
    return add_eos(eos, config);
  for (const cJSON *item = eos->child; item; item = item->next)
    TRY(add_eos(item, config));
  return 0;
}

static int read_config(const cJSON *json, llama_config *config) {
  double eps = 1e-6; /* when absent, as in transformers */
  const llama_kind *kind = NULL;
  TRY(llama_kind_read(json, &kind));
  TRY(read_refusals(json, kind));
  TRY(read_shape(json, kind, config));
  TRY(llama_kind_attention(kind, json, config));
  TRY(read_rope(json, config));
  config->bos_token = ABSENT;
  if (llama_json_member(json, "bos_token_id"))
    TRY(llama_json_int(json, "bos_token_id", -1, INT32_MAX, &config->bos_token));
  if (config->bos_token >= config->vocab_size)
    config->bos_token = ABSENT;
  TRY(read_eos(json, config));
  TRY(llama_json_double(json, "rms_norm_eps", 1e-30, 1.0, &eps));
  config->norm_eps = (float)eps;
  return llama_json_bool(json, "tie_word_embeddings", &config->tied);
}

int llama_config_parse(const char *text, size_t size, llama_config *config) {
  memset(config, 0, sizeof(*config));
  cJSON *json = NULL;
  TRY(llama_json_parse(text, size, "config.json", &json));
  int result = read_config(json, config);
  cJSON_Delete(json);
  return result == 0 ? 0 : llama_fail_in("config.json");
}

/* Reads folder/name with `read`, if the file exists or is `needed`. */
static int read_from(const char *folder, const char *name, bool needed, int (*read)(const cJSON *, llama_config *),
                     llama_config *config) {
  char *path = llama_join(folder, name);
  cJSON *json = NULL;
  if (!path)
    return -1;
  int result = 0;
  if (needed || access(path, F_OK) == 0)
    result = llama_json_read(path, CONFIG_LIMIT, &json);
  if (json && read(json, config) != 0)
    result = llama_fail_in(path);
  cJSON_Delete(json);
  free(path);
  return result;
}

int llama_config_read(const char *folder, llama_config *config) {
  memset(config, 0, sizeof(*config));
  TRY(read_from(folder, "config.json", true, read_config, config));
  return read_from(folder, "generation_config.json", false, read_eos, config);
}

void llama_rope_frequencies(const llama_config *config, float *frequencies) {
  const llama_rope *rope = &config->rope;
  const double pi = 3.14159265358979323846;
  for (int i = 0; i < config->head_dim / 2; i++) {
    double frequency = 1.0 / pow(rope->theta, 2.0 * i / config->head_dim);
    if (rope->type == LLAMA_ROPE_LINEAR)
      frequency /= rope->factor;
    if (rope->type == LLAMA_ROPE_LLAMA3) {
      /* Waves that fit often enough into the first context stay, long ones are stretched, and those in between are blended. */
      double turns = rope->original_positions * frequency / (2.0 * pi);
      double keep = (turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
      keep = keep < 0.0 ? 0.0 : keep > 1.0 ? 1.0 : keep;
      frequency = keep * frequency + (1.0 - keep) * frequency / rope->factor;
    }
    frequencies[i] = (float)frequency;
  }
}

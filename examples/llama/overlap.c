#include "examples/llama/overlap.h"

void llama_demand_add_request(llama_demand *load, int32_t computed, int32_t count) {
  load->tokens += count;
  load->keys += (int64_t)computed + count;
  load->pairs += (int64_t)computed * count + (int64_t)count * (count + 1) / 2;
}

void llama_demand_add(llama_demand *sum, const llama_demand *step) {
  sum->steps += step->steps;
  sum->tokens += step->tokens;
  sum->keys += step->keys;
  sum->pairs += step->pairs;
  sum->seconds += step->seconds;
}

/* Of an embedding that is not the output projection, a step reads a few rows. */
static double used_weights(const llama_model *model) {
  const llama_config *c = &model->config;
  bool apart = !c->tied || model->tie_broken;
  return (double)(llama_parameters(model) - (apart ? (int64_t)c->vocab_size * c->hidden_size : 0));
}

double llama_demand_bytes(const llama_demand *load, const llama_model *model, llama_sizes sizes) {
  const llama_config *c = &model->config;
  double kv = 2.0 * c->num_layers * c->num_kv_heads * c->head_dim * (double)load->keys;
  return (double)load->steps * used_weights(model) * sizes.weight + kv * sizes.cache;
}

double llama_demand_operations(const llama_demand *load, const llama_model *model) {
  const llama_config *c = &model->config;
  double attention = 4.0 * c->num_layers * c->num_q_heads * c->head_dim * (double)load->pairs;
  return 2.0 * used_weights(model) * (double)load->tokens + attention;
}

static double share(double work, double rate, double seconds) {
  double busy = rate > 0.0 && seconds > 0.0 ? work / rate / seconds : 0.0;
  return busy < 1.0 ? busy : 1.0;
}

llama_overlap llama_overlap_of(const llama_demand *load, const llama_model *model, llama_sizes sizes, double bytes_per_second,
                               double operations_per_second) {
  llama_overlap o;
  o.memory = share(llama_demand_bytes(load, model, sizes), bytes_per_second, load->seconds);
  o.tensor_cores = share(llama_demand_operations(load, model), operations_per_second, load->seconds);
  o.both = o.memory + o.tensor_cores > 1.0 ? o.memory + o.tensor_cores - 1.0 : 0.0;
  return o;
}

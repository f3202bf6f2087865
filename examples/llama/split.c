#include "examples/llama/split.h"

#include "examples/llama/error.h"

#define GROUP 8 /* elements that kernels take at once */

static int refuse(const char *what, int32_t count, int32_t ranks, int32_t unit) {
  return llama_fail("--tp is %d, and the model's %s is %d, expected a multiple of %d", ranks, what, count, unit * ranks);
}

int llama_split_check(const llama_config *whole, int32_t ranks) {
  if (whole->num_q_heads % ranks != 0)
    return refuse("num_attention_heads", whole->num_q_heads, ranks, 1);
  if (whole->num_kv_heads % ranks != 0 && ranks % whole->num_kv_heads != 0)
    return llama_fail("--tp is %d, and the model's num_key_value_heads is %d, expected a multiple or a divisor of it", ranks,
                      whole->num_kv_heads);
  if (ranks > 1 && whole->intermediate_size % (GROUP * ranks) != 0)
    return refuse("intermediate_size", whole->intermediate_size, ranks, GROUP);
  return 0;
}

static llama_span span_of(int64_t count, llama_split split) {
  return (llama_span){ split.rank * (count / split.ranks), count / split.ranks };
}

llama_span llama_split_q_heads(const llama_config *whole, llama_split split) { return span_of(whole->num_q_heads, split); }

llama_span llama_split_kv_heads(const llama_config *whole, llama_split split) {
  if (whole->num_kv_heads % split.ranks == 0)
    return span_of(whole->num_kv_heads, split);
  return (llama_span){ split.rank / (split.ranks / whole->num_kv_heads), 1 };
}

llama_span llama_split_inner(const llama_config *whole, llama_split split) { return span_of(whole->intermediate_size, split); }

llama_span llama_split_vocab(const llama_config *whole, llama_split split) {
  if (whole->vocab_size % (GROUP * split.ranks) != 0)
    return (llama_span){ 0, whole->vocab_size };
  return span_of(whole->vocab_size, split);
}

llama_config llama_split_config(const llama_config *whole, llama_split split) {
  llama_config part = *whole;
  part.num_q_heads = (int32_t)llama_split_q_heads(whole, split).count;
  part.num_kv_heads = (int32_t)llama_split_kv_heads(whole, split).count;
  part.intermediate_size = (int32_t)llama_split_inner(whole, split).count;
  return part;
}

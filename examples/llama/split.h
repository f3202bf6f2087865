/* Which part of a model a rank computes when several share it: some heads, some columns of the MLP, some rows of the output
 * projection. The rest is on all of them. */
#ifndef LLAMA_SPLIT_H
#define LLAMA_SPLIT_H

#include "examples/llama/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rank `rank` of `ranks`. {0, 1}: the whole model. */
typedef struct llama_split {
  int32_t rank, ranks;
} llama_split;

typedef struct llama_span {
  int64_t first, count;
} llama_span;

/* Whether a model of this shape can be shared by so many; else a message. */
int llama_split_check(const llama_config *whole, int32_t ranks);

/* Query heads, in order. */
llama_span llama_split_q_heads(const llama_config *whole, llama_split split);
/* The KV heads that these read; with more ranks than KV heads several ranks have the same one. */
llama_span llama_split_kv_heads(const llama_config *whole, llama_split split);
/* Of gate, up, and what goes into down. */
llama_span llama_split_inner(const llama_config *whole, llama_split split);
/* Tokens whose logits the rank computes: all of them, if their number cannot be split into groups of 8. */
llama_span llama_split_vocab(const llama_config *whole, llama_split split);

/* The shape of the rank's part: its heads and its MLP. vocab_size stays that of the model. */
llama_config llama_split_config(const llama_config *whole, llama_split split);

#ifdef __cplusplus
}
#endif
#endif

/* How much of a mixed step the GPU's memory and its tensor cores were busy, as reckoned from bytes and operations: only the time
 * is measured. */
#ifndef LLAMA_OVERLAP_H
#define LLAMA_OVERLAP_H

#include "examples/llama/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of some steps together. */
typedef struct llama_demand {
  int64_t steps, tokens;
  int64_t keys;  /* that attention reads in a layer, each request's once */
  int64_t pairs; /* of a query and a key that it sees */
  double seconds;
} llama_demand;

/* What one request with `computed` tokens in the cache adds to a step when `count` more are processed. */
void llama_demand_add_request(llama_demand *load, int32_t computed, int32_t count);
void llama_demand_add(llama_demand *sum, const llama_demand *step);

/* Bytes of a weight, and of an element of the cache. */
typedef struct llama_sizes {
  int32_t weight, cache;
} llama_sizes;

/* Bytes that the steps read at least: all weights in each step, and the keys and values. Operations: two for each weight and
 * token, the output projection counted for all tokens, and four for each pair, layer, query head and dimension. Windows count as
 * if they were as long as the sequence. */
double llama_demand_bytes(const llama_demand *load, const llama_model *model, llama_sizes sizes);
double llama_demand_operations(const llama_demand *load, const llama_model *model);

/* Shares of the time, 0 to 1. `both`: in so much of it, at least, both were busy. */
typedef struct llama_overlap {
  double memory, tensor_cores, both;
} llama_overlap;

/* bytes_per_second: what the memory does; operations_per_second: what the tensor cores do, 0 where that is not known. */
llama_overlap llama_overlap_of(const llama_demand *load, const llama_model *model, llama_sizes sizes, double bytes_per_second,
                               double operations_per_second);

#ifdef __cplusplus
}
#endif
#endif

/* Weights without a file: random matrices, norms of 1, made on the device. */
#ifndef LLAMA_RANDOM_WEIGHTS_H
#define LLAMA_RANDOM_WEIGHTS_H

#include "examples/llama/engine.h"

/* For a Llama without biases and head norms. The same seed gives the same values on every device, and each rank has its part of
 * what one alone would have. */
int llama_weights_random(const llama_config *config, llama_split split, llama_ops *ops, int32_t dtype, uint64_t seed,
                         cudaStream_t stream, llama_weights **weights);

#endif

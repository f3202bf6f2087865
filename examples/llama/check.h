/* --check: two runtimes with caches of their own in lockstep, one that replays graphs and one that runs every step eagerly at
 * the same padded counts, while requests come and go; half of them sample, at several temperatures. Every token and every
 * logit must have the same bits. Then, with --draft lookup, check_drafts.h, and the proofs of prove.h. */
#ifndef LLAMA_CHECK_H
#define LLAMA_CHECK_H

#include <stdbool.h>

#include "examples/llama/engine.h"

typedef struct llama_check_config {
  int32_t steps;
  int32_t chunk;
  uint64_t seed;
  bool show_progress;
} llama_check_config;

/* 0 when everything held; otherwise the message tells what did not. */
int llama_check(const llama_check_config *config, const llama_limits *limits, const llama_weights *weights, llama_ops *ops,
                cudaStream_t stream);

#define LLAMA_CHECK_MAX_PROMPT 64
#define LLAMA_CHECK_MAX_NEW 96

#endif

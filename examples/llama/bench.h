/* --bench: what a prompt and decode steps cost, as one table. */
#ifndef LLAMA_BENCH_H
#define LLAMA_BENCH_H

#include "examples/llama/bench_plan.h"
#include "examples/llama/engine.h"
#include "examples/llama/output.h"

typedef struct llama_bench_config {
  const char *model; /* its name in the table */
  int64_t parameters;
  int32_t chunk; /* prompt tokens of a step */
  int32_t pages; /* of the pool; 0: as the cases need */
  int32_t repetitions;
  uint64_t seed; /* of the prompts */
  llama_output *json;
  bool show_progress;
} llama_bench_config;

/* Runs the cases of `plan` that fit, in one runtime. `limits` has all but the sizes, which the cases give. */
int llama_bench(const llama_bench_config *config, llama_bench_plan *plan, const llama_limits *limits,
                const llama_weights *weights, llama_ops *ops, cudaStream_t stream);

#endif

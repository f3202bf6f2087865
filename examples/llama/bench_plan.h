/* What --bench measures: its cases, and which of them fit the model and the device. */
#ifndef LLAMA_BENCH_PLAN_H
#define LLAMA_BENCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "examples/llama/config.h"
#include "examples/llama/options.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LLAMA_BENCH_PROMPT 512 /* tokens */
#define LLAMA_BENCH_STEPS 128  /* decode steps that are timed as one */
#define LLAMA_BENCH_CHUNK 512  /* prompt tokens of a step, unless --chunk says otherwise */
#define LLAMA_BENCH_MAX_LIST 16
#define LLAMA_BENCH_MAX_CASES (1 + LLAMA_BENCH_MAX_LIST * LLAMA_BENCH_MAX_LIST)

typedef struct llama_bench_case {
  char test[32];      /* "pp512", "tg128 @ 4096" */
  bool prompt;        /* one request's prompt is timed, no decode step */
  int32_t requests;   /* at once */
  int32_t context;    /* tokens of each in the cache before the timed steps */
  int32_t tokens;     /* of each, that the timed steps compute */
  char left_out[160]; /* why it does not run; "": it does */
} llama_bench_case;

typedef struct llama_bench_plan {
  llama_bench_case cases[LLAMA_BENCH_MAX_CASES];
  int32_t num_cases;
  int32_t most_requests; /* of a case */
} llama_bench_plan;

/* The cases that the options ask for. Options that --bench would ignore are refused, and so are its own without it. */
int llama_bench_plan_make(const llama_options *options, llama_bench_plan *plan);

typedef struct llama_bench_bounds {
  int32_t page_size;
  int32_t pages;        /* of the pool, as asked for; 0: as the cases need */
  size_t element;       /* bytes of one in the cache */
  uint64_t room;        /* bytes for the cache */
  int32_t draft_tokens; /* guesses of a request in a step: its decode steps compute up to as many tokens more each */
} llama_bench_bounds;

/* What one runtime needs for all cases that run. */
typedef struct llama_bench_needs {
  int32_t requests, seq_len, pages;
} llama_bench_needs;

/* Leaves out what does not fit; fails if nothing is left. */
int llama_bench_plan_fit(llama_bench_plan *plan, const llama_config *config, const llama_bench_bounds *bounds,
                         llama_bench_needs *needs);

#ifdef __cplusplus
}
#endif
#endif

#ifndef LLAMA_OPTIONS_H
#define LLAMA_OPTIONS_H

#include <stdint.h>

typedef struct llama_strings {
  const char **items;
  int count;
} llama_strings;

typedef struct llama_options {
  const char *model, *device, *dtype, *mode, *kv, *kv_layout, *page_size;
  const char *prompts_file, *logits, *json, *metrics, *trace;
  llama_strings prompts, prompt_ids, force_ids;
  llama_strings paths; /* that were made absolute: freed with the options */
  int32_t tokens, concurrent, requests, chunk, pages, max_seq_len, max_changes;
  int32_t seed, steps; /* steps: of --check */
  float temperature;   /* 0: the likeliest token */
  int32_t check, ignore_eos, no_bos, texts, stats, quiet, help, version;
  const char *draft;
  int32_t draft_tokens, draft_compare, overcommit, batch_invariant;
  const char *random_weights, *bench_requests, *bench_contexts;
  int32_t bench, bench_repetitions;
  const char *join, *nccl;
  int32_t tp, rank, rank_timeout; /* rank -1: not given */
} llama_options;

/* Relative paths are resolved against BUILD_WORKING_DIRECTORY, if it is set: `bazel run` sets it. */
int llama_options_parse(int argc, char **argv, llama_options *options);
/* Memory of an option's value, to be freed with them. */
int llama_options_keep(llama_options *options, char *value);
void llama_options_free(llama_options *options);
void llama_options_help(void);

#endif

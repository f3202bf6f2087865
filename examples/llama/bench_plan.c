#include "examples/llama/bench_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"

#define RESERVED_PAGES 2 /* cgr's own */

/* ------------------------------------------------------------------------------------------------------------- options */

/* "1,8,64" */
static int parse_list(const char *option, const char *text, int32_t high, int32_t *values, int32_t *count) {
  const char *at = text;
  for (*count = 0; *count < LLAMA_BENCH_MAX_LIST; at++) {
    char *end;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    if (errno || end == at || value < 1 || value > high || (*end && *end != ','))
      break;
    values[(*count)++] = (int32_t)value;
    at = end;
    if (!*at)
      return 0;
  }
  return llama_fail("%s is %s, expected up to %d whole numbers from 1 to %d with commas between them", option,
                    *text ? text : "empty", LLAMA_BENCH_MAX_LIST, high);
}

/* The cases say what runs; other output than the table and --json has no place. */
static int refuse_ignored(const llama_options *o) {
  const struct {
    const char *name;
    bool given;
  } ignored[] = {
    { "--check", o->check },
    { "--prompt", o->prompts.count != 0 },
    { "--prompts", o->prompts_file },
    { "--prompt-ids", o->prompt_ids.count != 0 },
    { "--force-ids", o->force_ids.count != 0 },
    { "--tokens", o->tokens },
    { "--requests", o->requests },
    { "--concurrent", o->concurrent },
    { "--max-seq-len", o->max_seq_len },
    { "--logits", o->logits },
    { "--metrics", o->metrics },
    { "--trace", o->trace },
    { "--stats", o->stats },
    { "--temperature", o->temperature > 0 },
    { "--texts", o->texts },
    { "--overcommit", o->overcommit },
  };
  for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
    if (ignored[i].given)
      return llama_fail("%s: expected without --bench, which runs its own cases and writes its table alone", ignored[i].name);
  return 0;
}

static int refuse_alone(const llama_options *o) {
  const char *option = o->bench_requests ? "--bench-requests" : o->bench_contexts ? "--bench-contexts" : NULL;
  if (!option && o->bench_repetitions)
    option = "--bench-repetitions";
  return option ? llama_fail("%s: expected with --bench", option) : 0;
}

static void add_case(llama_bench_plan *plan, llama_bench_case c) {
  plan->cases[plan->num_cases++] = c;
  if (plan->most_requests < c.requests)
    plan->most_requests = c.requests;
}

int llama_bench_plan_make(const llama_options *o, llama_bench_plan *plan) {
  int32_t requests[LLAMA_BENCH_MAX_LIST], contexts[LLAMA_BENCH_MAX_LIST], num_requests = 0, num_contexts = 0;
  memset(plan, 0, sizeof(*plan));
  if (!o->bench)
    return refuse_alone(o);
  TRY(refuse_ignored(o));
  TRY(parse_list("--bench-requests", o->bench_requests ? o->bench_requests : "1,8,64", 4096, requests, &num_requests));
  TRY(parse_list("--bench-contexts", o->bench_contexts ? o->bench_contexts : "128,4096", 1 << 24, contexts, &num_contexts));
  llama_bench_case c = { .prompt = true, .requests = 1, .tokens = LLAMA_BENCH_PROMPT };
  snprintf(c.test, sizeof(c.test), "pp%d", LLAMA_BENCH_PROMPT);
  add_case(plan, c);
  for (int32_t i = 0; i < num_contexts; i++)
    for (int32_t k = 0; k < num_requests; k++) {
      c = (llama_bench_case){ .requests = requests[k], .context = contexts[i], .tokens = LLAMA_BENCH_STEPS };
      snprintf(c.test, sizeof(c.test), "tg%d @ %d", LLAMA_BENCH_STEPS, contexts[i]);
      add_case(plan, c);
    }
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------- fitting */

/* Tokens of a request at the end of the case. */
static int64_t longest_of(const llama_bench_case *c, const llama_bench_bounds *b) {
  return c->context + (int64_t)c->tokens * (c->prompt ? 1 : 1 + b->draft_tokens);
}

static int64_t pages_of(const llama_bench_case *c, const llama_bench_bounds *b) {
  return c->requests * ((longest_of(c, b) + b->page_size - 1) / b->page_size) + RESERVED_PAGES;
}

static void judge_case(llama_bench_case *c, const llama_config *config, const llama_bench_bounds *b) {
  char *why = c->left_out;
  const size_t size = sizeof(c->left_out);
  int64_t longest = longest_of(c, b), pages = pages_of(c, b);
  uint64_t page = 2 * (uint64_t)config->num_layers * (uint64_t)config->num_kv_heads * (uint64_t)config->head_dim *
                  (uint64_t)b->page_size * b->element;
  if (longest > config->max_positions)
    snprintf(why, size, "%lld tokens are more than the model's max_position_embeddings %d", (long long)longest,
             config->max_positions);
  else if (b->pages && pages > b->pages)
    snprintf(why, size, "it needs %lld pages, and --pages is %d", (long long)pages, b->pages);
  else if ((uint64_t)pages * page > b->room)
    snprintf(why, size, "its KV cache takes %.1f GB, and the device has room for %.1f GB", 1e-9 * (double)pages * (double)page,
             1e-9 * (double)b->room);
  else if (pages > 1 << 26)
    snprintf(why, size, "it needs %lld pages, and a pool has at most %d", (long long)pages, 1 << 26);
  else
    *why = 0;
}

int llama_bench_plan_fit(llama_bench_plan *plan, const llama_config *config, const llama_bench_bounds *b,
                         llama_bench_needs *needs) {
  *needs = (llama_bench_needs){ 0, 0, 0 };
  for (int32_t i = 0; i < plan->num_cases; i++) {
    llama_bench_case *c = &plan->cases[i];
    judge_case(c, config, b);
    if (*c->left_out)
      continue;
    int32_t longest = (int32_t)longest_of(c, b), pages = (int32_t)pages_of(c, b);
    needs->requests = needs->requests < c->requests ? c->requests : needs->requests;
    needs->seq_len = needs->seq_len < longest ? longest : needs->seq_len;
    needs->pages = needs->pages < pages ? pages : needs->pages;
  }
  if (needs->requests == 0)
    return llama_fail("--bench: no case fits; %s: %s", plan->cases[0].test, plan->cases[0].left_out);
  if (b->pages)
    needs->pages = b->pages;
  return 0;
}

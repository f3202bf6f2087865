#include "examples/llama/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/bench_plan.h"
#include "examples/llama/error.h"

typedef enum kind { SWITCH, NUMBER, TEXT, TEXTS } kind;

static const struct option {
  const char *name;
  kind kind;
  size_t offset;
  int32_t low, high;
  const char *value, *help;
} table[] = {
#define FIELD(name) offsetof(llama_options, name)
  { "--model", TEXT, FIELD(model), 0, 0, "DIR",
    "folder of a Llama, Mistral, Qwen2 or Qwen3 (config.json, safetensors); default: the one that comes along" },
  { "--prompt", TEXTS, FIELD(prompts), 0, 0, "TEXT", "a prompt; again for more (models whose tokens are bytes)" },
  { "--prompts", TEXT, FIELD(prompts_file), 0, 0, "FILE", "a prompt per line" },
  { "--prompt-ids", TEXTS, FIELD(prompt_ids), 0, 0, "1,2,3", "a prompt as token ids; again for more" },
  { "--force-ids", TEXTS, FIELD(force_ids), 0, 0, "4,5,6",
    "what follows the n-th prompt, fed token by token in place of what is sampled" },
  { "--tokens", NUMBER, FIELD(tokens), 1, 1 << 20, "N", "tokens to generate per request (80 to 200)" },
  { "--requests", NUMBER, FIELD(requests), 1, 1 << 20, "N", "requests in all; the prompts go round (one per prompt)" },
  { "--concurrent", NUMBER, FIELD(concurrent), 1, 4096, "N", "requests in one step (8; with --check 32)" },
  { "--chunk", NUMBER, FIELD(chunk), 1, 1 << 16, "N", "prompt tokens in one step (64; with --bench 512)" },
  { "--device", TEXT, FIELD(device), 0, 0, "NAME", "host, cuda, cuda:1, ...; default: a GPU if there is one" },
  { "--dtype", TEXT, FIELD(dtype), 0, 0, "TYPE", "bf16 (a GPU's only one) or fp32 (the host's default)" },
  { "--mode", TEXT, FIELD(mode), 0, 0, "MODE",
    "which steps replay graphs: default, none, piecewise, full, full-decode-only, full-and-piecewise" },
  { "--kv-layout", TEXT, FIELD(kv_layout), 0, 0, "nhd|hnd", "order of a page's tokens and heads (nhd)" },
  { "--page-size", TEXT, FIELD(page_size), 0, 0, "N", "tokens per page: 16, 32 or 64 (16)" },
  { "--pages", NUMBER, FIELD(pages), 3, 1 << 26, "N", "pages in the pool; default: enough for all that run at once" },
  { "--max-seq-len", NUMBER, FIELD(max_seq_len), 1, 1 << 24, "N", "longest sequence; default: what the requests need" },
  { "--max-changes", NUMBER, FIELD(max_changes), 1, 1 << 20, "N",
    "words of changed page tables that one step carries; more travel in steps of their own (cgr's default)" },
  { "--ignore-eos", SWITCH, FIELD(ignore_eos), 0, 0, NULL, "generate on after an end token" },
  { "--no-bos", SWITCH, FIELD(no_bos), 0, 0, NULL, "do not put the model's first token before a text" },
  { "--check", SWITCH, FIELD(check), 0, 0, NULL,
    "run a replaying and an eager runtime in lockstep and compare every bit, then audit and self-test the graphs; without --mode "
    "once in each mode" },
  { "--steps", NUMBER, FIELD(steps), 1, 1 << 30, "N", "steps of --check, in each mode (500)" },
  { "--seed", NUMBER, FIELD(seed), 0, INT32_MAX, "N", "of random weights and of the requests of --check (1)" },
  { "--random-weights", TEXT, FIELD(random_weights), 0, 0, "SHAPE",
    "1b, 8b (Llama 3) or tiny with random weights, in place of --model" },
  { "--bench", SWITCH, FIELD(bench), 0, 0, NULL, "measure a prompt of 512 tokens and 128 decode steps; print a table" },
  { "--bench-requests", TEXT, FIELD(bench_requests), 0, 0, "N,N", "requests that decode at once (1,8,64)" },
  { "--bench-contexts", TEXT, FIELD(bench_contexts), 0, 0, "N,N", "tokens of each in the cache before (128,4096)" },
  { "--bench-repetitions", NUMBER, FIELD(bench_repetitions), 1, 1000, "N", "timed runs of each case, after an untimed one (5)" },
  { "--logits", TEXT, FIELD(logits), 0, 0, "FILE", "write the logits of every token sampled (format: logits.h)" },
  { "--json", TEXT, FIELD(json), 0, 0, "FILE", "write tokens and statistics" },
  { "--stats", SWITCH, FIELD(stats), 0, 0, NULL, "print what cgr counts of each graph, with host times" },
  { "--metrics", TEXT, FIELD(metrics), 0, 0, "FILE", "write the same for Prometheus" },
  { "--trace", TEXT, FIELD(trace), 0, 0, "FILE",
    "write what host and device did for each step of the run, for ui.perfetto.dev; timestamps in the steps cost them some time" },
  { "--quiet", SWITCH, FIELD(quiet), 0, 0, NULL, "print no text" },
  { "--help", SWITCH, FIELD(help), 0, 0, NULL, "this" },
};

#define NUM_OPTIONS (sizeof(table) / sizeof(table[0]))

static int parse_number(const struct option *o, const char *text, int32_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno || end == text || *end || number < o->low || number > o->high)
    return llama_fail("%s is %s, expected a whole number from %d to %d", o->name, *text ? text : "empty", o->low, o->high);
  *value = (int32_t)number;
  return 0;
}

static int add_string(llama_strings *strings, const char *text) {
  const char **items = realloc(strings->items, (size_t)(strings->count + 1) * sizeof(*items));
  if (!items)
    return llama_fail("no memory");
  strings->items = items;
  items[strings->count++] = text;
  return 0;
}

static int apply(const struct option *o, const char *value, llama_options *options) {
  void *field = (char *)options + o->offset;
  switch (o->kind) {
  case SWITCH:
    *(int32_t *)field = 1;
    return 0;
  case NUMBER:
    return parse_number(o, value, field);
  case TEXT:
    *(const char **)field = value;
    return 0;
  case TEXTS:
    return add_string(field, value);
  }
  return 0;
}

static const struct option *find_option(const char *text, size_t length) {
  for (size_t i = 0; i < NUM_OPTIONS; i++)
    if (strlen(table[i].name) == length && memcmp(table[i].name, text, length) == 0)
      return &table[i];
  return NULL;
}

/* --name value and --name=value. */
int llama_options_parse(int argc, char **argv, llama_options *options) {
  memset(options, 0, sizeof(*options));
  options->steps = 500;
  options->seed = 1;
  for (int i = 1; i < argc; i++) {
    const char *equals = strchr(argv[i], '=');
    const struct option *o = find_option(argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i]));
    if (!o)
      return llama_fail("unknown option %s (--help lists them)", argv[i]);
    if (o->kind == SWITCH && equals)
      return llama_fail("%s: %s takes no value", argv[i], o->name);
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind != SWITCH && !value) {
      if (i + 1 == argc)
        return llama_fail("%s: needs a value", o->name);
      value = argv[++i];
    }
    TRY(apply(o, value, options));
  }
  if (!options->chunk)
    options->chunk = options->bench ? LLAMA_BENCH_CHUNK : 64;
  return 0;
}

void llama_options_free(llama_options *options) {
  free(options->prompts.items);
  free(options->prompt_ids.items);
  free(options->force_ids.items);
}

static const char claims[] =
    "\nEach token is the likeliest one: there is no temperature. A tokenizer.json is not read: models that have one take "
    "--prompt-ids.\n"
    "\nWhat is claimed of numbers:\n"
    "  A step has the same bits whether a graph replays it or it runs eagerly at the same padded size (--check).\n"
    "  A request's logits are not claimed to have the same bits alone and in a batch: how attention splits its sums depends\n"
    "  on all requests of a step, and so may a matrix product's kernel on a GPU. They differ by rounding, and so tokens differ\n"
    "  only where the best two logits are as close as that.\n";

void llama_options_help(void) {
  printf("Runs a language model through the CUDA graph runtime: generates text, then prints what each step cost.\n\n");
  for (size_t i = 0; i < NUM_OPTIONS; i++) {
    char left[40];
    snprintf(left, sizeof(left), "%s %s", table[i].name, table[i].value ? table[i].value : "");
    printf("  %-22s %s\n", left, table[i].help);
  }
  fputs(claims, stdout);
}

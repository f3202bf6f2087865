#include "examples/llama/options.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/bench_plan.h"
#include "examples/llama/draft.h"
#include "examples/llama/error.h"

typedef enum kind { GROUP, SWITCH, NUMBER, REAL, TEXT, TEXTS, PATH } kind;

/* What --help prints, in this order. A GROUP is a heading: its name is all it has. */
static const struct option {
  const char *name, *letter; /* "--model", and "-m" or NULL */
  kind kind;
  size_t offset;
  int32_t low, high;
  const char *value, *help; /* the help in 74 columns */
} table[] = {
#define FIELD(name) offsetof(llama_options, name)
  { "Model and prompts", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--model", "-m", PATH, FIELD(model), 0, 0, "DIR",
    "Llama, Mistral, Qwen2 or Qwen3; default: the bundled 1.8M-parameter model" },
  { "--prompt", "-p", TEXTS, FIELD(prompts), 0, 0, "TEXT", "a prompt; repeat for more (only for models whose tokens are bytes)" },
  { "--prompts", NULL, PATH, FIELD(prompts_file), 0, 0, "FILE", "a file with one prompt per line" },
  { "--prompt-ids", NULL, TEXTS, FIELD(prompt_ids), 0, 0, "1,2,3", "a prompt as token ids; repeat for more" },
  { "--force-ids", NULL, TEXTS, FIELD(force_ids), 0, 0, "4,5,6",
    "continue the n-th prompt with these ids instead of sampled tokens" },
  { "--no-bos", NULL, SWITCH, FIELD(no_bos), 0, 0, NULL, "do not put the model's first token before a text" },

  { "Sampling", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--tokens", "-n", NUMBER, FIELD(tokens), 1, 1 << 20, "N", "tokens to generate per request; default: 80 to 200" },
  { "--temperature", NULL, REAL, FIELD(temperature), 0, 100, "T",
    "divides the logits before sampling; 0: the likeliest token; default: 0.7" },
  { "--seed", NULL, NUMBER, FIELD(seed), 0, INT32_MAX, "N",
    "for sampling, random weights and the requests of --check; default: 1" },
  { "--ignore-eos", NULL, SWITCH, FIELD(ignore_eos), 0, 0, NULL, "continue after an end token" },

  { "Load", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--requests", NULL, NUMBER, FIELD(requests), 1, 1 << 20, "N", "how many requests to serve; default: one per prompt" },
  { "--concurrent", NULL, NUMBER, FIELD(concurrent), 1, 4096, "N", "requests in one step; default: 8, with --check 32" },
  { "--chunk", NULL, NUMBER, FIELD(chunk), 1, 1 << 16, "N", "prompt tokens in one step; default: 64, with --bench 512" },
  { "--max-seq-len", NULL, NUMBER, FIELD(max_seq_len), 1, 1 << 24, "N", "longest sequence; default: what the requests need" },

  { "--overcommit", NULL, SWITCH, FIELD(overcommit), 0, 0, NULL,
    "admit requests that the pool may not hold to their end: some begin again" },

  { "Guesses", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--draft", NULL, TEXT, FIELD(draft), 0, 0, "KIND",
    "lookup: what followed the last tokens before; lookup:wait: known results\n"
    "                          first; coin[:RATE]: rubbish, accepted at a rate (0.7), to measure" },
  { "--draft-tokens", NULL, NUMBER, FIELD(draft_tokens), 1, LLAMA_MAX_DRAFTS, "K", "guesses of a request in a step; default: 3" },
  { "--draft-compare", NULL, SWITCH, FIELD(draft_compare), 0, 0, NULL,
    "serve everything again without guesses: compare tokens and speed" },

  { "Device, graphs and KV cache", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--device", NULL, TEXT, FIELD(device), 0, 0, "NAME", "host, cuda, cuda:1, ...; default: a GPU if there is one" },
  { "--dtype", NULL, TEXT, FIELD(dtype), 0, 0, "TYPE",
    "bf16 or fp32; default: bf16 on a GPU (the only choice there), else fp32" },
  { "--mode", NULL, TEXT, FIELD(mode), 0, 0, "MODE", "none, piecewise, full, full-decode-only, full-and-piecewise or default" },
  { "--kv", NULL, TEXT, FIELD(kv), 0, 0, "TYPE", "fp8 (e4m3), fp8-e5m2, int8, or same as --dtype; default: same" },
  { "--kv-layout", NULL, TEXT, FIELD(kv_layout), 0, 0, "nhd|hnd", "order of tokens and heads in a page; default: nhd" },
  { "--page-size", NULL, TEXT, FIELD(page_size), 0, 0, "N", "tokens per page: 16, 32 or 64; default: 16" },
  { "--pages", NULL, NUMBER, FIELD(pages), 3, 1 << 26, "N", "pages in the pool; default: enough for the requests of one step" },
  { "--max-changes", NULL, NUMBER, FIELD(max_changes), 1, 1 << 20, "N",
    "words of page tables that one step may send; default: that of cgr" },
  { "--batch-invariant", NULL, SWITCH, FIELD(batch_invariant), 0, 0, NULL,
    "attention has the same bits alone and in any batch, at some cost" },

  { "Several GPUs", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--tp", NULL, NUMBER, FIELD(tp), 1, 64, "N", "ranks that share the model, a process and a GPU each; default: 1" },
  { "--nccl", NULL, PATH, FIELD(nccl), 0, 0, "FILE", "NCCL's shared library; default: libnccl.so.2, as the loader finds it" },
  { "--join", NULL, TEXT, FIELD(join), 0, 0, "NAME", "be one rank of those that meet under this name; torchrun starts it, say" },
  { "--rank", NULL, NUMBER, FIELD(rank), 0, 63, "N", "of --join; default: RANK in the environment (--tp: WORLD_SIZE)" },
  { "--rank-timeout", NULL, NUMBER, FIELD(rank_timeout), 100, 1 << 30, "MS",
    "for how long a step waits for other ranks; default: 30000" },

  { "Speed", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--bench", NULL, SWITCH, FIELD(bench), 0, 0, NULL, "measure a prompt of 512 tokens and 128 decode steps; print a table" },
  { "--random-weights", NULL, TEXT, FIELD(random_weights), 0, 0, "SHAPE",
    "1b or 8b (Llama 3) or tiny, with random weights, in place of --model" },
  { "--bench-requests", NULL, TEXT, FIELD(bench_requests), 0, 0, "1,8", "requests that decode at once; default: 1,8,64" },
  { "--bench-contexts", NULL, TEXT, FIELD(bench_contexts), 0, 0, "128", "tokens of each in the cache before; default: 128,4096" },
  { "--bench-repetitions", NULL, NUMBER, FIELD(bench_repetitions), 1, 1000, "N",
    "timed runs of each case, after an untimed one; default: 5" },

  { "Output", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--texts", NULL, SWITCH, FIELD(texts), 0, 0, NULL, "print the text of every request, not of the first alone" },
  { "--quiet", NULL, SWITCH, FIELD(quiet), 0, 0, NULL, "print no text" },
  { "--stats", NULL, SWITCH, FIELD(stats), 0, 0, NULL, "print a table of the graphs, and why each step ran as it did" },
  { "--json", NULL, PATH, FIELD(json), 0, 0, "FILE", "write tokens and statistics" },
  { "--metrics", NULL, PATH, FIELD(metrics), 0, 0, "FILE", "write statistics for Prometheus" },
  { "--trace", NULL, PATH, FIELD(trace), 0, 0, "FILE", "write a timeline of host and device for ui.perfetto.dev (slows steps)" },
  { "--logits", NULL, PATH, FIELD(logits), 0, 0, "FILE", "write the logits of every sampled token (format: logits.h)" },

  { "Self-check", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--check", NULL, SWITCH, FIELD(check), 0, 0, NULL,
    "compare replayed with eager steps bit for bit, in --mode or in each mode" },
  { "--steps", NULL, NUMBER, FIELD(steps), 1, 1 << 30, "N", "steps of --check in each mode; default: 500" },

  { "Help", NULL, GROUP, 0, 0, 0, NULL, NULL },
  { "--help", "-h", SWITCH, FIELD(help), 0, 0, NULL, "print this" },
  { "--version", NULL, SWITCH, FIELD(version), 0, 0, NULL, "print the version of cgr" },
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

static int parse_real(const struct option *o, const char *text, float *value) {
  char *end;
  double number = strtod(text, &end);
  if (end == text || *end || !(number >= o->low && number <= o->high))
    return llama_fail("%s is %s, expected a number from %d to %d", o->name, *text ? text : "empty", o->low, o->high);
  *value = (float)number;
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

static int keep(llama_strings *paths, char *value) {
  if (add_string(paths, value) == 0)
    return 0;
  free(value);
  return -1;
}

/* `bazel run` starts programs in a folder of its own, and names the folder that the user is in. */
static int parse_path(const char *text, const char **path, llama_strings *paths) {
  const char *folder = getenv("BUILD_WORKING_DIRECTORY");
  *path = text;
  if (!folder || !*folder || !*text || *text == '/')
    return 0;
  size_t size = strlen(folder) + strlen(text) + 2;
  char *whole = malloc(size);
  if (!whole)
    return llama_fail("no memory");
  snprintf(whole, size, "%s/%s", folder, text);
  *path = whole;
  return keep(paths, whole);
}

static int apply_option(const struct option *o, const char *value, llama_options *options) {
  void *field = (char *)options + o->offset;
  switch (o->kind) {
  case SWITCH:
    *(int32_t *)field = 1;
    return 0;
  case NUMBER:
    return parse_number(o, value, field);
  case REAL:
    return parse_real(o, value, field);
  case TEXT:
    *(const char **)field = value;
    return 0;
  case TEXTS:
    return add_string(field, value);
  case PATH:
    return parse_path(value, field, &options->paths);
  case GROUP:
    break;
  }
  return 0;
}

static bool is_name(const char *name, const char *text, size_t length) {
  return name && strlen(name) == length && memcmp(name, text, length) == 0;
}

static const struct option *find_option(const char *text, size_t length) {
  for (size_t i = 0; i < NUM_OPTIONS; i++)
    if (table[i].kind != GROUP && (is_name(table[i].name, text, length) || is_name(table[i].letter, text, length)))
      return &table[i];
  return NULL;
}

/* --name value, --name=value and -n value. */
int llama_options_parse(int argc, char **argv, llama_options *options) {
  *options = (llama_options){ .steps = 500, .seed = 1, .temperature = -1, .draft_tokens = 3, .rank = -1, .rank_timeout = 30000 };
  for (int i = 1; i < argc; i++) {
    const char *equals = strchr(argv[i], '=');
    const struct option *o = find_option(argv[i], equals ? (size_t)(equals - argv[i]) : strlen(argv[i]));
    if (!o)
      return llama_fail("%s is no option: --help lists them", *argv[i] ? argv[i] : "an empty argument");
    if (o->kind == SWITCH && equals)
      return llama_fail("%s: %s takes no value", argv[i], o->name);
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind != SWITCH && !value) {
      if (i + 1 == argc)
        return llama_fail("%s: expected a value after it, %s (see --help)", o->name, o->value);
      value = argv[++i];
    }
    TRY(apply_option(o, value, options));
  }
  if (!options->chunk)
    options->chunk = options->bench ? LLAMA_BENCH_CHUNK : 64;
  if (options->temperature < 0)
    options->temperature = options->bench ? 0 : 0.7f;
  return 0;
}

int llama_options_keep(llama_options *options, char *value) { return keep(&options->paths, value); }

void llama_options_free(llama_options *options) {
  for (int i = 0; i < options->paths.count; i++)
    free((void *)(uintptr_t)options->paths.items[i]);
  free(options->paths.items);
  free(options->prompts.items);
  free(options->prompt_ids.items);
  free(options->force_ids.items);
}

/* -------------------------------------------------------------------------------------------------------------------- help */

static const char usage[] =
    "Usage: llama [OPTIONS]\n\n"
    "Serves prompts with a language model, whose steps are CUDA graph replays, and prints what they cost.\n";

static const char notes[] =
    "\nExamples:\n"
    "  llama -p 'And God said' -n 100               continue a text of your own with the bundled model\n"
    "  llama -m DIR --prompt-ids 1,2,3              run another model: tokenizer.json is not read\n"
    "  llama --device host --mode piecewise         run on the processor, with graphs in pieces\n"
    "  llama --bench --random-weights 8b            measure this machine without a download\n"
    "  llama --check                                compare replayed and eager steps bit for bit\n"
    "\nA step has the same bits whether a graph replays it or it runs eagerly at the same padded size. A\n"
    "request's logits may differ by rounding between batches: how attention splits its sums, and which\n"
    "kernel multiplies matrices on a GPU, depends on all requests of a step. A request's random numbers\n"
    "depend on the seed, the request and the position alone.\n";

void llama_options_help(void) {
  fputs(usage, stdout);
  for (size_t i = 0; i < NUM_OPTIONS; i++) {
    const struct option *o = &table[i];
    char left[40];
    if (o->kind == GROUP) {
      printf("\n%s:\n", o->name);
      continue;
    }
    snprintf(left, sizeof(left), "%s%s%s %s", o->letter ? o->letter : "", o->letter ? ", " : "    ", o->name,
             o->value ? o->value : "");
    printf(strlen(left) > 23 ? "  %s\n%26s%s\n" : "  %-23s%.0s %s\n", left, "", o->help);
  }
  fputs(notes, stdout);
}

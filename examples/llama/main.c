/* Runs a Llama, Mistral, Qwen2 or Qwen3 through cgr: ./bazelw run //examples/llama -- --help */
#include <cgr/cgr.h>
#include <cgr/names.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/llama/bench.h"
#include "examples/llama/check.h"
#include "examples/llama/gain.h"
#include "examples/llama/intro.h"
#include "examples/llama/options.h"
#include "examples/llama/output.h"
#include "examples/llama/prompts.h"
#include "examples/llama/random_weights.h"
#include "examples/llama/report.h"
#include "examples/llama/serve.h"
#include "examples/llama/settings.h"
#include "examples/llama/shapes.h"
#include "examples/llama/summary.h"

typedef struct program {
  llama_options options;
  llama_model *model;
  cgr_device *device;
  cudaStream_t stream;
  llama_ops *ops;
  llama_weights *weights;
  llama_limits limits;
  int32_t dtype; /* cgr_dtype of weights and activations; NONE: what suits the device */
  llama_prompts prompts;
  llama_request *requests;
  int32_t num_requests;
  llama_engine *engine;
  llama_scheduler *scheduler;
  llama_meter meter;
  llama_host_time host_time;
  cgr_stats stats; /* of the requests' steps */
  bool on_host;
  double start; /* of the program */
  llama_bench_plan bench;
  llama_output json, logits, metrics, trace;
  llama_place place;
  llama_ranks *ranks;
} program;

static llama_split split_of(const program *p) { return (llama_split){ p->place.rank, p->place.ranks }; }

/* On a terminal; one rank does. */
static bool shows_progress(const program *p) { return isatty(STDERR_FILENO) && p->place.rank == 0; }

/* ------------------------------------------------------------------------------------------------------------ settings */

/* The model's tokens and limits, in the folder that was asked for. */
static int open_model(program *p) {
  char path[4096];
  const char *folder = p->options.model;
  if (p->options.random_weights)
    return folder ? llama_fail("--model and --random-weights are both given, expected one of them")
                  : llama_shape_open(p->options.random_weights, &p->model);
  if (!folder) {
    TRY(llama_find_bundled_model(path, sizeof(path)));
    folder = path;
  }
  TRY(llama_model_open(folder, &p->model));
  if (p->model->tie_broken)
    fprintf(stderr, "llama: %s: tie_word_embeddings is true, but lm_head.weight differs from the embedding: not tied\n", folder);
  return 0;
}

static int introduce(const program *p) {
  char name[256];
  llama_model_name(&p->options, name, sizeof(name));
  TRY(llama_intro_device(stdout, p->device));
  llama_intro_model(stdout, name, p->model, p->dtype);
  return 0;
}

/* With ranks, each has a GPU of its own. */
static void name_device(const program *p, char *gpu, size_t size, const char **name) {
  if (p->place.ranks == 1 || (*name && strcmp(*name, "host") == 0))
    return;
  snprintf(gpu, size, "cuda:%d", p->place.local);
  *name = gpu;
}

/* The part of the weights that this rank has. */
static int load_weights(program *p) {
  const llama_options *o = &p->options;
  if (o->random_weights)
    return llama_weights_random(&p->model->config, split_of(p), p->ops, p->dtype, (uint64_t)o->seed, p->stream, &p->weights);
  return llama_weights_load(p->model, split_of(p), p->device, p->dtype, &p->weights);
}

/* In a step. */
static int32_t most_samples(const program *p) { return p->limits.max_requests * (2 + p->limits.draft.count); }

/* What the ranks' collectives are. In each of them at most a step's hidden states are moved. */
static int find_collectives(program *p) {
  const size_t hidden = (size_t)p->model->config.hidden_size * cgr_dtype_size((cgr_dtype)p->dtype);
  const size_t states = (size_t)p->limits.max_tokens * hidden, samples = (size_t)most_samples(p) * sizeof(llama_best);
  p->ops->ranks = p->ranks;
  return p->ranks ? llama_ranks_find(p->ranks, p->device, p->on_host, states > samples ? states : samples, p->options.nccl) : 0;
}

static int open_device(program *p) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  char gpu[32];
  const char *name = p->options.device;
#ifndef LLAMA_CUDA
  name = name ? name : "host";
#endif
  name_device(p, gpu, sizeof(gpu), &name);
  TRY_CGR(cgr_device_open(name, NULL, &p->device));
  TRY_CGR(cgr_device_get_info(p->device, &info));
  TRY_CGR(cgr_stream_create(p->device, &p->stream));
  p->on_host = info.kind == CGR_DEVICE_KIND_HOST;
  if (p->dtype == CGR_DTYPE_NONE)
    p->dtype = p->on_host ? CGR_DTYPE_FP32 : CGR_DTYPE_BF16;
  if (!p->on_host && p->dtype != CGR_DTYPE_BF16)
    return llama_fail("--dtype is fp32, expected bf16 on a GPU");
  if (!p->options.bench) /* which prints its table alone */
    TRY(introduce(p));
  if (p->on_host)
    TRY(llama_ops_host(p->device, &p->ops));
  else
#ifdef LLAMA_CUDA
    TRY(llama_ops_cuda(p->device, p->limits.max_tokens, &p->ops));
#else
    return llama_fail("--device: this program was built without cuBLASLt, for the host alone");
#endif
  TRY(find_collectives(p));
  if (!p->options.bench)
    llama_ranks_introduce(stdout, p->ranks);
  return load_weights(p);
}

/* Limits of the runtime, from the options and the longest sequence that will run. */
static int set_limits(program *p, int32_t longest) {
  const llama_options *o = &p->options;
  llama_limits *n = &p->limits;
  n->max_requests = o->concurrent ? o->concurrent : o->check ? 32 : 8;
  n->max_tokens = n->max_requests * (1 + n->draft.count) + o->chunk;
  n->max_changes = o->max_changes;
  n->batch_invariant = o->batch_invariant;
  n->timing = o->trace ? 2 : 0;
  n->max_seq_len = o->max_seq_len ? o->max_seq_len : (longest + 63) / 64 * 64;
  if (o->pages && !o->max_seq_len && n->max_seq_len > (o->pages - 2) * n->page_size) /* no further than the pool reaches */
    n->max_seq_len = (o->pages - 2) * n->page_size;
  if (longest > n->max_seq_len)
    return llama_fail("a sequence has %d tokens, expected at most %d (%s)", longest, n->max_seq_len,
                      o->max_seq_len ? "--max-seq-len" : "--pages, without the two that cgr keeps, of --page-size tokens");
  if (longest > p->model->config.max_positions)
    return llama_fail("a sequence has %d tokens, expected at most the model's max_position_embeddings %d", longest,
                      p->model->config.max_positions);
  int64_t pages = (int64_t)n->max_requests * ((n->max_seq_len + n->page_size - 1) / n->page_size) + 2;
  n->num_pages = o->pages ? o->pages : pages < 1 << 26 ? (int32_t)pages : 1 << 26;
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------ requests */

/* Without --tokens the requests end at different times, as those of real clients do: 200 .. 80 tokens. */
static int32_t default_length(int32_t i) { return 200 - 24 * (5 * i % 6); }

static int make_requests(program *p, int32_t *longest) {
  const llama_options *o = &p->options;
  TRY(llama_prompts_make(o, p->model, &p->prompts));
  p->num_requests = o->requests ? o->requests : p->prompts.count;
  p->requests = calloc((size_t)p->num_requests, sizeof(*p->requests));
  if (!p->requests)
    return llama_fail("no memory");
  *longest = 1;
  for (int32_t i = 0; i < p->num_requests; i++) {
    const llama_prompt *prompt = &p->prompts.items[i % p->prompts.count];
    llama_request *r = &p->requests[i];
    r->id = i;
    r->seed = o->seed;
    r->temperature = o->temperature;
    r->rate = p->limits.draft.rate;
    r->prompt = prompt->tokens;
    r->num_prompt = prompt->num_tokens;
    r->forced = prompt->forced;
    r->max_new = prompt->forced ? prompt->num_forced + 1 : o->tokens ? o->tokens : default_length(i);
    r->generated = malloc((size_t)r->max_new * sizeof(*r->generated));
    if (!r->generated)
      return llama_fail("no memory");
    if (*longest < r->num_prompt + r->max_new - 1)
      *longest = r->num_prompt + r->max_new - 1;
  }
  return 0;
}

static llama_scheduler_config scheduler_config(const program *p) {
  const llama_config *c = &p->model->config;
  llama_scheduler_config s = { .runtimes = { p->engine->runtime }, .num_runtimes = 1 };
  llama_scheduler_set_limits(&s, &p->limits, p->options.chunk);
  s.overcommit = p->options.overcommit;
  s.num_eos = p->options.ignore_eos ? 0 : c->num_eos;
  memcpy(s.eos_tokens, c->eos_tokens, sizeof(s.eos_tokens));
  return s;
}

static int make_scheduler(program *p) {
  const llama_scheduler_config s = scheduler_config(p);
  TRY(llama_scheduler_create(&s, &p->scheduler));
  for (int32_t i = 0; i < p->num_requests; i++)
    TRY(llama_scheduler_add(p->scheduler, &p->requests[i]));
  return 0;
}

/* -------------------------------------------------------------------------------------------------------------- output */

/* "out.json" becomes "out.json.1": ranks but the first write files of their own. */
static int number_path(program *p, const char **path) {
  if (!*path)
    return 0;
  size_t size = strlen(*path) + 12;
  char *numbered = malloc(size);
  if (!numbered)
    return llama_fail("no memory");
  snprintf(numbered, size, "%s.%d", *path, p->place.rank);
  *path = numbered;
  return llama_options_keep(&p->options, numbered);
}

static void close_outputs(program *p) {
  llama_output_close(&p->json);
  llama_output_close(&p->logits);
  llama_output_close(&p->metrics);
  llama_output_close(&p->trace);
}

/* Before anything is loaded or run. */
static int open_outputs(program *p) {
  const llama_options *o = &p->options;
  const llama_output files[] = {
    { "--json", o->json, NULL }, { "--logits", o->logits, NULL }, { "--metrics", o->metrics, NULL }, { "--trace", o->trace, NULL }
  };
  llama_output *const outputs[] = { &p->json, &p->logits, &p->metrics, &p->trace };
  for (int i = 0; i < 4; i++)
    if (o->check && files[i].path)
      return llama_fail("%s: expected without --check, which writes no file", files[i].option);
  for (int i = 0; i < 4; i++) {
    TRY(llama_output_open(files[i].option, files[i].path, outputs[i]));
    for (int k = 0; k < i; k++)
      TRY(llama_output_differ(outputs[k], outputs[i]));
  }
  return 0;
}

static int number_outputs(program *p) {
  llama_options *o = &p->options;
  close_outputs(p);
  TRY(number_path(p, &o->json));
  TRY(number_path(p, &o->logits));
  TRY(number_path(p, &o->metrics));
  TRY(number_path(p, &o->trace));
  return open_outputs(p);
}

static int write_json(program *p) {
  FILE *out = p->json.file;
  if (!out)
    return 0;
  TRY(llama_output_begin(&p->json));
  fprintf(out, "{\n");
  TRY(llama_report_json(out, &p->meter, p->engine->runtime, &p->stats, &p->host_time));
  if (p->limits.draft.count || p->options.overcommit)
    llama_summary_drafts_json(out, llama_scheduler_drafts(p->scheduler));
  fprintf(out, ",\n\"requests\": [");
  for (int32_t i = 0; i < p->num_requests; i++) {
    fprintf(out, "%s\n  {\"prompt\": [", i ? "," : "");
    llama_tokens_print(out, p->requests[i].prompt, p->requests[i].num_prompt, 0);
    fprintf(out, "], \"generated\": [");
    llama_tokens_print(out, p->requests[i].generated, p->requests[i].num_generated, 0);
    fprintf(out, "], \"ended\": \"%s\"}", p->requests[i].ended_early ? "eos" : "limit");
  }
  fprintf(out, "]\n}\n");
  return llama_output_close(&p->json);
}

static int write_metrics(program *p) {
  if (!p->metrics.file)
    return 0;
  TRY(llama_output_begin(&p->metrics));
  TRY(llama_report_metrics(p->metrics.file, p->engine->runtime));
  return llama_output_close(&p->metrics);
}

/* ---------------------------------------------------------------------------------------------------------------- jobs */

static int serve(program *p) {
  llama_logits logits;
  llama_trace trace;
  llama_text text = { .request = NULL };
  bool quiet = p->options.quiet;
  TRY(llama_output_begin(&p->logits));
  TRY(llama_output_begin(&p->trace));
  int result = llama_logits_open(p->logits.file, p->logits.path, p->engine, &logits);
  int traced = llama_trace_open(p->trace.file, p->engine, &trace);
  if (result == 0 && traced == 0) {
    if (!quiet)
      llama_text_begin(stdout, &p->requests[0], p->prompts.bytes, &text);
    result = llama_serve(p->engine, p->scheduler, &p->meter, &logits, &trace, &text, quiet && shows_progress(p));
  }
  llama_text_end(&text);
  llama_logits_close(&logits);
  llama_trace_close(&trace);
  if (result != 0 || traced != 0)
    return -1;
  TRY(llama_output_close(&p->trace));
  return llama_output_close(&p->logits);
}

/* "requests   12, at most 8 in a step" */
static void introduce_requests(const program *p) {
  printf("requests   %d, at most %d in a step", p->num_requests, p->limits.max_requests);
  if (!p->options.quiet)
    fputs(p->num_requests == 1 ? "; its text:\n" : "; the text of request 0:\n", stdout);
  printf("\n");
  fflush(stdout);
}

static int report_drafts(program *p) {
  const llama_scheduler_config s = scheduler_config(p);
  if (p->limits.draft.count || p->options.overcommit)
    llama_summary_drafts(stdout, llama_scheduler_drafts(p->scheduler));
  return p->options.draft_compare ? llama_gain_measure(stdout, p->engine, &s, &p->meter, p->requests, p->num_requests) : 0;
}

/* Of each rank, one after the other. */
static int report_tables(program *p) {
  FILE *out = p->place.out ? p->place.out : stdout;
  for (int32_t r = 0; r < p->place.ranks; r++) {
    if (r == p->place.rank) {
      if (p->place.ranks > 1)
        fprintf(out, "\nrank %d of %d\n", r, p->place.ranks);
      TRY(llama_report_tables(out, &p->meter, p->engine->runtime));
      fflush(out);
    }
    TRY(llama_ranks_barrier(p->ranks));
  }
  return 0;
}

/* The steps of the comparison are none of the requests': what counts those is read before. */
static int report(program *p) {
  for (int32_t i = 0; i < p->num_requests; i++)
    p->meter.generated += (uint64_t)p->requests[i].num_generated;
  if (p->options.stats) {
    TRY(report_tables(p));
    const llama_sizes sizes = { (int32_t)cgr_dtype_size((cgr_dtype)p->dtype),
                                (int32_t)cgr_dtype_size(llama_cache_dtype(&p->limits, p->weights)) };
    if (p->place.ranks == 1) /* of whole weights */
      TRY(llama_report_overlap(stdout, &p->meter, p->engine->runtime, p->model, sizes));
  }
  TRY(write_metrics(p));
  TRY_CGR(cgr_runtime_stats(p->engine->runtime, &p->stats));
  if (p->place.ranks == 1) /* it takes as many steps as there is time for, and ranks must take the same */
    TRY(llama_host_time_measure(p->engine, p->num_requests, p->on_host, &p->host_time));
  printf("\n");
  llama_summary_print(stdout, &p->meter, &p->host_time, p->on_host);
  TRY(report_drafts(p));
  return write_json(p);
}

static int generate(program *p) {
  int32_t longest = 1;
  TRY(make_requests(p, &longest));
  TRY(set_limits(p, longest));
  TRY(open_device(p));
  TRY(llama_engine_create(&p->limits, p->weights, p->ops, p->stream, &p->engine));
  TRY(llama_engine_capture(p->engine));
  TRY(make_scheduler(p));
  TRY(llama_intro_engine(stdout, p->engine, llama_now() - p->start));
  introduce_requests(p);
  TRY(serve(p));
  if (p->options.texts && !p->options.quiet)
    llama_texts_print(stdout, p->requests, 1, p->num_requests, p->prompts.bytes);
  return report(p);
}

/* In the mode that was asked for, or in every one that has graphs. */
static int run_check(program *p) {
  static const cgr_graph_mode modes[] = { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE,
                                          CGR_MODE_FULL_DECODE_ONLY };
  TRY(set_limits(p, LLAMA_CHECK_MAX_PROMPT + LLAMA_CHECK_MAX_NEW));
  TRY(open_device(p));
  const llama_check_config config = { p->options.steps, p->options.chunk, (uint64_t)p->options.seed, shows_progress(p) };
  if (p->options.mode)
    return llama_check(&config, &p->limits, p->weights, p->ops, p->stream);
  for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
    p->limits.graph_mode = modes[i];
    TRY(llama_check(&config, &p->limits, p->weights, p->ops, p->stream));
  }
  return 0;
}

static int run_bench(program *p) {
  const llama_options *o = &p->options;
  char name[256];
  llama_model_name(o, name, sizeof(name));
  const llama_bench_config config = {
    .model = name,
    .parameters = llama_parameters(p->model),
    .chunk = o->chunk,
    .pages = o->pages,
    .repetitions = o->bench_repetitions ? o->bench_repetitions : 5,
    .seed = (uint64_t)o->seed,
    .json = &p->json,
    .show_progress = !o->quiet && shows_progress(p),
  };
  p->limits.max_requests = p->bench.most_requests;
  p->limits.max_tokens = p->bench.most_requests * (1 + p->limits.draft.count);
  if (p->limits.max_tokens < o->chunk)
    p->limits.max_tokens = o->chunk;
  TRY(open_device(p));
  return llama_bench(&config, &p->bench, &p->limits, p->weights, p->ops, p->stream);
}

static int run(program *p, int argc, char **argv) {
  TRY(llama_options_parse(argc, argv, &p->options));
  if (p->options.help) {
    llama_options_help();
    return 0;
  }
  if (p->options.version) {
    printf("%s\n", cgr_build_info());
    return 0;
  }
  TRY(llama_read_names(&p->options, &p->limits, &p->dtype));
  TRY(llama_read_draft(&p->options, &p->limits.draft));
  TRY(llama_bench_plan_make(&p->options, &p->bench));
  TRY(open_outputs(p));
  TRY(open_model(p));
  if (p->options.tp)
    TRY(llama_split_check(&p->model->config, p->options.tp));
  TRY(llama_launch(argc, argv, &p->options, &p->place));
  if (p->place.is_parent)
    return 0;
  TRY(llama_split_check(&p->model->config, p->place.ranks)); /* which may come from the environment */
  TRY(llama_ranks_join(&p->place, p->options.rank_timeout, &p->ranks));
  if (p->place.rank > 0) /* only now: a rank that fails before it has met the others lets them wait */
    TRY(number_outputs(p));
  TRY(p->options.bench ? run_bench(p) : p->options.check ? run_check(p) : generate(p));
  return llama_ranks_barrier(p->ranks); /* none leaves before all are done */
}

static void finish(program *p) {
  close_outputs(p);
  llama_scheduler_destroy(p->scheduler);
  llama_engine_destroy(p->engine);
  llama_weights_free(p->device, p->weights);
  if (p->ops)
    p->ops->close(p->ops);
  llama_ranks_leave(p->ranks);
  if (p->stream)
    cgr_stream_destroy(p->device, p->stream);
  cgr_device_close(p->device);
  llama_model_close(p->model);
  for (int32_t i = 0; p->requests && i < p->num_requests; i++)
    free(p->requests[i].generated);
  free(p->requests);
  llama_prompts_free(&p->prompts);
  llama_options_free(&p->options);
  llama_meter_free(&p->meter);
}

int main(int argc, char **argv) {
  static program p;
  p.stats = (cgr_stats)CGR_STATS_INIT;
  p.start = llama_now();
  int result = run(&p, argc, argv);
  if (fflush(stdout) != 0 || ferror(stdout))
    result = result == 0 ? llama_fail("standard output cannot be written") : result;
  if (result != 0 && p.place.ranks > 1 && !p.place.is_parent) {
    fprintf(stderr, "llama: rank %d: %s\n", p.place.rank, llama_message());
    llama_ranks_linger(p.ranks);
  } else if (result != 0) {
    fprintf(stderr, "llama: %s\n", llama_message());
  }
  finish(&p);
  return result == 0 ? 0 : 1;
}

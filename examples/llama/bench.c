#include "examples/llama/bench.h"

#include <cgr/names.h>
#include <cgr/tracing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/json.h"
#include "examples/llama/random.h"
#include "examples/llama/room.h"
#include "examples/llama/serve.h"

typedef struct row {
  double ms, p99, tokens_per_second;
} row;

/* The same requests with guesses that a coin accepts. */
typedef struct guesses {
  row row;
  double verify_ms; /* a step whose guesses are all rejected */
  double tokens;    /* of a request in a step */
  double replayed;  /* share of the steps */
} guesses;

typedef struct bench {
  const llama_bench_config *config;
  llama_bench_plan *plan;
  llama_limits limits;
  const llama_weights *weights;
  llama_engine *engine;
  llama_scheduler *scheduler;     /* one of these */
  llama_scheduler *schedulers[2]; /* without and with guesses; the second may be NULL */
  llama_request *requests;        /* [max_requests] */
  int32_t *prompts;               /* [max_requests][max_seq_len] */
  int32_t *generated;             /* [max_requests][tokens_kept] */
  llama_meter untimed;
  double sum_us;                   /* of one all-reduce; 0: not measured */
  float rate;                      /* of the coin, for requests that are added */
  row rows[LLAMA_BENCH_MAX_CASES]; /* of the cases */
  guesses guesses[LLAMA_BENCH_MAX_CASES];
} bench;

/* -------------------------------------------------------------------------------------------------------------- running */

/* Runs until every request has ended or is held. */
static int serve_requests(bench *b, llama_meter *meter) {
  llama_logits no_logits = { 0 };
  llama_trace no_trace = { 0 };
  llama_text no_text = { 0 };
  return llama_serve(b->engine, b->scheduler, meter, &no_logits, &no_trace, &no_text, false);
}

/* Of a request: its first, and those of the timed steps. */
static int32_t tokens_kept(const bench *b) { return 1 + LLAMA_BENCH_STEPS * (1 + b->limits.draft.count); }

static int add_request(bench *b, int32_t i, int32_t num_prompt, int32_t max_new, int32_t hold) {
  llama_request *r = &b->requests[i];
  *r = (llama_request){ .id = i, .num_prompt = num_prompt, .max_new = max_new, .hold = hold };
  r->prompt = b->prompts + (size_t)i * (size_t)b->limits.max_seq_len;
  r->generated = b->generated + (size_t)i * (size_t)tokens_kept(b);
  r->rate = b->rate;
  return llama_scheduler_add(b->scheduler, r);
}

/* The whole prompt of one request, up to its first token. */
static int run_prompt(bench *b, const llama_bench_case *c, llama_meter *meter) {
  TRY(add_request(b, 0, c->tokens, 1, 0));
  return serve_requests(b, meter);
}

/* Of the case, from the requests of one run: tokens for each of them and step. */
static double tokens_per_step(const bench *b, const llama_bench_case *c) {
  int64_t tokens = 0;
  for (int32_t i = 0; i < c->requests; i++)
    tokens += b->requests[i].num_generated - 1;
  return (double)tokens / c->requests / c->tokens;
}

/* With guesses the requests run for as many steps as without, so that none waits for another at the end. */
static int run_steps(bench *b, const llama_bench_case *c, llama_meter *meter) {
  llama_logits no_logits = { 0 };
  llama_trace no_trace = { 0 };
  llama_text no_text = { 0 };
  llama_loop loop = { .engine = b->engine, .scheduler = b->scheduler, .meter = meter };
  loop.logits = &no_logits;
  loop.trace = &no_trace;
  loop.text = &no_text;
  for (int32_t i = 0; i < c->requests; i++)
    b->requests[i].hold = tokens_kept(b);
  return llama_loop_steps(&loop, (uint64_t)c->tokens);
}

/* The timed steps of requests that are held at the end of their prompts; then takes them back to that place. */
static int run_decodes(bench *b, const llama_bench_case *c, llama_meter *meter, double *tokens) {
  for (int32_t i = 0; i < c->requests; i++)
    b->requests[i].hold = 1 + c->tokens;
  TRY(b->scheduler == b->schedulers[1] ? run_steps(b, c, meter) : serve_requests(b, meter));
  *tokens = tokens_per_step(b, c);
  for (int32_t i = 0; i < c->requests; i++) {
    b->requests[i].hold = 1;
    TRY(llama_scheduler_rewind(b->scheduler, &b->requests[i]));
  }
  return serve_requests(b, &b->untimed);
}

static int begin_decodes(bench *b, const llama_bench_case *c) {
  for (int32_t i = 0; i < c->requests; i++)
    TRY(add_request(b, i, c->context, b->scheduler == b->schedulers[1] ? tokens_kept(b) : 1 + c->tokens, 1));
  return serve_requests(b, &b->untimed);
}

static int end_decodes(bench *b, const llama_bench_case *c) {
  for (int32_t i = 0; i < c->requests; i++)
    TRY(llama_scheduler_cancel(b->scheduler, &b->requests[i]));
  return serve_requests(b, &b->untimed); /* no step: the scheduler takes the pages back */
}

static void show_progress_of(const bench *b, const llama_bench_case *c, int32_t repetition) {
  if (!b->config->show_progress)
    return;
  fprintf(stderr, "\r%s, %d request%s: %d of %d ", c->test, c->requests, llama_plural(c->requests), repetition,
          b->config->repetitions);
  fflush(stderr);
}

/* The first repetition is not timed. */
static int repeat_case(bench *b, const llama_bench_case *c, llama_meter *meter, llama_series *walls, double *tokens) {
  for (int32_t i = 0; i <= b->config->repetitions; i++) {
    llama_meter *used = i == 0 ? &b->untimed : meter;
    show_progress_of(b, c, i);
    TRY(c->prompt ? run_prompt(b, c, used) : run_decodes(b, c, used, tokens));
    if (i > 0)
      TRY(llama_series_add(walls, used->seconds));
  }
  return 0;
}

/* The time of a prompt is that of all its steps. */
static row make_row(const llama_bench_case *c, llama_meter *meter, llama_series *walls, double tokens) {
  double wall = 1e-3 * (double)llama_quantile(walls, 0.5);
  row r;
  r.ms = c->prompt ? wall : wall / c->tokens;
  r.p99 = 1e-3 * (double)llama_quantile(c->prompt ? walls : &meter->intervals, 0.99);
  r.tokens_per_second = wall > 0.0 ? 1e3 * (double)c->requests * (double)c->tokens * tokens / wall : 0.0;
  return r;
}

/* `*tokens`: of a request in a step of the timed ones, 1 without guesses. */
static int run_case(bench *b, const llama_bench_case *c, row *r, double *tokens) {
  llama_meter meter = { 0 };
  *tokens = 1.0;
  llama_series walls = { 0 };
  int result = c->prompt ? 0 : begin_decodes(b, c);
  if (result == 0)
    result = repeat_case(b, c, &meter, &walls, tokens);
  if (result == 0 && !c->prompt)
    result = end_decodes(b, c);
  *r = make_row(c, &meter, &walls, *tokens);
  llama_meter_free(&meter);
  free(walls.values);
  return result == 0 ? 0 : llama_fail_in(c->test);
}

/* Steps that ran eagerly, and all steps. */
static int count_steps(const bench *b, uint64_t *eager, uint64_t *steps) {
  cgr_stats stats = CGR_STATS_INIT;
  TRY_CGR(cgr_runtime_stats(b->engine->runtime, &stats));
  *eager = 0;
  *steps = stats.steps;
  for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
    *eager += stats.by_reason[CGR_KIND_NONE][reason];
  return 0;
}

/* Once with a coin that accepts nothing, for what a verifying step takes, and once with the coin that was asked for. */
static int run_guesses(bench *b, const llama_bench_case *c, guesses *g) {
  uint64_t eager[2], steps[2];
  double none;
  TRY(count_steps(b, &eager[0], &steps[0]));
  b->scheduler = b->schedulers[1];
  b->rate = 0.0f;
  TRY(run_case(b, c, &g->row, &none));
  g->verify_ms = g->row.ms;
  b->rate = b->limits.draft.rate;
  TRY(run_case(b, c, &g->row, &g->tokens));
  b->scheduler = b->schedulers[0];
  TRY(count_steps(b, &eager[1], &steps[1]));
  g->replayed = 1.0 - (double)(eager[1] - eager[0]) / (double)(steps[1] - steps[0]);
  return 0;
}

/* --------------------------------------------------------------------------------------------------------------- output */

static void print_head(const bench *b, const cgr_device_info *info) {
  const char *driver = getenv("CGR_DRIVER"), *commit = getenv("CGR_COMMIT");
  int version = cgr_version(), cuda = info->driver_version;
  printf("# llama --bench, cgr %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  printf("# device: %s\n", info->name);
  if (driver && *driver)
    printf("# driver: %s\n", driver);
  else if (cuda)
    printf("# driver: CUDA %d.%d\n", cuda / 1000, cuda % 1000 / 10);
  else
    printf("# driver: none\n");
  printf("# commit: %s\n", commit && *commit ? commit : "unknown");
  for (int32_t i = 0; i < b->plan->num_cases; i++) {
    const llama_bench_case *c = &b->plan->cases[i];
    if (*c->left_out)
      printf("# left out: %s, %d request%s: %s\n", c->test, c->requests, llama_plural(c->requests), c->left_out);
  }
  printf("| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |\n");
  printf("|---|---:|---|---|---|---:|---:|---:|---:|\n");
}

/* "8.03 B" */
static void name_parameters(int64_t count, char *text, size_t size) {
  double n = (double)count;
  snprintf(text, size, "%.2f %s", n >= 1e9 ? 1e-9 * n : n >= 1e6 ? 1e-6 * n : 1e-3 * n, n >= 1e9 ? "B" : n >= 1e6 ? "M" : "K");
}

static int name_mode(const bench *b, const char **name) {
  cgr_graph_mode mode;
  TRY_CGR(cgr_runtime_graph_mode(b->engine->runtime, &mode, NULL));
  *name = cgr_graph_mode_name(mode);
  return 0;
}

static int print_row(const bench *b, const llama_bench_case *c, const row *r) {
  char parameters[32], dtype[48];
  const char *mode;
  const cgr_dtype weights = (cgr_dtype)b->weights->dtype, cache = llama_cache_dtype(&b->limits, b->weights);
  TRY(name_mode(b, &mode));
  snprintf(dtype, sizeof(dtype), "%s%s%s", cgr_dtype_name(weights), cache == weights ? "" : ", KV ",
           cache == weights ? "" : cgr_dtype_name(cache));
  name_parameters(b->config->parameters, parameters, sizeof(parameters));
  if (b->config->show_progress)
    fprintf(stderr, "\r%60s\r", "");
  printf("| %s | %s | %s | %s | %s | %d |", b->config->model, parameters, dtype, mode, c->test, c->requests);
  printf(" %.*f | %.*f | %.*f |\n", r->ms < 1.0 ? 3 : 2, r->ms, r->p99 < 1.0 ? 3 : 2, r->p99,
         r->tokens_per_second < 1000.0 ? 1 : 0, r->tokens_per_second);
  fflush(stdout);
  return 0;
}

static double gain_of(const row *plain, const guesses *g) {
  return plain->tokens_per_second > 0.0 ? g->row.tokens_per_second / plain->tokens_per_second : 0.0;
}

/* By the times of steps whose guesses were all rejected. */
static double predicted_gain_of(const row *plain, const guesses *g) {
  return g->verify_ms > 0.0 ? g->tokens * plain->ms / g->verify_ms : 0.0;
}

/* A row of the table, and what it means. */
static int print_guesses(const bench *b, const llama_bench_case *c, const row *plain, const guesses *g) {
  const llama_draft *draft = &b->limits.draft;
  llama_bench_case named = *c;
  snprintf(named.test, sizeof(named.test), "%.20s, K = %d", c->test, draft->count);
  TRY(print_row(b, &named, &g->row));
  printf("# guesses: %s, %d request%s: coin %.2f, %.3f tokens of a request in a step (%.3f expected); ", c->test, c->requests,
         llama_plural(c->requests), (double)draft->rate, g->tokens, llama_expected_tokens(draft->rate, draft->count));
  printf("a step that verifies takes %.3f of a plain one; gain %.3f, predicted %.3f; %.2f%% of the steps replayed\n",
         plain->ms > 0.0 ? g->verify_ms / plain->ms : 0.0, gain_of(plain, g), predicted_gain_of(plain, g), 100.0 * g->replayed);
  fflush(stdout);
  return 0;
}

static cJSON *json_guesses(const bench *b, const row *plain, const guesses *g) {
  cJSON *item = cJSON_CreateObject();
  cJSON_AddNumberToObject(item, "draft_tokens", b->limits.draft.count);
  cJSON_AddNumberToObject(item, "rate", (double)b->limits.draft.rate);
  cJSON_AddNumberToObject(item, "ms_per_step", g->row.ms);
  cJSON_AddNumberToObject(item, "verify_ms", g->verify_ms);
  cJSON_AddNumberToObject(item, "tokens_per_step", g->tokens);
  cJSON_AddNumberToObject(item, "tokens_per_second", g->row.tokens_per_second);
  cJSON_AddNumberToObject(item, "gain", gain_of(plain, g));
  cJSON_AddNumberToObject(item, "predicted_gain", predicted_gain_of(plain, g));
  cJSON_AddNumberToObject(item, "replayed", g->replayed);
  return item;
}

static cJSON *json_case(const bench *b, int32_t index) {
  const llama_bench_case *c = &b->plan->cases[index];
  const row *r = &b->rows[index];
  cJSON *item = cJSON_CreateObject();
  cJSON_AddStringToObject(item, "test", c->test);
  cJSON_AddNumberToObject(item, "requests", c->requests);
  if (*c->left_out) {
    cJSON_AddStringToObject(item, "left_out", c->left_out);
    return item;
  }
  cJSON_AddNumberToObject(item, "ms_per_step", r->ms);
  cJSON_AddNumberToObject(item, "p99_ms", r->p99);
  cJSON_AddNumberToObject(item, "tokens_per_second", r->tokens_per_second);
  if (b->schedulers[1] && !c->prompt)
    cJSON_AddItemToObject(item, "guesses", json_guesses(b, r, &b->guesses[index]));
  return item;
}

/* With several ranks: what the sums of one decode step of one request take by themselves. */
static int measure_sums(bench *b) {
  enum { LAUNCHES = 32 };
  const llama_engine *e = b->engine;
  const llama_config *c = &b->weights->config;
  llama_series series = { 0 };
  float values[LAUNCHES];
  if (!e->team || !e->ops->sums)
    return 0;
  const int32_t sums = 2 * c->num_layers;
  if (e->ops->sums(e->ops, e->team, e->normed, (uint64_t)c->hidden_size, sums, LAUNCHES, values, e->stream) != CGR_OK)
    return llama_fail("a graph of %d all-reduces cannot be launched", sums);
  for (int i = 0; i < LAUNCHES; i++)
    TRY(llama_series_add(&series, 1e-6 * (double)values[i]));
  b->sum_us = (double)llama_quantile(&series, 0.5);
  printf("# %d all-reduces of %zu bytes alone in a graph: %.2f us each\n", sums,
         (size_t)c->hidden_size * cgr_dtype_size((cgr_dtype)b->weights->dtype), b->sum_us);
  free(series.values);
  return 0;
}

static int write_json(const bench *b, const cgr_device_info *info) {
  const char *mode, *commit = getenv("CGR_COMMIT");
  llama_output *out = b->config->json;
  if (!out->file)
    return 0;
  TRY(name_mode(b, &mode));
  cJSON *page = cJSON_CreateObject(), *cases = cJSON_AddArrayToObject(page, "cases");
  cJSON_AddStringToObject(page, "build", cgr_build_info());
  cJSON_AddStringToObject(page, "device", info->name);
  cJSON_AddNumberToObject(page, "driver", info->driver_version);
  cJSON_AddStringToObject(page, "commit", commit && *commit ? commit : "unknown");
  cJSON_AddStringToObject(page, "model", b->config->model);
  cJSON_AddNumberToObject(page, "parameters", (double)b->config->parameters);
  cJSON_AddStringToObject(page, "dtype", cgr_dtype_name((cgr_dtype)b->weights->dtype));
  cJSON_AddStringToObject(page, "kv_dtype", cgr_dtype_name(llama_cache_dtype(&b->limits, b->weights)));
  cJSON_AddStringToObject(page, "mode", mode);
  cJSON_AddNumberToObject(page, "ranks", b->weights->split.ranks);
  cJSON_AddNumberToObject(page, "all_reduce_us", b->sum_us);
  for (int32_t i = 0; i < b->plan->num_cases; i++)
    cJSON_AddItemToArray(cases, json_case(b, i));
  char *text = cJSON_Print(page);
  cJSON_Delete(page);
  if (!text)
    return llama_fail("no memory");
  int result = llama_output_begin(out);
  if (result == 0)
    fprintf(out->file, "%s\n", text);
  free(text);
  return result == 0 ? llama_output_close(out) : -1;
}

/* ------------------------------------------------------------------------------------------------------ making, ending */

/* Sizes of the runtime, from the cases that fit next to the weights. */
static int set_limits(bench *b, const llama_ranks *ranks, const cgr_device_info *info) {
  llama_limits *n = &b->limits;
  llama_bench_needs needs;
  const size_t element = cgr_dtype_size(llama_cache_dtype(n, b->weights));
  uint64_t room = llama_room(info), activations = llama_engine_activations(n, b->weights);
  room = room > activations ? room - activations : 0;
  TRY(llama_ranks_least(ranks, &room)); /* all run the same cases */
  const llama_bench_bounds bounds = { n->page_size, b->config->pages, element, room, n->draft.count };
  TRY(llama_bench_plan_fit(b->plan, &b->weights->config, &bounds, &needs));
  n->max_requests = needs.requests;
  n->max_tokens = needs.requests * (1 + n->draft.count);
  if (n->max_tokens < b->config->chunk)
    n->max_tokens = b->config->chunk;
  n->max_seq_len = needs.seq_len;
  n->num_pages = needs.pages;
  return 0;
}

static int make_requests(bench *b) {
  const size_t requests = (size_t)b->limits.max_requests, length = (size_t)b->limits.max_seq_len;
  llama_random random = { b->config->seed };
  b->requests = calloc(requests, sizeof(*b->requests));
  b->prompts = malloc(requests * length * sizeof(*b->prompts));
  b->generated = malloc(requests * (size_t)tokens_kept(b) * sizeof(*b->generated));
  if (!b->requests || !b->prompts || !b->generated)
    return llama_fail("no memory");
  for (size_t i = 0; i < requests * length; i++)
    b->prompts[i] = llama_random_between(&random, 0, b->weights->config.vocab_size - 1);
  return 0;
}

static int make_engine(bench *b, llama_ops *ops, cudaStream_t stream) {
  const llama_limits *n = &b->limits;
  TRY(make_requests(b));
  TRY(llama_engine_create(n, b->weights, ops, stream, &b->engine));
  TRY(llama_engine_capture(b->engine));
  llama_scheduler_config s = { .runtimes = { b->engine->runtime }, .num_runtimes = 1 };
  llama_scheduler_set_limits(&s, n, b->config->chunk);
  if (n->draft.count)
    TRY(llama_scheduler_create(&s, &b->schedulers[1]));
  s.draft.count = 0;
  TRY(llama_scheduler_create(&s, &b->schedulers[0]));
  b->scheduler = b->schedulers[0];
  return 0;
}

static int run_cases(bench *b, llama_ops *ops, cudaStream_t stream) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  TRY_CGR(cgr_device_get_info(ops->device, &info));
  TRY(set_limits(b, ops->ranks, &info));
  print_head(b, &info);
  TRY(make_engine(b, ops, stream));
  for (int32_t i = 0; i < b->plan->num_cases; i++) {
    const llama_bench_case *c = &b->plan->cases[i];
    if (*c->left_out)
      continue;
    double one;
    TRY(run_case(b, c, &b->rows[i], &one));
    TRY(print_row(b, c, &b->rows[i]));
    if (!b->schedulers[1] || c->prompt)
      continue;
    TRY(run_guesses(b, c, &b->guesses[i]));
    TRY(print_guesses(b, c, &b->rows[i], &b->guesses[i]));
  }
  TRY(measure_sums(b));
  return write_json(b, &info);
}

int llama_bench(const llama_bench_config *config, llama_bench_plan *plan, const llama_limits *limits,
                const llama_weights *weights, llama_ops *ops, cudaStream_t stream) {
  bench *b = calloc(1, sizeof(*b));
  if (!b)
    return llama_fail("no memory");
  b->config = config;
  b->plan = plan;
  b->limits = *limits;
  b->weights = weights;
  int result = run_cases(b, ops, stream);
  for (int i = 0; i < 2; i++)
    llama_scheduler_destroy(b->schedulers[i]);
  llama_engine_destroy(b->engine);
  llama_meter_free(&b->untimed);
  free(b->requests);
  free(b->prompts);
  free(b->generated);
  free(b);
  return result;
}

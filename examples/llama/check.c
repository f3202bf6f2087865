#include "examples/llama/check.h"

#include <cgr/inspect.h>
#include <cgr/names.h>
#include <cgr/tracing.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/check_drafts.h"
#include "examples/llama/prove.h"
#include "examples/llama/random.h"
#include "examples/llama/scheduler.h"
#include "examples/llama/serve.h"

#define PERIOD 16 /* steps from one wave of arrivals and departures to the next */

typedef struct client {
  llama_request request;
  int32_t prompt[LLAMA_CHECK_MAX_PROMPT];
  int32_t generated[LLAMA_CHECK_MAX_NEW];
  bool used;
} client;

typedef struct counts {
  int64_t steps, by_kind[3], padded, arrivals, cancelled, tokens;
} counts;

typedef struct check {
  llama_engine *engines[2]; /* replaying, eager */
  llama_scheduler *scheduler;
  client *clients;
  int32_t num_clients;
  uint64_t measured[2]; /* tokens of the steps before the first: those of a cache whose factors are measured */
  float *logits[2];     /* pinned [max_requests][vocab] */
  llama_random random;
  counts counts;
} check;

/* ------------------------------------------------------------------------------------------------------------- clients */

static int arrive(check *c) {
  client *found = NULL;
  for (int32_t i = 0; i < c->num_clients && !found; i++)
    if (!c->clients[i].used || c->clients[i].request.state == LLAMA_RELEASED)
      found = &c->clients[i];
  if (!found)
    return 0;
  int32_t vocab = c->engines[0]->weights->config.vocab_size;
  /* The smaller of two draws: short prompts are more common. */
  int32_t a = llama_random_between(&c->random, 1, LLAMA_CHECK_MAX_PROMPT);
  int32_t b = llama_random_between(&c->random, 1, LLAMA_CHECK_MAX_PROMPT);
  memset(found, 0, sizeof(*found));
  found->used = true;
  found->request.id = (int32_t)c->counts.arrivals++;
  found->request.prompt = found->prompt;
  found->request.num_prompt = a < b ? a : b;
  found->request.max_new = llama_random_between(&c->random, 1, LLAMA_CHECK_MAX_NEW);
  found->request.generated = found->generated;
  found->request.rate = c->engines[0]->limits.draft.rate;
  /* Half of them take the likeliest tokens. */
  found->request.seed = llama_random_between(&c->random, 0, INT32_MAX - 1);
  found->request.temperature =
      0.25f * (float)llama_random_between(&c->random, 0, 1) * (float)llama_random_between(&c->random, 1, 6);
  for (int32_t i = 0; i < found->request.num_prompt; i++)
    found->prompt[i] = llama_random_between(&c->random, 0, vocab - 1);
  return llama_scheduler_add(c->scheduler, &found->request);
}

static int remove_client(check *c) {
  int32_t first = llama_random_between(&c->random, 0, c->num_clients - 1);
  for (int32_t i = 0; i < c->num_clients; i++) {
    client *who = &c->clients[(first + i) % c->num_clients];
    if (!who->used || who->request.state != LLAMA_RUNNING)
      continue;
    c->counts.cancelled++;
    return llama_scheduler_cancel(c->scheduler, &who->request);
  }
  return 0;
}

/* Changes the load to another number of requests from time to time; in between, requests end by themselves. */
static int change_load(check *c) {
  int32_t alive = llama_scheduler_running(c->scheduler) + llama_scheduler_waiting(c->scheduler);
  if (c->counts.steps % PERIOD != 0 && alive > 0)
    return 0;
  int32_t target = llama_random_between(&c->random, 1, c->engines[0]->limits.max_requests);
  for (; alive < target; alive++)
    TRY(arrive(c));
  for (; alive > target; alive--)
    TRY(remove_client(c));
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------- comparing */

static int same_tokens(const check *c, const cgr_step_result *a, const cgr_step_result *b, int32_t n) {
  long long step = (long long)c->counts.steps;
  if (a->num_requests != n || b->num_requests != n)
    return llama_fail("step %lld: results of %d requests replayed, %d eager, expected %d", step, a->num_requests, b->num_requests,
                      n);
  for (int32_t i = 0; i < n; i++) {
    if (a->tags[i] != b->tags[i] || a->num_tokens[i] != b->num_tokens[i])
      return llama_fail("step %lld, request %d of %d: %d tokens for tag %llx replayed, %d for %llx eager", step, i, n,
                        a->num_tokens[i], (unsigned long long)a->tags[i], b->num_tokens[i], (unsigned long long)b->tags[i]);
    for (int32_t j = 0; j < a->num_tokens[i]; j++) {
      int32_t x = a->tokens[i * a->token_stride + j], y = b->tokens[i * b->token_stride + j];
      if (x != y)
        return llama_fail("step %lld, request %d of %d: token %d replayed, %d eager", step, i, n, x, y);
    }
  }
  return 0;
}

static int same_logits(const check *c, size_t n) {
  size_t vocab = (size_t)c->engines[0]->weights->vocab.count;
  for (size_t i = 0; i < n * vocab; i++)
    if (!isfinite(c->logits[1][i]))
      return llama_fail("step %lld, row %zu of %zu, logit %zu is %g, expected a finite number", (long long)c->counts.steps,
                        i / vocab, n, i % vocab, (double)c->logits[1][i]);
    else if (memcmp(&c->logits[0][i], &c->logits[1][i], sizeof(float)) != 0)
      return llama_fail("step %lld, row %zu of %zu, logit %zu: %.9g replayed, %.9g eager", (long long)c->counts.steps, i / vocab,
                        n, i % vocab, (double)c->logits[0][i], (double)c->logits[1][i]);
  return 0;
}

/* Rows of logits of `requests` in a step of this key. */
static size_t logit_rows(const check *c, int32_t requests, const cgr_key *key) {
  return (size_t)requests * (size_t)llama_engine_width(c->engines[0], key);
}

/* One step on one runtime; its logits come back after it. */
static int run(check *c, int which, const llama_work *work, const cgr_key *forced, cgr_step *step) {
  llama_engine *e = c->engines[which];
  llama_cost cost;
  cgr_batch batch = work->batch;
  batch.rows = work->rows[which];
  batch.forced_key = forced;
  TRY(llama_step(e, &batch, step, &cost));
  if (step->state != CGR_STEP_LAUNCHED)
    return llama_fail("%s", cgr_last_message());
  size_t bytes = logit_rows(c, batch.num_requests, &step->key) * (size_t)e->weights->vocab.count * sizeof(float);
  TRY_CGR(cgr_copy(e->device, c->logits[which], e->logits, bytes, e->stream));
  return 0;
}

static void count(check *c, const cgr_step *step) {
  const cgr_key *key = &step->key;
  c->counts.steps++;
  c->counts.tokens += step->num_tokens;
  c->counts.by_kind[key->kind]++;
  c->counts.padded +=
      key->kind != CGR_KIND_NONE && (step->num_requests < key->num_requests || step->num_tokens < key->num_tokens);
}

static int lockstep(check *c) {
  llama_work work;
  cgr_step replayed = CGR_STEP_INIT, eager = CGR_STEP_INIT;
  cgr_step_result a = CGR_STEP_RESULT_INIT, b = CGR_STEP_RESULT_INIT;
  TRY(change_load(c));
  TRY(llama_scheduler_compose(c->scheduler, &work));
  int64_t records = c->engines[0]->records;
  TRY(run(c, 0, &work, NULL, &replayed));
  if (replayed.key.kind != CGR_KIND_NONE && c->engines[0]->records != records)
    return llama_fail("step %lld: a replay called the model's code", (long long)c->counts.steps);
  cgr_key key = replayed.key;
  key.kind = CGR_KIND_NONE;
  TRY(run(c, 1, &work, &key, &eager));
  if (eager.key.kind != CGR_KIND_NONE || eager.key.num_tokens != key.num_tokens || eager.key.num_requests != key.num_requests)
    return llama_fail("step %lld: the eager runtime ran graph kind %s for %d tokens and %d requests, expected %s for %d and %d",
                      (long long)c->counts.steps, cgr_graph_kind_name((cgr_graph_kind)eager.key.kind), eager.key.num_tokens,
                      eager.key.num_requests, cgr_graph_kind_name(CGR_KIND_NONE), key.num_tokens, key.num_requests);
  const uint64_t seq[2] = { replayed.mark.seq, eager.mark.seq };
  TRY(llama_scheduler_launched(c->scheduler, seq));
  TRY(llama_wait(c->engines[0], replayed.mark, &a));
  TRY(llama_wait(c->engines[1], eager.mark, &b));
  TRY_CGR(cgr_stream_synchronize(c->engines[0]->device, c->engines[0]->stream)); /* for the logits */
  TRY(same_tokens(c, &a, &b, work.batch.num_requests));
  TRY(same_logits(c, logit_rows(c, work.batch.num_requests, &key)));
  count(c, &replayed);
  return llama_scheduler_completed(c->scheduler, &a);
}

/* ------------------------------------------------------------------------------------------------------------- demands */

static uint64_t sum(const uint64_t *values, int n) {
  uint64_t total = 0;
  for (int i = 0; i < n; i++)
    total += values[i];
  return total;
}

static int counters_add_up(const check *c, int which) {
  cgr_stats stats = CGR_STATS_INIT;
  TRY_CGR(cgr_runtime_stats(c->engines[which]->runtime, &stats));
  uint64_t total = sum(&stats.by_reason[0][0], 3 * 16);
  if (total != stats.steps)
    return llama_fail("runtime %d: the reasons add up to %llu of %llu steps", which, (unsigned long long)total,
                      (unsigned long long)stats.steps);
  for (int kind = CGR_KIND_PIECEWISE; kind <= CGR_KIND_FULL; kind++) {
    uint64_t counted = sum(stats.by_reason[kind], 16), seen = which == 0 ? (uint64_t)c->counts.by_kind[kind] : 0;
    if (counted != seen)
      return llama_fail("runtime %d: %llu %s steps counted, %llu seen", which, (unsigned long long)counted,
                        cgr_graph_kind_name((cgr_graph_kind)kind), (unsigned long long)seen);
  }
  uint64_t tokens = stats.real_tokens - c->measured[which];
  if (tokens != (uint64_t)c->counts.tokens)
    return llama_fail("runtime %d: %llu tokens counted, %lld seen", which, (unsigned long long)tokens,
                      (long long)c->counts.tokens);
  return 0;
}

static int graphs_add_up(const check *c, int32_t *used) {
  uint64_t replays = 0;
  cgr_runtime *runtime = c->engines[0]->runtime;
  int32_t num_keys = 0;
  *used = 0;
  TRY_CGR(cgr_runtime_num_keys(runtime, &num_keys));
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
    TRY_CGR(cgr_runtime_graph_stats(runtime, i, &graph));
    if (graph.records != 1)
      return llama_fail("the graph for %d requests: its capture called the model's code %d times", graph.key.num_requests,
                        graph.records);
    replays += graph.replays;
    *used += graph.replays > 0;
  }
  uint64_t seen = (uint64_t)(c->counts.by_kind[CGR_KIND_FULL] + c->counts.by_kind[CGR_KIND_PIECEWISE]);
  if (replays != seen)
    return llama_fail("%llu replays counted, %llu seen", (unsigned long long)replays, (unsigned long long)seen);
  return 0;
}

static int judge(const check *c) {
  const counts *n = &c->counts;
  int32_t used = 0;
  TRY(counters_add_up(c, 0));
  TRY(counters_add_up(c, 1));
  TRY(graphs_add_up(c, &used));
  cgr_graph_mode mode;
  TRY_CGR(cgr_runtime_graph_mode(c->engines[0]->runtime, &mode, NULL));
  printf("Graph mode %s: %lld step%s compared with eager ones, %lld request%s (%lld left early), %lld token%s: every token and "
         "logit has the same bits.\n",
         cgr_graph_mode_name(mode), (long long)n->steps, llama_plural(n->steps), (long long)n->arrivals,
         llama_plural(n->arrivals), (long long)n->cancelled, (long long)n->tokens, llama_plural(n->tokens));
  printf("  %lld full, %lld piecewise and %lld eager steps; %d different graph%s; %lld step%s smaller than the graph\n",
         (long long)n->by_kind[CGR_KIND_FULL], (long long)n->by_kind[CGR_KIND_PIECEWISE], (long long)n->by_kind[CGR_KIND_NONE],
         used, llama_plural(used), (long long)n->padded, llama_plural(n->padded));
  fflush(stdout);
  return mode != CGR_MODE_NONE && used == 0 ? llama_fail("no graph was replayed: nothing was compared") : 0;
}

/* ------------------------------------------------------------------------------------------------------ making, ending */

static int make(check *c, const llama_check_config *config, const llama_limits *limits, const llama_weights *weights,
                llama_ops *ops, cudaStream_t stream) {
  llama_limits eager = *limits;
  eager.graph_mode = CGR_MODE_NONE;
  TRY(llama_engine_create(limits, weights, ops, stream, &c->engines[0]));
  TRY(llama_engine_create(&eager, weights, ops, stream, &c->engines[1]));
  TRY(llama_engine_capture(c->engines[0]));
  TRY(llama_engine_capture(c->engines[1]));
  llama_scheduler_config s = { .runtimes = { c->engines[0]->runtime, c->engines[1]->runtime }, .num_runtimes = 2 };
  llama_scheduler_set_limits(&s, limits, config->chunk);
  TRY(llama_scheduler_create(&s, &c->scheduler));
  c->random.state = config->seed;
  c->num_clients = 2 * limits->max_requests;
  c->clients = calloc((size_t)c->num_clients, sizeof(*c->clients));
  if (!c->clients)
    return llama_fail("no memory");
  for (int i = 0; i < 2; i++) {
    cgr_stats stats = CGR_STATS_INIT;
    TRY_CGR(cgr_runtime_stats(c->engines[i]->runtime, &stats));
    c->measured[i] = stats.real_tokens;
    void *rows = NULL;
    size_t rows_each = 1 + (size_t)limits->draft.count;
    size_t bytes = (size_t)limits->max_requests * rows_each * (size_t)weights->vocab.count * sizeof(float);
    TRY_CGR(cgr_memory_alloc_pinned(ops->device, bytes, &rows));
    c->logits[i] = rows;
  }
  return 0;
}

static int run_all(check *c, const llama_check_config *config) {
  while (c->counts.steps < config->steps) {
    TRY(lockstep(c));
    if (config->show_progress && c->counts.steps % 16 == 0)
      fprintf(stderr, "\r%lld of %d steps ", (long long)c->counts.steps, config->steps);
  }
  if (config->show_progress)
    fprintf(stderr, "\r%40s\r", "");
  return judge(c);
}

int llama_check(const llama_check_config *config, const llama_limits *limits, const llama_weights *weights, llama_ops *ops,
                cudaStream_t stream) {
  check c = { 0 };
  printf("Checking graph mode %s: %d step%s, each replayed and eager ...\n",
         cgr_graph_mode_name((cgr_graph_mode)limits->graph_mode), config->steps, llama_plural(config->steps));
  fflush(stdout);
  int result = make(&c, config, limits, weights, ops, stream);
  if (result == 0)
    result = run_all(&c, config);
  llama_scheduler_destroy(c.scheduler);
  llama_engine_destroy(c.engines[0]);
  llama_engine_destroy(c.engines[1]);
  for (int i = 0; i < 2; i++)
    cgr_memory_free_pinned(ops->device, c.logits[i]);
  free(c.clients);
  if (result == 0 && limits->draft.kind == LLAMA_DRAFT_LOOKUP)
    result = llama_check_drafts(config, limits, weights, ops, stream);
  if (result == 0 && limits->graph_mode != CGR_MODE_NONE)
    result = llama_prove(limits, weights, ops, stream);
  return result == 0 ? 0 : llama_fail_in("check");
}

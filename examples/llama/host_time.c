#include "examples/llama/host_time.h"

#include <cgr/inspect.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/llama/meter.h"
#include "examples/llama/serve.h"

/* A round is a block of eager steps and a block of replayed ones. In each block the first step does not count, if there are more:
 * the host's caches hold what the other kind of step used. Nor does the first round. */
enum { ROUNDS = 5, BLOCK = 8, LAUNCHES = 32 };
#define MAX_SECONDS 2.0

typedef struct trial {
  llama_engine *engine;
  int32_t requests, rounds, block, pages_each;
  int32_t *rows, *lens, *tokens; /* [requests] */
  cgr_batch batch;
  bool on_host;  /* the device is this processor */
  cgr_step step; /* the last one */
  llama_series replayed, eager, bare;
} trial;

/* Sequences of one token of prompt and one for each step. */
static void fit_batch(trial *t, int32_t requests) {
  const llama_limits *n = &t->engine->limits;
  int64_t pool = n->num_pages - 2, tokens = pool * n->page_size < n->max_seq_len ? pool * n->page_size : n->max_seq_len;
  int32_t most = (int32_t)((tokens - 1) / 2); /* pairs of steps */
  t->block = most >= ROUNDS * BLOCK ? BLOCK : most >= ROUNDS ? most / ROUNDS : 1;
  t->rounds = most < ROUNDS ? most : ROUNDS;
  t->pages_each = (2 * t->rounds * t->block + 1 + n->page_size - 1) / n->page_size;
  t->requests = requests < n->max_requests ? requests : n->max_requests;
  if (t->requests > pool / t->pages_each)
    t->requests = (int32_t)(pool / t->pages_each);
  if (t->rounds < 1)
    t->requests = 0;
}

static int open_rows(trial *t) {
  const llama_engine *e = t->engine;
  size_t n = (size_t)t->requests;
  int32_t page = 2; /* 0 and 1 are cgr's */
  t->rows = calloc(n, sizeof(*t->rows));
  t->lens = calloc(n, sizeof(*t->lens));
  t->tokens = calloc(n, sizeof(*t->tokens));
  if (!t->rows || !t->lens || !t->tokens)
    return llama_fail("no memory");
  for (int32_t i = 0; i < t->requests; i++) {
    TRY_CGR(cgr_request_open(e->runtime, 0, &t->rows[i]));
    for (int32_t k = 0; k < t->pages_each; k++, page++)
      TRY_CGR(cgr_request_set_pages(e->runtime, t->rows[i], 0, k, &page, 1));
    t->lens[i] = 1;
  }
  t->batch = (cgr_batch)CGR_BATCH_INIT;
  t->batch.num_requests = t->requests;
  t->batch.rows = t->rows;
  t->batch.query_lens = t->lens;
  t->batch.tokens = t->tokens;
  return 0;
}

static int wait_step(trial *t, cgr_mark mark) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  return mark.seq ? llama_cgr(cgr_step_wait(t->engine->runtime, mark, -1, &result), "cgr_step_wait") : 0;
}

/* What this thread has used of a processor: threads of a host device may take it meanwhile. */
static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* As in serve.c, a step is launched before the host waits for the one before it. */
static int run_step(trial *t, llama_series *series) {
  const cgr_mark before = t->step.mark;
  llama_cost cost;
  t->step = (cgr_step)CGR_STEP_INIT;
  const double start = processor_seconds();
  TRY(llama_step(t->engine, &t->batch, &t->step, &cost));
  const double used = processor_seconds() - start;
  if (t->step.state != CGR_STEP_LAUNCHED)
    return llama_fail("%s", cgr_last_message());
  TRY(wait_step(t, before));
  t->batch.query_lens = NULL; /* after the prompt: one token each, which is on the device */
  t->batch.tokens = NULL;
  return series ? llama_series_add(series, t->on_host ? used : cost.prepare + cost.launch) : 0;
}

static int run_block(trial *t, bool graphs, bool counts) {
  TRY_CGR(cgr_runtime_enable_graphs(t->engine->runtime, graphs));
  for (int32_t i = 0; i < t->block; i++)
    TRY(run_step(t, !counts || (i == 0 && t->block > 1) ? NULL : graphs ? &t->replayed : &t->eager));
  return 0;
}

/* Blocks of eager and of replayed steps in turn; at the end `step` is a replayed one, if there are any. */
static int run_rounds(trial *t) {
  double start = llama_now();
  TRY(run_step(t, NULL));
  for (int32_t i = 0; i < t->rounds; i++) {
    bool counts = i > 0 || t->rounds == 1;
    TRY(run_block(t, false, counts));
    TRY(run_block(t, true, counts));
    if (i > 0 && llama_now() - start > MAX_SECONDS)
      break;
  }
  return wait_step(t, t->step.mark);
}

/* The nodes of the graph that `key` names; 0 if a replay launches several graphs. */
static int find_nodes(const llama_engine *e, const cgr_key *key, int64_t *nodes) {
  int32_t num_keys = 0;
  *nodes = 0;
  TRY_CGR(cgr_runtime_num_keys(e->runtime, &num_keys));
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
    TRY_CGR(cgr_runtime_graph_stats(e->runtime, i, &graph));
    if (memcmp(&graph.key, key, sizeof(*key)) == 0 && graph.num_pieces == 1)
      *nodes = graph.num_nodes;
  }
  return 0;
}

static int measure_bare(trial *t, llama_host_time *time) {
  llama_ops *ops = t->engine->ops;
  float values[LAUNCHES];
  TRY(find_nodes(t->engine, &t->step.key, &time->nodes));
  if (!ops->bare_launch || time->nodes == 0)
    return 0;
  if (ops->bare_launch(ops, (int32_t)time->nodes, LAUNCHES, values, t->engine->stream) != CGR_OK)
    return llama_fail("a graph of %lld empty kernels cannot be launched", (long long)time->nodes);
  for (int i = 0; i < LAUNCHES; i++)
    TRY(llama_series_add(&t->bare, 1e-6 * (double)values[i]));
  return 0;
}

static int measure_steps(trial *t, llama_host_time *time) {
  TRY(open_rows(t));
  TRY(run_rounds(t));
  time->requests = t->requests;
  time->eager = llama_quantile(&t->eager, 0.5);
  if (t->step.key.kind == CGR_KIND_NONE)
    return 0;
  time->replayed = llama_quantile(&t->replayed, 0.5);
  TRY(measure_bare(t, time));
  time->bare = llama_quantile(&t->bare, 0.5);
  return 0;
}

int llama_host_time_measure(llama_engine *engine, int32_t requests, bool on_host, llama_host_time *time) {
  trial t = { .engine = engine, .on_host = on_host };
  *time = (llama_host_time){ .requests = 0 };
  fit_batch(&t, requests);
  if (t.requests < 1)
    return 0;
  int result = measure_steps(&t, time);
  for (int32_t i = 0; result == 0 && i < t.requests; i++)
    result = llama_cgr(cgr_request_close(engine->runtime, t.rows[i]), "cgr_request_close");
  free(t.rows);
  free(t.lens);
  free(t.tokens);
  free(t.replayed.values);
  free(t.eager.values);
  free(t.bare.values);
  return result;
}

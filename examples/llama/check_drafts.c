#include "examples/llama/check_drafts.h"

#include <cgr/names.h>
#include <cgr/tracing.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/random.h"
#include "examples/llama/scheduler.h"
#include "examples/llama/serve.h"

/* The most by which rounding moves a logit: what compare_rules.py measured of fp32; of bf16, of logits below 16. */
#define ROUNDING_FP32 5e-4
#define ROUNDING_BF16 0.125
#define MOST_EAGER 0.005 /* share of the steps */

typedef struct client {
  llama_request guessing, plain;
  int32_t prompt[LLAMA_CHECK_MAX_PROMPT];
  int32_t tokens[2][LLAMA_CHECK_MAX_NEW];
  float margins[LLAMA_CHECK_MAX_NEW]; /* of the plain tokens */
  int32_t leave_at;                   /* its client goes when it has so many tokens; 0: it stays */
} client;

typedef struct trial {
  client *clients;
  int32_t num_clients, num_arrived;
  llama_random random;
  llama_draft_counts drafts;
  cgr_stats before, after; /* the steps with guesses */
  int32_t left, equal, parted;
} trial;

/* ------------------------------------------------------------------------------------------------------------- clients */

/* A prompt that repeats a few tokens of its own, as texts do: a lookup finds something. */
static void make_prompt(trial *t, client *c, int32_t vocab) {
  int32_t length = llama_random_between(&t->random, 1, LLAMA_CHECK_MAX_PROMPT), period = llama_random_between(&t->random, 2, 24);
  for (int32_t i = 0; i < length; i++)
    c->prompt[i] = i < period ? llama_random_between(&t->random, 0, vocab - 1) : c->prompt[i - period];
  c->plain.num_prompt = length;
}

static int make_clients(trial *t, const llama_check_config *config, int32_t vocab) {
  t->num_clients = config->steps;
  t->random.state = config->seed;
  t->clients = calloc((size_t)t->num_clients, sizeof(*t->clients));
  if (!t->clients)
    return llama_fail("no memory");
  for (int32_t i = 0; i < t->num_clients; i++) {
    client *c = &t->clients[i];
    make_prompt(t, c, vocab);
    c->plain.id = i;
    c->plain.prompt = c->prompt;
    c->plain.max_new = llama_random_between(&t->random, 1, LLAMA_CHECK_MAX_NEW);
    c->leave_at = llama_random_between(&t->random, 0, 9) ? 0 : llama_random_between(&t->random, 1, LLAMA_CHECK_MAX_NEW);
    c->guessing = c->plain;
    c->guessing.generated = c->tokens[0];
    c->plain.generated = c->tokens[1];
  }
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------- guessing */

/* Some come at once, the others while those run. */
static int arrive(trial *t, llama_scheduler *s, int32_t most) {
  while (t->num_arrived < t->num_clients && llama_scheduler_running(s) + llama_scheduler_waiting(s) < most)
    TRY(llama_scheduler_add(s, &t->clients[t->num_arrived++].guessing));
  return 0;
}

static int leave(trial *t, llama_scheduler *s) {
  for (int32_t i = 0; i < t->num_arrived; i++) {
    client *c = &t->clients[i];
    if (!c->leave_at || c->guessing.num_generated < c->leave_at || c->guessing.state == LLAMA_ENDED ||
        c->guessing.state == LLAMA_RELEASED || c->guessing.ended_early)
      continue;
    t->left++;
    TRY(llama_scheduler_cancel(s, &c->guessing));
  }
  return 0;
}

/* A pool that holds the longest request, and less than half of what those of a step may need. */
static llama_limits few_pages(const llama_limits *limits) {
  llama_limits few = *limits;
  int32_t longest = (LLAMA_CHECK_MAX_PROMPT + LLAMA_CHECK_MAX_NEW + limits->page_size - 1) / limits->page_size;
  int32_t pool = 2 + longest + limits->max_requests * longest / 4;
  if (pool < few.num_pages)
    few.num_pages = pool;
  return few;
}

static int serve_guessing(trial *t, llama_engine *e, llama_scheduler *s) {
  llama_logits no_logits = { 0 };
  llama_trace no_trace = { 0 };
  llama_text no_text = { 0 };
  llama_meter meter = { 0 };
  llama_loop loop = { .engine = e, .scheduler = s, .meter = &meter, .logits = &no_logits, .trace = &no_trace, .text = &no_text };
  bool idle = false;
  int result = 0;
  while (result == 0 && !(idle && t->num_arrived == t->num_clients)) {
    result = arrive(t, s, 2 * e->limits.max_requests);
    if (result == 0)
      result = leave(t, s);
    if (result == 0)
      result = llama_loop_turn(&loop, &idle);
    if (result == 0 && idle && llama_scheduler_running(s) > 0)
      result = llama_fail("%d request%s have no step and wait for none", llama_scheduler_running(s),
                          llama_plural(llama_scheduler_running(s)));
  }
  llama_meter_free(&meter);
  t->drafts = *llama_scheduler_drafts(s);
  return result == 0 ? llama_cgr(cgr_runtime_stats(e->runtime, &t->after), "cgr_runtime_stats") : result;
}

static int run_guessing(trial *t, const llama_check_config *config, llama_engine *e) {
  llama_scheduler *s = NULL;
  llama_scheduler_config c = { .runtimes = { e->runtime }, .num_runtimes = 1 };
  llama_scheduler_set_limits(&c, &e->limits, config->chunk);
  c.overcommit = true;
  TRY(llama_engine_capture(e));
  TRY_CGR(cgr_runtime_stats(e->runtime, &t->before)); /* of the warm-up */
  TRY(llama_scheduler_create(&c, &s));
  int result = serve_guessing(t, e, s);
  llama_scheduler_destroy(s);
  return result;
}

/* ---------------------------------------------------------------------------------------------------------------- plain */

typedef struct largest {
  float first, second;
} largest;

static void count_logit(largest *l, float logit) {
  if (logit > l->first)
    *l = (largest){ logit, l->first };
  else if (logit > l->second)
    l->second = logit;
}

/* The largest logit over the next one: of all ranks', if each has a part of them. */
static int find_margin(const llama_engine *e, const float *logits, float *margin) {
  largest own = { -INFINITY, -INFINITY }, parts[CGR_MAX_RANKS];
  for (int64_t i = 0; i < e->weights->vocab.count; i++)
    count_logit(&own, logits[i]);
  if (e->weights->vocab.count < e->weights->config.vocab_size) {
    TRY(llama_ranks_exchange(e->team->ranks, &own, sizeof(own), parts));
    own = parts[0];
    for (int32_t r = 1; r < e->weights->split.ranks; r++) {
      count_logit(&own, parts[r].first);
      count_logit(&own, parts[r].second);
    }
  }
  *margin = own.first - own.second;
  return 0;
}

/* One step, its logits, and the margins of what it sampled. */
static int plain_step(trial *t, llama_engine *e, llama_scheduler *s, float *logits, bool *idle) {
  llama_work work;
  llama_cost cost;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  const size_t vocab = (size_t)e->weights->vocab.count;
  TRY(llama_scheduler_compose(s, &work));
  *idle = work.batch.num_requests == 0;
  if (*idle)
    return 0;
  TRY(llama_step(e, &work.batch, &step, &cost));
  if (step.state != CGR_STEP_LAUNCHED)
    return llama_fail("%s", cgr_last_message());
  TRY(llama_scheduler_launched(s, &step.mark.seq));
  TRY(llama_wait(e, step.mark, &result));
  TRY_CGR(cgr_copy(e->device, logits, e->logits, (size_t)work.batch.num_requests * vocab * sizeof(float), e->stream));
  TRY_CGR(cgr_stream_synchronize(e->device, e->stream));
  for (int32_t i = 0; i < result.num_requests; i++) {
    const llama_request *r = llama_result_request(&result, i);
    if (result.num_tokens[i] > 0)
      TRY(find_margin(e, logits + (size_t)i * vocab, &t->clients[r->id].margins[r->num_generated]));
  }
  return llama_scheduler_completed(s, &result);
}

static int serve_plain(trial *t, llama_engine *e, llama_scheduler *s) {
  void *logits = NULL;
  bool idle = false;
  int result = 0;
  TRY_CGR(cgr_memory_alloc_pinned(e->device, (size_t)e->limits.max_requests * (size_t)e->weights->vocab.count * sizeof(float),
                                  &logits));
  for (int32_t i = 0; i < t->num_clients && result == 0; i++)
    result = llama_scheduler_add(s, &t->clients[i].plain);
  while (result == 0 && !idle)
    result = plain_step(t, e, s, logits, &idle);
  cgr_memory_free_pinned(e->device, logits);
  return result;
}

static int run_plain(trial *t, const llama_check_config *config, llama_engine *e) {
  llama_scheduler *s = NULL;
  llama_scheduler_config c = { .runtimes = { e->runtime }, .num_runtimes = 1 };
  llama_scheduler_set_limits(&c, &e->limits, config->chunk);
  TRY(llama_engine_capture(e));
  TRY(llama_scheduler_create(&c, &s));
  int result = serve_plain(t, e, s);
  llama_scheduler_destroy(s);
  return result;
}

/* ------------------------------------------------------------------------------------------------------------- comparing */

/* After tokens have parted, each continues another text. */
static int compare_client(trial *t, const client *c, double bound) {
  const llama_request *a = &c->guessing, *b = &c->plain;
  const bool whole = !a->ended_early;
  if (whole && a->num_generated != a->max_new)
    return llama_fail("request %d has %d tokens, expected %d", a->id, a->num_generated, a->max_new);
  for (int32_t i = 0; i < a->num_generated; i++) {
    if (a->generated[i] == b->generated[i])
      continue;
    if ((double)c->margins[i] > bound)
      return llama_fail("request %d, token %d of %d: %d with guesses, %d without, whose logit is %g above the next, more than %g",
                        a->id, i, a->num_generated, a->generated[i], b->generated[i], (double)c->margins[i], bound);
    t->parted++;
    return 0;
  }
  t->equal++;
  return 0;
}

/* Counts the eager steps, and says why they were. */
static uint64_t print_eager(const trial *t) {
  uint64_t all = 0;
  for (int reason = 0; reason < CGR_REASON_COUNT_; reason++) {
    uint64_t steps = t->after.by_reason[CGR_KIND_NONE][reason] - t->before.by_reason[CGR_KIND_NONE][reason];
    if (steps)
      printf(", %s %llu", cgr_reason_name((cgr_reason)reason), (unsigned long long)steps);
    all += steps;
  }
  return all;
}

/* A mode that has graphs of uniform steps alone runs the others eagerly. */
static int judge_replays(const trial *t, const llama_engine *e) {
  const uint64_t steps = t->after.steps - t->before.steps;
  cgr_graph_mode mode;
  TRY_CGR(cgr_runtime_graph_mode(e->runtime, &mode, NULL));
  printf("  %llu steps", (unsigned long long)steps);
  const uint64_t eager = print_eager(t);
  printf("%s %.2f%% replayed\n", eager ? ";" : ",", steps ? 100.0 * (double)(steps - eager) / (double)steps : 0.0);
  if (mode == CGR_MODE_NONE || mode == CGR_MODE_FULL_DECODE_ONLY || (double)eager <= MOST_EAGER * (double)steps)
    return 0;
  return llama_fail("%llu of %llu steps ran eagerly, expected at most %g%%", (unsigned long long)eager, (unsigned long long)steps,
                    100.0 * MOST_EAGER);
}

/* The most by which the better of two logits may have become the worse. Operations of the host device compute each row by itself:
 * there it is 0 if attention does, too. */
static int find_bound(const llama_engine *e, double *bound) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  TRY_CGR(cgr_device_get_info(e->device, &info));
  *bound = 2.0 * (e->weights->dtype == CGR_DTYPE_FP32 ? ROUNDING_FP32 : ROUNDING_BF16);
  if (e->limits.batch_invariant && info.kind == CGR_DEVICE_KIND_HOST)
    *bound = 0.0;
  return 0;
}

static int judge(trial *t, const llama_engine *e) {
  double bound;
  TRY(find_bound(e, &bound));
  const llama_draft_counts *d = &t->drafts;
  for (int32_t i = 0; i < t->num_clients; i++)
    TRY(compare_client(t, &t->clients[i], bound));
  printf("Guesses: %d request%s (%d left early, %llu preempted, %llu times without a page): %llu tokens, %llu of %llu guesses "
         "accepted.\n",
         t->num_clients, llama_plural(t->num_clients), t->left, (unsigned long long)d->preempted,
         (unsigned long long)d->short_of_pages, (unsigned long long)d->tokens, (unsigned long long)d->accepted,
         (unsigned long long)d->guesses);
  printf("  %d request%s with every token of plain decode, %d that part%s from it where two logits are within %g\n", t->equal,
         llama_plural(t->equal), t->parted, t->parted == 1 ? "s" : "", bound);
  TRY(judge_replays(t, e));
  fflush(stdout);
  return d->accepted ? 0 : llama_fail("no guess was accepted: nothing was compared");
}

static int run_both(trial *t, const llama_check_config *config, llama_engine *guessing, llama_engine *plain) {
  TRY(run_guessing(t, config, guessing));
  TRY(run_plain(t, config, plain));
  return judge(t, guessing);
}

int llama_check_drafts(const llama_check_config *config, const llama_limits *limits, const llama_weights *weights, llama_ops *ops,
                       cudaStream_t stream) {
  trial t = { .clients = NULL };
  llama_engine *engines[2] = { NULL, NULL };
  llama_limits few = few_pages(limits), plain = *limits;
  t.before = t.after = (cgr_stats)CGR_STATS_INIT;
  plain.draft = (llama_draft){ .kind = LLAMA_DRAFT_NONE };
  int result = make_clients(&t, config, weights->config.vocab_size);
  if (result == 0)
    result = llama_engine_create(&few, weights, ops, stream, &engines[0]);
  if (result == 0)
    result = llama_engine_create(&plain, weights, ops, stream, &engines[1]);
  if (result == 0)
    result = run_both(&t, config, engines[0], engines[1]);
  llama_engine_destroy(engines[0]);
  llama_engine_destroy(engines[1]);
  free(t.clients);
  return result;
}

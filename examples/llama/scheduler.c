#include "examples/llama/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/engine.h"
#include "examples/llama/meter.h"

#define RESERVED_PAGES 2 /* cgr's read-trash and write-trash pages: 0 and 1 */

struct llama_scheduler {
  llama_scheduler_config config;
  llama_request *waiting, **waiting_end; /* a queue */
  llama_request *ended;                  /* those whose pages are still in use; with those that were preempted */
  llama_request **running;               /* [max_requests] in order of admission */
  int32_t num_running, num_waiting;
  int32_t *free_pages, num_free; /* a stack */
  int32_t promised;              /* free pages that running requests will still take */

  /* The composed step. */
  llama_request **chosen; /* [max_requests] */
  int32_t num_chosen, num_tokens;
  int32_t *rows[LLAMA_MAX_RUNTIMES], *query_lens, *tokens;
  uint32_t *flags;

  llama_draft_counts drafts;
  uint64_t collected; /* number of the last step whose results were read */
};

/* -------------------------------------------------------------------------------------------------------------- pages */

static int32_t pages_for(const llama_scheduler *s, int32_t tokens) {
  return (int32_t)(((int64_t)tokens + s->config.page_size - 1) / s->config.page_size);
}

/* The last token generated never enters the cache. */
static int32_t longest(const llama_request *r) { return r->num_prompt + r->max_new - 1; }

/* Gives a request the pages for `tokens` tokens: they were promised at its admission. */
static int grow(llama_scheduler *s, llama_request *r, int32_t tokens) {
  int32_t first = r->num_pages, needed = pages_for(s, tokens);
  if (needed <= first)
    return 0;
  if (needed > r->reserved_pages || needed - first > s->num_free)
    return llama_fail("request %d: page %d was never promised", r->id, needed);
  for (int32_t i = first; i < needed; i++)
    r->pages[i] = s->free_pages[--s->num_free];
  s->promised -= s->config.overcommit ? 0 : needed - first;
  r->num_pages = needed;
  for (int32_t i = 0; i < s->config.num_runtimes; i++)
    TRY_CGR(cgr_request_set_pages(s->config.runtimes[i], r->rows[i], 0, first, r->pages + first, needed - first));
  return 0;
}

/* Results are read from runtime 0 alone; a step of another one need only have completed. */
static int still_used(const llama_scheduler *s, const llama_request *r) {
  for (int32_t i = 1; i < s->config.num_runtimes; i++) {
    uint64_t completed = 0;
    if (cgr_runtime_completed(s->config.runtimes[i], NULL, &completed) != CGR_OK || completed < r->last_seq[i])
      return 1;
  }
  return s->collected < r->last_seq[0];
}

/* What was preempted begins again, in front of those that wait, unless its last result has ended it. */
static void wait_again(llama_scheduler *s, llama_request *r) {
  r->num_prefill = r->num_prompt + r->num_generated;
  r->sampled = r->num_generated;
  r->computed = 0;
  r->state = LLAMA_WAITING;
  r->next = s->waiting;
  if (!s->waiting)
    s->waiting_end = &r->next;
  s->waiting = r;
  s->num_waiting++;
}

/* Takes back the pages of ended requests whose last step is over. */
static void reclaim(llama_scheduler *s) {
  llama_request **link = &s->ended;
  while (*link) {
    llama_request *r = *link;
    if (still_used(s, r)) {
      link = &r->next;
      continue;
    }
    *link = r->next;
    for (int32_t i = r->num_pages - 1; i >= 0; i--)
      s->free_pages[s->num_free++] = r->pages[i];
    free(r->pages);
    r->pages = NULL;
    r->num_pages = r->reserved_pages = 0;
    if (r->state == LLAMA_PREEMPTED && !r->ended_early && r->num_generated < r->max_new)
      wait_again(s, r);
    else
      r->state = LLAMA_RELEASED;
  }
}

/* ------------------------------------------------------------------------------------------------- arriving and leaving */

int llama_scheduler_add(llama_scheduler *s, llama_request *r) {
  if (r->num_prompt < 1 || r->max_new < 1)
    return llama_fail("request %d: needs at least one token of prompt and one to generate", r->id);
  if (longest(r) > s->config.max_seq_len)
    return llama_fail("request %d: %d tokens, and %d is the longest sequence", r->id, longest(r), s->config.max_seq_len);
  if (pages_for(s, longest(r)) > s->config.num_pages - RESERVED_PAGES)
    return llama_fail("request %d: needs %d page%s, and the pool has %d", r->id, pages_for(s, longest(r)),
                      llama_plural(pages_for(s, longest(r))), s->config.num_pages - RESERVED_PAGES);
  r->state = LLAMA_WAITING;
  r->num_prefill = r->num_prompt;
  r->next = NULL;
  *s->waiting_end = r;
  s->waiting_end = &r->next;
  s->num_waiting++;
  r->last_time = llama_now();
  return 0;
}

static llama_request *take_waiting(llama_scheduler *s, llama_request **link) {
  llama_request *r = *link;
  *link = r->next;
  if (!*link)
    s->waiting_end = link;
  r->next = NULL;
  s->num_waiting--;
  return r;
}

/* On each runtime: a row, and the data that the sampler reads of it. */
static int open_rows(llama_scheduler *s, llama_request *r) {
  const int32_t noise[2] = { r->seed, r->id };
  for (int32_t i = 0; i < s->config.num_runtimes; i++) {
    cgr_runtime *runtime = s->config.runtimes[i];
    TRY_CGR(cgr_request_open(runtime, (uint64_t)(uintptr_t)r, &r->rows[i]));
    TRY_CGR(cgr_request_set_data(runtime, r->rows[i], LLAMA_DATA_NOISE, noise));
    TRY_CGR(cgr_request_set_data(runtime, r->rows[i], LLAMA_DATA_TEMPERATURE, &r->temperature));
    if (s->config.draft.kind == LLAMA_DRAFT_COIN)
      TRY_CGR(cgr_request_set_data(runtime, r->rows[i], LLAMA_DATA_RATE, &r->rate));
  }
  return 0;
}

/* Room for what it promises: to its end, or with `overcommit` for its known tokens, and a page for each that runs. */
static int has_room(const llama_scheduler *s, const llama_request *r) {
  if (s->config.overcommit)
    return pages_for(s, r->num_prefill) + s->num_running <= s->num_free;
  return pages_for(s, longest(r)) <= s->num_free - s->promised;
}

static int admit(llama_scheduler *s) {
  while (s->waiting && s->num_running < s->config.max_requests && has_room(s, s->waiting)) {
    llama_request *r = s->waiting;
    int32_t needed = pages_for(s, longest(r));
    r->pages = malloc((size_t)needed * sizeof(*r->pages));
    if (!r->pages)
      return llama_fail("no memory");
    take_waiting(s, &s->waiting);
    TRY(open_rows(s, r));
    r->reserved_pages = needed;
    s->promised += s->config.overcommit ? 0 : needed;
    r->state = LLAMA_RUNNING;
    s->running[s->num_running++] = r;
    if (s->config.overcommit)
      TRY(grow(s, r, r->num_prefill));
  }
  return 0;
}

/* Takes a request out of the batches to come. Its row may be reused at once, since changes to a row travel with the next step,
 * after those in flight. Its pages may not. */
static int leave(llama_scheduler *s, llama_request *r, llama_state state) {
  int32_t kept = 0;
  for (int32_t i = 0; i < s->num_running; i++)
    if (s->running[i] != r)
      s->running[kept++] = s->running[i];
  s->num_running = kept;
  s->promised -= s->config.overcommit ? 0 : r->reserved_pages - r->num_pages;
  r->state = state;
  r->next = s->ended;
  s->ended = r;
  for (int32_t i = 0; i < s->config.num_runtimes; i++)
    TRY_CGR(cgr_request_close(s->config.runtimes[i], r->rows[i]));
  return 0;
}

static int end(llama_scheduler *s, llama_request *r) { return leave(s, r, LLAMA_ENDED); }

int llama_scheduler_cancel(llama_scheduler *s, llama_request *r) {
  r->ended_early = 1;
  if (r->state == LLAMA_RUNNING)
    return end(s, r);
  for (llama_request **link = &s->waiting; *link; link = &(*link)->next)
    if (*link == r) {
      take_waiting(s, link)->state = LLAMA_RELEASED;
      break;
    }
  return 0;
}

int llama_scheduler_rewind(llama_scheduler *s, llama_request *r) {
  int32_t kept = pages_for(s, r->num_prompt), dropped = r->num_pages - kept;
  r->num_prefill = r->num_prompt;
  r->computed = r->num_prompt - 1;
  r->sampled = r->num_generated = 0;
  for (int32_t i = 0; i < s->config.num_runtimes; i++) {
    TRY_CGR(cgr_request_set_length(s->config.runtimes[i], r->rows[i], r->computed));
    if (dropped > 0)
      TRY_CGR(cgr_request_drop_pages(s->config.runtimes[i], r->rows[i], 0, kept, dropped));
  }
  while (r->num_pages > kept)
    s->free_pages[s->num_free++] = r->pages[--r->num_pages];
  s->promised += s->config.overcommit ? 0 : dropped;
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------- composing */

static int held(const llama_request *r) { return r->hold && r->sampled >= r->hold; }

static int decodes(const llama_request *r) { return r->computed >= r->num_prefill; }

/* The tokens that it is known to have, `count` from `first` on. */
static void copy_known(const llama_request *r, int32_t first, int32_t count, int32_t *tokens) {
  for (int32_t i = first; i < first + count; i++)
    *tokens++ = i < r->num_prompt ? r->prompt[i] : r->generated[i - r->num_prompt];
}

/* `drafts` of the tokens are guesses: of the host's, or those that the row's last step left on the device. */
static int choose(llama_scheduler *s, llama_request *r, int32_t count, int32_t drafts, const int32_t *guesses) {
  int32_t i = s->num_chosen++;
  TRY(grow(s, r, r->computed + count));
  for (int32_t k = 0; k < s->config.num_runtimes; k++)
    s->rows[k][i] = r->rows[k];
  s->chosen[i] = r;
  s->query_lens[i] = count;
  s->flags[i] = (r->computed + count < r->num_prefill ? CGR_REQUEST_PARTIAL : 0u) | CGR_REQUEST_DRAFTS(drafts);
  int32_t *tokens = s->tokens + s->num_tokens;
  if (!decodes(r))
    copy_known(r, r->computed, count, tokens);
  else
    *tokens = r->forced ? r->forced[r->sampled - 1] : CGR_TOKEN_LAST;
  for (int32_t j = 0; j < drafts; j++)
    tokens[1 + j] = s->config.draft.kind == LLAMA_DRAFT_COIN ? CGR_TOKEN_DRAFT(j) : guesses[j];
  s->num_tokens += count;
  return 0;
}

/* Tokens that the request's pages, and those that are free, hold. */
static int32_t tokens_in_reach(const llama_scheduler *s, const llama_request *r) {
  const int64_t pages = s->config.overcommit ? (int64_t)r->num_pages + s->num_free : r->reserved_pages;
  return (int32_t)(pages * s->config.page_size > INT32_MAX ? INT32_MAX : pages * s->config.page_size);
}

/* Of those that were admitted after it, the last gives up its row; its pages are free once its steps are over. Those before it
 * keep theirs, so that the first always gets on. */
static int preempt_for(llama_scheduler *s, const llama_request *first) {
  llama_request *last = s->running[s->num_running - 1];
  if (last == first)
    return 0;
  s->drafts.preempted++;
  TRY(leave(s, last, LLAMA_PREEMPTED));
  reclaim(s);
  return 0;
}

/* How many guesses there are for it, as many as its bounds leave room for; 0 beyond them. */
static int32_t guess(const llama_scheduler *s, const llama_request *r, int32_t room, int32_t *guesses) {
  const llama_known known = { r->prompt, r->generated, r->num_prompt, r->num_generated };
  const llama_sent *sent = &r->sent[r->num_sent ? r->num_sent - 1 : 0];
  int32_t count = room < s->config.draft.count ? room : s->config.draft.count;
  if (count <= 0 || r->forced)
    return 0;
  if (s->config.draft.kind == LLAMA_DRAFT_COIN)
    return count;
  if (r->num_sent > 1) /* two steps under way: what the second is given is not known */
    return 0;
  return llama_lookup_ahead(&known, sent->tokens, r->num_sent ? sent->count : -1, count, guesses);
}

/* Its next token, with guesses. A request that its bounds, or the pool, leave no room for stands still. */
static int choose_decode(llama_scheduler *s, llama_request *r) {
  const int32_t most = r->hold ? r->hold : r->max_new;
  int32_t guesses[LLAMA_MAX_DRAFTS], room = most - r->sampled - 1, reach = tokens_in_reach(s, r) - r->computed - 1;
  if (room < 0 || r->num_sent == 2)
    return 0;
  s->drafts.short_of_pages += reach < 0 || (s->config.draft.count && reach < room && reach < s->config.draft.count);
  if (reach < 0)
    TRY(preempt_for(s, r));
  reach = tokens_in_reach(s, r) - r->computed - 1;
  if (reach < 0)
    return 0;
  int32_t drafts = guess(s, r, reach < room ? reach : room, guesses);
  return choose(s, r, 1 + drafts, drafts, guesses);
}

/* First those that decode, then as much of the prompts as the chunk leaves room for. Who is preempted stands further back in the
 * list than who is looked at, and is in no step yet. */
static int choose_all(llama_scheduler *s, int32_t *num_decodes, int32_t *decode_tokens) {
  s->num_chosen = s->num_tokens = 0;
  for (int32_t i = 0; i < s->num_running; i++)
    if (decodes(s->running[i]) && !held(s->running[i]))
      TRY(choose_decode(s, s->running[i]));
  *num_decodes = s->num_chosen;
  *decode_tokens = s->num_tokens;
  int32_t room = s->config.max_tokens - s->num_tokens;
  if (room > s->config.chunk)
    room = s->config.chunk;
  for (int32_t i = 0; i < s->num_running && room > 0; i++) {
    llama_request *r = s->running[i];
    if (decodes(r))
      continue;
    int32_t rest = r->num_prefill - r->computed, count = rest < room ? rest : room;
    TRY(choose(s, r, count, 0, NULL));
    room -= count;
  }
  return 0;
}

/* A decode batch whose tokens are on the device needs no token from here. */
static int all_on_device(const llama_scheduler *s) {
  for (int32_t i = 0; i < s->num_tokens; i++)
    if (s->tokens[i] >= 0)
      return 0;
  return 1;
}

int llama_scheduler_compose(llama_scheduler *s, llama_work *work) {
  int32_t num_decodes = 0, decode_tokens = 0;
  reclaim(s);
  TRY(admit(s));
  TRY(choose_all(s, &num_decodes, &decode_tokens));
  memset(work, 0, sizeof(*work));
  work->batch = (cgr_batch)CGR_BATCH_INIT;
  work->batch.num_requests = s->num_chosen;
  work->batch.rows = s->rows[0];
  work->phase = num_decodes == s->num_chosen ? LLAMA_DECODE : num_decodes == 0 ? LLAMA_PREFILL : LLAMA_MIXED;
  work->prompt_tokens = s->num_tokens - decode_tokens;
  work->load.steps = s->num_chosen > 0;
  for (int32_t i = 0; i < s->num_chosen; i++) {
    work->num_samples += !(s->flags[i] & CGR_REQUEST_PARTIAL);
    llama_demand_add_request(&work->load, s->chosen[i]->computed, s->query_lens[i]);
  }
  work->batch.tokens = all_on_device(s) ? NULL : s->tokens;
  if (work->phase != LLAMA_DECODE || decode_tokens > num_decodes) {
    work->batch.query_lens = s->query_lens;
    work->batch.flags = s->flags;
  }
  for (int32_t i = 0; i < LLAMA_MAX_RUNTIMES; i++)
    work->rows[i] = s->rows[i];
  return 0;
}

/* Remembers the guesses of the step that was launched, as tokens if the host gave them. */
static void send(llama_request *r, int32_t drafts, const int32_t *tokens) {
  llama_sent *sent = &r->sent[r->num_sent++];
  sent->count = drafts;
  memcpy(sent->tokens, tokens, (size_t)drafts * sizeof(*tokens));
  r->slack += drafts;
}

int llama_scheduler_launched(llama_scheduler *s, const uint64_t *seq) {
  const int32_t *tokens = s->tokens;
  for (int32_t i = 0; i < s->num_chosen; i++) {
    llama_request *r = s->chosen[i];
    const int32_t drafts = (int32_t)(s->flags[i] >> 8);
    r->computed += s->query_lens[i];
    r->sampled += s->flags[i] & CGR_REQUEST_PARTIAL ? 0 : 1 + drafts;
    if (!(s->flags[i] & CGR_REQUEST_PARTIAL))
      send(r, drafts, tokens + s->query_lens[i] - drafts);
    tokens += s->query_lens[i];
    memcpy(r->last_seq, seq, (size_t)s->config.num_runtimes * sizeof(*seq));
    if (r->sampled == r->max_new && r->slack == 0 && !held(r))
      TRY(end(s, r));
  }
  return 0;
}

/* --------------------------------------------------------------------------------------------------------- completing */

static int ends(const llama_scheduler *s, const llama_request *r, int32_t token) {
  for (int32_t i = 0; !r->forced && i < s->config.num_eos; i++)
    if (token == s->config.eos_tokens[i])
      return 1;
  return 0;
}

llama_request *llama_result_request(const cgr_step_result *result, int32_t i) {
  return (llama_request *)(uintptr_t)result->tags[i];
}

static int take_token(llama_scheduler *s, llama_request *r, int32_t token) {
  if (token == LLAMA_NOT_FINITE)
    return llama_fail("request %d: a logit at position %d is NaN or Inf, expected finite numbers: are the model's weights sound?",
                      r->id, r->num_prompt + r->num_generated - 1);
  r->generated[r->num_generated++] = token;
  s->drafts.tokens++;
  if (!ends(s, r, token))
    return 0;
  r->ended_early = 1;
  return r->state == LLAMA_RUNNING ? end(s, r) : 0;
}

/* The oldest of its steps is over: what it did not accept is taken off the bounds. */
static void count_accepted(llama_scheduler *s, llama_request *r, int32_t accepted) {
  const int32_t drafts = r->sent[0].count;
  r->sent[0] = r->sent[1];
  r->num_sent--;
  r->slack -= drafts;
  r->computed -= drafts - accepted;
  r->sampled -= drafts - accepted;
  s->drafts.samples++;
  s->drafts.verified += drafts > 0;
  s->drafts.guesses += (uint64_t)drafts;
  s->drafts.accepted += (uint64_t)accepted;
}

/* What a step sampled for a request: after an end token none counts. */
static int take_tokens(llama_scheduler *s, llama_request *r, const int32_t *tokens, int32_t count) {
  count_accepted(s, r, count - 1);
  for (int32_t j = 0; j < count && !r->ended_early; j++)
    TRY(take_token(s, r, tokens[j]));
  return r->num_generated == r->max_new && r->state == LLAMA_RUNNING && !held(r) ? end(s, r) : 0;
}

int llama_scheduler_completed(llama_scheduler *s, const cgr_step_result *result) {
  s->collected = result->mark.seq;
  for (int32_t i = 0; i < result->num_requests; i++)
    if (result->num_tokens[i] > 0) /* the middle of a prompt yields no token */
      TRY(take_tokens(s, llama_result_request(result, i), result->tokens + (size_t)i * (size_t)result->token_stride,
                      result->num_tokens[i]));
  reclaim(s);
  return 0;
}

const llama_draft_counts *llama_scheduler_drafts(const llama_scheduler *s) { return &s->drafts; }
int32_t llama_scheduler_running(const llama_scheduler *s) { return s->num_running; }
int32_t llama_scheduler_waiting(const llama_scheduler *s) { return s->num_waiting; }

/* ------------------------------------------------------------------------------------------------------ making, ending */

static int allocate(llama_scheduler *s) {
  size_t n = (size_t)s->config.max_requests, t = (size_t)s->config.max_tokens, pages = (size_t)s->config.num_pages;
  int complete = (s->running = calloc(n, sizeof(*s->running))) && (s->chosen = calloc(n, sizeof(*s->chosen))) &&
                 (s->query_lens = calloc(n, sizeof(*s->query_lens))) && (s->tokens = calloc(t, sizeof(*s->tokens))) &&
                 (s->flags = calloc(n, sizeof(*s->flags))) && (s->free_pages = calloc(pages, sizeof(*s->free_pages)));
  for (int i = 0; i < LLAMA_MAX_RUNTIMES; i++)
    complete = complete && (s->rows[i] = calloc(n, sizeof(*s->rows[i])));
  return complete ? 0 : llama_fail("no memory");
}

void llama_scheduler_set_limits(llama_scheduler_config *config, const llama_limits *limits, int32_t chunk) {
  config->max_requests = limits->max_requests;
  config->max_tokens = limits->max_tokens;
  config->chunk = chunk;
  config->page_size = limits->page_size;
  config->num_pages = limits->num_pages;
  config->max_seq_len = limits->max_seq_len;
  config->draft = limits->draft;
}

int llama_scheduler_create(const llama_scheduler_config *config, llama_scheduler **scheduler) {
  *scheduler = NULL;
  llama_scheduler *s = calloc(1, sizeof(*s));
  if (!s)
    return llama_fail("no memory");
  s->config = *config;
  if ((int64_t)config->max_requests * (1 + config->draft.count) > config->max_tokens) {
    free(s);
    return llama_fail("max_tokens is %d, expected at least %d requests with %d guesses each", config->max_tokens,
                      config->max_requests, config->draft.count);
  }
  s->waiting_end = &s->waiting;
  if (allocate(s) != 0) {
    llama_scheduler_destroy(s);
    return -1;
  }
  for (int32_t page = config->num_pages - 1; page >= RESERVED_PAGES; page--)
    s->free_pages[s->num_free++] = page;
  *scheduler = s;
  return 0;
}

void llama_scheduler_destroy(llama_scheduler *s) {
  if (!s)
    return;
  for (int32_t i = 0; i < s->num_running; i++)
    free(s->running[i]->pages);
  for (llama_request *r = s->ended; r; r = r->next)
    free(r->pages);
  for (int i = 0; i < LLAMA_MAX_RUNTIMES; i++)
    free(s->rows[i]);
  free(s->running);
  free(s->chosen);
  free(s->query_lens);
  free(s->tokens);
  free(s->flags);
  free(s->free_pages);
  free(s);
}

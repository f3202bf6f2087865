#include "examples/llama/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/engine.h"
#include "examples/llama/meter.h"

#define RESERVED_PAGES 2 /* cgr's read-trash and write-trash pages: 0 and 1 */

struct llama_scheduler {
  llama_scheduler_config config;
  llama_request *waiting, **waiting_end; /* a queue */
  llama_request *ended;                  /* those whose pages are still in use */
  llama_request **running;               /* [max_requests] in order of admission */
  int32_t num_running, num_waiting;
  int32_t *free_pages, num_free; /* a stack */
  int32_t promised;              /* free pages that running requests will still take */

  /* The composed step. */
  llama_request **chosen; /* [max_requests] */
  int32_t num_chosen, num_tokens;
  int32_t *rows[LLAMA_MAX_RUNTIMES], *query_lens, *tokens;
  uint32_t *flags;

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
  s->promised -= needed - first;
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
  }
  return 0;
}

static int admit(llama_scheduler *s) {
  while (s->waiting && s->num_running < s->config.max_requests) {
    int32_t needed = pages_for(s, longest(s->waiting));
    if (needed > s->num_free - s->promised)
      return 0;
    llama_request *r = s->waiting;
    r->pages = malloc((size_t)needed * sizeof(*r->pages));
    if (!r->pages)
      return llama_fail("no memory");
    take_waiting(s, &s->waiting);
    TRY(open_rows(s, r));
    r->reserved_pages = needed;
    s->promised += needed;
    r->state = LLAMA_RUNNING;
    s->running[s->num_running++] = r;
  }
  return 0;
}

/* Takes a request out of the batches to come. Its row may be reused at once, since changes to a row travel with the next step,
 * after those in flight. Its pages may not. */
static int end(llama_scheduler *s, llama_request *r) {
  int32_t kept = 0;
  for (int32_t i = 0; i < s->num_running; i++)
    if (s->running[i] != r)
      s->running[kept++] = s->running[i];
  s->num_running = kept;
  s->promised -= r->reserved_pages - r->num_pages;
  r->state = LLAMA_ENDED;
  r->next = s->ended;
  s->ended = r;
  for (int32_t i = 0; i < s->config.num_runtimes; i++)
    TRY_CGR(cgr_request_close(s->config.runtimes[i], r->rows[i]));
  return 0;
}

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
  r->computed = r->num_prompt - 1;
  r->sampled = r->num_generated = 0;
  for (int32_t i = 0; i < s->config.num_runtimes; i++) {
    TRY_CGR(cgr_request_set_length(s->config.runtimes[i], r->rows[i], r->computed));
    if (dropped > 0)
      TRY_CGR(cgr_request_drop_pages(s->config.runtimes[i], r->rows[i], 0, kept, dropped));
  }
  while (r->num_pages > kept)
    s->free_pages[s->num_free++] = r->pages[--r->num_pages];
  s->promised += dropped;
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------- composing */

static int held(const llama_request *r) { return r->hold && r->sampled >= r->hold; }

static int decodes(const llama_request *r) { return r->computed >= r->num_prompt; }

static int choose(llama_scheduler *s, llama_request *r, int32_t count) {
  int32_t i = s->num_chosen++;
  TRY(grow(s, r, r->computed + count));
  for (int32_t k = 0; k < s->config.num_runtimes; k++)
    s->rows[k][i] = r->rows[k];
  s->chosen[i] = r;
  s->query_lens[i] = count;
  s->flags[i] = r->computed + count < r->num_prompt ? CGR_REQUEST_PARTIAL : 0u;
  int32_t *tokens = s->tokens + s->num_tokens;
  if (!decodes(r))
    memcpy(tokens, r->prompt + r->computed, (size_t)count * sizeof(*tokens));
  else
    *tokens = r->forced ? r->forced[r->sampled - 1] : CGR_TOKEN_LAST;
  s->num_tokens += count;
  return 0;
}

/* First those that decode, one token each, then as much of the prompts as the chunk leaves room for. */
static int choose_all(llama_scheduler *s, int32_t *num_decodes) {
  s->num_chosen = s->num_tokens = 0;
  for (int32_t i = 0; i < s->num_running; i++)
    if (decodes(s->running[i]) && !held(s->running[i]))
      TRY(choose(s, s->running[i], 1));
  *num_decodes = s->num_chosen;
  int32_t room = s->config.max_tokens - s->num_tokens;
  if (room > s->config.chunk)
    room = s->config.chunk;
  for (int32_t i = 0; i < s->num_running && room > 0; i++) {
    llama_request *r = s->running[i];
    if (decodes(r))
      continue;
    int32_t rest = r->num_prompt - r->computed, count = rest < room ? rest : room;
    TRY(choose(s, r, count));
    room -= count;
  }
  return 0;
}

/* A decode batch whose tokens are on the device needs no token from here. */
static int all_tokens_last(const llama_scheduler *s) {
  for (int32_t i = 0; i < s->num_tokens; i++)
    if (s->tokens[i] != CGR_TOKEN_LAST)
      return 0;
  return 1;
}

int llama_scheduler_compose(llama_scheduler *s, llama_work *work) {
  int32_t num_decodes = 0;
  reclaim(s);
  TRY(admit(s));
  TRY(choose_all(s, &num_decodes));
  memset(work, 0, sizeof(*work));
  work->batch = (cgr_batch)CGR_BATCH_INIT;
  work->batch.num_requests = s->num_chosen;
  work->batch.rows = s->rows[0];
  work->phase = num_decodes == s->num_chosen ? LLAMA_DECODE : num_decodes == 0 ? LLAMA_PREFILL : LLAMA_MIXED;
  work->prompt_tokens = s->num_tokens - num_decodes;
  work->load.steps = s->num_chosen > 0;
  for (int32_t i = 0; i < s->num_chosen; i++) {
    work->num_samples += !(s->flags[i] & CGR_REQUEST_PARTIAL);
    llama_demand_add_request(&work->load, s->chosen[i]->computed, s->query_lens[i]);
  }
  work->batch.tokens = all_tokens_last(s) ? NULL : s->tokens;
  if (work->phase != LLAMA_DECODE) {
    work->batch.query_lens = s->query_lens;
    work->batch.flags = s->flags;
  }
  for (int32_t i = 0; i < LLAMA_MAX_RUNTIMES; i++)
    work->rows[i] = s->rows[i];
  return 0;
}

int llama_scheduler_launched(llama_scheduler *s, const uint64_t *seq) {
  for (int32_t i = 0; i < s->num_chosen; i++) {
    llama_request *r = s->chosen[i];
    r->computed += s->query_lens[i];
    r->sampled += !(s->flags[i] & CGR_REQUEST_PARTIAL);
    memcpy(r->last_seq, seq, (size_t)s->config.num_runtimes * sizeof(*seq));
    if (r->sampled == r->max_new && !held(r))
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
  if (!ends(s, r, token))
    return 0;
  r->ended_early = 1;
  return r->state == LLAMA_RUNNING ? end(s, r) : 0;
}

int llama_scheduler_completed(llama_scheduler *s, const cgr_step_result *result) {
  s->collected = result->mark.seq;
  for (int32_t i = 0; i < result->num_requests; i++) {
    llama_request *r = llama_result_request(result, i);
    /* The middle of a prompt yields no token; after an end token none counts. */
    if (result->num_tokens[i] > 0 && !r->ended_early)
      TRY(take_token(s, r, result->tokens[i * result->token_stride]));
  }
  reclaim(s);
  return 0;
}

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
}

int llama_scheduler_create(const llama_scheduler_config *config, llama_scheduler **scheduler) {
  *scheduler = NULL;
  llama_scheduler *s = calloc(1, sizeof(*s));
  if (!s)
    return llama_fail("no memory");
  s->config = *config;
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

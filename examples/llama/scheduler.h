/* Who runs next: continuous batching with chunked prefill over a pool of pages.
 *
 * A request waits until there is a row for it and the pool can hold it to its end (admission control: then no step can run out
 * of pages, and nothing is preempted; for `overcommit` see below). Its prompt is processed in chunks next to the tokens of
 * requests that decode. It ends by length, which is known when its last step launches, or by an end token, which is known one
 * step later: by then the next step may be under way, and whatever it samples for the request is dropped. Pages return to the
 * pool when the results of the last step that used them have been read.
 *
 * A request is opened with its own address as the tag, and results are matched by it: the scheduler keeps no list of which
 * request was where in which step.
 *
 * With guesses (`draft`) a request that decodes has up to 1 + k tokens in a step. How many of them count is known with the
 * results, so that what is kept of a request are bounds until then: as if all guesses were accepted. Pages, max_seq_len and the
 * last token go by them: a request whose bound has reached its end has no step until the results are there. The host stays a step
 * ahead: the guesses of --draft lookup expect of the step under way what the known tokens let expect (llama_lookup_ahead), and
 * are rejected when that was wrong; those of a coin are on the device already.
 *
 * With `overcommit` a request is admitted when the pool holds its known tokens. When a request finds no page, it first has fewer
 * guesses; then the one that was admitted last gives up its row, and its pages once its steps are over. It begins again in front
 * of those that wait, with all tokens that it has as its prompt.
 *
 * One scheduler can drive two runtimes in lockstep (--check): they get the same pages and the same batches. */
#ifndef LLAMA_SCHEDULER_H
#define LLAMA_SCHEDULER_H

#include <cgr/cgr.h>
#include <stdbool.h>

#include "examples/llama/draft.h"
#include "examples/llama/overlap.h"

#define LLAMA_MAX_RUNTIMES 2

typedef enum llama_state { LLAMA_WAITING, LLAMA_RUNNING, LLAMA_ENDED, LLAMA_PREEMPTED, LLAMA_RELEASED } llama_state;

/* Guesses of a step whose results have not been read. */
typedef struct llama_sent {
  int32_t count;
  int32_t tokens[LLAMA_MAX_DRAFTS]; /* of a lookup */
} llama_sent;

typedef struct llama_request {
  int32_t id;
  const int32_t *prompt; /* [num_prompt] the caller's */
  int32_t num_prompt;
  int32_t max_new;       /* tokens to generate, at least 1 */
  const int32_t *forced; /* [max_new - 1] fed in place of the tokens that were sampled; or NULL */
  int32_t hold;          /* with this many tokens sampled the request is held: it has no step until this is raised; 0: never */
  int32_t *generated;    /* [max_new] the caller's memory */
  int32_t num_generated; /* so far */
  int32_t seed;          /* of its noise, with `id` (noise.h) */
  float temperature;     /* 0: the likeliest token */
  float rate;            /* of the coin that accepts its guesses; read only if the engine has one */

  /* The scheduler's. */
  llama_state state;   /* RELEASED: the scheduler holds nothing of it any more */
  int32_t ended_early; /* by an end token or by cancellation: later tokens are dropped */
  int32_t num_prefill; /* tokens that it began with: its prompt, and after a preemption what it had generated */
  int32_t computed;    /* tokens in the cache after the steps launched so far; with guesses under way at most */
  int32_t sampled;     /* tokens that the steps launched so far sample; the same */
  int32_t slack;       /* guesses under way */
  int32_t num_sent;    /* steps under way that sample for it */
  llama_sent sent[2];
  int32_t rows[LLAMA_MAX_RUNTIMES];
  uint64_t last_seq[LLAMA_MAX_RUNTIMES];
  double last_time; /* of its last token; before the first, when it was added (llama_now) */
  int32_t *pages;
  int32_t num_pages, reserved_pages;
  struct llama_request *next;
} llama_request;

typedef struct llama_scheduler_config {
  cgr_runtime *runtimes[LLAMA_MAX_RUNTIMES];
  int32_t num_runtimes;
  int32_t max_requests, max_tokens; /* of a step */
  int32_t chunk;                    /* prefill tokens of a step */
  int32_t page_size, num_pages;     /* including cgr's two reserved pages 0 and 1 */
  int32_t max_seq_len;
  llama_draft draft; /* count 0: no guesses */
  bool overcommit;
  int32_t num_eos;
  int32_t eos_tokens[LLAMA_MAX_EOS];
} llama_scheduler_config;

struct llama_limits;
/* Fills the limits of a step, of the pool and of a sequence. */
void llama_scheduler_set_limits(llama_scheduler_config *config, const struct llama_limits *limits, int32_t chunk);

typedef enum llama_phase { LLAMA_DECODE, LLAMA_PREFILL, LLAMA_MIXED, LLAMA_NUM_PHASES } llama_phase;

/* A step to launch; the arrays are valid until the next call of llama_scheduler_compose. */
typedef struct llama_work {
  cgr_batch batch; /* rows of runtime 0 */
  const int32_t *rows[LLAMA_MAX_RUNTIMES];
  llama_phase phase;
  int32_t prompt_tokens; /* in the batch */
  int32_t num_samples;   /* requests that get a token, or several */
  llama_demand load;     /* without its time */
} llama_work;

typedef struct llama_scheduler llama_scheduler;

int llama_scheduler_create(const llama_scheduler_config *config, llama_scheduler **scheduler);
void llama_scheduler_destroy(llama_scheduler *scheduler);

/* Queues a request; it must fit max_seq_len and the pool. */
int llama_scheduler_add(llama_scheduler *scheduler, llama_request *request);
/* Ends a request early: its client has gone. */
int llama_scheduler_cancel(llama_scheduler *scheduler, llama_request *request);

/* Takes a held request back to the end of its prompt, whose last token is processed again. The results of all its steps must have
 * been read. Its pages after the prompt return to the pool, which still promises them to it. */
int llama_scheduler_rewind(llama_scheduler *scheduler, llama_request *request);

/* The next step; num_requests is 0 when no request can run now. Launch it, or drop it by composing again. */
int llama_scheduler_compose(llama_scheduler *scheduler, llama_work *work);
/* The composed step was launched, as seq[i] on runtime i. */
int llama_scheduler_launched(llama_scheduler *scheduler, const uint64_t *seq);
/* Takes the results of a step of runtime 0; to be called in launch order. */
int llama_scheduler_completed(llama_scheduler *scheduler, const cgr_step_result *result);

/* The request that result `i` belongs to. */
llama_request *llama_result_request(const cgr_step_result *result, int32_t i);

/* What became of guesses so far. */
const llama_draft_counts *llama_scheduler_drafts(const llama_scheduler *scheduler);

int32_t llama_scheduler_running(const llama_scheduler *scheduler);
int32_t llama_scheduler_waiting(const llama_scheduler *scheduler);

#endif

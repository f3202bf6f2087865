/* Steps: batches, the standing batch, prepare, launch, wait and results. */
#ifndef CGR_STEP_H
#define CGR_STEP_H

#include "cgr/config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------------------- batches */

/* In an array of tokens, including cgr_batch.tokens: the token that the row's last step sampled, which is on the device. Refused
 * if there is none: in a new row, after a partial chunk, after cgr_request_set_length. */
enum { CGR_TOKEN_LAST = -1 };
/* In its place among guesses: guess `j`, 0 .. num_draft_tokens - 1, that the row's last step left in CGR_BUFFER_DRAFT_TOKENS.
 * Only in a request whose first token is CGR_TOKEN_LAST, because that is the token that they follow. */
#define CGR_TOKEN_DRAFT(j) (-2 - (j))

typedef enum cgr_request_flag {
  CGR_REQUEST_PARTIAL = 1 /* more of the prompt follows: what the sampler writes for this request is dropped */
} cgr_request_flag;
/* Among the flags of a request: the last `count` of its tokens are guesses (drafts), which the step verifies. 0 ..
 * num_draft_tokens, fewer than its query_len; not with CGR_REQUEST_PARTIAL, and not in a step of a length set above 0. The
 * engine's sampler writes how many it accepts to CGR_BUFFER_NUM_ACCEPTED. The last kernel takes the other guesses off the row's length, and the
 * row's next step goes on from there, whether the host knows of it or not. Until the step has completed, the host has bounds of
 * the row's length (cgr_request_info): pages, max_seq_len and the choice of the graph go by the upper one. */
#define CGR_REQUEST_DRAFTS(count) ((uint32_t)(count) << 8)

enum { CGR_BATCH_STANDING = -1 }; /* cgr_batch.num_requests: the standing batch, below; rows, query_lens, tokens and flags NULL */

/* Data of tokens or requests for a buffer declared with CGR_SOURCE_STAGED. */
typedef struct cgr_staged {
  int32_t buffer;   /* index into cgr_config.buffers */
  int32_t reserved; /* 0 */
  const void *data; /* [tokens of the batch][width], or [num_requests][width], for the standing batch in the order of its places;
                       needs no alignment */
} cgr_staged;

/* What a step does. Request i has query_lens[i] new tokens (0 is legal). Prepare reads the arrays and keeps none of them. */
typedef struct cgr_batch {
  uint32_t size;
  int32_t lane;              /* 0 */
  int32_t program;           /* whose step it is, 0 .. num_programs - 1; of a draft see programs.h */
  int32_t num_requests;      /* 0 .. max_requests; 0: a step without requests (a dummy step); or CGR_BATCH_STANDING */
  const int32_t *rows;       /* [num_requests], each open, none twice */
  const int32_t *query_lens; /* [num_requests]; NULL: 1 each */
  const int32_t *tokens;     /* [sum of query_lens], one request after the other; NULL: CGR_TOKEN_LAST for all, and guesses
                                CGR_TOKEN_DRAFT(0), (1) .. after it. Only the first token of a request can be CGR_TOKEN_LAST */
  const uint32_t *flags;     /* [num_requests] CGR_REQUEST_*, with CGR_REQUEST_DRAFTS; NULL: 0 each */
  const cgr_staged *staged;  /* [num_staged], each buffer once; the others hold padding in this step */
  int32_t num_staged;        /* 0 .. 64 */
  int32_t common_prefix;     /* 0 */
  int32_t max_steps;         /* 0 */
  uint32_t variant;          /* 0, or one of cgr_config.variants; any other is refused */
  const cgr_key *forced_key; /* run as this key: kind; padded counts, at least the batch's (of an eager step too); query_len, 0 or
                                at least the batch's longest; variant, the batch's own or a superset of it, so a dummy step sets
                                `variant` to the key's. CGR_ERROR_STATE when the key has no graph. NULL: cgr chooses */
  uint32_t plan_flags;       /* 0, or CGR_PLAN_FAST: no one waits for what the step computes, so backends should plan it quickly.
                                Any other flag is CGR_ERROR_INVALID_ENUM. It is for this step alone, and changes neither the key
                                nor the work of the library's own kernels. cgr_plan_flag says when backends see it */
  int32_t reserved;          /* 0 */
} cgr_batch;
#define CGR_BATCH_INIT { (uint32_t)sizeof(cgr_batch), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0 }

/* The standing batch stays from step to step and is edited. A step that changes a few of its requests costs the host the same
 * with many requests as with few. A batch with num_requests CGR_BATCH_STANDING runs it. Whole batches may be given in between and
 * leave it as it is. But after any other step (a whole batch, a dummy step, changes sent ahead, a failed launch, a step that a
 * guard refused) all of it travels again, at the cost of a whole batch. Its order is that of its places: add appends the row,
 * remove gives its place to the last request, swap exchanges two places. Requests are named by their rows.
 *
 * query_len and flags stay until updated. `tokens` [query_len] is copied, and is used up by the step that is launched next, not
 * by one that is cancelled or fails; NULL: CGR_TOKEN_LAST, which only one token can be, and after it guesses, CGR_TOKEN_DRAFT(0),
 * (1) .. So a request of one token without flags goes on by itself, and so does one of 1 + n tokens with CGR_REQUEST_DRAFTS(n) and
 * NULL; one of query_len 0 stands still, keeps its place and counts among the requests; any other must be updated
 * before each step, and a chunk that has run counts no tokens until then.
 *
 * Edits may come in any order, and in between every open row may be in the batch. It is checked when a step is prepared or
 * chosen, as any batch is; a request that lacks its tokens is CGR_ERROR_INVALID_ARGUMENT, and further edits correct it. These
 * edits are refused, without any change: a closed row (CGR_ERROR_ROW_CLOSED); a row that is in the batch, for add
 * (CGR_ERROR_ROW_REPEATED), or is not, for the others (CGR_ERROR_STATE); query_len below 0 (CGR_ERROR_INVALID_ARGUMENT) or above
 * max_tokens, or more than max(2 * max_tokens, 2^18) tokens that wait for a step (CGR_ERROR_TOO_MANY_TOKENS); two tokens or more
 * with `tokens` NULL that are not all guesses but the first (CGR_ERROR_NULL_POINTER); CGR_TOKEN_LAST after the first
 * (CGR_ERROR_INVALID_ARGUMENT); other flags (CGR_ERROR_INVALID_ENUM); guesses that a batch could not have, and CGR_TOKEN_DRAFT
 * where it cannot stand (CGR_ERROR_INVALID_ARGUMENT); a lane or program that does not exist
 * (CGR_ERROR_INVALID_ARGUMENT); a draft (CGR_ERROR_UNSUPPORTED); while a step is prepared, inside `record` and calls
 * (CGR_ERROR_STATE).
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_standing_add(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t query_len,
                                    const int32_t *tokens, uint32_t flags);
CGR_API cgr_status cgr_standing_update(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t query_len,
                                       const int32_t *tokens, uint32_t flags);
CGR_API cgr_status cgr_standing_remove(cgr_runtime *runtime, const cgr_where *where, int32_t row);
CGR_API cgr_status cgr_standing_swap(cgr_runtime *runtime, const cgr_where *where, int32_t row, int32_t other);
/* The rows in their order, valid until the next edit.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_standing_rows(cgr_runtime *runtime, const cgr_where *where, const int32_t **rows, int32_t *count);

/* ------------------------------------------------------------------------------------------------------------------ steps */

typedef enum cgr_step_state {
  CGR_STEP_NONE = 0,
  CGR_STEP_PREPARED = 1,  /* can be launched or cancelled */
  CGR_STEP_LAUNCHED = 2,
  CGR_STEP_CANCELLED = 3,
  CGR_STEP_ABANDONED = 4  /* launch failed and the step is over: none of its tokens count, its rows keep their lengths, its changes
                             are pending again. mark.seq is the number that it used up, 0 if none: its rows' pages are in use until
                             that step has completed. If the device ran the step despite the failure it reported, its rows no
                             longer have a last token (cgr_request_info.has_token) */
} cgr_step_state;

/* A step: filled by prepare, given to launch or cancel. It is kept between calls, so a shorter one is not completed:
 * prepare refuses it with CGR_ERROR_INVALID_STRUCT, launch and cancel with CGR_ERROR_STATE, as a step that is not prepared. */
typedef struct cgr_step {
  uint32_t size;
  int32_t state;         /* cgr_step_state */
  int32_t reason;        /* cgr_reason */
  int32_t program;
  cgr_key key;           /* what launch will replay; kind NONE: eager */
  int32_t num_requests;  /* real */
  int32_t num_tokens;    /* real */
  uint64_t bytes_staged; /* that the device will read for this step */
  cgr_mark mark;         /* names the step for cgr_step_wait; seq is 0 until launch */
  uint64_t ticket;       /* of the runtime */
} cgr_step;
#define CGR_STEP_INIT \
  { (uint32_t)sizeof(cgr_step), 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, { 0, 0, 0 }, 0 }

/* Tells which graph a batch would use, without preparing it, even while another step is prepared: for ranks that must agree
 * before any of them launches. It checks the batch with what is known of its rows' lengths (cgr_request_info.num_tokens), and
 * looks for no results: cgr_step_prepare does, and may find room where this call found none (CGR_ERROR_SEQUENCE_TOO_LONG,
 * CGR_ERROR_PAGES_MISSING). Ranks whose keys differ agree on one that holds every rank's batch, such as the mixed key of the
 * larger counts, and give it as forced_key; a rank without work prepares 0 requests with it.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_choose(cgr_runtime *runtime, const cgr_batch *batch, cgr_key *key);

/* Validates the batch, chooses the graph and stages what has changed, while earlier steps may be in flight; one step can be
 * prepared at a time. CGR_ERROR_BUSY: the ring is full, or a backend plans with exact lengths (it lacks CGR_BACKEND_PLANS_BOUNDS)
 * and a row's guesses have no result yet, or the row may have ended; wait for a step. CGR_ERROR_CHANGES_PENDING: more changes
 * than the ring carries, call cgr_runtime_flush. CGR_ERROR_STATE: no graph and no `record` can run it. After an error nothing has
 * changed.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_prepare(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step);

/* The same, but where that is CGR_ERROR_BUSY it waits for steps in flight, and while too many changes are pending it sends them as
 * cgr_runtime_flush does. It sends them on `stream`; the step may be launched on another one. CGR_NOT_READY after `timeout_ms`
 * (0: it never waits; -1: the configured one): nothing is prepared, and what was sent stays sent. CGR_ERROR_CHANGES_PENDING:
 * sending would make the result of a step with requests expire, and no cgr_step_wait has returned that step or a later one. Wait
 * for it (cgr_step_wait, with a result or NULL), then call again. Other statuses are those of cgr_step_prepare, cgr_runtime_flush
 * and cgr_step_wait.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_step_prepare_wait(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step, int32_t timeout_ms,
                                         cudaStream_t stream);

/* Enqueues the prepared step and gives it its number. Steps complete in the order of their launch; a launch on another stream
 * than the one before is ordered after it by an event. After a failure step->state tells whether the step is still PREPARED (it
 * was refused, or its stream could not be ordered, before anything of it was enqueued) or ABANDONED. CGR_ERROR_CALLBACK:
 * `record`, a function of cgr_record_call or a backend failed, in an eager or a PIECEWISE step. CGR_ERROR_STALE_GRAPH: the step's
 * graph has become stale since it was prepared, by cgr_region_move or _unregister; whether strict, forced or neither, it does not
 * run eagerly, because it was staged for the graph. It is still PREPARED: cancel it and prepare it again.
 * Threads one · Capture no · Sync never (may, after a failed call of the device) · Alloc never (but for what those functions do) */
CGR_API cgr_status cgr_step_launch(cgr_runtime *runtime, cgr_step *step, cudaStream_t stream);

/* Gives up a prepared step; its changes stay pending for the next one.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_cancel(cgr_runtime *runtime, cgr_step *step);

/* Sends pending changes, as many as free ring slots hold, ahead of the next step, in steps without requests. `*last` (`last` may
 * be NULL) is then the last step launched on the lane. CGR_ERROR_BUSY when changes are left: wait for a step, call again. Each of
 * these steps takes a number, so results of earlier steps expire sooner: collect them first.
 * Threads one · Capture no · Sync never (may, after a failed call of the device) · Alloc never */
CGR_API cgr_status cgr_runtime_flush(cgr_runtime *runtime, const cgr_where *where, cgr_mark *last, cudaStream_t stream);

/* --------------------------------------------------------------------------------------------------------------- results */

/* What a guard refused, on the device or in cgr_metadata_build. */
typedef enum cgr_guard_error {
  CGR_GUARD_NONE = 0,
  CGR_GUARD_SEQUENCE = 1, /* the ring slot does not have the number that the device expects: the step ran without requests, and
                             so do the steps that were prepared before this was seen. value: the number in the ring slot */
  CGR_GUARD_PAGE = 2,     /* page `value` at (row, index) is outside the pool or reserved; the read-trash page was used, and what
                             the row's request sampled cannot be trusted: set its length back */
  CGR_GUARD_ROW = 3,      /* row `value` is out of range; the request ran with length 0 */
  CGR_GUARD_COUNT = 4,    /* index 0 or 1: more requests or tokens (`value`) than the step was launched for. index 2 + i:
                             query_start_loc[i] is `value`, which does not start at 0, decreases, gives a request more tokens than
                             the kernels were launched for, or does not end at the step's. The step ran without requests: set
                             their lengths back */
  CGR_GUARD_LENGTH = 5,   /* sequence of `value` tokens, longer than max_seq_len (or max_other_lens); the request ran
                             with length 0. Of a draft also a request that lacks `value` tokens, too few or too many to
                             follow the target (programs.h) */
  CGR_GUARD_CHANGE = 6,   /* a malformed change record; it was dropped */
  CGR_GUARD_ACCEPTED = 7, /* CGR_BUFFER_NUM_ACCEPTED of request `index` is `value`, which is not 0 .. its guesses: none counts as
                             accepted, and what the request sampled cannot be trusted: set its length back */
  CGR_GUARD_TOKEN = 8,    /* request `index` sampled token `value`, outside 0 .. vocab_size - 1: the row goes on with token 0, and
                             what the request sampled cannot be trusted: set its length back. Or `value` is a guess that the
                             row's last step left on the device: the step verified token 0 in its place */
  CGR_GUARD_RANK = 9      /* collectives.h: the steps of ranks differ. row: the first rank whose step is another one than this
                             rank's; value: a bit for each such rank; index: what of it differs (cgr_fingerprint_part). The ranks
                             have parted; nothing that they sample together can be trusted */
} cgr_guard_error;

/* The first thing that a guard refused in a step. There may have been others, in other rows. */
typedef struct cgr_guard {
  int32_t error; /* cgr_guard_error */
  int32_t row;   /* -1: none */
  int32_t index;
  int32_t reserved;
  int64_t value;
} cgr_guard;

/* What a step gave. The arrays stay valid while up to ring_depth - 1 more steps are launched on the lane. */
typedef struct cgr_step_result {
  uint32_t size;
  int32_t program;
  int32_t num_requests;      /* 0 for a step that was abandoned or that a guard emptied */
  int32_t num_steps;         /* 1 */
  int32_t token_stride;      /* 1 + num_draft_tokens */
  int32_t reserved;
  cgr_mark mark;             /* of the step */
  const int32_t *rows;       /* [num_requests] of the batch */
  const uint64_t *tags;      /* [num_requests] given to cgr_request_open, as they were at prepare */
  const int32_t *num_tokens; /* [num_steps][num_requests] sampled tokens: 0 for a request that is partial, had no tokens, or that
                                a guard emptied; 1 and as many as it accepted guesses for any other; after CGR_GUARD_PAGE
                                none of them can be trusted */
  const int32_t *tokens;     /* [num_steps][num_requests][token_stride] CGR_BUFFER_NEXT_TOKENS of the step; what is past
                                num_tokens is undefined */
  cgr_guard guard;           /* error CGR_GUARD_NONE: nothing was refused */
  const uint32_t *values;    /* [num_requests] bits of the checks that found NaN or an infinity, also of requests whose
                                num_tokens is 0; NULL without check_values */
  const int32_t *ended;      /* [num_requests] cgr_end: why the request ended in this step, whose last token is then the one that
                                ended it, or CGR_END_BEFORE; NULL without max_stop_tokens */
} cgr_step_result;
#define CGR_STEP_RESULT_INIT \
  { (uint32_t)sizeof(cgr_step_result), 0, 0, 0, 0, 0, { 0, 0, 0 }, NULL, NULL, NULL, NULL, { 0, 0, 0, 0, 0 }, NULL, NULL }

/* Waits for the step that `mark` names alone, without synchronising the device: `timeout_ms` 0 polls, -1 is the configured
 * timeout. CGR_NOT_READY: it has not completed in time. CGR_ERROR_STEP: it has, and result->guard tells what a guard refused.
 * CGR_ERROR_EXPIRED: it has, but ring_depth newer steps have been launched since. CGR_ERROR_INVALID_ARGUMENT: a step that has not
 * been launched, or seq 0. CGR_ERROR_STATE inside `record`, calls and functions of backends, also for a poll. `result` may be
 * NULL. A thread other than the one that launches must not wait here. Other threads, `record` and functions of backends
 * may call cgr_runtime_completed.
 * Threads one · Capture no · Sync poll never, wait may · Alloc never */
CGR_API cgr_status cgr_step_wait(cgr_runtime *runtime, cgr_mark mark, int32_t timeout_ms, cgr_step_result *result);

/* Number of the last step that has completed on a lane; 0: none.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_completed(cgr_runtime *runtime, const cgr_where *where, uint64_t *seq);

#ifdef __cplusplus
}
#endif
#endif

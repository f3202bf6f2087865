/* Ranks: the processes or threads that run one model on several devices, a runtime each, and must replay the same graphs in the
 * same order. They agree on a key before a step, compare what they have launched, and tell who is missing. What they send each
 * other is small and goes from host to host, through an exchange of the engine's or through a board in shared memory. Not
 * included by cgr.h. */
#ifndef CGR_RANKS_H
#define CGR_RANKS_H

#include "cgr/graphs.h"
#include "cgr/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CGR_MAX_RANKS = 64,
  CGR_EXCHANGE_BYTES = 448 /* the longest block of an exchange */
};

/* -------------------------------------------------------------------------------------------------------------- exchange */

/* How ranks send each other small blocks. */
typedef struct cgr_exchange {
  uint32_t size;
  int32_t rank;      /* this one's number, 0 .. num_ranks - 1 */
  int32_t num_ranks; /* at most CGR_MAX_RANKS; 0: 1 */
  int32_t reserved;  /* 0 */
  void *context;     /* of the functions */
  /* Gathers a block of every rank: `mine` is `bytes` long, 1 .. CGR_EXCHANGE_BYTES, as on every rank, and all
   * [num_ranks][bytes] gets the blocks in the order of ranks. CGR_NOT_READY after timeout_ms (-1: never) if ranks are missing:
   * bit r of `*missing` is set for rank r, as far as it is known. The next call then goes on with the same block.
   * CGR_ERROR_RANK: a rank will not come any more; the ranks have parted. Any other failure is CGR_ERROR_CALLBACK of whoever
   * called. */
  cgr_status (*gather)(void *context, const void *mine, size_t bytes, void *all, int32_t timeout_ms, uint64_t *missing);
  /* Shows this rank's state to whoever asks, and reads that of a rank, at any time and without waiting: `bytes` is at most
   * CGR_EXCHANGE_BYTES. Used for reports; both NULL: a report knows of other ranks what they said at their last agreement. */
  void (*show)(void *context, const void *state, size_t bytes);
  /* CGR_NOT_READY: it has shown nothing. CGR_ERROR_RANK: `state` is the last that it will show, since it has left or ended. Any
   * thread, while `show` runs, too. */
  cgr_status (*look)(void *context, int32_t rank, void *state, size_t bytes);
} cgr_exchange;
#define CGR_EXCHANGE_INIT { (uint32_t)sizeof(cgr_exchange), 0, 0, 0, NULL, NULL, NULL, NULL }

/* An exchange over shared memory, for ranks of one machine: processes that see each other's numbers and the same shared memory
 * (containers share both), or threads of one process. */
typedef struct cgr_board cgr_board;

/* Meets the other ranks under `name`: 1 .. 200 letters, digits, '.', '_' and '-', the same on all of them and of this run
 * alone. The memory has that name only until all have met, so that no end of a process leaves it behind. CGR_NOT_READY when
 * some have not come after timeout_ms (-1: never); the message names them. CGR_ERROR_STATE: another run of this name is under
 * way, or another process has this rank. CGR_ERROR_INVALID_ARGUMENT: name, rank, num_ranks (which must be that of the others).
 * CGR_ERROR_OUT_OF_MEMORY: no shared memory.
 * Threads any · Capture ok · Sync waits · Alloc cold */
CGR_API cgr_status cgr_board_open(const char *name, int32_t rank, int32_t num_ranks, int32_t timeout_ms, cgr_board **board);
/* Leaves the others: their exchanges fail from now on with CGR_ERROR_RANK, and name this rank. NULL is legal.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_board_close(cgr_board *board);
/* The exchange of the board, which must outlive it. Its gather waits on the processor, and after 50 us in short sleeps. It
 * fails with CGR_ERROR_RANK, and names the rank, when one has left or its process has ended.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_board_exchange(cgr_board *board, cgr_exchange *exchange);

/* ---------------------------------------------------------------------------------------------------------------- counts */

/* What dispatch knows of a batch. */
typedef struct cgr_batch_counts {
  uint32_t size;
  int32_t num_requests;  /* 0 .. max_requests */
  int32_t num_tokens;    /* 0 .. max_tokens */
  int32_t query_len;     /* new tokens of every request; 0: they differ, or there are none */
  int32_t max_query_len; /* of the longest */
  uint32_t variant;
  uint64_t reserved; /* 0 */
} cgr_batch_counts;
#define CGR_BATCH_COUNTS_INIT { (uint32_t)sizeof(cgr_batch_counts), 0, 0, 0, 0, 0, 0 }

/* Checks a batch as cgr_step_choose does, and tells its counts.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_count(cgr_runtime *runtime, const cgr_batch *batch, cgr_batch_counts *counts);
/* The key of a batch of such counts, and why (cgr_reason; `reason` may be NULL). Strict or not, one without a graph is eager,
 * with the counts as its padded ones. CGR_ERROR_INVALID_ARGUMENT: counts that no batch has.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_step_choose_counts(cgr_runtime *runtime, const cgr_batch_counts *counts, cgr_key *key, int32_t *reason);

/* Hashes that ranks compare: `keys` (may be NULL) of all keys, and of what dispatch chooses by; `usable` of which of them can
 * be replayed now. Equal ones mean that both runtimes choose the same key for the same counts.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_hash_keys(cgr_runtime *runtime, uint64_t *keys, uint64_t *usable);

/* ------------------------------------------------------------------------------------------------------------- agreement */

/* Whose batch decides. */
typedef enum cgr_ranks_rule {
  CGR_RANKS_LARGEST = 0, /* the largest counts of all ranks: each has a batch of its own, or none (data and expert parallel) */
  CGR_RANKS_SAME = 1     /* all ranks have the same batch (tensor parallel); other counts are refused */
} cgr_ranks_rule;

typedef struct cgr_ranks_config {
  uint32_t size;
  int32_t rule;                 /* cgr_ranks_rule */
  const cgr_exchange *exchange; /* copied; what it points to outlives the ranks */
  int32_t timeout_ms;           /* of every wait for other ranks; 0: 30,000; -1: they wait for ever */
  int32_t reserved;             /* 0 */
  uint64_t model;               /* whatever else must be the same on all ranks, as a number: a hash of weights' names, say */
} cgr_ranks_config;
#define CGR_RANKS_CONFIG_INIT { (uint32_t)sizeof(cgr_ranks_config), 0, NULL, 0, 0, 0 }

/* This rank among the others. */
typedef struct cgr_ranks cgr_ranks;

/* What a rank brings to an agreement. */
typedef struct cgr_rank_proposal {
  uint32_t size;
  int32_t status;          /* cgr_status of cgr_step_count: not CGR_OK, the rank cannot run its batch */
  uint64_t agreement;      /* number of the agreement, from 1 */
  cgr_batch_counts counts; /* of its batch; no requests: it is idle. Its size may be 0 */
  uint64_t keys;           /* of cgr_runtime_hash_keys, with cgr_ranks_config.model: must be equal */
  uint64_t usable;         /* of cgr_runtime_hash_keys: if it differs, the ranks ask each other once more */
  uint64_t steps;          /* launched since the first agreement, but for those of the runtime itself (CGR_REASON_INTERNAL): must
                              be equal */
  uint64_t history;        /* hash of the keys of these steps: must be equal. 0: the flight recorder has not kept all of them since
                              the last agreement; steps are not compared then, and count on all ranks from this agreement on */
  cgr_key last;            /* key of the last of them */
} cgr_rank_proposal;
#define CGR_RANK_PROPOSAL_INIT                                                                                             \
  { (uint32_t)sizeof(cgr_rank_proposal), 0, 0, { 0, 0, 0, 0, 0, 0, 0 }, 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } } }

typedef struct cgr_agreement {
  uint32_t size;
  int32_t reason;          /* cgr_reason of dispatch for the counts */
  cgr_key key;             /* for cgr_batch.forced_key, of an eager step too; an idle rank sets cgr_batch.variant to its variant,
                              too */
  uint64_t number;         /* from 1 */
  cgr_batch_counts counts; /* that the key holds */
  int32_t eager_rank;      /* the first rank that has no graph which another has, so that all run eagerly; -1: none */
  int32_t idle;            /* ranks without requests; when it is all of them, no step is needed */
} cgr_agreement;
#define CGR_AGREEMENT_INIT \
  { (uint32_t)sizeof(cgr_agreement), 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, { 0, 0, 0, 0, 0, 0, 0 }, 0, 0 }

/* Joins the others, who call it too; the runtime outlives the ranks. CGR_ERROR_RANK: their keys, what dispatch chooses by, or
 * model differ. CGR_NOT_READY and other statuses as for cgr_ranks_agree.
 * Threads one · Capture no · Sync waits · Alloc cold */
CGR_API cgr_status cgr_ranks_create(cgr_runtime *runtime, const cgr_ranks_config *config, cgr_ranks **ranks);
/* NULL is legal.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_destroy(cgr_ranks *ranks);

/* Before each step: tells the others what this rank's batch is (NULL, or one of no requests: it is idle), and agrees with them
 * on the key that all prepare and launch. It also compares what each has launched since the first agreement: a step that one
 * rank has skipped, or launched with another key, is seen here, before the next step. So each rank launches or cancels what it has
 * prepared before it agrees anew, as the others do.
 *
 * CGR_ERROR_RANK: the ranks have parted; the message names one and what differs, and so does every later call. Or a rank cannot
 * run its batch, or (CGR_RANKS_SAME) has another one; the message names it, and all may agree anew. CGR_NOT_READY: some have not
 * come within timeout_ms; the message names them, and cgr_ranks_report tells more. Call it again to go on waiting: the batch of
 * the first call counts. After these nothing may be launched. Other failures are this rank's own: those of cgr_step_choose and
 * CGR_ERROR_DEAD, of which the others get CGR_ERROR_RANK; CGR_ERROR_INVALID_ARGUMENT on all ranks, as for cgr_ranks_decide; and
 * CGR_ERROR_CALLBACK, the exchange's.
 * Threads one · Capture no · Sync waits · Alloc never */
CGR_API cgr_status cgr_ranks_agree(cgr_ranks *ranks, const cgr_batch *batch, cgr_agreement *agreement);
/* What rank `rank` brought to the last agreement: its number of tokens, say. CGR_ERROR_STATE: there was none.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_proposal(const cgr_ranks *ranks, int32_t rank, cgr_rank_proposal *proposal);

/* Decides without a runtime: what differs between the proposals, CGR_ERROR_RANK, or the counts that a common key must hold.
 * Every rank comes to the same answer from the same proposals [num_ranks]. CGR_ERROR_INVALID_ARGUMENT: num_ranks, or ranks that
 * have batches of different variants; CGR_ERROR_INVALID_ENUM: rule.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_decide(const cgr_rank_proposal *proposals, int32_t num_ranks, int32_t rule,
                                    cgr_batch_counts *counts);

/* Waits until every rank has come to the barrier of this name, 1 .. 31 characters. CGR_ERROR_RANK: a rank is at another call,
 * or has failed; CGR_NOT_READY as for cgr_ranks_agree.
 * Threads one · Capture no · Sync waits · Alloc never */
CGR_API cgr_status cgr_ranks_barrier(cgr_ranks *ranks, const char *name);
/* cgr_runtime_capture on all ranks: each begins when all have come, captures the same keys in the same order, so that
 * collectives inside `record` meet, and waits for the others to end. If it fails on a rank, that one returns its own status and
 * the others CGR_ERROR_RANK; what was captured stays, and steps agree on what all of them have. After CGR_NOT_READY the next call
 * goes on where this one was: a capture that is done is not done again.
 * Threads one · Capture no · Sync waits · Alloc cold */
CGR_API cgr_status cgr_ranks_capture(cgr_ranks *ranks, const cgr_capture *capture);

/* ---------------------------------------------------------------------------------------------------------------- report */

/* What a rank is doing outside of cgr's calls, for reports: text of at most 47 characters ("all-reduce of logits"), or NULL:
 * nothing that others should know.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_note(cgr_ranks *ranks, const char *text);

/* A text of all ranks, this one first if it asks: where each is (which call, since when, which note), its last agreement and
 * key, the last step that it launched and the last that its device has completed, and which ranks the others wait for. It asks
 * no device and waits for no rank: what a rank has shown may be older than what it does. Written as snprintf does: `*length` is
 * that of the whole text without its end, of which at most capacity - 1 characters and a 0 are written.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_report(cgr_ranks *ranks, char *out, size_t capacity, size_t *length);

/* ----------------------------------------------------------------------------------------------------------------- watch */

/* What hangs, and who is told. All ranks watch: each shows how far its own device is. */
typedef struct cgr_rank_watch {
  uint32_t size;
  int32_t timeout_ms;  /* a device that has completed no step of those launched for this long hangs, and so does a rank that has
                          waited for others for this long; 0: the ranks' timeout_ms, which must not be -1 then */
  int32_t interval_ms; /* of a watchdog, between two looks; 0: a fourth of the timeout, at most 1000 */
  int32_t reserved;    /* 0 */
  /* What the device is in, as text of at most 79 characters: cgr_nccl_where. Called by whoever looks, without waiting for the
   * device; NULL: it is not known. */
  cgr_status (*where)(void *context, char *out, size_t capacity);
  void *where_context;
  void (*hangs)(void *context, const char *report); /* of a watchdog: called on its thread, once until what hung goes on */
  void *hangs_context;
} cgr_rank_watch;
#define CGR_RANK_WATCH_INIT { (uint32_t)sizeof(cgr_rank_watch), 0, 0, 0, NULL, NULL, NULL, NULL }

/* One look, for a thread of the engine's that makes one every so often, while another thread is inside the runtime or in calls of
 * the ranks. CGR_OK: nothing hangs. CGR_NOT_READY: something does; the message, and the first line of the report at `out`, say
 * which ranks, since when, in which step, key and collective, and who is behind; after it comes a line for each rank, as in
 * cgr_ranks_report. `*length` as there; 0 if nothing hangs.
 * Threads any, one at a time · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_ranks_look(cgr_ranks *ranks, const cgr_rank_watch *watch, char *out, size_t capacity, size_t *length);

/* A thread that looks. The runtime must not be destroyed, nor the ranks, before it is stopped. */
typedef struct cgr_watchdog cgr_watchdog;
/* CGR_ERROR_NULL_POINTER: no `hangs`. CGR_ERROR_OUT_OF_MEMORY: no thread.
 * Threads any · Capture ok · Sync never · Alloc cold */
CGR_API cgr_status cgr_ranks_watch(cgr_ranks *ranks, const cgr_rank_watch *watch, cgr_watchdog **watchdog);
/* Waits for the thread's end, and so for `hangs` if it is running: not to be called there. NULL is legal.
 * Threads any · Capture ok · Sync waits · Alloc never */
CGR_API cgr_status cgr_watchdog_stop(cgr_watchdog *watchdog);

#ifdef __cplusplus
}
#endif
#endif

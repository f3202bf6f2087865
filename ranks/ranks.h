/* A rank among others: what it sends them at each call, and what it knows of them. */
#ifndef CGR_RANKS_RANKS_H
#define CGR_RANKS_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cgr/ranks.h"
#include "cgr/tracing.h"

#define CGR__RANKS_MAGIC 0x43475252u /* "CGRR" */
#define CGR__RANKS_NAME_BYTES 32
#define CGR__RANKS_NOTE_BYTES 48
#define CGR__RANKS_WHERE_BYTES 80
#define CGR__RANKS_RECORDS 256 /* of the flight recorder that are read at most: the fewest that it keeps */

/* Calls in which ranks meet. */
typedef enum cgr__rank_call {
  CGR__RANK_NONE, /* in none of them */
  CGR__RANK_CREATE,
  CGR__RANK_AGREE,
  CGR__RANK_CHOOSE, /* the second question of an agreement */
  CGR__RANK_BARRIER,
  CGR__RANK_CAPTURE,
  CGR__RANK_CAPTURED
} cgr__rank_call;

/* What each sends the others when they meet. */
typedef struct cgr__rank_block {
  uint32_t magic;
  int32_t call;                     /* cgr__rank_call */
  int32_t rule;                     /* cgr_ranks_rule */
  uint32_t version;                 /* CGR_VERSION */
  char name[CGR__RANKS_NAME_BYTES]; /* of the barrier */
  cgr_rank_proposal proposal;       /* in other calls than AGREE some of it */
  cgr_key choice;                   /* of CHOOSE */
} cgr__rank_block;
_Static_assert(sizeof(cgr__rank_block) <= CGR_EXCHANGE_BYTES, "a block fits an exchange");

/* What a rank shows, for reports. */
typedef struct cgr__rank_state {
  uint32_t magic;
  int32_t call;       /* cgr__rank_call that it is in */
  uint64_t since_ns;  /* CLOCK_MONOTONIC, when it came into it, or out of the last */
  uint64_t agreement; /* number of the last */
  uint64_t launched;  /* seq of the last step */
  uint64_t completed; /* seq of the last one that the device has completed */
  uint64_t missing;   /* ranks that it waits for */
  uint64_t noted_ns;  /* when the note was made */
  cgr_key key;        /* of the last agreement */
  char name[CGR__RANKS_NAME_BYTES];
  char note[CGR__RANKS_NOTE_BYTES];   /* "": none */
  cgr_key before;                     /* of the agreement before the last */
  uint64_t launched_before;           /* seq of the last step when the last agreement was made */
  uint64_t blames;                    /* ranks that it has found behind when it last looked; 0: nothing hung */
  uint64_t stalled_ns;                /* since when its device has completed no step, though one is launched; 0: it is not so */
  uint64_t due_ns;                    /* when it must have looked again, if its process runs; 0: it does not look */
  char where[CGR__RANKS_WHERE_BYTES]; /* that the device was in then; "": not known */
} cgr__rank_state;
_Static_assert(sizeof(cgr__rank_state) <= CGR_EXCHANGE_BYTES, "a state fits an exchange");

struct cgr_ranks {
  uint32_t magic;
  int32_t rule, timeout_ms;
  cgr_runtime *runtime;
  cgr_exchange exchange;
  cgr__rank_block mine;                      /* that others get, or have got */
  bool waits;                                /* the last call has not met all others: it goes on with `mine` */
  bool parted;                               /* nothing is agreed any more: `why` */
  char why[256];                             /* or, if they have not, why this rank's own batch was refused */
  uint64_t keys;                             /* hash of the runtime's and the model */
  uint64_t last_seq;                         /* up to which the history counts */
  cgr_agreement agreed, next;                /* the last, and the one under way */
  cgr__rank_state state;                     /* under the lock below */
  int locked;                                /* atomic: this rank's own thread, or one that looks, is at the state */
  uint64_t seen_ns, seen_completed;          /* of looks: the last step that was seen completed, and when it was new */
  cgr__rank_block all[CGR_MAX_RANKS];        /* of the last meeting */
  cgr_rank_proposal proposal[CGR_MAX_RANKS]; /* of the last agreement */
  cgr_flight_record records[CGR__RANKS_RECORDS];
};

/* meet.c: sends `mine` as this call's block and gathers those of the others, or goes on waiting for them. All are then in the
 * same call. CGR_ERROR_RANK if they are not. */
cgr_status cgr__ranks_meet(cgr_ranks *ranks, const char *function, cgr__rank_call call);
/* Checks the handle, and that the ranks have not parted. */
cgr_status cgr__ranks_check(const cgr_ranks *ranks, const char *function);
/* For good: the thread's last message is why. Returns CGR_ERROR_RANK. */
cgr_status cgr__ranks_part(cgr_ranks *ranks);
/* Keeps the thread's last message in `why`. */
void cgr__ranks_keep_message(cgr_ranks *ranks);
void cgr__ranks_show(cgr_ranks *ranks, cgr__rank_call call, uint64_t missing);
const char *cgr__rank_call_name(int32_t call);
/* For some instructions: a thread that looks and the rank's own share the state. */
void cgr__ranks_lock(cgr_ranks *ranks);
void cgr__ranks_unlock(cgr_ranks *ranks);
/* Under the lock: gives the state to the exchange, for others that look. */
void cgr__ranks_send_state(const cgr_ranks *ranks);

/* report.c: a text that grows as by snprintf. */
typedef struct cgr__report_text {
  char *out;
  size_t capacity, length;
} cgr__report_text;
void cgr__report_add(cgr__report_text *text, const char *format, ...) CGR__FORMAT(2, 3);
/* What a rank has shown, and whether it has left or ended. False: nothing. Of this rank its own. */
bool cgr__ranks_read_state(cgr_ranks *ranks, int32_t rank, cgr__rank_state *state, bool *gone);
void cgr__report_add_rank(cgr__report_text *text, cgr_ranks *ranks, int32_t rank, uint64_t now);
/* "step 5 (full 1r 1t q1 v0)": the first that the device has not completed. */
typedef struct cgr__step_text {
  char text[96];
} cgr__step_text;
cgr__step_text cgr__ranks_step_text(const cgr__rank_state *state);

/* decide.c: CGR_ERROR_RANK for the first number that is not the same on all ranks. What they have launched is not compared when
 * one cannot run its batch, or does not know it. */
cgr_status cgr__ranks_compare(const char *function, const cgr_rank_proposal *proposals, int32_t num_ranks);

bool cgr__ranks_lack_history(const cgr_rank_proposal *proposals, int32_t num_ranks);

/* history.c: counts what the runtime has launched since the last call; `counts` false: only goes by it. */
cgr_status cgr__ranks_follow(cgr_ranks *ranks, bool counts);
/* Nothing is launched yet. */
void cgr__ranks_begin_history(cgr_ranks *ranks);
/* Only looks which steps are launched and completed, for reports. */
cgr_status cgr__ranks_look_at_runtime(cgr_ranks *ranks);

#endif

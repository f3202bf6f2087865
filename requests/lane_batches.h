/* The batches of a lane and a program: what is kept of those that were validated, and the one that stays from step to step. The
 * rows are common to all lanes; they know the batches that count on them (cgr__rows.batches). */
#ifndef CGR_REQUESTS_LANE_BATCHES_H
#define CGR_REQUESTS_LANE_BATCHES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "buffers/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------------- batch layouts */

/* A batch as it was validated. Rows, results and the ring slot refer to it; it does not change while a result refers to it. What
 * a batch that repeats is compared with comes first. */
typedef struct cgr__batch_layout { /* a cache line */
  int32_t num_requests, num_tokens;
  int32_t query_len;     /* of all requests; 0: mixed, or no requests */
  int32_t max_query_len; /* 0: no tokens */
  int32_t *rows;         /* [num_requests] */
  int32_t *query_lens;
  uint16_t num_partial;  /* requests: those that have flags */
  uint16_t num_guessing; /* those that have guesses; of a batch that was looked at request by request */
  int16_t uses;          /* steps in the ring, and the prepared step, that refer to it */
  uint8_t program;       /* whose step has it */
  uint32_t *flags;
  uint64_t *tags;
  uint64_t version; /* of the members whose rows and tags these are; 0: of a batch that they are not */
} cgr__batch_layout;

#define CGR__SPARE_BATCH_LAYOUTS 3 /* besides those of results */

/* The batch layouts: of the results in the ring, of the step launched last, of the prepared step; and one to validate into. What
 * every step reads comes last, next to the members. */
typedef struct cgr__batch_layouts {
  cgr__batch_layout *all;     /* [depth + CGR__SPARE_BATCH_LAYOUTS] */
  cgr__batch_layout **of_seq; /* [depth] of the step in this ring slot; NULL: a step without requests of its own */
  int32_t depth;
  uint32_t mask; /* depth - 1 when the depth is a power of two, else 0 */
} cgr__batch_layouts;

/* Where the batch layout of step `seq` is noted. */
static inline cgr__batch_layout **cgr__batch_layout_place(const cgr__batch_layouts *pool, uint64_t seq) {
  return &pool->of_seq[pool->mask ? seq & pool->mask : seq % (uint64_t)pool->depth];
}

static inline const cgr__batch_layout *cgr__batch_layout_of(const cgr__batch_layouts *pool, uint64_t seq) {
  return *cgr__batch_layout_place(pool, seq);
}

size_t cgr__batch_layouts_bytes(int32_t max_requests, int32_t ring_depth);
void cgr__batch_layouts_init(cgr__batch_layouts *pool, int32_t max_requests, int32_t ring_depth, void *memory);

/* Step `seq` was launched with this batch layout (NULL: without requests of its own); the result of step seq - depth is gone. */
void cgr__batch_layouts_launch(cgr__batch_layouts *pool, uint64_t seq, cgr__batch_layout *batch);

/* ------------------------------------------------------------------------------------------------------------ the members */

/* For each step, how many members may no longer fit: schedule.h. */
typedef uint16_t cgr__schedule;

#define CGR__EDIT_LOG 256 /* places that the standing batch's edit log holds; a power of two */

/* A listed member. Of the engine's standing batch: one that is not just a request with one token a step, or with none. While the
 * members follow: one with a partial chunk, a shared prefix or no last token. */
typedef struct cgr__irregular {
  int32_t next, prev;
  int32_t first_token; /* of its given tokens, in cgr__members.tokens, or one of these: */
} cgr__irregular;
#define CGR__TOKEN_LAST_GIVEN (-1) /* its one token is CGR_TOKEN_LAST, or it has none; always this while the members follow */
#define CGR__TOKENS_USED_UP (-2)   /* a step has run it: it must be set again */

/* The batch that stays from step to step, and what is kept of its members. Either the engine edits it (standing.h), or it follows
 * the batches that are given whole (follow.h). The fields that an unchanged step reads come first. */
typedef struct cgr__members {
  uint64_t steps;      /* launched so far */
  uint64_t last_seq;   /* of the last one */
  uint64_t version;    /* counts, from 1, places that got another row, in `edit_log`; CGR__EDIT_LOG at once: too many for it */
  uint64_t device_seq; /* step whose batch layout on the device is the members', but for the dirty places */
  cgr__batch_layout *copy; /* what results of the last steps refer to, if it is as the members are; else NULL */

  cgr__schedule *schedule;    /* of the members' steps */
  int32_t num_lacking_tokens; /* members that lack a token */
  int32_t num_dirty;          /* places that differ from what the device has */
  int32_t first_irregular;    /* rows; -1: none. In the order in which their tokens were given */
  bool follows;               /* the members are those of the batch that was given whole last */
  bool all_dirty;             /* so many places differ that they are not listed */
  bool stale; /* a whole batch with rows of the members was launched since their last step: they are looked at anew */
  cgr__batch_layout layout; /* by place, up to max_rows between two steps; num_requests always, the rest once validated. A
                                row that was closed while the members follow leaves a hole, -1 */

  int32_t num_holes; /* of members that follow */
  int32_t num_irregular;
  int32_t num_short[2]; /* members with no token, and with one */
  int64_t sum_tokens;   /* of the members. A chunk that has run counts nothing until it is set again */
  int32_t num_tokens;   /* used of `tokens` */
  int32_t last_irregular;
  int32_t max_requests, max_tokens; /* of a step */
  int32_t num_kept, max_kept;       /* tokens that were given and are not used up */
  cgr__irregular *irregular;        /* [max_rows] */
  int32_t *tokens;                  /* [2 * max_kept] given and not used up */
  int32_t *dirty;                   /* [max_rows] */
  uint64_t *dirty_bit;              /* a bit for each */
  int32_t edit_log[CGR__EDIT_LOG];
} cgr__members;

/* --------------------------------------------------------------------------------------------------------- all of a lane */

typedef struct cgr__lane_batches {
  uint64_t last_device_seq; /* step whose batch layout on the device is that of `last` */
  cgr__batch_layouts layouts;
  cgr__batch_layout *last; /* the batch that was given whole last, unless the members follow it; NULL: none */
  cgr__members members;
} cgr__lane_batches;

static_assert(offsetof(cgr__lane_batches, members.schedule) - offsetof(cgr__lane_batches, layouts.of_seq) ==
                      CGR__CACHE_LINE_BYTES &&
                  offsetof(cgr__lane_batches, members.layout.flags) - offsetof(cgr__lane_batches, members.schedule) ==
                      CGR__CACHE_LINE_BYTES,
              "a whole batch that repeats looks at two cache lines");
/* What the next step needs of them, whichever kind of batch it has. */
static inline void cgr__lane_batches_prefetch(const cgr__lane_batches *batches) {
  __builtin_prefetch(&batches->layouts.of_seq, 1);
  __builtin_prefetch(&batches->members.schedule, 1);
  __builtin_prefetch(&batches->members.layout.flags, 1);
}

/* Host memory: one block of cgr__lane_batches_bytes, cleared by the caller. With max_requests 0 there is no standing batch. */
size_t cgr__lane_batches_bytes(const cgr__limits *limits);
void cgr__lane_batches_init(cgr__lane_batches *batches, const cgr__limits *limits, void *memory);

#ifdef __cplusplus
}
#endif

#endif

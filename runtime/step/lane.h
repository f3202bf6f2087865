/* What a runtime keeps of its steps: the buffers, ring and state of a lane, and the prepared step. */
#ifndef CGR_RUNTIME_STEP_LANE_H
#define CGR_RUNTIME_STEP_LANE_H

#include <assert.h>

#include "buffers/ring.h"
#include "cgr/cgr.h"
#include "graphs/graphs.h"
#include "kernels/on_demand.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/step.h"
#include "requests/batch.h"
#include "requests/lane_batches.h"

/* A step between prepare and launch or cancel. Its choice is kept afterwards: the next step may be like it. */
typedef struct cgr__prepared {
  uint64_t ticket; /* 0: no step is prepared */
  uint64_t seq;    /* of the step itself; its change steps have the numbers before it */
  uint64_t bytes;  /* that the device will read */
  cgr__checked_batch batch;
  int32_t num_change_steps; /* steps without requests that carry changes ahead of it */
  bool batch_staged;
  uint8_t plan_flags; /* of the batch */
  cgr__choice choice;
} cgr__prepared;

/* One set of step buffers, ring and state. Its steps execute in order. What every step needs comes first, without a gap,
 * and at the beginning of `batches`. */
typedef struct cgr__lane {
  uint64_t launched;        /* number of the last launched step */
  uint64_t generation;      /* losses seen so far */
  uint64_t device_batch;    /* step whose batch layout is on the device; 0: none that the host knows */
  cudaStream_t last_stream; /* of the last launch; NULL: none yet */
  cgr__prepared prepared;
  cgr__ring ring;
  cgr__lane_batches batches;
  cgr__step_args args; /* of prologue and epilogue; the padded counts are set per key */
  cgr__planner_args planner_args;
  cgr__staged_args staged_args;
  cgr__on_demand_args on_demand_args;
  uint32_t other_groups[CGR__MAX_PROGRAMS]; /* of a program: the groups of others, a bit each */
} cgr__lane;

static_assert(offsetof(cgr__lane, ring.slot) <= 4 * CGR__CACHE_LINE_BYTES &&
                  offsetof(cgr__lane, batches.layouts.of_seq) == 5 * CGR__CACHE_LINE_BYTES,
              "a whole batch that repeats looks at four cache lines, and at two of the batches");
/* What the next step needs of it. */
static inline void cgr__lane_prefetch(const cgr__lane *lane) {
  for (size_t at = 0; at < offsetof(cgr__lane, ring); at += CGR__CACHE_LINE_BYTES)
    __builtin_prefetch((const unsigned char *)lane + at, 1);
  cgr__lane_batches_prefetch(&lane->batches);
}

/* The check of the read-trash pages. */
typedef struct cgr__read_trash {
  unsigned char *copies; /* [cgr__read_trash_bytes], pinned; NULL: nothing is looked at */
  uint64_t seq;          /* of the step that the copy goes ahead of; 0: no copy is under way */
  uint64_t next;         /* so many steps must have been launched for another */
  cudaStream_t stream;   /* of the last copy */
  bool unseen;           /* that copy may still run: until a step on its stream has completed, only that stream copies */
  char found[320];       /* what cgr_step_prepare has not told yet; "": nothing */
} cgr__read_trash;

/* A step whose query_start_loc is checked, and what that may hold. */
typedef struct cgr__starts_of {
  uint64_t seq; /* 0: none */
  int32_t num_requests, num_tokens;
  int32_t max_query_len; /* that its kernels were launched for */
} cgr__starts_of;

typedef struct cgr__starts {
  int32_t *copy;         /* [max_requests + 1], pinned; NULL: nothing is looked at */
  bool lost;             /* a copy may be under way on a stream that no later step uses: no other is made */
  cgr__starts_of copied; /* the step after which `copy` is taken */
  cgr__starts_of last;   /* the last step with requests */
} cgr__starts;

#endif

/* What a runtime keeps while `record` runs, and what backends keep for planning. */
#ifndef CGR_RUNTIME_RECORD_RECORDER_H
#define CGR_RUNTIME_RECORD_RECORDER_H

#include "cgr/cgr.h"
#include "graphs/recorder.h"
#include "base/limits.h"
#include "requests/batch.h"

/* What `record` has done, a bit per layer. */
typedef struct cgr__layer_marks {
  uint8_t appended[CGR__MAX_LAYERS / 8], attended[CGR__MAX_LAYERS / 8];
  uint8_t read[CGR__MAX_LAYERS / 8]; /* their cache has been read */
} cgr__layer_marks;

static inline bool cgr__layer_is_marked(const uint8_t *marks, int32_t layer) { return marks[layer / 8] & 1u << layer % 8; }
static inline void cgr__layer_mark(uint8_t *marks, int32_t layer) { marks[layer / 8] |= (uint8_t)(1u << layer % 8); }

/* What `record` gets (base, whose owner this is), and what the runtime keeps with it. */
typedef struct cgr__step_recorder {
  struct cgr_recorder base;
  cgr_runtime *runtime;
  const cgr__batch_layout *batch; /* of the step; NULL: in a capture, or none */
  void *const *states;            /* of the backends, for this step's key */
  bool of_eager;                  /* the states are those of eager steps */
  int32_t backend;                /* the one whose function is running, plus 1; 0: none */
  cgr_status refused;             /* status of a library kernel that failed to launch in that function; else CGR_OK */
  bool after_append;              /* for that function: it may begin while the append, the call before it, runs */
  bool plans_first;               /* the plans of backends with PLANS_FIRST are being enqueued */
  bool branched;                  /* there is a branch alongside the step */
  bool branch_joined;             /* the step need not wait for it (any more) */
  bool fetch_forked;              /* and not joined */
  bool checks_ends;               /* of the memory that calls name: cgr__memory_end_check */
  bool records;                   /* the step has a `record`, or what it has captured */
  int32_t layer_open;             /* the layer whose range is open, plus 1; 0: none is */
  int32_t timed_layer;            /* the layer that is under way, plus 1; 0: none, or layers are not timed */
  int32_t layers_left;            /* still to come before the fetch of the next ring slot forks; 0: it has, or never will */
  int32_t set;                    /* the length set whose tokens the step has */
  uint32_t plan_flags;            /* that the engine gave with the batch */
  cgr__layer_marks marks;
  cgr_plan_key plan_key; /* of the backend's function that has asked for it last */
} cgr__step_recorder;

/* What backends keep for planning. */
typedef struct cgr__backend_plans {
  void **states;    /* [keys + 1][1 + CGR__MAX_BACKENDS]: of each graph entry, then of eager steps; NULL: there are no layers */
  bool *has_states; /* [keys + 1]: they have been created */
  int32_t num_keys;
  bool has_first, has_after;                  /* some backend enqueues plans: before what is staged and on demand, or after it */
  int32_t *rows, *query_start_loc, *seq_lens; /* [R], [R + 1], [R]: of the step that is planned on the host */
  void *nowhere;                              /* [the largest plan_bytes]: for a plan that no step uses */
} cgr__backend_plans;

#endif

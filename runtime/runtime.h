/* The runtime behind cgr.h: what it owns and how its files divide the work.
 *
 *   hot     step.c      prepare, launch, cancel          stage.c      fills the slots of a step
 *           result.c    results                          wait.c       waits for steps and streams
 *           prepare_wait.c   prepares, and waits for a slot           requests.c   rows and their pages
 *           staged.c    data of the engine's own buffers          standing.c   edits of the standing batch
 *   steps   eager.c     enqueues one step through `record`            attention.c  cgr_record_attention
 *           merge.c     cgr_record_merge                              extent.c         what views must hold
 *           values.c    cgr_record_check_values
 *           native.c    the library's own backend                     backend_plans.c  plans, states of all backends
 *           layers.c    what a step asks of its layers
 *           flush.c     steps without requests: changes sent ahead    recover.c    launches that failed
 *           flight.c    the record of every step                  bounds.c     a step's longest lengths, its decodes
 *   cold    create.c    makes and destroys               capture.c    captures, warms up, releases
 *           estimate.c  what a capture will take             audit.c   what captured graphs hold
 *           baked.c     what graphs are made from            coverage.c  which sizes have no graph
 *           alive.c     checks of handles, death         buffers.c, stats.c, views.c  what users query and make
 *           dump.c      reads the flight recorder       ranges.c  what tools are told
 *           labels.c    what the nodes of graphs belong to
 *           owner.c     one thread at a time                          reserved.c   what read-trash pages hold
 *           starts.c    query_start_loc after a step
 *           timing.c    timestamps of the device         trace.c   steps as trace events
 *           memory.c    regions, and memory that must not be freed
 *           config/     reads and checks a configuration              validate.c   cgr_validate, cgr_runtime_memory */
#ifndef CGR_RUNTIME_RUNTIME_H
#define CGR_RUNTIME_RUNTIME_H

#include <stdbool.h>

#include "base/choices.h"
#include "base/sized.h"
#include "base/status.h"
#include "buffers/layout.h"
#include "buffers/regions.h"
#include "buffers/ring.h"
#include "cgr/cgr.h"
#include "devices/device.h"
#include "devices/error.h"
#include "devices/holders.h"
#include "graphs/graphs.h"
#include "graphs/recorder.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/derived.h"
#include "kernels/merge.h"
#include "kernels/pages.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/step.h"
#include "kernels/values.h"
#include "planners/requests/batch.h"
#include "planners/requests/changes.h"
#include "planners/requests/ledger.h"
#include "planners/requests/rows.h"
#include "planners/requests/standing.h"
#include "runtime/config/config.h"
#include "tracing/device_clock.h"
#include "tracing/flight.h"
#include "tracing/json.h"
#include "tracing/statistics.h"
#include "tracing/ticks.h"

#define CGR__RUNTIME_MAGIC 0x63677252u
#define CGR__TICKETS_BITS 40 /* of a ticket that count steps; the others are the number of the runtime */

/* A step between prepare and launch or cancel. Its choice is kept afterwards: the next step may be like it. */
typedef struct cgr__prepared {
  uint64_t ticket; /* 0: no step is prepared */
  uint64_t seq;    /* of the step itself; its applies have the numbers before it */
  uint64_t bytes;  /* that the device will read */
  cgr__checked_batch batch;
  int32_t num_applies; /* steps without requests that carry changes ahead of it */
  bool batch_staged;
  cgr__choice choice;
} cgr__prepared;

/* One set of step buffers, ring and state. Its steps execute in order. What every step needs comes first, without a gap. */
typedef struct cgr__lane {
  uint64_t launched;        /* number of the last launched step */
  uint64_t generation;      /* losses seen so far */
  uint64_t device_batch;    /* step whose composition is on the device; 0: none that the host knows */
  uint64_t device_standing; /* the last such step that was one of the standing batch */
  cudaStream_t last_stream; /* of the last launch; NULL: none yet */
  cgr__compositions compositions;
  cgr__prepared prepared;
  cgr__ring ring;
  cgr__step_args args; /* of prologue and epilogue; the padded counts are set per key */
  cgr__planner_args planner_args;
  cgr__staged_args staged_args;
  cgr__derived_args derived_args;
} cgr__lane;

/* What `record` has done, a bit per layer. */
typedef struct cgr__layer_marks {
  uint8_t appended[CGR__MAX_LAYERS / 8], attended[CGR__MAX_LAYERS / 8];
  uint8_t read[CGR__MAX_LAYERS / 8]; /* their cache has been read */
} cgr__layer_marks;

/* What `record` gets: the recorder, and what the runtime keeps beside it. */
typedef struct cgr__step_recorder {
  struct cgr_recorder base;
  cgr_runtime *runtime;
  const cgr__composition *batch; /* of the step; NULL: in a capture, or none */
  void *const *states;           /* of the backends, for this step's key */
  bool of_eager;                 /* the states are those of eager steps */
  int32_t backend;               /* the one whose function is running, plus 1; 0: none */
  bool plans_first;              /* the plans of backends with PLANS_FIRST are being enqueued */
  bool branched, branch_joined;  /* whether there is a branch beside the step; whether the step need not wait for it (any more) */
  bool fetch_forked;             /* and not joined */
  bool records;                  /* the step has a `record`, or what it has captured */
  int32_t layer_open;            /* the layer whose range is open, plus 1; 0: none is */
  int32_t timed_layer;           /* the layer that is under way, plus 1; 0: none, or layers are not timed */
  int32_t layers_left;           /* that `record` comes to before the next step's slot is fetched; 0: it is not, or has been */
  int32_t set;                   /* the length set whose tokens the step has */
  cgr__layer_marks marks;
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

enum {
  CGR__RUNTIME_PLANS_ON_HOST = 1,          /* some backend in use has a plan_host */
  CGR__RUNTIME_RANGES = CGR__WATCH_RANGES, /* a tool wants ranges: ranges.h */
  CGR__RUNTIME_LABELS = CGR__WATCH_LABELS, /* a graph that gets labels is being captured */
  CGR__RUNTIME_TIMED = 8,                  /* steps take timestamps: timing.h */
  CGR__RUNTIME_TIMED_LAYERS = 16,          /* and of layers, too */
  CGR__RUNTIME_REPEATS = 32                /* a prepare that finds no room will be repeated */
};

/* What a timed runtime keeps beside the timestamps themselves. */
typedef struct cgr__timing {
  int64_t *words;        /* [limits.stamp_stride]: those of one step, copied from the device */
  cgr_span *spans;       /* [cgr__setup_max_spans]: of that step */
  uint64_t *launched_at; /* [flight_depth]: ticks when launch began, by place in the flight recorder; 0: it did not */
  cgr__device_clock clock;
} cgr__timing;

/* What guards refused in the last such steps that somebody waited for, whose results are soon overwritten. */
typedef struct cgr__kept_guards {
  uint64_t count; /* kept so far; the i-th of them is in [i % CGR__KEPT_GUARDS] */
  struct cgr__kept_guard {
    uint64_t seq;
    cgr_guard guard;
  } kept[CGR__KEPT_GUARDS];
} cgr__kept_guards;

/* Which thread is inside the runtime; used when rt->checks. */
typedef struct cgr__owner {
  uintptr_t thread;     /* 0: none is. Atomic */
  const char *function; /* that it has called. Atomic */
  int32_t depth;        /* of its calls, one inside the other */
} cgr__owner;

/* The check of the read-trash pages. */
typedef struct cgr__reserved {
  unsigned char *copies; /* [cgr__reserved_bytes], pinned; NULL: nothing is looked at */
  uint64_t seq;          /* of the step that the copy goes ahead of; 0: no copy is under way */
  uint64_t next;         /* so many steps must have been launched for another */
  char found[320];       /* what cgr_step_prepare has not told yet; "": nothing */
} cgr__reserved;

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

/* An unchanged step touches only the first lines and those at which a member is aligned (tests/runtime/lines). */
struct cgr_runtime {
  uint32_t magic;
  int dead;                  /* 1: lost; read by any thread */
  bool recording;            /* inside `record`, a call between pieces, or a backend's function */
  uint8_t flags;             /* CGR__RUNTIME_* */
  bool launching;            /* its setter reports a death itself, knowing the step and the key */
  bool checks;               /* the device has a layer that checks, and so does the runtime. Set once */
  int32_t reorder_threshold; /* of the setup */
  cgr_device *dev;
  uint64_t tickets; /* of prepared steps; distinct from those of any other runtime */
  cgr__flight flight;
  CGR__LINE cgr__lane lane;
  CGR__LINE cgr__rows rows;
  CGR__LINE cgr__graphs graphs;
  CGR__LINE cgr__regions regions;

  cgr__statistics statistics;
  cgr__timing timing;
  cgr__failure failure;
  cgr__kept_guards guards;
  char *dump; /* [dump_bytes] for cgr_config.dump; NULL: nobody is told */
  size_t dump_bytes;
  cgr_record_function record;
  void *engine;
  cgr__step_recorder recorder;          /* of the step that is being enqueued; one at a time */
  cudaStream_t own_stream, side_stream; /* own: captures, warm-up, steps that only use a number up; side: planner, buffers on
                                           demand, plans of backends, fetch */
  cgr__event *fork_event, *join_event, *order_event;
  cgr__waiter *waiter; /* NULL: no wait ever sleeps */
  uint64_t collected;  /* the last step that a wait has reported */

  cgr__backend_plans backend_plans;
  cgr__setup setup;
  cgr__layout layout;
  unsigned char *arena; /* device memory */
  void *pinned;         /* the ring */
  void *host_block;     /* records and statistics, rows, compositions, keys, what backends keep */
  cgr__holder holder;   /* asked before memory is freed */
  bool owns_device, owns_arena, owns_pinned;
  int dead_code; /* of the device's API */
  char dead_message[320];
  cgr__owner owner;
  cgr__reserved reserved;
  cgr__starts starts;
};

/* ---------------------------------------------------------------------------------------------------------------- alive.c */

/* Checks the handle, and that the runtime is alive. */
cgr_status cgr__runtime_check(cgr_runtime *rt, const char *function);
/* The same, and that the caller is not the engine's own `record`. */
cgr_status cgr__runtime_check_outside(cgr_runtime *rt, const char *function);
/* Tells the device's layer, if it has one that checks, of a violation: the thread's last message. Returns the status. */
cgr_status cgr__runtime_report(cgr_runtime *rt, cgr_status status);
/* Go around functions of the engine that run in a step: calls that must be made outside of them are refused meanwhile, and so is
 * cgr_stream_destroy. They may be nested: `enter` returns whether they are, and `leave` takes that. */
bool cgr__step_enter(cgr_runtime *rt);
void cgr__step_leave(cgr_runtime *rt, bool was_inside);
/* Checks that no step is prepared. */
cgr_status cgr__runtime_check_unprepared(const cgr_runtime *rt, const char *function);
/* Checks that some graph can be replayed. */
cgr_status cgr__runtime_check_graphs(const cgr_runtime *rt, const char *function);
cgr_status cgr__runtime_check_lane(cgr_runtime *rt, const char *function, int32_t lane);
/* Whether the handle is that of a runtime, dead or alive. */
bool cgr__runtime_is(const cgr_runtime *rt);

/* The device is lost, or its counter and the host's have diverged: from now on every call returns CGR_ERROR_DEAD with the message
 * of the first call to this. */
cgr_status cgr__runtime_die(cgr_runtime *rt, int device_code, const char *message);
/* The status of a device's error, CGR_OK for 0. A loss of the device is remembered. */
cgr_status cgr__runtime_device_error(cgr_runtime *rt, int error, const char *what);

/* owner.c: the calling thread is inside until it leaves, or is refused because another one is. Calls may be nested. */
cgr_status cgr__owner_enter(cgr_runtime *rt, const char *function, cgr_runtime **owned);
void cgr__owner_leave(cgr_runtime *rt);
static inline void cgr__owner_end(cgr_runtime **owned) {
  if (*owned)
    cgr__owner_leave(*owned);
}
/* Begins every function of a runtime that is for one thread at a time; `owned` is NULL, or given up before its end. */
#define CGR__ONE_THREAD(rt, function)                                 \
  __attribute__((cleanup(cgr__owner_end))) cgr_runtime *owned = NULL; \
  if (cgr__runtime_checks(rt))                                        \
  CGR__TRY(cgr__owner_enter(rt, function, &owned))
static inline bool cgr__runtime_checks(const cgr_runtime *rt) { return rt && rt->magic == CGR__RUNTIME_MAGIC && rt->checks; }
/* The same and cgr__runtime_check_outside, without a call where no layer checks: for prepare and launch. Each has a leave. */
cgr_status cgr__owner_enter_outside(cgr_runtime *rt, const char *function);
static inline cgr_status cgr__runtime_enter(cgr_runtime *rt, const char *function) {
  bool is_plain =
      rt && rt->magic == CGR__RUNTIME_MAGIC && !__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE) && !rt->recording && !rt->checks;
  return is_plain ? CGR_OK : cgr__owner_enter_outside(rt, function);
}
static inline void cgr__runtime_leave(cgr_runtime *rt) {
  if (rt->checks)
    cgr__owner_leave(rt);
}

/* reserved.c: how large the copies are; enqueues them ahead of the prepared step, if it is time; looks at those of a step that
 * has completed, and reports what is bad; refuses a step once for what was found. */
size_t cgr__reserved_bytes(const cgr__setup *setup);
cgr_status cgr__reserved_copy(cgr_runtime *rt, cudaStream_t stream);
void cgr__reserved_look(cgr_runtime *rt);
cgr_status cgr__reserved_check(cgr_runtime *rt, const char *function);
/* starts.c: the same for query_start_loc after the last step, which cgr__starts_note keeps; what is found is only reported. */
size_t cgr__starts_bytes(const cgr__setup *setup);
void cgr__starts_note(cgr_runtime *rt);
cgr_status cgr__starts_copy(cgr_runtime *rt, cudaStream_t stream);
void cgr__starts_look(cgr_runtime *rt);
static inline void cgr__log(const cgr_runtime *rt, cgr_log_level level, const char *text) {
  if (rt->setup.config.log)
    rt->setup.config.log(rt->setup.config.log_context, level, text);
}

/* baked.c: recomputes the hash of what graphs are made from; graphs that were made from anything else are stale. */
void cgr__baked_refresh(cgr_runtime *rt);

/* ---------------------------------------------------------------------------------------------------------------- stage.c */

/* Fills the slots of a checked batch; nothing is committed. On failure nothing has changed. */
cgr_status cgr__stage_step(cgr_runtime *rt, const cgr_batch *batch, cgr__prepared *prepared);
/* A slot of a step without requests. */
void cgr__stage_empty(const cgr_runtime *rt, cgr__slot_header *slot);
/* Fills the slot with pending changes, as many as it holds; returns the bytes of header and changes. */
uint64_t cgr__stage_changes(cgr_runtime *rt, cgr__slot_header *slot);
/* staged.c: data of the engine's own buffers. What a batch names is checked, then copied; returns the bytes. */
cgr_status cgr__staged_check(const cgr_runtime *rt, const cgr_batch *batch);
uint64_t cgr__stage_data(const cgr_runtime *rt, const cgr_batch *batch, const cgr__checked_batch *checked,
                         cgr__slot_header *slot);
/* Takes the changes of slots [first, last] back: they are pending again. */
void cgr__unstage(cgr_runtime *rt, uint64_t first, uint64_t last);

/* ---------------------------------------------------------------------------------------------------------------- eager.c */

/* What an eager step or a capture enqueues. */
typedef struct cgr__enqueue {
  cgr_key key;
  cudaStream_t stream;
  cgr_record_function record; /* NULL: nothing between prologue and epilogue */
  void *engine;
  cgr__open_capture *capture;         /* NULL: the step executes */
  bool empty;                         /* what its slot holds does not count */
  int32_t real_tokens, real_requests; /* -1 in a capture */
  const cgr__composition *batch;      /* NULL: in a capture, or without requests */
  const cgr__graph_entry *entry;      /* whose states the backends use; NULL: those of eager steps */
} cgr__enqueue;

/* How far it got. */
typedef enum cgr__outcome {
  CGR__OUTCOME_WHOLE,     /* the step is on its stream */
  CGR__OUTCOME_ABANDONED, /* `record` or a call failed: the step is on its stream and will commit nothing */
  CGR__OUTCOME_BROKEN     /* a call of the device failed: what is on the stream is no step */
} cgr__outcome;

/* Enqueues a whole step: prologue; plans and buffers on demand on a side branch; `record`, epilogue. */
cgr_status cgr__enqueue_step(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__outcome *outcome);

/* What follows the first piece of a PIECEWISE step: calls, and the other pieces. */
cgr_status cgr__enqueue_breaks(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__graph_entry *entry, cgr__outcome *outcome);

/* The step waits for the branch of plans and buffers on demand, if it has not yet: before the first kernel that reads them. */
cgr_status cgr__join_branch(cgr__step_recorder *recorder);
/* From here on the next step's slot is fetched beside this one. */
cgr_status cgr__fork_fetch(cgr__step_recorder *recorder);

/* Orders `stream` after the last launched step. */
cgr_status cgr__order_stream(cgr_runtime *rt, cudaStream_t stream);
/* Checks that a step can go to the stream. */
cgr_status cgr__check_stream(cgr_runtime *rt, const char *function, cudaStream_t stream);

/* --------------------------------------------------------------------------------------------------------------- native.c */

/* The functions of the library's own backend that are called in steps. */
void cgr__native_complete(cgr_backend *backend);
/* The arguments of the append kernel, for an attention call of a layer with a cache. */
cgr__append_args cgr__native_append_args(const cgr__step_recorder *rec, const cgr_attention *attention);
/* Enqueues that kernel on the recorder's stream. */
cgr_status cgr__native_append(const cgr__step_recorder *rec, const cgr__append_args *args, int32_t layer);

/* --------------------------------------------------------------------------------------------------------------- layers.c */

/* What a step asks of a layer. */
typedef enum cgr__layer_need {
  CGR__LAYER_STAYS_OUT, /* nothing: it must not be called */
  CGR__LAYER_WORKS,     /* to attend, or at least to append for an attention of the engine's own */
  CGR__LAYER_ATTENDS,   /* to attend over the step's own k and v */
  CGR__LAYER_READS,     /* to attend over what steps of its own set have appended */
  CGR__LAYER_FILLS,     /* to append; it may attend, too */
  CGR__LAYER_MAY_READ   /* nothing: it may attend */
} cgr__layer_need;
cgr__layer_need cgr__layer_need_of(const cgr_runtime *rt, int32_t layer, int32_t set);
/* Checks that `record` has done what the step asks of each layer. */
cgr_status cgr__check_layers(const cgr__step_recorder *recorder);
/* How many layers `record` must come to. */
int32_t cgr__count_layers(const cgr_runtime *rt, int32_t set);
/* Whether the call may be made for its layer, with its flags, in this step. */
cgr_status cgr__check_layer_call(const cgr__step_recorder *recorder, const cgr_attention *attention);

/* -------------------------------------------------------------------------------------------------------- backend_plans.c */

/* Places what backends keep in the host's memory (cgr__setup_backend_plans_layout). */
void cgr__backend_plans_init(cgr_runtime *rt, unsigned char *memory);
/* Makes the backends' states for a graph that has none; NULL: for eager steps, unless they have been made. */
cgr_status cgr__backend_plans_create(cgr_runtime *rt, const cgr__graph_entry *entry);
void cgr__backend_plans_destroy(cgr_runtime *rt, const cgr__graph_entry *entry);
/* Whether any backend has states to destroy. */
bool cgr__backend_plans_has_states(const cgr_runtime *rt);
/* Destroys the states of graphs that no longer exist. */
void cgr__backend_plans_sweep(cgr_runtime *rt);
void cgr__backend_plans_destroy_all(cgr_runtime *rt);
/* Plans a checked step on the host, into its slot. `*bytes`: what travels; `*staged`: bits of the header. */
cgr_status cgr__backend_plans_on_host(cgr_runtime *rt, const cgr__prepared *prepared, cgr__slot_header *slot, uint64_t *staged,
                                      uint64_t *bytes);
/* Enqueues, on the recorder's stream, the plans of the backends with PLANS_FIRST, or of the others. */
cgr_status cgr__backend_plans_enqueue(cgr__step_recorder *recorder, bool first);
/* Zeroes the workspaces after a step that was given up. */
int cgr__backend_plans_clear(cgr_runtime *rt, cudaStream_t stream);
void *const *cgr__backend_plans_states(const cgr_runtime *rt, const cgr__graph_entry *entry);

/* ------------------------------------------------------------------------------------- counters.c, recover.c, flush.c */

/* A step is on its stream: the host's counters follow. */
void cgr__launched(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, cgr__composition *batch);
/* The same for a step without requests, for which the device has read `bytes`. */
void cgr__launched_internal(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, uint64_t bytes);

/* bounds.c: the lengths of a batch in the length set of its tokens, which they include; returns the longest, at least 1.
 * `seq_lens`: NULL or [num_requests]. A batch of NULL is empty: it counts as one request of one token, its padding. */
int32_t cgr__fill_seq_lens(cgr_runtime *rt, const cgr__composition *batch, int32_t set, int32_t *seq_lens);
int32_t cgr__longest_query(const cgr__composition *batch);
/* The number of decodes, which come first, and of their tokens; -1 if no backend in use has a reorder_threshold. */
int32_t cgr__count_decodes(const cgr_runtime *rt, const cgr__composition *batch, int32_t *num_tokens);

/* buffers.c: cgr_buffer_get, for messages that name the function which was called. */
cgr_status cgr__buffer_get(cgr_runtime *runtime, const char *function, int32_t lane, int32_t program, cgr_buffer buffer,
                           int32_t index, cgr_buffer_view *view);

/* What became of a launch that failed. */
typedef struct cgr__fate {
  uint64_t seq; /* the number that was committed and used up */
  bool ran;     /* the device ran the step in spite of the failure that it reported */
} cgr__fate;

/* Launches the steps that carry changes ahead of the prepared one. */
cgr_status cgr__launch_applies(cgr_runtime *rt, cudaStream_t stream, cgr__fate *fate);
/* Enqueues the prepared step, which is committed: through `record`, or what follows the first piece of its graph. */
cgr_status cgr__launch_recorded(cgr_runtime *rt, cudaStream_t stream, cgr__fate *fate);
/* Launches a step without requests, with as many pending changes as its slot holds when `changes` is set. CGR_ERROR_BUSY when no
 * slot is free. */
cgr_status cgr__launch_internal(cgr_runtime *rt, const char *function, const cgr__enqueue *enqueue, bool changes);

/* Step fate->seq was committed and enqueuing it failed with `status`, which is returned, or CGR_ERROR_DEAD. Its number is used up
 * afterwards, by the step itself if it ran all the same, else by an empty one. Waits for the device. */
cgr_status cgr__recover(cgr_runtime *rt, cgr_status status, cudaStream_t stream, cgr__fate *fate);
/* The same for a graph whose launch failed with a device's error. */
cgr_status cgr__recover_replay(cgr_runtime *rt, int error, cudaStream_t stream, cgr__fate *fate);
/* The launch of the prepared step was refused with `status`, which is returned; the step stays prepared. */
cgr_status cgr__refuse_launch(cgr_runtime *rt, cgr_status status);
/* The prepared step is over: its changes are pending again, its rows keep their lengths. */
void cgr__abandon(cgr_runtime *rt, cgr_step *step, const cgr__fate *fate, uint64_t began, cgr_status status);

/* -------------------------------------------------------------------------------------------------------- flight.c, dump.c */

/* The record of the prepared step, as far as it is known, with its outcome. */
void cgr__flight_describe(const cgr_runtime *rt, cgr_flight_outcome outcome, cgr__flight_entry *entry);
/* A step is over: writes its record. `began`: ticks when the call began; for a launch, 0 if the step is not timed. */
void cgr__flight_launched(cgr_runtime *rt, uint64_t began);
void cgr__flight_abandoned(cgr_runtime *rt, uint64_t began, uint64_t seq, cgr_status status);
void cgr__flight_cancelled(cgr_runtime *rt);
void cgr__flight_refused(cgr_runtime *rt, uint64_t began, cgr_status status);
void cgr__flight_internal(cgr_runtime *rt, uint64_t seq, uint64_t bytes);
/* The launch of a step of the runtime's own has failed. */
void cgr__flight_failed(cgr_runtime *rt, uint64_t seq, const cgr_key *key, cgr_status status);
/* A step's prepare has succeeded. */
static inline void cgr__flight_prepared(cgr_runtime *rt, uint64_t began) {
  rt->flight.prepared_at = began;
  rt->flight.prepare_ticks = cgr__flight_is_timed(&rt->flight) ? cgr__ticks_between(began, cgr__ticks()) : 0;
}
/* The prepared step's launch begins. */
static inline uint64_t cgr__flight_launching(const cgr_runtime *rt) { return rt->flight.prepare_ticks > 0 ? cgr__ticks() : 0; }

/* How many records are kept; the i-th of them, the newest last. */
int32_t cgr__flight_count(const cgr_runtime *rt);
cgr_flight_record cgr__flight_read(const cgr_runtime *rt, int32_t i);
/* Writes the JSON of cgr_runtime_dump; returns its length. */
size_t cgr__dump(cgr_runtime *rt, char *out, size_t capacity);
/* Gives that JSON to cgr_config.dump, if there is one. */
void cgr__dump_tell(cgr_runtime *rt);
/* Keeps the thread's last message as that of a failed launch, or of a capture in which the runtime died. `seq` 0: no number was
 * used up. */
void cgr__failure_keep(cgr_runtime *rt, uint64_t seq, const cgr_key *key, cgr_status status);
/* The status with which the launch of the prepared step, or of the step just cancelled, has failed; CGR_OK: it has not. */
static inline cgr_status cgr__failure_of_prepared(const cgr_runtime *rt) {
  return rt->failure.ticket == rt->tickets ? (cgr_status)rt->failure.status : CGR_OK;
}

/* stats.c: checks the arguments of a function that writes a text; the runtime may be dead. */
cgr_status cgr__text_check(cgr_runtime *rt, const char *function, const char *out, size_t capacity, const size_t *length);

/* --------------------------------------------------------------------------------------------------------------- memory.c */

/* From here on, cgr_memory_free refuses what the runtime uses; and no longer. */
void cgr__memory_hold(cgr_runtime *rt);
void cgr__memory_let_go(cgr_runtime *rt);

/* -------------------------------------------------------------------------------------------------------------- capture.c */

/* Reads the struct, waits for the steps in flight, and keeps `record`. */
cgr_status cgr__capture_start(cgr_runtime *rt, const char *function, const cgr_capture *capture, cgr_capture *c);
/* The entries that a capture names, in the order in which they are captured. */
int32_t cgr__capture_count(const cgr_runtime *rt, const cgr_capture *c);
cgr__graph_entry *cgr__capture_entry(cgr_runtime *rt, const cgr_capture *c, int32_t i);
/* Whether the entry is to be captured now. */
bool cgr__capture_wants(const cgr_runtime *rt, const cgr_capture *c, const cgr__graph_entry *entry);
/* coverage.c: tells the log which sizes within the limits have no graph, however much is captured. */
void cgr__tell_gaps(const cgr_runtime *rt);
/* The body of a capture: one step through `record`. */
struct cgr__capture_context {
  cgr_runtime *runtime;
  const cgr_key *key;
  cgr_status created; /* the status of creating the backends' states; a failure fails the capture */
};
cgr_status cgr__capture_body_of(void *context, cgr__open_capture *capture);
/* Captures the entry; a failure is logged. */
cgr_status cgr__capture_entry_now(cgr_runtime *rt, cgr__graph_entry *entry);
/* Logs the calls of cgr_record_call that added no node to a capture. */
void cgr__capture_tell_lost(cgr_runtime *rt);

/* ------------------------------------------------------------------------------------------------------ wait.c, result.c */

/* Waits until step `seq` has completed, or the timeout, as cgr_config.wait_mode says. */
cgr_status cgr__wait_completed(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms);
/* Waits until the stream is idle, at most until `deadline` of cgr__now_ms; the device's error, NOT_READY after that. */
int cgr__wait_idle(cgr_runtime *rt, cudaStream_t stream, double deadline);
/* The end of a wait of wait_timeout_ms that begins now. */
double cgr__wait_deadline(const cgr_runtime *rt);
/* The time-out of an argument: -1 is the configured one. Less is refused. */
cgr_status cgr__wait_timeout(const cgr_runtime *rt, const char *function, int32_t *timeout_ms);
/* Checks that a step has been launched, and that its result has not been overwritten. */
cgr_status cgr__check_seq(const cgr_runtime *rt, const char *function, uint64_t seq);
/* Takes note of losses: everything is sent again. The runtime dies if the device has run a step that was never launched. */
cgr_status cgr__see_losses(cgr_runtime *rt);

#endif

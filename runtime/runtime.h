/* The runtime behind the public headers: what it owns, and what every room may use. A room is a folder with a header; it includes
 * only rooms before it.
 *
 *   config/    reads and checks a configuration
 *   report/    what a runtime tells of itself
 *   record/    what the calls of `record` become
 *   step/      steps from prepare to result
 *   capture/   graphs: how they are made, what they will take, what they hold
 *
 *   create.c   makes and destroys                         alive.c    checks of handles, death
 *   owner.c    one thread at a time                       memory.c   regions, and memory that must not be freed
 *   buffers.c, views.c   what users query and make        gather.c   cgr_gather_build and _enqueue, which need no runtime
 *   resources.c          what graphs use and must outlive them */
#ifndef CGR_RUNTIME_RUNTIME_H
#define CGR_RUNTIME_RUNTIME_H

#include <assert.h>
#include <stdbool.h>

#include "base/choices.h"
#include "base/sized.h"
#include "base/status.h"
#include "buffers/layout.h"
#include "buffers/regions.h"
#include "buffers/ring.h"
#include "cgr/cgr.h"
#include "cgr/collectives.h"
#include "devices/device.h"
#include "devices/error.h"
#include "devices/holders.h"
#include "graphs/graphs.h"
#include "graphs/recorder.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/fingerprint.h"
#include "kernels/measure.h"
#include "kernels/merge.h"
#include "kernels/on_demand.h"
#include "kernels/pages.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/step.h"
#include "kernels/transform.h"
#include "kernels/values.h"
#include "requests/batch.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/ledger.h"
#include "requests/pages.h"
#include "requests/rows.h"
#include "requests/standing.h"
#include "requests/follow.h"
#include "runtime/config/config.h"
#include "runtime/record/recorder.h"
#include "runtime/step/lane.h"
#include "tracing/device_clock.h"
#include "tracing/flight.h"
#include "tracing/json.h"
#include "tracing/statistics.h"
#include "tracing/ticks.h"

#define CGR__RUNTIME_MAGIC 0x63677252u
#define CGR__TICKETS_BITS 40 /* of a ticket that count steps; the others are the number of the runtime */

enum {
  CGR__RUNTIME_PLANS_ON_HOST = 1,          /* some backend in use has a plan_host */
  CGR__RUNTIME_RANGES = CGR__WATCH_RANGES, /* a tool wants ranges: ranges.h */
  CGR__RUNTIME_LABELS = CGR__WATCH_LABELS, /* a graph that gets labels is being captured */
  CGR__RUNTIME_TIMED = 8,                  /* steps take timestamps: timing.h */
  CGR__RUNTIME_TIMED_LAYERS = 16,          /* and of layers, too */
  CGR__RUNTIME_REPEATS = 32,               /* a prepare that finds no room will be repeated */
  CGR__RUNTIME_PROGRAMS = 64               /* there are several programs */
};

enum {
  CGR__RETURN_LEAVES = 1, /* the thread is no longer inside: the runtime checks */
  CGR__RETURN_DUMPS = 2   /* cgr_config.dump is called: the runtime has died, or a step was abandoned */
};

/* What a timed runtime keeps next to the timestamps themselves. */
typedef struct cgr__timing {
  int64_t *words;        /* [limits.stamp_stride]: those of one step, copied from the device */
  cgr_span *spans;       /* [cgr__setup_max_spans]: of that step */
  uint64_t *launched_at; /* [flight_depth]: ticks when launch began, by place in the flight recorder; 0: it did not */
  cgr__device_clock clock;
} cgr__timing;

/* What guards refused in the last such steps that were waited for, whose results are soon overwritten. */
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

/* What graphs use and must outlive them (cgr/collectives.h). */
typedef struct cgr__resources {
  uint64_t used;       /* bits of those that are registered */
  uint64_t registered; /* so far */
  struct cgr__resource_entry {
    uint64_t number;
    uint64_t order; /* in which it was registered */
    void (*gone)(void *context);
    void *context;
    int32_t allocations; /* that `gone` frees */
    char name[48];
  } entry[CGR_MAX_RESOURCES];
} cgr__resources;

/* What a program's steps are recorded by. */
typedef struct cgr__program {
  cgr_record_function record; /* NULL: not known yet */
  void *engine;
} cgr__program;

/* An unchanged step touches only the first cache lines, those at which a member is aligned, and that of the rows
 * (tests/runtime/lines). */
struct cgr_runtime {
  uint32_t magic;
  int dead;                  /* 1: lost; read by any thread */
  bool recording;            /* inside `record`, a call between pieces, or a backend's function */
  uint8_t flags;             /* CGR__RUNTIME_* */
  uint8_t at_return;         /* CGR__RETURN_*: what a public function does before it returns */
  bool checks;               /* the device has a layer that checks, and so does the runtime. Set once */
  int32_t reorder_threshold; /* of the setup */
  cgr_device *dev;
  uint64_t tickets; /* of prepared steps; distinct from those of any other runtime */
  cgr__flight flight;
  CGR__CACHE_LINE cgr__lane lane;
  CGR__CACHE_LINE cgr__graphs graphs;
  CGR__CACHE_LINE cgr__regions regions;
  cgr__rows rows; /* its first fields are in one cache line with the epoch of the regions */

  cgr__statistics statistics;
  cgr__timing timing;
  cgr__failure failure;
  cgr__kept_guards guards;
  char *dump; /* [dump_bytes] for cgr_config.dump; NULL: there is none */
  size_t dump_bytes;
  void (*tell_dump)(cgr_runtime *rt); /* calls it if that is due; report/dump.c */
  cgr__program program[CGR__MAX_PROGRAMS];
  uint64_t same_batch; /* a step given whole whose batch layout is that of step lane.device_batch; with several programs */
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
  void *host_block;     /* records and statistics, rows, batches, keys, what backends keep */
  cgr__holder holder;   /* asked before memory is freed */
  bool owns_device, owns_arena, owns_pinned;
  int dying;     /* 1: someone writes why, or has written it. Atomic */
  int dead_code; /* of the device's API */
  char dead_message[320];
  cgr__owner owner;
  cgr__read_trash read_trash;
  cgr__starts starts;
  cgr__resources resources;
};

static_assert(offsetof(struct cgr_runtime, lane) == CGR__CACHE_LINE_BYTES,
              "the handle and what is needed of the flight recorder are one cache line");
static_assert(offsetof(struct cgr_runtime, regions.epoch) % CGR__CACHE_LINE_BYTES == 0 &&
                  offsetof(struct cgr_runtime, rows.limits) - offsetof(struct cgr_runtime, regions.epoch) <=
                      CGR__CACHE_LINE_BYTES,
              "what a step looks at of regions and rows is one cache line");

/* ---------------------------------------------------------------------------------------------------------------- alive.c */

/* Checks the handle, and that the runtime is alive. */
cgr_status cgr__runtime_check(cgr_runtime *rt, const char *function);
/* The same, and that the caller is not the engine's own `record`. */
cgr_status cgr__runtime_check_outside(cgr_runtime *rt, const char *function);
/* Tells the device's layer, if it has one that checks, of a violation: the thread's last message. Returns the status. */
cgr_status cgr__runtime_report(cgr_runtime *rt, cgr_status status);
/* Go around functions of the engine that run in a step: calls that must be made outside of them are refused meanwhile, and so is
 * what cgr__device_step_enter forbids. They may be nested: `enter` returns whether they are, and `leave` takes that. */
bool cgr__step_enter(cgr_runtime *rt);
void cgr__step_leave(cgr_runtime *rt, bool was_inside);
/* Checks that no step is prepared. */
cgr_status cgr__runtime_check_unprepared(const cgr_runtime *rt, const char *function);
/* Checks that some graph can be replayed. */
cgr_status cgr__runtime_check_graphs(const cgr_runtime *rt, const char *function);
cgr_status cgr__runtime_check_lane(cgr_runtime *rt, const char *function, int32_t lane);
cgr_status cgr__runtime_check_where(cgr_runtime *rt, const char *function, const cgr_where *where); /* NULL: the first */
cgr_status cgr__runtime_check_program(const cgr_runtime *rt, const char *function, const char *field, int32_t program);
cgr_status cgr__runtime_check_mark(cgr_runtime *rt, const char *function, cgr_mark mark); /* not its seq */
/* Checks that a step has been launched, and that its result has not been overwritten. */
cgr_status cgr__check_seq(const cgr_runtime *rt, const char *function, uint64_t seq);
/* Whether the handle is that of a runtime, dead or alive. */
bool cgr__runtime_is(const cgr_runtime *rt);
static inline bool cgr__runtime_is_dead(const cgr_runtime *rt) { return __atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE) != 0; }

/* The device is lost, or its counter and the host's have diverged: from now on every call returns CGR_ERROR_DEAD with the message
 * of the first call to this. A dump is due. */
cgr_status cgr__runtime_die(cgr_runtime *rt, int device_code, const char *message);
/* The status of a device's error. A loss of the device is remembered. */
cgr_status cgr__runtime_device_failed(cgr_runtime *rt, int error, const char *what);
/* The same of what a call of the device has returned: CGR_OK for 0. */
static inline cgr_status cgr__runtime_device_error(cgr_runtime *rt, int error, const char *what) {
  return error == CGR__DEVICE_OK ? CGR_OK : cgr__runtime_device_failed(rt, error, what);
}

/* owner.c: where a layer checks, the calling thread is inside until it leaves, or is refused because another one is. Calls may be
 * nested. */
cgr_status cgr__owner_enter(cgr_runtime *rt, const char *function);
/* What a public function does last: calls cgr_config.dump, if that is due, and leaves. _tell is the former alone. */
void cgr__runtime_end(cgr_runtime *rt);
void cgr__runtime_tell(cgr_runtime *rt);
static inline void cgr__runtime_leave(cgr_runtime *rt) {
  if (rt->at_return)
    cgr__runtime_end(rt);
}
static inline cgr_status cgr__runtime_begin(cgr_runtime *rt, const char *function, cgr_runtime **inside) {
  if (!rt || rt->magic != CGR__RUNTIME_MAGIC)
    return CGR_OK; /* the function refuses it */
  if (rt->checks)
    CGR__TRY(cgr__owner_enter(rt, function));
  *inside = rt;
  return CGR_OK;
}
static inline void cgr__runtime_leave_if(cgr_runtime **inside) {
  if (*inside)
    cgr__runtime_leave(*inside);
}
/* Begins every function of a runtime that is for one thread at a time, and ends it; `inside` is NULL if the runtime is gone by
 * then. */
#define CGR__ONE_THREAD(rt, function)                                         \
  __attribute__((cleanup(cgr__runtime_leave_if))) cgr_runtime *inside = NULL; \
  CGR__TRY(cgr__runtime_begin(rt, function, &inside))
/* The same and cgr__runtime_check_outside, without a call where no layer checks: for prepare and launch. Each has a leave. */
cgr_status cgr__owner_enter_outside(cgr_runtime *rt, const char *function);
static inline cgr_status cgr__runtime_enter(cgr_runtime *rt, const char *function) {
  bool is_plain =
      rt && rt->magic == CGR__RUNTIME_MAGIC && !__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE) && !rt->recording && !rt->checks;
  return is_plain ? CGR_OK : cgr__owner_enter_outside(rt, function);
}

static inline void cgr__log(const cgr_runtime *rt, cgr_log_level level, const char *text) {
  if (rt->setup.config.log)
    rt->setup.config.log(rt->setup.config.log_context, level, text);
}

/* step/counts.c: of all keys, and of what dispatch chooses by; equal on ranks that choose alike. */
uint64_t cgr__runtime_hash_all_keys(const cgr_runtime *rt);

/* ------------------------------------------------------------------------------------------------------------ resources.c */

/* The bit of a resource; -1, with a message that names `function`: the runtime has none of this number. */
int32_t cgr__resources_find(const cgr_runtime *rt, const char *function, uint64_t number);
/* Allocations of the device that go with them. */
int32_t cgr__resources_allocations(const cgr_runtime *rt);
/* Graphs are gone: tells the owners, the last one first. */
void cgr__resources_end(cgr_runtime *rt);

/* -------------------------------------------------------------------------------------------------------- memory.c, buffers.c */

/* From here on, cgr_memory_free refuses what the runtime uses; and no longer. */
void cgr__memory_hold(cgr_runtime *rt);
void cgr__memory_let_go(cgr_runtime *rt);

/* buffers.c: cgr_buffer_get, for messages that name the function which was called. */
cgr_status cgr__buffer_get(cgr_runtime *runtime, const char *function, const cgr_where *where, cgr_buffer buffer, int32_t index,
                           cgr_buffer_view *view);

#endif

/* The runtime behind cgr.h: what it owns and how its files divide the work.
 *
 *   config.c    reads and checks a configuration            create.c    makes and destroys a runtime
 *   step.c      prepare, launch, cancel: the hot path       stage.c     fills a slot
 *   record.c    enqueues one step through `record`          attention.c cgr_record_attention
 *   internal.c  steps of the runtime itself, failed launches  capture.c capture and warm-up (cold)
 *   result.c    poll, wait                                  requests.c, query.c, plan_api.c, device_api.c: the rest of cgr.h
 */
#ifndef CGR_RUNTIME_RUNTIME_H
#define CGR_RUNTIME_RUNTIME_H

#include "buffers/layout.h"
#include "buffers/regions.h"
#include "buffers/ring.h"
#include "cgr/cgr.h"
#include "devices/device.h"
#include "graphs/graphs.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/step.h"
#include "planners/requests/batch.h"
#include "planners/requests/rows.h"
#include "devices/error.h"
#include "base/status.h"

#define CGR__RUNTIME_MAGIC 0x63677252u
#define CGR__LAYERS_MAX 1024 /* two regions each */

/* A configuration after checking: defaults filled in, arrays of known size. */
typedef struct cgr__setup {
  cgr_config config;
  cgr_group groups[CGR__MAX_GROUPS];
  cgr_layer *layers; /* [config.num_layers]; one block of malloc */
  cgr__declared declared[CGR__LAYOUT_DECLARED];
  int32_t buckets[CGR__BUCKETS_MAX];
  int32_t num_buckets;
  cgr__limits limits;
  int32_t num_parts, tile_q;
} cgr__setup;

/* What is kept of a prepared step until launch or cancel. */
typedef struct cgr__prepared {
  uint64_t ticket; /* 0: no step is prepared */
  cgr__step_plan plan;
  cgr__choice choice;
  cgr__slot_header *slot; /* of the step itself */
  int32_t num_applies;    /* internal steps that carry changes ahead of it */
  cgr__cursor cursor;     /* of the changes that it and its applies carry */
  int batch_staged;
} cgr__prepared;

/* How much of an eager step is on its stream. */
enum cgr__progress {
  CGR__PROGRESS_NONE,  /* nothing: its number is still free */
  CGR__PROGRESS_BEGUN, /* the prologue, and no epilogue */
  CGR__PROGRESS_ENDED  /* prologue and epilogue: its number is used up */
};

struct cgr_recorder {
  cgr_runtime *runtime;
  cudaStream_t stream;
  cgr_key key;
  int capturing;
  int planner_joined;
};

struct cgr_runtime {
  uint32_t magic;
  int owns_device;
  cgr_device *dev;
  cgr__setup setup;
  cgr__layout layout;
  unsigned char *arena; /* device memory */
  int owns_arena, owns_pinned;
  void *pinned;
  void *host_block; /* rows, batch copies, bucket table */
  cgr__ring ring;
  cgr__rows rows;
  cgr__regions regions;
  cgr__graphs graphs;
  cgr__step_args args; /* of prologue, planner and epilogue; padded counts are set per key */

  /* The hot path's state. */
  uint64_t launched;     /* number of the last launched step */
  uint64_t device_batch; /* step whose batch section stands on the device; 0: none */
  uint64_t generation;   /* of the headers: the device's, as last read */
  cudaStream_t last_stream;
  int has_last_stream;
  uint64_t tickets;
  cgr__prepared prepared;
  int32_t *batch_rows, *batch_lens; /* [R] of the prepared step when it is not the steady batch */
  uint32_t *batch_flags;            /* [R] */

  cgr_record_function record;
  void *engine;
  cudaStream_t capture_stream, planner_stream;
  cgr__event *fork_event, *join_event, *order_event;

  cgr_stats stats;
  int recording; /* inside `record` */
  int dead;      /* 1: lost; read by any thread */
  int dead_code; /* of the device's API */
  char dead_message[256];
};

/* Checks a configuration for `dev` and fills in the defaults. `setup->layers` is to be freed also after a failure. */
cgr_status cgr__setup_make(const cgr_config *config, cgr_device *dev, cgr__setup *setup);
/* Copies what the caller's struct has and checks the head; without a device. */
cgr_status cgr__config_read(const cgr_config *config, cgr_config *copy);

/* Entry checks: the handle, and that the runtime is alive. */
cgr_status cgr__runtime_check(cgr_runtime *rt, const char *function);
/* The same, and that the caller is not the engine's own `record`. */
cgr_status cgr__runtime_check_outside(cgr_runtime *rt, const char *function);
/* A stream that a step can go to. `eager`: it must not capture, for the kernels would go into the caller's graph. */
cgr_status cgr__check_stream(cgr_runtime *rt, const char *function, cudaStream_t stream, int eager);
/* The device is lost or its counter and the host's have parted: every later call answers CGR_ERROR_DEAD with this message. */
cgr_status cgr__runtime_die(cgr_runtime *rt, int device_code, const char *message);

/* Remembers that the device is lost; returns CGR_ERROR_DEAD with the first cause. For any other error just its status. */
cgr_status cgr__runtime_device_error(cgr_runtime *rt, int error, const char *what);

/* Address of a buffer in the arena. */
static inline void *cgr__runtime_buffer(const cgr_runtime *rt, int id, int32_t copy) {
  return rt->arena + rt->layout.offset[id][copy];
}

/* Enqueues a whole step on a stream: prologue, planner on a side branch, `record`, epilogue. `record` may be NULL. When it
 * fails, an epilogue that commits nothing ends the step, so that the device's counter and the host's stay together. */
cgr_status cgr__record_step(cgr_runtime *rt, cudaStream_t stream, const cgr_key *key, int capturing, cgr_record_function record,
                            void *engine, enum cgr__progress *progress);

/* A launch failed with `status`, which is returned: brings the host's counters in line with what was enqueued. */
cgr_status cgr__launch_failed(cgr_runtime *rt, cgr_status status, enum cgr__progress progress, cudaStream_t stream);

/* internal.c: launches a step without requests, eagerly, with as many pending changes as its slot holds when `changes` is set;
 * counted as internal. CGR_ERROR_BUSY when no slot is free. */
cgr_status cgr__launch_internal(cgr_runtime *rt, const cgr_key *key, cgr_record_function record, void *engine, int changes,
                                cudaStream_t stream);
/* The header and the empty composition of such a step. */
void cgr__stage_empty(const cgr_runtime *rt, cgr__slot_header *slot, uint64_t seq);

/* Waits until step `seq` has completed, or the timeout. */
cgr_status cgr__wait_completed(cgr_runtime *rt, uint64_t seq);

/* record.c: the branch of the planner must be joined before the first kernel that reads the plan. */
cgr_status cgr__join_planner(cgr_recorder *rec);

/* Orders `stream` after the last launched step. */
cgr_status cgr__order_stream(cgr_runtime *rt, cudaStream_t stream);

/* Takes the device's generation over; if it has moved on, a step has lost what it carried and everything travels again. */
void cgr__see_losses(cgr_runtime *rt);

/* stage.c: fills slots. */
cgr_status cgr__stage_step(cgr_runtime *rt, const cgr__step_plan *plan, cgr__prepared *prepared, uint32_t *bytes);

#endif

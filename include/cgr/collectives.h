/* What a runtime knows of the collectives that another library runs in its steps: resources that graphs hold, as a communicator
 * is, ranges around them, the fingerprints of steps that ranks compare on the device, how far its device has come, and the end
 * of a runtime whose device waits for a rank that does not come. An adapter for NCCL is in cgr/interop/nccl.h; it uses no more
 * than this. Not included by cgr.h. */
#ifndef CGR_COLLECTIVES_H
#define CGR_COLLECTIVES_H

#include "cgr/record.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CGR_MAX_RESOURCES = 64,    /* of a runtime, at a time */
  CGR_FINGERPRINT_BYTES = 32 /* of one rank */
};

/* ------------------------------------------------------------------------------------------------------------- resources */

/* Something that graphs use and must outlive them: a communicator. */
typedef struct cgr_resource {
  uint32_t size;
  int32_t allocations;         /* that `gone` frees of the runtime's device, so that they do not keep the runtime alive; 0 .. 1024 */
  const char *name;            /* for messages: 1 .. 47 characters; copied */
  void (*gone)(void *context); /* cgr_runtime_destroy calls it when steps and graphs have ended, in the reverse order of
                                  registration; it must not call the runtime. NULL: nothing is called */
  void *context;               /* of it */
} cgr_resource;
#define CGR_RESOURCE_INIT { (uint32_t)sizeof(cgr_resource), 0, NULL, NULL, NULL }

/* Registers a resource; `*number` becomes its number, which no other in the process has. CGR_ERROR_OUT_OF_MEMORY: the runtime has
 * CGR_MAX_RESOURCES. CGR_ERROR_NULL_POINTER: no name. CGR_ERROR_INVALID_ARGUMENT: its length, or `allocations`.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_resource_register(cgr_runtime *runtime, const cgr_resource *resource, uint64_t *number);
/* CGR_ERROR_STATE, and nothing is done, while graphs hold it, which cgr_runtime_release_graphs ends (stale ones count, too), or
 * while a step is prepared or in flight.
 * Threads one · Capture no · Sync never · Alloc never */
CGR_API cgr_status cgr_resource_unregister(cgr_runtime *runtime, uint64_t number);
/* How many graphs hold it; on a dead runtime, too.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_resource_count_graphs(cgr_runtime *runtime, uint64_t number, int32_t *graphs);

/* Says that the step uses a resource of its runtime: in a capture, its graph holds it. CGR_ERROR_INVALID_ARGUMENT: the runtime
 * has no such resource.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_use_resource(cgr_recorder *recorder, uint64_t number);

/* Gives up the step or the capture, as a failed cgr_record_ call does, for calls of other libraries in functions that `record`
 * may ignore: `status` is not CGR_OK (CGR_ERROR_INVALID_ARGUMENT) and is returned; the thread's last message is the cause.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_fail(cgr_recorder *recorder, cgr_status status);

/* ---------------------------------------------------------------------------------------------------------------- ranges */

/* What is enqueued between these two bears `name` in a profiler's ranges and among the labels of graphs: 1 .. 79 characters, none
 * of them a control character; copied. A process has at most 1024 different names; what comes after them is "collective". Ranges
 * may be nested, and end where they begin: in `record`, or in one call of it.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_record_range_begin(cgr_recorder *recorder, const char *name);
CGR_API cgr_status cgr_record_range_end(cgr_recorder *recorder);

/* ---------------------------------------------------------------------------------------------------------- fingerprints */

/* What of two ranks' fingerprints differs: the index of a guard (CGR_GUARD_RANK). The first that does counts. */
typedef enum cgr_fingerprint_part {
  CGR_FINGERPRINT_KEY = 0,      /* the step's key: the ranks run different graphs, or eagerly at other sizes */
  CGR_FINGERPRINT_CONFIG = 1,   /* what dispatch chooses by: cgr_runtime_hash_keys */
  CGR_FINGERPRINT_SEQUENCE = 2, /* the number that the engine gives the step */
  CGR_FINGERPRINT_INPUTS = 3    /* numbers of requests and tokens, input ids or positions */
} cgr_fingerprint_part;

/* Name ("key"); static storage, never NULL.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_fingerprint_part_name(cgr_fingerprint_part part);

/* What a step writes down of itself, for ranks that compare it on their devices. */
typedef struct cgr_fingerprint {
  uint32_t size;
  int32_t inputs;          /* 1: of its inputs, too, where all ranks have the same batch (CGR_RANKS_SAME) */
  void *out;               /* device, CGR_FINGERPRINT_BYTES at a multiple of 16 bytes */
  const int32_t *sequence; /* device: the step's number among all ranks (cgr_agreement.number), which the engine writes before
                              each step, on its stream; NULL: none. Without it a rank that skips a step is seen by its inputs
                              alone */
} cgr_fingerprint;
#define CGR_FINGERPRINT_INIT { (uint32_t)sizeof(cgr_fingerprint), 0, NULL, NULL }

/* Enqueues a kernel that writes the step's fingerprint. An all-gather of CGR_FINGERPRINT_BYTES then brings those of all ranks,
 * as cgr_nccl_record_comparison does. CGR_ERROR_NULL_POINTER, CGR_ERROR_INVALID_ARGUMENT: out, sequence (aligned to 4 bytes),
 * inputs.
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_record_fingerprint(cgr_recorder *recorder, const cgr_fingerprint *fingerprint);
/* Enqueues a kernel that compares the fingerprints of all ranks, `all` [num_ranks][CGR_FINGERPRINT_BYTES] of the device, with
 * that of `rank`, which is this one. A difference is the step's guard, unless another was first: CGR_GUARD_RANK (step.h). The
 * step goes on and commits what it computes, since the collectives of other ranks count on it. num_ranks is 1 .. CGR_MAX_RANKS
 * (ranks.h).
 * Threads one · Capture adds · Sync never · Alloc never (cold in a capture) */
CGR_API cgr_status cgr_record_compare_fingerprints(cgr_recorder *recorder, const void *all, int32_t num_ranks, int32_t rank);

/* ----------------------------------------------------------------------------------------------------------- how far it is */

typedef struct cgr_progress {
  uint32_t size;
  int32_t dead;       /* 1: the runtime is dead */
  uint64_t launched;  /* number of the last step that was launched; the runtime's own steps (warm-up, flush) count */
  uint64_t completed; /* of the last that the device has completed */
} cgr_progress;
#define CGR_PROGRESS_INIT { (uint32_t)sizeof(cgr_progress), 0, 0, 0 }

/* For another thread than that of the steps. Asks no device.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_progress(const cgr_runtime *runtime, cgr_progress *progress);

/* Leaves the runtime dead: every later call is CGR_ERROR_DEAD, and so is one that another thread is in, as soon as it notices,
 * with `why` (at most 200 characters count). For a device that waits for a rank: first this, then what ends the wait, so that no
 * step that ends because of it counts as good. A runtime that is dead keeps its first cause. No dump is made.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_abandon(cgr_runtime *runtime, const char *why);

#ifdef __cplusplus
}
#endif
#endif

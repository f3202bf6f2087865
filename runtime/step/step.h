/* Steps from prepare to result.
 *
 *   step.c          prepare, launch, cancel               stage.c      fills the ring slots of a step
 *   prepare_wait.c  prepares, and waits for a ring slot   wait.c       waits for steps and streams
 *   result.c        cgr_step_wait and results             streams.c    where steps go, in which order, and how many have gone
 *   requests.c      rows and their pages                  standing.c   edits of the standing batch
 *   staged.c        data of the engine's own buffers      flush.c      steps without requests: changes sent ahead
 *   recover.c       launches that failed                  starts.c     query_start_loc after a step
 *   read_trash.c    what read-trash pages hold */
#ifndef CGR_RUNTIME_STEP_STEP_H
#define CGR_RUNTIME_STEP_STEP_H

#include "cgr/ranks.h"
#include "requests/stops.h"
#include "runtime/record/record.h"
#include "runtime/runtime.h"

/* ---------------------------------------------------------------------------------------------------------- stage.c, staged.c */

/* Fills the ring slots of a checked batch; nothing is committed. On failure nothing has changed. */
cgr_status cgr__stage_step(cgr_runtime *rt, const cgr_batch *batch, cgr__prepared *prepared);
/* A ring slot of a step without requests. */
void cgr__stage_empty(const cgr_runtime *rt, cgr__ring_slot_header *slot);
/* Fills the ring slot with pending changes, as many as it holds; returns the bytes of header and changes. */
uint64_t cgr__stage_changes(cgr_runtime *rt, cgr__ring_slot_header *slot);
/* staged.c: data of the engine's own buffers. What a batch names is checked, then copied; returns the bytes. */
cgr_status cgr__staged_check(const cgr_runtime *rt, const cgr_batch *batch);
uint64_t cgr__stage_data(const cgr_runtime *rt, const cgr_batch *batch, const cgr__checked_batch *checked,
                         cgr__ring_slot_header *slot);
/* Takes the changes of ring slots [first, last] back: they are pending again. */
void cgr__unstage(cgr_runtime *rt, uint64_t first, uint64_t last);

/* ------------------------------------------------------------------------------------------------------------------ streams.c */

/* Orders `stream` after the last launched step. */
cgr_status cgr__order_stream(cgr_runtime *rt, cudaStream_t stream);
/* Checks that a step can go to the stream. */
cgr_status cgr__check_stream(cgr_runtime *rt, const char *function, cudaStream_t stream);
/* A step is on its stream: the host's counters follow. */
void cgr__launched(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, cgr__batch_layout *batch);
/* The same for a step without requests, for which the device has read `bytes`. */
void cgr__launched_internal(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, uint64_t bytes);

/* --------------------------------------------------------------------------------------------------------- recover.c, flush.c */

/* A launch that failed. */
typedef struct cgr__launch_error {
  uint64_t seq; /* the number that was committed and used up */
  bool ran;     /* the device ran the step in spite of the failure that it reported */
} cgr__launch_error;

/* Launches the steps that carry changes ahead of the prepared one. */
cgr_status cgr__launch_change_steps(cgr_runtime *rt, cudaStream_t stream, cgr__launch_error *failure);
/* Enqueues the prepared step, which is committed: through `record`, or what follows the first piece of its graph. */
cgr_status cgr__launch_recorded(cgr_runtime *rt, cudaStream_t stream, cgr__launch_error *failure);
/* Launches a step without requests, with as many pending changes as its ring slot holds when `changes` is set. CGR_ERROR_BUSY
 * when no ring slot is free. */
cgr_status cgr__launch_internal(cgr_runtime *rt, const char *function, const cgr__enqueue *enqueue, bool changes);

/* Step failure->seq was committed and enqueuing it failed with `status`, which is returned, or CGR_ERROR_DEAD. Its number is used
 * up afterwards, by the step itself if it ran all the same, else by an empty one. Waits for the device. */
cgr_status cgr__recover(cgr_runtime *rt, cgr_status status, cudaStream_t stream, cgr__launch_error *failure);
/* The same for a graph whose launch failed with a device's error. */
cgr_status cgr__recover_replay(cgr_runtime *rt, int error, cudaStream_t stream, cgr__launch_error *failure);
/* The launch of the prepared step was refused with `status`, which is returned; the step stays prepared. */
cgr_status cgr__refuse_launch(cgr_runtime *rt, cgr_status status);
/* The prepared step is over: its changes are pending again, its rows keep their lengths. */
void cgr__abandon(cgr_runtime *rt, cgr_step *step, const cgr__launch_error *failure, uint64_t began, cgr_status status);

/* ----------------------------------------------------------------------------------------------------------- wait.c, result.c */

/* Waits for a step that has not completed, as cgr_config.wait_mode says. */
cgr_status cgr__wait_for_step(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms);
/* Waits until step `seq` has completed, or the timeout. */
static inline cgr_status cgr__wait_completed(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms) {
  return cgr__ring_completed(&rt->lane.ring) >= seq ? CGR_OK : cgr__wait_for_step(rt, function, seq, timeout_ms);
}
/* Waits until the stream is idle, at most until `deadline` of cgr__now_ms; the device's error, NOT_READY after that. */
int cgr__wait_idle(cgr_runtime *rt, cudaStream_t stream, double deadline);
/* The end of a wait of wait_timeout_ms that begins now. */
double cgr__wait_deadline(const cgr_runtime *rt);
/* The time-out of an argument: -1 is the configured one. Less is refused. */
static inline cgr_status cgr__wait_timeout(const cgr_runtime *rt, const char *function, int32_t *timeout_ms) {
  if (*timeout_ms < -1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: timeout_ms is %d, expected -1 or more", function, *timeout_ms);
  if (*timeout_ms == -1)
    *timeout_ms = rt->setup.config.wait_timeout_ms;
  return CGR_OK;
}
/* Takes what completed steps say of their guesses, and of rows that they end: before lengths are read, and before a readback slot
 * is written again. */
void cgr__take_guesses(cgr_runtime *rt);
static inline void cgr__results_take(cgr_runtime *rt) {
  if (rt->rows.has_notes)
    cgr__take_guesses(rt);
}
/* Takes results, and note of losses: everything is sent again. The runtime dies if the device has run a step that was never
 * launched. */
cgr_status cgr__resync(cgr_runtime *rt);
static inline cgr_status cgr__resync_after_losses(cgr_runtime *rt) {
  const cgr__lane *lane = &rt->lane;
  const bool is_astray = cgr__ring_completed(&lane->ring) > lane->launched;
  return is_astray || rt->rows.has_notes || cgr__ring_generation(&lane->ring) != lane->generation ? cgr__resync(rt) : CGR_OK;
}

/* ----------------------------------------------------------------------------------------------------- read_trash.c, starts.c */

/* read_trash.c: how large the copies are; enqueues them ahead of the prepared step, if it is time; looks at those of a step that
 * has completed, and reports what is bad; refuses a step once for what was found. */
size_t cgr__read_trash_bytes(const cgr__setup *setup);
cgr_status cgr__read_trash_copy(cgr_runtime *rt, cudaStream_t stream);
void cgr__read_trash_look(cgr_runtime *rt);
cgr_status cgr__read_trash_check(cgr_runtime *rt, const char *function);
/* starts.c: the same for query_start_loc after the last step, which cgr__starts_note keeps; what is found is only reported. */
size_t cgr__starts_bytes(const cgr__setup *setup);
void cgr__starts_note(cgr_runtime *rt);
cgr_status cgr__starts_copy(cgr_runtime *rt, cudaStream_t stream);
void cgr__starts_look(cgr_runtime *rt);

/* ------------------------------------------------------------------------------------------------------------------ step.c */

/* Validates the batch and tells its counts, without a choice. */
cgr_status cgr__step_count(cgr_runtime *rt, const cgr_batch *batch, cgr_batch_counts *counts);

#endif

/* What a runtime tells of itself.
 *
 *   flight.c     the record of every step                 dump.c       reads it
 *   stats.c      counters and texts                       ranges.c     what tools are told
 *   timing.c     timestamps of the device                 trace.c      steps as trace events
 *   labels.c     what the nodes of graphs belong to       advice.c     which keys pay */
#ifndef CGR_RUNTIME_REPORT_REPORT_H
#define CGR_RUNTIME_REPORT_REPORT_H

#include "runtime/runtime.h"

/* ----------------------------------------------------------------------------------------------------------- flight.c, dump.c */

/* The record of the prepared step, as far as it is known, with its outcome. */
void cgr__flight_describe(const cgr_runtime *rt, cgr_flight_outcome outcome, cgr__flight_entry *entry);
/* A step is over: writes its record. `began`: ticks when the call began; for a launch, 0 if the step is not timed. */
void cgr__flight_launched(cgr_runtime *rt, uint64_t began);
void cgr__flight_abandoned(cgr_runtime *rt, uint64_t began, uint64_t seq, cgr_status status);
void cgr__flight_cancelled(cgr_runtime *rt);
void cgr__flight_refused(cgr_runtime *rt, uint64_t began, cgr_status status);
void cgr__flight_internal(cgr_runtime *rt, uint64_t seq, uint64_t bytes);
/* The launch of a step of the runtime itself has failed. */
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
/* Gives that JSON to cgr_config.dump, if it is due and there is one. */
void cgr__dump_tell(cgr_runtime *rt);
/* Keeps the thread's last message as that of a failed launch, or of a capture in which the runtime died. `seq` 0: no number was
 * used up. */
void cgr__failure_keep(cgr_runtime *rt, uint64_t seq, const cgr_key *key, cgr_status status);
/* The status with which the launch of the prepared step, or of the step just cancelled, has failed; CGR_OK: it has not. */
static inline cgr_status cgr__failure_of_prepared(const cgr_runtime *rt) {
  return rt->failure.ticket == rt->tickets ? (cgr_status)rt->failure.status : CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------------- stats.c */

/* stats.c: the handle of a function that reports. A dead runtime is accepted: what it did may tell why it died. */
cgr_status cgr__report_check(cgr_runtime *runtime, const char *function);
/* Checks the arguments of a function that writes a text; the runtime may be dead. */
cgr_status cgr__text_check(cgr_runtime *rt, const char *function, const char *out, size_t capacity, const size_t *length);

#endif

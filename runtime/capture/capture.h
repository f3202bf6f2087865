/* Graphs: how they are made, what they will take, what they hold.
 *
 *   capture.c    captures, warms up, releases             estimate.c   what a capture will take
 *   captured_inputs.c  what graphs are made from           coverage.c   which sizes have no graph
 *   audit.c      what captured graphs hold                self_test/   whether they do what eager steps do */
#ifndef CGR_RUNTIME_CAPTURE_CAPTURE_H
#define CGR_RUNTIME_CAPTURE_CAPTURE_H

#include "runtime/runtime.h"

/* captured_inputs.c: recomputes the hash of what graphs are made from; graphs that were made from anything else are stale. */
void cgr__captured_inputs_refresh(cgr_runtime *rt);

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
/* Captures the entry for the public `function`; a failure is logged. */
cgr_status cgr__capture_entry_now(cgr_runtime *rt, const char *function, cgr__graph_entry *entry);
/* Logs the calls of cgr_record_call that added no node to a capture. */
void cgr__capture_tell_lost(cgr_runtime *rt);

#endif

/* Timestamps inside steps (kernels/stamp.h), in a runtime whose configuration asks for them. Otherwise each of these only tests a
 * byte of the runtime's first line. Stamps are enqueued like the step's own kernels, so graphs hold them. */
#ifndef CGR_RUNTIME_REPORT_TIMING_H
#define CGR_RUNTIME_REPORT_TIMING_H

#include "kernels/stamp.h"
#include "runtime/runtime.h"

static inline bool cgr__is_timed(const cgr_runtime *rt) { return __builtin_expect((rt->flags & CGR__RUNTIME_TIMED) != 0, 0); }
static inline bool cgr__times_layers(const cgr_runtime *rt) {
  return __builtin_expect((rt->flags & CGR__RUNTIME_TIMED_LAYERS) != 0, 0);
}

/* What a stamp puts its time into: words of the step's row, 0 for none. */
typedef struct cgr__stamp_words {
  int32_t word[CGR__STAMP_WORDS];
} cgr__stamp_words;

static inline int32_t cgr__begin_of(cgr_phase phase) { return cgr__stamp_word((int32_t)phase, 0); }
static inline int32_t cgr__end_of(cgr_phase phase) { return cgr__stamp_word((int32_t)phase, 1); }
static inline cgr__stamp_words cgr__stamp_begin(cgr_phase phase) { return (cgr__stamp_words){ { cgr__begin_of(phase) } }; }
static inline cgr__stamp_words cgr__stamp_end(cgr_phase phase) { return (cgr__stamp_words){ { cgr__end_of(phase) } }; }
/* One phase ends where the next begins. */
static inline cgr__stamp_words cgr__stamp_between(cgr_phase phase, cgr_phase next) {
  return (cgr__stamp_words){ { cgr__end_of(phase), cgr__begin_of(next) } };
}

/* How a device's error is reported if a stamp runs into it. */
#define CGR__STAMPING "step: enqueuing a timestamp"

/* timing.c. `first`: of the step. */
cgr__stamp_args cgr__timing_args(const cgr_runtime *rt, cgr__stamp_words words, bool first);
int cgr__timing_enqueue(cgr_runtime *rt, cudaStream_t stream, const cgr__stamp_args *args);

/* Puts a stamp on the stream, if the runtime is timed; returns 0, or the device's error, which is then reported as `*what`. */
static inline int cgr__timing_stamp(cgr_runtime *rt, cudaStream_t stream, cgr__stamp_words words, const char **what) {
  if (!cgr__is_timed(rt))
    return 0;
  const cgr__stamp_args args = cgr__timing_args(rt, words, false);
  int error = cgr__timing_enqueue(rt, stream, &args);
  *what = error ? CGR__STAMPING : *what;
  return error;
}
/* The first one of a step. */
static inline int cgr__timing_begin(cgr_runtime *rt, cudaStream_t stream, const char **what) {
  const cgr__stamp_words words = { { cgr__begin_of(CGR_PHASE_STEP), cgr__begin_of(CGR_PHASE_PROLOGUE) } };
  if (!cgr__is_timed(rt))
    return 0;
  const cgr__stamp_args args = cgr__timing_args(rt, words, true);
  int error = cgr__timing_enqueue(rt, stream, &args);
  *what = error ? CGR__STAMPING : *what;
  return error;
}
/* The same as cgr__timing_stamp with a status. */
static inline cgr_status cgr__timing_try(cgr_runtime *rt, cudaStream_t stream, cgr__stamp_words words) {
  const char *what = CGR__STAMPING;
  return cgr__is_timed(rt) ? cgr__runtime_device_error(rt, cgr__timing_stamp(rt, stream, words, &what), what) : CGR_OK;
}

/* At creation. _init places what is kept in `memory` (cgr__setup_timing_bytes). _start loads the kernel and compares the clocks,
 * so that even a runtime that dies before a time has been read can report its clock's error. */
void cgr__timing_init(cgr_runtime *rt, unsigned char *memory);
cgr_status cgr__timing_start(cgr_runtime *rt);
/* Compares the clocks; if not `now`, at most once a second. */
cgr_status cgr__timing_compare(cgr_runtime *rt, const char *function, bool now);
/* Whether the device still has the timestamps of step `seq`, and all of them. */
bool cgr__timing_is_kept(const cgr_runtime *rt, uint64_t seq);
/* Checks `seq` as cgr_runtime_timing does, and reads the spans of that step: rt->timing.spans[*count]. */
cgr_status cgr__timing_read(cgr_runtime *rt, const char *function, uint64_t seq, int32_t *count);

#endif

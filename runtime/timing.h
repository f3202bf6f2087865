/* Timestamps inside steps (kernels/stamp.h), in a runtime whose configuration asks for them. Otherwise each of these is a test of
 * a byte of the runtime's first line. Stamps go where the step's own kernels do, so that graphs hold them. */
#ifndef CGR_RUNTIME_TIMING_H
#define CGR_RUNTIME_TIMING_H

#include "kernels/stamp.h"
#include "runtime/runtime.h"

static inline bool cgr__is_timed(const cgr_runtime *rt) { return __builtin_expect((rt->flags & CGR__RUNTIME_TIMED) != 0, 0); }
static inline bool cgr__times_layers(const cgr_runtime *rt) {
  return __builtin_expect((rt->flags & CGR__RUNTIME_TIMED_LAYERS) != 0, 0);
}

static inline int32_t cgr__mark_begin(cgr_phase phase) { return cgr__stamp_word((int32_t)phase, 0); }
static inline int32_t cgr__mark_end(cgr_phase phase) { return cgr__stamp_word((int32_t)phase, 1); }

/* timing.c. A moment that up to three words get, 0 for none. */
cgr__stamp_args cgr__timing_args(const cgr_runtime *rt, int32_t a, int32_t b, int32_t c);
int cgr__timing_stamp(cgr_runtime *rt, cudaStream_t stream, const cgr__stamp_args *args);

/* The same, if the runtime is timed; 0 or the device's error. */
static inline int cgr__timing_mark(cgr_runtime *rt, cudaStream_t stream, int32_t a, int32_t b, int32_t c) {
  if (!cgr__is_timed(rt))
    return 0;
  const cgr__stamp_args args = cgr__timing_args(rt, a, b, c);
  return cgr__timing_stamp(rt, stream, &args);
}
/* The first one of a step. */
static inline int cgr__timing_begin(cgr_runtime *rt, cudaStream_t stream) {
  if (!cgr__is_timed(rt))
    return 0;
  cgr__stamp_args args = cgr__timing_args(rt, cgr__mark_begin(CGR_PHASE_STEP), cgr__mark_begin(CGR_PHASE_PROLOGUE), 0);
  args.first = 1;
  return cgr__timing_stamp(rt, stream, &args);
}
/* A status of what the two return. */
static inline cgr_status cgr__timing_status(cgr_runtime *rt, int error) {
  return error ? cgr__runtime_device_error(rt, error, "step: enqueuing a timestamp") : CGR_OK;
}

/* At creation: places what is kept in `memory` (cgr__setup_timing_bytes); loads the kernel and compares the clocks. */
void cgr__timing_init(cgr_runtime *rt, unsigned char *memory);
cgr_status cgr__timing_start(cgr_runtime *rt);
/* Compares the clocks; if not `now`, once a second at most. */
cgr_status cgr__timing_compare(cgr_runtime *rt, const char *function, bool now);
/* Checks `seq` as cgr_runtime_timing does, and reads the spans of that step: rt->timing.spans[*count]. */
cgr_status cgr__timing_read(cgr_runtime *rt, const char *function, uint64_t seq, int32_t *count);

#endif

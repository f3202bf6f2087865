/* Timestamps inside a step.
 *
 * Each step has a row of words, at its number modulo ring_depth: word 0 its number, then the begin and the end of each phase,
 * then those of each layer. A stamp writes the time to up to three of them: what ends and what begins at that moment. The
 * first stamp of a step clears the row, so that a word holds this step's time or 0. */
#ifndef CGR_KERNELS_STAMP_H
#define CGR_KERNELS_STAMP_H

#include <stdint.h>

#include "base/host_device.h"
#include "base/limits.h"
#include "cgr/tracing.h"
#include "devices/device.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CGR__STAMP_WORDS = 3, CGR__FIRST_LAYER_WORD = 1 + 2 * CGR_PHASE_LAYER, CGR__LAYER_WORDS = 6 };

/* The word of a phase's time: `end` is 0 for its begin, 1 for its end. The three phases of layers have words for each layer. */
CGR__HOST_DEVICE int32_t cgr__stamp_word(int32_t phase, int32_t end) { return 1 + 2 * phase + end; }
CGR__HOST_DEVICE int32_t cgr__stamp_layer_word(int32_t phase, int32_t layer, int32_t end) {
  return CGR__FIRST_LAYER_WORD + CGR__LAYER_WORDS * layer + 2 * (phase - CGR_PHASE_LAYER) + end;
}

/* Words of a step's row, whole lines; `timing`: a cgr_timing_mode, or a value that is refused. */
static inline int32_t cgr__stamp_stride(int32_t timing, int32_t num_layers) {
  bool of_layers = timing == CGR_TIMING_LAYERS && num_layers > 0 && num_layers <= CGR__MAX_LAYERS;
  int32_t words = CGR__FIRST_LAYER_WORD + (of_layers ? CGR__LAYER_WORDS * num_layers : 0);
  return timing == CGR_TIMING_PHASES || timing == CGR_TIMING_LAYERS ? (words + 15) / 16 * 16 : 0;
}

/* The row of step `seq`. */
CGR__HOST_DEVICE int64_t *cgr__stamp_row(int64_t *stamps, uint64_t seq, int32_t ring_depth, int32_t stride) {
  return stamps + cgr__ring_slot_index(seq, ring_depth) * stride;
}

typedef struct cgr__stamp_args {
  int64_t *stamps;              /* [ring_depth][stride] */
  const cgr__step_state *state; /* NULL: of no step, in row 0 */
  int32_t ring_depth, stride;
  int32_t word[CGR__STAMP_WORDS]; /* that get the time; 0: none */
  int32_t first;                  /* 1: the row is cleared, and gets its number */
} cgr__stamp_args;

/* Writes the time at which its stream reaches it, in nanoseconds of the device's clock: on CUDA the global timer, on the host
 * CLOCK_MONOTONIC. seq = state->seq + 1, so it must come before the epilogue of its step. */
extern const cgr__kernel cgr__kernel_stamp; /* cgr__stamp_args */

/* What the epilogue writes into its step's row. */
CGR__HOST_DEVICE void cgr__stamp_epilogue(int64_t *row, int64_t now) {
  row[cgr__stamp_word(CGR_PHASE_EPILOGUE, 1)] = now;
  row[cgr__stamp_word(CGR_PHASE_STEP, 1)] = now;
}

#ifdef __cplusplus
}
#endif
#endif

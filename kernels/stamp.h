/* Timestamps inside a step.
 *
 * Each step has a row of words, at its number modulo ring_depth: word 0 its number, then the begin and the end of each phase,
 * then those of each layer. The first stamp of a step clears the row, so that what a word holds is this step's, or 0. */
#ifndef CGR_KERNELS_STAMP_H
#define CGR_KERNELS_STAMP_H

#include <stdint.h>
#include <time.h>

#include "base/host_device.h"
#include "base/limits.h"
#include "devices/device.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CGR__MAX_MARKS = 4, CGR__FIRST_LAYER_WORD = 1 + 2 * CGR_PHASE_COUNT_, CGR__LAYER_WORDS = 6 };

/* The words of a moment: `end` is 0 for the begin of a phase, 1 for its end. The three phases of layers are counted by layer. */
CGR__HOST_DEVICE int32_t cgr__stamp_word(int32_t phase, int32_t end) { return 1 + 2 * phase + end; }
CGR__HOST_DEVICE int32_t cgr__stamp_layer_word(int32_t phase, int32_t layer, int32_t end) {
  return CGR__FIRST_LAYER_WORD + CGR__LAYER_WORDS * layer + 2 * (phase - CGR_PHASE_LAYER) + end;
}

/* Words of a step's row, whole lines; `timing` as in cgr_config. */
static inline int32_t cgr__stamp_stride(int32_t timing, int32_t num_layers) {
  int32_t layers = timing == 2 && num_layers > 0 && num_layers <= CGR__MAX_LAYERS ? num_layers : 0;
  return timing < 1 || timing > 2 ? 0 : (CGR__FIRST_LAYER_WORD + CGR__LAYER_WORDS * layers + 15) / 16 * 16;
}

typedef struct cgr__stamp_args {
  int64_t *stamps; /* [ring_depth][stride] */
  const cgr__step_state *state; /* NULL: of no step, in row 0 */
  int32_t ring_depth, stride;
  int32_t mark[CGR__MAX_MARKS]; /* words that get the time; 0: none */
  int32_t first;                /* 1: the row is cleared, and gets its number */
  int32_t reserved;
} cgr__stamp_args;

/* One moment on its stream, which may be the end of one phase and the begin of another. Nanoseconds of the device's clock: on
 * CUDA the global timer, on the host CLOCK_MONOTONIC. seq = state->seq + 1, so that it stands before the epilogue of its step. */
extern const cgr__kernel cgr__kernel_stamp; /* cgr__stamp_args */

/* What the epilogue of step `seq` writes. */
CGR__HOST_DEVICE void cgr__stamp_end(const cgr__step_args *a, uint64_t seq, int64_t now) {
  int64_t *row = a->buffers.stamps + (int64_t)(seq % (uint64_t)a->ring_depth) * a->stamp_stride;
  row[cgr__stamp_word(CGR_PHASE_EPILOGUE, 1)] = now;
  row[cgr__stamp_word(CGR_PHASE_STEP, 1)] = now;
}

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t cgr__host_time(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#ifdef __cplusplus
}
#endif
#endif

/* The engine's own buffers that are staged by tokens or by requests. */
#ifndef CGR_KERNELS_STAGED_H
#define CGR_KERNELS_STAGED_H

#include <stdint.h>

#include "base/host_device.h"
#include "base/limits.h"
#include "devices/device.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cgr__staged_per { CGR__STAGED_PER_REQUEST = 0, CGR__STAGED_PER_TOKEN = 1, CGR__STAGED_PER_STEP = 2 };

typedef struct cgr__staged_buffer {
  void *data;          /* in the arena: aligned to 256 bytes, and so is what follows it */
  int64_t slot_offset; /* of its section, a multiple of 64 */
  int64_t row_bytes;   /* of a token, a request or the step */
  uint64_t pattern;    /* eight bytes of padding */
  int32_t index;       /* bit of state->staged */
  int32_t per;         /* cgr__staged_per */
} cgr__staged_buffer;

/* The rows of a buffer in a step of so many tokens and requests. */
CGR__HOST_DEVICE int64_t cgr__staged_count(int32_t per, int64_t tokens, int64_t requests) {
  return per == CGR__STAGED_PER_STEP ? 1 : per == CGR__STAGED_PER_TOKEN ? tokens : requests;
}

typedef struct cgr__staged_args {
  const unsigned char *staging; /* as in cgr__step_args */
  int64_t slot_stride;
  const cgr__step_state *state;
  const int32_t *counts;
  int32_t ring_depth, num_buffers;
  int32_t padded_requests, padded_tokens; /* B_r, B_t: of the key */
  cgr__staged_buffer buffer[CGR__MAX_DECLARED];
} cgr__staged_args;

/* Runs after the prologue, which has checked the ring slot. In each buffer the rows [0, real count) come from its section if
 * state->staged has its bit; the others, up to the padded count, become padding. A buffer per step has one row. Up to 15 bytes
 * after the rows become padding too. */
extern const cgr__kernel cgr__kernel_staged; /* cgr__staged_args */

#ifdef __cplusplus
}
#endif
#endif

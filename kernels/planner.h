/* The planner: the attention plans of a step. */
#ifndef CGR_KERNELS_PLANNER_H
#define CGR_KERNELS_PLANNER_H

#include <stdint.h>

#include "base/limits.h"
#include "devices/device.h"
#include "planners/attention/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__planner_args {
  const int32_t *counts, *query_start_loc;
  const int32_t *seq_lens[CGR__MAX_SETS];
  int32_t *plan;     /* the plan of class i at plan + offset[i] */
  int32_t *counters; /* arrivals, and the heads of the prefill queues: all become 0 */
  int32_t num_counters, num_classes;
  int32_t padded_requests; /* B_r of the key */
  int32_t reserved;
  int64_t offset[CGR__MAX_CLASSES]; /* words, multiples of 4 */
  cgr__plan_class classes[CGR__MAX_CLASSES];
} cgr__planner_args;

/* Shared memory of a block of the planner on CUDA: 16 bytes for each request, 24 for each part, and a fixed amount that includes
 * the device's own kilobyte. */
#define CGR__PLANNER_SHARED_FIXED 5120
static inline int64_t cgr__planner_shared_bytes(int32_t max_requests, int32_t num_parts) {
  return CGR__PLANNER_SHARED_FIXED + 16 * ((int64_t)max_requests + 2) + 24 * ((int64_t)num_parts + 2);
}

/* Writes the plan of every class (planners/attention/plan.h) for the batch that the prologue left, and zeroes the counters, which
 * an abandoned step may have left behind. */
extern const cgr__kernel cgr__kernel_planner; /* cgr__planner_args */

#ifdef __cplusplus
}
#endif
#endif

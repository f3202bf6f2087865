/* The kernels of this folder, with their launchers on each device. */
#include "devices/enqueue.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/fingerprint.h"
#include "kernels/gather.h"
#include "kernels/measure.h"
#include "kernels/merge.h"
#include "kernels/on_demand.h"
#include "kernels/pages.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/stamp.h"
#include "kernels/step.h"
#include "kernels/transform.h"
#include "kernels/values.h"

#include "kernels/host/launchers.h"

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
#include "kernels/cuda/launchers.h"
#define CUDA_LAUNCHERS(name) cgr__cuda_##name, cgr__cuda_##name##_preload
#else
#define CUDA_LAUNCHERS(name) NULL, NULL
#endif

/* X(name, its arguments) */
#define KERNELS(X)                        \
  X(prologue, cgr__step_args)             \
  X(planner, cgr__planner_args)           \
  X(fetch, cgr__step_args)                \
  X(staged, cgr__staged_args)             \
  X(on_demand, cgr__on_demand_args)       \
  X(epilogue, cgr__step_args)             \
  X(append, cgr__append_args)             \
  X(transform, cgr__transform_args)       \
  X(attention, cgr__attention_args)       \
  X(merge, cgr__merge_args)               \
  X(measure, cgr__measure_args)           \
  X(fill_pages, cgr__pages_args)          \
  X(digest_pages, cgr__pages_args)        \
  X(stamp, cgr__stamp_args)               \
  X(check_values, cgr__check_values_args) \
  X(fingerprint, cgr__fingerprint_args)   \
  X(compare_fingerprints, cgr__compare_fingerprints_args)

/* Without a number: a runtime loads all of them when it is created. */
#define DEFINE(name, args) \
  const cgr__kernel cgr__kernel_##name = { #name, sizeof(args), cgr__host_##name, CUDA_LAUNCHERS(name), 0 };
KERNELS(DEFINE)

/* No runtime launches it: cgr_gather_enqueue loads it when it is first called. */
const cgr__kernel cgr__kernel_gather = { "gather", sizeof(cgr__gather_args), cgr__host_gather, CUDA_LAUNCHERS(gather),
                                         CGR__KERNEL_NUMBER_GATHER };

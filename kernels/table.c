/* The kernels of this folder, with their launchers on each device. */
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/derived.h"
#include "kernels/families/families.h"
#include "kernels/pages.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/step.h"

#include "kernels/host/launchers.h"

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
#include "kernels/cuda/launchers.h"
#define CUDA_LAUNCHERS(name) cgr__cuda_##name, cgr__cuda_##name##_preload
#else
#define CUDA_LAUNCHERS(name) NULL, NULL
#endif

#define KERNEL(name, args) const cgr__kernel cgr__kernel_##name = { #name, sizeof(args), cgr__host_##name, CUDA_LAUNCHERS(name) }

KERNEL(prologue, cgr__step_args);
KERNEL(planner, cgr__planner_args);
KERNEL(fetch, cgr__step_args);
KERNEL(staged, cgr__staged_args);
KERNEL(derived, cgr__derived_args);
KERNEL(epilogue, cgr__step_args);
KERNEL(append, cgr__append_args);
KERNEL(attention, cgr__attention_args);
KERNEL(fa3, cgr__fa3_args);
KERNEL(fill_pages, cgr__pages_args);
KERNEL(digest_pages, cgr__pages_args);
KERNEL(flashmla, cgr__flashmla_args);
KERNEL(block_table, cgr__block_table_args);
KERNEL(flashinfer, cgr__flashinfer_args);
KERNEL(cascade, cgr_flashinfer_cascade);

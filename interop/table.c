/* The kernels of this folder, with their launchers on each device. */
#include "cgr/interop/flashinfer.h"
#include "interop/formats.h"
#include "interop/launchers.h"

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
#define CUDA_LAUNCHERS(name) cgr__cuda_##name, cgr__cuda_##name##_preload
#else
#define CUDA_LAUNCHERS(name) NULL, NULL
#endif

/* X(name, its arguments) */
#define KERNELS(X)                    \
  X(fa3, cgr__fa3_args)               \
  X(flashinfer, cgr__flashinfer_args) \
  X(cascade, cgr_flashinfer_cascade)  \
  X(flashmla, cgr__flashmla_args)     \
  X(block_table, cgr__block_table_args)

/* A format's kernel is loaded when it is first used: its number is the bit by which a device remembers that. */
enum {
  NUMBER_NONE,
#define NUMBER(name, args) NUMBER_##name,
  KERNELS(NUMBER) NUMBER_END
};
_Static_assert(NUMBER_END <= CGR__KERNEL_NUMBER_GATHER, "cgr_device.loaded has a bit for each, and those of kernels/");

#define DEFINE(name, args) \
  const cgr__kernel cgr__kernel_##name = { #name, sizeof(args), cgr__host_##name, CUDA_LAUNCHERS(name), NUMBER_##name };
KERNELS(DEFINE)

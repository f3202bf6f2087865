#include "profiles/support/least.h"

static void least(const void *args) {
  const bench_least *a = args;
  uint64_t value = 0;
  for (int32_t i = 0; i < a->num_loads; i++)
    value = __atomic_load_n(&a->device[32 * (i + 1) + (int64_t)value], __ATOMIC_RELAXED);
  if (a->reads)
    value += __atomic_load_n(&a->mapped[0], __ATOMIC_RELAXED);
  a->device[0] = value;
  if (!a->publishes)
    return;
  a->mapped[16] = value;
  __atomic_store_n(&a->mapped[32], value, __ATOMIC_RELEASE);
}

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
const cgr__kernel bench_kernel_least = { "least", sizeof(bench_least), least, bench_cuda_least, bench_cuda_least_preload, 0 };
#else
const cgr__kernel bench_kernel_least = { "least", sizeof(bench_least), least, NULL, NULL, 0 };
#endif

#include "profiles/support/clock.h"

#include <time.h>

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void spin(const void *args) {
  const bench_spin *a = args;
  uint64_t begin = now_ns(), ns = a->pace ? *a->pace : a->ns;
  while (ns > 0 && now_ns() - begin < ns)
    ;
}

static void mark(const void *args) {
  const bench_mark *a = args;
  __atomic_store_n(a->ns, now_ns(), __ATOMIC_RELEASE);
}

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
const cgr__kernel bench_kernel_spin = { "spin", sizeof(bench_spin), spin, bench_cuda_spin, bench_cuda_spin_preload, 0 };
const cgr__kernel bench_kernel_mark = { "mark", sizeof(bench_mark), mark, bench_cuda_mark, bench_cuda_mark_preload, 0 };
#else
const cgr__kernel bench_kernel_spin = { "spin", sizeof(bench_spin), spin, NULL, NULL, 0 };
const cgr__kernel bench_kernel_mark = { "mark", sizeof(bench_mark), mark, NULL, NULL, 0 };
#endif

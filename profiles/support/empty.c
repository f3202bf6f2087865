#include "profiles/support/empty.h"

#include <stddef.h>

static void do_nothing(const void *args) { (void)args; }

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
const cgr__kernel bench_kernel_empty = { "empty", 0, do_nothing, bench_cuda_empty, bench_cuda_empty_preload, 0 };
#else
const cgr__kernel bench_kernel_empty = { "empty", 0, do_nothing, NULL, NULL, 0 };
#endif

/* Kernels for the tests of the CUDA device, behind the same interface as kernels/cuda. */
#ifndef CGR_TESTS_DEVICES_KERNELS_H
#define CGR_TESTS_DEVICES_KERNELS_H

#include "cgr/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* words[i] = words[i] * factor + i */
struct test_scale_args {
  int *words;
  int count, factor;
};
int test_scale(const void *args, cudaStream_t stream);
int test_scale_preload(void);
int test_scale_early(const void *args,
                     cudaStream_t stream); /* on a programmatic edge: may start before what is ahead has ended */
int test_scale_nowhere(const void *args, cudaStream_t stream); /* with an empty grid */

/* Reverses `count` words through count * 4 bytes of dynamic shared memory, at most TEST_REVERSE_MAX words. */
#define TEST_REVERSE_MAX 20000
struct test_reverse_args {
  int *words;
  int count;
};
int test_reverse(const void *args, cudaStream_t stream);
int test_reverse_preload(void);

/* Each block lets the next kernel begin, and after a millisecond or so writes `value` to words [0, count). */
struct test_late_args {
  int *words;
  int count, value;
};
int test_late(const void *args, cudaStream_t stream);
int test_late_preload(void);

/* Launched early by the library's function: seen[0] is words[count - 1] at once, seen[1] the same after the wait. seen[2] is the
 * architecture that the kernel was compiled for, 900 for 9.0. */
struct test_follow_args {
  const int *words;
  int *seen;
  int count;
};
int test_follow(const void *args, cudaStream_t stream);
int test_follow_preload(void);

/* Not a kernel of this build. */
int test_no_kernel(const void *args, cudaStream_t stream);

/* native/: adds 90 to one word, for compute capability 9.0 alone. In builds with CGR_HAS_SM90A. */
struct test_native_args {
  int *word;
};
int test_native(const void *args, cudaStream_t stream);
int test_native_preload(void);

#ifdef __cplusplus
}
#endif
#endif

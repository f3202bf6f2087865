#include "profiles/support/accept.h"

#include <stddef.h>

static void accept_guesses(const void *args) {
  const bench_accept *a = args;
  for (int32_t i = 0; i < a->requests; i++) {
    a->num_accepted[i] = (a->seq_lens[i] + i) % (1 + a->num_drafts[i]);
    for (int32_t j = 0; j < a->stride; j++)
      a->next_tokens[(int64_t)i * a->stride + j] = j;
  }
}

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
const cgr__kernel bench_kernel_accept = { "accept",          sizeof(bench_accept),      accept_guesses,
                                          bench_cuda_accept, bench_cuda_accept_preload, 0 };
#else
const cgr__kernel bench_kernel_accept = { "accept", sizeof(bench_accept), accept_guesses, NULL, NULL, 0 };
#endif

/* What a merge computes, for tests: one head of one token. It shares no code with the kernels. */
#ifndef CGR_KERNELS_REFERENCE_MERGE_H
#define CGR_KERNELS_REFERENCE_MERGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One of the two sides, or their merge. lse -inf or +inf: nothing was seen, and out does not count. */
typedef struct cgr__reference_head {
  double *out; /* [head_dim] */
  double lse;
} cgr__reference_head;

/* In fp64. The caller provides merged->out, which is filled. */
void cgr__reference_merge(int32_t head_dim, const cgr__reference_head *a, const cgr__reference_head *b,
                          cgr__reference_head *merged);

/* The same in fp32, with out rounded to `dtype`. A kernel may err twice as much as this does. */
void cgr__reference_merge_in(int32_t dtype, int32_t head_dim, const cgr__reference_head *a, const cgr__reference_head *b,
                             cgr__reference_head *merged);

#ifdef __cplusplus
}
#endif
#endif

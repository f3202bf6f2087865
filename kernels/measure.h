/* The measure: the largest magnitudes of a tensor of the step, of each channel of each head, for factors of caches of 8 bits. */
#ifndef CGR_KERNELS_MEASURE_H
#define CGR_KERNELS_MEASURE_H

#include <stdint.h>

#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* maxima[h][d] becomes the largest of what it holds and of |view(t, h, d)| over tokens [0, counts[TOKENS]). NaN does not count;
 * an infinity does. The result does not depend on the order. */
typedef struct cgr__measure_args {
  cgr_view view; /* [num_tokens, num_heads, head_dim], of fp32, fp16 or bf16 */
  float *maxima; /* [num_heads][head_dim], not negative */
  const int32_t *counts;
  int32_t num_tokens; /* padded */
  int32_t num_heads;
  int32_t head_dim; /* a multiple of CGR__MEASURE_UNIT */
  int32_t reserved;
} cgr__measure_args;
extern const cgr__kernel cgr__kernel_measure; /* cgr__measure_args */

#define CGR__MEASURE_UNIT 8 /* elements: 16 bytes of the smallest dtype */

#ifdef __cplusplus
}
#endif
#endif

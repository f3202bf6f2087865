/* The search for NaN and infinities in what a step has computed, and the flags that tell which requests had some. */
#ifndef CGR_KERNELS_VALUES_H
#define CGR_KERNELS_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"
#include "cgr/cgr.h"
#include "devices/device.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_VALUE_BITS 16
#define CGR__VALUES_STRETCH 16384 /* bytes of a row that one CTA reads */

/* Reads rows [0, counts[REQUESTS]), or [0, counts[TOKENS]), of `data`. A row that holds NaN or an infinity sets `bit` of its
 * request. Rows of requests without new tokens, or refused by a guard (seq_len 0), do not count: what they hold is stale. */
typedef struct cgr__check_values_args {
  const void *data;      /* [num_rows][width], rows `stride` elements apart */
  int64_t width, stride; /* elements */
  const int32_t *counts, *query_start_loc;
  const int32_t *seq_lens; /* of the length set whose tokens the step has */
  const cgr__step_state *state;
  uint64_t *flags;    /* buffers.value_flags */
  int32_t num_rows;   /* padded */
  int32_t by_request; /* 1: a row for each request; 0: for each token */
  int32_t dtype;      /* fp32, fp16 or bf16 */
  int32_t bit;        /* 0 .. CGR__MAX_VALUE_BITS - 1 */
  int32_t masked;     /* 1: -inf is a value like any other */
  int32_t reserved;
} cgr__check_values_args;
extern const cgr__kernel cgr__kernel_check_values; /* cgr__check_values_args */

/* A request's word in buffers.value_flags: the number of the step that wrote it, then its bits. Another step's word counts as no
 * bits, so no step has to clear the words, and one that was given up leaves nothing behind. At a step each millisecond, 48 bits
 * of a number last 8,900 years. */
CGR__HOST_DEVICE uint32_t cgr__value_bits(uint64_t word, uint64_t seq) {
  return word >> CGR__MAX_VALUE_BITS == (seq & (UINT64_MAX >> CGR__MAX_VALUE_BITS))
             ? (uint32_t)(word & ((1u << CGR__MAX_VALUE_BITS) - 1))
             : 0u;
}
/* The word with one more bit. */
CGR__HOST_DEVICE uint64_t cgr__value_word(uint64_t word, uint64_t seq, int32_t bit) {
  return seq << CGR__MAX_VALUE_BITS | cgr__value_bits(word, seq) | (uint64_t)1 << bit;
}

/* Whether a value is NaN or an infinity, by its bits; with `masked` -inf is neither. */
CGR__HOST_DEVICE bool cgr__value_is_bad32(uint32_t bits, int32_t masked) {
  return (bits & 0x7f800000u) == 0x7f800000u && !(masked && bits == 0xff800000u);
}
/* `exponent`: 0x7f80 for bf16, 0x7c00 for fp16. */
CGR__HOST_DEVICE bool cgr__value_is_bad16(uint32_t bits, uint32_t exponent, int32_t masked) {
  return (bits & exponent) == exponent && !(masked && bits == (0x8000u | exponent));
}

/* The request of row `row`, -1 for one that does not count. Of a token it is the last request that starts at or before it. */
CGR__HOST_DEVICE int32_t cgr__value_request(const cgr__check_values_args *a, int32_t row) {
  const int32_t *start = a->query_start_loc;
  int32_t low = 0, high = a->counts[CGR_COUNT_REQUESTS];
  if (row >= a->counts[a->by_request ? CGR_COUNT_REQUESTS : CGR_COUNT_TOKENS])
    return -1;
  if (a->by_request || (row < high && start[row] == row && start[row + 1] == row + 1)) /* its own, or that of a decode */
    high = low = row;
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (start[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return start[low + 1] > start[low] && a->seq_lens[low] > 0 ? low : -1;
}

#ifdef __cplusplus
}
#endif
#endif

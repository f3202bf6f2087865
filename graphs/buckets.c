/* The usual sizes. Cold. */
#include "graphs/graphs.h"

/* Of the largest power of two that is at most `size`. */
static int32_t eighth_of_power(int32_t size) {
  int32_t power = 8;
  while (power <= size / 2)
    power *= 2;
  return power / 8;
}

/* The sizes that vLLM captures by default (vllm/config/compilation.py: 1, 2, 4, then by 8 up to 256, then by 16 up to 512), and
 * `max`. From 512 on, an eighth of the power of two below: every 16 would be 291 graphs for 4096 requests, where these are 75,
 * and padding still adds at most an eighth. */
int32_t cgr__buckets_default(int32_t max, int32_t *buckets) {
  int32_t count = 0;
  for (int32_t size = 1; size < max && count < CGR__MAX_BUCKETS - 1;) {
    buckets[count++] = size;
    if (size < 4)
      size *= 2;
    else if (size == 4)
      size = 8;
    else if (size < 512)
      size += size < 256 ? 8 : 16;
    else
      size += eighth_of_power(size);
  }
  if (max > 0)
    buckets[count++] = max;
  return count;
}

/* An eighth of the power of two below, so that padding adds at most an eighth. */
int32_t cgr__buckets_default_mixed(int32_t max_tokens, int32_t max_requests, cgr_bucket *buckets) {
  int32_t count = 0, step = 8;
  for (int32_t size = 8; count < CGR__MAX_BUCKETS; size += step) {
    int32_t tokens = size < max_tokens ? size : max_tokens;
    buckets[count++] = (cgr_bucket){ tokens, tokens < max_requests ? tokens : max_requests };
    if (tokens == max_tokens)
      break;
    while (size >= 16 * step)
      step *= 2;
  }
  return count;
}

#include "graphs/graphs.h"

/* The sizes that vLLM captures by default (vllm/config/compilation.py: 1, 2, 4, then by 8 up to 256, then by 16), and `max`. */
int32_t cgr__buckets_default(int32_t max, int32_t *buckets) {
  int32_t count = 0;
  for (int32_t size = 1; size < max && count < CGR__MAX_BUCKETS - 1;) {
    buckets[count++] = size;
    if (size < 4)
      size *= 2;
    else if (size == 4)
      size = 8;
    else
      size += size < 256 ? 8 : 16;
  }
  if (max > 0)
    buckets[count++] = max;
  return count;
}

void cgr__graphs_set_buckets(cgr__graphs *graphs, const int32_t *buckets, int32_t num_buckets, int16_t *bucket_of) {
  graphs->count = graphs->mode == CGR_MODE_NONE ? 0 : num_buckets;
  graphs->bucket_of = bucket_of;
  for (int32_t i = 0; i < graphs->count; i++) {
    cgr_key key = CGR_KEY_INIT;
    key.kind = CGR_KIND_FULL;
    key.num_tokens = key.num_requests = buckets[i];
    key.query_len = 1;
    graphs->entry[i].key = key;
  }
  int32_t index = 0;
  for (int32_t n = 0; n <= graphs->max_requests; n++) {
    while (index < graphs->count && buckets[index] < n)
      index++;
    bucket_of[n] = (int16_t)(index < graphs->count ? index : -1);
  }
}

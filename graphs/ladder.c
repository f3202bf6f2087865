#include <string.h>

#include "graphs/graphs.h"

cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_attention_support support, const char **reason) {
  *reason = "";
  if (mode == CGR_GRAPH_DEFAULT)
    mode = CGR_GRAPH_FULL_AND_PIECEWISE;
  if (mode == CGR_GRAPH_NONE)
    return CGR_GRAPH_NONE;
  if (mode == CGR_GRAPH_PIECEWISE) {
    *reason = "PIECEWISE is lowered to NONE: this version captures no pieces";
    return CGR_GRAPH_NONE;
  }
  if (support == CGR_ATTENTION_NEVER) {
    *reason = "lowered to NONE: the engine's attention cannot be captured (CGR_ATTENTION_NEVER)";
    return CGR_GRAPH_NONE;
  }
  if (mode == CGR_GRAPH_FULL)
    *reason = "FULL is lowered to FULL_DECODE_ONLY: this version captures uniform decode steps alone";
  if (mode == CGR_GRAPH_FULL_AND_PIECEWISE)
    *reason = "FULL_AND_PIECEWISE is lowered to FULL_DECODE_ONLY: this version captures no pieces";
  return CGR_GRAPH_FULL_DECODE_ONLY;
}

/* The sizes that vLLM captures by default (vllm/config/compilation.py: 1, 2, 4, then by 8 up to 256, then by 16), and `max`. */
int32_t cgr__ladder_default(int32_t max, int32_t *buckets) {
  int32_t count = 0;
  for (int32_t size = 1; size < max && count < CGR__BUCKETS_MAX - 1;) {
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

void cgr__graphs_init(cgr__graphs *graphs, const int32_t *buckets, int32_t num_buckets, int32_t max_requests,
                      int16_t *bucket_of) {
  graphs->count = graphs->mode == CGR_GRAPH_NONE ? 0 : num_buckets;
  graphs->max_requests = max_requests;
  graphs->bucket_of = bucket_of;
  for (int32_t i = 0; i < graphs->count; i++)
    graphs->entry[i].key = (cgr_key){ CGR_KIND_FULL, 0, 0, buckets[i], buckets[i], 1, 0 };
  int32_t index = 0;
  for (int32_t n = 0; n <= max_requests; n++) {
    while (index < graphs->count && buckets[index] < n)
      index++;
    bucket_of[n] = (int16_t)(index < graphs->count ? index : -1);
  }
}

cgr__graph_entry *cgr__graphs_find(cgr__graphs *graphs, const cgr_key *key) {
  if (key->num_requests < 1 || key->num_requests > graphs->max_requests)
    return NULL;
  int32_t index = graphs->bucket_of[key->num_requests];
  if (index < 0 || memcmp(&graphs->entry[index].key, key, sizeof *key) != 0)
    return NULL;
  return &graphs->entry[index];
}

/* The append: K and V of the new tokens go to their slots in the cache, as they are or quantised. */
#include <string.h>

#include "base/convert.h"
#include "kernels/append.h"
#include "kernels/host/append_head.h"
#include "kernels/host/launchers.h"
#include "kernels/quantise.h"

static float element(const void *row, int32_t dtype, int32_t d) {
  if (dtype == CGR_DTYPE_FP32)
    return ((const float *)row)[d];
  uint16_t x = ((const uint16_t *)row)[d];
  return dtype == CGR_DTYPE_BF16 ? cgr__bf16_to_float(x) : cgr__fp16_to_float(x);
}

static float largest_magnitude(const void *row, int32_t dtype, int32_t n) {
  float most = 0.0f;
  for (int32_t d = 0; d < n; d++)
    most = cgr__larger_magnitude(most, element(row, dtype, d));
  return most;
}

static void quantise_head(const cgr_kv_view *cache, cgr__place at, int32_t head, const void *row, int32_t dtype,
                          int32_t head_dim) {
  uint8_t *to =
      (uint8_t *)cache->base + at.page * cache->stride_page + at.offset * cache->stride_token + head * cache->stride_head;
  if (cgr__scales_are_written(cache))
    *cgr__scale_at(cache, at.page, at.offset, head, 0) = largest_magnitude(row, dtype, head_dim) / CGR__I8_MAX;
  for (int32_t d = 0; d < head_dim; d++) {
    float scale = cache->scale ? *cgr__scale_at(cache, at.page, at.offset, head, d) : 1.0f;
    to[d] = cgr__quantise(element(row, dtype, d), scale, cache->dtype);
  }
}

void cgr__host_append_head(const cgr_kv_view *cache, cgr__place at, int32_t head, const void *elements, int32_t dtype,
                           int32_t head_dim) {
  const int64_t size = cgr__element_size(cache->dtype);
  const int64_t to = at.page * cache->stride_page + at.offset * cache->stride_token + head * cache->stride_head;
  if (cgr__is_quantised(cache->dtype))
    quantise_head(cache, at, head, elements, dtype, head_dim);
  else
    memcpy((unsigned char *)cache->base + to * size, elements, (size_t)(head_dim * size));
}

static void put_token(const cgr__append_args *args, const cgr_kv_view *cache, const cgr_view *from, int32_t head_dim,
                      int32_t token, cgr__place at) {
  const int64_t size = cgr__element_size(from->dtype);
  const unsigned char *row = (const unsigned char *)from->data + token * from->stride_token * size;
  for (int32_t h = 0; h < args->num_kv_heads; h++)
    cgr__host_append_head(cache, at, h, row + h * from->stride_head * size, from->dtype, head_dim);
}

void cgr__host_append(const void *pointer) {
  const cgr__append_args *args = (const cgr__append_args *)pointer;
  for (int32_t t = 0; t < args->num_tokens; t++) {
    cgr__place at;
    if (!cgr__place_of(args->slot_mapping[t], args->page_size, args->num_pages, &at))
      continue;
    put_token(args, &args->k_cache, &args->k, args->head_dim, t, at);
    put_token(args, &args->v_cache, &args->v, args->head_dim_v, t, at);
  }
}

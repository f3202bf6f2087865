/* The append: K and V of the new tokens go to their slots in the cache. */
#include <string.h>

#include "base/convert.h"
#include "kernels/host/launchers.h"
#include "kernels/append.h"

static void copy_token(const cgr__append_args *args, const cgr_kv_view *cache, const cgr_view *from, int32_t head_dim,
                       int32_t token, int64_t page, int32_t offset) {
  int64_t size = cgr__element_size(cache->dtype);
  unsigned char *to = (unsigned char *)cache->base + (page * cache->stride_page + offset * cache->stride_token) * size;
  const unsigned char *source = (const unsigned char *)from->data + token * from->stride_token * size;
  for (int32_t h = 0; h < args->num_kv_heads; h++)
    memcpy(to + h * cache->stride_head * size, source + h * from->stride_head * size, (size_t)(head_dim * size));
}

void cgr__host_append(const void *pointer) {
  const cgr__append_args *args = (const cgr__append_args *)pointer;
  for (int32_t t = 0; t < args->num_tokens; t++) {
    int64_t slot = args->slot_mapping[t];
    if (slot < 0)
      continue;
    int64_t page = slot / args->page_size;
    if (page >= args->num_pages)
      continue;
    int32_t offset = (int32_t)(slot % args->page_size);
    copy_token(args, &args->k_cache, &args->k, args->head_dim, t, page, offset);
    copy_token(args, &args->v_cache, &args->v, args->head_dim_v, t, page, offset);
  }
}

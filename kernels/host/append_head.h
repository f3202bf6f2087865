/* One head of a token on its way to the cache: the append's and the transform's. */
#ifndef CGR_KERNELS_HOST_APPEND_HEAD_H
#define CGR_KERNELS_HOST_APPEND_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cgr/attention.h"

/* Where one token goes. */
typedef struct cgr__place {
  int64_t page;
  int32_t offset;
} cgr__place;

/* False: the token is not written. */
static inline bool cgr__place_of(int64_t slot, int32_t page_size, int64_t num_pages, cgr__place *place) {
  place->page = slot < 0 ? 0 : slot / page_size;
  place->offset = slot < 0 ? 0 : (int32_t)(slot % page_size);
  return slot >= 0 && place->page < num_pages;
}

/* Elements of `dtype` to the head's place, as they are or quantised. */
void cgr__host_append_head(const cgr_kv_view *cache, cgr__place at, int32_t head, const void *elements, int32_t dtype,
                           int32_t head_dim);

#endif

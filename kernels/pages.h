/* What the self-test does with the pages of a cache: fills them with noise, and sums up what they hold. */
#ifndef CGR_KERNELS_PAGES_H
#define CGR_KERNELS_PAGES_H

#include <stdint.h>

#include "base/host_device.h"
#include "cgr/attention.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Both work on the first `tokens[i]` tokens of page `pages[i]`. Fill writes noise to every element: +-[0.5, 1), of one byte below
 * 1; never NaN or infinite. Digest: digest[i] becomes the sum over the elements of a mix of each one's place and bits, so a
 * change of any element goes unnoticed only one time in 2^64. */
typedef struct cgr__pages_args {
  cgr_kv_view view;
  const int32_t *pages;  /* [num_pages] */
  const int32_t *tokens; /* [num_pages]; NULL: all of each page */
  uint64_t *digest;      /* [num_pages]; digest alone */
  uint64_t seed;         /* fill alone */
  int32_t num_pages, page_size, num_heads, head_dim;
  int32_t element_size; /* bytes of an element: 1, 2 or 4 */
  int32_t reserved;
} cgr__pages_args;
extern const cgr__kernel cgr__kernel_fill_pages;   /* cgr__pages_args */
extern const cgr__kernel cgr__kernel_digest_pages; /* cgr__pages_args */

/* The finalizer of MurmurHash3 (public domain, Austin Appleby). */
CGR__HOST_DEVICE uint64_t cgr__pages_mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

/* Bits of the noise in element `index` of a page. */
CGR__HOST_DEVICE uint32_t cgr__pages_noise(const cgr__pages_args *a, int32_t page, int64_t index) {
  uint32_t random = (uint32_t)cgr__pages_mix(a->seed ^ ((uint64_t)(uint32_t)page << 32) ^ (uint64_t)index);
  if (a->element_size == 4)
    return 0x3f000000u | (random & 0x807fffffu);
  if (a->element_size == 2)
    return a->view.dtype == CGR_DTYPE_BF16 ? 0x3f00u | (random & 0x807fu) : 0x3800u | (random & 0x83ffu);
  return 0x30u | (random & 0x87u);
}

/* Elements from the view's base to element `index` of a page. */
CGR__HOST_DEVICE int64_t cgr__pages_offset(const cgr__pages_args *a, int32_t page, int64_t index) {
  int64_t d = index % a->head_dim, head = index / a->head_dim % a->num_heads, token = index / a->head_dim / a->num_heads;
  return page * a->view.stride_page + token * a->view.stride_token + head * a->view.stride_head + d;
}

#ifdef __cplusplus
}
#endif
#endif

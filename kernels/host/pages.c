#include "kernels/pages.h"

#include <string.h>

#include "kernels/host/launchers.h"

static int64_t count_elements(const cgr__pages_args *a, int32_t i) {
  return (int64_t)(a->tokens ? a->tokens[i] : a->page_size) * a->num_heads * a->head_dim;
}

static unsigned char *address(const cgr__pages_args *a, int32_t page, int64_t index) {
  return (unsigned char *)a->view.base + cgr__pages_offset(a, page, index) * a->element_size;
}

void cgr__host_fill_pages(const void *pointer) {
  const cgr__pages_args *a = (const cgr__pages_args *)pointer;
  for (int32_t i = 0; i < a->num_pages; i++)
    for (int64_t index = 0; index < count_elements(a, i); index++) {
      uint32_t bits = cgr__pages_noise(a, a->pages[i], index);
      memcpy(address(a, a->pages[i], index), &bits, (size_t)a->element_size); /* little endian */
    }
}

void cgr__host_digest_pages(const void *pointer) {
  const cgr__pages_args *a = (const cgr__pages_args *)pointer;
  for (int32_t i = 0; i < a->num_pages; i++) {
    uint64_t sum = 0;
    for (int64_t index = 0; index < count_elements(a, i); index++) {
      uint32_t bits = 0;
      memcpy(&bits, address(a, a->pages[i], index), (size_t)a->element_size);
      sum += cgr__pages_mix((uint64_t)index << 32 ^ bits);
    }
    a->digest[i] = sum;
  }
}

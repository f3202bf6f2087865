#include "kernels/pages.h"

#include <string.h>

#include "kernels/host/launchers.h"

/* The first element of a head of a token; those after it are next to it. */
static unsigned char *head_at(const cgr__pages_args *a, int32_t page, int64_t index) {
  return (unsigned char *)a->view.base + cgr__pages_offset(a, page, index) * a->element_size;
}

static int64_t count_elements(const cgr__pages_args *a, int32_t i) {
  return (int64_t)(a->tokens ? a->tokens[i] : a->page_size) * a->num_heads * a->head_dim;
}

/* memcpy of a constant size is one instruction, and of another a call. Little endian. */
static inline void store_bits(unsigned char *to, uint32_t bits, int32_t bytes) {
  if (bytes == 4)
    memcpy(to, &bits, 4);
  else if (bytes == 2)
    memcpy(to, &bits, 2);
  else
    memcpy(to, &bits, 1);
}
static inline uint32_t load_bits(const unsigned char *from, int32_t bytes) {
  uint32_t bits = 0;
  if (bytes == 4)
    memcpy(&bits, from, 4);
  else if (bytes == 2)
    memcpy(&bits, from, 2);
  else
    memcpy(&bits, from, 1);
  return bits;
}

void cgr__host_fill_pages(const void *pointer) {
  const cgr__pages_args a = *(const cgr__pages_args *)pointer; /* what is stored is none of it */
  for (int32_t i = 0; i < a.num_pages; i++)
    for (int64_t index = 0, count = count_elements(&a, i); index < count;) {
      unsigned char *to = head_at(&a, a.pages[i], index);
      const int32_t page = a.pages[i];
      for (int32_t d = 0; d < a.head_dim; d++, index++, to += a.element_size)
        store_bits(to, cgr__pages_noise(&a, page, index), a.element_size);
    }
}

void cgr__host_digest_pages(const void *pointer) {
  const cgr__pages_args a = *(const cgr__pages_args *)pointer;
  for (int32_t i = 0; i < a.num_pages; i++) {
    uint64_t sum = 0;
    for (int64_t index = 0, count = count_elements(&a, i); index < count;) {
      const unsigned char *from = head_at(&a, a.pages[i], index);
      for (int32_t d = 0; d < a.head_dim; d++, index++, from += a.element_size)
        sum += cgr__pages_mix((uint64_t)index << 32 ^ load_bits(from, a.element_size));
    }
    a.digest[i] = sum;
  }
}

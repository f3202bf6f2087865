/* Memory of the host: stretches of one block, arrays that grow, and what cannot be an address. */
#ifndef CGR_BASE_MEMORY_H
#define CGR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__FIRST_ADDRESS 4096 /* nothing is ever mapped below */

/* One allocation that is handed out in stretches. With base NULL they are only counted, so that the same calls say how many bytes
 * it takes and lay it out. */
typedef struct cgr__block {
  unsigned char *base;
  size_t used; /* bytes, a multiple of 64 */
} cgr__block;

static inline void *cgr__block_take(cgr__block *block, size_t count, size_t size) {
  void *at = block->base ? block->base + block->used : NULL;
  block->used += (count * size + 63) / 64 * 64;
  return at;
}

/* Makes room in an array for one more element after `count`; false: there is no memory. */
bool cgr__reserve(void **array, int64_t *capacity, int64_t count, size_t size);

#ifdef __cplusplus
}
#endif

#endif

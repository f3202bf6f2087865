#include "base/memory.h"

#include <stdlib.h>

bool cgr__reserve(void **array, int64_t *capacity, int64_t count, size_t size) {
  if (count < *capacity)
    return true;
  int64_t wanted = *capacity > 0 ? 2 * *capacity : 256;
  void *grown = realloc(*array, (size_t)wanted * size);
  if (!grown)
    return false;
  *array = grown;
  *capacity = wanted;
  return true;
}

#include "buffers/regions.h"

#include <stdbool.h>

#include "base/status.h"

#define MAX_REGION ((size_t)1 << 56)

static cgr_status check_region_range(const char *function, const void *base, size_t bytes) {
  if (!base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: base is NULL, expected an address", function);
  if (bytes == 0 || bytes > MAX_REGION || (uintptr_t)base > UINTPTR_MAX - bytes)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is %zu from %p on, expected 1 .. 2^56 that do not wrap", function,
                     bytes, base);
  return CGR_OK;
}

/* A number that is free again, or the next one; all have been taken if it is CGR__MAX_REGIONS. */
static int32_t next_number(cgr__regions *regions) {
  if (regions->num_free == 0)
    return regions->count;
  while (regions->region[regions->first_free].bytes > 0)
    regions->first_free++;
  return regions->first_free;
}

cgr_status cgr__regions_register(cgr__regions *regions, const void *base, size_t bytes, int32_t *region) {
  CGR__TRY(check_region_range("cgr_region_register", base, bytes));
  int32_t number = next_number(regions);
  if (number == CGR__MAX_REGIONS)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY,
                     "cgr_region_register: of %d regions %d are the runtime's own, %d are registered and 0 are free, expected "
                     "cgr_region_unregister of one before",
                     CGR__MAX_REGIONS, regions->first_movable, CGR__MAX_REGIONS - regions->first_movable);
  cgr__region *entry = &regions->region[number];
  entry->base = base;
  entry->bytes = bytes;
  if (number == regions->count)
    regions->count++;
  else
    regions->num_free--;
  if (region)
    *region = number;
  return CGR_OK;
}

cgr_status cgr__regions_check(const cgr__regions *regions, const char *function, int32_t region) {
  bool known = region >= regions->first_movable && region < regions->count;
  if (known && regions->region[region].bytes > 0)
    return CGR_OK;
  if (known)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: region is %d, which has been unregistered, expected one of cgr_region_register that has not", function,
                     region);
  if (regions->count == regions->first_movable)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: region is %d, expected one of cgr_region_register, which has given none yet", function, region);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: region is %d, expected one of cgr_region_register (%d .. %d)%s", function,
                   region, regions->first_movable, regions->count - 1,
                   region >= 0 && region < regions->first_movable ? ": this one is the runtime's own" : "");
}

cgr_status cgr__regions_move(cgr__regions *regions, int32_t region, const void *base, size_t bytes) {
  CGR__TRY(cgr__regions_check(regions, "cgr_region_move", region));
  CGR__TRY(check_region_range("cgr_region_move", base, bytes));
  cgr__region *entry = &regions->region[region];
  entry->base = base;
  entry->bytes = bytes;
  entry->epoch = ++regions->epoch;
  return CGR_OK;
}

cgr_status cgr__regions_unregister(cgr__regions *regions, int32_t region) {
  CGR__TRY(cgr__regions_check(regions, "cgr_region_unregister", region));
  cgr__region *entry = &regions->region[region];
  entry->base = NULL;
  entry->bytes = 0;
  entry->epoch = ++regions->epoch;
  if (regions->num_free++ == 0 || region < regions->first_free)
    regions->first_free = region;
  return CGR_OK;
}

#include "buffers/regions.h"

#include "base/status.h"

#define MAX_REGION ((size_t)1 << 56)

static cgr_status check_range(const char *function, const void *base, size_t bytes) {
  if (!base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: base is NULL, expected an address", function);
  if (bytes == 0 || bytes > MAX_REGION || (uintptr_t)base > UINTPTR_MAX - bytes)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is %zu from %p on, expected 1 .. 2^56 that do not wrap", function,
                     bytes, base);
  return CGR_OK;
}

cgr_status cgr__regions_register(cgr__regions *regions, const void *base, size_t bytes, int32_t *region) {
  CGR__TRY(check_range("cgr_region_register", base, bytes));
  if (regions->count == CGR__MAX_REGIONS)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_region_register: this would be region %d, expected at most %d",
                     regions->count + 1, CGR__MAX_REGIONS);
  cgr__region *entry = &regions->region[regions->count];
  entry->base = base;
  entry->bytes = bytes;
  entry->epoch = 0;
  if (region)
    *region = regions->count;
  regions->count++;
  return CGR_OK;
}

cgr_status cgr__regions_check(const cgr__regions *regions, const char *function, int32_t region) {
  if (region >= regions->first_movable && region < regions->count)
    return CGR_OK;
  if (regions->count == regions->first_movable)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: region is %d, expected one of cgr_region_register, which has given none yet", function, region);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: region is %d, expected one of cgr_region_register (%d .. %d)", function,
                   region, regions->first_movable, regions->count - 1);
}

cgr_status cgr__regions_move(cgr__regions *regions, int32_t region, const void *base, size_t bytes) {
  CGR__TRY(cgr__regions_check(regions, "cgr_region_move", region));
  CGR__TRY(check_range("cgr_region_move", base, bytes));
  cgr__region *entry = &regions->region[region];
  entry->base = base;
  entry->bytes = bytes;
  entry->epoch = ++regions->epoch;
  return CGR_OK;
}

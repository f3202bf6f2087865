#include "buffers/regions.h"

#include "base/status.h"

cgr_status cgr__regions_register(cgr__regions *regions, const void *base, size_t bytes, int32_t *region) {
  if (!base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_region_register: base is NULL, expected an address");
  if (bytes == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_region_register: bytes is 0, expected at least 1");
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

cgr_status cgr__regions_move(cgr__regions *regions, int32_t region, const void *base, size_t bytes) {
  if (regions->count == regions->first_movable)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_region_move: region is %d, expected one of cgr_region_register, which has "
                     "given none yet",
                     region);
  if (region < regions->first_movable || region >= regions->count)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_region_move: region is %d, expected one of cgr_region_register (%d .. %d)",
                     region, regions->first_movable, regions->count - 1);
  if (!base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_region_move: base is NULL, expected an address");
  if (bytes == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_region_move: bytes is 0, expected at least 1");
  cgr__region *entry = &regions->region[region];
  entry->base = base;
  entry->bytes = bytes;
  entry->epoch = ++regions->epoch;
  return CGR_OK;
}

/* The region registry: every address that a graph may hold belongs to a region {base, size, epoch}. A graph keeps the epoch
 * that the registry had when it was captured; a region that moves afterwards makes it stale. */
#ifndef CGR_BUFFERS_REGIONS_H
#define CGR_BUFFERS_REGIONS_H

#include <stddef.h>
#include <stdint.h>

#include "cgr/cgr.h"

#define CGR__REGIONS_MAX 4096

typedef struct cgr__region {
  const void *base;
  size_t bytes;
  uint64_t epoch; /* of its last move; 0: never */
} cgr__region;

typedef struct cgr__regions {
  int32_t count;
  int32_t first_movable; /* those before are the runtime's own: arena and KV views */
  uint64_t epoch;        /* counts the moves of all regions: the one word that a replay compares */
  cgr__region region[CGR__REGIONS_MAX];
} cgr__regions;

cgr_status cgr__regions_register(cgr__regions *regions, const void *base, size_t bytes, int32_t *region);
cgr_status cgr__regions_move(cgr__regions *regions, int32_t region, const void *base, size_t bytes);

#endif

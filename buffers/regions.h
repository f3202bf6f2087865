/* The region registry: every address that a graph may hold belongs to a region {base, size, epoch}. A graph keeps the epoch
 * that the registry had when it was captured; a region that moves afterwards makes it stale. */
#ifndef CGR_BUFFERS_REGIONS_H
#define CGR_BUFFERS_REGIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__region {
  const void *base;
  size_t bytes;   /* 0: unregistered; no address is in it */
  uint64_t epoch; /* when it last moved or was unregistered; 0: never */
} cgr__region;

/* What a replay compares comes last, at the beginning of a cache line, so that something else can follow in it. */
typedef struct cgr__regions {
  cgr__region region[CGR__MAX_REGIONS];
  uint64_t epoch;        /* counts the changes to all regions, and never repeats: the one word that a replay compares */
  int32_t count;         /* the highest number that was ever given, plus 1 */
  int32_t first_movable; /* those before are the runtime's own: arena, KV views and their scales */
  int32_t num_free;      /* unregistered ones among them, whose numbers are given again */
  int32_t first_free;    /* none below it is unregistered */
} cgr__regions;

cgr_status cgr__regions_register(cgr__regions *regions, const void *base, size_t bytes, int32_t *region);
/* Makes every graph stale, as a move would. */
static inline void cgr__regions_touch(cgr__regions *regions) { regions->epoch++; }
/* Checks that the region is one of the engine's. */
cgr_status cgr__regions_check(const cgr__regions *regions, const char *function, int32_t region);
cgr_status cgr__regions_move(cgr__regions *regions, int32_t region, const void *base, size_t bytes);
cgr_status cgr__regions_unregister(cgr__regions *regions, int32_t region);

#ifdef __cplusplus
}
#endif

#endif

/* Numbers of a struct that have to be in a range. */
#ifndef CGR_BASE_RANGE_H
#define CGR_BASE_RANGE_H

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__field_range {
  const char *name; /* of the argument */
  int64_t value, low, high;
} cgr__field_range;

/* CGR_ERROR_INVALID_ARGUMENT for the first that is outside of its range. */
cgr_status cgr__check_ranges(const char *function, const cgr__field_range *ranges, size_t count);
static inline cgr_status cgr__check_range(const char *function, const char *name, int64_t value, int64_t low, int64_t high) {
  const cgr__field_range range = { name, value, low, high };
  return cgr__check_ranges(function, &range, 1);
}
/* Of an array. */
#define CGR__CHECK_RANGES(function, ranges) cgr__check_ranges(function, ranges, sizeof(ranges) / sizeof((ranges)[0]))

#ifdef __cplusplus
}
#endif
#endif

#include "base/range.h"

#include "base/status.h"

cgr_status cgr__check_ranges(const char *function, const cgr__field_range *ranges, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %lld, expected %lld .. %lld", function, ranges[i].name,
                       (long long)ranges[i].value, (long long)ranges[i].low, (long long)ranges[i].high);
  return CGR_OK;
}

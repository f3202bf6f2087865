/* What the readers of all structs share. */
#include <stdio.h>

#include "runtime/config/config.h"

cgr__field cgr__field_of(const char *array, int32_t i, const char *field) {
  cgr__field f;
  snprintf(f.name, sizeof f.name, "%s[%d]%s%s", array, i, field[0] ? "." : "", field);
  return f;
}

bool cgr__in_range(cgr__findings *findings, const char *field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high)
    return true;
  cgr__findings_add(findings, CGR_ERROR_INVALID_ARGUMENT, field, "is %lld, expected %lld .. %lld", (long long)value,
                    (long long)low, (long long)high);
  return false;
}

void cgr__findings_add_used(cgr__findings *findings, const char *field, int64_t value) {
  if (value != 0)
    cgr__findings_add(findings, CGR_ERROR_NEWER_STRUCT, field, "is %lld, expected 0: a later version may give it a meaning",
                      (long long)value);
}

/* What the readers of all structs share. */
#include <stdio.h>

#include "runtime/config/config.h"

cgr__field cgr__field_of(const char *array, int32_t i, const char *field) {
  cgr__field f;
  snprintf(f.name, sizeof f.name, "%s[%d]%s%s", array, i, field[0] ? "." : "", field);
  return f;
}

int32_t cgr__max_len(const cgr_config *config, int32_t set) {
  return set == 0 ? config->max_seq_len : config->max_other_lens[set];
}

cgr__field cgr__max_len_field(int32_t set) {
  return set == 0 ? (cgr__field){ "max_seq_len" } : cgr__field_of("max_other_lens", set, "");
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

void cgr__read_length_set(const cgr__setup *setup, const char *field, int32_t *set, cgr__findings *f) {
  int32_t count = setup->config.num_length_sets;
  if (*set >= 0 && *set < count)
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "is %d, expected 0 .. %d (num_length_sets is %d)", *set, count - 1,
                    count);
  *set = 0;
}

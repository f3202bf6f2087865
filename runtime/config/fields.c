/* What the readers of all structs share. */
#include <stdio.h>
#include <string.h>

#include "cgr/names.h"
#include "base/sized.h"
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

bool cgr__in_range_why(cgr__findings *findings, const char *field, int64_t value, int64_t low, int64_t high, const char *why) {
  if (value >= low && value <= high)
    return true;
  cgr__findings_add(findings, CGR_ERROR_INVALID_ARGUMENT, field, "is %lld, expected %lld .. %lld%s%s%s", (long long)value,
                    (long long)low, (long long)high, why[0] ? " (" : "", why, why[0] ? ")" : "");
  return false;
}

bool cgr__in_range(cgr__findings *findings, const char *field, int64_t value, int64_t low, int64_t high) {
  return cgr__in_range_why(findings, field, value, low, high, "");
}

bool cgr__is_one(cgr__findings *findings, const char *field, int64_t value, const cgr__choices *choices) {
  if (cgr__is_choice(choices, value))
    return true;
  cgr__findings_add(findings, CGR_ERROR_INVALID_ENUM, field, "%s", cgr__choices_refusal(choices, value).text);
  return false;
}

bool cgr__is_whole(cgr__findings *findings, const char *field, int32_t dtype) {
  if (!cgr__is_one(findings, field, dtype, &cgr__dtypes))
    return false;
  if (cgr_dtype_bits((cgr_dtype)dtype) >= 8)
    return true;
  cgr__findings_add(findings, CGR_ERROR_UNSUPPORTED, field, "is %s, expected a dtype whose elements are whole bytes",
                    cgr_dtype_name((cgr_dtype)dtype));
  return false;
}

bool cgr__check_list(cgr__findings *findings, const char *count_name, const char *name, int32_t count, int32_t most,
                     const void *list) {
  if (!cgr__in_range(findings, count_name, count, 0, most))
    return false;
  if (count > 0 && !list)
    cgr__findings_add(findings, CGR_ERROR_NULL_POINTER, name, "is NULL, expected an array of %d (%s)", count, count_name);
  return count == 0 || list;
}

bool cgr__read_element(const char *array, const char *init, const void *first, int32_t i, void *copy, size_t size,
                       cgr__findings *findings) {
  cgr_status status = cgr__sized_read_at(array, init, first, i, copy, size);
  if (status != CGR_OK && (i == 0 || cgr__sized_has_stride(first, size)))
    cgr__findings_add_failure(findings, status, cgr__field_of(array, i, "").name);
  return status == CGR_OK;
}

void cgr__findings_add_used(cgr__findings *findings, const char *field, int64_t value) {
  if (value != 0)
    cgr__findings_add(findings, CGR_ERROR_NEWER_STRUCT, field, "is %lld, expected 0: a later version may give it a meaning",
                      (long long)value);
}

bool cgr__check_name(const char *name, const char *field, cgr__findings *f) {
  if (!name)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, field, "is NULL, expected a name");
  else if (name[0] == 0 || !memchr(name, 0, CGR__NAME_BYTES))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "is \"%.*s%s\", expected 1 to %d characters", CGR__NAME_BYTES - 1,
                      name, name[0] ? "..." : "", CGR__NAME_BYTES - 1);
  else
    return true;
  return false;
}

void cgr__read_length_set(const cgr__setup *setup, const char *field, int32_t *set, cgr__findings *f) {
  int32_t count = setup->config.num_length_sets;
  if (*set >= 0 && *set < count)
    return;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "is %d, expected 0 .. %d (num_length_sets is %d)", *set, count - 1,
                    count);
  *set = 0;
}

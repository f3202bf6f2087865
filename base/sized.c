#include "base/sized.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/status.h"

static void set_size(void *copy, size_t size) {
  uint32_t known = (uint32_t)size;
  memcpy(copy, &known, sizeof known);
}

/* What the caller has beyond the known part must be zero. */
static bool tail_is_zero(const unsigned char *given, uint32_t have, size_t known) {
  for (size_t i = known; i < have; i++)
    if (given[i] != 0)
      return false;
  return true;
}

/* `which`: "", or "[0]" of an array. `init`: the macro that gives the right one. */
static cgr_status refuse_size(const char *what, const char *which, const char *init, uint32_t size) {
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s%s: size is %u, expected a multiple of %d, %d to %d: use %s", what, which, size,
                   CGR__STRUCT_UNIT, CGR__STRUCT_UNIT, CGR__MAX_STRUCT, init);
}

/* `what` with its index. A size from no macro may be a possible one by chance: then this is what is found. */
static cgr_status refuse_tail(const char *what, const char *init, uint32_t size, size_t known) {
  return cgr__fail(CGR_ERROR_NEWER_STRUCT,
                   "%s: size is %u and bytes past %zu are not zero, expected a struct this library knows: use %s", what, size,
                   known, init);
}

/* An element of another size than the first: most likely it was not initialised. */
static cgr_status refuse_stride(const char *array, const char *init, int32_t i, uint32_t size, uint32_t stride) {
  return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s[%d]: size is %u, expected %u as in %s[0]: use %s for each", array, i, size,
                   stride, array, init);
}

static void copy_known(const unsigned char *given, uint32_t have, void *copy, size_t size) {
  memset(copy, 0, size);
  memcpy(copy, given, have < size ? have : size);
  set_size(copy, size);
}

cgr_status cgr__sized_read_other(const char *what, const char *init, const void *given, void *copy, size_t size) {
  CGR__TRY(cgr__sized_check(what, init, given));
  uint32_t have = cgr__sized_size_of(given);
  if (!tail_is_zero(given, have, size))
    return refuse_tail(what, init, have, size);
  copy_known(given, have, copy, size);
  return CGR_OK;
}

bool cgr__sized_has_stride(const void *first, size_t size) {
  uint32_t stride = cgr__sized_size_of(first);
  return !cgr__sized_is_rubbish(stride) && tail_is_zero(first, stride, size);
}

cgr_status cgr__sized_read_at(const char *array, const char *init, const void *first, int32_t i, void *copy, size_t size) {
  if (!first)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s is NULL, expected an address", array);
  uint32_t stride = cgr__sized_size_of(first);
  if (cgr__sized_is_rubbish(stride))
    return refuse_size(array, "[0]", init, stride);
  if (!cgr__sized_has_stride(first, size))
    i = 0;
  const unsigned char *given = (const unsigned char *)first + (size_t)i * stride;
  uint32_t have = cgr__sized_size_of(given);
  if (have != stride)
    return refuse_stride(array, init, i, have, stride);
  if (!tail_is_zero(given, have, size)) {
    char what[48];
    snprintf(what, sizeof what, "%s[%d]", array, i);
    return refuse_tail(what, init, have, size);
  }
  copy_known(given, have, copy, size);
  return CGR_OK;
}

cgr_status cgr__sized_refuse(const char *what, const char *init, const void *output) {
  if (!output)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s is NULL, expected an address", what);
  return refuse_size(what, "", init, cgr__sized_size_of(output));
}

cgr_status cgr__sized_check_at(const char *array, const char *init, void *first, int32_t i, void **element) {
  if (!first)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s is NULL, expected an address", array);
  uint32_t stride = cgr__sized_size_of(first);
  if (cgr__sized_is_rubbish(stride))
    return refuse_size(array, "[0]", init, stride);
  unsigned char *output = (unsigned char *)first + (size_t)i * stride;
  if (cgr__sized_size_of(output) != stride)
    return refuse_stride(array, init, i, cgr__sized_size_of(output), stride);
  *element = output;
  return CGR_OK;
}

cgr_status cgr__refuse_used(const char *what, int64_t value) {
  return cgr__fail(CGR_ERROR_NEWER_STRUCT, "%s is %lld, expected 0: a later version may give it a meaning", what,
                   (long long)value);
}

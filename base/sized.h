/* The one rule for structs that cross the interface and may grow (cgr/base.h): the first field is `size`; a shorter struct is
 * completed with zeros, a longer one is accepted while the rest is zero. A size that is no multiple of CGR__STRUCT_UNIT is
 * refused: no struct has it, and it may end inside of a pointer. */
#ifndef CGR_BASE_SIZED_H
#define CGR_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t cgr__sized_size_of(const void *given) {
  uint32_t size;
  memcpy(&size, given, sizeof size);
  return size;
}
/* A size that no struct has: it was not initialised, or the size would end inside of a field. */
static inline bool cgr__sized_is_rubbish(uint32_t size) {
  return size == 0 || size > CGR__MAX_STRUCT || size % CGR__STRUCT_UNIT != 0;
}

/* cgr__sized_read of NULL, or of a struct that is not of the size which this library knows. */
cgr_status cgr__sized_read_other(const char *what, const char *init, const void *given, void *copy, size_t size);
/* The output struct is NULL, or of a size that no struct has. */
cgr_status cgr__sized_refuse(const char *what, const char *init, const void *output);

/* Reads a caller's struct into `copy` of `size` bytes, the size that this library knows. `what` names it in messages
 * ("batch"), and `init` is the struct's INIT macro, which a message about a wrong size names. The copy's own size field becomes
 * `size`. */
static inline cgr_status cgr__sized_read(const char *what, const char *init, const void *given, void *copy, size_t size) {
  if (!given || cgr__sized_size_of(given) != size)
    return cgr__sized_read_other(what, init, given, copy, size);
  memcpy(copy, given, size);
  return CGR_OK;
}

/* The same for element i of an array. The first element's size is the array's stride, and all elements have it. */
cgr_status cgr__sized_read_at(const char *array, const char *init, const void *first, int32_t i, void *copy, size_t size);
/* Whether the first element's size can be the stride. If not, cgr__sized_read_at refuses each element for that and looks at no
 * other: they may be anywhere. */
bool cgr__sized_has_stride(const void *first, size_t size);

/* Checks an output struct before the work: whether its size can be a size. */
static inline cgr_status cgr__sized_check(const char *what, const char *init, const void *output) {
  return output && !cgr__sized_is_rubbish(cgr__sized_size_of(output)) ? CGR_OK : cgr__sized_refuse(what, init, output);
}

/* The same for element i of an array of outputs, as cgr__sized_read_at; then `*element` is where it stands. */
cgr_status cgr__sized_check_at(const char *array, const char *init, void *first, int32_t i, void **element);

/* Fills an output struct that cgr__sized_check passed, as far as both sides know it. Its size field stays. */
static inline void cgr__sized_write(void *output, const void *full, size_t size) {
  const uint32_t have = cgr__sized_size_of(output);
  memcpy(output, full, have < size ? have : size);
  memcpy(output, &have, sizeof have);
}

cgr_status cgr__refuse_used(const char *what, int64_t value);
/* A field that this version has no use for: CGR_ERROR_NEWER_STRUCT unless it is 0. */
static inline cgr_status cgr__check_unused(const char *what, int64_t value) {
  return value == 0 ? CGR_OK : cgr__refuse_used(what, value);
}

#ifdef __cplusplus
}
#endif
#endif

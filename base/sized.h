/* The one rule for structs that cross the interface and may grow (cgr/base.h): the first field is `size`; a shorter struct is
 * completed with zeros, a longer one is accepted while the rest is zero. A size that is no multiple of CGR__STRUCT_UNIT is
 * refused: no struct has it, and it may end inside of a pointer. */
#ifndef CGR_BASE_SIZED_H
#define CGR_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a caller's struct into `copy` of `size` bytes, the size that this library knows. `what` names it in messages
 * ("batch"), and `init` is the struct's INIT macro, which a message about a wrong size names. The copy's own size field becomes
 * `size`. */
cgr_status cgr__sized_read(const char *what, const char *init, const void *given, void *copy, size_t size);

/* The same for element i of an array. The first element's size is the array's stride, and all elements have it. */
cgr_status cgr__sized_read_at(const char *array, const char *init, const void *first, int32_t i, void *copy, size_t size);
/* Whether the first element's size can be the stride. If not, cgr__sized_read_at refuses each element for that and looks at no
 * other: they may be anywhere. */
bool cgr__sized_has_stride(const void *first, size_t size);

/* Checks an output struct before the work: whether its size can be a size. */
cgr_status cgr__sized_check(const char *what, const char *init, const void *output);

/* The same for element i of an array of outputs, as cgr__sized_read_at; then `*element` is where it stands. */
cgr_status cgr__sized_check_at(const char *array, const char *init, void *first, int32_t i, void **element);

/* Fills an output struct that cgr__sized_check passed, as far as both sides know it. Its size field stays. */
void cgr__sized_write(void *output, const void *full, size_t size);

/* A field that this version has no use for: CGR_ERROR_NEWER_STRUCT unless it is 0. */
cgr_status cgr__check_unused(const char *what, int64_t value);

#ifdef __cplusplus
}
#endif
#endif

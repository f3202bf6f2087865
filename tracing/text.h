/* Text into a caller's buffer: what fits is written, the rest is counted. Numbers are written as integers: what printf makes of a
 * double depends on the process's locale. */
#ifndef CGR_TRACING_TEXT_H
#define CGR_TRACING_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__text {
  char *out; /* [capacity], zero-terminated at any time; NULL with capacity 0 */
  size_t capacity, length;
} cgr__text;

cgr__text cgr__text_begin(char *out, size_t capacity);
void cgr__text_add(cgr__text *text, const char *format, ...) CGR__FORMAT(2, 3);
/* `count` bytes as they are. */
void cgr__text_add_bytes(cgr__text *text, const char *bytes, size_t count);
/* value / 10^digits, with `digits` of them, 1 .. 9, after the point. */
void cgr__text_add_decimal(cgr__text *text, uint64_t value, int digits);
/* Quoted, for JSON. Bytes that are not UTF-8 become U+FFFD. */
void cgr__text_add_json(cgr__text *text, const char *string);
/* Quoted, for the value of a label. */
void cgr__text_add_label(cgr__text *text, const char *string);

#ifdef __cplusplus
}
#endif
#endif

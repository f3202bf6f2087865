#include "tracing/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

cgr__text cgr__text_begin(char *out, size_t capacity) {
  if (capacity > 0)
    out[0] = 0;
  return (cgr__text){ out, capacity, 0 };
}

void cgr__text_add(cgr__text *text, const char *format, ...) {
  va_list values;
  bool fits = text->length < text->capacity;
  va_start(values, format);
  int length = vsnprintf(fits ? text->out + text->length : NULL, fits ? text->capacity - text->length : 0, format, values);
  va_end(values);
  text->length += length > 0 ? (size_t)length : 0;
}

void cgr__text_add_decimal(cgr__text *text, uint64_t value, int digits) {
  uint64_t unit = 1;
  for (int i = 0; i < digits; i++)
    unit *= 10;
  cgr__text_add(text, "%llu.%0*llu", (unsigned long long)(value / unit), digits, (unsigned long long)(value % unit));
}

/* Bytes of the UTF-8 sequence that the string begins with; 0: it begins with none. Neither long forms nor surrogates are any. */
static size_t utf8_length(const unsigned char *s) {
  size_t length = s[0] < 0x80                   ? 1
                  : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
                  : (s[0] & 0xf0) == 0xe0       ? 3
                  : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                : 0;
  unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80, high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf)
    if (s[i] < low || s[i] > high)
      return 0;
  return length;
}

void cgr__text_add_json(cgr__text *text, const char *string) {
  cgr__text_add(text, "\"");
  for (const unsigned char *s = (const unsigned char *)string; *s;) {
    size_t length = utf8_length(s);
    if (length == 0)
      cgr__text_add(text, "\\ufffd");
    else if (*s == '"' || *s == '\\')
      cgr__text_add(text, "\\%c", *s);
    else if (*s < 0x20)
      cgr__text_add(text, "\\u%04x", *s);
    else
      cgr__text_add(text, "%.*s", (int)length, (const char *)s);
    s += length > 0 ? length : 1;
  }
  cgr__text_add(text, "\"");
}

void cgr__text_add_label(cgr__text *text, const char *string) {
  cgr__text_add(text, "\"");
  for (const unsigned char *s = (const unsigned char *)string; *s;) {
    size_t length = utf8_length(s);
    if (length == 0)
      cgr__text_add(text, "\xef\xbf\xbd");
    else if (*s == '\n')
      cgr__text_add(text, "\\n");
    else if (*s == '"' || *s == '\\')
      cgr__text_add(text, "\\%c", *s);
    else
      cgr__text_add(text, "%.*s", (int)length, (const char *)s);
    s += length > 0 ? length : 1;
  }
  cgr__text_add(text, "\"");
}

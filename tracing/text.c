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

void cgr__text_add_bytes(cgr__text *text, const char *bytes, size_t count) {
  if (text->length + 1 < text->capacity) {
    size_t room = text->capacity - 1 - text->length, fits = count < room ? count : room;
    memcpy(text->out + text->length, bytes, fits);
    text->out[text->length + fits] = 0;
  }
  text->length += count;
}

void cgr__text_add_decimal(cgr__text *text, uint64_t value, int digits) {
  uint64_t unit = 1;
  for (int i = 0; i < digits; i++)
    unit *= 10;
  cgr__text_add(text, "%llu.%0*llu", (unsigned long long)(value / unit), digits, (unsigned long long)(value % unit));
}

/* Bytes of the UTF-8 sequence that the string begins with; 0: it begins with none. Overlong forms and surrogates do not count. */
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

/* Bytes up to the next one that is not written as it is: one that must be escaped, or is not UTF-8. */
static size_t plain_length(const unsigned char *s, unsigned char first_plain) {
  size_t count = 0, length;
  while (s[count] >= first_plain && s[count] != '"' && s[count] != '\\' && (length = utf8_length(s + count)) > 0)
    count += length;
  return count;
}

/* Quoted; `add` writes what is not written as it is and returns how many bytes of the string it took. */
static void add_quoted(cgr__text *text, const char *string, unsigned char first_plain,
                       size_t (*add)(cgr__text *text, const unsigned char *s)) {
  cgr__text_add_bytes(text, "\"", 1);
  for (const unsigned char *s = (const unsigned char *)string; *s;) {
    size_t plain = plain_length(s, first_plain);
    cgr__text_add_bytes(text, (const char *)s, plain);
    s += plain;
    if (*s)
      s += add(text, s);
  }
  cgr__text_add_bytes(text, "\"", 1);
}

static size_t add_json_escape(cgr__text *text, const unsigned char *s) {
  if (*s == '"' || *s == '\\')
    cgr__text_add(text, "\\%c", *s);
  else if (*s < 0x20)
    cgr__text_add(text, "\\u%04x", *s);
  else
    cgr__text_add(text, "\\ufffd");
  return 1;
}

void cgr__text_add_json(cgr__text *text, const char *string) { add_quoted(text, string, 0x20, add_json_escape); }

static size_t add_label_escape(cgr__text *text, const unsigned char *s) {
  if (*s == '\n')
    cgr__text_add(text, "\\n");
  else if (*s == '"' || *s == '\\')
    cgr__text_add(text, "\\%c", *s);
  else if (*s < 0x20)
    cgr__text_add_bytes(text, (const char *)s, 1);
  else
    cgr__text_add(text, "\xef\xbf\xbd");
  return 1;
}

void cgr__text_add_label(cgr__text *text, const char *string) { add_quoted(text, string, 0x20, add_label_escape); }

#include "base/choices.h"

#include <stdio.h>

#include "base/status.h"

#define LAST_NUMBERED 10 /* a longer list has no room for numbers: its names are in order */
#define LAST_LISTED 23   /* nor a still longer one for all names: the first and the last are told */

/* Cut off at the end of the text. */
static void append(cgr__choices_text *out, size_t *used, const char *text) {
  if (*used < sizeof out->text)
    *used += (size_t)snprintf(out->text + *used, sizeof out->text - *used, "%s", text);
}

cgr__choices_text cgr__choices_refusal(const cgr__choices *choices, int64_t value) {
  cgr__choices_text out;
  const long long first = choices->first, last = choices->last;
  char entry[64];
  size_t used = choices->flags ? (size_t)snprintf(out.text, sizeof out.text, "is %#llx, expected %s (", (unsigned long long)value,
                                                  choices->type)
                               : (size_t)snprintf(out.text, sizeof out.text, "is %lld, expected %lld .. %lld, a %s (",
                                                  (long long)value, first, last, choices->type);
  if (!choices->flags && last - first > LAST_LISTED) {
    snprintf(entry, sizeof entry, "%s .. ", choices->name(first));
    append(&out, &used, entry);
    append(&out, &used, choices->name(last));
  }
  for (int64_t v = first; v <= last && (choices->flags || last - first <= LAST_LISTED); v = choices->flags ? 2 * v : v + 1) {
    if (choices->flags || last - first > LAST_NUMBERED)
      snprintf(entry, sizeof entry, "%s%s", v > first ? ", " : "", choices->name(v));
    else
      snprintf(entry, sizeof entry, "%s%lld %s", v > first ? ", " : "", (long long)v, choices->name(v));
    append(&out, &used, entry);
  }
  append(&out, &used, ")");
  return out;
}

cgr_status cgr__refuse_choice(const char *function, const char *what, const cgr__choices *choices, int64_t value) {
  return cgr__fail(CGR_ERROR_INVALID_ENUM, "%s: %s %s", function, what, cgr__choices_refusal(choices, value).text);
}

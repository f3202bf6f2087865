#include "base/findings.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void cgr__findings_init(cgr__findings *findings, cgr_finding *out, int32_t capacity) {
  memset(findings, 0, sizeof *findings);
  findings->out = out;
  findings->capacity = out ? capacity : 0;
  findings->layer = findings->group = -1;
}

cgr_status cgr__findings_check(const char *function, const cgr_finding *out, int32_t capacity, int32_t *count) {
  CGR__REQUIRE(count, function);
  *count = 0;
  if (capacity < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: capacity is %d, expected 0 or more", function, capacity);
  if (capacity > 0 && !out)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: findings is NULL, expected room for %d", function, capacity);
  return CGR_OK;
}

static void add_finding(cgr__findings *findings, const cgr_finding *finding) {
  if (findings->count == 0)
    findings->first = *finding;
  if (findings->count < findings->capacity)
    findings->out[findings->count] = *finding;
  findings->count++;
}

static cgr_finding begin_finding(const cgr__findings *findings, cgr_status status, const char *field) {
  cgr_finding finding;
  memset(&finding, 0, sizeof finding);
  finding.status = (int32_t)status;
  finding.layer = findings->layer;
  finding.group = findings->group;
  snprintf(finding.field, sizeof finding.field, "%s", field);
  return finding;
}

void cgr__findings_add(cgr__findings *findings, cgr_status status, const char *field, const char *format, ...) {
  cgr_finding finding = begin_finding(findings, status, field);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding.text, sizeof finding.text, format, arguments);
  va_end(arguments);
  add_finding(findings, &finding);
}

void cgr__findings_add_failure(cgr__findings *findings, cgr_status status, const char *field) {
  cgr_finding finding = begin_finding(findings, status, field);
  const char *text = cgr_last_message();
  size_t named = strlen(field);
  if (strncmp(text, field, named) == 0 && strncmp(text + named, ": ", 2) == 0)
    text += named + 2;
  snprintf(finding.text, sizeof finding.text, "%s", text);
  add_finding(findings, &finding);
}

cgr_status cgr__findings_status(const cgr__findings *findings, const char *function) {
  const cgr_finding *first = &findings->first;
  char more[48] = "";
  bool whole = strcmp(first->field, "config") == 0; /* `function` ends with "config" already: the field is not repeated */
  if (findings->count == 0)
    return CGR_OK;
  if (findings->count > 1)
    snprintf(more, sizeof more, " (and %d more%s%s)", findings->count - 1, findings->see ? ": see " : "",
             findings->see ? findings->see : "");
  return cgr__fail((cgr_status)first->status, "%s: %s%s%s%s", function, whole ? "" : first->field, whole ? "" : " ", first->text,
                   more);
}

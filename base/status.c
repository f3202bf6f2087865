#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[512];
static _Thread_local int last_device_code;
static _Thread_local uint64_t failures;

cgr_status cgr__fail(cgr_status status, const char *format, ...) {
  char message[sizeof last_message]; /* the arguments may be the last message itself */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  memcpy(last_message, message, sizeof message);
  failures++;
  return status;
}

static bool begins_with(const char *function) {
  size_t named = strlen(function);
  return strncmp(last_message, function, named) == 0 && last_message[named] == ':';
}

cgr_status cgr__fail_in(const char *function, cgr_status status) {
  return status == CGR_OK || begins_with(function) ? status : cgr__fail(status, "%s: %s", function, last_message);
}

cgr_status cgr__fail_as(const char *function, const char *inner, cgr_status status) {
  if (status == CGR_OK || !begins_with(inner))
    return cgr__fail_in(function, status);
  return cgr__fail(status, "%s%s", function, last_message + strlen(inner));
}

uint64_t cgr__failures(void) { return failures; }

cgr_status cgr__fail_returned(cgr_status status, const char *who, cgr_status returned, uint64_t before) {
  bool told = failures != before;
  return cgr__fail(status, "%s returned %s (%d)%s%s", who, cgr_status_name(returned), (int)returned,
                   told ? ": " : ", expected CGR_OK", told ? last_message : "");
}

void cgr__set_device_code(int code) { last_device_code = code; }

const char *cgr_last_message(void) { return last_message; }

int cgr_last_device_code(void) { return last_device_code; }

bool cgr__status_is_known(int32_t status) {
  switch (status) {
#define CGR__STATUS_CASE(name, number, text) case number:
    CGR_STATUS_LIST(CGR__STATUS_CASE)
#undef CGR__STATUS_CASE
    return true;
  default:
    return false;
  }
}

const char *cgr_status_name(cgr_status status) {
  switch (status) {
#define CGR__STATUS_NAME(name, number, text) \
  case name:                                 \
    return #name;
    CGR_STATUS_LIST(CGR__STATUS_NAME)
#undef CGR__STATUS_NAME
  default:
    return "CGR_STATUS_UNKNOWN";
  }
}

const char *cgr_status_text(cgr_status status) {
  switch (status) {
#define CGR__STATUS_TEXT(name, number, text) \
  case name:                                 \
    return text;
    CGR_STATUS_LIST(CGR__STATUS_TEXT)
#undef CGR__STATUS_TEXT
  default:
    return "not a status of this library";
  }
}

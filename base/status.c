#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_message[512];
static _Thread_local int last_device_code;
static _Thread_local uint64_t failures;

cgr_status cgr__fail(cgr_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_message, sizeof last_message, format, arguments);
  va_end(arguments);
  failures++;
  return status;
}

uint64_t cgr__failures(void) { return failures; }

void cgr__set_device_code(int code) { last_device_code = code; }

const char *cgr_last_message(void) { return last_message; }

int cgr_last_device_code(void) { return last_device_code; }

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

size_t cgr_dtype_size(cgr_dtype dtype) {
  switch (dtype) {
  case CGR_DTYPE_FP8_E4M3:
  case CGR_DTYPE_I8:
    return 1;
  case CGR_DTYPE_FP16:
  case CGR_DTYPE_BF16:
    return 2;
  case CGR_DTYPE_FP32:
  case CGR_DTYPE_I32:
    return 4;
  case CGR_DTYPE_I64:
    return 8;
  default:
    return 0;
  }
}

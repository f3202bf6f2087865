#include "examples/llama/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

int llama_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  return -1;
}

int llama_fail_in(const char *what) {
  char inner[sizeof(message)];
  memcpy(inner, message, sizeof(inner));
  return llama_fail("%s: %s", what, inner);
}

const char *llama_message(void) { return message; }

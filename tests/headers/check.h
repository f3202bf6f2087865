/* Checks for tests that are both C11 and C++11: they print and count failures. */
#ifndef CGR_TESTS_HEADERS_CHECK_H
#define CGR_TESTS_HEADERS_CHECK_H

#include <stdio.h>
#include <string.h>

#include "cgr/cgr.h"

/* The tests compiled as C11 and as C++11: each returns how many checks failed. */
#define CGR_TEST_PARTS(X)                                       \
  X(initialisers, "the _INIT macros give each struct its size") \
  X(names, "enumerators have names of their own")               \
  X(statuses, "the table of statuses")                          \
  X(inputs, "input structs of other sizes")                     \
  X(recorded, "structs of other sizes inside record")           \
  X(arrays, "arrays of structs of other sizes")                 \
  X(outputs, "output structs of other sizes")                   \
  X(ranks, "structs of ranks in other sizes")                   \
  X(steps, "steps of other sizes, and their results")

static int check_failures;

#define CHECK(condition)                            \
  do {                                              \
    if (!(condition))                               \
      check_failed(__FILE__, __LINE__, #condition); \
  } while (0)

/* The call returns `status`; if it fails, its message contains `word`. */
#define CHECK_CALL(status, word, call) check_call(__FILE__, __LINE__, #call, status, word, call)
#define CHECK_OK(call) CHECK_CALL(CGR_OK, "", call)

static inline void check_failed(const char *file, int line, const char *what) {
  if (check_failures++ < 40)
    printf("%s:%d: %s (last message: %s)\n", file, line, what, cgr_last_message());
}

static inline void check_call(const char *file, int line, const char *what, cgr_status want, const char *word, cgr_status got) {
  if (got != want && check_failures++ < 40)
    printf("%s:%d: %s gave %s, expected %s (last message: %s)\n", file, line, what, cgr_status_name(got), cgr_status_name(want),
           cgr_last_message());
  else if (got != CGR_OK && !strstr(cgr_last_message(), word) && check_failures++ < 40)
    printf("%s:%d: %s says \"%s\", which lacks \"%s\"\n", file, line, what, cgr_last_message(), word);
}

#endif

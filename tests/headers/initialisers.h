/* Every _INIT macro as an initialiser. */
#ifndef CGR_TESTS_HEADERS_INITIALISERS_H
#define CGR_TESTS_HEADERS_INITIALISERS_H

#include "tests/headers/check.h"
#include "tests/support/sized_structs.h"

/* At file scope, where an initialiser must be constant, and const. */
#define FILE_SCOPE(type, init) static const type file_scope_##type = init;
SIZED_STRUCTS(FILE_SCOPE)
static const cgr_key file_scope_cgr_key = CGR_KEY_INIT;

#define ON_THE_STACK(type, init)                                                                             \
  {                                                                                                          \
    type local = init, array[2] = { init, init };                                                            \
    const struct {                                                                                           \
      int32_t before;                                                                                        \
      type inside;                                                                                           \
    } outer = { 1, init };                                                                                   \
    CHECK(local.size == sizeof local && array[1].size == sizeof local && outer.inside.size == sizeof local); \
    CHECK(file_scope_##type.size == sizeof local);                                                           \
  }

static int test_initialisers(void) {
  const int before = check_failures;
  cgr_key key = CGR_KEY_INIT;
  SIZED_STRUCTS(ON_THE_STACK)
  CHECK(file_scope_cgr_config.magic == CGR_CONFIG_MAGIC && file_scope_cgr_config.version == CGR_VERSION);
  CHECK(memcmp(&key, &file_scope_cgr_key, sizeof key) == 0 && key.kind == CGR_KIND_NONE && key.reserved[3] == 0);
  return check_failures - before;
}

#endif

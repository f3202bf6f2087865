/* Every _INIT macro as an initialiser, and cgr_init, which gives the same. */
#ifndef CGR_TESTS_HEADERS_INITIALISERS_H
#define CGR_TESTS_HEADERS_INITIALISERS_H

#include "cgr/bindings.h"
#include "tests/headers/check.h"

/* At file scope, where an initialiser must be constant, and const. */
#define FILE_SCOPE(kind, number, type, init) static const type file_scope_##type = init;
CGR_STRUCT_LIST(FILE_SCOPE)
static const cgr_key file_scope_cgr_key = CGR_KEY_INIT;

#define ON_THE_STACK(kind, number, type, init)                                                               \
  {                                                                                                          \
    type local = init, array[2] = { init, init };                                                            \
    const struct {                                                                                           \
      int32_t before;                                                                                        \
      type inside;                                                                                           \
    } outer = { 1, init };                                                                                   \
    CHECK(local.size == sizeof local && array[1].size == sizeof local && outer.inside.size == sizeof local); \
    CHECK(file_scope_##type.size == sizeof local);                                                           \
    memset(&local, 0xa5, sizeof local);                                                                      \
    CHECK_OK(cgr_init(kind, CGR_HEADER_VERSION, &local, sizeof local));                                      \
    CHECK(memcmp(&local, &file_scope_##type, sizeof local) == 0);                                            \
    CHECK(strcmp(cgr_struct_name(kind), #type) == 0);                                                        \
  }

/* A binding that was made from older headers, or from newer ones, gets a struct of its own size. */
static void check_other_sizes(void) {
  uint32_t words[20];
  for (size_t size = 8; size <= 64; size += 8) {
    memset(words, 0xa5, sizeof words);
    CHECK_OK(cgr_init(CGR_STRUCT_SPAN, CGR_HEADER_VERSION, words, size));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
      CHECK(words[i] == (i == 0 ? (uint32_t)size : i < size / 4 ? 0u : 0xa5a5a5a5u));
  }
  CHECK_OK(cgr_init(CGR_STRUCT_CONFIG, 1234, words, 24));
  CHECK(words[0] == 24 && words[1] == CGR_CONFIG_MAGIC && words[2] == 1234 && words[3] == 0);
}

static void check_refused(void) {
  static const size_t none[] = { 0, 4, 7, 12, 4104 };
  cgr_key key = CGR_KEY_INIT;
  cgr_step step = CGR_STEP_INIT;
  CHECK_CALL(CGR_ERROR_NULL_POINTER, "out", cgr_init(CGR_STRUCT_STEP, CGR_HEADER_VERSION, NULL, sizeof step));
  CHECK_CALL(CGR_ERROR_INVALID_ENUM, "kind is 99", cgr_init((cgr_struct)99, CGR_HEADER_VERSION, &step, sizeof step));
  CHECK_CALL(CGR_ERROR_INVALID_STRUCT, "cgr_config", cgr_init(CGR_STRUCT_CONFIG, CGR_HEADER_VERSION, &step, 8));
  CHECK_CALL(CGR_ERROR_INVALID_STRUCT, "cgr_key", cgr_init(CGR_STRUCT_KEY, CGR_HEADER_VERSION, &key, sizeof key - 8));
  for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
    CHECK_CALL(CGR_ERROR_INVALID_STRUCT, "cgr_step", cgr_init(CGR_STRUCT_STEP, CGR_HEADER_VERSION, &step, none[i]));
  CHECK(step.size == sizeof step);
}

static int test_initialisers(void) {
  const int before = check_failures;
  cgr_key key = CGR_KEY_INIT;
  CGR_STRUCT_LIST(ON_THE_STACK)
  CHECK(file_scope_cgr_config.magic == CGR_CONFIG_MAGIC && file_scope_cgr_config.version == CGR_VERSION);
  memset(&key, 0xa5, sizeof key);
  CHECK_OK(cgr_init(CGR_STRUCT_KEY, CGR_HEADER_VERSION, &key, sizeof key));
  check_other_sizes();
  check_refused();
  CHECK(memcmp(&key, &file_scope_cgr_key, sizeof key) == 0 && key.kind == CGR_KIND_NONE && key.reserved[3] == 0);
  return check_failures - before;
}

#endif

/* A call that takes a sized struct, with the struct in every size. Each is in an allocation of exactly its size, so that the
 * address sanitizer sees accesses past its end. */
#ifndef CGR_TESTS_HEADERS_SIZED_H
#define CGR_TESTS_HEADERS_SIZED_H

#include <stdlib.h>

#include "tests/headers/check.h"

/* The public call under test, given the struct. It destroys what it makes. */
typedef cgr_status (*sized_call)(void *world, void *given);

/* `size` bytes: those of `good`, which has `known`, then `rest`. */
static inline void *sized_copy(const void *good, size_t known, size_t size, int rest) {
  const uint32_t own = (uint32_t)size;
  unsigned char *copy = (unsigned char *)malloc(size);
  memset(copy, rest, size);
  memcpy(copy, good, size < known ? size : known);
  memcpy(copy, &own, sizeof own);
  return copy;
}

/* A struct that claims `size` bytes, which is no valid size. */
static inline unsigned char *sized_rubbish(uint32_t size) {
  unsigned char *given = (unsigned char *)malloc(8);
  memset(given, 0xa5, 8);
  memcpy(given, &size, sizeof size);
  return given;
}

/* The i-th size that none can be: 0 and too large ones, then those up to 160 that end inside of a field. */
static inline uint32_t sized_none(int i) {
  static const uint32_t none[] = { 0, 4100, 0xa5a5a5a0u, 0xffffffffu };
  return i < 4 ? none[i] : (uint32_t)((i - 4) / 7 * 8 + (i - 4) % 7 + 1);
}
enum { SIZED_NONE = 4 + 160 / 8 * 7 };

/* ---------------------------------------------------------------------------------------------------------------- inputs */

typedef struct sized_input {
  const char *word; /* of the message, naming the struct */
  const void *good;
  size_t known; /* sizeof *good */
  size_t least; /* up to where it has fields that are not zero */
  sized_call call;
} sized_input;

/* An older caller's prefix gives the same as the struct with zeros in place of what was cut off. */
static inline void check_prefix(const sized_input *in, void *world, size_t size) {
  char message[512];
  unsigned char *prefix = (unsigned char *)sized_copy(in->good, in->known, size, 0);
  unsigned char *completed = (unsigned char *)sized_copy(prefix, size, in->known, 0);
  const cgr_status status = in->call(world, prefix);
  snprintf(message, sizeof message, "%s", cgr_last_message());
  CHECK(in->call(world, completed) == status);
  CHECK(status == CGR_OK || strcmp(message, cgr_last_message()) == 0);
  CHECK(status == CGR_OK || size < in->least);
  free(prefix);
  free(completed);
}

static inline void check_longer(const sized_input *in, void *world, size_t more) {
  unsigned char *zeros = (unsigned char *)sized_copy(in->good, in->known, in->known + more, 0);
  CHECK_OK(in->call(world, zeros));
  for (int last = 0; last < 2; last++) {
    unsigned char *newer = (unsigned char *)sized_copy(in->good, in->known, in->known + more, 0);
    newer[last ? in->known + more - 1 : in->known] = 0x80;
    CHECK_CALL(CGR_ERROR_NEWER_STRUCT, in->word, in->call(world, newer));
    free(newer);
  }
  CHECK_OK(in->call(world, zeros));
  free(zeros);
}

static inline void check_input(const sized_input *in, void *world) {
  static const size_t more[] = { 8, 16, 104 };
  void *exact = sized_copy(in->good, in->known, in->known, 0);
  CHECK_OK(in->call(world, exact));
  free(exact);
  for (size_t size = 8; size < in->known; size += 8)
    check_prefix(in, world, size);
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
    check_longer(in, world, more[i]);
  for (int i = 0; i < SIZED_NONE; i++) {
    unsigned char *none = sized_rubbish(sized_none(i));
    CHECK_CALL(CGR_ERROR_INVALID_STRUCT, in->word, in->call(world, none));
    free(none);
  }
}

/* --------------------------------------------------------------------------------------------------------------- outputs */

typedef struct sized_output {
  const char *word;
  size_t known;
  size_t skip, skip_end; /* bytes that may differ from call to call */
  sized_call call;
} sized_output;

/* `got`, of `size` bytes, was full of 0xa5: now it has as much of `full` as both have, and nothing past that has changed. */
static inline void check_filled(const sized_output *out, const unsigned char *full, const unsigned char *got, size_t size) {
  uint32_t own = 0;
  size_t wrong = 0;
  memcpy(&own, got, sizeof own);
  CHECK(own == size);
  for (size_t i = sizeof own; i < size; i++)
    if (i < out->skip || i >= out->skip_end)
      wrong += got[i] != (i < out->known ? full[i] : 0xa5);
  CHECK(wrong == 0);
}

static inline void check_output(const sized_output *out, void *world) {
  const unsigned char pattern[4] = { 0xa5, 0xa5, 0xa5, 0xa5 };
  unsigned char *full = (unsigned char *)sized_copy(pattern, sizeof pattern, out->known, 0);
  CHECK_OK(out->call(world, full));
  for (size_t size = 8; size <= out->known + 40; size += 8) {
    unsigned char *got = (unsigned char *)sized_copy(pattern, sizeof pattern, size, 0xa5);
    CHECK_OK(out->call(world, got));
    check_filled(out, full, got, size);
    free(got);
  }
  for (int i = 0; i < SIZED_NONE; i++) {
    unsigned char *none = sized_rubbish(sized_none(i)), *before = sized_rubbish(sized_none(i));
    CHECK_CALL(CGR_ERROR_INVALID_STRUCT, out->word, out->call(world, none));
    CHECK(memcmp(none, before, 8) == 0);
    free(none);
    free(before);
  }
  free(full);
}

#endif

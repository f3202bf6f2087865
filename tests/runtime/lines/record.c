#include "tests/runtime/lines/record.h"

#include <stdbool.h>
#include <string.h>

static _Thread_local bool recording;
static uintptr_t lines[LINES_MOST];
static size_t num_lines;

static void touch(const volatile void *address, size_t bytes) {
  if (!recording || bytes == 0)
    return;
  for (uintptr_t line = (uintptr_t)address / LINES_BYTES; line <= ((uintptr_t)address + bytes - 1) / LINES_BYTES; line++) {
    size_t i = 0;
    while (i < num_lines && lines[i] != line)
      i++;
    if (i == num_lines && num_lines < LINES_MOST)
      lines[num_lines++] = line;
  }
}

void lines_begin(void) {
  num_lines = 0;
  recording = true;
}

size_t lines_end(const uintptr_t **all) {
  recording = false;
  *all = lines;
  return num_lines;
}

/* --------------------------------------------------------------------------------------------- in place of the C library's */

void *cgr_lines_memcpy(void *to, const void *from, size_t bytes);
void *cgr_lines_memmove(void *to, const void *from, size_t bytes);
int cgr_lines_memcmp(const void *a, const void *b, size_t bytes);
void *cgr_lines_memset(void *to, int value, size_t bytes);

void *cgr_lines_memcpy(void *to, const void *from, size_t bytes) {
  touch(to, bytes);
  touch(from, bytes);
  return memcpy(to, from, bytes);
}

void *cgr_lines_memmove(void *to, const void *from, size_t bytes) {
  touch(to, bytes);
  touch(from, bytes);
  return memmove(to, from, bytes);
}

int cgr_lines_memcmp(const void *a, const void *b, size_t bytes) {
  touch(a, bytes);
  touch(b, bytes);
  return memcmp(a, b, bytes);
}

void *cgr_lines_memset(void *to, int value, size_t bytes) {
  touch(to, bytes);
  return memset(to, value, bytes);
}

/* ----------------------------------------------------------------------------------------- in place of the sanitizer's own */

#if defined(__SANITIZE_THREAD__)

int lines_can_record(void) { return 0; }

#else

int lines_can_record(void) { return 1; }

/* Two names for each: of aligned and of other accesses, of plain and of volatile ones. */
#define ACCESS(name, bytes) \
  void name(void *address); \
  void name(void *address) { touch(address, bytes); }
#define ACCESSES(kind)                  \
  ACCESS(__tsan_##kind##1, 1)           \
  ACCESS(__tsan_##kind##2, 2)           \
  ACCESS(__tsan_##kind##4, 4)           \
  ACCESS(__tsan_##kind##8, 8)           \
  ACCESS(__tsan_##kind##16, 16)         \
  ACCESS(__tsan_unaligned_##kind##2, 2) \
  ACCESS(__tsan_unaligned_##kind##4, 4) \
  ACCESS(__tsan_unaligned_##kind##8, 8) \
  ACCESS(__tsan_unaligned_##kind##16, 16)

ACCESSES(read)
ACCESSES(write)

void __tsan_read_range(void *address, size_t bytes);
void __tsan_read_range(void *address, size_t bytes) { touch(address, bytes); }
void __tsan_write_range(void *address, size_t bytes);
void __tsan_write_range(void *address, size_t bytes) { touch(address, bytes); }

void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* The sanitizer replaces atomic operations too; the order is the strongest here. */
#define ATOMIC_LOAD(bits)                                                                   \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order);  \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *at, int order) { \
    (void)order;                                                                            \
    touch(at, bits / 8);                                                                    \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                           \
  }
#define ATOMIC_STORE(bits)                                                                         \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order);  \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t *at, uint##bits##_t value, int order) { \
    (void)order;                                                                                   \
    touch(at, bits / 8);                                                                           \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
  }
#define ATOMIC_FETCH(bits, what)                                                                              \
  uint##bits##_t __tsan_atomic##bits##_##what(volatile uint##bits##_t *at, uint##bits##_t value, int order);  \
  uint##bits##_t __tsan_atomic##bits##_##what(volatile uint##bits##_t *at, uint##bits##_t value, int order) { \
    (void)order;                                                                                              \
    touch(at, bits / 8);                                                                                      \
    return __atomic_##what(at, value, __ATOMIC_SEQ_CST);                                                      \
  }
#define ATOMIC_EXCHANGE(bits)                                                                                                    \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at, uint##bits##_t *expected, uint##bits##_t value, \
                                                    int order, int failed);                                                      \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *at, uint##bits##_t *expected, uint##bits##_t value, \
                                                    int order, int failed) {                                                     \
    (void)order;                                                                                                                 \
    (void)failed;                                                                                                                \
    touch(at, bits / 8);                                                                                                         \
    return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
  }
#define ATOMICS(bits)           \
  ATOMIC_LOAD(bits)             \
  ATOMIC_STORE(bits)            \
  ATOMIC_FETCH(bits, fetch_add) \
  ATOMIC_FETCH(bits, fetch_sub)

ATOMICS(8)
ATOMICS(32)
ATOMICS(64)
ATOMIC_EXCHANGE(32)
ATOMIC_EXCHANGE(64)

#endif

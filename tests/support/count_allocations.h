// Counts allocations, in malloc itself. For one source of a test: it defines malloc.
#ifndef CGR_TESTS_SUPPORT_COUNT_ALLOCATIONS_H
#define CGR_TESTS_SUPPORT_COUNT_ALLOCATIONS_H

#include <atomic>
#include <cstdint>
#include <cstdlib>

// The sanitizers bring their own malloc; under them nothing is counted and the test is skipped.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CGR_COUNT_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CGR_COUNT_MALLOC 0
#endif
#endif
#if !defined(CGR_COUNT_MALLOC) && defined(__GLIBC__)
#define CGR_COUNT_MALLOC 1
#endif

static std::atomic<uint64_t> num_allocations(0);

#if CGR_COUNT_MALLOC
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes) {
  num_allocations++;
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  num_allocations++;
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  num_allocations++;
  return __libc_realloc(memory, bytes);
}
}
#endif

#endif // CGR_TESTS_SUPPORT_COUNT_ALLOCATIONS_H

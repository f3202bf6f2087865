// Counts allocations, in malloc itself, and makes one of them fail. For one source of a test: it defines malloc.
#pragma once

#include <atomic>
#include <cerrno>
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
// The n-th allocation of this thread from now on fails; 0: none does. Those by `new` are counted, but none of them fails.
[[maybe_unused]] static thread_local uint64_t failing_allocation = 0;

#if CGR_COUNT_MALLOC
static bool is_allocated() {
  num_allocations++;
  return failing_allocation == 0 || --failing_allocation > 0;
}

extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) { return is_allocated() ? __libc_malloc(bytes) : nullptr; }
void *calloc(size_t count, size_t bytes) { return is_allocated() ? __libc_calloc(count, bytes) : nullptr; }
void *realloc(void *memory, size_t bytes) { return is_allocated() ? __libc_realloc(memory, bytes) : nullptr; }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  void *allocated = is_allocated() ? __libc_memalign(alignment, bytes) : nullptr;
  if (allocated != nullptr)
    *memory = allocated;
  return allocated != nullptr ? 0 : ENOMEM;
}
void *aligned_alloc(size_t alignment, size_t bytes) { return is_allocated() ? __libc_memalign(alignment, bytes) : nullptr; }
}

void *operator new(size_t bytes) {
  num_allocations++;
  if (void *memory = __libc_malloc(bytes > 0 ? bytes : 1))
    return memory;
  std::abort();
}
#endif

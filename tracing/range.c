#include <pthread.h>
#include <string.h>

#include "tracing/nvtx.h"

/* Names of the engine's ranges, for as long as the process runs: labels of graphs keep their numbers. */
static struct {
  pthread_mutex_t lock;
  int count; /* atomic: names below it are there for good */
  char name[CGR__MAX_NAMED_RANGES][CGR__NAMED_RANGE_BYTES];
} named = { .lock = PTHREAD_MUTEX_INITIALIZER };

const char *cgr__nvtx_range_name(cgr__nvtx_range range) {
  static const char *const names[CGR__RANGE_COUNT] = {
#define NAME(name, text, category) text,
    CGR__RANGE_LIST(NAME)
#undef NAME
  };
  return (int)range < CGR__RANGE_COUNT ? names[range] : named.name[(int)range - CGR__RANGE_COUNT];
}

static int find_name(const char *name, int count) {
  for (int i = 0; i < count; i++)
    if (strncmp(named.name[i], name, CGR__NAMED_RANGE_BYTES - 1) == 0)
      return i;
  return -1;
}

cgr__nvtx_range cgr__nvtx_named_range(const char *name) {
  int found = find_name(name, __atomic_load_n(&named.count, __ATOMIC_ACQUIRE));
  if (found >= 0)
    return (cgr__nvtx_range)(CGR__RANGE_COUNT + found);
  pthread_mutex_lock(&named.lock);
  const int count = named.count;
  found = find_name(name, count);
  if (found < 0 && count < CGR__MAX_NAMED_RANGES) {
    found = count;
    strncpy(named.name[found], name, CGR__NAMED_RANGE_BYTES - 1);
    __atomic_store_n(&named.count, count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&named.lock);
  return found < 0 ? CGR__RANGE_COLLECTIVE : (cgr__nvtx_range)(CGR__RANGE_COUNT + found);
}

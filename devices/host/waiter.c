#include "devices/host/waiter.h"

#include <stdlib.h>

#include "base/clock.h"
#include "devices/host/handles.h"
#include "devices/host/queue.h"

int cgr__host_waiter_create(cgr_device *dev, uint64_t *word, cgr__waiter **handle) {
  struct host_device *host = cgr__host_of(dev);
  cgr__waiter *waiter = calloc(1, sizeof *waiter);
  *handle = waiter;
  if (!waiter)
    return cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
  waiter->word = word;
  pthread_mutex_lock(&host->lock);
  waiter->next = host->waiters;
  host->waiters = waiter;
  pthread_mutex_unlock(&host->lock);
  return CGR__DEVICE_OK;
}

/* Where the list has it; NULL after keeping the code of an invalid handle. */
static cgr__waiter **find_waiter(struct host_device *host, const cgr__waiter *handle) {
  for (cgr__waiter **link = &host->waiters; *link; link = &(*link)->next)
    if (*link == handle)
      return link;
  cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_HANDLE);
  return NULL;
}

int cgr__host_waiter_destroy(cgr_device *dev, cgr__waiter *handle) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  cgr__waiter **link = find_waiter(host, handle);
  if (link)
    *link = handle->next;
  pthread_mutex_unlock(&host->lock);
  if (!link)
    return CGR__DEVICE_INVALID;
  __atomic_store_n(handle->word, INT64_MAX, __ATOMIC_RELEASE);
  free(handle);
  return CGR__DEVICE_OK;
}

static bool waiter_has_reached(const cgr__waiter *waiter, uint64_t value) {
  return __atomic_load_n(waiter->word, __ATOMIC_ACQUIRE) >= value;
}

/* The lock is held whenever an operation completes, so the word is looked at before and after each. */
static int sleep_until_reached(struct host_device *host, const cgr__waiter *waiter, uint64_t value, uint64_t ns) {
  const struct timespec end = cgr__timespec_of(cgr__now_ns() + ns);
  bool in_time = host->schedule == CGR_SCHEDULE_ASYNC;
  while (in_time && !waiter_has_reached(waiter, value))
    in_time = cgr__host_sleep_until(host, &end);
  return waiter_has_reached(waiter, value) ? CGR__DEVICE_OK : CGR__DEVICE_NOT_READY;
}

int cgr__host_waiter_wait(cgr_device *dev, cgr__waiter *handle, uint64_t value, uint64_t ns) {
  struct host_device *host = cgr__host_of(dev);
  pthread_mutex_lock(&host->lock);
  int error = find_waiter(host, handle) ? sleep_until_reached(host, handle, value, ns) : CGR__DEVICE_INVALID;
  pthread_mutex_unlock(&host->lock);
  return error;
}

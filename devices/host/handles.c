#include "devices/host/handles.h"

int cgr__host_fail(struct host_device *host, int error, int raw) {
  /* Threads may fail at the same time, some without the lock. Whose code stays is arbitrary, but there is no data race. */
  __atomic_store_n(&host->head.last_raw, raw, __ATOMIC_RELAXED);
  return error;
}

/* Handles are compared with those of this device, so that a foreign or stale one is never read. */
struct host_stream *cgr__host_stream(struct host_device *host, cudaStream_t handle) {
  for (struct host_stream *s = host->streams; s; s = s->next)
    if (s == (struct host_stream *)(void *)handle && s->alive)
      return s;
  cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_HANDLE);
  return NULL;
}

cgr__event *cgr__host_event(struct host_device *host, cgr__event *handle) {
  for (cgr__event *e = host->events; e; e = e->next)
    if (e == handle && e->alive)
      return e;
  cgr__host_fail(host, CGR__DEVICE_INVALID, HOST_RAW_INVALID_HANDLE);
  return NULL;
}

uint64_t cgr__host_random(struct host_device *host) {
  uint64_t x = host->random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  host->random = x;
  return x >> 11;
}

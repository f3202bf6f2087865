#include "tracing/device_clock.h"

/* Over a shorter stretch the errors of the two comparisons exceed what the clocks can drift. */
#define SHORTEST_NS 1000000000u

void cgr__device_clock_add(cgr__device_clock *clock, const cgr__clock_pair *pair) {
  if (clock->first.device_ns == 0)
    clock->first = *pair;
  clock->last = *pair;
}

uint64_t cgr__device_clock_at(const cgr__device_clock *clock, uint64_t device_ns) {
  const cgr__clock_pair *first = &clock->first, *last = &clock->last;
  int64_t passed = (int64_t)(device_ns - last->device_ns);
  int64_t device = (int64_t)(last->device_ns - first->device_ns), host = (int64_t)(last->host_ns - first->host_ns);
  if (device >= (int64_t)SHORTEST_NS && host >= (int64_t)SHORTEST_NS)
    passed += (int64_t)((double)passed * ((double)(host - device) / (double)device));
  return last->host_ns + (uint64_t)passed;
}

/* A device's clock next to the host's. They are compared now and then: at both ends of a stretch, whose rate is then known. */
#ifndef CGR_TRACING_DEVICE_CLOCK_H
#define CGR_TRACING_DEVICE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device's clock was read at host_ns of CLOCK_MONOTONIC, or at most error_ns earlier or later. */
typedef struct cgr__clock_pair {
  uint64_t host_ns, device_ns, error_ns;
} cgr__clock_pair;

typedef struct cgr__device_clock {
  cgr__clock_pair first, last; /* first.device_ns 0: never compared */
} cgr__device_clock;

void cgr__device_clock_add(cgr__device_clock *clock, const cgr__clock_pair *pair);
/* CLOCK_MONOTONIC at a time of the device's, between the two comparisons or not. */
uint64_t cgr__device_clock_at(const cgr__device_clock *clock, uint64_t device_ns);

#ifdef __cplusplus
}
#endif
#endif

/* The clock for measurements and waits. */
#ifndef CGR_BASE_CLOCK_H
#define CGR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC: time since some fixed moment; it never goes back. */
static inline uint64_t cgr__now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static inline double cgr__now_ms(void) { return (double)cgr__now_ns() * 1e-6; }

/* For calls that take the time of an end: of CLOCK_MONOTONIC. */
static inline struct timespec cgr__timespec_of(uint64_t ns) {
  return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

#endif

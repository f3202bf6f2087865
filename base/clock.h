/* The clock of what is measured and waited for. */
#ifndef CGR_BASE_CLOCK_H
#define CGR_BASE_CLOCK_H

#include <time.h>

/* Milliseconds since some moment; never goes back. */
static inline double cgr__now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

#endif

/* Times of one side of a comparison, in blocks: its own block follows one of the other side's, so that other load on the
 * machine affects both. */
#ifndef CGR_PROFILES_SUPPORT_SERIES_H
#define CGR_PROFILES_SUPPORT_SERIES_H

#include <stdint.h>

/* "[device] [steps in a block] [blocks]" of a program's arguments; exits after telling how it is used. */
typedef struct bench_blocks {
  const char *device;
  int32_t steps, blocks;
} bench_blocks;
bench_blocks bench_read_blocks(int argc, char **argv);

typedef struct bench_series {
  double *times;          /* [blocks of `steps`] */
  double *medians, *p99s; /* [blocks] */
  int32_t steps, count, blocks;
} bench_series;

bench_series bench_series_open(int32_t steps, int32_t blocks);
static inline void bench_series_add(bench_series *series, double time) { series->times[series->count++] = time; }
/* After `steps` times. */
void bench_series_end_block(bench_series *series);
/* The median of all times, and of the blocks' 99th percentiles. */
void bench_series_close(bench_series *series, double *median, double *p99);

/* The median of ours / theirs over the pairs of blocks. */
double bench_ratio(const double *ours, const double *theirs, int32_t blocks);

#endif

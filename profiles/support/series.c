#include "profiles/support/series.h"

#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"

bench_blocks bench_read_blocks(int argc, char **argv) {
  bench_blocks b = { argc > 1 ? argv[1] : NULL, argc > 2 ? atoi(argv[2]) : 1000, argc > 3 ? atoi(argv[3]) : 50 };
  if (b.steps < 10 || b.steps > 10000 || b.blocks < 1 || b.blocks > 1000 || (argc > 1 && argv[1][0] == '-'))
    bench_fail("usage: %s [cuda:0|host] [steps in a block, 10 to 10000] [blocks, 1 to 1000]", argv[0]);
  return b;
}

bench_series bench_series_open(int32_t steps, int32_t blocks) {
  const size_t b = (size_t)blocks, n = (size_t)steps * b;
  bench_series s = { malloc(n * sizeof(double)), malloc(b * sizeof(double)), malloc(b * sizeof(double)), steps, 0, 0 };
  return s;
}

void bench_series_end_block(bench_series *s) {
  double *block = malloc((size_t)s->steps * sizeof *block);
  memcpy(block, s->times + s->count - s->steps, (size_t)s->steps * sizeof *block);
  s->medians[s->blocks] = bench_quantile(block, s->steps, 0.5);
  s->p99s[s->blocks++] = bench_quantile(block, s->steps, 0.99);
  free(block);
}

void bench_series_close(bench_series *s, double *median, double *p99) {
  *median = bench_quantile(s->times, s->count, 0.5);
  *p99 = bench_quantile(s->p99s, s->blocks, 0.5);
  free(s->times);
  free(s->medians);
  free(s->p99s);
}

double bench_ratio(const double *ours, const double *theirs, int32_t blocks) {
  double *ratios = malloc((size_t)blocks * sizeof *ratios);
  for (int32_t b = 0; b < blocks; b++)
    ratios[b] = ours[b] / theirs[b];
  double median = bench_quantile(ratios, blocks, 0.5);
  free(ratios);
  return median;
}

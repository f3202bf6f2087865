/* A timestamp (kernels/stamp.h). */
#include "kernels/stamp.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/host/launchers.h"

void cgr__host_stamp(const void *pointer) {
  const cgr__stamp_args *a = (const cgr__stamp_args *)pointer;
  int64_t now = (int64_t)cgr__now_ns();
  uint64_t seq = a->state ? a->state->seq + 1 : 0;
  int64_t *row = cgr__stamp_row(a->stamps, seq, a->ring_depth, a->stride);
  if (a->first) {
    memset(row, 0, (size_t)a->stride * sizeof *row);
    row[0] = (int64_t)seq;
  }
  for (int i = 0; i < CGR__STAMP_WORDS; i++)
    if (a->word[i] > 0)
      row[a->word[i]] = now;
}

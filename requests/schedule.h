/* A schedule of a batch's steps: for each step, how many of its rows have pages up to it and no further. A step that no row is
 * due at needs no check of the rows. The schedule holds only numbers, so a row that gets a page moves without touching others. A
 * row that fits beyond the horizon is due at the horizon, and must be checked again then.
 */
#ifndef CGR_REQUESTS_SCHEDULE_H
#define CGR_REQUESTS_SCHEDULE_H

#include "requests/rows.h"

#define CGR__SCHEDULE_STEPS 4096 /* a power of two */
#define CGR__SCHEDULE_HORIZON (CGR__SCHEDULE_STEPS - 1)

/* Whether no row can lack a page for step `step`, counted as when the rows were scheduled. */
static inline bool cgr__schedule_is_free(const cgr__schedule *schedule, uint64_t step) {
  return schedule[step % CGR__SCHEDULE_STEPS] == 0;
}

/* The deadline of a row for which `fit` steps fit from step `step` on. */
static inline int16_t cgr__schedule_add(cgr__schedule *schedule, uint64_t step, int32_t fit) {
  fit = fit < 0 ? 0 : fit < CGR__SCHEDULE_HORIZON ? fit : CGR__SCHEDULE_HORIZON;
  uint64_t deadline = (step + (uint64_t)fit) % CGR__SCHEDULE_STEPS;
  schedule[deadline]++;
  return (int16_t)deadline;
}

static inline void cgr__schedule_remove(cgr__schedule *schedule, int16_t deadline) { schedule[deadline]--; }

/* Steps of `query_len` tokens each, at least one, that fit into the row when it has `computed`: none without the pages that the
 * first of them sees, and if that one has them the others do, which see nothing before. Most rows decode: no division for them.
 */
static inline int32_t cgr__steps_that_fit(const cgr__row *row, int32_t computed, int32_t query_len) {
  int32_t room = computed - row->slack < row->least ? 0 : row->capacity - computed;
  return room <= 0 || query_len == 1 ? room : room / query_len;
}

#endif

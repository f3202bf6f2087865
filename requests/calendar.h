/* A calendar of a batch's steps: for each step, how many of its rows have pages for no further step. A step whose day is empty
 * needs no look at the rows. The calendar holds only numbers, so a row that gets a page moves without touching others. A row that
 * fits for longer than the calendar reaches is filed under its furthest day, and must be looked at again when that day comes. */
#ifndef CGR_REQUESTS_CALENDAR_H
#define CGR_REQUESTS_CALENDAR_H

#include "requests/rows.h"

#define CGR__CALENDAR_DAYS 4096 /* a power of two */
#define CGR__CALENDAR_REACH (CGR__CALENDAR_DAYS - 1)

/* Whether no row can lack a page for step `step`, counted as when the rows were filed. */
static inline bool cgr__calendar_is_free(const cgr__calendar *calendar, uint64_t step) {
  return calendar[step % CGR__CALENDAR_DAYS] == 0;
}

/* The day of a row for which `fit` steps fit from step `step` on. */
static inline int16_t cgr__calendar_file(cgr__calendar *calendar, uint64_t step, int32_t fit) {
  fit = fit < 0 ? 0 : fit < CGR__CALENDAR_REACH ? fit : CGR__CALENDAR_REACH;
  uint64_t day = (step + (uint64_t)fit) % CGR__CALENDAR_DAYS;
  calendar[day]++;
  return (int16_t)day;
}

static inline void cgr__calendar_unfile(cgr__calendar *calendar, int16_t day) { calendar[day]--; }

/* Steps of `query_len` tokens each, at least one, that fit into the row when it has `computed`: none without the pages that the
 * first of them sees, and if that one has them the others do, which see nothing before. Most rows decode: no division for them.
 */
static inline int32_t cgr__steps_that_fit(const cgr__row *row, int32_t computed, int32_t query_len) {
  int32_t room = computed < row->least ? 0 : row->capacity - computed;
  return room <= 0 || query_len == 1 ? room : room / query_len;
}

#endif

/* Stops: rows that a step ends. What the host knows of them.
 *
 * The device ends a row, and its later steps do nothing for it. The host learns of it with the result of the step that ended it,
 * and adds the row's tokens meanwhile as if it went on. So
 * - the result bears the length that the row has, which is exact then, and stays so: steps of a row that has ended add nothing;
 * - results are taken in the order of the steps while one may end rows (guesses.h), so that after a loss the host knows every row
 *   that has ended before lengths are sent: a length that is sent says whether its row has ended. */
#ifndef CGR_REQUESTS_STOPS_H
#define CGR_REQUESTS_STOPS_H

#include "cgr/stops.h"
#include "requests/guesses.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the row's stops; a row that has ended goes on. The caller checks that it is not in the prepared step. `stops` is a copy
 * that cgr__sized_read made. */
cgr_status cgr__rows_set_stops(cgr__rows *rows, int32_t row, const cgr_stops *stops, int32_t vocab_size);
/* Whether the row can end. */
static inline bool cgr__row_has_stops(const cgr__rows *rows, int32_t row) {
  const cgr__data *data = &rows->data[rows->has_stops ? rows->stops : 0];
  const int32_t *words = rows->has_stops ? data->words_of + (int64_t)row * data->words : NULL;
  return words && (words[CGR__STOPS_MAX_LENGTH] > 0 || words[CGR__STOPS_COUNT] > 0);
}

/* Whether a step may have ended it whose result has not been taken. */
static inline bool cgr__row_may_have_ended(const cgr__rows *rows, int32_t row) {
  const cgr__row *entry = &rows->row[row];
  const cgr__members *members = &cgr__rows_batches_of(rows, row)->members;
  const uint64_t last = entry->place >= 0 && entry->since != members->steps ? members->last_seq : entry->last_seq;
  return rows->has_notes && last > rows->guesses.taken && !entry->ended && cgr__row_has_stops(rows, row);
}

/* Step `seq` was launched, in a runtime with stops: its result is to be taken. */
static inline void cgr__stops_note(cgr__rows *rows, uint64_t seq) {
  if (!rows->has_notes)
    rows->guesses.taken = seq - 1;
  rows->guesses.stops_upto = seq;
  rows->has_notes = true;
}
/* Step `seq` has completed and has ended rows: `ended` (cgr_end) is of each request, `lengths` of those. */
void cgr__stops_take(cgr__rows *rows, uint64_t seq, const cgr__batch_layout *batch, const int32_t *ended, const int32_t *lengths,
                     int32_t num_requests);

#ifdef __cplusplus
}
#endif

#endif

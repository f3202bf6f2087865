/* The steady batch: steps of one batch layout, whose rows are brought up to date only when they are read. */
#include "requests/steady.h"

#include <string.h>

#include "requests/schedule.h"

void cgr__steady_add_pending(cgr__rows *rows, cgr__steady *steady) {
  const cgr__batch_layout *batch = steady->batch;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__row *row = &rows->row[batch->rows[i]];
    row->computed += steady->pending * batch->query_lens[i];
    row->has_token |= batch->query_lens[i] > 0;
    row->shared_prefix &= batch->query_lens[i] == 0;
    row->last_seq = steady->last_seq;
  }
  steady->pending = 0;
}

void cgr__rows_leave_steady(cgr__rows *rows) {
  cgr__steady *steady = &rows->batches->steady;
  cgr__rows_sync(rows);
  steady->headroom = 0;
  steady->scheduled = false;
  steady->has_tokens = false; /* until it has been launched again */
}

/* ---------------------------------------------------------------------------------------------------------------- schedule */

cgr__steady *cgr__steady_of_row(const cgr__rows *rows, int32_t row) {
  cgr__steady *steady = &rows->batches->steady;
  return steady->scheduled && rows->row[row].mark == steady->mark ? steady : NULL;
}

/* The pending steps are not added to the row yet, but the schedule has counted them already. */
static void schedule_steady_row(cgr__steady *steady, cgr__row *row) {
  int32_t query_len = steady->batch->query_len;
  int32_t fit = cgr__steps_that_fit(row, row->computed + steady->pending * query_len, query_len);
  row->steady_deadline = cgr__schedule_add(steady->schedule, steady->steps, fit);
}

void cgr__steady_schedule(cgr__rows *rows, cgr__lane_batches *batches) {
  cgr__steady *steady = &batches->steady;
  const cgr__batch_layout *batch = steady->batch;
  memset(steady->schedule, 0, CGR__SCHEDULE_STEPS * sizeof *steady->schedule);
  for (int32_t i = 0; i < batch->num_requests; i++)
    schedule_steady_row(steady, &rows->row[batch->rows[i]]);
  steady->mark = rows->ticket;
  steady->scheduled = true;
}

/* A row that was validated again since keeps its deadline, which is too early for it: no harm. */
void cgr__steady_add_pages(cgr__rows *rows, int32_t row) {
  cgr__steady *steady = cgr__steady_of_row(rows, row);
  if (!steady)
    return;
  cgr__schedule_remove(steady->schedule, rows->row[row].steady_deadline);
  schedule_steady_row(steady, &rows->row[row]);
}

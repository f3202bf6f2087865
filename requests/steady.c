/* The steady batch: steps of one batch layout, whose rows are brought up to date only when they are read. */
#include <string.h>

#include "requests/schedule.h"

void cgr__rows_sync(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  if (steady->pending == 0)
    return;
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
  cgr__rows_sync(rows);
  rows->steady.headroom = 0;
  rows->steady.scheduled = false;
  rows->steady.has_tokens = false; /* until it has been launched again */
}

/* ---------------------------------------------------------------------------------------------------------------- schedule */

/* The pending steps are not added to the row yet, but the schedule has counted them already. */
static void schedule_steady_row(cgr__rows *rows, cgr__row *row) {
  const cgr__steady *steady = &rows->steady;
  int32_t query_len = steady->batch->query_len;
  int32_t fit = cgr__steps_that_fit(row, row->computed + steady->pending * query_len, query_len);
  row->steady_deadline = cgr__schedule_add(steady->schedule, steady->steps, fit);
}

void cgr__steady_schedule(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  const cgr__batch_layout *batch = steady->batch;
  memset(steady->schedule, 0, CGR__SCHEDULE_STEPS * sizeof *steady->schedule);
  for (int32_t i = 0; i < batch->num_requests; i++)
    schedule_steady_row(rows, &rows->row[batch->rows[i]]);
  steady->mark = rows->ticket;
  steady->scheduled = true;
}

/* A row that was validated again since keeps its deadline, which is too early for it: no harm. */
void cgr__steady_add_pages(cgr__rows *rows, int32_t index) {
  cgr__row *row = &rows->row[index];
  if (!rows->steady.scheduled || row->mark != rows->steady.mark)
    return;
  cgr__schedule_remove(rows->steady.schedule, row->steady_deadline);
  schedule_steady_row(rows, row);
}

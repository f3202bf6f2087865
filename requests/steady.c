/* The steady batch: steps of one batch layout, whose rows are brought up to date only when somebody asks. */
#include <string.h>

#include "requests/calendar.h"

void cgr__rows_settle(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  if (steady->pending == 0)
    return;
  const cgr__batch_layout *batch = steady->batch;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__row *row = &rows->row[batch->rows[i]];
    row->computed += steady->pending * batch->query_lens[i];
    row->has_token |= batch->query_lens[i] > 0;
    row->adopted &= batch->query_lens[i] == 0;
    row->last_seq = steady->last_seq;
  }
  steady->pending = 0;
}

void cgr__rows_leave_steady(cgr__rows *rows) {
  cgr__rows_settle(rows);
  rows->steady.headroom = 0;
  rows->steady.filed = false;
  rows->steady.has_tokens = false; /* until it has been launched again */
}

/* ---------------------------------------------------------------------------------------------------------------- calendar */

/* The pending steps are not added to the row yet, but the calendar has counted them already. */
static void file(cgr__rows *rows, cgr__row *row) {
  const cgr__steady *steady = &rows->steady;
  int32_t query_len = steady->batch->query_len;
  int32_t fit = cgr__steps_that_fit(row, row->computed + steady->pending * query_len, query_len);
  row->steady_day = cgr__calendar_file(steady->calendar, steady->steps, fit);
}

void cgr__steady_file(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  const cgr__batch_layout *batch = steady->batch;
  memset(steady->calendar, 0, CGR__CALENDAR_DAYS * sizeof *steady->calendar);
  for (int32_t i = 0; i < batch->num_requests; i++)
    file(rows, &rows->row[batch->rows[i]]);
  steady->mark = rows->ticket;
  steady->filed = true;
}

/* A row that another validation has seen since keeps its day, which comes too early for it: no harm. */
void cgr__steady_gain(cgr__rows *rows, int32_t index) {
  cgr__row *row = &rows->row[index];
  if (!rows->steady.filed || row->mark != rows->steady.mark)
    return;
  cgr__calendar_unfile(rows->steady.calendar, row->steady_day);
  file(rows, row);
}

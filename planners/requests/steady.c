/* The steady batch: steps of one composition, whose rows are brought up to date only when somebody asks. */
#include "planners/requests/rows.h"

void cgr__rows_settle(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  if (steady->pending == 0)
    return;
  const cgr__composition *batch = steady->batch;
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__row *row = &rows->row[batch->rows[i]];
    row->computed += steady->pending * batch->query_lens[i];
    row->has_token |= batch->query_lens[i] > 0;
    row->last_seq = steady->last_seq;
  }
  steady->pending = 0;
}

void cgr__rows_leave_steady(cgr__rows *rows) {
  cgr__rows_settle(rows);
  rows->steady.headroom = 0;
}

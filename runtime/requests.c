/* Request rows: the calls of cgr.h over planners/requests/rows.h. */
#include "runtime/runtime.h"

/* A row of the prepared step is spoken for. */
static cgr_status check_not_prepared(cgr_runtime *rt, const char *function, int32_t row) {
  const cgr__prepared *prepared = &rt->prepared;
  if (prepared->ticket == 0)
    return CGR_OK;
  const int32_t *rows = prepared->plan.same_batch ? rt->rows.steady_rows : rt->batch_rows;
  for (int32_t i = 0; i < prepared->plan.num_requests; i++)
    if (rows[i] == row)
      return cgr__fail(CGR_ERROR_STATE, "%s: row %d is in the prepared step, expected the step to be launched or cancelled first",
                       function, row);
  return CGR_OK;
}

cgr_status cgr_request_open(cgr_runtime *runtime, int32_t *row) {
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_open"));
  CGR__REQUIRE(row, "cgr_request_open");
  return cgr__rows_open(&runtime->rows, row);
}

cgr_status cgr_request_close(cgr_runtime *runtime, int32_t row) {
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_close"));
  CGR__TRY(cgr__rows_check(&runtime->rows, "cgr_request_close", row));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_close", row));
  return cgr__rows_close(&runtime->rows, row);
}

cgr_status cgr_request_set_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                 int32_t count) {
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_set_pages"));
  if (group < 0 || group >= runtime->setup.config.num_groups)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_pages: group is %d, expected 0 .. %d", group,
                     runtime->setup.config.num_groups - 1);
  return cgr__rows_set_pages(&runtime->rows, row, first, pages, count);
}

cgr_status cgr_request_rewind(cgr_runtime *runtime, int32_t row, int32_t num_tokens) {
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_rewind"));
  CGR__TRY(cgr__rows_check(&runtime->rows, "cgr_request_rewind", row));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_rewind", row));
  return cgr__rows_rewind(&runtime->rows, row, num_tokens);
}

cgr_status cgr_request_get_info(cgr_runtime *runtime, int32_t row, cgr_request_info *info) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_request_get_info"));
  CGR__REQUIRE(info, "cgr_request_get_info");
  if (info->size < sizeof *info)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_request_get_info: info->size is %u, expected %zu: use CGR_REQUEST_INFO_INIT",
                     info->size, sizeof *info);
  if (row < 0 || row >= runtime->rows.max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_get_info: row is %d, expected 0 .. %d", row,
                     runtime->rows.max_rows - 1);
  cgr__rows_settle(&runtime->rows);
  const cgr__row *entry = &runtime->rows.row[row];
  info->open = entry->open;
  info->num_tokens = entry->open ? entry->computed : 0;
  info->num_pages = entry->open ? entry->num_pages : 0;
  info->last_seq = entry->last_seq;
  return CGR_OK;
}

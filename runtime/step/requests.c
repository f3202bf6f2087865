/* Request rows: the calls of requests.h over requests/. */
#include "base/sized.h"
#include "cgr/programs.h"
#include "requests/drafts.h"
#include "requests/page_edits.h"
#include "requests/stops.h"
#include "runtime/runtime.h"

/* The rows of the prepared step are taken: if one lost a page now, that step would still write the page, while last_seq already
 * lets another request have it. */
static cgr_status check_not_prepared(const cgr_runtime *rt, const char *function, int32_t row) {
  const cgr__prepared *prepared = &rt->lane.prepared;
  const cgr__batch_layout *batch = prepared->batch.batch_layout;
  bool members = cgr__batch_is_of_members(&prepared->batch);
  bool is_in = prepared->ticket != 0 && members && rt->rows.row[row].place >= 0;
  for (int32_t i = 0; prepared->ticket != 0 && !members && !is_in && i < batch->num_requests; i++)
    is_in = batch->rows[i] == row;
  if (is_in)
    return cgr__fail(CGR_ERROR_STATE,
                     "%s: row %d is in the prepared step, expected that step to be launched or cancelled first "
                     "(cgr_step_launch, cgr_step_cancel)",
                     function, row);
  return CGR_OK;
}

static cgr_status check_row_idle(cgr_runtime *rt, const char *function, int32_t row) {
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  return cgr__rows_check(&rt->rows, function, row);
}

cgr_status cgr_request_open(cgr_runtime *runtime, uint64_t tag, int32_t *row) {
  CGR__ONE_THREAD(runtime, "cgr_request_open");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_open"));
  CGR__REQUIRE(row, "cgr_request_open");
  return cgr__rows_open(&runtime->rows, tag, row);
}

cgr_status cgr_request_close(cgr_runtime *runtime, int32_t row) {
  CGR__ONE_THREAD(runtime, "cgr_request_close");
  CGR__TRY(check_row_idle(runtime, "cgr_request_close", row));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_close", row));
  return cgr__rows_close(&runtime->rows, row);
}

/* That no step of another request is still at work in these pages. */
static cgr_status check_pages_free(cgr_runtime *rt, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                   int32_t count) {
  uint64_t completed = cgr__ring_completed(&rt->lane.ring);
  cgr_status status = cgr__ledger_check_pages(&rt->rows, row, group, first, pages, count, completed);
  return status == CGR_OK ? CGR_OK : cgr__runtime_report(rt, status);
}

cgr_status cgr_request_set_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                                 int32_t count) {
  CGR__ONE_THREAD(runtime, "cgr_request_set_pages");
  CGR__TRY(check_row_idle(runtime, "cgr_request_set_pages", row));
  CGR__TRY(cgr__rows_check_group(&runtime->rows, "cgr_request_set_pages", group));
  if (cgr__rows_replaces_pages(&runtime->rows, row, group, first, pages, count))
    CGR__TRY(check_not_prepared(runtime, "cgr_request_set_pages", row));
  if (runtime->checks)
    CGR__TRY(check_pages_free(runtime, row, group, first, pages, count));
  return cgr__rows_set_pages(&runtime->rows, row, group, first, pages, count);
}

cgr_status cgr_request_drop_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t first, int32_t count) {
  CGR__ONE_THREAD(runtime, "cgr_request_drop_pages");
  CGR__TRY(check_row_idle(runtime, "cgr_request_drop_pages", row));
  CGR__TRY(cgr__rows_check_group(&runtime->rows, "cgr_request_drop_pages", group));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_drop_pages", row));
  return cgr__rows_drop_pages(&runtime->rows, row, group, first, count);
}

/* ------------------------------------------------------------------------------------------------------- pages of many rows */

/* A row of checked edits that would lose a page and is in the prepared step; -1: none. */
static int32_t prepared_row_of(const cgr_runtime *rt, const cgr__page_edits *edits) {
  const cgr__prepared *prepared = &rt->lane.prepared;
  const cgr__batch_layout *batch = prepared->batch.batch_layout;
  const cgr__row_pages *of = rt->rows.group[edits->group].row;
  bool members = cgr__batch_is_of_members(&prepared->batch);
  if (edits->num_losing == 0 || prepared->ticket == 0)
    return -1;
  for (int32_t i = 0; members && i < edits->num_rows; i++)
    if (of[edits->rows[i]].edited == CGR__EDITED_LOSES && rt->rows.row[edits->rows[i]].place >= 0)
      return edits->rows[i];
  for (int32_t i = 0; !members && i < batch->num_requests; i++)
    if (of[batch->rows[i]].edited == CGR__EDITED_LOSES)
      return batch->rows[i];
  return -1;
}

/* What single calls check before the rows do. */
static cgr_status check_edits(cgr_runtime *rt, const cgr__page_edits *edits) {
  const int32_t row = prepared_row_of(rt, edits);
  if (row >= 0)
    return cgr__fail(
        CGR_ERROR_STATE,
        "%s: rows[%d] is row %d, which is in the prepared step, expected that step to be launched or cancelled first "
        "(cgr_step_launch, cgr_step_cancel)",
        edits->function, cgr__page_edits_entry_of(edits, row), row);
  if (!rt->checks || edits->drops)
    return CGR_OK;
  cgr_status status = cgr__ledger_check_edits(&rt->rows, edits, cgr__ring_completed(&rt->lane.ring));
  return status == CGR_OK ? CGR_OK : cgr__runtime_report(rt, status);
}

static cgr_status make_edits(cgr_runtime *rt, cgr__page_edits *edits) {
  CGR__TRY(cgr__runtime_check_outside(rt, edits->function));
  CGR__TRY(cgr__page_edits_check(&rt->rows, edits));
  cgr_status status = check_edits(rt, edits);
  if (status == CGR_OK)
    cgr__page_edits_apply(&rt->rows, edits);
  else
    cgr__page_edits_cancel(&rt->rows, edits);
  return status;
}

cgr_status cgr_requests_set_pages(cgr_runtime *runtime, int32_t group, int32_t num_rows, const int32_t *rows,
                                  const int32_t *firsts, const int32_t *counts, const int32_t *pages) {
  CGR__ONE_THREAD(runtime, "cgr_requests_set_pages");
  cgr__page_edits edits = { "cgr_requests_set_pages", false, group, num_rows, rows, firsts, counts, pages, 0 };
  return make_edits(runtime, &edits);
}

cgr_status cgr_requests_drop_pages(cgr_runtime *runtime, int32_t group, int32_t num_rows, const int32_t *rows,
                                   const int32_t *firsts, const int32_t *counts) {
  CGR__ONE_THREAD(runtime, "cgr_requests_drop_pages");
  cgr__page_edits edits = { "cgr_requests_drop_pages", true, group, num_rows, rows, firsts, counts, NULL, 0 };
  return make_edits(runtime, &edits);
}

/* ----------------------------------------------------------------------------------------------------------------- lengths */

cgr_status cgr_request_set_length(cgr_runtime *runtime, int32_t row, int32_t num_tokens) {
  CGR__ONE_THREAD(runtime, "cgr_request_set_length");
  CGR__TRY(check_row_idle(runtime, "cgr_request_set_length", row));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_set_length", row));
  return cgr__rows_set_length(&runtime->rows, row, num_tokens);
}

cgr_status cgr_request_set_other_length(cgr_runtime *runtime, int32_t row, int32_t set, int32_t num_tokens) {
  CGR__ONE_THREAD(runtime, "cgr_request_set_other_length");
  CGR__TRY(check_row_idle(runtime, "cgr_request_set_other_length", row));
  CGR__TRY(check_not_prepared(runtime, "cgr_request_set_other_length", row));
  return cgr__rows_set_other_length(&runtime->rows, row, set, num_tokens);
}

static cgr_status set_stops(cgr_runtime *rt, int32_t row, const cgr_stops *stops) {
  cgr_stops copy;
  CGR__TRY(check_row_idle(rt, "cgr_request_set_stops", row));
  CGR__TRY(check_not_prepared(rt, "cgr_request_set_stops", row));
  CGR__TRY(cgr__sized_read("cgr_request_set_stops: stops", "CGR_STOPS_INIT", stops, &copy, sizeof copy));
  return cgr__rows_set_stops(&rt->rows, row, &copy, rt->setup.config.vocab_size);
}

cgr_status cgr_request_set_stops(cgr_runtime *runtime, int32_t row, const cgr_stops *stops) {
  CGR__ONE_THREAD(runtime, "cgr_request_set_stops");
  return set_stops(runtime, row, stops);
}

/* The caller has checked the row. */
static cgr_status check_draft(const cgr_runtime *rt, const char *function, int32_t program) {
  const int32_t count = rt->setup.config.num_programs;
  if (program > 0 && program < count)
    return CGR_OK;
  if (count == 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: program is %d, expected a draft: num_programs is 1", function, program);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: program is %d, expected 1 .. %d (cgr_request_set_length sets that of 0)",
                   function, program, count - 1);
}

cgr_status cgr_program_set_length(cgr_runtime *runtime, int32_t row, int32_t program, int32_t num_tokens) {
  CGR__ONE_THREAD(runtime, "cgr_program_set_length");
  CGR__TRY(check_row_idle(runtime, "cgr_program_set_length", row));
  CGR__TRY(check_draft(runtime, "cgr_program_set_length", program));
  CGR__TRY(check_not_prepared(runtime, "cgr_program_set_length", row));
  return cgr__drafts_set_length(&runtime->rows, row, program, num_tokens);
}

cgr_status cgr_program_get_length(cgr_runtime *runtime, int32_t row, int32_t program, int32_t *most, int32_t *least) {
  CGR__ONE_THREAD(runtime, "cgr_program_get_length");
  CGR__TRY(cgr__runtime_check(runtime, "cgr_program_get_length"));
  CGR__TRY(cgr__rows_check(&runtime->rows, "cgr_program_get_length", row));
  CGR__TRY(cgr__runtime_check_program(runtime, "cgr_program_get_length", "program", program));
  cgr__members_sync(&runtime->rows, row);
  const cgr__row *target = &runtime->rows.row[row];
  const cgr__draft_row *draft = program > 0 ? &runtime->rows.draft[program][row] : NULL;
  if (most)
    *most = draft ? draft->computed : target->computed;
  if (least)
    *least = draft ? cgr__draft_least_computed(draft) : cgr__row_least_computed(target);
  return CGR_OK;
}

cgr_status cgr_request_get_info(cgr_runtime *runtime, int32_t row, cgr_request_info *info) {
  CGR__ONE_THREAD(runtime, "cgr_request_get_info");
  cgr_request_info full = CGR_REQUEST_INFO_INIT;
  CGR__TRY(cgr__runtime_check(runtime, "cgr_request_get_info"));
  CGR__TRY(cgr__sized_check("cgr_request_get_info: info", "CGR_REQUEST_INFO_INIT", info));
  if (row < 0 || row >= runtime->rows.limits->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_get_info: row is %d, expected 0 .. %d", row,
                     runtime->rows.limits->max_rows - 1);
  cgr__members_sync(&runtime->rows, row);
  const cgr__row *entry = &runtime->rows.row[row];
  full.last.seq = entry->last_seq;
  full.open = entry->open;
  if (entry->open) {
    full.num_tokens = entry->computed;
    full.min_tokens = cgr__row_least_computed(entry);
    full.has_token = entry->has_token;
    full.ended = entry->ended;
    full.tag = entry->tag;
    for (int32_t set = 1; set < runtime->setup.config.num_length_sets; set++)
      full.other_lengths[set] = cgr__rows_other_length(&runtime->rows, row, set);
  }
  cgr__sized_write(info, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_request_get_pages(cgr_runtime *runtime, int32_t row, int32_t group, int32_t *first, int32_t *end) {
  CGR__ONE_THREAD(runtime, "cgr_request_get_pages");
  CGR__TRY(cgr__runtime_check(runtime, "cgr_request_get_pages"));
  CGR__REQUIRE(first, "cgr_request_get_pages");
  CGR__REQUIRE(end, "cgr_request_get_pages");
  CGR__TRY(cgr__rows_check(&runtime->rows, "cgr_request_get_pages", row));
  CGR__TRY(cgr__rows_check_group(&runtime->rows, "cgr_request_get_pages", group));
  *first = runtime->rows.group[group].row[row].first;
  *end = runtime->rows.group[group].row[row].end;
  return CGR_OK;
}

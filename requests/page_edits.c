#include "requests/page_edits.h"

#include "base/status.h"
#include "requests/changes.h"
#include "requests/members.h"

/* --------------------------------------------------------------------------------------------------------------- arguments */

static int64_t sum_counts(const cgr__page_edits *edits) {
  int64_t sum = 0;
  for (int32_t i = 0; edits->counts && i < edits->num_rows; i++)
    sum += edits->counts[i] > 0 ? edits->counts[i] : 0;
  return edits->counts ? sum : edits->num_rows;
}

static cgr_status check_arrays(const cgr__rows *rows, const cgr__page_edits *edits) {
  const char *function = edits->function;
  CGR__TRY(cgr__rows_check_group(rows, function, edits->group));
  if (rows->group[edits->group].engine_table)
    return cgr__fail(CGR_ERROR_STATE, "%s: group %d has the engine's page_table, expected the library's", function, edits->group);
  if (edits->num_rows < 0 || edits->num_rows > rows->limits->max_rows) /* no row is in one call twice */
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_rows is %d, expected 0 .. %d (max_rows)", function, edits->num_rows,
                     rows->limits->max_rows);
  if (edits->num_rows == 0)
    return CGR_OK;
  if (!edits->rows || !edits->firsts)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected %d %s%s", function, edits->rows ? "firsts" : "rows",
                     edits->num_rows, edits->rows ? "first page" : "row", cgr__plural(edits->num_rows));
  int64_t num_pages = edits->drops || edits->pages ? 0 : sum_counts(edits);
  if (num_pages > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: pages is NULL, expected %lld page number%s (%s)", function,
                     (long long)num_pages, cgr__plural(num_pages), edits->counts ? "the sum of counts" : "num_rows");
  return CGR_OK;
}

static cgr_status check_row(const cgr__rows *rows, const cgr__page_edits *edits, const cgr__page_edit *e) {
  if (e->row < 0 || e->row >= rows->limits->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: rows[%d] is %d, expected 0 .. %d", e->function, e->entry, e->row,
                     rows->limits->max_rows - 1);
  if (!rows->row[e->row].open)
    return cgr__fail(CGR_ERROR_ROW_CLOSED, "%s: rows[%d] is row %d, which is closed, expected one that cgr_request_open gave",
                     e->function, e->entry, e->row);
  if (rows->group[e->group].row[e->row].edited)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "%s: rows[%d] and rows[%d] are both %d, expected each row once: join its pages in one entry, or make another "
        "call",
        e->function, cgr__page_edits_entry_of(edits, e->row), e->entry, e->row);
  return CGR_OK;
}

int32_t cgr__page_edits_entry_of(const cgr__page_edits *edits, int32_t row) {
  int32_t entry = 0;
  while (edits->rows[entry] != row)
    entry++;
  return entry;
}

/* ------------------------------------------------------------------------------------------------------------------- check */

/* What most edits are: one page after those that the row has. False: it is another one, or a bad one. */
static inline bool takes_append(const cgr__rows *rows, const cgr__page_group *group, int32_t row, int32_t first, int32_t page) {
  if (row < 0 || row >= rows->limits->max_rows)
    return false;
  cgr__row_pages *has = &group->row[row];
  if (!rows->row[row].open || has->edited || first != has->end || first >= group->pages_per_row || page < 0 ||
      page >= group->num_pages || page == group->read_trash || page == group->write_trash)
    return false;
  uint64_t bit, *word = cgr__rows_filter_word(group, row, page, &bit);
  if (*word & bit) /* it may be a page that the row has */
    return false;
  *word |= bit;
  has->edited = CGR__EDITED_APPENDS;
  return true;
}

static cgr_status check_edit(cgr__rows *rows, cgr__page_edits *edits, const cgr__page_edit *e) {
  CGR__TRY(check_row(rows, edits, e));
  if (edits->drops)
    CGR__TRY(cgr__rows_check_drop_pages(rows, e));
  else
    CGR__TRY(cgr__rows_check_set_pages(rows, e));
  bool loses = edits->drops || cgr__rows_replaces_pages(rows, e->row, e->group, e->first, e->pages, e->count);
  edits->num_losing += loses;
  rows->group[e->group].row[e->row].edited = loses ? CGR__EDITED_LOSES : CGR__EDITED_GAINS;
  return CGR_OK;
}

static void forget_edits(cgr__rows *rows, const cgr__page_edits *edits, int32_t num_rows) {
  for (int32_t i = 0; i < num_rows; i++)
    rows->group[edits->group].row[edits->rows[i]].edited = CGR__EDITED_NOT;
}

/* `group` is a copy: stores to rows cannot change it, so the compiler need not read it again. */
static cgr_status check_edits(cgr__rows *rows, cgr__page_edits *edits, const cgr__page_group group) {
  const cgr__page_edits given = *edits;
  cgr__page_edit edit = cgr__page_edits_begin(&given);
  while (cgr__page_edits_next(&given, &edit)) {
    if (edit.count == 1 && !given.drops && takes_append(rows, &group, edit.row, edit.first, *edit.pages))
      continue;
    const cgr__page_edit copy = edit;
    cgr_status status = check_edit(rows, edits, &copy);
    if (status == CGR_OK)
      continue;
    forget_edits(rows, &given, copy.entry);
    return status;
  }
  return CGR_OK;
}

cgr_status cgr__page_edits_check(cgr__rows *rows, cgr__page_edits *edits) {
  edits->num_losing = 0;
  CGR__TRY(check_arrays(rows, edits));
  return check_edits(rows, edits, rows->group[edits->group]);
}

/* ------------------------------------------------------------------------------------------------------------------- apply */

/* The front stays as it is. The row's capacity can only grow if this group bounded it. */
static inline void append_page(cgr__rows *rows, const cgr__page_group *group, int32_t row, int32_t g, int32_t page) {
  cgr__row_pages *has = &group->row[row];
  const int32_t at = has->end++;
  cgr__rows_table_of(group, row)[at] = page;
  has->set_end = has->end > has->set_end ? has->end : has->set_end;
  has->edited = CGR__EDITED_NOT;
  if (group->program > 0)
    cgr__rows_update_capacity(rows, row);
  else if ((int64_t)at * group->page_size <= rows->row[row].capacity)
    (void)cgr__rows_shortest_group(rows, row, 0, 0, &rows->row[row].capacity);
  cgr__members_add_pages(rows, row);
  cgr__changes_mark_new_page(rows, row, g, at);
}

static void apply_edits(cgr__rows *rows, const cgr__page_edits edits, const cgr__page_group group) {
  cgr__page_edit edit = cgr__page_edits_begin(&edits);
  while (cgr__page_edits_next(&edits, &edit)) {
    if (group.row[edit.row].edited == CGR__EDITED_APPENDS && !rows->has_ledger) {
      append_page(rows, &group, edit.row, edits.group, *edit.pages);
      continue;
    }
    const cgr__page_edit copy = edit;
    if (edits.drops)
      cgr__rows_apply_drop_pages(rows, &copy);
    else
      cgr__rows_apply_set_pages(rows, &copy);
    group.row[copy.row].edited = CGR__EDITED_NOT;
  }
}

void cgr__page_edits_apply(cgr__rows *rows, const cgr__page_edits *edits) {
  apply_edits(rows, *edits, rows->group[edits->group]);
}

void cgr__page_edits_cancel(cgr__rows *rows, const cgr__page_edits *edits) { forget_edits(rows, edits, edits->num_rows); }

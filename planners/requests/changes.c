#include "planners/requests/changes.h"

static void list(cgr__rows *rows, int32_t index) {
  cgr__row *row = &rows->row[index];
  if (row->listed)
    return;
  row->listed = true;
  rows->dirty[rows->num_dirty++] = index;
}

void cgr__changes_mark_length(cgr__rows *rows, int32_t row) {
  rows->row[row].dirty_computed = true;
  list(rows, row);
}

void cgr__changes_mark_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t end) {
  cgr__row_pages *pages = &rows->group[group].row[row];
  if (first >= end)
    return;
  if (pages->dirty_first == pages->dirty_end) {
    pages->dirty_first = first;
    pages->dirty_end = end;
  } else {
    pages->dirty_first = first < pages->dirty_first ? first : pages->dirty_first;
    pages->dirty_end = end > pages->dirty_end ? end : pages->dirty_end;
  }
  list(rows, row);
}

void cgr__changes_drop(cgr__rows *rows, int32_t row) {
  rows->row[row].dirty_computed = false;
  for (int32_t g = 0; g < rows->num_groups; g++)
    rows->group[g].row[row].dirty_first = rows->group[g].row[row].dirty_end = 0;
}

void cgr__changes_mark_all(cgr__rows *rows) {
  cgr__rows_leave_steady(rows);
  for (int32_t i = 0; i < rows->max_rows; i++) {
    if (!rows->row[i].open)
      continue;
    cgr__changes_mark_length(rows, i);
    for (int32_t g = 0; g < rows->num_groups; g++)
      cgr__changes_mark_pages(rows, i, g, 0, rows->group[g].row[i].set_end);
  }
}

int64_t cgr__changes_pending(const cgr__rows *rows) {
  int64_t words = 0;
  for (int32_t i = 0; i < rows->num_dirty; i++) {
    int32_t row = rows->dirty[i];
    words += rows->row[row].dirty_computed;
    for (int32_t g = 0; g < rows->num_groups; g++)
      words += rows->group[g].row[row].dirty_end - rows->group[g].row[row].dirty_first;
  }
  return words;
}

/* What the device's table must hold: entries that the row does not have are the read-trash page. */
static int32_t page_at(const cgr__page_group *group, int32_t row, int32_t index) {
  const cgr__row_pages *pages = &group->row[row];
  bool has = index >= pages->first && index < pages->end;
  return has ? group->pages[(int64_t)row * group->pages_per_row + index] : group->read_trash;
}

/* Page changes of one row in one group. */
static int32_t collect_pages(cgr__rows *rows, int32_t row, int32_t g, cgr__change *changes, int32_t capacity) {
  cgr__page_group *group = &rows->group[g];
  cgr__row_pages *pages = &group->row[row];
  int32_t count = 0;
  for (; count < capacity && pages->dirty_first < pages->dirty_end; count++) {
    int32_t index = pages->dirty_first++;
    changes[count] = (cgr__change){ CGR__CHANGE_PAGE | g << 8, row, index, page_at(group, row, index) };
  }
  return count;
}

/* Returns how many changes of a row fit; the row is clean when all did. */
static int32_t collect_row(cgr__rows *rows, int32_t row, cgr__change *changes, int32_t capacity) {
  int32_t count = 0;
  for (int32_t g = 0; g < rows->num_groups; g++)
    count += collect_pages(rows, row, g, changes + count, capacity - count);
  if (!rows->row[row].dirty_computed || count == capacity)
    return count;
  cgr__rows_settle(rows); /* a step of the steady batch may be pending on this row */
  rows->row[row].dirty_computed = false;
  changes[count++] = (cgr__change){ CGR__CHANGE_COMPUTED, row, 0, rows->row[row].computed };
  return count;
}

static bool is_clean(const cgr__rows *rows, int32_t row) {
  for (int32_t g = 0; g < rows->num_groups; g++)
    if (rows->group[g].row[row].dirty_first < rows->group[g].row[row].dirty_end)
      return false;
  return !rows->row[row].dirty_computed;
}

int32_t cgr__changes_collect(cgr__rows *rows, cgr__change *changes, int32_t capacity) {
  int32_t count = 0;
  while (rows->num_dirty > 0) {
    int32_t row = rows->dirty[rows->num_dirty - 1];
    count += collect_row(rows, row, changes + count, capacity - count);
    if (!is_clean(rows, row))
      return count;
    rows->row[row].listed = false;
    rows->num_dirty--;
  }
  return count;
}

void cgr__changes_restore(cgr__rows *rows, const cgr__change *changes, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    const cgr__change *change = &changes[i];
    if (!rows->row[change->row].open)
      continue;
    if (change->kind == CGR__CHANGE_COMPUTED)
      cgr__changes_mark_length(rows, change->row);
    else
      cgr__changes_mark_pages(rows, change->row, change->kind >> 8, change->index, change->index + 1);
  }
}

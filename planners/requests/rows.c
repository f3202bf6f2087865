#include "planners/requests/rows.h"

#include <string.h>

#include "base/status.h"

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t cgr__rows_bytes(int32_t max_rows, int32_t max_requests, int32_t pages_per_row) {
  size_t m = (size_t)max_rows, r = (size_t)max_requests;
  return rounded(m * sizeof(cgr__row)) + rounded(m * (size_t)pages_per_row * 4) + 2 * rounded(m * 4) + 2 * rounded(r * 4);
}

void cgr__rows_init(cgr__rows *rows, void *memory, int32_t max_rows, int32_t max_requests, int32_t pages_per_row) {
  unsigned char *at = memory;
  size_t m = (size_t)max_rows, r = (size_t)max_requests;
  rows->max_rows = max_rows;
  rows->pages_per_row = pages_per_row;
  rows->row = (cgr__row *)at;
  at += rounded(m * sizeof(cgr__row));
  rows->pages = (int32_t *)at;
  at += rounded(m * (size_t)pages_per_row * 4);
  rows->dirty = (int32_t *)at;
  at += rounded(m * 4);
  rows->free_rows = (int32_t *)at;
  at += rounded(m * 4);
  rows->steady_rows = (int32_t *)at;
  at += rounded(r * 4);
  rows->steady_lens = (int32_t *)at;
  rows->steady.num_requests = -1;
  for (int32_t i = 0; i < max_rows; i++)
    rows->free_rows[i] = max_rows - 1 - i; /* row 0 is given out first */
}

cgr_status cgr__rows_check(const cgr__rows *rows, const char *function, int32_t row) {
  if (row < 0 || row >= rows->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: row is %d, expected 0 .. %d", function, row, rows->max_rows - 1);
  if (!rows->row[row].open)
    return cgr__fail(CGR_ERROR_ROW_CLOSED, "%s: row %d is closed, expected one that cgr_request_open gave", function, row);
  return CGR_OK;
}

/* Enters a change of a row: from now on what was collected of it before is out of date. */
static void touch(cgr__rows *rows, int32_t index) {
  cgr__row *row = &rows->row[index];
  row->generation++;
  if (!row->listed) {
    row->listed = 1;
    rows->dirty[rows->num_dirty++] = index;
  }
}

void cgr__rows_settle(cgr__rows *rows) {
  cgr__steady *steady = &rows->steady;
  if (steady->pending == 0)
    return;
  for (int32_t i = 0; i < steady->num_requests; i++) {
    cgr__row *row = &rows->row[rows->steady_rows[i]];
    row->computed += steady->pending * rows->steady_lens[i];
    row->has_token |= rows->steady_lens[i] > 0;
    row->last_seq = steady->last_seq;
  }
  steady->pending = 0;
}

/* The rows are about to change under the steady batch. */
static void leave_steady(cgr__rows *rows) {
  cgr__rows_settle(rows);
  rows->steady.headroom = 0;
}

cgr_status cgr__rows_open(cgr__rows *rows, int32_t *row) {
  if (rows->num_open == rows->max_rows)
    return cgr__fail(CGR_ERROR_TOO_MANY_REQUESTS, "cgr_request_open: all %d rows are open, expected a closed one (max_rows)",
                     rows->max_rows);
  leave_steady(rows);
  int32_t index = rows->free_rows[rows->max_rows - 1 - rows->num_open];
  rows->num_open++;
  cgr__row *entry = &rows->row[index];
  entry->computed = 0;
  entry->num_pages = 0;
  entry->page_capacity = rows->engine_table ? rows->max_seq_len : 0;
  entry->dirty_first = entry->dirty_end = 0;
  entry->open = 1;
  entry->has_token = 0;
  entry->dirty_computed = 1;
  entry->last_seq = 0;
  touch(rows, index);
  *row = index;
  return CGR_OK;
}

cgr_status cgr__rows_close(cgr__rows *rows, int32_t row) {
  CGR__TRY(cgr__rows_check(rows, "cgr_request_close", row));
  leave_steady(rows);
  cgr__row *entry = &rows->row[row];
  entry->open = 0;
  entry->dirty_computed = 0;
  entry->dirty_first = entry->dirty_end = 0;
  entry->generation++;
  rows->num_open--;
  rows->free_rows[rows->max_rows - 1 - rows->num_open] = row;
  return CGR_OK;
}

static cgr_status check_pages(const cgr__rows *rows, int32_t row, int32_t first, const int32_t *pages, int32_t count) {
  const cgr__row *entry = &rows->row[row];
  if (rows->engine_table)
    return cgr__fail(CGR_ERROR_STATE, "cgr_request_set_pages: the group has an engine's page_table, expected none");
  if (count < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_pages: count is %d, expected at least 0", count);
  if (first < 0 || first > entry->num_pages)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_pages: first is %d, expected 0 .. %d (the pages set so far)",
                     first, entry->num_pages);
  if (count > rows->pages_per_row - first)
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG,
                     "cgr_request_set_pages: first + count is %lld, expected at most %d (max_seq_len)", (long long)first + count,
                     rows->pages_per_row);
  for (int32_t i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= rows->num_pages || pages[i] == rows->read_trash || pages[i] == rows->write_trash)
      return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                       "cgr_request_set_pages: pages[%d] is %d, expected 0 .. %lld other than the reserved pages %d and %d", i,
                       pages[i], (long long)rows->num_pages - 1, rows->read_trash, rows->write_trash);
  return CGR_OK;
}

cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t first, const int32_t *pages, int32_t count) {
  CGR__TRY(cgr__rows_check(rows, "cgr_request_set_pages", row));
  if (!pages && count != 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_request_set_pages: pages is NULL, expected %d page numbers", count);
  CGR__TRY(check_pages(rows, row, first, pages, count));
  if (count == 0)
    return CGR_OK;
  cgr__row *entry = &rows->row[row];
  memcpy(rows->pages + (int64_t)row * rows->pages_per_row + first, pages, (size_t)count * 4);
  int32_t end = first + count;
  if (entry->dirty_first == entry->dirty_end) {
    entry->dirty_first = first;
    entry->dirty_end = end;
  } else {
    entry->dirty_first = first < entry->dirty_first ? first : entry->dirty_first;
    entry->dirty_end = end > entry->dirty_end ? end : entry->dirty_end;
  }
  if (end > entry->num_pages) {
    entry->num_pages = end;
    int64_t capacity = (int64_t)end * rows->page_size;
    entry->page_capacity = capacity < rows->max_seq_len ? (int32_t)capacity : rows->max_seq_len;
  }
  touch(rows, row);
  return CGR_OK;
}

cgr_status cgr__rows_rewind(cgr__rows *rows, int32_t row, int32_t num_tokens) {
  CGR__TRY(cgr__rows_check(rows, "cgr_request_rewind", row));
  cgr__row *entry = &rows->row[row];
  if (num_tokens < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_rewind: num_tokens is %d, expected at least 0", num_tokens);
  if (num_tokens > rows->max_seq_len)
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG, "cgr_request_rewind: num_tokens is %d, expected at most %d (max_seq_len)",
                     num_tokens, rows->max_seq_len);
  if (num_tokens > entry->page_capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING, "cgr_request_rewind: num_tokens is %d, expected at most %d (the row's pages)",
                     num_tokens, entry->page_capacity);
  leave_steady(rows);
  entry->computed = num_tokens;
  entry->has_token = 0;
  entry->dirty_computed = 1;
  touch(rows, row);
  return CGR_OK;
}

int64_t cgr__rows_dirty_words(const cgr__rows *rows) {
  int64_t words = 0;
  for (int32_t i = 0; i < rows->num_dirty; i++) {
    const cgr__row *row = &rows->row[rows->dirty[i]];
    words += row->dirty_end - row->dirty_first + row->dirty_computed;
  }
  return words;
}

int32_t cgr__rows_collect(cgr__rows *rows, cgr__cursor *cursor, cgr__change *changes, int32_t capacity) {
  int32_t count = 0;
  for (; cursor->entry < rows->num_dirty; cursor->entry++, cursor->word = 0) {
    int32_t index = rows->dirty[cursor->entry];
    cgr__row *row = &rows->row[index];
    const int32_t *pages = rows->pages + (int64_t)index * rows->pages_per_row;
    int32_t num_pages = row->dirty_end - row->dirty_first;
    int32_t words = num_pages + row->dirty_computed;
    row->collected = row->generation;
    for (; cursor->word < words; cursor->word++) {
      if (count == capacity)
        return count;
      int32_t page = row->dirty_first + cursor->word;
      if (cursor->word < num_pages) {
        changes[count++] = (cgr__change){ CGR__CHANGE_PAGE, index, page, pages[page] };
        continue;
      }
      cgr__rows_settle(rows); /* a step of the steady batch may be pending on this row */
      changes[count++] = (cgr__change){ CGR__CHANGE_COMPUTED, index, 0, row->computed };
    }
  }
  return count;
}

void cgr__rows_commit(cgr__rows *rows, cgr__cursor upto) {
  int32_t kept = 0;
  for (int32_t i = 0; i < rows->num_dirty; i++) {
    int32_t index = rows->dirty[i];
    cgr__row *row = &rows->row[index];
    int unchanged = row->collected == row->generation;
    if (i < upto.entry && unchanged) {
      row->dirty_first = row->dirty_end = 0;
      row->dirty_computed = 0;
      row->listed = 0;
      continue;
    }
    if (i == upto.entry && unchanged && upto.word > 0) /* partly sent: only pages can be, the length is a row's last word */
      row->dirty_first += upto.word;
    rows->dirty[kept++] = index;
  }
  rows->num_dirty = kept;
}

void cgr__rows_forget_tokens(cgr__rows *rows) {
  leave_steady(rows);
  for (int32_t i = 0; i < rows->max_rows; i++)
    rows->row[i].has_token = 0;
}

void cgr__rows_all_dirty(cgr__rows *rows) {
  leave_steady(rows);
  for (int32_t i = 0; i < rows->max_rows; i++) {
    cgr__row *row = &rows->row[i];
    if (!row->open)
      continue;
    row->dirty_first = 0;
    row->dirty_end = row->num_pages;
    row->dirty_computed = 1;
    touch(rows, i);
  }
}

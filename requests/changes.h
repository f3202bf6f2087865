/* Changes of the rows' tables that have not reached the device.
 *
 * A change is dirty from the call that made it until a step takes it (cgr__changes_collect). A step that is not launched gives
 * its changes back (cgr__changes_restore). Values are read from the tables when a change is taken, so taking one twice is
 * harmless. */
#ifndef CGR_REQUESTS_CHANGES_H
#define CGR_REQUESTS_CHANGES_H

#include "buffers/ring_slot.h"
#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks a row's length, pages [first, end) of a group, or words [first, end) of its data. */
void cgr__changes_mark_length(cgr__rows *rows, int32_t row);
void cgr__changes_mark_draft(cgr__rows *rows, int32_t row, int32_t program); /* its length in a draft */
void cgr__changes_mark_data(cgr__rows *rows, int32_t row, int32_t buffer, int32_t first, int32_t end);
void cgr__changes_mark_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t end);

/* Notes that `words` more words of a row have changed, of the kind `dirty` (CGR__DIRTY_*). */
static inline void cgr__changes_list_row(cgr__rows *rows, int32_t index, int dirty, int32_t words) {
  cgr__row *row = &rows->row[index];
  row->dirty |= (uint8_t)dirty;
  rows->dirty_words += words;
  if (row->listed)
    return;
  row->listed = true;
  rows->dirty[rows->num_dirty++] = index;
}

/* The same as cgr__changes_mark_pages for the row's last page, which it has just got. Where nothing else is dirty, what is gone
 * is before the row's first page. */
static inline void cgr__changes_mark_new_page(cgr__rows *rows, int32_t row, int32_t group, int32_t page) {
  cgr__row_pages *pages = &rows->group[group].row[row];
  if (pages->dirty_first != pages->dirty_end) {
    cgr__changes_mark_pages(rows, row, group, page, page + 1);
    return;
  }
  pages->dirty_first = page;
  pages->dirty_end = page + 1;
  cgr__changes_list_row(rows, row, CGR__DIRTY_PAGES << group, 1);
}

/* Forgets the changes of a row that closes. */
void cgr__changes_drop(cgr__rows *rows, int32_t row);

/* Marks everything of every open row, pages that were taken away included: the device has lost a step. */
void cgr__changes_mark_all(cgr__rows *rows);

/* Rows that have changes now; words that are dirty. */
static inline int32_t cgr__changes_num_rows(const cgr__rows *rows) { return rows->num_dirty; }
int64_t cgr__changes_pending(const cgr__rows *rows);

/* Takes up to `capacity` changes; returns how many. */
int32_t cgr__changes_collect(cgr__rows *rows, cgr__change *changes, int32_t capacity);

/* Gives back changes that were taken but not launched. */
void cgr__changes_restore(cgr__rows *rows, const cgr__change *changes, int32_t count);

#ifdef __cplusplus
}
#endif

#endif

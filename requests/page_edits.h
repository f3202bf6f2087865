/* Calls that edit the pages of many rows: checked as a whole before any row changes. */
#ifndef CGR_REQUESTS_PAGE_EDITS_H
#define CGR_REQUESTS_PAGE_EDITS_H

#include "requests/pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arguments of such a call. */
typedef struct cgr__page_edits {
  const char *function;
  bool drops; /* else it sets */
  int32_t group, num_rows;
  const int32_t *rows, *firsts; /* [num_rows] */
  const int32_t *counts;        /* [num_rows]; NULL: one page each */
  const int32_t *pages;         /* one row's after the other's; of a drop NULL */
  int32_t num_losing;           /* rows that may lose a page, which have CGR__EDITED_LOSES; once the edits are checked */
} cgr__page_edits;

/* Goes through the edits: begin, then next until it is false. */
static inline cgr__page_edit cgr__page_edits_begin(const cgr__page_edits *edits) {
  return (cgr__page_edit){ edits->function, -1, edits->group, 0, 0, NULL, -1, !edits->counts, 0 };
}
static inline bool cgr__page_edits_next(const cgr__page_edits *edits, cgr__page_edit *edit) {
  if (edit->entry + 1 >= edits->num_rows)
    return false;
  edit->entry++;
  edit->place += edit->count;
  edit->row = edits->rows[edit->entry];
  edit->first = edits->firsts[edit->entry];
  edit->count = edits->counts ? edits->counts[edit->entry] : 1;
  edit->pages = edits->pages ? edits->pages + edit->place : NULL;
  return true;
}

/* Checks all that single calls check of their arguments, and that no row is there twice. After that either apply or cancel has to
 * follow; a check that fails leaves nothing to be cancelled. */
cgr_status cgr__page_edits_check(cgr__rows *rows, cgr__page_edits *edits);
void cgr__page_edits_apply(cgr__rows *rows, const cgr__page_edits *edits);
void cgr__page_edits_cancel(cgr__rows *rows, const cgr__page_edits *edits);

/* The entry of a row that is in checked edits. */
int32_t cgr__page_edits_entry_of(const cgr__page_edits *edits, int32_t row);

#ifdef __cplusplus
}
#endif

#endif

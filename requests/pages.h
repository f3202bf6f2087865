/* Pages of rows: which a row has, takes and gives back, and which tokens they hold. */
#ifndef CGR_REQUESTS_PAGES_H
#define CGR_REQUESTS_PAGES_H

#include "requests/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one call does with one row's pages. Of a call for many rows (page_edits.h), `entry` is the place of `row` in its array,
 * and pages[0] is at `place` in its `pages`; messages then name these. */
typedef struct cgr__page_edit {
  const char *function;
  int32_t row, group, first, count;
  const int32_t *pages; /* [count] to be set */
  int32_t entry;        /* -1: of a call for one row */
  bool counts_itself;   /* it has no count, and stands for one page */
  int64_t place;
} cgr__page_edit;

cgr_status cgr__rows_check_group(const cgr__rows *rows, const char *function, int32_t group);
/* A call in two halves: only the second changes anything that counts. */
cgr_status cgr__rows_check_set_pages(cgr__rows *rows, const cgr__page_edit *edit);
void cgr__rows_apply_set_pages(cgr__rows *rows, const cgr__page_edit *edit);
cgr_status cgr__rows_check_drop_pages(const cgr__rows *rows, const cgr__page_edit *edit);
void cgr__rows_apply_drop_pages(cgr__rows *rows, const cgr__page_edit *edit);
/* Both, for one row. */
cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages, int32_t count);
cgr_status cgr__rows_drop_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t count);
/* Whether set_pages with these would take a page of the row's away. */
bool cgr__rows_replaces_pages(const cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages,
                              int32_t count);

/* The pages of a row in a group: [pages_per_row]. */
static inline int32_t *cgr__rows_table_of(const cgr__page_group *group, int32_t row) {
  return group->pages + (int64_t)row * group->pages_per_row;
}

/* The word, and the bit in it, of a page in a row's filter. Fibonacci hashing (Knuth, TAOCP 6.4): neighbouring page numbers go to
 * different words. */
static inline uint64_t *cgr__rows_filter_word(const cgr__page_group *group, int32_t row, int32_t page, uint64_t *bit) {
  uint32_t hash = (uint32_t)page * 2654435769u;
  *bit = (uint64_t)1 << (hash >> 26);
  return group->page_filter + (int64_t)row * group->filter_words + ((hash >> 6) & (uint32_t)(group->filter_words - 1));
}

/* False: the page is surely none of the row's. */
static inline bool cgr__rows_may_have(const cgr__page_group *group, int32_t row, int32_t page) {
  uint64_t bit, *word = cgr__rows_filter_word(group, row, page, &bit);
  return (*word & bit) != 0;
}
/* What its pages have room for, in every program. */
void cgr__rows_update_capacity(cgr__rows *rows, int32_t row);
/* Forgets all pages of a row that closes, or opens. */
void cgr__rows_clear_pages(cgr__rows *rows, int32_t row);
/* The group of a program and length set whose pages hold the fewest of the row's tokens, *capacity of them, at most its max_lens;
 * -1: there is no group, and only max_lens bounds it. In a set after 0, pages only hold tokens from page 0 on. */
int32_t cgr__rows_shortest_group(const cgr__rows *rows, int32_t row, int32_t program, int32_t set, int32_t *capacity);
/* A group of the program and of set 0 that lacks pages before the row's first ones for a step that finds `computed` tokens; -1:
 * none does. *needed: the first page that must be there. */
int32_t cgr__rows_front_missing(const cgr__rows *rows, int32_t row, int32_t program, int32_t computed, int32_t *needed);

#ifdef __cplusplus
}
#endif

#endif

/* The pages of rows: set, taken away, and checked. */
#include "requests/pages.h"

#include <string.h>

#include "base/status.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/ledger.h"
#include "requests/members.h"

cgr_status cgr__rows_check_group(const cgr__rows *rows, const char *function, int32_t group) {
  if (rows->limits->num_groups == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: group is %d, expected a runtime with groups (num_groups is 0)", function,
                     group);
  if (group < 0 || group >= rows->limits->num_groups)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: group is %d, expected 0 .. %d", function, group,
                     rows->limits->num_groups - 1);
  return CGR_OK;
}

/* Tokens up to which a group has pages. */
static int64_t group_capacity(const cgr__page_group *group, int32_t row, int32_t most) {
  return group->engine_table ? most : (int64_t)group->row[row].end * group->page_size;
}

/* The fewest tokens in the cache with which a step needs none of the pages before `first`. */
static int32_t group_least(const cgr__page_group *group, int32_t first) {
  return first == 0 ? 0 : cgr__window_spans_least(&group->window_spans, first * group->page_size);
}

int32_t cgr__rows_shortest_group(const cgr__rows *rows, int32_t row, int32_t set, int32_t *capacity) {
  int64_t least = rows->limits->max_lens[set];
  int32_t shortest = -1;
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    bool lacks_front = set > 0 && rows->group[g].row[row].first > 0; /* of another set all tokens are seen */
    int64_t tokens = lacks_front ? 0 : group_capacity(&rows->group[g], row, rows->limits->max_lens[set]);
    if (rows->group[g].length_set != set || (shortest >= 0 && tokens >= least))
      continue;
    least = tokens < least ? tokens : least;
    shortest = g;
  }
  *capacity = (int32_t)least;
  return shortest;
}

int32_t cgr__rows_front_missing(const cgr__rows *rows, int32_t row, int32_t computed, int32_t *needed) {
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    const cgr__page_group *group = &rows->group[g];
    if (group->length_set > 0 || computed >= group_least(group, group->row[row].first))
      continue;
    *needed = cgr__window_spans_first(&group->window_spans, computed) / group->page_size;
    return g;
  }
  return -1;
}

static void update_capacity(cgr__rows *rows, int32_t row) {
  cgr__row *entry = &rows->row[row];
  (void)cgr__rows_shortest_group(rows, row, 0, &entry->capacity);
  entry->least = 0;
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    int32_t least = rows->group[g].length_set == 0 ? group_least(&rows->group[g], rows->group[g].row[row].first) : 0;
    entry->least = least > entry->least ? least : entry->least;
  }
}

/* ------------------------------------------------------------------------------------------------------ a page only once */

/* Whether pages[i] is among those before it, or among the row's pages that [first, first + count) leaves in place. */
static bool has_repeated_page(const cgr__page_group *group, int32_t row, int32_t first, const int32_t *pages, int32_t count,
                              int32_t i) {
  const int32_t *table = cgr__rows_table_of(group, row);
  const cgr__row_pages *has = &group->row[row];
  for (int32_t j = 0; j < i; j++)
    if (pages[j] == pages[i])
      return true;
  for (int32_t p = has->first; p < has->end; p++)
    if ((p < first || p >= first + count) && table[p] == pages[i])
      return true;
  return false;
}

/* Bits are set on the way; if a later page is refused they only cost an occasional search. */
static cgr_status check_repeats(cgr__page_group *group, int32_t g, int32_t row, int32_t first, const int32_t *pages,
                                int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    uint64_t bit, *word = cgr__rows_filter_word(group, row, pages[i], &bit);
    if (*word & bit && has_repeated_page(group, row, first, pages, count, i))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_request_set_pages: pages[%d] is %d, which row %d has already in group %d, expected each page once", i,
                       pages[i], row, g);
    *word |= bit;
  }
  return CGR_OK;
}

static void clear_page_filter(cgr__page_group *group, int32_t row) {
  const cgr__row_pages *has = &group->row[row];
  const int32_t *table = cgr__rows_table_of(group, row);
  uint64_t *words = group->page_filter + (int64_t)row * group->filter_words;
  if (has->end - has->first > group->filter_words / 8) {
    memset(words, 0, (size_t)group->filter_words * sizeof *words);
    return;
  }
  for (int32_t p = has->first; p < has->end; p++) {
    uint64_t bit, *word = cgr__rows_filter_word(group, row, table[p], &bit);
    *word = 0;
  }
}

/* ---------------------------------------------------------------------------------------------------------- set and drop */

static cgr_status fail_too_long(const cgr__page_group *group, int32_t g, int64_t pages) {
  if (group->length_set == 0)
    return cgr__fail(
        CGR_ERROR_SEQUENCE_TOO_LONG,
        "cgr_request_set_pages: first + count is %lld, expected at most %d in group %d (max_seq_len in pages of %d tokens)",
        (long long)pages, group->pages_per_row, g, group->page_size);
  return cgr__fail(
      CGR_ERROR_SEQUENCE_TOO_LONG,
      "cgr_request_set_pages: first + count is %lld, expected at most %d in group %d (max_other_lens[%d] in pages of %d tokens)",
      (long long)pages, group->pages_per_row, g, group->length_set, group->page_size);
}

/* Between the pages [first, end) and those of the row. */
static cgr_status refuse_gap(const cgr__row_pages *has, int32_t row, int32_t g, int32_t first, int64_t end) {
  bool is_after = first > has->end;
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "cgr_request_set_pages: first is %d and count is %lld, which leaves a gap at pages %lld .. %d: row %d has pages "
      "%d .. %d of group %d, expected first %s %d: set the pages of the gap with these or before them",
      first, (long long)(end - first), is_after ? (long long)has->end : (long long)end, is_after ? first - 1 : has->first - 1,
      row, has->first, has->end - 1, g, is_after ? "at most" : "+ count at least", is_after ? has->end : has->first);
}

static cgr_status check_page_numbers(const cgr__page_group *group, int32_t g, int32_t row, int32_t first, const int32_t *pages,
                                     int32_t count) {
  const cgr__row_pages *has = &group->row[row];
  if (group->engine_table)
    return cgr__fail(CGR_ERROR_STATE, "cgr_request_set_pages: group %d has the engine's page_table, expected the library's", g);
  if (count < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_pages: count is %d, expected at least 0", count);
  if (!pages && count != 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_request_set_pages: pages is NULL, expected %d page number%s", count,
                     cgr__plural(count));
  if (first < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_pages: first is %d, expected at least 0", first);
  if (has->first < has->end && (first > has->end || (int64_t)first + count < has->first))
    return refuse_gap(has, row, g, first, (int64_t)first + count);
  if (count > group->pages_per_row - first)
    return fail_too_long(group, g, (int64_t)first + count);
  for (int32_t i = 0; i < count; i++)
    if (pages[i] < 0 || pages[i] >= group->num_pages || pages[i] == group->read_trash || pages[i] == group->write_trash)
      return cgr__fail(
          CGR_ERROR_PAGE_OUT_OF_RANGE,
          "cgr_request_set_pages: pages[%d] is %d, expected 0 .. %lld of the pool of group %d, other than its reserved pages %d "
          "and %d",
          i, pages[i], (long long)group->num_pages - 1, g, group->read_trash, group->write_trash);
  return CGR_OK;
}

/* Tells the ledger of pages that take the place of others, or come to them. */
static void take_pages(cgr__rows *rows, int32_t row, int32_t g, int32_t first, const int32_t *pages, int32_t count) {
  const cgr__page_group *group = &rows->group[g];
  const cgr__row_pages *has = &group->row[row];
  for (int32_t i = 0; i < count; i++) {
    int32_t index = first + i, before = index >= has->first && index < has->end ? cgr__rows_table_of(group, row)[index] : -1;
    if (before == pages[i])
      continue;
    cgr__ledger_take(rows, row, g, index, pages[i]);
    if (before >= 0)
      cgr__ledger_give(rows, row, g, before);
  }
}

/* Tells it of pages [first, end) that the row loses. */
static void give_pages(cgr__rows *rows, int32_t row, int32_t g, int32_t first, int32_t end) {
  for (int32_t p = first; p < end; p++)
    cgr__ledger_give(rows, row, g, cgr__rows_table_of(&rows->group[g], row)[p]);
}

cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t g, int32_t first, const int32_t *pages, int32_t count) {
  cgr__page_group *group = &rows->group[g];
  cgr__row_pages *has = &group->row[row];
  CGR__TRY(check_page_numbers(group, g, row, first, pages, count));
  CGR__TRY(check_repeats(group, g, row, first, pages, count));
  if (count == 0)
    return CGR_OK;
  if (rows->has_ledger)
    take_pages(rows, row, g, first, pages, count);
  memcpy(cgr__rows_table_of(group, row) + first, pages, (size_t)count * sizeof *pages);
  bool none = has->first == has->end;
  has->first = none || first < has->first ? first : has->first;
  has->end = none || first + count > has->end ? first + count : has->end;
  has->set_end = has->end > has->set_end ? has->end : has->set_end;
  update_capacity(rows, row); /* what the members counted on stays: a row only gains here */
  cgr__members_add_pages(rows, row);
  if (none) /* a request that had the row before may have had pages there */
    cgr__changes_mark_pages(rows, row, g, 0, first);
  cgr__changes_mark_pages(rows, row, g, first, first + count);
  return CGR_OK;
}

bool cgr__rows_replaces_pages(const cgr__rows *rows, int32_t row, int32_t g, int32_t first, const int32_t *pages, int32_t count) {
  const cgr__page_group *group = &rows->group[g];
  const cgr__row_pages *has = &group->row[row];
  if (!pages || first < 0 || count > group->pages_per_row - first) /* cgr__rows_set_pages refuses it: nothing is read */
    return false;
  int32_t begin = first > has->first ? first : has->first;
  int64_t end = (int64_t)first + count < has->end ? (int64_t)first + count : has->end;
  for (int32_t p = begin; p < end; p++)
    if (cgr__rows_table_of(group, row)[p] != pages[p - first])
      return true;
  return false;
}

/* A length in a set after 0 is covered by pages at all times: steps do not look at it again. `left`: pages from 0 on. */
static cgr_status check_set_length(const cgr__rows *rows, int32_t row, int32_t g, int32_t left) {
  const cgr__page_group *group = &rows->group[g];
  int32_t length = group->length_set > 0 ? cgr__rows_other_length(rows, row, group->length_set) : 0;
  if (length <= (int64_t)left * group->page_size)
    return CGR_OK;
  return cgr__fail(
      CGR_ERROR_STATE,
      "cgr_request_drop_pages: row %d has %d token%s in length set %d, expected at most %lld, what is left of its pages "
      "of group %d (cgr_request_set_other_length)",
      row, length, cgr__plural(length), group->length_set, (long long)left * group->page_size, g);
}

cgr_status cgr__rows_drop_pages(cgr__rows *rows, int32_t row, int32_t g, int32_t first, int32_t count) {
  cgr__page_group *group = &rows->group[g];
  cgr__row_pages *has = &group->row[row];
  int64_t end = (int64_t)first + count;
  if (group->engine_table)
    return cgr__fail(CGR_ERROR_STATE, "cgr_request_drop_pages: group %d has the engine's page_table, expected the library's", g);
  if (count < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_drop_pages: count is %d, expected at least 0", count);
  if (count == 0)
    return CGR_OK;
  if (has->first == has->end)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_request_drop_pages: first %d and count %d are pages %d .. %lld, expected none: row %d has no pages in "
                     "group %d",
                     first, count, first, (long long)end - 1, row, g);
  if (first < has->first || end > has->end || (first != has->first && end != has->end))
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_request_drop_pages: first %d and count %d are pages %d .. %lld, expected a beginning or an end of pages "
        "%d .. %d of row %d in group %d",
        first, count, first, (long long)end - 1, has->first, has->end - 1, row, g);
  CGR__TRY(check_set_length(rows, row, g, first == has->first ? 0 : first));
  if (rows->has_ledger)
    give_pages(rows, row, g, first, (int32_t)end);
  if (first == has->first && end == has->end)
    clear_page_filter(group, row);
  if (first == has->first)
    has->first = (int32_t)end;
  else
    has->end = first;
  if (has->first == has->end)
    has->first = has->end = 0;
  update_capacity(rows, row);
  cgr__members_revalidate(rows, row);
  cgr__changes_mark_pages(rows, row, g, first, (int32_t)end);
  return CGR_OK;
}

void cgr__rows_clear_pages(cgr__rows *rows, int32_t row) {
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    cgr__page_group *group = &rows->group[g];
    if (rows->has_ledger && !group->engine_table)
      give_pages(rows, row, g, group->row[row].first, group->row[row].end);
    if (!group->engine_table)
      clear_page_filter(group, row);
    group->row[row] = (cgr__row_pages){ 0 };
  }
  update_capacity(rows, row);
}

/* The pages of rows: set, taken away, and checked. */
#include "requests/pages.h"

#include <string.h>

#include "base/status.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/ledger.h"
#include "requests/members.h"
#include "requests/page_names.h"

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

int32_t cgr__rows_shortest_group(const cgr__rows *rows, int32_t row, int32_t program, int32_t set, int32_t *capacity) {
  int64_t least = rows->limits->max_lens[set];
  int32_t shortest = -1;
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    bool lacks_front = set > 0 && rows->group[g].row[row].first > 0; /* of another set all tokens are seen */
    int64_t tokens = lacks_front ? 0 : group_capacity(&rows->group[g], row, rows->limits->max_lens[set]);
    if (rows->group[g].length_set != set || rows->group[g].program != program || (shortest >= 0 && tokens >= least))
      continue;
    least = tokens < least ? tokens : least;
    shortest = g;
  }
  *capacity = (int32_t)least;
  return shortest;
}

int32_t cgr__rows_front_missing(const cgr__rows *rows, int32_t row, int32_t program, int32_t computed, int32_t *needed) {
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    const cgr__page_group *group = &rows->group[g];
    if (group->length_set > 0 || group->program != program || computed >= group_least(group, group->row[row].first))
      continue;
    *needed = cgr__window_spans_first(&group->window_spans, computed) / group->page_size;
    return g;
  }
  return -1;
}

/* What the row's pages in a program's groups allow it to have. */
static void find_room(const cgr__rows *rows, int32_t row, int32_t program, int32_t *capacity, int32_t *least) {
  (void)cgr__rows_shortest_group(rows, row, program, 0, capacity);
  *least = 0;
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    const cgr__page_group *group = &rows->group[g];
    const bool counts = group->length_set == 0 && group->program == program;
    int32_t needed = counts ? group_least(group, group->row[row].first) : 0;
    *least = needed > *least ? needed : *least;
  }
}

void cgr__rows_update_capacity(cgr__rows *rows, int32_t row) {
  find_room(rows, row, 0, &rows->row[row].capacity, &rows->row[row].least);
  for (int32_t p = 1; p < rows->limits->num_programs; p++)
    find_room(rows, row, p, &rows->draft[p][row].capacity, &rows->draft[p][row].least);
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
static cgr_status check_repeats(cgr__page_group *group, const cgr__page_edit *e) {
  for (int32_t i = 0; i < e->count; i++) {
    uint64_t bit, *word = cgr__rows_filter_word(group, e->row, e->pages[i], &bit);
    if (*word & bit && has_repeated_page(group, e->row, e->first, e->pages, e->count, i))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %d, which row %d has already in group %d, expected each page once",
                       e->function, cgr__page_edit_names_of(e, i).page, e->pages[i], e->row, e->group);
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

static cgr_status fail_too_long(const cgr__page_group *group, const cgr__page_edit *e) {
  const cgr__page_edit_names names = cgr__page_edit_names_of(e, 0);
  const long long pages = (long long)e->first + e->count;
  if (group->length_set == 0)
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG,
                     "%s: %s + %s is %lld, expected at most %d in group %d (max_seq_len in pages of %d tokens)", e->function,
                     names.first, names.count, pages, group->pages_per_row, e->group, group->page_size);
  return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG,
                   "%s: %s + %s is %lld, expected at most %d in group %d (max_other_lens[%d] in pages of %d tokens)", e->function,
                   names.first, names.count, pages, group->pages_per_row, e->group, group->length_set, group->page_size);
}

/* Between the pages of the edit and those of the row. */
static cgr_status refuse_gap(const cgr__row_pages *has, const cgr__page_edit *e) {
  const cgr__page_edit_names names = cgr__page_edit_names_of(e, 0);
  const bool is_after = e->first > has->end;
  const long long end = (long long)e->first + e->count;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s: %s is %d and %s is %d, which leaves a gap at pages %lld .. %d: row %d has pages "
                   "%d .. %d of group %d, expected %s %s %d: set the pages of the gap with these or before them",
                   e->function, names.first, e->first, names.count, e->count, is_after ? (long long)has->end : end,
                   is_after ? e->first - 1 : has->first - 1, e->row, has->first, has->end - 1, e->group, names.first,
                   is_after ? "at most" : "+ count at least", is_after ? has->end : has->first);
}

static cgr_status fail_engine_table(const cgr__page_edit *e) {
  return cgr__fail(CGR_ERROR_STATE, "%s: group %d has the engine's page_table, expected the library's", e->function, e->group);
}

static cgr_status fail_negative(const cgr__page_edit *e, const char *name, int32_t value) {
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %d, expected at least 0", e->function, name, value);
}

static cgr_status check_page_numbers(const cgr__page_group *group, const cgr__page_edit *e) {
  const cgr__row_pages *has = &group->row[e->row];
  const int32_t *pages = e->pages;
  if (group->engine_table)
    return fail_engine_table(e);
  if (e->count < 0)
    return fail_negative(e, cgr__page_edit_names_of(e, 0).count, e->count);
  if (!pages && e->count != 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: pages is NULL, expected %d page number%s", e->function, e->count,
                     cgr__plural(e->count));
  if (e->first < 0)
    return fail_negative(e, cgr__page_edit_names_of(e, 0).first, e->first);
  if (has->first < has->end && (e->first > has->end || (int64_t)e->first + e->count < has->first))
    return refuse_gap(has, e);
  if (e->count > group->pages_per_row - e->first)
    return fail_too_long(group, e);
  for (int32_t i = 0; i < e->count; i++)
    if (pages[i] < 0 || pages[i] >= group->num_pages || pages[i] == group->read_trash || pages[i] == group->write_trash)
      return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                       "%s: %s is %d, expected 0 .. %lld of the pool of group %d, other than its reserved pages %d and %d",
                       e->function, cgr__page_edit_names_of(e, i).page, pages[i], (long long)group->num_pages - 1, e->group,
                       group->read_trash, group->write_trash);
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

cgr_status cgr__rows_check_set_pages(cgr__rows *rows, const cgr__page_edit *edit) {
  cgr__page_group *group = &rows->group[edit->group];
  CGR__TRY(check_page_numbers(group, edit));
  return check_repeats(group, edit);
}

void cgr__rows_apply_set_pages(cgr__rows *rows, const cgr__page_edit *edit) {
  const int32_t row = edit->row, g = edit->group, first = edit->first, count = edit->count;
  cgr__page_group *group = &rows->group[g];
  cgr__row_pages *has = &group->row[row];
  if (count == 0)
    return;
  if (rows->has_ledger)
    take_pages(rows, row, g, first, edit->pages, count);
  memcpy(cgr__rows_table_of(group, row) + first, edit->pages, (size_t)count * sizeof *edit->pages);
  bool none = has->first == has->end;
  has->first = none || first < has->first ? first : has->first;
  has->end = none || first + count > has->end ? first + count : has->end;
  has->set_end = has->end > has->set_end ? has->end : has->set_end;
  cgr__rows_update_capacity(rows, row); /* what the members counted on stays: a row only gains here */
  cgr__members_add_pages(rows, row);
  if (none) /* a request that had the row before may have had pages there */
    cgr__changes_mark_pages(rows, row, g, 0, first);
  cgr__changes_mark_pages(rows, row, g, first, first + count);
}

cgr_status cgr__rows_set_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, const int32_t *pages, int32_t count) {
  const cgr__page_edit edit = { "cgr_request_set_pages", row, group, first, count, pages, -1, false, 0 };
  CGR__TRY(cgr__rows_check_set_pages(rows, &edit));
  cgr__rows_apply_set_pages(rows, &edit);
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
static cgr_status check_set_length(const cgr__rows *rows, const cgr__page_edit *e, int32_t left) {
  const cgr__page_group *group = &rows->group[e->group];
  int32_t length = group->length_set > 0 ? cgr__rows_other_length(rows, e->row, group->length_set) : 0;
  if (length <= (int64_t)left * group->page_size)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE,
                   "%s: row %d has %d token%s in length set %d, expected at most %lld, what is left of its pages of group %d "
                   "(cgr_request_set_other_length)",
                   e->function, e->row, length, cgr__plural(length), group->length_set, (long long)left * group->page_size,
                   e->group);
}

/* That the pages are a beginning or an end of those that the row has. */
static cgr_status check_dropped(const cgr__row_pages *has, const cgr__page_edit *e) {
  const int64_t end = (int64_t)e->first + e->count;
  if (e->first >= has->first && end <= has->end && (e->first == has->first || end == has->end))
    return CGR_OK;
  const cgr__page_edit_names names = cgr__page_edit_names_of(e, 0);
  if (has->first == has->end)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: %s %d and %s %d are pages %d .. %lld, expected none: row %d has no pages in group %d", e->function,
                     names.first, e->first, names.count, e->count, e->first, (long long)end - 1, e->row, e->group);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s: %s %d and %s %d are pages %d .. %lld, expected a beginning or an end of pages %d .. %d of row %d in "
                   "group %d",
                   e->function, names.first, e->first, names.count, e->count, e->first, (long long)end - 1, has->first,
                   has->end - 1, e->row, e->group);
}

cgr_status cgr__rows_check_drop_pages(const cgr__rows *rows, const cgr__page_edit *edit) {
  const cgr__page_group *group = &rows->group[edit->group];
  const cgr__row_pages *has = &group->row[edit->row];
  if (group->engine_table)
    return fail_engine_table(edit);
  if (edit->count < 0)
    return fail_negative(edit, cgr__page_edit_names_of(edit, 0).count, edit->count);
  if (edit->count == 0)
    return CGR_OK;
  CGR__TRY(check_dropped(has, edit));
  return check_set_length(rows, edit, edit->first == has->first ? 0 : edit->first);
}

void cgr__rows_apply_drop_pages(cgr__rows *rows, const cgr__page_edit *edit) {
  const int32_t row = edit->row, g = edit->group, first = edit->first, end = first + edit->count;
  cgr__page_group *group = &rows->group[g];
  cgr__row_pages *has = &group->row[row];
  if (edit->count == 0)
    return;
  if (rows->has_ledger)
    give_pages(rows, row, g, first, end);
  if (first == has->first && end == has->end)
    clear_page_filter(group, row);
  if (first == has->first)
    has->first = end;
  else
    has->end = first;
  if (has->first == has->end)
    has->first = has->end = 0;
  cgr__rows_update_capacity(rows, row);
  cgr__members_revalidate(rows, row);
  cgr__changes_mark_pages(rows, row, g, first, end);
}

cgr_status cgr__rows_drop_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t count) {
  const cgr__page_edit edit = { "cgr_request_drop_pages", row, group, first, count, NULL, -1, false, 0 };
  CGR__TRY(cgr__rows_check_drop_pages(rows, &edit));
  cgr__rows_apply_drop_pages(rows, &edit);
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
  cgr__rows_update_capacity(rows, row);
}

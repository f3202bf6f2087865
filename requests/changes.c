#include "requests/changes.h"

#include "requests/pages.h"

void cgr__changes_mark_length(cgr__rows *rows, int32_t row) { cgr__changes_list_row(rows, row, CGR__DIRTY_LENGTH, 1); }

void cgr__changes_mark_draft(cgr__rows *rows, int32_t row, int32_t program) {
  cgr__draft_row *draft = &rows->draft[program][row];
  const int32_t words = draft->dirty ? 0 : 1;
  draft->dirty = true;
  cgr__changes_list_row(rows, row, CGR__DIRTY_DRAFTS, words);
}

/* Widens a stretch to hold [first, end). */
static void widen_range(int32_t *stretch_first, int32_t *stretch_end, int32_t first, int32_t end) {
  bool none = *stretch_first == *stretch_end;
  *stretch_first = none || first < *stretch_first ? first : *stretch_first;
  *stretch_end = none || end > *stretch_end ? end : *stretch_end;
}

static int32_t pages_pending(const cgr__row_pages *pages) {
  return pages->dirty_end - pages->dirty_first + pages->gone_end - pages->gone_first;
}

void cgr__changes_mark_pages(cgr__rows *rows, int32_t row, int32_t group, int32_t first, int32_t end) {
  cgr__row_pages *pages = &rows->group[group].row[row];
  int32_t before = pages_pending(pages);
  if (first >= end)
    return;
  if (end <= pages->first)
    widen_range(&pages->gone_first, &pages->gone_end, first, end);
  else
    widen_range(&pages->dirty_first, &pages->dirty_end, first, end);
  if (pages->gone_first < pages->dirty_end && pages->dirty_first < pages->gone_end) { /* no word travels twice */
    widen_range(&pages->dirty_first, &pages->dirty_end, pages->gone_first, pages->gone_end);
    pages->gone_first = pages->gone_end = 0;
  }
  cgr__changes_list_row(rows, row, CGR__DIRTY_PAGES << group, pages_pending(pages) - before);
}

void cgr__changes_mark_data(cgr__rows *rows, int32_t row, int32_t buffer, int32_t first, int32_t end) {
  cgr__row_dirty *dirty = &rows->data[buffer].row[row];
  int32_t before = dirty->end - dirty->first;
  if (first >= end)
    return;
  widen_range(&dirty->first, &dirty->end, first, end);
  cgr__changes_list_row(rows, row, CGR__DIRTY_DATA, dirty->end - dirty->first - before);
}

void cgr__changes_drop(cgr__rows *rows, int32_t row) {
  for (int32_t b = 0; b < rows->num_data; b++) {
    cgr__row_dirty *dirty = rows->data[b].words > 0 ? &rows->data[b].row[row] : NULL;
    if (dirty && dirty->first < dirty->end)
      *dirty = (cgr__row_dirty){ 0, 0, true };
  }
  rows->row[row].dirty = 0;
  for (int32_t p = 1; p < rows->limits->num_programs; p++)
    rows->draft[p][row].dirty = false;
  for (int32_t g = 0; g < rows->limits->num_groups; g++) {
    cgr__row_pages *pages = &rows->group[g].row[row];
    pages->dirty_first = pages->dirty_end = pages->gone_first = pages->gone_end = 0;
  }
}

/* A closed row's data is sent when it opens again. */
static void mark_data(cgr__rows *rows, int32_t row) {
  for (int32_t b = 0; b < rows->num_data; b++) {
    if (rows->data[b].words == 0)
      continue;
    rows->data[b].row[row].set = true;
    if (rows->row[row].open)
      cgr__changes_mark_data(rows, row, b, 0, rows->data[b].words);
  }
}

void cgr__changes_mark_all(cgr__rows *rows) {
  for (int32_t i = 0; i < rows->limits->max_rows; i++) {
    mark_data(rows, i);
    if (!rows->row[i].open)
      continue;
    cgr__changes_mark_length(rows, i);
    for (int32_t p = 1; p < rows->limits->num_programs; p++)
      cgr__changes_mark_draft(rows, i, p);
    for (int32_t g = 0; g < rows->limits->num_groups; g++)
      cgr__changes_mark_pages(rows, i, g, 0, rows->group[g].row[i].set_end);
  }
}

int64_t cgr__changes_pending(const cgr__rows *rows) {
  int64_t words = 0;
  for (int32_t i = 0; i < rows->num_dirty; i++) {
    int32_t row = rows->dirty[i];
    words += rows->row[row].dirty & CGR__DIRTY_LENGTH;
    for (int32_t p = 1; p < rows->limits->num_programs; p++)
      words += rows->draft[p][row].dirty;
    for (int32_t g = 0; g < rows->limits->num_groups; g++)
      words += pages_pending(&rows->group[g].row[row]);
    for (int32_t b = 0; b < rows->num_data; b++)
      if (rows->data[b].words > 0)
        words += rows->data[b].row[row].end - rows->data[b].row[row].first;
  }
  return words;
}

/* One stretch of a row's page changes in one group. Entries that the row does not have are the read-trash page. */
static int32_t collect_stretch(const cgr__page_group *group, int32_t index, int32_t g, int32_t *stretch_first,
                               int32_t stretch_end, cgr__change *changes, int32_t capacity) {
  const int32_t *table = cgr__rows_table_of(group, index), trash = group->read_trash;
  const cgr__row_pages *has = &group->row[index];
  int32_t first = *stretch_first, end = stretch_end - first > capacity ? first + capacity : stretch_end;
  for (int32_t i = first; i < end; i++)
    changes[i - first] = (cgr__change){ CGR__CHANGE_PAGE | g << 8, index, i, i >= has->first && i < has->end ? table[i] : trash };
  *stretch_first = end;
  return end - first;
}

static int32_t collect_pages(cgr__rows *rows, int32_t index, int32_t g, cgr__change *changes, int32_t capacity) {
  const cgr__page_group *group = &rows->group[g];
  cgr__row_pages *pages = &group->row[index];
  int32_t count = collect_stretch(group, index, g, &pages->gone_first, pages->gone_end, changes, capacity);
  count += collect_stretch(group, index, g, &pages->dirty_first, pages->dirty_end, changes + count, capacity - count);
  if (pages_pending(pages) == 0)
    rows->row[index].dirty &= (uint8_t) ~(CGR__DIRTY_PAGES << g);
  return count;
}

/* The same for its data. */
static int32_t collect_data(cgr__rows *rows, int32_t index, cgr__change *changes, int32_t capacity) {
  int32_t count = 0, b = 0;
  for (; b < rows->num_data; b++) {
    const cgr__data *data = &rows->data[b];
    cgr__row_dirty *dirty = data->words > 0 ? &data->row[index] : NULL;
    for (; dirty && count < capacity && dirty->first < dirty->end; count++) {
      int32_t i = dirty->first++;
      changes[count] = (cgr__change){ CGR__CHANGE_DATA | b << 8, index, i, data->words_of[(int64_t)index * data->words + i] };
    }
    if (dirty && dirty->first < dirty->end)
      return count;
  }
  rows->row[index].dirty &= (uint8_t)~CGR__DIRTY_DATA;
  return count;
}

/* The same for its lengths in drafts. */
static int32_t collect_drafts(cgr__rows *rows, int32_t index, cgr__change *changes, int32_t capacity) {
  int32_t count = 0, p = 1;
  for (; p < rows->limits->num_programs && count < capacity; p++) {
    cgr__draft_row *draft = &rows->draft[p][index];
    if (draft->dirty)
      changes[count++] = (cgr__change){ CGR__CHANGE_COMPUTED | p << 8, index, 0, draft->computed };
    draft->dirty = false;
  }
  if (p == rows->limits->num_programs)
    rows->row[index].dirty &= (uint8_t)~CGR__DIRTY_DRAFTS;
  return count;
}

/* Returns how many changes of a row fit; no bit of its `dirty` is left when all did. */
static int32_t collect_row(cgr__rows *rows, int32_t index, cgr__change *changes, int32_t capacity) {
  cgr__row *row = &rows->row[index];
  int32_t count = 0;
  for (int32_t g = 0, bits = (row->dirty & CGR__DIRTY_ALL_PAGES) / CGR__DIRTY_PAGES; bits != 0; g++, bits /= 2)
    if (bits & 1)
      count += collect_pages(rows, index, g, changes + count, capacity - count);
  if (row->dirty & CGR__DIRTY_DATA)
    count += collect_data(rows, index, changes + count, capacity - count);
  if (row->dirty & CGR__DIRTY_DRAFTS)
    count += collect_drafts(rows, index, changes + count, capacity - count);
  if (!(row->dirty & CGR__DIRTY_LENGTH) || count == capacity)
    return count;
  changes[count++] =
      (cgr__change){ CGR__CHANGE_COMPUTED, index, 0, cgr__rows_computed(rows, index) | (row->ended ? CGR__ROW_ENDED : 0) };
  row->dirty &= (uint8_t)~CGR__DIRTY_LENGTH;
  return count;
}

/* The change that most rows have: one more page, in the first group. */
static bool collect_new_page(const cgr__rows *rows, int32_t index, cgr__change *change) {
  cgr__row *row = &rows->row[index];
  if (row->dirty != CGR__DIRTY_PAGES)
    return false;
  const cgr__page_group *group = &rows->group[0];
  cgr__row_pages *has = &group->row[index];
  int32_t i = has->dirty_first;
  if (has->dirty_end != i + 1 || i < has->first || i >= has->end || has->gone_first != has->gone_end)
    return false;
  *change = (cgr__change){ CGR__CHANGE_PAGE, index, i, cgr__rows_table_of(group, index)[i] };
  has->dirty_first = i + 1;
  row->dirty = 0;
  return true;
}

/* Prefetches for two rows that come later: the cache lines of the further one, and what those of the nearer one point to. */
#define FAR 8
#define NEAR 4
static void prefetch_row(const cgr__rows *rows, int32_t far, int32_t near) {
  const cgr__page_group *group = &rows->group[0];
  __builtin_prefetch(&rows->row[far], 1);
  if (rows->limits->num_groups == 0)
    return;
  __builtin_prefetch(&group->row[far], 1);
  if (rows->row[near].dirty & CGR__DIRTY_PAGES)
    __builtin_prefetch(cgr__rows_table_of(group, near) + group->row[near].dirty_first);
}

int32_t cgr__changes_collect(cgr__rows *rows, cgr__change *changes, int32_t capacity) {
  int32_t count = 0, left = rows->num_dirty;
  for (; left > 0; left--) {
    int32_t row = rows->dirty[left - 1];
    if (left > FAR)
      prefetch_row(rows, rows->dirty[left - 1 - FAR], rows->dirty[left - 1 - NEAR]);
    if (count < capacity && collect_new_page(rows, row, changes + count))
      count++;
    else
      count += collect_row(rows, row, changes + count, capacity - count);
    if (rows->row[row].dirty)
      break;
    rows->row[row].listed = false;
  }
  rows->num_dirty = left;
  if (left == 0)
    rows->dirty_words = 0;
  return count;
}

void cgr__changes_restore(cgr__rows *rows, const cgr__change *changes, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    const cgr__change *change = &changes[i];
    bool is_data = (change->kind & 0xff) == CGR__CHANGE_DATA, is_length = (change->kind & 0xff) == CGR__CHANGE_COMPUTED;
    if (is_data)
      rows->data[change->kind >> 8].row[change->row].set = true;
    if (!rows->row[change->row].open)
      continue;
    if (change->kind == CGR__CHANGE_COMPUTED)
      cgr__changes_mark_length(rows, change->row);
    else if (is_length)
      cgr__changes_mark_draft(rows, change->row, change->kind >> 8);
    else if (is_data)
      cgr__changes_mark_data(rows, change->row, change->kind >> 8, change->index, change->index + 1);
    else
      cgr__changes_mark_pages(rows, change->row, change->kind >> 8, change->index, change->index + 1);
  }
}

#include "requests/ledger.h"

#include "base/status.h"
#include "requests/data.h"
#include "requests/guesses.h"
#include "requests/members.h"
#include "requests/page_names.h"
#include "requests/pages.h"

static cgr__ledger_page *entry_of(const cgr__rows *rows, int32_t group, int32_t page) { return &rows->ledger.page[group][page]; }

static int32_t ledger_page_at(const cgr__page_group *group, int32_t row, int32_t index) {
  return group->pages[(int64_t)row * group->pages_per_row + index];
}

static int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t max_of(int32_t a, int32_t b) { return a > b ? a : b; }

/* ---------------------------------------------------------------------------------------------------------- sure tokens */

/* Where the row has the page; `index` is tried first. -1: nowhere. */
static int32_t page_index(const cgr__page_group *group, int32_t row, int32_t page, int32_t index) {
  const cgr__row_pages *has = &group->row[row];
  if (index >= has->first && index < has->end && ledger_page_at(group, row, index) == page)
    return index;
  for (int32_t i = cgr__rows_may_have(group, row, page) ? has->first : has->end; i < has->end; i++)
    if (ledger_page_at(group, row, i) == page)
      return i;
  return -1;
}

/* Tokens of a row in a set that its own steps have written for which no result is there yet: guesses that may be rejected. */
static int32_t unsettled_tokens(const cgr__rows *rows, int32_t row, int32_t set) { return set > 0 ? 0 : rows->row[row].slack; }

/* The tokens of a row that are surely in its pages: not those that its length was set forward over, which another row may yet
 * append, and not guesses whose result is not there. In set 0 a step of the row makes all others sure. */
static int32_t sure_tokens(const cgr__rows *rows, int32_t row, int32_t program, int32_t set) {
  if (program > 0) {
    const cgr__draft_row *draft = &rows->draft[program][row];
    return draft->shared_prefix ? 0 : draft->computed - draft->slack;
  }
  bool known = set > 0 || rows->row[row].shared_prefix;
  return known ? rows->ledger.sure[set][row] : cgr__rows_computed(rows, row) - unsettled_tokens(rows, row, set);
}

/* Of drafts it is not noted what was in a page when it was set. */
static bool knows_all(const cgr__rows *rows, int32_t row) { return rows->ledger.known_at[row] != cgr__rows_computed(rows, row); }

static int32_t *known_of(const cgr__rows *rows, int32_t g, int32_t row) {
  return rows->ledger.known[g] + (int64_t)row * rows->group[g].pages_per_row;
}

/* Of the tokens of the row's page at `index`, those that are surely there. For the step that is checked, all that it may not
 * write over: what the row reads in it, and what guesses may prove to be. */
static int32_t sure_tokens_in_page(const cgr__rows *rows, int32_t g, int32_t row, int32_t index, bool for_step) {
  const cgr__page_group *group = &rows->group[g];
  int64_t tokens = sure_tokens(rows, row, group->program, group->length_set) - (int64_t)index * group->page_size;
  int32_t most = group->page_size;
  if (for_step && group->program == 0)
    tokens += unsettled_tokens(rows, row, group->length_set);
  if (group->program == 0 && !knows_all(rows, row) && !(for_step && rows->ledger.reads[row] == rows->ledger.ticket))
    most = min_of(most, known_of(rows, g, row)[index]);
  return tokens < most ? (int32_t)tokens : most;
}

/* Of the page's tokens, those that another row surely has; *other: the row with most of them. */
static int32_t tokens_of_others(const cgr__rows *rows, int32_t g, int32_t page, int32_t row, int32_t index, bool for_step,
                                int32_t *other) {
  int32_t most = 0;
  for (int32_t r = 0; r < rows->limits->max_rows && entry_of(rows, g, page)->holders > 1; r++) {
    int32_t at = r != row && rows->row[r].open ? page_index(&rows->group[g], r, page, index) : -1;
    int32_t tokens = at < 0 ? 0 : sure_tokens_in_page(rows, g, r, at, for_step);
    if (tokens <= most)
      continue;
    most = tokens;
    *other = r;
  }
  return most;
}

/* ------------------------------------------------------------------------------------------------------------ changes hands */

/* All tokens of the row's pages are there. */
static void know_pages(cgr__rows *rows, int32_t g, int32_t row) {
  int32_t *known = known_of(rows, g, row);
  for (int32_t i = 0; i < rows->group[g].pages_per_row; i++)
    known[i] = CGR__LEDGER_ALL;
}

void cgr__ledger_open(cgr__rows *rows, int32_t row) {
  rows->ledger.request[row] = ++rows->ledger.num_requests;
  rows->ledger.known_at[row] = -1;
  for (int32_t s = 0; s < CGR__MAX_SETS; s++)
    if (rows->ledger.sure[s])
      rows->ledger.sure[s][row] = 0;
}

/* Rule 5. */
static void note_page(cgr__rows *rows, int32_t row, int32_t g, int32_t index, int32_t page) {
  const cgr__page_group *group = &rows->group[g];
  int32_t computed = cgr__rows_computed(rows, row), other = -1;
  int32_t length = group->length_set > 0 ? cgr__rows_other_length(rows, row, group->length_set) : computed;
  bool is_below = (int64_t)index * group->page_size < length && group->program == 0;
  if (knows_all(rows, row)) {
    if (!is_below)
      return;
    for (int32_t i = 0; i < rows->limits->num_groups; i++)
      if (!rows->group[i].engine_table)
        know_pages(rows, i, row);
    rows->ledger.known_at[row] = computed;
  }
  known_of(rows, g, row)[index] = is_below ? tokens_of_others(rows, g, page, row, index, false, &other) : CGR__LEDGER_ALL;
}

static void note_taker(cgr__ledger_page *entry, uint32_t request, uint64_t seq) {
  entry->holders++;
  entry->taken = request;
  entry->taken_seq = seq;
}

/* Of the requests that gave the page back, the one with the latest step is kept apart: it may have the page again while only its
 * own steps are in flight. */
static void note_giver(cgr__ledger_page *entry, cgr__ledger_use use) {
  entry->holders--;
  if (use.seq == 0 || (entry->taken == use.request && entry->taken_seq == use.seq)) /* no step has used the page for it */
    return;
  if (entry->last.request == use.request) {
    entry->last = use;
  } else if (use.seq >= entry->last.seq) {
    entry->other = entry->last;
    entry->last = use;
  } else if (use.seq > entry->other.seq) {
    entry->other = use;
  }
}

/* The request of a row that is up to date. */
static cgr__ledger_use use_of_row(const cgr__rows *rows, int32_t row) {
  return (cgr__ledger_use){ rows->row[row].last_seq, rows->ledger.request[row], row };
}

void cgr__ledger_take(cgr__rows *rows, int32_t row, int32_t group, int32_t index, int32_t page) {
  cgr__members_sync(rows, row);
  note_taker(entry_of(rows, group, page), rows->ledger.request[row], rows->row[row].last_seq);
  note_page(rows, row, group, index, page);
}

void cgr__ledger_give(cgr__rows *rows, int32_t row, int32_t group, int32_t page) {
  cgr__members_sync(rows, row);
  note_giver(entry_of(rows, group, page), use_of_row(rows, row));
}

/* The step that a row has to wait for before it gets a page with this entry. */
static const cgr__ledger_use *use_of_others(const cgr__rows *rows, int32_t row, const cgr__ledger_page *entry) {
  return entry->last.request == rows->ledger.request[row] ? &entry->other : &entry->last;
}

static bool is_handed_early(const cgr__rows *rows, int32_t row, const cgr__ledger_page *entry, uint64_t completed) {
  return entry->holders == 0 && use_of_others(rows, row, entry)->seq > completed;
}

static cgr_status refuse_early(const cgr__rows *rows, const cgr__page_edit *e, int32_t i, const cgr__ledger_page *entry,
                               uint64_t completed) {
  const cgr__ledger_use *use = use_of_others(rows, e->row, entry);
  return cgr__fail(CGR_ERROR_STATE,
                   "%s: %s is %d of group %d, which was a former request's (row %d) until step %llu, and that has not completed "
                   "(%llu has), expected row %d to get it once it has (cgr_runtime_completed)",
                   e->function, cgr__page_edit_names_of(e, i).page, e->pages[i], e->group, use->row, (unsigned long long)use->seq,
                   (unsigned long long)completed, e->row);
}

cgr_status cgr__ledger_check_pages(cgr__rows *rows, int32_t row, int32_t g, int32_t first, const int32_t *pages, int32_t count,
                                   uint64_t completed) {
  const cgr__page_group *group = &rows->group[g];
  const cgr__page_edit edit = { "cgr_request_set_pages", row, g, first, count, pages, -1, false, 0 };
  if (group->engine_table || !pages || first < 0 || count > group->pages_per_row - first)
    return CGR_OK;
  for (int32_t i = 0; i < count; i++) {
    if (pages[i] < 0 || pages[i] >= group->num_pages)
      return CGR_OK;
    const cgr__ledger_page *entry = entry_of(rows, g, pages[i]);
    if (is_handed_early(rows, row, entry, completed))
      return refuse_early(rows, &edit, i, entry, completed);
  }
  return CGR_OK;
}

/* What one edit of a call will do to a page's entry. */
static void replay_edit(cgr__rows *rows, const cgr__page_edit *e, int32_t page, cgr__ledger_page *entry) {
  const cgr__page_group *group = &rows->group[e->group];
  const cgr__row_pages *has = &group->row[e->row];
  cgr__members_sync(rows, e->row);
  const cgr__ledger_use use = use_of_row(rows, e->row);
  for (int32_t i = 0; i < e->count; i++) {
    int32_t index = e->first + i;
    int32_t before = index >= has->first && index < has->end ? ledger_page_at(group, e->row, index) : -1;
    if (before == e->pages[i])
      continue;
    if (e->pages[i] == page)
      note_taker(entry, use.request, use.seq);
    if (before == page)
      note_giver(entry, use);
  }
}

cgr_status cgr__ledger_check_edits(cgr__rows *rows, const cgr__page_edits *edits, uint64_t completed) {
  cgr__page_edit edit = cgr__page_edits_begin(edits);
  while (cgr__page_edits_next(edits, &edit)) {
    for (int32_t i = 0; i < edit.count; i++) {
      cgr__ledger_page entry = *entry_of(rows, edit.group, edit.pages[i]);
      /* The edits before this one may take the page from its last row, or give it to one that may have it at once. */
      bool depends = entry.holders > 0 ? edits->num_losing > 0 : is_handed_early(rows, edit.row, &entry, completed);
      cgr__page_edit earlier = cgr__page_edits_begin(edits);
      while (depends && cgr__page_edits_next(edits, &earlier) && earlier.entry < edit.entry)
        replay_edit(rows, &earlier, edit.pages[i], &entry);
      if (is_handed_early(rows, edit.row, &entry, completed))
        return refuse_early(rows, &edit, i, &entry, completed);
    }
  }
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- lengths */

/* How far the row's tokens from `from` on, which it has from other rows' pages, surely go. */
static int32_t sure_end_of_others(const cgr__rows *rows, int32_t g, int32_t row, int32_t from, int32_t to) {
  const cgr__page_group *group = &rows->group[g];
  const cgr__row_pages *has = &group->row[row];
  int32_t reached = from, other = -1;
  while (reached < to) {
    int32_t p = reached / group->page_size, begin = p * group->page_size, tokens = group->page_size;
    if (p >= has->end)
      break;
    if (p >= has->first) /* pages before are not needed */
      tokens = tokens_of_others(rows, g, ledger_page_at(group, row, p), row, p, false, &other);
    if (begin + tokens <= reached)
      break;
    reached = begin + tokens;
  }
  return min_of(reached, to);
}

/* Looks again at what other rows have in the row's pages. */
static void update_known(cgr__rows *rows, int32_t g, int32_t row) {
  const cgr__row_pages *has = &rows->group[g].row[row];
  int32_t *known = known_of(rows, g, row), other = -1;
  for (int32_t i = has->first; i < has->end; i++)
    if (known[i] != CGR__LEDGER_ALL)
      known[i] = max_of(known[i], tokens_of_others(rows, g, ledger_page_at(&rows->group[g], row, i), row, i, false, &other));
}

void cgr__ledger_set_length(cgr__rows *rows, int32_t row, int32_t set, int32_t num_tokens) {
  cgr__members_sync(rows, row);
  int32_t sure = min_of(sure_tokens(rows, row, 0, set), num_tokens), reached = num_tokens;
  for (int32_t g = 0; g < rows->limits->num_groups; g++)
    if (rows->group[g].length_set == set && rows->group[g].program == 0 && !rows->group[g].engine_table) {
      reached = min_of(reached, sure_end_of_others(rows, g, row, sure, num_tokens));
      if (!knows_all(rows, row))
        update_known(rows, g, row);
    }
  rows->ledger.sure[set][row] = max_of(sure, reached);
  if (set == 0)
    rows->ledger.known_at[row] = knows_all(rows, row) ? -1 : num_tokens;
}

void cgr__ledger_reject(cgr__rows *rows, int32_t row, int32_t count) {
  rows->ledger.known_at[row] = knows_all(rows, row) ? -1 : rows->ledger.known_at[row] - count;
}

void cgr__ledger_fill(cgr__rows *rows, int32_t row, int32_t set) {
  rows->ledger.sure[set][row] = cgr__rows_other_length(rows, row, set);
  for (int32_t g = 0; g < rows->limits->num_groups; g++)
    if (rows->group[g].length_set == set && !rows->group[g].engine_table)
      know_pages(rows, g, row);
}

/* ----------------------------------------------------------------------------------------------------------------- a step */

static cgr_status refuse_two_writers(int32_t page, int32_t g, int32_t one, int32_t other, uint64_t seq) {
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "batch: page %d of group %d would be written by rows %d and %d in step %llu, expected one row: a page that is "
                   "shared is only read",
                   page, g, one < other ? one : other, one < other ? other : one, (unsigned long long)seq);
}

static cgr_status refuse_overwrite(const cgr__rows *rows, int32_t g, int32_t page, int32_t row, int64_t token, int32_t place,
                                   int32_t other, uint64_t seq) {
  const int32_t set = rows->group[g].length_set, page_size = rows->group[g].page_size;
  int32_t at = page_index(&rows->group[g], other, page, (int32_t)(token / page_size));
  if ((int64_t)at * page_size + place >= sure_tokens(rows, other, rows->group[g].program, set))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: row %d would write token %lld in step %llu into page %d of group %d, where row %d has a guess at "
                     "that place that may yet be accepted, expected a page of its own: a page that is shared is only read",
                     row, (long long)token, (unsigned long long)seq, page, g, other);
  if (sure_tokens_in_page(rows, g, other, at, false) > place)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: row %d would write token %lld in step %llu into page %d of group %d, where row %d has a token at "
                     "that place, expected a page of its own: a page that is shared is only read",
                     row, (long long)token, (unsigned long long)seq, page, g, other);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "batch: row %d would write token %lld in step %llu into page %d of group %d, which row %d reads in the same "
                   "step, expected row %d in a later step: a page that was put below a row's length has its tokens before the "
                   "row's next step",
                   row, (long long)token, (unsigned long long)seq, page, g, other, other);
}

/* The row writes tokens [start, end). */
static cgr_status check_row_pages(cgr__rows *rows, int32_t g, int32_t row, int64_t start, int64_t end, uint64_t seq) {
  const cgr__page_group *group = &rows->group[g];
  const cgr__row_pages *has = &group->row[row];
  int32_t last = (int32_t)((end - 1) / group->page_size), other = -1;
  for (int32_t p = (int32_t)(start / group->page_size); p <= last && p >= has->first && p < has->end; p++) {
    int32_t page = ledger_page_at(group, row, p), begin = p * group->page_size;
    cgr__ledger_page *entry = entry_of(rows, g, page);
    if (entry->ticket == rows->ledger.ticket)
      return refuse_two_writers(page, g, entry->writer, row, seq);
    entry->ticket = rows->ledger.ticket;
    entry->writer = row;
    int64_t place = start > begin ? start - begin : 0;
    if (entry->holders > 1 && tokens_of_others(rows, g, page, row, p, true, &other) > place)
      return refuse_overwrite(rows, g, page, row, begin + place, (int32_t)place, other, seq);
  }
  return CGR_OK;
}

cgr_status cgr__ledger_check_step(cgr__rows *rows, const cgr__checked_batch *checked, uint64_t seq) {
  const cgr__batch_layout *batch = checked->batch_layout;
  rows->ledger.ticket++;
  for (int32_t i = 0; i < checked->num_requests; i++)
    if (batch->query_lens[i] > 0)
      rows->ledger.reads[batch->rows[i]] = rows->ledger.ticket;
  for (int32_t i = 0; i < checked->num_requests; i++) {
    int32_t row = batch->rows[i], query_len = batch->query_lens[i];
    int64_t start = cgr__rows_computed(rows, row), slack = checked->set > 0 ? 0 : rows->row[row].slack;
    if (checked->program > 0) {
      start = rows->draft[checked->program][row].computed;
      slack = rows->draft[checked->program][row].slack;
    }
    if (checked->set > 0)
      start = (int64_t)cgr__rows_other_length(rows, row, checked->set) - query_len;
    const bool empty = cgr__request_has_ended(rows, batch, checked->program, i);
    for (int32_t g = 0; g < rows->limits->num_groups && query_len > 0 && !empty; g++)
      if (rows->group[g].length_set == checked->set && rows->group[g].program == checked->program && !rows->group[g].engine_table)
        CGR__TRY(check_row_pages(rows, g, row, start - slack, start + query_len, seq));
  }
  return CGR_OK;
}

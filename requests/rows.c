#include "requests/rows.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/drafts.h"
#include "requests/guesses.h"
#include "requests/ledger.h"
#include "requests/members.h"
#include "requests/pages.h"
#include "requests/follow.h"

/* ---------------------------------------------------------------------------------------------------------------- memory */

/* 16 bits per page, so that collisions are rare. */
static int32_t filter_words_for(int32_t pages_per_row) {
  int32_t words = 1;
  while (words * 4 < pages_per_row)
    words *= 2;
  return words;
}

static void lay_out_group(cgr__page_group *group, const cgr_group *config, const cgr__window_spans *window_spans,
                          const cgr__limits *limits, cgr__block *b) {
  size_t rows = (size_t)limits->max_rows;
  group->page_size = config->page_size;
  group->pages_per_row = (limits->max_lens[config->length_set] + config->page_size - 1) / config->page_size;
  group->read_trash = config->read_trash_page;
  group->write_trash = config->write_trash_page;
  group->length_set = config->length_set;
  group->program = config->program;
  group->num_pages = config->num_pages;
  group->window_spans = *window_spans;
  group->engine_table = config->page_table != NULL;
  group->filter_words = filter_words_for(group->pages_per_row);
  group->row = cgr__block_take(b, rows, sizeof *group->row);
  if (group->engine_table)
    return;
  group->pages = cgr__block_take(b, rows * (size_t)group->pages_per_row, sizeof *group->pages);
  group->page_filter = cgr__block_take(b, rows * (size_t)group->filter_words, sizeof *group->page_filter);
}

static void lay_out_ledger(cgr__rows *rows, const cgr__rows_config *config, cgr__block *b) {
  cgr__ledger *ledger = &rows->ledger;
  size_t n = (size_t)config->limits->max_rows;
  for (int32_t g = 0; g < config->limits->num_groups; g++) {
    if (config->groups[g].page_table)
      continue;
    ledger->page[g] = cgr__block_take(b, (size_t)config->groups[g].num_pages, sizeof *ledger->page[g]);
    ledger->known[g] = cgr__block_take(b, n * (size_t)rows->group[g].pages_per_row, sizeof *ledger->known[g]);
  }
  ledger->request = cgr__block_take(b, n, sizeof *ledger->request);
  ledger->known_at = cgr__block_take(b, n, sizeof *ledger->known_at);
  ledger->reads = cgr__block_take(b, n, sizeof *ledger->reads);
  ledger->sure[0] = cgr__block_take(b, n, sizeof *ledger->sure[0]);
  for (int32_t s = 1; s < config->limits->num_sets; s++)
    ledger->sure[s] = cgr__block_take(b, n, sizeof *ledger->sure[s]);
}

static void lay_out_guesses(cgr__rows *rows, const cgr__limits *limits, cgr__block *b) {
  const size_t depth = (size_t)limits->ring_depth;
  if (rows->has_stops)
    rows->guesses.since = cgr__block_take(b, (size_t)limits->max_rows, sizeof *rows->guesses.since);
  if (rows->has_stops || limits->token_stride > 1)
    rows->guesses.count = cgr__block_take(b, depth, sizeof *rows->guesses.count);
  if (limits->token_stride <= 1)
    return;
  rows->guesses.note = cgr__block_take(b, depth * (size_t)limits->max_requests, sizeof *rows->guesses.note);
  rows->guesses.epoch = cgr__block_take(b, (size_t)limits->max_rows, sizeof *rows->guesses.epoch);
}

static void lay_out_rows(cgr__rows *rows, const cgr__rows_config *config, cgr__block *b) {
  size_t n = (size_t)config->limits->max_rows;
  rows->limits = config->limits;
  rows->row = cgr__block_take(b, n, sizeof *rows->row);
  rows->dirty = cgr__block_take(b, n, sizeof *rows->dirty);
  rows->free_rows = cgr__block_take(b, n, sizeof *rows->free_rows);
  for (int32_t g = 0; g < config->limits->num_groups; g++)
    lay_out_group(&rows->group[g], &config->groups[g], &config->window_spans[g], config->limits, b);
  rows->lengths = config->lengths;
  rows->has_stops = config->limits->stop_words > 0;
  rows->stops = config->stops;
  rows->num_data = config->num_data;
  for (int32_t i = 0; i < config->num_data; i++) {
    cgr__data *data = &rows->data[i];
    data->words = config->data[i].words;
    memcpy(data->padding, config->data[i].padding, sizeof data->padding);
    data->words_of = cgr__block_take(b, n * (size_t)data->words, sizeof *data->words_of);
    data->row = cgr__block_take(b, data->words > 0 ? n : 0, sizeof *data->row);
  }
  rows->has_ledger = config->ledger;
  if (config->ledger)
    lay_out_ledger(rows, config, b);
  lay_out_guesses(rows, config->limits, b);
  for (int32_t p = 1; p < config->limits->num_programs; p++)
    rows->draft[p] = cgr__block_take(b, n, sizeof *rows->draft[p]);
}

size_t cgr__rows_bytes(const cgr__rows_config *config) {
  cgr__rows rows;
  cgr__block b = { NULL, 0 };
  lay_out_rows(&rows, config, &b);
  return b.used;
}

void cgr__rows_init(cgr__rows *rows, cgr__lane_batches *batches, const cgr__rows_config *config, void *memory) {
  cgr__block b = { memory, 0 };
  memset(rows, 0, sizeof *rows);
  lay_out_rows(rows, config, &b);
  rows->batches = batches;
  cgr__rows_fill_data(rows);
  for (int32_t i = 0; i < rows->limits->max_rows; i++) {
    rows->row[i].place = rows->row[i].deadline = -1;
    rows->free_rows[i] = rows->limits->max_rows - 1 - i; /* row 0 is given out first */
  }
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

cgr_status cgr__rows_check(const cgr__rows *rows, const char *function, int32_t row) {
  if (row < 0 || row >= rows->limits->max_rows)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: row is %d, expected 0 .. %d", function, row, rows->limits->max_rows - 1);
  if (!rows->row[row].open)
    return cgr__fail(CGR_ERROR_ROW_CLOSED, "%s: row %d is closed, expected one that cgr_request_open gave", function, row);
  return CGR_OK;
}

cgr_status cgr__rows_open(cgr__rows *rows, uint64_t tag, int32_t *row) {
  if (rows->num_open == rows->limits->max_rows)
    return cgr__fail(CGR_ERROR_TOO_MANY_REQUESTS,
                     "cgr_request_open: every row is open, expected a closed one (max_rows is %d): cgr_request_close one",
                     rows->limits->max_rows);
  int32_t index = rows->free_rows[rows->limits->max_rows - 1 - rows->num_open];
  cgr__row *entry = &rows->row[index];
  rows->num_open++;
  entry->open = true;
  entry->computed = 0;
  entry->has_token = entry->shared_prefix = false;
  entry->ended = CGR_END_NONE;
  entry->tag = tag; /* last_seq stays: its last owner's pages may be in use until then */
  cgr__rows_clear_pages(rows, index);
  cgr__rows_clear_data(rows, index);
  cgr__changes_mark_length(rows, index);
  cgr__drafts_open(rows, index);
  if (rows->has_ledger)
    cgr__ledger_open(rows, index);
  *row = index;
  return CGR_OK;
}

cgr_status cgr__rows_close(cgr__rows *rows, int32_t row) {
  bool follows = cgr__rows_batches_of(rows, row)->members.follows;
  if (rows->row[row].place >= 0 && !follows)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_request_close: row %d is in the standing batch, expected it to be removed first (cgr_standing_remove)",
                     row);
  if (rows->row[row].place >= 0)
    cgr__follow_close(rows, row);
  rows->row[row].open = false;
  cgr__guesses_forget(rows, row);
  cgr__changes_drop(rows, row);
  cgr__rows_clear_pages(rows, row);
  rows->num_open--;
  rows->free_rows[rows->limits->max_rows - 1 - rows->num_open] = row;
  return CGR_OK;
}

/* The next step would see tokens whose pages the row no longer has. */
static cgr_status refuse_front(const cgr__rows *rows, int32_t row, int32_t num_tokens) {
  int32_t needed = 0, g = cgr__rows_front_missing(rows, row, 0, num_tokens, &needed);
  const cgr__row_pages *has = &rows->group[g].row[row];
  return cgr__fail(
      CGR_ERROR_PAGES_MISSING,
      "cgr_request_set_length: num_tokens is %d and row %d has pages %d .. %d of group %d, expected all from page %d "
      "on (cgr_request_set_pages): its layers see tokens of it",
      num_tokens, row, has->first, has->end - 1, g, needed);
}

cgr_status cgr__rows_set_length(cgr__rows *rows, int32_t row, int32_t num_tokens) {
  cgr__row *entry = &rows->row[row];
  int32_t capacity;
  if (num_tokens < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_request_set_length: num_tokens is %d, expected at least 0", num_tokens);
  if (num_tokens > rows->limits->max_lens[0])
    return cgr__fail(CGR_ERROR_SEQUENCE_TOO_LONG, "cgr_request_set_length: num_tokens is %d, expected at most %d (max_seq_len)",
                     num_tokens, rows->limits->max_lens[0]);
  if (num_tokens > entry->capacity)
    return cgr__fail(CGR_ERROR_PAGES_MISSING,
                     "cgr_request_set_length: num_tokens is %d, expected at most %d (the pages of row %d in group %d): "
                     "cgr_request_set_pages gives it more",
                     num_tokens, entry->capacity, row, cgr__rows_shortest_group(rows, row, 0, 0, &capacity));
  if (num_tokens > 0 && num_tokens < entry->least)
    return refuse_front(rows, row, num_tokens);
  cgr__members_sync(rows, row);
  if (rows->has_ledger)
    cgr__ledger_set_length(rows, row, 0, num_tokens);
  entry->shared_prefix |= num_tokens > cgr__row_least_computed(entry);
  entry->computed = num_tokens;
  cgr__drafts_doubt(rows, row);
  entry->ended = CGR_END_NONE;
  cgr__drafts_cut(rows, row, num_tokens);
  cgr__guesses_forget(rows, row);
  entry->has_token = false;
  cgr__changes_mark_length(rows, row);
  cgr__members_revalidate(rows, row);
  return CGR_OK;
}

void cgr__rows_forget_tokens(cgr__rows *rows, const cgr__batch_layout *batch) {
  for (int32_t i = 0; i < batch->num_requests; i++) {
    cgr__members_sync(rows, batch->rows[i]);
    rows->row[batch->rows[i]].has_token = false;
    cgr__changes_mark_length(rows, batch->rows[i]);
    cgr__members_revalidate(rows, batch->rows[i]);
  }
}

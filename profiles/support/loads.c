#include "profiles/support/loads.h"

#include <stdlib.h>
#include <string.h>

const char *const bench_load_names[BENCH_NUM_LOADS] = { "unchanged",
                                                        "1/16 append a page",
                                                        "one leaves, one comes",
                                                        "one leaves, others move up, one comes",
                                                        "standing, unchanged",
                                                        "standing, 1/16 append a page",
                                                        "standing, one leaves, one comes",
                                                        "3 guesses",
                                                        "standing, 3 guesses",
                                                        "whole batch and tokens" };

static bool is_standing(const bench_load *l) {
  return l->kind == BENCH_UNCHANGED_STANDING || l->kind == BENCH_APPENDING_STANDING || l->kind == BENCH_CHURNING_STANDING ||
         l->kind == BENCH_GUESSING_STANDING;
}

static bool guesses(const bench_load *l) { return l->kind == BENCH_GUESSING || l->kind == BENCH_GUESSING_STANDING; }

static bool appends(const bench_load *l) { return l->kind == BENCH_APPENDING || l->kind == BENCH_APPENDING_STANDING; }
static bool moves_up(const bench_load *l) { return l->kind == BENCH_MOVING_UP; }
static bool churns(const bench_load *l) { return l->kind == BENCH_CHURNING || l->kind == BENCH_CHURNING_STANDING || moves_up(l); }

static void put(const bench_load *l, int32_t row, int32_t token) {
  if (is_standing(l))
    bench_check(cgr_standing_add(l->engine->rt, NULL, row, 1, &token, 0), "cgr_standing_add");
}

/* From its second step on a request has its guesses: those before it are on the device then. */
static void begin_guessing(bench_load *l) {
  const int32_t count = l->engine->draft_tokens;
  for (int32_t i = 0; i < l->requests; i++) {
    l->query_lens[i] = 1 + count;
    l->flags[i] = CGR_REQUEST_DRAFTS(count);
    if (is_standing(l))
      bench_check(cgr_standing_update(l->engine->rt, NULL, l->engine->rows[i], 1 + count, NULL, CGR_REQUEST_DRAFTS(count)),
                  "cgr_standing_update");
  }
  if (is_standing(l))
    return;
  l->batch.query_lens = l->query_lens;
  l->batch.flags = l->flags;
}

static void take(const bench_load *l, int32_t row) {
  if (is_standing(l))
    bench_check(cgr_standing_remove(l->engine->rt, NULL, row), "cgr_standing_remove");
}

static int32_t num_rows(const bench_load *l) { return l->requests + (l->kind == BENCH_RESENT); }

bench_load bench_load_open(bench_engine *e, bench_load_kind kind, int32_t requests, int32_t length, int32_t steps) {
  bench_load l = { .engine = e, .kind = kind, .requests = requests, .length = length, .capacity = length + steps + 3 * 16 };
  l.rows = malloc((size_t)requests * sizeof *l.rows);
  l.tokens = malloc((size_t)requests * sizeof *l.tokens);
  l.query_lens = malloc((size_t)requests * sizeof *l.query_lens);
  l.flags = malloc((size_t)requests * sizeof *l.flags);
  if (guesses(&l))
    l.capacity += steps * e->draft_tokens;
  if (churns(&l))
    l.capacity += 16 * BENCH_PAGES_OF_A_NEW_REQUEST;
  bench_open_rows(e, num_rows(&l), length, l.capacity);
  l.batch = (cgr_batch)CGR_BATCH_INIT;
  l.batch.num_requests = is_standing(&l) ? CGR_BATCH_STANDING : requests;
  l.batch.rows = is_standing(&l) ? NULL : l.rows;
  for (int32_t i = 0; i < requests; i++)
    put(&l, e->rows[i], 0);
  return l;
}

void bench_load_close(bench_load *l) {
  for (int32_t i = 0; i < l->requests; i++)
    take(l, l->engine->rows[i]);
  bench_close_rows(l->engine, num_rows(l));
  free(l->rows);
  free(l->tokens);
  free(l->query_lens);
  free(l->flags);
}

/* The row keeps two pages more than its tokens need. */
static void drop_pages(const bench_load *l, int32_t row, int32_t length) {
  int32_t first, end, keep = length / 16 + 2;
  bench_check(cgr_request_get_pages(l->engine->rt, row, 0, &first, &end), "cgr_request_get_pages");
  if (end > keep)
    bench_check(cgr_request_drop_pages(l->engine->rt, row, 0, keep, end - keep), "cgr_request_drop_pages");
}

void bench_load_rewind(bench_load *l, int32_t length) {
  bench_engine *e = l->engine;
  for (int32_t i = 0; i < num_rows(l); i++) {
    if (appends(l))
      drop_pages(l, e->rows[i], length);
    take(l, e->rows[i]);
    bench_check(cgr_request_set_length(e->rt, e->rows[i], length), "cgr_request_set_length");
    put(l, e->rows[i], 0);
  }
  for (int32_t i = 0; i < l->requests; i++) {
    l->rows[i] = e->rows[i];
    l->tokens[i] = 0; /* they start over: their first token comes from the host */
  }
  l->batch.tokens = is_standing(l) ? NULL : l->tokens;
  l->batch.query_lens = NULL;
  l->batch.flags = NULL;
  bench_flush(e);
}

void bench_load_ahead(bench_load *l, int32_t index) {
  bench_engine *e = l->engine;
  if (!appends(l))
    return;
  for (int32_t i = (16 - index % 16) % 16; i < l->requests; i += 16) {
    int32_t first, end, page = bench_take_page(e);
    bench_check(cgr_request_get_pages(e->rt, e->rows[i], 0, &first, &end), "cgr_request_get_pages");
    while (cgr_request_set_pages(e->rt, e->rows[i], 0, end, &page, 1) != CGR_OK) /* the row has that page already */
      page = bench_take_page(e);
  }
}

/* The request that has been there longest leaves, and a new one takes its place in the batch, one of the first 512: there are
 * pages for some 600 steps. Its first token comes from the host. */
static void replace_request(bench_load *l, int32_t index) {
  bench_engine *e = l->engine;
  int32_t churned = l->requests < 512 ? l->requests : 512, i = index % churned, place = i, pages[BENCH_PAGES_OF_A_NEW_REQUEST];
  if (moves_up(l)) /* the first 512 leave from the front; then those that came, which are behind all others */
    place = index < churned ? 0 : l->requests - churned;
  for (int32_t p = 0; p < BENCH_PAGES_OF_A_NEW_REQUEST; p++)
    pages[p] = bench_take_page(e);
  take(l, e->rows[i]);
  bench_check(cgr_request_close(e->rt, e->rows[i]), "cgr_request_close");
  bench_check(cgr_request_open(e->rt, (uint64_t)index, &e->rows[i]), "cgr_request_open");
  bench_check(cgr_request_set_pages(e->rt, e->rows[i], 0, 0, pages, BENCH_PAGES_OF_A_NEW_REQUEST), "cgr_request_set_pages");
  bench_check(cgr_request_set_length(e->rt, e->rows[i], 16), "cgr_request_set_length");
  put(l, e->rows[i], 1);
  if (moves_up(l)) {
    memmove(l->rows + place, l->rows + place + 1, (size_t)(l->requests - 1 - place) * sizeof *l->rows);
    place = l->requests - 1;
  }
  l->rows[place] = e->rows[i];
  l->tokens[place] = 1;
}

cgr_status bench_load_step(bench_load *l, int32_t index, cgr_step *step) {
  if (churns(l))
    replace_request(l, index);
  else if (l->kind == BENCH_RESENT)
    l->rows[0] = l->engine->rows[index % 2 ? l->requests : 0];
  *step = (cgr_step)CGR_STEP_INIT;
  cgr_status status = cgr_step_prepare(l->engine->rt, &l->batch, step);
  return status == CGR_OK ? cgr_step_launch(l->engine->rt, step, l->engine->stream) : status;
}

void bench_load_after(bench_load *l, const cgr_step *step) {
  if (step->key.kind != CGR_KIND_FULL)
    bench_fail("the step of %d requests ran eagerly", l->requests);
  if (guesses(l) && step->num_tokens == l->requests)
    begin_guessing(l);
  if (l->kind == BENCH_RESENT || !l->batch.tokens)
    return;
  if (!churns(l))
    l->batch.tokens = NULL; /* from now on they are on the device */
  for (int32_t i = 0; i < l->requests; i++)
    l->tokens[i] = CGR_TOKEN_LAST;
}

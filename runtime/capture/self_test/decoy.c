/* The steps around the case: the decoy before it, and the next step after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/capture/self_test/self_test.h"

static int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }

/* ----------------------------------------------------------------------------------------------------- the case's requests */

/* Where the request's own pages end, at least. */
static int32_t capacity_of(const cgr__self_test *t, int32_t i) {
  const cgr__test_case *c = &t->test_case;
  return cgr__test_after(t, &c->of, i, c->set) + c->next_lens[i];
}

/* No shorter than in the case, so that the decoy's tokens reach as far; tokens that are left go to the chunk. */
static void compose_first(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  int32_t n = c->of.count, length = c->key.query_len, left = c->key.num_tokens - c->of.num_tokens;
  for (int32_t i = 0; i < n; i++) {
    int32_t len = length > 0 ? length : c->of.lens[i] > 0 ? c->of.lens[i] : left > 0;
    c->first_lens[i] = min_of(len, capacity_of(t, i));
    left -= c->first_lens[i] - c->of.lens[i];
  }
  if (length > 0 || n == 0)
    return;
  int32_t chunk = c->num_requests - 1;
  c->first_lens[chunk] = min_of(c->first_lens[chunk] + left, capacity_of(t, chunk));
}

void cgr__test_compose_around(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  compose_first(t);
  c->num_next = c->num_next_tokens = 0;
  for (int32_t i = 0; i < c->of.count; i++) {
    if (c->first_lens[i] == 0 && cgr__test_after(t, &c->of, i, c->set) > 0)
      c->next_lens[i] = 0; /* what a model keeps for the row has not been reset */
    c->num_next += c->next_lens[i] > 0;
    c->num_next_tokens += c->next_lens[i];
  }
}

/* ------------------------------------------------------------------------------------------------------ the other requests */

/* Pages of the group with the fewest that the case's requests do not own. */
static int32_t free_pages(const cgr__self_test *t) {
  int32_t pages = INT32_MAX;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++)
    pages = min_of(pages, t->given.num_pages - t->test_case.of.owned[g]);
  return pages;
}

static void add_uniform(cgr__self_test *t, int32_t count, int32_t share, int32_t room) {
  int32_t length = t->test_case.key.query_len;
  bool exact = t->rt->graphs.exact_lengths;
  for (int32_t i = 0; i < count && !(exact && room < length); i++)
    (void)cgr__test_add_request(t, &t->decoy, exact ? length : 1 + cgr__test_pick(t, min_of(length, room)), 0, share);
}

/* One of them is a chunk. */
static void add_mixed(cgr__self_test *t, int32_t count, int32_t tokens, int32_t share, int32_t room) {
  count = min_of(count, tokens);
  for (int32_t i = 0; i < count; i++) {
    int32_t most = i + 1 < count ? 1 : min_of(room, tokens - i);
    (void)cgr__test_add_request(t, &t->decoy, 1 + cgr__test_pick(t, most), 0, share);
  }
}

/* The case's request of most tokens; with_tokens: of those that have some in the step. */
static int32_t longest_of(const cgr__self_test *t, bool with_tokens) {
  const cgr__test_case *c = &t->test_case;
  int32_t longest = -1;
  for (int32_t i = 0; i < c->num_requests; i++)
    if (!(with_tokens && c->of.lens[i] == 0) &&
        (longest < 0 || cgr__test_after(t, &c->of, i, c->set) > cgr__test_after(t, &c->of, longest, c->set)))
      longest = i;
  return longest;
}

/* How many pages of the group are enough for twins of any case of the key: for the longest ones as many as a row may have, for
 * the others what their tokens take. The case itself owns at most as many for each request, and never more than 7 of 8. */
static int64_t enough_pages(const cgr__self_test *t, int32_t group) {
  const cgr_key *key = &t->test_case.key;
  const int64_t most = t->rt->setup.limits.pages_per_row[group], size = t->rt->setup.groups[group].page_size;
  const int64_t requests = key->num_requests, longest = min_of(key->num_requests, 3);
  const int64_t others = (key->query_len > 1 ? key->query_len + size - 1 : size) / size;
  const int64_t twins = longest * most + (requests - longest) * others;
  return twins + (requests * most < 7 * twins ? requests * most : 7 * twins);
}

/* The rows or pages do not suffice for twins of the case. What is enough for any case of the key is kept: with more of the one,
 * or other lengths, the other may be what is lacking. */
static void note_lacks(cgr__self_test *t) {
  cgr__test_lacks *l = &t->lacks;
  const int32_t rows = 2 * t->test_case.key.num_requests;
  l->num_cases++;
  if (t->rt->rows.limits->max_rows < rows && l->rows < rows)
    l->rows = rows;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++)
    if (t->given.num_pages < enough_pages(t, g) && l->pages < enough_pages(t, g))
      l->pages = enough_pages(t, g);
}

void cgr__test_tell_lacks(const cgr__self_test *t) {
  const cgr__test_lacks *l = &t->lacks;
  char rows[80] = "", pages[80] = "", text[400];
  if (l->num_cases == 0)
    return;
  if (l->rows > 0)
    snprintf(rows, sizeof rows, "; cgr_config.max_rows is %d, expected %d or more", t->rt->rows.limits->max_rows, l->rows);
  if (l->pages > 0)
    snprintf(pages, sizeof pages, "; cgr_self_test.num_pages is %d, expected %lld or more", t->given.num_pages,
             (long long)l->pages);
  snprintf(
      text, sizeof text,
      "cgr_runtime_self_test: %d of %d tested steps had no decoy with their numbers of requests and tokens and their longest "
      "length, so host code that keeps something for these was not tested in them%s%s",
      l->num_cases, l->num_tried, rows, pages);
  cgr__log(t->rt, CGR_LOG_WARNING, text);
}

/* Host code that keeps something for as many requests or tokens, or for this longest length, has it from here when the case
 * comes. False: the rows or pages do not suffice. */
static bool add_twins(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  cgr__test_requests *d = &t->decoy;
  int32_t sets = t->rt->setup.limits.num_sets, longest = longest_of(t, false), with_tokens = longest_of(t, true);
  const bool has_rows = c->num_requests <= t->rt->rows.limits->max_rows - c->of.count;
  const uint64_t random = t->random;
  bool has_pages = true;
  for (int32_t i = 0; i < c->num_requests; i++) {
    bool same = i == longest || i == with_tokens;
    d->count++;
    d->lens[i] = c->of.lens[i];
    d->num_tokens += d->lens[i];
    d->seeds[i] = cgr__test_random(t, UINT64_MAX);
    for (int32_t s = 0; s < sets; s++)
      d->before[i * sets + s] = same ? cgr__test_before(t, &c->of, i, s) : 0;
    cgr__test_own_pages(t, d, i, 0);
    for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++)
      has_pages = has_pages && d->owned[g] <= t->given.num_pages - c->of.owned[g];
  }
  d->is_twin = has_rows && has_pages;
  if (d->is_twin)
    return true;
  t->random = random;
  note_lacks(t);
  return false;
}

static void clear_decoy(cgr__self_test *t) {
  cgr__test_requests *d = &t->decoy;
  d->count = d->num_tokens = 0;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++) {
    d->owned[g] = 0;
    d->turn[g] = cgr__test_place(t, &t->test_case.of, g, t->test_case.of.owned[g]);
  }
}

void cgr__test_compose_decoy(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  int32_t pages = free_pages(t), count = min_of(c->key.num_requests, t->rt->rows.limits->max_rows - c->of.count);
  clear_decoy(t);
  t->lacks.num_tried++;
  if (add_twins(t))
    return;
  clear_decoy(t);
  count = min_of(count, pages);
  if (count == 0)
    return;
  int32_t share = min_of(pages / count, 1 << 20), longest = t->rt->setup.limits.max_lens[c->set];
  int64_t most = (int64_t)share * cgr__test_smallest_page(t->rt);
  int32_t room = most < longest ? (int32_t)most : longest;
  if (c->key.query_len > 0)
    add_uniform(t, count, share, room);
  else
    add_mixed(t, count, c->key.num_tokens, share, room);
}

/* ------------------------------------------------------------------------------------------------------------- the batches */

static void begin_batch(cgr__self_test *t, const cgr_key *key, cgr_graph_kind kind) {
  t->batch.key = *key;
  t->batch.key.kind = (int32_t)kind;
  t->batch.num_requests = t->batch.num_tokens = 0;
}

static void add_to_batch(cgr__test_batch *b, const cgr__self_test *t, int32_t row, int32_t len, uint64_t seed) {
  int32_t i = b->num_requests++;
  b->rows[i] = row;
  b->lens[i] = len;
  b->seeds[i] = seed;
  for (int32_t k = 0; k < len; k++)
    b->tokens[b->num_tokens++] = (int32_t)(cgr__pages_mix(seed + (uint64_t)k) % (uint64_t)t->given.max_token);
}

/* Ascending lengths put the decodes first, whatever a backend takes for one. Requests without tokens are left out. Returns how
 * many entries of t->order name a request in their low half. */
static int32_t sort_rows(cgr__self_test *t, const int32_t *lens, int32_t count) {
  int32_t with_tokens = 0;
  for (int32_t i = 0; i < count; i++)
    if (lens[i] > 0)
      t->order[with_tokens++] = ((int64_t)lens[i] << 32) + i;
  qsort(t->order, (size_t)with_tokens, sizeof *t->order, cgr__test_by_length);
  return with_tokens;
}

void cgr__test_batch_first(cgr__self_test *t, uint64_t seed) {
  const cgr__test_case *c = &t->test_case;
  begin_batch(t, &c->key, CGR_KIND_NONE);
  for (int32_t k = 0, count = sort_rows(t, c->first_lens, c->of.count); k < count; k++) {
    int32_t i = (int32_t)(t->order[k] & INT32_MAX);
    add_to_batch(&t->batch, t, c->of.rows[i], c->first_lens[i], c->of.seeds[i] ^ seed);
  }
}

void cgr__test_batch_decoy(cgr__self_test *t) {
  const cgr__test_requests *d = &t->decoy;
  begin_batch(t, &t->test_case.key, CGR_KIND_NONE);
  for (int32_t k = 0, count = d->is_twin ? d->count : sort_rows(t, d->lens, d->count); k < count; k++) {
    int32_t i = d->is_twin ? k : (int32_t)(t->order[k] & INT32_MAX);
    add_to_batch(&t->batch, t, d->rows[i], d->lens[i], d->seeds[i]);
  }
}

void cgr__test_batch_case(cgr__self_test *t, cgr_graph_kind kind) {
  const cgr__test_case *c = &t->test_case;
  begin_batch(t, &c->key, kind);
  for (int32_t i = 0; i < c->num_requests; i++)
    add_to_batch(&t->batch, t, c->of.rows[i], c->of.lens[i], c->of.seeds[i]);
}

/* The rows go on with the tokens that the case has sampled for them. */
cgr_status cgr__test_batch_next(cgr__self_test *t, cgr_graph_kind kind) {
  const cgr__test_case *c = &t->test_case;
  cgr__test_batch *b = &t->batch;
  begin_batch(t, &c->key, kind);
  for (int32_t k = 0, count = sort_rows(t, c->next_lens, c->of.count); k < count; k++) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    int32_t i = (int32_t)(t->order[k] & INT32_MAX), at = b->num_tokens;
    CGR__TRY(cgr_request_get_info(t->rt, c->of.rows[i], &info));
    add_to_batch(b, t, c->of.rows[i], c->next_lens[i], c->of.seeds[i] ^ CGR__SEED_OF_NEXT);
    if (info.has_token && c->set == 0 && c->next_has_sampled)
      b->tokens[at] = CGR_TOKEN_LAST;
  }
  return CGR_OK;
}

bool cgr__test_batch_other(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  cgr_key key = c->key;
  key.num_requests = 1;
  key.num_tokens = c->key.num_tokens == 1 ? 2 : 1;
  key.query_len = 0;
  begin_batch(t, &key, CGR_KIND_NONE);
  int32_t most = c->set == 0 ? capacity_of(t, 0) : c->first_lens[0];
  if (key.num_tokens > t->rt->setup.config.max_tokens || key.num_tokens > most)
    return false;
  add_to_batch(&t->batch, t, c->of.rows[0], key.num_tokens, c->of.seeds[0] ^ CGR__SEED_OF_OTHER);
  return true;
}

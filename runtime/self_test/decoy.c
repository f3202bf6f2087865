/* The steps around the case: the decoy before it, and the next step after it. */
#include <stdlib.h>
#include <string.h>

#include "runtime/self_test/self_test.h"

/* Change the seed of a request of the case to what it has in the steps around it; not in the low bits, which count its tokens. */
#define SEED_OF_DECOY ((uint64_t)1 << 62)
#define SEED_OF_NEXT ((uint64_t)1 << 63)

/* ----------------------------------------------------------------------------------------------------- the case's requests */

/* No shorter than in the case, so that the decoy's tokens reach as far; tokens that are left go to the last one. */
static void compose_first(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  int32_t n = c->of.count, length = c->key.query_len, left = c->key.num_tokens - c->of.num_tokens;
  for (int32_t i = 0; i < n; i++) {
    int32_t after = cgr__test_after(t, &c->of, i, c->set);
    int32_t len = length > 0 ? length : c->of.lens[i] > 0 ? c->of.lens[i] : left > 0;
    c->first_lens[i] = len < after ? len : after;
    left -= c->first_lens[i] - c->of.lens[i];
  }
  if (length > 0 || n == 0)
    return;
  int32_t others = c->key.num_requests - n < left ? c->key.num_requests - n : left; /* one token for each other request */
  int32_t more = (left - others) / (others > 0 ? 2 : 1), after = cgr__test_after(t, &c->of, n - 1, c->set);
  c->first_lens[n - 1] = c->first_lens[n - 1] + more < after ? c->first_lens[n - 1] + more : after;
}

void cgr__test_compose_around(cgr__self_test *t) {
  cgr__test_case *c = &t->test_case;
  compose_first(t);
  c->num_next = 0;
  for (int32_t i = 0; i < c->of.count; i++) {
    /* Of a row that the decoy has reset, and not at position 0: that would reset it again. */
    c->next_lens[i] = c->first_lens[i] > 0 && cgr__test_after(t, &c->of, i, c->set) > 1;
    c->num_next += c->next_lens[i];
  }
}

/* ------------------------------------------------------------------------------------------------------ the other requests */

/* Pages of the group with the fewest that no request of the case owns. */
static int32_t free_pages(const cgr__self_test *t) {
  int32_t pages = INT32_MAX;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++) {
    int32_t left = t->given.num_pages - t->test_case.of.owned[g];
    pages = left < pages ? left : pages;
  }
  return pages;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t sum(const int32_t *values, int32_t count) {
  int32_t all = 0;
  for (int32_t i = 0; i < count; i++)
    all += values[i];
  return all;
}

static void add_uniform(cgr__self_test *t, int32_t count, int32_t share, int32_t room) {
  int32_t length = t->test_case.key.query_len;
  bool exact = t->rt->graphs.exact_lengths;
  for (int32_t i = 0; i < count && !(exact && room < length); i++)
    cgr__test_add_request(t, &t->decoy, exact ? length : 1 + cgr__test_pick(t, smaller(length, room)), share);
}

/* One of them is a chunk. */
static void add_mixed(cgr__self_test *t, int32_t count, int32_t tokens, int32_t share, int32_t room) {
  count = smaller(count, tokens);
  for (int32_t i = 0; i < count; i++) {
    int32_t most = i + 1 < count ? 1 : smaller(room, tokens - i);
    cgr__test_add_request(t, &t->decoy, 1 + cgr__test_pick(t, most), share);
  }
}

void cgr__test_compose_decoy(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  cgr__test_requests *d = &t->decoy;
  int32_t n = c->of.count, left = c->key.num_requests - n, tokens = c->key.num_tokens - sum(c->first_lens, n);
  d->count = d->num_tokens = 0;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++) {
    d->owned[g] = 0;
    d->turn[g] = cgr__test_place(t, &c->of, g, c->of.owned[g]);
  }
  if (left == 0) /* they have a step of their own */
    left = c->key.num_requests, tokens = c->key.num_tokens;
  int32_t pages = free_pages(t);
  int32_t count = smaller(smaller(left, t->rt->rows.max_rows - n), pages);
  if (count == 0)
    return;
  int32_t share = smaller(pages / count, 1 << 20);
  int64_t most = (int64_t)share * cgr__test_smallest_page(t->rt);
  int32_t longest = t->rt->setup.limits.max_lens[c->set], room = most < longest ? (int32_t)most : longest;
  if (c->key.query_len > 0)
    add_uniform(t, count, share, room);
  else
    add_mixed(t, count, tokens, share, room);
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

/* Ascending lengths put the decodes first, whatever a backend takes for one; and the other requests before those of the case. */
void cgr__test_batch_decoy(cgr__self_test *t, bool of_case, bool of_decoy) {
  const cgr__test_case *c = &t->test_case;
  const cgr__test_requests *d = &t->decoy;
  int32_t others = of_decoy ? d->count : 0, count = others + (of_case ? c->of.count : 0);
  begin_batch(t, &c->key, CGR_KIND_NONE);
  for (int32_t i = 0; i < count; i++)
    t->order[i] = ((int64_t)(i < others ? d->lens[i] : c->first_lens[i - others]) << 32) + i;
  qsort(t->order, (size_t)count, sizeof *t->order, cgr__test_by_length);
  for (int32_t i = 0; i < count; i++) {
    int32_t at = (int32_t)(t->order[i] & INT32_MAX), len = (int32_t)(t->order[i] >> 32);
    if (at < others)
      add_to_batch(&t->batch, t, d->rows[at], len, d->seeds[at]);
    else
      add_to_batch(&t->batch, t, c->of.rows[at - others], len, c->of.seeds[at - others] ^ SEED_OF_DECOY);
  }
}

void cgr__test_batch_case(cgr__self_test *t, cgr_graph_kind kind) {
  const cgr__test_case *c = &t->test_case;
  begin_batch(t, &c->key, kind);
  for (int32_t i = 0; i < c->of.count; i++)
    add_to_batch(&t->batch, t, c->of.rows[i], c->of.lens[i], c->of.seeds[i]);
}

/* Not padded: host code that keeps something for each size has to do it again in the decoy that follows. */
void cgr__test_batch_next(cgr__self_test *t) {
  const cgr__test_case *c = &t->test_case;
  cgr_key key = c->key;
  key.num_requests = c->of.count;
  key.num_tokens = c->num_next;
  key.query_len = 0;
  begin_batch(t, &key, CGR_KIND_NONE);
  for (int32_t i = 0; i < c->of.count; i++)
    add_to_batch(&t->batch, t, c->of.rows[i], c->next_lens[i], c->of.seeds[i] ^ SEED_OF_NEXT);
}

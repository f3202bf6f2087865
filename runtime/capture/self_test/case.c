/* What a graph is tried with, over the given pages: fewer requests and tokens than it holds, of random lengths, or as many. */
#include <stdlib.h>
#include <string.h>

#include "runtime/capture/self_test/self_test.h"

/* Somewhat fewer than there is room for, so that there is padding; of a full case as many, so that the last place is in use. */
static int32_t share_of(cgr__self_test *t, int32_t count) {
  if (t->is_full)
    return count;
  return count > 1 ? count - 1 - cgr__test_pick(t, (count + 3) / 4) : 1;
}

/* -------------------------------------------------------------------------------------------------------------- requests */

/* One of the case's. */
static void add_request(cgr__self_test *t, int32_t len, int32_t next, int32_t share) {
  int32_t i = t->test_case.of.count;
  t->test_case.next_lens[i] = cgr__test_add_request(t, &t->test_case.of, len, next, share);
}

/* Tokens of a uniform request in the case: short of `length` where that is allowed, and of what the next step takes. */
static int32_t draw_length(cgr__self_test *t, int32_t length, int64_t room) {
  if (t->rt->graphs.exact_lengths)
    return length;
  int64_t most = room - length > 1 ? room - length : 1;
  if (t->is_full)
    return length < room ? length : (int32_t)room;
  return 1 + cgr__test_pick(t, length < most ? length : (int32_t)most);
}

/* Decodes come first, for backends that ask for it. In the next step all requests are as long as there is room for, so that the
 * key's last tokens are some request's. */
static bool compose_uniform(cgr__self_test *t, int32_t requests, int32_t later, int32_t pages) {
  int32_t length = t->test_case.key.query_len;
  int64_t *lens = t->order;
  int64_t page = cgr__test_smallest_page(t->rt), longest = t->rt->setup.limits.max_lens[t->test_case.set];
  bool exact = t->rt->graphs.exact_lengths;
  while (exact && requests + later > 1 && pages / (requests + later) * page < length)
    *(later > 0 ? &later : &requests) -= 1;
  int32_t share = pages / (requests + later);
  int64_t room = share * page < longest ? share * page : longest;
  if (exact && room < length)
    return false;
  for (int32_t i = 0; i < requests; i++)
    lens[i] = draw_length(t, length, room);
  qsort(lens, (size_t)requests, sizeof *lens, cgr__test_by_length);
  for (int32_t i = 0; i < requests + later; i++)
    add_request(t, i < requests ? (int32_t)lens[i] : 0, length, share);
  t->test_case.num_requests = requests;
  return true;
}

/* Decodes, some requests without tokens unless the case is full, and at last one chunk, which has half of the pages; in the next
 * step it has all tokens that the others leave. */
static bool compose_mixed(cgr__self_test *t, int32_t requests, int32_t later, int32_t pages) {
  const int64_t longest = t->rt->setup.limits.max_lens[t->test_case.set];
  int32_t tokens = share_of(t, t->test_case.key.num_tokens), page = cgr__test_smallest_page(t->rt);
  requests = requests < tokens ? requests : tokens;
  later = later < t->test_case.key.num_tokens - requests ? later : t->test_case.key.num_tokens - requests;
  int32_t all = requests + later, share = pages / (2 * all) > 0 ? pages / (2 * all) : 1;
  for (int32_t i = 0; i + 1 < requests; i++)
    add_request(t, t->is_full || cgr__test_pick(t, 8) > 0, 1, share);
  int32_t rest = pages - share * (all - 1);
  int64_t most = (int64_t)rest * page < longest ? (int64_t)rest * page : longest;
  /* The others need a token each, in the decoy and in the next step. */
  int32_t left = t->test_case.key.num_tokens - (all - 1);
  tokens -= t->test_case.of.num_tokens;
  tokens = tokens < left ? tokens : left;
  add_request(t, tokens < most ? tokens : (int32_t)most, left, rest);
  for (int32_t i = 0; i < later; i++)
    add_request(t, 0, 1, share);
  t->test_case.num_requests = requests;
  return true;
}

/* The pages that no request owns move on from graph to graph, so that some graph leaves each page alone: a page that every step
 * writes shows up only there. */
static void turn_pages(cgr__self_test *t) {
  cgr__test_requests *of = &t->test_case.of;
  int32_t n = t->given.num_pages;
  for (int32_t g = 0; g < t->rt->setup.config.num_groups; g++) {
    of->turn[g] = (t->next_free[g] - of->owned[g] + n) % n;
    t->next_free[g] = (t->next_free[g] + n - of->owned[g]) % n;
  }
}

/* ----------------------------------------------------------------------------------------------------------------- items */

static void add_item(cgr__test_case *c, cgr__test_item item) {
  if (item.rows == 0 || c->num_items >= CGR__MAX_TEST_ITEMS) /* the latter never: it counts all kinds of them */
    return;
  item.offset = c->content_bytes;
  c->content_bytes += (item.rows - 1) * item.stride + item.row_bytes;
  c->items[c->num_items++] = item;
}

/* Pages of the case's tokens in a group. */
static int32_t pages_of(const cgr__self_test *t, int32_t group) {
  const cgr_group *g = &t->rt->setup.groups[group];
  int32_t pages = 0;
  for (int32_t i = 0; i < t->test_case.num_requests; i++)
    pages += (cgr__test_after(t, &t->test_case.of, i, g->length_set) + g->page_size - 1) / g->page_size;
  return pages;
}

/* How many rows of a buffer runs agree in: what both write, by the same code, up to the padded counts. -1: it is not compared. */
static int32_t compared_rows(const cgr__test_case *c, int id, const cgr__buffer_shape *shape, int32_t pages, bool samples) {
  if (id == CGR_BUFFER_INPUT_IDS) /* the padding varies */
    return c->of.num_tokens;
  if (id == CGR_BUFFER_NEXT_TOKENS)
    return samples ? c->num_requests : -1;
  if (id == CGR_BUFFER_PLAN || shape->source == CGR__SOURCE_STATE || shape->source == CGR__SOURCE_WRITTEN)
    return -1;
  switch (shape->shape) {
  case CGR__SHAPE_TOKENS:
    return c->key.num_tokens;
  case CGR__SHAPE_REQUESTS:
  case CGR__SHAPE_REQUEST_PAGES:
    return c->key.num_requests;
  case CGR__SHAPE_BATCH_PAGES:
    return pages;
  case CGR__SHAPE_REQUESTS_1:
    return c->key.num_requests + 1;
  case CGR__SHAPE_SCALARS:
    return 1;
  default:
    return -1;
  }
}

static void add_buffers(cgr__self_test *t, bool samples) {
  cgr__test_case *c = &t->test_case;
  const cgr_runtime *rt = t->rt;
  for (int id = 0; id < CGR__BUFFER_COUNT; id++) {
    cgr__buffer_shape shape = cgr__buffer_shape_of(&rt->setup.limits, id, 0);
    for (int32_t copy = 0, copies = shape.copies; copy < copies; copy++) {
      shape = cgr__buffer_shape_of(&rt->setup.limits, id, copy);
      if (shape.of_groups && (rt->lane.other_groups[0] >> copy & 1u)) /* the graphs of the first program leave it alone */
        continue;
      int32_t pages = shape.shape == CGR__SHAPE_BATCH_PAGES ? pages_of(t, copy) : 0;
      int32_t rows = compared_rows(c, id, &shape, pages, samples);
      int64_t bytes = (shape.shape == CGR__SHAPE_SCALARS ? shape.rows : shape.columns) * (int64_t)cgr_dtype_size(shape.dtype);
      const bool next = id == CGR_BUFFER_NEXT_TOKENS; /* no request has guesses: one token each */
      if (rows > 0)
        add_item(c, (cgr__test_item){ shape.name, rt->arena + rt->layout.offset[id][copy], shape.dtype,
                                      next ? (int64_t)sizeof(int32_t) : bytes, bytes, rows, next ? c->of.lens : NULL, false, next,
                                      0 });
    }
  }
}

static void add_next_tokens(cgr__self_test *t) {
  const cgr_runtime *rt = t->rt;
  cgr__test_case *c = &t->test_case;
  cgr__buffer_shape shape = cgr__buffer_shape_of(&rt->setup.limits, CGR_BUFFER_NEXT_TOKENS, 0);
  int64_t bytes = shape.columns * (int64_t)cgr_dtype_size(shape.dtype);
  add_item(c, (cgr__test_item){ shape.name, rt->arena + rt->layout.offset[CGR_BUFFER_NEXT_TOKENS][0], shape.dtype,
                                sizeof(int32_t), bytes, c->num_next, NULL, true, true, 0 });
}

static void add_watched(cgr__self_test *t, bool of_next) {
  cgr__test_case *c = &t->test_case;
  for (int32_t i = 0; i < t->given.num_watched; i++) {
    const cgr_watch *w = &t->given.watched[i];
    bool tokens = w->dimension == CGR_DIMENSION_TOKENS;
    int32_t num_tokens = of_next ? c->num_next_tokens : c->of.num_tokens;
    int32_t num_requests = of_next ? c->num_next : c->num_requests;
    add_item(c, (cgr__test_item){ w->name, w->data, CGR_DTYPE_NONE, w->row_bytes, w->stride_bytes,
                                  tokens ? num_tokens : num_requests, tokens || of_next ? NULL : c->of.lens, of_next, false, 0 });
  }
}

/* What the engine writes is compared after the next step, too: only there is it seen what the case left for later ones. */
static void add_items(cgr__self_test *t) {
  bool samples = t->test_case.set == 0 && t->rt->setup.config.num_groups > 0; /* other sets do not, nor does an encoder alone */
  add_buffers(t, samples);
  add_watched(t, false);
  if (samples)
    add_item(&t->test_case, (cgr__test_item){ "tokens of the result", NULL, CGR_DTYPE_I32, sizeof(int32_t), sizeof(int32_t),
                                              t->test_case.num_requests, t->test_case.of.lens, false, false, 0 });
  if (t->test_case.num_next == 0)
    return;
  if (samples)
    add_next_tokens(t);
  add_watched(t, true);
}

bool cgr__test_compose(cgr__self_test *t, const cgr_key *key) {
  cgr__test_case *c = &t->test_case;
  int32_t pages = t->given.num_pages - (t->given.num_pages + 7) / 8; /* the others must stay as they are */
  if (t->rt->setup.config.num_groups == 0)
    pages = 2 * key->num_requests; /* of which there are none: whatever suits the lengths */
  c->key = *key;
  c->set = cgr__graphs_set_of(&t->rt->graphs, key->variant);
  c->of.count = c->of.num_tokens = c->num_items = 0;
  c->content_bytes = 0;
  memset(c->of.owned, 0, sizeof c->of.owned);
  int32_t requests = share_of(t, key->num_requests);
  requests = requests < pages ? requests : pages;
  int32_t later = (key->num_requests < pages ? key->num_requests : pages) - requests;
  bool fits = key->query_len > 0 ? compose_uniform(t, requests, later, pages) : compose_mixed(t, requests, later, pages);
  turn_pages(t);
  cgr__test_compose_around(t);
  add_items(t);
  return fits;
}

#include "interop/flashmla/host.h"

/* A walk over the requests laid end to end: the request that the next part begins in, and where that request is. */
typedef struct walk {
  const cgr__flashmla_key *c;
  const cgr__flashmla_lens *lens;
  int32_t num_live, quota;
  int32_t request, start, tokens, blocks; /* of `request` */
  int32_t before;                         /* blocks of the request before it, 0 when it has no tokens */
  int32_t cuts;                           /* parts so far that begin inside of a request */
  int32_t *num_splits;
} walk;

static int32_t count_live(const cgr__flashmla_key *c, const cgr__flashmla_lens *lens) {
  return lens->live_requests ? cgr__flashmla_clamp(*lens->live_requests, c->num_requests) : c->num_requests;
}

static void read_request(walk *w) {
  w->tokens = w->request < w->num_live ? cgr__flashmla_tokens(w->c, w->lens, w->request) : 0;
  w->blocks = cgr__flashmla_blocks(w->c, w->tokens);
}

/* Goes from x, inside of the current request or at its begin, to where the next part begins. */
static int32_t next_part(walk *w, int32_t x) {
  int32_t limit = x + w->quota + w->c->overhead;
  while (w->request < w->num_live && w->start + w->blocks + w->c->overhead <= limit) {
    w->start += w->blocks + w->c->overhead;
    w->before = w->tokens > 0 ? w->blocks : 0;
    w->request++;
    w->num_splits[w->request] = w->request + w->cuts;
    read_request(w);
  }
  if (w->request == w->num_live)
    return w->start;
  return cgr__flashmla_max(x + w->quota, w->start);
}

void cgr__flashmla_fill(const cgr__flashmla_key *c, const cgr__flashmla_lens *lens, int32_t *metadata) {
  int32_t num_live = count_live(c, lens), total = 0;
  for (int32_t i = 0; i < num_live; i++)
    total += cgr__flashmla_blocks(c, cgr__flashmla_tokens(c, lens, i)) + c->overhead;
  walk w = { .c = c, .lens = lens, .num_live = num_live, .quota = cgr__flashmla_quota(c, total) };
  w.num_splits = metadata + (size_t)c->num_parts * CGR__FLASHMLA_WORDS;
  w.num_splits[0] = 0;
  read_request(&w);
  int32_t first_blocks = w.blocks, x = 0;
  int32_t last = num_live == c->num_requests ? cgr__flashmla_tokens(c, lens, num_live - 1) : 0; /* no request: no tokens */
  last = last > 0 ? cgr__flashmla_blocks(c, last) : 0;
  for (int32_t p = 0; p < c->num_parts; p++) {
    cgr__flashmla_point begin = { w.request, x - w.start };
    x = next_part(&w, x);
    cgr__flashmla_point end = { w.request, x - w.start };
    w.cuts += end.block > 0;
    int32_t before = begin.request < num_live ? w.before : last;
    int32_t split = cgr__flashmla_ceil(begin.block, w.quota);
    cgr__flashmla_part(c, begin, end, num_live, split, before, first_blocks, metadata + (size_t)p * CGR__FLASHMLA_WORDS);
  }
  for (int32_t i = num_live + 1; i <= c->num_requests; i++)
    w.num_splits[i] = w.num_splits[num_live];
}

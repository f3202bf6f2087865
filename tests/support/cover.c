#include "tests/support/cover.h"

#include <stdbool.h>

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

/* Whether the item is one of this batch. */
static bool is_inside(const cgr__cover_batch *batch, const cgr__plan_item *s) {
  if (s->request < 0 || s->request >= batch->num_requests || s->q_tile < 0 || s->kv_begin < 0 || s->kv_end <= s->kv_begin)
    return false;
  int32_t query_len = batch->query_start[s->request + 1] - batch->query_start[s->request];
  int32_t first = s->q_tile * batch->tile_q; /* new token of the request */
  if (first >= query_len)
    return false;
  int32_t end = batch->seq_lens[s->request] - query_len + least(first + batch->tile_q, query_len);
  return (int64_t)(s->kv_end - 1) * CGR__TILE_KV < end;
}

static void count_item(const cgr__cover_batch *batch, const cgr__plan_item *s, int32_t *counts) {
  int32_t seq_len = batch->seq_lens[s->request];
  int32_t query_len = batch->query_start[s->request + 1] - batch->query_start[s->request];
  int32_t first = s->q_tile * batch->tile_q, last = least(first + batch->tile_q, query_len);
  int32_t end = least(s->kv_end * CGR__TILE_KV, seq_len - query_len + last);
  for (int32_t j = first; j < last; j++)
    for (int32_t t = s->kv_begin * CGR__TILE_KV; t < end; t++)
      counts[batch->offsets[s->request] + (int64_t)j * seq_len + t]++;
}

int64_t cgr__cover_plan(const void *plan, const cgr__cover_batch *batch, int32_t *counts, cgr__cover_item *items,
                        int64_t capacity) {
  const cgr__plan_header *header = (const cgr__plan_header *)plan;
  const cgr__plan_part *parts = (const cgr__plan_part *)(header + 1);
  int64_t found = 0;
  for (int32_t p = 0; p < header->num_parts; p++) {
    cgr__plan_walk walk = cgr__plan_walk_begin(&parts[p]);
    cgr__cover_item next = { p, { 0 } };
    while (cgr__plan_walk_next(&walk, &parts[p], p, batch->query_start, batch->seq_lens, batch->tile_q, &next.item)) {
      if (found >= capacity || !is_inside(batch, &next.item))
        return -1;
      if (counts)
        count_item(batch, &next.item, counts);
      items[found++] = next;
    }
  }
  return found;
}

#include "planners/attention/plan_host.h"

#include <string.h>

/* What the decode section is cut by. */
typedef struct scratch {
  cgr__plan_stretch *stretches; /* [max_requests + 1] */
  cgr__plan_point *cuts;        /* [G + 1] */
  cgr__plan_before *before;     /* [G + 1] */
  int32_t *firsts;              /* [G + 1] the first partial of each tile that is cut, then the number of partials */
} scratch;

size_t cgr__plan_scratch_bytes(const cgr__plan_class *c) { return CGR__PLAN_SCRATCH_BYTES(c->max_requests, c->num_parts); }

static scratch split_scratch(const cgr__plan_class *c, void *memory) {
  scratch s;
  s.stretches = memory;
  s.cuts = (cgr__plan_point *)(void *)(s.stretches + c->max_requests + 1);
  s.before = (cgr__plan_before *)(void *)(s.cuts + c->num_parts + 1);
  s.firsts = (int32_t *)(void *)(s.before + c->num_parts + 1);
  return s;
}

int64_t cgr__plan_max_entries(const cgr__plan_class *c, int32_t max_requests, int32_t max_tokens) {
  int64_t long_requests = max_tokens / ((int64_t)c->decode_query_len + 1);
  int64_t short_tiles = long_requests < max_requests ? long_requests : max_requests;
  int64_t tiles = max_tokens / c->prefill_tile_q + short_tiles;
  int64_t splits = 2 * (int64_t)c->num_parts;
  return tiles > splits ? tiles : splits;
}

/* ---------------------------------------------------------------------------------------------------- the decode section */

/* Lists the requests of the decode section with their costs, and counts the emptied ones. Returns the work of the prefill
 * queue. */
static cgr__plan_work sort_requests(const cgr__plan_class *c, const int32_t *query_start, const int32_t *seq_lens,
                                    int32_t num_requests, const scratch *s, cgr__plan_header *header, int32_t *decodes) {
  cgr__plan_stretch *at = s->stretches;
  cgr__plan_work queue = { 0, 0 };
  at->begin = 0;
  for (int32_t i = 0; i < num_requests; i++) {
    int32_t given = query_start[i + 1] - query_start[i], seen = cgr__plan_seen_len(c, given, seq_lens[i]);
    int32_t query_len = cgr__plan_live_len(c, given, seen);
    header->num_emptied += given > query_len;
    if (query_len > c->decode_query_len) {
      cgr__plan_add_work(c, query_len, seen, &queue);
    } else if (query_len > 0) {
      cgr__plan_range kv = cgr__plan_decode_range(c, query_len, seen);
      decodes[header->num_decodes++] = at->request = i;
      at->num_kv = kv.end - kv.begin;
      at[1].begin = at->begin + c->head_blocks * cgr__plan_tile_cost(c, at->num_kv);
      at++;
    }
  }
  return queue;
}

/* The KV tiles of every tile, or 0 when they differ. */
static int32_t equal_tiles(const scratch *s, int32_t num_decodes) {
  for (int32_t k = 1; k < num_decodes; k++)
    if (s->stretches[k].num_kv != s->stretches[0].num_kv)
      return 0;
  return num_decodes > 0 ? s->stretches[0].num_kv : 0;
}

static void cut_decodes(const cgr__plan_class *c, const scratch *s, const cgr__plan_work *queue, cgr__plan_header *header) {
  header->cost = s->stretches[header->num_decodes].begin;
  header->decode_parts = cgr__plan_decode_parts(c, header->cost, queue);
  int64_t mean = cgr__plan_mean(header->cost, header->decode_parts);
  header->snap = cgr__plan_snap(c, mean);
  header->cost_per_part = cgr__plan_cost_per_part(c, mean, header->snap, equal_tiles(s, header->num_decodes));
  for (int32_t p = 0; p <= c->num_parts; p++)
    s->cuts[p] = cgr__plan_locate(c, p * header->cost_per_part, s->stretches, header->num_decodes, header->snap);
  cgr__plan_before before = { 0, 0 };
  for (int32_t p = 0; p < c->num_parts; p++) {
    int32_t n = s->cuts[p].kv > 0 ? s->stretches[s->cuts[p].decode].num_kv : 0;
    int32_t starts = cgr__plan_starts(&s->cuts[p], &s->cuts[p + 1]);
    s->before[p] = before;
    before.partials += cgr__plan_begin_partials(c, &s->cuts[p], &s->cuts[p + 1], n) + starts;
    if (starts)
      s->firsts[before.cut++] = before.partials - 1;
  }
  s->before[c->num_parts] = before;
  s->firsts[before.cut] = before.partials;
}

static void make_parts(const cgr__plan_class *c, const scratch *s, const int32_t *decodes, int32_t num_decodes,
                       cgr__plan_part *parts) {
  for (int32_t p = 0; p < c->num_parts; p++) {
    int32_t num_partials = s->before[p + 1].partials - s->before[p].partials;
    parts[p] = cgr__plan_make_part(c, &s->cuts[p], s->before[p], num_partials, s->firsts,
                                   s->cuts[p].decode < num_decodes ? decodes[s->cuts[p].decode] : -1);
  }
}

/* ----------------------------------------------------------------------------------------------------- the prefill queue */

typedef struct prefill_queue {
  const cgr__plan_class *c;
  const int32_t *query_start, *seq_lens;
  int32_t num_requests;
  int64_t sum; /* of all tiles' KV tiles, when they are cut; else 0 */
  cgr__plan_entry *entries;
  int32_t count;
  int32_t place[CGR__PLAN_BUCKETS]; /* of the next entry of each bucket, when they are not */
} prefill_queue;

typedef void (*visit_tile)(prefill_queue *q, int32_t request, int32_t q_tile, cgr__plan_range kv);

/* The q tiles of the prefill queue in the order of the batch. */
static void each_tile(prefill_queue *q, visit_tile visit) {
  for (int32_t i = 0; i < q->num_requests; i++) {
    int32_t given = q->query_start[i + 1] - q->query_start[i], seen = cgr__plan_seen_len(q->c, given, q->seq_lens[i]);
    int32_t query_len = cgr__plan_live_len(q->c, given, seen);
    int32_t tiles = query_len > q->c->decode_query_len ? cgr__plan_num_q_tiles(q->c, query_len) : 0;
    for (int32_t t = 0; t < tiles; t++)
      visit(q, i, t, cgr__plan_prefill_range(q->c, query_len, seen, t));
  }
}

static void add_kv(prefill_queue *q, int32_t request, int32_t q_tile, cgr__plan_range kv) {
  (void)request, (void)q_tile;
  q->sum += kv.end - kv.begin;
}

static void put_splits(prefill_queue *q, int32_t request, int32_t q_tile, cgr__plan_range kv) {
  int32_t first = q->count, count = cgr__plan_num_splits(q->c, kv.end - kv.begin, q->sum);
  for (int32_t split = 0; split < count; split++)
    q->entries[q->count++] = cgr__plan_make_entry(request, q_tile, kv, first, count, split);
}

static void count_bucket(prefill_queue *q, int32_t request, int32_t q_tile, cgr__plan_range kv) {
  (void)request, (void)q_tile;
  q->place[cgr__plan_bucket(kv.end - kv.begin)]++;
}

static void put_tile(prefill_queue *q, int32_t request, int32_t q_tile, cgr__plan_range kv) {
  q->entries[q->place[cgr__plan_bucket(kv.end - kv.begin)]++] = cgr__plan_make_entry(request, q_tile, kv, 0, 1, 0);
  q->count++;
}

static void fill_prefills(prefill_queue *q, int64_t q_tiles) {
  if (q_tiles == 0)
    return;
  if (cgr__plan_is_cut(q->c, q_tiles)) {
    each_tile(q, add_kv);
    each_tile(q, put_splits);
    return;
  }
  each_tile(q, count_bucket);
  int32_t place = 0;
  for (int32_t b = 0; b < CGR__PLAN_BUCKETS; b++) {
    int32_t count = q->place[b];
    q->place[b] = place;
    place += count;
  }
  each_tile(q, put_tile);
}

void cgr__plan_fill(const cgr__plan_class *c, const int32_t *query_start, const int32_t *seq_lens, int32_t num_requests,
                    void *memory, void *plan) {
  unsigned char *bytes = plan;
  cgr__plan_header *header = plan;
  int32_t *decodes = (int32_t *)(void *)(bytes + cgr__plan_decodes_offset(c));
  scratch s = split_scratch(c, memory);
  *header = (cgr__plan_header){ .num_parts = c->num_parts, .head_blocks = c->head_blocks };
  cgr__plan_work work = sort_requests(c, query_start, seq_lens, num_requests, &s, header, decodes);
  cut_decodes(c, &s, &work, header);
  make_parts(c, &s, decodes, header->num_decodes, (cgr__plan_part *)(void *)(header + 1));
  prefill_queue q = { .c = c, .query_start = query_start, .seq_lens = seq_lens, .num_requests = num_requests };
  q.entries = (cgr__plan_entry *)(void *)(bytes + cgr__plan_entries_offset(c));
  fill_prefills(&q, work.num_tiles);
  header->num_entries = q.count;
  header->num_items = q.count * c->head_blocks;
}

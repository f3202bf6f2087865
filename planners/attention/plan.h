/* The native attention plan: which CTA works on which part of the KV caches of a batch, for the layers of one plan class.
 * Code and tests cite these rules by their names.
 *
 * Tiles
 *   A1 tile      A q tile is some new tokens of a request, for one head block. It sees the KV tiles [first, end) of its
 *                sequence: windows begin late, causality ends early.
 *   A2 empty     A request without new tokens, and one that a guard on the device emptied, has no tiles.
 *   A3 section   A request with at most decode_query_len new tokens is in the decode section and has one q tile per head
 *                block. Every other request is in the prefill queue and has q tiles of prefill_tile_q tokens.
 *
 * The decode section
 *   A4 cost      A q tile of n KV tiles costs cost_tile + n * cost_kv units.
 *   A5 order     The q tiles come one after the other, request by request and head block by head block. They cost W units in
 *                all.
 *   A6 part      Part p of G has the units [p Q, (p + 1) Q). Q is M = ceil(W / D), unless A9 raises it. D is G or, with a
 *                prefill queue, fewer (A6a): the parts from D on have no units, and begin with the queue. (Stream-K, Osama et
 *                al. 2023; the fixed cost per tile is as in FlashMLA's scheduler metadata.)
 *   A6a share    The queue costs C units, at the costs that tiles have while decodes run. With D = W / ceil((W + C) / G),
 *                rounded, both end together. Less than G / 16, or G / 8 when the queue's tiles are cut (A18), does not pay,
 *                because the queue's last round takes longer than the decode section: D is G. Otherwise D is at least G / 8 and
 *                at most mixed_parts. D is also G unless max(W / D, 21/20 R) < R + C / G + 2 q, where R is W / memory_parts and
 *                q the fixed cost of a q tile. D is mixed_parts if memory_parts is not known, and G if mixed_parts is 0.
 *   A7 cut       A cut moves to the nearest border of a KV tile. It moves to the beginning or end of its q tile if that is at
 *                most the snap away, so no part works on a sliver.
 *   A8 snap      The snap is the larger of the class's snap and M / 32, but at most M / 4 and at least half a KV tile.
 *   A9 equal     When all q tiles cost the same, t, Q is raised so that they are not cut, or are all cut alike. It becomes the
 *                next multiple of t if t <= Q. It becomes ceil(t / floor(t / Q)) if t > Q, the snap is at least cost_kv and
 *                max_splits is 0. It is raised by at most Q / 20 (95% of the D parts still work) and by at most the
 *                class's snap, or twice that if no tile is then cut and nothing is left to merge: longer parts cost more than a
 *                cut.
 *   A10 balance  A part costs at most M + cost_tile + 2 s. Here s is the snap or, when max_splits is not 0, the larger of the
 *                snap and half a split.
 *
 * Partials
 *   A11 merge    A tile that is cut leaves one partial per part. Partial first + i holds the i-th, in the order of the KV
 *                tiles. The last part to arrive at the counter of `first` merges all `count` of them in that order.
 *   A12 room     A part touches at most two tiles that it does not own whole, so 2 G partials are enough for any batch.
 *
 * Batch-invariant plans: max_splits = K
 *   A13 split    A tile of n KV tiles has splits of ceil(n / K) KV tiles. Cuts move to borders of splits, and each split is an
 *                item.
 *   A14 fold     Splits are folded from the left. The part that has split 0 folds the splits that it has next into one
 *                partial; every other split has a partial of its own. So the bits depend on the request alone.
 *   A15 room     This takes (K + 1) G partials: one for each part to fold into, then the others.
 *
 * The prefill queue
 *   A16 order    The q tiles form a list of entries: the costliest bucket first, and the order of the batch within a bucket.
 *   A17 item     Item i is head block i mod H of entry i / H. CTAs take items until none is left: the order decides which CTA
 *                works on an item, never how.
 *   A18 splits   A tile is one item, unless there are fewer tiles than parts and the class is not batch-invariant. Then each
 *                tile is cut into splits in proportion to its KV tiles, in the order of the batch. Their partials are at
 *                neighbouring indices, too. They are at most 2 G, and follow those of the decode section.
 *
 * Stripes
 *   A19 stripe   The rules above describe one stripe of L, and hold for each. Stripe l has the head blocks l, l + L, .. of the
 *                layer. CTA c is part c / L of stripe c mod L. Item i of the layer's prefill queue is item i / L of stripe i
 *                mod L. Each stripe has partials of its own; those of all decode sections come first.
 *
 * In memory
 *   A20 layout   Header, parts [G], then the requests of the decode section [max_requests], then the entries [max_entries],
 *                each aligned to 16 bytes. The space after the last request or entry is not written.
 *   A21 same     All arithmetic is on integers, and every function here is compiled as C for the host and as CUDA for the
 *                device: the plans of both planners are equal byte for byte. */
#ifndef CGR_PLANNERS_ATTENTION_PLAN_H
#define CGR_PLANNERS_ATTENTION_PLAN_H

#include <stdint.h>

#include "base/host_device.h"
#include "planners/attention/plan_class.h"

#define CGR__PLAN_BUCKETS 64 /* of costs in the prefill queue */

typedef struct cgr__plan_header {
  int32_t num_parts, head_blocks;
  int32_t num_decodes;   /* requests in the decode section */
  int32_t num_entries;   /* of the prefill queue */
  int32_t num_items;     /* of the prefill queue: num_entries * head_blocks */
  int32_t num_emptied;   /* requests with new tokens but no tile: no item owns their outputs */
  int64_t cost;          /* W */
  int64_t cost_per_part; /* Q; 1 when W is 0 */
  int64_t snap;
  int32_t decode_parts; /* D */
  int32_t reserved[3];  /* 0 */
} cgr__plan_header;

/* A place in the decode section (A5): KV tile `kv` (counted from the first that the tile sees) of a head block of a request. */
typedef struct cgr__plan_point {
  int32_t decode; /* index among the requests of the decode section; num_decodes: its end */
  int32_t head_block, kv;
} cgr__plan_point;

typedef struct cgr__plan_part {
  cgr__plan_point begin, end; /* end is exclusive */
  int32_t request;            /* of `begin` in the batch; -1 at the end of the decode section */
  int32_t begin_partial, begin_first,
      begin_count;              /* of the tile it begins inside of: its own partial index, the tile's indices */
  int32_t end_first, end_count; /* of the tile that it begins but does not end */
} cgr__plan_part;

/* A q tile of the prefill queue, or a split of one (A16, A18). */
typedef struct cgr__plan_entry {
  int32_t request, q_tile;
  int32_t kv_begin, kv_end; /* KV tiles of the sequence */
  int32_t first, count; /* partials of its tile for head block 0, `count` for each head block; count 1: no partials, first -1 */
  int32_t split;        /* of the tile */
  int32_t reserved;     /* 0 */
} cgr__plan_entry;

/* A stretch of one tile, and how its result leaves the CTA. */
typedef struct cgr__plan_item {
  int32_t request, head_block;
  int32_t query_begin, num_queries; /* new tokens of the request */
  int32_t kv_begin, kv_end;         /* KV tiles of the sequence */
  int32_t fold;                     /* index of the partial whose content comes before this item's (A14), or -1 */
  int32_t partial;                  /* index of the partial that gets the result; -1: it is the whole tile's, for the output */
  int32_t first, count;             /* partials of the tile, when other CTAs share it (A11); count 0: none does */
} cgr__plan_item;

/* ---------------------------------------------------------------------------------------------------------------- layout */

CGR__HOST_DEVICE int64_t cgr__plan_decodes_offset(const cgr__plan_class *c) {
  return (int64_t)sizeof(cgr__plan_header) + (int64_t)c->num_parts * (int64_t)sizeof(cgr__plan_part);
}
CGR__HOST_DEVICE int64_t cgr__plan_entries_offset(const cgr__plan_class *c) {
  return cgr__plan_decodes_offset(c) + ((int64_t)c->max_requests + 3) / 4 * 16;
}
/* Bytes of a plan, a multiple of 16. */
CGR__HOST_DEVICE int64_t cgr__plan_bytes(const cgr__plan_class *c) {
  return cgr__plan_entries_offset(c) + (int64_t)c->max_entries * (int64_t)sizeof(cgr__plan_entry);
}
/* Partials of the decode section (A12, A15); those of the prefill queue follow (A18). */
CGR__HOST_DEVICE int32_t cgr__plan_decode_partials(const cgr__plan_class *c) {
  return c->num_parts * (c->max_splits > 0 ? c->max_splits + 1 : 2);
}
CGR__HOST_DEVICE int32_t cgr__plan_prefill_partials(const cgr__plan_class *c) { return c->max_splits > 0 ? 0 : 2 * c->num_parts; }

/* Partials of the decode sections of all stripes. */
CGR__HOST_DEVICE int32_t cgr__plan_all_decode_partials(const cgr__plan_class *c) {
  return c->stripes * cgr__plan_decode_partials(c);
}

/* The index of partial `partial` of a stripe among those of all stripes (A19); -1 stays -1. */
CGR__HOST_DEVICE int32_t cgr__plan_partial_in_stripe(const cgr__plan_class *c, int32_t stripe, int32_t partial) {
  int32_t of_decodes = cgr__plan_decode_partials(c);
  if (partial < 0)
    return partial;
  return partial < of_decodes ? stripe * of_decodes + partial
                              : c->stripes * of_decodes + stripe * cgr__plan_prefill_partials(c) + partial - of_decodes;
}

/* ----------------------------------------------------------------------------------------------------------------- tiles */

typedef struct cgr__plan_range {
  int32_t begin, end;
} cgr__plan_range;

CGR__HOST_DEVICE int32_t cgr__plan_min(int32_t a, int32_t b) { return a < b ? a : b; }

/* n / d; neither is negative. Both are usually small, and a GPU divides 32 bits much faster than 64. */
CGR__HOST_DEVICE int64_t cgr__plan_quotient(int64_t n, int64_t d) {
  return (uint64_t)(n | d) <= UINT32_MAX ? (int64_t)((uint32_t)n / (uint32_t)d) : n / d;
}

/* A2. Tokens of the sequence that a request attends to; `seq_len` is the buffers' value, 0 when a guard emptied the request. */
CGR__HOST_DEVICE int32_t cgr__plan_seen_len(const cgr__plan_class *c, int32_t query_len, int32_t seq_len) {
  return c->sees == CGR__SEES_STEP ? cgr__plan_min(query_len, seq_len) : seq_len;
}

/* New tokens of a request that are worked on: none when there is nothing to see. `seen` is cgr__plan_seen_len. */
CGR__HOST_DEVICE int32_t cgr__plan_live_len(const cgr__plan_class *c, int32_t query_len, int32_t seen) {
  return seen >= (c->sees == CGR__SEES_OTHER ? 1 : query_len) ? query_len : 0;
}

/* A1. KV tokens that the new tokens [first, last] of a request see. Here and below seq_len is cgr__plan_seen_len, and query_len
 * cgr__plan_live_len. */
CGR__HOST_DEVICE cgr__plan_range cgr__plan_kv_tokens(const cgr__plan_class *c, int32_t query_len, int32_t seq_len, int32_t first,
                                                     int32_t last) {
  int32_t context = seq_len - query_len;
  int64_t end = (int64_t)context + last + 1;
  int64_t begin = c->window_left > 0 ? (int64_t)context + first + 1 - c->window_left : 0;
  if (c->chunk > 0)
    begin = (int64_t)((uint32_t)(context + first) / (uint32_t)c->chunk) * c->chunk;
  if (c->bidirectional)
    end = c->window_right > 0 ? end + c->window_right : seq_len;
  cgr__plan_range range;
  range.begin = begin > 0 ? (int32_t)begin : 0;
  range.end = end < seq_len ? (int32_t)end : seq_len;
  return range;
}

/* KV tiles that these new tokens see. */
CGR__HOST_DEVICE cgr__plan_range cgr__plan_kv_range(const cgr__plan_class *c, int32_t tile_kv, int32_t query_len, int32_t seq_len,
                                                    int32_t first, int32_t last) {
  cgr__plan_range range = cgr__plan_kv_tokens(c, query_len, seq_len, first, last);
  range.begin = (int32_t)((uint32_t)range.begin / (uint32_t)tile_kv);
  range.end = (int32_t)(((uint32_t)range.end + (uint32_t)tile_kv - 1) / (uint32_t)tile_kv);
  return range;
}

/* The one tile of a request in the decode section. */
CGR__HOST_DEVICE cgr__plan_range cgr__plan_decode_range(const cgr__plan_class *c, int32_t query_len, int32_t seq_len) {
  return cgr__plan_kv_range(c, c->decode_tile_kv, query_len, seq_len, 0, query_len - 1);
}

CGR__HOST_DEVICE int32_t cgr__plan_num_q_tiles(const cgr__plan_class *c, int32_t query_len) {
  return (int32_t)(((uint32_t)query_len + (uint32_t)c->prefill_tile_q - 1) / (uint32_t)c->prefill_tile_q);
}

/* Tile t of a request in the prefill queue. */
CGR__HOST_DEVICE cgr__plan_range cgr__plan_prefill_range(const cgr__plan_class *c, int32_t query_len, int32_t seq_len,
                                                         int32_t t) {
  int32_t first = t * c->prefill_tile_q;
  int32_t last = cgr__plan_min(query_len - first, c->prefill_tile_q) + first - 1;
  return cgr__plan_kv_range(c, c->prefill_tile_kv, query_len, seq_len, first, last);
}

/* ------------------------------------------------------------------------------------------------- the decode section's cuts */

/* A4. Cost of one tile of n KV tiles. */
CGR__HOST_DEVICE int64_t cgr__plan_tile_cost(const cgr__plan_class *c, int32_t n) {
  return c->cost_tile + (int64_t)n * c->cost_kv;
}

/* A8. The most that a cut moves; `mean` is M. */
CGR__HOST_DEVICE int64_t cgr__plan_snap(const cgr__plan_class *c, int64_t mean) {
  int64_t snap = c->snap > mean / 32 ? c->snap : mean / 32, least = ((int64_t)c->cost_kv + 1) / 2;
  snap = snap < mean / 4 ? snap : mean / 4;
  return snap > least ? snap : least;
}

/* The work of the prefill queue, for one head block: q tiles, and their KV tiles. */
typedef struct cgr__plan_work {
  int64_t num_tiles, num_kv;
} cgr__plan_work;

/* Adds a request of the prefill queue. Its KV tiles are estimated from the mean of its first and last q tile. */
CGR__HOST_DEVICE void cgr__plan_add_work(const cgr__plan_class *c, int32_t query_len, int32_t seq_len, cgr__plan_work *work) {
  int32_t tiles = cgr__plan_num_q_tiles(c, query_len);
  cgr__plan_range first = cgr__plan_prefill_range(c, query_len, seq_len, 0),
                  last = cgr__plan_prefill_range(c, query_len, seq_len, tiles - 1);
  work->num_tiles += tiles;
  int64_t ends = (int64_t)first.end - first.begin + last.end - last.begin;
  work->num_kv += (tiles * ends + 1) / 2;
}

/* A18. Whether `num_tiles` (q tiles of the prefill queue, for one head block) are so few that they are cut. */
CGR__HOST_DEVICE int cgr__plan_is_cut(const cgr__plan_class *c, int64_t num_tiles) {
  return c->max_splits == 0 && num_tiles * c->head_blocks < c->num_parts;
}

/* A6a. D; `cost` is W. */
CGR__HOST_DEVICE int32_t cgr__plan_decode_parts(const cgr__plan_class *c, int64_t cost, const cgr__plan_work *work) {
  int64_t queue = c->head_blocks * (work->num_tiles * c->prefill_cost_tile + work->num_kv * c->prefill_cost_kv);
  if (c->mixed_parts == 0 || queue == 0 || cost == 0)
    return c->num_parts;
  if (c->memory_parts == 0)
    return c->mixed_parts;
  int64_t mean = cgr__plan_quotient(cost + queue + c->num_parts - 1, c->num_parts), least = (c->num_parts + 7) / 8;
  int64_t some = cgr__plan_is_cut(c, work->num_tiles) ? least : c->num_parts / 16;
  int64_t parts = cgr__plan_quotient(cost + mean / 2, mean);
  if (parts < some)
    return c->num_parts;
  parts = parts > least ? parts : least;
  parts = parts < c->mixed_parts ? parts : c->mixed_parts;
  int64_t together = cgr__plan_quotient(cost, parts), memory = cgr__plan_quotient(cost, c->memory_parts);
  together = together > memory + memory / 20 ? together : memory + memory / 20;
  int64_t in_turn = memory + cgr__plan_quotient(queue, c->num_parts) + 2 * (int64_t)c->prefill_cost_tile;
  return together < in_turn ? (int32_t)parts : c->num_parts;
}

/* A6. M; 1 when W is 0. `parts` is D. */
CGR__HOST_DEVICE int64_t cgr__plan_mean(int64_t cost, int32_t parts) {
  return cost > 0 ? cgr__plan_quotient(cost + parts - 1, parts) : 1;
}

/* A9. Q. `equal`: the KV tiles that all tiles of the decode section have, 0 when they differ. */
CGR__HOST_DEVICE int64_t cgr__plan_cost_per_part(const cgr__plan_class *c, int64_t mean, int64_t snap, int32_t equal) {
  int64_t tile = cgr__plan_tile_cost(c, equal), most = tile <= mean ? 2 * (int64_t)c->snap : c->snap;
  most = mean / 20 < most ? mean / 20 : most;
  if (equal == 0)
    return mean;
  if (tile <= mean) {
    int64_t whole = cgr__plan_quotient(mean + tile - 1, tile) * tile;
    return whole - mean <= most ? whole : mean;
  }
  int64_t splits = cgr__plan_quotient(tile, mean), split = cgr__plan_quotient(tile + splits - 1, splits);
  return c->max_splits == 0 && snap >= c->cost_kv && split - mean <= most ? split : mean;
}

/* A13. KV tiles in a split of a tile that has n. */
CGR__HOST_DEVICE int32_t cgr__plan_split_size(const cgr__plan_class *c, int32_t n) {
  return CGR__UNLIKELY(c->max_splits > 0) ? (int32_t)(((uint32_t)n + (uint32_t)c->max_splits - 1) / (uint32_t)c->max_splits) : n;
}

/* A7. The border, 0 .. n, to which a cut `units` after the fixed cost of a tile of n KV tiles moves: the nearest or, with splits,
 * a split border at most half a split away. */
CGR__HOST_DEVICE int32_t cgr__plan_border(const cgr__plan_class *c, int32_t n, int64_t units, int64_t snap) {
  int64_t whole = (int64_t)n * c->cost_kv;
  if (units <= snap)
    return 0;
  if (whole - units <= snap)
    return n;
  if (c->max_splits == 0)
    return (int32_t)cgr__plan_quotient(units + c->cost_kv / 2, c->cost_kv);
  int64_t split = cgr__plan_split_size(c, n), cost = split * c->cost_kv;
  int64_t border = cgr__plan_quotient(units + cost / 2, cost) * split;
  return border < n ? (int32_t)border : n;
}

/* A request of the decode section: where its tiles begin, the KV tiles of each, and which it is. One more entry marks the end. */
typedef struct cgr__plan_stretch {
  int64_t begin;
  int32_t num_kv, request;
} cgr__plan_stretch;

/* A7. Where the cut at unit x is in a decode section of num_decodes stretches. */
CGR__HOST_DEVICE cgr__plan_point cgr__plan_locate(const cgr__plan_class *c, int64_t x, const cgr__plan_stretch *stretches,
                                                  int32_t num_decodes, int64_t snap) {
  cgr__plan_point point;
  point.decode = num_decodes;
  point.head_block = 0;
  point.kv = 0;
  if (x >= stretches[num_decodes].begin)
    return point;
  int32_t low = 0, high = num_decodes; /* stretches[low].begin <= x < stretches[high].begin */
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (stretches[middle].begin <= x)
      low = middle;
    else
      high = middle;
  }
  int32_t n = stretches[low].num_kv;
  int64_t cost = cgr__plan_tile_cost(c, n), inside = x - stretches[low].begin;
  int32_t head_block = (int32_t)cgr__plan_quotient(inside, cost);
  int32_t kv = cgr__plan_border(c, n, inside - head_block * cost - c->cost_tile, snap);
  if (kv == n) {
    kv = 0;
    head_block++;
  }
  point.decode = low + (head_block == c->head_blocks);
  point.head_block = head_block == c->head_blocks ? 0 : head_block;
  point.kv = kv;
  return point;
}

CGR__HOST_DEVICE int cgr__plan_same_tile(const cgr__plan_point *a, const cgr__plan_point *b) {
  return a->decode == b->decode && a->head_block == b->head_block;
}

/* Partials for the tile that a part begins inside of: one for each split of it that the part has. `n`: KV tiles of that tile. */
CGR__HOST_DEVICE int32_t cgr__plan_begin_partials(const cgr__plan_class *c, const cgr__plan_point *begin,
                                                  const cgr__plan_point *end, int32_t n) {
  int32_t upto = cgr__plan_same_tile(begin, end) ? end->kv : n;
  if (begin->kv == 0 || upto == begin->kv)
    return 0;
  int32_t split = cgr__plan_split_size(c, n);
  return c->max_splits > 0 ? (upto - begin->kv + split - 1) / split : 1;
}

/* 1 when a part begins the tile that it ends inside of. */
CGR__HOST_DEVICE int32_t cgr__plan_starts(const cgr__plan_point *begin, const cgr__plan_point *end) {
  return end->kv > 0 && !(cgr__plan_same_tile(begin, end) && begin->kv > 0);
}

/* What comes before a part. */
typedef struct cgr__plan_before {
  int32_t partials; /* of the parts before it: their begin_partials and starts */
  int32_t cut;      /* tiles that parts before it start and do not end */
} cgr__plan_before;

/* The part between cuts[0] and cuts[1], which has `num_partials`. `firsts`: the first partial of each tile that is cut, then the
 * number of all partials. `request`: of cuts[0], -1 at the end of the decode section. */
CGR__HOST_DEVICE cgr__plan_part cgr__plan_make_part(const cgr__plan_class *c, const cgr__plan_point *cuts,
                                                    cgr__plan_before before, int32_t num_partials, const int32_t *firsts,
                                                    int32_t request) {
  int32_t base = c->max_splits > 0 ? c->num_parts : 0; /* one partial per part comes first, for folding */
  int32_t starts = cgr__plan_starts(&cuts[0], &cuts[1]);
  cgr__plan_part part;
  part.begin = cuts[0];
  part.end = cuts[1];
  part.request = request;
  part.begin_partial = part.begin_first = part.end_first = -1;
  part.begin_count = part.end_count = 0;
  firsts += before.cut;
  if (num_partials > starts) {
    part.begin_partial = base + before.partials;
    part.begin_first = base + firsts[-1];
    part.begin_count = firsts[0] - firsts[-1];
  }
  if (starts) {
    part.end_first = base + firsts[0];
    part.end_count = firsts[1] - firsts[0];
  }
  return part;
}

/* ----------------------------------------------------------------------------------------------------- the prefill queue */

/* A16. The bucket of a tile of n KV tiles: 0 is the costliest. Four to each doubling. */
CGR__HOST_DEVICE int32_t cgr__plan_bucket(int32_t n) {
  int32_t doublings = 0;
  for (uint32_t m = (uint32_t)n; m > 1; m >>= 1)
    doublings++;
  uint32_t quarter = doublings >= 2 ? (uint32_t)n >> (doublings - 2) & 3 : ((uint32_t)n << (2 - doublings)) & 3;
  int32_t bucket = CGR__PLAN_BUCKETS - 1 - (4 * doublings + (int32_t)quarter);
  return bucket > 0 ? bucket : 0;
}

/* A18. Splits of a tile of n KV tiles; `sum` is the number of KV tiles of all q tiles for one head block. All head blocks
 * together have at most G + H * num_tiles < 2 G splits. */
CGR__HOST_DEVICE int32_t cgr__plan_num_splits(const cgr__plan_class *c, int32_t n, int64_t sum) {
  int64_t all = sum * c->head_blocks;
  int64_t splits = cgr__plan_quotient((int64_t)n * c->num_parts + all - 1, all);
  return splits < n ? (int32_t)splits : n;
}

/* Split `split` of `count`; `first` is the number of splits before its tile. */
CGR__HOST_DEVICE cgr__plan_entry cgr__plan_make_entry(int32_t request, int32_t q_tile, cgr__plan_range kv, int32_t first,
                                                      int32_t count, int32_t split) {
  int64_t n = kv.end - kv.begin;
  cgr__plan_entry entry;
  entry.request = request;
  entry.q_tile = q_tile;
  entry.kv_begin = kv.begin + (int32_t)cgr__plan_quotient(n * split, count);
  entry.kv_end = kv.begin + (int32_t)cgr__plan_quotient(n * (split + 1), count);
  entry.first = count > 1 ? first : -1;
  entry.count = count;
  entry.split = split;
  entry.reserved = 0;
  return entry;
}

/* ----------------------------------------------------------------------------------------------------------------- items */

/* A17. The item of a head block of an entry. `query_len`: of its request. */
CGR__HOST_DEVICE cgr__plan_item cgr__plan_prefill_item(const cgr__plan_class *c, const cgr__plan_entry *entry, int32_t head_block,
                                                       int32_t query_len) {
  int32_t first = cgr__plan_decode_partials(c) + entry->first * c->head_blocks + head_block * entry->count;
  cgr__plan_item item;
  item.request = entry->request;
  item.head_block = head_block;
  item.query_begin = entry->q_tile * c->prefill_tile_q;
  item.num_queries = cgr__plan_min(query_len - item.query_begin, c->prefill_tile_q);
  item.kv_begin = entry->kv_begin;
  item.kv_end = entry->kv_end;
  item.fold = -1;
  item.partial = entry->count > 1 ? first + entry->split : -1;
  item.first = entry->count > 1 ? first : -1;
  item.count = entry->count > 1 ? entry->count : 0;
  return item;
}

/* A place in the decode section, and what is known of the request there. */
typedef struct cgr__plan_walk {
  cgr__plan_point at;
  int32_t request, query_len, seq_len; /* seq_len: as the buffers have it */
} cgr__plan_walk;

/* The batch that was planned: query_start [num_requests + 1], seq_lens [num_requests]; `decodes` is the list in the plan. */
typedef struct cgr__plan_batch {
  const int32_t *query_start, *seq_lens, *decodes;
} cgr__plan_batch;

/* Only loads, so that a GPU can go on until the values are needed. */
CGR__HOST_DEVICE void cgr__plan_walk_read(cgr__plan_walk *walk, const cgr__plan_batch *batch, int32_t request) {
  walk->request = request;
  walk->query_len = batch->query_start[request + 1] - batch->query_start[request];
  walk->seq_len = batch->seq_lens[request];
}

CGR__HOST_DEVICE int cgr__plan_walk_ended(const cgr__plan_walk *walk, const cgr__plan_part *part) {
  return cgr__plan_same_tile(&walk->at, &part->end) && walk->at.kv == part->end.kv;
}

CGR__HOST_DEVICE cgr__plan_walk cgr__plan_walk_begin(const cgr__plan_part *part, const cgr__plan_batch *batch) {
  cgr__plan_walk walk;
  walk.at = part->begin;
  walk.request = walk.query_len = walk.seq_len = 0;
  if (!cgr__plan_walk_ended(&walk, part))
    cgr__plan_walk_read(&walk, batch, part->request);
  return walk;
}

/* A11, A14. How the result of KV tiles [at, upto) leaves part p, which works on the tile up to `end`. */
CGR__HOST_DEVICE void cgr__plan_item_partials(const cgr__plan_class *c, const cgr__plan_part *part, int32_t p, int32_t n,
                                              int32_t split, int32_t is_begin, int32_t at, int32_t upto, int32_t end,
                                              cgr__plan_item *item) {
  item->fold = item->partial = item->first = -1;
  item->count = 0;
  if (is_begin) { /* others began this tile */
    item->partial = part->begin_partial + (CGR__UNLIKELY(c->max_splits > 0) ? (at - part->begin.kv) / split : 0);
    item->first = part->begin_first;
    item->count = part->begin_count;
    return;
  }
  int32_t fold = end < n ? part->end_first : p;
  if (at > 0)
    item->fold = fold;
  if (upto == n)
    return;
  item->partial = fold;
  if (upto == end) { /* others end it */
    item->first = part->end_first;
    item->count = part->end_count;
  }
}

/* The next item of part p; 0 when there is none. */
CGR__HOST_DEVICE int cgr__plan_walk_next(cgr__plan_walk *walk, const cgr__plan_class *c, const cgr__plan_part *part, int32_t p,
                                         const cgr__plan_batch *batch, cgr__plan_item *item) {
  if (cgr__plan_walk_ended(walk, part))
    return 0;
  cgr__plan_range kv = cgr__plan_decode_range(c, walk->query_len, cgr__plan_seen_len(c, walk->query_len, walk->seq_len));
  int32_t n = kv.end - kv.begin, split = cgr__plan_split_size(c, n), at = walk->at.kv;
  int32_t end = cgr__plan_same_tile(&walk->at, &part->end) ? part->end.kv : n;
  int32_t upto = cgr__plan_min(at + split, end);
  int32_t is_begin = part->begin.kv > 0 && cgr__plan_same_tile(&walk->at, &part->begin);
  item->request = walk->request;
  item->head_block = walk->at.head_block;
  item->query_begin = 0;
  item->num_queries = walk->query_len;
  item->kv_begin = kv.begin + at;
  item->kv_end = kv.begin + upto;
  cgr__plan_item_partials(c, part, p, n, split, is_begin, at, upto, end, item);
  walk->at.kv = upto;
  if (upto < n)
    return 1;
  walk->at.kv = 0;
  if (++walk->at.head_block == c->head_blocks) {
    walk->at.head_block = 0;
    walk->at.decode++;
    if (!cgr__plan_walk_ended(walk, part))
      cgr__plan_walk_read(walk, batch, batch->decodes[walk->at.decode]);
  }
  return 1;
}

/* A19. Turns an item of the plan into the layer's item in `stripe`. */
CGR__HOST_DEVICE void cgr__plan_item_in_stripe(const cgr__plan_class *c, int32_t stripe, cgr__plan_item *item) {
  item->head_block = item->head_block * c->stripes + stripe;
  item->fold = cgr__plan_partial_in_stripe(c, stripe, item->fold);
  item->partial = cgr__plan_partial_in_stripe(c, stripe, item->partial);
  item->first = cgr__plan_partial_in_stripe(c, stripe, item->first);
}

#endif

/* The native attention plan: which CTA works on which part of the KV caches of a batch.
 *
 * The queries of request i are cut into q tiles of `tile_q` tokens, and the tokens that q tile t may see,
 *     kv_end(i, t) = seq_len - query_len + min((t + 1) * tile_q, query_len)        (causal),
 * into KV tiles of CGR__TILE_KV tokens. Each q tile costs n + CGR__TILE_COST units, n being its number of KV tiles: the fixed
 * part pays for loading q, merging and writing. Laid end to end, request by request and tile by tile, all q tiles form one line
 * of W units; part p of G takes the units [p * Q, (p + 1) * Q), Q = ceil(W / G) (stream-K, Osama et al. 2023; the fixed cost
 * per tile as in FlashMLA's scheduler metadata). A part therefore touches at most two tiles that it does not own whole, the one
 * it begins in and the one it ends in, so 2 * G slots hold every partial result of any batch.
 *
 * The first item of part p leaves its partial in slot 2p when the tile began in another part, the last in 2p + 1 when it ends in
 * another. The parts of one tile are contiguous, first .. last; the last of them to arrive merges first's slot 2 * first + 1 and
 * then slots 2 * p of the others in ascending order.
 *
 * All arithmetic is on integers, and every function here is compiled as C for the host and as CUDA for the device: the plans
 * of both planners are equal byte for byte. */
#ifndef CGR_PLANNERS_ATTENTION_PLAN_H
#define CGR_PLANNERS_ATTENTION_PLAN_H

#include <stdint.h>

#ifdef __CUDACC__
#define CGR__PLAN_FN static __host__ __device__ __forceinline__
#else
#define CGR__PLAN_FN static inline
#endif

#define CGR__TILE_KV 64    /* tokens of a KV tile */
#define CGR__TILE_LINES 64 /* (query token, head) pairs of a q tile: tile_q * heads of one KV head <= 64 */
#define CGR__TILE_COST 2   /* fixed cost of a q tile in units of one KV tile */

typedef struct cgr__plan_part {
  int32_t request, q_tile, kv_begin;       /* where it begins: KV tile kv_begin of q tile q_tile of this request */
  int32_t end_request, end_q_tile, end_kv; /* where it ends, exclusive; {num_requests, 0, 0} is the end of the line */
  int32_t begin_first, begin_last;         /* parts that share the tile it begins in, when kv_begin > 0 */
  int32_t end_last;                        /* last part that shares the tile it ends in, when it began that one itself */
  int32_t reserved[3];                     /* 0 */
} cgr__plan_part;

typedef struct cgr__plan_header {
  int32_t num_parts, tile_q, tile_kv, num_requests;
  int64_t cost;          /* W */
  int64_t cost_per_part; /* Q; 1 when W is 0 */
  int32_t reserved[8];   /* 0 */
} cgr__plan_header;      /* followed by cgr__plan_part [num_parts] */

CGR__PLAN_FN int32_t cgr__plan_num_q_tiles(int32_t query_len, int32_t tile_q) { return (query_len + tile_q - 1) / tile_q; }

/* KV tiles that q tile t of a request sees. */
CGR__PLAN_FN int32_t cgr__plan_num_kv_tiles(int32_t seq_len, int32_t query_len, int32_t tile_q, int32_t t) {
  int64_t upto = (int64_t)(t + 1) * tile_q;
  int64_t end = (int64_t)seq_len - query_len + (upto < query_len ? upto : query_len);
  return (int32_t)((end + CGR__TILE_KV - 1) / CGR__TILE_KV);
}

/* sum over v = 1 .. m of ceil(v / r) */
CGR__PLAN_FN int64_t cgr__plan_ceil_sum(int64_t m, int64_t r) {
  int64_t k = m / r;
  return r * (k * (k + 1) / 2) + (m - k * r) * (k + 1);
}

/* Cost of the first t q tiles of a request, in closed form: tile_q divides CGR__TILE_KV, so the KV tiles grow by one every
 * CGR__TILE_KV / tile_q q tiles. Only the last q tile can be short, and it is added by itself. */
CGR__PLAN_FN int64_t cgr__plan_cost(int32_t seq_len, int32_t query_len, int32_t tile_q, int32_t t) {
  int64_t r = CGR__TILE_KV / tile_q;
  int64_t context = (int64_t)seq_len - query_len;
  int64_t before = (context + tile_q - 1) / tile_q; /* context in q tiles, rounded up */
  int32_t whole = query_len / tile_q;
  int32_t full = t < whole ? t : whole;
  int64_t cost = cgr__plan_ceil_sum(before + full, r) - cgr__plan_ceil_sum(before, r) + (int64_t)full * CGR__TILE_COST;
  if (t > whole)
    cost += cgr__plan_num_kv_tiles(seq_len, query_len, tile_q, whole) + CGR__TILE_COST;
  return cost;
}

/* New tokens of request i that are worked on: none when a guard on the device emptied the request (seq_len 0). */
CGR__PLAN_FN int32_t cgr__plan_query_len(const int32_t *query_start, const int32_t *seq_lens, int32_t i) {
  int32_t query_len = query_start[i + 1] - query_start[i];
  return seq_lens[i] >= query_len ? query_len : 0;
}

/* Cost of a whole request; a request without new tokens, or an emptied one, costs nothing. */
CGR__PLAN_FN int64_t cgr__plan_request_cost(int32_t seq_len, int32_t query_len, int32_t tile_q) {
  if (seq_len < query_len)
    return 0;
  return cgr__plan_cost(seq_len, query_len, tile_q, cgr__plan_num_q_tiles(query_len, tile_q));
}

typedef struct cgr__plan_point {
  int32_t request, q_tile, kv;
  int64_t tile_start; /* unit at which the q tile begins */
} cgr__plan_point;

/* The place of unit x of the line. `prefix` [num_requests + 1] is the running sum of the requests' costs;
 * `query_start` [num_requests + 1]. */
CGR__PLAN_FN cgr__plan_point cgr__plan_locate(int64_t x, const int64_t *prefix, const int32_t *query_start,
                                              const int32_t *seq_lens, int32_t num_requests, int32_t tile_q) {
  cgr__plan_point point;
  point.request = num_requests;
  point.q_tile = 0;
  point.kv = 0;
  point.tile_start = prefix[num_requests];
  if (x >= prefix[num_requests])
    return point;
  int32_t low = 0, high = num_requests; /* prefix[low] <= x < prefix[high] */
  while (high - low > 1) {
    int32_t middle = low + (high - low) / 2;
    if (prefix[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  int32_t query_len = query_start[low + 1] - query_start[low];
  int32_t seq_len = seq_lens[low];
  int64_t y = x - prefix[low];
  int32_t t = 0, t_end = cgr__plan_num_q_tiles(query_len, tile_q); /* cost(t) <= y < cost(t_end) */
  while (t_end - t > 1) {
    int32_t middle = t + (t_end - t) / 2;
    if (cgr__plan_cost(seq_len, query_len, tile_q, middle) <= y)
      t = middle;
    else
      t_end = middle;
  }
  int64_t tile_cost = cgr__plan_cost(seq_len, query_len, tile_q, t);
  int64_t offset = y - tile_cost - CGR__TILE_COST;
  point.request = low;
  point.q_tile = t;
  point.kv = offset > 0 ? (int32_t)offset : 0;
  point.tile_start = prefix[low] + tile_cost;
  return point;
}

/* Part p. Every word of it is written, whatever the batch. */
CGR__PLAN_FN cgr__plan_part cgr__plan_make_part(int32_t p, int64_t cost_per_part, const int64_t *prefix,
                                                const int32_t *query_start, const int32_t *seq_lens, int32_t num_requests,
                                                int32_t tile_q) {
  cgr__plan_part part;
  cgr__plan_point begin = cgr__plan_locate(p * cost_per_part, prefix, query_start, seq_lens, num_requests, tile_q);
  cgr__plan_point end = cgr__plan_locate((p + 1) * cost_per_part, prefix, query_start, seq_lens, num_requests, tile_q);
  part.request = begin.request;
  part.q_tile = begin.q_tile;
  part.kv_begin = begin.kv;
  part.end_request = end.request;
  part.end_q_tile = end.q_tile;
  part.end_kv = end.kv;
  part.begin_first = part.begin_last = part.end_last = p;
  if (begin.kv > 0) { /* someone else began this tile */
    int32_t query_len = query_start[begin.request + 1] - query_start[begin.request];
    int32_t n = cgr__plan_num_kv_tiles(seq_lens[begin.request], query_len, tile_q, begin.q_tile);
    part.begin_first = (int32_t)((begin.tile_start + CGR__TILE_COST) / cost_per_part);
    part.begin_last = (int32_t)((begin.tile_start + CGR__TILE_COST + n - 1) / cost_per_part);
  }
  if (end.kv > 0) {
    int32_t query_len = query_start[end.request + 1] - query_start[end.request];
    int32_t n = cgr__plan_num_kv_tiles(seq_lens[end.request], query_len, tile_q, end.q_tile);
    part.end_last = (int32_t)((end.tile_start + CGR__TILE_COST + n - 1) / cost_per_part);
  }
  part.reserved[0] = part.reserved[1] = part.reserved[2] = 0;
  return part;
}

/* A work item: KV tiles [kv_begin, kv_end) of one q tile, and how its result leaves the part. */
typedef struct cgr__plan_item {
  int32_t request, q_tile;
  int32_t kv_begin, kv_end;
  int32_t slot;        /* partial slot, or -1: the part owns the tile and writes the output itself */
  int32_t first, last; /* parts that share the tile; equal to the part itself when slot is -1 */
} cgr__plan_item;

typedef struct cgr__plan_walk {
  int32_t request, q_tile, kv;
} cgr__plan_walk;

CGR__PLAN_FN cgr__plan_walk cgr__plan_walk_begin(const cgr__plan_part *part) {
  cgr__plan_walk walk;
  walk.request = part->request;
  walk.q_tile = part->q_tile;
  walk.kv = part->kv_begin;
  return walk;
}

/* The next work item of part p; 0 when there is none. Reads the same arrays that the planner read. */
CGR__PLAN_FN int cgr__plan_walk_next(cgr__plan_walk *walk, const cgr__plan_part *part, int32_t p, const int32_t *query_start,
                                     const int32_t *seq_lens, int32_t tile_q, cgr__plan_item *item) {
  for (;;) {
    if (walk->request > part->end_request || (walk->request == part->end_request && walk->q_tile > part->end_q_tile))
      return 0;
    int at_end = walk->request == part->end_request && walk->q_tile == part->end_q_tile;
    if (at_end && walk->kv >= part->end_kv)
      return 0;
    int32_t query_len = cgr__plan_query_len(query_start, seq_lens, walk->request);
    if (query_len == 0) { /* only between a part's begin and its end */
      walk->request++;
      continue;
    }
    int32_t n = cgr__plan_num_kv_tiles(seq_lens[walk->request], query_len, tile_q, walk->q_tile);
    item->request = walk->request;
    item->q_tile = walk->q_tile;
    item->kv_begin = walk->kv;
    item->kv_end = at_end ? part->end_kv : n;
    item->slot = -1;
    item->first = item->last = p;
    if (item->kv_begin > 0) {
      item->slot = 2 * p;
      item->first = part->begin_first;
      item->last = part->begin_last;
    } else if (item->kv_end < n) {
      item->slot = 2 * p + 1;
      item->last = part->end_last;
    }
    walk->kv = 0;
    if (walk->q_tile + 1 < cgr__plan_num_q_tiles(query_len, tile_q)) {
      walk->q_tile++;
    } else {
      walk->request++;
      walk->q_tile = 0;
    }
    return 1;
  }
}

#endif

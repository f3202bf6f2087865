/* FlashInfer's plans of batch decode and of batch prefill with a paged KV cache (FA2): what
 * include/flashinfer/attention/scheduler.cuh computes in DecodePlan and PrefillPlan, and FA2DetermineCtaTileQ of utils.cuh; read
 * at flashinfer-ai/flashinfer fb28d7242b35 and in release 0.7.2.post1. The layouts (cgr_flashinfer_layout) differ in where the
 * mask and the partials are, not in the tiles.
 *
 * A tile is one (request, q tile, KV chunk). A q tile is cta_tile_q packed rows, a row being a new token with one query head of a
 * KV head; decode has one q tile for each request, even an empty one. All requests are cut into chunks of the same number of
 * pages: the smallest, from 128 tokens up, that makes at most max_tiles tiles; if there are more q tiles than that, the longest
 * KV.
 *
 * The search. S(c), the tiles with chunks of c pages, falls as c grows. With w the q tiles and t the sum of q tiles times pages,
 * t / c <= S(c) <= (t - w) / c + w: so the answer is at least t / max_tiles and at most (t - w) / (max_tiles - w). The range is
 * often empty, and within it S(c) is at most max_tiles + w. Decode and prefill differ in what is counted and in what is stored,
 * not in the search.
 *
 * All arithmetic is on integers, and every function here is compiled as C for the host and as CUDA for the device. */
#ifndef CGR_INTEROP_FLASHINFER_FORMAT_H
#define CGR_INTEROP_FLASHINFER_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

enum cgr__flashinfer_mode {
  CGR__FLASHINFER_SEARCH = 0,
  CGR__FLASHINFER_FIXED = 1, /* chunks of fixed_chunk pages */
  CGR__FLASHINFER_WHOLE = 2  /* one chunk for each request */
};

/* Byte offsets in the int workspace; -1: no such array. They stand in this order. */
typedef struct cgr__flashinfer_places {
  int64_t request_indices, q_tile_indices, kv_tile_indices, o_indptr, kv_chunk_size, total_num_rows, merge_indptr, valid_mask;
  int64_t bytes;
} cgr__flashinfer_places;

/* What a plan depends on besides the live lengths; with a graph it is complete without them. */
typedef struct cgr__flashinfer_key {
  bool decode, graph;
  bool split_kv;
  bool only_uniform; /* a request has uniform_rows or none */
  int32_t layout;    /* cgr_flashinfer_layout, of prefill */
  int32_t mode;      /* enum cgr__flashinfer_mode */
  int32_t num_requests;
  int32_t uniform_rows; /* of each request when there is no qo_indptr */
  int32_t total_rows;   /* qo_indptr stays within */
  int32_t num_q_heads, q_per_kv, head_dim, head_dim_qk, kv_dtype_bytes;
  int32_t compute_capability, shared_memory;
  int32_t window;                     /* 0: none */
  int32_t cta_tile_q, log_cta_tile_q; /* a power of two, and its logarithm */
  int32_t page_size, max_pages;       /* max_pages: of a request */
  int32_t window_pages;               /* that a q tile can see; INT32_MAX: all */
  int32_t fixed_chunk, min_chunk;
  int32_t max_tiles; /* that the search aims at */
  int32_t tiles;     /* padded_batch_size */
  int32_t reserved;  /* 0 */
  cgr__flashinfer_places at;
} cgr__flashinfer_key;

/* What the search looks at. */
typedef struct cgr__flashinfer_sums {
  int64_t weight;  /* q tiles */
  int64_t total;   /* of q tiles times pages */
  int32_t longest; /* pages, at least 1 */
} cgr__flashinfer_sums;

typedef struct cgr__flashinfer_range {
  int32_t low, high;
} cgr__flashinfer_range;

CGR__HOST_DEVICE int64_t cgr__flashinfer_ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

/* ------------------------------------------------------------------------------------------------------------- requests
 * Without branches: a thread of a kernel has several requests. */

CGR__HOST_DEVICE bool cgr__flashinfer_pages_fit(const cgr__flashinfer_key *key, int32_t begin, int32_t end) {
  return (begin >= 0) & (end >= begin) & ((int64_t)end - begin <= key->max_pages);
}

CGR__HOST_DEVICE bool cgr__flashinfer_rows_fit(const cgr__flashinfer_key *key, int32_t begin, int32_t end) {
  bool allowed = !key->only_uniform | (end == begin) | ((uint32_t)end - (uint32_t)begin == (uint32_t)key->uniform_rows);
  return (begin >= 0) & (end >= begin) & (end <= key->total_rows) & allowed;
}

CGR__HOST_DEVICE int32_t cgr__flashinfer_q_tiles(const cgr__flashinfer_key *key, int32_t rows) {
  int32_t tiles = (int32_t)(((int64_t)rows * key->q_per_kv + key->cta_tile_q - 1) >> key->log_cta_tile_q);
  return key->decode ? 1 : tiles;
}

/* Pages that are cut into chunks, at least 1. */
CGR__HOST_DEVICE int32_t cgr__flashinfer_kv(const cgr__flashinfer_key *key, int32_t pages) {
  int32_t visible = pages < key->window_pages ? pages : key->window_pages;
  return visible > 1 ? visible : 1;
}

/* Tiles that a request counts for, with one chunk: without a graph, decode does not count the empty ones. */
CGR__HOST_DEVICE int32_t cgr__flashinfer_weight(const cgr__flashinfer_key *key, int32_t rows, int32_t pages) {
  if (key->decode && !key->graph && pages == 0)
    return 0;
  return cgr__flashinfer_q_tiles(key, rows);
}

/* ----------------------------------------------------------------------------------------------------------- chunk size */

/* What bounds the chunk size: numerator / denominator, rounded up. The denominator is at least 1. */
typedef struct cgr__flashinfer_ratio {
  int64_t numerator, denominator;
} cgr__flashinfer_ratio;

CGR__HOST_DEVICE cgr__flashinfer_ratio cgr__flashinfer_bound(const cgr__flashinfer_key *key, const cgr__flashinfer_sums *sums,
                                                             bool upper) {
  cgr__flashinfer_ratio bound = { sums->total, key->max_tiles };
  if (upper) {
    bound.numerator -= sums->weight;
    bound.denominator -= sums->weight;
  }
  if (bound.denominator < 1)
    bound.denominator = 1;
  return bound;
}

/* The chunk size, in pages, is the smallest of the range that makes no more than max_tiles tiles; the last of the range does, or
 * is the answer all the same. `low` and `high` are the two bounds. */
CGR__HOST_DEVICE cgr__flashinfer_range cgr__flashinfer_range_of(const cgr__flashinfer_key *key, const cgr__flashinfer_sums *sums,
                                                                int64_t low, int64_t high) {
  int32_t top = sums->longest > key->min_chunk ? sums->longest : key->min_chunk;
  cgr__flashinfer_range range = { key->min_chunk, top };
  if (key->mode != CGR__FLASHINFER_SEARCH) {
    range.low = range.high = key->mode == CGR__FLASHINFER_FIXED ? key->fixed_chunk : INT32_MAX;
    return range;
  }
  if (sums->weight <= 0) {
    range.high = range.low;
    return range;
  }
  if (sums->weight > key->max_tiles) {
    range.low = top;
    return range;
  }
  if (low > range.low)
    range.low = low < top ? (int32_t)low : top;
  if (sums->weight < key->max_tiles && high < range.high)
    range.high = (int32_t)high;
  if (range.high < range.low)
    range.high = range.low;
  return range;
}

CGR__HOST_DEVICE cgr__flashinfer_range cgr__flashinfer_chunk_range(const cgr__flashinfer_key *key,
                                                                   const cgr__flashinfer_sums *sums) {
  cgr__flashinfer_ratio low = cgr__flashinfer_bound(key, sums, false), high = cgr__flashinfer_bound(key, sums, true);
  return cgr__flashinfer_range_of(key, sums, cgr__flashinfer_ceil_div(low.numerator, low.denominator),
                                  cgr__flashinfer_ceil_div(high.numerator, high.denominator));
}

/* Chunks of `kv` pages, at least 1. */
CGR__HOST_DEVICE int32_t cgr__flashinfer_chunks(int32_t kv, int32_t chunk) { return (kv - 1) / chunk + 1; }

/* What is stored: tokens. */
CGR__HOST_DEVICE int32_t cgr__flashinfer_chunk_word(const cgr__flashinfer_key *key, int32_t chunk, int32_t longest) {
  if (key->mode == CGR__FLASHINFER_WHOLE)
    return key->decode ? longest * key->page_size : -key->page_size;
  return chunk * key->page_size;
}

#endif

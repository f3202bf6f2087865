#include "interop/fa3/host.h"

#include <string.h>

/* Some of the batch: at most CGR__FA3_CHUNK requests. */
typedef struct chunk {
  cgr__fa3_request requests[CGR__FA3_CHUNK];
  uint64_t keys[2][CGR__FA3_CHUNK];
  int32_t first, count;
} chunk;

static void read_requests(const cgr__fa3_key *c, const int32_t *start, const int32_t *seq_lens, int32_t live, chunk *k) {
  int64_t tiles = 0;
  for (int32_t j = 0; j < k->count; j++) {
    int32_t i = k->first + j;
    k->requests[j] = cgr__fa3_read(c, i, live, start[i], start[i + 1], seq_lens[i]);
    tiles += (int64_t)k->requests[j].m * k->requests[j].n;
  }
  int32_t blocks_per_sm = cgr__fa3_may_split(c) ? cgr__fa3_blocks_per_sm(c, tiles) : 0;
  for (int32_t j = 0; j < k->count; j++)
    cgr__fa3_split(c, blocks_per_sm, &k->requests[j]);
}

/* Merges the runs [a, b) and [b, end). */
static void merge_runs(const uint64_t *from, uint64_t *to, int32_t a, int32_t b, int32_t end) {
  int32_t middle = b;
  for (int32_t at = a; at < end; at++)
    to[at] = b == end || (a < middle && from[a] < from[b]) ? from[a++] : from[b++];
}

static const uint64_t *sort_chunk(const cgr__fa3_key *c, chunk *k) {
  int32_t now = 0;
  for (int32_t j = 0; j < k->count; j++)
    k->keys[now][j] = cgr__fa3_sort_key(c, &k->requests[j], j);
  for (int32_t width = 1; width < k->count; width *= 2, now ^= 1)
    for (int32_t a = 0; a < k->count; a += 2 * width) {
      int32_t b = a + width < k->count ? a + width : k->count;
      int32_t end = b + width < k->count ? b + width : k->count;
      merge_runs(k->keys[now], k->keys[now ^ 1], a, b, end);
    }
  return k->keys[now];
}

void cgr__fa3_fill(const cgr__fa3_key *c, const int32_t *query_start_loc, const int32_t *seq_lens, const int32_t *live_requests,
                   int32_t *metadata) {
  chunk k;
  int32_t live = live_requests ? *live_requests : c->num_requests;
  for (k.first = 0; k.first < c->num_requests; k.first += k.count) {
    int32_t left = c->num_requests - k.first;
    k.count = left < CGR__FA3_CHUNK ? left : CGR__FA3_CHUNK;
    read_requests(c, query_start_loc, seq_lens, live, &k);
    const uint64_t *keys = c->sort ? sort_chunk(c, &k) : NULL;
    for (int32_t j = 0; j < k.count; j++) {
      int32_t number = keys ? cgr__fa3_sorted_number(keys[j]) : j;
      cgr__fa3_put(c, metadata, k.first + j, k.first + number, &k.requests[number]);
    }
  }
  for (int32_t i = c->num_requests; i < cgr__fa3_rounded(c->num_requests); i++)
    cgr__fa3_put_nothing(c, metadata, i);
  memset(metadata + c->at_semaphore, 0, (size_t)(c->num_words - c->at_semaphore) * sizeof *metadata);
}

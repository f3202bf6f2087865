/* FlashInfer's plans on the host (flashinfer.h). */
#include "interop/flashinfer/host.h"

#include <string.h>

#define MOST ((int64_t)1 << 40) /* tiles of a request that are counted: 4096 requests stay within 2^62 */

/* ---------------------------------------------------------------------------------------------------------------- tiles */

/* Q and one step of K and V (64 tokens) in shared memory, as the kernel with 16 rows needs them. */
static bool small_tile_fits(const cgr__flashinfer_key *key) {
  int64_t q = (int64_t)16 * key->head_dim_qk * 2;
  int64_t kv = ((int64_t)key->head_dim_qk + key->head_dim) * 64 * key->kv_dtype_bytes;
  return q + kv <= key->shared_memory;
}

int32_t cgr__flashinfer_cta_tile_q(const cgr__flashinfer_key *key, int64_t packed_len) {
  if (key->head_dim >= 512)
    return packed_len <= 32 ? 16 : 32;
  if (key->head_dim_qk >= 512)
    return 16;
  if (packed_len > 64 && key->head_dim < 256)
    return 128;
  if (key->compute_capability < 80 || packed_len > 16)
    return 64;
  return small_tile_fits(key) ? 16 : 64;
}

void cgr__flashinfer_set_tile(cgr__flashinfer_key *key, int32_t cta_tile_q) {
  key->cta_tile_q = cta_tile_q;
  key->log_cta_tile_q = 0;
  while (1 << key->log_cta_tile_q < cta_tile_q)
    key->log_cta_tile_q++;
  int64_t visible = cgr__flashinfer_ceil_div((int64_t)key->window - 1 + cta_tile_q, key->page_size);
  key->window_pages = key->window > 0 && visible < INT32_MAX ? (int32_t)visible : INT32_MAX;
}

static int64_t place_array(cgr__flashinfer_places *at, int64_t bytes, int64_t alignment) {
  int64_t offset = (at->bytes + alignment - 1) / alignment * alignment;
  at->bytes = offset + bytes;
  return offset;
}

/* Since 0.7.1 prefill has a mask with every graph, whose launch has more CTAs than a plan has tiles, and with no other plan. */
static bool has_mask(const cgr__flashinfer_key *key) {
  return !key->decode && key->layout == CGR_FLASHINFER_V0_7_1 ? key->graph : key->split_kv;
}

void cgr__flashinfer_set_places(cgr__flashinfer_key *key) {
  cgr__flashinfer_places *at = &key->at;
  int64_t tiles = key->tiles;
  memset(at, 0, sizeof *at);
  at->q_tile_indices = at->total_num_rows = at->merge_indptr = at->valid_mask = -1;
  at->request_indices = place_array(at, tiles * 4, 16);
  if (!key->decode)
    at->q_tile_indices = place_array(at, tiles * 4, 16);
  at->kv_tile_indices = place_array(at, tiles * 4, 16);
  at->o_indptr = place_array(at, (key->decode ? tiles + 1 : key->num_requests + (int64_t)1) * 4, 16);
  at->kv_chunk_size = place_array(at, 4, 1);
  if (!key->decode && key->graph)
    at->total_num_rows = place_array(at, 4, 16);
  if (key->split_kv && !key->decode)
    at->merge_indptr = place_array(at, (key->total_rows + (int64_t)1) * 4, 16);
  if (has_mask(key))
    at->valid_mask = place_array(at, tiles, 16);
}

/* A q tile has cta_tile_q packed rows, which are as many rows for each query head of a KV head. Before 0.7.1 each had room for
 * all. */
int64_t cgr__flashinfer_partial_rows(const cgr__flashinfer_key *key) {
  int64_t packed = (int64_t)key->tiles * key->cta_tile_q;
  return !key->decode && key->layout == CGR_FLASHINFER_V0_7_1 ? cgr__flashinfer_ceil_div(packed, key->q_per_kv) : packed;
}

/* ------------------------------------------------------------------------------------------------------------- requests */

typedef struct lengths {
  int32_t rows, pages;
} lengths;

static int32_t live_of(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays) {
  int32_t live = arrays->live_requests ? *arrays->live_requests : key->num_requests;
  return live < 0 ? 0 : live < key->num_requests ? live : key->num_requests;
}

static lengths request_at(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, int32_t live, int32_t i) {
  const int32_t *qo = arrays->qo_indptr, *kv = arrays->kv_indptr;
  lengths r = { qo ? 0 : key->uniform_rows, 0 };
  if (i >= live)
    return r;
  if (qo)
    r.rows = qo[i + 1] - qo[i];
  r.pages = kv[i + 1] - kv[i];
  return r;
}

bool cgr__flashinfer_lengths_fit(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, int32_t *request,
                                 bool *rows) {
  const int32_t *qo = arrays->qo_indptr, *kv = arrays->kv_indptr;
  int32_t live = live_of(key, arrays);
  *request = -1;
  *rows = true;
  if (qo && live > 0 && qo[0] != 0)
    return false;
  for (int32_t i = 0; i < live; i++) {
    *request = i;
    *rows = qo && !cgr__flashinfer_rows_fit(key, qo[i], qo[i + 1]);
    if (*rows || !cgr__flashinfer_pages_fit(key, kv[i], kv[i + 1]))
      return false;
  }
  return true;
}

/* --------------------------------------------------------------------------------------------------------------- search */

static cgr__flashinfer_sums sum_requests(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, int32_t live) {
  cgr__flashinfer_sums sums = { 0, 0, 1 };
  for (int32_t i = 0; i < key->num_requests; i++) {
    lengths r = request_at(key, arrays, live, i);
    int32_t weight = cgr__flashinfer_weight(key, r.rows, r.pages), kv = cgr__flashinfer_kv(key, r.pages);
    sums.weight += weight;
    sums.total += (int64_t)weight * kv;
    sums.longest = kv > sums.longest ? kv : sums.longest;
  }
  return sums;
}

static int64_t count_tiles(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, int32_t live, int32_t chunk) {
  int64_t tiles = 0;
  for (int32_t i = 0; i < key->num_requests; i++) {
    lengths r = request_at(key, arrays, live, i);
    tiles +=
        (int64_t)cgr__flashinfer_weight(key, r.rows, r.pages) * cgr__flashinfer_chunks(cgr__flashinfer_kv(key, r.pages), chunk);
  }
  return tiles;
}

static int64_t at_most(int64_t value) { return value < MOST ? value : MOST; }

cgr__flashinfer_batch cgr__flashinfer_measure(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays) {
  int32_t live = live_of(key, arrays);
  cgr__flashinfer_sums sums = sum_requests(key, arrays, live);
  cgr__flashinfer_range range = cgr__flashinfer_chunk_range(key, &sums);
  while (range.low < range.high) {
    int32_t middle = range.low + (range.high - range.low) / 2;
    if (count_tiles(key, arrays, live, middle) > key->max_tiles)
      range.low = middle + 1;
    else
      range.high = middle;
  }
  cgr__flashinfer_batch batch = { .chunk = range.low, .longest = sums.longest };
  for (int32_t i = 0; i < key->num_requests; i++) {
    lengths r = request_at(key, arrays, live, i);
    int64_t chunks = cgr__flashinfer_chunks(cgr__flashinfer_kv(key, r.pages), batch.chunk);
    batch.splits |= chunks > 1;
    batch.tiles += at_most(cgr__flashinfer_q_tiles(key, r.rows) * chunks);
    batch.partials += at_most((key->decode ? 1 : r.rows) * chunks);
  }
  return batch;
}

/* Without a graph, prefill has q tiles for the mean length. */
static void choose_tile_without_graph(cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays) {
  int64_t packed = 0;
  int32_t live = live_of(key, arrays);
  for (int32_t i = 0; i < key->num_requests; i++)
    packed += (int64_t)request_at(key, arrays, live, i).rows * key->q_per_kv;
  cgr__flashinfer_set_tile(key, cgr__flashinfer_cta_tile_q(key, packed / key->num_requests));
}

bool cgr__flashinfer_complete_key(cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, cgr__flashinfer_batch *batch) {
  if (!key->decode && !key->graph)
    choose_tile_without_graph(key, arrays);
  *batch = cgr__flashinfer_measure(key, arrays);
  if (key->mode == CGR__FLASHINFER_FIXED)
    key->split_kv = batch->splits;
  else if (key->mode == CGR__FLASHINFER_SEARCH)
    key->split_kv = key->decode ? batch->tiles != key->num_requests : batch->chunk < batch->longest;
  if (!key->graph) {
    if (batch->tiles > INT32_MAX || batch->partials > INT32_MAX)
      return false;
    key->tiles = (int32_t)batch->tiles;
  }
  cgr__flashinfer_set_places(key);
  return true;
}

/* ----------------------------------------------------------------------------------------------------------------- fill */

static int32_t *words_at(unsigned char *bytes, int64_t offset) { return (int32_t *)(void *)(bytes + offset); }

/* The tiles of a request, from `tile` on: its q tiles, and within each of them its chunks. */
static int32_t put_tiles(const cgr__flashinfer_key *key, unsigned char *bytes, int32_t i, lengths r, int32_t chunks,
                         int32_t tile) {
  int32_t q_tiles = cgr__flashinfer_q_tiles(key, r.rows);
  for (int32_t q = 0; q < q_tiles; q++) {
    for (int32_t k = 0; k < chunks; k++, tile++) {
      words_at(bytes, key->at.request_indices)[tile] = i;
      words_at(bytes, key->at.kv_tile_indices)[tile] = k;
      if (!key->decode)
        words_at(bytes, key->at.q_tile_indices)[tile] = q;
    }
  }
  return tile;
}

bool cgr__flashinfer_fill(const cgr__flashinfer_key *key, const cgr__flashinfer_arrays *arrays, void *int_workspace) {
  unsigned char *bytes = int_workspace;
  cgr__flashinfer_batch batch = cgr__flashinfer_measure(key, arrays);
  int32_t live = live_of(key, arrays), tile = 0, row = 0, partial = 0;
  if (batch.tiles > key->tiles)
    return false;
  memset(bytes, 0, (size_t)key->at.bytes);
  int32_t *o_indptr = words_at(bytes, key->at.o_indptr);
  int32_t *merge_indptr = key->at.merge_indptr >= 0 ? words_at(bytes, key->at.merge_indptr) : NULL;
  for (int32_t i = 0; i < key->num_requests; i++) {
    lengths r = request_at(key, arrays, live, i);
    int32_t chunks = cgr__flashinfer_chunks(cgr__flashinfer_kv(key, r.pages), batch.chunk);
    tile = put_tiles(key, bytes, i, r, chunks, tile);
    for (int32_t k = 0; merge_indptr && k < r.rows; k++)
      merge_indptr[row + k + 1] = partial + (k + 1) * chunks;
    row += r.rows;
    partial += (key->decode ? 1 : r.rows) * chunks;
    o_indptr[i + 1] = partial;
  }
  *words_at(bytes, key->at.kv_chunk_size) = cgr__flashinfer_chunk_word(key, batch.chunk, batch.longest);
  if (key->at.total_num_rows >= 0)
    *words_at(bytes, key->at.total_num_rows) = row;
  if (key->at.valid_mask >= 0)
    memset(bytes + key->at.valid_mask, 1, (size_t)tile);
  return true;
}

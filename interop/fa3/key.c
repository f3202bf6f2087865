/* What mha_fwd_get_scheduler_metadata of both projects derives from a key: tiles, packing, the bound of splits, the vectors.
 * Compute capability 9.0; read from hopper/flash_api.cpp, heuristics.h and tile_size.h at the commits of interop/fa3/format.h.
 */
#include <stdbool.h>

#include "interop/fa3/host.h"

/* Named as FlashAttention's parameters, where it has them. */
typedef struct key {
  const cgr_fa3_input *in;
  int32_t q_per_kv;   /* query heads of a KV head */
  int32_t dim, dim_v; /* rounded up to those that FlashAttention has kernels for */
  int32_t element_size;
  int32_t left, right; /* of the window, -1: none; then as the heuristic counts them */
  bool is_causal, is_local;
  bool one_warpgroup; /* vLLM: short queries have tiles of 64 rows */
  bool pages, tma;    /* tma: a page holds whole tiles, and is read through a tensor map */
} key;

typedef struct tiles {
  int32_t m, n;
} tiles;

static int32_t divide_up(int64_t a, int64_t b) { return (int32_t)((a + b - 1) / b); }

static int32_t round_dim(int32_t dim) { return dim <= 64 ? 64 : dim <= 96 ? 96 : dim <= 128 ? 128 : dim <= 192 ? 192 : 256; }
static int32_t round_dim_v(int32_t dim) { return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 192 ? 192 : dim <= 256 ? 256 : 512; }

/* ----------------------------------------------------------------------------------------------------------------- tiles */

static tiles tiles_of_64(const key *k, bool scattered) {
  bool vllm = k->in->layout == CGR_FA3_VLLM;
  if (k->dim_v == 512)
    return (tiles){ 64, 64 };
  if (k->dim_v == 256)
    return (tiles){ 128, 96 };
  if (k->one_warpgroup)
    return (tiles){ 64, 192 };
  if (vllm)
    return (tiles){ 192, k->is_causal ? 128 : k->is_local || scattered ? 160 : 192 };
  return (tiles){ 192, k->is_causal || k->is_local || scattered ? 128 : 192 };
}

static tiles tiles_of_128(const key *k, bool scattered) {
  bool vllm = k->in->layout == CGR_FA3_VLLM, narrow = k->is_causal || k->is_local || scattered;
  if (k->one_warpgroup)
    return (tiles){ 64, narrow ? 128 : 176 };
  return (tiles){ 128, narrow ? 128 : vllm ? 160 : 176 };
}

static tiles tiles_16_bit(const key *k, bool scattered) {
  if (k->dim <= 64)
    return tiles_of_64(k, scattered);
  if (k->dim <= 96)
    return (tiles){ 192, k->is_local || scattered ? 128 : 144 };
  if (k->dim <= 128)
    return tiles_of_128(k, scattered);
  if (k->dim <= 192)
    return (tiles){ 128, scattered || k->is_local ? 96 : k->dim_v <= 128 ? 128 : k->in->layout == CGR_FA3_VLLM ? 96 : 112 };
  return (tiles){ 128, k->is_local ? 64 : 80 };
}

static tiles tiles_fp8_upstream(const key *k, bool scattered) {
  bool capped_local = k->in->softcap && k->is_local;
  if (k->dim <= 64)
    return (tiles){ 192, 160 };
  if (k->dim <= 96)
    return (tiles){ 192, 128 };
  if (k->dim <= 128)
    return (tiles){ 128, scattered ? 160 : capped_local ? 192 : 224 };
  if (k->dim <= 192)
    return (tiles){ 128, capped_local || (scattered && k->is_local) ? 128 : 160 };
  return (tiles){ 128, k->is_local ? 64 : 128 };
}

/* vLLM builds them with accumulation in two levels. */
static tiles tiles_fp8_vllm(const key *k) {
  if (k->one_warpgroup)
    return (tiles){ 64, k->dim <= 96 ? 128 : 96 };
  if (k->dim <= 64)
    return (tiles){ 192, 128 };
  if (k->dim <= 96)
    return (tiles){ 128, 128 };
  if (k->dim <= 128)
    return (tiles){ 128, 192 };
  if (k->dim <= 192)
    return (tiles){ 128, 96 };
  return (tiles){ 128, k->is_local ? 64 : 128 };
}

/* `scattered`: pages that are read without tensor maps. */
static tiles choose_tiles(const key *k, bool scattered) {
  if (k->in->tile_m != 0)
    return (tiles){ k->in->tile_m, k->in->tile_n };
  if (k->element_size == 2)
    return tiles_16_bit(k, scattered);
  return k->in->layout == CGR_FA3_VLLM ? tiles_fp8_vllm(k) : tiles_fp8_upstream(k, scattered);
}

/* ------------------------------------------------------------------------------------------------------------------ mask */

/* A window that bounds nothing counts as none. With one new token causality hides nothing, and the causal kernel is kept only
 * where tiles of pages gain by it, for head dims of 65 to 128. */
static void choose_mask(key *k) {
  const cgr_fa3_input *in = k->in;
  bool causal = in->causal != 0, chunked = in->attention_chunk > 0;
  int32_t left = in->window_left - 1, right = in->causal || in->window_right == 0 ? -1 : in->window_right;
  if (left >= in->max_seq_len - 1)
    left = -1;
  if (right >= in->max_query_len - 1)
    right = -1;
  if (in->max_query_len == 1 && left < 0 && right < 0 && !chunked && (in->head_dim <= 64 || in->head_dim > 128 || !k->pages))
    causal = false;
  if (causal)
    right = 0;
  k->is_causal = left < 0 && right == 0 && !chunked;
  k->is_local = (left >= 0 || right >= 0 || chunked) && !k->is_causal;
  k->left = left < 0 ? in->max_seq_len - 1 : left;
  k->right = right < 0 ? in->max_query_len - 1 : right;
  if (chunked) {
    k->left = k->left < in->attention_chunk - 1 ? k->left : in->attention_chunk - 1;
    k->right = k->right < in->attention_chunk - 1 ? k->right : in->attention_chunk - 1;
  }
}

static key read_key(const cgr_fa3_input *in) {
  key k = { .in = in };
  int32_t dim_v = in->head_dim_v != 0 ? in->head_dim_v : in->head_dim;
  bool vllm = in->layout == CGR_FA3_VLLM;
  k.q_per_kv = in->num_q_heads / in->num_kv_heads;
  k.dim = round_dim(in->head_dim);
  k.dim_v = dim_v == in->head_dim ? k.dim : round_dim_v(dim_v);
  k.element_size = in->dtype == CGR_DTYPE_FP8_E4M3 ? 1 : 2;
  k.pages = in->page_size > 0;
  choose_mask(&k);
  k.one_warpgroup = vllm && (in->head_dim == 64 || in->head_dim == 128) && !k.is_local && in->max_query_len * k.q_per_kv <= 64;
  tiles whole = choose_tiles(&k, false);
  k.tma = k.pages && !(vllm && k.is_local) && in->page_size % whole.n == 0 && in->max_query_len * k.q_per_kv > whole.m;
  return k;
}

/* ---------------------------------------------------------------------------------------------------------------- splits */

/* The fewest splits that fill the waves of CTAs nearly as well as the best number does. In floats, as FlashAttention counts. */
static int32_t best_splits(int32_t m_tiles, int32_t most, int32_t num_sm) {
  float best = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t splits = 1; splits <= most; splits++) {
      float waves = (float)((int64_t)m_tiles * splits) / (float)num_sm;
      int32_t whole = (int32_t)waves; /* fewer than 128 */
      float efficiency = waves / (float)(whole + ((float)whole < waves));
      if (pass == 1 && (double)efficiency >= 0.85 * (double)best)
        return splits;
      best = pass == 0 && efficiency > best ? efficiency : best;
    }
  return 1;
}

/* As many as suit one long request among short ones, at most 128. */
static int32_t choose_splits(const key *k, tiles t) {
  const cgr_fa3_input *in = k->in;
  int32_t dim_v = in->head_dim_v != 0 ? in->head_dim_v : in->head_dim, num_sm = in->num_multiprocessors;
  int64_t l2 = 50 << 20, head_bytes = (int64_t)in->max_seq_len * (in->head_dim + dim_v) * k->element_size;
  int64_t visible = (int64_t)k->left + k->right + 1 + t.m;
  int32_t loaded = !k->is_local || visible > in->max_seq_len ? in->max_seq_len : (int32_t)visible;
  int32_t n = divide_up(loaded, t.n), m = divide_up((int64_t)in->max_query_len * k->q_per_kv, t.m);
  int64_t m_tiles = (int64_t)in->num_kv_heads * m;
  if ((float)m_tiles >= 0.8f * (float)num_sm) {
    if (head_bytes <= l2 || m < 2 * num_sm || k->is_causal || k->is_local)
      return 1;
    int64_t splits = (head_bytes + l2 - 1) / l2;
    return splits < 128 ? (int32_t)splits : 128;
  }
  if (n <= 4)
    return 1;
  int32_t most = n < 128 ? n : 128;
  return best_splits((int32_t)m_tiles, most < num_sm ? most : num_sm, num_sm);
}

static bool choose_packing(const key *k, int32_t num_splits) {
  const cgr_fa3_input *in = k->in;
  int32_t dim_v = in->head_dim_v != 0 ? in->head_dim_v : in->head_dim;
  /* vLLM builds the packed kernels alone, except for v of another head dim. */
  if (in->layout == CGR_FA3_VLLM && (num_splits > 1 || in->head_dim == dim_v))
    return true;
  if (in->pack_gqa != 0)
    return in->pack_gqa > 0;
  return (k->pages && !k->tma) || num_splits > 1 || k->q_per_kv > 1;
}

/* --------------------------------------------------------------------------------------------------------------- vectors */

static int32_t place_array(bool there, int32_t words, int32_t *at) {
  int32_t here = *at;
  if (!there)
    return -1;
  *at += words;
  return here;
}

static void place_vectors(const cgr_fa3_input *in, cgr_fa3_sizes *s) {
  bool vllm = in->layout == CGR_FA3_VLLM;
  int32_t rounded = cgr__fa3_rounded(in->num_requests), at = 0;
  int32_t most = cgr__fa3_rounded(in->max_requests != 0 ? in->max_requests : in->num_requests);
  s->at_seqlen_q = place_array(vllm, rounded, &at);
  s->at_num_splits = place_array(!vllm || (in->num_requests <= CGR__FA3_CHUNK && s->num_splits > 1), rounded, &at);
  s->at_num_m_blocks = place_array(!vllm, rounded, &at);
  s->at_batch_idx = place_array(s->sort, rounded, &at);
  s->at_nheads_in_l2 = place_array(s->head_swizzle, rounded, &at);
  s->at_semaphore = at;
  s->used_words = at + 1;
  s->metadata_bytes = (1 + 4 * (uint64_t)most) * sizeof(int32_t);
}

/* How many fit into the part of L2 that FlashAttention counts on; vLLM's part shrinks as more query heads share a KV head. */
static int32_t kv_tiles_in_l2(const key *k, tiles t) {
  int32_t dim_v = k->in->head_dim_v != 0 ? k->in->head_dim_v : k->in->head_dim, bytes = 8 << 20;
  if (k->in->layout == CGR_FA3_VLLM)
    bytes = (32 << 20) / (k->q_per_kv == 1 ? 1 : k->q_per_kv <= 2 ? 2 : k->q_per_kv <= 4 ? 4 : k->q_per_kv <= 8 ? 8 : 16);
  return bytes / (t.n * (k->in->head_dim + dim_v) * k->element_size);
}

static void derive_sizes(const key *k, tiles t, cgr_fa3_sizes *s) {
  const cgr_fa3_input *in = k->in;
  int32_t dim_v = in->head_dim_v != 0 ? in->head_dim_v : in->head_dim;
  s->num_splits = in->num_splits != 0 ? in->num_splits : choose_splits(k, t);
  s->pack_gqa = choose_packing(k, s->num_splits);
  s->tile_m = t.m;
  s->tile_n = t.n;
  s->is_causal = k->is_causal;
  s->is_local = k->is_local;
  s->sort = in->layout == CGR_FA3_UPSTREAM && !k->is_local;
  s->head_swizzle = k->is_causal || k->is_local;
  if (s->num_splits > 1) {
    s->partial_lse_bytes = (uint64_t)s->num_splits * (uint64_t)in->num_q_heads * (uint64_t)in->num_tokens * sizeof(float);
    s->partial_out_bytes = s->partial_lse_bytes * (uint64_t)dim_v;
  }
  place_vectors(in, s);
}

void cgr__fa3_derive(const cgr_fa3_input *in, cgr_fa3_sizes *s, cgr__fa3_key *c) {
  key k = read_key(in);
  tiles t = choose_tiles(&k, k.pages && !k.tma);
  *s = (cgr_fa3_sizes)CGR_FA3_SIZES_INIT;
  derive_sizes(&k, t, s);
  *c = (cgr__fa3_key){ .num_requests = in->num_requests,
                       .tile_m = t.m,
                       .tile_n = t.n,
                       .by_tile_m = cgr__fa3_divide_by((uint32_t)t.m),
                       .by_tile_n = cgr__fa3_divide_by((uint32_t)t.n),
                       .packed_heads = s->pack_gqa ? k.q_per_kv : 1,
                       .unpacked_heads = s->pack_gqa ? 1 : k.q_per_kv,
                       .heads = s->pack_gqa ? in->num_kv_heads : in->num_q_heads,
                       .is_causal = s->is_causal,
                       .sort = s->sort,
                       .num_splits = s->num_splits,
                       .num_multiprocessors = in->num_multiprocessors,
                       .max_query_len = in->max_query_len,
                       .max_seq_len = in->max_seq_len,
                       .kv_tiles_in_l2 = kv_tiles_in_l2(&k, t),
                       .at_num_splits = s->at_num_splits,
                       .at_num_m_blocks = s->at_num_m_blocks,
                       .at_seqlen_q = s->at_seqlen_q,
                       .at_batch_idx = s->at_batch_idx,
                       .at_nheads_in_l2 = s->at_nheads_in_l2,
                       .at_semaphore = s->at_semaphore,
                       .num_words = (int32_t)(s->metadata_bytes / sizeof(int32_t)) };
}

/* Brings KV tiles into shared memory, in the order of the items and ahead of the current one.
 *
 * Items of the decode section are kept in a ring in shared memory, some ahead of the current one: while that is written and
 * merged, tiles of the next items are being copied, all but one of the stages. An item of the prefill queue is loaded by itself.
 * Warp w copies tokens [16 w, 16 w + 16) of every tile. They are in one page, and in decode they are the tokens that the warp
 * itself works on, so its pipeline needs no other warp. The page number is fetched one tile before its copies start. K and V of a
 * tile are two groups of copies, in this order, because K's place is free again while V is still in use. Tokens that no line of
 * the item sees become zeros; if a page holds no others, not even its number is read. The queries of an item of few lines come
 * with its first K, in the same group. All warps copy them together, and synchronise once before they read them. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_PRODUCER_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_PRODUCER_CUH

#include "devices/cuda/launch.cuh"
#include "kernels/cuda/attention/sm80/items.cuh"
#include "kernels/cuda/attention/sm80/mma.cuh"
#include "kernels/cuda/attention/sm80/scoring.cuh"
#include "kernels/cuda/attention/sm80/traits.h"
#include "kernels/cuda/guard.cuh"

namespace cgr {

/* Byte offset of a 16-byte chunk in a tile of rows of kRowBytes. Chunks are swizzled within 128 bytes, so that the eight rows of
 * one ldmatrix are in different banks. */
template <int kRowBytes> __device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
  const int swizzle = kRowBytes >= 128 ? row & 7 : row >> 1 & 3; /* of 64 bytes, two rows have 128 */
  return (uint32_t)(row * kRowBytes + ((chunk ^ swizzle) * 16));
}

/* kLoaded: the lines of a query tile. An item with more lines loads its queries itself. */
template <int kHeadDim, bool kGeneral, int kLoaded, int kCache> struct Loader {
  using Shape = AttentionShape<kHeadDim, kCache>;
  using Keys = typename Shape::Keys;
  using Values = typename Shape::Values;

  int32_t index;          /* of the item among those of the CTA */
  int32_t tile, tile_end; /* of the item; none is left when live is false */
  int32_t seen_end;       /* no line sees tokens from here on */
  int32_t seen_begin;     /* general: nor those before */
  int32_t start;          /* general: the request's first token in the step */
  int32_t row;
  bool live, in_decodes;
  int32_t page_shift; /* plain: log2(page_size) */
  int32_t page;       /* of this warp's granule of `tile` */
  CachePolicy policy;
  uint32_t queries;  /* the first query tile, in shared memory */
  const char *k, *v; /* this thread's column of token 0 of page 0, or of the step, for the item's KV head */
  int32_t kv_head;   /* with factors of tokens */

  __device__ __forceinline__ bool is_step(const cgr__attention_args &a) const {
    return kGeneral && !kHasKeyCodes<kCache> && a.plan_class.sees == CGR__SEES_STEP;
  }

  __device__ __forceinline__ void begin_item(const cgr__attention_args &a, const ItemRecord &record, int32_t number) {
    index = number;
    live = record.is_live;
    if (!live)
      return;
    kv_head = record.kv_head;
    tile = record.item.kv_begin;
    tile_end = record.item.kv_end;
    row = record.row;
    seen_end = record.seen.end;
    if constexpr (kGeneral) {
      seen_begin = record.seen.begin;
      start = record.start;
    }
    if (is_step(a)) {
      k = column_of<Keys>(a.k.data, a.k.stride_head);
      v = column_of<Values>(a.v.data, a.v.stride_head);
    } else {
      k = column_of<Keys>(a.k_cache.base, a.k_cache.stride_head);
      v = column_of<Values>(a.v_cache.base, a.v_cache.stride_head);
    }
    fetch_page(a);
    copy_queries(a, record);
  }

  template <class Tile> __device__ __forceinline__ const char *column_of(const void *base, int64_t stride_head) const {
    int64_t chunk = (threadIdx.x % Tile::kChunks) * Tile::kChunkElements;
    return static_cast<const char *>(base) + (kv_head * stride_head + chunk) * Tile::kElementBytes;
  }

  /* Whether nothing is being copied after item `number`, the current one: it is the decode section's last, or one of the prefill
   * queue. */
  __device__ __forceinline__ bool is_drained(int32_t number) const { return !live && index <= number + 1; }

  /* The query tile of item `number`; also that of item number + kQueryTiles, which begins when all warps are done with this one.
   */
  __device__ __forceinline__ uint32_t query_tile_of(int32_t number) const {
    return queries + (uint32_t)number % Shape::kQueryTiles * Shape::kQueryTileBytes;
  }

  __device__ __forceinline__ void copy_queries(const cgr__attention_args &a, const ItemRecord &record) {
    if (record.lines > kLoaded)
      return;
    const QueryTile q = query_tile(record);
    const uint32_t to = query_tile_of(index);
    int chunk = threadIdx.x % Shape::kQueryChunks;
#pragma unroll
    for (int32_t line = threadIdx.x / Shape::kQueryChunks; line < kLoaded; line += kAttentionThreads / Shape::kQueryChunks) {
      bool valid = line < q.lines && (!kGeneral || chunk * 8 < a.head_dim);
      const uint16_t *from = static_cast<const uint16_t *>(a.q.data) + (valid ? q.offset(a.q, line) + chunk * 8 : 0);
      copy_async_or_zeros(to + tile_offset<Shape::kQueryRowBytes>(line, chunk), from, valid);
    }
  }

  __device__ __forceinline__ int32_t first_token() const { return tile * kTileKv + (int32_t)(threadIdx.x / 32) * kGranule; }

  __device__ __forceinline__ void fetch_page(const cgr__attention_args &a) {
    int32_t token = first_token();
    page = a.group.read_trash_page;
    if constexpr (kGeneral) {
      if (token < seen_end && token + kGranule > seen_begin && !is_step(a))
        page = a.page_table[row * a.group.page_table_stride + (int32_t)((uint32_t)token / (uint32_t)a.group.page_size)];
    } else {
      if (token < seen_end)
        page = a.page_table[row * a.group.page_table_stride + (token >> page_shift)];
    }
  }

  /* K of the next tile. */
  __device__ __forceinline__ void issue_k(const cgr__attention_args &a, uint32_t stage) {
    if (live) {
      bool is_bad_page = (uint64_t)(int64_t)page >= (uint64_t)a.group.num_pages || page == a.group.write_trash_page;
      if (CGR__UNLIKELY(is_bad_page && !is_step(a))) {
        wait_for_previous(); /* nothing may be written before that */
        claim_error(a.error, CGR_GUARD_PAGE, row, first_token() / a.group.page_size, page);
        page = a.group.read_trash_page;
      }
      copy_granule<Keys>(a, k, a.k_cache, a.k, a.head_dim, stage);
      if constexpr (kHasVectorFactors<kCache>)
        if (has_token_factors(a))
          copy_factors(a, stage + Shape::kFactorsAt);
    }
    copy_async_commit(); /* an empty group past the end keeps the count of groups right */
  }

  /* V of the tile whose K was issued last. */
  __device__ __forceinline__ void issue_v(const cgr__attention_args &a, uint32_t stage) {
    if (live)
      copy_granule<Values>(a, v, a.v_cache, a.v, a.head_dim_v, stage + Shape::kValuesAt);
    copy_async_commit();
  }

  /* Moves on to the next tile of this item; false when there is none. */
  __device__ __forceinline__ bool step(const cgr__attention_args &a) {
    if (!live || ++tile == tile_end)
      return false;
    fetch_page(a);
    return true;
  }

  /* Where this thread's column of a token begins, and the bytes from one token to the next. */
  template <class Tile>
  __device__ __forceinline__ const char *locate(const cgr__attention_args &a, const char *column, const cgr_kv_view &cache,
                                                const cgr_view &step, int32_t token, int64_t &stride) const {
    if (is_step(a)) {
      stride = step.stride_token * Tile::kElementBytes;
      return column + (start + token) * stride;
    }
    stride = cache.stride_token * Tile::kElementBytes;
    int32_t size = a.group.page_size, in_page = kGeneral ? token % size : token & (size - 1);
    return column + (int64_t)page * cache.stride_page * Tile::kElementBytes + in_page * stride;
  }

  template <class Tile>
  __device__ __forceinline__ void copy_granule(const cgr__attention_args &a, const char *column, const cgr_kv_view &cache,
                                               const cgr_view &step, int32_t head_dim, uint32_t to) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int chunk = lane % Tile::kChunks, first = lane / Tile::kChunks;
    int32_t token = first_token() + first;
    int64_t stride;
    const char *from = locate<Tile>(a, column, cache, step, token, stride);
    bool is_whole = first_token() + kGranule <= seen_end && (!kGeneral || (first_token() >= seen_begin && head_dim == kHeadDim));
    if (CGR__LIKELY(is_whole)) {
#pragma unroll
      for (int u = 0; u < Tile::kPasses; u++) {
        int ahead = u * Tile::kTokensPerPass;
        copy_async(to + tile_offset<Tile::kRowBytes>(warp * kGranule + first + ahead, chunk), from + ahead * stride, policy);
      }
      return;
    }
    bool has_chunk = !kGeneral || chunk * Tile::kChunkElements < head_dim;
#pragma unroll 1
    for (int u = 0; u < Tile::kPasses; u++) {
      int ahead = u * Tile::kTokensPerPass;
      bool is_seen = token + ahead < seen_end && has_chunk && (!kGeneral || token + ahead >= seen_begin);
      copy_async(to + tile_offset<Tile::kRowBytes>(warp * kGranule + first + ahead, chunk), from + ahead * stride, policy,
                 is_seen);
    }
  }

  /* The factors of the granule's keys: four neighbouring ones a lane, zeros for tokens that no line sees. */
  __device__ __forceinline__ void copy_factors(const cgr__attention_args &a, uint32_t to) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane >= kGranule / 4)
      return;
    const int32_t token = first_token() + lane * 4, size = a.group.page_size;
    const int32_t in_page = kGeneral ? token % size : token & (size - 1);
    const bool is_before = kGeneral && first_token() + kGranule <= seen_begin;
    const float *from = a.k_cache.scale + page * a.k_cache.scale_stride_page + kv_head * a.k_cache.scale_stride_head + in_page;
    copy_async_first(to + (uint32_t)(warp * kGranule + lane * 4) * 4, from, is_before ? 0 : max(0, min(seen_end - token, 4)));
  }
};

/* Moves on to the next tile, which is the next item's first if this one has no more. An item of the prefill queue comes alone. */
template <int kHeadDim, bool kGeneral, int kLoaded, int kCache>
__device__ __forceinline__ void advance(const cgr__attention_args &a, Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader,
                                        const ItemShared &items) {
  if (!loader.step(a) && loader.live) {
    loader.live = loader.in_decodes;
    if (loader.live)
      loader.begin_item(a, items.ring[(loader.index + 1) % kRing], loader.index + 1);
  }
}

/* Refills a stage whose tile has been read with the next tile. */
template <int kHeadDim, bool kGeneral, int kLoaded, int kCache>
__device__ __forceinline__ void refill(const cgr__attention_args &a, Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader,
                                       const ItemShared &items, uint32_t stage) {
  loader.issue_k(a, stage);
  loader.issue_v(a, stage);
  advance(a, loader, items);
}

} // namespace cgr
#endif

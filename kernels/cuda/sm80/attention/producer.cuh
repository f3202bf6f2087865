/* Brings KV tiles into shared memory, in the order of the items and ahead of the one at work.
 *
 * On the line a cursor of its own walks the part, so that the tiles of the next item are on their way before the present one is
 * merged and written; an item of the queue is loaded by itself. Warp w copies tokens [16 w, 16 w + 16) of every tile: one page,
 * and in decode the very tokens that it will work on, so that its pipeline needs no other warp. The page number is fetched one
 * tile before its copies start. K and V of a tile are two groups of copies, in this order: K's place is free again while V is
 * still at work. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_PRODUCER_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_PRODUCER_CUH

#include "kernels/cuda/common/guard.cuh"
#include "kernels/cuda/sm80/attention/mma.cuh"
#include "kernels/cuda/sm80/attention/traits.h"

namespace cgr {

/* Byte offset of a 16-byte chunk in a tile of rows of kRowBytes: chunks are exchanged within 128 bytes so that eight rows of
 * one ldmatrix lie in different banks. */
template <int kRowBytes> __device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
  return (uint32_t)(row * kRowBytes + ((chunk ^ (row & 7)) * 16));
}

/* The plan class, with the tiles that these kernels are made for as constants. */
__device__ __forceinline__ cgr__plan_class class_of(const cgr__attention_args &a) {
  cgr__plan_class c = a.plan_class;
  c.line_tile_kv = c.queue_tile_kv = kTileKv;
  return c;
}

/* The batch as the plan walks it. */
__device__ __forceinline__ cgr__plan_batch batch_of(const cgr__attention_args &a) {
  cgr__plan_batch batch;
  batch.query_start = a.query_start_loc;
  batch.seq_lens = a.seq_lens;
  batch.line = a.plan + cgr__plan_line_offset(&a.plan_class) / (int64_t)sizeof(int32_t);
  return batch;
}

template <int kHeadDim> struct Loader {
  using Shape = AttentionShape<kHeadDim>;

  cgr__plan_walk walk;
  int32_t tile, tile_end; /* of the item; none is left when live is false */
  int32_t seq_len, row;
  int32_t row_ahead; /* of the walk's request: fetched an item before it is needed, like its lengths */
  bool live, on_line;
  int32_t page;      /* of this warp's granule of `tile` */
  const char *k, *v; /* this thread's column of token 0 of page 0, for the item's KV head */

  /* `begin` becomes the walk of the consumer. */
  __device__ __forceinline__ void begin_line(const cgr__attention_args &a, const cgr__plan_part &part, cgr__plan_walk &begin) {
    const cgr__plan_batch batch = batch_of(a);
    walk = cgr__plan_walk_begin(&part, &batch);
    row_ahead = a.request_rows[walk.request];
    if (threadIdx.x == 0)
      begin = walk;
    on_line = true;
    next_item(a, part);
  }

  __device__ __forceinline__ void begin_item(const cgr__attention_args &a, const cgr__plan_item &item, int32_t length,
                                             int32_t table_row) {
    int32_t kv_head = cgr__attention_head_block(&a, item.head_block).kv_head;
    int64_t chunk = (threadIdx.x % Shape::kChunks) * 8;
    k = static_cast<const char *>(a.k_cache.base) + (kv_head * a.k_cache.stride_head + chunk) * 2;
    v = static_cast<const char *>(a.v_cache.base) + (kv_head * a.v_cache.stride_head + chunk) * 2;
    live = true;
    tile = item.kv_begin;
    tile_end = item.kv_end;
    seq_len = length;
    row = table_row;
    fetch_page(a);
  }

  __device__ __forceinline__ void next_item(const cgr__attention_args &a, const cgr__plan_part &part) {
    const cgr__plan_batch batch = batch_of(a);
    const cgr__plan_class plan_class = class_of(a);
    cgr__plan_item item;
    int32_t length = walk.seq_len, table_row = row_ahead;
    live = on_line && cgr__plan_walk_next(&walk, &plan_class, &part, (int32_t)blockIdx.x, &batch, &item) != 0;
    if (live) {
      begin_item(a, item, length, table_row);
      row_ahead = a.request_rows[walk.request];
    }
  }

  __device__ __forceinline__ int32_t first_token() const { return tile * kTileKv + (int32_t)(threadIdx.x / 32) * kGranule; }

  __device__ __forceinline__ void fetch_page(const cgr__attention_args &a) {
    int32_t token = first_token();
    page = a.group.read_trash_page;
    if (token < seq_len)
      page = a.page_table[row * a.group.page_table_stride + (token >> (__ffs(a.group.page_size) - 1))];
  }

  /* K of the next tile. */
  __device__ __forceinline__ void issue_k(const cgr__attention_args &a, uint32_t stage) {
    if (live) {
      if ((uint64_t)(int64_t)page >= (uint64_t)a.group.num_pages || page == a.group.write_trash_page) {
        claim_error(a.error, CGR_GUARD_PAGE, row, first_token() / a.group.page_size, page);
        page = a.group.read_trash_page;
      }
      copy_granule(k, a.k_cache, a.group.page_size, stage);
    }
    copy_async_commit(); /* an empty group past the end: the count of groups stays right */
  }

  /* V of the tile whose K was issued last, then on to the next tile. */
  __device__ __forceinline__ void issue_v(const cgr__attention_args &a, const cgr__plan_part &part, uint32_t stage) {
    if (live) {
      copy_granule(v, a.v_cache, a.group.page_size, stage + Shape::kTileBytes);
      if (++tile < tile_end)
        fetch_page(a);
      else
        next_item(a, part);
    }
    copy_async_commit();
  }

  __device__ __forceinline__ void copy_granule(const char *column, const cgr_kv_view &view, int32_t page_size, uint32_t to) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int chunk = lane % Shape::kChunks, first = lane / Shape::kChunks;
    int32_t token = first_token();
    int64_t in_page = (token & (page_size - 1)) + first;
    const char *from = column + ((int64_t)page * view.stride_page + in_page * view.stride_token) * 2;
    int64_t step = Shape::kTokensPerPass * view.stride_token * 2;
#pragma unroll
    for (int u = 0; u < Shape::kPasses; u++) {
      int in_granule = first + u * Shape::kTokensPerPass;
      copy_async(to + tile_offset<Shape::kRowBytes>(warp * kGranule + in_granule, chunk), from + u * step,
                 token + in_granule < seq_len);
    }
  }
};

} // namespace cgr
#endif

/* The items of a CTA, in the order in which it works on them: thread 0 finds them, all others read them from shared memory. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_ITEMS_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_ITEMS_CUH

#include "kernels/cuda/attention/sm80/traits.h"

namespace cgr {

/* The loader is up to kStages tiles ahead of the work and knows the page of the tile after them: kAhead tiles, at most 4, which
 * may be as many items. What thread 0 finds during an item, the others see from the next item on. So the ring holds the current
 * item, the next one, the items of kAhead tiles after that, and one that marks the end. */
constexpr int32_t kRing = 8;

/* An item, and what else its CTA needs to know. */
struct ItemRecord {
  cgr__plan_item item;
  cgr__plan_range seen;         /* tokens that some line of the item sees */
  int32_t is_live;              /* 0: there are no more, and the other fields do not count */
  int32_t row, start;           /* of the request: its row, its first token in the batch */
  int32_t position;             /* in the sequence, of the item's first query */
  int32_t kv_head, head, heads; /* the head block */
  int32_t heads_inverse;        /* 2^16 / heads, rounded up: line * heads_inverse >> 16 is line / heads, both being 64 at most */
  int32_t lines;
};

/* What thread 0 finds for all threads. Kept here, it takes no registers from the loops. */
struct ItemShared {
  cgr__plan_part part;
  cgr__plan_walk walk; /* the place in the decode section after the last item found */
  ItemRecord ring[kRing];
  int32_t num_found; /* items of the decode section */
  int32_t taken;     /* the next item of the prefill queue, if this CTA has taken it already; else -1 */
};

constexpr int32_t kTakenBefore = 3; /* the next item is taken after the third KV tile from the end, about 4 us before it */

/* Whether the CTA of item i takes its next item at once, because the answer takes time: while more than two items for each CTA
 * follow. Nearer the end it takes it late, so that no item waits for a busy CTA while another CTA is idle. */
__device__ __forceinline__ bool is_far_from_end(int32_t i, int32_t num_items) {
  return i + 2 * (int32_t)(gridDim.x * gridDim.y) < num_items;
}

/* Thread 0: takes the CTA's next item if it has not done so. The read is volatile, or the compiler would have all threads wait
 * for it. */
__device__ __forceinline__ void take_late(const cgr__attention_args &a, ItemShared &shared) {
  if (*const_cast<volatile int32_t *>(&shared.taken) < 0)
    shared.taken = atomicAdd(a.prefill_queue, 1);
}

/* The plan class, with constants for what an instance fixes. */
template <bool kGeneral> __device__ __forceinline__ cgr__plan_class class_of(const cgr__attention_args &a) {
  cgr__plan_class c = a.plan_class;
  c.decode_tile_kv = c.prefill_tile_kv = kTileKv;
  if constexpr (!kGeneral) {
    c.sees = CGR__SEES_CACHE;
    c.window_left = c.window_right = c.bidirectional = c.chunk = 0;
  }
  return c;
}

/* The batch as the plan walks it. */
__device__ __forceinline__ cgr__plan_batch batch_of(const cgr__attention_args &a) {
  cgr__plan_batch batch;
  batch.query_start = a.query_start_loc;
  batch.seq_lens = a.seq_lens;
  batch.decodes = a.plan + cgr__plan_decodes_offset(&a.plan_class) / (int64_t)sizeof(int32_t);
  return batch;
}

/* `length`: of the request, as the buffers have it. */
template <bool kGeneral>
__device__ __forceinline__ void describe(const cgr__attention_args &a, const cgr__plan_item &item, int32_t query_len,
                                         int32_t length, ItemRecord &record) {
  const cgr__plan_class c = class_of<kGeneral>(a);
  cgr__head_block block = cgr__attention_head_block(&a, item.head_block);
  record.item = item;
  record.row = a.request_rows[item.request];
  record.start = a.query_start_loc[item.request];
  record.seen.begin = 0;
  record.seen.end = length;
  if constexpr (kGeneral)
    record.seen = cgr__plan_kv_tokens(&c, query_len, cgr__plan_seen_len(&c, query_len, length), item.query_begin,
                                      item.query_begin + item.num_queries - 1);
  record.position = length - query_len + item.query_begin;
  record.kv_head = block.kv_head;
  record.head = block.head;
  record.heads = block.heads;
  record.heads_inverse = (int32_t)((uint32_t)(0xffff + block.heads) / (uint32_t)block.heads);
  record.lines = item.num_queries * block.heads;
}

/* The next item of this CTA's part, if there is one. */
template <bool kGeneral>
__device__ __forceinline__ void next_decode_item(const cgr__attention_args &a, const cgr__plan_part &part, cgr__plan_walk &walk,
                                                 ItemRecord &record) {
  const cgr__plan_class c = class_of<kGeneral>(a);
  const cgr__plan_batch batch = batch_of(a);
  cgr__plan_item item;
  int32_t query_len = walk.query_len, length = walk.seq_len;
  record.is_live = cgr__plan_walk_next(&walk, &c, &part, (int32_t)blockIdx.y, &batch, &item);
  if (!record.is_live)
    return;
  cgr__plan_item_in_stripe(&c, (int32_t)blockIdx.x, &item);
  describe<kGeneral>(a, item, query_len, length, record);
}

/* Thread 0: finds items of the decode section until the loader knows its way to the end of item `next` and kAhead tiles beyond,
 * or there are no more. Returns whether there may be more. */
template <bool kGeneral, int kAhead>
__device__ __forceinline__ bool find_decode_item(const cgr__attention_args &a, ItemShared &shared, int32_t next) {
  static_assert(kAhead + 3 <= kRing, "the ring has room for what is ahead");
  cgr__plan_walk walk = shared.walk;
  int32_t found = shared.num_found, tiles = 0;
#pragma unroll 1
  for (int32_t n = next + 1; n < found; n++)
    tiles += shared.ring[n % kRing].item.kv_end - shared.ring[n % kRing].item.kv_begin;
  bool is_live = true;
#pragma unroll 1
  while (is_live && (found <= next || tiles < kAhead)) {
    ItemRecord &record = shared.ring[found % kRing];
    next_decode_item<kGeneral>(a, shared.part, walk, record);
    is_live = record.is_live != 0;
    if (is_live)
      tiles += found++ > next ? record.item.kv_end - record.item.kv_begin : 0;
  }
  shared.walk = walk;
  shared.num_found = found;
  return is_live;
}

/* Thread 0: the next item of the prefill queue becomes item `number`. `num_items`: of all stripes. */
template <bool kGeneral>
__device__ __forceinline__ void find_prefill_item(const cgr__attention_args &a, ItemShared &shared, int32_t number,
                                                  int32_t num_items) {
  const cgr__plan_class c = class_of<kGeneral>(a);
  ItemRecord &record = shared.ring[number % kRing];
  int32_t i = shared.taken >= 0 ? shared.taken : atomicAdd(a.prefill_queue, 1), next = -1;
  record.is_live = i < num_items;
  if (!record.is_live)
    return;
  if (is_far_from_end(i, num_items))
    next = atomicAdd(a.prefill_queue, 1);
  const cgr__plan_entry *entries =
      reinterpret_cast<const cgr__plan_entry *>(reinterpret_cast<const char *>(a.plan) + cgr__plan_entries_offset(&c));
  const int32_t stripe = i % c.stripes, in_stripe = i / c.stripes;
  const cgr__plan_entry entry = entries[in_stripe / c.head_blocks];
  int32_t query_len = a.query_start_loc[entry.request + 1] - a.query_start_loc[entry.request];
  cgr__plan_item item = cgr__plan_prefill_item(&c, &entry, in_stripe % c.head_blocks, query_len);
  cgr__plan_item_in_stripe(&c, stripe, &item);
  if (next < 0 && item.kv_end - item.kv_begin < kTakenBefore)
    next = atomicAdd(a.prefill_queue, 1);
  describe<kGeneral>(a, item, query_len, a.seq_lens[entry.request], record);
  shared.taken = next;
}

} // namespace cgr
#endif

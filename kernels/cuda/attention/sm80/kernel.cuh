/* Attention (kernels/attention.h): one CTA of four warps works on one part of the decode section, then on items of the prefill
 * queue, if there can be any. Stripes are the grid's x, parts its y. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_KERNEL_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_KERNEL_CUH

#include <string.h>

#include <algorithm>

#include "devices/cuda/launch.cuh"
#include "kernels/cuda/attention/sm80/few_lines.cuh"
#include "kernels/cuda/attention/sm80/many_lines.cuh"

namespace cgr {

static_assert(kFewLines == 2 * kMmaLines, "items of few lines are one tile of an mma, or two");
static_assert(sizeof(AttentionShared) + 1024 <= CGR__MMA_SHARED_STATIC, "1 KB is the system's");

/* Merges through free shared memory: `all` of it, or `stage`, whose tile was read last. */
template <int kCache, int kHeadDim, bool kGeneral>
__device__ __forceinline__ void merge_in_free_memory(const cgr__attention_args &a, const ItemRecord &record,
                                                     unsigned char *memory, bool all, int stage) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  constexpr int32_t kPartialBytes =
      kAttentionWarps * kHeadDim * (int32_t)sizeof(float); /* of one partial of a line, for each warp */
  static_assert(kHasKeyCodes<kCache> ? Shape::kSharedBytes <= CGR__MMA_SHARED(kHeadDim)
                                     : Shape::kSharedBytes == CGR__MMA_SHARED(kHeadDim),
                "what plans count on");
  static_assert(Shape::kSharedBytes / kPartialBytes <= 64, "merge_partials takes no more at once");
  float *scratch = reinterpret_cast<float *>(all ? memory : memory + stage * Shape::kStageBytes);
  const int32_t room = (all ? Shape::kSharedBytes : Shape::kStageBytes) / kPartialBytes;
  merge_partials<kCache, kHeadDim, kGeneral>(a, record.item, query_tile(record), scratch, room);
}

/* Works on item `number` of the CTA, and merges its tile if this part comes last. The stage of its last tile is refilled after
 * that, because the merge may use it. `stage` becomes that of the next item's first tile. */
template <int kCache, int kHeadDim, bool kGeneral, int kMostLines>
__device__ __forceinline__ void work(const cgr__attention_args &a, const ItemRecord &record, int32_t number,
                                     Loader<kHeadDim, kGeneral, kQueryTileLines<kMostLines>, kCache> &loader,
                                     AttentionShared &shared, unsigned char *memory, int &stage) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  if constexpr (kMostLines <= kFewLines)
    run_few_lines<kCache, kHeadDim, kGeneral, kMostLines / kMmaLines>(a, record, number, loader, shared, memory, stage);
  else if (record.lines <= kMmaLines)
    run_few_lines<kCache, kHeadDim, kGeneral, 1>(a, record, number, loader, shared, memory, stage);
  else if (record.lines <= kFewLines)
    run_few_lines<kCache, kHeadDim, kGeneral, 2>(a, record, number, loader, shared, memory, stage);
  else
    run_many_lines<kCache, kHeadDim, kGeneral>(a, record, loader, shared, memory, stage);
  bool is_last = record.item.count > 0 && arrive(a, record.item, &shared.is_last);
  if (record.item.count == 0)
    __syncthreads(); /* all are done with the last stage, as after an arrival */
  if (is_last) {
    merge_in_free_memory<kCache, kHeadDim, kGeneral>(a, record, memory, loader.is_drained(number), stage);
    __syncthreads();
  }
  refill(a, loader, shared.items, (uint32_t)__cvta_generic_to_shared(memory) + stage * Shape::kStageBytes);
  stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
}

/* Whether the decode section, judging by its cost, reads more of K and V than L2 would keep. An estimate: pages that requests
 * share count once for each of them. */
__device__ __forceinline__ bool evicts_first(const cgr__attention_args &a, const cgr__plan_header &header, int64_t stage_bytes) {
  return header.cost * a.plan_class.stripes * stage_bytes >= kEvictFirstBytes * a.plan_class.cost_kv;
}

/* Whether the loader's current tile has tokens of this step of its own request, which an append may still be writing. */
template <int kHeadDim, bool kGeneral, int kLoaded, int kCache>
__device__ __forceinline__ bool is_new(const cgr__attention_args &a, const Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader,
                                       const ItemRecord &record) {
  return (kGeneral && a.plan_class.sees != CGR__SEES_CACHE) || (loader.tile + 1) * kTileKv > record.position;
}

/* Finds the first item of this CTA's part of the decode section, and issues the copies of up to kStages of its tiles; returns how
 * many. `may_be_more`: the part does not end with that item. Every thread finds the item by itself: the loads before the first
 * tile come one after another, and should not wait for anything else. If this launch began while an append ran, it returns when
 * the append is done; with `append_first` (CGR_COUNT_APPEND_FIRST) no tile is copied before that. */
template <int kHeadDim, bool kGeneral, int kLoaded, int kCache>
__device__ __forceinline__ int begin_decodes(const cgr__attention_args &a, Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader,
                                             ItemShared &items, uint32_t base, bool append_first, bool &may_be_more) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  const cgr__plan_part *parts =
      reinterpret_cast<const cgr__plan_part *>(reinterpret_cast<const char *>(a.plan) + sizeof(cgr__plan_header));
  static_assert(sizeof(cgr__plan_header) % 16 == 0 && sizeof(cgr__plan_part) % 16 == 0, "three loads fetch a part");
  cgr__plan_part part;
  memcpy(&part, __builtin_assume_aligned(parts + blockIdx.y, 16), sizeof part);
  const cgr__plan_batch batch = batch_of(a);
  cgr__plan_walk walk = cgr__plan_walk_begin(&part, &batch);
  ItemRecord record;
  next_decode_item<kGeneral>(a, part, walk, record);
  may_be_more = record.is_live && !cgr__plan_walk_ended(&walk, &part);
  loader.in_decodes = true;
  loader.begin_item(a, record, 0);
  if (threadIdx.x == 0) {
    items.part = part;
    items.walk = walk;
    items.ring[0] = record;
    items.ring[1].is_live = 0; /* unless find_decode_item finds one */
    items.num_found = record.is_live;
    items.taken = -1;
  }
  int stage = 0;
  for (bool has_tile = loader.live; has_tile && stage < Shape::kStages; stage++) {
    if (append_first || is_new(a, loader, record))
      wait_for_previous();
    loader.issue_k(a, base + stage * Shape::kStageBytes);
    loader.issue_v(a, base + stage * Shape::kStageBytes);
    has_tile = loader.step(a);
  }
  wait_for_previous();
  return stage;
}

/* `kMostLines`: the most lines of an item. With kFewLines or fewer the kernel has no prefills. A decode CTA
 * executes about as many instructions as the multiprocessor's cache holds (32 KB); the less other code is between them, the
 * less it waits. */
template <int kCache, int kHeadDim, bool kGeneral, int kMostLines>
__global__ void __launch_bounds__(kAttentionThreads, kHeadDim > 128 ? 1 : CGR__MMA_MAX_CTAS)
    attention_kernel(const __grid_constant__ cgr__attention_args a) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ AttentionShared shared;

  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  const cgr__plan_header *header = reinterpret_cast<const cgr__plan_header *>(a.plan);
  int32_t num_requests = a.counts[CGR_COUNT_REQUESTS], num_tokens = a.counts[CGR_COUNT_TOKENS];
  const bool append_first = a.counts[CGR_COUNT_APPEND_FIRST] != 0;
  constexpr bool kHasPrefill = kMostLines > kFewLines;
  int32_t num_items = kHasPrefill ? header->num_items * a.plan_class.stripes : 0, num_emptied = header->num_emptied;
  Loader<kHeadDim, kGeneral, kQueryTileLines<kMostLines>, kCache> loader;
  loader.queries = base + Shape::kStages * Shape::kStageBytes;
  loader.page_shift = __ffs(a.group.page_size) - 1;
  loader.policy = cache_policy(evicts_first(a, *header, Shape::kStageBytes));
  bool may_be_more;
  int num_filled = begin_decodes(a, loader, shared.items, base, append_first, may_be_more), stage = 0;
  if (num_tokens < a.num_tokens || num_emptied > 0) /* while the first tiles are on their way */
    zero_unowned<kHeadDim, kGeneral>(a, num_requests, num_tokens, num_emptied);
  for (int32_t i = 0;; i++) {
    const ItemRecord &record = shared.items.ring[i % kRing];
    if (loader.in_decodes && threadIdx.x == 0 && may_be_more)
      may_be_more = find_decode_item<kGeneral, Shape::kAhead>(a, shared.items, i + 1);
    if (i == 0) {
      __syncthreads();
      if (num_filled > 0 && loader.tile == loader.tile_end)
        loader.begin_item(a, shared.items.ring[1], 1);
    }
    if (loader.in_decodes && !record.is_live) {
      if (num_items == 0)
        break;
      __syncthreads(); /* all threads have seen that */
      loader.in_decodes = false;
      loader.policy = cache_policy(false); /* q tiles of one request read the same K and V */
    }
    if (kHasPrefill && !loader.in_decodes) {
      if (threadIdx.x == 0)
        find_prefill_item<kGeneral>(a, shared.items, i, num_items);
      __syncthreads();
      if (!record.is_live)
        break;
      loader.begin_item(a, record, i);
      stage = num_filled = 0;
    }
#pragma unroll 1 /* the loader's code is long, and cold when a step begins */
    for (; num_filled < Shape::kStages; num_filled++)
      refill(a, loader, shared.items, base + num_filled * Shape::kStageBytes);
    work<kCache, kHeadDim, kGeneral, kMostLines>(a, record, i, loader, shared, memory, stage);
  }
  copy_async_wait<0>();
}

/* The most dynamic shared memory of a launch: a CTA's own, or what plans ask for to keep other CTAs away. */
constexpr size_t max_dynamic_shared(size_t own) { return std::max<size_t>(own, CGR__MMA_MOST_PADDING); }

/* The kernels of one file: for each of kCaches, and for each size of items. kAnyCodes and those like it have no kernels of their
 * own for the smallest. */
template <int kHeadDim, bool kGeneral, int... kCaches> struct Instances {
  typedef void (*Kernel)(cgr__attention_args);
  static constexpr int kNumCaches = sizeof...(kCaches), kSizes = 3;
  static constexpr int kCacheOf[kNumCaches] = { kCaches... };
  static constexpr int32_t kMostLines[kSizes] = { kMmaLines, kFewLines, kTileLines };
  static constexpr int32_t kLeastLines = std::max({ kCaches... }) < kAnyCodes ? kMmaLines : kFewLines;
  static constexpr size_t kSharedBytes = std::max({ (size_t)AttentionShape<kHeadDim, kCaches>::kSharedBytes... });

  static Kernel get(int size, int cache) {
    static const Kernel kernels[kSizes][kNumCaches] = {
      { attention_kernel<kCaches, kHeadDim, kGeneral, kLeastLines>... },
      { attention_kernel<kCaches, kHeadDim, kGeneral, kFewLines>... },
      { attention_kernel<kCaches, kHeadDim, kGeneral, kTileLines>... },
    };
    return kernels[size][cache];
  }
};

/* `cache`: one of kCaches. */
template <int kHeadDim, bool kGeneral, int... kCaches>
int attention_launch(const cgr__attention_args *args, int32_t cache, dim3 grid, cudaStream_t stream) {
  using All = Instances<kHeadDim, kGeneral, kCaches...>;
  const size_t shared = std::min(std::max(All::kSharedBytes, (size_t)args->shared_bytes), max_dynamic_shared(All::kSharedBytes));
  int32_t lines = cgr__attention_most_lines(args, kTileLines);
  int size = 0, index = 0;
  while (lines > All::kMostLines[size])
    size++;
  while (index < All::kNumCaches && All::kCacheOf[index] != cache)
    index++;
  if (index == All::kNumCaches)
    return (int)cudaErrorNotSupported;
  return launch(All::get(size, index), args, grid, dim3(kAttentionThreads), shared, stream, args->after_append != 0);
}

template <int kHeadDim, bool kGeneral, int... kCaches> int attention_preload() {
  using All = Instances<kHeadDim, kGeneral, kCaches...>;
  for (int size = 0; size < All::kSizes; size++)
    for (int index = 0; index < All::kNumCaches; index++)
      if (int error = preload_with_attention(All::get(size, index), max_dynamic_shared(All::kSharedBytes)))
        return error;
  return 0;
}

/* What a file of instances defines (traits.h). */
#define CGR__ATTENTION_INSTANCES(name, dim, is_general, ...)                                                         \
  int cgr::attention_launch_##name(const cgr__attention_args *args, int32_t cache, dim3 grid, cudaStream_t stream) { \
    return attention_launch<dim, is_general, __VA_ARGS__>(args, cache, grid, stream);                                \
  }                                                                                                                  \
  int cgr::attention_preload_##name() { return attention_preload<dim, is_general, __VA_ARGS__>(); }

} // namespace cgr
#endif

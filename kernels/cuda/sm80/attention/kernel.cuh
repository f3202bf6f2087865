/* Attention (kernels/attention.h): one CTA of four warps works on one part of the line, then on items of the queue. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_KERNEL_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_KERNEL_CUH

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sm80/attention/mainloop.cuh"

namespace cgr {

/* Thread 0: the next item of the line, or else of the queue. `taken` is the item of the queue that comes next: it is asked for an
 * item ahead, for the answer takes its time. */
template <bool kGeneral>
__device__ __forceinline__ ItemSource find_item(const cgr__attention_args &a, AttentionShared &shared, cgr__plan_item &item,
                                                ItemSource source, int32_t num_items, int32_t &taken) {
  const cgr__plan_class c = class_of<kGeneral>(a);
  const cgr__plan_batch batch = batch_of(a);
  if (source == kLine && cgr__plan_walk_next(&shared.walk, &c, &shared.part, (int32_t)blockIdx.x, &batch, &item))
    return kLine;
  if (num_items == 0)
    return kNoItem;
  int32_t i = source == kLine ? atomicAdd(a.queue, 1) : taken;
  if (i >= num_items)
    return kNoItem;
  taken = atomicAdd(a.queue, 1);
  const cgr__plan_entry *entries =
      reinterpret_cast<const cgr__plan_entry *>(reinterpret_cast<const char *>(a.plan) + cgr__plan_entries_offset(&c));
  const cgr__plan_entry entry = entries[i / c.head_blocks];
  int32_t query_len = a.query_start_loc[entry.request + 1] - a.query_start_loc[entry.request];
  item = cgr__plan_queue_item(&c, &entry, i % c.head_blocks, query_len);
  return kQueue;
}

template <int kDtype, int kHeadDim, bool kGeneral>
__global__ void __launch_bounds__(kAttentionThreads, kHeadDim > 128 ? 1 : 2)
    attention_kernel(const __grid_constant__ cgr__attention_args a) {
  using Shape = AttentionShape<kHeadDim>;
  static_assert(kAttentionWarps * kWarpLines * kHeadDim * 4 <= Shape::kStageBytes, "the warps' states fit a stage");
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ AttentionShared shared;

  const cgr__plan_header *header = reinterpret_cast<const cgr__plan_header *>(a.plan);
  int32_t part = (int32_t)blockIdx.x;
  if (threadIdx.x < sizeof(cgr__plan_part) / sizeof(int32_t))
    reinterpret_cast<int32_t *>(&shared.part)[threadIdx.x] =
        a.plan[(sizeof(cgr__plan_header) + part * sizeof(cgr__plan_part)) / sizeof(int32_t) + threadIdx.x];
  int32_t num_requests = a.counts[CGR_COUNT_REQUESTS], num_tokens = a.counts[CGR_COUNT_TOKENS];
  int32_t num_items = header->num_items, num_emptied = header->num_emptied;
  __syncthreads();

  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  Loader<kHeadDim, kGeneral> loader;
  loader.begin_line(a, shared.part, shared.walk);
  ItemSource source = kLine;
  int32_t taken = 0;
  int stage = 0, current = 0;
  for (bool is_first = true;; is_first = false) {
    const cgr__plan_item &item = shared.item[current];
    if (source == kQueue)
      loader.begin_item(a, item, a.query_start_loc[item.request + 1] - a.query_start_loc[item.request],
                        a.seq_lens[item.request], a.request_rows[item.request]);
    if (is_first || source == kQueue) {
#pragma unroll 1 /* the loader's code is long, and cold when a step begins */
      for (stage = 0; stage < Shape::kStages; stage++) {
        loader.issue_k(a, base + stage * Shape::kStageBytes);
        loader.issue_v(a, shared.part, base + stage * Shape::kStageBytes);
      }
      stage = 0;
    }
    if (is_first) { /* while the first tiles are on their way */
      zero_unowned<kHeadDim, kGeneral>(a, num_requests, num_tokens, num_emptied);
    } else {
      QueryTile q = query_tile(a, item);
      if (q.lines <= kWarpLines)
        run_item<kDtype, kHeadDim, kGeneral, true>(a, item, q, loader, shared, memory, stage);
      else
        run_item<kDtype, kHeadDim, kGeneral, false>(a, item, q, loader, shared, memory, stage);
      __syncthreads(); /* all are done with the last stage */
      loader.issue_k(a, base + stage * Shape::kStageBytes);
      loader.issue_v(a, shared.part, base + stage * Shape::kStageBytes);
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
      if (item.count > 0 && arrive(a, item, &shared.is_last))
        merge_partials<kDtype, kHeadDim, kGeneral>(a, item, query_tile(a, item));
      current ^= 1;
    }
    if (threadIdx.x == 0)
      shared.source = find_item<kGeneral>(a, shared, shared.item[current], source, num_items, taken);
    __syncthreads();
    source = (ItemSource)shared.source;
    loader.on_line = source == kLine;
    if (source == kNoItem)
      break;
  }
  copy_async_wait<0>();
}

template <int kHeadDim, bool kGeneral> int attention_launch(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  if (args->q.dtype == CGR_DTYPE_BF16)
    return launch(attention_kernel<CGR_DTYPE_BF16, kHeadDim, kGeneral>, args, grid, dim3(kAttentionThreads), kShared, stream);
  return launch(attention_kernel<CGR_DTYPE_FP16, kHeadDim, kGeneral>, args, grid, dim3(kAttentionThreads), kShared, stream);
}

template <int kHeadDim, bool kGeneral> int attention_preload() {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  int error = preload(attention_kernel<CGR_DTYPE_BF16, kHeadDim, kGeneral>, kShared);
  return error ? error : preload(attention_kernel<CGR_DTYPE_FP16, kHeadDim, kGeneral>, kShared);
}

} // namespace cgr
#endif

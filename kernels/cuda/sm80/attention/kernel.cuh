/* Attention over pages (kernels/attention.h): one CTA of four warps walks the work items of one part for one head block. */
#ifndef CGR_KERNELS_CUDA_SM80_ATTENTION_KERNEL_CUH
#define CGR_KERNELS_CUDA_SM80_ATTENTION_KERNEL_CUH

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sm80/attention/mainloop.cuh"

namespace cgr {

template <int kDtype, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_kernel(const __grid_constant__ cgr__attention_args a) {
  using Shape = AttentionShape<kHeadDim>;
  static_assert(kAttentionWarps * kWarpLines * kHeadDim * 4 <= Shape::kStageBytes, "the warps' states fit a stage");
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ AttentionShared shared;

  int32_t part = (int32_t)blockIdx.x;
  if (threadIdx.x < sizeof(cgr__plan_part) / sizeof(int32_t))
    reinterpret_cast<int32_t *>(&shared.part)[threadIdx.x] =
        a.plan[(sizeof(cgr__plan_header) + part * sizeof(cgr__plan_part)) / sizeof(int32_t) + threadIdx.x];
  int32_t num_requests = a.counts[CGR__COUNT_REQUESTS], num_tokens = a.counts[CGR__COUNT_TOKENS];
  __syncthreads();

  int32_t group = a.num_q_heads / a.num_kv_heads;
  int32_t blocks = (group + CGR__TILE_LINES - 1) / CGR__TILE_LINES; /* of one KV head */
  int32_t kv_head = (int32_t)blockIdx.y / blocks, begin = (int32_t)blockIdx.y % blocks * CGR__TILE_LINES;
  int32_t heads = min(group - begin, CGR__TILE_LINES), head = kv_head * group + begin;

  Loader<kHeadDim> loader;
  loader.begin(a, &shared.part, kv_head);
#pragma unroll
  for (int s = 0; s < kAttentionStages; s++) {
    uint32_t stage = (uint32_t)__cvta_generic_to_shared(memory) + s * Shape::kStageBytes;
    loader.issue_k(a, stage);
    loader.issue_v(a, &shared.part, stage);
  }
  zero_unowned<kHeadDim>(a, num_requests, num_tokens, head, heads); /* while the first tiles are on their way */

  cgr__plan_walk walk = cgr__plan_walk_begin(&shared.part);
  cgr__plan_item item;
  int stage = 0;
  while (cgr__plan_walk_next(&walk, &shared.part, part, a.query_start_loc, a.seq_lens, a.tile_q, &item)) {
    int32_t start = a.query_start_loc[item.request], query_len = a.query_start_loc[item.request + 1] - start;
    int32_t offset = item.q_tile * a.tile_q;
    QueryTile q;
    q.heads = heads;
    q.lines = min(a.tile_q, query_len - offset) * heads;
    q.token = start + offset;
    q.head = head;
    q.position = a.seq_lens[item.request] - query_len + offset;
    if (q.lines <= kWarpLines)
      run_item<kDtype, kHeadDim, true>(a, item, q, loader, shared, memory, stage);
    else
      run_item<kDtype, kHeadDim, false>(a, item, q, loader, shared, memory, stage);
  }
  copy_async_wait<0>();
}

template <int kHeadDim> int attention_launch(const cgr__attention_args *args, dim3 grid, cudaStream_t stream) {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  if (args->q.dtype == CGR_DTYPE_BF16)
    return launch(attention_kernel<CGR_DTYPE_BF16, kHeadDim>, args, grid, dim3(kAttentionThreads), kShared, stream);
  return launch(attention_kernel<CGR_DTYPE_FP16, kHeadDim>, args, grid, dim3(kAttentionThreads), kShared, stream);
}

template <int kHeadDim> int attention_preload() {
  constexpr size_t kShared = AttentionShape<kHeadDim>::kSharedBytes;
  int error = preload(attention_kernel<CGR_DTYPE_BF16, kHeadDim>, kShared);
  return error ? error : preload(attention_kernel<CGR_DTYPE_FP16, kHeadDim>, kShared);
}

} // namespace cgr
#endif

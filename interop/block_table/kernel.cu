/* The block table (interop/block_table/format.h). For each stretch of the batch a block for each request's row of pages, and the
 * first one for lengths and sums. */
#include "devices/cuda/launch.cuh"
#include "interop/launchers.h"
#include "interop/formats.h"
#include "base/limits.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = CGR__MAX_REQUESTS / kThreads; /* requests of a thread at most, neighbours */
constexpr int kDeep = 4;                            /* pages that a thread reads at once */

__device__ __forceinline__ cgr__block_table_stretch find_stretch(const cgr__block_table_task &t, int32_t index) {
  int32_t live = t.live_requests != nullptr ? *t.live_requests : t.num_requests;
  return cgr__block_table_find(&t, index, live, t.has_prefills ? *t.first_prefill : 0);
}

__device__ __forceinline__ int32_t sum_before(int32_t value, int32_t &total) {
  __shared__ int32_t of_warp[kWarps];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int32_t upto = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    int32_t other = __shfl_up_sync(~0u, upto, d);
    if (lane >= d)
      upto += other;
  }
  if (lane == 31)
    of_warp[warp] = upto;
  __syncthreads();
  int32_t theirs = lane < kWarps ? of_warp[lane] : 0;
  total = __reduce_add_sync(~0u, theirs);
  return __reduce_add_sync(~0u, lane < warp ? theirs : 0) + upto - value;
}

__device__ __forceinline__ int32_t largest_of(int32_t value) {
  __shared__ int32_t of_warp[kWarps];
  int lane = threadIdx.x & 31;
  int32_t largest = __reduce_max_sync(~0u, value);
  if (lane == 0)
    of_warp[threadIdx.x >> 5] = largest;
  __syncthreads();
  largest = __reduce_max_sync(~0u, lane < kWarps ? of_warp[lane] : 0);
  __syncthreads();
  return largest;
}

__device__ __forceinline__ void write_sums(const cgr__block_table_args &a, const cgr__block_table_stretch &s,
                                           const cgr__block_table_arrays &at) {
  const cgr__block_table_task &t = a.task;
  int32_t each = (t.num_requests + kThreads - 1) / kThreads, first = (int32_t)threadIdx.x * each;
  int32_t len[kEach], own = 0, total;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    bool is_there = k < each && first + k < t.num_requests;
    len[k] = is_there ? cgr__block_table_len(&t, &s, first + k) : 0;
    own += len[k];
  }
  int32_t before = sum_before(own, total);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t j = first + k;
    if (k >= each || j >= t.num_requests)
      continue;
    a.memory[at.seq_lens + j] = len[k];
    a.memory[at.kv_start_loc + j] = before;
    before += len[k];
  }
  for (int32_t j = (int32_t)threadIdx.x; j <= t.num_requests; j += kThreads)
    a.memory[at.query_start_loc + j] = cgr__block_table_query_start(&t, &s, j);
  if (threadIdx.x == 0)
    a.memory[at.kv_start_loc + t.num_requests] = total;
  /* Between the arrays, up to multiples of 16 bytes. */
  int64_t ends[4] = { at.table + (int64_t)t.num_requests * t.max_pages, at.seq_lens + t.num_requests,
                      at.query_start_loc + t.num_requests + 1, at.kv_start_loc + t.num_requests + 1 };
  if (threadIdx.x < 16) {
    int64_t end = ends[threadIdx.x >> 2], place = end + (threadIdx.x & 3);
    if (place < cgr__block_table_rounded(end))
      a.memory[place] = 0;
  }
}

/* The most query tokens of a request, and the longest sequence, each read again: only mixed batches have counts. */
__device__ __forceinline__ void write_counts(const cgr__block_table_task &t, const cgr__block_table_stretch &s, int32_t *counts) {
  int32_t tokens = 0, longest = 0;
  for (int32_t j = (int32_t)threadIdx.x; j < t.num_requests; j += kThreads) {
    tokens = max(tokens, cgr__block_table_query_start(&t, &s, j + 1) - cgr__block_table_query_start(&t, &s, j));
    longest = max(longest, cgr__block_table_len(&t, &s, j));
  }
  tokens = largest_of(tokens);
  longest = largest_of(longest);
  if (threadIdx.x != 0)
    return;
  counts[0] = s.end - s.first;
  counts[1] = t.query_start_loc[s.end] - t.query_start_loc[s.first];
  counts[2] = tokens;
  counts[3] = longest;
}

__device__ __forceinline__ void write_row(const cgr__block_table_args &a, const cgr__block_table_stretch &s,
                                          const cgr__block_table_arrays &at, int32_t j) {
  const cgr__block_table_task &t = a.task;
  int32_t pages = cgr__block_table_pages(&t, cgr__block_table_len(&t, &s, j));
  const int32_t *from = t.page_table + (pages > 0 ? t.rows[s.first + j] * t.page_table_stride : 0);
  int32_t *to = a.memory + at.table + (int64_t)j * t.max_pages;
  for (int32_t base = (int32_t)threadIdx.x; base < t.max_pages; base += kDeep * kThreads) {
    int32_t page[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; k++) {
      int32_t p = base + k * kThreads;
      page[k] = p < pages ? from[cgr__block_table_index(&t, p)] : 0;
    }
#pragma unroll
    for (int k = 0; k < kDeep; k++) {
      int32_t p = base + k * kThreads;
      if (p < t.max_pages)
        to[p] = p < pages ? cgr__block_table_page(&t, page[k], p) : cgr__block_table_padding(&t);
    }
  }
}

__global__ void __launch_bounds__(kThreads) block_table_kernel(const __grid_constant__ cgr__block_table_args a) {
  const cgr__block_table_places at = cgr__block_table_locate(&a.task);
  const cgr__block_table_stretch s = find_stretch(a.task, (int32_t)blockIdx.y);
  const cgr__block_table_arrays arrays = blockIdx.y == 0 ? at.of[0] : at.of[1];
  if (blockIdx.x > 0) {
    write_row(a, s, arrays, (int32_t)blockIdx.x - 1);
    return;
  }
  write_sums(a, s, arrays);
  if (a.task.has_prefills)
    write_counts(a.task, s, a.memory + at.counts + blockIdx.y * CGR__BLOCK_TABLE_COUNTS);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_block_table(const void *args, cudaStream_t stream) {
  const cgr__block_table_args *a = static_cast<const cgr__block_table_args *>(args);
  if (a->task.num_requests < 1 || a->task.num_requests > CGR__MAX_REQUESTS || a->task.kernel_page_size < 1 ||
      a->task.pages_each < 1)
    return (int)cudaErrorInvalidValue;
  dim3 grid((unsigned)a->task.num_requests + 1, a->task.has_prefills ? CGR__BLOCK_TABLE_STRETCHES : 1);
  return cgr::launch(cgr::block_table_kernel, args, grid, dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_block_table_preload(void) { return cgr::preload(cgr::block_table_kernel, 0); }

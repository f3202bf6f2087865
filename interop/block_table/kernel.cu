/* The block table (interop/block_table/format.h): a block for each request's row of pages, and the first one for lengths
 * and sums. */
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

__device__ __forceinline__ int32_t count_live(const cgr__block_table_task &t) {
  return cgr__block_table_live(&t, t.live_requests != nullptr ? *t.live_requests : t.num_requests);
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

__device__ __forceinline__ void write_sums(const cgr__block_table_args &a) {
  const cgr__block_table_task &t = a.task;
  const cgr__block_table_places at = cgr__block_table_locate(&t);
  int32_t each = (t.num_requests + kThreads - 1) / kThreads, first = (int32_t)threadIdx.x * each;
  int32_t live = count_live(t), len[kEach], own = 0, total;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t i = first + k;
    bool is_there = k < each && i < t.num_requests;
    len[k] = is_there ? cgr__block_table_len(&t, t.rows[i], t.seq_lens[i]) : 0;
    if (i >= live)
      len[k] = 0;
    own += len[k];
  }
  int32_t before = sum_before(own, total);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t i = first + k;
    if (k >= each || i >= t.num_requests)
      continue;
    a.memory[at.seq_lens + i] = len[k];
    a.memory[at.kv_start_loc + i] = before;
    before += len[k];
  }
  for (int32_t i = (int32_t)threadIdx.x; i <= t.num_requests; i += kThreads)
    a.memory[at.query_start_loc + i] = t.query_start_loc[min(i, live)];
  if (threadIdx.x == 0)
    a.memory[at.kv_start_loc + t.num_requests] = total;
  /* Between the arrays, up to multiples of 16 bytes. */
  int64_t ends[4] = { (int64_t)t.num_requests * t.max_pages, at.seq_lens + t.num_requests,
                      at.query_start_loc + t.num_requests + 1, at.kv_start_loc + t.num_requests + 1 };
  if (threadIdx.x < 16) {
    int64_t end = ends[threadIdx.x >> 2], place = end + (threadIdx.x & 3);
    if (place < cgr__block_table_rounded(end))
      a.memory[place] = 0;
  }
}

__device__ __forceinline__ void write_row(const cgr__block_table_args &a, int32_t i) {
  const cgr__block_table_task &t = a.task;
  int32_t row = t.rows[i], seq_len = t.seq_lens[i], live = count_live(t);
  int32_t pages = i < live ? cgr__block_table_pages(&t, cgr__block_table_len(&t, row, seq_len)) : 0;
  const int32_t *from = t.page_table + (pages > 0 ? row * t.page_table_stride : 0);
  int32_t *to = a.memory + (int64_t)i * t.max_pages;
  for (int32_t base = (int32_t)threadIdx.x; base < t.max_pages; base += kDeep * kThreads) {
    int32_t page[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      page[k] = base + k * kThreads < pages ? from[base + k * kThreads] : t.read_trash_page;
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      if (base + k * kThreads < t.max_pages)
        to[base + k * kThreads] = cgr__block_table_page(&t, page[k]);
  }
}

__global__ void __launch_bounds__(kThreads) block_table_kernel(const __grid_constant__ cgr__block_table_args a) {
  if (blockIdx.x == 0)
    write_sums(a);
  else
    write_row(a, (int32_t)blockIdx.x - 1);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_block_table(const void *args, cudaStream_t stream) {
  const cgr__block_table_args *a = static_cast<const cgr__block_table_args *>(args);
  if (a->task.num_requests < 1 || a->task.num_requests > CGR__MAX_REQUESTS || a->task.page_size < 1)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::block_table_kernel, args, dim3((unsigned)a->task.num_requests + 1), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_block_table_preload(void) { return cgr::preload(cgr::block_table_kernel, 0); }

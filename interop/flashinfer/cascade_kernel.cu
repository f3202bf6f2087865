/* Two levels for prefixes that requests share (interop/flashinfer/cascade.c is the same on the host). Every block reads
 * the whole batch and sums it up in shared memory; the first one writes the arrays, all of them copy pages. */
#include "base/limits.h"
#include "cgr/interop/flashinfer.h"
#include "devices/cuda/launch.cuh"
#include "interop/launchers.h"
#include "interop/formats.h"

namespace cgr {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kMostBlocks = 64;
constexpr int32_t kNone = 0x7fffffff;

/* In shared memory: [B + 1], [G + 1], [G], [G]; sums of both levels [B + 1], [G + 1]. first: of a group, the first request that
 * has pages. Anything may stand in kv after the live requests. */
struct Batch {
  int32_t *kv, *start, *prefix, *first, *unique, *shared;
  int32_t live;
};

/* Requests from `live` on are padding, which has none. */
__device__ int32_t pages_of(const Batch &b, int32_t i) { return i < b.live ? b.kv[i + 1] - b.kv[i] : 0; }

__host__ __device__ constexpr size_t shared_words(int32_t requests, int32_t groups) {
  return 2 * ((size_t)requests + 1) + 2 * ((size_t)groups + 1) + 2 * (size_t)groups;
}

__device__ Batch place(int32_t *words, int32_t requests, int32_t groups) {
  Batch b;
  b.kv = words;
  b.unique = b.kv + requests + 1;
  b.start = b.unique + requests + 1;
  b.shared = b.start + groups + 1;
  b.prefix = b.shared + groups + 1;
  b.first = b.prefix + groups;
  return b;
}

__device__ void load(const cgr_flashinfer_cascade &c, Batch &b) {
  int32_t live = c.live_requests ? *c.live_requests : c.num_requests; /* all loads at once: looked at later */
  for (int32_t i = (int32_t)threadIdx.x; i <= c.num_requests; i += kThreads)
    b.kv[i] = c.kv_indptr[i];
  for (int32_t g = (int32_t)threadIdx.x; g <= c.num_groups; g += kThreads)
    b.start[g] = c.group_start[g];
  for (int32_t g = (int32_t)threadIdx.x; g < c.num_groups; g += kThreads) {
    b.prefix[g] = c.prefix_pages[g];
    b.first[g] = kNone;
  }
  b.live = max(0, min(live, c.num_requests));
  __syncthreads();
}

/* The group of a request, by bisection: the last that begins at it or before. Never outside, whatever the array holds. */
__device__ int32_t group_of(const cgr_flashinfer_cascade &c, const Batch &b, int32_t i) {
  int32_t low = 0, high = c.num_groups;
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (b.start[middle] <= i)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Pages that request i shares with its group. */
__device__ int32_t shared_pages(const Batch &b, int32_t g, int32_t i) { return pages_of(b, i) > 0 ? b.prefix[g] : 0; }

__device__ bool request_is_good(const cgr_flashinfer_cascade &c, const Batch &b, int32_t i) {
  int32_t from = c.qo_indptr[i], end = c.qo_indptr[i + 1], last = c.kv_last_page_len[i];
  if (b.kv[i] < 0 || b.kv[i + 1] < b.kv[i] || from < 0 || end < from)
    return false;
  int32_t g = group_of(c, b, i), prefix = b.prefix[g], pages = b.kv[i + 1] - b.kv[i], rows = end - from;
  if (prefix < 0 || (pages > 0 && (last < 1 || last > c.page_size)))
    return false;
  int64_t before = pages == 0 ? 0 : ((int64_t)pages - 1) * c.page_size + last - rows;
  if (pages > 0)
    atomicMin(&b.first[g], i);
  return prefix == 0 || (pages == 0 && rows == 0) || (int64_t)prefix * c.page_size <= before;
}

__device__ bool batch_is_good(const cgr_flashinfer_cascade &c, const Batch &b) {
  bool good = b.kv[0] == 0 && c.qo_indptr[0] == 0 && (!c.kv_indices || b.kv[b.live] <= c.max_indices);
  for (int32_t g = (int32_t)threadIdx.x; g < c.num_groups; g += kThreads)
    good &= b.start[g] <= b.start[g + 1] && b.prefix[g] >= 0;
  good &= b.start[0] == 0 && b.start[c.num_groups] >= b.live && b.start[c.num_groups] <= c.num_requests;
  for (int32_t i = (int32_t)threadIdx.x; i < b.live; i += kThreads)
    good &= request_is_good(c, b, i);
  return __syncthreads_and(good);
}

/* Running sums from 0 of what `value` gives for each of `count`. Ends with a barrier. */
template <typename Value> __device__ void sum_up(int32_t *sums, int32_t count, int32_t (&of_warp)[kWarps], Value value) {
  int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  int32_t each = (count + kThreads - 1) / kThreads, first = (int32_t)threadIdx.x * each, own = 0;
  for (int32_t k = 0; k < each && first + k < count; k++)
    own += value(first + k);
  int32_t upto = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    int32_t other = __shfl_up_sync(~0u, upto, d);
    upto += lane >= d ? other : 0;
  }
  if (lane == 31)
    of_warp[warp] = upto;
  __syncthreads();
  int32_t before = __reduce_add_sync(~0u, lane < warp ? of_warp[lane] : 0) + upto - own;
  for (int32_t k = 0; k < each && first + k < count; k++) {
    sums[first + k] = before;
    before += value(first + k);
    if (first + k == count - 1)
      sums[count] = before;
  }
  __syncthreads();
}

/* Whether the requests of each group begin with the same pages; each warp looks at some of them. */
__device__ bool pages_agree(const cgr_flashinfer_cascade &c, const Batch &b) {
  bool agree = true;
  for (int32_t i = (int32_t)threadIdx.x / 32; c.kv_indices && i < c.num_requests; i += kWarps) {
    int32_t g = group_of(c, b, i), count = shared_pages(b, g, i);
    const int32_t *pages = c.kv_indices + b.kv[i], *others = c.kv_indices + (count > 0 ? b.kv[b.first[g]] : 0);
    for (int32_t k = (int32_t)threadIdx.x & 31; k < count; k += 32)
      agree &= pages[k] == others[k];
  }
  return __syncthreads_and(agree);
}

__device__ void write(const cgr_flashinfer_cascade &c, const Batch &b, bool good) {
  for (int32_t g = (int32_t)threadIdx.x; g <= c.num_groups; g += kThreads) {
    c.shared_qo_indptr[g] = good ? c.qo_indptr[min(b.start[g], b.live)] : 0;
    c.shared_kv_indptr[g] = good ? b.shared[g] : 0;
    if (g < c.num_groups)
      c.shared_last_page_len[g] = good && b.shared[g + 1] > b.shared[g] ? c.page_size : 1;
  }
  for (int32_t i = (int32_t)threadIdx.x; i <= c.num_requests; i += kThreads) {
    c.unique_kv_indptr[i] = good ? b.unique[i] : 0;
    if (i < c.num_requests)
      c.unique_last_page_len[i] = good && b.unique[i + 1] > b.unique[i] ? c.kv_last_page_len[i] : 1;
  }
  if (threadIdx.x == 0 && c.status)
    *c.status = good ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT;
}

/* By a warp. */
__device__ void copy(int32_t *to, const int32_t *from, int32_t count) {
  constexpr int kDeep = 4;
  for (int32_t base = (int32_t)threadIdx.x & 31; base < count; base += 32 * kDeep) {
    int32_t page[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      page[k] = base + 32 * k < count ? from[base + 32 * k] : 0;
#pragma unroll
    for (int k = 0; k < kDeep; k++)
      if (base + 32 * k < count)
        to[base + 32 * k] = page[k];
  }
}

__device__ void copy_pages(const cgr_flashinfer_cascade &c, const Batch &b) {
  int32_t items = c.num_requests + c.num_groups;
  for (int32_t item = (int32_t)(blockIdx.x * kWarps + threadIdx.x / 32); item < items; item += (int32_t)gridDim.x * kWarps) {
    int32_t i = item, g = item - c.num_requests;
    if (g < 0 && i < b.live)
      copy(c.unique_kv_indices + b.unique[i], c.kv_indices + b.kv[i + 1] - (b.unique[i + 1] - b.unique[i]),
           b.unique[i + 1] - b.unique[i]);
    else if (g >= 0 && b.shared[g + 1] > b.shared[g])
      copy(c.shared_kv_indices + b.shared[g], c.kv_indices + b.kv[b.first[g]], b.shared[g + 1] - b.shared[g]);
  }
}

__global__ void __launch_bounds__(kThreads, 1) cascade_kernel(const __grid_constant__ cgr_flashinfer_cascade c) {
  extern __shared__ int32_t words[];
  __shared__ int32_t of_warp[2][kWarps];
  Batch b = place(words, c.num_requests, c.num_groups);
  load(c, b);
  bool good = batch_is_good(c, b);
  if (good) {
    sum_up(b.unique, c.num_requests, of_warp[0],
           [&](int32_t i) { return pages_of(b, i) - shared_pages(b, group_of(c, b, i), i); });
    sum_up(b.shared, c.num_groups, of_warp[1], [&](int32_t g) { return b.first[g] == kNone ? 0 : b.prefix[g]; });
  }
  if (good && c.kv_indices)
    copy_pages(c, b);
  if (blockIdx.x == 0)
    write(c, b, good && pages_agree(c, b));
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_cascade(const void *args, cudaStream_t stream) {
  const cgr_flashinfer_cascade *c = static_cast<const cgr_flashinfer_cascade *>(args);
  if (c->num_requests < 1 || c->num_requests > CGR__MAX_REQUESTS || c->num_groups < 1 || c->num_groups > CGR__MAX_REQUESTS)
    return (int)cudaErrorInvalidValue;
  int32_t blocks = c->kv_indices ? (c->num_requests + c->num_groups + cgr::kWarps - 1) / cgr::kWarps : 1;
  dim3 grid((unsigned)(blocks < cgr::kMostBlocks ? blocks : cgr::kMostBlocks));
  size_t bytes = cgr::shared_words(c->num_requests, c->num_groups) * sizeof(int32_t);
  return cgr::launch(cgr::cascade_kernel, args, grid, dim3(cgr::kThreads), bytes, stream);
}

extern "C" int cgr__cuda_cascade_preload(void) {
  return cgr::preload(cgr::cascade_kernel, cgr::shared_words(CGR__MAX_REQUESTS, CGR__MAX_REQUESTS) * sizeof(int32_t));
}

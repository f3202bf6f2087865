/* FlashInfer's plans (planners/families/flashinfer.h), with a graph: the host planner's arithmetic.
 *
 * A block has the whole batch in registers, at most kEach neighbouring requests for each thread, read in one go. It sums the batch
 * (one barrier), looks for the chunk size (one barrier for each round; kProbes sizes are tried at once, so that a round leaves a
 * quarter of the range), sums tiles and rows before each request (one barrier), leaves them in shared memory (one barrier), and
 * writes: every tile and every row finds its request by a binary search. Blocks do all but the writing alike, each for itself:
 * so more of them share the writes of a large plan without waiting for each other. */
#include "base/limits.h"
#include "cgr/base.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/step/access.cuh"
#include "kernels/families/families.h"

namespace cgr {
namespace {

constexpr int kMinThreads = 256, kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32;
constexpr int kEach = CGR__MAX_REQUESTS / kMaxThreads;
constexpr int kProbes = 3;
constexpr int kMaxBlocks = 64;

static_assert(kEach * kMaxThreads == CGR__MAX_REQUESTS, "a block has every request");

/* Dynamic shared memory, [requests + 1] each: what comes before each request, and at last the sums. */
struct Before {
  int32_t *tiles, *rows, *partials, *chunks;
};
__host__ __device__ inline size_t before_bytes(int32_t requests) { return ((size_t)requests + 1) * 4 * sizeof(int32_t); }

/* A thread's own requests. */
struct Own {
  int32_t first, count;
  int32_t rows[kEach], kv[kEach], q_tiles[kEach];
};

/* --------------------------------------------------------------------------------------------------------------- sums */

__device__ __forceinline__ int32_t sum_upto(int32_t value) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    int32_t other = __shfl_up_sync(~0u, value, d);
    if ((int)(threadIdx.x & 31) >= d)
      value += other;
  }
  return value;
}

/* Adds the lanes' 64-bit numbers, none negative, in limbs of 24 bits: 32 of them fit in 32 bits. */
__device__ __forceinline__ int64_t sum_lanes(int64_t value) {
  uint64_t v = (uint64_t)value, low = __reduce_add_sync(~0u, (uint32_t)v & 0xffffff);
  uint64_t middle = __reduce_add_sync(~0u, (uint32_t)(v >> 24) & 0xffffff), high = __reduce_add_sync(~0u, (uint32_t)(v >> 48));
  return (int64_t)(low + (middle << 24) + (high << 48));
}

/* n / d by a multiplication; `inverse` is ~0u / d, n less than 2^31, and the estimate at most one too small. */
__device__ __forceinline__ int32_t divide(uint32_t n, uint32_t d, uint32_t inverse) {
  uint32_t quotient = __umulhi(n, inverse);
  return (int32_t)(quotient + (n - quotient * d >= d));
}

/* What a warp has, for the others. */
struct WarpSums {
  int64_t total;
  int32_t weight, longest, bad, reserved;
};

/* ----------------------------------------------------------------------------------------------------------- requests */

/* Reads the thread's requests; returns whether one of them has lengths that no plan takes. */
__device__ __forceinline__ bool read_own(const cgr__flashinfer_args &a, Own &own) {
  const cgr__flashinfer_key &key = a.key;
  int32_t each = (key.num_requests + (int32_t)blockDim.x - 1) / (int32_t)blockDim.x;
  own.first = (int32_t)threadIdx.x * each;
  own.count = max(0, min(each, key.num_requests - own.first));
  int32_t qo[kEach + 1], kv[kEach + 1];
#pragma unroll
  for (int k = 0; k <= kEach; k++) {
    bool there = own.count > 0 && k <= own.count;
    qo[k] = there && a.qo_indptr ? load_early(a.qo_indptr + own.first + k) : 0;
    kv[k] = there ? load_early(a.kv_indptr + own.first + k) : 0;
  }
  int32_t live = a.live_requests ? load_early(a.live_requests) : key.num_requests;
  bool bad = a.qo_indptr && threadIdx.x == 0 && live > 0 && qo[0] != 0;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t rows = a.qo_indptr ? 0 : key.uniform_rows, pages = 0;
    bool there = k < own.count, is_live = there && own.first + k < live;
    if (is_live && a.qo_indptr) {
      bool fits = cgr__flashinfer_rows_fit(&key, qo[k], qo[k + 1]);
      bad |= !fits;
      rows = fits ? qo[k + 1] - qo[k] : 0;
    }
    if (is_live) {
      bool fits = cgr__flashinfer_pages_fit(&key, kv[k], kv[k + 1]);
      bad |= !fits;
      pages = fits ? kv[k + 1] - kv[k] : 0;
    }
    own.rows[k] = there ? rows : 0;
    own.q_tiles[k] = there ? cgr__flashinfer_q_tiles(&key, rows) : 0;
    own.kv[k] = cgr__flashinfer_kv(&key, pages);
  }
  return bad;
}

/* Sums the batch. The lengths that fit make less than 2^31 q tiles; with others the sums mean nothing, and `bad` says so. */
__device__ __forceinline__ cgr__flashinfer_sums sum_batch(const Own &own, bool &bad) {
  __shared__ __align__(16) WarpSums of_warp[kMaxWarps];
  int lane = threadIdx.x & 31, warps = blockDim.x / 32;
  int64_t total = 0;
  int32_t weight = 0, longest = 1;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    total += (int64_t)own.q_tiles[k] * own.kv[k];
    weight += own.q_tiles[k];
    longest = max(longest, own.kv[k]);
  }
  WarpSums sums = { sum_lanes(total), __reduce_add_sync(~0u, weight), __reduce_max_sync(~0u, longest), __any_sync(~0u, bad), 0 };
  if (lane == 0)
    of_warp[threadIdx.x >> 5] = sums;
  __syncthreads();
  sums = { 0, 0, 1, 0, 0 };
  if (lane < warps)
    sums = of_warp[lane];
  bad = __any_sync(~0u, sums.bad);
  return { (int64_t)__reduce_add_sync(~0u, sums.weight), sum_lanes(sums.total), __reduce_max_sync(~0u, sums.longest) };
}

/* The smallest chunk of the range that makes no more than max_tiles tiles, or its last. */
__device__ __forceinline__ int32_t search_chunk(const cgr__flashinfer_key &key, const Own &own, cgr__flashinfer_range range) {
  __shared__ int32_t of_warp[2][kProbes][kMaxWarps]; /* in turn: a fast warp writes the next round's while a slow one reads */
  int lane = threadIdx.x & 31, warps = blockDim.x / 32;
  for (int turn = 0; range.low < range.high; turn ^= 1) {
    uint32_t span = (uint32_t)(range.high - range.low);
    int32_t mine = range.low + (int32_t)((uint64_t)span * (uint32_t)(lane % kProbes + 1) / (kProbes + 1)); /* below high */
    uint32_t inverse = ~0u / (uint32_t)mine; /* each lane divides for one probe */
    int32_t probes[kProbes], counts[kProbes];
#pragma unroll
    for (int p = 0; p < kProbes; p++) {
      uint32_t own_inverse = __shfl_sync(~0u, inverse, p);
      probes[p] = __shfl_sync(~0u, mine, p);
      int32_t tiles = 0;
#pragma unroll
      for (int k = 0; k < kEach; k++)
        tiles += own.q_tiles[k] * (divide((uint32_t)own.kv[k] - 1, (uint32_t)probes[p], own_inverse) + 1);
      counts[p] = __reduce_add_sync(~0u, tiles);
    }
    if (lane == 0)
      for (int p = 0; p < kProbes; p++)
        of_warp[turn][p][threadIdx.x >> 5] = counts[p];
    __syncthreads();
    int32_t low = range.low, high = range.high;
#pragma unroll
    for (int p = kProbes - 1; p >= 0; p--) {
      int32_t tiles = __reduce_add_sync(~0u, lane < warps ? of_warp[turn][p][lane] : 0);
      if (tiles <= key.max_tiles)
        high = probes[p];
      else
        low = max(low, probes[p] + 1);
    }
    range.low = low;
    range.high = high;
  }
  return range.low;
}

/* Whether chunks of a fixed size make no more tiles than the graph has. */
__device__ __forceinline__ bool tiles_fit(const cgr__flashinfer_key &key, const Own &own, int32_t chunk) {
  __shared__ int64_t of_warp[kMaxWarps];
  int lane = threadIdx.x & 31, warps = blockDim.x / 32;
  int64_t tiles = 0;
#pragma unroll
  for (int k = 0; k < kEach; k++)
    tiles += min((int64_t)own.q_tiles[k] * cgr__flashinfer_chunks(own.kv[k], chunk), (int64_t)1 << 40);
  tiles = sum_lanes(tiles);
  if (lane == 0)
    of_warp[threadIdx.x >> 5] = tiles;
  __syncthreads();
  return sum_lanes(lane < warps ? of_warp[lane] : 0) <= key.tiles;
}

/* Leaves in shared memory what comes before each request. The caller synchronises before it reads. */
__device__ __forceinline__ void sum_before(const cgr__flashinfer_key &key, const Own &own, int32_t chunk, const Before &before) {
  __shared__ int32_t of_warp[3][kMaxWarps];
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x / 32;
  int32_t chunks[kEach], sums[3] = { 0, 0, 0 };
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    chunks[k] = cgr__flashinfer_chunks(own.kv[k], chunk);
    sums[0] += own.q_tiles[k] * chunks[k];
    sums[1] += own.rows[k];
    sums[2] += own.rows[k] * chunks[k];
  }
  int32_t at[3];
#pragma unroll
  for (int s = 0; s < 3; s++) {
    int32_t upto = sum_upto(sums[s]);
    at[s] = upto - sums[s];
    if (lane == 31)
      of_warp[s][warp] = upto;
  }
  __syncthreads();
#pragma unroll
  for (int s = 0; s < 3; s++)
    at[s] += __reduce_add_sync(~0u, lane < warp && lane < warps ? of_warp[s][lane] : 0);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    if (k >= own.count)
      break;
    int32_t i = own.first + k;
    before.tiles[i] = at[0];
    before.rows[i] = at[1];
    before.partials[i] = at[2];
    before.chunks[i] = chunks[k];
    at[0] += own.q_tiles[k] * chunks[k];
    at[1] += own.rows[k];
    at[2] += own.rows[k] * chunks[k];
    if (i == key.num_requests - 1) {
      before.tiles[i + 1] = at[0];
      before.rows[i + 1] = at[1];
      before.partials[i + 1] = at[2];
    }
  }
}

/* -------------------------------------------------------------------------------------------------------------- writes */

/* The words of the workspace from one offset to another, shared out among all threads of the launch. */
struct Words {
  int32_t *first;
  int32_t count;
};
__device__ __forceinline__ Words words_of(const cgr__flashinfer_args &a, int64_t begin, int64_t end) {
  return { reinterpret_cast<int32_t *>(a.int_workspace + begin), (int32_t)((end - begin) / 4) };
}
__device__ __forceinline__ int32_t first_of_thread() { return (int32_t)(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ __forceinline__ int32_t stride_of_threads() { return (int32_t)(gridDim.x * blockDim.x); }

/* The request that number i belongs to: before[r] <= i < before[r + 1]. */
__device__ __forceinline__ int32_t find_request(const int32_t *before, int32_t num_requests, int32_t i) {
  int32_t low = 0, high = num_requests;
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (before[middle] <= i)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The arrays of tiles, with what lies between them. */
__device__ __forceinline__ void write_tiles(const cgr__flashinfer_args &a, const Before &before, int32_t num_tiles) {
  const cgr__flashinfer_layout &at = a.key.at;
  int64_t after_requests = a.key.decode ? at.kv_tile_indices : at.q_tile_indices;
  Words requests = words_of(a, at.request_indices, after_requests), kv_tiles = words_of(a, at.kv_tile_indices, at.o_indptr);
  Words q_tiles = a.key.decode ? Words{ nullptr, 0 } : words_of(a, at.q_tile_indices, at.kv_tile_indices);
  for (int32_t t = first_of_thread(); t < requests.count; t += stride_of_threads()) {
    int32_t request = 0, q_tile = 0, kv_tile = 0;
    if (t < num_tiles) {
      request = find_request(before.tiles, a.key.num_requests, t);
      int32_t own = t - before.tiles[request], chunks = before.chunks[request];
      q_tile = own / chunks;
      kv_tile = own - q_tile * chunks;
    }
    requests.first[t] = request;
    kv_tiles.first[t] = kv_tile;
    if (q_tiles.first)
      q_tiles.first[t] = q_tile;
  }
}

/* o_indptr, and the words after it up to the next array: the chunk size, and the number of rows. */
__device__ __forceinline__ void write_requests(const cgr__flashinfer_args &a, const Before &before, int32_t chunk_word,
                                               int32_t num_rows, bool good) {
  const cgr__flashinfer_layout &at = a.key.at;
  int64_t end = at.merge_indptr >= 0 ? at.merge_indptr : at.valid_mask >= 0 ? at.valid_mask : at.bytes;
  Words words = words_of(a, at.o_indptr, end);
  int32_t chunk_at = (int32_t)((at.kv_chunk_size - at.o_indptr) / 4);
  int32_t rows_at = at.total_num_rows >= 0 ? (int32_t)((at.total_num_rows - at.o_indptr) / 4) : -1;
  for (int32_t i = first_of_thread(); i < words.count; i += stride_of_threads()) {
    int32_t word = 0;
    if (i == chunk_at)
      word = chunk_word;
    else if (i == rows_at)
      word = num_rows;
    else if (good && i <= a.key.num_requests)
      word = before.partials[i];
    words.first[i] = word;
  }
}

/* merge_indptr, up to the mask. */
__device__ __forceinline__ void write_rows(const cgr__flashinfer_args &a, const Before &before, int32_t num_rows, bool good) {
  Words words = words_of(a, a.key.at.merge_indptr, a.key.at.valid_mask);
  for (int32_t row = first_of_thread(); row < words.count; row += stride_of_threads()) {
    int32_t word = 0;
    if (good && row < num_rows) {
      int32_t request = find_request(before.rows, a.key.num_requests, row);
      word = before.partials[request] + (row - before.rows[request]) * before.chunks[request];
    } else if (good && row == num_rows) {
      word = before.partials[a.key.num_requests];
    }
    words.first[row] = word;
  }
}

/* block_valid_mask, a word at a time as far as whole words go. */
__device__ __forceinline__ void write_mask(const cgr__flashinfer_args &a, int32_t num_tiles) {
  Words words = words_of(a, a.key.at.valid_mask, a.key.at.bytes);
  for (int32_t i = first_of_thread(); i < words.count; i += stride_of_threads()) {
    int32_t valid = min(4, max(0, num_tiles - 4 * i));
    words.first[i] = valid == 0 ? 0 : 0x01010101 >> 8 * (4 - valid);
  }
  unsigned char *mask = a.int_workspace + a.key.at.valid_mask;
  for (int32_t t = 4 * words.count + first_of_thread(); t < a.key.tiles; t += stride_of_threads())
    mask[t] = t < num_tiles;
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

__global__ void __launch_bounds__(kMaxThreads) flashinfer_kernel(const __grid_constant__ cgr__flashinfer_args a) {
  extern __shared__ __align__(16) int32_t memory[];
  const cgr__flashinfer_key &key = a.key;
  int32_t n = key.num_requests + 1;
  Before before = { memory, memory + n, memory + 2 * n, memory + 3 * n };
  Own own;
  bool bad = read_own(a, own);
  cgr__flashinfer_sums sums = sum_batch(own, bad);
  int32_t chunk = 1;
  if (!bad) {
    chunk = search_chunk(key, own, cgr__flashinfer_chunk_range(&key, &sums));
    if (key.mode == CGR__FLASHINFER_FIXED)
      bad = !tiles_fit(key, own, chunk);
  }
  int32_t num_tiles = 0, num_rows = 0, chunk_word = 0;
  if (!bad) { /* the same for all threads */
    sum_before(key, own, chunk, before);
    __syncthreads();
    num_tiles = before.tiles[key.num_requests];
    num_rows = before.rows[key.num_requests];
    chunk_word = cgr__flashinfer_chunk_word(&key, chunk, sums.longest);
  }
  write_tiles(a, before, num_tiles);
  write_requests(a, before, chunk_word, num_rows, !bad);
  if (key.at.merge_indptr >= 0)
    write_rows(a, before, num_rows, !bad);
  if (key.at.valid_mask >= 0)
    write_mask(a, num_tiles);
  if (a.status && first_of_thread() == 0)
    *a.status = bad ? CGR_ERROR_INVALID_ARGUMENT : CGR_OK;
}

unsigned threads_of(const cgr__flashinfer_key &key) {
  int32_t threads = (key.num_requests + kEach - 1) / kEach;
  return (unsigned)(threads <= kMinThreads ? kMinThreads : (threads + 31) / 32 * 32);
}

/* As many as give each thread one tile and one row, up to a limit. */
unsigned blocks_of(const cgr__flashinfer_key &key) {
  int64_t words = key.at.merge_indptr >= 0 && key.total_rows > key.tiles ? key.total_rows : key.tiles;
  int64_t blocks = (words + threads_of(key) - 1) / threads_of(key);
  return (unsigned)(blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_flashinfer(const void *args, cudaStream_t stream) {
  const cgr__flashinfer_key &key = static_cast<const cgr__flashinfer_args *>(args)->key;
  if (key.num_requests < 1 || key.num_requests > CGR__MAX_REQUESTS || !key.graph)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::flashinfer_kernel, args, dim3(cgr::blocks_of(key)), dim3(cgr::threads_of(key)),
                     cgr::before_bytes(key.num_requests), stream);
}

extern "C" int cgr__cuda_flashinfer_preload(void) {
  return cgr::preload(cgr::flashinfer_kernel, cgr::before_bytes(CGR__MAX_REQUESTS));
}

/* FlashAttention-3's scheduler metadata (planners/families/fa3.h): the host planner's arithmetic. A block for each 992 requests,
 * one thread for each of those, and a few blocks besides that write zeros from the semaphore on. What it costs is latency: the
 * arrays are read in one go, then everything is in registers and shared memory.
 *
 * Sorting. Keys are 64-bit numbers that all differ, so that every sort gives the stable one. A thread ranks its key among the 32 of
 * its warp by counting; then runs of 32, 64, ... are merged, each thread finding its key's place in the other run by bisection: up
 * to 5 levels for 992 requests, none for 32. */
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/families/families.h"

namespace cgr {
namespace {

constexpr int kMaxThreads = CGR__FA3_CHUNK;
constexpr int kMinThreads = 128; /* for the zeros */
constexpr int kWarps = kMaxThreads / 32;
constexpr int kZeroBlocks = 16; /* at most */
constexpr int kZeroVectors = 4; /* of 16 bytes, that a thread writes while that is enough blocks */

static_assert(kMaxThreads % 32 == 0 && kWarps <= 32, "one warp adds what all have left");
static_assert(CGR__FA3_CHUNK % 4 == 0, "a rounded vector ends in its chunk");
static_assert(sizeof(cgr__fa3_request) == 16, "requests are read in one piece");

struct Shared {
  cgr__fa3_request requests[kMaxThreads]; /* first, for its alignment */
  uint64_t keys[2][kMaxThreads];
  int64_t tiles[kWarps];
};

__device__ __forceinline__ int64_t sum_warp(int64_t value) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    value += __shfl_xor_sync(~0u, (long long)value, d);
  return value;
}

/* The sum over the block, for all threads. */
__device__ __forceinline__ int64_t sum_block(int64_t value, int64_t (&of_warp)[kWarps]) {
  int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  value = sum_warp(value);
  if (lane == 0)
    of_warp[warp] = value;
  __syncthreads();
  return sum_warp(lane < (int)blockDim.x / 32 ? of_warp[lane] : 0);
}

/* How many of the 32 keys from `keys` on are smaller. */
__device__ __forceinline__ int count_smaller(const uint64_t *keys, uint64_t own) {
  int count = 0;
#pragma unroll
  for (int i = 0; i < 32; i++)
    count += keys[i] < own;
  return count;
}

/* How many of the keys [begin, end), which rise, are smaller. */
__device__ __forceinline__ int bisect(const uint64_t *keys, int begin, int end, uint64_t own) {
  int low = begin;
  while (low < end) {
    int middle = (low + end) / 2;
    if (keys[middle] < own)
      low = middle + 1;
    else
      end = middle;
  }
  return low - begin;
}

/* Sorts the keys of the first `count` threads, whole warps, and returns the one at the thread's place; the other threads
 * get their own back. The whole block takes part, and between the call and the return there is a barrier. */
__device__ __forceinline__ uint64_t sort_keys(Shared &s, uint64_t own, int count) {
  int t = (int)threadIdx.x, first = t & ~31, now = 1;
  s.keys[0][t] = own;
  __syncwarp();
  s.keys[1][first + count_smaller(s.keys[0] + first, own)] = own;
  __syncthreads();
  for (int width = 32; width < count; width *= 2, now ^= 1) {
    if (t < count) {
      int run = t & ~(width - 1), other = run ^ width; /* where they begin; the last may be short, or alone */
      own = s.keys[now][t];
      int smaller = other < count ? bisect(s.keys[now], other, min(other + width, count), own) : 0;
      s.keys[now ^ 1][min(run, other) + (t - run) + smaller] = own;
    }
    __syncthreads();
  }
  return s.keys[now][t];
}

__device__ __forceinline__ void plan_chunk(const cgr__fa3_args &a, Shared &s, int first) {
  const cgr__fa3_class &c = a.c;
  int t = (int)threadIdx.x, i = first + t;
  bool is_there = i < c.num_requests;
  /* All loads at once: whether a request is live is looked at later. */
  int32_t start = is_there ? a.query_start_loc[i] : 0, end = is_there ? a.query_start_loc[i + 1] : 0;
  int32_t seq_len = is_there ? a.seq_lens[i] : 0, live = a.live_requests ? *a.live_requests : c.num_requests;
  cgr__fa3_request r = cgr__fa3_read(&c, i, min(live, c.num_requests), start, end, seq_len);
  if (cgr__fa3_may_split(&c)) { /* the same for all threads */
    int64_t tiles = sum_block((int64_t)r.m * r.n, s.tiles);
    cgr__fa3_split(&c, cgr__fa3_blocks_per_sm(&c, tiles), &r);
  }
  int32_t request = i;
  if (c.sort) {
    s.requests[t] = r;
    uint64_t key = is_there ? cgr__fa3_sort_key(&c, &r, t) : ~(uint64_t)0 << 32 | (uint32_t)t; /* last */
    int count = min((c.num_requests - first + 31) / 32 * 32, kMaxThreads);
    int32_t number = cgr__fa3_sorted_number(sort_keys(s, key, count));
    r = s.requests[is_there ? number : t];
    request = first + number;
  }
  if (is_there)
    cgr__fa3_put(&c, a.metadata, i, request, &r);
  else if (i < cgr__fa3_rounded(c.num_requests)) /* of the last chunk */
    cgr__fa3_put_nothing(&c, a.metadata, i);
}

/* Words from the semaphore to the end: vectors of 4, and one more. */
__device__ __forceinline__ void put_zeros(const cgr__fa3_args &a, int block, int blocks) {
  int32_t vectors = (a.c.num_words - a.c.at_semaphore) / 4;
  int4 *to = reinterpret_cast<int4 *>(a.metadata + a.c.at_semaphore);
  for (int32_t v = block * (int)blockDim.x + (int)threadIdx.x; v < vectors; v += blocks * (int)blockDim.x)
    to[v] = make_int4(0, 0, 0, 0);
  if (block == 0 && threadIdx.x == 0)
    a.metadata[a.c.num_words - 1] = 0;
}

__host__ __device__ inline int num_chunks(int requests) { return (requests + CGR__FA3_CHUNK - 1) / CGR__FA3_CHUNK; }

__global__ void __launch_bounds__(kMaxThreads) fa3_kernel(const __grid_constant__ cgr__fa3_args a) {
  __shared__ __align__(16) Shared s;
  int chunks = num_chunks(a.c.num_requests), block = (int)blockIdx.x;
  if (block < chunks)
    plan_chunk(a, s, block * CGR__FA3_CHUNK);
  else
    put_zeros(a, block - chunks, (int)gridDim.x - chunks);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_fa3(const void *args, cudaStream_t stream) {
  const cgr__fa3_args *a = static_cast<const cgr__fa3_args *>(args);
  if (a->c.num_requests < 1 || a->c.num_words - a->c.at_semaphore < 1 || a->c.at_semaphore % 4 != 0 ||
      reinterpret_cast<uintptr_t>(a->metadata) % 16 != 0)
    return (int)cudaErrorInvalidValue;
  int requests = a->c.num_requests < cgr::kMaxThreads ? a->c.num_requests : cgr::kMaxThreads;
  int threads = requests < cgr::kMinThreads ? cgr::kMinThreads : (requests + 31) / 32 * 32;
  int zeros = ((a->c.num_words - a->c.at_semaphore) / 4 + threads * cgr::kZeroVectors - 1) / (threads * cgr::kZeroVectors);
  zeros = zeros < 1 ? 1 : zeros < cgr::kZeroBlocks ? zeros : cgr::kZeroBlocks;
  dim3 grid((unsigned)(cgr::num_chunks(a->c.num_requests) + zeros));
  return cgr::launch(cgr::fa3_kernel, args, grid, dim3((unsigned)threads), 0, stream);
}

extern "C" int cgr__cuda_fa3_preload(void) { return cgr::preload(cgr::fa3_kernel, 0); }

/* FlashAttention-3's scheduler metadata (interop/fa3/format.h): the host planner's arithmetic, one thread for each of 992
 * requests. Its cost is latency, and the instructions of so many threads: the arrays are read in one go, and then everything
 * is in registers and shared memory. A few more blocks write the zeros from the semaphore on.
 *
 * Sorting. A request's place is the number of those that come before it. Every block computes the keys of all 992 requests, and
 * counts for a share of them, 32 or 64: each warp among its own 32 keys, for one request a lane; the sum over the warps is the
 * place. So the comparisons of all with all are spread over many SMs, and there are three barriers however many requests. */
#include "devices/cuda/launch.cuh"
#include "interop/launchers.h"
#include "interop/formats.h"

namespace cgr {
namespace {

constexpr int kMaxThreads = CGR__FA3_CHUNK;
constexpr int kMinThreads = 128; /* for the zeros */
constexpr int kWarps = kMaxThreads / 32;
constexpr int kZeroBlocks = 16;    /* at most, without sorting */
constexpr int kZeroVectors = 4;    /* of 16 bytes, that a thread writes while that is enough blocks */
constexpr int kSortingBlocks = 96; /* at most: usually there are as many SMs */

static_assert(kMaxThreads % 32 == 0 && kWarps <= 32, "one warp adds what all have left");
static_assert(CGR__FA3_CHUNK % 4 == 0, "a rounded vector ends in its chunk");

struct Shared {
  int32_t keys[kMaxThreads]; /* first, for its alignment */
  int32_t places[kMaxThreads];
  uint64_t tiles[kWarps];
};

/* Adds the lanes' numbers below 2^59. Mostly they are small; else in limbs of 27 bits, of which 32 fit in 32 bits. */
__device__ __forceinline__ uint64_t sum_warp(uint64_t value) {
  if (!__any_sync(~0u, value >> 27 != 0))
    return __reduce_add_sync(~0u, (uint32_t)value);
  uint64_t low = __reduce_add_sync(~0u, (uint32_t)value & 0x7ffffff);
  uint64_t middle = __reduce_add_sync(~0u, (uint32_t)(value >> 27) & 0x7ffffff);
  uint64_t high = __reduce_add_sync(~0u, (uint32_t)(value >> 54));
  return low + (middle << 27) + (high << 54);
}

/* The sum over all `warps` warps, for all threads. Of tiles: below 2^52 for a request. */
__device__ __forceinline__ uint64_t sum_block(uint64_t value, uint64_t (&of_warp)[kWarps], int warps) {
  int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
  value = sum_warp(value);
  if (lane == 0)
    of_warp[warp] = value;
  __syncthreads();
  return sum_warp(lane < warps ? of_warp[lane] : 0);
}

/* Adds 1 if a < b. These comparisons are most of the work. In C, each takes three instructions of the integer units, which are
 * half as many as the float units; here it takes one of either, and such small numbers are exact. */
__device__ __forceinline__ void count_if_less(float &count, int32_t a, int32_t b) {
  asm("{ .reg .pred p; setp.lt.s32 p, %1, %2; @p add.f32 %0, %0, 0f3F800000; }" : "+f"(count) : "r"(a), "r"(b));
}
__device__ __forceinline__ void count_if_less(float &count, int64_t a, int64_t b) {
  asm("{ .reg .pred p; setp.lt.s64 p, %1, %2; @p add.f32 %0, %0, 0f3F800000; }" : "+f"(count) : "l"(a), "l"(b));
}

/* Calls count(i, key) for the warp's 32 keys. */
template <typename Count> __device__ __forceinline__ void for_keys_of_warp(const Shared &s, Count count) {
  const int4 *keys = reinterpret_cast<const int4 *>(s.keys + ((int)threadIdx.x & ~31));
#pragma unroll
  for (int i = 0; i < 32; i += 4) {
    int4 k = keys[i / 4];
    count(i, k.x), count(i + 1, k.y), count(i + 2, k.z), count(i + 3, k.w);
  }
}

__device__ __forceinline__ int64_t join(int32_t high, int32_t low) {
  return (int64_t)((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}

/* The place of the thread's key among all, equal keys in the order of the threads, if the warp is one of the block's share, of
 * `shares`; else -1. There are `warps` warps, which all take part. */
__device__ __forceinline__ int32_t find_place(Shared &s, int32_t key, int warps, int share, int shares) {
  int t = (int)threadIdx.x, lane = t & 31, warp = t >> 5;
  bool is_mine = false;
  s.keys[t] = key;
  s.places[t] = 0;
  __syncthreads();
  for (int w = share; w < warps; w += shares) { /* for the requests of warp w */
    int32_t of_lane = s.keys[32 * w + lane];
    float count = 0;
    if (w == warp) {
      is_mine = true;
      for_keys_of_warp(s, [&](int i, int32_t k) { count_if_less(count, join(k, i), join(of_lane, lane)); });
    } else {
      int32_t bound = of_lane + (warp < w); /* equal keys of an earlier warp come first */
      for_keys_of_warp(s, [&](int, int32_t k) { count_if_less(count, k, bound); });
    }
    atomicAdd(&s.places[32 * w + lane], (int)count);
  }
  __syncthreads();
  return is_mine ? s.places[t] : -1;
}

__device__ __forceinline__ void plan_chunk(const cgr__fa3_args &a, Shared &s, int first, int share, int shares) {
  const cgr__fa3_key &c = a.c;
  int t = (int)threadIdx.x, i = first + t, warps = (min(c.num_requests - first, kMaxThreads) + 31) / 32;
  if (t >= 32 * warps || share >= warps)
    return; /* barriers count the threads that are left */
  bool is_there = i < c.num_requests;
  /* All loads at once: whether a request is live is looked at later. */
  int32_t start = is_there ? a.query_start_loc[i] : 0, end = is_there ? a.query_start_loc[i + 1] : 0;
  int32_t seq_len = is_there ? a.seq_lens[i] : 0, live = a.live_requests ? *a.live_requests : c.num_requests;
  cgr__fa3_request r = cgr__fa3_read(&c, i, min(live, c.num_requests), start, end, seq_len);
  if (cgr__fa3_may_split(&c)) { /* the same for all threads */
    uint64_t tiles = sum_block((uint64_t)(uint32_t)r.m * (uint32_t)r.n, s.tiles, warps);
    cgr__fa3_split(&c, cgr__fa3_blocks_per_sm(&c, (int64_t)tiles), &r);
  }
  int32_t place = t;
  if (c.sort) { /* not INT32_MAX: there is a number above every key */
    place = find_place(s, is_there ? -cgr__fa3_work(&c, &r) : INT32_MAX - 1, warps, share, shares);
    if (place < 0)
      return;
  }
  if (is_there)
    cgr__fa3_put(&c, a.metadata, first + place, i, &r);
  else if (i < cgr__fa3_rounded(c.num_requests)) /* of the last chunk */
    cgr__fa3_put_nothing(&c, a.metadata, i);
}

/* Words from the semaphore to the end: vectors of 4, and one more. */
__device__ __forceinline__ void put_zeros(const cgr__fa3_args &a, int block, int blocks) {
  int32_t vectors = (a.c.num_words - a.c.at_semaphore) / 4;
  int4 *to = reinterpret_cast<int4 *>(a.metadata + a.c.at_semaphore);
#pragma unroll 1
  for (int32_t v = block * (int)blockDim.x + (int)threadIdx.x; v < vectors; v += blocks * (int)blockDim.x)
    to[v] = make_int4(0, 0, 0, 0);
  if (block == 0 && threadIdx.x == 0)
    a.metadata[a.c.num_words - 1] = 0;
}

__host__ __device__ inline int num_chunks(int requests) { return (requests + CGR__FA3_CHUNK - 1) / CGR__FA3_CHUNK; }

/* A row of blocks for each chunk, one for each share; then rows for the zeros. */
__global__ void __launch_bounds__(kMaxThreads) fa3_kernel(const __grid_constant__ cgr__fa3_args a) {
  __shared__ __align__(16) Shared s;
  int chunks = num_chunks(a.c.num_requests), row = (int)blockIdx.y, column = (int)blockIdx.x, columns = (int)gridDim.x;
  if (row < chunks)
    plan_chunk(a, s, row * CGR__FA3_CHUNK, column, columns);
  else
    put_zeros(a, (row - chunks) * columns + column, ((int)gridDim.y - chunks) * columns);
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

/* Blocks that share the sorting of a chunk: as many as have 32 requests each, or 64, ... */
int num_shares(const cgr__fa3_key &c, int warps) {
  if (!c.sort)
    return 1;
  int most = kSortingBlocks / num_chunks(c.num_requests);
  return divide_up(warps, divide_up(warps, most > 1 ? most : 1));
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_fa3(const void *args, cudaStream_t stream) {
  const cgr__fa3_args *a = static_cast<const cgr__fa3_args *>(args);
  if (a->c.num_requests < 1 || a->c.num_words - a->c.at_semaphore < 1 || a->c.at_semaphore % 4 != 0 ||
      reinterpret_cast<uintptr_t>(a->metadata) % 16 != 0)
    return (int)cudaErrorInvalidValue;
  int requests = a->c.num_requests < cgr::kMaxThreads ? a->c.num_requests : cgr::kMaxThreads;
  int warps = cgr::divide_up(requests, 32), threads = 32 * warps < cgr::kMinThreads ? cgr::kMinThreads : 32 * warps;
  int shares = cgr::num_shares(a->c, warps);
  int zeros = cgr::divide_up((a->c.num_words - a->c.at_semaphore) / 4, threads * cgr::kZeroVectors);
  zeros = zeros < 1 ? 1 : zeros < cgr::kZeroBlocks ? zeros : cgr::kZeroBlocks;
  dim3 grid((unsigned)shares, (unsigned)(cgr::num_chunks(a->c.num_requests) + cgr::divide_up(zeros, shares)));
  return cgr::launch(cgr::fa3_kernel, args, grid, dim3((unsigned)threads), 0, stream);
}

extern "C" int cgr__cuda_fa3_preload(void) { return cgr::preload(cgr::fa3_kernel, 0); }

/* FlashInfer's plans (interop/flashinfer/format.h), with a graph: the host planner's arithmetic.
 *
 * A block has the whole batch: kEach neighbouring requests for each thread, in registers, and in shared memory what the search
 * needs of them. It sums the batch (one barrier), looks for the chunk size (one barrier for each round: as many sizes are tried
 * at once as the work allows, by teams of lanes that read all requests; a round or two are the rule), sums what comes before
 * each request (a barrier, unless one warp has them all), leaves that in shared memory (one barrier), and writes: every tile and
 * every row finds its request by a search that leaves a quarter with each step. Each block does all but the writing for itself,
 * so several can share the writes of a large plan without waiting for each other. Half of them (blockIdx.y) write tiles, the
 * others the rest. */
#include "base/limits.h"
#include "cgr/base.h"
#include "devices/cuda/launch.cuh"
#include "interop/launchers.h"
#include "devices/cuda/access.cuh"
#include "interop/formats.h"

namespace cgr {
namespace {

constexpr int kMinThreads = 256, kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32;
constexpr int kEach = 4, kInWarp = 32 * kEach;
constexpr int kSizes = 4; /* chunk sizes that a thread tries at once: shared memory is slower than the arithmetic */
constexpr int kMaxBlocks = 64;

static_assert(kEach * kMaxThreads == CGR__MAX_REQUESTS, "a block has every request");

/* What the search needs of a request; `last` is the number of its last page, as a float or as an integer. */
struct __align__(8) Tried {
  uint32_t last;
  int32_t q_tiles;
};

/* What comes before each request, and after the last one the sums. */
struct Before {
  int32_t *tiles, *rows, *partials, *chunks;
};

/* Dynamic shared memory: for every request that threads can have, first Tried, then, from the same address on, Before. */
__host__ __device__ inline int32_t before_stride(int32_t threads) { return (threads + 1) * kEach; }
__host__ __device__ inline size_t shared_bytes(int32_t threads) { return (size_t)before_stride(threads) * 4 * sizeof(int32_t); }

/* A thread's own requests; those from `count` on have no rows, no q tiles and one page. */
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

/* Adds the lanes' 64-bit numbers, none negative. */
__device__ __forceinline__ int64_t sum_lanes(int64_t value) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2)
    value += __shfl_xor_sync(~0u, value, d);
  return value;
}

/* n / d by a multiplication; `inverse` is ~0u / d, n less than 2^31, and the estimate at most one too small. */
__device__ __forceinline__ int32_t divide(uint32_t n, uint32_t d, uint32_t inverse) {
  uint32_t quotient = __umulhi(n, inverse);
  return (int32_t)(quotient + (n - quotient * d >= d));
}

/* Sums of a block. The total is in limbs of 22 bits: 1024 of them fit in 32 bits. */
struct __align__(16) BlockSums {
  uint32_t total[3], weight;
  int32_t most[4]; /* pages of a request, whether lengths are bad, two not used */
};
constexpr int kLimb = 22;

/* ----------------------------------------------------------------------------------------------------------- requests */

/* A load that is issued where it stands, and goes through L1: a thread's neighbouring words come with one cache line. */
__device__ __forceinline__ int32_t load_near(const int32_t *address) {
  int32_t v;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(__cvta_generic_to_global(address)) : "memory");
  return v;
}

/* Reads the thread's requests, and synchronises while they are on their way; returns whether one of them has lengths that no plan
 * takes. */
__device__ __forceinline__ bool read_own(const cgr__flashinfer_args &a, Own &own) {
  const cgr__flashinfer_key &key = a.key;
  own.first = (int32_t)threadIdx.x * kEach;
  own.count = max(0, min(kEach, key.num_requests - own.first));
  int32_t qo[kEach + 1] = {}, kv[kEach + 1];
#pragma unroll
  for (int k = 0; k <= kEach; k++) {
    int32_t at = min(own.first + k, key.num_requests);
    if (a.qo_indptr)
      qo[k] = load_near(a.qo_indptr + at);
    kv[k] = load_near(a.kv_indptr + at);
  }
  int32_t live = a.live_requests ? load_early(a.live_requests) : key.num_requests;
  __syncthreads(); /* here it costs nothing */
  int32_t own_live = max(0, min(own.count, max(live, 0) - own.first));
  bool bad = false;
  if (a.qo_indptr) {
    bad = threadIdx.x == 0 && live > 0 && qo[0] != 0;
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      bool is_live = k < own_live, fits = cgr__flashinfer_rows_fit(&key, qo[k], qo[k + 1]);
      bad |= is_live & !fits;
      own.rows[k] = is_live & fits ? qo[k + 1] - qo[k] : 0;
      own.q_tiles[k] = k < own.count ? cgr__flashinfer_q_tiles(&key, own.rows[k]) : 0;
    }
  } else {
    int32_t q_tiles = cgr__flashinfer_q_tiles(&key, key.uniform_rows);
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      own.rows[k] = k < own.count ? key.uniform_rows : 0;
      own.q_tiles[k] = k < own.count ? q_tiles : 0;
    }
  }
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    bool is_live = k < own_live, fits = cgr__flashinfer_pages_fit(&key, kv[k], kv[k + 1]);
    bad |= is_live & !fits;
    own.kv[k] = cgr__flashinfer_kv(&key, is_live & fits ? kv[k + 1] - kv[k] : 0);
  }
  return bad;
}

/* Sums the batch into `block`, which is zero. The lengths that fit make less than 2^31 q tiles; with others the sums mean
 * nothing, and `bad` says so. */
__device__ __forceinline__ cgr__flashinfer_sums sum_batch(const Own &own, bool &bad, BlockSums &block) {
  int lane = threadIdx.x & 31;
  uint64_t total = 0;
  int32_t weight = 0, longest = 1;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    total += (uint64_t)(uint32_t)own.q_tiles[k] * (uint32_t)own.kv[k];
    weight += own.q_tiles[k];
    longest = max(longest, own.kv[k]);
  }
  constexpr uint32_t limb = (1u << kLimb) - 1;
  uint32_t low = __reduce_add_sync(~0u, (uint32_t)total & limb);
  uint32_t middle = __reduce_add_sync(~0u, (uint32_t)(total >> kLimb) & limb);
  uint32_t high = __reduce_add_sync(~0u, (uint32_t)(total >> 2 * kLimb));
  weight = __reduce_add_sync(~0u, weight);
  longest = __reduce_max_sync(~0u, longest);
  bad = __any_sync(~0u, bad);
  uint32_t mine = lane == 0 ? low : lane == 1 ? middle : lane == 2 ? high : (uint32_t)weight;
  if (lane < 4)
    atomicAdd(lane < 3 ? &block.total[lane] : &block.weight, mine);
  else if (lane < 6)
    atomicMax(&block.most[lane - 4], lane == 4 ? longest : (int32_t)bad);
  __syncthreads();
  bad = block.most[1] != 0;
  uint64_t sum = block.total[0] + ((uint64_t)block.total[1] << kLimb) + ((uint64_t)block.total[2] << 2 * kLimb);
  return { (int64_t)block.weight, (int64_t)sum, block.most[0] };
}

/* The range of the search; one division serves both bounds, in different lanes. */
__device__ __forceinline__ cgr__flashinfer_range range_of(const cgr__flashinfer_key &key, const cgr__flashinfer_sums &sums) {
  cgr__flashinfer_ratio bound = cgr__flashinfer_bound(&key, &sums, threadIdx.x & 1);
  uint64_t n = (uint64_t)(bound.numerator + bound.denominator - 1);
  uint32_t d = (uint32_t)bound.denominator;
  uint64_t quotient = n >> 32 ? n / d : (uint32_t)n / d;
  int32_t clamped = (int32_t)min(quotient, (uint64_t)INT32_MAX);
  return cgr__flashinfer_range_of(&key, &sums, __shfl_sync(~0u, clamped, 0), __shfl_sync(~0u, clamped, 1));
}

/* -------------------------------------------------------------------------------------------------------------- search */

/* Longer requests are not divided as floats. */
constexpr int32_t kMaxFloatPages = 1 << 21;

__device__ __forceinline__ void store_tried(const Own &own, Tried *tried, bool as_floats) {
  uint4 words[kEach / 2];
#pragma unroll
  for (int k = 0; k < kEach; k += 2) {
    int32_t a = own.kv[k] - 1, b = own.kv[k + 1] - 1;
    words[k / 2] = { as_floats ? __float_as_uint((float)a) : (uint32_t)a, (uint32_t)own.q_tiles[k],
                     as_floats ? __float_as_uint((float)b) : (uint32_t)b, (uint32_t)own.q_tiles[k + 1] };
  }
#pragma unroll
  for (int k = 0; k < kEach / 2; k++)
    reinterpret_cast<uint4 *>(tried + own.first)[k] = words[k];
  tried[blockDim.x * kEach + threadIdx.x] = { 0, 0 }; /* count_floats looks beyond the end */
}

/* The tiles that every team-th pair of requests makes with chunks of each size. As floats, last / size is rounded down by one
 * multiply-add: 2^23 + last * inverse keeps nothing below 1. The estimate of the instruction is off by at most 2^-23 of itself;
 * a factor of 1 + 2^-22 makes the inverse too large, by less than 2^-21, and `last` below 2^21 forgives that: the quotient grows
 * by less than 1 / size, which is what the next integer is away at least. Modulo 2^32, and 2^23's bits - 1 too large for each q
 * tile. Looks at up to two pairs for each of 32 lanes beyond the last. */
__device__ __forceinline__ void count_floats(const Tried *tried, int32_t member, int32_t pairs, int32_t team,
                                             const uint32_t (&sizes)[kSizes], uint32_t (&tiles)[kSizes]) {
  float inverse[kSizes];
#pragma unroll
  for (int c = 0; c < kSizes; c++) {
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse[c]) : "f"((float)sizes[c]));
    inverse[c] *= 1.00000023841857910156f;
    tiles[c] = 0;
  }
  const uint4 *at = reinterpret_cast<const uint4 *>(tried) + member;
#pragma unroll 1
  for (int32_t i = 0; i < pairs; i += 2 * team) {
    uint4 a = at[i], b = at[i + team];
#pragma unroll
    for (int c = 0; c < kSizes; c++) {
      constexpr float magic = 8388608.f;
      tiles[c] += a.y * __float_as_uint(__fmaf_rd(__uint_as_float(a.x), inverse[c], magic));
      tiles[c] += a.w * __float_as_uint(__fmaf_rd(__uint_as_float(a.z), inverse[c], magic));
      tiles[c] += b.y * __float_as_uint(__fmaf_rd(__uint_as_float(b.x), inverse[c], magic));
      tiles[c] += b.w * __float_as_uint(__fmaf_rd(__uint_as_float(b.z), inverse[c], magic));
    }
  }
}

__device__ __noinline__ uint32_t count_integers(const Tried *tried, int32_t member, int32_t num_requests, int32_t team,
                                                uint32_t size) {
  uint32_t inverse = ~0u / size, tiles = 0;
  for (int32_t i = member; i < num_requests; i += team)
    tiles += (uint32_t)tried[i].q_tiles * ((uint32_t)divide(tried[i].last, size, inverse) + 1);
  return tiles;
}

/* The lanes' sums within teams of neighbours. */
__device__ __forceinline__ void sum_teams(uint32_t (&tiles)[kSizes], int32_t team) {
  if (team == 32) {
#pragma unroll
    for (int c = 0; c < kSizes; c++)
      tiles[c] = __reduce_add_sync(~0u, tiles[c]);
    return;
  }
  for (int d = 1; d < team; d *= 2) {
#pragma unroll
    for (int c = 0; c < kSizes; c++)
      tiles[c] += __shfl_xor_sync(~0u, tiles[c], d);
  }
}

/* As a power of two, how many sizes are tried at once: enough for the last round, or the last but one, where that is not too much
 * work. */
__device__ __forceinline__ int sizes_at_once(int32_t num_requests, uint32_t span, int most) {
  int bits = 32 - __clz((int)(span - 1)), half = (bits + 1) / 2; /* span <= 2^bits */
  if (bits <= most && num_requests << bits <= 1 << 14)
    return bits;
  if (half <= most && num_requests << half <= 1 << 16)
    return half;
  return min((bits + 2) / 3, most);
}

/* The smallest chunk of the range that makes no more than max_tiles tiles, or its last. `tried` is complete, as floats. */
__device__ __forceinline__ int32_t search_chunk(const cgr__flashinfer_key &key, const Own &own, Tried *tried,
                                                const cgr__flashinfer_sums &sums, cgr__flashinfer_range range) {
  bool as_floats = sums.longest <= kMaxFloatPages;
  if (!as_floats && range.low < range.high) {
    store_tried(own, tried, false);
    __syncthreads();
  }
  uint32_t too_large = as_floats ? (uint32_t)sums.weight * (__float_as_uint(8388608.f) - 1) : 0;
  int log_threads = 31 - __clz((int)blockDim.x);
  while (range.low < range.high) {
    uint32_t span = (uint32_t)(range.high - range.low);
    /* A team of 4 to 32 lanes tries kSizes sizes; more than asked for, where that would take more lanes. */
    int log_team = min(log_threads + 2 - sizes_at_once(key.num_requests, span, log_threads), 5);
    uint32_t sizes_tried = 1u << (log_threads + 2 - log_team), step = ((span - 1) >> (log_threads + 2 - log_team)) + 1;
    int32_t team = 1 << log_team, member = (int32_t)threadIdx.x & (team - 1);
    uint32_t index = (threadIdx.x >> log_team) * kSizes, sizes[kSizes], tiles[kSizes];
#pragma unroll
    for (uint32_t c = 0; c < kSizes; c++) {
      uint32_t size = (uint32_t)range.low + (index + c + 1) * step - 1;
      sizes[c] = index < sizes_tried ? min(size, (uint32_t)range.high) : (uint32_t)range.high;
      tiles[c] = 0;
    }
    if (!as_floats) {
#pragma unroll
      for (int c = 0; c < kSizes; c++)
        tiles[c] = count_integers(tried, member, key.num_requests, team, sizes[c]);
    } else if (sizes[0] < (uint32_t)range.high) {
      count_floats(tried, member, (key.num_requests + 1) / 2, team, sizes, tiles);
    }
    sum_teams(tiles, team);
    /* A lane judges one size. Of the sizes below the last, those that make too many tiles are the first ones. */
    uint32_t size = sizes[0], count = tiles[0];
#pragma unroll
    for (int c = 1; c < kSizes; c++) {
      size = member == c ? sizes[c] : size;
      count = member == c ? tiles[c] : count;
    }
    count -= too_large;
    bool too_many = member < kSizes && size < (uint32_t)range.high && count > (uint32_t)key.max_tiles;
    uint32_t low = (uint32_t)range.low + (uint32_t)__syncthreads_count(too_many) * step;
    range.high = (int32_t)min((uint32_t)range.high, low + step - 1);
    range.low = (int32_t)low;
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
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  uint32_t inverse = ~0u / (uint32_t)chunk;
  int32_t chunks[kEach], sums[3] = { 0, 0, 0 };
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    chunks[k] = divide((uint32_t)own.kv[k] - 1, (uint32_t)chunk, inverse) + 1;
    sums[0] += own.q_tiles[k] * chunks[k];
    sums[1] += own.rows[k];
    sums[2] += own.rows[k] * chunks[k];
  }
  int32_t at[3];
#pragma unroll
  for (int s = 0; s < 3; s++)
    at[s] = sum_upto(sums[s]);
  if (key.num_requests > kInWarp) { /* else the first warp has them all */
    if (lane == 31)
      for (int s = 0; s < 3; s++)
        of_warp[s][warp] = at[s];
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 3; s++)
      at[s] += __reduce_add_sync(~0u, lane < warp ? of_warp[s][lane] : 0);
  } else if (warp > 0) {
    return;
  }
  int32_t tiles[kEach + 1], rows[kEach + 1], partials[kEach + 1];
  tiles[0] = at[0] - sums[0];
  rows[0] = at[1] - sums[1];
  partials[0] = at[2] - sums[2];
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    tiles[k + 1] = tiles[k] + own.q_tiles[k] * chunks[k];
    rows[k + 1] = rows[k] + own.rows[k];
    partials[k + 1] = partials[k] + own.rows[k] * chunks[k];
  }
  *reinterpret_cast<int4 *>(before.tiles + own.first) = make_int4(tiles[0], tiles[1], tiles[2], tiles[3]);
  *reinterpret_cast<int4 *>(before.rows + own.first) = make_int4(rows[0], rows[1], rows[2], rows[3]);
  *reinterpret_cast<int4 *>(before.partials + own.first) = make_int4(partials[0], partials[1], partials[2], partials[3]);
  *reinterpret_cast<int4 *>(before.chunks + own.first) = make_int4(chunks[0], chunks[1], chunks[2], chunks[3]);
  if (own.first + kEach == key.num_requests) { /* otherwise a request that is not there has the sums */
    before.tiles[key.num_requests] = tiles[kEach];
    before.rows[key.num_requests] = rows[kEach];
    before.partials[key.num_requests] = partials[kEach];
  }
}

/* -------------------------------------------------------------------------------------------------------------- writes */

/* The words of the workspace from one offset to another, shared out among all threads of the launch with this blockIdx.y. */
struct Words {
  int32_t *first;
  int32_t count;
};
__device__ __forceinline__ Words words_of(const cgr__flashinfer_args &a, int64_t begin, int64_t end) {
  return { reinterpret_cast<int32_t *>(a.int_workspace + begin), (int32_t)((end - begin) / 4) };
}
__device__ __forceinline__ int32_t first_of_thread() { return (int32_t)(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ __forceinline__ int32_t stride_of_threads() { return (int32_t)(gridDim.x * blockDim.x); }

/* The request that number i belongs to: before[r] <= i < before[r + 1]. Each step looks at three places, none of which waits for
 * another. */
__device__ __forceinline__ int32_t find_request(const int32_t *before, int32_t num_requests, int32_t i) {
  int32_t low = 0;
  for (int32_t step = 1 << (31 - __clz((num_requests - 1) | 1) & ~1); step > 0; step >>= 2) {
    int32_t one = before[min(low + step, num_requests)];
    int32_t two = before[min(low + 2 * step, num_requests)];
    int32_t three = before[min(low + 3 * step, num_requests)];
    low += (one <= i ? step : 0) + (two <= i ? step : 0) + (three <= i ? step : 0);
  }
  return low;
}

/* The arrays of tiles, with what is between them. */
__device__ __forceinline__ void write_tiles(const cgr__flashinfer_args &a, const Before &before, int32_t num_tiles) {
  const cgr__flashinfer_places &at = a.key.at;
  int64_t after_requests = a.key.decode ? at.kv_tile_indices : at.q_tile_indices;
  Words requests = words_of(a, at.request_indices, after_requests), kv_tiles = words_of(a, at.kv_tile_indices, at.o_indptr);
  Words q_tiles = a.key.decode ? Words{ nullptr, 0 } : words_of(a, at.q_tile_indices, at.kv_tile_indices);
#pragma unroll 1
  for (int32_t t = first_of_thread(); t < requests.count; t += stride_of_threads()) {
    int32_t request = 0, q_tile = 0, kv_tile = 0;
    if (t < num_tiles) {
      request = find_request(before.tiles, a.key.num_requests, t);
      int32_t own = t - before.tiles[request], chunks = before.chunks[request];
      q_tile = own < chunks ? 0 : (int32_t)((uint32_t)own / (uint32_t)chunks);
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
  const cgr__flashinfer_places &at = a.key.at;
  int64_t end = at.merge_indptr >= 0 ? at.merge_indptr : at.valid_mask >= 0 ? at.valid_mask : at.bytes;
  Words words = words_of(a, at.o_indptr, end);
  int32_t chunk_at = (int32_t)((at.kv_chunk_size - at.o_indptr) / 4);
  int32_t rows_at = at.total_num_rows >= 0 ? (int32_t)((at.total_num_rows - at.o_indptr) / 4) : -1;
#pragma unroll 1
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
#pragma unroll 1
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
#pragma unroll 1
  for (int32_t i = first_of_thread(); i < words.count; i += stride_of_threads()) {
    int32_t valid = min(4, max(0, num_tiles - 4 * i));
    words.first[i] = valid == 0 ? 0 : 0x01010101 >> 8 * (4 - valid);
  }
  unsigned char *mask = a.int_workspace + a.key.at.valid_mask;
#pragma unroll 1
  for (int32_t t = 4 * words.count + first_of_thread(); t < a.key.tiles; t += stride_of_threads())
    mask[t] = t < num_tiles;
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

__global__ void __launch_bounds__(kMaxThreads) flashinfer_kernel(const __grid_constant__ cgr__flashinfer_args a) {
  extern __shared__ __align__(16) int32_t memory[];
  __shared__ BlockSums block;
  const cgr__flashinfer_key &key = a.key;
  int32_t n = before_stride((int32_t)blockDim.x);
  Before before = { memory, memory + n, memory + 2 * n, memory + 3 * n };
  Tried *tried = reinterpret_cast<Tried *>(memory);
  Own own;
  if (threadIdx.x == 0)
    block = {};
  bool bad = read_own(a, own);
  store_tried(own, tried, true);
  cgr__flashinfer_sums sums = sum_batch(own, bad, block);
  int32_t chunk = 1;
  if (!bad) {
    chunk = search_chunk(key, own, tried, sums, range_of(key, sums));
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
  if (blockIdx.y == 0) {
    write_tiles(a, before, num_tiles);
    return;
  }
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
  return cgr::launch(cgr::flashinfer_kernel, args, dim3(cgr::blocks_of(key), 2), dim3(cgr::threads_of(key)),
                     cgr::shared_bytes((int32_t)cgr::threads_of(key)), stream);
}

extern "C" int cgr__cuda_flashinfer_preload(void) {
  return cgr::preload(cgr::flashinfer_kernel, cgr::shared_bytes(cgr::kMaxThreads));
}

/* Writes the attention plans of the batch that the prologue left (planners/attention/plan.h): the host planner's arithmetic, one
 * block for each plan class. Few threads and registers, so that a block finds room next to an engine's kernel that fills the
 * SMs.
 *
 * Its cost is latency, not work, so the batch is read in one go, before its size is known, and barriers are few. For the first
 * running sum (costs of the decode section, its requests, those of the prefill queue and their q tiles) a thread has neighbouring
 * requests; then it has a cut of the decode section, then a part, finally entries of the prefill queue. */
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/planner.h"
#include "kernels/step.h"

namespace cgr {
namespace {

constexpr int kThreads = 320; /* at least G + 1 on 148 SMs with two CTAs each, so that every cut has a thread */
constexpr int kWarps = kThreads / 32;
constexpr int kEach = 4; /* requests that a thread reads at once */
constexpr int kRound = kEach * kThreads;

static_assert(sizeof(cgr__plan_header) == 64 && sizeof(cgr__plan_part) == 48 && sizeof(cgr__plan_entry) == 32,
              "the plan is rows of 16 bytes");
static_assert(CGR__MAX_REQUESTS < 31 * kRound, "a warp reads the borders of all rounds");
static_assert(CGR__MAX_REQUESTS < 1 << 16, "numbers of requests are summed in 16 bits");

/* A request of the prefill queue. */
struct Prefill {
  int32_t tiles; /* q tiles before its own */
  int32_t request, query_len, seq_len;
};

/* A request is either in the decode section or in the prefill queue: records of the former from the front, of the latter from the
 * back. */
union Record {
  cgr__plan_stretch stretch;
  Prefill prefill;
};
static_assert(sizeof(Record) == 16, "records are read at once");

/* Dynamic shared memory: what depends on the numbers of requests (B_r, padded) and parts (G). */
struct Lists {
  Record *records;          /* [B_r + 2] */
  cgr__plan_point *cuts;    /* [G + 1]; then, of a prefill queue that is cut, int32_t: splits before each tile */
  cgr__plan_before *before; /* [G + 1] */
  int32_t *firsts;          /* [G + 1] the first partial of each tile that is cut, then the number of partials */
  int32_t last;             /* index of the last record */
};

__host__ __device__ inline size_t rounded(size_t bytes) { return (bytes + 15) / 16 * 16; }

__host__ __device__ inline size_t lists_bytes(int32_t requests, int32_t parts) {
  size_t n = (size_t)requests + 2, g = (size_t)parts + 1;
  return n * sizeof(Record) + rounded(g * sizeof(cgr__plan_point)) + rounded(g * sizeof(cgr__plan_before)) + rounded(g * 4);
}

__device__ __forceinline__ Lists make_lists(unsigned char *at, int32_t requests, int32_t parts) {
  size_t n = (size_t)requests + 2, g = (size_t)parts + 1;
  Lists l;
  l.records = reinterpret_cast<Record *>(at);
  l.cuts = reinterpret_cast<cgr__plan_point *>(at += n * sizeof(Record));
  l.before = reinterpret_cast<cgr__plan_before *>(at += rounded(g * sizeof(cgr__plan_point)));
  l.firsts = reinterpret_cast<int32_t *>(at + rounded(g * sizeof(cgr__plan_before)));
  l.last = requests + 1;
  return l;
}

__device__ __forceinline__ const cgr__plan_stretch *stretches(const Lists &l) {
  return reinterpret_cast<const cgr__plan_stretch *>(l.records);
}
__device__ __forceinline__ const Prefill &prefill_at(const Lists &l, int32_t i) { return l.records[l.last - i].prefill; }

/* --------------------------------------------------------------------------------------------------------------- sums */

template <typename T> __device__ __forceinline__ T sum_upto(T value) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    T other = __shfl_up_sync(~0u, value, d);
    if ((threadIdx.x & 31) >= d)
      value += other;
  }
  return value;
}

/* The sum of the lanes before this one, for small numbers: a vote for each of their bits. */
__device__ __forceinline__ int32_t sum_small_before(uint32_t value) {
  uint32_t lower = ~(~0u << (threadIdx.x & 31)), sum = 0;
  for (int bit = 0; __any_sync(~0u, value >> bit); bit++)
    sum += (uint32_t)__popc(__ballot_sync(~0u, value >> bit & 1) & lower) << bit;
  return (int32_t)sum;
}

/* The sum over the warps before this one, and over all: every warp reads what each has left. */
__device__ __forceinline__ int32_t sum_warps_before(const int32_t (&of_warp)[kWarps], int32_t &total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int32_t value = lane < kWarps ? of_warp[lane] : 0;
  total += __reduce_add_sync(~0u, value);
  return __reduce_add_sync(~0u, lane < warp ? value : 0);
}

/* The sum of the threads before this one; `total` grows by the sum of all. The next sum must use other scratch, or come after a
 * barrier. */
__device__ __forceinline__ int32_t sum_before(int32_t value, int32_t (&scratch)[kWarps], int32_t &total) {
  int32_t before = total + sum_small_before((uint32_t)value);
  if ((threadIdx.x & 31) == 31)
    scratch[threadIdx.x >> 5] = before + value - total;
  __syncthreads();
  return before + sum_warps_before(scratch, total);
}

/* --------------------------------------------------------------------------------------------------------------- requests */

struct Batch {
  const int32_t *query_start, *seq_lens;
  int32_t padded_requests;
};

/* What is summed over the requests: costs of the decode section, and how many there are. */
struct Sums {
  int64_t cost;
  uint32_t numbers; /* in the decode section, and above 16 bits in the prefill queue */
  int32_t tiles;    /* of the prefill queue */
};
__device__ __forceinline__ int32_t decodes_of(const Sums &s) { return (int32_t)(s.numbers & 0xffff); }
__device__ __forceinline__ int32_t prefills_of(const Sums &s) { return (int32_t)(s.numbers >> 16); }

struct Totals {
  Sums sums;
  int32_t emptied, least, most; /* least, most: KV tiles of a tile of the decode section */
  int32_t reserved;             /* 32 bytes: read in two loads */
};

/* Neighbouring requests of a thread. */
struct Own {
  int32_t first, count;
  int32_t start[kEach + 1], seq_len[kEach];
  int32_t num[kEach];   /* KV tiles in the decode section; minus the q tiles in the prefill queue; 0: no work */
  cgr__plan_work queue; /* what they have in the prefill queue */
};

__device__ __forceinline__ void read_own(const Batch &b, int32_t base, Own &own) {
  /* As few for each thread as cover the rest of the batch, so that a small batch uses all warps. */
  int32_t each = min(kEach, (b.padded_requests - base + kThreads - 1) / kThreads);
  own.first = base + (int32_t)threadIdx.x * each;
  own.count = min(each, b.padded_requests - own.first);
#pragma unroll
  for (int k = 0; k <= kEach; k++)
    own.start[k] = k <= own.count ? b.query_start[own.first + k] : 0;
#pragma unroll
  for (int k = 0; k < kEach; k++)
    own.seq_len[k] = k < own.count ? b.seq_lens[own.first + k] : 0;
}

/* n / d by a multiplication; `inverse` is ~0u / d, n less than 2^31, and the estimate at most one too small. */
__device__ __forceinline__ int32_t divide(uint32_t n, uint32_t d, uint32_t inverse) {
  uint32_t quotient = __umulhi(n, inverse);
  return (int32_t)(quotient + (n - quotient * d >= d));
}

/* Sums the thread's own requests up to `num_requests`. */
__device__ __forceinline__ Totals sum_own(const cgr__plan_class &c, uint32_t inverse, int32_t num_requests, Own &own) {
  Totals sums = { { 0, 0, 0 }, 0, INT32_MAX, 0, 0 };
  own.queue = { 0, 0 };
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    own.num[k] = 0;
    if (k >= own.count || own.first + k >= num_requests)
      continue;
    int32_t given = own.start[k + 1] - own.start[k];
    own.seq_len[k] = cgr__plan_seen_len(&c, given, own.seq_len[k]);
    int32_t query_len = cgr__plan_live_len(&c, given, own.seq_len[k]);
    sums.emptied += given > query_len;
    if (query_len > c.decode_query_len) {
      int32_t before = sums.sums.tiles;
      cgr__plan_add_work(&c, query_len, own.seq_len[k], &own.queue);
      sums.sums.tiles = (int32_t)own.queue.num_tiles;
      own.num[k] = before - sums.sums.tiles;
      sums.sums.numbers += 1 << 16;
    } else if (query_len > 0) {
      cgr__plan_range kv = cgr__plan_kv_tokens(&c, query_len, own.seq_len[k], 0, query_len - 1);
      uint32_t tile = (uint32_t)c.decode_tile_kv;
      int32_t n = divide((uint32_t)kv.end + tile - 1, tile, inverse) - divide((uint32_t)kv.begin, tile, inverse);
      own.num[k] = n;
      sums.sums.cost += c.head_blocks * cgr__plan_tile_cost(&c, n);
      sums.sums.numbers += 1;
      sums.least = min(sums.least, n);
      sums.most = max(sums.most, n);
    }
  }
  return sums;
}

__device__ __forceinline__ void write_own(const cgr__plan_class &c, const Own &own, Sums at, const Lists &l, int32_t *decodes) {
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t n = own.num[k], request = own.first + k;
    if (n > 0) {
      int32_t i = decodes_of(at);
      decodes[i] = request;
      l.records[i].stretch = { at.cost, n, request };
      at.cost += c.head_blocks * cgr__plan_tile_cost(&c, n);
      at.numbers += 1;
    } else if (n < 0) {
      l.records[l.last - prefills_of(at)].prefill = { at.tiles, request, own.start[k + 1] - own.start[k], own.seq_len[k] };
      at.numbers += 1 << 16;
      at.tiles -= n;
    }
  }
}

/* The sums of the lanes up to this one. */
__device__ __forceinline__ Sums lanes_upto(const Sums &own) {
  Sums upto = { sum_upto(own.cost), sum_upto(own.numbers), 0 };
  if (__any_sync(~0u, own.tiles))
    upto.tiles = sum_upto(own.tiles);
  return upto;
}

/* Adds the lanes' 64-bit numbers, none negative, in limbs of 24 bits: 32 of them fit in 32 bits. */
__device__ __forceinline__ int64_t sum_lanes(int64_t value) {
  uint64_t v = (uint64_t)value, low = __reduce_add_sync(~0u, (uint32_t)v & 0xffffff);
  uint64_t middle = __reduce_add_sync(~0u, (uint32_t)(v >> 24) & 0xffffff), high = __reduce_add_sync(~0u, (uint32_t)(v >> 48));
  return (int64_t)(low + (middle << 24) + (high << 48));
}

/* Adds what every warp has left to `total` and `num_kv`, and what those before this one have left to `before`. A warp without
 * tiles of the prefill queue has left no `kv_of_warp`. */
__device__ __forceinline__ void add_warps(const Totals (&of_warp)[kWarps], const int64_t (&kv_of_warp)[kWarps], Sums &before,
                                          Totals &total, int64_t &num_kv) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  Totals t = of_warp[min(lane, kWarps - 1)];
  bool counts = lane < kWarps, comes_before = lane < warp;
  before.cost += sum_lanes(comes_before ? t.sums.cost : 0);
  total.sums.cost += sum_lanes(counts ? t.sums.cost : 0);
  before.numbers += __reduce_add_sync(~0u, comes_before ? t.sums.numbers : 0);
  total.sums.numbers += __reduce_add_sync(~0u, counts ? t.sums.numbers : 0);
  if (__any_sync(~0u, t.sums.tiles)) {
    before.tiles += __reduce_add_sync(~0u, comes_before ? t.sums.tiles : 0);
    total.sums.tiles += __reduce_add_sync(~0u, counts ? t.sums.tiles : 0);
    num_kv += sum_lanes(counts && t.sums.tiles > 0 ? kv_of_warp[lane] : 0);
  }
  total.emptied += __reduce_add_sync(~0u, counts ? t.emptied : 0);
  total.least = min(total.least, __reduce_min_sync(~0u, t.least));
  total.most = max(total.most, __reduce_max_sync(~0u, t.most));
}

/* Sorts the requests into decodes and prefills; adds the KV tiles of the latter to `num_kv` (cgr__plan_work). The caller
 * synchronises before it reads the lists. */
__device__ __forceinline__ Totals sort_requests(const cgr__plan_class &c, const Batch &b, const int32_t *num_requests,
                                                const Lists &l, int32_t *decodes, int64_t &num_kv) {
  __shared__ __align__(16) Totals scratch[2][kWarps]; /* in turn: a fast warp writes the next round's while a slow one reads */
  __shared__ int64_t kv_scratch[2][kWarps];
  int turn = 0;
  int32_t num_live = *num_requests, round = 0;
  uint32_t ahead = 0;
  Totals total = { { 0, 0, 0 }, 0, INT32_MAX, 0, 0 };
  /* A round without new tokens is skipped: the tokens before each round are read along with the first. */
  int32_t tokens_before = b.query_start[min(((int)threadIdx.x & 31) * kRound, b.padded_requests)];
  for (; round >= 0; round = __ffs((int)ahead) - 1, turn ^= 1) {
    Own own;
    read_own(b, round * kRound, own);
    if (round == 0)
      ahead = __ballot_sync(~0u, tokens_before != __shfl_down_sync(~0u, tokens_before, 1));
    ahead &= ~1u << round;
    uint32_t inverse = ~0u / (uint32_t)c.decode_tile_kv; /* while the loads are under way */
    Totals sums = sum_own(c, inverse, num_live, own), upto = sums;
    upto.sums = lanes_upto(sums.sums);
    upto.emptied = __reduce_add_sync(~0u, sums.emptied);
    upto.least = __reduce_min_sync(~0u, sums.least);
    upto.most = __reduce_max_sync(~0u, sums.most);
    int64_t kv = __any_sync(~0u, sums.sums.tiles) ? sum_lanes(own.queue.num_kv) : 0;
    if ((threadIdx.x & 31) == 31) {
      scratch[turn][threadIdx.x >> 5] = upto;
      if (upto.sums.tiles > 0)
        kv_scratch[turn][threadIdx.x >> 5] = kv;
    }
    Sums before = { total.sums.cost + upto.sums.cost - sums.sums.cost, total.sums.numbers + upto.sums.numbers - sums.sums.numbers,
                    total.sums.tiles + upto.sums.tiles - sums.sums.tiles };
    __syncthreads();
    add_warps(scratch[turn], kv_scratch[turn], before, total, num_kv);
    write_own(c, own, before, l, decodes);
  }
  if (threadIdx.x == 0) {
    l.records[decodes_of(total.sums)].stretch = { total.sums.cost, 0, -1 };
    l.records[l.last - prefills_of(total.sums)].prefill = { total.sums.tiles, -1, 0, 0 };
  }
  return total;
}

/* ---------------------------------------------------------------------------------------------------- the decode section */

/* What comes before the thread's part; `total` grows by all parts. */
__device__ __forceinline__ cgr__plan_before parts_before(int32_t partials, int32_t starts, cgr__plan_before (&scratch)[kWarps],
                                                         cgr__plan_before &total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  cgr__plan_before before = { sum_small_before((uint32_t)partials), __popc(__ballot_sync(~0u, starts) & ~(~0u << lane)) };
  if (lane == 31)
    scratch[warp] = { before.partials + partials, before.cut + starts };
  __syncthreads();
  cgr__plan_before of_warp = { 0, 0 };
  if (lane < kWarps)
    of_warp = scratch[lane];
  before.partials += total.partials + __reduce_add_sync(~0u, lane < warp ? of_warp.partials : 0);
  before.cut += total.cut + __reduce_add_sync(~0u, lane < warp ? of_warp.cut : 0);
  total.partials += __reduce_add_sync(~0u, of_warp.partials);
  total.cut += __reduce_add_sync(~0u, of_warp.cut);
  return before;
}

__device__ __forceinline__ void cut_decodes(const cgr__plan_class &c, const Lists &l, int64_t cost_per_part, int64_t snap,
                                            int32_t num_decodes) {
  __shared__ cgr__plan_before scratch[2][kWarps];
  for (int32_t p = (int32_t)threadIdx.x; p <= c.num_parts; p += kThreads)
    l.cuts[p] = cgr__plan_locate(&c, p * cost_per_part, stretches(l), num_decodes, snap);
  __syncthreads();
  cgr__plan_before total = { 0, 0 };
  int turn = 0;
  for (int32_t base = 0; base <= c.num_parts; base += kThreads, turn ^= 1) {
    int32_t p = base + (int32_t)threadIdx.x, partials = 0, starts = 0;
    if (p < c.num_parts) {
      cgr__plan_point begin = l.cuts[p], end = l.cuts[p + 1];
      int32_t n = begin.kv > 0 ? stretches(l)[begin.decode].num_kv : 0;
      starts = cgr__plan_starts(&begin, &end);
      partials = cgr__plan_begin_partials(&c, &begin, &end, n) + starts;
    }
    cgr__plan_before before = parts_before(partials, starts, scratch[turn], total);
    if (p <= c.num_parts)
      l.before[p] = before;
    if (starts)
      l.firsts[before.cut] = before.partials + partials - 1;
  }
  if (threadIdx.x == 0)
    l.firsts[total.cut] = total.partials;
  __syncthreads();
}

__device__ __forceinline__ void write_parts(const cgr__plan_class &c, const Lists &l, cgr__plan_part *parts) {
  for (int32_t p = (int32_t)threadIdx.x; p < c.num_parts; p += kThreads) {
    cgr__plan_before before = l.before[p];
    int32_t num_partials = l.before[p + 1].partials - before.partials, request = stretches(l)[l.cuts[p].decode].request;
    cgr__plan_part part = cgr__plan_make_part(&c, &l.cuts[p], before, num_partials, l.firsts, request);
    const int4 *from = reinterpret_cast<const int4 *>(&part);
    int4 *to = reinterpret_cast<int4 *>(&parts[p]);
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
  }
}

/* ----------------------------------------------------------------------------------------------------- the prefill queue */

struct PrefillTile {
  int32_t request, q_tile;
  cgr__plan_range kv;
};

/* Tile e of the prefill queue, in the order of the batch. */
__device__ __forceinline__ PrefillTile find_tile(const cgr__plan_class &c, const Lists &l, int32_t num_prefills, int32_t e) {
  int32_t low = 0, high = num_prefills; /* tiles before `low` <= e < tiles before `high` */
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (prefill_at(l, middle).tiles <= e)
      low = middle;
    else
      high = middle;
  }
  Prefill q = prefill_at(l, low);
  PrefillTile tile;
  tile.request = q.request;
  tile.q_tile = e - q.tiles;
  tile.kv = cgr__plan_prefill_range(&c, q.query_len, q.seq_len, tile.q_tile);
  return tile;
}

__device__ __forceinline__ void write_entry(cgr__plan_entry *to, const cgr__plan_entry &entry) {
  const int4 *from = reinterpret_cast<const int4 *>(&entry);
  reinterpret_cast<int4 *>(to)[0] = from[0];
  reinterpret_cast<int4 *>(to)[1] = from[1];
}

/* Fewer tiles than parts: each is cut into splits. Returns the number of entries. */
__device__ __forceinline__ int32_t write_splits(const cgr__plan_class &c, const Lists &l, int32_t num_prefills, int32_t num_tiles,
                                                cgr__plan_entry *entries) {
  __shared__ int64_t of_sum[kWarps];
  __shared__ int32_t of_splits[2][kWarps];
  int lane = threadIdx.x & 31;
  int32_t *splits_before = reinterpret_cast<int32_t *>(l.cuts); /* [num_tiles + 1]: fewer than G + 1 */
  int64_t own = 0;
  for (int32_t e = (int32_t)threadIdx.x; e < num_tiles; e += kThreads) {
    PrefillTile tile = find_tile(c, l, num_prefills, e);
    own += tile.kv.end - tile.kv.begin;
  }
  own = sum_upto(own);
  if (lane == 31)
    of_sum[threadIdx.x >> 5] = own;
  __syncthreads();
  int64_t sum = sum_lanes(lane < kWarps ? of_sum[lane] : 0);
  int32_t total = 0, turn = 0;
  for (int32_t base = 0; base < num_tiles; base += kThreads, turn ^= 1) {
    int32_t e = base + (int32_t)threadIdx.x, count = 0;
    if (e < num_tiles) {
      PrefillTile tile = find_tile(c, l, num_prefills, e);
      count = cgr__plan_num_splits(&c, tile.kv.end - tile.kv.begin, sum);
    }
    int32_t first = sum_before(count, of_splits[turn], total);
    if (e < num_tiles)
      splits_before[e] = first;
  }
  if (threadIdx.x == 0)
    splits_before[num_tiles] = total;
  __syncthreads();
  for (int32_t i = (int32_t)threadIdx.x; i < total; i += kThreads) {
    int32_t low = 0, high = num_tiles; /* splits_before[low] <= i < splits_before[high] */
    while (high - low > 1) {
      int32_t middle = (low + high) / 2;
      if (splits_before[middle] <= i)
        low = middle;
      else
        high = middle;
    }
    PrefillTile tile = find_tile(c, l, num_prefills, low);
    int32_t first = splits_before[low], count = splits_before[low + 1] - first;
    write_entry(&entries[i], cgr__plan_make_entry(tile.request, tile.q_tile, tile.kv, first, count, i - first));
  }
  return total;
}

/* Whole tiles, by buckets of their cost, stable: each warp counts a stretch of them, then it knows their places. */
__device__ __forceinline__ void write_tiles(const cgr__plan_class &c, const Lists &l, int32_t num_prefills, int32_t num_tiles,
                                            cgr__plan_entry *entries) {
  __shared__ int32_t places[CGR__PLAN_BUCKETS][kWarps]; /* entries of a bucket that a warp has; then the place of its next one */
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int32_t each = ((num_tiles + kWarps - 1) / kWarps + 31) / 32 * 32, begin = warp * each, end = min(begin + each, num_tiles);
  for (int i = (int)threadIdx.x; i < CGR__PLAN_BUCKETS * kWarps; i += kThreads)
    (&places[0][0])[i] = 0;
  __syncthreads();
  for (int32_t e = begin + lane; e < end; e += 32) {
    PrefillTile tile = find_tile(c, l, num_prefills, e);
    atomicAdd(&places[cgr__plan_bucket(tile.kv.end - tile.kv.begin)][warp], 1);
  }
  __syncthreads();
  if (warp == 0) { /* each lane has two buckets */
    int32_t own = 0;
    for (int i = 0; i < 2 * kWarps; i++)
      own += (&places[2 * lane][0])[i];
    int32_t at = sum_upto(own) - own;
    for (int i = 0; i < 2 * kWarps; i++) {
      int32_t count = (&places[2 * lane][0])[i];
      (&places[2 * lane][0])[i] = at;
      at += count;
    }
  }
  __syncthreads();
  for (int32_t base = begin; base < end; base += 32) {
    int32_t e = base + lane, bucket = -1;
    PrefillTile tile = {};
    if (e < end) {
      tile = find_tile(c, l, num_prefills, e);
      bucket = cgr__plan_bucket(tile.kv.end - tile.kv.begin);
    }
    uint32_t same = __match_any_sync(~0u, bucket);
    int32_t rank = __popc(same & ~(~0u << lane)), at = bucket >= 0 ? places[bucket][warp] : 0;
    __syncwarp();
    if (bucket >= 0 && rank == 0)
      places[bucket][warp] = at + __popc(same);
    if (bucket >= 0)
      write_entry(&entries[at + rank], cgr__plan_make_entry(tile.request, tile.q_tile, tile.kv, 0, 1, 0));
    __syncwarp();
  }
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

/* Four blocks to an SM: at most 48 registers. */
__global__ void __launch_bounds__(kThreads, 4) planner_kernel(const __grid_constant__ cgr__planner_args a) {
  extern __shared__ __align__(16) unsigned char memory[];
  const cgr__plan_class &c = a.classes[blockIdx.x];
  int32_t *plan = a.plan + a.offset[blockIdx.x];
  unsigned char *bytes = reinterpret_cast<unsigned char *>(plan);
  Batch b = { a.query_start_loc, a.seq_lens[c.length_set], a.padded_requests };
  Lists l = make_lists(memory, a.padded_requests, c.num_parts);
  int64_t num_kv = 0;
  Totals total = sort_requests(c, b, &a.counts[CGR_COUNT_REQUESTS], l,
                               reinterpret_cast<int32_t *>(bytes + cgr__plan_decodes_offset(&c)), num_kv);
  cgr__plan_header h = {};
  h.num_parts = c.num_parts;
  h.head_blocks = c.head_blocks;
  h.num_decodes = decodes_of(total.sums);
  h.num_emptied = total.emptied;
  h.cost = total.sums.cost;
  const cgr__plan_work work = { total.sums.tiles, num_kv };
  h.decode_parts = cgr__plan_decode_parts(&c, h.cost, &work);
  int64_t mean = cgr__plan_mean(h.cost, h.decode_parts);
  h.snap = cgr__plan_snap(&c, mean);
  h.cost_per_part = cgr__plan_cost_per_part(&c, mean, h.snap, total.least == total.most ? total.most : 0);
  __syncthreads();
  cut_decodes(c, l, h.cost_per_part, h.snap, h.num_decodes);
  write_parts(c, l, reinterpret_cast<cgr__plan_part *>(bytes + sizeof h));

  cgr__plan_entry *entries = reinterpret_cast<cgr__plan_entry *>(bytes + cgr__plan_entries_offset(&c));
  int32_t num_tiles = total.sums.tiles, num_prefills = prefills_of(total.sums);
  h.num_entries = num_tiles;
  if (num_tiles > 0 && cgr__plan_is_cut(&c, num_tiles)) {
    __syncthreads(); /* the cuts have been read */
    h.num_entries = write_splits(c, l, num_prefills, num_tiles, entries);
  } else if (num_tiles > 0) {
    write_tiles(c, l, num_prefills, num_tiles, entries);
  }
  h.num_items = h.num_entries * c.head_blocks;
  if (threadIdx.x == 0)
    *reinterpret_cast<cgr__plan_header *>(plan) = h;
  for (int32_t i = (int32_t)(blockIdx.x * kThreads + threadIdx.x); i < a.num_counters; i += (int32_t)gridDim.x * kThreads)
    a.counters[i] = 0;
}

static_assert(CGR__PLANNER_SHARED_FIXED >= 1024 + 4000, "what __shared__ takes, and the device itself");

size_t shared_bytes(const cgr__planner_args *a) {
  size_t most = 0;
  for (int32_t i = 0; i < a->num_classes; i++) {
    size_t bytes = lists_bytes(a->padded_requests, a->classes[i].num_parts);
    most = bytes > most ? bytes : most;
  }
  return most;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_planner(const void *args, cudaStream_t stream) {
  const cgr__planner_args *a = static_cast<const cgr__planner_args *>(args);
  if (a->padded_requests < 0 || a->padded_requests > CGR__MAX_REQUESTS || a->num_classes < 0 || a->num_classes > CGR__MAX_CLASSES)
    return (int)cudaErrorInvalidValue;
  if (a->num_classes == 0)
    return 0;
  return cgr::launch(cgr::planner_kernel, args, dim3((unsigned)a->num_classes), dim3(cgr::kThreads), cgr::shared_bytes(a),
                     stream);
}

/* As much shared memory as the device gives, up to what the most requests and parts take. What a configuration wants has already
 * been compared with the device (kernels/registry.c). */
extern "C" int cgr__cuda_planner_preload(void) {
  size_t bytes = cgr::lists_bytes(CGR__MAX_REQUESTS, CGR__MAX_PARTS);
  int error = cgr::preload(cgr::planner_kernel, bytes);
  for (; error == (int)cudaErrorInvalidValue && bytes > 1024; bytes -= 1024)
    error = cgr::preload(cgr::planner_kernel, bytes - 1024);
  return error;
}

/* Writes the attention plans of the batch that the prologue left (planners/attention/plan.h): the host planner's arithmetic, one
 * block for each plan class. Few threads and registers, so that a block finds room beside an engine's kernel that fills the
 * SMs.
 *
 * Every thread takes neighbouring requests for a first running sum (costs of the line, its requests, those of the queue and their
 * q tiles), then every thread a cut of the line, then a part; at last the entries of the queue, as many at a time as there are
 * threads. */
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/planner.h"
#include "kernels/step.h"

namespace cgr {
namespace {

constexpr int kThreads = 320; /* a cut for each part of 132 or 148 SMs with two CTAs each */
constexpr int kWarps = kThreads / 32;

static_assert(sizeof(cgr__plan_header) == 64 && sizeof(cgr__plan_part) == 48 && sizeof(cgr__plan_entry) == 32,
              "the plan is rows of 16 bytes");
static_assert(CGR__MAX_REQUESTS <= 1 << 16, "requests are kept in 16 bits");

/* Dynamic shared memory: what depends on the numbers of requests and parts. */
struct Lists {
  int64_t *prefix;       /* [B_r + 1] costs of the line */
  cgr__plan_point *cuts; /* [G + 1] */
  int32_t *slots;        /* [G + 1] */
  int32_t *num_kv;       /* [B_r] of the line */
  int32_t *tiles;        /* [B_r + 1] running sum of the queue's q tiles */
  uint32_t *starts;      /* [G / 32 + 1] a bit for each part that starts a tile and does not end it */
  uint16_t *line;        /* [B_r] requests */
  uint16_t *queue;       /* [B_r] */
};

__host__ __device__ inline size_t rounded(size_t bytes) { return (bytes + 15) / 16 * 16; }

__host__ __device__ inline size_t lists_bytes(int32_t requests, int32_t parts) {
  size_t n = (size_t)requests + 1, g = (size_t)parts + 1;
  return rounded(n * 8) + rounded(g * sizeof(cgr__plan_point)) + rounded(g * 4) + 2 * rounded(n * 4) + rounded((g / 32 + 1) * 4) +
         2 * rounded(n * 2);
}

__device__ __forceinline__ Lists make_lists(unsigned char *at, int32_t requests, int32_t parts) {
  size_t n = (size_t)requests + 1, g = (size_t)parts + 1;
  Lists l;
  l.prefix = reinterpret_cast<int64_t *>(at);
  l.cuts = reinterpret_cast<cgr__plan_point *>(at += rounded(n * 8));
  l.slots = reinterpret_cast<int32_t *>(at += rounded(g * sizeof(cgr__plan_point)));
  l.num_kv = reinterpret_cast<int32_t *>(at += rounded(g * 4));
  l.tiles = reinterpret_cast<int32_t *>(at += rounded(n * 4));
  l.starts = reinterpret_cast<uint32_t *>(at += rounded(n * 4));
  l.line = reinterpret_cast<uint16_t *>(at += rounded((g / 32 + 1) * 4));
  l.queue = reinterpret_cast<uint16_t *>(at + rounded(n * 2));
  return l;
}

/* What is summed over the requests. */
struct Sums {
  int64_t cost;
  int32_t line, queue, tiles, emptied;
};

__device__ __forceinline__ Sums operator+(const Sums &a, const Sums &b) {
  return { a.cost + b.cost, a.line + b.line, a.queue + b.queue, a.tiles + b.tiles, a.emptied + b.emptied };
}

__device__ __forceinline__ Sums shift_up(const Sums &s, int d) {
  return { __shfl_up_sync(~0u, s.cost, d), __shfl_up_sync(~0u, s.line, d), __shfl_up_sync(~0u, s.queue, d),
           __shfl_up_sync(~0u, s.tiles, d), __shfl_up_sync(~0u, s.emptied, d) };
}

__device__ __forceinline__ int32_t shift_up(int32_t s, int d) { return __shfl_up_sync(~0u, s, d); }

/* The sum of the threads before this one; `total` gets the sum of all. Ends with a barrier, so that the scratch may be used again
 * at once. */
template <typename T> __device__ __forceinline__ T sum_before(T value, T (&scratch)[kWarps], T &total) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  T upto = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    T other = shift_up(upto, d);
    if (lane >= d)
      upto = upto + other;
  }
  if (lane == 31)
    scratch[warp] = upto;
  T before = shift_up(upto, 1);
  if (lane == 0)
    before = T{};
  __syncthreads();
  total = T{};
#pragma unroll
  for (int w = 0; w < kWarps; w++) {
    if (w < warp)
      before = before + scratch[w];
    total = total + scratch[w];
  }
  __syncthreads();
  return before;
}

/* --------------------------------------------------------------------------------------------------------------- requests */

struct Batch {
  const int32_t *query_start, *seq_lens;
  int32_t num_requests;
};

struct Request {
  int32_t given, query_len, seq_len; /* query_len: 0 for one that a guard has emptied */
};

__device__ __forceinline__ Request read_request(const Batch &b, int32_t i) {
  Request r;
  r.given = b.query_start[i + 1] - b.query_start[i];
  r.seq_len = b.seq_lens[i];
  r.query_len = cgr__plan_live_len(r.given, r.seq_len);
  return r;
}

__device__ __forceinline__ int32_t line_tiles(const cgr__plan_class &c, const Request &r) {
  cgr__plan_range kv = cgr__plan_line_range(&c, r.query_len, r.seq_len);
  return kv.end - kv.begin;
}

__device__ __forceinline__ Sums sums_of(const cgr__plan_class &c, const Request &r) {
  Sums s = {};
  s.emptied = r.given > r.query_len;
  if (r.query_len > c.line_query_len) {
    s.queue = 1;
    s.tiles = cgr__plan_num_q_tiles(&c, r.query_len);
  } else if (r.query_len > 0) {
    s.line = 1;
    s.cost = c.head_blocks * cgr__plan_tile_cost(&c, line_tiles(c, r));
  }
  return s;
}

/* Sorts the requests into line and queue. */
__device__ __forceinline__ Sums sort_requests(const cgr__plan_class &c, const Batch &b, const Lists &l, int32_t *line) {
  __shared__ Sums scratch[kWarps];
  int32_t each = (b.num_requests + kThreads - 1) / kThreads;
  int32_t first = (int32_t)threadIdx.x * each, end = min(first + each, b.num_requests);
  Sums own = {}, total;
  for (int32_t i = first; i < end; i++)
    own = own + sums_of(c, read_request(b, i));
  Sums at = sum_before(own, scratch, total);
  for (int32_t i = first; i < end; i++) {
    Request r = read_request(b, i);
    Sums s = sums_of(c, r);
    if (s.line) {
      line[at.line] = i;
      l.line[at.line] = (uint16_t)i;
      l.num_kv[at.line] = line_tiles(c, r);
      l.prefix[at.line] = at.cost;
    } else if (s.queue) {
      l.queue[at.queue] = (uint16_t)i;
      l.tiles[at.queue] = at.tiles;
    }
    at = at + s;
  }
  if (threadIdx.x == 0) {
    l.prefix[total.line] = total.cost;
    l.tiles[total.queue] = total.tiles;
  }
  __syncthreads();
  return total;
}

/* -------------------------------------------------------------------------------------------------------------- the line */

/* The bit at or after p; G when there is none. */
__device__ __forceinline__ int32_t next_start(const uint32_t *starts, int32_t p, int32_t num_parts) {
  int32_t word = p / 32, last = num_parts / 32;
  uint32_t bits = starts[word] & ~0u << (p & 31);
  while (bits == 0 && word < last)
    bits = starts[++word];
  return bits ? word * 32 + __ffs((int)bits) - 1 : num_parts;
}

/* The bit before p; -1 when there is none. */
__device__ __forceinline__ int32_t start_before(const uint32_t *starts, int32_t p) {
  int32_t word = p / 32;
  uint32_t bits = starts[word] & ~(~0u << (p & 31));
  while (bits == 0 && word > 0)
    bits = starts[--word];
  return bits ? word * 32 + 31 - __clz((int)bits) : -1;
}

/* The KV tiles of every tile, or 0 when they differ. */
__device__ __forceinline__ int32_t equal_tiles(const Lists &l, int32_t num_line) {
  int differ = 0;
  for (int32_t k = (int32_t)threadIdx.x; k < num_line; k += kThreads)
    differ |= l.num_kv[k] != l.num_kv[0];
  return __syncthreads_or(differ) || num_line == 0 ? 0 : l.num_kv[0];
}

__device__ __forceinline__ void cut_line(const cgr__plan_class &c, const Lists &l, const cgr__plan_header &h) {
  __shared__ int32_t scratch[kWarps];
  for (int32_t p = (int32_t)threadIdx.x; p <= c.num_parts; p += kThreads)
    l.cuts[p] = cgr__plan_locate(&c, p * h.cost_per_part, l.prefix, l.num_kv, h.num_line, h.snap);
  __syncthreads();
  int32_t before = 0;
  for (int32_t base = 0; base <= c.num_parts; base += kThreads) {
    int32_t p = base + (int32_t)threadIdx.x, slots = 0, starts = 0, total;
    if (p < c.num_parts) {
      int32_t n = l.cuts[p].kv > 0 ? l.num_kv[l.cuts[p].line] : 0;
      starts = cgr__plan_starts(&l.cuts[p], &l.cuts[p + 1]);
      slots = cgr__plan_begin_slots(&c, &l.cuts[p], &l.cuts[p + 1], n) + starts;
    }
    uint32_t bits = __ballot_sync(~0u, starts);
    if (p % 32 == 0 && p / 32 <= c.num_parts / 32)
      l.starts[p / 32] = bits;
    int32_t at = sum_before(slots, scratch, total);
    if (p <= c.num_parts)
      l.slots[p] = before + at;
    before += total;
  }
  __syncthreads();
}

__device__ __forceinline__ void write_parts(const cgr__plan_class &c, const Lists &l, int32_t num_line, cgr__plan_part *parts) {
  for (int32_t p = (int32_t)threadIdx.x; p < c.num_parts; p += kThreads) {
    cgr__plan_around around;
    around.before = start_before(l.starts, p);
    around.next = next_start(l.starts, p, c.num_parts);
    around.after = next_start(l.starts, p + 1, c.num_parts);
    int32_t line = l.cuts[p].line;
    cgr__plan_part part = cgr__plan_make_part(&c, p, l.cuts, l.slots, around, line < num_line ? l.line[line] : -1);
    const int4 *from = reinterpret_cast<const int4 *>(&part);
    int4 *to = reinterpret_cast<int4 *>(&parts[p]);
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
  }
}

/* ------------------------------------------------------------------------------------------------------------- the queue */

struct QueueTile {
  int32_t request, q_tile;
  cgr__plan_range kv;
};

/* Tile e of the queue, in the order of the batch. */
__device__ __forceinline__ QueueTile find_tile(const cgr__plan_class &c, const Batch &b, const Lists &l, int32_t num_queue,
                                               int32_t e) {
  int32_t low = 0, high = num_queue; /* tiles[low] <= e < tiles[high] */
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (l.tiles[middle] <= e)
      low = middle;
    else
      high = middle;
  }
  QueueTile tile;
  tile.request = l.queue[low];
  tile.q_tile = e - l.tiles[low];
  Request r = read_request(b, tile.request);
  tile.kv = cgr__plan_queue_range(&c, r.query_len, r.seq_len, tile.q_tile);
  return tile;
}

__device__ __forceinline__ void write_entry(cgr__plan_entry *to, const cgr__plan_entry &entry) {
  const int4 *from = reinterpret_cast<const int4 *>(&entry);
  reinterpret_cast<int4 *>(to)[0] = from[0];
  reinterpret_cast<int4 *>(to)[1] = from[1];
}

/* Fewer tiles than parts: each in pieces. Returns the number of entries. */
__device__ __noinline__ int32_t write_pieces(const cgr__plan_class &c, const Batch &b, const Lists &l, int32_t num_queue,
                                             int32_t num_tiles, cgr__plan_entry *entries) {
  __shared__ int32_t scratch[kWarps];
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0)
    sum = 0;
  __syncthreads();
  for (int32_t e = (int32_t)threadIdx.x; e < num_tiles; e += kThreads) {
    QueueTile tile = find_tile(c, b, l, num_queue, e);
    atomicAdd(&sum, (unsigned long long)(tile.kv.end - tile.kv.begin));
  }
  __syncthreads();
  int32_t first = 0;
  for (int32_t base = 0; base < num_tiles; base += kThreads) {
    int32_t e = base + (int32_t)threadIdx.x, count = 0, total;
    QueueTile tile = {};
    if (e < num_tiles) {
      tile = find_tile(c, b, l, num_queue, e);
      count = cgr__plan_num_pieces(&c, tile.kv.end - tile.kv.begin, (int64_t)sum);
    }
    int32_t at = first + sum_before(count, scratch, total);
    for (int32_t piece = 0; piece < count; piece++)
      write_entry(&entries[at + piece], cgr__plan_make_entry(tile.request, tile.q_tile, tile.kv, at, count, piece));
    first += total;
  }
  return first;
}

/* Whole tiles, by buckets of their cost, stable: as many at a time as there are threads, each warp counting its own. */
__device__ __noinline__ void write_tiles(const cgr__plan_class &c, const Batch &b, const Lists &l, int32_t num_queue,
                                         int32_t num_tiles, cgr__plan_entry *entries) {
  __shared__ int32_t place[CGR__PLAN_BUCKETS];           /* of the next entry of a bucket */
  __shared__ int32_t of_warp[kWarps][CGR__PLAN_BUCKETS]; /* entries of a bucket that a warp has */
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (threadIdx.x < CGR__PLAN_BUCKETS)
    place[threadIdx.x] = 0;
  __syncthreads();
  for (int32_t e = (int32_t)threadIdx.x; e < num_tiles; e += kThreads) {
    QueueTile tile = find_tile(c, b, l, num_queue, e);
    atomicAdd(&place[cgr__plan_bucket(tile.kv.end - tile.kv.begin)], 1);
  }
  __syncthreads();
  if (warp == 0) { /* counts become places: each lane has two buckets */
    int32_t one = place[2 * lane], both = one + place[2 * lane + 1], upto = both;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      int32_t other = __shfl_up_sync(~0u, upto, d);
      upto += lane >= d ? other : 0;
    }
    place[2 * lane] = upto - both;
    place[2 * lane + 1] = upto - both + one;
  }
  for (int32_t base = 0; base < num_tiles; base += kThreads) {
    int32_t e = base + (int32_t)threadIdx.x, bucket = -1;
    QueueTile tile = {};
    for (int u = lane; u < CGR__PLAN_BUCKETS; u += 32)
      of_warp[warp][u] = 0;
    __syncwarp();
    if (e < num_tiles) {
      tile = find_tile(c, b, l, num_queue, e);
      bucket = cgr__plan_bucket(tile.kv.end - tile.kv.begin);
    }
    uint32_t same = __match_any_sync(~0u, bucket);
    int32_t rank = __popc(same & ~(~0u << lane));
    if (bucket >= 0 && rank == 0)
      of_warp[warp][bucket] = __popc(same);
    __syncthreads();
    if (bucket >= 0) {
      int32_t at = place[bucket] + rank;
      for (int w = 0; w < warp; w++)
        at += of_warp[w][bucket];
      write_entry(&entries[at], cgr__plan_make_entry(tile.request, tile.q_tile, tile.kv, 0, 1, 0));
    }
    __syncthreads();
    if (threadIdx.x < CGR__PLAN_BUCKETS)
      for (int w = 0; w < kWarps; w++)
        place[threadIdx.x] += of_warp[w][threadIdx.x];
    __syncthreads();
  }
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

__global__ void __launch_bounds__(kThreads) planner_kernel(const __grid_constant__ cgr__planner_args a) {
  extern __shared__ __align__(16) unsigned char memory[];
  const cgr__plan_class &c = a.classes[blockIdx.x];
  int32_t *plan = a.plan + a.offset[blockIdx.x];
  unsigned char *bytes = reinterpret_cast<unsigned char *>(plan);
  Batch b = { a.query_start_loc, a.seq_lens[c.length_set], a.counts[CGR__COUNT_REQUESTS] };
  Lists l = make_lists(memory, a.padded_requests, c.num_parts);
  for (int32_t i = (int32_t)(blockIdx.x * kThreads + threadIdx.x); i < a.num_counters; i += (int32_t)gridDim.x * kThreads)
    a.counters[i] = 0;

  Sums sums = sort_requests(c, b, l, reinterpret_cast<int32_t *>(bytes + cgr__plan_line_offset(&c)));
  cgr__plan_header h = {};
  h.num_parts = c.num_parts;
  h.head_blocks = c.head_blocks;
  h.num_line = sums.line;
  h.num_emptied = sums.emptied;
  h.cost = sums.cost;
  int64_t mean = cgr__plan_mean(&c, sums.cost);
  h.snap = cgr__plan_snap(&c, mean);
  h.cost_per_part = cgr__plan_cost_per_part(&c, mean, h.snap, equal_tiles(l, sums.line));
  cut_line(c, l, h);
  write_parts(c, l, h.num_line, reinterpret_cast<cgr__plan_part *>(bytes + sizeof h));

  cgr__plan_entry *entries = reinterpret_cast<cgr__plan_entry *>(bytes + cgr__plan_entries_offset(&c));
  h.num_entries = sums.tiles;
  if (sums.tiles > 0 && cgr__plan_is_cut(&c, sums.tiles))
    h.num_entries = write_pieces(c, b, l, sums.queue, sums.tiles, entries);
  else if (sums.tiles > 0)
    write_tiles(c, b, l, sums.queue, sums.tiles, entries);
  h.num_items = h.num_entries * c.head_blocks;
  if (threadIdx.x == 0)
    *reinterpret_cast<cgr__plan_header *>(plan) = h;
}

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

/* Not every device has the shared memory for the most requests and the most parts at once. */
extern "C" int cgr__cuda_planner_preload(void) {
  int error = cgr::preload(cgr::planner_kernel, cgr::lists_bytes(CGR__MAX_REQUESTS, CGR__MAX_PARTS));
  return error ? cgr::preload(cgr::planner_kernel, cgr::lists_bytes(CGR__MAX_REQUESTS, CGR__MAX_PARTS / 8)) : 0;
}

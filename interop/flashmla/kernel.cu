/* FlashMLA's tile scheduler metadata (interop/flashmla/format.h), by one block. Upstream's kernel is one thread that goes
 * through parts and requests. Here a warp finds for 32 or 64 requests at once which snap follows which
 * (jumps.h), and one warp goes through all requests in steps of as many. Each request then knows the rest by itself:
 * where parts begin in it, and its splits. Four barriers: after the sum, on both sides of that walk, and before the parts are
 * written. Most of the time goes to the integer units of one multiprocessor, which are half as many as those for floats. */
#include "devices/cuda/launch.cuh"
#include "interop/launchers.h"
#include "interop/formats.h"
#include "base/limits.h"
#include "interop/flashmla/jumps.h"

namespace cgr {
namespace {

constexpr int kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32;
constexpr int kMaxEach = CGR__MAX_REQUESTS / kMaxThreads; /* chunks of 32 requests of a warp at most, neighbours */
constexpr int kMaxSpan = 2;                               /* chunks that the walk goes through in one step */
constexpr int32_t kMaxParts = CGR__FLASHMLA_MAX_PARTS;

/* Where the cursor is after a step of the walk in which a request is the first that is snapped to. */
struct __align__(16) Exit {
  uint32_t angle; /* of the request */
  uint32_t cursor_angle, cursor;
  uint32_t passed; /* wraps on the way, and snaps << 16 */
};

/* Where the cursor is before a step of the walk; of a single chunk the first lane that is snapped to, 32: none. */
struct __align__(16) Entry {
  uint32_t cursor, passed;
  int32_t lane;
  uint32_t cursor_angle;
};

/* The request that a part is the first to begin in, and the block. */
struct __align__(8) First {
  int32_t request, block;
};

/* Dynamic shared memory, with room for B requests and P parts. */
struct Lists {
  Exit *exits;    /* [B up to a multiple of 32 * kMaxSpan] */
  Entry *entries; /* [steps] */
  First *firsts;  /* [P] where is_first says so */
  int32_t *ends;  /* [B] blocks; 0: no tokens */
  size_t bytes;
};

struct Shared {
  int32_t sums[2][kMaxWarps];
  uint4 angles[kMaxWarps][kMaxSpan][8]; /* of the chunks that a warp is at */
  uint32_t is_first[kMaxParts / 32];    /* a bit for each part that is the first to begin in a request */
  cgr__flashmla_place end;              /* of all requests; for the last request alone */
  int32_t num_parts, num_snaps;         /* parts with work; those of them that begin with a request */
};

__host__ __device__ inline Lists make_lists(unsigned char *base, int32_t requests, int32_t parts) {
  size_t chunks = ((size_t)requests + 32 * kMaxSpan - 1) / (32 * kMaxSpan) * kMaxSpan, at = 0;
  Lists l;
  l.exits = reinterpret_cast<Exit *>(base);
  at += chunks * 32 * sizeof(Exit);
  l.entries = reinterpret_cast<Entry *>(base + at);
  at += chunks * sizeof(Entry);
  l.firsts = reinterpret_cast<First *>(base + at);
  at += (size_t)parts * sizeof(First);
  l.ends = reinterpret_cast<int32_t *>(base + at);
  l.bytes = at + (size_t)requests * 4;
  return l;
}

__device__ __forceinline__ int lane_id() { return (int)(threadIdx.x & 31); }
__device__ __forceinline__ int warp_id() { return (int)(threadIdx.x >> 5); }
__device__ __forceinline__ uint32_t below(int lane) { return (1u << lane) - 1; }
__device__ __forceinline__ int highest(uint32_t bits) { return 31 - __clz((int)bits); }

/* Adds what the lane d below has, if there is one: the shuffle says so by itself. */
template <int d> __device__ __forceinline__ void add_from_below(int32_t &sum) {
  asm volatile("{ .reg .pred p; .reg .s32 o; shfl.sync.up.b32 o|p, %0, %1, 0, -1; @p add.s32 %0, %0, o; }" : "+r"(sum) : "n"(d));
}

/* In each value the sum of those before it, in the order of requests; the sum of all. One barrier. */
template <int kEach> __device__ __forceinline__ int32_t sum_before(int32_t (&values)[kEach], int32_t *sums, int warps) {
  int lane = lane_id(), warp = warp_id();
  int32_t own = 0;
  if (warp < warps) {
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      int32_t upto = values[k];
      add_from_below<1>(upto);
      add_from_below<2>(upto);
      add_from_below<4>(upto);
      add_from_below<8>(upto);
      add_from_below<16>(upto);
      values[k] = own + upto - values[k];
      own += __shfl_sync(~0u, upto, 31);
    }
    if (lane == 0)
      sums[warp] = own;
  }
  __syncthreads();
  int32_t theirs = lane < warps ? sums[lane] : 0;
  int32_t before = __reduce_add_sync(~0u, lane < warp ? theirs : 0);
#pragma unroll
  for (int k = 0; k < kEach; k++)
    values[k] += before;
  return __reduce_add_sync(~0u, theirs);
}

/* 16 lanes as a float, 2^23 + the sum of 2^lane: lane k is bit k of the float's word. So a lane is added by a unit for floats. */
constexpr float kNoLanes = 8388608;
__device__ __forceinline__ uint32_t lanes_of(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410);
}

/* Adds `bit` when a request is snapped to, in three instructions: the compiler makes four of an if. */
__device__ __forceinline__ void mark(float &lanes, uint32_t angle, uint32_t cursor, uint32_t reach, float bit) {
  asm("{ .reg .pred p; .reg .u32 d; sub.u32 d, %1, %2; setp.le.u32 p, d, %3; @p add.rn.f32 %0, %0, %4; }"
      : "+f"(lanes)
      : "r"(angle), "r"(cursor), "r"(reach), "f"(bit));
}

/* Which of the k-th four of 16 angles are snapped to from a cursor. */
__device__ __forceinline__ void mark_four(float &lanes, int k, const uint4 &angles, uint32_t cursor, uint32_t reach) {
  float bit = (float)(1 << 4 * k);
  mark(lanes, angles.x, cursor, reach, bit);
  mark(lanes, angles.y, cursor, reach, bit * 2);
  mark(lanes, angles.z, cursor, reach, bit * 4);
  mark(lanes, angles.w, cursor, reach, bit * 8);
}

/* Lanes of a chunk that hold a live request, `left` from its first one on. */
__device__ __forceinline__ uint32_t live_lanes(int32_t left) { return left <= 0 ? 0 : ~0u >> (32 - min(left, 32)); }

/* What a warp knows of a chunk by itself. */
struct Chunk {
  cgr__flashmla_place place; /* of the lane's request */
  uint32_t path, wraps;      /* snaps that follow one here, itself included; lanes from which the next one is past 0 */
};

/* Neighbouring chunks, the first of them `left` requests before the end: what follows in each, and where the cursor is after all
 * of them when the lane's request in each is the first that is snapped to. */
template <int kSpan>
__device__ __forceinline__ void follow(const cgr__flashmla_circle &o, uint4 (*angles)[8], int32_t left, Chunk (&chunk)[kSpan],
                                       Exit (&exit)[kSpan]) {
  static_assert(kSpan <= 2, "one bit of the lane says which chunk");
  constexpr int kLast = kSpan - 1;
  int lane = lane_id(), to[kSpan];
  uint32_t first_cursor = chunk[0].place.angle, low_cursor = first_cursor;
  float low[kSpan], high[kSpan], beyond_low = kNoLanes, beyond_high = kNoLanes;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kSpan; n++) {
    reinterpret_cast<uint32_t *>(angles[n])[lane] = chunk[n].place.angle;
    low[n] = high[n] = kNoLanes;
  }
  /* A request on lanes 16 .. 31 is never followed by one on lanes 0 .. 15, so those lanes test the low half of the second chunk
   * on behalf of lanes 0 .. 15. */
  uint32_t second_cursor = kSpan > 1 ? __shfl_sync(~0u, chunk[kLast].place.angle, lane & 15) : 0;
  if (kSpan > 1 && lane >= 16)
    low_cursor = second_cursor;
  const uint4 *lows = angles[kSpan > 1 ? lane >> 4 : 0];
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; k++) {
    mark_four(low[0], k, lows[k], low_cursor, o.reach);
#pragma unroll
    for (int n = 0; n < kSpan; n++) {
      uint4 four = angles[n][4 + k];
      mark_four(high[n], k, four, chunk[n].place.angle, o.reach);
      if (n > 0) {
        mark_four(beyond_high, k, four, first_cursor, o.reach);
        mark_four(beyond_low, k, angles[n][k], first_cursor, o.reach);
      }
    }
  }
  if (kSpan > 1)
    low[kLast] = __shfl_sync(~0u, low[0], lane | 16);
#pragma unroll
  for (int n = 0; n < kSpan; n++) {
    uint32_t angle = chunk[n].place.angle, later = lanes_of(low[n], high[n]) & (~1u << lane) & live_lanes(left - 32 * n);
    to[n] = later != 0 ? __ffs((int)later) - 1 : lane;
    chunk[n].wraps = __ballot_sync(~0u, __shfl_sync(~0u, angle, to[n]) < angle);
    chunk[n].path = 1u << lane;
  }
#pragma unroll
  for (int round = 0; round < 5; round++) {
    bool more = false;
#pragma unroll
    for (int n = 0; n < kSpan; n++) {
      int from = to[n];
      chunk[n].path |= __shfl_sync(~0u, chunk[n].path, from);
      to[n] = __shfl_sync(~0u, from, from);
      more = more || to[n] != from;
    }
    if (kSpan > 1 && !__any_sync(~0u, more)) /* few snaps, mostly */
      break;
  }
#pragma unroll
  for (int n = 0; n < kSpan; n++) {
    exit[n].angle = chunk[n].place.angle;
    exit[n].cursor_angle = __shfl_sync(~0u, chunk[n].place.angle, to[n]);
    exit[n].cursor = __shfl_sync(~0u, chunk[n].place.residue, to[n]);
    exit[n].passed = (uint32_t)__popc(chunk[n].path & chunk[n].wraps) | (uint32_t)__popc(chunk[n].path) << 16;
  }
  if (kSpan == 1)
    return;
  /* From the last snap in the first chunk on: its lane has asked already which one is next. */
  uint32_t next = __shfl_sync(~0u, lanes_of(beyond_low, beyond_high) & live_lanes(left - 32), to[0]);
  int first = __ffs((int)next) - 1; /* -1 for none: what comes of it is not used */
  uint32_t angle = __shfl_sync(~0u, exit[kLast].angle, first), cursor_angle = __shfl_sync(~0u, exit[kLast].cursor_angle, first);
  uint32_t cursor = __shfl_sync(~0u, exit[kLast].cursor, first), passed = __shfl_sync(~0u, exit[kLast].passed, first);
  if (next != 0)
    exit[0] = { exit[0].angle, cursor_angle, cursor, exit[0].passed + passed + (angle < exit[0].cursor_angle) };
}

/* Where the exit of a request is. A lane of the walk has kSpan neighbours, and without the exclusive or they would be in the
 * same banks when they are written. */
template <int kSpan> __device__ __forceinline__ int32_t exit_at(int32_t request) {
  if (kSpan == 1)
    return request;
  int32_t half = request & 1;
  return (request & ~63) + half * 32 + ((request >> 1 & 31) ^ half << 2);
}

/* Takes the cursor through all requests, kSpan chunks in a step, by one warp. Lanes hold requests in reverse, so that the first
 * one is the highest bit. When nothing snaps, lane -1 is asked, which is lane 31, and where the cursor is at rest then. */
template <int kSpan> __device__ __forceinline__ void walk(const Lists &l, uint32_t reach, int32_t num_live) {
  constexpr int kRequests = 32 * kSpan;
  int own = (31 - lane_id()) * kSpan;
  int32_t steps = (num_live + kRequests - 1) / kRequests;
  uint32_t cursor_angle = 0, cursor = 0, passed = 0;
  const Exit *from[kSpan];
  Exit next[kSpan];
#pragma unroll
  for (int k = 0; k < kSpan; k++) {
    from[k] = l.exits + exit_at<kSpan>(own + k);
    next[k] = *from[k];
  }
  for (int32_t step = 0; step < steps; step++) {
    uint32_t to_angle = cursor_angle, to = cursor, to_passed = passed;
    bool snaps = false;
#pragma unroll
    for (int k = kSpan - 1; k >= 0; k--) {
      Exit e = next[k];
      from[k] += step + 1 < steps ? kRequests : 0;
      next[k] = *from[k];
      uint32_t limit = own + k < num_live - step * kRequests ? reach + 1 : 0; /* not on the way from one cursor to the next */
      bool here = e.angle - cursor_angle < limit;
      snaps = snaps || here;
      to_angle = here ? e.cursor_angle : to_angle;
      to = here ? e.cursor : to;
      to_passed = here ? passed + e.passed + (e.angle < cursor_angle) : to_passed;
    }
    int first = highest(__ballot_sync(~0u, snaps));
    if (lane_id() == 0)
      l.entries[step] = { cursor, passed, 31 - first, cursor_angle };
    cursor_angle = __shfl_sync(~0u, to_angle, first);
    cursor = __shfl_sync(~0u, to, first);
    passed = __shfl_sync(~0u, to_passed, first);
  }
}

/* What a request knows in the end: where parts are in it, the snaps before it, and the cursor after it. */
struct Known {
  cgr__flashmla_inside in;
  int32_t snaps, wraps;
  uint32_t cursor;
};

/* With `has_next`, `e` is the entry of the next chunk then, but for its lane. */
__device__ __forceinline__ Known look(const cgr__flashmla_circle &o, const Chunk &chunk, bool has_next, Entry &e) {
  int lane = lane_id();
  const cgr__flashmla_place &place = chunk.place;
  uint32_t taken = __shfl_sync(~0u, chunk.path, e.lane), entry = __shfl_sync(~0u, place.residue, e.lane);
  taken = e.lane < 32 ? taken : 0;
  uint32_t upto = taken & (below(lane) | 1u << lane);
  int last = highest(upto); /* -1 for none: what comes of it is not used */
  Known known;
  known.cursor = __shfl_sync(~0u, place.residue, last);
  known.cursor = upto != 0 ? known.cursor : e.cursor;
  known.wraps = (int32_t)(e.passed & 0xffff);
  if (upto != 0)
    known.wraps += (entry < e.cursor) + __popc(taken & chunk.wraps & below(last & 31));
  known.snaps = (int32_t)(e.passed >> 16) + __popc(taken & below(lane));
  known.in = cgr__flashmla_look(&o, place.turn, place.residue, known.cursor, known.wraps);
  if (!has_next)
    return known;
  uint32_t cursor_angle = __shfl_sync(~0u, place.angle, highest(taken));
  e.cursor_angle = taken != 0 ? cursor_angle : e.cursor_angle;
  e.cursor = __shfl_sync(~0u, known.cursor, 31);
  e.passed = (e.passed & ~0xffffu) + ((uint32_t)__popc(taken) << 16) + (uint32_t)__shfl_sync(~0u, known.wraps, 31);
  return known;
}

/* Quotas above c. */
template <int kEach>
__device__ __forceinline__ void know(const Lists &l, Shared &s, const cgr__flashmla_circle &o, const int32_t (&start)[kEach],
                                     int32_t total, int32_t overhead, int32_t num_live, int each, Known (&known)[kEach]) {
  constexpr int kSpan = kEach < kMaxSpan ? kEach : kMaxSpan;
  int32_t first_chunk = warp_id() * each, chunks = (num_live + 31) >> 5;
  Chunk chunk[kEach / kSpan][kSpan];
#pragma unroll
  for (int k = 0; k < kEach; k += kSpan) {
    if (k >= each || first_chunk + k >= chunks)
      continue;
    int32_t begin = (first_chunk + k) * 32;
    Exit exit[kSpan];
#pragma unroll
    for (int n = 0; n < kSpan; n++)
      chunk[k / kSpan][n].place = cgr__flashmla_place_of(&o, (uint32_t)start[k + n]);
    follow<kSpan>(o, s.angles[warp_id()], num_live - begin, chunk[k / kSpan], exit);
#pragma unroll
    for (int n = 0; n < kSpan; n++) {
      if (chunks > kSpan)
        l.exits[exit_at<kSpan>(begin + n * 32 + lane_id())] = exit[n];
    }
  }
  if (chunks > kSpan) {
    __syncthreads();
    if (warp_id() == 0)
      walk<kSpan>(l, o.reach, num_live);
  }
  /* By the last request's thread, which most often waits for the walk now. */
  if (first_chunk < chunks && first_chunk + each >= chunks && lane_id() == ((num_live - 1) & 31))
    s.end = cgr__flashmla_place_of(&o, (uint32_t)total);
  if (chunks > kSpan)
    __syncthreads();
#pragma unroll
  for (int k = 0; k < kEach; k += kSpan) {
    if (k >= each || first_chunk + k >= chunks)
      continue;
    Entry entry = { 0, 0, 0, 0 };
    if (chunks > kSpan)
      entry = l.entries[(first_chunk + k) / kSpan];
#pragma unroll
    for (int n = 0; n < kSpan; n++) {
      int32_t begin = (first_chunk + k + n) * 32;
      if (kSpan > 1) {
        uint32_t angle = chunk[k / kSpan][n].place.angle;
        uint32_t bits =
            __ballot_sync(~0u, cgr__flashmla_snaps(angle, entry.cursor_angle, o.reach)) & live_lanes(num_live - begin);
        entry.lane = bits != 0 ? __ffs((int)bits) - 1 : 32;
      }
      const Known w = known[k + n] = look(o, chunk[k / kSpan][n], n + 1 < kSpan, entry);
      if (begin + lane_id() == num_live - 1)
        s.num_parts = cgr__flashmla_end(&o, overhead, s.end.turn, s.end.residue, w.cursor, w.wraps);
    }
  }
}

/* Quotas of at most c: each request is snapped to, and its parts are its own. */
template <int kEach>
__device__ __forceinline__ void know_alone(Shared &s, int32_t quota, const int32_t (&blocks)[kEach], int32_t num_live, int each,
                                           int warps, Known (&known)[kEach]) {
  int32_t parts[kEach], first = warp_id() * each * 32 + lane_id();
#pragma unroll
  for (int k = 0; k < kEach; k++)
    parts[k] = k < each && first + k * 32 < num_live ? cgr__flashmla_ceil(blocks[k], quota) : 0;
  int32_t total = sum_before(parts, s.sums[1], warps);
  if (threadIdx.x == 0)
    s.num_parts = total;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    known[k].in = { parts[k], 0 };
    known[k].snaps = first + k * 32;
  }
}

/* 32 neighbouring parts by a warp. The first part to begin in a request, up to a part, is in the same word of is_first, or else
 * the last one in the words before, the same for all lanes; up to the next part it is that part, or the same again. */
__device__ __forceinline__ void write_parts(const cgr__flashmla_args &a, const Lists &l, const Shared &s, int32_t num_live,
                                            int32_t quota) {
  int lane = lane_id();
  if (warp_id() * 32 >= a.c.num_parts)
    return;
  uint32_t own = s.is_first[lane], words = __ballot_sync(~0u, own != 0);
  int32_t with_work = s.num_parts, first_blocks = cgr__flashmla_max(l.ends[0], 1);
  for (int32_t base = warp_id() * 32; base < a.c.num_parts; base += (int32_t)blockDim.x) {
    int word = base >> 5, before_word = highest(words & below(word)); /* -1 for none: then the part is not one with work */
    uint32_t here = __shfl_sync(~0u, own, word), after = __shfl_sync(~0u, own, word + 1);
    uint32_t upto = here & (~0u >> (31 - lane)), earlier = __shfl_sync(~0u, own, before_word);
    int32_t p = base + lane, first = upto != 0 ? base + highest(upto) : before_word * 32 + highest(earlier);
    if (p >= a.c.num_parts)
      continue;
    cgr__flashmla_point begin = { num_live, 0 }, end = { num_live, 0 };
    int32_t split = 0;
    if (p < with_work) {
      First f = l.firsts[first];
      begin = { f.request, f.block + (p - first) * quota };
      split = p - first + (f.block > 0);
    }
    if (p + 1 < with_work) {
      bool is_first = (__funnelshift_r(here, after, 1) >> lane & 1) != 0;
      First f = l.firsts[is_first ? p + 1 : first];
      end = { f.request, f.block + (is_first ? 0 : (p + 1 - first) * quota) };
    }
    /* Not asked for when the part ends in the first request, which is cut then. */
    int32_t before = l.ends[p < with_work ? cgr__flashmla_max(end.request - 1, 0) : a.c.num_requests - 1];
    __align__(16) int32_t to[CGR__FLASHMLA_WORDS];
    cgr__flashmla_part(&a.c, begin, end, num_live, split, before, first_blocks, to);
    int4 *out = reinterpret_cast<int4 *>(a.metadata + (size_t)p * CGR__FLASHMLA_WORDS);
    out[0] = make_int4(to[0], to[1], to[2], to[3]);
    out[1] = make_int4(to[4], to[5], to[6], to[7]);
  }
}

/* Few threads may have more registers each. */
constexpr int32_t most_threads(int each) { return each == 2 ? kMaxThreads / 2 : kMaxThreads; }

/* The tokens of the requests of a thread. All loads come before the first use, which waits for them. */
template <int kEach>
__device__ __forceinline__ void read_tokens(const cgr__flashmla_args &a, int32_t first, int each, int32_t (&tokens)[kEach]) {
  const int32_t *own_lens = cgr__flashmla_own_lens(&a.c, &a.lens), *extra_lens = cgr__flashmla_extra_lens(&a.c, &a.lens);
  int32_t own[kEach], extra[kEach];
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    bool is_request = k < each && first + k * 32 < a.c.num_requests;
    own[k] = is_request && own_lens != nullptr ? own_lens[first + k * 32] : a.c.topk;
    extra[k] = is_request && extra_lens != nullptr ? extra_lens[first + k * 32] : a.c.extra_topk;
  }
#pragma unroll
  for (int k = 0; k < kEach; k++)
    tokens[k] = cgr__flashmla_tokens_of(&a.c, own[k], extra[k]); /* of what is past the end, not used */
}

template <int kEach>
__global__ void __launch_bounds__(most_threads(kEach)) flashmla_kernel(const __grid_constant__ cgr__flashmla_args a) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared s;
  const cgr__flashmla_key &c = a.c;
  const Lists l = make_lists(memory, c.num_requests, c.num_parts);
  const int32_t chunks = (c.num_requests + 31) >> 5;
  const int each = kEach < kMaxEach ? kEach : (chunks + kMaxWarps * kMaxSpan - 1) / (kMaxWarps * kMaxSpan) * kMaxSpan;
  const int warps = (chunks + each - 1) / each;
  const int32_t first = warp_id() * each * 32 + lane_id();
  int32_t *num_splits = a.metadata + (size_t)c.num_parts * CGR__FLASHMLA_WORDS;
  int32_t blocks[kEach], start[kEach], live = c.num_requests;
  if (a.lens.live_requests != nullptr)
    live = *a.lens.live_requests;
  read_tokens(a, first, each, blocks);
  if (threadIdx.x < kMaxParts / 32)
    s.is_first[threadIdx.x] = 0;
  if (threadIdx.x == 0)
    s.num_parts = s.num_snaps = 0;
  live = cgr__flashmla_clamp(live, c.num_requests);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t tokens = blocks[k], i = first + k * 32;
    blocks[k] = cgr__flashmla_blocks(&c, tokens);
    start[k] = k < each && i < live ? blocks[k] + c.overhead : 0;
    if (k < each && i < c.num_requests)
      l.ends[i] = i < live && tokens > 0 ? blocks[k] : 0;
  }
  const int32_t total = sum_before(start, s.sums[0], warps), quota = cgr__flashmla_quota(&c, total);
  Known known[kEach];
  if (quota > c.overhead)
    know(l, s, cgr__flashmla_circle_for(quota, c.overhead), start, total, c.overhead, live, each, known);
  else
    know_alone(s, quota, blocks, live, each, warps, known);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t i = first + k * 32;
    if (k >= each || i >= live)
      continue;
    const Known &w = known[k];
    if (w.in.block < blocks[k]) {
      l.firsts[w.in.part] = { i, w.in.block };
      atomicOr(&s.is_first[w.in.part >> 5], 1u << (w.in.part & 31));
    }
    /* Each request has a split, and one more for each part that begins in it and did not snap. */
    num_splits[i] = i + w.in.part - w.snaps;
    if (i == live - 1)
      s.num_snaps = w.snaps + (w.in.block == 0);
  }
  __syncthreads();
  write_parts(a, l, s, live, quota);
  for (int32_t i = live + (int32_t)threadIdx.x; i <= c.num_requests; i += (int32_t)blockDim.x)
    num_splits[i] = live + s.num_parts - s.num_snaps;
}

/* What a thread does for itself is most of the work when there are many: then it has two requests. */
struct Instance {
  int32_t most_requests, each;
  void (*kernel)(cgr__flashmla_args);
};

constexpr Instance kInstances[] = { { 256, 1, flashmla_kernel<1> },
                                    { 1024, 2, flashmla_kernel<2> },
                                    { CGR__MAX_REQUESTS, kMaxEach, flashmla_kernel<kMaxEach> } };

/* As much shared memory as the device gives, up to `bytes`. */
int preload_most(void (*kernel)(cgr__flashmla_args), size_t bytes) {
  int error = preload(kernel, bytes);
  for (; error == (int)cudaErrorInvalidValue && bytes > 1024; bytes -= 1024)
    error = preload(kernel, bytes - 1024);
  return error;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_flashmla(const void *args, cudaStream_t stream) {
  const cgr__flashmla_args *a = static_cast<const cgr__flashmla_args *>(args);
  if (a->c.num_requests < 1 || a->c.num_requests > CGR__MAX_REQUESTS || a->c.num_parts < 1 || a->c.num_parts > cgr::kMaxParts)
    return (int)cudaErrorInvalidValue;
  const cgr::Instance *v = cgr::kInstances;
  while (a->c.num_requests > v->most_requests)
    v++;
  int32_t own = v->each == cgr::kMaxEach ? cgr::kMaxThreads : (a->c.num_requests + v->each - 1) / v->each;
  int32_t threads = cgr__flashmla_min((cgr__flashmla_max(own, a->c.num_parts) + 31) / 32 * 32, cgr::most_threads(v->each));
  size_t shared = cgr::make_lists(nullptr, a->c.num_requests, a->c.num_parts).bytes;
  return cgr::launch(v->kernel, args, dim3(1), dim3((unsigned)threads), shared, stream);
}

extern "C" int cgr__cuda_flashmla_preload(void) {
  for (const cgr::Instance &v : cgr::kInstances) {
    int error = cgr::preload_most(v.kernel, cgr::make_lists(nullptr, v.most_requests, cgr::kMaxParts).bytes);
    if (error != 0)
      return error;
  }
  return 0;
}

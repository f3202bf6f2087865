/* FlashMLA's tile scheduler metadata (planners/families/flashmla.h), by one block. Upstream's kernel is one thread that goes
 * through parts and requests. Here a warp knows for 32 requests at once which landing follows which (flashmla_jumps.h), and one
 * warp goes through all requests in steps of 32. What comes after that is known to each request by itself: where parts begin
 * in it, and its splits. Four barriers: after the sum, on both sides of that walk, and before the parts are written. */
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/families/families.h"
#include "base/limits.h"
#include "planners/families/flashmla_jumps.h"

namespace cgr {
namespace {

constexpr int kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32;
constexpr int kMaxEach = CGR__MAX_REQUESTS / kMaxThreads; /* chunks of 32 requests of a warp at most, neighbours */
constexpr int32_t kMaxParts = 1024;

/* Where the hand is after a chunk in which a request is the first that is landed on. */
struct __align__(16) Exit {
  uint32_t phase; /* of the request */
  uint32_t hand_phase, hand;
  uint32_t passed; /* wraps on the way, and landings << 16 */
};

/* Where the hand is before a chunk, and the first lane there that is landed on, 32: none. */
struct __align__(16) Entry {
  uint32_t hand, passed;
  int32_t lane, unused;
};

/* The request that a part is the first to begin in, and the block. */
struct __align__(8) First {
  int32_t request, block;
};

/* Dynamic shared memory, with room for B requests and P parts. */
struct Lists {
  Exit *exits;    /* [B up to a multiple of 32] */
  Entry *entries; /* [chunks] */
  First *firsts;  /* [P] where is_first says so */
  int32_t *ends;  /* [B] blocks; 0: no tokens */
  size_t bytes;
};

struct Shared {
  int32_t sums[2][kMaxWarps];
  uint4 phases[kMaxWarps][8];        /* of the chunk that a warp is at */
  uint32_t is_first[kMaxParts / 32]; /* a bit for each part that is the first to begin in a request */
  cgr__flashmla_place end;           /* of the line; for the last request alone */
  int32_t num_parts, num_landings;   /* parts with work; those of them that begin with a request */
};

__host__ __device__ inline Lists make_lists(unsigned char *base, int32_t requests, int32_t parts) {
  size_t chunks = ((size_t)requests + 31) / 32, at = 0;
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

/* In each value the sum of those before it, in the order of requests; the sum of all. One barrier. */
template <int kEach> __device__ __forceinline__ int32_t sum_before(int32_t (&values)[kEach], int32_t *sums, int warps) {
  int lane = lane_id(), warp = warp_id();
  int32_t own = 0;
  if (warp < warps) {
#pragma unroll
    for (int k = 0; k < kEach; k++) {
      int32_t upto = values[k];
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        int32_t other = __shfl_up_sync(~0u, upto, d);
        if (lane >= d)
          upto += other;
      }
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

/* Those of 32 phases that are landed on from one of them. */
__device__ __forceinline__ uint32_t landed_on(const uint4 *phases, uint32_t hand, uint32_t reach) {
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    uint4 p = phases[k];
    if (cgr__flashmla_lands(p.x, hand, reach))
      bits |= 1u << (4 * k);
    if (cgr__flashmla_lands(p.y, hand, reach))
      bits |= 2u << (4 * k);
    if (cgr__flashmla_lands(p.z, hand, reach))
      bits |= 4u << (4 * k);
    if (cgr__flashmla_lands(p.w, hand, reach))
      bits |= 8u << (4 * k);
  }
  return bits;
}

/* The landings of a chunk that follow one at this lane, itself included; in `wraps` the lanes from which the next landing is
 * past 0. */
__device__ __forceinline__ uint32_t follow(const cgr__flashmla_circle &o, const cgr__flashmla_place &place, uint4 *phases,
                                           int32_t valid, uint32_t &wraps, Exit &exit) {
  int lane = lane_id();
  __syncwarp();
  reinterpret_cast<uint32_t *>(phases)[lane] = place.phase;
  __syncwarp();
  uint32_t later = landed_on(phases, place.phase, o.reach) & (~1u << lane) & (~0u >> (32 - min(valid, 32)));
  int to = later != 0 ? __ffs((int)later) - 1 : lane;
  wraps = __ballot_sync(~0u, __shfl_sync(~0u, place.phase, to) < place.phase);
  uint32_t path = 1u << lane;
#pragma unroll
  for (int round = 0; round < 5; round++) {
    path |= __shfl_sync(~0u, path, to);
    to = __shfl_sync(~0u, to, to);
  }
  exit.phase = place.phase;
  exit.hand_phase = __shfl_sync(~0u, place.phase, to);
  exit.hand = __shfl_sync(~0u, place.residue, to);
  exit.passed = (uint32_t)__popc(path & wraps) | (uint32_t)__popc(path) << 16;
  return path;
}

/* Takes the hand through all chunks, by one warp. Lanes hold requests in reverse, so that the first one is the highest bit. */
__device__ __forceinline__ void walk(const Lists &l, uint32_t reach, int32_t num_live) {
  int lane = lane_id();
  int32_t chunks = (num_live + 31) >> 5, left = num_live - (31 - lane);
  uint32_t hand_phase = 0, hand = 0, passed = 0;
  const Exit *from = l.exits + (31 - lane);
  Exit next = from[0];
  for (int32_t chunk = 0; chunk < chunks; chunk++, left -= 32) {
    Exit e = next;
    from += chunk + 1 < chunks ? 32 : 0;
    next = *from;
    uint32_t limit = left > 0 ? reach + 1 : 0; /* not on the way from one hand to the next */
    uint32_t bits = __ballot_sync(~0u, e.phase - hand_phase < limit);
    int first = highest(bits);
    if (lane == 0)
      l.entries[chunk] = { hand, passed, 31 - first, 0 };
    uint32_t own = e.passed + (e.phase < hand_phase);
    uint32_t new_phase = __shfl_sync(~0u, e.hand_phase, first); /* of any lane when there is none: not used */
    uint32_t new_hand = __shfl_sync(~0u, e.hand, first);
    own = __shfl_sync(~0u, own, first);
    hand_phase = bits != 0 ? new_phase : hand_phase;
    hand = bits != 0 ? new_hand : hand;
    passed += bits != 0 ? own : 0;
  }
}

/* What a request knows in the end: where parts are in it, the landings before it, and the hand after it. */
struct Known {
  cgr__flashmla_inside in;
  int32_t landings, wraps;
  uint32_t hand;
};

__device__ __forceinline__ Known look(const cgr__flashmla_circle &o, const cgr__flashmla_place &place, uint32_t path,
                                      uint32_t wraps, const Entry &e) {
  int lane = lane_id();
  uint32_t taken = __shfl_sync(~0u, path, e.lane), entry = __shfl_sync(~0u, place.residue, e.lane);
  taken = e.lane < 32 ? taken : 0;
  uint32_t upto = taken & (below(lane) | 1u << lane);
  int last = highest(upto); /* -1 for none: what comes of it is not used */
  Known known;
  known.hand = __shfl_sync(~0u, place.residue, last);
  known.hand = upto != 0 ? known.hand : e.hand;
  known.wraps = (int32_t)(e.passed & 0xffff);
  if (upto != 0)
    known.wraps += (entry < e.hand) + __popc(taken & wraps & below(last & 31));
  known.landings = (int32_t)(e.passed >> 16) + __popc(taken & below(lane));
  known.in = cgr__flashmla_look(&o, place.turn, place.residue, known.hand, known.wraps);
  return known;
}

/* Quotas above c. */
template <int kEach>
__device__ __forceinline__ void know(const Lists &l, Shared &s, const cgr__flashmla_circle &o, const int32_t (&start)[kEach],
                                     int32_t total, int32_t overhead, int32_t num_live, int each, Known (&known)[kEach]) {
  int32_t first_chunk = warp_id() * each, chunks = (num_live + 31) >> 5;
  cgr__flashmla_place place[kEach];
  uint32_t path[kEach], wraps[kEach];
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    if (k >= each || first_chunk + k >= chunks)
      continue;
    int32_t begin = (first_chunk + k) * 32;
    Exit exit;
    place[k] = cgr__flashmla_place_of(&o, (uint32_t)start[k]);
    path[k] = follow(o, place[k], s.phases[warp_id()], num_live - begin, wraps[k], exit);
    if (chunks > 1)
      l.exits[begin + lane_id()] = exit;
    if (begin + lane_id() == num_live - 1) /* now: later on the compiler would find the inverse once more */
      s.end = cgr__flashmla_place_of(&o, (uint32_t)total);
  }
  if (chunks > 1) {
    __syncthreads();
    if (warp_id() == 0)
      walk(l, o.reach, num_live);
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    if (k >= each || first_chunk + k >= chunks)
      continue;
    Entry entry = { 0, 0, 0, 0 };
    if (chunks > 1)
      entry = l.entries[first_chunk + k];
    known[k] = look(o, place[k], path[k], wraps[k], entry);
    if ((first_chunk + k) * 32 + lane_id() == num_live - 1)
      s.num_parts = cgr__flashmla_end(&o, overhead, s.end.turn, s.end.residue, known[k].hand, known[k].wraps);
  }
}

/* Quotas of at most c: each request is landed on, and its parts are its own. */
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
    known[k].landings = first + k * 32;
  }
}

/* Where a part with work begins, and in which split of the request. `words`: those of is_first that are not 0. */
__device__ __forceinline__ cgr__flashmla_point find(const Lists &l, const Shared &s, uint32_t words, int32_t quota, int32_t part,
                                                    int32_t &split) {
  int32_t word = part >> 5;
  uint32_t bits = s.is_first[word] & (~0u >> (31 - (part & 31)));
  if (bits == 0) {
    word = highest(words & below(word));
    bits = s.is_first[word];
  }
  int32_t first = word * 32 + highest(bits);
  First f = l.firsts[first];
  split = part - first + (f.block > 0);
  return { f.request, f.block + (part - first) * quota };
}

__device__ __forceinline__ void write_parts(const cgr__flashmla_args &a, const Lists &l, const Shared &s, int32_t num_live,
                                            int32_t quota) {
  int lane = lane_id();
  if (warp_id() * 32 >= a.c.num_parts)
    return;
  uint32_t words = __ballot_sync(~0u, lane * 32 < a.c.num_parts && s.is_first[lane] != 0);
  int32_t with_work = s.num_parts, first_blocks = cgr__flashmla_max(l.ends[0], 1);
  for (int32_t p = (int32_t)threadIdx.x; p < a.c.num_parts; p += (int32_t)blockDim.x) {
    cgr__flashmla_point begin = { num_live, 0 }, end = { num_live, 0 };
    int32_t split = 0, unused;
    if (p < with_work)
      begin = find(l, s, words, quota, p, split);
    if (p + 1 < with_work)
      end = find(l, s, words, quota, p + 1, unused);
    /* Not asked for when the part ends in the first request, which is cut then. */
    int32_t before = l.ends[p < with_work ? cgr__flashmla_max(end.request - 1, 0) : a.c.num_requests - 1];
    __align__(16) int32_t to[CGR__FLASHMLA_WORDS];
    cgr__flashmla_part(&a.c, begin, end, num_live, split, before, first_blocks, to);
    int4 *out = reinterpret_cast<int4 *>(a.metadata + (size_t)p * CGR__FLASHMLA_WORDS);
    out[0] = make_int4(to[0], to[1], to[2], to[3]);
    out[1] = make_int4(to[4], to[5], to[6], to[7]);
  }
}

template <int kEach>
__global__ void __launch_bounds__(kMaxThreads) flashmla_kernel(const __grid_constant__ cgr__flashmla_args a) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared s;
  const cgr__flashmla_class &c = a.c;
  const Lists l = make_lists(memory, c.num_requests, c.num_parts);
  const int32_t chunks = (c.num_requests + 31) >> 5;
  const int each = kEach < kMaxEach ? kEach : (chunks + kMaxWarps - 1) / kMaxWarps;
  const int warps = (chunks + each - 1) / each;
  const int32_t first = warp_id() * each * 32 + lane_id();
  int32_t *num_splits = a.metadata + (size_t)c.num_parts * CGR__FLASHMLA_WORDS;
  int32_t blocks[kEach], start[kEach], live = c.num_requests;
  if (a.lens.live_requests != nullptr)
    live = *a.lens.live_requests;
#pragma unroll
  for (int k = 0; k < kEach; k++)
    blocks[k] = k < each && first + k * 32 < c.num_requests ? cgr__flashmla_tokens(&c, &a.lens, first + k * 32) : 0;
  if (threadIdx.x < kMaxParts / 32)
    s.is_first[threadIdx.x] = 0;
  if (threadIdx.x == 0)
    s.num_parts = s.num_landings = 0;
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
    /* Each request has a split, and one more for each part that begins in it and did not land. */
    num_splits[i] = i + w.in.part - w.landings;
    if (i == live - 1)
      s.num_landings = w.landings + (w.in.block == 0);
  }
  __syncthreads();
  write_parts(a, l, s, live, quota);
  for (int32_t i = live + (int32_t)threadIdx.x; i <= c.num_requests; i += (int32_t)blockDim.x)
    num_splits[i] = live + s.num_parts - s.num_landings;
}

/* What a thread does for itself is most of the work when there are many: then it has two requests. */
struct Variant {
  int32_t most_requests, each;
  void (*kernel)(cgr__flashmla_args);
};

constexpr Variant kVariants[] = { { 256, 1, flashmla_kernel<1> },
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
  const cgr::Variant *v = cgr::kVariants;
  while (a->c.num_requests > v->most_requests)
    v++;
  int32_t own = v->each == cgr::kMaxEach ? cgr::kMaxThreads : (a->c.num_requests + v->each - 1) / v->each;
  int32_t threads = cgr__flashmla_min((cgr__flashmla_max(own, a->c.num_parts) + 31) / 32 * 32, cgr::kMaxThreads);
  size_t shared = cgr::make_lists(nullptr, a->c.num_requests, a->c.num_parts).bytes;
  return cgr::launch(v->kernel, args, dim3(1), dim3((unsigned)threads), shared, stream);
}

extern "C" int cgr__cuda_flashmla_preload(void) {
  for (const cgr::Variant &v : cgr::kVariants) {
    int error = cgr::preload_most(v.kernel, cgr::make_lists(nullptr, v.most_requests, cgr::kMaxParts).bytes);
    if (error != 0)
      return error;
  }
  return 0;
}

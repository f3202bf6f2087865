/* FlashMLA's tile scheduler metadata (planners/families/flashmla.h), by one block. Upstream's kernel is one thread that goes
 * through parts and requests; here every step is taken by all threads (flashmla_jumps.h), and what is left is latency: one
 * round trip to memory, a sum over the requests, the search of each request's jump, log2(parts) rounds of doubling, and three
 * binary searches, all in shared memory with a barrier after each. */
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/families/families.h"
#include "base/limits.h"
#include "planners/families/flashmla_jumps.h"

namespace cgr {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kEach = CGR__MAX_REQUESTS / kMaxThreads; /* requests of a thread at most, neighbours */
constexpr int32_t kMaxParts = 1024;

/* Dynamic shared memory, with room for B requests and P parts. */
struct Lists {
  uint32_t *bits, *summary;
  int32_t *start;              /* [B + 1] */
  cgr__flashmla_jump *jumps[2]; /* [B + 1] in turn */
  cgr__flashmla_jump *landings; /* [2 P + 2] */
  int32_t *begin, *request;    /* [P + 1] where parts begin on the line, and in which request */
  uint32_t *cuts;              /* [P / 32 + 1] a bit for each part that begins inside of a request */
  uint8_t *is_empty;           /* [B] no tokens */
  size_t zeroed, bytes;        /* what begins as 0, from the front; all */
};

__host__ __device__ inline size_t take(size_t &at, size_t bytes) {
  size_t begin = at;
  at += (bytes + 15) / 16 * 16;
  return begin;
}

__host__ __device__ inline Lists make_lists(unsigned char *base, int32_t requests, int32_t parts) {
  cgr__flashmla_marks m = cgr__flashmla_marks_for(requests);
  size_t n = (size_t)requests + 1, p = (size_t)parts + 1, at = 0;
  Lists l;
  l.bits = reinterpret_cast<uint32_t *>(base + take(at, (size_t)m.sets * m.words * 4));
  l.summary = reinterpret_cast<uint32_t *>(base + take(at, (size_t)m.sets * m.summary_words * 4));
  l.zeroed = at;
  l.start = reinterpret_cast<int32_t *>(base + take(at, n * 4));
  l.jumps[0] = reinterpret_cast<cgr__flashmla_jump *>(base + take(at, n * 4));
  l.jumps[1] = reinterpret_cast<cgr__flashmla_jump *>(base + take(at, n * 4));
  l.landings = reinterpret_cast<cgr__flashmla_jump *>(base + take(at, p * 8));
  l.begin = reinterpret_cast<int32_t *>(base + take(at, p * 4));
  l.request = reinterpret_cast<int32_t *>(base + take(at, p * 4));
  l.cuts = reinterpret_cast<uint32_t *>(base + take(at, (p / 32 + 1) * 4));
  l.is_empty = reinterpret_cast<uint8_t *>(base + take(at, n));
  l.bytes = at;
  return l;
}

/* The sum of the threads before this one, and of all. One barrier. */
__device__ __forceinline__ int32_t sum_before(int32_t value, int32_t &total) {
  __shared__ int32_t of_warp[kMaxThreads / 32];
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
  int32_t theirs = lane < (int)(blockDim.x >> 5) ? of_warp[lane] : 0;
  total = __reduce_add_sync(~0u, theirs);
  return __reduce_add_sync(~0u, lane < warp ? theirs : 0) + upto - value;
}

/* Reads the lengths, lays the requests end to end and marks them. */
__device__ __forceinline__ cgr__flashmla_line lay_line(const cgr__flashmla_args &a, const Lists &l) {
  const cgr__flashmla_class &c = a.c;
  int32_t each = (c.num_requests + (int)blockDim.x - 1) / (int)blockDim.x, first = (int32_t)threadIdx.x * each;
  int32_t tokens[kEach], cost[kEach], own = 0;
  int32_t live = a.lens.live_requests != nullptr ? *a.lens.live_requests : c.num_requests;
#pragma unroll
  for (int k = 0; k < kEach; k++)
    tokens[k] = k < each && first + k < c.num_requests ? cgr__flashmla_tokens(&c, &a.lens, first + k) : 0;
  for (size_t i = threadIdx.x; i < l.zeroed / 16; i += blockDim.x) /* while the loads are under way */
    reinterpret_cast<uint4 *>(l.bits)[i] = make_uint4(0, 0, 0, 0);
  live = cgr__flashmla_clamp(live, c.num_requests);
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    cost[k] = k < each && first + k < live ? cgr__flashmla_blocks(&c, tokens[k]) + c.overhead : 0;
    own += cost[k];
  }
  cgr__flashmla_line line;
  int32_t at = sum_before(own, line.total);
  line.start = l.start;
  line.num_live = live;
  line.quota = cgr__flashmla_quota(&c, line.total);
  line.overhead = c.overhead;
  line.inverse = ~0u / (uint32_t)line.quota;
  line.inverse_width = ~0u / ((uint32_t)c.overhead + 1);
  line.marks = cgr__flashmla_marks_for(c.num_requests);
  line.bits = l.bits;
  line.summary = l.summary;
#pragma unroll
  for (int k = 0; k < kEach; k++) {
    int32_t i = first + k;
    if (k >= each || i >= c.num_requests)
      continue;
    l.start[i] = at;
    l.is_empty[i] = i >= live || tokens[k] == 0;
    if (i > 0 && i < live && line.quota > line.overhead)
      cgr__flashmla_mark(&line, i);
    at += cost[k];
  }
  if (threadIdx.x == 0)
    l.start[c.num_requests] = line.total;
  return line;
}

/* Follows the jumps from request 0; the number of landings. Everything has been synchronised before and after. */
__device__ __forceinline__ int32_t follow(const cgr__flashmla_line &line, const Lists &l) {
  for (int32_t i = (int32_t)threadIdx.x; i <= line.num_live; i += (int32_t)blockDim.x)
    l.jumps[0][i] = cgr__flashmla_first_jump(&line, i);
  if (threadIdx.x == 0)
    l.landings[0] = cgr__flashmla_pack(0, 0);
  __syncthreads();
  cgr__flashmla_jump *jumps = l.jumps[0], *twice = l.jumps[1];
  int32_t count = 1;
  /* Every jump takes a part or more and P parts reach the end, so that count is at most P here. */
  while (cgr__flashmla_jump_request(l.landings[count - 1]) < line.num_live) {
    for (int32_t i = (int32_t)threadIdx.x; i < count; i += (int32_t)blockDim.x)
      l.landings[count + i] = cgr__flashmla_then(l.landings[i], jumps);
    for (int32_t i = (int32_t)threadIdx.x; i <= line.num_live; i += (int32_t)blockDim.x)
      twice[i] = cgr__flashmla_then(jumps[i], jumps);
    cgr__flashmla_jump *old = jumps;
    jumps = twice;
    twice = old;
    count *= 2;
    __syncthreads();
  }
  return count;
}

__device__ __forceinline__ int32_t blocks_of(const cgr__flashmla_line &line, int32_t i) {
  return line.start[i + 1] - line.start[i] - line.overhead;
}

__device__ __forceinline__ void write_parts(const cgr__flashmla_args &a, const cgr__flashmla_line &line, const Lists &l) {
  for (int32_t p = (int32_t)threadIdx.x; p < a.c.num_parts; p += (int32_t)blockDim.x) {
    cgr__flashmla_point begin = { l.request[p], 0 }, end = { l.request[p + 1], 0 };
    begin.block = l.begin[p] - line.start[begin.request];
    end.block = l.begin[p + 1] - line.start[end.request];
    /* -1 when the first request is cut, and then not asked for. */
    int32_t previous = begin.request < line.num_live ? end.request - 1 : a.c.num_requests - 1;
    int32_t before = previous < 0 || l.is_empty[previous] ? 0 : blocks_of(line, previous);
    int32_t first_blocks = line.num_live > 0 ? blocks_of(line, 0) : 1;
    __align__(16) int32_t words[CGR__FLASHMLA_WORDS];
    cgr__flashmla_part(&a.c, begin, end, line.num_live, line.quota, before, first_blocks, words);
    int4 *to = reinterpret_cast<int4 *>(a.metadata + (size_t)p * CGR__FLASHMLA_WORDS);
    to[0] = make_int4(words[0], words[1], words[2], words[3]);
    to[1] = make_int4(words[4], words[5], words[6], words[7]);
  }
}

/* Splits of the requests before i: each has one, and one more for each part that begins inside of it. */
__device__ __forceinline__ int32_t splits_before(const cgr__flashmla_line &line, const Lists &l, int32_t num_parts, int32_t i) {
  int32_t low = 0, high = num_parts + 1; /* the last part that begins before it; part 0 is as good as none */
  while (high - low > 1) {
    int32_t middle = (low + high) >> 1;
    if (l.begin[middle] < line.start[i])
      low = middle;
    else
      high = middle;
  }
  int32_t splits = min(i, line.num_live) + __popc(l.cuts[low >> 5] & (~0u >> (31 - (low & 31))));
  for (int32_t word = 0; word < low >> 5; word++)
    splits += __popc(l.cuts[word]);
  return splits;
}

__global__ void __launch_bounds__(kMaxThreads) flashmla_kernel(const __grid_constant__ cgr__flashmla_args a) {
  extern __shared__ __align__(16) unsigned char memory[];
  const Lists l = make_lists(memory, a.c.num_requests, a.c.num_parts);
  const cgr__flashmla_line line = lay_line(a, l);
  __syncthreads();
  int32_t count = follow(line, l);
  for (int32_t first = (int32_t)(threadIdx.x & ~31u); first <= a.c.num_parts; first += (int32_t)blockDim.x) { /* whole warps */
    int32_t p = first + (int32_t)(threadIdx.x & 31);
    cgr__flashmla_point point = { 0, 0 };
    if (p <= a.c.num_parts) {
      l.begin[p] = cgr__flashmla_locate(&line, l.landings, count, p, &point);
      l.request[p] = point.request;
    }
    uint32_t cuts = __ballot_sync(~0u, point.block > 0);
    if ((threadIdx.x & 31) == 0)
      l.cuts[first >> 5] = cuts;
  }
  __syncthreads();
  write_parts(a, line, l);
  int32_t *num_splits = a.metadata + (size_t)a.c.num_parts * CGR__FLASHMLA_WORDS;
  for (int32_t i = (int32_t)threadIdx.x; i <= a.c.num_requests; i += (int32_t)blockDim.x)
    num_splits[i] = splits_before(line, l, a.c.num_parts, i);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_flashmla(const void *args, cudaStream_t stream) {
  const cgr__flashmla_args *a = static_cast<const cgr__flashmla_args *>(args);
  if (a->c.num_requests < 1 || a->c.num_requests > CGR__MAX_REQUESTS || a->c.num_parts < 1 || a->c.num_parts > cgr::kMaxParts)
    return (int)cudaErrorInvalidValue;
  int32_t most = cgr__flashmla_max(a->c.num_requests, a->c.num_parts + 1);
  int32_t threads = cgr__flashmla_min((most + 31) / 32 * 32, cgr::kMaxThreads);
  size_t shared = cgr::make_lists(nullptr, a->c.num_requests, a->c.num_parts).bytes;
  return cgr::launch(cgr::flashmla_kernel, args, dim3(1), dim3((unsigned)threads), shared, stream);
}

/* As much shared memory as the device gives, up to what the most requests and parts take. Fewer requests have more sets. */
extern "C" int cgr__cuda_flashmla_preload(void) {
  size_t bytes = cgr::make_lists(nullptr, CGR__MAX_REQUESTS, cgr::kMaxParts).bytes + 4 * CGR__FLASHMLA_MARK_WORDS;
  int error = cgr::preload(cgr::flashmla_kernel, bytes);
  for (; error == (int)cudaErrorInvalidValue && bytes > 1024; bytes -= 1024)
    error = cgr::preload(cgr::flashmla_kernel, bytes - 1024);
  return error;
}

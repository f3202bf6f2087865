/* The engine's own buffers, from the ring slot (kernels/staged.h). A column of blocks for each buffer. Time goes to the bus, so a
 * thread has several vectors in flight. */
#include "devices/cuda/access.cuh"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/staged.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 4;         /* vectors of a thread that are under way */
constexpr unsigned kBlocks = 128; /* of a buffer, at most: enough for the bus */

/* Bytes [16 v, 16 v + 16), of which `real` come from the ring slot. */
__device__ int4 merge(int4 staged, int4 padding, int64_t real) {
  const unsigned char *from = reinterpret_cast<const unsigned char *>(&staged);
  int4 merged = padding;
  for (int i = 0; i < 16 && i < real; i++)
    reinterpret_cast<unsigned char *>(&merged)[i] = from[i];
  return merged;
}

__global__ void __launch_bounds__(kThreads) staged_kernel(const __grid_constant__ cgr__staged_args a) {
  const cgr__staged_buffer &b = a.buffer[blockIdx.y];
  uint64_t seq = a.state->seq + 1;
  int64_t count = cgr__staged_count(b.per, a.counts[CGR_COUNT_TOKENS], a.counts[CGR_COUNT_REQUESTS]);
  int64_t real = (a.state->staged >> b.index & 1) ? count * b.row_bytes : 0;
  int64_t padded = cgr__staged_count(b.per, a.padded_tokens, a.padded_requests) * b.row_bytes;
  const int4 *from =
      reinterpret_cast<const int4 *>(a.staging + cgr__ring_slot_index(seq, a.ring_depth) * a.slot_stride + b.slot_offset);
  int4 *to = static_cast<int4 *>(b.data);
  int32_t low = (int32_t)b.pattern, high = (int32_t)(b.pattern >> 32);
  int4 padding = make_int4(low, high, low, high);
  int64_t vectors = (padded + 15) / 16, step = (int64_t)gridDim.x * kThreads;
  for (int64_t base = (int64_t)blockIdx.x * kThreads + threadIdx.x; base < vectors; base += kAhead * step) {
    int4 word[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      int64_t v = base + k * step;
      word[k] = v < vectors && 16 * v < real ? load_mapped(from + v) : padding;
    }
#pragma unroll
    for (int k = 0; k < kAhead; k++) {
      int64_t v = base + k * step;
      if (v < vectors)
        to[v] = 16 * (v + 1) <= real ? word[k] : merge(word[k], padding, real - 16 * v);
    }
  }
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_staged(const void *args, cudaStream_t stream) {
  const cgr__staged_args *a = static_cast<const cgr__staged_args *>(args);
  if (a->num_buffers < 0 || a->num_buffers > CGR__MAX_DECLARED || a->ring_depth < 1 || a->padded_requests < 0 ||
      a->padded_tokens < 0)
    return (int)cudaErrorInvalidValue;
  if (a->num_buffers == 0)
    return 0;
  int64_t most = 0;
  for (int32_t i = 0; i < a->num_buffers; i++) {
    int64_t bytes = cgr__staged_count(a->buffer[i].per, a->padded_tokens, a->padded_requests) * a->buffer[i].row_bytes;
    most = bytes > most ? bytes : most;
  }
  int64_t blocks = (most / 16 + cgr::kThreads * cgr::kAhead) / (cgr::kThreads * cgr::kAhead);
  dim3 grid(blocks < cgr::kBlocks ? (unsigned)blocks : cgr::kBlocks, (unsigned)a->num_buffers);
  return cgr::launch(cgr::staged_kernel, args, grid, dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_staged_preload(void) { return cgr::preload(cgr::staged_kernel, 0); }

/* Fetches the ring slot of the next step into the inbox (kernels/step.h), concurrently with the last layers of this one.
 *
 * One block of few threads, so that it finds room next to an engine's kernel that fills the SMs. Ordering: the first thread
 * acquires the number at system scope, the barrier hands that on to the others. The inbox is read by the next step's prologue,
 * which starts after this kernel has ended. */
#include "devices/cuda/access.cuh"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/step.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 8; /* vectors of a thread that are under way */
constexpr int kHeaderVectors = sizeof(cgr__ring_slot_header) / sizeof(int4);

__device__ void copy(const unsigned char *slot, unsigned char *inbox, int64_t offset, int64_t words) {
  const int4 *from = reinterpret_cast<const int4 *>(slot + offset);
  int4 *to = reinterpret_cast<int4 *>(inbox + offset);
  int64_t vectors = (words + 3) / 4; /* sections are whole cache lines */
  for (int64_t base = threadIdx.x; base < vectors; base += kAhead * kThreads) {
    int4 word[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; k++)
      if (base + k * kThreads < vectors)
        word[k] = load_mapped(from + base + k * kThreads);
#pragma unroll
    for (int k = 0; k < kAhead; k++)
      if (base + k * kThreads < vectors)
        to[base + k * kThreads] = word[k];
  }
}

__global__ void __launch_bounds__(kThreads) fetch_kernel(const __grid_constant__ cgr__step_args a) {
  __shared__ union {
    int4 vector[kHeaderVectors];
    cgr__ring_slot_header header;
  } shared;
  uint64_t next = a.state->seq + 2;
  const unsigned char *slot = a.staging + cgr__ring_slot_index(next, a.ring_depth) * a.slot.stride;
  unsigned char *inbox = reinterpret_cast<unsigned char *>(a.buffers.inbox);
  bool committed = false;
  if (threadIdx.x == 0)
    committed = load_acquire_system(reinterpret_cast<const uint64_t *>(slot)) == next;
  if (!__syncthreads_or(committed))
    return;
  if (threadIdx.x < kHeaderVectors)
    shared.vector[threadIdx.x] = load_mapped(slot + threadIdx.x * sizeof(int4));
  __syncthreads();
  const cgr__ring_slot_header &header = shared.header;
  if (!cgr__ring_slot_fits(&a, &header))
    return;
  bool edits = header.flags & CGR__RING_SLOT_EDITS;
  if (header.flags & CGR__RING_SLOT_BATCH)
    copy(slot, inbox, a.slot.batch, 3 * (int64_t)header.num_requests + 1);
  if (edits)
    copy(slot, inbox, a.slot.edits, 4 * (int64_t)header.num_edits);
  copy(slot, inbox, a.slot.tokens, cgr__ring_slot_tokens(&header));
  copy(slot, inbox, a.slot.changes, 4 * (int64_t)header.num_changes);
  __syncthreads();
  if (threadIdx.x < kHeaderVectors)
    reinterpret_cast<int4 *>(inbox)[threadIdx.x] = shared.vector[threadIdx.x];
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_fetch(const void *args, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(args);
  if (a->ring_depth < 1)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::fetch_kernel, args, dim3(1), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_fetch_preload(void) { return cgr::preload(cgr::fetch_kernel, 0); }

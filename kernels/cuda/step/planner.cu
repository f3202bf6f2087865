/* Writes the attention plan of the batch that the prologue left (planners/attention/plan.h): the host planner's arithmetic, one
 * thread per part, over a running sum of the requests' costs in shared memory. One block. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/scan.cuh"
#include "kernels/step.h"
#include "planners/attention/plan.h"

namespace cgr {
namespace {

static_assert(sizeof(cgr__plan_header) == 64 && sizeof(cgr__plan_part) == 48, "the plan is rows of 16 bytes");

/* kTileQ is a.tile_q: as a constant it turns the 64-bit divisions of the costs into shifts. */
template <int32_t kTileQ>
__global__ void __launch_bounds__(kStepThreads, 1) planner_kernel(const __grid_constant__ cgr__step_args a) {
  extern __shared__ int64_t prefix[]; /* [B_r + 1], then query_start [B_r + 1] and seq_lens [B_r] */
  __shared__ ScanScratch<int64_t> scratch;
  int32_t *query_start = reinterpret_cast<int32_t *>(prefix + a.padded_requests + 1);
  int32_t *seq_lens = query_start + a.padded_requests + 1;
  int32_t tid = (int32_t)threadIdx.x;

  for (int32_t i = tid; i < a.num_counters; i += kStepThreads)
    a.buffers.plan_counters[i] = 0;
  int32_t num_requests = a.buffers.counts[CGR__COUNT_REQUESTS];

  /* Costs of the real requests; what the arrays hold past num_requests does not count. */
  int64_t cost = 0;
  if (tid == 0)
    prefix[0] = 0;
  for (int32_t base = 0; base < a.padded_requests; base += kStepThreads) {
    int32_t i = base + tid;
    int64_t request_cost = 0;
    if (i < a.padded_requests) {
      int32_t start = a.buffers.query_start_loc[i], end = a.buffers.query_start_loc[i + 1], seq_len = a.buffers.seq_lens[0][i];
      query_start[i] = start;
      seq_lens[i] = seq_len;
      if (i + 1 == a.padded_requests)
        query_start[i + 1] = end;
      if (i < num_requests)
        request_cost = cgr__plan_request_cost(seq_len, end - start, kTileQ);
    }
    int64_t total, upto = block_scan(request_cost, scratch, total);
    if (i < a.padded_requests)
      prefix[i + 1] = cost + upto;
    cost += total;
  }
  __syncthreads();

  int64_t cost_per_part = cost > 0 ? (cost + a.num_parts - 1) / a.num_parts : 1;
  cgr__plan_header *header = reinterpret_cast<cgr__plan_header *>(a.buffers.plan);
  cgr__plan_part *parts = reinterpret_cast<cgr__plan_part *>(header + 1);
  for (int32_t p = tid; p < a.num_parts; p += kStepThreads)
    parts[p] = cgr__plan_make_part(p, cost_per_part, prefix, query_start, seq_lens, num_requests, kTileQ);
  if (tid == kStepThreads - 1) {
    cgr__plan_header h = {};
    h.num_parts = a.num_parts;
    h.tile_q = kTileQ;
    h.tile_kv = CGR__TILE_KV;
    h.num_requests = num_requests;
    h.cost = cost;
    h.cost_per_part = cost_per_part;
    *header = h;
  }
}

typedef void (*PlannerKernel)(cgr__step_args);

PlannerKernel planner(int32_t tile_q) {
  switch (tile_q) {
  case 1:
    return planner_kernel<1>;
  case 2:
    return planner_kernel<2>;
  case 4:
    return planner_kernel<4>;
  case 8:
    return planner_kernel<8>;
  case 16:
    return planner_kernel<16>;
  case 32:
    return planner_kernel<32>;
  default:
    return planner_kernel<64>;
  }
}

size_t shared_bytes(int32_t padded_requests) {
  size_t n = (size_t)padded_requests;
  return (n + 1) * sizeof(int64_t) + (2 * n + 1) * sizeof(int32_t);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_planner(const void *args, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(args);
  if (a->padded_requests < 0 || a->padded_requests > CGR__MAX_REQUESTS || a->num_parts < 1 || a->tile_q < 1 ||
      a->tile_q > CGR__TILE_KV || (a->tile_q & (a->tile_q - 1)) != 0)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::planner(a->tile_q), args, dim3(1), dim3(cgr::kStepThreads), cgr::shared_bytes(a->padded_requests),
                     stream);
}

extern "C" int cgr__cuda_planner_preload(void) {
  int error = 0;
  for (int32_t tile_q = 1; tile_q <= CGR__TILE_KV && error == 0; tile_q *= 2)
    error = cgr::preload(cgr::planner(tile_q), cgr::shared_bytes(CGR__MAX_REQUESTS));
  return error;
}

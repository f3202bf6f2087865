/* Last kernel of a step: commits row state, writes the result into the readback ring and publishes completed_seq.
 *
 * One block. Ordering: all threads store their share of the result; the barrier makes those stores happen before thread 0's
 * release at system scope, which is cumulative, so a host that acquires completed_seq sees all of them. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/access.cuh"
#include "kernels/cuda/step/threads.cuh"
#include "kernels/step.h"

namespace cgr {
namespace {

/* What is read of a request, before it is known whether there is one. */
struct Request {
  int32_t seq_len, start, end, row, flags, token;
};

__device__ __forceinline__ Request read_request(const cgr__step_args &a, int32_t i) {
  return { load_early(&a.buffers.seq_lens[0][i]),        load_early(&a.buffers.query_start_loc[i]),
           load_early(&a.buffers.query_start_loc[i + 1]), load_early(&a.buffers.request_rows[i]),
           load_early(&a.buffers.request_flags[i]),       load_early(&a.buffers.next_tokens[(int64_t)i * a.token_stride]) };
}

/* Commits a request and returns how many tokens it sampled. */
__device__ __forceinline__ int32_t commit_request(const cgr__step_args &a, const Request &r) {
  bool sampled = !(r.flags & (int32_t)CGR_REQUEST_PARTIAL);
  if (r.seq_len <= 0 || r.end <= r.start)
    return 0;
  a.buffers.row_computed[r.row] = r.seq_len;
  if (sampled)
    a.buffers.row_last_tokens[(int64_t)r.row * a.token_stride] = r.token;
  return sampled ? 1 : 0;
}

/* The step's record in the readback slot. */
__device__ __forceinline__ void write_record(const cgr__step_args &a, const cgr__step_error &error, uint64_t seq,
                                             int32_t num_requests, unsigned char *result) {
  cgr__result_record record = {};
  record.seq = seq;
  record.num_requests = num_requests;
  record.error = error.error;
  record.error_row = error.row;
  record.error_index = error.index;
  record.error_value = error.value;
  *reinterpret_cast<cgr__result_record *>(result) = record;
}

__global__ void __launch_bounds__(kMostStepThreads, 1) epilogue_kernel(const __grid_constant__ cgr__step_args a) {
  int32_t i = (int32_t)threadIdx.x, count = load_early(&a.buffers.counts[CGR_COUNT_REQUESTS]);
  uint64_t seq = load_early(&a.state->seq) + 1, errors = load_early(&a.state->errors);
  uint64_t generation = load_early(&a.state->generation);
  Request request = read_request(a, max(min(i, a.padded_requests - 1), 0));
  int32_t num_requests = a.abandon ? 0 : count;
  unsigned char *result = a.readback + ring_slot(seq, a.ring_depth) * a.readback_slot.stride;
  int32_t *num_tokens = reinterpret_cast<int32_t *>(result + a.readback_slot.num_tokens);
  int32_t *tokens = reinterpret_cast<int32_t *>(result + a.readback_slot.tokens);

#pragma unroll 1
  while (i < num_requests) {
    num_tokens[i] = commit_request(a, request);
    tokens[(int64_t)i * a.token_stride] = request.token;
#pragma unroll 1
    for (int32_t j = 1; j < a.token_stride; j++)
      tokens[(int64_t)i * a.token_stride + j] = a.buffers.next_tokens[(int64_t)i * a.token_stride + j];
    i += (int32_t)blockDim.x;
    if (i < num_requests)
      request = read_request(a, i);
  }
  if (threadIdx.x == 0) {
    const cgr__step_error error = a.state->error;
    errors += error.error != CGR_GUARD_NONE ? 1 : 0;
    generation += a.state->lost ? 1 : 0;
    write_record(a, error, seq, num_requests, result);
  }
  __syncthreads(); /* everyone has read the state and stored its tokens */
  if (threadIdx.x == 0) {
    a.state->errors = errors;
    a.state->generation = generation;
    a.state->seq = seq;
    a.completion->errors = errors;
    a.completion->generation = generation;
    store_release_system(&a.completion->completed_seq, seq);
  }
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_epilogue(const void *args, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(args);
  if (a->ring_depth < 1)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::epilogue_kernel, args, dim3(1), dim3(cgr::step_threads(a->padded_requests, 0)), 0, stream);
}

extern "C" int cgr__cuda_epilogue_preload(void) { return cgr::preload(cgr::epilogue_kernel, 0); }

/* Last kernel of a step: commits row state, writes the result into the readback ring and publishes completed_seq.
 *
 * One block. Ordering: all threads store their share of the result; the barrier makes those stores happen before thread 0's
 * release at system scope, which is cumulative, so a host that acquires completed_seq sees all of them. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/mapped.cuh"
#include "kernels/cuda/step/scan.cuh"
#include "kernels/step.h"

namespace cgr {
namespace {

/* Commits request i, whose sampled token is `token`, and returns how many it sampled. */
__device__ __forceinline__ int32_t commit_request(const cgr__step_args &a, int32_t i, int32_t token) {
  int32_t seq_len = a.buffers.seq_lens[0][i], start = a.buffers.query_start_loc[i], end = a.buffers.query_start_loc[i + 1];
  int32_t row = a.buffers.request_rows[i], flags = a.buffers.request_flags[i];
  bool sampled = !(flags & (int32_t)CGR_REQUEST_PARTIAL);
  if (seq_len <= 0 || end <= start)
    return 0;
  a.buffers.row_computed[row] = seq_len;
  if (sampled)
    a.buffers.row_last_tokens[(int64_t)row * a.token_stride] = token;
  return sampled ? 1 : 0;
}

__global__ void __launch_bounds__(kStepThreads, 1) epilogue_kernel(const __grid_constant__ cgr__step_args a) {
  uint64_t seq = a.state->seq + 1;
  int32_t num_requests = a.abandon ? 0 : a.buffers.counts[CGR_COUNT_REQUESTS];
  uint64_t errors = a.state->errors, generation = a.state->generation + (a.state->lost ? 1 : 0);
  cgr__step_error error = a.state->error;
  unsigned char *result = a.readback + ring_slot(seq, a.ring_depth) * a.readback_slot.stride;
  int32_t *num_tokens = reinterpret_cast<int32_t *>(result + a.readback_slot.num_tokens);
  int32_t *tokens = reinterpret_cast<int32_t *>(result + a.readback_slot.tokens);

  for (int32_t i = (int32_t)threadIdx.x; i < a.padded_requests; i += kStepThreads) {
    int32_t token = a.buffers.next_tokens[i * a.token_stride]; /* on its way before the real count is known */
    if (i >= num_requests)
      continue;
    num_tokens[i] = commit_request(a, i, token);
    tokens[i * a.token_stride] = token;
    for (int32_t j = 1; j < a.token_stride; j++)
      tokens[i * a.token_stride + j] = a.buffers.next_tokens[i * a.token_stride + j];
  }
  errors += error.error != CGR_GUARD_NONE ? 1 : 0;
  if (threadIdx.x == 0) {
    cgr__result_record record = {};
    record.seq = seq;
    record.num_requests = num_requests;
    record.error = error.error;
    record.error_row = error.row;
    record.error_index = error.index;
    record.error_value = error.value;
    *reinterpret_cast<cgr__result_record *>(result) = record;
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
  return cgr::launch(cgr::epilogue_kernel, args, dim3(1), dim3(cgr::kStepThreads), 0, stream);
}

extern "C" int cgr__cuda_epilogue_preload(void) { return cgr::preload(cgr::epilogue_kernel, 0); }

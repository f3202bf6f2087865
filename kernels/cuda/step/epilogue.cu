/* Last kernel of a step: commits row state, writes the result into the readback ring and publishes completed_seq.
 *
 * One block. Its parameters are what it needs of the struct of all devices, in few lines (prologue_args.cuh).
 *
 * Ordering: all threads store their share of the result. The barrier makes those stores happen before thread 0's release at
 * system scope, which is cumulative, so a host that acquires completed_seq sees all of them. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "devices/cuda/access.cuh"
#include "kernels/cuda/step/threads.cuh"
#include "kernels/stamp.h"
#include "kernels/step.h"
#include "kernels/values.h"

namespace cgr {
namespace {

struct EpilogueArgs {
  const int32_t *num_requests; /* of the step: one of the counts */
  cgr__step_state *state;
  const int32_t *seq_lens, *query_start_loc, *request_rows, *request_flags, *next_tokens;
  int64_t *stamps; /* NULL in a runtime that is not timed */
  int32_t padded_requests, token_stride, ring_depth, set, abandon, stamp_stride;
  unsigned char *readback;
  cgr__readback_layout slot;
  cgr__completion *completion;
  int32_t *row_computed, *row_last_tokens;
  const int64_t *value_flags; /* NULL in a runtime that does not check values */
};

EpilogueArgs epilogue_args(const cgr__step_args &a) {
  const cgr__buffers &b = a.buffers;
  return { b.counts + CGR_COUNT_REQUESTS,
           a.state,
           b.seq_lens[0],
           b.query_start_loc,
           b.request_rows,
           b.request_flags,
           b.next_tokens,
           b.stamps,
           a.padded_requests,
           a.token_stride,
           a.ring_depth,
           a.set,
           a.abandon,
           a.stamp_stride,
           a.readback,
           a.readback_slot,
           a.completion,
           b.row_computed,
           b.row_last_tokens,
           b.value_flags };
}

/* What is read for a request, before it is known whether there is one. */
struct Request {
  int32_t seq_len, start, end, row, flags, token;
};

__device__ __forceinline__ Request read_request(const EpilogueArgs &a, int32_t i) {
  return {
    load_early(&a.seq_lens[i]),     load_early(&a.query_start_loc[i]), load_early(&a.query_start_loc[i + 1]),
    load_early(&a.request_rows[i]), load_early(&a.request_flags[i]),   load_early(&a.next_tokens[(int64_t)i * a.token_stride])
  };
}

/* Commits a request and returns how many tokens it sampled. */
__device__ __forceinline__ int32_t commit_request(const EpilogueArgs &a, const Request &r) {
  bool sampled = !(r.flags & (int32_t)CGR_REQUEST_PARTIAL);
  if (a.set > 0 || r.seq_len <= 0 || r.end <= r.start)
    return 0;
  a.row_computed[r.row] = r.seq_len;
  if (sampled)
    a.row_last_tokens[(int64_t)r.row * a.token_stride] = r.token;
  return sampled ? 1 : 0;
}

/* All of the state that the epilogue reads, in one round trip. */
union State {
  int4 vector[4];
  cgr__step_state state;
};

__device__ __forceinline__ State read_state(const EpilogueArgs &a) {
  static_assert(offsetof(cgr__step_state, lost) + sizeof(int32_t) <= sizeof State::vector, "the vectors hold what is needed");
  State s;
#pragma unroll
  for (int k = 0; k < 4; k++)
    s.vector[k] = load_early(reinterpret_cast<const int4 *>(a.state) + k);
  return s;
}

/* The step's record in the readback slot, and the counts. */
__device__ __forceinline__ void write_record(const EpilogueArgs &a, const cgr__step_state &state, uint64_t seq,
                                             int32_t num_requests, unsigned char *result) {
  const cgr__step_error &error = state.error;
  uint64_t errors = state.errors + (error.error != CGR_GUARD_NONE ? 1 : 0), generation = state.generation + (state.lost ? 1 : 0);
  cgr__result_record record = {};
  record.seq = seq;
  record.num_requests = num_requests;
  record.error = error.error;
  record.error_row = error.row;
  record.error_index = error.index;
  record.error_value = error.value;
  *reinterpret_cast<cgr__result_record *>(result) = record;
  a.completion->errors = errors;
  a.completion->generation = generation;
  a.state->errors = errors;
  a.state->generation = generation;
}

/* In a runtime that checks values. */
__device__ __forceinline__ void write_values(const EpilogueArgs &a, uint64_t seq, int32_t num_requests, unsigned char *result) {
  uint32_t *values = reinterpret_cast<uint32_t *>(result + a.slot.values);
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i < num_requests; i += (int32_t)blockDim.x)
    values[i] = cgr__value_bits((uint64_t)a.value_flags[i], seq);
}

__global__ void __launch_bounds__(kMostStepThreads, 1) epilogue_kernel(const __grid_constant__ EpilogueArgs a) {
  int32_t i = (int32_t)threadIdx.x, count = load_early(a.num_requests);
  const State s = read_state(a);
  Request request = read_request(a, max(min(i, a.padded_requests - 1), 0));
  uint64_t seq = s.state.seq + 1;
  int32_t num_requests = a.abandon ? 0 : count;
  unsigned char *result = a.readback + cgr__ring_slot_index(seq, a.ring_depth) * a.slot.stride;
  int32_t *num_tokens = reinterpret_cast<int32_t *>(result + a.slot.num_tokens);
  int32_t *tokens = reinterpret_cast<int32_t *>(result + a.slot.tokens);

  if (i == (int32_t)blockDim.x - 1) /* in another warp than the first request */
    write_record(a, s.state, seq, num_requests, result);
#pragma unroll 1
  while (i < num_requests) {
    num_tokens[i] = commit_request(a, request);
    tokens[(int64_t)i * a.token_stride] = request.token;
#pragma unroll 1
    for (int32_t j = 1; j < a.token_stride; j++)
      tokens[(int64_t)i * a.token_stride + j] = a.next_tokens[(int64_t)i * a.token_stride + j];
    i += (int32_t)blockDim.x;
    if (i < num_requests)
      request = read_request(a, i);
  }
  if (a.value_flags != nullptr)
    write_values(a, seq, num_requests, result);
  __syncthreads(); /* everyone has read the state and stored its tokens */
  if (threadIdx.x == 0) {
    a.state->seq = seq;
    if (a.stamps)
      cgr__stamp_epilogue(cgr__stamp_row(a.stamps, seq, a.ring_depth, a.stamp_stride), device_time());
    store_release_system(&a.completion->completed_seq, seq);
  }
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_epilogue(const void *pointer, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(pointer);
  if (a->ring_depth < 1)
    return (int)cudaErrorInvalidValue;
  const cgr::EpilogueArgs own = cgr::epilogue_args(*a);
  return cgr::launch(cgr::epilogue_kernel, &own, dim3(1), dim3(cgr::step_threads(a->padded_requests, 0)), 0, stream);
}

extern "C" int cgr__cuda_epilogue_preload(void) { return cgr::preload(cgr::epilogue_kernel, 0); }

/* Last kernel of a step: commits row state, writes the result into the readback ring and publishes completed_seq.
 *
 * One block. Its parameters are what it needs of the struct of all devices, in few lines (prologue_args.cuh).
 *
 * Ordering: all threads store their share of the result. The barrier makes those stores happen before thread 0's release at
 * system scope, which is cumulative, so a host that acquires completed_seq sees all of them. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "devices/cuda/access.cuh"
#include "kernels/cuda/guard.cuh"
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

/* What a runtime that has guesses or stops, or checks tokens, needs besides. */
struct GuessArgs {
  const int32_t *num_accepted, *draft_tokens;
  int32_t *row_num_accepted, *row_draft_tokens;
  int32_t vocab_size, max_rows, max_len, program;
  const int32_t *logits_indices, *target_computed;
  const int32_t *stops;               /* NULL: rows have none */
  int64_t stop_words, ended, lengths; /* the last two in a readback slot */
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

GuessArgs guess_args(const cgr__step_args &a) {
  const cgr__buffers &b = a.buffers;
  return { b.num_accepted,
           b.draft_tokens,
           b.row_num_accepted,
           b.row_draft_tokens,
           a.vocab_size,
           a.max_rows,
           a.max_lens[0],
           a.program,
           b.logits_indices,
           cgr__step_computed(&a, 0),
           a.stops,
           a.stop_words,
           cgr__readback_ended(&a.readback_slot),
           cgr__readback_lengths(&a.readback_slot) };
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

/* How many of its guesses request i accepts. */
__device__ inline int32_t count_accepted(const EpilogueArgs &a, const GuessArgs &g, const Request &r, int32_t i,
                                         int32_t guesses) {
  int32_t accepted = guesses > 0 ? g.num_accepted[i] : 0;
  if (accepted >= 0 && accepted <= guesses)
    return accepted;
  claim_error(&a.state->error, CGR_GUARD_ACCEPTED, r.row, i, accepted);
  return 0;
}

/* What request i has sampled becomes what its row goes on with, the latest first. */
__device__ inline void commit_tokens(const EpilogueArgs &a, const GuessArgs &g, const Request &r, int32_t i, int32_t accepted) {
  int32_t *last = a.row_last_tokens + (int64_t)r.row * a.token_stride;
  const int32_t *next = a.next_tokens + (int64_t)i * a.token_stride;
#pragma unroll 1
  for (int32_t j = 0; j <= accepted; j++) {
    int32_t token = next[accepted - j];
    bool bad = !cgr__is_in_vocabulary(token, g.vocab_size);
    if (bad)
      claim_error(&a.state->error, CGR_GUARD_TOKEN, r.row, i, token);
    last[j] = bad ? 0 : token;
  }
}

/* Commits request i of a program after the first, which guesses, and returns how many tokens it sampled. */
__device__ inline int32_t commit_draft(const EpilogueArgs &a, const GuessArgs &g, const Request &r, int32_t i) {
  const int32_t most = a.token_stride - 1;
  if (r.seq_len <= 0 || r.end <= r.start)
    return 0;
  a.row_computed[r.row] = r.seq_len - (r.end - 1 - g.logits_indices[i]);
  if (r.flags & (int32_t)CGR_REQUEST_PARTIAL)
    return 0;
  const bool bad = !cgr__is_in_vocabulary(r.token, g.vocab_size);
  if (bad)
    claim_error(&a.state->error, CGR_GUARD_TOKEN, r.row, i, r.token);
  g.row_draft_tokens[(int64_t)r.row * most] = bad ? 0 : r.token;
#pragma unroll 1
  for (int32_t j = 1; j < most; j++)
    g.row_draft_tokens[(int64_t)r.row * most + j] = g.draft_tokens[(int64_t)i * most + j];
  return 1;
}

/* Whether an earlier step has ended the row of a request, which may be no row at all. */
__device__ inline bool has_ended_before(const GuessArgs &g, const Request &r) {
  return g.stops != nullptr && r.row >= 0 && r.row < g.max_rows && cgr__row_has_ended(g.target_computed[r.row], g.max_len);
}

/* Where what request i has sampled ends its row. */
__device__ inline cgr_end find_end(const EpilogueArgs &a, const GuessArgs &g, const Request &r, int32_t i, int32_t length,
                                   int32_t *accepted) {
  if (g.stops == nullptr)
    return CGR_END_NONE;
  return cgr__find_end(g.stops + r.row * g.stop_words, a.next_tokens + (int64_t)i * a.token_stride, length, accepted);
}

/* Commits request i, some of whose tokens may be guesses, and returns how many tokens it sampled. */
__device__ inline int32_t commit_guesses(const EpilogueArgs &a, const GuessArgs &g, const Request &r, int32_t i, cgr_end *end) {
  *end = r.seq_len <= 0 && has_ended_before(g, r) ? CGR_END_BEFORE : CGR_END_NONE;
  if (g.program > 0)
    return commit_draft(a, g, r, i);
  if (a.set > 0 || r.seq_len <= 0 || r.end <= r.start)
    return 0;
  int32_t guesses = cgr__step_guesses(r.flags, r.end - r.start, a.token_stride);
  int32_t accepted = count_accepted(a, g, r, i, guesses), most = a.token_stride - 1;
  if (r.flags & (int32_t)CGR_REQUEST_PARTIAL) {
    a.row_computed[r.row] = r.seq_len;
    return 0;
  }
  *end = find_end(a, g, r, i, r.seq_len - guesses, &accepted);
  a.row_computed[r.row] = (r.seq_len - guesses + accepted) | (*end != CGR_END_NONE ? CGR__ROW_ENDED : 0);
  commit_tokens(a, g, r, i, accepted);
  if (most > 0)
    g.row_num_accepted[r.row] = accepted;
#pragma unroll 1
  for (int32_t j = 0; j < most; j++)
    g.row_draft_tokens[(int64_t)r.row * most + j] = g.draft_tokens[(int64_t)i * most + j];
  return 1 + accepted;
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
                                             int32_t num_requests, bool has_generation, int32_t ends, unsigned char *result) {
  const cgr__step_error &error = state.error;
  uint64_t errors = state.errors + (error.error != CGR_GUARD_NONE ? 1 : 0), generation = state.generation + (state.lost ? 1 : 0);
  cgr__result_record record = {};
  record.seq = seq;
  record.num_requests = num_requests;
  record.error = error.error;
  record.error_row = error.row;
  record.error_index = error.index;
  record.error_value = error.value;
  record.generation = has_generation ? generation : 0;
  record.ended = ends;
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

/* Which rows have ended. Returns whether this one ends in this step. */
__device__ inline bool write_end(const EpilogueArgs &a, const GuessArgs &g, int32_t row, int32_t i, cgr_end end,
                                 unsigned char *result) {
  const bool ends = end != CGR_END_NONE && end != CGR_END_BEFORE;
  if (g.stops == nullptr)
    return false;
  reinterpret_cast<int32_t *>(result + g.ended)[i] = (int32_t)end;
  if (ends)
    reinterpret_cast<int32_t *>(result + g.lengths)[i] = a.row_computed[row] & INT32_MAX;
  return ends;
}

/* All of the result but the record: a request for each thread, then the next. Returns whether the row of one of them ends. */
template <bool kGuesses>
__device__ __forceinline__ bool write_requests(const EpilogueArgs &a, const GuessArgs *guesses, Request request,
                                               int32_t num_requests, unsigned char *result) {
  int32_t *num_tokens = reinterpret_cast<int32_t *>(result + a.slot.num_tokens);
  int32_t *tokens = reinterpret_cast<int32_t *>(result + a.slot.tokens);
  int32_t i = (int32_t)threadIdx.x;
  bool ends = false;
#pragma unroll 1
  while (i < num_requests) {
    if (kGuesses) {
      cgr_end end;
      num_tokens[i] = commit_guesses(a, *guesses, request, i, &end);
      ends |= write_end(a, *guesses, request.row, i, end, result);
    } else {
      num_tokens[i] = commit_request(a, request);
    }
    tokens[(int64_t)i * a.token_stride] = request.token;
#pragma unroll 1
    for (int32_t j = 1; j < a.token_stride; j++)
      tokens[(int64_t)i * a.token_stride + j] = a.next_tokens[(int64_t)i * a.token_stride + j];
    i += (int32_t)blockDim.x;
    if (i < num_requests)
      request = read_request(a, i);
  }
  return ends;
}

/* The step is over. */
__device__ __forceinline__ void publish(const EpilogueArgs &a, uint64_t seq) {
  a.state->seq = seq;
  if (a.stamps)
    cgr__stamp_epilogue(cgr__stamp_row(a.stamps, seq, a.ring_depth, a.stamp_stride), device_time());
  store_release_system(&a.completion->completed_seq, seq);
}

template <bool kGuesses> __device__ __forceinline__ void end_step(const EpilogueArgs &a, const GuessArgs *guesses) {
  int32_t i = (int32_t)threadIdx.x, count = load_early(a.num_requests);
  State s = read_state(a);
  Request request = read_request(a, max(min(i, a.padded_requests - 1), 0));
  uint64_t seq = s.state.seq + 1;
  int32_t num_requests = a.abandon ? 0 : count;
  unsigned char *result = a.readback + cgr__ring_slot_index(seq, a.ring_depth) * a.slot.stride;
  bool writes_record = i == (int32_t)blockDim.x - 1; /* in another warp than the first request */

  if (!kGuesses && writes_record)
    write_record(a, s.state, seq, num_requests, a.token_stride > 1, 0, result);
  bool ends = write_requests<kGuesses>(a, guesses, request, num_requests, result);
  if (a.value_flags != nullptr)
    write_values(a, seq, num_requests, result);
  if (kGuesses) { /* what was sampled may have been refused, or end a row */
    int32_t any = __syncthreads_or(ends);
    if (writes_record) {
      s.state.error = a.state->error;
      write_record(a, s.state, seq, num_requests, a.token_stride > 1 || guesses->stops != nullptr, any, result);
    }
  }
  __syncthreads(); /* everyone has read the state and stored its tokens */
  if (i == 0)
    publish(a, seq);
}

__global__ void __launch_bounds__(kMostStepThreads, 1) epilogue_kernel(const __grid_constant__ EpilogueArgs a) {
  end_step<false>(a, nullptr);
}

/* In a runtime that has guesses or stops, or checks tokens. */
struct GuessingEpilogueArgs {
  EpilogueArgs step;
  GuessArgs guesses;
};

__global__ void __launch_bounds__(kMostStepThreads, 1) guessing_epilogue_kernel(const __grid_constant__ GuessingEpilogueArgs a) {
  end_step<true>(a.step, &a.guesses);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_epilogue(const void *pointer, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(pointer);
  if (a->ring_depth < 1)
    return (int)cudaErrorInvalidValue;
  const cgr::GuessingEpilogueArgs own = { cgr::epilogue_args(*a), cgr::guess_args(*a) };
  const dim3 threads(cgr::step_threads(a->padded_requests, 0));
  if (a->token_stride > 1 || a->vocab_size > 0 || a->stops)
    return cgr::launch(cgr::guessing_epilogue_kernel, &own, dim3(1), threads, 0, stream);
  return cgr::launch(cgr::epilogue_kernel, &own.step, dim3(1), threads, 0, stream);
}

extern "C" int cgr__cuda_epilogue_preload(void) {
  int error = cgr::preload(cgr::epilogue_kernel, 0);
  return error ? error : cgr::preload(cgr::guessing_epilogue_kernel, 0);
}

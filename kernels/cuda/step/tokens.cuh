/* The tokens of a step, and how several blocks share them. */
#ifndef CGR_KERNELS_CUDA_STEP_TOKENS_CUH
#define CGR_KERNELS_CUDA_STEP_TOKENS_CUH

#include "kernels/cuda/step/ring_slot.cuh"

namespace cgr {

/* The request that owns token t: the last one that starts at or before it, which skips empty ones. */
__device__ inline int32_t find_request(const int32_t *query_start, int32_t num_requests, int32_t t) {
  if (t < num_requests && query_start[t] == t && query_start[t + 1] == t + 1)
    return t; /* decode */
  int32_t low = 0, high = num_requests;
  while (high - low > 1) {
    int32_t middle = (low + high) / 2;
    if (query_start[middle] <= t)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* P22. Slot of the token at `position`, which is in page `index` of its row. No token is written to a page that no row owns,
 * which includes the read-trash page. */
__device__ inline int64_t find_slot(const cgr__step_args &a, const cgr__group_geometry &group, int32_t row, int32_t position,
                                    int32_t index, int32_t page) {
  if (!page_in_pool(group, page) || page == group.read_trash_page) {
    claim_error(&a.state->error, CGR_GUARD_PAGE, row, index, page);
    return -1;
  }
  return (int64_t)page * group.page_size + (position - index * group.page_size);
}

/* P25. The guess at `index` of the row of request i. */
__device__ __forceinline__ int32_t load_guess(const cgr__step_args &a, int32_t i, int32_t row, int32_t index) {
  int32_t guess = index < a.token_stride - 1 ? a.buffers.row_draft_tokens[(int64_t)row * (a.token_stride - 1) + index] : 0;
  if (cgr__is_in_vocabulary(guess, a.vocab_size))
    return guess;
  claim_error(&a.state->error, CGR_GUARD_TOKEN, row, i, guess);
  return 0;
}

/* P26. Of a request of a draft that follows, what token t is. -1: the request does not. */
__device__ inline int32_t load_followed(const cgr__step_args &a, const BatchLayout &batch, int32_t i, int32_t row, int32_t t) {
  const int32_t query_len = batch.query_start[i + 1] - batch.query_start[i];
  if (cgr__step_guesses(a.buffers.request_flags[i], query_len, a.token_stride) == 0)
    return CGR_TOKEN_LAST;
  return a.buffers.row_last_tokens[(int64_t)row * a.token_stride + max(a.buffers.logits_indices[i] - t, 0)];
}

/* Whether the step's tokens have a slot in the group: those of one set or program have none in others. */
template <bool kSets> __device__ __forceinline__ bool has_slots(const cgr__step_args &a, int g) {
  return !(a.other_groups >> g & 1) && (!kSets || a.group[g].length_set == a.set);
}

/* `token`: of a step whose tokens section has them all. */
template <bool kSets>
__device__ inline void write_token(const PrologueArgs &args, const BatchLayout &batch, const Step &step, int32_t t,
                                   int32_t token) {
  const cgr__step_args &a = args.step;
  const int32_t *section = reinterpret_cast<const int32_t *>(step.slot + a.slot.tokens);
  int32_t position = 0, first = -1, i = 0, row = 0, guess = -1;
  if (t < step.num_tokens) {
    i = find_request(batch.query_start, step.num_requests, t);
    row = batch.rows[i];
    first = batch.first_position[i];
    position = first >= 0 ? first + (t - batch.query_start[i]) : 0;
    if ((step.flags & CGR__RING_SLOT_EDITS) && batch.first_token[i] >= 0) {
      int32_t at = batch.first_token[i] + (t - batch.query_start[i]);
      if ((uint32_t)at < (uint32_t)a.max_tokens) /* always, unless a bad ring slot names a place twice */
        token = load_mapped_word(section + at);
    }
    guess = a.token_stride > 1 && first >= 0 && a.program == 0 ? cgr__guess_index(token, t - batch.query_start[i]) : -1;
    if (a.program > 0 && first >= 0) {
      const int32_t followed = load_followed(a, batch, i, row, t);
      token = followed == CGR_TOKEN_LAST ? token : followed;
    }
  }
  /* All loads before the first use. */
  int32_t last_token = t < step.num_tokens ? 0 : a.state->padding_token; /* 0: of a request that a guard emptied */
  int32_t pages[CGR__MAX_GROUPS] = { -1, -1, -1, -1 }, index[CGR__MAX_GROUPS];
  if (first >= 0) {
    last_token = a.buffers.row_last_tokens[(int64_t)row * a.token_stride];
#pragma unroll
    for (int g = 0; g < CGR__MAX_GROUPS; g++) {
      if (g >= a.num_groups)
        break;
      index[g] = divide(position, a.group[g].page_size, args.page_inverse[g]);
      if (index[g] < a.group[g].page_table_stride && has_slots<kSets>(a, g))
        pages[g] = *page_entry(a, g, row, index[g]);
    }
  }
  if (guess >= 0)
    token = load_guess(a, i, row, guess);
  a.buffers.input_ids[t] = first < 0 || (token == CGR_TOKEN_LAST && guess < 0) ? last_token : token;
  a.buffers.positions[t] = position;
#pragma unroll
  for (int g = 0; g < CGR__MAX_GROUPS; g++) {
    if (g >= a.num_groups)
      break;
    if (a.other_groups >> g & 1)
      continue;
    bool has_slot = first >= 0 && has_slots<kSets>(a, g);
    a.buffers.group[g].slot_mapping[t] = has_slot ? find_slot(a, a.group[g], row, position, index[g], pages[g]) : -1;
  }
}

/* A block's share of the tokens [0, B_t). */
template <bool kSets>
__device__ inline void write_tokens(const PrologueArgs &args, const BatchLayout &batch, const Step &step, int32_t share) {
  const int32_t *section = reinterpret_cast<const int32_t *>(step.slot + args.step.slot.tokens);
  bool staged = step.flags & CGR__RING_SLOT_TOKENS;
  int32_t stride = (int32_t)(gridDim.x * blockDim.x), t = share * (int32_t)blockDim.x + (int32_t)threadIdx.x;
  int32_t token = CGR_TOKEN_LAST;
  if (staged && t < step.num_tokens)
    token = load_mapped_word(section + t);
#pragma unroll 1
  for (; t < args.step.padded_tokens; t += stride) {
    int32_t next = CGR_TOKEN_LAST; /* of the next round, on its way during this one */
    if (staged && t + stride < step.num_tokens)
      next = load_mapped_word(section + t + stride);
    write_token<kSets>(args, batch, step, t, token);
    token = next;
  }
}

/* ---------------------------------------------------------------------------------------------------------------- blocks */

/* Which share of the tokens a block has. The first block that asks has share 0, and before it the requests; the others wait for
 * what it leaves in the gate, and the last to finish zeroes the gate again. */
__device__ inline int32_t take_share(const cgr__step_args &a) {
  __shared__ int32_t share;
  if (gridDim.x == 1)
    return 0;
  if (threadIdx.x == 0)
    share = atomicAdd(&a.state->gate.begun, 1);
  __syncthreads();
  return share;
}

__device__ inline void open_tokens(const cgr__step_args &a, const Step &step) {
  cgr__step_gate *gate = &a.state->gate;
  if (gridDim.x == 1 || threadIdx.x != 0)
    return;
  gate->num_requests = step.num_requests;
  gate->num_tokens = step.num_tokens;
  gate->num_edits = step.num_edits;
  gate->flags = step.flags;
  gate->fetched = step.slot == reinterpret_cast<const unsigned char *>(a.buffers.inbox);
  store_release_device(&gate->open, 1);
}

template <bool kSets> __device__ inline Step wait_for_tokens(const PrologueArgs &args, const BatchLayout &batch) {
  const cgr__step_args &a = args.step;
  const cgr__step_gate *gate = &a.state->gate;
  Step step;
  if (threadIdx.x == 0)
    while (load_acquire_device(&gate->open) == 0)
      __nanosleep(100);
  __syncthreads();
  step.num_requests = gate->num_requests;
  step.num_tokens = gate->num_tokens;
  step.num_edits = gate->num_edits;
  step.flags = gate->flags;
  step.slot = gate->fetched ? reinterpret_cast<const unsigned char *>(a.buffers.inbox)
                            : a.staging + cgr__ring_slot_index(a.state->seq + 1, a.ring_depth) * a.slot.stride;
  for (int32_t i = (int32_t)threadIdx.x; i < step.num_requests; i += (int32_t)blockDim.x) {
    int32_t end = a.buffers.query_start_loc[i + 1], seq_len = a.buffers.seq_lens[kSets ? a.set : 0][i];
    batch.query_start[i + 1] = end;
    batch.rows[i] = a.buffers.request_rows[i];
    batch.first_position[i] = seq_len > 0 ? seq_len - (end - a.buffers.query_start_loc[i]) : -1;
    batch.first_token[i] = -1;
  }
  if (threadIdx.x == 0)
    batch.query_start[0] = 0;
  __syncthreads();
  for (int32_t e = (int32_t)threadIdx.x; e < step.num_edits; e += (int32_t)blockDim.x) {
    const cgr__edit edit = load_edit(a, step, e);
    if (edit_is_good(a, step, edit)) /* as the first block found it; but a ring slot is not believed twice */
      atomicExch(&batch.first_token[edit.place & 0xffff], edit.first_token);
  }
  __syncthreads();
  return step;
}

__device__ inline void close_tokens(const cgr__step_args &a) {
  cgr__step_gate *gate = &a.state->gate;
  if (gridDim.x == 1 || threadIdx.x != 0)
    return;
  __threadfence(); /* this block's reads of the gate come before its count */
  if (atomicAdd(&gate->finished, 1) != (int32_t)gridDim.x - 1)
    return;
  __threadfence();
  *gate = {};
}

} // namespace cgr
#endif

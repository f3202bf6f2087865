/* The most common step, in registers: one token for each request, the same requests as before, no changes except to words of the
 * rows' tables (usually a page), and the ring slot fetched ahead. It takes three round trips (counter, inbox and batch layout;
 * row state; page table), two more barriers with changes, and a fifth of the instructions of the general path. Anything unusual,
 * such as a bad page, is left to the general path, which starts over: only good changes have been written by then, and it writes
 * them again. */
#ifndef CGR_KERNELS_CUDA_STEP_DECODE_CUH
#define CGR_KERNELS_CUDA_STEP_DECODE_CUH

#include "devices/cuda/access.cuh"
#include "kernels/cuda/step/tables.cuh"

namespace cgr {

/* Sums of the warps: pages of their requests in each group. */
struct DecodeScratch {
  int32_t pages[CGR__MAX_GROUPS][32];
};

/* Whether the key allows it: a thread for each request. */
__device__ __forceinline__ bool may_be_decodes(const cgr__step_args &a) {
  return a.padded_requests == a.padded_tokens && a.padded_requests <= (int32_t)blockDim.x && !a.empty && a.num_groups > 0;
}

__device__ __forceinline__ bool is_unchanged(const cgr__step_args &a, const cgr__ring_slot_header &header, uint64_t seq,
                                             uint64_t batch_seq, uint64_t generation) {
  return header.seq == seq && header.generation == generation && header.batch_seq == batch_seq && batch_seq != 0 &&
         header.flags == 0 && header.num_changes >= 0 && header.num_changes <= a.max_changes &&
         header.num_tokens == header.num_requests && header.num_requests >= 0 &&
         header.num_requests <= min(a.max_requests, a.padded_requests);
}

/* A request, its token, and the page of that token in each group. */
template <int kGroups> struct Decode {
  int32_t row, position, token;
  int32_t index[kGroups], page[kGroups], pages_upto[kGroups];
};

/* P10, P15, P16: whether the batch layout and the rows are what they should be. */
template <int kGroups> __device__ __forceinline__ bool read_decode(const PrologueArgs &args, int32_t row, Decode<kGroups> &d) {
  const cgr__step_args &a = args.step;
  d.row = row;
  if (row < 0 || row >= a.max_rows)
    return false;
  d.position = load_early(&a.buffers.row_computed[row]);
  d.token = load_early(&a.buffers.row_last_tokens[(int64_t)row * a.token_stride]);
  if (d.position < 0 || d.position >= a.max_lens[0])
    return false;
  bool good = true;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    d.index[g] = divide(d.position, a.group[g].page_size, args.page_inverse[g]);
    d.page[g] = d.index[g] < a.group[g].page_table_stride ? *page_entry(a, g, row, d.index[g]) : -1;
    good &= page_in_pool(a.group[g], d.page[g]) && d.page[g] != a.group[g].read_trash_page;
  }
  return good;
}

/* Writes the ring slot's changes, of which `first` is this thread's first, once the batch layout is known to be good. Returns
 * whether all are good; ends with a barrier. */
__device__ __forceinline__ bool place_changes(const cgr__step_args &a, int32_t num_changes, int4 first, bool composed) {
  if (!__syncthreads_and(composed))
    return false;
  const int4 *changes = reinterpret_cast<const int4 *>(reinterpret_cast<const unsigned char *>(a.buffers.inbox) + a.slot.changes);
  bool good = true;
  int4 change = first;
#pragma unroll 1
  for (int32_t c = (int32_t)threadIdx.x; c < num_changes; c += (int32_t)blockDim.x) {
    good &= place_change(a, change);
    if (c + (int32_t)blockDim.x < num_changes)
      change = load_early(changes + c + blockDim.x);
  }
  return __syncthreads_and(good);
}

/* Sums the pages of the requests up to this one in its warp; the sum of the warp goes to the scratch. */
template <int kGroups> __device__ __forceinline__ void sum_in_warp(bool real, Decode<kGroups> &d, DecodeScratch &scratch) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    int32_t sum = real ? d.index[g] + 1 : 0;
#pragma unroll
    for (int k = 1; k < 32; k *= 2) {
      int32_t other = __shfl_up_sync(~0u, sum, k);
      sum += lane >= k ? other : 0;
    }
    d.pages_upto[g] = sum;
    if (lane == 31)
      scratch.pages[g][threadIdx.x >> 5] = sum;
  }
}

template <int kGroups>
__device__ __forceinline__ void write_decode(const cgr__step_args &a, int32_t i, int32_t num_requests, int32_t padding_token,
                                             const Decode<kGroups> &d, const DecodeScratch &scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  bool real = i < num_requests, inside = i < a.padded_requests;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    int32_t before = warp > 0 ? __reduce_add_sync(~0u, lane < warp ? scratch.pages[g][lane] : 0) : 0;
    int32_t in_page = d.position - d.index[g] * a.group[g].page_size;
    if (!inside)
      continue;
    a.buffers.group[g].kv_indptr[i + 1] = before + d.pages_upto[g];
    a.buffers.group[g].kv_last_page_len[i] = real ? in_page + 1 : 1;
    a.buffers.group[g].slot_mapping[i] = real ? (int64_t)d.page[g] * a.group[g].page_size + in_page : -1;
  }
  if (!inside)
    return;
  a.buffers.request_rows[i] = real ? d.row : a.max_rows;
  a.buffers.query_start_loc[i + 1] = min(i + 1, num_requests);
  a.buffers.seq_lens[0][i] = real ? d.position + 1 : 0;
  a.buffers.logits_indices[i] = real ? i : 0;
  a.buffers.input_ids[i] = real ? d.token : padding_token;
  a.buffers.positions[i] = real ? d.position : 0;
  if (!real)
    a.buffers.request_flags[i] = 0;
}

template <int kGroups>
__device__ __forceinline__ void write_decode_counts(const cgr__step_args &a, int32_t num_requests, uint64_t staged) {
  int32_t num_decodes = a.reorder_threshold > 0 ? num_requests : 0;
  int4 *counts = reinterpret_cast<int4 *>(a.buffers.counts);
  static_assert(CGR_COUNT_REQUESTS == 0 && CGR_COUNT_TOKENS == 1 && CGR_COUNT_PADDED_REQUESTS == 2 &&
                    CGR_COUNT_PADDED_TOKENS == 3 && CGR_COUNT_DECODES == 4 && CGR_COUNT_DECODE_TOKENS == 5 &&
                    CGR_COUNT_APPEND_FIRST == 6,
                "the counts are written by three stores");
  counts[0] = make_int4(num_requests, num_requests, a.padded_requests, a.padded_tokens);
  *reinterpret_cast<int2 *>(counts + 1) = make_int2(num_decodes, num_decodes);
  a.buffers.counts[CGR_COUNT_APPEND_FIRST] = 0;
  a.buffers.query_start_loc[0] = 0;
#pragma unroll
  for (int g = 0; g < kGroups; g++)
    a.buffers.group[g].kv_indptr[0] = 0;
  a.state->error = { CGR_GUARD_NONE, -1, 0, 0, 0 };
  a.state->lost = 0;
  a.state->staged = staged;
}

/* Returns whether the step was one of these, and is written. Called by all threads. */
template <int kGroups> __device__ __forceinline__ bool write_unchanged_decodes(const PrologueArgs &args, DecodeScratch &scratch) {
  const cgr__step_args &a = args.step;
  int32_t i = (int32_t)threadIdx.x, at = max(min(i, a.padded_requests - 1), 0);
  union {
    int4 vector[sizeof(cgr__ring_slot_header) / sizeof(int4)];
    cgr__ring_slot_header header;
  } in;
  int32_t row = load_early(&a.buffers.request_rows[at]);
  uint64_t seq = load_early(&a.state->seq) + 1, batch_seq = load_early(&a.state->batch_seq);
  uint64_t generation = load_early(&a.state->generation);
  const unsigned char *inbox = reinterpret_cast<const unsigned char *>(a.buffers.inbox);
#pragma unroll
  for (int k = 0; k < (int)(sizeof in.vector / sizeof in.vector[0]); k++)
    in.vector[k] = load_early(reinterpret_cast<const int4 *>(inbox) + k);
  int32_t start = load_early(&a.buffers.query_start_loc[at]), end = load_early(&a.buffers.query_start_loc[at + 1]);
  int4 change = load_early(reinterpret_cast<const int4 *>(inbox + a.slot.changes) + min(i, a.max_changes - 1));
  int32_t padding_token = load_early(&a.state->padding_token);
  const cgr__ring_slot_header &header = in.header;
  if (!is_unchanged(a, header, seq, batch_seq, generation))
    return false;
  bool real = i < header.num_requests, good = !real || (start == i && end == i + 1);
  if (header.num_changes > 0 && !place_changes(a, header.num_changes, change, good))
    return false;
  Decode<kGroups> d = {};
  good = good && (!real || read_decode(args, row, d));
  sum_in_warp(real, d, scratch);
  if (!__syncthreads_and(good))
    return false;
  write_decode(a, i, header.num_requests, padding_token, d, scratch);
  if (i == (int32_t)blockDim.x - 1) /* usually in another warp than the first request */
    write_decode_counts<kGroups>(a, header.num_requests, header.staged);
  return true;
}

} // namespace cgr
#endif

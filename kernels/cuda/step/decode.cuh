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

/* The groups whose tokens the step has. */
inline int32_t own_groups(const cgr__step_args &a) {
  int32_t count = 0;
  for (int g = 0; g < a.num_groups; g++)
    count += !(a.other_groups >> g & 1);
  return count;
}

/* `threads`: of the block. */
inline DecodeArgs decode_args(const cgr__step_args &a, const uint32_t (&page_inverse)[CGR__MAX_GROUPS], int32_t threads) {
  const cgr__buffers &b = a.buffers;
  DecodeArgs d = {};
  d.request_rows = b.request_rows, d.state = a.state, d.query_start_loc = b.query_start_loc;
  d.inbox = reinterpret_cast<const unsigned char *>(b.inbox);
  d.allowed =
      a.padded_requests == a.padded_tokens && a.padded_requests <= threads && !a.empty && own_groups(a) > 0 && a.program == 0;
  d.padded_requests = a.padded_requests, d.max_requests = a.max_requests, d.max_changes = a.max_changes;
  d.row_computed = b.row_computed, d.row_last_tokens = b.row_last_tokens;
  d.max_rows = a.max_rows, d.max_len = a.max_lens[0], d.token_stride = a.token_stride;
  d.reorder_threshold = a.split.threshold, d.changes = a.slot.changes;
  d.seq_lens = b.seq_lens[0], d.logits_indices = b.logits_indices, d.input_ids = b.input_ids;
  d.positions = b.positions, d.request_flags = b.request_flags, d.counts = b.counts, d.num_drafts = b.num_drafts;
  for (int g = 0, own = 0; g < a.num_groups; g++) {
    if (a.other_groups >> g & 1)
      continue;
    const cgr__group_geometry &of = a.group[g];
    int32_t num_pages = (int32_t)(of.num_pages < INT32_MAX ? of.num_pages : INT32_MAX);
    d.group[own++] = { b.group[g].page_table, of.page_table_stride,        of.page_size,           num_pages,
                       of.read_trash_page,    of.write_trash_page,         page_inverse[g],        of.kernel_page_size,
                       b.group[g].kv_indptr,  b.group[g].kv_last_page_len, b.group[g].slot_mapping };
  }
  return d;
}

__device__ __forceinline__ bool is_unchanged(const DecodeArgs &a, const cgr__ring_slot_header &header, uint64_t seq,
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
template <int kGroups> __device__ __forceinline__ bool read_decode(const DecodeArgs &a, int32_t row, Decode<kGroups> &d) {
  d.row = row;
  if (row < 0 || row >= a.max_rows)
    return false;
  d.position = load_early(&a.row_computed[row]);
  d.token = load_early(&a.row_last_tokens[(int64_t)row * a.token_stride]);
  if (d.position < 0 || d.position >= a.max_len)
    return false;
  bool good = true;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    const DecodeGroup &group = a.group[g];
    int32_t index = divide(d.position, group.page_size, group.page_inverse);
    int32_t page = index < group.page_table_stride ? group.page_table[row * group.page_table_stride + index] : -1;
    good &= page >= 0 && page < group.num_pages && page != group.write_trash_page && page != group.read_trash_page;
    d.index[g] = index;
    d.page[g] = page;
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
template <int kGroups>
__device__ __forceinline__ void sum_in_warp(const DecodeArgs &a, bool real, Decode<kGroups> &d, DecodeScratch &scratch) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    int32_t size = a.group[g].kernel_page_size, index = size > 0 ? d.position >> (__ffs(size) - 1) : d.index[g];
    int32_t sum = real ? index + 1 : 0;
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
__device__ __forceinline__ void write_decode(const DecodeArgs &a, int32_t i, int32_t num_requests, int32_t padding_token,
                                             const Decode<kGroups> &d, const DecodeScratch &scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  bool real = i < num_requests, inside = i < a.padded_requests;
#pragma unroll
  for (int g = 0; g < kGroups; g++) {
    int32_t before = warp > 0 ? __reduce_add_sync(~0u, lane < warp ? scratch.pages[g][lane] : 0) : 0;
    int32_t in_page = d.position - d.index[g] * a.group[g].page_size, size = a.group[g].kernel_page_size;
    if (!inside)
      continue;
    a.group[g].kv_indptr[i + 1] = before + d.pages_upto[g];
    a.group[g].kv_last_page_len[i] = real ? (size > 0 ? d.position & (size - 1) : in_page) + 1 : 1;
    a.group[g].slot_mapping[i] = real ? (int64_t)d.page[g] * a.group[g].page_size + in_page : -1;
  }
  if (!inside)
    return;
  a.request_rows[i] = real ? d.row : a.max_rows;
  a.query_start_loc[i + 1] = min(i + 1, num_requests);
  a.seq_lens[i] = real ? d.position + 1 : 0;
  a.logits_indices[i] = real ? i : 0;
  a.input_ids[i] = real ? d.token : padding_token;
  a.positions[i] = real ? d.position : 0;
  if (!real)
    a.request_flags[i] = 0;
  if (a.token_stride > 1)
    a.num_drafts[i] = 0; /* each has one token */
}

template <int kGroups>
__device__ __forceinline__ void write_decode_counts(const DecodeArgs &a, int32_t num_requests, uint64_t staged) {
  int32_t num_decodes = a.reorder_threshold > 0 ? num_requests : 0;
  int4 *counts = reinterpret_cast<int4 *>(a.counts);
  static_assert(CGR_COUNT_REQUESTS == 0 && CGR_COUNT_TOKENS == 1 && CGR_COUNT_PADDED_REQUESTS == 2 &&
                    CGR_COUNT_PADDED_TOKENS == 3 && CGR_COUNT_DECODES == 4 && CGR_COUNT_DECODE_TOKENS == 5 &&
                    CGR_COUNT_APPEND_FIRST == 6,
                "the counts are written by three stores");
  counts[0] = make_int4(num_requests, num_requests, a.padded_requests, a.padded_requests);
  *reinterpret_cast<int2 *>(counts + 1) = make_int2(num_decodes, num_decodes);
  a.counts[CGR_COUNT_APPEND_FIRST] = 0;
  a.query_start_loc[0] = 0;
#pragma unroll
  for (int g = 0; g < kGroups; g++)
    a.group[g].kv_indptr[0] = 0;
  a.state->error = { CGR_GUARD_NONE, -1, 0, 0, 0 };
  a.state->lost = 0;
  a.state->staged = staged;
}

/* Returns whether the step was one of these, and is written. Called by all threads. */
template <int kGroups> __device__ __forceinline__ bool write_unchanged_decodes(const PrologueArgs &args, DecodeScratch &scratch) {
  const DecodeArgs &a = args.decode;
  int32_t i = (int32_t)threadIdx.x, at = max(min(i, a.padded_requests - 1), 0);
  union {
    int4 vector[sizeof(cgr__ring_slot_header) / sizeof(int4)];
    cgr__ring_slot_header header;
  } in;
  int32_t row = load_early(&a.request_rows[at]);
  uint64_t seq = load_early(&a.state->seq) + 1, batch_seq = load_early(&a.state->batch_seq);
  uint64_t generation = load_early(&a.state->generation);
#pragma unroll
  for (int k = 0; k < (int)(sizeof in.vector / sizeof in.vector[0]); k++)
    in.vector[k] = load_early(reinterpret_cast<const int4 *>(a.inbox) + k);
  int32_t start = load_early(&a.query_start_loc[at]), end = load_early(&a.query_start_loc[at + 1]);
  int4 change = load_early(reinterpret_cast<const int4 *>(a.inbox + a.changes) + min(i, a.max_changes - 1));
  int32_t padding_token = load_early(&a.state->padding_token);
  const cgr__ring_slot_header &header = in.header;
  if (!is_unchanged(a, header, seq, batch_seq, generation))
    return false;
  bool real = i < header.num_requests, good = !real || (start == i && end == i + 1);
  if (header.num_changes > 0 && !place_changes(args.step, header.num_changes, change, good))
    return false;
  Decode<kGroups> d = {};
  good = good && (!real || read_decode(a, row, d));
  sum_in_warp(a, real, d, scratch);
  if (!__syncthreads_and(good))
    return false;
  write_decode(a, i, header.num_requests, padding_token, d, scratch);
  if (i == (int32_t)blockDim.x - 1) /* in another warp than the first request */
    write_decode_counts<kGroups>(a, header.num_requests, header.staged);
  return true;
}

} // namespace cgr
#endif

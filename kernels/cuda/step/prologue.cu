/* First kernel of a step: reads the ring slot, applies its changes and derives this step's buffers (kernels/step.h, P1 ..).
 *
 * One block does that. If a key has many tokens there are more blocks, which wait for it and share the tokens with it: whichever
 * begins first is the one, so it does not matter how many the GPU runs at once. The kernel's cost is latency: its round trips,
 * one after the other (counter and inbox, rows, row state, page table), and the instructions of all warps of one SM. So it has as
 * many threads as the key has requests or tokens, no request or token takes a division, and what an unchanged decode batch does
 * not need is skipped. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/step/decode.cuh"
#include "kernels/cuda/step/threads.cuh"
#include "kernels/cuda/step/tokens.cuh"

namespace cgr {
namespace {

constexpr int32_t kTokensOfBlock = 2048;
constexpr int32_t kMostBlocks = 32;

/* The batch layout on the device, fetched before it is known whether this step uses it. Thread t reads and later uses the
 * requests t, t + blockDim.x, ...: no barrier between. */
__device__ void fetch_batch_layout(const PrologueArgs &args, const BatchLayout &batch) {
  const cgr__step_args &a = args.step;
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i <= a.padded_requests; i += (int32_t)blockDim.x) {
    batch.query_start[i] = a.buffers.query_start_loc[i];
    if (i == a.padded_requests)
      break;
    int32_t row = a.buffers.request_rows[i];
    batch.rows[i] = row;
    if (row < 0 || row >= a.max_rows)
      continue;
    prefetch(&a.buffers.row_last_tokens[(int64_t)row * a.token_stride]);
    int32_t position = a.buffers.row_computed[row];
    batch.first_position[i] = position;
#pragma unroll
    for (int g = 0; g < CGR__MAX_GROUPS; g++) {
      if (g >= a.num_groups || position < 0)
        break;
      int32_t index = divide(position, a.group[g].page_size, args.page_inverse[g]);
      if (index < a.group[g].page_table_stride)
        prefetch(page_entry(a, g, row, index));
    }
  }
}

/* -------------------------------------------------------------------------------------------------------------- requests */

/* A request's lengths in all length sets, its new tokens included; without sets (kSets) in the first alone. */
struct Lengths {
  int32_t in[CGR__MAX_SETS];
};

template <bool kSets> __device__ __forceinline__ int32_t length_in(const Lengths &lengths, int32_t set) {
  int32_t length = lengths.in[0];
  if (kSets) {
#pragma unroll
    for (int s = 1; s < CGR__MAX_SETS; s++) /* no index unknown to the compiler: it would put the array in memory */
      length = set == s ? lengths.in[s] : length;
  }
  return length;
}

/* P16, P24. Lengths in the sets after 0, of a request whose `computed` is good; the new tokens of such a set are in its length
 * already. */
__device__ inline bool guard_other_sets(const cgr__step_args &a, const BatchLayout &batch, int32_t i, int32_t row,
                                        int32_t query_len, Lengths &lengths) {
  const int32_t *of_row = a.lengths + (int64_t)row * (a.num_sets - 1);
#pragma unroll
  for (int s = 1; s < CGR__MAX_SETS; s++) {
    if (s >= a.num_sets)
      break;
    int32_t length = of_row[s - 1];
    if (length < (s == a.set ? query_len : 0) || length > a.max_lens[s]) {
      claim_error(&a.state->error, CGR_GUARD_LENGTH, row, i, length);
      return false;
    }
    lengths.in[s] = length;
    if (s == a.set)
      batch.first_position[i] = length - query_len;
  }
  return true;
}

/* P26. The tokens that a request of a draft lacks, if it follows; else all of its own. */
__device__ inline int64_t count_lacking(const cgr__step_args &a, int32_t i, int32_t row, int32_t query_len, int32_t computed) {
  if (cgr__step_guesses(a.buffers.request_flags[i], query_len, a.token_stride) == 0)
    return query_len;
  return (int64_t)cgr__step_computed(&a, 0)[row] + 1 - computed;
}

/* P26. Whether request i of a draft can follow, if it does. */
__device__ inline bool guard_following(const cgr__step_args &a, int32_t i, int32_t row, int32_t query_len, int32_t computed) {
  if (cgr__step_guesses(a.buffers.request_flags[i], query_len, a.token_stride) == 0)
    return true;
  const int64_t count = count_lacking(a, i, row, query_len, computed);
  if (cgr__can_follow(count, query_len, a.buffers.row_num_accepted[row]))
    return true;
  if (a.stops == nullptr || !cgr__row_has_ended(cgr__step_computed(&a, 0)[row], a.max_lens[0]))
    claim_error(&a.state->error, CGR_GUARD_LENGTH, row, i, count);
  return false;
}

/* P15 to P17. Lengths of request i, all 0 when a guard empties it. `fresh`: nothing in this step's ring slot can have touched
 * what fetch_batch_layout fetched. */
template <bool kSets>
__device__ Lengths guard_request(const cgr__step_args &a, const BatchLayout &batch, int32_t i, int32_t row, int32_t query_len,
                                 bool fresh) {
  Lengths lengths = {};
  if (row < 0 || row >= a.max_rows) {
    claim_error(&a.state->error, CGR_GUARD_ROW, -1, i, row);
    batch.first_position[i] = -1;
    return lengths;
  }
  int32_t computed = fresh ? batch.first_position[i] : a.buffers.row_computed[row];
  int64_t seq_len = (int64_t)computed + (kSets && a.set > 0 ? 0 : query_len);
  if (computed < 0 || seq_len > a.max_lens[0]) {
    if (a.stops == nullptr || !cgr__row_has_ended(computed, a.max_lens[0]))
      claim_error(&a.state->error, CGR_GUARD_LENGTH, row, i, seq_len);
    batch.first_position[i] = -1;
    return lengths;
  }
  if (a.program > 0 && !guard_following(a, i, row, query_len, computed)) {
    batch.first_position[i] = -1;
    return lengths;
  }
  batch.first_position[i] = computed;
  lengths.in[0] = (int32_t)seq_len;
  if (kSets && !guard_other_sets(a, batch, i, row, query_len, lengths)) {
    batch.first_position[i] = -1;
    return {};
  }
  return lengths;
}

/* P26. Where the token of request i is, of a draft, whose hidden state predicts the next one. */
__device__ inline int32_t last_token(const cgr__step_args &a, const BatchLayout &batch, int32_t i, int32_t row,
                                     int32_t query_len) {
  const int32_t tokens = (int32_t)count_lacking(a, i, row, query_len, batch.first_position[i]);
  return query_len > 0 ? batch.query_start[i] + tokens - 1 : 0;
}

/* Writes all rows [0, B_r), real or not, by the same stores. Ends with a barrier. */
template <bool kSets>
__device__ void write_requests(const PrologueArgs &args, const BatchLayout &batch, const Step &step, bool fresh,
                               Scratch &scratch) {
  const cgr__step_args &a = args.step;
  const cgr__decode_split split = a.split;
  const int32_t first_len = split.threshold > 0 && step.num_requests > 0 ? batch.query_start[1] - batch.query_start[0] : 0;
  uint32_t pages_before[CGR__MAX_GROUPS] = { 0, 0, 0, 0 };
#pragma unroll 1
  for (int32_t base = 0; base < a.padded_requests; base += (int32_t)blockDim.x) {
    int32_t i = base + (int32_t)threadIdx.x;
    bool inside = i < a.padded_requests, real = i < step.num_requests;
    int32_t row = a.max_rows, query_len = 0, end = step.num_tokens; /* of padding */
    Lengths lengths = {};
    if (real) {
      row = batch.rows[i];
      end = batch.query_start[i + 1];
      query_len = end - batch.query_start[i];
      lengths = guard_request<kSets>(a, batch, i, row, query_len, fresh);
      if (split.threshold > 0 && cgr__ends_decodes(&split, first_len, query_len))
        atomicMin(&scratch.end_of_decodes, i);
      if (split.threshold > 0 && cgr__is_prefill(&split, first_len, query_len))
        scratch.has_prefill = 1;
    }
    if (inside) {
      a.buffers.request_rows[i] = row;
      a.buffers.query_start_loc[i + 1] = end;
      a.buffers.seq_lens[0][i] = lengths.in[0];
      if (kSets) {
#pragma unroll
        for (int s = 1; s < CGR__MAX_SETS; s++)
          if (s < a.num_sets)
            a.buffers.seq_lens[s][i] = lengths.in[s];
      }
      a.buffers.logits_indices[i] = query_len > 0 ? end - 1 : 0;
      if (a.program > 0 && lengths.in[0] > 0)
        a.buffers.logits_indices[i] = last_token(a, batch, i, row, query_len);
      if (!real)
        a.buffers.request_flags[i] = 0;
      if (a.token_stride > 1) {
        bool ran = length_in<kSets>(lengths, kSets ? a.set : 0) > 0 && a.program == 0;
        a.buffers.num_drafts[i] = ran ? cgr__step_guesses(a.buffers.request_flags[i], query_len, a.token_stride) : 0;
      }
    }
#pragma unroll
    for (int g = 0; g < CGR__MAX_GROUPS; g++) {
      if (g >= a.num_groups)
        break;
      if (a.other_groups >> g & 1)
        continue;
      int32_t seq_len = length_in<kSets>(lengths, a.group[g].length_set);
      int32_t page_size = a.group[g].page_size, kernel_size = a.group[g].kernel_page_size;
      int32_t full = kernel_page_of(max(seq_len - 1, 0), kernel_size, page_size, args.page_inverse[g]);
      uint32_t pages = seq_len > 0 ? (uint32_t)full + 1 : 0, total; /* all but the last are full */
      uint32_t upto = block_scan(pages, scratch.scan, total);
      if (inside) {
        a.buffers.group[g].kv_indptr[i + 1] = (int32_t)(pages_before[g] + upto);
        a.buffers.group[g].kv_last_page_len[i] = seq_len > 0 ? seq_len - full * (kernel_size > 0 ? kernel_size : page_size) : 1;
      }
      pages_before[g] += total;
    }
  }
  if (threadIdx.x == 0)
    a.buffers.query_start_loc[0] = 0;
  if ((int32_t)threadIdx.x < a.num_groups && !(a.other_groups >> threadIdx.x & 1))
    a.buffers.group[threadIdx.x].kv_indptr[0] = 0;
  __syncthreads();
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

/* All but the tokens. */
template <bool kSets> __device__ Step take_step(const PrologueArgs &args, const BatchLayout &batch, Scratch &scratch) {
  const cgr__step_args &a = args.step;
  cgr__ring_slot_header header;
  uint64_t seq = a.state->seq + 1, batch_seq = a.state->batch_seq, generation = a.state->generation;
  fetch_batch_layout(args, batch);
  const unsigned char *slot = read_header(a, seq, header, scratch);
  if (threadIdx.x == 0) {
    cgr__step_error none = { CGR_GUARD_NONE, -1, 0, 0, 0 };
    a.state->error = none;
    a.state->lost = 0;
    scratch.end_of_decodes = a.padded_requests;
    scratch.has_prefill = 0;
  }
  Step step = judge_header(a, header, seq, batch_seq, generation);
  step.slot = slot;
  __syncthreads();
  bool fresh = !(step.flags & (CGR__RING_SLOT_BATCH | CGR__RING_SLOT_EDITS)) && header.num_changes == 0;
  if (fresh)
    check_batch_layout(a, batch, step, scratch.first_bad);
  else
    take_slot(a, batch, step, header.num_changes, scratch);
  write_requests<kSets>(args, batch, step, fresh, scratch);
  if (threadIdx.x == 0) {
    a.buffers.counts[CGR_COUNT_REQUESTS] = step.num_requests;
    a.buffers.counts[CGR_COUNT_TOKENS] = step.num_tokens;
    a.buffers.counts[CGR_COUNT_PADDED_REQUESTS] = a.padded_requests;
    a.buffers.counts[CGR_COUNT_PADDED_TOKENS] = a.padded_tokens;
    int32_t num_decodes = a.split.threshold == 0 ? 0 : scratch.has_prefill ? scratch.end_of_decodes : step.num_requests;
    a.buffers.counts[CGR_COUNT_DECODES] = num_decodes;
    a.buffers.counts[CGR_COUNT_DECODE_TOKENS] = num_decodes > 0 ? batch.query_start[num_decodes] : 0;
    a.buffers.counts[CGR_COUNT_APPEND_FIRST] = (step.flags & CGR__RING_SLOT_APPEND_FIRST) != 0;
    a.state->staged = step.refused ? 0 : header.staged;
    if (step.refused)
      a.state->batch_seq = 0;
    else if (step.flags & (CGR__RING_SLOT_BATCH | CGR__RING_SLOT_EDITS))
      a.state->batch_seq = seq;
  }
  return step;
}

/* The parameters, for what comes after a vote: 0 bytes further on, which the compiler does not know. It would otherwise read
 * those of the general path's loops before the vote, lines that the most common step does not need. */
__device__ __forceinline__ const PrologueArgs &after_vote(const PrologueArgs &args) {
  uint32_t zero = __ballot_sync(~0u, args.decode.allowed < 0);
  return *reinterpret_cast<const PrologueArgs *>(reinterpret_cast<const unsigned char *>(&args) + zero);
}

/* Any step. */
template <bool kSets> __device__ __forceinline__ void write_step(const PrologueArgs &args, int32_t *words, Scratch &scratch) {
  BatchLayout batch = place_batch_layout(words, args.step.padded_requests);
  Step step;
  int32_t share = take_share(args.step);
  if (share == 0) {
    step = take_step<kSets>(args, batch, scratch);
    open_tokens(args.step, step);
  } else {
    step = wait_for_tokens<kSets>(args, batch);
  }
  write_tokens<kSets>(args, batch, step, share);
  close_tokens(args.step);
}

/* With several length sets (kSets) every step takes the general path. */
template <int kGroups, bool kSets>
__global__ void __launch_bounds__(kMostStepThreads, 1) prologue_kernel(const __grid_constant__ PrologueArgs args) {
  extern __shared__ int32_t words[];
  __shared__ Scratch scratch;
  __shared__ DecodeScratch decodes;
  if (!kSets && args.decode.allowed && write_unchanged_decodes<kGroups>(args, decodes))
    return;
  write_step<kSets>(after_vote(args), words, scratch);
}

/* By the number of groups. Without groups the instance for one is used, because no array is empty. */
constexpr void (*kernels[])(PrologueArgs) = { prologue_kernel<1, false>, prologue_kernel<1, false>, prologue_kernel<2, false>,
                                              prologue_kernel<3, false>, prologue_kernel<4, false> };
constexpr void (*sets_kernel)(PrologueArgs) = prologue_kernel<1, true>;

size_t shared_bytes(int32_t padded_requests) { return (4 * (size_t)padded_requests + 1) * sizeof(int32_t); }

int32_t blocks_for(const cgr__step_args &a) {
  int32_t blocks = (a.padded_tokens + kTokensOfBlock - 1) / kTokensOfBlock;
  return blocks < 1 ? 1 : blocks < kMostBlocks ? blocks : kMostBlocks;
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_prologue(const void *pointer, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(pointer);
  if (a->padded_requests < 0 || a->padded_requests > CGR__MAX_REQUESTS || a->padded_tokens < 0 || a->ring_depth < 1 ||
      a->num_groups < 0 || a->num_groups > CGR__MAX_GROUPS || a->num_sets < 0 || a->num_sets > CGR__MAX_SETS || a->set < 0 ||
      (a->set > 0 && a->set >= a->num_sets))
    return (int)cudaErrorInvalidValue;
  cgr::PrologueArgs args = { {}, *a, {} };
  for (int g = 0; g < a->num_groups; g++)
    if (a->group[g].page_size > 0)
      args.page_inverse[g] = ~0u / (uint32_t)a->group[g].page_size;
  dim3 grid((unsigned)cgr::blocks_for(*a)), block(cgr::step_threads(a->padded_requests, a->padded_tokens));
  args.decode = cgr::decode_args(*a, args.page_inverse, (int32_t)block.x);
  auto kernel = a->num_sets > 1 ? cgr::sets_kernel : cgr::kernels[cgr::own_groups(*a)];
  return cgr::launch(kernel, &args, grid, block, cgr::shared_bytes(a->padded_requests), stream);
}

extern "C" int cgr__cuda_prologue_preload(void) {
  for (auto kernel : cgr::kernels)
    if (int error = cgr::preload(kernel, cgr::shared_bytes(CGR__MAX_REQUESTS)))
      return error;
  return cgr::preload(cgr::sets_kernel, cgr::shared_bytes(CGR__MAX_REQUESTS));
}

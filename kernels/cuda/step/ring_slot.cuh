/* What the prologue takes from a ring slot: the header, which it judges, then changes, batch layout and edits. Nothing in a ring
 * slot is trusted. Loads are those of mapped memory, whether the ring slot is read over the bus or has been fetched into the
 * inbox. */
#ifndef CGR_KERNELS_CUDA_STEP_RING_SLOT_CUH
#define CGR_KERNELS_CUDA_STEP_RING_SLOT_CUH

#include "kernels/cuda/guard.cuh"
#include "devices/cuda/access.cuh"
#include "kernels/cuda/step/tables.cuh"
#include "kernels/cuda/step/scan.cuh"

namespace cgr {

/* Of the first block, in shared memory. */
struct Scratch {
  union {
    int4 vector[sizeof(cgr__ring_slot_header) / sizeof(int4)];
    cgr__ring_slot_header header;
  };
  ScanScratch<uint32_t> scan;
  int32_t first_bad;
  int32_t end_of_decodes; /* the first request that ends them, where there is a prefill (planners/metadata/decode_split.h) */
  int32_t has_prefill;
};

/* What a step is once its header has been judged. Equal in all threads. */
struct Step {
  const unsigned char *slot;
  int32_t num_requests, num_tokens, num_changes, num_edits;
  uint32_t flags;
  bool refused; /* a guard emptied the whole step */
};

/* The batch layout in shared memory. first_position: row_computed of the request's row, or -1 when a guard emptied it.
 * first_token: of a step with edits, where the request's ids begin in the tokens section, or -1. */
struct BatchLayout {
  int32_t *query_start, *rows, *first_position, *first_token; /* [B_r + 1], [B_r], [B_r], [B_r] */
};

__device__ inline BatchLayout place_batch_layout(int32_t *words, int32_t padded_requests) {
  return { words, words + padded_requests + 1, words + 2 * padded_requests + 1, words + 3 * padded_requests + 1 };
}

/* ---------------------------------------------------------------------------------------------------------------- header */

/* The ring slot of step `seq`: the inbox if the step before has fetched it, whose header all threads read; else the ring slot
 * itself, whose header one warp reads over the bus. */
__device__ inline const unsigned char *read_header(const cgr__step_args &a, uint64_t seq, cgr__ring_slot_header &header,
                                                   Scratch &scratch) {
  const unsigned char *inbox = reinterpret_cast<const unsigned char *>(a.buffers.inbox);
  header = {};
  if (!a.empty)
    header = *reinterpret_cast<const cgr__ring_slot_header *>(inbox);
  if (header.seq == seq || a.empty)
    return inbox;
  const unsigned char *slot = a.staging + cgr__ring_slot_index(seq, a.ring_depth) * a.slot.stride;
  if (threadIdx.x < sizeof scratch.vector / sizeof scratch.vector[0])
    scratch.vector[threadIdx.x] = load_mapped(slot + threadIdx.x * sizeof(int4));
  __syncthreads();
  header = scratch.header;
  return slot;
}

/* P4. The step becomes one without requests, which takes nothing from its ring slot. */
__device__ inline void refuse(Step &step) {
  step.num_requests = step.num_tokens = step.num_changes = step.num_edits = 0;
  step.flags = 0;
  step.refused = true;
}

/* P5 to P8 and P11, in this order. */
__device__ inline Step judge_header(const cgr__step_args &a, const cgr__ring_slot_header &header, uint64_t seq,
                                    uint64_t batch_seq, uint64_t generation) {
  Step step;
  step.num_requests = header.num_requests;
  step.num_tokens = header.num_tokens;
  step.num_changes = header.num_changes;
  step.num_edits = header.flags & CGR__RING_SLOT_EDITS ? header.num_edits : 0;
  step.flags = header.flags;
  step.refused = false;
  if (a.empty) {
    refuse(step);
    return step;
  }

  int32_t error = CGR_GUARD_NONE, index = 0;
  int64_t value = 0;
  if (header.seq != seq) {
    error = CGR_GUARD_SEQUENCE;
    value = (int64_t)header.seq;
  } else if (header.generation != generation) { /* prepared before the host knew of a loss: it may rest on what was lost */
    error = CGR_GUARD_SEQUENCE;
    index = 2;
    value = (int64_t)header.generation;
  } else if (header.num_requests < 0 || header.num_requests > min(a.max_requests, a.padded_requests)) {
    error = CGR_GUARD_COUNT;
    value = header.num_requests;
  } else if (header.num_tokens < 0 || header.num_tokens > min(a.max_tokens, a.padded_tokens)) {
    error = CGR_GUARD_COUNT;
    index = 1;
    value = header.num_tokens;
  } else if (!(header.flags & CGR__RING_SLOT_BATCH) && (batch_seq == 0 || header.batch_seq != batch_seq)) {
    error = CGR_GUARD_SEQUENCE;
    index = 1;
    value = (int64_t)header.batch_seq;
  }
  if (error != CGR_GUARD_NONE) {
    refuse(step);
    if (threadIdx.x == 0) {
      claim_error(&a.state->error, error, -1, index, value);
      a.state->lost = !(error == CGR_GUARD_SEQUENCE && index == 2);
    }
  } else if (step.num_changes < 0 || step.num_changes > a.max_changes) {
    step.num_changes = 0; /* reported once the batch layout is known to be good */
  }
  return step;
}

/* --------------------------------------------------------------------------------------------------------------- changes */

/* P12, P13. A bad page, in a change that is good otherwise, becomes the read-trash page; any other bad change is dropped. */
__device__ inline void apply_change(const cgr__step_args &a, int32_t c, int4 word) {
  if (place_change(a, word))
    return;
  int4 trash = word;
  int32_t g = word.x >> 8;
  if ((word.x & 0xff) == CGR__CHANGE_PAGE && g >= 0 && g < a.num_groups) {
    trash.w = a.group[g].read_trash_page;
    if (!page_in_pool(a.group[g], word.w) && place_change(a, trash)) {
      claim_error(&a.state->error, CGR_GUARD_PAGE, word.y, word.z, word.w);
      return;
    }
  }
  claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, c, word.x);
  a.state->lost = 1; /* every thread that writes it writes 1 */
}

__device__ inline void apply_changes(const cgr__step_args &a, const Step &step, int4 first) {
  const int4 *changes = reinterpret_cast<const int4 *>(step.slot + a.slot.changes);
  constexpr int kAhead = 4;
  int32_t stride = (int32_t)blockDim.x;
  if ((int32_t)threadIdx.x < step.num_changes)
    apply_change(a, (int32_t)threadIdx.x, first);
#pragma unroll 1
  for (int32_t base = (int32_t)threadIdx.x + stride; base < step.num_changes; base += kAhead * stride) {
    int4 change[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; k++)
      if (base + k * stride < step.num_changes)
        change[k] = load_mapped(changes + base + k * stride);
#pragma unroll
    for (int k = 0; k < kAhead; k++)
      if (base + k * stride < step.num_changes)
        apply_change(a, base + k * stride, change[k]);
  }
}

/* ----------------------------------------------------------------------------------------------------------- batch layout */

__device__ inline void place_batch_word(const cgr__step_args &a, const BatchLayout &batch, int32_t n, int32_t w, int32_t value) {
  if (w < n)
    batch.rows[w] = value;
  else if (w < 2 * n + 1)
    batch.query_start[w - n] = value;
  else if (w < 3 * n + 1)
    a.buffers.request_flags[w - (2 * n + 1)] = value;
}

/* The batch section: rows, query_start_loc and flags in one row of words. Two vectors per thread are in flight at a time. */
__device__ inline void read_batch(const cgr__step_args &a, const BatchLayout &batch, const Step &step) {
  int32_t n = step.num_requests, vectors = (3 * n + 1 + 3) / 4;
  const int4 *section = reinterpret_cast<const int4 *>(step.slot + a.slot.batch);
  int32_t stride = (int32_t)blockDim.x;
#pragma unroll 1
  for (int32_t v = (int32_t)threadIdx.x; v < vectors; v += 2 * stride) {
    int4 word[2];
    word[0] = load_mapped(section + v);
    if (v + stride < vectors)
      word[1] = load_mapped(section + v + stride);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      int32_t w = 4 * (v + u * stride);
      if (w >= 4 * vectors)
        break;
      place_batch_word(a, batch, n, w, word[u].x);
      place_batch_word(a, batch, n, w + 1, word[u].y);
      place_batch_word(a, batch, n, w + 2, word[u].z);
      place_batch_word(a, batch, n, w + 3, word[u].w);
    }
  }
}

/* P10. query_start_loc starts at 0, does not decrease, gives no request more tokens than there may be, and ends at num_tokens;
 * anything else empties the step. The first place that is wrong is reported, whichever thread finds it. */
__device__ inline void check_batch_layout(const cgr__step_args &a, const BatchLayout &batch, Step &step, int32_t &first_bad) {
  constexpr int32_t kNone = 0x7fffffff;
  const int32_t *query_start = batch.query_start;
  int32_t n = step.num_requests, bad = kNone, most = a.max_query_len > 0 ? a.max_query_len : INT32_MAX;
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i <= n && bad == kNone; i += (int32_t)blockDim.x)
    if (i == 0 ? query_start[0] != 0 : query_start[i] < query_start[i - 1] || (int64_t)query_start[i] - query_start[i - 1] > most)
      bad = i;
  if (threadIdx.x == 0 && bad == kNone && query_start[n] != step.num_tokens)
    bad = n + 1;
  if (!__syncthreads_or(bad != kNone) || step.refused)
    return;
  if (threadIdx.x == 0)
    first_bad = kNone;
  __syncthreads();
  atomicMin(&first_bad, bad);
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t i = min(first_bad, n);
    claim_error(&a.state->error, CGR_GUARD_COUNT, -1, 2 + i, query_start[i]);
    a.state->lost = 1;
  }
  refuse(step);
}

/* ----------------------------------------------------------------------------------------------------------------- edits */

__device__ inline bool edit_is_good(const cgr__step_args &a, const Step &step, const cgr__edit &edit) {
  bool has_room = edit.first_token < 0 || (int64_t)edit.first_token + edit.query_len <= a.max_tokens;
  return (edit.place & 0xffff) < step.num_requests && edit.query_len >= 0 && edit.first_token >= -1 && has_room;
}

__device__ inline cgr__edit load_edit(const cgr__step_args &a, const Step &step, int32_t e) {
  int4 word = load_mapped(reinterpret_cast<const int4 *>(step.slot + a.slot.edits) + e);
  return { word.x, word.y, word.z, word.w };
}

/* Overwrites rows, flags, lengths and first tokens with what the edits say. Returns whether one was bad, in any thread. */
__device__ inline bool place_edits(const cgr__step_args &a, const BatchLayout &batch, const Step &step, int32_t *query_lens) {
  bool bad = step.num_edits < 0 || step.num_edits > a.max_requests;
  if (bad && threadIdx.x == 0)
    claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, -2, step.num_edits);
#pragma unroll 1
  for (int32_t e = (int32_t)threadIdx.x; !bad && e < step.num_edits; e += (int32_t)blockDim.x) {
    const cgr__edit edit = load_edit(a, step, e);
    if (!edit_is_good(a, step, edit)) {
      claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, a.max_changes + e, edit.place);
      bad = true;
      break;
    }
    int32_t i = edit.place & 0xffff;
    /* Writes whole words even if a bad ring slot names a place twice: then they belong to neither edit. */
    atomicExch(&batch.rows[i], edit.row);
    atomicExch(&query_lens[i], edit.query_len);
    atomicExch(&batch.first_token[i], edit.first_token);
    a.buffers.request_flags[i] = (int32_t)((uint32_t)edit.place >> 16); /* a refused step writes them all */
  }
  return __syncthreads_or(bad);
}

/* P9, P14. Edits the batch layout: starts become lengths, which are edited and summed up again. Ends with a barrier. */
__device__ inline void edit_batch(const cgr__step_args &a, const BatchLayout &batch, Step &step, ScanScratch<uint32_t> &scratch) {
  int32_t *query_lens = batch.first_position; /* not in use yet */
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i < step.num_requests; i += (int32_t)blockDim.x) {
    query_lens[i] = (int32_t)((uint32_t)batch.query_start[i + 1] - (uint32_t)batch.query_start[i]); /* of whatever is there */
    batch.first_token[i] = -1;
  }
  __syncthreads();
  if (place_edits(a, batch, step, query_lens)) {
    if (threadIdx.x == 0)
      a.state->lost = 1;
    refuse(step);
    return;
  }
  uint32_t before = (uint32_t)batch.query_start[0], total;
#pragma unroll 1
  for (int32_t base = 0; base < step.num_requests; base += (int32_t)blockDim.x, before += total) {
    int32_t i = base + (int32_t)threadIdx.x;
    uint32_t upto = block_scan(i < step.num_requests ? (uint32_t)query_lens[i] : 0u, scratch, total);
    if (i < step.num_requests)
      batch.query_start[i + 1] = (int32_t)(before + upto);
  }
  __syncthreads();
}

/* Takes all but the header from the ring slot: the first loads of all sections before the first use. Ends with a barrier. */
__device__ inline void take_slot(const cgr__step_args &a, const BatchLayout &batch, Step &step, int32_t num_changes,
                                 Scratch &scratch) {
  int4 change = make_int4(0, 0, 0, 0);
  if ((int32_t)threadIdx.x < step.num_changes)
    change = load_mapped(reinterpret_cast<const int4 *>(step.slot + a.slot.changes) + threadIdx.x);
  if (step.flags & CGR__RING_SLOT_BATCH)
    read_batch(a, batch, step);
  __syncthreads();
  if (step.flags & CGR__RING_SLOT_EDITS)
    edit_batch(a, batch, step, scratch.scan);
  check_batch_layout(a, batch, step, scratch.first_bad);
  if (threadIdx.x == 0 && !step.refused && step.num_changes != num_changes) {
    claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, -1, num_changes);
    a.state->lost = 1;
  }
  apply_changes(a, step, change);
  __syncthreads();
}

} // namespace cgr
#endif

/* First kernel of a step: reads the staging slot, applies its changes and derives this step's buffers (kernels/step.h).
 *
 * The first block does that; where a key has many tokens there are more, which wait for it and share the tokens with it. What the
 * kernel costs is latency: its round trips, one after the other (counter and inbox, rows, row state, page table), and the
 * instructions of all warps of one SM. So it has as many threads as the key has requests or tokens, nobody divides, and what an
 * unchanged decode batch does not need is jumped over. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/common/guard.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/decode.cuh"
#include "kernels/cuda/step/mapped.cuh"
#include "kernels/cuda/step/pages.cuh"
#include "kernels/cuda/step/scan.cuh"

namespace cgr {
namespace {

constexpr int32_t kTokensOfBlock = 2048;
constexpr int32_t kMostBlocks = 32; /* few enough to run at once: each but the first waits for it */

struct Shared {
  union {
    int4 vector[sizeof(cgr__slot_header) / sizeof(int4)];
    cgr__slot_header header;
  };
  ScanScratch<int32_t> scan;
  int32_t first_bad;
  int32_t first_prefill; /* the first request with more new tokens than the threshold */
};

/* What a step is once its header has been judged. Equal in all threads. */
struct Step {
  const unsigned char *slot;
  int32_t num_requests, num_tokens, num_changes, num_edits;
  uint32_t flags;
  bool refused; /* a guard emptied the whole step */
};

/* The composition in shared memory. first_position: row_computed of the request's row, or -1 when a guard emptied it.
 * first_token: of a step with edits, where the request's ids begin in the tokens section, or -1. */
struct Composition {
  int32_t *query_start, *rows, *first_position, *first_token; /* [B_r + 1], [B_r], [B_r], [B_r] */
};

__device__ Composition place_composition(int32_t *words, int32_t padded_requests) {
  return { words, words + padded_requests + 1, words + 2 * padded_requests + 1, words + 3 * padded_requests + 1 };
}

/* ---------------------------------------------------------------------------------------------------------------- header */

/* The slot of step `seq`: the inbox if the step before has fetched it, whose header all threads read; else the slot itself, whose
 * header one warp reads over the bus. */
__device__ const unsigned char *read_header(const cgr__step_args &a, uint64_t seq, cgr__slot_header &header, Shared &shared) {
  const unsigned char *inbox = reinterpret_cast<const unsigned char *>(a.buffers.inbox);
  header = *reinterpret_cast<const cgr__slot_header *>(inbox);
  if (header.seq == seq || a.empty)
    return inbox;
  const unsigned char *slot = a.staging + ring_slot(seq, a.ring_depth) * a.slot.stride;
  if (threadIdx.x < sizeof shared.vector / sizeof shared.vector[0])
    shared.vector[threadIdx.x] = load_mapped(slot + threadIdx.x * sizeof(int4));
  __syncthreads();
  header = shared.header;
  return slot;
}

/* The step becomes one without requests, which takes nothing of its slot. */
__device__ void refuse(Step &step) {
  step.num_requests = step.num_tokens = step.num_changes = step.num_edits = 0;
  step.flags = 0;
  step.refused = true;
}

__device__ Step judge_header(const cgr__step_args &a, const cgr__slot_header &header, uint64_t seq, uint64_t batch_seq,
                             uint64_t generation) {
  Step step;
  step.num_requests = header.num_requests;
  step.num_tokens = header.num_tokens;
  step.num_changes = header.num_changes;
  step.num_edits = header.flags & CGR__SLOT_EDITS ? header.num_edits : 0;
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
  } else if (!(header.flags & CGR__SLOT_BATCH) && (batch_seq == 0 || header.batch_seq != batch_seq)) {
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
    step.num_changes = 0; /* reported once the composition is known to be good */
  }
  return step;
}

/* --------------------------------------------------------------------------------------------------------------- changes */

/* Whether the change is well-formed. */
__device__ bool apply_data(const cgr__step_args &a, uint32_t buffer, int32_t row, int32_t index, int32_t value) {
  if (buffer >= CGR__MAX_DECLARED || index < 0 || index >= a.rows[buffer].words)
    return false;
  a.rows[buffer].data[row * a.rows[buffer].words + index] = value;
  return true;
}

__device__ void apply_change(const cgr__step_args &a, int32_t c, int4 word) {
  int32_t kind = word.x & 0xff, group = word.x >> 8, row = word.y, index = word.z, value = word.w;
  bool good = row >= 0 && row < a.max_rows;
  if (kind == CGR__CHANGE_PAGE && good) {
    good = group >= 0 && group < a.num_groups && index >= 0 && !a.group[group].engine_table &&
           index < a.group[group].page_table_stride;
    if (good) {
      if (!page_in_pool(a.group[group], value)) {
        claim_error(&a.state->error, CGR_GUARD_PAGE, row, index, value);
        value = a.group[group].read_trash_page;
      }
      *page_entry(a, group, row, index) = value;
    }
  } else if (kind == CGR__CHANGE_DATA && good) {
    good = apply_data(a, (uint32_t)word.x >> 8, row, index, value);
  } else if (word.x == CGR__CHANGE_COMPUTED && good) {
    a.buffers.row_computed[row] = value;
    a.buffers.row_num_accepted[row] = 0;
  } else {
    good = false;
  }
  if (!good) {
    claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, c, word.x);
    a.state->lost = 1; /* every thread that writes it writes 1 */
  }
}

__device__ void apply_changes(const cgr__step_args &a, const Step &step, int4 first) {
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

/* ----------------------------------------------------------------------------------------------------------- composition */

/* The composition on the device, fetched before it is known whether this step uses it. Thread t reads and later uses the requests
 * t, t + blockDim.x, ...: no barrier between. */
__device__ void fetch_composition(const PrologueArgs &args, const Composition &batch) {
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

__device__ void place_batch_word(const cgr__step_args &a, const Composition &batch, int32_t n, int32_t w, int32_t value) {
  if (w < n)
    batch.rows[w] = value;
  else if (w < 2 * n + 1)
    batch.query_start[w - n] = value;
  else if (w < 3 * n + 1)
    a.buffers.request_flags[w - (2 * n + 1)] = value;
}

/* The batch section: rows, query_start_loc and flags in one row of words. Two vectors per thread are under way at a time. */
__device__ void read_batch(const cgr__step_args &a, const Composition &batch, const Step &step) {
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

/* query_start_loc starts at 0, does not decrease and ends at num_tokens; anything else empties the step. The first place that
 * is wrong is reported, whichever thread finds it. */
__device__ void check_composition(const cgr__step_args &a, const Composition &batch, Step &step, int32_t &first_bad) {
  constexpr int32_t kNone = 0x7fffffff;
  const int32_t *query_start = batch.query_start;
  int32_t n = step.num_requests, bad = kNone;
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i <= n && bad == kNone; i += (int32_t)blockDim.x)
    if (i == 0 ? query_start[0] != 0 : query_start[i] < query_start[i - 1])
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

__device__ bool edit_is_good(const cgr__step_args &a, const Step &step, const cgr__edit &edit) {
  bool has_room = edit.first_token < 0 || (int64_t)edit.first_token + edit.query_len <= a.max_tokens;
  return (edit.place & 0xffff) < step.num_requests && edit.query_len >= 0 && edit.first_token >= -1 && has_room;
}

__device__ cgr__edit load_edit(const cgr__step_args &a, const Step &step, int32_t e) {
  int4 word = load_mapped(reinterpret_cast<const int4 *>(step.slot + a.slot.edits) + e);
  return { word.x, word.y, word.z, word.w };
}

/* Writes what the edits say over rows, flags, lengths and first tokens. Whether one was bad, in any thread. */
__device__ bool place_edits(const cgr__step_args &a, const Composition &batch, const Step &step, int32_t *query_lens) {
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
    batch.rows[i] = edit.row;
    query_lens[i] = edit.query_len;
    batch.first_token[i] = edit.first_token;
    a.buffers.request_flags[i] = (int32_t)((uint32_t)edit.place >> 16); /* a refused step writes them all */
  }
  return __syncthreads_or(bad);
}

/* Edits the composition: lengths are what lies between the starts, and are summed up again. Ends with a barrier. */
__device__ void edit_batch(const cgr__step_args &a, const Composition &batch, Step &step, ScanScratch<int32_t> &scratch) {
  int32_t *query_lens = batch.first_position; /* which nobody has read by now */
#pragma unroll 1
  for (int32_t i = (int32_t)threadIdx.x; i < step.num_requests; i += (int32_t)blockDim.x) {
    query_lens[i] = batch.query_start[i + 1] - batch.query_start[i];
    batch.first_token[i] = -1;
  }
  __syncthreads();
  if (place_edits(a, batch, step, query_lens)) {
    if (threadIdx.x == 0)
      a.state->lost = 1;
    refuse(step);
    return;
  }
  int32_t before = batch.query_start[0], total;
#pragma unroll 1
  for (int32_t base = 0; base < step.num_requests; base += (int32_t)blockDim.x, before += total) {
    int32_t i = base + (int32_t)threadIdx.x;
    int32_t upto = block_scan(i < step.num_requests ? query_lens[i] : 0, scratch, total);
    if (i < step.num_requests)
      batch.query_start[i + 1] = before + upto;
  }
  __syncthreads();
}

/* What the slot has beside its header: the first loads of all sections before the first use. Ends with a barrier. */
__device__ void take_slot(const cgr__step_args &a, const Composition &batch, Step &step, int32_t num_changes, Shared &shared) {
  int4 change = make_int4(0, 0, 0, 0);
  if ((int32_t)threadIdx.x < step.num_changes)
    change = load_mapped(reinterpret_cast<const int4 *>(step.slot + a.slot.changes) + threadIdx.x);
  if (step.flags & CGR__SLOT_BATCH)
    read_batch(a, batch, step);
  __syncthreads();
  if (step.flags & CGR__SLOT_EDITS)
    edit_batch(a, batch, step, shared.scan);
  check_composition(a, batch, step, shared.first_bad);
  if (threadIdx.x == 0 && !step.refused && step.num_changes != num_changes) {
    claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, -1, num_changes);
    a.state->lost = 1;
  }
  apply_changes(a, step, change);
  __syncthreads();
}

/* -------------------------------------------------------------------------------------------------------------- requests */

/* Length of request i, or 0 when a guard empties it. `fresh`: nothing in this step's slot can have touched what
 * fetch_composition fetched. */
__device__ int32_t guard_request(const cgr__step_args &a, const Composition &batch, int32_t i, int32_t row, int32_t query_len,
                                 bool fresh) {
  if (row < 0 || row >= a.max_rows) {
    claim_error(&a.state->error, CGR_GUARD_ROW, -1, i, row);
    batch.first_position[i] = -1;
    return 0;
  }
  int32_t computed = fresh ? batch.first_position[i] : a.buffers.row_computed[row];
  int64_t seq_len = (int64_t)computed + query_len;
  if (computed < 0 || seq_len > a.max_seq_len) {
    claim_error(&a.state->error, CGR_GUARD_LENGTH, row, i, seq_len);
    batch.first_position[i] = -1;
    return 0;
  }
  batch.first_position[i] = computed;
  return (int32_t)seq_len;
}

/* All rows [0, B_r), real or not, by the same stores. Ends with a barrier. */
__device__ void write_requests(const PrologueArgs &args, const Composition &batch, const Step &step, bool fresh, Shared &shared) {
  const cgr__step_args &a = args.step;
  int32_t pages_before[CGR__MAX_GROUPS] = { 0, 0, 0, 0 };
#pragma unroll 1
  for (int32_t base = 0; base < a.padded_requests; base += (int32_t)blockDim.x) {
    int32_t i = base + (int32_t)threadIdx.x;
    bool inside = i < a.padded_requests, real = i < step.num_requests;
    int32_t row = a.max_rows, query_len = 0, end = step.num_tokens, seq_len = 0; /* of padding */
    if (real) {
      row = batch.rows[i];
      end = batch.query_start[i + 1];
      query_len = end - batch.query_start[i];
      seq_len = guard_request(a, batch, i, row, query_len, fresh);
      if (query_len > a.reorder_threshold && a.reorder_threshold > 0)
        atomicMin(&shared.first_prefill, i);
    }
    if (inside) {
      a.buffers.request_rows[i] = row;
      a.buffers.query_start_loc[i + 1] = end;
      a.buffers.seq_lens[0][i] = seq_len;
      a.buffers.logits_indices[i] = query_len > 0 ? end - 1 : 0;
      if (!real)
        a.buffers.request_flags[i] = 0;
    }
#pragma unroll
    for (int g = 0; g < CGR__MAX_GROUPS; g++) {
      if (g >= a.num_groups)
        break;
      int32_t page_size = a.group[g].page_size, full = divide(max(seq_len - 1, 0), page_size, args.page_inverse[g]), total;
      int32_t pages = seq_len > 0 ? full + 1 : 0; /* all but the last are full */
      int32_t upto = block_scan(pages, shared.scan, total);
      if (inside) {
        a.buffers.group[g].kv_indptr[i + 1] = pages_before[g] + upto;
        a.buffers.group[g].kv_last_page_len[i] = seq_len > 0 ? seq_len - full * page_size : 1;
      }
      pages_before[g] += total;
    }
  }
  if (threadIdx.x == 0)
    a.buffers.query_start_loc[0] = 0;
  if ((int32_t)threadIdx.x < a.num_groups)
    a.buffers.group[threadIdx.x].kv_indptr[0] = 0;
  __syncthreads();
}

/* ---------------------------------------------------------------------------------------------------------------- tokens */

/* The request that owns token t: the last one that starts at or before it, which skips empty ones. */
__device__ int32_t find_request(const int32_t *query_start, int32_t num_requests, int32_t t) {
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

/* Slot of the token at `position`, which is in page `index` of its row. No token is written to a page that nobody owns, the
 * read-trash page among them. */
__device__ int64_t find_slot(const cgr__step_args &a, const cgr__group_geometry &group, int32_t row, int32_t position,
                             int32_t index, int32_t page) {
  if (!page_in_pool(group, page) || page == group.read_trash_page) {
    claim_error(&a.state->error, CGR_GUARD_PAGE, row, index, page);
    return -1;
  }
  return (int64_t)page * group.page_size + (position - index * group.page_size);
}

/* `token`: of a step whose tokens section has them all. */
__device__ void write_token(const PrologueArgs &args, const Composition &batch, const Step &step, int32_t t, int32_t token) {
  const cgr__step_args &a = args.step;
  const int32_t *section = reinterpret_cast<const int32_t *>(step.slot + a.slot.tokens);
  int32_t position = 0, first = -1, row = 0;
  if (t < step.num_tokens) {
    int32_t i = find_request(batch.query_start, step.num_requests, t);
    row = batch.rows[i];
    first = batch.first_position[i];
    position = first >= 0 ? first + (t - batch.query_start[i]) : 0;
    if ((step.flags & CGR__SLOT_EDITS) && batch.first_token[i] >= 0)
      token = load_mapped_word(section + batch.first_token[i] + (t - batch.query_start[i]));
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
      if (index[g] < a.group[g].page_table_stride)
        pages[g] = *page_entry(a, g, row, index[g]);
    }
  }
  a.buffers.input_ids[t] = first < 0 || token == CGR_TOKEN_LAST ? last_token : token;
  a.buffers.positions[t] = position;
#pragma unroll
  for (int g = 0; g < CGR__MAX_GROUPS; g++) {
    if (g >= a.num_groups)
      break;
    a.buffers.group[g].slot_mapping[t] = first >= 0 ? find_slot(a, a.group[g], row, position, index[g], pages[g]) : -1;
  }
}

/* This block's share of the tokens [0, B_t). */
__device__ void write_tokens(const PrologueArgs &args, const Composition &batch, const Step &step) {
  const int32_t *section = reinterpret_cast<const int32_t *>(step.slot + args.step.slot.tokens);
  bool staged = (step.flags & (CGR__SLOT_TOKENS | CGR__SLOT_EDITS)) == CGR__SLOT_TOKENS;
  int32_t stride = (int32_t)(gridDim.x * blockDim.x), t = (int32_t)(blockIdx.x * blockDim.x + threadIdx.x);
  int32_t token = CGR_TOKEN_LAST;
  if (staged && t < step.num_tokens)
    token = load_mapped_word(section + t);
#pragma unroll 1
  for (; t < args.step.padded_tokens; t += stride) {
    int32_t next = CGR_TOKEN_LAST; /* of the next round, on its way during this one */
    if (staged && t + stride < step.num_tokens)
      next = load_mapped_word(section + t + stride);
    write_token(args, batch, step, t, token);
    token = next;
  }
}

/* ---------------------------------------------------------------------------------------------------------------- blocks */

/* Between the blocks of one launch: the first has written the requests and leaves what the others need; the last to finish makes
 * all of it zero again. */
__device__ void open_tokens(const cgr__step_args &a, const Step &step) {
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

__device__ Step wait_for_tokens(const PrologueArgs &args, const Composition &batch) {
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
                            : a.staging + ring_slot(a.state->seq + 1, a.ring_depth) * a.slot.stride;
  for (int32_t i = (int32_t)threadIdx.x; i < step.num_requests; i += (int32_t)blockDim.x) {
    int32_t end = a.buffers.query_start_loc[i + 1], seq_len = a.buffers.seq_lens[0][i];
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
    batch.first_token[edit.place & 0xffff] = edit.first_token;
  }
  __syncthreads();
  return step;
}

__device__ void close_tokens(const cgr__step_args &a) {
  cgr__step_gate *gate = &a.state->gate;
  if (gridDim.x == 1 || threadIdx.x != 0)
    return;
  if (atomicAdd(&gate->finished, 1) == (int32_t)gridDim.x - 1)
    *gate = {};
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

/* All but the tokens. */
__device__ Step take_step(const PrologueArgs &args, const Composition &batch, Shared &shared) {
  const cgr__step_args &a = args.step;
  cgr__slot_header header;
  uint64_t seq = a.state->seq + 1, batch_seq = a.state->batch_seq, generation = a.state->generation;
  fetch_composition(args, batch);
  const unsigned char *slot = read_header(a, seq, header, shared);
  if (threadIdx.x == 0) {
    cgr__step_error none = { CGR_GUARD_NONE, -1, 0, 0, 0 };
    a.state->error = none;
    a.state->lost = 0;
    shared.first_prefill = a.reorder_threshold > 0 ? a.padded_requests : 0;
  }
  Step step = judge_header(a, header, seq, batch_seq, generation);
  step.slot = slot;
  __syncthreads();
  bool fresh = !(step.flags & (CGR__SLOT_BATCH | CGR__SLOT_EDITS)) && header.num_changes == 0;
  if (fresh)
    check_composition(a, batch, step, shared.first_bad);
  else
    take_slot(a, batch, step, header.num_changes, shared);
  write_requests(args, batch, step, fresh, shared);
  if (threadIdx.x == 0) {
    a.buffers.counts[CGR_COUNT_REQUESTS] = step.num_requests;
    a.buffers.counts[CGR_COUNT_TOKENS] = step.num_tokens;
    a.buffers.counts[CGR_COUNT_PADDED_REQUESTS] = a.padded_requests;
    a.buffers.counts[CGR_COUNT_PADDED_TOKENS] = a.padded_tokens;
    int32_t num_decodes = min(shared.first_prefill, step.num_requests);
    a.buffers.counts[CGR_COUNT_DECODES] = num_decodes;
    a.buffers.counts[CGR_COUNT_DECODE_TOKENS] = num_decodes > 0 ? batch.query_start[num_decodes] : 0;
    a.state->staged = step.refused ? 0 : header.staged;
    if (step.refused)
      a.state->batch_seq = 0;
    else if (step.flags & (CGR__SLOT_BATCH | CGR__SLOT_EDITS))
      a.state->batch_seq = seq;
  }
  return step;
}

template <int kGroups>
__global__ void __launch_bounds__(kMostStepThreads, 1) prologue_kernel(const __grid_constant__ PrologueArgs args) {
  extern __shared__ int32_t words[];
  __shared__ Shared shared;
  __shared__ DecodeScratch decodes;
  Composition batch = place_composition(words, args.step.padded_requests);
  Step step;
  if (may_be_decodes(args.step) && write_unchanged_decodes<kGroups>(args, decodes))
    return;
  if (blockIdx.x == 0) {
    step = take_step(args, batch, shared);
    open_tokens(args.step, step);
  } else {
    step = wait_for_tokens(args, batch);
  }
  write_tokens(args, batch, step);
  close_tokens(args.step);
}

/* By the number of groups; that of none looks at one, for no array is empty. */
constexpr void (*kernels[])(PrologueArgs) = { prologue_kernel<1>, prologue_kernel<1>, prologue_kernel<2>, prologue_kernel<3>,
                                              prologue_kernel<4> };

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
      a->num_groups < 0 || a->num_groups > CGR__MAX_GROUPS)
    return (int)cudaErrorInvalidValue;
  cgr::PrologueArgs args = { *a, {} };
  for (int g = 0; g < a->num_groups; g++)
    args.page_inverse[g] = ~0u / (uint32_t)a->group[g].page_size;
  dim3 grid((unsigned)cgr::blocks_for(*a)), block(cgr::step_threads(a->padded_requests, a->padded_tokens));
  return cgr::launch(cgr::kernels[a->num_groups], &args, grid, block, cgr::shared_bytes(a->padded_requests), stream);
}

extern "C" int cgr__cuda_prologue_preload(void) {
  for (auto kernel : cgr::kernels)
    if (int error = cgr::preload(kernel, cgr::shared_bytes(CGR__MAX_REQUESTS)))
      return error;
  return 0;
}

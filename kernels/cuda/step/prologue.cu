/* First kernel of a step: reads the staging slot, applies its changes and derives this step's buffers (kernels/step.h).
 *
 * One block. The time it takes is that of its round trips, one after the other: the counter, the slot's header over the bus,
 * the slot's sections over the bus, row state, page table. The composition of the step before is fetched while the header
 * travels; an unchanged decode batch needs nothing else of the slot. */
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/common/guard.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/mapped.cuh"
#include "kernels/cuda/step/scan.cuh"

namespace cgr {
namespace {

struct Shared {
  int4 header[sizeof(cgr__slot_header) / sizeof(int4)];
  ScanScratch<int32_t> scan;
  int32_t first_bad;
  int32_t first_prefill; /* the first request with more new tokens than the threshold */
};

/* What a step is once its header has been judged. Equal in all threads. */
struct Step {
  const unsigned char *slot;
  int32_t num_requests, num_tokens, num_changes;
  uint32_t flags;
  bool refused; /* a guard emptied the whole step */
};

/* The composition in shared memory. first_position: row_computed of the request's row, or -1 when a guard emptied it. */
struct Composition {
  int32_t *query_start, *rows, *first_position; /* [B_r + 1], [B_r], [B_r] */
};

/* The entry of a row's page table. */
__device__ int32_t *page_entry(const cgr__step_args &a, int g, int32_t row, int32_t index) {
  return a.buffers.group[g].page_table + row * a.group[g].page_table_stride + index;
}

__device__ bool page_in_pool(const cgr__group_geometry &group, int32_t page) {
  return page >= 0 && page < group.num_pages && page != group.write_trash_page;
}

/* ---------------------------------------------------------------------------------------------------------------- header */

__device__ Step judge_header(const cgr__step_args &a, const cgr__slot_header &header, uint64_t seq, uint64_t batch_seq,
                             uint64_t generation) {
  Step step;
  step.slot = a.staging + ring_slot(seq, a.ring_depth) * a.slot.stride;
  step.num_requests = header.num_requests;
  step.num_tokens = header.num_tokens;
  step.num_changes = header.num_changes;
  step.flags = header.flags;
  step.refused = false;
  if (a.empty) {
    step.num_requests = step.num_tokens = step.num_changes = 0;
    step.flags = 0;
    step.refused = true;
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
    step.refused = true;
    step.num_requests = step.num_tokens = step.num_changes = 0;
    step.flags = 0;
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

/* ----------------------------------------------------------------------------------------------------------- composition */

/* The composition on the device, fetched before it is known whether this step uses it. Thread t reads and later uses the requests
 * t, t + 1024, ...: no barrier between. */
__device__ void fetch_composition(const cgr__step_args &a, const Composition &batch) {
  for (int32_t i = threadIdx.x; i <= a.padded_requests; i += kStepThreads)
    batch.query_start[i] = a.buffers.query_start_loc[i];
  for (int32_t i = threadIdx.x; i < a.padded_requests; i += kStepThreads) {
    int32_t row = a.buffers.request_rows[i];
    batch.rows[i] = row;
    if (row < 0 || row >= a.max_rows)
      continue;
    int32_t position = a.buffers.row_computed[row];
    batch.first_position[i] = position;
    for (int g = 0; g < a.num_groups; g++) {
      int32_t index = position / a.group[g].page_size;
      if (position >= 0 && index < a.group[g].page_table_stride)
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
  for (int32_t v = threadIdx.x; v < vectors; v += 2 * kStepThreads) {
    int4 word[2];
    word[0] = load_mapped(section + v);
    if (v + kStepThreads < vectors)
      word[1] = load_mapped(section + v + kStepThreads);
#pragma unroll
    for (int u = 0; u < 2; u++) {
      int32_t w = 4 * (v + u * kStepThreads);
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
  for (int32_t i = threadIdx.x; i <= n && bad == kNone; i += kStepThreads)
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
  step.num_requests = step.num_tokens = step.num_changes = 0;
  step.refused = true;
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
__device__ void write_requests(const cgr__step_args &a, const Composition &batch, const Step &step, bool fresh,
                               Shared &shared) {
  int32_t pages_before[CGR__MAX_GROUPS] = { 0, 0, 0, 0 };
  for (int32_t base = 0; base < a.padded_requests; base += kStepThreads) {
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
      int32_t page_size = a.group[g].page_size;
      int32_t pages = seq_len > 0 ? (seq_len - 1) / page_size + 1 : 0, total;
      int32_t upto = block_scan(pages, shared.scan, total);
      if (inside) {
        a.buffers.group[g].kv_indptr[i + 1] = pages_before[g] + upto;
        a.buffers.group[g].kv_last_page_len[i] = seq_len > 0 ? (seq_len - 1) % page_size + 1 : 1;
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

/* Slot of the token at `position`. No token is written to a page that nobody owns, the read-trash page among them. */
__device__ int64_t find_slot(const cgr__step_args &a, const cgr__group_geometry &group, int32_t row, int32_t position,
                             int32_t page) {
  int32_t index = position / group.page_size;
  if (!page_in_pool(group, page) || page == group.read_trash_page) {
    claim_error(&a.state->error, CGR_GUARD_PAGE, row, index, page);
    return -1;
  }
  return (int64_t)page * group.page_size + position % group.page_size;
}

__device__ void write_token(const cgr__step_args &a, const Composition &batch, const Step &step, int32_t t, int32_t token) {
  int32_t position = 0, first = -1, row = 0, start = 0;
  if (t < step.num_tokens) {
    int32_t i = find_request(batch.query_start, step.num_requests, t);
    row = batch.rows[i];
    first = batch.first_position[i];
    start = batch.query_start[i];
  }
  /* All loads before the first use. */
  int32_t last_token = t < step.num_tokens ? 0 : a.state->padding_token; /* 0: of a request that a guard emptied */
  int32_t pages[CGR__MAX_GROUPS] = { -1, -1, -1, -1 };
  if (first >= 0) {
    position = first + (t - start);
    last_token = a.buffers.row_last_tokens[(int64_t)row * a.token_stride];
#pragma unroll
    for (int g = 0; g < CGR__MAX_GROUPS; g++) {
      if (g >= a.num_groups)
        break;
      int32_t index = position / a.group[g].page_size;
      if (index < a.group[g].page_table_stride)
        pages[g] = *page_entry(a, g, row, index);
    }
  }
  if (first < 0 || token == CGR_TOKEN_LAST)
    token = last_token;
  a.buffers.input_ids[t] = token;
  a.buffers.positions[t] = position;
#pragma unroll
  for (int g = 0; g < CGR__MAX_GROUPS; g++)
    if (g < a.num_groups)
      a.buffers.group[g].slot_mapping[t] = first >= 0 ? find_slot(a, a.group[g], row, position, pages[g]) : -1;
}

/* All tokens [0, B_t); `token` is the thread's first one, on its way since the header. */
__device__ void write_tokens(const cgr__step_args &a, const Composition &batch, const Step &step, int32_t token) {
  const int32_t *section = reinterpret_cast<const int32_t *>(step.slot + a.slot.tokens);
  bool staged = (step.flags & CGR__SLOT_TOKENS) != 0;
  for (int32_t t = threadIdx.x; t < a.padded_tokens; t += kStepThreads) {
    int32_t next = CGR_TOKEN_LAST; /* of the next round, on its way during this one */
    if (staged && t + kStepThreads < step.num_tokens)
      next = load_mapped_word(section + t + kStepThreads);
    write_token(a, batch, step, t, token);
    token = next;
  }
}

/* ---------------------------------------------------------------------------------------------------------------- kernel */

__global__ void __launch_bounds__(kStepThreads, 1) prologue_kernel(const __grid_constant__ cgr__step_args a) {
  extern __shared__ int32_t words[];
  __shared__ Shared shared;
  Composition batch;
  batch.query_start = words;
  batch.rows = batch.query_start + a.padded_requests + 1;
  batch.first_position = batch.rows + a.padded_requests;
  int32_t tid = (int32_t)threadIdx.x;

  /* The last warp, which as a rule has no request of its own, waits for the header while the others fetch. */
  constexpr int32_t kHeaderThread = kStepThreads - 32;
  constexpr int32_t kHeaderVectors = sizeof(cgr__slot_header) / sizeof(int4);
  uint64_t seq = a.state->seq + 1, batch_seq = a.state->batch_seq, generation = a.state->generation;
  int4 header_vector = make_int4(0, 0, 0, 0);
  if (!a.empty && tid >= kHeaderThread && tid < kHeaderThread + kHeaderVectors)
    header_vector =
        load_mapped(a.staging + ring_slot(seq, a.ring_depth) * a.slot.stride + (tid - kHeaderThread) * (int32_t)sizeof(int4));
  fetch_composition(a, batch);
  if (tid >= kHeaderThread && tid < kHeaderThread + kHeaderVectors)
    shared.header[tid - kHeaderThread] = header_vector;
  if (tid == 0) {
    cgr__step_error none = { CGR_GUARD_NONE, -1, 0, 0, 0 };
    a.state->error = none;
    a.state->lost = 0;
    shared.first_prefill = a.reorder_threshold > 0 ? a.padded_requests : 0;
  }
  __syncthreads();

  const cgr__slot_header &header = *reinterpret_cast<const cgr__slot_header *>(shared.header);
  Step step = judge_header(a, header, seq, batch_seq, generation);
  bool fresh = !(step.flags & CGR__SLOT_BATCH) && step.num_changes == 0;

  /* The sections: first loads of all three before the first use. */
  const int4 *changes = reinterpret_cast<const int4 *>(step.slot + a.slot.changes);
  int4 change = make_int4(0, 0, 0, 0);
  int32_t token = CGR_TOKEN_LAST;
  if (tid < step.num_changes)
    change = load_mapped(changes + tid);
  if ((step.flags & CGR__SLOT_TOKENS) && tid < step.num_tokens)
    token = load_mapped_word(reinterpret_cast<const int32_t *>(step.slot + a.slot.tokens) + tid);
  if (step.flags & CGR__SLOT_BATCH)
    read_batch(a, batch, step);
  __syncthreads();
  check_composition(a, batch, step, shared.first_bad);
  if (tid == 0 && !step.refused && step.num_changes != header.num_changes) {
    claim_error(&a.state->error, CGR_GUARD_CHANGE, -1, -1, header.num_changes);
    a.state->lost = 1;
  }
  for (int32_t c = tid; c < step.num_changes; c += kStepThreads) {
    if (c >= kStepThreads)
      change = load_mapped(changes + c);
    apply_change(a, c, change);
  }
  __syncthreads();

  write_requests(a, batch, step, fresh, shared);
  write_tokens(a, batch, step, token);
  if (tid == 0) {
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
    else if (step.flags & CGR__SLOT_BATCH)
      a.state->batch_seq = seq;
  }
}

size_t shared_bytes(int32_t padded_requests) { return (3 * (size_t)padded_requests + 1) * sizeof(int32_t); }

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_prologue(const void *args, cudaStream_t stream) {
  const cgr__step_args *a = static_cast<const cgr__step_args *>(args);
  if (a->padded_requests < 0 || a->padded_requests > CGR__MAX_REQUESTS || a->padded_tokens < 0 || a->ring_depth < 1 ||
      a->num_groups < 0 || a->num_groups > CGR__MAX_GROUPS)
    return (int)cudaErrorInvalidValue;
  return cgr::launch(cgr::prologue_kernel, args, dim3(1), dim3(cgr::kStepThreads), cgr::shared_bytes(a->padded_requests), stream);
}

extern "C" int cgr__cuda_prologue_preload(void) {
  return cgr::preload(cgr::prologue_kernel, cgr::shared_bytes(CGR__MAX_REQUESTS));
}

/* The prologue: the ring slot, applied to the persistent buffers. kernels/step.h has its rules (P1 ..). */
#include <stdbool.h>

#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"
#include "planners/metadata/metadata.h"

/* The ring slot is written by the host. The launch orders those stores before this kernel, so relaxed loads are enough. */
static int32_t load_i32(const int32_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

typedef struct incoming {
  uint64_t seq, batch_seq, generation;
  int32_t num_requests, num_tokens, num_changes, num_edits;
  uint32_t flags;
  uint64_t staged;
  const int32_t *batch, *tokens, *changes, *edits; /* sections of the ring slot, in words */
  int32_t *first_token;                            /* [num_requests] with edits: of each request's ids; -1: CGR_TOKEN_LAST */
} incoming;

static incoming read_slot(const cgr__step_args *args, uint64_t seq) {
  const unsigned char *slot = (const unsigned char *)args->buffers.inbox;
  if (((const cgr__ring_slot_header *)(const void *)slot)->seq != seq) /* P1: not fetched during the step before */
    slot = args->staging + (int64_t)(seq % (uint64_t)args->ring_depth) * args->slot.stride;
  const cgr__ring_slot_header *header = (const cgr__ring_slot_header *)(const void *)slot;
  incoming in;
  in.seq = __atomic_load_n(&header->seq, __ATOMIC_RELAXED);
  in.batch_seq = __atomic_load_n(&header->batch_seq, __ATOMIC_RELAXED);
  in.generation = __atomic_load_n(&header->generation, __ATOMIC_RELAXED);
  in.num_requests = load_i32(&header->num_requests);
  in.num_tokens = load_i32(&header->num_tokens);
  in.num_changes = load_i32(&header->num_changes);
  in.num_edits = load_i32(&header->num_edits);
  in.flags = __atomic_load_n(&header->flags, __ATOMIC_RELAXED);
  in.staged = __atomic_load_n(&header->staged, __ATOMIC_RELAXED);
  in.batch = (const int32_t *)(slot + args->slot.batch);
  in.tokens = (const int32_t *)(slot + args->slot.tokens);
  in.changes = (const int32_t *)(slot + args->slot.changes);
  in.edits = (const int32_t *)(slot + args->slot.edits);
  return in;
}

static bool reject_content(const cgr__step_args *args, cgr_guard_error error, int32_t index, int64_t value) {
  cgr__host_claim_error(&args->state->error, error, -1, index, value);
  args->state->lost = 1;
  return false;
}

/* Starts become lengths, or the other way round; wrapping, because what they hold has not been checked. */
static void starts_to_lengths(int32_t *starts, int32_t n) {
  for (int32_t i = n; i > 0; i--)
    starts[i] = (int32_t)((uint32_t)starts[i] - (uint32_t)starts[i - 1]);
}
static void lengths_to_starts(int32_t *lengths, int32_t n) {
  for (int32_t i = 1; i <= n; i++)
    lengths[i] = (int32_t)((uint32_t)lengths[i] + (uint32_t)lengths[i - 1]);
}

/* P9, P14: one edit, while query_start_loc holds lengths. */
static bool apply_edit(const cgr__step_args *args, const incoming *in, int32_t e) {
  const int32_t *words = in->edits + (int64_t)e * 4; /* cgr__edit */
  uint32_t place = (uint32_t)load_i32(&words[0]);
  int32_t row = load_i32(&words[1]), query_len = load_i32(&words[2]), first = load_i32(&words[3]);
  int32_t index = (int32_t)(place & 0xffffu);
  bool has_room = first < 0 || (int64_t)first + query_len <= args->max_tokens;
  if (index >= in->num_requests || query_len < 0 || first < -1 || !has_room)
    return reject_content(args, CGR_GUARD_CHANGE, args->max_changes + e, (int32_t)place);
  args->buffers.request_rows[index] = row;
  args->buffers.request_flags[index] = (int32_t)(place >> 16);
  args->buffers.query_start_loc[index + 1] = query_len;
  in->first_token[index] = first;
  return true;
}

/* A refused step rewrites what the edits before the bad one have written. */
static bool apply_edits(const cgr__step_args *args, const incoming *in) {
  if (in->num_edits < 0 || in->num_edits > args->max_requests)
    return reject_content(args, CGR_GUARD_CHANGE, -2, in->num_edits);
  for (int32_t i = 0; i < in->num_requests; i++)
    in->first_token[i] = -1;
  starts_to_lengths(args->buffers.query_start_loc, in->num_requests);
  for (int32_t e = 0; e < in->num_edits; e++)
    if (!apply_edit(args, in, e))
      return false;
  lengths_to_starts(args->buffers.query_start_loc, in->num_requests);
  return true;
}

/* P10. */
static bool check_starts(const cgr__step_args *args, const incoming *in) {
  int32_t before = args->buffers.query_start_loc[0];
  if (before != 0)
    return reject_content(args, CGR_GUARD_COUNT, 2, before);
  for (int32_t i = 1; i <= in->num_requests; i++) {
    int32_t start = args->buffers.query_start_loc[i];
    if (start < before || (args->max_query_len > 0 && (int64_t)start - before > args->max_query_len))
      return reject_content(args, CGR_GUARD_COUNT, 2 + i, start);
    before = start;
  }
  if (before != in->num_tokens)
    return reject_content(args, CGR_GUARD_COUNT, 2 + in->num_requests, before);
  return true;
}

/* P14. Read once: what is checked is what is used, whatever happens to the ring slot. A refused step rewrites it anyway. */
static bool take_batch_layout(const cgr__step_args *args, const incoming *in) {
  int32_t n = in->num_requests;
  for (int32_t i = 0; (in->flags & CGR__RING_SLOT_BATCH) && i <= n; i++)
    args->buffers.query_start_loc[i] = load_i32(&in->batch[n + i]);
  for (int32_t i = 0; (in->flags & CGR__RING_SLOT_BATCH) && i < n; i++) {
    args->buffers.request_rows[i] = load_i32(&in->batch[i]);
    args->buffers.request_flags[i] = load_i32(&in->batch[2 * n + 1 + i]);
  }
  if ((in->flags & CGR__RING_SLOT_EDITS) && !apply_edits(args, in))
    return false;
  if (!check_starts(args, in))
    return false;
  if (in->flags & (CGR__RING_SLOT_BATCH | CGR__RING_SLOT_EDITS))
    args->state->batch_seq = in->seq;
  return true;
}

/* P5 to P10, in this order: whether the step can run at all; then its batch layout is in its buffers. No change has been applied
 * when it cannot. */
static bool accept_step(const cgr__step_args *args, const incoming *in, uint64_t seq) {
  if (in->seq != seq)
    return reject_content(args, CGR_GUARD_SEQUENCE, 0, (int64_t)in->seq);
  if (in->generation != args->state->generation) { /* prepared before the host knew of a loss: it may rest on what was lost */
    cgr__host_claim_error(&args->state->error, CGR_GUARD_SEQUENCE, -1, 2, (int64_t)in->generation);
    return false;
  }
  if (in->num_requests < 0 || in->num_requests > args->max_requests || in->num_requests > args->padded_requests)
    return reject_content(args, CGR_GUARD_COUNT, 0, in->num_requests);
  if (in->num_tokens < 0 || in->num_tokens > args->max_tokens || in->num_tokens > args->padded_tokens)
    return reject_content(args, CGR_GUARD_COUNT, 1, in->num_tokens);
  if (!(in->flags & CGR__RING_SLOT_BATCH) && (args->state->batch_seq == 0 || in->batch_seq != args->state->batch_seq))
    return reject_content(args, CGR_GUARD_SEQUENCE, 1, (int64_t)in->batch_seq);
  return take_batch_layout(args, in);
}

static bool page_is_bad(const cgr__group_geometry *group, int32_t page) {
  return page < 0 || page >= group->num_pages || page == group->write_trash_page;
}

/* Whether the change is well-formed. */
static bool apply_page(const cgr__step_args *args, int32_t g, int32_t row, int32_t index, int32_t page) {
  if (g >= args->num_groups)
    return false;
  const cgr__group_geometry *group = &args->group[g];
  if (group->engine_table || index < 0 || index >= group->page_table_stride)
    return false;
  if (page_is_bad(group, page)) {
    cgr__host_claim_error(&args->state->error, CGR_GUARD_PAGE, row, index, page);
    page = group->read_trash_page;
  }
  args->buffers.group[g].page_table[row * group->page_table_stride + index] = page;
  return true;
}

/* Whether the change is well-formed. */
static bool apply_data(const cgr__step_args *args, uint32_t buffer, int32_t row, int32_t index, int32_t value) {
  if (buffer >= CGR__MAX_DECLARED || index < 0 || index >= args->rows[buffer].words)
    return false;
  args->rows[buffer].data[row * args->rows[buffer].words + index] = value;
  return true;
}

static bool apply_change(const cgr__step_args *args, uint32_t kind, int32_t row, int32_t index, int32_t value) {
  if (row < 0 || row >= args->max_rows)
    return false;
  if ((kind & 0xffu) == CGR__CHANGE_PAGE)
    return apply_page(args, (int32_t)(kind >> 8), row, index, value);
  if ((kind & 0xffu) == CGR__CHANGE_DATA)
    return apply_data(args, kind >> 8, row, index, value);
  if ((kind & 0xffu) == CGR__CHANGE_COMPUTED && kind >> 8 < (uint32_t)(args->num_programs > 1 ? args->num_programs : 1)) {
    cgr__step_computed(args, (int32_t)(kind >> 8))[row] = value;
    if (kind == CGR__CHANGE_COMPUTED)
      args->buffers.row_num_accepted[row] = 0;
    return true;
  }
  return false;
}

/* P11 to P13. */
static void apply_changes(const cgr__step_args *args, const incoming *in) {
  if (in->num_changes < 0 || in->num_changes > args->max_changes) {
    reject_content(args, CGR_GUARD_CHANGE, -1, in->num_changes);
    return;
  }
  for (int32_t c = 0; c < in->num_changes; c++) {
    const int32_t *words = in->changes + (int64_t)c * 4; /* cgr__change */
    int32_t kind = load_i32(&words[0]);
    if (!apply_change(args, (uint32_t)kind, load_i32(&words[1]), load_i32(&words[2]), load_i32(&words[3])))
      reject_content(args, CGR_GUARD_CHANGE, c, kind);
  }
}

/* `context`: the arguments. A row that has ended looks too short, also to what follows it, and is emptied as one is that a guard
 * refuses. */
static void refuse_metadata(void *context, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  const cgr__step_args *args = (const cgr__step_args *)context;
  if (error == CGR_GUARD_LENGTH && args->stops && cgr__row_has_ended(cgr__step_computed(args, 0)[row], args->max_lens[0]))
    return;
  cgr__host_claim_error(&args->state->error, error, row, index, value);
}

static cgr_metadata_group group_of(const cgr__step_args *args, int32_t g) {
  const cgr__group_geometry *group = &args->group[g];
  const cgr__group_buffers *buffers = &args->buffers.group[g];
  cgr_metadata_group m = { .page_size = group->page_size, .num_pages = group->num_pages };
  m.kernel_page_size = group->kernel_page_size;
  m.read_trash_page = group->read_trash_page;
  m.write_trash_page = group->write_trash_page;
  m.page_table = buffers->page_table;
  m.page_table_stride = group->page_table_stride;
  m.slot_mapping = buffers->slot_mapping;
  m.kv_indptr = buffers->kv_indptr;
  m.kv_last_page_len = buffers->kv_last_page_len;
  return m;
}

static cgr__metadata_sets sets_of(const cgr__step_args *args, int32_t *follows) {
  cgr__metadata_sets sets = { .num_sets = args->num_sets, .set = args->set };
  sets.lengths = args->lengths;
  sets.max_lens = args->max_lens;
  sets.seq_lens = args->buffers.seq_lens;
  if (args->program > 0) {
    sets.num_sets = sets.num_sets > 1 ? sets.num_sets : 1;
    sets.follows = follows;
    sets.target_computed = cgr__step_computed(args, 0);
    sets.num_accepted = args->buffers.row_num_accepted;
  }
  return sets;
}

/* P26: which requests follow the first program. */
static void find_following(const cgr__step_args *args, const incoming *in, int32_t *follows) {
  const int32_t *starts = args->buffers.query_start_loc;
  for (int32_t i = 0; i < in->num_requests; i++)
    follows[i] = cgr__step_guesses(args->buffers.request_flags[i], starts[i + 1] - starts[i], args->token_stride) > 0;
}

/* P15 to P24. The batch layout is in its buffers: the rest of the step's metadata follows from it and from the rows' state. */
static void derive_metadata(const cgr__step_args *args, const incoming *in) {
  cgr_metadata_group groups[CGR__MAX_GROUPS];
  cgr_metadata m = CGR_METADATA_INIT;
  int32_t follows[CGR__MAX_REQUESTS];
  cgr__metadata_sets sets = sets_of(args, follows);
  if (args->program > 0)
    find_following(args, in, follows);
  m.num_groups = 0;
  for (int32_t g = 0; g < args->num_groups; g++) {
    if (args->other_groups >> g & 1u)
      continue;
    sets.group_set[m.num_groups] = args->group[g].length_set;
    groups[m.num_groups++] = group_of(args, g);
  }
  m.num_requests = in->num_requests;
  m.padded_requests = args->padded_requests;
  m.padded_tokens = args->padded_tokens;
  m.max_rows = args->max_rows;
  m.max_seq_len = args->max_lens[0];
  m.groups = groups;
  m.tokens = in->flags & CGR__RING_SLOT_TOKENS ? in->tokens : NULL;
  m.row_computed = args->buffers.row_computed;
  m.row_last_tokens = args->buffers.row_last_tokens;
  m.input_ids = args->buffers.input_ids;
  m.positions = args->buffers.positions;
  m.query_start_loc = args->buffers.query_start_loc;
  m.seq_lens = args->buffers.seq_lens[0];
  m.request_rows = args->buffers.request_rows;
  m.logits_indices = args->buffers.logits_indices;
  cgr__metadata_fill(&m, args->num_sets > 1 || args->program > 0 ? &sets : NULL, in->num_tokens, args->token_stride,
                     refuse_metadata, (void *)(uintptr_t)args);
  for (int32_t i = in->num_requests; i < args->padded_requests; i++)
    args->buffers.request_flags[i] = 0;
  for (int32_t t = in->num_tokens; t < args->padded_tokens; t++)
    args->buffers.input_ids[t] = args->state->padding_token;
}

/* P23: the tokens that edits name; requests that a guard has refused have none. */
static void take_edited_tokens(const cgr__step_args *args, const incoming *in) {
  const int32_t *starts = args->buffers.query_start_loc;
  for (int32_t i = 0; i < in->num_requests; i++) {
    if (in->first_token[i] < 0 || args->buffers.seq_lens[args->set][i] == 0)
      continue;
    int32_t last = args->buffers.row_last_tokens[(int64_t)args->buffers.request_rows[i] * args->token_stride];
    for (int32_t t = starts[i]; t < starts[i + 1]; t++) {
      int32_t token = load_i32(&in->tokens[in->first_token[i] + t - starts[i]]);
      args->buffers.input_ids[t] = token == CGR_TOKEN_LAST ? last : token;
    }
  }
}

/* P23: what the ring slot has for token j of request i. */
static int32_t token_given(const cgr__step_args *args, const incoming *in, int32_t i, int32_t j) {
  if ((in->flags & CGR__RING_SLOT_EDITS) && in->first_token[i] >= 0)
    return load_i32(&in->tokens[in->first_token[i] + j]);
  return in->flags & CGR__RING_SLOT_TOKENS ? load_i32(&in->tokens[args->buffers.query_start_loc[i] + j]) : CGR_TOKEN_LAST;
}

/* P25. The guess at `index` of the row of request i. */
static int32_t load_guess(const cgr__step_args *args, int32_t i, int32_t index) {
  const int32_t most = args->token_stride - 1, row = args->buffers.request_rows[i];
  const int32_t guess = index < most ? args->buffers.row_draft_tokens[(int64_t)row * most + index] : 0;
  if (cgr__is_in_vocabulary(guess, args->vocab_size))
    return guess;
  cgr__host_claim_error(&args->state->error, CGR_GUARD_TOKEN, row, i, guess);
  return 0;
}

/* P26. */
static void take_followed(const cgr__step_args *args, const incoming *in) {
  const cgr__buffers *b = &args->buffers;
  for (int32_t i = 0; i < args->padded_requests; i++) {
    const int32_t start = b->query_start_loc[i], end = b->query_start_loc[i + 1];
    b->num_drafts[i] = 0;
    if (i >= in->num_requests || b->seq_lens[0][i] == 0 ||
        cgr__step_guesses(b->request_flags[i], end - start, args->token_stride) == 0)
      continue;
    const int32_t *last = b->row_last_tokens + (int64_t)b->request_rows[i] * args->token_stride;
    for (int32_t t = start; t < end; t++)
      b->input_ids[t] = last[t < b->logits_indices[i] ? b->logits_indices[i] - t : 0];
  }
}

/* P25. */
static void take_guesses(const cgr__step_args *args, const incoming *in) {
  const cgr__buffers *b = &args->buffers;
  for (int32_t i = 0; i < args->padded_requests; i++) {
    const int32_t start = b->query_start_loc[i], query_len = b->query_start_loc[i + 1] - start;
    const bool ran = i < in->num_requests && b->seq_lens[args->set][i] > 0;
    b->num_drafts[i] = ran ? cgr__step_guesses(b->request_flags[i], query_len, args->token_stride) : 0;
    for (int32_t j = 0; ran && j < query_len; j++) {
      const int32_t guess = cgr__guess_index(token_given(args, in, i, j), j);
      if (guess >= 0)
        b->input_ids[start + j] = load_guess(args, i, guess);
    }
  }
}

/* P20. */
static int32_t count_decodes(const cgr__step_args *args, int32_t num_requests) {
  const int32_t *starts = args->buffers.query_start_loc;
  cgr__decodes decodes = { .split = args->split };
  for (int32_t i = 0; i < num_requests; i++)
    cgr__decodes_add(&decodes, starts[i + 1] - starts[i]);
  return cgr__decodes_count(&decodes);
}

static void write_counts(const cgr__step_args *args, const incoming *in) {
  int32_t num_decodes = count_decodes(args, in->num_requests);
  args->buffers.counts[CGR_COUNT_REQUESTS] = in->num_requests;
  args->buffers.counts[CGR_COUNT_TOKENS] = in->num_tokens;
  args->buffers.counts[CGR_COUNT_PADDED_REQUESTS] = args->padded_requests;
  args->buffers.counts[CGR_COUNT_PADDED_TOKENS] = args->padded_tokens;
  args->buffers.counts[CGR_COUNT_DECODES] = num_decodes;
  args->buffers.counts[CGR_COUNT_DECODE_TOKENS] = args->buffers.query_start_loc[num_decodes];
  args->buffers.counts[CGR_COUNT_APPEND_FIRST] = (in->flags & CGR__RING_SLOT_APPEND_FIRST) != 0;
}

void cgr__host_prologue(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  uint64_t seq = args->state->seq + 1;
  incoming in = { 0 };
  int32_t first_token[CGR__MAX_REQUESTS];
  if (!args->empty)
    in = read_slot(args, seq);
  in.first_token = first_token;
  args->state->error = (cgr__step_error){ CGR_GUARD_NONE, -1, 0, 0, 0 };
  args->state->lost = 0;
  if (!args->empty && accept_step(args, &in, seq)) {
    apply_changes(args, &in);
  } else {
    in.num_requests = in.num_tokens = 0;
    in.flags &= ~(uint32_t)CGR__RING_SLOT_APPEND_FIRST;
    in.staged = 0;
    args->state->batch_seq = 0;
  }
  args->state->staged = in.staged;
  derive_metadata(args, &in);
  if (in.flags & CGR__RING_SLOT_EDITS)
    take_edited_tokens(args, &in);
  if (args->program > 0)
    take_followed(args, &in);
  else if (args->token_stride > 1)
    take_guesses(args, &in);
  write_counts(args, &in);
}

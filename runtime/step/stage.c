/* Fills the ring slots of a step: with what has changed since the last step that was sent, or with a whole batch. Part of the hot
 * path: no allocation, lock, wait or environment below this line. */
#include <string.h>

#include "runtime/record/record.h"
#include "runtime/step/step.h"

/* All of a header but its number, which is stored when the ring slot is committed. */
static void stage_header(const cgr_runtime *rt, cgr__ring_slot_header *slot) {
  slot->batch_seq = rt->lane.device_batch;
  slot->generation = rt->lane.generation;
  slot->num_requests = 0;
  slot->num_tokens = 0;
  slot->num_changes = 0;
  slot->num_edits = 0;
  slot->num_ids = 0;
  slot->flags = 0;
  slot->staged = 0;
}

void cgr__stage_empty(const cgr_runtime *rt, cgr__ring_slot_header *slot) {
  stage_header(rt, slot);
  cgr__ring_batch(&rt->lane.ring, slot)[0] = 0; /* query_start_loc of no requests */
  slot->flags = CGR__RING_SLOT_BATCH;
}

uint64_t cgr__stage_changes(cgr_runtime *rt, cgr__ring_slot_header *slot) {
  if (rt->rows.num_dirty > 0)
    slot->num_changes = cgr__changes_collect(&rt->rows, cgr__ring_changes(&rt->lane.ring, slot), rt->setup.config.max_changes);
  return sizeof *slot + (uint64_t)slot->num_changes * sizeof(cgr__change);
}

/* The ring slots are only read: one that was committed is the device's until its step has completed, and a step that was given up
 * must find its changes there, or it writes the pages that its rows had before. */
void cgr__unstage(cgr_runtime *rt, uint64_t first, uint64_t last) {
  for (uint64_t seq = first; seq <= last; seq++) {
    cgr__ring_slot_header *slot = cgr__ring_slot(&rt->lane.ring, seq);
    cgr__changes_restore(&rt->rows, cgr__ring_changes(&rt->lane.ring, slot), slot->num_changes);
  }
}

/* Steps without requests that must carry changes ahead, because one ring slot does not hold them all. */
static int64_t count_change_steps(const cgr_runtime *rt) {
  if (rt->rows.num_dirty == 0 || rt->rows.dirty_words <= rt->setup.config.max_changes)
    return 0;
  int64_t words = cgr__changes_pending(&rt->rows); /* dirty_words may be more */
  return words > 0 ? (words - 1) / rt->setup.config.max_changes : 0;
}

/* All ring slots of the launch must be free; with changes ahead it takes at most depth - 1, so the step before keeps its result.
 */
static cgr_status check_slots(cgr_runtime *rt, int64_t change_steps) {
  int32_t depth = (int32_t)rt->lane.ring.depth;
  if (change_steps > depth - 2)
    return cgr__fail(CGR_ERROR_CHANGES_PENDING,
                     "cgr_step_prepare: %lld changed words are pending, expected at most %lld (max_changes, ring_depth): call "
                     "cgr_runtime_flush",
                     (long long)cgr__changes_pending(&rt->rows), (long long)(depth - 1) * rt->setup.config.max_changes);
  if (!cgr__ring_acquire(&rt->lane.ring, rt->lane.launched + 1 + (uint64_t)change_steps))
    return cgr__ring_refuse(&rt->lane.ring, "cgr_step_prepare", rt->lane.launched + 1 + (uint64_t)change_steps);
  cgr__results_take(rt); /* that of the step whose slot this is may be among them */
  return CGR_OK;
}

/* query_start_loc: sums where the requests differ. */
static void fill_starts(int32_t *starts, const cgr__batch_layout *batch) {
  int32_t n = batch->num_requests, query_len = batch->query_len, start = 0, i = 0;
  for (; query_len > 0 && i + CGR__WIDE_LOOP <= n; i += CGR__WIDE_LOOP, start += CGR__WIDE_LOOP * query_len)
    for (int32_t j = 0; j < CGR__WIDE_LOOP; j++)
      starts[i + j] = start + j * query_len;
  for (; i < n; i++) {
    starts[i] = start;
    start += batch->query_lens[i];
  }
  starts[n] = start;
}

/* Rows, query_start_loc and flags of this step's requests, packed. */
static uint64_t stage_batch(const cgr_runtime *rt, const cgr__batch_layout *batch, cgr__ring_slot_header *slot) {
  int32_t n = batch->num_requests;
  int32_t *rows = cgr__ring_batch(&rt->lane.ring, slot);
  int32_t *starts = rows + n, *flags = starts + n + 1;
  memcpy(rows, batch->rows, (size_t)n * sizeof *rows);
  memcpy(flags, batch->flags, (size_t)n * sizeof *flags);
  fill_starts(starts, batch);
  slot->flags |= CGR__RING_SLOT_BATCH;
  return (uint64_t)(3 * n + 1) * 4;
}

static uint64_t stage_tokens(const cgr_runtime *rt, const int32_t *tokens, int32_t count, cgr__ring_slot_header *slot) {
  memcpy(cgr__ring_tokens(&rt->lane.ring, slot), tokens, (size_t)count * sizeof *tokens);
  slot->flags |= CGR__RING_SLOT_TOKENS;
  slot->num_ids = count;
  return (uint64_t)count * 4;
}

/* Whether the device needs the batch layout of the members whole: it has none or another one, change steps go ahead, or requests
 * have moved. */
static bool needs_whole(const cgr_runtime *rt, const cgr__prepared *prepared) {
  const cgr__members *members = &rt->lane.batches.members;
  return rt->lane.device_batch == 0 || rt->lane.device_batch != members->device_seq || prepared->num_change_steps > 0 ||
         members->all_dirty;
}

/* The batch layout of the members, as edits of what the device has if it can be; and tokens that edits name. */
static uint64_t stage_members(const cgr_runtime *rt, cgr__prepared *prepared, cgr__ring_slot_header *slot) {
  const cgr__ring *ring = &rt->lane.ring;
  const cgr__members *members = &rt->lane.batches.members;
  bool whole = needs_whole(rt, prepared);
  prepared->batch_staged = false;
  if (!whole && members->num_dirty == 0 && members->first_irregular < 0)
    return 0;
  uint64_t bytes = whole ? stage_batch(rt, prepared->batch.batch_layout, slot) : 0;
  slot->num_edits = cgr__members_edits(&rt->rows, &rt->lane.batches, whole, cgr__ring_edits(ring, slot),
                                       cgr__ring_tokens(ring, slot), &slot->num_ids);
  if (slot->num_edits > 0)
    slot->flags |= CGR__RING_SLOT_EDITS;
  prepared->batch_staged = slot->flags != 0;
  return bytes + (uint64_t)slot->num_edits * sizeof(cgr__edit) + (uint64_t)slot->num_ids * 4;
}

/* The batch layout that the device has, if the host still knows all of it; NULL if not. */
static const cgr__batch_layout *device_layout(const cgr_runtime *rt) {
  const cgr__lane *lane = &rt->lane;
  const cgr__members *members = &lane->batches.members;
  if (lane->device_batch == 0)
    return NULL;
  if (members->device_seq == lane->device_batch && members->num_holes == 0)
    return members->all_dirty || members->num_dirty > 0 ? NULL : &members->layout;
  const bool is_kept = rt->same_batch >= lane->device_batch && lane->launched - rt->same_batch < (uint64_t)lane->ring.depth;
  return is_kept ? cgr__batch_layout_of(&lane->batches.layouts, rt->same_batch) : NULL;
}

/* Programs take turns with the same requests: then the device has the batch layout. */
static bool device_has(const cgr_runtime *rt, const cgr__prepared *prepared) {
  const cgr__batch_layout *batch = prepared->batch.batch_layout;
  const cgr__batch_layout *has =
      (rt->flags & CGR__RUNTIME_PROGRAMS) && prepared->num_change_steps == 0 ? device_layout(rt) : NULL;
  const size_t bytes = (size_t)batch->num_requests * sizeof(int32_t);
  return has && has->num_requests == batch->num_requests && memcmp(has->rows, batch->rows, bytes) == 0 &&
         memcmp(has->query_lens, batch->query_lens, bytes) == 0 && memcmp(has->flags, batch->flags, bytes) == 0;
}

/* A batch that was given whole. */
static uint64_t stage_given(const cgr_runtime *rt, const cgr_batch *batch, cgr__prepared *prepared, cgr__ring_slot_header *slot) {
  const cgr__checked_batch *checked = &prepared->batch;
  uint64_t bytes = 0;
  if (checked->follows) {
    bytes = stage_members(rt, prepared, slot);
  } else if (device_has(rt, prepared)) {
    prepared->batch_staged = false;
  } else {
    bytes = stage_batch(rt, checked->batch_layout, slot);
    prepared->batch_staged = true;
  }
  if (batch->tokens && checked->num_tokens > 0)
    bytes += stage_tokens(rt, batch->tokens, checked->num_tokens, slot);
  return bytes;
}

/* The ledger's check: no two rows use a page in a way that two rows may not. */
static cgr_status check_step_pages(cgr_runtime *rt, const cgr__prepared *prepared) {
  cgr_status status = cgr__ledger_check_step(&rt->rows, &prepared->batch, prepared->seq);
  return status == CGR_OK ? CGR_OK : cgr__runtime_report(rt, cgr__fail_in("cgr_step_prepare", status));
}

cgr_status cgr__stage_step(cgr_runtime *rt, const cgr_batch *batch, cgr__prepared *prepared) {
  const cgr__checked_batch *checked = &prepared->batch;
  int64_t change_steps, words;
  do {
    words = rt->rows.dirty_words;
    change_steps = count_change_steps(rt);
    CGR__TRY(check_slots(rt, change_steps));
  } while (rt->rows.dirty_words > words); /* results that were taken on the way may change lengths of drafts */
  prepared->num_change_steps = (int32_t)change_steps;
  prepared->seq = rt->lane.launched + 1 + (uint64_t)change_steps;
  prepared->bytes = 0;
  if (rt->checks)
    CGR__TRY(check_step_pages(rt, prepared));
  cgr__ring_slot_header *slot = cgr__ring_slot(&rt->lane.ring, prepared->seq);
  uint64_t plans = 0;
  if (rt->flags & CGR__RUNTIME_PLANS_ON_HOST) /* first: a plan that fails leaves nothing behind */
    CGR__TRY(cgr__backend_plans_on_host(rt, prepared, slot, &plans, &prepared->bytes));
  for (uint64_t seq = rt->lane.launched + 1; seq < prepared->seq; seq++) {
    cgr__stage_empty(rt, cgr__ring_slot(&rt->lane.ring, seq));
    prepared->bytes += cgr__stage_changes(rt, cgr__ring_slot(&rt->lane.ring, seq));
  }
  stage_header(rt, slot);
  slot->staged = plans;
  prepared->bytes += cgr__stage_changes(rt, slot);
  slot->num_requests = checked->num_requests;
  slot->num_tokens = checked->num_tokens;
  prepared->bytes += checked->standing ? stage_members(rt, prepared, slot) : stage_given(rt, batch, prepared, slot);
  slot->flags |= checked->append_first ? CGR__RING_SLOT_APPEND_FIRST : 0;
  if (batch->num_staged > 0)
    prepared->bytes += cgr__stage_data(rt, batch, checked, slot);
  return CGR_OK;
}

/* Fills the slots of a step: what has changed since the device last heard, and nothing else. Part of the hot path: no
 * allocation, lock, wait or environment below this line. */
#include <string.h>

#include "runtime/runtime.h"

/* A step without requests; the composition that stands on the device is left alone by a header that is filled in later. */
static void stage_header(const cgr_runtime *rt, cgr__slot_header *slot, uint64_t seq) {
  slot->seq = seq;
  slot->batch_seq = rt->device_batch;
  slot->num_requests = 0;
  slot->num_tokens = 0;
  slot->flags = 0;
  slot->num_changes = 0;
  slot->generation = rt->generation;
}

void cgr__stage_empty(const cgr_runtime *rt, cgr__slot_header *slot, uint64_t seq) {
  stage_header(rt, slot, seq);
  cgr__ring_batch(&rt->ring, slot)[0] = 0; /* query_start_loc of no requests */
  slot->flags = CGR__SLOT_BATCH;
  slot->batch_seq = seq;
}

/* Rows, query_start_loc and flags of this step's requests, packed; and copies for the launch, which outlives the batch. */
static uint32_t stage_batch(cgr_runtime *rt, const cgr__step_plan *plan, cgr__slot_header *slot) {
  const cgr_batch *batch = plan->batch;
  int32_t n = plan->num_requests;
  int32_t *rows = cgr__ring_batch(&rt->ring, slot);
  int32_t *starts = rows + n, *flags = starts + n + 1;
  int32_t start = 0;
  for (int32_t i = 0; i < n; i++) {
    rows[i] = batch->rows[i];
    starts[i] = start;
    start += batch->query_lens ? batch->query_lens[i] : 1;
    flags[i] = batch->flags ? (int32_t)batch->flags[i] : 0;
  }
  starts[n] = start;
  slot->flags |= CGR__SLOT_BATCH;
  slot->batch_seq = slot->seq;
  return (uint32_t)(3 * n + 1) * 4;
}

static void keep_batch(cgr_runtime *rt, const cgr__step_plan *plan) {
  const cgr_batch *batch = plan->batch;
  for (int32_t i = 0; i < plan->num_requests; i++) {
    rt->batch_rows[i] = batch->rows[i];
    rt->batch_lens[i] = batch->query_lens ? batch->query_lens[i] : 1;
    rt->batch_flags[i] = batch->flags ? batch->flags[i] : 0;
  }
}

/* Changes from the cursor on, as many as the slot holds. */
static void stage_changes(cgr_runtime *rt, cgr__prepared *prepared, cgr__slot_header *slot, uint32_t *bytes) {
  if (rt->rows.num_dirty)
    slot->num_changes =
        cgr__rows_collect(&rt->rows, &prepared->cursor, cgr__ring_changes(&rt->ring, slot), rt->setup.config.max_changes);
  *bytes += (uint32_t)sizeof(cgr__slot_header) + (uint32_t)(slot->num_changes * (int32_t)sizeof(cgr__change));
}

static cgr_status busy(const cgr_runtime *rt, int64_t slots) {
  return cgr__fail(CGR_ERROR_BUSY,
                   "cgr_step_prepare: step %llu needs %lld free slots of %d, expected more steps to have completed (or "
                   "cgr_runtime_flush for %lld changed words)",
                   (unsigned long long)rt->launched + 1, (long long)slots, rt->setup.config.ring_depth,
                   (long long)cgr__rows_dirty_words(&rt->rows));
}

/* More changes than one slot holds: internal steps ahead of this one carry the rest. One slot more than needed stays free, for
 * the step before must not lose its result to a launch of this one. All slots are there before any is written. */
static cgr_status stage_with_applies(cgr_runtime *rt, cgr__prepared *prepared, cgr__slot_header **slot, uint32_t *bytes) {
  int64_t applies = (cgr__rows_dirty_words(&rt->rows) - 1) / rt->setup.config.max_changes;
  uint64_t seq = rt->launched + 1;
  if (applies > rt->setup.config.ring_depth - 2 || !cgr__ring_acquire(&rt->ring, seq + (uint64_t)applies))
    return busy(rt, applies + 1);
  prepared->num_applies = (int32_t)applies;
  prepared->cursor = (cgr__cursor){ 0, 0 };
  *bytes = 0;
  for (int64_t i = 0; i < applies; i++, seq++) {
    *slot = cgr__ring_acquire(&rt->ring, seq);
    cgr__stage_empty(rt, *slot, seq);
    stage_changes(rt, prepared, *slot, bytes);
  }
  *slot = cgr__ring_acquire(&rt->ring, seq);
  stage_header(rt, *slot, seq);
  stage_changes(rt, prepared, *slot, bytes);
  return CGR_OK;
}

/* The step's slot with its header and changes. */
static cgr_status stage_slot(cgr_runtime *rt, cgr__prepared *prepared, cgr__slot_header **slot, uint32_t *bytes) {
  *slot = cgr__ring_acquire(&rt->ring, rt->launched + 1);
  if (!*slot)
    return busy(rt, 1);
  *bytes = 0;
  prepared->num_applies = 0;
  prepared->cursor = (cgr__cursor){ 0, 0 };
  stage_header(rt, *slot, rt->launched + 1);
  stage_changes(rt, prepared, *slot, bytes);
  if (prepared->cursor.entry < rt->rows.num_dirty)
    return stage_with_applies(rt, prepared, slot, bytes);
  return CGR_OK;
}

cgr_status cgr__stage_step(cgr_runtime *rt, const cgr__step_plan *plan, cgr__prepared *prepared, uint32_t *bytes) {
  cgr__slot_header *slot = NULL;
  CGR__TRY(stage_slot(rt, prepared, &slot, bytes));
  slot->num_requests = plan->num_requests;
  slot->num_tokens = plan->num_tokens;
  prepared->slot = slot;
  prepared->batch_staged = !plan->same_batch || rt->device_batch == 0 || prepared->num_applies > 0;
  if (prepared->batch_staged)
    *bytes += stage_batch(rt, plan, slot);
  if (!plan->same_batch)
    keep_batch(rt, plan);
  if (plan->batch->tokens && plan->num_tokens > 0) {
    memcpy(cgr__ring_tokens(&rt->ring, slot), plan->batch->tokens, (size_t)plan->num_tokens * 4);
    slot->flags |= CGR__SLOT_TOKENS;
    *bytes += (uint32_t)plan->num_tokens * 4;
  }
  return CGR_OK;
}

/* Results, without any synchronisation of the device. */
#include <stdio.h>

#include "cgr/names.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

cgr_status cgr_runtime_completed(cgr_runtime *runtime, const cgr_where *where, uint64_t *seq) {
  CGR__TRY(cgr__runtime_check_where(runtime, "cgr_runtime_completed", where));
  CGR__REQUIRE(seq, "cgr_runtime_completed");
  *seq = cgr__ring_completed(&runtime->lane.ring);
  return CGR_OK;
}

/* In the order of the steps. After one that has lost content, those that were prepared before the host knew are refused. */
void cgr__take_guesses(cgr_runtime *rt) {
  const cgr__ring *ring = &rt->lane.ring;
  const uint64_t completed = cgr__ring_completed(ring);
  while (rt->rows.has_notes && rt->rows.guesses.taken < completed) {
    const uint64_t seq = rt->rows.guesses.taken + 1;
    const cgr__result_record *record = cgr__ring_result(ring, seq);
    if (record->seq != seq) /* the runtime dies as soon as it looks */
      return;
    const cgr__batch_layout *batch = cgr__batch_layout_of(&rt->lane.batches.layouts, seq);
    cgr__guesses_take(&rt->rows, seq, cgr__ring_result_counts(ring, record), record->num_requests);
    if (record->ended && batch) /* of an abandoned step that ran nothing counts */
      cgr__stops_take(&rt->rows, seq, batch, cgr__ring_result_ended(ring, record), cgr__ring_result_lengths(ring, record),
                      record->num_requests);
    if (record->generation != rt->lane.generation) {
      rt->rows.guesses.generation = record->generation;
      cgr__guesses_reject(&rt->rows);
    }
  }
}

cgr_status cgr__resync(cgr_runtime *rt) {
  cgr__lane *lane = &rt->lane;
  if (cgr__ring_completed(&lane->ring) > lane->launched)
    return cgr__runtime_die(rt, 0, "the device has completed a step that was never launched");
  cgr__results_take(rt);
  uint64_t generation = cgr__ring_generation(&lane->ring);
  if (generation == lane->generation)
    return CGR_OK;
  if (rt->rows.has_notes && generation != rt->rows.guesses.generation) /* the step that has lost content is not seen yet */
    return CGR_OK;
  if (rt->rows.has_notes) /* of steps that were prepared before it was seen, and launched since */
    cgr__guesses_reject(&rt->rows);
  lane->generation = generation;
  lane->device_batch = 0;
  cgr__changes_mark_all(&rt->rows);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- results */

static cgr_guard guard_in(const cgr__result_record *record) {
  return (cgr_guard){ record->error, record->error_row, record->error_index, 0, record->error_value };
}

static void fill_in(const cgr_runtime *rt, const cgr__result_record *record, uint64_t seq, cgr_step_result *result) {
  const cgr__ring *ring = &rt->lane.ring;
  const cgr__batch_layout *batch = cgr__batch_layout_of(&rt->lane.batches.layouts, seq);
  cgr_step_result full = CGR_STEP_RESULT_INIT;
  full.program = batch ? batch->program : 0;
  full.num_requests = batch ? record->num_requests : 0; /* of an abandoned step that ran nothing counts */
  full.num_steps = 1;
  full.token_stride = rt->setup.limits.token_stride;
  full.mark.seq = seq;
  full.rows = batch ? batch->rows : NULL;
  full.tags = batch ? batch->tags : NULL;
  full.num_tokens = cgr__ring_result_counts(ring, record);
  full.tokens = cgr__ring_result_tokens(ring, record);
  full.values = rt->setup.limits.value_words > 0 ? cgr__ring_result_values(ring, record) : NULL;
  full.ended = rt->rows.has_stops ? cgr__ring_result_ended(ring, record) : NULL;
  full.guard = guard_in(record);
  if (result->size == sizeof full)
    *result = full;
  else
    cgr__sized_write(result, &full, sizeof full);
}

/* Keeps it for the flight recorder, once. */
static void keep_guard(cgr__kept_guards *guards, uint64_t seq, const cgr_guard *guard) {
  for (int i = 0; i < CGR__KEPT_GUARDS; i++)
    if (guards->kept[i].seq == seq)
      return;
  guards->kept[guards->count++ % CGR__KEPT_GUARDS] = (struct cgr__kept_guard){ seq, *guard };
}

#define REFUSED "step %llu: a guard on the device refused a %s at row %d, index %d: "

static cgr_status fail_of_guard(uint64_t seq, const cgr__result_record *record) {
  const char *name = cgr_guard_error_name((cgr_guard_error)record->error);
  const unsigned long long step = seq;
  const long long value = record->error_value;
  const int32_t row = record->error_row, index = record->error_index;
  if (record->error == CGR_GUARD_RANK)
    return cgr__fail(CGR_ERROR_STEP,
                     "step %llu: rank %d differs from this rank in the %s of its step, expected the same on all (bits of the "
                     "ranks that differ from this one: %#llx)",
                     step, row, cgr_fingerprint_part_name((cgr_fingerprint_part)index), (unsigned long long)value);
  if (record->error != CGR_GUARD_COUNT)
    return cgr__fail(CGR_ERROR_STEP, REFUSED "%lld", step, name, row, index, value);
  if (index < 2)
    return cgr__fail(CGR_ERROR_STEP, REFUSED "%lld %s, expected 0 to what the step was launched for: it ran without any", step,
                     name, row, index, value, index == 0 ? "requests" : "tokens");
  return cgr__fail(CGR_ERROR_STEP,
                   REFUSED
                   "query_start_loc[%d] is %lld, expected 0 first, no more new tokens of a request than the step was launched "
                   "for, and the step's tokens last: it ran without requests",
                   step, name, row, index, index - 2, value);
}

/* After a launch past the runtime every step runs under a number too high, and a later one may be done already. */
static cgr_status die_of_record(cgr_runtime *rt, uint64_t seq, uint64_t other) {
  char message[160];
  snprintf(message, sizeof message,
           "step %llu has completed, and step %llu is in the place of its result: a step was launched that was never prepared",
           (unsigned long long)seq, (unsigned long long)other);
  return cgr__fail_in("cgr_step_wait", cgr__runtime_die(rt, 0, message));
}

static cgr_status report_result(cgr_runtime *rt, uint64_t seq, cgr_step_result *result) {
  const cgr__result_record *record = cgr__ring_result(&rt->lane.ring, seq);
  if (record->seq != seq)
    return die_of_record(rt, seq, record->seq);
  if (seq > rt->collected)
    rt->collected = seq;
  cgr__results_take(rt);
  if (result)
    fill_in(rt, record, seq, result);
  if (record->error == CGR_GUARD_NONE)
    return CGR_OK;
  const cgr_guard guard = guard_in(record);
  keep_guard(&rt->guards, seq, &guard);
  return cgr__fail_in("cgr_step_wait", fail_of_guard(seq, record));
}

static cgr_status wait_for_step(cgr_runtime *rt, uint64_t seq, int32_t timeout_ms, cgr_step_result *result) {
  CGR__TRY(cgr__wait_timeout(rt, "cgr_step_wait", &timeout_ms));
  if (result)
    CGR__TRY(cgr__sized_check("cgr_step_wait: result", "CGR_STEP_RESULT_INIT", result));
  CGR__TRY(cgr__check_seq(rt, "cgr_step_wait", seq));
  CGR__TRY(cgr__wait_completed(rt, "cgr_step_wait", seq, timeout_ms));
  if (cgr__runtime_is_dead(rt)) /* another thread has abandoned it, which may be why the step has completed */
    return cgr__runtime_check(rt, "cgr_step_wait");
  if (rt->checks) {
    cgr__read_trash_look(rt);
    cgr__starts_look(rt);
  }
  return report_result(rt, seq, result);
}

cgr_status cgr_step_wait(cgr_runtime *runtime, cgr_mark mark, int32_t timeout_ms, cgr_step_result *result) {
  CGR__ONE_THREAD(runtime, "cgr_step_wait");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_wait"));
  CGR__TRY(cgr__runtime_check_mark(runtime, "cgr_step_wait", mark));
  cgr__range_begin_number(runtime, CGR__RANGE_WAIT, mark.seq);
  cgr_status status = wait_for_step(runtime, mark.seq, timeout_ms, result);
  cgr__range_end(runtime);
  return status;
}

/* Waits and results, without any synchronisation of the device. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/ranges.h"

#define SPINS_BEFORE_CLOCK 256
#define MS_BEFORE_QUERY 1.0 /* asking a GPU takes a lock of the driver's that other threads may want */

uint64_t cgr_runtime_completed(cgr_runtime *runtime, int32_t lane) {
  return cgr__runtime_is(runtime) && lane == 0 ? cgr__ring_completed(&runtime->lane.ring) : 0;
}

cgr_status cgr__see_losses(cgr_runtime *rt) {
  cgr__lane *lane = &rt->lane;
  if (cgr__ring_completed(&lane->ring) > lane->launched)
    return cgr__runtime_die(rt, 0, "the device has completed a step that was never launched");
  uint64_t generation = cgr__ring_generation(&lane->ring);
  if (generation == lane->generation)
    return CGR_OK;
  lane->generation = generation;
  lane->device_batch = 0;
  cgr__changes_mark_all(&rt->rows);
  return CGR_OK;
}

/* ----------------------------------------------------------------------------------------------------------------- waits */

static void pause_briefly(const cgr_runtime *rt) {
  if (rt->dev->kind == CGR_DEVICE_KIND_HOST)
    sched_yield();
#if defined(__x86_64__)
  else
    __builtin_ia32_pause();
#endif
}

/* Asks whether the last launch's stream is idle or has failed; asking also lets the host device make progress. An idle stream
 * whose step has not completed means that a kernel was lost without the device saying so. */
static cgr_status ask_device(cgr_runtime *rt, uint64_t seq) {
  char message[128];
  int state = rt->dev->ops->stream_query(rt->dev, rt->lane.last_stream);
  if (state == CGR__DEVICE_NOT_READY || cgr__ring_completed(&rt->lane.ring) >= seq)
    return CGR_OK;
  if (state != CGR__DEVICE_OK) {
    snprintf(message, sizeof message, "waiting for step %llu, when step %llu had not completed: asking for its stream",
             (unsigned long long)seq, (unsigned long long)cgr__ring_completed(&rt->lane.ring) + 1);
    return cgr__runtime_device_error(rt, state, message);
  }
  snprintf(message, sizeof message, "the stream is idle and step %llu has not completed", (unsigned long long)seq);
  return cgr__runtime_die(rt, 0, message);
}

cgr_status cgr__wait_completed(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms) {
  const cgr__ring *ring = &rt->lane.ring;
  bool spins = rt->dev->kind == CGR_DEVICE_KIND_CUDA && timeout_ms > 0;
  double deadline = 0.0, ask_at = 0.0;
  for (uint64_t round = 1; cgr__ring_completed(ring) < seq; round++) {
    pause_briefly(rt);
    if (spins && round % SPINS_BEFORE_CLOCK != 0)
      continue;
    double now = cgr__now_ms();
    if (deadline == 0.0) {
      deadline = now + timeout_ms;
      ask_at = spins ? now + MS_BEFORE_QUERY : now;
    }
    if (now >= ask_at || now >= deadline) {
      CGR__TRY(ask_device(rt, seq));
      ask_at = spins ? now + MS_BEFORE_QUERY : now;
    }
    if (now >= deadline && cgr__ring_completed(ring) < seq)
      return timeout_ms == 0 ? CGR_NOT_READY
                             : cgr__fail(CGR_NOT_READY, "%s: step %llu has not completed after %d ms", function,
                                         (unsigned long long)seq, timeout_ms);
  }
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- results */

cgr_status cgr__check_seq(const cgr_runtime *rt, const char *function, uint64_t seq) {
  uint64_t launched = rt->lane.launched, depth = rt->lane.ring.depth;
  if (seq == 0 || seq > launched)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: seq is %llu, expected that of a launched step (%llu so far)", function,
                     (unsigned long long)seq, (unsigned long long)launched);
  if (launched - seq >= depth)
    return cgr__fail(CGR_ERROR_EXPIRED,
                     "%s: seq is %llu, expected one of %llu .. %llu: those before are gone (ring_depth is %llu)", function,
                     (unsigned long long)seq, (unsigned long long)(launched - depth + 1), (unsigned long long)launched,
                     (unsigned long long)depth);
  return CGR_OK;
}

static cgr_guard guard_in(const cgr__result_record *record) {
  return (cgr_guard){ record->error, record->error_row, record->error_index, 0, record->error_value };
}

static void fill_in(const cgr_runtime *rt, const cgr__result_record *record, uint64_t seq, cgr_step_result *result) {
  const cgr__ring *ring = &rt->lane.ring;
  const cgr__composition *batch = cgr__composition_of(&rt->lane.compositions, seq);
  cgr_step_result full = CGR_STEP_RESULT_INIT;
  full.num_requests = record->num_requests;
  full.num_steps = 1;
  full.token_stride = rt->setup.limits.token_stride;
  full.seq = seq;
  full.rows = batch ? batch->rows : NULL;
  full.tags = batch ? batch->tags : NULL;
  full.num_tokens = cgr__ring_result_counts(ring, record);
  full.tokens = cgr__ring_result_tokens(ring, record);
  full.values = rt->setup.limits.value_words > 0 ? cgr__ring_result_values(ring, record) : NULL;
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

static cgr_status report_result(cgr_runtime *rt, uint64_t seq, cgr_step_result *result) {
  const cgr__result_record *record = cgr__ring_result(&rt->lane.ring, seq);
  if (result)
    fill_in(rt, record, seq, result);
  if (record->error == CGR_GUARD_NONE)
    return CGR_OK;
  const cgr_guard guard = guard_in(record);
  keep_guard(&rt->guards, seq, &guard);
  return fail_of_guard(seq, record);
}

static cgr_status wait_for_step(cgr_runtime *rt, uint64_t seq, int32_t timeout_ms, cgr_step_result *result) {
  if (timeout_ms < -1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_step_wait: timeout_ms is %d, expected -1 or more", timeout_ms);
  if (result)
    CGR__TRY(cgr__sized_check("cgr_step_wait: result", result));
  CGR__TRY(cgr__check_seq(rt, "cgr_step_wait", seq));
  CGR__TRY(cgr__wait_completed(rt, "cgr_step_wait", seq, timeout_ms == -1 ? rt->setup.config.wait_timeout_ms : timeout_ms));
  return report_result(rt, seq, result);
}

cgr_status cgr_step_wait(cgr_runtime *runtime, int32_t lane, uint64_t seq, int32_t timeout_ms, cgr_step_result *result) {
  CGR__TRY(cgr__runtime_check_lane(runtime, "cgr_step_wait", lane));
  cgr__range_begin_number(runtime, CGR__RANGE_WAIT, seq);
  cgr_status status = wait_for_step(runtime, seq, timeout_ms, result);
  cgr__range_end(runtime);
  return status;
}

/* Results of steps: poll and wait, without any synchronisation of the device. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "runtime/runtime.h"

#define SPINS_BEFORE_QUERY 256

uint64_t cgr_runtime_completed(cgr_runtime *runtime) {
  return runtime && runtime->magic == CGR__RUNTIME_MAGIC ? cgr__ring_completed(&runtime->ring) : 0;
}

void cgr__see_losses(cgr_runtime *rt) {
  uint64_t generation = cgr__ring_generation(&rt->ring);
  if (generation == rt->generation)
    return;
  rt->generation = generation;
  rt->device_batch = 0;
  cgr__rows_all_dirty(&rt->rows);
}

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* The stream is idle and the step has not completed: a kernel was lost without the device saying so, and the device's counter
 * and the host's have parted for good. */
static cgr_status vanished(cgr_runtime *rt, uint64_t seq) {
  if (cgr__ring_completed(&rt->ring) >= seq)
    return CGR_OK;
  char message[128];
  snprintf(message, sizeof message, "the stream is idle and step %llu has not completed", (unsigned long long)seq);
  return cgr__runtime_die(rt, 0, message);
}

cgr_status cgr__wait_completed(cgr_runtime *rt, uint64_t seq) {
  double deadline = 0.0;
  for (uint64_t round = 0; cgr__ring_completed(&rt->ring) < seq; round++) {
    if (rt->dev->kind == CGR_DEVICE_CUDA && round % SPINS_BEFORE_QUERY != SPINS_BEFORE_QUERY - 1) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      continue;
    }
    int state = rt->dev->ops->stream_query(rt->dev, rt->last_stream);
    if (state == CGR__DEVICE_OK)
      return vanished(rt, seq);
    if (state != CGR__DEVICE_NOT_READY)
      return cgr__runtime_device_error(rt, state, "cgr_step_wait: asking for the stream");
    double now = now_ms();
    if (deadline == 0.0)
      deadline = now + rt->setup.config.wait_timeout_ms;
    if (now > deadline)
      return cgr__fail(CGR_NOT_READY, "cgr_step_wait: step %llu has not completed after %d ms", (unsigned long long)seq,
                       rt->setup.config.wait_timeout_ms);
    if (rt->dev->kind == CGR_DEVICE_HOST)
      sched_yield();
  }
  return CGR_OK;
}

static cgr_status check_seq(cgr_runtime *rt, uint64_t seq, const cgr_step_result *result) {
  if (result && result->size < sizeof *result)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "step result: size is %u, expected %zu: use CGR_STEP_RESULT_INIT", result->size,
                     sizeof *result);
  if (seq == 0 || seq > rt->launched)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "step result: seq is %llu, expected 1 .. %llu (launched so far)",
                     (unsigned long long)seq, (unsigned long long)rt->launched);
  if (rt->launched - seq >= rt->ring.depth)
    return cgr__fail(CGR_ERROR_EXPIRED, "step result: seq is %llu, expected a step after %llu (ring_depth)",
                     (unsigned long long)seq, (unsigned long long)(rt->launched - rt->ring.depth));
  return CGR_OK;
}

static cgr_status give(cgr_runtime *rt, uint64_t seq, cgr_step_result *result) {
  const cgr__result_record *record = cgr__ring_result(&rt->ring, seq);
  if (result) {
    result->num_requests = record->num_requests;
    result->seq = seq;
    result->tokens = (const int32_t *)(record + 1);
    result->error = record->error;
    result->error_row = record->error_row;
    result->error_index = record->error_index;
    result->error_value = record->error_value;
  }
  if (record->error == CGR_STEP_OK)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STEP, "step %llu: a guard on the device reported error %d at row %d, index %d, value %lld",
                   (unsigned long long)seq, record->error, record->error_row, record->error_index,
                   (long long)record->error_value);
}

cgr_status cgr_step_poll(cgr_runtime *runtime, uint64_t seq, cgr_step_result *result) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_step_poll"));
  CGR__TRY(check_seq(runtime, seq, result));
  if (cgr__ring_completed(&runtime->ring) >= seq)
    return give(runtime, seq, result);
  int state = runtime->dev->ops->stream_query(runtime->dev, runtime->last_stream);
  if (cgr__ring_completed(&runtime->ring) >= seq)
    return give(runtime, seq, result);
  if (state == CGR__DEVICE_NOT_READY)
    return CGR_NOT_READY;
  if (state != CGR__DEVICE_OK)
    return cgr__runtime_device_error(runtime, state, "cgr_step_poll: asking for the stream");
  CGR__TRY(vanished(runtime, seq));
  return give(runtime, seq, result);
}

cgr_status cgr_step_wait(cgr_runtime *runtime, uint64_t seq, cgr_step_result *result) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_step_wait"));
  CGR__TRY(check_seq(runtime, seq, result));
  CGR__TRY(cgr__wait_completed(runtime, seq));
  return give(runtime, seq, result);
}

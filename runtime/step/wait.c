/* Waits for steps that have not completed, and for streams. Every wait ends: with the step, a time-out, or an error of the
 * device. */
#define _POSIX_C_SOURCE 200809L
#include <float.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/step/step.h"

#define SPINS_BEFORE_CLOCK 256
#define MS_BEFORE_QUERY 1.0       /* asking a GPU takes a lock of the driver's that other threads may want */
#define MS_BLOCKED 100.0          /* a sleeping thread asks, too: a lost device never wakes it */
#define MS_BEFORE_BLOCK_GPU 10.0  /* most steps are over by then, and going to sleep costs the next step its latency */
#define MS_BEFORE_BLOCK_HOST 0.05 /* the thread takes the processor that the step needs */

/* How a wait goes on, round by round. */
typedef struct wait_plan {
  int32_t mode;     /* SPIN or YIELD, until block_at */
  double block_at;  /* in ms of cgr__now_ms */
  bool asks_always; /* a host device may make progress only when it is asked */
} wait_plan;

static wait_plan plan_wait(const cgr_runtime *rt, double now) {
  const int32_t mode = rt->setup.config.wait_mode;
  const bool is_host = rt->dev->kind == CGR_DEVICE_KIND_HOST;
  wait_plan plan = { mode, DBL_MAX, is_host };
  if (mode == CGR_WAIT_BLOCK)
    plan.block_at = now;
  if (mode == CGR_WAIT_DEFAULT) {
    plan.mode = is_host ? CGR_WAIT_YIELD : CGR_WAIT_SPIN;
    plan.block_at = now + (is_host ? MS_BEFORE_BLOCK_HOST : MS_BEFORE_BLOCK_GPU);
  }
  return plan;
}

/* Tells the processor that the thread only looks at a word. */
static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most cores */
#elif defined(__riscv)
  __asm__ volatile(".4byte 0x100000f" ::: "memory"); /* pause, a hint that older processors pass over */
#endif
}

static void spin_for_step(const cgr__ring *ring, uint64_t seq) {
  for (int i = 0; i < SPINS_BEFORE_CLOCK && cgr__ring_completed(ring) < seq; i++)
    pause_briefly();
}

/* Asks whether the last launch's stream is idle or has failed; asking also lets the host device make progress. An idle stream
 * whose step has not completed means that a kernel was lost without the device saying so. */
static cgr_status ask_device_progress(cgr_runtime *rt, uint64_t seq) {
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

static cgr_status block_for_step(cgr_runtime *rt, uint64_t seq, double ms) {
  int error = rt->dev->ops->waiter_wait(rt->dev, rt->waiter, seq, (uint64_t)(ms * 1e6));
  return error == CGR__DEVICE_NOT_READY ? CGR_OK : cgr__runtime_device_error(rt, error, "waiting for a step by blocking");
}

/* One round; `*asks`: ask the device after it. */
static cgr_status do_round(cgr_runtime *rt, const wait_plan *plan, uint64_t seq, double now, double deadline, bool *asks) {
  *asks = plan->asks_always;
  if (now >= plan->block_at) {
    *asks = true;
    return block_for_step(rt, seq, deadline - now < MS_BLOCKED ? deadline - now : MS_BLOCKED);
  }
  if (plan->mode == CGR_WAIT_YIELD)
    sched_yield();
  else
    spin_for_step(&rt->lane.ring, seq);
  return CGR_OK;
}

static cgr_status wait_until_completed(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms) {
  const cgr__ring *ring = &rt->lane.ring;
  double now = cgr__now_ms(), ask_at = now + MS_BEFORE_QUERY;
  const double deadline = now + timeout_ms;
  const wait_plan plan = plan_wait(rt, now);
  bool asks;
  while (now < deadline) {
    cgr__statistics_use_wait(&rt->statistics, &rt->flight);
    CGR__TRY(do_round(rt, &plan, seq, now, deadline, &asks));
    if (cgr__ring_completed(ring) >= seq)
      return CGR_OK;
    now = cgr__now_ms();
    if (!asks && now < ask_at && now < deadline)
      continue;
    if (cgr__runtime_is_dead(rt)) /* another thread has abandoned it */
      return cgr__runtime_check(rt, function);
    CGR__TRY(ask_device_progress(rt, seq));
    ask_at = now + MS_BEFORE_QUERY;
  }
  if (cgr__ring_completed(ring) >= seq)
    return CGR_OK;
  return cgr__fail(CGR_NOT_READY,
                   "%s: step %llu has not completed after %d ms, expected it to: wait again, or longer (timeout_ms)", function,
                   (unsigned long long)seq, timeout_ms);
}

cgr_status cgr__wait_for_step(cgr_runtime *rt, const char *function, uint64_t seq, int32_t timeout_ms) {
  if (timeout_ms > 0)
    return wait_until_completed(rt, function, seq, timeout_ms);
  if (rt->dev->kind == CGR_DEVICE_KIND_HOST)
    sched_yield();
  CGR__TRY(ask_device_progress(rt, seq));
  return cgr__ring_completed(&rt->lane.ring) >= seq ? CGR_OK : CGR_NOT_READY;
}

/* --------------------------------------------------------------------------------------------------------------- streams */

#define YIELDS 100
static const struct timespec poll_pause = { 0, 100000 };

/* Cold. It polls instead of synchronising, because a stream may never become idle. */
int cgr__wait_idle(cgr_runtime *rt, cudaStream_t stream, double deadline) {
  int error;
  for (int round = 0; (error = rt->dev->ops->stream_query(rt->dev, stream)) == CGR__DEVICE_NOT_READY; round++) {
    if (cgr__now_ms() >= deadline)
      break;
    if (round < YIELDS)
      sched_yield();
    else
      nanosleep(&poll_pause, NULL);
  }
  return error;
}

double cgr__wait_deadline(const cgr_runtime *rt) { return cgr__now_ms() + rt->setup.config.wait_timeout_ms; }

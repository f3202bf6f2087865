/* Checks of handles, and the death of a runtime. */
#include <stdio.h>

#include "base/sized.h"
#include "cgr/collectives.h"
#include "runtime/runtime.h"

bool cgr__runtime_is(const cgr_runtime *rt) { return rt && rt->magic == CGR__RUNTIME_MAGIC; }

cgr_status cgr__runtime_check(cgr_runtime *rt, const char *function) {
  if (!rt)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: runtime is NULL, expected one from cgr_runtime_create", function);
  if (rt->magic != CGR__RUNTIME_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: runtime is %p, expected one from cgr_runtime_create", function, (void *)rt);
  if (!__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE))
    return CGR_OK;
  cgr__set_device_code(rt->dead_code);
  return cgr__fail(CGR_ERROR_DEAD, "%s: the runtime is dead, expected no call but cgr_runtime_destroy and reports: %s", function,
                   rt->dead_message);
}

cgr_status cgr__runtime_check_outside(cgr_runtime *rt, const char *function) {
  CGR__TRY(cgr__runtime_check(rt, function));
  if (rt->recording)
    return cgr__fail(CGR_ERROR_STATE, "%s: called from inside record or a call of a step, expected a call outside of it",
                     function);
  return CGR_OK;
}

cgr_status cgr__runtime_report(cgr_runtime *rt, cgr_status status) {
  if (rt->dev->report)
    rt->dev->report(rt->dev, cgr_last_message());
  return status;
}

bool cgr__step_enter(cgr_runtime *rt) {
  bool was_inside = rt->recording;
  rt->recording = true;
  cgr__device_step_enter();
  if (rt->dev->inside)
    rt->dev->inside(rt->dev, 1);
  return was_inside;
}

void cgr__step_leave(cgr_runtime *rt, bool was_inside) {
  if (rt->dev->inside)
    rt->dev->inside(rt->dev, -1);
  cgr__device_step_leave();
  rt->recording = was_inside;
}

cgr_status cgr__runtime_check_unprepared(const cgr_runtime *rt, const char *function) {
  if (rt->lane.prepared.ticket == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE, "%s: a step is prepared, expected it to be launched or cancelled first", function);
}

cgr_status cgr__runtime_check_graphs(const cgr_runtime *rt, const char *function) {
  if (cgr__graphs_num_usable(&rt->graphs) > 0)
    return CGR_OK;
  const char *why = rt->graphs.count == 0 && rt->setup.mode == CGR_MODE_NONE ? " (graph_mode is NONE)" : "";
  return cgr__fail(CGR_ERROR_STATE, "%s: no graph of %d key%s can be replayed%s, expected cgr_runtime_capture before", function,
                   rt->graphs.count, cgr__plural(rt->graphs.count), why);
}

cgr_status cgr__runtime_check_lane(cgr_runtime *rt, const char *function, int32_t lane) {
  CGR__TRY(cgr__runtime_check(rt, function));
  if (lane != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: lane is %d, expected 0 (num_lanes is 1)", function, lane);
  return CGR_OK;
}

cgr_status cgr__runtime_check_where(cgr_runtime *rt, const char *function, const cgr_where *where) {
  CGR__TRY(cgr__runtime_check_lane(rt, function, where ? where->lane : 0));
  return cgr__runtime_check_program(rt, function, "program", where ? where->program : 0);
}

cgr_status cgr__runtime_check_program(const cgr_runtime *rt, const char *function, const char *field, int32_t program) {
  const int32_t count = rt->setup.config.num_programs;
  if (program >= 0 && program < count)
    return CGR_OK;
  if (count == 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %d, expected 0 (num_programs is 1)", function, field, program);
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %d, expected 0 .. %d (num_programs is %d)", function, field, program,
                   count - 1, count);
}

cgr_status cgr__runtime_check_mark(cgr_runtime *rt, const char *function, cgr_mark mark) {
  CGR__TRY(cgr__runtime_check_lane(rt, function, mark.lane));
  return mark.reserved == 0 ? CGR_OK : cgr__fail_in(function, cgr__check_unused("mark.reserved", mark.reserved));
}

cgr_status cgr__check_seq(const cgr_runtime *rt, const char *function, uint64_t seq) {
  uint64_t launched = rt->lane.launched, depth = rt->lane.ring.depth;
  if (seq == 0 || seq > launched)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "%s: mark.seq is %llu, expected that of a launched step (%llu so far): cgr_step_launch puts the mark into the "
        "step; results, cgr_request_info.last and cgr_runtime_flush give marks, too",
        function, (unsigned long long)seq, (unsigned long long)launched);
  if (launched - seq >= depth)
    return cgr__fail(
        CGR_ERROR_EXPIRED,
        "%s: mark.seq is %llu, expected one of %llu .. %llu: those before are gone (ring_depth is %llu), wait for a step "
        "before so many more are launched",
        function, (unsigned long long)seq, (unsigned long long)(launched - depth + 1), (unsigned long long)launched,
        (unsigned long long)depth);
  return CGR_OK;
}

/* Whoever is first writes why, on any thread; afterwards the runtime is dead. Returns whether this one was. */
static bool write_death(cgr_runtime *rt, int device_code, const char *message) {
  int before = 0;
  if (!__atomic_compare_exchange_n(&rt->dying, &before, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    while (!__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE)) {
    }
    return false;
  }
  snprintf(rt->dead_message, sizeof rt->dead_message, "%s", message);
  rt->dead_code = device_code;
  __atomic_store_n(&rt->dead, 1, __ATOMIC_RELEASE);
  return true;
}

cgr_status cgr_runtime_abandon(cgr_runtime *runtime, const char *why) {
  CGR__REQUIRE(runtime, "cgr_runtime_abandon");
  CGR__REQUIRE(why, "cgr_runtime_abandon");
  if (!cgr__runtime_is(runtime))
    return cgr__runtime_check(runtime, "cgr_runtime_abandon");
  char message[320];
  snprintf(message, sizeof message, "abandoned: %.200s", why);
  (void)write_death(runtime, 0, message);
  return CGR_OK;
}

cgr_status cgr_runtime_progress(const cgr_runtime *runtime, cgr_progress *progress) {
  CGR__REQUIRE(runtime, "cgr_runtime_progress");
  CGR__TRY(cgr__sized_check("cgr_runtime_progress: progress", "CGR_PROGRESS_INIT", progress));
  if (!cgr__runtime_is(runtime))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_progress: runtime is %p, expected one from cgr_runtime_create",
                     (const void *)runtime);
  cgr_progress full = CGR_PROGRESS_INIT;
  full.completed = cgr__ring_completed(&runtime->lane.ring);
  full.launched = __atomic_load_n(&runtime->lane.launched, __ATOMIC_ACQUIRE);
  full.dead = __atomic_load_n(&runtime->dead, __ATOMIC_ACQUIRE);
  cgr__sized_write(progress, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr__runtime_die(cgr_runtime *rt, int device_code, const char *message) {
  if (write_death(rt, device_code, message))
    rt->at_return |= CGR__RETURN_DUMPS;
  cgr__set_device_code(rt->dead_code);
  return cgr__fail(CGR_ERROR_DEAD, "%s", rt->dead_message);
}

cgr_status cgr__runtime_device_failed(cgr_runtime *rt, int error, const char *what) {
  cgr_status status = cgr__device_fail(rt->dev, error, what);
  if (status != CGR_ERROR_DEAD)
    return status;
  return cgr__runtime_die(rt, cgr_last_device_code(), cgr_last_message());
}

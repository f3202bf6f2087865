/* Steps as trace events: what the flight recorder has of the host, and the spans of the device. Cold. */
#include "runtime/report/report.h"
#include "runtime/report/timing.h"
#include "tracing/events.h"

/* Whether the device is asked: a dead one answers nothing. */
static bool asks_device(const cgr_runtime *rt) { return cgr__is_timed(rt) && !cgr__runtime_is_dead(rt); }

/* Whether the spans under the record's number are the record's own: an abandoned step's number may have gone to the next step. */
static bool has_run(const cgr_flight_record *record) {
  return record->outcome == CGR_FLIGHT_LAUNCHED || record->outcome == CGR_FLIGHT_INTERNAL;
}

static void write_head(const cgr_runtime *rt, cgr__text *text) {
  const cgr__events_head head = { .device = rt->setup.device.name,
                                  .timed = cgr__is_timed(rt),
                                  .device_clock_error_ns = rt->timing.clock.last.error_ns };
  cgr__events_begin(text, &head);
}

static cgr_status compare_clocks(cgr_runtime *rt, const char *function) {
  cgr__tick_clock_compare(&rt->statistics.clock);
  return asks_device(rt) ? cgr__timing_compare(rt, function, true) : CGR_OK;
}

static cgr_status write_device(cgr_runtime *rt, const char *function, const cgr_flight_record *record, cgr__text *text) {
  int32_t count = 0;
  CGR__TRY(cgr__timing_read(rt, function, record->seq, &count));
  cgr__events_device(text, record->seq, record, rt->timing.spans, count);
  return CGR_OK;
}

/* A text that could not be written whole becomes empty. */
static cgr_status finish_text(cgr_status status, const cgr__text *text, size_t *length) {
  if (status == CGR_OK)
    *length = text->length;
  else if (text->capacity > 0)
    text->out[0] = 0;
  return status;
}

static cgr_status check_trace_arguments(cgr_runtime *rt, const char *function, const char *out, size_t capacity,
                                        const size_t *length) {
  CGR__TRY(cgr__text_check(rt, function, out, capacity, length));
  return rt->recording ? cgr__runtime_check_outside(rt, function) : CGR_OK;
}

static cgr_status write_trace(cgr_runtime *rt, cgr__text *text) {
  static const char function[] = "cgr_runtime_trace";
  CGR__TRY(compare_clocks(rt, function));
  write_head(rt, text);
  for (int32_t i = 0; i < cgr__flight_count(rt); i++) {
    const cgr_flight_record record = cgr__flight_read(rt, i);
    cgr__events_host(text, &record);
    if (asks_device(rt) && has_run(&record) && cgr__timing_is_kept(rt, record.seq))
      CGR__TRY(write_device(rt, function, &record, text));
  }
  cgr__text_add(text, "%s", CGR_TRACE_TAIL);
  return CGR_OK;
}

cgr_status cgr_runtime_trace(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_trace");
  CGR__TRY(check_trace_arguments(runtime, "cgr_runtime_trace", out, capacity, length));
  cgr__text text = cgr__text_begin(out, capacity);
  return finish_text(write_trace(runtime, &text), &text, length);
}

cgr_status cgr_runtime_trace_head(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_trace_head");
  CGR__TRY(check_trace_arguments(runtime, "cgr_runtime_trace_head", out, capacity, length));
  cgr__text text = cgr__text_begin(out, capacity);
  CGR__TRY(compare_clocks(runtime, "cgr_runtime_trace_head"));
  write_head(runtime, &text);
  return finish_text(CGR_OK, &text, length);
}

/* The newest record with this number: an older one is of a step that was abandoned, and whose number was used again. */
static bool find_record(const cgr_runtime *rt, uint64_t seq, cgr_flight_record *record) {
  for (int32_t i = cgr__flight_count(rt) - 1; i >= 0; i--) {
    *record = cgr__flight_read(rt, i);
    if (record->seq == seq)
      return true;
  }
  return false;
}

static cgr_status write_step(cgr_runtime *rt, uint64_t seq, cgr__text *text) {
  cgr_flight_record record;
  int32_t count = 0;
  CGR__TRY(cgr__timing_read(rt, "cgr_runtime_trace_step", seq, &count));
  cgr__tick_clock_sync(&rt->statistics.clock);
  bool known = find_record(rt, seq, &record);
  if (known)
    cgr__events_host(text, &record);
  cgr__events_device(text, seq, known ? &record : NULL, rt->timing.spans, count);
  return CGR_OK;
}

cgr_status cgr_runtime_trace_step(cgr_runtime *runtime, cgr_mark mark, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_trace_step");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_trace_step"));
  CGR__TRY(cgr__runtime_check_mark(runtime, "cgr_runtime_trace_step", mark));
  CGR__TRY(cgr__text_check(runtime, "cgr_runtime_trace_step", out, capacity, length));
  cgr__text text = cgr__text_begin(out, capacity);
  return finish_text(write_step(runtime, mark.seq, &text), &text, length);
}

/* The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format). */
#include "tracing/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/key.h"
#include "cgr/names.h"

enum { TID_HOST = 1, TID_DEVICE = 2, TID_BRANCH = 3 };

/* An event up to its arguments. */
static void begin_event(cgr__text *text, const char *phase, pid_t pid, int tid, uint64_t at_ns) {
  cgr__text_add(text, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", phase, (int)pid, tid);
  cgr__text_add_decimal(text, at_ns, 3);
}

static void begin_slice(cgr__text *text, pid_t pid, int tid, uint64_t at_ns, uint64_t ns) {
  begin_event(text, "X", pid, tid, at_ns);
  cgr__text_add(text, ",\"dur\":");
  cgr__text_add_decimal(text, ns, 3);
}

static void add_name_event(cgr__text *text, const char *event, int tid, const char *name) {
  cgr__text_add(text, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"ts\":0,\"name\":\"%s\",\"args\":{\"name\":", (int)getpid(), tid,
                event);
  cgr__text_add_json(text, name);
  cgr__text_add(text, "}}");
}

void cgr__events_begin(cgr__text *text, const cgr__events_head *head) {
  char device[80];
  snprintf(device, sizeof device, "device: %s", head->device);
  cgr__text_add(text, "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"version\":");
  cgr__text_add_json(text, cgr_build_info());
  cgr__text_add(text, ",\"device\":");
  cgr__text_add_json(text, head->device);
  if (head->timed)
    cgr__text_add(text, ",\"device_clock_error_ns\":%" PRIu64, head->device_clock_error_ns);
  cgr__text_add(text, "},\n\"traceEvents\":[\n");
  add_name_event(text, "process_name", 0, "cgr");
  cgr__text_add(text, ",\n");
  add_name_event(text, "thread_name", TID_HOST, "host");
  if (!head->timed)
    return;
  cgr__text_add(text, ",\n");
  add_name_event(text, "thread_name", TID_DEVICE, device);
  cgr__text_add(text, ",\n");
  add_name_event(text, "thread_name", TID_BRANCH, "alongside the step");
}

static void add_args(cgr__text *text, const cgr_flight_record *r) {
  cgr__text_add(text, ",\"args\":{\"seq\":%" PRIu64 ",\"outcome\":\"%s\"", r->seq,
                cgr_flight_outcome_name((cgr_flight_outcome)r->outcome));
  if (r->status != CGR_OK)
    cgr__text_add(text, ",\"status\":\"%s\"", cgr_status_name((cgr_status)r->status));
  if (r->outcome != CGR_FLIGHT_REFUSED || r->key_index >= 0)
    cgr__text_add(text, ",\"key\":\"%s\",\"reason\":\"%s\"", cgr__key_name(&r->key).text, cgr_reason_name((cgr_reason)r->reason));
  if (r->outcome != CGR_FLIGHT_REFUSED && r->outcome != CGR_FLIGHT_INTERNAL)
    cgr__text_add(text, ",\"requests\":%d,\"padded_requests\":%d,\"tokens\":%d,\"padded_tokens\":%d", r->num_requests,
                  r->key.num_requests, r->num_tokens, r->key.num_tokens);
  cgr__text_add(text, ",\"bytes_staged\":%" PRIu64 "}", r->bytes_staged);
}

/* An end of the arrow from a launch to the device's step; it belongs to the slice that holds its time. */
static void add_flow(cgr__text *text, const char *phase, pid_t pid, int tid, uint64_t at_ns, uint64_t seq) {
  begin_event(text, phase, pid, tid, at_ns);
  cgr__text_add(text, ",\"cat\":\"step\",\"name\":\"step\",\"id\":%" PRIu64 ",\"bp\":\"e\"}", seq);
}

void cgr__events_host(cgr__text *text, const cgr_flight_record *r) {
  const pid_t pid = getpid();
  if (r->prepare_ns > 0) {
    begin_slice(text, pid, TID_HOST, r->at_ns, r->prepare_ns);
    cgr__text_add(text, ",\"cat\":\"host\",\"name\":\"prepare\"");
    add_args(text, r);
    cgr__text_add(text, "}");
  }
  if (r->launch_at_ns == 0 || r->launch_ns == 0)
    return;
  begin_slice(text, pid, TID_HOST, r->launch_at_ns, r->launch_ns);
  cgr__text_add(text, ",\"cat\":\"host\",\"name\":\"launch\"");
  add_args(text, r);
  cgr__text_add(text, "}");
}

static bool is_on_branch(int32_t phase) {
  return phase == CGR_PHASE_PLAN_FIRST || phase == CGR_PHASE_ON_DEMAND || phase == CGR_PHASE_PLAN || phase == CGR_PHASE_FETCH;
}

void cgr__events_device(cgr__text *text, uint64_t seq, const cgr_flight_record *record, const cgr_span *spans, int32_t count) {
  const pid_t pid = getpid(); /* a system call */
  for (int32_t i = 0; i < count; i++) {
    const cgr_span *s = &spans[i];
    begin_slice(text, pid, is_on_branch(s->phase) ? TID_BRANCH : TID_DEVICE, s->host_ns, s->end_ns - s->begin_ns);
    cgr__text_add(text, ",\"cat\":\"device\",\"name\":\"%s", cgr_phase_name((cgr_phase)s->phase));
    if (s->layer >= 0)
      cgr__text_add(text, " %d", s->layer);
    cgr__text_add(text, "\"");
    if (s->phase == CGR_PHASE_STEP && record)
      add_args(text, record);
    else
      cgr__text_add(text, ",\"args\":{\"seq\":%" PRIu64 "}", seq);
    cgr__text_add(text, "}");
    if (s->phase != CGR_PHASE_STEP || !record || record->outcome != CGR_FLIGHT_LAUNCHED || record->launch_at_ns == 0)
      continue;
    add_flow(text, "s", pid, TID_HOST, record->launch_at_ns, seq); /* here, so no arrow leads to a step that is not on the page */
    add_flow(text, "f", pid, TID_DEVICE, s->host_ns, seq);
  }
}

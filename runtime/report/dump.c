/* Reads the flight recorder, as records and as JSON; keeps the failure that a dump reports. Cold. */
#include <stdio.h>

#include "cgr/names.h"
#include "runtime/report/report.h"
#include "runtime/report/timing.h"
#include "tracing/json.h"

static cgr_guard kept_guard_of(const cgr__kept_guards *guards, uint64_t seq) {
  for (int i = 0; i < CGR__KEPT_GUARDS; i++)
    if (guards->kept[i].seq == seq && seq > 0)
      return guards->kept[i].guard;
  return (cgr_guard){ CGR_GUARD_NONE, -1, 0, 0, 0 };
}

/* What a guard refused in a step is in the step's result until that is overwritten. */
static cgr_guard guard_of(const cgr_runtime *rt, uint64_t seq) {
  const cgr__ring *ring = &rt->lane.ring;
  if (seq == 0 || cgr__ring_completed(ring) < seq || rt->lane.launched - seq >= ring->depth)
    return kept_guard_of(&rt->guards, seq);
  const cgr__result_record *result = cgr__ring_result(ring, seq);
  if (result->seq != seq)
    return kept_guard_of(&rt->guards, seq);
  return (cgr_guard){ result->error, result->error_row, result->error_index, 0, result->error_value };
}

static cgr_key record_key(const cgr_runtime *rt, const cgr__flight_entry *e) {
  cgr_key key = CGR_KEY_INIT;
  if (e->key >= 0)
    return rt->graphs.entry[e->key].key;
  key.kind = e->kind;
  key.num_tokens = e->padded_tokens;
  key.num_requests = e->padded_requests;
  key.query_len = e->query_len;
  key.variant = e->variant;
  key.program = -1 - e->key;
  return key;
}

static cgr_flight_record read_entry(const cgr_runtime *rt, const cgr__flight_entry *e) {
  const cgr__tick_clock *clock = &rt->statistics.clock;
  cgr_flight_record r = CGR_FLIGHT_RECORD_INIT;
  r.outcome = e->outcome;
  r.reason = e->reason == CGR__NO_REASON ? -1 : e->reason;
  r.status = e->status;
  r.key_index = e->key >= 0 ? e->key : -1;
  r.num_requests = e->num_requests;
  r.num_tokens = e->num_tokens;
  r.layout = e->layout;
  r.key = record_key(rt, e);
  r.seq = e->seq;
  if (e->outcome == CGR_FLIGHT_REFUSED)
    r.repeats = e->repeats;
  else
    r.bytes_staged = e->bytes_staged;
  r.completed = e->seq > 0 && e->seq <= cgr__ring_completed(&rt->lane.ring);
  r.at_ns = cgr__tick_clock_at(clock, e->at);
  r.prepare_ns = cgr__tick_clock_ns(clock, e->prepare_ticks);
  r.launch_ns = cgr__tick_clock_ns(clock, e->launch_ticks);
  r.guard = guard_of(rt, e->seq);
  return r;
}

int32_t cgr__flight_count(const cgr_runtime *rt) { return (int32_t)(rt->flight.count - cgr__flight_first(&rt->flight)); }

cgr_flight_record cgr__flight_read(const cgr_runtime *rt, int32_t i) {
  uint64_t place = cgr__flight_first(&rt->flight) + (uint64_t)i;
  cgr_flight_record record = read_entry(rt, cgr__flight_at(&rt->flight, place));
  uint64_t launched_at = cgr__is_timed(rt) ? rt->timing.launched_at[place & rt->flight.mask] : 0;
  if (launched_at > 0)
    record.launch_at_ns = cgr__tick_clock_at(&rt->statistics.clock, launched_at);
  return record;
}

/* ------------------------------------------------------------------------------------------------------------------ JSON */

static void write_prepared(const cgr_runtime *rt, cgr__text *text) {
  cgr__flight_entry entry;
  cgr__text_add(text, ",\n \"prepared\": ");
  if (rt->lane.prepared.ticket == 0) {
    cgr__text_add(text, "null");
    return;
  }
  cgr__flight_describe(rt, CGR_FLIGHT_PREPARED, &entry);
  entry.status = (uint8_t)cgr__failure_of_prepared(rt);
  cgr_flight_record record = read_entry(rt, &entry);
  cgr__json_record(text, &record);
}

/* Finds the record of the first step that has not completed; if one step gave up a number and another used it, the record that
 * was written first. Returns whether there is such a step; `*found`: whether its record is kept. */
static bool find_incomplete(const cgr_runtime *rt, uint64_t completed, cgr_flight_record *record, bool *found) {
  bool incomplete = completed < rt->lane.launched;
  *found = false;
  for (int32_t i = 0; i < cgr__flight_count(rt) && !*found; i++) {
    *record = cgr__flight_read(rt, i);
    *found = record->seq == completed + 1;
  }
  return incomplete || *found;
}

size_t cgr__dump(cgr_runtime *rt, char *out, size_t capacity) {
  cgr__text text = cgr__text_begin(out, capacity);
  cgr_flight_record first;
  bool found;
  uint64_t completed = cgr__ring_completed(&rt->lane.ring);
  bool incomplete = find_incomplete(rt, completed, &first, &found);
  const cgr__dump_head head = { .device = rt->setup.device.name,
                                .device_kind = cgr_device_kind_name((cgr_device_kind)rt->setup.device.kind),
                                .layout = rt->graphs.captured_hash,
                                .launched = rt->lane.launched,
                                .completed = completed,
                                .guard_errors = cgr__ring_errors(&rt->lane.ring),
                                .dead = cgr__runtime_is_dead(rt) ? rt->dead_message : NULL,
                                .dead_code = rt->dead_code,
                                .failure = &rt->failure,
                                .incomplete = incomplete ? completed + 1 : 0,
                                .incomplete_record = found ? &first : NULL };
  cgr__tick_clock_refresh(&rt->statistics.clock);
  cgr__json_head(&text, &head);
  write_prepared(rt, &text);
  cgr__text_add(&text, ",\n \"records\": [");
  for (int32_t i = 0; i < cgr__flight_count(rt); i++) {
    cgr_flight_record record = cgr__flight_read(rt, i);
    cgr__text_add(&text, i == 0 ? "\n  " : ",\n  ");
    cgr__json_record(&text, &record);
  }
  cgr__text_add(&text, "]}\n");
  return text.length;
}

void cgr__dump_tell(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  bool due = rt->at_return & CGR__RETURN_DUMPS;
  rt->at_return &= (uint8_t)~CGR__RETURN_DUMPS;
  if (!due || !rt->dump)
    return;
  size_t length = cgr__dump(rt, rt->dump, rt->dump_bytes);
  c->dump(c->dump_context, rt->dump, length);
}

void cgr__failure_keep(cgr_runtime *rt, uint64_t seq, const cgr_key *key, cgr_status status) {
  rt->failure.seq = seq;
  rt->failure.ticket = 0;
  rt->failure.key = *key;
  rt->failure.status = (int32_t)status;
  rt->failure.device_code = cgr_last_device_code();
  snprintf(rt->failure.message, sizeof rt->failure.message, "%s", cgr_last_message());
}

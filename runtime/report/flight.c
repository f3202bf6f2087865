/* Writes the records of the flight recorder. Part of the hot path: one cache line is written for each step, here and nowhere
 * else. */
#include "runtime/report/report.h"
#include "runtime/report/timing.h"

/* The next record, begun: all that is known of a step that has no batch. */
static cgr__flight_entry *begin_record(cgr_runtime *rt, cgr_flight_outcome outcome, uint64_t at) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  *e = (cgr__flight_entry){
    .at = at, .key = -1, .outcome = (uint8_t)outcome, .reason = CGR_REASON_INTERNAL, .layout = (uint32_t)rt->graphs.captured_hash
  };
  return e;
}

/* `launched_at`: ticks, when launch began; 0: it did not. */
static void end_record(cgr_runtime *rt, uint64_t launched_at) {
  if (cgr__is_timed(rt))
    rt->timing.launched_at[rt->flight.count & rt->flight.mask] = launched_at;
  rt->flight.count++;
  cgr__statistics_follow(&rt->statistics, &rt->flight);
}

void cgr__flight_describe(const cgr_runtime *rt, cgr_flight_outcome outcome, cgr__flight_entry *e) {
  const cgr__prepared *p = &rt->lane.prepared;
  const cgr_key *key = &p->choice.key;
  *e = (cgr__flight_entry){ .at = rt->flight.prepared_at,
                            .prepare_ticks = rt->flight.prepare_ticks,
                            .key = p->choice.entry ? p->choice.entry->index : -1 - key->program,
                            .kind = (uint8_t)key->kind,
                            .reason = (uint8_t)p->choice.reason,
                            .outcome = (uint8_t)outcome,
                            .num_requests = (uint16_t)p->batch.num_requests,
                            .padded_requests = (uint16_t)key->num_requests,
                            .num_tokens = p->batch.num_tokens,
                            .padded_tokens = key->num_tokens,
                            .query_len = key->query_len,
                            .variant = key->variant,
                            .layout = (uint32_t)rt->graphs.captured_hash,
                            .bytes_staged = p->bytes };
}

/* The launch of the prepared step is over, one way or the other. */
static void launch_over(cgr_runtime *rt, cgr_flight_outcome outcome, uint64_t began, uint64_t seq, cgr_status status) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  cgr__flight_describe(rt, outcome, e);
  e->seq = seq;
  e->status = (uint8_t)status;
  e->launch_ticks = began > 0 ? cgr__ticks_between(began, cgr__ticks()) : 0;
  end_record(rt, began);
}

void cgr__flight_launched(cgr_runtime *rt, uint64_t began) {
  launch_over(rt, CGR_FLIGHT_LAUNCHED, began, rt->lane.prepared.seq, CGR_OK);
}

void cgr__flight_abandoned(cgr_runtime *rt, uint64_t began, uint64_t seq, cgr_status status) {
  launch_over(rt, CGR_FLIGHT_ABANDONED, began, seq, status);
}

void cgr__flight_cancelled(cgr_runtime *rt) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  cgr__flight_describe(rt, CGR_FLIGHT_CANCELLED, e);
  e->status = (uint8_t)cgr__failure_of_prepared(rt);
  end_record(rt, 0);
}

/* Whether the last record is a refusal that this one only repeats: an engine may ask a hundred times a millisecond whether the
 * ring has room, and a record for each answer would push more telling steps out of the recorder. */
static bool repeats_last(const cgr_runtime *rt, const cgr__flight_entry *e) {
  const cgr__flight_entry *last = cgr__flight_at(&rt->flight, rt->flight.count - 1);
  return rt->flight.count > 0 && last->outcome == CGR_FLIGHT_REFUSED && last->status == e->status && last->reason == e->reason &&
         last->key == e->key && last->layout == e->layout;
}

/* A step that was refused because its graph is missing or stale has a reason, and may have missed a key. The choice says nothing
 * about other refusals, or while another step is prepared. */
void cgr__flight_refused(cgr_runtime *rt, uint64_t began, cgr_status status) {
  const cgr__choice *choice = &rt->lane.prepared.choice;
  cgr__runtime_tell(rt); /* of a death that this call ran into: what the runtime did before it */
  const cgr__graph_entry *missed = rt->lane.prepared.ticket == 0 ? choice->missed : NULL;
  bool for_want = missed || status == CGR_ERROR_FALLBACK || status == CGR_ERROR_STALE_GRAPH;
  cgr__flight_entry *e = begin_record(rt, CGR_FLIGHT_REFUSED, began);
  e->status = (uint8_t)status;
  e->prepare_ticks = cgr__ticks_between(began, cgr__ticks());
  e->reason = for_want ? (uint8_t)choice->reason : CGR__NO_REASON;
  e->key = missed ? missed->index : -1;
  if (!repeats_last(rt, e)) {
    end_record(rt, 0);
    return;
  }
  cgr__flight_at(&rt->flight, rt->flight.count - 1)->repeats++;
  if (rt->statistics.folded == rt->flight.count) /* the record has been counted without this one */
    rt->statistics.sums.refused++;
}

void cgr__flight_internal(cgr_runtime *rt, uint64_t seq, uint64_t bytes) {
  cgr__flight_entry *e = begin_record(rt, CGR_FLIGHT_INTERNAL, cgr__ticks());
  e->seq = seq;
  e->bytes_staged = bytes;
  end_record(rt, 0);
}

void cgr__flight_failed(cgr_runtime *rt, uint64_t seq, const cgr_key *key, cgr_status status) {
  cgr__flight_entry *e = begin_record(rt, CGR_FLIGHT_ABANDONED, cgr__ticks());
  e->seq = seq;
  e->status = (uint8_t)status;
  e->padded_requests = (uint16_t)key->num_requests;
  e->padded_tokens = key->num_tokens;
  e->query_len = key->query_len;
  e->variant = key->variant;
  e->key = -1 - key->program;
  end_record(rt, 0);
}

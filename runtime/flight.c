/* Writes the records of the flight recorder. Part of the hot path: of each step one line is written, here and nowhere else. */
#include "runtime/timing.h"

/* The next record, begun: all that is known of a step that has no batch. */
static cgr__flight_entry *begin(cgr_runtime *rt, cgr_flight_outcome outcome, uint64_t at) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  *e = (cgr__flight_entry){
    .at = at, .key = -1, .outcome = (uint8_t)outcome, .reason = CGR_REASON_INTERNAL, .layout = (uint32_t)rt->graphs.baked_hash
  };
  return e;
}

/* `launched_at`: ticks, when launch began; 0: it did not. */
static void end(cgr_runtime *rt, uint64_t launched_at) {
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
                            .key = p->choice.entry ? p->choice.entry->index : -1,
                            .kind = (uint8_t)key->kind,
                            .reason = (uint8_t)p->choice.reason,
                            .outcome = (uint8_t)outcome,
                            .num_requests = (uint16_t)p->batch.num_requests,
                            .padded_requests = (uint16_t)key->num_requests,
                            .num_tokens = p->batch.num_tokens,
                            .padded_tokens = key->num_tokens,
                            .query_len = key->query_len,
                            .variant = key->variant,
                            .layout = (uint32_t)rt->graphs.baked_hash,
                            .bytes_staged = p->bytes };
}

void cgr__flight_launched(cgr_runtime *rt, uint64_t began) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  cgr__flight_describe(rt, CGR_FLIGHT_LAUNCHED, e);
  e->seq = rt->lane.prepared.seq;
  e->launch_ticks = began > 0 ? cgr__ticks_between(began, cgr__ticks()) : 0;
  end(rt, began);
}

void cgr__flight_abandoned(cgr_runtime *rt, uint64_t began, uint64_t seq, cgr_status status) {
  cgr__flight_entry *e = cgr__flight_at(&rt->flight, rt->flight.count);
  cgr__flight_describe(rt, CGR_FLIGHT_ABANDONED, e);
  e->seq = seq;
  e->status = (uint8_t)status;
  e->launch_ticks = began > 0 ? cgr__ticks_between(began, cgr__ticks()) : 0;
  end(rt, began);
}

void cgr__flight_cancelled(cgr_runtime *rt) {
  cgr__flight_describe(rt, CGR_FLIGHT_CANCELLED, cgr__flight_at(&rt->flight, rt->flight.count));
  end(rt, 0);
}

/* What strict mode refuses has missed a key; of other refusals the choice says nothing. */
void cgr__flight_refused(cgr_runtime *rt, uint64_t began, cgr_status status) {
  const cgr__graph_entry *missed = rt->lane.prepared.choice.missed;
  cgr__flight_entry *e = begin(rt, CGR_FLIGHT_REFUSED, began);
  e->status = (uint8_t)status;
  e->prepare_ticks = cgr__ticks_between(began, cgr__ticks());
  if (missed && (status == CGR_ERROR_FALLBACK || status == CGR_ERROR_STALE_GRAPH)) {
    e->key = missed->index;
    e->reason = (uint8_t)rt->lane.prepared.choice.reason;
  }
  end(rt, 0);
}

void cgr__flight_internal(cgr_runtime *rt, uint64_t seq, uint64_t bytes) {
  cgr__flight_entry *e = begin(rt, CGR_FLIGHT_INTERNAL, cgr__ticks());
  e->seq = seq;
  e->bytes_staged = bytes;
  end(rt, 0);
}

/* What this rank has launched: read from the runtime's flight recorder, so that steps count that no agreement knows of. */
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "cgr/tracing.h"
#include "ranks/ranks.h"

#define FEW 8   /* records that hold what came since the last step, nearly always */
#define MANY 64 /* otherwise */

static void add_step(cgr_ranks *k, const cgr_flight_record *r) {
  cgr_rank_proposal *p = &k->mine.proposal;
  k->last_seq = r->seq;
  if (r->outcome != CGR_FLIGHT_LAUNCHED || r->reason == CGR_REASON_INTERNAL)
    return;
  p->steps++;
  p->history = cgr__hash(p->history, &r->key, sizeof r->key);
  p->last = r->key;
}

/* The newest records, as many as hold all that came after `last_seq`; MANY at most. */
static cgr_status read_records(const cgr_ranks *k, cgr_flight_record *records, int32_t *count) {
  for (int32_t capacity = FEW;; capacity = MANY) {
    for (int32_t i = 0; i < capacity; i++)
      records[i].size = sizeof records[i];
    CGR__TRY(cgr_runtime_flight(k->runtime, records, capacity, count));
    const bool all = *count < capacity || capacity == MANY;
    *count = *count < capacity ? *count : capacity;
    for (int32_t i = 0; i < *count && !all; i++)
      if (records[i].seq > 0 && records[i].seq <= k->last_seq)
        return CGR_OK; /* what came after it is there */
    if (all)
      return CGR_OK;
  }
}

static void note_record(cgr_ranks *k, const cgr_flight_record *r) {
  if (r->seq > k->state.launched)
    k->state.launched = r->seq;
  if (r->completed && r->seq > k->state.completed)
    k->state.completed = r->seq;
}

cgr_status cgr__ranks_look_at_runtime(cgr_ranks *k) {
  cgr_flight_record records[MANY];
  int32_t count = 0;
  CGR__TRY(read_records(k, records, &count));
  for (int32_t i = 0; i < count; i++)
    note_record(k, &records[i]);
  return CGR_OK;
}

cgr_status cgr__ranks_follow(cgr_ranks *k) {
  cgr_flight_record records[MANY];
  int32_t count = 0;
  CGR__TRY(read_records(k, records, &count));
  for (int32_t i = 0; i < count; i++) {
    note_record(k, &records[i]);
    if (records[i].seq > k->last_seq)
      add_step(k, &records[i]);
  }
  return CGR_OK;
}

/* What this rank has launched: read from the runtime's flight recorder, so that steps count that no agreement knows of. */
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "ranks/ranks.h"

#define FEW 8 /* records that hold what came since the last step, nearly always */

static void add_step(cgr_ranks *k, const cgr_flight_record *r) {
  cgr_rank_proposal *p = &k->mine.proposal;
  if (r->outcome != CGR_FLIGHT_LAUNCHED || r->reason == CGR_REASON_INTERNAL || p->history == 0)
    return;
  p->steps++;
  p->history = cgr__hash(p->history, &r->key, sizeof r->key);
  p->last = r->key;
}

/* Whether the records reach back to what is counted already. Those of steps without a number may come in between. */
static bool reach_back(const cgr_ranks *k, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (k->records[i].seq > 0)
      return k->records[i].seq <= k->last_seq + 1;
  return false;
}

/* The newest records, as many as hold all that came after `last_seq`, if there are so many. */
static cgr_status read_records(cgr_ranks *k, int32_t *count, bool *complete) {
  for (int32_t capacity = FEW;; capacity = CGR__RANKS_RECORDS) {
    for (int32_t i = 0; i < capacity; i++)
      k->records[i].size = sizeof k->records[i];
    CGR__TRY(cgr_runtime_flight(k->runtime, k->records, capacity, count));
    *complete = *count < capacity;
    *count = *complete ? *count : capacity;
    *complete = *complete || reach_back(k, *count);
    if (*complete || capacity == CGR__RANKS_RECORDS)
      return CGR_OK;
  }
}

static void note_record(cgr_ranks *k, const cgr_flight_record *r) {
  cgr__ranks_lock(k);
  if (r->seq > k->state.launched)
    k->state.launched = r->seq;
  if (r->completed && r->seq > k->state.completed) {
    k->state.completed = r->seq;
    k->state.stalled_ns = 0; /* until the next look */
  }
  cgr__ranks_unlock(k);
}

cgr_status cgr__ranks_look_at_runtime(cgr_ranks *k) {
  int32_t count = 0;
  bool complete = false;
  CGR__TRY(read_records(k, &count, &complete));
  for (int32_t i = 0; i < count; i++)
    note_record(k, &k->records[i]);
  return CGR_OK;
}

void cgr__ranks_begin_history(cgr_ranks *k) {
  k->mine.proposal.steps = 0;
  k->mine.proposal.history = CGR__HASH_BEGIN;
}

cgr_status cgr__ranks_follow(cgr_ranks *k, bool counts) {
  int32_t count = 0;
  bool complete = false;
  CGR__TRY(read_records(k, &count, &complete));
  if (counts && !complete)
    k->mine.proposal.steps = k->mine.proposal.history = 0;
  for (int32_t i = 0; i < count; i++) {
    note_record(k, &k->records[i]);
    if (k->records[i].seq <= k->last_seq)
      continue;
    k->last_seq = k->records[i].seq;
    if (counts)
      add_step(k, &k->records[i]);
  }
  return CGR_OK;
}

#include "profiles/support/by_hand.h"

#include <string.h>

#include "runtime/runtime.h"

void bench_commit(bench_engine *e, const cgr_batch *batch, cgr_step *step) {
  cgr__lane *lane = &e->rt->lane;
  bench_check(cgr_step_prepare(e->rt, batch, step), "cgr_step_prepare");
  if (lane->prepared.num_change_steps > 0)
    bench_fail("%d requests: more changes than a ring slot holds", batch->num_requests);
  uint64_t seq = lane->prepared.seq;
  cgr__ring_slot_header *slot = cgr__ring_slot(&lane->ring, seq), *next = cgr__ring_slot(&lane->ring, seq + 1);
  memcpy(next, slot, (size_t)lane->ring.slot.stride);
  cgr__ring_commit(slot, seq);
  cgr__ring_commit(next, seq + 1);
}

void bench_fill_inbox(bench_engine *e) {
  const cgr__lane *lane = &e->rt->lane;
  const cgr__ring_slot_header *slot = cgr__ring_slot(&lane->ring, lane->prepared.seq);
  size_t bytes = (size_t)(lane->args.slot.edits + (int64_t)e->max_requests * (int64_t)sizeof(cgr__edit));
  bench_check(cgr_copy(e->dev, lane->args.buffers.inbox, slot, bytes, e->stream), "cgr_copy");
  bench_check(cgr_stream_synchronize(e->dev, e->stream), "cgr_copy");
}

void bench_take_back(bench_engine *e, cgr_step *step) {
  bench_check(cgr_step_cancel(e->rt, step), "cgr_step_cancel");
  e->rt->lane.device_batch = 0;
}

void bench_count_on(bench_engine *e) { e->rt->lane.launched = bench_completed(e); }

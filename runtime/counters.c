/* The host's counters, which follow what is on the streams. */
#include "runtime/runtime.h"

void cgr__launched(cgr_runtime *rt, uint64_t seq, cudaStream_t stream, cgr__composition *batch) {
  rt->lane.launched = seq;
  rt->lane.last_stream = stream;
  cgr__compositions_launch(&rt->lane.compositions, seq, batch);
}

void cgr__launched_internal(cgr_runtime *rt, uint64_t seq, cudaStream_t stream) {
  cgr__launched(rt, seq, stream, NULL);
  rt->lane.device_batch = 0;
  cgr__count(rt, CGR_KIND_NONE, CGR_REASON_INTERNAL);
}

/* Most steps are like the one before. */
void cgr__count(cgr_runtime *rt, cgr_graph_kind kind, cgr_reason reason) {
  if (rt->last_kind != (uint8_t)kind || rt->last_reason != (uint8_t)reason) {
    rt->stats.by_reason[rt->last_kind][rt->last_reason] += rt->tally.like_last;
    rt->tally.like_last = 0;
    rt->last_kind = (uint8_t)kind;
    rt->last_reason = (uint8_t)reason;
  }
  rt->tally.like_last++;
}

void cgr__count_all(const cgr_runtime *rt, cgr_stats *stats) {
  *stats = rt->stats;
  stats->real_tokens = rt->tally.real_tokens;
  stats->padded_tokens = rt->tally.padded_tokens;
  stats->bytes_staged = rt->tally.bytes_staged;
  stats->by_reason[rt->last_kind][rt->last_reason] += rt->tally.like_last;
  for (int kind = CGR_KIND_NONE; kind <= CGR_KIND_FULL; kind++)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
      stats->steps += stats->by_reason[kind][reason];
}

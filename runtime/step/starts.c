/* query_start_loc after a step, looked at when the device has a layer that checks. The kernels of a step are chosen for its
 * longest request, and the prologue refuses a longer one. A kernel of the engine's or a backend's that writes query_start_loc
 * later bypasses that check, and tokens are left out without an error. A copy goes ahead of the next step; once that has
 * completed, the copy is looked at. */
#include <stdio.h>

#include "runtime/step/step.h"

size_t cgr__starts_bytes(const cgr__setup *setup) { return ((size_t)setup->config.max_requests + 1) * sizeof(int32_t); }

void cgr__starts_note(cgr_runtime *rt) {
  const cgr__prepared *p = &rt->lane.prepared;
  rt->starts.last =
      (cgr__starts_of){ .seq = p->seq,
                        .num_requests = p->batch.num_requests,
                        .num_tokens = p->batch.num_tokens,
                        .max_query_len = p->choice.key.query_len > 0 ? p->choice.key.query_len : p->batch.num_tokens };
}

cgr_status cgr__starts_copy(cgr_runtime *rt, cudaStream_t stream) {
  cgr__starts *s = &rt->starts;
  if (s->lost || s->copied.seq > 0 || s->last.seq == 0 || s->last.seq != rt->lane.launched || s->last.num_requests == 0)
    return CGR_OK;
  size_t bytes = ((size_t)s->last.num_requests + 1) * sizeof *s->copy;
  int error = rt->dev->ops->copy(rt->dev, s->copy, rt->lane.args.buffers.query_start_loc, bytes, stream);
  s->lost = error != 0;
  CGR__TRY(cgr__runtime_device_error(rt, error, "cgr_step_launch: copying query_start_loc for the layer to check"));
  s->copied = s->last;
  return CGR_OK;
}

/* The first entry that the step cannot have; -1: none. */
static int32_t find_wrong(const int32_t *starts, const cgr__starts_of *of) {
  if (starts[0] != 0)
    return 0;
  for (int32_t i = 1; i <= of->num_requests; i++) {
    int64_t query_len = (int64_t)starts[i] - starts[i - 1];
    if (query_len < 0 || query_len > of->max_query_len)
      return i;
  }
  return starts[of->num_requests] == of->num_tokens ? -1 : of->num_requests;
}

void cgr__starts_look(cgr_runtime *rt) {
  cgr__starts_of *of = &rt->starts.copied;
  if (rt->starts.lost || of->seq == 0 || cgr__ring_completed(&rt->lane.ring) <= of->seq)
    return;
  const int32_t *starts = rt->starts.copy;
  bool kept = rt->lane.launched - of->seq < rt->lane.ring.depth; /* its result, which says what the guards found */
  bool looks = kept && cgr__ring_result(&rt->lane.ring, of->seq)->error == CGR_GUARD_NONE;
  int32_t wrong = looks ? find_wrong(starts, of) : -1;
  if (wrong >= 0) {
    (void)cgr__fail(
        CGR_ERROR_STATE,
        "cgr_step_wait: query_start_loc[%d] was %d after step %llu, expected 0 first, %d last, and at most %d new tokens of a "
        "request: a kernel of the engine's or of a backend has written it",
        wrong, starts[wrong], (unsigned long long)of->seq, of->num_tokens, of->max_query_len);
    (void)cgr__runtime_report(rt, CGR_ERROR_STATE);
  }
  of->seq = 0;
}

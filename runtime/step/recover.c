/* Launches that failed. A number that was committed is used up, whatever happened: some step completes under it. */
#include <stdio.h>

#include "requests/drafts.h"
#include "runtime/record/record.h"
#include "runtime/report/report.h"
#include "runtime/step/step.h"

/* The cause of a failure, while further calls may fail. */
typedef struct cause {
  cgr_status status;
  int device_code;
  char message[400];
} cause;

static cause take_cause(cgr_status status) {
  cause c = { status, cgr_last_device_code(), "" };
  snprintf(c.message, sizeof c.message, "%s", cgr_last_message());
  return c;
}

static cgr_status fail_with(const cause *c) {
  cgr__set_device_code(c->device_code);
  return cgr__fail(c->status, "%s", c->message);
}

/* It is no longer known what the device will do; destroying the runtime waits for the stream. */
static cgr_status die_of(cgr_runtime *rt, const cause *c, cudaStream_t stream, const char *then) {
  char message[sizeof c->message + 80];
  snprintf(message, sizeof message, "%s; %s", c->message, then);
  rt->lane.last_stream = stream;
  return cgr__runtime_die(rt, c->device_code, message);
}

/* An empty step under a number that no step has used. */
static cgr_status use_number_up(cgr_runtime *rt, uint64_t seq, const cause *c) {
  const cgr__enqueue empty = { .key = { .num_tokens = 1, .num_requests = 1 }, .stream = rt->own_stream, .empty = true };
  cgr__enqueue_result result = CGR__ENQUEUE_BROKEN;
  cgr_status status = cgr__order_stream(rt, rt->own_stream);
  if (status == CGR_OK)
    status = cgr__enqueue_step(rt, &empty, &result);
  if (status != CGR_OK)
    return die_of(rt, c, rt->own_stream, "an empty step under its number failed too");
  cgr__launched_internal(rt, seq, rt->own_stream, 0);
  return fail_with(c);
}

/* The step's stream, and that of a planner that a broken step may have left behind: it reads what the next prologue writes. */
static int wait_for_streams(cgr_runtime *rt, cudaStream_t stream) {
  const double deadline = cgr__wait_deadline(rt);
  int error = cgr__wait_idle(rt, stream, deadline);
  return error ? error : cgr__wait_idle(rt, rt->side_stream, deadline);
}

static cgr_status die_waiting(cgr_runtime *rt, const cause *c, cudaStream_t stream, int error) {
  char then[64];
  if (error != CGR__DEVICE_NOT_READY)
    return die_of(rt, c, stream, "waiting for the stream failed too");
  snprintf(then, sizeof then, "after %d ms its stream is still not idle", rt->setup.config.wait_timeout_ms);
  return die_of(rt, c, stream, then);
}

static cgr_status recover_launch(cgr_runtime *rt, const cause *c, cudaStream_t stream, bool nothing_enqueued,
                                 cgr__launch_error *failure) {
  if (cgr__runtime_is_dead(rt))
    return fail_with(c);
  int error = nothing_enqueued ? CGR__DEVICE_OK : wait_for_streams(rt, stream);
  if (error)
    return die_waiting(rt, c, stream, error);
  failure->ran = cgr__ring_completed(&rt->lane.ring) >= failure->seq;
  if (!failure->ran)
    return use_number_up(rt, failure->seq, c);
  if (rt->backend_plans.states && (cgr__backend_plans_clear(rt, stream) || wait_for_streams(rt, stream)))
    return die_of(rt, c, stream, "zeroing the workspaces of backends failed too");
  cgr__launched_internal(rt, failure->seq, stream, 0);
  return fail_with(c);
}

cgr_status cgr__recover(cgr_runtime *rt, cgr_status status, cudaStream_t stream, cgr__launch_error *failure) {
  const cause c = take_cause(status);
  return recover_launch(rt, &c, stream, false, failure);
}

cgr_status cgr__recover_replay(cgr_runtime *rt, int error, cudaStream_t stream, cgr__launch_error *failure) {
  const cause c = take_cause(cgr__runtime_device_error(rt, error, "cgr_step_launch: launching the graph"));
  return recover_launch(rt, &c, stream, cgr__device_did_nothing(error), failure);
}

cgr_status cgr__launch_recorded(cgr_runtime *rt, cudaStream_t stream, cgr__launch_error *failure) {
  const cgr__prepared *p = &rt->lane.prepared;
  const cgr__enqueue enqueue = { .key = p->choice.key,
                                 .stream = stream,
                                 .record = rt->program[p->batch.program].record,
                                 .engine = rt->program[p->batch.program].engine,
                                 .real_tokens = p->batch.num_tokens,
                                 .real_requests = p->batch.num_requests,
                                 .plan_flags = p->plan_flags,
                                 .batch = p->batch.batch_layout,
                                 .entry = p->choice.entry };
  cgr__enqueue_result result;
  cgr__graph_entry *entry = p->choice.entry;
  cgr_status status = entry ? cgr__enqueue_breaks(rt, &enqueue, entry, &result) : cgr__enqueue_step(rt, &enqueue, &result);
  if (result == CGR__ENQUEUE_ABANDONED)
    cgr__launched_internal(rt, failure->seq, stream, 0);
  return result == CGR__ENQUEUE_BROKEN ? cgr__recover(rt, status, stream, failure) : status;
}

cgr_status cgr__refuse_launch(cgr_runtime *rt, cgr_status status) {
  const cgr__prepared *p = &rt->lane.prepared;
  cgr__fail_in("cgr_step_launch", status);
  cgr__failure_keep(rt, 0, &p->choice.key, status);
  rt->failure.ticket = p->ticket;
  rt->statistics.sums.refused_launches++;
  return status;
}

void cgr__abandon(cgr_runtime *rt, cgr_step *step, const cgr__launch_error *failure, uint64_t began, cgr_status status) {
  const cgr__prepared *p = &rt->lane.prepared;
  cgr__fail_in("cgr_step_launch", status);
  cgr__unstage(rt, failure->seq, p->seq);
  rt->read_trash.seq = 0; /* the copy ahead of it may be on no stream that is waited for: `unseen` stays */
  rt->starts.lost = rt->starts.lost || rt->starts.copied.seq > 0;
  cgr__batch_abandon(&rt->rows, &p->batch, failure->seq);
  const bool ran = failure->ran && failure->seq == p->seq && p->batch.set == 0;
  if (ran && p->batch.program > 0)
    cgr__drafts_forget(&rt->rows, p->batch.batch_layout, p->batch.program);
  else if (ran)
    cgr__rows_forget_tokens(&rt->rows, p->batch.batch_layout);
  step->state = CGR_STEP_ABANDONED;
  step->mark.seq = failure->seq;
  cgr__flight_abandoned(rt, began, failure->seq, status);
  cgr__failure_keep(rt, failure->seq, &p->choice.key, status);
  rt->at_return |= CGR__RETURN_DUMPS;
}

/* The hot path: prepare, launch, cancel. On success no allocation, lock, wait, file or environment below this line; what an eager
 * step enqueues is in record/enqueue.c, what a ring slot holds in stage.c, what becomes of a launch that fails in recover.c. */
#include "cgr/names.h"
#include "runtime/report/report.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

/* --------------------------------------------------------------------------------------------------------------- prepare */

/* Which of the reserved fields is set; if none is, plan_flags has a bad bit. */
static cgr_status refuse_reserved(const cgr_batch *b) {
  const struct {
    const char *name, *why;
    int64_t value;
    cgr_status status;
  } fields[] = { { "lane", "(num_lanes is 1)", b->lane, CGR_ERROR_INVALID_ARGUMENT },
                 { "common_prefix", "in this version", b->common_prefix, CGR_ERROR_UNSUPPORTED },
                 { "max_steps", "in this version", b->max_steps, CGR_ERROR_UNSUPPORTED },
                 { "reserved", "in this version", b->reserved, CGR_ERROR_NEWER_STRUCT } };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].value != 0)
      return cgr__fail(fields[i].status, "batch: %s is %lld, expected 0 %s", fields[i].name, (long long)fields[i].value,
                       fields[i].why);
  return cgr__fail(CGR_ERROR_INVALID_ENUM, "batch: plan_flags is 0x%x, expected 0 or CGR_PLAN_FAST (0x%x)", b->plan_flags,
                   (unsigned)CGR_PLAN_FAST);
}

/* The arrays of a whole batch mean nothing for the standing one. */
static cgr_status refuse_arrays(const cgr_batch *b) {
  const struct {
    const char *name;
    const void *value;
  } arrays[] = { { "rows", b->rows }, { "query_lens", b->query_lens }, { "tokens", b->tokens }, { "flags", b->flags } };
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    if (arrays[i].value)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: %s is %p, expected NULL with CGR_BATCH_STANDING (cgr_standing_update)",
                       arrays[i].name, arrays[i].value);
  return CGR_OK;
}

/* A batch of another program than the first: what only that one can have. Or one with a field that is reserved. */
static cgr_status check_rare(const cgr_runtime *rt, const cgr_batch *b) {
  if (b->lane | b->common_prefix | b->max_steps | b->reserved || b->plan_flags & ~(uint32_t)CGR_PLAN_FAST)
    return refuse_reserved(b);
  CGR__TRY(cgr__runtime_check_program(rt, "batch", "program", b->program));
  if (b->num_requests == CGR_BATCH_STANDING)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "batch: num_requests is CGR_BATCH_STANDING in a step of program %d, expected a whole batch in this version",
                     b->program);
  if (b->variant != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "batch: variant is %u in a step of program %d, expected 0 in this version",
                     b->variant, b->program);
  return CGR_OK;
}

/* `*batch` becomes `copy` when the caller's struct is of another size. */
static cgr_status read_batch(const cgr_runtime *rt, const cgr_batch **batch, cgr_batch *copy) {
  const cgr_batch *b = *batch;
  if (!b || b->size != sizeof *b) {
    CGR__TRY(cgr__sized_read("batch", "CGR_BATCH_INIT", b, copy, sizeof *copy));
    *batch = b = copy;
  }
  if (b->lane | b->program | b->common_prefix | b->max_steps | b->reserved || b->plan_flags & ~(uint32_t)CGR_PLAN_FAST)
    return check_rare(rt, b);
  return b->num_requests == CGR_BATCH_STANDING ? refuse_arrays(b) : CGR_OK;
}

/* A batch that was given whole and does not just repeat the last. The members of a prepared step stay as they are. */
static cgr_status validate_batch(cgr_runtime *rt, const cgr_batch *batch, int32_t set, cgr__checked_batch *checked) {
  const cgr_config *c = &rt->setup.config;
  if (rt->lane.prepared.ticket != 0)
    return cgr__batch_look(&rt->rows, &rt->lane.batches, batch, set, c->max_requests, c->max_tokens, checked);
  return cgr__batch_validate(&rt->rows, &rt->lane.batches, batch, set, c->max_requests, c->max_tokens, checked);
}

/* A batch of tokens of a length set after 0. */
static cgr_status validate_other_set(cgr_runtime *rt, const cgr_batch *batch, int32_t set, cgr__checked_batch *checked) {
  if (batch->num_requests == CGR_BATCH_STANDING)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: variant is %u, of length set %d, expected one of set 0 for the standing batch", batch->variant, set);
  return validate_batch(rt, batch, set, checked);
}

/* The engine has no standing batch while the members follow; those of a prepared step must stay. */
static cgr_status validate_standing(cgr_runtime *rt, cgr__checked_batch *checked) {
  if (rt->lane.prepared.ticket == 0 || !rt->lane.batches.members.follows)
    return cgr__standing_validate(&rt->rows, &rt->lane.batches, rt->reorder_threshold, checked);
  *checked = (cgr__checked_batch){ .standing = true };
  return CGR_OK;
}

static cgr_status check_batch(cgr_runtime *rt, const cgr_batch *batch, cgr__checked_batch *checked) {
  if (batch->num_staged != 0)
    CGR__TRY(cgr__staged_check(rt, batch));
  int32_t set = batch->variant == 0 ? 0 : cgr__graphs_set_of(&rt->graphs, batch->variant);
  if (set > 0)
    CGR__TRY(validate_other_set(rt, batch, set, checked));
  else if (batch->num_requests == CGR_BATCH_STANDING)
    CGR__TRY(validate_standing(rt, checked));
  else if (batch->program > 0 || !cgr__follow_repeats(&rt->lane.batches, batch, checked))
    CGR__TRY(validate_batch(rt, batch, 0, checked));
  if (!checked->standing && checked->query_len == 0 && rt->reorder_threshold > 0)
    CGR__TRY(cgr__batch_check_order(checked->batch_layout, rt->reorder_threshold));
  return CGR_OK;
}

/* Validates the batch and chooses its graph. `choice` may be an earlier one. */
static cgr_status check_and_choose(cgr_runtime *rt, const cgr_batch *batch, cgr__checked_batch *checked, cgr__choice *choice) {
  CGR__TRY(check_batch(rt, batch, checked));
  const cgr__batch_shape shape = { checked->num_requests,  checked->num_tokens, checked->query_len,
                                   checked->max_query_len, batch->variant,      batch->program };
  if (!batch->forced_key && cgr__choice_holds(&rt->graphs, &shape, choice))
    return CGR_OK;
  return cgr__graphs_choose(&rt->graphs, &shape, batch->forced_key, choice);
}

static cgr_status choose_key(cgr_runtime *rt, const cgr_batch *batch, cgr_key *key) {
  cgr_batch copy;
  cgr__checked_batch checked;
  cgr__choice choice = { .is_best = false };
  CGR__REQUIRE(key, "cgr_step_choose");
  CGR__TRY(read_batch(rt, &batch, &copy));
  CGR__TRY(check_and_choose(rt, batch, &checked, &choice));
  *key = choice.key;
  return CGR_OK;
}

cgr_status cgr_step_choose(cgr_runtime *runtime, const cgr_batch *batch, cgr_key *key) {
  CGR__ONE_THREAD(runtime, "cgr_step_choose");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_choose"));
  cgr__range_begin(runtime, CGR__RANGE_CHOOSE);
  cgr_status status = choose_key(runtime, batch, key);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_step_choose", status);
}

cgr_status cgr__step_count(cgr_runtime *rt, const cgr_batch *batch, cgr_batch_counts *counts) {
  cgr_batch copy;
  cgr__checked_batch checked;
  CGR__TRY(read_batch(rt, &batch, &copy));
  if (batch->program != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "batch: program is %d, expected 0 in this version: counts have none", batch->program);
  CGR__TRY(check_batch(rt, batch, &checked));
  *counts = (cgr_batch_counts){
    sizeof *counts, checked.num_requests, checked.num_tokens, checked.query_len, checked.max_query_len, batch->variant, 0
  };
  return CGR_OK;
}

/* A step lives between calls, so a shorter one would lose its ticket. */
#define STEP_SIZE (offsetof(cgr_step, ticket) + sizeof(uint64_t))

static bool has_step_size(const cgr_step *step) {
  return step->size >= STEP_SIZE && step->size <= CGR__MAX_STRUCT && step->size % CGR__STRUCT_UNIT == 0;
}

static cgr_status check_step(const cgr_runtime *rt, const cgr_step *step) {
  CGR__REQUIRE(step, "cgr_step_prepare");
  if (!has_step_size(step))
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_step_prepare: step->size is %u, expected %zu: use CGR_STEP_INIT", step->size,
                     sizeof *step);
  if (rt->lane.prepared.ticket != 0)
    return cgr__fail(
        CGR_ERROR_STATE,
        "cgr_step_prepare: a step is prepared already, expected it to be launched or cancelled first (cgr_step_launch, "
        "cgr_step_cancel)");
  return CGR_OK;
}

/* A step that is refused because it lacks its graph has missed that graph. */
static cgr_status refuse_choice(const cgr__prepared *prepared, cgr_status status) {
  if (prepared->choice.missed)
    prepared->choice.missed->misses++;
  return status;
}

/* Only a step without requests runs without a graph and without `record`. */
static cgr_status check_record(const cgr_runtime *rt, const cgr__prepared *prepared) {
  if (rt->program[prepared->batch.program].record || prepared->batch.num_requests == 0)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STATE,
                   "cgr_step_prepare: batch: %d request%s and %d token%s would run eagerly (%s), and there is no `record` to run "
                   "yet, expected cgr_runtime_capture or cgr_runtime_warmup before",
                   prepared->batch.num_requests, cgr__plural(prepared->batch.num_requests), prepared->batch.num_tokens,
                   cgr__plural(prepared->batch.num_tokens), cgr_reason_name(prepared->choice.reason));
}

static cgr_status prepare_step(cgr_runtime *rt, const cgr_batch *batch, cgr_step *step) {
  cgr_batch copy;
  cgr__prepared *prepared = &rt->lane.prepared;
  if (prepared->ticket == 0)
    prepared->choice.missed = NULL; /* of the last step */
  CGR__TRY(check_step(rt, step));
  CGR__TRY(read_batch(rt, &batch, &copy));
  CGR__TRY(cgr__resync_after_losses(rt));
  if (rt->checks)
    CGR__TRY(cgr__read_trash_check(rt, "cgr_step_prepare"));
  cgr_status chosen = check_and_choose(rt, batch, &prepared->batch, &prepared->choice);
  if (chosen == CGR_OK && !prepared->choice.entry)
    chosen = check_record(rt, prepared);
  if (chosen != CGR_OK)
    return refuse_choice(prepared, chosen);
  prepared->plan_flags = (uint8_t)batch->plan_flags;
  cgr_status staged = cgr__stage_step(rt, batch, prepared);
  if (staged != CGR_OK) {
    prepared->choice.missed = NULL; /* the retry counts the miss */
    return staged;
  }
  prepared->batch.batch_layout->uses++;
  prepared->ticket = ++rt->tickets;
  step->state = CGR_STEP_PREPARED;
  step->reason = (int32_t)prepared->choice.reason;
  step->program = prepared->batch.program;
  step->key = prepared->choice.key;
  step->num_requests = prepared->batch.num_requests;
  step->num_tokens = prepared->batch.num_tokens;
  step->bytes_staged = prepared->bytes;
  step->mark = (cgr_mark){ .seq = 0 };
  step->ticket = prepared->ticket;
  return CGR_OK;
}

/* When steps take milliseconds, every cache line misses: they are prefetched all at once. */
static void prefetch_runtime(const cgr_runtime *rt) {
  cgr__lane_prefetch(&rt->lane);
  cgr__rows_prefetch(&rt->rows); /* and what a replay compares of the regions */
  cgr__graphs_prefetch(&rt->graphs, &rt->lane.prepared.choice);
  cgr__device_prefetch(rt->dev);
  cgr__flight_prefetch(&rt->flight);
  cgr__ring_prefetch(&rt->lane.ring, rt->lane.launched + 1, cgr__changes_num_rows(&rt->rows));
}

/* No record of a refusal after which cgr_step_prepare_wait comes back with the same batch. */
static void tell_refused(cgr_runtime *rt, uint64_t began, cgr_status status) {
  bool repeats = (rt->flags & CGR__RUNTIME_REPEATS) && (status == CGR_ERROR_BUSY || status == CGR_ERROR_CHANGES_PENDING);
  cgr__fail_in("cgr_step_prepare", status);
  if (!repeats)
    cgr__flight_refused(rt, began, status);
}

cgr_status cgr_step_prepare(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step) {
  CGR__TRY(cgr__runtime_enter(runtime, "cgr_step_prepare"));
  uint64_t began = cgr__ticks();
  prefetch_runtime(runtime);
  cgr__range_begin(runtime, CGR__RANGE_PREPARE);
  cgr_status status = prepare_step(runtime, batch, step);
  cgr__range_end_prepare(runtime, status);
  if (status == CGR_OK)
    cgr__flight_prepared(runtime, began);
  else
    tell_refused(runtime, began, status);
  cgr__runtime_leave(runtime);
  return status;
}

/* ---------------------------------------------------------------------------------------------------------------- launch */

/* The prepared step itself; its number is committed. */
static cgr_status launch_step(cgr_runtime *rt, cudaStream_t stream, cgr__launch_error *failure) {
  const cgr__prepared *p = &rt->lane.prepared;
  cgr__graph_entry *entry = p->choice.entry;
  cgr__ring_commit(cgr__ring_slot(&rt->lane.ring, p->seq), p->seq);
  failure->seq = p->seq;
  if (entry) {
    int error = cgr__graphs_launch(&rt->graphs, entry, p->batch.num_requests, p->seq, stream);
    if (error)
      return cgr__recover_replay(rt, error, stream, failure);
    if (!entry->breaks)
      return CGR_OK;
  }
  return cgr__launch_recorded(rt, stream, failure);
}

/* What a step is that cannot be launched. Only of a size that has room for its ticket. */
static const char *cause_against(const cgr_runtime *rt, const cgr_step *step) {
  if (step->ticket == 0 || step->state == CGR_STEP_NONE)
    return "has never been prepared";
  if (step->ticket >> CGR__TICKETS_BITS != rt->tickets >> CGR__TICKETS_BITS)
    return "was prepared by another runtime";
  switch (step->state) {
  case CGR_STEP_LAUNCHED:
    return "was launched already";
  case CGR_STEP_CANCELLED:
    return "was cancelled";
  case CGR_STEP_ABANDONED:
    return "was abandoned: its launch failed";
  default:
    return "is a copy of one that was launched or cancelled";
  }
}

static cgr_status refuse_step(const cgr_runtime *rt, const cgr_step *step, const char *function) {
  if (!has_step_size(step))
    return cgr__fail(CGR_ERROR_STATE, "%s: step->size is %u, expected %zu: use CGR_STEP_INIT, then cgr_step_prepare", function,
                     step->size, sizeof *step);
  return cgr__fail(CGR_ERROR_STATE, "%s: step %s (state %s, seq %llu), expected %s", function, cause_against(rt, step),
                   cgr_step_state_name((cgr_step_state)step->state), (unsigned long long)step->mark.seq,
                   rt->lane.prepared.ticket != 0 ? "the prepared one, which is another"
                                                 : "a prepared one: call cgr_step_prepare");
}

static cgr_status check_prepared(cgr_runtime *rt, const cgr_step *step, const char *function) {
  CGR__REQUIRE(step, function);
  if (step->size >= STEP_SIZE && rt->lane.prepared.ticket != 0 && step->ticket == rt->lane.prepared.ticket)
    return CGR_OK;
  return refuse_step(rt, step, function);
}

/* Checks that can refuse the launch while the step stays prepared. */
static cgr_status check_launch(cgr_runtime *rt, cudaStream_t stream) {
  const cgr__prepared *p = &rt->lane.prepared;
  CGR__TRY(cgr__check_stream(rt, "cgr_step_launch", stream));
  if (p->choice.entry)
    CGR__TRY(cgr__graphs_check_fresh(&rt->graphs, p->choice.entry));
  CGR__TRY(cgr__order_stream(rt, stream));
  if (!rt->checks)
    return CGR_OK;
  CGR__TRY(cgr__read_trash_copy(rt, stream));
  return cgr__starts_copy(rt, stream); /* last: once it is enqueued, the step follows on its stream or is abandoned */
}

/* The step is on its stream: the host follows. */
static void commit_step(cgr_runtime *rt, cudaStream_t stream) {
  const cgr__prepared *p = &rt->lane.prepared;
  bool members = cgr__batch_is_of_members(&p->batch);
  cgr__batch_layout *batch = members ? cgr__members_snapshot(&rt->lane.batches) : p->batch.batch_layout;
  cgr__launched(rt, p->seq, stream, batch);
  if (p->batch_staged)
    rt->lane.device_batch = p->seq;
  if (!members && (rt->flags & CGR__RUNTIME_PROGRAMS))
    rt->same_batch = p->seq;
  if (members)
    cgr__members_commit(&rt->rows, &rt->lane.batches, p->seq, rt->lane.device_batch);
  else
    cgr__batch_commit(&rt->rows, &rt->lane.batches, &p->batch, p->seq, rt->lane.device_batch);
  if (rt->rows.has_stops)
    cgr__stops_note(&rt->rows, p->seq);
  if (p->choice.missed)
    p->choice.missed->misses++;
  if (p->choice.turned_down > 0)
    rt->graphs.entry[p->choice.turned_down - 1].turned_down++;
}

static cgr_status launch_prepared(cgr_runtime *rt, cgr_step *step, cudaStream_t stream) {
  cgr__launch_error failure = { 0, false };
  uint64_t began = cgr__flight_launching(rt);
  cgr__prepared *prepared = &rt->lane.prepared;
  cgr_status status = check_launch(rt, stream);
  if (status != CGR_OK)
    return cgr__refuse_launch(rt, status);
  if (prepared->num_change_steps > 0)
    status = cgr__launch_change_steps(rt, stream, &failure);
  if (status == CGR_OK)
    status = launch_step(rt, stream, &failure);
  prepared->ticket = 0;
  prepared->batch.batch_layout->uses--;
  if (status != CGR_OK) {
    cgr__abandon(rt, step, &failure, began, status);
    return status;
  }
  commit_step(rt, stream);
  if (rt->checks)
    cgr__starts_note(rt);
  cgr__flight_launched(rt, began);
  step->state = CGR_STEP_LAUNCHED;
  step->mark.seq = prepared->seq;
  return CGR_OK;
}

cgr_status cgr_step_launch(cgr_runtime *runtime, cgr_step *step, cudaStream_t stream) {
  CGR__TRY(cgr__runtime_enter(runtime, "cgr_step_launch"));
  cgr_status status = check_prepared(runtime, step, "cgr_step_launch");
  if (status == CGR_OK) {
    cgr__range_begin_prepared(runtime, CGR__RANGE_LAUNCH);
    status = launch_prepared(runtime, step, stream);
    cgr__range_end(runtime);
  }
  cgr__runtime_leave(runtime);
  return status;
}

/* ---------------------------------------------------------------------------------------------------------------- cancel */

cgr_status cgr_step_cancel(cgr_runtime *runtime, cgr_step *step) {
  CGR__ONE_THREAD(runtime, "cgr_step_cancel");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_cancel"));
  CGR__TRY(check_prepared(runtime, step, "cgr_step_cancel"));
  cgr__prepared *prepared = &runtime->lane.prepared;
  cgr__range_begin_prepared(runtime, CGR__RANGE_CANCEL);
  cgr__unstage(runtime, runtime->lane.launched + 1, prepared->seq);
  prepared->ticket = 0;
  prepared->batch.batch_layout->uses--;
  cgr__flight_cancelled(runtime);
  step->state = CGR_STEP_CANCELLED;
  cgr__range_end(runtime);
  return CGR_OK;
}

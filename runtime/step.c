/* The hot path: prepare, launch, cancel. No allocation, lock, wait, file or environment below this line; what an eager step
 * enqueues is in record.c, what a slot holds in stage.c. */
#include "runtime/runtime.h"

static cgr_status read_batch(const cgr_batch *batch, cgr_batch *copy) {
  CGR__REQUIRE(batch, "batch");
  if (batch->size < sizeof *batch)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "batch: size is %u, expected %zu: use CGR_BATCH_INIT", batch->size, sizeof *batch);
  *copy = *batch;
  return CGR_OK;
}

/* The caller names kind and padded counts. Only what fits is taken. */
static cgr_status choose_forced(cgr_runtime *rt, const cgr__step_plan *plan, cgr__choice *choice) {
  const cgr_key *key = plan->batch->forced_key;
  const cgr_config *c = &rt->setup.config;
  if (key->kind != CGR_KIND_NONE && key->kind != CGR_KIND_FULL && key->kind != CGR_KIND_PIECEWISE)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "batch: forced_key.kind is %d, expected a cgr_graph_kind", key->kind);
  if (key->num_requests < plan->num_requests || key->num_tokens < plan->num_tokens || key->num_requests > c->max_requests ||
      key->num_tokens > c->max_tokens || key->num_requests < 1 || key->num_tokens < 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: forced_key has %d requests and %d tokens, expected %d .. %d and %d .. %d", key->num_requests,
                     key->num_tokens, plan->num_requests, c->max_requests, plan->num_tokens, c->max_tokens);
  if (key->program != 0 || key->lane != 0 || key->variant != plan->batch->variant ||
      (key->query_len != 0 && plan->num_requests > 0 && key->query_len != plan->query_len))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: forced_key has program %d, lane %d, query_len %d, variant %u, expected 0, 0, 0 or %d, and %u",
                     key->program, key->lane, key->query_len, key->variant, plan->query_len, plan->batch->variant);
  choice->key = *key;
  choice->entry = NULL;
  choice->reason = CGR_REASON_FORCED;
  if (key->kind == CGR_KIND_NONE)
    return CGR_OK;
  choice->entry = cgr__graphs_find(&rt->graphs, key);
  if (!choice->entry || choice->entry->state != CGR__GRAPH_READY)
    return cgr__fail(CGR_ERROR_STATE, "batch: forced_key (kind %d, %d requests) has no graph, expected a captured key", key->kind,
                     key->num_requests);
  if (plan->num_requests > 0 && plan->query_len != key->query_len)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.query_len is %d, expected the batch's %d", key->query_len,
                     plan->query_len);
  return CGR_OK;
}

static cgr_status check_fresh(const cgr_runtime *rt, const cgr__graph_entry *entry) {
  if (entry && cgr__graph_is_stale(entry, rt->regions.epoch, rt->layout.hash))
    return cgr__fail(CGR_ERROR_STALE_GRAPH,
                     "step: the graph of %d requests was captured at region epoch %llu, expected %llu: capture "
                     "again",
                     entry->key.num_requests, (unsigned long long)entry->epoch, (unsigned long long)rt->regions.epoch);
  return CGR_OK;
}

static cgr_status choose(cgr_runtime *rt, const cgr__step_plan *plan, cgr__choice *choice) {
  if (plan->batch->forced_key)
    CGR__TRY(choose_forced(rt, plan, choice));
  else
    cgr__graphs_choose(&rt->graphs, plan->num_requests, plan->num_tokens, plan->query_len, plan->batch->variant, choice);
  cgr_reason reason = choice->reason;
  if (rt->setup.config.strict && plan->num_requests > 0 &&
      (reason == CGR_REASON_ABOVE_LADDER || reason == CGR_REASON_NOT_CAPTURED || reason == CGR_REASON_CAPTURE_FAILED))
    return cgr__fail(CGR_ERROR_FALLBACK,
                     "step: a batch of %d requests would run eagerly (%s), expected a captured graph (strict)",
                     plan->num_requests, cgr_reason_name(reason));
  return check_fresh(rt, choice->entry);
}

static cgr_status validate(cgr_runtime *rt, const cgr_batch *batch, cgr_batch *copy, cgr__step_plan *plan) {
  CGR__TRY(read_batch(batch, copy));
  const cgr_config *c = &rt->setup.config;
  return cgr__batch_validate(&rt->rows, copy, c->max_requests, c->max_tokens, plan);
}

cgr_status cgr_step_choose(cgr_runtime *runtime, const cgr_batch *batch, cgr_key *key) {
  cgr_batch copy;
  cgr__step_plan plan;
  cgr__choice choice;
  CGR__TRY(cgr__runtime_check(runtime, "cgr_step_choose"));
  CGR__REQUIRE(key, "cgr_step_choose");
  CGR__TRY(validate(runtime, batch, &copy, &plan));
  CGR__TRY(choose(runtime, &plan, &choice));
  *key = choice.key;
  return CGR_OK;
}

static cgr_status prepare(cgr_runtime *rt, const cgr_batch *batch, cgr_step *step) {
  cgr_batch copy;
  cgr__prepared *prepared = &rt->prepared;
  CGR__REQUIRE(step, "cgr_step_prepare");
  if (step->size < sizeof *step)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_step_prepare: step->size is %u, expected %zu: use CGR_STEP_INIT", step->size,
                     sizeof *step);
  if (rt->prepared.ticket != 0)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_step_prepare: a step is prepared already, expected it to be launched or cancelled first");
  cgr__see_losses(rt);
  CGR__TRY(validate(rt, batch, &copy, &prepared->plan));
  CGR__TRY(choose(rt, &prepared->plan, &prepared->choice));
  CGR__TRY(cgr__stage_step(rt, &prepared->plan, prepared, &step->bytes_staged));
  prepared->plan.batch = NULL;
  prepared->ticket = ++rt->tickets;
  step->reason = prepared->choice.reason;
  step->key = prepared->choice.key;
  step->num_requests = prepared->plan.num_requests;
  step->num_tokens = prepared->plan.num_tokens;
  step->seq = 0;
  step->ticket = prepared->ticket;
  return CGR_OK;
}

cgr_status cgr_step_prepare(cgr_runtime *runtime, const cgr_batch *batch, cgr_step *step) {
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_prepare"));
  cgr_status status = prepare(runtime, batch, step);
  runtime->stats.refused += status != CGR_OK;
  return status;
}

/* The device will run the step: from here on it has happened. */
static void commit(cgr_runtime *rt, uint64_t seq, cudaStream_t stream) {
  rt->launched = seq;
  rt->last_stream = stream;
  rt->has_last_stream = 1;
}

static void count(cgr_runtime *rt, const cgr_key *key, cgr_reason reason, int32_t num_requests, int32_t num_tokens) {
  rt->stats.steps++;
  rt->stats.by_reason[key->kind][reason]++;
  if (num_requests == 0)
    return;
  rt->stats.real_tokens += (uint64_t)num_tokens;
  rt->stats.padded_tokens += (uint64_t)key->num_tokens;
}

/* Steps without requests that carry changes ahead of the prepared one. Each takes a number of its own. */
static cgr_status launch_applies(cgr_runtime *rt, cudaStream_t stream, enum cgr__progress *progress) {
  const cgr_key key = { CGR_KIND_NONE, 0, 0, 1, 1, 0, 0 };
  for (int32_t i = 0; i < rt->prepared.num_applies; i++) {
    CGR__TRY(cgr__record_step(rt, stream, &key, 0, NULL, NULL, progress));
    commit(rt, rt->launched + 1, stream);
    rt->device_batch = 0;
    count(rt, &key, CGR_REASON_INTERNAL, 0, 0);
  }
  *progress = CGR__PROGRESS_NONE;
  return CGR_OK;
}

static cgr_status launch(cgr_runtime *rt, cudaStream_t stream, enum cgr__progress *progress) {
  const cgr__choice *choice = &rt->prepared.choice;
  CGR__TRY(check_fresh(rt, choice->entry));
  if (!choice->entry && !rt->record && rt->prepared.plan.num_requests > 0)
    return cgr__fail(CGR_ERROR_STATE, "cgr_step_launch: an eager step needs a record function, expected cgr_runtime_capture or "
                                      "cgr_runtime_warmup before");
  CGR__TRY(cgr__order_stream(rt, stream));
  CGR__TRY(launch_applies(rt, stream, progress));
  if (!choice->entry)
    return cgr__record_step(rt, stream, &choice->key, 0, rt->record, rt->engine, progress);
  *progress = CGR__PROGRESS_BEGUN; /* should it fail, it may have taken effect */
  int error = rt->dev->ops->exec_launch(rt->dev, choice->entry->exec, stream);
  if (error)
    return cgr__runtime_device_error(rt, error, "cgr_step_launch: launching the graph");
  choice->entry->replays++;
  choice->entry->real_requests += (uint64_t)rt->prepared.plan.num_requests;
  return CGR_OK;
}

static cgr_status check_prepared(cgr_runtime *rt, const cgr_step *step, const char *function) {
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__REQUIRE(step, function);
  if (rt->prepared.ticket == 0 || step->ticket != rt->prepared.ticket)
    return cgr__fail(CGR_ERROR_STATE, "%s: step has ticket %llu, expected the prepared one's (%llu; 0: none is prepared)",
                     function, (unsigned long long)step->ticket, (unsigned long long)rt->prepared.ticket);
  return CGR_OK;
}

cgr_status cgr_step_launch(cgr_runtime *runtime, cgr_step *step, cudaStream_t stream) {
  CGR__TRY(check_prepared(runtime, step, "cgr_step_launch"));
  cgr__prepared *prepared = &runtime->prepared;
  int eager = !prepared->choice.entry || prepared->num_applies > 0;
  CGR__TRY(cgr__check_stream(runtime, "cgr_step_launch", stream, eager)); /* the step stays prepared */
  enum cgr__progress progress = CGR__PROGRESS_NONE;
  cgr_status status = launch(runtime, stream, &progress);
  prepared->ticket = 0;
  if (status != CGR_OK)
    return cgr__launch_failed(runtime, status, progress, stream);
  uint64_t seq = prepared->slot->seq;
  commit(runtime, seq, stream);
  if (prepared->batch_staged)
    runtime->device_batch = seq;
  if (runtime->rows.num_dirty)
    cgr__rows_commit(&runtime->rows, prepared->cursor);
  cgr__batch_commit(&runtime->rows, &prepared->plan, runtime->batch_rows, runtime->batch_lens, runtime->batch_flags, seq);
  count(runtime, &prepared->choice.key, prepared->choice.reason, prepared->plan.num_requests, prepared->plan.num_tokens);
  runtime->stats.bytes_staged += step->bytes_staged;
  step->seq = seq;
  return CGR_OK;
}

cgr_status cgr_step_cancel(cgr_runtime *runtime, cgr_step *step) {
  CGR__TRY(check_prepared(runtime, step, "cgr_step_cancel"));
  runtime->prepared.ticket = 0;
  runtime->stats.cancelled++;
  return CGR_OK;
}

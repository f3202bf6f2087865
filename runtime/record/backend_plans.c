/* Backends that plan: their states by key, plans on the host, plans on the device, workspaces. */
#include <string.h>

#include "requests/stops.h"
#include "runtime/record/record.h"
#include "runtime/report/ranges.h"

static const cgr__planning *planning_of(const cgr_runtime *rt, int32_t backend) { return &rt->setup.planning[backend]; }

void cgr__backend_plans_init(cgr_runtime *rt, unsigned char *memory) {
  cgr__backend_plans *plans = &rt->backend_plans;
  const cgr__backend_plans_layout layout = cgr__setup_backend_plans_layout(&rt->setup);
  const size_t requests = (size_t)rt->setup.config.max_requests;
  if (layout.bytes == 0)
    return;
  memory += -(uintptr_t)memory % CGR__PLAN_ALIGNMENT;
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++) {
    const cgr_backend *b = &rt->setup.backends[i];
    if (!planning_of(rt, i)->in_use)
      continue;
    plans->has_first |= b->plan && (b->flags & CGR_BACKEND_PLANS_FIRST);
    plans->has_after |= b->plan && !(b->flags & CGR_BACKEND_PLANS_FIRST);
    rt->flags |= b->plan_host ? CGR__RUNTIME_PLANS_ON_HOST : 0;
  }
  plans->num_keys = layout.num_keys;
  plans->nowhere = memory;
  plans->states = (void **)(void *)(memory + layout.states);
  plans->rows = (int32_t *)(void *)(memory + layout.step);
  plans->seq_lens = plans->rows + requests;
  plans->query_start_loc = plans->seq_lens + requests;
  plans->has_states = (bool *)(memory + layout.made);
}

/* Whether a layer of the program names it; for eager steps, NULL, whether any does. */
static bool is_used_by(const cgr_runtime *rt, int32_t backend, const cgr_key *key) {
  const cgr__planning *planning = planning_of(rt, backend);
  return planning->in_use && (!key || planning->programs >> key->program & 1);
}

/* ---------------------------------------------------------------------------------------------------------------- states */

static int32_t entry_index(const cgr_runtime *rt, const cgr__graph_entry *entry) {
  return entry ? (int32_t)(entry - rt->graphs.entry) : rt->backend_plans.num_keys;
}

static void **states_of(const cgr_runtime *rt, int32_t index) {
  return rt->backend_plans.states + (size_t)index * (1 + CGR__MAX_BACKENDS);
}

void *const *cgr__backend_plans_states(const cgr_runtime *rt, const cgr__graph_entry *entry) {
  return rt->backend_plans.states ? states_of(rt, entry_index(rt, entry)) : NULL;
}

/* The device memory of a declared buffer; NULL: there is none. */
static void *declared_memory(const cgr_runtime *rt, int32_t declared) {
  return declared < 0 ? NULL : rt->arena + rt->layout.declared[declared].offset;
}

/* `key` NULL: for eager steps. */
static cgr_plan_key plan_key(const cgr_runtime *rt, int32_t backend, const cgr_key *key) {
  const cgr_config *c = &rt->setup.config;
  cgr_plan_key k = CGR_PLAN_KEY_INIT;
  k.kind = key ? key->kind : CGR_KIND_NONE;
  k.num_requests = key ? key->num_requests : c->max_requests;
  k.num_tokens = key ? key->num_tokens : c->max_tokens;
  k.query_len = key ? key->query_len : 0;
  k.variant = key ? key->variant : 0;
  k.program = key ? key->program : 0;
  k.device = rt->dev;
  k.workspace = declared_memory(rt, planning_of(rt, backend)->workspace);
  k.workspace_bytes = rt->setup.backends[backend].workspace_bytes;
  k.plan = declared_memory(rt, planning_of(rt, backend)->plan);
  k.plan_bytes = rt->setup.backends[backend].plan_bytes;
  return k;
}

static cgr_status fail_of(const cgr_runtime *rt, int32_t backend, const char *function, cgr_status status, uint64_t before) {
  const cgr__running running = { rt->setup.backend_names[backend], function, -1 };
  return cgr__fail_returned(CGR_ERROR_CALLBACK, cgr__title_of(&running).text, status, before);
}

static cgr_plan_step empty_step(const cgr_runtime *rt) {
  cgr_plan_step step = CGR_PLAN_STEP_INIT;
  step.rows = rt->backend_plans.rows;
  step.query_start_loc = rt->backend_plans.query_start_loc;
  step.seq_lens = rt->backend_plans.seq_lens;
  return step;
}

/* The largest step that the key serves: tokens spread evenly, lengths that no row and no query exceeds. */
static void fill_largest(cgr_runtime *rt, const cgr_plan_key *key, cgr_plan_step *step) {
  cgr__backend_plans *plans = &rt->backend_plans;
  const int32_t set = cgr__graphs_set_of(&rt->graphs, key->variant), longest = rt->setup.limits.max_lens[set];
  int64_t tokens = (int64_t)key->num_requests * longest;
  tokens = tokens < key->num_tokens ? tokens : key->num_tokens;
  plans->query_start_loc[0] = 0;
  for (int32_t i = 0; i < key->num_requests; i++) {
    plans->rows[i] = i;
    plans->seq_lens[i] = longest;
    plans->query_start_loc[i + 1] = (int32_t)(tokens * (i + 1) / key->num_requests);
  }
  step->flags = CGR_PLAN_CAPTURE;
  step->length_set = set;
  step->variant = key->variant;
  step->program = key->program;
  step->num_requests = step->padded_requests = key->num_requests;
  step->num_tokens = (int32_t)tokens;
  step->padded_tokens = key->num_tokens;
  step->max_query_len = key->query_len > 0 ? key->query_len : key->num_tokens;
  step->max_query_len = step->max_query_len < longest ? step->max_query_len : longest;
  step->max_seq_len = longest;
  step->num_decodes = step->num_decode_tokens = -1;
  step->max_decode_query_len = step->max_prefill_query_len = step->max_decode_seq_len = step->max_prefill_seq_len = -1;
}

/* `create` and `destroy` run inside the runtime, as `record` does, but in no step: they may destroy the backend's own streams. */
static bool enter_backend(cgr_runtime *rt) {
  bool was_inside = rt->recording;
  rt->recording = true;
  return was_inside;
}

static void leave_backend(cgr_runtime *rt, bool was_inside) { rt->recording = was_inside; }

static cgr_status plan_on_host(cgr_runtime *rt, int32_t backend, void *state, cgr_plan_step *step) {
  const cgr_backend *b = &rt->setup.backends[backend];
  uint64_t before = cgr__failures();
  step->plan_bytes = b->plan_bytes;
  bool was_inside = cgr__step_enter(rt);
  cgr_status status = b->plan_host(b->context, state, step);
  cgr__step_leave(rt, was_inside);
  return status == CGR_OK ? CGR_OK : fail_of(rt, backend, "plan_host", status, before);
}

static void destroy_one(cgr_runtime *rt, int32_t backend, const cgr_key *key, void **state) {
  const cgr_backend *b = &rt->setup.backends[backend];
  bool was_inside = enter_backend(rt);
  if (is_used_by(rt, backend, key) && b->create && b->destroy)
    b->destroy(b->context, *state);
  leave_backend(rt, was_inside);
  *state = NULL;
}

static cgr_status create_one(cgr_runtime *rt, int32_t backend, const cgr_key *key, void **state) {
  const cgr_backend *b = &rt->setup.backends[backend];
  const cgr_plan_key k = plan_key(rt, backend, key);
  uint64_t before = cgr__failures();
  *state = NULL;
  bool was_inside = enter_backend(rt);
  cgr_status status = b->create ? b->create(b->context, &k, state) : CGR_OK;
  leave_backend(rt, was_inside);
  if (status != CGR_OK) {
    *state = NULL;
    return fail_of(rt, backend, "create", status, before);
  }
  if (!b->plan_host)
    return CGR_OK;
  cgr_plan_step step = empty_step(rt);
  fill_largest(rt, &k, &step);
  step.plan = rt->backend_plans.nowhere;
  status = plan_on_host(rt, backend, *state, &step);
  if (status != CGR_OK)
    destroy_one(rt, backend, key, state);
  return status;
}

static void destroy_some(cgr_runtime *rt, int32_t index, int32_t count) {
  void **states = states_of(rt, index);
  const cgr_key *key = index < rt->backend_plans.num_keys ? &rt->graphs.entry[index].key : NULL;
  for (int32_t i = 0; i < count; i++)
    destroy_one(rt, i, key, &states[i]);
  rt->backend_plans.has_states[index] = false;
}

cgr_status cgr__backend_plans_create(cgr_runtime *rt, const cgr__graph_entry *entry) {
  if (!rt->backend_plans.states)
    return CGR_OK;
  int32_t index = entry_index(rt, entry);
  if (rt->backend_plans.has_states[index])
    return CGR_OK;
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++) {
    if (!is_used_by(rt, i, entry ? &entry->key : NULL))
      continue;
    cgr_status status = create_one(rt, i, entry ? &entry->key : NULL, &states_of(rt, index)[i]);
    if (status != CGR_OK) {
      destroy_some(rt, index, i);
      return status;
    }
  }
  rt->backend_plans.has_states[index] = true;
  return CGR_OK;
}

void cgr__backend_plans_destroy(cgr_runtime *rt, const cgr__graph_entry *entry) {
  if (rt->backend_plans.states && rt->backend_plans.has_states[entry_index(rt, entry)])
    destroy_some(rt, entry_index(rt, entry), 1 + rt->setup.config.num_backends);
}

bool cgr__backend_plans_has_states(const cgr_runtime *rt) {
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++)
    if (planning_of(rt, i)->in_use && rt->setup.backends[i].create && rt->setup.backends[i].destroy)
      return true;
  return false;
}

void cgr__backend_plans_sweep(cgr_runtime *rt) {
  for (int32_t i = 0; i < rt->graphs.count; i++)
    if (!rt->graphs.entry[i].exec)
      cgr__backend_plans_destroy(rt, &rt->graphs.entry[i]);
}

void cgr__backend_plans_destroy_all(cgr_runtime *rt) {
  for (int32_t i = 0; i < rt->graphs.count; i++)
    cgr__backend_plans_destroy(rt, &rt->graphs.entry[i]);
  cgr__backend_plans_destroy(rt, NULL);
}

/* ----------------------------------------------------------------------------------------------------------- on the host */

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* The longest lengths of the decodes and of the prefills; num_decodes is known, or -1. */
static void fill_maxima(const cgr__batch_layout *batch, cgr_plan_step *step) {
  int32_t query_len[2] = { 0, 0 }, seq_len[2] = { 0, 0 }; /* by whether it is a prefill */
  for (int32_t i = 0; i < step->num_requests; i++) {
    query_len[i >= step->num_decodes] = larger(query_len[i >= step->num_decodes], batch->query_lens[i]);
    seq_len[i >= step->num_decodes] = larger(seq_len[i >= step->num_decodes], step->seq_lens[i]);
  }
  bool split = step->num_decodes >= 0;
  step->max_decode_query_len = split ? query_len[0] : -1;
  step->max_prefill_query_len = split ? query_len[1] : -1;
  step->max_decode_seq_len = split ? seq_len[0] : -1;
  step->max_prefill_seq_len = split ? seq_len[1] : -1;
}

/* Whether the device may find the row shorter in the program of the batch, by guesses that it has rejected, or ended. A request
 * of a draft that follows has fewer tokens than its query_len. */
static bool length_is_bound(const cgr__rows *rows, const cgr__checked_batch *batch, int32_t row) {
  const int32_t slack = batch->program == 0 ? rows->row[row].slack : rows->draft[batch->program][row].slack;
  return (batch->set == 0 && slack > 0) || cgr__row_may_have_ended(rows, row);
}

/* The step as the host knows it, padded to the key's counts. */
static void fill_step(cgr_runtime *rt, const cgr__prepared *prepared, cgr_plan_step *step) {
  cgr__backend_plans *plans = &rt->backend_plans;
  const cgr__batch_layout *batch = prepared->batch.batch_layout;
  const cgr_key *key = &prepared->choice.key;
  int32_t n = prepared->batch.num_requests, tokens = 0;
  bool bounds = false;
  for (int32_t i = 0; i < n; i++) {
    bounds |= length_is_bound(&rt->rows, &prepared->batch, batch->rows[i]);
    plans->rows[i] = batch->rows[i];
    plans->query_start_loc[i] = tokens;
    tokens += batch->query_lens[i];
  }
  plans->query_start_loc[n] = tokens;
  for (int32_t i = n; i < key->num_requests; i++) {
    plans->rows[i] = rt->setup.config.max_rows;
    plans->query_start_loc[i + 1] = tokens;
    plans->seq_lens[i] = 0;
  }
  step->flags = (n == 0 ? CGR_PLAN_FAST : prepared->plan_flags) | (bounds ? CGR_PLAN_BOUNDS : 0u);
  step->num_requests = n;
  step->num_tokens = tokens;
  step->length_set = prepared->batch.set;
  step->variant = key->variant;
  step->program = key->program;
  step->padded_requests = key->num_requests;
  step->padded_tokens = key->num_tokens;
  step->max_seq_len = cgr__fill_seq_lens(rt, batch, key->program, prepared->batch.set, plans->seq_lens);
  step->max_query_len = cgr__longest_query(batch);
  step->num_decodes = cgr__count_decodes(rt, batch, &step->num_decode_tokens);
  fill_maxima(batch, step);
}

/* A row's length is not exact yet, and this backend plans with exact ones. */
static cgr_status refuse_bounds(cgr_runtime *rt, const cgr__checked_batch *checked, int32_t backend) {
  const cgr__batch_layout *batch = checked->batch_layout;
  int32_t i = 0;
  while (!length_is_bound(&rt->rows, checked, batch->rows[i]))
    i++;
  cgr__members_sync(&rt->rows, batch->rows[i]);
  const cgr__row *row = &rt->rows.row[batch->rows[i]];
  if (row->slack == 0)
    return cgr__fail(
        CGR_ERROR_BUSY,
        "cgr_step_prepare: backend %s: plan_host takes exact lengths (it lacks CGR_BACKEND_PLANS_BOUNDS), and row %d of %d "
        "tokens may have ended, expected step %llu to be completed (cgr_step_wait)",
        rt->setup.backend_names[backend], batch->rows[i], row->computed, (unsigned long long)row->last_seq);
  return cgr__fail(
      CGR_ERROR_BUSY,
      "cgr_step_prepare: backend %s: plan_host takes exact lengths (it lacks CGR_BACKEND_PLANS_BOUNDS), and row %d has "
      "%d to %d tokens while its guesses have no result, expected step %llu to be completed (cgr_step_wait)",
      rt->setup.backend_names[backend], batch->rows[i], cgr__row_least_computed(row), row->computed,
      (unsigned long long)row->last_seq);
}

/* Lengths of the step are bounds: whether all who plan take them. */
static cgr_status check_bounds(cgr_runtime *rt, const cgr__prepared *prepared) {
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++) {
    const cgr_backend *b = &rt->setup.backends[i];
    if (is_used_by(rt, i, &prepared->choice.key) && b->plan_host && !(b->flags & CGR_BACKEND_PLANS_BOUNDS))
      return refuse_bounds(rt, &prepared->batch, i);
  }
  return CGR_OK;
}

cgr_status cgr__backend_plans_on_host(cgr_runtime *rt, const cgr__prepared *prepared, cgr__ring_slot_header *slot,
                                      uint64_t *staged, uint64_t *bytes) {
  cgr_plan_step step = empty_step(rt);
  const cgr__graph_entry *entry = prepared->choice.entry;
  if (!entry && !rt->program[prepared->batch.program].record) /* what this step has is not read: there are no states yet */
    return CGR_OK;
  void *const *states = cgr__backend_plans_states(rt, entry);
  fill_step(rt, prepared, &step);
  if (step.flags & CGR_PLAN_BOUNDS)
    CGR__TRY(check_bounds(rt, prepared));
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++) {
    if (!is_used_by(rt, i, &prepared->choice.key) || !rt->setup.backends[i].plan_host)
      continue;
    int32_t declared = planning_of(rt, i)->plan;
    step.plan = (unsigned char *)slot + rt->layout.declared[declared].slot_offset;
    CGR__TRY(plan_on_host(rt, i, states[i], &step));
    *staged |= (uint64_t)1 << declared;
    *bytes += rt->setup.backends[i].plan_bytes;
  }
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------- on the device */

static cgr_status enqueue_one(cgr__step_recorder *rec, int32_t backend, uint32_t flags) {
  const cgr_backend *b = &rec->runtime->setup.backends[backend];
  uint64_t before = cgr__failures();
  rec->backend = backend + 1;
  rec->refused = CGR_OK;
  rec->base.running = (cgr__running){ b->name, "plan", -1 };
  cgr__recorder_open(&rec->base);
  cgr__label_begin_plan(rec->runtime);
  cgr_status status = b->plan(b->context, rec->states[backend], &rec->base, flags, 0);
  cgr__label_end_plan(rec->runtime);
  cgr_status latched = cgr__recorder_close(&rec->base, "plan");
  rec->base.running.backend = NULL;
  rec->backend = 0;
  CGR__TRY(latched);
  if (status == CGR_OK || status == rec->refused)
    return status;
  return fail_of(rec->runtime, backend, "plan", status, before);
}

static cgr_status enqueue_all(cgr__step_recorder *rec) {
  cgr_runtime *rt = rec->runtime;
  uint32_t flags = rec->base.capturing ? CGR_PLAN_CAPTURE : rec->base.real_requests == 0 ? CGR_PLAN_FAST : rec->plan_flags;
  for (int32_t i = 0; i <= rt->setup.config.num_backends; i++) {
    const cgr_backend *b = &rt->setup.backends[i];
    if (is_used_by(rt, i, &rec->base.key) && b->plan && !(b->flags & CGR_BACKEND_PLANS_FIRST) != rec->plans_first)
      CGR__TRY(enqueue_one(rec, i, flags));
  }
  return CGR_OK;
}

cgr_status cgr__backend_plans_enqueue(cgr__step_recorder *recorder, bool first) {
  recorder->plans_first = first;
  recorder->base.in_call = recorder->base.in_plan = true;
  bool was_inside = cgr__step_enter(recorder->runtime);
  cgr_status status = enqueue_all(recorder);
  cgr__step_leave(recorder->runtime, was_inside);
  recorder->plans_first = recorder->base.in_call = recorder->base.in_plan = false;
  return status;
}

int cgr__backend_plans_clear(cgr_runtime *rt, cudaStream_t stream) {
  int error = 0;
  for (int32_t i = 0; i <= rt->setup.config.num_backends && !error; i++) {
    int32_t declared = planning_of(rt, i)->workspace;
    if (declared >= 0)
      error =
          rt->dev->ops->fill(rt->dev, declared_memory(rt, declared), 0, 1, (size_t)rt->setup.backends[i].workspace_bytes, stream);
  }
  return error;
}

void cgr__backend_plans_find(cgr_recorder *recorder, cgr_record_info *info) {
  cgr__step_recorder *rec = recorder->owner;
  if (rec->backend == 0)
    return;
  rec->plan_key = plan_key(rec->runtime, rec->backend - 1, rec->of_eager ? NULL : &recorder->key);
  info->plan_key = &rec->plan_key;
  info->plan_state = rec->states[rec->backend - 1];
}

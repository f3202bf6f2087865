/* Capture and warm-up: cold. */
#include <stdio.h>

#include "cgr/names.h"
#include "runtime/capture/capture.h"
#include "runtime/record/record.h"
#include "runtime/report/report.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

#define MAX_FAILURES 3 /* captures of a key, one after the other, that steps miss */
#define WIDE 32        /* from this width on a launch costs the host more (profiles/fork_cost) */

/* ------------------------------------------------------------------------------------------------------------- arguments */

static cgr_status check_key(cgr_runtime *rt, const char *function, int32_t program, int32_t i, const cgr_key *key) {
  char what[80], kind[40];
  snprintf(what, sizeof what, "%s: capture.keys[%d]", function, i);
  snprintf(kind, sizeof kind, "capture.keys[%d].kind", i);
  CGR__TRY(cgr__check_choice(function, kind, &cgr__graph_kinds, key->kind));
  CGR__TRY(cgr__key_check_unused(what, key));
  if (key->program != program)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s.program is %d, expected %d, that of the capture", what, key->program,
                     program);
  if (cgr__graphs_find(&rt->graphs, key))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "%s (%s, %d request%s, %d token%s, query length %d, variant %u) is no key of this runtime, expected one that "
                   "cgr_runtime_graph_stats lists",
                   what, cgr_graph_kind_name((cgr_graph_kind)key->kind), key->num_requests, cgr__plural(key->num_requests),
                   key->num_tokens, cgr__plural(key->num_tokens), key->query_len, key->variant);
}

static cgr_status check_keys(cgr_runtime *rt, const char *function, const cgr_capture *c) {
  if (c->num_keys < 0 || (c->num_keys == 0 && c->keys))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: capture.num_keys is %d, expected %s", function, c->num_keys,
                     c->keys ? "1 or more with keys; leave keys NULL for all of them" : "0 or more");
  if (c->num_keys > 0 && !c->keys)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: capture.keys is NULL, expected %d key%s", function, c->num_keys,
                     cgr__plural(c->num_keys));
  for (int32_t i = 0; i < c->num_keys; i++)
    CGR__TRY(check_key(rt, function, c->program, i, &c->keys[i]));
  return CGR_OK;
}

static cgr_status check_capture(cgr_runtime *rt, const char *function, const cgr_capture *c) {
  CGR__TRY(cgr__runtime_check_program(rt, function, "capture.program", c->program));
  if (!c->record)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: capture.record is NULL, expected a function", function);
  CGR__TRY(cgr__check_choice(function, "capture.flags", &cgr__capture_flags, c->flags));
  if (!(c->max_ms >= 0.0 && c->max_ms < 1e300))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: capture.max_ms is %g, expected 0 or more", function, c->max_ms);
  return check_keys(rt, function, c);
}

/* Replays and eager steps come from one model: graphs of another are stale, and keys that failed are tried again. */
static void keep_record(cgr_runtime *rt, const cgr_capture *c) {
  cgr__program *program = &rt->program[c->program];
  if (program->record && (program->record != c->record || program->engine != c->engine)) {
    cgr__holders_lock();
    cgr__regions_touch(&rt->regions);
    cgr__holders_unlock();
    for (int32_t i = 0; i < rt->graphs.count; i++)
      rt->graphs.entry[i].failures = 0;
  }
  program->record = c->record;
  program->engine = c->engine;
}

cgr_status cgr__capture_start(cgr_runtime *rt, const char *function, const cgr_capture *capture, cgr_capture *c) {
  char what[64];
  snprintf(what, sizeof what, "%s: capture", function);
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__TRY(cgr__sized_read(what, "CGR_CAPTURE_INIT", capture, c, sizeof *c));
  CGR__TRY(check_capture(rt, function, c));
  CGR__TRY(cgr__runtime_check_unprepared(rt, function));
  if (rt->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(rt, function, rt->lane.launched, rt->setup.config.wait_timeout_ms));
  CGR__TRY(cgr__backend_plans_create(rt, NULL));
  keep_record(rt, c);
  cgr__captured_inputs_refresh(rt);
  return CGR_OK;
}

/* Entries are variant by variant; captures go size by size over all variants of the program, so that every variant has its large
 * graphs before any has its small ones. */
static int32_t by_size(const cgr__graphs *graphs, int32_t program, int32_t i) {
  const cgr__program_keys keys = cgr__graphs_of_program(graphs, program);
  int32_t captured = 0;
  for (int32_t v = 0; v < graphs->num_step_variants; v++)
    captured += graphs->variant[v].program == program && graphs->variant[v].base >= 0;
  i = keys.count - 1 - i;
  return keys.first + i % captured * (keys.count / captured) + i / captured;
}

int32_t cgr__capture_count(const cgr_runtime *rt, const cgr_capture *c) {
  return c->num_keys > 0 ? c->num_keys : cgr__graphs_of_program(&rt->graphs, c->program).count;
}

cgr__graph_entry *cgr__capture_entry(cgr_runtime *rt, const cgr_capture *c, int32_t i) {
  cgr__graphs *graphs = &rt->graphs;
  return c->num_keys > 0 ? cgr__graphs_find(graphs, &c->keys[i]) : &graphs->entry[by_size(graphs, c->program, i)];
}

/* --------------------------------------------------------------------------------------------------------------- capture */

cgr_status cgr__capture_body_of(void *context, cgr__open_capture *capture) {
  const struct cgr__capture_context *c = context;
  if (c->created != CGR_OK)
    return c->created; /* with its message */
  const cgr__enqueue enqueue = { .key = *c->key,
                                 .entry = cgr__graphs_find(&c->runtime->graphs, c->key),
                                 .stream = capture->stream,
                                 .capture = capture,
                                 .record = c->runtime->program[c->key->program].record,
                                 .engine = c->runtime->program[c->key->program].engine,
                                 .real_tokens = -1,
                                 .real_requests = -1 };
  cgr__enqueue_result result;
  cgr_status status = cgr__enqueue_step(c->runtime, &enqueue, &result);
  capture->entry->calls = c->runtime->recorder.base.calls;
  return status;
}

/* "the full graph for 8 requests, 8 tokens". */
typedef struct graph_title {
  char text[80];
} graph_title;

static graph_title title_of(const cgr_key *key) {
  graph_title title;
  snprintf(title.text, sizeof title.text, "the %s graph for %d request%s, %d token%s",
           cgr_graph_kind_name((cgr_graph_kind)key->kind), key->num_requests, cgr__plural(key->num_requests), key->num_tokens,
           cgr__plural(key->num_tokens));
  return title;
}

static void warn_of_width(const cgr_runtime *rt, const cgr__graph_entry *entry) {
  char text[256];
  if (entry->width < WIDE)
    return;
  snprintf(text, sizeof text, "%s has up to %lld nodes side by side: fewer streams would make its launches cheaper",
           title_of(&entry->key).text, (long long)entry->width);
  cgr__log(rt, CGR_LOG_WARNING, text);
}

static void warn_of_labels(const cgr_runtime *rt, const cgr__graph_entry *entry) {
  char text[256];
  if (!rt->graphs.labels || (entry->labels && !entry->labels->error))
    return;
  snprintf(text, sizeof text, "%s: the graph has no labels: %s", cgr__key_name(&entry->key).text,
           entry->labels ? cgr__device_error_name(entry->labels->error) : "no memory");
  cgr__log(rt, CGR_LOG_WARNING, text);
}

static cgr_status capture_entry(cgr_runtime *rt, const char *function, cgr__graph_entry *entry) {
  struct cgr__capture_context context = { rt, &entry->key, CGR_OK };
  int device_error = 0;
  cgr__graph_drop(&rt->graphs, entry); /* before the states that it uses */
  cgr__backend_plans_destroy(rt, entry);
  context.created = cgr__backend_plans_create(rt, entry);
  rt->flags |= rt->graphs.labels ? CGR__RUNTIME_LABELS : 0;
  cgr_status status = cgr__graphs_capture(&rt->graphs, entry, rt->own_stream, cgr__capture_body_of, &context, &device_error);
  if (device_error) {
    char what[64];
    snprintf(what, sizeof what, "%s: capturing", function);
    status = cgr__runtime_device_error(rt, device_error, what);
  }
  rt->flags &= (uint8_t)~CGR__RUNTIME_LABELS;
  if (status == CGR_OK) {
    warn_of_width(rt, entry);
    warn_of_labels(rt, entry);
    return CGR_OK;
  }
  if (cgr__runtime_is_dead(rt))
    cgr__failure_keep(rt, 0, &entry->key, CGR_ERROR_DEAD);
  cgr__backend_plans_destroy(rt, entry);
  char text[480];
  snprintf(text, sizeof text, "capture of %s, query length %d, variant %u failed: %s", title_of(&entry->key).text,
           entry->key.query_len, entry->key.variant, cgr_last_message());
  cgr__log(rt, CGR_LOG_WARNING, text);
  return cgr__fail(status, "%s", text);
}

cgr_status cgr__capture_entry_now(cgr_runtime *rt, const char *function, cgr__graph_entry *entry) {
  cgr__range_begin_key(rt, &entry->key);
  cgr_status status = capture_entry(rt, function, entry);
  cgr__range_end(rt);
  return status;
}

/* Whether a call that captures this list captures the entry. */
bool cgr__capture_wants(const cgr_runtime *rt, const cgr_capture *c, const cgr__graph_entry *entry) {
  if (cgr__graph_state_of(&rt->graphs, entry) == CGR_GRAPH_READY)
    return false;
  return !(c->flags & CGR_CAPTURE_MISSED) || (entry->misses > 0 && entry->failures < MAX_FAILURES);
}

/* What a call for missed keys leaves out for good. */
static bool is_given_up(const cgr_capture *c, const cgr__graph_entry *entry) {
  return (c->flags & CGR_CAPTURE_MISSED) && entry->misses > 0 && entry->failures >= MAX_FAILURES;
}

static void tell_given_up(const cgr_runtime *rt, int32_t count) {
  char text[160];
  if (count == 0)
    return;
  snprintf(text, sizeof text, "cgr_runtime_capture: %d key%s that steps miss %s left out after %d failures in a row", count,
           cgr__plural(count), count == 1 ? "is" : "are", MAX_FAILURES);
  cgr__log(rt, CGR_LOG_INFO, text);
}

static void tell_budget(const cgr_runtime *rt, const cgr_capture *c, const cgr__budget *budget) {
  char text[200];
  if (budget->left == 0)
    return;
  snprintf(text, sizeof text, "cgr_runtime_capture: the budget (max_ms %g, max_bytes %llu) has left %d key%s without a graph",
           c->max_ms, (unsigned long long)c->max_bytes, budget->left, cgr__plural(budget->left));
  cgr__log(rt, CGR_LOG_INFO, text);
}

void cgr__capture_tell_lost(cgr_runtime *rt) {
  char text[400], others[40];
  for (int32_t i = 0; i < rt->graphs.num_lost; i++) {
    const cgr__lost_call *lost = &rt->graphs.lost[i];
    snprintf(others, sizeof others, " and %d other graph%s", lost->num_keys - 1, cgr__plural(lost->num_keys - 1));
    snprintf(
        text, sizeof text,
        "cgr_record_call: call %d of `record` (function %#llx) added no node to the graph %s%s, so no replay of it does what "
        "the function does. If it works on the host, ask for CGR_MODE_PIECEWISE or set attention_support to "
        "CGR_SUPPORT_NEVER: a break makes the call at every replay",
        lost->number, (unsigned long long)(uintptr_t)lost->function, cgr__key_name(&lost->key).text,
        lost->num_keys > 1 ? others : "");
    cgr__log(rt, CGR_LOG_WARNING, text);
  }
  rt->graphs.num_lost = 0;
}

static void tell_estimated(const cgr_runtime *rt, const cgr__budget *budget) {
  char text[200];
  if (budget->estimated == 0)
    return;
  snprintf(
      text, sizeof text,
      "cgr_runtime_capture: the device memory of %d graph%s is estimated: what was measured is far from what their nodes take, "
      "because others use the device",
      budget->estimated, cgr__plural(budget->estimated));
  cgr__log(rt, CGR_LOG_INFO, text);
}

static cgr_status capture_list(cgr_runtime *runtime, const cgr_capture *capture) {
  cgr_capture c;
  cgr__budget budget;
  cgr_status first = CGR_OK;
  char message[480] = "";
  int32_t given_up = 0;
  CGR__TRY(cgr__capture_start(runtime, "cgr_runtime_capture", capture, &c));
  cgr__graphs *graphs = &runtime->graphs;
  cgr__budget_begin(&budget, c.max_ms, c.max_bytes);
  for (int32_t i = 0; i < cgr__capture_count(runtime, &c) && !cgr__runtime_is_dead(runtime); i++) {
    cgr__graph_entry *entry = cgr__capture_entry(runtime, &c, i);
    given_up += is_given_up(&c, entry);
    if (!cgr__capture_wants(runtime, &c, entry) || !cgr__budget_allows(&budget, graphs, entry))
      continue;
    cgr_status status = cgr__capture_entry_now(runtime, "cgr_runtime_capture", entry);
    if (status == CGR_OK)
      cgr__budget_charge(&budget, graphs, entry);
    if (status == CGR_OK || first != CGR_OK)
      continue;
    first = status;
    snprintf(message, sizeof message, "%s", cgr_last_message());
  }
  cgr__backend_plans_sweep(runtime); /* a graph that has cost more than the budget is gone */
  if (cgr__runtime_is_dead(runtime))
    return cgr__runtime_check(runtime, "cgr_runtime_capture");
  tell_budget(runtime, &c, &budget);
  tell_estimated(runtime, &budget);
  tell_given_up(runtime, given_up);
  cgr__capture_tell_lost(runtime);
  cgr__tell_gaps(runtime);
  return first == CGR_OK ? CGR_OK : cgr__fail(first, "%s", message);
}

cgr_status cgr_runtime_capture(cgr_runtime *runtime, const cgr_capture *capture) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_capture");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_capture"));
  cgr__range_begin(runtime, CGR__RANGE_CAPTURE);
  cgr_status status = capture_list(runtime, capture);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_runtime_capture", status);
}

static cgr_status release_graphs(cgr_runtime *runtime, uint64_t keep_bytes, uint64_t *released) {
  CGR__TRY(cgr__runtime_check_unprepared(runtime, "cgr_runtime_release_graphs"));
  if (cgr__backend_plans_has_states(runtime) && runtime->lane.launched > 0) /* states are destroyed when no step uses them */
    CGR__TRY(cgr__wait_completed(runtime, "cgr_runtime_release_graphs", runtime->lane.launched,
                                 runtime->setup.config.wait_timeout_ms));
  int64_t before = runtime->graphs.device_bytes;
  CGR__TRY(cgr__graphs_drop_oldest(&runtime->graphs, keep_bytes));
  cgr__backend_plans_sweep(runtime);
  if (released)
    *released = (uint64_t)(before - runtime->graphs.device_bytes);
  return CGR_OK;
}

cgr_status cgr_runtime_release_graphs(cgr_runtime *runtime, uint64_t keep_bytes, uint64_t *released) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_release_graphs");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_release_graphs"));
  cgr__range_begin(runtime, CGR__RANGE_RELEASE);
  cgr_status status = release_graphs(runtime, keep_bytes, released);
  cgr__range_end(runtime);
  return status;
}

cgr_status cgr_runtime_enable_graphs(cgr_runtime *runtime, int32_t enabled) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_enable_graphs");
  CGR__TRY(cgr__runtime_check(runtime, "cgr_runtime_enable_graphs"));
  runtime->graphs.disabled = enabled == 0;
  return CGR_OK;
}

static cgr_status warm_up(cgr_runtime *runtime, const cgr_capture *capture) {
  cgr_capture c;
  CGR__TRY(cgr__capture_start(runtime, "cgr_runtime_warmup", capture, &c));
  for (int32_t i = 0; i < cgr__capture_count(runtime, &c); i++) {
    cgr__enqueue enqueue = { .key = cgr__capture_entry(runtime, &c, i)->key,
                             .stream = runtime->own_stream,
                             .record = c.record,
                             .engine = c.engine,
                             .warms_up = true };
    enqueue.key.kind = CGR_KIND_NONE;
    CGR__TRY(cgr__launch_internal(runtime, "cgr_runtime_warmup", &enqueue, false));
    CGR__TRY(cgr__wait_completed(runtime, "cgr_runtime_warmup", runtime->lane.launched, runtime->setup.config.wait_timeout_ms));
  }
  return CGR_OK;
}

cgr_status cgr_runtime_warmup(cgr_runtime *runtime, const cgr_capture *capture) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_warmup");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_warmup"));
  cgr__range_begin(runtime, CGR__RANGE_WARMUP);
  cgr_status status = warm_up(runtime, capture);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_runtime_warmup", status);
}

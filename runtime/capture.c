/* Capture and warm-up: cold. */
#include <stdio.h>

#include "runtime/runtime.h"

static cgr_status refuse_reserved(const cgr_capture *c, const char *function) {
  const char *name = c->program != 0               ? "program"
                     : c->keys || c->num_keys != 0 ? "keys"
                     : c->max_ms != 0.0            ? "max_ms"
                                                   : "max_bytes";
  return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: capture.%s is set, expected 0 in this version", function, name);
}

/* Reads the struct, waits for the steps in flight, and keeps `record`. */
static cgr_status start(cgr_runtime *rt, const char *function, const cgr_capture *capture) {
  cgr_capture c;
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__TRY(cgr__sized_read("capture", capture, &c, sizeof c));
  if (c.program != 0 || c.keys || c.num_keys != 0 || c.max_ms != 0.0 || c.max_bytes != 0)
    return refuse_reserved(&c, function);
  CGR__TRY(cgr__check_unused("capture: reserved", c.reserved));
  if (!c.record)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: capture.record is NULL, expected a function", function);
  if (rt->lane.prepared.ticket != 0)
    return cgr__fail(CGR_ERROR_STATE, "%s: a step is prepared, expected it to be launched or cancelled first", function);
  if (rt->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(rt, function, rt->lane.launched, rt->setup.config.wait_timeout_ms));
  if (rt->record && (rt->record != c.record || rt->engine != c.engine))
    cgr__regions_touch(&rt->regions); /* the graphs are of another model */
  rt->record = c.record;
  rt->engine = c.engine;
  return CGR_OK;
}

struct body_context {
  cgr_runtime *runtime;
  const cgr_key *key;
};

static cgr_status capture_body(void *context, cgr__open_capture *capture) {
  const struct body_context *c = context;
  const cgr__enqueue enqueue = { .key = *c->key,
                                 .stream = capture->stream,
                                 .capture = capture,
                                 .record = c->runtime->record,
                                 .engine = c->runtime->engine,
                                 .real_tokens = -1,
                                 .real_requests = -1 };
  cgr__outcome outcome;
  return cgr__enqueue_step(c->runtime, &enqueue, &outcome);
}

static cgr_status capture_one(cgr_runtime *rt, cgr__graph_entry *entry) {
  struct body_context context = { rt, &entry->key };
  int device_error = 0;
  cgr_status status = cgr__graphs_capture(&rt->graphs, entry, rt->own_stream, capture_body, &context, &device_error);
  if (status == CGR_OK)
    return CGR_OK;
  if (device_error)
    status = cgr__runtime_device_error(rt, device_error, "cgr_runtime_capture: capturing");
  char text[480];
  snprintf(text, sizeof text, "capture of the %s graph for %d requests, %d tokens, query length %d, variant %u failed: %s",
           cgr_graph_kind_name((cgr_graph_kind)entry->key.kind), entry->key.num_requests, entry->key.num_tokens,
           entry->key.query_len, entry->key.variant, cgr_last_message());
  if (rt->setup.config.log)
    rt->setup.config.log(rt->setup.config.log_context, CGR_LOG_WARNING, text);
  return cgr__fail(status, "%s", text);
}

/* Entries lie variant by variant; captures go size by size over all variants, so that every variant has its large graphs before
 * any has its small ones. */
static int32_t by_size(const cgr__graphs *graphs, int32_t i) {
  int32_t captured = 0;
  for (int32_t v = 0; v < graphs->num_variants; v++)
    captured += graphs->variant[v].base >= 0;
  return i % captured * (graphs->count / captured) + i / captured;
}

cgr_status cgr_runtime_capture(cgr_runtime *runtime, const cgr_capture *capture) {
  CGR__TRY(start(runtime, "cgr_runtime_capture", capture));
  cgr__graphs *graphs = &runtime->graphs;
  cgr_status first = CGR_OK;
  char message[480] = "";
  for (int32_t i = graphs->count - 1; i >= 0 && !runtime->dead; i--) {
    cgr__graph_entry *entry = &graphs->entry[by_size(graphs, i)];
    if (cgr__graph_state_of(graphs, entry) == CGR_GRAPH_READY)
      continue;
    cgr_status status = capture_one(runtime, entry);
    if (status == CGR_OK || first != CGR_OK)
      continue;
    first = status;
    snprintf(message, sizeof message, "%s", cgr_last_message());
  }
  if (runtime->dead)
    return cgr__runtime_check(runtime, "cgr_runtime_capture");
  return first == CGR_OK ? CGR_OK : cgr__fail(first, "%s", message);
}

cgr_status cgr_runtime_enable_graphs(cgr_runtime *runtime, int32_t enabled) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_runtime_enable_graphs"));
  runtime->graphs.disabled = enabled == 0;
  return CGR_OK;
}

cgr_status cgr_runtime_warmup(cgr_runtime *runtime, const cgr_capture *capture) {
  CGR__TRY(start(runtime, "cgr_runtime_warmup", capture));
  for (int32_t i = runtime->graphs.count - 1; i >= 0; i--) {
    cgr__enqueue enqueue = {
      .key = runtime->graphs.entry[i].key, .stream = runtime->own_stream, .record = runtime->record, .engine = runtime->engine
    };
    enqueue.key.kind = CGR_KIND_NONE;
    CGR__TRY(cgr__launch_internal(runtime, &enqueue, false));
    CGR__TRY(cgr__wait_completed(runtime, "cgr_runtime_warmup", runtime->lane.launched, runtime->setup.config.wait_timeout_ms));
  }
  return CGR_OK;
}

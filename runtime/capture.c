/* Capture and warm-up: cold. */
#include <stdio.h>

#include "runtime/runtime.h"

struct capture_context {
  cgr_runtime *runtime;
  cgr__graph_entry *entry;
};

static cgr_status capture_body(void *context, cudaStream_t stream) {
  struct capture_context *c = context;
  enum cgr__progress progress;
  c->entry->records++;
  return cgr__record_step(c->runtime, stream, &c->entry->key, 1, c->runtime->record, c->runtime->engine, &progress);
}

static cgr_status start(cgr_runtime *rt, const char *function, cgr_record_function record, void *engine) {
  CGR__TRY(cgr__runtime_check_outside(rt, function));
  CGR__REQUIRE(record, function);
  if (rt->prepared.ticket != 0)
    return cgr__fail(CGR_ERROR_STATE, "%s: a step is prepared, expected it to be launched or cancelled first", function);
  rt->record = record;
  rt->engine = engine;
  return rt->launched > 0 ? cgr__wait_completed(rt, rt->launched) : CGR_OK;
}

static cgr_status capture_one(cgr_runtime *rt, cgr__graph_entry *entry) {
  struct capture_context context = { rt, entry };
  int device_error = 0;
  entry->epoch = rt->regions.epoch; /* before: a region that `record` moves is one that the graph may hold as it was */
  entry->layout_hash = rt->layout.hash;
  cgr_status status = cgr__graphs_capture(&rt->graphs, entry, rt->dev, rt->capture_stream, capture_body, &context, &device_error);
  if (status == CGR_OK)
    return CGR_OK;
  if (device_error)
    status = cgr__runtime_device_error(rt, device_error, "cgr_runtime_capture: capturing");
  char text[320];
  snprintf(text, sizeof text, "capture of the graph for %d requests failed: %s", entry->key.num_requests, cgr_last_message());
  if (rt->setup.config.log)
    rt->setup.config.log(rt->setup.config.log_context, CGR_LOG_WARNING, text);
  return cgr__fail(status, "%s", text);
}

cgr_status cgr_runtime_capture(cgr_runtime *runtime, cgr_record_function record, void *engine) {
  CGR__TRY(start(runtime, "cgr_runtime_capture", record, engine));
  cgr__graphs *graphs = &runtime->graphs;
  cgr_status first = CGR_OK;
  char message[320] = "";
  for (int32_t i = graphs->count - 1; i >= 0 && !runtime->dead; i--) {
    cgr__graph_entry *entry = &graphs->entry[i];
    if (entry->state == CGR__GRAPH_READY && !cgr__graph_is_stale(entry, runtime->regions.epoch, runtime->layout.hash))
      continue;
    cgr_status status = capture_one(runtime, entry);
    if (status != CGR_OK && first == CGR_OK) {
      first = status;
      snprintf(message, sizeof message, "%s", cgr_last_message());
    }
  }
  runtime->stats.captures_failed = graphs->failures;
  return first == CGR_OK ? CGR_OK : cgr__fail(first, "%s", message);
}

cgr_status cgr_runtime_warmup(cgr_runtime *runtime, cgr_record_function record, void *engine) {
  CGR__TRY(start(runtime, "cgr_runtime_warmup", record, engine));
  for (int32_t i = runtime->graphs.count - 1; i >= 0; i--) {
    cgr_key key = runtime->graphs.entry[i].key;
    key.kind = CGR_KIND_NONE;
    CGR__TRY(cgr__launch_internal(runtime, &key, record, engine, 0, runtime->capture_stream));
    CGR__TRY(cgr__wait_completed(runtime, runtime->launched));
  }
  return CGR_OK;
}

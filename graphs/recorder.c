#include "graphs/recorder.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/sized.h"
#include "base/status.h"
#include "graphs/labels.h"

cgr_status cgr__recorder_check(const cgr_recorder *recorder, const char *function) {
  CGR__REQUIRE(recorder, function);
  return recorder->open
             ? CGR_OK
             : cgr__fail(CGR_ERROR_STATE,
                         "%s: recorder is used after `record` or the call has returned, expected a call inside of it", function);
}

cgr__title cgr__title_of(const cgr__running *running) {
  cgr__title title;
  char layer[24] = "";
  if (running->layer >= 0)
    snprintf(layer, sizeof layer, ", layer %d", running->layer);
  snprintf(title.text, sizeof title.text, "backend %.31s%s: %s", running->backend, layer, running->function);
  return title;
}

static cgr_status latch_failure(cgr_recorder *recorder, cgr_status status, bool named) {
  bool in_backend = recorder->running.backend != NULL;
  if (status == CGR_OK || recorder->failed != CGR_OK)
    return status;
  recorder->failed = status;
  recorder->named = named || in_backend;
  if (in_backend && !named) /* now, while it is known whose call that was: the function may ignore the failure */
    snprintf(recorder->message, sizeof recorder->message, "%s: a call failed with %s: %s", cgr__title_of(&recorder->running).text,
             cgr_status_name(status), cgr_last_message());
  else
    snprintf(recorder->message, sizeof recorder->message, "%s", cgr_last_message());
  return status;
}

cgr_status cgr__recorder_latch(cgr_recorder *recorder, cgr_status status) { return latch_failure(recorder, status, false); }

cgr_status cgr__recorder_latch_named(cgr_recorder *recorder, cgr_status status) { return latch_failure(recorder, status, true); }

void cgr__recorder_open(cgr_recorder *recorder) { recorder->open = true; }

/* Those that the engine's function has left. */
static void end_ranges(cgr_recorder *recorder, const char *where) {
  const int32_t left = recorder->ranges;
  if (left == 0)
    return;
  for (; recorder->ranges > 0; recorder->ranges--)
    cgr__recorder_range_end(recorder);
  (void)cgr__recorder_latch(recorder,
                            cgr__fail(CGR_ERROR_STATE, "%s: %d range%s not ended, expected cgr_record_range_end for each", where,
                                      left, left == 1 ? " is" : "s are"));
}

cgr_status cgr__recorder_close(cgr_recorder *recorder, const char *where) {
  end_ranges(recorder, where);
  recorder->open = false;
  if (recorder->failed == CGR_OK)
    return CGR_OK;
  if (recorder->named)
    return cgr__fail(CGR_ERROR_CALLBACK, "%s", recorder->message);
  return cgr__fail(CGR_ERROR_CALLBACK, "%s: a call failed with %s: %s", where, cgr_status_name(recorder->failed),
                   recorder->message);
}

cgr_status cgr__recorder_run(cgr_recorder *recorder, cgr_record_function record, void *engine) {
  uint64_t before = cgr__failures();
  cgr__recorder_open(recorder);
  cgr_status status = record(recorder, engine);
  CGR__TRY(cgr__recorder_close(recorder, "record"));
  return status == CGR_OK ? CGR_OK : cgr__fail_returned(CGR_ERROR_CALLBACK, "record: the engine's function", status, before);
}

static cgr_status get_info(cgr_recorder *recorder, cgr_record_info *info) {
  CGR__TRY(cgr__sized_check("cgr_record_get_info: info", "CGR_RECORD_INFO_INIT", info));
  cgr_record_info full = CGR_RECORD_INFO_INIT;
  if (recorder->find_bounds)
    recorder->find_bounds(recorder);
  recorder->find_bounds = NULL;
  full.capturing = recorder->capturing;
  full.stream = recorder->stream;
  full.key = recorder->key;
  full.num_tokens = recorder->key.num_tokens;
  full.num_requests = recorder->key.num_requests;
  full.real_tokens = recorder->real_tokens;
  full.real_requests = recorder->real_requests;
  full.max_seq_len = recorder->max_seq_len;
  full.max_query_len = recorder->max_query_len;
  full.num_decodes = recorder->num_decodes;
  full.num_decode_tokens = recorder->num_decode_tokens;
  if (recorder->find_plan)
    recorder->find_plan(recorder, &full);
  cgr__sized_write(info, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_get_info"));
  return cgr__recorder_latch(recorder, get_info(recorder, info));
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

void cgr__recorder_watch_begin(const cgr_recorder *recorder, cgr__nvtx_range range) {
  if (recorder->watched & CGR__WATCH_RANGES)
    cgr__nvtx_begin(range);
  if (recorder->watched & CGR__WATCH_LABELS)
    cgr__label_begin(recorder->capture->labelling, (cgr__node_label){ (int16_t)range, -1, -1 });
}

void cgr__recorder_watch_end(const cgr_recorder *recorder) {
  if (recorder->watched & CGR__WATCH_LABELS)
    cgr__label_end(recorder->capture->labelling);
  if (recorder->watched & CGR__WATCH_RANGES)
    cgr__nvtx_end();
}

cgr_status cgr__recorder_call(cgr_recorder *recorder, cgr_call_function function, const void *args) {
  uint64_t before = cgr__failures();
  bool nested = recorder->in_call;
  recorder->in_call = true;
  cgr_status status = function(recorder, args);
  recorder->in_call = nested;
  if (status != CGR_OK && cgr__failures() == before)
    return cgr__fail_returned(status, "cgr_record_call: the engine's function", status, before);
  return status;
}

cgr_status cgr__recorder_replay_call(cgr_recorder *recorder, cgr_call_function function, const void *args) {
  cgr__recorder_open(recorder);
  cgr__recorder_latch(recorder, cgr__recorder_call(recorder, function, args));
  return cgr__recorder_close(recorder, "step");
}

cgr_status cgr__recorder_break(cgr_recorder *recorder, const cgr__call *calls, int32_t count, const char *function) {
  CGR__TRY(recorder->before_break(recorder));
  cgr__recorder_range_begin(recorder, CGR__RANGE_BREAK);
  cgr_status status = cgr__capture_break(recorder->pieces, calls, count, function);
  cgr__recorder_range_end(recorder);
  return status;
}

static cgr_status keep_or_make_call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size) {
  _Alignas(16) unsigned char copy[CGR__MAX_CALL_ARGS];
  if (recorder->in_plan)
    return cgr__fail(CGR_ERROR_STATE, "cgr_record_call: called inside a backend's plan, expected a call outside of it");
  CGR__REQUIRE(function, "cgr_record_call");
  if (args_size > sizeof copy)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_call: args_size is %zu, expected at most %zu", args_size,
                     sizeof copy);
  if (args_size > 0)
    CGR__REQUIRE(args, "cgr_record_call");
  int32_t number = recorder->calls.count[CGR__RECORDED_CALL]++;
  if (recorder->pieces && !recorder->in_call)
    return cgr__recorder_break(recorder, &(cgr__call){ NULL, function, args, args_size }, 1, "cgr_record_call");
  if (args_size > 0)
    memcpy(copy, args, args_size);
  cgr__recorder_range_begin(recorder, CGR__RANGE_CALL);
  int64_t nodes = recorder->capture ? cgr__capture_count_nodes(recorder->capture) : -1;
  cgr_status status = cgr__recorder_call(recorder, function, copy);
  if (nodes >= 0 && status == CGR_OK && cgr__capture_count_nodes(recorder->capture) == nodes)
    cgr__capture_lose_call(recorder->capture, function, number);
  cgr__recorder_range_end(recorder);
  return status;
}

cgr_status cgr_record_call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_call"));
  return cgr__recorder_latch(recorder, keep_or_make_call(recorder, function, args, args_size));
}

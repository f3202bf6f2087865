#include "graphs/recorder.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/sized.h"
#include "base/status.h"

cgr_status cgr__recorder_check(const cgr_recorder *recorder, const char *function) {
  CGR__REQUIRE(recorder, function);
  return recorder->open
             ? CGR_OK
             : cgr__fail(CGR_ERROR_STATE,
                         "%s: recorder is used after `record` or the call has returned, expected a call inside of it", function);
}

cgr_status cgr__recorder_latch(cgr_recorder *recorder, cgr_status status) {
  if (status == CGR_OK || recorder->failed != CGR_OK)
    return status;
  recorder->failed = status;
  snprintf(recorder->message, sizeof recorder->message, "%s", cgr_last_message());
  return status;
}

/* What a call through the recorder failed with. */
static cgr_status fail_latched(const cgr_recorder *recorder, const char *where) {
  return recorder->failed == CGR_OK ? CGR_OK
                                    : cgr__fail(CGR_ERROR_CALLBACK, "%s: a call failed with %s: %s", where,
                                                cgr_status_name(recorder->failed), recorder->message);
}

cgr_status cgr__recorder_run(cgr_recorder *recorder, const char *what, cgr_record_function record, void *engine) {
  uint64_t before = cgr__failures();
  recorder->open = true;
  cgr_status status = record(recorder, engine);
  recorder->open = false;
  CGR__TRY(fail_latched(recorder, what));
  if (status == CGR_OK)
    return CGR_OK;
  if (cgr__failures() == before)
    return cgr__fail(CGR_ERROR_CALLBACK, "%s: the engine's function returned %s (%d), expected CGR_OK", what,
                     cgr_status_name(status), (int)status);
  return cgr__fail(CGR_ERROR_CALLBACK, "%s: the engine's function returned %s (%d): %s", what, cgr_status_name(status),
                   (int)status, cgr_last_message());
}

static cgr_status get_info(cgr_recorder *recorder, cgr_record_info *info) {
  CGR__TRY(cgr__sized_check("cgr_record_get_info: info", info));
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
  cgr__sized_write(info, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_get_info"));
  return cgr__recorder_latch(recorder, get_info(recorder, info));
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

cgr_status cgr__recorder_call(cgr_recorder *recorder, cgr_call_function function, const void *args) {
  uint64_t before = cgr__failures();
  bool nested = recorder->in_call;
  recorder->in_call = true;
  cgr_status status = function(recorder, args);
  recorder->in_call = nested;
  if (status != CGR_OK && cgr__failures() == before)
    return cgr__fail(status, "cgr_record_call: the engine's function returned %s (%d), expected CGR_OK", cgr_status_name(status),
                     (int)status);
  return status;
}

cgr_status cgr__recorder_replay_call(cgr_recorder *recorder, cgr_call_function function, const void *args) {
  recorder->open = true;
  cgr__recorder_latch(recorder, cgr__recorder_call(recorder, function, args));
  recorder->open = false;
  return fail_latched(recorder, "step");
}

cgr_status cgr__recorder_break(cgr_recorder *recorder, const cgr__call *calls, int32_t count, const char *function) {
  CGR__TRY(recorder->before_break(recorder));
  cgr__recorder_range_begin(recorder, CGR__RANGE_BREAK);
  cgr_status status = cgr__capture_break(recorder->pieces, calls, count, function);
  cgr__recorder_range_end(recorder);
  return status;
}

static cgr_status call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size) {
  _Alignas(16) unsigned char copy[CGR__MAX_CALL_ARGS];
  if (recorder->in_plan)
    return cgr__fail(CGR_ERROR_STATE, "cgr_record_call: called inside a backend's plan, expected a call outside of it");
  CGR__REQUIRE(function, "cgr_record_call");
  if (args_size > sizeof copy)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_call: args_size is %zu, expected at most %zu", args_size,
                     sizeof copy);
  if (args_size > 0)
    CGR__REQUIRE(args, "cgr_record_call");
  if (recorder->pieces && !recorder->in_call)
    return cgr__recorder_break(recorder, &(cgr__call){ NULL, function, args, args_size }, 1, "cgr_record_call");
  if (args_size > 0)
    memcpy(copy, args, args_size);
  cgr__recorder_range_begin(recorder, CGR__RANGE_CALL);
  cgr_status status = cgr__recorder_call(recorder, function, copy);
  cgr__recorder_range_end(recorder);
  return status;
}

cgr_status cgr_record_call(cgr_recorder *recorder, cgr_call_function function, const void *args, size_t args_size) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_call"));
  return cgr__recorder_latch(recorder, call(recorder, function, args, args_size));
}

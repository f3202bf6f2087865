/* Enqueues one step through the engine's `record`: the same code for eager steps, warm-up and capture. */
#include "runtime/runtime.h"

static cgr_status device_status(cgr_recorder *rec, int error, const char *what) {
  return error ? cgr__runtime_device_error(rec->runtime, error, what) : CGR_OK;
}

/* The planner runs beside whatever comes before the first attention, on a branch of its own. */
static cgr_status fork_planner(cgr_recorder *rec, const cgr__step_args *args) {
  cgr_runtime *rt = rec->runtime;
  const cgr__device_ops *ops = rt->dev->ops;
  int error = ops->event_record(rt->dev, rt->fork_event, rec->stream);
  if (!error)
    error = ops->event_wait(rt->dev, rt->fork_event, rt->planner_stream);
  if (!error)
    error = ops->launch(rt->dev, &cgr__kernel_planner, args, rt->planner_stream);
  if (!error)
    error = ops->event_record(rt->dev, rt->join_event, rt->planner_stream);
  return device_status(rec, error, "step: enqueuing the planner");
}

cgr_status cgr__join_planner(cgr_recorder *rec) {
  if (rec->planner_joined)
    return CGR_OK;
  rec->planner_joined = 1;
  cgr_runtime *rt = rec->runtime;
  return device_status(rec, rt->dev->ops->event_wait(rt->dev, rt->join_event, rec->stream), "step: joining the planner");
}

/* A function of the engine that gives up by itself gets a message; one that passes a failure of ours on keeps that one's. */
static cgr_status call_engine(cgr_recorder *rec, cgr_record_function function, void *context) {
  uint64_t before = cgr__failures();
  cgr_status status = function(rec, context);
  if (status != CGR_OK && cgr__failures() == before)
    return cgr__fail(status, "record: the engine's function returned %s, expected CGR_OK", cgr_status_name(status));
  return status;
}

/* Also when `record` failed: the planner's branch must not stay open, and the step must end. */
static cgr_status end_step(cgr_recorder *rec, cgr__step_args *args, cgr_status recorded, enum cgr__progress *progress) {
  cgr_runtime *rt = rec->runtime;
  cgr_status joined = cgr__join_planner(rec);
  args->abandon = recorded != CGR_OK || joined != CGR_OK;
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_epilogue, args, rec->stream);
  if (!error)
    *progress = CGR__PROGRESS_ENDED;
  CGR__TRY(recorded);
  CGR__TRY(joined);
  return device_status(rec, error, "step: enqueuing the epilogue");
}

cgr_status cgr__record_step(cgr_runtime *rt, cudaStream_t stream, const cgr_key *key, int capturing, cgr_record_function record,
                            void *engine, enum cgr__progress *progress) {
  cgr_recorder rec = { rt, stream, *key, capturing, 0 };
  cgr__step_args args = rt->args;
  args.padded_requests = key->num_requests;
  args.padded_tokens = key->num_tokens;
  *progress = CGR__PROGRESS_BEGUN; /* also when the device reports a failure: the call may have taken effect */
  CGR__TRY(
      device_status(&rec, rt->dev->ops->launch(rt->dev, &cgr__kernel_prologue, &args, stream), "step: enqueuing the prologue"));
  cgr_status recorded = fork_planner(&rec, &args);
  if (recorded != CGR_OK)
    rec.planner_joined = 1; /* there may be no branch to join */
  else if (record) {
    rt->recording = 1;
    recorded = call_engine(&rec, record, engine);
    rt->recording = 0;
  }
  return end_step(&rec, &args, recorded, progress);
}

cgr_status cgr_record_get_info(cgr_recorder *recorder, cgr_record_info *info) {
  CGR__REQUIRE(recorder, "cgr_record_get_info");
  CGR__REQUIRE(info, "cgr_record_get_info");
  if (info->size < sizeof *info)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_record_get_info: info->size is %u, expected %zu: use CGR_RECORD_INFO_INIT",
                     info->size, sizeof *info);
  info->capturing = recorder->capturing;
  info->stream = recorder->stream;
  info->key = recorder->key;
  info->num_tokens = recorder->key.num_tokens;
  info->num_requests = recorder->key.num_requests;
  info->max_seq_len = recorder->runtime->setup.config.max_seq_len;
  return CGR_OK;
}

cgr_status cgr_record_call(cgr_recorder *recorder, cgr_record_function function, void *context) {
  CGR__REQUIRE(recorder, "cgr_record_call");
  CGR__REQUIRE(function, "cgr_record_call");
  return call_engine(recorder, function, context);
}

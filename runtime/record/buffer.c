/* cgr_record_buffer and cgr_record_use: the buffers and regions that `record` names. */
#include "cgr/names.h"
#include "runtime/record/record.h"

/* On-demand buffers are ready for what is enqueued from here on. */
static cgr_status join_on_demand(cgr__step_recorder *rec, cgr_buffer buffer) {
  if (rec->plans_first)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_record_buffer: buffer is %s inside the plan of a backend with PLANS_FIRST, expected one that is not on "
                     "demand",
                     cgr_buffer_name(buffer));
  if (rec->base.in_plan)
    return CGR_OK; /* a plan is on the branch itself */
  rec->base.calls.count[CGR__RECORDED_BUFFER]++;
  return cgr__join_branch(rec);
}

cgr_status cgr_record_buffer(cgr_recorder *recorder, cgr_buffer buffer, int32_t index, cgr_buffer_view *view) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_buffer"));
  cgr__step_recorder *rec = recorder->owner;
  const cgr_where where = { recorder->key.lane, recorder->key.program };
  cgr_status status = buffer >= CGR_BUFFER_KV_INDICES && buffer != CGR_BUFFER_DECLARED ? join_on_demand(rec, buffer) : CGR_OK;
  if (status == CGR_OK)
    status = cgr__buffer_get(rec->runtime, "cgr_record_buffer", &where, buffer, index, view);
  return cgr__recorder_latch(recorder, status);
}

cgr_status cgr_record_use(cgr_recorder *recorder, int32_t region) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_use"));
  const cgr__step_recorder *rec = recorder->owner;
  cgr_status status = cgr__regions_check(&rec->runtime->regions, "cgr_record_use", region);
  if (status == CGR_OK && recorder->capture)
    status = cgr__capture_hold(recorder->capture, region, true);
  return cgr__recorder_latch(recorder, status);
}

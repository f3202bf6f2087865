/* cgr_runtime_audit: what captured graphs hold, read from captures that are made for it. */
#include <string.h>

#include "graphs/audit.h"
#include "runtime/runtime.h"

static cgr_status capture_words(cgr_runtime *rt, const cgr_key *key, cgr__words *words) {
  struct cgr__capture_context context = { rt, key };
  int device_error = 0;
  cgr_status status = cgr__words_capture(&rt->graphs, key, rt->own_stream, cgr__capture_body_of, &context, words, &device_error);
  return device_error ? cgr__runtime_device_error(rt, device_error, "cgr_runtime_audit: capturing") : status;
}

static cgr_status audit_graph(cgr_runtime *rt, cgr__audit *audit, const cgr_key *key, cgr__words words[2]) {
  const cgr__key_text name = cgr__key_name(key);
  int device_error = 0;
  CGR__TRY(capture_words(rt, key, &words[0]));
  CGR__TRY(capture_words(rt, key, &words[1]));
  audit->key = name.text;
  cgr_status status = cgr__audit_words(audit, &words[0], &words[1], &device_error);
  return device_error ? cgr__runtime_device_error(rt, device_error, "cgr_runtime_audit: looking for an address") : status;
}

static cgr_status run(cgr_runtime *rt, cgr__audit *audit) {
  cgr__words words[2];
  cgr_status status = CGR_OK;
  memset(words, 0, sizeof words);
  for (int32_t i = 0; i < rt->graphs.count && status == CGR_OK; i++)
    if (cgr__graph_state_of(&rt->graphs, &rt->graphs.entry[i]) == CGR_GRAPH_READY)
      status = audit_graph(rt, audit, &rt->graphs.entry[i].key, words);
  cgr__words_free(&words[0]);
  cgr__words_free(&words[1]);
  return status;
}

static cgr_status check(cgr_runtime *rt, const cgr_audit *counts, const cgr_finding *findings, int32_t capacity,
                        const int32_t *count) {
  CGR__TRY(cgr__runtime_check_outside(rt, "cgr_runtime_audit"));
  CGR__REQUIRE(count, "cgr_runtime_audit");
  if (counts)
    CGR__TRY(cgr__sized_check("cgr_runtime_audit: audit", counts));
  if (capacity < 0 || (capacity > 0 && !findings))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_audit: capacity is %d, expected 0 or more, with findings",
                     capacity);
  if (rt->lane.prepared.ticket != 0)
    return cgr__fail(CGR_ERROR_STATE, "cgr_runtime_audit: a step is prepared, expected it to be launched or cancelled first");
  if (!rt->record)
    return cgr__fail(CGR_ERROR_STATE, "cgr_runtime_audit: nothing has been captured, expected cgr_runtime_capture before");
  return CGR_OK;
}

cgr_status cgr_runtime_audit(cgr_runtime *runtime, cgr_audit *audit, cgr_finding *findings, int32_t capacity, int32_t *count) {
  if (count)
    *count = 0;
  CGR__TRY(check(runtime, audit, findings, capacity, count));
  if (runtime->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(runtime, "cgr_runtime_audit", runtime->lane.launched, runtime->setup.config.wait_timeout_ms));
  cgr__audit a = { .graphs = &runtime->graphs, .counts = CGR_AUDIT_INIT };
  cgr__findings_init(&a.findings, findings, capacity);
  cgr__baked_refresh(runtime);
  cgr_status status = run(runtime, &a);
  cgr__audit_free(&a);
  if (audit)
    cgr__sized_write(audit, &a.counts, sizeof a.counts);
  *count = a.findings.count;
  return status == CGR_OK ? cgr__findings_status(&a.findings, "cgr_runtime_audit") : status;
}

/* cgr_runtime_audit: what captured graphs hold, read from captures that are made for it. */
#include <string.h>

#include "graphs/audit.h"
#include "runtime/capture/capture.h"
#include "runtime/step/step.h"
#include "runtime/report/ranges.h"

static cgr_status capture_node_args(cgr_runtime *rt, const cgr_key *key, cgr__node_args *args) {
  struct cgr__capture_context context = { rt, key, CGR_OK };
  int device_error = 0;
  cgr__range_begin_key(rt, key);
  cgr_status status = cgr__graphs_list(&rt->graphs, key, rt->own_stream, cgr__capture_body_of, &context, args, &device_error);
  cgr__range_end(rt);
  return device_error ? cgr__runtime_device_error(rt, device_error, "capturing") : status;
}

static cgr_status audit_graph(cgr_runtime *rt, cgr__audit *audit, const cgr_key *key, cgr__node_args args[2]) {
  const cgr__key_text name = cgr__key_name(key);
  CGR__TRY(capture_node_args(rt, key, &args[0]));
  CGR__TRY(capture_node_args(rt, key, &args[1]));
  audit->key = name.text;
  return cgr__runtime_device_error(rt, cgr__audit_node_args(audit, &args[0], &args[1]), "looking for an address");
}

static cgr_status audit_graphs(cgr_runtime *rt, cgr__audit *audit) {
  cgr__node_args args[2];
  cgr_status status = CGR_OK;
  memset(args, 0, sizeof args);
  for (int32_t i = 0; i < rt->graphs.count && status == CGR_OK; i++)
    if (cgr__graph_state_of(&rt->graphs, &rt->graphs.entry[i]) == CGR_GRAPH_READY) {
      status = audit_graph(rt, audit, &rt->graphs.entry[i].key, args);
      if (status != CGR_OK)
        status = cgr__key_fail(status, "cgr_runtime_audit", &rt->graphs.entry[i].key);
    }
  cgr__node_args_free(&args[0]);
  cgr__node_args_free(&args[1]);
  return status;
}

static cgr_status check_audit(cgr_runtime *rt, const cgr_audit *counts) {
  if (counts)
    CGR__TRY(cgr__sized_check("cgr_runtime_audit: audit", "CGR_AUDIT_INIT", counts));
  CGR__TRY(cgr__runtime_check_unprepared(rt, "cgr_runtime_audit"));
  if (rt->lane.launched > 0)
    CGR__TRY(cgr__wait_completed(rt, "cgr_runtime_audit", rt->lane.launched, rt->setup.config.wait_timeout_ms));
  cgr__captured_inputs_refresh(rt);
  return cgr__runtime_check_graphs(rt, "cgr_runtime_audit");
}

static cgr_status audit_all(cgr_runtime *runtime, cgr_audit *audit, cgr_finding *findings, int32_t capacity, int32_t *count) {
  CGR__TRY(check_audit(runtime, audit));
  cgr__audit a = { .graphs = &runtime->graphs, .counts = CGR_AUDIT_INIT };
  cgr__findings_init(&a.findings, findings, capacity);
  cgr_status status = audit_graphs(runtime, &a);
  cgr__audit_free(&a);
  if (audit)
    cgr__sized_write(audit, &a.counts, sizeof a.counts);
  *count = a.findings.count;
  return status == CGR_OK ? cgr__findings_status(&a.findings, "cgr_runtime_audit") : status;
}

cgr_status cgr_runtime_audit(cgr_runtime *runtime, cgr_audit *audit, cgr_finding *findings, int32_t capacity, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_audit");
  CGR__TRY(cgr__findings_check("cgr_runtime_audit", findings, capacity, count));
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_audit"));
  cgr__range_begin(runtime, CGR__RANGE_AUDIT);
  cgr_status status = audit_all(runtime, audit, findings, capacity, count);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_runtime_audit", status);
}

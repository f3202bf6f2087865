/* What a runtime counts, its mode, its keys. */
#include "runtime/runtime.h"

cgr_graph_mode cgr_runtime_graph_mode(cgr_runtime *runtime, const char **reason) {
  bool is = cgr__runtime_is(runtime);
  if (reason)
    *reason = is ? runtime->setup.mode_reason : "";
  return is ? runtime->setup.mode : CGR_MODE_NONE;
}

/* Also of a dead runtime: what it did may tell why it died. */
static cgr_status check_handle(cgr_runtime *runtime, const char *function) {
  return cgr__runtime_is(runtime) ? CGR_OK : cgr__runtime_check(runtime, function);
}

cgr_status cgr_runtime_stats(cgr_runtime *runtime, cgr_stats *stats) {
  CGR__TRY(check_handle(runtime, "cgr_runtime_stats"));
  CGR__TRY(cgr__sized_check("cgr_runtime_stats: stats", stats));
  cgr_stats full;
  cgr__count_all(runtime, &full);
  full.num_graphs = cgr__graphs_num_usable(&runtime->graphs);
  full.graph_bytes = (uint64_t)runtime->graphs.device_bytes;
  full.capture_ms = cgr__graphs_capture_ms(&runtime->graphs);
  full.captures_failed = runtime->graphs.failures;
  full.guard_errors = cgr__ring_errors(&runtime->lane.ring);
  cgr__sized_write(stats, &full, sizeof full);
  return CGR_OK;
}

int32_t cgr_runtime_num_keys(cgr_runtime *runtime) { return cgr__runtime_is(runtime) ? runtime->graphs.count : 0; }

cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats) {
  cgr_graph_stats full = CGR_GRAPH_STATS_INIT;
  CGR__TRY(check_handle(runtime, "cgr_runtime_graph_stats"));
  CGR__TRY(cgr__sized_check("cgr_runtime_graph_stats: stats", stats));
  if (index < 0 || index >= runtime->graphs.count)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_graph_stats: index is %d, expected one of %d keys", index,
                     runtime->graphs.count);
  cgr__graph_get_stats(&runtime->graphs, &runtime->graphs.entry[index], &full);
  cgr__sized_write(stats, &full, sizeof full);
  return CGR_OK;
}

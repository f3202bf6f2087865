/* What a runtime tells about itself: buffers, regions, mode, statistics, version. */
#include <string.h>

#include "runtime/runtime.h"

int cgr_version(void) { return CGR_VERSION; }

/* The build tells which CUDA toolkit it used. */
#ifndef CGR_BUILT_WITH
#define CGR_BUILT_WITH "without CUDA"
#endif
#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number
const char *cgr_build_info(void) {
  return "cgr " TEXT(CGR_VERSION_MAJOR) "." TEXT(CGR_VERSION_MINOR) "." TEXT(CGR_VERSION_PATCH) ", " CGR_BUILT_WITH;
}

cgr_device *cgr_runtime_device(cgr_runtime *runtime) {
  return runtime && runtime->magic == CGR__RUNTIME_MAGIC ? runtime->dev : NULL;
}

cgr_graph_mode cgr_runtime_graph_mode(cgr_runtime *runtime, const char **reason) {
  int alive = runtime && runtime->magic == CGR__RUNTIME_MAGIC;
  if (reason)
    *reason = alive ? runtime->graphs.mode_reason : "";
  return alive ? runtime->graphs.mode : CGR_GRAPH_NONE;
}

static cgr_status check_view_struct(const cgr_buffer_view *view, const char *function) {
  CGR__REQUIRE(view, function);
  if (view->size < sizeof *view)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: view->size is %u, expected %zu: use CGR_BUFFER_VIEW_INIT", function,
                     view->size, sizeof *view);
  return CGR_OK;
}

cgr_status cgr_buffer_get(cgr_runtime *runtime, cgr_buffer buffer, int32_t index, cgr_buffer_view *view) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_buffer_get"));
  CGR__TRY(check_view_struct(view, "cgr_buffer_get"));
  if ((int)buffer < 0 || buffer >= CGR_BUFFER_COUNT_)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_buffer_get: buffer is %d, expected 0 .. %d", (int)buffer,
                     CGR_BUFFER_COUNT_ - 1);
  cgr__buffer_shape shape = cgr__layout_shape(&runtime->setup.limits, (int)buffer, 0);
  if (index < 0 || index >= shape.copies)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_buffer_get: index of %s is %d, expected 0 .. %d", shape.name, index,
                     shape.copies - 1);
  shape = cgr__layout_shape(&runtime->setup.limits, (int)buffer, index);
  view->dtype = (int32_t)shape.dtype;
  view->data = cgr__runtime_buffer(runtime, (int)buffer, index);
  view->shape[0] = shape.rows;
  view->shape[1] = shape.columns;
  view->stride = shape.columns;
  if (buffer == CGR_BUFFER_PAGE_TABLE) { /* the engine's own table when there is one */
    view->data = runtime->args.groups[index].page_table;
    view->stride = runtime->args.groups[index].page_table_stride;
  }
  return CGR_OK;
}

cgr_status cgr_buffer_get_declared(cgr_runtime *runtime, const char *name, cgr_buffer_view *view) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_buffer_get_declared"));
  CGR__REQUIRE(name, "cgr_buffer_get_declared");
  CGR__TRY(check_view_struct(view, "cgr_buffer_get_declared"));
  for (int32_t i = 0; i < runtime->layout.num_declared; i++) {
    const cgr__declared *declared = &runtime->layout.declared[i];
    if (strcmp(declared->name, name) != 0)
      continue;
    view->dtype = declared->dtype;
    view->data = runtime->arena + declared->offset;
    view->shape[0] = declared->rows;
    view->shape[1] = view->stride = declared->width;
    return CGR_OK;
  }
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_buffer_get_declared: name is \"%.40s\", expected one of the %d declared buffers", name,
                   runtime->layout.num_declared);
}

cgr_status cgr_region_register(cgr_runtime *runtime, const void *base, size_t bytes, int32_t *region) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_region_register"));
  CGR__REQUIRE(region, "cgr_region_register");
  return cgr__regions_register(&runtime->regions, base, bytes, region);
}

cgr_status cgr_region_move(cgr_runtime *runtime, int32_t region, const void *base, size_t bytes) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_region_move"));
  return cgr__regions_move(&runtime->regions, region, base, bytes);
}

const char *cgr_reason_name(cgr_reason reason) {
  static const char *const names[CGR_REASON_COUNT_] = { "exact",          "padded",           "mode none",
                                                        "not uniform",    "above the ladder", "not captured",
                                                        "capture failed", "forced",           "internal" };
  return (int)reason >= 0 && reason < CGR_REASON_COUNT_ ? names[reason] : "unknown reason";
}

cgr_status cgr_runtime_stats(cgr_runtime *runtime, cgr_stats *stats) {
  CGR__REQUIRE(runtime, "cgr_runtime_stats");
  CGR__REQUIRE(stats, "cgr_runtime_stats");
  if (runtime->magic != CGR__RUNTIME_MAGIC)
    return cgr__runtime_check(runtime, "cgr_runtime_stats");
  if (stats->size < sizeof *stats)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_runtime_stats: stats->size is %u, expected %zu: use CGR_STATS_INIT",
                     stats->size, sizeof *stats);
  uint32_t size = stats->size;
  *stats = runtime->stats;
  stats->size = size;
  stats->num_graphs = 0;
  for (int32_t i = 0; i < runtime->graphs.count; i++)
    stats->num_graphs += runtime->graphs.entry[i].state == CGR__GRAPH_READY &&
                         !cgr__graph_is_stale(&runtime->graphs.entry[i], runtime->regions.epoch, runtime->layout.hash);
  return CGR_OK;
}

int32_t cgr_runtime_num_keys(cgr_runtime *runtime) {
  return runtime && runtime->magic == CGR__RUNTIME_MAGIC ? runtime->graphs.count : 0;
}

cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats) {
  CGR__TRY(cgr__runtime_check(runtime, "cgr_runtime_graph_stats"));
  CGR__REQUIRE(stats, "cgr_runtime_graph_stats");
  if (stats->size < sizeof *stats)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT,
                     "cgr_runtime_graph_stats: stats->size is %u, expected %zu: use CGR_GRAPH_STATS_INIT", stats->size,
                     sizeof *stats);
  if (index < 0 || index >= runtime->graphs.count)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_graph_stats: index is %d, expected 0 .. %d", index,
                     runtime->graphs.count - 1);
  const cgr__graph_entry *entry = &runtime->graphs.entry[index];
  stats->state = entry->state;
  if (entry->state == CGR__GRAPH_READY && cgr__graph_is_stale(entry, runtime->regions.epoch, runtime->layout.hash))
    stats->state = CGR__GRAPH_STALE;
  stats->key = entry->key;
  stats->records = entry->records;
  stats->replays = entry->replays;
  stats->real_requests = entry->real_requests;
  stats->num_nodes = entry->num_nodes;
  stats->device_bytes = entry->device_bytes;
  stats->capture_ms = entry->capture_ms;
  return CGR_OK;
}

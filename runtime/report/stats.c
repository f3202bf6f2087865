/* What a runtime counts and records, its mode, its keys. */
#include <string.h>

#include "cgr/names.h"
#include "runtime/report/report.h"
#include "tracing/metrics.h"
#include "tracing/table.h"

cgr_status cgr__report_check(cgr_runtime *runtime, const char *function) {
  return cgr__runtime_is(runtime) ? CGR_OK : cgr__runtime_check(runtime, function);
}

cgr_status cgr_runtime_graph_mode(cgr_runtime *runtime, cgr_graph_mode *mode, const char **reason) {
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_graph_mode"));
  CGR__REQUIRE(mode, "cgr_runtime_graph_mode");
  *mode = runtime->setup.mode;
  if (reason)
    *reason = runtime->setup.mode_reason;
  return CGR_OK;
}

/* The sums over the records, and what is counted elsewhere. */
static void get_stats(cgr_runtime *rt, cgr_stats *full) {
  cgr__statistics_fold(&rt->statistics, &rt->flight);
  *full = rt->statistics.sums;
  full->num_graphs = cgr__graphs_num_usable(&rt->graphs);
  full->graph_bytes = (uint64_t)rt->graphs.device_bytes;
  full->capture_ms = cgr__graphs_capture_ms(&rt->graphs);
  full->captures_failed = rt->graphs.failures;
  full->guard_errors = cgr__ring_errors(&rt->lane.ring);
  full->drafts = rt->rows.guesses.verified;
  full->drafts_accepted = rt->rows.guesses.accepted;
}

cgr_status cgr_runtime_stats(cgr_runtime *runtime, cgr_stats *stats) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_stats");
  cgr_stats full;
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_stats"));
  CGR__TRY(cgr__sized_check("cgr_runtime_stats: stats", "CGR_STATS_INIT", stats));
  get_stats(runtime, &full);
  cgr__sized_write(stats, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_runtime_num_keys(cgr_runtime *runtime, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_num_keys");
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_num_keys"));
  CGR__REQUIRE(count, "cgr_runtime_num_keys");
  *count = runtime->graphs.count;
  return CGR_OK;
}

cgr_status cgr_runtime_graph_stats(cgr_runtime *runtime, int32_t index, cgr_graph_stats *stats) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_graph_stats");
  cgr_graph_stats full = CGR_GRAPH_STATS_INIT;
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_graph_stats"));
  CGR__TRY(cgr__sized_check("cgr_runtime_graph_stats: stats", "CGR_GRAPH_STATS_INIT", stats));
  if (index < 0 || index >= runtime->graphs.count)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_graph_stats: index is %d, expected one of %d key%s", index,
                     runtime->graphs.count, cgr__plural(runtime->graphs.count));
  cgr__graph_get_stats(&runtime->graphs, &runtime->graphs.entry[index], &full);
  cgr__sized_write(stats, &full, sizeof full);
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------- per key, texts */

/* Of a key, or of the eager steps: -1; see cgr__report. The records are folded. */
static bool get_key_stats(void *context, int32_t index, bool with_times, cgr_key_stats *stats) {
  cgr_runtime *rt = context;
  memset(stats, 0, offsetof(cgr_key_stats, prepare));
  stats->bytes_estimated = stats->reserved = 0;
  stats->turned_down = 0;
  stats->size = (uint32_t)sizeof *stats;
  cgr__statistics_of_key(&rt->statistics, index, with_times, stats);
  if (index < 0)
    return true;
  const cgr__graph_entry *entry = &rt->graphs.entry[index];
  stats->state = (int32_t)cgr__graph_state_of(&rt->graphs, entry);
  stats->key = entry->key;
  stats->misses = entry->misses;
  stats->turned_down = entry->turned_down;
  stats->num_nodes = entry->num_nodes;
  stats->device_bytes = entry->device_bytes;
  stats->capture_ms = entry->capture_ms;
  stats->bytes_estimated = entry->estimated;
  uint64_t *told = &rt->statistics.key[1 + index].told;
  *told |= stats->steps > 0 || stats->misses > 0 || stats->turned_down > 0 || stats->state != CGR_GRAPH_EMPTY;
  return *told;
}

cgr_status cgr_runtime_key_stats(cgr_runtime *runtime, int32_t index, cgr_key_stats *stats) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_key_stats");
  cgr_key_stats full;
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_key_stats"));
  CGR__TRY(cgr__sized_check("cgr_runtime_key_stats: stats", "CGR_KEY_STATS_INIT", stats));
  if (index < -1 || index >= runtime->graphs.count)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_runtime_key_stats: index is %d, expected one of %d key%s, or -1 for the eager steps", index,
                     runtime->graphs.count, cgr__plural(runtime->graphs.count));
  cgr__statistics_fold(&runtime->statistics, &runtime->flight);
  (void)get_key_stats(runtime, index, true, &full);
  cgr__sized_write(stats, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr__text_check(cgr_runtime *rt, const char *function, const char *out, size_t capacity, const size_t *length) {
  CGR__TRY(cgr__report_check(rt, function));
  CGR__REQUIRE(length, function);
  if (!out && capacity > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: out is NULL, expected an address, as capacity is %zu", function, capacity);
  return CGR_OK;
}

static cgr__report report_of(cgr_runtime *rt) {
  cgr__report report = { .device = rt->setup.device.name,
                         .mode = cgr_graph_mode_name(rt->setup.mode),
                         .dead = cgr__runtime_is_dead(rt) ? rt->dead_message : NULL,
                         .num_keys = rt->graphs.count,
                         .context = rt,
                         .get_key = get_key_stats };
  get_stats(rt, &report.stats);
  return report;
}

cgr_status cgr_runtime_stats_text(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_stats_text");
  CGR__TRY(cgr__text_check(runtime, "cgr_runtime_stats_text", out, capacity, length));
  cgr__text text = cgr__text_begin(out, capacity);
  const cgr__report report = report_of(runtime);
  cgr__table_write(&text, &report);
  *length = text.length;
  return CGR_OK;
}

cgr_status cgr_runtime_metrics(cgr_runtime *runtime, const cgr_label *labels, int32_t num_labels, char *out, size_t capacity,
                               size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_metrics");
  CGR__TRY(cgr__text_check(runtime, "cgr_runtime_metrics", out, capacity, length));
  CGR__TRY(cgr__metrics_check_labels("cgr_runtime_metrics", labels, num_labels));
  cgr__text text = cgr__text_begin(out, capacity);
  const cgr__report report = report_of(runtime);
  cgr__metrics_write(&text, &report, labels, num_labels);
  *length = text.length;
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------- flight recorder */

cgr_status cgr_runtime_flight(cgr_runtime *runtime, cgr_flight_record *records, int32_t capacity, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_flight");
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_flight"));
  CGR__REQUIRE(count, "cgr_runtime_flight");
  if (capacity < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_flight: capacity is %d, expected 0 or more", capacity);
  int32_t all = cgr__flight_count(runtime), first = all > capacity ? all - capacity : 0;
  void *at = NULL;
  for (int32_t i = 0; i < all - first || (i == 0 && capacity > 0); i++)
    CGR__TRY(cgr__sized_check_at("cgr_runtime_flight: records", "CGR_FLIGHT_RECORD_INIT", records, i, &at));
  cgr__tick_clock_refresh(&runtime->statistics.clock);
  for (int32_t i = first; i < all; i++) {
    const cgr_flight_record record = cgr__flight_read(runtime, i);
    CGR__TRY(cgr__sized_check_at("cgr_runtime_flight: records", "CGR_FLIGHT_RECORD_INIT", records, i - first, &at));
    cgr__sized_write(at, &record, sizeof record);
  }
  *count = all;
  return CGR_OK;
}

cgr_status cgr_runtime_dump(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_dump");
  CGR__TRY(cgr__text_check(runtime, "cgr_runtime_dump", out, capacity, length));
  *length = cgr__dump(runtime, out, capacity);
  return CGR_OK;
}

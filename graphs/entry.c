/* A key and its graph: what state it is in, what it holds, and when it goes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "devices/holders.h"
#include "graphs/labels.h"

cgr_status cgr__key_fail(cgr_status status, const char *function, const cgr_key *key) {
  char message[400];
  snprintf(message, sizeof message, "%s", cgr_last_message());
  return cgr__fail(status, "%s: %s: %s", function, cgr__key_name(key).text, message);
}

cgr_graph_state cgr__graph_state_of(const cgr__graphs *graphs, const cgr__graph_entry *entry) {
  if (entry->state == CGR_GRAPH_READY && cgr__graph_is_stale(graphs, entry))
    return CGR_GRAPH_STALE;
  return (cgr_graph_state)entry->state;
}

void cgr__graph_set_state(cgr__graph_entry *entry, cgr_graph_state state) {
  cgr__holders_lock();
  entry->state = state;
  cgr__holders_unlock();
}

bool cgr__holds(const cgr__held *held, int32_t region) {
  for (int32_t i = 0; i < held->count; i++)
    if (held->region[i] == region)
      return true;
  return !held->named;
}

void cgr__graphs_region_moved(cgr__graphs *graphs, int32_t region) {
  for (int32_t i = 0; i < graphs->count; i++) {
    cgr__graph_entry *entry = &graphs->entry[i];
    if (entry->state == CGR_GRAPH_READY && entry->epoch + 1 == graphs->regions->epoch && !cgr__holds(&entry->held, region))
      entry->epoch++;
  }
}

int32_t cgr__graphs_count_region(const cgr__graphs *graphs, int32_t region) {
  int32_t count = 0;
  for (int32_t i = 0; i < graphs->count; i++)
    count += cgr__graph_is_usable(graphs, &graphs->entry[i]) && cgr__holds(&graphs->entry[i].held, region);
  return count;
}

int32_t cgr__graphs_count_addresses(const cgr__graphs *graphs, const void *base, size_t bytes) {
  int32_t count = 0;
  for (int32_t i = 0; i < graphs->count; i++)
    count += cgr__graph_is_usable(graphs, &graphs->entry[i]) && cgr__addresses_meet(&graphs->entry[i].addresses, base, bytes);
  return count;
}

void cgr__graph_get_stats(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_graph_stats *stats) {
  stats->state = cgr__graph_state_of(graphs, entry);
  stats->key = entry->key;
  stats->records = entry->records;
  stats->num_pieces = entry->num_pieces;
  stats->replays = entry->replays;
  stats->real_requests = entry->real_requests;
  stats->num_nodes = entry->num_nodes;
  stats->device_bytes = entry->device_bytes;
  stats->capture_ms = entry->capture_ms;
  stats->width = entry->width;
  stats->last_seq = entry->last_seq;
  stats->misses = entry->misses;
  stats->failures = entry->failures;
  stats->turned_down = entry->turned_down;
  stats->bytes_estimated = entry->estimated;
}

int32_t cgr__graphs_num_usable(const cgr__graphs *graphs) {
  int32_t count = 0;
  for (int32_t i = 0; i < graphs->count; i++)
    count += cgr__graph_state_of(graphs, &graphs->entry[i]) == CGR_GRAPH_READY;
  return count;
}

static void destroy_exec(cgr__graphs *graphs, cgr__exec *exec) {
  if (exec)
    graphs->dev->ops->exec_destroy(graphs->dev, exec);
}

void cgr__graph_drop(cgr__graphs *graphs, cgr__graph_entry *entry) {
  cgr__graph_set_state(entry, CGR_GRAPH_EMPTY); /* what follows is looked at only while the graph can be replayed */
  destroy_exec(graphs, entry->exec);
  for (cgr__break *b = entry->breaks, *next; b; b = next) {
    next = b->next;
    destroy_exec(graphs, b->piece);
    free(b);
  }
  cgr__labels_free(entry->labels);
  entry->labels = NULL;
  free(entry->held.region);
  entry->held = (cgr__held){ false, 0, NULL };
  cgr__addresses_free(&entry->addresses);
  entry->exec = NULL;
  entry->breaks = NULL;
  graphs->device_bytes -= entry->device_bytes;
  graphs->expected_kb -= entry->expected_kb;
  entry->device_bytes = 0;
  entry->num_nodes = entry->width = entry->estimated = entry->expected_kb = 0;
  entry->num_pieces = 0;
  entry->capture_ms = 0.0f;
}

/* As before its first capture. */
static void forget_entry(cgr__graphs *graphs, cgr__graph_entry *entry) {
  cgr__graph_drop(graphs, entry);
  entry->failures = 0;
  entry->misses = 0;
}

void cgr__graphs_drop_all(cgr__graphs *graphs) {
  for (int32_t i = 0; i < graphs->count; i++) {
    cgr__graph_entry *entry = &graphs->entry[i];
    uint64_t misses = entry->state == CGR_GRAPH_READY ? 0 : entry->misses; /* what steps missed they still miss */
    forget_entry(graphs, entry);
    entry->misses = misses;
  }
}

double cgr__graphs_capture_ms(const cgr__graphs *graphs) {
  double ms = 0.0;
  for (int32_t i = 0; i < graphs->count; i++)
    ms += graphs->entry[i].capture_ms;
  return ms;
}

static int by_last_use(const void *a, const void *b) {
  const cgr__graph_entry *x = *(cgr__graph_entry *const *)a, *y = *(cgr__graph_entry *const *)b;
  return (x->last_seq > y->last_seq) - (x->last_seq < y->last_seq);
}

cgr_status cgr__graphs_drop_oldest(cgr__graphs *graphs, uint64_t keep_bytes) {
  if (keep_bytes == 0) {
    cgr__graphs_drop_all(graphs);
    return CGR_OK;
  }
  if ((uint64_t)graphs->device_bytes <= keep_bytes)
    return CGR_OK;
  cgr__graph_entry **oldest = malloc((size_t)graphs->count * sizeof(cgr__graph_entry *));
  if (!oldest)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_release_graphs: no memory to sort %d graphs", graphs->count);
  for (int32_t i = 0; i < graphs->count; i++) {
    oldest[i] = &graphs->entry[i];
    if (cgr__graph_state_of(graphs, oldest[i]) == CGR_GRAPH_STALE && (uint64_t)graphs->device_bytes > keep_bytes)
      forget_entry(graphs, oldest[i]); /* it can no longer be used */
  }
  qsort(oldest, (size_t)graphs->count, sizeof(cgr__graph_entry *), by_last_use);
  for (int32_t i = 0; i < graphs->count && (uint64_t)graphs->device_bytes > keep_bytes; i++)
    if (oldest[i]->state == CGR_GRAPH_READY)
      forget_entry(graphs, oldest[i]);
  free(oldest);
  return CGR_OK;
}

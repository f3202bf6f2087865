/* A key and its graph: what state it is in, what it holds, and when it goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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

double cgr__graphs_capture_ms(const cgr__graphs *graphs) {
  double ms = 0.0;
  for (int32_t i = 0; i < graphs->count; i++)
    ms += graphs->entry[i].capture_ms;
  return ms;
}

/* ------------------------------------------------------------------------------------------------------------- addresses */

#define FIRST_CAPACITY 256
#define END_OF_MEMORY ((uint64_t)1 << 57) /* no processor that the library runs on has addresses of more bits */

/* The word's place in the table, or the free one where it belongs. */
static uint64_t *address_place(const cgr__addresses *set, uint64_t word) {
  uint64_t mask = (uint64_t)set->capacity - 1, at = (word * 0x9E3779B97F4A7C15u) >> 20;
  while (set->word[at & mask] != 0 && set->word[at & mask] != word)
    at++;
  return &set->word[at & mask];
}

/* To at most half full. */
static bool grow_table(cgr__addresses *set) {
  cgr__addresses larger = { .capacity = set->capacity > 0 ? 2 * set->capacity : FIRST_CAPACITY, .count = set->count };
  larger.word = calloc((size_t)larger.capacity, sizeof *larger.word);
  if (!larger.word)
    return false;
  for (int64_t i = 0; i < set->capacity; i++)
    if (set->word[i] != 0)
      *address_place(&larger, set->word[i]) = set->word[i];
  free(set->word);
  *set = larger;
  return true;
}

bool cgr__addresses_add(cgr__addresses *set, uint64_t word) {
  if (word < CGR__FIRST_ADDRESS || word >= END_OF_MEMORY)
    return true;
  if (2 * set->count >= set->capacity && !grow_table(set))
    return false;
  uint64_t *place = address_place(set, word);
  set->count += *place == 0;
  *place = word;
  return true;
}

bool cgr__addresses_add_words(cgr__addresses *set, const void *data, size_t bytes) {
  bool added = true;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes && added; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const unsigned char *)data + at, sizeof word);
    added = cgr__addresses_add(set, word);
  }
  return added;
}

static int compare_addresses(const void *a, const void *b) {
  uint64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

void cgr__addresses_sort(cgr__addresses *set) {
  int64_t count = 0;
  if (set->count == 0) {
    cgr__addresses_free(set);
    return;
  }
  for (int64_t i = 0; i < set->capacity; i++)
    if (set->word[i] != 0)
      set->word[count++] = set->word[i];
  qsort(set->word, (size_t)count, sizeof *set->word, compare_addresses);
  uint64_t *smaller = realloc(set->word, (size_t)count * sizeof *smaller);
  if (smaller)
    set->word = smaller;
  set->capacity = 0;
}

bool cgr__addresses_meet(const cgr__addresses *set, const void *base, size_t bytes) {
  int64_t low = 0, high = set->count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (set->word[middle] < (uintptr_t)base)
      low = middle + 1;
    else
      high = middle;
  }
  return low < set->count && set->word[low] - (uintptr_t)base < bytes;
}

void cgr__addresses_free(cgr__addresses *set) {
  free(set->word);
  *set = (cgr__addresses){ NULL, 0, 0 };
}

/* --------------------------------------------------------------------------------------------------------- what it holds */

cgr_status cgr__capture_hold(cgr__open_capture *capture, int32_t region, bool by_name) {
  cgr__held *held = &capture->held;
  held->named |= by_name;
  for (int32_t i = 0; i < held->count; i++)
    if (held->region[i] == region)
      return CGR_OK;
  int32_t *grown = realloc(held->region, ((size_t)held->count + 1) * sizeof *grown);
  if (!grown)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "record: no memory to keep region %d", region);
  held->region = grown;
  held->region[held->count++] = region;
  return CGR_OK;
}

cgr_status cgr__capture_hold_address(cgr__open_capture *capture, const void *address) {
  if (!cgr__addresses_add(&capture->addresses, (uintptr_t)address))
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "record: no memory to keep address %p", address);
  const cgr__regions *regions = capture->graphs->regions;
  for (int32_t i = regions->first_movable; i < regions->count; i++) {
    const cgr__region *r = &regions->region[i];
    if ((uintptr_t)address - (uintptr_t)r->base < r->bytes)
      CGR__TRY(cgr__capture_hold(capture, i, false));
  }
  return CGR_OK;
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

int32_t cgr__graphs_count_resource(const cgr__graphs *graphs, int32_t resource) {
  int32_t count = 0;
  for (int32_t i = 0; i < graphs->count; i++)
    count += (int32_t)(graphs->entry[i].resources >> resource & 1);
  return count;
}

/* ------------------------------------------------------------------------------------------------------------------ drop */

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
  entry->resources = 0;
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

/* What a list of captures may cost. Cold. */
#include "base/clock.h"
#include "graphs/graphs.h"

void cgr__budget_begin(cgr__budget *budget, double max_ms, uint64_t max_bytes) {
  *budget = (cgr__budget){ .max_ms = max_ms, .max_bytes = max_bytes };
  if (max_ms > 0.0)
    budget->begin_ms = cgr__now_ms();
}

/* A stale graph keeps its state: it holds memory, and is stale whatever the budget. */
static void leave(cgr__budget *budget, cgr__graph_entry *entry) {
  budget->left++;
  if (entry->state == CGR_GRAPH_EMPTY)
    cgr__graph_set_state(entry, CGR_GRAPH_OVER_BUDGET);
}

bool cgr__budget_allows(cgr__budget *budget, const cgr__graphs *graphs, cgr__graph_entry *entry) {
  const struct cgr__kind_cost *cost = &budget->cost[entry->key.kind];
  double each = cost->count > 0 ? 1.0 / cost->count : 0.0;
  double bytes = (double)(graphs->device_bytes - entry->device_bytes) + cost->bytes * each;
  budget->spent |= budget->max_bytes > 0 && bytes > (double)budget->max_bytes;
  budget->spent |= budget->max_ms > 0.0 && cgr__now_ms() - budget->begin_ms + cost->ms * each > budget->max_ms;
  if (budget->spent)
    leave(budget, entry);
  return !budget->spent;
}

void cgr__budget_charge(cgr__budget *budget, cgr__graphs *graphs, cgr__graph_entry *entry) {
  struct cgr__kind_cost *cost = &budget->cost[entry->key.kind];
  cost->count++;
  cost->ms += entry->capture_ms;
  cost->bytes += (double)entry->device_bytes;
  if (budget->max_bytes == 0 || (uint64_t)graphs->device_bytes <= budget->max_bytes)
    return;
  budget->spent = true;
  cgr__graph_drop(graphs, entry);
  leave(budget, entry);
}

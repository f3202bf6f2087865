/* What a list of captures may cost. Cold. */
#include "base/clock.h"
#include "graphs/graphs.h"

/* What an executable graph takes on an H100 (CUDA 13.0): 2.8 KB a node with arguments of up to 1 KB, 154 KB a branch. Larger
 * arguments take more, 13.4 KB a node at 3000 bytes. The figures here are a bit more than the usual ones. */
#define KB_OF_GRAPH 64
#define KB_OF_NODE 4
#define KB_OF_BRANCH 160
/* Beyond this a measurement is not the graph's own: a multiple of what is expected, plus 2 MB, which a device hands out at once
 * and which later graphs share. All graphs together come closer to what is expected. */
#define FAR 4
#define FAR_OF_ALL 2
#define KB_AT_ONCE 2048

static int64_t expected_kb(const cgr__graph_info *info) {
  int64_t nodes = info->all_nodes > info->num_nodes ? info->all_nodes : info->num_nodes;
  int64_t branches = info->width > 1 ? info->width - 1 : 0;
  return KB_OF_GRAPH + nodes * KB_OF_NODE + branches * KB_OF_BRANCH;
}

/* Whether it can be what the graph takes. A graph may take nothing new: the driver keeps what earlier ones had. */
static bool is_plausible(const cgr__graphs *graphs, int64_t bytes, int64_t expected) {
  int64_t most = FAR * expected + KB_AT_ONCE, most_of_all = FAR_OF_ALL * (graphs->expected_kb + expected) + 2 * KB_AT_ONCE;
  return bytes >= 0 && bytes <= most * 1024 && graphs->device_bytes + bytes <= most_of_all * 1024;
}

void cgr__budget_count_piece(cgr__graphs *graphs, cgr__graph_entry *entry, const cgr__graph_info *info) {
  int64_t expected = expected_kb(info), bytes = info->device_bytes;
  if (!is_plausible(graphs, bytes, expected)) {
    bytes = expected * 1024;
    entry->estimated++;
  }
  entry->device_bytes += bytes;
  entry->expected_kb += (int32_t)expected;
  graphs->device_bytes += bytes;
  graphs->expected_kb += expected;
}

void cgr__budget_begin(cgr__budget *budget, double max_ms, uint64_t max_bytes) {
  *budget = (cgr__budget){ .max_ms = max_ms, .max_bytes = max_bytes };
  if (max_ms > 0.0)
    budget->begin_ms = cgr__now_ms();
}

/* A stale graph keeps its state: it holds memory, and is stale whatever the budget. */
static void leave_entry(cgr__budget *budget, cgr__graph_entry *entry) {
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
    leave_entry(budget, entry);
  return !budget->spent;
}

/* A measurement within bounds that alone passes the budget may be another's memory all the same. */
static void trust_expected(const cgr__budget *budget, cgr__graphs *graphs, cgr__graph_entry *entry) {
  int64_t excess = entry->device_bytes - (int64_t)entry->expected_kb * 1024;
  if (excess <= 0 || (uint64_t)graphs->device_bytes <= budget->max_bytes ||
      (uint64_t)(graphs->device_bytes - excess) > budget->max_bytes)
    return;
  entry->device_bytes -= excess;
  graphs->device_bytes -= excess;
  entry->estimated = entry->num_pieces;
}

void cgr__budget_charge(cgr__budget *budget, cgr__graphs *graphs, cgr__graph_entry *entry) {
  struct cgr__kind_cost *cost = &budget->cost[entry->key.kind];
  if (budget->max_bytes > 0)
    trust_expected(budget, graphs, entry);
  budget->estimated += entry->estimated > 0;
  cost->count++;
  cost->ms += entry->capture_ms;
  cost->bytes += (double)entry->device_bytes;
  if (budget->max_bytes == 0 || (uint64_t)graphs->device_bytes <= budget->max_bytes)
    return;
  budget->spent = true;
  cgr__graph_drop(graphs, entry);
  leave_entry(budget, entry);
}

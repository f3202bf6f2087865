#include "devices/host/nodes.h"

#include <stdlib.h>
#include <string.h>

cgr__graph *cgr__host_graph_new(void) {
  cgr__graph *graph = calloc(1, sizeof *graph);
  if (graph)
    graph->refs = 1;
  return graph;
}

void cgr__host_graph_unref(cgr__graph *graph) {
  if (__atomic_sub_fetch(&graph->refs, 1, __ATOMIC_ACQ_REL) != 0)
    return;
  for (uint32_t i = 0; i < graph->num_nodes; i++)
    free((void *)(uintptr_t)graph->nodes[i].work.args);
  free(graph->nodes);
  free(graph->deps);
  free(graph->latest);
  free(graph);
}

/* Makes room for `more` elements of `size` bytes after `count`. */
static bool reserve_nodes(void **array, uint32_t *capacity, uint32_t count, uint32_t more, size_t size) {
  if (more <= *capacity - count)
    return true;
  uint32_t wanted = *capacity * 2 > count + more ? *capacity * 2 : count + more + 8;
  void *memory = realloc(*array, wanted * size);
  if (!memory)
    return false;
  *array = memory;
  *capacity = wanted;
  return true;
}

bool cgr__host_deps_add(struct host_deps *deps, uint32_t id) {
  for (uint32_t i = 0; i < deps->count; i++)
    if (deps->ids[i] == id)
      return true;
  void *ids = deps->ids;
  if (!reserve_nodes(&ids, &deps->capacity, deps->count, 1, sizeof *deps->ids))
    return false;
  deps->ids = ids;
  deps->ids[deps->count++] = id;
  return true;
}

bool cgr__host_deps_copy(struct host_deps *deps, const struct host_deps *from) {
  deps->count = 0;
  for (uint32_t i = 0; i < from->count; i++)
    if (!cgr__host_deps_add(deps, from->ids[i]))
      return false;
  return true;
}

bool cgr__host_graph_add(cgr__graph *graph, const struct host_work *work, size_t args_size, const struct host_deps *deps) {
  void *nodes = graph->nodes;
  if (!reserve_nodes(&nodes, &graph->node_capacity, graph->num_nodes, 1, sizeof *graph->nodes))
    return false;
  graph->nodes = nodes;
  void *all = graph->deps;
  if (!reserve_nodes(&all, &graph->dep_capacity, graph->num_deps, deps->count, sizeof *graph->deps))
    return false;
  graph->deps = all;
  void *args = NULL;
  if (args_size != 0) {
    args = malloc(args_size);
    if (!args)
      return false;
    memcpy(args, work->args, args_size);
  }
  struct host_node *node = &graph->nodes[graph->num_nodes++];
  node->work = *work;
  node->work.args = args;
  node->args_size = args_size;
  node->first_dep = graph->num_deps;
  node->num_deps = deps->count;
  if (deps->count != 0)
    memcpy(graph->deps + graph->num_deps, deps->ids, deps->count * sizeof *deps->ids);
  graph->num_deps += deps->count;
  return true;
}

bool cgr__host_graph_covers(const cgr__graph *graph, const struct host_deps *ends, const struct host_deps *deps, bool *covers) {
  unsigned char *marked = calloc(graph->num_nodes + 1u, 1);
  if (!marked)
    return false;
  for (uint32_t i = 0; i < ends->count; i++)
    marked[ends->ids[i]] = 1;
  for (uint32_t i = graph->num_nodes; i-- != 0;) {
    const struct host_node *node = &graph->nodes[i];
    for (uint32_t d = 0; marked[i] && d < node->num_deps; d++)
      marked[graph->deps[node->first_dep + d]] = 1;
  }
  *covers = true;
  for (uint32_t i = 0; i < deps->count; i++)
    *covers = *covers && marked[deps->ids[i]];
  free(marked);
  return true;
}

/* From the ends backwards: a node runs when the first node that depends on it is about to. The dependency in stream order is the
 * first of a node's, so a forked branch runs just before its join. */
bool cgr__host_graph_order(cgr__graph *graph, const struct host_deps *ends) {
  uint32_t n = graph->num_nodes, placed = 0;
  graph->latest = calloc(n + 1u, sizeof *graph->latest);
  uint32_t *stack = calloc(n + 1u, sizeof *stack);
  uint32_t *next_dep = calloc(n + 1u, sizeof *next_dep); /* 0: not seen; k: k - 1 dependencies have been looked at */
  bool ok = graph->latest && stack && next_dep;
  for (uint32_t e = 0; ok && e < ends->count; e++) {
    uint32_t depth = 0;
    if (next_dep[ends->ids[e]] != 0)
      continue;
    stack[depth++] = ends->ids[e];
    next_dep[ends->ids[e]] = 1;
    while (depth != 0) {
      uint32_t id = stack[depth - 1];
      const struct host_node *node = &graph->nodes[id];
      if (next_dep[id] > node->num_deps) {
        graph->latest[placed++] = id;
        depth--;
        continue;
      }
      uint32_t dep = graph->deps[node->first_dep + next_dep[id]++ - 1];
      if (next_dep[dep] != 0)
        continue;
      next_dep[dep] = 1;
      stack[depth++] = dep;
    }
  }
  free(stack);
  free(next_dep);
  return ok;
}

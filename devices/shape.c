#include "devices/shape.h"

#include <stdlib.h>

static int by_from(const void *a, const void *b) {
  const cgr__graph_edge *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* Puts the nodes in an order in which each follows those that it waits for; `depth` and `waits` are zeros at first. Returns how
 * many nodes are in the order. */
static uint32_t find_depths(uint32_t num_nodes, const cgr__graph_edge *edges, const size_t *first, uint32_t *waits,
                            uint32_t *depth, uint32_t *order) {
  uint32_t count = 0;
  for (size_t e = 0; e < first[num_nodes]; e++)
    waits[edges[e].to]++;
  for (uint32_t n = 0; n < num_nodes; n++)
    if (waits[n] == 0)
      order[count++] = n;
  for (uint32_t at = 0; at < count; at++)
    for (size_t e = first[order[at]]; e < first[order[at] + 1]; e++) {
      uint32_t to = edges[e].to, below = depth[order[at]] + 1;
      depth[to] = depth[to] > below ? depth[to] : below;
      if (--waits[to] == 0)
        order[count++] = to;
    }
  return count;
}

static int64_t widest_level(uint32_t num_nodes, const uint32_t *depth, uint32_t *count) {
  uint32_t most = 0;
  for (uint32_t n = 0; n < num_nodes; n++)
    count[n] = 0;
  for (uint32_t n = 0; n < num_nodes; n++) {
    uint32_t same = ++count[depth[n]];
    most = same > most ? same : most;
  }
  return most;
}

int64_t cgr__graph_width(uint32_t num_nodes, cgr__graph_edge *edges, size_t num_edges) {
  size_t *first = calloc((size_t)num_nodes + 1, sizeof *first);
  uint32_t *words = calloc(3 * (size_t)num_nodes + 1, sizeof *words), *depth = words + num_nodes, *order = depth + num_nodes;
  int64_t width = -1;
  if (first && words) {
    if (num_edges > 0)
      qsort(edges, num_edges, sizeof *edges, by_from);
    for (size_t e = 0; e < num_edges; e++)
      first[edges[e].from + 1]++;
    for (uint32_t n = 0; n < num_nodes; n++)
      first[n + 1] += first[n];
    if (find_depths(num_nodes, edges, first, words, depth, order) == num_nodes)
      width = widest_level(num_nodes, depth, order);
  }
  free(first);
  free(words);
  return width;
}

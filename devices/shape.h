/* The shape of a graph. */
#ifndef CGR_DEVICES_SHAPE_H
#define CGR_DEVICES_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__graph_edge {
  uint32_t from, to; /* numbers of nodes */
} cgr__graph_edge;

/* The largest number of nodes at one depth, where a node is one deeper than the deepest that it waits for: 1 in a line, 0 without
 * nodes. The host's cost of a launch grows with it, not with the number of forks (profiles/fork_cost). Sorts the edges. -1: no
 * memory, or the edges form a cycle. */
int64_t cgr__graph_width(uint32_t num_nodes, cgr__graph_edge *edges, size_t num_edges);

#ifdef __cplusplus
}
#endif
#endif

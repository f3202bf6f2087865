/* The nodes of a graph while a capture builds it, and the orders that execution may take. A dependency always has a smaller
 * number than its dependent, so the recorded order is one of them. Functions that can fail return false when there is no
 * memory. */
#ifndef CGR_DEVICES_HOST_NODES_H
#define CGR_DEVICES_HOST_NODES_H

#include "devices/host/types.h"

cgr__graph *cgr__host_graph_new(void);
void cgr__host_graph_unref(cgr__graph *graph);

bool cgr__host_deps_add(struct host_deps *deps, uint32_t id);
bool cgr__host_deps_copy(struct host_deps *deps, const struct host_deps *from);

bool cgr__host_graph_add(cgr__graph *graph, const struct host_work *work, size_t args_size, const struct host_deps *deps);
/* Tells whether everything in `deps` is one of `ends` or comes before one. */
bool cgr__host_graph_covers(const cgr__graph *graph, const struct host_deps *ends, const struct host_deps *deps, bool *covers);
/* Makes the order in which each node runs as late as it can. */
bool cgr__host_graph_order(cgr__graph *graph, const struct host_deps *ends);

#endif

/* Instantiated graphs: one launch is one operation of a stream that executes all nodes. Nodes hold addresses and arguments by
 * value and read memory anew in every run. */
#ifndef CGR_DEVICES_HOST_GRAPH_H
#define CGR_DEVICES_HOST_GRAPH_H

#include "devices/host/types.h"

int cgr__host_graph_destroy(cgr_device *dev, cgr__graph *graph);
int cgr__host_graph_walk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context);
int cgr__host_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info);
int cgr__host_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);
int cgr__host_exec_destroy(cgr_device *dev, cgr__exec *exec);

#endif

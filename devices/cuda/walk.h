/* What the nodes of a captured graph hold, as the driver tells it. Not seen: what a kernel reaches through memory (tables, tensor
 * maps made on the device), and the parameters of nodes of other kinds (memory operations, semaphores, conditional bodies). */
#ifndef CGR_DEVICES_CUDA_WALK_H
#define CGR_DEVICES_CUDA_WALK_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_graph_walk(cgr_device *dev, cgr__graph *graph, cgr__node_visitor visit, void *context);

#endif

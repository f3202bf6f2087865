/* Capture, in thread-local mode, and graphs. */
#ifndef CGR_DEVICES_CUDA_GRAPH_H
#define CGR_DEVICES_CUDA_GRAPH_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_capture_begin(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_capture_end(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);
int cgr__cuda_capture_status(cgr_device *dev, cudaStream_t stream, int *capturing);
int cgr__cuda_capture_nodes(cgr_device *dev, cudaStream_t stream, const void **nodes, size_t capacity, size_t *count);
int cgr__cuda_graph_destroy(cgr_device *dev, cgr__graph *graph);
int cgr__cuda_instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info);
int cgr__cuda_exec_launch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream);
int cgr__cuda_exec_destroy(cgr_device *dev, cgr__exec *exec);

#endif

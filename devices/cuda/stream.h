/* Streams and events. Recording and waiting are one CUDA call each: no allocation, no lock, no sync. */
#ifndef CGR_DEVICES_CUDA_STREAM_H
#define CGR_DEVICES_CUDA_STREAM_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_stream_create(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *stream);
int cgr__cuda_stream_destroy(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_stream_sync(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_stream_query(cgr_device *dev, cudaStream_t stream);
int cgr__cuda_event_create(cgr_device *dev, cgr__event **event);
int cgr__cuda_event_destroy(cgr_device *dev, cgr__event *event);
int cgr__cuda_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__cuda_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__cuda_event_query(cgr_device *dev, cgr__event *event);
int cgr__cuda_event_sync(cgr_device *dev, cgr__event *event);

#endif

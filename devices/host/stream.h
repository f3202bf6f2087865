/* Streams: creation, recycling, waiting for all that a stream holds. */
#ifndef CGR_DEVICES_HOST_STREAM_H
#define CGR_DEVICES_HOST_STREAM_H

#include "devices/host/types.h"

int cgr__host_stream_create(cgr_device *dev, enum cgr__stream_priority priority, cudaStream_t *stream);
int cgr__host_stream_destroy(cgr_device *dev, cudaStream_t stream);
int cgr__host_stream_sync(cgr_device *dev, cudaStream_t stream);
int cgr__host_stream_query(cgr_device *dev, cudaStream_t stream);

void cgr__host_stream_retire(struct host_device *host, struct host_stream *stream); /* lock held; drains and joins */

#endif

/* Events: a position in a stream, or, when recorded in a capture, a set of nodes. */
#ifndef CGR_DEVICES_HOST_EVENT_H
#define CGR_DEVICES_HOST_EVENT_H

#include "devices/host/types.h"

int cgr__host_event_create(cgr_device *dev, cgr__event **event);
int cgr__host_event_destroy(cgr_device *dev, cgr__event *event);
int cgr__host_event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__host_event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream);
int cgr__host_event_query(cgr_device *dev, cgr__event *event);
int cgr__host_event_sync(cgr_device *dev, cgr__event *event);

#endif

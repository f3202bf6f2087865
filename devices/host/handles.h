/* The base of the host device: what is behind a handle, failures, the random generator. All but cgr__host_fail are called with
 * the lock held. */
#ifndef CGR_DEVICES_HOST_HANDLES_H
#define CGR_DEVICES_HOST_HANDLES_H

#include "devices/host/types.h"

/* Keeps `raw` for messages and returns `error`. */
int cgr__host_fail(struct host_device *host, int error, int raw);

/* The live stream or event behind a handle of this device; NULL after keeping the code of an invalid handle. */
struct host_stream *cgr__host_stream(struct host_device *host, cudaStream_t handle);
cgr__event *cgr__host_event(struct host_device *host, cgr__event *handle);

uint64_t cgr__host_random(struct host_device *host);

#endif

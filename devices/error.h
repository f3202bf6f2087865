/* Statuses of failed device calls. */
#ifndef CGR_DEVICES_ERROR_H
#define CGR_DEVICES_ERROR_H

#include "base/status.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL and CUDA's two named default streams: they belong to the current device, not to a handle, and order themselves against
 * other streams in ways that a step does not expect. */
static inline bool cgr__is_default_stream(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

/* The status of a device error (enum cgr__device_error), with a message that names what was being done. CGR_OK for 0. Without a
 * device, while it is being opened, the raw code is the one that cgr__set_device_code was given. */
cgr_status cgr__device_fail(cgr_device *dev, int error, const char *what);

#ifdef __cplusplus
}
#endif
#endif

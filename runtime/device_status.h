/* Statuses of failed device calls. */
#ifndef CGR_RUNTIME_DEVICE_STATUS_H
#define CGR_RUNTIME_DEVICE_STATUS_H

#include "devices/device.h"
#include "runtime/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The status of a device error (enum cgr__device_error), with a message that names what was being done. CGR_OK for 0. */
cgr_status cgr__device_fail(cgr_device *dev, int error, const char *what);

#ifdef __cplusplus
}
#endif
#endif

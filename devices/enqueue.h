/* What the public functions enqueue that need a device and no runtime: one kernel, loaded when it is first used. */
#ifndef CGR_DEVICES_ENQUEUE_H
#define CGR_DEVICES_ENQUEUE_H

#include "cgr/device.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of kernels that are loaded late (cgr__kernel.number), no two alike: those of interop/ begin with 1, and these are the
 * last ones. */
#define CGR__KERNEL_NUMBER_GATHER 31

/* Checks what every such function requires of the device and the stream. */
cgr_status cgr__check_enqueue(const char *function, const cgr_device *device, cudaStream_t stream);

/* Enqueues a kernel for a public function; the first time on a device, outside of a capture, loads it. */
cgr_status cgr__enqueue_kernel(const char *function, cgr_device *device, const cgr__kernel *kernel, const void *args,
                               cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

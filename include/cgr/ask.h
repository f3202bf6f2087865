/* What attention kernels can do and want, asked before caches are made. Not included by cgr.h. */
#ifndef CGR_ASK_H
#define CGR_ASK_H

#include "cgr/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a backend can do and wants for a layer like this one on this device (cgr_device_get_info): before caches exist, so that
 * the engine can make them as the kernels want them. `backend` NULL: the library's own kernels. `layer` is as in cgr_config, but
 * of its views only k.dtype and v.dtype are needed, and a field that is not known yet is 0. Whether `layer` and `backend` are
 * valid is not checked here, but by cgr_validate. The library answers for each field by itself: cgr_validate tells which
 * combinations its kernels refuse (K of 16 bits with V of 8, say).
 * CGR_ERROR_UNSUPPORTED: the backend has no `describe`, or the library has no kernels for the device. CGR_ERROR_CALLBACK: the
 * backend's function failed, or its answer is out of range or contradicts itself.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_backend_ask(const cgr_backend *backend, const cgr_device_info *device, const cgr_layer *layer,
                                   cgr_backend_needs *needs);

#ifdef __cplusplus
}
#endif
#endif

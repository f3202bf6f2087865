/* How the validation layer names a call of the device's table: by the public function (cgr/device.h) that makes it, or in words
 * where only runtimes make it. */
#ifndef CGR_DEVICES_SHIMS_CALLS_H
#define CGR_DEVICES_SHIMS_CALLS_H

#include "devices/shims/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cgr_copy", "graph launch", ...; static storage. `kind`: of the memory of an allocation or a free. */
const char *cgr__call_name(enum cgr__shim_op op, enum cgr__memory_kind kind);

#ifdef __cplusplus
}
#endif
#endif

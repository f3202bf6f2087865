/* Pools of operations: small ones for most arguments, large ones up to the limit. They grow and never shrink before close. With
 * the lock held. */
#ifndef CGR_DEVICES_HOST_POOL_H
#define CGR_DEVICES_HOST_POOL_H

#include "devices/host/types.h"

bool cgr__host_pools_init(struct host_device *host); /* false: no memory; free them all the same */
void cgr__host_pools_free(struct host_device *host);

/* NULL: no memory, and the failure is kept. */
struct host_op *cgr__host_op_take(struct host_device *host, size_t args_bytes);
void cgr__host_op_return(struct host_device *host, struct host_op *op);

#endif

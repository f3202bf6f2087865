/* Waiters: a thread sleeps until an operation has completed and with it the word has been raised. */
#ifndef CGR_DEVICES_HOST_WAITER_H
#define CGR_DEVICES_HOST_WAITER_H

#include "devices/host/types.h"

int cgr__host_waiter_create(cgr_device *dev, uint64_t *word, cgr__waiter **waiter);
int cgr__host_waiter_destroy(cgr_device *dev, cgr__waiter *waiter);
int cgr__host_waiter_wait(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t ns);

#endif

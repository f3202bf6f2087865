/* Devices after fork(). A child has neither the workers of a host device nor the contexts of a GPU, and a lock may be held by a
 * thread that it does not have, so a wait there would never end. So the devices that were open at the fork get, in the
 * child alone, a table whose operations touch nothing: those that destroy succeed, the others answer CGR__DEVICE_DEAD. */
#ifndef CGR_DEVICES_FORK_H
#define CGR_DEVICES_FORK_H

#include "devices/device.h"

#define CGR__RAW_FORKED (-1) /* in last_raw: no device's API has such a code */

/* For a device that opens or closes. False without memory. */
bool cgr__fork_watch(cgr_device *dev);
void cgr__fork_unwatch(cgr_device *dev);

#endif

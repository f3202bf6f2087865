/* Execution, below the queues: one item of work, or all nodes of a graph in the order that the schedule picks. Under ASYNC
 * without the lock, else with it. */
#ifndef CGR_DEVICES_HOST_RUN_H
#define CGR_DEVICES_HOST_RUN_H

#include "devices/host/types.h"

void cgr__host_run_work(const struct host_work *work);
void cgr__host_run_exec(struct host_device *host, cgr__exec *exec);

#endif

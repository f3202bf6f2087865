/* The queues of the streams, and when their operations run: a worker per stream (ASYNC), or the calling thread at the moment that
 * the schedule picks. With the lock held. Nothing here allocates but an operation of the pool. */
#ifndef CGR_DEVICES_HOST_QUEUE_H
#define CGR_DEVICES_HOST_QUEUE_H

#include <time.h>

#include "devices/host/types.h"

void cgr__host_push(struct host_stream *stream, struct host_op *op);
/* Makes `stream` wait until `target` has completed operation `number`. NO_MEMORY: it does not. */
int cgr__host_push_wait(struct host_device *host, struct host_stream *stream, struct host_stream *target, uint64_t number);

/* What the schedule runs at an enqueue. */
void cgr__host_progress(struct host_device *host, struct host_stream *stream);
void cgr__host_wait(struct host_device *host, struct host_stream *stream, uint64_t number);
int cgr__host_query(struct host_device *host, struct host_stream *stream, uint64_t number);

/* Under ASYNC: sleeps until some operation has completed, or until `end` of CLOCK_MONOTONIC, which is false. */
bool cgr__host_sleep_until(struct host_device *host, const struct timespec *end);

/* The thread of a stream under ASYNC, until stream->stop is set and the queue is empty. Takes the lock itself. */
void *cgr__host_worker(void *stream);

#endif

/* Waiters: a stream of their own waits for the word, then calls a function on the host, which wakes the thread.
 *
 * Why not an event: one per launch would cost every step, and one that is recorded when the wait begins comes after whatever the
 * stream has been given since the step. A wait for the word ends with the step itself, and costs only those who sleep.
 *
 * Why it cannot block what it waits for: a GPU has fewer queues than there may be streams (CUDA_DEVICE_MAX_CONNECTIONS), so what
 * is enqueued after the wait, on a stream that shares its queue, starts only when the wait ends. The awaited step precedes the
 * wait, and so do all its pieces; work that a step needs from a later enqueue of another stream would have to come before
 * the wait. The stream has a priority that no other stream of the library has, because streams of different priorities are not
 * expected to share a queue. In any case the word is looked at every few milliseconds, whatever the GPU makes of the wait.
 *
 * There is one wait on the stream at a time. One that has timed out stays there until the word gets so far: then a later wait for
 * more begins when it ends, and one for less polls. */
#ifndef CGR_DEVICES_CUDA_WAITER_H
#define CGR_DEVICES_CUDA_WAITER_H

#include "devices/cuda/cuda_device.h"

int cgr__cuda_waiter_create(cgr_device *dev, uint64_t *word, cgr__waiter **waiter);
int cgr__cuda_waiter_destroy(cgr_device *dev, cgr__waiter *waiter);
int cgr__cuda_waiter_wait(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t ns);

/* Frees those that a lost device may have been about to wake. */
void cgr__cuda_waiters_free(struct cuda_device *cuda);

#endif

/* Trace: counts the calls of each operation and keeps the last ones in order. For tests of what a path does and does not do
 * ("a replayed step is one exec_launch: no allocation, no synchronisation"). Allocates nothing after it is opened. */
#ifndef CGR_DEVICES_SHIMS_TRACE_H
#define CGR_DEVICES_SHIMS_TRACE_H

#include "devices/shims/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__TRACE_RING 4096u

struct cgr__trace_entry {
  struct cgr__shim_call call;
  int error; /* what was answered */
};

/* Wraps `inner`; closing the trace closes it. On failure `inner` is untouched. */
int cgr__trace_open(cgr_device *inner, cgr_device **dev);

/* Calls since opening or the last reset, those that failed included. */
uint64_t cgr__trace_count(cgr_device *dev, enum cgr__shim_op op);
uint64_t cgr__trace_total(cgr_device *dev);
uint64_t cgr__trace_failed(cgr_device *dev); /* answered neither OK nor NOT_READY */
uint64_t cgr__trace_syncs(cgr_device *dev);  /* stream_sync, event_sync, and stream_destroy, exec_destroy, which may wait */
uint64_t cgr__trace_allocs(cgr_device *dev); /* whatever makes or frees: memory, streams, events, graphs, execs */

/* The index-th call since the last reset; false when it is not there or not in the ring any more. */
bool cgr__trace_get(cgr_device *dev, uint64_t index, struct cgr__trace_entry *entry);

void cgr__trace_reset(cgr_device *dev);

#ifdef __cplusplus
}
#endif
#endif

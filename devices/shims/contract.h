/* Contract: checks the rules of the table before the inner device sees a call, on any device, and refuses what breaks them:
 *
 * - an event, graph, exec or memory that was not made here or is destroyed; a destroyed stream. Streams that were never made
 *   here are refused over the host device, and taken as the engine's own over CUDA;
 * - in capture: sync, query or destruction of a capturing stream; query or sync of a captured event; a second begin; an end
 *   without a begin or by another thread; allocation, free or instantiation by a thread that captures. Unlike CUDA's own
 *   refusal, this one does not spoil the capture: the inner device never hears of the call;
 * - an exec destroyed while a launch of it may still run, as far as waits made through this device tell;
 * - at close: whatever is left.
 *
 * A refusal is CGR__DEVICE_INVALID, or the code of the capture rule. */
#ifndef CGR_DEVICES_SHIMS_CONTRACT_H
#define CGR_DEVICES_SHIMS_CONTRACT_H

#include "devices/shims/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cgr__contract_report {
  uint64_t violations;
  uint64_t leaks;  /* counted at close: memory, streams, events, graphs and execs still alive, and captures still open */
  char first[160]; /* what the first violation was */
};

/* Wraps `inner`; closing the contract closes it. `report` is zeroed here, is the caller's, and outlives the device. On failure
 * `inner` is untouched. Read the report only while no other thread is in a call. */
int cgr__contract_open(cgr_device *inner, struct cgr__contract_report *report, cgr_device **dev);

#ifdef __cplusplus
}
#endif
#endif

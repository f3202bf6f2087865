/* Steps as trace events: a page for Perfetto or chrome://tracing. */
#ifndef CGR_TRACING_EVENTS_H
#define CGR_TRACING_EVENTS_H

#include <stdbool.h>

#include "cgr/cgr.h"
#include "cgr/tracing.h"
#include "tracing/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__events_head {
  const char *device;
  bool timed;                     /* there are events of the device's */
  uint64_t device_clock_error_ns; /* of their times; only if there are any */
} cgr__events_head;

/* Opens the page; all events that follow begin with a comma. */
void cgr__events_begin(cgr__text *text, const cgr__events_head *head);
/* What the host did for a step. */
void cgr__events_host(cgr__text *text, const cgr_flight_record *record);
/* What the device did, in the order of cgr_runtime_timing. `record`: the step's, or NULL if it is no longer kept. */
void cgr__events_device(cgr__text *text, uint64_t seq, const cgr_flight_record *record, const cgr_span *spans, int32_t count);

#ifdef __cplusplus
}
#endif
#endif

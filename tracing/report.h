/* What is told as a text, for the files that write one. */
#ifndef CGR_TRACING_REPORT_H
#define CGR_TRACING_REPORT_H

#include "cgr/cgr.h"
#include "tracing/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__report {
  cgr_stats stats;
  const char *device, *mode;
  const char *dead; /* what the runtime has died of; NULL: it has not */
  int32_t num_keys;
  const void *context;
  void (*get_key)(const void *context, int32_t index, cgr_key_stats *stats); /* -1: the eager steps */
} cgr__report;

/* Keys that say nothing are left out: there may be hundreds. */
static inline int cgr__report_tells(const cgr_key_stats *stats) { return stats->steps > 0 || stats->misses > 0; }

#ifdef __cplusplus
}
#endif
#endif

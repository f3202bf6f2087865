/* What a table or a page of metrics is written from: the whole runtime's statistics, and a way to each key's. */
#ifndef CGR_TRACING_REPORT_H
#define CGR_TRACING_REPORT_H

#include <stdbool.h>

#include "cgr/cgr.h"
#include "cgr/tracing.h"
#include "tracing/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__report {
  cgr_stats stats;
  const char *device, *mode;
  const char *dead; /* what the runtime has died of; NULL: it has not */
  int32_t num_keys;
  void *context;
  /* Of a key; -1: of the eager steps. The histograms, which are most of the struct, are filled in only `with_times`. Returns
   * whether a page of metrics shows the key: it has been used, missed or captured, now or when it was asked for before. Scrapers
   * take a series that ends for one that is gone. */
  bool (*get_key)(void *context, int32_t index, bool with_times, cgr_key_stats *stats);
} cgr__report;

#ifdef __cplusplus
}
#endif
#endif

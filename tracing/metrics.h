/* Statistics for Prometheus, in its text exposition format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats). */
#ifndef CGR_TRACING_METRICS_H
#define CGR_TRACING_METRICS_H

#include "cgr/tracing.h"
#include "tracing/report.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__MAX_LABELS 16

cgr_status cgr__metrics_check_labels(const char *function, const cgr_label *labels, int32_t num_labels);
/* The labels have been checked. */
void cgr__metrics_write(cgr__text *text, const cgr__report *report, const cgr_label *labels, int32_t num_labels);

#ifdef __cplusplus
}
#endif
#endif

/* What the steps did and cost: as tables for people, as JSON, and as metrics for Prometheus. */
#ifndef LLAMA_REPORT_H
#define LLAMA_REPORT_H

#include <cgr/tracing.h>
#include <stdio.h>

#include "examples/llama/host_time.h"
#include "examples/llama/meter.h"

/* Steps by what was in them and how they ran; why they ran so; the graphs. */
int llama_report_tables(FILE *out, llama_meter *meter, cgr_runtime *runtime);
/* Where the memory's rate is known and there were mixed steps: how much of their time it was busy, as reckoned from
 * bytes. */
int llama_report_overlap(FILE *out, const llama_meter *meter, cgr_runtime *runtime, const llama_model *model, llama_sizes sizes);
/* Members of a JSON object. `stats`: of the requests' steps alone. */
int llama_report_json(FILE *out, llama_meter *meter, cgr_runtime *runtime, const cgr_stats *stats, const llama_host_time *time);
int llama_report_metrics(FILE *out, cgr_runtime *runtime);

#endif

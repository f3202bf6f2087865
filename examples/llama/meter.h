/* What the steps cost the host, per kind of step. */
#ifndef LLAMA_METER_H
#define LLAMA_METER_H

#include <cgr/cgr.h>
#include <stddef.h>
#include <stdio.h>

#include "examples/llama/scheduler.h"

typedef struct llama_series {
  float *values; /* microseconds */
  size_t count, capacity;
} llama_series;

typedef struct llama_kind {
  uint64_t steps, requests, real_tokens, padded_tokens, bytes_staged;
  llama_series prepare, launch, both;
} llama_kind;

typedef struct llama_meter {
  llama_kind kinds[LLAMA_NUM_PHASES][3]; /* [llama_phase][cgr_graph_kind] */
  uint64_t finished, generated;          /* requests, and their tokens */
  double seconds;                        /* of the whole loop */
  llama_series intervals;                /* from one step's results to the next one's */
  double completed;                      /* when results were read last; before the first step, when the loop began */
} llama_meter;

double llama_now(void); /* seconds of a monotonic clock */

int llama_meter_add(llama_meter *meter, llama_phase phase, const cgr_step *step, double prepare_seconds, double launch_seconds);
/* The results of a step have just been read. */
int llama_meter_completed(llama_meter *meter);
void llama_meter_free(llama_meter *meter);

int llama_series_add(llama_series *series, double seconds);

/* The value below which `share` of the series is; sorts it. 0 for an empty one. */
float llama_quantile(llama_series *series, double share);

/* Host time of all steps that replayed a graph, or of those that ran eagerly: their number and the median of prepare + launch. */
int llama_meter_median(const llama_meter *meter, int replayed, uint64_t *steps, float *microseconds);

/* The table for people, and the same as members of a JSON object. */
int llama_report_print(FILE *out, llama_meter *meter, cgr_runtime *runtime);
int llama_report_json(FILE *out, llama_meter *meter, cgr_runtime *runtime);

/* What the runtime reports about itself: its own table, and its metrics for Prometheus. */
int llama_report_stats(FILE *out, cgr_runtime *runtime);
int llama_report_metrics(FILE *out, cgr_runtime *runtime);

#endif

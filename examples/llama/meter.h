/* What the steps cost the host, per kind of step. */
#ifndef LLAMA_METER_H
#define LLAMA_METER_H

#include <cgr/cgr.h>
#include <stddef.h>

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
  uint64_t generated;                    /* tokens of all requests */
  uint64_t prompt;                       /* tokens of prompts that steps computed */
  double seconds;                        /* of the whole loop */
  double prompt_seconds;                 /* of the steps with tokens of prompts, each from the results before it to its own */
  double generation_seconds;             /* of the steps that sampled; a step may count in both */
  llama_pace paces[LLAMA_NUM_PACES];     /* of the steps without tokens of prompts, their time counted as above */
  llama_demand mixed;                    /* of the steps with both, their time counted as above */
  llama_series first_token;              /* of each request: from when it was added to its first token */
  llama_series between_tokens;           /* of each request: from one token to the next */
  llama_series intervals;                /* from one step's results to the next one's */
  llama_series agreements;               /* of ranks, one for each step: waits for others included */
  double completed;                      /* when results were read last; before the first step, when the loop began */
} llama_meter;

double llama_now(void); /* seconds of a monotonic clock */

int llama_meter_add(llama_meter *meter, llama_phase phase, const cgr_step *step, double prepare_seconds, double launch_seconds);
/* `result` has just been read: takes the times of its step and of its tokens, before the scheduler takes the tokens. */
int llama_meter_results(llama_meter *meter, const llama_work *work, const cgr_step_result *result);
void llama_meter_free(llama_meter *meter);

int llama_series_add(llama_series *series, double seconds);

/* The value below which `share` of the series is; sorts it. 0 for an empty one. */
float llama_quantile(llama_series *series, double share);

#endif

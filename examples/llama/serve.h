/* The loop of the engine: compose, prepare, launch, and read the tokens of the step before. */
#ifndef LLAMA_SERVE_H
#define LLAMA_SERVE_H

#include <stdbool.h>

#include "examples/llama/engine.h"
#include "examples/llama/logits.h"
#include "examples/llama/meter.h"
#include "examples/llama/scheduler.h"
#include "examples/llama/text.h"
#include "examples/llama/trace.h"

/* What a step cost the host, in seconds. */
typedef struct llama_cost {
  double agree; /* with other ranks, whom it waits for; 0: there are none */
  double prepare, launch;
} llama_cost;

/* Prepares and launches one step of `batch` on the engine's stream; `step` tells how it ran. When step->state is not
 * CGR_STEP_LAUNCHED the results that are due must be read first: try again after that. */
int llama_step(llama_engine *engine, const cgr_batch *batch, cgr_step *step, llama_cost *cost);

/* The loop's state; all but `in_flight`, `work` and `steps`, which begin as zeros, is its caller's. */
typedef struct llama_loop {
  llama_engine *engine;
  llama_scheduler *scheduler;
  llama_meter *meter;
  llama_logits *logits; /* as below; may be without a file */
  llama_trace *trace;   /* the same */
  llama_text *text;     /* the same */
  cgr_mark in_flight;   /* the step whose results have not been read; seq 0: none */
  llama_work work;      /* what it does; its arrays are gone */
  uint64_t steps;
} llama_loop;

/* Composes and launches a step and reads the results of the one before, or reads results if there is nothing to launch;
 * `*idle`: there was neither. */
int llama_loop_turn(llama_loop *loop, bool *idle);
/* Runs `steps` steps, or fewer if no request is left, and reads their results. */
int llama_loop_steps(llama_loop *loop, uint64_t steps);

/* Waits for a step, and as long for other ranks as they may take. */
int llama_wait(const llama_engine *engine, cgr_mark mark, cgr_step_result *result);

/* Runs until no request is left. With `logits` each step is waited for. `text` grows as its request's tokens come. */
int llama_serve(llama_engine *engine, llama_scheduler *scheduler, llama_meter *meter, llama_logits *logits, llama_trace *trace,
                llama_text *text, bool show_progress);

#endif

/* The loop of the engine: compose, prepare, launch, and read the tokens of the step before. */
#ifndef LLAMA_SERVE_H
#define LLAMA_SERVE_H

#include "examples/llama/engine.h"
#include "examples/llama/logits.h"
#include "examples/llama/meter.h"
#include "examples/llama/scheduler.h"

/* Prepares and launches one step of `batch` on the engine's stream; a full ring is waited for. `step` tells how it ran;
 * times in seconds. */
int llama_step(llama_engine *engine, const cgr_batch *batch, cgr_step *step, double *prepare_time, double *launch_time);

/* Runs until no request is left. With `logits` each step is waited for. */
int llama_serve(llama_engine *engine, llama_scheduler *scheduler, llama_meter *meter, llama_logits *logits, int show_progress);

#endif

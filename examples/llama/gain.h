/* --draft-compare: the same requests once more without guesses, on the same runtime. */
#ifndef LLAMA_GAIN_H
#define LLAMA_GAIN_H

#include <stdio.h>

#include "examples/llama/serve.h"

/* `meter` and `requests` are those of the run with guesses, which is over; `config` is its scheduler's. Prints both speeds, and
 * the gain next to what the times of the steps predict. Of guesses that were compared it also prints how many requests have the
 * same tokens: others part where two logits are so close that rounding decides. */
int llama_gain_measure(FILE *out, llama_engine *engine, const llama_scheduler_config *config, const llama_meter *meter,
                       const llama_request *requests, int32_t num_requests);

#endif

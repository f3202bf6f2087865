/* What the program says before any text: what runs, where, and with which graphs. Each line as soon as it is known. */
#ifndef LLAMA_INTRO_H
#define LLAMA_INTRO_H

#include <stdio.h>

#include "examples/llama/engine.h"

/* cgr and the device; then the model. */
int llama_intro_device(FILE *out, cgr_device *device);
void llama_intro_model(FILE *out, const char *name, const llama_model *model, int32_t dtype);

/* The KV cache, and the graphs. `seconds`: since the program began. */
int llama_intro_engine(FILE *out, const llama_engine *engine, double seconds);

#endif

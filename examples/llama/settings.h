/* What options mean: names of modes, types and layouts, and the folder of the model. */
#ifndef LLAMA_SETTINGS_H
#define LLAMA_SETTINGS_H

#include "examples/llama/engine.h"
#include "examples/llama/options.h"

/* The bundled model is in Bazel's runfiles, in the workspace, or next to the program. */
int llama_find_bundled_model(char *path, size_t size);

/* Reads the options that are names, before anything is loaded. `*dtype` is NONE without --dtype. */
int llama_read_names(const llama_options *options, llama_limits *limits, int32_t *dtype);

/* Reads --draft and refuses what cannot go with it. */
int llama_read_draft(const llama_options *options, llama_draft *draft);

/* What the model is called: its folder's name, "bundled", or its shape's: "8b (random)". */
void llama_model_name(const llama_options *options, char *name, size_t size);

#endif

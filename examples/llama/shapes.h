/* Models that are known by name and have no weights: for measuring without a download. */
#ifndef LLAMA_SHAPES_H
#define LLAMA_SHAPES_H

#include "examples/llama/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "1b", "8b" or "tiny". The model has a config and no tensors. */
int llama_shape_open(const char *name, llama_model **model);

#ifdef __cplusplus
}
#endif
#endif

/* A file of logits, to be compared with another implementation's.
 *
 * Little-endian words of 32 bits: {0x31474f4c ("LOG1"), vocab, 0, 0}, then one record for each token that was sampled, in the
 * order of the steps: {request, position of the last token it was computed from, token sampled, 0}, logits f32 [vocab]. */
#ifndef LLAMA_LOGITS_H
#define LLAMA_LOGITS_H

#include <stdio.h>

#include "examples/llama/engine.h"
#include "examples/llama/scheduler.h"

typedef struct llama_logits {
  FILE *file; /* NULL: not wanted, and the functions do nothing */
  const char *path;
  cgr_device *device;
  int32_t vocab;
  float *rows; /* pinned [max_requests][vocab] */
} llama_logits;

/* `file` is the caller's, open and empty; or NULL. */
int llama_logits_open(FILE *file, const char *path, const llama_engine *engine, llama_logits *logits);
/* Waits for the step that was just launched and copies its rows. */
int llama_logits_fetch(llama_logits *logits, const llama_engine *engine, int32_t num_requests);
/* Writes them; to be called before another step is composed. */
int llama_logits_write(llama_logits *logits, const cgr_step_result *result);
void llama_logits_close(llama_logits *logits);

#endif

/* A trace of the whole run for Perfetto: what the host and the device did for each step, written as the steps complete. */
#ifndef LLAMA_TRACE_H
#define LLAMA_TRACE_H

#include <stdio.h>

#include "examples/llama/engine.h"

typedef struct llama_trace {
  FILE *file; /* NULL: not wanted, and the functions do nothing */
  cgr_runtime *runtime;
  char *text;
  size_t capacity;
} llama_trace;

/* Writes the page's head; `file` is the caller's, open and empty, or NULL. */
int llama_trace_open(FILE *file, const llama_engine *engine, llama_trace *trace);
/* Writes a step that has completed; to be called before ring_depth others are launched. */
int llama_trace_step(llama_trace *trace, cgr_mark mark);
/* Writes the page's end. */
void llama_trace_close(llama_trace *trace);

#endif

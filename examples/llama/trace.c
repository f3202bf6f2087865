#include "examples/llama/trace.h"

#include <cgr/tracing.h>
#include <stdlib.h>

/* A step's events, or with seq 0 the head. */
static cgr_status ask(const llama_trace *t, cgr_mark mark, size_t *length) {
  return mark.seq ? cgr_runtime_trace_step(t->runtime, mark, t->text, t->capacity, length)
                  : cgr_runtime_trace_head(t->runtime, t->text, t->capacity, length);
}

/* The text may differ a little from call to call: ask until it fits. */
static int write_text(llama_trace *t, cgr_mark mark) {
  const char *function = mark.seq ? "cgr_runtime_trace_step" : "cgr_runtime_trace_head";
  size_t length = 0;
  TRY(llama_cgr(ask(t, mark, &length), function));
  while (length >= t->capacity) {
    char *grown = realloc(t->text, 2 * length + 4096);
    if (!grown)
      return llama_fail("no memory");
    t->text = grown;
    t->capacity = 2 * length + 4096;
    TRY(llama_cgr(ask(t, mark, &length), function));
  }
  fputs(t->text, t->file);
  return 0;
}

int llama_trace_open(FILE *file, const llama_engine *engine, llama_trace *trace) {
  *trace = (llama_trace){ .file = file, .runtime = engine->runtime };
  return file ? write_text(trace, (cgr_mark){ 0, 0, 0 }) : 0;
}

int llama_trace_step(llama_trace *trace, cgr_mark mark) { return trace->file ? write_text(trace, mark) : 0; }

void llama_trace_close(llama_trace *trace) {
  if (trace->file)
    fputs(CGR_TRACE_TAIL, trace->file);
  free(trace->text);
  *trace = (llama_trace){ .file = NULL };
}

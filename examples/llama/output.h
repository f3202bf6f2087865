/* Files that the program writes: opened before the run, so that a path that cannot be written costs no run, and emptied only when
 * there is something to write. */
#ifndef LLAMA_OUTPUT_H
#define LLAMA_OUTPUT_H

#include <stdio.h>

typedef struct llama_output {
  const char *option; /* "--json" */
  const char *path;
  FILE *file; /* NULL: not asked for */
} llama_output;

/* `path` NULL: not asked for. */
int llama_output_open(const char *option, const char *path, llama_output *output);
/* Refuses two that are one file. */
int llama_output_differ(const llama_output *a, const llama_output *b);
/* Empties the file: from here on it is written. */
int llama_output_begin(llama_output *output);
/* 0 when all that was written has arrived. */
int llama_output_close(llama_output *output);

#endif

/* The text of a request, printed as its tokens come. */
#ifndef LLAMA_TEXT_H
#define LLAMA_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "examples/llama/scheduler.h"

typedef struct llama_text {
  FILE *out;
  const llama_request *request; /* NULL: nothing is printed */
  bool bytes;                   /* tokens are bytes; else ids are printed, with commas between them */
  int32_t shown;                /* of its generated tokens */
} llama_text;

/* Prints the prompt, dimmed at a terminal unless NO_COLOR is set. */
void llama_text_begin(FILE *out, const llama_request *request, bool bytes, llama_text *text);
/* Prints the tokens that are new. */
void llama_text_continue(llama_text *text);
/* Ends the line. */
void llama_text_end(llama_text *text);

/* The texts of requests `first` to `count` - 1, with a line before each. */
void llama_texts_print(FILE *out, const llama_request *requests, int32_t first, int32_t count, bool bytes);

#endif

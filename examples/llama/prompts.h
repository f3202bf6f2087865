/* Prompts as tokens, and tokens as text. */
#ifndef LLAMA_PROMPTS_H
#define LLAMA_PROMPTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/llama/model.h"
#include "examples/llama/options.h"

typedef struct llama_prompt {
  int32_t *tokens;
  int32_t num_tokens;
  int32_t *forced; /* NULL, or what follows */
  int32_t num_forced;
} llama_prompt;

typedef struct llama_prompts {
  llama_prompt *items;
  int count;
  bool bytes; /* tokens are bytes */
} llama_prompts;

/* A vocabulary of bytes, perhaps with a few special tokens after them, and no tokenizer. */
bool llama_tokens_are_bytes(const llama_model *model);

/* The prompts that the options ask for; without any, a few of its own for a model of bytes. */
int llama_prompts_make(const llama_options *options, const llama_model *model, llama_prompts *prompts);
void llama_prompts_free(llama_prompts *prompts);

/* Tokens as readable text, or as numbers. */
void llama_tokens_print(FILE *out, const int32_t *tokens, int32_t count, bool bytes);

#endif

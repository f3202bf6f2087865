#include "examples/llama/text.h"

#include <stdlib.h>
#include <unistd.h>

#include "examples/llama/error.h"
#include "examples/llama/prompts.h"

void llama_text_begin(FILE *out, const llama_request *request, bool bytes, llama_text *text) {
  const char *colours = getenv("NO_COLOR");
  bool dim = isatty(fileno(out)) && !(colours && *colours);
  *text = (llama_text){ .out = out, .request = request, .bytes = bytes };
  fputs(dim ? "\033[2m" : "", out);
  llama_tokens_print(out, request->prompt, request->num_prompt, bytes);
  fputs(dim ? "\033[0m" : "", out);
  fflush(out);
}

void llama_text_continue(llama_text *text) {
  const llama_request *r = text->request;
  if (!r || text->shown == r->num_generated)
    return;
  fputs(text->bytes ? "" : ",", text->out);
  llama_tokens_print(text->out, r->generated + text->shown, r->num_generated - text->shown, text->bytes);
  text->shown = r->num_generated;
  fflush(text->out);
}

void llama_text_end(llama_text *text) {
  if (text->request)
    fputc('\n', text->out);
  text->request = NULL;
}

void llama_texts_print(FILE *out, const llama_request *requests, int32_t first, int32_t count, bool bytes) {
  for (int32_t i = first; i < count; i++) {
    const llama_request *r = &requests[i];
    llama_text text;
    fprintf(out, "\n--- request %d: %d token%s of prompt, %d generated, ended by %s\n", i, r->num_prompt,
            llama_plural(r->num_prompt), r->num_generated, r->ended_early ? "an end token" : "its limit");
    llama_text_begin(out, r, bytes, &text);
    llama_text_continue(&text);
    llama_text_end(&text);
  }
}

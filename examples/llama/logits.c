#include "examples/llama/logits.h"

#include <string.h>

int llama_logits_open(FILE *file, const char *path, const llama_engine *engine, llama_logits *l) {
  memset(l, 0, sizeof(*l));
  if (!file)
    return 0;
  l->device = engine->device;
  l->vocab = (int32_t)engine->weights->vocab.count;
  size_t bytes = (size_t)engine->limits.max_requests * (size_t)l->vocab * sizeof(float);
  void *rows = NULL;
  TRY_CGR(cgr_memory_alloc_pinned(l->device, bytes, &rows));
  l->rows = rows;
  l->file = file;
  l->path = path;
  const int32_t header[4] = { 0x31474f4c, l->vocab, 0, 0 };
  fwrite(header, sizeof(header), 1, l->file);
  return 0;
}

int llama_logits_fetch(llama_logits *l, const llama_engine *engine, int32_t num_requests) {
  if (!l->file)
    return 0;
  size_t bytes = (size_t)num_requests * (size_t)l->vocab * sizeof(float);
  TRY_CGR(cgr_copy(l->device, l->rows, engine->logits, bytes, engine->stream));
  TRY_CGR(cgr_stream_synchronize(l->device, engine->stream));
  return 0;
}

int llama_logits_write(llama_logits *l, const cgr_step_result *result) {
  for (int32_t i = 0; l->file && i < result->num_requests; i++) {
    const llama_request *r = llama_result_request(result, i);
    const int32_t record[4] = { r->id, r->computed - 1, result->tokens[i * result->token_stride], 0 };
    if (result->num_tokens[i] == 0)
      continue;
    fwrite(record, sizeof(record), 1, l->file);
    fwrite(l->rows + (size_t)i * (size_t)l->vocab, sizeof(float), (size_t)l->vocab, l->file);
  }
  return l->file && ferror(l->file) ? llama_fail("%s: cannot be written", l->path) : 0;
}

void llama_logits_close(llama_logits *l) {
  if (l->rows)
    cgr_memory_free_pinned(l->device, l->rows);
  memset(l, 0, sizeof(*l));
}

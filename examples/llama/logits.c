#include "examples/llama/logits.h"

#include <errno.h>
#include <string.h>

int llama_logits_open(const char *path, const llama_engine *engine, llama_logits *l) {
  memset(l, 0, sizeof(*l));
  if (!path)
    return 0;
  l->path = path;
  l->device = engine->device;
  l->vocab = engine->weights->config.vocab_size;
  size_t bytes = (size_t)engine->limits.max_requests * (size_t)l->vocab * sizeof(float);
  void *rows = NULL;
  TRY_CGR(cgr_memory_alloc_pinned(l->device, bytes, &rows));
  l->rows = rows;
  l->file = fopen(path, "wb");
  if (!l->file)
    return llama_fail("%s: %s", path, strerror(errno));
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

int llama_logits_write(llama_logits *l, const llama_work *work, const int32_t *tokens) {
  if (!l->file)
    return 0;
  for (int32_t i = 0; i < work->batch.num_requests; i++) {
    const int32_t record[4] = { work->requests[i]->id, work->last_position[i], tokens[i], 0 };
    if (work->batch.flags && (work->batch.flags[i] & CGR_REQUEST_PARTIAL))
      continue;
    fwrite(record, sizeof(record), 1, l->file);
    fwrite(l->rows + (size_t)i * (size_t)l->vocab, sizeof(float), (size_t)l->vocab, l->file);
  }
  return ferror(l->file) ? llama_fail("%s: cannot be written", l->path) : 0;
}

int llama_logits_close(llama_logits *l) {
  int failed = l->file && fclose(l->file) != 0;
  cgr_memory_free_pinned(l->device, l->rows);
  return failed ? llama_fail("%s: cannot be written", l->path) : 0;
}

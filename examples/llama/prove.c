#include "examples/llama/prove.h"

#include <cgr/inspect.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/llama/error.h"

#define NUM_PAGES 64 /* for the self-test: with all of them it would take longer */

/* Kernels of NCCL hold addresses of its own, which are in no region. */
static bool has_foreign_kernels(const llama_engine *e) { return e->team && e->team->ranks->library; }

static int audit(const llama_engine *e) {
  cgr_audit seen = CGR_AUDIT_INIT;
  cgr_finding finding;
  int32_t count = 0;
  cgr_status status = cgr_runtime_audit(e->runtime, &seen, &finding, 1, &count);
  if (count > 0)
    return llama_fail("audit: %s: %s (%d finding%s)", finding.field, finding.text, count, llama_plural(count));
  if (status != CGR_OK)
    return llama_fail("audit: %s", cgr_last_message());
  printf("  audit: %d graph%s of %lld nodes: %lld addresses, all in regions; %lld opaque node%s\n", seen.num_graphs,
         llama_plural(seen.num_graphs), (long long)seen.num_nodes, (long long)seen.num_addresses, (long long)seen.num_hidden,
         llama_plural(seen.num_hidden));
  return 0;
}

static int self_test(const llama_engine *e, const int32_t *pages, int32_t num_pages) {
  const int64_t row = e->weights->vocab.count * (int64_t)sizeof(float);
  const cgr_watch logits = { "logits", e->logits, row, row, CGR_DIMENSION_REQUESTS, 0 };
  /* Every request samples, with a temperature of its own. */
  const cgr_staged_range staged[] = { { LLAMA_DATA_NOISE, 0, 0.0, INT32_MAX },
                                      { LLAMA_DATA_TEMPERATURE, 0, 0.25, 2.0 },
                                      { LLAMA_DATA_RATE, 0, 0.0, 1.0 } };
  cgr_self_test test = CGR_SELF_TEST_INIT;
  cgr_finding finding;
  int32_t count = 0;
  test.pages = pages;
  test.num_pages = num_pages;
  test.max_token = e->weights->config.vocab_size;
  test.watched = &logits;
  test.num_watched = !e->limits.draft.count; /* with guesses a request's logits have no fixed place: --check compares them */
  test.staged = staged;
  test.num_staged = LLAMA_NUM_DATA + (e->limits.draft.kind == LLAMA_DRAFT_COIN);
  cgr_status status = cgr_runtime_self_test(e->runtime, &test, &finding, 1, &count);
  if (count > 0)
    return llama_fail("self-test: %s: %s (%d finding%s)", finding.field, finding.text, count, llama_plural(count));
  if (status != CGR_OK)
    return llama_fail("self-test: %s", cgr_last_message());
  printf("  self-test: each does what an eager step does, whatever padding and stale memory hold\n");
  return 0;
}

static int prove(llama_engine *e) {
  int32_t num_pages = e->limits.num_pages - 2 < NUM_PAGES ? e->limits.num_pages - 2 : NUM_PAGES;
  TRY(llama_engine_capture(e));
  if (!has_foreign_kernels(e))
    TRY(audit(e));
  int32_t *pages = calloc((size_t)num_pages, sizeof(*pages));
  if (!pages)
    return llama_fail("no memory");
  for (int32_t i = 0; i < num_pages; i++)
    pages[i] = i + 2; /* 0 and 1 are cgr's */
  int result = self_test(e, pages, num_pages);
  free(pages);
  return result;
}

int llama_prove(const llama_limits *limits, const llama_weights *weights, llama_ops *ops, cudaStream_t stream) {
  llama_engine *engine = NULL;
  TRY(llama_engine_create(limits, weights, ops, stream, &engine));
  int result = prove(engine);
  llama_engine_destroy(engine);
  return result;
}

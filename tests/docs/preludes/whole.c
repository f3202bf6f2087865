/* In an engine that gives its batch whole: its running requests, and what it does for them. */
#include "tests/docs/preludes/common.h"

enum { MAX_REQUESTS = 64, CHUNK = 512, MAX_TOKENS = MAX_REQUESTS + CHUNK };
typedef struct request {
  uint64_t tag;
  int32_t row, prompt_len, computed;
  const int32_t *prompt;
} request;
extern request *running[MAX_REQUESTS];
extern int32_t num_running;
extern cudaStream_t stream;
cgr_status give_pages(const int32_t *query_lens);
int deliver(uint64_t tag, int32_t token);
void retire(uint64_t tag);

@BLOCK@

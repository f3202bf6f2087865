/* In an engine that runs: its requests, a step of it, and what is asked of the runtime. */
#include "tests/docs/preludes/common.h"

extern cgr_step step;
extern cudaStream_t stream;
extern cgr_mark before;
extern uint64_t tag;
extern int32_t row, running, other, page_size, computed, window, dropped, cached, encoder_tokens, rest, vocabulary;
extern int32_t index, count, num_groups, region, page;
extern int32_t pages[64], prompt[1024], encoder_ids[1500], ids[32], first[4], new_counts[4];
extern const int32_t *new_pages[4];
extern int32_t rows[32], kv_indptr[33], kv_indices[1024], kv_last_page_len[32], num_requests; /* of an engine that uses FlashInfer */
extern float params[4];
extern void *weights, *new_weights;
extern size_t weights_bytes, capacity, length;
extern char *text;
extern FILE *file;

void deliver(uint64_t to, int32_t token);
void hand_over(uint64_t to, int32_t token, int32_t num_tokens);
void give_back(const int32_t *free_pages, int32_t num_pages);

cgr_status block(void) {
@BLOCK@
  return CGR_OK;
}

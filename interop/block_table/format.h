/* The block table that kernels like TRT-LLM-gen and XQA read (cgr/interop/block_table.h): vLLM's FlashInfer backend hands them a
 * table in batch order, seq_lens, and running sums of query tokens and of KV tokens, one more than there are requests.
 *
 * All functions are compiled as C for the host and as CUDA for the device. Nothing is validated here. */
#ifndef CGR_INTEROP_BLOCK_TABLE_FORMAT_H
#define CGR_INTEROP_BLOCK_TABLE_FORMAT_H

#include <stdint.h>

#include "base/host_device.h"

typedef struct cgr__block_table_task {
  int32_t num_requests, query_len, max_seq_len, max_pages, page_size;
  int32_t read_trash_page, num_rows, reserved;
  int64_t num_pages, page_table_stride;
  const int32_t *page_table, *rows, *seq_lens, *query_start_loc, *live_requests;
} cgr__block_table_task;

/* Words from the beginning of the memory, each a multiple of 4. */
typedef struct cgr__block_table_places {
  int64_t seq_lens, query_start_loc, kv_start_loc, words; /* the table is at 0 */
} cgr__block_table_places;

CGR__HOST_DEVICE int64_t cgr__block_table_rounded(int64_t words) { return (words + 3) / 4 * 4; }

CGR__HOST_DEVICE cgr__block_table_places cgr__block_table_locate(const cgr__block_table_task *t) {
  cgr__block_table_places p;
  p.seq_lens = cgr__block_table_rounded((int64_t)t->num_requests * t->max_pages);
  p.query_start_loc = p.seq_lens + cgr__block_table_rounded(t->num_requests);
  p.kv_start_loc = p.query_start_loc + cgr__block_table_rounded((int64_t)t->num_requests + 1);
  p.words = p.kv_start_loc + cgr__block_table_rounded((int64_t)t->num_requests + 1);
  return p;
}

/* The number of live requests; `live` is what *live_requests holds. */
CGR__HOST_DEVICE int32_t cgr__block_table_live(const cgr__block_table_task *t, int32_t live) {
  return live < 0 ? 0 : live > t->num_requests ? t->num_requests : live;
}

/* Tokens of a live request: none when its row or its length is out of range. */
CGR__HOST_DEVICE int32_t cgr__block_table_len(const cgr__block_table_task *t, int32_t row, int32_t seq_len) {
  return row >= 0 && row < t->num_rows && seq_len > 0 && seq_len <= t->max_seq_len ? seq_len : 0;
}

CGR__HOST_DEVICE int32_t cgr__block_table_pages(const cgr__block_table_task *t, int32_t seq_len) {
  return (int32_t)(((uint32_t)seq_len + (uint32_t)t->page_size - 1) / (uint32_t)t->page_size);
}

CGR__HOST_DEVICE int32_t cgr__block_table_page(const cgr__block_table_task *t, int32_t page) {
  return page >= 0 && page < t->num_pages ? page : t->read_trash_page;
}

#endif

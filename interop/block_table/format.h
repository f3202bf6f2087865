/* The block table that kernels like TRT-LLM-gen and XQA read (cgr/interop/block_table.h): vLLM's FlashInfer backend hands them a
 * table in batch order, seq_lens, and running sums of query tokens and of KV tokens, one more than there are requests. Decodes
 * and prefills are two launches, so each of these two stretches of a batch may have arrays of its own.
 *
 * All functions are compiled as C for the host and as CUDA for the device. Nothing is validated here. */
#ifndef CGR_INTEROP_BLOCK_TABLE_FORMAT_H
#define CGR_INTEROP_BLOCK_TABLE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

typedef struct cgr__block_table_task {
  int32_t num_requests, query_len, max_seq_len, max_pages; /* max_pages: the kernel's */
  int32_t page_size, kernel_page_size, pages_each;         /* pages_each: the kernel's pages in one of page_table's */
  int32_t read_trash_page, num_rows;
  int32_t is_uniform;               /* each decode has query_len tokens */
  int32_t has_prefills, is_rebased; /* is_rebased: the prefills' query tokens count from the first prefill on */
  int64_t num_pages, page_table_stride;
  const int32_t *page_table, *rows, *seq_lens, *query_start_loc, *live_requests, *first_prefill;
} cgr__block_table_task;

/* Words from the beginning of the memory, each a multiple of 4. */
typedef struct cgr__block_table_arrays {
  int64_t table, seq_lens, query_start_loc, kv_start_loc;
} cgr__block_table_arrays;

#define CGR__BLOCK_TABLE_STRETCHES 2 /* decodes, or all requests; prefills */
#define CGR__BLOCK_TABLE_COUNTS 4    /* words of a stretch: requests, query tokens, the most of a request, longest sequence */

typedef struct cgr__block_table_places {
  cgr__block_table_arrays of[CGR__BLOCK_TABLE_STRETCHES];
  int64_t counts, words; /* without prefills there are no counts */
} cgr__block_table_places;

CGR__HOST_DEVICE int64_t cgr__block_table_rounded(int64_t words) { return (words + 3) / 4 * 4; }

CGR__HOST_DEVICE cgr__block_table_places cgr__block_table_locate(const cgr__block_table_task *t) {
  cgr__block_table_places p;
  int64_t at = 0, starts = cgr__block_table_rounded((int64_t)t->num_requests + 1);
  for (int32_t s = 0; s < CGR__BLOCK_TABLE_STRETCHES; s++) {
    cgr__block_table_arrays *a = &p.of[s];
    a->table = at;
    a->seq_lens = a->table + cgr__block_table_rounded((int64_t)t->num_requests * t->max_pages);
    a->query_start_loc = a->seq_lens + cgr__block_table_rounded(t->num_requests);
    a->kv_start_loc = a->query_start_loc + starts;
    at = s == 0 || t->has_prefills ? a->kv_start_loc + starts : at;
  }
  p.counts = at;
  p.words = at + (t->has_prefills ? CGR__BLOCK_TABLE_STRETCHES * CGR__BLOCK_TABLE_COUNTS : 0);
  return p;
}

/* Requests [first, end) of the batch, which are the first entries of their arrays; the rest is padding. */
typedef struct cgr__block_table_stretch {
  int32_t first, end;
  int32_t first_token; /* of query_start_loc: what its entries are counted from */
  bool is_uniform;
} cgr__block_table_stretch;

/* `live` and `first_prefill` are what the arrays of these names hold; the latter is not used without prefills. */
CGR__HOST_DEVICE cgr__block_table_stretch cgr__block_table_find(const cgr__block_table_task *t, int32_t index, int32_t live,
                                                                int32_t first_prefill) {
  cgr__block_table_stretch s = { 0, live < 0 ? 0 : live > t->num_requests ? t->num_requests : live, 0, false };
  int32_t border = !t->has_prefills || first_prefill > s.end ? s.end : first_prefill < 0 ? 0 : first_prefill;
  s.first = index == 0 ? 0 : border;
  s.end = index == 0 ? border : s.end;
  s.first_token = index == 0 || !t->is_rebased ? 0 : t->query_start_loc[s.first];
  s.is_uniform = index == 0 && t->is_uniform;
  return s;
}

/* Entry j of the stretch's query_start_loc, 0 .. num_requests. */
CGR__HOST_DEVICE int32_t cgr__block_table_query_start(const cgr__block_table_task *t, const cgr__block_table_stretch *s,
                                                      int32_t j) {
  return t->query_start_loc[j < s->end - s->first ? s->first + j : s->end] - s->first_token;
}

/* Tokens of entry j, 0 .. num_requests - 1: none for padding, when its row or its length is out of range or the length does not
 * have its new tokens, and for a decode whose tokens are not where a kernel that takes q_len_per_req looks for them. */
CGR__HOST_DEVICE int32_t cgr__block_table_len(const cgr__block_table_task *t, const cgr__block_table_stretch *s, int32_t j) {
  if (j >= s->end - s->first)
    return 0;
  int32_t i = s->first + j, row = t->rows[i], seq_len = t->seq_lens[i];
  if (s->is_uniform) {
    int64_t begin = (int64_t)i * t->query_len;
    if (t->query_start_loc[i] != begin || t->query_start_loc[i + 1] != begin + t->query_len)
      return 0;
  }
  if (seq_len < t->query_start_loc[i + 1] - t->query_start_loc[i])
    return 0;
  return row >= 0 && row < t->num_rows && seq_len > 0 && seq_len <= t->max_seq_len ? seq_len : 0;
}

/* The kernel's pages of a sequence. */
CGR__HOST_DEVICE int32_t cgr__block_table_pages(const cgr__block_table_task *t, int32_t seq_len) {
  return (int32_t)(((uint32_t)seq_len + (uint32_t)t->kernel_page_size - 1) / (uint32_t)t->kernel_page_size);
}

/* The index in a row of page_table of the kernel's page p. */
CGR__HOST_DEVICE int32_t cgr__block_table_index(const cgr__block_table_task *t, int32_t p) {
  return t->pages_each == 1 ? p : (int32_t)((uint32_t)p / (uint32_t)t->pages_each);
}

/* The kernel's page p, where page_table has `page` at its index. */
CGR__HOST_DEVICE int32_t cgr__block_table_page(const cgr__block_table_task *t, int32_t page, int32_t p) {
  page = page >= 0 && page < t->num_pages ? page : t->read_trash_page;
  return page * t->pages_each + (p - cgr__block_table_index(t, p) * t->pages_each);
}

/* What follows a row's pages. */
CGR__HOST_DEVICE int32_t cgr__block_table_padding(const cgr__block_table_task *t) { return t->read_trash_page * t->pages_each; }

#endif

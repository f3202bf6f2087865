#include "interop/block_table/host.h"

#include <string.h>

static void fill_row(const cgr__block_table_task *t, int32_t seq_len, int32_t i, int32_t *out) {
  const int32_t pages = cgr__block_table_pages(t, seq_len);
  const int32_t *from = pages > 0 ? t->page_table + t->rows[i] * t->page_table_stride : NULL;
  for (int32_t p = 0; p < t->max_pages; p++)
    out[p] = p < pages ? cgr__block_table_page(t, from[cgr__block_table_index(t, p)], p) : cgr__block_table_padding(t);
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/* `counts`: NULL: not wanted. */
static void fill_stretch(const cgr__block_table_task *t, const cgr__block_table_stretch *s, const cgr__block_table_arrays *at,
                         int32_t *memory, int32_t *counts) {
  int32_t sum = 0, most_tokens = 0, longest = 0;
  for (int32_t j = 0; j <= t->num_requests; j++) {
    memory[at->query_start_loc + j] = cgr__block_table_query_start(t, s, j);
    memory[at->kv_start_loc + j] = sum;
    if (j == t->num_requests)
      break;
    int32_t seq_len = cgr__block_table_len(t, s, j);
    fill_row(t, seq_len, s->first + j, memory + at->table + (int64_t)j * t->max_pages);
    memory[at->seq_lens + j] = seq_len;
    sum += seq_len;
    longest = larger(longest, seq_len);
    most_tokens = larger(most_tokens, cgr__block_table_query_start(t, s, j + 1) - cgr__block_table_query_start(t, s, j));
  }
  if (!counts)
    return;
  counts[0] = s->end - s->first;
  counts[1] = t->query_start_loc[s->end] - t->query_start_loc[s->first];
  counts[2] = most_tokens;
  counts[3] = longest;
}

void cgr__block_table_fill(const cgr__block_table_task *t, int32_t *memory) {
  const cgr__block_table_places at = cgr__block_table_locate(t);
  const int32_t live = t->live_requests ? *t->live_requests : t->num_requests;
  const int32_t first_prefill = t->has_prefills ? *t->first_prefill : 0;
  memset(memory, 0, (size_t)at.words * sizeof *memory);
  for (int32_t i = 0; i < (t->has_prefills ? CGR__BLOCK_TABLE_STRETCHES : 1); i++) {
    const cgr__block_table_stretch s = cgr__block_table_find(t, i, live, first_prefill);
    int32_t *counts = memory + at.counts + i * CGR__BLOCK_TABLE_COUNTS;
    fill_stretch(t, &s, &at.of[i], memory, t->has_prefills ? counts : NULL);
  }
}

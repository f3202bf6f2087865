#include "interop/block_table/host.h"

#include <string.h>

static void fill_row(const cgr__block_table_task *t, int32_t seq_len, int32_t i, int32_t *out) {
  const int32_t pages = cgr__block_table_pages(t, seq_len);
  const int32_t *from = pages > 0 ? t->page_table + t->rows[i] * t->page_table_stride : NULL;
  for (int32_t p = 0; p < t->max_pages; p++)
    out[p] = p < pages ? cgr__block_table_page(t, from[p]) : t->read_trash_page;
}

void cgr__block_table_fill(const cgr__block_table_task *t, int32_t *memory) {
  const cgr__block_table_places at = cgr__block_table_locate(t);
  const int32_t live = cgr__block_table_live(t, t->live_requests ? *t->live_requests : t->num_requests);
  int32_t sum = 0;
  memset(memory, 0, (size_t)at.words * sizeof *memory);
  for (int32_t i = 0; i < t->num_requests; i++) {
    int32_t seq_len = i < live ? cgr__block_table_len(t, t->rows[i], t->seq_lens[i]) : 0;
    fill_row(t, seq_len, i, memory + (int64_t)i * t->max_pages);
    memory[at.seq_lens + i] = seq_len;
    memory[at.query_start_loc + i] = t->query_start_loc[i < live ? i : live];
    memory[at.kv_start_loc + i] = sum;
    sum += seq_len;
  }
  memory[at.query_start_loc + t->num_requests] = t->query_start_loc[live];
  memory[at.kv_start_loc + t->num_requests] = sum;
}

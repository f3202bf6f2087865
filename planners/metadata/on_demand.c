#include "planners/metadata/on_demand.h"

/* Lengths of the prefills, and their running sum; each may be NULL. */
static void fill_prefill_lens(const cgr__on_demand *d, int32_t set, int32_t num_decodes) {
  int32_t *lens = d->prefill_seq_lens[set], *starts = d->prefill_kv_start_loc[set], sum = 0;
  for (int32_t j = 0; (lens || starts) && j < d->padded_requests; j++) {
    int32_t length = cgr__prefill_len(d, set, num_decodes, j);
    if (lens)
      lens[j] = length;
    if (starts)
      starts[j] = sum;
    sum += length;
  }
  if (starts)
    starts[d->padded_requests] = sum;
}

/* Running sum of the lengths. */
static void fill_starts(const int32_t *lens, int32_t count, int32_t *starts) {
  starts[0] = 0;
  for (int32_t i = 0; i < count; i++)
    starts[i + 1] = starts[i] + lens[i];
}

void cgr__on_demand_fill(const cgr__on_demand *d, int32_t num_decodes) {
  int32_t context = 0;
  for (int32_t s = 0; s < d->num_sets; s++) {
    if (d->kv_start_loc[s])
      fill_starts(d->seq_lens[s], d->padded_requests, d->kv_start_loc[s]);
    fill_prefill_lens(d, s, num_decodes);
  }
  for (int32_t i = 0; d->context_lens && i < d->padded_requests; i++)
    d->context_lens[i] = cgr__context_len(d, i);
  for (int32_t i = 0; d->context_start_loc && i <= d->padded_requests; i++) {
    d->context_start_loc[i] = context;
    context += i < d->padded_requests ? cgr__context_len(d, i) : 0;
  }
  for (int32_t j = 0; d->prefill_query_start_loc && j <= d->padded_requests; j++)
    d->prefill_query_start_loc[j] = cgr__prefill_query_start(d, num_decodes, j);
}

/* The read-trash page's first from `count` on; `extent`: NULL, or up to where there may be anything else. */
static void clear_row(const cgr__on_demand_group *g, int32_t *row, int32_t count, int32_t *extent) {
  int64_t end = extent ? *extent : g->block_table_stride;
  for (int64_t p = count; p < end; p++)
    row[p] = cgr__block_padding(g);
  if (extent)
    *extent = count;
}

/* The pages of request i, in the list and in the tables; and the row of padding that falls to a decode. */
static void fill_pages(const cgr__on_demand *d, const cgr__on_demand_group *g, int32_t i, int32_t num_decodes,
                       cgr__refuse_function refused, void *context) {
  int32_t begin = g->kv_indptr[i], count = g->kv_indptr[i + 1] - begin, row = d->request_rows[i];
  int32_t place = cgr__prefill_row(d, num_decodes, i), of_prefill = i >= num_decodes ? count : 0;
  int32_t *list = g->kv_indices ? g->kv_indices + begin : NULL;
  int32_t *table = g->block_table ? g->block_table + i * g->block_table_stride : NULL;
  int32_t *prefills = g->prefill_block_table ? g->prefill_block_table + place * g->block_table_stride : NULL;
  for (int32_t p = 0; p < (list || table ? count : of_prefill); p++) {
    int32_t page = cgr__page_entry(g, row, p);
    if (!cgr__page_is_readable(g, page)) {
      refused(context, CGR_GUARD_PAGE, row, cgr__page_index(g, p), page);
      page = g->read_trash_page;
    }
    if (list)
      list[p] = cgr__kernel_page(g, page, p);
    if (table)
      table[p] = cgr__kernel_page(g, page, p);
    if (prefills && p < of_prefill)
      prefills[p] = cgr__kernel_page(g, page, p);
  }
  if (table)
    clear_row(g, table, count, g->block_extents ? &g->block_extents[i] : NULL);
  if (prefills)
    clear_row(g, prefills, of_prefill, g->prefill_block_extents ? &g->prefill_block_extents[place] : NULL);
}

void cgr__on_demand_fill_group(const cgr__on_demand *d, const cgr__on_demand_group *g, int32_t num_decodes,
                               cgr__refuse_function refused, void *context) {
  for (int32_t i = 0; (g->kv_indices || g->block_table || g->prefill_block_table) && i < d->padded_requests; i++)
    fill_pages(d, g, i, num_decodes, refused, context);
  for (int32_t j = 0; g->prefill_kv_indptr && j <= d->padded_requests; j++)
    g->prefill_kv_indptr[j] = g->kv_indptr[cgr__prefill_place(d, num_decodes, j)];
  for (int32_t j = 0; g->prefill_kv_last_page_len && j < d->padded_requests; j++)
    g->prefill_kv_last_page_len[j] = cgr__prefill_last_page_len(d, g, num_decodes, j);
}

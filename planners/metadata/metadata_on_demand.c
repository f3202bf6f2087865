#include "planners/metadata/metadata_on_demand.h"

#include <stdbool.h>

#include "base/status.h"
#include "planners/metadata/decode_split.h"
#include "planners/metadata/on_demand.h"

/* ---------------------------------------------------------------------------------------------------------------- checks */

static int32_t *prefill_table_of(const cgr_metadata *m, int32_t i) {
  return m->prefill_block_table ? m->prefill_block_table[i] : NULL;
}

/* Without a threshold there are no prefills. */
static cgr_status check_threshold(const cgr_metadata *m) {
  const char *name = m->prefill_query_start_loc ? "prefill_query_start_loc"
                     : m->prefill_seq_lens      ? "prefill_seq_lens"
                     : m->prefill_kv_start_loc  ? "prefill_kv_start_loc"
                     : m->prefill_block_table   ? "prefill_block_table"
                                                : NULL;
  if (m->reorder_threshold < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: reorder_threshold is %d, expected at least 0",
                     m->reorder_threshold);
  if (m->reorder_threshold == 0 && m->uniform_split)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: uniform_split is 1 and reorder_threshold is 0, expected at least 1");
  if (m->reorder_threshold == 0 && name)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: %s is given and reorder_threshold is 0, expected at least 1", name);
  if (m->prefill_block_table && !m->on_demand)
    return cgr__fail(CGR_ERROR_NULL_POINTER,
                     "cgr_metadata_build: on_demand is NULL, expected the block_table_stride of prefill_block_table");
  return CGR_OK;
}

/* Kernels may read the page, since it becomes an entry of lists and tables. */
static cgr_status check_trash_page(const cgr_metadata *m, int32_t i) {
  const cgr_metadata_on_demand *d = &m->on_demand[i];
  const cgr_metadata_group *g = &m->groups[i];
  const bool is_entry = d->kv_indices || d->block_table || prefill_table_of(m, i);
  if (!is_entry || (g->read_trash_page >= 0 && g->read_trash_page < g->num_pages))
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_metadata_build: groups[%d].read_trash_page is %d, expected a page of the %lld of the pool (num_pages)", i,
                   g->read_trash_page, (long long)g->num_pages);
}

static cgr_status check_group(const cgr_metadata *m, int32_t i) {
  const cgr_metadata_on_demand *d = &m->on_demand[i];
  int64_t size = cgr__kernel_page_size(&m->groups[i]),
          pages = m->max_seq_len > 0 ? ((int64_t)m->max_seq_len + size - 1) / size : 0;
  if ((d->block_table || prefill_table_of(m, i)) && d->block_table_stride < pages)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_metadata_build: on_demand[%d].block_table_stride is %lld, expected at least %lld (max_seq_len / kernel_page_size)",
        i, (long long)d->block_table_stride, (long long)pages);
  if (d->kv_indices && d->max_kv_indices < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: on_demand[%d].max_kv_indices is %lld, expected at least 0",
                     i, (long long)d->max_kv_indices);
  if (m->reorder_threshold == 0 && (d->prefill_kv_indptr || d->prefill_kv_last_page_len))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: on_demand[%d].%s is given and reorder_threshold is 0, expected at least 1", i,
                     d->prefill_kv_indptr ? "prefill_kv_indptr" : "prefill_kv_last_page_len");
  return CGR_OK;
}

/* Requests without tokens may stand anywhere. */
static cgr_status check_order(const cgr_metadata *m) {
  int32_t prefill = -1;
  for (int32_t i = 0; m->reorder_threshold > 0 && i < m->num_requests; i++) {
    if (m->query_lens[i] > m->reorder_threshold)
      prefill = i;
    else if (prefill >= 0 && m->query_lens[i] > 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_metadata_build: query_lens[%d] is %d after the %d of request %d, expected decodes first "
                       "(reorder_threshold is %d)",
                       i, m->query_lens[i], m->query_lens[prefill], prefill, m->reorder_threshold);
  }
  return CGR_OK;
}

/* Rows that a guard will refuse count for nothing. */
static int64_t sum_tokens(const cgr_metadata *m) {
  int64_t tokens = 0;
  for (int32_t i = 0; i < m->num_requests; i++) {
    bool good = m->rows[i] >= 0 && m->rows[i] < m->max_rows && m->row_computed[m->rows[i]] >= 0;
    int64_t length = good ? (int64_t)m->row_computed[m->rows[i]] + m->query_lens[i] : 0;
    tokens += length <= m->max_seq_len ? length : 0;
  }
  return tokens;
}

cgr_status cgr__metadata_check_on_demand(const cgr_metadata *m) {
  if (m->uniform_split != 0 && m->uniform_split != 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: uniform_split is %d, expected 0 or 1", m->uniform_split);
  CGR__TRY(check_threshold(m));
  for (int32_t i = 0; m->on_demand && i < m->num_groups; i++)
    CGR__TRY(check_group(m, i));
  for (int32_t i = 0; m->on_demand && i < m->num_groups; i++)
    CGR__TRY(check_trash_page(m, i));
  if ((m->kv_start_loc || m->context_start_loc || m->prefill_kv_start_loc) && sum_tokens(m) > INT32_MAX)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: the requests have %lld tokens, expected at most %d for kv_start_loc, "
                     "context_start_loc and prefill_kv_start_loc",
                     (long long)sum_tokens(m), INT32_MAX);
  return check_order(m);
}

cgr_status cgr__metadata_check_pages(const cgr_metadata *m, int32_t group, int64_t pages) {
  const cgr_metadata_on_demand *d = m->on_demand ? &m->on_demand[group] : NULL;
  if (!d || !d->kv_indices || pages <= d->max_kv_indices)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_metadata_build: on_demand[%d].max_kv_indices is %lld, expected at least %lld, the pages of the batch",
                   group, (long long)d->max_kv_indices, (long long)pages);
}

/* ------------------------------------------------------------------------------------------------------------------ fill */

static int32_t count_decodes(const cgr_metadata *m) {
  cgr__decodes decodes = { .split = { m->reorder_threshold, m->uniform_split } };
  for (int32_t i = 0; i < m->num_requests; i++)
    cgr__decodes_add(&decodes, m->query_lens[i]);
  return cgr__decodes_count(&decodes);
}

static cgr__on_demand_group group_of(const cgr_metadata *m, int32_t i) {
  const cgr_metadata_group *from = &m->groups[i];
  const cgr_metadata_on_demand *d = &m->on_demand[i];
  cgr__on_demand_group g = { .page_table = from->page_table, .page_table_stride = from->page_table_stride };
  g.num_pages = from->num_pages;
  g.read_trash_page = from->read_trash_page;
  g.write_trash_page = from->write_trash_page;
  g.pages_each = from->page_size / cgr__kernel_page_size(from);
  g.kv_indptr = from->kv_indptr;
  g.kv_last_page_len = from->kv_last_page_len;
  g.kv_indices = d->kv_indices;
  g.block_table = d->block_table;
  g.block_table_stride = d->block_table_stride;
  g.prefill_block_table = prefill_table_of(m, i);
  g.prefill_kv_indptr = d->prefill_kv_indptr;
  g.prefill_kv_last_page_len = d->prefill_kv_last_page_len;
  return g;
}

void cgr__metadata_fill_on_demand(const cgr_metadata *m, cgr__refuse_function refused, void *context) {
  cgr__on_demand d = { .query_start_loc = m->query_start_loc, .request_rows = m->request_rows, .num_sets = 1 };
  int32_t num_decodes = count_decodes(m);
  d.seq_lens[0] = m->seq_lens;
  d.kv_start_loc[0] = m->kv_start_loc;
  d.context_lens = m->context_lens;
  d.context_start_loc = m->context_start_loc;
  d.prefill_query_start_loc = m->prefill_query_start_loc;
  d.prefill_seq_lens[0] = m->prefill_seq_lens;
  d.prefill_kv_start_loc[0] = m->prefill_kv_start_loc;
  d.padded_requests = m->padded_requests;
  if (m->num_decodes)
    *m->num_decodes = num_decodes;
  cgr__on_demand_fill(&d, num_decodes);
  for (int32_t i = 0; m->on_demand && i < m->num_groups; i++) {
    const cgr__on_demand_group group = group_of(m, i);
    cgr__on_demand_fill_group(&d, &group, num_decodes, refused, context);
  }
}

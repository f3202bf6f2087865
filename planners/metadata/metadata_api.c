/* cgr_metadata_build: validation, then planners/metadata/metadata.c. */
#include <stdbool.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "planners/metadata/metadata.h"
#include "planners/metadata/metadata_on_demand.h"

/* The first thing that a guard refused. */
typedef struct refusal {
  cgr_guard_error error;
  int32_t row, index;
  int64_t value;
} refusal;

static void remember(void *context, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  refusal *first = context;
  if (first->error == CGR_GUARD_NONE)
    *first = (refusal){ error, row, index, value };
}

static cgr_status check_groups(const cgr_metadata *m) {
  if (m->num_groups < 0 || (m->num_groups > 0 && !m->groups))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: num_groups is %d and groups is %p, expected an array of them", m->num_groups,
                     (const void *)m->groups);
  for (int32_t i = 0; i < m->num_groups; i++) {
    const cgr_metadata_group *g = &m->groups[i];
    bool missing = (m->padded_tokens > 0 && !g->slot_mapping) || (m->padded_requests > 0 && !g->kv_last_page_len);
    if (!g->page_table || !g->kv_indptr || missing)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_metadata_build: groups[%d] has a NULL pointer, expected four addresses", i);
    if (g->page_size < 1)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: groups[%d].page_size is %d, expected at least 1", i,
                       g->page_size);
    if (g->kernel_page_size < 0 || (g->kernel_page_size > 0 && g->page_size % g->kernel_page_size != 0))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_metadata_build: groups[%d].kernel_page_size is %d, expected 0 (page_size) or a divisor of page_size "
                       "(%d)",
                       i, g->kernel_page_size, g->page_size);
    if (g->num_pages > INT32_MAX / (g->page_size / cgr__kernel_page_size(g)) && cgr__kernel_page_size(g) < g->page_size)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_metadata_build: groups[%d].num_pages is %lld, expected at most %d, with %d pages of kernel_page_size "
                       "in each",
                       i, (long long)g->num_pages, INT32_MAX / (g->page_size / cgr__kernel_page_size(g)),
                       g->page_size / cgr__kernel_page_size(g));
  }
  return CGR_OK;
}

/* An array of no entries may be NULL. */
static cgr_status check_arrays(const cgr_metadata *m) {
  const struct {
    const char *name;
    const void *array;
    bool has_entries;
  } arrays[] = {
    { "rows", m->rows, m->num_requests > 0 },
    { "query_lens", m->query_lens, m->num_requests > 0 },
    { "row_computed", m->row_computed, m->num_requests > 0 },
    { "input_ids", m->input_ids, m->padded_tokens > 0 },
    { "positions", m->positions, m->padded_tokens > 0 },
    { "query_start_loc", m->query_start_loc, true },
    { "seq_lens", m->seq_lens, m->padded_requests > 0 },
    { "request_rows", m->request_rows, m->padded_requests > 0 },
    { "logits_indices", m->logits_indices, m->padded_requests > 0 },
  };
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    if (arrays[i].has_entries && !arrays[i].array)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_metadata_build: %s is NULL, expected an array", arrays[i].name);
  return CGR_OK;
}

static cgr_status check_metadata(const cgr_metadata *m) {
  if (m->num_requests < 0 || m->padded_requests < m->num_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_metadata_build: num_requests is %d and padded_requests %d, expected 0 or more, "
                     "and at least as many",
                     m->num_requests, m->padded_requests);
  if (m->padded_tokens < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: padded_tokens is %d, expected at least 0",
                     m->padded_tokens);
  CGR__TRY(cgr__check_unused("cgr_metadata_build: reserved", m->reserved));
  CGR__TRY(check_arrays(m));
  return check_groups(m);
}

/* Sequences as long as max_seq_len keep the running sum of pages inside 32 bits; rows that a guard will refuse count for none. */
static cgr_status check_sums(const cgr_metadata *m) {
  for (int32_t g = 0; g < m->num_groups; g++) {
    int64_t pages = 0, size = cgr__kernel_page_size(&m->groups[g]);
    for (int32_t i = 0; i < m->num_requests; i++) {
      bool good = m->rows[i] >= 0 && m->rows[i] < m->max_rows && m->row_computed[m->rows[i]] >= 0;
      int64_t length = good ? (int64_t)m->row_computed[m->rows[i]] + m->query_lens[i] : 0;
      if (length <= m->max_seq_len)
        pages += (length + size - 1) / size;
    }
    CGR__TRY(cgr__metadata_check_pages(m, g, pages));
    if (pages > INT32_MAX)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_metadata_build: the requests have %lld pages of group %d, expected at most %d", (long long)pages, g,
                       INT32_MAX);
  }
  return CGR_OK;
}

/* Copies rows and starts into the outputs; `*num_tokens` gets the sum of query_lens. */
static cgr_status take_batch_layout(const cgr_metadata *m, int32_t *num_tokens) {
  int64_t tokens = 0;
  bool needs_last = false;
  for (int32_t i = 0; i < m->num_requests; i++) {
    if (m->query_lens[i] < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_metadata_build: query_lens[%d] is %d, expected at least 0", i,
                       m->query_lens[i]);
    for (int32_t j = 0; j < m->query_lens[i] && tokens + j < m->padded_tokens; j++) {
      int32_t token = m->tokens ? m->tokens[tokens + j] : CGR_TOKEN_LAST;
      needs_last |= token == CGR_TOKEN_LAST;
      if (token < CGR_TOKEN_LAST)
        return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_metadata_build: tokens[%lld] is %d, expected a token id or CGR_TOKEN_LAST",
                         (long long)(tokens + j), token);
    }
    tokens += m->query_lens[i];
    if (tokens > m->padded_tokens)
      return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS,
                       "cgr_metadata_build: tokens of requests 0 .. %d are %lld, expected at most %d "
                       "(padded_tokens)",
                       i, (long long)tokens, m->padded_tokens);
    m->request_rows[i] = m->rows[i];
    m->query_start_loc[i + 1] = (int32_t)tokens;
  }
  if (needs_last && !m->row_last_tokens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_metadata_build: row_last_tokens is NULL, expected it for CGR_TOKEN_LAST");
  m->query_start_loc[0] = 0;
  *num_tokens = (int32_t)tokens;
  return CGR_OK;
}

cgr_status cgr_metadata_build(const cgr_metadata *metadata) {
  cgr_metadata m;
  refusal first = { CGR_GUARD_NONE, 0, 0, 0 };
  int32_t num_tokens = 0;
  CGR__TRY(cgr__sized_read("cgr_metadata_build: metadata", "CGR_METADATA_INIT", metadata, &m, sizeof m));
  CGR__TRY(check_metadata(&m));
  CGR__TRY(cgr__metadata_check_on_demand(&m));
  CGR__TRY(take_batch_layout(&m, &num_tokens));
  CGR__TRY(check_sums(&m));
  cgr__metadata_fill(&m, NULL, num_tokens, 1, remember, &first);
  cgr__metadata_fill_on_demand(&m, remember, &first);
  if (first.error == CGR_GUARD_NONE)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_STEP, "cgr_metadata_build: a guard refused a %s at row %d, index %d: %lld",
                   cgr_guard_error_name(first.error), first.row, first.index, (long long)first.value);
}

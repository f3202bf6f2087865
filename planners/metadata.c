#include "planners/metadata.h"

#include <stdbool.h>

/* One call of cgr__metadata_fill. */
typedef struct fill {
  const cgr_metadata *m;
  int32_t num_tokens, token_stride;
  cgr__refuse_function refuse;
  void *context;
} fill;

static void refuse(const fill *f, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  f->refuse(f->context, error, row, index, value);
}

/* Length of request i with its new tokens, or 0 when a guard refuses it. */
static int32_t request_length(const fill *f, int32_t i) {
  const cgr_metadata *m = f->m;
  int32_t row = m->request_rows[i];
  if (row < 0 || row >= m->max_rows) {
    refuse(f, CGR_GUARD_ROW, -1, i, row);
    return 0;
  }
  int32_t computed = m->row_computed[row];
  int64_t length = (int64_t)computed + m->query_start_loc[i + 1] - m->query_start_loc[i];
  if (computed < 0 || length > m->max_seq_len) {
    refuse(f, CGR_GUARD_LENGTH, row, i, length);
    return 0;
  }
  return (int32_t)length;
}

/* Where a new token goes. The read-trash page is never written, so a new token on it is as bad as one outside the pool. */
static int64_t token_slot(const fill *f, const cgr_metadata_group *group, int32_t row, int32_t position) {
  int32_t index = position / group->page_size;
  int32_t page = index < group->page_table_stride ? group->page_table[row * group->page_table_stride + index] : -1;
  if (page < 0 || page >= group->num_pages || page == group->write_trash_page || page == group->read_trash_page) {
    refuse(f, CGR_GUARD_PAGE, row, index, page);
    return -1;
  }
  return (int64_t)page * group->page_size + position % group->page_size;
}

static int32_t token_id(const fill *f, int32_t t, int32_t row) {
  const cgr_metadata *m = f->m;
  int32_t token = m->tokens ? __atomic_load_n(&m->tokens[t], __ATOMIC_RELAXED) : CGR_TOKEN_LAST; /* may be a mapped slot */
  return token == CGR_TOKEN_LAST ? m->row_last_tokens[(int64_t)row * f->token_stride] : token;
}

/* Request i, real or padding: a padded one has the padding row, no tokens and length 0. Returns its length. */
static int32_t write_request(const fill *f, int32_t i) {
  const cgr_metadata *m = f->m;
  bool real = i < m->num_requests;
  m->request_rows[i] = real ? m->request_rows[i] : m->max_rows;
  m->query_start_loc[i + 1] = real ? m->query_start_loc[i + 1] : f->num_tokens;
  int32_t query_len = m->query_start_loc[i + 1] - m->query_start_loc[i];
  int32_t seq_len = real ? request_length(f, i) : 0;
  m->seq_lens[i] = seq_len;
  m->logits_indices[i] = query_len > 0 ? m->query_start_loc[i + 1] - 1 : 0;
  for (int32_t k = 0; k < m->num_groups; k++) {
    const cgr_metadata_group *group = &m->groups[k];
    int64_t pages = ((int64_t)seq_len + group->page_size - 1) / group->page_size;
    group->kv_indptr[i + 1] = (int32_t)(group->kv_indptr[i] + pages);
    group->kv_last_page_len[i] = seq_len > 0 ? (seq_len - 1) % group->page_size + 1 : 1;
  }
  return seq_len;
}

/* Token t of a request of length `seq_len` that ends before token `end`; padding and refused requests have length 0. */
static void write_token(const fill *f, int32_t t, int32_t row, int32_t seq_len, int32_t end) {
  const cgr_metadata *m = f->m;
  int32_t position = seq_len > 0 ? seq_len - (end - t) : 0;
  m->input_ids[t] = seq_len > 0 ? token_id(f, t, row) : 0;
  m->positions[t] = position;
  for (int32_t k = 0; k < m->num_groups; k++)
    m->groups[k].slot_mapping[t] = seq_len > 0 ? token_slot(f, &m->groups[k], row, position) : -1;
}

void cgr__metadata_fill(const cgr_metadata *m, int32_t num_tokens, int32_t token_stride, cgr__refuse_function refused,
                        void *context) {
  const fill f = { m, num_tokens, token_stride, refused, context };
  int32_t t = 0;
  m->query_start_loc[0] = 0;
  for (int32_t k = 0; k < m->num_groups; k++)
    m->groups[k].kv_indptr[0] = 0;
  for (int32_t i = 0; i < m->padded_requests; i++) {
    int32_t seq_len = write_request(&f, i);
    for (; t < m->query_start_loc[i + 1]; t++)
      write_token(&f, t, m->request_rows[i], seq_len, m->query_start_loc[i + 1]);
  }
  for (; t < m->padded_tokens; t++) /* after the last request: padding */
    write_token(&f, t, m->max_rows, 0, t);
}

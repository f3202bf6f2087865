#include "planners/metadata/metadata.h"

#include <stdbool.h>

/* One call of cgr__metadata_fill. */
typedef struct fill {
  const cgr_metadata *m;
  const cgr__metadata_sets *sets; /* NULL: none but set 0 */
  int32_t set;                    /* whose tokens the step has */
  int32_t num_tokens, token_stride;
  cgr__refuse_function refuse;
  void *context;
} fill;

static void refuse(const fill *f, cgr_guard_error error, int32_t row, int32_t index, int64_t value) {
  f->refuse(f->context, error, row, index, value);
}

/* What a request has in each length set, its new tokens included. */
typedef struct lengths {
  int32_t in[CGR__MAX_SETS];
} lengths;

static bool follows(const fill *f, int32_t i) { return f->sets && f->sets->follows && f->sets->follows[i]; }

/* How many of its tokens a request of the draft has, that follows; all of them otherwise. */
static int64_t count_tokens(const fill *f, int32_t i, int32_t query_len) {
  const int32_t row = f->m->request_rows[i];
  return follows(f, i) ? (int64_t)f->sets->target_computed[row] + 1 - f->m->row_computed[row] : query_len;
}

static bool can_follow(const fill *f, int32_t row, int64_t count, int32_t query_len) {
  return count >= 1 && count <= query_len && count <= (int64_t)f->sets->num_accepted[row] + 1;
}

static int32_t num_sets(const fill *f) { return f->sets ? f->sets->num_sets : 1; }

/* All 0 when a guard refuses the request. */
static lengths request_lengths(const fill *f, int32_t i) {
  const cgr_metadata *m = f->m;
  lengths none = { { 0 } }, all = none;
  int32_t row = m->request_rows[i], query_len = m->query_start_loc[i + 1] - m->query_start_loc[i];
  if (row < 0 || row >= m->max_rows) {
    refuse(f, CGR_GUARD_ROW, -1, i, row);
    return none;
  }
  for (int32_t s = 0; s < num_sets(f); s++) {
    int32_t stored = s == 0 ? m->row_computed[row] : f->sets->lengths[(int64_t)row * (num_sets(f) - 1) + s - 1];
    int32_t least = s > 0 && s == f->set ? query_len : 0; /* in a set after 0 it includes the new tokens */
    int64_t length = s == 0 && f->set == 0 ? (int64_t)stored + query_len : stored;
    if (stored < least || length > (s == 0 ? m->max_seq_len : f->sets->max_lens[s])) {
      refuse(f, CGR_GUARD_LENGTH, row, i, length);
      return none;
    }
    all.in[s] = (int32_t)length;
  }
  if (follows(f, i) && !can_follow(f, row, count_tokens(f, i, query_len), query_len)) {
    refuse(f, CGR_GUARD_LENGTH, row, i, count_tokens(f, i, query_len));
    return none;
  }
  return all;
}

static int32_t set_of(const fill *f, int32_t group) { return f->sets ? f->sets->group_set[group] : 0; }

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

/* Request i, real or padding: a padded one has the padding row, no tokens and length 0. Returns its length in the set of the
 * step's tokens. */
static int32_t write_request(const fill *f, int32_t i) {
  const cgr_metadata *m = f->m;
  bool real = i < m->num_requests;
  m->request_rows[i] = real ? m->request_rows[i] : m->max_rows;
  m->query_start_loc[i + 1] = real ? m->query_start_loc[i + 1] : f->num_tokens;
  int32_t query_len = m->query_start_loc[i + 1] - m->query_start_loc[i];
  lengths all = { { 0 } };
  if (real)
    all = request_lengths(f, i);
  m->seq_lens[i] = all.in[0];
  for (int32_t s = 1; s < num_sets(f); s++)
    f->sets->seq_lens[s][i] = all.in[s];
  m->logits_indices[i] = query_len > 0 ? m->query_start_loc[i + 1] - 1 : 0;
  if (real && all.in[0] > 0 && follows(f, i))
    m->logits_indices[i] = m->query_start_loc[i] + (int32_t)count_tokens(f, i, query_len) - 1;
  for (int32_t k = 0; k < m->num_groups; k++) {
    const cgr_metadata_group *group = &m->groups[k];
    int32_t seq_len = all.in[set_of(f, k)], size = cgr__kernel_page_size(group);
    int64_t pages = ((int64_t)seq_len + size - 1) / size;
    group->kv_indptr[i + 1] = (int32_t)(group->kv_indptr[i] + pages);
    group->kv_last_page_len[i] = seq_len > 0 ? (seq_len - 1) % size + 1 : 1;
  }
  return all.in[f->set];
}

/* Token t of a request of length `seq_len` that ends before token `end`; padding and refused requests have length 0. */
static void write_token(const fill *f, int32_t t, int32_t row, int32_t seq_len, int32_t end) {
  const cgr_metadata *m = f->m;
  int32_t position = seq_len > 0 ? seq_len - (end - t) : 0;
  m->input_ids[t] = seq_len > 0 ? token_id(f, t, row) : 0;
  m->positions[t] = position;
  for (int32_t k = 0; k < m->num_groups; k++)
    m->groups[k].slot_mapping[t] = seq_len > 0 && set_of(f, k) == f->set ? token_slot(f, &m->groups[k], row, position) : -1;
}

void cgr__metadata_fill(const cgr_metadata *m, const cgr__metadata_sets *sets, int32_t num_tokens, int32_t token_stride,
                        cgr__refuse_function refused, void *context) {
  const fill f = { m, sets, sets ? sets->set : 0, num_tokens, token_stride, refused, context };
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

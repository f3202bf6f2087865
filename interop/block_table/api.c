/* cgr_block_table_get_layout and cgr_block_table_build, and the scales: validation (key.c), then host.c. */
#include <stdio.h>

#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "interop/block_table/host.h"
#include "interop/limits.h"

cgr_status cgr__block_table_check_memory(const char *function, const cgr__block_table_task *t, const void *memory, size_t bytes) {
  const size_t needed = (size_t)cgr__block_table_locate(t).words * sizeof(int32_t);
  const struct {
    const char *name;
    const int32_t *array;
  } arrays[] = {
    { "page_table", t->page_table }, { "rows", t->rows }, { "seq_lens", t->seq_lens }, { "query_start_loc", t->query_start_loc }
  };
  CGR__REQUIRE(memory, function);
  if (t->has_prefills && !t->first_prefill)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: first_prefill is NULL, expected an array, as max_prefill_query_len is not 0",
                     function);
  if (!t->has_prefills && t->first_prefill)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: first_prefill is %p, expected NULL, as max_prefill_query_len is 0",
                     function, (const void *)t->first_prefill);
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
    if (!arrays[i].array)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an array", function, arrays[i].name);
  if (bytes < needed)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is %zu, expected at least %zu (cgr_block_table_get_layout)", function,
                     bytes, needed);
  if ((uintptr_t)memory % 16 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: memory is %p, expected a multiple of 16", function, memory);
  return CGR_OK;
}

static size_t byte_of(int64_t word) { return (size_t)word * sizeof(int32_t); }

cgr_status cgr_block_table_get_layout(const cgr_block_table_input *input, cgr_block_table_layout *layout) {
  cgr__block_table_task t;
  cgr_block_table_input in;
  cgr_block_table_layout full = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR__TRY(cgr__sized_check("cgr_block_table_get_layout: layout", "CGR_BLOCK_TABLE_LAYOUT_INIT", layout));
  CGR__TRY(cgr__block_table_read_input("cgr_block_table_get_layout", "input", input, &in));
  cgr__block_table_task_of(&in, &t);
  const cgr__block_table_places at = cgr__block_table_locate(&t);
  full.query_len = full.max_query_len = t.query_len;
  full.max_seq_len = t.max_seq_len;
  full.bytes = byte_of(at.words);
  full.seq_lens = byte_of(at.of[0].seq_lens);
  full.query_start_loc = byte_of(at.of[0].query_start_loc);
  full.kv_start_loc = byte_of(at.of[0].kv_start_loc);
  full.hash = cgr__block_table_hash(&in);
  full.kernel_page_size = t.kernel_page_size;
  if (t.has_prefills) {
    full.max_prefill_query_len = in.max_prefill_query_len;
    full.prefill_block_table = byte_of(at.of[1].table);
    full.prefill_seq_lens = byte_of(at.of[1].seq_lens);
    full.prefill_query_start_loc = byte_of(at.of[1].query_start_loc);
    full.prefill_kv_start_loc = byte_of(at.of[1].kv_start_loc);
    full.counts = byte_of(at.counts);
  }
  cgr__sized_write(layout, &full, sizeof full);
  return CGR_OK;
}

static cgr_status check_request_pages(const cgr__block_table_task *t, int32_t i) {
  const int32_t *pages = t->page_table + t->rows[i] * t->page_table_stride;
  const int32_t count = (int32_t)(((int64_t)t->seq_lens[i] + t->page_size - 1) / t->page_size);
  for (int32_t p = 0; p < count; p++)
    if (pages[p] < 0 || pages[p] >= t->num_pages)
      return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                       "cgr_block_table_build: page_table[%d][%d] is %d, expected 0 .. %lld (request %d)", t->rows[i], p,
                       pages[p], (long long)t->num_pages - 1, i);
  return CGR_OK;
}

/* The query tokens of request i, which is a prefill from `first_prefill` on. */
static cgr_status check_query(const cgr__block_table_task *t, int32_t most_of_prefill, int32_t first_prefill, int32_t i) {
  const int64_t before = t->query_start_loc[i], most = i < first_prefill ? t->query_len : most_of_prefill;
  char name[40];
  snprintf(name, sizeof name, "query_start_loc[%d]", i + 1);
  if (i < first_prefill && t->is_uniform && t->query_start_loc[i + 1] != ((int64_t)i + 1) * t->query_len)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_block_table_build: %s is %d, expected %lld: with num_tokens each decode has query_len tokens (%d)",
                     name, t->query_start_loc[i + 1], ((long long)i + 1) * t->query_len, t->query_len);
  return cgr__check_range("cgr_block_table_build", name, t->query_start_loc[i + 1], before, before + most);
}

/* The sequence of request i, whose query tokens have been checked: they are the last of it. */
static cgr_status check_seq_len(const cgr__block_table_task *t, int32_t i) {
  const int32_t tokens = t->query_start_loc[i + 1] - t->query_start_loc[i];
  char name[40];
  snprintf(name, sizeof name, "seq_lens[%d]", i);
  CGR__TRY(cgr__check_range("cgr_block_table_build", name, t->seq_lens[i], 0, t->max_seq_len));
  if (t->seq_lens[i] < tokens)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_block_table_build: %s is %d, expected at least %d, the new tokens of request %d by query_start_loc",
                     name, t->seq_lens[i], tokens, i);
  return CGR_OK;
}

static cgr_status check_live(const cgr__block_table_task *t, int32_t most_of_prefill) {
  const int32_t live = t->live_requests ? *t->live_requests : t->num_requests;
  CGR__TRY(cgr__check_range("cgr_block_table_build", "live_requests[0]", live, 0, t->num_requests));
  const int32_t first_prefill = t->has_prefills ? *t->first_prefill : live;
  CGR__TRY(cgr__check_range("cgr_block_table_build", "first_prefill[0]", first_prefill, 0, live));
  if (t->is_uniform && t->query_start_loc[0] != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_block_table_build: query_start_loc[0] is %d, expected 0",
                     t->query_start_loc[0]);
  for (int32_t i = 0; i < live; i++) {
    char name[40];
    snprintf(name, sizeof name, "rows[%d]", i);
    CGR__TRY(cgr__check_range("cgr_block_table_build", name, t->rows[i], 0, t->num_rows - 1));
    CGR__TRY(check_query(t, most_of_prefill, first_prefill, i));
    CGR__TRY(check_seq_len(t, i));
    CGR__TRY(check_request_pages(t, i));
  }
  return CGR_OK;
}

cgr_status cgr_block_table_build(const cgr_block_table_input *input, void *memory, size_t bytes) {
  cgr__block_table_task t;
  cgr_block_table_input in;
  CGR__TRY(cgr__block_table_read_input("cgr_block_table_build", "input", input, &in));
  cgr__block_table_task_of(&in, &t);
  CGR__TRY(cgr__block_table_check_memory("cgr_block_table_build", &t, memory, bytes));
  CGR__TRY(check_live(&t, in.max_prefill_query_len));
  cgr__block_table_fill(&t, memory);
  return CGR_OK;
}

double cgr_block_table_bmm1_scale(double q_scale, double k_scale, double softmax_scale) {
  return q_scale * k_scale * softmax_scale;
}

double cgr_block_table_bmm2_scale(double v_scale, double o_scale) { return o_scale == 0 ? v_scale : v_scale / o_scale; }

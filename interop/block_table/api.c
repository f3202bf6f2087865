/* cgr_block_table_get_layout and cgr_block_table_build, and the scales: validation, then host.c. */
#include <stdio.h>

#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "interop/block_table/host.h"
#include "interop/limits.h"

/* What such kernels cannot read. */
static cgr_status check_cache_layout(const char *function, const cgr_block_table_input *in) {
  if (in->kv_layout != 0 && in->kv_layout != CGR_LAYOUT_HND)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: kv_layout is %d (%s), expected %d (hnd): these kernels read no other", function,
                     in->kv_layout, cgr_kv_layout_name((cgr_kv_layout)in->kv_layout), CGR_LAYOUT_HND);
  if (in->page_size != 16 && in->page_size != 32 && in->page_size != 64)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: page_size is %d, expected 16, 32 or 64: these kernels read no other", function,
                     in->page_size);
  if (in->num_pages < 1 || in->num_pages > INT32_MAX)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_pages is %lld, expected 1 .. %d", function, (long long)in->num_pages,
                     INT32_MAX);
  if (in->read_trash_page < 0 || in->read_trash_page >= in->num_pages)
    return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE, "%s: read_trash_page is %d, expected 0 .. %lld (num_pages - 1)", function,
                     in->read_trash_page, (long long)in->num_pages - 1);
  return CGR_OK;
}

static cgr_status check_sizes(const char *function, const cgr_block_table_input *in) {
  const int64_t pages = ((int64_t)in->max_seq_len + in->page_size - 1) / in->page_size;
  CGR__TRY(cgr__check_range(function, "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS));
  CGR__TRY(cgr__check_range(function, "query_len", in->query_len, 1, CGR__MAX_TOKENS));
  CGR__TRY(cgr__check_range(function, "max_seq_len", in->max_seq_len, 1, INT32_MAX / in->num_requests));
  CGR__TRY(cgr__check_range(function, "max_pages", in->max_pages, pages, CGR__BLOCK_TABLE_MAX_PAGES));
  CGR__TRY(cgr__check_range(function, "num_rows", in->num_rows, 1, CGR__MAX_ROWS + 1)); /* with a padding row */
  CGR__TRY(cgr__check_range(function, "page_table_stride", in->page_table_stride, pages, CGR__MAX_STRIDE));
  return CGR_OK;
}

cgr_status cgr__block_table_read_key(const char *function, const cgr_block_table_input *input, cgr__block_table_task *task) {
  cgr_block_table_input in;
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_BLOCK_TABLE_INPUT_INIT", input, &in, sizeof in));
  snprintf(what, sizeof what, "%s: reserved", function);
  CGR__TRY(cgr__check_unused(what, in.reserved));
  CGR__TRY(check_cache_layout(function, &in));
  CGR__TRY(check_sizes(function, &in));
  *task = (cgr__block_table_task){ .num_requests = in.num_requests,
                                   .query_len = in.query_len,
                                   .max_seq_len = in.max_seq_len,
                                   .max_pages = in.max_pages,
                                   .page_size = in.page_size,
                                   .read_trash_page = in.read_trash_page,
                                   .num_rows = in.num_rows,
                                   .num_pages = in.num_pages,
                                   .page_table_stride = in.page_table_stride,
                                   .page_table = in.page_table,
                                   .rows = in.rows,
                                   .seq_lens = in.seq_lens,
                                   .query_start_loc = in.query_start_loc,
                                   .live_requests = in.live_requests };
  return CGR_OK;
}

cgr_status cgr__block_table_check_memory(const char *function, const cgr__block_table_task *t, const void *memory, size_t bytes) {
  const size_t needed = (size_t)cgr__block_table_locate(t).words * sizeof(int32_t);
  const struct {
    const char *name;
    const int32_t *array;
  } arrays[] = {
    { "page_table", t->page_table }, { "rows", t->rows }, { "seq_lens", t->seq_lens }, { "query_start_loc", t->query_start_loc }
  };
  CGR__REQUIRE(memory, function);
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

cgr_status cgr_block_table_get_layout(const cgr_block_table_input *input, cgr_block_table_layout *layout) {
  cgr__block_table_task t;
  cgr_block_table_layout full = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR__TRY(cgr__sized_check("cgr_block_table_get_layout: layout", "CGR_BLOCK_TABLE_LAYOUT_INIT", layout));
  CGR__TRY(cgr__block_table_read_key("cgr_block_table_get_layout", input, &t));
  const cgr__block_table_places at = cgr__block_table_locate(&t);
  full.query_len = full.max_query_len = t.query_len;
  full.max_seq_len = t.max_seq_len;
  full.bytes = (size_t)at.words * sizeof(int32_t);
  full.seq_lens = (size_t)at.seq_lens * sizeof(int32_t);
  full.query_start_loc = (size_t)at.query_start_loc * sizeof(int32_t);
  full.kv_start_loc = (size_t)at.kv_start_loc * sizeof(int32_t);
  cgr__sized_write(layout, &full, sizeof full);
  return CGR_OK;
}

static cgr_status check_request_pages(const cgr__block_table_task *t, int32_t i) {
  const int32_t *pages = t->page_table + t->rows[i] * t->page_table_stride;
  for (int32_t p = 0; p < cgr__block_table_pages(t, t->seq_lens[i]); p++)
    if (pages[p] < 0 || pages[p] >= t->num_pages)
      return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE,
                       "cgr_block_table_build: page_table[%d][%d] is %d, expected 0 .. %lld (request %d)", t->rows[i], p,
                       pages[p], (long long)t->num_pages - 1, i);
  return CGR_OK;
}

static cgr_status check_live(const cgr__block_table_task *t) {
  const int32_t live = t->live_requests ? *t->live_requests : t->num_requests;
  CGR__TRY(cgr__check_range("cgr_block_table_build", "live_requests[0]", live, 0, t->num_requests));
  for (int32_t i = 0; i < live; i++) {
    char name[40];
    snprintf(name, sizeof name, "rows[%d]", i);
    CGR__TRY(cgr__check_range("cgr_block_table_build", name, t->rows[i], 0, t->num_rows - 1));
    snprintf(name, sizeof name, "seq_lens[%d]", i);
    CGR__TRY(cgr__check_range("cgr_block_table_build", name, t->seq_lens[i], 0, t->max_seq_len));
    snprintf(name, sizeof name, "query_start_loc[%d]", i + 1);
    int64_t before = t->query_start_loc[i];
    CGR__TRY(cgr__check_range("cgr_block_table_build", name, t->query_start_loc[i + 1], before, before + t->query_len));
    CGR__TRY(check_request_pages(t, i));
  }
  return CGR_OK;
}

cgr_status cgr_block_table_build(const cgr_block_table_input *input, void *memory, size_t bytes) {
  cgr__block_table_task t;
  CGR__TRY(cgr__block_table_read_key("cgr_block_table_build", input, &t));
  CGR__TRY(cgr__block_table_check_memory("cgr_block_table_build", &t, memory, bytes));
  CGR__TRY(check_live(&t));
  cgr__block_table_fill(&t, memory);
  return CGR_OK;
}

double cgr_block_table_bmm1_scale(double q_scale, double k_scale, double softmax_scale) {
  return q_scale * k_scale * softmax_scale;
}

double cgr_block_table_bmm2_scale(double v_scale, double o_scale) { return o_scale == 0 ? v_scale : v_scale / o_scale; }

/* The key of a block table and what a graph keeps with it: reading, the hash, and the comparison before a replay. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "interop/block_table/host.h"
#include "interop/limits.h"

/* ---------------------------------------------------------------------------------------------------------------- fields */

/* All of the input but its arrays. X(kind, field) */
#define CAPTURED_FIELDS(X)      \
  X(I32, num_requests)          \
  X(I32, query_len)             \
  X(I32, max_seq_len)           \
  X(I32, max_pages)             \
  X(I32, page_size)             \
  X(I32, kv_layout)             \
  X(I32, read_trash_page)       \
  X(I32, num_rows)              \
  X(I32, kernel_page_size)      \
  X(I64, num_pages)             \
  X(I64, page_table_stride)     \
  X(I32, num_tokens)            \
  X(I32, max_prefill_query_len) \
  X(I32, whole_query)           \
  X(I32, window_left)           \
  X(FP64, bmm1_scale)           \
  X(FP64, bmm2_scale)           \
  X(FP64, o_sf_scale)           \
  X(POINTER, sinks)

typedef struct captured_field {
  const char *name;
  enum { FIELD_I32, FIELD_I64, FIELD_FP64, FIELD_POINTER } kind;
  size_t offset, bytes;
} captured_field;

static const captured_field captured_fields[] = {
#define FIELD(kind, field) \
  { #field, FIELD_##kind, offsetof(cgr_block_table_input, field), sizeof(((cgr_block_table_input *)0)->field) },
  CAPTURED_FIELDS(FIELD)
#undef FIELD
};
#define NUM_CAPTURED (sizeof captured_fields / sizeof captured_fields[0])

static const void *field_at(const cgr_block_table_input *in, const captured_field *f) {
  return (const unsigned char *)in + f->offset;
}

/* As messages show it: scales with all their digits. */
static void print_field(const cgr_block_table_input *in, const captured_field *f, char text[32]) {
  const void *at = field_at(in, f);
  if (f->kind == FIELD_I32)
    snprintf(text, 32, "%d", *(const int32_t *)at);
  else if (f->kind == FIELD_I64)
    snprintf(text, 32, "%lld", (long long)*(const int64_t *)at);
  else if (f->kind == FIELD_FP64)
    snprintf(text, 32, "%.17g", *(const double *)at);
  else
    snprintf(text, 32, "%p", *(void *const *)at);
}

uint64_t cgr__block_table_hash(const cgr_block_table_input *in) {
  uint64_t hash = CGR__HASH_BEGIN;
  for (size_t i = 0; i < NUM_CAPTURED; i++)
    hash = cgr__hash(hash, field_at(in, &captured_fields[i]), captured_fields[i].bytes);
  return hash;
}

/* ---------------------------------------------------------------------------------------------------------------- checks */

/* What such kernels cannot read. */
static cgr_status check_cache_layout(const char *function, const cgr_block_table_input *in) {
  const int32_t size = in->kernel_page_size;
  if (in->kv_layout != 0 && in->kv_layout != CGR_LAYOUT_HND)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: kv_layout is %d (%s), expected %d (hnd): these kernels read no other", function,
                     in->kv_layout, cgr_kv_layout_name((cgr_kv_layout)in->kv_layout), CGR_LAYOUT_HND);
  if (size != 16 && size != 32 && size != 64 && size != 128)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s is %d, expected 16, 32, 64 or 128: these kernels read no other%s", function,
                     size == in->page_size ? "page_size" : "kernel_page_size", size,
                     size == in->page_size ? ", so kernel_page_size has to be one of these" : "");
  if (in->page_size < 1 || in->page_size > CGR__FORMATS_MAX_PAGE_SIZE || in->page_size % size != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: page_size is %d, expected a multiple of kernel_page_size (%d), at most %d",
                     function, in->page_size, size, CGR__FORMATS_MAX_PAGE_SIZE);
  CGR__TRY(cgr__check_range(function, "num_pages", in->num_pages, 1, INT32_MAX / (in->page_size / size)));
  if (in->read_trash_page < 0 || in->read_trash_page >= in->num_pages)
    return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE, "%s: read_trash_page is %d, expected 0 .. %lld (num_pages - 1)", function,
                     in->read_trash_page, (long long)in->num_pages - 1);
  return CGR_OK;
}

static cgr_status check_sizes(const char *function, const cgr_block_table_input *in) {
  const int64_t pages = ((int64_t)in->max_seq_len + in->page_size - 1) / in->page_size;
  const int64_t of_kernel = ((int64_t)in->max_seq_len + in->kernel_page_size - 1) / in->kernel_page_size;
  CGR__TRY(cgr__check_range(function, "max_seq_len", in->max_seq_len, 1, INT32_MAX / in->num_requests));
  CGR__TRY(cgr__check_range(function, "max_pages", in->max_pages, of_kernel, CGR__BLOCK_TABLE_MAX_PAGES));
  CGR__TRY(cgr__check_range(function, "num_rows", in->num_rows, 1, CGR__MAX_ROWS + 1)); /* with a padding row */
  CGR__TRY(cgr__check_range(function, "page_table_stride", in->page_table_stride, pages, CGR__MAX_STRIDE));
  return cgr__check_range(function, "max_prefill_query_len", in->max_prefill_query_len, 0, CGR__MAX_TOKENS);
}

/* One number for all decodes, or none: a kernel that took 1 where it is not known would leave tokens out. */
static cgr_status read_query_len(const char *function, cgr_block_table_input *in) {
  CGR__TRY(cgr__check_range(function, "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS));
  if (in->query_len == 0 && in->num_tokens > 0) {
    if (in->num_tokens % in->num_requests != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "%s: num_tokens is %d, expected a multiple of num_requests (%d): all have the same query_len, "
                       "q_len_per_req",
                       function, in->num_tokens, in->num_requests);
    in->query_len = in->num_tokens / in->num_requests;
  }
  CGR__TRY(cgr__check_range(function, "query_len", in->query_len, 1, CGR__MAX_TOKENS));
  if (in->num_tokens != 0 && in->num_tokens != (int64_t)in->query_len * in->num_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: num_tokens is %d, expected %lld, query_len (%d) times num_requests (%d), or 0", function,
                     in->num_tokens, (long long)in->query_len * in->num_requests, in->query_len, in->num_requests);
  return CGR_OK;
}

static cgr_status check_scalars(const char *function, const cgr_block_table_input *in) {
  for (size_t i = 0; i < NUM_CAPTURED; i++) {
    const captured_field *f = &captured_fields[i];
    if (f->kind == FIELD_FP64 && !isfinite(*(const double *)field_at(in, f)))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %g, expected a finite number", function, f->name,
                       *(const double *)field_at(in, f));
  }
  return CGR_OK;
}

cgr_status cgr__block_table_read_input(const char *function, const char *what, const cgr_block_table_input *input,
                                       cgr_block_table_input *in) {
  char name[64];
  snprintf(name, sizeof name, "%s: %s", function, what);
  CGR__TRY(cgr__sized_read(name, "CGR_BLOCK_TABLE_INPUT_INIT", input, in, sizeof *in));
  if (in->kernel_page_size == 0)
    in->kernel_page_size = in->page_size;
  CGR__TRY(check_cache_layout(function, in));
  in->kv_layout = CGR_LAYOUT_HND;
  in->whole_query = in->whole_query != 0;
  CGR__TRY(read_query_len(function, in));
  CGR__TRY(check_sizes(function, in));
  return check_scalars(function, in);
}

void cgr__block_table_task_of(const cgr_block_table_input *in, cgr__block_table_task *task) {
  *task = (cgr__block_table_task){ .num_requests = in->num_requests,
                                   .query_len = in->query_len,
                                   .max_seq_len = in->max_seq_len,
                                   .max_pages = in->max_pages,
                                   .page_size = in->page_size,
                                   .kernel_page_size = in->kernel_page_size,
                                   .pages_each = in->page_size / in->kernel_page_size,
                                   .read_trash_page = in->read_trash_page,
                                   .num_rows = in->num_rows,
                                   .is_uniform = in->num_tokens > 0,
                                   .has_prefills = in->max_prefill_query_len > 0,
                                   .is_rebased = in->whole_query == 0,
                                   .num_pages = in->num_pages,
                                   .page_table_stride = in->page_table_stride,
                                   .page_table = in->page_table,
                                   .rows = in->rows,
                                   .seq_lens = in->seq_lens,
                                   .query_start_loc = in->query_start_loc,
                                   .live_requests = in->live_requests,
                                   .first_prefill = in->first_prefill };
}

/* ---------------------------------------------------------------------------------------------------------------- replay */

cgr_status cgr_block_table_check_replay(const cgr_block_table_input *captured, const cgr_block_table_input *now) {
  const char *function = "cgr_block_table_check_replay";
  cgr_block_table_input before, after;
  CGR__TRY(cgr__block_table_read_input(function, "captured", captured, &before));
  CGR__TRY(cgr__block_table_read_input(function, "now", now, &after));
  for (size_t i = 0; i < NUM_CAPTURED; i++) {
    const captured_field *f = &captured_fields[i];
    char expected[32], got[32];
    if (memcmp(field_at(&before, f), field_at(&after, f), f->bytes) == 0)
      continue;
    print_field(&before, f, expected);
    print_field(&after, f, got);
    return cgr__fail(CGR_ERROR_STALE_GRAPH,
                     "%s: now.%s is %s, expected %s, which the graph keeps from its capture: capture again", function, f->name,
                     got, expected);
  }
  return CGR_OK;
}

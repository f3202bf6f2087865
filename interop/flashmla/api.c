/* cgr_flashmla_size and cgr_flashmla_build: validation, what FlashMLA derives, then host.c. */
#include <stdio.h>

#include "base/choices.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "interop/flashmla/host.h"
#include "interop/limits.h"

static cgr_status check_field_ranges(const char *function, const cgr_flashmla_input *in) {
  const bool has_extra = in->topk > 0 && in->layout == CGR_FLASHMLA_CURRENT;
  const cgr__field_range ranges[] = {
    { "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS },
    { "num_parts", in->num_parts, 0, CGR__FLASHMLA_MAX_PARTS },
    { "block_size", in->block_size, 0, CGR__FORMATS_MAX_PAGE_SIZE },
    { "fixed_overhead", in->fixed_overhead, 0, CGR__FLASHMLA_MAX_OVERHEAD },
    { "topk", in->topk, 0, CGR__FORMATS_MAX_LEN },
    { "extra_topk", in->extra_topk, 0, has_extra ? CGR__FORMATS_MAX_LEN : 0 },
  };
  CGR__TRY(cgr__check_choice(function, "layout", &cgr__flashmla_layouts, in->layout));
  return CGR__CHECK_RANGES(function, ranges);
}

/* The kernels of the sparse API as of 9241ae3ef9ba (csrc/api/sparse_decode.h): one KV head, 64 or 128 query heads. */
static cgr_status check_sparse_heads(const char *function, const cgr_flashmla_input *in) {
  if ((in->num_q_heads != 64 && in->num_q_heads != 128) || in->num_kv_heads != 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: num_q_heads is %d and num_kv_heads is %d, expected 64 or 128 and 1 (sparse, to derive num_parts)",
                     function, in->num_q_heads, in->num_kv_heads);
  if (in->compute_capability >= 100 && in->num_q_heads == 128 && in->qk_head_dim != 512 && in->qk_head_dim != 576)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: qk_head_dim is %d, expected 512 or 576 (sparse, to derive num_parts)",
                     function, in->qk_head_dim);
  return CGR_OK;
}

static cgr_status check_model(const char *function, const cgr_flashmla_input *in) {
  const cgr__field_range ranges[] = {
    { "num_multiprocessors", in->num_multiprocessors, 1, CGR__FLASHMLA_MAX_PARTS },
    { "compute_capability", in->compute_capability, 90, in->topk > 0 ? 109 : 99 },
    { "query_len", in->query_len, 1, CGR__FLASHMLA_MAX_QUERY_LEN },
    { "num_q_heads", in->num_q_heads, 1, CGR__MAX_Q_HEADS },
    { "num_kv_heads", in->num_kv_heads, 1, CGR__MAX_Q_HEADS },
  };
  CGR__TRY(CGR__CHECK_RANGES(function, ranges));
  if (in->num_q_heads % in->num_kv_heads != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_q_heads is %d, expected a multiple of num_kv_heads, %d", function,
                     in->num_q_heads, in->num_kv_heads);
  return in->topk > 0 && in->layout == CGR_FLASHMLA_CURRENT ? check_sparse_heads(function, in) : CGR_OK;
}

/* CTAs of one request that work side by side on other heads and query tokens. Dense: csrc/api/dense_decode.h; sparse: get_meta
 * of the kernels in csrc/api/sparse_decode.h; v1: get_attn_impl_meta of csrc/pybind.cpp. */
static int32_t derive_parts(const cgr_flashmla_input *in) {
  const int32_t sms = in->num_multiprocessors, heads = in->num_q_heads / in->num_kv_heads;
  const bool is_blackwell = in->compute_capability >= 100;
  int32_t parts;
  if (in->topk == 0)
    parts = sms / in->num_kv_heads / cgr__flashmla_ceil(in->query_len * heads, 64);
  else if (in->layout == CGR_FLASHMLA_V1)
    parts =
        (is_blackwell ? sms : sms / 2) / in->num_kv_heads / (cgr__flashmla_ceil(heads, is_blackwell ? 64 : 128) * in->query_len);
  else if (is_blackwell)
    parts = sms / in->query_len / (heads == 128 && in->qk_head_dim == 512 ? 2 : 1);
  else
    parts = sms / in->query_len / (heads / 64);
  return cgr__flashmla_max(parts, 1);
}

static int32_t derive_overhead(const cgr_flashmla_input *in) {
  const bool is_small = in->num_parts == 0 && in->topk > 0 && in->layout == CGR_FLASHMLA_CURRENT &&
                        in->compute_capability >= 100 && in->num_q_heads == 128 && in->qk_head_dim == 512;
  return is_small ? 3 : 5;
}

static cgr_status check_topk(const char *function, const cgr__flashmla_key *c) {
  const int64_t tokens = ((int64_t)c->topk + c->block_size - 1) / c->block_size * c->block_size + c->extra_topk;
  if (c->topk > 0 && tokens > c->max_len)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: topk is %d and extra_topk is %d, expected at most %d together", function,
                     c->topk, c->extra_topk, c->max_len);
  return CGR_OK;
}

/* Refuses arrays that this layout would not read. That seq_lens is given where it is read is checked with the memory. */
static cgr_status check_flashmla_arrays(const char *function, const cgr_flashmla_input *in) {
  const bool is_sparse = in->topk > 0;
  if (is_sparse && in->seq_lens)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: topk is %d and seq_lens is %p, expected NULL: a sparse batch attends to topk tokens, or to topk_lens",
                     function, in->topk, (const void *)in->seq_lens);
  if (in->topk_lens && (!is_sparse || in->layout != CGR_FLASHMLA_CURRENT))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: topk_lens is %p, expected NULL without topk and in layout V1", function,
                     (const void *)in->topk_lens);
  if (in->extra_topk_lens && in->extra_topk == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: extra_topk_lens is %p, expected NULL without extra_topk", function,
                     (const void *)in->extra_topk_lens);
  return CGR_OK;
}

cgr_status cgr__flashmla_read_key(const char *function, const cgr_flashmla_input *input, cgr__flashmla_key *c,
                                  cgr__flashmla_lens *lens) {
  cgr_flashmla_input in;
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_FLASHMLA_INPUT_INIT", input, &in, sizeof in));
  CGR__TRY(check_field_ranges(function, &in));
  if (in.num_parts == 0)
    CGR__TRY(check_model(function, &in));
  CGR__TRY(check_flashmla_arrays(function, &in));
  *c = (cgr__flashmla_key){ .is_v1 = in.layout == CGR_FLASHMLA_V1,
                            .num_requests = in.num_requests,
                            .num_parts = in.num_parts ? in.num_parts : derive_parts(&in),
                            .block_size = in.block_size ? in.block_size : 64,
                            .overhead = in.fixed_overhead ? in.fixed_overhead : derive_overhead(&in),
                            .topk = in.topk,
                            .extra_topk = in.extra_topk };
  c->block_inverse = cgr__flashmla_inverse(c->block_size);
  c->parts_inverse = cgr__flashmla_inverse(c->num_parts);
  c->max_len = cgr__flashmla_max_len(c->num_requests, c->block_size, c->overhead);
  *lens = (cgr__flashmla_lens){ in.live_requests, in.seq_lens, in.topk_lens, in.extra_topk_lens };
  return check_topk(function, c);
}

cgr_status cgr__flashmla_check_memory(const char *function, const cgr__flashmla_key *c, const cgr__flashmla_lens *lens,
                                      const void *metadata, size_t bytes) {
  CGR__REQUIRE(metadata, function);
  if (c->topk == 0 && !lens->seq_lens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: seq_lens is NULL, expected %d lengths", function, c->num_requests);
  if (bytes < cgr__flashmla_bytes(c))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is %zu, expected at least %zu (cgr_flashmla_size)", function, bytes,
                     cgr__flashmla_bytes(c));
  if ((uintptr_t)metadata % 32 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: metadata is %p, expected a multiple of 32", function, metadata);
  return CGR_OK;
}

cgr_status cgr_flashmla_size(const cgr_flashmla_input *input, int32_t *num_parts, size_t *bytes) {
  cgr__flashmla_key c;
  cgr__flashmla_lens lens;
  CGR__REQUIRE(bytes, "cgr_flashmla_size");
  CGR__TRY(cgr__flashmla_read_key("cgr_flashmla_size", input, &c, &lens));
  if (num_parts)
    *num_parts = c.num_parts;
  *bytes = cgr__flashmla_bytes(&c);
  return CGR_OK;
}

static cgr_status check_lens(const char *name, const int32_t *lens, int32_t count, int32_t high) {
  for (int32_t i = 0; lens && i < count; i++)
    if (lens[i] < 0 || lens[i] > high)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_flashmla_build: %s[%d] is %d, expected 0 .. %d", name, i, lens[i], high);
  return CGR_OK;
}

cgr_status cgr_flashmla_build(const cgr_flashmla_input *input, void *metadata, size_t bytes) {
  cgr__flashmla_key c;
  cgr__flashmla_lens lens;
  CGR__TRY(cgr__flashmla_read_key("cgr_flashmla_build", input, &c, &lens));
  CGR__TRY(cgr__flashmla_check_memory("cgr_flashmla_build", &c, &lens, metadata, bytes));
  const int32_t live = lens.live_requests ? *lens.live_requests : c.num_requests;
  if (live < 0 || live > c.num_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_flashmla_build: live_requests[0] is %d, expected 0 .. %d (num_requests)",
                     live, c.num_requests);
  CGR__TRY(check_lens("seq_lens", lens.seq_lens, live, c.max_len));
  CGR__TRY(check_lens("topk_lens", lens.topk_lens, live, c.topk));
  CGR__TRY(check_lens("extra_topk_lens", lens.extra_topk_lens, live, c.extra_topk));
  cgr__flashmla_fill(&c, &lens, metadata);
  return CGR_OK;
}

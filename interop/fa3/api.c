/* cgr_fa3_size and cgr_fa3_build, and the validation that enqueuing shares. */
#include <stdio.h>

#include "base/choices.h"
#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "interop/fa3/host.h"
#include "interop/limits.h"

static cgr_status check_field_ranges(const char *function, const cgr_fa3_input *in) {
  const cgr__field_range ranges[] = {
    { "num_requests", in->num_requests, 1, CGR__MAX_REQUESTS },
    { "max_requests", in->max_requests, 0, CGR__MAX_REQUESTS },
    { "num_tokens", in->num_tokens, 0, CGR__MAX_TOKENS },
    { "num_q_heads", in->num_q_heads, 1, CGR__MAX_Q_HEADS },
    { "num_kv_heads", in->num_kv_heads, 1, CGR__MAX_Q_HEADS },
    { "head_dim", in->head_dim, 8, CGR__FA3_MAX_HEAD_DIM },
    { "head_dim_v", in->head_dim_v, 0, CGR__FA3_MAX_HEAD_DIM_V },
    { "page_size", in->page_size, 0, CGR__FORMATS_MAX_LEN },
    { "max_query_len", in->max_query_len, 1, CGR__FORMATS_MAX_LEN },
    { "max_seq_len", in->max_seq_len, 0, CGR__FORMATS_MAX_LEN },
    { "window_left", in->window_left, 0, INT32_MAX },
    { "window_right", in->window_right, 0, in->causal ? 0 : INT32_MAX },
    { "attention_chunk", in->attention_chunk, 0, INT32_MAX },
    { "pack_gqa", in->pack_gqa, -1, 1 },
    { "num_splits", in->num_splits, 0, CGR__FA3_MAX_SPLITS },
    { "num_multiprocessors", in->num_multiprocessors, 1, CGR__FORMATS_MAX_SMS },
    { "tile_m", in->tile_m, in->tile_n != 0 ? CGR__FA3_MIN_TILE : 0, CGR__FA3_MAX_TILE },
    { "tile_n", in->tile_n, in->tile_m != 0 ? CGR__FA3_MIN_TILE : 0, in->tile_m != 0 ? CGR__FA3_MAX_TILE : 0 },
  };
  CGR__TRY(CGR__CHECK_RANGES(function, ranges));
  if (in->layout == CGR_FA3_VLLM && in->attention_chunk > 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: attention_chunk is %d, expected 0: vLLM's kernels have no chunks", function,
                     in->attention_chunk);
  return CGR_OK;
}

static cgr_status check_fa3_enums(const char *function, const cgr_fa3_input *in) {
  CGR__TRY(cgr__check_choice(function, "layout", &cgr__fa3_layouts, in->layout));
  if (in->dtype != CGR_DTYPE_FP16 && in->dtype != CGR_DTYPE_BF16 && in->dtype != CGR_DTYPE_FP8_E4M3)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "%s: dtype is %d (%s), expected fp16, bf16 or fp8_e4m3", function, in->dtype,
                     cgr_dtype_name((cgr_dtype)in->dtype));
  return CGR_OK;
}

static cgr_status check_fa3_heads(const char *function, const cgr_fa3_input *in) {
  int32_t multiple = in->dtype == CGR_DTYPE_FP8_E4M3 ? 16 : 8;
  if (in->num_q_heads % in->num_kv_heads != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_q_heads is %d, expected a multiple of num_kv_heads (%d)", function,
                     in->num_q_heads, in->num_kv_heads);
  if (in->head_dim % multiple != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: head_dim is %d, expected a multiple of %d", function, in->head_dim,
                     multiple);
  if (in->head_dim_v % multiple != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: head_dim_v is %d, expected a multiple of %d", function, in->head_dim_v,
                     multiple);
  int64_t rows = (int64_t)in->max_query_len * (in->num_q_heads / in->num_kv_heads);
  if (rows > CGR__FORMATS_MAX_LEN)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: max_query_len is %d, and times %d query heads of a KV head that is %lld rows, expected at most 2^30",
                     function, in->max_query_len, in->num_q_heads / in->num_kv_heads, (long long)rows);
  return CGR_OK;
}

cgr_status cgr__fa3_read_key(const char *function, const cgr_fa3_input *given, cgr_fa3_input *in, cgr_fa3_sizes *sizes,
                             cgr__fa3_key *c) {
  char what[64];
  snprintf(what, sizeof what, "%s: input", function);
  CGR__TRY(cgr__sized_read(what, "CGR_FA3_INPUT_INIT", given, in, sizeof *in));
  snprintf(what, sizeof what, "%s: reserved", function);
  CGR__TRY(cgr__check_unused(what, in->reserved));
  CGR__TRY(check_fa3_enums(function, in));
  CGR__TRY(check_field_ranges(function, in));
  CGR__TRY(check_fa3_heads(function, in));
  if (in->max_requests != 0 && in->max_requests < in->num_requests)
    return cgr__fail(CGR_ERROR_TOO_MANY_REQUESTS, "%s: num_requests is %d, expected at most max_requests (%d)", function,
                     in->num_requests, in->max_requests);
  cgr__fa3_derive(in, sizes, c);
  return CGR_OK;
}

cgr_status cgr__fa3_check_memory(const char *function, const cgr_fa3_input *in, const cgr_fa3_sizes *sizes, const void *metadata,
                                 size_t bytes) {
  CGR__REQUIRE(metadata, function);
  if (!in->query_start_loc)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: query_start_loc is NULL, expected %d words", function, in->num_requests + 1);
  if (!in->seq_lens)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: seq_lens is NULL, expected %d lengths", function, in->num_requests);
  if (bytes < sizes->metadata_bytes)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: bytes is %zu, expected at least %llu (cgr_fa3_size)", function, bytes,
                     (unsigned long long)sizes->metadata_bytes);
  if ((uintptr_t)metadata % 16 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: metadata is %p, expected a multiple of 16", function, metadata);
  return CGR_OK;
}

cgr_status cgr_fa3_size(const cgr_fa3_input *input, cgr_fa3_sizes *sizes) {
  cgr_fa3_input in;
  cgr_fa3_sizes all;
  cgr__fa3_key c;
  CGR__TRY(cgr__sized_check("cgr_fa3_size: sizes", "CGR_FA3_SIZES_INIT", sizes));
  CGR__TRY(cgr__fa3_read_key("cgr_fa3_size", input, &in, &all, &c));
  cgr__sized_write(sizes, &all, sizeof all);
  return CGR_OK;
}

static cgr_status check_fa3_lengths(const cgr_fa3_input *in) {
  int32_t live = in->live_requests ? *in->live_requests : in->num_requests;
  if (live < 0 || live > in->num_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_fa3_build: *live_requests is %d, expected 0 .. %d (num_requests)", live,
                     in->num_requests);
  for (int32_t i = 0; i < live; i++) {
    int64_t query_len = (int64_t)in->query_start_loc[i + 1] - in->query_start_loc[i];
    if (query_len < 0 || query_len > in->max_query_len)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "cgr_fa3_build: query_start_loc[%d] is %d after %d, expected 0 .. %d (max_query_len) more", i + 1,
                       in->query_start_loc[i + 1], in->query_start_loc[i], in->max_query_len);
    if (in->seq_lens[i] < 0 || in->seq_lens[i] > in->max_seq_len)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_fa3_build: seq_lens[%d] is %d, expected 0 .. %d (max_seq_len)", i,
                       in->seq_lens[i], in->max_seq_len);
  }
  int64_t tokens = live > 0 ? (int64_t)in->query_start_loc[live] - in->query_start_loc[0] : 0;
  if (in->num_tokens > 0 && tokens > in->num_tokens)
    return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS,
                     "cgr_fa3_build: query_start_loc has %lld tokens, expected at most %d (num_tokens)", (long long)tokens,
                     in->num_tokens);
  return CGR_OK;
}

cgr_status cgr_fa3_build(const cgr_fa3_input *input, void *metadata, size_t bytes) {
  cgr_fa3_input in;
  cgr_fa3_sizes sizes;
  cgr__fa3_key c;
  CGR__TRY(cgr__fa3_read_key("cgr_fa3_build", input, &in, &sizes, &c));
  CGR__TRY(cgr__fa3_check_memory("cgr_fa3_build", &in, &sizes, metadata, bytes));
  CGR__TRY(check_fa3_lengths(&in));
  cgr__fa3_fill(&c, in.query_start_loc, in.seq_lens, in.live_requests, metadata);
  return CGR_OK;
}

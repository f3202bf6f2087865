// Limits for a layout of buffers, and what the public header says of each buffer under them.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers/layout.h"
#include "tests/support/seed.h"

namespace cgr_test {

// Every byte is set, including those between the fields.
inline cgr__limits RandomLimits(Random &random) {
  cgr__limits l;
  memset(&l, 0, sizeof l);
  l.max_requests = random.Pick32(1, 60);
  l.max_rows = random.Pick32(l.max_requests, 90);
  l.max_tokens = random.Pick32(l.max_requests, 700);
  for (int32_t &most : l.max_lens)
    most = random.Pick32(1, 2000);
  l.num_groups = random.Pick32(1, CGR__MAX_GROUPS);
  l.num_sets = random.Pick32(1, CGR__MAX_SETS);
  for (int32_t g = 0; g < l.num_groups; g++) {
    l.pages_per_row[g] = (l.max_lens[0] + (16 << g % 3) - 1) / (16 << g % 3);
    l.trash_page[g] = random.Pick32(0, 5);
    l.pages_each[g] = random.OneIn(2) ? random.Pick32(0, 1) : random.Pick32(2, 64);
  }
  l.token_stride = random.Pick32(1, 5);
  l.ring_depth = random.Pick32(CGR__MIN_RING_DEPTH, 8);
  l.max_changes = random.Pick32(1, 300);
  l.plan_words = random.Pick(0, 500);
  l.plan_counters = random.Pick(0, 100);
  l.partial_vectors = random.Pick(0, 40);
  l.partial_dim = random.Pick(0, 130);
  l.stamp_stride = random.OneIn(2) ? 0 : random.Pick32(1, 500);
  l.value_words = random.OneIn(2);
  l.on_demand = random.OneIn(4) ? 0 : random.Bits() & CGR__ALL_ON_DEMAND;
  return l;
}

// One buffer as cgr.h and table.h describe it.
struct ExpectedBuffer {
  int id;
  const char *name;
  cgr_dtype dtype;
  int64_t rows, columns;
  int32_t copies;
};

// A slot: 64 bytes of header, then sections of whole lines.
inline int64_t InboxWords(const cgr__limits &l) {
  const auto lines = [](int64_t words) { return (words + 15) / 16 * 16; };
  return 16 + lines(3 * int64_t(l.max_requests) + 1) + lines(l.max_tokens) + lines(4 * int64_t(l.max_changes)) +
         lines(4 * int64_t(l.max_requests));
}

inline std::vector<ExpectedBuffer> ExpectedBuffers(const cgr__limits &l, int32_t group) {
  const int64_t r = l.max_requests, t = l.max_tokens, m = l.max_rows, p = l.pages_per_row[group], k = l.token_stride - 1;
  const int64_t n = std::max(l.pages_each[group], 1);
  const cgr_dtype i32 = CGR_DTYPE_I32, i64 = CGR_DTYPE_I64, fp32 = CGR_DTYPE_FP32;
  const int32_t groups = l.num_groups, sets = l.num_sets;
  const auto asked = [&](cgr_buffer buffer, int32_t copies) { return (l.on_demand & CGR_ON_DEMAND(buffer)) != 0 ? copies : 0; };
  return {
    { CGR_BUFFER_INPUT_IDS, "input_ids", i32, t, 1, 1 },
    { CGR_BUFFER_POSITIONS, "positions", i32, t, 1, 1 },
    { CGR_BUFFER_SLOT_MAPPING, "slot_mapping", i64, t, 1, groups },
    { CGR_BUFFER_QUERY_START_LOC, "query_start_loc", i32, r + 1, 1, 1 },
    { CGR_BUFFER_SEQ_LENS, "seq_lens", i32, r, 1, sets },
    { CGR_BUFFER_REQUEST_ROWS, "request_rows", i32, r, 1, 1 },
    { CGR_BUFFER_PAGE_TABLE, "page_table", i32, m + 1, p, groups },
    { CGR_BUFFER_KV_INDPTR, "kv_indptr", i32, r + 1, 1, groups },
    { CGR_BUFFER_KV_LAST_PAGE_LEN, "kv_last_page_len", i32, r, 1, groups },
    { CGR_BUFFER_ROW_COMPUTED, "row_computed", i32, m + 1, 1, 1 },
    { CGR_BUFFER_ROW_LAST_TOKENS, "row_last_tokens", i32, m + 1, 1 + k, 1 },
    { CGR_BUFFER_ROW_NUM_ACCEPTED, "row_num_accepted", i32, m + 1, 1, 1 },
    { CGR_BUFFER_LOGITS_INDICES, "logits_indices", i32, r, 1, 1 },
    { CGR_BUFFER_NEXT_TOKENS, "next_tokens", i32, r, 1 + k, 1 },
    { CGR_BUFFER_COUNTS, "counts", i32, 16, 1, 1 },
    { CGR_BUFFER_PLAN, "plan", i32, l.plan_words, 1, 1 },
    { CGR_BUFFER_KV_INDICES, "kv_indices", i32, r * p * n, 1, asked(CGR_BUFFER_KV_INDICES, groups) },
    { CGR_BUFFER_BLOCK_TABLE, "block_table", i32, r, p * n, asked(CGR_BUFFER_BLOCK_TABLE, groups) },
    { CGR_BUFFER_KV_START_LOC, "kv_start_loc", i32, r + 1, 1, asked(CGR_BUFFER_KV_START_LOC, sets) },
    { CGR_BUFFER_CONTEXT_LENS, "context_lens", i32, r, 1, asked(CGR_BUFFER_CONTEXT_LENS, 1) },
    { CGR_BUFFER_CONTEXT_START_LOC, "context_start_loc", i32, r + 1, 1, asked(CGR_BUFFER_CONTEXT_START_LOC, 1) },
    { CGR_BUFFER_PREFILL_QUERY_START_LOC, "prefill_query_start_loc", i32, r + 1, 1,
      asked(CGR_BUFFER_PREFILL_QUERY_START_LOC, 1) },
    { CGR_BUFFER_PREFILL_KV_INDPTR, "prefill_kv_indptr", i32, r + 1, 1, asked(CGR_BUFFER_PREFILL_KV_INDPTR, groups) },
    { CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, "prefill_kv_last_page_len", i32, r, 1,
      asked(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, groups) },
    { CGR_BUFFER_PREFILL_SEQ_LENS, "prefill_seq_lens", i32, r, 1, asked(CGR_BUFFER_PREFILL_SEQ_LENS, sets) },
    { CGR_BUFFER_PREFILL_KV_START_LOC, "prefill_kv_start_loc", i32, r + 1, 1, asked(CGR_BUFFER_PREFILL_KV_START_LOC, sets) },
    { CGR_BUFFER_PREFILL_BLOCK_TABLE, "prefill_block_table", i32, r, p * n, asked(CGR_BUFFER_PREFILL_BLOCK_TABLE, groups) },
    { CGR_BUFFER_NUM_DRAFTS, "num_drafts", i32, r, 1, k > 0 },
    { CGR_BUFFER_NUM_ACCEPTED, "num_accepted", i32, r, 1, k > 0 },
    { CGR_BUFFER_DRAFT_TOKENS, "draft_tokens", i32, r, k, k > 0 },
    { CGR_BUFFER_ROW_DRAFT_TOKENS, "row_draft_tokens", i32, m + 1, k, k > 0 },
    { CGR__BUFFER_REQUEST_FLAGS, "request_flags", i32, r, 1, 1 },
    { CGR__BUFFER_STEP_STATE, "step_state", i64, 16, 1, 1 },
    { CGR__BUFFER_BLOCK_EXTENTS, "block_extents", i32, r, 1, asked(CGR_BUFFER_BLOCK_TABLE, groups) },
    { CGR__BUFFER_PREFILL_BLOCK_EXTENTS, "prefill_block_extents", i32, r, 1, asked(CGR_BUFFER_PREFILL_BLOCK_TABLE, groups) },
    { CGR__BUFFER_PLAN_COUNTERS, "plan_counters", i32, l.plan_counters, 1, 1 },
    { CGR__BUFFER_PARTIAL_OUT, "partial_out", fp32, l.partial_vectors, l.partial_dim, 1 },
    { CGR__BUFFER_PARTIAL_STATE, "partial_state", fp32, l.partial_vectors, 2, 1 },
    { CGR__BUFFER_INBOX, "inbox", i32, InboxWords(l), 1, 1 },
    { CGR__BUFFER_STAMPS, "stamps", i64, l.ring_depth + 1, l.stamp_stride, l.stamp_stride > 0 ? 1 : 0 },
    { CGR__BUFFER_VALUE_FLAGS, "value_flags", i64, r, l.value_words, l.value_words > 0 ? 1 : 0 },
  };
}

inline cgr__declared RandomDeclared(Random &random, const cgr__limits &l, int32_t i) {
  static const cgr_dtype kDtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_I8, CGR_DTYPE_U8, CGR_DTYPE_I32, CGR_DTYPE_I64 };
  cgr__declared d;
  memset(&d, 0, sizeof d);
  snprintf(d.name, sizeof d.name, "own_%d", i);
  d.dimension = random.Pick32(CGR_DIMENSION_TOKENS, CGR_DIMENSION_ROWS);
  d.dtype = kDtypes[random.Pick(0, 5)];
  d.rows = d.dimension == CGR_DIMENSION_TOKENS     ? l.max_tokens
           : d.dimension == CGR_DIMENSION_REQUESTS ? l.max_requests
                                                   : l.max_rows + 1;
  d.width = random.Pick(1, 9);
  d.padding = d.dtype == CGR_DTYPE_FP16 ? 0 : d.dtype == CGR_DTYPE_U8 ? random.Pick(0, 255) : random.Pick(-128, 127);
  return d;
}

inline std::vector<cgr__declared> RandomDeclarations(Random &random, const cgr__limits &l) {
  std::vector<cgr__declared> all;
  for (int32_t i = 0, n = random.Pick32(0, 6); i < n; i++)
    all.push_back(RandomDeclared(random, l, i));
  return all;
}

} // namespace cgr_test

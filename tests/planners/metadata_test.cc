// The host planner of the metadata without a runtime, against a straightforward computation of each buffer.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cgr/cgr.h"

namespace {

constexpr int32_t kPoison = 0x6b6b6b6b;

struct Case {
  int32_t num_requests, padded_requests, padded_tokens, max_rows, page_size, stride;
  std::vector<int32_t> rows, query_lens, tokens, computed, last_tokens, page_table;
  std::vector<int32_t> input_ids, positions, query_start_loc, seq_lens, request_rows, logits_indices, kv_indptr, last_page_len;
  std::vector<int64_t> slots;
  cgr_metadata_group group;
  cgr_metadata metadata;

  Case(std::mt19937 &random, int32_t requests, int32_t extra_requests, int32_t extra_tokens) : num_requests(requests) {
    auto pick = [&](int32_t low, int32_t high) { return std::uniform_int_distribution<int32_t>(low, high)(random); };
    max_rows = requests + 5;
    page_size = 16 << pick(0, 2);
    stride = 40;
    rows.resize(max_rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(requests);
    for (int32_t i = 0; i < requests; i++)
      query_lens.push_back(pick(0, 3) == 0 ? 0 : pick(0, 1) ? 1 : pick(1, 40));
    int32_t total = std::accumulate(query_lens.begin(), query_lens.end(), 0);
    for (int32_t i = 0; i < requests; i++)
      for (int32_t j = 0; j < query_lens[i]; j++)
        tokens.push_back(j == 0 && pick(0, 1) ? CGR_TOKEN_LAST : pick(0, 999));
    for (int32_t r = 0; r < max_rows; r++) {
      computed.push_back(pick(0, page_size * stride - 64));
      last_tokens.push_back(pick(1000, 2000));
    }
    for (int32_t p = 0; p < max_rows * stride; p++)
      page_table.push_back(pick(2, 999));
    padded_requests = requests + extra_requests;
    padded_tokens = total + extra_tokens;
    for (auto *out : { &input_ids, &positions })
      out->assign(padded_tokens, kPoison);
    for (auto *out : { &seq_lens, &request_rows, &logits_indices, &last_page_len })
      out->assign(padded_requests, kPoison);
    for (auto *out : { &query_start_loc, &kv_indptr })
      out->assign(padded_requests + 1, kPoison);
    slots.assign(padded_tokens, kPoison);
    Bind();
  }

  void Bind() {
    group = { page_size, 0, 1, 0, 1000, page_table.data(), stride, slots.data(), kv_indptr.data(), last_page_len.data() };
    metadata = CGR_METADATA_INIT;
    metadata.num_requests = num_requests;
    metadata.padded_requests = padded_requests;
    metadata.padded_tokens = padded_tokens;
    metadata.max_rows = max_rows;
    metadata.max_seq_len = page_size * stride;
    metadata.num_groups = 1;
    metadata.rows = rows.data();
    metadata.query_lens = query_lens.data();
    metadata.tokens = tokens.data();
    metadata.row_computed = computed.data();
    metadata.row_last_tokens = last_tokens.data();
    metadata.groups = &group;
    metadata.input_ids = input_ids.data();
    metadata.positions = positions.data();
    metadata.query_start_loc = query_start_loc.data();
    metadata.seq_lens = seq_lens.data();
    metadata.request_rows = request_rows.data();
    metadata.logits_indices = logits_indices.data();
  }
};

void ExpectRight(const Case &c) {
  int32_t t = 0, pages = 0;
  ASSERT_EQ(c.query_start_loc[0], 0);
  ASSERT_EQ(c.kv_indptr[0], 0);
  for (int32_t i = 0; i < c.num_requests; i++) {
    int32_t row = c.rows[i], q = c.query_lens[i], length = c.computed[row] + q;
    ASSERT_EQ(c.request_rows[i], row);
    ASSERT_EQ(c.seq_lens[i], length);
    ASSERT_EQ(c.logits_indices[i], q > 0 ? t + q - 1 : 0);
    ASSERT_EQ(c.last_page_len[i], length == 0 ? 1 : length % c.page_size == 0 ? c.page_size : length % c.page_size);
    for (int32_t j = 0; j < q; j++, t++) {
      int32_t position = c.computed[row] + j;
      ASSERT_EQ(c.positions[t], position);
      ASSERT_EQ(c.input_ids[t], c.tokens[t] == CGR_TOKEN_LAST ? c.last_tokens[row] : c.tokens[t]);
      int64_t page = c.page_table[row * c.stride + position / c.page_size];
      ASSERT_EQ(c.slots[t], page * c.page_size + position % c.page_size);
    }
    pages += (length + c.page_size - 1) / c.page_size;
    ASSERT_EQ(c.query_start_loc[i + 1], t);
    ASSERT_EQ(c.kv_indptr[i + 1], pages);
  }
  for (int32_t i = c.num_requests; i < c.padded_requests; i++) {
    ASSERT_EQ(c.request_rows[i], 0);
    ASSERT_EQ(c.seq_lens[i], 0);
    ASSERT_EQ(c.logits_indices[i], 0);
    ASSERT_EQ(c.last_page_len[i], 1);
    ASSERT_EQ(c.query_start_loc[i + 1], t);
    ASSERT_EQ(c.kv_indptr[i + 1], pages);
  }
  for (; t < c.padded_tokens; t++) {
    ASSERT_EQ(c.input_ids[t], 0);
    ASSERT_EQ(c.positions[t], 0);
    ASSERT_EQ(c.slots[t], -1);
  }
}

TEST(Metadata, RandomBatches) {
  uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; round++) {
    Case c(random, round % 40, round % 7, round % 11);
    ASSERT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
    ExpectRight(c);
    if (HasFatalFailure())
      return;
  }
}

TEST(Metadata, GuardsRefuseOneRequestAndLeaveTheOthers) {
  std::mt19937 random(1);
  Case c(random, 8, 2, 3);
  c.query_lens.assign(8, 1);
  c.tokens.assign(8, 7);
  c.padded_tokens = 11;
  for (auto *out : { &c.input_ids, &c.positions })
    out->assign(11, kPoison);
  c.slots.assign(11, kPoison);
  c.rows[2] = c.max_rows;
  c.computed[c.rows[4]] = c.page_size * c.stride;
  c.page_table[c.rows[6] * c.stride + c.computed[c.rows[6]] / c.page_size] = 1000;
  c.Bind();
  EXPECT_EQ(cgr_metadata_build(&c.metadata), CGR_ERROR_STEP);
  EXPECT_NE(std::string(cgr_last_message()).find("error 3"), std::string::npos) << cgr_last_message(); // CGR_STEP_ROW came first
  EXPECT_EQ(c.seq_lens[2], 0);
  EXPECT_EQ(c.slots[2], -1);
  EXPECT_EQ(c.seq_lens[4], 0);
  EXPECT_EQ(c.slots[4], -1);
  EXPECT_GT(c.seq_lens[6], 0);
  EXPECT_EQ(c.slots[6], -1);
  for (int32_t i : { 0, 1, 3, 5, 7 }) {
    EXPECT_EQ(c.seq_lens[i], c.computed[c.rows[i]] + 1);
    EXPECT_GE(c.slots[i], 2 * c.page_size);
  }
}

TEST(Metadata, Refusals) {
  std::mt19937 random(2);
  Case c(random, 4, 0, 0);
  auto expect = [&](cgr_status status, const char *word) {
    EXPECT_EQ(cgr_metadata_build(&c.metadata), status) << word;
    EXPECT_NE(std::string(cgr_last_message()).find(word), std::string::npos) << cgr_last_message();
    c.Bind();
  };
  EXPECT_EQ(cgr_metadata_build(nullptr), CGR_ERROR_NULL_POINTER);
  c.metadata.size = 8;
  expect(CGR_ERROR_INVALID_STRUCT, "size");
  c.metadata.num_requests = -1;
  expect(CGR_ERROR_INVALID_ARGUMENT, "num_requests");
  c.metadata.padded_requests = 3;
  expect(CGR_ERROR_INVALID_ARGUMENT, "padded_requests");
  c.metadata.rows = nullptr;
  expect(CGR_ERROR_NULL_POINTER, "rows");
  c.metadata.seq_lens = nullptr;
  expect(CGR_ERROR_NULL_POINTER, "output");
  c.metadata.groups = nullptr;
  expect(CGR_ERROR_INVALID_ARGUMENT, "groups");
  c.group.page_size = 24;
  expect(CGR_ERROR_INVALID_ARGUMENT, "page_size");
  c.group.slot_mapping = nullptr;
  expect(CGR_ERROR_NULL_POINTER, "groups[0]");
  std::vector<int32_t> many(4, 1 << 30);
  c.metadata.query_lens = many.data();
  expect(CGR_ERROR_TOO_MANY_TOKENS, "padded_tokens");
  many[0] = -1;
  c.metadata.query_lens = many.data();
  expect(CGR_ERROR_INVALID_ARGUMENT, "query_lens[0]");
  c.metadata.tokens = nullptr;
  c.metadata.row_last_tokens = nullptr;
  expect(CGR_ERROR_NULL_POINTER, "row_last_tokens");
  ASSERT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
  ExpectRight(c);
}

} // namespace

// The host planner of the metadata without a runtime, against a straightforward computation of each buffer.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "cgr/planners.h"
#include "planners/metadata/metadata.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

constexpr int32_t kPoison = 0x6b6b6b6b;

// One group, whose table has exactly max_rows rows: the padding row is not read.
struct Group {
  int32_t page_size, stride, read_trash, write_trash, kernel_page_size = 0;
  std::vector<int32_t> page_table, kv_indptr, last_page_len;
  std::vector<int64_t> slots;

  Group(Random &random, int32_t index, int32_t max_rows) {
    page_size = index == 0 ? 16 * random.Pick32(1, 10) : random.OneIn(2) ? random.Pick32(1, 70) : 16 * random.Pick32(1, 64);
    for (int32_t size = random.Pick32(1, page_size); size < page_size && kernel_page_size == 0; size++)
      kernel_page_size = page_size % size == 0 ? size : 0;
    stride = (kMaxSeqLen + page_size - 1) / page_size + random.Pick32(0, 3);
    read_trash = random.Pick32(0, 5);
    write_trash = 6 + random.Pick32(0, 5);
    for (int32_t p = 0; p < max_rows * stride; p++)
      page_table.push_back(random.Pick32(12, kPages - 1));
  }
  enum { kMaxSeqLen = 700, kPages = 1000 };
};

struct Case {
  int32_t num_requests, padded_requests, padded_tokens, max_rows;
  std::vector<int32_t> rows, query_lens, tokens, computed, last_tokens;
  std::vector<int32_t> input_ids, positions, query_start_loc, seq_lens, request_rows, logits_indices;
  std::vector<Group> groups;
  std::vector<cgr_metadata_group> bound;
  cgr_metadata metadata;

  Case(Random &random, int32_t requests, int32_t extra_requests, int32_t extra_tokens, int32_t num_groups)
      : num_requests(requests) {
    max_rows = requests + 5;
    rows.resize(static_cast<size_t>(max_rows));
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t i = rows.size(); i > 1; i--)
      std::swap(rows[i - 1], rows[static_cast<size_t>(random.Pick(0, static_cast<int64_t>(i) - 1))]);
    rows.resize(static_cast<size_t>(requests));
    for (int32_t i = 0; i < requests; i++)
      query_lens.push_back(random.OneIn(4) ? 0 : random.OneIn(2) ? 1 : random.Pick32(1, 40));
    for (int32_t length : query_lens)
      for (int32_t j = 0; j < length; j++)
        tokens.push_back(j == 0 && random.OneIn(2) ? CGR_TOKEN_LAST : random.Pick32(0, 999));
    for (int32_t r = 0; r < max_rows; r++) {
      computed.push_back(random.OneIn(5) ? 0 : random.Pick32(0, Group::kMaxSeqLen - 40));
      last_tokens.push_back(random.Pick32(1000, 2000));
    }
    for (int32_t g = 0; g < num_groups; g++)
      groups.emplace_back(random, g, max_rows);
    padded_requests = requests + extra_requests;
    padded_tokens = static_cast<int32_t>(tokens.size()) + extra_tokens;
    Bind();
  }

  // Outputs of exactly their size, poisoned.
  void Bind() {
    size_t t = static_cast<size_t>(std::max(padded_tokens, 0)), r = static_cast<size_t>(std::max(padded_requests, 0));
    for (auto *out : { &input_ids, &positions })
      *out = std::vector<int32_t>(t, kPoison);
    for (auto *out : { &seq_lens, &request_rows, &logits_indices })
      *out = std::vector<int32_t>(r, kPoison);
    query_start_loc = std::vector<int32_t>(r + 1, kPoison);
    bound.clear();
    for (Group &g : groups) {
      g.slots = std::vector<int64_t>(t, kPoison);
      g.kv_indptr = std::vector<int32_t>(r + 1, kPoison);
      g.last_page_len = std::vector<int32_t>(r, kPoison);
      bound.push_back({ g.page_size, g.read_trash, g.write_trash, g.kernel_page_size, Group::kPages, g.page_table.data(),
                        g.stride, g.slots.data(), g.kv_indptr.data(), g.last_page_len.data() });
    }
    metadata = CGR_METADATA_INIT;
    metadata.num_requests = num_requests;
    metadata.padded_requests = padded_requests;
    metadata.padded_tokens = padded_tokens;
    metadata.max_rows = max_rows;
    metadata.max_seq_len = Group::kMaxSeqLen;
    metadata.num_groups = static_cast<int32_t>(groups.size());
    metadata.rows = rows.data();
    metadata.query_lens = query_lens.data();
    metadata.tokens = tokens.data();
    metadata.row_computed = computed.data();
    metadata.row_last_tokens = last_tokens.data();
    metadata.groups = bound.data();
    metadata.input_ids = input_ids.data();
    metadata.positions = positions.data();
    metadata.query_start_loc = query_start_loc.data();
    metadata.seq_lens = seq_lens.data();
    metadata.request_rows = request_rows.data();
    metadata.logits_indices = logits_indices.data();
  }
  int32_t &PageOf(size_t group, int32_t row, int32_t position) {
    Group &g = groups[group];
    return g.page_table[static_cast<size_t>(row * g.stride + position / g.page_size)];
  }
  int32_t TokenAt(size_t t, int32_t row) const {
    bool last = metadata.tokens == nullptr || tokens[t] == CGR_TOKEN_LAST;
    return last ? last_tokens[static_cast<size_t>(row)] : tokens[t];
  }
};

void ExpectGroup(const Case &c, const Group &g) {
  size_t t = 0;
  int32_t pages = 0;
  ASSERT_EQ(g.kv_indptr[0], 0);
  for (size_t i = 0; i < g.last_page_len.size(); i++) {
    bool real = i < static_cast<size_t>(c.num_requests);
    int32_t row = real ? c.rows[i] : c.max_rows, q = real ? c.query_lens[i] : 0;
    int32_t length = real ? c.computed[static_cast<size_t>(row)] + q : 0;
    const int32_t size = g.kernel_page_size > 0 ? g.kernel_page_size : g.page_size;
    pages += (length + size - 1) / size;
    ASSERT_EQ(g.kv_indptr[i + 1], pages);
    ASSERT_EQ(g.last_page_len[i], length == 0 ? 1 : length % size == 0 ? size : length % size);
    for (int32_t j = 0; j < q; j++, t++) {
      int32_t position = length - q + j;
      int64_t page = g.page_table[static_cast<size_t>(row * g.stride + position / g.page_size)];
      ASSERT_EQ(g.slots[t], page * g.page_size + position % g.page_size);
    }
  }
  for (; t < g.slots.size(); t++)
    ASSERT_EQ(g.slots[t], -1);
}

void ExpectRight(const Case &c) {
  size_t t = 0;
  ASSERT_EQ(c.query_start_loc[0], 0);
  for (size_t i = 0; i < c.seq_lens.size(); i++) {
    bool real = i < static_cast<size_t>(c.num_requests);
    int32_t row = real ? c.rows[i] : c.max_rows, q = real ? c.query_lens[i] : 0;
    int32_t before = real ? c.computed[static_cast<size_t>(row)] : 0;
    ASSERT_EQ(c.request_rows[i], row) << (real ? "" : "padding");
    ASSERT_EQ(c.seq_lens[i], before + q);
    ASSERT_EQ(c.logits_indices[i], q > 0 ? static_cast<int32_t>(t) + q - 1 : 0);
    for (int32_t j = 0; j < q; j++, t++) {
      ASSERT_EQ(c.positions[t], before + j);
      ASSERT_EQ(c.input_ids[t], c.TokenAt(t, row));
    }
    ASSERT_EQ(c.query_start_loc[i + 1], static_cast<int32_t>(t));
  }
  for (; t < c.input_ids.size(); t++) {
    ASSERT_EQ(c.input_ids[t], 0);
    ASSERT_EQ(c.positions[t], 0);
  }
  for (const Group &g : c.groups)
    ExpectGroup(c, g);
}

TEST(Metadata, RandomBatches) {
  SeededRandom random;
  for (int round = 0; round < 600; round++) {
    Case c(random, round % 40, round % 7, round % 11, round % 5);
    ASSERT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
    ExpectRight(c);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(Metadata, WithoutTokensEveryRowGoesOnWithItsLast) {
  Random random(1);
  Case c(random, 8, 2, 3, 2);
  c.query_lens.assign(8, 1);
  c.query_lens[3] = 0;
  c.padded_tokens = 10;
  c.Bind();
  c.metadata.tokens = nullptr;
  ASSERT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
  ExpectRight(c);
}

TEST(Metadata, LastTokensAreNeededWhereTheyAreUsedAlone) {
  Random random(1);
  Case c(random, 6, 0, 0, 1);
  std::replace(c.tokens.begin(), c.tokens.end(), int32_t{ CGR_TOKEN_LAST }, 5);
  c.Bind();
  c.metadata.row_last_tokens = nullptr;
  EXPECT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
  ExpectRight(c);
  c.query_lens.assign(6, 0); // no tokens at all
  c.Bind();
  c.metadata.tokens = nullptr;
  c.metadata.row_last_tokens = nullptr;
  EXPECT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
}

// The step's own planner has more than one last token per row.
TEST(Metadata, LastTokensHaveAStride) {
  Random random(1);
  for (int32_t stride : { 1, 2, 5 }) {
    Case c(random, 7, 1, 1, 1);
    std::vector<int32_t> wide(c.last_tokens.size() * static_cast<size_t>(stride), -5);
    for (size_t r = 0; r < c.last_tokens.size(); r++)
      wide[r * static_cast<size_t>(stride)] = c.last_tokens[r];
    int32_t start = 0;
    for (size_t i = 0; i < c.rows.size(); i++) {
      c.request_rows[i] = c.rows[i];
      c.query_start_loc[i] = start;
      start += c.query_lens[i];
    }
    c.query_start_loc[c.rows.size()] = start;
    c.metadata.rows = c.metadata.query_lens = nullptr; // not read
    c.metadata.row_last_tokens = wide.data();
    cgr__metadata_fill(
        &c.metadata, nullptr, start, stride,
        [](void *, cgr_guard_error error, int32_t, int32_t, int64_t) { ADD_FAILURE() << cgr_guard_error_name(error); }, nullptr);
    ExpectRight(c);
  }
}

// ------------------------------------------------------------------------------------------------------------------ guards

std::string Refused(cgr_guard_error error) { return std::string("refused a ") + cgr_guard_error_name(error); }

struct Guarded : Case {
  // Eight requests of one token each, which are all good.
  explicit Guarded(Random &random) : Case(random, 8, 2, 3, 2) {
    query_lens.assign(8, 1);
    tokens.assign(8, 7);
    padded_tokens = 11;
    for (int32_t row : rows)
      computed[static_cast<size_t>(row)] = 5 + row;
    Bind();
  }
  int32_t &Computed(size_t request) { return computed[static_cast<size_t>(rows[request])]; }

  // Request i has length 0, and the others are as if it were not there.
  void ExpectEmptied(size_t i) const {
    EXPECT_EQ(seq_lens[i], 0);
    EXPECT_EQ(input_ids[i], 0);
    EXPECT_EQ(positions[i], 0);
    for (const Group &g : groups) {
      EXPECT_EQ(g.slots[i], -1);
      EXPECT_EQ(g.kv_indptr[i + 1], g.kv_indptr[i]);
      EXPECT_EQ(g.last_page_len[i], 1);
    }
  }
  void ExpectUntouched(size_t i) const {
    EXPECT_EQ(seq_lens[i], computed[static_cast<size_t>(rows[i])] + 1);
    EXPECT_EQ(input_ids[i], 7);
    for (const Group &g : groups)
      EXPECT_GE(g.slots[i], 12 * g.page_size);
  }
};

TEST(MetadataGuards, EmptyOneRequestAndLeaveTheOthers) {
  Random random(1);
  Guarded c(random);
  c.Computed(4) = Group::kMaxSeqLen;
  c.Computed(6) = -1;
  c.rows[2] = c.max_rows;
  c.Bind();
  ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_STEP,
                { Refused(CGR_GUARD_ROW), "index 2", std::to_string(c.max_rows) }); // the first of the three
  for (size_t i : { 2u, 4u, 6u })
    c.ExpectEmptied(i);
  for (size_t i : { 0u, 1u, 3u, 5u, 7u })
    c.ExpectUntouched(i);
  EXPECT_EQ(c.request_rows[2], c.max_rows) << "as it was sent";
  EXPECT_EQ(c.query_start_loc[8], 8);
}

TEST(MetadataGuards, RowsOutOfRange) {
  Random random(1);
  for (int32_t bad : { -1, INT32_MIN, 13, INT32_MAX }) {
    Guarded c(random);
    c.rows[7] = bad;
    ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_STEP, { Refused(CGR_GUARD_ROW), "index 7", std::to_string(bad) });
    c.ExpectEmptied(7);
    c.ExpectUntouched(6);
  }
}

TEST(MetadataGuards, LengthsAtTheirBorder) {
  Random random(1);
  Guarded c(random);
  c.Computed(3) = Group::kMaxSeqLen - 1;
  EXPECT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
  for (int32_t bad : { int32_t{ Group::kMaxSeqLen }, INT32_MAX, -1, INT32_MIN }) {
    c.Computed(3) = bad;
    c.Bind();
    ExpectMessage(
        cgr_metadata_build(&c.metadata), CGR_ERROR_STEP,
        { Refused(CGR_GUARD_LENGTH), "row " + std::to_string(c.rows[3]), "index 3", std::to_string(int64_t{ bad } + 1) });
    c.ExpectEmptied(3);
    c.ExpectUntouched(2);
  }
}

// A page that must not be written: outside the pool, or reserved. Its token has no slot, in that group alone.
TEST(MetadataGuards, PagesOfNewTokens) {
  Random random(1);
  for (int which = 0; which < 6; which++) {
    Guarded c(random);
    const Group &g = c.groups[1];
    const int32_t bad[] = { -1, Group::kPages, INT32_MIN, INT32_MAX, g.read_trash, g.write_trash };
    c.PageOf(1, c.rows[6], c.Computed(6)) = bad[which];
    ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_STEP,
                  { Refused(CGR_GUARD_PAGE), "row " + std::to_string(c.rows[6]),
                    "index " + std::to_string(c.Computed(6) / g.page_size), std::to_string(bad[which]) });
    EXPECT_EQ(c.groups[1].slots[6], -1);
    EXPECT_GE(c.groups[0].slots[6], 12 * c.groups[0].page_size);
    EXPECT_EQ(c.seq_lens[6], c.Computed(6) + 1) << "its length stays";
    for (size_t i : { 0u, 1u, 2u, 3u, 4u, 5u, 7u })
      c.ExpectUntouched(i);
  }
}

TEST(MetadataGuards, TablesThatAreTooNarrow) {
  Random random(1);
  Guarded c(random);
  c.Computed(0) = 4 * c.groups[0].page_size;
  c.Bind();
  c.bound[0].page_table_stride = 4; // rows follow each other more closely, and none has a page for that token
  ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_STEP, { Refused(CGR_GUARD_PAGE), "index 4" });
  EXPECT_EQ(c.groups[0].slots[0], -1);
}

// ---------------------------------------------------------------------------------------------------------------- refusals

struct Refusals : ::testing::Test {
  Random random{ 2 };
  Case c{ random, 4, 0, 0, 2 };

  void Expect(cgr_status status, const Words &words) {
    if (status != CGR_OK)
      ExpectMessage(cgr_metadata_build(&c.metadata), status, words);
    c.Bind();
    ASSERT_EQ(cgr_metadata_build(&c.metadata), CGR_OK) << cgr_last_message();
    ExpectRight(c);
  }
};

TEST_F(Refusals, ReservedTokens) {
  for (int32_t token : { -2, INT32_MIN }) {
    std::swap(c.tokens[0], token);
    ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_UNSUPPORTED, { "tokens[0] is " + std::to_string(c.tokens[0]) });
    std::swap(c.tokens[0], token);
  }
  Expect(CGR_OK, {});
}

// Pages of one token each, of as many tokens as there can be.
TEST_F(Refusals, RunningSumsBeyond32Bits) {
  std::fill(c.computed.begin(), c.computed.end(), INT32_MAX - 100);
  c.metadata.max_seq_len = INT32_MAX;
  c.bound[0].page_size = 1;
  c.bound[0].kernel_page_size = 0;
  ExpectMessage(cgr_metadata_build(&c.metadata), CGR_ERROR_INVALID_ARGUMENT, { "pages of group 0", "2147483647" });
}

TEST_F(Refusals, ReservedFields) {
  c.metadata.reserved = 3;
  Expect(CGR_ERROR_NEWER_STRUCT, { "reserved is 3" });
}

TEST_F(Refusals, Structs) {
  ExpectMessage(cgr_metadata_build(nullptr), CGR_ERROR_NULL_POINTER, { "cgr_metadata_build", "NULL" });
  c.metadata.size = 3;
  Expect(CGR_ERROR_INVALID_STRUCT, { "size is 3" });
  c.metadata.size = 5000;
  Expect(CGR_ERROR_INVALID_STRUCT, { "size is 5000" });
  c.metadata.size = 8; // an older caller's: the rest is zero
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "padded_requests 0" });
}

TEST_F(Refusals, Counts) {
  c.metadata.num_requests = -1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "num_requests is -1" });
  c.metadata.padded_requests = 3;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "padded_requests 3" });
  c.metadata.num_requests = c.metadata.padded_requests = 0;
  c.metadata.padded_tokens = -1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "padded_tokens is -1" });
  c.metadata.num_groups = -1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "num_groups is -1" });
}

TEST_F(Refusals, NullPointers) {
  const struct {
    const char *name;
    const int32_t *cgr_metadata::*array;
  } inputs[] = { { "rows", &cgr_metadata::rows },
                 { "query_lens", &cgr_metadata::query_lens },
                 { "row_computed", &cgr_metadata::row_computed } };
  for (const auto &input : inputs) {
    c.metadata.*input.array = nullptr;
    Expect(CGR_ERROR_NULL_POINTER, { std::string("cgr_metadata_build: ") + input.name + " is NULL, expected an array" });
  }
  const struct {
    const char *name;
    int32_t *cgr_metadata::*array;
  } outputs[] = { { "input_ids", &cgr_metadata::input_ids },
                  { "positions", &cgr_metadata::positions },
                  { "query_start_loc", &cgr_metadata::query_start_loc },
                  { "seq_lens", &cgr_metadata::seq_lens },
                  { "request_rows", &cgr_metadata::request_rows },
                  { "logits_indices", &cgr_metadata::logits_indices } };
  for (const auto &output : outputs) {
    c.metadata.*output.array = nullptr;
    Expect(CGR_ERROR_NULL_POINTER, { std::string("cgr_metadata_build: ") + output.name + " is NULL, expected an array" });
  }
  c.metadata.groups = nullptr;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "groups" });
  std::replace(c.tokens.begin(), c.tokens.end(), 0, 1);
  c.tokens[0] = CGR_TOKEN_LAST;
  c.metadata.row_last_tokens = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "row_last_tokens", "CGR_TOKEN_LAST" });
  c.metadata.tokens = nullptr;
  c.metadata.row_last_tokens = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "row_last_tokens" });
}

TEST_F(Refusals, Groups) {
  for (int32_t size : { 0, -1, -16, INT32_MIN }) {
    c.bound[1].page_size = size;
    Expect(CGR_ERROR_INVALID_ARGUMENT, { "groups[1].page_size is " + std::to_string(size), "at least 1" });
  }
  c.bound[1].page_size = 48;
  for (int32_t size : { -1, -16, 5, 32, 96, INT32_MAX }) {
    c.bound[1].page_size = 48;
    c.bound[1].kernel_page_size = size;
    Expect(CGR_ERROR_INVALID_ARGUMENT, { "groups[1].kernel_page_size is " + std::to_string(size), "divisor of page_size (48)" });
  }
  c.bound[1].page_size = 48;
  c.bound[1].kernel_page_size = 16;
  c.bound[1].num_pages = INT32_MAX / 3 + 1;
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "groups[1].num_pages is 715827883", "715827882", "3 pages" });
  c.bound[1].slot_mapping = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "groups[1]" });
  c.bound[1].kv_indptr = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "groups[1]" });
  c.bound[1].kv_last_page_len = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "groups[1]" });
  c.bound[1].page_table = nullptr;
  Expect(CGR_ERROR_NULL_POINTER, { "groups[1]" });
}

TEST_F(Refusals, Tokens) {
  std::vector<int32_t> many(4, 1 << 30);
  c.metadata.query_lens = many.data();
  Expect(CGR_ERROR_TOO_MANY_TOKENS, { "padded_tokens", std::to_string(c.padded_tokens) });
  c.metadata.padded_tokens = static_cast<int32_t>(c.tokens.size()) - 1;
  Expect(CGR_ERROR_TOO_MANY_TOKENS, { "padded_tokens", std::to_string(c.tokens.size()) });
  many = { 0, 0, -1, 0 };
  c.metadata.query_lens = many.data();
  Expect(CGR_ERROR_INVALID_ARGUMENT, { "query_lens[2] is -1" });
}

} // namespace

// cgr_block_table_get_layout and cgr_block_table_build: what they refuse, and the messages. A refused call writes nothing.
#include <cmath>
#include <functional>

#include "tests/support/block_table_case.h"
#include "tests/support/expect.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

struct Good : BlockTableBatch {
  Poisoned<16> memory;
  size_t bytes = 0;

  Good() {
    input.num_requests = 2;
    input.query_len = 1;
    input.max_seq_len = 40;
    input.max_pages = 3;
    input.page_size = 16;
    input.kv_layout = CGR_LAYOUT_HND;
    input.num_rows = 2;
    input.num_pages = 10;
    input.page_table_stride = 3;
    page_table = { 1, 2, 3, 4, 5, 6 };
    rows = { 1, 0 };
    seq_lens = { 33, 16 };
    query_start_loc = { 0, 1, 2 };
    live = 2;
    Bind();
    cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
    CGR_EXPECT_OK(cgr_block_table_get_layout(&input, &at));
    bytes = at.bytes;
    memory = Poisoned<16>(bytes);
  }
};

using Change = std::function<void(Good &)>;

void ExpectBuildRefused(const Change &change, cgr_status status, Words words) {
  Good b;
  change(b);
  words.push_back("cgr_block_table_build");
  ExpectMessage(cgr_block_table_build(&b.input, b.memory.data(), b.bytes), status, words);
  EXPECT_TRUE(b.memory.IsUntouched()) << "something was written";
}

void ExpectRefused(const Change &change, cgr_status status, const Words &words) {
  Good b;
  change(b);
  cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  ExpectMessage(cgr_block_table_get_layout(&b.input, &at), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_block_table_get_layout" });
  EXPECT_EQ(at.bytes, 0u);
  ExpectBuildRefused(change, status, words);
}

TEST(BlockTableApi, AcceptsWhatTheOthersChange) {
  Good b;
  CGR_EXPECT_OK(cgr_block_table_build(&b.input, b.memory.data(), b.bytes));
  EXPECT_FALSE(b.memory.IsUntouched());
}

TEST(BlockTableApi, RefusesCachesThatSuchKernelsCannotRead) {
  ExpectRefused([](Good &g) { g.input.kv_layout = CGR_LAYOUT_NHD; }, CGR_ERROR_UNSUPPORTED, { "kv_layout is", "nhd", "hnd" });
  for (int32_t size : { 0, -16, 1, 8, 48, 256 }) {
    ExpectRefused([=](Good &g) { g.input.page_size = size; }, CGR_ERROR_UNSUPPORTED,
                  { ": page_size is " + std::to_string(size), "16, 32, 64 or 128", "kernel_page_size has to be one of these" });
    if (size != 0)
      ExpectRefused([=](Good &g) { g.input.page_size = 1024, g.input.kernel_page_size = size; }, CGR_ERROR_UNSUPPORTED,
                    { ": kernel_page_size is " + std::to_string(size), "16, 32, 64 or 128" });
  }
}

TEST(BlockTableApi, RefusesPagesThatAreNotSomeOfTheKernels) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  for (int32_t size : { -64, 0, 16, 32, 96, 65536 + 64 })
    ExpectRefused([=](Good &g) { g.input.page_size = size, g.input.kernel_page_size = 64; }, bad,
                  { "page_size is " + std::to_string(size), "multiple of kernel_page_size (64)", "at most 65536" });
  ExpectRefused([](Good &g) { g.input.page_size = 48, g.input.kernel_page_size = 16, g.input.num_pages = INT32_MAX / 3 + 1; },
                bad, { "num_pages is 715827883", "1 .. 715827882" });
  ExpectRefused([](Good &g) { g.input.page_size = 48, g.input.kernel_page_size = 16, g.input.max_pages = 2; }, bad,
                { "max_pages is 2", "3 .. " });
}

TEST(BlockTableApi, RefusesFieldsOutOfRange) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  ExpectRefused([](Good &g) { g.input.num_requests = 0; }, bad, { "num_requests is 0", "1 .. 4096" });
  ExpectRefused([](Good &g) { g.input.num_requests = 4097; }, bad, { "num_requests is 4097", "1 .. 4096" });
  ExpectRefused([](Good &g) { g.input.query_len = 0; }, bad, { "query_len is 0", "1 .. " });
  ExpectRefused([](Good &g) { g.input.max_seq_len = 0; }, bad, { "max_seq_len is 0", "1 .. " });
  ExpectRefused(
      [](Good &g) {
        g.input.max_seq_len = 1 << 30;
        g.input.max_pages = 1 << 26;
        g.input.page_table_stride = 1 << 26;
      },
      bad, { "max_seq_len is 1073741824", "1 .. 1073741823" });
  ExpectRefused([](Good &g) { g.input.max_pages = 2; }, bad, { "max_pages is 2", "3 .. " });
  ExpectRefused([](Good &g) { g.input.num_rows = 0; }, bad, { "num_rows is 0", "1 .. " });
  ExpectRefused([](Good &g) { g.input.page_table_stride = 2; }, bad, { "page_table_stride is 2", "3 .. " });
  ExpectRefused([](Good &g) { g.input.num_pages = 0; }, bad, { "num_pages is 0", "1 .. " });
  ExpectRefused([](Good &g) { g.input.read_trash_page = 10; }, CGR_ERROR_PAGE_OUT_OF_RANGE,
                { "read_trash_page is 10", "0 .. 9" });
  ExpectRefused([](Good &g) { g.input.max_prefill_query_len = -1; }, bad, { "max_prefill_query_len is -1", "0 .. 16777216" });
  ExpectRefused([](Good &g) { g.input.max_prefill_query_len = (1 << 24) + 1; }, bad, { "max_prefill_query_len is 16777217" });
  double cgr_block_table_input::*const scales[] = { &cgr_block_table_input::bmm1_scale, &cgr_block_table_input::bmm2_scale,
                                                    &cgr_block_table_input::o_sf_scale };
  const char *names[] = { "bmm1_scale is ", "bmm2_scale is ", "o_sf_scale is " };
  for (int i = 0; i < 3; i++)
    for (double value : { std::nan(""), HUGE_VAL, -HUGE_VAL })
      ExpectRefused([=](Good &g) { g.input.*scales[i] = value; }, bad, { names[i], "finite" });
}

// Tokens that do not divide are no reason to take 1 for q_len_per_req.
TEST(BlockTableApi, RefusesTokensThatDoNotDivide) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  ExpectRefused([](Good &g) { g.input.query_len = 0, g.input.num_tokens = 3; }, bad,
                { "num_tokens is 3", "multiple of num_requests (2)", "q_len_per_req" });
  ExpectRefused([](Good &g) { g.input.query_len = 0, g.input.num_tokens = 1; }, bad, { "num_tokens is 1" });
  ExpectRefused([](Good &g) { g.input.query_len = 0, g.input.num_tokens = -2; }, bad, { "query_len is 0", "1 .. " });
  ExpectRefused([](Good &g) { g.input.num_tokens = 3; }, bad, { "num_tokens is 3", "expected 2", "query_len (1)", "(2), or 0" });
  ExpectRefused([](Good &g) { g.input.num_tokens = -2; }, bad, { "num_tokens is -2", "expected 2" });
  ExpectRefused([](Good &g) { g.input.num_tokens = 2, g.input.query_len = 1 << 24; }, bad, { "num_tokens is 2", "33554432" });
  for (int32_t query_len : { 1, 3 }) {
    Good b;
    b.input.query_len = 0, b.input.num_tokens = 2 * query_len;
    cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
    CGR_EXPECT_OK(cgr_block_table_get_layout(&b.input, &at));
    EXPECT_EQ(at.query_len, query_len);
  }
}

TEST(BlockTableApi, RefusesUniformDecodesOfOtherTokens) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  auto uniform = [](Good &g) { g.input.query_len = 2, g.input.num_tokens = 4, g.query_start_loc = { 0, 2, 4 }, g.Bind(); };
  Good good;
  uniform(good);
  CGR_EXPECT_OK(cgr_block_table_build(&good.input, good.memory.data(), good.bytes));
  ExpectBuildRefused([&](Good &g) { uniform(g), g.query_start_loc[1] = 1; }, bad,
                     { "query_start_loc[1] is 1", "expected 2", "num_tokens", "(2)" });
  ExpectBuildRefused([&](Good &g) { uniform(g), g.query_start_loc[2] = 3; }, bad, { "query_start_loc[2] is 3", "expected 4" });
  ExpectBuildRefused([&](Good &g) { uniform(g), g.query_start_loc[0] = 1; }, bad, { "query_start_loc[0] is 1", "expected 0" });
}

// Request 1 is a prefill of up to 5 tokens.
TEST(BlockTableApi, RefusesPrefillsOutOfRange) {
  auto mixed = [](Good &g) {
    g.input.max_prefill_query_len = 5, g.first_prefill = 1, g.query_start_loc = { 0, 1, 6 };
    g.Bind();
    cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
    CGR_EXPECT_OK(cgr_block_table_get_layout(&g.input, &at));
    g.bytes = at.bytes;
    g.memory = Poisoned<16>(at.bytes);
  };
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  Good good;
  mixed(good);
  CGR_EXPECT_OK(cgr_block_table_build(&good.input, good.memory.data(), good.bytes));
  ExpectBuildRefused([&](Good &g) { mixed(g), g.first_prefill = 3; }, bad, { "first_prefill[0] is 3", "0 .. 2" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.live = 1, g.first_prefill = 2; }, bad, { "first_prefill[0] is 2", "0 .. 1" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.first_prefill = -1; }, bad, { "first_prefill[0] is -1" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.query_start_loc[2] = 7; }, bad, { "query_start_loc[2] is 7", "1 .. 6" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.first_prefill = 2; }, bad, { "query_start_loc[2] is 6", "1 .. 2" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.input.first_prefill = nullptr; }, CGR_ERROR_NULL_POINTER,
                     { "first_prefill is NULL", "max_prefill_query_len" });
  ExpectBuildRefused([&](Good &g) { mixed(g), g.bytes -= 4; }, bad, { "bytes is" });
  ExpectBuildRefused([](Good &g) { g.input.first_prefill = &g.live; }, bad, { "first_prefill is", "expected NULL" });
}

TEST(BlockTableApi, RefusesNullAndMemoryThatDoesNotFit) {
  Good b;
  cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  ExpectMessage(cgr_block_table_get_layout(nullptr, &at), CGR_ERROR_NULL_POINTER, { "cgr_block_table_get_layout", "input" });
  ExpectMessage(cgr_block_table_get_layout(&b.input, nullptr), CGR_ERROR_NULL_POINTER, { "layout" });
  ExpectMessage(cgr_block_table_build(nullptr, b.memory.data(), b.bytes), CGR_ERROR_NULL_POINTER, { "input" });
  ExpectMessage(cgr_block_table_build(&b.input, nullptr, b.bytes), CGR_ERROR_NULL_POINTER, { "memory" });
  ExpectMessage(cgr_block_table_build(&b.input, b.memory.data(), b.bytes - 1), CGR_ERROR_INVALID_ARGUMENT,
                { "bytes is " + std::to_string(b.bytes - 1), "at least " + std::to_string(b.bytes) });
  ExpectMessage(cgr_block_table_build(&b.input, b.memory.data() + 1, b.bytes), CGR_ERROR_INVALID_ARGUMENT,
                { "memory is", "multiple of 16" });
  EXPECT_TRUE(b.memory.IsUntouched());
  const cgr_status null = CGR_ERROR_NULL_POINTER;
  ExpectBuildRefused([](Good &g) { g.input.page_table = nullptr; }, null, { "page_table is NULL" });
  ExpectBuildRefused([](Good &g) { g.input.rows = nullptr; }, null, { "rows is NULL" });
  ExpectBuildRefused([](Good &g) { g.input.seq_lens = nullptr; }, null, { "seq_lens is NULL" });
  ExpectBuildRefused([](Good &g) { g.input.query_start_loc = nullptr; }, null, { "query_start_loc is NULL" });
}

// On the host; the device replaces such values with harmless ones.
TEST(BlockTableApi, RefusesLiveValuesOutOfRange) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  ExpectBuildRefused([](Good &g) { g.live = 3; }, bad, { "live_requests[0] is 3", "0 .. 2" });
  ExpectBuildRefused([](Good &g) { g.rows[1] = 2; }, bad, { "rows[1] is 2", "0 .. 1" });
  ExpectBuildRefused([](Good &g) { g.rows[0] = -1; }, bad, { "rows[0] is -1", "0 .. 1" });
  ExpectBuildRefused([](Good &g) { g.seq_lens[1] = 41; }, bad, { "seq_lens[1] is 41", "0 .. 40" });
  ExpectBuildRefused([](Good &g) { g.seq_lens[1] = 0; }, bad, { "seq_lens[1] is 0", "at least 1, the new tokens of request 1" });
  ExpectBuildRefused([](Good &g) { g.seq_lens[0] = -1; }, bad, { "seq_lens[0] is -1", "0 .. 40" });
  Good empty; // it may have neither
  empty.seq_lens[1] = 0, empty.query_start_loc[2] = 1;
  CGR_EXPECT_OK(cgr_block_table_build(&empty.input, empty.memory.data(), empty.bytes));
  ExpectBuildRefused([](Good &g) { g.query_start_loc[2] = 0; }, bad, { "query_start_loc[2] is 0", "1 .. 2" });
  ExpectBuildRefused([](Good &g) { g.query_start_loc[1] = 2; }, bad, { "query_start_loc[1] is 2", "0 .. 1" });
  ExpectBuildRefused([](Good &g) { g.page_table[5] = 10; }, CGR_ERROR_PAGE_OUT_OF_RANGE,
                     { "page_table[1][2] is 10", "0 .. 9", "request 0" });
}

} // namespace
} // namespace cgr_test

// cgr_flashmla_size and cgr_flashmla_build: what they refuse, and the messages. A refused call writes nothing.
#include <functional>

#include "tests/support/expect.h"
#include "tests/support/flashmla_case.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

struct Good : FlashmlaBatch {
  Poisoned<32> memory;
  size_t bytes = 0;

  explicit Good(bool sparse = false) {
    input.num_requests = 3;
    input.num_multiprocessors = 132;
    input.compute_capability = 90;
    input.query_len = 1;
    input.num_q_heads = 64;
    input.num_kv_heads = 1;
    if (sparse) {
      input.topk = 100;
      input.extra_topk = 50;
      topk_lens = { 100, 0, 7 };
      extra_topk_lens = { 50, 0, 1 };
    } else {
      seq_lens = { 100, 0, 7000 };
    }
    live = 3;
    Bind();
    CGR_EXPECT_OK(cgr_flashmla_size(&input, nullptr, &bytes));
    memory = Poisoned<32>(bytes);
  }
};

using Change = std::function<void(Good &)>;

void ExpectBuildRefused(bool sparse, const Change &change, cgr_status status, Words words) {
  Good b(sparse);
  change(b);
  words.push_back("cgr_flashmla_build");
  ExpectMessage(cgr_flashmla_build(&b.input, b.memory.data(), b.bytes), status, words);
  EXPECT_TRUE(b.memory.IsUntouched()) << "something was written";
}

// Both functions refuse it, for the same reason.
void ExpectRefused(bool sparse, const Change &change, cgr_status status, Words words) {
  Good b(sparse);
  change(b);
  size_t bytes = 4321;
  int32_t parts = 1234;
  ExpectMessage(cgr_flashmla_size(&b.input, &parts, &bytes), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_flashmla_size" });
  EXPECT_TRUE(bytes == 4321 && parts == 1234);
  ExpectBuildRefused(sparse, change, status, words);
}

TEST(FlashmlaApi, AcceptsWhatTheOthersChange) {
  for (bool sparse : { false, true }) {
    Good b(sparse);
    CGR_EXPECT_OK(cgr_flashmla_build(&b.input, b.memory.data(), b.bytes));
    EXPECT_FALSE(b.memory.IsUntouched());
  }
}

TEST(FlashmlaApi, RefusesNull) {
  Good b;
  size_t bytes;
  ExpectMessage(cgr_flashmla_size(&b.input, nullptr, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_flashmla_size", "bytes" });
  ExpectMessage(cgr_flashmla_size(nullptr, nullptr, &bytes), CGR_ERROR_NULL_POINTER, { "cgr_flashmla_size", "input" });
  ExpectMessage(cgr_flashmla_build(nullptr, b.memory.data(), b.bytes), CGR_ERROR_NULL_POINTER, { "cgr_flashmla_build", "input" });
  ExpectMessage(cgr_flashmla_build(&b.input, nullptr, b.bytes), CGR_ERROR_NULL_POINTER, { "cgr_flashmla_build", "metadata" });
  ExpectBuildRefused(false, [](Good &g) { g.input.seq_lens = nullptr; }, CGR_ERROR_NULL_POINTER,
                     { "seq_lens is NULL", "3 lengths" });
}

TEST(FlashmlaApi, RefusesMemoryThatDoesNotFit) {
  Good b;
  ExpectMessage(cgr_flashmla_build(&b.input, b.memory.data(), b.bytes - 1), CGR_ERROR_INVALID_ARGUMENT,
                { "bytes is " + std::to_string(b.bytes - 1), "at least " + std::to_string(b.bytes), "cgr_flashmla_size" });
  ExpectMessage(cgr_flashmla_build(&b.input, b.memory.data() + 4, b.bytes), CGR_ERROR_INVALID_ARGUMENT,
                { "metadata is", "multiple of 32" });
  EXPECT_TRUE(b.memory.IsUntouched());
}

TEST(FlashmlaApi, RefusesFieldsOutOfRange) {
  using Field = int32_t cgr_flashmla_input::*;
  const struct {
    const char *name;
    Field field;
    int32_t value;
    const char *expected;
  } cases[] = {
    { "num_requests", &cgr_flashmla_input::num_requests, 0, "1 .. 4096" },
    { "num_requests", &cgr_flashmla_input::num_requests, 4097, "1 .. 4096" },
    { "num_parts", &cgr_flashmla_input::num_parts, -1, "0 .. 1024" },
    { "num_parts", &cgr_flashmla_input::num_parts, 1025, "0 .. 1024" },
    { "block_size", &cgr_flashmla_input::block_size, -1, "0 .. 65536" },
    { "block_size", &cgr_flashmla_input::block_size, 65537, "0 .. 65536" },
    { "fixed_overhead", &cgr_flashmla_input::fixed_overhead, -1, "0 .. 64" },
    { "fixed_overhead", &cgr_flashmla_input::fixed_overhead, 65, "0 .. 64" },
    { "topk", &cgr_flashmla_input::topk, -1, "0 .. " },
    { "extra_topk", &cgr_flashmla_input::extra_topk, 1, "0 .. 0" },
    { "num_multiprocessors", &cgr_flashmla_input::num_multiprocessors, 0, "1 .. 1024" },
    { "num_multiprocessors", &cgr_flashmla_input::num_multiprocessors, 1025, "1 .. 1024" },
    { "compute_capability", &cgr_flashmla_input::compute_capability, 89, "90 .. 99" },
    { "compute_capability", &cgr_flashmla_input::compute_capability, 100, "90 .. 99" },
    { "query_len", &cgr_flashmla_input::query_len, 0, "1 .. 65536" },
    { "num_q_heads", &cgr_flashmla_input::num_q_heads, 0, "1 .. 1024" },
    { "num_kv_heads", &cgr_flashmla_input::num_kv_heads, 0, "1 .. 1024" },
    { "num_q_heads", &cgr_flashmla_input::num_kv_heads, 3, "multiple of num_kv_heads, 3" },
  };
  for (const auto &c : cases)
    ExpectRefused(false, [&](Good &g) { g.input.*c.field = c.value; }, CGR_ERROR_INVALID_ARGUMENT,
                  { std::string(c.name) + " is", c.expected });
  ExpectRefused(false, [](Good &g) { g.input.layout = 2; }, CGR_ERROR_INVALID_ENUM,
                { "layout is 2", "cgr_flashmla_layout (0 current, 1 v1)" });
}

// If the number of parts is given, no model is needed.
TEST(FlashmlaApi, LooksAtTheModelOnlyToDeriveParts) {
  Good b;
  b.input.num_parts = 7;
  b.input.num_multiprocessors = b.input.compute_capability = b.input.query_len = b.input.num_q_heads = b.input.num_kv_heads = -5;
  int32_t parts = 0;
  size_t bytes = 0;
  CGR_EXPECT_OK(cgr_flashmla_size(&b.input, &parts, &bytes));
  EXPECT_EQ(parts, 7);
  EXPECT_EQ(bytes, 7u * 32 + 4 * 4);
}

TEST(FlashmlaApi, RefusesSparseKernelsThatThereAreNot) {
  ExpectRefused(true, [](Good &g) { g.input.num_q_heads = 32; }, CGR_ERROR_INVALID_ARGUMENT,
                { "num_q_heads is 32", "64 or 128" });
  ExpectRefused(true, [](Good &g) { g.input.num_kv_heads = 2; }, CGR_ERROR_INVALID_ARGUMENT, { "num_kv_heads is 2" });
  ExpectRefused(true, [](Good &g) { g.input.compute_capability = 110; }, CGR_ERROR_INVALID_ARGUMENT,
                { "compute_capability is 110" });
  ExpectRefused(true,
                [](Good &g) {
                  g.input.compute_capability = 100;
                  g.input.num_q_heads = 128;
                  g.input.qk_head_dim = 128;
                },
                CGR_ERROR_INVALID_ARGUMENT, { "qk_head_dim is 128", "512 or 576" });
  ExpectRefused(true, [](Good &g) { g.input.extra_topk = 1 << 30; }, CGR_ERROR_INVALID_ARGUMENT, { "extra_topk is", "together" });
}

TEST(FlashmlaApi, RefusesArraysThatAreNotRead) {
  static const int32_t some[3] = { 1, 1, 1 };
  ExpectRefused(true, [](Good &g) { g.input.seq_lens = some; }, CGR_ERROR_INVALID_ARGUMENT,
                { "topk is ", " and seq_lens is ", "expected NULL: a sparse batch attends to topk tokens, or to topk_lens" });
  ExpectRefused(false, [](Good &g) { g.input.topk_lens = some; }, CGR_ERROR_INVALID_ARGUMENT, { "topk_lens is", "without topk" });
  ExpectRefused(false, [](Good &g) { g.input.extra_topk_lens = some; }, CGR_ERROR_INVALID_ARGUMENT, { "extra_topk_lens is" });
  ExpectRefused(true,
                [](Good &g) {
                  g.input.layout = CGR_FLASHMLA_V1;
                  g.input.extra_topk = 0;
                  g.input.extra_topk_lens = nullptr;
                },
                CGR_ERROR_INVALID_ARGUMENT, { "topk_lens is", "V1" });
}

// On the host; the device takes the nearest good value.
TEST(FlashmlaApi, RefusesLengthsOutOfRange) {
  const int64_t longest = std::min<int64_t>(int64_t{ 1 } << 30, ((1 << 29) / 3 - 5) * int64_t{ 64 });
  ExpectBuildRefused(false, [](Good &g) { g.seq_lens[1] = -1; }, CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[1] is -1", "0 .. " });
  ExpectBuildRefused(false, [&](Good &g) { g.seq_lens[2] = int32_t(longest + 1); }, CGR_ERROR_INVALID_ARGUMENT,
                     { "seq_lens[2] is", "0 .. " + std::to_string(longest) });
  ExpectBuildRefused(true, [](Good &g) { g.topk_lens[0] = 101; }, CGR_ERROR_INVALID_ARGUMENT,
                     { "topk_lens[0] is 101", "0 .. 100" });
  ExpectBuildRefused(true, [](Good &g) { g.extra_topk_lens[2] = 51; }, CGR_ERROR_INVALID_ARGUMENT,
                     { "extra_topk_lens[2] is 51", "0 .. 50" });
  ExpectBuildRefused(false, [](Good &g) { g.live = 4; }, CGR_ERROR_INVALID_ARGUMENT, { "live_requests[0] is 4", "0 .. 3" });
  ExpectBuildRefused(false, [](Good &g) { g.live = -1; }, CGR_ERROR_INVALID_ARGUMENT, { "live_requests[0] is -1", "0 .. 3" });
}

} // namespace
} // namespace cgr_test

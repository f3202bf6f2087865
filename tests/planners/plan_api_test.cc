// cgr_plan_size and cgr_plan_build: what they refuse and in which words, and that what they accept is the plan of the host
// planner.
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "cgr/planners.h"
#include "planners/attention/plan.h"
#include "planners/attention/plan_host.h"
#include "tests/support/count_allocations.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

struct alignas(16) Block {
  unsigned char bytes[16];
};

constexpr unsigned char kPoison = 0xa7;

// A batch that is accepted, with lengths of its own, and memory for its plan.
struct Input {
  std::vector<int32_t> query_lens{ 1, 0, 7, 200 }, seq_lens{ 1000, 3, 7, 900 };
  cgr_plan_input input = CGR_PLAN_INPUT_INIT;
  std::vector<Block> plan;
  size_t bytes = 0;

  explicit Input(int32_t num_parts = 5) {
    input.num_parts = num_parts;
    Bind();
  }
  Input(const Input &) = delete; // `input` points into it
  void Bind() {
    input.num_requests = static_cast<int32_t>(query_lens.size());
    input.query_lens = query_lens.data();
    input.seq_lens = seq_lens.data();
  }
  // Exactly the memory that is asked for, poisoned.
  cgr_status Resize() {
    cgr_status status = cgr_plan_size(&input, &bytes);
    plan.resize(bytes / 16);
    std::memset(plan.data(), kPoison, plan.size() * 16);
    return status;
  }
  cgr_status Build() { return cgr_plan_build(&input, plan.data(), bytes); }
  bool IsUntouched() const {
    for (const Block &block : plan)
      for (unsigned char byte : block.bytes)
        if (byte != kPoison)
          return false;
    return true;
  }
  const cgr__plan_header &header() const { return *reinterpret_cast<const cgr__plan_header *>(plan.data()); }
};

// cgr_plan_build refuses, writes nothing, and a good call right after works.
void ExpectBuildRefused(Input &given, cgr_status status, const Words &words) {
  Input good;
  CGR_ASSERT_OK(good.Resize());
  if (given.plan.empty()) {
    given.bytes = good.bytes;
    given.plan.resize(given.bytes / 16);
  }
  std::memset(given.plan.data(), kPoison, given.plan.size() * 16);
  ExpectMessage(given.Build(), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_plan_build" });
  EXPECT_TRUE(given.IsUntouched()) << "something was written";
  CGR_EXPECT_OK(good.Build());
  EXPECT_EQ(good.header().num_parts, 5);
}

// Both functions refuse for the same reason.
void ExpectRefused(Input &given, cgr_status status, const Words &words) {
  size_t size = 12345;
  ExpectMessage(cgr_plan_size(&given.input, &size), status, words);
  ExpectMessage(CGR_OK, CGR_OK, { "cgr_plan_size" });
  EXPECT_EQ(size, 12345u);
  ExpectBuildRefused(given, status, words);
}

// The class that the header of the interface describes.
cgr__plan_class ClassOf(const cgr_plan_input &in) {
  cgr__plan_class c = {};
  int64_t tokens = 0;
  for (int32_t i = 0; i < in.num_requests; i++)
    tokens += in.query_lens[i];
  c.num_parts = in.num_parts;
  c.head_blocks = in.head_blocks == 0 ? 1 : in.head_blocks;
  c.decode_query_len = in.decode_query_len == 0 ? 1 : in.decode_query_len;
  c.decode_tile_kv = in.decode_tile_kv == 0 ? 64 : in.decode_tile_kv;
  c.cost_tile = in.cost_kv == 0 ? 2 : in.cost_tile;
  c.cost_kv = in.cost_kv == 0 ? 1 : in.cost_kv;
  c.snap = in.snap;
  c.prefill_tile_q = in.prefill_tile_q == 0 ? 64 : in.prefill_tile_q;
  c.prefill_tile_kv = in.prefill_tile_kv == 0 ? 64 : in.prefill_tile_kv;
  c.window_left = in.window_left;
  c.window_right = in.window_right;
  c.bidirectional = in.bidirectional != 0;
  c.max_splits = in.max_splits;
  c.max_requests = in.num_requests;
  c.max_entries = static_cast<int32_t>(cgr__plan_max_entries(&c, in.num_requests, static_cast<int32_t>(tokens)));
  return c;
}

// The bytes of the host planner for the same batch, and 0 where it writes nothing.
void ExpectHostPlan(Input &given) {
  CGR_ASSERT_OK(given.Resize());
  cgr__plan_class c = ClassOf(given.input);
  ASSERT_EQ(given.bytes, static_cast<size_t>(cgr__plan_bytes(&c)));
  std::vector<int32_t> starts = { 0 };
  for (int32_t length : given.query_lens)
    starts.push_back(starts.back() + length);
  std::vector<Block> expected(given.plan.size(), Block{});
  std::vector<int64_t> scratch(cgr__plan_scratch_bytes(&c) / 8 + 1);
  cgr__plan_fill(&c, starts.data(), given.seq_lens.data(), given.input.num_requests, scratch.data(), expected.data());
  CGR_ASSERT_OK(given.Build());
  ASSERT_EQ(std::memcmp(given.plan.data(), expected.data(), given.bytes), 0);
}

TEST(PlanApi, IsThePlanOfTheHostPlanner) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + 1000; seed++) {
    Random random(seed);
    Input given(random.Pick32(1, 300));
    int32_t requests = random.OneIn(50) ? 4000 : random.Pick32(0, 20);
    given.query_lens.clear();
    given.seq_lens.clear();
    for (int32_t i = 0; i < requests; i++) {
      given.query_lens.push_back(random.OneIn(2) ? 1 : random.Pick32(0, 100));
      given.seq_lens.push_back(given.query_lens.back() + random.Pick32(0, 500));
    }
    given.Bind();
    cgr_plan_input &in = given.input;
    for (int32_t *value : { &in.head_blocks, &in.decode_query_len, &in.decode_tile_kv, &in.cost_tile, &in.cost_kv, &in.snap,
                            &in.prefill_tile_q, &in.prefill_tile_kv, &in.window_left, &in.max_splits })
      *value = random.OneIn(3) ? 0 : random.Pick32(1, 200);
    in.bidirectional = random.OneIn(2) ? 0 : random.Pick32(INT32_MIN, INT32_MAX);
    in.window_right = in.bidirectional != 0 ? random.Pick32(0, 100) : 0;
    ExpectHostPlan(given);
    ASSERT_FALSE(HasFailure()) << Repeat(seed);
  }
}

// Each field that is 0 means its default, and nothing else.
TEST(PlanApi, ZerosAreTheDefaults) {
  auto build = [](void (*change)(cgr_plan_input *)) {
    Input given(5);
    given.query_lens = { 1, 1, 2, 300, 65 };
    given.seq_lens = { 700, 6400, 3000, 900, 20000 };
    given.Bind();
    change(&given.input);
    EXPECT_EQ(given.Resize(), CGR_OK) << cgr_last_message();
    EXPECT_EQ(given.Build(), CGR_OK) << cgr_last_message();
    const unsigned char *bytes = given.plan[0].bytes;
    return std::vector<unsigned char>(bytes, bytes + given.bytes);
  };
  const std::vector<unsigned char> zeros = build([](cgr_plan_input *) {});
  EXPECT_EQ(build([](cgr_plan_input *in) { in->head_blocks = 1; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->decode_query_len = 1; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->decode_tile_kv = 64; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->prefill_tile_q = 64; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->prefill_tile_kv = 64; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->cost_tile = 2, in->cost_kv = 1; }), zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->cost_tile = 77; }), zeros); // without cost_kv it says nothing
  EXPECT_NE(build([](cgr_plan_input *in) { in->cost_kv = 1; }), zeros);    // then a cost_tile of 0 is one
  EXPECT_NE(build([](cgr_plan_input *in) { in->head_blocks = 2; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->decode_query_len = 2; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->decode_tile_kv = 63; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->prefill_tile_q = 65; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->prefill_tile_kv = 65; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->snap = 3; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->window_left = 128; }), zeros);
  EXPECT_NE(build([](cgr_plan_input *in) { in->max_splits = 2; }), zeros);
  const std::vector<unsigned char> both = build([](cgr_plan_input *in) { in->bidirectional = 1; });
  EXPECT_NE(both, zeros);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->bidirectional = INT32_MIN; }), both);
  EXPECT_EQ(build([](cgr_plan_input *in) { in->bidirectional = 1, in->window_right = INT32_MAX; }), both);
}

// By the number of requests and new tokens, whatever the lengths: seq_lens is not read.
TEST(PlanApi, SizeIsOfRequestsAndTokens) {
  size_t one = 0, other = 0;
  Input given(7);
  given.query_lens = { 100, 100, 100 };
  given.input.seq_lens = nullptr;
  given.input.query_lens = given.query_lens.data();
  given.input.num_requests = 3;
  CGR_ASSERT_OK(cgr_plan_size(&given.input, &one));
  given.query_lens = { 1, 298, 1 };
  given.input.query_lens = given.query_lens.data();
  CGR_ASSERT_OK(cgr_plan_size(&given.input, &other));
  EXPECT_EQ(one, other);
  EXPECT_EQ(one % 16, 0u);
  given.input.num_requests = 0;
  given.input.query_lens = nullptr;
  CGR_ASSERT_OK(cgr_plan_size(&given.input, &one));
  // No prefill queue can have more entries than the 2 G splits that it is cut into.
  EXPECT_EQ(one, sizeof(cgr__plan_header) + 7 * sizeof(cgr__plan_part) + 2 * 7 * sizeof(cgr__plan_entry));
}

TEST(PlanApi, OlderAndNewerInputsAreRead) {
  Input given;
  CGR_ASSERT_OK(given.Resize());
  struct {
    cgr_plan_input known;
    uint64_t unknown;
  } newer = { given.input, 0 };
  size_t size = 0;
  newer.known.size = sizeof newer;
  CGR_EXPECT_OK(cgr_plan_size(&newer.known, &size));
  EXPECT_EQ(size, given.bytes);
  CGR_EXPECT_OK(cgr_plan_build(&newer.known, given.plan.data(), given.bytes));
  const size_t old = (offsetof(cgr_plan_input, head_blocks) + 7) / 8 * 8; // what follows is not read
  std::memset(reinterpret_cast<char *>(&given.input) + old, 0xff, sizeof given.input - old);
  given.input.size = uint32_t(old);
  CGR_EXPECT_OK(given.Resize());
  CGR_EXPECT_OK(given.Build());
  EXPECT_EQ(given.header().head_blocks, 1);
  newer.unknown = 1;
  ExpectMessage(cgr_plan_size(&newer.known, &size), CGR_ERROR_NEWER_STRUCT, { "cgr_plan_size: input", "not zero" });
  ExpectMessage(cgr_plan_build(&newer.known, given.plan.data(), given.bytes), CGR_ERROR_NEWER_STRUCT,
                { "cgr_plan_build: input", "not zero" });
  Input rubbish;
  rubbish.input.size = 3;
  ExpectRefused(rubbish, CGR_ERROR_INVALID_STRUCT, { "input: size is 3,", "_INIT" });
  rubbish.input.size = offsetof(cgr_plan_input, num_parts); // so old that it knows of no parts
  ExpectRefused(rubbish, CGR_ERROR_INVALID_ARGUMENT, { "num_parts is 0", "1 .. 4096" });
}

TEST(PlanApi, NullIsRefused) {
  Input given;
  size_t size = 0;
  CGR_ASSERT_OK(given.Resize());
  ExpectMessage(cgr_plan_size(nullptr, &size), CGR_ERROR_NULL_POINTER, { "cgr_plan_size: input is NULL" });
  ExpectMessage(cgr_plan_size(&given.input, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_plan_size: plan_size is NULL" });
  ExpectMessage(cgr_plan_build(nullptr, given.plan.data(), given.bytes), CGR_ERROR_NULL_POINTER,
                { "cgr_plan_build: input is NULL" });
  EXPECT_TRUE(given.IsUntouched());
  ExpectMessage(cgr_plan_build(&given.input, nullptr, given.bytes), CGR_ERROR_NULL_POINTER, { "cgr_plan_build: plan is NULL" });
  given.input.query_lens = nullptr;
  ExpectRefused(given, CGR_ERROR_NULL_POINTER, { "query_lens is NULL", "expected 4 lengths" });
  given.Bind();
  given.input.seq_lens = nullptr;
  ExpectBuildRefused(given, CGR_ERROR_NULL_POINTER, { "seq_lens is NULL", "expected 4 lengths" });
  given.input.query_lens = nullptr;
  given.input.num_requests = 0; // nothing is read
  CGR_EXPECT_OK(given.Resize());
  CGR_EXPECT_OK(given.Build());
  EXPECT_EQ(given.header().num_decodes, 0);
}

TEST(PlanApi, NumbersOutOfRangeAreRefused) {
  struct Field {
    const char *name;
    int32_t cgr_plan_input::*field;
    int32_t low, high;
  };
  const Field fields[] = {
    { "num_requests", &cgr_plan_input::num_requests, 0, 1 << 24 },
    { "num_parts", &cgr_plan_input::num_parts, 1, 4096 },
    { "head_blocks", &cgr_plan_input::head_blocks, 0, 1024 },
    { "decode_query_len", &cgr_plan_input::decode_query_len, 0, 4096 },
    { "decode_tile_kv", &cgr_plan_input::decode_tile_kv, 0, 4096 },
    { "cost_tile", &cgr_plan_input::cost_tile, 0, 1 << 20 },
    { "cost_kv", &cgr_plan_input::cost_kv, 0, 1 << 20 },
    { "snap", &cgr_plan_input::snap, 0, 1 << 20 },
    { "prefill_tile_q", &cgr_plan_input::prefill_tile_q, 0, 4096 },
    { "prefill_tile_kv", &cgr_plan_input::prefill_tile_kv, 0, 4096 },
    { "window_left", &cgr_plan_input::window_left, 0, INT32_MAX },
    { "window_right", &cgr_plan_input::window_right, 0, 0 }, // without `bidirectional`
    { "max_splits", &cgr_plan_input::max_splits, 0, 256 },
  };
  for (const Field &field : fields) {
    std::vector<int32_t> values = { field.low - 1, INT32_MIN };
    if (field.high < INT32_MAX)
      values.insert(values.end(), { field.high + 1, INT32_MAX });
    for (int32_t value : values) {
      Input given;
      given.input.*field.field = value;
      ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT,
                    { std::string(field.name) + " is " + std::to_string(value) + ",",
                      "expected " + std::to_string(field.low) + " .. " + std::to_string(field.high) });
    }
    for (int32_t value : { field.low, field.high }) { // num_requests 2^24 has a test of its own
      if (field.field == &cgr_plan_input::num_requests)
        continue;
      Input given;
      given.input.*field.field = value;
      CGR_EXPECT_OK(given.Resize());
      CGR_EXPECT_OK(given.Build());
    }
  }
  Input given;
  given.input.bidirectional = 1;
  given.input.window_right = -1;
  ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "window_right is -1,", "0 .. 2147483647" });
}

TEST(PlanApi, AsManyRequestsAsAreAllowed) {
  Input given;
  given.query_lens.assign(1 << 24, 0);
  given.seq_lens.assign(1 << 24, 5);
  given.query_lens.back() = 1;
  given.Bind();
  CGR_ASSERT_OK(given.Resize());
  CGR_ASSERT_OK(given.Build());
  EXPECT_EQ(given.header().num_decodes, 1);
  EXPECT_EQ(given.header().cost, 3);
}

TEST(PlanApi, PlansThatAreTooSmallOrNotAlignedAreRefused) {
  Input given(7);
  CGR_ASSERT_OK(given.Resize());
  size_t most = given.bytes;
  for (size_t bytes : { size_t{ 0 }, size_t{ 1 }, most - 1 }) {
    given.bytes = bytes;
    ExpectBuildRefused(given, CGR_ERROR_INVALID_ARGUMENT,
                       { "plan_size is " + std::to_string(bytes) + ",", "at least " + std::to_string(most), "cgr_plan_size" });
  }
  given.plan.resize(most / 16 + 1);
  std::memset(given.plan.data(), kPoison, given.plan.size() * 16);
  char *plan = reinterpret_cast<char *>(given.plan.data());
  for (int off : { 1, 4, 8, 15 }) {
    ExpectMessage(cgr_plan_build(&given.input, plan + off, most), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_plan_build: plan is ", "multiple of 16" });
    EXPECT_TRUE(given.IsUntouched());
  }
  CGR_EXPECT_OK(cgr_plan_build(&given.input, plan + 16, most));
  EXPECT_EQ(plan[0], static_cast<char>(kPoison));
  CGR_EXPECT_OK(cgr_plan_build(&given.input, plan, most + 16)); // more than needed
}

TEST(PlanApi, LengthsThatMakeNoSenseAreRefused) {
  Input given;
  CGR_ASSERT_OK(given.Resize());
  for (int32_t length : { -1, INT32_MIN }) {
    given.query_lens[2] = length;
    ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "query_lens[2] is " + std::to_string(length) + ",", "at least 0" });
  }
  given.query_lens[2] = 7;
  for (int32_t length : { 6, 0, -1, (1 << 30) + 1, INT32_MAX }) {
    given.seq_lens[2] = length;
    ExpectBuildRefused(given, CGR_ERROR_INVALID_ARGUMENT,
                       { "seq_lens[2] is " + std::to_string(length) + ",", "expected 7 (query_lens[2]) .. 2^30" });
  }
  given.seq_lens[2] = 7;
  given.seq_lens[1] = -1;
  ExpectBuildRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[1] is -1,", "expected 0 (query_lens[1]) .. 2^30" });
  given.seq_lens[1] = 1 << 30;
  CGR_EXPECT_OK(given.Build());
}

TEST(PlanApi, AtMost2To31Minus65TokensInAll) {
  Input given;
  given.query_lens = { 1 << 30, (1 << 30) - 65 };
  given.seq_lens = { 1 << 30, 1 << 30 };
  given.input.prefill_tile_q = 4096;
  given.Bind();
  CGR_ASSERT_OK(given.Resize());
  CGR_EXPECT_OK(given.Build());
  EXPECT_EQ(given.header().num_entries, (1 << 18) * 2);
  EXPECT_TRUE(given.header().num_decodes == 0 && given.header().num_emptied == 0);
  given.query_lens[1]++;
  ExpectRefused(given, CGR_ERROR_TOO_MANY_TOKENS, { "requests 0 .. 1 are", "2147483584", "at most 2147483583" });
  given.query_lens = { 5, INT32_MAX, INT32_MAX };
  given.seq_lens = { 5, 1 << 30, 1 << 30 };
  given.Bind();
  ExpectRefused(given, CGR_ERROR_TOO_MANY_TOKENS, { "requests 0 .. 1 are", "2147483652", "at most 2147483583" });
}

// The items of the prefill queue are counted in 32 bits.
TEST(PlanApi, AtMost2To31Minus1TilesInTheQueue) {
  Input given(1);
  given.query_lens = { 1 << 30 };
  given.seq_lens = { 1 << 30 };
  given.input.prefill_tile_q = 1;
  given.input.head_blocks = 2;
  given.Bind();
  ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT,
                { "query_lens, prefill_tile_q and head_blocks", "2147483650 tiles", "at most 2147483647" });
  given.query_lens[0] = (1 << 30) - 2;
  size_t size = 0;
  CGR_EXPECT_OK(cgr_plan_size(&given.input, &size)); // 2^30 - 1 at most for each head block
  EXPECT_GE(size, ((size_t{ 1 } << 30) - 2) * sizeof(cgr__plan_entry));
}

// The cost of the decode section fits in 2^62, and Q times the number of parts does not overflow.
TEST(PlanApi, CostsUpTo2To62) {
  Input given(4096);
  given.query_lens.assign(4, 1);
  given.seq_lens.assign(4, 1 << 30);
  given.input.head_blocks = 1024;
  given.input.decode_tile_kv = 1;
  given.input.cost_kv = given.input.snap = 1 << 20;
  given.Bind();
  CGR_ASSERT_OK(given.Resize());
  CGR_ASSERT_OK(given.Build());
  EXPECT_EQ(given.header().cost, int64_t{ 1 } << 62);
  EXPECT_EQ(given.header().cost_per_part, int64_t{ 1 } << 50);
  const cgr__plan_part *parts = reinterpret_cast<const cgr__plan_part *>(&given.header() + 1);
  for (int32_t p = 0; p < 4096; p++)
    ASSERT_TRUE(parts[p].begin.decode == p / 1024 && parts[p].begin.head_block == p % 1024 && parts[p].begin.kv == 0) << p;
  given.input.cost_tile = 1;
  ExpectBuildRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "requests 0 .. 3 cost more than 2^62" });
}

// What is not in the decode section has no cost there.
TEST(PlanApi, PrefillsAndEmptyRequestsDoNotCostInTheDecodeSection) {
  Input given(64);
  given.input.head_blocks = 1024;
  given.input.decode_tile_kv = 1;
  given.input.cost_kv = given.input.cost_tile = 1 << 20;
  given.query_lens = { 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 1 };
  given.seq_lens.assign(11, 1 << 30);
  given.Bind();
  CGR_ASSERT_OK(given.Resize());
  CGR_ASSERT_OK(given.Build());
  EXPECT_EQ(given.header().num_decodes, 1);
  EXPECT_EQ(given.header().cost, (int64_t{ 1 } << 60) + (1 << 30));
}

TEST(PlanApi, WithoutHostMemoryNothingIsBuilt) {
#if !CGR_COUNT_MALLOC
  GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  Input given;
  CGR_ASSERT_OK(given.Resize());
  failing_allocation = 1;
  const cgr_status status = given.Build();
  failing_allocation = 0;
  ExpectMessage(status, CGR_ERROR_OUT_OF_MEMORY, { "cgr_plan_build: no host memory for 4 requests (" });
  EXPECT_TRUE(given.IsUntouched());
  CGR_EXPECT_OK(given.Build());
}

} // namespace

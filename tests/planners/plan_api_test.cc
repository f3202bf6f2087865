// cgr_plan_build: what it refuses, and that what it accepts is the plan of the host planner.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cgr/planners.h"
#include "planners/attention/plan.h"
#include "planners/attention/plan_host.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

struct Input {
  std::vector<int32_t> query_lens{ 1, 0, 7 }, seq_lens{ 100, 3, 7 };
  std::vector<int64_t> plan;
  cgr_plan_input input = CGR_PLAN_INPUT_INIT;

  explicit Input(int32_t num_parts = 5) : plan(cgr_plan_size(num_parts) / 8, -1) {
    input.num_parts = num_parts;
    input.tile_q = 16;
    Bind();
  }
  void Bind() {
    input.num_requests = static_cast<int32_t>(query_lens.size());
    input.query_lens = query_lens.data();
    input.seq_lens = seq_lens.data();
  }
  size_t Bytes() const { return plan.size() * 8; }
  cgr_status Build() { return cgr_plan_build(&input, plan.data(), Bytes()); }
};

void ExpectRefused(Input input, cgr_status status, const Words &words) {
  ExpectMessage(input.Build(), status, words);
  for (int64_t word : input.plan)
    EXPECT_EQ(word, -1) << "something was written";
}

TEST(PlanApi, SizesAreOfOneHeaderAndTheParts) {
  for (int32_t parts : { 1, 2, 132, 4095, 4096 })
    EXPECT_EQ(cgr_plan_size(parts), sizeof(cgr__plan_header) + static_cast<size_t>(parts) * sizeof(cgr__plan_part));
  for (int32_t parts : { 0, -1, 4097, INT32_MIN, INT32_MAX })
    EXPECT_EQ(cgr_plan_size(parts), 0u);
}

// With few requests, and with so many that the scratch memory is allocated.
TEST(PlanApi, IsThePlanOfTheHostPlanner) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  for (int32_t requests : { 0, 1, 3, 600, 681, 682, 683, 700, 5000 }) {
    Input given(random.Pick32(1, 300));
    given.query_lens.clear();
    given.seq_lens.clear();
    std::vector<int32_t> starts = { 0 };
    for (int32_t i = 0; i < requests; i++) {
      given.query_lens.push_back(random.Pick32(0, 3));
      given.seq_lens.push_back(given.query_lens.back() + random.Pick32(0, 500));
      starts.push_back(starts.back() + given.query_lens.back());
    }
    given.Bind();
    given.input.tile_q = 1 << random.Pick(0, 6);
    ASSERT_EQ(given.Build(), CGR_OK) << cgr_last_message();
    std::vector<int64_t> expected(given.plan.size(), -1), prefix(static_cast<size_t>(requests) + 1);
    cgr__plan_fill(starts.data(), given.seq_lens.data(), requests, given.input.num_parts, given.input.tile_q, prefix.data(),
                   expected.data());
    EXPECT_EQ(given.plan, expected) << requests << " requests";
  }
}

TEST(PlanApi, AnOlderOrNewerCallersInputIsRead) {
  Input given;
  struct {
    cgr_plan_input known;
    uint64_t unknown;
  } newer = { given.input, 0 };
  newer.known.size = sizeof newer;
  EXPECT_EQ(cgr_plan_build(&newer.known, given.plan.data(), given.Bytes()), CGR_OK) << cgr_last_message();
  newer.unknown = 1;
  ExpectMessage(cgr_plan_build(&newer.known, given.plan.data(), given.Bytes()), CGR_ERROR_NEWER_STRUCT, { "cgr_plan_build" });
  newer.known.size = 3;
  ExpectMessage(cgr_plan_build(&newer.known, given.plan.data(), given.Bytes()), CGR_ERROR_INVALID_STRUCT, { "size is 3" });
  newer.known.size = offsetof(cgr_plan_input, num_parts); // so old that it knows of no parts
  ExpectMessage(cgr_plan_build(&newer.known, given.plan.data(), given.Bytes()), CGR_ERROR_INVALID_ARGUMENT, { "num_parts is 0" });
}

TEST(PlanApi, NullIsRefused) {
  Input given;
  ExpectMessage(cgr_plan_build(nullptr, given.plan.data(), given.Bytes()), CGR_ERROR_NULL_POINTER, { "cgr_plan_build", "NULL" });
  ExpectMessage(cgr_plan_build(&given.input, nullptr, given.Bytes()), CGR_ERROR_NULL_POINTER, { "plan is NULL" });
  given.input.query_lens = nullptr;
  ExpectRefused(given, CGR_ERROR_NULL_POINTER, { "query_lens", "NULL" });
  given.Bind();
  given.input.seq_lens = nullptr;
  ExpectRefused(given, CGR_ERROR_NULL_POINTER, { "seq_lens", "NULL" });
  given.input.query_lens = nullptr;
  given.input.num_requests = 0;
  EXPECT_EQ(given.Build(), CGR_OK);
}

TEST(PlanApi, NumbersOutOfRangeAreRefused) {
  Input given;
  for (int32_t n : { -1, INT32_MIN, (1 << 24) + 1, INT32_MAX }) {
    given.input.num_requests = n;
    ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "num_requests is " + std::to_string(n), "0 .. 16777216" });
  }
  given.Bind();
  for (int32_t parts : { 0, -1, 4097 }) {
    given.input.num_parts = parts;
    ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "num_parts is " + std::to_string(parts), "1 .. 4096" });
  }
  given.input.num_parts = 5;
  for (int32_t tile_q : { 0, -1, 3, 65, 128, INT32_MIN }) {
    given.input.tile_q = tile_q;
    ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "tile_q is " + std::to_string(tile_q), "power of two", "1 .. 64" });
  }
}

TEST(PlanApi, PlansThatAreTooSmallOrNotAlignedAreRefused) {
  Input given(7);
  size_t most = cgr_plan_size(7);
  for (size_t bytes : { size_t{ 0 }, most - 1 })
    ExpectMessage(cgr_plan_build(&given.input, given.plan.data(), bytes), CGR_ERROR_INVALID_ARGUMENT,
                  { "plan_size is " + std::to_string(bytes), std::to_string(most) });
  given.plan.resize(given.plan.size() + 1);
  char *plan = reinterpret_cast<char *>(given.plan.data());
  ExpectMessage(cgr_plan_build(&given.input, plan + 4, most), CGR_ERROR_INVALID_ARGUMENT, { "plan is ", "multiple of 8" });
  EXPECT_EQ(cgr_plan_build(&given.input, plan + 8, most), CGR_OK);
}

TEST(PlanApi, LengthsThatMakeNoSenseAreRefused) {
  Input given;
  given.query_lens[2] = -1;
  given.Bind();
  ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "query_lens[2] is -1", "at least 0" });
  given.query_lens[2] = 7;
  given.seq_lens[2] = 6;
  given.Bind();
  ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[2] is 6", "query_lens[2]", "7" });
  given.seq_lens[1] = -1;
  given.Bind();
  ExpectRefused(given, CGR_ERROR_INVALID_ARGUMENT, { "seq_lens[1] is -1", "query_lens[1]" });
}

TEST(PlanApi, AtMost2To31Minus65TokensInAll) {
  Input given;
  given.query_lens = { INT32_MAX - 65, 1 };
  given.seq_lens = { INT32_MAX, INT32_MAX };
  given.Bind();
  EXPECT_EQ(given.Build(), CGR_OK) << cgr_last_message();
  given.query_lens[1] = 2;
  given.Bind();
  given.plan.assign(given.plan.size(), -1);
  ExpectRefused(given, CGR_ERROR_TOO_MANY_TOKENS, { "first 2 requests", "2147483584", "2147483583" });
}

} // namespace

// How many instructions the host executes to prepare and launch a step, each bounded: what a feature adds to every step shows
// here. The device does nothing, so they are the library's own, without the kernels and the driver. They are the same in every
// run of one build.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/idle_runtime.h"
#include "tests/support/single_step.h"

// Of the coverage counters and of the undefined behaviour sanitizer, which have no macro: NULL without them.
extern "C" {
__attribute__((weak)) void __gcov_init(void *);
__attribute__((weak)) void __ubsan_handle_type_mismatch_v1(void *, void *);
}

namespace cgr_test {
namespace {

enum { kWarmup = 16, kCounted = 8 };

// The most instructions that one of the counted steps may take: 8% above what gcc 12 makes with Bazel's options, to leave room
// for other versions and options. The C library compares the rows with instructions that depend on the processor: twice what was
// counted.
enum class Load { kUnchanged, kAppends, kSwaps }; // kSwaps: two requests of a batch given whole change places
struct Bounds {
  const char *name;
  bool standing;
  Load load;
  int32_t requests;
  int64_t prepare, launch, c_library;
};
const Bounds kBounds[] = {
  { "whole_8", false, Load::kUnchanged, 8, 579, 454, 32 },
  { "whole_1024", false, Load::kUnchanged, 1024, 579, 454, 1200 },
  { "whole_8_page_appended", false, Load::kAppends, 8, 679, 454, 32 },
  { "whole_1024_page_appended", false, Load::kAppends, 1024, 679, 454, 1200 },
  { "whole_8_two_swapped", false, Load::kSwaps, 8, 2119, 804, 32 },
  { "whole_1024_two_swapped", false, Load::kSwaps, 1024, 2575, 804, 1294 },
  { "standing_8", true, Load::kUnchanged, 8, 618, 454, 16 },
  { "standing_1024", true, Load::kUnchanged, 1024, 618, 454, 16 },
  { "standing_8_page_appended", true, Load::kAppends, 8, 718, 454, 16 },
  { "standing_1024_page_appended", true, Load::kAppends, 1024, 718, 454, 16 },
};

void PrintTo(const Bounds &bounds, std::ostream *os) { *os << bounds.name; }

class InstructionsOfAStep : public IdleRuntime, public ::testing::WithParamInterface<Bounds> {
protected:
  void SetUp() override {
    if (!CanInterrupt())
      GTEST_SKIP() << "instructions are counted on x86-64, without sanitizers";
    if (__gcov_init != nullptr || __ubsan_handle_type_mismatch_v1 != nullptr)
      GTEST_SKIP() << "coverage counters or a sanitizer have instructions of their own";
#ifndef NDEBUG
    GTEST_SKIP() << "the bounds are of an optimised build";
#endif
#ifdef __clang__
    GTEST_SKIP() << "the bounds are of gcc";
#endif
    Open(1024, 6, GetParam().requests, 3, GetParam().standing);
  }
};

// What the two calls of a step take, as a counted function gets it.
struct Call {
  cgr_runtime *rt;
  const cgr_batch *batch;
  cgr_step step;
  cudaStream_t stream;
  cgr_status status;
};
void Prepare(void *context) {
  Call *c = static_cast<Call *>(context);
  c->status = cgr_step_prepare(c->rt, c->batch, &c->step);
}
void Launch(void *context) {
  Call *c = static_cast<Call *>(context);
  c->status = cgr_step_launch(c->rt, &c->step, c->stream);
}

// Makes the call; `counts`: and counts it.
void MakeCall(Call *call, void (*function)(void *), bool counts, Instructions *most) {
  if (!counts) {
    function(call);
  } else {
    const Instructions counted = CountInstructions(function, call);
    *most = { std::max(most->own, counted.own), std::max(most->of_c_library, counted.of_c_library) };
  }
  CGR_ASSERT_OK(call->status);
}

TEST_P(InstructionsOfAStep, AreBounded) {
  const Bounds &bounds = GetParam();
  Instructions prepare = {}, launch = {};
  for (int32_t i = 0; i < kWarmup + kCounted; i++) {
    Call call = { rt_, &batch_, CGR_STEP_INIT, stream_, CGR_OK };
    if (bounds.load == Load::kAppends)
      Append(i % 8, 3 + i / 8);
    if (bounds.load == Load::kSwaps)
      std::swap(rows_[1], rows_[size_t(bounds.requests) - 2]);
    ASSERT_NO_FATAL_FAILURE(MakeCall(&call, Prepare, i >= kWarmup, &prepare));
    ASSERT_NO_FATAL_FAILURE(MakeCall(&call, Launch, i >= kWarmup, &launch));
    ASSERT_EQ(call.step.key.kind, CGR_KIND_FULL);
    ASSERT_EQ(call.step.num_requests, bounds.requests);
    batch_.tokens = nullptr;
  }
  printf("instructions: prepare %lld, launch %lld; of the C library %lld, %lld\n", (long long)prepare.own, (long long)launch.own,
         (long long)prepare.of_c_library, (long long)launch.of_c_library);
  EXPECT_LE(prepare.own, bounds.prepare);
  EXPECT_GT(prepare.own, bounds.prepare / 2) << "is the bound too high now?";
  EXPECT_LE(launch.own, bounds.launch);
  EXPECT_GT(launch.own, bounds.launch / 2) << "is the bound too high now?";
  EXPECT_LE(prepare.of_c_library + launch.of_c_library, bounds.c_library);
}

TEST(CountedInstructions, AreExact) {
  if (!CanInterrupt())
    GTEST_SKIP() << "instructions are counted on x86-64, without sanitizers";
  const Instructions few = CountInstructions([](void *) { __asm__ volatile("nop"); }, nullptr);
  const Instructions more = CountInstructions([](void *) { __asm__ volatile(".rept 101\n\tnop\n\t.endr"); }, nullptr);
  EXPECT_EQ(more.own - few.own, 100);
  EXPECT_EQ(more.of_c_library, 0);
  static char a[4096], b[4096];
  static int same = memcmp(a, b, sizeof a); // the first call may be bound late
  const Instructions compared = CountInstructions([](void *) { same = memcmp(a, b, sizeof a); }, nullptr);
  EXPECT_EQ(same, 0);
  EXPECT_GT(compared.of_c_library, 50);
  EXPECT_LT(compared.own, 30);
}

INSTANTIATE_TEST_SUITE_P(Batches, InstructionsOfAStep, ::testing::ValuesIn(kBounds),
                         [](const auto &of) { return std::string(of.param.name); });

} // namespace
} // namespace cgr_test

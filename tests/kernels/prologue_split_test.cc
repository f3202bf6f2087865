// The split of a batch into decodes and prefills (P20), uniform or not, against a transcription.
#include "tests/kernels/prologue_case.h"
#include "tests/support/seed.h"
#include "tests/support/split.h"

namespace cgr_test {
namespace {

// Prologues of one step, over and over: its number is not used up.
class KernelPrologueSplit : public PrologueTest {
protected:
  void SetUp() override {
    PrologueTest::SetUp();
    if (!IsSkipped())
      pair_ = std::make_unique<StepPair>(*bench_, limits_);
  }
  // Counts of decodes, and of their tokens, on the device.
  Split Run(const Words &lens, int32_t padded_requests, int32_t threshold, bool uniform) {
    Words rows(lens.size()), counts(16);
    std::iota(rows.begin(), rows.end(), 0);
    const StagedStep step = pair_->Step(rows, lens, padded_requests, limits_.max_tokens);
    WriteSlot(pair_->device.slot_layout(), step, pair_->device.slot(step.seq));
    cgr__step_args args = pair_->device.Args(padded_requests, limits_.max_tokens);
    args.split = { threshold, uniform };
    bench_->Run(cgr__kernel_prologue, &args);
    bench_->Copy(counts.data(), args.buffers.counts, counts.size() * 4);
    EXPECT_EQ(counts[CGR_COUNT_REQUESTS], int32_t(lens.size()));
    return { counts[CGR_COUNT_DECODES], counts[CGR_COUNT_DECODE_TOKENS] };
  }
  void Expect(const Words &lens, int32_t padded_requests, int32_t threshold, bool uniform, const Split &want) {
    const Split got = Run(lens, padded_requests, threshold, uniform);
    ASSERT_EQ(got.decodes, want.decodes) << ::testing::PrintToString(lens) << " by " << threshold << (uniform ? ", uniform" : "");
    ASSERT_EQ(got.tokens, want.tokens) << ::testing::PrintToString(lens) << " by " << threshold << (uniform ? ", uniform" : "");
  }
  const StepLimits limits_;
  std::unique_ptr<StepPair> pair_;
};

TEST_P(KernelPrologueSplit, ExamplesByHand) {
  for (const SplitExample &e : SplitExamples())
    for (int32_t padding : { 0, 2 })
      Expect(e.lens, std::max(1, int32_t(e.lens.size())) + padding, e.threshold, e.uniform, e.want);
}

// All may be alike, nearly alike, or anything.
TEST_P(KernelPrologueSplit, RandomBatches) {
  SeededRandom random;
  const int batches = GetParam().IsCuda() ? 20000 : 100000;
  int kinds[2][3] = {}; // no decodes, all, some
  for (int n = 0; n < batches && !HasFatalFailure(); n++) {
    const int32_t threshold = random.Pick32(0, 4), usual = random.Pick32(0, 4), oddity = random.Pick32(0, 4);
    Words lens(size_t(random.Pick(0, limits_.max_requests)));
    for (int32_t &length : lens)
      length = oddity > 0 && random.OneIn(oddity + 1) ? random.Pick32(0, 5) : oddity == 0 && random.OneIn(3) ? 0 : usual;
    const bool uniform = threshold > 0 && random.OneIn(2);
    const int32_t padded = std::max(1, random.Pick32(int32_t(lens.size()), limits_.max_requests));
    const Split want = SplitOf(lens, threshold, uniform);
    ASSERT_NO_FATAL_FAILURE(Expect(lens, padded, threshold, uniform, want));
    kinds[uniform][want.decodes == 0 ? 0 : want.decodes == int32_t(lens.size()) ? 1 : 2]++;
  }
  for (const auto &kind : kinds)
    for (int count : kind)
      EXPECT_GT(count, batches / 50);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPrologueSplit);

} // namespace
} // namespace cgr_test

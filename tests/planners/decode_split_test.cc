// The split of a batch into decodes and prefills, against a transcription: all short batches.
#include <gtest/gtest.h>

#include "planners/metadata/decode_split.h"
#include "tests/support/split.h"

namespace cgr_test {
namespace {

int32_t Count(const std::vector<int32_t> &lens, int32_t threshold, bool uniform) {
  cgr__decodes decodes = { { threshold, uniform }, 0, 0, 0, false };
  for (int32_t length : lens)
    cgr__decodes_add(&decodes, length);
  return cgr__decodes_count(&decodes);
}

TEST(Split, ExamplesByHand) {
  for (const SplitExample &e : SplitExamples()) {
    SCOPED_TRACE(::testing::PrintToString(e.lens));
    EXPECT_EQ(Count(e.lens, e.threshold, e.uniform), e.want.decodes);
    EXPECT_EQ(SplitOf(e.lens, e.threshold, e.uniform).decodes, e.want.decodes);
    EXPECT_EQ(SplitOf(e.lens, e.threshold, e.uniform).tokens, e.want.tokens);
  }
}

// Lengths 0 .. 4, up to five requests.
TEST(Split, AllShortBatches) {
  int32_t batches = 1;
  for (int32_t n = 0; n <= 5; n++, batches *= 5)
    for (int32_t k = 0; k < batches; k++) {
      std::vector<int32_t> lens;
      for (int32_t i = 0, rest = k; i < n; i++, rest /= 5)
        lens.push_back(rest % 5);
      for (int32_t threshold = 0; threshold <= 4; threshold++)
        for (bool uniform : { false, true })
          ASSERT_EQ(Count(lens, threshold, uniform), SplitOf(lens, threshold, uniform).decodes)
              << ::testing::PrintToString(lens) << " " << threshold << (uniform ? " uniform" : "");
    }
}

} // namespace
} // namespace cgr_test

// What kernels do with FlashMLA's metadata: one part reads each block of every live request, requests without tokens are visited
// once, and the combine kernel merges exactly what was left for it.
#include <map>

#include "tests/support/expect.h"
#include "tests/support/flashmla_case.h"
#include "tests/support/flashmla_consumer.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

void ExpectCover(const FlashmlaBatch &b, const FlashmlaWork &work, const std::vector<int32_t> &tokens) {
  const int32_t most_partials = b.input.num_requests + b.input.num_parts; // what FlashMLA's calls have memory for
  std::vector<std::map<int32_t, int32_t>> ranges(tokens.size());
  std::map<int32_t, int32_t> writers; // of partials
  std::vector<int32_t> visits(tokens.size(), 0), outputs(tokens.size(), 0);
  for (const FlashmlaItem &item : work.items) {
    const size_t r = size_t(item.request);
    visits[r]++;
    outputs[r] += item.partial < 0;
    if (item.partial >= 0) {
      ASSERT_LT(item.partial, most_partials);
      ASSERT_GE(item.partial, work.first_partial[r]);
      ASSERT_LT(item.partial, work.first_partial[r + 1]);
      ASSERT_EQ(writers[item.partial]++, 0) << "partial " << item.partial << " is written twice";
    }
    ASSERT_LE(item.begin, item.end);
    if (item.begin < item.end) {
      ASSERT_TRUE(ranges[r].insert({ item.begin, item.end }).second);
    }
  }
  for (size_t r = 0; r < tokens.size(); r++) {
    const int32_t partials = work.first_partial[r + 1] - work.first_partial[r];
    const bool is_live = int32_t(r) < b.num_live();
    ASSERT_EQ(visits[r], is_live ? partials : 0) << "request " << r;
    ASSERT_EQ(partials == 0, !is_live) << "request " << r;
    ASSERT_EQ(outputs[r], partials == 1) << "request " << r << " of " << partials << " splits";
    int32_t at = 0;
    for (const auto &[begin, end] : ranges[r]) {
      ASSERT_EQ(begin, at) << "request " << r;
      at = end;
    }
    ASSERT_EQ(at, (tokens[r] + b.block_size() - 1) / b.block_size()) << "request " << r;
  }
}

TEST(FlashmlaCover, EveryBlockIsReadOnceAndEverySplitIsMerged) {
  ForSeeds(8000, [](Random &random) {
    FlashmlaBatch b;
    RandomFlashmla(random, 200, &b);
    size_t bytes = 0;
    CGR_ASSERT_OK(cgr_flashmla_size(&b.input, nullptr, &bytes));
    Poisoned<32> memory(bytes);
    CGR_ASSERT_OK(cgr_flashmla_build(&b.input, memory.data(), bytes));
    std::vector<int32_t> tokens(size_t(b.input.num_requests), 0);
    for (int32_t i = 0; i < b.num_live(); i++)
      tokens[size_t(i)] = b.Tokens(size_t(i));
    FlashmlaWork work;
    ASSERT_TRUE(ReadFlashmla(b.input.layout, tokens, b.block_size(), b.input.num_parts, memory.data(), &work));
    ExpectCover(b, work, tokens);
  });
}

} // namespace
} // namespace cgr_test

// FlashAttention-3's scheduler metadata equals, bit for bit, what the real planners wrote: upstream's and vLLM's, from the
// engine's own terms to the last word (tests/data/fa3).
#include <map>

#include "tests/support/expect.h"
#include "tests/support/fa3_case.h"
#include "tests/support/fa3_oracle.h"

namespace cgr_test {
namespace {

std::vector<int32_t> OnDemand(const cgr_fa3_sizes &s) {
  return { s.is_causal, s.is_local, s.num_splits, s.pack_gqa, s.tile_m, s.tile_n, s.sort, s.head_swizzle };
}

void ExpectWords(const Fa3Record &r, const cgr_fa3_sizes &s, std::vector<int32_t> got) {
  ASSERT_EQ(size_t(s.used_words), r.words.size());
  std::vector<int32_t> expected = r.words;
  expected.resize(got.size(), 0);
  for (int32_t i = 0; r.undefined && s.at_num_splits >= 0 && i < r.input.num_requests; i++) {
    EXPECT_EQ(got[size_t(s.at_num_splits + i)], 1) << "no work in the batch, and a request is split";
    expected[size_t(s.at_num_splits + i)] = 1;
  }
  EXPECT_EQ(got, expected);
}

void Check(Fa3Record &r, int32_t max_requests) {
  SCOPED_TRACE(r.name);
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  r.input.max_requests = max_requests;
  CGR_ASSERT_OK(cgr_fa3_size(&r.input, &s));
  EXPECT_EQ(OnDemand(s), r.on_demand) << "is_causal, is_local, num_splits, pack_gqa, tile_m, tile_n, sort, head_swizzle";
  EXPECT_EQ(s.metadata_bytes, 4u * (1 + 4 * ((uint64_t(max_requests ? max_requests : r.input.num_requests) + 3) / 4 * 4)));
  alignas(16) static int32_t memory[1 + 4 * 4096];
  std::fill(std::begin(memory), std::end(memory), int32_t(0xA5A5A5A5));
  CGR_ASSERT_OK(cgr_fa3_build(&r.input, memory, s.metadata_bytes));
  const std::vector<int32_t> got(memory, memory + s.metadata_bytes / 4);
  ExpectWords(r, s, got);
  EXPECT_EQ(Fa3Oracle(r, s), got) << "the oracle of the random tests";
}

TEST(Fa3Records, AreWrittenWordForWord) {
  std::vector<std::unique_ptr<Fa3Record>> records = Fa3Records();
  ASSERT_GT(records.size(), 80u) << "the test does not see the records";
  std::map<int32_t, int> equal;
  for (auto &r : records) {
    Check(*r, 0);
    Check(*r, std::min(4096, r->input.num_requests + 37));
    equal[r->input.layout] += !HasFailure();
  }
  for (int32_t layout : { CGR_FA3_UPSTREAM, CGR_FA3_VLLM }) {
    EXPECT_GT(equal[layout], 30);
    RecordProperty(cgr_fa3_layout_name(cgr_fa3_layout(layout)), equal[layout]);
    std::cout << cgr_fa3_layout_name(cgr_fa3_layout(layout)) << ": " << equal[layout] << " records equal\n";
  }
}

} // namespace
} // namespace cgr_test

// Keys that make attention batch-invariant: where a request's keys are cut depends on the request alone. Its sums then have the
// same order, and the same bits, in any batch and at any place. With the library's other keys the cuts depend on the batch too.
#include <map>

#include "tests/support/expect.h"
#include "tests/support/fa3_consumer.h"
#include "tests/support/flashinfer_reading.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// The keys [begin, end) of each partial of each row and head, in the order of the merge.
using Cuts = std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>>;

struct Batch {
  std::vector<int32_t> queries, lens;
  size_t place; // of the request under test
};

// The request in random company.
Batch InCompany(Random &random, int32_t query_len, int32_t seq_len) {
  Batch batch;
  const size_t requests = size_t(random.Pick(1, 12));
  batch.place = size_t(random.Pick(0, int64_t(requests) - 1));
  for (size_t i = 0; i < requests; i++) {
    const int32_t length = random.OneIn(3) ? random.Pick32(1, 4000) : random.Pick32(1, 300);
    batch.lens.push_back(i == batch.place ? seq_len : length);
    batch.queries.push_back(i == batch.place ? query_len : random.OneIn(2) ? 1 : random.Pick32(0, std::min(length, 40)));
  }
  return batch;
}

Cuts CutsOfFa3(const Batch &batch, int32_t layout, int32_t num_splits) {
  Fa3Case c;
  c.input = Fa3Key();
  c.input.layout = layout;
  c.input.num_splits = num_splits;
  for (size_t i = 0; i < batch.lens.size(); i++)
    c.Add(batch.queries[i], batch.lens[i]);
  c.Bind(16);
  c.input.num_tokens = c.starts.back();
  cgr_fa3_sizes sizes = CGR_FA3_SIZES_INIT;
  CGR_EXPECT_OK(cgr_fa3_size(&c.input, &sizes));
  std::vector<int32_t> words(sizes.metadata_bytes / 4 + 4); // aligned to 16 by the allocator
  CGR_EXPECT_OK(cgr_fa3_build(&c.input, words.data(), sizes.metadata_bytes));
  const Fa3Consumer consumer(c, sizes, words);
  Cuts cuts;
  for (const Fa3Work &w : consumer.All())
    if (w.request == int32_t(batch.place))
      cuts[{ w.m, w.head }].push_back({ w.n_begin, w.n_end });
  return cuts;
}

Cuts CutsOfFlashInfer(const Batch &batch, int32_t fixed_split_size, bool disable_split_kv) {
  cgr_flashinfer_prefill_input in = CGR_FLASHINFER_PREFILL_INPUT_INIT;
  std::vector<int32_t> rows = { 0 }, pages = { 0 };
  std::vector<int64_t> lens(batch.lens.begin(), batch.lens.end());
  for (size_t i = 0; i < batch.lens.size(); i++) {
    rows.push_back(rows.back() + batch.queries[i]);
    pages.push_back(pages.back() + (batch.lens[i] + 15) / 16);
  }
  in.num_requests = int32_t(batch.lens.size());
  in.qo_indptr = rows.data();
  in.kv_indptr = pages.data();
  in.total_num_rows = std::max(rows.back(), in.num_requests);
  in.num_q_heads = 8;
  in.num_kv_heads = 2;
  in.head_dim_qk = in.head_dim_vo = 128;
  in.page_size = 16;
  in.fixed_split_size = fixed_split_size;
  in.force_split_kv = fixed_split_size > 0;
  in.disable_split_kv = disable_split_kv;
  in.num_multiprocessors = fixed_split_size > 0 ? 1024 : 16; // with room for all tiles, or without
  in.graph = 1;
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
  CGR_EXPECT_OK(cgr_flashinfer_prefill_size(&in, &plan));
  std::vector<int64_t> words(plan.int_bytes / 8 + 2);
  auto *bytes = reinterpret_cast<unsigned char *>(words.data());
  CGR_EXPECT_OK(cgr_flashinfer_prefill_build(&in, bytes, plan.int_bytes, nullptr));
  const FlashInferReading reading(plan, bytes, batch.queries, lens, 4, 0);
  Cuts cuts;
  for (const FlashInferWork &w : reading.Works())
    for (int64_t line = w.packed_begin; line < w.packed_end && w.request == int32_t(batch.place); line++) {
      auto &of_row = cuts[{ line / 4, line % 4 }];
      if (std::find(of_row.begin(), of_row.end(), std::pair(w.kv_begin, w.kv_end)) == of_row.end())
        of_row.push_back({ w.kv_begin, w.kv_end }); // CTAs past the plan's repeat its first tile
    }
  for (auto &[row, of_row] : cuts)
    std::sort(of_row.begin(), of_row.end());
  return cuts;
}

// Whether random requests are cut in a batch as they are alone.
template <class Cut> void ExpectAsAlone(Cut cut, int batches, bool invariant) {
  SeededRandom random;
  int different = 0;
  for (int n = 0; n < batches; n++) {
    const int32_t seq_len = random.Pick32(1, 3000), query_len = random.OneIn(2) ? 1 : random.Pick32(1, std::min(seq_len, 40));
    const Cuts alone = cut(Batch{ { query_len }, { seq_len }, 0 });
    ASSERT_FALSE(alone.empty());
    different += cut(InCompany(random, query_len, seq_len)) != alone;
  }
  if (invariant) {
    EXPECT_EQ(different, 0) << "of " << batches;
  } else {
    EXPECT_GT(different, 0) << "the test cannot see it";
  }
}

TEST(BatchInvariance, Fa3WithOneSplitCutsARequestAsAlone) {
  for (int32_t layout : { CGR_FA3_UPSTREAM, CGR_FA3_VLLM })
    ExpectAsAlone([=](const Batch &batch) { return CutsOfFa3(batch, layout, 1); }, 1000, true);
}
TEST(BatchInvariance, Fa3WithMoreSplitsDoesNot) {
  ExpectAsAlone([](const Batch &batch) { return CutsOfFa3(batch, CGR_FA3_VLLM, 32); }, 200, false);
}
TEST(BatchInvariance, FlashInferWithChunksOfAFixedSizeCutsARequestAsAlone) {
  for (int32_t pages : { 16, 128 })
    ExpectAsAlone([=](const Batch &batch) { return CutsOfFlashInfer(batch, pages, false); }, 1000, true);
}
TEST(BatchInvariance, FlashInferWithoutSplitsCutsARequestAsAlone) {
  ExpectAsAlone([](const Batch &batch) { return CutsOfFlashInfer(batch, 0, true); }, 1000, true);
}
TEST(BatchInvariance, FlashInferWithChunksThatItLooksForDoesNot) {
  ExpectAsAlone([](const Batch &batch) { return CutsOfFlashInfer(batch, 0, false); }, 200, false);
}

} // namespace
} // namespace cgr_test

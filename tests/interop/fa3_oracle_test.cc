// For random batches of both layouts cgr_fa3_build writes all words, as a second implementation (tests/support/fa3_oracle.h)
// gives them; padding changes nothing for the live requests.
#include "tests/support/expect.h"
#include "tests/support/fa3_case.h"
#include "tests/support/fa3_oracle.h"

namespace cgr_test {
namespace {

struct alignas(16) Memory {
  int32_t words[1 + 4 * 4096 + 15];
};

std::vector<int32_t> Build(const Fa3Case &c, cgr_fa3_sizes &s) {
  static Memory memory;
  const int32_t poison = int32_t(0xA5A5A5A5);
  std::fill(std::begin(memory.words), std::end(memory.words), poison);
  s = CGR_FA3_SIZES_INIT;
  CGR_EXPECT_OK(cgr_fa3_size(&c.input, &s));
  CGR_EXPECT_OK(cgr_fa3_build(&c.input, memory.words, s.metadata_bytes));
  EXPECT_EQ(memory.words[s.metadata_bytes / 4], poison) << "a word past the end was written";
  return { memory.words, memory.words + s.metadata_bytes / 4 };
}

int32_t RandomCount(Random &random) {
  return random.OneIn(60) ? random.Pick32(900, 2100) : random.Pick32(1, random.OneIn(4) ? 200 : 12);
}

TEST(Fa3Oracle, IsEqualInRandomBatches) {
  ForSeeds(20000, [](Random &random) {
    Fa3Case c;
    cgr_fa3_sizes s;
    Fa3RandomKey(random, c.input);
    int32_t live = RandomCount(random);
    Fa3RandomBatch(random, live, live + (random.OneIn(2) ? random.Pick32(0, 70) : 0), c);
    if (random.OneIn(3)) {
      c.live = random.Pick32(0, c.input.num_requests);
      c.input.live_requests = &c.live;
    }
    const std::vector<int32_t> got = Build(c, s);
    EXPECT_EQ(Fa3Oracle(c, s), got);
  });
}

// Every size around a chunk of 992, a warp and the largest.
TEST(Fa3Oracle, IsEqualAtTheBordersOfChunks) {
  SeededRandom random;
  for (int32_t n :
       { 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 990, 991, 992, 993, 994, 1023, 1024, 1984, 1985, 2976, 2977, 4095, 4096 })
    for (int repeat = 0; repeat < 6; repeat++) {
      Fa3Case c;
      cgr_fa3_sizes s;
      Fa3RandomKey(random, c.input);
      Fa3RandomBatch(random, n, n, c);
      const std::vector<int32_t> got = Build(c, s);
      EXPECT_EQ(Fa3Oracle(c, s), got) << n << " requests";
    }
}

// By hand: rows of 4 heads, tiles of 128 x 128. m = { 1, 1, 2, 0 }, n = { 1, 8, 2, 0 }: 1 + 8 + 4 = 13 tiles, times 1.1 and 2
// heads on 8 SMs is 3.575: 4 to an SM. So 8 KV tiles become 2 splits of 4. Sorted by 128 n - 128 m: { 0, 384, 0, 0 }.
TEST(Fa3Oracle, HasASmallBatchAsByHand) {
  Fa3Case c;
  cgr_fa3_sizes s;
  c.input = Fa3Key();
  c.input.num_q_heads = 8;
  c.input.num_kv_heads = 2;
  c.input.num_multiprocessors = 8;
  c.Add(1, 128);
  c.Add(32, 1000);
  c.Add(33, 129);
  c.Bind(4);
  const std::vector<int32_t> expected = { 2, 1, 1, 1, 1, 1, 2, 0, 1, 0, 2, 3, 2, 2, 2, 2, 0 };
  EXPECT_EQ(Build(c, s), expected);
}

// Words of the live requests with and without padding, and after a larger plan.
TEST(Fa3Oracle, PaddingChangesNothing) {
  SeededRandom random;
  for (int repeat = 0; repeat < 500; repeat++) {
    Fa3Case c;
    cgr_fa3_sizes tight, loose;
    Fa3RandomKey(random, c.input);
    Fa3RandomBatch(random, random.Pick32(1, 60), 0, c);
    c.input.max_requests = 200;
    const int32_t n = c.input.num_requests;
    const std::vector<int32_t> few = Build(c, tight);
    c.Bind(n + random.Pick32(1, 100));
    const std::vector<int32_t> many = Build(c, loose);
    // The entries of real requests, in the order of the vectors.
    auto entries = [n](const std::vector<int32_t> &words, int32_t at, const cgr_fa3_sizes &s, int32_t total) {
      std::vector<int32_t> live;
      for (int32_t i = 0; at >= 0 && i < total; i++)
        if ((s.at_batch_idx >= 0 ? words[size_t(s.at_batch_idx + i)] : i) < n)
          live.push_back(words[size_t(at + i)]);
      return live;
    };
    auto all = [](const cgr_fa3_sizes &s) {
      return std::vector<int32_t>{ s.at_num_splits, s.at_num_m_blocks, s.at_seqlen_q, s.at_batch_idx, s.at_nheads_in_l2 };
    };
    for (size_t v = 0; v < 5; v++)
      EXPECT_EQ(entries(few, all(tight)[v], tight, n), entries(many, all(loose)[v], loose, c.input.num_requests)) << v;
  }
}

// One split, and no live number that changes: what a request gets depends on the request alone.
TEST(Fa3Oracle, BatchInvariantMeansOneSplit) {
  SeededRandom random;
  for (int repeat = 0; repeat < 300; repeat++) {
    Fa3Case c;
    cgr_fa3_sizes s;
    Fa3RandomKey(random, c.input);
    c.input.num_splits = 1;
    Fa3RandomBatch(random, random.Pick32(1, 40), 0, c);
    const std::vector<int32_t> words = Build(c, s);
    for (int32_t i = 0; s.at_num_splits >= 0 && i < c.input.num_requests; i++)
      EXPECT_EQ(words[size_t(s.at_num_splits + i)], 1);
    EXPECT_EQ(s.partial_out_bytes, 0u);
  }
}

} // namespace
} // namespace cgr_test

// Under FlashAttention-3's scheduler metadata every (row, key) pair that a request's mask allows is processed exactly once: every
// tile of rows of every head is assigned once for each split, and its splits are side by side over all keys that it sees.
#include <map>
#include <tuple>

#include "tests/support/expect.h"
#include "tests/support/fa3_consumer.h"

namespace cgr_test {
namespace {

// Keys [begin, end) that new token t of a request sees.
std::pair<int64_t, int64_t> Seen(const cgr_fa3_input &in, int64_t queries, int64_t keys, int64_t t) {
  const int64_t p = t + keys - queries, chunk = in.attention_chunk;
  int64_t begin = in.window_left > 0 ? p - in.window_left + 1 : 0;
  int64_t end = in.causal ? p + 1 : in.window_right > 0 ? p + 1 + in.window_right : keys;
  if (chunk > 0) {
    begin = std::max(begin, p / chunk * chunk);
    end = std::min(end, p / chunk * chunk + chunk);
  }
  return { std::max<int64_t>(begin, 0), std::min(end, keys) };
}

using Tile = std::tuple<int32_t, int32_t, int32_t>; // request, head, tile of rows

void ExpectSplits(const Fa3Case &c, const cgr_fa3_sizes &s, int32_t packed, const std::vector<Fa3Work> &splits) {
  const Fa3Work &one = splits[0];
  ASSERT_EQ(int32_t(splits.size()), one.splits) << "partials of a tile";
  int32_t begin = one.n_begin, end = begin;
  for (size_t i = 0; i < splits.size(); i++) {
    EXPECT_EQ(splits[i].split, int32_t(i)) << "a split is missing, or there twice";
    if (splits[i].n_begin < splits[i].n_end) {
      EXPECT_EQ(splits[i].n_begin, end) << "splits are not side by side";
      end = splits[i].n_end;
    }
  }
  const int64_t queries = c.query_len(size_t(one.request)), keys = c.lens[size_t(one.request)];
  const int64_t last = std::min<int64_t>(queries * packed, int64_t(one.m + 1) * s.tile_m) - 1;
  for (int64_t row = int64_t(one.m) * s.tile_m; row <= last; row += packed) {
    const int64_t t = row / packed;
    const auto [first, stop] = Seen(c.input, queries, keys, t);
    if (t + keys < queries || first >= stop)
      continue; /* sees nothing */
    EXPECT_GE(first, int64_t(begin) * s.tile_n) << "token " << t;
    EXPECT_LE(stop, int64_t(end) * s.tile_n) << "token " << t;
  }
}

void ExpectCover(const Fa3Case &c) {
  cgr_fa3_sizes s = CGR_FA3_SIZES_INIT;
  alignas(16) static int32_t memory[1 + 4 * 4096];
  CGR_ASSERT_OK(cgr_fa3_size(&c.input, &s));
  CGR_ASSERT_OK(cgr_fa3_build(&c.input, memory, s.metadata_bytes));
  const std::vector<int32_t> words(memory, memory + s.metadata_bytes / 4);
  const Fa3Consumer consumer(c, s, words);
  std::map<Tile, std::vector<Fa3Work>> tiles;
  for (const Fa3Work &w : consumer.All())
    tiles[{ w.request, w.head, w.m }].push_back(w);
  size_t expected = 0;
  for (int32_t i = 0; i < c.input.num_requests; i++) {
    const int64_t rows = int64_t(c.query_len(size_t(i))) * consumer.packed();
    const int32_t m_tiles = int32_t((rows + s.tile_m - 1) / s.tile_m);
    expected += size_t(m_tiles) * size_t(consumer.heads());
    for (int32_t m = 0; m < m_tiles; m++)
      for (int32_t head = 0; head < consumer.heads(); head++)
        ASSERT_EQ(tiles.count({ i, head, m }), 1u) << "request " << i << " head " << head << " tile " << m;
  }
  EXPECT_EQ(tiles.size(), expected) << "tiles without rows are dealt out";
  for (auto &[tile, splits] : tiles)
    ExpectSplits(c, s, consumer.packed(), splits);
  EXPECT_EQ(words[size_t(s.at_semaphore)], 0);
  for (int32_t v = 0; v < c.input.num_requests; v++)
    EXPECT_LE(consumer.Splits(v), s.num_splits) << "more partials than there is memory for";
}

TEST(Fa3Cover, EveryPairIsWorkedOnOnce) {
  ForSeeds(1500, [](Random &random) {
    Fa3Case c;
    Fa3RandomKey(random, c.input);
    c.input.max_query_len = std::min(c.input.max_query_len, 600);
    c.input.num_kv_heads = std::min(c.input.num_kv_heads, 4);
    c.input.num_q_heads = c.input.num_kv_heads * random.Pick32(1, 8);
    // Kernels that pack regardless of what they are told have no plan for the other case.
    c.input.pack_gqa = c.input.num_splits > 1 || c.input.page_size > 0 ? std::max(c.input.pack_gqa, 0) : c.input.pack_gqa;
    const int32_t live = random.OneIn(50) ? random.Pick32(980, 1100) : random.Pick32(1, 24);
    Fa3RandomBatch(random, live, live + random.Pick32(0, 9), c);
    ExpectCover(c);
  });
}

} // namespace
} // namespace cgr_test

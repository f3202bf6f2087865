// The order of the prefill queue (A16), and the splits (A18) of its tiles: the costliest bucket first, in the order of the batch
// within a bucket; cut only when there are too few for the CTAs, in proportion to their KV tiles.
#include <algorithm>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

struct QTile {
  int32_t request, q_tile;
  cgr__plan_range kv;
  int32_t n() const { return kv.end - kv.begin; }
};

// In the order of the batch.
std::vector<QTile> PrefillTiles(const PlanCase &given) {
  std::vector<QTile> tiles;
  for (size_t i = 0; i < given.num_requests(); i++) {
    if (!given.IsPrefill(i))
      continue;
    std::vector<cgr__plan_range> of_request = TilesOf(given, i);
    for (size_t t = 0; t < of_request.size(); t++)
      tiles.push_back({ static_cast<int32_t>(i), static_cast<int32_t>(t), of_request[t] });
  }
  return tiles;
}

// Four buckets to each doubling from 1 KV tile on: the number of borders that n has reached, of those that 64 buckets have.
int32_t Rank(int64_t n) {
  int32_t rank = 0;
  for (int32_t border = 1; border < 64; border++)
    rank += 4 * n >= static_cast<int64_t>(4 + border % 4) << border / 4;
  return rank;
}

void CheckWhole(const Planned &planned, std::vector<QTile> tiles) {
  std::stable_sort(tiles.begin(), tiles.end(), [](const QTile &a, const QTile &b) { return Rank(a.n()) > Rank(b.n()); });
  ASSERT_EQ(planned.header().num_entries, static_cast<int32_t>(tiles.size()));
  for (size_t e = 0; e < tiles.size(); e++) {
    const cgr__plan_entry &entry = planned.entry(static_cast<int32_t>(e));
    ASSERT_EQ(entry.request, tiles[e].request) << "entry " << e;
    ASSERT_EQ(entry.q_tile, tiles[e].q_tile) << "entry " << e;
    ASSERT_EQ(entry.kv_begin, tiles[e].kv.begin) << "entry " << e;
    ASSERT_EQ(entry.kv_end, tiles[e].kv.end) << "entry " << e;
    ASSERT_TRUE(entry.first == -1 && entry.count == 1 && entry.split == 0) << "entry " << e;
  }
}

void CheckSplits(const PlanCase &given, const Planned &planned, const std::vector<QTile> &tiles) {
  int64_t sum = 0;
  int32_t e = 0;
  for (const QTile &tile : tiles)
    sum += tile.n();
  for (const QTile &tile : tiles) {
    // Its share of the CTAs, rounded up, and no split without a KV tile.
    int64_t share = static_cast<int64_t>(tile.n()) * given.c.num_parts, all = sum * given.c.head_blocks;
    int32_t count = static_cast<int32_t>(std::min<int64_t>(tile.n(), share / all + (share % all != 0)));
    int32_t at = tile.kv.begin, before = e;
    for (int32_t split = 0; split < count; split++, e++) {
      ASSERT_LT(e, planned.header().num_entries);
      const cgr__plan_entry &entry = planned.entry(e);
      ASSERT_EQ(entry.request, tile.request) << "entry " << e;
      ASSERT_EQ(entry.q_tile, tile.q_tile) << "entry " << e;
      ASSERT_EQ(entry.split, split) << "entry " << e;
      ASSERT_EQ(entry.count, count) << "entry " << e;
      ASSERT_EQ(entry.first, count > 1 ? before : -1) << "entry " << e;
      ASSERT_EQ(entry.kv_begin, at) << "entry " << e;
      int32_t size = entry.kv_end - entry.kv_begin;
      ASSERT_TRUE(size == tile.n() / count || size == tile.n() / count + 1) << "entry " << e << " has " << size;
      at = entry.kv_end;
    }
    ASSERT_EQ(at, tile.kv.end);
  }
  ASSERT_EQ(e, planned.header().num_entries);
  ASSERT_LT(static_cast<int64_t>(e) * given.c.head_blocks, 2 * static_cast<int64_t>(given.c.num_parts));
}

TEST(PlanPrefill, RandomBatches) {
  int whole = 0, cut = 0, in_splits = 0;
  ForRandomPlans(50000, [&](const PlanCase &given, Random &) {
    Planned planned(given);
    std::vector<QTile> tiles = PrefillTiles(given);
    bool is_cut = given.c.max_splits == 0 &&
                  tiles.size() * static_cast<size_t>(given.c.head_blocks) < static_cast<size_t>(given.c.num_parts);
    if (is_cut)
      CheckSplits(given, planned, tiles);
    else
      CheckWhole(planned, tiles);
    whole += !is_cut && tiles.size() > 1;
    cut += is_cut && !tiles.empty();
    in_splits += is_cut && static_cast<size_t>(planned.header().num_entries) > tiles.size();
  });
  EXPECT_GT(whole, 5000);
  EXPECT_GT(cut, 5000);
  EXPECT_GT(in_splits, 5000);
}

PlanCase OneTileEach(const std::vector<int32_t> &kv_tiles) {
  PlanCase given;
  given.c.num_parts = given.c.head_blocks = 1;
  given.c.decode_query_len = given.c.decode_tile_kv = given.c.cost_kv = 1;
  given.c.prefill_tile_q = 2;
  given.c.prefill_tile_kv = 1;
  for (int32_t n : kv_tiles) {
    given.query_lens.push_back(2);
    given.seq_lens.push_back(n);
  }
  MakeRoom(&given, 0);
  return given;
}

// At every border of two buckets, and above the last, up to the longest sequence.
TEST(PlanPrefill, BordersOfBuckets) {
  std::vector<int32_t> lengths;
  for (int32_t border = 4; border < 4 * 30; border++)
    for (int64_t more = -1; more <= 1; more++)
      lengths.push_back(static_cast<int32_t>((static_cast<int64_t>(4 + border % 4) << border / 4) / 4 + more));
  lengths.push_back(1 << 30);
  SeededRandom random;
  for (int round = 0; round < 50; round++) {
    for (size_t i = lengths.size(); i > 1; i--)
      std::swap(lengths[i - 1], lengths[static_cast<size_t>(random.Pick(0, static_cast<int64_t>(i) - 1))]);
    for (int32_t &length : lengths)
      length = std::max(length, 2);
    PlanCase given = OneTileEach(lengths);
    Planned planned(given);
    std::vector<QTile> tiles;
    for (size_t i = 0; i < lengths.size(); i++)
      tiles.push_back({ static_cast<int32_t>(i), 0, { 0, lengths[i] } });
    CheckWhole(planned, tiles);
    ASSERT_FALSE(HasFailure());
  }
}

// With one q tile fewer than there are parts, tiles are cut; with as many, they are not.
TEST(PlanPrefill, CutOnlyWhenThereAreFewerTilesThanParts) {
  for (int32_t head_blocks : { 1, 2, 5 }) {
    for (int32_t tiles : { 1, 2, 7 }) {
      for (int32_t more : { -1, 0, 1 }) {
        for (int32_t splits : { 0, 4 }) {
          PlanCase given = OneTileEach(std::vector<int32_t>(static_cast<size_t>(tiles), 1000));
          given.c.head_blocks = head_blocks;
          given.c.num_parts = std::max(tiles * head_blocks + more, 1);
          given.c.max_splits = splits;
          MakeRoom(&given, 0);
          Planned planned(given);
          bool is_cut = splits == 0 && tiles * head_blocks < given.c.num_parts;
          EXPECT_EQ(planned.header().num_entries > tiles, is_cut) << given.Text();
        }
      }
    }
  }
}

// The longest sequences in splits: the products of lengths, parts and head blocks do not overflow.
TEST(PlanPrefill, LargestSplits) {
  for (int32_t head_blocks : { 1, 1024 }) {
    PlanCase given = OneTileEach({ 1 << 30, 2, 1 << 30 });
    given.c.num_parts = 4096;
    given.c.head_blocks = head_blocks;
    MakeRoom(&given, 0);
    Planned planned(given);
    CheckSplits(given, planned, { { 0, 0, { 0, 1 << 30 } }, { 1, 0, { 0, 2 } }, { 2, 0, { 0, 1 << 30 } } });
    EXPECT_TRUE(planned.KeepsWhatItMust());
  }
}

} // namespace

// The decode section is cut where planners/attention/plan.h says (A5 to A10): every Q units, moved to a nearby border, so that
// parts follow each other and cost about the same.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

// KV tiles of one tile of each request of the decode section.
std::vector<int32_t> DecodeTiles(const PlanCase &given, std::vector<int32_t> *requests) {
  std::vector<int32_t> tiles;
  for (size_t i = 0; i < given.num_requests(); i++) {
    if (!given.IsDecode(i))
      continue;
    cgr__plan_range kv = TilesOf(given, i)[0];
    tiles.push_back(kv.end - kv.begin);
    requests->push_back(static_cast<int32_t>(i));
  }
  return tiles;
}

int64_t TileCost(const cgr__plan_class &c, int32_t n) { return c.cost_tile + static_cast<int64_t>(n) * c.cost_kv; }

int32_t SplitOf(const cgr__plan_class &c, int32_t n) { return c.max_splits == 0 ? 1 : (n + c.max_splits - 1) / c.max_splits; }

void CheckNeighbours(const PlanCase &given, const Planned &planned, const std::vector<int32_t> &tiles,
                     const std::vector<int32_t> &requests) {
  int32_t num_decodes = static_cast<int32_t>(tiles.size());
  cgr__plan_point at = { 0, 0, 0 };
  for (int32_t p = 0; p < given.c.num_parts; p++) {
    const cgr__plan_part &part = planned.part(p);
    ASSERT_EQ(std::memcmp(&part.begin, &at, sizeof at), 0) << "part " << p;
    ASSERT_LE(part.begin.decode, num_decodes);
    ASSERT_EQ(part.request, at.decode == num_decodes ? -1 : requests[static_cast<size_t>(at.decode)]) << "part " << p;
    at = part.end;
    ASSERT_TRUE(at.decode == num_decodes
                    ? at.head_block == 0 && at.kv == 0
                    : at.head_block < given.c.head_blocks && at.kv >= 0 && at.kv < tiles[static_cast<size_t>(at.decode)])
        << "part " << p;
  }
  ASSERT_EQ(at.decode, num_decodes);
}

// The cut at x units from the start of a tile of n KV tiles, whose first cost_tile units are its fixed cost, went to KV tile
// `kv`; n is the end of the tile.
bool IsGoodCut(const cgr__plan_class &c, int64_t x, int32_t n, int32_t kv, int64_t snap) {
  int64_t units = x - c.cost_tile, whole = static_cast<int64_t>(n) * c.cost_kv;
  if (units <= snap || whole - units <= snap)
    return (kv == 0 && units <= snap) || (kv == n && whole - units <= snap);
  int64_t away = std::llabs(units - static_cast<int64_t>(kv) * c.cost_kv);
  return (kv % SplitOf(c, n) == 0 || kv == n) && 2 * away <= static_cast<int64_t>(SplitOf(c, n)) * c.cost_kv;
}

// Walks along the decode section with the cuts.
void CheckCuts(const PlanCase &given, const Planned &planned, const std::vector<int32_t> &tiles) {
  const cgr__plan_class &c = given.c;
  const cgr__plan_header &header = planned.header();
  int32_t num_decodes = static_cast<int32_t>(tiles.size()), decode = 0, head_block = 0;
  int64_t start = 0; // of the tile (decode, head_block)
  for (int32_t p = 0; p < c.num_parts; p++) {
    const cgr__plan_point &cut = planned.part(p).begin;
    int64_t x = p * header.cost_per_part;
    while (decode < num_decodes && x - start >= TileCost(c, tiles[static_cast<size_t>(decode)])) {
      start += TileCost(c, tiles[static_cast<size_t>(decode)]);
      decode += head_block + 1 == c.head_blocks;
      head_block = (head_block + 1) % c.head_blocks;
    }
    if (decode == num_decodes) {
      ASSERT_EQ(cut.decode, num_decodes) << "part " << p;
      continue;
    }
    int32_t n = tiles[static_cast<size_t>(decode)];
    bool is_here = cut.decode == decode && cut.head_block == head_block;
    bool is_next = cut.decode == decode + (head_block + 1 == c.head_blocks) && cut.head_block == (head_block + 1) % c.head_blocks;
    ASSERT_TRUE(is_here || (is_next && cut.kv == 0)) << "part " << p << " begins in another tile than " << x;
    ASSERT_TRUE(IsGoodCut(c, x - start, n, is_here ? cut.kv : n, header.snap))
        << "part " << p << " at " << x << ": " << x - start << " in a tile of " << n << " went to " << (is_here ? cut.kv : n);
  }
}

void CheckCosts(const PlanCase &given, const Planned &planned, const std::vector<int32_t> &tiles) {
  const cgr__plan_class &c = given.c;
  std::vector<int64_t> costs(static_cast<size_t>(c.num_parts), 0);
  for (const cgr__cover_item &found : planned.Items()) {
    if (found.part < 0)
      continue;
    size_t i = static_cast<size_t>(found.item.request);
    bool is_begin = found.item.kv_begin == SeenTiles(given, i, 0, given.LiveLen(i)).begin;
    costs[static_cast<size_t>(found.part)] +=
        static_cast<int64_t>(found.item.kv_end - found.item.kv_begin) * c.cost_kv + (is_begin ? c.cost_tile : 0);
  }
  int64_t moves = planned.header().snap, all = 0; // how far a cut moves at most, besides a fixed cost
  for (int32_t n : tiles)
    moves = std::max(moves, (static_cast<int64_t>(SplitOf(c, n)) * c.cost_kv + 1) / 2);
  if (c.max_splits == 0)
    moves = planned.header().snap;
  const int64_t working = planned.header().decode_parts;
  int64_t mean = std::max<int64_t>(1, (planned.header().cost + working - 1) / working);
  for (size_t p = 0; p < costs.size(); p++) {
    ASSERT_LE(costs[p], static_cast<int64_t>(p) < working ? mean + c.cost_tile + 2 * moves : 0) << "part " << p;
    all += costs[p];
  }
  ASSERT_EQ(all, planned.header().cost);
}

void CheckParts(const PlanCase &given) {
  Planned planned(given);
  std::vector<int32_t> requests, tiles = DecodeTiles(given, &requests);
  CheckNeighbours(given, planned, tiles, requests);
  if (!::testing::Test::HasFatalFailure())
    CheckCuts(given, planned, tiles);
  if (!::testing::Test::HasFatalFailure())
    CheckCosts(given, planned, tiles);
}

TEST(PlanParts, RandomBatches) {
  ForRandomPlans(40000, [](const PlanCase &given, Random &) { CheckParts(given); });
}

// Few requests and fine costs: cuts at every distance from the borders around them.
TEST(PlanParts, EveryDistanceToABorder) {
  for (int32_t cost_tile : { 0, 1, 5, 12 }) {
    for (int32_t cost_kv : { 1, 2, 5, 8 }) {
      for (int32_t snap : { 0, 1, 4, 7, 100 }) {
        for (int32_t splits : { 0, 1, 3, 20 }) {
          for (int32_t parts = 1; parts < 60; parts++) {
            PlanCase given;
            given.c.num_parts = parts;
            given.c.head_blocks = 1 + parts % 3;
            given.c.decode_query_len = 1;
            given.c.decode_tile_kv = given.c.prefill_tile_kv = given.c.prefill_tile_q = 16;
            given.c.cost_tile = cost_tile;
            given.c.cost_kv = cost_kv;
            given.c.snap = snap;
            given.c.max_splits = splits;
            given.query_lens = { 1, 0, 1, 1 };
            given.seq_lens = { 1 + 16 * (parts % 7), 9, 11 * 16, 5 * 16 };
            MakeRoom(&given, 0);
            CheckParts(given);
            ASSERT_FALSE(HasFailure()) << given.Text();
          }
        }
      }
    }
  }
}

// The products of the longest sequences and the largest costs do not overflow.
TEST(PlanParts, LongestSequencesAndLargestCosts) {
  for (int32_t head_blocks : { 1, 1024 }) {
    for (int32_t splits : { 0, 3, 256 }) {
      for (int32_t parts : { 1, 7, 4096 }) {
        PlanCase given;
        given.c.num_parts = parts;
        given.c.head_blocks = head_blocks;
        given.c.decode_query_len = given.c.decode_tile_kv = given.c.prefill_tile_kv = given.c.prefill_tile_q = 1;
        given.c.cost_tile = given.c.cost_kv = given.c.snap = 1 << 20;
        given.c.max_splits = splits;
        given.query_lens = { 1, 1, 1 };
        given.seq_lens = { 1 << 30, 5, (1 << 30) - 1 };
        MakeRoom(&given, 0);
        CheckParts(given);
        ASSERT_FALSE(HasFailure()) << given.Text();
      }
    }
  }
}

// A part with no share of a tile says so.
TEST(PlanParts, PartialsOnlyWhereATileIsShared) {
  int64_t shared = 0, not_shared = 0;
  ForRandomPlans(10000, [&](const PlanCase &given, Random &) {
    Planned planned(given);
    for (int32_t p = 0; p < given.c.num_parts; p++) {
      const cgr__plan_part &part = planned.part(p);
      bool is_empty = std::memcmp(&part.begin, &part.end, sizeof part.begin) == 0;
      bool is_one = part.begin.decode == part.end.decode && part.begin.head_block == part.end.head_block;
      bool begins_inside = part.begin.kv > 0 && !is_empty, starts = part.end.kv > 0 && !(is_one && part.begin.kv > 0);
      ASSERT_EQ(part.begin_partial >= 0, begins_inside) << "part " << p;
      ASSERT_EQ(part.begin_first >= 0, begins_inside) << "part " << p;
      ASSERT_EQ(part.begin_count > 1, begins_inside) << "part " << p;
      ASSERT_EQ(part.end_first >= 0, starts) << "part " << p;
      ASSERT_EQ(part.end_count > 1, starts) << "part " << p;
      ASSERT_TRUE(begins_inside || (part.begin_partial == -1 && part.begin_first == -1 && part.begin_count == 0)) << "part " << p;
      ASSERT_TRUE(starts || (part.end_first == -1 && part.end_count == 0)) << "part " << p;
      shared += begins_inside;
      not_shared += !begins_inside;
    }
  });
  EXPECT_GT(shared, 10000);
  EXPECT_GT(not_shared, 10000);
}

} // namespace

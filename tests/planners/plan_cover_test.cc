// The plan covers its batch: every live request, head block, query and KV token that the query sees is in exactly one item, and
// no item covers anything else. What the plan says of itself is right, and nothing is written outside it.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

using Items = std::vector<cgr__cover_item>;

// By request, head block, query and KV tile.
void Sort(Items *items) {
  std::sort(items->begin(), items->end(), [](const cgr__cover_item &a, const cgr__cover_item &b) {
    return std::tie(a.item.request, a.item.head_block, a.item.query_begin, a.item.kv_begin) <
           std::tie(b.item.request, b.item.head_block, b.item.query_begin, b.item.kv_begin);
  });
}

// Items from *next on are the tile of queries [first, first + count): one after the other, from its first KV tile to its last.
void CheckTile(const PlanCase &given, size_t i, int32_t head_block, int32_t first, int32_t count, cgr__plan_range kv,
               const Items &items, size_t *next) {
  for (int32_t at = kv.begin; at < kv.end;) {
    ASSERT_LT(*next, items.size()) << "request " << i << " head block " << head_block << " query " << first << " lacks KV " << at;
    const cgr__cover_item &found = items[(*next)++];
    ASSERT_EQ(found.item.request, static_cast<int32_t>(i));
    ASSERT_EQ(found.item.head_block, head_block);
    ASSERT_EQ(found.item.query_begin, first);
    ASSERT_EQ(found.item.num_queries, count);
    ASSERT_EQ(found.item.kv_begin, at) << "request " << i << " head block " << head_block << " query " << first;
    ASSERT_GT(found.item.kv_end, at);
    ASSERT_LE(found.item.kv_end, kv.end) << "request " << i << " head block " << head_block << " query " << first;
    ASSERT_EQ(found.part >= 0, given.IsDecode(i)) << "request " << i;
    at = found.item.kv_end;
  }
}

// Items that follow each other without a gap from the first KV tile to the last hold each token of each query once.
void CheckCover(const PlanCase &given, Items items) {
  size_t next = 0;
  Sort(&items);
  for (size_t i = 0; i < given.num_requests(); i++) {
    std::vector<cgr__plan_range> tiles = TilesOf(given, i);
    for (int32_t h = 0; h < given.c.head_blocks; h++) {
      for (size_t t = 0; t < tiles.size(); t++) {
        int32_t first = static_cast<int32_t>(t) * given.TileQ(i);
        CheckTile(given, i, h, first, std::min(given.TileQ(i), given.LiveLen(i) - first), tiles[t], items, &next);
        if (::testing::Test::HasFatalFailure())
          return;
      }
    }
  }
  ASSERT_EQ(next, items.size()) << "items of nothing: the first is of request " << items[next].item.request;
}

void CheckHeader(const PlanCase &given, const Planned &planned) {
  const cgr__plan_header &header = planned.header();
  const cgr__plan_class &c = given.c;
  std::vector<int32_t> decodes;
  std::vector<int64_t> tiles; // the cost of one tile of each request
  int64_t cost = 0;
  int32_t emptied = 0;
  bool is_mixed = false;
  for (size_t i = 0; i < given.num_requests(); i++) {
    is_mixed = is_mixed || given.IsPrefill(i);
    emptied += given.query_lens[i] > 0 && given.LiveLen(i) == 0;
    if (!given.IsDecode(i))
      continue;
    cgr__plan_range kv = TilesOf(given, i)[0];
    decodes.push_back(static_cast<int32_t>(i));
    tiles.push_back(c.cost_tile + static_cast<int64_t>(kv.end - kv.begin) * c.cost_kv);
    cost += c.head_blocks * tiles.back();
  }
  const int64_t parts = header.decode_parts;
  if (is_mixed && c.mixed_parts > 0)
    ASSERT_TRUE(parts == c.num_parts || (parts > 0 && parts <= c.mixed_parts)) << parts << " of " << c.mixed_parts;
  else
    ASSERT_EQ(parts, c.num_parts);
  int64_t mean = cost == 0 ? 1 : (cost + parts - 1) / parts;
  int64_t snap = std::max<int64_t>((c.cost_kv + 1) / 2, std::min(std::max<int64_t>(c.snap, mean / 32), mean / 4));
  int64_t per_part = mean, most = mean / 20; // most: that parts are raised by
  bool equal = !tiles.empty() && std::count(tiles.begin(), tiles.end(), tiles[0]) == static_cast<int64_t>(tiles.size());
  if (equal && tiles[0] <= mean) {
    while (per_part % tiles[0] != 0)
      per_part += tiles[0] - per_part % tiles[0];
    per_part = per_part <= mean + std::min<int64_t>(2 * c.snap, most) ? per_part : mean;
  } else if (equal && snap >= c.cost_kv && c.max_splits == 0) {
    int64_t splits = tiles[0] / mean;
    per_part = tiles[0] / splits + (tiles[0] % splits != 0);
    per_part = per_part <= mean + std::min<int64_t>(c.snap, most) ? per_part : mean;
  }
  ASSERT_EQ(header.num_parts, c.num_parts);
  ASSERT_EQ(header.head_blocks, c.head_blocks);
  ASSERT_EQ(header.num_emptied, emptied);
  ASSERT_EQ(header.cost, cost);
  ASSERT_EQ(header.cost_per_part, per_part);
  ASSERT_EQ(header.snap, snap);
  ASSERT_EQ(header.num_items, header.num_entries * c.head_blocks);
  for (int32_t word : header.reserved)
    ASSERT_EQ(word, 0);
  for (int32_t e = 0; e < header.num_entries; e++)
    ASSERT_EQ(planned.entry(e).reserved, 0);
  ASSERT_EQ(std::vector<int32_t>(planned.decodes(), planned.decodes() + header.num_decodes), decodes);
}

void CheckMemory(const PlanCase &given, const Planned &planned) {
  ASSERT_EQ(cgr__plan_decodes_offset(&given.c), static_cast<int64_t>(planned.DecodesOffset()));
  ASSERT_EQ(cgr__plan_entries_offset(&given.c), static_cast<int64_t>(planned.EntriesOffset()));
  ASSERT_EQ(cgr__plan_bytes(&given.c), static_cast<int64_t>(planned.Bytes()));
  ASSERT_LE(planned.header().num_entries, given.c.max_entries);
  ASSERT_TRUE(planned.KeepsWhatItMust())
      << "written past the requests of the decode section, the entries, the plan or the scratch";
}

void CheckAll(const PlanCase &given) {
  Planned planned(given);
  CheckMemory(given, planned);
  if (!::testing::Test::HasFatalFailure())
    CheckHeader(given, planned);
  if (!::testing::Test::HasFatalFailure())
    CheckCover(given, planned.Items());
}

TEST(PlanCover, RandomBatches) {
  ForRandomPlans(60000, [](const PlanCase &given, Random &) { CheckAll(given); });
}

// The same rule cell by cell, for small batches: this confirms what CheckCover concludes from intervals.
TEST(PlanCover, EveryCellOfSmallBatches) {
  ForRandomPlans(10000, [](PlanCase given, Random &random) {
    given.c.head_blocks = random.Pick32(1, 3);
    for (size_t i = 0; i < given.num_requests(); i++) {
      int32_t context = random.Pick32(0, 90);
      given.query_lens[i] = std::min(given.query_lens[i], 40);
      given.seq_lens[i] = given.query_lens[i] > 0 && random.OneIn(8) ? given.query_lens[i] - 1 : given.query_lens[i] + context;
      if (given.c.sees == CGR__SEES_OTHER)
        given.seq_lens[i] = context;
    }
    MakeRoom(&given, 0);
    Planned planned(given);
    Items items = planned.Items();
    for (size_t i = 0; i < given.num_requests(); i++) {
      for (int32_t h = 0; h < given.c.head_blocks; h++) {
        size_t stride = static_cast<size_t>(given.NumKeys(i));
        std::vector<int32_t> counts(static_cast<size_t>(given.query_lens[i]) * stride, 0);
        for (const cgr__cover_item &found : items) {
          const cgr__plan_item &item = found.item;
          if (item.request != static_cast<int32_t>(i) || item.head_block != h)
            continue;
          int32_t end = std::min(item.kv_end * given.TileKv(i), given.NumKeys(i));
          for (int32_t q = item.query_begin; q < item.query_begin + item.num_queries; q++)
            for (int32_t t = item.kv_begin * given.TileKv(i); t < end; t++)
              counts[static_cast<size_t>(q) * stride + static_cast<size_t>(t)]++;
        }
        for (int32_t q = 0; q < given.query_lens[i]; q++) {
          for (int32_t t = 0; t < given.NumKeys(i); t++) {
            bool is_seen = given.LiveLen(i) > 0 && Sees(given.c, given.NumKeys(i) - given.query_lens[i] + q, t);
            int32_t count = counts[static_cast<size_t>(q) * stride + static_cast<size_t>(t)];
            ASSERT_LE(count, given.LiveLen(i) > 0 ? 1 : 0) << "request " << i << " query " << q << " token " << t;
            ASSERT_TRUE(count == 1 || !is_seen) << "request " << i << " query " << q << " token " << t;
          }
        }
      }
    }
  });
}

PlanCase KernelLike(int32_t num_parts, int32_t head_blocks) {
  PlanCase given;
  given.c.num_parts = num_parts;
  given.c.head_blocks = head_blocks;
  given.c.decode_query_len = 4;
  given.c.decode_tile_kv = given.c.prefill_tile_kv = given.c.prefill_tile_q = 64;
  given.c.cost_tile = 4000;
  given.c.cost_kv = given.c.snap = 2000;
  return given;
}

TEST(PlanCover, EveryShortRequestAroundTheBordersOfTiles) {
  for (int32_t query : { 0, 1, 4, 5, 63, 64, 65, 128, 129 }) {
    for (int32_t context : { 0, 1, 62, 63, 64, 65, 191, 192, 193 }) {
      for (int32_t window : { 0, 1, 63, 64, 65, 128 }) {
        for (int32_t parts : { 1, 2, 7, 132 }) {
          PlanCase given = KernelLike(parts, 2);
          given.c.window_left = window;
          given.query_lens = { query, 0, query };
          given.seq_lens = { context + query, context, context + query };
          MakeRoom(&given, 0);
          CheckAll(given);
          ASSERT_FALSE(HasFailure()) << given.Text();
        }
      }
    }
  }
}

TEST(PlanCover, NothingToDo) {
  const std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> batches = {
    { {}, {} }, { { 0, 0 }, { 0, 77 } }, { { 5 }, { 0 } }, { { 1, 300 }, { 0, 299 } }
  };
  for (int32_t parts : { 1, 2, 300, 4096 }) {
    for (const auto &batch : batches) {
      PlanCase given = KernelLike(parts, 3);
      given.query_lens = batch.first;
      given.seq_lens = batch.second;
      MakeRoom(&given, 2);
      CheckAll(given);
      ASSERT_FALSE(HasFailure()) << given.Text();
      Planned planned(given);
      EXPECT_EQ(planned.header().num_decodes, 0);
      EXPECT_EQ(planned.header().num_items, 0);
      EXPECT_TRUE(planned.Items().empty());
    }
  }
}

// The bytes that are written do not depend on those that were there.
TEST(PlanCover, TheSameBytesWhateverWasThere) {
  ForRandomPlans(5000, [](const PlanCase &given, Random &) {
    Planned one(given, 0x00), other(given, 0xff);
    size_t entries = static_cast<size_t>(one.header().num_entries) * sizeof(cgr__plan_entry);
    size_t parts = sizeof(cgr__plan_header) + static_cast<size_t>(given.c.num_parts) * sizeof(cgr__plan_part);
    ASSERT_EQ(std::memcmp(one.data(), other.data(), parts), 0);
    ASSERT_EQ(std::memcmp(one.decodes(), other.decodes(), static_cast<size_t>(one.header().num_decodes) * sizeof(int32_t)), 0);
    ASSERT_EQ(std::memcmp(&one.entry(0), &other.entry(0), entries), 0);
  });
}

// Lengths and costs at their limits do not overflow: the cost is what it is, and the tiles are covered end to end.
TEST(PlanCover, LargestLengths) {
  for (int32_t splits : { 0, 256 }) {
    for (int32_t left : { 0, 1, INT32_MAX }) {
      for (int32_t right : { -1, 0, INT32_MAX }) { // -1: not bidirectional
        PlanCase given = KernelLike(4096, 1);
        given.c.max_splits = splits;
        given.c.window_left = left;
        given.c.bidirectional = right >= 0;
        given.c.window_right = std::max(right, 0);
        given.c.decode_tile_kv = given.c.prefill_tile_kv = 1;
        given.c.prefill_tile_q = 4096;
        given.c.cost_tile = given.c.cost_kv = 1 << 20;
        given.query_lens = { 1, 4, 4096 * 2 + 1 };
        given.seq_lens = { 1 << 30, 1 << 30, 1 << 30 };
        MakeRoom(&given, 0);
        Planned planned(given);
        int64_t first = left == 1 ? 1 : 1 << 30, second = left == 1 ? 4 : 1 << 30; // KV tiles that are seen
        EXPECT_EQ(planned.header().cost, (first + second + 2) << 20);
        Items items = planned.Items();
        Sort(&items);
        int64_t tokens = 0;
        for (const cgr__cover_item &found : items)
          tokens += found.part >= 0 ? found.item.kv_end - found.item.kv_begin : 0;
        EXPECT_EQ(tokens, first + second);
        // The last q tile of the prefill queue is one query at the end of the sequence.
        ASSERT_FALSE(items.empty());
        EXPECT_EQ(items.back().item.query_begin, 8192);
        EXPECT_EQ(items.back().item.num_queries, 1);
        EXPECT_EQ(items.back().item.kv_end, 1 << 30);
      }
    }
  }
}

} // namespace

// Partials (A11 to A15): CTAs that share a tile agree on its partials and their number, no CTA writes into a partial that another
// still needs, and the final merge is of the whole tile, in the order of its KV tiles, however the CTAs are interleaved. If
// batch-invariant, the operations and their order depend on the request alone.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

using Items = std::vector<cgr__cover_item>;
using Tile = std::tuple<int32_t, int32_t, int32_t>; // request, head block, first query

Tile TileOf(const cgr__plan_item &item) { return { item.request, item.head_block, item.query_begin }; }

std::map<Tile, Items> ByTile(const Items &items) {
  std::map<Tile, Items> tiles;
  for (const cgr__cover_item &found : items)
    tiles[TileOf(found.item)].push_back(found);
  for (auto &tile : tiles)
    std::sort(tile.second.begin(), tile.second.end(),
              [](const cgr__cover_item &a, const cgr__cover_item &b) { return a.item.kv_begin < b.item.kv_begin; });
  return tiles;
}

bool SameRunner(const cgr__cover_item &a, const cgr__cover_item &b) { return a.part == b.part && a.entry == b.entry; }

// ------------------------------------------------------------------------------------------------------------- the rules

void CheckBounds(const PlanCase &given, const Items &items) {
  const cgr__plan_class &c = given.c;
  int32_t decodes = c.max_splits > 0 ? (c.max_splits + 1) * c.num_parts : 2 * c.num_parts;
  int32_t prefills = c.max_splits > 0 ? 0 : 2 * c.num_parts;
  ASSERT_EQ(cgr__plan_decode_partials(&c), decodes);
  ASSERT_EQ(cgr__plan_prefill_partials(&c), prefills);
  for (const cgr__cover_item &found : items) {
    int32_t low = found.part >= 0 ? 0 : decodes, high = found.part >= 0 ? decodes : decodes + prefills;
    for (int32_t partial : { found.item.partial, found.item.first, found.item.fold })
      ASSERT_TRUE(partial == -1 || (partial >= low && partial < high))
          << "partial " << partial << " of " << low << " .. " << high - 1;
    ASSERT_TRUE(found.item.count == 0 || found.item.first + found.item.count <= high);
  }
}

// One tile, whose items are in the order of their KV tiles.
void CheckTile(const PlanCase &given, const Items &items) {
  const cgr__cover_item &last = items.back();
  int32_t arrived = 0;
  for (size_t k = 0; k < items.size(); k++) {
    const cgr__plan_item &item = items[k].item;
    if (item.fold >= 0) { // continues what the same part has just written, from the first split on
      ASSERT_GT(given.c.max_splits, 0);
      ASSERT_GT(k, 0u);
      ASSERT_TRUE(SameRunner(items[k], items[k - 1]));
      ASSERT_EQ(items[k - 1].item.partial, item.fold);
      ASSERT_EQ(items[k - 1].item.count, 0) << "folds what has arrived";
      ASSERT_TRUE(k == 1 || items[k - 1].item.fold == item.fold);
      ASSERT_TRUE(item.partial == item.fold || item.partial == -1);
    }
    if (item.count > 0) {
      ASSERT_GT(item.count, 1);
      ASSERT_EQ(item.partial, item.first + arrived) << "partials in the order of the KV tiles";
      ASSERT_EQ(item.first, last.item.first);
      ASSERT_EQ(item.count, last.item.count);
      arrived++;
    } else {
      ASSERT_EQ(item.first, -1);
      bool is_folded = k + 1 < items.size() && items[k + 1].item.fold == item.partial && item.partial >= 0;
      ASSERT_TRUE(k + 1 == items.size() ? item.partial == -1 : is_folded) << "a result that no item takes";
    }
  }
  ASSERT_EQ(arrived, last.item.count);
  ASSERT_TRUE(given.c.max_splits > 0 || last.item.count == (items.size() == 1 ? 0 : static_cast<int32_t>(items.size())));
  ASSERT_TRUE(last.item.count > 0 || SameRunner(items.front(), last));
}

// A partial that arrives is of one tile. The others are a part's own, for one tile after the other.
void CheckUnique(const std::map<Tile, Items> &tiles) {
  std::map<int32_t, const cgr__cover_item *> writers;
  for (const auto &tile : tiles) {
    for (const cgr__cover_item &found : tile.second) {
      if (found.item.partial < 0)
        continue;
      const cgr__cover_item *&writer = writers[found.item.partial];
      if (writer != nullptr && found.item.fold != found.item.partial) {
        ASSERT_GE(found.part, 0);
        ASSERT_EQ(writer->part, found.part) << "partial " << found.item.partial << " has two writers";
        ASSERT_EQ(writer->item.count, 0) << "partial " << found.item.partial << " is written again";
        ASSERT_EQ(found.item.count, 0) << "partial " << found.item.partial << " is written again";
      }
      writer = &found;
    }
  }
}

// A13: splits of ceil(n / K) KV tiles, each an item of its own.
void CheckSplits(const PlanCase &given, const Tile &tile, const Items &items) {
  size_t request = static_cast<size_t>(std::get<0>(tile));
  int32_t begin = items.front().item.kv_begin, n = items.back().item.kv_end - begin;
  int32_t split = given.IsDecode(request) ? (n + given.c.max_splits - 1) / given.c.max_splits : n;
  ASSERT_EQ(static_cast<int32_t>(items.size()), (n + split - 1) / split);
  for (size_t k = 0; k < items.size(); k++)
    ASSERT_EQ(items[k].item.kv_begin, begin + static_cast<int32_t>(k) * split);
}

TEST(PlanPartials, SharersAgree) {
  ForRandomPlans(25000, [](const PlanCase &given, Random &) {
    Items items = Planned(given).Items();
    CheckBounds(given, items);
    std::map<Tile, Items> tiles = ByTile(items);
    CheckUnique(tiles);
    for (const auto &tile : tiles) {
      CheckTile(given, tile.second);
      if (given.c.max_splits > 0)
        CheckSplits(given, tile.first, tile.second);
      if (::testing::Test::HasFailure())
        return;
    }
  });
}

// ------------------------------------------------------------------------------------------------- a run, step by step

// A partial result as the list of what went into it: its KV tiles in order, or that they were out of order.
struct Partial {
  std::vector<int32_t> borders; // [begin, ..., end] of what was put together; from the left
  bool is_left = true;          // it was: each step took one item more

  static Partial Of(const cgr__plan_item &item) { return { { item.kv_begin, item.kv_end }, true }; }
  // Adds what comes after this one.
  void Add(const Partial &next) {
    is_left = is_left && next.borders.size() == 2 && !borders.empty() && borders.back() == next.borders.front();
    borders.insert(borders.end(), next.borders.begin() + (next.borders.empty() ? 0 : 1), next.borders.end());
  }
};

// Takes the next item of a random CTA until none is left; the last to arrive at a tile merges it. A partial holds nothing before
// it is written, and what was there is lost when it is written again.
class Execution {
public:
  Execution(const Items &items, Random *random) {
    std::map<int32_t, Items> ctas; // the items of a part in order; those of the prefill queue by themselves
    int32_t alone = -1;
    for (const cgr__cover_item &found : items)
      ctas[found.part >= 0 ? found.part : alone--].push_back(found);
    std::vector<const Items *> left;
    for (const auto &cta : ctas)
      left.push_back(&cta.second);
    std::vector<size_t> at(left.size(), 0);
    while (!left.empty()) {
      size_t k = static_cast<size_t>(random->Pick(0, static_cast<int64_t>(left.size()) - 1));
      Step((*left[k])[at[k]++].item);
      if (at[k] == left[k]->size()) {
        left[k] = left.back(), at[k] = at.back();
        left.pop_back(), at.pop_back();
      }
    }
  }
  std::map<Tile, Partial> outputs;
  int outputs_twice = 0;

private:
  void Step(const cgr__plan_item &item) {
    Partial result = Partial::Of(item);
    if (item.fold >= 0) {
      Partial before = partials_[item.fold];
      before.Add(result);
      result = before;
    }
    if (item.partial < 0)
      Output(item, result);
    else
      partials_[item.partial] = result;
    if (item.count > 0 && ++arrived_[item.first] == item.count)
      Merge(item);
  }
  void Merge(const cgr__plan_item &item) {
    Partial result = partials_[item.first];
    for (int32_t k = 1; k < item.count; k++)
      result.Add(partials_[item.first + k]);
    Output(item, result);
  }
  void Output(const cgr__plan_item &item, const Partial &result) {
    outputs_twice += outputs.count(TileOf(item)) != 0;
    outputs[TileOf(item)] = result;
  }
  std::map<int32_t, Partial> partials_;
  std::map<int32_t, int32_t> arrived_; // counters, by the first partial
};

TEST(PlanPartials, EveryTileIsMergedInOrderHoweverTheCtasRun) {
  ForRandomPlans(10000, [](const PlanCase &given, Random &random) {
    Items items = Planned(given).Items();
    Execution run(items, &random);
    ASSERT_EQ(run.outputs_twice, 0);
    size_t tiles = 0;
    for (size_t i = 0; i < given.num_requests(); i++) {
      std::vector<cgr__plan_range> expected = TilesOf(given, i);
      tiles += expected.size() * static_cast<size_t>(given.c.head_blocks);
      for (int32_t h = 0; h < given.c.head_blocks; h++) {
        for (size_t t = 0; t < expected.size(); t++) {
          Tile tile(static_cast<int32_t>(i), h, static_cast<int32_t>(t) * given.TileQ(i));
          ASSERT_EQ(run.outputs.count(tile), 1u) << "request " << i << " head block " << h << " q tile " << t;
          const Partial &partial = run.outputs[tile];
          ASSERT_TRUE(partial.is_left) << "request " << i << " head block " << h << " q tile " << t;
          ASSERT_EQ(partial.borders.front(), expected[t].begin);
          ASSERT_EQ(partial.borders.back(), expected[t].end);
        }
      }
    }
    ASSERT_EQ(run.outputs.size(), tiles);
  });
}

// What is combined for a request, in which splits and in which order, depends neither on who else is in the batch nor on the
// number of parts.
TEST(PlanPartials, BatchInvariantMeansTheSameAsAlone) {
  int compared = 0;
  ForRandomPlans(15000, [&compared](PlanCase given, Random &random) {
    if (given.num_requests() == 0)
      return;
    given.c.max_splits = std::max(given.c.max_splits, 1);
    MakeRoom(&given, 0);
    Execution together(Planned(given).Items(), &random);
    size_t i = static_cast<size_t>(random.Pick(0, static_cast<int64_t>(given.num_requests()) - 1));
    PlanCase alone;
    alone.c = given.c;
    alone.c.num_parts = random.OneIn(3) ? given.c.num_parts : random.Pick32(1, 200);
    alone.query_lens = { given.query_lens[i] };
    alone.seq_lens = { given.seq_lens[i] };
    MakeRoom(&alone, 0);
    Execution single(Planned(alone).Items(), &random);
    size_t outputs = 0;
    for (const auto &output : together.outputs) {
      if (std::get<0>(output.first) != static_cast<int32_t>(i))
        continue;
      Tile same(0, std::get<1>(output.first), std::get<2>(output.first));
      ASSERT_EQ(single.outputs.count(same), 1u);
      ASSERT_EQ(single.outputs[same].borders, output.second.borders)
          << "request " << i << " with " << alone.c.num_parts << " parts";
      ASSERT_TRUE(single.outputs[same].is_left && output.second.is_left);
      outputs++;
      compared += output.second.borders.size() > 2;
    }
    ASSERT_EQ(single.outputs.size(), outputs);
  });
  EXPECT_GT(compared, 5000) << "tiles that are split";
}

// A19. Stripes share nothing: what one stripe's plan says of partials and head blocks, taken for all stripes, covers every
// partial and every head block once. Partials of one tile stay neighbours, and those of the decode sections come first.
TEST(PlanPartials, StripesHavePartialsAndHeadBlocksOfTheirOwn) {
  ForRandomPlans(300, [](const PlanCase &given, Random &random) {
    cgr__plan_class c = given.c;
    c.stripes = random.Pick32(1, 8);
    const int32_t of_decodes = cgr__plan_decode_partials(&c), all = of_decodes + cgr__plan_prefill_partials(&c);
    std::set<int32_t> partials, head_blocks;
    for (int32_t stripe = 0; stripe < c.stripes; stripe++) {
      for (int32_t partial = 0; partial < all; partial++) {
        const int32_t at = cgr__plan_partial_in_stripe(&c, stripe, partial);
        ASSERT_TRUE(at >= 0 && at < c.stripes * all && partials.insert(at).second)
            << "partial " << partial << " of stripe " << stripe;
        ASSERT_EQ(at < cgr__plan_all_decode_partials(&c), partial < of_decodes);
        if (partial > 0 && partial != of_decodes) {
          ASSERT_EQ(at, cgr__plan_partial_in_stripe(&c, stripe, partial - 1) + 1);
        }
      }
      for (int32_t h = 0; h < c.head_blocks; h++) {
        cgr__plan_item item = {};
        item.head_block = h;
        item.fold = item.first = -1;
        item.partial = all - 1;
        cgr__plan_item_in_stripe(&c, stripe, &item);
        ASSERT_TRUE(item.head_block < c.head_blocks * c.stripes && head_blocks.insert(item.head_block).second);
        ASSERT_EQ(item.head_block % c.stripes, stripe);
        ASSERT_EQ(item.partial, cgr__plan_partial_in_stripe(&c, stripe, all - 1));
        ASSERT_TRUE(item.fold == -1 && item.first == -1);
      }
    }
  });
}

} // namespace

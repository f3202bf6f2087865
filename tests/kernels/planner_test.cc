// The planner kernel writes the plan that a walk over the line, unit by unit, gives, and the bytes of the host planner; whatever
// was there before, and whatever is after the real requests.
#include <gtest/gtest.h>

#include <random>

#include "planners/attention/plan.h"
#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

struct Batch {
  Words lens, seq_lens; // a seq_len below its query length: a request that a guard has emptied
};

// Where a unit of the line lies.
struct Place {
  int32_t request, q_tile, kv;
  size_t tile; // of the line
};

// A q tile of the line: the parts that hold its first and its last KV tile.
struct Tile {
  int32_t first = -1, last = -1;
};

// The plan, written from the words of planners/attention/plan.h: the units of the batch in a row, cut every `cost_per_part`.
class UnitWalk {
public:
  UnitWalk(const Batch &batch, int32_t num_parts, int32_t tile_q) : batch_(batch), num_parts_(num_parts), tile_q_(tile_q) {
    EachUnit([](int64_t, const Place &, bool) {});
    cost_ = units_;
    per_part_ = std::max<int64_t>(1, cost_ / num_parts + (cost_ % num_parts != 0));
    cuts_.assign(size_t(num_parts) + 1, { int32_t(batch.lens.size()), 0, 0, 0 });
    EachUnit([this](int64_t unit, const Place &place, bool is_kv) {
      if (unit == next_cut_ * per_part_)
        cuts_[size_t(next_cut_++)] = place;
      if (place.tile >= tiles_.size())
        tiles_.resize(place.tile + 1);
      Tile &tile = tiles_[place.tile];
      if (!is_kv)
        return;
      tile.last = int32_t(next_cut_ - 1);
      if (tile.first < 0)
        tile.first = tile.last;
    });
  }
  std::vector<int64_t> Plan() const {
    cgr__plan_header header = {};
    header.num_parts = num_parts_;
    header.tile_q = tile_q_;
    header.tile_kv = CGR__TILE_KV;
    header.num_requests = int32_t(batch_.lens.size());
    header.cost = cost_;
    header.cost_per_part = per_part_;
    std::vector<int64_t> plan((cgr__plan_bytes(num_parts_) + 7) / 8, 0);
    std::memcpy(plan.data(), &header, sizeof header);
    for (int32_t p = 0; p < num_parts_; p++) {
      cgr__plan_part part = Part(p);
      std::memcpy(reinterpret_cast<cgr__plan_part *>(reinterpret_cast<cgr__plan_header *>(plan.data()) + 1) + p, &part,
                  sizeof part);
    }
    return plan;
  }

private:
  cgr__plan_part Part(int32_t p) const {
    const Place &begin = cuts_[p], &end = cuts_[p + 1];
    cgr__plan_part part = {};
    part.request = begin.request;
    part.q_tile = begin.q_tile;
    part.kv_begin = begin.kv;
    part.end_request = end.request;
    part.end_q_tile = end.q_tile;
    part.end_kv = end.kv;
    part.begin_first = begin.kv > 0 ? tiles_[begin.tile].first : p;
    part.begin_last = begin.kv > 0 ? tiles_[begin.tile].last : p;
    part.end_last = end.kv > 0 ? tiles_[end.tile].last : p;
    return part;
  }
  template <class Visit> void EachUnit(Visit visit) {
    Place place = { 0, 0, 0, 0 };
    units_ = 0;
    for (size_t i = 0; i < batch_.lens.size(); i++) {
      int32_t context = batch_.seq_lens[i] - batch_.lens[i], q_tile = 0;
      for (int32_t first = 0; context >= 0 && first < batch_.lens[i]; first += tile_q_, q_tile++, place.tile++) {
        int32_t visible = context + std::min(first + tile_q_, batch_.lens[i]);
        place.request = int32_t(i);
        place.q_tile = q_tile;
        place.kv = 0;
        for (int fixed = 0; fixed < CGR__TILE_COST; fixed++)
          visit(units_++, place, false);
        for (int32_t token = 0; token < visible; token += CGR__TILE_KV, place.kv++)
          visit(units_++, place, true);
      }
    }
  }

  const Batch &batch_;
  int32_t num_parts_, tile_q_;
  int64_t units_ = 0, cost_ = 0, per_part_ = 1, next_cut_ = 0;
  std::vector<Place> cuts_;
  std::vector<Tile> tiles_;
};

class KernelPlanner : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_planner }); }

  static StepLimits Limits(int32_t max_requests, int32_t num_parts, int32_t tile_q, int32_t head_blocks) {
    StepLimits limits;
    limits.max_requests = limits.max_rows = max_requests;
    limits.max_tokens = max_requests * 20;
    limits.num_parts = num_parts;
    limits.tile_q = tile_q;
    limits.num_counters = num_parts * head_blocks;
    return limits;
  }
  static Batch RandomBatch(std::mt19937_64 &random, int32_t n, int32_t longest) {
    Batch batch;
    for (int32_t i = 0; i < n; i++) {
      batch.lens.push_back(Pick(random, 0, 2) ? 1 : Pick(random, 0, 20));
      bool emptied = Pick(random, 0, 20) == 0;
      batch.seq_lens.push_back(emptied ? 0 : batch.lens.back() + Pick(random, 0, Pick(random, 0, 5) ? 500 : longest));
    }
    return batch;
  }
  // Words that no batch of ours has.
  static int32_t Anything(std::mt19937_64 &random) {
    switch (random() % 3) {
    case 0:
      return int32_t(random());
    case 1:
      return Pick(random, 0, 100000);
    default:
      return Words{ INT32_MAX, INT32_MIN, -1, 1 }[random() % 4];
    }
  }
  // What the prologue leaves of a batch. `noise`: what is after the real requests is anything instead of padding.
  static void PutBatch(const StepLimits &limits, const Batch &batch, std::mt19937_64 *noise, StepBuffers *buffers) {
    cgr__buffers &b = *buffers->operator->();
    int32_t end = 0, n = int32_t(batch.lens.size());
    b.query_start_loc[0] = 0;
    for (int32_t i = 0; i < limits.max_requests; i++) {
      end += i < n ? batch.lens[i] : 0;
      b.query_start_loc[i + 1] = i < n || noise == nullptr ? end : Anything(*noise);
      b.seq_lens[0][i] = i < n ? batch.seq_lens[i] : noise == nullptr ? 0 : Anything(*noise);
    }
    b.counts[CGR__COUNT_REQUESTS] = n;
    b.counts[CGR__COUNT_TOKENS] = end;
  }
  // The plan that the kernel writes. Nothing else in any buffer changes, but for the counters.
  std::vector<int64_t> Plan(const StepLimits &limits, const Batch &batch, int32_t padded_requests, std::mt19937_64 *noise) {
    StepModel model(limits);
    PutBatch(limits, batch, noise, &model.b);
    StepDevice device(*bench_, limits, model);
    cgr__step_args args = device.Args(padded_requests, limits.max_tokens);
    bench_->Run(cgr__kernel_planner, &args);
    StepBuffers got = device.Get();
    std::vector<int64_t> plan((cgr__plan_bytes(limits.num_parts) + 7) / 8);
    std::memcpy(plan.data(), got->plan, cgr__plan_bytes(limits.num_parts));
    model.Planner(plan);
    ExpectBuffers(got, model.b);
    return plan;
  }
  static std::vector<int64_t> HostPlan(const StepLimits &limits, const Batch &batch) {
    cgr_plan_input input = CGR_PLAN_INPUT_INIT;
    input.num_requests = int32_t(batch.lens.size());
    input.query_lens = batch.lens.data();
    input.seq_lens = batch.seq_lens.data();
    input.num_parts = limits.num_parts;
    input.tile_q = limits.tile_q;
    std::vector<int64_t> scratch(cgr__plan_scratch_words(input.num_requests));
    std::vector<int64_t> plan = Array<int64_t>::Poison((cgr__plan_bytes(limits.num_parts) + 7) / 8);
    cgr__plan_build(&input, scratch.data(), plan.data());
    return plan;
  }
  void Check(const StepLimits &limits, const Batch &batch, int32_t padded_requests, std::mt19937_64 *noise) {
    SCOPED_TRACE("requests " + std::to_string(batch.lens.size()) + " of " + std::to_string(padded_requests) + " parts " +
                 std::to_string(limits.num_parts) + " tile_q " + std::to_string(limits.tile_q));
    std::vector<int64_t> got = Plan(limits, batch, padded_requests, noise);
    ASSERT_TRUE(got == UnitWalk(batch, limits.num_parts, limits.tile_q).Plan()) << "not the plan of the units";
    ASSERT_TRUE(got == HostPlan(limits, batch)) << "not the bytes of the host planner";
  }
};

// By hand, so that the walk is not alone: tiles of 2 + 1, 2 + 1 and 2 + 7 units, and a request that was emptied, cut every 5.
TEST_P(KernelPlanner, CutsASmallBatchAsByHand) {
  Batch batch = { { 2, 0, 5, 1 }, { 2, 0, 0, 400 } };
  StepLimits limits = Limits(4, 3, 1, 2);
  std::vector<int64_t> plan = Plan(limits, batch, 4, nullptr);
  const cgr__plan_header *header = reinterpret_cast<const cgr__plan_header *>(plan.data());
  EXPECT_EQ(header->cost, 15);
  EXPECT_EQ(header->cost_per_part, 5);
  EXPECT_EQ(header->num_requests, 4);
  const int32_t expected[3][9] = { { 0, 0, 0, 0, 1, 0, 0, 0, 0 }, { 0, 1, 0, 3, 0, 2, 1, 1, 2 }, { 3, 0, 2, 4, 0, 0, 1, 2, 2 } };
  const cgr__plan_part *parts = reinterpret_cast<const cgr__plan_part *>(header + 1);
  for (int p = 0; p < 3; p++)
    EXPECT_EQ(std::memcmp(&parts[p], expected[p], sizeof expected[p]), 0) << "part " << p;
  ASSERT_TRUE(plan == UnitWalk(batch, 3, 1).Plan());
}

TEST_P(KernelPlanner, EqualsWalkByUnits) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    int32_t num_parts = seed % 7 == 0 ? CGR__MAX_PARTS : Pick(random, 1, 300), max_requests = Pick(random, 1, 300);
    StepLimits limits = Limits(max_requests, num_parts, 1 << Pick(random, 0, 6), Pick(random, 1, 16));
    int32_t padded = Pick(random, 1, limits.max_requests);
    Batch batch = RandomBatch(random, Pick(random, 0, padded), 1000000);
    Check(limits, batch, padded, Pick(random, 0, 2) ? &random : nullptr);
    if (HasFatalFailure())
      return;
  }
}

// As many requests as a runtime can be made for, and both sides of each round of a block of threads.
TEST_P(KernelPlanner, EqualsWalkAtTheLimits) {
  std::mt19937_64 random(61);
  for (int32_t padded : { 1023, 1024, 1025, 2048, CGR__MAX_REQUESTS }) {
    for (int32_t missing : { 0, 1, 700 }) {
      StepLimits limits = Limits(CGR__MAX_REQUESTS, missing == 1 ? CGR__MAX_PARTS : 132, missing == 0 ? 1 : 16, 8);
      Check(limits, RandomBatch(random, padded - missing, 30000), padded, &random);
      if (HasFatalFailure())
        return;
    }
  }
}

// What is after the real requests does not matter, and neither does the padding: one batch, the same bytes.
TEST_P(KernelPlanner, GarbageAfterTheRequestsDoesNotMatter) {
  std::mt19937_64 random(62);
  for (int32_t n : { 0, 1, 31, 200, 1024 }) {
    StepLimits limits = Limits(1100, 40, 8, 4);
    Batch batch = RandomBatch(random, n, 5000);
    std::vector<int64_t> expected = Plan(limits, batch, std::max(n, 1), nullptr);
    for (int32_t padded : { n + 1, n + 33, 1100 }) {
      SCOPED_TRACE("requests " + std::to_string(n) + " of " + std::to_string(padded));
      ASSERT_TRUE(Plan(limits, batch, padded, nullptr) == expected) << "padding";
      for (int round = 0; round < 3; round++)
        ASSERT_TRUE(Plan(limits, batch, padded, &random) == expected) << "garbage";
    }
  }
}

// A request that a guard has emptied keeps its tokens and costs nothing, wherever it is.
TEST_P(KernelPlanner, EmptiedRequestsCostNothing) {
  StepLimits limits = Limits(16, 6, 4, 2);
  const Batch live = { { 9, 1, 4 }, { 300, 64, 4 } };
  const Batch with_emptied = { { 7, 9, 64, 1, 1, 4, 20 }, { 0, 300, 0, 64, 0, 4, 0 } };
  const Batch only_emptied = { { 5, 1, 64 }, { 0, 0, 0 } };
  Check(limits, live, 16, nullptr);
  Check(limits, with_emptied, 16, nullptr);
  Check(limits, only_emptied, 16, nullptr);
  auto cost = [&](const Batch &batch) {
    std::vector<int64_t> plan = Plan(limits, batch, 16, nullptr);
    return reinterpret_cast<const cgr__plan_header *>(plan.data())->cost;
  };
  EXPECT_EQ(cost(with_emptied), cost(live));
  EXPECT_EQ(cost(only_emptied), 0);
}

// Counters beyond those of the plan are somebody else's.
TEST_P(KernelPlanner, ZeroesItsCountersAlone) {
  StepLimits limits = Limits(8, 5, 8, 8);
  StepModel model(limits);
  PutBatch(limits, { { 1, 2 }, { 5, 70 } }, nullptr, &model.b);
  for (int32_t counters : { 0, 1, 15, 40 }) {
    StepDevice device(*bench_, limits, model);
    cgr__step_args args = device.Args(8, 16);
    args.num_counters = counters;
    bench_->Run(cgr__kernel_planner, &args);
    const StepBuffers got = device.Get();
    for (int32_t c = 0; c < limits.num_counters; c++)
      EXPECT_EQ(got->plan_counters[c], c < counters ? 0 : int32_t(0xA5A5A5A5u)) << c << " of " << counters;
  }
}

// The same line, walked tile by tile: for lengths that have too many units.
struct LongTile {
  int32_t request, q_tile;
  int64_t start, cost; // in units
};
std::vector<LongTile> TilesOf(const Batch &batch, int32_t tile_q) {
  std::vector<LongTile> tiles;
  int64_t start = 0;
  for (size_t i = 0; i < batch.lens.size(); i++) {
    int64_t context = int64_t{ batch.seq_lens[i] } - batch.lens[i];
    for (int32_t first = 0, t = 0; context >= 0 && first < batch.lens[i]; first += tile_q, t++) {
      int64_t visible = context + std::min(first + tile_q, batch.lens[i]);
      int64_t cost = CGR__TILE_COST + (visible + CGR__TILE_KV - 1) / CGR__TILE_KV;
      tiles.push_back({ int32_t(i), t, start, cost });
      start += cost;
    }
  }
  return tiles;
}

// Lengths up to the last ones that an i32 holds: the whole line passes 2^31 units.
TEST_P(KernelPlanner, CutsHugeLengthsWhereTheTilesSay) {
  std::mt19937_64 random(63);
  for (int32_t tile_q : { 1, 8, 64 }) {
    SCOPED_TRACE(tile_q);
    StepLimits limits = Limits(600, 132, tile_q, 4);
    Batch batch = RandomBatch(random, 500, INT32_MAX - 64);
    for (size_t i = 0; i < 500; i += 2)
      batch.seq_lens[i] = INT32_MAX - Pick(random, 0, 1000);
    std::vector<int64_t> plan = Plan(limits, batch, 600, &random);
    ASSERT_TRUE(plan == HostPlan(limits, batch));
    const cgr__plan_header *header = reinterpret_cast<const cgr__plan_header *>(plan.data());
    const cgr__plan_part *parts = reinterpret_cast<const cgr__plan_part *>(header + 1);
    const std::vector<LongTile> tiles = TilesOf(batch, tile_q);
    ASSERT_EQ(header->cost, tiles.back().start + tiles.back().cost);
    EXPECT_GT(header->cost, INT32_MAX);
    ASSERT_EQ(header->cost_per_part, (header->cost + 131) / 132);
    for (int32_t p = 0; p < 132; p++) {
      int64_t unit = p * header->cost_per_part;
      const LongTile *tile = &tiles[0];
      while (unit >= tile->start + tile->cost)
        tile++;
      EXPECT_EQ(parts[p].request, tile->request) << p;
      EXPECT_EQ(parts[p].q_tile, tile->q_tile) << p;
      EXPECT_EQ(parts[p].kv_begin, std::max<int64_t>(0, unit - tile->start - CGR__TILE_COST)) << p;
    }
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPlanner);

} // namespace
} // namespace cgr_test

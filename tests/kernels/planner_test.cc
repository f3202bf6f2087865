// The planner kernel writes the plan that a walk over the line, unit by unit, gives, and the bytes of the host planner; whatever
// stood there before, and whatever stands behind the real requests.
#include <gtest/gtest.h>

#include <random>

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
    const Place end = { static_cast<int32_t>(batch.lens.size()), 0, 0, 0 };
    cuts_.assign(static_cast<size_t>(num_parts) + 1, end);
    EachUnit([this](int64_t unit, const Place &place, bool is_kv) {
      if (unit == next_cut_ * per_part_)
        cuts_[static_cast<size_t>(next_cut_++)] = place;
      if (place.tile >= tiles_.size())
        tiles_.resize(place.tile + 1);
      Tile &tile = tiles_[place.tile];
      if (!is_kv)
        return;
      tile.last = static_cast<int32_t>(next_cut_ - 1);
      if (tile.first < 0)
        tile.first = tile.last;
    });
  }
  std::vector<int64_t> Plan() const {
    std::vector<int64_t> plan((cgr__plan_bytes(num_parts_) + 7) / 8, 0);
    cgr__plan_header header = {};
    header.num_parts = num_parts_;
    header.tile_q = tile_q_;
    header.tile_kv = CGR__TILE_KV;
    header.num_requests = static_cast<int32_t>(batch_.lens.size());
    header.cost = cost_;
    header.cost_per_part = per_part_;
    std::memcpy(plan.data(), &header, sizeof header);
    for (int32_t p = 0; p < num_parts_; p++) {
      const Place &begin = cuts_[static_cast<size_t>(p)], &end = cuts_[static_cast<size_t>(p) + 1];
      cgr__plan_part part = {};
      part.request = begin.request;
      part.q_tile = begin.q_tile;
      part.kv_begin = begin.kv;
      part.end_request = end.request;
      part.end_q_tile = end.q_tile;
      part.end_kv = end.kv;
      part.head_first = begin.kv > 0 ? tiles_[begin.tile].first : p;
      part.head_last = begin.kv > 0 ? tiles_[begin.tile].last : p;
      part.tail_last = end.kv > 0 ? tiles_[end.tile].last : p;
      std::memcpy(reinterpret_cast<unsigned char *>(plan.data()) + sizeof header + static_cast<size_t>(p) * sizeof part, &part,
                  sizeof part);
    }
    return plan;
  }

private:
  template <class Visit> void EachUnit(Visit visit) {
    Place place = { 0, 0, 0, 0 };
    units_ = 0;
    for (size_t i = 0; i < batch_.lens.size(); i++) {
      int32_t context = batch_.seq_lens[i] - batch_.lens[i], q_tile = 0;
      for (int32_t first = 0; context >= 0 && first < batch_.lens[i]; first += tile_q_, q_tile++, place.tile++) {
        int32_t visible = context + std::min(first + tile_q_, batch_.lens[i]);
        place.request = static_cast<int32_t>(i);
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

class KernelPlanner : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_planner), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }

  // `noise`: what stands behind the real requests is anything instead of padding.
  std::vector<int64_t> Plan(const StepLimits &limits, const Batch &batch, int32_t padded_requests, std::mt19937_64 *noise) {
    StepModel model(limits);
    const size_t n = batch.lens.size();
    auto anything = [&] {
      switch ((*noise)() % 3) {
      case 0:
        return static_cast<int32_t>((*noise)());
      case 1:
        return Pick(*noise, 0, 100000);
      default:
        return Words{ INT32_MAX, INT32_MIN, -1, 1 }[(*noise)() % 4];
      }
    };
    int32_t end = 0;
    model.b.query_start_loc[0] = 0;
    for (size_t i = 0; i < model.b.seq_lens.size(); i++) {
      bool real = i < n;
      end += real ? batch.lens[i] : 0;
      model.b.query_start_loc[i + 1] = real || noise == nullptr ? end : anything();
      model.b.seq_lens[i] = real ? batch.seq_lens[i] : noise == nullptr ? 0 : anything();
    }
    model.b.counts[CGR__COUNT_REQUESTS] = static_cast<int32_t>(n);
    model.b.counts[CGR__COUNT_TOKENS] = end;
    StepDevice device(*bench_, limits, model.b);
    cgr__step_args args = device.Args(padded_requests, limits.max_tokens);
    bench_->Run(cgr__kernel_planner, &args);
    EXPECT_EQ(device.Counters(), Words(static_cast<size_t>(limits.num_counters), 0));
    return device.Plan();
  }
  static std::vector<int64_t> HostPlan(const StepLimits &limits, const Batch &batch) {
    cgr_plan_input input = CGR_PLAN_INPUT_INIT;
    input.num_requests = static_cast<int32_t>(batch.lens.size());
    input.query_lens = batch.lens.data();
    input.seq_lens = batch.seq_lens.data();
    input.num_parts = limits.num_parts;
    input.tile_q = limits.tile_q;
    std::vector<int64_t> scratch(cgr__plan_scratch_words(input.num_requests));
    std::vector<int64_t> plan = Array<int64_t>::Poison((cgr__plan_bytes(limits.num_parts) + 7) / 8);
    cgr__plan_build(&input, scratch.data(), plan.data());
    return plan;
  }
  static Batch RandomBatch(std::mt19937_64 &random, int32_t n, int32_t longest) {
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    Batch batch;
    for (int32_t i = 0; i < n; i++) {
      batch.lens.push_back(pick(0, 2) ? 1 : pick(0, 20));
      batch.seq_lens.push_back(pick(0, 20) == 0 ? 0 : batch.lens.back() + pick(0, pick(0, 5) ? 500 : longest));
    }
    return batch;
  }
  void Check(const StepLimits &limits, const Batch &batch, int32_t padded_requests, std::mt19937_64 *noise) {
    SCOPED_TRACE("requests " + std::to_string(batch.lens.size()) + " of " + std::to_string(padded_requests) + " parts " +
                 std::to_string(limits.num_parts) + " tile_q " + std::to_string(limits.tile_q));
    std::vector<int64_t> got = Plan(limits, batch, padded_requests, noise);
    ASSERT_TRUE(got == UnitWalk(batch, limits.num_parts, limits.tile_q).Plan()) << "not the plan of the units";
    ASSERT_TRUE(got == HostPlan(limits, batch)) << "not the bytes of the host planner";
  }
  static StepLimits Limits(int32_t max_requests, int32_t num_parts, int32_t tile_q, int32_t head_blocks) {
    StepLimits limits;
    limits.max_requests = limits.max_rows = max_requests;
    limits.max_tokens = max_requests * 20;
    limits.num_parts = num_parts;
    limits.tile_q = tile_q;
    limits.num_counters = num_parts * head_blocks;
    return limits;
  }
  std::unique_ptr<Bench> bench_;
};

// By hand, so that the walk is not alone: tiles of 2 + 1, 2 + 1 and 2 + 7 units, and a request that was emptied, cut every 5.
TEST_P(KernelPlanner, SmallPlanByHand) {
  Batch batch = { { 2, 0, 5, 1 }, { 2, 0, 0, 400 } };
  StepLimits limits = Limits(4, 3, 1, 2);
  std::vector<int64_t> plan = Plan(limits, batch, 4, nullptr);
  cgr__plan_header header;
  std::memcpy(&header, plan.data(), sizeof header);
  EXPECT_EQ(header.cost, 15);
  EXPECT_EQ(header.cost_per_part, 5);
  EXPECT_EQ(header.num_requests, 4);
  const int32_t expected[3][9] = { { 0, 0, 0, 0, 1, 0, 0, 0, 0 }, { 0, 1, 0, 3, 0, 2, 1, 1, 2 }, { 3, 0, 2, 4, 0, 0, 1, 2, 2 } };
  for (int p = 0; p < 3; p++) {
    cgr__plan_part part;
    std::memcpy(&part, reinterpret_cast<unsigned char *>(plan.data()) + sizeof header + static_cast<size_t>(p) * sizeof part,
                sizeof part);
    EXPECT_EQ(std::memcmp(&part, expected[p], sizeof expected[p]), 0) << "part " << p;
  }
  ASSERT_TRUE(plan == UnitWalk(batch, 3, 1).Plan());
}

TEST_P(KernelPlanner, EqualsWalkByUnits) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    int32_t num_parts = seed % 7 == 0 ? 4096 : pick(1, 300);
    StepLimits limits = Limits(pick(1, 300), num_parts, 1 << pick(0, 6), pick(1, 16));
    int32_t padded = pick(1, limits.max_requests);
    Check(limits, RandomBatch(random, pick(0, padded), 1000000), padded, pick(0, 2) ? &random : nullptr);
    if (HasFatalFailure())
      return;
  }
}

// As many requests as a runtime can be made for, and both sides of each round of a block of threads.
TEST_P(KernelPlanner, EqualsWalkAtTheLimits) {
  std::mt19937_64 random(61);
  for (int32_t padded : { 1023, 1024, 1025, 2048, 4096 }) {
    for (int32_t missing : { 0, 1, 700 }) {
      StepLimits limits = Limits(4096, missing == 1 ? 4096 : 132, missing == 0 ? 1 : 16, 8);
      Check(limits, RandomBatch(random, padded - missing, 30000), padded, &random);
      if (HasFatalFailure())
        return;
    }
  }
}

// What stands behind the real requests does not matter, and neither does the padding: one batch, the same bytes.
TEST_P(KernelPlanner, GarbageBehindTheRequestsDoesNotMatter) {
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

// Lengths up to the last ones that an i32 holds: too many units to walk.
TEST_P(KernelPlanner, EqualsHostPlannerOnHugeLengths) {
  std::mt19937_64 random(63);
  for (int32_t tile_q : { 1, 8, 64 }) {
    StepLimits limits = Limits(600, 132, tile_q, 4);
    Batch batch = RandomBatch(random, 500, INT32_MAX - 64);
    ASSERT_TRUE(Plan(limits, batch, 600, &random) == HostPlan(limits, batch)) << "tile_q " << tile_q;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelPlanner, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test

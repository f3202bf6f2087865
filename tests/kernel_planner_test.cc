// The planner kernel writes the bytes that the host planner writes, whatever stood there before.
#include <gtest/gtest.h>

#include <random>

#include "tests/step_case.h"

namespace cgr_test {
namespace {

class KernelPlanner : public ::testing::TestWithParam<DeviceParam> {
 protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_planner), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }
  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelPlanner, EqualsHostPlanner) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    StepLimits limits;
    limits.max_requests = limits.max_rows = seed % 10 == 0 ? 4096 : pick(1, 300);
    limits.max_tokens = limits.max_requests * 20;
    limits.num_parts = seed % 7 == 0 ? 4096 : pick(1, 300);
    limits.tile_q = 1 << pick(0, 6);
    limits.num_counters = limits.num_parts * pick(1, 16);
    StepModel model(limits);
    int32_t n = pick(0, limits.max_requests);
    Words lens;
    model.b.query_start_loc[0] = 0;
    for (int32_t i = 0; i < n; i++) {
      lens.push_back(pick(0, 2) ? 1 : pick(0, 20));
      bool refused = pick(0, 20) == 0;
      model.b.seq_lens[i] = refused ? 0 : lens[i] + pick(0, pick(0, 5) ? 500 : 1000000);
      model.b.query_start_loc[i + 1] = model.b.query_start_loc[i] + lens[i];
    }
    model.b.counts[CGR__COUNT_REQUESTS] = n;
    model.b.counts[CGR__COUNT_TOKENS] = model.b.query_start_loc[n];
    StepDevice device(*bench_, limits, model.b);
    cgr__step_args args = device.Args(limits.max_requests, limits.max_tokens);
    bench_->Run(cgr__kernel_planner, &args);
    cgr_plan_input input = CGR_PLAN_INPUT_INIT;
    input.num_requests = n;
    input.query_lens = lens.data();
    input.seq_lens = model.b.seq_lens.data();
    input.num_parts = limits.num_parts;
    input.tile_q = limits.tile_q;
    std::vector<int64_t> scratch(cgr__plan_scratch_words(n));
    std::vector<int64_t> expected = Array<int64_t>::Poison((cgr__plan_bytes(limits.num_parts) + 7) / 8);
    cgr__plan_build(&input, scratch.data(), expected.data());
    ASSERT_EQ(device.Plan(), expected);
    ASSERT_EQ(device.Counters(), Words(static_cast<size_t>(limits.num_counters), 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelPlanner, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

}  // namespace
}  // namespace cgr_test

// The rings: steps in flight up to the depth, a full ring, and the fence of ring slots. The host device executes at the last
// legal moment, or at random ones, so that code that relies on lucky timing fails.
#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Case {
  DeviceParam device;
  int32_t depth;
};

void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label() << ", depth " << made.depth; }

std::vector<Case> Cases(const std::vector<DeviceParam> &devices) {
  std::vector<Case> cases;
  for (int32_t depth : { 2, 3, 4, 9 })
    for (const DeviceParam &device : devices)
      cases.push_back({ device, depth });
  return cases;
}

class Ring : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
  std::unique_ptr<Engine> Make(int32_t depth) {
    return MakeCaptured(OptionsFor(GetParam().device, [depth](cgr_config *config) { config->ring_depth = depth; }));
  }
  bool IsLatest() const { return !GetParam().device.IsCuda() && GetParam().device.config.host_schedule == CGR_SCHEDULE_LATEST; }
};

// Every step has a different batch and different tokens, and the ring is as full as it may be. If a ring slot is written before
// the step that used it has run, that step gets the content of a later one.
TEST_P(Ring, SlotIsNotWrittenBeforeItsStepHasRun) {
  const size_t depth = size_t(GetParam().depth);
  auto made = Make(GetParam().depth);
  Engine &engine = *made;
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 8; i++)
    rows.push_back(engine.Start(2 + 3 * i, i));
  for (int32_t row : rows)
    engine.Reserve(row, 100);
  const uint32_t seed = 17;
  std::mt19937 random(seed);
  int busy = 0;
  for (int n = 0; n < 60 && !HasFatalFailure(); n++) {
    SCOPED_TRACE("seed 17, iteration " + std::to_string(n));
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<Item> items;
    for (size_t i = 0; i < 1 + random() % 8; i++)
      items.push_back({ rows[i], { int32_t(random() % 50) } });
    cgr_status status = engine.Prepare(items);
    if (status == CGR_ERROR_BUSY) {
      busy++;
      ASSERT_EQ(engine.NumInFlight(), depth);
      engine.CheckOne();
      status = engine.Prepare(items);
    }
    CGR_ASSERT_OK(status);
    if (engine.NumInFlight() == depth)
      engine.CheckOne(); // its result would be overwritten
    CGR_ASSERT_OK(engine.Launch());
  }
  engine.CheckAll();
  EXPECT_TRUE(!IsLatest() || busy > 40) << busy;
}

// On devices where nothing drains by itself: they execute at the last moment, or behind a gate.
class FullRing : public Ring {};

TEST_P(FullRing, IsBusyAndChangesNothing) {
  const int32_t depth = GetParam().depth;
  auto made = Make(depth);
  Engine &engine = *made;
  int32_t a = engine.Start(5, 1), b = engine.Start(20, 2);
  engine.Reserve(a, 100);
  engine.Reserve(b, 100);
  for (int round = 0; round < 5 && !HasFatalFailure(); round++) {
    std::unique_ptr<Gate> gate;
    if (!IsLatest())
      gate = std::make_unique<Gate>(engine.dev, engine.stream);
    for (int32_t n = 0; n < depth; n++)
      ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(engine.Decode({ a, b })));
    for (int n = 0; n < 3; n++)
      ExpectItemsRefused(engine, CGR_ERROR_BUSY,
                         { "no free ring slot of " + std::to_string(depth),
                           "expected step " + std::to_string(engine.launched + 1 - uint64_t(depth)) + " to be completed" },
                         { { a, { CGR_TOKEN_LAST } } });
    ExpectItemsRefused(engine, CGR_ERROR_BUSY, { "no free ring slot" }, {});
    uint64_t completed = cgr_test::Completed(engine.rt);
    EXPECT_EQ(completed, engine.launched - uint64_t(depth));
    gate.reset();
    engine.CheckOne();
    EXPECT_GE(cgr_test::Completed(engine.rt), completed + 1);
    ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(engine.Decode({ b, a })));
    engine.CheckAll();
  }
}

TEST_P(Ring, PollingAloneGetsOn) {
  auto made = Make(GetParam().depth);
  Engine &engine = *made;
  int32_t a = engine.Start(5, 1);
  for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
    ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(n % 2 == 0 ? engine.Decode({ a }) : engine.Chunks({ { a, 2 } })));
    cgr_status status = CGR_NOT_READY;
    for (int k = 0; k < 100000000 && status == CGR_NOT_READY; k++)
      status = cgr_step_wait(engine.rt, cgr_mark{ 0, 0, engine.launched }, 0, nullptr);
    CGR_ASSERT_OK(status);
    engine.CheckAll();
  }
}

// As deep as it may be, and as shallow.
TEST_P(Ring, HoldsAsManyStepsAsItIsDeep) {
  for (int32_t depth : { 2, 64 }) {
    auto made = Make(depth);
    Engine &engine = *made;
    int32_t a = engine.Start(5, 1);
    engine.Reserve(a, 80);
    engine.check_outputs = false;
    for (int32_t n = 0; n < depth; n++) {
      cgr_status status = engine.Prepare(engine.Decode({ a }));
      CGR_ASSERT_OK(status);
      CGR_ASSERT_OK(engine.Launch());
    }
    EXPECT_EQ(engine.NumInFlight(), size_t(depth));
    engine.CheckAll();
  }
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + "_depth_" + std::to_string(made.param.depth);
}
INSTANTIATE_TEST_SUITE_P(Devices, Ring,
                         ::testing::ValuesIn(Cases({ HostParam(CGR_SCHEDULE_LATEST), HostParam(CGR_SCHEDULE_RANDOM, 1),
                                                     HostParam(CGR_SCHEDULE_RANDOM, 99), HostParam(CGR_SCHEDULE_ASYNC),
                                                     CudaParam() })),
                         Label);
INSTANTIATE_TEST_SUITE_P(
    Devices, FullRing, ::testing::ValuesIn(Cases({ HostParam(CGR_SCHEDULE_LATEST), HostParam(CGR_SCHEDULE_ASYNC), CudaParam() })),
    Label);

} // namespace
} // namespace cgr_test

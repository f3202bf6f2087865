// When records are counted: while the host waits for a step, and by a launch only where nothing waits.
#include "tests/support/tiny_engine.h"

extern "C" {
#include "runtime/runtime.h"
}

namespace cgr_test {
namespace {

enum { kSteps = 1000 };

class Folds : public ::testing::TestWithParam<int32_t> {
protected:
  // Steps without requests. Returns how many launches counted records; `waits`: the host waits for each step.
  int Run(bool waits, int32_t steps) {
    int folds = 0;
    for (int32_t i = 0; i < steps; i++) {
      const cgr_batch batch = BatchOf(0);
      cgr_step step = CGR_STEP_INIT;
      CGR_EXPECT_OK(cgr_step_prepare(engine_.rt, &batch, &step));
      const uint64_t before = Folded();
      CGR_EXPECT_OK(cgr_step_launch(engine_.rt, &step, engine_.stream));
      folds += Folded() != before;
      if (!waits) // so that the wait finds the step complete
        CGR_EXPECT_OK(cgr_stream_synchronize(device_, engine_.stream));
      CGR_EXPECT_OK(cgr_step_wait(engine_.rt, step.mark, -1, nullptr));
    }
    return folds;
  }
  uint64_t Folded() const { return engine_.rt->statistics.folded; }
  static TinyOptions Options() {
    TinyOptions options;
    options.adjust = [](cgr_config *config) { config->flight_depth = GetParam(); };
    return options;
  }

  HostDevice device_{ CGR_SCHEDULE_LATEST }; // a step runs only once it is asked for
  TinyEngine engine_{ device_, Options() };
};

TEST_P(Folds, AreDoneWhileTheHostWaits) {
  EXPECT_EQ(Run(true, kSteps), GetParam() == CGR__FOLD_EVERY ? kSteps / CGR__FOLD_EVERY : 0);
  EXPECT_GE(Folded() + CGR__FOLD_IN_WAIT, uint64_t(kSteps));
  EXPECT_EQ(StatsOf(engine_.rt).steps, uint64_t(kSteps));
}

TEST_P(Folds, AreDoneByLaunchesWhereNothingWaits) {
  EXPECT_EQ(Run(false, CGR__FOLD_EVERY - 1), 0);
  EXPECT_EQ(Folded(), 0u);
  EXPECT_EQ(Run(false, 1), 1);
  EXPECT_EQ(Folded(), uint64_t(CGR__FOLD_EVERY));
  EXPECT_EQ(Run(false, kSteps), kSteps / CGR__FOLD_EVERY);
  EXPECT_EQ(StatsOf(engine_.rt).steps, uint64_t(CGR__FOLD_EVERY + kSteps));
}

INSTANTIATE_TEST_SUITE_P(Depths, Folds, ::testing::Values(256, 512, 1024));

} // namespace
} // namespace cgr_test

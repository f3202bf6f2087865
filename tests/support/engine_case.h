// Captured engines, and suites that have one.
#pragma once

#include "tests/support/engine.h"

namespace cgr_test {

inline std::unique_ptr<Engine> MakeCaptured(const EngineOptions &options) { return std::make_unique<Captured<Engine>>(options); }

// Good steps that have this key's kind, this reason, or both.
inline void StepAs(Engine &engine, const std::vector<Item> &items, int32_t kind, const cgr_key *forced = nullptr) {
  engine.Step(items, forced);
  EXPECT_EQ(engine.step.key.kind, kind);
}
inline void StepFor(Engine &engine, const std::vector<Item> &items, int32_t reason, const cgr_key *forced = nullptr) {
  engine.Step(items, forced);
  EXPECT_EQ(engine.step.reason, reason);
}

// Captures of `low` .. `high` requests fail.
inline auto FailCaptures(int32_t low = 0, int32_t high = INT32_MAX) {
  return [=](cgr_recorder *, const cgr_record_info &info, int32_t at) {
    const bool fails = at == 0 && info.capturing && info.num_requests >= low && info.num_requests <= high;
    return fails ? CGR_ERROR_CALLBACK : CGR_OK;
  };
}

// The engine goes before the members of the suite.
class EngineTest : public OverDevices {
protected:
  void TearDown() override { engine_.reset(); }
  std::unique_ptr<Engine> engine_;
};

// It has an engine with the options of its device from the beginning.
class CapturedTest : public EngineTest {
protected:
  void SetUpOnDevice() override { engine_ = MakeCaptured(OptionsFor(GetParam())); }
};

} // namespace cgr_test

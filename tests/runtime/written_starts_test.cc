// A kernel that writes query_start_loc itself is named over the validation layer, whatever it writes; steps that leave it alone
// are not.
#include "tests/support/engine.h"
#include "tests/support/seed.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class WrittenStarts : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    EngineOptions options = OptionsFor(GetParam());
    options.handle = violations_.Open(GetParam());
    options.mode = CGR_MODE_FULL_DECODE_ONLY;
    engine_ = std::make_unique<Engine>(options);
  }
  // A word of query_start_loc is written at the end of `record`, in each step from now on. What else is in the step reads it, so
  // that it is a token of the step.
  void WriteFrom(int32_t index, int32_t value) {
    int32_t *from = static_cast<int32_t *>(engine_->Alloc(sizeof value));
    engine_->Write(from, &value, sizeof value);
    engine_->hook = [this, index, from](cgr_recorder *, const cgr_record_info &info, int32_t at) {
      if (at != engine_->state.num_layers)
        return CGR_OK;
      int32_t *starts = static_cast<int32_t *>(engine_->View(CGR_BUFFER_QUERY_START_LOC).data);
      return cgr_copy(engine_->dev, starts + index, from, sizeof *starts, info.stream);
    };
  }
  Violations violations_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(WrittenStarts, AreNamed) {
  struct Case {
    int32_t index, value;
  };
  for (const Case &c : { Case{ 0, 1 }, Case{ 1, 2 }, Case{ 1, 3 }, Case{ 2, 3 }, Case{ 3, 2 } }) {
    SCOPED_TRACE("word " + std::to_string(c.index) + " is " + std::to_string(c.value));
    engine_.reset();
    SetUp();
    WriteFrom(c.index, c.value);
    CGR_ASSERT_OK(engine_->Capture());
    engine_->check_outputs = false;
    std::vector<int32_t> rows = { engine_->Open(), engine_->Open(), engine_->Open() };
    const size_t before = violations_.size();
    for (int n = 0; n < 3; n++) {
      CGR_ASSERT_OK(engine_->Prepare(engine_->Chunks({ { rows[0], 1 }, { rows[1], 1 }, { rows[2], 1 } })));
      CGR_ASSERT_OK(engine_->Launch());
      (void)cgr_step_wait(engine_->rt, engine_->step.mark, -1, nullptr); // the guard of the next step may find it too
    }
    ASSERT_GT(violations_.size(), before);
    const std::string message = violations_.All().back();
    for (const char *word : { "query_start_loc[", "after step", "expected" })
      EXPECT_NE(message.find(word), std::string::npos) << message;
    engine_->hook = nullptr;
    engine_->guard_errors = engine_->Stats().guard_errors;
    engine_->Forget();
  }
}

TEST_P(WrittenStarts, NoneAreNamedInRightSteps) {
  CGR_ASSERT_OK(engine_->Capture());
  std::vector<int32_t> rows = { engine_->Open(), engine_->Open(), engine_->Open() };
  const size_t before = violations_.size();
  Random random(Seed());
  for (int n = 0; n < 40; n++) {
    std::vector<std::pair<int32_t, int32_t>> chunks;
    for (int32_t row : rows)
      if (!random.OneIn(4))
        chunks.push_back({ row, random.OneIn(3) ? random.Pick32(2, 3) : 1 });
    engine_->Step(engine_->Chunks(chunks));
  }
  EXPECT_EQ(violations_.size(), before);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(WrittenStarts);

} // namespace
} // namespace cgr_test

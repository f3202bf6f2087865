// A kernel that writes query_start_loc itself is named over the validation layer, whatever it writes; steps that leave it alone
// are not.
#include "tests/support/engine_case.h"
#include "tests/support/seed.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class WrittenStarts : public EngineTest {
protected:
  enum { kDepth = 4 };
  void SetUpOnDevice() override {
    EngineOptions options =
        OptionsFor(GetParam(), CGR_MODE_FULL_DECODE_ONLY, {}, [](cgr_config *config) { config->ring_depth = kDepth; });
    options.handle = violations_.Open(GetParam());
    engine_ = std::make_unique<Engine>(options);
  }
  // A word of query_start_loc is written at the end of `record`, in each step from now on. What else is in the step reads it, so
  // that it is a token of the step.
  void WriteFrom(int32_t index, int32_t value) {
    from_ = static_cast<int32_t *>(engine_->Alloc(sizeof value));
    Change(value);
    engine_->hook = [this, index](cgr_recorder *, const cgr_record_info &info, int32_t at) {
      if (at != engine_->state.num_layers)
        return CGR_OK;
      int32_t *starts = static_cast<int32_t *>(engine_->View(CGR_BUFFER_QUERY_START_LOC).data);
      return cgr_copy(engine_->dev, starts + index, from_, sizeof *starts, info.stream);
    };
  }
  // What is written from now on. Steps in flight have ended by then, but cgr_step_wait has not looked.
  void Change(int32_t value) { engine_->Write(from_, &value, sizeof value); }
  Violations violations_;
  int32_t *from_ = nullptr;
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

// The copy after the first step stays until something waits. By then more steps have run, one of which a guard has refused for
// the word that the step before it has written. The first step is named if it was the one that wrote, and only as long as its
// result is kept, which says what its own guards found.
TEST_P(WrittenStarts, AreNamedLate) {
  for (int late = 1; late <= kDepth + 1; late++)
    for (int writer : { 0, 1 }) {
      SCOPED_TRACE(std::to_string(late) + " steps later, written by step " + std::to_string(writer));
      engine_.reset();
      SetUp();
      WriteFrom(1, 1);
      CGR_ASSERT_OK(engine_->Capture());
      engine_->check_outputs = false;
      const std::vector<int32_t> rows = { engine_->Open(), engine_->Open(), engine_->Open() };
      const size_t before = violations_.size();
      std::vector<uint64_t> seqs;
      for (int n = 0; n <= late; n++) {
        Change(n == writer ? 2 : 1);
        CGR_ASSERT_OK(engine_->Prepare(engine_->Chunks({ { rows[0], 1 }, { rows[1], 1 }, { rows[2], 1 } })));
        CGR_ASSERT_OK(engine_->Launch());
        seqs.push_back(engine_->launched);
      }
      engine_->Sync();
      EXPECT_EQ(violations_.size(), before) << "nothing has waited";
      const bool is_guarded = late > writer && late - writer - 1 < kDepth;
      (void)cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seqs.back() }, -1, nullptr);
      if (writer == 0 && late < kDepth) {
        ASSERT_EQ(violations_.size(), before + 1);
        const std::string message = violations_.Last(), step = "query_start_loc[1] was 2 after step " + std::to_string(seqs[0]);
        EXPECT_NE(message.find(step), std::string::npos) << message;
      } else {
        EXPECT_EQ(violations_.size(), before);
      }
      if (is_guarded) {
        engine_->ExpectGuarded(seqs[size_t(writer) + 1], CGR_GUARD_COUNT);
      }
      engine_->hook = nullptr;
      engine_->guard_errors = engine_->Stats().guard_errors;
      engine_->Forget();
    }
}

// A copy that nothing has looked at ends with the runtime.
TEST_P(WrittenStarts, AreNotNamedByDestroy) {
  WriteFrom(1, 1);
  CGR_ASSERT_OK(engine_->Capture());
  engine_->check_outputs = false;
  const std::vector<int32_t> rows = { engine_->Open(), engine_->Open(), engine_->Open() };
  const size_t before = violations_.size();
  for (int n = 0; n < 3; n++) {
    Change(n == 0 ? 2 : 1);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Chunks({ { rows[0], 1 }, { rows[1], 1 }, { rows[2], 1 } })));
    CGR_ASSERT_OK(engine_->Launch());
  }
  engine_->leave_in_flight = true;
  engine_.reset();
  EXPECT_EQ(violations_.size(), before) << violations_.Last();
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

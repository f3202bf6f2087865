// The fetch of the next step's ring slot: what it takes into the inbox, and what it leaves alone.
#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

class KernelFetch : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_fetch }); }
};

StepLimits Limits() {
  StepLimits limits;
  limits.max_requests = 3000;
  limits.max_rows = 3000;
  limits.max_tokens = 40000;
  limits.max_changes = 5000;
  return limits;
}

// A step of `n` requests with two tokens each.
StagedStep MakeStep(StepPair *pair, int32_t n, int32_t changes) {
  Words rows(static_cast<size_t>(n)), lens(static_cast<size_t>(n), 2);
  std::iota(rows.begin(), rows.end(), 0);
  StagedStep step = pair->Step(rows, lens, n, 2 * n);
  for (int32_t c = 0; c < changes; c++)
    AddChange(&step, CGR__CHANGE_COMPUTED, c, 0, 7 * c);
  step.staged = 5;
  return step;
}

// Bytes [at, at + count) of the inbox are those of the ring slot, or, unless `same`, what they were before.
void ExpectSection(StepPair *pair, const unsigned char *slot, const StepBuffers &before, int64_t at, int64_t count, bool same) {
  const unsigned char *expected = same ? slot + at : before.inbox_bytes() + at;
  EXPECT_EQ(std::memcmp(pair->model.b.inbox_bytes() + at, expected, static_cast<size_t>(count)), 0)
      << count << " bytes at " << at << (same ? " are not the slot's" : " were written");
}

// Each section is taken if the header names it, and otherwise left alone.
TEST_P(KernelFetch, TakesWhatTheHeaderNames) {
  for (int parts = 0; parts < 16; parts++) {
    for (int32_t n : { 0, 1, 5, 342, 3000 }) {
      SCOPED_TRACE(std::to_string(parts) + " of " + std::to_string(n));
      StepPair pair(*bench_, Limits());
      StagedStep step = MakeStep(&pair, n, parts & 4 ? n : 0);
      step.with_batch = parts & 1;
      step.with_tokens = parts & 2;
      for (int32_t i = 0; parts & 8 && i < n; i++)
        AddEdit(&step, n - 1 - i, 0, i, 2, 2 * i);
      step.with_edits = parts & 8;
      unsigned char *slot = pair.device.slot(step.seq);
      WriteSlot(pair.device.slot_layout(), step, slot);
      const StepBuffers before = pair.model.b;
      const cgr__ring_slot_layout &layout = pair.device.slot_layout();
      ASSERT_TRUE(pair.Fetch());
      ExpectSection(&pair, slot, before, 0, sizeof(cgr__ring_slot_header), true);
      ExpectSection(&pair, slot, before, layout.batch, 4 * (3 * n + 1), step.with_batch);
      ExpectSection(&pair, slot, before, layout.tokens, 4 * 2 * n, step.with_tokens || step.with_edits);
      ExpectSection(&pair, slot, before, layout.edits, 16 * n, step.with_edits);
      ExpectSection(&pair, slot, before, layout.changes, 16 * n, true);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// A ring slot that is not the next step's, or that names more than it holds, leaves every byte of the inbox as it was.
TEST_P(KernelFetch, LeavesOtherSlotsAlone) {
  const std::vector<std::function<void(StagedStep *)>> others = {
    [](StagedStep *s) { s->seq--; },
    [](StagedStep *s) { s->seq++; },
    [](StagedStep *s) { s->seq += uint64_t{ 1 } << 32; },
    [](StagedStep *s) { s->seq = 0; },
    [](StagedStep *s) { s->num_requests = 3001; },
    [](StagedStep *s) { s->num_requests = -1; },
    [](StagedStep *s) { s->num_tokens = 40001; },
    [](StagedStep *s) { s->num_tokens = INT32_MIN; },
    [](StagedStep *s) { s->num_changes = 5001; },
    [](StagedStep *s) { s->num_changes = -1; },
    [](StagedStep *s) { s->num_edits = 3001; },
    [](StagedStep *s) { s->num_edits = -1; },
    [](StagedStep *s) { s->num_ids = 40001; },
    [](StagedStep *s) { s->num_ids = -1; },
  };
  for (size_t i = 0; i < others.size(); i++) {
    SCOPED_TRACE(i);
    StepPair pair(*bench_, Limits());
    StagedStep step = MakeStep(&pair, 6, 6);
    others[i](&step);
    WriteSlot(pair.device.slot_layout(), step, pair.device.slot(pair.NextSeq()));
    const StepBuffers before = pair.model.b;
    EXPECT_FALSE(pair.Fetch());
    ExpectBuffers(pair.device.Get(), before);
  }
}

// The ring slot is found by its number, at every depth of the ring.
TEST_P(KernelFetch, FindsTheSlotOfTheNextStep) {
  for (int32_t depth = 2; depth <= 9; depth++) {
    for (uint64_t seq = 20; seq < 30; seq++) {
      StepLimits limits;
      limits.ring_depth = depth;
      StepPair pair(*bench_, limits, StepModel(limits, seq));
      StagedStep step = MakeStep(&pair, 3, 2);
      WriteSlot(pair.device.slot_layout(), step, pair.device.slot(step.seq));
      EXPECT_TRUE(pair.Fetch()) << "depth " << depth << " step " << step.seq;
    }
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelFetch);

} // namespace
} // namespace cgr_test

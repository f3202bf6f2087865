// Under each guard of the prologue a step is refused as a whole, or loses one thing; the next good step is right.
#include <functional>

#include "tests/kernels/prologue_case.h"

namespace cgr_test {
namespace {

struct Guard {
  const char *name;
  cgr__step_error expected;
  std::function<void(StagedStep *)> corrupt;
};

constexpr int64_t kFar = int64_t{ 1 } << 32;

cgr__step_error Sequence(int32_t index, int64_t value) { return { CGR_GUARD_SEQUENCE, -1, index, 0, value }; }
cgr__step_error Count(int32_t index, int64_t value) { return { CGR_GUARD_COUNT, -1, index, 0, value }; }
cgr__step_error Row(int32_t index, int64_t value) { return { CGR_GUARD_ROW, -1, index, 0, value }; }
cgr__step_error Length(int32_t row, int32_t index, int64_t value) { return { CGR_GUARD_LENGTH, row, index, 0, value }; }
cgr__step_error Change(int32_t index, int64_t value) { return { CGR_GUARD_CHANGE, -1, index, 0, value }; }
cgr__step_error Page(int32_t row, int32_t index, int64_t value) { return { CGR_GUARD_PAGE, row, index, 0, value }; }

// clang-format off
// Steps that are refused as a whole (P4 to P8, P10). The good one is step 2: rows 3, 5, 2 with 1, 16, 2 tokens, padded to 6 and 30.
std::vector<Guard> GuardsOfSteps() {
  return {
    { "old slot", Sequence(0, 1), [](StagedStep *s) { s->seq--; } },
    { "later slot", Sequence(0, 5), [](StagedStep *s) { s->seq += 3; } },
    { "slot far ahead", Sequence(0, kFar + 2), [](StagedStep *s) { s->seq += kFar; } },
    { "later generation", Sequence(2, 1), [](StagedStep *s) { s->generation++; } },
    { "generation far ahead", Sequence(2, kFar), [](StagedStep *s) { s->generation += kFar; } },
    { "requests above the bucket", Count(0, 3), [](StagedStep *s) { s->padded_requests = 2; } },
    { "requests above the limit", Count(0, 9), [](StagedStep *s) { s->num_requests = 9; s->padded_requests = 10; } },
    { "requests far above", Count(0, INT32_MAX), [](StagedStep *s) { s->num_requests = INT32_MAX; } },
    { "negative requests", Count(0, -1), [](StagedStep *s) { s->num_requests = -1; } },
    { "tokens above the bucket", Count(1, 19), [](StagedStep *s) { s->padded_tokens = 18; } },
    { "tokens above the limit", Count(1, 65), [](StagedStep *s) { s->num_tokens = 65; s->padded_tokens = 66; } },
    { "negative tokens", Count(1, INT32_MIN), [](StagedStep *s) { s->num_tokens = INT32_MIN; } },
    { "other batch", Sequence(1, 99), [](StagedStep *s) { s->with_batch = false; s->batch_seq = 99; } },
    { "batch far ahead", Sequence(1, kFar + 1), [](StagedStep *s) { s->with_batch = false; s->batch_seq = kFar + 1; } },
    { "no batch", Sequence(1, 0), [](StagedStep *s) { s->with_batch = false; s->batch_seq = 0; } },
    { "start not 0", Count(2, 1), [](StagedStep *s) { s->starts[0] = 1; } },
    { "start below 0", Count(2, -1), [](StagedStep *s) { s->starts[0] = -1; } },
    { "starts decrease", Count(4, 0), [](StagedStep *s) { s->starts[2] = 0; } },
    { "a request longer than there may be", Count(4, 17), [](StagedStep *s) { s->max_query_len = 15; } },
    { "longer with room to overflow", Count(4, INT32_MAX), [](StagedStep *s) { s->starts[2] = INT32_MAX, s->max_query_len = 16; } },
    { "starts end early", Count(5, 18), [](StagedStep *s) { s->starts[3] = 18; } },
    { "starts end late", Count(5, 1 << 30), [](StagedStep *s) { s->starts[3] = 1 << 30; } },
    { "number before generation", Sequence(0, 3), [](StagedStep *s) { s->seq++; s->generation++; s->num_requests = -1; } },
    { "generation before counts", Sequence(2, 1), [](StagedStep *s) { s->generation++; s->num_requests = -1; } },
    { "counts before batch layout", Count(1, -1),
      [](StagedStep *s) { s->num_tokens = -1; s->with_batch = false; s->batch_seq = 0; } },
  };
}

// What is refused within a step that runs (P11 to P17, P22).
std::vector<Guard> GuardsWithinSteps() {
  return {
    { "row M", Row(1, 12), [](StagedStep *s) { s->rows[1] = 12; } },
    { "row after M", Row(1, 13), [](StagedStep *s) { s->rows[1] = 13; } },
    { "row negative", Row(0, -1), [](StagedStep *s) { s->rows[0] = -1; } },
    { "row far", Row(2, INT32_MIN), [](StagedStep *s) { s->rows[2] = INT32_MIN; } },
    { "too long", Length(3, 0, 301), [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 3, 0, 300); } },
    { "far too long", Length(5, 1, int64_t{ INT32_MAX } + 16),
      [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 5, 0, INT32_MAX); } },
    { "negative length", Length(5, 1, 11), [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 5, 0, -5); } },
    { "changes above the limit", Change(-1, 33), [](StagedStep *s) { s->num_changes = 33; } },
    { "changes negative", Change(-1, -1), [](StagedStep *s) { s->num_changes = -1; } },
    { "unknown change", Change(0, 4), [](StagedStep *s) { AddChange(s, 4, 0, 0, 0); } },
    { "data of no buffer", Change(0, 3), [](StagedStep *s) { AddChange(s, 3, 0, 0, 0); } },
    { "data of row M", Change(0, kDataChange), [](StagedStep *s) { AddChange(s, kDataChange, 12, 0, 9); } },
    { "data of row -1", Change(0, kDataChange), [](StagedStep *s) { AddChange(s, kDataChange, -1, 0, 9); } },
    { "word above the row", Change(0, kDataChange), [](StagedStep *s) { AddChange(s, kDataChange, 3, 3, 9); } },
    { "word negative", Change(0, kDataChange), [](StagedStep *s) { AddChange(s, kDataChange, 3, -1, 9); } },
    { "data of a buffer above the limit", Change(0, 0x4003), [](StagedStep *s) { AddChange(s, 0x4003, 0, 0, 0); } },
    { "change of nothing", Change(0, 0), [](StagedStep *s) { AddChange(s, 0, 0, 0, 0); } },
    { "computed of a group", Change(0, 258), [](StagedStep *s) { AddChange(s, 258, 0, 0, 0); } },
    { "group at limit", Change(0, 0x201), [](StagedStep *s) { AddChange(s, 0x201, 0, 0, 9); } },
    { "group far", Change(0, -255), [](StagedStep *s) { AddChange(s, -255, 0, 0, 9); } },
    { "length of row M", Change(0, 2), [](StagedStep *s) { AddChange(s, 2, 12, 0, 9); } },
    { "page of row M", Change(0, 1), [](StagedStep *s) { AddChange(s, 1, 12, 0, 9); } },
    { "length of row -1", Change(0, 2), [](StagedStep *s) { AddChange(s, 2, -1, 0, 9); } },
    { "page of row -1", Change(0, 1), [](StagedStep *s) { AddChange(s, 1, -1, 0, 9); } },
    { "index at stride", Change(0, 1), [](StagedStep *s) { AddChange(s, 1, 3, 20, 9); } },
    { "index at stride of group 1", Change(0, 257), [](StagedStep *s) { AddChange(s, 257, 3, 5, 9); } },
    { "index negative", Change(0, 1), [](StagedStep *s) { AddChange(s, 1, 3, -1, 9); } },
    { "page at limit", Page(4, 6, 100), [](StagedStep *s) { AddChange(s, 1, 4, 6, 100); } },
    { "page at limit of group 1", Page(4, 3, 30), [](StagedStep *s) { AddChange(s, 257, 4, 3, 30); } },
    { "page negative", Page(4, 6, -1), [](StagedStep *s) { AddChange(s, 1, 4, 6, -1); } },
    { "write trash", Page(4, 6, 1), [](StagedStep *s) { AddChange(s, 1, 4, 6, 1); } },
    { "write trash of group 1", Page(4, 3, 0), [](StagedStep *s) { AddChange(s, 257, 4, 3, 0); } },
    { "page in use", Page(3, 2, -9), [](StagedStep *s) { AddChange(s, 1, 3, 2, -9); } },
    { "no page", Page(3, 2, 0), [](StagedStep *s) { AddChange(s, 1, 3, 2, 0); } },
  };
}
// clang-format on

// A corrupted step, then a good one, which must be right. `lost`: what the step carried is gone.
void CheckGuard(StepPair *pair, const Guard &guard, bool lost) {
  SCOPED_TRACE(guard.name);
  StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 16, 2 }, 6, 30);
  step.tokens[0] = CGR_TOKEN_LAST;
  guard.corrupt(&step);
  if (step.num_changes == 1)
    AddChange(&step, CGR__CHANGE_COMPUTED, 9, 0, 99); // applied all the same, if the step runs
  pair->PrologueAndEpilogue(step);
  ExpectError(pair->error(), guard.expected);
  EXPECT_EQ(pair->device.completion()->errors, 1u);
  EXPECT_EQ(pair->device.completion()->generation, lost ? 1u : 0u);
  pair->PrologueAndEpilogue(pair->Step({ 2, 7 }, { 1, 0 }, 6, 30));
  ExpectError(pair->error(), kNoError);
}

TEST_P(KernelPrologue, EachGuardOfAStepRefusesItAsAWhole) {
  StepLimits limits = TwoGroups();
  limits.spare = 4;
  for (int i = 0; i < 2 * int(GuardsOfSteps().size()); i++) {
    const Guard guard = GuardsOfSteps()[size_t(i / 2)];
    auto pair = Prepared(limits);
    pair->fetches = i % 2 != 0;
    // A refusal that follows from an earlier loss was counted with that loss.
    CheckGuard(pair.get(), guard, guard.expected.error == CGR_GUARD_COUNT || guard.expected.index != 2);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(KernelPrologue, EachGuardWithinAStepRefusesOneThing) {
  for (int i = 0; i < 2 * int(GuardsWithinSteps().size()); i++) {
    const Guard guard = GuardsWithinSteps()[size_t(i / 2)];
    auto pair = Prepared(TwoGroups());
    pair->fetches = i % 2 != 0;
    CheckGuard(pair.get(), guard, guard.expected.error == CGR_GUARD_CHANGE); // a bad page or row loses nothing
    ASSERT_FALSE(HasFailure());
  }
}

// The first place where query_start_loc is wrong is reported, wherever it is and whatever is wrong after it.
TEST_P(KernelPrologue, ReportsTheFirstBadStart) {
  StepLimits limits = LargestLimits();
  StepPair pair(*bench_, limits);
  Words rows(4096), lens(4096, 2);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<Words> places = {
    { 1023 },       { 1024 },       { 1025 },       { 1100 },    { 2500 },       { 4095 },
    { 1100, 3000 }, { 3000, 1100 }, { 2047, 2048 }, { 1, 4000 }, { 1030, 2054 }, { 2054, 1031 }
  };
  for (const Words &bad : places) {
    SCOPED_TRACE(::testing::PrintToString(bad));
    StagedStep step = pair.Step(rows, lens, 4096, limits.max_tokens);
    for (int32_t at : bad)
      step.starts[at] = step.starts[at - 1] - 1;
    int32_t first = *std::min_element(bad.begin(), bad.end());
    AddChange(&step, CGR__CHANGE_COMPUTED, 7, 0, 99); // must not be applied
    pair.PrologueAndEpilogue(step);
    ExpectError(pair.error(), Count(2 + first, step.starts[first]));
    ASSERT_FALSE(HasFailure());
  }
  pair.PrologueAndEpilogue(pair.Step(rows, Words(4096, 0), 4096, 4096));
  ExpectError(pair.error(), kNoError);
}

// A position for which the row's table has no index, of the library's table and of an engine's.
TEST_P(KernelPrologue, RefusesPositionsAfterTheTable) {
  for (int32_t engine_table : { 0, 1 }) {
    StepLimits limits;
    limits.max_seq_len = 1000; // 20 pages of 16 hold 320
    limits.groups[0].engine_table = engine_table;
    StepModel first(limits);
    std::fill_n(first.b->group[0].page_table, 13 * 20, 50);
    StepPair pair(*bench_, limits, first);
    StagedStep step = pair.Step({ 4, 6 }, { 1, 3 }, 4, 8);
    AddChange(&step, CGR__CHANGE_COMPUTED, 4, 0, 320);
    AddChange(&step, CGR__CHANGE_COMPUTED, 6, 0, 317);
    pair.PrologueAndEpilogue(step);
    ExpectError(pair.error(), Page(4, 20, -1));
  }
}

// ------------------------------------------------------------------------------------------------------ losses and batches

// After a loss every header of the old generation is refused and changes nothing; the generation counts losses, not refusals.
TEST_P(KernelPrologue, RefusesStepsPreparedBeforeALoss) {
  auto pair = Prepared(StepLimits());
  for (uint64_t loss = 1; loss <= 3; loss++) {
    SCOPED_TRACE(loss);
    StagedStep bad = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
    AddChange(&bad, CGR__CHANGE_PAGE, 3, 20, 9); // no such index: the change is dropped, the step runs
    pair->PrologueAndEpilogue(bad);
    EXPECT_EQ(pair->error().error, CGR_GUARD_CHANGE);
    for (int s = 0; s < 2; s++) {
      StagedStep after = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
      after.generation = loss - 1;
      AddChange(&after, CGR__CHANGE_COMPUTED, 5, 0, 77);
      pair->PrologueAndEpilogue(after);
      ExpectError(pair->error(), Sequence(2, int64_t(loss) - 1));
      EXPECT_EQ(pair->num_requests(), 0);
      EXPECT_EQ(pair->device.completion()->generation, loss);
    }
    pair->PrologueAndEpilogue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
    ExpectError(pair->error(), kNoError);
  }
}

// A refused step leaves no batch that a later one could use under any name: 0, which the device uses, is not a name.
TEST_P(KernelPrologue, NoBatchIsLeftAfterARefusal) {
  for (bool named : { true, false }) {
    SCOPED_TRACE(named);
    auto pair = Prepared(StepLimits());
    pair->PrologueAndEpilogue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
    uint64_t batch_seq = named ? pair->model.b.state().batch_seq : 0;
    StagedStep bad = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
    bad.seq += 1;
    pair->PrologueAndEpilogue(bad);
    for (int s = 0; s < 2; s++) { // and the step that was refused for it leaves none either
      StagedStep unchanged = pair->Unchanged(2, 2, 4, 4);
      unchanged.batch_seq = batch_seq;
      pair->PrologueAndEpilogue(unchanged);
      ExpectError(pair->error(), Sequence(1, int64_t(batch_seq)));
      EXPECT_EQ(pair->num_requests(), 0);
    }
  }
}

// The same before any batch has come at all.
TEST_P(KernelPrologue, NoBatchIsThereAtFirst) {
  StepPair pair(*bench_, StepLimits());
  pair.PrologueAndEpilogue(pair.Unchanged(0, 0, 2, 2));
  ExpectError(pair.error(), Sequence(1, 0));
}

// A row's state does not suit a decode: this is reported in every step, also if the ring slot is fetched ahead.
TEST_P(KernelPrologue, UnchangedDecodesAreGuarded) {
  const struct {
    const char *name;
    int32_t kind, row, index, value;
    cgr__step_error expected;
  } cases[] = {
    { "page of no row", CGR__CHANGE_PAGE, 3, 2, 0, Page(3, 2, 0) },
    { "too long", CGR__CHANGE_COMPUTED, 3, 0, 300, Length(3, 0, 301) },
    { "negative", CGR__CHANGE_COMPUTED, 5, 0, -4, Length(5, 1, -3) },
  };
  for (int i = 0; i < 6; i++) {
    const auto &c = cases[i / 2];
    SCOPED_TRACE(c.name);
    auto pair = Prepared(StepLimits());
    pair->fetches = i % 2 != 0;
    StagedStep first = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
    AddChange(&first, c.kind, c.row, c.index, c.value);
    pair->PrologueAndEpilogue(first);
    ExpectError(pair->error(), c.expected);
    for (int s = 0; s < 2; s++) {
      pair->PrologueAndEpilogue(pair->Unchanged(2, 2, 4, 4));
      ExpectError(pair->error(), c.expected);
    }
  }
}

// The same for what a ring slot carries: an unchanged batch, and one bad change among good ones.
TEST_P(KernelPrologue, ChangesOfUnchangedDecodesAreGuarded) {
  for (const Guard &guard : GuardsWithinSteps()) {
    if (guard.expected.error != CGR_GUARD_CHANGE && guard.expected.error != CGR_GUARD_PAGE)
      continue; // of batch layouts
    SCOPED_TRACE(guard.name);
    auto pair = Prepared(TwoGroups());
    pair->fetches = true;
    pair->PrologueAndEpilogue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
    StagedStep step = pair->Unchanged(2, 2, 4, 4);
    guard.corrupt(&step);
    if (step.num_changes == 1) {
      AddChange(&step, CGR__CHANGE_COMPUTED, 9, 0, 99);
      AddChange(&step, kDataChange, 7, 1, 5);
    }
    pair->PrologueAndEpilogue(step);
    EXPECT_EQ(pair->error().error, guard.expected.error);
    EXPECT_EQ(pair->num_requests(), 2);
    pair->PrologueAndEpilogue(pair->Step({ 2, 7 }, { 1, 0 }, 6, 30));
    ExpectError(pair->error(), kNoError);
    ASSERT_FALSE(HasFailure());
  }
}

// An unchanged batch with a bad row is refused each time, not once.
TEST_P(KernelPrologue, BadRowStaysBad) {
  auto pair = Prepared(StepLimits());
  for (int32_t row : { 500, 12, 500 }) {
    pair->fetches = row == 500 && pair->model.b.state().seq > 3;
    pair->PrologueAndEpilogue(pair->Step({ 3, row }, { 1, 1 }, 4, 4));
    for (int s = 0; s < 3; s++) {
      pair->PrologueAndEpilogue(pair->Unchanged(2, 2, 4, 4));
      ExpectError(pair->error(), Row(1, row));
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- empty steps

// P2. An empty step looks at nothing in its ring slot, whether a good step is there or none at all; it writes padding and leaves
// no batch.
TEST_P(KernelPrologue, EmptyStepReadsNothingOfTheSlot) {
  for (bool with_staging : { true, false }) {
    for (bool good_slot : { true, false }) {
      SCOPED_TRACE(std::to_string(with_staging) + std::to_string(good_slot));
      StepLimits limits = TwoGroups();
      auto pair = Prepared(limits);
      pair->PrologueAndEpilogue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4)); // leaves a batch
      unsigned char *slot = pair->device.slot(pair->NextSeq());
      std::memset(slot, 0x5a, size_t(pair->device.slot_layout().stride));
      StagedStep good = pair->Step({ 2, 5, 3 }, { 1, 2, 3 }, 6, 30);
      AddChange(&good, CGR__CHANGE_COMPUTED, 5, 0, 77);
      if (good_slot)
        WriteSlot(pair->device.slot_layout(), good, slot);
      pair->EmptyPrologue(6, 30, with_staging);
      ExpectError(pair->error(), kNoError);
      EXPECT_EQ(First(pair->device.Get()->counts, 4), (Words{ 0, 0, 6, 30 }));
      pair->Epilogue();
      EXPECT_EQ(pair->device.completion()->generation, 0u) << "nothing was lost";
      StagedStep unchanged = pair->Unchanged(2, 2, 4, 4);
      unchanged.batch_seq = pair->NextSeq() - 2;
      pair->PrologueAndEpilogue(unchanged);
      ExpectError(pair->error(), Sequence(1, int64_t(unchanged.batch_seq)));
    }
  }
}

// A whole ring of empty steps, after a loss too, and then a good one.
TEST_P(KernelPrologue, EmptyStepsPassTheirNumbersOn) {
  auto pair = Prepared(StepLimits());
  StagedStep bad = pair->Step({ 3 }, { 1 }, 4, 4);
  bad.seq = 77;
  pair->PrologueAndEpilogue(bad);
  for (int s = 0; s < 4; s++) {
    pair->EmptyPrologue(s % 2 == 0 ? 1 : 8, s % 2 == 0 ? 1 : 64, true);
    pair->Epilogue();
  }
  pair->PrologueAndEpilogue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
  ExpectError(pair->error(), kNoError);
  EXPECT_EQ(pair->device.completion()->generation, 1u);
}

// ---------------------------------------------------------------------------------------------------------- engine's tables

// An engine's table is read with the same guards and never written.
TEST_P(KernelPrologue, EngineTableIsGuardedAndNeverWritten) {
  StepLimits limits;
  limits.groups[0].engine_table = 1;
  for (int32_t page : { 9, -1, 100, 1, 0, INT32_MAX, INT32_MIN }) {
    SCOPED_TRACE(page);
    StepModel first(limits);
    std::fill_n(first.b->group[0].page_table, 13 * 20, 50);
    first.b->group[0].page_table[4 * 20 + 1] = page;
    StepPair pair(*bench_, limits, first);
    pair.PrologueAndEpilogue(pair.Step({ 4, 6 }, { 20, 3 }, 4, 30));
    ExpectError(pair.error(), page == 9 ? kNoError : Page(4, 1, page));
    StagedStep change = pair.Step({}, {}, 1, 1);
    AddChange(&change, CGR__CHANGE_PAGE, 4, 1, 10);
    pair.PrologueAndEpilogue(change);
    ExpectError(pair.error(), Change(0, CGR__CHANGE_PAGE));
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPrologue);

} // namespace
} // namespace cgr_test

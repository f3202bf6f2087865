// Rows that end at a stop token or at their length: the epilogue ends them, and every later step finds them empty.
#include "tests/support/seed.h"
#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

class KernelStops : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_prologue, &cgr__kernel_fetch, &cgr__kernel_epilogue }); }

  static StepLimits Limits(int32_t token_stride) {
    StepLimits limits = TwoGroups();
    limits.token_stride = token_stride;
    limits.stop_tokens = 3;
    limits.max_changes = 200;
    return limits;
  }
  static void AddStops(StagedStep *step, int32_t row, int32_t max_length, int32_t min_length, const Words &tokens) {
    Words words = { max_length, min_length, int32_t(tokens.size()) };
    words.insert(words.end(), tokens.begin(), tokens.end());
    for (size_t w = 0; w < words.size(); w++)
      AddChange(step, kStopsChange, row, int32_t(w), words[w]);
  }
  static void AddPages(StagedStep *step, const Words &rows) {
    for (int32_t row : rows)
      for (int32_t p = 0; p < 4; p++) {
        AddChange(step, PageChange(0), row, p, 10 + row * 4 + p);
        AddChange(step, PageChange(1), row, p, 8 + (row * 4 + p) % 20);
      }
  }
  static Words Ended(const StepPair &pair, uint64_t seq, int32_t num_requests) {
    Words ended(static_cast<size_t>(num_requests));
    std::memcpy(ended.data(), pair.device.readback(seq) + cgr__readback_ended(&pair.model.readback_slot()), ended.size() * 4);
    return ended;
  }
  static int32_t Length(const StepPair &pair, uint64_t seq, int32_t i) {
    int32_t length;
    std::memcpy(&length, pair.device.readback(seq) + cgr__readback_lengths(&pair.model.readback_slot()) + 4 * i, 4);
    return length;
  }
};

constexpr int32_t kEnded = INT32_MIN;

// By hand. Of requests with 3 guesses: the second of 4 tokens is a stop token; the third reaches the length; a stop token that
// comes too early does not count; and a partial chunk ends nothing.
TEST_P(KernelStops, CutWhatWasSampled) {
  const StepLimits limits = Limits(4);
  StepPair pair(*bench_, limits);
  StagedStep step = pair.Step({ 3, 5, 2, 8 }, { 10, 4, 4, 4 }, 8, 24);
  AddPages(&step, { 3, 5, 2, 8 });
  AddStops(&step, 3, 0, 0, { 900, 71 });
  AddStops(&step, 5, 4, 0, { 900 });
  AddStops(&step, 2, 0, 4, { 79, 78 });
  AddStops(&step, 8, 1, 0, { 84, 85, 86 });
  const int32_t drafts = int32_t(CGR_REQUEST_DRAFTS(3));
  step.flags = { drafts, drafts, drafts, CGR_REQUEST_PARTIAL };
  pair.Prologue(step);
  std::fill_n(pair.model.b->num_accepted, 3, 3);
  std::fill_n(pair.model.b->draft_tokens, 24, 500);
  Words tokens(32);
  std::iota(tokens.begin(), tokens.end(), 70); // request i: 70 + 4 i ..
  pair.PutNextTokens(tokens);
  pair.Epilogue();
  ExpectError(pair.error(), kNoError);
  const StepBuffers got = pair.device.Get();
  EXPECT_EQ(got->row_computed[3], kEnded + 8) << "7 of the prompt, and one guess before the stop token";
  EXPECT_EQ(got->row_computed[5], kEnded + 3);
  EXPECT_EQ(got->row_computed[2], 4) << "78 and 79 are the second and the third token of its row";
  EXPECT_EQ(got->row_computed[8], 4);
  EXPECT_EQ(First(got->row_last_tokens + 12, 2), (Words{ 71, 70 }));
  EXPECT_EQ(First(got->row_last_tokens + 20, 3), (Words{ 76, 75, 74 }));
  EXPECT_EQ((Words{ got->row_num_accepted[3], got->row_num_accepted[5], got->row_num_accepted[2] }), (Words{ 1, 2, 3 }));
  const StepResult result = ReadResult(pair, limits, 1);
  EXPECT_EQ(result.num_tokens, (Words{ 2, 3, 4, 0 }));
  EXPECT_EQ(Ended(pair, 1, 4), (Words{ CGR_END_STOP_TOKEN, CGR_END_LENGTH, CGR_END_NONE, CGR_END_NONE }));
  EXPECT_EQ((Words{ Length(pair, 1, 0), Length(pair, 1, 1), result.record.ended }), (Words{ 8, 3, 1 }));
}

// Whatever its next steps would have done, in decodes that repeat and in batches of all kinds.
TEST_P(KernelStops, EmptyTheStepsAfterIt) {
  for (bool fetches : { false, true }) {
    const StepLimits limits = Limits(1);
    StepPair pair(*bench_, limits);
    pair.fetches = fetches;
    StagedStep step = pair.Step({ 3, 5 }, { 4, 2 }, 4, 8);
    AddPages(&step, { 3, 5 });
    AddStops(&step, 5, 0, 0, { 71 });
    pair.Prologue(step);
    pair.PutNextTokens({ 70, 71, 0, 0, 0, 0, 0, 0 });
    pair.Epilogue();
    EXPECT_EQ(ReadResult(pair, limits, 1).num_tokens, (Words{ 1, 1 }));
    StagedStep next = pair.Step({ 3, 5 }, { 1, 1 }, 4, 4);
    next.with_tokens = false;
    pair.Prologue(next);
    for (int round = 0; round < 2; round++) {
      const StepBuffers got = pair.device.Get();
      EXPECT_EQ(First(got->seq_lens[0], 4), (Words{ 5 + round, 0, 0, 0 }));
      EXPECT_EQ(First(got->input_ids, 2), (Words{ 70, 0 }));
      EXPECT_EQ(First(got->positions, 2), (Words{ 4 + round, 0 }));
      EXPECT_EQ(got->group[0].slot_mapping[1], -1);
      EXPECT_EQ(First(got->group[0].kv_indptr, 3), (Words{ 0, 1, 1 }));
      pair.Epilogue();
      ExpectError(pair.error(), kNoError);
      EXPECT_EQ(ReadResult(pair, limits, 2 + uint64_t(round)).num_tokens, (Words{ 1, 0 }));
      EXPECT_EQ(Ended(pair, 2 + uint64_t(round), 2), (Words{ CGR_END_NONE, CGR_END_BEFORE }));
      EXPECT_EQ(ReadResult(pair, limits, 2 + uint64_t(round)).record.ended, 0);
      EXPECT_EQ(pair.device.Get()->row_computed[5], kEnded + 2);
      pair.Prologue(pair.Unchanged(2, 2, 4, 4));
    }
    pair.Epilogue();
    StagedStep back = pair.Step({ 5, 3 }, { 1, 1 }, 4, 4); // a length that is sent brings it back
    AddChange(&back, CGR__CHANGE_COMPUTED, 5, 0, 2);
    back.with_tokens = false;
    pair.PrologueAndEpilogue(back);
    EXPECT_EQ(ReadResult(pair, limits, 5).num_tokens, (Words{ 1, 1 }));
    StagedStep again = pair.Step({ 5, 3 }, { 1, 1 }, 4, 4); // and one that says so ends it
    AddChange(&again, CGR__CHANGE_COMPUTED, 5, 0, kEnded + 2);
    pair.PrologueAndEpilogue(again);
    EXPECT_EQ(ReadResult(pair, limits, 6).num_tokens, (Words{ 0, 1 }));
  }
}

// A length that no row can have is refused as ever, whether its sign tells of an end or not.
TEST_P(KernelStops, RefuseLengthsThatNoRowHas) {
  for (int32_t length : { -1, -300, kEnded + 301, kEnded + 300 }) {
    const StepLimits limits = Limits(1);
    StepPair pair(*bench_, limits);
    StagedStep step = pair.Step({ 3 }, { 1 }, 4, 4);
    AddPages(&step, { 3 });
    AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, length);
    pair.PrologueAndEpilogue(step);
    const bool ended = length == kEnded + 300;
    EXPECT_EQ(ReadResult(pair, limits, 1).record.error, ended ? CGR_GUARD_NONE : CGR_GUARD_LENGTH) << length;
    EXPECT_EQ(Ended(pair, 1, 1)[0], ended ? CGR_END_BEFORE : CGR_END_NONE) << length;
  }
}

// The host must know which steps were refused before it believes that their rows have not ended.
TEST_P(KernelStops, TellOfLosses) {
  const StepLimits limits = Limits(1);
  StepPair pair(*bench_, limits);
  StagedStep bad = pair.Step({ 3 }, { 1 }, 4, 4);
  bad.seq = 77;
  pair.PrologueAndEpilogue(bad);
  EXPECT_EQ(ReadResult(pair, limits, 1).record.generation, 1u);
}

// Random steps of eight rows with random stops.
class RandomStops : public KernelStops {
protected:
  StagedStep Draw(StepPair &pair, int32_t stride) {
    Words rows, lens, flags;
    const bool decodes = random_.OneIn(2);
    for (int32_t row = 0, first = random_.Pick32(0, 7); row < 8; row++)
      if (!random_.OneIn(3))
        rows.push_back((first + row) % 8);
    for (size_t i = 0; i < rows.size(); i++) {
      lens.push_back(decodes ? 1 : random_.Pick32(0, 4));
      const int32_t guesses = random_.Pick32(0, std::max(std::min(stride, lens.back()) - 1, 0));
      flags.push_back(guesses > 0 ? int32_t(CGR_REQUEST_DRAFTS(guesses)) : random_.OneIn(8) ? int32_t(CGR_REQUEST_PARTIAL) : 0);
    }
    StagedStep step = pair.Step(rows, lens, 8, decodes ? 8 : 32);
    step.flags = flags;
    step.with_tokens = !decodes;
    for (int32_t row = 0; row < 8; row++)
      SetRow(pair, &step, row);
    return step;
  }
  // Rows that have ended, or are nearly full, begin again.
  void SetRow(const StepPair &pair, StagedStep *step, int32_t row) {
    const int32_t computed = StepBuffers(pair.model.b)->row_computed[row];
    if (!random_.OneIn(computed < 0 ? 4 : 10) && computed <= 50)
      return;
    Words tokens;
    for (int32_t t = random_.Pick32(0, 3); t > 0; t--)
      tokens.push_back(random_.Pick32(0, 12));
    AddChange(step, CGR__CHANGE_COMPUTED, row, 0, random_.Pick32(0, 20));
    AddStops(step, row, random_.OneIn(3) ? random_.Pick32(1, 40) : 0, random_.OneIn(2) ? random_.Pick32(0, 30) : 0, tokens);
  }
  void Sample(StepPair *pair, const StagedStep &step, int32_t stride) {
    Words tokens(size_t(8 * stride));
    for (int32_t &token : tokens)
      token = random_.Pick32(0, 25);
    for (size_t i = 0; stride > 1 && i < step.flags.size(); i++)
      pair->model.b->num_accepted[i] = random_.Pick32(0, step.flags[i] >> 8);
    pair->PutNextTokens(tokens);
  }

  SeededRandom random_;
};

// The model, which finds ends in its own way, agrees on every buffer and byte.
TEST_P(RandomStops, AgreeWithTheModel) {
  int32_t ends = 0, empty = 0;
  for (int32_t stride : { 1, 2, 4 }) {
    StepLimits limits = Limits(stride);
    limits.num_sets = stride == 2 ? 2 : 1;
    StepPair pair(*bench_, limits);
    StagedStep first = pair.Step({}, {}, 2, 2);
    AddPages(&first, { 0, 1, 2, 3, 4, 5, 6, 7 });
    pair.PrologueAndEpilogue(first);
    for (int32_t s = 0; s < 150 && !HasFailure(); s++) {
      const StagedStep step = Draw(pair, stride);
      pair.fetches = random_.OneIn(2);
      pair.Prologue(step);
      Sample(&pair, step, stride);
      pair.Epilogue();
      ExpectError(pair.error(), kNoError);
      for (int32_t end : Ended(pair, pair.NextSeq() - 1, step.num_requests)) {
        ends += end == CGR_END_STOP_TOKEN || end == CGR_END_LENGTH;
        empty += end == CGR_END_BEFORE;
      }
    }
  }
  EXPECT_GT(ends, 30);
  EXPECT_GT(empty, 100);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(RandomStops);
CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelStops);

} // namespace
} // namespace cgr_test

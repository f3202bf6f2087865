// Prologue and epilogue of steps of a draft (P26), in turn with those of its target: against the model of the contract.
#include <random>

#include "tests/kernels/prologue_case.h"

namespace cgr_test {
namespace {

enum { kMost = 3, kDraft = 1 };

// The first two groups are the target's, the third the draft's, which has a program after it.
StepLimits ThreePrograms() {
  StepLimits limits;
  limits.num_programs = 3;
  limits.token_stride = 1 + kMost;
  limits.vocab_size = 100000;
  limits.max_changes = 200;
  limits.groups = { { 16, 0, 1, 0, 100, 20, 0 }, { 64, 7, 0, 0, 30, 5, 0 }, { 32, 0, 1, 0, 60, 10, 0, 0, kDraft } };
  return limits;
}

class KernelProloguePrograms : public PrologueTest {
protected:
  // What each row has sampled last differs.
  static StepModel FirstModel(const StepLimits &limits) {
    StepModel model = WithAllPages(limits);
    for (int32_t row = 0; row < limits.max_rows; row++) {
      model.b->row_num_accepted[row] = row % (kMost + 1);
      for (int32_t j = 0; j <= kMost; j++)
        model.b->row_last_tokens[row * (kMost + 1) + j] = 100 * row + j;
    }
    return model;
  }
  static int32_t LengthChange(int32_t program) { return CGR__CHANGE_COMPUTED | program << 8; }
  static int32_t *LengthsOf(StepModel *model, const StepLimits &limits, int32_t program) {
    return model->b->row_computed + program * (limits.max_rows + 1);
  }
  // A step of the draft in which all rows follow, each with as many tokens at most.
  static StagedStep Following(StepPair *pair, const Words &rows, const Words &query_lens, int32_t requests, int32_t tokens) {
    StagedStep step = pair->Step(rows, query_lens, requests, tokens);
    step.program = kDraft;
    step.with_tokens = false;
    for (size_t i = 0; i < rows.size(); i++)
      step.flags[i] = int32_t(CGR_REQUEST_DRAFTS(query_lens[i] - 1));
    return step;
  }
};

// A few numbers computed by hand, so that the model is not the only check. Row 3 lacks 3 tokens of 4, row 7 all its 2.
TEST_P(KernelProloguePrograms, ARequestFollowsTheTarget) {
  const StepLimits limits = ThreePrograms();
  StepModel first = FirstModel(limits);
  LengthsOf(&first, limits, 0)[3] = 40, LengthsOf(&first, limits, kDraft)[3] = 38;
  LengthsOf(&first, limits, 0)[7] = 20, LengthsOf(&first, limits, kDraft)[7] = 19;
  LengthsOf(&first, limits, 2)[3] = 5;
  StepPair pair(*bench_, limits, first);
  pair.Prologue(Following(&pair, { 3, 7 }, { 4, 2 }, 3, 8));
  ExpectError(pair.error(), kNoError);
  StepBuffers b = pair.device.Get();
  EXPECT_EQ(First(b->input_ids, 8), (Words{ 302, 301, 300, 300, 701, 700, 0, 0 })) << "the oldest first, then the last again";
  EXPECT_EQ(First(b->positions, 8), (Words{ 38, 39, 40, 41, 19, 20, 0, 0 }));
  EXPECT_EQ(First(b->logits_indices, 3), (Words{ 2, 5, 0 }));
  EXPECT_EQ(First(b->num_drafts, 3), (Words{ 0, 0, 0 }));
  EXPECT_EQ(First(b->seq_lens[0], 3), (Words{ 42, 21, 0 }));
  const int64_t page = b->group[2].page_table[3 * 10 + 1];
  EXPECT_EQ(First(b->group[2].slot_mapping, 2), (std::vector<int64_t>{ page * 32 + 6, page * 32 + 7 }));
  for (int32_t i = 0; i < 8; i++)
    pair.model.b->draft_tokens[i] = 500 + i;
  pair.PutNextTokens(Words(size_t(limits.max_requests * (kMost + 1)), 99));
  pair.Epilogue();
  b = pair.device.Get();
  EXPECT_EQ(LengthsOf(&pair.model, limits, kDraft)[3], 41);
  EXPECT_EQ(b->row_computed[limits.max_rows + 1 + 3], 41);
  EXPECT_EQ(b->row_computed[limits.max_rows + 1 + 7], 21);
  EXPECT_EQ(b->row_computed[3], 40) << "the target's stays";
  EXPECT_EQ(b->row_computed[2 * (limits.max_rows + 1) + 3], 5) << "and so does that of the other draft";
  EXPECT_EQ(First(b->row_draft_tokens + 3 * kMost, kMost), (Words{ 99, 501, 502 }));
  EXPECT_EQ(b->row_last_tokens[3 * 4], 300);
  EXPECT_EQ(b->row_num_accepted[3], 3);
  EXPECT_EQ(ReadResult(pair, limits, 1).num_tokens, (Words{ 1, 1 }));
}

// Row 3 has accepted 3 guesses, row 4 none.
TEST_P(KernelProloguePrograms, WhatCannotFollowIsEmptied) {
  struct Bad {
    int32_t row, query_len, lacks;
    bool good;
  };
  for (const Bad &bad :
       { Bad{ 3, 4, 0, false }, Bad{ 3, 4, 1, true }, Bad{ 3, 4, 4, true }, Bad{ 3, 4, 5, false }, Bad{ 3, 2, 2, true },
         Bad{ 3, 2, 3, false }, Bad{ 4, 4, 1, true }, Bad{ 4, 4, 2, false }, Bad{ 3, 4, -30, false }, Bad{ 3, 4, 41, false } }) {
    SCOPED_TRACE("row " + std::to_string(bad.row) + " lacks " + std::to_string(bad.lacks) + " of " +
                 std::to_string(bad.query_len));
    const StepLimits limits = ThreePrograms();
    StepModel first = FirstModel(limits);
    LengthsOf(&first, limits, 0)[bad.row] = 40;
    LengthsOf(&first, limits, kDraft)[bad.row] = 41 - bad.lacks;
    StepPair pair(*bench_, limits, first);
    pair.Prologue(Following(&pair, { 5, bad.row }, { 3, bad.query_len }, 4, 16));
    ExpectError(pair.error(), bad.good ? kNoError : cgr__step_error{ CGR_GUARD_LENGTH, bad.row, 1, 0, bad.lacks });
    EXPECT_EQ(pair.device.Get()->seq_lens[0][0], 3);
    EXPECT_EQ(pair.device.Get()->seq_lens[0][1], bad.good ? 41 - bad.lacks + bad.query_len : 0);
    pair.Epilogue();
    EXPECT_EQ(pair.device.Get()->row_computed[limits.max_rows + 1 + bad.row], bad.good ? 41 : 41 - bad.lacks);
  }
}

TEST_P(KernelProloguePrograms, LengthsOfProgramsThatThereAreNotAreDropped) {
  const StepLimits limits = ThreePrograms();
  for (int32_t program : { 0, 1, 2, 3, 4, 1 << 20 }) {
    StepPair pair(*bench_, limits, FirstModel(limits));
    StagedStep step = pair.Step({ 3 }, { 1 }, 1, 1);
    AddChange(&step, LengthChange(program), 5, 0, 9);
    pair.Prologue(step);
    ExpectError(pair.error(), program < 3 ? kNoError : cgr__step_error{ CGR_GUARD_CHANGE, -1, 0, 0, LengthChange(program) });
    EXPECT_EQ(pair.device.Get()->row_num_accepted[5], program == 0 ? 0 : 1);
    pair.Epilogue();
  }
}

// The target's decodes take the shortest path, with its own groups alone.
TEST_P(KernelProloguePrograms, UnchangedDecodesLeaveTheGroupsOfDraftsAlone) {
  StepLimits limits = ThreePrograms();
  limits.reorder_threshold = 2;
  for (int32_t first_program : { 0, int32_t(kDraft) }) { // whose group comes first
    limits.groups[0].program = first_program == 0 ? 0 : kDraft, limits.groups[2].program = first_program == 0 ? kDraft : 0;
    StepPair pair(*bench_, limits, FirstModel(limits));
    pair.fetches = true;
    pair.PrologueAndEpilogue(pair.Step({ 3, 7, 2 }, { 1, 1, 1 }, 4, 4));
    for (int s = 0; s < 20; s++) {
      pair.PutNextTokens(Words(size_t(limits.max_requests * (kMost + 1)), 50 + s));
      pair.PrologueAndEpilogue(pair.Unchanged(3, 3, 4, 4));
      ASSERT_FALSE(HasFailure()) << "step " << s;
    }
    EXPECT_EQ(pair.device.Get()->row_computed[7], 21);
  }
}

// Steps of any program in succession; some are fetched, some unchanged, some edited, and some so long that blocks share the
// tokens.
TEST_P(KernelProloguePrograms, RandomStepsFollowTheModel) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    StepLimits limits = ThreePrograms();
    const bool shared = seed % 4 == 0; // more tokens than a block has threads
    limits.max_tokens = shared ? 5000 : 64;
    limits.max_seq_len = shared ? 320 : 300;
    limits.scattered = seed % 2 == 0;
    StepPair pair(*bench_, limits, FirstModel(limits));
    StagedStep last;
    for (int s = 0; s < 60; s++) {
      Words rows(size_t(limits.max_rows)), lens;
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random);
      rows.resize(size_t(Pick(random, shared ? limits.max_requests - 2 : 0, limits.max_requests)));
      const int32_t program = Pick(random, 0, 2);
      std::vector<bool> follows;
      for (size_t i = 0; i < rows.size(); i++) {
        follows.push_back(Pick(random, 0, 2) > 0);
        lens.push_back(follows[i] ? Pick(random, 2, kMost + 1) : shared ? Pick(random, 150, 250) : Pick(random, 0, 8));
      }
      StagedStep step = pair.Step(rows, lens, 0, 0);
      step.program = program;
      for (size_t i = 0; i < rows.size(); i++) {
        step.flags[i] = follows[i] ? int32_t(CGR_REQUEST_DRAFTS(lens[i] - 1)) : Pick(random, 0, 3) == 0 ? CGR_REQUEST_PARTIAL : 0;
        if (!follows[i] && Pick(random, 0, 5) > 0)
          continue;
        const int32_t lacks = Pick(random, 0, 9) == 0 ? Pick(random, -1, 6) : Pick(random, 1, 2);
        const int32_t target = Pick(random, 6, 40);
        AddChange(&step, LengthChange(program), rows[i], 0, program == 0 ? target : target + 1 - lacks);
        if (program > 0) {
          LengthsOf(&pair.model, limits, 0)[rows[i]] = target;
          pair.Upload();
        }
      }
      if (Pick(random, 0, 4) == 0 && s > 0 && last.num_requests > 0) { // the other program's batch again
        step = pair.Unchanged(last.num_requests, last.num_tokens, 0, 0);
        step.program = program;
      }
      if (Pick(random, 0, 5) == 0)
        step.with_tokens = false;
      step.padded_requests = Pick(random, std::max(step.num_requests, 1), limits.max_requests);
      step.padded_tokens = Pick(random, std::max(step.num_tokens, 1), limits.max_tokens);
      pair.fetches = Pick(random, 0, 1) == 1;
      pair.Prologue(step);
      last = step;
      for (int32_t i = 0; i < limits.max_requests; i++)
        pair.model.b->num_accepted[i] = pair.model.b->num_drafts[i] > 0 ? Pick(random, 0, pair.model.b->num_drafts[i]) : 0;
      for (int32_t i = 0; i < limits.max_requests * kMost; i++)
        pair.model.b->draft_tokens[i] = 1000 * (s + 1) + i;
      Words tokens(size_t(limits.max_requests * (kMost + 1)));
      std::iota(tokens.begin(), tokens.end(), 1000 * (s + 1));
      pair.PutNextTokens(tokens);
      pair.Epilogue();
      ASSERT_FALSE(HasFailure()) << "step " << s << " of program " << program;
    }
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelProloguePrograms);

} // namespace
} // namespace cgr_test

// The prologue and the edits of a standing batch (P9, P14, P23): against a plain computation of every buffer, and under each
// guard.
#include <random>

#include "tests/kernels/prologue_case.h"

namespace cgr_test {
namespace {

class KernelPrologueEdits : public PrologueTest {
protected:
  // Every row has pages and 10 tokens more than the row before; row r sampled 300 + r last.
  std::unique_ptr<StepPair> Prepared(const StepLimits &limits) {
    StepModel first(limits);
    for (int32_t row = 0; row < limits.max_rows; row++) {
      first.b->row_last_tokens[row * limits.token_stride] = 300 + row;
      first.b->row_computed[row] = 5 + row % 8 * 10;
      for (size_t g = 0; g < limits.groups.size(); g++)
        for (int32_t p = 0; p < limits.groups[g].stride; p++)
          first.b->group[g].page_table[row * limits.groups[g].stride + p] = 8 + (row * 5 + p * 3) % 20;
    }
    return std::make_unique<StepPair>(*bench_, limits, first);
  }
  // What follows the batch layout that the device has.
  static StagedStep Edited(StepPair &pair, int32_t num_requests, int32_t num_tokens, int32_t padded_requests,
                           int32_t padded_tokens) {
    StagedStep step = pair.Unchanged(num_requests, num_tokens, padded_requests, padded_tokens);
    step.with_edits = true;
    step.tokens.clear();
    return step;
  }
};

// A few numbers computed by hand, so that the model is not the only check.
TEST_P(KernelPrologueEdits, EditTheBatchLayoutThatIsThere) {
  StepLimits limits = TwoGroups();
  auto pair = Prepared(limits);
  pair->Prologue(pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40));
  pair->Epilogue(true); // the rows stay as they are, and the batch layout is there
  // Row 2 leaves, row 7 comes with three tokens and row 9 with its last one, row 5 is partial.
  StagedStep step = Edited(*pair, 4, 6, 8, 40);
  step.tokens = { 71, 72, 73 };
  AddEdit(&step, 3, 0, 9, 1, -1);
  AddEdit(&step, 2, 0, 7, 3, 0);
  AddEdit(&step, 1, CGR_REQUEST_PARTIAL, 5, 1, -1);
  const uint64_t seq = pair->NextSeq();
  pair->Prologue(step);
  StepBuffers got = pair->device.Get();
  ExpectError(pair->error(), kNoError);
  EXPECT_EQ(got.state().batch_seq, seq);
  EXPECT_EQ(First(got->counts, 6), (Words{ 4, 6, 8, 40, 4, 6 }));
  EXPECT_EQ(First(got->request_rows, 6), (Words{ 3, 5, 7, 9, 12, 12 }));
  EXPECT_EQ(First(got->request_flags, 5), (Words{ 0, 1, 0, 0, 0 }));
  EXPECT_EQ(First(got->query_start_loc, 6), (Words{ 0, 1, 2, 5, 6, 6 }));
  EXPECT_EQ(First(got->input_ids, 7), (Words{ 303, 305, 71, 72, 73, 309, 0 }));
  EXPECT_EQ(First(got->positions, 7), (Words{ 35, 55, 75, 76, 77, 15, 0 }));
  pair->Epilogue();
  // The last two leave again; the edits of the step before hold.
  step = Edited(*pair, 2, 2, 8, 40);
  pair->PrologueAndEpilogue(step);
  ExpectError(pair->error(), kNoError);
  EXPECT_EQ(First(pair->device.Get()->request_rows, 3), (Words{ 3, 5, 12 }));
  pair->PrologueAndEpilogue(pair->Unchanged(2, 2, 4, 4));
  ExpectError(pair->error(), kNoError);
}

// With a batch section the edits only say which requests have tokens.
TEST_P(KernelPrologueEdits, NameTheTokensOfABatch) {
  StepLimits limits = TwoGroups();
  auto pair = Prepared(limits);
  StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 2, 3 }, 8, 40);
  step.with_tokens = false;
  step.tokens = { 50, 60, 61, 62, CGR_TOKEN_LAST, 51 };
  AddEdit(&step, 1, 0, 5, 2, 4);
  AddEdit(&step, 2, 0, 2, 3, 1);
  pair->Prologue(step);
  ExpectError(pair->error(), kNoError);
  EXPECT_EQ(First(pair->device.Get()->input_ids, 7), (Words{ 303, 305, 51, 60, 61, 62, 0 }));
  pair->Epilogue();
  for (bool all : { false, true }) { // a tokens section that has them all serves the requests whose tokens no edit names
    step = Edited(*pair, 3, 6, 8, 40);
    step.with_tokens = all;
    step.tokens = { 9, 8, 7, 6, 5, 4 };
    AddEdit(&step, 0, 0, 3, 1, 5);
    pair->PrologueAndEpilogue(step);
    ExpectError(pair->error(), kNoError);
    EXPECT_EQ(pair->device.Get()->input_ids[0], 4);
    EXPECT_EQ(First(pair->device.Get()->input_ids, 6)[5] == 4, all);
  }
}

TEST_P(KernelPrologueEdits, ABadOneRefusesTheStep) {
  StepLimits limits = TwoGroups();
  struct Bad {
    const char *name;
    int32_t place, query_len, first_token;
  };
  const int32_t tokens = limits.max_tokens;
  for (const Bad &bad :
       { Bad{ "place", 3, 1, -1 }, Bad{ "place", 0xffff, 1, -1 }, Bad{ "length", 1, -1, -1 }, Bad{ "length", 1, INT32_MIN, 0 },
         Bad{ "token", 1, 1, -2 }, Bad{ "token", 1, 1, INT32_MIN }, Bad{ "room", 1, 1, tokens }, Bad{ "room", 1, 2, tokens - 1 },
         Bad{ "room", 1, INT32_MAX, 1 }, Bad{ "room", 1, INT32_MAX, INT32_MAX } })
    for (bool with_batch : { false, true }) {
      SCOPED_TRACE(std::string(bad.name) + " " + std::to_string(bad.query_len) + " " + std::to_string(bad.first_token));
      auto pair = Prepared(limits);
      pair->PrologueAndEpilogue(pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40));
      StagedStep step = with_batch ? pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40) : Edited(*pair, 3, 4, 8, 40);
      step.with_tokens = false;
      step.tokens.assign(size_t(tokens), 5);
      AddEdit(&step, 0, 0, 3, 1, 0);
      AddEdit(&step, bad.place, 0, 5, bad.query_len, bad.first_token);
      AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, 1);
      pair->PrologueAndEpilogue(step);
      ExpectError(pair->error(), { CGR_GUARD_CHANGE, -1, limits.max_changes + 1, 0, bad.place });
      EXPECT_EQ(pair->num_requests(), 0);
      EXPECT_EQ(pair->model.b.state().batch_seq, 0u);
      EXPECT_EQ(pair->model.b.state().generation, 1u);
      EXPECT_EQ(pair->device.Get()->row_computed[3], 36) << "no change is applied";
      pair->PrologueAndEpilogue(pair->Step({ 3, 2 }, { 1, 1 }, 8, 40));
      ExpectError(pair->error(), kNoError);
    }
}

TEST_P(KernelPrologueEdits, TooManyOrTooFewRefuseTheStep) {
  StepLimits limits = TwoGroups();
  for (int32_t count : { -1, limits.max_requests + 1, INT32_MAX, INT32_MIN }) {
    SCOPED_TRACE(count);
    auto pair = Prepared(limits);
    StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40);
    step.with_edits = true;
    step.num_edits = count;
    pair->PrologueAndEpilogue(step);
    ExpectError(pair->error(), { CGR_GUARD_CHANGE, -1, -2, 0, count });
    EXPECT_EQ(pair->num_requests(), 0);
    EXPECT_EQ(pair->model.b.state().generation, 1u);
  }
}

// Sums that do not fit, or are not what the header says; and edits of a batch layout that is not there.
TEST_P(KernelPrologueEdits, WhatTheyGiveIsChecked) {
  StepLimits limits = TwoGroups();
  auto pair = Prepared(limits);
  auto refused = [&](const cgr__edit &edit, int32_t num_tokens, const cgr__step_error &expected) {
    pair->PrologueAndEpilogue(pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40));
    StagedStep step = Edited(*pair, 3, num_tokens, 8, 40);
    step.edits = { edit };
    step.num_edits = 1;
    pair->PrologueAndEpilogue(step);
    ExpectError(pair->error(), expected);
    EXPECT_EQ(pair->num_requests(), 0);
  };
  refused({ 1, 5, 2, -1 }, 4, { CGR_GUARD_COUNT, -1, 5, 0, 5 });
  refused({ 1, 5, INT32_MAX, -1 }, 4, { CGR_GUARD_COUNT, -1, 4, 0, INT32_MIN });
  refused({ 0, 5, INT32_MAX, -1 }, 4, { CGR_GUARD_COUNT, -1, 4, 0, INT32_MIN });
  StagedStep step = Edited(*pair, 3, 4, 8, 40);
  pair->PrologueAndEpilogue(step); // after a refused one
  EXPECT_EQ(pair->error().error, CGR_GUARD_SEQUENCE);
  pair->PrologueAndEpilogue(pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40));
  step = Edited(*pair, 3, 4, 8, 40);
  step.batch_seq--;
  pair->PrologueAndEpilogue(step);
  EXPECT_EQ(pair->error().error, CGR_GUARD_SEQUENCE);
  pair->PrologueAndEpilogue(pair->Step({ 3, 5, 2 }, { 1, 1, 2 }, 8, 40));
  step = Edited(*pair, 3, 4, 8, 40);
  step.tokens = { 41 };
  AddEdit(&step, 1, 0, limits.max_rows, 1, 0);
  pair->PrologueAndEpilogue(step);
  ExpectError(pair->error(), { CGR_GUARD_ROW, -1, 1, 0, limits.max_rows });
  EXPECT_EQ(pair->num_requests(), 3) << "the others run";
  EXPECT_EQ(pair->device.Get()->input_ids[1], 0) << "its token is not taken";
}

// The batch layout after any edits is the one that a whole batch gives; at the largest limits too, where several blocks write the
// tokens.
TEST_P(KernelPrologueEdits, RandomOnes) {
  for (bool scattered : { false, true })
    for (uint64_t seed = 1; seed <= 6; seed++) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      StepLimits limits = TwoGroups();
      limits.scattered = scattered;
      if (seed == 6) {
        limits.max_requests = limits.max_rows = 3000;
        limits.max_tokens = 10000;
        limits.max_changes = 3000 * 25;
      }
      std::mt19937_64 random(seed);
      auto pair = Prepared(limits);
      Words rows, lens, flags;
      bool known = false; // the batch layout is on the device
      for (int s = 0; s < (seed == 6 ? 8 : 30); s++) {
        pair->fetches = Pick(random, 0, 1) == 1;
        const size_t before = rows.size(), n = size_t(Pick(random, 0, limits.max_requests));
        rows.resize(n);
        lens.resize(n);
        flags.resize(n);
        StagedStep step = pair->Step(rows, lens, limits.max_requests, limits.max_tokens);
        step.with_tokens = false;
        step.tokens.clear();
        for (int32_t t = 0; t < limits.max_tokens; t++)
          step.tokens.push_back(Pick(random, -1, 500));
        Words order(n);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        for (int32_t place : order) {
          const size_t i = size_t(place);
          if (i < before && Pick(random, 0, 2) > 0)
            continue;
          rows[i] = Pick(random, 0, limits.max_rows - 1);
          lens[i] = Pick(random, 0, 3);
          flags[i] = Pick(random, 0, 1);
          const int32_t first = Pick(random, -1, limits.max_tokens - lens[i]);
          AddEdit(&step, place, uint32_t(flags[i]), rows[i], lens[i], first);
        }
        step.num_tokens = std::accumulate(lens.begin(), lens.end(), 0);
        step.with_batch = !known || Pick(random, 0, 4) == 0;
        step.with_edits = true;
        if (step.with_batch) {
          step.rows = rows;
          step.flags = flags;
          step.starts.assign(1, 0);
          for (int32_t length : lens)
            step.starts.push_back(step.starts.back() + length);
        } else {
          step.batch_seq = pair->model.b.state().batch_seq;
        }
        pair->PrologueAndEpilogue(step);
        EXPECT_EQ(First(pair->device.Get()->request_rows, int(n)), rows);
        known = pair->model.b.state().batch_seq != 0;
        EXPECT_TRUE(known);
        ASSERT_FALSE(HasFailure()) << "step " << s;
      }
    }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPrologueEdits);

} // namespace
} // namespace cgr_test

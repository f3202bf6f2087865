// Prologue and epilogue when rows have lengths in several sets (P16, P24): steps of each set's tokens, against the model of the
// contract.
#include <random>

#include "tests/kernels/prologue_case.h"

namespace cgr_test {
namespace {

// Three groups of four sets; nothing has pages for set 2.
StepLimits FourSets() {
  StepLimits limits;
  limits.num_sets = 1 + kRowWords;
  limits.other_lens = { 0, 310, 270, 0 };
  limits.max_changes = 400;
  limits.reorder_threshold = 2;
  limits.groups = { { 16, 0, 1, 0, 100, 20, 1 }, { 64, 7, 0, 0, 30, 5, 0 }, { 32, 0, 1, 0, 60, 10, 3 } };
  return limits;
}

class KernelPrologueSets : public PrologueTest {
protected:
  static void SetLength(StagedStep *step, int32_t row, int32_t set, int32_t length) {
    AddChange(step, kDataChange, row, set - 1, length);
  }
};

// A few numbers computed by hand, so that the model is not the only check.
TEST_P(KernelPrologueSets, AStepHasTheTokensOfItsOwnSet) {
  const StepLimits limits = FourSets();
  StepPair pair(*bench_, limits, WithAllPages(limits));
  StagedStep step = pair.Step({ 3, 5 }, { 4, 2 }, 3, 8);
  step.set = 1;
  SetLength(&step, 3, 1, 20);
  SetLength(&step, 5, 1, 2);
  SetLength(&step, 5, 3, 70);
  AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, 9);
  pair.Prologue(step);
  ExpectError(pair.error(), kNoError);
  StepBuffers b = pair.device.Get();
  EXPECT_EQ(First(b->positions, 8), (Words{ 16, 17, 18, 19, 0, 1, 0, 0 }));
  EXPECT_EQ(First(b->seq_lens[0], 3), (Words{ 9, 0, 0 }));
  EXPECT_EQ(First(b->seq_lens[1], 3), (Words{ 20, 2, 0 }));
  EXPECT_EQ(First(b->seq_lens[2], 3), (Words{ 0, 0, 0 }));
  EXPECT_EQ(First(b->seq_lens[3], 3), (Words{ 0, 70, 0 }));
  EXPECT_EQ(First(b->group[0].kv_indptr, 4), (Words{ 0, 2, 3, 3 }));
  EXPECT_EQ(First(b->group[1].kv_indptr, 4), (Words{ 0, 1, 1, 1 }));
  EXPECT_EQ(First(b->group[2].kv_indptr, 4), (Words{ 0, 0, 3, 3 }));
  EXPECT_EQ(First(b->group[2].kv_last_page_len, 3), (Words{ 1, 6, 1 }));
  const int64_t page = b->group[0].page_table[3 * 20 + 1];
  EXPECT_EQ(First(b->group[0].slot_mapping, 4), (std::vector<int64_t>{ page * 16, page * 16 + 1, page * 16 + 2, page * 16 + 3 }));
  for (size_t g = 1; g < 3; g++)
    EXPECT_EQ(First(b->group[g].slot_mapping, 8), std::vector<int64_t>(8, -1)) << "group " << g;
  pair.PutNextTokens(Words(size_t(limits.max_requests), 99));
  pair.Epilogue();
  b = pair.device.Get();
  EXPECT_EQ(b->row_computed[3], 9);
  const StepResult result = ReadResult(pair, limits, 1);
  EXPECT_EQ(result.record.num_requests, 2);
  EXPECT_EQ(result.num_tokens, (Words{ 0, 0 }));
}

TEST_P(KernelPrologueSets, ALengthThatCannotBeEmptiesTheRequestInAllSets) {
  struct Bad {
    int32_t set, row_set, length;
  };
  const StepLimits limits = FourSets();
  for (const Bad &bad :
       { Bad{ 0, 1, -1 }, Bad{ 0, 1, limits.MaxLen(1) + 1 }, Bad{ 0, 3, limits.MaxLen(3) + 1 }, Bad{ 2, 2, limits.MaxLen(2) + 1 },
         Bad{ 1, 1, 2 }, Bad{ 1, 2, INT32_MIN }, Bad{ 3, 3, 0 }, Bad{ 3, 3, INT32_MAX } }) {
    SCOPED_TRACE(std::to_string(bad.length) + " in set " + std::to_string(bad.row_set) + ", step of set " +
                 std::to_string(bad.set));
    StepPair pair(*bench_, limits, WithAllPages(limits));
    StagedStep step = pair.Step({ 2, 4 }, { 3, 3 }, 4, 16);
    step.set = bad.set;
    for (int32_t row : { 2, 4 })
      for (int32_t s = 1; s < limits.num_sets; s++)
        SetLength(&step, row, s, row == 2 && s == bad.row_set ? bad.length : 30 + s);
    pair.Prologue(step);
    ExpectError(pair.error(), { CGR_GUARD_LENGTH, 2, 0, 0, bad.length });
    const StepBuffers b = pair.device.Get();
    for (int32_t s = 0; s < limits.num_sets; s++) {
      EXPECT_EQ(b->seq_lens[s][0], 0) << s;
      EXPECT_EQ(b->seq_lens[s][1], s > 0 ? 30 + s : bad.set == 0 ? 3 : 0) << s;
    }
    pair.Epilogue();
  }
}

// Steps of any set in succession; some are fetched, and some have so many tokens that blocks share them.
TEST_P(KernelPrologueSets, RandomStepsFollowTheModel) {
  for (uint64_t seed = 1; seed <= 8; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    StepLimits limits = FourSets();
    const bool shared = seed % 4 == 0; // more tokens than a block has threads
    limits.max_tokens = shared ? 5000 : 64;
    limits.max_seq_len = shared ? 320 : 300;
    limits.scattered = seed % 2 == 0;
    StepPair pair(*bench_, limits, WithAllPages(limits));
    for (int s = 0; s < 40; s++) {
      Words rows(size_t(limits.max_rows)), lens;
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random);
      rows.resize(size_t(Pick(random, shared ? limits.max_requests - 2 : 0, limits.max_requests)));
      for (size_t i = 0; i < rows.size(); i++)
        lens.push_back(shared ? Pick(random, 150, 250) : Pick(random, 0, Pick(random, 0, 1) ? 1 : 8));
      StagedStep step = pair.Step(rows, lens, 0, 0);
      step.set = Pick(random, 0, limits.num_sets - 1);
      const int32_t least = shared ? 240 : 8; // nearly always enough
      step.with_tokens = Pick(random, 0, 3) > 0;
      step.padded_requests = Pick(random, std::max(step.num_requests, 1), limits.max_requests);
      step.padded_tokens = Pick(random, std::max(step.num_tokens, 1), limits.max_tokens);
      for (int32_t row = 0; row < limits.max_rows; row++)
        for (int32_t set = 1; set < limits.num_sets; set++)
          if (set == step.set || Pick(random, 0, 2) == 0)
            SetLength(&step, row, set, Pick(random, Pick(random, 0, 40) == 0 ? -1 : set == step.set ? least : 0, 290));
      if (!rows.empty())
        AddChange(&step, CGR__CHANGE_COMPUTED, rows[0], 0, Pick(random, 0, 250));
      pair.fetches = Pick(random, 0, 1) == 1;
      pair.Prologue(step);
      Words tokens(size_t(limits.max_requests));
      std::iota(tokens.begin(), tokens.end(), 10000 * (s + 1));
      pair.PutNextTokens(tokens);
      pair.Epilogue();
      ASSERT_FALSE(HasFailure()) << "step " << s;
    }
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPrologueSets);

} // namespace
} // namespace cgr_test

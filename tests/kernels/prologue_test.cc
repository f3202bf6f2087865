// The prologue against a plain computation of every buffer, over random sequences of steps and under each guard.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

// The limits of a runtime.
StepLimits LargestLimits() {
  StepLimits limits = TwoGroups();
  limits.max_requests = limits.max_rows = CGR__MAX_REQUESTS;
  limits.max_tokens = 12000;
  limits.max_changes = 9000;
  limits.groups[0].num_pages = 100000;
  limits.groups[1].num_pages = 30000;
  return limits;
}

// Different pages for the first indexes of a row, in every group.
void AddPages(const StepLimits &limits, StagedStep *step, int32_t row, int32_t count) {
  for (size_t g = 0; g < limits.groups.size(); g++)
    for (int32_t p = 0; p < std::min(count, int32_t(limits.groups[g].stride)); p++)
      AddChange(step, PageChange(g), row, p, 8 + (row * 5 + p * 3) % 20);
}

// `count` changes of different words, nearly all of them good: the words of row_computed and then those of each page table in a
// row, walked in steps of a prime that does not divide their number.
void AddRandomChanges(const StepLimits &limits, std::mt19937_64 &random, int32_t count, StagedStep *step) {
  const int64_t strides[] = { 1, limits.groups[0].stride, limits.groups[1].stride };
  int64_t words = limits.max_rows * (strides[0] + strides[1] + strides[2]), word = Pick(random, 0, 1 << 20) % words;
  for (int32_t c = 0; c < count; c++, word = (word + 7919) % words) {
    int64_t at = word;
    size_t k = 0;
    while (at >= limits.max_rows * strides[k])
      at -= limits.max_rows * strides[k++];
    int32_t value = k == 0 ? Pick(random, 0, 150) : Pick(random, 8, int32_t(limits.groups[k - 1].num_pages) - 1);
    if (count < 5000 && Pick(random, 0, 3000) == 0)
      value = -7;
    AddChange(step, k == 0 ? int32_t{ CGR__CHANGE_COMPUTED } : PageChange(k - 1), int32_t(at / strides[k]),
              int32_t(at % strides[k]), value);
  }
  int32_t room = std::min(limits.max_changes - step->num_changes, limits.max_rows * int32_t(kRowWords));
  for (int32_t w = 0; w < room; w += 2)
    AddChange(step, kDataChange, w / kRowWords, w % kRowWords, Pick(random, -1000, 1000));
}

class KernelPrologue : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_prologue, &cgr__kernel_fetch, &cgr__kernel_epilogue }); }

  // Rows 3, 5 and 2 have pages, and 40, 0 and 15 tokens; row 3 sampled 333 last.
  std::unique_ptr<StepPair> Prepared(const StepLimits &limits) {
    StepModel first(limits);
    first.b.state().padding_token = 7;
    first.b->row_last_tokens[3 * limits.token_stride] = 333;
    auto pair = std::make_unique<StepPair>(*bench_, limits, first);
    StagedStep step = pair->Step({}, {}, 2, 2);
    for (int32_t row : { 3, 5, 2 })
      AddPages(limits, &step, row, 5);
    AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, 40);
    AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 15);
    pair->PrologueAndEpilogue(step);
    ExpectError(pair->error(), kNoError);
    return pair;
  }
};

// A few numbers computed by hand, so that the model is not the only check.
TEST_P(KernelPrologue, DerivesEveryBufferOfAStep) {
  StepLimits limits = TwoGroups();
  auto pair = Prepared(limits);
  StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 16, 2 }, 8, 40);
  step.tokens[0] = CGR_TOKEN_LAST;
  pair->Prologue(step);
  const StepBuffers got = pair->device.Get();
  EXPECT_EQ(First(got->counts, 6), (Words{ 3, 19, 8, 40, 1, 1 }));
  EXPECT_EQ(First(got->input_ids, 3), (Words{ 333, 1001, 1002 }));
  EXPECT_EQ(First(got->positions, 2), (Words{ 40, 0 }));
  EXPECT_EQ(First(got->positions + 16, 4), (Words{ 15, 15, 16, 0 }));
  EXPECT_EQ(First(got->request_rows, 8), (Words{ 3, 5, 2, 12, 12, 12, 12, 12 }));
  EXPECT_EQ(First(got->seq_lens[0], 5), (Words{ 41, 16, 17, 0, 0 }));
  EXPECT_EQ(First(got->query_start_loc, 9), (Words{ 0, 1, 17, 19, 19, 19, 19, 19, 19 }));
  EXPECT_EQ(First(got->logits_indices, 4), (Words{ 0, 16, 18, 0 }));
  EXPECT_EQ(First(got->group[0].kv_indptr, 5), (Words{ 0, 3, 4, 6, 6 }));
  EXPECT_EQ(First(got->group[0].kv_last_page_len, 4), (Words{ 9, 16, 1, 1 }));
  EXPECT_EQ(First(got->group[1].kv_indptr, 5), (Words{ 0, 1, 2, 3, 3 }));
  int64_t page = 8 + (3 * 5 + 2 * 3) % 20; // of row 3, index 2
  EXPECT_EQ(got->group[0].slot_mapping[0], page * 16 + 8);
  EXPECT_EQ(got->group[0].slot_mapping[19], -1);
  EXPECT_EQ(got->group[0].slot_mapping[40], int64_t(0xA5A5A5A5A5A5A5A5u)) << "after the bucket";
  pair->Epilogue();
  pair->PrologueAndEpilogue(pair->Step({ 2, 5, 3 }, { 4, 0, 3 }, 8, 40));
  EXPECT_EQ(First(pair->device.Get()->counts, 6), (Words{ 3, 7, 8, 40, 3, 7 })) << "decodes alone";
}

// ------------------------------------------------------------------------------------------------------------ random steps

// What a sequence of random steps is made from.
struct Walk {
  StepLimits limits;
  uint64_t seed = 1, first_seq = 0;
  int steps = 40;
  Words buckets;              // of requests, one after the other, nearly full; empty: any
  int32_t random_changes = 0; // in a step, at most
  bool decodes = false;       // one token each, from the device as a rule
};

// Grows, shrinks and repeats batches: nothing of an earlier step shows through.
class RandomWalk {
public:
  RandomWalk(Bench &bench, const Walk &walk)
      : walk_(walk), limits_(walk.limits), random_(walk.seed), pair_(bench, limits_, First()) {}

  void Run() {
    SCOPED_TRACE("seed " + std::to_string(walk_.seed) + " stride " + std::to_string(limits_.token_stride));
    last_ = pair_.Step({}, {}, 1, 1);
    pair_.PrologueAndEpilogue(last_);
    for (int s = 0; s < walk_.steps; s++) {
      StagedStep step = NextStep(s);
      pair_.fetches = Chance(2);
      pair_.Prologue(step);
      Words tokens(size_t(limits_.max_requests * limits_.token_stride));
      std::iota(tokens.begin(), tokens.end(), 10000 * (s + 1));
      pair_.PutNextTokens(tokens);
      pair_.Epilogue();
      last_ = step;
      if (pair_.error().error == CGR_GUARD_SEQUENCE || pair_.error().error == CGR_GUARD_COUNT)
        last_.num_requests = 0;
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << s;
    }
  }

private:
  int32_t Any(int32_t low, int32_t high) { return Pick(random_, low, high); }
  bool Chance(int32_t one_in) { return Any(1, one_in) == 1; }

  StepModel First() {
    StepModel model(limits_, walk_.first_seq);
    for (size_t g = 0; g < limits_.groups.size(); g++)
      for (int64_t at = 0; at < limits_.max_rows * limits_.groups[g].stride; at++)
        model.b->group[g].page_table[at] = int32_t(8 + at * 3 % (limits_.groups[g].num_pages - 8));
    return model;
  }
  StagedStep NextStep(int s) {
    int32_t bucket = walk_.buckets.empty() ? 0 : walk_.buckets[size_t(s) % walk_.buckets.size()];
    bool fits = bucket == 0 || last_.num_requests <= bucket;
    StagedStep step = last_.num_requests > 0 && fits && (walk_.decodes ? !Chance(6) : Chance(bucket == 0 ? 2 : 3))
                          ? Repeated()
                          : NewBatch(bucket);
    step.with_tokens = Chance(walk_.decodes ? 8 : 2);
    step.append_first = Chance(8);
    for (int32_t &token : step.tokens)
      token = Chance(3) ? CGR_TOKEN_LAST : token;
    step.padded_requests = bucket != 0 ? bucket : Any(step.num_requests, limits_.max_requests);
    step.padded_tokens = walk_.decodes ? step.padded_requests : Any(step.num_tokens, limits_.max_tokens);
    if (walk_.decodes && !Chance(4))
      return step;
    if (walk_.random_changes > 0 && !Chance(4))
      AddRandomChanges(limits_, random_, Any(1, walk_.random_changes), &step);
    else
      AddFewChanges(&step);
    return step;
  }
  StagedStep NewBatch(int32_t bucket) {
    Words rows(size_t(limits_.max_rows)), lens;
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random_);
    rows.resize(size_t(bucket == 0 ? Any(0, limits_.max_requests) : bucket - (Chance(3) ? Any(0, bucket / 3) : 0)));
    for (size_t i = 0; i < rows.size(); i++)
      lens.push_back(!walk_.decodes && Chance(3) ? Any(0, 8) : 1);
    StagedStep step = pair_.Step(rows, lens, 0, 0);
    for (int32_t &flag : step.flags)
      flag = Chance(4) ? CGR_REQUEST_PARTIAL : 0;
    return step;
  }
  StagedStep Repeated() {
    StagedStep step = pair_.Unchanged(last_.num_requests, last_.num_tokens, 0, 0);
    step.tokens.assign(size_t(step.num_tokens), 77);
    return step;
  }
  void AddFewChanges(StagedStep *step) {
    int32_t row = Any(0, limits_.max_rows - 1);
    if (Chance(3))
      AddChange(step, CGR__CHANGE_COMPUTED, row, 0, Any(0, 120));
    if (Chance(3))
      AddChange(step, PageChange(1), row, Any(0, 4), Any(8, 29));
  }

  const Walk walk_;
  const StepLimits limits_;
  std::mt19937_64 random_;
  StepPair pair_;
  StagedStep last_;
};

TEST_P(KernelPrologue, RandomStepsFollowTheModel) {
  for (uint64_t seed = 1; seed <= 12; seed++) {
    Walk walk;
    walk.limits = TwoGroups();
    walk.limits.ring_depth = 2 + int32_t(seed) % 4;
    walk.limits.token_stride = 1 + int32_t(seed) % 3;
    walk.limits.scattered = seed % 2 == 0;
    walk.seed = seed;
    walk.first_seq = seed % 3 == 0 ? (uint64_t{ 1 } << 32) - 5 : 0; // the number and its slot have 64 bits
    RandomWalk(*bench_, walk).Run();
    if (HasFailure())
      return;
  }
}

// Page sizes that are no powers of two, and the largest.
TEST_P(KernelPrologue, RandomStepsOfEveryPageSizeFollowTheModel) {
  const std::pair<int32_t, int32_t> sizes[] = { { 48, 1024 }, { 80, 96 }, { 256, 112 }, { 1008, 16 } };
  for (const auto &[first, second] : sizes) {
    Walk walk;
    walk.limits = TwoGroups();
    walk.limits.max_seq_len = 2100;
    for (StepGroup &group : walk.limits.groups) {
      group.page_size = &group == &walk.limits.groups[0] ? first : second;
      group.stride = (walk.limits.max_seq_len + group.page_size - 1) / group.page_size;
    }
    walk.seed = uint64_t(first);
    SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second));
    RandomWalk(*bench_, walk).Run();
    if (HasFailure())
      return;
  }
}

// Repeated batches with one token for each request, of any size around those of a warp and a block.
TEST_P(KernelPrologue, RandomDecodesFollowTheModel) {
  for (uint64_t seed = 1; seed <= 8; seed++) {
    Walk walk;
    walk.limits = seed % 2 == 0 ? LargestLimits() : TwoGroups();
    walk.limits.reorder_threshold = seed % 4 < 2 ? 4 : 0;
    walk.limits.token_stride = 1 + int32_t(seed) % 3;
    walk.seed = 100 + seed;
    walk.steps = seed % 2 == 0 ? 30 : 80;
    walk.decodes = true;
    if (seed % 2 == 0)
      walk.buckets = { 31, 32, 33, 127, 128, 129, 1023, 1024, 1024, 1024, 1025, 2, 1 };
    RandomWalk(*bench_, walk).Run();
    if (HasFailure())
      return;
  }
}

// As many requests, tokens and changes as a runtime can be made for: several rounds of a block of threads, and both sides of
// each.
TEST_P(KernelPrologue, RandomStepsAtTheLimitsFollowTheModel) {
  Walk walk;
  walk.limits = LargestLimits();
  walk.limits.token_stride = 2;
  walk.seed = 41;
  walk.first_seq = (uint64_t{ 1 } << 32) - 5;
  walk.steps = 25;
  walk.buckets = { 1023, 1024, 1025, 2048, 4096, 4096, 1025, 4096, 2048, 1024, 1023 };
  walk.random_changes = walk.limits.max_changes;
  RandomWalk(*bench_, walk).Run();
}

// Every number of changes around a round of the threads.
TEST_P(KernelPrologue, AppliesThousandsOfChanges) {
  StepLimits limits = LargestLimits();
  StepPair pair(*bench_, limits);
  std::mt19937_64 random(43);
  for (int32_t count : { 1023, 1024, 1025, 2049, 9000 }) {
    SCOPED_TRACE(count);
    StagedStep step = pair.Step({ 5, 4095, 0 }, { 1, 0, 2 }, 8, 8);
    AddRandomChanges(limits, random, count, &step);
    pair.PrologueAndEpilogue(step);
    if (HasFailure())
      return;
  }
}

// A step may carry exactly as much as the limits say.
TEST_P(KernelPrologue, AcceptsWhatIsExactlyAtTheLimits) {
  StepLimits limits = TwoGroups();
  auto pair = Prepared(limits);
  StagedStep step = pair->Step({ 0, 11, 3, 5, 2, 7, 8, 9 }, { 8, 8, 8, 8, 8, 8, 8, 8 }, 8, 64);
  for (int32_t row = 0; row < 12; row++)
    AddPages(limits, &step, row, 1);
  while (step.num_changes < limits.max_changes)
    AddChange(&step, PageChange(0), 11, 19 - (limits.max_changes - step.num_changes), 99);
  pair->PrologueAndEpilogue(step);
  ExpectError(pair->error(), kNoError);
  StagedStep longest = pair->Step({ 11 }, { 1 }, 1, 1);
  AddChange(&longest, CGR__CHANGE_COMPUTED, 11, 0, limits.max_seq_len - 1);
  AddChange(&longest, PageChange(0), 11, 18, 98);
  AddChange(&longest, PageChange(1), 11, 4, 29);
  pair->PrologueAndEpilogue(longest);
  ExpectError(pair->error(), kNoError);
  EXPECT_EQ(pair->device.Get()->seq_lens[0][0], limits.max_seq_len);
}

// ------------------------------------------------------------------------------------------------------------------ guards

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
    if (HasFailure())
      return;
  }
}

TEST_P(KernelPrologue, EachGuardWithinAStepRefusesOneThing) {
  for (int i = 0; i < 2 * int(GuardsWithinSteps().size()); i++) {
    const Guard guard = GuardsWithinSteps()[size_t(i / 2)];
    auto pair = Prepared(TwoGroups());
    pair->fetches = i % 2 != 0;
    CheckGuard(pair.get(), guard, guard.expected.error == CGR_GUARD_CHANGE); // a bad page or row loses nothing
    if (HasFailure())
      return;
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
    if (HasFailure())
      return;
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

// A slot of the largest pool takes 37 bits.
TEST_P(KernelPrologue, SlotsAreOf64Bits) {
  StepLimits limits = TwoGroups();
  limits.groups[0].num_pages = limits.groups[1].num_pages = INT32_MAX;
  StepPair pair(*bench_, limits);
  StagedStep step = pair.Step({ 4 }, { 2 }, 1, 2);
  for (size_t g : { 0, 1 })
    AddChange(&step, PageChange(g), 4, 0, INT32_MAX - 1);
  pair.PrologueAndEpilogue(step);
  ExpectError(pair.error(), kNoError);
  const StepBuffers got = pair.device.Get();
  EXPECT_EQ(got->group[0].slot_mapping[1], (int64_t{ INT32_MAX } - 1) * 16 + 1);
  EXPECT_EQ(got->group[1].slot_mapping[1], (int64_t{ INT32_MAX } - 1) * 64 + 1);
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

// A row's state does not suit a decode: this is reported in every step, also if the slot is fetched ahead.
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

// The same for what a slot carries: an unchanged batch, and one bad change among good ones.
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
    if (HasFailure())
      return;
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

// P2. An empty step looks at nothing in its slot, whether a good step is there or none at all; it writes padding and leaves no
// batch.
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

// --------------------------------------------------------------------------------------------------------- arbitrary bytes

// A slot of noise with words of a good step put back.
class NoisySlot {
public:
  explicit NoisySlot(uint64_t seed) : random_(seed) {}
  int32_t Any(int32_t low, int32_t high) { return Pick(random_, low, high); }
  bool Chance(int32_t one_in) { return Any(1, one_in) == 1; }
  int32_t Noise() {
    switch (random_() % 5) {
    case 0:
      return int32_t(random_());
    case 1:
      return Any(-4, 35);
    case 2:
      return int32_t(1u << random_() % 32);
    case 3:
      return Words{ 1, 2, 3, 257 }[random_() % 4];
    default:
      return Any(0, 11);
    }
  }
  void Fill(const cgr__slot_layout &layout, const StagedStep &good, unsigned char *slot) {
    good_.resize(size_t(layout.stride));
    WriteSlot(layout, good, good_.data());
    for (int64_t at = 0; at < layout.stride; at += 4) {
      int32_t word = Noise();
      std::memcpy(slot + at, &word, 4);
    }
    const int64_t seq = offsetof(cgr__slot_header, seq), batch_seq = offsetof(cgr__slot_header, batch_seq),
                  generation = offsetof(cgr__slot_header, generation), counts = offsetof(cgr__slot_header, num_requests);
    PutWhole(seq, 16, slot);
    PutWhole(batch_seq, 8, slot);
    PutWhole(generation, 8, slot);
    int32_t one_in = Chance(3) ? 2 : 12;
    PutWords(counts, 4, one_in, slot);
    PutWords(layout.batch, 10, one_in + 4, slot);
    PutWords(layout.tokens, 4, 2, slot);
    PutWords(layout.changes, 12, 6, slot);
    PutWords(layout.edits, 8, 6, slot);
    PutWords(offsetof(cgr__slot_header, flags), 1, 2, slot);
    PutWords(offsetof(cgr__slot_header, num_edits), 1, 3, slot);
  }

private:
  // All of it, but for one time in `one_in`.
  void PutWhole(int64_t at, int32_t one_in, unsigned char *slot) {
    if (!Chance(one_in))
      std::memcpy(slot + at, &good_[at], 8);
  }
  // Each word by itself.
  void PutWords(int64_t at, int32_t count, int32_t one_in, unsigned char *slot) {
    for (int32_t w = 0; w < count; w++)
      if (!Chance(one_in))
        std::memcpy(slot + at + 4 * w, &good_[size_t(at + 4 * w)], 4);
  }

  std::mt19937_64 random_;
  Bytes good_;
};

// Arbitrary bytes in a slot, the header's included: the step completes with an error or as what the bytes say, nothing is read
// or written outside (the buffers have guards), and the next good step is right.
TEST_P(KernelPrologue, ArbitraryBytesInASlotDoNoHarm) {
  StepLimits limits = TwoGroups();
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 24; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    limits.token_stride = 1 + int32_t(seed % 3);
    NoisySlot noisy(seed);
    auto pair = Prepared(limits);
    for (int s = 0; s < 30; s++) {
      StagedStep good = pair->Step({ 3, 5, 2 }, { 1, 2, 1 }, noisy.Any(3, 8), noisy.Any(4, 64));
      if (noisy.Chance(4))
        good = pair->Unchanged(3, 4, good.padded_requests, good.padded_tokens);
      good.with_tokens = good.with_batch && !noisy.Chance(3);
      for (int c = 0; c < 3; c++)
        AddChange(&good,
                  c == 1            ? CGR__CHANGE_COMPUTED
                  : c == 2 && s % 2 ? int32_t(kDataChange)
                                    : PageChange(size_t(c) / 2),
                  noisy.Noise(), noisy.Noise(), noisy.Noise());
      if (noisy.Chance(2)) {
        AddEdit(&good, 0, 0, 3, 1, noisy.Any(-1, 3));
        AddEdit(&good, noisy.Any(1, 2), 0, 5, noisy.Any(1, 3), noisy.Any(-1, 3));
      }
      noisy.Fill(pair->device.slot_layout(), good, pair->device.slot(pair->NextSeq()));
      pair->fetches = noisy.Chance(2);
      pair->PrologueOfSlot(good.padded_requests, good.padded_tokens);
      accepted += pair->num_requests() > 0;
      pair->Epilogue();
      if (noisy.Chance(3)) {
        StagedStep next = pair->Step({ 2, 7, 3 }, { 1, 0, 5 }, 6, 30);
        for (int32_t row : { 2, 7, 3 }) {
          AddChange(&next, CGR__CHANGE_COMPUTED, row, 0, 10 * row);
          AddPages(limits, &next, row, 3);
        }
        pair->PrologueAndEpilogue(next);
        ExpectError(pair->error(), kNoError);
      }
      ASSERT_FALSE(HasFailure()) << "step " << s;
    }
  }
  EXPECT_GT(accepted, 100); // not all of them are refused at the door
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPrologue);

} // namespace
} // namespace cgr_test

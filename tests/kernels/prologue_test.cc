// The prologue against a plain computation of every buffer, over random sequences of steps and with arbitrary bytes in a ring
// slot.
#include <random>

#include "tests/kernels/prologue_case.h"

namespace cgr_test {
namespace {

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
      Sample(s);
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
      token = Chance(3) ? CGR_TOKEN_LAST : limits_.token_stride > 1 && Chance(3) ? CGR_TOKEN_DRAFT(Any(0, 9)) : token;
    AddGuesses(&step);
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
  // Also more than there can be.
  void AddGuesses(StagedStep *step) {
    for (int32_t &flags : step->flags)
      if (limits_.token_stride > 1 && Chance(2))
        flags = Chance(6) ? Any(0, 0xffff) : int32_t(CGR_REQUEST_DRAFTS(Any(0, limits_.token_stride)));
  }
  void Sample(int s) {
    Words tokens(size_t(limits_.max_requests * limits_.token_stride));
    std::iota(tokens.begin(), tokens.end(), 10000 * (s + 1));
    for (int32_t i = 0; limits_.token_stride > 1 && i < limits_.max_requests; i++) {
      pair_.model.b->num_accepted[i] = Chance(20) ? Any(-2, 2000) : Any(0, limits_.token_stride - 1);
      for (int32_t j = 0; j < limits_.token_stride - 1; j++)
        pair_.model.b->draft_tokens[i * (limits_.token_stride - 1) + j] =
            Chance(10) ? Any(-1, 0) | limits_.vocab_size : Any(0, 5000);
    }
    if (limits_.vocab_size > 0 && Chance(4))
      tokens[size_t(Any(0, int32_t(tokens.size()) - 1))] = Chance(2) ? -Any(1, 9) : limits_.vocab_size;
    pair_.PutNextTokens(tokens);
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
    walk.limits.token_stride = 1 + int32_t(seed) % 4;
    walk.limits.vocab_size = seed % 5 < 2 ? 1000000 : 0;
    walk.limits.scattered = seed % 2 == 0;
    walk.limits.uniform_split = seed % 4 < 2;
    walk.seed = seed;
    walk.first_seq = seed % 3 == 0 ? (uint64_t{ 1 } << 32) - 5 : 0; // the number and its ring slot have 64 bits
    RandomWalk(*bench_, walk).Run();
    ASSERT_FALSE(HasFailure());
  }
}

// Page sizes that are no powers of two, the largest, and pages of backends inside of them, whatever the step: decodes also take
// the short way.
TEST_P(KernelPrologue, RandomStepsOfEveryPageSizeFollowTheModel) {
  struct Sizes {
    int32_t first, second, of_kernel[2];
  };
  const Sizes sizes[] = { { 48, 1024, { 0, 0 } },    { 80, 96, { 0, 0 } },    { 256, 112, { 0, 0 } },  { 1008, 16, { 0, 0 } },
                          { 48, 1024, { 16, 128 } }, { 80, 96, { 16, 32 } },  { 256, 112, { 64, 0 } }, { 1024, 64, { 16, 1 } },
                          { 1008, 16, { 2, 8 } },    { 512, 32, { 256, 16 } } };
  for (const auto &[first, second, of_kernel] : sizes)
    for (bool decodes : { false, true }) {
      Walk walk;
      walk.limits = TwoGroups();
      walk.limits.max_seq_len = 2100;
      for (size_t g = 0; g < 2; g++) {
        StepGroup &group = walk.limits.groups[g];
        group.page_size = g == 0 ? first : second;
        group.kernel_page_size = of_kernel[g];
        group.stride = (walk.limits.max_seq_len + group.page_size - 1) / group.page_size;
      }
      walk.seed = uint64_t(first);
      walk.decodes = decodes;
      SCOPED_TRACE(std::to_string(first) + " and " + std::to_string(second) + ", of which backends have " +
                   std::to_string(of_kernel[0]) + " and " + std::to_string(of_kernel[1]));
      RandomWalk(*bench_, walk).Run();
      ASSERT_FALSE(HasFailure());
    }
}

// Repeated batches with one token for each request, of any size around those of a warp and a block.
TEST_P(KernelPrologue, RandomDecodesFollowTheModel) {
  for (uint64_t seed = 1; seed <= 8; seed++) {
    Walk walk;
    walk.limits = seed % 2 == 0 ? LargestLimits() : TwoGroups();
    walk.limits.reorder_threshold = seed % 4 < 2 ? 4 : 0;
    walk.limits.uniform_split = seed % 4 == 1;
    walk.limits.token_stride = 1 + int32_t(seed) % 3;
    walk.seed = 100 + seed;
    walk.steps = seed % 2 == 0 ? 30 : 80;
    walk.decodes = true;
    if (seed % 2 == 0)
      walk.buckets = { 31, 32, 33, 127, 128, 129, 1023, 1024, 1024, 1024, 1025, 2, 1 };
    RandomWalk(*bench_, walk).Run();
    ASSERT_FALSE(HasFailure());
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
    ASSERT_FALSE(HasFailure());
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

// --------------------------------------------------------------------------------------------------------- arbitrary bytes

// A ring slot of noise with words of a good step put back.
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
  void Fill(const cgr__ring_slot_layout &layout, const StagedStep &good, unsigned char *slot) {
    good_.resize(size_t(layout.stride));
    WriteSlot(layout, good, good_.data());
    for (int64_t at = 0; at < layout.stride; at += 4) {
      int32_t word = Noise();
      std::memcpy(slot + at, &word, 4);
    }
    const int64_t seq = offsetof(cgr__ring_slot_header, seq), batch_seq = offsetof(cgr__ring_slot_header, batch_seq),
                  generation = offsetof(cgr__ring_slot_header, generation),
                  counts = offsetof(cgr__ring_slot_header, num_requests);
    PutWhole(seq, 16, slot);
    PutWhole(batch_seq, 8, slot);
    PutWhole(generation, 8, slot);
    int32_t one_in = Chance(3) ? 2 : 12;
    PutWords(counts, 4, one_in, slot);
    PutWords(layout.batch, 10, one_in + 4, slot);
    PutWords(layout.tokens, 4, 2, slot);
    PutWords(layout.changes, 12, 6, slot);
    PutWords(layout.edits, 8, 6, slot);
    PutWords(offsetof(cgr__ring_slot_header, flags), 1, 2, slot);
    PutWords(offsetof(cgr__ring_slot_header, num_edits), 1, 3, slot);
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

// Arbitrary bytes in a ring slot, the header's included: the step completes with an error or as what the bytes say, nothing is
// read or written outside (the buffers have guards), and the next good step is right.
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

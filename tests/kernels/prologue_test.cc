// The prologue against a plain computation of every buffer, over random sequences of steps and under each guard.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

class KernelPrologue : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_prologue), CGR__DEVICE_OK);
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_epilogue), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }
  static StepLimits TwoGroups() {
    StepLimits limits;
    limits.groups.resize(2);
    limits.groups[1].page_size = 64;
    limits.groups[1].num_pages = 30;
    limits.groups[1].stride = 5;
    limits.groups[1].read_trash = 7;
    limits.groups[1].write_trash = 0;
    return limits;
  }
  // The limits of a runtime.
  static StepLimits Large() {
    StepLimits limits = TwoGroups();
    limits.max_requests = limits.max_rows = 4096;
    limits.max_tokens = 12000;
    limits.max_changes = 9000;
    limits.groups[0].num_pages = 100000;
    limits.groups[1].num_pages = 30000;
    return limits;
  }
  // `count` changes of different words, nearly all of them good.
  static void AddRandomChanges(const StepLimits &limits, std::mt19937_64 &random, int32_t count, StagedStep *step) {
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    int32_t strides[] = { 1, 1, static_cast<int32_t>(limits.groups[0].stride), static_cast<int32_t>(limits.groups[1].stride) };
    const int32_t kinds[] = { CGR__CHANGE_COMPUTED, CGR__CHANGE_LAST_TOKEN, CGR__CHANGE_PAGE, CGR__CHANGE_PAGE | 256 };
    int64_t words = int64_t{ limits.max_rows } * (strides[0] + strides[1] + strides[2] + strides[3]);
    int64_t word = pick(0, 1 << 20) % words, distance = 7919; // a prime that does not divide the words
    for (int32_t c = 0; c < count; c++, word = (word + distance) % words) {
      int64_t at = word;
      size_t k = 0;
      while (at >= int64_t{ limits.max_rows } * strides[k])
        at -= int64_t{ limits.max_rows } * strides[k++];
      int32_t row = static_cast<int32_t>(at / strides[k]), index = static_cast<int32_t>(at % strides[k]);
      int32_t value = k == 0 ? pick(0, 150) : pick(0, 50000);
      if (k >= 2)
        value = pick(8, static_cast<int32_t>(limits.groups[k - 2].num_pages) - 1);
      if (count < 5000 && pick(0, 3000) == 0)
        value = -7;
      AddChange(step, kinds[k], row, index, value);
    }
  }
  void RandomSteps(const struct Walk &walk);

  // Pages for a row's whole length: different ones for each row and index.
  static void AddPages(const StepLimits &limits, StagedStep *step, int32_t row, int32_t count) {
    for (size_t g = 0; g < limits.groups.size(); g++)
      for (int32_t p = 0; p < std::min(count, static_cast<int32_t>(limits.groups[g].stride)); p++)
        AddChange(step, CGR__CHANGE_PAGE | static_cast<int32_t>(g) << 8, row, p, 8 + (row * 5 + p * 3) % 20);
  }
  // Rows 3, 5 and 2 with pages and lengths of 40, 0 and 15, in two steps; then the state for a test.
  static std::unique_ptr<StepPair> Prepared(Bench &bench, const StepLimits &limits) {
    auto pair = std::make_unique<StepPair>(bench, limits);
    StagedStep step = pair->Step({}, {}, 2, 2);
    for (int32_t row : { 3, 5, 2 })
      AddPages(limits, &step, row, 5);
    AddChange(&step, CGR__CHANGE_COMPUTED, 3, 0, 40);
    AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 15);
    AddChange(&step, CGR__CHANGE_LAST_TOKEN, 3, 0, 333);
    pair->Prologue(step);
    EXPECT_EQ(pair->error.error, 0);
    pair->Epilogue();
    return pair;
  }

  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelPrologue, PagesRowsAndTokens) {
  StepLimits limits = TwoGroups();
  limits.max_changes = 64;
  auto pair = Prepared(*bench_, limits);
  StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 16, 2 }, 8, 40);
  step.tokens[0] = CGR_TOKEN_LAST;
  pair->Prologue(step);
  StepBuffers got = pair->device.Get();
  // A few numbers by hand, so that the model is not alone.
  EXPECT_EQ(got.input_ids[0], 333);
  EXPECT_EQ(got.input_ids[1], 1001);
  EXPECT_EQ(got.positions[0], 40);
  EXPECT_EQ(got.positions[16], 15);
  EXPECT_EQ(got.positions[18], 16);
  EXPECT_EQ(Words(got.seq_lens.begin(), got.seq_lens.begin() + 4), (Words{ 41, 16, 17, 0 }));
  EXPECT_EQ(Words(got.query_start_loc.begin(), got.query_start_loc.end()), (Words{ 0, 1, 17, 19, 19, 19, 19, 19, 19 }));
  EXPECT_EQ(Words(got.logits_indices.begin(), got.logits_indices.begin() + 4), (Words{ 0, 16, 18, 0 }));
  EXPECT_EQ(Words(got.groups[0].kv_indptr.begin(), got.groups[0].kv_indptr.begin() + 5), (Words{ 0, 3, 4, 6, 6 }));
  EXPECT_EQ(Words(got.groups[0].kv_last_page_len.begin(), got.groups[0].kv_last_page_len.begin() + 4), (Words{ 9, 16, 1, 1 }));
  EXPECT_EQ(Words(got.groups[1].kv_indptr.begin(), got.groups[1].kv_indptr.begin() + 5), (Words{ 0, 1, 2, 3, 3 }));
  int64_t page = 8 + (3 * 5 + 2 * 3) % 20; // of row 3, index 2
  EXPECT_EQ(got.groups[0].slot_mapping[0], page * 16 + 8);
  EXPECT_EQ(got.groups[0].slot_mapping[19], -1);
  EXPECT_EQ(got.groups[0].slot_mapping[40], 0x6b6b6b6b6b6b6b6b); // behind the bucket
}

// What a sequence of random steps is made from.
struct Walk {
  StepLimits limits;
  uint64_t seed = 1, first_seq = 0;
  int steps = 40;
  Words buckets;              // of requests, one after the other, nearly full; empty: any
  int32_t random_changes = 0; // in a step, at most
};

// Grows, shrinks and repeats batches: nothing of an earlier step shows through.
void KernelPrologue::RandomSteps(const Walk &walk) {
  SCOPED_TRACE("seed " + std::to_string(walk.seed));
  std::mt19937_64 random(walk.seed);
  auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
  const StepLimits &limits = walk.limits;
  StepModel model(limits, walk.first_seq);
  for (size_t g = 0; g < limits.groups.size(); g++)
    for (size_t at = 0; at < model.b.groups[g].page_table.size(); at++)
      model.b.groups[g].page_table[at] = 8 + static_cast<int32_t>(at * 3 % static_cast<size_t>(limits.groups[g].num_pages - 8));
  StepPair pair(*bench_, limits, model);
  StagedStep last = pair.Step({}, {}, 1, 1);
  pair.Prologue(last);
  pair.Epilogue();
  for (int s = 0; s < walk.steps; s++) {
    int32_t bucket = walk.buckets.empty() ? 0 : walk.buckets[static_cast<size_t>(s) % walk.buckets.size()];
    Words rows(static_cast<size_t>(limits.max_rows)), lens;
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    int32_t num_requests = bucket == 0 ? pick(0, limits.max_requests) : bucket - (pick(0, 2) ? 0 : pick(0, bucket / 3));
    rows.resize(static_cast<size_t>(num_requests));
    for (size_t i = 0; i < rows.size(); i++)
      lens.push_back(pick(0, 2) ? 1 : pick(0, 8));
    StagedStep step = pair.Step(rows, lens, 0, 0);
    bool repeat = s > 0 && last.num_requests > 0 && (bucket == 0 ? pick(0, 1) : last.num_requests <= bucket && pick(0, 2) == 0);
    if (repeat) { // the batch as it stands
      step.with_batch = false;
      step.num_requests = last.num_requests;
      step.num_tokens = last.num_tokens;
      step.batch_seq = pair.model.b.state.batch_seq;
      step.tokens.assign(static_cast<size_t>(step.num_tokens), 77);
    }
    for (int32_t &flag : step.flags)
      flag = pick(0, 3) == 0;
    step.with_tokens = pick(0, 1);
    for (int32_t &token : step.tokens)
      token = pick(0, 2) ? token : CGR_TOKEN_LAST;
    step.padded_requests = bucket != 0 ? bucket : pick(step.num_requests, limits.max_requests);
    step.padded_tokens = pick(step.num_tokens, limits.max_tokens);
    int32_t row = pick(0, limits.max_rows - 1);
    if (pick(0, 2) == 0)
      AddChange(&step, CGR__CHANGE_COMPUTED, row, 0, pick(0, 120));
    if (pick(0, 2) == 0)
      AddChange(&step, CGR__CHANGE_LAST_TOKEN, row, 0, pick(0, 50000));
    if (pick(0, 2) == 0)
      AddChange(&step, CGR__CHANGE_PAGE | 256, row, pick(0, 4), pick(8, 29));
    if (walk.random_changes > 0 && pick(0, 3)) {
      step.changes.clear();
      step.num_changes = 0;
      AddRandomChanges(limits, random, pick(1, walk.random_changes), &step);
    }
    pair.Prologue(step);
    Words tokens(static_cast<size_t>(limits.max_requests));
    std::iota(tokens.begin(), tokens.end(), 10000 * (s + 1));
    pair.PutNextTokens(tokens);
    pair.Epilogue();
    tokens.resize(static_cast<size_t>(pair.model.b.counts[CGR__COUNT_REQUESTS]));
    ExpectResult(pair.device, pair.model.b.state.seq, pair.error, pair.model.b.state, tokens);
    last = step;
    if (pair.error.error == CGR_STEP_SEQUENCE || pair.error.error == CGR_STEP_COUNT)
      last.num_requests = 0;
    if (HasFailure())
      FAIL() << "step " << s;
  }
}

TEST_P(KernelPrologue, RandomSteps) {
  for (uint64_t seed = 1; seed <= 12; seed++) {
    std::mt19937_64 random(seed);
    Walk walk;
    walk.limits = TwoGroups();
    walk.limits.ring_depth = Pick(random, 2, 5);
    walk.seed = seed;
    walk.first_seq = seed % 3 == 0 ? (uint64_t{ 1 } << 32) - 5 : 0; // the number and its slot are of 64 bits
    RandomSteps(walk);
    if (HasFatalFailure())
      return;
  }
}

// As many requests, tokens and changes as a runtime can be made for: several rounds of a block of threads, and both sides of
// each.
TEST_P(KernelPrologue, RandomStepsAtTheLimits) {
  Walk walk;
  walk.limits = Large();
  walk.seed = 41;
  walk.first_seq = (uint64_t{ 1 } << 32) - 5;
  walk.steps = 25;
  walk.buckets = { 1023, 1024, 1025, 2048, 4096, 4096, 1025, 4096, 2048, 1024, 1023 };
  walk.random_changes = walk.limits.max_changes;
  RandomSteps(walk);
}

// Every number of changes around a round of the threads.
TEST_P(KernelPrologue, ManyChanges) {
  StepLimits limits = Large();
  StepPair pair(*bench_, limits);
  std::mt19937_64 random(43);
  for (int32_t count : { 1023, 1024, 1025, 2049, 9000 }) {
    SCOPED_TRACE(count);
    StagedStep step = pair.Step({ 5, 4095, 0 }, { 1, 0, 2 }, 8, 8);
    AddRandomChanges(limits, random, count, &step);
    pair.Prologue(step);
    pair.Epilogue();
    if (HasFailure())
      return;
  }
}

// The first place where query_start_loc is wrong is reported, wherever it is and whatever is wrong behind it.
TEST_P(KernelPrologue, BadStartsFarBehind) {
  StepLimits limits = Large();
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
      step.starts[static_cast<size_t>(at)] = step.starts[static_cast<size_t>(at) - 1] - 1;
    // Where the place in front is spoilt too, this one still is smaller than it.
    int32_t first = *std::min_element(bad.begin(), bad.end());
    int64_t value = step.starts[static_cast<size_t>(first)];
    AddChange(&step, CGR__CHANGE_COMPUTED, 7, 0, 99); // must not be applied
    pair.Prologue(step);
    EXPECT_TRUE(SameError(pair.error, { CGR_STEP_COUNT, -1, 2 + first, 0, value })) << ErrorText(pair.error);
    pair.Epilogue();
    if (HasFailure())
      return;
  }
  StagedStep good = pair.Step(rows, Words(4096, 0), 4096, 4096);
  pair.Prologue(good);
  EXPECT_EQ(pair.error.error, CGR_STEP_OK);
  pair.Epilogue();
}

struct Guard {
  const char *name;
  int32_t error, row, index;
  int64_t value;
  std::function<void(StagedStep *)> spoil;
};

// Each spoiled field of an otherwise good step, then a good step that must be right.
TEST_P(KernelPrologue, EveryGuard) {
  // clang-format off
  const std::vector<Guard> guards = {
      {"old slot", CGR_STEP_SEQUENCE, -1, 0, 1, [](StagedStep *s) { s->seq--; }},
      {"later slot", CGR_STEP_SEQUENCE, -1, 0, 5, [](StagedStep *s) { s->seq += 3; }},
      {"slot far ahead", CGR_STEP_SEQUENCE, -1, 0, (int64_t{1} << 32) + 2, [](StagedStep *s) { s->seq += uint64_t{1} << 32; }},
      {"batch far ahead", CGR_STEP_SEQUENCE, -1, 1, (int64_t{1} << 32) + 1,
       [](StagedStep *s) { s->with_batch = false, s->batch_seq = (uint64_t{1} << 32) + 1; }},
      {"other batch", CGR_STEP_SEQUENCE, -1, 1, 99, [](StagedStep *s) { s->with_batch = false, s->batch_seq = 99; }},
      {"later generation", CGR_STEP_SEQUENCE, -1, 2, 1, [](StagedStep *s) { s->generation++; }},
      {"far generation", CGR_STEP_SEQUENCE, -1, 2, int64_t{1} << 32, [](StagedStep *s) { s->generation += uint64_t{1} << 32; }},
      {"no batch", CGR_STEP_SEQUENCE, -1, 1, 0, [](StagedStep *s) { s->with_batch = false, s->batch_seq = 0; }},
      {"requests above bucket", CGR_STEP_COUNT, -1, 0, 3, [](StagedStep *s) { s->padded_requests = 2; }},
      {"requests above limit", CGR_STEP_COUNT, -1, 0, 9, [](StagedStep *s) { s->num_requests = 9; }},
      {"requests far above", CGR_STEP_COUNT, -1, 0, INT32_MAX, [](StagedStep *s) { s->num_requests = INT32_MAX; }},
      {"negative requests", CGR_STEP_COUNT, -1, 0, -1, [](StagedStep *s) { s->num_requests = -1; }},
      {"tokens above bucket", CGR_STEP_COUNT, -1, 1, 19, [](StagedStep *s) { s->padded_tokens = 18; }},
      {"tokens above limit", CGR_STEP_COUNT, -1, 1, 65, [](StagedStep *s) { s->num_tokens = 65; }},
      {"negative tokens", CGR_STEP_COUNT, -1, 1, INT32_MIN, [](StagedStep *s) { s->num_tokens = INT32_MIN; }},
      {"start not 0", CGR_STEP_COUNT, -1, 2, 1, [](StagedStep *s) { s->starts[0] = 1; }},
      {"starts decrease", CGR_STEP_COUNT, -1, 4, 0, [](StagedStep *s) { s->starts[2] = 0; }},
      {"starts end early", CGR_STEP_COUNT, -1, 5, 18, [](StagedStep *s) { s->starts[3] = 18; }},
      {"starts end late", CGR_STEP_COUNT, -1, 5, 1 << 30, [](StagedStep *s) { s->starts[3] = 1 << 30; }},
      {"row at limit", CGR_STEP_ROW, -1, 1, 12, [](StagedStep *s) { s->rows[1] = 12; }},
      {"row negative", CGR_STEP_ROW, -1, 0, -1, [](StagedStep *s) { s->rows[0] = -1; }},
      {"row far", CGR_STEP_ROW, -1, 2, INT32_MIN, [](StagedStep *s) { s->rows[2] = INT32_MIN; }},
      {"too long", CGR_STEP_LENGTH, 3, 0, 301, [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 3, 0, 300); }},
      {"far too long", CGR_STEP_LENGTH, 5, 1, int64_t{INT32_MAX} + 16,
       [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 5, 0, INT32_MAX); }},
      {"negative length", CGR_STEP_LENGTH, 5, 1, 11, [](StagedStep *s) { AddChange(s, CGR__CHANGE_COMPUTED, 5, 0, -5); }},
      {"changes above limit", CGR_STEP_CHANGE, -1, -1, 41, [](StagedStep *s) { s->num_changes = 41; }},
      {"changes negative", CGR_STEP_CHANGE, -1, -1, -1, [](StagedStep *s) { s->num_changes = -1; }},
      {"unknown change", CGR_STEP_CHANGE, -1, 0, 4, [](StagedStep *s) { AddChange(s, 4, 0, 0, 0); }},
      {"change of nothing", CGR_STEP_CHANGE, -1, 0, 0, [](StagedStep *s) { AddChange(s, 0, 0, 0, 0); }},
      {"computed of a group", CGR_STEP_CHANGE, -1, 0, 258, [](StagedStep *s) { AddChange(s, 258, 0, 0, 0); }},
      {"no such group", CGR_STEP_CHANGE, -1, 0, 0x201, [](StagedStep *s) { AddChange(s, 0x201, 0, 0, 9); }},
      {"group far", CGR_STEP_CHANGE, -1, 0, -255, [](StagedStep *s) { AddChange(s, -255, 0, 0, 9); }},
      {"change of row 12", CGR_STEP_CHANGE, -1, 0, 2, [](StagedStep *s) { AddChange(s, 2, 12, 0, 9); }},
      {"change of row -1", CGR_STEP_CHANGE, -1, 0, 3, [](StagedStep *s) { AddChange(s, 3, -1, 0, 9); }},
      {"index at stride", CGR_STEP_CHANGE, -1, 0, 1, [](StagedStep *s) { AddChange(s, 1, 3, 20, 9); }},
      {"index at stride of group 1", CGR_STEP_CHANGE, -1, 0, 257, [](StagedStep *s) { AddChange(s, 257, 3, 5, 9); }},
      {"index negative", CGR_STEP_CHANGE, -1, 0, 1, [](StagedStep *s) { AddChange(s, 1, 3, -1, 9); }},
      {"page at limit", CGR_STEP_PAGE, 4, 6, 100, [](StagedStep *s) { AddChange(s, 1, 4, 6, 100); }},
      {"page at limit of group 1", CGR_STEP_PAGE, 4, 3, 30, [](StagedStep *s) { AddChange(s, 257, 4, 3, 30); }},
      {"page negative", CGR_STEP_PAGE, 4, 6, -1, [](StagedStep *s) { AddChange(s, 1, 4, 6, -1); }},
      {"write trash", CGR_STEP_PAGE, 4, 6, 1, [](StagedStep *s) { AddChange(s, 1, 4, 6, 1); }},
      {"write trash of group 1", CGR_STEP_PAGE, 4, 3, 0, [](StagedStep *s) { AddChange(s, 257, 4, 3, 0); }},
      {"page in use", CGR_STEP_PAGE, 3, 2, -9, [](StagedStep *s) { AddChange(s, 1, 3, 2, -9); }},
      {"no page", CGR_STEP_PAGE, 3, 2, 0, [](StagedStep *s) { AddChange(s, 1, 3, 2, 0); }},
  };
  // clang-format on
  StepLimits limits = TwoGroups();
  limits.max_changes = 40;
  for (const Guard &guard : guards) {
    SCOPED_TRACE(guard.name);
    auto pair = Prepared(*bench_, limits);
    StagedStep step = pair->Step({ 3, 5, 2 }, { 1, 16, 2 }, 6, 30);
    step.tokens[0] = CGR_TOKEN_LAST;
    guard.spoil(&step);
    // Changes in front of and behind a bad one are applied.
    if (step.num_changes == 1)
      AddChange(&step, CGR__CHANGE_LAST_TOKEN, 9, 0, 999);
    pair->Prologue(step);
    EXPECT_TRUE(SameError(pair->error, { guard.error, guard.row, guard.index, 0, guard.value })) << ErrorText(pair->error);
    pair->Epilogue();
    // What was refused as a whole, or dropped, is a loss; a bad page or row is not, and neither is what rests on a loss.
    bool lost =
        guard.error == CGR_STEP_CHANGE || guard.error == CGR_STEP_COUNT || (guard.error == CGR_STEP_SEQUENCE && guard.index != 2);
    EXPECT_EQ(pair->device.completion()->generation, lost ? 1u : 0u);
    StagedStep good = pair->Step({ 2, 7 }, { 1, 0 }, 6, 30);
    pair->Prologue(good);
    EXPECT_EQ(pair->error.error, 0);
    pair->Epilogue();
    if (HasFailure())
      return;
  }
}

// After a loss every header of the old generation is refused and changes nothing, and the number counts losses, not refusals.
TEST_P(KernelPrologue, StepsBehindALossAreRefused) {
  auto pair = Prepared(*bench_, StepLimits());
  for (uint64_t loss = 1; loss <= 3; loss++) {
    SCOPED_TRACE(loss);
    StagedStep bad = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
    AddChange(&bad, CGR__CHANGE_PAGE, 3, 20, 9); // no such index: the change is dropped, the step runs
    pair->Prologue(bad);
    EXPECT_EQ(pair->error.error, CGR_STEP_CHANGE);
    pair->Epilogue();
    for (int s = 0; s < 2; s++) {
      StagedStep behind = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
      behind.generation = loss - 1;
      AddChange(&behind, CGR__CHANGE_COMPUTED, 5, 0, 77);
      pair->Prologue(behind);
      const cgr__step_error expected = { CGR_STEP_SEQUENCE, -1, 2, 0, static_cast<int64_t>(loss) - 1 };
      EXPECT_TRUE(SameError(pair->error, expected)) << ErrorText(pair->error);
      EXPECT_EQ(pair->device.Get().counts[CGR__COUNT_REQUESTS], 0);
      pair->Epilogue();
      EXPECT_EQ(pair->device.completion()->generation, loss);
    }
    pair->Prologue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
    EXPECT_EQ(pair->error.error, CGR_STEP_OK);
    pair->Epilogue();
  }
}

// A refused step leaves no batch that a later one could stand on, whatever that one calls it: 0, as the device does, is no
// name.
TEST_P(KernelPrologue, NoBatchStandsAfterRefusal) {
  for (bool named : { true, false }) {
    SCOPED_TRACE(named);
    auto pair = Prepared(*bench_, StepLimits());
    pair->Prologue(pair->Step({ 3, 5 }, { 1, 1 }, 4, 4));
    pair->Epilogue();
    uint64_t batch_seq = named ? pair->model.b.state.batch_seq : 0;
    StagedStep bad = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
    bad.seq += 1;
    pair->Prologue(bad);
    pair->Epilogue();
    for (int s = 0; s < 2; s++) { // and the step that was refused for it leaves none either
      StagedStep standing = pair->Step({ 3, 5 }, { 1, 1 }, 4, 4);
      standing.with_batch = false;
      standing.batch_seq = batch_seq;
      pair->Prologue(standing);
      const cgr__step_error expected = { CGR_STEP_SEQUENCE, -1, 1, 0, static_cast<int64_t>(batch_seq) };
      EXPECT_TRUE(SameError(pair->error, expected)) << ErrorText(pair->error);
      EXPECT_EQ(pair->device.Get().counts[CGR__COUNT_REQUESTS], 0);
      pair->Epilogue();
    }
  }
}

// The same before any batch has come at all.
TEST_P(KernelPrologue, NoBatchStandsAtFirst) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = pair.Step({}, {}, 2, 2);
  step.with_batch = false;
  step.batch_seq = 0;
  pair.Prologue(step);
  EXPECT_TRUE(SameError(pair.error, { CGR_STEP_SEQUENCE, -1, 1, 0, 0 })) << ErrorText(pair.error);
  pair.Epilogue();
}

// An unchanged batch with a bad row is refused each time, not once.
TEST_P(KernelPrologue, BadRowStaysBad) {
  auto pair = Prepared(*bench_, StepLimits());
  pair->Prologue(pair->Step({ 3, 500 }, { 1, 1 }, 4, 4));
  pair->Epilogue();
  for (int s = 0; s < 3; s++) {
    StagedStep standing = pair->Step({ 3, 500 }, { 1, 1 }, 4, 4);
    standing.with_batch = false;
    standing.batch_seq = pair->model.b.state.batch_seq;
    pair->Prologue(standing);
    EXPECT_EQ(pair->error.error, CGR_STEP_ROW);
    pair->Epilogue();
  }
}

// A table of the engine's is read with the same guards and never written.
TEST_P(KernelPrologue, EngineTable) {
  StepLimits limits;
  limits.groups[0].engine_table = 1;
  for (int32_t page : { 9, -1, 100, 1, 0, INT32_MAX, INT32_MIN }) {
    SCOPED_TRACE(page);
    StepPair pair(*bench_, limits);
    Words table(static_cast<size_t>(limits.max_rows * limits.groups[0].stride), 50);
    table[4 * 20 + 1] = page;
    pair.model.b.groups[0].page_table = table;
    pair.device.PutPageTable(0, table);
    pair.Prologue(pair.Step({ 4, 6 }, { 20, 3 }, 4, 30));
    EXPECT_EQ(pair.error.error, page == 9 ? CGR_STEP_OK : CGR_STEP_PAGE);
    pair.Epilogue();
    StagedStep change = pair.Step({}, {}, 1, 1);
    AddChange(&change, CGR__CHANGE_PAGE, 4, 1, 10);
    pair.Prologue(change);
    EXPECT_EQ(pair.error.error, CGR_STEP_CHANGE);
    pair.Epilogue();
  }
}

// Copies the words [begin, end) of a slot, each with a chance of all but one in `one_in`.
void PutBack(std::mt19937_64 &random, const std::vector<unsigned char> &good, int64_t begin, int64_t end, int32_t one_in,
             unsigned char *slot) {
  for (int64_t at = begin; at < end; at += 4)
    if (Pick(random, 1, one_in) != 1)
      std::memcpy(slot + at, &good[static_cast<size_t>(at)], 4);
}

// Arbitrary bytes in a slot, the header's included: the step completes with an error or as what the bytes say, nothing is read
// or written outside (the arrays have guards), and the next good step is right.
TEST_P(KernelPrologue, AnyBytes) {
  StepLimits limits = TwoGroups();
  limits.max_changes = 40;
  const cgr__slot_layout layout = SlotLayout(limits);
  int accepted = 0;
  for (uint64_t seed = 1; seed <= 16; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto chance = [&](int32_t one_in) { return Pick(random, 1, one_in) == 1; };
    auto noise = [&] {
      switch (random() % 5) {
      case 0:
        return static_cast<int32_t>(random());
      case 1:
        return static_cast<int32_t>(random() % 40) - 4;
      case 2:
        return static_cast<int32_t>(1u << random() % 32);
      case 3:
        return Words{ 1, 2, 3, 257 }[random() % 4];
      default:
        return static_cast<int32_t>(random() % 12);
      }
    };
    auto pair = Prepared(*bench_, limits);
    for (int s = 0; s < 30; s++) {
      StagedStep good = pair->Step({ 3, 5, 2 }, { 1, 2, 1 }, Pick(random, 3, 8), Pick(random, 4, 64));
      good.with_batch = !chance(4);
      if (!good.with_batch)
        good.batch_seq = pair->model.b.state.batch_seq;
      good.with_tokens = !chance(3);
      for (int c = 0; c < 3; c++)
        AddChange(&good, c + 1, noise(), noise(), noise());
      unsigned char *slot = pair->device.slot(pair->NextSlot());
      std::vector<unsigned char> image(static_cast<size_t>(layout.stride));
      for (int64_t at = 0; at < layout.stride; at += 4) {
        int32_t word = noise();
        std::memcpy(slot + at, &word, 4);
      }
      WriteSlot(limits, good, image.data());
      if (!chance(16))
        std::memcpy(slot, image.data(), 8); // seq
      if (!chance(8))
        std::memcpy(slot + 8, &image[8], 8); // batch_seq
      int32_t one_in = Pick(random, 0, 2) == 0 ? 2 : 12;
      PutBack(random, image, 16, 32, one_in, slot); // counts and flags
      if (!chance(8))
        std::memcpy(slot + 32, &image[32], 8); // generation
      PutBack(random, image, layout.batch, layout.batch + 40, one_in + 4, slot);
      PutBack(random, image, layout.tokens, layout.tokens + 16, 2, slot);
      PutBack(random, image, layout.changes, layout.changes + 48, 6, slot);
      uint64_t seq = pair->model.b.state.seq + 1;
      pair->PrologueOfSlot(good.padded_requests, good.padded_tokens);
      accepted += pair->model.b.counts[CGR__COUNT_REQUESTS] > 0;
      pair->Epilogue();
      EXPECT_EQ(pair->device.completion()->completed_seq, seq);
      if (chance(3)) {
        StagedStep next = pair->Step({ 2, 7, 3 }, { 1, 0, 5 }, 6, 30);
        for (int32_t row : { 2, 7, 3 }) {
          AddChange(&next, CGR__CHANGE_COMPUTED, row, 0, 10 * row);
          AddPages(limits, &next, row, 3);
        }
        pair->Prologue(next);
        EXPECT_EQ(pair->error.error, CGR_STEP_OK) << ErrorText(pair->error);
        pair->Epilogue();
      }
      if (HasFailure())
        FAIL() << "step " << s;
    }
  }
  EXPECT_GT(accepted, 100); // not all of them are refused at the door
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelPrologue, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test

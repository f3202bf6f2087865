// The prologue against a plain computation of every buffer, over random sequences of steps and under each guard.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "tests/step_case.h"

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
    for (int32_t row : {3, 5, 2}) AddPages(limits, &step, row, 5);
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
  StagedStep step = pair->Step({3, 5, 2}, {1, 16, 2}, 8, 40);
  step.tokens[0] = CGR_TOKEN_LAST;
  pair->Prologue(step);
  StepBuffers got = pair->device.Get();
  // A few numbers by hand, so that the model is not alone.
  EXPECT_EQ(got.input_ids[0], 333);
  EXPECT_EQ(got.input_ids[1], 1001);
  EXPECT_EQ(got.positions[0], 40);
  EXPECT_EQ(got.positions[16], 15);
  EXPECT_EQ(got.positions[18], 16);
  EXPECT_EQ(Words(got.seq_lens.begin(), got.seq_lens.begin() + 4), (Words{41, 16, 17, 0}));
  EXPECT_EQ(Words(got.query_start_loc.begin(), got.query_start_loc.end()), (Words{0, 1, 17, 19, 19, 19, 19, 19, 19}));
  EXPECT_EQ(Words(got.logits_indices.begin(), got.logits_indices.begin() + 4), (Words{0, 16, 18, 0}));
  EXPECT_EQ(Words(got.groups[0].kv_indptr.begin(), got.groups[0].kv_indptr.begin() + 5), (Words{0, 3, 4, 6, 6}));
  EXPECT_EQ(Words(got.groups[0].kv_last_page_len.begin(), got.groups[0].kv_last_page_len.begin() + 4), (Words{9, 16, 1, 1}));
  EXPECT_EQ(Words(got.groups[1].kv_indptr.begin(), got.groups[1].kv_indptr.begin() + 5), (Words{0, 1, 2, 3, 3}));
  int64_t page = 8 + (3 * 5 + 2 * 3) % 20;  // of row 3, index 2
  EXPECT_EQ(got.groups[0].slot_mapping[0], page * 16 + 8);
  EXPECT_EQ(got.groups[0].slot_mapping[19], -1);
  EXPECT_EQ(got.groups[0].slot_mapping[40], 0x6b6b6b6b6b6b6b6b);  // behind the bucket
}

// Grows, shrinks and repeats batches: nothing of an earlier step shows through.
TEST_P(KernelPrologue, RandomSteps) {
  for (uint64_t seed = 1; seed <= 12; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto pick = [&](int32_t low, int32_t high) { return Pick(random, low, high); };
    StepLimits limits = TwoGroups();
    limits.ring_depth = pick(2, 5);
    limits.max_changes = 400;
    StepPair pair(*bench_, limits);
    StagedStep first = pair.Step({}, {}, 1, 1);
    for (int32_t row = 0; row < limits.max_rows; row++) AddPages(limits, &first, row, 20);
    pair.Prologue(first);
    pair.Epilogue();
    StagedStep last = first;
    for (int s = 0; s < 40; s++) {
      Words rows(static_cast<size_t>(limits.max_rows)), lens;
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random);
      rows.resize(static_cast<size_t>(pick(0, limits.max_requests)));
      for (size_t i = 0; i < rows.size(); i++) lens.push_back(pick(0, 2) ? 1 : pick(0, 8));
      StagedStep step = pair.Step(rows, lens, 0, 0);
      if (s > 0 && pick(0, 1)) {  // the batch as it stands
        step.with_batch = false;
        step.num_requests = last.num_requests;
        step.num_tokens = last.num_tokens;
        step.batch_seq = pair.model.b.state.batch_seq;
        step.tokens.assign(static_cast<size_t>(step.num_tokens), 77);
      }
      for (int32_t &flag : step.flags) flag = pick(0, 3) == 0;
      step.with_tokens = pick(0, 1);
      for (int32_t &token : step.tokens) token = pick(0, 2) ? token : CGR_TOKEN_LAST;
      step.padded_requests = pick(step.num_requests, limits.max_requests);
      step.padded_tokens = pick(step.num_tokens, limits.max_tokens);
      int32_t row = pick(0, limits.max_rows - 1);
      if (pick(0, 2) == 0) AddChange(&step, CGR__CHANGE_COMPUTED, row, 0, pick(0, 120));
      if (pick(0, 2) == 0) AddChange(&step, CGR__CHANGE_LAST_TOKEN, row, 0, pick(0, 50000));
      if (pick(0, 2) == 0) AddChange(&step, CGR__CHANGE_PAGE | 256, row, pick(0, 4), pick(8, 29));
      pair.Prologue(step);
      pair.PutNextTokens(Words(static_cast<size_t>(limits.max_requests), 5000 + s));
      pair.Epilogue();
      last = step;
      if (HasFailure()) FAIL() << "step " << s;
    }
  }
}

struct Guard {
  const char *name;
  int32_t error, row, index;
  int64_t value;
  std::function<void(StagedStep *)> spoil;
};

// Each spoiled field of an otherwise good step, then a good step that must be right.
TEST_P(KernelPrologue, EveryGuard) {
  const std::vector<Guard> guards = {
      {"old slot", CGR_STEP_SEQUENCE, -1, 0, 1, [](StagedStep *s) { s->seq--; }},
      {"later slot", CGR_STEP_SEQUENCE, -1, 0, 5, [](StagedStep *s) { s->seq += 3; }},
      {"other batch", CGR_STEP_SEQUENCE, -1, 1, 99, [](StagedStep *s) { s->with_batch = false, s->batch_seq = 99; }},
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
  StepLimits limits = TwoGroups();
  limits.max_changes = 40;
  for (const Guard &guard : guards) {
    SCOPED_TRACE(guard.name);
    auto pair = Prepared(*bench_, limits);
    StagedStep step = pair->Step({3, 5, 2}, {1, 16, 2}, 6, 30);
    step.tokens[0] = CGR_TOKEN_LAST;
    guard.spoil(&step);
    // Changes in front of and behind a bad one are applied.
    if (step.num_changes == 1) AddChange(&step, CGR__CHANGE_LAST_TOKEN, 9, 0, 999);
    pair->Prologue(step);
    EXPECT_TRUE(SameError(pair->error, {guard.error, guard.row, guard.index, 0, guard.value})) << ErrorText(pair->error);
    pair->Epilogue();
    StagedStep good = pair->Step({2, 7}, {1, 0}, 6, 30);
    pair->Prologue(good);
    EXPECT_EQ(pair->error.error, 0);
    pair->Epilogue();
    if (HasFailure()) return;
  }
}

// A refused step leaves no batch that a later one could stand on.
TEST_P(KernelPrologue, NoBatchStandsAfterRefusal) {
  auto pair = Prepared(*bench_, StepLimits());
  pair->Prologue(pair->Step({3, 5}, {1, 1}, 4, 4));
  pair->Epilogue();
  uint64_t batch_seq = pair->model.b.state.batch_seq;
  StagedStep bad = pair->Step({3, 5}, {1, 1}, 4, 4);
  bad.seq += 1;
  pair->Prologue(bad);
  pair->Epilogue();
  StagedStep standing = pair->Step({3, 5}, {1, 1}, 4, 4);
  standing.with_batch = false;
  standing.batch_seq = batch_seq;
  pair->Prologue(standing);
  EXPECT_EQ(pair->error.error, CGR_STEP_SEQUENCE);
  pair->Epilogue();
}

// An unchanged batch with a bad row is refused each time, not once.
TEST_P(KernelPrologue, BadRowStaysBad) {
  auto pair = Prepared(*bench_, StepLimits());
  pair->Prologue(pair->Step({3, 500}, {1, 1}, 4, 4));
  pair->Epilogue();
  for (int s = 0; s < 3; s++) {
    StagedStep standing = pair->Step({3, 500}, {1, 1}, 4, 4);
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
  for (int32_t page : {9, -1, 100, 1, 0, INT32_MAX, INT32_MIN}) {
    SCOPED_TRACE(page);
    StepPair pair(*bench_, limits);
    Words table(static_cast<size_t>(limits.max_rows * limits.groups[0].stride), 50);
    table[4 * 20 + 1] = page;
    pair.model.b.groups[0].page_table = table;
    pair.device.PutPageTable(0, table);
    pair.Prologue(pair.Step({4, 6}, {20, 3}, 4, 30));
    EXPECT_EQ(pair.error.error, page == 9 ? CGR_STEP_OK : CGR_STEP_PAGE);
    pair.Epilogue();
    StagedStep change = pair.Step({}, {}, 1, 1);
    AddChange(&change, CGR__CHANGE_PAGE, 4, 1, 10);
    pair.Prologue(change);
    EXPECT_EQ(pair.error.error, CGR_STEP_CHANGE);
    pair.Epilogue();
  }
}

// Arbitrary bytes in a slot: an error or a step, and nothing written outside; the next good step is right.
TEST_P(KernelPrologue, AnyBytes) {
  std::mt19937_64 random(99);
  StepLimits limits = TwoGroups();
  limits.max_changes = 40;
  auto pair = Prepared(*bench_, limits);
  auto noise = [&] {
    switch (random() % 4) {
      case 0: return static_cast<int32_t>(random());
      case 1: return static_cast<int32_t>(random() % 40) - 4;
      case 2: return static_cast<int32_t>(1u << random() % 32);
      default: return static_cast<int32_t>(random() % 12);
    }
  };
  for (int s = 0; s < 200; s++) {
    StagedStep step = pair->Step({3, 5, 2}, {1, 2, 1}, 8, 30);
    for (int32_t *word : {&step.num_requests, &step.num_tokens, &step.rows[0], &step.rows[1], &step.starts[1], &step.starts[2]})
      if (random() % 6 == 0) *word = noise();
    // Room for what a wrong number of requests or tokens makes the kernel read.
    if (step.num_requests >= 0 && step.num_requests <= 8) {
      step.rows.resize(static_cast<size_t>(step.num_requests), 1);
      step.flags.resize(step.rows.size(), 0);
      step.starts.resize(step.rows.size() + 1, step.starts.back());
    }
    step.tokens.resize(64, 5);
    for (int c = 0; c < 3; c++) {
      int32_t kind = random() % 2 ? Pick(random, 1, 3) : noise(), row = noise(), index = noise(), value = noise();
      AddChange(&step, kind, row, index, value);
    }
    // Two good rows in a batch are different ones: the host sees to that.
    std::vector<int32_t> sorted = step.rows;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) continue;
    // And no two changes name the same word.
    bool twice = false;
    for (int a = 0; a < 3; a++)
      for (int b = 0; b < a; b++) twice = twice || step.changes[a].row == step.changes[b].row;
    if (twice) continue;
    pair->Prologue(step);
    pair->Epilogue();
    if (HasFailure()) FAIL() << "step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelPrologue, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

}  // namespace
}  // namespace cgr_test

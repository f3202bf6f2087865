// The epilogue commits the rows, writes the result and publishes the step, in that order.
#include <gtest/gtest.h>

#include <thread>

#include "tests/step_case.h"

namespace cgr_test {
namespace {

class KernelEpilogue : public ::testing::TestWithParam<DeviceParam> {
 protected:
  void SetUp() override {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_prologue), CGR__DEVICE_OK);
    ASSERT_EQ(dev->ops->preload(dev, &cgr__kernel_epilogue), CGR__DEVICE_OK);
    bench_ = std::make_unique<Bench>(dev);
  }
  static StagedStep WithPages(StagedStep step) {
    for (int32_t row : {3, 5, 2, 8})
      for (int32_t p = 0; p < 4; p++) AddChange(&step, CGR__CHANGE_PAGE, row, p, 10 + row * 4 + p);
    return step;
  }
  static void ExpectResult(StepPair &pair, uint64_t seq, const cgr__step_error &error, const Words &tokens) {
    cgr__result_record record;
    std::memcpy(&record, pair.device.readback(seq), sizeof record);
    EXPECT_EQ(record.seq, seq);
    EXPECT_EQ(record.num_requests, static_cast<int32_t>(tokens.size()));
    EXPECT_EQ(record.error, error.error);
    EXPECT_EQ(record.error_row, error.row);
    EXPECT_EQ(record.error_index, error.index);
    EXPECT_EQ(record.error_value, error.value);
    Words got(tokens.size());
    if (!got.empty()) std::memcpy(got.data(), pair.device.readback(seq) + sizeof record, got.size() * 4);
    EXPECT_EQ(got, tokens);
    EXPECT_EQ(pair.device.completion()->completed_seq, seq);
    EXPECT_EQ(pair.device.completion()->errors, pair.model.b.state.errors);
  }

  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelEpilogue, CommitsRowsAndResult) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({3, 5, 2, 8}, {4, 2, 0, 7}, 8, 20));
  step.flags[1] = static_cast<int32_t>(CGR_REQUEST_PARTIAL);
  AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 12);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 5, 0, 55);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 2, 0, 22);
  pair.Prologue(step);
  pair.PutNextTokens({70, 71, 72, 73, 74, 75, 76, 77});
  pair.Epilogue();
  StepBuffers got = pair.device.Get();
  EXPECT_EQ(got.row_computed[3], 4);
  EXPECT_EQ(got.row_computed[5], 2);
  EXPECT_EQ(got.row_computed[2], 12);
  EXPECT_EQ(got.row_last_tokens[3], 70);
  EXPECT_EQ(got.row_last_tokens[5], 55);  // partial: more of its prompt follows
  EXPECT_EQ(got.row_last_tokens[2], 22);  // nothing new
  EXPECT_EQ(got.row_last_tokens[8], 73);
  EXPECT_EQ(got.row_last_tokens[0], 0x6b6b6b6b);  // what padding names
  EXPECT_EQ(got.row_computed[0], 0);
  ExpectResult(pair, 1, {0, -1, 0, 0, 0}, {70, 71, 72, 73});
}

TEST_P(KernelEpilogue, ReportsErrors) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({3, 5}, {1, 1}, 4, 4));
  step.rows[1] = 12;
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 9));
  pair.Epilogue();
  ExpectResult(pair, 1, {CGR_STEP_ROW, -1, 1, 0, 12}, {9, 9});
  StagedStep bad = pair.Step({3, 5}, {1, 1}, 4, 4);
  bad.seq = 77;
  pair.Prologue(bad);
  pair.Epilogue();
  ExpectResult(pair, 2, {CGR_STEP_SEQUENCE, -1, 0, 0, 77}, {});
  EXPECT_EQ(pair.device.completion()->errors, 2u);
  pair.Prologue(pair.Step({3, 5}, {1, 1}, 4, 4));  // a good one: the first step's pages were applied
  pair.Epilogue();
  ExpectResult(pair, 3, {0, -1, 0, 0, 0}, {9, 9});
  pair.Prologue(pair.Step({6}, {1}, 4, 4));  // a row without pages
  pair.Epilogue();
  ExpectResult(pair, 4, {CGR_STEP_PAGE, 6, 0, 0, 0}, {9});
  EXPECT_EQ(pair.device.completion()->errors, 3u);
}

// A request that a guard refused leaves its row as it was.
TEST_P(KernelEpilogue, RefusedRequestCommitsNothing) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({3, 5}, {4, 2}, 4, 8));
  AddChange(&step, CGR__CHANGE_COMPUTED, 5, 0, 299);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 5, 0, 55);
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 70));
  pair.Epilogue();
  StepBuffers got = pair.device.Get();
  EXPECT_EQ(got.row_computed[3], 4);
  EXPECT_EQ(got.row_computed[5], 299);
  EXPECT_EQ(got.row_last_tokens[5], 55);
  ExpectResult(pair, 1, {CGR_STEP_LENGTH, 5, 1, 0, 301}, {70, 70});
}

// A step that the host gave up half-way completes, and changes no row.
TEST_P(KernelEpilogue, AbandonedStepCommitsNothing) {
  StepPair pair(*bench_, StepLimits());
  pair.Prologue(WithPages(pair.Step({3, 5}, {4, 2}, 4, 8)));
  pair.PutNextTokens(Words(8, 70));
  StepBuffers before = pair.device.Get();
  pair.Epilogue(true);
  StepBuffers after = pair.device.Get();
  EXPECT_EQ(after.row_computed, before.row_computed);
  EXPECT_EQ(after.row_last_tokens, before.row_last_tokens);
  ExpectResult(pair, 1, {0, -1, 0, 0, 0}, {70, 70});
}

// Results stay where they are until ring_depth newer steps have run.
TEST_P(KernelEpilogue, RingOfResults) {
  StepLimits limits;
  limits.ring_depth = 4;
  StepPair pair(*bench_, limits);
  pair.Prologue(WithPages(pair.Step({}, {}, 1, 1)));
  pair.Epilogue();
  for (int32_t s = 2; s < 20; s++) {
    pair.Prologue(pair.Step({3}, {1}, 2, 2));
    pair.PutNextTokens(Words(8, s));
    pair.Epilogue();
    for (int32_t old = std::max(2, s - 3); old < s; old++) {
      cgr__result_record record;
      std::memcpy(&record, pair.device.readback(static_cast<uint64_t>(old)), sizeof record);
      EXPECT_EQ(record.seq, static_cast<uint64_t>(old));
    }
    ExpectResult(pair, static_cast<uint64_t>(s), {0, -1, 0, 0, 0}, {s});
  }
}

// The host that sees completed_seq sees the result, and may fill the slot again; nothing else orders the two sides.
TEST_P(KernelEpilogue, PublishesByCompletedSeqAlone) {
  StepLimits limits;
  StepPair pair(*bench_, limits);
  pair.Prologue(WithPages(pair.Step({3}, {1}, 2, 2)));
  pair.PutNextTokens(Words(8, 41));
  pair.Epilogue();
  cgr__step_args args = pair.device.Args(2, 2);
  for (uint64_t seq = 2; seq < 40; seq++) {
    StagedStep step = pair.Step({3}, {1}, 2, 2);
    step.seq = step.batch_seq = seq;
    pair.device.Stage(step);
    bench_->Enqueue(cgr__kernel_prologue, &args);
    bench_->Enqueue(cgr__kernel_epilogue, &args);
    while (__atomic_load_n(&pair.device.completion()->completed_seq, __ATOMIC_ACQUIRE) != seq) std::this_thread::yield();
    cgr__result_record record;
    std::memcpy(&record, pair.device.readback(seq), sizeof record);
    ASSERT_EQ(record.seq, seq);
    ASSERT_EQ(record.num_requests, 1);
    ASSERT_EQ(record.error, CGR_STEP_OK);
  }
  bench_->Sync();
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelEpilogue, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

}  // namespace
}  // namespace cgr_test

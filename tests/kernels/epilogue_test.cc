// The epilogue commits the rows, writes the result and publishes the step, in that order.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/support/step_case.h"

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
    for (int32_t row : { 3, 5, 2, 8 })
      for (int32_t p = 0; p < 4; p++)
        AddChange(&step, CGR__CHANGE_PAGE, row, p, 10 + row * 4 + p);
    return step;
  }
  static void ExpectResult(StepPair &pair, uint64_t seq, const cgr__step_error &error, const Words &tokens) {
    cgr_test::ExpectResult(pair.device, seq, error, pair.model.b.state, tokens);
  }

  std::unique_ptr<Bench> bench_;
};

TEST_P(KernelEpilogue, CommitsRowsAndResult) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({ 3, 5, 2, 8 }, { 4, 2, 0, 7 }, 8, 20));
  step.flags[1] = static_cast<int32_t>(CGR_REQUEST_PARTIAL);
  AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 12);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 5, 0, 55);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 2, 0, 22);
  pair.Prologue(step);
  pair.PutNextTokens({ 70, 71, 72, 73, 74, 75, 76, 77 });
  pair.Epilogue();
  StepBuffers got = pair.device.Get();
  EXPECT_EQ(got.row_computed[3], 4);
  EXPECT_EQ(got.row_computed[5], 2);
  EXPECT_EQ(got.row_computed[2], 12);
  EXPECT_EQ(got.row_last_tokens[3], 70);
  EXPECT_EQ(got.row_last_tokens[5], 55); // partial: more of its prompt follows
  EXPECT_EQ(got.row_last_tokens[2], 22); // nothing new
  EXPECT_EQ(got.row_last_tokens[8], 73);
  EXPECT_EQ(got.row_last_tokens[0], 0x6b6b6b6b); // what padding names
  EXPECT_EQ(got.row_computed[0], 0);
  ExpectResult(pair, 1, { 0, -1, 0, 0, 0 }, { 70, 71, 72, 73 });
}

TEST_P(KernelEpilogue, ReportsErrors) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({ 3, 5 }, { 1, 1 }, 4, 4));
  step.rows[1] = 12;
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 9));
  pair.Epilogue();
  ExpectResult(pair, 1, { CGR_STEP_ROW, -1, 1, 0, 12 }, { 9, 9 });
  StagedStep bad = pair.Step({ 3, 5 }, { 1, 1 }, 4, 4);
  bad.seq = 77;
  pair.Prologue(bad);
  pair.Epilogue();
  ExpectResult(pair, 2, { CGR_STEP_SEQUENCE, -1, 0, 0, 77 }, {});
  EXPECT_EQ(pair.device.completion()->errors, 2u);
  pair.Prologue(pair.Step({ 3, 5 }, { 1, 1 }, 4, 4)); // a good one: the first step's pages were applied
  pair.Epilogue();
  ExpectResult(pair, 3, { 0, -1, 0, 0, 0 }, { 9, 9 });
  pair.Prologue(pair.Step({ 6 }, { 1 }, 4, 4)); // a row without pages
  pair.Epilogue();
  ExpectResult(pair, 4, { CGR_STEP_PAGE, 6, 0, 0, 0 }, { 9 });
  EXPECT_EQ(pair.device.completion()->errors, 3u);
}

// A request that a guard refused leaves its row as it was.
TEST_P(KernelEpilogue, RefusedRequestCommitsNothing) {
  StepPair pair(*bench_, StepLimits());
  StagedStep step = WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8));
  AddChange(&step, CGR__CHANGE_COMPUTED, 5, 0, 299);
  AddChange(&step, CGR__CHANGE_LAST_TOKEN, 5, 0, 55);
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 70));
  pair.Epilogue();
  StepBuffers got = pair.device.Get();
  EXPECT_EQ(got.row_computed[3], 4);
  EXPECT_EQ(got.row_computed[5], 299);
  EXPECT_EQ(got.row_last_tokens[5], 55);
  ExpectResult(pair, 1, { CGR_STEP_LENGTH, 5, 1, 0, 301 }, { 70, 70 });
}

// A step that the host gave up half-way completes, and changes no row.
TEST_P(KernelEpilogue, AbandonedStepCommitsNothing) {
  StepPair pair(*bench_, StepLimits());
  pair.Prologue(WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8)));
  pair.PutNextTokens(Words(8, 70));
  StepBuffers before = pair.device.Get();
  pair.Epilogue(true);
  StepBuffers after = pair.device.Get();
  EXPECT_EQ(after.row_computed, before.row_computed);
  EXPECT_EQ(after.row_last_tokens, before.row_last_tokens);
  ExpectResult(pair, 1, { 0, -1, 0, 0, 0 }, { 70, 70 });
}

// Results stay where they are until ring_depth newer steps have run.
TEST_P(KernelEpilogue, RingOfResults) {
  StepLimits limits;
  limits.ring_depth = 4;
  StepPair pair(*bench_, limits);
  pair.Prologue(WithPages(pair.Step({}, {}, 1, 1)));
  pair.Epilogue();
  for (int32_t s = 2; s < 20; s++) {
    pair.Prologue(pair.Step({ 3 }, { 1 }, 2, 2));
    pair.PutNextTokens(Words(8, s));
    pair.Epilogue();
    for (int32_t old = std::max(2, s - 3); old < s; old++) {
      cgr__result_record record;
      std::memcpy(&record, pair.device.readback(static_cast<uint64_t>(old)), sizeof record);
      EXPECT_EQ(record.seq, static_cast<uint64_t>(old));
    }
    ExpectResult(pair, static_cast<uint64_t>(s), { 0, -1, 0, 0, 0 }, { s });
  }
}

// What stands behind the real requests is nobody's: no row is committed for it and no token of it is in the result.
TEST_P(KernelEpilogue, GarbageBehindTheRequestsCommitsNothing) {
  for (int wild = 0; wild < 2; wild++) {
    for (int32_t n : { 0, 1, 3 }) {
      SCOPED_TRACE("requests " + std::to_string(n) + (wild ? " wild" : ""));
      StepPair pair(*bench_, StepLimits());
      StagedStep step = WithPages(pair.Step({ 3, 5, 2 }, { 4, 2, 1 }, 8, 20));
      if (n == 0)
        step.seq = 77; // emptied by a guard, which leaves a count of 0 and 8 rows
      if (n == 1)
        step.num_requests = 1, step.num_tokens = 4, step.rows = { 3 }, step.starts = { 0, 4 }, step.flags = { 0 };
      pair.Prologue(step);
      pair.PutNextTokens({ 70, 71, 72, 73, 74, 75, 76, 77 });
      StepBuffers &b = pair.model.b;
      const Words rows = { 9, 10, 11, 0, 1, 4, 6, 7 };
      for (int32_t i = n; i < 8; i++) {
        b.seq_lens[i] = wild ? Words{ INT32_MAX, 1, INT32_MIN, 299 }[i % 4] : 20 + i;
        b.query_start_loc[i + 1] = wild ? Words{ INT32_MAX, 1, INT32_MIN, 7 }[i % 3] : 30 + 3 * i;
        b.request_rows[i] = wild ? Words{ INT32_MAX, 12, -1, INT32_MIN }[i % 4] : rows[i];
        b.request_flags[i] = 0;
      }
      pair.device.PutBatch(b);
      pair.Epilogue();
      StepBuffers got = pair.device.Get();
      for (int32_t row : rows) {
        EXPECT_EQ(got.row_computed[row], 0) << "row " << row;
        EXPECT_EQ(got.row_last_tokens[row], 0x6b6b6b6b) << "row " << row;
      }
      EXPECT_EQ(got.row_computed[3], n > 0 ? 4 : 0);
      Words tokens = { 70, 71, 72 };
      tokens.resize(static_cast<size_t>(n));
      ExpectResult(pair, 1, n > 0 ? cgr__step_error{ 0, -1, 0, 0, 0 } : cgr__step_error{ CGR_STEP_SEQUENCE, -1, 0, 0, 77 },
                   tokens);
      tokens = pair.device.ResultTokens(1);
      for (size_t i = static_cast<size_t>(n); i < tokens.size(); i++)
        EXPECT_EQ(static_cast<uint32_t>(tokens[i]), 0xA5A5A5A5u) << "a token behind the requests was written";
      if (HasFailure())
        return;
    }
  }
}

// The host that sees completed_seq sees the result, and may fill the slot again; nothing else orders the two sides. Every step
// has other tokens, and another number of them.
TEST_P(KernelEpilogue, PublishesByCompletedSeqAlone) {
  const int32_t rows_of_all = 4096;
  StepLimits limits;
  limits.max_requests = limits.max_rows = rows_of_all;
  StepPair pair(*bench_, limits);
  pair.Prologue(pair.Step({}, {}, rows_of_all, 1));
  pair.Epilogue();
  const uint64_t last = 1000, kinds = 64; // steps of one kind are further apart than the ring is deep
  Words all(kinds * rows_of_all);
  std::iota(all.begin(), all.end(), 1000000);
  Array<int32_t> tokens(*bench_, all, CGR__MEMORY_PINNED);
  cgr__step_args args = pair.device.Args(rows_of_all, 1);
  for (uint64_t seq = 2; seq < last; seq++) {
    Words rows(rows_of_all - seq % 3 * 100); // without new tokens, and thus without pages
    for (size_t i = 0; i < rows.size(); i++)
      rows[i] = static_cast<int32_t>((i + seq) % rows_of_all);
    StagedStep step = pair.Step(rows, Words(rows.size(), 0), rows_of_all, 1);
    step.seq = step.batch_seq = seq;
    pair.device.Stage(step);
    bench_->Enqueue(cgr__kernel_prologue, &args);
    bench_->EnqueueCopy(args.next_tokens, tokens.data() + seq % kinds * rows_of_all, rows_of_all * sizeof(int32_t));
    bench_->Enqueue(cgr__kernel_epilogue, &args);
    const unsigned char *result = pair.device.readback(seq);
    const unsigned char *at_end = result + sizeof(cgr__result_record) + (rows.size() - 1) * sizeof(int32_t);
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int spins = 0; __atomic_load_n(&pair.device.completion()->completed_seq, __ATOMIC_ACQUIRE) != seq; spins++) {
      if (spins % 4096 != 4095)
        continue;
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "step " << seq << " does not complete";
      std::this_thread::yield();
    }
    int32_t final_token; // at once, and what a careless epilogue would store last
    std::memcpy(&final_token, at_end, sizeof final_token);
    const int64_t begin = static_cast<int64_t>(seq % kinds * rows_of_all), count = static_cast<int64_t>(rows.size());
    ASSERT_EQ(final_token, all[static_cast<size_t>(begin + count - 1)]) << "step " << seq;
    ExpectResult(pair, seq, { 0, -1, 0, 0, 0 }, Words(all.begin() + begin, all.begin() + begin + count));
    ASSERT_FALSE(HasFailure()) << "step " << seq;
  }
  bench_->Sync();
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelEpilogue, ::testing::ValuesIn(KernelDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test

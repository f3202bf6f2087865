// Steps that are prepared and given up, or fail at launch, lose no change; and changes that do not fit into one slot.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Cancel : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    Make([](cgr_config *) {});
  }
  void Make(const std::function<void(cgr_config *)> &adjust) {
    toy_.reset();
    ToyOptions options = ToyOptionsFor(GetParam());
    options.adjust = adjust;
    toy_ = std::make_unique<Toy>(options);
    CGR_ASSERT_OK(toy_->Capture());
  }
  // The tables on the device are the model's.
  void CheckTables() {
    Toy &toy = *toy_;
    std::vector<int64_t> table = toy.Buffer(CGR_BUFFER_PAGE_TABLE), computed = toy.Buffer(CGR_BUFFER_ROW_COMPUTED);
    size_t stride = static_cast<size_t>(toy.View(CGR_BUFFER_PAGE_TABLE).stride);
    for (auto &[row, r] : toy.requests) {
      size_t n = static_cast<size_t>(row);
      ASSERT_EQ(computed[n], r->num_tokens) << "row " << row;
      ASSERT_EQ(toy.Info(row).num_tokens, r->num_tokens);
      ASSERT_EQ(toy.Info(row).num_pages, static_cast<int32_t>(r->pages.size()));
      for (size_t p = 0; p < r->pages.size(); p++)
        ASSERT_EQ(table[n * stride + p], r->pages[p]) << "row " << row << " page " << p;
    }
  }
  void PrepareAndCancel(const std::vector<ToyItem> &items) {
    uint64_t cancelled = toy_->Stats().cancelled;
    CGR_ASSERT_OK(toy_->Prepare(items));
    CGR_ASSERT_OK(cgr_step_cancel(toy_->rt, &toy_->step));
    ASSERT_EQ(toy_->Stats().cancelled, cancelled + 1);
  }
  std::unique_ptr<Toy> toy_;
};

TEST_P(Cancel, CancelledStepLosesNeitherPagesNorRows) {
  Toy &toy = *toy_;
  int32_t a = toy.Open(), b = toy.Open();
  toy.Reserve(a, 40);
  toy.Reserve(b, 20);
  for (int n = 0; n < 3; n++)
    PrepareAndCancel({ { a, Toy::Prompt(30, 1), false }, { b, Toy::Prompt(20, 2), false } });
  EXPECT_EQ(toy.Info(a).num_tokens, 0);
  EXPECT_EQ(toy.Info(a).last_seq, 0u);
  toy.Step({ { b, Toy::Prompt(20, 2), false } });
  toy.Step({ { a, Toy::Prompt(30, 1), false } });
  toy.Step(toy.Decode({ a, b }));
  CheckTables();
}

TEST_P(Cancel, CancelledCompositionIsNotTakenForTheLastOne) {
  Toy &toy = *toy_;
  std::vector<int32_t> rows = { toy.Start(5, 1), toy.Start(9, 2), toy.Start(30, 3) };
  toy.Step(toy.Decode(rows));
  toy.Step(toy.Decode(rows)); // unchanged: nothing but a header travels
  PrepareAndCancel(toy.Decode({ rows[2], rows[0], rows[1] }));
  toy.Step(toy.Decode(rows));
  PrepareAndCancel(toy.Decode({ rows[2], rows[0] }));
  toy.Step(toy.Decode({ rows[2], rows[0] }));
  PrepareAndCancel(toy.Decode(rows));
  PrepareAndCancel({});
  toy.Step(toy.Decode({ rows[2], rows[0] }));
  toy.Step(toy.Decode(rows));
  CheckTables();
}

TEST_P(Cancel, AnyInterleavingOfChangesStepsAndCancels) {
  for (uint32_t seed : { 1u, 2u, 3u }) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SetUp();
    Toy &toy = *toy_;
    std::mt19937 random(seed);
    for (int n = 0; n < 150 && !HasFatalFailure(); n++) {
      SCOPED_TRACE("iteration " + std::to_string(n));
      std::vector<int32_t> rows = toy.Rows();
      if (rows.size() < 6 && random() % 3 == 0)
        toy.Open();
      if (!rows.empty() && random() % 12 == 0)
        toy.Close(rows[random() % rows.size()]);
      if (!rows.empty() && random() % 10 == 0) {
        int32_t row = rows[random() % rows.size()];
        if (toy.requests.count(row) != 0 && toy.requests[row]->num_tokens > 0)
          toy.Rewind(row, static_cast<int32_t>(random() % static_cast<uint32_t>(toy.requests[row]->num_tokens)));
      }
      std::vector<ToyItem> items;
      for (int32_t row : toy.Rows()) {
        ToyRequest &r = *toy.requests[row];
        if (random() % 5 == 0 || r.num_tokens + 8 > toy.o.max_seq_len)
          continue;
        int32_t length = random() % 4 == 0 ? static_cast<int32_t>(random() % 8) : 1;
        toy.Reserve(row, r.num_tokens + length);
        items.push_back({ row, Toy::Prompt(length, n), random() % 8 == 0 });
      }
      std::shuffle(items.begin(), items.end(), random);
      switch (random() % 4) {
      case 0:
        PrepareAndCancel(items);
        break;
      case 1:
        PrepareAndCancel({});
        toy.Step(items);
        break;
      default:
        toy.Step(items);
      }
      if (n % 10 == 9) {
        toy.Step({});
        CheckTables();
      }
    }
    for (int32_t row : toy.Rows())
      if (toy.requests[row]->num_tokens + 8 > toy.o.max_seq_len)
        toy.Close(row);
  }
}

TEST_P(Cancel, FailingRecordIsACancelledStep) {
  Toy &toy = *toy_;
  int32_t a = toy.Start(5, 1), b = toy.Start(16, 2);
  for (int32_t k = 0; k <= 5 && !HasFatalFailure(); k++) {
    SCOPED_TRACE("fails after " + std::to_string(k));
    // New pages and a new composition travel with the step that fails.
    toy.Reserve(a, toy.Info(a).num_tokens + 40);
    int32_t fresh = toy.Open();
    toy.Reserve(fresh, 20);
    std::vector<ToyItem> items = { { b, { CGR_TOKEN_LAST }, false },
                                   { fresh, Toy::Prompt(20, k), false },
                                   { a, { 7, 8 }, false } };
    toy.Reserve(b, toy.Info(b).num_tokens + 1);
    cgr_request_info before = toy.Info(a);
    toy.engine.fail_after = k;
    for (int n = 0; n < 2; n++) {
      CGR_ASSERT_OK(toy.Prepare(items));
      cgr_status status = toy.Launch();
      if (toy.o.fixed && k > 3) { // fewer calls than that
        toy.engine.fail_after = -1;
        ASSERT_EQ(status, CGR_OK);
        toy.CheckAll();
        return;
      }
      EXPECT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_CALLBACK") << cgr_last_message();
      cgr_request_info after = toy.Info(a);
      EXPECT_EQ(after.num_tokens, before.num_tokens);
      EXPECT_EQ(after.last_seq, before.last_seq);
      EXPECT_EQ(toy.Info(fresh).num_tokens, 0);
    }
    toy.engine.fail_after = -1;
    toy.Step(items);
    CheckTables();
    toy.Step(toy.Decode({ a, b, fresh }));
    CheckTables();
    toy.Close(fresh);
    toy.Rewind(a, 5);
  }
}

TEST_P(Cancel, FailingRecordKeepsItsOwnStatus) {
  Toy &toy = *toy_;
  int32_t a = toy.Start(5, 1);
  toy.Reserve(a, 20);
  toy.engine.fail_after = 1;
  toy.engine.fail_status = CGR_ERROR_CALLBACK;
  CGR_ASSERT_OK(toy.Prepare({ { a, { 1, 2 }, false } }));
  CGR_EXPECT(CGR_ERROR_CALLBACK, toy.Launch());
  EXPECT_NE(std::string(cgr_last_message()).find("CGR_ERROR_CALLBACK"), std::string::npos) << cgr_last_message();
  toy.engine.fail_after = -1;
  toy.Step({ { a, { 1, 2 }, false } });
}

// ---- more changes than a slot holds

// Prepares with as many flushes as it takes.
void PrepareWithFlush(Toy &toy, const std::vector<ToyItem> &items, int *flushes) {
  for (int n = 0; n < 200; n++) {
    cgr_status status = toy.Prepare(items);
    if (status == CGR_OK)
      return;
    ASSERT_EQ(std::string(cgr_status_name(status)), "CGR_ERROR_BUSY") << cgr_last_message();
    status = cgr_runtime_flush(toy.rt, toy.stream);
    ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_status_name(status) << cgr_last_message();
    ++*flushes;
    toy.Sync();
  }
  FAIL() << "prepare stays busy";
}

TEST_P(Cancel, ManyChangesTravelInExtraSteps) {
  for (int32_t max_changes : { 1, 4, 7, 16 }) {
    SCOPED_TRACE(max_changes);
    Make([max_changes](cgr_config *config) { config->max_changes = max_changes; });
    Toy &toy = *toy_;
    std::vector<int32_t> rows;
    int flushes = 0;
    for (int32_t i = 0; i < 4; i++) {
      rows.push_back(toy.Open());
      toy.Reserve(rows.back(), 150); // ten pages
    }
    std::vector<ToyItem> items;
    for (int32_t i = 0; i < 4; i++)
      items.push_back({ rows[static_cast<size_t>(i)], Toy::Prompt(16, i), false });
    PrepareWithFlush(toy, items, &flushes);
    if (HasFatalFailure())
      return;
    if (max_changes <= 4) {
      EXPECT_GT(flushes, 0);
    }
    CGR_ASSERT_OK(cgr_step_cancel(toy.rt, &toy.step));
    PrepareWithFlush(toy, items, &flushes);
    if (HasFatalFailure())
      return;
    CGR_ASSERT_OK(toy.Launch());
    toy.CheckAll();
    CheckTables();
    cgr_stats stats = toy.Stats();
    EXPECT_GT(stats.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], 0u);
    for (int n = 0; n < 5 && !HasFatalFailure(); n++)
      toy.Step(toy.Decode(rows));
    EXPECT_EQ(toy.Stats().by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL], stats.by_reason[CGR_KIND_NONE][CGR_REASON_INTERNAL]);
  }
}

// A launch that takes extra steps along leaves the result of the step before it readable.
TEST_P(Cancel, OneLaunchNeverExpiresTheStepBefore) {
  for (int32_t depth : { 2, 3, 4 }) {
    SCOPED_TRACE(depth);
    Make([depth](cgr_config *config) { config->max_changes = 3, config->ring_depth = depth; });
    Toy &toy = *toy_;
    int32_t row = toy.Start(3, 1), flushes = 0;
    for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
      CGR_ASSERT_OK(toy.Prepare(toy.Decode({ row })));
      CGR_ASSERT_OK(toy.Launch());
      uint64_t before = toy.launched;
      toy.Sync();
      int32_t other = toy.Open(), pages = 1 + n % 9;
      toy.Reserve(other, pages * 16);
      std::vector<ToyItem> items = { { other, Toy::Prompt(2, n), false } };
      while (toy.Prepare(items) != CGR_OK) { // too much for one launch: nothing has happened to the result
        if (before != 0)
          CGR_ASSERT_OK(cgr_step_wait(toy.rt, before, nullptr));
        toy.CheckAll();
        cgr_status status = cgr_runtime_flush(toy.rt, toy.stream);
        ASSERT_TRUE(status == CGR_OK || status == CGR_ERROR_BUSY) << cgr_last_message();
        toy.Sync();
        ASSERT_LT(flushes++, 1000);
        before = 0;
      }
      CGR_ASSERT_OK(toy.Launch());
      if (before != 0)
        CGR_ASSERT_OK(cgr_step_wait(toy.rt, before, nullptr));
      toy.CheckAll();
      toy.Close(other);
    }
  }
}

TEST_P(Cancel, BusyForChangesChangesNothing) {
  Make([](cgr_config *config) { config->max_changes = 1; });
  Toy &toy = *toy_;
  int32_t row = toy.Open();
  toy.Reserve(row, 160);
  for (int n = 0; n < 2; n++)
    ExpectRefused(
        toy, CGR_ERROR_BUSY, { "cgr_runtime_flush" },
        [&] {
          return toy.Prepare({ { row, Toy::Prompt(16, 1), false } });
        },
        1);
  int flushes = 0;
  PrepareWithFlush(toy, { { row, Toy::Prompt(16, 1), false } }, &flushes);
  CGR_ASSERT_OK(toy.Launch());
  toy.CheckAll();
}

TEST_P(Cancel, FlushWithoutChangesIsNothing) {
  Toy &toy = *toy_;
  int32_t row = toy.Start(5, 1);
  uint64_t steps = toy.Stats().steps;
  CGR_ASSERT_OK(cgr_runtime_flush(toy.rt, toy.stream));
  EXPECT_EQ(toy.Stats().steps, steps);
  toy.Reserve(row, 60);
  CGR_ASSERT_OK(cgr_runtime_flush(toy.rt, toy.stream));
  EXPECT_GT(toy.Stats().steps, steps);
  toy.Sync();
  toy.launched = cgr_runtime_completed(toy.rt);
  CheckTables();
  toy.Step(toy.Decode({ row }));
  CGR_ASSERT_OK(toy.Prepare(toy.Decode({ row })));
  cgr_status status = cgr_runtime_flush(toy.rt, toy.stream); // between prepare and launch: either way the step is right
  EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_STATE) << cgr_status_name(status);
  CGR_ASSERT_OK(toy.Launch());
  toy.CheckAll();
}

CGR_INSTANTIATE_OVER_DEVICES(Cancel);

} // namespace
} // namespace cgr_test

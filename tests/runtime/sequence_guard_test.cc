// The device finds something in a ring slot that the protocol does not allow: the step runs without requests and says so, and so
// do later steps that were prepared before the host knew. Nothing is written, nothing is lost, and once the lengths of the rows
// are set back, everything continues.
#include "buffers/ring_slot.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

// An engine whose rings are in the test's own memory, so that the test can find the ring slot of a step and spoil it.
class Rings {
public:
  Rings(const DeviceParam &device, int32_t depth) {
    EngineOptions options = OptionsFor(device);
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &options.handle));
    CGR_EXPECT_OK(cgr_memory_alloc_pinned(options.handle, kBytes, &pinned_));
    options.adjust = [this, depth](cgr_config *config) {
      config->ring_depth = depth, config->pinned_memory = pinned_, config->pinned_memory_size = kBytes;
    };
    engine = std::make_unique<Engine>(options);
    engine->OwnPinned(pinned_);
    CGR_EXPECT_OK(engine->Capture());
  }
  // The header of the ring slot of step `seq`, found by its content.
  cgr__ring_slot_header *Find(uint64_t seq, int32_t num_requests, int32_t num_tokens) {
    cgr__ring_slot_header *found = nullptr;
    for (size_t at = 0; at + sizeof(cgr__ring_slot_header) <= kBytes; at += 64) {
      cgr__ring_slot_header *header = reinterpret_cast<cgr__ring_slot_header *>(static_cast<unsigned char *>(pinned_) + at);
      if (header->seq == seq && header->num_requests == num_requests && header->num_tokens == num_tokens &&
          header->batch_seq <= seq && header->flags < 16) {
        EXPECT_EQ(found, nullptr) << "two ring slots bear the number " << seq;
        found = header;
      }
    }
    EXPECT_NE(found, nullptr) << "no ring slot bears the number " << seq;
    return found;
  }
  std::unique_ptr<Engine> engine;

private:
  static constexpr size_t kBytes = size_t{ 1 } << 20;
  void *pinned_ = nullptr;
};

class SequenceGuard : public ::testing::Test {
protected:
  // A fresh engine; steps run at the last moment, so that their ring slots can be spoiled.
  void Make(int32_t depth = 4) {
    rings_.reset();
    rings_ = std::make_unique<Rings>(HostParam(CGR_SCHEDULE_LATEST), depth);
  }
  Engine &engine() { return *rings_->engine; }
  // Launches a step, spoils its ring slot, and returns its number.
  uint64_t LaunchSpoiled(const std::vector<Item> &items, const std::function<void(cgr__ring_slot_header *)> &spoil) {
    engine().PrepareAndLaunch(items);
    cgr__ring_slot_header *header = rings_->Find(engine().launched, engine().step.num_requests, engine().step.num_tokens);
    if (header != nullptr)
      spoil(header);
    return engine().launched;
  }
  // The rows of a step that was lost go back to the lengths that the device has.
  void SetBack(const std::vector<std::pair<int32_t, int32_t>> &lengths) {
    engine().Forget();
    for (const auto &[row, length] : lengths)
      engine().SetLength(row, length);
  }
  std::unique_ptr<Rings> rings_;
};

// An unchanged batch travels as a header alone, so it depends on the step before.
TEST_F(SequenceGuard, ReportsANumberThatIsNotTheExpectedOne) {
  for (int32_t depth : { 2, 3, 4 }) {
    SCOPED_TRACE(depth);
    Make(depth);
    int32_t a = engine().Start(5, 1), b = engine().Start(16, 2), c = engine().Start(30, 3);
    engine().Step(engine().Decode({ a, b, c }));
    for (int32_t row : { a, b, c })
      engine().Reserve(row, 40);
    std::vector<int64_t> computed = engine().Buffer(CGR_BUFFER_ROW_COMPUTED), last = engine().Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
    std::vector<uint64_t> seqs = { LaunchSpoiled({ { a, { 3 } }, { b, { 4 } } },
                                                 [](cgr__ring_slot_header *h) { h->seq += 100; }) };
    if (depth > 2) { // one after it, of the same batch
      ASSERT_NO_FATAL_FAILURE(engine().PrepareAndLaunch(engine().Decode({ a, b })));
      EXPECT_EQ(engine().step.bytes_staged, sizeof(cgr__ring_slot_header));
      seqs.push_back(engine().launched);
    }
    for (uint64_t seq : seqs)
      engine().ExpectGuarded(seq, CGR_GUARD_SEQUENCE);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(engine().rt, cgr_mark{ 0, 0, seqs[0] }, -1, &result));
    EXPECT_EQ(result.guard.row, -1);
    EXPECT_EQ(result.guard.value, int64_t(seqs[0] + 100));
    std::vector<int64_t> counts = engine().Buffer(CGR_BUFFER_COUNTS);
    EXPECT_EQ(counts[0], 0);
    EXPECT_EQ(counts[1], 0);
    EXPECT_EQ(engine().Buffer(CGR_BUFFER_ROW_COMPUTED), computed);
    EXPECT_EQ(engine().Buffer(CGR_BUFFER_ROW_LAST_TOKENS), last);
    engine().CheckCaches();
    EXPECT_EQ(engine().Info(a).num_tokens, 6 + int32_t(seqs.size()));
    SetBack({ { a, 6 }, { b, 17 } });
    for (int n = 0; n < 6 && !HasFatalFailure(); n++) {
      std::vector<Item> items = engine().Decode({ a, b, c });
      if (n == 0)
        items[0].tokens = { 3 }, items[1].tokens = { 4 };
      engine().Step(items);
    }
    engine().CheckCaches();
  }
}

// This holds whatever the later steps carry.
TEST_F(SequenceGuard, StepsPreparedAfterALostOneRunWithoutRequests) {
  Make();
  int32_t a = engine().Start(5, 1), b = engine().Start(16, 2);
  engine().Decode({ a, b });
  std::vector<int64_t> computed = engine().Buffer(CGR_BUFFER_ROW_COMPUTED);
  std::vector<uint64_t> seqs = { LaunchSpoiled({ { a, { 3 } }, { b, { 4 } } }, [](cgr__ring_slot_header *h) { h->seq += 100; }) };
  for (const std::vector<Item> &items : { std::vector<Item>{ { b, { CGR_TOKEN_LAST } } }, // another batch
                                          std::vector<Item>{ { b, { 5 } }, { a, { CGR_TOKEN_LAST } } } }) {
    ASSERT_NO_FATAL_FAILURE(engine().PrepareAndLaunch(items));
    seqs.push_back(engine().launched);
  }
  for (uint64_t seq : seqs)
    engine().ExpectGuarded(seq, CGR_GUARD_SEQUENCE);
  EXPECT_EQ(engine().Buffer(CGR_BUFFER_ROW_COMPUTED), computed);
  SetBack({ { a, 5 }, { b, 16 } });
  for (int n = 0; n < 4 && !HasFatalFailure(); n++)
    engine().Step({ { a, { n } }, { b, { n + 1 } } });
  engine().CheckCaches();
}

// Why that matters: the lost step carried the pages of a row that has been reused. On the device the row still has the pages and
// the length of the previous request, and those pages belong to another request by now.
TEST_F(SequenceGuard, StepsPreparedAfterALostOneWriteNoPageOfOthers) {
  Make();
  int32_t old = engine().Start(5, 1), page = engine().requests[old]->pages[0];
  engine().Close(old);
  int32_t reused = engine().Open(), other = engine().Open();
  ASSERT_EQ(reused, old) << "this test needs a row that is given out again";
  CGR_ASSERT_OK(cgr_request_set_pages(engine().rt, other, 0, 0, &page, 1));
  engine().Adopt(other, { page });
  engine().Step({ Engine::Chunk(other, 9, 2) });
  engine().Reserve(reused, 16);
  uint64_t lost = LaunchSpoiled({ Engine::Chunk(reused, 3, 1) }, [](cgr__ring_slot_header *h) { h->seq += 100; });
  ASSERT_NO_FATAL_FAILURE(engine().PrepareAndLaunch({ { reused, { 4 } } }));
  engine().ExpectGuarded(lost, CGR_GUARD_SEQUENCE);
  engine().ExpectGuarded(engine().launched, CGR_GUARD_SEQUENCE);
  engine().CheckCaches();
  SetBack({ { reused, 0 } });
  engine().Step({ Engine::Chunk(reused, 3, 1), { other, { CGR_TOKEN_LAST } } });
  engine().CheckCaches();
}

TEST_F(SequenceGuard, LostStepWithPageChangesLosesNone) {
  for (int32_t depth : { 2, 4 }) {
    SCOPED_TRACE(depth);
    Make(depth);
    int32_t a = engine().Start(16, 1), fresh = engine().Open(), dropped = engine().Start(40, 3);
    engine().Reserve(a, 60);
    engine().Reserve(fresh, 60);
    engine().DropPages(dropped, 1, 2); // these changes travel with the step that is spoiled
    std::vector<Item> items = { { a, { 3 } }, Engine::Chunk(fresh, 33, 1) };
    engine().ExpectGuarded(LaunchSpoiled(items, [](cgr__ring_slot_header *h) { h->seq = 0; }), CGR_GUARD_SEQUENCE);
    SetBack({ { a, 16 }, { fresh, 0 }, { dropped, 16 } });
    engine().Step({ items[1], items[0] });
    for (int n = 0; n < 5 && !HasFatalFailure(); n++)
      engine().Step(engine().Decode({ a, fresh }));
    std::vector<int64_t> table = engine().Buffer(CGR_BUFFER_PAGE_TABLE);
    for (size_t p = 1; p < 3; p++)
      EXPECT_EQ(table[size_t(dropped) * 10 + p], 0) << "page " << p << " was taken away";
    engine().CheckCaches();
  }
}

// Whether or not something is pending after the loss, the flush brings all rows back, under the new generation.
TEST_F(SequenceGuard, AFlushRightAfterALossSendsEverythingAgain) {
  for (bool pending : { false, true }) {
    SCOPED_TRACE(pending);
    Make();
    int32_t a = engine().Start(16, 1), b = engine().Start(5, 2);
    engine().Reserve(a, 60); // these pages travel with the step that is spoiled
    uint64_t lost = LaunchSpoiled({ { a, { 3 } }, { b, { 4 } } }, [](cgr__ring_slot_header *h) { h->seq = 0; });
    engine().ExpectGuarded(lost, CGR_GUARD_SEQUENCE);
    if (pending)
      SetBack({ { a, 16 }, { b, 5 } });
    CGR_ASSERT_OK(engine().Flush());
    EXPECT_EQ(engine().launched, lost + 1);
    CGR_EXPECT_OK(cgr_step_wait(engine().rt, cgr_mark{ 0, 0, engine().launched }, -1, nullptr));
    ExpectTables(engine());
    if (!pending)
      SetBack({ { a, 16 }, { b, 5 } });
    engine().Step({ { a, { 3 } }, { b, { 4 } } });
    engine().Step(engine().Decode({ a, b }));
    engine().CheckCaches();
  }
}

// A warm-up carries no changes, but its steps must bear the new generation too.
TEST_F(SequenceGuard, AWarmUpRightAfterALossIsNotRefused) {
  Make();
  int32_t a = engine().Start(16, 1);
  engine().Reserve(a, 60);
  engine().ExpectGuarded(LaunchSpoiled({ { a, { 3 } } }, [](cgr__ring_slot_header *h) { h->seq = 0; }), CGR_GUARD_SEQUENCE);
  CGR_ASSERT_OK(engine().Warmup());
  EXPECT_EQ(engine().Stats().guard_errors, engine().guard_errors);
  SetBack({ { a, 16 } });
  engine().Step({ { a, { 3 } } });
  engine().Step(engine().Decode({ a }));
  ExpectTables(engine());
  engine().CheckCaches();
}

// A header alone depends on the batch of the step that it names.
TEST_F(SequenceGuard, ReportsABatchThatIsNotTheExpectedOne) {
  Make();
  int32_t a = engine().Start(5, 1), b = engine().Start(16, 2);
  for (int n = 0; n < 2; n++)
    engine().Step(engine().Decode({ a, b }));
  uint64_t seq = LaunchSpoiled(engine().Decode({ a, b }), [](cgr__ring_slot_header *h) { h->batch_seq--; });
  EXPECT_EQ(engine().step.bytes_staged, sizeof(cgr__ring_slot_header));
  engine().ExpectGuarded(seq, CGR_GUARD_SEQUENCE);
  SetBack({ { a, 7 }, { b, 18 } });
  engine().Step({ { a, { 3 } }, { b, { 4 } } });
  engine().Step(engine().Decode({ a, b }));
  engine().CheckCaches();
}

TEST_F(SequenceGuard, ReportsCountsThatTheStepWasNotLaunchedFor) {
  struct Bad {
    const char *name;
    int32_t requests, tokens;
    const char *says;
  };
  for (const Bad &bad :
       { Bad{ "requests above the bucket", 5, 2, "5 requests, expected 0" },
         Bad{ "tokens above the bucket", 2, 3, "3 tokens, expected 0" }, Bad{ "negative", -1, 2, "-1 requests" },
         Bad{ "negative tokens", 2, -2, "-2 tokens" }, Bad{ "fewer tokens", 2, 1, "query_start_loc[2] is 2, expected 0 first" },
         Bad{ "huge", INT32_MAX, INT32_MAX, "2147483647 requests" } }) {
    SCOPED_TRACE(bad.name);
    Make();
    int32_t a = engine().Start(5, 1), b = engine().Start(16, 2);
    engine().Decode({ a, b });
    std::vector<Item> items = { { a, { 3 } }, { b, { 4 } } };
    uint64_t seq =
        LaunchSpoiled(items, [&](cgr__ring_slot_header *h) { h->num_requests = bad.requests, h->num_tokens = bad.tokens; });
    engine().ExpectGuarded(seq, CGR_GUARD_COUNT);
    CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(engine().rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
    EXPECT_NE(std::string(cgr_last_message()).find(bad.says), std::string::npos) << cgr_last_message();
    SetBack({ { a, 5 }, { b, 16 } });
    engine().Step(items);
    engine().Step(engine().Decode({ a, b }));
    engine().CheckCaches();
  }
}

} // namespace
} // namespace cgr_test

// The rings: steps in flight up to the depth, a full ring, the slot fence and the number in a slot's header. The host device
// executes at the last legal moment, or at random ones, so that what relies on luck fails.
#include "buffers/slot.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Case {
  DeviceParam device;
  int32_t depth;
};

void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label() << ", depth " << made.depth; }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int32_t depth : { 2, 3, 4 }) {
    cases.push_back({ HostParam(CGR_HOST_LATEST), depth });
    cases.push_back({ HostParam(CGR_HOST_RANDOM, 1), depth });
    cases.push_back({ HostParam(CGR_HOST_RANDOM, 99), depth });
    cases.push_back({ CudaParam(), depth });
  }
  return cases;
}
std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + "_depth_" + std::to_string(made.param.depth);
}

// A toy whose rings lie in memory of the test.
class Rings {
public:
  Rings(const DeviceParam &device, int32_t depth) {
    ToyOptions options = ToyOptionsFor(device);
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &options.handle));
    CGR_EXPECT_OK(cgr_memory_alloc_pinned(options.handle, bytes_, &pinned));
    options.adjust = [this, depth](cgr_config *config) {
      config->ring_depth = depth;
      config->pinned_memory = pinned;
      config->pinned_memory_size = bytes_;
    };
    toy = std::make_unique<Toy>(options);
    handle_ = options.handle;
    CGR_EXPECT_OK(toy->Capture());
  }
  ~Rings() {
    // The memory goes with the device, which the toy closes; on the host it must be given back before.
    if (toy != nullptr) {
      CGR_EXPECT_OK(cgr_runtime_destroy(toy->rt));
      toy->rt = nullptr;
      CGR_EXPECT_OK(cgr_memory_free_pinned(handle_, pinned));
    }
  }
  // Headers of staging slots that carry `seq`, found by their content.
  cgr__slot_header *Find(uint64_t seq, int32_t num_requests, int32_t num_tokens) {
    cgr__slot_header *found = nullptr;
    for (size_t at = 0; at + sizeof(cgr__slot_header) <= bytes_; at += 64) {
      cgr__slot_header *header = reinterpret_cast<cgr__slot_header *>(static_cast<unsigned char *>(pinned) + at);
      if (header->seq == seq && header->num_requests == num_requests && header->num_tokens == num_tokens &&
          header->batch_seq <= seq && header->flags <= 3) {
        EXPECT_EQ(found, nullptr) << "two slots carry the number " << seq;
        found = header;
      }
    }
    return found;
  }
  std::unique_ptr<Toy> toy;
  void *pinned = nullptr;

private:
  size_t bytes_ = size_t{ 1 } << 20;
  cgr_device *handle_ = nullptr;
};

class Ring : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
};

// Every step has another composition and other tokens, and the ring is as full as it may be: a slot that is written before the
// step that used it has run gives that step the content of a later one.
TEST_P(Ring, SlotIsNotWrittenBeforeItsStepHasRun_FailsWithoutTheSlotFence) {
  Rings rings(GetParam().device, GetParam().depth);
  if (HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 8; i++)
    rows.push_back(toy.Start(2 + 3 * i, i));
  for (int32_t row : rows)
    toy.Reserve(row, 100);
  std::mt19937 random(17);
  int busy = 0;
  for (int n = 0; n < 60 && !HasFatalFailure(); n++) {
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<ToyItem> items;
    for (size_t i = 0; i < 1 + random() % 8; i++)
      items.push_back({ rows[i], { static_cast<int32_t>(random() % 50) }, false });
    cgr_status status = toy.Prepare(items);
    if (status == CGR_ERROR_BUSY) {
      busy++;
      ASSERT_EQ(toy.num_pending(), static_cast<size_t>(GetParam().depth));
      toy.CheckOne();
      status = toy.Prepare(items);
    }
    CGR_ASSERT_OK(status);
    if (toy.num_pending() == static_cast<size_t>(GetParam().depth))
      toy.CheckOne(); // its result would be overwritten
    CGR_ASSERT_OK(toy.Launch());
  }
  toy.CheckAll();
  if (GetParam().device.config.host_schedule == CGR_HOST_LATEST && !GetParam().device.IsCuda()) {
    EXPECT_GT(busy, 40);
  }
}

class FullRing : public ::testing::TestWithParam<int32_t> {};

// Nothing drains by itself here.
TEST_P(FullRing, IsBusyAndChangesNothing) {
  Rings rings(HostParam(CGR_HOST_LATEST), GetParam());
  if (HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  int32_t a = toy.Start(5, 1), b = toy.Start(20, 2);
  toy.Reserve(a, 60);
  toy.Reserve(b, 60);
  for (int round = 0; round < 5 && !HasFatalFailure(); round++) {
    for (int32_t n = 0; n < GetParam(); n++) {
      CGR_ASSERT_OK(toy.Prepare(toy.Decode({ a, b })));
      CGR_ASSERT_OK(toy.Launch());
    }
    for (int n = 0; n < 3; n++)
      ExpectRefused(
          toy, CGR_ERROR_BUSY, { "slots" },
          [&] {
            return toy.Prepare({ { a, { CGR_TOKEN_LAST }, false } });
          },
          1);
    ExpectRefused(
        toy, CGR_ERROR_BUSY, { "slots" }, [&] { return toy.Prepare({}); }, 1);
    uint64_t completed = cgr_runtime_completed(toy.rt);
    EXPECT_EQ(completed, toy.launched - static_cast<uint64_t>(GetParam()));
    toy.CheckOne();
    EXPECT_GE(cgr_runtime_completed(toy.rt), completed + 1);
    CGR_ASSERT_OK(toy.Prepare(toy.Decode({ b, a })));
    CGR_ASSERT_OK(toy.Launch());
    toy.CheckAll();
  }
}

TEST_P(Ring, PollMakesProgress) {
  Rings rings(GetParam().device, GetParam().depth);
  if (HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  int32_t a = toy.Start(5, 1);
  for (int n = 0; n < 20 && !HasFatalFailure(); n++) {
    CGR_ASSERT_OK(toy.Prepare(toy.Decode({ a })));
    CGR_ASSERT_OK(toy.Launch());
    cgr_status status = CGR_NOT_READY;
    for (int k = 0; k < 100000000 && status == CGR_NOT_READY; k++)
      status = cgr_step_poll(toy.rt, toy.launched, nullptr);
    CGR_ASSERT_OK(status);
    toy.CheckAll();
  }
}

// The last step was refused whole: it reports `error`, and once its two rows are back at their lengths the next steps are right.
void ExpectRefusedThenRecovers(Toy &toy, int32_t a, int32_t a_len, int32_t b, int32_t b_len, cgr_step_error error) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, toy.launched, &result));
  EXPECT_EQ(result.error, error);
  EXPECT_EQ(result.num_requests, 0);
  toy.Forget();
  toy.Rewind(a, a_len);
  toy.Rewind(b, b_len);
  toy.Step({ { a, { 3 }, false }, { b, { 4 }, false } });
  toy.Step(toy.Decode({ a, b }));
}

// The number in the header of a slot is spoiled while its step is in flight: the step runs without requests and says so, and so
// do the steps behind it that were prepared before anybody knew. Nothing is written, the rows are rewound, and all goes on.
TEST(RingSequence, SpoiledNumberIsReported_FailsWithoutTheSequenceCheck) {
  for (int32_t depth : { 2, 3, 4 }) {
    SCOPED_TRACE(depth);
    Rings rings(HostParam(CGR_HOST_LATEST), depth);
    if (::testing::Test::HasFatalFailure())
      return;
    Toy &toy = *rings.toy;
    int32_t a = toy.Start(5, 1), b = toy.Start(16, 2), c = toy.Start(30, 3);
    toy.Step(toy.Decode({ a, b, c }));
    std::vector<std::vector<unsigned char>> before;
    toy.Reserve(a, 40);
    toy.Reserve(b, 40);
    toy.Reserve(c, 40);
    for (int i = 0; i < 4; i++)
      before.push_back(toy.Pool(i / 2, i % 2 != 0));
    std::vector<int64_t> computed = toy.Buffer(CGR_BUFFER_ROW_COMPUTED), last = toy.Buffer(CGR_BUFFER_ROW_LAST_TOKENS);
    std::vector<uint64_t> seqs;
    CGR_ASSERT_OK(toy.Prepare({ { a, { 3 }, false }, { b, { 4 }, false } }));
    CGR_ASSERT_OK(toy.Launch());
    seqs.push_back(toy.launched);
    cgr__slot_header *header = rings.Find(toy.launched, 2, 2);
    ASSERT_NE(header, nullptr);
    header->seq += 100;
    if (depth > 2) { // one behind it, of the same composition: a header alone travels
      CGR_ASSERT_OK(toy.Prepare(toy.Decode({ a, b })));
      EXPECT_EQ(toy.step.bytes_staged, sizeof(cgr__slot_header));
      CGR_ASSERT_OK(toy.Launch());
      seqs.push_back(toy.launched);
    }
    for (size_t i = 0; i < seqs.size(); i++) {
      cgr_step_result result = CGR_STEP_RESULT_INIT;
      CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, seqs[i], &result));
      EXPECT_EQ(result.seq, seqs[i]);
      EXPECT_EQ(result.error, CGR_STEP_SEQUENCE);
      EXPECT_EQ(result.num_requests, 0);
      EXPECT_EQ(result.error_row, -1);
      if (i == 0) {
        EXPECT_EQ(result.error_value, static_cast<int64_t>(seqs[0] + 100));
      }
    }
    toy.Forget();
    EXPECT_EQ(toy.Buffer(CGR_BUFFER_COUNTS)[0], 0);
    EXPECT_EQ(toy.Buffer(CGR_BUFFER_COUNTS)[1], 0);
    EXPECT_EQ(toy.Buffer(CGR_BUFFER_ROW_COMPUTED), computed);
    EXPECT_EQ(toy.Buffer(CGR_BUFFER_ROW_LAST_TOKENS), last);
    for (int i = 0; i < 4; i++)
      EXPECT_TRUE(before[static_cast<size_t>(i)] == toy.Pool(i / 2, i % 2 != 0)) << "a page was written";
    // Back to where the device stands.
    EXPECT_EQ(toy.Info(a).num_tokens, 6 + static_cast<int32_t>(seqs.size()));
    toy.Rewind(a, 6);
    toy.Rewind(b, 17);
    for (int n = 0; n < 6 && !::testing::Test::HasFatalFailure(); n++) {
      std::vector<ToyItem> items = toy.Decode({ a, b, c });
      if (n == 0)
        items[0].tokens = { 3 }, items[1].tokens = { 4 };
      toy.Step(items);
    }
  }
}

// cgr.h, CGR_STEP_SEQUENCE: and so do those after it that were prepared before the error was seen; whatever they carry.
TEST(RingSequence, StepsPreparedBehindALostOneRunWithoutRequests) {
  Rings rings(HostParam(CGR_HOST_LATEST), 4);
  if (::testing::Test::HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  int32_t a = toy.Start(5, 1), b = toy.Start(16, 2);
  toy.Decode({ a, b });
  std::vector<int64_t> computed = toy.Buffer(CGR_BUFFER_ROW_COMPUTED);
  CGR_ASSERT_OK(toy.Prepare({ { a, { 3 }, false }, { b, { 4 }, false } }));
  CGR_ASSERT_OK(toy.Launch());
  cgr__slot_header *header = rings.Find(toy.launched, 2, 2);
  ASSERT_NE(header, nullptr);
  header->seq += 100;
  std::vector<uint64_t> seqs = { toy.launched };
  for (const std::vector<ToyItem> &items : { std::vector<ToyItem>{ { b, { CGR_TOKEN_LAST }, false } }, // another composition
                                             std::vector<ToyItem>{ { b, { 5 }, false }, { a, { CGR_TOKEN_LAST }, false } } }) {
    CGR_ASSERT_OK(toy.Prepare(items));
    CGR_ASSERT_OK(toy.Launch());
    seqs.push_back(toy.launched);
  }
  for (uint64_t seq : seqs) {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, seq, &result));
    EXPECT_EQ(result.error, CGR_STEP_SEQUENCE);
    EXPECT_EQ(result.num_requests, 0);
  }
  toy.Forget();
  EXPECT_EQ(toy.Buffer(CGR_BUFFER_ROW_COMPUTED), computed);
  toy.Rewind(a, 5);
  toy.Rewind(b, 16);
  for (int n = 0; n < 4 && !::testing::Test::HasFatalFailure(); n++)
    toy.Step({ { a, { n }, false }, { b, { n + 1 }, false } });
}

// Why that matters: the lost step carried the pages of a row that has been reused. On the device the row still has the pages
// and the length of the request before it, and those pages belong to somebody else by now.
TEST(RingSequence, StepsPreparedBehindALostOneWriteNoPageOfOthers) {
  Rings rings(HostParam(CGR_HOST_LATEST), 4);
  if (::testing::Test::HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  int32_t old = toy.Start(5, 1), page = toy.requests[old]->pages[0];
  toy.Close(old);
  std::vector<int32_t> rows = { toy.Open(), toy.Open() };
  int32_t reused = rows[0] == old ? rows[0] : rows[1], other = rows[0] == old ? rows[1] : rows[0];
  ASSERT_EQ(reused, old) << "this test needs a row that is given out again";
  CGR_ASSERT_OK(cgr_request_set_pages(toy.rt, other, 0, 0, &page, 1));
  toy.requests[other]->pages = { page };
  toy.Step({ { other, Toy::Prompt(9, 2), false } });
  toy.Reserve(reused, 16);
  std::vector<std::vector<unsigned char>> before;
  for (int i = 0; i < 4; i++)
    before.push_back(toy.Pool(i / 2, i % 2 != 0));
  CGR_ASSERT_OK(toy.Prepare({ { reused, { 1, 2, 3 }, false } }));
  CGR_ASSERT_OK(toy.Launch());
  cgr__slot_header *header = rings.Find(toy.launched, 1, 3);
  ASSERT_NE(header, nullptr);
  header->seq += 100;
  CGR_ASSERT_OK(toy.Prepare({ { reused, { 4 }, false } }));
  CGR_ASSERT_OK(toy.Launch());
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, toy.launched, nullptr));
  toy.Forget();
  for (int i = 0; i < 4; i++)
    EXPECT_TRUE(before[static_cast<size_t>(i)] == toy.Pool(i / 2, i % 2 != 0)) << "a page was written";
  toy.Rewind(reused, 0);
  toy.Step({ { reused, { 1, 2, 3 }, false }, { other, { CGR_TOKEN_LAST }, false } });
}

TEST(RingSequence, SpoiledStepWithPageChangesLosesNone) {
  for (int32_t depth : { 2, 4 }) {
    SCOPED_TRACE(depth);
    Rings rings(HostParam(CGR_HOST_LATEST), depth);
    if (::testing::Test::HasFatalFailure())
      return;
    Toy &toy = *rings.toy;
    int32_t a = toy.Start(16, 1), fresh = toy.Open();
    toy.Reserve(a, 60);
    toy.Reserve(fresh, 60); // these pages travel with the step that is spoiled
    CGR_ASSERT_OK(toy.Prepare({ { a, { 3 }, false }, { fresh, Toy::Prompt(33, 1), false } }));
    CGR_ASSERT_OK(toy.Launch());
    cgr__slot_header *header = rings.Find(toy.launched, 2, 34);
    ASSERT_NE(header, nullptr);
    header->seq = 0;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, toy.launched, &result));
    EXPECT_EQ(result.error, CGR_STEP_SEQUENCE);
    toy.Forget();
    toy.Rewind(a, 16);
    toy.Rewind(fresh, 0);
    toy.Step({ { fresh, Toy::Prompt(33, 1), false }, { a, { 3 }, false } });
    for (int n = 0; n < 5 && !::testing::Test::HasFatalFailure(); n++)
      toy.Step(toy.Decode({ a, fresh }));
  }
}

// A header alone rests on the composition of the step that it names.
TEST(RingSequence, SpoiledCompositionIsReported_FailsWithoutTheBatchCheck) {
  Rings rings(HostParam(CGR_HOST_LATEST), 4);
  if (::testing::Test::HasFatalFailure())
    return;
  Toy &toy = *rings.toy;
  int32_t a = toy.Start(5, 1), b = toy.Start(16, 2);
  for (int n = 0; n < 2; n++)
    toy.Step(toy.Decode({ a, b }));
  CGR_ASSERT_OK(toy.Prepare(toy.Decode({ a, b })));
  EXPECT_EQ(toy.step.bytes_staged, sizeof(cgr__slot_header));
  CGR_ASSERT_OK(toy.Launch());
  cgr__slot_header *header = rings.Find(toy.launched, 2, 2);
  ASSERT_NE(header, nullptr);
  header->batch_seq--;
  ExpectRefusedThenRecovers(toy, a, 7, b, 18, CGR_STEP_SEQUENCE);
}

// What else a spoiled header can say: each is refused by the device, the step reports it and the next good one is right.
TEST(RingSequence, SpoiledCountsAreReported) {
  struct Bad {
    const char *name;
    int32_t requests, tokens;
  };
  for (const Bad &bad : { Bad{ "requests above the bucket", 5, 2 }, Bad{ "tokens above the bucket", 2, 3 },
                          Bad{ "negative", -1, 2 }, Bad{ "huge", INT32_MAX, INT32_MAX } }) {
    SCOPED_TRACE(bad.name);
    Rings rings(HostParam(CGR_HOST_LATEST), 4);
    if (::testing::Test::HasFatalFailure())
      return;
    Toy &toy = *rings.toy;
    int32_t a = toy.Start(5, 1), b = toy.Start(16, 2);
    toy.Decode({ a, b });
    CGR_ASSERT_OK(toy.Prepare({ { a, { 3 }, false }, { b, { 4 }, false } }));
    CGR_ASSERT_OK(toy.Launch());
    cgr__slot_header *header = rings.Find(toy.launched, 2, 2);
    ASSERT_NE(header, nullptr);
    header->num_requests = bad.requests;
    header->num_tokens = bad.tokens;
    ExpectRefusedThenRecovers(toy, a, 5, b, 16, CGR_STEP_COUNT);
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, FullRing, ::testing::Values(2, 3, 4));
INSTANTIATE_TEST_SUITE_P(Devices, Ring, ::testing::ValuesIn(Cases()), Label);

} // namespace
} // namespace cgr_test

// cgr_fa3_enqueue through the public headers: it writes the words of cgr_fa3_build, also from a captured graph whose arrays have
// changed since; and what it refuses.
#include <cstring>

#include "cgr/cgr.h"
#include "tests/support/enqueue_case.h"
#include "tests/support/fa3_case.h"

namespace cgr_test {
namespace {

constexpr int32_t kRequests = 40, kWords = 1 + 4 * kRequests;

class Fa3Enqueue : public EnqueueTest {
protected:
  void SetUpOnDevice() override {
    EnqueueTest::SetUpOnDevice();
    for (int32_t **memory : { &starts_, &lens_, &live_, &metadata_ }) {
      void *address = nullptr;
      CGR_ASSERT_OK(cgr_memory_alloc_pinned(device_, sizeof(int32_t) * kWords, &address));
      *memory = static_cast<int32_t *>(address);
    }
  }
  void TearDown() override {
    for (int32_t *memory : { starts_, lens_, live_, metadata_ })
      if (memory != nullptr)
        CGR_EXPECT_OK(cgr_memory_free_pinned(device_, memory));
    EnqueueTest::TearDown();
  }

  // Page-locked memory serves host and device, so both planners get the same addresses.
  cgr_fa3_input Input() const {
    cgr_fa3_input in = Fa3Key();
    in.num_requests = in.max_requests = kRequests;
    in.query_start_loc = starts_;
    in.seq_lens = lens_;
    in.live_requests = live_;
    return in;
  }
  void NewBatch(Random &random) {
    starts_[0] = 0;
    for (int32_t i = 0; i < kRequests; i++) {
      starts_[i + 1] = starts_[i] + random.Pick32(0, 3);
      lens_[i] = Fa3RandomLen(random, 128, 8192);
    }
    *live_ = random.Pick32(0, kRequests);
    std::memset(metadata_, 0xA5, sizeof(int32_t) * kWords);
  }
  void ExpectTheHostsWords(const cgr_fa3_input &in) {
    alignas(16) int32_t expected[kWords];
    CGR_ASSERT_OK(cgr_fa3_build(&in, expected, sizeof expected));
    EXPECT_EQ(std::vector<int32_t>(metadata_, metadata_ + kWords), std::vector<int32_t>(expected, expected + kWords));
  }
  void Refused(cgr_status status, const Words &words, const cgr_fa3_input &in, void *metadata, size_t bytes,
               cudaStream_t stream) {
    ExpectMessage(cgr_fa3_enqueue(device_, &in, metadata, bytes, stream), status, words);
    ExpectMessage(CGR_OK, CGR_OK, { "cgr_fa3_enqueue" });
  }

  int32_t *starts_ = nullptr, *lens_ = nullptr, *live_ = nullptr, *metadata_ = nullptr;
};

TEST_P(Fa3Enqueue, WritesTheHostsWords) {
  SeededRandom random;
  for (int32_t layout : { CGR_FA3_UPSTREAM, CGR_FA3_VLLM })
    for (int repeat = 0; repeat < 20; repeat++) {
      cgr_fa3_input in = Input();
      in.layout = layout;
      in.window_left = random.OneIn(2) ? 500 : 0;
      NewBatch(random);
      CGR_ASSERT_OK(cgr_fa3_enqueue(device_, &in, metadata_, sizeof(int32_t) * kWords, stream_));
      Sync();
      ExpectTheHostsWords(in);
    }
}

TEST_P(Fa3Enqueue, ReplaysPlanWhatIsThereThen) {
  SeededRandom random;
  const cgr_fa3_input in = Input();
  NewBatch(random);
  InAGraph([&] { return cgr_fa3_enqueue(device_, &in, metadata_, sizeof(int32_t) * kWords, stream_); },
           [&](auto launch) {
             for (int repeat = 0; repeat < 10; repeat++) {
               NewBatch(random);
               ASSERT_NO_FATAL_FAILURE(launch());
               ExpectTheHostsWords(in);
             }
           });
}

TEST_P(Fa3Enqueue, RefusesByName) {
  Random random(1);
  NewBatch(random);
  const size_t bytes = sizeof(int32_t) * kWords;
  const cgr_fa3_input good = Input();
  cgr_fa3_input in = good;
  ExpectMessage(cgr_fa3_enqueue(nullptr, &in, metadata_, bytes, stream_), CGR_ERROR_NULL_POINTER, { "cgr_fa3_enqueue: device" });
  ExpectMessage(cgr_fa3_enqueue(device_, nullptr, metadata_, bytes, stream_), CGR_ERROR_NULL_POINTER,
                { "cgr_fa3_enqueue: input" });
  Refused(CGR_ERROR_NULL_POINTER, { "metadata is NULL" }, in, nullptr, bytes, stream_);
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "stream is NULL" }, in, metadata_, bytes, nullptr);
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "stream is CUDA's" }, in, metadata_, bytes, reinterpret_cast<cudaStream_t>(1));
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "bytes is 643", "644" }, in, metadata_, bytes - 1, stream_);
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "multiple of 16" }, in, metadata_ + 1, bytes, stream_);
  in.num_splits = 0;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "num_splits is 0", "a graph keeps", "cgr_fa3_size" }, in, metadata_, bytes, stream_);
  in = good;
  in.seq_lens = nullptr;
  Refused(CGR_ERROR_NULL_POINTER, { "seq_lens is NULL" }, in, metadata_, bytes, stream_);
  in = good;
  in.head_dim = 12;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 12" }, in, metadata_, bytes, stream_);
  for (int32_t i = 0; i < kWords; i++)
    ASSERT_EQ(metadata_[i], int32_t(0xA5A5A5A5)) << "something was written";
  CGR_EXPECT_OK(cgr_fa3_enqueue(device_, &good, metadata_, bytes, stream_));
  Sync();
  ExpectTheHostsWords(good);
}

// A handle that is not a device.
TEST(Fa3EnqueueAlone, RefusesAClosedDevice) {
  alignas(cgr_device) unsigned char memory[sizeof(cgr_device)] = {};
  const cgr_fa3_input in = Fa3Key();
  ExpectMessage(cgr_fa3_enqueue(reinterpret_cast<cgr_device *>(memory), &in, memory, 0, nullptr), CGR_ERROR_INVALID_STRUCT,
                { "cgr_fa3_enqueue: device has magic" });
}

CGR_INSTANTIATE_OVER_DEVICES(Fa3Enqueue);

} // namespace
} // namespace cgr_test

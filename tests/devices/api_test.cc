// The public functions for memory, streams and work: that they work, what they refuse, and with which message.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cgr/device.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;

class DeviceApiTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &dev_), CGR_OK) << cgr_last_message();
    ASSERT_EQ(cgr_stream_create(dev_, &stream_), CGR_OK);
  }
  void TearDown() override {
    if (dev_ == nullptr)
      return;
    EXPECT_EQ(cgr_stream_destroy(dev_, stream_), CGR_OK);
    EXPECT_EQ(cgr_device_close(dev_), CGR_OK);
  }
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

struct AddArgs {
  int *target;
};
void Increment(const void *raw) { ++*static_cast<const AddArgs *>(raw)->target; }

TEST_P(DeviceApiTest, CopiesFillsAndCalls) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cgr_memory_alloc(dev_, 16, &device), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 16, &pinned), CGR_OK);
  auto *words = static_cast<int *>(pinned);
  words[0] = 0;
  AddArgs args = { words };
  ASSERT_EQ(cgr_fill(dev_, device, 0x11, 16, stream_), CGR_OK);
  ASSERT_EQ(cgr_copy(dev_, words, device, 16, stream_), CGR_OK);
  ASSERT_EQ(cgr_launch_host(dev_, Increment, &args, sizeof args, stream_), CGR_OK);
  ASSERT_EQ(cgr_stream_synchronize(dev_, stream_), CGR_OK);
  EXPECT_EQ(words[0], 0x11111112);
  EXPECT_EQ(words[3], 0x11111111);
  ASSERT_EQ(cgr_fill(dev_, words, -1, 3, stream_), CGR_OK); // the low byte, and an odd number of them
  ASSERT_EQ(cgr_stream_synchronize(dev_, stream_), CGR_OK);
  EXPECT_EQ(words[0], 0x11ffffff);
  EXPECT_EQ(cgr_memory_free(dev_, device), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
}

TEST_P(DeviceApiTest, RefusesNullWithTheArgumentsName) {
  char byte = 0;
  ExpectMessage(cgr_memory_alloc(dev_, 1, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_memory_alloc: memory is NULL" });
  ExpectMessage(cgr_stream_create(dev_, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_stream_create: stream is NULL" });
  ExpectMessage(cgr_event_create(dev_, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_event_create: event is NULL" });
  ExpectMessage(cgr_event_destroy(dev_, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_event_destroy: event is NULL" });
  ExpectMessage(cgr_event_record(dev_, nullptr, stream_), CGR_ERROR_NULL_POINTER, { "cgr_event_record: event is NULL" });
  ExpectMessage(cgr_event_wait(dev_, nullptr, stream_), CGR_ERROR_NULL_POINTER, { "cgr_event_wait: event is NULL" });
  ExpectMessage(cgr_copy(dev_, nullptr, &byte, 1, stream_), CGR_ERROR_NULL_POINTER, { "cgr_copy: dst is NULL" });
  ExpectMessage(cgr_copy(dev_, &byte, nullptr, 1, stream_), CGR_ERROR_NULL_POINTER, { "cgr_copy: src is NULL" });
  ExpectMessage(cgr_fill(dev_, nullptr, 0, 1, stream_), CGR_ERROR_NULL_POINTER, { "cgr_fill: dst is NULL" });
  EXPECT_EQ(cgr_copy(dev_, nullptr, nullptr, 0, stream_), CGR_OK);
  EXPECT_EQ(cgr_fill(dev_, nullptr, 0, 0, stream_), CGR_OK);
  ExpectMessage(cgr_launch_host(dev_, nullptr, nullptr, 0, stream_), CGR_ERROR_NULL_POINTER,
                { "cgr_launch_host: function is NULL" });
  ExpectMessage(cgr_launch_host(dev_, Increment, nullptr, 8, stream_), CGR_ERROR_NULL_POINTER,
                { "cgr_launch_host: args is NULL" });
  ExpectMessage(cgr_launch_host(dev_, Increment, &byte, 4097, stream_), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_launch_host: args_size is 4097, expected at most 4096" });
}

TEST_P(DeviceApiTest, RefusesDefaultStreams) {
  char byte = 0;
  cgr_event *event;
  cgr_host_function nothing = [](const void *) {};
  ASSERT_EQ(cgr_event_create(dev_, &event), CGR_OK);
  for (uintptr_t number : { 0, 1, 2 }) { // NULL, cudaStreamLegacy, cudaStreamPerThread
    auto stream = reinterpret_cast<cudaStream_t>(number);
    const std::string what = number == 0 ? ": stream is NULL" : ": stream is CUDA's default one";
#define EXPECT_REFUSED(function, ...) \
  ExpectMessage(function(__VA_ARGS__), CGR_ERROR_INVALID_ARGUMENT, { #function + what, "expected one of cgr_stream_create" })
    EXPECT_REFUSED(cgr_stream_destroy, dev_, stream);
    EXPECT_REFUSED(cgr_stream_synchronize, dev_, stream);
    EXPECT_REFUSED(cgr_event_record, dev_, event, stream);
    EXPECT_REFUSED(cgr_event_wait, dev_, event, stream);
    EXPECT_REFUSED(cgr_copy, dev_, &byte, &byte, 1, stream);
    EXPECT_REFUSED(cgr_fill, dev_, &byte, 0, 1, stream);
    EXPECT_REFUSED(cgr_launch_host, dev_, nothing, nullptr, 0, stream);
#undef EXPECT_REFUSED
  }
  EXPECT_EQ(cgr_event_destroy(dev_, event), CGR_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(DeviceApiTest);

// The host device knows its handles: what is no stream or event of its own is refused, and the message says of what kind it is.
class HostHandlesTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {};

TEST_P(HostHandlesTest, AreNamedInTheMessage) {
  cgr_device *dev = nullptr;
  cgr_event *event;
  cudaStream_t stream;
  char bytes[64];
  auto wild = reinterpret_cast<cudaStream_t>(bytes);
  ASSERT_EQ(cgr_device_open("host", &GetParam().config, &dev), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev, &event), CGR_OK);
  ASSERT_EQ(cgr_stream_create(dev, &stream), CGR_OK);
  ExpectMessage(cgr_stream_synchronize(dev, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_stream_synchronize: stream is 0x", "expected one of this device" });
  ExpectMessage(cgr_stream_destroy(dev, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_stream_destroy: stream is 0x", "expected one that cgr_stream_create made for this device" });
  ExpectMessage(cgr_event_record(dev, event, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_record: event is 0x", " and stream is 0x", "expected ones of this device" });
  ExpectMessage(cgr_event_wait(dev, reinterpret_cast<cgr_event *>(bytes), stream), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_wait: event is 0x", " and stream is 0x", "expected ones of this device" });
  ExpectMessage(cgr_event_destroy(dev, reinterpret_cast<cgr_event *>(bytes)), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_destroy: event is 0x", "expected one of this device" });
  ExpectMessage(cgr_fill(dev, bytes, 0, 1, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_fill: dst is 0x", " and stream is 0x", "expected addresses that this device can access" });
  ExpectMessage(cgr_copy(dev, bytes, bytes, 1, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_copy: dst is 0x", ", src is 0x", " and stream is 0x" });
  auto nothing = [](const void *) {};
  ExpectMessage(cgr_launch_host(dev, nothing, nullptr, 0, wild), CGR_ERROR_INVALID_ARGUMENT, { "cgr_launch_host: stream is 0x" });
  EXPECT_EQ(cgr_event_destroy(dev, event), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev, stream), CGR_OK);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

// It knows its allocations too: no copy or fill may pass the end of one. Of other memory it knows nothing.
TEST_P(HostHandlesTest, NothingGoesPastTheEndOfAnAllocation) {
  cgr_device *dev = nullptr;
  cudaStream_t stream;
  void *memory, *pinned;
  ASSERT_EQ(cgr_device_open("host", &GetParam().config, &dev), CGR_OK);
  ASSERT_EQ(cgr_stream_create(dev, &stream), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(dev, 96, &memory), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev, 64, &pinned), CGR_OK);
  auto *bytes = static_cast<unsigned char *>(memory);
  std::vector<unsigned char> own(128, 7);
  for (size_t at : { 0, 1, 95 }) {
    ExpectMessage(cgr_fill(dev, bytes + at, 1, 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_fill: dst is 0x", ", bytes is " + std::to_string(97 - at),
                    "expected addresses that this device can access for all `bytes`" });
    ExpectMessage(cgr_copy(dev, bytes + at, own.data(), 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_copy: dst is 0x", ", bytes is " + std::to_string(97 - at) });
    EXPECT_EQ(cgr_copy(dev, own.data(), bytes + at, 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(cgr_fill(dev, bytes + at, 1, 96 - at, stream), CGR_OK);
  }
  EXPECT_EQ(cgr_fill(dev, pinned, 1, 65, stream), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_fill(dev, memory, 1, SIZE_MAX, stream), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_fill(dev, own.data(), 1, own.size(), stream), CGR_OK);
  EXPECT_EQ(cgr_copy(dev, pinned, bytes + 32, 64, stream), CGR_OK);
  ASSERT_EQ(cgr_stream_synchronize(dev, stream), CGR_OK);
  EXPECT_EQ(static_cast<unsigned char *>(pinned)[63], 1);
  EXPECT_EQ(cgr_memory_free(dev, memory), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev, pinned), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev, stream), CGR_OK);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(HostHandlesTest);

} // namespace

// The public functions for memory, streams and work: that they work, what they refuse, and with which message.
#include <string>
#include <vector>

#include "tests/devices/device_case.h"
#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;

class DeviceApiTest : public cgr_test::PublicCase {
protected:
  void SetUpOnDevice() override { stream_ = NewStream(); }
  cudaStream_t stream_ = nullptr;
};

struct AddArgs {
  int *target;
};
void Increment(const void *raw) { ++*static_cast<const AddArgs *>(raw)->target; }

TEST_P(DeviceApiTest, CopiesFillsAndCalls) {
  void *device = NewMemory(16);
  auto *words = static_cast<int *>(NewPinned(16));
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
  cgr_event *event = NewEvent();
  cgr_host_function nothing = [](const void *) {};
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
}

CGR_INSTANTIATE_OVER_DEVICES(DeviceApiTest);

// The host device knows its handles: what is no stream or event of its own is refused, and the message says of what kind it is.
class HostHandlesTest : public cgr_test::PublicCase {};

TEST_P(HostHandlesTest, AreNamedInTheMessage) {
  cgr_event *event = NewEvent();
  cudaStream_t stream = NewStream();
  char bytes[64];
  auto wild = reinterpret_cast<cudaStream_t>(bytes);
  ExpectMessage(cgr_stream_synchronize(dev_, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_stream_synchronize: stream is 0x", "expected one of this device" });
  ExpectMessage(cgr_stream_destroy(dev_, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_stream_destroy: stream is 0x", "expected one that cgr_stream_create made for this device" });
  ExpectMessage(cgr_event_record(dev_, event, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_record: event is 0x", " and stream is 0x", "expected ones of this device" });
  ExpectMessage(cgr_event_wait(dev_, reinterpret_cast<cgr_event *>(bytes), stream), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_wait: event is 0x", " and stream is 0x", "expected ones of this device" });
  ExpectMessage(cgr_event_destroy(dev_, reinterpret_cast<cgr_event *>(bytes)), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_event_destroy: event is 0x", "expected one of this device" });
  ExpectMessage(cgr_fill(dev_, bytes, 0, 1, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_fill: dst is 0x", " and stream is 0x", "expected addresses that this device can access" });
  ExpectMessage(cgr_copy(dev_, bytes, bytes, 1, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_copy: dst is 0x", ", src is 0x", " and stream is 0x" });
  auto nothing = [](const void *) {};
  ExpectMessage(cgr_launch_host(dev_, nothing, nullptr, 0, wild), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_launch_host: stream is 0x" });
}

// It knows its allocations too: no copy or fill may pass the end of one. Of other memory it knows nothing.
TEST_P(HostHandlesTest, NothingGoesPastTheEndOfAnAllocation) {
  cudaStream_t stream = NewStream();
  void *memory = NewMemory(96), *pinned = NewPinned(64);
  auto *bytes = static_cast<unsigned char *>(memory);
  std::vector<unsigned char> own(128, 7);
  for (size_t at : { 0, 1, 95 }) {
    ExpectMessage(cgr_fill(dev_, bytes + at, 1, 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_fill: dst is 0x", ", bytes is " + std::to_string(97 - at),
                    "expected addresses that this device can access for all `bytes`" });
    ExpectMessage(cgr_copy(dev_, bytes + at, own.data(), 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_copy: dst is 0x", ", bytes is " + std::to_string(97 - at) });
    EXPECT_EQ(cgr_copy(dev_, own.data(), bytes + at, 97 - at, stream), CGR_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(cgr_fill(dev_, bytes + at, 1, 96 - at, stream), CGR_OK);
  }
  EXPECT_EQ(cgr_fill(dev_, pinned, 1, 65, stream), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_fill(dev_, memory, 1, SIZE_MAX, stream), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cgr_fill(dev_, own.data(), 1, own.size(), stream), CGR_OK);
  EXPECT_EQ(cgr_copy(dev_, pinned, bytes + 32, 64, stream), CGR_OK);
  ASSERT_EQ(cgr_stream_synchronize(dev_, stream), CGR_OK);
  EXPECT_EQ(static_cast<unsigned char *>(pinned)[63], 1);
}

CGR_INSTANTIATE_OVER_HOST_DEVICES(HostHandlesTest);

} // namespace

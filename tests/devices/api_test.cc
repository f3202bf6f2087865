// The public functions of devices, memory and streams: what they refuse, with which message, and that they work.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cgr/cgr.h"
#include "tests/support/devices.h"

// The sanitizers' malloc aborts on a huge request unless told to fail as malloc does.
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char *__tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

// True when the last message names every part.
::testing::AssertionResult MessageHas(std::initializer_list<const char *> parts) {
  std::string message = cgr_last_message();
  for (const char *part : parts) {
    if (message.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << message << " lacks " << part;
  }
  return ::testing::AssertionSuccess();
}

TEST(DeviceOpenTest, RefusesWhatIsWrong) {
  cgr_device *dev = reinterpret_cast<cgr_device *>(&dev);
  EXPECT_EQ(cgr_device_open("host", nullptr, nullptr), CGR_ERROR_NULL_POINTER);
  EXPECT_TRUE(MessageHas({ "cgr_device_open", "device", "NULL" }));
  for (const char *name :
       { "", "Host", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:1x", "cudax", "hosts", "cuda:99999999999" }) {
    EXPECT_EQ(cgr_device_open(name, nullptr, &dev), CGR_ERROR_INVALID_ARGUMENT) << name;
    EXPECT_EQ(dev, nullptr);
    EXPECT_TRUE(MessageHas({ "cgr_device_open: name", name, "expected" }));
  }
  EXPECT_EQ(cgr_device_open("cuda:9999", nullptr, &dev), CGR_ERROR_UNSUPPORTED);
  EXPECT_TRUE(MessageHas({ "cuda:9999" }));
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.host_schedule = 4;
  EXPECT_EQ(cgr_device_open("host", &config, &dev), CGR_ERROR_INVALID_ENUM);
  EXPECT_TRUE(MessageHas({ "host_schedule is 4", "expected" }));
  for (uint32_t size : { 0u, 3u, 4097u }) {
    config = CGR_DEVICE_CONFIG_INIT;
    config.size = size;
    EXPECT_EQ(cgr_device_open("host", &config, &dev), CGR_ERROR_INVALID_STRUCT);
    EXPECT_TRUE(MessageHas({ "config->size", std::to_string(size).c_str() }));
  }
  EXPECT_EQ(cgr_device_close(nullptr), CGR_OK);
}

TEST(DeviceOpenTest, AShorterConfigGetsItsDefaults) {
  cgr_device *dev = nullptr;
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.size = 4;
  config.host_schedule = 77; // beyond `size`: not read
  ASSERT_EQ(cgr_device_open("host", &config, &dev), CGR_OK);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

TEST(DeviceOpenTest, NoNamePicksTheBestThereIs) {
  cgr_device *dev = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  ASSERT_EQ(cgr_device_open(nullptr, nullptr, &dev), CGR_OK);
  ASSERT_EQ(cgr_device_get_info(dev, &info), CGR_OK);
  EXPECT_EQ(info.kind, cgr__cuda_device_count() > 0 ? CGR_DEVICE_CUDA : CGR_DEVICE_HOST);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

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
  EXPECT_EQ(cgr_memory_free(dev_, device), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  EXPECT_EQ(cgr_memory_free(dev_, nullptr), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, nullptr), CGR_OK);
}

TEST_P(DeviceApiTest, RefusesWithTheArgumentsName) {
  void *memory = &memory;
  char byte = 0;
  EXPECT_EQ(cgr_memory_alloc(nullptr, 1, &memory), CGR_ERROR_NULL_POINTER);
  EXPECT_TRUE(MessageHas({ "cgr_memory_alloc: device is NULL" }));
  EXPECT_EQ(cgr_memory_alloc(dev_, 1, nullptr), CGR_ERROR_NULL_POINTER);
  EXPECT_TRUE(MessageHas({ "memory is NULL" }));
  EXPECT_EQ(cgr_memory_alloc_pinned(dev_, 0, &memory), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(MessageHas({ "cgr_memory_alloc_pinned", "bytes is 0", "at least 1" }));
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cgr_stream_create(dev_, nullptr), CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(cgr_stream_destroy(dev_, nullptr), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(MessageHas({ "cgr_stream_destroy: stream is NULL" }));
  EXPECT_EQ(cgr_copy(dev_, nullptr, &byte, 1, stream_), CGR_ERROR_NULL_POINTER);
  EXPECT_TRUE(MessageHas({ "cgr_copy: dst is NULL" }));
  EXPECT_EQ(cgr_copy(dev_, &byte, nullptr, 1, stream_), CGR_ERROR_NULL_POINTER);
  EXPECT_TRUE(MessageHas({ "cgr_copy: src is NULL" }));
  EXPECT_EQ(cgr_fill(dev_, nullptr, 0, 1, stream_), CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(cgr_copy(dev_, nullptr, nullptr, 0, stream_), CGR_OK);
  EXPECT_EQ(cgr_launch_host(dev_, nullptr, nullptr, 0, stream_), CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(cgr_launch_host(dev_, Increment, nullptr, 8, stream_), CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(cgr_launch_host(dev_, Increment, &byte, 4097, stream_), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(MessageHas({ "args_size is 4097", "4096" }));
  EXPECT_EQ(cgr_fill(dev_, &byte, 0, 1, nullptr), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_TRUE(MessageHas({ "cgr_fill: stream is NULL" }));
  EXPECT_EQ(cgr_fill(dev_, &byte, 0, 1, reinterpret_cast<cudaStream_t>(2)), CGR_ERROR_INVALID_ARGUMENT); // cudaStreamPerThread
  EXPECT_TRUE(MessageHas({ "cgr_fill: stream is CUDA's default one" }));
}

TEST_P(DeviceApiTest, InfoIsWrittenUpToTheCallersSize) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  EXPECT_EQ(cgr_device_get_info(dev_, nullptr), CGR_ERROR_NULL_POINTER);
  info.size = 0;
  EXPECT_EQ(cgr_device_get_info(dev_, &info), CGR_ERROR_INVALID_STRUCT);
  std::memset(&info, 0x77, sizeof info);
  info.size = 8;
  ASSERT_EQ(cgr_device_get_info(dev_, &info), CGR_OK);
  EXPECT_EQ(info.kind, GetParam().IsCuda() ? CGR_DEVICE_CUDA : CGR_DEVICE_HOST);
  EXPECT_EQ(info.size, 8u);
  EXPECT_EQ(info.ordinal, 0x77777777);
}

TEST_P(DeviceApiTest, ALongerStructOfALaterVersionIsAccepted) {
  struct {
    cgr_device_info info;
    char later[16];
  } longer;
  std::memset(&longer, 0x77, sizeof longer);
  longer.info.size = sizeof longer;
  ASSERT_EQ(cgr_device_get_info(dev_, &longer.info), CGR_OK);
  EXPECT_EQ(longer.info.size, sizeof longer);
  EXPECT_EQ(longer.later[0], 0x77);
}

TEST_P(DeviceApiTest, AHugeAllocationFailsCleanly) {
  void *memory = &memory;
  EXPECT_EQ(cgr_memory_alloc(dev_, static_cast<size_t>(1) << 60, &memory), CGR_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cgr_last_device_code(), 2);
}

CGR_INSTANTIATE_OVER_DEVICES(DeviceApiTest);

} // namespace

// Opening a device by name, what its config may say, and what it reports about itself.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/devices/device_case.h"
#include "tests/devices/scenario.h"
#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;
using cgr_test::MessageHas;

TEST(DeviceOpenTest, RefusesNamesThatAreNone) {
  cgr_device *dev = reinterpret_cast<cgr_device *>(&dev);
  ExpectMessage(cgr_device_open("host", nullptr, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_device_open: device is NULL" });
  for (const char *name :
       { "", "Host", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:1x", "cudax", "hosts", "cuda:99999999999" }) {
    ExpectMessage(cgr_device_open(name, nullptr, &dev), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_device_open: name is \"", name, "expected \"host\", \"cuda\" or \"cuda:N\"" });
    EXPECT_EQ(dev, nullptr);
  }
}

// One message for each reason why there is no such GPU, with the code of whoever said so.
TEST(DeviceOpenTest, SaysWhyThereIsNoSuchGpu) {
  cgr_device *dev = reinterpret_cast<cgr_device *>(&dev);
  struct cgr__gpus probe = cgr__cuda_probe();
  std::string code = "(code " + std::to_string(probe.raw) + ")";
  ExpectMessage(cgr_device_open("cuda:9999", nullptr, &dev), CGR_ERROR_UNSUPPORTED, { "cgr_device_open: name is cuda:9999: " });
  EXPECT_EQ(dev, nullptr);
  EXPECT_EQ(cgr_last_device_code(), probe.raw);
  switch (probe.state) {
  case CGR__CUDA_NOT_BUILT:
    EXPECT_TRUE(MessageHas({ "this build has no CUDA, expected \"host\"" }));
    break;
  case CGR__CUDA_NO_DRIVER:
    EXPECT_NE(probe.raw, 0);
    EXPECT_TRUE(MessageHas({ "no driver was found " + code + ", expected libcuda.so.1 of CUDA 1", " or later" }));
    break;
  case CGR__CUDA_OLD_DRIVER:
    EXPECT_TRUE(MessageHas({ "the driver is of CUDA ", ", expected 1", " or later" }));
    break;
  case CGR__CUDA_BROKEN:
    EXPECT_TRUE(MessageHas({ "the driver does not start " + code }));
    break;
  case CGR__CUDA_NO_GPU:
    EXPECT_TRUE(MessageHas({ "no GPU is visible " + code, "nvidia-smi", "CUDA_VISIBLE_DEVICES" }));
    break;
  case CGR__CUDA_READY:
    EXPECT_TRUE(MessageHas(
        { std::to_string(probe.num_devices) + " GPU", "expected an ordinal below " + std::to_string(probe.num_devices) }));
    break;
  }
}

// The same in a process that sees no GPU: it runs this program again.
TEST(DeviceOpenTest, SaysWhyAHiddenGpuIsNotThere) {
  CGR_SKIP_WITHOUT_DEVICE(cgr_test::CudaParam());
  char command[400];
  snprintf(command, sizeof command,
           "env -u XML_OUTPUT_FILE -u GTEST_OUTPUT -u GTEST_TOTAL_SHARDS CUDA_VISIBLE_DEVICES= CGR_TEST_HIDDEN=1 /proc/%d/exe "
           "--gtest_filter=DeviceOpenTest.SaysWhyThereIsNoSuchGpu:DeviceOpenTest.AHiddenGpuIsNotVisible",
           static_cast<int>(getpid()));
  EXPECT_EQ(std::system(command), 0);
}

TEST(DeviceOpenTest, AHiddenGpuIsNotVisible) {
  if (std::getenv("CGR_TEST_HIDDEN") == nullptr)
    GTEST_SKIP() << "a case that another one runs in a process of its own";
  EXPECT_EQ(cgr__cuda_probe().state, CGR__CUDA_NO_GPU);
}

TEST(DeviceOpenTest, NoNamePicksTheBestThereIs) {
  cgr_device *dev = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  ASSERT_EQ(cgr_device_open(nullptr, nullptr, &dev), CGR_OK);
  ASSERT_EQ(cgr_device_get_info(dev, &info), CGR_OK);
  EXPECT_EQ(info.kind, cgr__cuda_device_count() > 0 ? CGR_DEVICE_KIND_CUDA : CGR_DEVICE_KIND_HOST);
  EXPECT_TRUE(info.kind == CGR_DEVICE_KIND_HOST ? info.memory_bandwidth == 0 : info.memory_bandwidth > 50000000000u)
      << info.memory_bandwidth;
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

// ------------------------------------------------------------------------------------------------------------- config

// Opens the host device with `config` and closes it again.
cgr_status Try(const cgr_device_config *config) {
  cgr_device *dev = reinterpret_cast<cgr_device *>(&dev);
  cgr_status status = cgr_device_open("host", config, &dev);
  EXPECT_EQ(dev == nullptr, status != CGR_OK);
  if (status == CGR_OK) {
    EXPECT_EQ(cgr_device_close(dev), CGR_OK);
  }
  return status;
}

TEST(DeviceConfigTest, RefusesValuesOutOfRange) {
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  for (int32_t schedule : { -1, 4, 1000 }) {
    config.host_schedule = schedule;
    ExpectMessage(Try(&config), CGR_ERROR_INVALID_ENUM,
                  { "cgr_device_open: config->host_schedule is " + std::to_string(schedule),
                    "expected 0 .. 3, a cgr_host_schedule (0 async, 1 earliest, 2 latest, 3 random)" });
  }
  config = CGR_DEVICE_CONFIG_INIT;
  config.max_capability = -1;
  ExpectMessage(Try(&config), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_device_open: config->max_capability is -1", "expected 0 or a compute capability" });
  config = CGR_DEVICE_CONFIG_INIT;
  config.reserved = 5;
  ExpectMessage(Try(&config), CGR_ERROR_NEWER_STRUCT, { "cgr_device_open: config->reserved is 5, expected 0" });
  static const cgr_device_layer none = { nullptr };
  config = CGR_DEVICE_CONFIG_INIT;
  config.layer = &none;
  ExpectMessage(Try(&config), CGR_ERROR_INVALID_ARGUMENT, { "cgr_device_open: config->layer", "cgr_validation_layer" });
}

TEST(DeviceConfigTest, RefusesSizesThatAreNone) {
  for (uint32_t size : { 0u, 3u, 4097u }) {
    cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
    config.size = size;
    ExpectMessage(Try(&config), CGR_ERROR_INVALID_STRUCT,
                  { "cgr_device_open: config: size is " + std::to_string(size), "expected" });
  }
}

TEST(DeviceConfigTest, AShorterOneGetsItsDefaults) {
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.size = offsetof(cgr_device_config, max_capability);
  config.max_capability = -1; // beyond `size`: not read
  EXPECT_EQ(Try(&config), CGR_OK);
  config.size = offsetof(cgr_device_config, layer);
  EXPECT_EQ(Try(&config), CGR_ERROR_INVALID_ARGUMENT); // now it is
}

TEST(DeviceConfigTest, ALongerOneIsAcceptedWhileItsRestIsZero) {
  struct {
    cgr_device_config config;
    unsigned char later[16];
  } longer;
  std::memset(&longer, 0, sizeof longer);
  longer.config.size = sizeof longer;
  EXPECT_EQ(Try(&longer.config), CGR_OK);
  longer.later[15] = 1;
  ExpectMessage(Try(&longer.config), CGR_ERROR_NEWER_STRUCT,
                { "cgr_device_open: config: size is " + std::to_string(sizeof longer), "not zero" });
}

// A layer that fails to open, and its config.
cgr_device_config last_config;
int FailToOpen(cgr_device *inner, const cgr_device_config *config, cgr_device **dev) {
  EXPECT_NE(inner, nullptr);
  last_config = *config;
  *dev = nullptr;
  return CGR__DEVICE_NO_MEMORY;
}

TEST(DeviceConfigTest, ALayerThatFailsLeavesNothingOpen) {
  static const cgr_device_layer failing = { FailToOpen };
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.layer = &failing;
  config.violation_context = &config;
  EXPECT_EQ(Try(&config), CGR_ERROR_OUT_OF_MEMORY); // the leak checker sees whether the device inside was closed
  EXPECT_TRUE(MessageHas({ "cgr_device_open: config->layer" }));
  EXPECT_EQ(last_config.size, sizeof last_config);
  EXPECT_EQ(last_config.violation_context, &config);
}

TEST(DeviceConfigTest, ALayerRefusesADeviceOfAnotherVersion) {
  struct cgr_device other = {};
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  cgr_device *dev = &other;
  other.magic = CGR__DEVICE_MAGIC + 1;
  EXPECT_EQ(cgr_validation_layer()->open(&other, &config, &dev), CGR__DEVICE_UNSUPPORTED);
  EXPECT_EQ(dev, nullptr);
}

// --------------------------------------------------------------------------------------------------------------- info

class DeviceInfoTest : public cgr_test::PublicCase {};

TEST_P(DeviceInfoTest, IsWrittenUpToTheCallersSize) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  ExpectMessage(cgr_device_get_info(dev_, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_device_get_info: info is NULL" });
  for (uint32_t size : { 0u, 3u, 4097u }) {
    info.size = size;
    ExpectMessage(cgr_device_get_info(dev_, &info), CGR_ERROR_INVALID_STRUCT,
                  { "cgr_device_get_info: info: size is " + std::to_string(size) });
  }
  std::memset(&info, 0x77, sizeof info);
  info.size = 8;
  ASSERT_EQ(cgr_device_get_info(dev_, &info), CGR_OK);
  EXPECT_EQ(info.kind, GetParam().IsCuda() ? CGR_DEVICE_KIND_CUDA : CGR_DEVICE_KIND_HOST);
  EXPECT_EQ(info.size, 8u);
  EXPECT_EQ(info.ordinal, 0x77777777);
}

TEST_P(DeviceInfoTest, ALongerOneKeepsWhatThisLibraryDoesNotKnow) {
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

TEST_P(DeviceInfoTest, DescribesTheDevice) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  ASSERT_EQ(cgr_device_get_info(dev_, &info), CGR_OK);
  EXPECT_EQ(info.ordinal, 0);
  EXPECT_GT(info.num_multiprocessors, 0);
  EXPECT_GT(info.memory_total, 0u);
  EXPECT_LE(info.memory_free, info.memory_total);
  EXPECT_STRNE(info.name, "");
  EXPECT_EQ(info.kernel_capability, info.compute_capability);
  if (GetParam().IsCuda()) {
    EXPECT_GE(info.compute_capability, 50);
    EXPECT_GE(info.driver_version, 12040);
  } else {
    EXPECT_EQ(info.compute_capability, 0);
    EXPECT_EQ(info.driver_version, 0);
    EXPECT_STREQ(info.name, "host");
  }
}

TEST_P(DeviceInfoTest, MaxCapabilityLimitsTheKernelsAlone) {
  cgr_device_info plain = CGR_DEVICE_INFO_INIT, limited = CGR_DEVICE_INFO_INIT;
  ASSERT_EQ(cgr_device_get_info(dev_, &plain), CGR_OK);
  for (int32_t max : { 1, 80, 10000 }) {
    cgr_device *dev = nullptr;
    cgr_device_config config = GetParam().config;
    config.max_capability = max;
    ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &dev), CGR_OK);
    ASSERT_EQ(cgr_device_get_info(dev, &limited), CGR_OK);
    EXPECT_EQ(limited.compute_capability, plain.compute_capability);
    EXPECT_EQ(limited.kernel_capability, max < plain.compute_capability ? max : plain.compute_capability);
    EXPECT_EQ(cgr_device_close(dev), CGR_OK);
  }
}

CGR_INSTANTIATE_OVER_DEVICES(DeviceInfoTest);

} // namespace

// The devices that a test runs over: the host device under each schedule, the first GPU, and, in tests that link
// //tests/emulation:device and ask for it, a host device that runs the kernels of CUDA.
//
//   class StreamTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {};
//   TEST_P(StreamTest, CopiesInOrder) {
//     cgr_device *dev = nullptr;
//     CGR_OPEN_OR_SKIP(dev, GetParam());
//     ...
//     ASSERT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
//   }
//   CGR_INSTANTIATE_OVER_DEVICES(StreamTest);
//
// Without a GPU the GPU's cases are skipped visibly; with CGR_REQUIRE_GPU=1 in the environment they fail instead.
#ifndef CGR_TESTS_SUPPORT_DEVICES_H
#define CGR_TESTS_SUPPORT_DEVICES_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "devices/device.h"

namespace cgr_test {

// The layer that makes a host device the emulated one; NULL in tests that do not link it.
inline const cgr_device_layer *&EmulationLayer() {
  static const cgr_device_layer *layer = nullptr;
  return layer;
}

struct DeviceParam {
  std::string name; // what cgr_device_open takes: "host", "cuda:0"
  cgr_device_config config;

  bool IsCuda() const { return name.compare(0, 4, "cuda") == 0; }
  bool IsEmulated() const { return config.layer != nullptr && config.layer == EmulationLayer(); }
  bool HasCudaKernels() const { return IsCuda() || IsEmulated(); }
  // It runs enqueued work by itself, while the test does something else.
  bool HasThreads() const { return IsCuda() || config.host_schedule == CGR_SCHEDULE_ASYNC; }

  // A name for the test case: letters, digits and underscores.
  std::string Label() const {
    if (IsCuda())
      return "cuda_0";
    if (IsEmulated())
      return "emulated";
    switch (config.host_schedule) {
    case CGR_SCHEDULE_ASYNC:
      return "host_async";
    case CGR_SCHEDULE_EARLIEST:
      return "host_earliest";
    case CGR_SCHEDULE_LATEST:
      return "host_latest";
    default:
      return "host_random_" + std::to_string(config.host_seed);
    }
  }
};

inline void PrintTo(const DeviceParam &param, std::ostream *os) { *os << param.Label(); }

inline DeviceParam HostParam(cgr_host_schedule schedule, uint64_t seed = 0) {
  DeviceParam param;
  param.name = "host";
  param.config = CGR_DEVICE_CONFIG_INIT;
  param.config.host_schedule = static_cast<int32_t>(schedule);
  param.config.host_seed = seed;
  return param;
}

// CGR_MAX_CAPABILITY=80 in the environment runs the kernels for older GPUs on a newer one.
inline DeviceParam CudaParam() {
  const char *limit = std::getenv("CGR_MAX_CAPABILITY");
  DeviceParam param;
  param.name = "cuda:0";
  param.config = CGR_DEVICE_CONFIG_INIT;
  param.config.max_capability = limit != nullptr ? std::atoi(limit) : 0;
  return param;
}

// It has the host's name: the layer makes it an emulated one.
inline DeviceParam EmulatedParam() {
  DeviceParam param = HostParam(CGR_SCHEDULE_ASYNC);
  param.config.layer = EmulationLayer();
  return param;
}

inline std::vector<DeviceParam> HostDevices() {
  return { HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_EARLIEST), HostParam(CGR_SCHEDULE_LATEST),
           HostParam(CGR_SCHEDULE_RANDOM, 1), HostParam(CGR_SCHEDULE_RANDOM, 2) };
}

inline std::vector<DeviceParam> AllDevices() {
  std::vector<DeviceParam> all = HostDevices();
  all.push_back(CudaParam());
  if (EmulationLayer() != nullptr)
    all.push_back(EmulatedParam());
  return all;
}

// For tests that need only two ways for the host to execute: at once on a worker, and at the last moment.
inline std::vector<DeviceParam> FewDevices() {
  std::vector<DeviceParam> few = { HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_LATEST), CudaParam() };
  if (EmulationLayer() != nullptr)
    few.push_back(EmulatedParam());
  return few;
}

inline std::string DeviceLabel(const ::testing::TestParamInfo<DeviceParam> &info) { return info.param.Label(); }

inline bool GpuIsRequired() {
  const char *value = std::getenv("CGR_REQUIRE_GPU");
  return value != nullptr && std::string(value) == "1";
}

// Keeps the GPU's primary context from one case to the next: a device releases it when it closes, and creating it again takes as
// long as hundreds of cases. Never closed.
inline void KeepGpuWarm() {
  static const cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  static cgr_device *warm = nullptr;
  if (warm == nullptr && cgr__cuda_device_count() > 0) {
    EXPECT_EQ(cgr__cuda_device_open(0, &config, &warm), CGR__DEVICE_OK);
  }
}

inline bool GpuIsMissing(const DeviceParam &param) {
  if (param.IsCuda())
    KeepGpuWarm();
  return param.IsCuda() && cgr__cuda_device_count() == 0;
}

// Opens the device of `param` below the public header; for tests of devices and of code that uses the table.
inline cgr_device *OpenDevice(const DeviceParam &param) {
  cgr_device *dev = nullptr;
  int error = param.IsCuda() ? cgr__cuda_device_open(0, &param.config, &dev) : cgr__host_device_open(&param.config, &dev);
  if (error == CGR__DEVICE_OK && param.IsEmulated())
    error = EmulationLayer()->open(dev, &param.config, &dev);
  EXPECT_EQ(error, CGR__DEVICE_OK) << cgr__device_error_name(error);
  return dev;
}

} // namespace cgr_test

// Skips (or fails, if a GPU is required) when the device of `param` is missing.
#define CGR_SKIP_WITHOUT_DEVICE(param)                          \
  do {                                                          \
    if (::cgr_test::GpuIsMissing(param)) {                      \
      if (::cgr_test::GpuIsRequired())                          \
        FAIL() << "CGR_REQUIRE_GPU=1 and no GPU can be opened"; \
      GTEST_SKIP() << "no GPU";                                 \
    }                                                           \
  } while (0)

// Assigns an open device to `dev`, or skips or fails. For test bodies and SetUp.
#define CGR_OPEN_OR_SKIP(dev, param)       \
  do {                                     \
    CGR_SKIP_WITHOUT_DEVICE(param);        \
    (dev) = ::cgr_test::OpenDevice(param); \
    ASSERT_NE((dev), nullptr);             \
  } while (0)

namespace cgr_test {

// A suite over devices, whose cases are skipped where their device is missing.
class OverDevices : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
};

} // namespace cgr_test

#define CGR_INSTANTIATE_OVER_DEVICES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(::cgr_test::AllDevices()), ::cgr_test::DeviceLabel)

#define CGR_INSTANTIATE_OVER_HOST_DEVICES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(::cgr_test::HostDevices()), ::cgr_test::DeviceLabel)

#define CGR_INSTANTIATE_OVER_DEVICES_WITH_THREADS(Suite)                                                          \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite,                                                                        \
                           ::testing::Values(::cgr_test::HostParam(CGR_SCHEDULE_ASYNC), ::cgr_test::CudaParam()), \
                           ::cgr_test::DeviceLabel)

#define CGR_INSTANTIATE_OVER_FEW_DEVICES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(::cgr_test::FewDevices()), ::cgr_test::DeviceLabel)

#endif // CGR_TESTS_SUPPORT_DEVICES_H

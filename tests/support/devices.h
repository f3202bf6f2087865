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
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "devices/device.h"

namespace cgr_test {

// The layer that makes a host device the emulated one; NULL in tests that do not link it.
const cgr_device_layer *&EmulationLayer();

struct DeviceParam {
  std::string name; // what cgr_device_open takes: "host", "cuda:0"
  cgr_device_config config;

  bool IsCuda() const { return name.compare(0, 4, "cuda") == 0; }
  bool IsEmulated() const { return config.layer != nullptr && config.layer == EmulationLayer(); }
  bool HasCudaKernels() const { return IsCuda() || IsEmulated(); }
  // It runs enqueued work by itself, while the test does something else.
  bool HasThreads() const { return IsCuda() || config.host_schedule == CGR_SCHEDULE_ASYNC; }

  // A name for the test case: letters, digits and underscores.
  std::string Label() const;
};

void PrintTo(const DeviceParam &param, std::ostream *os);

DeviceParam HostParam(cgr_host_schedule schedule, uint64_t seed = 0);
// CGR_MAX_CAPABILITY=80 in the environment runs the kernels for older GPUs on a newer one.
DeviceParam CudaParam();
// It has the host's name: the layer makes it an emulated one.
DeviceParam EmulatedParam();

std::vector<DeviceParam> HostDevices();
std::vector<DeviceParam> AllDevices();
// For tests that need only two ways for the host to execute: at once on a worker, and at the last moment.
std::vector<DeviceParam> FewDevices();

std::string DeviceLabel(const ::testing::TestParamInfo<DeviceParam> &info);

bool GpuIsRequired();
// Keeps the GPU's primary context from one case to the next: a device releases it when it closes, and creating it again takes as
// long as hundreds of cases. Never closed.
void KeepGpuWarm();
bool GpuIsMissing(const DeviceParam &param);

// Opens the device of `param` below the public header; for tests of devices and of code that uses the table.
cgr_device *OpenDevice(const DeviceParam &param);

} // namespace cgr_test

// Compiled once, in devices.cc, and not in each test again. `Extern` is `extern` or nothing.
#define CGR_TEMPLATES_OF_DEVICES(Extern)                                                          \
  Extern template class std::vector<cgr_test::DeviceParam>;                                       \
  Extern template class testing::internal::ParamGenerator<cgr_test::DeviceParam>;                 \
  Extern template class testing::internal::ParamIterator<cgr_test::DeviceParam>;                  \
  Extern template class testing::internal::ParamGeneratorInterface<cgr_test::DeviceParam>;        \
  Extern template class testing::internal::ParamIteratorInterface<cgr_test::DeviceParam>;         \
  Extern template class testing::internal::ValuesInIteratorRangeGenerator<cgr_test::DeviceParam>; \
  Extern template class testing::WithParamInterface<cgr_test::DeviceParam>;                       \
  Extern template class testing::TestWithParam<cgr_test::DeviceParam>;
CGR_TEMPLATES_OF_DEVICES(extern)

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
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    SetUpOnDevice();
  }
  // What a suite makes before each case whose device is there.
  virtual void SetUpOnDevice() {}
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

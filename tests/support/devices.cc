#include "tests/support/devices.h"

#include <cstdlib>

CGR_TEMPLATES_OF_DEVICES()

namespace cgr_test {

const cgr_device_layer *&EmulationLayer() {
  static const cgr_device_layer *layer = nullptr;
  return layer;
}

std::string DeviceParam::Label() const {
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

void PrintTo(const DeviceParam &param, std::ostream *os) { *os << param.Label(); }

DeviceParam HostParam(cgr_host_schedule schedule, uint64_t seed) {
  DeviceParam param;
  param.name = "host";
  param.config = CGR_DEVICE_CONFIG_INIT;
  param.config.host_schedule = static_cast<int32_t>(schedule);
  param.config.host_seed = seed;
  return param;
}

DeviceParam CudaParam() {
  const char *limit = std::getenv("CGR_MAX_CAPABILITY");
  DeviceParam param;
  param.name = "cuda:0";
  param.config = CGR_DEVICE_CONFIG_INIT;
  param.config.max_capability = limit != nullptr ? std::atoi(limit) : 0;
  return param;
}

DeviceParam EmulatedParam() {
  DeviceParam param = HostParam(CGR_SCHEDULE_ASYNC);
  param.config.layer = EmulationLayer();
  return param;
}

std::vector<DeviceParam> HostDevices() {
  return { HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_EARLIEST), HostParam(CGR_SCHEDULE_LATEST),
           HostParam(CGR_SCHEDULE_RANDOM, 1), HostParam(CGR_SCHEDULE_RANDOM, 2) };
}

std::vector<DeviceParam> AllDevices() {
  std::vector<DeviceParam> all = HostDevices();
  all.push_back(CudaParam());
  if (EmulationLayer() != nullptr)
    all.push_back(EmulatedParam());
  return all;
}

std::vector<DeviceParam> FewDevices() {
  std::vector<DeviceParam> few = { HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_LATEST), CudaParam() };
  if (EmulationLayer() != nullptr)
    few.push_back(EmulatedParam());
  return few;
}

std::string DeviceLabel(const ::testing::TestParamInfo<DeviceParam> &info) { return info.param.Label(); }

bool GpuIsRequired() {
  const char *value = std::getenv("CGR_REQUIRE_GPU");
  return value != nullptr && std::string(value) == "1";
}

void KeepGpuWarm() {
  static const cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  static cgr_device *warm = nullptr;
  if (warm == nullptr && cgr__cuda_device_count() > 0) {
    EXPECT_EQ(cgr__cuda_device_open(0, &config, &warm), CGR__DEVICE_OK);
  }
}

bool GpuIsMissing(const DeviceParam &param) {
  if (param.IsCuda())
    KeepGpuWarm();
  return param.IsCuda() && cgr__cuda_device_count() == 0;
}

cgr_device *OpenDevice(const DeviceParam &param) {
  cgr_device *dev = nullptr;
  int error = param.IsCuda() ? cgr__cuda_device_open(0, &param.config, &dev) : cgr__host_device_open(&param.config, &dev);
  if (error == CGR__DEVICE_OK && param.IsEmulated())
    error = EmulationLayer()->open(dev, &param.config, &dev);
  EXPECT_EQ(error, CGR__DEVICE_OK) << cgr__device_error_name(error);
  return dev;
}

} // namespace cgr_test

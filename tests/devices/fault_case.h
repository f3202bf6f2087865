// The fault shim over the validation layer over a device: the layer sees whatever a test or the shim leaves behind.
#pragma once

#include <string>
#include <vector>

#include "devices/shims/fault.h"
#include "tests/devices/device_case.h"
#include "tests/support/violations.h"

namespace cgr_test {

class FaultCase : public DeviceCase {
protected:
  void TearDown() override {
    DeviceCase::TearDown();
    EXPECT_EQ(violations_.All(), expected_);
  }
  cgr_device *Over(cgr_device *inner) override {
    cgr_device *dev = nullptr;
    EXPECT_EQ(cgr__fault_open(violations_.Over(inner), &dev), CGR__DEVICE_OK);
    return dev;
  }

  Violations violations_;
  std::vector<std::string> expected_;
};

} // namespace cgr_test

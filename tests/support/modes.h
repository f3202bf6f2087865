// Tests over devices and graph modes.
#pragma once

#include <algorithm>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/names.h"
#include "tests/support/devices.h"

namespace cgr_test {

struct DeviceAndMode {
  DeviceParam device;
  cgr_graph_mode mode;

  std::string Label() const {
    std::string label = device.Label() + "_" + cgr_graph_mode_name(mode);
    std::replace(label.begin(), label.end(), ' ', '_');
    return label;
  }
};

inline void PrintTo(const DeviceAndMode &made, std::ostream *os) { *os << made.Label(); }

inline std::string ModeLabel(const ::testing::TestParamInfo<DeviceAndMode> &made) { return made.param.Label(); }

inline std::vector<DeviceAndMode> EveryPair(const std::vector<DeviceParam> &devices, const std::vector<cgr_graph_mode> &modes) {
  std::vector<DeviceAndMode> pairs;
  for (const DeviceParam &device : devices)
    for (cgr_graph_mode mode : modes)
      pairs.push_back({ device, mode });
  return pairs;
}

} // namespace cgr_test

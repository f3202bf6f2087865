// What a validation layer reports. Whoever includes this links the layer.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/support/devices.h"

namespace cgr_test {

// What the validation layer reports, from any thread.
class Violations {
public:
  // A device with the layer. An emulated one is a layer itself, which this one is opened over.
  cgr_device *Open(const DeviceParam &param) {
    if (param.IsEmulated())
      return Over(OpenDevice(param));
    cgr_device_config config = param.config;
    cgr_device *dev = nullptr;
    Attach(&config);
    EXPECT_EQ(cgr_device_open(param.name.c_str(), &config, &dev), CGR_OK) << cgr_last_message();
    return dev;
  }
  // The layer over an open device; closing it closes both.
  cgr_device *Over(cgr_device *inner) {
    cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
    cgr_device *dev = nullptr;
    Attach(&config);
    EXPECT_EQ(config.layer->open(inner, &config, &dev), CGR__DEVICE_OK);
    return dev;
  }
  void Attach(cgr_device_config *config) {
    config->layer = cgr_validation_layer();
    config->on_violation = Add;
    config->violation_context = this;
  }
  std::vector<std::string> All() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }
  size_t size() const { return All().size(); }
  // The last one; "" if there is none.
  std::string Last() const {
    std::vector<std::string> all = All();
    return all.empty() ? "" : all.back();
  }

private:
  static void Add(void *context, const char *message) {
    auto *violations = static_cast<Violations *>(context);
    std::lock_guard<std::mutex> lock(violations->mutex_);
    violations->messages_.push_back(message);
  }

  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
};

} // namespace cgr_test

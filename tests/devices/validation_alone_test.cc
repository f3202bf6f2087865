// The validation layer links without the rest of the library, as it must next to a libcgr.so that exports its public functions
// alone. This file is linked with the layer and nothing else, and opens it over a stub device.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cgr/device.h"
#include "devices/device.h"

namespace {

int calls;
std::string told;

int Fill(cgr_device *, void *, uint64_t, size_t, size_t, cudaStream_t) {
  calls++;
  return CGR__DEVICE_OK;
}
int Close(cgr_device *) { return CGR__DEVICE_OK; }

TEST(ValidationAloneTest, WorksOverAnyTable) {
  cgr__device_ops ops;
  struct cgr_device stub;
  std::memset(static_cast<void *>(&ops), 0, sizeof ops);
  std::memset(static_cast<void *>(&stub), 0, sizeof stub);
  ops.fill = Fill;
  ops.close = Close;
  stub.ops = &ops;
  stub.magic = CGR__DEVICE_MAGIC;
  stub.kind = CGR_DEVICE_KIND_CUDA; // streams may be the engine's own
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  config.on_violation = [](void *, const char *message) { told = message; };
  cgr_device *dev = nullptr;
  char bytes[8];
  ASSERT_EQ(cgr_validation_layer()->open(&stub, &config, &dev), CGR__DEVICE_OK);
  auto stream = reinterpret_cast<cudaStream_t>(bytes);
  EXPECT_EQ(dev->ops->fill(dev, bytes, 0, 1, 8, stream), CGR__DEVICE_OK);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(dev->ops->mem_free(dev, bytes, CGR__MEMORY_DEVICE), CGR__DEVICE_INVALID);
  EXPECT_EQ(told, "cgr_memory_free: the memory is not of this device");
  EXPECT_STREQ(dev->explain(dev), told.c_str());
  EXPECT_EQ(dev->ops->close(dev), CGR__DEVICE_OK);
}

} // namespace

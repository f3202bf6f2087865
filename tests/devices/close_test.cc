// A device counts what was made from it and refuses to close while any of it is left; non-device handles are refused everywhere.
#include <cstring>
#include <string>

#include "cgr/device.h"
#include "devices/shims/fault.h"
#include "tests/devices/scenario.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"

namespace {

using cgr_test::ExpectMessage;

// The fault shim as a layer: the public handle is the layer's device, and it is the one that counts.
int OpenFault(cgr_device *inner, const cgr_device_config *, cgr_device **dev) { return cgr__fault_open(inner, dev); }
const cgr_device_layer fault_layer = { OpenFault };

class CloseTest : public ::testing::TestWithParam<cgr_test::DeviceParam> {
protected:
  void Open(const cgr_device_layer *layer) {
    cgr_device_config config = GetParam().config;
    config.layer = layer;
    ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &dev_), CGR_OK) << cgr_last_message();
  }
  void ExpectAlive(const std::string &what) {
    ExpectMessage(cgr_device_close(dev_), CGR_ERROR_STATE, { "cgr_device_close: " + what + " alive, expected none" });
  }

  cgr_device *dev_ = nullptr;
};

TEST_P(CloseTest, EachKindIsCounted) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  for (const cgr_device_layer *layer : { static_cast<const cgr_device_layer *>(nullptr), cgr_validation_layer() }) {
    Open(layer);
    cudaStream_t streams[2];
    cgr_event *events[3];
    void *memory[4];
    for (auto &stream : streams)
      ASSERT_EQ(cgr_stream_create(dev_, &stream), CGR_OK);
    for (auto &event : events)
      ASSERT_EQ(cgr_event_create(dev_, &event), CGR_OK);
    for (int i = 0; i < 4; i++)
      ASSERT_EQ((i % 2 ? cgr_memory_alloc : cgr_memory_alloc_pinned)(dev_, 64, &memory[i]), CGR_OK);
    cgr__device_retain_runtime(dev_);
    ExpectAlive("1 runtime, 2 streams, 3 events, 4 allocations are");
    ExpectAlive("1 runtime, 2 streams, 3 events, 4 allocations are"); // nothing was done
    ASSERT_EQ(cgr_fill(dev_, memory[0], 1, 64, streams[0]), CGR_OK);
    ASSERT_EQ(cgr_stream_synchronize(dev_, streams[0]), CGR_OK);
    cgr__device_release_runtime(dev_);
    ExpectAlive("2 streams, 3 events, 4 allocations are");
    for (auto &event : events)
      ASSERT_EQ(cgr_event_destroy(dev_, event), CGR_OK);
    ExpectAlive("2 streams, 4 allocations are");
    for (int i = 0; i < 4; i++)
      ASSERT_EQ((i % 2 ? cgr_memory_free : cgr_memory_free_pinned)(dev_, memory[i]), CGR_OK);
    ASSERT_EQ(cgr_stream_destroy(dev_, streams[1]), CGR_OK);
    ExpectAlive("1 stream is");
    ASSERT_EQ(cgr_stream_destroy(dev_, streams[0]), CGR_OK);
    EXPECT_EQ(cgr_device_close(dev_), CGR_OK);
  }
}

TEST_P(CloseTest, RuntimesAloneAreCountedToo) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  Open(nullptr);
  cgr__device_retain_runtime(dev_);
  cgr__device_retain_runtime(dev_);
  ExpectAlive("2 runtimes are");
  cgr__device_release_runtime(dev_);
  ExpectAlive("1 runtime is");
  cgr__device_release_runtime(dev_);
  EXPECT_EQ(cgr_device_close(dev_), CGR_OK);
}

// A create that failed leaves nothing alive; a destroy that refused has destroyed nothing.
TEST_P(CloseTest, FailuresKeepTheCountRight) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  Open(&fault_layer);
  cudaStream_t stream;
  cgr_event *event;
  void *memory, *none;
  ASSERT_EQ(cgr_stream_create(dev_, &stream), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev_, &event), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  cgr__fault_plan plan = { CGR__FAULT_ANY_OP, 1, CGR__FAULT_FROM_NTH_ON, 1, CGR__DEVICE_NO_MEMORY, 2 };
  cgr__fault_set(dev_, &plan);
  cudaStream_t no_stream;
  cgr_event *no_event;
  EXPECT_EQ(cgr_stream_create(dev_, &no_stream), CGR_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cgr_event_create(dev_, &no_event), CGR_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cgr_memory_alloc(dev_, 64, &none), CGR_ERROR_OUT_OF_MEMORY);
  cgr__fault_set(dev_, nullptr);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, memory), CGR_ERROR_INVALID_ARGUMENT);
  ExpectAlive("1 stream, 1 event, 1 allocation are");
  // These take effect, yet report a failure.
  plan.error = CGR__DEVICE_FAILED;
  cgr__fault_set(dev_, &plan);
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_ERROR_DEVICE);
  EXPECT_EQ(cgr_event_destroy(dev_, event), CGR_ERROR_DEVICE);
  EXPECT_EQ(cgr_stream_destroy(dev_, stream), CGR_ERROR_DEVICE);
  cgr__fault_set(dev_, nullptr);
  EXPECT_EQ(cgr_device_close(dev_), CGR_OK) << cgr_last_message();
}

TEST_P(CloseTest, ADeadDeviceClosesOnceItsObjectsAreReleased) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  Open(&fault_layer);
  cudaStream_t stream;
  cgr_event *event;
  void *memory;
  ASSERT_EQ(cgr_stream_create(dev_, &stream), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev_, &event), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  cgr__fault_plan plan = { CGR__OP_STREAM_SYNC, 1, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 700 };
  cgr__fault_set(dev_, &plan);
  EXPECT_EQ(cgr_stream_synchronize(dev_, stream), CGR_ERROR_DEAD);
  EXPECT_EQ(cgr_fill(dev_, memory, 0, 64, stream), CGR_ERROR_DEAD);
  EXPECT_EQ(cgr_last_device_code(), 700);
  ExpectAlive("1 stream, 1 event, 1 allocation are");
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
  EXPECT_EQ(cgr_event_destroy(dev_, event), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev_, stream), CGR_OK);
  EXPECT_EQ(cgr_device_close(dev_), CGR_OK);
}

CGR_INSTANTIATE_OVER_DEVICES(CloseTest);

// A device that cannot close yet, like a GPU on which a stream captures.
int refusals;
int RefuseOnce(cgr_device *) { return refusals++ == 0 ? CGR__DEVICE_CAPTURE_ILLEGAL : CGR__DEVICE_OK; }

TEST(CloseRefusedTest, ADeviceThatDoesNotCloseStaysOpen) {
  cgr__device_ops ops;
  struct cgr_device stub;
  std::memset(static_cast<void *>(&ops), 0, sizeof ops);
  std::memset(static_cast<void *>(&stub), 0, sizeof stub);
  ops.close = RefuseOnce;
  stub.ops = &ops;
  stub.magic = CGR__DEVICE_MAGIC;
  stub.kind = CGR_DEVICE_KIND_HOST;
  stub.last_raw = 900;
  cgr_test::Violations violations;
  cgr_device *layer = violations.Over(&stub);
  EXPECT_EQ(cgr_device_close(layer), CGR_ERROR_CAPTURE); // the layer is still there too
  EXPECT_EQ(cgr_last_device_code(), 900);
  EXPECT_EQ(cgr_device_close(layer), CGR_OK);
  EXPECT_EQ(refusals, 2);
}

TEST(NoDeviceTest, IsRefusedByEveryFunction) {
  struct cgr_device closed;
  std::memset(static_cast<void *>(&closed), 0, sizeof closed);
  closed.magic = 0x12345678;
  cudaStream_t stream = reinterpret_cast<cudaStream_t>(&closed);
  cgr_event *event = reinterpret_cast<cgr_event *>(&closed);
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  void *memory = nullptr;
  cgr_host_function nothing = [](const void *) {};
  for (cgr_device *dev : { static_cast<cgr_device *>(nullptr), &closed }) {
    const cgr_status status = dev == nullptr ? CGR_ERROR_NULL_POINTER : CGR_ERROR_INVALID_STRUCT;
    const std::string what = dev == nullptr ? ": device is NULL" : ": device has magic 0x12345678";
#define EXPECT_REFUSED(function, ...) ExpectMessage(function(__VA_ARGS__), status, { #function + what })
    EXPECT_REFUSED(cgr_device_get_info, dev, &info);
    EXPECT_REFUSED(cgr_memory_alloc, dev, 1, &memory);
    EXPECT_REFUSED(cgr_memory_free, dev, &closed);
    EXPECT_REFUSED(cgr_memory_alloc_pinned, dev, 1, &memory);
    EXPECT_REFUSED(cgr_memory_free_pinned, dev, &closed);
    EXPECT_REFUSED(cgr_stream_create, dev, &stream);
    EXPECT_REFUSED(cgr_stream_destroy, dev, stream);
    EXPECT_REFUSED(cgr_stream_synchronize, dev, stream);
    EXPECT_REFUSED(cgr_event_create, dev, &event);
    EXPECT_REFUSED(cgr_event_destroy, dev, event);
    EXPECT_REFUSED(cgr_event_record, dev, event, stream);
    EXPECT_REFUSED(cgr_event_wait, dev, event, stream);
    EXPECT_REFUSED(cgr_copy, dev, &closed, &info, 1, stream);
    EXPECT_REFUSED(cgr_fill, dev, &closed, 0, 1, stream);
    EXPECT_REFUSED(cgr_launch_host, dev, nothing, nullptr, 0, stream);
    if (dev == nullptr) {
      EXPECT_EQ(cgr_device_close(dev), CGR_OK);
    } else {
      EXPECT_REFUSED(cgr_device_close, dev);
    }
#undef EXPECT_REFUSED
  }
}

} // namespace

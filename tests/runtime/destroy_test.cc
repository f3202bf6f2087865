// The end of a runtime: with steps in flight, with one prepared, with requests open, and when it has opened its device itself.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Destroy : public OverDevices {};

TEST_P(Destroy, WaitsForTheStepsInFlight) {
  for (size_t in_flight : { 0u, 1u, 3u, 4u }) {
    Captured<Engine> engine(OptionsFor(GetParam()));
    int32_t a = engine.Start(5, 1), b = engine.Start(20, 2);
    for (size_t n = 0; n < in_flight; n++)
      ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(n % 2 == 0 ? engine.Decode({ a, b }) : engine.Chunks({ { a, 3 } })));
    engine.leave_in_flight = true;
  }
}

TEST_P(Destroy, TakesAPreparedStepWithIt) {
  Captured<Engine> engine(OptionsFor(GetParam()));
  int32_t a = engine.Start(5, 1);
  ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(engine.Decode({ a })));
  CGR_ASSERT_OK(engine.Prepare(engine.Decode({ a })));
  engine.leave_in_flight = true;
}

TEST_P(Destroy, WaitsForAnAbandonedStep) {
  Captured<Engine> engine(OptionsFor(GetParam()));
  int32_t a = engine.Start(5, 1);
  CGR_ASSERT_OK(engine.Prepare(engine.Chunks({ { a, 3 } })));
  engine.state.fail_after = 2;
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Launch());
  engine.leave_in_flight = true;
}

// Once its steps have been waited for, the stream of the last launch may go before the runtime.
TEST_P(Destroy, NeedsNoStreamWhenItsStepsAreOver) {
  Captured<Engine> engine(OptionsFor(GetParam()));
  int32_t a = engine.Start(5, 1);
  engine.Step(engine.Decode({ a }));
  engine.CheckCaches();
  engine.CheckRows();
  CGR_ASSERT_OK(cgr_stream_destroy(engine.dev, engine.stream));
  engine.stream = nullptr;
  engine.leave_in_flight = true;
}

// A device with a runtime does not close, and counts what is alive.
TEST_P(Destroy, ComesBeforeTheDeviceCloses) {
  Engine engine(OptionsFor(GetParam()));
  ExpectMessage(cgr_device_close(engine.dev), CGR_ERROR_STATE, { "1 runtime", "1 stream" });
  CGR_ASSERT_OK(engine.Capture());
  engine.Step(engine.Decode({ engine.Start(5, 1) }));
}

// A runtime that opens its device does so with the defaults: the host with threads.
class DestroyWithDevice : public Destroy {};

// It closes the device, but not while the engine has something on it.
TEST_P(DestroyWithDevice, ClosesWhatItOpened) {
  Engine lender(OptionsFor(GetParam())); // of memory for the caches, on a device of its own
  cgr_config config = lender.Config();
  config.device_handle = nullptr, config.device = GetParam().name.c_str();
  cgr_runtime *rt = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
  cgr_device *dev = cgr_test::DeviceOf(rt);
  ASSERT_NE(dev, nullptr);
  EXPECT_NE(dev, lender.dev);
  cudaStream_t stream = nullptr;
  cgr_event *event = nullptr;
  void *memory = nullptr;
  CGR_ASSERT_OK(cgr_stream_create(dev, &stream));
  CGR_ASSERT_OK(cgr_event_create(dev, &event));
  CGR_ASSERT_OK(cgr_memory_alloc(dev, 64, &memory));
  ExpectMessage(cgr_runtime_destroy(rt), CGR_ERROR_STATE, { "1 stream, 1 event and 1 allocation of" });
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt, &batch, &step)); // it is alive
  CGR_ASSERT_OK(cgr_step_launch(rt, &step, stream));
  CGR_ASSERT_OK(cgr_step_wait(rt, step.mark, -1, nullptr));
  CGR_EXPECT_OK(cgr_memory_free(dev, memory));
  ExpectMessage(cgr_runtime_destroy(rt), CGR_ERROR_STATE, { "1 stream, 1 event and 0 allocations of" });
  CGR_EXPECT_OK(cgr_event_destroy(dev, event));
  CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
}

CGR_INSTANTIATE_OVER_DEVICES(Destroy);
CGR_INSTANTIATE_OVER_DEVICES_WITH_THREADS(DestroyWithDevice);

} // namespace
} // namespace cgr_test

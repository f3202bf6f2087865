// The validation layer, over every device: it refuses and reports by name what breaks a rule; it leaves correct programs alone.
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "devices/shims/calls.h"
#include "devices/shims/trace.h"
#include "tests/devices/device_case.h"
#include "tests/devices/scenario.h"
#include "tests/support/expect.h"

// The sanitizers' malloc aborts on a huge request unless told to fail as malloc does.
extern "C" const char *__asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char *__tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

// Through the public functions alone, as an engine uses it.
class ValidationTest : public cgr_test::PublicCase {
protected:
  void TearDown() override {
    PublicCase::TearDown();
    EXPECT_EQ(violations_.size(), expected_) << violations_.Last();
  }
  void Configure(cgr_device_config *config) override { violations_.Attach(config); }

  // The call is refused; the violation is reported once, by name, and is in the last message too: with the function at its
  // beginning, and with one code at its end.
  void ExpectViolation(cgr_status got, cgr_status status, const std::string &what) {
    EXPECT_EQ(got, status) << cgr_last_message();
    EXPECT_EQ(violations_.size(), ++expected_) << what;
    EXPECT_EQ(violations_.Last(), what);
    const std::string message = cgr_last_message();
    const size_t name = what.find(": "), code = message.find(" (code ");
    EXPECT_EQ(message.rfind(what.substr(0, name + 1), 0), 0u) << message;
    EXPECT_EQ(message.find(what.substr(0, name + 2), name), std::string::npos) << message << ": names the function twice";
    EXPECT_TRUE(cgr_test::MessageHas({ "refused by the device's layer" + what.substr(name) }));
    EXPECT_EQ(code, message.rfind(" (code ")) << message << ": has two codes";
    EXPECT_EQ(message.find(')', code), message.size() - 1) << message;
  }

  cgr_test::Violations violations_;
  size_t expected_ = 0;
};

struct AddArgs {
  int *target;
};
void Increment(const void *raw) { ++*static_cast<const AddArgs *>(raw)->target; }

TEST_P(ValidationTest, ARightProgramIsLeftAlone) {
  cudaStream_t a = NewStream(), b = NewStream();
  cgr_event *event = NewEvent();
  void *memory, *pinned;
  for (int i = 0; i < 20; i++) {
    ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
    ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 64, &pinned), CGR_OK);
    auto *words = static_cast<int *>(pinned);
    AddArgs args = { words };
    ASSERT_EQ(cgr_fill(dev_, memory, i, 64, a), CGR_OK);
    ASSERT_EQ(cgr_event_record(dev_, event, a), CGR_OK);
    ASSERT_EQ(cgr_event_wait(dev_, event, b), CGR_OK);
    ASSERT_EQ(cgr_copy(dev_, words, memory, 64, b), CGR_OK);
    ASSERT_EQ(cgr_launch_host(dev_, Increment, &args, sizeof args, b), CGR_OK);
    ASSERT_EQ(cgr_stream_synchronize(dev_, b), CGR_OK);
    EXPECT_EQ(words[0], i * 0x01010101 + 1);
    ASSERT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
    ASSERT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  }
  EXPECT_EQ(violations_.All(), std::vector<std::string>());
}

TEST_P(ValidationTest, DestroyedHandlesAreNamed) {
  cudaStream_t stream = NewStream(), gone;
  cgr_event *event = NewEvent(), *lost;
  char bytes[2] = { 1, 2 };
  AddArgs args = { nullptr };
  ASSERT_EQ(cgr_stream_create(dev_, &gone), CGR_OK);
  ASSERT_EQ(cgr_event_create(dev_, &lost), CGR_OK);
  ASSERT_EQ(cgr_stream_destroy(dev_, gone), CGR_OK);
  ASSERT_EQ(cgr_event_destroy(dev_, lost), CGR_OK);
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  ExpectViolation(cgr_copy(dev_, bytes, bytes + 1, 1, gone), bad, "cgr_copy: the stream has been destroyed");
  ExpectViolation(cgr_fill(dev_, bytes, 0, 1, gone), bad, "cgr_fill: the stream has been destroyed");
  ExpectViolation(cgr_launch_host(dev_, Increment, &args, sizeof args, gone), bad,
                  "cgr_launch_host: the stream has been destroyed");
  ExpectViolation(cgr_stream_synchronize(dev_, gone), bad, "cgr_stream_synchronize: the stream has been destroyed");
  EXPECT_EQ(cgr_stream_destroy(dev_, gone), bad); // refused before the layer sees it
  EXPECT_EQ(dev_->ops->stream_destroy(dev_, gone), CGR__DEVICE_INVALID);
  EXPECT_EQ(violations_.size(), ++expected_);
  EXPECT_EQ(violations_.Last(), "cgr_stream_destroy: the stream has been destroyed");
  ExpectViolation(cgr_event_record(dev_, event, gone), bad, "cgr_event_record: the stream has been destroyed");
  ExpectViolation(cgr_event_wait(dev_, event, gone), bad, "cgr_event_wait: the stream has been destroyed");
  ExpectViolation(cgr_event_record(dev_, lost, stream), bad, "cgr_event_record: the event has been destroyed");
  ExpectViolation(cgr_event_wait(dev_, lost, stream), bad, "cgr_event_wait: the event has been destroyed");
  ExpectViolation(cgr_event_destroy(dev_, lost), bad, "cgr_event_destroy: the event has been destroyed");
}

TEST_P(ValidationTest, WrongMemoryIsNamed) {
  void *memory, *pinned;
  char byte = 0;
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 64, &pinned), CGR_OK);
  NewMemory(64);
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  ExpectViolation(cgr_memory_free_pinned(dev_, memory), bad,
                  "cgr_memory_free_pinned: the memory is device memory, which cgr_memory_free frees");
  ExpectViolation(cgr_memory_free(dev_, pinned), bad,
                  "cgr_memory_free: the memory is pinned memory, which cgr_memory_free_pinned frees");
  ExpectViolation(cgr_memory_free(dev_, &byte), bad, "cgr_memory_free: the memory is not of this device");
  const auto address = [](const void *at) {
    char text[24];
    snprintf(text, sizeof text, "%p", at);
    return std::string(text);
  };
  void *const inner = static_cast<char *>(memory) + 1;
  ExpectViolation(cgr_memory_free(dev_, inner), bad,
                  "cgr_memory_free: memory is " + address(inner) + ", byte 1 of 64 bytes of device memory at " + address(memory) +
                      ", expected its beginning");
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  ExpectViolation(cgr_memory_free(dev_, memory), bad, "cgr_memory_free: the memory has been freed");
  ExpectViolation(cgr_memory_free_pinned(dev_, pinned), bad, "cgr_memory_free_pinned: the memory has been freed");
}

// By copies and fills, from any byte on; the whole of it may be used, and so may other memory.
TEST_P(ValidationTest, WorkBeyondAnAllocationIsNamed) {
  void *memory, *pinned;
  cudaStream_t stream;
  char own[256];
  ASSERT_EQ(cgr_stream_create(dev_, &stream), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc(dev_, 64, &memory), CGR_OK);
  ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 200, &pinned), CGR_OK);
  for (size_t at : { size_t{ 0 }, size_t{ 1 }, size_t{ 48 }, size_t{ 63 } }) {
    char *const inner = static_cast<char *>(memory) + at;
    char place[160];
    snprintf(place, sizeof place, "%p, byte %zu of 64 bytes of device memory at %p, and bytes is 65, expected at most %zu", inner,
             at, memory, 64 - at);
    const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
    ExpectViolation(cgr_copy(dev_, inner, pinned, 65, stream), bad, "cgr_copy: dst is " + std::string(place));
    ExpectViolation(cgr_copy(dev_, pinned, inner, 65, stream), bad, "cgr_copy: src is " + std::string(place));
    ExpectViolation(cgr_fill(dev_, inner, 0, 65, stream), bad, "cgr_fill: dst is " + std::string(place));
    EXPECT_EQ(cgr_copy(dev_, inner, pinned, 64 - at, stream), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_fill(dev_, inner, 0, 64 - at, stream), CGR_OK) << cgr_last_message();
    EXPECT_EQ(cgr_copy(dev_, own, inner, 64 - at, stream), CGR_OK) << cgr_last_message();
  }
  EXPECT_EQ(cgr_stream_synchronize(dev_, stream), CGR_OK);
  EXPECT_EQ(cgr_memory_free(dev_, memory), CGR_OK);
  EXPECT_EQ(cgr_memory_free_pinned(dev_, pinned), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(dev_, stream), CGR_OK);
  EXPECT_EQ(violations_.size(), expected_);
}

// Only while the thread is in a function of the engine's; what the library itself does next to a capture is its own.
TEST_P(ValidationTest, WorkOutsideOfACaptureIsNamedInsideRecord) {
  cudaStream_t in = NewStream(), out = NewStream();
  cgr__graph *graph = nullptr;
  void *memory = NewMemory(64);
  ASSERT_EQ(dev_->ops->capture_begin(dev_, in), CGR__DEVICE_OK);
  EXPECT_EQ(cgr_fill(dev_, memory, 1, 64, out), CGR_OK);
  dev_->inside(dev_, 1);
  EXPECT_EQ(cgr_fill(dev_, memory, 1, 64, in), CGR_OK);
  EXPECT_EQ(cgr_fill(dev_, memory, 1, 64, out), CGR_ERROR_CAPTURE);
  EXPECT_EQ(violations_.size(), ++expected_);
  EXPECT_EQ(violations_.Last().rfind("cgr_fill: inside `record` of a capture, stream ", 0), 0u) << violations_.Last();
  dev_->inside(dev_, -1);
  EXPECT_EQ(cgr_fill(dev_, memory, 1, 64, out), CGR_OK);
  ASSERT_EQ(dev_->ops->capture_end(dev_, in, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(dev_->ops->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  EXPECT_EQ(cgr_stream_synchronize(dev_, out), CGR_OK);
}

TEST_P(ValidationTest, HandlesOfAnotherDeviceAreNamed) {
  cgr_device *other = nullptr;
  cudaStream_t stream = NewStream(), foreign;
  cgr_event *event = NewEvent(), *theirs;
  cgr_device_config config = GetParam().config;
  ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &other), CGR_OK);
  ASSERT_EQ(cgr_stream_create(other, &foreign), CGR_OK);
  ASSERT_EQ(cgr_event_create(other, &theirs), CGR_OK);
  ExpectViolation(cgr_event_record(dev_, theirs, stream), CGR_ERROR_INVALID_ARGUMENT,
                  "cgr_event_record: the event is not of this device");
  if (GetParam().IsCuda()) { // any stream of the GPU is as good as the engine's own
    EXPECT_EQ(cgr_event_record(dev_, event, foreign), CGR_OK);
  } else {
    ExpectViolation(cgr_event_record(dev_, event, foreign), CGR_ERROR_INVALID_ARGUMENT,
                    "cgr_event_record: the stream is not of this device");
  }
  EXPECT_EQ(cgr_event_destroy(other, theirs), CGR_OK);
  EXPECT_EQ(cgr_stream_destroy(other, foreign), CGR_OK);
  EXPECT_EQ(cgr_device_close(other), CGR_OK);
}

TEST_P(ValidationTest, CaptureRulesAreNamed) {
  cudaStream_t stream = NewStream();
  cgr_event *event = NewEvent();
  cgr__graph *graph;
  void *memory;
  ASSERT_EQ(dev_->ops->capture_begin(dev_, stream), CGR__DEVICE_OK);
  ASSERT_EQ(cgr_event_record(dev_, event, stream), CGR_OK);
  const cgr_status bad = CGR_ERROR_CAPTURE;
  ExpectViolation(cgr_stream_synchronize(dev_, stream), bad, "cgr_stream_synchronize: the stream captures");
  ExpectViolation(cgr_stream_destroy(dev_, stream), bad, "cgr_stream_destroy: the stream captures");
  ExpectViolation(cgr_memory_alloc(dev_, 64, &memory), bad, "cgr_memory_alloc: the calling thread captures");
  ExpectViolation(cgr_memory_alloc_pinned(dev_, 64, &memory), bad, "cgr_memory_alloc_pinned: the calling thread captures");
  EXPECT_EQ(cgr_last_device_code(), 900);
  EXPECT_EQ(dev_->ops->capture_end(dev_, stream, &graph), CGR__DEVICE_OK); // none of it invalidated the capture
  EXPECT_EQ(dev_->ops->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  ExpectViolation(cgr_event_wait(dev_, event, stream), bad, "cgr_event_wait: the event was recorded in a capture that is over");
}

// What only the device can know is reported too: here, that an event was recorded outside the capture that would wait for it.
TEST_P(ValidationTest, WhatTheDeviceRefusesIsNamed) {
  cudaStream_t a = NewStream(), b = NewStream();
  cgr_event *event = NewEvent();
  cgr__graph *graph;
  ASSERT_EQ(cgr_event_record(dev_, event, b), CGR_OK);
  ASSERT_EQ(dev_->ops->capture_begin(dev_, a), CGR__DEVICE_OK);
  ExpectViolation(cgr_event_wait(dev_, event, a), CGR_ERROR_CAPTURE,
                  "cgr_event_wait: a captured stream would wait for work outside of its capture (code 905)");
  ExpectViolation(cgr_event_record(dev_, event, a), CGR_ERROR_CAPTURE,
                  "cgr_event_record: the capture was invalidated before (code 901)");
  EXPECT_EQ(dev_->ops->capture_end(dev_, a, &graph), CGR__DEVICE_CAPTURE_INVALID); // the right way out
}

TEST_P(ValidationTest, WithoutACallbackTheMessageIsKept) {
  cgr_device *dev = nullptr;
  cgr_device_config config = GetParam().config;
  char byte = 0;
  config.layer = cgr_validation_layer();
  ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &dev), CGR_OK);
  cgr_test::ExpectMessage(cgr_memory_free(dev, &byte), CGR_ERROR_INVALID_ARGUMENT,
                          { "cgr_memory_free: memory is 0x", "layer: the memory is not of this device" });
  // The reason belongs to that call alone: a failure that the layer let pass is reported as usual.
  void *memory;
  EXPECT_EQ(cgr_memory_alloc(dev, static_cast<size_t>(1) << 60, &memory), CGR_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(cgr_test::MessageHas({ "layer" }));
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

// The callback waits for another thread's call on the same device: the layer must not hold its lock.
struct Reentry {
  cgr_device *dev;
  int calls;
};

TEST_P(ValidationTest, TheCallbackRunsWithoutTheLock) {
  cgr_device *dev = nullptr;
  Reentry reentry = { nullptr, 0 };
  cgr_device_config config = GetParam().config;
  char byte = 0;
  config.layer = cgr_validation_layer();
  config.violation_context = &reentry;
  config.on_violation = [](void *context, const char *) {
    auto *r = static_cast<Reentry *>(context);
    std::thread([r] {
      void *memory;
      ASSERT_EQ(cgr_memory_alloc(r->dev, 64, &memory), CGR_OK);
      ASSERT_EQ(cgr_memory_free(r->dev, memory), CGR_OK);
      r->calls++;
    }).join();
  };
  ASSERT_EQ(cgr_device_open(GetParam().name.c_str(), &config, &dev), CGR_OK);
  reentry.dev = dev;
  EXPECT_EQ(cgr_memory_free(dev, &byte), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(reentry.calls, 1);
  EXPECT_EQ(cgr_device_close(dev), CGR_OK);
}

// Once a thread frees an address, another may get it at once: neither gets reports about the other's.
TEST_P(ValidationTest, ThreadsThatShareAddressesAreLeftAlone) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([this] {
      for (int round = 0; round < 200; round++) {
        void *memory;
        cudaStream_t stream;
        ASSERT_EQ(cgr_memory_alloc_pinned(dev_, 64, &memory), CGR_OK);
        ASSERT_EQ(cgr_stream_create(dev_, &stream), CGR_OK);
        ASSERT_EQ(cgr_fill(dev_, memory, 1, 64, stream), CGR_OK);
        ASSERT_EQ(cgr_stream_destroy(dev_, stream), CGR_OK);
        ASSERT_EQ(cgr_memory_free_pinned(dev_, memory), CGR_OK);
      }
    });
  for (auto &thread : threads)
    thread.join();
  EXPECT_EQ(violations_.All(), std::vector<std::string>());
}

CGR_INSTANTIATE_OVER_DEVICES(ValidationTest);

// Over the table: what the runtime does with a device.
class ValidationTableTest : public cgr_test::DeviceCase {
protected:
  cgr_device *Over(cgr_device *inner) override { return violations_.Over(inner); }

  cgr_test::Violations violations_;
};

TEST_P(ValidationTableTest, EveryKindOfCallPasses) {
  int result = 0;
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(cgr_test::Scenario(dev_, &result), CGR__DEVICE_OK);
    EXPECT_EQ(result, 0x03030303);
  }
  EXPECT_EQ(violations_.All(), std::vector<std::string>());
}

TEST_P(ValidationTableTest, AnExecInFlightMayGo) {
  cudaStream_t stream = NewStream();
  cgr__graph *graph;
  cgr__exec *exec;
  ASSERT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, nullptr), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->exec_launch(dev_, exec, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK);
  EXPECT_EQ(violations_.All(), std::vector<std::string>());
  EXPECT_EQ(ops_->exec_launch(dev_, exec, stream), CGR__DEVICE_INVALID);
  EXPECT_EQ(violations_.Last(), "graph launch: the executable graph has been destroyed");
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_INVALID);
  EXPECT_EQ(violations_.Last(), "destruction of a graph: the graph has been destroyed");
}

TEST_P(ValidationTableTest, ACaptureSurvivesWhatItRefuses) {
  cudaStream_t stream = NewStream(), joined = NewStream();
  cgr__event *event = NewEvent();
  cgr__graph *graph;
  void *memory = nullptr;
  EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(violations_.Last(), "end of a capture: the stream does not capture");
  ASSERT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_OK);
  cgr__exec *exec = Captured(stream);
  ASSERT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_record(dev_, event, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_wait(dev_, event, joined), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->capture_begin(dev_, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(violations_.Last(), "begin of a capture: the stream captures already");
  EXPECT_EQ(ops_->capture_end(dev_, joined, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(violations_.Last(), "end of a capture: the capture began on another stream");
  EXPECT_EQ(ops_->exec_launch(dev_, exec, joined), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(violations_.Last(), "graph launch: the stream captures");
  EXPECT_EQ(ops_->stream_query(dev_, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(violations_.Last(), "stream query: the stream captures");
  EXPECT_EQ(ops_->event_sync(dev_, event), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(violations_.Last(), "host wait for an event: the event was recorded in a capture");
  EXPECT_EQ(dev_->last_raw, 907);
  EXPECT_EQ(ops_->event_query(dev_, event), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_CAPTURE_ILLEGAL);
  std::thread([&] {
    cgr__graph *other;
    EXPECT_EQ(ops_->capture_end(dev_, stream, &other), CGR__DEVICE_CAPTURE_INVALID);
    EXPECT_EQ(violations_.Last(), "end of a capture: the capture was begun by another thread");
    EXPECT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK); // this thread does not capture
    EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  }).join();
  EXPECT_EQ(ops_->capture_end(dev_, stream, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(violations_.size(), 9u);
  EXPECT_EQ(ops_->stream_sync(dev_, joined), CGR__DEVICE_OK); // out of the capture again
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

// By the function that a user calls, if there is one: the table's own names are internal.
TEST(ValidationNames, OfCallsAreNotThoseOfTheTable) {
  std::set<std::string> names;
  for (int op = 0; op < CGR__OP_COUNT; op++) {
    const char *name = cgr__call_name(static_cast<cgr__shim_op>(op), CGR__MEMORY_DEVICE);
    ASSERT_NE(name, nullptr) << cgr__shim_op_name(op);
    EXPECT_EQ(std::string(name).find('_') == std::string::npos, std::string(name).rfind("cgr_", 0) != 0) << name;
    names.insert(name);
  }
  for (cgr__shim_op op : { CGR__OP_MEM_ALLOC, CGR__OP_MEM_FREE })
    names.insert(cgr__call_name(op, CGR__MEMORY_PINNED));
  EXPECT_EQ(names.size(), CGR__OP_COUNT + 2u);
}

// A capture that the layer does not see, such as the engine's own: the device refuses, and the stream stays alive.
TEST_P(ValidationTableTest, WhatTheDeviceDoesNotDestroyStaysAlive) {
  cudaStream_t stream;
  cgr__graph *graph;
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(inner_->ops->capture_begin(inner_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(violations_.Last(), "cgr_stream_destroy: illegal while the stream or the calling thread captures (code 900)");
  EXPECT_EQ(inner_->ops->capture_end(inner_, stream, &graph), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(ops_->stream_sync(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_destroy(dev_, stream), CGR__DEVICE_OK);
  EXPECT_EQ(violations_.size(), 1u);
}

TEST_P(ValidationTableTest, CloseTellsWhatIsLeftOneByOne) {
  cudaStream_t a, b;
  cgr__event *event;
  cgr__graph *graph, *open = nullptr;
  cgr__exec *exec;
  void *memory, *freed;
  ASSERT_EQ(ops_->mem_alloc(dev_, 48, CGR__MEMORY_PINNED, &memory), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &freed), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->mem_free(dev_, freed, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_create(dev_, CGR__STREAM_NORMAL, &b), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->event_create(dev_, &event), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_begin(dev_, a), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_end(dev_, a, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->instantiate(dev_, graph, &exec, nullptr), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_begin(dev_, b), CGR__DEVICE_OK);
  // All of it is destroyed below the layer, which does not see that: the test itself leaks nothing.
  const cgr__device_ops *below = inner_->ops;
  ASSERT_EQ(below->capture_end(inner_, b, &open), CGR__DEVICE_OK);
  ASSERT_EQ(below->graph_destroy(inner_, open), CGR__DEVICE_OK);
  ASSERT_EQ(below->graph_destroy(inner_, graph), CGR__DEVICE_OK);
  ASSERT_EQ(below->exec_destroy(inner_, exec), CGR__DEVICE_OK);
  ASSERT_EQ(below->event_destroy(inner_, event), CGR__DEVICE_OK);
  ASSERT_EQ(below->stream_destroy(inner_, a), CGR__DEVICE_OK);
  ASSERT_EQ(below->stream_destroy(inner_, b), CGR__DEVICE_OK);
  ASSERT_EQ(below->mem_free(inner_, memory, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
  dev_ = nullptr;
  std::string told;
  for (const std::string &message : violations_.All())
    told += message + "|";
  EXPECT_EQ(violations_.size(), 7u) << told; // two streams
  for (const char *part : { "cgr_device_close: 48 bytes of pinned memory at 0x", "cgr_device_close: graph 0x",
                            "cgr_device_close: executable graph 0x", "cgr_device_close: event 0x", "cgr_device_close: stream 0x",
                            "has not been destroyed", "cgr_device_close: a capture on stream 0x" })
    EXPECT_NE(told.find(part), std::string::npos) << part << " in " << told;
}

TEST_P(ValidationTableTest, AReasonPassesThroughAShimAbove) {
  cgr_device *trace = nullptr;
  char byte = 0;
  ASSERT_EQ(cgr__trace_open(dev_, &trace), CGR__DEVICE_OK);
  dev_ = trace;
  ops_ = trace->ops;
  cgr_test::ExpectMessage(cgr_memory_free(trace, &byte), CGR_ERROR_INVALID_ARGUMENT,
                          { "cgr_memory_free: ", ": the memory is not of this device" });
}

CGR_INSTANTIATE_OVER_DEVICES(ValidationTableTest);

} // namespace

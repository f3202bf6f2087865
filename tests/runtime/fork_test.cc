// A child of fork() has neither the threads nor the contexts of its parent's devices: every call in it that would reach one is
// refused by name, none hangs, and the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/gate.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Fork : public EngineTest {
protected:
  void SetUpOnDevice() override {
    engine_ = MakeCaptured(OptionsFor(GetParam()));
    row_ = engine_->Start(5, 1);
  }
  void TearDown() override { gate_.reset(); }
  // In a child, which an alarm ends if the call hangs.
  template <class Call> static void InChild(const char *what, Call call) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      _exit(call() ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state)) << what << " hangs, or ends with signal " << WTERMSIG(state);
    EXPECT_EQ(WEXITSTATUS(state), 0) << what;
  }
  static bool IsRefused(cgr_status status) {
    return status == CGR_ERROR_DEAD && std::strstr(cgr_last_message(), "a fork of the one that opened the device") != nullptr;
  }
  std::unique_ptr<Gate> gate_; // goes first
  int32_t row_ = -1;
};

void Nothing(const void *) {}

TEST_P(Fork, CallsWithTheDeviceAreRefused) {
  void *memory = nullptr;
  cudaStream_t stream = nullptr;
  cgr_event *event = nullptr, *made = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  CGR_ASSERT_OK(cgr_event_create(engine_->dev, &made));
  InChild("alloc", [&] { return IsRefused(cgr_memory_alloc(engine_->dev, 64, &memory)) && memory == nullptr; });
  InChild("pinned", [&] { return IsRefused(cgr_memory_alloc_pinned(engine_->dev, 64, &memory)) && memory == nullptr; });
  InChild("stream", [&] { return IsRefused(cgr_stream_create(engine_->dev, &stream)) && stream == nullptr; });
  InChild("event", [&] { return IsRefused(cgr_event_create(engine_->dev, &event)) && event == nullptr; });
  InChild("synchronize", [&] { return IsRefused(cgr_stream_synchronize(engine_->dev, engine_->stream)); });
  InChild("record", [&] { return IsRefused(cgr_event_record(engine_->dev, made, engine_->stream)); });
  InChild("wait", [&] { return IsRefused(cgr_event_wait(engine_->dev, made, engine_->stream)); });
  InChild("launch", [&] { return IsRefused(cgr_launch_host(engine_->dev, Nothing, "", 1, engine_->stream)); });
  InChild("copy", [&] {
    return IsRefused(cgr_copy(engine_->dev, engine_->state.next_tokens, engine_->state.next_tokens, 4, engine_->stream));
  });
  InChild("fill", [&] { return IsRefused(cgr_fill(engine_->dev, engine_->state.next_tokens, 0, 4, engine_->stream)); });
  InChild("info", [&] { return IsRefused(cgr_device_get_info(engine_->dev, &info)); });
  CGR_EXPECT_OK(cgr_event_destroy(engine_->dev, made));
  engine_->Step(engine_->Decode({ row_ })); // in the parent nothing has changed
}

TEST_P(Fork, TheRuntimeIsDead) {
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row_ })));
  InChild("launch and what follows", [&] {
    cgr_step step = CGR_STEP_INIT;
    cgr_batch batch = CGR_BATCH_INIT;
    return IsRefused(cgr_step_launch(engine_->rt, &engine_->step, engine_->stream)) &&
           IsRefused(cgr_step_prepare(engine_->rt, &batch, &step)) && cgr_runtime_destroy(engine_->rt) == CGR_OK;
  });
  CGR_ASSERT_OK(engine_->Cancel());
  InChild("destroy", [&] { return cgr_runtime_destroy(engine_->rt) == CGR_OK; });
  engine_->Reserve(row_, 100); // a change to send
  InChild("flush", [&] { return IsRefused(cgr_runtime_flush(engine_->rt, nullptr, nullptr, engine_->stream)); });
  InChild("prepare and wait", [&] {
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    return cgr_step_prepare_wait(engine_->rt, &batch, &step, -1, engine_->stream) == CGR_OK &&
           IsRefused(cgr_step_launch(engine_->rt, &step, engine_->stream));
  });
  engine_->Step(engine_->Decode({ row_ }));
}

// The step will never complete in the child.
TEST_P(Fork, AStepInFlightIsNotWaitedFor) {
  if (!GetParam().HasThreads())
    GTEST_SKIP() << "no step is in flight";
  gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
  ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
  InChild("wait", [&] { return IsRefused(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, engine_->launched }, -1, nullptr)); });
  InChild("destroy", [&] { return cgr_runtime_destroy(engine_->rt) == CGR_OK; });
  gate_->Open();
  engine_->CheckAll();
  engine_->Step(engine_->Decode({ row_ }));
}

// The child may have devices of its own, and a child of that one does not have them.
TEST_P(Fork, TheChildOpensItsOwn) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "CUDA cannot be used in a child of a process that uses it";
#if defined(__SANITIZE_THREAD__)
  if (GetParam().HasThreads())
    GTEST_SKIP() << "the thread sanitizer ends a child that starts threads";
#endif
  InChild("open", [&] {
    cgr_device *dev = nullptr;
    cudaStream_t stream = nullptr;
    bool ok = cgr_device_open("host", &GetParam().config, &dev) == CGR_OK && cgr_stream_create(dev, &stream) == CGR_OK &&
              cgr_launch_host(dev, Nothing, "", 1, stream) == CGR_OK && cgr_stream_synchronize(dev, stream) == CGR_OK;
    const pid_t grandchild = fork();
    if (grandchild == 0)
      _exit(IsRefused(cgr_stream_synchronize(dev, stream)) && cgr_stream_destroy(dev, stream) == CGR_OK &&
                    cgr_device_close(dev) == CGR_OK
                ? 0
                : 1);
    int state = 0;
    ok = waitpid(grandchild, &state, 0) == grandchild && WIFEXITED(state) && WEXITSTATUS(state) == 0 && ok;
    return ok && cgr_stream_destroy(dev, stream) == CGR_OK && cgr_device_close(dev) == CGR_OK;
  });
}

CGR_INSTANTIATE_OVER_DEVICES(Fork);

} // namespace
} // namespace cgr_test

// Work that `record`, or a call in it, enqueues during a capture on a stream that is not in the capture is refused and named by
// the validation layer: the graph would lack it. Forked streams, other threads and eager steps are left alone.
#include <cstdio>
#include <thread>

#include "cgr/names.h"
#include "tests/support/engine_case.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

void Nothing(const void *) {}

class ForeignStream : public EngineTest {
protected:
  void Make(int32_t mode) {
    EngineOptions options = OptionsFor(GetParam(), mode, { { 16, 4 } });
    options.handle = violations_.Open(GetParam());
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &engine_->side));
    CGR_ASSERT_OK(cgr_event_create(engine_->dev, &engine_->fork));
    memory_ = static_cast<char *>(engine_->Alloc(64, true));
  }
  // Everything that can be enqueued, on the stream.
  std::vector<std::pair<const char *, cgr_status>> Work(cudaStream_t on) {
    cgr_device *dev = engine_->dev;
    return { { "cgr_fill", cgr_fill(dev, memory_, 0, 32, on) },
             { "cgr_copy", cgr_copy(dev, memory_, memory_ + 32, 32, on) },
             { "cgr_launch_host", cgr_launch_host(dev, Nothing, nullptr, 0, on) },
             { "cgr_event_record", cgr_event_record(dev, engine_->fork, on) },
             { "cgr_event_wait", cgr_event_wait(dev, engine_->fork, on) } };
  }
  void ExpectAllowed(cudaStream_t on) {
    for (const auto &[name, status] : Work(on))
      EXPECT_EQ(status, CGR_OK) << name;
  }
  // Each is refused, named, and not done.
  void ExpectNamed(cudaStream_t on) {
    char place[40];
    std::snprintf(place, sizeof place, "stream %p is not in the capture", static_cast<void *>(on));
    const size_t before = violations_.size();
    const auto work = Work(on);
    for (const auto &[name, status] : work)
      EXPECT_EQ(status, CGR_ERROR_CAPTURE) << name;
    ExpectMessage(cgr_fill(engine_->dev, memory_, 0, 32, on), CGR_ERROR_CAPTURE,
                  { "cgr_fill", "inside `record` of a capture", place });
    ASSERT_EQ(violations_.size(), before + work.size() + 1);
    EXPECT_NE(violations_.Last().find(place), std::string::npos) << violations_.Last();
  }
  // Runs `what` at the beginning of `record`, or in a call of it.
  void Record(const std::function<void(const cgr_record_info &)> &what, bool in_call) {
    engine_->hook = [this, what, in_call](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at != 0)
        return CGR_OK;
      what_ = [what, info] { what(info); };
      auto call = [](cgr_recorder *, const void *raw) {
        (*static_cast<const std::function<void()> *const *>(raw))->operator()();
        return CGR_OK;
      };
      const std::function<void()> *pointer = &what_;
      if (in_call)
        return cgr_record_call(recorder, call, &pointer, sizeof pointer);
      what_();
      return CGR_OK;
    };
  }
  Violations violations_;
  std::function<void()> what_;
  char *memory_ = nullptr;
};

TEST_P(ForeignStream, IsNamedInACapture) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (bool in_call : { false, true }) {
      if (in_call && mode == CGR_MODE_PIECEWISE)
        continue; // it is made between pieces, when nothing captures
      SCOPED_TRACE(cgr_graph_mode_name(cgr_graph_mode(mode)));
      Make(mode);
      int captures = 0;
      Record(
          [&](const cgr_record_info &info) {
            captures += info.capturing;
            if (info.capturing)
              ExpectNamed(engine_->side);
          },
          in_call);
      CGR_EXPECT_OK(engine_->Capture()); // nothing of it has been done
      EXPECT_GT(captures, 0);
      const size_t found = violations_.size();
      engine_->Start(3);
      EXPECT_EQ(violations_.size(), found);
      engine_.reset();
    }
}

TEST_P(ForeignStream, MayBeForked) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Make(mode);
    Record(
        [&](const cgr_record_info &info) {
          CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, info.stream));
          CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, engine_->side));
          ExpectAllowed(engine_->side);
          CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, engine_->side));
          CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, info.stream));
        },
        false);
    CGR_EXPECT_OK(engine_->Capture());
    const int32_t row = engine_->Start(3);
    engine_->Step(engine_->Decode({ row }));
    EXPECT_EQ(violations_.All(), std::vector<std::string>());
    engine_.reset();
  }
}

// Between pieces and in eager steps there is no capture; another thread's work is its own.
TEST_P(ForeignStream, IsLeftAloneElsewhere) {
  for (int32_t mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (bool in_call : { false, true }) {
      Make(mode);
      Record(
          [&](const cgr_record_info &info) {
            if (info.capturing)
              std::thread([&] { ExpectAllowed(engine_->side); }).join();
            else
              ExpectAllowed(engine_->side);
          },
          in_call);
      CGR_EXPECT_OK(mode == CGR_MODE_NONE ? engine_->Warmup() : engine_->Capture());
      const int32_t row = engine_->Start(3);
      engine_->Step(engine_->Decode({ row }));
      EXPECT_EQ(violations_.All(), std::vector<std::string>());
      engine_.reset();
    }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(ForeignStream);

} // namespace
} // namespace cgr_test

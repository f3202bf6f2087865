// A second thread inside a runtime is named, over the validation layer: by every function that is for one thread at a time,
// before it looks at anything. Those for any thread go on, and a runtime may move from thread to thread. For the thread
// sanitizer, too.
#include <atomic>
#include <thread>

#include "tests/support/engine_case.h"
#include "tests/support/runtime_calls.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class SecondThread : public EngineTest {
protected:
  void SetUpOnDevice() override {
    EngineOptions options = OptionsFor(GetParam());
    options.handle = violations_.Open(GetParam());
    engine_ = std::make_unique<Engine>(options);
  }
  // Another thread makes every call while this one is inside `function`.
  void ExpectTurnedAway(const std::string &function) {
    std::thread([&] {
      for (const RuntimeCall &call : RuntimeCalls()) {
        ExpectMessage(call.make(*engine_), CGR_ERROR_STATE,
                      { std::string(call.name) + ": ", "is inside " + function + " of this runtime", "one thread at a time" });
        EXPECT_EQ(violations_.size(), ++found_) << call.name;
        EXPECT_EQ(violations_.Last(), cgr_last_message());
      }
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      EXPECT_EQ(DeviceOf(engine_->rt), engine_->dev);
      (void)Completed(engine_->rt);
      (void)ModeOf(engine_->rt);
      CGR_EXPECT_OK(cgr_buffer_get(engine_->rt, nullptr, CGR_BUFFER_COUNTS, 0, &view));
    }).join();
  }
  Violations violations_;
  size_t found_ = 0;
};

TEST_P(SecondThread, IsNamedByEveryFunction) {
  int times = 0;
  std::string function = "cgr_runtime_capture";
  engine_->hook = [&](cgr_recorder *, const cgr_record_info &, int32_t at) {
    if (at != 0 || times++ > 0)
      return CGR_OK;
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(engine_->rt, 0, &info)); // a call inside the call, which stays
    ExpectTurnedAway(function);
    return CGR_OK;
  };
  CGR_ASSERT_OK(engine_->Capture());
  const int32_t row = engine_->Open();
  engine_->Reserve(row, 5);
  times = 0;
  function = "cgr_step_launch";
  engine_->Step({ Engine::Chunk(row, 5) }); /* eager */
  EXPECT_GT(times, 0);
  std::thread([&] { engine_->Step(engine_->Decode({ row })); }).join();
  engine_->Step(engine_->Decode({ row }));
  EXPECT_EQ(violations_.size(), found_);
}

// Two threads at once, without a lock: each call either works or is turned away, and nothing breaks.
TEST_P(SecondThread, IsTurnedAwayWhenCallsOverlap) {
  std::atomic<size_t> refused{ 0 };
  auto work = [&] {
    auto repeat = [&](const std::function<cgr_status()> &call) {
      cgr_status status = call();
      for (; status == CGR_ERROR_STATE; status = call()) {
        ASSERT_NE(std::string(cgr_last_message()).find("expected one thread at a time"), std::string::npos) << cgr_last_message();
        refused++;
      }
      CGR_ASSERT_OK(status);
    };
    for (int n = 0; n < 3000 && !::testing::Test::HasFatalFailure(); n++) {
      int32_t row = -1;
      cgr_request_info info = CGR_REQUEST_INFO_INIT;
      repeat([&] { return cgr_request_open(engine_->rt, 77, &row); });
      repeat([&] { return cgr_request_get_info(engine_->rt, row, &info); });
      EXPECT_EQ(info.open, 1);
      repeat([&] { return cgr_request_close(engine_->rt, row); });
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(violations_.size(), refused.load());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(SecondThread);

TEST(SecondThreads, EveryFunctionIsTried) {
  std::set<std::string> tried = { "cgr_runtime_num_keys" }; // returns a number that creation has fixed
  for (const RuntimeCall &call : RuntimeCalls())
    tried.insert(call.name);
  EXPECT_EQ(tried, RuntimeFunctions("Threads one"));
}

} // namespace
} // namespace cgr_test

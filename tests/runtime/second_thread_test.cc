// A second thread inside a runtime is named, over the validation layer: by every function that is for one thread at a time,
// before it looks at anything. Those for any thread go on, and a runtime may move from thread to thread. For the thread
// sanitizer, too.
#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "tests/support/engine.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

struct Call {
  const char *name;
  std::function<cgr_status(Engine &)> make;
};

// Every function of a runtime that is for one thread at a time, with arguments that would be good enough.
const std::vector<Call> &Calls() {
  static const int32_t page = 5, data[64] = {};
  static char text[16];
  static size_t length;
  static int32_t number, count;
  static const int32_t *rows;
  static cgr_step step = CGR_STEP_INIT;
  static cgr_key key = CGR_KEY_INIT;
  static cgr_batch batch = CGR_BATCH_INIT;
  static cgr_mark mark;
  static cgr_request_info info = CGR_REQUEST_INFO_INIT;
  static cgr_stats stats = CGR_STATS_INIT;
  static cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  static cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
  static cgr_key_stats key_stats = CGR_KEY_STATS_INIT;
  static cgr_self_test test = CGR_SELF_TEST_INIT;
#define CALL(name, ...)                                             \
  {                                                                 \
#name, [](Engine &e) { (void)e; return name(e.rt, ##__VA_ARGS__); } \
  }
  static const std::vector<Call> calls = {
    CALL(cgr_runtime_destroy),
    CALL(cgr_request_open, 1, &number),
    CALL(cgr_request_close, 0),
    CALL(cgr_request_set_pages, 0, 0, 1, &page, 1),
    CALL(cgr_request_drop_pages, 0, 0, 0, 1),
    CALL(cgr_request_set_length, 0, 0),
    CALL(cgr_request_set_other_length, 0, 1, 0),
    CALL(cgr_request_set_data, 0, 0, data),
    CALL(cgr_request_get_info, 0, &info),
    CALL(cgr_request_get_pages, 0, 0, &number, &count),
    CALL(cgr_standing_add, nullptr, 0, 1, nullptr, 0),
    CALL(cgr_standing_update, nullptr, 0, 1, nullptr, 0),
    CALL(cgr_standing_remove, nullptr, 0),
    CALL(cgr_standing_swap, nullptr, 0, 0),
    CALL(cgr_standing_rows, nullptr, &rows, &count),
    CALL(cgr_step_choose, &batch, &key),
    CALL(cgr_step_prepare, &batch, &step),
    CALL(cgr_step_launch, &step, e.stream),
    CALL(cgr_step_cancel, &step),
    CALL(cgr_step_prepare_wait, &batch, &step, 0, e.stream),
    CALL(cgr_runtime_flush, nullptr, &mark, e.stream),
    CALL(cgr_step_wait, cgr_mark{ 0, 0, 1 }, 0, nullptr),
    CALL(cgr_runtime_stats, &stats),
    { "cgr_runtime_capture",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_capture(e.rt, &capture);
      } },
    { "cgr_runtime_warmup",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_warmup(e.rt, &capture);
      } },
    { "cgr_runtime_estimate_capture",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_estimate_capture(e.rt, &capture, &estimate);
      } },
    CALL(cgr_runtime_release_graphs, 0, nullptr),
    CALL(cgr_runtime_enable_graphs, 1),
    CALL(cgr_region_register, data, sizeof data, &number),
    CALL(cgr_region_move, 0, data, sizeof data),
    CALL(cgr_region_unregister, 0),
    CALL(cgr_runtime_graph_stats, 0, &graph),
    CALL(cgr_runtime_self_test, &test, nullptr, 0, &count),
    CALL(cgr_runtime_audit, nullptr, nullptr, 0, &count),
    CALL(cgr_runtime_key_stats, 0, &key_stats),
    CALL(cgr_runtime_stats_text, text, sizeof text, &length),
    CALL(cgr_runtime_metrics, nullptr, 0, text, sizeof text, &length),
    CALL(cgr_runtime_flight, nullptr, 0, &count),
    CALL(cgr_runtime_dump, text, sizeof text, &length),
    CALL(cgr_runtime_graph_labels, text, sizeof text, &length),
    CALL(cgr_runtime_timing, cgr_mark{ 0, 0, 1 }, nullptr, 0, &count),
    CALL(cgr_runtime_trace, text, sizeof text, &length),
    CALL(cgr_runtime_trace_head, text, sizeof text, &length),
    CALL(cgr_runtime_trace_step, cgr_mark{ 0, 0, 1 }, text, sizeof text, &length),
  };
#undef CALL
  return calls;
}

class SecondThread : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    EngineOptions options = OptionsFor(GetParam());
    options.handle = violations_.Open(GetParam());
    engine_ = std::make_unique<Engine>(options);
  }
  // Another thread makes every call while this one is inside `function`.
  void ExpectTurnedAway(const std::string &function) {
    std::thread([&] {
      for (const Call &call : Calls()) {
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
  std::unique_ptr<Engine> engine_;
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

// `Threads one`, above a function whose first parameter is a runtime.
std::set<std::string> FunctionsForOneThread() {
  std::set<std::string> names;
  for (const char *header :
       { "attention.h", "config.h", "requests.h", "record.h", "step.h", "graphs.h", "inspect.h", "tracing.h", "device.h" }) {
    std::ifstream in(std::string("include/cgr/") + header);
    EXPECT_TRUE(in.good()) << header;
    bool one = false;
    for (std::string line; std::getline(in, line);) {
      const size_t threads = line.find("Threads "), end = line.find("(cgr_runtime *runtime");
      if (threads != std::string::npos)
        one = line.compare(threads + 8, 3, "one") == 0;
      if (line.rfind("CGR_API", 0) == 0 && end != std::string::npos && one)
        names.insert(line.substr(line.rfind(' ', end) + 1, end - line.rfind(' ', end) - 1));
    }
  }
  return names;
}

TEST(SecondThreads, EveryFunctionIsTried) {
  std::set<std::string> tried = { "cgr_runtime_num_keys" }; // returns a number that creation has fixed
  for (const Call &call : Calls())
    tried.insert(call.name);
  EXPECT_EQ(tried, FunctionsForOneThread());
}

} // namespace
} // namespace cgr_test

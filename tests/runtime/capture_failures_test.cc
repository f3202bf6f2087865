// Captures that fail, each in its own way: the key is counted and runs eagerly, the other keys are captured, and a later call
// tries again. Each failure is logged with its cause.
#include <cstring>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

cgr_status LeaveFork(Engine &e, const cgr_record_info &info) {
  CGR_EXPECT_OK(cgr_event_record(e.dev, e.fork, info.stream));
  CGR_EXPECT_OK(cgr_event_wait(e.dev, e.fork, e.side));
  return cgr_fill(e.dev, e.state.next_tokens, 0, 4, e.side);
}

void MakeSide(Engine *e) {
  CGR_ASSERT_OK(cgr_stream_create(e->dev, &e->side));
  CGR_ASSERT_OK(cgr_event_create(e->dev, &e->fork));
}

struct Way {
  const char *name;
  cgr_status status; // of the capture
  const char *cause; // told in its message
  std::function<cgr_status(cgr_recorder *, Engine &, const cgr_record_info &)> act;
};

const std::vector<Way> &Ways() {
  static const std::vector<Way> ways = {
    { "record_gives_up", CGR_ERROR_CALLBACK, "returned CGR_ERROR_CALLBACK",
      [](cgr_recorder *, Engine &, const cgr_record_info &) { return CGR_ERROR_CALLBACK; } },
    { "memory_is_allocated", CGR_ERROR_CALLBACK, "cgr_memory_alloc: bytes is 4096",
      [](cgr_recorder *, Engine &e, const cgr_record_info &) {
        void *memory = nullptr;
        cgr_status status = cgr_memory_alloc(e.dev, 4096, &memory);
        ExpectMessage(status, CGR_ERROR_CAPTURE, {});
        EXPECT_EQ(memory, nullptr);
        return status;
      } },
    { "pinned_memory_is_allocated", CGR_ERROR_CALLBACK, "cgr_memory_alloc_pinned: bytes is 4096",
      [](cgr_recorder *, Engine &e, const cgr_record_info &) {
        void *memory = nullptr;
        cgr_status status = cgr_memory_alloc_pinned(e.dev, 4096, &memory);
        ExpectMessage(status, CGR_ERROR_CAPTURE, {});
        return status;
      } },
    { "the_stream_is_waited_for", CGR_ERROR_CALLBACK, "cgr_stream_synchronize",
      [](cgr_recorder *, Engine &e, const cgr_record_info &info) {
        cgr_status status = cgr_stream_synchronize(e.dev, info.stream);
        ExpectMessage(status, CGR_ERROR_CAPTURE, {});
        return status;
      } },
    { "the_stream_is_waited_for_and_the_error_ignored", CGR_ERROR_CALLBACK, "CGR_ERROR_CAPTURE",
      [](cgr_recorder *, Engine &e, const cgr_record_info &info) {
        cgr_stream_synchronize(e.dev, info.stream);
        return CGR_OK;
      } },
    { "a_fork_is_not_joined", CGR_ERROR_CAPTURE, "expected every stream that was forked to be joined",
      [](cgr_recorder *, Engine &e, const cgr_record_info &info) { return LeaveFork(e, info); } },
    { "a_layer_that_is_not_there", CGR_ERROR_CALLBACK, "layer is 77",
      [](cgr_recorder *recorder, Engine &e, const cgr_record_info &) {
        cgr_attention attention = e.state.call[0].attention;
        attention.layer = 77;
        return cgr_record_attention(recorder, &attention);
      } },
    { "it_fails_half_way", CGR_ERROR_CALLBACK, "returned CGR_ERROR_CALLBACK",
      [](cgr_recorder *, Engine &e, const cgr_record_info &) {
        e.state.fail_after = 2;
        return CGR_OK;
      } },
  };
  return ways;
}

struct Case {
  DeviceParam device;
  size_t way;
};
void PrintTo(const Case &made, std::ostream *os) { *os << made.device.Label() << ", " << Ways()[made.way].name; }
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DeviceParam &device : AllDevices())
    for (size_t way = 0; way < Ways().size(); way++)
      cases.push_back({ device, way });
  return cases;
}

struct Logged {
  cgr_log_level level;
  std::string message;
};
using Log = std::vector<Logged>; // the log_context

void KeepLog(cgr_config *config, Log *log) {
  config->log_context = log;
  config->log = [](void *context, cgr_log_level level, const char *message) {
    if (std::strstr(message, "is estimated") == nullptr) // where others use the device
      static_cast<Log *>(context)->push_back({ level, message });
  };
}

std::string Prefix(int32_t requests) {
  const std::string count = std::to_string(requests), s = requests == 1 ? "" : "s";
  return "capture of the full graph for " + count + " request" + s + ", " + count + " token" + s +
         ", query length 1, variant 0 failed: ";
}

class CaptureFailures : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
};

TEST_P(CaptureFailures, AFailedCaptureIsDroppedAndTriedAgain) {
  const Way &way = Ways()[GetParam().way];
  for (int32_t failing : { 8, 4, 1 }) {
    SCOPED_TRACE("bucket " + std::to_string(failing));
    EngineOptions options = OptionsFor(GetParam().device);
    options.validation = false; // it would report what is done here on purpose
    Log log;
    options.adjust = [&log](cgr_config *config) { KeepLog(config, &log); };
    Engine engine(options);
    ASSERT_NO_FATAL_FAILURE(MakeSide(&engine));
    engine.hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at != 0)
        return CGR_OK;
      engine.state.fail_after = -1;
      return info.capturing && info.num_requests == failing ? way.act(recorder, engine, info) : CGR_OK;
    };
    log.clear(); // of what making the engine told
    ExpectMessage(engine.Capture(), way.status, { Prefix(failing), way.cause });
    ASSERT_EQ(log.size(), 1u);
    EXPECT_EQ(log[0].level, CGR_LOG_WARNING);
    EXPECT_EQ("cgr_runtime_capture: " + log[0].message, cgr_last_message());
    EXPECT_EQ(engine.records.size(), 4u); // all keys were tried
    EXPECT_EQ(engine.Stats().num_graphs, 3);
    EXPECT_EQ(engine.Stats().captures_failed, 1u);
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < 8; i++)
      rows.push_back(engine.Start(2 + i, i));
    auto steps = [&](int32_t without) {
      for (int32_t count = 1; count <= 8 && !HasFatalFailure(); count++) {
        int32_t bucket = count == 1 ? 1 : count == 2 ? 2 : count <= 4 ? 4 : 8;
        engine.Step(engine.Decode({ rows.begin(), rows.begin() + count }));
        const bool eager = bucket == without && bucket == 8; // the others' steps use a graph that is twice as large
        EXPECT_EQ(engine.step.key.kind, eager ? CGR_KIND_NONE : CGR_KIND_FULL) << count;
        EXPECT_EQ(engine.step.reason == CGR_REASON_CAPTURE_FAILED, eager) << count;
        EXPECT_EQ(engine.step.key.num_requests, eager ? count : bucket == without ? 2 * bucket : bucket) << count;
      }
    };
    steps(failing);
    engine.hook = nullptr;
    engine.state.fail_after = -1;
    engine.records.clear();
    CGR_ASSERT_OK(engine.Capture());
    EXPECT_EQ(log.size(), 1u) << "nothing has failed";
    EXPECT_EQ(engine.records.size(), 1u);
    EXPECT_EQ(engine.Stats().num_graphs, 4);
    steps(0);
    ASSERT_FALSE(HasFailure());
  }
}

std::string Label(const ::testing::TestParamInfo<Case> &made) {
  return made.param.device.Label() + "_" + Ways()[made.param.way].name;
}
INSTANTIATE_TEST_SUITE_P(Ways, CaptureFailures, ::testing::ValuesIn(Cases()), Label);

class LaterBreaks : public ::testing::TestWithParam<DeviceParam> {};

// A PIECEWISE capture whose piece cannot end at a break, and a `record` that goes on: every later break is refused, and the first
// failure is the cause.
TEST_P(LaterBreaks, AreRefused) {
  CGR_SKIP_WITHOUT_DEVICE(GetParam());
  EngineOptions options = OptionsFor(GetParam(), CGR_MODE_PIECEWISE);
  options.validation = false; // it would report the fork
  Engine engine(options);
  ASSERT_NO_FATAL_FAILURE(MakeSide(&engine));
  int refused = 0;
  engine.hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
    auto nothing = [](cgr_recorder *, const void *) { return CGR_OK; };
    if (at != 0 || !info.capturing)
      return CGR_OK;
    CGR_EXPECT_OK(LeaveFork(engine, info));
    ExpectMessage(cgr_record_call(recorder, nothing, nullptr, 0), CGR_ERROR_CAPTURE, { "cgr_record_call: ending the piece" });
    for (int n = 0; n < 2; n++)
      ExpectMessage(cgr_record_call(recorder, nothing, nullptr, 0), CGR_ERROR_CAPTURE,
                    { "cgr_record_call: the capture has failed at an earlier break, expected `record` to return then" });
    ExpectMessage(cgr_record_attention(recorder, &engine.state.call[0].attention), CGR_ERROR_CAPTURE,
                  { "cgr_record_attention: the capture has failed at an earlier break" });
    refused++;
    return CGR_OK;
  };
  ExpectMessage(engine.Capture(), CGR_ERROR_CALLBACK,
                { "a call failed with CGR_ERROR_CAPTURE: cgr_record_call: ending the piece" });
  EXPECT_EQ(refused, cgr_test::NumKeys(engine.rt));
  engine.hook = nullptr;
  CGR_ASSERT_OK(engine.Capture());
  const int32_t row = engine.Start(5);
  engine.Step(engine.Decode({ row }));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(LaterBreaks);

// The call reports only the first failure, the log each of them.
TEST(CaptureLog, TellsOfEveryFailure) {
  Log log;
  EngineOptions options;
  options.adjust = [&log](cgr_config *config) { KeepLog(config, &log); };
  Engine engine(options);
  engine.hook = [](cgr_recorder *, const cgr_record_info &info, int32_t at) {
    return at == 0 && info.num_requests != 4 ? CGR_ERROR_CALLBACK : CGR_OK;
  };
  log.clear(); // of what making the engine told
  ExpectMessage(engine.Capture(), CGR_ERROR_CALLBACK, { Prefix(8) });
  ASSERT_EQ(log.size(), 3u);
  const int32_t failed[] = { 8, 2, 1 };
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(log[i].level, CGR_LOG_WARNING);
    EXPECT_EQ(log[i].message.compare(0, Prefix(failed[i]).size(), Prefix(failed[i])), 0) << log[i].message;
  }
}

} // namespace
} // namespace cgr_test

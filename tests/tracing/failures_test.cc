// What the flight recorder keeps about failed steps: why, with which key, and which step stopped a device that reports a fault
// late.
#include "tests/tracing/json_reader.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

// ------------------------------------------------------------------------------------------------------------- refusals

// An engine polls for room in the ring: the steps before stay in the recorder, and each refusal counts.
TEST(Refusals, OfAFullRingPushNothingOut) {
  const uint64_t polls = 10000;
  Captured<PlainEngine> engine([](cgr_config *config) { config->flight_depth = 256; }, CGR_SCHEDULE_LATEST);
  for (int i = 0; i < 4; i++) { // ring_depth
    CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
    CGR_ASSERT_OK(engine.Launch());
  }
  for (uint64_t i = 1; i <= polls; i++) {
    CGR_ASSERT(CGR_ERROR_BUSY, engine.Prepare({ 1, 1 }));
    if (i % 1000 == 7) { // the record has been counted, and goes on
      ASSERT_EQ(engine.Stats().refused, i);
    }
  }
  std::vector<cgr_flight_record> records = engine.Flight();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].seq, 1u);
  EXPECT_EQ(records[3].seq, 4u);
  EXPECT_EQ(records[3].repeats, 0u);
  EXPECT_EQ(records[4].outcome, CGR_FLIGHT_REFUSED);
  EXPECT_EQ(records[4].status, CGR_ERROR_BUSY);
  EXPECT_EQ(records[4].repeats, polls - 1);
  EXPECT_EQ(records[4].bytes_staged, 0u);
  EXPECT_EQ(engine.Stats().refused, polls);
  EXPECT_EQ(JsonReader::Read(engine.Dump())["records"].items[4]["repeats"].Number(), polls - 1);
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, 4 }, -1, nullptr));
  engine.Step({ 1, 1 });
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.Prepare({ -1 }));
  records = engine.Flight();
  ASSERT_EQ(records.size(), 7u) << "another refusal, after another step";
  EXPECT_EQ(records[6].status, CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(engine.Stats().refused, polls + 1);
}

// Refusals that differ get separate records.
TEST(Refusals, ThatDifferAreRecordsOfTheirOwn) {
  PlainEngine engine([](cgr_config *config) { config->strict = 1; });
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 2; k++)
      CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 1, 1 })); // one key
    CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 1 }));      // another
    CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 20, 20 })); // none
    CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.Prepare({ -1 }));
  }
  const std::vector<cgr_flight_record> records = engine.Flight();
  ASSERT_EQ(records.size(), 12u);
  for (size_t i = 0; i < records.size(); i++)
    EXPECT_EQ(records[i].repeats, i % 4 == 0 ? 1u : 0u) << i;
  EXPECT_EQ(engine.Stats().refused, 15u);
}

TEST(Refusals, SayWhyThereWasNoGraphAndForWhichKey) {
  PlainEngine engine([](cgr_config *config) { config->strict = 1; });
  const auto last = [&] { return engine.Flight().back(); };
  const auto json = [&] { return JsonReader::Read(engine.Dump())["records"].items.back(); };
  CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 1, 1 }));
  EXPECT_EQ(last().reason, CGR_REASON_NOT_CAPTURED);
  EXPECT_EQ(last().key.num_requests, 2);
  EXPECT_EQ(json()["key"].text, "full 2r 2t q1 v0");
  CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 20, 20 })); // no key is so large
  EXPECT_EQ(last().reason, CGR_REASON_ABOVE_TOKENS);
  EXPECT_EQ(last().key_index, -1);
  EXPECT_EQ(json()["reason"].text, "above tokens");
  EXPECT_FALSE(json().Has("key"));
  const cgr_graph_stats forced = GraphStatsOf(engine.rt, 2);
  CGR_EXPECT(CGR_ERROR_STATE, engine.Prepare({ 1 }, &forced.key));
  EXPECT_EQ(engine.KeyStats(2).misses, 1u);
  EXPECT_EQ(last().key_index, 2) << "what counts as a miss names its key";
  EXPECT_EQ(last().reason, CGR_REASON_FORCED);
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.Prepare({ -1 }));
  EXPECT_EQ(last().reason, -1);
  EXPECT_EQ(last().key_index, -1);
  EXPECT_FALSE(json().Has("reason"));
}

// A step without its graph, which would run eagerly, is refused for another reason: it has not missed the graph yet.
TEST(Refusals, ForSomethingElseNameNoKey) {
  PlainEngine engine(nullptr, CGR_SCHEDULE_LATEST);
  CGR_ASSERT_OK(engine.Warmup());
  for (int i = 0; i < 4; i++) {
    CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
    CGR_ASSERT_OK(engine.Launch());
  }
  CGR_EXPECT(CGR_ERROR_BUSY, engine.Prepare({ 1, 1 }));
  EXPECT_EQ(engine.Flight().back().reason, -1);
  EXPECT_EQ(engine.Flight().back().key_index, -1);
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, engine.Flight()[engine.Flight().size() - 2].seq }, -1, nullptr));
  CGR_ASSERT_OK(engine.Prepare({ 1, 1 })); // misses a key if it is launched
  const cgr_step prepared = engine.step;
  CGR_EXPECT(CGR_ERROR_STATE, engine.Prepare({ 1 }));
  EXPECT_EQ(engine.Flight().back().status, CGR_ERROR_STATE);
  EXPECT_EQ(engine.Flight().back().reason, -1);
  EXPECT_EQ(engine.Flight().back().key_index, -1);
  const uint64_t misses = engine.KeyStats(1).misses;
  cgr_step step = prepared;
  CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  EXPECT_EQ(engine.KeyStats(1).misses, misses + 1) << "the refusal has not touched the prepared step";
}

// A launch that leaves its step prepared is reported with the step, whatever becomes of the step.
TEST(RefusedLaunches, AreToldWithTheStep) {
  Captured<PlainEngine> engine;
  for (const bool cancels : { true, false }) {
    CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
    engine.Fault(CGR__OP_CAPTURE_STATUS, CGR__DEVICE_FAILED);
    CGR_EXPECT(CGR_ERROR_DEVICE, engine.Launch());
    const std::string cause = cgr_last_message();
    ASSERT_EQ(engine.step.state, CGR_STEP_PREPARED);
    const Json json = JsonReader::Read(engine.Dump());
    EXPECT_EQ(json["prepared"]["status"].text, "CGR_ERROR_DEVICE");
    ExpectMembers(json["last_failure"], { { "key", "full 2r 2t q1 v0" }, { "seq", 0 }, { "message", cause } });
    if (cancels)
      CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
    else
      CGR_ASSERT_OK(engine.Launch());
    EXPECT_EQ(engine.Flight().back().outcome, cancels ? CGR_FLIGHT_CANCELLED : CGR_FLIGHT_LAUNCHED);
    EXPECT_EQ(engine.Flight().back().status, cancels ? CGR_ERROR_DEVICE : CGR_OK);
  }
  EXPECT_EQ(engine.Stats().refused_launches, 2u);
  EXPECT_EQ(engine.Stats().abandoned, 0u);
  CGR_ASSERT_OK(engine.Prepare({ 1 }));
  EXPECT_EQ(JsonReader::Read(engine.Dump())["prepared"]["status"].text, "CGR_OK") << "another step";
  CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
  EXPECT_EQ(engine.Flight().back().status, CGR_OK);
}

// --------------------------------------------------------------------------------------------------------- deaths, later

// A device whose calls of one kind say that it is lost, while earlier work has not run: on a lost GPU it never will.
class LostFromNowOn {
public:
  LostFromNowOn(cgr_device *dev, enum cgr__shim_op op) : dev_(dev), before_(dev->ops), ops_(*dev->ops) {
    if (op == CGR__OP_EXEC_LAUNCH)
      ops_.exec_launch = [](cgr_device *, cgr__exec *, cudaStream_t) -> int { return CGR__DEVICE_DEAD; };
    else
      ops_.stream_query = [](cgr_device *, cudaStream_t) -> int { return CGR__DEVICE_DEAD; };
    dev->ops = &ops_;
  }
  ~LostFromNowOn() { dev_->ops = before_; }
  LostFromNowOn(const LostFromNowOn &) = delete;
  LostFromNowOn &operator=(const LostFromNowOn &) = delete;

private:
  cgr_device *dev_;
  const cgr__device_ops *before_;
  cgr__device_ops ops_;
};

// A fault of the second step is reported at a later call, a launch, a wait or a query: the dump names the second step.
TEST(Deaths, ThatAreReportedLateNameTheFirstStepThatIsNotDone) {
  enum { kLaunch, kWait, kNoTime, kWays };
  for (int way = 0; way < kWays; way++) {
    SCOPED_TRACE(way);
    Told told;
    Captured<PlainEngine> engine(told.Asks(), CGR_SCHEDULE_LATEST);
    engine.Step({ 1 });
    for (const std::vector<int32_t> &lens : { std::vector<int32_t>{ 1, 1 }, { 1, 1, 1 } }) {
      CGR_ASSERT_OK(engine.Prepare(lens));
      CGR_ASSERT_OK(engine.Launch());
    }
    if (way == kLaunch) {
      CGR_ASSERT_OK(engine.Prepare({ 1, 1, 1, 1 }));
      const LostFromNowOn lost(engine.dev, CGR__OP_EXEC_LAUNCH);
      CGR_EXPECT(CGR_ERROR_DEAD, engine.Launch());
    } else {
      const LostFromNowOn lost(engine.dev, CGR__OP_STREAM_QUERY);
      ExpectMessage(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, 3 }, way == kWait ? -1 : 0, nullptr), CGR_ERROR_DEAD,
                    { "waiting for step 3", "step 2 had not completed" });
    }
    ASSERT_EQ(told.texts.size(), 1u);
    for (const std::string &text : { told.texts[0], engine.Dump() }) {
      const Json json = JsonReader::Read(text);
      const std::vector<Json> &records = json["records"].items;
      ExpectMembers(json["first_incomplete"], { { "seq", 2 }, { "key", "full 2r 2t q1 v0" }, { "outcome", "launched" } });
      ASSERT_EQ(records.size(), way == kLaunch ? 4u : 3u);
      for (size_t i = 0; i < records.size(); i++)
        EXPECT_EQ(records[i]["completed"].text, i == 0 ? "true" : "false") << i;
      if (way == kLaunch) {
        EXPECT_EQ(records[3]["outcome"].text, "abandoned");
        EXPECT_EQ(json["last_failure"]["key"].text, "full 4r 4t q1 v0");
      }
    }
    EXPECT_EQ(engine.Flight()[0].completed, 1);
    EXPECT_EQ(engine.Flight()[1].completed, 0);
  }
}

TEST(Deaths, WithNothingInFlightNameNoStep) {
  Told told;
  Captured<PlainEngine> engine(told.Asks());
  engine.Step({ 1 });
  EXPECT_EQ(JsonReader::Read(engine.Dump())["first_incomplete"].kind, Json::kNull);
  engine.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_DEAD);
  CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, engine.Launch());
  const Json first = JsonReader::Read(engine.Dump())["first_incomplete"];
  EXPECT_EQ(first["seq"].Number(), 2u) << "the step whose launch was the death";
  EXPECT_EQ(first["outcome"].text, "abandoned");
}

// Of a step that the recorder no longer keeps, only the number is there. Cancelled steps push the others out.
TEST(Deaths, NameTheNumberOfAStepThatIsNotKept) {
  Captured<PlainEngine> engine([](cgr_config *config) { config->flight_depth = 256; }, CGR_SCHEDULE_LATEST);
  CGR_ASSERT_OK(engine.Prepare({ 1 }));
  CGR_ASSERT_OK(engine.Launch());
  for (int i = 0; i < 256; i++) {
    CGR_ASSERT_OK(engine.Prepare({ 1 }));
    CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
  }
  const Json first = JsonReader::Read(engine.Dump())["first_incomplete"];
  EXPECT_EQ(first["seq"].Number(), 1u);
  EXPECT_FALSE(first.Has("key"));
}

// ---------------------------------------------------------------------------------------------- steps of the runtime's own

// The device dies at any call, in a flush, a warm-up and a capture: reported once, with the key.
TEST(Deaths, OutsideOfStepsNameTheirKey) {
  const struct {
    const char *name, *key; // of the first that each comes to
    const char *function;   // what looks at the stream first
    cgr_status (*call)(PlainEngine &engine);
    bool is_step;
  } calls[] = {
    { "flush", "none 1r 1t q0 v0", "cgr_runtime_flush",
      [](PlainEngine &engine) { return cgr_runtime_flush(engine.rt, nullptr, nullptr, engine.stream); }, true },
    { "warm-up", "none 8r 24t q0 v0", nullptr, [](PlainEngine &engine) { return engine.Warmup(); }, true },
    { "capture", "piecewise 8r 24t q0 v0", nullptr, [](PlainEngine &engine) { return engine.Capture(); }, false },
  };
  for (const auto &call : calls)
    for (uint64_t nth = 1;; nth++) {
      SCOPED_TRACE(call.name + std::string(", call ") + std::to_string(nth));
      Told told;
      PlainEngine engine(told.Asks());
      const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
      cgr__fault_set(engine.fault, &plan);
      const cgr_status status = call.call(engine);
      const bool fired = cgr__fault_fired(engine.fault) > 0, died = status == CGR_ERROR_DEAD;
      EXPECT_TRUE(died || status == CGR_OK) << "what only destroys is not asked whether it worked: " << cgr_last_message();
      ASSERT_EQ(told.texts.size(), died ? 1u : 0u);
      if (!fired) {
        EXPECT_GT(nth, 3u);
        break;
      }
      if (!died)
        continue;
      const Json json = JsonReader::Read(told.texts[0]);
      EXPECT_EQ(json["dead"]["device_code"].Number(), 777u);
      if (call.function != nullptr && nth == 1) { // before it comes to any key
        EXPECT_NE(json["dead"]["message"].text.find(call.function), std::string::npos);
        continue;
      }
      EXPECT_EQ(json["last_failure"]["status"].text, "CGR_ERROR_DEAD");
      if (nth <= 2) {
        EXPECT_EQ(json["last_failure"]["key"].text, call.key);
      }
      if (!call.is_step)
        continue;
      const Json &last = json["records"].items.back();
      ExpectMembers(last, { { "outcome", "abandoned" },
                            { "reason", "internal" },
                            { "status", "CGR_ERROR_DEAD" },
                            { "key", json["last_failure"]["key"].text } });
      EXPECT_EQ(engine.Stats().abandoned, 0u) << "none that was prepared";
    }
}

// A failure that the runtime survives: `record` fails during warm-up.
TEST(Failures, OfTheRuntimesOwnStepsAreTold) {
  Told told;
  PlainEngine engine(told.Asks());
  engine.fails = true;
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Warmup());
  const std::string cause = cgr_last_message();
  ASSERT_EQ(told.texts.size(), 1u);
  const Json json = JsonReader::Read(told.texts[0]);
  const std::vector<Json> &records = json["records"].items;
  EXPECT_EQ(json["dead"].kind, Json::kNull);
  ExpectMembers(json["last_failure"], { { "message", cause }, { "key", "none 8r 24t q0 v0" } });
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["outcome"].text, "internal");
  EXPECT_EQ(records[0]["status"].text, "CGR_OK") << "a step under the number";
  ExpectMembers(records[1], { { "outcome", "abandoned" }, { "status", "CGR_ERROR_CALLBACK" }, { "seq", 1 } });
  EXPECT_EQ(engine.Stats().steps, 1u);
  EXPECT_EQ(engine.Stats().abandoned, 0u);
  engine.fails = false;
  CGR_EXPECT_OK(engine.Warmup());
  EXPECT_EQ(told.texts.size(), 1u);
}

// A full ring is the caller's business: the engine polls.
TEST(Failures, OfAFlushThatFindsNoSlotLeaveNoRecord) {
  Told told;
  Captured<PlainEngine> engine(told.Asks(), CGR_SCHEDULE_LATEST);
  CGR_ASSERT_OK(cgr_runtime_flush(engine.rt, nullptr, nullptr, engine.stream));
  while (engine.Prepare({ 1 }) == CGR_OK)
    CGR_ASSERT_OK(engine.Launch());
  const size_t before = engine.Flight().size();
  CGR_ASSERT_OK(cgr_request_drop_pages(engine.rt, engine.row[11], 0, 2, 1));
  CGR_EXPECT(CGR_ERROR_BUSY, cgr_runtime_flush(engine.rt, nullptr, nullptr, engine.stream));
  EXPECT_EQ(engine.Flight().size(), before);
  EXPECT_TRUE(told.texts.empty());
}

} // namespace
} // namespace cgr_test

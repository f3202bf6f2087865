// Steps as trace events: JSON that a strict reader accepts, events that a trace viewer can place, and the same in pieces.
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "cgr/names.h"
#include "devices/shims/fault.h"
#include "tests/support/tiny_engine.h"
#include "tests/tracing/json_reader.h"
#include "tests/tracing/plain_engine.h"
#include "tracing/events.h"

namespace cgr_test {
namespace {

double Us(const Json &number) {
  return number.kind == Json::kNumber ? std::stod(number.text) : throw std::runtime_error("no us");
}

// What every viewer needs of an event; a thread's events begin in order, and are nested or disjoint.
void ExpectGoodEvents(const std::vector<Json> &events) {
  std::map<std::string, double> last;
  std::map<std::string, std::vector<double>> open; // ends of the slices that hold the next one
  std::map<std::string, int> arrows;
  for (const Json &event : events) {
    for (const char *member : { "ph", "ts", "pid", "tid", "name" })
      ASSERT_TRUE(event.Has(member)) << member;
    const std::string phase = event["ph"].text, thread = event["pid"].text + "/" + event["tid"].text;
    if (phase == "M")
      continue;
    const double ts = Us(event["ts"]);
    EXPECT_GE(ts, last[thread]) << event["name"].text;
    last[thread] = ts;
    if (phase == "s" || phase == "f") {
      arrows[event["id"].text] += phase == "s" ? 1 : -1;
      continue;
    }
    ASSERT_EQ(phase, "X");
    ASSERT_TRUE(event["args"].Has("seq"));
    const double end = ts + Us(event["dur"]), least = 0.0015; // decimals do not add up in binary
    std::vector<double> &outer = open[thread];
    while (!outer.empty() && outer.back() <= ts + least)
      outer.pop_back();
    if (!outer.empty()) {
      EXPECT_LE(end, outer.back() + least) << event["name"].text << " crosses what holds it";
    }
    outer.push_back(end);
  }
  for (const auto &arrow : arrows)
    EXPECT_EQ(arrow.second, 0) << "step " << arrow.first;
}

std::vector<Json> Named(const std::vector<Json> &events, const std::string &name) {
  std::vector<Json> found;
  for (const Json &event : events)
    if (event["ph"].text == "X" && event["name"].text == name)
      found.push_back(event);
  return found;
}

class TimedEngine : public PlainEngine {
public:
  explicit TimedEngine(int32_t timing = 1, int32_t depth = 0, cgr_host_schedule schedule = CGR_SCHEDULE_EARLIEST)
      : PlainEngine(
            [=](cgr_config *config) {
              config->timing = timing;
              config->flight_depth = depth;
              config->time_every = 128;
            },
            schedule) {}
  std::string Page() {
    return Text([this](char *out, size_t capacity, size_t *bytes) { return cgr_runtime_trace(rt, out, capacity, bytes); });
  }
  std::string Head() {
    return Text([this](char *out, size_t capacity, size_t *bytes) { return cgr_runtime_trace_head(rt, out, capacity, bytes); });
  }
  std::string StepText(uint64_t seq) {
    return Text([=](char *out, size_t capacity, size_t *bytes) {
      return cgr_runtime_trace_step(rt, cgr_mark{ 0, 0, seq }, out, capacity, bytes);
    });
  }
};

TEST(Trace, APageHasTheHostsAndTheDevicesPart) {
  Captured<TimedEngine> engine;
  engine.Step({ 1, 1, 1 });
  engine.Step({ 5, 2 });
  engine.Step({ 20, 20 });
  const Json page = JsonReader::Read(engine.Page());
  EXPECT_EQ(page["displayTimeUnit"].text, "ns");
  EXPECT_GT(page["otherData"]["device_clock_error_ns"].Number(), 0u);
  const std::vector<Json> &events = page["traceEvents"].items;
  ASSERT_NO_FATAL_FAILURE(ExpectGoodEvents(events));
  const std::vector<Json> prepares = Named(events, "prepare"), launches = Named(events, "launch"), steps = Named(events, "step");
  ASSERT_EQ(prepares.size(), 3u);
  ASSERT_EQ(launches.size(), 3u) << "every step is timed, whatever time_every says";
  ASSERT_EQ(steps.size(), 3u);
  const char *const keys[] = { "full 4r 4t q1 v0", "piecewise 8r 8t q0 v0", "none 2r 40t q0 v0" };
  for (size_t i = 0; i < 3; i++) {
    for (const Json &event : { prepares[i], launches[i], steps[i] }) {
      ExpectMembers(event["args"], { { "seq", i + 1 }, { "key", keys[i] }, { "outcome", "launched" } });
    }
    EXPECT_GE(Us(launches[i]["ts"]), Us(prepares[i]["ts"]) + Us(prepares[i]["dur"]) - 1.0);
    EXPECT_EQ(prepares[i]["tid"].text, "1");
    EXPECT_EQ(steps[i]["tid"].text, "2");
    EXPECT_GT(Us(steps[i]["dur"]), 0.0);
  }
  ExpectMembers(steps[0]["args"], { { "requests", 3 }, { "padded_requests", 4 } });
  ExpectMembers(steps[1]["args"], { { "tokens", 7 }, { "padded_tokens", 8 } });
  EXPECT_EQ(steps[0]["args"]["reason"].text, "padded");
  EXPECT_EQ(Named(events, "record").size(), 3u);
  std::map<std::string, std::string> names;
  for (const Json &event : events)
    if (event["ph"].text == "M")
      names[event["tid"].text] = event["args"]["name"].text;
  EXPECT_EQ(names["0"], "cgr");
  EXPECT_EQ(names["1"], "host");
  EXPECT_NE(names["2"], "");
  EXPECT_EQ(names["3"], "alongside the step");
  std::map<std::string, std::string> binds;
  for (const Json &event : events)
    if (event["ph"].text == "s" || event["ph"].text == "f")
      binds[event["ph"].text + event["id"].text] = event.Has("bp") ? event["bp"].text : "";
  EXPECT_EQ(binds.size(), 6u);
  for (const auto &bind : binds)
    EXPECT_EQ(bind.second, "e") << "else the arrow goes to the slice that begins next";
  const std::vector<cgr_flight_record> records = engine.Flight();
  ASSERT_EQ(records.size(), 3u);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_GT(records[i].bytes_staged, 0u);
    for (const Json &event : { prepares[i], launches[i], steps[i] })
      EXPECT_EQ(event["args"]["bytes_staged"].Number(), records[i].bytes_staged);
  }
}

// The host's part is there for all steps that the recorder keeps, the device's for the last ring_depth.
TEST(Trace, KeepsWhatTheRingsKeep) {
  Captured<TimedEngine> engine(1, 256);
  for (int i = 0; i < 300; i++)
    engine.Step({ 1, 1 });
  const Json page = JsonReader::Read(engine.Page());
  const std::vector<Json> &events = page["traceEvents"].items;
  ASSERT_NO_FATAL_FAILURE(ExpectGoodEvents(events)) << "no arrow leads to a step whose device's part is not there";
  EXPECT_EQ(Named(events, "launch").size(), 256u);
  EXPECT_EQ(Named(events, "step").size(), 4u);
  EXPECT_EQ(Named(events, "step").back()["args"]["seq"].Number(), 300u);
}

// Head, steps as they complete, tail: a page with more steps than the rings keep.
TEST(Trace, InPiecesIsAPageOfAnyLength) {
  Captured<TimedEngine> engine(2, 64);
  std::string page = engine.Head();
  for (int i = 0; i < 90; i++) {
    engine.Step(i % 2 ? std::vector<int32_t>{ 1 } : std::vector<int32_t>{ 3, 2 });
    page += engine.StepText(engine.step.mark.seq);
    if (i == 40)
      page += ",\n{\"ph\":\"i\",\"pid\":1,\"tid\":16,\"ts\":1,\"name\":\"the engine's own\"}";
  }
  std::vector<Json> events = JsonReader::Read(page + CGR_TRACE_TAIL)["traceEvents"].items;
  EXPECT_EQ(Named(events, "launch").size(), 90u);
  EXPECT_EQ(Named(events, "step").size(), 90u);
  events.erase(std::remove_if(events.begin(), events.end(), [](const Json &e) { return e["ph"].text == "i"; }), events.end());
  ASSERT_NO_FATAL_FAILURE(ExpectGoodEvents(events));
}

// Refused, cancelled and abandoned steps are reported as such; the step that took an abandoned one's number is the runtime's own.
TEST(Trace, TellsWhatBecameOfSteps) {
  Captured<TimedEngine> engine;
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.Prepare({ -1 }));
  CGR_ASSERT_OK(engine.Prepare({ 1 }));
  CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
  engine.fails = true;
  CGR_ASSERT_OK(engine.Prepare({ 5, 2 }));
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Launch());
  engine.fails = false;
  engine.Step({ 1 });
  const Json page = JsonReader::Read(engine.Page());
  const std::vector<Json> &events = page["traceEvents"].items;
  ASSERT_NO_FATAL_FAILURE(ExpectGoodEvents(events));
  const std::vector<Json> prepares = Named(events, "prepare");
  ASSERT_EQ(prepares.size(), 4u);
  const char *const outcomes[] = { "refused", "cancelled", "abandoned", "launched" };
  for (size_t i = 0; i < 4; i++)
    EXPECT_EQ(prepares[i]["args"]["outcome"].text, outcomes[i]);
  EXPECT_EQ(prepares[0]["args"]["status"].text, "CGR_ERROR_INVALID_ARGUMENT");
  EXPECT_EQ(prepares[2]["args"]["status"].text, "CGR_ERROR_CALLBACK");
  ASSERT_EQ(Named(events, "launch").size(), 2u);
  ASSERT_EQ(Named(events, "step").size(), 2u);
  EXPECT_EQ(Named(events, "step")[0]["args"]["outcome"].text, "internal");
}

// Two steps have had the number: one that was abandoned, and then the runtime's own, which is what the device ran.
TEST(Trace, AStepIsTheLastThatHadItsNumber) {
  Captured<TimedEngine> engine;
  engine.fails = true;
  CGR_ASSERT_OK(engine.Prepare({ 5, 2 }));
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Launch());
  engine.fails = false;
  const std::vector<cgr_flight_record> records = engine.Flight();
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(records[0].outcome + records[1].outcome, CGR_FLIGHT_ABANDONED + CGR_FLIGHT_INTERNAL);
  const uint64_t seq = records[1].seq;
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
  const Json page = JsonReader::Read(engine.Head() + engine.StepText(seq) + CGR_TRACE_TAIL);
  const std::vector<Json> steps = Named(page["traceEvents"].items, "step");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]["args"]["outcome"].text, cgr_flight_outcome_name(cgr_flight_outcome(records[1].outcome)));
}

// A step that was refused has a key if it is known which one it missed, and never counts.
TEST(Trace, ARefusedStepHasTheKeyThatItMissed) {
  for (int32_t key_index : { -1, 3 }) {
    char out[4096];
    cgr__text text = cgr__text_begin(out, sizeof out);
    const cgr__events_head head = { "device", false, 0 };
    cgr_flight_record record = CGR_FLIGHT_RECORD_INIT;
    record.outcome = CGR_FLIGHT_REFUSED;
    record.status = CGR_ERROR_FALLBACK;
    record.reason = CGR_REASON_NOT_CAPTURED;
    record.key_index = key_index;
    record.at_ns = 1000;
    record.prepare_ns = 10;
    cgr__events_begin(&text, &head);
    cgr__events_host(&text, &record);
    const Json page = JsonReader::Read(std::string(out) + CGR_TRACE_TAIL);
    const Json args = Named(page["traceEvents"].items, "prepare").at(0)["args"];
    EXPECT_EQ(args["status"].text, "CGR_ERROR_FALLBACK");
    EXPECT_EQ(args.Has("key"), key_index >= 0);
    EXPECT_EQ(args.Has("reason"), key_index >= 0);
    EXPECT_FALSE(args.Has("requests"));
  }
}

// A step that the device has not completed lacks the device's part; the rest of the page is there.
TEST(Trace, AStepThatHasNotCompletedIsTheHostsPart) {
  Captured<TimedEngine> engine(1, 0, CGR_SCHEDULE_LATEST);
  CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
  CGR_ASSERT_OK(engine.Launch());
  for (size_t done : { 0u, 1u }) {
    const Json page = JsonReader::Read(engine.Page());
    EXPECT_EQ(Named(page["traceEvents"].items, "launch").size(), 1u);
    EXPECT_EQ(Named(page["traceEvents"].items, "step").size(), done);
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, engine.step.mark, -1, nullptr));
  }
}

// Calls that wait for the device are refused inside `record` and inside its calls.
TEST(Trace, IsRefusedInsideOfRecord) {
  Captured<TimedEngine> engine;
  engine.Step({ 1 });
  int times = 0;
  engine.inside = [&] {
    char out[256] = "x";
    size_t length = 7;
    int32_t count = 7;
    times++;
    ExpectMessage(cgr_runtime_trace(engine.rt, out, sizeof out, &length), CGR_ERROR_STATE, { "cgr_runtime_trace: " });
    ExpectMessage(cgr_runtime_trace_head(engine.rt, out, sizeof out, &length), CGR_ERROR_STATE, { "cgr_runtime_trace_head: " });
    ExpectMessage(cgr_runtime_trace_step(engine.rt, cgr_mark{ 0, 0, 1 }, out, sizeof out, &length), CGR_ERROR_STATE,
                  { "cgr_runtime_trace_step: " });
    ExpectMessage(cgr_runtime_timing(engine.rt, cgr_mark{ 0, 0, 1 }, nullptr, 0, &count), CGR_ERROR_STATE,
                  { "cgr_runtime_timing: " });
    EXPECT_EQ(length, 7u);
    EXPECT_EQ(count, 7);
  };
  engine.Step({ 20, 20 });
  EXPECT_EQ(times, 2) << "an eager step";
  engine.Step({ 5, 2 });
  EXPECT_EQ(times, 3) << "the call between two pieces";
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine.rt, 0, nullptr));
  CGR_ASSERT_OK(engine.Capture());
  EXPECT_GT(times, 5) << "captures";
  engine.inside = nullptr;
  engine.Step({ 1 });
}

// If the device fails midway, the text is empty: half a page would look like a whole one that was cut for lack of room.
TEST(Trace, ATextThatFailsIsEmpty) {
  Captured<TimedEngine> engine;
  engine.Step({ 1, 1 });
  engine.Step({ 1, 1 });
  std::vector<char> out(1 << 16);
  uint64_t fired = 1, nth = 0;
  while (fired > 0 && nth < 100) {
    const cgr__fault_plan plan = { CGR__OP_COPY, ++nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_FAILED, 77 };
    std::fill(out.begin(), out.end(), 'x');
    size_t length = 7;
    cgr__fault_set(engine.fault, &plan);
    const cgr_status status = cgr_runtime_trace(engine.rt, out.data(), out.size(), &length);
    fired = cgr__fault_fired(engine.fault);
    cgr__fault_set(engine.fault, nullptr);
    EXPECT_EQ(status, fired > 0 ? CGR_ERROR_DEVICE : CGR_OK);
    if (fired > 0) {
      EXPECT_EQ(length, 7u);
      EXPECT_EQ(out[0], '\0') << nth;
    }
  }
  EXPECT_EQ(nth, 5u + 2u + 1u) << "five comparisons, two steps";
}

// Without timing there is the host's part of the steps that were timed, but no launch, because its begin is not kept.
TEST(Trace, OfARuntimeThatIsNotTimedIsTheHostsPart) {
  Captured<PlainEngine> engine;
  engine.Step({ 1 });
  const Json page = JsonReader::Read(engine.Text(
      [&](char *out, size_t capacity, size_t *length) { return cgr_runtime_trace(engine.rt, out, capacity, length); }));
  EXPECT_FALSE(page["otherData"].Has("device_clock_error_ns"));
  EXPECT_EQ(Named(page["traceEvents"].items, "prepare").size(), 1u);
  EXPECT_EQ(Named(page["traceEvents"].items, "step").size(), 0u);
}

TEST(Trace, OfADeadRuntimeIsTheHostsPart) {
  Captured<TimedEngine> engine;
  engine.Step({ 1, 1 });
  engine.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_DEAD);
  CGR_ASSERT_OK(engine.Prepare({ 1, 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, engine.Launch());
  const Json page = JsonReader::Read(engine.Page());
  EXPECT_EQ(Named(page["traceEvents"].items, "prepare").size(), 2u);
  EXPECT_EQ(Named(page["traceEvents"].items, "step").size(), 0u);
  int32_t count = 0;
  size_t length = 0;
  CGR_EXPECT(CGR_ERROR_DEAD, cgr_runtime_timing(engine.rt, cgr_mark{ 0, 0, 1 }, nullptr, 0, &count));
  CGR_EXPECT(CGR_ERROR_DEAD, cgr_runtime_trace_step(engine.rt, cgr_mark{ 0, 0, 1 }, nullptr, 0, &length));
}

// What does not fit is cut off, and the length is that of the whole text.
TEST(Trace, FitsIntoTheCapacity) {
  Captured<TimedEngine> engine;
  engine.Step({ 1, 1 });
  // Clocks are compared again when they are twice as old: not between the calls below.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::string whole = engine.StepText(engine.step.mark.seq);
  for (size_t capacity : { size_t(0), size_t(1), size_t(10), whole.size(), whole.size() + 1 }) {
    std::string out(whole.size() + 8, '\x7f');
    size_t length = 0;
    CGR_EXPECT_OK(cgr_runtime_trace_step(engine.rt, engine.step.mark, capacity ? &out[0] : nullptr, capacity, &length));
    EXPECT_EQ(length, whole.size());
    if (capacity > 0) {
      EXPECT_EQ(out.substr(0, capacity - 1), whole.substr(0, capacity - 1));
      EXPECT_EQ(out[std::min(capacity - 1, whole.size())], '\0');
    }
    EXPECT_EQ(out[capacity], '\x7f');
  }
  size_t length = 7;
  ExpectMessage(cgr_runtime_trace_step(engine.rt, cgr_mark{ 0, 0, 9 }, nullptr, 0, &length), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_runtime_trace_step: mark.seq is 9" });
  EXPECT_EQ(length, 7u);
}

// Whatever the device's name.
TEST(Trace, NamesAreEscaped) {
  char out[4096];
  cgr__text text = cgr__text_begin(out, sizeof out);
  const cgr__events_head head = { "a \"b\" \\ \n \xff", true, 12 };
  cgr__events_begin(&text, &head);
  const Json page = JsonReader::Read(std::string(out) + CGR_TRACE_TAIL);
  EXPECT_EQ(page["otherData"]["device"].text, "a \"b\" \\ \n \xef\xbf\xbd");
  EXPECT_EQ(page["traceEvents"].items[2]["args"]["name"].text, "device: a \"b\" \\ \n \xef\xbf\xbd");
}

// Layers are inside their record span, by number.
TEST(Trace, TellsLayers) {
  const HostDevice dev;
  Captured<TinyEngine> engine(dev, CGR_MODE_FULL, 0, 2);
  engine.Step();
  std::string out(1 << 16, '\0');
  size_t length = 0;
  CGR_ASSERT_OK(cgr_runtime_trace(engine.rt, &out[0], out.size(), &length));
  out.resize(length);
  const Json page = JsonReader::Read(out);
  const std::vector<Json> &events = page["traceEvents"].items;
  ASSERT_NO_FATAL_FAILURE(ExpectGoodEvents(events));
  for (const char *name : { "layer 0", "append 0", "attention 0", "plan first", "fetch" }) {
    ASSERT_EQ(Named(events, name).size(), 1u) << name;
    EXPECT_EQ(Named(events, name)[0]["tid"].text, std::strchr(name, '0') ? "2" : "3") << name;
  }
}

} // namespace
} // namespace cgr_test

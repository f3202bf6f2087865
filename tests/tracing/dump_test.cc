// The flight recorder as JSON: after an abandoned step, after the device's death, on request, and for a registered callback.
#include <algorithm>

#include "cgr/names.h"
#include "tests/tracing/json_reader.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

TEST(Dump, TellsTheStepsInTheirOrder) {
  Captured<PlainEngine> engine;
  engine.Step({ 1, 1, 1 });
  engine.Step({ 5, 2 });
  engine.Step({ 20, 20 });
  CGR_ASSERT_OK(engine.Prepare({ 1 }));
  const Json json = JsonReader::Read(engine.Dump());
  const std::vector<Json> &records = json["records"].items;
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(json["version"].text, cgr_build_info());
  EXPECT_EQ(json["device"]["kind"].text, "host");
  ExpectMembers(json, { { "dead", nullptr }, { "last_failure", nullptr }, { "launched", 3 }, { "completed", 3 } });
  ExpectMembers(records[0],
                { { "key", "full 4r 4t q1 v0" }, { "reason", "padded" }, { "requests", 3 }, { "padded_requests", 4 } });
  ExpectMembers(records[1], { { "key", "piecewise 8r 8t q0 v0" }, { "tokens", 7 } });
  ExpectMembers(records[2], { { "key", "none 2r 40t q0 v0" }, { "reason", "above tokens" } });
  for (size_t i = 0; i < 3; i++) {
    ExpectMembers(records[i], { { "seq", i + 1 }, { "outcome", "launched" }, { "status", "CGR_OK" }, { "completed", "true" } });
    EXPECT_EQ("........" + records[i]["layout"].text, "........" + json["layout"].text.substr(8));
    EXPECT_GT(records[i]["launch_ns"].Number(), 0u);
  }
  ExpectMembers(json["prepared"], { { "outcome", "prepared" }, { "key", "full 1r 1t q1 v0" } });
  CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &engine.step));
  EXPECT_EQ(JsonReader::Read(engine.Dump())["prepared"].kind, Json::kNull);
}

// A refused step has no key, unless strict mode refuses it because its graph is missing.
TEST(Dump, NamesTheKeyThatARefusedStepHasMissed) {
  PlainEngine engine([](cgr_config *config) { config->strict = 1; });
  CGR_EXPECT(CGR_ERROR_FALLBACK, engine.Prepare({ 1, 1 }));
  CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine.Prepare({ -1 }));
  const Json json = JsonReader::Read(engine.Dump());
  const std::vector<Json> &records = json["records"].items;
  ASSERT_EQ(records.size(), 2u);
  ExpectMembers(records[0], { { "status", "CGR_ERROR_FALLBACK" }, { "key", "full 2r 2t q1 v0" }, { "reason", "not captured" } });
  EXPECT_EQ(records[1]["outcome"].text, "refused");
  EXPECT_FALSE(records[1].Has("key"));
  EXPECT_EQ(records[1]["seq"].Number(), 0u);
  const std::vector<cgr_flight_record> flight = engine.Flight();
  EXPECT_EQ(flight[0].key.num_requests, 2);
  EXPECT_GE(flight[0].key_index, 0);
  EXPECT_EQ(flight[1].key_index, -1);
}

TEST(Dump, IsToldAfterAnAbandonedStep) {
  Told told;
  Captured<PlainEngine> engine(told.Asks());
  engine.Step({ 1 });
  engine.fails = true;
  CGR_ASSERT_OK(engine.Prepare({ 5, 2 }));
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Launch());
  const std::string cause = cgr_last_message();
  engine.fails = false;
  ASSERT_EQ(told.texts.size(), 1u);
  const Json json = JsonReader::Read(told.texts[0]);
  const std::vector<Json> &records = json["records"].items;
  ASSERT_EQ(records.size(), 3u);
  ExpectMembers(records[1], { { "outcome", "internal" }, { "seq", 2 } });
  ExpectMembers(
      records[2],
      { { "outcome", "abandoned" }, { "seq", 2 }, { "status", "CGR_ERROR_CALLBACK" }, { "key", "piecewise 8r 8t q0 v0" } });
  ExpectMembers(json["last_failure"], { { "message", cause }, { "seq", 2 } });
  ExpectMembers(json, { { "dead", nullptr }, { "prepared", nullptr } });
  engine.Step({ 1 });
  EXPECT_EQ(told.texts.size(), 1u);
}

// The device dies in a launch: the dump names the step, its key and the first cause, once, and the runtime still reports
// everything.
TEST(Dump, NamesStepKeyAndFirstCauseOfADeath) {
  Told told;
  Captured<PlainEngine> engine(told.Asks());
  engine.Step({ 1, 1 });
  engine.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_DEAD);
  CGR_ASSERT_OK(engine.Prepare({ 1, 1, 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, engine.Launch());
  const std::string cause = cgr_last_message();
  EXPECT_EQ(engine.step.state, CGR_STEP_ABANDONED);
  ASSERT_EQ(told.texts.size(), 1u);
  CGR_EXPECT(CGR_ERROR_DEAD, engine.Prepare({ 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, cgr_runtime_flush(engine.rt, nullptr, nullptr, engine.stream));
  EXPECT_EQ(told.texts.size(), 1u);
  for (const std::string &text : { told.texts[0], engine.Dump() }) {
    const Json json = JsonReader::Read(text);
    const Json &last = json["records"].items.back();
    ExpectMembers(last,
                  { { "outcome", "abandoned" }, { "seq", 2 }, { "status", "CGR_ERROR_DEAD" }, { "key", "full 4r 4t q1 v0" } });
    EXPECT_EQ(json["dead"]["message"].text, cause);
    EXPECT_NE(cause.find("cgr_step_launch: launching the graph"), std::string::npos) << cause;
    EXPECT_EQ(json["dead"]["device_code"].Number(), 777u);
  }
  EXPECT_EQ(engine.Flight().back().outcome, CGR_FLIGHT_ABANDONED);
  EXPECT_EQ(engine.Stats().abandoned, 1u);
  EXPECT_EQ(engine.KeyStats(1).steps, 1u);
}

// The device dies at any call, in every kind of step: reported once, with the step in which it died among records or as prepared.
TEST(Dump, IsToldOnceWhereverTheDeviceDies) {
  for (const std::vector<int32_t> &lens : { std::vector<int32_t>{ 1 }, { 5, 2 }, { 20, 20 } })
    for (uint64_t nth = 1;; nth++) {
      SCOPED_TRACE(std::to_string(lens[0]) + " tokens, call " + std::to_string(nth));
      Told told;
      Captured<PlainEngine> engine(told.Asks());
      engine.Step({ 1, 1 });
      const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
      cgr__fault_set(engine.fault, &plan);
      CGR_ASSERT_OK(engine.Prepare(lens));
      const cgr_status status = engine.Launch();
      const bool fired = cgr__fault_fired(engine.fault) > 0;
      EXPECT_EQ(status == CGR_ERROR_DEAD, fired) << cgr_last_message();
      ASSERT_EQ(told.texts.size(), fired ? 1u : 0u);
      if (!fired)
        break;
      const Json json = JsonReader::Read(told.texts[0]);
      const bool prepared = engine.step.state == CGR_STEP_PREPARED;
      const Json &step = prepared ? json["prepared"] : json["records"].items.back();
      ExpectMembers(step, { { "outcome", prepared ? "prepared" : "abandoned" }, { "requests", lens.size() } });
      EXPECT_EQ(json["dead"]["device_code"].Number(), 777u);
    }
}

// The engine asks for reports inside of `record`, after the device has died there: the dump comes when the launch returns, with
// the step among the records.
TEST(Dump, IsToldAsTheLaunchReturnsWhateverRecordCalls) {
  for (uint64_t nth = 1;; nth++) {
    SCOPED_TRACE(nth);
    Told told;
    Captured<PlainEngine> engine(told.Asks());
    engine.inside = [&] {
      engine.Stats();
      EXPECT_TRUE(told.texts.empty());
    };
    CGR_ASSERT_OK(engine.Prepare({ 20, 20 }));
    const cgr__fault_plan plan = { CGR__FAULT_ANY_OP, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_DEAD, 777 };
    cgr__fault_set(engine.fault, &plan);
    const cgr_status status = engine.Launch();
    if (cgr__fault_fired(engine.fault) == 0)
      break;
    EXPECT_EQ(status, CGR_ERROR_DEAD);
    ASSERT_EQ(told.texts.size(), 1u);
    const Json json = JsonReader::Read(told.texts[0]);
    const bool prepared = engine.step.state == CGR_STEP_PREPARED;
    EXPECT_EQ((prepared ? json["prepared"] : json["records"].items.back())["requests"].Number(), 2u);
  }
}

TEST(Dump, KeepsTheNewestWhereTheRingHasWrapped) {
  Told told;
  PlainEngine engine(told.Asks(257)); // 512
  CGR_ASSERT_OK(engine.Capture());
  for (int i = 0; i < 1300; i++)
    engine.Step({ 1 });
  const std::vector<cgr_flight_record> all = engine.Flight();
  ASSERT_EQ(all.size(), 512u);
  for (size_t i = 0; i < all.size(); i++)
    EXPECT_EQ(all[i].seq, 1300 - 511 + i);
  const std::vector<cgr_flight_record> some = engine.Flight(5);
  ASSERT_EQ(some.size(), 5u);
  for (size_t i = 0; i < 5; i++)
    EXPECT_EQ(some[i].seq, 1296 + i);
  EXPECT_EQ(engine.Stats().steps, 1300u) << "statistics do not forget";
  engine.fails = true;
  CGR_ASSERT_OK(engine.Prepare({ 5, 2 }));
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine.Launch());
  ASSERT_EQ(told.texts.size(), 1u);
  EXPECT_EQ(JsonReader::Read(told.texts[0])["records"].items.size(), 512u) << "the whole ring fits into the buffer";
}

// What a guard refused is reported as long as the step's result is there. The row's length is beyond its page table.
TEST(Dump, JoinsWhatGuardsHaveRefused) {
  Captured<PlainEngine> engine;
  engine.Step({ 1 });
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_ASSERT_OK(cgr_buffer_get(engine.rt, nullptr, CGR_BUFFER_ROW_COMPUTED, 0, &view));
  static_cast<int32_t *>(view.data)[engine.row[0]] = 1 << 20; // the host device's memory is the host's
  CGR_ASSERT_OK(engine.Prepare({ 1 }));
  CGR_ASSERT_OK(engine.Launch());
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(engine.rt, engine.step.mark, -1, &result));
  const cgr_flight_record record = engine.Flight().back();
  EXPECT_EQ(record.guard.error, result.guard.error);
  EXPECT_EQ(record.guard.row, result.guard.row);
  EXPECT_EQ(record.guard.value, result.guard.value);
  EXPECT_EQ(engine.Flight()[0].guard.error, CGR_GUARD_NONE);
  const Json json = JsonReader::Read(engine.Dump());
  EXPECT_EQ(json["guard_errors"].Number(), 1u);
  EXPECT_EQ(json["records"].items.back()["guard"]["error"].text, cgr_guard_error_name(cgr_guard_error(result.guard.error)));
  EXPECT_FALSE(json["records"].items[0].Has("guard"));
  for (int i = 0; i < 4; i++) // ring_depth
    engine.Step({});
  EXPECT_EQ(engine.Flight()[1].guard.error, record.guard.error) << "the result has been written over";
  EXPECT_EQ(engine.Flight()[1].guard.value, record.guard.value);
  EXPECT_EQ(engine.Flight()[0].guard.error, CGR_GUARD_NONE);
}

// For the last 16 steps that were waited for, once each, and for no other.
TEST(Dump, KeepsWhatGuardsHaveRefused) {
  Captured<PlainEngine> engine;
  engine.Step({ 1 });
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_ASSERT_OK(cgr_buffer_get(engine.rt, nullptr, CGR_BUFFER_ROW_COMPUTED, 0, &view));
  int32_t *computed = static_cast<int32_t *>(view.data) + engine.row[0]; // the host device's memory is the host's
  uint64_t unseen = 0;
  for (int i = 0; i < 21; i++) {
    *computed = (1 << 20) + i;
    CGR_ASSERT_OK(engine.Prepare({ 1 }));
    CGR_ASSERT_OK(engine.Launch());
    if (i == 10) {
      unseen = engine.step.mark.seq;
      CGR_ASSERT_OK(cgr_stream_synchronize(engine.dev, engine.stream));
      continue;
    }
    for (int waits = 0; waits < 2; waits++)
      CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(engine.rt, engine.step.mark, -1, nullptr));
  }
  for (int i = 0; i < 4; i++)
    engine.Step({});
  int known = 0;
  for (const cgr_flight_record &r : engine.Flight()) {
    known += r.guard.error != CGR_GUARD_NONE;
    if (r.guard.error == CGR_GUARD_NONE) {
      EXPECT_EQ(r.guard.row, -1) << r.seq;
    }
    if (r.seq == unseen) {
      EXPECT_EQ(r.guard.error, CGR_GUARD_NONE);
    }
  }
  EXPECT_EQ(known, 16);
}

// Host times are the processor's: as long as the clock says.
TEST(Dump, TimesAreThoseOfTheClock) {
  Captured<PlainEngine> engine;
  timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < 2000; i++)
    engine.Step({ 1 });
  clock_gettime(CLOCK_MONOTONIC, &after);
  const auto ns = [](const timespec &t) { return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec); };
  const uint64_t slack = 1000000;
  uint64_t inside = 0;
  for (const cgr_flight_record &r : engine.Flight()) {
    EXPECT_GE(r.at_ns + slack, ns(before));
    EXPECT_LE(r.at_ns, ns(after) + slack);
    inside += r.prepare_ns + r.launch_ns;
  }
  EXPECT_LE(inside, ns(after) - ns(before) + slack);
  const cgr_key_stats stats = engine.KeyStats(0);
  EXPECT_LE(stats.prepare.sum_ns + stats.launch.sum_ns, ns(after) - ns(before) + slack);
  EXPECT_GT(stats.launch.sum_ns, 2000u * 50);
}

// One step in so many is timed, at random: steps may be periodic too, and the same ones of a period must not be picked.
TEST(Dump, TimesOneStepInSoMany) {
  for (int32_t every : { 1, 2, 4, 16, 128 }) {
    SCOPED_TRACE(every);
    PlainEngine engine([every](cgr_config *config) {
      config->time_every = every;
      config->flight_depth = 1 << 14;
    });
    const int32_t steps = 1 << 14;
    CGR_ASSERT_OK(engine.Capture());
    for (int32_t i = 0; i < steps; i++)
      engine.Step({ 1 });
    int32_t timed = 0, in_turn[16] = {};
    for (const cgr_flight_record &r : engine.Flight()) {
      ASSERT_EQ(r.prepare_ns > 0, r.launch_ns > 0);
      ASSERT_GT(r.at_ns, 0u);
      timed += r.prepare_ns > 0;
      in_turn[r.seq % 16] += r.prepare_ns > 0;
    }
    EXPECT_NEAR(timed, steps / every, every == 1 ? 0 : steps / every / 8);
    for (int32_t of_turn : in_turn)
      EXPECT_NEAR(of_turn, timed / 16, every == 1 ? 0 : 3 + timed / 32);
    EXPECT_EQ(engine.KeyStats(0).launch.count, uint64_t(timed));
    EXPECT_EQ(engine.KeyStats(0).prepare.count, uint64_t(timed));
    EXPECT_EQ(engine.KeyStats(0).steps, uint64_t(steps));
  }
}

// The clock of an older runtime is not compared anew, so consecutive texts are the same.
TEST(Dump, WritesWhatFits) {
  Captured<PlainEngine> engine;
  engine.Step({ 1 });
  const timespec while_young = { 0, 300 * 1000 * 1000 };
  nanosleep(&while_young, nullptr);
  const std::string whole = engine.Dump();
  ASSERT_EQ(engine.Dump(), whole);
  for (size_t capacity : { size_t(1), size_t(2), whole.size() / 2, whole.size(), whole.size() + 1 }) {
    std::string out(whole.size() + 8, '#');
    size_t length = 0;
    CGR_EXPECT_OK(cgr_runtime_dump(engine.rt, &out[0], capacity, &length));
    EXPECT_EQ(length, whole.size());
    EXPECT_EQ(out.substr(0, capacity - 1), whole.substr(0, capacity - 1));
    EXPECT_EQ(out[capacity - 1], '\0');
    EXPECT_EQ(out.substr(capacity), std::string(out.size() - capacity, '#')) << "nothing past the capacity";
  }
}

// Records of another size than the library's: each is filled as far as its size goes, and the next begins where it ends.
TEST(Dump, RecordsMayBeOfAnotherSize) {
  Captured<PlainEngine> engine;
  for (int i = 0; i < 3; i++)
    engine.Step({ 1, 1 });
  const timespec while_young = { 0, 300 * 1000 * 1000 }; // clocks are compared again when they are twice as old
  nanosleep(&while_young, nullptr);
  const std::vector<cgr_flight_record> whole = engine.Flight();
  for (const size_t size : { offsetof(cgr_flight_record, key), sizeof(cgr_flight_record), sizeof(cgr_flight_record) + 24 }) {
    std::vector<uint64_t> memory(3 * size / 8 + 1, 0x5555555555555555u);
    auto *bytes = reinterpret_cast<unsigned char *>(memory.data());
    const uint32_t wrong = uint32_t(size) + 8, right = uint32_t(size);
    int32_t count = -1;
    for (size_t i = 0; i < 3; i++)
      memcpy(bytes + i * size, i == 2 ? &wrong : &right, sizeof right);
    auto *records = reinterpret_cast<cgr_flight_record *>(bytes);
    ExpectMessage(cgr_runtime_flight(engine.rt, records, 3, &count), CGR_ERROR_INVALID_STRUCT,
                  { "records[2]: size is " + std::to_string(wrong) });
    memcpy(bytes + 2 * size, &right, sizeof right);
    CGR_ASSERT_OK(cgr_runtime_flight(engine.rt, records, 3, &count));
    ASSERT_EQ(count, 3);
    for (size_t i = 0; i < 3; i++) {
      const size_t known = std::min(size, sizeof(cgr_flight_record));
      EXPECT_EQ(memcmp(bytes + i * size + 4, reinterpret_cast<const unsigned char *>(&whole[i]) + 4, known - 4), 0) << i;
      EXPECT_EQ(bytes[i * size] + 256 * bytes[i * size + 1], int(size));
      for (size_t k = known; k < size; k++)
        EXPECT_EQ(bytes[i * size + k], 0x55);
    }
  }
}

// Calls that only report may be made anywhere: inside `record`, during a capture or an eager step, and between pieces.
TEST(Dump, IsWrittenInsideOfRecordAndBetweenPieces) {
  PlainEngine engine;
  int told = 0;
  engine.inside = [&] {
    const cgr_stats stats = engine.Stats();
    EXPECT_EQ(engine.KeyStats(-1).size, sizeof(cgr_key_stats));
    EXPECT_EQ(JsonReader::Read(engine.Dump())["records"].items.size(), engine.Flight().size());
    EXPECT_LE(stats.steps, engine.Flight().size());
    const std::string page = engine.Text([&](char *out, size_t capacity, size_t *length) {
      return cgr_runtime_metrics(engine.rt, nullptr, 0, out, capacity, length);
    });
    EXPECT_NE(page.find("cgr_steps_total"), std::string::npos);
    const std::string table = engine.Text(
        [&](char *out, size_t capacity, size_t *length) { return cgr_runtime_stats_text(engine.rt, out, capacity, length); });
    EXPECT_NE(table.find("steps"), std::string::npos);
    told++;
  };
  CGR_ASSERT_OK(engine.Warmup());
  EXPECT_EQ(told, 14) << "in record and its call, for 7 keys";
  CGR_ASSERT_OK(engine.Capture());
  EXPECT_EQ(told, 14 + 4 * 2 + 3) << "the call of a PIECEWISE graph is made between its pieces";
  engine.Step({ 5, 2 });
  EXPECT_EQ(told, 14 + 4 * 2 + 3 + 1);
  engine.Step({ 20, 20 });
  EXPECT_EQ(told, 14 + 4 * 2 + 3 + 3);
}

} // namespace
} // namespace cgr_test

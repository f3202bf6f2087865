// Runtimes on threads of their own, on one device or several, and the queries that any thread may make. For the thread sanitizer.
#include <atomic>
#include <thread>

#include "tests/support/engine_case.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

void Work(Engine *engine, int salt) {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(engine->Start(3 + 5 * i, salt + i));
  for (int n = 0; n < 40 && !::testing::Test::HasFatalFailure(); n++) {
    if (n % 9 == 8) {
      engine->CheckAll();
      engine->Close(rows.back());
      rows.back() = engine->Start(1 + n % 20, n + salt);
    }
    engine->PrepareAndLaunch(engine->Decode({ rows.begin(), rows.begin() + 1 + n % 4 }));
    if (n % 3 == 2)
      engine->CheckAll();
  }
  engine->CheckAll();
}

class Threads : public OverDevices {};

TEST_P(Threads, TwoRuntimesOnTwoDevices) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([i] {
      Captured<Engine> engine(OptionsFor(GetParam()));
      Work(&engine, 100 * i);
    });
  for (std::thread &thread : threads)
    thread.join();
}

// Thread-local capture: another thread's steps go on while this one captures.
TEST_P(Threads, OneCapturesWhileTheOtherRuns) {
  Captured<Engine> runs(OptionsFor(GetParam()));
  std::thread worker([&] { Work(&runs, 0); });
  for (int n = 0; n < 10; n++) {
    Captured<Engine> captures(OptionsFor(GetParam()));
    captures.Step(captures.Decode({ captures.Start(3, n) }));
  }
  worker.join();
}

TEST_P(Threads, MessagesBelongToTheirThread) {
  Engine engine(OptionsFor(GetParam()));
  EXPECT_EQ(cgr_request_open(nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER);
  std::string mine = cgr_last_message();
  EXPECT_NE(mine, "");
  std::thread([&] {
    EXPECT_EQ(std::string(cgr_last_message()), "");
    EXPECT_EQ(cgr_request_close(engine.rt, 77), CGR_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(cgr_last_message()), mine);
  }).join();
  EXPECT_EQ(std::string(cgr_last_message()), mine);
}

TEST_P(Threads, CompletionMayBeReadByAnyThread) {
  Captured<Engine> engine(OptionsFor(GetParam()));
  std::atomic<bool> stop{ false };
  std::thread reader([&] {
    uint64_t last = 0;
    while (!stop.load()) {
      uint64_t now = cgr_test::Completed(engine.rt);
      EXPECT_GE(now, last);
      last = now;
    }
  });
  Work(&engine, 5);
  stop = true;
  reader.join();
}

// A runtime may be handed from thread to thread.
TEST_P(Threads, OneRuntimeOnOneThreadAfterTheOther) {
  Engine engine(OptionsFor(GetParam()));
  std::thread([&] { CGR_ASSERT_OK(engine.Capture()); }).join();
  for (int i = 0; i < 3; i++)
    std::thread([&] { Work(&engine, 10 * i); }).join();
}

CGR_INSTANTIATE_OVER_DEVICES(Threads);

// Every cold call, again and again, between steps.
void LiveThrough(cgr_device *dev, int32_t seed) {
  TinyEngine engine(dev, seed % 2 == 0 ? CGR_MODE_FULL : CGR_MODE_FULL_AND_PIECEWISE);
  const std::vector<int32_t> regions = engine.RegisterAll();
  cgr_capture capture = engine.CaptureStruct();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  int32_t kind = 0, count = 0;
  for (int32_t round = seed; round < seed + 6 && !::testing::Test::HasFatalFailure(); round++) {
    CGR_EXPECT_OK(cgr_runtime_estimate_capture(engine.rt, &capture, &estimate));
    CGR_EXPECT_OK(cgr_runtime_capture(engine.rt, &capture));
    engine.StepOnce(&kind);
    EXPECT_NE(kind, CGR_KIND_NONE);
    const size_t moved = size_t(round) % regions.size();
    CGR_EXPECT_OK(cgr_region_move(engine.rt, regions[moved], engine.memory[moved], TinyEngine::kMemory));
    engine.StepOnce(&kind);
    EXPECT_EQ(kind, CGR_KIND_NONE);
    capture.flags = CGR_CAPTURE_MISSED;
    CGR_EXPECT_OK(cgr_runtime_capture(engine.rt, &capture));
    capture.flags = 0;
    engine.StepOnce(&kind);
    EXPECT_NE(kind, CGR_KIND_NONE);
    CGR_EXPECT_OK(engine.SelfTest(&count));
    CGR_EXPECT_OK(cgr_runtime_audit(engine.rt, nullptr, nullptr, 0, &count));
    CGR_EXPECT_OK(cgr_runtime_graph_stats(engine.rt, 0, &stats));
    CGR_EXPECT_OK(cgr_runtime_enable_graphs(engine.rt, round % 2));
    engine.StepOnce(&kind);
    EXPECT_EQ(kind != CGR_KIND_NONE, round % 2 == 1);
    CGR_EXPECT_OK(cgr_runtime_enable_graphs(engine.rt, 1));
    CGR_EXPECT_OK(cgr_runtime_release_graphs(engine.rt, 0, nullptr));
  }
  engine.ExpectCountersAddUp();
}

TEST(EightThreads, WithARuntimeEach) {
  for (bool shared : { false, true }) {
    std::vector<cgr_device *> devices(shared ? 1 : 8);
    for (cgr_device *&dev : devices)
      CGR_ASSERT_OK(cgr_device_open("host", nullptr, &dev));
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < 8; i++)
      threads.emplace_back([&, i] { LiveThrough(devices[shared ? 0 : size_t(i)], i); });
    for (std::thread &thread : threads)
      thread.join();
    for (cgr_device *dev : devices)
      CGR_EXPECT_OK(cgr_device_close(dev));
  }
}

} // namespace
} // namespace cgr_test

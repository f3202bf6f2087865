// Two runtimes on two threads, one device each; and a device that two threads share. For the thread sanitizer.
#include <atomic>
#include <thread>

#include "tests/support/toy_engine.h"

namespace cgr_test {
namespace {

void Work(Toy *toy, int salt) {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < 4; i++)
    rows.push_back(toy->Start(3 + 5 * i, salt + i));
  for (int n = 0; n < 40 && !::testing::Test::HasFatalFailure(); n++) {
    if (n % 9 == 8) {
      toy->Close(rows.back());
      rows.back() = toy->Start(1 + n % 20, n + salt);
    }
    CGR_ASSERT_OK(toy->Prepare(toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + 1 + n % 4))));
    CGR_ASSERT_OK(toy->Launch());
    if (n % 3 == 2)
      toy->CheckAll();
  }
  toy->CheckAll();
}

class Threads : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
};

TEST_P(Threads, TwoRuntimesOnTwoDevices) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([i] {
      Toy toy(ToyOptionsFor(GetParam()));
      CGR_ASSERT_OK(toy.Capture());
      Work(&toy, 100 * i);
    });
  for (std::thread &thread : threads)
    thread.join();
}

// Thread-local capture: another thread's steps go on while this one captures.
TEST_P(Threads, OneCapturesWhileTheOtherRuns) {
  Toy runs(ToyOptionsFor(GetParam()));
  CGR_ASSERT_OK(runs.Capture());
  std::thread worker([&] { Work(&runs, 0); });
  for (int n = 0; n < 10; n++) {
    Toy captures(ToyOptionsFor(GetParam()));
    CGR_EXPECT_OK(captures.Capture());
    captures.Step(captures.Decode({ captures.Start(3, n) }));
  }
  worker.join();
}

TEST_P(Threads, MessagesBelongToTheirThread) {
  Toy toy(ToyOptionsFor(GetParam()));
  EXPECT_EQ(cgr_request_open(nullptr, nullptr), CGR_ERROR_NULL_POINTER);
  std::string mine = cgr_last_message();
  EXPECT_NE(mine, "");
  std::thread([&] {
    EXPECT_EQ(std::string(cgr_last_message()), "");
    EXPECT_EQ(cgr_request_close(toy.rt, 77), CGR_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(cgr_last_message()), mine);
  }).join();
  EXPECT_EQ(std::string(cgr_last_message()), mine);
}

TEST_P(Threads, CompletionMayBeReadByAnyThread) {
  Toy toy(ToyOptionsFor(GetParam()));
  CGR_ASSERT_OK(toy.Capture());
  std::atomic<bool> stop{ false };
  std::thread reader([&] {
    uint64_t last = 0;
    while (!stop.load()) {
      uint64_t now = cgr_runtime_completed(toy.rt);
      EXPECT_GE(now, last);
      last = now;
    }
  });
  Work(&toy, 5);
  stop = true;
  reader.join();
}

CGR_INSTANTIATE_OVER_DEVICES(Threads);

} // namespace
} // namespace cgr_test

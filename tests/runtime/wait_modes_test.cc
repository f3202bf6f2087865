// The ways to wait (cgr_config.wait_mode): over every device each of them gives the same answers; one that blocks sleeps, is back
// soon after the step's end, and notices what does not wake it: a time-out, a lost kernel, a lost device.
#include <time.h>

#include <algorithm>
#include <thread>

#include "cgr/names.h"
#include "devices/shims/trace.h"
#include "tests/support/gate.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr int32_t kModes[] = { CGR_WAIT_DEFAULT, CGR_WAIT_SPIN, CGR_WAIT_YIELD, CGR_WAIT_BLOCK };

double Milliseconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) * 1e-6;
}

void Sleep(long ns) {
  const timespec pause = { 0, ns };
  nanosleep(&pause, nullptr);
}

// A device whose table has other operations meanwhile.
struct Replaced {
  explicit Replaced(cgr_device *of) : ops(*of->ops), dev(of), real(of->ops) { dev->ops = &ops; }
  ~Replaced() { dev->ops = real; }
  cgr__device_ops ops;
  cgr_device *dev;
  const cgr__device_ops *real;
};

struct Param {
  DeviceParam device;
  int32_t mode;
};

void PrintTo(const Param &param, std::ostream *os) { *os << param.device.Label() << " " << param.mode; }

std::vector<Param> Params(bool with_threads) {
  std::vector<Param> params;
  for (const DeviceParam &device : AllDevices())
    for (int32_t mode : kModes)
      if (!with_threads || device.HasThreads())
        params.push_back({ device, mode });
  return params;
}

std::string Label(const ::testing::TestParamInfo<Param> &info) {
  return info.param.device.Label() + "_" + cgr_wait_mode_name(static_cast<cgr_wait_mode>(info.param.mode));
}

class WaitModes : public ::testing::TestWithParam<Param> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
  void TearDown() override { gate_.reset(); }
  void Make(cgr_device *over = nullptr, int32_t depth = 0) {
    EngineOptions options = OptionsFor(
        GetParam().device, [=](cgr_config *config) { config->wait_mode = GetParam().mode, config->ring_depth = depth; });
    options.handle = over;
    engine_ = MakeCaptured(options);
    row_ = engine_->Start(5, 1);
  }
  void LaunchBehindTheGate() {
    gate_.reset();
    gate_ = std::make_unique<Gate>(engine_->dev, engine_->stream);
    ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Chunks({ { row_, 2 } })));
  }
  cgr_status Wait(uint64_t seq, int32_t timeout_ms) {
    return cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, timeout_ms, nullptr);
  }
  bool Blocks() const { return GetParam().mode == CGR_WAIT_BLOCK || GetParam().mode == CGR_WAIT_DEFAULT; }
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Gate> gate_; // goes first
  int32_t row_ = -1;
};

TEST_P(WaitModes, StepsAreRight) {
  SeededRandom random;
  ASSERT_NO_FATAL_FAILURE(Make());
  for (int n = 0; n < 20 && !HasFailure(); n++) {
    ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row_ })));
    while (engine_->NumInFlight() > size_t(random.Pick(0, 3)))
      engine_->CheckOne();
  }
  engine_->CheckAll();
}

// A step whose kernel is lost: the device is idle, and nothing would wake the thread.
TEST_P(WaitModes, ALostKernelIsNoticed) {
  ASSERT_NO_FATAL_FAILURE(Make());
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row_ })));
  ASSERT_EQ(engine_->step.key.kind, CGR_KIND_FULL);
  engine_->dead = true;
  {
    Replaced replaced(engine_->dev);
    replaced.ops.exec_launch = [](cgr_device *, cgr__exec *, cudaStream_t) -> int { return CGR__DEVICE_OK; };
    CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &engine_->step, engine_->stream));
  }
  ExpectMessage(Wait(engine_->step.mark.seq, 20000), CGR_ERROR_DEAD, { "the stream is idle and step" });
}

class WaitModesWithThreads : public WaitModes {};

TEST_P(WaitModesWithThreads, TimeOutsAreKept) {
  ASSERT_NO_FATAL_FAILURE(Make());
  LaunchBehindTheGate();
  for (int32_t timeout : { 1, 15, 130 }) { // before and after the first look at the device
    const double begin = Milliseconds(CLOCK_MONOTONIC);
    ExpectMessage(Wait(engine_->launched, timeout), CGR_NOT_READY,
                  { "cgr_step_wait: step " + std::to_string(engine_->launched) + " has not completed after " +
                    std::to_string(timeout) + " ms, expected it to: wait again" });
    const double took = Milliseconds(CLOCK_MONOTONIC) - begin;
    EXPECT_GE(took, timeout - 1);
    EXPECT_LT(took, timeout + 5000); // a loaded machine
  }
  gate_->Open();
  CGR_EXPECT_OK(Wait(engine_->launched, 20000));
  engine_->CheckAll();
}

// Whatever was waited for in vain before: an earlier step, a later one, and the same again.
TEST_P(WaitModesWithThreads, AnyStepMayBeWaitedForAfterATimeOut) {
  SeededRandom random;
  ASSERT_NO_FATAL_FAILURE(Make(nullptr, 8));
  engine_->check_outputs = false;
  for (int round = 0; round < 3 && !HasFailure(); round++) {
    LaunchBehindTheGate();
    const uint64_t first = engine_->launched;
    for (int64_t n = random.Pick(1, 5); n > 0; n--)
      ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ row_ })));
    for (int64_t n = random.Pick(1, 3); n > 0; n--)
      CGR_EXPECT(CGR_NOT_READY, Wait(uint64_t(random.Pick(int64_t(first), int64_t(engine_->launched))), 20));
    std::thread opener([&] { gate_->Open(); });
    for (int64_t n = random.Pick(1, 3); n > 0; n--)
      CGR_EXPECT_OK(Wait(uint64_t(random.Pick(int64_t(first), int64_t(engine_->launched))), 20000));
    opener.join();
    engine_->CheckAll();
    gate_.reset();
  }
}

// The step ends before, during and after the moment at which the wait begins to sleep.
TEST_P(WaitModesWithThreads, NoEndIsMissed) {
  ASSERT_NO_FATAL_FAILURE(Make());
  engine_->check_outputs = false;
  for (int n = 0; n < 16 && !HasFailure(); n++) {
    LaunchBehindTheGate();
    std::thread opener([&] { Sleep(n * 25000), gate_->Open(); });
    CGR_EXPECT_OK(Wait(engine_->launched, 60000));
    opener.join();
    engine_->CheckAll();
  }
}

TEST_P(WaitModesWithThreads, ALostDeviceEndsTheWait) {
  ASSERT_NO_FATAL_FAILURE(Make());
  LaunchBehindTheGate();
  engine_->dead = true;
  {
    Replaced replaced(engine_->dev);
    replaced.ops.stream_query = [](cgr_device *, cudaStream_t) -> int { return CGR__DEVICE_DEAD; };
    CGR_EXPECT(CGR_ERROR_DEAD, Wait(engine_->launched, 20000));
  }
  CGR_EXPECT(CGR_ERROR_DEAD, Wait(engine_->launched, 0));
}

// Another error ends the wait, and the step can be waited for again.
TEST_P(WaitModesWithThreads, AFailedCallEndsTheWait) {
  if (!Blocks())
    return;
  ASSERT_NO_FATAL_FAILURE(Make());
  LaunchBehindTheGate();
  {
    Replaced replaced(engine_->dev);
    replaced.ops.waiter_wait = [](cgr_device *, cgr__waiter *, uint64_t, uint64_t) -> int { return CGR__DEVICE_FAILED; };
    ExpectMessage(Wait(engine_->launched, 20000), CGR_ERROR_DEVICE, { "waiting for a step by blocking" });
  }
  gate_->Open();
  CGR_EXPECT_OK(Wait(engine_->launched, 20000));
  engine_->CheckAll();
}

// 300 ms of waiting cost a blocked thread less than 3 ms; the step's own processor is another one's.
TEST_P(WaitModesWithThreads, ABlockedThreadComputesNothing) {
  ASSERT_NO_FATAL_FAILURE(Make());
  engine_->check_outputs = false;
  LaunchBehindTheGate();
  const double begin = Milliseconds(CLOCK_THREAD_CPUTIME_ID);
  CGR_EXPECT(CGR_NOT_READY, Wait(engine_->launched, 300));
  const double computed = Milliseconds(CLOCK_THREAD_CPUTIME_ID) - begin;
  const double spun = GetParam().device.IsCuda() && GetParam().mode == CGR_WAIT_DEFAULT ? 10.0 : 0.0;
  EXPECT_TRUE(!Blocks() || computed < 3.0 + spun) << computed;
  gate_->Open();
  engine_->CheckAll();
}

// The median is a few microseconds on an idle machine (profiles/wait_cost); a loaded one passes, too.
TEST_P(WaitModesWithThreads, TheThreadIsBackSoon) {
  ASSERT_NO_FATAL_FAILURE(Make());
  engine_->check_outputs = false;
  std::vector<double> late;
  for (int n = 0; n < 7 && !HasFailure(); n++) {
    LaunchBehindTheGate();
    double opened = 0.0;
    std::thread opener([&] {
      Sleep(20000000);
      opened = Milliseconds(CLOCK_MONOTONIC);
      gate_->Open();
    });
    CGR_EXPECT_OK(Wait(engine_->launched, 20000));
    const double back = Milliseconds(CLOCK_MONOTONIC);
    opener.join();
    late.push_back(back - opened);
    engine_->CheckAll();
  }
  std::sort(late.begin(), late.end());
  EXPECT_LT(late[late.size() / 2], 60.0);
}

// A thread that never sleeps needs nothing of the device's for it.
TEST_P(WaitModesWithThreads, OnlyWhatSleepsHasAWaiter) {
  cgr_device *dev = nullptr;
  ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam().device), &dev), CGR__DEVICE_OK);
  ASSERT_NO_FATAL_FAILURE(Make(dev));
  engine_->Step(engine_->Decode({ row_ }));
  EXPECT_EQ(cgr__trace_count(dev, CGR__OP_WAITER_CREATE), Blocks() ? 1u : 0u);
  LaunchBehindTheGate();
  CGR_EXPECT(CGR_NOT_READY, Wait(engine_->launched, 60));
  EXPECT_EQ(cgr__trace_count(dev, CGR__OP_WAITER_WAIT) > 0, Blocks());
  gate_->Open();
  engine_->CheckAll();
}

INSTANTIATE_TEST_SUITE_P(Devices, WaitModes, ::testing::ValuesIn(Params(false)), Label);
INSTANTIATE_TEST_SUITE_P(Devices, WaitModesWithThreads, ::testing::ValuesIn(Params(true)), Label);

} // namespace
} // namespace cgr_test

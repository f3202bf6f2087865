// The validation layer over memory that has been freed: whatever would still use it is refused and named, whether it is enqueued
// now or in a graph that is older than the free. Memory that is handed out again is as good as any.
#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "devices/shims/freed.h"
#include "tests/devices/device_case.h"
#include "tests/support/seed.h"
#include "tests/support/violations.h"

namespace {

enum { kBytes = 4096 };

struct Args {
  int64_t number;
  void *memory;
};
void Nothing(const void *) {}
const cgr__kernel kKernel = { "nothing", sizeof(Args), Nothing, nullptr, nullptr, 0 };

class FreedMemory : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override { stream_ = NewStream(); }
  void TearDown() override {
    DeviceCase::TearDown();
    EXPECT_EQ(violations_.size(), expected_) << violations_.Last();
  }
  cgr_device *Over(cgr_device *inner) override { return violations_.Over(inner); }
  void *Alloc(size_t bytes = kBytes, enum cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    void *memory = nullptr;
    EXPECT_EQ(ops_->mem_alloc(dev_, bytes, kind, &memory), CGR__DEVICE_OK);
    return memory;
  }
  void Free(void *memory, enum cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    EXPECT_EQ(ops_->mem_free(dev_, memory, kind), CGR__DEVICE_OK);
  }
  void *Freed(size_t bytes = kBytes, enum cgr__memory_kind kind = CGR__MEMORY_DEVICE) {
    void *memory = Alloc(bytes, kind);
    Free(memory, kind);
    return memory;
  }
  static std::string Hex(const void *memory) {
    char text[32];
    snprintf(text, sizeof text, "%#llx", (unsigned long long)(uintptr_t)memory);
    return text;
  }
  static std::string Text(const std::string &what, const void *address, const void *block, const char *kind = "device",
                          size_t bytes = kBytes) {
    return what + " is " + Hex(address) + ", in " + std::to_string(bytes) + " bytes of " + kind + " memory at " + Hex(block) +
           " that have been freed";
  }
  void ExpectViolation(int error, const std::string &text) {
    EXPECT_EQ(error, CGR__DEVICE_INVALID) << text;
    EXPECT_EQ(violations_.size(), ++expected_) << text;
    EXPECT_EQ(violations_.Last(), text);
  }
  // A graph that fills each of them from its byte 64 on.
  cgr__exec *Capture(const std::vector<void *> &memory) {
    cgr__graph *graph = nullptr;
    cgr__exec *exec = nullptr;
    EXPECT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
    for (void *each : memory)
      EXPECT_EQ(ops_->fill(dev_, static_cast<char *>(each) + 64, 1, 1, 16, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->instantiate(dev_, graph, &exec, nullptr), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
    return exec;
  }
  int Launch(cgr__exec *exec) { return ops_->exec_launch(dev_, exec, stream_); }
  void Destroy(cgr__exec *exec) { EXPECT_EQ(ops_->exec_destroy(dev_, exec), CGR__DEVICE_OK); }

  cgr_test::Violations violations_;
  size_t expected_ = 0;
  cudaStream_t stream_ = nullptr;
};

TEST_P(FreedMemory, CopiesAndFillsAreRefused) {
  for (auto kind : { CGR__MEMORY_DEVICE, CGR__MEMORY_PINNED }) {
    const char *name = kind == CGR__MEMORY_PINNED ? "pinned" : "device";
    void *live = Alloc(), *gone = Freed(kBytes, kind);
    char *inside = static_cast<char *>(gone) + 100;
    ExpectViolation(ops_->copy(dev_, gone, live, 16, stream_), Text("cgr_copy: dst", gone, gone, name));
    ExpectViolation(ops_->copy(dev_, live, inside, 16, stream_), Text("cgr_copy: src", inside, gone, name));
    ExpectViolation(ops_->fill(dev_, inside, 0, 1, 16, stream_), Text("cgr_fill: dst", inside, gone, name));
    EXPECT_EQ(ops_->fill(dev_, live, 0, 1, 16, stream_), CGR__DEVICE_OK);
    ExpectViolation(ops_->mem_free(dev_, gone, kind), kind == CGR__MEMORY_PINNED
                                                          ? "cgr_memory_free_pinned: the memory has been freed"
                                                          : "cgr_memory_free: the memory has been freed");
    Free(live);
  }
}

TEST_P(FreedMemory, ArgumentsOfLaunchesAreRefused) {
  char *gone = static_cast<char *>(Freed());
  Args args = { 5, gone + kBytes - 1 };
  ExpectViolation(ops_->host_call(dev_, Nothing, &args, sizeof args, stream_),
                  Text("cgr_launch_host: byte 8 of the arguments of a host function", args.memory, gone));
  if (!GetParam().IsCuda())
    ExpectViolation(ops_->launch(dev_, &kKernel, &args, stream_),
                    Text("kernel launch: byte 8 of the arguments of nothing", args.memory, gone));
  args.memory = gone + kBytes; // that is behind it
  EXPECT_EQ(ops_->host_call(dev_, Nothing, &args, sizeof args, stream_), CGR__DEVICE_OK);
}

TEST_P(FreedMemory, WorkOfACaptureIsRefusedWithoutInvalidatingIt) {
  void *gone = Freed(), *live = Alloc();
  cgr__graph *graph = nullptr;
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  ExpectViolation(ops_->fill(dev_, gone, 0, 1, 16, stream_), Text("cgr_fill: dst", gone, gone));
  EXPECT_EQ(ops_->fill(dev_, live, 0, 1, 16, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
  Free(live);
}

TEST_P(FreedMemory, AGraphThatIsOlderThanTheFreeIsRefusedAtEachLaunch) {
  for (size_t bytes : { size_t(kBytes), CGR__MAX_KEPT_BYTES + 1 }) { // also what the layer does not keep
    void *first = Alloc(), *second = Alloc(bytes);
    cgr__exec *both = Capture({ first, second }), *one = Capture({ first });
    EXPECT_EQ(Launch(both), CGR__DEVICE_OK);
    Free(second);
    const std::string text =
        Text("graph launch: a parameter of node 1 (fill)", static_cast<char *>(second) + 64, second, "device", bytes);
    for (int n = 0; n < 2; n++) {
      ExpectViolation(Launch(both), text);
      EXPECT_EQ(Launch(one), CGR__DEVICE_OK);
    }
    Destroy(both);
    Destroy(one);
    Free(first);
  }
}

// A graph captured before the free and instantiated after it.
TEST_P(FreedMemory, AGraphIsNotInstantiatedOverIt) {
  void *memory = Alloc();
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->fill(dev_, memory, 1, 1, 16, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  Free(memory);
  ExpectViolation(ops_->instantiate(dev_, graph, &exec, nullptr),
                  Text("graph instantiation: a parameter of node 0 (fill)", memory, memory));
  EXPECT_EQ(exec, nullptr);
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

// While the layer keeps a block, no other memory is there; and it keeps only so many, and so much.
TEST_P(FreedMemory, BlocksAreKeptForAWhile) {
  void *oldest = Freed();
  for (int n = 0; n < CGR__MAX_FREED - 1; n++)
    EXPECT_NE(Freed(), oldest);
  ExpectViolation(ops_->fill(dev_, oldest, 0, 1, 1, stream_), Text("cgr_fill: dst", oldest, oldest));
  Freed(); // takes its place
  void *large = Freed(CGR__MAX_KEPT_BYTES);
  ExpectViolation(ops_->fill(dev_, large, 0, 1, 1, stream_), Text("cgr_fill: dst", large, large, "device", CGR__MAX_KEPT_BYTES));
}

// Freeing waits for the work that has been given to the streams, kept or not.
TEST_P(FreedMemory, FreeingWaits) {
  struct Flag {
    int *done;
  };
  for (size_t bytes : { size_t(kBytes), CGR__MAX_KEPT_BYTES + 1 }) {
    int done = 0;
    Flag flag = { &done };
    void *memory = Alloc(bytes);
    const auto set = [](const void *args) { __atomic_store_n(static_cast<const Flag *>(args)->done, 1, __ATOMIC_RELEASE); };
    ASSERT_EQ(ops_->host_call(dev_, set, &flag, sizeof flag, stream_), CGR__DEVICE_OK);
    Free(memory);
    EXPECT_EQ(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
  }
}

// Blocks of many sizes come, go and are used, by graphs too; the model says which are live.
TEST_P(FreedMemory, OnlyWhatIsFreedIsRefusedAtRandom) {
  cgr_test::SeededRandom random;
  std::vector<char *> live, gone; // the last few that were freed
  std::map<cgr__exec *, char *> execs;
  int refused = 0, good = 0;
  for (int n = 0; n < 1500 && !HasFailure(); n++) {
    const auto pick = [&](const std::vector<char *> &from) { return from[size_t(random.Pick(0, int64_t(from.size()) - 1))]; };
    while (live.size() < 3 || (live.size() < 40 && random.OneIn(3)))
      live.push_back(static_cast<char *>(Alloc(kBytes)));
    if (random.OneIn(4)) {
      const size_t i = size_t(random.Pick(0, int64_t(live.size()) - 1));
      Free(live[i]);
      gone.push_back(live[i]);
      live.erase(live.begin() + int64_t(i));
      if (gone.size() > 100) { // the layer forgets, too
        for (auto it = execs.begin(); it != execs.end();) {
          if (it->second == gone[0])
            Destroy(it->first);
          it = it->second == gone[0] ? execs.erase(it) : std::next(it);
        }
        gone.erase(gone.begin());
      }
    }
    if (random.OneIn(10))
      execs[Capture({ live.back() })] = live.back();
    if (!gone.empty() && random.OneIn(2)) {
      char *at = pick(gone) + random.Pick(0, kBytes - 1);
      EXPECT_EQ(ops_->fill(dev_, at, 0, 1, 1, stream_), CGR__DEVICE_INVALID);
      expected_++, refused++;
    }
    Args args = { 1, pick(live) + random.Pick(0, kBytes - 1) };
    EXPECT_EQ(ops_->host_call(dev_, Nothing, &args, sizeof args, stream_), CGR__DEVICE_OK);
    for (const auto &[exec, memory] : execs) {
      const bool is_live = std::find(live.begin(), live.end(), memory) != live.end();
      const int error = Launch(exec);
      EXPECT_EQ(error, is_live ? CGR__DEVICE_OK : CGR__DEVICE_INVALID);
      expected_ += !is_live, refused += !is_live, good += is_live;
    }
    if (execs.size() > 10) {
      Destroy(execs.begin()->first);
      execs.erase(execs.begin());
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(good, 100);
  for (const auto &[exec, memory] : execs)
    Destroy(exec);
  for (char *memory : live)
    Free(memory);
}

TEST_P(FreedMemory, ThreadsMayFreeAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([this] {
      for (int n = 0; n < 300; n++) {
        void *memory = nullptr;
        EXPECT_EQ(ops_->mem_alloc(dev_, 64, CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
        EXPECT_EQ(ops_->mem_free(dev_, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

CGR_INSTANTIATE_OVER_DEVICES(FreedMemory);

} // namespace

// The memory that a runtime keeps on the host has all its pages from its creation on: no step is the first to touch one.
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>

#include "tests/support/idle_runtime.h"

namespace cgr_test {
namespace {

enum { kRequests = 512, kPages = 20, kSteps = 300 };

// Minor page faults of this thread.
int64_t Faults() {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

class PageFaults : public IdleRuntime, public ::testing::WithParamInterface<bool> {
protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own memory has page faults";
#endif
    mallopt(M_MMAP_THRESHOLD, 65536); // large blocks are fresh memory, and not what an earlier test has freed
  }
  // Of several runtimes, the fewest that `body` counts: kernels move pages for reasons of their own, which looks the same, and
  // the first runtime may be the first to run some code.
  template <class Body> void ExpectNone(const Body &body) {
    int64_t least = INT64_MAX;
    for (int attempt = 0; attempt < 5 && least > 0 && !HasFailure(); attempt++) {
      Open(kRequests, kPages, kRequests, kPages, GetParam());
      least = std::min(least, HasFailure() ? 0 : body());
      TearDown();
    }
    EXPECT_EQ(least, 0);
  }
};

TEST_P(PageFaults, NoneInTheRuntimesMemory) {
  ExpectNone([&] {
    const volatile char *block = static_cast<const volatile char *>(rt_->host_block);
    const size_t bytes = cgr__setup_host_bytes(&rt_->setup);
    EXPECT_GT(bytes, 65536u);
    const int64_t before = Faults();
    for (size_t at = 0; at < bytes; at += 4096)
      (void)block[at];
    return Faults() - before;
  });
}

TEST_P(PageFaults, NoneInSteps) {
  ExpectNone([&] {
    int64_t faults = 0;
    for (int32_t i = 0; i < kSteps; i++) {
      cgr_step step = CGR_STEP_INIT;
      const int64_t before = Faults();
      const cgr_status prepared = cgr_step_prepare(rt_, &batch_, &step);
      const cgr_status launched = prepared == CGR_OK ? cgr_step_launch(rt_, &step, stream_) : CGR_OK;
      faults += Faults() - before;
      CGR_EXPECT_OK(prepared);
      CGR_EXPECT_OK(launched);
      batch_.tokens = nullptr;
    }
    return faults;
  });
}

INSTANTIATE_TEST_SUITE_P(Batches, PageFaults, ::testing::Bool(),
                         [](const auto &of) { return std::string(of.param ? "standing" : "whole"); });

} // namespace
} // namespace cgr_test

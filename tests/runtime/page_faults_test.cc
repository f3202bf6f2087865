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
  void OpenOne() { Open(kRequests, kPages, kRequests, kPages, GetParam()); }

  // Kernels move pages for reasons of their own, which look the same: a fault that is the library's comes back.
  static constexpr int kAttempts = 5;
};

TEST_P(PageFaults, NoneInTheRuntimesMemory) {
  int64_t least = INT64_MAX;
  for (int attempt = 0; attempt < kAttempts && least > 0; attempt++) {
    ASSERT_NO_FATAL_FAILURE(OpenOne());
    const volatile char *block = static_cast<const volatile char *>(rt_->host_block);
    const size_t bytes = cgr__setup_host_bytes(&rt_->setup);
    ASSERT_GT(bytes, 65536u);
    const int64_t before = Faults();
    for (size_t at = 0; at < bytes; at += 4096)
      (void)block[at];
    least = std::min(least, Faults() - before);
    TearDown();
  }
  EXPECT_EQ(least, 0);
}

// The first attempt may be the first to run some code.
TEST_P(PageFaults, NoneInSteps) {
  int64_t least = INT64_MAX;
  for (int attempt = 0; attempt < kAttempts && least > 0; attempt++) {
    ASSERT_NO_FATAL_FAILURE(OpenOne());
    int64_t faults = 0;
    for (int32_t i = 0; i < kSteps; i++) {
      cgr_step step = CGR_STEP_INIT;
      const int64_t before = Faults();
      const cgr_status prepared = cgr_step_prepare(rt_, &batch_, &step);
      const cgr_status launched = prepared == CGR_OK ? cgr_step_launch(rt_, &step, stream_) : CGR_OK;
      faults += Faults() - before;
      CGR_ASSERT_OK(prepared);
      CGR_ASSERT_OK(launched);
      batch_.tokens = nullptr;
    }
    least = std::min(least, faults);
    TearDown();
  }
  EXPECT_EQ(least, 0);
}

INSTANTIATE_TEST_SUITE_P(Batches, PageFaults, ::testing::Bool(),
                         [](const auto &of) { return std::string(of.param ? "standing" : "whole"); });

} // namespace
} // namespace cgr_test

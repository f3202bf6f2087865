// Kernel arguments have no holes: the bytes of a hole may be anything, and an audit compares captures byte by byte.
#include <gtest/gtest.h>

#include <cstring>

#include "cgr/interop/flashinfer.h"
#include "interop/formats.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/fingerprint.h"
#include "kernels/gather.h"
#include "kernels/measure.h"
#include "kernels/merge.h"
#include "kernels/on_demand.h"
#include "kernels/pages.h"
#include "kernels/planner.h"
#include "kernels/staged.h"
#include "kernels/stamp.h"
#include "kernels/step.h"
#include "kernels/transform.h"

namespace {

#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)

// The offset of the first byte that is padding; -1: there is none.
template <typename Args> long FirstHole() {
  alignas(Args) unsigned char bytes[sizeof(Args)];
  std::memset(bytes, 0xff, sizeof bytes);
  __builtin_clear_padding(reinterpret_cast<Args *>(bytes));
  for (size_t i = 0; i < sizeof bytes; i++)
    if (bytes[i] == 0)
      return static_cast<long>(i);
  return -1;
}

struct Holed {
  int64_t wide;
  int32_t narrow;
};

TEST(KernelArguments, HaveNoHoles) {
  EXPECT_EQ(FirstHole<Holed>(), 12) << "the test sees none";
  EXPECT_EQ(FirstHole<cgr__step_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__planner_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__staged_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__on_demand_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__append_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__transform_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__attention_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__merge_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__gather_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__measure_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__pages_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__stamp_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__fingerprint_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__compare_fingerprints_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__fa3_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__flashmla_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__block_table_args>(), -1);
  EXPECT_EQ(FirstHole<cgr__flashinfer_args>(), -1);
  EXPECT_EQ(FirstHole<cgr_flashinfer_cascade>(), -1);
}

#else

TEST(KernelArguments, HaveNoHoles) { GTEST_SKIP() << "this compiler does not tell where padding is"; }

#endif

} // namespace

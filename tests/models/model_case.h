// Tests of a model: it must give what transformers gives, on every device and in every dtype and mode.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cgr/names.h"
#include "tests/models/session.h"

namespace cgr_test {
namespace models {

// The bounds of examples/llama/compare_rules.py: for fp32, and for bf16 as multiples of transformers' own error. Caches of 8 bits
// add to that for fp32 the same multiples of what results may be apart by chance.
constexpr double kLargest = 5e-4, kMean = 2e-5, kLargestRatio = 2.0, kMeanRatio = 1.3;

struct WhereCase {
  DeviceParam device;
  cgr_dtype dtype;

  std::string Label() const { return device.Label() + "_" + cgr_dtype_name(dtype); }
};

inline void PrintTo(const WhereCase &where, std::ostream *os) { *os << where.Label(); }
inline std::string WhereLabel(const ::testing::TestParamInfo<WhereCase> &info) { return info.param.Label(); }

// fp32 and bf16 on the host, bf16 by the CUDA kernels: on a GPU, and on the processor if no sanitizer slows it down.
inline std::vector<WhereCase> Everywhere() {
  return {
    { HostParam(CGR_SCHEDULE_ASYNC), CGR_DTYPE_FP32 }, { HostParam(CGR_SCHEDULE_LATEST), CGR_DTYPE_BF16 },
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        { EmulatedParam(), CGR_DTYPE_BF16 },
#endif
    {
      CudaParam(), CGR_DTYPE_BF16
    }
  };
}

inline Error BoundOf(const Expected &expected, cgr_dtype dtype) {
  const bool exact = dtype == CGR_DTYPE_FP32;
  const Error &by = exact ? expected.fp32 : expected.bf16;
  return { (exact ? kLargest : 0.0) + kLargestRatio * by.largest, (exact ? kMean : 0.0) + kMeanRatio * by.mean };
}

// `kind` of the graphs that all steps must have been replays of.
inline Rows RunModel(const Setting &setting, const Expected &expected, const Kit::Maker &make, cgr_graph_kind kind,
                     uint64_t seed) {
  Kit kit(setting, expected, make);
  Rows rows = Session(kit, seed).Run();
  for (cgr_graph_kind other : { CGR_KIND_NONE, CGR_KIND_FULL, CGR_KIND_PIECEWISE })
    EXPECT_EQ(kit.Steps(other) > 0, other == kind) << "steps of kind " << cgr_graph_kind_name(other);
  return rows;
}

inline void ExpectClose(const Error &error, const Error &bound) {
  ::testing::Test::RecordProperty("largest_error", std::to_string(error.largest));
  ::testing::Test::RecordProperty("mean_error", std::to_string(error.mean));
  EXPECT_LE(error.largest, bound.largest);
  EXPECT_LE(error.mean, bound.mean);
}

inline void ExpectAsTransformers(const Expected &expected, const WhereCase &where, const Kit::Maker &make) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Setting setting = { where.device, where.dtype, CGR_MODE_NONE, {} };
  const Rows eager = RunModel(setting, expected, make, CGR_KIND_NONE, seed);
  ExpectClose(expected.ErrorOf(eager), BoundOf(expected, setting.dtype));
  setting.mode = CGR_MODE_FULL;
  EXPECT_TRUE(RunModel(setting, expected, make, CGR_KIND_FULL, seed) == eager) << "FULL";
  if (setting.device.IsEmulated())
    return; // a mode takes seconds there
  setting.mode = CGR_MODE_PIECEWISE;
  EXPECT_TRUE(RunModel(setting, expected, make, CGR_KIND_PIECEWISE, seed) == eager) << "PIECEWISE";
}

class ModelTest : public ::testing::TestWithParam<WhereCase> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }

  void ExpectAsTransformers(const std::string &kind, const Kit::Maker &make) {
    models::ExpectAsTransformers(Expected(kind), GetParam(), make);
  }
};

// A mistake in a layer's description causes an error far above the bound for fp32.
inline void ExpectSeen(const Expected &expected, const Kit::Maker &make, const std::function<void(cgr_layer *)> &plant) {
  const Setting setting = { HostParam(CGR_SCHEDULE_ASYNC), CGR_DTYPE_FP32, CGR_MODE_NONE, plant };
  Kit kit(setting, expected, make);
  const Error error = expected.ErrorOf(Session(kit, 1).Run()), bound = BoundOf(expected, CGR_DTYPE_FP32);
  EXPECT_GT(error.largest, 4 * bound.largest);
  EXPECT_GT(error.mean, 4 * bound.mean);
}
inline void ExpectSeen(const std::string &kind, const Kit::Maker &make, const std::function<void(cgr_layer *)> &plant) {
  ExpectSeen(Expected(kind), make, plant);
}

} // namespace models
} // namespace cgr_test

// Where the next step's ring slot is fetched: in every FULL graph once, alongside its last two layers, and in no other step.
#include "devices/shims/trace.h"
#include "kernels/append.h"
#include "kernels/step.h"
#include "tests/support/engine.h"

namespace cgr_test {
namespace {

class FetchBranch : public OverDevices {
protected:
  // An engine of so many layers, and what its capture and, unless it is captured FULL, a step have called.
  std::vector<cgr__shim_call> CallsOf(int32_t layers, int32_t mode) {
    cgr_device *traced = nullptr;
    EXPECT_EQ(cgr__trace_open(OpenDevice(GetParam()), &traced), CGR__DEVICE_OK);
    EngineOptions options = OptionsFor(GetParam(), mode);
    options.handle = traced;
    options.layers.resize(size_t(layers), options.layers[0]);
    options.buckets = { 2 };
    options.mixed = { { 4, 2 } };
    Engine engine(options);
    cgr__trace_reset(traced);
    EXPECT_EQ(engine.Capture(), CGR_OK);
    if (mode == CGR_MODE_NONE || mode == CGR_MODE_PIECEWISE) {
      int32_t row = engine.Open();
      EXPECT_EQ(engine.Prepare(engine.Chunks({ { row, 3 } })), CGR_OK);
      EXPECT_EQ(engine.Launch(), CGR_OK);
    }
    std::vector<cgr__shim_call> calls;
    struct cgr__trace_entry entry;
    for (uint64_t i = 0; cgr__trace_get(traced, i, &entry); i++)
      calls.push_back(entry.call);
    engine.CheckAll();
    return calls;
  }
};

bool Launches(const cgr__shim_call &call, const cgr__kernel &kernel) {
  return call.op == CGR__OP_LAUNCH && call.object == &kernel;
}

TEST_P(FetchBranch, IsConcurrentWithTheLastTwoLayersOfEveryFullGraph) {
  for (int32_t layers = 1; layers <= 4; layers++) {
    SCOPED_TRACE(layers);
    int32_t prologues = 0, fetches = 0, appends = 0;
    cudaStream_t branch = nullptr;
    bool recorded = false, joined = false;
    for (const cgr__shim_call &call : CallsOf(layers, CGR_MODE_FULL_DECODE_ONLY)) {
      if (Launches(call, cgr__kernel_prologue)) {
        prologues++;
        appends = 0;
        recorded = joined = false;
      }
      appends += Launches(call, cgr__kernel_append);
      if (Launches(call, cgr__kernel_fetch)) {
        fetches++;
        EXPECT_EQ(appends, std::max(layers - 2, 0)) << "appends before it";
        branch = call.stream;
      }
      recorded =
          recorded || (appends == std::max(layers - 2, 0) && branch && call.op == CGR__OP_EVENT_RECORD && call.stream == branch);
      joined = joined || (recorded && call.op == CGR__OP_EVENT_WAIT && call.stream != branch);
      if (Launches(call, cgr__kernel_epilogue)) {
        EXPECT_EQ(appends, layers);
        EXPECT_TRUE(joined) << "the epilogue comes after it";
        EXPECT_NE(call.stream, branch);
      }
    }
    EXPECT_EQ(prologues, 1);
    EXPECT_EQ(fetches, 1);
  }
}

TEST_P(FetchBranch, IsInNoOtherStep) {
  for (int32_t mode : { int32_t(CGR_MODE_NONE), int32_t(CGR_MODE_PIECEWISE) }) {
    SCOPED_TRACE(mode);
    int prologues = 0;
    for (const cgr__shim_call &call : CallsOf(2, mode)) {
      prologues += Launches(call, cgr__kernel_prologue);
      EXPECT_FALSE(Launches(call, cgr__kernel_fetch));
    }
    EXPECT_GT(prologues, 0);
  }
}

CGR_INSTANTIATE_OVER_DEVICES(FetchBranch);

} // namespace
} // namespace cgr_test

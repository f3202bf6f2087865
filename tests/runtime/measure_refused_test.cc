// What cgr_record_measure refuses, by name: the step is given up with the cause in the message, and the next one is right. Also
// calls that come close to a refusal but are valid.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class MeasureIsRefused : public ThreeRequests {
protected:
  enum { kHeads = 4, kDim = 16, kTokens = 64, kRow = kHeads * kDim, kBytes = 4 * kTokens * kRow * 4 };
  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(ThreeRequests::SetUpOnDevice());
    tensor_ = static_cast<float *>(engine_->Alloc(kBytes));
    maxima_ = static_cast<float *>(engine_->Alloc(kBytes));
    engine_->Sync();
  }
  // A good one: fp32, dense.
  cgr_measure Good() const {
    cgr_measure m = CGR_MEASURE_INIT;
    m.num_heads = kHeads, m.head_dim = kDim, m.view = { tensor_, CGR_DTYPE_FP32, 0, kRow, kDim }, m.maxima = maxima_;
    return m;
  }
  // In eager steps of 3 tokens.
  void EachRefused(const std::vector<Mistake<cgr_measure>> &rows) {
    EachRefusedInRecord(
        "cgr_record_measure", rows, [&] { return Good(); }, cgr_record_measure);
  }
  void EachTaken(const std::vector<std::function<void(cgr_measure &)>> &changes) {
    for (size_t i = 0; i < changes.size(); i++) {
      SCOPED_TRACE(i);
      cgr_measure measure = Good();
      changes[i](measure);
      ASSERT_NO_FATAL_FAILURE(
          InRecord(CGR_OK, {}, [&](cgr_recorder *recorder) { return cgr_record_measure(recorder, &measure); }));
    }
  }

  float *tensor_ = nullptr, *maxima_ = nullptr;
};

TEST_P(MeasureIsRefused, ForItsNumbers) {
  EachRefused({
      { kArgument, "num_heads is 0 ... 1024", [](cgr_measure &m) { m.num_heads = 0; } },
      { kArgument, "num_heads is -1", [](cgr_measure &m) { m.num_heads = -1; } },
      { kArgument, "num_heads is 1025", [](cgr_measure &m) { m.num_heads = 1025; } },
      { kArgument, "head_dim is 0 ... 8 .. 1024", [](cgr_measure &m) { m.head_dim = 0; } },
      { kArgument, "head_dim is 12 ... multiple of 8", [](cgr_measure &m) { m.head_dim = 12; } },
      { kArgument, "head_dim is 1032", [](cgr_measure &m) { m.head_dim = 1032; } },
      { kArgument, "head_dim is -8", [](cgr_measure &m) { m.head_dim = -8; } },
      { kNewer, "reserved is 7", [](cgr_measure &m) { m.reserved = 7; } },
      { kStruct, "measure", [](cgr_measure &m) { m.size = 0; } },
      { kNewer, "view.reserved is 7", [](cgr_measure &m) { m.view.reserved = 7; } },
  });
}

TEST_P(MeasureIsRefused, ForMemoryThatIsNotThere) {
  const auto at_the_end = reinterpret_cast<float *>(UINTPTR_MAX - 15);
  EachRefused({
      { kNull, "view.data is NULL", [](cgr_measure &m) { m.view.data = nullptr; } },
      { kNull, "maxima is NULL", [](cgr_measure &m) { m.maxima = nullptr; } },
      { kArgument, "view.data is 0x ... within memory", [&](cgr_measure &m) { m.view.data = at_the_end; } },
      { kArgument, "maxima is 0x ... 256 bytes ... within memory", [&](cgr_measure &m) { m.maxima = at_the_end; } },
  });
  InRecord(kNull, { "cgr_record_measure", "measure" },
           [](cgr_recorder *recorder) { return cgr_record_measure(recorder, nullptr); });
}

TEST_P(MeasureIsRefused, ForMemoryThatEndsBeyondItsAllocation) {
  if (GetParam().HasCudaKernels())
    GTEST_SKIP() << "eager steps without the layer do not look at it";
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  EachRefused({
      { kArgument, "view takes 768 ... most 16", [&](cgr_measure &m) { m.view.data = small; } },
      { kArgument, "maxima takes 256 ... most 16", [&](cgr_measure &m) { m.maxima = static_cast<float *>(small); } },
  });
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

TEST_P(MeasureIsRefused, ForADtype) {
  EachRefused({
      { kUnsupported, "view.dtype is i8 ... fp32, fp16 or bf16", [](cgr_measure &m) { m.view.dtype = CGR_DTYPE_I8; } },
      { kUnsupported, "view.dtype is fp8_e4m3", [](cgr_measure &m) { m.view.dtype = CGR_DTYPE_FP8_E4M3; } },
      { kEnum, "view.dtype is unknown (99) ... fp16 ... bf16", [](cgr_measure &m) { m.view.dtype = 99; } },
      { kEnum, "view.dtype is none (0)", [](cgr_measure &m) { m.view.dtype = 0; } },
  });
}

TEST_P(MeasureIsRefused, ForAnAddressOrAStride) {
  EachRefused({
      { kArgument, "view.data is ... 16 bytes", [&](cgr_measure &m) { m.view.data = tensor_ + 2; } },
      { kArgument, "maxima is ... 4 bytes",
        [&](cgr_measure &m) { m.maxima = reinterpret_cast<float *>(reinterpret_cast<char *>(maxima_) + 2); } },
      { kArgument, "view has strides", [](cgr_measure &m) { m.view.stride_token += 1; } },
      { kArgument, "view has strides", [](cgr_measure &m) { m.view.stride_head = 0; }, "no distance of heads" },
      { kArgument, "view has strides ... overlap", [](cgr_measure &m) { m.view.stride_head = 12; } },
  });
}

// The step has 3 tokens.
TEST_P(MeasureIsRefused, ForMaximaThatOverlapTheView) {
  EachRefused({
      { kArgument, "maxima at ... overlaps view at ... memory of its own", [&](cgr_measure &m) { m.maxima = tensor_; } },
      { kArgument, "overlaps view at", [&](cgr_measure &m) { m.maxima = tensor_ + 3 * kRow - 1; }, "the view's end" },
      { kArgument, "overlaps view at", [&](cgr_measure &m) { m.view.data = maxima_ + kRow - 4; }, "the end of maxima" },
      { kArgument, "overlaps view at", [&](cgr_measure &m) { m.view.stride_token = 2 * kRow, m.maxima = tensor_ + 2 * kRow; },
        "a token between gaps" },
  });
  EachTaken({
      [&](cgr_measure &m) { m.maxima = tensor_ + 3 * kRow; },
      [&](cgr_measure &m) { m.view.data = maxima_ + kRow; },
      [&](cgr_measure &m) { m.view.stride_token = 2 * kRow, m.maxima = tensor_ + kRow; }, // in a gap
      [&](cgr_measure &m) { m.maxima = maxima_ + 1; },
      [&](cgr_measure &m) { m.view.stride_token = kDim, m.view.stride_head = kTokens * kDim; },
  });
}

TEST_P(MeasureIsRefused, AfterRecordHasReturned) {
  const cgr_measure measure = Good();
  ExpectMessage(cgr_record_measure(KeptRecorder(), &measure), CGR_ERROR_STATE, { "cgr_record_measure", "recorder" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(MeasureIsRefused);

} // namespace
} // namespace cgr_test

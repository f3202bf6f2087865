// What cgr_record_merge refuses, by name: the step is given up with the cause in the message, and the next one is right. Also
// calls that come close to a refusal but are valid.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class MergeIsRefused : public ThreeRequests {
protected:
  enum { kHeads = 4, kDim = 16, kTokens = 64, kRow = kHeads * kDim, kBytes = 4 * kTokens * kRow * 4 };
  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(ThreeRequests::SetUpOnDevice());
    for (float *&tensor : tensors_)
      tensor = static_cast<float *>(engine_->Alloc(kBytes));
    engine_->Sync();
  }
  // A good one: fp32, dense, lse [tokens][heads].
  cgr_merge Good() const {
    const cgr_view tensor = { nullptr, CGR_DTYPE_FP32, 0, kRow, kDim }, lse = { nullptr, CGR_DTYPE_FP32, 0, kHeads, 1 };
    cgr_merge m = CGR_MERGE_INIT;
    m.num_heads = kHeads, m.head_dim = kDim, m.a = m.b = m.out = tensor, m.a_lse = m.b_lse = m.lse = lse;
    m.a.data = tensors_[0], m.b.data = tensors_[1], m.out.data = tensors_[2];
    m.a_lse.data = tensors_[3], m.b_lse.data = tensors_[4], m.lse.data = tensors_[5];
    return m;
  }
  // In eager steps of 3 tokens.
  void EachRefused(const std::vector<Mistake<cgr_merge>> &rows) {
    EachRefusedInRecord(
        "cgr_record_merge", rows, [&] { return Good(); }, cgr_record_merge);
  }
  void EachTaken(const std::vector<std::function<void(cgr_merge &)>> &changes) {
    for (size_t i = 0; i < changes.size(); i++) {
      SCOPED_TRACE(i);
      cgr_merge merge = Good();
      changes[i](merge);
      ASSERT_NO_FATAL_FAILURE(InRecord(CGR_OK, {}, [&](cgr_recorder *recorder) { return cgr_record_merge(recorder, &merge); }));
    }
  }
  static cgr_view Moved(const cgr_view &view, int64_t elements) {
    cgr_view moved = view;
    moved.data = static_cast<char *>(view.data) + elements * int64_t(cgr_dtype_size(cgr_dtype(view.dtype)));
    return moved;
  }

  float *tensors_[6] = {};
};

TEST_P(MergeIsRefused, ForItsNumbers) {
  EachRefused({
      { kArgument, "num_heads is 0 ... 1024", [](cgr_merge &m) { m.num_heads = 0; } },
      { kArgument, "num_heads is 1025", [](cgr_merge &m) { m.num_heads = 1025; } },
      { kArgument, "head_dim is 0 ... 8 .. 1024", [](cgr_merge &m) { m.head_dim = 0; } },
      { kArgument, "head_dim is 12 ... multiple of 8", [](cgr_merge &m) { m.head_dim = 12; } },
      { kArgument, "head_dim is 1032", [](cgr_merge &m) { m.head_dim = 1032; } },
      { kArgument, "head_dim is -8", [](cgr_merge &m) { m.head_dim = -8; } },
      { kNewer, "reserved is 7", [](cgr_merge &m) { m.reserved = 7; } },
      { kStruct, "merge", [](cgr_merge &m) { m.size = 0; } },
      { kNewer, "a.reserved is 7", [](cgr_merge &m) { m.a.reserved = 7; } },
      { kNewer, "lse.reserved is 1", [](cgr_merge &m) { m.lse.reserved = 1; } },
  });
}

TEST_P(MergeIsRefused, ForAViewWithoutMemory) {
  EachRefused({
      { kNull, "a.data is NULL", [](cgr_merge &m) { m.a.data = nullptr; } },
      { kNull, "b.data is NULL", [](cgr_merge &m) { m.b.data = nullptr; } },
      { kNull, "a_lse.data is NULL", [](cgr_merge &m) { m.a_lse.data = nullptr; } },
      { kNull, "b_lse.data is NULL", [](cgr_merge &m) { m.b_lse.data = nullptr; } },
      { kNull, "out.data is NULL", [](cgr_merge &m) { m.out.data = nullptr; } },
  });
  EachTaken({ [](cgr_merge &m) { m.lse.data = nullptr; } });
}

TEST_P(MergeIsRefused, ForAViewThatEndsOutsideOfMemory) {
  const auto at_the_end = [](cgr_view *view) { view->data = reinterpret_cast<void *>(UINTPTR_MAX - 15); };
  EachRefused({
      { kArgument, " b.data is 0x ... within memory", [&](cgr_merge &m) { at_the_end(&m.b); } },
      { kArgument, "out.data is 0x ... within memory", [&](cgr_merge &m) { at_the_end(&m.out); } },
      { kArgument, " lse.data is 0x ... within memory", [&](cgr_merge &m) { at_the_end(&m.lse); } },
  });
}

TEST_P(MergeIsRefused, ForAViewThatEndsBeyondItsAllocation) {
  if (GetParam().HasCudaKernels())
    GTEST_SKIP() << "eager steps without the layer do not look at it";
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  EachRefused({
      { kArgument, " a takes ... most 16", [&](cgr_merge &m) { m.a.data = small; } },
      { kArgument, " b_lse takes ... most 16", [&](cgr_merge &m) { m.b_lse.data = small; } },
      { kArgument, "out takes ... most 16", [&](cgr_merge &m) { m.out.data = small; } },
      { kArgument, " lse takes ... most 16", [&](cgr_merge &m) { m.lse.data = small; } },
  });
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

TEST_P(MergeIsRefused, ForADtype) {
  EachRefused({
      { kUnsupported, "a.dtype is i8 ... fp32, fp16 or bf16", [](cgr_merge &m) { m.a.dtype = CGR_DTYPE_I8; } },
      { kEnum, "a.dtype is unknown (99) ... fp16 ... bf16", [](cgr_merge &m) { m.a.dtype = 99; } },
      { kEnum, "b.dtype is none (0)", [](cgr_merge &m) { m.b.dtype = 0; } },
      { kEnum, "out.dtype is unknown (99)", [](cgr_merge &m) { m.out.dtype = 99; } },
      { kUnsupported, " lse.dtype is fp16", [](cgr_merge &m) { m.lse.dtype = CGR_DTYPE_FP16; } },
      { kUnsupported, "a_lse.dtype is bf16", [](cgr_merge &m) { m.a_lse.dtype = CGR_DTYPE_BF16; } },
      { kUnsupported, "b_lse.dtype is i32", [](cgr_merge &m) { m.b_lse.dtype = CGR_DTYPE_I32; } },
  });
}

TEST_P(MergeIsRefused, ForAnAddressOrAStride) {
  EachRefused({
      { kArgument, "a.data is ... 16 bytes", [](cgr_merge &m) { m.a = Moved(m.a, 2); } },
      { kArgument, "out.data is ... 16 bytes", [](cgr_merge &m) { m.out = Moved(m.out, 2); } },
      { kArgument, "lse.data is ... 4 bytes", [](cgr_merge &m) { m.lse.data = reinterpret_cast<char *>(m.lse.data) + 2; } },
      { kArgument, "b has strides", [](cgr_merge &m) { m.b.stride_token += 1; } },
      { kArgument, "a_lse has strides", [](cgr_merge &m) { m.a_lse.stride_head = 0; } },
      { kArgument, "out has strides ... overlap", [](cgr_merge &m) { m.out.stride_head = 12; } },
      { kArgument, "b_lse has strides ... overlap", [](cgr_merge &m) { m.b_lse.stride_token = 3; } },
  });
}

// The step has 3 tokens.
TEST_P(MergeIsRefused, ForAnOutputThatOverlapsOtherMemory) {
  EachRefused({
      { kArgument, "out at ... overlaps a at", [](cgr_merge &m) { m.out = Moved(m.a, kRow); } },
      { kArgument, "overlaps b at", [](cgr_merge &m) { m.b = Moved(m.out, 4); } },
      { kArgument, "overlaps a at", [](cgr_merge &m) { m.out = m.a, m.out.stride_token = 2 * kRow; } },
      { kArgument, "overlaps a at", [](cgr_merge &m) { m.out = m.a, m.a.stride_token = 2 * kRow, m.out.stride_token = 3 * kRow; },
        "a, other strides, both with gaps" },
      { kArgument, "out at ... overlaps b_lse at",
        [](cgr_merge &m) {
          m.out.stride_token = 2 * kRow;
          m.b_lse.data = static_cast<char *>(m.out.data) + 4, m.b_lse.stride_token = 3 * kRow;
        },
        "b_lse's begin, both with gaps" },
      { kArgument, "overlaps a at", [](cgr_merge &m) { m.a = Moved(m.out, 2 * kRow), m.a.stride_token = 2 * kRow; },
        "a's first token, of some with gaps" },
      { kArgument, "overlaps a at", [](cgr_merge &m) { m.out = Moved(m.a, 4 * kRow), m.a.stride_token = 2 * kRow; },
        "a's last token, of some with gaps" },
      { kArgument, "overlaps b at ... same dtype", [](cgr_merge &m) { m.out = m.b, m.out.dtype = CGR_DTYPE_BF16; } },
      { kArgument, "overlaps a at",
        [](cgr_merge &m) {
          m.a.stride_token = m.out.stride_token = 2 * kRow;
          m.out.data = Moved(m.a, kRow - kDim).data;
        },
        "within the gaps" },
      { kArgument, "out at ... overlaps a_lse at", [](cgr_merge &m) { m.a_lse.data = m.out.data; } },
      { kArgument, "out at ... overlaps b_lse at", [](cgr_merge &m) { m.b_lse.data = Moved(m.out, 3 * kRow - 1).data; } },
      { kArgument, " lse at ... overlaps a_lse at", [](cgr_merge &m) { m.lse.data = Moved(m.a_lse, 1).data; } },
      { kArgument, " lse at ... overlaps b_lse at",
        [](cgr_merge &m) { m.lse = m.b_lse, m.lse.stride_token = 1, m.lse.stride_head = kTokens; }, "lse on b's, other layout" },
      { kArgument, " lse at ... overlaps a at", [](cgr_merge &m) { m.lse.data = m.a.data; } },
      { kArgument, " lse at ... overlaps b at", [](cgr_merge &m) { m.lse.data = Moved(m.b, 3 * kRow - 12).data; } },
      { kArgument, " lse at ... overlaps out at", [](cgr_merge &m) { m.lse.data = m.out.data; } },
  });
}

TEST_P(MergeIsRefused, NotForAnOutputNextToAnInputOrInItsPlace) {
  EachTaken({
      [](cgr_merge &m) { m.out = m.a, m.lse = m.a_lse; },
      [](cgr_merge &m) { m.out = m.b, m.lse = m.b_lse; },
      [](cgr_merge &m) { m.b = m.a, m.b_lse = m.a_lse; }, // both inputs may be the same
      [](cgr_merge &m) { m.out = Moved(m.a, 3 * kRow); },
      [](cgr_merge &m) { m.a = Moved(m.out, 3 * kRow); },
      [](cgr_merge &m) { // three parts of one tensor, token by token
        m.a.stride_token = m.b.stride_token = m.out.stride_token = 3 * kRow;
        m.b.data = Moved(m.a, kRow).data;
        m.out.data = Moved(m.a, 2 * kRow).data;
      },
      [](cgr_merge &m) { // and head by head
        for (cgr_view *view : { &m.a, &m.b, &m.out })
          view->stride_token = 3 * kRow, view->stride_head = 3 * kDim;
        m.b.data = Moved(m.a, kDim).data;
        m.out.data = Moved(m.a, 2 * kDim).data;
      },
      [](cgr_merge &m) { // an lse in the gap after each token
        m.out.stride_token = kRow + 8;
        m.lse = { Moved(m.out, kRow).data, CGR_DTYPE_FP32, 0, kRow + 8, 1 };
      },
      [](cgr_merge &m) { m.lse.stride_token = 1, m.lse.stride_head = kTokens; },
  });
}

TEST_P(MergeIsRefused, AfterRecordHasReturned) {
  const cgr_merge merge = Good();
  ExpectMessage(cgr_record_merge(KeptRecorder(), &merge), CGR_ERROR_STATE, { "cgr_record_merge", "recorder" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(MergeIsRefused);

} // namespace
} // namespace cgr_test

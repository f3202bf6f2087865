// What cgr_record_merge refuses, by name: the step is given up with the cause in the message, and the next one is right. Also
// calls that come close to a refusal but are valid.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Bad {
  const char *name;
  cgr_status status;
  Words words;
  std::function<void(cgr_merge *)> change;
};

class MergeIsRefused : public ThreeRequests {
protected:
  enum { kHeads = 4, kDim = 16, kTokens = 64, kRow = kHeads * kDim };
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ThreeRequests::SetUp());
    if (engine_ == nullptr)
      return;
    for (float *&tensor : tensors_)
      tensor = static_cast<float *>(engine_->Alloc(kBytes));
    engine_->Sync();
  }
  // A good one: fp32, dense, lse [tokens][heads].
  cgr_merge Good() const {
    const cgr_view tensor = { nullptr, CGR_DTYPE_FP32, 0, kRow, kDim }, lse = { nullptr, CGR_DTYPE_FP32, 0, kHeads, 1 };
    cgr_merge m = CGR_MERGE_INIT;
    m.num_heads = kHeads;
    m.head_dim = kDim;
    m.a = m.b = m.out = tensor;
    m.a_lse = m.b_lse = m.lse = lse;
    m.a.data = tensors_[0], m.b.data = tensors_[1], m.out.data = tensors_[2];
    m.a_lse.data = tensors_[3], m.b_lse.data = tensors_[4], m.lse.data = tensors_[5];
    return m;
  }
  // One eager step of 3 tokens that merges; the result of the call is checked where it is made.
  void Try(const std::function<void(cgr_merge *)> &change, cgr_status expected, const Words &words) {
    bool called = false;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      cgr_merge merge = Good();
      change(&merge);
      if (at == 0)
        ExpectMessage(cgr_record_merge(recorder, &merge), expected, words);
      called = true;
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    Words all = words;
    if (expected != CGR_OK)
      all.push_back(cgr_status_name(expected));
    ExpectMessage(engine_->Launch(), expected == CGR_OK ? CGR_OK : CGR_ERROR_CALLBACK, all);
    EXPECT_EQ(engine_->step.state, expected == CGR_OK ? CGR_STEP_LAUNCHED : CGR_STEP_ABANDONED);
    EXPECT_TRUE(called);
    engine_->hook = nullptr;
    engine_->CheckAll();
    engine_->WaitForAll();
  }
  void EachRefused(const std::vector<Bad> &bads) {
    for (const Bad &bad : bads) {
      SCOPED_TRACE(bad.name);
      Words words = bad.words;
      words.push_back("cgr_record_merge: ");
      ASSERT_NO_FATAL_FAILURE(Try(bad.change, bad.status, words));
    }
    engine_->Step(EagerItems());
  }
  void EachTaken(const std::vector<std::function<void(cgr_merge *)>> &changes) {
    for (size_t i = 0; i < changes.size(); i++) {
      SCOPED_TRACE(i);
      ASSERT_NO_FATAL_FAILURE(Try(changes[i], CGR_OK, {}));
    }
  }
  static cgr_view Moved(const cgr_view &view, int64_t elements) {
    cgr_view moved = view;
    moved.data = static_cast<char *>(view.data) + elements * int64_t(cgr_dtype_size(cgr_dtype(view.dtype)));
    return moved;
  }

  enum { kBytes = 4 * kTokens * kRow * 4 };
  float *tensors_[6] = {};
};

TEST_P(MergeIsRefused, ForItsNumbers) {
  EachRefused({
      { "no heads", CGR_ERROR_INVALID_ARGUMENT, { "num_heads is 0", "1024" }, [](cgr_merge *m) { m->num_heads = 0; } },
      { "many heads", CGR_ERROR_INVALID_ARGUMENT, { "num_heads is 1025" }, [](cgr_merge *m) { m->num_heads = 1025; } },
      { "no dim", CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 0", "8 .. 1024" }, [](cgr_merge *m) { m->head_dim = 0; } },
      { "odd dim", CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 12", "multiple of 8" }, [](cgr_merge *m) { m->head_dim = 12; } },
      { "large dim", CGR_ERROR_INVALID_ARGUMENT, { "head_dim is 1032" }, [](cgr_merge *m) { m->head_dim = 1032; } },
      { "negative", CGR_ERROR_INVALID_ARGUMENT, { "head_dim is -8" }, [](cgr_merge *m) { m->head_dim = -8; } },
      { "reserved", CGR_ERROR_NEWER_STRUCT, { "reserved is 7" }, [](cgr_merge *m) { m->reserved = 7; } },
      { "size", CGR_ERROR_INVALID_STRUCT, { "merge" }, [](cgr_merge *m) { m->size = 0; } },
      { "view", CGR_ERROR_NEWER_STRUCT, { "a.reserved is 7" }, [](cgr_merge *m) { m->a.reserved = 7; } },
      { "lse view", CGR_ERROR_NEWER_STRUCT, { "lse.reserved is 1" }, [](cgr_merge *m) { m->lse.reserved = 1; } },
  });
}

TEST_P(MergeIsRefused, ForAViewWithoutMemory) {
  EachRefused({
      { "a", CGR_ERROR_NULL_POINTER, { "a.data is NULL" }, [](cgr_merge *m) { m->a.data = nullptr; } },
      { "b", CGR_ERROR_NULL_POINTER, { "b.data is NULL" }, [](cgr_merge *m) { m->b.data = nullptr; } },
      { "a_lse", CGR_ERROR_NULL_POINTER, { "a_lse.data is NULL" }, [](cgr_merge *m) { m->a_lse.data = nullptr; } },
      { "b_lse", CGR_ERROR_NULL_POINTER, { "b_lse.data is NULL" }, [](cgr_merge *m) { m->b_lse.data = nullptr; } },
      { "out", CGR_ERROR_NULL_POINTER, { "out.data is NULL" }, [](cgr_merge *m) { m->out.data = nullptr; } },
  });
  EachTaken({ [](cgr_merge *m) { m->lse.data = nullptr; } });
}

TEST_P(MergeIsRefused, ForAViewThatEndsOutsideOfMemory) {
  const auto at_the_end = [](cgr_view *view) { view->data = reinterpret_cast<void *>(UINTPTR_MAX - 15); };
  EachRefused({
      { "b", CGR_ERROR_INVALID_ARGUMENT, { " b.data is 0x", "within memory" }, [&](cgr_merge *m) { at_the_end(&m->b); } },
      { "out", CGR_ERROR_INVALID_ARGUMENT, { "out.data is 0x", "within memory" }, [&](cgr_merge *m) { at_the_end(&m->out); } },
      { "lse", CGR_ERROR_INVALID_ARGUMENT, { " lse.data is 0x", "within memory" }, [&](cgr_merge *m) { at_the_end(&m->lse); } },
  });
}

TEST_P(MergeIsRefused, ForADtype) {
  EachRefused({
      { "a", CGR_ERROR_UNSUPPORTED, { "a.dtype is i8", "fp32, fp16 or bf16" }, [](cgr_merge *m) { m->a.dtype = CGR_DTYPE_I8; } },
      { "b", CGR_ERROR_INVALID_ENUM, { "b.dtype is none (0)" }, [](cgr_merge *m) { m->b.dtype = 0; } },
      { "out", CGR_ERROR_INVALID_ENUM, { "out.dtype is unknown (99)" }, [](cgr_merge *m) { m->out.dtype = 99; } },
      { "lse", CGR_ERROR_UNSUPPORTED, { " lse.dtype is fp16" }, [](cgr_merge *m) { m->lse.dtype = CGR_DTYPE_FP16; } },
      { "a_lse", CGR_ERROR_UNSUPPORTED, { "a_lse.dtype is bf16" }, [](cgr_merge *m) { m->a_lse.dtype = CGR_DTYPE_BF16; } },
      { "b_lse", CGR_ERROR_UNSUPPORTED, { "b_lse.dtype is i32" }, [](cgr_merge *m) { m->b_lse.dtype = CGR_DTYPE_I32; } },
  });
}

TEST_P(MergeIsRefused, ForAnAddressOrAStride) {
  EachRefused({
      { "a", CGR_ERROR_INVALID_ARGUMENT, { "a.data is", "16 bytes" }, [](cgr_merge *m) { m->a = Moved(m->a, 2); } },
      { "out", CGR_ERROR_INVALID_ARGUMENT, { "out.data is", "16 bytes" }, [](cgr_merge *m) { m->out = Moved(m->out, 2); } },
      { "lse",
        CGR_ERROR_INVALID_ARGUMENT,
        { "lse.data is", "4 bytes" },
        [](cgr_merge *m) { m->lse.data = reinterpret_cast<char *>(m->lse.data) + 2; } },
      { "odd", CGR_ERROR_INVALID_ARGUMENT, { "b has strides" }, [](cgr_merge *m) { m->b.stride_token += 1; } },
      { "zero", CGR_ERROR_INVALID_ARGUMENT, { "a_lse has strides" }, [](cgr_merge *m) { m->a_lse.stride_head = 0; } },
      { "heads", CGR_ERROR_INVALID_ARGUMENT, { "out has strides", "overlap" }, [](cgr_merge *m) { m->out.stride_head = 12; } },
      { "lse", CGR_ERROR_INVALID_ARGUMENT, { "b_lse has strides", "overlap" }, [](cgr_merge *m) { m->b_lse.stride_token = 3; } },
  });
}

// The step has 3 tokens.
TEST_P(MergeIsRefused, ForAnOutputThatLiesOverSomethingElse) {
  EachRefused({
      { "a, later", CGR_ERROR_INVALID_ARGUMENT, { "out at", "over a at" }, [](cgr_merge *m) { m->out = Moved(m->a, kRow); } },
      { "b, before", CGR_ERROR_INVALID_ARGUMENT, { "over b at" }, [](cgr_merge *m) { m->b = Moved(m->out, 4); } },
      { "a, other strides",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over a at" },
        [](cgr_merge *m) {
          m->out = m->a;
          m->out.stride_token = 2 * kRow;
        } },
      { "a, other strides, both with gaps",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over a at" },
        [](cgr_merge *m) {
          m->out = m->a;
          m->a.stride_token = 2 * kRow;
          m->out.stride_token = 3 * kRow;
        } },
      { "b_lse's begin, both with gaps",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out at", "over b_lse at" },
        [](cgr_merge *m) {
          m->out.stride_token = 2 * kRow;
          m->b_lse.data = static_cast<char *>(m->out.data) + 4;
          m->b_lse.stride_token = 3 * kRow;
        } },
      { "a's first token, of some with gaps",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over a at" },
        [](cgr_merge *m) {
          m->a = Moved(m->out, 2 * kRow);
          m->a.stride_token = 2 * kRow;
        } },
      { "a's last token, of some with gaps",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over a at" },
        [](cgr_merge *m) {
          m->out = Moved(m->a, 4 * kRow);
          m->a.stride_token = 2 * kRow;
        } },
      { "b, other dtype",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over b at", "same dtype" },
        [](cgr_merge *m) {
          m->out = m->b;
          m->out.dtype = CGR_DTYPE_BF16;
        } },
      { "within the gaps",
        CGR_ERROR_INVALID_ARGUMENT,
        { "over a at" },
        [](cgr_merge *m) {
          m->a.stride_token = m->out.stride_token = 2 * kRow;
          m->out.data = Moved(m->a, kRow - kDim).data;
        } },
      { "a's lse", CGR_ERROR_INVALID_ARGUMENT, { "out at", "over a_lse at" }, [](cgr_merge *m) { m->a_lse.data = m->out.data; } },
      { "b's lse",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out at", "over b_lse at" },
        [](cgr_merge *m) { m->b_lse.data = Moved(m->out, 3 * kRow - 1).data; } },
      { "lse on a's",
        CGR_ERROR_INVALID_ARGUMENT,
        { " lse at", "over a_lse at" },
        [](cgr_merge *m) { m->lse.data = Moved(m->a_lse, 1).data; } },
      { "lse on b's, other layout",
        CGR_ERROR_INVALID_ARGUMENT,
        { " lse at", "over b_lse at" },
        [](cgr_merge *m) {
          m->lse = m->b_lse;
          m->lse.stride_token = 1, m->lse.stride_head = kTokens;
        } },
      { "lse on a", CGR_ERROR_INVALID_ARGUMENT, { " lse at", "over a at" }, [](cgr_merge *m) { m->lse.data = m->a.data; } },
      { "lse on b",
        CGR_ERROR_INVALID_ARGUMENT,
        { " lse at", "over b at" },
        [](cgr_merge *m) { m->lse.data = Moved(m->b, 3 * kRow - 12).data; } },
      { "lse on out", CGR_ERROR_INVALID_ARGUMENT, { " lse at", "over out at" }, [](cgr_merge *m) { m->lse.data = m->out.data; } },
  });
}

TEST_P(MergeIsRefused, NotForWhatLiesBesideOrInThePlaceOfAnInput) {
  EachTaken({
      [](cgr_merge *m) { m->out = m->a, m->lse = m->a_lse; },
      [](cgr_merge *m) { m->out = m->b, m->lse = m->b_lse; },
      [](cgr_merge *m) { m->b = m->a, m->b_lse = m->a_lse; }, // both inputs may be the same
      [](cgr_merge *m) { m->out = Moved(m->a, 3 * kRow); },
      [](cgr_merge *m) { m->a = Moved(m->out, 3 * kRow); },
      [](cgr_merge *m) { // three parts of one tensor, token by token
        m->a.stride_token = m->b.stride_token = m->out.stride_token = 3 * kRow;
        m->b.data = Moved(m->a, kRow).data;
        m->out.data = Moved(m->a, 2 * kRow).data;
      },
      [](cgr_merge *m) { // and head by head
        for (cgr_view *view : { &m->a, &m->b, &m->out })
          view->stride_token = 3 * kRow, view->stride_head = 3 * kDim;
        m->b.data = Moved(m->a, kDim).data;
        m->out.data = Moved(m->a, 2 * kDim).data;
      },
      [](cgr_merge *m) { // an lse in the gap after each token
        m->out.stride_token = kRow + 8;
        m->lse = { Moved(m->out, kRow).data, CGR_DTYPE_FP32, 0, kRow + 8, 1 };
      },
      [](cgr_merge *m) { m->lse.stride_token = 1, m->lse.stride_head = kTokens; },
  });
}

TEST_P(MergeIsRefused, AfterRecordHasReturned) {
  cgr_recorder *kept = nullptr;
  cgr_merge merge = Good();
  engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t) {
    kept = recorder;
    return CGR_OK;
  };
  engine_->Step(EagerItems());
  engine_->hook = nullptr;
  ExpectMessage(cgr_record_merge(kept, &merge), CGR_ERROR_STATE, { "cgr_record_merge", "recorder" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(MergeIsRefused);

} // namespace
} // namespace cgr_test

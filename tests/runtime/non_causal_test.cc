// Steps that are not causal over layers that are: a backend of the engine's is told in every kind of step, and the library's own
// kernels refuse it by name where it would change what they compute.
#include "tests/support/quantised_case.h"

namespace cgr_test {
namespace {

class NonCausal : public QuantisedCase {
protected:
  static constexpr int kPages = 16, kDim = 64;
  static constexpr uint32_t kDraft = 7; // the variant whose steps are not causal

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(Open());
    layer_.head_dim = kDim, group_.num_pages = kPages;
    backend_.name = "told", backend_.record = Keep, backend_.context = this;
    backend_.plan_bytes = 64, backend_.plan_host = KeepVariant;
    for (cgr_kv_view *view : { &layer_.k, &layer_.v })
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(size_t(kPages) * kPage * kHeads * kDim * 2), CGR_DTYPE_BF16, kPage,
                                     kHeads, kDim, view));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
      CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * kHeads * kDim * 2), CGR_DTYPE_BF16, kHeads, kDim, view));
  }
  static cgr_status Keep(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
    static_cast<NonCausal *>(context)->told_.push_back({ VariantOf(recorder), attention->flags });
    return CGR_OK;
  }
  static cgr_status KeepVariant(void *context, void *, const cgr_plan_step *step) {
    static_cast<NonCausal *>(context)->planned_ = step->variant;
    return CGR_OK;
  }
  static uint32_t VariantOf(cgr_recorder *recorder) {
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    CGR_EXPECT_OK(cgr_record_get_info(recorder, &info));
    return info.key.variant;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const auto &self = *static_cast<const NonCausal *>(engine);
    cgr_attention call = self.call_;
    if (VariantOf(recorder) == kDraft)
      call.flags |= self.flags_;
    return cgr_record_attention(recorder, &call);
  }
  cgr_status Capture() {
    const cgr_capture capture = CaptureOf(Record, this);
    return cgr_runtime_capture(rt_, &capture);
  }
  void Start(int32_t mode) {
    cgr_config config = CGR_CONFIG_INIT;
    static const cgr_variant draft = { kDraft, 0, 1, 0 };
    config.graph_mode = mode, config.variants = &draft, config.num_variants = 1;
    CGR_ASSERT_OK(Create(&config, &layer_, 1));
  }
  void StepOf(uint32_t variant, int32_t count) {
    const int32_t tokens[kTokens] = {};
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    batch.num_requests = 1, batch.rows = &row_, batch.query_lens = &count, batch.tokens = tokens, batch.variant = variant;
    CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt_, &step, stream_));
    CGR_ASSERT_OK(cgr_step_wait(rt_, step.mark, -1, nullptr));
  }

  struct Told {
    uint32_t variant, flags;
  };
  std::vector<Told> told_;
  uint32_t planned_ = 99;                     // the variant of the step that was planned last
  uint32_t flags_ = CGR_ATTENTION_NON_CAUSAL; // of the calls in steps of kDraft
};

TEST_P(NonCausal, StepsTellABackendInEveryKindOfStep) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(mode);
    told_.clear();
    ASSERT_NO_FATAL_FAILURE(Start(mode));
    CGR_ASSERT_OK(Capture());
    ASSERT_NO_FATAL_FAILURE(Step(1));
    for (uint32_t variant : { kDraft, 0u, kDraft }) {
      ASSERT_NO_FATAL_FAILURE(StepOf(variant, 2));
      EXPECT_EQ(planned_, variant);
    }
    bool drafts = false, others = false;
    for (const Told &told : told_) {
      (told.variant == kDraft ? drafts : others) = true;
      EXPECT_EQ(told.flags, told.variant == kDraft ? uint32_t(CGR_ATTENTION_NON_CAUSAL) : 0u);
    }
    EXPECT_TRUE(drafts && others);
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

TEST_P(NonCausal, CallsThatAttendNothingAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  flags_ = CGR_ATTENTION_NON_CAUSAL | CGR_ATTENTION_APPEND_ONLY;
  ExpectMessage(Capture(), CGR_ERROR_CALLBACK,
                { "CGR_ERROR_INVALID_ARGUMENT", "flags has NON_CAUSAL and APPEND_ONLY for layer 0", "a call that attends" });
  flags_ = CGR_ATTENTION_NON_CAUSAL | CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY;
  ExpectMessage(Capture(), CGR_ERROR_CALLBACK, { "flags has NO_APPEND and APPEND_ONLY" });
  flags_ = CGR_ATTENTION_NON_CAUSAL;
  CGR_EXPECT_OK(Capture());
}

TEST_P(NonCausal, StepsAreRefusedByTheLibrarysOwnCausalKernels) {
  layer_.backend = 0, backend_.plan_host = nullptr, backend_.plan_bytes = 0;
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ExpectMessage(Capture(), CGR_ERROR_CALLBACK,
                { "CGR_ERROR_UNSUPPORTED", "flags has NON_CAUSAL for layer 0", "expected a layer with a backend",
                  "CGR_LAYER_BIDIRECTIONAL" });
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.flags = CGR_LAYER_BIDIRECTIONAL;
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  CGR_ASSERT_OK(Capture());
  ASSERT_NO_FATAL_FAILURE(Step(1));
  ASSERT_NO_FATAL_FAILURE(StepOf(kDraft, 2));
}

CGR_INSTANTIATE_OVER_DEVICES(NonCausal);

} // namespace
} // namespace cgr_test

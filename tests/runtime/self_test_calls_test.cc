// The self-test counts the calls of `record`: what a graph lacks and an eager step has is named, even if no value shows it, as
// with cgr_record_check_values. In `record`, in a call of it, in one graph alone.
#include <vector>

#include "cgr/names.h"
#include "tests/support/found.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

using rows::RowEngine;

enum { kWidth = 8, kFirstBit = 2, kOtherBit = 7 };

class SelfTestCalls : public OverDevices {
public:
  // Whether the call is left out of this step or capture.
  using Skips = std::function<bool(const cgr_record_info &)>;
  struct Call {
    std::string named;
    std::function<cgr_status(SelfTestCalls *, cgr_recorder *)> make;
  };

  void Make(cgr_graph_mode mode, int32_t check_values) {
    rows::Options options;
    options.model = rows::SmallModelFor(GetParam());
    options.mode = mode;
    options.batch_invariant = false;
    options.mixed = { { 8, 3 } };
    options.adjust = [=](cgr_config *config) {
      static const int32_t buckets[] = { 1, 2 };
      config->check_values = check_values;
      config->on_demand = CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_LENS);
      config->decode_buckets = buckets;
      config->num_decode_buckets = 2;
    };
    engine_.reset();
    engine_ = std::make_unique<RowEngine>(GetParam(), Seed(), options);
    const size_t bytes = size_t(engine_->model.max_tokens) * kWidth * sizeof(float);
    for (float *&tensor : tensors_) {
      tensor = static_cast<float *>(engine_->Alloc(bytes));
      CGR_ASSERT_OK(cgr_fill(engine_->dev, tensor, 0, bytes, engine_->stream));
    }
    engine_->Sync();
  }
  cgr_status Check(cgr_recorder *recorder, int32_t bit) const {
    cgr_value_check check = CGR_VALUE_CHECK_INIT;
    check.data = tensors_[0];
    check.width = kWidth;
    check.dtype = CGR_DTYPE_FP32;
    check.dimension = CGR_DIMENSION_TOKENS;
    check.bit = bit;
    return cgr_record_check_values(recorder, &check);
  }
  cgr_status Merge(cgr_recorder *recorder) const {
    cgr_merge m = CGR_MERGE_INIT;
    m.num_heads = 1;
    m.head_dim = kWidth;
    m.a = m.b = m.out = { nullptr, CGR_DTYPE_FP32, 0, kWidth, kWidth };
    m.a_lse = m.b_lse = { nullptr, CGR_DTYPE_FP32, 0, 1, 1 };
    m.a.data = tensors_[0], m.b.data = tensors_[1], m.out.data = tensors_[2];
    m.a_lse.data = tensors_[3], m.b_lse.data = tensors_[4];
    return cgr_record_merge(recorder, &m);
  }
  cgr_status Measure(cgr_recorder *recorder) const {
    cgr_measure m = CGR_MEASURE_INIT;
    m.num_heads = 1;
    m.head_dim = kWidth;
    m.view = { tensors_[0], CGR_DTYPE_FP32, 0, kWidth, kWidth };
    m.maxima = tensors_[2];
    return cgr_record_measure(recorder, &m);
  }
  // Each kind of call whose absence no value shows.
  static std::vector<Call> Calls() {
    return {
      { "cgr_record_check_values", [](SelfTestCalls *t, cgr_recorder *recorder) { return t->Check(recorder, kOtherBit); } },
      { "cgr_record_merge", [](SelfTestCalls *t, cgr_recorder *recorder) { return t->Merge(recorder); } },
      { "cgr_record_measure", [](SelfTestCalls *t, cgr_recorder *recorder) { return t->Measure(recorder); } },
      { "cgr_record_call",
        [](SelfTestCalls *, cgr_recorder *recorder) {
          return cgr_record_call(
              recorder, [](cgr_recorder *, const void *) { return CGR_OK; }, nullptr, 0);
        } },
      { "cgr_record_buffer",
        [](SelfTestCalls *, cgr_recorder *recorder) {
          cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
          return cgr_record_buffer(recorder, CGR_BUFFER_CONTEXT_LENS, 0, &view);
        } },
    };
  }
  // With this call in `record`, unless it is left out; in_call: in a function of cgr_record_call.
  Found Run(const Call &call, const Skips &skips, bool in_call) {
    planted_ = [=](cgr_recorder *recorder) { return skips(InfoOf(recorder)) ? CGR_OK : call.make(this, recorder); };
    engine_->hook = [this, in_call](cgr_recorder *recorder, const cgr_record_info &) {
      auto function = [](cgr_recorder *again, const void *raw) {
        return (*static_cast<SelfTestCalls *const *>(raw))->planted_(again);
      };
      SelfTestCalls *self = this;
      return in_call ? cgr_record_call(recorder, function, &self, sizeof self) : planted_(recorder);
    };
    CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_EXPECT_OK(engine_->Capture());
    const std::vector<int32_t> pages = engine_->FreePages(24);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = 24;
    test.pages = pages.data();
    test.max_token = 200;
    test.seed = uint32_t(Seed());
    return Collect(64, [&](cgr_finding *findings, int32_t room, int32_t *count) {
      return cgr_runtime_self_test(engine_->rt, &test, findings, room, count);
    });
  }
  std::unique_ptr<RowEngine> engine_;
  float *tensors_[5] = {};
  std::function<cgr_status(cgr_recorder *)> planted_;
};

const std::pair<cgr_graph_mode, bool> kPlaces[] = {
  { CGR_MODE_FULL, false }, { CGR_MODE_FULL, true }, { CGR_MODE_PIECEWISE, false }, { CGR_MODE_PIECEWISE, true }
};

// In all graphs or one. An eager step may leave out what its lengths do not need, but a check is named that either lacks.
TEST_P(SelfTestCalls, AreNamedWhereTheyAreLackingAndNowhereElse) {
  const Skips none = [](const cgr_record_info &) { return false; };
  // A call between two pieces is made at each replay, which does not capture.
  const Skips all = [](const cgr_record_info &i) { return i.capturing || i.key.kind == CGR_KIND_PIECEWISE; };
  const Skips one = [](const cgr_record_info &i) { return i.key.kind != CGR_KIND_NONE && i.key.num_tokens == 8; };
  const Skips eager = [](const cgr_record_info &i) { return i.key.kind == CGR_KIND_NONE; };
  for (const auto &[mode, in_call] : kPlaces) {
    SCOPED_TRACE(std::string(cgr_graph_mode_name(mode)) + (in_call ? ", in a call" : ""));
    ASSERT_NO_FATAL_FAILURE(Make(mode, mode == CGR_MODE_FULL));
    for (const Call &call : Calls()) {
      SCOPED_TRACE(call.named);
      ExpectNothing(Run(call, none, in_call));
      Found found = Run(call, all, in_call);
      ExpectFound(found, CGR_ERROR_SELF_TEST, { call.named });
      EXPECT_EQ(found.count, NumKeys(engine_->rt)) << "once for each graph";
      found = Run(call, one, in_call);
      ExpectFound(found, CGR_ERROR_SELF_TEST, { call.named });
      ASSERT_EQ(found.count, 1);
      EXPECT_NE(std::string(found.findings[0].field).find(" 8t"), std::string::npos) << found.findings[0].field;
      found = Run(call, eager, in_call);
      if (call.named == "cgr_record_check_values")
        ExpectFound(found, CGR_ERROR_SELF_TEST, { "cgr_record_check_values was called 0 times for the eager step, and 1 time" });
      else
        ExpectNothing(found);
    }
    const Call other = { "other bits", [](SelfTestCalls *t, cgr_recorder *recorder) {
                          return t->Check(recorder, InfoOf(recorder).key.kind == CGR_KIND_NONE ? kOtherBit : kFirstBit);
                        } };
    ExpectFound(Run(other, none, in_call), CGR_ERROR_SELF_TEST,
                { "cgr_record_check_values has other bits for the eager step (0x80)" });
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(SelfTestCalls);

} // namespace
} // namespace cgr_test

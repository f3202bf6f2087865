// A cache of 8 bits that an engine's own backend reads: the library's append quantises k and v of the new tokens by the factors
// of the views, in every kind of step. It also finds and writes factors for each token.
#include <cmath>
#include <cstring>

#include "cgr/inspect.h"
#include "tests/support/quantised_case.h"

namespace cgr_test {
namespace {

cgr_status Nothing(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }

uint16_t Bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t(bits >> 16);
}

class QuantisedCache : public QuantisedCase {
protected:
  static constexpr int kPages = 8, kDim = 32, kRow = kHeads * kDim;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(Open());
    layer_.head_dim = kDim, layer_.dtype = CGR_DTYPE_BF16;
    backend_.name = "reads_8_bits", backend_.record = Nothing;
    group_.num_pages = kPages;
    for (cgr_kv_view *view : { &layer_.k, &layer_.v })
      CGR_ASSERT_OK(
          cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(kPages * kPage * kRow), CGR_DTYPE_FP8_E4M3, kPage, kHeads, kDim, view));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out })
      CGR_ASSERT_OK(cgr_view_make(Alloc(kTokens * kRow * 2), CGR_DTYPE_BF16, kHeads, kDim, view));
  }
  template <class T> void Put(void *to, const std::vector<T> &from) {
    CGR_ASSERT_OK(cgr_copy(dev_, to, from.data(), from.size() * sizeof(T), stream_));
    CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
  }
  template <class T> std::vector<T> Get(const void *from, size_t count) {
    std::vector<T> to(count);
    CGR_EXPECT_OK(cgr_copy(dev_, to.data(), from, count * sizeof(T), stream_));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    return to;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const QuantisedCache *self = static_cast<const QuantisedCache *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_buffer_view next = CGR_BUFFER_VIEW_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    if (status == CGR_OK)
      status = cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &next);
    if (status == CGR_OK) // a model that always answers 0
      status = cgr_fill(self->dev_, next.data, 0, size_t(info.key.num_requests) * sizeof(int32_t), info.stream);
    if (status == CGR_OK && self->spoilt_ != nullptr)
      status = cgr_fill(self->dev_, self->spoilt_, 0x40, sizeof(float), info.stream);
    return status == CGR_OK ? cgr_record_attention(recorder, &self->call_) : status;
  }
  void Start(int32_t mode) {
    int32_t region = -1;
    CGR_ASSERT_OK(Create(mode));
    for (const cgr_view *view : { &call_.k, &call_.v }) // for the audit
      CGR_ASSERT_OK(cgr_region_register(rt_, view->data, kTokens * kRow * 2, &region));
    const cgr_capture capture = CaptureOf(Record, this);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  // Elements 1 to 8 of each sign, which both formats and the integers hold.
  static std::vector<uint16_t> Elements(float first) {
    std::vector<uint16_t> elements;
    for (int i = 0; i < kTokens * kRow; i++)
      elements.push_back(Bf16(first * float(1 + i % 8) * (i % 3 == 0 ? -1.0f : 1.0f)));
    return elements;
  }

  float *spoilt_ = nullptr; // a factor that each step of the engine overwrites
};

// 1.0 is 0x38 in e4m3 and 0x3c in e5m2; each doubling adds 8, or 4.
TEST_P(QuantisedCache, HoldsCodesByTheFactorsOfItsHeads) {
  for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(mode);
    layer_.v.dtype = CGR_DTYPE_FP8_E5M2;
    layer_.v.scale = static_cast<float *>(Alloc(kHeads * 4));
    layer_.v.scale_stride_head = 1;
    ASSERT_NO_FATAL_FAILURE(Put(layer_.v.scale, std::vector<float>{ 1.0f, 0.25f }));
    ASSERT_NO_FATAL_FAILURE(Put(layer_.k.base, std::vector<uint8_t>(kPages * kPage * kRow, 0xEE)));
    ASSERT_NO_FATAL_FAILURE(Put(layer_.v.base, std::vector<uint8_t>(kPages * kPage * kRow, 0xEE)));
    ASSERT_NO_FATAL_FAILURE(Start(mode));
    for (void *data : { call_.k.data, call_.v.data })
      ASSERT_NO_FATAL_FAILURE(Put(data, std::vector<uint16_t>(kTokens * kRow, Bf16(-2.0f))));
    ASSERT_NO_FATAL_FAILURE(Step(3));
    const std::vector<uint8_t> k = Get<uint8_t>(layer_.k.base, kPages * kPage * kRow), v = Get<uint8_t>(layer_.v.base, k.size());
    for (int t = 0; t < 3; t++)
      for (int i = 0; i < kRow; i++) {
        const size_t at = size_t((3 * kPage + t) * kRow + i);
        ASSERT_EQ(k[at], 0x80 | 0x40) << t << " " << i;
        ASSERT_EQ(v[at], i < kDim ? 0x80 | 0x40 : 0x80 | 0x48) << t << " " << i;
      }
    EXPECT_EQ(k[size_t(3 * kPage + 3) * kRow], 0xEE) << "a token that is not of the step";
    EXPECT_EQ(v[size_t(5 * kPage) * kRow], 0xEE);
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

TEST_P(QuantisedCache, FindsAndWritesTheFactorOfEachToken) {
  const size_t factors = kPages * kPage * kHeads;
  layer_.k.dtype = CGR_DTYPE_I8, layer_.k.scale = static_cast<float *>(Alloc(factors * 4));
  layer_.k.scale_stride_page = kPage * kHeads, layer_.k.scale_stride_token = kHeads, layer_.k.scale_stride_head = 1;
  CGR_ASSERT_OK(
      cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(kPages * kPage * kRow * 2), CGR_DTYPE_BF16, kPage, kHeads, kDim, &layer_.v));
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Put(layer_.k.scale, std::vector<float>(factors, -1.0f)));
  ASSERT_NO_FATAL_FAILURE(Put(call_.k.data, Elements(127.0f / 8.0f)));
  ASSERT_NO_FATAL_FAILURE(Put(call_.v.data, Elements(1.0f)));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  const std::vector<float> got = Get<float>(layer_.k.scale, factors);
  for (size_t i = 0; i < factors; i++)
    EXPECT_EQ(got[i], i / kHeads == 3 * kPage || i / kHeads == 3 * kPage + 1 ? 1.0f : -1.0f) << i;
  const std::vector<uint16_t> v = Get<uint16_t>(layer_.v.base, kPages * kPage * kRow), want = Elements(1.0f);
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + kRow, v.begin() + 3 * kPage * kRow)) << "16 bits are copied";
  const std::vector<int8_t> k = Get<int8_t>(layer_.k.base, kPages * kPage * kRow);
  EXPECT_EQ(k[size_t(3 * kPage) * kRow], -16) << "-15.875";
  EXPECT_EQ(k[size_t(3 * kPage) * kRow + 7], 127);
}

// The self-test looks at factors that are written as it looks at keys and values.
TEST_P(QuantisedCache, ASelfTestSeesWrittenFactors) {
  const int32_t pages[] = { 2, 3, 4, 5, 6, 7 };
  layer_.k.dtype = CGR_DTYPE_I8, layer_.k.scale = static_cast<float *>(Alloc(kPages * kPage * kHeads * 4));
  layer_.k.scale_stride_page = kPage * kHeads, layer_.k.scale_stride_token = kHeads, layer_.k.scale_stride_head = 1;
  for (float *spoilt : { static_cast<float *>(nullptr), layer_.k.scale + 3 }) { // of the read-trash page
    cgr_self_test test = CGR_SELF_TEST_INIT;
    cgr_finding findings[8];
    int32_t count = -1;
    spoilt_ = spoilt;
    ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
    test.num_pages = 6, test.pages = pages, test.max_token = 100, test.seed = 1;
    const cgr_status status = cgr_runtime_self_test(rt_, &test, findings, 8, &count);
    EXPECT_EQ(status, spoilt == nullptr ? CGR_OK : CGR_ERROR_SELF_TEST) << cgr_last_message();
    if (spoilt != nullptr) {
      ASSERT_GT(count, 0);
      EXPECT_NE(std::string(findings[0].text).find("(layer 0, factors of keys), the read-trash page, was written"),
                std::string::npos)
          << findings[0].text;
    }
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

// A guarded read gives a code times its factor.
TEST_P(QuantisedCache, AFactorOfTheReadTrashPageIsFinite) {
  layer_.v.dtype = CGR_DTYPE_I8, layer_.v.scale = static_cast<float *>(Alloc(kPages * kPage * kHeads * 4));
  layer_.v.scale_stride_page = kPage * kHeads, layer_.v.scale_stride_token = 1, layer_.v.scale_stride_head = kPage;
  for (cgr_kv_view *view : { &layer_.k, &layer_.v })
    ASSERT_NO_FATAL_FAILURE(Put(view->base, std::vector<uint8_t>(kPages * kPage * kRow)));
  std::vector<float> factors(kPages * kPage * kHeads, 1.0f);
  factors[kPage + 5] = NAN; // page 0, head 1, token 5
  ASSERT_NO_FATAL_FAILURE(Put(layer_.v.scale, factors));
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  reports_ = violations_.All();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].find("layers[0].v.scale, token 5, head 1"), std::string::npos) << reports_[0];
}

TEST_P(QuantisedCache, PassesAnAudit) {
  layer_.k.scale = layer_.v.scale = static_cast<float *>(Alloc(4));
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  cgr_finding findings[4];
  cgr_audit audit = CGR_AUDIT_INIT;
  int32_t count = -1;
  CGR_EXPECT_OK(cgr_runtime_audit(rt_, &audit, findings, 4, &count));
  EXPECT_EQ(count, 0) << findings[0].text;
}

CGR_INSTANTIATE_OVER_DEVICES(QuantisedCache);

} // namespace
} // namespace cgr_test

// Layers of the library's own attention over caches of 8 bits: the append quantises, attention reads codes times factors, and
// every kind of step gives the same bits.
#include <cmath>
#include <cstring>

#include "cgr/inspect.h"
#include "tests/support/oracle.h"
#include "tests/support/quantised_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

cgr_status Nothing(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }

class NativeQuantised : public QuantisedCase {
protected:
  static constexpr int kPages = 8, kDim = 32, kQueryHeads = 4;

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(Open());
    backend_.name = "unused", backend_.record = Nothing;
    layer_.backend = 0, layer_.num_q_heads = kQueryHeads, layer_.head_dim = kDim;
    group_.num_pages = kPages;
  }
  // The layer's cache, the factors that the engine gives, and the views of its call: one factor for all, one for each head, or of
  // V one for each channel of a head. Codes of i8 without factors in K: the append writes one for each token.
  void Make(cgr_dtype codes, cgr_dtype dtype, const std::vector<float> &k_scales, const std::vector<float> &v_scales,
            cgr_dtype v_codes = CGR_DTYPE_NONE) {
    layer_.dtype = dtype;
    scales_[0] = k_scales, scales_[1] = v_scales;
    for (int which : { 0, 1 }) {
      cgr_kv_view &view = which == 0 ? layer_.k : layer_.v;
      const cgr_dtype own = which == 1 && v_codes != CGR_DTYPE_NONE ? v_codes : codes;
      const std::vector<float> &scales = scales_[which];
      CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(kCacheBytes * cgr_dtype_size(own)), own, kPage, kHeads, kDim, &view));
      if (which == 0 && HasTokenFactors())
        scales_[0].assign(kPages * kHeads * kPage, 0.0f);
      if (scales.empty())
        continue;
      view.scale = static_cast<float *>(Alloc(scales.size() * sizeof(float)));
      if (which == 0 && HasTokenFactors())
        view.scale_stride_page = kHeads * kPage, view.scale_stride_head = kPage, view.scale_stride_token = 1;
      else if (scales.size() > kHeads)
        view.scale_stride_head = kDim, view.scale_stride_d = 1;
      else
        view.scale_stride_head = scales.size() == 1 ? 0 : 1;
      ASSERT_NO_FATAL_FAILURE(Put(view.scale, scales.data(), scales.size() * sizeof(float)));
    }
    for (cgr_view *view : { &call_.q, &call_.out })
      CGR_ASSERT_OK(cgr_view_make(Alloc(Bytes(kQueryHeads)), dtype, kQueryHeads, kDim, view));
    for (cgr_view *view : { &call_.k, &call_.v })
      CGR_ASSERT_OK(cgr_view_make(Alloc(Bytes(kHeads)), dtype, kHeads, kDim, view));
    call_.lse = { Alloc(kTokens * kQueryHeads * sizeof(float)), CGR_DTYPE_FP32, 0, kQueryHeads, 1 };
  }
  bool HasTokenFactors() const { return layer_.k.dtype == CGR_DTYPE_I8 && (scales_[0].empty() || scales_[0].size() > kHeads); }
  size_t Bytes(int heads) const { return size_t(kTokens * heads * kDim) * cgr_dtype_size(cgr_dtype(layer_.dtype)); }
  void Put(void *to, const void *from, size_t bytes) {
    CGR_ASSERT_OK(cgr_copy(dev_, to, from, bytes, stream_));
    CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
  }
  std::vector<unsigned char> Get(const void *from, size_t bytes) {
    std::vector<unsigned char> to(bytes);
    CGR_EXPECT_OK(cgr_copy(dev_, to.data(), from, bytes, stream_));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    return to;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const NativeQuantised *self = static_cast<const NativeQuantised *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_buffer_view next = CGR_BUFFER_VIEW_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    if (status == CGR_OK)
      status = cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &next);
    if (status == CGR_OK) // a model that always answers 0
      status = cgr_fill(self->dev_, next.data, 0, size_t(info.key.num_requests) * sizeof(int32_t), info.stream);
    if (status == CGR_OK && self->measure_.view.data != nullptr)
      status = cgr_record_measure(recorder, &self->measure_);
    return status == CGR_OK ? cgr_record_attention(recorder, &self->call_) : status;
  }
  void Start(int32_t mode) {
    int32_t region = -1;
    CGR_ASSERT_OK(Create(mode));
    for (const cgr_view *view : { &call_.q, &call_.k, &call_.v, &call_.out }) // for the audit
      CGR_ASSERT_OK(
          cgr_region_register(rt_, view->data, Bytes(view == &call_.q || view == &call_.out ? kQueryHeads : kHeads), &region));
    CGR_ASSERT_OK(cgr_region_register(rt_, call_.lse.data, kTokens * kQueryHeads * sizeof(float), &region));
    const cgr_capture capture = CaptureOf(Record, this);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  // Random numbers for all tokens of the call.
  Values Fill(const cgr_view &view, int heads, Random *random) {
    Values values(size_t(kTokens * heads * kDim));
    std::vector<unsigned char> bytes(Bytes(heads));
    for (double &value : values)
      value = cgr__reference_round(view.dtype, double(random->Pick32(-3000, 3000)) / 1000.0);
    StoreElements(view.dtype, values.data(), int64_t(values.size()), bytes.data());
    Put(view.data, bytes.data(), bytes.size());
    return values;
  }
  // What the append makes of the first tokens: codes times factors.
  Values Quantised(const Values &values, int which, int count) const {
    const int32_t dtype = which == 0 ? layer_.k.dtype : layer_.v.dtype;
    Values made;
    for (size_t i = 0; i < size_t(count * kHeads * kDim); i++) {
      const float factor = which == 0 && HasTokenFactors() ? FactorOfRow(&values[i / kDim * kDim]) : Factor(scales_[which], i);
      made.push_back(cgr__reference_round(dtype, double(float(values[i]) / factor)) * double(factor));
    }
    return made;
  }
  static float FactorOfRow(const double *row) {
    float most = 0.0f;
    for (int d = 0; d < kDim; d++)
      most = std::max(most, std::fabs(float(row[d])));
    return most / 127.0f;
  }
  static float Factor(const std::vector<float> &scales, size_t i) {
    const size_t head = i / kDim % kHeads;
    return scales.empty() ? 1.0f : scales[scales.size() == 1 ? 0 : scales.size() > kHeads ? head * kDim + i % kDim : head];
  }
  // The cache of the request, as the device has it.
  Values Cached(int which, int32_t tokens) {
    const int32_t pages[] = { 3, 5 };
    cgr_kv_view view = which == 0 ? layer_.k : layer_.v;
    std::vector<unsigned char> bytes = Get(view.base, kCacheBytes * cgr_dtype_size(cgr_dtype(view.dtype)));
    std::vector<unsigned char> scales;
    if (view.scale != nullptr)
      scales = Get(view.scale, scales_[which].size() * sizeof(float));
    view.base = bytes.data();
    view.scale = scales.empty() ? nullptr : reinterpret_cast<float *>(scales.data());
    return GatherKv(view, pages, kPage, tokens, kHeads, kDim);
  }
  // Steps of one request over two pages, chunks and decodes, each compared with fp64 over the cache. Returns all output bits.
  void Steps(std::vector<unsigned char> *bits) {
    Random random(5);
    Values kv[2];
    int32_t tokens = 0;
    for (int32_t count : { 7, 1, 1, 8, 1, 3 }) {
      AttentionProblem p;
      SCOPED_TRACE("a step of " + std::to_string(count) + " tokens after " + std::to_string(tokens));
      p.q = Fill(call_.q, kQueryHeads, &random);
      for (int which : { 0, 1 }) {
        const Values more = Quantised(Fill(which == 0 ? call_.k : call_.v, kHeads, &random), which, count);
        kv[which].insert(kv[which].end(), more.begin(), more.end());
      }
      ASSERT_NO_FATAL_FAILURE(Step(count));
      tokens += count;
      for (int which : { 0, 1 })
        ASSERT_EQ(Cached(which, tokens), kv[which]);
      const std::vector<unsigned char> out = Get(call_.out.data, Bytes(kQueryHeads));
      const std::vector<unsigned char> lse = Get(call_.lse.data, kTokens * kQueryHeads * sizeof(float));
      const int64_t padding = int64_t{ step_.key.num_tokens } - count;
      p.dtype = cgr_dtype(layer_.dtype), p.v_dtype = cgr_dtype(layer_.v.dtype);
      p.query_len = count, p.seq_len = tokens, p.num_q_heads = kQueryHeads, p.num_kv_heads = kHeads, p.head_dim = kDim;
      p.kind.softcap = layer_.softcap, p.kind.window_left = layer_.window_left;
      p.q.resize(size_t(count * kQueryHeads * kDim));
      p.k = kv[0], p.v = kv[1];
      ASSERT_NO_FATAL_FAILURE(ExpectAnswer(LoadElements(p.dtype, out.data(), int64_t(p.q.size())),
                                           LoadElements(CGR_DTYPE_FP32, lse.data(), int64_t{ count } * kQueryHeads),
                                           SolveAttention(p)));
      const size_t bytes = p.q.size() * cgr_dtype_size(p.dtype), lse_bytes = size_t(count * kQueryHeads) * sizeof(float);
      ASSERT_NO_FATAL_FAILURE(ExpectNothing(LoadElements(p.dtype, out.data() + bytes, padding * kQueryHeads * kDim),
                                            LoadElements(CGR_DTYPE_FP32, lse.data() + lse_bytes, padding * kQueryHeads)));
      bits->insert(bits->end(), out.begin(), out.begin() + int64_t(bytes));
      bits->insert(bits->end(), lse.begin(), lse.begin() + int64_t(lse_bytes));
    }
  }
  // In every mode: the same bits.
  void CheckModes() {
    std::vector<unsigned char> first;
    const std::pair<int32_t, int32_t> modes[] = { { CGR_MODE_NONE, CGR_KIND_NONE },
                                                  { CGR_MODE_FULL, CGR_KIND_FULL },
                                                  { CGR_MODE_PIECEWISE, CGR_KIND_PIECEWISE } };
    for (auto [mode, kind] : modes) {
      SCOPED_TRACE("mode " + std::to_string(mode));
      std::vector<unsigned char> bits;
      ASSERT_NO_FATAL_FAILURE(Start(mode));
      ASSERT_NO_FATAL_FAILURE(Steps(&bits));
      EXPECT_EQ(step_.key.kind, kind);
      first = first.empty() ? bits : first;
      EXPECT_TRUE(bits == first);
      ASSERT_NO_FATAL_FAILURE(Stop());
    }
  }

  static constexpr size_t kCacheBytes = size_t(kPages) * kPage * kHeads * kDim;
  std::vector<float> scales_[2];
  cgr_measure measure_ = CGR_MEASURE_INIT; // without data: `record` measures nothing
};

TEST_P(NativeQuantised, AttendsToWhatTheAppendHasQuantised) {
  for (cgr_dtype codes : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 })
    for (cgr_dtype dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 }) {
      if (dtype == CGR_DTYPE_FP32 && GetParam().HasCudaKernels())
        continue;
      SCOPED_TRACE("codes " + std::to_string(codes) + ", dtype " + std::to_string(dtype));
      ASSERT_NO_FATAL_FAILURE(Make(codes, dtype, { 0.01f, 0.3f }, { 0.02f, 1.7f }));
      ASSERT_NO_FATAL_FAILURE(CheckModes());
    }
}

std::vector<float> ChannelFactors(int count) {
  std::vector<float> factors;
  for (int c = 0; c < count; c++)
    factors.push_back(0.02f + 0.003f * float(c % 11));
  return factors;
}

// The append finds the factors of K's tokens, the engine has measured those of V's channels.
TEST_P(NativeQuantised, AttendsToIntegersWithFactorsOfTokensAndChannels) {
  for (cgr_dtype dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP16 }) {
    ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_I8, dtype, {}, ChannelFactors(kHeads * kDim)));
    ASSERT_NO_FATAL_FAILURE(CheckModes());
  }
}

TEST_P(NativeQuantised, AttendsToIntegersWithGivenFactors) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_I8, CGR_DTYPE_BF16, { 0.03f, 0.02f }, { 0.04f }));
  ASSERT_NO_FATAL_FAILURE(CheckModes());
}

TEST_P(NativeQuantised, AttendsToKAndVOfTheirOwn) {
  for (auto [k, v] : { std::pair<cgr_dtype, cgr_dtype>{ CGR_DTYPE_I8, CGR_DTYPE_BF16 },
                       { CGR_DTYPE_I8, CGR_DTYPE_FP8_E5M2 },
                       { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8 },
                       { CGR_DTYPE_FP8_E5M2, CGR_DTYPE_BF16 } }) {
    SCOPED_TRACE("K " + std::to_string(k) + ", V " + std::to_string(v));
    std::vector<float> given;
    if (k != CGR_DTYPE_I8)
      given = { 0.5f };
    ASSERT_NO_FATAL_FAILURE(
        Make(k, CGR_DTYPE_BF16, given, v == CGR_DTYPE_BF16 ? std::vector<float>{} : ChannelFactors(kHeads), v));
    ASSERT_NO_FATAL_FAILURE(CheckModes());
  }
}

TEST_P(NativeQuantised, NeedsNoFactors) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_FP8_E4M3, CGR_DTYPE_BF16, {}, {}));
  ASSERT_NO_FATAL_FAILURE(CheckModes());
}

TEST_P(NativeQuantised, TakesOneFactorForAllHeads) {
  layer_.softcap = 5.0f, layer_.window_left = 9;
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP16, { 0.05f }, { 3.0f }));
  ASSERT_NO_FATAL_FAILURE(CheckModes());
}

// Scales count once: q 1, k 2 stored as 4 with the factor 0.5, the layer's scale 0.125: a score of 0.25. V 0.75 is stored as 3.
TEST_P(NativeQuantised, ScalesCountOnce) {
  layer_.scale = 0.125f;
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_FP8_E4M3, CGR_DTYPE_BF16, { 0.5f }, { 0.25f }));
  const auto fill = [&](const cgr_view &view, int heads, double first, double rest) {
    Values values(size_t(kTokens * heads * kDim), rest);
    std::vector<unsigned char> bytes(Bytes(heads));
    for (size_t e = 0; e < values.size(); e += kDim)
      values[e] = first;
    StoreElements(view.dtype, values.data(), int64_t(values.size()), bytes.data());
    Put(view.data, bytes.data(), bytes.size());
  };
  fill(call_.q, kQueryHeads, 1.0, 0.0), fill(call_.k, kHeads, 2.0, 0.0), fill(call_.v, kHeads, 0.75, 0.75);
  for (int32_t mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    ASSERT_NO_FATAL_FAILURE(Start(mode));
    ASSERT_NO_FATAL_FAILURE(Step(1));
    const Values lse = LoadElements(CGR_DTYPE_FP32, Get(call_.lse.data, kQueryHeads * sizeof(float)).data(), kQueryHeads);
    const Values out = LoadElements(CGR_DTYPE_BF16, Get(call_.out.data, kQueryHeads * kDim * 2).data(), kQueryHeads * kDim);
    for (double value : lse)
      EXPECT_NEAR(value, 0.25, 1e-6);
    for (double value : out)
      EXPECT_EQ(value, 0.75);
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

// One tensor of bytes, [3][pages][heads][page][dim]: the first plane is K of i8, the other two together are V of 16 bits, so that
// page p of V begins at byte pages * heads * page * dim * 1 + 2 * p * heads * page * dim.
TEST_P(NativeQuantised, KAndVMayShareATensor) {
  constexpr size_t plane = size_t(kPages) * kHeads * kPage * kDim;
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_I8, CGR_DTYPE_BF16, {}, {}, CGR_DTYPE_BF16));
  unsigned char *tensor = static_cast<unsigned char *>(Alloc(3 * plane));
  const cgr_kv_view k = layer_.k;
  CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, tensor, CGR_DTYPE_I8, kPage, kHeads, kDim, &layer_.k));
  CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, tensor + plane, CGR_DTYPE_BF16, kPage, kHeads, kDim, &layer_.v));
  layer_.k.scale = k.scale, layer_.k.scale_stride_page = k.scale_stride_page;
  layer_.k.scale_stride_token = k.scale_stride_token, layer_.k.scale_stride_head = k.scale_stride_head;
  ASSERT_NO_FATAL_FAILURE(CheckModes());
  const size_t v_of_page_3 = plane + 2 * size_t{ 3 } * kHeads * kPage * kDim; // the request's first page is 3
  const std::vector<unsigned char> bytes = Get(tensor, 3 * plane);
  EXPECT_NE(std::vector<unsigned char>(kDim * 2),
            std::vector<unsigned char>(&bytes[v_of_page_3], &bytes[v_of_page_3 + kDim * 2]));
}

// A given factor saturates: V of 3 with the factor 0.01 is stored as 127, and comes back as 1.27.
TEST_P(NativeQuantised, GivenFactorsSaturate) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_I8, CGR_DTYPE_BF16, {}, std::vector<float>(kHeads * kDim, 0.01f)));
  std::vector<unsigned char> bytes(Bytes(kHeads));
  StoreElements(CGR_DTYPE_BF16, Values(size_t(kTokens * kHeads * kDim), 3.0).data(), int64_t{ kTokens } * kHeads * kDim,
                bytes.data());
  Put(call_.v.data, bytes.data(), bytes.size());
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  for (double value : LoadElements(CGR_DTYPE_BF16, Get(call_.out.data, kQueryHeads * kDim * 2).data(), kQueryHeads * kDim))
    EXPECT_EQ(value, cgr__reference_round(CGR_DTYPE_BF16, double(127.0f * 0.01f)));
}

// The codes of a result are those of the same result in fp32 or 16 bits, divided, within a rounding of each; the scale is read
// anew by every replay.
TEST_P(NativeQuantised, GivesResultsOfCodes) {
  Random random(6);
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_FP8_E4M3, CGR_DTYPE_BF16, { 0.01f, 0.3f }, { 0.02f, 1.7f }));
  for (const cgr_view *view : { &call_.q, &call_.k, &call_.v })
    Fill(*view, view == &call_.q ? kQueryHeads : kHeads, &random);
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Step(5));
  const int64_t count = int64_t{ 5 } * kQueryHeads * kDim;
  const Values plain = LoadElements(CGR_DTYPE_BF16, Get(call_.out.data, size_t(count) * 2).data(), count);
  ASSERT_NO_FATAL_FAILURE(Stop());
  float *scales = static_cast<float *>(Alloc(sizeof(float)));
  call_.out_scale = scales;
  layer_.out_dtype = CGR_DTYPE_FP8_E4M3;
  CGR_ASSERT_OK(cgr_view_make(Alloc(Bytes(kQueryHeads)), CGR_DTYPE_FP8_E4M3, kQueryHeads, kDim, &call_.out));
  for (int32_t mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (float divisor : { 0.02f, 0.5f, 1e-45f, 3e38f }) { // the last two: all becomes 448 or 0, and padding stays 0
      ASSERT_NO_FATAL_FAILURE(Put(scales, &divisor, sizeof divisor));
      ASSERT_NO_FATAL_FAILURE(Start(mode));
      ASSERT_NO_FATAL_FAILURE(Step(5));
      const std::vector<unsigned char> out = Get(call_.out.data, size_t(step_.key.num_tokens) * kQueryHeads * kDim);
      for (size_t e = 0; e < out.size(); e++) {
        const double exact = e < size_t(count) ? plain[e] / double(divisor) : 0.0,
                     value = std::max(-448.0, std::min(448.0, exact)), got = cgr__reference_load(CGR_DTYPE_FP8_E4M3, &out[e]);
        ASSERT_NEAR(got, value, std::fabs(value) / 15.0 + 0.001) << e; // half a unit, and bf16
      }
      ASSERT_NO_FATAL_FAILURE(Stop());
    }
}

// A measure may stand next to the factors in use, and not in them: 8 maxima of one head.
TEST_P(NativeQuantised, MaximaAreNoFactors) {
  const std::vector<float> factors = ChannelFactors(kHeads * kDim);
  const float factor = 0.5f;
  const int32_t count = 1, token = 0, pages[] = { 3, 5 };
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_I8, CGR_DTYPE_BF16, { factor }, factors));
  layer_.k.scale = static_cast<float *>(Alloc(9 * sizeof factor));
  layer_.v.scale = static_cast<float *>(Alloc((factors.size() + 8) * sizeof factor));
  Put(layer_.k.scale, &factor, sizeof factor);
  Put(layer_.v.scale, factors.data(), factors.size() * sizeof factor);
  measure_.num_heads = 1, measure_.head_dim = 8, measure_.view = call_.v;
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_NONE));
  CGR_ASSERT_OK(cgr_request_open(rt_, 7, &row_));
  CGR_ASSERT_OK(cgr_request_set_pages(rt_, row_, 0, 0, pages, 2));
  float *const after = layer_.v.scale + factors.size();
  for (auto [maxima, field] : { std::pair<float *, const char *>{ layer_.v.scale, "layers[0].v.scale" },
                                { after - 1, "layers[0].v.scale" },
                                { layer_.k.scale, "layers[0].k.scale" },
                                { layer_.k.scale + 1, nullptr },
                                { after, nullptr } }) {
    const cgr_batch batch = BatchOf(1, &row_, &token, &count);
    measure_.maxima = maxima;
    step_ = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(rt_, &batch, &step_));
    const cgr_status status = cgr_step_launch(rt_, &step_, stream_);
    if (field != nullptr)
      ExpectMessage(status, CGR_ERROR_CALLBACK, { "cgr_record_measure: maxima at ", field, "memory of its own" });
    else
      CGR_EXPECT_OK(status);
    CGR_ASSERT_OK(cgr_step_wait(rt_, step_.mark, -1, nullptr));
  }
  const std::vector<unsigned char> bytes = Get(layer_.v.scale, factors.size() * sizeof factor);
  EXPECT_EQ(std::memcmp(bytes.data(), factors.data(), bytes.size()), 0) << "factors were changed";
}

TEST_P(NativeQuantised, PassesAnAuditAndASelfTest) {
  const int32_t pages[] = { 2, 3, 4, 5, 6, 7 };
  cgr_finding findings[8];
  cgr_audit audit = CGR_AUDIT_INIT;
  cgr_self_test test = CGR_SELF_TEST_INIT;
  int32_t count = -1;
  for (cgr_dtype codes : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8 }) {
    ASSERT_NO_FATAL_FAILURE(
        Make(codes, CGR_DTYPE_BF16, codes == CGR_DTYPE_I8 ? std::vector<float>{} : std::vector<float>{ 0.05f }, { 3.0f, 1.0f }));
    ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
    CGR_EXPECT_OK(cgr_runtime_audit(rt_, &audit, findings, 8, &count));
    EXPECT_EQ(count, 0) << findings[0].text;
    test.num_pages = 6, test.pages = pages, test.max_token = 100, test.seed = 1;
    count = -1;
    CGR_EXPECT_OK(cgr_runtime_self_test(rt_, &test, findings, 8, &count));
    EXPECT_EQ(count, 0) << findings[0].text;
    ASSERT_NO_FATAL_FAILURE(Stop());
  }
}

// A guarded read gives what the read-trash page holds.
TEST_P(NativeQuantised, ACodeOfTheReadTrashPageIsFinite) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_DTYPE_FP8_E5M2, CGR_DTYPE_BF16, {}, {}));
  const unsigned char infinity = 0x7c;
  ASSERT_NO_FATAL_FAILURE(Put(static_cast<unsigned char *>(layer_.k.base) + 2 * kHeads * kDim + kDim, &infinity, 1));
  ASSERT_NO_FATAL_FAILURE(Start(CGR_MODE_FULL));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  reports_ = violations_.All();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].find("layers[0].k, token 2, head 1"), std::string::npos) << reports_[0];
}

CGR_INSTANTIATE_OVER_DEVICES(NativeQuantised);

} // namespace
} // namespace cgr_test

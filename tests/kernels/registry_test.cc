// The registry of attention kernel kinds names everything that it refuses. No test here trusts its claims of what it can do:
// attention_test and attention_kinds_test run that. Everything is asked of the registry's own rows and compared with the rules of
// tests/support/attention_kinds.h.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "devices/device.h"
#include "kernels/attention.h"
#include "kernels/registry.h"
#include "tests/support/attention_kinds.h"
#include "tests/support/layer_case.h"

namespace cgr_test {
namespace {

using Names = FieldNames;

std::vector<cgr_device_info> Devices() { return { HostInfo(), CudaInfo(80), CudaInfo(90), CudaInfo(120) }; }

// An answer of the registry.
struct Answer {
  const cgr__kernel_kind *kernel_kind;
  std::vector<cgr_finding> findings;
  Names Fields() const {
    Names names;
    for (const cgr_finding &finding : findings)
      names.insert(finding.field);
    return names;
  }
};
Answer Ask(const cgr_device_info &device, const cgr_layer &layer, int32_t max_tokens = 8192) {
  Answer answer;
  cgr__findings findings;
  answer.findings.resize(64);
  cgr__findings_init(&findings, answer.findings.data(), 64);
  findings.layer = 3;
  answer.kernel_kind = cgr__kernel_kind_choose(&device, &layer, max_tokens, &findings);
  answer.findings.resize(size_t(findings.count));
  return answer;
}

// ------------------------------------------------------------------------------------------------------------- properties

// Something that a layer may ask for beyond a plain one: the feature that it takes (0: none has it), the field that is named if
// it is missing, and what the text says of it.
struct Property {
  const char *name;
  uint32_t feature;
  const char *field, *text;
  std::function<void(cgr_layer *)> ask;
};

float kSomeFloat = 1.0f;

int32_t OtherThan(int32_t dtype) { return dtype % CGR_DTYPE_U8 + 1; }

// In an order in which asking for one does not undo another that was asked for before.
std::vector<Property> FeatureProperties() {
  return {
    { "window to the left", CGR__FEATURE_WINDOW, "window_left", "is 128", [](cgr_layer *l) { l->window_left = 128; } },
    { "window to the right", CGR__FEATURE_WINDOW, "window_right", "is 7", [](cgr_layer *l) { l->window_right = 7; } },
    { "chunks", CGR__FEATURE_CHUNK, "chunk", "is 8192", [](cgr_layer *l) { l->chunk = 8192; } },
    { "soft cap", CGR__FEATURE_SOFTCAP, "softcap", "is 30", [](cgr_layer *l) { l->softcap = 30.0f; } },
    { "ALiBi", CGR__FEATURE_ALIBI, "alibi_slopes", "is given", [](cgr_layer *l) { l->alibi_slopes = &kSomeFloat; } },
    { "the square root of ALiBi", CGR__FEATURE_ALIBI, "alibi_slopes", "CGR_LAYER_ALIBI_SQRT",
      [](cgr_layer *l) { l->flags |= CGR_LAYER_ALIBI_SQRT; } },
    { "sinks", CGR__FEATURE_SINKS, "sinks", "is given", [](cgr_layer *l) { l->sinks = &kSomeFloat; } },
    { "both directions", CGR__FEATURE_BIDIRECTIONAL, "flags", "CGR_LAYER_BIDIRECTIONAL",
      [](cgr_layer *l) { l->flags |= CGR_LAYER_BIDIRECTIONAL; } },
    { "no cache", CGR__FEATURE_NO_CACHE, "flags", "CGR_LAYER_NO_CACHE", [](cgr_layer *l) { l->flags |= CGR_LAYER_NO_CACHE; } },
    { "cross attention", CGR__FEATURE_CROSS, "length_set", "is 1", [](cgr_layer *l) { l->length_set = 1; } },
    { "another head dim of v", CGR__FEATURE_HEAD_DIM_V, "head_dim_v", "is 48", [](cgr_layer *l) { l->head_dim_v = 48; } },
    { "another dtype than the cache", CGR__FEATURE_CACHE_DTYPE, "dtype", "as in the cache",
      [](cgr_layer *l) { l->dtype = l->out_dtype = OtherThan(l->k.dtype); } },
    { "another dtype of q", CGR__FEATURE_Q_DTYPE, "q_dtype", "as in dtype",
      [](cgr_layer *l) { l->q_dtype = OtherThan(l->dtype); } },
    { "another dtype of out", CGR__FEATURE_OUT_DTYPE, "out_dtype", "as in dtype",
      [](cgr_layer *l) { l->out_dtype = l->dtype == CGR_DTYPE_FP16 ? CGR_DTYPE_BF16 : CGR_DTYPE_FP16; } },
    { "scales of K", CGR__FEATURE_CACHE_SCALES, "k.scale", "is given", [](cgr_layer *l) { l->k.scale = &kSomeFloat; } },
    { "scales of V", CGR__FEATURE_CACHE_SCALES, "v.scale", "is given", [](cgr_layer *l) { l->v.scale = &kSomeFloat; } },
    { "another dtype of V", 0, "v.dtype", "as in k", [](cgr_layer *l) { l->v.dtype = OtherThan(l->k.dtype); } },
  };
}

// Dtypes and head dims that the kernel kind does not have, ahead of the features.
std::vector<Property> PropertiesOf(const cgr__kernel_kind &kernel_kind) {
  std::vector<Property> properties;
  for (int32_t dtype = CGR_DTYPE_FP32; dtype <= CGR_DTYPE_U8; dtype++)
    if (!((kernel_kind.dtypes | kernel_kind.cache_dtypes) & 1u << dtype))
      properties.push_back({ cgr_dtype_name(cgr_dtype(dtype)), 0, "k.dtype", cgr_dtype_name(cgr_dtype(dtype)),
                             [dtype](cgr_layer *l) { SetDtype(l, dtype); } });
  auto head_dim = [&](const char *name, int32_t dim) {
    properties.push_back({ name, 0, "head_dim", "expected", [dim](cgr_layer *l) { l->head_dim = l->head_dim_v = dim; } });
  };
  head_dim("head dim below", kernel_kind.min_head_dim / 2);
  head_dim("head dim above", kernel_kind.max_head_dim + kernel_kind.head_dim_step);
  head_dim("head dim between", kernel_kind.min_head_dim + kernel_kind.head_dim_step - 1);
  for (const Property &property : FeatureProperties())
    properties.push_back(property);
  return properties;
}

bool SameSubject(const Property &a, const Property &b) {
  return std::string(a.field) == b.field && std::string(a.field) != "flags";
}

// Asks for some properties at once: the layer is served, or each missing property is named and nothing else.
void CheckProperties(const cgr_device_info &device, const cgr__kernel_kind *kernel_kind,
                     const std::vector<const Property *> &asked) {
  cgr_layer layer = PlainLayer();
  std::string names;
  for (const Property *property : asked) {
    property->ask(&layer);
    names += std::string(names.empty() ? "" : ", ") + property->name;
  }
  const Names missing = RefusedFields(layer, *kernel_kind, device.shared_memory);
  SCOPED_TRACE(std::string(kernel_kind->name) + ": " + names);
  Answer answer = Ask(device, layer);
  ASSERT_EQ(answer.Fields(), missing);
  ASSERT_EQ(answer.kernel_kind, missing.empty() ? kernel_kind : nullptr);
  for (const cgr_finding &finding : answer.findings) {
    EXPECT_EQ(finding.status, CGR_ERROR_UNSUPPORTED);
    EXPECT_EQ(finding.layer, 3);
    EXPECT_NE(std::string(finding.text).find("expected"), std::string::npos) << finding.text;
  }
  for (const Property *property : asked) {
    const bool hidden = property->feature == CGR__FEATURE_CROSS && layer.flags & CGR_LAYER_NO_CACHE; // no keys to be of another
    const bool follows = // what is wrong with the dtype of K, or of V, says nothing of these
        (missing.count("k.dtype") > 0 && Names{ "dtype", "v.dtype", "k.scale", "v.scale" }.count(property->field) > 0) ||
        (missing.count("v.dtype") > 0 && property->field == std::string("v.scale"));
    bool found = hidden || follows || kernel_kind->features & property->feature;
    for (const cgr_finding &finding : answer.findings)
      found = found || (std::string(finding.field) == property->field &&
                        std::string(finding.text).find(property->text) != std::string::npos);
    EXPECT_TRUE(found) << property->name << " is not named by what it got (" << property->text << ")";
  }
}

TEST(KernelKinds, ServePlainLayersOnEveryDevice) {
  for (const cgr_device_info &device : Devices()) {
    Answer answer = Ask(device, PlainLayer());
    ASSERT_NE(answer.kernel_kind, nullptr);
    EXPECT_TRUE(answer.findings.empty());
    EXPECT_EQ(answer.kernel_kind->device_kind, device.kind);
    EXPECT_LE(answer.kernel_kind->min_capability, device.kernel_capability);
    EXPECT_GE(answer.kernel_kind->max_capability, device.kernel_capability);
  }
}

TEST(KernelKinds, NameEachMissingProperty) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    for (const Property &property : PropertiesOf(*kernel_kind))
      CheckProperties(device, kernel_kind, { &property });
  }
}

TEST(KernelKinds, NameEachOfTwoMissingProperties) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    const std::vector<Property> properties = PropertiesOf(*kernel_kind);
    for (size_t a = 0; a < properties.size(); a++)
      for (size_t b = a + 1; b < properties.size(); b++)
        if (!SameSubject(properties[a], properties[b]))
          CheckProperties(device, kernel_kind, { &properties[a], &properties[b] });
  }
}

TEST(KernelKinds, NameEverythingThatIsMissing) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    const std::vector<Property> properties = PropertiesOf(*kernel_kind);
    std::vector<const Property *> all;
    for (const Property &property : properties)
      if (all.empty() || !SameSubject(*all.back(), property))
        all.push_back(&property);
    CheckProperties(device, kernel_kind, all);
  }
}

// The square root of a distance is useful only with slopes.
TEST(KernelKinds, WantSlopesWithTheSquareRoot) {
  cgr_layer layer = PlainLayer();
  layer.flags = CGR_LAYER_ALIBI_SQRT;
  EXPECT_EQ(Ask(HostInfo(), layer).Fields(), (Names{ "alibi_slopes" }));
  layer.alibi_slopes = &kSomeFloat;
  EXPECT_EQ(Ask(HostInfo(), layer).Fields(), Names{});
}

TEST(KernelKinds, CountReasonsBeyondTheRoomForThem) {
  cgr_layer layer = PlainLayer();
  for (const Property &property : FeatureProperties())
    property.ask(&layer);
  cgr_device_info device = CudaInfo(90);
  const int32_t all = int32_t(Ask(device, layer).findings.size());
  ASSERT_GT(all, 6);
  for (int32_t capacity : { 0, 1, 5 }) {
    std::vector<cgr_finding> out(6);
    cgr__findings findings;
    cgr__findings_init(&findings, out.data(), capacity);
    EXPECT_EQ(cgr__kernel_kind_choose(&device, &layer, 8192, &findings), nullptr);
    EXPECT_EQ(findings.count, all);
    for (int32_t i = 0; i < 6; i++)
      EXPECT_EQ(std::string(out[i].field).empty(), i >= capacity);
  }
}

// ---------------------------------------------------------------------------------------------------- dtypes and head dims

TEST(KernelKinds, AcceptEachDtypeAndHeadDimOfTheirRow) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    for (int32_t dtype = CGR_DTYPE_FP32; dtype <= CGR_DTYPE_U8; dtype++) {
      for (int32_t dim = 1; dim <= 1024; dim++) {
        cgr_layer layer = PlainLayer();
        SetDtype(&layer, dtype);
        layer.head_dim = layer.head_dim_v = dim;
        bool has_dim =
            dim >= kernel_kind->min_head_dim && dim <= kernel_kind->max_head_dim && dim % kernel_kind->head_dim_step == 0;
        Names missing;
        const bool codes = kernel_kind->cache_dtypes & 1u << dtype; // which are no dtype of q, k and v in the call
        if (!(kernel_kind->dtypes & 1u << dtype))
          missing.insert(codes ? "dtype" : "k.dtype");
        if (dtype == CGR_DTYPE_I8)
          missing.insert({ "k.scale", "v.scale" });
        if (!has_dim || (codes && dim % 16 != 0))
          missing.insert("head_dim");
        Answer answer = Ask(device, layer);
        ASSERT_EQ(answer.Fields(), missing) << kernel_kind->name << " " << cgr_dtype_name(cgr_dtype(dtype)) << " " << dim;
        ASSERT_EQ(answer.kernel_kind, missing.empty() ? kernel_kind : nullptr);
      }
    }
  }
}

// ----------------------------------------------------------------------------------------------------------- caches of 8 bits

constexpr cgr_dtype kCodes[] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
alignas(16) float kFactors[4];

cgr_layer CodesLayer(cgr_dtype codes, cgr_dtype dtype = CGR_DTYPE_BF16) {
  cgr_layer layer = PlainLayer();
  SetDtype(&layer, dtype);
  layer.k.dtype = layer.v.dtype = codes;
  if (codes == CGR_DTYPE_I8)
    layer.k.scale = layer.v.scale = kFactors;
  return layer;
}

// A layer that is refused for one field, with a text that has these parts.
void ExpectRefused(const cgr_device_info &device, const cgr_layer &layer, const char *field,
                   const std::vector<std::string> &parts, int32_t max_tokens = 8192) {
  const Answer answer = Ask(device, layer, max_tokens);
  EXPECT_EQ(answer.kernel_kind, nullptr);
  ASSERT_EQ(answer.Fields(), Names{ field });
  for (const std::string &part : parts)
    EXPECT_NE(std::string(answer.findings[0].text).find(part), std::string::npos)
        << answer.findings[0].text << "\nlacks " << part;
}

// For every dtype of q, k, v and out, every head dim of whole vectors, without factors and with static ones.
TEST(KernelKinds, ServeCachesOfCodes) {
  for (const cgr_device_info &device : Devices())
    for (cgr_dtype codes : kCodes)
      for (int32_t dtype = CGR_DTYPE_FP32; dtype <= CGR_DTYPE_U8; dtype++)
        for (int32_t dim = 16; dim <= 256; dim += 16) {
          const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
          cgr_layer layer = CodesLayer(codes, cgr_dtype(dtype));
          layer.head_dim = dim, layer.head_dim_v = 272 - dim;
          const bool served = kernel_kind->dtypes & 1u << dtype;
          ASSERT_EQ(Ask(device, layer).Fields(), served ? Names{} : Names{ "dtype" }) << dtype << " " << dim;
          layer.k.scale = layer.v.scale = &kSomeFloat;
          layer.v.scale_stride_head = 7;
          ASSERT_EQ(Ask(device, layer).kernel_kind, served ? kernel_kind : nullptr) << dtype << " " << dim;
        }
}

TEST(KernelKinds, NameWhatCachesOfCodesCannotHave) {
  for (const cgr_device_info &device : Devices())
    for (cgr_dtype codes : kCodes) {
      const std::string name = cgr_dtype_name(codes),
                        dtypes = device.kind == CGR_DEVICE_KIND_HOST ? "fp32, fp16 or bf16" : "fp16 or bf16";
      SCOPED_TRACE(name + (device.kind == CGR_DEVICE_KIND_HOST ? " on the host" : ""));
      const auto with = [&](auto change) {
        cgr_layer layer = CodesLayer(codes);
        change(layer);
        return layer;
      };
      ExpectRefused(device, with([&](cgr_layer &l) { SetDtype(&l, codes); }), "dtype",
                    { "is " + name + " (0 takes the cache's), expected " + dtypes + " with a cache of " + name });
      ExpectRefused(device, with([](cgr_layer &l) { l.flags = CGR_LAYER_NO_CACHE; }), "k.dtype",
                    { "is " + name + " with CGR_LAYER_NO_CACHE, expected " + dtypes });
      ExpectRefused(device, with([](cgr_layer &l) { l.q_dtype = CGR_DTYPE_FP8_E4M3; }), "q_dtype",
                    { "expected bf16 as in dtype" });
      ExpectRefused(device, with([](cgr_layer &l) { l.out_dtype = CGR_DTYPE_FP16; }), "out_dtype",
                    { "expected bf16 as in dtype" });
      ExpectRefused(device, with([](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16, l.v.scale = nullptr; }), "v.dtype",
                    { "is fp16, expected fp8_e4m3, fp8_e5m2 or i8, or bf16 as in dtype" });
      ExpectRefused(device, with([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_BF16, l.k.scale = l.v.scale = nullptr; }), "v.dtype",
                    { "is " + name + ", expected bf16 as in k" });
      ExpectRefused(device, with([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_BF16, l.k.scale = nullptr; }), "v.dtype",
                    { "expected bf16 as in k: K of 8 bits may have V of 16, not the reverse" }); // and nothing of its factors
      ExpectRefused(device, with([](cgr_layer &l) { l.v.dtype = CGR_DTYPE_BF16, l.v.scale = kFactors; }), "v.scale",
                    { "is given, expected NULL with a cache of bf16" });
      ExpectRefused(device, with([](cgr_layer &l) { l.head_dim = 72; }), "head_dim",
                    { "is 72, expected 16 to 256, a multiple of 16", "with a cache of " + name });
      ExpectRefused(device, with([](cgr_layer &l) { l.head_dim_v = 40; }), "head_dim_v",
                    { "is 40, expected 16 to 256, a multiple of 16", "with a cache of " + name });
      ExpectRefused(device, with([](cgr_layer &l) { l.head_dim = l.head_dim_v = 8; }), "head_dim", { "is 8, expected 16" });
      ExpectRefused(device, with([](cgr_layer &l) { l.num_q_heads = l.num_kv_heads = 8; }), "num_kv_heads",
                    { "is 8, which with max_tokens 8388609 is 67108872 heads to quantise, expected at most 67108864" },
                    (1 << 23) + 1);
      EXPECT_NE(Ask(device, with([](cgr_layer &l) { l.num_q_heads = l.num_kv_heads = 8; }), 1 << 23).kernel_kind, nullptr);
    }
}

TEST(KernelKinds, WantFactorsOfHeadsOrChannels) {
  for (const cgr_device_info &device : Devices())
    for (const bool of_v : { false, true }) {
      const char *field = of_v ? "v.scale" : "k.scale";
      cgr_layer layer = CodesLayer(CGR_DTYPE_FP8_E4M3);
      cgr_kv_view &view = of_v ? layer.v : layer.k;
      view.scale = &kSomeFloat;
      view.scale_stride_head = 2;
      for (int64_t cgr_kv_view::*stride :
           { &cgr_kv_view::scale_stride_page, &cgr_kv_view::scale_stride_token, &cgr_kv_view::scale_stride_d }) {
        view.*stride = 64;
        if (of_v && stride == &cgr_kv_view::scale_stride_d)
          EXPECT_NE(Ask(device, layer).kernel_kind, nullptr);
        else
          ExpectRefused(device, layer, field,
                        { stride == &cgr_kv_view::scale_stride_page    ? "with strides 64, 0, 2, 0"
                          : stride == &cgr_kv_view::scale_stride_token ? "with strides 0, 64, 2, 0"
                                                                       : "with strides 0, 0, 2, 64",
                          of_v ? "expected 0, 0, any, any: one for all, or for each head or channel"
                               : "expected 0, 0, any, 0: one for all, or for each head" });
        view.*stride = 0;
      }
      EXPECT_NE(Ask(device, layer).kernel_kind, nullptr);
      layer = PlainLayer(); // caches of 16 bits have no factors
      view.scale = &kSomeFloat;
      ExpectRefused(device, layer, field, { "is given, expected NULL with a cache of bf16" });
    }
}

TEST(KernelKinds, WantFactorsOfIntegers) {
  for (const cgr_device_info &device : Devices()) {
    cgr_layer layer = CodesLayer(CGR_DTYPE_I8);
    layer.k.scale = nullptr;
    ExpectRefused(device, layer, "k.scale", { "is NULL, expected factors with a cache of i8" });
    layer = CodesLayer(CGR_DTYPE_I8);
    layer.v.scale = nullptr;
    ExpectRefused(device, layer, "v.scale", { "is NULL, expected factors with a cache of i8" });
    for (cgr_dtype dtype : { CGR_DTYPE_U8, CGR_DTYPE_BF16 }) // nothing else is asked to be u8
      for (float *scale : { static_cast<float *>(nullptr), kFactors }) {
        layer = CodesLayer(CGR_DTYPE_U8, dtype);
        layer.k.scale = layer.v.scale = scale;
        ExpectRefused(device, layer, "k.dtype",
                      { "is u8, expected ", "fp16 or bf16, or fp8_e4m3, fp8_e5m2 or i8 for a cache, on this device" });
      }
  }
}

// The factors of K's tokens are copied 16 bytes at a time.
TEST(KernelKinds, TakeFactorsOfTokensSideBySide) {
  for (const cgr_device_info &device : Devices()) {
    const auto with = [](int64_t page, int64_t token, int64_t head, int64_t d, float *scale) {
      cgr_layer layer = CodesLayer(CGR_DTYPE_I8);
      layer.k.scale = scale;
      layer.k.scale_stride_page = page, layer.k.scale_stride_token = token;
      layer.k.scale_stride_head = head, layer.k.scale_stride_d = d;
      return layer;
    };
    EXPECT_NE(Ask(device, with(64, 1, 16, 0, kFactors)).kernel_kind, nullptr);
    cgr_layer one_head = with(16, 1, 0, 0, kFactors);
    one_head.num_kv_heads = 1;
    EXPECT_NE(Ask(device, one_head).kernel_kind, nullptr);
    const std::string multiple = "expected a multiple of 4 above 0 in K of i8";
    for (const auto &[layer, got, expected] : std::vector<std::tuple<cgr_layer, std::string, std::string>>{
             { with(64, 2, 16, 0, kFactors), "scale_stride_token 2", "expected 1 in K of i8" },
             { with(66, 1, 16, 0, kFactors), "scale_stride_page 66", multiple },
             { with(0, 1, 16, 0, kFactors), "scale_stride_page 0", multiple },
             { with(64, 1, 18, 0, kFactors), "scale_stride_head 18", multiple },
             { with(16, 1, 0, 0, kFactors), "scale_stride_head 0", multiple },
             { with(64, 1, 16, 1, kFactors), "scale_stride_d 1", "expected 0 in K of i8" },
             { with(64, 1, 16, 0, kFactors + 1), "is 0x", "expected a multiple of 16 bytes" } })
      ExpectRefused(device, layer, "k.scale", { got, expected, "with factors for each token" });
    one_head.k.scale_stride_head = 3;
    ExpectRefused(device, one_head, "k.scale", { "scale_stride_head 3", "expected a multiple of 4 in K of i8" });
  }
}

// With whatever else a layer asks for, the fields are those of the rules.
TEST(KernelKinds, NameWhatIsMissingWithCachesOfCodes) {
  for (const cgr_device_info &device : Devices())
    for (cgr_dtype codes : kCodes) {
      const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
      const std::vector<Property> properties = FeatureProperties();
      for (const Property &a : properties)
        for (const Property &b : properties) {
          cgr_layer layer = CodesLayer(codes);
          a.ask(&layer), b.ask(&layer);
          ASSERT_EQ(Ask(device, layer).Fields(), RefusedFields(layer, *kernel_kind, device.shared_memory))
              << a.name << ", " << b.name;
        }
    }
}

// All rows of the registry, so that the loss of one is noticed: every dtype of the kernels, on the host and on each architecture.
TEST(KernelKinds, CoverTheKernelsThatAreBuilt) {
  const uint32_t halves = 1u << CGR_DTYPE_FP16 | 1u << CGR_DTYPE_BF16;
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    EXPECT_EQ(kernel_kind->dtypes & halves, halves);
    for (int32_t dim : { 64, 128 }) {
      cgr_layer layer = PlainLayer();
      layer.head_dim = layer.head_dim_v = dim;
      EXPECT_NE(Ask(device, layer).kernel_kind, nullptr) << dim;
    }
  }
  cgr_layer layer = PlainLayer();
  SetDtype(&layer, CGR_DTYPE_FP32);
  layer.head_dim = layer.head_dim_v = 256;
  EXPECT_NE(Ask(HostInfo(), layer).kernel_kind, nullptr);
}

// ------------------------------------------------------------------------------------------------------------ capabilities

// The capability that kernels are chosen for decides, not what the device could do.
TEST(KernelKinds, FollowTheKernelCapability) {
  struct Case {
    int32_t capability, max_capability;
    bool served;
  };
  const Case cases[] = { { 75, 0, false },  { 75, 90, false }, { 79, 0, false },   { 80, 0, true },
                         { 86, 0, true },   { 90, 0, true },   { 90, 80, true },   { 90, 75, false },
                         { 120, 90, true }, { 120, 80, true }, { 120, 79, false }, { 120, 0, true } };
  for (const Case &c : cases) {
    SCOPED_TRACE(std::to_string(c.capability) + " limited to " + std::to_string(c.max_capability));
    cgr_device_info device = CudaInfo(c.capability, c.max_capability);
    Answer answer = Ask(device, PlainLayer());
    EXPECT_EQ(answer.kernel_kind != nullptr, c.served);
    if (c.served)
      continue;
    ASSERT_EQ(answer.Fields(), (Names{ "backend" }));
    std::string text = answer.findings[0].text;
    EXPECT_NE(text.find(std::to_string(device.kernel_capability)), std::string::npos) << text;
    EXPECT_NE(text.find("expected 80"), std::string::npos) << text;
    EXPECT_EQ(answer.findings[0].status, CGR_ERROR_UNSUPPORTED);
  }
}

// A kernel kind is not taken for a device of another kind, whatever its capability.
TEST(KernelKinds, StayOnTheirKindOfDevice) {
  cgr_layer layer = PlainLayer();
  SetDtype(&layer, CGR_DTYPE_FP32);
  cgr_device_info cuda = CudaInfo(0);
  EXPECT_EQ(Ask(cuda, layer).kernel_kind, nullptr);
  cgr_device_info host = HostInfo();
  host.kernel_capability = 90;
  EXPECT_EQ(Ask(host, PlainLayer()).kernel_kind, nullptr) << "no host has a compute capability";
}

// ----------------------------------------------------------------------------------------------------------------- kernels

std::vector<const cgr__kernel *> loaded;
int error_of_load = 0;

// What is loaded for a device, by a device that only writes it down.
int Load(const cgr_device_info &info) {
  cgr__device_ops ops = {};
  ops.preload = [](cgr_device *, const cgr__kernel *kernel) {
    loaded.push_back(kernel);
    return error_of_load;
  };
  cgr_device device = {};
  device.ops = &ops;
  loaded.clear();
  return cgr__kernel_kinds_preload(&device, &info);
}

TEST(KernelKinds, NameTheKernelThatIsLaunched) {
  for (const cgr_device_info &device : Devices()) {
    const cgr__kernel_kind *kernel_kind = Ask(device, PlainLayer()).kernel_kind;
    ASSERT_NE(kernel_kind->attention, nullptr) << kernel_kind->name;
    EXPECT_STREQ(kernel_kind->attention->name, "attention") << "what labels and traces call it";
    EXPECT_EQ(kernel_kind->attention->args_size, sizeof(cgr__attention_args)) << kernel_kind->name;
  }
}

// Each kernel once, and none of a kind that does not run on the device: its module may not load there.
TEST(KernelKinds, AreLoadedForTheDevicesThatTheyRunOn) {
  for (const cgr_device_info &device : Devices()) {
    EXPECT_EQ(Load(device), 0);
    const std::set<const cgr__kernel *> once(loaded.begin(), loaded.end());
    EXPECT_EQ(once.size(), loaded.size());
    EXPECT_EQ(once.count(Ask(device, PlainLayer()).kernel_kind->attention), 1u);
  }
  EXPECT_EQ(Load(CudaInfo(75)), 0);
  EXPECT_TRUE(loaded.empty());
}

TEST(KernelKinds, ThatCannotBeLoadedSaySo) {
  error_of_load = 7;
  EXPECT_EQ(Load(HostInfo()), 7);
  error_of_load = 0;
}

// ------------------------------------------------------------------------------------------------------------------ append

// The append counts the 16-byte vectors of all tokens in 32 bits, with room for a block of threads.
TEST(KernelKinds, RefuseAppendsOf2To31Vectors) {
  struct Case {
    int32_t num_kv_heads, head_dim, max_tokens;
    bool served;
  };
  const Case cases[] = { { 8, 128, (1 << 24) - 9, true }, // 128 vectors a token
                         { 8, 128, (1 << 24) - 8, false }, { 8, 128, 1 << 24, false },    { 1024, 128, (1 << 17) - 1, true },
                         { 1024, 128, 1 << 17, false },    { 1024, 128, 1 << 24, false }, { 1, 64, 1 << 24, true } };
  for (const cgr_device_info &device : Devices()) {
    for (const Case &c : cases) {
      cgr_layer layer = PlainLayer();
      layer.num_q_heads = layer.num_kv_heads = c.num_kv_heads;
      layer.head_dim = layer.head_dim_v = c.head_dim;
      int64_t vectors = int64_t{ c.num_kv_heads } * c.head_dim * 2 / 16 * c.max_tokens;
      SCOPED_TRACE(vectors);
      Answer answer = Ask(device, layer, c.max_tokens);
      EXPECT_EQ(answer.kernel_kind != nullptr, c.served);
      EXPECT_LT(c.served ? vectors : 0, int64_t{ 1 } << 31);
      if (c.served)
        continue;
      EXPECT_EQ(answer.Fields(), (Names{ "num_kv_heads" }));
      std::string text = answer.findings[0].text;
      for (int64_t number : { int64_t{ c.num_kv_heads }, int64_t{ c.head_dim }, int64_t{ c.max_tokens }, vectors })
        EXPECT_NE(text.find(std::to_string(number)), std::string::npos) << text;
    }
  }
}

} // namespace
} // namespace cgr_test

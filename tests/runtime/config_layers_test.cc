// Layers that must be refused: heads and sizes, element types, features that are reserved, caches of other layers.
#include <cmath>

#include "kernels/registry.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigLayers : public ConfigTest {
protected:
  // Every reason of the registry of kernel kinds, in its words, which registry_test reads.
  template <class Set> std::vector<Found> ReasonsOfTheRegistry(Set set) {
    Good c(device_);
    cgr_layer &l = c.layers[1];
    set(l);
    l.head_dim_v = l.head_dim_v == 0 ? l.head_dim : l.head_dim_v;
    l.dtype = l.out_dtype = l.k.dtype;
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    CGR_EXPECT_OK(cgr_device_get_info(device_, &info));
    std::vector<cgr_finding> list(32);
    cgr__findings findings;
    cgr__findings_init(&findings, list.data(), int32_t(list.size()));
    cgr__kernel_kind_choose(&info, &l, c.config.max_tokens, &findings);
    std::vector<Found> reasons;
    for (int32_t i = 0; i < findings.count; i++)
      reasons.emplace_back(cgr_status(list[size_t(i)].status),
                           std::string("layers[1].") + list[size_t(i)].field + " " + list[size_t(i)].text);
    return reasons;
  }
  // What the device has is accepted, and the rest refused.
  template <class Set> void AsTheRegistrySays(Set set) {
    const std::vector<Found> reasons = ReasonsOfTheRegistry(set);
    const auto change = [&](Good &c) { set(c.layers[1]); };
    if (reasons.empty())
      Accepted(change);
    else
      Refused(change, reasons);
  }
};

// ------------------------------------------------------------------------------------------------------ heads and sizes

TEST_P(ConfigLayers, HeadsAndTheirSizesAreWithinTheirBounds) {
  const auto q_heads = [](Good &c, int64_t value) { // a cache of one head is within that of several
    c.layers[1].num_kv_heads = 1;
    c.layers[1].num_q_heads = int32_t(value);
  };
  EachField({
      Field(kArgument, "layers[1].num_q_heads is #, ... 1 .. 1024", q_heads, { 1, 1024 }, Outside(1, 1024)),
      Field(kArgument, "layers[1].num_kv_heads is # ... at least 1", Of(&cgr_layer::num_kv_heads), { 1, 2 },
            { 0, -1, INT32_MIN }),
      Field(kArgument, "layers[1].num_q_heads is # ... multiple of num_kv_heads, 2", Of(&cgr_layer::num_q_heads),
            { 2, 4, 6, 1024 }, { 1, 3, 1023 }),
      Field(kArgument, "layers[1].head_dim is # ... 1 .. 65536", Of(&cgr_layer::head_dim), { 64 },
            { 0, -1, -64, INT32_MIN, 65537, INT32_MAX }),
      // What the kernels of the device take; a smaller head fits the cache.
      Field(kUnsupported, "layers[1].head_dim is # ... 8 to 256", Of(&cgr_layer::head_dim), {}, { 1, 7, 33, 63 }),
  });
  Refused([](Good &c) { c.layers[1].num_kv_heads = 0, c.layers[1].num_q_heads = 1025, c.layers[1].head_dim = 0; },
          { { kArgument, "layers[1].num_kv_heads is 0" },
            { kArgument, "layers[1].num_q_heads is 1025" },
            { kArgument, "layers[1].head_dim is 0 ... 1 .. 65536" } });
}

TEST_P(ConfigLayers, LargestHeadDim) {
  auto set = [](Good &c, int64_t dim) {
    cgr_layer &l = c.layers[1];
    l.head_dim = int32_t(dim);
    for (cgr_kv_view *view : { &l.k, &l.v })
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, view->base, CGR_DTYPE_BF16, 16, 2, int32_t(dim), view));
  };
  EachField({ Field(kUnsupported, "layers[1].head_dim is #", set, { 256 }, { 264 }) });
}

TEST_P(ConfigLayers, HeadDimOfV) {
  Accepted([](Good &c) { c.layers[1].head_dim_v = 64; });
  EachField({ Field(kArgument, "layers[1].head_dim_v is # ... 0 .. 65536",
                    [](Good &c, int64_t value) { c.layers[1].head_dim_v = int32_t(value); }, {},
                    { -1, -64, INT32_MIN, 65537, INT32_MAX }) });
  for (int32_t other : { 8, 32, 33, 128, 264 })
    AsTheRegistrySays([&](cgr_layer &l) {
      l.head_dim_v = other;
      if (other > 0 && other % 8 == 0)
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, l.v.base, CGR_DTYPE_BF16, 16, l.num_kv_heads, other, &l.v));
    });
  // The view of v is one of heads as wide as v's.
  auto wider = [](cgr_layer &l) { l.head_dim_v = 128; };
  std::vector<Found> want = ReasonsOfTheRegistry(wider);
  want.emplace_back(kArgument, "layers[1].v ... of 128 elements");
  Refused([&](Good &c) { wider(c.layers[1]); }, want);
  auto narrower = [](cgr_layer &l) { l.head_dim_v = 32; };
  want = { { kArgument, "layers[2].kv_source ... of v 64 ... 32" } };
  for (const Found &found : ReasonsOfTheRegistry(narrower))
    want.emplace_back(found.status, "layers[2].head_dim_v " + found.words[0]);
  Refused([&](Good &c) { narrower(c.layers[2]); }, want);
}

// The append counts vectors of 16 bytes in 32 bits.
TEST_P(ConfigLayers, TokensTimesHeadsAreLimited) {
  auto set = [](Good &c, int64_t value) {
    const int32_t heads = int32_t(value);
    c.config.max_tokens = 1 << 24, c.config.num_layers = 1;
    c.layers[0].num_q_heads = c.layers[0].num_kv_heads = heads;
    c.layers[0].v.base = Good::Address(100);
    for (cgr_kv_view *view : { &c.layers[0].k, &c.layers[0].v })
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, view->base, CGR_DTYPE_BF16, 16, heads, 64, view));
  };
  EachField(
      { { kUnsupported, "layers[0].num_kv_heads is # ... 16777216 ... expected at most 2147482623", set, { 15 }, { 16 } } });
}

// --------------------------------------------------------------------------------------------------------- element types

TEST_P(ConfigLayers, DtypesAreChecked) {
  const std::string some = ", expected " + std::string(kDtypes), k = "layers[1].k.dtype is ", v = "layers[1].v.dtype is ";
  const auto cache = [](Good &c, int64_t value) { c.layers[1].k.dtype = c.layers[1].v.dtype = int32_t(value); };
  const auto k_alone = [](Good &c, int64_t value) { c.layers[1].k.dtype = int32_t(value); };
  const auto call = [](Good &c, int64_t value) {
    c.layers[1].dtype = int32_t(value);
    c.layers[1].out_dtype = CGR_DTYPE_BF16;
  };
  EachField({
      Field(CGR_OK, "k.dtype and v.dtype", cache, { CGR_DTYPE_FP16, CGR_DTYPE_BF16 }, {}),
      Field(kEnum, k + "#" + some, k_alone, {}, { 99 }),
      Field(kEnum, "layers[1].dtype is #" + some, call, { CGR_DTYPE_BF16 }, { -1, 12, INT32_MAX }),
      Field(kEnum, "layers[1].dtype is #" + some, Of(&cgr_layer::dtype), {}, { -3 }),
      Field(kEnum, "layers[1].out_dtype is #" + some, Of(&cgr_layer::out_dtype), {}, { -1, 12, INT32_MAX }),
  });
  for (int32_t bad : { 0, -1, 12, INT32_MAX })
    Refused([&](Good &c) { cache(c, bad); },
            { { kEnum, k + std::to_string(bad) + some }, { kEnum, v + std::to_string(bad) + some } });
}

TEST_P(ConfigLayers, QuantisedCachesAndDtypesThatDifferAreReserved) {
  static float scale = 1.0f;
  const auto cache = [](int32_t dtype) { return [dtype](Good &c) { c.layers[1].k.dtype = c.layers[1].v.dtype = dtype; }; };
  EachRefused({
      { kUnsupported, "layers[1].k.dtype is i32 ... fp16 or bf16", cache(CGR_DTYPE_I32) },
      { kUnsupported, "layers[1].k.dtype is i64 ... fp16 or bf16", cache(CGR_DTYPE_I64) },
      // The strides of elements of one byte: these are multiples of 16.
      { kUnsupported, "layers[1].dtype is fp8_e4m3 (0 takes the cache's) ... fp16 or bf16", cache(CGR_DTYPE_FP8_E4M3) },
      { kUnsupported, "layers[1].dtype is fp8_e5m2 (0 takes the cache's) ... fp16 or bf16", cache(CGR_DTYPE_FP8_E5M2) },
      { kUnsupported, "layers[1].k.dtype is u8", cache(CGR_DTYPE_U8) },
      { kUnsupported, "layers[1].k.dtype is u8", cache(CGR_DTYPE_U8) },
      { kUnsupported, "layers[1].k.scale ... NULL", [](Good &c) { c.layers[1].k.scale = &scale; } },
      { kUnsupported, "layers[1].v.scale ... NULL", [](Good &c) { c.layers[1].v.scale = &scale; } },
      { kUnsupported, "layers[1].v.dtype is fp16 ... bf16", [](Good &c) { c.layers[1].v.dtype = CGR_DTYPE_FP16; } },
      { kUnsupported, "layers[1].dtype is fp16 ... bf16", [](Good &c) { c.layers[1].dtype = CGR_DTYPE_FP16; } },
      { kUnsupported, "layers[1].dtype is fp16 ... bf16",
        [](Good &c) { c.layers[1].dtype = c.layers[1].out_dtype = CGR_DTYPE_FP16; } },
      { kUnsupported, "layers[1].out_dtype is fp32 ... bf16", [](Good &c) { c.layers[1].out_dtype = CGR_DTYPE_FP32; } },
  });
  Refused([](Good &c) { c.layers[1].k.scale = c.layers[1].v.scale = &scale; },
          { { kUnsupported, "layers[1].k.scale ... NULL" }, { kUnsupported, "layers[1].v.scale ... NULL" } });
  Accepted([](Good &c) { c.layers[1].dtype = c.layers[1].out_dtype = CGR_DTYPE_BF16; });
}

// Codes of fp8 are read by the library's own attention, with factors that are checked as those of other backends.
TEST_P(ConfigLayers, CachesOfCodesWithStaticFactors) {
  alignas(16) static float scales[64] = {};
  const auto with = [](auto change) {
    return [change](Good &c) {
      c.layers[1].k.dtype = c.layers[1].v.dtype = CGR_DTYPE_FP8_E4M3;
      c.layers[1].dtype = CGR_DTYPE_BF16;
      c.layers[1].k.scale = c.layers[1].v.scale = scales;
      change(c.layers[1]);
    };
  };
  Accepted(with([](cgr_layer &) {}));
  Accepted(with([](cgr_layer &l) { l.k.scale_stride_head = l.v.scale_stride_head = 1, l.k.scale = scales + 32; }));
  Accepted(with([](cgr_layer &l) { l.k.scale = l.v.scale = nullptr; }));
  const auto shifted = [](cgr_layer &l) { l.k.scale = reinterpret_cast<float *>(reinterpret_cast<char *>(scales) + 2); };
  EachRefused({
      { kUnsupported, "layers[1].k.scale is 0x ... with strides 0, 1, 0, 0 ... or for each head",
        with([](cgr_layer &l) { l.k.scale_stride_token = 1; }) },
      { kUnsupported, "layers[1].v.scale is 0x ... with strides 0, 1, 0, 0 ... for each head or channel",
        with([](cgr_layer &l) { l.v.scale_stride_token = 1; }) },
      { kUnsupported, "layers[1].k.scale has scale_stride_head 0 ... for each token", // heads would share them
        with([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_I8, l.k.scale_stride_page = 16, l.k.scale_stride_token = 1; }) },
      { kUnsupported, "layers[1].k.scale is NULL, expected factors with a cache of i8",
        with([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_I8, l.k.scale = nullptr; }) },
      { kArgument, "layers[1].k.scale is 0x ... multiple of 4", with(shifted) },
      { kArgument, "layers[1].k.scale_stride_head is -1", with([](cgr_layer &l) { l.k.scale_stride_head = -1; }) },
      { kArgument, "layers[1].k.scale_stride_head is 1 ... scale is NULL",
        with([](cgr_layer &l) { l.k.scale = nullptr, l.k.scale_stride_head = 1; }) },
      { kUnsupported, "layers[1].head_dim is 56 ... a multiple of 16",
        with([](cgr_layer &l) { l.head_dim = l.head_dim_v = 56; }) },
  });
  Refused(with([](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16, l.v.scale = nullptr, l.k.scale_stride_head = -7; }),
          { { kUnsupported, "layers[1].v.dtype is fp16 ... or bf16 as in dtype" },
            { kArgument, "layers[1].k.scale_stride_head is -7" } });
}

// -------------------------------------------------------------------------------------------------------------- features

TEST_P(ConfigLayers, NumbersOfFeaturesAreChecked) {
  const auto left0 = [](Good &c, int64_t value) { c.layers[0].window_left = int32_t(value); };
  const auto right0 = [](Good &c, int64_t value) { c.layers[0].window_right = int32_t(value); };
  EachField({
      Field(kArgument, "layers[1].program is # ... 0 .. 0", Of(&cgr_layer::program), {}, { 1, -1, INT32_MAX }),
      Field(kArgument, "layers[1].length_set is # ... 0 .. 0", Of(&cgr_layer::length_set), {}, { 1, -1, INT32_MAX }),
      Field(kArgument, "layers[1].group is # ... 0 .. 0", Of(&cgr_layer::group), {}, { 1, -1, INT32_MAX, INT32_MIN }),
      // -1, which is no window in other libraries
      Field(kArgument, "layers[1].window_left is #, expected 0 or more; 0: no window_left", Of(&cgr_layer::window_left), {},
            { -1 }),
      Field(kArgument, "layers[1].window_right is #, expected 0 or more; 0: no window_right", Of(&cgr_layer::window_right), {},
            { -1 }),
      Field(kArgument, "layers[0].window_left is #, expected 0 or more; 0: no window_left", left0, {}, { -1 }),
      Field(kArgument, "layers[0].window_right is #, expected 0 or more; 0: no window_right", right0, {}, { -1 }),
      Field(kArgument, "layers[1].chunk is #, expected 0 or more; 0: no chunk", Of(&cgr_layer::chunk), {}, { -1, -64 }),
  });
  const std::string flags = ", expected CGR_LAYER_* (bidirectional, no cache, alibi sqrt)";
  EachRefused({ { kEnum, "layers[1].flags is 0x8" + flags, [](Good &c) { c.layers[1].flags = 8; } },
                { kEnum, "layers[0].flags is 0x8" + flags, [](Good &c) { c.layers[0].flags = 8; } },
                { kEnum, "layers[1].flags is 0x80000000" + flags, [](Good &c) { c.layers[1].flags = 0x80000000u; } } });
}

TEST_P(ConfigLayers, WithoutACacheThereIsNoView) {
  static float scale = 1.0f;
  const auto without = [](const std::function<void(cgr_layer &)> &change) {
    return [change](Good &c) {
      c.config.num_layers = 2; // the third one reads the second's cache
      c.layers[1].flags = CGR_LAYER_NO_CACHE;
      c.layers[1].dtype = CGR_DTYPE_BF16;
      c.layers[1].k = c.layers[1].v = cgr_kv_view{};
      change(c.layers[1]);
    };
  };
  EachAccepted({ without([](cgr_layer &) {}), without([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_BF16; }) });
  EachRefused({
      { kArgument, "layers[1].k has base ... NULL ... CGR_LAYER_NO_CACHE",
        without([](cgr_layer &l) { l.k.base = Good::Address(1); }) },
      { kArgument, "layers[1].v has base ... NULL", without([](cgr_layer &l) { l.v.base = Good::Address(1); }) },
      { kArgument, "layers[1].v has scale ... NULL", without([](cgr_layer &l) { l.v.scale = &scale; }) },
      { CGR_ERROR_NEWER_STRUCT, "layers[1].k.reserved", without([](cgr_layer &l) { l.k.reserved = 1; }) },
      { CGR_ERROR_NEWER_STRUCT, "layers[1].v.reserved", without([](cgr_layer &l) { l.v.reserved = -1; }) },
      { kArgument, "layers[1].k.stride_page is 8 ... 0 with", without([](cgr_layer &l) { l.k.stride_page = 8; }) },
      { kArgument, "layers[1].v.stride_token is 8 ... 0 with", without([](cgr_layer &l) { l.v.stride_token = 8; }) },
      { kArgument, "layers[1].v.stride_head is -8 ... 0 with", without([](cgr_layer &l) { l.v.stride_head = -8; }) },
      { kArgument, "layers[1].k.scale_stride_d is 1 ... 0, as scale", without([](cgr_layer &l) { l.k.scale_stride_d = 1; }) },
      { kArgument, "layers[1].k has dtype fp16 ... bf16", without([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_FP16; }) },
      { kArgument, "layers[1].kv_source is 1 ... 0 with CGR_LAYER_NO_CACHE", without([](cgr_layer &l) { l.kv_source = 1; }) },
      { kEnum, "layers[1].dtype is 0 ... cgr_dtype", without([](cgr_layer &l) { l.dtype = 0; }) },
      { kEnum, "layers[1].dtype is 77 ... cgr_dtype", without([](cgr_layer &l) { l.dtype = 77; }) },
      { kArgument, "layers[2].kv_source ... layer 1 + 1 ... CGR_LAYER_NO_CACHE",
        [&](Good &c) { without([](cgr_layer &) {})(c), c.config.num_layers = 3, c.layers[2].kv_source = 2; } },
  });
}

TEST_P(ConfigLayers, FeaturesAreTheRegistrysToJudge) {
  static const float slopes[4] = { 1, 2, 3, 4 };
  for (int32_t value : { 1, 4096, INT32_MAX })
    for (uint32_t flags : { 0u, uint32_t(CGR_LAYER_BIDIRECTIONAL) }) {
      AsTheRegistrySays([&](cgr_layer &l) { l.window_left = value, l.flags = flags; });
      AsTheRegistrySays([&](cgr_layer &l) { l.window_right = value, l.flags = flags; });
      AsTheRegistrySays([&](cgr_layer &l) { l.chunk = value, l.flags = flags; });
    }
  // Not among a direction's keys.
  for (int32_t value : { 1, INT32_MAX })
    EXPECT_FALSE(ReasonsOfTheRegistry([&](cgr_layer &l) { l.window_right = value; }).empty());
  AsTheRegistrySays([](cgr_layer &l) { l.alibi_slopes = slopes; });
  AsTheRegistrySays([](cgr_layer &l) { l.alibi_slopes = slopes, l.flags = CGR_LAYER_ALIBI_SQRT; });
  AsTheRegistrySays([](cgr_layer &l) { l.sinks = slopes; });
  for (uint32_t flags = 1; flags < 8; flags++)
    if (!(flags & CGR_LAYER_NO_CACHE))
      AsTheRegistrySays([&](cgr_layer &l) { l.flags = flags; });
  EXPECT_FALSE(ReasonsOfTheRegistry([](cgr_layer &l) { l.flags = CGR_LAYER_ALIBI_SQRT; }).empty());
  for (float some : { 30.0f, 1e-30f })
    AsTheRegistrySays([&](cgr_layer &l) { l.softcap = some; });
}

TEST_P(ConfigLayers, SlopesAndSinksAreAligned) {
  static const float values[5] = { 1, 2, 3, 4, 5 };
  const auto at = [](int64_t off) {
    return reinterpret_cast<const float *>(reinterpret_cast<uintptr_t>(values) + uintptr_t(off));
  };
  EachField({ Field(kArgument, "layers[1].alibi_slopes ... 0x ... multiple of 4",
                    [&](Good &c, int64_t off) { c.layers[1].alibi_slopes = at(off); }, {}, { 1, 2, 3 }),
              Field(kArgument, "layers[1].sinks ... 0x ... multiple of 4",
                    [&](Good &c, int64_t off) { c.layers[1].sinks = at(off); }, {}, { 1, 2, 3 }) });
}

// A file may hold the sinks of another layer: their number is compared, if it is told.
TEST_P(ConfigLayers, SlopesAndSinksAreOneForEachHead) {
  static const float values[4] = { 1, 2, 3, 4 };
  const auto sinks = [](Good &c, int64_t count) { c.layers[1].sinks = values, c.layers[1].num_sinks = int32_t(count); };
  const auto slopes = [](Good &c, int64_t count) {
    c.layers[1].alibi_slopes = values, c.layers[1].num_alibi_slopes = int32_t(count);
  };
  EachField({ Field(kArgument, "layers[1].num_sinks is # ... num_q_heads, 4, or 0", sinks, { 0, 4 }, { -1, 1, 3, 5, INT32_MAX }),
              Field(kArgument, "layers[1].num_alibi_slopes is # ... num_q_heads, 4, or 0", slopes, { 0, 4 }, { -4, 2, 8 }) });
  EachRefused(
      { { kArgument, "layers[1].num_sinks is 4, expected 0, as sinks is NULL", [](Good &c) { c.layers[1].num_sinks = 4; } },
        { kArgument, "layers[1].num_alibi_slopes is 1, expected 0, as alibi_slopes is NULL",
          [](Good &c) { c.layers[1].num_alibi_slopes = 1; } } });
}

TEST_P(ConfigLayers, ScaleAndSoftcapAreFiniteNumbers) {
  for (float good : { 0.0f, -0.0f, 1e-30f, 1.0f, 3e38f })
    Accepted([&](Good &c) { c.layers[1].scale = good; });
  Accepted([](Good &c) { c.layers[1].softcap = -0.0f; });
  for (float bad : { -1.0f, -1e-30f, INFINITY, -INFINITY, NAN })
    Refused([&](Good &c) { c.layers[1].scale = bad; }, kArgument, "layers[1].scale ... finite ... 0 or more");
  for (float bad : { -1.0f, INFINITY, NAN })
    Refused([&](Good &c) { c.layers[1].softcap = bad; }, kArgument, "layers[1].softcap ... finite");
}

// ------------------------------------------------------------------------------------------------------- other layers

TEST_P(ConfigLayers, CacheOfAnEarlierLayerOfTheSameShape) {
  const auto source = [](Good &c, int64_t value) { c.layers[2].kv_source = int32_t(value); };
  EachField({ Field(kArgument, "layers[2].kv_source is # ... earlier layer", source, { 1, 2 }, // not itself, nor none
                    { 3, 4, -1, INT32_MAX, INT32_MIN }) });
  EachRefused({
      { kArgument, "layers[0].kv_source is 1 ... earlier layer", [](Good &c) { c.layers[0].kv_source = 1; } },
      { kArgument, "layers[2].kv_source ... layer 0 ... 2 KV heads ... expected 4",
        [](Good &c) { c.layers[2].num_kv_heads = 4; } },
      { kArgument, "layers[2].kv_source ... layer 0 ... dim 64 ... 128", [](Good &c) { c.layers[2].head_dim = 128; } },
      // A fault of the source is not reported again for the layers that read it.
      { kArgument, "layers[0].num_kv_heads is 0", [](Good &c) { c.layers[0].num_kv_heads = 0; } },
      { kEnum, "layers[0].k.dtype is 99", [](Good &c) { c.layers[0].k.dtype = 99; } },
  });
  EachAccepted({
      [](Good &c) { c.layers[1].kv_source = 1, c.layers[2].kv_source = 2; }, // of a layer that has another's
      [](Good &c) { c.layers[2].num_q_heads = 8; },
      [](Good &c) { // the views of such a layer are not looked at
        std::memset(&c.layers[2].k, 0x5a, sizeof(cgr_kv_view));
        c.layers[2].v = c.layers[0].v;
      },
  });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigLayers);

} // namespace
} // namespace cgr_test

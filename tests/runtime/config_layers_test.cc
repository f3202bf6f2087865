// Layers that must be refused: heads and sizes, element types, features that are reserved, caches of other layers.
#include <cmath>

#include "cgr/names.h"
#include "kernels/registry.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigLayers : public ConfigTest {
protected:
  static Found Bad(const char *field, const Words &words) { return FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, field, words); }
  static Found Later(const char *field, const Words &words) { return FindInLayer(1, CGR_ERROR_UNSUPPORTED, field, words); }
  // Layer 1 alone is changed.
  template <class Set> void RefusedLayer(Set set, const std::vector<Found> &want) {
    Refused([&](GoodConfig &c) { set(c.layers[1]); }, want);
  }
  template <class Set> void AcceptedLayer(Set set) {
    Accepted([&](GoodConfig &c) { set(c.layers[1]); });
  }
  // Every reason of the registry of kernel kinds, in its words, which registry_test reads.
  template <class Set> std::vector<Found> ReasonsOfTheRegistry(Set set) {
    GoodConfig c(device_);
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
      reasons.push_back(FindInLayer(1, cgr_status(list[size_t(i)].status), list[size_t(i)].field, { list[size_t(i)].text }));
    return reasons;
  }
  // What the device has is accepted, and the rest refused.
  template <class Set> void AsTheRegistrySays(Set set) {
    const std::vector<Found> reasons = ReasonsOfTheRegistry(set);
    if (reasons.empty())
      AcceptedLayer(set);
    else
      RefusedLayer(set, reasons);
  }
};

// ------------------------------------------------------------------------------------------------------ heads and sizes

// A cache of one head is within that of several.
TEST_P(ConfigLayers, NumQHeads) {
  auto set = [](GoodConfig &c, int64_t value) { c.layers[1].num_kv_heads = 1, c.layers[1].num_q_heads = int32_t(value); };
  Range(set, 1, 1024, Bad("num_q_heads", { "1 .. 1024" }));
}

TEST_P(ConfigLayers, NumKvHeads) {
  for (int32_t good : { 1, 2 })
    AcceptedLayer([&](cgr_layer &l) { l.num_kv_heads = good; });
  for (int32_t bad : { 0, -1, INT32_MIN })
    RefusedLayer([&](cgr_layer &l) { l.num_kv_heads = bad; },
                 { Bad("num_kv_heads", { "is " + std::to_string(bad), "at least 1" }) });
}

TEST_P(ConfigLayers, QueryHeadsAreAMultiple) {
  for (int32_t good : { 2, 4, 6, 1024 })
    AcceptedLayer([&](cgr_layer &l) { l.num_q_heads = good; });
  for (int32_t bad : { 1, 3, 1023 })
    RefusedLayer([&](cgr_layer &l) { l.num_q_heads = bad; },
                 { Bad("num_q_heads", { "is " + std::to_string(bad), "multiple of num_kv_heads, 2" }) });
}

TEST_P(ConfigLayers, HeadsMayBothBeWrong) {
  RefusedLayer([](cgr_layer &l) { l.num_kv_heads = 0, l.num_q_heads = 1025, l.head_dim = 0; },
               { Bad("num_kv_heads", { "is 0" }), Bad("num_q_heads", { "is 1025" }), Bad("head_dim", { "is 0", "1 .. 65536" }) });
}

TEST_P(ConfigLayers, HeadDims) {
  for (int32_t bad : { 0, -1, -64, INT32_MIN, 65537, INT32_MAX })
    RefusedLayer([&](cgr_layer &l) { l.head_dim = bad; }, { Bad("head_dim", { "is " + std::to_string(bad), "1 .. 65536" }) });
  // What the kernels of the device take; a smaller head fits the cache.
  for (int32_t bad : { 1, 7, 33, 63 })
    RefusedLayer([&](cgr_layer &l) { l.head_dim = bad; }, { Later("head_dim", { "is " + std::to_string(bad), "8 to 256" }) });
  AcceptedLayer([&](cgr_layer &l) { l.head_dim = 64; });
}

TEST_P(ConfigLayers, LargestHeadDim) {
  auto set = [](GoodConfig &c, int32_t dim) {
    cgr_layer &l = c.layers[1];
    l.head_dim = dim;
    for (cgr_kv_view *view : { &l.k, &l.v })
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, view->base, CGR_DTYPE_BF16, 16, 2, dim, view));
  };
  Accepted([&](GoodConfig &c) { set(c, 256); });
  Refused([&](GoodConfig &c) { set(c, 264); }, { Later("head_dim", { "is 264" }) });
}

TEST_P(ConfigLayers, HeadDimOfV) {
  AcceptedLayer([](cgr_layer &l) { l.head_dim_v = 64; });
  for (int32_t other : { 8, 32, 33, 128, 264, -64 })
    AsTheRegistrySays([&](cgr_layer &l) {
      l.head_dim_v = other;
      if (other > 0 && other % 8 == 0)
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, l.v.base, CGR_DTYPE_BF16, 16, l.num_kv_heads, other, &l.v));
    });
  // The view of v is one of heads as wide as v's.
  auto wider = [](cgr_layer &l) { l.head_dim_v = 128; };
  std::vector<Found> want = ReasonsOfTheRegistry(wider);
  want.push_back(FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "v", { "of 128 elements" }));
  RefusedLayer(wider, want);
  auto narrower = [](cgr_layer &l) { l.head_dim_v = 32; };
  want = { FindInLayer(2, CGR_ERROR_INVALID_ARGUMENT, "kv_source", { "of v 64", "32" }) };
  for (Found found : ReasonsOfTheRegistry(narrower))
    want.push_back(FindInLayer(2, found.status, "head_dim_v", found.words));
  Refused([&](GoodConfig &c) { narrower(c.layers[2]); }, want);
}

// The append counts pieces of 16 bytes in 32 bits.
TEST_P(ConfigLayers, TokensTimesHeadsAreLimited) {
  auto set = [](GoodConfig &c, int32_t heads) {
    c.config.max_tokens = 1 << 24;
    c.config.num_layers = 1;
    c.layers[0].num_q_heads = c.layers[0].num_kv_heads = heads;
    c.layers[0].v.base = GoodConfig::Address(100);
    for (cgr_kv_view *view : { &c.layers[0].k, &c.layers[0].v })
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, view->base, CGR_DTYPE_BF16, 16, heads, 64, view));
  };
  Accepted([&](GoodConfig &c) { set(c, 15); });
  Refused([&](GoodConfig &c) { set(c, 16); },
          { FindInLayer(0, CGR_ERROR_UNSUPPORTED, "num_kv_heads", { "is 16", "16777216", "expected at most 2147482623" }) });
}

// --------------------------------------------------------------------------------------------------------- element types

TEST_P(ConfigLayers, DtypesOfTheCache) {
  auto set = [](cgr_layer &l, int32_t dtype) { l.k.dtype = l.v.dtype = dtype; };
  for (int32_t good : { CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
    AcceptedLayer([&](cgr_layer &l) { set(l, good); });
  for (int32_t later : { CGR_DTYPE_I32, CGR_DTYPE_I64 })
    RefusedLayer([&](cgr_layer &l) { set(l, later); },
                 { Later("k.dtype", { "is " + std::string(cgr_dtype_name(cgr_dtype(later))), "fp16 or bf16" }) });
  for (int32_t bad : { 0, -1, 10, INT32_MAX })
    RefusedLayer([&](cgr_layer &l) { set(l, bad); },
                 { FindInLayer(1, CGR_ERROR_INVALID_ENUM, "k.dtype", { "is " + std::to_string(bad), "cgr_dtype" }),
                   FindInLayer(1, CGR_ERROR_INVALID_ENUM, "v.dtype", { "is " + std::to_string(bad), "cgr_dtype" }) });
}

// The strides of elements of one byte: these are multiples of 16.
TEST_P(ConfigLayers, QuantisedCachesAreReserved) {
  for (int32_t dtype : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8, CGR_DTYPE_U8 })
    RefusedLayer([&](cgr_layer &l) { l.k.dtype = l.v.dtype = dtype; },
                 { Later("k.dtype", { "is " + std::string(cgr_dtype_name(cgr_dtype(dtype))) }) });
  static float scale = 1.0f;
  RefusedLayer([](cgr_layer &l) { l.k.scale = &scale; }, { Later("k.scale", { "NULL" }) });
  RefusedLayer([](cgr_layer &l) { l.v.scale = &scale; }, { Later("v.scale", { "NULL" }) });
  RefusedLayer([](cgr_layer &l) { l.k.scale = l.v.scale = &scale; },
               { Later("k.scale", { "NULL" }), Later("v.scale", { "NULL" }) });
}

TEST_P(ConfigLayers, DtypesThatDifferAreReserved) {
  RefusedLayer([](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16; }, { Later("v.dtype", { "is fp16", "bf16" }) });
  RefusedLayer([](cgr_layer &l) { l.dtype = CGR_DTYPE_FP16; }, { Later("dtype", { "is fp16", "bf16" }) });
  RefusedLayer([](cgr_layer &l) { l.dtype = l.out_dtype = CGR_DTYPE_FP16; }, { Later("dtype", { "is fp16", "bf16" }) });
  RefusedLayer([](cgr_layer &l) { l.out_dtype = CGR_DTYPE_FP32; }, { Later("out_dtype", { "is fp32", "bf16" }) });
  AcceptedLayer([](cgr_layer &l) { l.dtype = l.out_dtype = CGR_DTYPE_BF16; });
}

TEST_P(ConfigLayers, DtypesOfTheCallAreChecked) {
  for (int32_t bad : { -1, 10, INT32_MAX }) {
    const Words words = { "is " + std::to_string(bad), "cgr_dtype" };
    RefusedLayer([&](cgr_layer &l) { l.dtype = bad, l.out_dtype = CGR_DTYPE_BF16; },
                 { FindInLayer(1, CGR_ERROR_INVALID_ENUM, "dtype", words) });
    RefusedLayer([&](cgr_layer &l) { l.out_dtype = bad; }, { FindInLayer(1, CGR_ERROR_INVALID_ENUM, "out_dtype", words) });
  }
}

// -------------------------------------------------------------------------------------------------------------- features

TEST_P(ConfigLayers, ReservedNumbersAreRefusedByName) {
  for (int32_t value : { 1, -1, INT32_MAX })
    RefusedLayer([&](cgr_layer &l) { l.program = value; },
                 { Later("program", { "is " + std::to_string(value), "this version" }) });
}

TEST_P(ConfigLayers, LengthSetsThatAreNotThere) {
  for (int32_t value : { 1, -1, INT32_MAX })
    RefusedLayer([&](cgr_layer &l) { l.length_set = value; }, { Bad("length_set", { "is " + std::to_string(value), "0 .. 0" }) });
}

TEST_P(ConfigLayers, WithoutACacheThereIsNoView) {
  auto without = [](cgr_layer &l) {
    l.flags = CGR_LAYER_NO_CACHE;
    l.dtype = CGR_DTYPE_BF16;
    l.k = l.v = cgr_kv_view{};
  };
  auto refused = [&](const std::function<void(cgr_layer &)> &change, const Found &want) {
    Refused(
        [&](GoodConfig &c) {
          c.config.num_layers = 2; // the third one reads the second's cache
          without(c.layers[1]);
          change(c.layers[1]);
        },
        { want });
  };
  static float scale = 1.0f;
  Accepted([&](GoodConfig &c) { c.config.num_layers = 2, without(c.layers[1]); });
  Accepted([&](GoodConfig &c) { c.config.num_layers = 2, without(c.layers[1]), c.layers[1].k.dtype = CGR_DTYPE_BF16; });
  refused([](cgr_layer &l) { l.k.base = GoodConfig::Address(1); }, Bad("k", { "has base", "NULL", "CGR_LAYER_NO_CACHE" }));
  refused([](cgr_layer &l) { l.v.base = GoodConfig::Address(1); }, Bad("v", { "has base", "NULL" }));
  refused([](cgr_layer &l) { l.v.scale = &scale; }, Bad("v", { "has scale", "NULL" }));
  refused([](cgr_layer &l) { l.k.dtype = CGR_DTYPE_FP16; }, Bad("k", { "has dtype fp16", "bf16" }));
  refused([](cgr_layer &l) { l.kv_source = 1; }, Bad("kv_source", { "is 1", "0 with CGR_LAYER_NO_CACHE" }));
  refused([](cgr_layer &l) { l.dtype = 0; }, FindInLayer(1, CGR_ERROR_INVALID_ENUM, "dtype", { "is 0", "cgr_dtype" }));
  refused([](cgr_layer &l) { l.dtype = 77; }, FindInLayer(1, CGR_ERROR_INVALID_ENUM, "dtype", { "is 77", "cgr_dtype" }));
  Refused([&](GoodConfig &c) { without(c.layers[1]), c.layers[2].kv_source = 2; },
          { FindInLayer(2, CGR_ERROR_INVALID_ARGUMENT, "kv_source", { "layer 1 + 1", "CGR_LAYER_NO_CACHE" }) });
}

TEST_P(ConfigLayers, WindowsAndChunksAreTheRegistrysToJudge) {
  for (int32_t value : { 1, 4096, INT32_MAX })
    for (uint32_t flags : { 0u, uint32_t(CGR_LAYER_BIDIRECTIONAL) }) {
      AsTheRegistrySays([&](cgr_layer &l) { l.window_left = value, l.flags = flags; });
      AsTheRegistrySays([&](cgr_layer &l) { l.window_right = value, l.flags = flags; });
      AsTheRegistrySays([&](cgr_layer &l) { l.chunk = value, l.flags = flags; });
    }
  // Not among a direction's keys.
  for (int32_t value : { 1, INT32_MAX })
    EXPECT_FALSE(ReasonsOfTheRegistry([&](cgr_layer &l) { l.window_right = value; }).empty());
}

TEST_P(ConfigLayers, NegativeWindowsAreNoWindows) {
  for (auto member : { &cgr_layer::window_left, &cgr_layer::window_right, &cgr_layer::chunk }) {
    const char *field = member == &cgr_layer::chunk         ? "chunk"
                        : member == &cgr_layer::window_left ? "window_left"
                                                            : "window_right";
    RefusedLayer([&](cgr_layer &l) { l.*member = -1; }, { Bad(field, { "is -1", "0 or more" }) });
  }
}

TEST_P(ConfigLayers, SlopesAndSinksAreTheRegistrysToJudge) {
  static const float slopes[4] = { 1, 2, 3, 4 };
  AsTheRegistrySays([](cgr_layer &l) { l.alibi_slopes = slopes; });
  AsTheRegistrySays([](cgr_layer &l) { l.alibi_slopes = slopes, l.flags = CGR_LAYER_ALIBI_SQRT; });
  AsTheRegistrySays([](cgr_layer &l) { l.sinks = slopes; });
}

TEST_P(ConfigLayers, SlopesAndSinksAreAligned) {
  static const float values[5] = { 1, 2, 3, 4, 5 };
  for (int32_t off : { 1, 2, 3 }) {
    const float *bad = reinterpret_cast<const float *>(reinterpret_cast<uintptr_t>(values) + uintptr_t(off));
    RefusedLayer([&](cgr_layer &l) { l.alibi_slopes = bad; }, { Bad("alibi_slopes", { "0x", "multiple of 4" }) });
    RefusedLayer([&](cgr_layer &l) { l.sinks = bad; }, { Bad("sinks", { "0x", "multiple of 4" }) });
  }
}

TEST_P(ConfigLayers, FlagsAreTheRegistrysToJudgeOrUnknown) {
  for (uint32_t flags = 1; flags < 8; flags++)
    if (!(flags & CGR_LAYER_NO_CACHE))
      AsTheRegistrySays([&](cgr_layer &l) { l.flags = flags; });
  EXPECT_EQ(ReasonsOfTheRegistry([](cgr_layer &l) { l.flags = CGR_LAYER_ALIBI_SQRT; }).empty(), false);
  for (uint32_t unknown : { 8u, 0x80000000u })
    RefusedLayer([&](cgr_layer &l) { l.flags = unknown; },
                 { FindInLayer(1, CGR_ERROR_INVALID_ENUM, "flags", { unknown == 8 ? "0x8" : "0x80000000", "CGR_LAYER_*" }) });
}

TEST_P(ConfigLayers, ScaleIsAFiniteNumber) {
  for (float good : { 0.0f, -0.0f, 1e-30f, 1.0f, 3e38f })
    AcceptedLayer([&](cgr_layer &l) { l.scale = good; });
  for (float bad : { -1.0f, -1e-30f, INFINITY, -INFINITY, NAN })
    RefusedLayer([&](cgr_layer &l) { l.scale = bad; }, { Bad("scale", { "finite", "0 or more" }) });
}

TEST_P(ConfigLayers, SoftcapIsAFiniteNumber) {
  AcceptedLayer([](cgr_layer &l) { l.softcap = -0.0f; });
  for (float some : { 30.0f, 1e-30f })
    AsTheRegistrySays([&](cgr_layer &l) { l.softcap = some; });
  for (float bad : { -1.0f, INFINITY, NAN })
    RefusedLayer([&](cgr_layer &l) { l.softcap = bad; }, { Bad("softcap", { "finite" }) });
}

// ---------------------------------------------------------------------------------------------- groups and other layers

TEST_P(ConfigLayers, GroupIsOneOfTheGroups) {
  for (int32_t bad : { 1, -1, INT32_MAX, INT32_MIN })
    RefusedLayer([&](cgr_layer &l) { l.group = bad; }, { Bad("group", { "is " + std::to_string(bad), "0 .. 0" }) });
}

TEST_P(ConfigLayers, CacheOfAnEarlierLayer) {
  for (int32_t good : { 1, 2 })
    Accepted([&](GoodConfig &c) { c.layers[2].kv_source = good; });
  for (int32_t bad : { 3, 4, -1, INT32_MAX, INT32_MIN }) // itself, and none
    Refused([&](GoodConfig &c) { c.layers[2].kv_source = bad; },
            { FindInLayer(2, CGR_ERROR_INVALID_ARGUMENT, "kv_source", { "is " + std::to_string(bad), "earlier layer" }) });
  Refused([](GoodConfig &c) { c.layers[0].kv_source = 1; },
          { FindInLayer(0, CGR_ERROR_INVALID_ARGUMENT, "kv_source", { "is 1", "earlier layer" }) });
  Accepted([](GoodConfig &c) { c.layers[1].kv_source = 1, c.layers[2].kv_source = 2; }); // of a layer that has another's
}

TEST_P(ConfigLayers, SharedCachesHaveOneShape) {
  auto refused = [&](const Words &words, const Change &change) {
    Refused(change, { FindInLayer(2, CGR_ERROR_INVALID_ARGUMENT, "kv_source", words) });
  };
  refused({ "layer 0", "2 KV heads", "expected 4" }, [](GoodConfig &c) { c.layers[2].num_kv_heads = 4; });
  refused({ "layer 0", "dim 64", "128" }, [](GoodConfig &c) { c.layers[2].head_dim = 128; });
  Accepted([](GoodConfig &c) { c.layers[2].num_q_heads = 8; });
}

// The views of such a layer are not looked at.
TEST_P(ConfigLayers, ViewsBesideASourceAreIgnored) {
  Accepted([](GoodConfig &c) {
    std::memset(&c.layers[2].k, 0x5a, sizeof(cgr_kv_view));
    c.layers[2].v = c.layers[0].v;
  });
}

// A fault of the source is not reported again for the layers that read it.
TEST_P(ConfigLayers, FindingsOfASourceAreNotRepeated) {
  Refused([](GoodConfig &c) { c.layers[0].num_kv_heads = 0; },
          { FindInLayer(0, CGR_ERROR_INVALID_ARGUMENT, "num_kv_heads", { "is 0" }) });
  Refused([](GoodConfig &c) { c.layers[0].k.dtype = 99; }, { FindInLayer(0, CGR_ERROR_INVALID_ENUM, "k.dtype", { "is 99" }) });
  Refused([](GoodConfig &c) { c.layers[0].size = 0; },
          { { CGR_ERROR_INVALID_STRUCT, 0, -1, "layers[0]", { "size is 0" } },
            { CGR_ERROR_INVALID_STRUCT, 1, -1, "layers[1]", { "layers[0]", "size is 0" } },
            { CGR_ERROR_INVALID_STRUCT, 2, -1, "layers[2]", { "layers[0]", "size is 0" } } });
}

TEST_P(ConfigLayers, MustBeGivenWhenTheyAreCounted) {
  Refused([](GoodConfig &c) { c.config.layers = nullptr; }, { Find(CGR_ERROR_NULL_POINTER, "layers", { "NULL", "3" }) });
  Accepted([](GoodConfig &c) { c.config.layers = nullptr, c.config.num_layers = 0; });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigLayers);

} // namespace
} // namespace cgr_test

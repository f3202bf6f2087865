// What backends describe of themselves: layers that contradict it are refused by name, and an engine can ask before it makes
// caches. The library's own kernels answer as cgr_validate judges.
#include "cgr/ask.h"
#include "cgr/names.h"
#include "kernels/registry.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

constexpr uint64_t kAll = 2 * CGR_ABILITY_SPARSE - 1;
constexpr uint32_t Bit(int32_t dtype) { return 1u << dtype; }

// What a backend describes; its context.
struct Described {
  cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
  cgr_status status = CGR_OK;
  int calls = 0;
  cgr_layer layer = CGR_LAYER_INIT; // the one in the call
  cgr_device_info device = CGR_DEVICE_INFO_INIT;
};
cgr_status Describe(void *context, const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs) {
  Described *d = static_cast<Described *>(context);
  const cgr_backend_needs zeros = CGR_BACKEND_NEEDS_INIT;
  EXPECT_EQ(std::memcmp(needs, &zeros, sizeof zeros), 0);
  d->calls++;
  d->layer = *layer, d->device = *device;
  *needs = d->needs;
  return d->status;
}

// How a layer comes to need an ability, and the field that is named then.
struct Need {
  cgr_ability ability;
  const char *field;
  Change change;
};
float *Floats(int64_t n) { return reinterpret_cast<float *>(Good::Address(16) + n); }
const std::vector<Need> &Needs() {
  static const std::vector<Need> needs = {
    { CGR_ABILITY_WINDOW, "window_left", [](Good &c) { c.layers[1].window_left = 8; } },
    { CGR_ABILITY_CHUNK, "chunk", [](Good &c) { c.layers[1].chunk = 32; } },
    { CGR_ABILITY_SOFTCAP, "softcap", [](Good &c) { c.layers[1].softcap = 30.0f; } },
    { CGR_ABILITY_ALIBI, "alibi_slopes", [](Good &c) { c.layers[1].alibi_slopes = Floats(0); } },
    { CGR_ABILITY_SINKS, "sinks", [](Good &c) { c.layers[1].sinks = Floats(0); } },
    { CGR_ABILITY_BIDIRECTIONAL, "flags", [](Good &c) { c.layers[1].flags = CGR_LAYER_BIDIRECTIONAL; } },
    { CGR_ABILITY_NO_CACHE, "flags",
      [](Good &c) {
        c.layers[1].flags = CGR_LAYER_NO_CACHE, c.layers[1].dtype = CGR_DTYPE_BF16;
        c.layers[1].k = c.layers[1].v = cgr_kv_view{};
      } },
    { CGR_ABILITY_HEAD_DIM_V, "head_dim_v",
      [](Good &c) {
        cgr_layer &l = c.layers[1];
        l.head_dim_v = 32;
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, l.v.base, CGR_DTYPE_BF16, 16, l.num_kv_heads, 32, &l.v));
      } },
    { CGR_ABILITY_CROSS, "length_set",
      [](Good &c) {
        c.config.num_length_sets = 2, c.config.num_groups = 2;
        c.groups[1].num_pages = 64, c.groups[1].length_set = 1;
        c.layers[1].group = c.layers[1].length_set = 1;
        c.layers[1].flags = CGR_LAYER_BIDIRECTIONAL;
      } },
    { CGR_ABILITY_MLA, "v",
      [](Good &c) { c.layers[1].head_dim_v = 32, c.layers[1].v = c.layers[1].k, c.layers[1].scale = 0.1f; } },
    { CGR_ABILITY_HEAD_SCALES, "k.scale",
      [](Good &c) {
        cgr_layer &l = c.layers[1];
        l.dtype = CGR_DTYPE_BF16;
        l.k.dtype = l.v.dtype = CGR_DTYPE_FP8_E4M3;
        l.k.scale = Floats(0), l.k.scale_stride_head = 1, l.v.scale = Floats(64);
      } },
  };
  return needs;
}

class ConfigNeeds : public ConfigTest {
protected:
  void SetUp() override {
    ConfigTest::SetUp();
    said_.needs.abilities = kAll;
    more_ = [this](Good &c) {
      if (!described_)
        return;
      c.AddBackends();
      c.layers[1].backend = 1;
      c.backends[0].flags = CGR_BACKEND_APPENDS;
      c.backends[0].context = &said_, c.backends[0].describe = Describe;
    };
  }
  // The backend describes this, and the layer is refused as `says` tells.
  void ContradictedBy(
      const std::function<void(cgr_backend_needs &)> &change, const std::vector<std::string> &says,
      const Change &layer = [](Good &) {}) {
    std::vector<Found> want;
    for (const std::string &each : says)
      want.emplace_back(kUnsupported, each + ", as backend first describes");
    change(said_.needs);
    Good c(device_, more_);
    layer(c);
    RefusedAsItIs(c.config, want);
    said_.needs = CGR_BACKEND_NEEDS_INIT;
    said_.needs.abilities = kAll;
    Accepted(layer);
  }
  bool IsValid(const Change &change) {
    int32_t count = 0;
    Good c(device_, more_);
    change(c);
    return cgr_validate(&c.config, nullptr, nullptr, 0, &count) == CGR_OK;
  }
  // What the library's own kernels answer.
  cgr_backend_needs AskLibrary(const cgr_layer &layer) {
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
    CGR_EXPECT_OK(cgr_device_get_info(device_, &info));
    CGR_EXPECT_OK(cgr_backend_ask(nullptr, &info, &layer, &needs));
    return needs;
  }
  Described said_;
  bool described_ = true;
};

TEST_P(ConfigNeeds, ALayerThatContradictsThemIsRefused) {
  ContradictedBy([](cgr_backend_needs &n) { n.layout = CGR_LAYOUT_HND; },
                 { "layers[1].k is nhd, expected hnd", "layers[1].v is nhd, expected hnd" });
  const std::string group = "layers[1].group is 0, whose page_size is 16, expected ", dim = "layers[1].head_dim is 64, expected ";
  ContradictedBy([](cgr_backend_needs &n) { n.page_sizes[0] = 32, n.page_sizes[1] = 64; }, { group + "32, 64" });
  ContradictedBy([](cgr_backend_needs &n) { n.page_multiple = 32; }, { group + "a multiple of 32" });
  ContradictedBy([](cgr_backend_needs &n) { n.page_multiple = 4, n.max_page_size = 8; },
                 { group + "a multiple of 4, at most 8" });
  ContradictedBy([](cgr_backend_needs &n) { n.head_dims[0] = 128, n.head_dims[1] = 256; }, { dim + "128, 256" });
  ContradictedBy([](cgr_backend_needs &n) { n.head_dim_multiple = 128; }, { dim + "a multiple of 128" });
  ContradictedBy([](cgr_backend_needs &n) { n.min_head_dim = 72, n.max_head_dim = 80; }, { dim + "at least 72, at most 80" });
  ContradictedBy([](cgr_backend_needs &n) { n.dtypes = Bit(CGR_DTYPE_FP32) | Bit(CGR_DTYPE_FP16); },
                 { "layers[1].dtype is bf16, expected fp32, fp16" });
  for (const Need &need : Needs()) {
    SCOPED_TRACE(cgr_ability_name(need.ability));
    const auto lacks = [&](cgr_backend_needs &n) {
      n.abilities &= ~uint64_t(need.ability), n.cache_dtypes = Bit(CGR_DTYPE_FP8_E4M3);
    };
    lacks(said_.needs);
    Good c(device_, more_);
    need.change(c);
    RefusedAsItIs(c.config, { Found(kUnsupported, std::string("layers[1].") + need.field +
                                                      " is given, expected none that needs the "
                                                      "ability \"" +
                                                      cgr_ability_name(need.ability) + "\", as backend first describes") });
    said_.needs.abilities = need.ability;
    Accepted(need.change);
    said_.needs.abilities = kAll;
  }
  EXPECT_TRUE(IsValid([](Good &c) { // it has the layout that is wanted
    c.PutK(1, Good::Address(2));
  }));
}

// Where the backend's kernels have smaller pages than the group, those are the ones that it describes.
TEST_P(ConfigNeeds, PageSizesAreThoseOfItsKernels) {
  const auto in_halves = [](Good &c) { c.groups[0].kernel_page_size = 8; };
  const std::string group = "layers[1].group is 0, whose kernel_page_size is 8, expected ";
  ContradictedBy([](cgr_backend_needs &n) { n.page_sizes[0] = 16, n.page_sizes[1] = 32; }, { group + "16, 32" }, in_halves);
  ContradictedBy([](cgr_backend_needs &n) { n.page_multiple = 16; }, { group + "a multiple of 16" }, in_halves);
  ContradictedBy([](cgr_backend_needs &n) { n.max_page_size = 4; }, { group + "at most 4" }, in_halves);
  said_.needs.page_sizes[0] = 8, said_.needs.max_page_size = 8;
  Accepted(in_halves);
  said_.needs.page_sizes[0] = 0;
  Accepted(in_halves);
  ContradictedBy([](cgr_backend_needs &n) { n.page_sizes[0] = 8; }, { "layers[1].group is 0, whose page_size is 16, expected 8" },
                 [](Good &c) { c.groups[0].kernel_page_size = 16; });
}

TEST_P(ConfigNeeds, FurtherDtypesAreForOneTensorEach) {
  const auto q = [](Good &c) { c.layers[1].q_dtype = CGR_DTYPE_FP8_E4M3; };
  const auto out = [](Good &c) { c.layers[1].out_dtype = CGR_DTYPE_FP4_E2M1; };
  const auto cache = [](Good &c) {
    c.layers[1].dtype = CGR_DTYPE_BF16, c.layers[1].k.dtype = c.layers[1].v.dtype = CGR_DTYPE_FP16;
  };
  const auto refused = [&](const Change &change, const std::vector<Found> &want) {
    Good c(device_, more_);
    change(c);
    RefusedAsItIs(c.config, want);
  };
  refused(q, { { kUnsupported, "layers[1].q_dtype is fp8_e4m3, expected bf16" } });
  refused(out, { { kUnsupported, "layers[1].out_dtype is fp4_e2m1, expected bf16" } });
  refused(cache, { { kUnsupported, "layers[1].k.dtype is fp16, expected bf16" }, { kUnsupported, "layers[1].v.dtype is fp16" } });
  said_.needs.dtypes = Bit(CGR_DTYPE_BF16);
  said_.needs.q_dtypes = Bit(CGR_DTYPE_FP8_E5M2), said_.needs.out_dtypes = Bit(CGR_DTYPE_FP8_E4M3);
  refused(q, { { kUnsupported, "layers[1].q_dtype is fp8_e4m3, expected bf16, fp8_e5m2" } });
  refused(out, { { kUnsupported, "layers[1].out_dtype is fp4_e2m1, expected bf16, fp8_e4m3" } });
  said_.needs.q_dtypes |= Bit(CGR_DTYPE_FP8_E4M3), said_.needs.out_dtypes |= Bit(CGR_DTYPE_FP4_E2M1);
  said_.needs.cache_dtypes = Bit(CGR_DTYPE_FP16);
  EachAccepted({ q, out, cache });
}

TEST_P(ConfigNeeds, AreAskedOncePerLayerWhichIsComplete) {
  Good c(device_, more_);
  said_.calls = 0;
  Validated(c.config);
  EXPECT_EQ(said_.calls, 1);
  EXPECT_EQ(said_.layer.head_dim_v, Good::kDim);
  EXPECT_EQ(said_.layer.dtype, CGR_DTYPE_BF16);
  EXPECT_EQ(said_.layer.k.base, c.layers[1].k.base);
  // A function that fails, and one whose answer is none, is told.
  const auto fails = [&](const Words &words) {
    cgr_finding finding[2];
    int32_t count = 0;
    EXPECT_EQ(cgr_validate(&c.config, nullptr, finding, 2, &count), CGR_ERROR_CALLBACK);
    EXPECT_EQ(count, 1);
    EXPECT_STREQ(finding[0].field, "layers[1].backend");
    for (const std::string &word : words)
      EXPECT_NE(std::string(finding[0].text).find(word), std::string::npos) << finding[0].text;
  };
  said_.status = CGR_ERROR_BUSY;
  fails({ "backend first: describe returned CGR_ERROR_BUSY" });
  said_.status = CGR_OK, said_.needs.layout = 3;
  fails({ "backend first: describe gives layout 3, expected 0 .. 2" });
}

// What an engine asks with, before it has caches.
class ConfigNeedsAsked : public ConfigNeeds {
protected:
  void SetUp() override {
    ConfigNeeds::SetUp();
    if (IsSkipped())
      return;
    CGR_ASSERT_OK(cgr_device_get_info(device_, &info_));
    backend_.name = "fast", backend_.context = &said_, backend_.describe = Describe;
    layer_.num_q_heads = 7, layer_.head_dim = 576;
  }
  cgr_status Ask(cgr_backend_needs *needs) { return cgr_backend_ask(&backend_, &info_, &layer_, needs); }
  void ExpectRefused(cgr_status status, const Words &words) {
    cgr_backend_needs untouched = CGR_BACKEND_NEEDS_INIT, got = untouched;
    ExpectMessage(Ask(&got), status, words);
    EXPECT_EQ(std::memcmp(&got, &untouched, sizeof got), 0);
  }

  cgr_device_info info_ = CGR_DEVICE_INFO_INIT;
  cgr_layer layer_ = CGR_LAYER_INIT;
  cgr_backend backend_ = CGR_BACKEND_INIT;
};

TEST_P(ConfigNeedsAsked, GiveWhatTheBackendDescribes) {
  cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
  said_.needs.layout = CGR_LAYOUT_HND, said_.needs.page_sizes[0] = 64, said_.needs.preferred_page_size = 64;
  CGR_EXPECT_OK(Ask(&needs));
  EXPECT_EQ(std::memcmp(&needs, &said_.needs, sizeof needs), 0);
  EXPECT_EQ(std::memcmp(&said_.layer, &layer_, sizeof layer_), 0);
  EXPECT_EQ(said_.device.kind, info_.kind);
  // A caller that knows less of it gets as much.
  std::memset(static_cast<void *>(&needs), 0x77, sizeof needs);
  needs.size = 16;
  CGR_EXPECT_OK(Ask(&needs));
  EXPECT_EQ(needs.abilities, kAll);
  EXPECT_EQ(needs.cache_dtypes, 0x77777777u);
  EXPECT_EQ(needs.size, 16u);
}

TEST_P(ConfigNeedsAsked, AreRefusedIfTheQuestionOrTheFunctionIsBad) {
  cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
  said_.status = CGR_ERROR_DEVICE;
  ExpectRefused(CGR_ERROR_CALLBACK, { "cgr_backend_ask: backend fast: describe returned CGR_ERROR_DEVICE" });
  said_.status = CGR_OK;
  ExpectMessage(cgr_backend_ask(&backend_, nullptr, &layer_, &needs), kNull, { "cgr_backend_ask: device is NULL" });
  ExpectMessage(cgr_backend_ask(&backend_, &info_, nullptr, &needs), kNull, { "cgr_backend_ask: layer is NULL" });
  ExpectMessage(Ask(nullptr), kNull, { "cgr_backend_ask: needs is NULL" });
  backend_.describe = nullptr;
  ExpectRefused(kUnsupported, { "cgr_backend_ask: backend fast has no describe" });
}

TEST_P(ConfigNeedsAsked, AreRefusedIfTheAnswerMakesNoSense) {
  const cgr_backend_needs good = said_.needs;
  const struct {
    int32_t cgr_backend_needs::*member;
    int32_t value;
    const char *says;
  } bad[] = {
    { &cgr_backend_needs::layout, -1, "layout -1, expected 0 .. 2" },
    { &cgr_backend_needs::preferred_layout, 3, "preferred_layout 3, expected 0 .. 2" },
    { &cgr_backend_needs::page_multiple, -16, "page_multiple -16" },
    { &cgr_backend_needs::max_page_size, -1, "max_page_size -1" },
    { &cgr_backend_needs::preferred_page_size, -1, "preferred_page_size -1" },
    { &cgr_backend_needs::head_dim_multiple, -8, "head_dim_multiple -8" },
    { &cgr_backend_needs::min_head_dim, -1, "min_head_dim -1" },
    { &cgr_backend_needs::max_head_dim, -1, "max_head_dim -1" },
    { &cgr_backend_needs::reserved, 1, "reserved 1, expected 0 .. 0" },
  };
  for (const auto &each : bad) {
    said_.needs = good, said_.needs.*each.member = each.value;
    ExpectRefused(CGR_ERROR_CALLBACK, { "describe gives ", each.says });
  }
  said_.needs = good, said_.needs.abilities = kAll + 1;
  ExpectRefused(CGR_ERROR_CALLBACK, { "abilities 16384, expected 0 .. 16383" });
  for (uint32_t cgr_backend_needs::*set : { &cgr_backend_needs::dtypes, &cgr_backend_needs::q_dtypes,
                                            &cgr_backend_needs::cache_dtypes, &cgr_backend_needs::out_dtypes })
    for (uint32_t bit : { 1u << CGR_DTYPE_NONE, 2u << CGR_DTYPE_I4, 1u << 31 }) {
      said_.needs = good, said_.needs.*set = bit;
      ExpectRefused(CGR_ERROR_CALLBACK, { "dtypes 0x", "expected bits 1 << cgr_dtype, within 0xffe" });
    }
  said_.needs = good, said_.needs.page_sizes[0] = 16, said_.needs.page_sizes[1] = 0, said_.needs.page_sizes[2] = 32;
  ExpectRefused(CGR_ERROR_CALLBACK, { "page_sizes[2] 32 after a 0" });
  said_.needs = good, said_.needs.min_head_dim = 128, said_.needs.max_head_dim = 64;
  ExpectRefused(CGR_ERROR_CALLBACK, { "min_head_dim 128, expected at most max_head_dim (64)" });
  said_.needs = good, said_.needs.layout = CGR_LAYOUT_HND, said_.needs.preferred_layout = CGR_LAYOUT_NHD;
  ExpectRefused(CGR_ERROR_CALLBACK, { "preferred_layout 1, expected 0 or layout (2)" });
  said_.needs = CGR_BACKEND_NEEDS_INIT, said_.needs.page_multiple = 16, said_.needs.preferred_page_size = 24;
  ExpectRefused(CGR_ERROR_CALLBACK, { "preferred_page_size 24, expected a multiple of 16" });
  said_.needs = good, said_.needs.page_sizes[7] = -2;
  ExpectRefused(CGR_ERROR_CALLBACK, { "page_sizes -2" });
  said_.needs = good, said_.needs.head_dims[2] = -2;
  ExpectRefused(CGR_ERROR_CALLBACK, { "head_dims -2" });
}

// Nothing is said twice: whatever the answer tells of the library's own kernels is what a configuration is judged by.
TEST_P(ConfigNeeds, TheLibraryAnswersAsItJudges) {
  described_ = false;
  const cgr_layer any = CGR_LAYER_INIT;
  const cgr_backend_needs needs = AskLibrary(any);
  for (const Need &need : Needs())
    EXPECT_EQ(IsValid(need.change), (needs.abilities & need.ability) != 0) << cgr_ability_name(need.ability);
  EXPECT_EQ(needs.abilities & (CGR_ABILITY_SPANS | CGR_ABILITY_SPARSE | CGR_ABILITY_LSE), uint64_t(CGR_ABILITY_LSE));
  for (int32_t d = CGR_DTYPE_FP32; d <= CGR_DTYPE_I4; d++) {
    SCOPED_TRACE(cgr_dtype_name(cgr_dtype(d)));
    const auto set = [d](bool call, bool cache, bool q, bool out) {
      return [=](Good &c) {
        cgr_layer &l = c.layers[1];
        l.dtype = call ? d : CGR_DTYPE_BF16, l.q_dtype = q ? d : 0, l.out_dtype = out ? d : 0;
        l.k.dtype = l.v.dtype = cache ? d : CGR_DTYPE_BF16;
        if (l.k.dtype != l.dtype && cgr_dtype_bits(cgr_dtype(d)) == 8)
          l.k.scale = l.v.scale = Floats(0);
      };
    };
    EXPECT_EQ(IsValid(set(true, true, false, false)), (needs.dtypes & Bit(d)) != 0);
    EXPECT_EQ(IsValid(set(false, true, false, false)), d == CGR_DTYPE_BF16 || (needs.cache_dtypes & Bit(d)) != 0);
    EXPECT_EQ(IsValid(set(false, false, true, false)), d == CGR_DTYPE_BF16 || (needs.q_dtypes & Bit(d)) != 0);
    EXPECT_EQ(IsValid(set(false, false, false, true)), d == CGR_DTYPE_BF16 || (needs.out_dtypes & Bit(d)) != 0);
  }
  for (int32_t size : { 8, 16, 24, 32, 1008, 1024, 1040 }) {
    const bool valid = IsValid([size](Good &c) {
      c.groups[0].page_size = size, c.groups[0].num_pages = 6, c.config.max_seq_len = 32;
      for (cgr_layer *l : { &c.layers[0], &c.layers[1] })
        for (cgr_kv_view *view : { &l->k, &l->v })
          CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_HND, view->base, CGR_DTYPE_BF16, size, Good::kHeads, Good::kDim, view));
    });
    EXPECT_EQ(valid, size % needs.page_multiple == 0 && size <= needs.max_page_size) << size;
  }
  EXPECT_EQ(needs.page_sizes[0] | needs.head_dims[0] | needs.layout, 0);
}

TEST_P(ConfigNeeds, TheLibrarysHeadDimsFollowTheCache) {
  described_ = false;
  for (cgr_dtype dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP8_E4M3 }) {
    cgr_layer layer = CGR_LAYER_INIT;
    layer.k.dtype = layer.v.dtype = dtype, layer.dtype = CGR_DTYPE_BF16;
    const cgr_backend_needs needs = AskLibrary(layer);
    for (int32_t dim = 4; dim <= 288; dim += 4) {
      const bool valid = IsValid([=](Good &c) {
        cgr_layer &l = c.layers[1];
        l.head_dim = dim, l.dtype = CGR_DTYPE_BF16;
        for (cgr_kv_view *view : { &l.k, &l.v })
          CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, view->base, dtype, 16, Good::kHeads, dim, view));
      });
      EXPECT_EQ(valid, dim % needs.head_dim_multiple == 0 && dim >= needs.min_head_dim && dim <= needs.max_head_dim)
          << cgr_dtype_name(dtype) << " " << dim;
    }
  }
}

// Devices that need not be here: their kernels hold tiles in shared memory.
TEST_P(ConfigNeeds, TheLibraryAnswersForAnyDevice) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_layer layer = CGR_LAYER_INIT;
  cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
  info.kind = CGR_DEVICE_KIND_CUDA, info.num_multiprocessors = 100;
  info.compute_capability = info.kernel_capability = 75;
  ExpectMessage(cgr_backend_ask(nullptr, &info, &layer, &needs), kUnsupported,
                { "cgr_backend_ask: backend is NULL, the library's own kernels, on compute capability 75", "80 or later" });
  info.compute_capability = info.kernel_capability = 86;
  for (int32_t shared : { 48 << 10, 100 << 10, 164 << 10, 228 << 10 }) {
    SCOPED_TRACE(shared);
    info.shared_memory = shared;
    CGR_ASSERT_OK(cgr_backend_ask(nullptr, &info, &layer, &needs));
    EXPECT_EQ(needs.dtypes, Bit(CGR_DTYPE_FP16) | Bit(CGR_DTYPE_BF16));
    for (int32_t dim = 8; dim <= 264; dim += 8) {
      cgr_layer l = CGR_LAYER_INIT;
      l.num_q_heads = l.num_kv_heads = 2, l.head_dim = l.head_dim_v = dim;
      l.dtype = l.q_dtype = l.out_dtype = l.k.dtype = l.v.dtype = CGR_DTYPE_BF16;
      cgr__findings findings;
      cgr__findings_init(&findings, nullptr, 0);
      EXPECT_EQ(cgr__kernel_kind_choose(&info, &l, 64, &findings) != nullptr, dim <= needs.max_head_dim) << dim;
    }
  }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigNeeds);
CGR_INSTANTIATE_CONFIG_TEST(ConfigNeedsAsked);

} // namespace
} // namespace cgr_test

// Engine backends that must be refused, with all reasons at once; and how good ones affect the mode.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

// What a backend says; its context.
struct Says {
  std::vector<cgr_finding> reasons;
  cgr_graph_support support = CGR_SUPPORT_ALWAYS;
  cgr_graph_support of_65_pages = CGR_SUPPORT_ALWAYS; // for layers of a group that has so many
  cgr_graph_support of_8_heads = CGR_SUPPORT_ALWAYS;  // for layers of so many
  int checks = 0, supports = 0, layers = 0;
  int32_t told = INT32_MIN; // as the number of reasons, if not theirs
};

int32_t Check(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer, cgr_finding *findings,
              int32_t capacity) {
  Says *says = static_cast<Says *>(context);
  says->checks++;
  EXPECT_NE(device->kind, 0);
  EXPECT_EQ(group->page_size, 16);
  EXPECT_EQ(layer->head_dim_v, layer->head_dim) << "the layer is complete";
  for (int32_t i = 0; i < capacity && i < int32_t(says->reasons.size()); i++)
    findings[i] = says->reasons[size_t(i)];
  return says->told != INT32_MIN ? says->told : int32_t(says->reasons.size());
}
cgr_graph_support Support(void *context, const cgr_device_info *, const cgr_group *group) {
  Says *says = static_cast<Says *>(context);
  says->supports++;
  return group->num_pages == 65 ? says->of_65_pages : says->support;
}
cgr_graph_support SupportLayer(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer) {
  Says *says = static_cast<Says *>(context);
  says->layers++;
  EXPECT_NE(device->kind, 0);
  EXPECT_EQ(group->page_size, 16);
  EXPECT_EQ(layer->head_dim_v, layer->head_dim) << "the layer is complete";
  return layer->num_q_heads == 8 ? says->of_8_heads : CGR_SUPPORT_ALWAYS;
}
cgr_status FailingRecord(void *, cgr_recorder *, const cgr_attention *) { return CGR_ERROR_BUSY; }

// An engine that attends to layer 1 alone. Its views are made up: nothing may run.
cgr_status RecordLayerOne(cgr_recorder *recorder, void *) {
  cgr_attention a = CGR_ATTENTION_INIT;
  a.layer = 1;
  for (cgr_view *view : { &a.q, &a.k, &a.v, &a.out })
    *view = { Good::Address(0), CGR_DTYPE_BF16, 0, 4 * Good::kDim, Good::kDim };
  return cgr_record_attention(recorder, &a);
}

cgr_finding Reason(cgr_status status, const char *field, const char *text) {
  cgr_finding reason = { status, -1, -1, 0, {}, {} };
  snprintf(reason.field, sizeof reason.field, "%s", field);
  snprintf(reason.text, sizeof reason.text, "%s", text);
  return reason;
}

class ConfigBackends : public ConfigTest {
protected:
  // Layer 1 is the first backend's; a good one.
  void SetUp() override {
    ConfigTest::SetUp();
    more_ = [this](Good &c) {
      c.AddBackends();
      c.layers[1].backend = 1;
      for (int i = 0; i < 2; i++) {
        c.backends[i].context = &says_[i];
        c.backends[i].check = Check;
        c.backends[i].support = Support;
      }
    };
  }
  // The first backend gives these reasons, or says that it has so many, and findings of layer 1 tell them.
  void RefusedFor(const std::vector<cgr_finding> &reasons, const std::vector<Found> &want, int32_t told = INT32_MIN) {
    says_[0] = {};
    says_[0].reasons = reasons;
    says_[0].told = told;
    Good c(device_, more_);
    RefusedAsItIs(c.config, want);
    says_[0] = {};
    ExpectGood();
  }
  template <class Use> void OnChanged(const Change &change, Use use) {
    Good c(device_, more_);
    change(c);
    OnRuntime(c.config, use);
  }
  // The mode of a runtime, and words of why.
  void ExpectMode(cgr_graph_mode want, const Words &words, const Change &change) {
    OnChanged(change, [&](cgr_runtime *runtime) {
      const char *reason = "";
      EXPECT_EQ(ModeOf(runtime, &reason), want);
      for (const std::string &word : words)
        EXPECT_NE(std::string(reason).find(word), std::string::npos) << reason;
      EXPECT_TRUE(want != CGR_MODE_FULL || *reason == 0) << reason;
    });
  }
  // Whether a request of each length in this order is refused for the threshold, given whole and as the standing batch.
  static void ExpectOrder(cgr_runtime *runtime, const std::vector<int32_t> &lens, bool refused) {
    const std::vector<int32_t> tokens(Good::kPageSize * lens.size(), 1);
    const Words words = { refused ? "reorder_threshold is " + std::to_string(lens.back()) : "" };
    const cgr_status want = refused ? CGR_ERROR_INVALID_ARGUMENT : CGR_OK;
    std::vector<int32_t> rows(lens.size());
    cgr_batch whole = CGR_BATCH_INIT, standing = CGR_BATCH_INIT;
    cgr_key key;
    for (size_t i = 0; i < lens.size(); i++) {
      const int32_t page = 8 + int32_t(i);
      CGR_EXPECT_OK(cgr_request_open(runtime, i, &rows[i]));
      CGR_EXPECT_OK(cgr_request_set_pages(runtime, rows[i], 0, 0, &page, 1));
    }
    whole.num_requests = int32_t(lens.size());
    whole.rows = rows.data(), whole.query_lens = lens.data(), whole.tokens = tokens.data();
    ExpectMessage(cgr_step_choose(runtime, &whole, &key), want, words);
    for (size_t i = 0; i < lens.size(); i++)
      CGR_EXPECT_OK(cgr_standing_add(runtime, nullptr, rows[i], lens[i], tokens.data(), 0));
    standing.num_requests = CGR_BATCH_STANDING;
    ExpectMessage(cgr_step_choose(runtime, &standing, &key), want, words);
    for (int32_t row : rows) {
      CGR_EXPECT_OK(cgr_standing_remove(runtime, nullptr, row));
      CGR_EXPECT_OK(cgr_request_close(runtime, row));
    }
  }
  Says says_[2];
  int32_t asked_ = 0;
};

TEST_P(ConfigBackends, AGoodOneIsAskedOncePerLayerAndGroup) {
  Good c(device_, more_);
  Validated(c.config);
  c.layers[0].backend = c.layers[2].backend = 1;
  EXPECT_EQ(cgr_validate(&c.config, nullptr, nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER);
  says_[0] = {};
  Validated(c.config);
  EXPECT_EQ(says_[0].checks, 3);
  EXPECT_EQ(says_[0].supports, 1);
  EXPECT_EQ(says_[1].checks + says_[1].supports, 0) << "it is not used";
}

// The library appends for a backend that does not, in vectors of 16 bytes that it counts in 32 bits.
TEST_P(ConfigBackends, LayersThatTheAppendCannotCountAreRefused) {
  const auto wide = [](Good &c, int64_t max_tokens) {
    cgr_layer &l = c.layers[1];
    l.num_q_heads = l.num_kv_heads = 1024;
    c.config.max_tokens = int32_t(max_tokens);
    for (cgr_kv_view *view : { &l.k, &l.v })
      CGR_EXPECT_OK(
          cgr_kv_view_make(CGR_LAYOUT_NHD, Good::Address(view == &l.k ? 100 : 300), CGR_DTYPE_BF16, 16, 1024, Good::kDim, view));
  };
  const int32_t most = INT32_MAX / 8192; // vectors of a token
  EachField(
      { Field(kUnsupported,
              "layers[1].num_kv_heads is 1024 ... max_tokens # ... 2147483648 vectors ... expected at most 2147482623, or a "
              "backend with CGR_BACKEND_APPENDS",
              wide, { most - 1 }, { most + 1 }) });
}

TEST_P(ConfigBackends, TheStructIsChecked) {
  static const std::string longest(31, 'n'), longer(32, 'n');
  const std::string flags = ", expected CGR_BACKEND_* (appends, plans first, uniform split, bounds, plans bounds, decodes "
                            "drafts)";
  EachRefused({
      { kNull, "backends[1].name is NULL", [](Good &c) { c.backends[1].name = nullptr; } },
      { kArgument, "backends[1].name is \"\" ... 1 to 31", [](Good &c) { c.backends[1].name = ""; } },
      { kArgument, "backends[1].name ... " + longest + "... ... 1 to 31", [](Good &c) { c.backends[1].name = longer.c_str(); } },
      // Messages tell them apart by their names.
      { kArgument, "backends[1].name is \"first\", which backends[0] has already, expected another",
        [](Good &c) { c.backends[1].name = "first"; } },
      { kNull, "backends[1].record is NULL ... a function", [](Good &c) { c.backends[1].record = nullptr; } },
      { kEnum, "backends[1].flags is 0x40" + flags, [](Good &c) { c.backends[1].flags = 64; } },
      { kEnum, "backends[0].flags is 0x40" + flags, [](Good &c) { c.backends[0].flags = CGR_BACKEND_DECODES_DRAFTS * 2; } },
      { kEnum, "backends[1].flags is 0x80000001" + flags, [](Good &c) { c.backends[1].flags = 1u << 31 | 1; } },
  });
  EachField({ Field(kArgument, "backends[1].reorder_threshold is # ... 0 .. 2147483647", Of(&cgr_backend::reorder_threshold), {},
                    { -1, INT32_MIN }) });
  for (uint32_t bad : { 0u, 3u, 1u << 20 }) {
    const std::string size = "size is " + std::to_string(bad);
    Refused([=](Good &c) { c.backends[0].size = bad; }, { { kStruct, "backends[0] " + size } });
  }
  Accepted([](Good &c) {
    c.backends[0].name = longest.c_str();
    c.backends[0].check = nullptr;
    c.backends[0].support = nullptr;
    c.backends[0].reorder_threshold = INT32_MAX;
    c.backends[0].flags = CGR_BACKEND_APPENDS;
  });
}

TEST_P(ConfigBackends, TheListIsChecked) {
  for (int32_t backend : { 0, 1, 2, 9, INT32_MAX }) { // what the layers name is not known then
    const auto count = [=](Good &c, int64_t value) {
      c.config.num_backends = int32_t(value);
      c.layers[1].backend = backend;
    };
    EachField({ Field(kArgument, "num_backends is # ... 0 .. 8", count, {}, { -1, 9, INT32_MAX }) });
    Refused([=](Good &c) { c.config.backends = nullptr, c.layers[1].backend = backend; }, kNull,
            "backends is NULL ... an array of 2 ... num_backends");
  }
  static const char *const others[] = { "; there is no other", " or 1 (backends[0])", " or 1 .. 2 (backends[0] .. backends[1])" };
  for (int32_t count : { 0, 1, 2 }) {
    const auto set = [=](Good &c, int64_t value) { c.config.num_backends = count, c.layers[1].backend = int32_t(value); };
    EachField({ Field(kArgument, std::string("layers[1].backend is #, expected 0 (the library's own)") + others[count], set, {},
                      { count + 1, -1, INT32_MAX }) });
  }
}

// It is valid, but surely not intended.
TEST_P(ConfigBackends, OneThatNoLayerNamesIsLogged) {
  std::vector<std::pair<cgr_log_level, std::string>> told;
  auto log = [](void *context, cgr_log_level level, const char *text) {
    static_cast<decltype(told) *>(context)->emplace_back(level, text);
  };
  for (int32_t named : { 0, 1, 2 }) {
    told.clear();
    OnChanged(
        [&](Good &c) {
          c.layers[1].backend = named;
          c.config.log = log, c.config.log_context = &told;
        },
        [](cgr_runtime *) {});
    decltype(told) want;
    if (named != 1)
      want.emplace_back(CGR_LOG_WARNING, "backends[0] (first) is named by no layer: layer.backend is the index + 1");
    if (named != 2)
      want.emplace_back(CGR_LOG_WARNING, "backends[1] (second) is named by no layer: layer.backend is the index + 1");
    EXPECT_EQ(told, want);
  }
}

// Caches of 8 bits, from elements of 16.
void Quantise(Good &c, cgr_dtype k, cgr_dtype v) {
  c.layers[1].dtype = CGR_DTYPE_BF16, c.layers[1].k.dtype = k, c.layers[1].v.dtype = v;
}

// A factor for each page, token and head of k, after all caches.
void FactorsOfTokens(Good &c) {
  cgr_kv_view &k = c.layers[1].k;
  k.scale = reinterpret_cast<float *>(Good::Address(16));
  k.scale_stride_page = Good::kPageSize * Good::kHeads, k.scale_stride_token = Good::kHeads, k.scale_stride_head = 1;
}

// Without CGR_BACKEND_APPENDS the library's append must be able to.
TEST_P(ConfigBackends, TheAppendMustBeAble) {
  const ConfigMistakes dtypes = {
    { kUnsupported, "layers[1].dtype is fp8_e4m3 (0 takes the cache's) ... fp32, fp16 or bf16 ... CGR_BACKEND_APPENDS",
      [](Good &c) { c.layers[1].k.dtype = c.layers[1].v.dtype = CGR_DTYPE_FP8_E4M3; } },
    { kUnsupported, "layers[1].v.dtype is fp16 and the layer's dtype bf16, expected the same, or fp8_e4m3, fp8_e5m2 or i8",
      [](Good &c) { c.layers[1].v.dtype = CGR_DTYPE_FP16; } },
    { kUnsupported, "layers[1].k.scale is NULL, expected factors for a cache of i8 ... CGR_BACKEND_APPENDS",
      [](Good &c) { Quantise(c, CGR_DTYPE_I8, CGR_DTYPE_FP8_E4M3); } },
    { kUnsupported, "layers[1].k.scale has page and token strides 32, 2, expected 0, 0 in a cache of fp8_e5m2",
      [](Good &c) { Quantise(c, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_FP8_E5M2), FactorsOfTokens(c); } },
    { kUnsupported, "layers[1].k.scale has strides 32, 2, 0, 0, expected a factor for each page, token and head",
      [](Good &c) {
        Quantise(c, CGR_DTYPE_I8, CGR_DTYPE_BF16), FactorsOfTokens(c);
        c.layers[1].k.scale_stride_head = 0;
      } },
    { kUnsupported, "layers[1].k.scale is given, expected NULL for a cache of bf16 ... CGR_BACKEND_APPENDS",
      [](Good &c) { c.layers[1].k.scale = reinterpret_cast<float *>(Good::Address(16)); } },
  };
  EachRefused(dtypes);
  EachRefused({
      { kUnsupported, "layers[1].head_dim is 64 with head_dim_v 32",
        [](Good &c) { c.backends[0].check = nullptr, c.layers[1].head_dim_v = 32; } }, // Check expects equal head dims
  });
  for (const Mistake<Good> &dtype : dtypes)
    Accepted([&](Good &c) { c.backends[0].flags = CGR_BACKEND_APPENDS, dtype.change(c); });
}

TEST_P(ConfigBackends, TheAppendQuantises) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 })
    Accepted([&](Good &c) { Quantise(c, dtype, CGR_DTYPE_BF16); });
  Accepted([](Good &c) { Quantise(c, CGR_DTYPE_I8, CGR_DTYPE_BF16), FactorsOfTokens(c); });
  Accepted([](Good &c) {
    Quantise(c, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8);
    c.layers[1].v.scale = reinterpret_cast<float *>(Good::Address(16));
    c.layers[1].v.scale_stride_head = Good::kDim, c.layers[1].v.scale_stride_d = 1; // one for each channel
  });
  // Factors are looked at as those of a backend that appends.
  Refused(
      [](Good &c) {
        Quantise(c, CGR_DTYPE_I8, CGR_DTYPE_BF16), FactorsOfTokens(c);
        c.layers[1].k.scale = reinterpret_cast<float *>(c.layers[1].v.base);
      },
      CGR_ERROR_INVALID_ARGUMENT, "layers[1].k.scale overlaps layers[1].v");
}

// What the library's own kernels cannot do is the backend's to judge.
TEST_P(ConfigBackends, WhatTheLibraryLacksIsTheBackendsToJudge) {
  static const float device_float = 1.0f;
  Accepted([](Good &c) {
    c.layers[1].softcap = 30.0f;
    c.layers[1].window_left = 100;
    c.layers[1].chunk = 512;
    c.layers[1].sinks = c.layers[1].alibi_slopes = &device_float;
    c.layers[1].flags = CGR_LAYER_BIDIRECTIONAL;
  });
  Accepted([](Good &c) {
    c.config.num_layers = 2; // the third one reads the second's cache
    c.layers[1].flags = CGR_LAYER_NO_CACHE;
    c.layers[1].dtype = CGR_DTYPE_BF16;
    c.layers[1].k = c.layers[1].v = cgr_kv_view{};
  });
  RefusedFor({ Reason(kUnsupported, "softcap", "is 30, expected 0") },
             { { kUnsupported, "layers[1].softcap is 30, expected 0 ... (backend first)" } });
}

TEST_P(ConfigBackends, AllItsReasonsAreTold) {
  RefusedFor({ Reason(kUnsupported, "head_dim", "is 64, expected 128"), Reason(kArgument, "num_q_heads", "is 4, expected 8"),
               Reason(kUnsupported, "window_left", "is 0, expected a window") },
             { { kUnsupported, "layers[1].head_dim ... expected 128 ... first" },
               { kArgument, "layers[1].num_q_heads is 4" },
               { kUnsupported, "layers[1].window_left ... a window" } });
  // A status that is none, or no error, is "unsupported".
  for (int status : { 0, 1, -3, 9999 })
    RefusedFor({ Reason(cgr_status(status), "scale", "is odd") }, { { kUnsupported, "layers[1].scale is odd" } });
  // Without a field it is the layer.
  RefusedFor({ Reason(kUnsupported, "", "is not mine") }, { { kUnsupported, "layers[1] is not mine" } });
  RefusedFor({ Reason(kUnsupported, "scale", "") }, { { kUnsupported, "layers[1].scale ... without a reason ... first" } });
  RefusedFor({}, { { kArgument, "layers[1].backend returns -5 ... 0 or more" } }, -5);
  // More than there is room for are counted.
  std::vector<cgr_finding> reasons;
  std::vector<Found> want;
  for (int i = 0; i < 32; i++) {
    reasons.push_back(Reason(kUnsupported, "group", ("reason " + std::to_string(i)).c_str()));
    want.emplace_back(kUnsupported, "layers[1].group reason " + std::to_string(i));
  }
  for (int32_t more : { 33, 36, INT32_MAX }) {
    want.resize(32, want[0]);
    want.emplace_back(kUnsupported, "layers[1].backend has " + std::to_string(more - 32) + " more reasons");
    RefusedFor(reasons, want, more);
  }
}

// The backend is not asked about a device or a group that does not exist.
TEST_P(ConfigBackends, IsAskedAboutWhatThereIs) {
  Good c(device_, more_);
  c.config.device_handle = nullptr, c.config.device = "cuda:99";
  RefusedAsItIs(c.config, { { cgr_validate(&c.config, nullptr, nullptr, 0, &asked_), "device" } });
  EXPECT_EQ(says_[0].checks, 0);
  EXPECT_EQ(says_[0].supports, 0);
  for (int32_t groups : { 0, 5, INT32_MAX })
    for (int32_t group : { 4, 31, INT32_MAX - 1 }) {
      Good g(device_, more_);
      g.config.num_groups = groups;
      g.layers[1].group = group;
      EXPECT_NE(cgr_validate(&g.config, nullptr, nullptr, 0, &asked_), CGR_OK);
    }
}

// Unterminated text stays within its bounds.
TEST_P(ConfigBackends, ReasonsThatDoNotEndAreCut) {
  cgr_finding endless = { CGR_ERROR_UNSUPPORTED, -1, -1, 0, {}, {} };
  std::memset(endless.field, 'f', sizeof endless.field);
  std::memset(endless.text, 't', sizeof endless.text);
  says_[0].reasons = { endless };
  Good c(device_, more_);
  cgr_finding found[2];
  int32_t count = 0;
  EXPECT_EQ(cgr_validate(&c.config, nullptr, found, 2, &count), CGR_ERROR_UNSUPPORTED);
  EXPECT_EQ(count, 1);
  EXPECT_LT(strlen(found[0].field), sizeof found[0].field);
  EXPECT_LT(strlen(found[0].text), sizeof found[0].text);
}

// The lowest support of all backends in use decides, and is named; a value unknown to this version counts as NEVER.
TEST_P(ConfigBackends, TheLeastSupportDecidesTheMode) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  const struct {
    int first, second, own; // what the backends and the configuration support
    cgr_graph_mode mode;
    Words reason;
  } cases[] = {
    { CGR_SUPPORT_ALWAYS, CGR_SUPPORT_ALWAYS, 0, CGR_MODE_FULL, {} },
    { CGR_SUPPORT_DEFAULT, CGR_SUPPORT_ALWAYS, 0, CGR_MODE_FULL, {} },
    { CGR_SUPPORT_UNIFORM_BATCH, CGR_SUPPORT_ALWAYS, 0, CGR_MODE_FULL_AND_PIECEWISE, {} },
    { CGR_SUPPORT_UNIFORM_BATCH,
      CGR_SUPPORT_NEVER,
      0,
      CGR_MODE_PIECEWISE,
      { "backend second says so for group 0", "CGR_SUPPORT_NEVER" } },
    { 5, CGR_SUPPORT_ALWAYS, 0, CGR_MODE_PIECEWISE, {} },
    { 7, CGR_SUPPORT_ALWAYS, 0, CGR_MODE_PIECEWISE, {} },
    { CGR_SUPPORT_ALWAYS, CGR_SUPPORT_ALWAYS, CGR_SUPPORT_NEVER, CGR_MODE_PIECEWISE, { "attention_support says so" } },
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(&each - cases);
    says_[0].support = cgr_graph_support(each.first);
    says_[1].support = cgr_graph_support(each.second);
    ExpectMode(each.mode, each.reason, [&](Good &c) {
      c.layers[0].backend = 2;
      c.config.attention_support = each.own, c.config.num_layers = 2;
    });
  }
}

// One backend may hold different things in a graph for the layers of different groups.
TEST_P(ConfigBackends, EveryGroupIsAsked) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  auto two = [](Good &c) {
    c.config.num_groups = c.config.num_layers = 2, c.config.graph_mode = CGR_MODE_FULL;
    c.groups[1].num_pages = 65;
    c.layers[0].backend = 1;
    c.layers[1].group = 1;
  };
  says_[0].of_65_pages = CGR_SUPPORT_UNIFORM_BATCH;
  ExpectMode(CGR_MODE_FULL_AND_PIECEWISE, { "backend first says so for group 1" }, two);
  EXPECT_EQ(says_[0].supports, 2);
  says_[0].support = CGR_SUPPORT_NEVER;
  ExpectMode(CGR_MODE_PIECEWISE, { "for group 0" }, two);
}

// Head counts may decide; whether groups are asked does not matter.
TEST_P(ConfigBackends, EveryLayerIsAsked) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  for (bool groups : { true, false }) {
    SCOPED_TRACE(groups);
    auto two = [&](Good &c) {
      c.config.num_layers = 2, c.config.graph_mode = CGR_MODE_FULL;
      c.layers[0].backend = 1, c.layers[1].num_q_heads = 8;
      c.backends[0].support_layer = SupportLayer;
      c.backends[0].support = groups ? Support : nullptr;
    };
    says_[0] = {};
    ExpectMode(CGR_MODE_FULL, {}, two);
    EXPECT_EQ(says_[0].layers, 2);
    EXPECT_EQ(says_[0].supports, groups);
    says_[0].of_8_heads = CGR_SUPPORT_UNIFORM_BATCH;
    ExpectMode(CGR_MODE_FULL_AND_PIECEWISE, { "backend first says so for layer 1" }, two);
    says_[0].support = CGR_SUPPORT_NEVER; // of the group
    ExpectMode(groups ? CGR_MODE_PIECEWISE : CGR_MODE_FULL_AND_PIECEWISE, { groups ? "for group 0" : "for layer 1" }, two);
    says_[0].support = CGR_SUPPORT_ALWAYS, says_[0].of_8_heads = cgr_graph_support(9);
    ExpectMode(CGR_MODE_PIECEWISE, { "backend first: its support of layer 1 is 9, expected 0 .. 4" }, two);
  }
}

// Zero is none, and so is that of a backend without layers.
TEST_P(ConfigBackends, TheSmallestThresholdInUseCounts) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  struct Case {
    int32_t first, second; // thresholds
    bool both;             // are in use; or the first alone
    int32_t smallest;
  };
  for (const Case &t : { Case{ 9, 2, true, 2 }, Case{ 2, 9, true, 2 }, Case{ 0, 4, true, 4 }, Case{ 4, 0, true, 4 },
                         Case{ 9, 2, false, 9 }, Case{ 0, 4, false, 0 } }) {
    SCOPED_TRACE(std::to_string(t.first) + " and " + std::to_string(t.second) + (t.both ? "" : ", which is not used"));
    auto change = [&](Good &c) {
      c.backends[0].reorder_threshold = t.first;
      c.backends[1].reorder_threshold = t.second;
      c.layers[0].backend = t.both ? 2 : 0;
    };
    OnChanged(change, [&](cgr_runtime *runtime) {
      for (int32_t length = 1; length < 12; length++) // a longer one, and then this: out of order if this one alone is a decode
        ExpectOrder(runtime, { length + 1, length }, length == t.smallest);
    });
  }
}

// Which is 0 by default.
TEST_P(ConfigBackends, AUniformSplitNeedsAThreshold) {
  const Change uniform = [](Good &c) { c.backends[1].flags = CGR_BACKEND_UNIFORM_SPLIT; };
  Refused(uniform, kArgument, "backends[1].reorder_threshold is 0, expected 1 or more with CGR_BACKEND_UNIFORM_SPLIT");
  Refused([](Good &c) { c.backends[1].flags = CGR_BACKEND_DECODES_DRAFTS; }, kArgument,
          "backends[1].reorder_threshold is 0, expected 1 or more with CGR_BACKEND_DECODES_DRAFTS");
  for (int32_t threshold : { 1, 4 })
    Accepted([=](Good &c) { uniform(c), c.backends[1].reorder_threshold = threshold; });
}

// The order that a batch must have is that of the threshold: where a uniform split ends its decodes, shorter requests may follow.
TEST_P(ConfigBackends, AUniformSplitNeedsNoOtherOrder) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  auto change = [&](Good &c) { c.backends[0].reorder_threshold = 3, c.backends[0].flags = CGR_BACKEND_UNIFORM_SPLIT; };
  OnChanged(change, [&](cgr_runtime *runtime) {
    ExpectOrder(runtime, { 2, 1, 2, 3 }, false);
    ExpectOrder(runtime, { 3, 3, 2, 9 }, false);
    ExpectOrder(runtime, { 4, 3 }, true);
    ExpectOrder(runtime, { 3, 5, 3 }, true);
  });
}

// The caller's string may change, or go.
TEST_P(ConfigBackends, ItsNameIsCopied) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  char name[] = "original";
  auto change = [&](Good &c) {
    c.backends[0].name = name;
    c.backends[0].record = FailingRecord;
    c.backends[0].flags = CGR_BACKEND_APPENDS;
  };
  OnChanged(change, [&](cgr_runtime *runtime) {
    std::memset(name, 'x', sizeof name - 1);
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = RecordLayerOne;
    ExpectMessage(cgr_runtime_capture(runtime, &capture), CGR_ERROR_CALLBACK,
                  { "backend original, layer 1: record returned CGR_ERROR_BUSY" });
  });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigBackends);

} // namespace
} // namespace cgr_test

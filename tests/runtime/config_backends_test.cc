// Engine backends that must be refused, with all reasons at once; and how good ones affect the mode.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

// What a backend says; its context.
struct Says {
  std::vector<cgr_finding> reasons;
  cgr_graph_support support = CGR_SUPPORT_ALWAYS;
  cgr_graph_support of_65_pages = CGR_SUPPORT_ALWAYS; // for layers of a group that has so many
  int checks = 0, supports = 0;
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
cgr_status Record(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }
cgr_status FailingRecord(void *, cgr_recorder *, const cgr_attention *) { return CGR_ERROR_BUSY; }

// An engine that attends to layer 1 alone. Its views are made up: nothing may run.
cgr_status RecordLayerOne(cgr_recorder *recorder, void *) {
  cgr_attention a = CGR_ATTENTION_INIT;
  a.layer = 1;
  for (cgr_view *view : { &a.q, &a.k, &a.v, &a.out })
    *view = { GoodConfig::Address(0), CGR_DTYPE_BF16, 0, 4 * GoodConfig::kDim, GoodConfig::kDim };
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
  Change With(Change change = nullptr) {
    return [this, change](GoodConfig &c) {
      for (int i = 0; i < 2; i++) {
        backends_[i] = CGR_BACKEND_INIT;
        backends_[i].name = i == 0 ? "first" : "second";
        backends_[i].context = &says_[i];
        backends_[i].check = Check;
        backends_[i].support = Support;
        backends_[i].record = Record;
      }
      c.config.backends = backends_;
      c.config.num_backends = 2;
      c.layers[1].backend = 1;
      if (change)
        change(c);
    };
  }
  template <class Set> void RefusedBackend(Set set, cgr_status status, const std::string &member, const Words &words) {
    Refused(With([&](GoodConfig &) { set(backends_[1]); }), { Find(status, "backends[1]" + member, words) });
  }
  template <class Set> void RefusedLayer(Set set, cgr_status status, const std::string &member, const Words &words) {
    Refused(With([&](GoodConfig &c) { set(c.layers[1]); }), { FindInLayer(1, status, member, words) });
  }
  void RefusedFor(std::vector<cgr_finding> reasons, const std::vector<Found> &want) {
    says_[0].reasons = std::move(reasons);
    Refused(With(), want);
    says_[0] = {};
  }
  template <class Use> void OnRuntime(const Change &change, Use use) {
    GoodConfig c(device_);
    change(c);
    cgr_runtime *runtime = nullptr;
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
    use(runtime);
    CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  }
  // The mode of a runtime, and why.
  std::pair<cgr_graph_mode, std::string> ModeOf(const Change &change) {
    std::pair<cgr_graph_mode, std::string> result;
    OnRuntime(change, [&](cgr_runtime *runtime) {
      const char *reason = "";
      result.first = cgr_test::ModeOf(runtime, &reason);
      result.second = reason;
    });
    return result;
  }
  // What a prepare returns for a request of each length, whole or by the standing batch; its step is given up.
  static cgr_status ChooseFor(cgr_runtime *runtime, const std::vector<int32_t> &lens, bool standing = false) {
    std::vector<int32_t> rows(lens.size()), tokens(GoodConfig::kPageSize * lens.size(), 1);
    for (size_t i = 0; i < lens.size(); i++) {
      const int32_t page = 8 + int32_t(i);
      CGR_EXPECT_OK(cgr_request_open(runtime, i, &rows[i]));
      CGR_EXPECT_OK(cgr_request_set_pages(runtime, rows[i], 0, 0, &page, 1));
    }
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_key key;
    batch.num_requests = int32_t(lens.size());
    batch.rows = rows.data();
    batch.query_lens = lens.data();
    batch.tokens = tokens.data();
    for (size_t i = 0; standing && i < lens.size(); i++)
      CGR_EXPECT_OK(cgr_standing_add(runtime, nullptr, rows[i], lens[i], tokens.data(), 0));
    if (standing) {
      batch = CGR_BATCH_INIT;
      batch.num_requests = CGR_BATCH_STANDING;
    }
    cgr_status status = cgr_step_choose(runtime, &batch, &key);
    const std::string message = cgr_last_message();
    for (int32_t row : rows) {
      if (standing)
        CGR_EXPECT_OK(cgr_standing_remove(runtime, nullptr, row));
      CGR_EXPECT_OK(cgr_request_close(runtime, row));
    }
    EXPECT_EQ(message, cgr_last_message());
    return status;
  }
  cgr_backend backends_[2];
  Says says_[2];
  int32_t asked_ = 0;
};

TEST_P(ConfigBackends, AGoodOneIsAskedOncePerLayerAndGroup) {
  Accepted(With());
  says_[0] = {};
  GoodConfig c(device_);
  With([](GoodConfig &g) { g.layers[0].backend = g.layers[2].backend = 1; })(c);
  EXPECT_EQ(cgr_validate(&c.config, nullptr, nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER);
  int32_t count = -1;
  says_[0] = {};
  EXPECT_EQ(cgr_validate(&c.config, nullptr, nullptr, 0, &count), CGR_OK) << cgr_last_message();
  EXPECT_EQ(says_[0].checks, 3);
  EXPECT_EQ(says_[0].supports, 1);
  EXPECT_EQ(says_[1].checks + says_[1].supports, 0) << "it is not used";
}

// The library appends for a backend that does not, in pieces that it counts in 32 bits.
TEST_P(ConfigBackends, LayersThatTheAppendCannotCountAreRefused) {
  const auto wide = [this](int32_t max_tokens) {
    return With([=](GoodConfig &c) {
      cgr_layer &l = c.layers[1];
      l.num_q_heads = l.num_kv_heads = 1024;
      c.config.max_tokens = max_tokens;
      for (cgr_kv_view *view : { &l.k, &l.v })
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, GoodConfig::Address(view == &l.k ? 100 : 300), CGR_DTYPE_BF16, 16, 1024,
                                       GoodConfig::kDim, view));
    });
  };
  const int32_t most = INT32_MAX / 8192; // pieces of a token
  Accepted(wide(most - 1));
  Refused(wide(most + 1), { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "num_kv_heads",
                                        { "is 1024", "max_tokens 262144", "2147483648 pieces",
                                          "expected at most 2147482623, or a backend with CGR_BACKEND_APPENDS" }) });
}

TEST_P(ConfigBackends, TheStructIsChecked) {
  static const std::string longest(31, 'n'), longer(32, 'n');
  RefusedBackend([](cgr_backend &b) { b.name = nullptr; }, CGR_ERROR_NULL_POINTER, ".name", { "NULL" });
  RefusedBackend([](cgr_backend &b) { b.name = ""; }, CGR_ERROR_INVALID_ARGUMENT, ".name", { "\"\"", "1 to 31" });
  RefusedBackend([](cgr_backend &b) { b.name = longer.c_str(); }, CGR_ERROR_INVALID_ARGUMENT, ".name",
                 { longest + "...", "1 to 31" });
  RefusedBackend([](cgr_backend &b) { b.record = nullptr; }, CGR_ERROR_NULL_POINTER, ".record", { "NULL", "a function" });
  RefusedBackend([](cgr_backend &b) { b.flags = 4; }, CGR_ERROR_INVALID_ENUM, ".flags", { "0x4", "CGR_BACKEND_*" });
  RefusedBackend([](cgr_backend &b) { b.flags = 1u << 31 | 1; }, CGR_ERROR_INVALID_ENUM, ".flags", { "0x80000001" });
  for (int32_t bad : { -1, INT32_MIN })
    RefusedBackend([&](cgr_backend &b) { b.reorder_threshold = bad; }, CGR_ERROR_INVALID_ARGUMENT, ".reorder_threshold",
                   { "is " + std::to_string(bad), "0 .. 2147483647" });
  for (uint32_t bad : { 0u, 3u, 1u << 20 }) {
    GoodConfig c(device_);
    With()(c);
    backends_[0].size = bad;
    int32_t count = 0;
    cgr_finding first[4];
    EXPECT_EQ(cgr_validate(&c.config, nullptr, first, 4, &count), CGR_ERROR_INVALID_STRUCT) << bad;
    EXPECT_STREQ(first[0].field, "backends[0]");
  }
  Accepted(With([this](GoodConfig &) {
    backends_[0].name = longest.c_str();
    backends_[0].check = nullptr;
    backends_[0].support = nullptr;
    backends_[0].reorder_threshold = INT32_MAX;
    backends_[0].flags = CGR_BACKEND_APPENDS;
  }));
}

TEST_P(ConfigBackends, TheListIsChecked) {
  for (int32_t backend : { 0, 1, 2, 9, INT32_MAX }) { // what the layers name is not known then
    for (int32_t bad : { -1, 9, INT32_MAX })
      Refused(With([&](GoodConfig &c) { c.config.num_backends = bad, c.layers[1].backend = backend; }),
              { Find(CGR_ERROR_INVALID_ARGUMENT, "num_backends", { "is " + std::to_string(bad), "0 .. 8" }) });
    Refused(With([&](GoodConfig &c) { c.config.backends = nullptr, c.layers[1].backend = backend; }),
            { Find(CGR_ERROR_NULL_POINTER, "backends", { "NULL", "an array of 2", "num_backends" }) });
  }
  static const char *const others[] = { "; there is no other", " or 1 (backends[0])", " or 1 .. 2 (backends[0] .. backends[1])" };
  for (int32_t count : { 0, 1, 2 })
    for (int32_t bad : { count + 1, -1, INT32_MAX })
      Refused(With([&](GoodConfig &c) { c.config.num_backends = count, c.layers[1].backend = bad; }),
              { FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "backend",
                            { "is " + std::to_string(bad) + ", expected 0 (the library's own)" + others[count] }) });
}

// Messages tell them apart by their names.
TEST_P(ConfigBackends, NamesAreTheirOwn) {
  Refused(With([this](GoodConfig &) { backends_[1].name = "first"; }),
          { Find(CGR_ERROR_INVALID_ARGUMENT, "backends[1].name",
                 { "is \"first\", which backends[0] has already, expected another" }) });
}

// It is valid, but surely not intended.
TEST_P(ConfigBackends, OneThatNoLayerNamesIsLogged) {
  std::vector<std::pair<cgr_log_level, std::string>> told;
  auto log = [](void *context, cgr_log_level level, const char *text) {
    static_cast<decltype(told) *>(context)->emplace_back(level, text);
  };
  for (int32_t named : { 0, 1, 2 }) {
    told.clear();
    OnRuntime(With([&](GoodConfig &c) {
                c.layers[1].backend = named;
                c.config.log = log;
                c.config.log_context = &told;
              }),
              [](cgr_runtime *) {});
    decltype(told) want;
    if (named != 1)
      want.emplace_back(CGR_LOG_WARNING, "backends[0] (first) is named by no layer: layer.backend is the index + 1");
    if (named != 2)
      want.emplace_back(CGR_LOG_WARNING, "backends[1] (second) is named by no layer: layer.backend is the index + 1");
    EXPECT_EQ(told, want);
  }
}

// Without CGR_BACKEND_APPENDS the library's append must be able to.
TEST_P(ConfigBackends, TheAppendMustBeAble) {
  auto fp8 = [](cgr_layer &l) { l.k.dtype = l.v.dtype = CGR_DTYPE_FP8_E4M3; };
  auto mixed = [](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16; };
  auto wider = [](cgr_layer &l) { l.dtype = CGR_DTYPE_FP32; };
  auto value = [](cgr_layer &l) { l.head_dim_v = 32; };
  RefusedLayer(fp8, CGR_ERROR_UNSUPPORTED, "k.dtype", { "fp8_e4m3", "CGR_BACKEND_APPENDS" });
  RefusedLayer(mixed, CGR_ERROR_UNSUPPORTED, "k.dtype", { "bf16 beside fp16 of v" });
  RefusedLayer(wider, CGR_ERROR_UNSUPPORTED, "k.dtype", { "fp32 of the layer" });
  static float scale;
  RefusedLayer([](cgr_layer &l) { l.k.scale = &scale; }, CGR_ERROR_UNSUPPORTED, "k.scale", { "CGR_BACKEND_APPENDS" });
  RefusedLayer([](cgr_layer &l) { l.v.scale = &scale; }, CGR_ERROR_UNSUPPORTED, "v.scale", { "CGR_BACKEND_APPENDS" });
  says_[0] = {};
  GoodConfig c(device_);
  With(nullptr)(c);
  backends_[0].check = nullptr; // it expects equal head dims
  value(c.layers[1]);
  RefusedAsItIs(c.config, { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "head_dim", { "is 64 beside head_dim_v 32" }) });
  for (const std::function<void(cgr_layer &)> &change :
       { std::function<void(cgr_layer &)>(fp8), std::function<void(cgr_layer &)>(mixed),
         std::function<void(cgr_layer &)>(wider) })
    Accepted(With([&](GoodConfig &g) {
      backends_[0].flags = CGR_BACKEND_APPENDS;
      change(g.layers[1]);
    }));
}

// What the library's own kernels cannot do is the backend's to judge.
TEST_P(ConfigBackends, WhatTheLibraryLacksIsTheBackendsToJudge) {
  static const float device_float = 1.0f;
  Accepted(With([](GoodConfig &c) {
    c.layers[1].softcap = 30.0f;
    c.layers[1].window_left = 100;
    c.layers[1].chunk = 512;
    c.layers[1].sinks = c.layers[1].alibi_slopes = &device_float;
    c.layers[1].flags = CGR_LAYER_BIDIRECTIONAL;
  }));
  Accepted(With([](GoodConfig &c) {
    c.config.num_layers = 2; // the third one reads the second's cache
    c.layers[1].flags = CGR_LAYER_NO_CACHE;
    c.layers[1].dtype = CGR_DTYPE_BF16;
    c.layers[1].k = c.layers[1].v = cgr_kv_view{};
  }));
  RefusedFor({ Reason(CGR_ERROR_UNSUPPORTED, "softcap", "is 30, expected 0") },
             { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "softcap", { "is 30, expected 0", "(backend first)" }) });
}

TEST_P(ConfigBackends, AllItsReasonsAreTold) {
  RefusedFor({ Reason(CGR_ERROR_UNSUPPORTED, "head_dim", "is 64, expected 128"),
               Reason(CGR_ERROR_INVALID_ARGUMENT, "num_q_heads", "is 4, expected 8"),
               Reason(CGR_ERROR_UNSUPPORTED, "window_left", "is 0, expected a window") },
             { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "head_dim", { "expected 128", "first" }),
               FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "num_q_heads", { "is 4" }),
               FindInLayer(1, CGR_ERROR_UNSUPPORTED, "window_left", { "a window" }) });
  // A status that is none, or no error, is "unsupported".
  for (int status : { 0, 1, -3, 9999 })
    RefusedFor({ Reason(cgr_status(status), "scale", "is odd") },
               { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "scale", { "is odd" }) });
  // Without a field it is the layer.
  says_[0].reasons = { Reason(CGR_ERROR_UNSUPPORTED, "", "is not mine") };
  Refused(With(), { { CGR_ERROR_UNSUPPORTED, 1, -1, "layers[1]", { "is not mine" } } });
  // More than there is room for are counted.
  for (int32_t more : { 33, 36, INT32_MAX }) {
    std::vector<Found> want;
    says_[0] = {};
    for (int i = 0; i < 32; i++) {
      says_[0].reasons.push_back(Reason(CGR_ERROR_UNSUPPORTED, "group", ("reason " + std::to_string(i)).c_str()));
      want.push_back(FindInLayer(1, CGR_ERROR_UNSUPPORTED, "group", { "reason " + std::to_string(i) }));
    }
    says_[0].told = more;
    want.push_back(FindInLayer(1, CGR_ERROR_UNSUPPORTED, "backend", { "has " + std::to_string(more - 32) + " more reasons" }));
    Refused(With(), want);
  }
  says_[0] = {};
  says_[0].told = -5;
  Refused(With(), { FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "backend", { "returns -5", "0 or more" }) });
  says_[0] = {};
  RefusedFor({ Reason(CGR_ERROR_UNSUPPORTED, "scale", "") },
             { FindInLayer(1, CGR_ERROR_UNSUPPORTED, "scale", { "without a reason", "first" }) });
}

// The backend is not asked about a device or a group that does not exist.
TEST_P(ConfigBackends, IsAskedAboutWhatThereIs) {
  GoodConfig c(device_);
  With()(c);
  c.config.device_handle = nullptr;
  c.config.device = "cuda:99";
  RefusedAsItIs(c.config, { Find(cgr_validate(&c.config, nullptr, nullptr, 0, &asked_), "device", {}) });
  EXPECT_EQ(says_[0].checks, 0);
  EXPECT_EQ(says_[0].supports, 0);
  for (int32_t groups : { 0, 5, INT32_MAX })
    for (int32_t group : { 4, 31, INT32_MAX - 1 }) {
      GoodConfig g(device_);
      With()(g);
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
  GoodConfig c(device_);
  With()(c);
  cgr_finding found[2];
  int32_t count = 0;
  EXPECT_EQ(cgr_validate(&c.config, nullptr, found, 2, &count), CGR_ERROR_UNSUPPORTED);
  EXPECT_EQ(count, 1);
  EXPECT_LT(strlen(found[0].field), sizeof found[0].field);
  EXPECT_LT(strlen(found[0].text), sizeof found[0].text);
}

// The lowest support of all backends in use decides, and is named; a value unknown to this version counts as NEVER.
TEST_P(ConfigBackends, TheLeastSupportDecidesTheMode) {
  auto both = [](GoodConfig &c) { c.layers[0].backend = 2; };
  auto mode = [&](cgr_graph_support first, cgr_graph_support second, int32_t own = CGR_SUPPORT_DEFAULT) {
    says_[0].support = first;
    says_[1].support = second;
    return ModeOf(With([&](GoodConfig &c) {
      both(c);
      c.config.attention_support = own;
      c.config.num_layers = 2;
    }));
  };
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  EXPECT_EQ(mode(CGR_SUPPORT_ALWAYS, CGR_SUPPORT_ALWAYS), std::make_pair(CGR_MODE_FULL, std::string()));
  EXPECT_EQ(mode(CGR_SUPPORT_DEFAULT, CGR_SUPPORT_ALWAYS).first, CGR_MODE_FULL);
  EXPECT_EQ(mode(CGR_SUPPORT_UNIFORM_BATCH, CGR_SUPPORT_ALWAYS).first, CGR_MODE_FULL_AND_PIECEWISE);
  auto never = mode(CGR_SUPPORT_UNIFORM_BATCH, CGR_SUPPORT_NEVER);
  EXPECT_EQ(never.first, CGR_MODE_PIECEWISE);
  EXPECT_NE(never.second.find("backend second says so for group 0"), std::string::npos) << never.second;
  EXPECT_NE(never.second.find("CGR_SUPPORT_NEVER"), std::string::npos) << never.second;
  EXPECT_EQ(mode(cgr_graph_support(5), CGR_SUPPORT_ALWAYS).first, CGR_MODE_PIECEWISE);
  EXPECT_EQ(mode(cgr_graph_support(7), CGR_SUPPORT_ALWAYS).first, CGR_MODE_PIECEWISE);
  auto own = mode(CGR_SUPPORT_ALWAYS, CGR_SUPPORT_ALWAYS, CGR_SUPPORT_NEVER);
  EXPECT_EQ(own.first, CGR_MODE_PIECEWISE);
  EXPECT_NE(own.second.find("attention_support says so"), std::string::npos) << own.second;
}

// One backend may hold different things in a graph for the layers of different groups.
TEST_P(ConfigBackends, EveryGroupIsAsked) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  auto two = [](GoodConfig &c) {
    c.config.num_groups = c.config.num_layers = 2;
    c.config.graph_mode = CGR_MODE_FULL;
    c.groups[1].num_pages = 65;
    c.layers[0].backend = 1;
    c.layers[1].group = 1;
  };
  says_[0].of_65_pages = CGR_SUPPORT_UNIFORM_BATCH;
  auto mode = ModeOf(With(two));
  EXPECT_EQ(mode.first, CGR_MODE_FULL_AND_PIECEWISE);
  EXPECT_NE(mode.second.find("backend first says so for group 1"), std::string::npos) << mode.second;
  EXPECT_EQ(says_[0].supports, 2);
  says_[0].support = CGR_SUPPORT_NEVER;
  mode = ModeOf(With(two));
  EXPECT_EQ(mode.first, CGR_MODE_PIECEWISE);
  EXPECT_NE(mode.second.find("for group 0"), std::string::npos) << mode.second;
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
    auto change = [&](GoodConfig &c) {
      backends_[0].reorder_threshold = t.first;
      backends_[1].reorder_threshold = t.second;
      c.layers[0].backend = t.both ? 2 : 0;
    };
    OnRuntime(With(change), [&](cgr_runtime *runtime) {
      for (int32_t length = 1; length < 12; length++) {
        // A longer one, and then this: out of order if this one alone is a decode.
        const bool refused = length == t.smallest;
        const Words words = { "reorder_threshold is " + std::to_string(length) };
        for (bool standing : { false, true })
          ExpectMessage(ChooseFor(runtime, { length + 1, length }, standing), refused ? CGR_ERROR_INVALID_ARGUMENT : CGR_OK,
                        refused ? words : Words());
      }
    });
  }
}

// The caller's string may change, or go.
TEST_P(ConfigBackends, ItsNameIsCopied) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU's runtime needs real addresses";
  char name[] = "original";
  auto change = [&](GoodConfig &) {
    backends_[0].name = name;
    backends_[0].record = FailingRecord;
    backends_[0].flags = CGR_BACKEND_APPENDS;
  };
  OnRuntime(With(change), [&](cgr_runtime *runtime) {
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

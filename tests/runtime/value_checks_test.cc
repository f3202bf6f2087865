// cgr_record_check_values through whole steps: the result names the requests whose rows held NaN or an infinity, in steps of
// every kind, and no others; what it refuses; what it costs when it is off.
#include <cmath>

#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

enum { kWidth = 33, kLogitsBit = 3, kHiddenBit = 9, kMaxTokens = 64 };

class ValueChecks : public EngineTest {
protected:
  void Make(cgr_graph_mode mode, int32_t check_values = 1) {
    EngineOptions options =
        OptionsFor(GetParam(), mode, { { 16, 8 }, { 64, 8 } }, [&](cgr_config *config) { config->check_values = check_values; });
    options.max_tokens = kMaxTokens;
    engine_.reset();
    engine_ = std::make_unique<Engine>(options);
    logits_ = static_cast<float *>(engine_->Alloc(kMaxTokens * kWidth * sizeof(float)));
    hidden_ = static_cast<float *>(engine_->Alloc(kMaxTokens * kWidth * sizeof(float)));
    engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) { return Ask(recorder, at); };
    Fill({}, {});
    CGR_ASSERT_OK(engine_->Capture());
  }
  static cgr_value_check Check(const float *data, int32_t dimension, int32_t bit) {
    cgr_value_check check = CGR_VALUE_CHECK_INIT;
    check.data = data, check.width = kWidth, check.dtype = CGR_DTYPE_FP32, check.dimension = dimension;
    check.bit = bit;
    return check;
  }
  cgr_status Ask(cgr_recorder *recorder, int32_t at) {
    if (at != 1)
      return CGR_OK;
    cgr_value_check logits = Check(logits_, CGR_DIMENSION_REQUESTS, kLogitsBit);
    cgr_value_check hidden = Check(hidden_, CGR_DIMENSION_TOKENS, kHiddenBit);
    logits.flags = CGR_VALUES_MASKED;
    CGR_EXPECT_OK(cgr_record_check_values(recorder, &logits));
    return cgr_record_check_values(recorder, &hidden);
  }
  // Everything is NaN but the rows that are named, which are zeros, or have the value as one of their elements.
  using Rows = std::vector<std::pair<int32_t, float>>;
  void FillOne(float *to, const Rows &rows) {
    std::vector<float> all(kMaxTokens * kWidth, NAN);
    for (auto [row, value] : rows) {
      std::fill_n(all.begin() + row * kWidth, kWidth, 0.0f);
      all[size_t(row * kWidth + row % kWidth)] = value;
    }
    engine_->Write(to, all.data(), all.size() * sizeof(float));
  }
  void Fill(const Rows &logits, const Rows &hidden) {
    FillOne(logits_, logits);
    FillOne(hidden_, hidden);
  }
  // Runs the step and returns the bits of each request.
  std::vector<uint32_t> Bits(const std::vector<Item> &items, const cgr_key *forced) {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(engine_->Prepare(items, forced));
    CGR_EXPECT_OK(engine_->Launch());
    CGR_EXPECT_OK(cgr_step_wait(engine_->rt, engine_->step.mark, -1, &result));
    EXPECT_EQ(result.num_requests, int32_t(items.size()));
    std::vector<uint32_t> bits;
    if (result.values != nullptr)
      bits.assign(result.values, result.values + result.num_requests);
    engine_->CheckAll();
    return bits;
  }

  float *logits_ = nullptr, *hidden_ = nullptr;
};

const uint32_t kLogits = 1u << kLogitsBit, kHidden = 1u << kHiddenBit;

TEST_P(ValueChecks, TheResultNamesTheRequests) {
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    const cgr_key small = KeyOfMode(mode, 16), large = KeyOfMode(mode, 64);
    const std::vector<int32_t> r = { engine_->Open(), engine_->Open(), engine_->Open() };
    using V = std::vector<uint32_t>;
    const float inf = INFINITY, nan = NAN;
    const Rows fine = { { 0, 1.0f }, { 1, -2.0f }, { 2, 3e38f } };
    Rows tokens;
    for (int32_t t = 0; t < 25; t++)
      tokens.push_back({ t, float(t) });
    Fill(fine, tokens); // rows after the real ones are NaN
    EXPECT_EQ(Bits(engine_->Chunks({ { r[0], 5 }, { r[1], 19 }, { r[2], 1 } }), &large), V({ 0, 0, 0 }));
    tokens[4].second = nan, tokens[24].second = inf; // the first request's last token and the last one's first
    Fill({ { 0, 0.0f }, { 1, inf }, { 2, -inf } }, tokens);
    EXPECT_EQ(Bits(engine_->Chunks({ { r[0], 5 }, { r[1], 19 }, { r[2], 1 } }), &large), V({ kHidden, kLogits, kHidden }));
    Fill(fine, { { 0, -inf }, { 1, 0.0f }, { 2, 0.0f } });
    EXPECT_EQ(Bits(engine_->Decode(r), &small), V({ kHidden, 0, 0 }));
    Fill(fine, fine);
    EXPECT_EQ(Bits(engine_->Decode(r), &small), V({ 0, 0, 0 }));
    // A request without new tokens has stale rows, which do not count; a partial chunk counts.
    std::vector<Item> items = engine_->Chunks({ { r[0], 2 }, { r[2], 3 } });
    items[1].partial = true;
    items.insert(items.begin() + 1, Item{ r[1], {} });
    Fill({ { 0, 0.0f }, { 1, nan }, { 2, nan } }, { { 0, 0.0f }, { 1, 0.0f }, { 2, 0.0f }, { 3, 0.0f }, { 4, nan } });
    EXPECT_EQ(Bits(items, &small), V({ 0, 0, kLogits | kHidden }));
  }
}

TEST_P(ValueChecks, AStepThatWasGivenUpLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE));
  const std::vector<int32_t> r = { engine_->Open(), engine_->Open() };
  engine_->Step(engine_->Chunks({ { r[0], 4 }, { r[1], 4 } }));
  Fill({}, {}); // all is NaN
  engine_->state.fail_after = 2, engine_->state.fail_status = CGR_ERROR_INVALID_ARGUMENT;
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(r)));
  EXPECT_EQ(engine_->Launch(), CGR_ERROR_CALLBACK);
  engine_->state.fail_after = -1;
  engine_->WaitForAll();
  Fill({ { 0, 0.0f }, { 1, 0.0f } }, { { 0, 0.0f }, { 1, 0.0f } });
  EXPECT_EQ(Bits(engine_->Decode(r), nullptr), std::vector<uint32_t>({ 0, 0 }));
}

// Nothing is enqueued and nothing is told; the arguments are checked all the same.
TEST_P(ValueChecks, AreOffUnlessAsked) {
  int64_t nodes[2];
  for (int32_t on : { 0, 1 }) {
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, on));
    nodes[on] = engine_->GraphStats(0).num_nodes;
    const int32_t row = engine_->Open();
    EXPECT_EQ(Bits(engine_->Chunks({ { row, 3 } }), nullptr).size(), on ? 1u : 0u);
  }
  EXPECT_EQ(nodes[1], nodes[0] + 2);
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE, 0));
  engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    cgr_value_check check = Check(nullptr, CGR_DIMENSION_TOKENS, 0);
    return at == 0 ? cgr_record_check_values(recorder, &check) : CGR_OK;
  };
  CGR_ASSERT_OK(engine_->Prepare(engine_->Chunks({ { engine_->Open(), 3 } })));
  ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "cgr_record_check_values: data is NULL" });
  engine_->hook = nullptr;
  engine_->WaitForAll();
}

// A graph whose `record` names other regions still holds those of its checks.
TEST_P(ValueChecks, GraphsHoldTheirRegions) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  int32_t checked = -1, other = -1, named = -1;
  CGR_ASSERT_OK(cgr_region_register(engine_->rt, logits_, 4, &checked));
  CGR_ASSERT_OK(cgr_region_register(engine_->rt, engine_->state.next_tokens, 4, &other));
  CGR_ASSERT_OK(cgr_region_register(engine_->rt, engine_->state.token_table, 4, &named));
  engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    return at == 0 ? cgr_record_use(recorder, named) : Ask(recorder, at);
  };
  auto is_stale_after_moving = [&](int32_t region, const void *base) {
    CGR_EXPECT_OK(cgr_region_move(engine_->rt, region, base, 4));
    return engine_->GraphStats(0).state == CGR_GRAPH_STALE;
  };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_FALSE(is_stale_after_moving(other, engine_->state.next_tokens));
  EXPECT_TRUE(is_stale_after_moving(checked, logits_));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(ValueChecks);

// --------------------------------------------------------------------------------------------------------------- refusals

struct Bad {
  const char *name;
  cgr_status status;
  Words words;
  std::function<void(cgr_value_check *)> change;
};

class ValueCheckIsRefused : public ThreeRequests {};

TEST_P(ValueCheckIsRefused, ByName) {
  float *rows = static_cast<float *>(engine_->Alloc(kMaxTokens * kWidth * sizeof(float)));
  engine_->Sync();
  using C = cgr_value_check;
  const std::vector<Bad> bads = {
    { "flags", CGR_ERROR_INVALID_ENUM, { "flags is 0x2" }, [](C *c) { c->flags = 2; } },
    { "no data", CGR_ERROR_NULL_POINTER, { "data is NULL" }, [](C *c) { c->data = nullptr; } },
    { "odd data",
      CGR_ERROR_INVALID_ARGUMENT,
      { "data is 0x", "multiple of 4" },
      [&](C *c) { c->data = reinterpret_cast<char *>(rows) + 2; } },
    { "beyond its allocation",
      CGR_ERROR_INVALID_ARGUMENT,
      { "data takes", "where its allocation" },
      [](C *c) { c->stride = int64_t(1) << 30; } },
    { "no width", CGR_ERROR_INVALID_ARGUMENT, { "width is 0", "1 .. 2^31" }, [](C *c) { c->width = 0; } },
    { "large width", CGR_ERROR_INVALID_ARGUMENT, { "width is 2147483649" }, [](C *c) { c->width = (int64_t(1) << 31) + 1; } },
    { "small stride", CGR_ERROR_INVALID_ARGUMENT, { "stride is 32", "width (33)" }, [](C *c) { c->stride = kWidth - 1; } },
    { "large stride", CGR_ERROR_INVALID_ARGUMENT, { "stride is 2147483649" }, [](C *c) { c->stride = (int64_t(1) << 31) + 1; } },
    { "no dtype", CGR_ERROR_INVALID_ENUM, { "dtype is none (0)" }, [](C *c) { c->dtype = 0; } },
    { "8 bits", CGR_ERROR_UNSUPPORTED, { "dtype is fp8_e4m3" }, [](C *c) { c->dtype = CGR_DTYPE_FP8_E4M3; } },
    { "rows", CGR_ERROR_INVALID_ENUM, { "dimension is 3" }, [](C *c) { c->dimension = CGR_DIMENSION_ROWS; } },
    { "no dimension", CGR_ERROR_INVALID_ENUM, { "dimension is 0" }, [](C *c) { c->dimension = 0; } },
    { "bit", CGR_ERROR_INVALID_ARGUMENT, { "bit is 16", "0 .. 15" }, [](C *c) { c->bit = 16; } },
    { "negative bit", CGR_ERROR_INVALID_ARGUMENT, { "bit is -1" }, [](C *c) { c->bit = -1; } },
    { "reserved", CGR_ERROR_NEWER_STRUCT, { "reserved is 7" }, [](C *c) { c->reserved = 7; } },
    { "size", CGR_ERROR_INVALID_STRUCT, { "check" }, [](C *c) { c->size = 0; } },
  };
  for (const Bad &bad : bads) {
    SCOPED_TRACE(bad.name);
    if (bad.name == std::string("beyond its allocation") && GetParam().HasCudaKernels())
      continue; // an eager step without the layer does not look at it
    Words words = bad.words;
    words.push_back("cgr_record_check_values: ");
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      C check = CGR_VALUE_CHECK_INIT;
      check.data = rows, check.width = kWidth, check.dtype = CGR_DTYPE_FP32, check.dimension = CGR_DIMENSION_TOKENS;
      bad.change(&check);
      if (at == 0)
        ExpectMessage(cgr_record_check_values(recorder, &check), bad.status, words);
      return CGR_OK; // although it failed
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    Words cause = words;
    cause.push_back(cgr_status_name(bad.status));
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, cause);
    engine_->hook = nullptr;
    engine_->CheckAll();
    engine_->WaitForAll();
  }
  engine_->Step(EagerItems());
}

// Rows of 2^31 floats are 2^19 stretches of 16 KB: 4096 of them are one too many, and with 4096 floats less each they fit.
TEST_P(ValueCheckIsRefused, WithMoreStretchesThanAGridHolds) {
  constexpr int32_t kRows = 4096;
  constexpr int64_t kMost = int64_t(1) << 31;
  EngineOptions options = OptionsFor(GetParam(), CGR_MODE_FULL, { { 64, 8 }, { kRows, 8 } });
  options.max_tokens = kRows;
  ASSERT_NO_FATAL_FAILURE(Make(options));
  static float rows[1]; // of another allocator's memory, whose end cgr does not know
  cgr_key key = CGR_KEY_INIT;
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt) && key.num_tokens != kRows; i++)
    key = engine_->GraphStats(i).key;
  ASSERT_EQ(key.num_tokens, kRows);
  for (int64_t width : { kMost, kMost - 4095, kMost - 4096 }) {
    SCOPED_TRACE(width);
    const bool fits = width == kMost - 4096;
    int calls = 0;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at != 0)
        return CGR_OK;
      EXPECT_EQ(info.key.num_tokens, kRows);
      cgr_value_check check = CGR_VALUE_CHECK_INIT;
      check.data = rows, check.width = width, check.dtype = CGR_DTYPE_FP32, check.dimension = CGR_DIMENSION_TOKENS;
      const cgr_status status = cgr_record_check_values(recorder, &check);
      ExpectMessage(status, fits ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT,
                    fits ? Words()
                         : Words{ "cgr_record_check_values: width is " + std::to_string(width), "2147483648 stretches",
                                  "4096 rows, expected less than 2^31" });
      calls++;
      return CGR_OK; // although it failed
    };
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    cgr_capture capture = engine_->CaptureStruct();
    capture.keys = &key, capture.num_keys = 1;
    ExpectMessage(cgr_runtime_capture(engine_->rt, &capture), fits ? CGR_OK : CGR_ERROR_CALLBACK,
                  fits ? Words() : Words{ "stretches" });
    EXPECT_EQ(calls, 1);
  }
  engine_->hook = nullptr;
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(ValueCheckIsRefused, InTheConfiguration) {
  cgr_config config = engine_->Config();
  cgr_runtime *runtime = nullptr;
  config.check_values = 2;
  ExpectMessage(cgr_runtime_create(&config, &runtime), CGR_ERROR_INVALID_ARGUMENT, { "check_values is 2", "0 .. 1" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(ValueCheckIsRefused);

} // namespace
} // namespace cgr_test

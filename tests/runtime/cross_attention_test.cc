// Decoders that attend to an encoder's output: it is filled by steps of its own length set and read by every step of the
// sequences, with the same bits in every mode, and checked against attention in fp64.
#include "tests/support/modes.h"
#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using namespace sets;

const cgr_graph_mode kModes[] = { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY };

class CrossAttention : public OverDevices {
protected:
  // Rows encoded early, late and in chunks; a request that leaves its row and pages to another; a row without new tokens.
  // Returns what the steps wrote, and of which kind they were.
  static Bytes Scenario(SetsEngine &e, std::vector<int32_t> *kinds) {
    Bytes all;
    auto add = [&](const Bytes &bytes) {
      all.insert(all.end(), bytes.begin(), bytes.end());
      kinds->push_back(e.step.key.kind);
    };
    const int32_t a = e.Open(), b = e.Open(), c = e.Open();
    add(e.Decode({ { a, 5 }, { b, 1 } })); // nothing is encoded
    add(e.Encode({ { a, 17 }, { b, 3 } }));
    add(e.Decode({ { a, 1 }, { b, 1 }, { c, 1 } }));
    add(e.Encode({ { c, 40 } }));
    add(e.Encode({ { a, 20 }, { c, 1 } })); // another chunk
    for (int i = 0; i < 3; i++)
      add(e.Decode({ { a, 1 }, { b, 1 }, { c, 1 } }));
    add(e.Encode({ { b, 33 }, { a, 0 }, { c, 1 } }));
    add(e.Decode({ { c, 2 }, { a, 30 }, { b, 1 } }));
    e.Close(b);
    const int32_t d = e.Open();
    EXPECT_EQ(d, b);
    add(e.Decode({ { d, 2 }, { a, 1 } }));
    add(e.Encode({ { d, 1 } }));
    add(e.Decode({ { d, 1 }, { a, 1 }, { c, 0 } }));
    return all;
  }
  void CompareModes(const Options &options) {
    const uint64_t seed = Seed();
    SCOPED_TRACE(Repeat(seed));
    std::vector<int32_t> kinds;
    Captured<SetsEngine> eager(GetParam(), CGR_MODE_NONE, options, seed);
    const Bytes expected = Scenario(eager, &kinds);
    for (int32_t kind : kinds)
      EXPECT_EQ(kind, int32_t(CGR_KIND_NONE));
    for (cgr_graph_mode mode : kModes) {
      SCOPED_TRACE(cgr_graph_mode_name(mode));
      Captured<SetsEngine> engine(GetParam(), mode, options, seed);
      kinds.clear();
      const Bytes got = Scenario(engine, &kinds);
      ASSERT_TRUE(got == expected) << "the bits differ from those of eager steps";
      int32_t full = 0, pieces = 0;
      for (int32_t kind : kinds) {
        full += kind == CGR_KIND_FULL;
        pieces += kind == CGR_KIND_PIECEWISE;
      }
      EXPECT_EQ(full > 0, mode != CGR_MODE_PIECEWISE);
      EXPECT_EQ(pieces > 0, mode == CGR_MODE_PIECEWISE || mode == CGR_MODE_FULL_AND_PIECEWISE);
      EXPECT_TRUE(mode != CGR_MODE_FULL || full == int32_t(kinds.size()));
    }
  }
};

TEST_P(CrossAttention, EveryModeGivesTheSameBitsAndTheOraclesValues) { CompareModes(EncoderAndDecoder()); }

// Two encoders, each with a cache: of the second set the layer attends to it in its own steps, too.
TEST_P(CrossAttention, ThreeSetsStandNextToEachOther) {
  Options options = OptionsOf({ { 16, 40 }, { 16, 40, 0, 1, 2 }, { 64, 16, 0, 1, 1 } },
                              { Layer(2, 1, Keys::kOther, true, 2, 2, 64), Layer(1, 2, Keys::kOther, true, 4, 2, 32),
                                Layer(0, 0, Keys::kCache, false, 2, 1, 32), Layer(0, 2, Keys::kStep, true, 2, 2, 32, 3) },
                              3);
  options.layers[1].attends = true;
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Bytes expected;
  for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    Captured<SetsEngine> e(GetParam(), mode, options, seed);
    const int32_t a = e.Open(), b = e.Open();
    Bytes all = e.Encode({ { b, 30 }, { a, 2 } }, 2);
    for (const Bytes &bytes : { e.Decode({ { a, 3 }, { b, 20 } }), e.Encode({ { a, 50 } }, 1), e.Decode({ { a, 1 }, { b, 1 } }),
                                e.Encode({ { a, 15 } }, 2), e.Encode({ { b, 9 } }, 1), e.Decode({ { a, 1 }, { b, 1 } }) })
      all.insert(all.end(), bytes.begin(), bytes.end());
    if (mode == CGR_MODE_NONE)
      expected = all;
    ASSERT_TRUE(all == expected);
  }
}

// Neither decoder nor encoder steps write the other's pages or unowned ones: the runtime's self-test of all graphs.
TEST_P(CrossAttention, SelfTestAndAuditFindNothing) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Captured<SetsEngine> e(GetParam(), mode, EncoderAndDecoder(), seed);
    std::vector<int32_t> pages;
    for (int group = 0; group < 2; group++)
      for (int32_t p = 2; p < 22; p++)
        pages.push_back(p);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.num_pages = 20, test.pages = pages.data(), test.max_token = 100, test.seed = uint32_t(seed);
    int32_t count = -1;
    cgr_finding findings[4];
    CGR_EXPECT_OK(cgr_runtime_self_test(e.rt, &test, findings, 4, &count));
    EXPECT_EQ(count, 0);
    CGR_EXPECT_OK(cgr_runtime_audit(e.rt, nullptr, findings, 4, &count));
    EXPECT_EQ(count, 0);
    cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
    const cgr_capture capture = e.CaptureStruct();
    CGR_EXPECT_OK(cgr_runtime_estimate_capture(e.rt, &capture, &estimate));
    EXPECT_EQ(estimate.num_keys, 0);
  }
}

TEST_P(CrossAttention, WarmUpAndDummyStepsTouchNoPage) {
  SetsEngine e(GetParam(), CGR_MODE_FULL, EncoderAndDecoder(), 3);
  const cgr_capture capture = e.CaptureStruct();
  CGR_ASSERT_OK(cgr_runtime_warmup(e.rt, &capture));
  CGR_ASSERT_OK(e.Capture());
  const int32_t a = e.Open();
  e.Encode({ { a, 20 } });
  e.Decode({ { a, 4 } });
  for (int32_t set = 0; set < 2; set++) {
    e.Run({}, set, nullptr);
    EXPECT_EQ(e.step.key.variant, uint32_t(set));
    EXPECT_EQ(e.step.key.kind, int32_t(CGR_KIND_FULL));
  }
  e.Decode({ { a, 1 } }); // over what is there: nothing was written
}

// ---------------------------------------------------------------------------------------------------------- what is told

class Told : public CrossAttention {
protected:
  // A step of the set in which the layer's call is changed fails and says why; the next one is right.
  void ExpectReported(int32_t set, size_t layer, const std::function<void(cgr_attention *)> &change, const Words &words) {
    Captured<SetsEngine> e(GetParam(), CGR_MODE_NONE, EncoderAndDecoder(), 5);
    const int32_t a = e.Open();
    e.Encode({ { a, 5 } });
    e.Reserve(a, 0, 4);
    e.adjust_call = [&](size_t l, cgr_attention *call) {
      if (l == layer)
        change(call);
    };
    CGR_ASSERT_OK(e.Prepare({ { a, 3 } }, set));
    ExpectMessage(cgr_step_launch(e.rt, &e.step, e.stream), CGR_ERROR_CALLBACK, words);
    e.adjust_call = nullptr;
    e.Close(a); // other layers may have appended by then
    const int32_t b = e.Open();
    e.Encode({ { b, 2 } });
    e.Decode({ { b, 1 } });
  }
};

TEST_P(Told, ALayerThatIsLeftOut) {
  auto leave_out = [](cgr_attention *call) { call->layer = -1; };
  ExpectReported(1, 0, leave_out, { "layer 0 of 5", "length set 1", "attend" });
  ExpectReported(1, 2, leave_out, { "layer 2 of 5", "length set 1", "append to" });
  ExpectReported(0, 2, leave_out, { "layer 2 of 5", "left out" });
  ExpectReported(0, 4, leave_out, { "layer 4 of 5", "left out" });
}

TEST_P(Told, ALayerInAStepThatItHasNoPartIn) {
  auto call = [](int32_t layer) { return [layer](cgr_attention *a) { a->layer = layer; }; };
  ExpectReported(1, 0, call(1), { "layer 1 of length set 0", "step of set 1", "variant 1", "its own set" });
  ExpectReported(0, 1, call(0), { "layer 0 of length set 1", "step of set 0", "its own set" });
}

TEST_P(Told, FlagsThatHaveNoMeaning) {
  auto flag = [](uint32_t flags) { return [flags](cgr_attention *a) { a->flags = flags; }; };
  ExpectReported(1, 0, flag(CGR_ATTENTION_NO_APPEND), { "NO_APPEND", "layer 0", "CGR_LAYER_NO_CACHE" });
  ExpectReported(1, 0, flag(CGR_ATTENTION_APPEND_ONLY), { "APPEND_ONLY", "layer 0", "CGR_LAYER_NO_CACHE" });
  ExpectReported(0, 2, flag(CGR_ATTENTION_APPEND_ONLY), { "APPEND_ONLY", "layer 2", "another length set" });
  ExpectReported(0, 4, flag(CGR_ATTENTION_APPEND_ONLY), { "APPEND_ONLY", "layer 4", "layer 2's cache" });
}

TEST_P(Told, KeysThatALayerWithoutACacheLacks) {
  ExpectReported(1, 0, [](cgr_attention *a) { a->k.data = nullptr; }, { "k.data is NULL" });
  ExpectReported(1, 0, [](cgr_attention *a) { a->v.stride_head = 8; }, { "v has strides" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(CrossAttention);
CGR_INSTANTIATE_OVER_FEW_DEVICES(Told);

} // namespace
} // namespace cgr_test

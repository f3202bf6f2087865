// Variants of steps: each captured one has its own graphs, the others use those of a declared superset, and `record` finds the
// variant's word in its key. A word that was not declared is refused.
#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

enum { kPlain = 0, kOne = 1, kMany = 9, kAlone = 40 };

class StepVariants : public EngineTest {
protected:
  void SetUpOnDevice() override { Make(CGR_MODE_FULL); }
  void Make(cgr_graph_mode mode) {
    EngineOptions options = OptionsFor(GetParam(), mode, { { 16, 8 }, { 64, 8 } });
    options.adjust = [](cgr_config *config) {
      static const cgr_variant variants[] = { { kOne, kMany, 0, 0 }, { kMany, 0, 1, 0 }, { kAlone, kMany, 1, 0 } };
      config->variants = variants, config->num_variants = 3;
    };
    engine_ = MakeCaptured(options);
    row_ = engine_->Start(3);
  }
  void Run(uint32_t variant, const cgr_key *forced = nullptr) {
    engine_->variant = variant;
    engine_->Step(engine_->Decode({ row_ }), forced);
  }
  void Expect(uint32_t variant, cgr_graph_kind kind, uint32_t used, cgr_reason reason) {
    ASSERT_NO_FATAL_FAILURE(Run(variant));
    EXPECT_EQ(engine_->step.key.kind, int32_t(kind)) << variant;
    EXPECT_EQ(engine_->step.key.variant, used) << variant;
    EXPECT_EQ(std::string(cgr_reason_name(cgr_reason(engine_->step.reason))), cgr_reason_name(reason)) << variant;
  }

  int32_t row_ = -1;
};

TEST_P(StepVariants, EachCapturedOneHasAllKeys) {
  std::map<uint32_t, int> keys, records;
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
    keys[engine_->GraphStats(i).key.variant]++;
  for (const cgr_record_info &info : engine_->records)
    records[info.key.variant]++;
  EXPECT_EQ(keys, (std::map<uint32_t, int>{ { kPlain, 6 }, { kMany, 6 }, { kAlone, 6 } }));
  EXPECT_EQ(records, keys) << "`record` sees the word";
}

// The largest size of every variant, then the next.
TEST_P(StepVariants, CaptureGoesSizeBySize) {
  std::vector<cgr_key> want;
  auto add = [&](cgr_key key) {
    for (uint32_t variant : { kAlone, kMany, kPlain }) {
      key.variant = variant;
      want.push_back(key);
    }
  };
  for (int32_t tokens : { 64, 16 }) {
    cgr_key mixed = KeyOf(CGR_KIND_FULL, 8, tokens);
    mixed.query_len = 0;
    add(mixed);
  }
  for (int32_t requests : { 8, 4, 2, 1 })
    add(FullKey(requests));
  ASSERT_EQ(engine_->records.size(), want.size());
  for (size_t i = 0; i < want.size(); i++) {
    const cgr_key &key = engine_->records[i].key;
    EXPECT_EQ(std::memcmp(&key, &want[i], sizeof key), 0)
        << "capture " << i << " is of variant " << key.variant << ", " << key.num_tokens << " tokens";
  }
}

TEST_P(StepVariants, StepsUseTheirOwnGraphsOrASupersets) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    cgr_graph_kind kind = mode == CGR_MODE_FULL ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
    Expect(kPlain, kind, kPlain, CGR_REASON_EXACT);
    Expect(kOne, kind, kMany, CGR_REASON_SUPERSET);
    Expect(kMany, kind, kMany, CGR_REASON_EXACT);
    Expect(kAlone, kind, kAlone, CGR_REASON_EXACT);
    (void)engine_->Stats(); // they add up
  }
}

TEST_P(StepVariants, AnEagerStepHasItsOwnWord) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_NONE));
  for (uint32_t variant : { kPlain, kOne, kMany, kAlone }) {
    engine_->records.clear();
    Expect(variant, CGR_KIND_NONE, variant, CGR_REASON_MODE_NONE);
    ASSERT_EQ(engine_->records.size(), 1u);
    EXPECT_EQ(engine_->records[0].key.variant, variant);
  }
}

// If a capture failed, the superset serves the steps of its variant.
TEST_P(StepVariants, ASupersetStandsInForAGraphThatFailed) {
  EngineOptions options = engine_->o;
  engine_ = std::make_unique<Engine>(options);
  engine_->hook = [](cgr_recorder *, const cgr_record_info &info, int32_t at) {
    return at == 0 && info.key.variant == kAlone ? CGR_ERROR_CALLBACK : CGR_OK;
  };
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, {});
  engine_->hook = nullptr;
  row_ = engine_->Start(3);
  Expect(kAlone, CGR_KIND_FULL, kMany, CGR_REASON_SUPERSET);
  Expect(kMany, CGR_KIND_FULL, kMany, CGR_REASON_EXACT);
}

TEST_P(StepVariants, AnUndeclaredOneIsRefused) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_NONE }) {
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    for (uint32_t bad : { 2u, 8u, UINT32_MAX }) {
      const Words words = { "variant is " + std::to_string(bad), "cgr_config.variants" };
      engine_->variant = bad;
      ExpectMessage(engine_->Prepare(engine_->Decode({ row_ })), CGR_ERROR_INVALID_ARGUMENT, words);
    }
    ASSERT_NO_FATAL_FAILURE(Run(kPlain));
  }
}

TEST_P(StepVariants, AForcedKeyIsTheBatchsOrASupersets) {
  ASSERT_NO_FATAL_FAILURE(Run(kMany));
  cgr_key key = engine_->step.key;
  ASSERT_NO_FATAL_FAILURE(Run(kOne, &key));
  EXPECT_EQ(engine_->step.key.variant, uint32_t(kMany));
  EXPECT_EQ(engine_->step.reason, CGR_REASON_FORCED);
  engine_->variant = kPlain;
  ExpectMessage(engine_->Prepare(engine_->Decode({ row_ }), &key), CGR_ERROR_INVALID_ARGUMENT,
                { "forced_key.variant is 9", "expected the batch's, 0" });
  engine_->variant = key.variant = kOne;
  ExpectMessage(engine_->Prepare(engine_->Decode({ row_ }), &key), CGR_ERROR_STATE, { "forced_key", "has no graph" });
}

CGR_INSTANTIATE_OVER_DEVICES(StepVariants);

} // namespace
} // namespace cgr_test

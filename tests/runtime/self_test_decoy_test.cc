// What only a decoy shows: a graph that lacks something whose result the engine's own memory, or its host code, still has from an
// eager step. In one graph, one piece, one layer, one variant alone. And engines that are right pass, whatever they keep.
#include <map>

#include "tests/support/found.h"
#include "tests/support/hash_engine.h"
#include "tests/support/modes.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class SelfTestDecoy : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  void Make(const HashOptions &options, HashEngine::Hook skip = nullptr) {
    engine_.reset();
    engine_ = std::make_unique<HashEngine>(GetParam(), options);
    engine_->skip = std::move(skip);
    CGR_ASSERT_OK(engine_->Capture());
  }
  Found Run(bool ranges = true) {
    Found found;
    found.status = engine_->SelfTest(uint32_t(Seed()), &found.findings, ranges);
    found.count = int32_t(found.findings.size());
    return found;
  }
  std::unique_ptr<HashEngine> engine_;
};

HashOptions Everything(cgr_graph_mode mode) {
  HashOptions o;
  o.mode = mode;
  o.chunks = o.groups = o.staged = o.branch = o.copies = o.state = o.call = o.variants = true;
  return o;
}

TEST_P(SelfTestDecoy, FindsNothingInEnginesThatAreRight) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE })
    for (int32_t rows : { 4, 5, 12 }) { // no rows for a decoy of its own, one, as many as it wants
      SCOPED_TRACE(std::string(cgr_graph_mode_name(mode)) + ", " + std::to_string(rows) + " rows");
      HashOptions options = Everything(mode);
      options.max_rows = rows;
      Make(options);
      for (int n = 0; n < 3; n++)
        ExpectNothing(Run());
    }
}

TEST_P(SelfTestDecoy, FindsNothingWithExactLengthsAndOneRow) {
  static const int32_t lens[] = { 1, 3 };
  HashOptions options = Everything(CGR_MODE_FULL_DECODE_ONLY);
  options.adjust = [](cgr_config *config) {
    config->attention_support = CGR_SUPPORT_UNIFORM_BATCH;
    config->query_lens = lens;
    config->num_query_lens = 2;
  };
  Make(options);
  ExpectNothing(Run());
  options = Everything(CGR_MODE_FULL);
  options.max_requests = options.max_rows = 1;
  static const int32_t one = 1;
  static const cgr_bucket mixed[] = { { 1, 1 }, { 7, 1 } };
  options.adjust = [](cgr_config *config) {
    config->decode_buckets = &one;
    config->num_decode_buckets = 1;
    config->mixed_buckets = mixed;
    config->num_mixed_buckets = 2;
  };
  Make(options);
  ExpectNothing(Run());
}

// Each operation of the engine's is skipped while it captures one graph.
TEST_P(SelfTestDecoy, FindsWhatIsSkippedInOneCapture) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    std::vector<std::pair<std::string, int>> names;
    Make(Everything(mode), [&](const std::string &name, int layer, const cgr_record_info &info) {
      if (info.capturing && info.key.query_len == 0 && info.key.variant == 5)
        names.push_back({ name, layer });
      return false;
    });
    ASSERT_GT(names.size(), 20u);
    for (const auto &skipped : names) {
      SCOPED_TRACE(skipped.first + " of layer " + std::to_string(skipped.second));
      CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
      int left_out = 0;
      engine_->skip = [&](const std::string &name, int layer, const cgr_record_info &info) {
        const bool here = info.capturing && info.key.query_len == 0 && info.key.variant == 5 && name == skipped.first &&
                          layer == skipped.second;
        return here && left_out++ == 0; // one of three that have the name
      };
      std::vector<cgr_key> keys;
      for (const cgr_key &key : engine_->Keys())
        if (key.query_len == 0)
          keys.push_back(key);
      CGR_ASSERT_OK(engine_->Capture(keys));
      EXPECT_GE(left_out, 1);
      const Found found = Run();
      EXPECT_EQ(found.status, CGR_ERROR_SELF_TEST);
      for (const cgr_finding &finding : found.findings)
        EXPECT_NE(std::string(finding.field).find(" q0 v5"), std::string::npos) << finding.field << ": " << finding.text;
    }
  }
}

// Host code that thinks it has done something already: for this size, for as many real requests, for this longest sequence, for
// a step like the one before; or in some capture.
TEST_P(SelfTestDecoy, FindsResultsThatHostCodeKeeps) {
  using Of = std::function<std::vector<int32_t>(const cgr_record_info &)>;
  const std::map<std::string, Of> caches = {
    { "size", [](const cgr_record_info &i) { return std::vector<int32_t>{ i.num_tokens }; } },
    { "key",
      [](const cgr_record_info &i) {
        return std::vector<int32_t>{ i.num_tokens, i.num_requests, int32_t(i.key.variant) };
      } },
    { "longest", [](const cgr_record_info &i) { return std::vector<int32_t>{ i.max_seq_len }; } },
    { "real counts",
      [](const cgr_record_info &i) {
        return std::vector<int32_t>{ i.real_tokens, i.real_requests };
      } },
    { "once", [](const cgr_record_info &) { return std::vector<int32_t>{}; } },
  };
  for (const auto &cache : caches)
    for (const char *what : { "embed", "up", "gather" }) {
      SCOPED_TRACE(cache.first + ", " + what);
      std::map<int, std::vector<int32_t>> last;
      std::map<int, bool> has;
      const bool once = cache.first == "once";
      HashOptions options = Everything(CGR_MODE_FULL);
      options.max_rows = options.max_requests; // no decoy of other rows
      Make(options, [&, once](const std::string &name, int layer, const cgr_record_info &info) {
        if (name != what || (once && !info.capturing))
          return false;
        if (!once && info.capturing) // eager steps alone do it
          return true;
        const std::vector<int32_t> now = cache.second(info);
        const bool same = has[layer] && last[layer] == now;
        has[layer] = true;
        last[layer] = now;
        return same;
      });
      EXPECT_EQ(Run().status, CGR_ERROR_SELF_TEST);
    }
}

// Data that is never varied hides what depends on it, and the log says which buffers' it is, once a test.
TEST_P(SelfTestDecoy, VariesStagedDataAndNamesWhatItDoesNot) {
  HashOptions options;
  options.staged = true;
  const auto skip = [](const std::string &name, int layer, const cgr_record_info &info) {
    return info.capturing && name == "gather" && layer == 1;
  };
  Make(options, skip);
  ExpectNothing(Run(false));
  ASSERT_EQ(engine_->logs.size(), 1u);
  EXPECT_NE(engine_->logs[0].find("extra, adapters, of rows"), std::string::npos) << engine_->logs[0];
  engine_->logs.clear();
  EXPECT_EQ(Run().status, CGR_ERROR_SELF_TEST);
  EXPECT_TRUE(engine_->logs.empty());
  engine_->skip = nullptr;
}

// Steps after a test are right: rows, lengths and data are as if it had not been.
TEST_P(SelfTestDecoy, LeavesNothingBehind) {
  Make(Everything(CGR_MODE_FULL));
  HashEngine model(GetParam(), Everything(CGR_MODE_FULL));
  CGR_ASSERT_OK(model.Capture());
  ExpectNothing(Run());
  const int32_t row = engine_->Open(), other = model.Open();
  for (int32_t step = 0; step < 4; step++)
    EXPECT_EQ(engine_->Step({ { row, { 5 + step, 7 }, step } }, nullptr, 0),
              model.Step({ { other, { 5 + step, 7 }, step } }, nullptr, 0));
  engine_->Close(row);
  model.Close(other);
}

INSTANTIATE_TEST_SUITE_P(Devices, SelfTestDecoy, ::testing::ValuesIn(HostDevices()), DeviceLabel);

} // namespace
} // namespace cgr_test

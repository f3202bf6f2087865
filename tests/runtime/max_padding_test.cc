// Steps whose graph would pad too much: they run in pieces or eagerly, under one reason, and the key that was turned down counts
// them, also when the same batch repeats. It is not missed.
#include "tests/support/engine_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr int32_t kRequests = 8, kLongest = 16;

class MaxPadding : public EngineTest {
protected:
  // Keys: 8 requests of 1 token, 8 of 16, and, in modes that have mixed steps, 8 requests with 32 tokens.
  void Make(int32_t mode, float max_padding = 0.0f, bool strict = false) {
    static const int32_t query_lens[] = { 1, kLongest };
    EngineOptions options = OptionsFor(GetParam(), mode, { { 32, kRequests } });
    options.max_tokens = kRequests * kLongest;
    options.buckets = { kRequests };
    options.adjust = [=](cgr_config *config) {
      config->query_lens = query_lens, config->num_query_lens = 2, config->max_padding = max_padding;
      config->strict = strict;
    };
    engine_ = MakeCaptured(options);
    rows_.clear();
    for (int32_t i = 0; i < kRequests; i++)
      rows_.push_back(engine_->Open());
    engine_->records.clear();
  }
  // 8 requests, of which the last has `longest` new tokens, the others one.
  std::vector<Item> OneLong(int32_t longest) {
    std::vector<std::pair<int32_t, int32_t>> chunks;
    for (int32_t row : rows_)
      chunks.push_back({ row, row == rows_.back() ? longest : 1 });
    return engine_->Chunks(chunks);
  }
  void ExpectStep(const std::vector<Item> &items, cgr_graph_kind kind, cgr_reason reason, int32_t tokens) {
    engine_->Step(items);
    EXPECT_EQ(engine_->step.key.kind, kind);
    EXPECT_EQ(engine_->step.reason, reason);
    EXPECT_EQ(engine_->step.key.num_tokens, tokens);
  }
  uint64_t TurnedDown(int32_t key) {
    cgr_key_stats stats = CGR_KEY_STATS_INIT;
    CGR_EXPECT_OK(cgr_runtime_key_stats(engine_->rt, key, &stats));
    EXPECT_EQ(stats.turned_down, engine_->GraphStats(key).turned_down);
    return stats.turned_down;
  }
  uint64_t AllTurnedDown() {
    uint64_t sum = 0;
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
      sum += TurnedDown(i);
    return sum;
  }
  std::string Text(cgr_status (*write)(cgr_runtime *, char *, size_t, size_t *)) {
    size_t length = 0;
    CGR_EXPECT_OK(write(engine_->rt, nullptr, 0, &length));
    std::string text(length + 1, '\0');
    CGR_EXPECT_OK(write(engine_->rt, &text[0], text.size(), &length));
    return text;
  }
  void ExpectCountersAddUp() {
    const cgr_stats stats = engine_->Stats();
    EXPECT_EQ(CountedSteps(stats), stats.steps);
  }

  std::vector<int32_t> rows_;
};

enum { kOfOne = 0, kOfSixteen = 1, kMixed = 2 };

// Leaves `byte` all over the stack that the next call uses.
__attribute__((noinline)) void DirtyStack(int byte) {
  volatile unsigned char stack[1 << 15];
  for (volatile unsigned char &one : stack)
    one = static_cast<unsigned char>(byte);
}

// The eager steps, which no graph turned down, have that count too.
TEST_P(MaxPadding, StatisticsOfEagerStepsHaveNoFieldThatIsNotSet) {
  ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL));
  for (int byte : { 0x5a, 0xa5 }) {
    cgr_key_stats stats = CGR_KEY_STATS_INIT;
    DirtyStack(byte);
    CGR_ASSERT_OK(cgr_runtime_key_stats(engine_->rt, -1, &stats));
    EXPECT_EQ(stats.turned_down, 0u);
    EXPECT_EQ(stats.bytes_estimated, 0);
  }
}

TEST_P(MaxPadding, AnEagerStepServes) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  for (int n = 0; n < 3; n++)
    ExpectStep(OneLong(2), CGR_KIND_NONE, CGR_REASON_TOO_PADDED, 9);
  EXPECT_EQ(engine_->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_TOO_PADDED], 3u);
  EXPECT_EQ(TurnedDown(kOfSixteen), 3u);
  EXPECT_EQ(TurnedDown(kOfOne), 0u);
  EXPECT_EQ(engine_->GraphStats(kOfSixteen).misses, 0u);
  CGR_ASSERT_OK(engine_->Prepare(OneLong(2))); // asking and cancelling count nothing
  CGR_ASSERT_OK(engine_->Cancel());
  EXPECT_EQ(TurnedDown(kOfSixteen), 3u);
  ExpectStep(engine_->Decode(rows_), CGR_KIND_FULL, CGR_REASON_EXACT, 8);
  EXPECT_EQ(AllTurnedDown(), 3u);
  ExpectCountersAddUp();
}

TEST_P(MaxPadding, PiecesServe) {
  Make(CGR_MODE_FULL_AND_PIECEWISE);
  for (int n = 0; n < 4; n++)
    ExpectStep(OneLong(9), CGR_KIND_PIECEWISE, CGR_REASON_PADDED, 32);
  EXPECT_EQ(TurnedDown(kOfSixteen), 4u);
  EXPECT_EQ(AllTurnedDown(), 4u);
  EXPECT_EQ(engine_->Stats().by_reason[CGR_KIND_PIECEWISE][CGR_REASON_PADDED], 4u);
  ExpectCountersAddUp();
}

// Nor is it captured for the steps for which it was turned down.
TEST_P(MaxPadding, WhatWasTurnedDownIsNotMissed) {
  for (int32_t mode : { CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE }) {
    Make(mode);
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    for (int n = 0; n < 2; n++)
      engine_->Step(OneLong(2));
    EXPECT_EQ(TurnedDown(kOfSixteen), 2u);
    EXPECT_EQ(engine_->GraphStats(kOfSixteen).misses, 0u);
    engine_->records.clear();
    cgr_capture capture = engine_->CaptureStruct();
    capture.flags = CGR_CAPTURE_MISSED;
    CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
    std::vector<int32_t> captured;
    for (const auto &info : engine_->records)
      captured.push_back(info.num_tokens);
    EXPECT_EQ(captured, mode == CGR_MODE_FULL_DECODE_ONLY ? std::vector<int32_t>() : std::vector<int32_t>{ 32 });
    EXPECT_EQ(TurnedDown(kOfSixteen), 2u) << "a counter goes on";
  }
}

TEST_P(MaxPadding, TheSettingAndStrictLetItBeTaken) {
  Make(CGR_MODE_FULL_AND_PIECEWISE, 15.0f);
  ExpectStep(OneLong(2), CGR_KIND_FULL, CGR_REASON_PADDED, 128);
  EXPECT_EQ(AllTurnedDown(), 0u);
  Make(CGR_MODE_FULL_DECODE_ONLY, 0.0f, true);
  ExpectStep(OneLong(2), CGR_KIND_FULL, CGR_REASON_PADDED, 128);
  EXPECT_EQ(AllTurnedDown(), 0u);
  EXPECT_EQ(engine_->Stats().refused, 0u);
}

TEST_P(MaxPadding, TextsTellIt) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr)); // so that nothing else has the key listed
  engine_->Step(OneLong(2));
  const std::string table = Text(cgr_runtime_stats_text);
  EXPECT_NE(table.find("turned down"), std::string::npos) << table;
  EXPECT_NE(table.find("too padded"), std::string::npos) << table;
  EXPECT_NE(table.find("full 8r 128t q16"), std::string::npos) << "a key that was only turned down is listed\n" << table;
  const std::string metrics = Text([](cgr_runtime *rt, char *out, size_t capacity, size_t *length) {
    return cgr_runtime_metrics(rt, nullptr, 0, out, capacity, length);
  });
  EXPECT_NE(metrics.find("cgr_key_turned_down_total{key=\"full 8r 128t q16 v0\",kind=\"full\"} 1\n"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("cgr_steps_total{kind=\"none\",reason=\"too padded\"} 1\n"), std::string::npos) << metrics;
}

// Each step has one kind and reason, and at most one key turned down: exactly one if that left the step eager.
TEST_P(MaxPadding, RandomStepsAddUp) {
  SeededRandom random;
  for (int32_t mode : { CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_FULL }) {
    Make(mode, random.OneIn(2) ? 0.0f : 1.0f + float(random.Pick(0, 30)) / 8);
    int turned_down = 0;
    for (int n = 0; n < 60; n++) {
      std::vector<std::pair<int32_t, int32_t>> chunks;
      int32_t tokens = 0;
      for (int32_t &row : rows_) {
        if (engine_->Info(row).num_tokens + kLongest > 150) {
          engine_->Close(row);
          row = engine_->Open();
        }
        const int32_t length = random.OneIn(4) ? random.Pick32(1, kLongest) : 1;
        if (chunks.empty() || !random.OneIn(4)) {
          chunks.push_back({ row, length });
          tokens += length;
        }
      }
      const uint64_t before = AllTurnedDown();
      engine_->Step(engine_->Chunks(chunks));
      ASSERT_FALSE(HasFailure());
      const uint64_t now = AllTurnedDown() - before;
      const cgr_key &key = engine_->step.key;
      ASSERT_LE(now, 1u);
      if (engine_->step.reason == CGR_REASON_TOO_PADDED) {
        ASSERT_EQ(now, 1u);
        ASSERT_EQ(key.kind, CGR_KIND_NONE);
      }
      turned_down += int(now);
    }
    if (mode != CGR_MODE_FULL) { // where a mixed graph of the same kind serves many
      EXPECT_GT(turned_down, 0);
    }
    ExpectCountersAddUp();
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(MaxPadding);

} // namespace
} // namespace cgr_test

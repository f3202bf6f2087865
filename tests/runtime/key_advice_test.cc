// Which keys pay, by the steps that a runtime has run: a runtime with the advised sizes alone pads the same steps to as many
// tokens as the advice says.
#include <limits>

extern "C" {
#include "runtime/runtime.h"
}

#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// Requests, and the new tokens of the last of them; the others have one.
struct Shape {
  int32_t requests, longest;
};

class KeyAdvice : public EngineTest {
protected:
  void Make(const std::vector<int32_t> &decode, const std::vector<cgr_bucket> &mixed) {
    EngineOptions options = OptionsFor(GetParam(), CGR_MODE_FULL, mixed);
    options.buckets = decode;
    options.adjust = [](cgr_config *config) { config->max_padding = 1000.0f; };
    engine_ = MakeCaptured(options);
    rows_.clear();
    for (int32_t i = 0; i < options.max_requests; i++)
      rows_.push_back(engine_->Open());
  }
  // Returns the padded tokens of the step.
  int32_t Run(const Shape &shape) {
    std::vector<std::pair<int32_t, int32_t>> chunks;
    for (int32_t i = 0; i < shape.requests; i++)
      chunks.push_back({ rows_[static_cast<size_t>(i)], i == shape.requests - 1 ? shape.longest : 1 });
    engine_->Step(engine_->Chunks(chunks));
    EXPECT_NE(engine_->step.key.kind, CGR_KIND_NONE);
    return engine_->step.key.num_tokens;
  }
  cgr_key_advice Advise(double max_growth, std::vector<cgr_key> *keys = nullptr) {
    cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
    CGR_EXPECT_OK(cgr_runtime_advise_keys(engine_->rt, max_growth, nullptr, 0, &advice));
    if (keys != nullptr) {
      keys->resize(static_cast<size_t>(advice.num_keys));
      CGR_EXPECT_OK(cgr_runtime_advise_keys(engine_->rt, max_growth, keys->data(), advice.num_keys, &advice));
    }
    return advice;
  }

  std::vector<int32_t> rows_;
};

TEST_P(KeyAdvice, ARuntimeWithTheAdvisedSizesPadsAsMuchAsItSays) {
  SeededRandom random;
  const std::vector<cgr_bucket> mixed = { { 8, 8 }, { 16, 8 }, { 24, 8 }, { 32, 8 } };
  for (double growth : { 0.0, 0.1, 0.5 }) {
    ASSERT_NO_FATAL_FAILURE(Make({ 1, 2, 3, 4, 6, 8 }, mixed));
    std::vector<Shape> shapes;
    int64_t tokens = 0, again = 0;
    for (int i = 0; i < 24; i++) {
      shapes.push_back({ random.Pick32(1, 8), i > 0 && (i == 1 || random.OneIn(3)) ? random.Pick32(2, 16) : 1 });
      tokens += Run(shapes.back());
    }
    std::vector<cgr_key> keys;
    const cgr_key_advice advice = Advise(growth, &keys);
    EXPECT_EQ(advice.steps, shapes.size());
    EXPECT_EQ(static_cast<int64_t>(advice.tokens), tokens);
    std::vector<int32_t> decode;
    std::vector<cgr_bucket> fewer;
    for (const cgr_key &key : keys)
      if (key.query_len > 0)
        decode.push_back(key.num_requests);
      else
        fewer.push_back({ key.num_tokens, key.num_requests });
    ASSERT_FALSE(decode.empty());
    ASSERT_FALSE(fewer.empty());
    ASSERT_NO_FATAL_FAILURE(Make(decode, fewer));
    for (const Shape &shape : shapes)
      again += Run(shape);
    EXPECT_EQ(again, static_cast<int64_t>(advice.tokens_after)) << "growth " << growth;
    EXPECT_LE(static_cast<double>(again), static_cast<double>(tokens) * (1 + growth) + 1e-6);
  }
}

TEST_P(KeyAdvice, SumsAreThoseOfTheGraphs) {
  ASSERT_NO_FATAL_FAILURE(Make({ 1, 2, 4, 8 }, { { 32, 8 } }));
  Run({ 1, 1 }), Run({ 2, 1 }), Run({ 2, 1 });
  std::vector<cgr_key> keys;
  const cgr_key_advice advice = Advise(0.0, &keys);
  ASSERT_EQ(advice.num_keys, 2);
  EXPECT_EQ(advice.steps, 3u);
  EXPECT_EQ(advice.tokens, 5u);
  EXPECT_EQ(advice.tokens_after, 5u);
  uint64_t bytes = 0, bytes_after = 0;
  double ms = 0.0, ms_after = 0.0;
  for (int32_t i = 0; i < NumKeys(engine_->rt); i++) {
    const cgr_graph_stats stats = engine_->GraphStats(i);
    const bool pays = stats.key.query_len == 1 && stats.key.num_requests <= 2;
    bytes += static_cast<uint64_t>(stats.device_bytes), bytes_after += pays ? static_cast<uint64_t>(stats.device_bytes) : 0;
    ms += stats.capture_ms, ms_after += pays ? stats.capture_ms : 0.0;
  }
  EXPECT_EQ(advice.bytes, bytes);
  EXPECT_EQ(advice.bytes_after, bytes_after);
  EXPECT_DOUBLE_EQ(advice.ms, ms);
  EXPECT_DOUBLE_EQ(advice.ms_after, ms_after);
}

TEST_P(KeyAdvice, ForcedStepsDoNotCountAndMissedOnesDo) {
  ASSERT_NO_FATAL_FAILURE(Make({ 1, 2, 4, 8 }, { { 32, 8 } }));
  const cgr_key forced = engine_->GraphStats(0).key;
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  engine_->Step(engine_->Chunks({ { rows_[0], 1 }, { rows_[1], 1 } })); // misses the key of 2 requests
  const cgr_capture capture = engine_->CaptureStruct();
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
  std::vector<Item> items = engine_->Chunks({ { rows_[0], 1 } });
  engine_->Step(items, &forced);
  std::vector<cgr_key> keys;
  const cgr_key_advice advice = Advise(0.0, &keys);
  EXPECT_EQ(advice.steps, 0u) << "a capture of the key ends its misses";
  EXPECT_EQ(advice.num_keys, 0);
  EXPECT_EQ(advice.tokens_after, 0u);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  engine_->Step(engine_->Chunks({ { rows_[0], 1 }, { rows_[1], 1 } }));
  const cgr_key_advice missed = Advise(0.0, &keys);
  EXPECT_EQ(missed.steps, 1u);
  ASSERT_EQ(missed.num_keys, 1);
  EXPECT_EQ(keys[0].num_requests, 2);
  EXPECT_EQ(missed.bytes, 0u);
}

TEST_P(KeyAdvice, WritesNoMoreKeysThanFit) {
  ASSERT_NO_FATAL_FAILURE(Make({ 1, 2, 4, 8 }, { { 32, 8 } }));
  Run({ 1, 1 }), Run({ 2, 1 }), Run({ 4, 1 });
  cgr_key keys[3] = {};
  cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
  CGR_ASSERT_OK(cgr_runtime_advise_keys(engine_->rt, 0.0, keys, 2, &advice));
  EXPECT_EQ(advice.num_keys, 3);
  EXPECT_EQ(keys[0].num_requests, 1);
  EXPECT_EQ(keys[1].num_requests, 2);
  EXPECT_EQ(keys[2].num_requests, 0);
}

TEST_P(KeyAdvice, RefusesWhatItCannotUse) {
  ASSERT_NO_FATAL_FAILURE(Make({ 1, 8 }, { { 32, 8 } }));
  cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
  advice.num_keys = 99;
  auto refused = [&](cgr_status status, const Words &words, double growth, int32_t capacity) {
    ExpectRefused(*engine_, status, words,
                  [&] { return cgr_runtime_advise_keys(engine_->rt, growth, nullptr, capacity, &advice); });
  };
  for (double growth : { -0.01, 1.01, 5.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity() })
    refused(CGR_ERROR_INVALID_ARGUMENT, { "max_growth is", "expected 0 .. 1 (0.01 is 1%)" }, growth, 0);
  refused(CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1", "expected 0 or more" }, 0.0, -1);
  refused(CGR_ERROR_NULL_POINTER, { "keys is NULL", "capacity is 1" }, 0.0, 1);
  EXPECT_EQ(advice.num_keys, 99);
  CGR_EXPECT_OK(cgr_runtime_advise_keys(engine_->rt, 1.0, nullptr, 0, &advice));
  EXPECT_EQ(advice.num_keys, 0);
}

TEST_P(KeyAdvice, ADeadRuntimeStillTells) {
  ASSERT_NO_FATAL_FAILURE(Make({ 1, 2, 4, 8 }, { { 32, 8 } }));
  Run({ 1, 1 });
  engine_->dead = true;
  CGR_EXPECT(CGR_ERROR_DEAD, cgr__runtime_die(engine_->rt, 0, "a test"));
  EXPECT_EQ(Advise(0.0).num_keys, 1);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(KeyAdvice);

} // namespace
} // namespace cgr_test

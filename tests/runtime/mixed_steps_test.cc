// Steps of every kind replay: FULL and PIECEWISE graphs give the bits of eager steps of the same padded counts, padding included,
// over random traces of two groups.
#include <map>
#include <memory>

#include "tests/support/groups_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class MixedSteps : public OverDevices {
protected:
  using Chunks = std::vector<std::pair<int32_t, int32_t>>; // row, new tokens

  // The last one is forced to run eagerly.
  void Make(uint64_t seed, const std::vector<cgr_graph_mode> &modes) {
    random_ = std::make_unique<Random>(seed);
    for (cgr_graph_mode mode : modes) {
      const int32_t dim = GetParam().HasCudaKernels() ? 64 : 16; // what they compute takes most of the time
      EngineOptions options = groups::OptionsFor(
          GetParam(), mode, seed, { groups::Layer(0, 2, 1, dim, CGR_DTYPE_BF16), groups::Layer(1, 5, 1, dim, CGR_DTYPE_BF16) });
      options.adjust = [](cgr_config *config) { config->strict = 1; }; // no step may lack its graph
      engines_.push_back(std::make_unique<Engine>(options));
      CGR_EXPECT_OK(engines_.back()->Capture());
    }
  }
  std::vector<int32_t> Rows() const { return engines_[0]->Rows(); }
  int32_t LengthOf(int32_t row) const { return engines_[0]->requests.at(row)->num_tokens; }
  static int32_t TokensOf(const Chunks &chunks) {
    int32_t total = 0;
    for (const auto &[row, tokens] : chunks)
      total += tokens;
    return total;
  }
  int32_t AnyRow() {
    std::vector<int32_t> rows = Rows();
    return rows[size_t(random_->Pick(0, int64_t(rows.size()) - 1))];
  }
  // Requests are opened, closed and rewound.
  void Change() {
    if (Rows().size() < 9 && random_->OneIn(3)) { // so many fit the smaller pool even at full length
      int32_t row = engines_[0]->Open();
      for (size_t i = 1; i < engines_.size(); i++)
        ASSERT_EQ(engines_[i]->Open(), row);
    }
    if (Rows().size() > 1 && random_->OneIn(8)) {
      int32_t row = AnyRow();
      for (auto &engine : engines_)
        engine->Close(row);
    }
    if (!Rows().empty() && random_->OneIn(10)) {
      int32_t row = AnyRow(), tokens = random_->Pick32(0, LengthOf(row));
      for (auto &engine : engines_)
        engine->SetLength(row, tokens);
    }
  }
  // Decodes, chunks, or both; now and then a request without tokens, or no request at all.
  Chunks Compose() {
    std::vector<int32_t> rows = Rows();
    Chunks chunks;
    bool decodes = random_->OneIn(2);
    int32_t longest = random_->OneIn(3) ? 100 : 12, room = groups::kMaxTokens;
    if (random_->OneIn(25))
      return chunks;
    for (int32_t row : rows) {
      int32_t left = std::min({ groups::kMaxSeqLen - LengthOf(row), longest, room });
      if (chunks.size() == groups::kMaxRequests || random_->OneIn(4) || left == 0)
        continue;
      chunks.push_back({ row, decodes || random_->OneIn(3) ? 1 : random_->OneIn(12) ? 0 : random_->Pick32(1, left) });
      room -= chunks.back().second;
    }
    for (size_t i = chunks.size(); i > 1; i--)
      std::swap(chunks[i - 1], chunks[size_t(random_->Pick(0, int64_t(i) - 1))]);
    return chunks;
  }
  // Picks a graph that is larger than necessary, or any graph for a step without requests. False: the library chooses.
  bool Force(const Chunks &chunks, cgr_key *key) {
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    if (!random_->OneIn(chunks.empty() ? 2 : 8))
      return false;
    const int32_t num_keys = cgr_test::NumKeys(engines_[0]->rt);
    CGR_EXPECT_OK(cgr_runtime_graph_stats(engines_[0]->rt, random_->Pick32(0, num_keys - 1), &stats));
    *key = stats.key;
    int32_t longest = 0;
    for (const auto &[row, tokens] : chunks)
      longest = std::max(longest, tokens);
    return key->num_requests >= int32_t(chunks.size()) && key->num_tokens >= TokensOf(chunks) &&
           (key->query_len == 0 || key->query_len >= longest);
  }
  // The key of the same sizes in engine i.
  cgr_key Own(size_t i, cgr_key key) const {
    if (engines_[i]->o.mode == CGR_MODE_PIECEWISE)
      key.kind = CGR_KIND_PIECEWISE;
    else if (engines_[i]->o.mode == CGR_MODE_NONE)
      key.kind = CGR_KIND_NONE;
    return key;
  }
  // Each engine's outputs have the same bits, those of padding included.
  void Step(bool check) {
    const Chunks chunks = Compose();
    cgr_key key = CGR_KEY_INIT;
    const bool forced = Force(chunks, &key);
    forced_[chunks.empty()] += forced;
    for (size_t i = 0; i < engines_.size(); i++) {
      SCOPED_TRACE("engine " + std::to_string(i));
      Engine &engine = *engines_[i];
      const cgr_key own = Own(i, key);
      engine.check_outputs = check && i == 0;
      ASSERT_NO_FATAL_FAILURE(engine.Step(engine.Chunks(chunks), forced || i + 1 == engines_.size() ? &own : nullptr));
      ASSERT_FALSE(HasFailure());
      const cgr_key &used = engine.step.key;
      kinds_[i][used.kind]++;
      mixed_ += used.kind != CGR_KIND_NONE && used.query_len == 0;
      if (i > 0) { // the same sizes
        ASSERT_EQ(used.num_tokens, key.num_tokens);
        ASSERT_EQ(used.num_requests, key.num_requests);
        ASSERT_NO_FATAL_FAILURE(groups::ExpectSameBits(engine, *engines_[0], used.num_tokens));
      }
      key = used;
    }
    if (check && TokensOf(chunks) > 0) {
      ASSERT_NO_FATAL_FAILURE(groups::ExpectBuffers(*engines_[0]));
    }
  }
  void Trace(int steps) {
    for (int i = 0; i < steps; i++) {
      SCOPED_TRACE("step " + std::to_string(i));
      ASSERT_NO_FATAL_FAILURE(Change());
      ASSERT_NO_FATAL_FAILURE(Step(i % 40 == 0));
    }
    for (auto &engine : engines_) {
      engine->CheckCaches();
      engine->Stats();
    }
  }

  std::unique_ptr<Random> random_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::map<size_t, std::map<int32_t, int>> kinds_; // steps of an engine, by kind
  int mixed_ = 0;                                  // replays of mixed keys
  int forced_[2] = { 0, 0 };                       // steps with requests, and without
};

TEST_P(MixedSteps, FullAndPiecewiseGraphsHaveTheBitsOfEagerSteps) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  const int steps = GetParam().IsEmulated() ? 100 : GetParam().IsCuda() ? 3000 : 1500;
  Make(seed, { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE });
  ASSERT_NO_FATAL_FAILURE(Trace(steps));
  const int percent = steps < 1000 ? 80 : 95; // with few steps a percentage says less
  EXPECT_GT(kinds_[0][CGR_KIND_FULL], steps * percent / 100);
  EXPECT_GT(kinds_[1][CGR_KIND_PIECEWISE], steps * percent / 100);
  EXPECT_GT(mixed_, steps * (percent - 50) / 100);
  if (steps < 1000)
    return;
  EXPECT_GT(forced_[0], steps / 40);
  EXPECT_GT(forced_[1], steps / 100);
}

TEST_P(MixedSteps, BothKindsTakeTurns) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  const int steps = 500;
  Make(seed, { CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_NONE });
  ASSERT_NO_FATAL_FAILURE(Trace(steps));
  EXPECT_GT(kinds_[0][CGR_KIND_FULL], steps / 4);
  EXPECT_GT(kinds_[0][CGR_KIND_PIECEWISE], steps / 4);
  EXPECT_GT(kinds_[0][CGR_KIND_FULL] + kinds_[0][CGR_KIND_PIECEWISE], steps * 95 / 100);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(MixedSteps);

} // namespace
} // namespace cgr_test

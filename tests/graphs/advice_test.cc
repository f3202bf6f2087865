// Which keys pay, by what steps have used: against what the rule says, for random keys and uses.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "graphs/graphs.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

cgr_key KeyOf(int32_t tokens, int32_t requests, int32_t query_len = 1) {
  cgr_key key = {};
  key.kind = CGR_KIND_FULL, key.num_tokens = tokens, key.num_requests = requests, key.query_len = query_len;
  return key;
}

// Keys, and the steps of each.
class Uses {
public:
  void Add(const cgr_key &key, uint64_t steps) { keys_.push_back(key), steps_.push_back(steps); }
  // Returns the tokens that the steps have with those that pay.
  uint64_t Advise(double max_growth, float max_padding = 1000.0f) {
    std::vector<cgr__key_use> uses(keys_.size());
    for (size_t i = 0; i < uses.size(); i++)
      uses[i].key = &keys_[i], uses[i].steps = steps_[i];
    const uint64_t tokens = cgr__keys_advise(uses.data(), static_cast<int32_t>(uses.size()), max_padding, max_growth);
    pays.clear();
    for (const cgr__key_use &use : uses)
      pays.push_back(use.pays);
    return tokens;
  }
  // Tokens of the steps if each uses the smallest key that pays and holds its own; -1: one has none.
  int64_t TokensWith(const std::vector<bool> &kept) const {
    int64_t sum = 0;
    for (size_t i = 0; i < keys_.size(); i++) {
      if (steps_[i] == 0)
        continue;
      int32_t best = INT32_MAX;
      for (size_t j = 0; j < keys_.size(); j++)
        if (kept[j] && keys_[j].query_len == keys_[i].query_len && keys_[j].num_tokens >= keys_[i].num_tokens &&
            keys_[j].num_requests >= keys_[i].num_requests)
          best = std::min(best, keys_[j].num_tokens);
      if (best == INT32_MAX)
        return -1;
      sum += static_cast<int64_t>(steps_[i]) * best;
    }
    return sum;
  }
  int64_t AllTokens() const { return TokensWith(std::vector<bool>(keys_.size(), true)); }

  std::vector<bool> pays;

private:
  std::vector<cgr_key> keys_;
  std::vector<uint64_t> steps_;
};

TEST(Advice, NoKeyPaysThatNoStepUsed) {
  Uses uses;
  uses.Add(KeyOf(1, 1), 5), uses.Add(KeyOf(2, 2), 0), uses.Add(KeyOf(4, 4), 1), uses.Add(KeyOf(8, 8), 0);
  EXPECT_EQ(uses.Advise(0.0), 9u);
  EXPECT_EQ(uses.pays, (std::vector<bool>{ true, false, true, false }));
}

TEST(Advice, KeysGoWhileTheGrowthAllowsIt) {
  Uses uses; // 100 + 40 + 800 tokens; 100 more without the key of 1, then 720 more without that of 2
  uses.Add(KeyOf(1, 1), 100), uses.Add(KeyOf(2, 2), 20), uses.Add(KeyOf(8, 8), 100);
  EXPECT_EQ(uses.Advise(0.10), 940u);
  EXPECT_EQ(uses.pays, (std::vector<bool>{ true, true, true }));
  EXPECT_EQ(uses.Advise(0.11), 1040u);
  EXPECT_EQ(uses.pays, (std::vector<bool>{ false, true, true }));
  EXPECT_EQ(uses.Advise(0.88), 1760u);
  EXPECT_EQ(uses.pays, (std::vector<bool>{ false, false, true }));
  EXPECT_EQ(uses.Advise(1000.0), 1760u) << "the largest stays";
}

TEST(Advice, AKeyOfFewerRequestsOrOfAnotherKindHoldsNothing) {
  Uses uses;
  uses.Add(KeyOf(16, 16, 0), 1), uses.Add(KeyOf(32, 4, 0), 1), uses.Add(KeyOf(32, 32, 1), 1);
  cgr_key other = KeyOf(64, 64, 0);
  other.kind = CGR_KIND_PIECEWISE;
  uses.Add(other, 1);
  other = KeyOf(64, 64, 1);
  other.variant = 1;
  uses.Add(other, 1);
  uses.Advise(1000.0);
  EXPECT_EQ(uses.pays, std::vector<bool>(5, true));
}

// By dispatch's rule a graph of more than max_padding times the tokens, and of more than 64 above them, is not taken. So a key
// pays if the next one is too large for the smallest step that it can have had.
struct Padded {
  int32_t before, key, next; // tokens and requests; before 0: no smaller key
  bool pays;
};
class AdvicePads : public ::testing::TestWithParam<Padded> {};

TEST_P(AdvicePads, TheSmallestStepOfAKey) {
  const Padded &c = GetParam();
  for (int32_t query_len : { 0, 1 }) {
    Uses uses;
    uses.Add(KeyOf(c.key, c.key, query_len), 10), uses.Add(KeyOf(c.next, c.next, query_len), 10);
    if (c.before > 0)
      uses.Add(KeyOf(c.before, std::max(c.before, query_len > 0 ? 0 : c.key), query_len), 0);
    uses.Advise(1000.0, 2.0f);
    EXPECT_EQ(uses.pays[0], c.pays) << "query length " << query_len;
    EXPECT_TRUE(uses.pays[1]);
  }
}
INSTANTIATE_TEST_SUITE_P(Keys, AdvicePads,
                         ::testing::Values(Padded{ 90, 100, 182, false }, Padded{ 90, 100, 183, true },
                                           Padded{ 40, 50, 105, false }, Padded{ 40, 50, 106, true }, Padded{ 0, 64, 65, false },
                                           Padded{ 0, 64, 66, true }, Padded{ 0, 128, 192, true }));

// Requests of a uniform key may have fewer tokens than its query length: here 7 of one token each.
TEST(Advice, AKeyOfLongQueriesPaysWhenTheNextPadsShortOnesTooMuch) {
  for (int32_t query_len : { 4, 10 }) {
    Uses uses;
    for (int32_t requests : { 6, 7, 8 })
      uses.Add(KeyOf(requests * query_len, requests, query_len), requests > 6 ? 10 : 0);
    uses.Advise(1000.0, 2.0f);
    EXPECT_EQ(uses.pays, (std::vector<bool>{ false, query_len == 10, true }));
  }
}

// One of fewer requests is no bound: a step of the next key may have had few tokens.
TEST(Advice, AMixedKeyIsBoundedByThoseOfAsManyRequestsAlone) {
  Uses uses;
  uses.Add(KeyOf(90, 10, 0), 0), uses.Add(KeyOf(100, 20, 0), 10), uses.Add(KeyOf(182, 20, 0), 10);
  uses.Advise(1000.0, 2.0f);
  EXPECT_EQ(uses.pays, (std::vector<bool>{ false, true, true }));
}

TEST(Advice, RandomKeys) {
  ForSeeds(2000, [](Random &random) {
    Uses uses;
    for (int32_t i = random.Pick32(1, 12); i > 0; i--) {
      const int32_t tokens = random.Pick32(1, 20);
      uses.Add(KeyOf(tokens, random.Pick32(1, tokens), random.Pick32(0, 1)), random.OneIn(3) ? 0 : random.Pick(0, 50));
    }
    const double growth = random.OneIn(4) ? 0.0 : static_cast<double>(random.Pick(0, 200)) / 100.0;
    const int64_t tokens = static_cast<int64_t>(uses.Advise(growth));
    const double most = static_cast<double>(uses.AllTokens()) * (1 + growth) + 1e-6;
    ASSERT_LE(static_cast<double>(tokens), most);
    ASSERT_EQ(tokens, uses.TokensWith(uses.pays));
    for (size_t i = 0; i < uses.pays.size(); i++) {
      std::vector<bool> fewer = uses.pays;
      fewer[i] = false;
      const int64_t without = uses.TokensWith(fewer);
      ASSERT_TRUE(!uses.pays[i] || without < 0 || static_cast<double>(without) > most) << "key " << i << " could go";
    }
  });
}

} // namespace
} // namespace cgr_test

// Where guesses come from, what is predicted of them, and the operations that accept them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "examples/llama/draft.h"
#include "examples/llama/error.h"
#include "examples/llama/ops.h"
#include "examples/llama/verify.h"
#include "tests/examples/kernels_as_loops.h"
#include "tests/support/seed.h"

#include "examples/llama/cuda/verify.cu"

namespace {

using Tokens = std::vector<int32_t>;

llama_draft Parsed(const char *text) {
  llama_draft draft;
  EXPECT_EQ(llama_draft_parse(text, 5, &draft), 0) << text;
  return draft;
}

TEST(LlamaDraft, IsReadFromItsName) {
  EXPECT_EQ(Parsed(nullptr).kind, LLAMA_DRAFT_NONE);
  EXPECT_EQ(Parsed(nullptr).count, 0);
  EXPECT_EQ(Parsed("lookup").kind, LLAMA_DRAFT_LOOKUP);
  EXPECT_EQ(Parsed("lookup").count, 5);
  EXPECT_FALSE(Parsed("lookup").waits);
  EXPECT_TRUE(Parsed("lookup:wait").waits);
  EXPECT_EQ(Parsed("coin").kind, LLAMA_DRAFT_COIN);
  EXPECT_FLOAT_EQ(Parsed("coin").rate, 0.7f);
  EXPECT_FLOAT_EQ(Parsed("coin:0").rate, 0.0f);
  EXPECT_FLOAT_EQ(Parsed("coin:0.25").rate, 0.25f);
  for (const char *bad :
       { "", "look", "lookup:", "lookup:waits", "coin:", "coin:x", "coin:1.5", "coin:-1", "coin:nan", "coins" }) {
    llama_draft draft;
    EXPECT_EQ(llama_draft_parse(bad, 3, &draft), -1) << bad;
    EXPECT_NE(std::string(llama_message()).find("expected lookup, lookup:wait, coin or coin:RATE with a rate from 0 to 1"),
              std::string::npos);
  }
}

// ------------------------------------------------------------------------------------------------------------------- lookup

// The sequence, divided into a prompt and what followed at every place, gives the same.
Tokens Looked(const Tokens &sequence, int32_t count) {
  Tokens first;
  for (size_t prompt = 1; prompt <= sequence.size(); prompt++) {
    const llama_known known = { sequence.data(), sequence.data() + prompt, static_cast<int32_t>(prompt),
                                static_cast<int32_t>(sequence.size() - prompt) };
    Tokens found(count, -9);
    found.resize(llama_lookup(&known, count, found.data()));
    if (prompt == 1)
      first = found;
    EXPECT_EQ(found, first) << prompt;
  }
  return first;
}

TEST(LlamaLookup, ContinuesAsItWentOnBefore) {
  EXPECT_EQ(Looked({ 1, 2, 3, 4, 5, 1, 2 }, 3), (Tokens{ 3, 4, 5 }));
  EXPECT_EQ(Looked({ 1, 2, 3, 9, 1, 2, 4, 8, 1, 2 }, 2), (Tokens{ 4, 8 })) << "the last place counts";
  EXPECT_EQ(Looked({ 7, 1, 2, 3, 9, 1, 2, 4, 8, 7, 1, 2 }, 2), (Tokens{ 3, 9 })) << "the longer end counts more";
  EXPECT_EQ(Looked({ 5, 6, 5, 6 }, 5), (Tokens{ 5, 6, 5, 6, 5 })) << "what repeats itself goes on";
  EXPECT_EQ(Looked({ 4, 4, 4 }, 3), (Tokens{ 4, 4, 4 }));
  EXPECT_EQ(Looked({ 1, 2, 3, 4 }, 3), Tokens{});
  EXPECT_EQ(Looked({ 1, 2, 3, 2 }, 3), Tokens{}) << "one token says too little";
  EXPECT_EQ(Looked({ 1 }, 3), Tokens{});
}

TEST(LlamaLookup, LooksNoFurtherThanItsReach) {
  Tokens sequence(LLAMA_LOOKUP_REACH + 10, 0);
  for (size_t i = 0; i < sequence.size(); i++)
    sequence[i] = static_cast<int32_t>(i);
  const int32_t last = static_cast<int32_t>(sequence.size());
  sequence[last - 2] = 20, sequence[last - 1] = 21; // which stand at 20 and 21, in reach
  const llama_known known = { sequence.data(), nullptr, last, 0 };
  std::array<int32_t, 2> found{};
  EXPECT_EQ(llama_lookup(&known, 2, found.data()), 2);
  EXPECT_EQ(found, (std::array<int32_t, 2>{ 22, 23 }));
  sequence[last - 2] = 3, sequence[last - 1] = 4;
  EXPECT_EQ(llama_lookup(&known, 2, found.data()), 0);
}

Tokens Ahead(const Tokens &sequence, const Tokens &sent, int32_t num_sent, int32_t count) {
  const llama_known known = { sequence.data(), nullptr, static_cast<int32_t>(sequence.size()), 0 };
  Tokens found(count, -9);
  found.resize(llama_lookup_ahead(&known, sent.data(), num_sent, count, found.data()));
  return found;
}

// While a step is under way the guesses continue what it is expected to give.
TEST(LlamaLookup, ExpectsWhatTheStepUnderWayGives) {
  const Tokens sequence = { 1, 2, 3, 4, 5, 6, 7, 8, 1, 2 };
  EXPECT_EQ(Ahead(sequence, {}, -1, 3), (Tokens{ 3, 4, 5 })) << "none is under way";
  EXPECT_EQ(Ahead(sequence, {}, 0, 3), (Tokens{ 4, 5, 6 })) << "it gives 3";
  EXPECT_EQ(Ahead(sequence, { 3, 4 }, 2, 3), (Tokens{ 6, 7, 8 })) << "it accepts both and gives 5";
  EXPECT_EQ(Ahead(sequence, { 3, 9 }, 2, 3), (Tokens{ 5, 6, 7 })) << "it accepts one and gives 4";
  EXPECT_EQ(Ahead(sequence, { 9, 4 }, 2, 3), (Tokens{ 4, 5, 6 })) << "it accepts none and gives 3";
  EXPECT_EQ(Ahead({ 1, 2, 3 }, { 1 }, 1, 3), Tokens{});
}

// --------------------------------------------------------------------------------------------------------------------- gain

TEST(LlamaGain, FollowsFromAcceptanceAndTimes) {
  EXPECT_DOUBLE_EQ(llama_expected_tokens(0.0, 3), 1.0);
  EXPECT_DOUBLE_EQ(llama_expected_tokens(1.0, 3), 4.0);
  EXPECT_DOUBLE_EQ(llama_expected_tokens(0.5, 2), 1.75);
  std::vector<llama_pace> plain(LLAMA_NUM_PACES), guessing(LLAMA_NUM_PACES);
  EXPECT_EQ(llama_predicted_gain(plain.data(), guessing.data()), 0.0);
  plain[1] = { 10, 10, 10, 1.0 };    // 0.1 s for a token
  plain[2] = { 10, 20, 20, 1.0 };    // 0.05 s
  plain[7] = { 10, 70, 70, 1.0 };    // of which the other run has none
  guessing[1] = { 5, 5, 10, 0.5 };   // 10 tokens, 1 s without guesses
  guessing[2] = { 10, 20, 60, 1.5 }; // 60 tokens, 3 s
  guessing[3] = { 10, 30, 90, 9.0 }; // of which plain has none
  EXPECT_DOUBLE_EQ(llama_predicted_gain(plain.data(), guessing.data()), 4.0 / 2.0);
  const llama_pace sum = llama_pace_sum(guessing.data());
  EXPECT_EQ(sum.steps, 25u);
  EXPECT_EQ(sum.samples, 55u);
  EXPECT_EQ(sum.tokens, 160u);
  EXPECT_DOUBLE_EQ(sum.seconds, 11.0);
  EXPECT_EQ(llama_pace_index(0), 0);
  EXPECT_EQ(llama_pace_index(63), 63);
  EXPECT_EQ(llama_pace_index(64), 64);
  EXPECT_EQ(llama_pace_index(4096), 127);
  EXPECT_EQ(llama_pace_index(1 << 20), LLAMA_NUM_PACES - 1);
}

// --------------------------------------------------------------------------------------------------------------- operations

// Requests of 1 + d tokens, one after the other, and padding; sampled tokens that agree with some guesses.
struct Step {
  static constexpr int kPadding = 2, kStride = 5, kVocab = 50, kNothing = -77;
  int requests, width;
  Tokens logits_indices, num_drafts, request_rows, input_ids, positions, noise;
  std::vector<float> rates;
  Tokens indices, rows, sampled, next, accepted, drafts;

  Step(cgr_test::Random *random, int requests_in, int width_in) : requests(requests_in), width(width_in) {
    for (int i = 0; i < requests; i++) {
      const int d = random->Pick32(0, width - 1), start = random->Pick32(0, 999);
      for (int j = 0; j <= d; j++) {
        input_ids.push_back(random->Pick32(0, kVocab - 1));
        positions.push_back(start + j);
      }
      num_drafts.push_back(d);
      logits_indices.push_back(static_cast<int32_t>(input_ids.size()) - 1);
      request_rows.push_back(requests - 1 - i);
      noise.insert(noise.end(), { random->Pick32(0, 4), i });
      rates.push_back(static_cast<float>(random->Pick32(0, 4)) / 4.0f);
    }
    for (int i = 0; i < kPadding; i++) {
      num_drafts.push_back(0);
      logits_indices.push_back(0);
      request_rows.push_back(requests);
    }
    noise.insert(noise.end(), { 0, 0 });
    rates.push_back(0.0f);
    const size_t all = static_cast<size_t>(requests + kPadding);
    indices.assign(all * width, kNothing), rows = indices, sampled = indices;
    next.assign(all * kStride, kNothing), accepted.assign(all, kNothing), drafts.assign(all * (kStride - 1), kNothing);
  }

  // What stands for a model: half of the guesses are right.
  void Sample(cgr_test::Random *random) {
    for (size_t i = 0; i < sampled.size(); i++) {
      const size_t guess = static_cast<size_t>(indices[i]) + 1;
      sampled[i] = random->OneIn(2) && guess < input_ids.size() ? input_ids[guess] : random->Pick32(0, kVocab - 1);
      if (random->OneIn(40))
        sampled[i] = LLAMA_NOT_FINITE;
    }
  }

  llama_places_args Places() {
    return { indices.data(),      rows.data(), logits_indices.data(), num_drafts.data(), request_rows.data(),
             requests + kPadding, width };
  }

  llama_verify_args Verify(bool coin) {
    llama_verify_args verify = {};
    verify.next_tokens = next.data(), verify.num_accepted = accepted.data(), verify.draft_tokens = drafts.data();
    verify.sampled = sampled.data(), verify.indices = indices.data(), verify.num_drafts = num_drafts.data();
    verify.request_rows = request_rows.data(), verify.input_ids = input_ids.data(), verify.positions = positions.data();
    verify.noise = noise.data(), verify.rates = coin ? rates.data() : nullptr;
    verify.requests = requests + kPadding, verify.width = width, verify.stride = kStride, verify.num_data = requests + 1;
    verify.tokens = static_cast<int32_t>(input_ids.size()), verify.vocab = kVocab;
    return verify;
  }

  void RunKernels(bool coin, cgr_test::Random *random) {
    const llama_places_args places = Places();
    EXPECT_EQ(llama_cuda_places(&places, nullptr), 0);
    Sample(random);
    const llama_verify_args verify = Verify(coin);
    EXPECT_EQ(llama_cuda_verify(&verify, nullptr), 0);
  }

  void RunOnHost(bool coin, cgr_test::Random *random) {
    cgr_device *device = nullptr;
    llama_ops *ops = nullptr;
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cgr_device_open("host", nullptr, &device), CGR_OK);
    ASSERT_EQ(cgr_stream_create(device, &stream), CGR_OK);
    ASSERT_EQ(llama_ops_host(device, &ops), 0);
    const llama_places_args places = Places();
    EXPECT_EQ(ops->places(ops, &places, stream), CGR_OK);
    EXPECT_EQ(cgr_stream_synchronize(device, stream), CGR_OK);
    Sample(random);
    const llama_verify_args verify = Verify(coin);
    EXPECT_EQ(ops->verify(ops, &verify, stream), CGR_OK);
    EXPECT_EQ(cgr_stream_synchronize(device, stream), CGR_OK);
    ops->close(ops);
    EXPECT_EQ(cgr_stream_destroy(device, stream), CGR_OK);
    EXPECT_EQ(cgr_device_close(device), CGR_OK);
  }
};

// A coin's words, from the generator alone.
std::array<uint32_t, 4> Coin(int32_t seed, int32_t request, int32_t position) {
  std::array<uint32_t, 4> words = { 0, static_cast<uint32_t>(position), 1, 0 };
  llama_philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(request), words.data());
  return words;
}

void Compare(const Step &s, bool coin) {
  for (int i = 0; i < s.requests + Step::kPadding; i++) {
    const int d = s.num_drafts[i], row = s.request_rows[i], first = s.logits_indices[i] - d;
    const int seed = s.noise[2 * row], request = s.noise[2 * row + 1];
    int accepted = 0;
    for (bool right = true; accepted < d && right;) {
      const int sampled = s.sampled[i * s.width + accepted], guess = first + accepted + 1;
      const uint32_t word = Coin(seed, request, s.positions[guess])[0];
      right = coin ? sampled != LLAMA_NOT_FINITE && word < s.rates[row] * 4294967296.0 : sampled == s.input_ids[guess];
      accepted += right;
    }
    for (int j = 0; j < s.width; j++) {
      EXPECT_EQ(s.indices[i * s.width + j], first + std::min(j, d)) << i << "," << j;
      EXPECT_EQ(s.rows[i * s.width + j], row);
    }
    EXPECT_EQ(s.accepted[i], accepted) << i;
    for (int j = 0; j < Step::kStride; j++) {
      const int expected = j < accepted ? s.input_ids[first + 1 + j] : j == accepted ? s.sampled[i * s.width + j] : 0;
      EXPECT_EQ(s.next[i * Step::kStride + j], expected) << i << "," << j;
    }
    for (int j = 0; j < Step::kStride - 1; j++) {
      const int position = s.positions[first] + accepted + 2 + j;
      const int guess = coin ? static_cast<int>(Coin(seed, request, position)[1] % Step::kVocab) : Step::kNothing;
      EXPECT_EQ(s.drafts[i * (Step::kStride - 1) + j], guess) << i << "," << j;
    }
  }
}

TEST(LlamaVerify, AcceptsWhatPlainDecodeWouldSample) {
  cgr_test::SeededRandom random;
  for (int trial = 0; trial < 60; trial++)
    for (const bool coin : { false, true }) {
      const int requests = random.OneIn(8) ? 63 + random.Pick32(0, 2) : random.Pick32(1, 9); // about a block of threads, or few
      Step host(&random, requests, 1 + trial % Step::kStride), kernels = host;
      host.RunOnHost(coin, &random);
      Compare(host, coin);
      kernels.RunKernels(coin, &random);
      Compare(kernels, coin);
    }
}

// Counts over positions: a coin is fair, and the tokens that it guesses are spread.
TEST(LlamaVerify, TheCoinAcceptsItsShare) {
  const float rate = 0.7f;
  int accepted = 0, low = 0;
  for (int32_t position = 0; position < 20000; position++) {
    uint32_t words[4];
    llama_coin(3, 4, position, words);
    accepted += llama_coin_accepts(words[0], rate);
    low += words[1] % 2 == 0;
    EXPECT_TRUE(llama_coin_accepts(words[0], 1.0f));
    EXPECT_FALSE(llama_coin_accepts(words[0], 0.0f));
  }
  EXPECT_NEAR(accepted / 20000.0, rate, 5 * 0.0033);
  EXPECT_NEAR(low / 20000.0, 0.5, 5 * 0.0036);
}

} // namespace

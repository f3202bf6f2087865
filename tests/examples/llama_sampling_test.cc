// How the example draws tokens: the generator's known answers, the distribution of what is drawn, and what it depends on.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cgr/cgr.h"
#include "examples/llama/error.h"
#include "examples/llama/noise.h"
#include "examples/llama/ops.h"
#include "tests/examples/kernels_as_loops.h"
#include "tests/support/seed.h"

#include "examples/llama/cuda/pick.cu"

namespace {

using Words = std::array<uint32_t, 4>;

Words Philox(Words counter, uint32_t key0, uint32_t key1) {
  llama_philox(key0, key1, counter.data());
  return counter;
}

// The known answers that come with the authors' Random123.
TEST(LlamaNoise, IsPhilox) {
  const uint32_t ones = ~0u;
  EXPECT_EQ(Philox({ 0, 0, 0, 0 }, 0, 0), (Words{ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 }));
  EXPECT_EQ(Philox({ ones, ones, ones, ones }, ones, ones), (Words{ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd }));
  EXPECT_EQ(Philox({ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, 0xa4093822, 0x299f31d0),
            (Words{ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 }));
}

TEST(LlamaNoise, IsFiniteAndFalls) {
  EXPECT_NEAR(llama_gumbel(0), 33 * std::log(2.0), 1e-4);
  EXPECT_NEAR(llama_gumbel(1u << 31), -std::log(std::log(2.0)), 1e-5);
  EXPECT_NEAR(llama_gumbel(~0u), -std::log(24 * std::log(2.0)), 1e-5);
  float before = std::numeric_limits<float>::infinity();
  for (uint64_t word = 0; word <= 0xffffffffu; word += 65535) {
    const float value = llama_gumbel(static_cast<uint32_t>(word));
    EXPECT_LE(value, before) << word;
    before = value;
  }
}

// Requests with data at rows of their own; each row of logits is `logits`.
struct Draws {
  std::vector<float> logits;
  std::vector<int32_t> request_rows, noise, positions, indices; // noise: seed and request
  std::vector<float> temperatures;

  void Add(int32_t seed, int32_t request, int32_t position, float temperature) {
    const int32_t i = static_cast<int32_t>(request_rows.size());
    request_rows.push_back(i);
    indices.push_back(i);
    noise.insert(noise.end(), { seed, request });
    positions.push_back(position);
    temperatures.push_back(temperature);
  }

  // In parts, as ranks do that have a part of the vocabulary each.
  std::vector<int32_t> Run(size_t parts = 1) const {
    const size_t rows = request_rows.size(), vocab = logits.size() / parts;
    std::vector<int32_t> out(rows, -7);
    std::vector<llama_best> best(parts * rows);
    std::vector<std::vector<float>> all(parts);
    cgr_device *device = nullptr;
    cudaStream_t stream = nullptr;
    llama_ops *ops = nullptr;
    EXPECT_EQ(cgr_device_open("host", nullptr, &device), CGR_OK);
    EXPECT_EQ(cgr_stream_create(device, &stream), CGR_OK);
    EXPECT_EQ(llama_ops_host(device, &ops), 0) << llama_message();
    for (size_t part = 0; part < parts; part++) {
      for (size_t i = 0; i < rows; i++)
        all[part].insert(all[part].end(), &logits[part * vocab], &logits[part * vocab] + vocab);
      const llama_sample_args args = { out.data(),
                                       all[part].data(),
                                       request_rows.data(),
                                       noise.data(),
                                       temperatures.data(),
                                       positions.data(),
                                       indices.data(),
                                       static_cast<int32_t>(rows),
                                       static_cast<int32_t>(vocab),
                                       static_cast<int32_t>(temperatures.size()),
                                       static_cast<int32_t>(positions.size()),
                                       static_cast<int32_t>(part * vocab),
                                       0,
                                       parts > 1 ? &best[part * rows] : nullptr };
      EXPECT_EQ(ops->sample(ops, &args, stream), CGR_OK);
    }
    const llama_pick_args args = { out.data(), best.data(), static_cast<int32_t>(rows), static_cast<int32_t>(parts) };
    if (parts > 1) {
      EXPECT_EQ(ops->pick(ops, &args, stream), CGR_OK);
    }
    EXPECT_EQ(cgr_stream_synchronize(device, stream), CGR_OK);
    if (parts > 1) { // the kernel comes to the same
      std::vector<int32_t> picked(rows, -7);
      llama_pick_args kernel = args;
      kernel.out = picked.data();
      EXPECT_EQ(llama_cuda_pick(&kernel, nullptr), 0);
      EXPECT_EQ(picked, out);
    }
    ops->close(ops);
    EXPECT_EQ(cgr_stream_destroy(device, stream), CGR_OK);
    EXPECT_EQ(cgr_device_close(device), CGR_OK);
    return out;
  }
};

// ------------------------------------------------------------------------------------------------------------------- parts

// Whatever has the vocabulary: equal logits, no temperature or one, and numbers that are none.
TEST(LlamaParts, DrawTheTokensOfTheWhole) {
  cgr_test::SeededRandom random;
  for (int time = 0; time < 50 && !::testing::Test::HasFailure(); time++) {
    Draws draws;
    for (int i = 0; i < 32; i++)
      draws.logits.push_back(0.25f * static_cast<float>(random.Pick(-4, 4)));
    if (random.OneIn(4))
      draws.logits[static_cast<size_t>(random.Pick(0, 31))] = std::nanf("");
    for (int32_t i = 0; i < 40; i++)
      draws.Add(random.Pick32(0, 1 << 30), random.Pick32(0, 100), random.Pick32(0, 1000), random.OneIn(2) ? 0.0f : 0.7f);
    const std::vector<int32_t> whole = draws.Run();
    for (const size_t parts : { 2, 4, 8 })
      EXPECT_EQ(draws.Run(parts), whole) << parts << " parts";
  }
}

// ------------------------------------------------------------------------------------------------------------ distribution

std::vector<double> Softmax(const std::vector<float> &logits, double temperature) {
  std::vector<double> shares;
  double sum = 0.0;
  for (float logit : logits)
    shares.push_back(std::exp(static_cast<double>(logit) / temperature));
  for (double share : shares)
    sum += share;
  for (double &share : shares)
    share /= sum;
  return shares;
}

// Pearson's statistic, as the deviate of a normal distribution that is as improbable (Wilson and Hilferty 1931).
double Deviate(const std::vector<int64_t> &counts, const std::vector<double> &shares) {
  double statistic = 0.0, total = 0.0, freedom = static_cast<double>(shares.size()) - 1.0;
  for (int64_t count : counts)
    total += static_cast<double>(count);
  for (size_t i = 0; i < shares.size(); i++) {
    const double expected = total * shares[i], off = static_cast<double>(counts[i]) - expected;
    EXPECT_GT(expected, 5.0) << "too few draws for the statistic";
    statistic += off * off / expected;
  }
  const double spread = 2.0 / (9.0 * freedom);
  return (std::cbrt(statistic / freedom) - (1.0 - spread)) / std::sqrt(spread);
}

enum class Varies { kPosition, kRequest, kSeed };

class LlamaSampling : public ::testing::TestWithParam<std::tuple<Varies, float>> {};

// Pairs of draws next to each other: each has the frequency of softmax(logits / temperature), independently of the other. A right
// sampler fails once in a thousand million runs (6 standard deviations).
TEST_P(LlamaSampling, DrawsPairsWithTheirProbabilities) {
  const auto [varies, temperature] = GetParam();
  cgr_test::SeededRandom random;
  const int32_t fixed = random.Pick32(0, std::numeric_limits<int32_t>::max() / 2), n = 60000;
  Draws draws;
  draws.logits = { 0.5f, -0.25f, 1.0f, 0.0f, -1.0f, 0.75f };
  for (int32_t i = 0; i < n; i++)
    draws.Add(varies == Varies::kSeed ? fixed + i : fixed, varies == Varies::kRequest ? i : 3,
              varies == Varies::kPosition ? i : 11, temperature);
  const std::vector<int32_t> drawn = draws.Run();
  const std::vector<double> shares = Softmax(draws.logits, static_cast<double>(temperature));
  const size_t vocab = shares.size();
  std::vector<int64_t> counts(vocab * vocab);
  std::vector<double> pairs;
  for (double a : shares)
    for (double b : shares)
      pairs.push_back(a * b);
  for (size_t i = 0; i + 1 < drawn.size(); i += 2)
    counts[static_cast<size_t>(drawn[i]) * vocab + static_cast<size_t>(drawn[i + 1])]++;
  EXPECT_LT(Deviate(counts, pairs), 6.0);
}

INSTANTIATE_TEST_SUITE_P(Of, LlamaSampling,
                         ::testing::Combine(::testing::Values(Varies::kPosition, Varies::kRequest, Varies::kSeed),
                                            ::testing::Values(0.7f, 1.0f, 3.0f)));

// The statistic would see a sampler that is off by a tenth in its temperature.
TEST(LlamaSamplingStatistic, SeesAnotherTemperature) {
  Draws draws;
  draws.logits = { 0.5f, -0.25f, 1.0f, 0.0f, -1.0f, 0.75f };
  for (int32_t i = 0; i < 60000; i++)
    draws.Add(1, 2, i, 0.77f);
  std::vector<int64_t> counts(draws.logits.size());
  for (int32_t token : draws.Run())
    counts[static_cast<size_t>(token)]++;
  EXPECT_LT(Deviate(counts, Softmax(draws.logits, 0.77)), 6.0);
  EXPECT_GT(Deviate(counts, Softmax(draws.logits, 0.7)), 6.0);
}

// --------------------------------------------------------------------------------------------------------- what it depends on

TEST(LlamaSample, DependsOnSeedRequestAndPositionAlone) {
  Draws draws;
  draws.logits.assign(1023, 0.25f);
  for (int32_t i = 0; i < 8; i++)
    draws.Add(i & 1, i >> 1 & 1, i >> 2, 0.5f);
  const std::vector<int32_t> drawn = draws.Run();
  for (size_t i = 0; i < drawn.size(); i++)
    for (size_t k = 0; k < i; k++)
      EXPECT_NE(drawn[i], drawn[k]) << i << " and " << k; // by chance once in a thousand pairs; the numbers never change
  Draws turned;
  turned.logits = draws.logits;
  turned.Add(99, 99, 99, 0.0f); // what rows of other requests hold
  for (int32_t i = 7; i >= 0; i--)
    turned.Add(i & 1, i >> 1 & 1, i >> 2, 0.5f);
  const std::vector<int32_t> again = turned.Run();
  for (size_t i = 0; i < drawn.size(); i++)
    EXPECT_EQ(again[8 - i], drawn[i]);
}

TEST(LlamaSample, TakesTheFirstOfTheLikeliestAtTemperature0) {
  Draws draws;
  draws.logits = { -3.0f, 2.0f, 5.0f, 5.0f, 1.0f };
  for (int32_t i = 0; i < 100; i++)
    draws.Add(1, 0, i, 0.0f);
  for (int32_t token : draws.Run())
    EXPECT_EQ(token, 2);
}

// Of the last block of four tokens, what the vocabulary lacks is never drawn; the smallest and the largest temperature give
// tokens.
TEST(LlamaSample, DrawsOnlyTokensThatExist) {
  for (size_t vocab : { 1u, 2u, 5u, 7u }) {
    Draws draws;
    draws.logits.assign(vocab, -1e30f);
    for (int32_t i = 0; i < 400; i++)
      draws.Add(5, i, 3, i % 2 ? 100.0f : std::numeric_limits<float>::denorm_min());
    for (int32_t token : draws.Run()) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, static_cast<int32_t>(vocab));
    }
  }
}

TEST(LlamaSample, ReportsWhatIsNotFinite) {
  for (float bad : { std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                     -std::numeric_limits<float>::infinity() })
    for (size_t place : { 0u, 3u, 6u }) {
      Draws draws;
      draws.logits.assign(7, 1.0f);
      draws.logits[place] = bad;
      draws.Add(1, 0, 0, 0.7f);
      draws.Add(1, 0, 0, 0.0f);
      EXPECT_EQ(draws.Run(), (std::vector<int32_t>{ LLAMA_NOT_FINITE, LLAMA_NOT_FINITE }));
    }
}

// A row or a token that is out of range, as a padded request of a step that was refused may have, is the first.
TEST(LlamaSample, ReadsNothingOutOfRange) {
  Draws draws;
  draws.logits = { 1.0f, 1.5f };
  for (int32_t i = 0; i < 3; i++)
    draws.Add(1, 0, 7, 2.0f);
  draws.request_rows = { 0, 99, -1 };
  draws.indices = { 0, -3, 1 << 30 };
  const std::vector<int32_t> drawn = draws.Run();
  EXPECT_EQ(drawn[1], drawn[0]);
  EXPECT_EQ(drawn[2], drawn[0]);
}

} // namespace

// Fingerprints of steps: equal exactly for equal steps, whoever computes them, and compared with those of all ranks. What tokens
// past the real ones hold does not count.
#include <map>

#include "kernels/fingerprint.h"
#include "tests/emulation/device.h"
#include "tests/support/device_memory.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

struct Inputs {
  int32_t requests = 0;
  std::vector<int32_t> ids, positions;
  bool operator<(const Inputs &o) const { return std::tie(requests, ids, positions) < std::tie(o.requests, o.ids, o.positions); }
};

class KernelFingerprint : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_fingerprint, &cgr__kernel_compare_fingerprints }); }
  std::vector<uint64_t> Run(const Inputs &in, uint64_t key, uint64_t config, const int32_t *sequence, bool inputs,
                            int32_t padding) {
    std::vector<int32_t> counts(16, 0), ids(in.ids), positions(in.positions), numbers(1, sequence ? *sequence : 0);
    counts[CGR_COUNT_REQUESTS] = in.requests;
    counts[CGR_COUNT_TOKENS] = int32_t(in.ids.size());
    for (int32_t i = 0; i <= padding; i++)
      ids.push_back(int32_t(random_.Bits())), positions.push_back(int32_t(random_.Bits()));
    Array<int32_t> device_counts(*bench_, counts), device_ids(*bench_, ids), device_positions(*bench_, positions);
    Array<int32_t> device_sequence(*bench_, numbers);
    Array<uint64_t> out(*bench_, std::vector<uint64_t>(6, 77));
    cgr__fingerprint_args args = {};
    args.key = key, args.config = config;
    args.out = reinterpret_cast<cgr__fingerprint_words *>(out.data());
    args.sequence = sequence ? device_sequence.data() : nullptr;
    args.counts = device_counts.data();
    args.input_ids = device_ids.data(), args.positions = device_positions.data();
    args.inputs = inputs;
    bench_->Run(cgr__kernel_fingerprint, &args);
    std::vector<uint64_t> words = out.Get();
    EXPECT_EQ(words[4], 77u) << "nothing is written past the four words";
    words.resize(4);
    return words;
  }
  Inputs Draw(int32_t most) {
    Inputs in;
    const int32_t tokens = random_.Pick32(0, most);
    in.requests = tokens > 0 ? random_.Pick32(1, tokens) : 0;
    for (int32_t i = 0; i < tokens; i++)
      in.ids.push_back(random_.Pick32(0, 3)), in.positions.push_back(random_.Pick32(0, 3));
    return in;
  }
  SeededRandom random_;
};

// Inputs of few values, so that many differ in little: a change of one token, its place, or the counts is another word.
TEST_P(KernelFingerprint, IsEqualForEqualStepsAlone) {
  std::map<uint64_t, Inputs> seen;
  std::map<Inputs, uint64_t> word_of;
  for (int n = 0; n < 300; n++) {
    const Inputs in = Draw(n % 10 == 0 ? 700 : 3);
    const std::vector<uint64_t> words = Run(in, 11, 22, nullptr, true, random_.Pick32(0, 3));
    EXPECT_EQ(words[CGR_FINGERPRINT_KEY], 11u);
    EXPECT_EQ(words[CGR_FINGERPRINT_CONFIG], 22u);
    EXPECT_EQ(words[CGR_FINGERPRINT_SEQUENCE], 0u);
    const uint64_t word = words[CGR_FINGERPRINT_INPUTS];
    ASSERT_TRUE(word_of.emplace(in, word).first->second == word) << "the same inputs, another word";
    const Inputs &first = seen.emplace(word, in).first->second;
    ASSERT_FALSE(first < in || in < first) << "other inputs, the same word";
  }
  EXPECT_GT(seen.size(), 50u);
  const int32_t sequence = -5;
  EXPECT_EQ(Run(Draw(3), 1, 2, &sequence, false, 0), (std::vector<uint64_t>{ 1, 2, uint64_t(uint32_t(sequence)), 0 }));
}

// The order of a row's tokens counts, which a plain sum would not see.
TEST_P(KernelFingerprint, TellsPlacesApart) {
  const Inputs a = { 1, { 5, 6 }, { 0, 1 } }, b = { 1, { 6, 5 }, { 0, 1 } }, c = { 2, { 5, 6 }, { 0, 1 } };
  const auto word = [&](const Inputs &in) { return Run(in, 0, 0, nullptr, true, 0)[CGR_FINGERPRINT_INPUTS]; };
  EXPECT_NE(word(a), word(b));
  EXPECT_NE(word(a), word(c));
}

TEST_P(KernelFingerprint, ComparisonNamesTheFirstRankAndAllThatDiffer) {
  int found = 0;
  for (int n = 0; n < 200; n++) {
    const int32_t ranks = random_.Pick32(1, CGR_MAX_RANKS), rank = random_.Pick32(0, ranks - 1);
    std::vector<uint64_t> all(size_t(ranks) * 4, 9);
    for (int k = random_.Pick32(0, 3); k > 0; k--)
      all[random_.Bits() % all.size()] = 8 + random_.Bits() % 2;
    int64_t mask = 0;
    int32_t first = -1, part = 0;
    for (int32_t r = ranks - 1; r >= 0; r--)
      for (int32_t p = 3; p >= 0; p--)
        if (all[size_t(r * 4 + p)] != all[size_t(rank * 4 + p)])
          mask |= int64_t(uint64_t(1) << r), first = r, part = p;
    const bool is_second = n % 5 == 0; // another guard was first
    cgr__step_state state = {};
    state.error.error = is_second ? CGR_GUARD_PAGE : CGR_GUARD_NONE;
    state.error.row = -1;
    Array<unsigned char> device_state(
        *bench_, Bytes(reinterpret_cast<unsigned char *>(&state), reinterpret_cast<unsigned char *>(&state + 1)));
    Array<uint64_t> device_all(*bench_, all);
    cgr__compare_fingerprints_args args = { reinterpret_cast<const cgr__fingerprint_words *>(device_all.data()),
                                            reinterpret_cast<cgr__step_state *>(device_state.data()), ranks, rank };
    bench_->Run(cgr__kernel_compare_fingerprints, &args);
    const Bytes bytes = device_state.Get();
    std::memcpy(&state, bytes.data(), sizeof state);
    const bool differs = mask != 0 && !is_second;
    ASSERT_EQ(state.error.error, differs ? CGR_GUARD_RANK : is_second ? CGR_GUARD_PAGE : CGR_GUARD_NONE) << n;
    ASSERT_EQ(state.error.row, differs ? first : -1);
    ASSERT_EQ(state.error.index, differs ? part : 0);
    ASSERT_EQ(state.error.value, differs ? mask : 0);
    found += differs;
  }
  EXPECT_GT(found, 50);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelFingerprint);

} // namespace
} // namespace cgr_test

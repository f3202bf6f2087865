// Timestamps of the kernel go into the row of the step, by the device's own number, and nowhere else; and those of the epilogue.
#include "kernels/stamp.h"
#include "tests/support/device_memory.h"

namespace cgr_test {
namespace {

enum { kDepth = 3, kStride = 1040 };

class KernelStamp : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_stamp }); }
};

class Ring {
public:
  explicit Ring(Bench &bench)
      : bench_(bench), stamps_(bench, size_t(kDepth) * kStride), state_(bench, sizeof(cgr__step_state) / 8) {}
  void Stamp(uint64_t seq, const std::vector<int32_t> &words, bool first = false) {
    std::vector<int64_t> state(sizeof(cgr__step_state) / 8, 0);
    state[0] = int64_t(seq - 1);
    state_.Put(state);
    cgr__stamp_args args = {};
    args.stamps = stamps_.data();
    args.state = reinterpret_cast<const cgr__step_state *>(state_.data());
    args.ring_depth = kDepth;
    args.stride = kStride;
    args.first = first;
    std::copy(words.begin(), words.end(), args.word);
    bench_.Run(cgr__kernel_stamp, &args);
  }
  std::vector<int64_t> Get() { return stamps_.Get(); }

private:
  Bench &bench_;
  Array<int64_t> stamps_, state_;
};

TEST_P(KernelStamp, WritesItsWordsAndNoOther) {
  Ring ring(*bench_);
  for (uint64_t seq : { uint64_t(1), uint64_t(3), uint64_t(1) << 40 }) {
    const std::vector<int64_t> before = ring.Get();
    ring.Stamp(seq, { 5, 0, kStride - 1 });
    const std::vector<int64_t> after = ring.Get();
    const size_t row = size_t(seq % kDepth) * kStride;
    for (size_t i = 0; i < after.size(); i++)
      if (i == row + 5 || i == row + kStride - 1)
        EXPECT_EQ(after[i], after[row + 5]) << "one moment";
      else
        ASSERT_EQ(after[i], before[i]) << i;
    EXPECT_GT(after[row + 5], 0);
    EXPECT_NE(after[row + 5], before[row + 5]);
  }
}

// What an earlier step has left in the row is gone, and the row has its number.
TEST_P(KernelStamp, TheFirstOfAStepClearsTheRow) {
  Ring ring(*bench_);
  const std::vector<int64_t> before = ring.Get();
  ring.Stamp(7, { 1, 3 }, true);
  const std::vector<int64_t> after = ring.Get();
  for (size_t i = 0; i < after.size(); i++) {
    const size_t word = i % kStride;
    if (i / kStride != 7 % kDepth)
      ASSERT_EQ(after[i], before[i]);
    else if (word == 0)
      EXPECT_EQ(after[i], 7);
    else if (word == 1 || word == 3)
      EXPECT_GT(after[i], 0);
    else
      ASSERT_EQ(after[i], 0) << word;
  }
}

TEST_P(KernelStamp, TimeGoesOn) {
  Ring ring(*bench_);
  int64_t last = 0;
  for (int i = 0; i < 50; i++) {
    ring.Stamp(2, { 4 });
    const int64_t now = ring.Get()[2 * kStride + 4];
    EXPECT_GE(now, last);
    last = now;
  }
}

// No two times of a step share a word, and all are in the row.
TEST(StampWords, AreApart) {
  std::vector<int> used(size_t(cgr__stamp_stride(CGR_TIMING_LAYERS, 40)), 0);
  used.at(0)++;
  for (int32_t end = 0; end < 2; end++) {
    for (int32_t phase = 0; phase < CGR_PHASE_LAYER; phase++)
      used.at(size_t(cgr__stamp_word(phase, end)))++;
    for (int32_t layer = 0; layer < 40; layer++)
      for (int32_t phase = CGR_PHASE_LAYER; phase <= CGR_PHASE_ATTENTION; phase++)
        used.at(size_t(cgr__stamp_layer_word(phase, layer, end)))++;
  }
  for (int count : used)
    EXPECT_LE(count, 1);
  EXPECT_EQ(cgr__stamp_stride(CGR_TIMING_OFF, 40), 0);
  EXPECT_LT(cgr__stamp_stride(CGR_TIMING_PHASES, 40), cgr__stamp_stride(CGR_TIMING_LAYERS, 40));
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelStamp);

} // namespace
} // namespace cgr_test

// The measure against a loop over the same elements, bit for bit: every dtype, strides with gaps, NaN and infinities, padding,
// and launch after launch.
#include "kernels/measure.h"
#include "tests/support/attention_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

struct MeasureCase {
  int32_t dtype = CGR_DTYPE_FP32, num_tokens = 5, num_real = 5, num_heads = 3, head_dim = 64;
  ViewPadding padding;

  TensorShape Shape() const {
    const int64_t head = head_dim + padding.head;
    return { dtype, num_tokens, num_heads, head_dim, head * num_heads + padding.token, head };
  }
};

class KernelMeasure : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_measure }); }

  static double Draw(int32_t dtype, Random &random) {
    const double large[] = { NAN, -NAN, INFINITY, -INFINITY, 57344.0, 0.0, -0.0 };
    if (random.OneIn(40))
      return large[random.Pick(0, 6)];
    return cgr__reference_round(dtype, double(random.Pick32(-40000, 40000)) / 1024.0);
  }
  // Memory with NaN between the elements, and in the padded tokens.
  static Bytes Fill(const MeasureCase &c, Random &random, std::vector<float> *maxima) {
    const TensorShape shape = c.Shape();
    Bytes memory(shape.SizeInBytes(), 0xff);
    size_t row = 0;
    shape.EachHead([&](size_t byte) {
      for (int32_t d = 0; d < c.head_dim && row / size_t(c.num_heads) < size_t(c.num_real); d++) {
        const double value = Draw(c.dtype, random);
        cgr__reference_store(c.dtype, &memory[byte + size_t(d * ElementSize(c.dtype))], value);
        float &most = (*maxima)[row % size_t(c.num_heads) * size_t(c.head_dim) + size_t(d)];
        if (std::fabs(value) > double(most))
          most = float(std::fabs(value));
      }
      row++;
    });
    return memory;
  }
  // Several launches over other tensors, with other numbers of real tokens.
  void Check(const MeasureCase &c, uint64_t seed, int launches = 2) {
    SCOPED_TRACE("dtype " + std::to_string(c.dtype) + ", " + std::to_string(c.num_real) + " of " + std::to_string(c.num_tokens) +
                 " tokens, " + std::to_string(c.num_heads) + " x " + std::to_string(c.head_dim) + ", seed " +
                 std::to_string(seed));
    Random random(seed);
    std::vector<float> want(size_t(c.num_heads) * size_t(c.head_dim) + 1, 0.0f);
    want.back() = 1.5f; // behind the last one
    Array<float> maxima(*bench_, want);
    for (int launch = 0; launch < launches; launch++) {
      MeasureCase now = c;
      now.num_real = launch == 0 ? c.num_real : random.Pick32(0, c.num_tokens);
      Array<unsigned char> memory(*bench_, Fill(now, random, &want));
      std::vector<int32_t> words(16, 0);
      words[CGR_COUNT_TOKENS] = now.num_real;
      Array<int32_t> counts(*bench_, words);
      cgr__measure_args args = {
        c.Shape().View(memory.data()), maxima.data(), counts.data(), c.num_tokens, c.num_heads, c.head_dim, 0
      };
      bench_->Run(cgr__kernel_measure, &args);
      const std::vector<float> got = maxima.Get();
      for (size_t i = 0; i < want.size(); i++)
        ASSERT_EQ(got[i], want[i]) << i << " after launch " << launch;
    }
  }
};

TEST_P(KernelMeasure, FindsTheLargestMagnitudes) {
  uint64_t seed = 1;
  for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
    for (auto [tokens, heads, dim] : { std::tuple<int32_t, int32_t, int32_t>{ 1, 1, 8 },
                                       { 3, 2, 64 },
                                       { 33, 8, 128 },
                                       { 65, 5, 24 },
                                       { 7, 1, 1024 },
                                       { 70, 40, 16 } })
      for (int32_t padding : { 0, 8 })
        Check({ dtype, tokens, tokens, heads, dim, { padding, 2 * padding } }, seed++);
}

TEST_P(KernelMeasure, CountsRealTokensAlone) {
  for (int32_t real : { 0, 1, 31, 32, 33, 63 })
    Check({ CGR_DTYPE_BF16, 64, real, 4, 64, {} }, uint64_t(real) + 100, 1);
}

TEST_P(KernelMeasure, OfRandomShapes) {
  SeededRandom random;
  for (int i = 0; i < 40; i++) {
    const int32_t dtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 }, tokens = random.Pick32(1, 150);
    Check({ dtypes[random.Pick(0, 2)],
            tokens,
            random.Pick32(0, tokens),
            random.Pick32(1, 24),
            8 * random.Pick32(1, 20),
            { 8 * random.Pick32(0, 2), 8 * random.Pick32(0, 2) } },
          random.Bits());
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelMeasure);

} // namespace
} // namespace cgr_test

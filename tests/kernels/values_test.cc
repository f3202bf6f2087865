// The search for NaN and infinities against a search in fp64: every dtype, alignment and width; only the rows that count; words
// that other steps have left.
#include <cmath>
#include <numeric>

#include "kernels/values.h"
#include "tests/support/device_memory.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// The value of the bits.
double ValueOf(int32_t dtype, uint32_t bits) {
  const int mantissa_bits = dtype == CGR_DTYPE_FP32 ? 23 : dtype == CGR_DTYPE_BF16 ? 7 : 10;
  const int exponent_bits = dtype == CGR_DTYPE_FP16 ? 5 : 8;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1), exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const double sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1.0 : 1.0;
  if (exponent == (1u << exponent_bits) - 1)
    return mantissa != 0 ? NAN : sign * INFINITY;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double whole = exponent == 0 ? mantissa : mantissa + double(1u << mantissa_bits);
  return sign * std::ldexp(whole, (exponent == 0 ? 1 : int(exponent)) - bias - mantissa_bits);
}

bool IsBad(int32_t dtype, uint32_t bits, bool masked) {
  const double value = ValueOf(dtype, bits);
  return std::isnan(value) || (std::isinf(value) && !(masked && value < 0));
}

struct Case {
  int32_t dtype = CGR_DTYPE_FP32;
  std::vector<int32_t> lens; // new tokens of each request
  std::vector<int32_t> seq_lens;
  int32_t padded_requests = 0, padded_tokens = 0;
  bool by_request = false, masked = false;
  int64_t width = 1, stride = 1, first = 0; // the first element of the rows in the memory
  int32_t bit = 0;

  int32_t NumTokens() const { return std::accumulate(lens.begin(), lens.end(), 0); }
  int32_t NumRows() const { return by_request ? padded_requests : padded_tokens; }
  int64_t Size() const { return dtype == CGR_DTYPE_FP32 ? 4 : 2; }
};

class KernelCheckValues : public KernelTest {
protected:
  void SetUp() override {
    Open({ &cgr__kernel_check_values });
    seed_ = Seed();
    random_.seed(seed_);
  }
  uint32_t Good(int32_t dtype) {
    for (;;) {
      const uint32_t bits = uint32_t(random_()) & (dtype == CGR_DTYPE_FP32 ? 0xffffffffu : 0xffffu);
      if (!IsBad(dtype, bits, false))
        return bits;
    }
  }
  // The largest numbers, infinities and NaN of both signs.
  uint32_t Edge(int32_t dtype) {
    const uint32_t exponent = dtype == CGR_DTYPE_FP32 ? 0x7f800000u : dtype == CGR_DTYPE_BF16 ? 0x7f80u : 0x7c00u;
    const uint32_t sign = dtype == CGR_DTYPE_FP32 ? 0x80000000u : 0x8000u;
    const uint32_t edges[] = { exponent - 1,         exponent,
                               exponent + 1,         exponent | (exponent >> 1),
                               sign | exponent,      sign | (exponent + 1),
                               sign | (exponent - 1) };
    return edges[random_() % 7];
  }
  void Store(const Case &c, Bytes *memory, int64_t element, uint32_t bits) {
    std::memcpy(memory->data() + element * c.Size(), &bits, size_t(c.Size()));
  }

  Case Draw() {
    Case c;
    const int32_t dtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 };
    c.dtype = dtypes[random_() % 3];
    const int32_t requests = Pick(random_, 0, 9);
    for (int32_t i = 0; i < requests; i++) {
      c.lens.push_back(Pick(random_, 0, 3) == 0 ? Pick(random_, 0, 9) : 1);
      c.seq_lens.push_back(Pick(random_, 0, 5) == 0 ? 0 : c.lens.back() + Pick(random_, 0, 40));
    }
    c.padded_requests = requests + Pick(random_, 0, 3);
    c.padded_tokens = c.NumTokens() + Pick(random_, 0, 4);
    c.by_request = Pick(random_, 0, 1) == 1;
    c.masked = Pick(random_, 0, 1) == 1;
    const int64_t widths[] = { 1, 2, 7, 64, 255, 1000, CGR__VALUES_STRETCH / 2, CGR__VALUES_STRETCH / 2 + 9, 33333 };
    c.width = widths[random_() % 9];
    c.stride = c.width + (Pick(random_, 0, 1) == 1 ? Pick(random_, 0, 17) : 0);
    c.first = Pick(random_, 0, 9);
    c.bit = Pick(random_, 0, CGR__MAX_VALUE_BITS - 1);
    return c;
  }
  // Rows of good values, with edges in some of them; everything around the rows that count is NaN.
  Bytes Fill(const Case &c) {
    Bytes memory(size_t((c.first + c.NumRows() * c.stride + 16) * c.Size()), 0xff);
    const int32_t real = c.by_request ? int32_t(c.lens.size()) : c.NumTokens();
    for (int32_t row = 0; row < real; row++)
      for (int64_t i = 0; i < c.width; i++)
        Store(c, &memory, c.first + row * c.stride + i, Good(c.dtype));
    for (int32_t row = 0; row < real; row++)
      if (Pick(random_, 0, 2) == 0)
        Store(c, &memory, c.first + row * c.stride + (random_() % 4 == 0 ? c.width - 1 : int64_t(random_() % uint64_t(c.width))),
              Edge(c.dtype));
    return memory;
  }
  std::vector<bool> Expected(const Case &c, const Bytes &memory) {
    std::vector<bool> bad(c.lens.size(), false);
    int32_t token = 0;
    for (size_t i = 0; i < c.lens.size(); token += c.lens[i++]) {
      const int32_t first = c.by_request ? int32_t(i) : token, count = c.by_request ? 1 : c.lens[i];
      if (c.lens[i] == 0 || c.seq_lens[i] == 0)
        continue;
      for (int64_t k = 0; k < count * c.width; k++) {
        uint32_t bits = 0;
        std::memcpy(&bits, memory.data() + (c.first + (first + k / c.width) * c.stride + k % c.width) * c.Size(),
                    size_t(c.Size()));
        bad[i] = bad[i] || IsBad(c.dtype, bits, c.masked);
      }
    }
    return bad;
  }
  // Runs the kernel in step `seq`, over words that hold what is given, and returns what they hold then.
  std::vector<int64_t> Run(const Case &c, const Bytes &memory, uint64_t seq, const std::vector<int64_t> &words) {
    std::vector<int64_t> state(sizeof(cgr__step_state) / 8, 0);
    state[0] = int64_t(seq - 1);
    std::vector<int32_t> counts(16, 0), start(size_t(c.padded_requests) + 1, c.NumTokens()), lens(c.seq_lens);
    counts[CGR_COUNT_REQUESTS] = int32_t(c.lens.size());
    counts[CGR_COUNT_TOKENS] = c.NumTokens();
    for (size_t i = 0, at = 0; i < c.lens.size(); at += size_t(c.lens[i++]))
      start[i] = int32_t(at);
    lens.resize(size_t(c.padded_requests) + 1, 0);
    Array<unsigned char> data(*bench_, memory);
    Array<int64_t> device_state(*bench_, state), flags(*bench_, words);
    Array<int32_t> device_counts(*bench_, counts), device_start(*bench_, start), device_lens(*bench_, lens);
    cgr__check_values_args args = {};
    args.data = data.data() + c.first * c.Size();
    args.width = c.width, args.stride = c.stride;
    args.counts = device_counts.data();
    args.query_start_loc = device_start.data();
    args.seq_lens = device_lens.data();
    args.state = reinterpret_cast<const cgr__step_state *>(device_state.data());
    args.flags = reinterpret_cast<uint64_t *>(flags.data());
    args.num_rows = c.NumRows();
    args.by_request = c.by_request;
    args.dtype = c.dtype;
    args.bit = c.bit;
    args.masked = c.masked;
    bench_->Run(cgr__kernel_check_values, &args);
    return flags.Get();
  }
  // A word of step `seq` with these bits.
  static int64_t Word(uint64_t seq, uint32_t bits) { return int64_t(seq << 16 | bits); }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

TEST_P(KernelCheckValues, MarksTheRequestsThatHaveSome) {
  int marked = 0, clean = 0;
  for (int n = 0; n < 60; n++) {
    SCOPED_TRACE(n);
    const Case c = Draw();
    const Bytes memory = Fill(c);
    const std::vector<bool> bad = Expected(c, memory);
    const uint64_t seq = 1 + random_() % (uint64_t(1) << 48);
    std::vector<int64_t> words(size_t(c.padded_requests) + 1);
    std::vector<uint32_t> before(words.size(), 0);
    for (size_t i = 0; i < words.size(); i++) { // of this step, of another one, or nothing
      before[i] = Pick(random_, 0, 2) == 0 ? uint32_t(random_() & 0xffff) : 0;
      words[i] = before[i] != 0 ? Word(seq, before[i]) : Pick(random_, 0, 1) == 0 ? Word(seq ^ 1, 0xffff) : 0;
    }
    const std::vector<int64_t> after = Run(c, memory, seq, words);
    for (size_t i = 0; i < words.size(); i++) {
      const bool is_bad = i < bad.size() && bad[i];
      ASSERT_EQ(after[i], is_bad ? Word(seq, before[i] | 1u << c.bit) : words[i]) << "request " << i;
      ASSERT_EQ(cgr__value_bits(uint64_t(after[i]), seq), is_bad ? before[i] | 1u << c.bit : before[i]);
      (is_bad ? marked : clean)++;
    }
  }
  EXPECT_GT(marked, 10);
  EXPECT_GT(clean, 10);
}

// Each element alone: none is skipped, wherever the row begins and ends.
TEST_P(KernelCheckValues, FindsEveryElement) {
  for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_FP16 })
    for (int64_t first = 0; first < 16 / (dtype == CGR_DTYPE_FP32 ? 4 : 2); first++) {
      Case c;
      c.dtype = dtype;
      c.first = first;
      c.width = c.stride = 21;
      c.by_request = true;
      c.lens.assign(size_t(c.width), 1);
      c.seq_lens.assign(size_t(c.width), 1);
      c.padded_requests = int32_t(c.width);
      Bytes memory(size_t((c.first + c.width * c.stride + 16) * c.Size()), 0);
      for (int64_t row = 0; row < c.width; row++) // element `row` of each row
        Store(c, &memory, c.first + row * c.stride + row, dtype == CGR_DTYPE_FP32 ? 0x7fc00000u : 0x7e00u);
      const std::vector<int64_t> after = Run(c, memory, 5, std::vector<int64_t>(size_t(c.width), 0));
      for (int64_t word : after)
        ASSERT_EQ(word, Word(5, 1)) << "dtype " << dtype << ", first " << first;
    }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelCheckValues);

} // namespace
} // namespace cgr_test

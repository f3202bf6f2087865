// The append to caches of 8 bits writes the codes of quotients, and not a byte more. The codes here come from the values of all
// codes: the nearest one, of two the even one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cgr/names.h"
#include "kernels/append.h"
#include "kernels/quantise.h"
#include "tests/support/checker.h"
#include "tests/support/paged_cache.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr cgr_dtype kQuantised[] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };

// The value of a code; NaN, and infinities of e5m2, are no values of the append.
double ValueOf(cgr_dtype dtype, int code) {
  if (dtype == CGR_DTYPE_I8)
    return code == 0x80 ? NAN : double(int8_t(code));
  const int mantissa = dtype == CGR_DTYPE_FP8_E4M3 ? 3 : 2, bias = dtype == CGR_DTYPE_FP8_E4M3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
  if (dtype == CGR_DTYPE_FP8_E4M3 ? (code & 0x7f) == 0x7f : exponent == 31)
    return NAN;
  const double whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
  return (code & 0x80 ? -1.0 : 1.0) * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa);
}

// The codes of numbers that are not negative, in order.
std::vector<int> Codes(cgr_dtype dtype) {
  std::vector<int> codes;
  for (int code = 0; code < 0x80; code++)
    if (!std::isnan(ValueOf(dtype, code)))
      codes.push_back(code);
  return codes;
}

class Coder {
public:
  explicit Coder(cgr_dtype dtype) : dtype_(dtype), codes_(Codes(dtype)) {}
  uint8_t operator()(float quotient) const {
    if (std::isnan(quotient))
      return dtype_ == CGR_DTYPE_I8 ? 0 : 0x7f;
    const double size = std::fabs(double(quotient));
    auto above = std::lower_bound(codes_.begin(), codes_.end(), size,
                                  [&](int code, double value) { return ValueOf(dtype_, code) < value; });
    int code = above == codes_.end() ? codes_.back() : *above;
    if (above != codes_.end() && above != codes_.begin()) {
      const double up = ValueOf(dtype_, *above) - size, down = size - ValueOf(dtype_, above[-1]);
      code = down < up || (down == up && above[-1] % 2 == 0) ? above[-1] : *above;
    }
    if (!std::signbit(quotient))
      return uint8_t(code);
    return uint8_t(dtype_ == CGR_DTYPE_I8 ? -code : code | 0x80);
  }

private:
  cgr_dtype dtype_;
  std::vector<int> codes_;
};

// Of an fp32 tensor the elements here are the upper halves; the lower ones follow from them.
uint32_t Wide(uint16_t bits) { return uint32_t(bits) << 16 | (bits * 40503u & 0xffffu); }

float ToFloat(cgr_dtype dtype, uint16_t bits) {
  uint32_t wide = dtype == CGR_DTYPE_FP32 ? Wide(bits) : uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  if (dtype != CGR_DTYPE_FP16)
    return x;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                               : std::ldexp(exponent == 0 ? fraction : fraction + 1024, std::max(exponent, 1) - 25);
  return float(bits & 0x8000 ? -size : size);
}

// One launch. K and V have dims of `dim` elements in pages [head][token], with `gap` elements after each head.
struct Launch {
  int32_t heads = 2, dim = 32, page_size = 16, pages = 4, gap = 16;
  cgr_dtype source = CGR_DTYPE_BF16, cache[2] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E4M3 };
  std::vector<int64_t> slots;
  std::vector<uint16_t> elements[2];        // [tokens][heads][dim]
  std::vector<float> scales[2];             // empty: NULL
  int64_t scale_strides[2][4] = { {}, {} }; // page, token, head, d
  std::vector<unsigned char> bytes[2];      // out
  std::vector<float> scales_after[2];       // out

  int64_t Stride(int which, int32_t of) const { // of: 0 page, 1 token, 2 head; in elements
    const int64_t token = dim + gap, head = token * page_size, page = head * heads + (which == 1 ? 64 : 0);
    return of == 0 ? page : of == 1 ? token : head;
  }
  size_t SourceBytes() const { return source == CGR_DTYPE_FP32 ? 4 : 2; }
  size_t ElementBytes(int which) const { return cache[which] == source ? SourceBytes() : 1; }
  Bytes Source(const uint16_t *from, size_t count) const {
    Bytes tensor(count * SourceBytes());
    for (size_t i = 0; i < count; i++) {
      const uint32_t bits = source == CGR_DTYPE_FP32 ? Wide(from[i]) : from[i];
      std::memcpy(&tensor[i * SourceBytes()], &bits, SourceBytes());
    }
    return tensor;
  }
  size_t CacheBytes(int which) const { return size_t(Stride(which, 0) * pages) * ElementBytes(which); }
};

class AppendQuantised : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_append }); }

  void Run(Launch *l) {
    cgr__append_args args = {};
    Array<int64_t> mapping(*bench_, l->slots);
    Array<unsigned char> k(*bench_, l->Source(l->elements[0].data(), l->elements[0].size()));
    Array<unsigned char> v(*bench_, l->Source(l->elements[1].data(), l->elements[1].size()));
    std::vector<std::unique_ptr<Array<unsigned char>>> caches;
    std::vector<std::unique_ptr<Array<float>>> scales;
    const int64_t row = l->elements[0].size() < size_t(l->dim) * size_t(l->heads) * l->slots.size() ? 0 : l->dim;
    args.k = { k.data(), l->source, 0, row == 0 ? l->dim : row * l->heads, row };
    args.v = args.k;
    args.v.data = v.data();
    for (int which : { 0, 1 }) {
      cgr_kv_view &view = which == 0 ? args.k_cache : args.v_cache;
      caches.push_back(std::make_unique<Array<unsigned char>>(*bench_, Bytes(l->CacheBytes(which), 0xA5)));
      scales.push_back(
          std::make_unique<Array<float>>(*bench_, l->scales[which].empty() ? std::vector<float>(1) : l->scales[which]));
      view = { caches.back()->data(),
               l->cache[which],
               0,
               l->Stride(which, 0),
               l->Stride(which, 1),
               l->Stride(which, 2),
               l->scales[which].empty() ? nullptr : scales.back()->data(),
               l->scale_strides[which][0],
               l->scale_strides[which][1],
               l->scale_strides[which][2],
               l->scale_strides[which][3] };
    }
    args.slot_mapping = mapping.data();
    args.num_pages = l->pages;
    args.page_size = l->page_size;
    args.num_tokens = int32_t(l->slots.size());
    args.num_kv_heads = l->heads;
    args.head_dim = args.head_dim_v = l->dim;
    bench_->Run(cgr__kernel_append, &args);
    for (int which : { 0, 1 }) {
      l->bytes[which] = caches[size_t(which)]->Get();
      l->scales_after[which] = scales[size_t(which)]->Get();
    }
  }

  // What Run must have left, byte by byte.
  static void Expect(const Launch &l) {
    for (int which : { 0, 1 }) {
      SCOPED_TRACE(which == 0 ? "k" : "v");
      Bytes want(l.CacheBytes(which), 0xA5);
      std::vector<float> scales = l.scales[which].empty() ? std::vector<float>(1) : l.scales[which];
      const Coder code(l.cache[which]);
      for (size_t t = 0; t < l.slots.size(); t++)
        for (int32_t h = 0; h < l.heads && l.slots[t] >= 0 && l.slots[t] < int64_t{ l.pages } * l.page_size; h++)
          PlaceHead(l, which, t, h, code, &want, &scales);
      for (size_t i = 0; i < want.size(); i++)
        ASSERT_EQ(int(l.bytes[which][i]), int(want[i])) << "byte " << i;
      ASSERT_EQ(0, std::memcmp(l.scales_after[which].data(), scales.data(), scales.size() * sizeof scales[0]));
    }
  }

private:
  static void PlaceHead(const Launch &l, int which, size_t t, int32_t h, const Coder &code, Bytes *want,
                        std::vector<float> *scales) {
    const int64_t page = l.slots[t] / l.page_size, offset = l.slots[t] % l.page_size, *strides = l.scale_strides[which];
    const bool shared = l.elements[which].size() < size_t(l.dim) * size_t(l.heads) * l.slots.size();
    const uint16_t *row = &l.elements[which][shared ? t * size_t(l.dim) : (t * size_t(l.heads) + size_t(h)) * size_t(l.dim)];
    const int64_t at = page * l.Stride(which, 0) + offset * l.Stride(which, 1) + h * l.Stride(which, 2);
    const int64_t scale_at = page * strides[0] + offset * strides[1] + h * strides[2];
    if (l.cache[which] == l.source) {
      const Bytes bytes = l.Source(row, size_t(l.dim));
      std::memcpy(&(*want)[size_t(at) * l.SourceBytes()], bytes.data(), bytes.size());
      return;
    }
    if (strides[1] != 0) {
      float most = 0.0f;
      for (int32_t d = 0; d < l.dim; d++)
        if (float x = std::fabs(ToFloat(l.source, row[d])); x > most)
          most = x;
      (*scales)[size_t(scale_at)] = most / 127.0f;
    }
    for (int32_t d = 0; d < l.dim; d++) {
      const float scale = l.scales[which].empty() ? 1.0f : (*scales)[size_t(scale_at + d * strides[3])];
      (*want)[size_t(at) + size_t(d)] = code(ToFloat(l.source, row[d]) / scale);
    }
  }
};

// Every bit pattern of bf16 over 64 factors, of fp16 and as many of fp32 over 8: powers of two from 2^-20 to 2^20, and random
// ones.
TEST_P(AppendQuantised, EveryElementOverManyFactors) {
  SeededRandom random;
  for (cgr_dtype source : { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 })
    for (cgr_dtype dtype : kQuantised) {
      SCOPED_TRACE(cgr_dtype_name(dtype));
      const int32_t each = source != CGR_DTYPE_BF16 || UnderChecker() ? 8 : 64;
      Launch l;
      l.heads = each, l.dim = 1024, l.page_size = 64, l.pages = 1, l.source = source;
      for (int which : { 0, 1 }) {
        l.cache[which] = dtype;
        l.scale_strides[which][2] = 1;
        for (int32_t h = 0; h < each; h++)
          l.scales[which].push_back(h % 3 == 0 ? std::ldexp(1.0f, h * 40 / each - 20)
                                               : float(random.Pick32(1, 1 << 20)) / 4096.0f);
      }
      for (int32_t t = 0; t < 64; t++)
        l.slots.push_back(t);
      for (int32_t i = 0; i < 65536; i++) {
        l.elements[0].push_back(uint16_t(i));
        l.elements[1].push_back(uint16_t(65535 - i));
      }
      Run(&l);
      ASSERT_NO_FATAL_FAILURE(Expect(l));
    }
}

// With every arrangement of factors: none, one, for each head, each element, each token.
TEST_P(AppendQuantised, WithFactorsOfEveryShape) {
  SeededRandom random;
  for (int round = 0; round < 60; round++) {
    Launch l;
    l.heads = random.Pick32(1, 5), l.dim = 16 * random.Pick32(1, 20), l.page_size = 1 << random.Pick(0, 5), l.pages = 5;
    l.gap = 16 * random.Pick32(0, 2);
    l.source = random.OneIn(3) ? CGR_DTYPE_FP32 : random.OneIn(2) ? CGR_DTYPE_BF16 : CGR_DTYPE_FP16;
    std::vector<int64_t> all(size_t(l.pages * l.page_size));
    for (size_t i = 0; i < all.size(); i++)
      all[i] = int64_t(i);
    std::shuffle(all.begin(), all.end(), std::mt19937_64(random.Bits()));
    const int64_t outside[] = { -1, -2, INT64_MIN, int64_t(all.size()), INT64_MAX, int64_t{ 1 } << 40 };
    for (int32_t t = random.Pick32(1, 40); t > 0; t--)
      l.slots.push_back(random.OneIn(4) || all.empty() ? outside[random.Pick(0, 5)] : all.back()),
          all.resize(all.empty() ? 0 : all.size() - 1);
    for (int which : { 0, 1 }) {
      const int kind = int(random.Pick(0, 4)); // of factors
      l.cache[which] = kind == 4 ? l.source : kind == 3 ? CGR_DTYPE_I8 : kQuantised[random.Pick(0, kind == 0 ? 1 : 2)];
      if (kind == 1 || kind == 2)
        l.scale_strides[which][2] = kind == 1 && random.OneIn(2) ? 0
                                    : kind == 1                  ? 1
                                                                 : l.dim,
        l.scale_strides[which][3] = kind == 2;
      if (kind == 3)
        l.scale_strides[which][0] = l.page_size * l.heads + 1, l.scale_strides[which][1] = l.heads, l.scale_strides[which][2] = 1;
      for (int64_t i = 0;
           kind > 0 && kind < 4 && i < std::max<int64_t>(int64_t{ l.heads } * l.dim, l.scale_strides[which][0] * l.pages); i++)
        l.scales[which].push_back(kind == 3 ? -7.0f : float(random.Pick32(1, 1000)) / 256.0f);
      for (size_t i = 0; i < size_t(l.dim) * size_t(l.heads) * l.slots.size(); i++)
        l.elements[which].push_back(random.OneIn(30) ? 0 : uint16_t(random.Bits()));
      for (size_t i = 0; i < size_t(l.dim); i++) // a head of zeros
        l.elements[which][i] = uint16_t(i % 2 * 0x8000);
    }
    if (l.cache[0] == l.source && l.cache[1] == l.source)
      continue; // the append that copies
    SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(l.heads) + " x " + std::to_string(l.dim) + ", k " +
                 cgr_dtype_name(l.cache[0]) + ", v " + cgr_dtype_name(l.cache[1]) + " of " + cgr_dtype_name(l.source) +
                 ", factors " + std::to_string(l.scales[0].size()) + " and " + std::to_string(l.scales[1].size()));
    Run(&l);
    ASSERT_NO_FATAL_FAILURE(Expect(l));
  }
}

// The test's coder maps each value to its own code.
TEST(AppendQuantisedCodes, AreTheirValues) {
  for (cgr_dtype dtype : kQuantised) {
    const Coder code(dtype);
    for (int of : Codes(dtype)) {
      EXPECT_EQ(int(code(float(ValueOf(dtype, of)))), of);
      EXPECT_EQ(ValueOf(dtype, of), std::fabs(ValueOf(dtype, code(-float(ValueOf(dtype, of))))));
    }
    EXPECT_EQ(ValueOf(dtype, code(1e30f)), dtype == CGR_DTYPE_I8 ? 127.0 : dtype == CGR_DTYPE_FP8_E4M3 ? 448.0 : 57344.0);
  }
}

// All 256 codes decode to their values, and finite ones back to themselves.
TEST(AppendQuantisedCodes, AreDecodedExactly) {
  for (cgr_dtype dtype : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 }) {
    const bool wide = dtype == CGR_DTYPE_FP8_E4M3; // in its mantissa
    for (int code = 0; code < 256; code++) {
      const float value = cgr__fp8_value(uint8_t(code), wide ? 3 : 2, wide ? 7 : 15);
      if (!wide && (code & 0x7f) == 0x7c) {
        EXPECT_EQ(value, code & 0x80 ? -INFINITY : INFINITY) << code;
      } else if (std::isnan(ValueOf(dtype, code))) {
        EXPECT_TRUE(std::isnan(value)) << code;
      } else {
        EXPECT_EQ(double(value), ValueOf(dtype, code)) << code;
        EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
        EXPECT_EQ(int(cgr__quantise(value, 1.0f, dtype)), code);
      }
    }
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(AppendQuantised);

} // namespace
} // namespace cgr_test

// The transform against fp64: biases, norms and rope of every kind, dtype and width, in place and on the way to caches. What goes
// to a cache of 8 bits is what the append makes of the rounded elements, bit for bit; nothing else is written.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cgr/names.h"
#include "kernels/append.h"
#include "kernels/quantise.h"
#include "kernels/reference/reference.h"
#include "kernels/transform.h"
#include "tests/support/checker.h"
#include "tests/support/paged_cache.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

enum Rope { kNone, kHalves, kNeighbours };
enum Factors { kNoFactors, kOfHeads, kOfChannels, kOfTokens }; // of a cache of 8 bits
constexpr int kNumTensors = CGR__NUM_TRANSFORMED;
constexpr int32_t kPageSize = 16, kPositions = 50;

struct TransformCase {
  int32_t dtype = CGR_DTYPE_BF16;
  int32_t tokens = 5, real = 4;
  int32_t heads[kNumTensors] = { 4, 2, 2 }, dim[kNumTensors] = { 64, 64, 64 };
  bool bias = true, norm = true, plus_one = false;
  Rope rope = kHalves;
  int32_t rotary_dim = 64;
  bool to_cache = true;
  int32_t cache[2] = { 0, 0 }; // dtypes of K and V; 0: as they are
  Factors factors[2] = { kNoFactors, kNoFactors };
  float epsilon = 1e-5f;
  uint64_t seed = 1;

  int32_t CacheType(int kv) const { return cache[kv] != 0 ? cache[kv] : dtype; }
  std::string Text() const {
    std::string text = std::string(cgr_dtype_name(cgr_dtype(dtype))) + ", " + std::to_string(real) + " of " +
                       std::to_string(tokens) + " tokens, rope " + std::to_string(rope) + " of " + std::to_string(rotary_dim) +
                       (bias ? ", bias" : "") + (norm ? ", norm" : "") + (plus_one ? " plus one" : "") +
                       (to_cache ? ", to a cache" : ", in place") + ", seed " + std::to_string(seed);
    for (int i = 0; i < kNumTensors; i++)
      text += ", " + std::to_string(heads[i]) + " x " + std::to_string(dim[i]);
    for (int kv = 0; kv < 2; kv++)
      text += std::string(", ") + cgr_dtype_name(cgr_dtype(CacheType(kv))) + " factors " + std::to_string(factors[kv]);
    return text;
  }
};

// What a test puts into memory, and what a launch makes of it.
struct Memory {
  Bytes tensors; // q, k and v of a token one after the other, with gaps
  Bytes bias[kNumTensors], norm[2];
  std::vector<float> cos_sin;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  Bytes cache[2];
  std::vector<float> factors[2];
};

// Where things are.
struct PlacesOf {
  const TransformCase &c;
  int64_t size() const { return ElementSize(cgr_dtype(c.dtype)); }
  int64_t Gap() const { return c.seed % 2 == 0 ? 0 : 8; }
  int64_t Start(int i) const { return i == 0 ? 0 : Start(i - 1) + c.heads[i - 1] * (c.dim[i - 1] + Gap()); } // of q, k or v
  int64_t Stride() const { return Start(2) + c.heads[2] * (c.dim[2] + Gap()) + 16; }
  int64_t At(int i, int32_t token, int32_t head) const { return token * Stride() + Start(i) + head * (c.dim[i] + Gap()); }
  cgr_view View(int i, void *data) const {
    return { static_cast<unsigned char *>(data) + Start(i) * size(), c.dtype, 0, Stride(), c.dim[i] + Gap() };
  }
  int64_t Pages() const { return (c.tokens + kPageSize - 1) / kPageSize + 1; }
  int64_t PageElements(int kv) const { return (c.dim[1 + kv] * kPageSize + 16) * c.heads[1 + kv] + 64 * kv; }
  size_t CacheBytes(int kv, int32_t dtype) const { return size_t(PageElements(kv) * Pages() * ElementSize(cgr_dtype(dtype))); }
  cgr_kv_view Cache(int kv, int32_t dtype, void *base, float *factors) const {
    const int32_t dim = c.dim[1 + kv], heads = c.heads[1 + kv];
    cgr_kv_view view = { base, dtype, 0, PageElements(kv), dim, dim * kPageSize + 16, nullptr, 0, 0, 0, 0 };
    if (!cgr__is_quantised(dtype) || c.factors[kv] == kNoFactors)
      return view;
    view.scale = factors;
    view.scale_stride_head = c.factors[kv] == kOfChannels ? dim : c.factors[kv] == kOfTokens ? kPageSize : 1;
    view.scale_stride_d = c.factors[kv] == kOfChannels;
    view.scale_stride_page = c.factors[kv] == kOfTokens ? kPageSize * heads : 0;
    view.scale_stride_token = c.factors[kv] == kOfTokens;
    return view;
  }
  int64_t CacheAt(int kv, int64_t slot, int32_t head) const {
    return slot / kPageSize * PageElements(kv) + slot % kPageSize * c.dim[1 + kv] + head * (c.dim[1 + kv] * kPageSize + 16);
  }
  int64_t NumFactors(int kv) const { return Pages() * kPageSize * c.heads[1 + kv] + int64_t{ c.heads[1 + kv] } * c.dim[1 + kv]; }
};

Bytes RandomElements(int32_t dtype, int64_t count, double size, Random &random) {
  Bytes bytes(size_t(count * ElementSize(cgr_dtype(dtype))));
  for (int64_t i = 0; i < count; i++)
    cgr__reference_store(dtype, &bytes[size_t(i * ElementSize(cgr_dtype(dtype)))],
                         double(random.Pick32(-4096, 4096)) / 4096.0 * size);
  return bytes;
}

double Element(int32_t dtype, const Bytes &bytes, int64_t i) {
  return cgr__reference_load(dtype, &bytes[size_t(i * ElementSize(cgr_dtype(dtype)))]);
}

// Half of the distance of neighbouring values around x.
double HalfStep(int32_t dtype, double x) {
  const int bits = dtype == CGR_DTYPE_FP32 ? 23 : dtype == CGR_DTYPE_FP16 ? 10 : 7, least = dtype == CGR_DTYPE_FP16 ? -14 : -126;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(0.5, std::max(exponent - 1, least) - bits);
}

// A head in fp64; size: what fp32 rounds on the way to each element.
struct Exact {
  std::vector<double> value, size;
};

Exact Solve(const TransformCase &c, const Memory &m, int i, int32_t token, int32_t head) {
  const PlacesOf at = { c };
  const int32_t dim = c.dim[i], half = c.rotary_dim / 2;
  Exact e;
  double squares = 0.0;
  for (int32_t d = 0; d < dim; d++) {
    const double x = Element(c.dtype, m.tensors, at.At(i, token, head) + d);
    const double b = c.bias ? Element(c.dtype, m.bias[i], int64_t{ head } * dim + d) : 0.0;
    e.value.push_back(x + b), e.size.push_back(std::fabs(x) + std::fabs(b));
    squares += (x + b) * (x + b);
  }
  for (int32_t d = 0; d < dim && c.norm && i < 2; d++) {
    const double weight = Element(c.dtype, m.norm[i], d), factor = weight + (c.plus_one ? 1.0 : 0.0);
    const double inverse = 1.0 / std::sqrt(squares / dim + double(c.epsilon));
    e.value[size_t(d)] *= inverse * factor;
    e.size[size_t(d)] *= inverse * (std::fabs(weight) + (c.plus_one ? 1.0 : 0.0));
  }
  const int32_t position = std::min(std::max(m.positions[size_t(token)], 0), kPositions - 1);
  for (int32_t p = 0; p < half && c.rope != kNone && i < 2; p++) {
    const size_t x = size_t(c.rope == kHalves ? p : 2 * p), y = c.rope == kHalves ? x + size_t(half) : x + 1;
    const double cosine = m.cos_sin[size_t(position * c.rotary_dim + p)];
    const double sine = m.cos_sin[size_t(position * c.rotary_dim + half + p)];
    const double a = e.value[x], b = e.value[y], size = e.size[x] + e.size[y];
    e.value[x] = a * cosine - b * sine, e.value[y] = b * cosine + a * sine;
    e.size[x] = e.size[y] = size;
  }
  return e;
}

class KernelTransform : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_transform, &cgr__kernel_append }); }

  static Memory Draw(const TransformCase &c) {
    const PlacesOf at = { c };
    Random random(c.seed);
    Memory m;
    m.tensors = RandomElements(c.dtype, at.Stride() * c.tokens, 3.0, random);
    for (int i = 0; i < kNumTensors; i++)
      m.bias[i] = RandomElements(c.dtype, int64_t{ c.heads[i] } * c.dim[i], 2.0, random);
    for (int i = 0; i < 2; i++)
      m.norm[i] = RandomElements(c.dtype, c.dim[i], 1.5, random);
    for (int32_t p = 0; p < kPositions; p++)
      for (int32_t k = 0; k < c.rotary_dim; k++) {
        const double angle = double(p) * std::pow(100.0, -2.0 * (k % (c.rotary_dim / 2)) / c.rotary_dim);
        m.cos_sin.push_back(float(k < c.rotary_dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    m.cos_sin.resize(std::max<size_t>(m.cos_sin.size(), 4));
    for (int32_t t = 0; t < c.tokens; t++) {
      m.positions.push_back(random.OneIn(9) ? (random.OneIn(2) ? -7 : kPositions + 3) : random.Pick32(0, kPositions - 1));
      m.slots.push_back(t);
    }
    std::shuffle(m.slots.begin(), m.slots.end(), std::mt19937_64(random.Bits()));
    for (int32_t t = 0; t < c.tokens; t++)
      if (t >= c.real || random.OneIn(8))
        m.slots[size_t(t)] = t >= c.real || random.OneIn(2) ? -1 : at.Pages() * kPageSize + 3;
    for (int kv = 0; kv < 2; kv++) {
      m.cache[kv] = Bytes(at.CacheBytes(kv, c.CacheType(kv)), 0xA5);
      for (int64_t n = 0; n < at.NumFactors(kv); n++)
        m.factors[kv].push_back(float(random.Pick32(1, 1000)) / 4096.0f);
    }
    return m;
  }

  // On the device; `m` gets what is there afterwards. Of the append alone: only k and v.
  void Run(const TransformCase &c, Memory *m, bool append_alone = false) {
    const PlacesOf at = { c };
    Array<unsigned char> tensors(*bench_, m->tensors), k_cache(*bench_, m->cache[0]), v_cache(*bench_, m->cache[1]);
    Array<unsigned char> q_bias(*bench_, m->bias[0]), k_bias(*bench_, m->bias[1]), v_bias(*bench_, m->bias[2]);
    Array<unsigned char> q_norm(*bench_, m->norm[0]), k_norm(*bench_, m->norm[1]);
    Array<float> cos_sin(*bench_, m->cos_sin), k_factors(*bench_, m->factors[0]), v_factors(*bench_, m->factors[1]);
    Array<int32_t> positions(*bench_, m->positions);
    Array<int64_t> slots(*bench_, m->slots);
    std::vector<int32_t> words(16, 0);
    words[CGR_COUNT_TOKENS] = c.real;
    Array<int32_t> counts(*bench_, words);
    const cgr_kv_view caches[2] = { at.Cache(0, c.CacheType(0), k_cache.data(), k_factors.data()),
                                    at.Cache(1, c.CacheType(1), v_cache.data(), v_factors.data()) };
    if (append_alone) {
      const cgr__append_args args = { caches[0],
                                      caches[1],
                                      at.View(1, tensors.data()),
                                      at.View(2, tensors.data()),
                                      slots.data(),
                                      at.Pages(),
                                      kPageSize,
                                      c.tokens,
                                      c.heads[1],
                                      c.dim[1],
                                      c.dim[2],
                                      0 };
      bench_->Run(cgr__kernel_append, &args);
    } else {
      const void *bias[] = { q_bias.data(), k_bias.data(), v_bias.data() }, *norm[] = { q_norm.data(), k_norm.data(), nullptr };
      cgr__transform_args args = {};
      for (int i = 0; i < kNumTensors; i++) {
        cgr__transformed &t = args.tensor[i];
        t.from = at.View(i, tensors.data());
        if (i > 0 && c.to_cache)
          t.to = caches[i - 1];
        t.bias = c.bias ? bias[i] : nullptr, t.norm = c.norm ? norm[i] : nullptr;
        t.num_heads = c.heads[i], t.head_dim = c.dim[i], t.rotary_dim = c.rope != kNone && i < 2 ? c.rotary_dim : 0;
      }
      args.cos_sin = cos_sin.data(), args.positions = positions.data(), args.counts = counts.data();
      args.slot_mapping = slots.data(), args.num_pages = at.Pages(), args.page_size = kPageSize;
      args.num_tokens = c.tokens, args.num_positions = kPositions, args.interleaved = c.rope == kNeighbours;
      args.epsilon = c.epsilon, args.norm_offset = c.plus_one ? 1.0f : 0.0f;
      bench_->Run(cgr__kernel_transform, &args);
    }
    m->tensors = tensors.Get();
    m->cache[0] = k_cache.Get(), m->cache[1] = v_cache.Get();
    m->factors[0] = k_factors.Get(), m->factors[1] = v_factors.Get();
  }

  // The head's elements at `got` are right. They are copied to `want`, so that what is compared afterwards is all else.
  static void ExpectHead(const TransformCase &c, const Exact &exact, const Bytes &got, int64_t at, Bytes *want) {
    const size_t size = size_t(ElementSize(cgr_dtype(c.dtype)));
    for (size_t d = 0; d < exact.value.size(); d++) {
      const double x = Element(c.dtype, got, at + int64_t(d)), y = exact.value[d];
      const double bound = HalfStep(c.dtype, std::max(std::fabs(x), std::fabs(y))) + std::ldexp(exact.size[d], -21);
      ASSERT_LE(std::fabs(x - y), bound) << "element " << d << " is " << x << ", expected " << y;
    }
    std::memcpy(&(*want)[size_t(at) * size], &got[size_t(at) * size], exact.value.size() * size);
  }
  static void ExpectRight(const TransformCase &c, const Memory &before, const Memory &after) {
    const PlacesOf at = { c };
    Memory want = before;
    for (int32_t t = 0; t < c.real; t++)
      for (int i = 0; i < kNumTensors; i++)
        for (int32_t h = 0; h < c.heads[i]; h++) {
          SCOPED_TRACE("token " + std::to_string(t) + ", " + "qkv"[i] + ", head " + std::to_string(h));
          const bool placed = i > 0 && c.to_cache;
          const int64_t slot = before.slots[size_t(t)];
          if (placed && (slot < 0 || slot >= at.Pages() * kPageSize))
            continue;
          if (placed)
            ExpectHead(c, Solve(c, before, i, t, h), after.cache[i - 1], at.CacheAt(i - 1, slot, h), &want.cache[i - 1]);
          else
            ExpectHead(c, Solve(c, before, i, t, h), after.tensors, at.At(i, t, h), &want.tensors);
          ASSERT_FALSE(HasFatalFailure());
        }
    EXPECT_TRUE(after.tensors == want.tensors) << "something else was written among q, k and v";
    EXPECT_TRUE(after.cache[0] == want.cache[0] && after.cache[1] == want.cache[1]) << "or in the caches";
  }

  void Check(const TransformCase &c) {
    SCOPED_TRACE(c.Text());
    const Memory before = Draw(c);
    TransformCase wide = c; // whose caches are of the dtype
    wide.cache[0] = wide.cache[1] = 0;
    Memory first = Draw(wide), in_place = Draw(wide);
    const Memory start = first;
    Run(wide, &first);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(wide, start, first));
    if (!c.to_cache)
      return;
    // In place, and then what the append makes of that.
    wide.to_cache = false;
    Run(wide, &in_place);
    Memory appended = before, fused = before;
    appended.tensors = in_place.tensors;
    Run(c, &appended, true);
    Run(c, &fused);
    for (int kv = 0; kv < 2; kv++) {
      EXPECT_TRUE(fused.cache[kv] == appended.cache[kv]) << "bytes of the cache of "
                                                         << "kv"[kv];
      EXPECT_EQ(0, std::memcmp(fused.factors[kv].data(), appended.factors[kv].data(), fused.factors[kv].size() * 4));
    }
    EXPECT_TRUE(fused.tensors == first.tensors) << "q does not depend on the cache";
  }
};

TEST_P(KernelTransform, BiasNormAndRopeOfEveryKind) {
  uint64_t seed = 1;
  for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
    for (Rope rope : { kNone, kHalves, kNeighbours })
      for (int32_t rotary_dim : { 64, 16, 48 })
        for (int parts = 0; parts < 8; parts++) {
          TransformCase c;
          c.dtype = dtype, c.rope = rope, c.rotary_dim = rotary_dim, c.seed = seed++;
          c.bias = parts & 1, c.norm = parts & 2, c.to_cache = parts & 4, c.plus_one = seed % 3 == 0;
          if (rope == kNone && rotary_dim != 64)
            continue;
          ASSERT_NO_FATAL_FAILURE(Check(c));
        }
}

TEST_P(KernelTransform, OfEveryWidth) {
  uint64_t seed = 1000;
  for (int32_t dim : UnderChecker() ? std::vector<int32_t>{ 128 }
                                    : std::vector<int32_t>{ 8, 16, 24, 40, 80, 96, 128, 192, 256, 512, 520, 576, 1000, 1024 })
    for (Rope rope : { kHalves, kNeighbours })
      for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_BF16 }) {
        TransformCase c;
        c.dtype = dtype, c.rope = dim < 16 ? kNone : rope, c.seed = seed++;
        c.heads[0] = 3, c.heads[1] = c.heads[2] = 1;
        c.dim[0] = c.dim[1] = dim, c.dim[2] = seed % 2 == 0 ? dim : 72;
        c.rotary_dim = std::max(16, dim / 16 * 16);
        ASSERT_NO_FATAL_FAILURE(Check(c));
      }
}

TEST_P(KernelTransform, QuantisesTheRoundedElementsAsTheAppendDoes) {
  uint64_t seed = 2000;
  for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
    for (int32_t cache : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 })
      for (Factors factors : { kNoFactors, kOfHeads, kOfChannels, kOfTokens })
        for (int which : { 0, 1, 2 }) { // K, V, both
          if ((cache == CGR_DTYPE_I8 && factors == kNoFactors) || (cache != CGR_DTYPE_I8 && factors == kOfTokens))
            continue;
          TransformCase c;
          c.dtype = dtype, c.seed = seed++, c.bias = seed % 3 != 0, c.norm = seed % 2 == 0;
          c.rope = Rope(seed % 3), c.dim[0] = c.dim[1] = c.dim[2] = 80, c.rotary_dim = 32;
          for (int kv : { 0, 1 })
            if (which == kv || which == 2)
              c.cache[kv] = cache, c.factors[kv] = factors;
          ASSERT_NO_FATAL_FAILURE(Check(c));
        }
}

TEST_P(KernelTransform, LeavesPaddedTokensAlone) {
  for (int32_t real : { 0, 1, 7, 33 })
    for (bool to_cache : { false, true }) {
      TransformCase c;
      c.tokens = 40, c.real = real, c.to_cache = to_cache, c.seed = uint64_t(3000 + real);
      ASSERT_NO_FATAL_FAILURE(Check(c));
    }
}

// A tensor without heads is left out; one without bias, norm and rope keeps its bits, those of a NaN too.
TEST_P(KernelTransform, CopiesWhatDoesNotChange) {
  for (int32_t dtype : { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 }) {
    TransformCase c;
    c.dtype = dtype, c.bias = c.norm = false, c.rope = kNone, c.seed = 4000;
    c.heads[0] = 0;
    Memory before = Draw(c);
    Random random(7);
    for (unsigned char &byte : before.tensors)
      byte = static_cast<unsigned char>(random.Bits());
    Memory appended = before, fused = before;
    Run(c, &appended, true);
    Run(c, &fused);
    EXPECT_TRUE(fused.cache[0] == appended.cache[0] && fused.cache[1] == appended.cache[1]);
    EXPECT_TRUE(fused.tensors == before.tensors);
    EXPECT_FALSE(fused.cache[0] == before.cache[0]);
  }
}

TEST_P(KernelTransform, OfRandomShapes) {
  SeededRandom random;
  for (int round = 0; round < (UnderChecker() ? 5 : 60); round++) {
    const int32_t dtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 };
    const int32_t codes[] = { 0, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
    TransformCase c;
    c.dtype = dtypes[random.Pick(0, 2)], c.tokens = random.Pick32(1, 40), c.real = random.Pick32(0, c.tokens);
    c.heads[1] = c.heads[2] = random.Pick32(1, 6), c.heads[0] = c.heads[1] * random.Pick32(1, 9);
    c.dim[0] = c.dim[1] = 16 * random.Pick32(1, 20), c.dim[2] = random.OneIn(2) ? c.dim[0] : 16 * random.Pick32(1, 9);
    c.rotary_dim = 16 * random.Pick32(1, c.dim[0] / 16), c.rope = Rope(random.Pick(0, 2));
    c.bias = random.OneIn(2), c.norm = random.OneIn(2), c.plus_one = random.OneIn(2), c.to_cache = !random.OneIn(4);
    for (int kv : { 0, 1 }) {
      c.cache[kv] = codes[random.Pick(0, 3)];
      c.factors[kv] = c.cache[kv] == CGR_DTYPE_I8 ? Factors(random.Pick(1, 3)) : Factors(random.Pick(0, 2));
    }
    c.epsilon = random.OneIn(2) ? 1e-6f : 0.25f, c.seed = random.Bits();
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelTransform);

} // namespace
} // namespace cgr_test

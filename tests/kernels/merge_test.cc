// Merge against fp64: every dtype and layout, sides that have seen nothing, padding, in place, and not a byte next to its
// outputs.
#include "kernels/merge.h"
#include "kernels/reference/merge.h"
#include "tests/support/attention_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

enum Side { kA, kB };
enum class Place { kApart, kInA, kInB };

struct MergeCase {
  int32_t num_tokens = 5, num_real = 4, num_heads = 3, head_dim = 64;
  int32_t dtype[2] = { CGR_DTYPE_FP32, CGR_DTYPE_FP32 }, out_dtype = CGR_DTYPE_FP32;
  ViewPadding padding[3]; // of a, b and out
  bool heads_first = false;
  LseLayout lse_layout[3] = { LseLayout::kTokens, LseLayout::kTokens, LseLayout::kTokens }; // of a, b and the result
  Place place = Place::kApart;
  bool wants_lse = true;
  bool holes = true; // some sides have seen nothing

  TensorShape Shape(int32_t dtype_of, const ViewPadding &pad) const {
    int64_t head = head_dim + pad.head;
    if (heads_first)
      return { dtype_of, num_tokens, num_heads, head_dim, head + pad.token, (head + pad.token) * num_tokens };
    return { dtype_of, num_tokens, num_heads, head_dim, head * num_heads + pad.token, head };
  }
  TensorShape SideShape(Side side) const { return Shape(dtype[side], padding[side]); }
  TensorShape OutShape() const {
    return place == Place::kApart ? Shape(out_dtype, padding[2]) : SideShape(place == Place::kInA ? kA : kB);
  }
  TensorShape LseShape(LseLayout layout) const {
    if (layout == LseLayout::kTokens)
      return { CGR_DTYPE_FP32, num_tokens, num_heads, 1, num_heads, 1 };
    if (layout == LseLayout::kHeads)
      return { CGR_DTYPE_FP32, num_tokens, num_heads, 1, 1, num_tokens };
    return { CGR_DTYPE_FP32, num_tokens, num_heads, 1, 3 * num_heads + 2, 3 };
  }
  TensorShape OutLseShape() const { return LseShape(lse_layout[place == Place::kApart ? 2 : place == Place::kInA ? 0 : 1]); }
};

// The values of one side, dense, and in memory as the kernel gets them, with poison between the elements.
struct SideValues {
  Values out, lse;
  Bytes out_bytes, lse_bytes;
};

class KernelMerge : public KernelTest {
protected:
  void SetUp() override {
    Open({ &cgr__kernel_merge });
    seed_ = Seed();
    random_.seed(seed_);
  }
  double Draw(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  bool OneIn(int32_t n) { return Pick(random_, 1, n) == 1; }

  double DrawLse(bool holes) {
    if (holes && OneIn(5))
      return OneIn(4) ? INFINITY : -INFINITY;
    return OneIn(6) ? Draw(-300, 300) : Draw(-4, 4);
  }
  // Elements of a head that has seen nothing may be anything: NaN, infinite, or numbers.
  double DrawElement(int32_t dtype, bool is_empty) {
    if (is_empty && !OneIn(4))
      return OneIn(2) ? NAN : OneIn(2) ? INFINITY : -INFINITY;
    return cgr__reference_round(dtype, Draw(-2, 2));
  }
  static Bytes InMemory(const TensorShape &shape, const Values &dense) {
    Bytes memory(shape.SizeInBytes(), kPoisonByte);
    size_t at = 0;
    shape.EachHead([&](size_t byte) {
      StoreElements(shape.dtype, &dense[at], shape.width, &memory[byte]);
      at += size_t(shape.width);
    });
    return memory;
  }
  SideValues DrawSide(const MergeCase &c, Side side) {
    SideValues v;
    for (int32_t t = 0; t < c.num_tokens; t++)
      for (int32_t h = 0; h < c.num_heads; h++) {
        const bool is_real = t < c.num_real;
        v.lse.push_back(is_real ? cgr__reference_round(CGR_DTYPE_FP32, DrawLse(c.holes)) : NAN);
        for (int32_t d = 0; d < c.head_dim; d++)
          v.out.push_back(is_real ? DrawElement(c.dtype[side], std::isinf(v.lse.back())) : NAN);
      }
    v.out_bytes = InMemory(c.SideShape(side), v.out);
    v.lse_bytes = InMemory(c.LseShape(c.lse_layout[side]), v.lse);
    return v;
  }

  // The result for a head of a token, in fp64 and at the kernel's precision.
  struct Expected {
    Values out, near;
    double lse, near_lse;
  };
  static Expected Solve(const MergeCase &c, SideValues *sides, size_t head) {
    const size_t dim = size_t(c.head_dim);
    Expected e = { Values(dim), Values(dim), 0, 0 };
    cgr__reference_head in[2], exact = { e.out.data(), 0 }, near = { e.near.data(), 0 };
    for (Side side : { kA, kB })
      in[side] = { &sides[side].out[head * dim], sides[side].lse[head] };
    cgr__reference_merge(c.head_dim, &in[kA], &in[kB], &exact);
    cgr__reference_merge_in(c.OutShape().dtype, c.head_dim, &in[kA], &in[kB], &near);
    e.lse = exact.lse;
    e.near_lse = near.lse;
    return e;
  }
  // A head of which only one side has seen a key is that side's own; if neither has, it is nothing.
  static void ExpectKept(const MergeCase &c, SideValues *sides, size_t head, const Values &out, double lse) {
    const bool empty[2] = { std::isinf(sides[kA].lse[head]), std::isinf(sides[kB].lse[head]) };
    const size_t dim = size_t(c.head_dim), at = head * dim;
    if (!empty[kA] && !empty[kB])
      return;
    if (empty[kA] && empty[kB]) {
      ExpectNothing(Values(out.begin() + int64_t(at), out.begin() + int64_t(at + dim)), { lse });
      return;
    }
    const SideValues &kept = sides[empty[kA] ? kB : kA];
    ASSERT_EQ(lse, kept.lse[head]);
    for (size_t d = at; d < at + dim; d++) {
      const double whole = cgr__reference_round(c.OutShape().dtype, kept.out[d]);
      ASSERT_TRUE(out[d] == whole && std::signbit(out[d]) == std::signbit(whole)) << out[d] << ", expected " << whole;
    }
  }
  static void Compare(const MergeCase &c, SideValues *sides, const Values &out, const Values &lse) {
    const size_t dim = size_t(c.head_dim), real = size_t(c.num_real * c.num_heads);
    const int32_t dtype = c.OutShape().dtype;
    Values want, want_lse, near, near_lse;
    for (size_t head = 0; head < real; head++) {
      Expected e = Solve(c, sides, head);
      const bool is_empty = std::isinf(e.lse);
      ASSERT_NO_FATAL_FAILURE(ExpectKept(c, sides, head, out, lse[head])) << "head " << head;
      want.insert(want.end(), e.out.begin(), e.out.end());
      near.insert(near.end(), e.near.begin(), e.near.end());
      want_lse.push_back(is_empty ? 0 : e.lse);
      near_lse.push_back(is_empty ? 0 : e.near_lse);
    }
    Values got_lse(lse.begin(), lse.begin() + int64_t(real));
    for (size_t head = 0; head < real; head++)
      got_lse[head] = std::isinf(got_lse[head]) && want_lse[head] == 0 ? 0 : got_lse[head];
    double largest = 0;
    for (double x : want)
      largest = std::max(largest, std::fabs(x));
    const double half_unit = dtype == CGR_DTYPE_BF16 ? 1.0 / 512 : dtype == CGR_DTYPE_FP16 ? 1.0 / 4096 : 0.0;
    ExpectWithin({ out.begin(), out.begin() + int64_t(real * dim) }, want,
                 2 * LargestError(near, want) + half_unit * largest + 1e-5, "out");
    ExpectWithin(got_lse, want_lse, 2 * LargestError(near_lse, want_lse) + 1e-5, "lse");
    ExpectNothing({ out.begin() + int64_t(real * dim), out.end() }, { lse.begin() + int64_t(real), lse.end() });
  }

  // The elements that the kernel may have written; what is between them must be as it was.
  static Values Taken(const TensorShape &shape, const Bytes &memory) {
    return LoadElements(shape.dtype, shape.Take(memory).data(), shape.tokens * shape.heads * shape.width);
  }

  // One launch; `outputs`: its bytes, for callers that compare two launches.
  void Run(const MergeCase &c, SideValues *sides, std::vector<Bytes> *outputs = nullptr) {
    Array<unsigned char> a(*bench_, sides[kA].out_bytes), b(*bench_, sides[kB].out_bytes);
    Array<unsigned char> a_lse(*bench_, sides[kA].lse_bytes), b_lse(*bench_, sides[kB].lse_bytes);
    Array<unsigned char> out(*bench_, c.OutShape().SizeInBytes()), lse(*bench_, c.OutLseShape().SizeInBytes());
    std::vector<int32_t> words(16, 7);
    words[CGR_COUNT_TOKENS] = c.num_real;
    Array<int32_t> counts(*bench_, words);
    Array<unsigned char> &to = c.place == Place::kApart ? out : c.place == Place::kInA ? a : b;
    Array<unsigned char> &lse_to = c.place == Place::kApart ? lse : c.place == Place::kInA ? a_lse : b_lse;
    cgr__merge_args args = {};
    args.a = c.SideShape(kA).View(a.data());
    args.b = c.SideShape(kB).View(b.data());
    args.a_lse = c.LseShape(c.lse_layout[kA]).View(a_lse.data());
    args.b_lse = c.LseShape(c.lse_layout[kB]).View(b_lse.data());
    args.out = c.OutShape().View(to.data());
    if (c.wants_lse)
      args.lse = c.OutLseShape().View(lse_to.data());
    args.counts = counts.data();
    args.num_tokens = c.num_tokens;
    args.num_heads = c.num_heads;
    args.head_dim = c.head_dim;
    bench_->Run(cgr__kernel_merge, &args);
    if (outputs != nullptr)
      *outputs = { c.OutShape().Take(to.Get()), c.wants_lse ? c.OutLseShape().Take(lse_to.Get()) : Bytes() };
    if (c.place != Place::kInA) {
      EXPECT_TRUE(a.Get() == sides[kA].out_bytes && a_lse.Get() == sides[kA].lse_bytes) << "a was written";
    }
    if (c.place != Place::kInB) {
      EXPECT_TRUE(b.Get() == sides[kB].out_bytes && b_lse.Get() == sides[kB].lse_bytes) << "b was written";
    }
    if (!c.wants_lse) {
      EXPECT_TRUE(lse.Get() == Bytes(lse.size(), kPoisonByte)) << "an lse that is not wanted was written";
      return;
    }
    Compare(c, sides, Taken(c.OutShape(), to.Get()), Taken(c.OutLseShape(), lse_to.Get()));
  }
  void Check(const MergeCase &c) {
    SideValues sides[2] = { DrawSide(c, kA), DrawSide(c, kB) };
    Run(c, sides);
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

constexpr int32_t kDtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_FP16, CGR_DTYPE_BF16 };
constexpr LseLayout kLayouts[] = { LseLayout::kTokens, LseLayout::kHeads, LseLayout::kSparse };

TEST_P(KernelMerge, EveryTripleOfDtypes) {
  SCOPED_TRACE(Repeat(seed_));
  for (int32_t a : kDtypes)
    for (int32_t b : kDtypes)
      for (int32_t out : kDtypes) {
        SCOPED_TRACE(std::to_string(a) + " " + std::to_string(b) + " " + std::to_string(out));
        MergeCase c;
        c.dtype[kA] = a;
        c.dtype[kB] = b;
        c.out_dtype = out;
        ASSERT_NO_FATAL_FAILURE(Check(c));
      }
}

TEST_P(KernelMerge, EveryHeadDim) {
  SCOPED_TRACE(Repeat(seed_));
  for (int32_t dim = 8; dim <= 1024; dim += dim < 256 ? 8 : 120) {
    SCOPED_TRACE(dim);
    MergeCase c;
    c.head_dim = dim;
    c.dtype[kA] = c.out_dtype = CGR_DTYPE_BF16;
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

TEST_P(KernelMerge, EveryLayoutOfTheLse) {
  SCOPED_TRACE(Repeat(seed_));
  for (LseLayout a : kLayouts)
    for (LseLayout b : kLayouts)
      for (LseLayout out : kLayouts) {
        MergeCase c;
        c.num_tokens = 9;
        c.lse_layout[0] = a, c.lse_layout[1] = b, c.lse_layout[2] = out;
        ASSERT_NO_FATAL_FAILURE(Check(c)) << int(a) << int(b) << int(out);
      }
}

TEST_P(KernelMerge, PaddingAtEveryRealCount) {
  SCOPED_TRACE(Repeat(seed_));
  for (int32_t real = 0; real <= 17; real++) {
    MergeCase c;
    c.num_tokens = 17;
    c.num_real = real;
    ASSERT_NO_FATAL_FAILURE(Check(c)) << real;
  }
}

// The same bits as in memory of its own.
TEST_P(KernelMerge, InPlace) {
  SCOPED_TRACE(Repeat(seed_));
  for (int32_t dtype : kDtypes)
    for (LseLayout layout : kLayouts)
      for (int32_t dim : { 8, 72, 256, 512 }) {
        MergeCase c;
        c.num_tokens = 40;
        c.num_real = 37;
        c.head_dim = dim;
        c.dtype[kA] = c.dtype[kB] = c.out_dtype = dtype;
        c.padding[kA] = { 8, 16 };
        c.padding[kB] = { 0, 24 };
        c.lse_layout[0] = c.lse_layout[1] = layout;
        SideValues sides[2] = { DrawSide(c, kA), DrawSide(c, kB) };
        std::vector<Bytes> apart, here;
        ASSERT_NO_FATAL_FAILURE(Run(c, sides, &apart));
        for (Place place : { Place::kInA, Place::kInB }) {
          c.place = place;
          ASSERT_NO_FATAL_FAILURE(Run(c, sides, &here));
          ASSERT_TRUE(here == apart) << "in place of " << (place == Place::kInA ? "a" : "b");
        }
      }
}

TEST_P(KernelMerge, AnLseThatIsNotWantedIsNotWritten) {
  MergeCase c;
  SideValues sides[2] = { DrawSide(c, kA), DrawSide(c, kB) };
  std::vector<Bytes> with, without;
  ASSERT_NO_FATAL_FAILURE(Run(c, sides, &with));
  c.wants_lse = false;
  ASSERT_NO_FATAL_FAILURE(Run(c, sides, &without));
  EXPECT_TRUE(with[0] == without[0]);
}

// An lse that is not a number is the sign of a fault and must not hide it; but a side that has seen nothing takes no part.
TEST_P(KernelMerge, AnLseThatIsNotANumberShows) {
  MergeCase c;
  c.holes = false;
  c.num_real = c.num_tokens;
  SideValues sides[2] = { DrawSide(c, kA), DrawSide(c, kB) };
  for (Side side : { kA, kB }) {
    sides[side].lse[1] = NAN;
    sides[side].lse_bytes = InMemory(c.LseShape(LseLayout::kTokens), sides[side].lse);
    Array<unsigned char> a(*bench_, sides[kA].out_bytes), b(*bench_, sides[kB].out_bytes);
    Array<unsigned char> a_lse(*bench_, sides[kA].lse_bytes), b_lse(*bench_, sides[kB].lse_bytes);
    Array<unsigned char> out(*bench_, c.OutShape().SizeInBytes()), lse(*bench_, c.OutLseShape().SizeInBytes());
    std::vector<int32_t> words(16, c.num_real);
    Array<int32_t> counts(*bench_, words);
    const TensorShape lse_shape = c.LseShape(LseLayout::kTokens);
    cgr__merge_args args = { c.SideShape(kA).View(a.data()),
                             c.SideShape(kB).View(b.data()),
                             c.OutShape().View(out.data()),
                             lse_shape.View(a_lse.data()),
                             lse_shape.View(b_lse.data()),
                             lse_shape.View(lse.data()),
                             counts.data(),
                             c.num_tokens,
                             c.num_heads,
                             c.head_dim,
                             0 };
    bench_->Run(cgr__kernel_merge, &args);
    const Values got = Taken(c.OutShape(), out.Get()), got_lse = Taken(lse_shape, lse.Get());
    for (size_t head = 0; head < got_lse.size(); head++) {
      ASSERT_EQ(std::isnan(got_lse[head]), head == 1);
      for (size_t d = 0; d < size_t(c.head_dim); d++)
        ASSERT_EQ(std::isnan(got[head * size_t(c.head_dim) + d]), head == 1);
    }
    sides[kA].lse[1] = 0;
    sides[kA].lse_bytes = InMemory(lse_shape, sides[kA].lse);
  }
}

TEST_P(KernelMerge, ManyTokens) {
  SCOPED_TRACE(Repeat(seed_));
  MergeCase c;
  c.num_tokens = 5000;
  c.num_real = 4990;
  c.num_heads = 7;
  c.head_dim = 24;
  c.dtype[kA] = CGR_DTYPE_BF16;
  c.lse_layout[0] = c.lse_layout[2] = LseLayout::kHeads;
  Check(c);
}

TEST_P(KernelMerge, NoTokens) {
  MergeCase c;
  c.num_tokens = c.num_real = 0;
  Check(c);
}

TEST_P(KernelMerge, RandomCases) {
  SCOPED_TRACE(Repeat(seed_));
  for (int n = 0; n < 300; n++) {
    SCOPED_TRACE(n);
    MergeCase c;
    c.num_tokens = Pick(random_, 1, OneIn(10) ? 200 : 20);
    c.num_real = Pick(random_, 0, c.num_tokens);
    c.num_heads = Pick(random_, 1, OneIn(10) ? 71 : 9);
    c.head_dim = 8 * Pick(random_, 1, OneIn(10) ? 64 : 32);
    c.heads_first = OneIn(3);
    c.place = OneIn(3) ? Place::kInA : OneIn(2) ? Place::kInB : Place::kApart;
    for (int i = 0; i < 3; i++) {
      c.padding[i] = { 8 * Pick(random_, 0, 3), 8 * Pick(random_, 0, 3) };
      c.lse_layout[i] = kLayouts[Pick(random_, 0, 2)];
      (i < 2 ? c.dtype[i] : c.out_dtype) = kDtypes[Pick(random_, 0, 2)];
    }
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelMerge);

} // namespace
} // namespace cgr_test

// ldmatrix, movmatrix, mma and cp.async against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/emulation/cuda.h"
#include "tests/emulation/stand_ins/attention.h"

#if !defined(__SANITIZE_THREAD__) // it does not know about fibers

namespace {

CGR_EMULATED_SHARED(unsigned char, tile);

// A [16][16] and B [8][16], that is, column-major [16][8], of one type; C [16][8].
struct Args {
  const uint16_t *a, *b;
  float *c;
  int mistake;
};

// One warp. A and B reach their fragments by ldmatrix, as rows of shared memory; or B, as [16][8], transposed.
template <int kDtype> __global__ void multiply_kernel(Args args) {
  extern __shared__ unsigned char tile[];
  int lane = (int)threadIdx.x;
  uint16_t *a = reinterpret_cast<uint16_t *>(tile), *b = a + 256;
  for (int i = lane; i < 256; i += 32)
    a[i] = args.a[i];
  for (int i = lane; i < 128; i += 32)
    b[args.mistake == 0 ? i : i % 16 * 8 + i / 16] = args.b[i];
  b[128 + lane * 4] = b[128 + lane * 4 + 1] = b[128 + lane * 4 + 2] = b[128 + lane * 4 + 3] = 0;
  __syncwarp();
  uint32_t base = (uint32_t)__cvta_generic_to_shared(tile), x[4], y[4];
  // Matrices of A: rows 0 and 8, then columns 8 on.
  cgr_emulated::load_matrix(x, base + (uint32_t)((lane % 16) * 32 + lane / 16 * 16));
  if (args.mistake == 0)
    cgr_emulated::load_matrix(y, base + 512 + (uint32_t)(lane % 8 * 32 + lane / 8 % 2 * 16));
  else
    cgr_emulated::load_matrix_transposed(y, base + 512 + (uint32_t)(lane % 16 * 16));
  float c[4];
  for (int r = 0; r < 4; r++)
    c[r] = args.c[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2];
  cgr_emulated::Element<kDtype>::mma(c, x, y[0], y[1]);
  for (int r = 0; r < 4; r++)
    args.c[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = c[r];
}

uint16_t ToElement(bool is_bf16, float x) { return uint16_t(cgr_emulation::Pack(is_bf16, x, 0.0f)); }

// Small whole numbers: exact in every type and in every order of summation.
template <int kDtype> void CheckMultiply(int mistake) {
  constexpr bool kIsBf16 = kDtype == CGR_DTYPE_BF16;
  std::mt19937 random(7);
  auto number = [&] { return float(int(random() % 17) - 8); };
  std::vector<float> a(256), b(128), want(128), c(128);
  std::vector<uint16_t> a_bits, b_bits;
  for (float &x : a)
    a_bits.push_back(ToElement(kIsBf16, x = number()));
  for (float &x : b)
    b_bits.push_back(ToElement(kIsBf16, x = number()));
  for (int i = 0; i < 128; i++) {
    want[size_t(i)] = c[size_t(i)] = number();
    for (int k = 0; k < 16; k++)
      want[size_t(i)] += a[size_t(i / 8 * 16 + k)] * b[size_t(i % 8 * 16 + k)];
  }
  Args args = { a_bits.data(), b_bits.data(), c.data(), mistake };
  ASSERT_EQ(cgr_emulated::launch(multiply_kernel<kDtype>, &args, dim3(1), dim3(32), 1024, nullptr), cgr_emulation::kLaunched)
      << cgr_emulation::TakeFailure();
  EXPECT_EQ(c, want);
}

TEST(EmulatedTensor, MultipliesAsPlainLoopsDo) {
  for (int mistake : { 0, 1 }) {
    CheckMultiply<CGR_DTYPE_BF16>(mistake);
    CheckMultiply<CGR_DTYPE_FP16>(mistake);
  }
}

struct TransposeArgs {
  const uint16_t *in;
  uint16_t *out;
};

__global__ void transpose_kernel(TransposeArgs a) {
  int at = (int)threadIdx.x * 2;
  uint32_t pair = cgr_emulated::transpose(a.in[at] | uint32_t{ a.in[at + 1] } << 16);
  a.out[at] = uint16_t(pair);
  a.out[at + 1] = uint16_t(pair >> 16);
}

TEST(EmulatedTensor, TransposesAsPlainLoopsDo) {
  std::vector<uint16_t> in(64), out(64), want(64);
  for (size_t i = 0; i < in.size(); i++) {
    in[i] = uint16_t(i * 769 + 1);
    want[i % 8 * 8 + i / 8] = in[i];
  }
  TransposeArgs args = { in.data(), out.data() };
  ASSERT_EQ(cgr_emulated::launch(transpose_kernel, &args, dim3(1), dim3(32), 0, nullptr), cgr_emulation::kLaunched)
      << cgr_emulation::TakeFailure();
  EXPECT_EQ(out, want);
}

TEST(EmulatedTensor, RoundsToNearestEven) {
  struct Case {
    float x;
    uint16_t bf16, fp16;
  };
  for (const Case &one : { Case{ 0.0f, 0, 0 },
                           { -0.0f, 0x8000, 0x8000 },
                           { 1.0f, 0x3f80, 0x3c00 },
                           { -2.5f, 0xc020, 0xc100 },
                           { 1.00390625f, 0x3f80, 0x3c04 }, // halfway in bf16: to even
                           { 1.01171875f, 0x3f82, 0x3c0c },
                           { 1.00048828125f, 0x3f80, 0x3c00 },
                           { 1.00146484375f, 0x3f80, 0x3c02 },
                           { 65504.0f, 0x4780, 0x7bff },
                           { 65519.0f, 0x4780, 0x7bff },
                           { 65520.0f, 0x4780, 0x7c00 },
                           { 0x1p-24f, 0x3380, 1 },
                           { 0x1p-25f, 0x3300, 0 },
                           { 0x1.8p-24f, 0x33c0, 2 },
                           { INFINITY, 0x7f80, 0x7c00 },
                           { -INFINITY, 0xff80, 0xfc00 },
                           { NAN, 0x7fff, 0x7fff } }) {
    EXPECT_EQ(ToElement(true, one.x), one.bf16) << one.x;
    EXPECT_EQ(ToElement(false, one.x), one.fp16) << one.x;
  }
}

// ------------------------------------------------------------------------------------------------------------------- copies

struct CopyArgs {
  const float *in;
  float *out;
  int mistake;
};

// Each lane copies and reads 16 bytes. Mistakes: 0 waits, 1 does not, 2 waits for too few, 3 reads another lane's bytes.
__global__ void copy_kernel(CopyArgs a) {
  extern __shared__ unsigned char tile[];
  uint32_t base = (uint32_t)__cvta_generic_to_shared(tile) + threadIdx.x * 16;
  for (int stage = 0; stage < 2; stage++) {
    cgr_emulated::copy_async(base + (uint32_t)stage * 512, a.in + (stage * 32 + (int)threadIdx.x) * 4, {}, threadIdx.x != 9);
    cgr_emulated::copy_async_commit();
  }
  if (a.mistake == 0 || a.mistake == 3)
    cgr_emulated::copy_async_wait<0>();
  if (a.mistake == 2)
    cgr_emulated::copy_async_wait<1>();
  unsigned from = a.mistake == 3 ? threadIdx.x ^ 1 : threadIdx.x;
  for (int i = 0; i < 4; i++)
    for (int stage = 0; stage < 2; stage++)
      a.out[(stage * 32 + (int)from) * 4 + i] = reinterpret_cast<const float *>(tile)[stage * 128 + (int)from * 4 + i];
  cgr_emulated::copy_async_wait<0>();
}

TEST(EmulatedTensor, CopiesArriveAtAWait) {
  std::vector<float> in(256), want(256), out(256);
  for (size_t i = 0; i < in.size(); i++)
    want[i] = in[i] = float(i + 1);
  for (size_t i = 0; i < 4; i++)
    want[36 + i] = want[128 + 36 + i] = 0.0f; // not valid
  auto run = [&](int mistake) {
    CopyArgs args = { in.data(), out.data(), mistake };
    EXPECT_EQ(cgr_emulated::launch(copy_kernel, &args, dim3(1), dim3(32), 1024, nullptr), cgr_emulation::kLaunched)
        << cgr_emulation::TakeFailure();
    return out;
  };
  EXPECT_EQ(run(0), want);
  for (float x : run(1))
    EXPECT_TRUE(std::isnan(x));
  run(2);
  for (size_t i = 0; i < 128; i++) {
    EXPECT_EQ(out[i], want[i]);
    EXPECT_TRUE(std::isnan(out[128 + i]));
  }
  EXPECT_NE(run(3), want);
}

__global__ void left_kernel(CopyArgs a) {
  extern __shared__ unsigned char tile[];
  cgr_emulated::copy_async((uint32_t)__cvta_generic_to_shared(tile), a.in, {}, true);
}
__global__ void outside_kernel(CopyArgs a) {
  extern __shared__ unsigned char tile[];
  cgr_emulated::copy_async((uint32_t)__cvta_generic_to_shared(tile) + 1024, a.in, {}, true);
}
__global__ void crooked_kernel(CopyArgs) {
  extern __shared__ unsigned char tile[];
  uint32_t r[4];
  cgr_emulated::load_matrix(r, (uint32_t)__cvta_generic_to_shared(tile) + 8);
}
__global__ void alone_kernel(CopyArgs) {
  extern __shared__ unsigned char tile[];
  uint32_t r[4];
  if (threadIdx.x != 4)
    cgr_emulated::load_matrix(r, (uint32_t)__cvta_generic_to_shared(tile));
}

TEST(EmulatedTensor, RefusesWhatTheInstructionsDoNotTake) {
  alignas(16) float in[4] = {};
  auto failure = [&](void (*kernel)(CopyArgs)) {
    CopyArgs args = { in, nullptr, 0 };
    EXPECT_EQ(cgr_emulated::launch(kernel, &args, dim3(1), dim3(32), 1024, nullptr), cgr_emulation::kLaunchFailed);
    return cgr_emulation::TakeFailure();
  };
  EXPECT_NE(failure(left_kernel).find("copies are under way"), std::string::npos);
  EXPECT_NE(failure(outside_kernel).find("cp.async at an address"), std::string::npos);
  EXPECT_NE(failure(crooked_kernel).find("ldmatrix at an address"), std::string::npos);
  EXPECT_NE(failure(alone_kernel).find("exit"), std::string::npos);
}

} // namespace

#endif

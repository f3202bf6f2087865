#include "tests/emulation/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/emulation/shared_memory.h"

namespace cgr_emulation {
namespace {

float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

uint32_t ToBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float FromBf16(uint16_t bits) { return FromBits(uint32_t{ bits } << 16); }

float MakeFromFp16(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float x = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
            : exponent == 0 ? std::ldexp(float(mantissa), -24)
                            : std::ldexp(float(mantissa + 1024), exponent - 25);
  return bits >> 15 ? -x : x;
}

// Made before any kernel runs.
const float *const fp16_values = [] {
  float *made = new float[65536];
  for (uint32_t i = 0; i < 65536; i++)
    made[i] = MakeFromFp16(uint16_t(i));
  return made;
}();

float FromFp16(uint16_t bits) { return fp16_values[bits]; }

uint16_t ToBf16(float x) {
  uint32_t bits = ToBits(x);
  if (std::isnan(x))
    return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t ToFp16(float x) {
  if (std::isnan(x))
    return 0x7fff;
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  float size = std::fabs(x);
  if (size >= 65520.0f)
    return sign | 0x7c00;
  if (size < 0x1p-14f) /* whole multiples of the smallest number */
    return uint16_t(sign | uint16_t(std::nearbyint(size * 0x1p24f)));
  int exponent;
  float fraction = std::frexp(size, &exponent);                     // [0.5, 1)
  uint32_t mantissa = uint32_t(std::nearbyint(fraction * 2048.0f)); // 1024 .. 2048: a carry goes to the exponent
  return uint16_t(sign | (uint32_t(exponent + 13) * 1024 + mantissa));
}

uint16_t Low(uint32_t pair) { return uint16_t(pair); }
uint16_t High(uint32_t pair) { return uint16_t(pair >> 16); }

const unsigned char *Checked(uint32_t shared, const char *name, Site site, uint32_t bytes = 16) {
  void *address = FromShared(shared);
  if (shared % bytes != 0 || !IsDynamicSharedMemory(address, bytes, Running().shared))
    builtins.block->Fail(std::string(name) + " at an address that is not aligned, or not in the dynamic shared memory of " +
                             std::to_string(Running().shared) + " bytes",
                         site);
  return static_cast<const unsigned char *>(address);
}

struct MatrixOperand {
  const unsigned char *row;
  uint32_t *r;
};

uint32_t Pair(uint16_t low, uint16_t high) { return low | uint32_t{ high } << 16; }

uint16_t ElementOf(void *const *operands, int matrix, int row, int column) {
  uint16_t element;
  std::memcpy(&element, static_cast<MatrixOperand *>(operands[matrix * 8 + row])->row + column * 2, sizeof element);
  return element;
}

void CombineLoad(void *const *operands, uint32_t) {
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++)
      static_cast<MatrixOperand *>(operands[lane])->r[m] =
          Pair(ElementOf(operands, m, lane / 4, lane % 4 * 2), ElementOf(operands, m, lane / 4, lane % 4 * 2 + 1));
}

void CombineLoadTransposed(void *const *operands, uint32_t) {
  for (int lane = 0; lane < 32; lane++)
    for (int m = 0; m < 4; m++)
      static_cast<MatrixOperand *>(operands[lane])->r[m] =
          Pair(ElementOf(operands, m, lane % 4 * 2, lane / 4), ElementOf(operands, m, lane % 4 * 2 + 1, lane / 4));
}

struct TransposeOperand {
  uint32_t pair;
};

void CombineTranspose(void *const *operands, uint32_t) {
  uint16_t tile[8][8];
  for (int lane = 0; lane < 32; lane++) {
    const TransposeOperand &own = *static_cast<TransposeOperand *>(operands[lane]);
    tile[lane / 4][lane % 4 * 2] = Low(own.pair);
    tile[lane / 4][lane % 4 * 2 + 1] = High(own.pair);
  }
  for (int lane = 0; lane < 32; lane++)
    static_cast<TransposeOperand *>(operands[lane])->pair = Pair(tile[lane % 4 * 2][lane / 4], tile[lane % 4 * 2 + 1][lane / 4]);
}

struct MmaOperand {
  float *c;
  const uint32_t *a;
  uint32_t b[2];
};

template <float (*kConvert)(uint16_t)> void CombineMma(void *const *operands, uint32_t) {
  float a[16][16], b[16][8], d[16][8] = {};
  for (int lane = 0; lane < 32; lane++) {
    const MmaOperand &own = *static_cast<MmaOperand *>(operands[lane]);
    int g = lane / 4, t = lane % 4 * 2;
    for (int r = 0; r < 4; r++) { // rows g and g + 8, then the same 8 columns further
      a[g + r % 2 * 8][t + r / 2 * 8] = kConvert(Low(own.a[r]));
      a[g + r % 2 * 8][t + r / 2 * 8 + 1] = kConvert(High(own.a[r]));
    }
    for (int r = 0; r < 2; r++) {
      b[t + r * 8][g] = kConvert(Low(own.b[r]));
      b[t + r * 8 + 1][g] = kConvert(High(own.b[r]));
    }
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++)
        d[i][j] += a[i][k] * b[k][j];
  for (int lane = 0; lane < 32; lane++) {
    const MmaOperand &own = *static_cast<MmaOperand *>(operands[lane]);
    for (int r = 0; r < 4; r++)
      own.c[r] += d[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
  }
}

} // namespace

void CopyAsync(uint32_t shared, const void *global, Site site, size_t size) {
  const unsigned char *to = Checked(shared, "cp.async", site);
  if (reinterpret_cast<uintptr_t>(global) % 16 != 0)
    builtins.block->Fail("cp.async of a global address that is not aligned to 16 bytes", site);
  builtins.block->CopyAsync(const_cast<unsigned char *>(to), global, size);
}

void LoadMatrix(uint32_t (&r)[4], uint32_t shared, bool transposed, Site site) {
  static const WarpOperation plain = { "ldmatrix", CombineLoad, false };
  static const WarpOperation other = { "ldmatrix.trans", CombineLoadTransposed, false };
  MatrixOperand operand = { Checked(shared, "ldmatrix", site), r };
  builtins.block->MeetWarp(transposed ? other : plain, ~0u, &operand, site);
}

void LoadWords(uint32_t (&r)[2], uint32_t shared, Site site) {
  std::memcpy(r, Checked(shared, "ld.shared.v2", site, 8), sizeof r);
}

uint32_t Transpose(uint32_t pair, Site site) {
  static const WarpOperation operation = { "movmatrix.trans", CombineTranspose, false };
  TransposeOperand operand = { pair };
  builtins.block->MeetWarp(operation, ~0u, &operand, site);
  return operand.pair;
}

void Mma(bool is_bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site) {
  static const WarpOperation bf16 = { "mma of bf16", CombineMma<FromBf16>, false };
  static const WarpOperation fp16 = { "mma of fp16", CombineMma<FromFp16>, false };
  MmaOperand operand = { c, a, { b0, b1 } };
  builtins.block->MeetWarp(is_bf16 ? bf16 : fp16, ~0u, &operand, site);
}

uint32_t Pack(bool is_bf16, float low, float high) {
  return is_bf16 ? Pair(ToBf16(low), ToBf16(high)) : Pair(ToFp16(low), ToFp16(high));
}

float ValueOfCode(bool is_e4m3, uint8_t code) {
  const int mantissa = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
  float x = std::ldexp(float(exponent == 0 ? fraction : fraction + (1 << mantissa)), std::max(exponent, 1) - bias - mantissa);
  if (is_e4m3 ? (code & 0x7f) == 0x7f : exponent == 31)
    x = is_e4m3 || fraction != 0 ? NAN : INFINITY;
  return code & 0x80 ? -x : x;
}

float Unpack(bool is_bf16, uint16_t bits) { return is_bf16 ? FromBf16(bits) : FromFp16(bits); }

} // namespace cgr_emulation

// What the tensor core instructions compute, and the instructions that feed them: ldmatrix, movmatrix, mma.m16n8k16,
// cp.async.
#pragma once

#include <cstdint>

#include "tests/emulation/block.h"

namespace cgr_emulation {

// 16 bytes: the first `size` from `global`, zeros after them. NULL: zeros.
void CopyAsync(uint32_t shared, const void *global, Site site, size_t size = 16);
// x4, b16: four matrices of 8 x 8. Lane l gives the address of row l % 8 of matrix l / 8.
void LoadMatrix(uint32_t (&r)[4], uint32_t shared, bool transposed, Site site);
// 8 bytes, which must be aligned to as many.
void LoadWords(uint32_t (&r)[2], uint32_t shared, Site site);
// Transposes an 8 x 8 matrix: lane l passes elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4, and gets those of the transpose.
uint32_t Transpose(uint32_t pair, Site site);
// C += A B with A [16][16] and B [16][8], of bf16 or fp16, and C of fp32.
void Mma(bool is_bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site);
// Rounded to nearest even.
uint32_t Pack(bool is_bf16, float low, float high);
float Unpack(bool is_bf16, uint16_t bits);
// Of a code of 8 bits: e4m3 or e5m2 (arXiv:2209.05433).
float ValueOfCode(bool is_e4m3, uint8_t code);

} // namespace cgr_emulation

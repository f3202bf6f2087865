/* Shapes of the attention kernel, shared by its instances and its launcher. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_TRAITS_H
#define CGR_KERNELS_CUDA_ATTENTION_SM80_TRAITS_H

#include "kernels/attention.h"
#include "kernels/cuda/attention/sm80/kind.h"

namespace cgr {

constexpr int kTileLines = CGR__MMA_TILE_LINES; /* (token, head) pairs of a q tile */
constexpr int kTileKv = CGR__MMA_TILE_KV;       /* tokens of a KV tile */
constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / 32;
constexpr int kWarpLines = 16;                 /* rows of one mma: what a warp takes of an item of many lines */
constexpr int kFewLines = CGR__MMA_FEW_LINES;  /* in an item of at most this many lines the warps split the tokens */
constexpr int kMmaLines = 8;                   /* lines of such an item that one mma takes, as its columns */
constexpr int64_t kEvictFirstBytes = 40 << 20; /* of K and V: if a decode section reads this much, they are evicted first */
constexpr int kGranule = 16;                   /* tokens that are always in one page; a warp copies one granule of each KV tile */

/* What the cache of an instance has: a cgr_dtype, of K and V, or one of these. kAnyCodes: K and V have codes of any dtypes, each
 * of its own. kAnyCodesAndFp16, kAnyCodesAndBf16: K has codes, V does not. Codes of 8 bits are converted to fp16 when they leave
 * shared memory, and queries for keys of codes are, too; otherwise queries and outputs have the dtype of the cache. */
constexpr int kAnyCodes = 256, kAnyCodesAndFp16 = kAnyCodes + CGR_DTYPE_FP16, kAnyCodesAndBf16 = kAnyCodes + CGR_DTYPE_BF16;
template <int kCache> constexpr bool kIsFp8 = kCache == CGR_DTYPE_FP8_E4M3 || kCache == CGR_DTYPE_FP8_E5M2;
template <int kCache> constexpr bool kHasKeyCodes = kIsFp8<kCache> || kCache == CGR_DTYPE_I8 || kCache >= kAnyCodes;
template <int kCache> constexpr bool kHasValueCodes = kHasKeyCodes<kCache> && (kCache <= kAnyCodes);

/* The dtype of the codes, kAnyCodes if arguments say it. */
template <int kCache> constexpr int kCodesOf = kCache < kAnyCodes ? kCache : kAnyCodes;

/* What is multiplied. */
template <int kCache> constexpr int kKeyProducts = kHasKeyCodes<kCache> ? CGR_DTYPE_FP16 : kCache;
template <int kCache>
constexpr int kValueProducts = kHasValueCodes<kCache> ? CGR_DTYPE_FP16
                               : kCache > kAnyCodes   ? kCache - kAnyCodes
                                                      : kCache;

/* Whether the tokens of K may have factors of their own, and the channels of V. Otherwise all elements of a KV head have one. */
template <int kCache> constexpr bool kHasVectorFactors = kHasKeyCodes<kCache> && !kIsFp8<kCache>;

/* One KV tile of K or of V, elements of kBytes bytes: in shared memory, and how a warp copies its granule of it. */
template <int kHeadDim, int kBytes> struct KvTile {
  static constexpr int kElementBytes = kBytes;
  static constexpr int kChunks = kHeadDim * kBytes / 16; /* 16-byte chunks of one token */
  static constexpr int kChunkElements = 16 / kBytes;
  static constexpr int kRowBytes = kHeadDim * kBytes;
  static constexpr int kTileBytes = kTileKv * kRowBytes;
  static constexpr int kTokensPerPass = 32 / kChunks; /* that a warp copies in one go */
  static constexpr int kPasses = kGranule / kTokensPerPass;
};

/* Of an instance: kHeadDim elements of each token are in shared memory, and in registers. */
template <int kHeadDim, int kCache> struct AttentionShape {
  using Keys = KvTile<kHeadDim, kHasKeyCodes<kCache> ? 1 : 2>;
  using Values = KvTile<kHeadDim, kHasValueCodes<kCache> ? 1 : 2>;
  /* KV tiles in shared memory, in use or being copied. More of 2-byte elements do not make memory faster, and other requests to
   * it wait longer; those of 1 byte are half as large. */
  static constexpr int kStages = Values::kElementBytes == 1 ? 3 : 2;
  static constexpr int kAhead = kStages + 1;         /* tiles that the loader is ahead of the work */
  static constexpr int kValuesAt = Keys::kTileBytes; /* a stage has K, then V, then the factors of K's tokens */
  static constexpr int kFactorsAt = kValuesAt + Values::kTileBytes;
  static constexpr int kStageBytes = kFactorsAt + (kHasVectorFactors<kCache> ? kTileKv * (int)sizeof(float) : 0);
  static constexpr int kQueryTiles = kStages + 1; /* in shared memory: an item at work may begin as many as there are stages */
  static constexpr int kQueryChunks = kHeadDim / 8, kQueryRowBytes = kHeadDim * 2;
  static constexpr int kQueryTileBytes = kFewLines * kQueryRowBytes; /* of an item of few lines */
  /* With 2 bytes 76 KB at 128 and 152 KB at 256, with 1 byte 64 and 128 KB. */
  static constexpr int kSharedBytes = kStages * kStageBytes + kQueryTiles * kQueryTileBytes;
};

/* Lines of a query tile in an instance for items of at most kMostLines; those beyond the item's own are zeros. */
template <int kMostLines> constexpr int kQueryTileLines = kMostLines < kFewLines ? kMostLines : kFewLines;

static_assert(kTileLines == kWarpLines * kAttentionWarps, "a warp takes 16 rows of a full q tile");
static_assert(kTileKv == kGranule * kAttentionWarps, "or 16 tokens of a KV tile");

/* One file per width, kind and contents of the cache. Plain: causal attention over a whole cache with head_dim = head_dim_v = the
 * width and pages of 2^n tokens. General: head dims up to the width, and everything else. A file has instances for several
 * sizes of items: at most kMmaLines or kFewLines lines, without prefills, and kTileLines. `cache`: what the cache has, one of
 * those of the file. fp8: two dtypes, with a factor for a KV head. i8: K and V. mixed: all other caches with codes. */
#define CGR__ATTENTION_FILE(name)                                                                              \
  int attention_launch_##name(const cgr__attention_args *args, int32_t cache, dim3 grid, cudaStream_t stream); \
  int attention_preload_##name();
CGR__ATTENTION_FILE(d64)
CGR__ATTENTION_FILE(d128)
CGR__ATTENTION_FILE(general_d64)
CGR__ATTENTION_FILE(general_d128)
CGR__ATTENTION_FILE(general_d256)
CGR__ATTENTION_FILE(fp8_d64)
CGR__ATTENTION_FILE(fp8_d128)
CGR__ATTENTION_FILE(fp8_general_d64)
CGR__ATTENTION_FILE(fp8_general_d128)
CGR__ATTENTION_FILE(fp8_general_d256)
CGR__ATTENTION_FILE(i8_d64)
CGR__ATTENTION_FILE(i8_d128)
CGR__ATTENTION_FILE(i8_general_d64)
CGR__ATTENTION_FILE(i8_general_d128)
CGR__ATTENTION_FILE(i8_general_d256)
CGR__ATTENTION_FILE(mixed_general_d64)
CGR__ATTENTION_FILE(mixed_general_d128)
CGR__ATTENTION_FILE(mixed_general_d256)

} // namespace cgr
#endif

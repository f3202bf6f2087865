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

/* An instance's kDtype is that of the cache. Codes of 8 bits are converted to fp16 when they leave shared memory, and so are the
 * queries; otherwise queries and outputs have the dtype of the cache. */
template <int kDtype> constexpr bool kHasCodes = kDtype == CGR_DTYPE_FP8_E4M3 || kDtype == CGR_DTYPE_FP8_E5M2;
template <int kDtype> constexpr int kElementBytes = kHasCodes<kDtype> ? 1 : 2;
template <int kDtype> constexpr int kProducts = kHasCodes<kDtype> ? CGR_DTYPE_FP16 : kDtype; /* what is multiplied */

/* Of an instance: kHeadDim elements of kBytes bytes of each token are in shared memory, and in registers. */
template <int kHeadDim, int kBytes> struct AttentionShape {
  /* KV tiles in shared memory, in use or being copied. More of 2-byte elements do not make memory faster, and other requests to
   * it wait longer; those of 1 byte are half as large. */
  static constexpr int kStages = kBytes == 1 ? 3 : 2;
  static constexpr int kAhead = kStages + 1;             /* tiles that the loader is ahead of the work */
  static constexpr int kChunks = kHeadDim * kBytes / 16; /* 16-byte chunks of one token's K or V */
  static constexpr int kRowBytes = kHeadDim * kBytes;
  static constexpr int kTileBytes = kTileKv * kRowBytes; /* K or V */
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kTokensPerPass = 32 / kChunks; /* that a warp copies in one go */
  static constexpr int kPasses = kGranule / kTokensPerPass;
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

/* One file per width, kind and size of the cache's elements. Plain: causal attention over a whole cache with head_dim =
 * head_dim_v = the width and pages of 2^n tokens. General: head dims up to the width, and everything else. Each file has
 * instances for two dtypes, CGR_DTYPE_BF16 and CGR_DTYPE_FP16 or CGR_DTYPE_FP8_E4M3 and CGR_DTYPE_FP8_E5M2, and for three sizes
 * of items: at most kMmaLines or kFewLines lines, without prefills, and kTileLines. */
int attention_launch_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_general_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_general_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_general_d256(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_fp8_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_fp8_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_fp8_general_d64(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_fp8_general_d128(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_launch_fp8_general_d256(const cgr__attention_args *args, dim3 grid, cudaStream_t stream);
int attention_preload_d64();
int attention_preload_d128();
int attention_preload_general_d64();
int attention_preload_general_d128();
int attention_preload_general_d256();
int attention_preload_fp8_d64();
int attention_preload_fp8_d128();
int attention_preload_fp8_general_d64();
int attention_preload_fp8_general_d128();
int attention_preload_fp8_general_d256();

} // namespace cgr
#endif

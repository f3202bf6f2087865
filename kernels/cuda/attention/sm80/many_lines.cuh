/* An item of more than 16 lines. Each warp takes 16 of them and all 64 tokens of a KV tile, while the next tiles are being
 * copied. Whether an item has more than 16 lines depends on the tile alone, as does everything else that affects rounding. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_MANY_LINES_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_MANY_LINES_CUH

#include "kernels/cuda/attention/sm80/combine.cuh"
#include "kernels/cuda/attention/sm80/producer.cuh"
#include "kernels/cuda/attention/sm80/softmax.cuh"

namespace cgr {

/* The A fragments of lines first .. first + 15, straight from global memory: 4-byte loads, all in flight together. Zeros beyond
 * the head dim. */
template <int kHeadDim, bool kGeneral>
__device__ __forceinline__ void load_q(uint32_t (&fragment)[kHeadDim / 16][4], const cgr__attention_args &a, const QueryTile &q,
                                       int32_t first) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t line = first + lane / 4 + 8 * half;
    bool valid = line < q.lines;
    const uint16_t *from = static_cast<const uint16_t *>(a.q.data) + (valid ? q.offset(a.q, line) : 0) + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      bool has_first = valid && (!kGeneral || k * 16 < a.head_dim), has_second = valid && (!kGeneral || k * 16 + 8 < a.head_dim);
      fragment[k][half] = has_first ? *reinterpret_cast<const uint32_t *>(from + k * 16) : 0;
      fragment[k][half + 2] = has_second ? *reinterpret_cast<const uint32_t *>(from + k * 16 + 8) : 0;
    }
  }
}

/* The same for codes: four neighbouring dims are what a lane has of K (score_codes), so they are its two pairs here, too. */
template <int kHeadDim, bool kGeneral>
__device__ __forceinline__ void load_q_for_codes(uint32_t (&fragment)[kHeadDim / 16][4], const cgr__attention_args &a,
                                                 const QueryTile &q, int32_t first) {
  int lane = threadIdx.x & 31;
  const bool is_bf16 = a.q.dtype == CGR_DTYPE_BF16;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int32_t line = first + lane / 4 + 8 * half;
    bool valid = line < q.lines;
    const uint16_t *from = static_cast<const uint16_t *>(a.q.data) + (valid ? q.offset(a.q, line) : 0) + lane % 4 * 4;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      uint2 four = make_uint2(0, 0);
      if (valid && (!kGeneral || k * 16 < a.head_dim))
        four = *reinterpret_cast<const uint2 *>(from + k * 16);
      fragment[k][half] = is_bf16 ? bf16_to_fp16(four.x) : four.x;
      fragment[k][half + 2] = is_bf16 ? bf16_to_fp16(four.y) : four.y;
    }
  }
}

/* Scores of the tile's tokens, from codes, times `scale`: a factor may be 0 or negative, so they are scaled before they are
 * masked. */
template <int kCache, int kHeadDim>
__device__ __forceinline__ void score_codes(float (&s)[kTileKv / 8][4], const uint32_t (&q)[kHeadDim / 16][4], uint32_t tile,
                                            float scale, Converter<kCodesOf<kCache>> convert) {
  using Product = Element<kKeyProducts<kCache>>;
  int lane = threadIdx.x & 31;
  int row = (lane & 7) + ((lane >> 4) & 1) * 8, column = (lane >> 3) & 1;
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n++)
    s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; k += 2) {
#pragma unroll
    for (int n = 0; n < kTileKv / 8; n += 2) {
      uint32_t codes[4], low, high; /* four dims of a token of block n, in chunks k and k + 1, then of block n + 1 */
      load_matrix(codes, tile + tile_offset<AttentionShape<kHeadDim, kCache>::Keys::kRowBytes>(row + n * 8, k + column));
#pragma unroll
      for (int c = 0; c < 4; c++) {
        convert(codes[c], low, high);
        Product::mma(s[n + c / 2], q[k + c % 2], low, high);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[n][e] = __fmul_rn(s[n][e], scale);
}

/* Multiplies the scores by the factors of the tile's tokens. */
__device__ __forceinline__ void scale_by_tokens(float (&s)[kTileKv / 8][4], const float *factors) {
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n++) {
    const float2 two = *reinterpret_cast<const float2 *>(factors + n * 8 + (threadIdx.x & 3) * 2);
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      s[n][half] = __fmul_rn(s[n][half], two.x);
      s[n][half + 1] = __fmul_rn(s[n][half + 1], two.y);
    }
  }
}

/* V's codes of i8 are multiplied as they are raised (Codes), because that takes the fewest instructions. What they are raised by
 * is subtracted with the next KV tile, before sums of many tiles lose precision. Of K it would cost precision: the offset
 * would be large next to the differences between scores. */
template <int kCache> constexpr bool kIsRaised = kCache == CGR_DTYPE_I8;
constexpr float kRaisedBy = 128.0f / (1 << 24), kRaisedUnits = 1 << 24;
constexpr uint32_t kOnes = 0x3c003c00u; /* of fp16 */

/* Adds P times V, from codes. A lane gets two neighbouring dims of two tokens. Of the 16 dims of a chunk, the even ones are the
 * columns of state.o[2 d] and the odd ones those of state.o[2 d + 1]. */
template <int kCache, int kHeadDim>
__device__ __forceinline__ void accumulate_codes(Softmax<kHeadDim> &state, const float (&p)[kTileKv / 8][4], uint32_t tile,
                                                 Converter<kCodesOf<kCache>> convert) {
  using Product = Element<kValueProducts<kCache>>;
  int lane = threadIdx.x & 31;
  int row = (lane & 15), column = lane >> 4;
  float sums[4] = {}; /* of P, as it is multiplied */
#pragma unroll
  for (int n = 0; n < kTileKv / 8; n += 2) {
    uint32_t fragment[4] = { Product::pack(p[n][0], p[n][1]), Product::pack(p[n][2], p[n][3]),
                             Product::pack(p[n + 1][0], p[n + 1][1]), Product::pack(p[n + 1][2], p[n + 1][3]) };
    if constexpr (kIsRaised<kCache>)
      Product::mma(sums, fragment, kOnes, kOnes);
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d += 2) {
      uint32_t codes[4], even[2], odd[2]; /* of tokens 0 .. 7 and 8 .. 15 of chunk d, then of chunk d + 1 */
      load_matrix_transposed(codes,
                             tile + tile_offset<AttentionShape<kHeadDim, kCache>::Values::kRowBytes>(row + n * 8, d + column));
#pragma unroll
      for (int c = 0; c < 2; c++) {
#pragma unroll
        for (int half = 0; half < 2; half++)
          if constexpr (kIsRaised<kCache>)
            Codes<kCache>::raise(codes[2 * c + half], even[half], odd[half]);
          else
            convert(even_first(codes[2 * c + half]), even[half], odd[half]);
        Product::mma(state.o[2 * (d + c)], fragment, even[0], even[1]);
        Product::mma(state.o[2 * (d + c) + 1], fragment, odd[0], odd[1]);
      }
    }
  }
  state.pending[0] = kRaisedBy * sums[0];
  state.pending[1] = kRaisedBy * sums[2];
}

/* After the last tile: a thread has columns 2 (lane % 4) + {0, 1} of both, which are four neighbouring dims of a line. They are
 * put in order (element_of), and multiplied by their factors. */
template <int kCache, int kHeadDim>
__device__ __forceinline__ void finish_codes(Softmax<kHeadDim> &state, const ValueFactors<kCache> &factors) {
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; n += 2) {
    const int32_t channel = element_of<kCache>(n);
    const float factor[4] = { factors.of(channel), factors.of(channel + 1), factors.of(channel + 2), factors.of(channel + 3) };
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float &first = state.o[n][2 * half], &third = state.o[n][2 * half + 1];
      float &second = state.o[n + 1][2 * half], &fourth = state.o[n + 1][2 * half + 1];
      float dims[4] = { first, second, third, fourth };
      if constexpr (kIsRaised<kCache>) {
#pragma unroll
        for (int i = 0; i < 4; i++)
          dims[i] = __fmul_rn(dims[i] - state.pending[half], kRaisedUnits);
      }
      first = __fmul_rn(dims[0], factor[0]);
      third = __fmul_rn(dims[1], factor[1]);
      second = __fmul_rn(dims[2], factor[2]);
      fourth = __fmul_rn(dims[3], factor[3]);
    }
  }
}

/* Scores of the tile's tokens. */
template <int kCache, int kHeadDim>
__device__ __forceinline__ void score(float (&s)[kTileKv / 8][4], const uint32_t (&q)[kHeadDim / 16][4], uint32_t tile) {
  constexpr int kBlocks = kTileKv / 8;
  constexpr int kRowBytes = AttentionShape<kHeadDim, kCache>::Keys::kRowBytes;
  int lane = threadIdx.x & 31;
  int row = (lane & 7) + ((lane >> 4) & 1) * 8, column = (lane >> 3) & 1;
#pragma unroll
  for (int n = 0; n < kBlocks; n++)
    s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; k++) {
#pragma unroll
    for (int n = 0; n < kBlocks; n += 2) {
      uint32_t b[4];
      load_matrix(b, tile + tile_offset<kRowBytes>(row + n * 8, 2 * k + column));
      Element<kCache>::mma(s[n], q[k], b[0], b[1]);
      Element<kCache>::mma(s[n + 1], q[k], b[2], b[3]);
    }
  }
}

template <int kCache, int kHeadDim>
__device__ __forceinline__ void accumulate(Softmax<kHeadDim> &state, const float (&p)[kTileKv / 8][4], uint32_t tile) {
  constexpr int kBlocks = kTileKv / 8;
  constexpr int kRowBytes = AttentionShape<kHeadDim, kCache>::Values::kRowBytes;
  using Product = Element<kValueProducts<kCache>>;
  int lane = threadIdx.x & 31;
  int row = (lane & 15), column = lane >> 4;
#pragma unroll
  for (int n = 0; n < kBlocks; n += 2) {
    uint32_t fragment[4] = { Product::pack(p[n][0], p[n][1]), Product::pack(p[n][2], p[n][3]),
                             Product::pack(p[n + 1][0], p[n + 1][1]), Product::pack(p[n + 1][2], p[n + 1][3]) };
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; d += 2) {
      uint32_t b[4];
      load_matrix_transposed(b, tile + tile_offset<kRowBytes>(row + n * 8, d + column));
      Product::mma(state.o[d], fragment, b[0], b[1]);
      Product::mma(state.o[d + 1], fragment, b[2], b[3]);
    }
  }
}

/* Works through all KV tiles of one item. `stage` is the stage of its first tile on entry, and of its last on return.
 *
 * When work on a tile begins, the copies of that tile and of those in the other stages have been issued, in two groups each. The
 * warps share the tile, and refill its stage after a barrier. The caller refills the stage of an item's last tile after the
 * results have left. */
template <int kCache, int kHeadDim, bool kGeneral, int kLoaded>
__device__ __forceinline__ void run_many_lines(const cgr__attention_args &a, const ItemRecord &record,
                                               Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader, AttentionShared &shared,
                                               unsigned char *memory, int &stage) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  const cgr__plan_item &item = record.item;
  const QueryTile q = query_tile(record);
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int32_t first = warp * kWarpLines; /* this warp's first line */
  bool busy = first < q.lines;
  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  const float factor = scale_of<kCache>(a, record), scale = kGeneral ? 1.0f : factor * kLog2e; /* general: score_rows scales */

  const Converter<kCodesOf<kCache>> convert_k(a.k_cache.dtype), convert_v(a.v_cache.dtype);
  uint32_t q_fragment[kHeadDim / 16][4];
  if constexpr (kHasKeyCodes<kCache>)
    load_q_for_codes<kHeadDim, kGeneral>(q_fragment, a, q, first);
  else
    load_q<kHeadDim, kGeneral>(q_fragment, a, q, first);
  int32_t position[2] = { q.position + q.query_of(first + lane / 4), q.position + q.query_of(first + lane / 4 + 8) };
  int32_t warp_position = q.position + q.query_of(first); /* the smallest of the warp's lines */
  Scoring scoring[2];
  if constexpr (kGeneral) {
    scoring[0] = scoring_of(a, record, q, first + lane / 4, factor);
    scoring[1] = scoring_of(a, record, q, first + lane / 4 + 8, factor);
  }
  Softmax<kHeadDim> state;
  state.reset();

  for (int32_t tile = item.kv_begin;; tile++) {
    const int32_t left = item.kv_end - tile; /* read before the products: after them all would wait for it */
    uint32_t k = base + stage * Shape::kStageBytes, v = k + Shape::kValuesAt;
    int32_t absolute = tile * kTileKv;
    copy_async_wait<2 * Shape::kStages - 2>(); /* K and V are here */
    __syncthreads();
    if (busy) {
      float s[kTileKv / 8][4];
      if constexpr (kHasKeyCodes<kCache>)
        score_codes<kCache, kHeadDim>(s, q_fragment, k, scale, convert_k);
      else
        score<kCache, kHeadDim>(s, q_fragment, k);
      if constexpr (kHasVectorFactors<kCache>)
        if (has_token_factors(a))
          scale_by_tokens(s, reinterpret_cast<const float *>(memory + stage * Shape::kStageBytes + Shape::kFactorsAt));
      if constexpr (kGeneral)
        score_rows(s, absolute, scoring);
      else if (absolute + kTileKv - 1 > warp_position)
        mask(s, absolute, position);
      softmax<kHeadDim, kIsRaised<kCache>>(s, state, kHasKeyCodes<kCache> ? 1.0f : scale);
      if constexpr (kHasValueCodes<kCache>)
        accumulate_codes<kCache, kHeadDim>(state, s, v, convert_v);
      else
        accumulate<kCache, kHeadDim>(state, s, v);
    }
    if (left == 1)
      break;
    if (left == kTakenBefore && threadIdx.x == 0 && !loader.in_decodes)
      take_late(a, shared.items);
    __syncthreads();
    refill(a, loader, shared.items, k);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  finish_sums<kHeadDim>(state);
  if constexpr (kHasValueCodes<kCache>)
    finish_codes<kCache, kHeadDim>(state, ValueFactors<kCache>(a, record));
  write_lines<kCache, kHeadDim, kGeneral>(a, item, q, state, first);
}

} // namespace cgr
#endif

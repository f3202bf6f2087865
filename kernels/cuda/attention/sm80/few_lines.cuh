/* An item of up to 16 lines, as in decode. Each warp takes all lines and 16 of the 64 tokens of a KV tile, those that it copied
 * itself. The warps synchronise twice: before they read the queries, which all of them copied, and at the end of the item, when
 * their four states are combined.
 *
 * The products are transposed, S^T = K q^T and out^T = V^T P^T: tokens and head dims are the 16 rows of an mma, lines its 8
 * columns. A line's maximum is raised, and the outputs so far rescaled, only when a score exceeds it by more than kHeadroom: the
 * value subtracted need only be near the maximum, and the same for all partials of a sum (FlashAttention-4 does the same in its
 * softmax). */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_FEW_LINES_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_FEW_LINES_CUH

#include "kernels/cuda/attention/sm80/combine.cuh"
#include "kernels/cuda/attention/sm80/producer.cuh"
#include "kernels/cuda/attention/sm80/scoring.cuh"

namespace cgr {

constexpr float kHeadroom = 8.0f; /* in units of log2: probabilities are at most 256 */

/* The state of one thread: of lines 8 t + 2 (lane % 4) + {0, 1}, the dims d * 16 + lane / 4 + {0, 8}, or where V has codes
 * d * 16 + 2 (lane / 4) + {0, 1}. sum holds this thread's tokens alone until the end of the item. */
template <int kHeadDim, int kTiles> struct LineState {
  float o[kTiles][kHeadDim / 16][4];
  float max[kTiles][2], sum[kTiles][2];

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; d++)
        o[t][d][0] = o[t][d][1] = o[t][d][2] = o[t][d][3] = 0.0f;
      max[t][0] = max[t][1] = -INFINITY;
      sum[t][0] = sum[t][1] = 0.0f;
    }
  }

  /* The first of the thread's two lines in tile t. */
  __device__ __forceinline__ static int32_t line(int t) { return kMmaLines * t + (int32_t)(threadIdx.x & 3) * 2; }

  /* Raises the maxima to those of the scores `s` too. */
  __device__ __forceinline__ void raise(const float (&s)[kTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float all = fmaxf(max[t][e], fmaxf(s[t][e], s[t][e + 2]));
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          all = fmaxf(all, __shfl_xor_sync(~0u, all, lanes));
        float rescale = exp2_approx(max[t][e] - safe_max(all));
        max[t][e] = all;
        sum[t][e] = __fmul_rn(sum[t][e], rescale);
#pragma unroll
        for (int d = 0; d < kHeadDim / 16; d++) {
          o[t][d][e] = __fmul_rn(o[t][d][e], rescale);
          o[t][d][e + 2] = __fmul_rn(o[t][d][e + 2], rescale);
        }
      }
    }
  }

  /* Scores become probabilities relative to the maxima. */
  __device__ __forceinline__ void softmax(float (&s)[kTiles][4]) {
    bool exceeds = false;
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        exceeds |= s[t][e] > max[t][e & 1] + kHeadroom;
    if (__any_sync(~0u, exceeds))
      raise(s);
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[t][e] = exp2_approx(s[t][e] - safe_max(max[t][e & 1]));
        sum[t][e & 1] = __fadd_rn(sum[t][e & 1], s[t][e]);
      }
    }
  }

  /* Multiplies the sums of codes by their factors. */
  template <int kCache> __device__ __forceinline__ void scale(const ValueFactors<kCache> &factors) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      const int32_t channel = d * 16 + (int32_t)(threadIdx.x & 31) / 4 * 2;
      const float first = factors.of(channel), second = factors.of(channel + 1);
#pragma unroll
      for (int t = 0; t < kTiles; t++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          o[t][d][e] = __fmul_rn(o[t][d][e], first);
          o[t][d][e + 2] = __fmul_rn(o[t][d][e + 2], second);
        }
    }
  }

  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 2; e++)
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          sum[t][e] += __shfl_xor_sync(~0u, sum[t][e], lanes);
  }
};

/* The B fragments of the lines, as fp16, for keys of codes: four neighbouring dims are what a lane has of K (load_codes), so
 * they are its two pairs here, too. */
template <int kHeadDim, int kTiles>
__device__ __forceinline__ void load_lines_for_codes(uint32_t (&fragment)[kTiles][kHeadDim / 16][2], uint32_t tile,
                                                     bool is_bf16) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k++) {
      uint32_t chunk = tile + tile_offset<kHeadDim * 2>(kMmaLines * t + lane / 4, 2 * k + (lane >> 1 & 1));
      load_words(fragment[t][k], chunk + (lane & 1) * 8);
      if (is_bf16) {
        fragment[t][k][0] = bf16_to_fp16(fragment[t][k][0]);
        fragment[t][k][1] = bf16_to_fp16(fragment[t][k][1]);
      }
    }
}

/* The B fragments of the lines, from their query tile. */
template <int kHeadDim, int kTiles>
__device__ __forceinline__ void load_lines(uint32_t (&fragment)[kTiles][kHeadDim / 16][2], uint32_t tile) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; k += 2) {
      uint32_t four[4];
      load_matrix(four, tile + tile_offset<kHeadDim * 2>(kMmaLines * t + (lane & 7), 2 * k + lane / 8));
      fragment[t][k][0] = four[0];
      fragment[t][k][1] = four[1];
      fragment[t][k + 1][0] = four[2];
      fragment[t][k + 1][1] = four[3];
    }
}

/* The A fragments of 16 tokens and twice 16 dims, from chunks `chunk` and chunk + 1 of codes. */
template <int kCodes, int kRowBytes>
__device__ __forceinline__ void load_codes(uint32_t (&first)[4], uint32_t (&second)[4], uint32_t tile, int row, int chunk,
                                           Converter<kCodes> convert) {
  uint32_t codes[4]; /* four neighbouring dims of tokens lane / 4 and lane / 4 + 8, of the first chunk and the second */
  load_matrix(codes, tile + tile_offset<kRowBytes>(row, chunk));
  convert(codes[0], first[0], first[2]);
  convert(codes[1], first[1], first[3]);
  convert(codes[2], second[0], second[2]);
  convert(codes[3], second[1], second[3]);
}

/* Scores of this warp's 16 tokens: s[t] is of tokens lane / 4 + {0, 8} and the thread's lines. Two chains of sums run in
 * parallel. */
template <int kCache, int kHeadDim, int kTiles>
__device__ __forceinline__ void score_lines(float (&s)[kTiles][4], const uint32_t (&q)[kTiles][kHeadDim / 16][2], uint32_t tile,
                                            Converter<kCodesOf<kCache>> convert) {
  constexpr int kRowBytes = AttentionShape<kHeadDim, kCache>::Keys::kRowBytes;
  int lane = threadIdx.x & 31;
  int row = (int)(threadIdx.x / 32) * kGranule + (lane & 15), column = lane >> 4;
  float odd[kTiles][4];
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[t][e] = odd[t][e] = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; k += 2) {
    uint32_t first[4], second[4];
    if constexpr (kHasKeyCodes<kCache>) {
      load_codes<kCodesOf<kCache>, kRowBytes>(first, second, tile, row, k + column, convert);
    } else {
      load_matrix(first, tile + tile_offset<kRowBytes>(row, 2 * k + column));
      load_matrix(second, tile + tile_offset<kRowBytes>(row, 2 * k + 2 + column));
    }
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
      Element<kKeyProducts<kCache>>::mma(s[t], first, q[t][k][0], q[t][k][1]);
      Element<kKeyProducts<kCache>>::mma(odd[t], second, q[t][k + 1][0], q[t][k + 1][1]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      s[t][e] += odd[t][e];
}

/* Multiplies the scores of this warp's tokens by the tokens' factors, those of a KV tile. */
template <int kTiles> __device__ __forceinline__ void scale_by_tokens(float (&s)[kTiles][4], const float *factors) {
  const float *own = factors + threadIdx.x / 32 * kGranule + (threadIdx.x & 31) / 4;
  const float first = own[0], second = own[8];
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      s[t][e] = __fmul_rn(s[t][e], first);
      s[t][e + 2] = __fmul_rn(s[t][e + 2], second);
    }
}

/* The A fragments of twice 16 dims and 16 tokens. A lane gets two neighbouring dims of two tokens: they become dims 2 (lane / 4)
 * and 2 (lane / 4) + 1 of rows lane / 4 and lane / 4 + 8. */
template <int kCodes, int kRowBytes>
__device__ __forceinline__ void load_codes_transposed(uint32_t (&first)[4], uint32_t (&second)[4], uint32_t tile, int row,
                                                      int chunk, Converter<kCodes> convert) {
  uint32_t codes[4]; /* of tokens 0 .. 7 of both chunks, then of 8 .. 15 */
  load_matrix_transposed(codes, tile + tile_offset<kRowBytes>(row, chunk));
  convert(even_first(codes[0]), first[0], first[1]);
  convert(even_first(codes[2]), first[2], first[3]);
  convert(even_first(codes[1]), second[0], second[1]);
  convert(even_first(codes[3]), second[2], second[3]);
}

template <int kCache, int kHeadDim, int kTiles>
__device__ __forceinline__ void accumulate_lines(LineState<kHeadDim, kTiles> &state, const float (&p)[kTiles][4], uint32_t tile,
                                                 Converter<kCodesOf<kCache>> convert) {
  constexpr int kRowBytes = AttentionShape<kHeadDim, kCache>::Values::kRowBytes;
  using Product = Element<kValueProducts<kCache>>;
  int lane = threadIdx.x & 31;
  int row = (int)(threadIdx.x / 32) * kGranule + (lane & 7) + ((lane >> 4) & 1) * 8, column = (lane >> 3) & 1;
  uint32_t b[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; t++) {
    b[t][0] = transpose(Product::pack(p[t][0], p[t][1]));
    b[t][1] = transpose(Product::pack(p[t][2], p[t][3]));
  }
  if constexpr (kHasValueCodes<kCache>) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d += 2) {
      uint32_t first[4], second[4];
      load_codes_transposed<kCodesOf<kCache>, kRowBytes>(first, second, tile, row, d + column, convert);
#pragma unroll
      for (int t = 0; t < kTiles; t++) {
        Product::mma(state.o[t][d], first, b[t][0], b[t][1]);
        Product::mma(state.o[t][d + 1], second, b[t][0], b[t][1]);
      }
    }
  } else {
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; d++) {
      uint32_t fragment[4];
      load_matrix_transposed(fragment, tile + tile_offset<kRowBytes>(row, 2 * d + column));
#pragma unroll
      for (int t = 0; t < kTiles; t++)
        Product::mma(state.o[t][d], fragment, b[t][0], b[t][1]);
    }
  }
}

/* What the thread's lines see: a position for a plain line, all of the scoring for a general one. */
template <bool kGeneral, int kTiles> struct Sight {
  int32_t position[kTiles][2];
  float scale;

  __device__ __forceinline__ Sight(const cgr__attention_args &, const ItemRecord &, const QueryTile &q, float factor) {
    scale = factor * kLog2e;
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        position[t][e] = q.position + q.query_of(LineState<16, kTiles>::line(t) + e);
  }

  /* `token`: absolute, of this warp's first. `first`: the position of the tile's first line. */
  __device__ __forceinline__ void apply(float (&s)[kTiles][4], int32_t token, int32_t first) const {
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[t][e] = __fmul_rn(s[t][e], scale);
    if (token + kGranule - 1 <= first)
      return;
    token += (int32_t)(threadIdx.x & 31) / 4;
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[t][e] = token + (e >> 1) * 8 > position[t][e & 1] ? -INFINITY : s[t][e];
  }
};

template <int kTiles> struct Sight<true, kTiles> {
  Scoring scoring[kTiles][2];

  __device__ __forceinline__ Sight(const cgr__attention_args &a, const ItemRecord &record, const QueryTile &q, float factor) {
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        scoring[t][e] = scoring_of(a, record, q, LineState<16, kTiles>::line(t) + e, factor);
  }

  __device__ __forceinline__ void apply(float (&s)[kTiles][4], int32_t token, int32_t) const {
    token += (int32_t)(threadIdx.x & 31) / 4;
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[t][e] = scoring[t][e & 1].apply(s[t][e], token + (e >> 1) * 8);
  }
};

/* Puts the states of the lines of tiles [begin, begin + kAtOnce) into `scratch` [4][kMmaLines * kAtOnce][kHeadDim]. Columns are
 * swizzled in groups of 8, so that the lines of a store are in different banks. */
template <int kCache, int kHeadDim, int kTiles, int kAtOnce>
__device__ __forceinline__ void put_states(const LineState<kHeadDim, kTiles> &state, int32_t lines, int begin,
                                           AttentionShared &shared, float *scratch) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int t = 0; t < kTiles; t++) {
    if (t < begin || t >= begin + kAtOnce)
      continue;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int32_t line = state.line(t) + e, exchange = (line >> 1 & 3) * 8;
      if (line >= lines)
        continue;
      if (lane / 4 == 0)
        shared.state[warp][line] = make_float2(state.max[t][e], state.sum[t][e]);
      float *to = scratch + (warp * kMmaLines * kAtOnce + line - begin * kMmaLines) * kHeadDim;
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; d++) {
        if constexpr (kHasValueCodes<kCache>) {
          *reinterpret_cast<float2 *>(to + ((d * 16 + lane / 4 * 2) ^ exchange)) =
              make_float2(state.o[t][d][e], state.o[t][d][e + 2]);
        } else {
          to[(d * 16 ^ exchange) + lane / 4] = state.o[t][d][e];
          to[((d * 16 + 8) ^ exchange) + lane / 4] = state.o[t][d][e + 2];
        }
      }
    }
  }
}

/* Combines the warps' states through `scratch`, the stage that was used last, as many lines at once as it holds, adding them in
 * the order of the warps. */
template <int kCache, int kHeadDim, bool kGeneral, int kTiles>
__device__ __forceinline__ void combine_warps(const cgr__attention_args &a, const cgr__plan_item &item, const QueryTile &q,
                                              const LineState<kHeadDim, kTiles> &state, AttentionShared &shared, float *scratch) {
  constexpr int kStateBytes = kAttentionWarps * kMmaLines * kHeadDim * 4; /* of the lines of one mma */
  constexpr int kRoom = AttentionShape<kHeadDim, kCache>::kStageBytes / kStateBytes;
  constexpr int kAtOnce = kTiles < kRoom ? kTiles : kRoom, kLines = kMmaLines * kAtOnce, kVectors = kHeadDim / 4;
  static_assert(kAtOnce > 0, "a stage holds the states of the lines of one mma");
  const int32_t dim = dim_of<kHeadDim, kGeneral>(a);
  __syncthreads();                                      /* all warps are done with the stage */
  if (item.fold >= 0 && (int32_t)threadIdx.x < q.lines) /* the partial may be written again: its states are read first */
    shared.before[threadIdx.x] = state_of_partial(a, partial_line(a, item.fold, (int32_t)threadIdx.x));
#pragma unroll
  for (int begin = 0; begin < kTiles; begin += kAtOnce) {
    if (begin > 0)
      __syncthreads(); /* the lines before have been read */
    put_states<kCache, kHeadDim, kTiles, kAtOnce>(state, q.lines, begin, shared, scratch);
    __syncthreads();
    const int32_t first = begin * kMmaLines, lines = min(q.lines - first, kLines);
    for (int32_t i = threadIdx.x; i < lines * kVectors; i += kAttentionThreads) {
      int32_t line = first + i / kVectors, d = i % kVectors * 4;
      if (d >= dim)
        continue;
      float max = -INFINITY, sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kAttentionWarps; w++)
        max = fmaxf(max, shared.state[w][line].x);
      float base = safe_max(max);
      Elements<4> o = {};
#pragma unroll
      for (int w = 0; w < kAttentionWarps; w++) {
        float2 one = shared.state[w][line];
        float scale = exp2_approx(one.x - base);
        float4 x =
            *reinterpret_cast<const float4 *>(scratch + (w * kLines + line - first) * kHeadDim + (d ^ (line >> 1 & 3) * 8));
        sum = __fmaf_rn(one.y, scale, sum);
        o.x[0] = __fmaf_rn(x.x, scale, o.x[0]);
        o.x[1] = __fmaf_rn(x.y, scale, o.x[1]);
        o.x[2] = __fmaf_rn(x.z, scale, o.x[2]);
        o.x[3] = __fmaf_rn(x.w, scale, o.x[3]);
      }
      write_elements<kCache, kHeadDim, kGeneral>(a, item, q, shared, line, d, o, max, sum);
    }
  }
}

/* Works through all KV tiles of one item. `stage` is the stage of its first tile on entry, and of its last on return. A warp
 * refills the place of K or V as soon as it has read it. The caller refills the stage of the last tile after the results, which
 * pass through it, have left. `number`: of the item among those of the CTA. */
template <int kCache, int kHeadDim, bool kGeneral, int kTiles, int kLoaded>
__device__ __forceinline__ void run_few_lines(const cgr__attention_args &a, const ItemRecord &record, int32_t number,
                                              Loader<kHeadDim, kGeneral, kLoaded, kCache> &loader, AttentionShared &shared,
                                              unsigned char *memory, int &stage) {
  using Shape = AttentionShape<kHeadDim, kCache>;
  const QueryTile q = query_tile(record);
  uint32_t base = (uint32_t)__cvta_generic_to_shared(memory);
  uint32_t q_fragment[kTiles][kHeadDim / 16][2];
  const Converter<kCodesOf<kCache>> convert_k(a.k_cache.dtype), convert_v(a.v_cache.dtype);
  const Sight<kGeneral, kTiles> sight(a, record, q, scale_of<kCache>(a, record));
  LineState<kHeadDim, kTiles> state;
  state.reset();
  copy_async_wait<2 * Shape::kStages - 1>(); /* the first K is here, and this thread's share of the queries; */
  __syncthreads();                           /* now everyone's */
  if constexpr (kHasKeyCodes<kCache>)
    load_lines_for_codes<kHeadDim, kTiles>(q_fragment, loader.query_tile_of(number), a.q.dtype == CGR_DTYPE_BF16);
  else
    load_lines<kHeadDim, kTiles>(q_fragment, loader.query_tile_of(number));
  int32_t token = record.item.kv_begin * kTileKv + (int32_t)(threadIdx.x / 32) * kGranule; /* this warp's first */
  for (int32_t left = record.item.kv_end - record.item.kv_begin;; left--, token += kTileKv) {
    uint32_t k = base + stage * Shape::kStageBytes;
    copy_async_wait<2 * Shape::kStages - 1>(); /* K is here */
    __syncwarp();
    float s[kTiles][4];
    score_lines<kCache, kHeadDim, kTiles>(s, q_fragment, k, convert_k);
    if constexpr (kHasVectorFactors<kCache>)
      if (has_token_factors(a))
        scale_by_tokens(s, reinterpret_cast<const float *>(memory + stage * Shape::kStageBytes + Shape::kFactorsAt));
    __syncwarp();
    if (left > 1)
      loader.issue_k(a, k);
    sight.apply(s, token, q.position);
    state.softmax(s);
    if (left > 1)
      copy_async_wait<2 * Shape::kStages - 1>();
    else /* no K was issued: V is the first of one group fewer */
      copy_async_wait<2 * Shape::kStages - 2>();
    __syncwarp();
    accumulate_lines<kCache, kHeadDim, kTiles>(state, s, k + Shape::kValuesAt, convert_v);
    if (left == 1)
      break;
    __syncwarp();
    loader.issue_v(a, k);
    advance(a, loader, shared.items);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  state.finish_sums();
  if constexpr (kHasValueCodes<kCache>)
    state.scale(ValueFactors<kCache>(a, record));
  combine_warps<kCache, kHeadDim, kGeneral, kTiles>(a, record.item, q, state, shared,
                                                    reinterpret_cast<float *>(memory + stage * Shape::kStageBytes));
}

} // namespace cgr
#endif

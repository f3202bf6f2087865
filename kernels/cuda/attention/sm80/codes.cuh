/* Codes of 8 bits, and their factors. Products are those of the codes, in fp16 (V's of i8 are raised by 128 in items of many
 * lines: many_lines.cuh). Where all elements of a KV head have one factor, K's multiplies the scale of the scores; where each
 * token of K has its own, it multiplies the token's scores, and is in shared memory behind the tile. V's factors multiply what an
 * item has added up. */
#ifndef CGR_KERNELS_CUDA_ATTENTION_SM80_CODES_CUH
#define CGR_KERNELS_CUDA_ATTENTION_SM80_CODES_CUH

#include "kernels/cuda/attention/sm80/items.cuh"
#include "kernels/cuda/attention/sm80/mma.cuh"
#include "kernels/cuda/attention/sm80/traits.h"

namespace cgr {

/* Turns four codes into fp16, exactly. The dtype of the codes is that of the instance, or the argument. */
template <int kCodes> struct Converter {
  __device__ __forceinline__ explicit Converter(int32_t) {}
  __device__ __forceinline__ void operator()(uint32_t codes, uint32_t &low, uint32_t &high) const {
    Codes<kCodes>::convert(codes, low, high);
  }
};

template <> struct Converter<kAnyCodes> {
  int32_t dtype;
  __device__ __forceinline__ explicit Converter(int32_t dtype) : dtype(dtype) {}
  __device__ __forceinline__ void operator()(uint32_t codes, uint32_t &low, uint32_t &high) const {
    if (dtype == CGR_DTYPE_I8)
      Codes<CGR_DTYPE_I8>::convert(codes, low, high);
    else if (dtype == CGR_DTYPE_FP8_E4M3)
      Codes<CGR_DTYPE_FP8_E4M3>::convert(codes, low, high);
    else
      Codes<CGR_DTYPE_FP8_E5M2>::convert(codes, low, high);
  }
};

/* Whether each token of K has a factor of its own. */
__device__ __forceinline__ bool has_token_factors(const cgr__attention_args &a) { return a.k_cache.scale_stride_token != 0; }

/* The one factor of the codes of K or V, for the item's KV head. */
__device__ __forceinline__ float factor_of(const cgr_kv_view &cache, int32_t kv_head) {
  return cache.scale != nullptr ? cache.scale[kv_head * cache.scale_stride_head] : 1.0f;
}

/* What q.k is multiplied by, before a factor of the token. */
template <int kCache> __device__ __forceinline__ float scale_of(const cgr__attention_args &a, const ItemRecord &record) {
  if constexpr (kHasVectorFactors<kCache>)
    return has_token_factors(a) ? a.scale : a.scale * factor_of(a.k_cache, record.kv_head);
  else
    return kHasKeyCodes<kCache> ? a.scale * factor_of(a.k_cache, record.kv_head) : a.scale;
}

/* The factors of the codes of V, for the item's KV head. */
template <int kCache> struct ValueFactors {
  const float *channels; /* NULL: all have `one` */
  int64_t stride;
  int32_t count;
  float one;

  __device__ __forceinline__ ValueFactors(const cgr__attention_args &a, const ItemRecord &record) {
    const cgr_kv_view &v = a.v_cache;
    stride = v.scale_stride_d;
    count = a.head_dim_v;
    channels =
        kHasVectorFactors<kCache> && v.scale != nullptr && stride != 0 ? v.scale + record.kv_head * v.scale_stride_head : nullptr;
    one = channels == nullptr ? factor_of(v, record.kv_head) : 0.0f;
  }

  __device__ __forceinline__ float of(int32_t channel) const {
    if (kHasVectorFactors<kCache> && channels != nullptr)
      return channel < count ? channels[channel * stride] : 0.0f;
    return one;
  }
};

} // namespace cgr
#endif

/* Biases, norms and rope of q, k and v, and the append of k and v (kernels/transform.h). A block has heads of one token: those of
 * q, k and v in order. A power of two of lanes shares a head, and each has the vectors of 8 elements that rope turns together, or
 * two neighbours; all elements stay in registers from the load to the store. */
#include "cgr/cgr.h"
#include "devices/cuda/launch.cuh"
#include "kernels/cuda/cache/half.cuh"
#include "kernels/cuda/cache/quantise.cuh"
#include "kernels/cuda/launchers.h"
#include "kernels/transform.h"

namespace cgr {
namespace {

constexpr int kThreads = 128;
constexpr int kVector = CGR__TRANSFORM_UNIT; /* elements */
constexpr int kLanePairs = 2;                /* of a lane, at most: 32 lanes have a head of 1024 elements */

struct Transform {
  cgr__transform_args args;
  int32_t lanes;                     /* of a head */
  int32_t has_norms, writes_factors; /* some heads have a norm, or a factor to be found: their lanes exchange values */
  int32_t reserved;                  /* fills a hole: an audit compares all bytes */
};
static_assert(sizeof(Transform) == sizeof(cgr__transform_args) + 4 * sizeof(int32_t), "no holes");

/* A head, and whether this thread has any of it. */
struct OwnHead : Head {
  bool active;
};

/* The vectors of a pair: rope turns elements of one with those of the other, or within each. -1: none. */
struct Pair {
  int32_t first, second;
};

__device__ __forceinline__ Pair pair_of(const cgr__transformed &t, int32_t index, bool interleaved) {
  const int32_t vectors = t.head_dim / kVector, half = interleaved ? 0 : t.rotary_dim / (2 * kVector);
  Pair pair;
  pair.first = index < half ? index : 2 * index;
  pair.second = index < half ? index + half : 2 * index + 1;
  pair.first = pair.first < vectors ? pair.first : -1;
  pair.second = pair.second < vectors ? pair.second : -1;
  return pair;
}

__device__ __forceinline__ cgr_view dense_view(const void *data, int32_t dtype) {
  cgr_view view = {};
  view.data = const_cast<void *>(data);
  view.dtype = dtype;
  return view;
}

template <int kPairs> struct Elements {
  float x[kPairs][2][kVector];
  int32_t vector[kPairs][2]; /* -1: none */
};

/* visit(vector, its elements) for each that the thread has. */
template <int kPairs, class Visit> __device__ __forceinline__ void each_vector(Elements<kPairs> &e, Visit visit) {
#pragma unroll
  for (int i = 0; i < kPairs; i++)
#pragma unroll
    for (int j = 0; j < 2; j++)
      if (e.vector[i][j] >= 0)
        visit(e.vector[i][j], e.x[i][j]);
}

template <int kPairs> __device__ __forceinline__ void load_head(const cgr__transformed &t, const Head &at, Elements<kPairs> &e) {
  const int64_t from = at.token * t.from.stride_token + at.head * t.from.stride_head;
  const cgr_view bias = dense_view(t.bias, t.from.dtype);
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) { load_eight(x, t.from, from + vector * kVector); });
  if (t.bias == nullptr)
    return;
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) {
    float b[kVector];
    load_eight(b, bias, (int64_t)at.head * t.head_dim + vector * kVector);
#pragma unroll
    for (int i = 0; i < kVector; i++)
      x[i] += b[i];
  });
}

template <int kPairs> __device__ __forceinline__ float sum_of_squares(Elements<kPairs> &e, int32_t lanes) {
  float sum = 0.0f;
  each_vector(e, [&](int32_t, float(&x)[kVector]) {
#pragma unroll
    for (int i = 0; i < kVector; i++)
      sum += x[i] * x[i];
  });
  for (int32_t distance = lanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  return sum;
}

template <int kPairs>
__device__ __forceinline__ void normalise(const cgr__transform_args &a, const cgr__transformed &t, float sum,
                                          Elements<kPairs> &e) {
  const float inverse = 1.0f / sqrtf(sum / (float)t.head_dim + a.epsilon);
  const cgr_view norm = dense_view(t.norm, t.from.dtype);
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) {
    float weight[kVector];
    load_eight(weight, norm, vector * kVector);
#pragma unroll
    for (int i = 0; i < kVector; i++)
      x[i] = x[i] * inverse * (weight[i] + a.norm_offset);
  });
}

__device__ __forceinline__ void turn(float &x, float &y, float cosine, float sine) {
  const float a = x, b = y;
  x = a * cosine - b * sine;
  y = b * cosine + a * sine;
}

template <int kPairs>
__device__ __forceinline__ void turn_halves(const cgr__transformed &t, const float *cosines, Elements<kPairs> &e) {
  const int32_t half = t.rotary_dim / 2;
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const int32_t d = e.vector[i][0] * kVector;
    if (d < 0 || d >= half)
      continue;
    float cosine[kVector], sine[kVector];
    const cgr_view table = dense_view(cosines, CGR_DTYPE_FP32);
    load_eight(cosine, table, d);
    load_eight(sine, table, half + d);
#pragma unroll
    for (int k = 0; k < kVector; k++)
      turn(e.x[i][0][k], e.x[i][1][k], cosine[k], sine[k]);
  }
}

template <int kPairs>
__device__ __forceinline__ void turn_neighbours(const cgr__transformed &t, const float *cosines, Elements<kPairs> &e) {
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) {
    if (vector * kVector >= t.rotary_dim)
      return;
    const float4 cosine = *reinterpret_cast<const float4 *>(cosines + vector * (kVector / 2));
    const float4 sine = *reinterpret_cast<const float4 *>(cosines + t.rotary_dim / 2 + vector * (kVector / 2));
    turn(x[0], x[1], cosine.x, sine.x);
    turn(x[2], x[3], cosine.y, sine.y);
    turn(x[4], x[5], cosine.z, sine.z);
    turn(x[6], x[7], cosine.w, sine.w);
  });
}

__device__ __forceinline__ const float *cosines_of(const cgr__transform_args &a, int32_t token, int32_t rotary_dim) {
  const int32_t position = min(max(a.positions[token], 0), a.num_positions - 1);
  return a.cos_sin + (int64_t)position * rotary_dim;
}

/* -------------------------------------------------------------------------------------------------------------- the store */

__device__ __forceinline__ void round_eight(float (&x)[kVector], int32_t dtype) {
  const bool is_bf16 = dtype == CGR_DTYPE_BF16;
  if (dtype != CGR_DTYPE_FP32)
    unpack_eight(x, pack_eight(x, is_bf16), is_bf16);
}

__device__ __forceinline__ void store_eight(const float (&x)[kVector], int32_t dtype, void *base, int64_t at) {
  if (dtype != CGR_DTYPE_FP32) {
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(base) + at) = pack_eight(x, dtype == CGR_DTYPE_BF16);
    return;
  }
  float4 *to = reinterpret_cast<float4 *>(static_cast<float *>(base) + at);
  to[0] = make_float4(x[0], x[1], x[2], x[3]);
  to[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* Bits as they are: a NaN keeps its own. */
__device__ __forceinline__ void copy_eight(const cgr_view &from, int64_t source, void *base, int64_t at) {
  const int32_t size = from.dtype == CGR_DTYPE_FP32 ? 4 : 2;
  const uint4 *src = reinterpret_cast<const uint4 *>(static_cast<const char *>(from.data) + source * size);
  uint4 *dst = reinterpret_cast<uint4 *>(static_cast<char *>(base) + at * size);
  dst[0] = src[0];
  if (size == 4)
    dst[1] = src[1];
}

template <int kPairs> __device__ __forceinline__ float largest_magnitude(Elements<kPairs> &e, int32_t lanes) {
  float most = 0.0f;
  each_vector(e, [&](int32_t, float(&x)[kVector]) {
#pragma unroll
    for (int i = 0; i < kVector; i++)
      most = cgr__larger_magnitude(most, x[i]);
  });
  for (int32_t distance = lanes / 2; distance > 0; distance /= 2)
    most = cgr__larger_magnitude(most, __shfl_xor_sync(~0u, most, distance));
  return most;
}

template <int kPairs>
__device__ __forceinline__ void quantise_head(const cgr_kv_view &to, const Head &at, float most, bool is_first,
                                              Elements<kPairs> &e) {
  const HeadCodes codes = begin_codes(to, at, is_first, [&] { return most; });
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) {
    const int32_t d = vector * kVector;
    const uint32_t low = four_codes(to, at, codes, d, x), high = four_codes(to, at, codes, d + 4, x + 4);
    *reinterpret_cast<uint2 *>(codes.bytes + d) = make_uint2(low, high);
  });
}

/* In its own dtype: to the cache, or in place. */
template <int kPairs>
__device__ __forceinline__ void store_head(const cgr__transformed &t, const Head &at, bool is_changed, Elements<kPairs> &e) {
  const int64_t own = at.token * t.from.stride_token + at.head * t.from.stride_head;
  const int64_t placed = at.page * t.to.stride_page + at.offset * t.to.stride_token + at.head * t.to.stride_head;
  void *base = t.to.base != nullptr ? t.to.base : t.from.data;
  const int64_t to = t.to.base != nullptr ? placed : own;
  each_vector(e, [&](int32_t vector, float(&x)[kVector]) {
    if (is_changed)
      store_eight(x, t.from.dtype, base, to + vector * kVector);
    else
      copy_eight(t.from, own + vector * kVector, base, to + vector * kVector);
  });
}

/* -------------------------------------------------------------------------------------------------------------- the kernel */

/* Which of q, k and v the head is of, which becomes its index there; 0, and not active, after the last. */
__device__ __forceinline__ int32_t find_tensor(const cgr__transform_args &a, OwnHead &at) {
  for (int32_t i = 0; i < CGR__NUM_TRANSFORMED; i++) {
    if (at.head < a.tensor[i].num_heads)
      return i;
    at.head -= a.tensor[i].num_heads;
  }
  at.active = false;
  return 0;
}

__device__ __forceinline__ void find_place(const cgr__transform_args &a, const cgr__transformed &t, OwnHead &at) {
  at.page = 0, at.offset = 0;
  if (!at.active || t.to.base == nullptr)
    return;
  const int64_t slot = a.slot_mapping[at.token];
  at.page = slot < 0 ? 0 : slot / a.page_size;
  at.offset = (int32_t)(slot - at.page * a.page_size);
  at.active = slot >= 0 && at.page < a.num_pages;
}

template <int kPairs> __global__ void __launch_bounds__(kThreads) transform_kernel(const __grid_constant__ Transform transform) {
  const cgr__transform_args &a = transform.args;
  const int32_t thread = (int32_t)(blockIdx.y * kThreads + threadIdx.x), lane = thread & (transform.lanes - 1);
  OwnHead at;
  at.token = (int32_t)blockIdx.x;
  at.head = thread / transform.lanes;
  at.active = at.token < a.counts[CGR_COUNT_TOKENS];
  const cgr__transformed &t = a.tensor[find_tensor(a, at)];
  find_place(a, t, at);
  Elements<kPairs> e = {};
#pragma unroll
  for (int i = 0; i < kPairs; i++) {
    const Pair pair = pair_of(t, lane + i * transform.lanes, a.interleaved != 0);
    e.vector[i][0] = at.active ? pair.first : -1;
    e.vector[i][1] = at.active ? pair.second : -1;
  }
  const bool is_changed = cgr__is_transformed(&t);
  const bool is_quantised = t.to.base != nullptr && cgr__is_quantised(t.to.dtype);
  if (is_changed || is_quantised)
    load_head(t, at, e);
  if (transform.has_norms) { /* every lane of the warp adds up, whatever its head */
    const float sum = sum_of_squares(e, transform.lanes);
    if (t.norm != nullptr)
      normalise(a, t, sum, e);
  }
  if (at.active && t.rotary_dim > 0) {
    const float *cosines = cosines_of(a, at.token, t.rotary_dim);
    if (a.interleaved)
      turn_neighbours(t, cosines, e);
    else
      turn_halves(t, cosines, e);
  }
  float most = 0.0f;
  if (is_quantised)
    each_vector(e, [&](int32_t, float(&x)[kVector]) { round_eight(x, t.from.dtype); });
  if (transform.writes_factors)
    most = largest_magnitude(e, transform.lanes);
  if (!at.active)
    return;
  if (is_quantised)
    quantise_head(t.to, at, most, lane == 0, e);
  else
    store_head(t, at, is_changed, e);
}

bool is_served(const cgr__transformed &t) {
  const int32_t dtype = t.from.dtype;
  return t.num_heads == 0 ||
         ((dtype == CGR_DTYPE_FP32 || dtype == CGR_DTYPE_FP16 || dtype == CGR_DTYPE_BF16) && t.num_heads > 0 && t.head_dim > 0 &&
          t.head_dim % kVector == 0 && t.head_dim <= CGR__TRANSFORM_MAX_HEAD_DIM && t.rotary_dim >= 0 &&
          t.rotary_dim <= t.head_dim && t.rotary_dim % CGR__TRANSFORM_ROTARY_UNIT == 0 &&
          (t.to.base == nullptr || t.to.dtype == dtype || (cgr__is_quantised(t.to.dtype) && t.head_dim % 16 == 0)));
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_transform(const void *args, cudaStream_t stream) {
  cgr::Transform transform = {};
  transform.args = *static_cast<const cgr__transform_args *>(args);
  const cgr__transform_args &a = transform.args;
  int32_t pairs = 0, heads = 0;
  for (const cgr__transformed &t : a.tensor) {
    if (!cgr::is_served(t))
      return (int)cudaErrorNotSupported;
    const int32_t own = t.num_heads > 0 ? (t.head_dim / cgr::kVector + 1) / 2 : 0;
    pairs = own > pairs ? own : pairs;
    heads += t.num_heads;
    transform.has_norms |= t.num_heads > 0 && t.norm != nullptr;
    transform.writes_factors |= t.num_heads > 0 && t.to.base != nullptr && cgr__scales_are_written(&t.to);
  }
  if (a.num_tokens < 0 || a.page_size < 1)
    return (int)cudaErrorNotSupported;
  for (transform.lanes = 1; transform.lanes < pairs && transform.lanes < 32;)
    transform.lanes *= 2;
  const int64_t blocks = ((int64_t)heads * transform.lanes + cgr::kThreads - 1) / cgr::kThreads;
  if (blocks > 65535)
    return (int)cudaErrorInvalidValue;
  if (blocks == 0 || a.num_tokens == 0)
    return (int)cudaSuccess;
  auto kernel = pairs > 32 ? cgr::transform_kernel<cgr::kLanePairs> : cgr::transform_kernel<1>;
  return cgr::launch(kernel, &transform, dim3((unsigned)a.num_tokens, (unsigned)blocks), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_transform_preload(void) {
  int error = cgr::preload(cgr::transform_kernel<1>, 0);
  return error ? error : cgr::preload(cgr::transform_kernel<cgr::kLanePairs>, 0);
}

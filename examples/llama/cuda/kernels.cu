/* The operations of a model's step except its GEMMs: a block per row, 16 bytes (8 bf16) per thread and access. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "examples/llama/cuda/kernels.h"
#include "examples/llama/noise.h"
#include "examples/llama/random.h"

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kWidth = 8; // bf16 in 16 bytes

struct alignas(16) Vector {
  __nv_bfloat162 pairs[kWidth / 2];
};

__device__ __forceinline__ void Unpack(const Vector &from, float *to) {
#pragma unroll
  for (int i = 0; i < kWidth / 2; i++) {
    float2 pair = __bfloat1622float2(from.pairs[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ Vector Pack(const float *from) {
  Vector to;
#pragma unroll
  for (int i = 0; i < kWidth / 2; i++)
    to.pairs[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
  return to;
}

__device__ __forceinline__ int Clamp(int value, int limit) { return value < 0 || value >= limit ? 0 : value; }

// Row r of `out` is row rows[r] of `in`.
__global__ void CopyRows(Vector *out, const Vector *in, const int32_t *rows, int limit, int vectors) {
  const Vector *from = in + static_cast<int64_t>(Clamp(rows[blockIdx.x], limit)) * vectors;
  Vector *to = out + static_cast<int64_t>(blockIdx.x) * vectors;
  for (int i = threadIdx.x; i < vectors; i += kThreads)
    to[i] = from[i];
}

// The sum over a warp, in every lane.
__device__ __forceinline__ float WarpSum(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// The sum over a block, in every thread.
__device__ float BlockSum(float value) {
  __shared__ float sums[kWarps];
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0)
    sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; i++)
    total += sums[i];
  return total;
}

__global__ void RmsNorm(llama_rmsnorm_args a) {
  int vectors = a.hidden / kWidth;
  const Vector *in = static_cast<const Vector *>(a.in) + static_cast<int64_t>(blockIdx.x) * vectors;
  const Vector *weight = static_cast<const Vector *>(a.weight);
  Vector *out = static_cast<Vector *>(a.out) + static_cast<int64_t>(blockIdx.x) * vectors;
  float x[kWidth], w[kWidth], sum = 0.0f;
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    Unpack(in[i], x);
#pragma unroll
    for (int j = 0; j < kWidth; j++)
      sum += x[j] * x[j];
  }
  float scale = rsqrtf(BlockSum(sum) / static_cast<float>(a.hidden) + a.eps);
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    Unpack(in[i], x);
    Unpack(weight[i], w);
#pragma unroll
    for (int j = 0; j < kWidth; j++)
      x[j] = x[j] * scale * w[j];
    out[i] = Pack(x);
  }
}

// A block per token; a thread rotates one pair of one head.
__global__ void Rope(llama_rope_args a) {
  int half = a.head_dim / 2;
  const float *cosines = a.angles + static_cast<int64_t>(Clamp(a.positions[blockIdx.x], a.max_positions)) * a.head_dim;
  __nv_bfloat16 *token = static_cast<__nv_bfloat16 *>(a.qk) + blockIdx.x * a.stride_token;
  for (int i = threadIdx.x; i < a.heads * half; i += kThreads) {
    int angle = i % half;
    __nv_bfloat16 *low = token + i / half * a.head_dim + angle, *high = low + half;
    float x = __bfloat162float(*low), y = __bfloat162float(*high), c = cosines[angle], s = cosines[half + angle];
    *low = __float2bfloat16_rn(x * c - y * s);
    *high = __float2bfloat16_rn(y * c + x * s);
  }
}

// A warp per head: norm and rotation between one load and one store, so that nothing is rounded between them.
__global__ void NormRope(llama_rope_args a) {
  constexpr int kPairs = 4; // of a lane: head_dim is at most 256
  int head = blockIdx.y * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32, half = a.head_dim / 2;
  if (head >= a.heads)
    return;
  const float *cosines = a.angles + static_cast<int64_t>(Clamp(a.positions[blockIdx.x], a.max_positions)) * a.head_dim;
  const __nv_bfloat16 *weight = static_cast<const __nv_bfloat16 *>(head < a.q_heads ? a.q_norm : a.k_norm);
  __nv_bfloat16 *low = static_cast<__nv_bfloat16 *>(a.qk) + blockIdx.x * a.stride_token + head * a.head_dim, *high = low + half;
  float x[kPairs], y[kPairs], sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kPairs; j++) {
    int i = lane + 32 * j;
    x[j] = i < half ? __bfloat162float(low[i]) : 0.0f;
    y[j] = i < half ? __bfloat162float(high[i]) : 0.0f;
    sum += x[j] * x[j] + y[j] * y[j];
  }
  float scale = rsqrtf(WarpSum(sum) / static_cast<float>(a.head_dim) + a.eps);
#pragma unroll
  for (int j = 0; j < kPairs; j++) {
    int i = lane + 32 * j;
    if (i >= half)
      break;
    float u = x[j] * scale * __bfloat162float(weight[i]), v = y[j] * scale * __bfloat162float(weight[half + i]);
    low[i] = __float2bfloat16_rn(u * cosines[i] - v * cosines[half + i]);
    high[i] = __float2bfloat16_rn(v * cosines[i] + u * cosines[half + i]);
  }
}

__global__ void Silu(llama_silu_args a) {
  int vectors = a.inner / kWidth;
  const Vector *gate = static_cast<const Vector *>(a.gate_up) + static_cast<int64_t>(blockIdx.x) * 2 * vectors;
  const Vector *up = gate + vectors;
  Vector *out = static_cast<Vector *>(a.out) + static_cast<int64_t>(blockIdx.x) * vectors;
  float g[kWidth], u[kWidth];
  for (int i = blockIdx.y * kThreads + threadIdx.x; i < vectors; i += gridDim.y * kThreads) {
    Unpack(gate[i], g);
    Unpack(up[i], u);
#pragma unroll
    for (int j = 0; j < kWidth; j++)
      g[j] = g[j] / (1.0f + __expf(-g[j])) * u[j];
    out[i] = Pack(g);
  }
}

// The larger value wins, then the smaller index.
__device__ __forceinline__ void Better(float *value, int *index, float other, int other_index) {
  if (other > *value || (other == *value && other_index < *index)) {
    *value = other;
    *index = other_index;
  }
}

// A thread takes four tokens at a time: those that share a call of the generator.
__global__ void Sample(llama_sample_args a) {
  const float *logits = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocab;
  int data = Clamp(a.request_rows[blockIdx.x], a.num_data), position = a.positions[Clamp(a.indices[blockIdx.x], a.tokens)];
  int seed = a.noise[2 * data], request = a.noise[2 * data + 1];
  float temperature = a.temperatures[data], best = -INFINITY;
  int index = 0, broken = 0;
  for (int first = 4 * threadIdx.x; first < a.vocab; first += 4 * kThreads) {
    uint32_t words[4];
    if (temperature > 0.0f)
      llama_noise(seed, request, position, (a.first + first) / 4, words);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if (first + j >= a.vocab)
        break;
      float value = logits[first + j];
      broken |= !isfinite(value);
      if (temperature > 0.0f)
        value += temperature * llama_gumbel(words[j]);
      Better(&best, &index, value, first + j);
    }
  }
  broken = __syncthreads_or(broken);
  __shared__ float values[kThreads];
  __shared__ int indices[kThreads];
  values[threadIdx.x] = best;
  indices[threadIdx.x] = index;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      Better(&values[threadIdx.x], &indices[threadIdx.x], values[threadIdx.x + half], indices[threadIdx.x + half]);
  }
  if (threadIdx.x != 0)
    return;
  int token = broken ? LLAMA_NOT_FINITE : a.first + indices[0];
  if (a.best)
    a.best[blockIdx.x] = { values[0], token };
  else
    a.out[blockIdx.x] = token;
}

__global__ void Empty() {}

__global__ void Fill(llama_fill_args a) {
  const uint64_t vectors = a.count / kWidth, stride = static_cast<uint64_t>(gridDim.x) * kThreads;
  Vector *out = static_cast<Vector *>(a.out);
  float x[kWidth];
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vectors; i += stride) {
    const uint64_t at = i * kWidth, number = a.first + at / a.row * a.stride + at % a.row; // a vector is in one row
#pragma unroll
    for (int j = 0; j < kWidth; j++)
      x[j] = a.std > 0.0f ? a.std * llama_random_normal(a.seed, number + j) : a.constant;
    out[i] = Pack(x);
  }
}

int CopyRowsFor(void *out, const void *in, const int32_t *rows, int count, int limit, int hidden, cudaStream_t stream) {
  CopyRows<<<count, kThreads, 0, stream>>>(static_cast<Vector *>(out), static_cast<const Vector *>(in), rows, limit,
                                           hidden / kWidth);
  return cudaGetLastError();
}

} // namespace

int llama_cuda_embed(const llama_embed_args *a, cudaStream_t stream) {
  return CopyRowsFor(a->out, a->table, a->ids, a->tokens, a->vocab, a->hidden, stream);
}

int llama_cuda_gather(const llama_gather_args *a, cudaStream_t stream) {
  return CopyRowsFor(a->out, a->in, a->indices, a->rows, a->tokens, a->hidden, stream);
}

int llama_cuda_rmsnorm(const llama_rmsnorm_args *a, cudaStream_t stream) {
  RmsNorm<<<a->rows, kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

int llama_cuda_rope(const llama_rope_args *a, cudaStream_t stream) {
  if (a->q_norm)
    NormRope<<<dim3(a->tokens, (a->heads + kWarps - 1) / kWarps), kThreads, 0, stream>>>(*a);
  else
    Rope<<<a->tokens, kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

int llama_cuda_silu(const llama_silu_args *a, cudaStream_t stream) {
  int vectors = a->inner / kWidth;
  Silu<<<dim3(a->rows, (vectors + kThreads - 1) / kThreads), kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

int llama_cuda_empty(cudaStream_t stream) {
  Empty<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

int llama_cuda_sample(const llama_sample_args *a, cudaStream_t stream) {
  Sample<<<a->rows, kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

int llama_cuda_fill(const llama_fill_args *a, cudaStream_t stream) {
  constexpr uint64_t kMaxBlocks = 4096;
  const uint64_t blocks = (a->count / kWidth + kThreads - 1) / kThreads;
  Fill<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, stream>>>(*a);
  return cudaGetLastError();
}

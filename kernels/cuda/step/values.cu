/* Looks for NaN and infinities. A block has a stretch of one row, which it reads 16 bytes at a time; what comes before the first
 * multiple of 16 bytes, and after the last, is left to single loads of the row's first block. The grid covers the padded rows; a
 * block of a row that does not count ends at once. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "kernels/values.h"

namespace cgr {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = CGR__VALUES_STRETCH / 16 / kThreads; /* loads of a thread that are under way together */
constexpr int64_t kStretch = CGR__VALUES_STRETCH;

struct CheckValues {
  cgr__check_values_args args;
  int32_t blocks_per_row, reserved;
};
static_assert(sizeof(CheckValues) == sizeof(cgr__check_values_args) + 2 * sizeof(int32_t), "no holes");

/* A row by bytes: [0, head) and [tail, bytes) are read element by element, the rest as vectors. */
struct Row {
  const unsigned char *data;
  int64_t head, tail, bytes;
};

__device__ __forceinline__ Row find_row(const cgr__check_values_args &a, int32_t row) {
  const int64_t size = a.dtype == CGR_DTYPE_FP32 ? 4 : 2, bytes = a.width * size;
  const unsigned char *data = static_cast<const unsigned char *>(a.data) + row * a.stride * size;
  const int64_t lead = (int64_t)(-reinterpret_cast<uintptr_t>(data) & 15), head = lead < bytes ? lead : bytes;
  return { data, head, head + (bytes - head) / 16 * 16, bytes };
}

__device__ __forceinline__ uint32_t exponent_of(const cgr__check_values_args &a) {
  return a.dtype == CGR_DTYPE_BF16 ? 0x7f80u : 0x7c00u;
}

__device__ __forceinline__ bool is_bad_word(const cgr__check_values_args &a, uint32_t word) {
  if (a.dtype == CGR_DTYPE_FP32)
    return cgr__value_is_bad32(word, a.masked);
  return cgr__value_is_bad16(word & 0xffffu, exponent_of(a), a.masked) ||
         cgr__value_is_bad16(word >> 16, exponent_of(a), a.masked);
}

__device__ __forceinline__ bool is_bad_vector(const cgr__check_values_args &a, const uint4 &v) {
  return is_bad_word(a, v.x) || is_bad_word(a, v.y) || is_bad_word(a, v.z) || is_bad_word(a, v.w);
}

/* One thread has the vectors kThreads apart from its own place on, all of them loaded before the first is looked at. */
__device__ __forceinline__ bool find_in_stretch(const cgr__check_values_args &a, const Row &row, int64_t first) {
  uint4 v[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    const int64_t at = first + ((int64_t)k * kThreads + threadIdx.x) * 16;
    v[k] = at < row.tail ? *reinterpret_cast<const uint4 *>(row.data + at) : make_uint4(0, 0, 0, 0);
  }
  bool found = false;
#pragma unroll
  for (int k = 0; k < kVectors; k++)
    found = found || is_bad_vector(a, v[k]);
  return found;
}

/* Single elements, fewer than a block has threads. */
__device__ __forceinline__ bool find_at_ends(const cgr__check_values_args &a, const Row &row) {
  const int64_t size = a.dtype == CGR_DTYPE_FP32 ? 4 : 2;
  int64_t at = (int64_t)threadIdx.x * size;
  if (at >= row.head)
    at += row.tail - row.head;
  if (at >= row.bytes)
    return false;
  if (a.dtype == CGR_DTYPE_FP32)
    return cgr__value_is_bad32(*reinterpret_cast<const uint32_t *>(row.data + at), a.masked);
  return cgr__value_is_bad16(*reinterpret_cast<const uint16_t *>(row.data + at), exponent_of(a), a.masked);
}

/* Other checks of the step may mark the same request on another branch. */
__device__ __forceinline__ void mark(const cgr__check_values_args &a, int32_t request) {
  unsigned long long *word = reinterpret_cast<unsigned long long *>(&a.flags[request]);
  const uint64_t seq = a.state->seq + 1;
  unsigned long long before = *word, seen;
  do {
    seen = before;
    before = atomicCAS(word, seen, (unsigned long long)cgr__value_word(seen, seq, a.bit));
  } while (before != seen);
}

__global__ void __launch_bounds__(kThreads) check_values_kernel(const __grid_constant__ CheckValues check) {
  const cgr__check_values_args &a = check.args;
  const int32_t number = (int32_t)blockIdx.x / check.blocks_per_row, stretch = (int32_t)blockIdx.x % check.blocks_per_row;
  const int32_t request = cgr__value_request(&a, number);
  if (request < 0)
    return;
  const Row row = find_row(a, number);
  bool found = find_in_stretch(a, row, row.head + (int64_t)stretch * kStretch);
  if (stretch == 0)
    found = found || find_at_ends(a, row);
  if (__syncthreads_or(found) && threadIdx.x == 0)
    mark(a, request);
}

bool has_dtype(int32_t dtype) { return dtype == CGR_DTYPE_FP32 || dtype == CGR_DTYPE_FP16 || dtype == CGR_DTYPE_BF16; }

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_check_values(const void *args, cudaStream_t stream) {
  cgr::CheckValues check = {};
  check.args = *static_cast<const cgr__check_values_args *>(args);
  const cgr__check_values_args &a = check.args;
  if (!cgr::has_dtype(a.dtype) || a.width < 1 || a.num_rows < 0)
    return (int)cudaErrorNotSupported;
  const int64_t per_row = (a.width * (a.dtype == CGR_DTYPE_FP32 ? 4 : 2) + cgr::kStretch - 1) / cgr::kStretch;
  if (per_row > INT32_MAX || a.num_rows * per_row > INT32_MAX)
    return (int)cudaErrorInvalidValue;
  if (a.num_rows == 0)
    return (int)cudaSuccess;
  check.blocks_per_row = (int32_t)per_row;
  return cgr::launch(cgr::check_values_kernel, &check, dim3((unsigned)(a.num_rows * per_row)), dim3(cgr::kThreads), 0, stream);
}

extern "C" int cgr__cuda_check_values_preload(void) { return cgr::preload(cgr::check_values_kernel, 0); }

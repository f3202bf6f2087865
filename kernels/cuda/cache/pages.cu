/* Pages for the self-test: noise into them, and sums of what they hold. A block per page. */
#include "kernels/cuda/launchers.h"
#include "devices/cuda/launch.cuh"
#include "kernels/pages.h"

namespace cgr {
namespace {

constexpr int kThreads = 512;

__device__ __forceinline__ int64_t count_elements(const cgr__pages_args &a) {
  return (int64_t)(a.tokens != nullptr ? a.tokens[blockIdx.x] : a.page_size) * a.num_heads * a.head_dim;
}

template <typename T> __device__ __forceinline__ T *element(const cgr__pages_args &a, int32_t page, int64_t index) {
  return static_cast<T *>(a.view.base) + cgr__pages_offset(&a, page, index);
}

__global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ cgr__pages_args a) {
  int32_t page = a.pages[blockIdx.x];
  int64_t count = count_elements(a);
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    uint32_t bits = cgr__pages_noise(&a, page, i);
    if (a.element_size == 4)
      *element<uint32_t>(a, page, i) = bits;
    else if (a.element_size == 2)
      *element<uint16_t>(a, page, i) = (uint16_t)bits;
    else
      *element<uint8_t>(a, page, i) = (uint8_t)bits;
  }
}

__global__ void __launch_bounds__(kThreads) digest_kernel(const __grid_constant__ cgr__pages_args a) {
  __shared__ unsigned long long sum;
  int32_t page = a.pages[blockIdx.x];
  unsigned long long own = 0;
  if (threadIdx.x == 0)
    sum = 0;
  __syncthreads();
  int64_t count = count_elements(a);
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    uint32_t bits = a.element_size == 4   ? *element<uint32_t>(a, page, i)
                    : a.element_size == 2 ? *element<uint16_t>(a, page, i)
                                          : *element<uint8_t>(a, page, i);
    own += cgr__pages_mix((uint64_t)i << 32 ^ bits);
  }
  atomicAdd(&sum, own);
  __syncthreads();
  if (threadIdx.x == 0)
    a.digest[blockIdx.x] = sum;
}

bool is_good(const cgr__pages_args &a) {
  return a.num_pages >= 0 && a.page_size > 0 && a.num_heads > 0 && a.head_dim > 0 &&
         (a.element_size == 1 || a.element_size == 2 || a.element_size == 4);
}

int run(void (*kernel)(cgr__pages_args), const void *args, cudaStream_t stream) {
  const cgr__pages_args *a = static_cast<const cgr__pages_args *>(args);
  if (!is_good(*a))
    return (int)cudaErrorInvalidValue;
  if (a->num_pages == 0)
    return (int)cudaSuccess;
  return launch(kernel, args, dim3((unsigned)a->num_pages), dim3(kThreads), 0, stream);
}

} // namespace
} // namespace cgr

extern "C" int cgr__cuda_fill_pages(const void *args, cudaStream_t stream) { return cgr::run(cgr::fill_kernel, args, stream); }
extern "C" int cgr__cuda_fill_pages_preload(void) { return cgr::preload(cgr::fill_kernel, 0); }
extern "C" int cgr__cuda_digest_pages(const void *args, cudaStream_t stream) {
  return cgr::run(cgr::digest_kernel, args, stream);
}
extern "C" int cgr__cuda_digest_pages_preload(void) { return cgr::preload(cgr::digest_kernel, 0); }

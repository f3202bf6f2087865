#include "tests/devices/kernels.h"

#include "devices/cuda/launch.h"

static __global__ void scale(test_scale_args args) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < args.count)
    args.words[i] = args.words[i] * args.factor + i;
}

static __global__ void reverse(test_reverse_args args) {
  extern __shared__ int turned[];
  for (int i = (int)threadIdx.x; i < args.count; i += (int)blockDim.x)
    turned[args.count - 1 - i] = args.words[i];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < args.count; i += (int)blockDim.x)
    args.words[i] = turned[i];
}

static __global__ void late(test_late_args args) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  for (long long begin = clock64(); clock64() - begin < 2000000;) {
  }
  for (int i = (int)threadIdx.x; i < args.count; i += (int)blockDim.x)
    args.words[i] = args.value;
}

static __global__ void follow(test_follow_args args) {
  const volatile int *last = args.words + args.count - 1;
  int early = *last;
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    args.seen[0] = early;
    args.seen[1] = *last;
#if defined(__CUDA_ARCH__)
    args.seen[2] = __CUDA_ARCH__;
#endif
  }
}

static int launch(const void *symbol, const void *args, uint32_t grid, size_t shared, cudaStream_t stream) {
  const uint32_t grids[3] = { grid, 1, 1 }, block[3] = { 128, 1, 1 };
  void *params[] = { const_cast<void *>(args) };
  return cgr__cuda_launch_kernel(symbol, grids, block, params, shared, stream);
}

static const void *symbol_of(void (*kernel)(test_scale_args)) { return reinterpret_cast<const void *>(kernel); }
static const void *symbol_of(void (*kernel)(test_late_args)) { return reinterpret_cast<const void *>(kernel); }
static const void *symbol_of(void (*kernel)(test_follow_args)) { return reinterpret_cast<const void *>(kernel); }
static const void *symbol_of(void (*kernel)(test_reverse_args)) { return reinterpret_cast<const void *>(kernel); }

extern "C" {

int test_scale(const void *args, cudaStream_t stream) {
  int count = static_cast<const test_scale_args *>(args)->count;
  return launch(symbol_of(scale), args, (uint32_t)(count + 127) / 128, 0, stream);
}

int test_scale_early(const void *args, cudaStream_t stream) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(static_cast<const test_scale_args *>(args)->count + 127) / 128);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return (int)cudaLaunchKernelEx(&config, scale, *static_cast<const test_scale_args *>(args));
}

int test_scale_preload(void) { return cgr__cuda_preload_kernel(symbol_of(scale), 0); }

int test_scale_nowhere(const void *args, cudaStream_t stream) { return launch(symbol_of(scale), args, 0, 0, stream); }

int test_reverse(const void *args, cudaStream_t stream) {
  size_t count = (size_t) static_cast<const test_reverse_args *>(args)->count;
  return launch(symbol_of(reverse), args, 1, count * sizeof(int), stream);
}

int test_reverse_preload(void) { return cgr__cuda_preload_kernel(symbol_of(reverse), TEST_REVERSE_MAX * sizeof(int)); }

int test_late(const void *args, cudaStream_t stream) { return launch(symbol_of(late), args, 1, 0, stream); }

int test_late_preload(void) { return cgr__cuda_preload_kernel(symbol_of(late), 0); }

int test_follow(const void *args, cudaStream_t stream) {
  const uint32_t grid[3] = { 1, 1, 1 }, block[3] = { 32, 1, 1 };
  void *params[] = { const_cast<void *>(args) };
  return cgr__cuda_launch_kernel_early(symbol_of(follow), grid, block, params, 0, stream);
}

int test_follow_preload(void) { return cgr__cuda_preload_kernel(symbol_of(follow), 0); }

int test_no_kernel(const void *args, cudaStream_t stream) { return launch(args, args, 1, 0, stream); }

} // extern "C"

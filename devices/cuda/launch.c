#include "devices/cuda/launch.h"

#include <cuda_runtime_api.h>

#include "devices/cuda/driver.h"

/* The one call of the runtime that an operation makes. The driver cannot replace it, since it does not know the symbols. It
 * leaves a pending error only for a kernel that this build has no code for, which the registry of kernels does not choose. */
static int find_function(const void *symbol, CUfunction *function) { return (int)cudaGetFuncBySymbol(function, symbol); }

int cgr__cuda_launch_kernel(const void *symbol, const uint32_t grid[3], const uint32_t block[3], void **params, size_t shared,
                            cudaStream_t stream) {
  CUfunction function = NULL;
  int raw = find_function(symbol, &function);
  if (raw != 0)
    return raw;
  if (shared > UINT32_MAX)
    return (int)CUDA_ERROR_INVALID_VALUE;
  return (int)cgr__cu.LaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], (unsigned)shared, stream,
                                   params, NULL);
}

int cgr__cuda_launch_kernel_early(const void *symbol, const uint32_t grid[3], const uint32_t block[3], void **params,
                                  size_t shared, cudaStream_t stream) {
  CUfunction function = NULL;
  int version = 0, raw = find_function(symbol, &function);
  if (raw == 0)
    raw = (int)cgr__cu.FuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, function);
  if (raw != 0)
    return raw;
  if (version < 90)
    return cgr__cuda_launch_kernel(symbol, grid, block, params, shared, stream);
  if (shared > UINT32_MAX)
    return (int)CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute early = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                              .value = { .programmaticStreamSerializationAllowed = 1 } };
  const CUlaunchConfig config = { .gridDimX = grid[0],
                                  .gridDimY = grid[1],
                                  .gridDimZ = grid[2],
                                  .blockDimX = block[0],
                                  .blockDimY = block[1],
                                  .blockDimZ = block[2],
                                  .sharedMemBytes = (unsigned)shared,
                                  .hStream = stream,
                                  .attrs = &early,
                                  .numAttrs = 1 };
  return (int)cgr__cu.LaunchKernelEx(&config, function, params, NULL);
}

int cgr__cuda_preload_kernel(const void *symbol, size_t shared) {
  CUfunction function = NULL;
  int raw = find_function(symbol, &function);
  if (raw == 0)
    raw = (int)cgr__cu.FuncLoad(function);
  if (raw != 0 || shared == 0)
    return raw;
  if (shared > INT32_MAX)
    return (int)CUDA_ERROR_INVALID_VALUE;
  return (int)cgr__cu.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
}

void cgr__cuda_prefer_shared_memory(const void *symbol) {
  CUfunction function = NULL;
  if (find_function(symbol, &function) == 0)
    (void)cgr__cu.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                   CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

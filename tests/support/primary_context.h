// Whether a GPU has a primary context, which opening a device creates and closing it releases.
#pragma once

#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

extern "C" {
#include "devices/cuda/driver.h"
}

namespace cgr_test {

// Asking does not create one.
inline bool HasContext(int ordinal) {
  enum cudaDriverEntryPointQueryResult result;
  void *function = nullptr;
#if CUDART_VERSION >= 12050
  cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12040, cudaEnableDefault, &result);
#else
  cudaError_t error = cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &function, cudaEnableDefault, &result);
#endif
  EXPECT_EQ(error, cudaSuccess);
  if (function == nullptr)
    return false;
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(reinterpret_cast<PFN_cuDevicePrimaryCtxGetState_v7000>(function)(ordinal, &flags, &active), CUDA_SUCCESS);
  return active != 0;
}

} // namespace cgr_test

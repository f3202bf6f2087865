// The kernels of the larger example as C++: a grid is a loop over its blocks and threads. Before the files of kernels.
#pragma once

namespace {
struct Place {
  unsigned x;
} blockIdx, threadIdx;
template <class Args> void LaunchAsLoop(void (*kernel)(Args), int blocks, int threads, const Args &args) {
  for (blockIdx.x = 0; blockIdx.x < static_cast<unsigned>(blocks); blockIdx.x++)
    for (threadIdx.x = 0; threadIdx.x < static_cast<unsigned>(threads); threadIdx.x++)
      kernel(args);
}
int cudaGetLastError() { return 0; }
} // namespace
#define __global__
#define LLAMA_LAUNCH(kernel, blocks, threads, args, stream) \
  (static_cast<void>(stream), LaunchAsLoop(kernel, blocks, threads, args))

// Devices and layers for queries to the registry of kernel kinds.
#pragma once

#include <cstdint>

#include "cgr/attention.h"

namespace cgr_test {

inline cgr_device_info HostInfo() {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  info.kind = CGR_DEVICE_KIND_HOST;
  info.num_multiprocessors = 8;
  return info;
}

// An H200, except for what is given. `max_capability`: as in cgr_device_config.
inline cgr_device_info CudaInfo(int32_t capability, int32_t max_capability = 0, int32_t multiprocessors = 132,
                                int32_t shared_memory = 233472) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  info.kind = CGR_DEVICE_KIND_CUDA;
  info.compute_capability = capability;
  info.kernel_capability = max_capability != 0 && max_capability < capability ? max_capability : capability;
  info.num_multiprocessors = multiprocessors;
  info.shared_memory = shared_memory;
  return info;
}

inline void SetDtype(cgr_layer *layer, int32_t dtype) {
  layer->dtype = layer->out_dtype = layer->k.dtype = layer->v.dtype = dtype;
}

// A layer that every device supports, as the reader of configurations leaves it, with defaults filled in.
inline cgr_layer PlainLayer() {
  cgr_layer layer = CGR_LAYER_INIT;
  layer.num_q_heads = 8;
  layer.num_kv_heads = 2;
  layer.head_dim = layer.head_dim_v = 64;
  layer.scale = 0.125f;
  SetDtype(&layer, CGR_DTYPE_BF16);
  return layer;
}

} // namespace cgr_test

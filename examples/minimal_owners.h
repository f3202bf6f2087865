// What minimal.cc wraps around cgr's handles: owners that destroy them, and an exception for a failed call. C++11.
#ifndef MINIMAL_OWNERS_H
#define MINIMAL_OWNERS_H

#include <cgr/cgr.h>

#include <memory>
#include <stdexcept>

#include "minimal_model.h"

inline void Check(cgr_status status) {
  if (status != CGR_OK)
    throw std::runtime_error(cgr_last_message());
}

// Destroys a handle. Streams and memory are destroyed through their device, which has to outlive them.
struct Ender {
  cgr_device *device;
  void operator()(cgr_device *it) const { cgr_device_close(it); }
  void operator()(cgr_runtime *it) const { cgr_runtime_destroy(it); }
  void operator()(CUstream_st *it) const { cgr_stream_destroy(device, it); }
  void operator()(char *it) const { cgr_memory_free(device, it); }
};
using Device = std::unique_ptr<cgr_device, Ender>;
using Runtime = std::unique_ptr<cgr_runtime, Ender>;
using Stream = std::unique_ptr<CUstream_st, Ender>;
using Memory = std::unique_ptr<char, Ender>;

inline Device OpenDevice(const char *name) {
  cgr_device *device = nullptr;
  Check(cgr_device_open(name, nullptr, &device));
  return Device(device, Ender{ device });
}

inline Stream MakeStream(cgr_device *device) {
  cudaStream_t stream = nullptr;
  Check(cgr_stream_create(device, &stream));
  return Stream(stream, Ender{ device });
}

// Device memory, zeroed once the stream has got that far.
inline Memory MakeZeros(cgr_device *device, size_t bytes, cudaStream_t stream) {
  void *memory = nullptr;
  Check(cgr_memory_alloc(device, bytes, &memory));
  Memory owned(static_cast<char *>(memory), Ender{ device });
  Check(cgr_fill(device, memory, 0, bytes, stream));
  return owned;
}

inline Runtime MakeRuntime(const cgr_config &config) {
  cgr_runtime *runtime = nullptr;
  Check(cgr_runtime_create(&config, &runtime));
  return Runtime(runtime, Ender{ nullptr });
}

// minimal_create fills it.
struct Model : minimal_model {
  Model() : minimal_model() {}
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;
  ~Model() {
    if (device)
      minimal_destroy(this);
  }
};

#endif

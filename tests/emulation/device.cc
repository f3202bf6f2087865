#include "tests/emulation/device.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/append.h"
#include "tests/emulation/grid.h"
#include "tests/support/devices.h"

// X(name) for each emulated kernel.
#define EMULATED(X)       \
  X(append)               \
  X(attention)            \
  X(block_table)          \
  X(check_values)         \
  X(compare_fingerprints) \
  X(fingerprint)          \
  X(on_demand)            \
  X(digest_pages)         \
  X(epilogue)             \
  X(fetch)                \
  X(fill_pages)           \
  X(gather)               \
  X(measure)              \
  X(merge)                \
  X(planner)              \
  X(prologue)             \
  X(staged)               \
  X(stamp)                \
  X(transform)

extern "C" {
#define DECLARE(name) int cgr__emulated_##name(const void *args, cudaStream_t stream);
EMULATED(DECLARE)
#undef DECLARE
}

namespace cgr_emulation {
namespace {

// Called on whatever thread executes the stream.
template <int (*kLauncher)(const void *, cudaStream_t)> void Execute(const void *args) {
  int error = kLauncher(args, nullptr);
  if (error != kLaunched) {
    ADD_FAILURE() << "an emulated kernel failed with " << error << ": " << TakeFailure();
  }
}

// Addresses, and the bytes that were there.
using Bytes = std::vector<std::pair<void *, std::vector<unsigned char>>>;

void Put(const Bytes &found) {
  for (const auto &[to, bytes] : found)
    std::memcpy(to, bytes.data(), bytes.size());
}

// What an append writes.
Bytes Written(const cgr__append_args &args) {
  Bytes found;
  for (const auto &[cache, width] : { std::pair(args.k_cache, args.head_dim), std::pair(args.v_cache, args.head_dim_v) }) {
    const int64_t size = int64_t(cgr_dtype_size(cgr_dtype(cache.dtype)));
    for (int32_t t = 0; t < args.num_tokens; t++) {
      const int64_t slot = args.slot_mapping[t], page = slot / args.page_size, offset = slot % args.page_size;
      for (int32_t h = 0; slot >= 0 && page < args.num_pages && h < args.num_kv_heads; h++) {
        const int64_t at = page * cache.stride_page + offset * cache.stride_token + h * cache.stride_head;
        unsigned char *from = static_cast<unsigned char *>(cache.base) + at * size;
        found.push_back({ from, { from, from + width * size } });
      }
    }
  }
  return found;
}

std::atomic<bool> appends_overlap{ false };
std::atomic<int32_t> shared_memory{ kSharedMemory };

void Append(const void *pointer) {
  const cgr__append_args args = *static_cast<const cgr__append_args *>(pointer);
  if (!appends_overlap || args.attention_follows == 0)
    return Execute<cgr__emulated_append>(pointer);
  const Bytes before = Written(args);
  Execute<cgr__emulated_append>(pointer);
  const Bytes after = Written(args);
  SetPrevious({ [after] { Put(after); }, [before] { Put(before); } });
}

struct Emulated {
  const char *name;
  void (*execute)(const void *args);
};
constexpr Emulated kEmulated[] = {
#define ROW(name) { #name, Execute<cgr__emulated_##name> },
  EMULATED(ROW)
#undef ROW
};

cgr__kernel InPlaceOf(const cgr__kernel &kernel) {
  cgr__kernel other = kernel;
  for (const Emulated &one : kEmulated)
    if (std::strcmp(one.name, kernel.name) == 0)
      other.host = one.execute;
  if (std::strcmp(kernel.name, "append") == 0)
    other.host = Append;
  return other;
}

const cgr__device_ops *HostOps() {
  static const cgr__device_ops *ops = [] {
    const cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
    cgr_device *dev = nullptr;
    if (cgr__host_device_open(&config, &dev) != CGR__DEVICE_OK)
      return static_cast<const cgr__device_ops *>(nullptr);
    const cgr__device_ops *found = dev->ops;
    found->close(dev);
    return found;
  }();
  return ops;
}

int LaunchKernel(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  const cgr__kernel other = InPlaceOf(*kernel);
  return HostOps()->launch(dev, &other, args, stream);
}

int Preload(cgr_device *dev, const cgr__kernel *kernel) {
  const cgr__kernel other = InPlaceOf(*kernel);
  return HostOps()->preload(dev, &other);
}

int Info(cgr_device *dev, cgr_device_info *info) {
  int error = HostOps()->info(dev, info);
  info->kind = CGR_DEVICE_KIND_CUDA;
  info->compute_capability = info->kernel_capability = 80;
  info->num_multiprocessors = 4; /* few: each part is a block of many fibers */
  info->shared_memory = shared_memory;
  std::snprintf(info->name, sizeof info->name, "emulated");
  return error;
}

int OpenLayer(cgr_device *inner, const cgr_device_config *, cgr_device **dev) {
  static const cgr__device_ops ops = [] {
    cgr__device_ops made = *HostOps();
    made.launch = LaunchKernel;
    made.preload = Preload;
    made.info = Info;
    return made;
  }();
  if (inner->ops != HostOps())
    return CGR__DEVICE_UNSUPPORTED;
  inner->ops = &ops;
  *dev = inner;
  return CGR__DEVICE_OK;
}

} // namespace

const cgr_device_layer kLayer = { OpenLayer };

void SetAppendsOverlap(bool overlap) { appends_overlap = overlap; }
void SetSharedMemory(int32_t bytes) { shared_memory = bytes; }

// A test that links this has the device, except under the thread sanitizer, which does not know about fibers.
#if !defined(__SANITIZE_THREAD__)
const bool kIsThere = [] {
  cgr_test::EmulationLayer() = &kLayer;
  return true;
}();
#endif

} // namespace cgr_emulation

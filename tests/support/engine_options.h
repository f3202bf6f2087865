// Options of a test's engine.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "tests/support/devices.h"
#include "tests/support/oracle.h"

namespace cgr_test {

// Where a step's q, k and v come from.
enum class Feed {
  kTokens,  // host functions compute them from (token, position), and a sampler picks the next token: the host device alone
  kUploads, // copied before each step; the next token of request i is kFixedToken + i. Every device
  kCopies,  // the same, to other memory, from which the step itself copies them
  kNodes    // host nodes in the step itself make them and keep the outputs, so that steps can follow one another unchecked
};

enum { kFixedToken = 1000, kMaxLayers = 8, kMaxCalls = 16, kMaxSets = 4, kMaxGroups = 4 };

// Where the caches of all layers are in one allocation.
enum class KvLayout {
  kNhd,          // [K, V][layers][pages][tokens][heads]
  kHnd,          // [K, V][layers][pages][heads][tokens]
  kKvPages,      // [layers][K, V][pages][tokens][heads]
  kPairs,        // [layers][pages][K, V][tokens][heads]
  kLayersInPage, // [pages][layers][K, V][tokens][heads]
  kLayersInPageHnd,
  kHeadsInToken // [pages][tokens][layers][K, V][heads]
};

struct LayerOptions {
  int32_t num_q_heads = 2, num_kv_heads = 1, head_dim = 8;
  int32_t kv_source = 0;       // as in cgr_layer
  int32_t same_inputs_as = -1; // a layer whose q, k and v it shares; -1: its own
  float scale = 0.0f;
  int32_t dtype = 0; // 0: the engine's
  AttentionKind kind = {};
  int32_t group = 0;
  int32_t length_set = 0; // 0: as the kind says
  bool attends = false;   // of a set after 0, with a cache: in the steps of that set, too, which otherwise only append
  bool hnd = false;       // with KvLayout::kNhd: [heads][tokens] in its pages

  int32_t head_dim_v() const { return kind.head_dim_v != 0 ? kind.head_dim_v : head_dim; }
  bool HasCache() const { return kind.keys != Keys::kStep; }
  bool HasOwnCache() const { return HasCache() && kv_source == 0; }
  int32_t SetOf() const { return length_set != 0 ? length_set : kind.keys == Keys::kOther ? 1 : 0; }
};

// Layers that share a page table.
struct GroupOptions {
  int32_t page_size = 16, num_pages = 128;
  int32_t read_trash = 0, write_trash = 1;
  int32_t length_set = 0;
  bool engine_table = false; // the engine's own page table
};

struct CallOptions {
  int32_t layer;
  uint32_t flags;
};

struct EngineOptions {
  EngineOptions();
  EngineOptions(const EngineOptions &);
  EngineOptions(EngineOptions &&) noexcept;
  EngineOptions &operator=(const EngineOptions &);
  EngineOptions &operator=(EngineOptions &&) noexcept;
  ~EngineOptions();

  DeviceParam device = HostParam(CGR_SCHEDULE_ASYNC);
  cgr_device *handle = nullptr; // an open device instead, which the engine closes
  bool validation = true;       // the validation layer below a host device that the engine opens
  Feed feed = Feed::kTokens;
  int32_t dtype = CGR_DTYPE_FP32;
  std::vector<LayerOptions> layers = { {}, {} };
  std::vector<CallOptions> calls; // empty: every layer once
  KvLayout layout = KvLayout::kNhd;
  // The order of the dimensions of one tensor for all layers instead, from the outermost: l(ayer), k(v), b(lock), t(oken),
  // h(ead). All layers' caches then have one shape, and pages have no gaps.
  std::string kv_order;
  int32_t page_gap = 0;     // bytes between pages, a multiple of 16
  int32_t token_gap = 0;    // elements between tokens of q, k, v and out, a multiple of 8
  bool heads_first = false; // q, k, v and out are [heads][tokens]
  bool in_place = false;    // out is q
  bool lse = true;
  int32_t lse_gap = 3;
  bool engine_table = false;
  int32_t page_size = 16, num_pages = 128;
  std::vector<GroupOptions> groups; // empty: one with these three, if any layer has a cache
  int32_t num_sets = 1;             // length sets; steps of variant s are those of set s
  bool samples = true;              // steps write next tokens
  size_t pinned_bytes = 0;          // of memory for the rings, which a test can look into; 0: the runtime's own
  uint64_t seed = 0;                // of the order in which pages are taken, and of the values of uploads
  int32_t max_requests = 8, max_rows = 16, max_tokens = 64, max_seq_len = 160;
  int32_t mode = CGR_MODE_FULL_DECODE_ONLY;
  std::vector<int32_t> buckets = { 1, 2, 4, 8 };             // empty: the default ones
  std::vector<cgr_bucket> mixed;                             // the same
  double unowned = std::numeric_limits<double>::quiet_NaN(); // what unwritten pages hold
  std::function<void(cgr_config *)> adjust;                  // last word on the configuration
};

// The defaults for a device: what it supports.
inline EngineOptions OptionsFor(const DeviceParam &device, int32_t mode = CGR_MODE_FULL_DECODE_ONLY,
                                const std::vector<cgr_bucket> &mixed = {},
                                const std::function<void(cgr_config *)> &adjust = nullptr) {
  EngineOptions options;
  options.mode = mode;
  options.mixed = mixed;
  options.adjust = adjust;
  options.device = device;
  if (device.HasCudaKernels()) {
    options.feed = Feed::kUploads;
    options.dtype = CGR_DTYPE_BF16;
    for (LayerOptions &layer : options.layers)
      layer.head_dim = 64;
  }
  return options;
}

inline EngineOptions OptionsFor(const DeviceParam &device, const std::function<void(cgr_config *)> &adjust) {
  return OptionsFor(device, CGR_MODE_FULL_DECODE_ONLY, {}, adjust);
}

// For tests of attention: what a GPU's kernels support, on every device.
inline EngineOptions AttentionOptionsFor(const DeviceParam &device, const std::vector<LayerOptions> &layers = { { 4, 2 } }) {
  EngineOptions options;
  options.device = device;
  options.feed = Feed::kUploads;
  options.dtype = CGR_DTYPE_BF16;
  options.layers = layers;
  for (LayerOptions &layer : options.layers)
    layer.head_dim = 64;
  options.token_gap = 8;
  options.num_pages = 140;
  options.max_rows = 24;
  options.max_seq_len = 96;
  return options;
}

} // namespace cgr_test

// Engines with two groups of layers, each with its own page table, page size, pool and trash pages.
#pragma once

#include <cstring>

#include "tests/support/engine.h"

namespace cgr_test {
namespace groups {

enum { kMaxRequests = 8, kMaxRows = 10, kMaxTokens = 224, kMaxSeqLen = 160 };

const std::vector<GroupOptions> kGroups = { { 16, 96, 0, 1 }, { 64, 37, 5, 2 } };

inline LayerOptions Layer(int32_t group, int32_t q_heads, int32_t kv_heads, int32_t dim, int32_t dtype, int32_t window = 0,
                          int32_t chunk = 0) {
  LayerOptions layer = { q_heads, kv_heads, dim };
  layer.group = group;
  layer.dtype = dtype;
  layer.kind.window_left = window;
  layer.kind.chunk = chunk;
  return layer;
}

// Narrow heads where no kernel of CUDA asks for a width.
inline std::vector<LayerOptions> LayersFor(const DeviceParam &device) {
  const int32_t fp32 = device.HasCudaKernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32;
  const int32_t narrow = device.HasCudaKernels() ? 64 : 16, wide = 2 * narrow;
  return { Layer(0, 2, 2, narrow, CGR_DTYPE_BF16),
           Layer(1, 8, 2, wide, CGR_DTYPE_BF16),
           Layer(1, 5, 1, narrow, fp32),
           Layer(0, 16, 1, wide, CGR_DTYPE_BF16),
           Layer(0, 8, 2, narrow, CGR_DTYPE_FP16),
           Layer(1, 2, 2, wide, CGR_DTYPE_FP16),
           Layer(1, 16, 1, narrow, CGR_DTYPE_BF16),
           Layer(0, 5, 1, wide, fp32) };
}

inline EngineOptions OptionsFor(const DeviceParam &device, cgr_graph_mode mode, uint64_t seed,
                                const std::vector<LayerOptions> &layers) {
  EngineOptions o;
  o.device = device;
  o.mode = mode;
  o.seed = seed;
  o.feed = Feed::kCopies;
  o.dtype = CGR_DTYPE_BF16;
  o.groups = kGroups;
  o.layers = layers;
  for (size_t l = 1; l < layers.size(); l += 3)
    o.layers[l].hnd = true;
  o.lse_gap = 0;
  o.max_requests = kMaxRequests;
  o.max_rows = kMaxRows;
  o.max_tokens = kMaxTokens;
  o.max_seq_len = kMaxSeqLen;
  return o;
}

// Both have the same bits in the first `tokens` tokens of the last step.
inline void ExpectSameBits(Engine &got, Engine &expected, int32_t tokens) {
  for (int32_t c = 0; c < got.state.num_calls; c++) {
    ASSERT_EQ(got.Out(c, tokens), expected.Out(c, tokens)) << "out of layer " << c;
    const std::vector<float> lse = got.Lse(c, tokens), other = expected.Lse(c, tokens);
    ASSERT_EQ(std::memcmp(lse.data(), other.data(), lse.size() * sizeof lse[0]), 0) << "lse of layer " << c;
  }
}

// The planned buffers of each group in the last step.
inline void ExpectBuffers(Engine &engine) {
  for (size_t g = 0; g < engine.o.groups.size(); g++) {
    SCOPED_TRACE("group " + std::to_string(g));
    const std::vector<int64_t> slots = engine.Buffer(CGR_BUFFER_SLOT_MAPPING, int32_t(g));
    const std::vector<int64_t> indptr = engine.Buffer(CGR_BUFFER_KV_INDPTR, int32_t(g));
    const std::vector<int64_t> last = engine.Buffer(CGR_BUFFER_KV_LAST_PAGE_LEN, int32_t(g));
    const int32_t size = engine.o.groups[g].page_size;
    size_t at = 0, i = 0;
    int64_t num_pages = 0;
    for (const InFlight::Taken &taken : engine.last->items) {
      const int32_t end = taken.start + int32_t(taken.item.tokens.size());
      for (int32_t t = taken.start; t < end; t++, at++)
        ASSERT_EQ(slots[at], int64_t(taken.pages[g][size_t(t / size)]) * size + t % size) << "token " << at;
      num_pages += (end + size - 1) / size;
      ASSERT_EQ(indptr[i + 1], num_pages) << "request " << i;
      ASSERT_EQ(last[i], end > 0 ? (end - 1) % size + 1 : 1) << "request " << i;
      i++;
    }
  }
}

} // namespace groups
} // namespace cgr_test

// The paged layouts of vLLM's FlashAttention backend and of FlashInfer, by name: views describe each, append puts K and V where
// the tensor of that name holds them, and attention reads them there.
#include <cstring>
#include <map>

#include "tests/support/engine_case.h"

namespace cgr_test {
namespace {

struct NamedLayout {
  const char *name, *order; // of the dimensions before the head dim
};
const NamedLayout kLayouts[] = {
  { "FlashAttention NHD [2, blocks, block_size, kv_heads, head_size]", "lkbth" },
  { "FlashAttention HND [2, blocks, kv_heads, block_size, head_size]", "lkbht" },
  { "FlashAttention NHD with layers (blocks, layers, 2, block_size, heads, dim)", "blkth" },
  { "FlashAttention HND with layers (blocks, heads, layers, 2, block_size, dim)", "bhlkt" },
  { "FlashInfer NHD [blocks, 2, block_size, heads, dim]", "lbkth" },
  { "FlashInfer HND [blocks, 2, heads, block_size, dim]", "lbkht" },
  { "FlashInfer NHD with layers (blocks, layers, 2, block_size, heads, dim)", "blkth" },
  { "FlashInfer HND with layers (blocks, heads, layers, 2, block_size, dim)", "bhlkt" },
};

class KvLayouts : public OverDevices {
protected:
  EngineOptions Options(const NamedLayout &layout) const {
    EngineOptions o = AttentionOptionsFor(GetParam(), { { 6, 3 }, { 3, 3 }, { 6, 3 } });
    o.kv_order = layout.order, o.mode = CGR_MODE_FULL;
    return o;
  }
  // The index of an element in the tensor, in row-major order of its dimensions as the name lists them.
  static size_t IndexOf(const std::string &order, const std::map<char, size_t> &extents, const std::map<char, size_t> &at) {
    size_t index = 0;
    for (char dimension : order)
      index = index * extents.at(dimension) + at.at(dimension);
    return index;
  }
  // Every K and V of the requests is in the tensor where its name says.
  static void ExpectPlaces(Engine &engine, const std::string &order) {
    const EngineOptions &o = engine.o;
    const std::vector<unsigned char> all = engine.ReadCaches();
    const size_t first = size_t(static_cast<const unsigned char *>(engine.caches.View(0, kK).base) -
                                static_cast<const unsigned char *>(engine.caches.memory()));
    const size_t heads = size_t(o.layers[0].num_kv_heads), dim = size_t(o.layers[0].head_dim);
    const std::map<char, size_t> extents = {
      { 'l', o.layers.size() }, { 'k', 2 }, { 'b', size_t(o.num_pages) }, { 't', size_t(o.page_size) }, { 'h', heads }
    };
    std::vector<unsigned char> expected(dim * 2);
    size_t compared = 0;
    for (const auto &[row, request] : engine.requests)
      for (size_t t = 0; t < request->cache.size(); t++)
        for (size_t l = 0; l < o.layers.size(); l++)
          for (Tensor which : { kK, kV })
            for (size_t h = 0; h < heads; h++, compared++) {
              const size_t page = size_t(request->pages[t / size_t(o.page_size)]), token = t % size_t(o.page_size);
              const size_t index =
                  IndexOf(order, extents, { { 'l', l }, { 'k', size_t(which - kK) }, { 'b', page }, { 't', token }, { 'h', h } });
              StoreHead(o.dtype, int32_t(l), which, request->cache[t], int32_t(h), int32_t(dim), expected.data());
              ASSERT_EQ(std::memcmp(&all[first + index * expected.size()], expected.data(), expected.size()), 0)
                  << "row " << row << " token " << t << " layer " << l << " head " << h;
            }
    EXPECT_GT(compared, 1000u);
  }
};

// Chunks and decodes, in graphs and, after them, eagerly; outputs are checked against fp64 by the engine.
TEST_P(KvLayouts, AreDescribedByViews) {
  for (const NamedLayout &layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    Engine engine(Options(layout));
    ASSERT_NE(engine.rt, nullptr);
    CGR_EXPECT_OK(engine.Capture());
    const int32_t a = engine.Start(37), b = engine.Start(16, 3), c = engine.Start(1, 5);
    for (int32_t i = 0; i < 4; i++)
      engine.Step(engine.Decode({ a, b, c }));
    engine.Step(engine.Chunks({ { b, 9 }, { a, 1 }, { c, 20 } }));
    ExpectPlaces(engine, layout.order);
    ASSERT_FALSE(HasFailure());
  }
}

// The views that the helpers make are those of the names.
TEST_P(KvLayouts, AreMadeByTheHelpers) {
  for (const NamedLayout &layout : kLayouts) {
    const std::string order = layout.order;
    if (order[0] != 'l')
      continue; // layers in a page are values of strides alone
    SCOPED_TRACE(layout.name);
    Engine engine(Options(layout));
    const LayerOptions &l = engine.o.layers[1];
    const cgr_kv_layout inner = order.substr(3) == "th" ? CGR_LAYOUT_NHD : CGR_LAYOUT_HND;
    cgr_kv_view k = engine.caches.View(1, kK), v = engine.caches.View(1, kV), made[2] = {};
    if (order[1] == 'b') {
      CGR_EXPECT_OK(cgr_kv_view_make_pair(inner, k.base, cgr_dtype(l.dtype == 0 ? engine.o.dtype : l.dtype), engine.o.page_size,
                                          l.num_kv_heads, l.head_dim, &made[0], &made[1]));
    } else {
      for (int i : { 0, 1 })
        CGR_EXPECT_OK(cgr_kv_view_make(inner, i == 0 ? k.base : v.base, cgr_dtype(engine.o.dtype), engine.o.page_size,
                                       l.num_kv_heads, l.head_dim, &made[i]));
    }
    for (int i : { 0, 1 }) {
      const cgr_kv_view &own = i == 0 ? k : v;
      EXPECT_EQ(made[i].base, own.base);
      EXPECT_EQ(made[i].stride_page, own.stride_page);
      EXPECT_EQ(made[i].stride_token, own.stride_token);
      EXPECT_EQ(made[i].stride_head, own.stride_head);
    }
  }
}

// The same bits wherever the pages are.
TEST_P(KvLayouts, GiveTheSameBits) {
  std::vector<unsigned char> first;
  for (const NamedLayout &layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    Captured<Engine> engine(Options(layout));
    const int32_t a = engine.Start(50), b = engine.Start(23, 3);
    engine.Step(engine.Chunks({ { a, 3 }, { b, 1 } }));
    std::vector<unsigned char> bits;
    for (int32_t c = 0; c < engine.state.num_calls; c++) {
      const std::vector<unsigned char> out = engine.Out(c, 4);
      bits.insert(bits.end(), out.begin(), out.end());
    }
    first = first.empty() ? bits : first;
    EXPECT_TRUE(bits == first);
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(KvLayouts);

} // namespace
} // namespace cgr_test

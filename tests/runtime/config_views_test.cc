// Where K and V of the layers are: addresses and strides that must be refused, and views that share memory. For small random
// caches, a brute-force comparison of all elements determines which views do.
#include <set>

#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Good = GoodConfig;

class ConfigViews : public ConfigTest {
protected:
  static Found Bad(int32_t layer, const char *view, const Words &words) {
    return FindInLayer(layer, CGR_ERROR_INVALID_ARGUMENT, view, words);
  }
  // A finding about two views over the same memory belongs to no single layer.
  static Found Overlap(int32_t layer, const char *view, const std::string &other) {
    return Find(CGR_ERROR_INVALID_ARGUMENT, "layers[" + std::to_string(layer) + "]." + view, { "overlaps " + other });
  }
  void RefusedOverlap(const Change &change, int32_t layer, const char *view, const std::string &other) {
    Found want = Overlap(layer, view, other);
    want.layer = layer;
    Refused(change, { want });
  }
};

// -------------------------------------------------------------------------------------------------- addresses and strides

TEST_P(ConfigViews, BasesAreAddressesAlignedTo16) {
  for (int32_t layer : { 0, 1 })
    for (const char *name : { "k", "v" }) {
      auto view = [&](Good &c) -> cgr_kv_view & { return name[0] == 'k' ? c.layers[layer].k : c.layers[layer].v; };
      Refused([&](Good &c) { view(c).base = nullptr; },
              { FindInLayer(layer, CGR_ERROR_NULL_POINTER, name, { "base NULL", "address" }) });
      for (int offset : { 1, 2, 8, 15 })
        Refused([&](Good &c) { view(c).base = static_cast<char *>(view(c).base) + offset; },
                { Bad(layer, name, { "base 0x", "multiple of 16" }) });
      Accepted([&](Good &c) { view(c).base = static_cast<char *>(view(c).base) + 16; });
    }
}

TEST_P(ConfigViews, StridesArePositiveMultiplesOf16Bytes) {
  for (auto member : { &cgr_kv_view::stride_page, &cgr_kv_view::stride_token, &cgr_kv_view::stride_head })
    for (int64_t bad :
         { int64_t(0), int64_t(-8), int64_t(1), int64_t(4100), int64_t(4092), (int64_t(1) << 31) + 8, INT64_MAX, INT64_MIN }) {
      SCOPED_TRACE(bad);
      Refused([&](Good &c) { c.layers[1].k.*member = bad; },
              { Bad(1, "k", { std::to_string(bad), "16 bytes", "2^31 elements" }) });
    }
  // The largest stride, of a view that is not in the way of others.
  Accepted([](Good &c) {
    c.layers[1].v.base = Good::Address(100);
    c.layers[1].v.stride_page = int64_t(1) << 31;
  });
}

// With the largest numbers a view has more bytes than 64 bits can count.
TEST_P(ConfigViews, LieWithinTheAddressSpace) {
  auto set = [](Good &c, int64_t pages) {
    c.groups[0].num_pages = pages;
    c.config.num_layers = 1;
    c.layers[0].v.base = reinterpret_cast<void *>(uintptr_t(0x10000000 + 4096)); // the other one's gaps
    c.layers[0].k.stride_page = c.layers[0].v.stride_page = int64_t(1) << 31;
  };
  Accepted([&](Good &c) { set(c, 1 << 24); }); // 2^55 x 2 bytes
  for (int64_t pages : { int64_t(1 << 24) + 2, int64_t(1) << 30, int64_t(INT32_MAX) })
    Refused([&](Good &c) { set(c, pages); }, { Bad(0, "k", { "2^56 bytes", std::to_string(pages) + " pages" }),
                                               Bad(0, "v", { "2^56 bytes", std::to_string(pages) + " pages" }) });
  for (uintptr_t base : { uintptr_t(INT64_MAX) - 15, uintptr_t(INT64_MAX) - 0x1ffff })
    Refused([&](Good &c) { c.layers[1].k.base = reinterpret_cast<void *>(base); }, { Bad(1, "k", { "2^56 bytes of memory" }) });
}

TEST_P(ConfigViews, ReservedFieldsAreRefused) {
  Refused([](Good &c) { c.layers[0].k.reserved = 1; },
          { FindInLayer(0, CGR_ERROR_NEWER_STRUCT, "k.reserved", { "is 1", "expected 0" }) });
  Refused([](Good &c) { c.layers[1].v.reserved = -1; },
          { FindInLayer(1, CGR_ERROR_NEWER_STRUCT, "v.reserved", { "is -1", "expected 0" }) });
}

// ------------------------------------------------------------------------------------------------------ within one view

TEST_P(ConfigViews, ElementsOfOneViewAreApart) {
  auto refused = [&](const Change &change) { Refused(change, { Bad(0, "k", { "overlap", "16 tokens of 2 heads of 64" }) }); };
  // Two heads of 64: a token has 128, a page 2048 elements.
  refused([](Good &c) { c.layers[0].k.stride_head = 56; });
  refused([](Good &c) { c.layers[0].k.stride_head = 72; });
  refused([](Good &c) { c.layers[0].k.stride_token = 120; });
  refused([](Good &c) { c.layers[0].k.stride_page = 2040; });
  refused([](Good &c) { c.layers[0].k.stride_page = 8; });
  refused([](Good &c) { c.layers[0].k.stride_token = c.layers[0].k.stride_page; });
  refused([](Good &c) { c.layers[0].k.stride_head = c.layers[0].k.stride_token; });
}

// A single head has no other one to keep away from.
TEST_P(ConfigViews, StrideOfASingleHeadMeansNothing) {
  Accepted([](Good &c) {
    c.layers[0].num_kv_heads = c.layers[2].num_kv_heads = 1;
    c.layers[0].k.stride_head = 8;
    c.layers[0].v.stride_head = int64_t(1) << 20;
  });
}

// ------------------------------------------------------------------------------------------------------------- two views

TEST_P(ConfigViews, KAndVOfALayerAreApart) {
  Found told = Overlap(
      0, "v", "layers[0].k, taking 262144 bytes with num_pages 64, expected memory of its own (or with CGR_BACKEND_APPENDS");
  told.layer = 0;
  Refused([](Good &c) { c.layers[0].v.base = c.layers[0].k.base; }, { told });
  RefusedOverlap([](Good &c) { c.layers[1].k.base = c.layers[1].v.base; }, 1, "v", "layers[1].k");
}

// A view is 64 pages of 2048 elements of 2 bytes: one piece of 16 bytes is enough.
cgr_graph_support Always(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
cgr_status RecordNothing(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }

// As in MLA, v is a part of k: allowed only with a backend that writes both itself, and only within a layer.
TEST_P(ConfigViews, OneMayLieInTheOtherWhereABackendAppends) {
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "mla";
  backend.support = Always;
  backend.record = RecordNothing;
  const auto inside = [&](uint32_t flags) {
    return [&backend, flags](Good &c) {
      backend.flags = flags;
      c.config.backends = &backend;
      c.config.num_backends = 1;
      c.layers[1].backend = 1;
      c.layers[1].v.base = c.layers[1].k.base;
    };
  };
  Accepted(inside(CGR_BACKEND_APPENDS));
  RefusedOverlap(inside(CGR_BACKEND_PLANS_FIRST), 1, "v", "layers[1].k");
  // A narrower v may be anywhere within the run of k, or vice versa. Half outside it, shifted, or with other strides or another
  // dtype, the two have elements in common that are of different pages, tokens or heads, or no elements in common at all.
  enum { kRun = Good::kDim, kToken = 2 * kRun, kPage = 16 * kToken }; // elements of k
  const auto part = [&](int64_t offset, std::function<void(cgr_layer &)> more = nullptr) {
    return [=](Good &c) {
      inside(CGR_BACKEND_APPENDS)(c);
      cgr_layer &l = c.layers[1];
      l.head_dim_v = kRun / 2;
      l.v = l.k;
      l.v.base = static_cast<char *>(l.k.base) + 2 * offset;
      if (more)
        more(l);
    };
  };
  for (int64_t offset : { 0, 8, kRun / 2 })
    Accepted(part(offset));
  Accepted(part(0, [](cgr_layer &l) { // k inside of v
    l.head_dim_v = kRun;
    l.head_dim = kRun / 2;
    l.k.base = static_cast<char *>(l.v.base) + 2 * (kRun / 2);
  }));
  for (int64_t offset : { int64_t(-8), int64_t(kRun / 2 + 8), int64_t(kRun), int64_t(kToken), int64_t(kPage), -int64_t(kPage) })
    RefusedOverlap(part(offset), 1, "v", "layers[1].k");
  RefusedOverlap(part(0, [](cgr_layer &l) { l.v.stride_page *= 2; }), 1, "v", "layers[1].k");
  RefusedOverlap(part(0, [](cgr_layer &l) { l.v.stride_token *= 2, l.v.stride_page *= 2; }), 1, "v", "layers[1].k");
  RefusedOverlap(part(0, [](cgr_layer &l) { l.v.stride_head /= 2; }), 1, "v", "layers[1].k");
  RefusedOverlap(part(0, [](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16; }), 1, "v", "layers[1].k");
  // The stride of a single head means nothing.
  Accepted(part(0, [](cgr_layer &l) { l.num_kv_heads = 1, l.v.stride_head /= 2; }));
  // A bad view is reported once.
  Refused(part(0, [](cgr_layer &l) { l.v.stride_head = 1; }), { Bad(1, "v", { "16 bytes" }) });
  Refused(part(0, [](cgr_layer &l) { l.k.dtype = 99; }), { FindInLayer(1, CGR_ERROR_INVALID_ENUM, "k.dtype", { "is 99" }) });
  RefusedOverlap(
      [&](Good &c) {
        inside(CGR_BACKEND_APPENDS)(c);
        c.layers[1].v.base = c.layers[0].v.base;
      },
      1, "v", "layers[0].v");
}

TEST_P(ConfigViews, OverlapsInPartCount) {
  const int bytes = 64 * 2048 * 2;
  auto move = [](int offset) {
    return [offset](Good &c) { c.layers[1].k.base = static_cast<char *>(c.layers[0].v.base) + offset; };
  };
  for (int offset : { 0, 16, 4096, bytes / 2, bytes - 16, 16 - bytes, -bytes / 2 })
    RefusedOverlap(move(offset), 1, "k", "layers[0].v");
  for (int offset : { bytes, -bytes })
    Accepted(move(offset));
}

TEST_P(ConfigViews, TwoLayersAreApart) {
  RefusedOverlap([](Good &c) { c.layers[1].k.base = c.layers[0].k.base; }, 1, "k", "layers[0].k");
  RefusedOverlap([](Good &c) { c.layers[1].v.base = c.layers[0].k.base; }, 1, "v", "layers[0].k");
  // Every view of the second has one of its own.
  Found k = Overlap(1, "k", "layers[0].k"), v = Overlap(1, "v", "layers[0].v");
  k.layer = v.layer = 1;
  Refused([](Good &c) { c.layers[1].k = c.layers[0].k, c.layers[1].v = c.layers[0].v; }, { k, v });
  // A view that overlaps several is reported once.
  RefusedOverlap(
      [](Good &c) {
        c.layers[1].v.base = Good::Address(0);
        c.layers[1].v.stride_page = Good::kLayerBytes / 2;
      },
      1, "v", "layers[0].k");
}

TEST_P(ConfigViews, WhatIsBetweenThePagesOfOneMayBeAnothers) {
  auto pairs = [](Good &c, int64_t gap) {
    for (int i = 0; i < 2; i++) {
      CGR_EXPECT_OK(
          cgr_kv_view_make_pair(CGR_LAYOUT_HND, Good::Address(i), CGR_DTYPE_BF16, 16, 2, 64, &c.layers[i].k, &c.layers[i].v));
      c.layers[i].k.stride_page = c.layers[i].v.stride_page = 4096 + gap;
    }
  };
  Accepted([&](Good &c) { pairs(c, 0); });
  Accepted([&](Good &c) { pairs(c, 8); });
  // [pages][layers][K, V]
  auto layers_in_page = [&](Good &c, int64_t offset) {
    pairs(c, 4096);
    for (cgr_kv_view *view : { &c.layers[1].k, &c.layers[1].v })
      view->base = static_cast<char *>(view == &c.layers[1].k ? c.layers[0].k.base : c.layers[0].v.base) + offset;
  };
  Accepted([&](Good &c) { layers_in_page(c, 8192); });
  RefusedOverlap([&](Good &c) { layers_in_page(c, 8192 - 16); }, 1, "k", "layers[0].v");
  RefusedOverlap([&](Good &c) { layers_in_page(c, 8192 + 16); }, 1, "v", "layers[0].k");
}

// Other findings do not hide an overlap. A view without strides still has its first element at a known address.
TEST_P(ConfigViews, OverlapsComeBesidesOtherFindings) {
  Found overlap = Overlap(1, "k", "layers[0].v"), overlapped = Overlap(1, "k", "layers[0].k");
  overlap.layer = overlapped.layer = 1;
  Refused(
      [](Good &c) {
        c.config.max_rows = 1;
        c.layers[0].out_dtype = CGR_DTYPE_FP32;
        c.layers[1].k.base = c.layers[0].v.base;
      },
      { Find(CGR_ERROR_INVALID_ARGUMENT, "max_rows", { "is 1" }),
        FindInLayer(0, CGR_ERROR_UNSUPPORTED, "out_dtype", { "is fp32" }), overlap });
  Refused(
      [](Good &c) {
        c.layers[0].v.stride_head = 1;
        c.layers[1].k.base = c.layers[0].k.base;
      },
      { Bad(0, "v", { "16 bytes" }), overlapped });
  Refused(
      [](Good &c) {
        c.layers[0].k.dtype = 99;
        c.layers[1].k.base = c.layers[0].k.base;
      },
      { FindInLayer(0, CGR_ERROR_INVALID_ENUM, "k.dtype", { "is 99" }), overlapped });
  Refused(
      [](Good &c) {
        c.layers[0].k.stride_page = 8;
        c.layers[1].k.base = static_cast<char *>(c.layers[0].k.base) + 4096;
      },
      { Bad(0, "k", { "overlap" }) });
}

// ---------------------------------------------------------------------------------------------------------------- random

// The addresses of all elements of a view, in pieces of 16 bytes; none if two elements coincide.
bool Pieces(const Good &c, const cgr_kv_view &view, std::set<int64_t> *pieces) {
  const cgr_layer &l = c.layers[0];
  for (int64_t page = 0; page < c.groups[0].num_pages; page++)
    for (int64_t token = 0; token < 16; token++)
      for (int64_t head = 0; head < l.num_kv_heads; head++)
        for (int64_t d = 0; d < l.head_dim; d += 8) {
          int64_t element = page * view.stride_page + token * view.stride_token + head * view.stride_head + d;
          if (!pieces->insert(int64_t(uintptr_t(view.base)) + element * 2).second)
            return false;
        }
  return true;
}

// Strides that nest, with random gaps, in a random order.
void RandomView(Random &random, const cgr_layer &layer, int64_t pages, cgr_kv_view *view) {
  struct Dim {
    int64_t count;
    int64_t *stride;
  };
  std::vector<Dim> dims = { { pages, &view->stride_page },
                            { 16, &view->stride_token },
                            { layer.num_kv_heads, &view->stride_head } };
  for (size_t i = 2; i > 0; i--)
    std::swap(dims[i], dims[size_t(random.Pick(0, int64_t(i)))]);
  int64_t covered = layer.head_dim;
  for (const Dim &dim : dims) {
    *dim.stride = covered + (random.OneIn(2) ? 0 : 8 * random.Pick(0, 3));
    if (random.OneIn(4))
      *dim.stride = covered * random.Pick(1, 3); // room for another view between
    covered += (dim.count - 1) * *dim.stride;
  }
}

TEST_P(ConfigViews, ThatShareAnElementAreRefusedAtRandom) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  int shared = 0, apart = 0, careful = 0;
  for (int n = 0; n < 1500 && !HasFailure(); n++) {
    Good c(device_);
    c.config.num_layers = 1;
    c.config.max_seq_len = 16;
    c.groups[0].num_pages = random.Pick(3, 5);
    c.layers[0].num_kv_heads = random.Pick32(1, 2);
    cgr_kv_view &k = c.layers[0].k, &v = c.layers[0].v;
    RandomView(random, c.layers[0], c.groups[0].num_pages, &k);
    v.stride_page = k.stride_page, v.stride_token = k.stride_token, v.stride_head = k.stride_head;
    if (random.OneIn(3))
      RandomView(random, c.layers[0], c.groups[0].num_pages, &v);
    int64_t steps[] = { 16, k.stride_head * 2, k.stride_token * 2, k.stride_page * 2, 128 };
    v.base = static_cast<char *>(k.base) + steps[random.Pick(0, 4)] * random.Pick(-6, 6);
    std::set<int64_t> pieces;
    ASSERT_TRUE(Pieces(c, k, &pieces)); // they nest
    bool overlaps = !Pieces(c, v, &pieces);
    int32_t count = 0;
    bool refused = cgr_validate(&c.config, nullptr, nullptr, 0, &count) != CGR_OK;
    (overlaps ? shared : apart)++;
    if (refused && !overlaps) // told from one only where the strides are the same
      careful++;
    bool same = k.stride_page == v.stride_page && k.stride_token == v.stride_token && k.stride_head == v.stride_head;
    EXPECT_TRUE(refused || !overlaps) << "an overlap of " << v.base << " with " << k.base << " is accepted, pages "
                                      << k.stride_page << " and " << v.stride_page;
    EXPECT_TRUE(!refused || overlaps || !same) << cgr_last_message();
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(apart, 100);
  EXPECT_LT(careful, apart / 2);
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigViews);

} // namespace
} // namespace cgr_test

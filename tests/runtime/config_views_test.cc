// Where K and V of the layers are: addresses and strides that must be refused, and views that share memory. For small random
// caches, a brute-force comparison of all elements determines which views do.
#include <set>

#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class ConfigViews : public ConfigTest {};

char *Bytes(void *base, int64_t offset) { return static_cast<char *>(base) + offset; }

// -------------------------------------------------------------------------------------------------- addresses and strides

TEST_P(ConfigViews, BasesAreAddressesAlignedTo16) {
  for (int32_t layer : { 0, 1 })
    for (const char *name : { "k", "v" }) {
      auto view = [=](Good &c) -> cgr_kv_view & { return name[0] == 'k' ? c.layers[layer].k : c.layers[layer].v; };
      const std::string field = "layers[" + std::to_string(layer) + "]." + name + " ... base ";
      const auto shift = [=](Good &c, int64_t offset) { view(c).base = Bytes(view(c).base, offset); };
      EachField({ Field(kArgument, field + "0x ... multiple of 16", shift, { 16 }, { 1, 2, 8, 15 }) });
      Refused([=](Good &c) { view(c).base = nullptr; }, kNull, field + "NULL ... address");
    }
}

TEST_P(ConfigViews, StridesArePositiveMultiplesOf16Bytes) {
  for (auto member : { &cgr_kv_view::stride_page, &cgr_kv_view::stride_token, &cgr_kv_view::stride_head })
    EachField({ Field(kArgument, "layers[1].k ... # ... 16 bytes ... 2^31 elements",
                      [=](Good &c, int64_t stride) { c.layers[1].k.*member = stride; }, {},
                      { 0, -8, 1, 4100, 4092, (int64_t(1) << 31) + 8, INT64_MAX, INT64_MIN }) });
  // The largest stride, of a view that is not in the way of others.
  Accepted([](Good &c) {
    c.layers[1].v.base = Good::Address(100);
    c.layers[1].v.stride_page = int64_t(1) << 31;
  });
}

// With the largest numbers a view has more bytes than 64 bits can count.
TEST_P(ConfigViews, AreWithinTheAddressSpace) {
  auto set = [](Good &c, int64_t pages) {
    c.groups[0].num_pages = pages;
    c.config.num_layers = 1;
    c.layers[0].v.base = reinterpret_cast<void *>(uintptr_t(0x10000000 + 4096)); // the other one's gaps
    c.layers[0].k.stride_page = c.layers[0].v.stride_page = int64_t(1) << 31;
  };
  Accepted([&](Good &c) { set(c, 1 << 24); }); // 2^55 x 2 bytes
  for (int64_t pages : { int64_t(1 << 24) + 2, int64_t(1) << 30, int64_t(INT32_MAX) }) {
    const std::string says = " ... 2^56 bytes ... " + std::to_string(pages) + " pages";
    Refused([&](Good &c) { set(c, pages); }, { { kArgument, "layers[0].k" + says }, { kArgument, "layers[0].v" + says } });
  }
  const auto base = [](Good &c, int64_t address) { c.layers[1].k.base = reinterpret_cast<void *>(address); };
  EachField({ Field(kArgument, "layers[1].k ... 2^56 bytes of memory", base, {},
                    { INT64_MAX - 15, INT64_MAX - 0x1ffff, INT64_MIN, -0x20000, -16 }) });
}

TEST_P(ConfigViews, ReservedFieldsAreRefused) {
  EachRefused({ { kNewer, "layers[0].k.reserved is 1 ... expected 0", [](Good &c) { c.layers[0].k.reserved = 1; } },
                { kNewer, "layers[1].v.reserved is -1 ... expected 0", [](Good &c) { c.layers[1].v.reserved = -1; } } });
}

// ------------------------------------------------------------------------------------------------------ within one view

TEST_P(ConfigViews, ElementsOfOneViewAreApart) {
  const char says[] = "layers[0].k ... overlap ... 16 tokens of 2 heads of 64";
  // Two heads of 64: a token has 128, a page 2048 elements.
  EachRefused({
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_head = 56; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_head = 72; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_token = 120; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_page = 2040; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_page = 8; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_token = c.layers[0].k.stride_page; } },
      { kArgument, says, [](Good &c) { c.layers[0].k.stride_head = c.layers[0].k.stride_token; } },
  });
  // A single head has no other one to keep away from.
  Accepted([](Good &c) {
    c.layers[0].num_kv_heads = c.layers[2].num_kv_heads = 1;
    c.layers[0].k.stride_head = 8;
    c.layers[0].v.stride_head = int64_t(1) << 20;
  });
}

// ------------------------------------------------------------------------------------------------------------- two views

TEST_P(ConfigViews, ThoseOfALayerAndOfTwoLayersAreApart) {
  EachRefused({
      { kArgument,
        "layers[0].v overlaps layers[0].k, taking 262144 bytes with num_pages 64, expected memory of its own (or with "
        "CGR_BACKEND_APPENDS",
        [](Good &c) { c.layers[0].v.base = c.layers[0].k.base; } },
      { kArgument, "layers[1].v overlaps layers[1].k", [](Good &c) { c.layers[1].k.base = c.layers[1].v.base; } },
      { kArgument, "layers[1].k overlaps layers[0].k", [](Good &c) { c.layers[1].k.base = c.layers[0].k.base; } },
      { kArgument, "layers[1].v overlaps layers[0].k", [](Good &c) { c.layers[1].v.base = c.layers[0].k.base; } },
      { kArgument, "layers[1].v overlaps layers[0].k",
        [](Good &c) { c.layers[1].v.base = Good::Address(0), c.layers[1].v.stride_page = Good::kLayerBytes / 2; },
        "of several that it overlaps" },
  });
  // Every view of the second has one of its own.
  Refused([](Good &c) { c.layers[1].k = c.layers[0].k, c.layers[1].v = c.layers[0].v; },
          { { kArgument, "layers[1].k overlaps layers[0].k" }, { kArgument, "layers[1].v overlaps layers[0].v" } });
}

TEST_P(ConfigViews, OverlapsInPartCount) {
  const int bytes = 64 * 2048 * 2; // 64 pages of 2048 elements of 2 bytes: one vector of 16 bytes is enough
  const auto move = [](Good &c, int64_t offset) { c.layers[1].k.base = Bytes(c.layers[0].v.base, offset); };
  EachField({ Field(kArgument, "layers[1].k overlaps layers[0].v", move, { bytes, -bytes },
                    { 0, 16, 4096, bytes / 2, bytes - 16, 16 - bytes, -bytes / 2 }) });
}

// As in MLA, v is a part of k: allowed only with a backend that writes both itself, and only within a layer.
TEST_P(ConfigViews, OneMayBeInsideTheOtherWhereABackendAppends) {
  more_ = [](Good &c) {
    c.AddBackends();
    c.config.num_backends = 1;
    c.backends[0].flags = CGR_BACKEND_APPENDS;
    c.layers[1].backend = 1;
  };
  // A narrower v may be anywhere within the run of k, or vice versa. Half outside it, shifted, or with other strides or another
  // dtype, the two have elements in common that are of different pages, tokens or heads, or no elements in common at all.
  enum { kRun = Good::kDim, kToken = 2 * kRun, kPage = 16 * kToken }; // elements of k
  const auto part = [](int64_t offset, std::function<void(cgr_layer &)> more = nullptr) {
    return [=](Good &c) {
      cgr_layer &l = c.layers[1];
      l.head_dim_v = kRun / 2, l.v = l.k, l.scale = 0.1f;
      l.v.base = Bytes(l.k.base, 2 * offset);
      if (more)
        more(l);
    };
  };
  EachAccepted({ [](Good &c) { c.layers[1].v.base = c.layers[1].k.base; }, part(0), part(8), part(kRun / 2),
                 part(0,
                      [](cgr_layer &l) { // k inside of v
                        l.head_dim_v = kRun, l.head_dim = kRun / 2;
                        l.k.base = Bytes(l.v.base, 2 * (kRun / 2));
                      }),
                 // The stride of a single head means nothing.
                 part(0, [](cgr_layer &l) { l.num_kv_heads = 1, l.v.stride_head /= 2; }) });
  const char overlap[] = "layers[1].v overlaps layers[1].k";
  EachRefused({
      { kArgument, overlap,
        [](Good &c) { c.backends[0].flags = CGR_BACKEND_PLANS_FIRST, c.layers[1].v.base = c.layers[1].k.base; } },
      { kArgument, overlap, part(-8) },
      { kArgument, overlap, part(kRun / 2 + 8) },
      { kArgument, overlap, part(kRun) },
      { kArgument, overlap, part(kToken) },
      { kArgument, overlap, part(kPage) },
      { kArgument, overlap, part(-kPage) },
      { kArgument, overlap, part(0, [](cgr_layer &l) { l.v.stride_page *= 2; }) },
      { kArgument, overlap, part(0, [](cgr_layer &l) { l.v.stride_token *= 2, l.v.stride_page *= 2; }) },
      { kArgument, overlap, part(0, [](cgr_layer &l) { l.v.stride_head /= 2; }) },
      { kArgument, overlap, part(0, [](cgr_layer &l) { l.v.dtype = CGR_DTYPE_FP16; }) },
      { kArgument, "layers[1].v overlaps layers[0].v", [](Good &c) { c.layers[1].v.base = c.layers[0].v.base; } },
      // A bad view is reported once.
      { kArgument, "layers[1].v ... 16 bytes", part(0, [](cgr_layer &l) { l.v.stride_head = 1; }) },
      { kEnum, "layers[1].k.dtype is 99", part(0, [](cgr_layer &l) { l.k.dtype = 99; }) },
  });
}

TEST_P(ConfigViews, WhatIsBetweenThePagesOfOneMayBeAnothers) {
  auto pairs = [](Good &c, int64_t gap) {
    for (int i = 0; i < 2; i++) {
      CGR_EXPECT_OK(
          cgr_kv_view_make_pair(CGR_LAYOUT_HND, Good::Address(i), CGR_DTYPE_BF16, 16, 2, 64, &c.layers[i].k, &c.layers[i].v));
      c.layers[i].k.stride_page = c.layers[i].v.stride_page = 4096 + gap;
    }
  };
  // [pages][layers][K, V]
  auto layers_in_page = [&](Good &c, int64_t offset) {
    pairs(c, 4096);
    c.layers[1].k.base = Bytes(c.layers[0].k.base, offset);
    c.layers[1].v.base = Bytes(c.layers[0].v.base, offset);
  };
  EachAccepted({ [&](Good &c) { pairs(c, 0); }, [&](Good &c) { pairs(c, 8); }, [&](Good &c) { layers_in_page(c, 8192); } });
  EachRefused({ { kArgument, "layers[1].k overlaps layers[0].v", [&](Good &c) { layers_in_page(c, 8192 - 16); } },
                { kArgument, "layers[1].v overlaps layers[0].k", [&](Good &c) { layers_in_page(c, 8192 + 16); } } });
}

// Other findings do not hide an overlap. A view without strides still has its first element at a known address.
TEST_P(ConfigViews, OverlapsComeBesidesOtherFindings) {
  Refused(
      [](Good &c) {
        c.config.max_rows = 1;
        c.layers[0].out_dtype = CGR_DTYPE_FP32;
        c.layers[1].k.base = c.layers[0].v.base;
      },
      { { kArgument, "max_rows is 1" },
        { kUnsupported, "layers[0].out_dtype is fp32" },
        { kArgument, "layers[1].k overlaps layers[0].v" } });
  Refused([](Good &c) { c.layers[0].v.stride_head = 1, c.layers[1].k.base = c.layers[0].k.base; },
          { { kArgument, "layers[0].v ... 16 bytes" }, { kArgument, "layers[1].k overlaps layers[0].k" } });
  Refused([](Good &c) { c.layers[0].k.dtype = 99, c.layers[1].k.base = c.layers[0].k.base; },
          { { kEnum, "layers[0].k.dtype is 99" }, { kArgument, "layers[1].k overlaps layers[0].k" } });
  Refused([](Good &c) { c.layers[0].k.stride_page = 8, c.layers[1].k.base = Bytes(c.layers[0].k.base, 4096); }, kArgument,
          "layers[0].k ... overlap");
}

// ---------------------------------------------------------------------------------------------------------------- random

// The addresses of all elements of a view, in vectors of 16 bytes; none if two elements coincide.
bool CollectVectors(const Good &c, const cgr_kv_view &view, std::set<int64_t> *vectors) {
  const cgr_layer &l = c.layers[0];
  for (int64_t page = 0; page < c.groups[0].num_pages; page++)
    for (int64_t token = 0; token < 16; token++)
      for (int64_t head = 0; head < l.num_kv_heads; head++)
        for (int64_t d = 0; d < l.head_dim; d += 8) {
          int64_t element = page * view.stride_page + token * view.stride_token + head * view.stride_head + d;
          if (!vectors->insert(int64_t(uintptr_t(view.base)) + element * 2).second)
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

// Where the last element of a view ends, in bytes from its base.
int64_t EndOf(const Good &c, const cgr_kv_view &view) {
  const cgr_layer &l = c.layers[0];
  return 2 * ((c.groups[0].num_pages - 1) * view.stride_page + 15 * view.stride_token + (l.num_kv_heads - 1) * view.stride_head +
              l.head_dim);
}

// A view in memory that the device gave ends in it, wherever it begins. Memory of another allocator's is not known.
TEST_P(ConfigViews, ThatEndBeyondTheirAllocationAreRefusedAtRandom) {
  SeededRandom random;
  for (int n = 0; n < 200 && !HasFailure(); n++) {
    Good c(device_);
    c.config.num_layers = 1, c.config.max_seq_len = 16;
    c.groups[0].num_pages = random.Pick(3, 5);
    cgr_kv_view &view = random.OneIn(2) ? c.layers[0].k : c.layers[0].v;
    RandomView(random, c.layers[0], c.groups[0].num_pages, &view);
    const int64_t before = 16 * random.Pick(0, 3), more = 16 * random.Pick(-2, 2), bytes = EndOf(c, view) + more;
    void *memory = nullptr;
    CGR_ASSERT_OK(cgr_memory_alloc(device_, size_t(before + bytes), &memory));
    view.base = Bytes(memory, before);
    if (more < 0) {
      const std::string says = (&view == &c.layers[0].k ? "layers[0].k takes " : "layers[0].v takes ") +
                               std::to_string(bytes - more) + " bytes from 0x ... with num_pages " +
                               std::to_string(c.groups[0].num_pages) + " ... expected at most " + std::to_string(bytes);
      RefusedAsItIs(c.config, { Found(kArgument, says) });
    } else {
      int32_t count = 0;
      CGR_EXPECT_OK(cgr_validate(&c.config, nullptr, nullptr, 0, &count));
    }
    CGR_EXPECT_OK(cgr_memory_free(device_, memory));
  }
}

// So do scales, slopes, sinks, a page table of the engine's own and the memory that a runtime is given.
TEST_P(ConfigViews, AllThatAConfigurationNamesEndsInItsAllocation) {
  void *memory = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(device_, 256, &memory));
  auto *floats = static_cast<float *>(memory);
  const auto scaled = [&](Good &c, cgr_kv_view *view) {
    c.AddBackends();
    c.backends[0].flags = CGR_BACKEND_APPENDS;
    for (cgr_layer &layer : c.layers)
      layer.backend = 1;
    view->scale = floats + 8, view->scale_stride_page = 1; // of 64 pages
  };
  EachRefused({
      { kArgument, "layers[1].k.scale takes 256 bytes ... most 224", [&](Good &c) { scaled(c, &c.layers[1].k); } },
      { kArgument, "layers[0].v.scale takes 256 bytes ... most 224", [&](Good &c) { scaled(c, &c.layers[0].v); } },
      { kArgument, "layers[1].alibi_slopes takes 16 bytes ... most 12",
        [&](Good &c) { c.layers[1].alibi_slopes = floats + 61; } },
      { kArgument, "layers[0].sinks takes 16 bytes ... most 4", [&](Good &c) { c.layers[0].sinks = floats + 63; } },
      { kArgument, "groups[0].page_table takes ... max_rows + 1 rows ... most 256",
        [&](Good &c) { c.groups[0].page_table = static_cast<int32_t *>(memory), c.groups[0].page_table_stride = 32; } },
      { kArgument, "device_memory takes ... most 256",
        [&](Good &c) { c.config.device_memory = memory, c.config.device_memory_size = size_t(1) << 30; } },
  });
  CGR_EXPECT_OK(cgr_memory_free(device_, memory));
}

TEST_P(ConfigViews, ThatShareAnElementAreRefusedAtRandom) {
  SeededRandom random;
  int shared = 0, apart = 0, careful = 0;
  for (int n = 0; n < 1500 && !HasFailure(); n++) {
    Good c(device_);
    c.config.num_layers = 1, c.config.max_seq_len = 16;
    c.groups[0].num_pages = random.Pick(3, 5);
    c.layers[0].num_kv_heads = random.Pick32(1, 2);
    cgr_kv_view &k = c.layers[0].k, &v = c.layers[0].v;
    RandomView(random, c.layers[0], c.groups[0].num_pages, &k);
    v.stride_page = k.stride_page, v.stride_token = k.stride_token, v.stride_head = k.stride_head;
    if (random.OneIn(3))
      RandomView(random, c.layers[0], c.groups[0].num_pages, &v);
    int64_t steps[] = { 16, k.stride_head * 2, k.stride_token * 2, k.stride_page * 2, 128 };
    v.base = static_cast<char *>(k.base) + steps[random.Pick(0, 4)] * random.Pick(-6, 6);
    std::set<int64_t> vectors;
    ASSERT_TRUE(CollectVectors(c, k, &vectors)); // they nest
    bool overlaps = !CollectVectors(c, v, &vectors);
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

// The scales of quantised caches, which backends with CGR_BACKEND_APPENDS may have: addresses, strides and overlaps that must be
// refused, by field, and those that are meant. For small random ones a brute-force comparison of all bytes says which overlap.
#include <set>

#include "tests/support/config_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class ConfigScales : public ConfigTest {
protected:
  enum { kPage = Good::kPageSize, kHeads = Good::kHeads, kDim = Good::kDim }; // kPages pages
  void SetUp() override {
    ConfigTest::SetUp();
    more_ = [](Good &c) {
      c.AddBackends();
      c.config.num_backends = 1;
      c.backends[0].flags = CGR_BACKEND_APPENDS;
      c.layers[0].backend = c.layers[1].backend = c.layers[2].backend = 1;
    };
  }
  static float *Floats(int64_t place, int64_t offset = 0) { return reinterpret_cast<float *>(Good::Address(place)) + offset; }
  // [pages][tokens][heads]
  static void PerToken(cgr_kv_view *view, float *scale) {
    view->scale = scale;
    view->scale_stride_page = kPage * kHeads, view->scale_stride_token = kHeads, view->scale_stride_head = 1;
  }
};

const std::string kOwn = ", taking ... expected memory of its own";

const std::vector<std::pair<const char *, int64_t cgr_kv_view::*>> kStrides = {
  { "page", &cgr_kv_view::scale_stride_page },
  { "token", &cgr_kv_view::scale_stride_token },
  { "head", &cgr_kv_view::scale_stride_head },
  { "d", &cgr_kv_view::scale_stride_d },
};

cgr_kv_view &ViewOf(Good &c, int32_t layer, const char *name) { return name[0] == 'k' ? c.layers[layer].k : c.layers[layer].v; }

TEST_P(ConfigScales, TheUsualOnesAreAccepted) {
  Accepted([](Good &c) { PerToken(&c.layers[0].k, Floats(10)); });
  Accepted([](Good &c) { // one number for everything
    c.layers[0].k.scale = c.layers[0].v.scale = c.layers[1].k.scale = c.layers[1].v.scale = Floats(10);
  });
  Accepted([](Good &c) { // [heads][d], which no step writes, the same for two layers
    for (int i = 0; i < 2; i++)
      c.layers[i].v.scale = Floats(10), c.layers[i].v.scale_stride_head = kDim, c.layers[i].v.scale_stride_d = 1;
  });
  Accepted([](Good &c) { // of all layers and K and V, in turn: [heads][4]
    for (int i = 0; i < 4; i++) {
      cgr_kv_view &view = i % 2 ? c.layers[i / 2].v : c.layers[i / 2].k;
      view.scale = Floats(10, i), view.scale_stride_head = 4;
    }
  });
  Accepted([](Good &c) { // at the end of each page, after K's
    const int64_t page = kPage * kHeads * kDim;
    c.layers[0].k.stride_page = page + 2 * kPage * kHeads;
    c.layers[0].k.scale = reinterpret_cast<float *>(static_cast<char *>(c.layers[0].k.base) + 2 * page);
    c.layers[0].k.scale_stride_page = (page + 2 * kPage * kHeads) / 2;
    c.layers[0].k.scale_stride_token = 1, c.layers[0].k.scale_stride_head = kPage;
  });
}

// The factors of tokens have to go on from page to page as the tokens do, if a backend reads parts of pages that cgr's append
// wrote.
TEST_P(ConfigScales, OfPagesOfKernelsFollowEachOther) {
  auto in_pages = [](Good &c, uint32_t flags, int64_t page) {
    for (int i = 0; i < 2; i++)
      c.layers[i].k.dtype = c.layers[i].v.dtype = CGR_DTYPE_I8;
    for (int i = 0; i < 3; i++)
      c.layers[i].dtype = CGR_DTYPE_BF16;
    PerToken(&c.layers[0].k, Floats(10));
    c.layers[0].v.scale = c.layers[1].k.scale = c.layers[1].v.scale = Floats(11); // one for all
    c.layers[0].k.scale_stride_page = page;
    c.groups[0].kernel_page_size = 8;
    c.backends[0].flags = flags;
  };
  Accepted([&](Good &c) { in_pages(c, CGR_BACKEND_APPENDS, kPage * kHeads + 32); });
  Accepted([&](Good &c) { in_pages(c, 0, kPage * kHeads); });
  Refused([&](Good &c) { in_pages(c, 0, kPage * kHeads + 32); },
          { { kArgument, "layers[0].k.scale_stride_page is 64 ... expected 32 ... page_size (16) ... kernel_page_size is 8" },
            { kArgument, "layers[2].k.scale_stride_page is 64 ... expected 32" } });
}

TEST_P(ConfigScales, AddressesAreAlignedTo4AndInMemory) {
  for (int32_t layer : { 0, 1 })
    for (const char *name : { "k", "v" }) {
      const std::string field = "layers[" + std::to_string(layer) + "]." + name + ".scale is 0x ... ";
      const auto at = [=](Good &c, int64_t address) { ViewOf(c, layer, name).scale = reinterpret_cast<float *>(address); };
      const auto tokens_at = [=](Good &c, int64_t address) {
        PerToken(&ViewOf(c, layer, name), reinterpret_cast<float *>(address));
      };
      const int64_t ten = reinterpret_cast<int64_t>(Good::Address(10));
      EachField({ Field(kArgument, field + "multiple of 4 bytes", at, {}, { ten + 1, ten + 2, ten + 3 }),
                  Field(kArgument, field + "within 2^56 bytes of memory", tokens_at, {}, { INT64_MAX - 3, INT64_MIN, -4 }) });
    }
}

TEST_P(ConfigScales, StridesAreNoneOrPositive) {
  for (const auto &[dim, member] : kStrides)
    for (const char *name : { "k", "v" }) {
      const auto set = [name = name, member = member](Good &c, int64_t stride) {
        ViewOf(c, 1, name).scale = Floats(10);
        ViewOf(c, 1, name).*member = stride;
      };
      EachField({ Field(kArgument, std::string("layers[1].") + name + ".scale_stride_" + dim + " is # ... 2^31 elements", set, {},
                        { -1, -5, INT64_MIN, (int64_t(1) << 31) + 1, INT64_MAX }) });
    }
  Refused(
      [](Good &c) { // each has a finding of its own, and nothing else is reported of them
        PerToken(&c.layers[1].k, Floats(0));
        c.layers[1].k.scale_stride_page = -1, c.layers[1].k.scale_stride_d = -2;
      },
      { { kArgument, "layers[1].k.scale_stride_page is -1" }, { kArgument, "layers[1].k.scale_stride_d is -2" } });
}

// Whatever the backend.
TEST_P(ConfigScales, WithoutAnAddressThereAreNoStrides) {
  for (bool own : { true, false })
    for (const auto &[dim, member] : kStrides) {
      const auto set = [own, member = member](Good &c, int64_t stride) {
        c.layers[1].v.*member = stride;
        if (!own)
          c.layers[0].backend = c.layers[1].backend = c.layers[2].backend = 0;
      };
      EachField({ Field(kArgument, std::string("layers[1].v.scale_stride_") + dim + " is # ... expected 0, as scale is NULL", set,
                        {}, { -1, 1, INT64_MAX }) });
    }
}

TEST_P(ConfigScales, AreWithinTheAddressSpace) {
  Accepted([](Good &c) {
    c.layers[0].k.scale = Floats(100);
    c.layers[0].k.scale_stride_page = int64_t(1) << 31;
  });
  const auto set = [](Good &c, int64_t pages) {
    c.config.num_layers = 1;
    c.groups[0].num_pages = pages;
    c.layers[0].v.base = Good::Address(0) + 4096;
    c.layers[0].k.stride_page = c.layers[0].v.stride_page = 4096;
    c.layers[0].k.scale = reinterpret_cast<float *>(uintptr_t(1) << 50);
    c.layers[0].k.scale_stride_page = int64_t(1) << 31;
  };
  EachField({ Field(kArgument, "layers[0].k.scale ... 2^56 bytes ... # pages", set, {}, { int64_t(1) << 24, INT32_MAX }) });
}

TEST_P(ConfigScales, FactorsOfOneViewAreApart) {
  const auto stride = [](int64_t cgr_kv_view::*member, int64_t value) {
    return [=](Good &c) {
      PerToken(&c.layers[0].k, Floats(10));
      c.layers[0].k.*member = value;
    };
  };
  const char says[] = "layers[0].k.scale ... overlap ... 64 pages of 16 tokens of 2 heads of 64 ... 0 for what shares a factor";
  EachRefused({ { kArgument, says, stride(&cgr_kv_view::scale_stride_head, 2) },
                { kArgument, says, stride(&cgr_kv_view::scale_stride_token, 1) },
                { kArgument, says, stride(&cgr_kv_view::scale_stride_page, kPage * kHeads - 1) },
                { kArgument, says, stride(&cgr_kv_view::scale_stride_page, 1) },
                { kArgument, says, stride(&cgr_kv_view::scale_stride_d, 1) } });
}

TEST_P(ConfigScales, NoneOverlapsACache) {
  const int64_t last = int64_t(Good::kPages) * kPage * kHeads * kDim * 2 / 4 - 1; // of the cache, in floats
  EachRefused({
      // Of its own layer and of another one, with factors for tokens and without.
      { kArgument, "layers[0].k.scale overlaps layers[0].k" + kOwn, [](Good &c) { PerToken(&c.layers[0].k, Floats(0)); } },
      { kArgument, "layers[0].k.scale overlaps layers[0].v" + kOwn, [](Good &c) { c.layers[0].k.scale = Floats(1, 7); } },
      { kArgument, "layers[1].v.scale overlaps layers[0].k" + kOwn, [](Good &c) { c.layers[1].v.scale = Floats(0, 500); } },
      { kArgument, "layers[1].k overlaps layers[0].v.scale" + kOwn, [](Good &c) { c.layers[0].v.scale = Floats(2); } },
      { kArgument, "layers[0].k.scale overlaps layers[0].k" + kOwn, [=](Good &c) { c.layers[0].k.scale = Floats(0, last); } },
  });
  Accepted([=](Good &c) { c.layers[0].k.scale = Floats(0, last + 1); });
}

TEST_P(ConfigScales, SlopesAndSinksOverlapNoCacheEither) {
  more_ = nullptr; // the library's own kernels take them
  EachRefused({
      { kArgument, "layers[1].sinks overlaps layers[0].k", [](Good &c) { c.layers[1].sinks = Floats(0, 3); } },
      { kArgument, "layers[1].k overlaps layers[0].alibi_slopes", [](Good &c) { c.layers[0].alibi_slopes = Floats(2, 3); } },
      { kArgument, "layers[1].sinks is 0x ... multiple of 4 bytes, at most",
        [](Good &c) { c.layers[1].sinks = reinterpret_cast<float *>(UINTPTR_MAX - 3); } },
  });
  Accepted([](Good &c) { c.layers[0].sinks = c.layers[1].sinks = Floats(10), c.layers[1].alibi_slopes = Floats(10, 1); });
}

TEST_P(ConfigScales, FactorsOfTokensBelongToOneView) {
  // Where v is a part of k, its factors are k's.
  const auto part = [](int64_t offset) {
    return [offset](Good &c) {
      c.layers[0].v = c.layers[0].k;
      PerToken(&c.layers[0].k, Floats(10)), PerToken(&c.layers[0].v, Floats(10, offset));
    };
  };
  Accepted(part(0));
  EachRefused({
      { kArgument, "layers[0].v.scale overlaps layers[0].k.scale" + kOwn,
        [](Good &c) { PerToken(&c.layers[0].k, Floats(10)), PerToken(&c.layers[0].v, Floats(10)); } },
      { kArgument, "layers[1].k.scale overlaps layers[0].k.scale" + kOwn,
        [](Good &c) { PerToken(&c.layers[0].k, Floats(10)), PerToken(&c.layers[1].k, Floats(10)); } },
      { kArgument, "layers[1].k.scale overlaps layers[0].k.scale" + kOwn,
        [](Good &c) { PerToken(&c.layers[0].k, Floats(10)), c.layers[1].k.scale = Floats(10, 5); } },
      { kArgument, "layers[0].v.scale overlaps layers[0].k.scale" + kOwn, part(1) },
  });
}

TEST_P(ConfigScales, FactorsThatNoStepWritesMayBeTheSameButNotHalfway) {
  const auto per_head = [](int64_t offset) {
    return [offset](Good &c) {
      c.layers[0].k.scale = Floats(10), c.layers[1].v.scale = Floats(10, offset);
      c.layers[0].k.scale_stride_head = c.layers[1].v.scale_stride_head = 1;
    };
  };
  EachAccepted({ per_head(0), per_head(kHeads) });
  Refused(per_head(1), kArgument, "layers[1].v.scale overlaps layers[0].k.scale" + kOwn);
}

// Groups may share memory page by page, but not what has no pages.
TEST_P(ConfigScales, GroupsShareWhatHasPagesOnly) {
  const auto two_groups = [](Good &c) {
    c.config.num_groups = 2;
    c.groups[1] = c.groups[0];
    c.layers[1].group = 1;
  };
  Accepted([&](Good &c) { two_groups(c), PerToken(&c.layers[1].k, Floats(0)); }); // pages of the other group's k
  Refused([&](Good &c) { two_groups(c), c.layers[1].k.scale = Floats(0); }, kArgument,
          "layers[1].k.scale overlaps layers[0].k" + kOwn);
}

TEST_P(ConfigScales, NoneIsInTheRuntimesMemory) {
  const auto supplied = [](const Change &change) {
    return [change](Good &c) {
      c.config.device_memory = Good::Address(20), c.config.device_memory_size = size_t(64) << 20;
      c.config.pinned_memory = Good::Address(60), c.config.pinned_memory_size = size_t(8) << 20;
      change(c);
    };
  };
  for (int64_t place : { 20, 60 }) {
    const std::string says = std::string(place == 20 ? "device" : "pinned") + "_memory overlaps layers[1].";
    EachRefused({
        { kArgument, says + "v.scale,", supplied([=](Good &c) { c.layers[1].v.scale = Floats(place, 9); }) },
        { kArgument, says + "k.scale,", supplied([=](Good &c) { PerToken(&c.layers[1].k, Floats(place, 9)); }) },
        { kArgument, says + "sinks,", supplied([=](Good &c) { c.layers[1].sinks = Floats(place, 2); }) },
    });
  }
}

// ---------------------------------------------------------------------------------------------------------------- random

using Bytes = std::set<int64_t>; // counted in floats

bool AddScale(const Good &c, const cgr_kv_view &view, Bytes *bytes) {
  const cgr_layer &l = c.layers[0];
  auto count = [](int64_t stride, int64_t all) { return stride == 0 ? 1 : all; };
  bool apart = true;
  for (int64_t page = 0; page < count(view.scale_stride_page, c.groups[0].num_pages); page++)
    for (int64_t token = 0; token < count(view.scale_stride_token, 16); token++)
      for (int64_t head = 0; head < count(view.scale_stride_head, l.num_kv_heads); head++)
        for (int64_t d = 0; d < count(view.scale_stride_d, l.head_dim); d++)
          apart &= bytes
                       ->insert(int64_t(uintptr_t(view.scale)) / 4 + page * view.scale_stride_page +
                                token * view.scale_stride_token + head * view.scale_stride_head + d * view.scale_stride_d)
                       .second;
  return apart;
}
void AddCache(const Good &c, const cgr_kv_view &view, Bytes *bytes) {
  for (int64_t page = 0; page < c.groups[0].num_pages; page++)
    for (int64_t token = 0; token < 16; token++)
      for (int64_t head = 0; head < c.layers[0].num_kv_heads; head++)
        for (int64_t d = 0; d < c.layers[0].head_dim; d += 2)
          bytes->insert(int64_t(uintptr_t(view.base)) / 4 +
                        (page * view.stride_page + token * view.stride_token + head * view.stride_head + d) / 2);
}
bool Meet(const Bytes &a, const Bytes &b) {
  return std::any_of(a.begin(), a.end(), [&](int64_t byte) { return b.count(byte) != 0; });
}
void RandomScale(Random &random, const Good &c, cgr_kv_view *view) {
  const int64_t token = c.layers[0].k.stride_token / 2, page = c.layers[0].k.stride_page / 2;
  const int64_t pages[] = { 0, page, 16, 32, 64, 16 * 2 * 8 }, tokens[] = { 0, token, 1, 2, 16, 8 },
                heads[] = { 0, 1, 16, 8, token / 2, 4 }, ds[] = { 0, 0, 0, 1, 2, 0 };
  view->scale = reinterpret_cast<float *>(static_cast<char *>(c.layers[0].k.base) + 4 * random.Pick(-600, 1800));
  view->scale_stride_page = pages[random.Pick(0, 5)], view->scale_stride_token = tokens[random.Pick(0, 5)];
  view->scale_stride_head = heads[random.Pick(0, 5)], view->scale_stride_d = ds[random.Pick(0, 5)];
}

TEST_P(ConfigScales, ThatShareAByteAreRefusedAtRandom) {
  SeededRandom random;
  int shared = 0, apart = 0, careful = 0;
  for (int n = 0; n < 3000 && !HasFailure(); n++) {
    Good c(device_, more_);
    c.config.num_layers = 1, c.config.max_seq_len = 16;
    c.groups[0].num_pages = 3;
    c.layers[0].head_dim = 8;
    cgr_kv_view &k = c.layers[0].k, &v = c.layers[0].v;
    k.stride_head = 8, k.stride_token = 16 + 8 * random.Pick(0, 2), k.stride_page = 16 * k.stride_token + 8 * random.Pick(0, 12);
    v.stride_page = k.stride_page, v.stride_token = k.stride_token, v.stride_head = k.stride_head;
    v.base = Good::Address(4);
    RandomScale(random, c, &k);
    if (random.OneIn(3))
      RandomScale(random, c, &v);
    Bytes cache, first, second;
    AddCache(c, k, &cache);
    const bool nests = AddScale(c, k, &first) && (v.scale == nullptr || AddScale(c, v, &second));
    const bool same = v.scale != nullptr && first == second && k.scale_stride_page == 0 && k.scale_stride_token == 0 &&
                      k.scale_stride_head == v.scale_stride_head && k.scale_stride_d == v.scale_stride_d;
    const bool overlaps = !nests || Meet(first, cache) || Meet(second, cache) || (Meet(first, second) && !same);
    int32_t count = 0;
    const bool refused = cgr_validate(&c.config, nullptr, nullptr, 0, &count) != CGR_OK;
    (overlaps ? shared : apart)++;
    careful += refused && !overlaps;
    EXPECT_TRUE(refused || !overlaps) << k.scale << " of " << k.base << ": " << k.scale_stride_page << ", "
                                      << k.scale_stride_token << ", " << k.scale_stride_head << ", " << k.scale_stride_d;
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(apart, 100);
  EXPECT_LT(careful, apart / 2);
}

// Whatever the numbers are, they are answered.
TEST_P(ConfigScales, AnyNumbersAreAnswered) {
  SeededRandom random;
  for (int n = 0; n < 5000; n++) {
    Good c(device_, more_);
    const auto number = [&] {
      return random.OneIn(3) ? 0 : int64_t(random.Bits() >> random.Pick(0, 63)) * (random.OneIn(4) ? -1 : 1);
    };
    for (int32_t layer : { 0, 1 })
      for (const char *name : { "k", "v" }) {
        cgr_kv_view &view = ViewOf(c, layer, name);
        view.scale = reinterpret_cast<float *>(number());
        view.scale_stride_page = number(), view.scale_stride_token = number();
        view.scale_stride_head = number(), view.scale_stride_d = number();
      }
    c.groups[0].num_pages = random.OneIn(2) ? 64 : INT32_MAX;
    int32_t count = -1;
    const cgr_status status = cgr_validate(&c.config, nullptr, nullptr, 0, &count);
    EXPECT_EQ(status == CGR_OK, count == 0);
  }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigScales);

} // namespace
} // namespace cgr_test

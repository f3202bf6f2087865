// Groups that must be refused: pages, trash pages, the engine's own table, and more than four groups, or none.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigGroups : public ConfigTest {};

const int32_t *Table(uintptr_t address) { return reinterpret_cast<const int32_t *>(address); }

TEST_P(ConfigGroups, NumbersAreWithinTheirBounds) {
  const auto size = [](Good &c, int64_t value) { // the caches of the good configuration have pages of 16 tokens
    c.groups[0].page_size = int32_t(value);
    c.config.num_layers = 0;
  };
  const auto pages = [](Good &c, int64_t value) {
    c.groups[0].num_pages = value;
    c.config.max_seq_len = 16, c.config.num_layers = 0;
  };
  const char sizes[] = "groups[0].page_size is # ... a multiple of 16, at most 1024";
  const std::vector<int64_t> more_pages = { int64_t(INT32_MAX) + 1, INT64_MAX, INT64_MIN, int64_t(1) << 32, 2 };
  EachField({
      Field(kUnsupported, sizes, size, { 0, 16, 32, 48, 64, 80, 96, 112, 128, 240, 256, 272, 1008, 1024 }, {}),
      Field(kUnsupported, sizes, Of(&cgr_group::page_size), {}, { 1, 8, 15, 17, 24, 63, 65, 1023, 1025, 1040, 2048, INT32_MAX }),
      Field(kArgument, sizes, Of(&cgr_group::page_size), {}, { -1, -16, INT32_MIN }),
      Field(kArgument, "groups[0].num_pages is #, expected 3 .. 2147483647", pages, { 3, INT32_MAX }, Outside(3, INT32_MAX)),
      Field(kArgument, "groups[0].num_pages is #, expected 3 .. 2147483647 (two pages are reserved", Of(&cgr_group::num_pages),
            {}, more_pages),
  });
}

// A group and its layers are of one program, and drafts have no other lengths than their sequences.
TEST_P(ConfigGroups, ArePartsOfAProgram) {
  const auto two = [](Good &c) { c.config.num_programs = 2, c.config.num_draft_tokens = 1; };
  EachField({ Field(kArgument, "groups[0].program is # ... 0 .. 0", Of(&cgr_group::program), {}, { 1, -1, INT32_MAX }),
              Field(kNewer, "groups[0].reserved is #, expected 0", Of(&cgr_group::reserved), { 0 }, { 1, -1 }) });
  Refused([&](Good &c) { two(c), c.groups[0].program = 2; }, { { kArgument, "groups[0].program is 2, expected 0 .. 1" } });
  Refused([&](Good &c) { two(c), c.layers[1].program = 1; },
          { { kArgument, "layers[1].program is 1, expected 0 as in groups[0]" } });
  Refused(
      [&](Good &c) {
        two(c), c.config.num_length_sets = 2, c.config.num_layers = 0;
        c.groups[0].program = 1, c.groups[0].length_set = 1;
      },
      { { kUnsupported, "groups[0].program is 1 in a group of length set 1, expected 0 in this version" } });
}

// With pages twice as long, or more of them, the cache no longer fits.
TEST_P(ConfigGroups, PagesMustFitTheCaches) {
  std::vector<Found> longer;
  for (const char *view : { "layers[0].k", "layers[0].v", "layers[1].k", "layers[1].v" })
    longer.emplace_back(kArgument, view + std::string(" overlap ... 32 tokens"));
  Refused([](Good &c) { c.groups[0].page_size = 32; }, longer);
  const std::string bytes = ", taking 16777216 bytes with num_pages 4096, expected memory of its own";
  Refused([](Good &c) { c.groups[0].num_pages = 4096; }, { { kArgument, "layers[0].v overlaps layers[0].k" + bytes },
                                                           { kArgument, "layers[1].k overlaps layers[0].k" + bytes },
                                                           { kArgument, "layers[1].v overlaps layers[0].k" + bytes } });
}

// Two pages are reserved, and the others hold max_seq_len tokens.
TEST_P(ConfigGroups, PagesHoldTheLongestSequence) {
  const auto want = [](const char *says) { return std::vector<Found>{ FoundInGroup(0, kArgument, says) }; };
  Accepted([](Good &c) { c.config.max_seq_len = 62 * 16; });
  Refused([](Good &c) { c.config.max_seq_len = 62 * 16 + 1; }, want("max_seq_len is 993 ... at most 992 ... groups[0]"));
  Accepted([](Good &c) { c.groups[0].num_pages = 34; });
  Refused([](Good &c) { c.groups[0].num_pages = 33; }, want("max_seq_len is 512 ... at most 496 ... groups[0]"));
  // Layers with windows release pages; a layer that sees all tokens needs all pages.
  auto windows = [](Good &c, size_t layers) {
    c.config.max_seq_len = 62 * 16 + 1;
    for (size_t l = 0; l < layers; l++)
      c.layers[l].window_left = 100;
  };
  Accepted([&](Good &c) { windows(c, 3); });
  Accepted([&](Good &c) { windows(c, 1), c.layers[1].chunk = 64, c.layers[2].window_left = 7; });
  Refused([&](Good &c) { windows(c, 2); }, want("max_seq_len is 993 ... at most 992 ... groups[0]"));
}

// The running sum of pages has 32 bits.
TEST_P(ConfigGroups, PagesOfAStepCanBeCounted) {
  auto set = [](Good &c, int32_t pages) {
    c.config.max_requests = c.config.max_tokens = 4096, c.config.max_rows = c.config.num_layers = 0;
    c.config.max_seq_len = pages * 16;
    c.groups[0].num_pages = 1 << 20;
  };
  Accepted([&](Good &c) { set(c, INT32_MAX / 4096); });
  Refused([&](Good &c) { set(c, INT32_MAX / 4096 + 1); },
          { FoundInGroup(0, kArgument, "max_seq_len is 8388608 ... 524287 pages ... 4096 requests") });
}

// ---- pages of kernels

TEST_P(ConfigGroups, PagesOfKernelsDivideThoseOfTheGroup) {
  const auto of = [](int32_t page) {
    return [=](Good &c, int64_t value) {
      c.groups[0].page_size = page, c.groups[0].kernel_page_size = int32_t(value);
      c.config.num_layers = 0;
    };
  };
  const char says[] = "groups[0].kernel_page_size is # ... power of two that divides page_size (";
  EachField({
      Field(kArgument, std::string(says) + "16), or 0", of(16), { 0, 1, 2, 4, 8, 16 },
            { -1, 3, 5, 17, 32, INT32_MIN, INT32_MAX }),
      Field(kArgument, std::string(says) + "48), or 0", of(48), { 0, 1, 8, 16, 48 }, { -16, 3, 6, 12, 24, 32, 64, 96 }),
      Field(kArgument, std::string(says) + "1024), or 0", of(1024), { 0, 16, 64, 128, 512, 1024 }, { 48, 1023, 2048 }),
  });
  // A bad page size is found alone.
  Refused([](Good &c) { c.groups[0].page_size = 40, c.groups[0].kernel_page_size = 16; }, kUnsupported,
          "groups[0].page_size is 40");
}

// They are numbered in 32 bits, in the pool and in a step.
TEST_P(ConfigGroups, PagesOfKernelsCanBeNumbered) {
  auto pool = [](Good &c, int64_t pages) {
    c.groups[0].page_size = 1024, c.groups[0].kernel_page_size = 16, c.groups[0].num_pages = pages;
    c.config.num_layers = 0;
  };
  Accepted([&](Good &c) { pool(c, INT32_MAX / 64); });
  Refused([&](Good &c) { pool(c, INT32_MAX / 64 + 1); }, kArgument,
          "groups[0].num_pages is 33554432 ... at most 33554431 ... 64 pages of kernel_page_size (16)");
  auto step = [](Good &c, int32_t pages) {
    c.config.max_requests = c.config.max_tokens = 4096, c.config.max_rows = c.config.num_layers = 0;
    c.groups[0].page_size = 32, c.groups[0].kernel_page_size = 16, c.groups[0].num_pages = 1 << 20;
    c.config.max_seq_len = pages * 32;
  };
  Accepted([&](Good &c) { step(c, INT32_MAX / 4096 / 2); });
  Refused([&](Good &c) { step(c, INT32_MAX / 4096 / 2 + 1); },
          { FoundInGroup(0, kArgument, "max_seq_len is 8388608 ... 524287 pages ... 4096 requests") });
}

// What cgr's append writes has to be pages for the backend; the library's own layers and backends that append do not care.
TEST_P(ConfigGroups, PagesOfKernelsAreThoseOfTheViews) {
  auto hnd = [](Good &c, int32_t backend) { // one tensor for K and V of each page: the tokens of a page do not go on in the next
    c.AddBackends();
    c.groups[0].kernel_page_size = 8;
    for (int i = 0; i < 3; i++)
      c.layers[i].backend = backend;
    for (int i = 0; i < 2; i++) {
      c.layers[i].k.stride_page *= 2, c.layers[i].v.stride_page *= 2;
      c.layers[i].v.base = static_cast<char *>(c.layers[i].k.base) + c.layers[i].k.stride_page;
    }
  };
  const std::string says = " is 4096 ... expected 2048 ... page_size (16) ... kernel_page_size is 8";
  std::vector<Found> all;
  for (const char *view : { "layers[0].k", "layers[0].v", "layers[1].k", "layers[1].v" })
    all.emplace_back(kArgument, view + (".stride_page" + says));
  Refused([&](Good &c) { hnd(c, 1), c.layers[2].backend = 0; }, all);
  Refused([&](Good &c) { hnd(c, 0), c.layers[2].backend = 1; }, // it reads the caches of layer 0
          { { kArgument, "layers[2].k.stride_page" + says }, { kArgument, "layers[2].v.stride_page" + says } });
  Accepted([&](Good &c) { hnd(c, 0); });
  Accepted([&](Good &c) { hnd(c, 1), c.groups[0].kernel_page_size = 16; });
  Accepted([&](Good &c) { hnd(c, 1), c.backends[0].flags = CGR_BACKEND_APPENDS; });
  Accepted([&](Good &c) { c.AddBackends(), c.groups[0].kernel_page_size = 8, c.layers[1].backend = 1; });
}

// ---- trash pages

TEST_P(ConfigGroups, TrashPagesAreTwoPagesOfThePool) {
  using Pages = std::pair<int32_t, int32_t>; // to read, to write
  for (const Pages &good : { Pages{ 0, 0 }, Pages{ 0, 1 }, Pages{ 1, 0 }, Pages{ 0, 63 }, Pages{ 63, 62 }, Pages{ 5, 0 } })
    Accepted([&](Good &c) { c.groups[0].read_trash_page = good.first, c.groups[0].write_trash_page = good.second; });
  const auto same = [](Good &c, int64_t value) { c.groups[0].read_trash_page = c.groups[0].write_trash_page = int32_t(value); };
  const std::vector<int64_t> bad = { -1, 64, INT32_MAX, INT32_MIN };
  EachField({
      Field(kArgument, "groups[0].read_trash_page is #, ... 0 .. 63 (below num_pages)", Of(&cgr_group::read_trash_page), {}, bad),
      Field(kArgument, "groups[0].write_trash_page is #, ... 0 .. 63 (below num_pages)", Of(&cgr_group::write_trash_page), {},
            bad),
      Field(kArgument, "groups[0].write_trash_page is # ... another page", same, {}, { 1, 63 }),
  });
  // They may be wrong in three ways at once.
  Refused([&](Good &c) { same(c, 64); }, { { kArgument, "groups[0].read_trash_page is 64 ... 0 .. 63" },
                                           { kArgument, "groups[0].write_trash_page is 64 ... 0 .. 63" },
                                           { kArgument, "groups[0].write_trash_page is 64 ... another page" } });
}

// ---- the engine's own table

TEST_P(ConfigGroups, TableOfTheEngineHasRoomForARowAndIsAligned) {
  const auto stride = [](Good &c, int64_t value) {
    c.groups[0].page_table = Table(0x8000);
    c.groups[0].page_table_stride = value;
  };
  const auto address = [](Good &c, int64_t value) {
    c.groups[0].page_table = Table(uintptr_t(value));
    c.groups[0].page_table_stride = 32;
  };
  const int64_t most = int64_t(1) << 31;
  EachField({
      Field(kArgument, "groups[0].page_table_stride is # ... at least 32 ... 2^31", stride, { 32, 33, most },
            { 0, -1, 31, INT64_MIN, most + 1, INT64_MAX }),
      Field(kArgument, "groups[0].page_table is 0x ... multiple of 4", address, { 0x8004 }, { 0x8001, 0x8002, 0x8003 }),
      Field(kArgument, "groups[0].page_table is 0x ... at most", address, {}, { INT64_MAX / 4 * 4, -16 }),
  });
  Accepted([](Good &c) { c.groups[0].page_table_stride = -1; }); // of no table
}

// ---- several groups, or none

// So many, of which the layers but the second name `group`.
void SetGroups(Good &c, int32_t n, int32_t group) {
  static cgr_group groups[1000];
  std::fill(std::begin(groups), std::end(groups), c.groups[0]);
  c.config.groups = groups, c.config.num_groups = n;
  c.layers[0].group = c.layers[2].group = group;
}

TEST_P(ConfigGroups, OneToFour) {
  const char says[] = "num_groups is # ... expected 1 .. 4";
  EachField({ Field(kArgument, says, [](Good &c, int64_t n) { SetGroups(c, int32_t(n), 0); }, { 2, 3, 4 }, { 5, 1000 }),
              Field(kArgument, says, Of(&cgr_config::num_groups), {}, { 0, -1, INT32_MIN }) });
  Refused([](Good &c) { c.config.groups = nullptr, c.config.num_groups = 0; },
          { { kArgument, "num_groups is 0" }, { kNull, "groups is NULL" } });
  Refused([](Good &c) { c.config.num_groups = 0, c.config.num_layers = 0; }, kArgument, "num_groups is 0");
  // A layer may name a group that there is no room to read.
  for (int32_t group : { 1, 3, 4, 999 })
    Refused([&](Good &c) { SetGroups(c, 1000, group); }, kArgument, "num_groups is 1000");
}

TEST_P(ConfigGroups, OfSeveralEachIsNamed) {
  Refused(
      [](Good &c) {
        c.config.num_groups = 2;
        c.groups[1] = c.groups[0];
        c.groups[1].page_size = 12;
        c.layers[0].group = 2;
        c.layers[1].group = 1;
        c.layers[2].kv_source = 2;
        c.layers[2].group = 1;
      },
      { { kUnsupported, "groups[1].page_size is 12" }, { kArgument, "layers[0].group is 2 ... 0 .. 1" } });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigGroups);

} // namespace
} // namespace cgr_test

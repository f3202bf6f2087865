// Groups that must be refused: pages, trash pages, the engine's own table, and more than four groups, or none.
#include <algorithm>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigGroups : public ConfigTest {};

// The caches of the good configuration have pages of 16 tokens.
TEST_P(ConfigGroups, PageSizes) {
  for (int32_t good : { 0, 16, 32, 48, 64, 80, 96, 112, 128, 240, 256, 272, 1008, 1024 })
    Accepted([&](GoodConfig &c) { c.groups[0].page_size = good, c.config.num_layers = 0; });
  for (int32_t bad : { 1, 8, 15, 17, 24, 63, 65, 1023, 1025, 1040, 2048, INT32_MAX })
    Refused([&](GoodConfig &c) { c.groups[0].page_size = bad; },
            { FindInGroup(0, CGR_ERROR_UNSUPPORTED, "page_size",
                          { "is " + std::to_string(bad), "a multiple of 16, at most 1024" }) });
  for (int32_t bad : { -1, -16, INT32_MIN })
    Refused([&](GoodConfig &c) { c.groups[0].page_size = bad; },
            { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "page_size",
                          { "is " + std::to_string(bad), "a multiple of 16, at most 1024" }) });
}

// With pages twice as long the cache no longer fits, which is one finding for each view that a layer owns.
TEST_P(ConfigGroups, LongerPagesMustFitTheCaches) {
  std::vector<Found> want;
  for (int i = 0; i < 2; i++)
    for (const char *view : { "k", "v" })
      want.push_back(FindInLayer(i, CGR_ERROR_INVALID_ARGUMENT, view, { "overlap", "32 tokens" }));
  Refused([&](GoodConfig &c) { c.groups[0].page_size = 32; }, want);
}

TEST_P(ConfigGroups, NumPages) {
  const Found refusal = FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "num_pages", { "expected 3 .. 2147483647" });
  auto set = [](GoodConfig &c, int64_t value) {
    c.groups[0].num_pages = value;
    c.config.max_seq_len = 16;
    c.config.num_layers = 0;
  };
  Range(set, 3, INT32_MAX, refusal);
  for (int64_t bad : { int64_t(INT32_MAX) + 1, INT64_MAX, INT64_MIN, int64_t(1) << 32 })
    Refused([&](GoodConfig &c) { c.groups[0].num_pages = bad; }, { refusal });
}

// Two pages are reserved, and the others hold max_seq_len tokens.
TEST_P(ConfigGroups, PagesHoldTheLongestSequence) {
  Accepted([](GoodConfig &c) { c.config.max_seq_len = 62 * 16; });
  Refused([](GoodConfig &c) { c.config.max_seq_len = 62 * 16 + 1; },
          { { CGR_ERROR_INVALID_ARGUMENT, -1, 0, "max_seq_len", { "is 993", "at most 992", "groups[0]" } } });
  Accepted([](GoodConfig &c) { c.groups[0].num_pages = 34; });
  Refused([](GoodConfig &c) { c.groups[0].num_pages = 33; },
          { { CGR_ERROR_INVALID_ARGUMENT, -1, 0, "max_seq_len", { "is 512", "at most 496", "groups[0]" } } });
}

// Layers with windows release pages; a layer that sees all tokens needs all pages.
TEST_P(ConfigGroups, PagesOfWindowsNeedNotHoldTheLongestSequence) {
  auto windows = [](GoodConfig &c, size_t layers) {
    c.config.max_seq_len = 62 * 16 + 1;
    for (size_t l = 0; l < layers; l++)
      c.layers[l].window_left = 100;
  };
  Accepted([&](GoodConfig &c) { windows(c, 3); });
  Accepted([&](GoodConfig &c) { windows(c, 1), c.layers[1].chunk = 64, c.layers[2].window_left = 7; });
  Refused([&](GoodConfig &c) { windows(c, 2); },
          { { CGR_ERROR_INVALID_ARGUMENT, -1, 0, "max_seq_len", { "is 993", "at most 992", "groups[0]" } } });
}

// The running sum of pages has 32 bits.
TEST_P(ConfigGroups, PagesOfAStepCanBeCounted) {
  auto set = [](GoodConfig &c, int32_t pages) {
    c.config.max_requests = c.config.max_tokens = 4096;
    c.config.max_rows = c.config.num_layers = 0;
    c.config.max_seq_len = pages * 16;
    c.groups[0].num_pages = 1 << 20;
  };
  Accepted([&](GoodConfig &c) { set(c, INT32_MAX / 4096); });
  Refused([&](GoodConfig &c) { set(c, INT32_MAX / 4096 + 1); },
          { { CGR_ERROR_INVALID_ARGUMENT, -1, 0, "max_seq_len", { "is 8388608", "524287 pages", "4096 requests" } } });
}

// ---- trash pages

TEST_P(ConfigGroups, TrashPagesAreTwoPagesOfThePool) {
  struct Pages {
    int32_t read, write;
  };
  for (const Pages &good : { Pages{ 0, 0 }, Pages{ 0, 1 }, Pages{ 1, 0 }, Pages{ 0, 63 }, Pages{ 63, 62 }, Pages{ 5, 0 } })
    Accepted([&](GoodConfig &c) { c.groups[0].read_trash_page = good.read, c.groups[0].write_trash_page = good.write; });
  for (int32_t bad : { -1, 64, INT32_MAX, INT32_MIN }) {
    const Words words = { "is " + std::to_string(bad) + ",", "0 .. 63" };
    Refused([&](GoodConfig &c) { c.groups[0].read_trash_page = bad; },
            { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "read_trash_page", words) });
    Refused([&](GoodConfig &c) { c.groups[0].write_trash_page = bad; },
            { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "write_trash_page", words) });
  }
  for (int32_t same : { 1, 63 })
    Refused([&](GoodConfig &c) { c.groups[0].read_trash_page = c.groups[0].write_trash_page = same; },
            { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "write_trash_page", { "is " + std::to_string(same), "another page" }) });
}

TEST_P(ConfigGroups, TrashPagesMayBeWrongInThreeWaysAtOnce) {
  Refused([](GoodConfig &c) { c.groups[0].read_trash_page = c.groups[0].write_trash_page = 64; },
          { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "read_trash_page", { "is 64", "0 .. 63" }),
            FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "write_trash_page", { "is 64", "0 .. 63" }),
            FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "write_trash_page", { "is 64", "another page" }) });
}

// ---- the engine's own table

const int32_t *Table(uintptr_t address) { return reinterpret_cast<const int32_t *>(address); }

TEST_P(ConfigGroups, TableOfTheEngineHasRoomForARow) {
  auto with = [](int64_t stride) {
    return [stride](GoodConfig &c) { c.groups[0].page_table = Table(0x8000), c.groups[0].page_table_stride = stride; };
  };
  for (int64_t good : { int64_t(32), int64_t(33), int64_t(1) << 31 })
    Accepted(with(good));
  for (int64_t bad : { int64_t(0), int64_t(-1), int64_t(31), INT64_MIN, (int64_t(1) << 31) + 1, INT64_MAX })
    Refused(with(bad), { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "page_table_stride",
                                     { "is " + std::to_string(bad), "at least 32", "2^31" }) });
  Accepted([](GoodConfig &c) { c.groups[0].page_table_stride = -1; }); // of no table
}

TEST_P(ConfigGroups, TableOfTheEngineIsAligned) {
  for (uintptr_t address : { 0x8001, 0x8002, 0x8003 })
    Refused([&](GoodConfig &c) { c.groups[0].page_table = Table(address), c.groups[0].page_table_stride = 32; },
            { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "page_table", { "multiple of 4" }) });
  Accepted([](GoodConfig &c) { c.groups[0].page_table = Table(0x8004), c.groups[0].page_table_stride = 32; });
}

// ---- several groups, or none

TEST_P(ConfigGroups, UpToFour) {
  auto set = [](GoodConfig &c, int32_t n) {
    static cgr_group groups[1000];
    std::fill(std::begin(groups), std::end(groups), c.groups[0]);
    c.config.groups = groups;
    c.config.num_groups = n;
    c.layers[0].group = c.layers[2].group = 0;
  };
  for (int32_t n : { 2, 3, 4 })
    Accepted([&](GoodConfig &c) { set(c, n); });
  for (int32_t n : { 5, 1000 })
    Refused([&](GoodConfig &c) { set(c, n); },
            { Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is " + std::to_string(n), "1 .. 4" }) });
}

TEST_P(ConfigGroups, OfSeveralEachIsNamed) {
  Refused(
      [](GoodConfig &c) {
        c.config.num_groups = 2;
        c.groups[1] = c.groups[0];
        c.groups[1].page_size = 12;
        c.layers[0].group = 2;
        c.layers[1].group = 1;
        c.layers[2].kv_source = 2;
        c.layers[2].group = 1;
      },
      { FindInGroup(1, CGR_ERROR_UNSUPPORTED, "page_size", { "is 12" }),
        FindInLayer(0, CGR_ERROR_INVALID_ARGUMENT, "group", { "is 2", "0 .. 1" }) });
}

// A layer may name a group that there is no room to read.
TEST_P(ConfigGroups, LayersOfGroupsTooManyAreHarmless) {
  for (int32_t group : { 1, 3, 4, 999 })
    Refused(
        [&](GoodConfig &c) {
          static cgr_group groups[1000];
          std::fill(std::begin(groups), std::end(groups), c.groups[0]);
          c.config.groups = groups;
          c.config.num_groups = 1000;
          c.layers[0].group = c.layers[2].group = group;
        },
        { Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is 1000" }) });
}

TEST_P(ConfigGroups, OneMustBeThere) {
  for (int32_t n : { 0, -1, INT32_MIN })
    Refused([&](GoodConfig &c) { c.config.num_groups = n; },
            { Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is " + std::to_string(n), "expected 1 .. 4" }) });
  Refused([](GoodConfig &c) { c.config.groups = nullptr; }, { Find(CGR_ERROR_NULL_POINTER, "groups", { "NULL" }) });
  Refused([](GoodConfig &c) { c.config.groups = nullptr, c.config.num_groups = 0; },
          { Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is 0" }), Find(CGR_ERROR_NULL_POINTER, "groups", { "NULL" }) });
  Refused([](GoodConfig &c) { c.config.num_groups = 0, c.config.num_layers = 0; },
          { Find(CGR_ERROR_INVALID_ARGUMENT, "num_groups", { "is 0" }) });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigGroups);

} // namespace
} // namespace cgr_test

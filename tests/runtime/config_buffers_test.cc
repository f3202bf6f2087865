// Declarations of the engine's own buffers that must be refused, and memory from the caller that is unsuitable.
#include "cgr/names.h"
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigBuffers : public ConfigTest {
protected:
  static Found Bad(const char *field, const Words &words) { return FindInBuffer(1, CGR_ERROR_INVALID_ARGUMENT, field, words); }
  // The second buffer alone is changed.
  template <class Set> void RefusedBuffer(Set set, const std::vector<Found> &want) {
    Refused([&](GoodConfig &c) { set(c.buffers[1]); }, want);
  }
  template <class Set> void AcceptedBuffer(Set set) {
    Accepted([&](GoodConfig &c) { set(c.buffers[1]); });
  }
};

TEST_P(ConfigBuffers, NamesHaveOneTo31Characters) {
  static const std::string longest(31, 'n'), longer(32, 'n'), very_long(300, 'n');
  for (const char *good : { longest.c_str(), "n", "a name" })
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.name = good; });
  RefusedBuffer([](cgr_buffer_decl &b) { b.name = ""; }, { Bad("name", { "\"\"", "1 to 31" }) });
  RefusedBuffer([](cgr_buffer_decl &b) { b.name = longer.c_str(); }, { Bad("name", { longest + "...", "1 to 31" }) });
  RefusedBuffer([](cgr_buffer_decl &b) { b.name = very_long.c_str(); }, { Bad("name", { "1 to 31" }) });
  RefusedBuffer([](cgr_buffer_decl &b) { b.name = nullptr; }, { FindInBuffer(1, CGR_ERROR_NULL_POINTER, "name", { "NULL" }) });
}

TEST_P(ConfigBuffers, NamesAreUnique) {
  RefusedBuffer([](cgr_buffer_decl &b) { b.name = "a"; }, { Bad("name", { "\"a\"", "buffers[0] has already" }) });
  Refused([](GoodConfig &c) { c.buffers[2].name = c.buffers[1].name; },
          { FindInBuffer(2, CGR_ERROR_INVALID_ARGUMENT, "name", { "\"b\"", "buffers[1]" }) });
  Refused([](GoodConfig &c) { c.buffers[0].name = c.buffers[1].name = "same", c.buffers[2].name = "other"; },
          { Bad("name", { "\"same\"", "buffers[0]" }) });
  AcceptedBuffer([](cgr_buffer_decl &b) { b.name = "A"; });
  // A name that is no good belongs to no buffer.
  static const std::string longest(31, 'n'), longer(32, 'n');
  Refused([](GoodConfig &c) { c.buffers[0].name = longer.c_str(), c.buffers[1].name = longest.c_str(); },
          { FindInBuffer(0, CGR_ERROR_INVALID_ARGUMENT, "name", { "1 to 31" }) });
}

TEST_P(ConfigBuffers, Dimensions) {
  for (int32_t good : { CGR_DIMENSION_TOKENS, CGR_DIMENSION_REQUESTS, CGR_DIMENSION_ROWS })
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.dimension = good; });
  for (int32_t bad : { 0, -1, 4, INT32_MAX })
    RefusedBuffer([&](cgr_buffer_decl &b) { b.dimension = bad; },
                  { FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "dimension", { "is " + std::to_string(bad), "cgr_dimension" }) });
}

TEST_P(ConfigBuffers, Dtypes) {
  for (int32_t good = CGR_DTYPE_FP32; good <= CGR_DTYPE_U8; good++)
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.dtype = good; });
  for (int32_t bad : { 0, -1, 10, INT32_MAX })
    RefusedBuffer([&](cgr_buffer_decl &b) { b.dtype = bad; },
                  { FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "dtype", { "is " + std::to_string(bad), "cgr_dtype" }) });
}

TEST_P(ConfigBuffers, Sources) {
  for (int32_t good : { CGR_SOURCE_DEVICE, CGR_SOURCE_STAGED })
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.source = good; });
  for (int32_t bad : { -1, 3, INT32_MIN })
    RefusedBuffer([&](cgr_buffer_decl &b) { b.source = bad; },
                  { FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "source", { "is " + std::to_string(bad), "cgr_source" }) });
}

// Staged rows travel in words.
TEST_P(ConfigBuffers, StagedRowsAreWords) {
  auto rows = [](cgr_buffer_decl &b, int32_t dtype, int64_t width) {
    b.source = CGR_SOURCE_STAGED;
    b.dimension = CGR_DIMENSION_ROWS;
    b.dtype = dtype;
    b.width = width;
  };
  AcceptedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_U8, 4); });
  AcceptedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_BF16, 6); });
  AcceptedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_I64, 1 << 17); });
  RefusedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_U8, 7); }, { Bad("width", { "is 7", "7 bytes", "multiple of 4" }) });
  RefusedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_BF16, 5); }, { Bad("width", { "is 5", "10 bytes" }) });
  RefusedBuffer([&](cgr_buffer_decl &b) { rows(b, CGR_DTYPE_I64, (1 << 17) + 1); },
                { Bad("width", { "1048584 bytes", "2^20" }) });
  for (int32_t dimension : { CGR_DIMENSION_TOKENS, CGR_DIMENSION_REQUESTS })
    AcceptedBuffer([&](cgr_buffer_decl &b) {
      rows(b, CGR_DTYPE_U8, 7);
      b.dimension = dimension;
    });
}

// 2^43 elements at most, of 8 requests, and 2^46 bytes of all buffers.
TEST_P(ConfigBuffers, Widths) {
  for (int64_t good : { int64_t(0), int64_t(1), int64_t(1) << 40 })
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.width = good; });
  for (int64_t bad : { int64_t(-1), INT64_MIN, (int64_t(1) << 40) + 1, INT64_MAX })
    RefusedBuffer([&](cgr_buffer_decl &b) { b.width = bad; },
                  { Bad("width", { "is " + std::to_string(bad), "1 .. 1099511627776" }) });
  Refused([](GoodConfig &c) { c.buffers[0].width = int64_t(1) << 40; },
          { Find(CGR_ERROR_INVALID_ARGUMENT, "buffers[0]", { "would have 64 x 1099511627776", "2^43" }) });
  Refused(
      [](GoodConfig &c) { c.buffers[0].width = c.buffers[2].width = int64_t(1) << 40; },
      { Find(CGR_ERROR_INVALID_ARGUMENT, "buffers[0]", { "64 x" }), Find(CGR_ERROR_INVALID_ARGUMENT, "buffers[2]", { "17 x" }) });
  Refused(
      [](GoodConfig &c) {
        c.buffers[1].width = int64_t(1) << 40;
        c.buffers[1].dtype = CGR_DTYPE_I64;
      },
      { Find(CGR_ERROR_INVALID_ARGUMENT, "config", { "the buffers would take", "2^46 bytes" }) });
}

TEST_P(ConfigBuffers, PaddingIsAValueOfTheDtype) {
  struct Values {
    int32_t dtype;
    int64_t low, high;
  };
  for (const Values &v : { Values{ CGR_DTYPE_I8, -128, 127 }, Values{ CGR_DTYPE_U8, 0, 255 },
                           Values{ CGR_DTYPE_I32, INT32_MIN, INT32_MAX }, Values{ CGR_DTYPE_FP32, -(1 << 24), 1 << 24 } }) {
    for (int64_t good : { v.low, v.high, int64_t(0) })
      AcceptedBuffer([&](cgr_buffer_decl &b) { b.dtype = v.dtype, b.padding = good; });
    for (int64_t bad : { v.low - 1, v.high + 1, INT64_MIN, INT64_MAX })
      RefusedBuffer([&](cgr_buffer_decl &b) { b.dtype = v.dtype, b.padding = bad; },
                    { Bad("padding", { "is " + std::to_string(bad), std::to_string(v.low) + " .. " + std::to_string(v.high) }) });
  }
  for (int64_t good : { INT64_MIN, INT64_MAX })
    AcceptedBuffer([&](cgr_buffer_decl &b) { b.dtype = CGR_DTYPE_I64, b.padding = good; });
  for (int32_t dtype : { CGR_DTYPE_FP16, CGR_DTYPE_BF16, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2 })
    for (int64_t bad : { 1, -1 })
      RefusedBuffer([&](cgr_buffer_decl &b) { b.dtype = dtype, b.padding = bad; },
                    { FindInBuffer(1, CGR_ERROR_UNSUPPORTED, "padding",
                                   { "is " + std::to_string(bad), cgr_dtype_name(cgr_dtype(dtype)) }) });
}

TEST_P(ConfigBuffers, MayBeWrongInEveryField) {
  RefusedBuffer(
      [](cgr_buffer_decl &b) {
        b.name = "";
        b.dimension = 9;
        b.source = 9;
        b.width = -9;
        b.dtype = 99;
        b.padding = 9;
      },
      { Bad("name", { "1 to 31" }), FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "dimension", { "is 9" }),
        FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "source", { "is 9" }), Bad("width", { "is -9" }),
        FindInBuffer(1, CGR_ERROR_INVALID_ENUM, "dtype", { "is 99" }) });
}

TEST_P(ConfigBuffers, MustBeGivenWhenTheyAreCounted) {
  Refused([](GoodConfig &c) { c.config.buffers = nullptr; }, { Find(CGR_ERROR_NULL_POINTER, "buffers", { "NULL", "3" }) });
}

// ------------------------------------------------------------------------------------------------- memory of the caller

class ConfigMemory : public ConfigTest {
protected:
  void SetUp() override {
    ConfigTest::SetUp();
    if (device_ == nullptr)
      return;
    GoodConfig good(device_);
    CGR_ASSERT_OK(cgr_runtime_memory(&good.config, &sizes_));
    CGR_ASSERT_OK(cgr_memory_alloc(device_, sizes_.device_bytes, &arena_));
    CGR_ASSERT_OK(cgr_memory_alloc_pinned(device_, sizes_.pinned_bytes, &rings_));
  }
  void TearDown() override {
    if (device_ == nullptr)
      return;
    CGR_EXPECT_OK(cgr_memory_free(device_, arena_));
    CGR_EXPECT_OK(cgr_memory_free_pinned(device_, rings_));
    ConfigTest::TearDown();
  }
  // The good configuration over the test's memory, which is good too, and then changed.
  void RefusedMemory(const Change &change, const std::vector<Found> &want) {
    GoodConfig c(device_);
    Give(c);
    AcceptedAsItIs(c.config);
    change(c);
    RefusedAsItIs(c.config, want);
  }
  void Give(GoodConfig &c) const {
    c.config.device_memory = arena_;
    c.config.device_memory_size = sizes_.device_bytes;
    c.config.pinned_memory = rings_;
    c.config.pinned_memory_size = sizes_.pinned_bytes;
  }
  static Found Bad(const char *field, const Words &words) { return Find(CGR_ERROR_INVALID_ARGUMENT, field, words); }
  static std::string Is(uint64_t bytes) { return "is " + std::to_string(bytes) + ","; }

  cgr_memory_sizes sizes_ = CGR_MEMORY_SIZES_INIT;
  void *arena_ = nullptr, *rings_ = nullptr;
};

TEST_P(ConfigMemory, TooSmallIsRefused) {
  for (size_t have : { size_t(0), size_t(1), size_t(sizes_.device_bytes - 1) })
    RefusedMemory([&](GoodConfig &c) { c.config.device_memory_size = have; },
                  { Bad("device_memory_size", { Is(have), "at least " + std::to_string(sizes_.device_bytes) }) });
  for (size_t have : { size_t(0), size_t(1), size_t(sizes_.pinned_bytes - 1) })
    RefusedMemory([&](GoodConfig &c) { c.config.pinned_memory_size = have; },
                  { Bad("pinned_memory_size", { Is(have), "at least " + std::to_string(sizes_.pinned_bytes) }) });
}

TEST_P(ConfigMemory, MisalignedIsRefused) {
  for (int offset : { 1, 16, 128 }) {
    RefusedMemory([&](GoodConfig &c) { c.config.device_memory = static_cast<char *>(arena_) + offset; },
                  { Bad("device_memory", { "multiple of 256" }) });
    RefusedMemory([&](GoodConfig &c) { c.config.pinned_memory = static_cast<char *>(rings_) + offset; },
                  { Bad("pinned_memory", { "multiple of 256" }) });
  }
}

TEST_P(ConfigMemory, SizesOfNoMemoryAreRefused) {
  RefusedMemory([](GoodConfig &c) { c.config.device_memory = nullptr; },
                { Find(CGR_ERROR_NULL_POINTER, "device_memory", { "NULL", std::to_string(sizes_.device_bytes) }) });
  RefusedMemory([](GoodConfig &c) { c.config.pinned_memory = nullptr; },
                { Find(CGR_ERROR_NULL_POINTER, "pinned_memory", { "NULL", std::to_string(sizes_.pinned_bytes) }) });
}

// Either kind may be given without the other.
TEST_P(ConfigMemory, OneKindIsEnough) {
  GoodConfig device_alone(device_), pinned_alone(device_);
  Give(device_alone);
  Give(pinned_alone);
  device_alone.config.pinned_memory = nullptr;
  device_alone.config.pinned_memory_size = 0;
  pinned_alone.config.device_memory = nullptr;
  pinned_alone.config.device_memory_size = 0;
  AcceptedAsItIs(device_alone.config);
  AcceptedAsItIs(pinned_alone.config);
}

TEST_P(ConfigMemory, EverythingMayBeWrong) {
  RefusedMemory(
      [&](GoodConfig &c) {
        c.config.device_memory = static_cast<char *>(arena_) + 16;
        c.config.device_memory_size -= 16;
        c.config.pinned_memory = static_cast<char *>(rings_) + 16;
        c.config.pinned_memory_size -= 16;
      },
      { Bad("device_memory_size", { Is(sizes_.device_bytes - 16) }), Bad("device_memory", { "256" }),
        Bad("pinned_memory_size", { Is(sizes_.pinned_bytes - 16) }), Bad("pinned_memory", { "256" }) });
}

// ---- overlaps. Nothing reads the memory of a configuration that is only validated: its addresses are made up.

TEST_P(ConfigMemory, HasNothingElseInIt) {
  const size_t half = GoodConfig::kLayerBytes / 2, cache = 64 * 2048 * 2; // bytes that are given, and those of a view
  auto device_at = [&](char *base) {
    return [=](GoodConfig &c) { c.config.device_memory = base, c.config.device_memory_size = half; };
  };
  auto pinned_at = [&](char *base) {
    return [=](GoodConfig &c) { c.config.pinned_memory = base, c.config.pinned_memory_size = half; };
  };
  ASSERT_LT(sizes_.device_bytes, half);
  char *k1 = GoodConfig::Address(2);
  Refused(device_at(k1), { Bad("device_memory", { "overlaps layers[1].k", "its own" }) });
  Refused(pinned_at(k1), { Bad("pinned_memory", { "overlaps layers[1].k" }) });
  Refused(device_at(k1 + cache - 256), { Bad("device_memory", { "overlaps layers[1].k" }) });
  ASSERT_EQ(sizes_.device_bytes % 256, 0u);
  Refused(device_at(k1 - sizes_.device_bytes + 256), { Bad("device_memory", { "overlaps layers[1].k" }) });
  Accepted(device_at(k1 + cache));
  Accepted(device_at(k1 - sizes_.device_bytes)); // of what is given only the beginning is used
  Refused(
      [&](GoodConfig &c) {
        device_at(GoodConfig::Address(9))(c);
        pinned_at(GoodConfig::Address(9) + 4096)(c);
      },
      { Bad("pinned_memory", { "overlaps device_memory" }) });
  Accepted([&](GoodConfig &c) { // between the pages of a cache
    c.layers[1].k.stride_page = int64_t(1) << 20;
    c.layers[1].k.base = GoodConfig::Address(100);
    device_at(GoodConfig::Address(100) + 4096)(c);
  });
}

TEST_P(ConfigMemory, HasNoPageTableInIt) {
  auto table = [](GoodConfig &c, char *base, int64_t stride) {
    c.groups[0].page_table = reinterpret_cast<const int32_t *>(base);
    c.groups[0].page_table_stride = stride;
  };
  char *free = GoodConfig::Address(9);
  const size_t bytes = (16 * 40 + 32) * 4; // 17 rows of 32 pages, 40 apart
  const Found over = { CGR_ERROR_INVALID_ARGUMENT, -1, 0, "groups[0].page_table", { "overlaps layers[0].k" } };
  auto with_device = [&](char *base, int64_t stride) {
    return [=](GoodConfig &c) {
      table(c, free, stride);
      c.config.device_memory = base, c.config.device_memory_size = GoodConfig::kLayerBytes;
    };
  };
  Refused(with_device(free + 2560, 40), { Bad("device_memory", { "overlaps groups[0].page_table" }) });
  Accepted(with_device(free + (bytes + 255) / 256 * 256, 40));
  Accepted(with_device(free + 256, int64_t(1) << 28));                    // between two rows
  for (uintptr_t far : { uintptr_t(INT64_MAX) - 255, UINTPTR_MAX - 255 }) // addresses at the ends of what is counted in
    Refused(
        [&](GoodConfig &c) {
          table(c, reinterpret_cast<char *>(far), 31);
          c.config.device_memory = reinterpret_cast<char *>(far);
        },
        { FindInGroup(0, CGR_ERROR_INVALID_ARGUMENT, "page_table_stride", { "is 31" }), Bad("device_memory_size", { "is 0" }) });
  Refused([&](GoodConfig &c) { table(c, GoodConfig::Address(0) - 64, 32); }, { over });
  Accepted([&](GoodConfig &c) { table(c, GoodConfig::Address(0) - 17 * 128, 32); });
}

// The required sizes can always be queried, whatever memory has been given by then.
TEST_P(ConfigMemory, SizesAreToldWhateverIsGiven) {
  GoodConfig c(device_);
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  Give(c);
  c.config.device_memory_size = c.config.pinned_memory_size = 1;
  CGR_EXPECT_OK(cgr_runtime_memory(&c.config, &sizes));
  EXPECT_EQ(sizes.device_bytes, sizes_.device_bytes);
  EXPECT_EQ(sizes.pinned_bytes, sizes_.pinned_bytes);
  EXPECT_EQ(sizes.host_bytes, sizes_.host_bytes);
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigBuffers);
CGR_INSTANTIATE_CONFIG_TEST(ConfigMemory);

} // namespace
} // namespace cgr_test

// Declarations of the engine's own buffers that must be refused, and memory from the caller that is unsuitable.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigBuffers : public ConfigTest {};

TEST_P(ConfigBuffers, NamesHaveOneTo31Characters) {
  static const std::string longest(31, 'n'), longer(32, 'n'), very_long(300, 'n');
  for (const char *good : { longest.c_str(), "n", "a name" })
    Accepted([&](Good &c) { c.buffers[1].name = good; });
  const std::string cut = "buffers[1].name is \"" + longest + "...\", expected 1 to 31 characters";
  EachRefused({
      { kArgument, "buffers[1].name is \"\", expected 1 to 31 characters", [](Good &c) { c.buffers[1].name = ""; } },
      { kArgument, cut, [](Good &c) { c.buffers[1].name = longer.c_str(); } },
      { kArgument, cut, [](Good &c) { c.buffers[1].name = very_long.c_str(); } },
      { kNull, "buffers[1].name is NULL", [](Good &c) { c.buffers[1].name = nullptr; } },
      // A name that is no good belongs to no buffer.
      { kArgument, "buffers[0].name ... 1 to 31",
        [](Good &c) { c.buffers[0].name = longer.c_str(), c.buffers[1].name = longest.c_str(); } },
  });
}

TEST_P(ConfigBuffers, NamesAreUnique) {
  EachRefused({
      { kArgument, "buffers[1].name is \"a\", which buffers[0] has already, expected another",
        [](Good &c) { c.buffers[1].name = "a"; } },
      { kArgument, "buffers[2].name is \"b\" ... buffers[1]", [](Good &c) { c.buffers[2].name = c.buffers[1].name; } },
      { kArgument, "buffers[1].name is \"same\" ... buffers[0]",
        [](Good &c) { c.buffers[0].name = c.buffers[1].name = "same", c.buffers[2].name = "other"; } },
  });
  Accepted([](Good &c) { c.buffers[1].name = "A"; });
}

// 2^43 elements at most, of 8 requests, and 2^46 bytes of all buffers.
TEST_P(ConfigBuffers, FieldsAreWithinTheirBounds) {
  const int64_t most = int64_t(1) << 40;
  std::vector<int64_t> dtypes;
  for (int64_t dtype = CGR_DTYPE_FP32; dtype <= CGR_DTYPE_U8; dtype++)
    dtypes.push_back(dtype);
  EachField({
      Field(kEnum, "buffers[1].dimension is #, expected 1 .. 3, a cgr_dimension (1 tokens, 2 requests, 3 rows)",
            Of(&cgr_buffer_decl::dimension), { 1, 2, 3 }, { 0, -1, 4, 7, INT32_MAX }),
      Field(kEnum, "buffers[1].source is #, expected 1 .. 2, a cgr_source (1 device, 2 staged)", Of(&cgr_buffer_decl::source),
            { 1, 2 }, { -1, 3, 7, INT32_MIN }),
      Field(kEnum, "buffers[1].dtype is #, expected " + std::string(kDtypes), Of(&cgr_buffer_decl::dtype), dtypes,
            { 0, -1, 12, 99, INT32_MAX }),
      Field(kArgument, "buffers[1].width is # ... 1 .. 1099511627776", Of(&cgr_buffer_decl::width), { 0, 1, most },
            { -1, INT64_MIN, most + 1, INT64_MAX }),
  });
  Refused([=](Good &c) { c.buffers[0].width = most; }, kArgument, "buffers[0] would have 64 x 1099511627776 ... 2^43");
  Refused([=](Good &c) { c.buffers[0].width = c.buffers[2].width = most; },
          { { kArgument, "buffers[0] would have 64 x" }, { kArgument, "buffers[2] would have 17 x" } });
  Refused([=](Good &c) { c.buffers[1].width = most, c.buffers[1].dtype = CGR_DTYPE_I64; }, kArgument,
          "config the buffers would take ... 2^46 bytes");
}

// Staged rows travel in words.
TEST_P(ConfigBuffers, StagedRowsAreWords) {
  const auto rows = [](int32_t dtype, int64_t width, int32_t dimension = CGR_DIMENSION_ROWS) {
    return [=](Good &c) {
      c.buffers[1].source = CGR_SOURCE_STAGED;
      c.buffers[1].dimension = dimension;
      c.buffers[1].dtype = dtype;
      c.buffers[1].width = width;
    };
  };
  EachAccepted({ rows(CGR_DTYPE_U8, 4), rows(CGR_DTYPE_BF16, 6), rows(CGR_DTYPE_I64, 1 << 17),
                 rows(CGR_DTYPE_U8, 7, CGR_DIMENSION_TOKENS), rows(CGR_DTYPE_U8, 7, CGR_DIMENSION_REQUESTS) });
  EachRefused({ { kArgument, "buffers[1].width is 7 ... 7 bytes ... multiple of 4", rows(CGR_DTYPE_U8, 7) },
                { kArgument, "buffers[1].width is 5 ... 10 bytes", rows(CGR_DTYPE_BF16, 5) },
                { kArgument, "buffers[1].width ... 1048584 bytes ... 2^20", rows(CGR_DTYPE_I64, (1 << 17) + 1) } });
}

TEST_P(ConfigBuffers, PaddingIsAValueOfTheDtype) {
  const auto of = [](int32_t dtype) {
    return [=](Good &c, int64_t value) { c.buffers[1].dtype = dtype, c.buffers[1].padding = value; };
  };
  const auto bounded = [&](int32_t dtype, int64_t low, int64_t high) {
    return Field{ kArgument,
                  "buffers[1].padding is # ... " + std::to_string(low) + " .. " + std::to_string(high),
                  of(dtype),
                  { low, high, 0 },
                  { low - 1, high + 1, INT64_MIN, INT64_MAX } };
  };
  EachField({ bounded(CGR_DTYPE_I8, -128, 127), bounded(CGR_DTYPE_U8, 0, 255), bounded(CGR_DTYPE_I32, INT32_MIN, INT32_MAX),
              bounded(CGR_DTYPE_FP32, -(1 << 24), 1 << 24) });
  EachField({ Field(kUnsupported, "buffers[1].padding is # ... fp16", of(CGR_DTYPE_FP16), {}, { 1, -1 }),
              Field(kUnsupported, "buffers[1].padding is # ... bf16", of(CGR_DTYPE_BF16), {}, { 1, -1 }),
              Field(kUnsupported, "buffers[1].padding is # ... fp8_e4m3", of(CGR_DTYPE_FP8_E4M3), {}, { 1, -1 }),
              Field(kUnsupported, "buffers[1].padding is # ... fp8_e5m2", of(CGR_DTYPE_FP8_E5M2), {}, { 1, -1 }),
              Field(CGR_OK, "", of(CGR_DTYPE_I64), { INT64_MIN, INT64_MAX }, {}) });
}

// ------------------------------------------------------------------------------------------------- memory of the caller

class ConfigMemory : public ConfigTest {
protected:
  void SetUpOnDevice() override {
    ConfigTest::SetUpOnDevice();
    Good good(device_);
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
  void Give(Good &c) const {
    c.config.device_memory = arena_, c.config.device_memory_size = sizes_.device_bytes;
    c.config.pinned_memory = rings_, c.config.pinned_memory_size = sizes_.pinned_bytes;
  }
  // From here on each configuration is over the test's memory.
  void GiveToEach() {
    more_ = [this](Good &c) { Give(c); };
  }

  cgr_memory_sizes sizes_ = CGR_MEMORY_SIZES_INIT;
  void *arena_ = nullptr, *rings_ = nullptr;
};

TEST_P(ConfigMemory, TooSmallMisalignedOrMissingIsRefused) {
  const std::string device = std::to_string(sizes_.device_bytes), pinned = std::to_string(sizes_.pinned_bytes);
  const auto at = [](void *memory, int64_t offset) { return static_cast<char *>(memory) + offset; };
  const auto device_at = [&](Good &c, int64_t offset) { c.config.device_memory = at(arena_, offset); };
  const auto pinned_at = [&](Good &c, int64_t offset) { c.config.pinned_memory = at(rings_, offset); };
  GiveToEach();
  EachField({
      Field(kArgument, "device_memory_size is #, ... at least " + device, Of(&cgr_config::device_memory_size), {},
            { 0, 1, int64_t(sizes_.device_bytes) - 1 }),
      Field(kArgument, "pinned_memory_size is #, ... at least " + pinned, Of(&cgr_config::pinned_memory_size), {},
            { 0, 1, int64_t(sizes_.pinned_bytes) - 1 }),
      Field(kArgument, "device_memory ... multiple of 256", device_at, {}, { 1, 16, 128 }),
      Field(kArgument, "pinned_memory ... multiple of 256", pinned_at, {}, { 1, 16, 128 }),
  });
  EachRefused({ { kNull, "device_memory is NULL ... " + device, [](Good &c) { c.config.device_memory = nullptr; } },
                { kNull, "pinned_memory is NULL ... " + pinned, [](Good &c) { c.config.pinned_memory = nullptr; } } });
  Refused(
      [&](Good &c) {
        device_at(c, 16);
        pinned_at(c, 16);
        c.config.device_memory_size -= 16;
        c.config.pinned_memory_size -= 16;
      },
      { { kArgument, "device_memory_size is " + std::to_string(sizes_.device_bytes - 16) + "," },
        { kArgument, "device_memory ... 256" },
        { kArgument, "pinned_memory_size is " + std::to_string(sizes_.pinned_bytes - 16) + "," },
        { kArgument, "pinned_memory ... 256" } });
}

// Either kind may be given without the other.
TEST_P(ConfigMemory, OneKindIsEnough) {
  Good both(device_), device_alone(device_), pinned_alone(device_);
  Give(both);
  Give(device_alone);
  Give(pinned_alone);
  device_alone.config.pinned_memory = nullptr, device_alone.config.pinned_memory_size = 0;
  pinned_alone.config.device_memory = nullptr, pinned_alone.config.device_memory_size = 0;
  AcceptedAsItIs(both.config);
  AcceptedAsItIs(device_alone.config);
  AcceptedAsItIs(pinned_alone.config);
}

// ---- overlaps. Nothing reads the memory of a configuration that is only validated: its addresses are made up.

TEST_P(ConfigMemory, HasNothingElseInIt) {
  const size_t half = Good::kLayerBytes / 2, cache = 64 * 2048 * 2; // bytes that are given, and those of a view
  auto device_at = [&](char *base) {
    return [=](Good &c) { c.config.device_memory = base, c.config.device_memory_size = half; };
  };
  auto pinned_at = [&](char *base) {
    return [=](Good &c) { c.config.pinned_memory = base, c.config.pinned_memory_size = half; };
  };
  ASSERT_LT(sizes_.device_bytes, half);
  ASSERT_EQ(sizes_.device_bytes % 256, 0u);
  char *const k1 = Good::Address(2), *const free = Good::Address(9), *const far = Good::Address(100);
  EachRefused({
      { kArgument, "device_memory overlaps layers[1].k ... its own", device_at(k1) },
      { kArgument, "pinned_memory overlaps layers[1].k", pinned_at(k1) },
      { kArgument, "device_memory overlaps layers[1].k", device_at(k1 + cache - 256) },
      { kArgument, "device_memory overlaps layers[1].k", device_at(k1 - sizes_.device_bytes + 256) },
      { kArgument, "pinned_memory overlaps device_memory", [&](Good &c) { device_at(free)(c), pinned_at(free + 4096)(c); } },
  });
  Accepted(device_at(k1 + cache));
  Accepted(device_at(k1 - sizes_.device_bytes)); // of what is given only the beginning is used
  Accepted([&](Good &c) {                        // between the pages of a cache
    c.layers[1].k.stride_page = int64_t(1) << 20;
    c.layers[1].k.base = far;
    device_at(far + 4096)(c);
  });
}

TEST_P(ConfigMemory, HasNoPageTableInIt) {
  auto table = [](Good &c, char *base, int64_t stride) {
    c.groups[0].page_table = reinterpret_cast<const int32_t *>(base);
    c.groups[0].page_table_stride = stride;
  };
  char *free = Good::Address(9);
  const size_t bytes = (16 * 40 + 32) * 4; // 17 rows of 32 pages, 40 apart
  auto with_device = [&](char *base, int64_t stride) {
    return [=](Good &c) {
      table(c, free, stride);
      c.config.device_memory = base, c.config.device_memory_size = Good::kLayerBytes;
    };
  };
  Refused(with_device(free + 2560, 40), kArgument, "device_memory overlaps groups[0].page_table");
  Accepted(with_device(free + (bytes + 255) / 256 * 256, 40));
  Accepted(with_device(free + 256, int64_t(1) << 28));                    // between two rows
  for (uintptr_t far : { uintptr_t(INT64_MAX) - 255, UINTPTR_MAX - 255 }) // addresses at the ends of what is counted in
    Refused(
        [&](Good &c) {
          table(c, reinterpret_cast<char *>(far), 31);
          c.config.device_memory = reinterpret_cast<char *>(far);
        },
        { { kArgument, "groups[0].page_table_stride is 31" },
          { kArgument, "groups[0].page_table is 0x ... at most 0x7effffffffffffff" },
          { kArgument, "device_memory_size is 0" } });
  Refused([&](Good &c) { table(c, Good::Address(0) - 64, 32); }, kArgument, "groups[0].page_table overlaps layers[0].k");
  Accepted([&](Good &c) { table(c, Good::Address(0) - 17 * 128, 32); });
}

// The required sizes can always be queried, whatever memory has been given by then.
TEST_P(ConfigMemory, SizesAreToldWhateverIsGiven) {
  Good c(device_);
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

// The location and initial contents of the persistent buffers; memory supplied by the caller; the location of the trash pages.
#include <cstring>

#include "cgr/names.h"
#include "devices/shims/fault.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class Memory : public OverDevices {};

// ---- memory supplied by the caller

// Device and pinned memory of the sizes that cgr_runtime_memory reports, with extra bytes after both.
class Supplied {
public:
  enum { kAfter = 512 };
  explicit Supplied(Engine &owner) : owner_(owner) {
    cgr_config config = owner.Config();
    CGR_EXPECT_OK(cgr_runtime_memory(&config, &sizes));
    device = static_cast<unsigned char *>(owner.Alloc(sizes.device_bytes + kAfter));
    pinned = static_cast<unsigned char *>(owner.Alloc(sizes.pinned_bytes + kAfter, true));
    CGR_EXPECT_OK(cgr_fill(owner.dev, device, 0xA5, sizes.device_bytes + kAfter, owner.stream));
    owner.Sync();
    std::memset(pinned, 0xA5, sizes.pinned_bytes + kAfter);
  }
  void GiveTo(cgr_config *config) const {
    config->device_memory = device, config->device_memory_size = sizes.device_bytes;
    config->pinned_memory = pinned, config->pinned_memory_size = sizes.pinned_bytes;
  }
  void ExpectNothingWrittenAfter() {
    for (unsigned char byte : owner_.Read<unsigned char>(device + sizes.device_bytes, kAfter))
      ASSERT_EQ(byte, 0xA5);
    for (size_t i = 0; i < kAfter; i++)
      ASSERT_EQ(pinned[sizes.pinned_bytes + i], 0xA5);
  }
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  unsigned char *device = nullptr, *pinned = nullptr;

private:
  Engine &owner_;
};

TEST_P(Memory, TheCallersMemoryIsUsedAndNothingAfterIt) {
  Engine owner(OptionsFor(GetParam()));
  Supplied supplied(owner);
  ASSERT_GT(supplied.sizes.device_bytes, 0u);
  ASSERT_GT(supplied.sizes.pinned_bytes, 0u);
  ASSERT_GT(supplied.sizes.host_bytes, 0u);
  for (int n = 0; n < 2; n++) { // twice over the same memory, as after a restart
    Captured<Engine> engine(OptionsFor(GetParam(), [&](cgr_config *config) { supplied.GiveTo(config); }));
    unsigned char *counts = static_cast<unsigned char *>(engine.View(CGR_BUFFER_COUNTS).data);
    EXPECT_GE(counts, supplied.device);
    EXPECT_LT(counts, supplied.device + supplied.sizes.device_bytes);
    int32_t a = engine.Start(20, 1), b = engine.Start(3, 2);
    for (int k = 0; k < 10 && !HasFatalFailure(); k++)
      engine.Step(engine.Decode({ a, b }));
  }
  supplied.ExpectNothingWrittenAfter();
}

TEST_P(Memory, TheCallersMemoryIsRefusedWhenTooSmallOrMisaligned) {
  Engine owner(OptionsFor(GetParam()));
  Supplied supplied(owner);
  auto refused = [&](const Words &words, const std::function<void(cgr_config *)> &change) {
    cgr_config bad = owner.Config();
    cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
    supplied.GiveTo(&bad);
    change(&bad);
    ExpectMessage(cgr_runtime_create(&bad, &runtime), CGR_ERROR_INVALID_ARGUMENT, words);
    EXPECT_EQ(runtime, nullptr);
  };
  std::string device = std::to_string(supplied.sizes.device_bytes), pinned = std::to_string(supplied.sizes.pinned_bytes);
  refused({ "device_memory_size is " + std::to_string(supplied.sizes.device_bytes - 1), device, "cgr_runtime_memory" },
          [](cgr_config *c) { c->device_memory_size--; });
  refused({ "pinned_memory_size is " + std::to_string(supplied.sizes.pinned_bytes - 1), pinned },
          [](cgr_config *c) { c->pinned_memory_size--; });
  refused({ "device_memory is", "256" }, [&](cgr_config *c) { c->device_memory = supplied.device + 16; });
  refused({ "pinned_memory is", "256" }, [&](cgr_config *c) { c->pinned_memory = supplied.pinned + 64; });
}

// The error says what the failed allocation was for and how many bytes it asked for.
TEST_P(Memory, AnAllocationThatFailsIsToldWithItsBytes) {
  EngineOptions options = OptionsFor(GetParam());
  ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &options.handle), CGR__DEVICE_OK);
  Engine engine(options);
  cgr_config config = engine.Config();
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
  for (uint64_t nth : { 1, 2 }) {
    cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
    cgr__fault_plan plan = { CGR__OP_MEM_ALLOC, nth, CGR__FAULT_ONCE, 0, CGR__DEVICE_NO_MEMORY, 2 };
    cgr__fault_set(engine.dev, &plan);
    std::string bytes = std::to_string(nth == 1 ? sizes.device_bytes : sizes.pinned_bytes) + " bytes";
    ExpectMessage(cgr_runtime_create(&config, &runtime), CGR_ERROR_OUT_OF_MEMORY, { bytes, nth == 1 ? "arena" : "rings" });
    EXPECT_EQ(runtime, nullptr);
    cgr__fault_set(engine.dev, nullptr);
  }
}

// Two runtimes side by side on one device do not touch each other.
TEST_P(Memory, TwoRuntimesOnOneDeviceShareNone) {
  Engine a(OptionsFor(GetParam()));
  cgr_runtime *other = nullptr;
  cgr_config config = a.Config();
  CGR_ASSERT_OK(a.Capture());
  CGR_ASSERT_OK(cgr_runtime_create(&config, &other));
  int32_t row = a.Start(20, 1), foreign = -1;
  CGR_ASSERT_OK(cgr_request_open(other, 5, &foreign));
  EXPECT_EQ(foreign, row);
  cgr_batch dummy = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  for (int n = 0; n < 4; n++) {
    CGR_ASSERT_OK(cgr_step_prepare(other, &dummy, &step));
    CGR_ASSERT_OK(cgr_step_launch(other, &step, a.stream));
    a.Step(a.Decode({ row }));
    CGR_ASSERT_OK(cgr_step_wait(other, step.mark, -1, nullptr));
    EXPECT_EQ(step.mark.seq, uint64_t(n + 1));
  }
  CGR_ASSERT_OK(cgr_runtime_destroy(other));
  a.Step(a.Decode({ row }));
}

// ---- what the buffers are

struct Want {
  cgr_buffer buffer;
  cgr_dtype dtype;
  int64_t rows, columns;
  int64_t fill;
};

TEST_P(Memory, BuffersAreDistinctAndHoldTheirPadding) {
  cgr_buffer_decl declared[3] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  declared[0] = { declared[0].size, CGR_DIMENSION_TOKENS, CGR_DTYPE_BF16, CGR_SOURCE_DEVICE, 33, "hidden", 0 };
  declared[1] = { declared[1].size, CGR_DIMENSION_REQUESTS, CGR_DTYPE_FP32, 0, 61, "logits", -3 };
  declared[2] = { declared[2].size, CGR_DIMENSION_ROWS, CGR_DTYPE_I8, 0, 0, "a name of thirty-one characters", -7 };
  Engine engine(OptionsFor(GetParam(), [&](cgr_config *config) { config->buffers = declared, config->num_buffers = 3; }));
  ASSERT_NE(engine.rt, nullptr);
  const int64_t R = 8, M = 16, T = 64, P = 10;
  std::vector<std::pair<unsigned char *, unsigned char *>> ranges;
  auto add = [&](const cgr_buffer_view &view) {
    unsigned char *begin = static_cast<unsigned char *>(view.data);
    EXPECT_NE(begin, nullptr);
    EXPECT_EQ(uintptr_t(begin) % 16, 0u);
    EXPECT_GE(view.stride, view.shape[1]);
    ranges.push_back({ begin, begin + size_t(view.shape[0] * view.stride) * cgr_dtype_size(cgr_dtype(view.dtype)) });
  };
  for (const Want &want : std::vector<Want>{ { CGR_BUFFER_INPUT_IDS, CGR_DTYPE_I32, T, 1, 0 },
                                             { CGR_BUFFER_POSITIONS, CGR_DTYPE_I32, T, 1, 0 },
                                             { CGR_BUFFER_SLOT_MAPPING, CGR_DTYPE_I64, T, 1, -1 },
                                             { CGR_BUFFER_QUERY_START_LOC, CGR_DTYPE_I32, R + 1, 1, 0 },
                                             { CGR_BUFFER_SEQ_LENS, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_REQUEST_ROWS, CGR_DTYPE_I32, R, 1, M },
                                             { CGR_BUFFER_PAGE_TABLE, CGR_DTYPE_I32, M + 1, P, 0 },
                                             { CGR_BUFFER_KV_INDPTR, CGR_DTYPE_I32, R + 1, 1, 0 },
                                             { CGR_BUFFER_KV_LAST_PAGE_LEN, CGR_DTYPE_I32, R, 1, 1 },
                                             { CGR_BUFFER_ROW_COMPUTED, CGR_DTYPE_I32, M + 1, 1, 0 },
                                             { CGR_BUFFER_ROW_LAST_TOKENS, CGR_DTYPE_I32, M + 1, 1, 0 },
                                             { CGR_BUFFER_ROW_NUM_ACCEPTED, CGR_DTYPE_I32, M + 1, 1, 0 },
                                             { CGR_BUFFER_LOGITS_INDICES, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_NEXT_TOKENS, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_COUNTS, CGR_DTYPE_I32, 16, 1, 0 } }) {
    SCOPED_TRACE(cgr_buffer_name(want.buffer));
    cgr_buffer_view view = engine.View(want.buffer);
    EXPECT_EQ(view.dtype, want.dtype);
    EXPECT_EQ(view.shape[0], want.rows);
    EXPECT_EQ(view.shape[1], want.columns);
    for (int64_t value : engine.Buffer(want.buffer))
      ASSERT_EQ(value, want.fill);
    EXPECT_EQ(engine.View(want.buffer).data, view.data);
    add(view);
  }
  add(engine.View(CGR_BUFFER_PLAN));
  const int64_t rows[] = { T, R, M + 1 }, widths[] = { 33, 61, 1 };
  for (int i = 0; i < 3; i++) {
    const cgr_buffer_view view = BufferOf(engine.rt, CGR_BUFFER_DECLARED, i);
    EXPECT_EQ(view.dtype, declared[i].dtype);
    EXPECT_EQ(view.shape[0], rows[i]);
    EXPECT_EQ(view.shape[1], widths[i]);
    size_t elements = size_t(rows[i] * widths[i]), bytes = cgr_dtype_size(cgr_dtype(view.dtype));
    std::vector<unsigned char> content = engine.Read<unsigned char>(view.data, elements * bytes), want(4, 0);
    const float logit = -3.0f;
    if (i == 1)
      std::memcpy(want.data(), &logit, 4);
    if (i == 2)
      want[0] = (unsigned char)-7;
    for (size_t e = 0; e < elements; e++)
      ASSERT_EQ(std::memcmp(&content[e * bytes], want.data(), bytes), 0) << declared[i].name << " " << e;
    add(view);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); i++)
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_P(Memory, TrashPagesMayBeElsewhere) {
  EngineOptions options = OptionsFor(GetParam());
  static cgr_group group;
  options.adjust = [](cgr_config *config) {
    group = config->groups[0];
    group.read_trash_page = 126, group.write_trash_page = 127;
    config->groups = &group;
  };
  Engine engine(options);
  for (int64_t page : engine.Buffer(CGR_BUFFER_PAGE_TABLE))
    ASSERT_EQ(page, 126);
  int32_t row = engine.Open(), low[] = { 0, 1 };
  for (int32_t trash : { 126, 127 })
    ExpectRefused(engine, CGR_ERROR_PAGE_OUT_OF_RANGE, { "pages[0] is " + std::to_string(trash), "126", "127" },
                  [&] { return cgr_request_set_pages(engine.rt, row, 0, 0, &trash, 1); });
  CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, low, 2));
  CGR_EXPECT_OK(cgr_request_drop_pages(engine.rt, row, 0, 1, 1));
  CGR_EXPECT_OK(engine.Flush());
  engine.WaitForAll();
  std::vector<int64_t> table = engine.Buffer(CGR_BUFFER_PAGE_TABLE);
  EXPECT_EQ(table[size_t(row) * 10], 0);
  EXPECT_EQ(table[size_t(row) * 10 + 1], 126);
  CGR_EXPECT_OK(cgr_request_close(engine.rt, row));
  engine.requests.clear();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Memory);

} // namespace
} // namespace cgr_test

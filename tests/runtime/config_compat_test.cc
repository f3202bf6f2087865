// Older and newer configuration structs, memory that the caller supplies, and where the buffers lie.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class ConfigCompat : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  // Steps of a runtime that `adjust` has changed are right.
  void Works(const std::function<void(cgr_config *)> &adjust, const std::function<void(Toy &)> &look = nullptr) {
    ToyOptions options = ToyOptionsFor(GetParam());
    options.adjust = adjust;
    Toy toy(options);
    if (HasFatalFailure())
      return;
    CGR_ASSERT_OK(toy.Capture());
    int32_t a = toy.Start(20, 1), b = toy.Start(3, 2);
    for (int n = 0; n < 4 && !HasFatalFailure(); n++)
      toy.Step(toy.Decode({ a, b }));
    if (look)
      look(toy);
  }
};

TEST_P(ConfigCompat, ShorterConfigGetsDefaults) {
  for (size_t size : { offsetof(cgr_config, max_seq_len) + sizeof(int32_t), offsetof(cgr_config, num_buckets),
                       offsetof(cgr_config, max_changes), offsetof(cgr_config, device_memory) }) {
    SCOPED_TRACE(size);
    Works(
        [size](cgr_config *config) {
          config->size = static_cast<uint32_t>(size);
          // What lies behind is not the struct's: it must not be looked at.
          std::memset(reinterpret_cast<unsigned char *>(config) + size, 0xA5, sizeof *config - size);
        },
        [](Toy &toy) {
          EXPECT_GE(cgr_runtime_num_keys(toy.rt), 4);
          EXPECT_EQ(toy.step.key.kind, CGR_KIND_FULL);
        });
  }
}

TEST_P(ConfigCompat, ShorterConfigIsReadToItsEndOnly) {
  // On the heap, so that a sanitizer sees a read behind it.
  Toy toy(ToyOptionsFor(GetParam()));
  cgr_config config = toy.Config();
  size_t size = offsetof(cgr_config, max_seq_len) + sizeof(int32_t);
  std::vector<unsigned char> exact(size);
  config.size = static_cast<uint32_t>(size);
  std::memcpy(exact.data(), &config, size);
  cgr_runtime *runtime = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(reinterpret_cast<const cgr_config *>(exact.data()), &runtime));
  const char *reason = nullptr;
  EXPECT_EQ(cgr_runtime_graph_mode(runtime, &reason), CGR_GRAPH_FULL_DECODE_ONLY);
  EXPECT_NE(std::string(reason), ""); // lowered from FULL_AND_PIECEWISE
  CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
}

TEST_P(ConfigCompat, LongerConfigOfALaterVersionIsAccepted) {
  Toy toy(ToyOptionsFor(GetParam()));
  struct {
    cgr_config config;
    unsigned char more[64];
  } longer = { toy.Config(), { 0 } };
  longer.config.size = static_cast<uint32_t>(sizeof longer);
  cgr_runtime *runtime = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&longer.config, &runtime));
  CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
}

TEST_P(ConfigCompat, LaterElementsAreSteppedOverByTheirSize) {
  Toy toy(ToyOptionsFor(GetParam()));
  cgr_config config = toy.Config();
  struct Longer {
    cgr_layer layer;
    unsigned char more[24];
  } layers[2] = { { config.layers[0], { 0 } }, { config.layers[1], { 0 } } };
  for (Longer &layer : layers)
    layer.layer.size = static_cast<uint32_t>(sizeof layer);
  config.layers = &layers[0].layer;
  cgr_runtime *runtime = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&config, &runtime));
  CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
}

TEST_P(ConfigCompat, LongerOutputStructsAreFilledToWhatIsKnown) {
  Toy toy(ToyOptionsFor(GetParam()));
  struct {
    cgr_stats stats;
    unsigned char more[32];
  } longer;
  std::memset(&longer, 0xA5, sizeof longer);
  longer.stats.size = static_cast<uint32_t>(sizeof longer);
  CGR_ASSERT_OK(cgr_runtime_stats(toy.rt, &longer.stats));
  EXPECT_EQ(longer.stats.steps, 0u);
  for (unsigned char byte : longer.more)
    EXPECT_EQ(byte, 0xA5);
}

TEST_P(ConfigCompat, MemoryIsSuppliedByTheCaller) {
  ToyOptions options = ToyOptionsFor(GetParam());
  Toy outer(options);
  if (HasFatalFailure())
    return;
  cgr_config config = outer.Config();
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
  ASSERT_GT(sizes.device_bytes, 0u);
  ASSERT_GT(sizes.pinned_bytes, 0u);
  unsigned char *device_memory = static_cast<unsigned char *>(outer.Alloc(sizes.device_bytes + 512));
  void *pinned = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc_pinned(outer.dev, sizes.pinned_bytes + 512, &pinned));
  unsigned char *pinned_memory = static_cast<unsigned char *>(pinned);
  CGR_ASSERT_OK(cgr_fill(outer.dev, device_memory, 0xA5, sizes.device_bytes + 512, outer.stream));
  outer.Sync();
  std::memset(pinned_memory, 0xA5, sizes.pinned_bytes + 512);

  auto refused = [&](const Words &words, const std::function<void(cgr_config *)> &change) {
    cgr_config bad = config;
    bad.device_memory = device_memory;
    bad.device_memory_size = sizes.device_bytes;
    bad.pinned_memory = pinned_memory;
    bad.pinned_memory_size = sizes.pinned_bytes;
    change(&bad);
    cgr_runtime *runtime = nullptr;
    ExpectMessage(cgr_runtime_create(&bad, &runtime), CGR_ERROR_INVALID_ARGUMENT, words);
    EXPECT_EQ(runtime, nullptr);
  };
  refused({ "device_memory", std::to_string(sizes.device_bytes - 1), std::to_string(sizes.device_bytes) },
          [](cgr_config *c) { c->device_memory_size--; });
  refused({ "pinned_memory", std::to_string(sizes.pinned_bytes - 1), std::to_string(sizes.pinned_bytes) },
          [](cgr_config *c) { c->pinned_memory_size--; });
  refused({ "device_memory", "256" }, [&](cgr_config *c) { c->device_memory = device_memory + 16; });
  refused({ "pinned_memory", "256" }, [&](cgr_config *c) { c->pinned_memory = pinned_memory + 64; });

  // Twice over the same memory, as after a restart.
  for (int n = 0; n < 2; n++) {
    options.adjust = [&](cgr_config *c) {
      c->device_memory = device_memory;
      c->device_memory_size = sizes.device_bytes;
      c->pinned_memory = pinned_memory;
      c->pinned_memory_size = sizes.pinned_bytes;
    };
    Toy toy(options);
    if (HasFatalFailure())
      break;
    CGR_EXPECT_OK(toy.Capture());
    unsigned char *counts = static_cast<unsigned char *>(toy.View(CGR_BUFFER_COUNTS).data);
    EXPECT_GE(counts, device_memory);
    EXPECT_LT(counts, device_memory + sizes.device_bytes);
    int32_t a = toy.Start(20, 1), b = toy.Start(3, 2);
    for (int k = 0; k < 10 && !HasFatalFailure(); k++)
      toy.Step(toy.Decode({ a, b }));
  }
  std::vector<unsigned char> behind = outer.Read<unsigned char>(device_memory + sizes.device_bytes, 512);
  for (unsigned char byte : behind)
    ASSERT_EQ(byte, 0xA5);
  for (size_t i = 0; i < 512; i++)
    ASSERT_EQ(pinned_memory[sizes.pinned_bytes + i], 0xA5);
  CGR_ASSERT_OK(cgr_memory_free_pinned(outer.dev, pinned));
}

TEST_P(ConfigCompat, BuffersAreDistinctAndHoldTheirPadding) {
  static const cgr_buffer_decl buffers[] = {
    { static_cast<uint32_t>(sizeof(cgr_buffer_decl)), CGR_DIM_TOKENS, CGR_DTYPE_BF16, CGR_SOURCE_DEVICE, 33, "hidden", 0 },
    { static_cast<uint32_t>(sizeof(cgr_buffer_decl)), CGR_DIM_REQUESTS, CGR_DTYPE_FP32, CGR_SOURCE_DEVICE, 61, "logits", -3 },
    { static_cast<uint32_t>(sizeof(cgr_buffer_decl)), CGR_DIM_ROWS, CGR_DTYPE_I8, CGR_SOURCE_DEVICE, 1,
      "a name of thirty-one characters", 0 }
  };
  ToyOptions options = ToyOptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    config->buffers = buffers;
    config->num_buffers = 3;
  };
  Toy toy(options);
  if (HasFatalFailure())
    return;
  const int64_t R = 8, M = 16, T = 64, P = 10;
  struct Want {
    cgr_buffer buffer;
    cgr_dtype dtype;
    int64_t rows, columns, fill;
  };
  std::vector<std::pair<unsigned char *, unsigned char *>> ranges;
  auto add = [&](const cgr_buffer_view &view) {
    EXPECT_NE(view.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 16, 0u);
    EXPECT_GE(view.stride, view.shape[1]);
    unsigned char *begin = static_cast<unsigned char *>(view.data);
    ranges.push_back(
        { begin, begin + static_cast<size_t>(view.shape[0] * view.stride) * cgr_dtype_size(static_cast<cgr_dtype>(view.dtype)) });
  };
  for (const Want &want : std::vector<Want>{ { CGR_BUFFER_INPUT_IDS, CGR_DTYPE_I32, T, 1, 0 },
                                             { CGR_BUFFER_POSITIONS, CGR_DTYPE_I32, T, 1, 0 },
                                             { CGR_BUFFER_SLOT_MAPPING, CGR_DTYPE_I64, T, 1, -1 },
                                             { CGR_BUFFER_QUERY_START_LOC, CGR_DTYPE_I32, R + 1, 1, 0 },
                                             { CGR_BUFFER_SEQ_LENS, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_REQUEST_ROWS, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_PAGE_TABLE, CGR_DTYPE_I32, M, P, 0 },
                                             { CGR_BUFFER_KV_INDPTR, CGR_DTYPE_I32, R + 1, 1, 0 },
                                             { CGR_BUFFER_KV_LAST_PAGE_LEN, CGR_DTYPE_I32, R, 1, 1 },
                                             { CGR_BUFFER_ROW_COMPUTED, CGR_DTYPE_I32, M, 1, 0 },
                                             { CGR_BUFFER_ROW_LAST_TOKENS, CGR_DTYPE_I32, M, 1, 0 },
                                             { CGR_BUFFER_ROW_NUM_ACCEPTED, CGR_DTYPE_I32, M, 1, 0 },
                                             { CGR_BUFFER_LOGITS_INDICES, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_NEXT_TOKENS, CGR_DTYPE_I32, R, 1, 0 },
                                             { CGR_BUFFER_COUNTS, CGR_DTYPE_I32, 16, 1, 0 } }) {
    SCOPED_TRACE(want.buffer);
    cgr_buffer_view view = toy.View(want.buffer);
    EXPECT_EQ(view.dtype, want.dtype);
    EXPECT_EQ(view.shape[0], want.rows);
    EXPECT_EQ(view.shape[1], want.columns);
    for (int64_t value : toy.Buffer(want.buffer))
      ASSERT_EQ(value, want.fill);
    EXPECT_EQ(toy.View(want.buffer).data, view.data);
    add(view);
  }
  add(toy.View(CGR_BUFFER_PLAN));
  const int64_t rows[] = { T, R, M }, widths[] = { 33, 61, 1 };
  for (int i = 0; i < 3; i++) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_ASSERT_OK(cgr_buffer_get_declared(toy.rt, buffers[i].name, &view));
    EXPECT_EQ(view.dtype, buffers[i].dtype);
    EXPECT_EQ(view.shape[0], rows[i]);
    EXPECT_EQ(view.shape[1], widths[i]);
    size_t elements = static_cast<size_t>(rows[i] * widths[i]), bytes = cgr_dtype_size(static_cast<cgr_dtype>(view.dtype));
    std::vector<unsigned char> content = toy.Read<unsigned char>(view.data, elements * bytes);
    for (size_t e = 0; e < elements; e++) {
      float logit = -3.0f;
      if (i == 1) {
        ASSERT_EQ(std::memcmp(&content[e * 4], &logit, 4), 0);
      } else {
        for (size_t b = 0; b < bytes; b++)
          ASSERT_EQ(content[e * bytes + b], buffers[i].padding);
      }
    }
    add(view);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); i++)
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_P(ConfigCompat, ModesAreLoweredWithAReason) {
  ToyOptions options = ToyOptionsFor(GetParam());
  struct Want {
    int32_t mode, support;
    cgr_graph_mode lowered;
    bool has_reason;
  };
  for (const Want &want : std::vector<Want>{ { CGR_GRAPH_NONE, 0, CGR_GRAPH_NONE, false },
                                             { CGR_GRAPH_FULL_DECODE_ONLY, 0, CGR_GRAPH_FULL_DECODE_ONLY, false },
                                             { CGR_GRAPH_FULL_DECODE_ONLY, CGR_ATTENTION_NEVER, CGR_GRAPH_NONE, true },
                                             { CGR_GRAPH_FULL_AND_PIECEWISE, 0, CGR_GRAPH_FULL_DECODE_ONLY, true } }) {
    SCOPED_TRACE(std::to_string(want.mode) + " " + std::to_string(want.support));
    options.adjust = [&](cgr_config *config) {
      config->graph_mode = want.mode;
      config->attention_support = want.support;
    };
    Toy toy(options);
    if (HasFatalFailure())
      return;
    const char *reason = nullptr;
    EXPECT_EQ(cgr_runtime_graph_mode(toy.rt, &reason), want.lowered);
    ASSERT_NE(reason, nullptr);
    EXPECT_EQ(reason[0] != '\0', want.has_reason) << reason;
    CGR_ASSERT_OK(toy.Capture());
    toy.Step(toy.Decode({ toy.Start(3, 1) }));
    EXPECT_EQ(toy.step.key.kind, want.lowered == CGR_GRAPH_NONE ? CGR_KIND_NONE : CGR_KIND_FULL);
    EXPECT_EQ(toy.step.reason, want.lowered == CGR_GRAPH_NONE ? CGR_REASON_MODE_NONE : CGR_REASON_EXACT);
  }
}

TEST_P(ConfigCompat, TrashPagesMayBeElsewhere) {
  ToyOptions options = ToyOptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    static cgr_group group;
    group = config->groups[0];
    group.read_trash_page = 0;
    group.write_trash_page = 127;
    config->groups = &group;
  };
  Toy toy(options);
  if (HasFatalFailure())
    return;
  for (int64_t page : toy.Buffer(CGR_BUFFER_PAGE_TABLE))
    ASSERT_EQ(page, 0);
  int32_t row = toy.Open(), trash = 127, one = 1;
  ExpectRefused(toy, CGR_ERROR_PAGE_OUT_OF_RANGE, { "pages[0]", "127" },
                [&] { return cgr_request_set_pages(toy.rt, row, 0, 0, &trash, 1); });
  CGR_EXPECT_OK(cgr_request_set_pages(toy.rt, row, 0, 0, &one, 1));
}

// The engine keeps the page table on the device itself.
TEST_P(ConfigCompat, PageTableOfTheEngine) {
  ToyOptions options = ToyOptionsFor(GetParam());
  Toy outer(options); // for memory that exists before the runtime
  if (HasFatalFailure())
    return;
  const int32_t stride = 13;
  std::vector<int32_t> table(static_cast<size_t>(options.max_rows * stride), 0);
  int32_t *on_device = static_cast<int32_t *>(outer.Alloc(table.size() * sizeof(int32_t)));
  outer.Write(on_device, table.data(), table.size() * sizeof(int32_t));
  options.adjust = [&](cgr_config *config) {
    static cgr_group group;
    group = config->groups[0];
    group.page_table = on_device;
    group.page_table_stride = stride;
    config->groups = &group;
  };
  Toy toy(options);
  if (HasFatalFailure())
    return;
  CGR_ASSERT_OK(toy.Capture());
  EXPECT_EQ(toy.View(CGR_BUFFER_PAGE_TABLE).data, on_device);
  int32_t row = toy.Open(), page = 9;
  cgr_status status = cgr_request_set_pages(toy.rt, row, 0, 0, &page, 1);
  EXPECT_NE(status, CGR_OK) << "the table is the engine's";
  for (int32_t p = 0; p < 10; p++)
    table[static_cast<size_t>(row * stride + p)] = 20 + p;
  toy.Write(on_device, table.data(), table.size() * sizeof(int32_t));
  toy.Step({ { row, Toy::Prompt(15, 1), false } });
  for (int n = 0; n < 20 && !HasFatalFailure(); n++)
    toy.Step({ { row, { CGR_TOKEN_LAST }, false } });
  EXPECT_EQ(toy.step.key.kind, CGR_KIND_FULL);
  // A page outside the pool: flagged by the device; the row goes on once it is repaired.
  table[static_cast<size_t>(row * stride + 1)] = 4000;
  toy.Write(on_device, table.data(), table.size() * sizeof(int32_t));
  CGR_ASSERT_OK(toy.Prepare({ { row, { CGR_TOKEN_LAST }, false } }));
  CGR_ASSERT_OK(toy.Launch());
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(toy.rt, toy.launched, &result));
  EXPECT_EQ(result.error, CGR_STEP_PAGE);
  EXPECT_EQ(result.error_row, row);
  EXPECT_EQ(result.error_value, 4000);
  toy.Forget();
  toy.Rewind(row, 15);
  table[static_cast<size_t>(row * stride + 1)] = 21;
  toy.Write(on_device, table.data(), table.size() * sizeof(int32_t));
  for (int n = 0; n < 5 && !HasFatalFailure(); n++)
    toy.Step({ { row, { n + 1 }, false } });
}

INSTANTIATE_TEST_SUITE_P(Devices, ConfigCompat,
                         ::testing::Values(HostParam(CGR_HOST_ASYNC), HostParam(CGR_HOST_LATEST), CudaParam()), DeviceLabel);

} // namespace
} // namespace cgr_test

// Every configuration that creation refuses: its status, a message that names the field, what it got and what was expected, and
// no runtime. cgr_runtime_memory refuses the same.
#include <climits>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Parts {
  cgr_config config;
  cgr_group group;
  cgr_layer layers[2];
  int32_t buckets[4];
  cgr_buffer_decl buffers[2];
};

class ConfigErrors : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    toy_ = std::make_unique<Toy>(ToyOptionsFor(GetParam()));
  }
  std::unique_ptr<Parts> Good() {
    auto parts = std::make_unique<Parts>();
    cgr_config made = toy_->Config();
    parts->group = made.groups[0];
    parts->layers[0] = made.layers[0];
    parts->layers[1] = made.layers[1];
    parts->buckets[0] = 1, parts->buckets[1] = 2, parts->buckets[2] = 4, parts->buckets[3] = 8;
    parts->buffers[0] = parts->buffers[1] = CGR_BUFFER_DECL_INIT;
    parts->buffers[0].dimension = CGR_DIM_TOKENS, parts->buffers[0].dtype = CGR_DTYPE_FP32, parts->buffers[0].name = "a";
    parts->buffers[1].dimension = CGR_DIM_ROWS, parts->buffers[1].dtype = CGR_DTYPE_I8, parts->buffers[1].name = "b";
    parts->config = made;
    parts->config.groups = &parts->group;
    parts->config.layers = parts->layers;
    parts->config.buckets = parts->buckets;
    parts->config.buffers = parts->buffers;
    parts->config.num_buffers = 2;
    return parts;
  }
  void Refused(const char *name, cgr_status status, const Words &words, const std::function<void(Parts *)> &change) {
    SCOPED_TRACE(name);
    std::unique_ptr<Parts> parts = Good();
    change(parts.get());
    cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
    ExpectMessage(cgr_runtime_create(&parts->config, &runtime), status, words);
    EXPECT_EQ(runtime, nullptr);
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    ExpectMessage(cgr_runtime_memory(&parts->config, &sizes), status, words);
  }
  std::unique_ptr<Toy> toy_;
};

const cgr_status kArgument = CGR_ERROR_INVALID_ARGUMENT;

TEST_P(ConfigErrors, GoodOneIsGood) {
  cgr_runtime *runtime = nullptr;
  std::unique_ptr<Parts> parts = Good();
  CGR_ASSERT_OK(cgr_runtime_create(&parts->config, &runtime));
  CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
}

TEST_P(ConfigErrors, Head) {
  cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
  ExpectMessage(cgr_runtime_create(nullptr, &runtime), CGR_ERROR_NULL_POINTER, { "config" });
  EXPECT_EQ(runtime, nullptr);
  std::unique_ptr<Parts> parts = Good();
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  ExpectMessage(cgr_runtime_create(&parts->config, nullptr), CGR_ERROR_NULL_POINTER, { "runtime" });
  ExpectMessage(cgr_runtime_memory(&parts->config, nullptr), CGR_ERROR_NULL_POINTER, { "sizes" });
  ExpectMessage(cgr_runtime_memory(nullptr, &sizes), CGR_ERROR_NULL_POINTER, { "config" });
  sizes.size = 3;
  ExpectMessage(cgr_runtime_memory(&parts->config, &sizes), CGR_ERROR_INVALID_STRUCT, { "sizes", "size", "3" });
  Refused("size", CGR_ERROR_INVALID_STRUCT, { "size", "12" }, [](Parts *p) { p->config.size = 12; });
  Refused("size 0", CGR_ERROR_INVALID_STRUCT, { "size", "0" }, [](Parts *p) { p->config.size = 0; });
  Refused("magic", CGR_ERROR_INVALID_STRUCT, { "magic" }, [](Parts *p) { p->config.magic = 0; });
  Refused("version", CGR_ERROR_INVALID_STRUCT, { "version", "0" }, [](Parts *p) { p->config.version = 0; });
  Refused("version from the future", CGR_ERROR_INVALID_STRUCT, { "version", "90000" },
          [](Parts *p) { p->config.version = 90000; });
}

TEST_P(ConfigErrors, Device) {
  Refused("name", kArgument, { "device", "gpu:zero" },
          [](Parts *p) { p->config.device_handle = nullptr, p->config.device = "gpu:zero"; });
  static char junk[256] = { 1 };
  Refused("handle", kArgument, { "device" }, [](Parts *p) { p->config.device_handle = reinterpret_cast<cgr_device *>(junk); });
}

TEST_P(ConfigErrors, Groups) {
  Refused("none", kArgument, { "num_groups", "0", "1" }, [](Parts *p) { p->config.num_groups = 0; });
  Refused("two", CGR_ERROR_UNSUPPORTED, { "num_groups", "2", "1" }, [](Parts *p) { p->config.num_groups = 2; });
  Refused("negative", kArgument, { "num_groups", "-1" }, [](Parts *p) { p->config.num_groups = -1; });
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "groups" }, [](Parts *p) { p->config.groups = nullptr; });
  Refused("size", CGR_ERROR_INVALID_STRUCT, { "groups[0]", "size" }, [](Parts *p) { p->group.size = 3; });
  for (int32_t bad : { 0, 1, 8, 17, 48, 128, -16 })
    Refused("page size", kArgument, { "page_size", std::to_string(bad) }, [bad](Parts *p) { p->group.page_size = bad; });
  for (int64_t bad : { int64_t{ -1 }, int64_t{ 0 }, int64_t{ 2 }, int64_t{ 1 } << 31, INT64_MAX })
    Refused("pages", kArgument, { "num_pages", std::to_string(bad) }, [bad](Parts *p) { p->group.num_pages = bad; });
  for (int32_t bad : { -1, 128, INT_MAX })
    Refused("read trash", kArgument, { "read_trash_page", std::to_string(bad) },
            [bad](Parts *p) { p->group.read_trash_page = bad; });
  for (int32_t bad : { -1, 128, INT_MAX })
    Refused("write trash", kArgument, { "write_trash_page", std::to_string(bad) },
            [bad](Parts *p) { p->group.write_trash_page = bad; });
  Refused("same trash", kArgument, { "groups[0]", "write trash page", "5" },
          [](Parts *p) { p->group.read_trash_page = p->group.write_trash_page = 5; });
  static int32_t table[16 * 10];
  Refused("table stride", kArgument, { "page_table_stride", "9", "10" },
          [](Parts *p) { p->group.page_table = table, p->group.page_table_stride = 9; });
}

TEST_P(ConfigErrors, Layers) {
  Refused("none", kArgument, { "num_layers", "0" }, [](Parts *p) { p->config.num_layers = 0; });
  Refused("negative", kArgument, { "num_layers", "-3" }, [](Parts *p) { p->config.num_layers = -3; });
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "layers" }, [](Parts *p) { p->config.layers = nullptr; });
  Refused("size", CGR_ERROR_INVALID_STRUCT, { "layers[0]", "size" }, [](Parts *p) { p->layers[0].size = 1; });
  Refused("group", kArgument, { "layers[1]", "group", "1" }, [](Parts *p) { p->layers[1].group = 1; });
  Refused("q heads", kArgument, { "layers[1]", "0 query" }, [](Parts *p) { p->layers[1].num_q_heads = 0; });
  Refused("kv heads", kArgument, { "layers[1]", "-1 KV heads" }, [](Parts *p) { p->layers[1].num_kv_heads = -1; });
  Refused("ratio", kArgument, { "layers[1]", "3 query and 2 KV heads" },
          [](Parts *p) { p->layers[1].num_q_heads = 3, p->layers[1].num_kv_heads = 2; });
  for (int32_t bad : { 0, -8, 12, 512 })
    Refused("head dim", CGR_ERROR_UNSUPPORTED, { "layers[0]", "head_dim", std::to_string(bad) },
            [bad](Parts *p) { p->layers[0].head_dim = bad; });
  Refused("scale", kArgument, { "layers[0]", "scale" }, [](Parts *p) { p->layers[0].scale = -1.0f; });
  Refused("scale NaN", kArgument, { "layers[0]", "scale" }, [](Parts *p) { p->layers[0].scale = NAN; });
  Refused("window", CGR_ERROR_UNSUPPORTED, { "layers[1]", "window", "128" }, [](Parts *p) { p->layers[1].window = 128; });
  Refused("softcap", CGR_ERROR_UNSUPPORTED, { "layers[1]", "softcap", "30" }, [](Parts *p) { p->layers[1].softcap = 30.0f; });
  Refused("source", kArgument, { "layers[0]", "kv_source", "9" }, [](Parts *p) { p->layers[0].kv_source = 9; });
  Refused("own source", kArgument, { "layers[0]", "kv_source", "1" }, [](Parts *p) { p->layers[0].kv_source = 1; });
}

TEST_P(ConfigErrors, KvViews) {
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "layers[0]", "k" }, [](Parts *p) { p->layers[0].k.base = nullptr; });
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "layers[1]", "v" }, [](Parts *p) { p->layers[1].v.base = nullptr; });
  Refused("enum", CGR_ERROR_INVALID_ENUM, { "layers[0]", "dtype", "77" }, [](Parts *p) { p->layers[0].k.dtype = 77; });
  Refused("dtype", CGR_ERROR_UNSUPPORTED, { "layers[0]", "dtype" }, [](Parts *p) {
    for (cgr_kv_view *view : { &p->layers[0].k, &p->layers[0].v })
      *view = { view->base, CGR_DTYPE_FP8_E4M3, 0, 1024, 64, 64 };
  });
  Refused("two dtypes", CGR_ERROR_UNSUPPORTED, { "layers[0]", "dtype" },
          [](Parts *p) { p->layers[0].v.dtype = p->layers[0].k.dtype == CGR_DTYPE_FP32 ? CGR_DTYPE_FP16 : CGR_DTYPE_FP32; });
  Refused("base", kArgument, { "layers[0]", "16" },
          [](Parts *p) { p->layers[0].k.base = static_cast<char *>(p->layers[0].k.base) + 8; });
  Refused("page stride", kArgument, { "layers[0]", "strides", "16" }, [](Parts *p) { p->layers[0].v.stride_page += 1; });
  Refused("token stride", kArgument, { "layers[0]", "strides", "16" }, [](Parts *p) { p->layers[0].v.stride_token += 1; });
  Refused("head stride", kArgument, { "layers[0]", "strides", "16" }, [](Parts *p) { p->layers[0].v.stride_head += 1; });
}

TEST_P(ConfigErrors, Limits) {
  for (int32_t bad : { 0, -1, 4097, INT_MAX, INT_MIN })
    Refused("requests", kArgument, { "max_requests", std::to_string(bad) }, [bad](Parts *p) { p->config.max_requests = bad; });
  for (int32_t bad : { 7, 1, -1 })
    Refused("rows", kArgument, { "max_rows", std::to_string(bad) }, [bad](Parts *p) { p->config.max_rows = bad; });
  for (int32_t bad : { 7, 0, -1 })
    Refused("tokens", kArgument, { "max_tokens", std::to_string(bad) }, [bad](Parts *p) { p->config.max_tokens = bad; });
  for (int32_t bad : { 0, -1, INT_MIN })
    Refused("length", kArgument, { "max_seq_len", std::to_string(bad) }, [bad](Parts *p) { p->config.max_seq_len = bad; });
  for (int32_t bad : { 1, 65, -1, INT_MAX })
    Refused("depth", kArgument, { "ring_depth", std::to_string(bad) }, [bad](Parts *p) { p->config.ring_depth = bad; });
  for (int32_t bad : { -1, INT_MIN })
    Refused("changes", kArgument, { "max_changes", std::to_string(bad) }, [bad](Parts *p) { p->config.max_changes = bad; });
  for (int32_t bad : { -1, 4097 })
    Refused("parts", kArgument, { "num_parts", std::to_string(bad) }, [bad](Parts *p) { p->config.num_parts = bad; });
  Refused("timeout", kArgument, { "wait_timeout_ms", "-5" }, [](Parts *p) { p->config.wait_timeout_ms = -5; });
  Refused("mode", CGR_ERROR_INVALID_ENUM, { "graph_mode", "6" }, [](Parts *p) { p->config.graph_mode = 6; });
  Refused("mode", CGR_ERROR_INVALID_ENUM, { "graph_mode", "-1" }, [](Parts *p) { p->config.graph_mode = -1; });
  Refused("support", CGR_ERROR_INVALID_ENUM, { "attention_support", "5" }, [](Parts *p) { p->config.attention_support = 5; });
}

TEST_P(ConfigErrors, TooLarge) {
  std::unique_ptr<Parts> parts = Good();
  parts->config.max_rows = INT_MAX;
  parts->config.max_tokens = INT_MAX;
  parts->config.max_seq_len = INT_MAX;
  cgr_runtime *runtime = reinterpret_cast<cgr_runtime *>(16);
  cgr_status status = cgr_runtime_create(&parts->config, &runtime);
  EXPECT_TRUE(status == CGR_ERROR_INVALID_ARGUMENT || status == CGR_ERROR_OUT_OF_MEMORY) << cgr_status_name(status);
  EXPECT_NE(std::string(cgr_last_message()), "");
  EXPECT_EQ(runtime, nullptr);
}

TEST_P(ConfigErrors, Buckets) {
  Refused("number", kArgument, { "num_buckets", "-1" }, [](Parts *p) { p->config.num_buckets = -1; });
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "buckets" }, [](Parts *p) { p->config.buckets = nullptr; });
  Refused("order", kArgument, { "buckets[2]", "2" }, [](Parts *p) { p->buckets[2] = 2; });
  Refused("zero", kArgument, { "buckets[0]", "0" }, [](Parts *p) { p->buckets[0] = 0; });
  Refused("above", kArgument, { "buckets[3]", "9", "8" }, [](Parts *p) { p->buckets[3] = 9; });
  Refused("max bucket", kArgument, { "max_bucket", "9", "8" },
          [](Parts *p) { p->config.num_buckets = 0, p->config.buckets = nullptr, p->config.max_bucket = 9; });
  Refused("max bucket", kArgument, { "max_bucket", "-1" },
          [](Parts *p) { p->config.num_buckets = 0, p->config.buckets = nullptr, p->config.max_bucket = -1; });
}

TEST_P(ConfigErrors, DeclaredBuffers) {
  Refused("number", kArgument, { "num_buffers", "65", "64" }, [](Parts *p) { p->config.num_buffers = 65; });
  Refused("number", kArgument, { "num_buffers", "-1" }, [](Parts *p) { p->config.num_buffers = -1; });
  Refused("NULL", CGR_ERROR_NULL_POINTER, { "buffers" }, [](Parts *p) { p->config.buffers = nullptr; });
  Refused("size", CGR_ERROR_INVALID_STRUCT, { "buffers[1]", "size" }, [](Parts *p) { p->buffers[1].size = 2; });
  Refused("dimension", CGR_ERROR_INVALID_ENUM, { "buffers[1]", "dimension", "4" }, [](Parts *p) { p->buffers[1].dimension = 4; });
  Refused("dtype", CGR_ERROR_INVALID_ENUM, { "buffers[1]", "dtype", "0" }, [](Parts *p) { p->buffers[1].dtype = 0; });
  Refused("source", CGR_ERROR_INVALID_ENUM, { "buffers[1]", "source", "3" }, [](Parts *p) { p->buffers[1].source = 3; });
  Refused("staged", CGR_ERROR_UNSUPPORTED, { "buffers[0]", "STAGED" },
          [](Parts *p) { p->buffers[0].source = CGR_SOURCE_STAGED; });
  Refused("width", kArgument, { "buffers[0]", "width", "0" }, [](Parts *p) { p->buffers[0].width = 0; });
  Refused("width", kArgument, { "buffers[0]", "width" }, [](Parts *p) { p->buffers[0].width = INT64_MAX; });
  Refused("no name", CGR_ERROR_NULL_POINTER, { "buffers[0]", "name" }, [](Parts *p) { p->buffers[0].name = nullptr; });
  Refused("empty name", kArgument, { "buffers[0]", "name" }, [](Parts *p) { p->buffers[0].name = ""; });
  Refused("long name", kArgument, { "buffers[0]", "name", "31" },
          [](Parts *p) { p->buffers[0].name = "a name of thirty-two characters."; });
  Refused("name twice", kArgument, { "buffers[1]", "name", "a" }, [](Parts *p) { p->buffers[1].name = "a"; });
}

INSTANTIATE_TEST_SUITE_P(Devices, ConfigErrors, ::testing::Values(HostParam(CGR_HOST_ASYNC), CudaParam()), DeviceLabel);

} // namespace
} // namespace cgr_test

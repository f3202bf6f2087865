// What a mistake in a configuration is answered with, by each function that reads one: the function, the field, what it got, what
// was expected, and what to do where that does not say it.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

struct Mistake {
  const char *what;
  Words words; // of the message
  Change make;
};

const std::vector<Mistake> &Mistakes() {
  static const std::vector<Mistake> *mistakes = new std::vector<Mistake>{
    { "no INIT", { "config: size is 0", "a multiple of 8, 8 to 4096", "_INIT" }, [](GoodConfig &c) { c.config.size = 0; } },
    { "half a field", { "config: size is 201", "a multiple of 8" }, [](GoodConfig &c) { c.config.size = 201; } },
    { "no magic", { "config: magic is 0", "CGR_CONFIG_INIT" }, [](GoodConfig &c) { c.config.magic = 0; } },
    { "tokens below requests",
      { "max_tokens is 2", "8 .. 16777216", "max_requests" },
      [](GoodConfig &c) { c.config.max_tokens = 2; } },
    { "rows below requests", { "max_rows is 3", "8 .. 1048576", "max_requests" }, [](GoodConfig &c) { c.config.max_rows = 3; } },
    { "unknown mode",
      { "graph_mode is 9", "0 .. 5", "cgr_graph_mode", "2 piecewise", "5 full and piecewise" },
      [](GoodConfig &c) { c.config.graph_mode = 9; } },
    { "unknown support",
      { "attention_support is -1", "0 .. 4", "cgr_graph_support", "4 always" },
      [](GoodConfig &c) { c.config.attention_support = -1; } },
    { "unknown timing", { "timing is 3", "0 .. 2", "1 phases" }, [](GoodConfig &c) { c.config.timing = 3; } },
    { "layers not given", { "layers is NULL", "an array of 3 (num_layers)" }, [](GoodConfig &c) { c.config.layers = nullptr; } },
    { "groups not given",
      { "groups is NULL", "an array of groups (num_groups)" },
      [](GoodConfig &c) { c.config.groups = nullptr; } },
    { "buffers not given",
      { "buffers is NULL", "an array of 3 (num_buffers)" },
      [](GoodConfig &c) { c.config.buffers = nullptr; } },
    { "backends not given",
      { "backends is NULL", "an array of 1 (num_backends)" },
      [](GoodConfig &c) { c.config.num_backends = 1; } },
    { "variants not given",
      { "variants is NULL", "an array of 1 (num_variants)" },
      [](GoodConfig &c) { c.config.num_variants = 1; } },

    { "only the reserved pages",
      { "groups[0].num_pages is 2", "3 .. 2147483647", "reserved" },
      [](GoodConfig &c) { c.groups[0].num_pages = 2; } },
    { "more pages than memory",
      { "layers[0].v overlaps layers[0].k", "16777216 bytes with num_pages 4096", "memory of its own" },
      [](GoodConfig &c) { c.groups[0].num_pages = 4096; } },
    { "group without INIT", { "groups[0] size is 0", "CGR_GROUP_INIT" }, [](GoodConfig &c) { c.groups[0].size = 0; } },
    { "layer without INIT", { "layers[0] size is 0", "CGR_LAYER_INIT" }, [](GoodConfig &c) { c.layers[0].size = 0; } },
    { "later layer without INIT",
      { "layers[1] size is 0", std::to_string(sizeof(cgr_layer)) + " as in layers[0]", "CGR_LAYER_INIT" },
      [](GoodConfig &c) { c.layers[1].size = 0; } },
    { "buffer without INIT",
      { "buffers[2] size is 0", "as in buffers[0]", "CGR_BUFFER_DECL_INIT" },
      [](GoodConfig &c) { c.buffers[2].size = 0; } },
    { "another library's window",
      { "layers[0].window_left is -1", "0 or more", "0: no window_left" },
      [](GoodConfig &c) { c.layers[0].window_left = -1; } },
    { "the window to the right",
      { "layers[0].window_right is -1", "0 or more", "0: no window_right" },
      [](GoodConfig &c) { c.layers[0].window_right = -1; } },
    { "negative chunk",
      { "layers[1].chunk is -64", "0 or more", "0: no chunk" },
      [](GoodConfig &c) { c.layers[1].chunk = -64; } },
    { "unknown dtype of a cache",
      { "layers[1].k.dtype is 99", "1 .. 9", "cgr_dtype", "3 bf16" },
      [](GoodConfig &c) { c.layers[1].k.dtype = 99; } },
    { "unknown dtype of a layer",
      { "layers[1].dtype is -3", "1 .. 9", "cgr_dtype", "1 fp32" },
      [](GoodConfig &c) { c.layers[1].dtype = -3; } },
    { "unknown dtype of a buffer",
      { "buffers[0].dtype is 0", "1 .. 9", "cgr_dtype", "9 u8" },
      [](GoodConfig &c) { c.buffers[0].dtype = 0; } },
    { "unknown dimension",
      { "buffers[0].dimension is 7", "1 .. 3", "cgr_dimension", "3 rows" },
      [](GoodConfig &c) { c.buffers[0].dimension = 7; } },
    { "unknown source",
      { "buffers[1].source is 7", "1 .. 2", "cgr_source", "2 staged" },
      [](GoodConfig &c) { c.buffers[1].source = 7; } },
    { "two buffers of one name",
      { "buffers[1].name is \"a\"", "buffers[0] has already", "another" },
      [](GoodConfig &c) { c.buffers[1].name = "a"; } },
    { "no name", { "buffers[1].name is \"\"", "1 to 31 characters" }, [](GoodConfig &c) { c.buffers[1].name = ""; } },
    { "bucket above the requests",
      { "decode_buckets[3] is 9", "1 .. 8 (at most max_requests)" },
      [](GoodConfig &c) { c.buckets[3] = 9; } },
    { "length above the tokens",
      { "query_lens[0] is 65", "1 .. 64 (at most max_tokens)" },
      [](GoodConfig &c) {
        static const int32_t length = 65;
        c.config.query_lens = &length, c.config.num_query_lens = 1;
      } },
    { "mixed bucket above the tokens",
      { "mixed_buckets[0].num_tokens is 65", "1 .. 64 (at most max_tokens)" },
      [](GoodConfig &c) {
        static const cgr_bucket bucket = { 65, 8 };
        c.config.mixed_buckets = &bucket, c.config.num_mixed_buckets = 1;
      } },
    { "trash page outside",
      { "groups[0].write_trash_page is 64", "0 .. 63 (below num_pages)" },
      [](GoodConfig &c) { c.groups[0].write_trash_page = 64; } },
    { "negative ring", { "ring_depth is 1", "2 .. 64" }, [](GoodConfig &c) { c.config.ring_depth = 1; } },
    { "reserved field", { "reserved is 5", "0" }, [](GoodConfig &c) { c.config.reserved = 5; } },
  };
  return *mistakes;
}

class ConfigMessages : public ConfigTest {
protected:
  static void Expect(const char *function, cgr_status status, Words words) {
    const std::string message = cgr_last_message();
    EXPECT_NE(status, CGR_OK);
    EXPECT_EQ(message.rfind(std::string(function) + ": config", 0), 0u) << message;
    words.push_back("expected");
    ExpectMessage(status, status, words);
    EXPECT_LT(message.size(), 400u) << message;
  }
};

TEST_P(ConfigMessages, NameFunctionFieldValueAndWhatToDo) {
  for (const Mistake &mistake : Mistakes()) {
    SCOPED_TRACE(mistake.what);
    GoodConfig c(device_);
    mistake.make(c);
    cgr_runtime *runtime = nullptr;
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    cgr_finding findings[8];
    int32_t count = 0;
    Expect("cgr_runtime_create", cgr_runtime_create(&c.config, &runtime), mistake.words);
    Expect("cgr_validate", cgr_validate(&c.config, nullptr, findings, 8, &count), mistake.words);
    Expect("cgr_runtime_memory", cgr_runtime_memory(&c.config, &sizes), mistake.words);
    ASSERT_GE(count, 1);
    EXPECT_NE(std::string(findings[0].text).find("expected"), std::string::npos) << findings[0].text;
  }
}

TEST_P(ConfigMessages, OfNoConfiguration) {
  cgr_runtime *runtime = nullptr;
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  int32_t count = 0;
  Expect("cgr_runtime_create", cgr_runtime_create(nullptr, &runtime), { "config is NULL" });
  Expect("cgr_validate", cgr_validate(nullptr, nullptr, nullptr, 0, &count), { "config is NULL" });
  Expect("cgr_runtime_memory", cgr_runtime_memory(nullptr, &sizes), { "config is NULL" });
}

// 0 layers are good for an engine with kernels of its own, so this is valid, but surely not intended.
TEST_P(ConfigMessages, LayersThatAreNotCountedAreLogged) {
  for (bool given : { false, true }) {
    GoodConfig c(device_);
    std::vector<std::string> told;
    cgr_runtime *runtime = nullptr;
    c.config.num_layers = 0;
    c.config.layers = given ? c.layers : nullptr;
    c.config.log_context = &told;
    c.config.log = [](void *context, cgr_log_level level, const char *text) {
      if (level == CGR_LOG_WARNING)
        static_cast<std::vector<std::string> *>(context)->push_back(text);
    };
    CGR_ASSERT_OK(cgr_runtime_create(&c.config, &runtime));
    EXPECT_EQ(told.size(), given ? 1u : 0u);
    if (!told.empty()) {
      EXPECT_NE(told[0].find("num_layers is 0 and layers is given"), std::string::npos) << told[0];
    }
    CGR_ASSERT_OK(cgr_runtime_destroy(runtime));
  }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigMessages);

} // namespace
} // namespace cgr_test

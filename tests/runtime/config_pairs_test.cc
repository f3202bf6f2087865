// No reason hides another. Each fault in a table is made alone and with each other one, in both orders: the findings of either
// alone are found for both, by cgr_validate and cgr_runtime_create, in the same order each time.
#include <regex.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

struct Fault {
  const char *sets; // what it changes, in words: two faults that set the same thing are no pair
  const char *code;
  void (*make)(Good &c);
  const char *voids = ""; // findings that mean nothing after it, "STATUS field text": an extended regular expression; "": none
};

float kFloat = 1.0f;
alignas(16) unsigned char kJunk[4096] = { 1 };
const int32_t *Table(int n, int offset = 0) { return reinterpret_cast<const int32_t *>(Good::Address(n) + offset); }

// Lists that are missing or whose length is invalid have no elements.
#define NO_LAYERS ".* layers\\[.*|.* overlaps layers.*"
#define NO_BUFFERS ".* buffers\\[.*|.* config the buffers.*"
#define NO_GROUPS ".* groups\\[.*|.*what the pages of groups.*|.*requests in one step|.* overlaps groups.*|.* page_table would.*"
#define NO_BUCKETS ".*decode_buckets\\[.*"
// The cache of another layer takes the place of the layer's own, and without one there is no dtype to compare with,
// nor one that tells whether there may be factors.
#define NO_CACHE(i) ".* layers\\[" i "\\]\\.[kv](\\.| has| overlaps).*|.*overlaps layers\\[" i "\\].*"
#define NO_DTYPE(i) \
  ".* layers\\[" i  \
  "\\]\\.((dtype|v.dtype|out_dtype) is .*, expected .* as in|[kv].scale is given, expected NULL with a cache of) .*"
// What the kernels can do is not known: of a layer, or of all.
#define NO_KERNELS(i) \
  "CGR_ERROR_UNSUPPORTED layers\\[" i "\\]\\.([kv]\\..*|.*dtype|head_dim.*|window.*|chunk|softcap|sinks|alibi.*|flags) .*"
#define NO_DEVICE NO_KERNELS(".")
// Limits that other values are checked against.
#define NO_REQUESTS ".* max_(rows|tokens) is 7.*|.*decode_buckets\\[.*1 .. 8 .*|.*requests in one step.*|.* config the buffers.*"
#define NO_PAGES ".*trash_page is 99.*|.*what the pages of groups.*"
#define NO_PAGE_SIZE ".*page_table_stride is 31,.*|.*what the pages of groups.*|.* page_table would.*"
#define NO_HEADS(i) ".* layers\\[" i "\\]\\.(num_q_heads is .* multiple .*|kv_source .* which has .*)"

#define FAULT(sets, code, ...)                        \
  {                                                   \
    sets, #code, [](Good &c) { code; }, ##__VA_ARGS__ \
  }

// Short ones share a line.
// clang-format off
const Fault kFaults[] = {
  FAULT("device", c.config.device_handle = nullptr; c.config.device = "gpu", NO_DEVICE),
  FAULT("device", c.config.device_handle = reinterpret_cast<cgr_device *>(kJunk), NO_DEVICE),
  FAULT("max_requests", c.config.max_requests = 0, NO_REQUESTS),
  FAULT("max_requests", c.config.max_requests = 5000, NO_REQUESTS), FAULT("max_rows", c.config.max_rows = -1),
  FAULT("max_rows", c.config.max_rows = 7), FAULT("max_rows", c.config.max_rows = 1 << 21),
  FAULT("max_tokens", c.config.max_tokens = 7, ".* buffers\\[0\\] would.*"),
  FAULT("max_tokens", c.config.max_tokens = -1, ".* buffers\\[0\\] would.*"),
  FAULT("max_seq_len", c.config.max_seq_len = 0, NO_PAGE_SIZE), FAULT("max_seq_len", c.config.max_seq_len = 5000),
  FAULT("ring_depth", c.config.ring_depth = 65), FAULT("max_changes", c.config.max_changes = -1),
  FAULT("num_parts", c.config.num_parts = 5000), FAULT("wait_timeout_ms", c.config.wait_timeout_ms = -1),
  FAULT("graph_mode", c.config.graph_mode = 9), FAULT("attention_support", c.config.attention_support = 9),
  FAULT("num_backends", c.config.num_backends = 9, ".* layers\\[.\\]\\.backend .*"), FAULT("num_programs", c.config.num_programs = 9),
  FAULT("num_lanes", c.config.num_lanes = 2), FAULT("num_draft_tokens", c.config.num_draft_tokens = 65),
  FAULT("max_steps", c.config.max_steps = 1), FAULT("query_lens", c.config.num_query_lens = 1),
  FAULT("mixed_buckets", c.config.num_mixed_buckets = 1), FAULT("reserved", c.config.reserved = 1),
  FAULT("buckets[1]", c.buckets[1] = 9), FAULT("buckets[1]", c.buckets[1] = 1),
  FAULT("decode_buckets", c.config.num_decode_buckets = 600, NO_BUCKETS),
  FAULT("decode_buckets", c.config.decode_buckets = nullptr, NO_BUCKETS),
  FAULT("groups", c.config.num_groups = 0, NO_GROUPS "|.* layers\\[.\\]\\.group is 3.*"),
  FAULT("groups", c.config.groups = nullptr, NO_GROUPS), FAULT("groups", c.groups[0].size = 3, NO_GROUPS),
  FAULT("page_size", c.groups[0].page_size = 17, NO_PAGE_SIZE), FAULT("num_pages", c.groups[0].num_pages = 2, NO_PAGES),
  FAULT("read_trash", c.groups[0].read_trash_page = 99), FAULT("write_trash", c.groups[0].write_trash_page = -1),
  FAULT("read_trash write_trash", c.groups[0].read_trash_page = c.groups[0].write_trash_page = 3),
  FAULT("page_table", c.groups[0].page_table = Table(60, 1); c.groups[0].page_table_stride = 64),
  FAULT("page_table", c.groups[0].page_table = Table(60); c.groups[0].page_table_stride = 31),
  FAULT("page_table", c.groups[0].page_table = Table(60); c.groups[0].page_table_stride = -1),
  FAULT("page_table", c.groups[0].page_table = Table(0); c.groups[0].page_table_stride = 64),
  FAULT("layers", c.config.num_layers = 2000, NO_LAYERS), FAULT("layers", c.config.layers = nullptr, NO_LAYERS),
  FAULT("layers", c.layers[0].size = 3, NO_LAYERS), FAULT("program", c.layers[0].program = 1),
  FAULT("backend", c.layers[0].backend = 1, NO_KERNELS("0")), FAULT("length_set", c.layers[0].length_set = 1),
  FAULT("group", c.layers[0].group = 3), FAULT("source0", c.layers[0].kv_source = 1, NO_CACHE("[02]") "|" NO_DTYPE("[02]")),
  FAULT("source2", c.layers[2].kv_source = 3, ".* layers\\[2\\]\\.([kv]\\.|kv_source is layer).*|" NO_DTYPE("2")),
  FAULT("flags alibi_slopes", c.layers[0].flags = CGR_LAYER_ALIBI_SQRT), FAULT("flags", c.layers[0].flags = 64),
  FAULT("q_heads", c.layers[0].num_q_heads = 0, ".*num_q_heads is 4,.*"),
  FAULT("q_heads", c.layers[0].num_q_heads = 2000, ".*num_q_heads is 4,.*"),
  FAULT("q_heads", c.layers[0].num_q_heads = 3, ".*num_q_heads is 4,.*"),
  FAULT("kv_heads", c.layers[0].num_kv_heads = 0, NO_HEADS("[02]")),
  FAULT("kv_heads", c.layers[0].num_kv_heads = 1 << 30, NO_HEADS("[02]")), FAULT("kv_heads2", c.layers[2].num_kv_heads = 4),
  FAULT("head_dim", c.layers[0].head_dim = 0, ".*head_dim_v.*|" NO_HEADS("2")), FAULT("head_dim", c.layers[0].head_dim = 12),
  FAULT("head_dim_v", c.layers[0].head_dim_v = 20), FAULT("dtype", c.layers[0].dtype = CGR_DTYPE_FP16),
  FAULT("dtype", c.layers[0].dtype = 99), FAULT("out_dtype", c.layers[0].out_dtype = CGR_DTYPE_FP32),
  FAULT("out_dtype", c.layers[0].out_dtype = 99), FAULT("window_left", c.layers[0].window_left = -4),
  FAULT("window_right", c.layers[0].window_right = -1), FAULT("chunk", c.layers[0].chunk = -2),
  FAULT("scale", c.layers[0].scale = NAN), FAULT("softcap", c.layers[0].softcap = -1),
  FAULT("chunk window_left window_right", c.layers[0].chunk = 2; c.layers[0].window_left = 4),
  FAULT("window_right", c.layers[0].window_right = 4),
  FAULT("k.base", c.layers[0].k.base = nullptr, ".*overlaps layers\\[0\\]\\.k,.*"),
  FAULT("k.base", c.layers[0].k.base = Good::Address(0) + 8), FAULT("k.stride", c.layers[0].k.stride_page = 3),
  FAULT("k.stride", c.layers[0].k.stride_page = 16), FAULT("k.stride", c.layers[0].k.stride_head = -8),
  FAULT("k.dtype", c.layers[0].k.dtype = 99, NO_DTYPE("[02]")),
  FAULT("k.dtype", c.layers[0].k.dtype = CGR_DTYPE_I32, NO_DTYPE("[02]")),
  FAULT("k.scale", c.layers[0].k.scale = &kFloat),
  FAULT("k.scale", c.layers[0].k.scale_stride_head = 4), FAULT("k.reserved", c.layers[0].k.reserved = 1),
  FAULT("v.base", c.layers[0].v.base = nullptr, ".*overlaps layers\\[0\\]\\.v,.*"),
  FAULT("v.stride", c.layers[0].v.stride_token = 56),
  FAULT("v.dtype", c.layers[0].v.dtype = CGR_DTYPE_FP16, ".*v\\.dtype is bf16,.*"),
  FAULT("v.reserved", c.layers[0].v.reserved = 1), FAULT("k1", c.layers[1].k.base = Good::Address(0)),
  FAULT("k1", c.layers[1].k.base = Good::Address(1)), FAULT("source1", c.layers[1].kv_source = 5, NO_CACHE("1")),
  FAULT("softcap1", c.layers[1].softcap = -2), FAULT("buffers", c.config.num_buffers = 65, NO_BUFFERS),
  FAULT("buffers", c.config.buffers = nullptr, NO_BUFFERS),
  FAULT("dimension", c.buffers[0].dimension = 0, ".* buffers\\[0\\] would.*"),
  FAULT("b.dtype", c.buffers[0].dtype = 0, ".*padding.*"), FAULT("source dimension b.dtype width", c.buffers[0].source = 2; c.buffers[0].dimension = 3;
        c.buffers[0].dtype = CGR_DTYPE_U8; c.buffers[0].width = 3),
  FAULT("source", c.buffers[0].source = 9), FAULT("width", c.buffers[0].width = -1),
  FAULT("width", c.buffers[0].width = int64_t(1) << 40),
  FAULT("width1", c.buffers[1].width = int64_t(1) << 40; c.buffers[1].dtype = CGR_DTYPE_I64;
        c.buffers[2].width = int64_t(1) << 38),
  FAULT("name", c.buffers[0].name = nullptr, ".* buffers\\[1\\].name .* has already.*"), FAULT("name1", c.buffers[1].name = "a"),
  FAULT("padding", c.buffers[0].padding = int64_t(1) << 40), FAULT("buffer2", c.buffers[2].size = 3),
  FAULT("device_memory", c.config.device_memory = Good::Address(50) + 4),
  FAULT("device_memory", c.config.device_memory_size = 4),
  FAULT("device_memory", c.config.device_memory = Good::Address(50); c.config.device_memory_size = 1),
  FAULT("device_memory", c.config.device_memory = Good::Address(0); c.config.device_memory_size = 1 << 30),
  FAULT("page_table device_memory", c.groups[0].page_table = Table(60); c.groups[0].page_table_stride = 64;
        c.config.device_memory = Good::Address(60); c.config.device_memory_size = 1 << 30),
  FAULT("max_rows max_seq_len num_pages layers", c.config.max_rows = 1 << 20; c.config.max_seq_len = 1 << 30;
        c.groups[0].num_pages = 1 << 27; c.config.num_layers = 0, NO_LAYERS "|" NO_PAGES "|.* config the buffers.*"),
  FAULT("pinned_memory", c.config.pinned_memory = Good::Address(40) + 4),
  FAULT("pinned_memory", c.config.pinned_memory_size = 4),
  FAULT("pinned_memory", c.config.pinned_memory = Good::Address(3); c.config.pinned_memory_size = 1 << 30),
  FAULT("pinned_memory device_memory", c.config.pinned_memory = c.config.device_memory = Good::Address(50);
        c.config.pinned_memory_size = c.config.device_memory_size = 1 << 30),
};
// clang-format on

bool SetTheSame(const Fault &a, const Fault &b) {
  std::istringstream words(a.sets);
  for (std::string word; words >> word;)
    if ((" " + std::string(b.sets) + " ").find(" " + word + " ") != std::string::npos)
      return true;
  return false;
}

// "STATUS field text"
using Findings = std::vector<std::string>;
std::string Line(const cgr_finding &f) {
  return std::string(cgr_status_name(cgr_status(f.status))) + " " + f.field + " " + f.text;
}

// The status, the field and the first words: what follows may count stand-ins when another fault is there.
std::string Subject(const std::string &finding) {
  return finding.substr(0, std::min(finding.find(','), finding.find(" would ")));
}

// std::regex does not compile under GCC's address sanitizer and -Werror.
bool Matches(const std::string &text, const char *pattern) {
  regex_t regex;
  EXPECT_EQ(regcomp(&regex, ("^(" + std::string(pattern) + ")$").c_str(), REG_EXTENDED | REG_NOSUB), 0) << pattern;
  const bool matches = regexec(&regex, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&regex);
  return matches;
}

class ConfigPairs : public ConfigTest {
protected:
  Findings FindIn(const cgr_config &config) {
    std::vector<cgr_finding> list(256);
    int32_t count = -1;
    const cgr_status status = cgr_validate(&config, nullptr, list.data(), 256, &count);
    const std::string message = cgr_last_message();
    Findings findings;
    for (int32_t i = 0; i < std::min(count, 256); i++)
      findings.push_back(Line(list[size_t(i)]));
    EXPECT_FALSE(findings.empty()) << "it is accepted";
    if (findings.empty())
      return findings;
    EXPECT_EQ(status, list[0].status);
    cgr_runtime *runtime = nullptr;
    EXPECT_EQ(cgr_runtime_create(&config, &runtime), status);
    EXPECT_EQ(AfterFunction(cgr_last_message()), AfterFunction(message));
    for (const std::string &finding : findings)
      EXPECT_EQ(std::count(findings.begin(), findings.end(), finding), 1) << finding << " is told twice";
    return findings;
  }
  // Without the advice to call cgr_validate, which cgr_validate does not give.
  static std::string AfterFunction(const std::string &message) {
    std::string text = message.substr(message.find(": "));
    const std::string advice = ": see cgr_validate";
    const size_t at = text.find(advice);
    return at == std::string::npos ? text : text.erase(at, advice.size());
  }

  Findings Make(const Fault &first, const Fault *second = nullptr) {
    Good c(device_);
    first.make(c);
    if (second != nullptr)
      second->make(c);
    return FindIn(c.config);
  }
  // Findings of `fault` alone that are still meaningful after `other` are among the findings of both.
  static void ExpectKept(const Findings &alone, const Fault &fault, const Fault &other, const Findings &both) {
    for (const std::string &finding : alone) {
      const bool kept =
          std::any_of(both.begin(), both.end(), [&](const std::string &f) { return Subject(f) == Subject(finding); });
      EXPECT_TRUE(kept || Matches(finding, other.voids)) << other.code << "\n  hides " << finding << "\n  of " << fault.code;
    }
  }
};

TEST_P(ConfigPairs, NoReasonHidesAnother) {
  std::vector<Findings> alone;
  for (const Fault &fault : kFaults) {
    SCOPED_TRACE(fault.code);
    alone.push_back(Make(fault));
  }
  const size_t n = std::size(kFaults);
  for (size_t i = 0; i < n; i++)
    for (size_t j = i + 1; j < n; j++) {
      const Fault &a = kFaults[i], &b = kFaults[j];
      if (SetTheSame(a, b))
        continue;
      SCOPED_TRACE(std::string(a.code) + " and " + b.code);
      const Findings both = Make(a, &b);
      EXPECT_EQ(both, Make(b, &a));
      ExpectKept(alone[i], a, b, both);
      ExpectKept(alone[j], b, a, both);
    }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigPairs);

} // namespace
} // namespace cgr_test

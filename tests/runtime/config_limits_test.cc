// The limits and modes of a configuration: what is just inside each is accepted and what is just outside is refused by
// name, with nothing else; and what is reserved for later versions.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

class ConfigLimits : public ConfigTest {};

// Where 0 is good below the bounds, it is the default.
TEST_P(ConfigLimits, NumbersAreWithinTheirBounds) {
  const auto requests = [](Good &c, int64_t value) {
    c.config.max_requests = int32_t(value), c.config.max_rows = 0, c.config.max_tokens = 4096;
    c.config.num_decode_buckets = 1;
  };
  const auto length = [](Good &c, int64_t value) {
    c.config.max_seq_len = int32_t(value);
    c.groups[0].num_pages = (1 << 26) + 2;
    c.config.num_layers = 0; // the caches of a pool that large would overlap
  };
  const int32_t k20 = 1 << 20, k24 = 1 << 24, k30 = 1 << 30;
  const std::string at_least_requests = " (at least max_requests)";
  std::vector<int64_t> rows = Outside(8, k20), tokens = Outside(8, k24);
  rows.push_back(3);
  tokens.push_back(2);
  EachField({
      Field(kArgument, "max_requests is #, expected 1 .. 4096", requests, { 1, 4096 }, Outside(1, 4096)),
      Field(kArgument, "max_rows is #, expected 8 .. 1048576" + at_least_requests, Of(&cgr_config::max_rows), { 0, 8, k20 },
            rows),
      Field(kArgument, "max_tokens is #, expected 8 .. 16777216" + at_least_requests, Of(&cgr_config::max_tokens), { 8, k24 },
            tokens),
      Field(kArgument, "max_seq_len is #, expected 1 .. 1073741824", length, { 1, k30 }, Outside(1, k30)),
      Field(kArgument, "ring_depth is #, expected 2 .. 64", Of(&cgr_config::ring_depth), { 0, 2, 64 }, Outside(2, 64)),
      Field(kArgument, "max_changes is #, expected 1 .. 1048576", Of(&cgr_config::max_changes), { 0, 1, k20 }, Outside(0, k20)),
      Field(kArgument, "num_parts is #, expected 0 .. 4096", Of(&cgr_config::num_parts), { 0, 4096 }, Outside(0, 4096)),
      Field(kArgument, "flight_depth is #, expected 0 .. 1048576", Of(&cgr_config::flight_depth), { 0, k20 }, Outside(0, k20)),
      Field(kArgument, "labels is #, expected 0 .. 1", Of(&cgr_config::labels), { 0, 1 }, Outside(0, 1)),
      Field(kArgument, "wait_timeout_ms is #, expected 1 .. 2147483647", Of(&cgr_config::wait_timeout_ms), { 0, 1, INT32_MAX },
            Outside(0, INT32_MAX)),
      Field(kArgument, "time_every is #, expected a power of two, 1 .. 128", Of(&cgr_config::time_every),
            { 0, 1, 2, 4, 8, 64, 128 }, { -1, 3, 6, 127, 256, INT32_MIN, INT32_MAX }),
  });
}

TEST_P(ConfigLimits, ListsAreWithinTheirBounds) {
  std::vector<cgr_layer> layers;
  std::vector<cgr_buffer_decl> buffers;
  std::vector<std::string> names;
  Good good(device_);
  for (int i = 0; i < 1024; i++) {
    good.PutK(0, Good::Address(2 * i));
    good.PutV(0, Good::Address(2 * i + 1));
    layers.push_back(good.layers[0]);
  }
  for (int i = 0; i < 64; i++)
    names.push_back("buffer " + std::to_string(i));
  for (const std::string &name : names) {
    buffers.push_back(good.buffers[0]);
    buffers.back().name = name.c_str();
  }
  const auto set_layers = [&](Good &c, int64_t value) {
    c.config.layers = value == 0 ? nullptr : layers.data();
    c.config.num_layers = int32_t(value);
  };
  const auto set_buffers = [&](Good &c, int64_t value) {
    c.config.buffers = value == 0 ? nullptr : buffers.data();
    c.config.num_buffers = int32_t(value);
  };
  EachField({
      Field(kArgument, "num_layers is #, expected 0 .. 1024", set_layers, { 0, 1024 }, Outside(0, 1024)),
      Field(kArgument, "num_buffers is #, expected 0 .. 64", set_buffers, { 0, 64 }, Outside(0, 64)),
  });
}

// A list that is counted is given.
TEST_P(ConfigLimits, ListsAreThere) {
  EachRefused({
      { kNull, "layers is NULL, expected an array of 3 (num_layers)", [](Good &c) { c.config.layers = nullptr; } },
      { kNull, "groups is NULL, expected an array of groups (num_groups)", [](Good &c) { c.config.groups = nullptr; } },
      { kNull, "buffers is NULL, expected an array of 3 (num_buffers)", [](Good &c) { c.config.buffers = nullptr; } },
      { kNull, "backends is NULL, expected an array of 1 (num_backends)", [](Good &c) { c.config.num_backends = 1; } },
      { kNull, "variants is NULL, expected an array of 1 (num_variants)", [](Good &c) { c.config.num_variants = 1; } },
      { kNull, "variants is NULL, expected an array of 3", [](Good &c) { c.config.num_variants = 3; } },
      { kNull, "query_lens is NULL, expected an array of 2", [](Good &c) { c.config.num_query_lens = 2; } },
      { kNull, "mixed_buckets is NULL, expected an array of 3", [](Good &c) { c.config.num_mixed_buckets = 3; } },
      { kNull, "decode_buckets is NULL, expected an array of 4", [](Good &c) { c.config.decode_buckets = nullptr; } },
  });
  EachAccepted({
      [](Good &c) { c.config.layers = nullptr, c.config.num_layers = 0; },
      [](Good &c) { c.config.decode_buckets = nullptr, c.config.num_decode_buckets = 0; },
  });
}

// ----------------------------------------------------------------------------------------------------------------- modes

TEST_P(ConfigLimits, EnumsAreChecked) {
  const char graph_mode[] = "graph_mode is #, expected 0 .. 5, a cgr_graph_mode (0 default, 1 none, 2 piecewise, 3 full, "
                            "4 full decode only, 5 full and piecewise)";
  const char support[] = "attention_support is #, expected 0 .. 4, a cgr_graph_support (0 default, 1 never, "
                         "2 uniform single token decode, 3 uniform batch, 4 always)";
  const char wait[] = "wait_mode is #, expected 0 .. 3, a cgr_wait_mode (0 default, 1 spin, 2 yield, 3 block)";
  const char timing[] = "timing is #, expected 0 .. 2, a cgr_timing_mode (0 off, 1 phases, 2 layers)";
  const auto outside = [](int32_t high) {
    std::vector<int64_t> bad = Outside(0, high);
    bad.insert(bad.end(), { 9, 99 });
    return bad;
  };
  EachField({
      Field(kEnum, graph_mode, Of(&cgr_config::graph_mode), { CGR_MODE_DEFAULT, CGR_MODE_FULL_AND_PIECEWISE }, outside(5)),
      Field(kEnum, support, Of(&cgr_config::attention_support), { CGR_SUPPORT_DEFAULT, CGR_SUPPORT_ALWAYS }, outside(4)),
      Field(kEnum, wait, Of(&cgr_config::wait_mode), { CGR_WAIT_DEFAULT, CGR_WAIT_BLOCK }, outside(3)),
      Field(kArgument, timing, Of(&cgr_config::timing), { 0, 2 }, outside(2)),
  });
}

// Values for a later version are refused, and those that stand for their absence are accepted.
TEST_P(ConfigLimits, ReservedFieldsAreRefusedByName) {
  EachField({
      Field(kUnsupported, "num_lanes is #, ... this version", Of(&cgr_config::num_lanes), { 0, 1 }, Outside(0, 1)),
      Field(kUnsupported, "max_steps is #, ... this version", Of(&cgr_config::max_steps), { 0 }, Outside(0, 0)),
      Field(kNewer, "reserved is #, expected 0", Of(&cgr_config::reserved), { 0 }, { 1, -2, 5 }),
  });
}

TEST_P(ConfigLimits, GuessesAreBounded) {
  EachField({
      Field(kArgument, "num_draft_tokens is #, expected 0 .. 64", Of(&cgr_config::num_draft_tokens), { 0, 1, 64 },
            Outside(0, 64)),
      Field(kArgument, "max_stop_tokens is #, expected 0 .. 64", Of(&cgr_config::max_stop_tokens), { 0, 1, 64 }, Outside(0, 64)),
      Field(kArgument, "vocab_size is #, expected 0 .. 2147483647", Of(&cgr_config::vocab_size), { 0, 1, INT32_MAX },
            { -1, INT32_MIN }),
  });
}

// The programs after the first are drafts.
TEST_P(ConfigLimits, ProgramsAreBoundedAndGuess) {
  const auto guessing = [](Good &c, int64_t value) { c.config.num_programs = int32_t(value), c.config.num_draft_tokens = 1; };
  EachField({ Field(kArgument, "num_programs is #, expected 1 .. 4", guessing, { 0, 1, 2, 4 }, Outside(0, 4)) });
  Refused([](Good &c) { c.config.num_programs = 2; },
          { { kArgument, "num_draft_tokens is 0, expected at least 1 with num_programs 2" } });
}

TEST_P(ConfigLimits, AnythingIsTrueButZero) {
  for (int32_t value : { 0, 1, -1, INT32_MAX }) {
    Accepted([&](Good &c) { c.config.batch_invariant = value; });
    Accepted([&](Good &c) { c.config.strict = value; });
  }
}

// 0 layers are good for an engine with kernels of its own, so this is valid, but surely not intended.
TEST_P(ConfigLimits, LayersThatAreNotCountedAreLogged) {
  for (bool given : { false, true }) {
    Good c(device_);
    std::vector<std::string> told;
    c.config.num_layers = 0;
    c.config.layers = given ? c.layers : nullptr;
    c.config.log_context = &told;
    c.config.log = [](void *context, cgr_log_level level, const char *text) {
      if (level == CGR_LOG_WARNING)
        static_cast<std::vector<std::string> *>(context)->push_back(text);
    };
    OnRuntime(c.config, [](cgr_runtime *) {});
    EXPECT_EQ(told.size(), given ? 1u : 0u);
    if (!told.empty()) {
      EXPECT_NE(told[0].find("num_layers is 0 and layers is given"), std::string::npos) << told[0];
    }
  }
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigLimits);

} // namespace
} // namespace cgr_test

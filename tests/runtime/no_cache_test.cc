// Layers without a cache: the queries of a step see the step's own keys, with the same bits in every mode, checked against
// attention in fp64; runtimes that have no pages at all; and the engine's own backends that serve such layers.
#include "cgr/inspect.h"
#include "cgr/names.h"
#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using namespace sets;

// Both directions with and without a window, and one direction.
Options EncoderAlone() {
  return OptionsOf({},
                   { Layer(0, 0, Keys::kStep, true, 4, 2, 32), Layer(0, 0, Keys::kStep, true, 4, 4, 64, 5),
                     Layer(0, 0, Keys::kStep, false, 8, 1, 32) },
                   1);
}

// Next to layers with a cache.
Options Mixed() {
  Options options = EncoderAlone();
  options.groups = { { 16, 40 } };
  options.layers.push_back(Layer(0, 0, Keys::kCache, false, 4, 2, 32));
  return options;
}

class NoCache : public OverDevices {
protected:
  static Bytes Scenario(SetsEngine &e) {
    const int32_t a = e.Open(), b = e.Open(), c = e.Open();
    Bytes all;
    for (const Bytes &bytes :
         { e.Decode({ { a, 17 }, { b, 1 }, { c, 40 } }), e.Decode({ { c, 1 }, { a, 1 } }), e.Decode({ { b, 70 } }),
           e.Decode({ { a, 0 }, { b, 3 }, { c, 30 } }), e.Decode({ { a, 1 }, { b, 1 }, { c, 1 } }) }) // a chunk sees only itself
      all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  }
};

TEST_P(NoCache, EveryModeGivesTheSameBitsAndTheOraclesValues) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  for (const Options &options : { EncoderAlone(), Mixed() }) {
    Bytes expected;
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE }) {
      SCOPED_TRACE(cgr_graph_mode_name(mode));
      Captured<SetsEngine> e(GetParam(), mode, options, seed);
      const Bytes got = Scenario(e);
      EXPECT_EQ(e.step.key.kind, mode == CGR_MODE_NONE        ? int32_t(CGR_KIND_NONE)
                                 : mode == CGR_MODE_PIECEWISE ? int32_t(CGR_KIND_PIECEWISE)
                                                              : int32_t(CGR_KIND_FULL));
      expected = mode == CGR_MODE_NONE ? got : expected;
      ASSERT_TRUE(got == expected) << "the bits differ from those of eager steps";
    }
  }
}

// No sampler either: the contents of next tokens are not used.
TEST_P(NoCache, SelfTestWithoutPages) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Options options = EncoderAlone();
    options.samples = false;
    Captured<SetsEngine> e(GetParam(), mode, options, 1);
    cgr_self_test test = CGR_SELF_TEST_INIT;
    test.max_token = 100;
    int32_t count = -1;
    CGR_EXPECT_OK(cgr_runtime_self_test(e.rt, &test, nullptr, 0, &count));
    EXPECT_EQ(count, 0);
    CGR_EXPECT_OK(cgr_runtime_audit(e.rt, nullptr, nullptr, 0, &count));
    EXPECT_EQ(count, 0);
  }
}

// Keys of the step are read while outputs are written.
TEST_P(NoCache, OutputsThatOverlapKeysAreRefused) {
  using Change = std::function<void(cgr_attention *)>;
  const std::vector<std::pair<Change, std::string>> changes = {
    { [](cgr_attention *a) { a->out.data = a->k.data; }, "out at" },
    { [](cgr_attention *a) { a->out.data = a->v.data; }, "out at" },
    { [](cgr_attention *a) { a->lse.data = a->k.data; }, "overlaps k at" },
    { [](cgr_attention *a) { a->lse.data = a->v.data; }, "lse at" },
  };
  SetsEngine e(GetParam(), CGR_MODE_FULL, EncoderAlone(), 1);
  char *memory = static_cast<char *>(e.Alloc(size_t(2) << 20)); // of k and v, and long enough for an output over either
  for (const auto &[change, word] : changes) {
    e.adjust_call = [&change = change, memory](size_t l, cgr_attention *a) {
      if (l != 0)
        return;
      a->k.data = memory, a->v.data = memory + (1 << 20);
      change(a);
    };
    ExpectMessage(e.Capture(), CGR_ERROR_CALLBACK, { "CGR_ERROR_INVALID_ARGUMENT", "overlaps", word });
  }
  e.adjust_call = nullptr;
  CGR_EXPECT_OK(e.Capture());
}

TEST_P(NoCache, WithoutGroupsNothingHasPages) {
  Captured<SetsEngine> e(GetParam(), CGR_MODE_FULL, EncoderAlone(), 1);
  const int32_t a = e.Open(), page = 3;
  int32_t first, end;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  ExpectMessage(cgr_request_set_pages(e.rt, a, 0, 0, &page, 1), CGR_ERROR_INVALID_ARGUMENT, { "group is 0" });
  ExpectMessage(cgr_request_drop_pages(e.rt, a, 0, 0, 1), CGR_ERROR_INVALID_ARGUMENT, { "group is 0" });
  ExpectMessage(cgr_request_get_pages(e.rt, a, 0, &first, &end), CGR_ERROR_INVALID_ARGUMENT, { "group is 0" });
  for (cgr_buffer buffer : { CGR_BUFFER_SLOT_MAPPING, CGR_BUFFER_PAGE_TABLE, CGR_BUFFER_KV_INDPTR })
    ExpectMessage(cgr_buffer_get(e.rt, nullptr, buffer, 0, &view), CGR_ERROR_INVALID_ARGUMENT,
                  { cgr_buffer_name(buffer), "no group" });
  // max_seq_len alone bounds a row, by one step and by many.
  e.Decode({ { a, 90 } });
  ExpectMessage(e.Prepare({ { a, 39 } }, 0), CGR_ERROR_SEQUENCE_TOO_LONG, { "129 tokens", "128" });
  e.Decode({ { a, 37 } });
  cgr_batch batch = BatchOf(1, &a);
  CGR_EXPECT_OK(cgr_step_prepare(e.rt, &batch, &e.step));
  CGR_EXPECT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
  ExpectMessage(cgr_step_prepare(e.rt, &batch, &e.step), CGR_ERROR_SEQUENCE_TOO_LONG, { "129 tokens" });
  CGR_EXPECT_OK(cgr_request_set_length(e.rt, a, 10));
  ExpectMessage(cgr_request_set_length(e.rt, a, 129), CGR_ERROR_SEQUENCE_TOO_LONG, { "129", "128" });
  e.requests.at(a)->num_tokens = 10;
  e.Decode({ { a, 4 } });
}

TEST_P(NoCache, WithoutGroupsNoBufferOfPagesCanBeAskedFor) {
  SetsEngine e(GetParam(), CGR_MODE_FULL, EncoderAlone(), 1);
  cgr_config config = e.Config();
  int32_t count = 0;
  for (cgr_buffer buffer : { CGR_BUFFER_KV_INDICES, CGR_BUFFER_BLOCK_TABLE }) {
    config.on_demand = CGR_ON_DEMAND(buffer);
    ExpectMessage(cgr_validate(&config, e.dev, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                  { "on_demand asks for", cgr_buffer_name(buffer), "expected a group" });
  }
  config.on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC) | CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_LENS);
  CGR_EXPECT_OK(cgr_validate(&config, e.dev, nullptr, 0, &count));
}

// A runtime of a layer with a cache needs a group.
TEST_P(NoCache, GroupsAreNeededByAnyCache) {
  SetsEngine e(GetParam(), CGR_MODE_FULL, EncoderAlone(), 1);
  cgr_config config = e.Config();
  std::vector<cgr_layer> layers(config.layers, config.layers + config.num_layers);
  config.layers = layers.data();
  int32_t count = 0;
  CGR_EXPECT_OK(cgr_validate(&config, e.dev, nullptr, 0, &count));
  layers[1].group = 1;
  ExpectMessage(cgr_validate(&config, e.dev, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "layers[1].group is 1", "0 .. 0" });
  layers[1].group = 0;
  layers[2].flags = 0;
  ExpectMessage(cgr_validate(&config, e.dev, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT,
                { "num_groups is 0", "1 .. 4", "CGR_LAYER_NO_CACHE" });
}

// ------------------------------------------------------------------------------------------------- an engine's own backend

// The calls that the backend received; it computes nothing.
struct Calls {
  std::vector<cgr_attention> all;
  static cgr_status Record(void *context, cgr_recorder *, const cgr_attention *a) {
    static_cast<Calls *>(context)->all.push_back(*a);
    return CGR_OK;
  }
};

TEST_P(NoCache, ABackendOfTheEnginesGetsItsKeys) {
  Calls calls;
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "mine", backend.context = &calls, backend.record = Calls::Record;
  std::vector<cgr_layer> layers;
  Options options = EncoderAlone();
  options.adjust = [&](cgr_config *config) {
    layers.assign(config->layers, config->layers + config->num_layers);
    layers[1].backend = 1;
    config->layers = layers.data(), config->backends = &backend, config->num_backends = 1;
  };
  SetsEngine e(GetParam(), CGR_MODE_NONE, options, 1);
  std::vector<cgr_attention> given(3);
  e.adjust_call = [&](size_t l, cgr_attention *a) { given[l] = *a; };
  CGR_ASSERT_OK(e.Capture());
  const int32_t a = e.Open();
  CGR_ASSERT_OK(e.Prepare({ { a, 3 } }, 0));
  CGR_ASSERT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
  CGR_ASSERT_OK(cgr_step_wait(e.rt, e.step.mark, -1, nullptr));
  ASSERT_EQ(calls.all.size(), 1u); // no append before it
  EXPECT_EQ(calls.all[0].layer, 1);
  EXPECT_EQ(calls.all[0].flags, 0u);
  EXPECT_EQ(calls.all[0].k.data, given[1].k.data);
  EXPECT_EQ(calls.all[0].v.data, given[1].v.data);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(NoCache);

} // namespace
} // namespace cgr_test

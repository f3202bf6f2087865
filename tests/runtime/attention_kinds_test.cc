// Layers of every kind of attention through the public interface: many kinds at random in one runtime, eagerly and in graphs of
// both kinds, bit-identical and checked against fp64; with unowned memory poisoned; and, in batch-invariant mode, the same alone
// as among others.
#include <cstring>
#include <map>

#include "cgr/names.h"
#include "tests/support/attention_kinds.h"
#include "tests/support/engine.h"

namespace cgr_test {
namespace {

// A step: how many tokens each row takes.
struct ScriptedItem {
  int32_t request, length;
};
using Script = std::vector<std::vector<ScriptedItem>>;

class AttentionKinds : public OverDevices {
protected:
  enum { kRequests = 5, kMostTokens = 48, kLongSteps = 300 };

  void SetUpOnDevice() override {
    cgr_device *dev = nullptr;
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &dev));
    CGR_EXPECT_OK(cgr_device_get_info(dev, &info_));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }

  // How many of `count` runs: all on one host device and on a GPU; other host schedules and the emulation need fewer.
  static uint64_t Runs(uint64_t count) {
    const DeviceParam &param = GetParam();
    const bool is_first = param.IsCuda() || param.config.host_schedule == CGR_SCHEDULE_ASYNC;
    return param.IsEmulated() ? (count + 7) / 8 : is_first ? count : (count + 2) / 3;
  }
  bool Serves(const LayerOptions &options) const {
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = options.num_q_heads, layer.num_kv_heads = options.num_kv_heads;
    layer.head_dim = options.head_dim;
    layer.dtype = layer.out_dtype = layer.k.dtype = layer.v.dtype = options.dtype;
    SetKind(&layer, options.kind);
    cgr__findings findings;
    cgr__findings_init(&findings, nullptr, 0);
    return cgr__kernel_kind_choose(&info_, &layer, kMostTokens, &findings) != nullptr;
  }
  // A layer that the registry has. `keys`: which keys it may ask for.
  LayerOptions RandomLayer(Random &random, int32_t page_size, const std::vector<Keys> &keys) const {
    LayerOptions layer;
    do {
      const cgr_dtype dtypes[] = { CGR_DTYPE_BF16, CGR_DTYPE_FP16, CGR_DTYPE_FP32 };
      const int32_t dims[] = { 64, 8 * random.Pick32(1, 16), 80, 128 };
      layer = LayerOptions();
      layer.num_kv_heads = random.Pick32(1, 2);
      layer.num_q_heads = layer.num_kv_heads * random.Pick32(1, 3);
      layer.head_dim = dims[random.Pick(0, 3)];
      layer.dtype = dtypes[random.Pick(0, 2)];
      layer.scale = random.OneIn(3) ? 0.125f : 0.0f;
      layer.kind = RandomKind(random, layer.num_q_heads, page_size, keys);
      if (random.OneIn(4))
        layer.kind.head_dim_v = dims[random.Pick(0, 3)];
    } while (!Serves(layer));
    return layer;
  }
  // Another kind over the cache of layer `source`, or the same kind as that layer, whose plan it then shares.
  LayerOptions NextTo(Random &random, const std::vector<LayerOptions> &layers, int32_t source, const EngineOptions &o) const {
    LayerOptions layer = layers[size_t(source)];
    if (random.OneIn(2) || layer.kv_source != 0)
      return layer;
    const LayerOptions first = layer;
    layer.kv_source = source + 1;
    do {
      layer.kind = RandomKind(random, layer.num_q_heads, o.page_size, { Keys::kCache });
      layer.kind.head_dim_v = first.kind.head_dim_v;
    } while (!Serves(layer));
    return layer;
  }
  EngineOptions RandomOptions(Random &random, int32_t num_layers) const {
    EngineOptions o;
    o.device = GetParam(), o.feed = Feed::kUploads, o.dtype = CGR_DTYPE_BF16;
    o.layout = KvLayout(random.Pick(0, 6));
    o.page_size = 16 << random.Pick(0, 2);
    o.num_pages = 12 * 64 / o.page_size * kRequests / 2 + 8;
    o.page_gap = 16 * random.Pick32(0, 1);
    o.token_gap = 8 * random.Pick32(0, 2);
    o.heads_first = random.OneIn(4), o.max_tokens = kMostTokens, o.max_seq_len = 256;
    o.mixed = { { 16, 4 }, { kMostTokens, 8 } };
    o.layers.clear();
    for (int32_t l = 0; l < num_layers; l++)
      o.layers.push_back(l > 0 && random.OneIn(4) ? NextTo(random, o.layers, random.Pick32(0, l - 1), o)
                                                  : RandomLayer(random, o.page_size, { Keys::kCache }));
    const int32_t parts = random.OneIn(2) ? 0 : random.Pick32(1, 40), invariant = random.OneIn(3);
    o.adjust = [parts, invariant](cgr_config *c) { c->num_parts = parts, c->batch_invariant = invariant; };
    return o;
  }
  // Prompts in chunks, then steps of decodes, chunks, and both.
  static Script RandomScript(Random &random, int32_t num_steps, int32_t most = kMostTokens) {
    Script script;
    for (int32_t s = 0; s < num_steps; s++) {
      std::vector<ScriptedItem> step;
      const bool decodes = s > 2 && random.OneIn(2);
      int32_t room = most;
      for (int32_t r = 0; r < kRequests; r++) {
        const int32_t length =
            decodes || (s > 2 && random.OneIn(2)) ? 1 : random.Pick32(1, random.OneIn(3) ? most * 4 / 5 : most / 4);
        if (random.OneIn(4) || length > room)
          continue;
        step.push_back({ r, length });
        room -= length;
      }
      if (!step.empty())
        script.push_back(step);
    }
    return script;
  }

  // What each call gave its real tokens, in every step.
  struct Bits {
    std::vector<std::vector<unsigned char>> out;
    std::vector<std::vector<float>> lse;
  };
  // Runs the script; every step is checked against fp64, or the caller compares the bits with those of a run that was. `poison`:
  // the contents of unwritten memory.
  std::vector<Bits> Run(EngineOptions o, int32_t mode, const Script &script, double poison, bool against_fp64 = true) const {
    o.mode = mode, o.unowned = poison;
    Engine engine(o);
    engine.check_answers = against_fp64;
    std::vector<Bits> all;
    if (::testing::Test::HasFatalFailure())
      return all;
    CGR_EXPECT_OK(engine.Capture());
    std::vector<int32_t> rows;
    for (int32_t r = 0; r < kRequests; r++)
      rows.push_back(engine.Open());
    for (const std::vector<ScriptedItem> &step : script) {
      std::vector<std::pair<int32_t, int32_t>> chunks;
      int32_t tokens = 0;
      for (const ScriptedItem &item : step) {
        chunks.push_back({ rows[size_t(item.request)], item.length });
        tokens += item.length;
      }
      engine.Step(engine.Chunks(chunks));
      if (::testing::Test::HasFailure())
        return all;
      Bits bits;
      for (int32_t c = 0; c < engine.state.num_calls; c++) {
        bits.out.push_back(engine.Out(c, tokens));
        bits.lse.push_back(engine.Lse(c, tokens));
      }
      all.push_back(bits);
    }
    const cgr_stats stats = engine.Stats();
    for (const uint64_t eager : stats.by_reason[CGR_KIND_NONE])
      EXPECT_TRUE(mode == CGR_MODE_NONE || eager == 0) << "a step had no graph";
    return all;
  }
  static void ExpectSame(const std::vector<Bits> &got, const std::vector<Bits> &expected, const char *what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t s = 0; s < got.size(); s++)
      for (size_t c = 0; c < got[s].out.size(); c++) {
        ASSERT_TRUE(got[s].out[c] == expected[s].out[c]) << what << ": out of step " << s << ", layer " << c;
        ASSERT_EQ(std::memcmp(got[s].lse[c].data(), expected[s].lse[c].data(), got[s].lse[c].size() * sizeof(float)), 0)
            << what << ": lse of step " << s << ", layer " << c;
      }
  }
  static std::string TextOfLayers(const EngineOptions &o) {
    std::string text;
    for (const LayerOptions &l : o.layers)
      text += "\n  " + std::to_string(l.num_q_heads) + "/" + std::to_string(l.num_kv_heads) + "x" + std::to_string(l.head_dim) +
              " " + cgr_dtype_name(cgr_dtype(l.dtype)) +
              (l.kv_source != 0 ? " of layer " + std::to_string(l.kv_source - 1) : "") + TextOf(l.kind);
    return text;
  }

  cgr_device_info info_ = CGR_DEVICE_INFO_INIT;
};

// 200 layers and more, four to a runtime.
TEST_P(AttentionKinds, AreTheSameEagerlyAndInGraphs) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + Runs(51) && !HasFailure(); seed++) {
    Random random(seed);
    const EngineOptions o = RandomOptions(random, 4);
    const Script script = RandomScript(random, 7);
    SCOPED_TRACE(Repeat(seed) + TextOfLayers(o));
    const std::vector<Bits> eager = Run(o, CGR_MODE_NONE, script, NAN);
    for (int32_t mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE })
      if (!HasFailure())
        ExpectSame(Run(o, mode, script, NAN, false), eager, cgr_graph_mode_name(cgr_graph_mode(mode)));
  }
}

// Whatever unwritten pages and tails hold.
TEST_P(AttentionKinds, DoNotSeeWhatNoRequestOwns) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + Runs(8) && !HasFailure(); seed++) {
    Random random(seed);
    const EngineOptions o = RandomOptions(random, 4);
    const Script script = RandomScript(random, 6);
    SCOPED_TRACE(Repeat(seed) + TextOfLayers(o));
    const std::vector<Bits> zeros = Run(o, CGR_MODE_FULL, script, 0.0);
    for (double poison : { double(NAN), double(INFINITY), -1e4 })
      if (!HasFailure())
        ExpectSame(Run(o, CGR_MODE_FULL, script, poison, false), zeros, "poison");
  }
}

// Layers that differ in nothing but their window have plans of their own.
TEST_P(AttentionKinds, OfOneShapeHaveAPlanForEachWindow) {
  EngineOptions o;
  o.device = GetParam(), o.feed = Feed::kUploads, o.dtype = CGR_DTYPE_BF16;
  o.layers.assign(kMaxLayers, { 2, 1, 64 });
  for (int32_t l = 0; l < kMaxLayers; l++)
    o.layers[size_t(l)].kind.window_left = 3 * l;
  LayerOptions last = o.layers.back();
  last.dtype = o.dtype;
  if (!Serves(last))
    GTEST_SKIP() << "no windows";
  const Script script = { { { 0, 40 }, { 1, 3 } }, { { 0, 1 }, { 1, 1 }, { 2, 1 } }, { { 2, 5 }, { 0, 1 } } };
  o.mixed = { { 16, 4 }, { kMostTokens, 8 } };
  o.max_tokens = kMostTokens;
  const std::vector<Bits> eager = Run(o, CGR_MODE_NONE, script, NAN);
  if (!HasFailure())
    ExpectSame(Run(o, CGR_MODE_FULL, script, NAN, false), eager, "full");
}

// ------------------------------------------------------------------------------------------------------------ batch-invariant

// Host functions derive the values from token and position, so that a request can be run again alone.
class AttentionKindsAlone : public AttentionKinds {
protected:
  void SetUp() override {
    if (GetParam().IsCuda())
      GTEST_SKIP() << "its inputs are made by host functions";
    AttentionKinds::SetUp();
  }
  // Runs the steps of the requests that `takes` says; the bits of each request of each step, for all calls.
  template <class Takes>
  std::vector<std::vector<unsigned char>> Answers(EngineOptions o, const Script &script, Takes takes) const {
    o.feed = Feed::kTokens;
    Engine engine(o);
    engine.check_outputs = false;
    std::vector<std::vector<unsigned char>> answers;
    std::map<int32_t, int32_t> rows;
    CGR_EXPECT_OK(engine.Capture());
    for (size_t s = 0; s < script.size() && !::testing::Test::HasFailure(); s++) {
      std::vector<Item> items;
      for (const ScriptedItem &item : script[s])
        if (takes(item.request)) {
          if (rows.count(item.request) == 0)
            rows[item.request] = engine.Open();
          const int32_t row = rows[item.request];
          engine.Reserve(row, engine.requests.at(row)->num_tokens + item.length);
          items.push_back(Engine::Chunk(row, item.length, item.request + 7 * int32_t(s), true));
        }
      if (items.empty())
        continue;
      engine.Step(items);
      int32_t token = 0;
      for (const Item &item : items) {
        const int32_t count = int32_t(item.tokens.size());
        answers.emplace_back();
        for (int32_t c = 0; c < engine.state.num_calls; c++)
          TakeTokens(engine, c, token, count, &answers.back());
        token += count;
      }
    }
    return answers;
  }
  static void TakeTokens(Engine &engine, int32_t call, int32_t first, int32_t count, std::vector<unsigned char> *to) {
    const std::vector<unsigned char> out = engine.Out(call, first + count);
    const std::vector<float> lse = engine.Lse(call, first + count);
    const size_t all = size_t(first + count);
    to->insert(to->end(), out.begin() + int64_t(out.size() / all * size_t(first)), out.end());
    const unsigned char *begin = reinterpret_cast<const unsigned char *>(lse.data() + lse.size() / all * size_t(first));
    to->insert(to->end(), begin, reinterpret_cast<const unsigned char *>(lse.data() + lse.size()));
  }
};

TEST_P(AttentionKindsAlone, HaveTheSameBitsAsAmongOthers) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + Runs(5) && !HasFailure(); seed++) {
    Random random(seed);
    EngineOptions o = RandomOptions(random, 4);
    o.mode = CGR_MODE_FULL;
    o.max_tokens = kLongSteps; // long enough that tiles are cut, and without the mode not by their request alone
    o.mixed = { { 16, 4 }, { kLongSteps, 8 } };
    o.max_seq_len = 8 * kLongSteps, o.num_pages = kRequests * o.max_seq_len / o.page_size + 8;
    const int32_t parts = random.Pick32(1, 40);
    o.adjust = [parts](cgr_config *c) { c->num_parts = parts, c->batch_invariant = 1; };
    const Script script = RandomScript(random, 8, kLongSteps);
    SCOPED_TRACE(Repeat(seed) + TextOfLayers(o));
    std::vector<std::vector<std::vector<unsigned char>>> alone(kRequests);
    for (int32_t r = 0; r < kRequests && !HasFailure(); r++)
      alone[size_t(r)] = Answers(o, script, [r](int32_t request) { return request == r; });
    const std::vector<std::vector<unsigned char>> all = Answers(o, script, [](int32_t) { return true; });
    std::vector<size_t> next(kRequests, 0);
    size_t i = 0;
    for (const std::vector<ScriptedItem> &step : script)
      for (const ScriptedItem &item : step) {
        ASSERT_LT(i, all.size());
        ASSERT_TRUE(all[i++] == alone[size_t(item.request)][next[size_t(item.request)]++]) << "request " << item.request;
      }
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(AttentionKinds);
CGR_INSTANTIATE_OVER_FEW_DEVICES(AttentionKindsAlone);

} // namespace
} // namespace cgr_test

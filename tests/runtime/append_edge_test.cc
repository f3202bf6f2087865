// Attention is told that it may begin alongside the preceding append only if it directly follows that append: no timestamp, copy
// or engine call is between them. An append that is told that attention follows lets the next kernel begin early, and any kernel
// other than attention would not wait. Attention is also told how long queries are.
#include <set>

#include "cgr/names.h"
#include "devices/shims/shim.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/transform.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

// What was enqueued on a stream, in order: the arguments of appends and attention, and the relevant ones of prologues.
struct Enqueued {
  cudaStream_t stream;
  const void *kernel; // NULL: something else
  cgr__append_args append;
  cgr__attention_args attention;
  int32_t max_query_len; // the longest that a prologue accepts
};

std::vector<Enqueued> enqueued;

int Note(struct cgr__shim *, const struct cgr__shim_call *call, uint64_t *) {
  Enqueued one = { call->stream, nullptr, {}, {}, 0 };
  switch (call->op) {
  case CGR__OP_LAUNCH:
    one.kernel = call->object;
    if (one.kernel == &cgr__kernel_append)
      one.append = *static_cast<const cgr__append_args *>(call->args);
    if (one.kernel == &cgr__kernel_attention)
      one.attention = *static_cast<const cgr__attention_args *>(call->args);
    if (one.kernel == &cgr__kernel_prologue)
      one.max_query_len = static_cast<const cgr__step_args *>(call->args)->max_query_len;
    break;
  case CGR__OP_COPY:
  case CGR__OP_FILL:
  case CGR__OP_HOST_CALL:
  case CGR__OP_EVENT_RECORD:
  case CGR__OP_EVENT_WAIT:
  case CGR__OP_CAPTURE_BEGIN:
  case CGR__OP_CAPTURE_END:
  case CGR__OP_EXEC_LAUNCH:
    break;
  default:
    return 0;
  }
  enqueued.push_back(one);
  return 0;
}

const cgr__shim_hooks kHooks = { Note, nullptr, nullptr, nullptr };

class AppendEdge : public OverDevices {
protected:
  void SetUpOnDevice() override { enqueued.clear(); }

  // Three layers, of which the last reads the first one's cache.
  std::unique_ptr<Engine> Make(int32_t mode, int32_t timing, const std::vector<CallOptions> &calls = {}) {
    cgr_device *inner = OpenDevice(GetParam());
    struct cgr__shim *shim = nullptr;
    EXPECT_EQ(cgr__shim_open(sizeof *shim, inner, &kHooks, &shim), CGR__DEVICE_OK);
    LayerOptions reader = { 4, 2 };
    reader.kv_source = 1;
    EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, { 4, 2 }, reader });
    options.calls = calls, options.handle = &shim->head, options.mode = mode;
    options.mixed = { { 16, 4 } };
    options.adjust = [=](cgr_config *config) { config->timing = timing; };
    return MakeCaptured(options);
  }

  // A chunk and some decodes, eager and in whatever graphs there are.
  static void Steps(Engine &engine) {
    const int32_t a = engine.Open(), b = engine.Open();
    const cgr_key eager = EagerKey(8, 16);
    engine.Step(engine.Chunks({ { a, 9 }, { b, 3 } }));
    engine.Step(engine.Chunks({ { a, 5 }, { b, 1 } }), &eager);
    engine.Step(engine.Decode({ a, b }));
  }

  // What `check`(mode) finds enqueued is one mode's.
  template <class Check> void StepsInEachMode(Check check) {
    for (int32_t mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE(cgr_graph_mode_name(cgr_graph_mode(mode)));
      enqueued.clear();
      auto engine = Make(mode, CGR_TIMING_OFF);
      Steps(*engine);
      check(mode);
    }
  }

  // The number of appends directly followed by their attention, each told of the other.
  static int32_t CountPairs() {
    std::map<cudaStream_t, const Enqueued *> last;
    int32_t pairs = 0;
    for (const Enqueued &one : enqueued) {
      const Enqueued *before = last[one.stream];
      last[one.stream] = &one;
      const bool follows = before != nullptr && before->kernel == &cgr__kernel_append && before->append.attention_follows == 1;
      const bool after = one.kernel == &cgr__kernel_attention && one.attention.after_append == 1;
      EXPECT_EQ(follows, after) << "one says that it overlaps the other, which does not";
      if (after) {
        pairs++;
        EXPECT_EQ(one.attention.k_cache.base, before->append.k_cache.base) << "the append of another layer";
      }
    }
    for (const auto &end : last)
      EXPECT_FALSE(end.second->kernel == &cgr__kernel_append && end.second->append.attention_follows == 1)
          << "the last append of a stream says that attention follows";
    return pairs;
  }

  static int64_t CountLaunches(const cgr__kernel &kernel) {
    return std::count_if(enqueued.begin(), enqueued.end(), [&](const Enqueued &one) { return one.kernel == &kernel; });
  }
};

TEST_P(AppendEdge, IsBetweenEachAppendAndItsAttention) {
  StepsInEachMode([](int32_t) {
    const int64_t appends = CountLaunches(cgr__kernel_append);
    EXPECT_GE(appends, 2 * 3);
    EXPECT_EQ(CountPairs(), appends);
    EXPECT_EQ(CountLaunches(cgr__kernel_attention) * 2, appends * 3) << "two of three layers append";
  });
}

TEST_P(AppendEdge, IsNowhereWhereTimestampsComeBetween) {
  auto engine = Make(CGR_MODE_FULL, CGR_TIMING_LAYERS);
  Steps(*engine);
  EXPECT_GE(CountLaunches(cgr__kernel_append), 2 * 3);
  EXPECT_EQ(CountPairs(), 0);
}

// The first layer's call appends alone, another call attends; the second layer's does both.
TEST_P(AppendEdge, IsNotBetweenTwoCallsOfOneLayer) {
  auto engine =
      Make(CGR_MODE_FULL, CGR_TIMING_OFF,
           { { 0, CGR_ATTENTION_APPEND_ONLY }, { 0, CGR_ATTENTION_NO_APPEND }, { 1, 0 }, { 2, CGR_ATTENTION_NO_APPEND } });
  Steps(*engine);
  const int64_t appends = CountLaunches(cgr__kernel_append);
  EXPECT_GE(appends, 2 * 3);
  EXPECT_EQ(CountPairs(), appends / 2);
}

// The kernel that transforms q appends, too. Attention, which would read q early, comes after it; so it does between other
// kernels. A transform of nothing is the append.
TEST_P(AppendEdge, IsNotWhereQIsTransformed) {
  alignas(16) static const unsigned char bias[4 * 64 * 2] = {};
  if (GetParam().IsCuda())
    GTEST_SKIP() << "the bias is in the host's memory";
  cgr_qkv_transform transform = CGR_QKV_TRANSFORM_INIT;
  for (const void *q_bias : { static_cast<const void *>(nullptr), static_cast<const void *>(bias) }) {
    enqueued.clear();
    auto engine = Make(CGR_MODE_NONE, CGR_TIMING_OFF);
    transform.q_bias = q_bias;
    engine->adjust_call = [&](size_t, cgr_attention *call) { call->transform = &transform; };
    Steps(*engine);
    const int64_t appends = CountLaunches(cgr__kernel_append), transforms = CountLaunches(cgr__kernel_transform);
    EXPECT_EQ(CountPairs(), appends);
    EXPECT_GE(q_bias == nullptr ? appends : transforms, 2 * 3);
    EXPECT_EQ(q_bias == nullptr ? transforms : appends, 0);
    if (q_bias != nullptr) {
      EXPECT_EQ(CountLaunches(cgr__kernel_attention), transforms) << "the layer that only reads has its q transformed, too";
    }
  }
}

// An eager step's own longest query, or the longest that a graph's key serves. The prologue refuses longer ones, unless the key
// has no bound.
TEST_P(AppendEdge, AttentionIsToldTheMostNewTokensOfARequest) {
  StepsInEachMode([](int32_t mode) {
    std::set<int32_t> lengths, guarded;
    for (const Enqueued &one : enqueued) {
      if (one.kernel == &cgr__kernel_prologue && one.max_query_len != 0)
        guarded.insert(one.max_query_len);
      if (one.kernel == &cgr__kernel_attention) {
        lengths.insert(one.attention.max_query_len);
        EXPECT_EQ(one.attention.shared_bytes > 0, GetParam().HasCudaKernels());
      }
    }
    EXPECT_EQ(lengths, (std::set<int32_t>{ 1, 5, mode == CGR_MODE_NONE ? 9 : 16 }));
    EXPECT_EQ(guarded, mode == CGR_MODE_NONE ? std::set<int32_t>({ 1, 5, 9 }) : std::set<int32_t>({ 1, 5 }));
  });
}

CGR_INSTANTIATE_OVER_DEVICES(AppendEdge);

} // namespace
} // namespace cgr_test

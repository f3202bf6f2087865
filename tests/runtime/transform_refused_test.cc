// What a transform is refused for, by name: the step is given up with the cause in the message, and the next one is right. Also
// transforms that come close to a refusal but are valid.
#include "tests/support/transform_case.h"

namespace cgr_test {
namespace {

// A call and its transform.
struct Given {
  cgr_attention call;
  cgr_qkv_transform transform;
};

class TransformIsRefused : public ThreeRequests {
protected:
  void SetUpOnDevice() override {
    LayerOptions step = { 4, 2 };
    step.kind.keys = Keys::kStep;
    EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, step });
    ASSERT_NO_FATAL_FAILURE(ThreeRequests::Make(options));
    arrays_ = TransformArrays(*engine_, engine_->o.layers[0], 32);
    engine_->Sync();
  }
  Given Good(int32_t layer = 0) const { return { engine_->state.call[layer].attention, arrays_.transform }; }
  void EachGiven(const std::vector<Mistake<Given>> &rows, int32_t layer = 0) {
    EachRefusedInRecord(
        "cgr_record_attention", rows, [&] { return Good(layer); },
        [](cgr_recorder *recorder, const Given *given) {
          cgr_attention call = given->call;
          call.transform = &given->transform;
          return cgr_record_attention(recorder, &call);
        });
  }
  // Steps whose calls of a layer have been changed so are good. What they compute is not looked at.
  void EachTaken(const std::vector<std::function<void(Given &)>> &changes, int32_t layer = 0) {
    engine_->check_answers = engine_->check_at_end = false;
    for (size_t i = 0; i < changes.size(); i++) {
      SCOPED_TRACE(i);
      Given given = Good(layer);
      changes[i](given);
      engine_->adjust_call = [&](size_t, cgr_attention *call) {
        if (call->layer != layer)
          return;
        *call = given.call;
        call->transform = &given.transform;
      };
      engine_->Step(EagerItems());
      engine_->adjust_call = nullptr;
      ASSERT_FALSE(HasFailure());
    }
  }
  template <class T> static T *Bytes(T *at, ptrdiff_t bytes) {
    return reinterpret_cast<T *>(reinterpret_cast<intptr_t>(at) + bytes);
  }

  TransformArrays arrays_;
};

TEST_P(TransformIsRefused, ForItsNumbers) {
  EachGiven({
      { kStruct, "transform", [](Given &g) { g.transform.size = 0; } },
      { kEnum, "transform.flags", [](Given &g) { g.transform.flags = 4; } },
      { kNewer, "transform.reserved is 7", [](Given &g) { g.transform.reserved = 7; } },
      { kArgument, "transform.norm_epsilon is -1 ... 0 or more", [](Given &g) { g.transform.norm_epsilon = -1.0f; } },
      { kArgument, "transform.norm_epsilon is inf", [](Given &g) { g.transform.norm_epsilon = INFINITY; } },
      { kArgument, "transform.norm_epsilon is", [](Given &g) { g.transform.norm_epsilon = NAN; } },
      { kArgument, "transform.rotary_dim is 24 ... multiple of 16 up to head_dim (64)",
        [](Given &g) { g.transform.rotary_dim = 24; } },
      { kArgument, "transform.rotary_dim is 80", [](Given &g) { g.transform.rotary_dim = 80; } },
      { kArgument, "transform.rotary_dim is -16", [](Given &g) { g.transform.rotary_dim = -16; } },
      { kArgument, "transform.num_positions is 95 ... at least 96 ... length set 0",
        [](Given &g) { g.transform.num_positions = 95; } },
      { kArgument, "transform.num_positions is -1", [](Given &g) { g.transform.num_positions = -1; } },
      { kArgument, "transform.cos_sin is NULL with num_positions 96 and rotary_dim 32",
        [](Given &g) { g.transform.cos_sin = nullptr; } },
      { kArgument, "transform.cos_sin is NULL with num_positions 0 and rotary_dim 32",
        [](Given &g) { g.transform.cos_sin = nullptr, g.transform.num_positions = 0; } },
  });
  EachTaken({
      [](Given &) {}, [](Given &g) { g.transform = CGR_QKV_TRANSFORM_INIT; },
      [](Given &g) { g.transform.flags = 3, g.transform.norm_epsilon = 0.5f, g.transform.rotary_dim = 16; },
      [](Given &g) { g.transform.cos_sin = nullptr, g.transform.num_positions = g.transform.rotary_dim = 0; },
      [](Given &g) { g.transform.size = 8; }, // an older one, without pointers
  });
}

TEST_P(TransformIsRefused, ForItsMemory) {
  const auto at_the_end = reinterpret_cast<void *>(UINTPTR_MAX - 15);
  EachGiven({
      { kArgument, "transform.q_bias is ... 16 bytes", [](Given &g) { g.transform.q_bias = Bytes(g.transform.q_bias, 8); } },
      { kArgument, "transform.k_bias is ... 16 bytes", [](Given &g) { g.transform.k_bias = Bytes(g.transform.k_bias, 8); } },
      { kArgument, "transform.v_bias is ... 16 bytes", [](Given &g) { g.transform.v_bias = Bytes(g.transform.v_bias, 8); } },
      { kArgument, "transform.q_norm is ... 16 bytes", [](Given &g) { g.transform.q_norm = Bytes(g.transform.q_norm, 8); } },
      { kArgument, "transform.k_norm is ... 16 bytes", [](Given &g) { g.transform.k_norm = Bytes(g.transform.k_norm, 8); } },
      { kArgument, "transform.cos_sin is ... 16 bytes", [](Given &g) { g.transform.cos_sin = Bytes(g.transform.cos_sin, 8); } },
      { kArgument, "transform.q_bias is 0x ... 512 bytes ... within memory", [=](Given &g) { g.transform.q_bias = at_the_end; } },
      { kArgument, "transform.cos_sin is 0x ... within memory",
        [=](Given &g) { g.transform.cos_sin = static_cast<const float *>(at_the_end); } },
  });
}

TEST_P(TransformIsRefused, ForMemoryThatEndsBeyondItsAllocation) {
  if (GetParam().HasCudaKernels())
    GTEST_SKIP() << "eager steps without the layer do not look at it";
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  EachGiven({
      { kArgument, "transform.q_bias takes 512 ... most 16", [=](Given &g) { g.transform.q_bias = small; } },
      { kArgument, "transform.k_bias takes 256", [=](Given &g) { g.transform.k_bias = small; } },
      { kArgument, "transform.v_bias takes 256", [=](Given &g) { g.transform.v_bias = small; } },
      { kArgument, "transform.q_norm takes 128", [=](Given &g) { g.transform.q_norm = small; } },
      { kArgument, "transform.k_norm takes 128", [=](Given &g) { g.transform.k_norm = small; } },
      { kArgument, "transform.cos_sin takes 12288", [=](Given &g) { g.transform.cos_sin = static_cast<float *>(small); } },
  });
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

// q is written in place; in a layer without a cache k and v are, too. The step has 3 tokens.
TEST_P(TransformIsRefused, ForWhatItWouldOverwrite) {
  EachGiven({
      { kArgument, "q at ... overlaps k at ... memory of its own", [](Given &g) { g.call.k = g.call.q; } },
      { kArgument, "q at ... overlaps v at", [](Given &g) { g.call.v.data = Bytes(g.call.q.data, 128); } },
      { kArgument, "q at ... overlaps transform.q_bias at", [](Given &g) { g.transform.q_bias = g.call.q.data; } },
      { kArgument, "out at ... overlaps transform.k_norm at", [](Given &g) { g.transform.k_norm = g.call.out.data; } },
      { kArgument, "lse at ... overlaps transform.v_bias at", [](Given &g) { g.transform.v_bias = g.call.lse.data; } },
      { kArgument, "q at ... overlaps transform.k_norm at", [](Given &g) { g.transform.k_norm = Bytes(g.call.q.data, 384); } },
      { kArgument, "q at ... overlaps transform.v_bias at",
        [](Given &g) { g.transform.v_bias = Bytes(g.call.q.data, 2 * 528 + 512 - 16); }, "the end of the last head" },
  });
  EachGiven(
      {
          { kArgument, "q at ... overlaps k at", [](Given &g) { g.call.k = g.call.q; } },
          { kArgument, "k at ... overlaps v at", [](Given &g) { g.call.v = g.call.k; } },
          { kArgument, "v at ... overlaps k at",
            [](Given &g) {
              g.call.v = g.call.k, g.transform.k_bias = g.transform.k_norm = g.transform.cos_sin = nullptr,
              g.transform.num_positions = g.transform.rotary_dim = 0;
            } },
          { kArgument, "v at ... overlaps transform.q_norm at", [](Given &g) { g.transform.q_norm = g.call.v.data; } },
      },
      1);
  EachTaken({ [](Given &g) { g.call.v = g.call.k; } }); // they are only read
  EachTaken({ [](Given &g) { g.call.v = g.call.k, g.transform = CGR_QKV_TRANSFORM_INIT; } }, 1);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(TransformIsRefused);

} // namespace
} // namespace cgr_test

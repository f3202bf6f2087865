// Attention calls that transform q, k and v in layers of several length sets: a decoder's own, those that attend to an encoder's
// cache, and the encoder's without one. Positions are those of the step's own set: of the encoder's tokens as they go to the
// cache, of the decoder's where it attends to them. The bits are those of a kernel that transforms before plain calls.
#include "kernels/transform.h"
#include "tests/support/sets_case.h"
#include "tests/support/transform_case.h"

namespace cgr_test {
namespace {

using namespace sets;

class TransformSets : public OverDevices {
protected:
  void Make(bool in_calls, cgr_graph_mode mode, bool attends) {
    Options options = EncoderAndDecoder();
    options.layers[2].attends = attends; // in steps of the encoder's tokens, too
    engine_.reset();
    arrays_.clear();
    engine_ = std::make_unique<SetsEngine>(GetParam(), mode, options, 7);
    SetsEngine &e = *engine_;
    e.check_answers = false; // the engine's model knows of no transform
    for (const LayerOptions &layer : e.o.layers)
      arrays_.push_back(TransformArrays(e, layer, 16));
    e.adjust_call = [this, in_calls](size_t, cgr_attention *call) {
      transform_ = arrays_[size_t(call->layer)].transform;
      transform_.flags = call->layer % 2 == 0 ? 0 : CGR_TRANSFORM_INTERLEAVED;
      if (in_calls)
        call->transform = &transform_;
      else
        TransformInPlace(call->layer);
    };
    CGR_ASSERT_OK(e.Capture());
  }
  void TransformInPlace(int32_t layer) {
    const cgr_qkv_transform &t = transform_;
    const cgr_record_info &info = engine_->records.back();
    const LayerOptions &l = engine_->o.layers[size_t(layer)];
    const void *bias[] = { t.q_bias, t.k_bias, t.v_bias }, *norm[] = { t.q_norm, t.k_norm, nullptr };
    cgr__transform_args args = {};
    for (int i = 0; i < CGR__NUM_TRANSFORMED; i++) {
      args.tensor[i].from = engine_->state.layer[layer].in[i];
      args.tensor[i].bias = bias[i], args.tensor[i].norm = norm[i];
      args.tensor[i].num_heads = args.tensor[i].from.data == nullptr ? 0 : i == 0 ? l.num_q_heads : l.num_kv_heads;
      args.tensor[i].head_dim = l.head_dim, args.tensor[i].rotary_dim = i < 2 ? t.rotary_dim : 0;
    }
    args.cos_sin = t.cos_sin, args.num_positions = t.num_positions, args.page_size = 16;
    args.positions = static_cast<const int32_t *>(BufferOf(engine_->rt, CGR_BUFFER_POSITIONS).data);
    args.counts = static_cast<const int32_t *>(BufferOf(engine_->rt, CGR_BUFFER_COUNTS).data);
    args.num_tokens = info.num_tokens, args.interleaved = layer % 2, args.epsilon = 1e-6f;
    EXPECT_EQ(engine_->dev->ops->launch(engine_->dev, &cgr__kernel_transform, &args, info.stream), CGR__DEVICE_OK);
  }
  // Rows that are encoded in chunks, late, or not at all.
  Bytes Run() {
    SetsEngine &e = *engine_;
    const int32_t a = e.Open(), b = e.Open(), c = e.Open();
    Bytes all;
    for (const Bytes &bytes :
         { e.Decode({ { a, 3 } }), e.Encode({ { a, 17 }, { b, 3 } }), e.Decode({ { a, 1 }, { b, 5 }, { c, 1 } }),
           e.Encode({ { a, 20 }, { c, 1 } }), e.Decode({ { b, 1 }, { c, 30 } }), e.Decode({ { a, 1 }, { b, 1 }, { c, 1 } }) })
      all.insert(all.end(), bytes.begin(), bytes.end());
    const std::vector<unsigned char> caches = e.ReadCaches();
    all.insert(all.end(), caches.begin(), caches.end());
    return all;
  }

  std::unique_ptr<SetsEngine> engine_;
  std::vector<TransformArrays> arrays_; // by layer
  cgr_qkv_transform transform_ = CGR_QKV_TRANSFORM_INIT;
};

TEST_P(TransformSets, InCallsEqualsAKernelBeforePlainOnes) {
  for (bool attends : { false, true }) {
    ASSERT_NO_FATAL_FAILURE(Make(false, CGR_MODE_NONE, attends));
    const Bytes expected = Run();
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE("mode " + std::to_string(mode) + (attends ? ", the encoder's steps attend" : ""));
      ASSERT_NO_FATAL_FAILURE(Make(true, mode, attends));
      EXPECT_TRUE(Run() == expected);
    }
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(TransformSets);

} // namespace
} // namespace cgr_test

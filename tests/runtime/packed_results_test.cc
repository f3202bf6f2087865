// Results of 4 bits with a scale for each 16 of them (nvfp4): a backend of the engine's gets elements, block scales and the scale
// of all unchanged in every kind of step, and graphs hold them. Other combinations are refused by name.
#include "tests/support/kept_calls.h"

namespace cgr_test {
namespace {

class PackedResults : public KeptCalls {
protected:
  static constexpr int kDim = 64, kBlocks = kDim / 16, kTile = 128 * 4;
  // Tiles of the most tokens: one row of them.
  static constexpr int kTiledBytes = kTile * ((kHeads * kBlocks + 3) / 4);

  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(OpenKeeping());
    layer_.head_dim = kDim, layer_.out_dtype = CGR_DTYPE_FP4_E2M1;
    ASSERT_NO_FATAL_FAILURE(MakeCache(CGR_DTYPE_BF16, kDim, kDim));
    for (cgr_view *view : { &call_.q, &call_.k, &call_.v })
      ASSERT_NO_FATAL_FAILURE(MakeView(view, CGR_DTYPE_BF16, kHeads, kDim));
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.out, CGR_DTYPE_FP4_E2M1, kHeads, kDim));
    EXPECT_EQ(call_.out.stride_token, kHeads * kDim) << "elements, of which two are a byte";
    ASSERT_NO_FATAL_FAILURE(MakeView(&call_.out_block_scale, CGR_DTYPE_FP8_E4M3, kHeads, kBlocks));
    call_.out_scale = static_cast<float *>(Alloc(4));
  }
  void MakeTiles() {
    call_.flags = CGR_ATTENTION_TILED_SCALES;
    call_.out_block_scale = { Alloc(kTiledBytes), CGR_DTYPE_FP8_E4M3, 0, 0, 0 };
  }
  static void *Further(const void *data, int bytes) { return static_cast<char *>(const_cast<void *>(data)) + bytes; }
};

TEST_P(PackedResults, ReachABackendUnchangedInEveryKindOfStep) {
  ExpectUnchangedInEveryKindOfStep();
  call_.out_scale = nullptr;
  call_.out_block_scale.data = Further(Alloc(1024), 1), call_.out_block_scale.stride_token = 33; // no alignment
  ExpectUnchangedInEveryKindOfStep();
  MakeTiles();
  ExpectUnchangedInEveryKindOfStep();
}

TEST_P(PackedResults, GraphsHoldTheirMemory) {
  ExpectGraphsHold({ call_.out.data, call_.out_block_scale.data, call_.out_scale });
}

TEST_P(PackedResults, GoWithBlockScalesAndNoOthersDo) {
  const cgr_attention good = call_;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  call_.out_block_scale.data = nullptr;
  ExpectRefused(CGR_ERROR_NULL_POINTER, "out_block_scale.data is NULL", "an address for layer 0, whose out_dtype is fp4_e2m1",
                good);
  call_.out_block_scale.data = nullptr, call_.flags = CGR_ATTENTION_TILED_SCALES;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "flags has TILED_SCALES for layer 0, and out_block_scale.data is NULL",
                "an address with it", good);
  call_.out_block_scale.dtype = CGR_DTYPE_FP8_E5M2;
  ExpectRefused(CGR_ERROR_UNSUPPORTED, "out_block_scale.dtype is fp8_e5m2", "expected fp8_e4m3", good);
  call_.out_block_scale.reserved = 1;
  ExpectRefused(CGR_ERROR_NEWER_STRUCT, "out_block_scale.reserved is 1", "expected 0", good);
  call_.out_block_scale.stride_head = kBlocks - 1;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale has strides 8, 3, which overlap", "2 heads of 4 elements", good);
  call_.flags = CGR_ATTENTION_TILED_SCALES;
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale has strides 8, 4", "expected 0, 0 with TILED_SCALES", good);
  MakeTiles();
  call_.out_block_scale.data = Further(call_.out_block_scale.data, 8);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale.data is 0x", "a multiple of 16 bytes", good);
  call_.flags = 16;
  ExpectRefused(CGR_ERROR_INVALID_ENUM, "flags is 0x10", "CGR_ATTENTION_* (no append, append only, non causal, tiled scales)",
                good);
  ASSERT_NO_FATAL_FAILURE(Stop());
  layer_.out_dtype = CGR_DTYPE_FP8_E4M3;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale is given for layer 0, whose out_dtype is fp8_e4m3", "expected NULL",
                good);
  ASSERT_NO_FATAL_FAILURE(MakeView(&call_.out, CGR_DTYPE_FP8_E4M3, kHeads, kDim));
  call_.out_block_scale.data = nullptr;
  CGR_EXPECT_OK(Capture());
}

TEST_P(PackedResults, AreWhereTheyAreSaidToBe) {
  const cgr_attention good = call_;
  CGR_ASSERT_OK(Create(CGR_MODE_FULL));
  const auto overlaps = [&](const void *at, const char *other) {
    call_.out_block_scale.data = const_cast<void *>(at);
    ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale at 0x", std::string("overlaps ") + other);
    call_ = good;
  };
  overlaps(good.q.data, "q at");
  overlaps(Further(good.out.data, kHeads * kDim / 2 - 1), "out at"); // the last byte of a packed token
  call_.lse = { Alloc(kTokens * kHeads * 4), CGR_DTYPE_FP32, 0, kHeads, 1 };
  overlaps(call_.lse.data, "lse at");
  call_.out.stride_head = kDim / 2; // half a head: two would share their bytes
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out has strides 128, 32, which overlap", "of 2 heads of 64 elements");
  call_ = good, call_.out.stride_token = kHeads * kDim + 16; // 8 bytes
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out has strides 144, 64", "positive multiples of 32");
  call_ = good, call_.out.stride_token = kHeads * kDim + 32;
  call_.out.data = Alloc(kTokens * (kHeads * kDim + 32) / 2 - 32);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out takes 624 bytes", "expected at most 608");
  call_ = good;
  MakeTiles();
  call_.out_block_scale.data = Alloc(kTiledBytes - 16);
  ExpectRefused(CGR_ERROR_INVALID_ARGUMENT, "out_block_scale takes 1024 bytes", "expected at most 1008");
  call_.out_block_scale.data = Alloc(kTiledBytes), call_.out.stride_token = kHeads * kDim + 32;
  call_.out.data = Alloc(kTokens * (kHeads * kDim + 32) / 2 - 16); // the last token's gap is not needed
  CGR_EXPECT_OK(Capture());
}

TEST_P(PackedResults, AreRefusedForLayersThatCannotHaveThem) {
  const auto refused = [&](cgr_status status, const std::string &says, const char *expected) {
    ExpectMessage(Create(CGR_MODE_FULL), status, { says, expected });
  };
  const cgr_layer good = layer_;
  layer_.backend = 0;
  refused(CGR_ERROR_UNSUPPORTED, "layers[0].out_dtype is fp4_e2m1", "expected bf16 as in dtype, or fp8_e4m3");
  layer_ = good, layer_.out_dtype = CGR_DTYPE_I4;
  refused(CGR_ERROR_UNSUPPORTED, "layers[0].out_dtype is i4", "whole bytes");
  layer_ = good, layer_.head_dim_v = 40;
  refused(CGR_ERROR_INVALID_ARGUMENT, "layers[0].out_dtype is fp4_e2m1 with a head_dim_v of 40", "a multiple of 16");
  for (int32_t dtype : { CGR_DTYPE_FP4_E2M1, CGR_DTYPE_I4 }) {
    const std::string name = dtype == CGR_DTYPE_I4 ? "i4" : "fp4_e2m1";
    layer_ = good, layer_.q_dtype = dtype;
    refused(CGR_ERROR_UNSUPPORTED, "layers[0].q_dtype is " + name, "whole bytes");
    layer_ = good, layer_.dtype = dtype;
    refused(CGR_ERROR_UNSUPPORTED, "layers[0].dtype is " + name, "whole bytes");
    cgr_buffer_decl decl = CGR_BUFFER_DECL_INIT;
    decl.name = "packed", decl.dimension = CGR_DIMENSION_TOKENS, decl.dtype = dtype, decl.width = 32;
    cgr_config config = CGR_CONFIG_INIT;
    config.buffers = &decl, config.num_buffers = 1;
    ExpectMessage(Create(&config, &good, 1), CGR_ERROR_UNSUPPORTED, { "buffers[0].dtype is " + name, "whole bytes" });
  }
}

CGR_INSTANTIATE_OVER_DEVICES(PackedResults);

} // namespace
} // namespace cgr_test

// What cgr_record_attention refuses, by name: the step is given up with the cause in the message, and the next one is right.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class AttentionIsRefused : public ThreeRequests {
protected:
  // Each change of the first call is refused where it is made, and the step is given up even if `record` ignores the status.
  void EachRefused(const std::vector<Mistake<cgr_attention>> &rows) {
    EachRefusedInRecord(
        "cgr_record_attention", rows, [&] { return engine_->state.call[0].attention; }, cgr_record_attention);
  }
};

TEST_P(AttentionIsRefused, ForItsLayerFlagsAndReservedFields) {
  static float scale = 1.0f;
  EachRefused({
      { kArgument, "layer is -1", [](cgr_attention &a) { a.layer = -1; } },
      { kArgument, "layer is 2 ... 2 configured", [](cgr_attention &a) { a.layer = 2; } },
      { kEnum, "flags is 0x10 ... CGR_ATTENTION_* ... no append ... append only ... non causal",
        [](cgr_attention &a) { a.flags = 0x10; } },
      { kEnum, "flags is 0x100", [](cgr_attention &a) { a.flags = 0x100; } },
      { kArgument, "NO_APPEND and APPEND_ONLY",
        [](cgr_attention &a) { a.flags = CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY; } },
      { kNewer, "reserved is 7", [](cgr_attention &a) { a.reserved = 7; } },
      { kNewer, "q.reserved is 7", [](cgr_attention &a) { a.q.reserved = 7; } },
      { kNewer, "k.reserved is -1", [](cgr_attention &a) { a.k.reserved = -1; } },
      { kNewer, "out.reserved is 1", [](cgr_attention &a) { a.out.reserved = 1; } },
      { kUnsupported, "q_scale ... own kernels ... expected NULL", [](cgr_attention &a) { a.q_scale = &scale; } },
      { kArgument, "out_scale is given for layer 0, whose out_dtype ... expected NULL",
        [](cgr_attention &a) { a.out_scale = &scale; } },
  });
}

TEST_P(AttentionIsRefused, ForAViewWithoutMemory) {
  EachRefused({
      { kNull, "q.data is NULL", [](cgr_attention &a) { a.q.data = nullptr; } },
      { kNull, "k.data is NULL", [](cgr_attention &a) { a.k.data = nullptr; } },
      { kNull, "v.data is NULL", [](cgr_attention &a) { a.v.data = nullptr; } },
      { kNull, "out.data is NULL", [](cgr_attention &a) { a.out.data = nullptr; } },
  });
}

// With the address and the strides as they are, the last elements would have no address.
TEST_P(AttentionIsRefused, ForAViewThatEndsOutsideOfMemory) {
  std::vector<Mistake<cgr_attention>> rows;
  const std::vector<std::pair<std::string, cgr_view cgr_attention::*>> views = {
    { "q", &cgr_attention::q },     { "k", &cgr_attention::k },     { "v", &cgr_attention::v },
    { "out", &cgr_attention::out }, { "lse", &cgr_attention::lse },
  };
  for (const auto &[name, view] : views)
    for (uintptr_t address : { UINTPTR_MAX - 15, uintptr_t(INT64_MAX) - 15, uintptr_t(1) << 63 })
      rows.push_back({ kArgument, name + ".data is 0x ... to be within memory",
                       [view = view, address](cgr_attention &a) { (a.*view).data = reinterpret_cast<void *>(address); } });
  EachRefused(rows);
}

// Memory that the device gave, and of which the view takes more than there is.
TEST_P(AttentionIsRefused, ForAViewThatEndsBeyondItsAllocation) {
  if (GetParam().HasCudaKernels())
    GTEST_SKIP() << "eager steps without the layer do not look at it";
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  std::vector<Mistake<cgr_attention>> rows;
  const std::vector<std::pair<std::string, cgr_view cgr_attention::*>> views = {
    { "q", &cgr_attention::q },     { "k", &cgr_attention::k },     { "v", &cgr_attention::v },
    { "out", &cgr_attention::out }, { "lse", &cgr_attention::lse },
  };
  for (const auto &[name, view] : views)
    rows.push_back({ kArgument, name + " takes ... bytes from 0x ... expected at most 16 ... allocation of 16 bytes",
                     [view = view, small](cgr_attention &a) { (a.*view).data = small; } });
  EachRefused(rows);
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

// In a warm-up and in a capture no layer is needed for that.
TEST_P(AttentionIsRefused, ForAViewThatEndsBeyondItsAllocationInAWarmUpAndACapture) {
  EngineOptions options = OptionsFor(GetParam());
  options.validation = false;
  Make(options);
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    cgr_attention a = engine_->state.call[0].attention;
    a.out.data = small;
    return at == 0 ? cgr_record_attention(recorder, &a) : CGR_OK;
  };
  const cgr_capture capture = engine_->CaptureStruct();
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  for (auto call : { cgr_runtime_warmup, cgr_runtime_capture })
    ExpectMessage(call(engine_->rt, &capture), CGR_ERROR_CALLBACK, { "cgr_record_attention: out takes", "most 16" });
  engine_->hook = nullptr;
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
  engine_->launched = cgr_test::Completed(engine_->rt);
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

TEST_P(AttentionIsRefused, ForADtypeThatIsNotTheLayers) {
  EachRefused({
      { kUnsupported, "q.dtype is fp16", [](cgr_attention &a) { a.q.dtype = CGR_DTYPE_FP16; } },
      { kUnsupported, "k.dtype is i8", [](cgr_attention &a) { a.k.dtype = CGR_DTYPE_I8; } },
      { kUnsupported, "out.dtype is i32", [](cgr_attention &a) { a.out.dtype = CGR_DTYPE_I32; } },
      { kUnsupported, "lse.dtype is fp16", [](cgr_attention &a) { a.lse.dtype = CGR_DTYPE_FP16; } },
      { kEnum, "v.dtype is unknown (99)", [](cgr_attention &a) { a.v.dtype = 99; } },
      { kEnum, "q.dtype is none (0)", [](cgr_attention &a) { a.q.dtype = 0; } },
  });
}

TEST_P(AttentionIsRefused, ForAnAddressOrAStrideThatIsNotAMultipleOf16Bytes) {
  auto shift = [](cgr_view *view) { view->data = static_cast<char *>(view->data) + 8; };
  EachRefused({
      { kArgument, "q.data is ... 16 bytes", [&](cgr_attention &a) { shift(&a.q); } },
      { kArgument, "k.data is ... 16 bytes", [&](cgr_attention &a) { shift(&a.k); } },
      { kArgument, "v.data is ... 16 bytes", [&](cgr_attention &a) { shift(&a.v); } },
      { kArgument, "out.data is ... 16 bytes", [&](cgr_attention &a) { shift(&a.out); } },
      { kArgument, "lse.data is ... 4 bytes", [](cgr_attention &a) { a.lse.data = static_cast<char *>(a.lse.data) + 2; } },
      { kArgument, "q has strides", [](cgr_attention &a) { a.q.stride_token += 1; } },
      { kArgument, "out has strides", [](cgr_attention &a) { a.out.stride_head += 1; } },
      { kArgument, "k has strides ... -16", [](cgr_attention &a) { a.k.stride_token = -16; } },
      { kArgument, "v has strides", [](cgr_attention &a) { a.v.stride_head = 0; } },
      { kArgument, "q has strides ... 2^31", [](cgr_attention &a) { a.q.stride_token = (int64_t{ 1 } << 31) + 16; } },
      { kArgument, "lse has strides", [](cgr_attention &a) { a.lse.stride_head = 0; } },
  });
}

// Tokens, or heads of one token, that overlap.
TEST_P(AttentionIsRefused, ForStridesThatOverlap) {
  const int64_t dim = engine_->state.layer[0].dim[kQ], unit = GetParam().IsCuda() ? 8 : 4;
  EachRefused({
      { kArgument, "out has strides ... overlap", [&](cgr_attention &a) { a.out.stride_token = 2 * dim - unit; }, "out token" },
      { kArgument, "out has strides ... overlap", [&](cgr_attention &a) { a.out.stride_token = dim; }, "out token, one head's" },
      { kArgument, "q has strides ... overlap", [&](cgr_attention &a) { a.q.stride_head = dim - unit; } },
      { kArgument, "k has strides ... overlap",
        [&](cgr_attention &a) { a.k.stride_token = dim - unit, a.k.stride_head = dim - unit; } },
      { kArgument, "out has strides ... overlap", [&](cgr_attention &a) { a.out.stride_token = dim, a.out.stride_head = dim; },
        "heads first, too close" },
      { kArgument, "lse has strides ... overlap", [](cgr_attention &a) { a.lse.stride_token = 1; } },
  });
}

// Outputs that overlap what others have yet to read, or each other.
TEST_P(AttentionIsRefused, ForWhatOverlapsIt) {
  auto after = [](void *data, int64_t elements) {
    return static_cast<void *>(static_cast<char *>(data) + elements * (GetParam().IsCuda() ? 2 : 4));
  };
  EachRefused({
      { kArgument, "out at ... overlaps q at ... or the same",
        [&](cgr_attention &a) { a.out = a.q, a.out.data = after(a.q.data, a.q.stride_head); } },
      { kArgument, "out at ... overlaps q at",
        [&](cgr_attention &a) { a.out.data = a.q.data, a.out.stride_token = a.q.stride_token + a.q.stride_head; },
        "out over q with other strides" },
      { kArgument, "lse at ... overlaps q at ... memory of its own", [&](cgr_attention &a) { a.lse.data = a.q.data; } },
      { kArgument, "lse at ... overlaps out at", [&](cgr_attention &a) { a.lse.data = after(a.out.data, a.out.stride_head); } },
  });
}

// Arguments that a call ignores may be anything.
TEST_P(AttentionIsRefused, NotForWhatItDoesNotUse) {
  EngineOptions options = OptionsFor(GetParam());
  options.layers.push_back(options.layers[0]);
  options.layers[2].kv_source = 1;
  Make(options);
  auto junk = [](cgr_view *view) { *view = { reinterpret_cast<void *>(3), 99, 0, -1, -1 }; };
  junk(&engine_->state.call[2].attention.k); // it reads the cache of layer 0
  junk(&engine_->state.call[2].attention.v);
  for (int n = 0; n < 2; n++) {
    engine_->Step(EagerItems());
    std::vector<Item> items = EagerItems();
    items[0].tokens.resize(1);
    engine_->Step(items);
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(AttentionIsRefused);

// ---- views that are allowed

class AttentionViews : public OverDevices {
protected:
  // Steps of three requests, eager and replayed; the outputs of all of them, densely.
  std::vector<std::vector<unsigned char>> Run(const EngineOptions &options) {
    std::vector<std::vector<unsigned char>> bits;
    Captured<Engine> engine(options);
    std::vector<int32_t> r = { engine.Open(), engine.Open(), engine.Open() };
    auto step = [&](const std::vector<Item> &items) {
      engine.Step(items);
      for (int32_t c = 0; c < engine.state.num_calls; c++)
        bits.push_back(engine.Out(c, engine.step.num_tokens));
    };
    step(engine.Chunks({ { r[0], 5 }, { r[1], 33 }, { r[2], 1 } }));
    for (int n = 0; n < 4 && !HasFatalFailure(); n++) {
      step(engine.Decode(r));
      step(engine.Chunks({ { r[1], 3 }, { r[2], 18 } }));
    }
    return bits;
  }
};

TEST_P(AttentionViews, OutMayBeQ) {
  EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, { 8, 1 } });
  auto apart = Run(options);
  options.in_place = true;
  EXPECT_TRUE(Run(options) == apart);
}

TEST_P(AttentionViews, AnyStridesGiveTheSameBits) {
  EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, { 8, 1 } });
  options.token_gap = 0;
  auto dense = Run(options);
  for (bool heads_first : { false, true })
    for (int32_t gap : { 8, 40 })
      for (bool in_place : { false, true }) {
        SCOPED_TRACE(std::to_string(gap) + (heads_first ? ", heads first" : "") + (in_place ? ", in place" : ""));
        options.token_gap = gap, options.heads_first = heads_first, options.in_place = in_place;
        EXPECT_TRUE(Run(options) == dense);
      }
}

TEST_P(AttentionViews, LseIsWrittenOnlyWhenItIsWanted) {
  EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 } });
  auto with = Run(options);
  options.lse = false;
  EXPECT_TRUE(Run(options) == with);
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(AttentionViews);

} // namespace
} // namespace cgr_test

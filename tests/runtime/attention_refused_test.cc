// What cgr_record_attention refuses, by name: the step is given up with the cause in the message, and the next one is right.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

struct Bad {
  const char *name;
  cgr_status status;
  Words words;
  std::function<void(cgr_attention *)> change;
};

class AttentionIsRefused : public ThreeRequests {
protected:
  // Each change of the first call is refused where it is made, and the step is given up even if `record` ignores the status.
  void EachRefused(const std::vector<Bad> &bads) {
    for (const Bad &bad : bads) {
      SCOPED_TRACE(bad.name);
      bool called = false;
      engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
        cgr_attention attention = engine_->state.call[0].attention;
        bad.change(&attention);
        if (at == 0)
          ExpectMessage(cgr_record_attention(recorder, &attention), bad.status, bad.words);
        called = true;
        return CGR_OK;
      };
      CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
      Words words = bad.words;
      words.push_back(cgr_status_name(bad.status));
      ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, words);
      EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
      EXPECT_TRUE(called);
      engine_->hook = nullptr;
      engine_->WaitForAll();
    }
    engine_->Step(EagerItems());
  }
};

TEST_P(AttentionIsRefused, ForItsLayerAndFlags) {
  EachRefused({
      { "layer -1", CGR_ERROR_INVALID_ARGUMENT, { "layer is -1" }, [](cgr_attention *a) { a->layer = -1; } },
      { "layer 2", CGR_ERROR_INVALID_ARGUMENT, { "layer is 2", "2 configured" }, [](cgr_attention *a) { a->layer = 2; } },
      { "flag", CGR_ERROR_INVALID_ENUM, { "flags is 0x100" }, [](cgr_attention *a) { a->flags = 0x100; } },
      { "both flags",
        CGR_ERROR_INVALID_ARGUMENT,
        { "NO_APPEND and APPEND_ONLY" },
        [](cgr_attention *a) { a->flags = CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY; } },
  });
}

TEST_P(AttentionIsRefused, ForAReservedFieldThatIsNotZero) {
  EachRefused({
      { "call", CGR_ERROR_NEWER_STRUCT, { "reserved is 7" }, [](cgr_attention *a) { a->reserved = 7; } },
      { "q", CGR_ERROR_NEWER_STRUCT, { "q.reserved is 7" }, [](cgr_attention *a) { a->q.reserved = 7; } },
      { "k", CGR_ERROR_NEWER_STRUCT, { "k.reserved is -1" }, [](cgr_attention *a) { a->k.reserved = -1; } },
      { "out", CGR_ERROR_NEWER_STRUCT, { "out.reserved is 1" }, [](cgr_attention *a) { a->out.reserved = 1; } },
  });
}

TEST_P(AttentionIsRefused, ForAViewWithoutMemory) {
  EachRefused({
      { "q", CGR_ERROR_NULL_POINTER, { "q.data is NULL" }, [](cgr_attention *a) { a->q.data = nullptr; } },
      { "k", CGR_ERROR_NULL_POINTER, { "k.data is NULL" }, [](cgr_attention *a) { a->k.data = nullptr; } },
      { "v", CGR_ERROR_NULL_POINTER, { "v.data is NULL" }, [](cgr_attention *a) { a->v.data = nullptr; } },
      { "out", CGR_ERROR_NULL_POINTER, { "out.data is NULL" }, [](cgr_attention *a) { a->out.data = nullptr; } },
  });
}

// With the address and the strides as they are, the last elements would have no address.
TEST_P(AttentionIsRefused, ForAViewThatEndsOutsideOfMemory) {
  std::vector<Bad> bads;
  const std::vector<std::pair<const char *, cgr_view cgr_attention::*>> views = {
    { "q", &cgr_attention::q },     { "k", &cgr_attention::k },     { "v", &cgr_attention::v },
    { "out", &cgr_attention::out }, { "lse", &cgr_attention::lse },
  };
  for (const auto &[name, view] : views)
    for (uintptr_t address : { UINTPTR_MAX - 15, uintptr_t(INT64_MAX) - 15, uintptr_t(1) << 63 })
      bads.push_back({ name,
                       CGR_ERROR_INVALID_ARGUMENT,
                       { std::string(name) + ".data is 0x", "to lie within memory" },
                       [view = view, address](cgr_attention *a) { (a->*view).data = reinterpret_cast<void *>(address); } });
  EachRefused(bads);
}

TEST_P(AttentionIsRefused, ForADtypeThatIsNotTheLayers) {
  EachRefused({
      { "q", CGR_ERROR_UNSUPPORTED, { "q.dtype is fp16" }, [](cgr_attention *a) { a->q.dtype = CGR_DTYPE_FP16; } },
      { "k", CGR_ERROR_UNSUPPORTED, { "k.dtype is i8" }, [](cgr_attention *a) { a->k.dtype = CGR_DTYPE_I8; } },
      { "out", CGR_ERROR_UNSUPPORTED, { "out.dtype is i32" }, [](cgr_attention *a) { a->out.dtype = CGR_DTYPE_I32; } },
      { "lse", CGR_ERROR_UNSUPPORTED, { "lse.dtype is fp16" }, [](cgr_attention *a) { a->lse.dtype = CGR_DTYPE_FP16; } },
      { "v", CGR_ERROR_INVALID_ENUM, { "v.dtype is unknown (99)" }, [](cgr_attention *a) { a->v.dtype = 99; } },
      { "none", CGR_ERROR_INVALID_ENUM, { "q.dtype is none (0)" }, [](cgr_attention *a) { a->q.dtype = 0; } },
  });
}

TEST_P(AttentionIsRefused, ForAnAddressOrAStrideThatIsNotAMultipleOf16Bytes) {
  auto shift = [](cgr_view *view) { view->data = static_cast<char *>(view->data) + 8; };
  EachRefused({
      { "q", CGR_ERROR_INVALID_ARGUMENT, { "q.data is", "16 bytes" }, [&](cgr_attention *a) { shift(&a->q); } },
      { "k", CGR_ERROR_INVALID_ARGUMENT, { "k.data is", "16 bytes" }, [&](cgr_attention *a) { shift(&a->k); } },
      { "v", CGR_ERROR_INVALID_ARGUMENT, { "v.data is", "16 bytes" }, [&](cgr_attention *a) { shift(&a->v); } },
      { "out", CGR_ERROR_INVALID_ARGUMENT, { "out.data is", "16 bytes" }, [&](cgr_attention *a) { shift(&a->out); } },
      { "lse",
        CGR_ERROR_INVALID_ARGUMENT,
        { "lse.data is", "4 bytes" },
        [](cgr_attention *a) { a->lse.data = static_cast<char *>(a->lse.data) + 2; } },
      { "token stride", CGR_ERROR_INVALID_ARGUMENT, { "q has strides" }, [](cgr_attention *a) { a->q.stride_token += 1; } },
      { "head stride", CGR_ERROR_INVALID_ARGUMENT, { "out has strides" }, [](cgr_attention *a) { a->out.stride_head += 1; } },
      { "negative", CGR_ERROR_INVALID_ARGUMENT, { "k has strides", "-16" }, [](cgr_attention *a) { a->k.stride_token = -16; } },
      { "zero", CGR_ERROR_INVALID_ARGUMENT, { "v has strides" }, [](cgr_attention *a) { a->v.stride_head = 0; } },
      { "huge",
        CGR_ERROR_INVALID_ARGUMENT,
        { "q has strides", "2^31" },
        [](cgr_attention *a) { a->q.stride_token = (int64_t{ 1 } << 31) + 16; } },
      { "lse zero", CGR_ERROR_INVALID_ARGUMENT, { "lse has strides" }, [](cgr_attention *a) { a->lse.stride_head = 0; } },
  });
}

// Tokens, or heads of one token, that overlap.
TEST_P(AttentionIsRefused, ForStridesThatOverlap) {
  const int64_t dim = engine_->state.layer[0].dim[kQ], unit = GetParam().IsCuda() ? 8 : 4;
  EachRefused({
      { "out token",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out has strides", "overlap" },
        [&](cgr_attention *a) { a->out.stride_token = 2 * dim - unit; } },
      { "out token, one head's",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out has strides", "overlap" },
        [&](cgr_attention *a) { a->out.stride_token = dim; } },
      { "q head",
        CGR_ERROR_INVALID_ARGUMENT,
        { "q has strides", "overlap" },
        [&](cgr_attention *a) { a->q.stride_head = dim - unit; } },
      { "k token",
        CGR_ERROR_INVALID_ARGUMENT,
        { "k has strides", "overlap" },
        [&](cgr_attention *a) { a->k.stride_token = dim - unit, a->k.stride_head = dim - unit; } },
      { "heads first, too close",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out has strides", "overlap" },
        [&](cgr_attention *a) { a->out.stride_token = dim, a->out.stride_head = dim; } },
      { "lse", CGR_ERROR_INVALID_ARGUMENT, { "lse has strides", "overlap" }, [](cgr_attention *a) { a->lse.stride_token = 1; } },
  });
}

// Outputs that overlap what others have yet to read, or each other.
TEST_P(AttentionIsRefused, ForWhatLiesOverIt) {
  auto after = [](void *data, int64_t elements) {
    return static_cast<void *>(static_cast<char *>(data) + elements * (GetParam().IsCuda() ? 2 : 4));
  };
  auto lse_at = [](cgr_attention *a, void *data) { a->lse.data = data; };
  EachRefused({
      { "out over the next head of q",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out at", "lies over q at", "or the same" },
        [&](cgr_attention *a) { a->out = a->q, a->out.data = after(a->q.data, a->q.stride_head); } },
      { "out over q with other strides",
        CGR_ERROR_INVALID_ARGUMENT,
        { "out at", "lies over q at" },
        [&](cgr_attention *a) { a->out.data = a->q.data, a->out.stride_token = a->q.stride_token + a->q.stride_head; } },
      { "lse over q",
        CGR_ERROR_INVALID_ARGUMENT,
        { "lse at", "lies over q at", "memory of its own" },
        [&](cgr_attention *a) { lse_at(a, a->q.data); } },
      { "lse over out",
        CGR_ERROR_INVALID_ARGUMENT,
        { "lse at", "lies over out at" },
        [&](cgr_attention *a) { lse_at(a, after(a->out.data, a->out.stride_head)); } },
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

class AttentionViews : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  // Steps of three requests, eager and replayed; the outputs of all of them, densely.
  std::vector<std::vector<unsigned char>> Run(const EngineOptions &options) {
    std::vector<std::vector<unsigned char>> bits;
    Engine engine(options);
    CGR_EXPECT_OK(engine.Capture());
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
        options.token_gap = gap;
        options.heads_first = heads_first;
        options.in_place = in_place;
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

// cgr_record_measure in steps: eager ones, graphs and pieces find the same maxima, at every replay; and what it refuses, by name.
#include <cmath>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Measure : public ThreeRequests {
protected:
  enum { kHeads = 4, kDim = 16, kTokens = 64, kRow = kHeads * kDim, kBytes = kTokens * kRow * 4 };
  void SetUpOnDevice() override {
    ASSERT_NO_FATAL_FAILURE(ThreeRequests::SetUpOnDevice());
    tensor_ = static_cast<float *>(engine_->Alloc(kBytes));
    maxima_ = static_cast<float *>(engine_->Alloc(kRow * sizeof(float)));
    CGR_ASSERT_OK(cgr_fill(engine_->dev, maxima_, 0, kRow * sizeof(float), engine_->stream));
    engine_->Sync();
  }
  cgr_measure Good() const {
    cgr_measure m = CGR_MEASURE_INIT;
    m.num_heads = kHeads, m.head_dim = kDim;
    m.view = { tensor_, CGR_DTYPE_FP32, 0, kRow, kDim };
    m.maxima = maxima_;
    return m;
  }
  void EachRefused(const std::vector<Mistake<cgr_measure>> &rows) {
    EachRefusedInRecord(
        "cgr_record_measure", rows, [&] { return Good(); }, cgr_record_measure);
  }

  float *tensor_ = nullptr, *maxima_ = nullptr;
};

// The step has 3 tokens.
TEST_P(Measure, CountsTheTokensOfTheStep) {
  std::vector<float> values(kTokens * kRow);
  for (size_t i = 0; i < values.size(); i++)
    values[i] = (i % 2 == 0 ? 1.0f : -1.0f) * float(i / kRow + 1) * float(i % kRow + 1);
  CGR_ASSERT_OK(cgr_copy(engine_->dev, tensor_, values.data(), kBytes, engine_->stream));
  engine_->Sync();
  const cgr_measure measure = Good();
  ASSERT_NO_FATAL_FAILURE(InRecord(CGR_OK, {}, [&](cgr_recorder *recorder) { return cgr_record_measure(recorder, &measure); }));
  const std::vector<float> got = engine_->Read<float>(maxima_, kRow);
  for (size_t i = 0; i < got.size(); i++)
    EXPECT_EQ(got[i], 3.0f * float(i + 1)) << i;
}

TEST_P(Measure, IsRefusedByName) {
  EachRefused({
      { kArgument, "num_heads is 0 ... 1024", [](cgr_measure &m) { m.num_heads = 0; } },
      { kArgument, "num_heads is 1025", [](cgr_measure &m) { m.num_heads = 1025; } },
      { kArgument, "head_dim is 0 ... 8 .. 1024", [](cgr_measure &m) { m.head_dim = 0; } },
      { kArgument, "head_dim is 12 ... multiple of 8", [](cgr_measure &m) { m.head_dim = 12; } },
      { kArgument, "head_dim is 1032", [](cgr_measure &m) { m.head_dim = 1032; } },
      { kNewer, "reserved is 7", [](cgr_measure &m) { m.reserved = 7; } },
      { kNewer, "view.reserved is 7", [](cgr_measure &m) { m.view.reserved = 7; } },
      { kStruct, "measure", [](cgr_measure &m) { m.size = 0; } },
      { kUnsupported, "view.dtype is i8 ... fp32, fp16 or bf16", [](cgr_measure &m) { m.view.dtype = CGR_DTYPE_I8; } },
      { kEnum, "view.dtype is unknown (99)", [](cgr_measure &m) { m.view.dtype = 99; } },
      { kNull, "view.data is NULL", [](cgr_measure &m) { m.view.data = nullptr; } },
      { kNull, "maxima is NULL", [](cgr_measure &m) { m.maxima = nullptr; } },
      { kArgument, "maxima is 0x ... multiple of 4",
        [](cgr_measure &m) { m.maxima = reinterpret_cast<float *>(reinterpret_cast<char *>(m.maxima) + 2); } },
      { kArgument, "maxima at ... overlaps view at",
        [](cgr_measure &m) { m.maxima = static_cast<float *>(m.view.data) + kRow; } },
      { kArgument, "view has strides", [](cgr_measure &m) { m.view.stride_token += 1; } },
  });
}

TEST_P(Measure, IsRefusedWhereMemoryEnds) {
  if (GetParam().HasCudaKernels())
    GTEST_SKIP() << "eager steps without the layer do not look at it";
  void *small = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 16, &small));
  EachRefused({ { kArgument, "maxima takes ... most 16", [&](cgr_measure &m) { m.maxima = static_cast<float *>(small); } },
                { kArgument, "view takes ... most 16", [&](cgr_measure &m) { m.view.data = small; } } });
  CGR_EXPECT_OK(cgr_memory_free(engine_->dev, small));
}

CGR_INSTANTIATE_OVER_DEVICES(Measure);

// The V of a layer, over runs of an engine: whatever runs a step measures, and a graph does so at each replay.
class MeasureSteps : public EngineTest {
protected:
  enum { kHeads = 2, kDim = 64 };
  static cgr_key KeyFor(cgr_graph_mode mode, int32_t tokens) {
    cgr_key key = KeyOf(mode == CGR_MODE_FULL        ? CGR_KIND_FULL
                        : mode == CGR_MODE_PIECEWISE ? CGR_KIND_PIECEWISE
                                                     : CGR_KIND_NONE,
                        8, tokens);
    key.query_len = 0;
    return key;
  }
  // The maxima after each step.
  std::vector<std::vector<float>> Run(cgr_graph_mode mode) {
    EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, kHeads, kDim } });
    options.mode = mode, options.max_tokens = 64, options.mixed = { { 16, 8 }, { 64, 8 } };
    engine_ = std::make_unique<Engine>(options);
    float *maxima = static_cast<float *>(engine_->Alloc(kHeads * kDim * sizeof(float)));
    CGR_EXPECT_OK(cgr_fill(engine_->dev, maxima, 0, kHeads * kDim * sizeof(float), engine_->stream));
    engine_->Sync();
    engine_->hook = [this, maxima](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      cgr_measure measure = CGR_MEASURE_INIT;
      measure.num_heads = kHeads, measure.head_dim = kDim, measure.maxima = maxima;
      measure.view = engine_->state.call[0].attention.v;
      return at == 1 ? cgr_record_measure(recorder, &measure) : CGR_OK;
    };
    CGR_EXPECT_OK(engine_->Capture());
    std::vector<std::vector<float>> found;
    const std::vector<int32_t> rows = { engine_->Open(), engine_->Open() };
    const auto step = [&](const std::vector<Item> &items, int32_t tokens) {
      const cgr_key forced = KeyFor(mode, tokens);
      engine_->Step(items, &forced);
      found.push_back(engine_->Read<float>(maxima, kHeads * kDim));
    };
    step(engine_->Chunks({ { rows[0], 5 }, { rows[1], 19 } }), 64);
    for (int n = 0; n < 4; n++)
      step(engine_->Decode(rows), 16);
    return found;
  }
};

TEST_P(MeasureSteps, FindTheSameInEveryMode) {
  const std::vector<std::vector<float>> eager = Run(CGR_MODE_NONE);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GT(eager[0][0], 0.0f);
  EXPECT_NE(eager[0], eager.back()) << "later steps have larger values somewhere";
  for (size_t n = 1; n < eager.size(); n++)
    for (size_t i = 0; i < eager[n].size(); i++)
      EXPECT_GE(eager[n][i], eager[n - 1][i]);
  EXPECT_EQ(Run(CGR_MODE_FULL), eager);
  EXPECT_EQ(Run(CGR_MODE_PIECEWISE), eager);
}

CGR_INSTANTIATE_OVER_DEVICES(MeasureSteps);

} // namespace
} // namespace cgr_test

// cgr_record_merge through whole steps: two layers attend over their own caches with the queries of the first, and the merge
// of the two equals one attention over the keys of both. The call is made in `record`, in a function of cgr_record_call and in a
// backend's `record`, in steps of every kind, with the same bits.
#include "tests/support/oracle.h"
#include "tests/support/recorded_case.h"

namespace cgr_test {
namespace {

enum class Where { kRecord, kCall, kBackend };

struct MergeOptions {
  cgr_graph_mode mode = CGR_MODE_FULL;
  Where where = Where::kRecord;
  int32_t dtype = CGR_DTYPE_BF16, out_dtype = CGR_DTYPE_BF16;
  bool heads_first = false; // the result's lse is [heads][tokens]
  int in_place = -1;        // 0, 1: the result overwrites that call's
};

class Merge : public EngineTest {
protected:
  enum { kHeads = 4, kDim = 64, kMaxTokens = 64 };
  // The third layer, the backend's, does no attention itself, only the merge of the first two.
  static cgr_status RecordOfBackend(void *context, cgr_recorder *recorder, const cgr_attention *) {
    return static_cast<Merge *>(context)->Call(recorder);
  }
  cgr_status Call(cgr_recorder *recorder) {
    cgr_merge merge = Struct(recorder);
    merges_++;
    return cgr_record_merge(recorder, &merge);
  }
  cgr_status Record(cgr_recorder *recorder) {
    auto function = [](cgr_recorder *inner, const void *args) { return (*static_cast<Merge *const *>(args))->Call(inner); };
    Merge *self = this;
    return m_.where == Where::kCall ? cgr_record_call(recorder, function, &self, sizeof self) : Call(recorder);
  }
  // For [heads][tokens] the stride is the key's token count.
  cgr_merge Struct(cgr_recorder *recorder) {
    const cgr_record_info info = InfoOf(recorder);
    const RecordCall *call = engine_->state.call;
    cgr_merge merge = CGR_MERGE_INIT;
    merge.num_heads = kHeads, merge.head_dim = kDim;
    merge.a = call[0].attention.out, merge.a_lse = call[0].attention.lse;
    merge.b = call[1].attention.out, merge.b_lse = call[1].attention.lse;
    merge.out = out_, merge.lse = LseView(info.num_tokens);
    if (m_.in_place >= 0) {
      merge.out = call[m_.in_place].attention.out, merge.lse = call[m_.in_place].attention.lse;
    }
    return merge;
  }
  cgr_view LseView(int32_t num_tokens) const {
    return { lse_, CGR_DTYPE_FP32, 0, m_.heads_first ? 1 : kHeads + 1, m_.heads_first ? num_tokens : 1 };
  }

  void Make(const MergeOptions &m, cgr_device *handle = nullptr) {
    m_ = m;
    const bool in_backend = m.where == Where::kBackend;
    EngineOptions options = AttentionOptionsFor(GetParam(), std::vector<LayerOptions>(in_backend ? 3 : 2, { kHeads, 2, kDim }));
    options.dtype = m.dtype, options.max_tokens = kMaxTokens, options.mode = m.mode, options.handle = handle;
    options.mixed = { { 16, 8 }, { 64, 8 } };
    backend_ = CGR_BACKEND_INIT;
    backend_.name = "merges", backend_.context = this;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend_.record = RecordOfBackend;
    options.adjust = [&](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_.back().backend = in_backend ? 1 : 0;
      config->layers = layers_.data();
      config->backends = in_backend ? &backend_ : nullptr;
      config->num_backends = in_backend ? 1 : 0;
    };
    engine_ = std::make_unique<Engine>(options);
    engine_->o.adjust = nullptr;
    engine_->check_call.assign(size_t(engine_->state.num_calls), m.in_place < 0);
    engine_->check_call[1] = false; // its queries are not its own
    if (in_backend)
      engine_->check_call[2] = false;
    engine_->state.call[1].attention.q = engine_->state.call[0].attention.q;
    out_bytes_ = size_t(kMaxTokens) * (kHeads * kDim + 8) * cgr_dtype_size(cgr_dtype(m.out_dtype));
    out_ = { engine_->Alloc(out_bytes_), m.out_dtype, 0, kHeads * kDim + 8, kDim };
    lse_ = static_cast<float *>(engine_->Alloc(kLseBytes));
    if (!in_backend)
      engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
        return at == 2 ? Record(recorder) : CGR_OK; // after both attentions
      };
    CGR_ASSERT_OK(engine_->Capture());
  }

  // The result, densely: out and lse of the padded tokens.
  struct Result {
    Values out, lse;
    std::vector<unsigned char> bits;
  };
  Result Take() {
    const int32_t tokens = engine_->step.key.num_tokens;
    cgr_view out = out_, lse = LseView(tokens);
    size_t out_bytes = out_bytes_, lse_bytes = kLseBytes;
    if (m_.in_place >= 0) {
      const RecordCall &call = engine_->state.call[m_.in_place];
      out = call.attention.out, lse = call.attention.lse;
      out_bytes = call.out_bytes, lse_bytes = call.lse_bytes;
    }
    std::vector<unsigned char> outs = engine_->Read<unsigned char>(out.data, out_bytes);
    std::vector<unsigned char> lses = engine_->Read<unsigned char>(lse.data, lse_bytes);
    out.data = outs.data(), lse.data = lses.data();
    Result r = { ReadView(out, 0, tokens, kHeads, kDim), ReadView(lse, 0, tokens, kHeads, 1), {} };
    for (const Values *values : { &r.out, &r.lse }) { // every one exact in fp64
      const size_t at = r.bits.size(), bytes = values->size() * sizeof(double);
      r.bits.resize(at + bytes);
      std::memcpy(r.bits.data() + at, values->data(), bytes);
    }
    return r;
  }
  // Over the first `seen` entries of what both caches hold, for one query.
  AttentionProblem ProblemOf(const std::vector<Entry> &cache, size_t seen, const Entry &query) const {
    AttentionProblem p;
    p.dtype = cgr_dtype(m_.dtype), p.query_len = 1, p.seq_len = int32_t(2 * seen), p.num_q_heads = kHeads;
    p.num_kv_heads = 2, p.head_dim = kDim;
    auto put = [](Values *values, int32_t layer, Tensor which, const Entry &entry, int32_t heads) {
      for (int32_t h = 0; h < heads; h++)
        for (int32_t d = 0; d < kDim; d++)
          values->push_back(ValueOf(layer, which, entry, h, d));
    };
    put(&p.q, 0, kQ, query, kHeads);
    for (int32_t layer : { 0, 1 })
      for (size_t e = 0; e < seen; e++) {
        put(&p.k, layer, kK, cache[e], 2);
        put(&p.v, layer, kV, cache[e], 2);
      }
    return p;
  }
  void Check(const Result &r) {
    size_t token = 0;
    for (const InFlight::Taken &taken : engine_->last->items)
      for (size_t j = 0; j < taken.asked.size(); j++, token++) {
        const size_t seen = taken.cache.size() - taken.asked.size() + j + 1;
        AttentionAnswer answer = SolveAttention(ProblemOf(taken.cache, seen, taken.asked[j]));
        answer.out_bound *= 2; // both the parts and the whole were rounded
        answer.lse_bound *= 2;
        const auto out = r.out.begin() + int64_t(token * kHeads * kDim);
        const auto lse = r.lse.begin() + int64_t(token * kHeads);
        ASSERT_NO_FATAL_FAILURE(ExpectAnswer({ out, out + kHeads * kDim }, { lse, lse + kHeads }, answer)) << "token " << token;
      }
    ExpectNothing({ r.out.begin() + int64_t(token * kHeads * kDim), r.out.end() },
                  { r.lse.begin() + int64_t(token * kHeads), r.lse.end() });
  }
  // Runs prompts, chunks and decode steps, padded and not, and returns the result of each.
  std::vector<std::vector<unsigned char>> Run(const MergeOptions &m) {
    std::vector<std::vector<unsigned char>> bits;
    Make(m);
    if (HasFatalFailure())
      return bits;
    std::vector<int32_t> r = { engine_->Open(), engine_->Open(), engine_->Open() };
    auto step = [&](const std::vector<Item> &items, int32_t tokens) {
      const cgr_key forced = KeyOfMode(m.mode, tokens);
      engine_->Write(out_.data, std::vector<unsigned char>(out_bytes_, 0xff).data(), out_bytes_);
      engine_->Write(lse_, std::vector<unsigned char>(kLseBytes, 0xff).data(), kLseBytes);
      engine_->Step(items, &forced);
      ASSERT_FALSE(HasFatalFailure());
      Result result = Take();
      Check(result);
      bits.push_back(result.bits);
    };
    for (int n = 0; n < 3 && !HasFatalFailure(); n++) {
      step(engine_->Chunks({ { r[0], 5 }, { r[1], 19 }, { r[2], 1 } }), 64);
      step(engine_->Decode(r), 16);
      step(engine_->Chunks({ { r[1], 3 }, { r[2], 8 } }), 16);
    }
    return bits;
  }

  enum { kLseBytes = kMaxTokens * (kHeads + 1) * 4 };
  MergeOptions m_;
  cgr_backend backend_ = CGR_BACKEND_INIT;
  std::vector<cgr_layer> layers_;
  cgr_view out_ = {};
  size_t out_bytes_ = 0;
  float *lse_ = nullptr;
  int merges_ = 0;
};

TEST_P(Merge, IsOneAttentionWithTheSameBitsInEveryStep) {
  for (int32_t out_dtype : { CGR_DTYPE_BF16, CGR_DTYPE_FP32 }) {
    std::vector<std::vector<unsigned char>> first;
    for (Where where : { Where::kRecord, Where::kCall, Where::kBackend })
      for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
        SCOPED_TRACE("mode " + std::to_string(mode) + ", where " + std::to_string(int(where)));
        MergeOptions m;
        m.mode = mode, m.where = where, m.out_dtype = out_dtype;
        auto bits = Run(m);
        ASSERT_FALSE(HasFatalFailure());
        ASSERT_EQ(bits.size(), 9u);
        first = first.empty() ? bits : first;
        ASSERT_TRUE(bits == first);
      }
  }
}

TEST_P(Merge, InPlaceAndWithTheLseOfHeadsFirst) {
  MergeOptions m;
  const auto apart = Run(m);
  ASSERT_FALSE(HasFatalFailure());
  m.heads_first = true;
  EXPECT_TRUE(Run(m) == apart);
  m.heads_first = false;
  for (int place : { 0, 1 }) {
    m.in_place = place;
    EXPECT_TRUE(Run(m) == apart) << place;
  }
}

TEST_P(Merge, OfFp32) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "a GPU has no attention in fp32";
  MergeOptions m;
  m.dtype = m.out_dtype = CGR_DTYPE_FP32;
  Run(m);
}

// It is a node of the piece after the attentions, not a call between pieces.
TEST_P(Merge, BreaksNoGraph) {
  MergeOptions m;
  m.mode = CGR_MODE_PIECEWISE;
  ASSERT_NO_FATAL_FAILURE(Make(m));
  const int captured = merges_;
  EXPECT_EQ(captured, cgr_test::NumKeys(engine_->rt));
  int32_t row = engine_->Open();
  for (int n = 0; n < 3; n++)
    StepAs(*engine_, engine_->Chunks({ { row, 3 } }), CGR_KIND_PIECEWISE);
  EXPECT_EQ(merges_, captured);
  EXPECT_EQ(engine_->GraphStats(0).num_pieces, 2);
}

// A graph whose `record` names other regions still holds the regions of its merges.
TEST_P(Merge, GraphsHoldWhatItNames) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    MergeOptions m;
    m.mode = mode;
    ASSERT_NO_FATAL_FAILURE(Make(m));
    ASSERT_NO_FATAL_FAILURE(ExpectGraphsHold(*engine_, { out_.data, lse_ }));
  }
}

// The device refuses the launch: the step ends with the cause in the message, and the next one is right.
TEST_P(Merge, ALaunchThatFailsIsTold) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "faults are made on the host";
  cgr_device *faulty = nullptr;
  ASSERT_EQ(cgr__fault_open(OpenDevice(GetParam()), &faulty), CGR__DEVICE_OK);
  ASSERT_NO_FATAL_FAILURE(Make({}, faulty));
  const int32_t row = engine_->Open();
  ASSERT_NO_FATAL_FAILURE(ExpectFailedLaunchTold(*engine_, faulty, row, 2, "cgr_record_merge: enqueuing the merge",
                                                 [this](auto *r) { return Call(r); }));
  const cgr_key key = EagerKey(8, 16);
  engine_->Step(engine_->Chunks({ { row, 4 } }), &key);
  ASSERT_NO_FATAL_FAILURE(Check(Take()));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Merge);

} // namespace
} // namespace cgr_test

// A `record` that leaves a layer out, names one twice or ignores a failed call makes neither an eager step nor a graph. The
// message names the cause; if there are several failures, the first one.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class RecordLayers : public EngineTest {
protected:
  void SetUpOnDevice() override { engine_ = std::make_unique<Engine>(OptionsFor(GetParam())); }
  // The attention call of a layer, made by the test.
  cgr_attention Call(int32_t layer, uint32_t flags = 0) {
    cgr_attention attention = engine_->state.call[layer].attention;
    attention.flags = flags;
    return attention;
  }
  // `record` as it stands makes neither a graph nor an eager step, with these words in the message; a good one then makes both.
  void Fails(const Words &words) {
    ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, words);
    EXPECT_EQ(engine_->Stats().captures_failed, 4u);
    EXPECT_EQ(engine_->Stats().num_graphs, 0);
    int32_t row = engine_->Open();
    engine_->Reserve(row, 9);
    CGR_ASSERT_OK(engine_->Prepare({ Engine::Chunk(row, 5, 1) }));
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, words);
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    CGR_ASSERT_OK(engine_->Prepare({ Engine::Chunk(row, 1, 1) })); // no graph
    EXPECT_EQ(engine_->step.reason, CGR_REASON_CAPTURE_FAILED);
    ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, words);
    engine_->hook = nullptr;
    engine_->state.num_calls = int32_t(engine_->o.calls.size());
    for (size_t c = 0; c < engine_->o.calls.size(); c++)
      engine_->state.call[c].attention = calls_.empty() ? engine_->state.call[c].attention : calls_[c];
    CGR_ASSERT_OK(engine_->Capture());
    engine_->WaitForAll();
    engine_->Step({ Engine::Chunk(row, 5, 1) });
    StepAs(*engine_, engine_->Decode({ row }), CGR_KIND_FULL);
  }
  void KeepCalls() {
    for (size_t c = 0; c < engine_->o.calls.size(); c++)
      calls_.push_back(engine_->state.call[c].attention);
  }
  // Runs `what` before the n-th call made inside `record`.
  void At(int32_t n, const std::function<cgr_status(cgr_recorder *)> &what) {
    engine_->hook = [=](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      return at == n ? what(recorder) : CGR_OK;
    };
  }
  std::vector<cgr_attention> calls_;
};

TEST_P(RecordLayers, OneThatIsLeftOutIsTold) {
  engine_->state.num_calls = 1;
  Fails({ "record", "layer 1 of 2 was left out" });
}

TEST_P(RecordLayers, AllThatAreLeftOutAreToldByTheFirst) {
  engine_->state.num_calls = 0;
  Fails({ "record", "layer 0 of 2 was left out" });
}

TEST_P(RecordLayers, OneThatIsNamedTwiceIsTold) {
  KeepCalls();
  engine_->state.call[1].attention.layer = 0;
  engine_->state.call[1].attention = Call(0);
  Fails({ "CGR_ERROR_INVALID_ARGUMENT", "layer 0 was appended already" });
}

TEST_P(RecordLayers, OneThatIsAttendedTwiceIsTold) {
  At(0, [this](cgr_recorder *recorder) {
    cgr_attention attention = Call(1, CGR_ATTENTION_NO_APPEND);
    return cgr_record_attention(recorder, &attention);
  });
  Fails({ "layer 1 was attended already" });
}

TEST_P(RecordLayers, OneThatIsAppendedTwiceIsTold) {
  At(0, [this](cgr_recorder *recorder) {
    cgr_attention attention = Call(1, CGR_ATTENTION_APPEND_ONLY);
    return cgr_record_attention(recorder, &attention);
  });
  Fails({ "layer 1 was appended already" });
}

TEST_P(RecordLayers, OneThatIsReadBeforeItsAppendIsTold) {
  EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, { 8, 2, 8, 1 } }); // layer 1 reads layer 0's cache
  options.calls = { { 1, 0 }, { 0, 0 } };
  Engine engine(options);
  ExpectMessage(engine.Capture(), CGR_ERROR_CALLBACK, { "layer 0 is appended after its cache was read" });
  std::swap(engine.state.call[0], engine.state.call[1]);
  CGR_EXPECT_OK(engine.Capture());
}

TEST_P(RecordLayers, AnAppendWithoutACacheOfItsOwnIsTold) {
  EngineOptions options = AttentionOptionsFor(GetParam(), { { 4, 2 }, { 8, 2, 8, 1 } });
  options.calls = { { 0, 0 }, { 1, CGR_ATTENTION_APPEND_ONLY } };
  Engine engine(options);
  ExpectMessage(engine.Capture(), CGR_ERROR_CALLBACK, { "APPEND_ONLY for layer 1", "layer 0's cache" });
}

// Even if `record` ignores it.
TEST_P(RecordLayers, AnIgnoredFailureIsTold) {
  At(0, [this](cgr_recorder *recorder) {
    cgr_attention attention = Call(0);
    attention.layer = 9;
    cgr_record_attention(recorder, &attention);
    return CGR_OK;
  });
  Fails({ "record", "CGR_ERROR_INVALID_ARGUMENT", "layer is 9" });
}

TEST_P(RecordLayers, TheFirstOfSeveralFailuresIsTold) {
  At(0, [this](cgr_recorder *recorder) {
    cgr_attention first = Call(0), second = Call(0);
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    first.q.data = nullptr;
    second.layer = 9;
    cgr_record_attention(recorder, &first);
    cgr_record_attention(recorder, &second);
    cgr_record_buffer(recorder, CGR_BUFFER_COUNTS, 7, &view);
    return CGR_ERROR_BUSY; // the returned status comes last
  });
  Fails({ "record", "CGR_ERROR_NULL_POINTER", "q.data" });
}

// A failure takes precedence over layers that are left out because of it.
TEST_P(RecordLayers, AFailureIsToldBeforeWhatIsLeftOut) {
  engine_->state.num_calls = 1;
  At(0, [this](cgr_recorder *recorder) {
    cgr_attention attention = Call(1);
    attention.out.data = nullptr;
    cgr_record_attention(recorder, &attention);
    return CGR_OK;
  });
  Fails({ "CGR_ERROR_NULL_POINTER", "out.data" });
}

// An engine with its own attention may use cgr_record_attention only to append; that counts as naming the layer.
TEST_P(RecordLayers, OneThatIsAppendedAloneIsNotLeftOut) {
  engine_->o.calls[1].flags = engine_->state.call[1].attention.flags = CGR_ATTENTION_APPEND_ONLY;
  CGR_ASSERT_OK(engine_->Capture());
  int32_t row = engine_->Start(7, 1);
  StepAs(*engine_, engine_->Decode({ row }), CGR_KIND_FULL);
}

TEST_P(RecordLayers, NoneNeedBeNamedWhereNoneAreConfigured) {
  static cgr_config config;
  config = engine_->Config();
  config.num_layers = 0, config.layers = nullptr;
  cgr_runtime *rt = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = [](cgr_recorder *, void *) { return CGR_OK; };
  CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt, &batch, &step));
  CGR_ASSERT_OK(cgr_step_launch(rt, &step, engine_->stream));
  CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, -1, nullptr));
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(RecordLayers);

} // namespace
} // namespace cgr_test

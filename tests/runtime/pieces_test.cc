// PIECEWISE steps: calls between pieces are kept by value and made at every replay, with a recorder that describes that step. A
// call that fails gives the step up; a piece that cannot be captured fails its key by name.
#include "tests/support/abandon.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Pieces : public EngineTest {
protected:
  struct Args {
    Pieces *self;
    int32_t at;
    uint32_t filler[3];
  };
  // What a call saw.
  struct Seen {
    int32_t at;
    cgr_record_info info;
  };

  void SetUpOnDevice() override {
    EngineOptions options = OptionsFor(GetParam(), CGR_MODE_PIECEWISE, { { 8, 8 }, { 32, 8 }, { 64, 8 } });
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &engine_->side));
    CGR_ASSERT_OK(cgr_event_create(engine_->dev, &engine_->fork));
    engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      Args args = { this, at, { 100u + uint32_t(at), 101u + uint32_t(at), 102u + uint32_t(at) } };
      cgr_status status = cgr_record_call(recorder, Call, &args, sizeof args);
      std::memset(static_cast<void *>(&args), 0xA5, sizeof args);
      return status;
    };
  }
  static cgr_status Call(cgr_recorder *recorder, const void *raw) {
    EXPECT_EQ(uintptr_t(raw) % 16, 0u);
    const Args &args = *static_cast<const Args *>(raw);
    for (uint32_t i = 0; i < 3; i++)
      EXPECT_EQ(args.filler[i], 100 + uint32_t(args.at) + i);
    const cgr_record_info info = InfoOf(recorder);
    args.self->seen_.push_back({ args.at, info });
    return args.self->act_ ? args.self->act_(recorder, args.at) : CGR_OK;
  }
  // Captures every key, which makes no calls, and learns how many calls a step has.
  void Capture() {
    CGR_ASSERT_OK(engine_->Capture());
    ASSERT_TRUE(seen_.empty()) << "calls are not made at capture";
    num_calls_ = 0;
    int32_t row = engine_->Open();
    engine_->Step(engine_->Chunks({ { row, 3 } }));
    num_calls_ = int32_t(seen_.size());
    ASSERT_GT(num_calls_, 2);
    engine_->Close(row);
  }
  bool Abandon(const std::vector<Item> &items, int32_t k) {
    uint64_t abandoned = engine_->Stats().abandoned;
    CGR_EXPECT_OK(engine_->Prepare(items));
    EXPECT_EQ(engine_->step.key.kind, CGR_KIND_PIECEWISE);
    act_ = [k](cgr_recorder *, int32_t at) { return at == k ? CGR_ERROR_BUSY : CGR_OK; };
    cgr_status status = engine_->Launch();
    act_ = nullptr;
    if (status == CGR_OK)
      return false;
    ExpectMessage(status, CGR_ERROR_CALLBACK, { "CGR_ERROR_BUSY" });
    EXPECT_EQ(engine_->step.state, CGR_STEP_ABANDONED);
    EXPECT_EQ(engine_->Stats().abandoned, abandoned + 1);
    for (const Item &item : items)
      EXPECT_EQ(engine_->Info(item.row).num_tokens, engine_->requests[item.row]->num_tokens);
    return true;
  }

  std::vector<Seen> seen_;
  std::function<cgr_status(cgr_recorder *, int32_t)> act_;
  int32_t num_calls_ = 0;
};

TEST_P(Pieces, CallsAreMadeAtEveryReplayAndTellOfIt) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  size_t records = engine_->records.size();
  int32_t a = engine_->Open(), b = engine_->Open();
  for (int n = 0; n < 10 && !HasFatalFailure(); n++) {
    SCOPED_TRACE(n);
    seen_.clear();
    std::vector<Item> items = n % 2 ? engine_->Decode({ a, b }) : engine_->Chunks({ { a, 5 }, { b, 2 } });
    StepAs(*engine_, items, CGR_KIND_PIECEWISE);
    ASSERT_EQ(seen_.size(), size_t(num_calls_));
    for (int32_t i = 0; i < num_calls_; i++) {
      const Seen &seen = seen_[size_t(i)];
      EXPECT_EQ(seen.at, i);
      EXPECT_EQ(seen.info.capturing, 0);
      EXPECT_EQ(seen.info.stream, engine_->stream);
      EXPECT_EQ(std::memcmp(&seen.info.key, &engine_->step.key, sizeof seen.info.key), 0);
      EXPECT_EQ(seen.info.num_tokens, engine_->step.key.num_tokens);
      EXPECT_EQ(seen.info.num_requests, engine_->step.key.num_requests);
      EXPECT_EQ(seen.info.real_tokens, n % 2 ? 2 : 7);
      EXPECT_EQ(seen.info.real_requests, 2);
    }
  }
  EXPECT_EQ(engine_->records.size(), records) << "`record` is not called at replay";
}

// A call can reach the step's own stream, and any stream that the step may need next.
TEST_P(Pieces, CallsDestroyNoStream) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  cudaStream_t spare;
  int refused = 0;
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &spare));
  int32_t row = engine_->Open();
  act_ = [&](cgr_recorder *, int32_t) {
    for (cudaStream_t stream : { spare, engine_->stream })
      ExpectMessage(cgr_stream_destroy(engine_->dev, stream), CGR_ERROR_STATE, { "cgr_stream_destroy: stream is 0x" });
    refused++;
    return CGR_OK;
  };
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  EXPECT_EQ(refused, num_calls_);
  ASSERT_TRUE(Abandon(engine_->Chunks({ { row, 3 } }), 1));
  CGR_EXPECT_OK(cgr_stream_destroy(engine_->dev, spare)); // also after a step that was given up
}

// One piece before the first break, and one after each break that work is enqueued after.
TEST_P(Pieces, AGraphHasAsManyPiecesAsThereIsWorkBetweenCalls) {
  void *scratch = engine_->Alloc(4);
  engine_->hook = [=](cgr_recorder *, const cgr_record_info &info, int32_t) {
    return cgr_fill(engine_->dev, scratch, 1, 4, info.stream);
  };
  CGR_ASSERT_OK(engine_->Capture());
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++) {
    cgr_graph_stats stats = engine_->GraphStats(i);
    EXPECT_EQ(stats.key.kind, CGR_KIND_PIECEWISE);
    EXPECT_EQ(stats.num_pieces, 1 + engine_->state.num_calls);
    EXPECT_EQ(stats.records, 1);
    EXPECT_GE(stats.num_nodes, 3 + stats.num_pieces); // prologue, planner, epilogue; a fill in each
  }
}

// One piece before the first break, one after the last, and one before each attention whose inputs have to be made.
TEST_P(Pieces, BetweenCallsSideBySideThereIsNone) {
  engine_->hook = [](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    for (int n = 0; n < 5 && at == 0; n++)
      CGR_EXPECT_OK(cgr_record_call(
          recorder, [](cgr_recorder *, const void *) { return CGR_OK; }, nullptr, 0));
    return CGR_OK;
  };
  CGR_ASSERT_OK(engine_->Capture());
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
    EXPECT_EQ(engine_->GraphStats(i).num_pieces, 2 + (engine_->o.feed == Feed::kTokens ? engine_->state.num_calls : 0));
  int32_t row = engine_->Open();
  engine_->Step(engine_->Chunks({ { row, 3 } }));
}

TEST_P(Pieces, AFailingCallAbandonsTheStepAtAnyBreak) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  EXPECT_EQ(AbandonEverywhere(*engine_, [this](const std::vector<Item> &items, int32_t k) { return Abandon(items, k); }),
            num_calls_);
}

TEST_P(Pieces, ACallMayCallAndMayNotAttend) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  static int nested;
  nested = 0;
  act_ = [](cgr_recorder *recorder, int32_t) {
    return cgr_record_call(
        recorder,
        [](cgr_recorder *, const void *) {
          nested++;
          return CGR_OK;
        },
        nullptr, 0);
  };
  int32_t row = engine_->Open();
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  EXPECT_EQ(nested, num_calls_);
  // Also if the call ignores the status that it got.
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ row })));
  act_ = [this](cgr_recorder *recorder, int32_t at) {
    if (at == 1)
      ExpectMessage(cgr_record_attention(recorder, &engine_->state.call[0].attention), CGR_ERROR_STATE, { "cgr_record_call" });
    return CGR_OK;
  };
  ExpectMessage(engine_->Launch(), CGR_ERROR_CALLBACK, { "CGR_ERROR_STATE", "cgr_record_attention" });
  act_ = nullptr;
  engine_->Step(engine_->Decode({ row }));
}

TEST_P(Pieces, TheRuntimeIsBusyInsideACall) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  int32_t row = engine_->Open(), refused = 0;
  act_ = [&](cgr_recorder *, int32_t) {
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    int32_t other;
    ExpectMessage(cgr_step_prepare(engine_->rt, &batch, &step), CGR_ERROR_STATE, { "record" });
    ExpectMessage(cgr_request_open(engine_->rt, 1, &other), CGR_ERROR_STATE, { "record" });
    refused++;
    return CGR_OK;
  };
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  EXPECT_EQ(refused, num_calls_);
}

// The recorder is valid only inside the call.
TEST_P(Pieces, TheRecorderEndsWithTheCall) {
  ASSERT_NO_FATAL_FAILURE(Capture());
  cgr_recorder *kept = nullptr;
  act_ = [&](cgr_recorder *recorder, int32_t) {
    kept = recorder;
    return CGR_OK;
  };
  int32_t row = engine_->Open();
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  ASSERT_NE(kept, nullptr);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  ExpectMessage(cgr_record_get_info(kept, &info), CGR_ERROR_STATE, { "recorder" });
}

// ---- forks

class PiecesAndForks : public Pieces {
protected:
  // Forks before attention or call number `from`, joins before number `to`.
  void Fork(int32_t from, int32_t to) {
    engine_->hook = [=](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at == from) {
        CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, info.stream));
        CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, engine_->side));
        CGR_EXPECT_OK(cgr_fill(engine_->dev, scratch_, 7, 4, engine_->side));
      }
      if (at == to) {
        CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, engine_->side));
        CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, info.stream));
      }
      Args args = { this, at, { 100u + uint32_t(at), 101u + uint32_t(at), 102u + uint32_t(at) } };
      return cgr_record_call(recorder, Call, &args, sizeof args);
    };
    scratch_ = engine_->Alloc(4);
  }
  void *scratch_ = nullptr;
};

TEST_P(PiecesAndForks, AForkThatIsJoinedInItsPieceIsFine) {
  Fork(1, 1);
  ASSERT_NO_FATAL_FAILURE(Capture());
  engine_->Write(scratch_, "\0\0\0\0", 4);
  int32_t row = engine_->Open();
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  EXPECT_EQ(engine_->Read<unsigned char>(scratch_, 4), std::vector<unsigned char>(4, 7));
}

TEST_P(PiecesAndForks, AForkThatIsOpenAtABreakFailsTheCaptureByName) {
  EngineOptions options = engine_->o;
  options.validation = false; // it would report the fork itself
  engine_ = std::make_unique<Engine>(options);
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &engine_->side));
  CGR_ASSERT_OK(cgr_event_create(engine_->dev, &engine_->fork));
  Fork(1, -1);
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { "cgr_record_call", "a forked stream not joined" });
  EXPECT_EQ(engine_->Stats().num_graphs, 0);
  EXPECT_EQ(engine_->Stats().captures_failed, uint64_t(cgr_test::NumKeys(engine_->rt)));
  engine_->hook = nullptr;
  int32_t row = engine_->Open();
  StepFor(*engine_, engine_->Chunks({ { row, 3 } }), CGR_REASON_CAPTURE_FAILED);
  CGR_ASSERT_OK(engine_->Capture());
  StepAs(*engine_, engine_->Decode({ row }), CGR_KIND_PIECEWISE);
}

CGR_INSTANTIATE_OVER_DEVICES(Pieces);
CGR_INSTANTIATE_OVER_DEVICES(PiecesAndForks);

} // namespace
} // namespace cgr_test

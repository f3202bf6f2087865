// The calls inside `record` other than attention: cgr_record_call, by value and nested; what the recorder reports; and the
// runtime's calls that are refused there.
#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

// What a function of cgr_record_call has got, and what it answers.
struct Seen {
  int calls = 0;
  std::vector<unsigned char> bytes;
  cgr_status answer = CGR_OK;
};
struct CallArgs {
  Seen *seen;
  uint32_t filler[7];
};

class RecordCalls : public ThreeRequests {
protected:
  // Runs `what` before anything else in the `record` of an eager step.
  void InEagerStep(const std::function<void(cgr_recorder *, const cgr_record_info &)> &what, cgr_status expected = CGR_OK,
                   const Words &words = {}) {
    int runs = 0;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      if (at == 0) {
        what(recorder, info);
        runs++;
      }
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    ExpectMessage(engine_->Launch(), expected, words);
    engine_->hook = nullptr;
    EXPECT_EQ(runs, 1);
    engine_->CheckAll();
    engine_->WaitForAll();
  }
};

TEST_P(RecordCalls, FunctionGetsTheArgumentsByValue) {
  auto function = [](cgr_recorder *, const void *raw) {
    CallArgs args;
    EXPECT_EQ(uintptr_t(raw) % 16, 0u);
    std::memcpy(&args, raw, sizeof args);
    args.seen->calls++;
    for (uint32_t i = 0; i < 7; i++)
      EXPECT_EQ(args.filler[i], 100 + i);
    return CGR_OK;
  };
  Seen seen;
  InEagerStep([&](cgr_recorder *recorder, const cgr_record_info &) {
    auto args = std::make_unique<CallArgs>(CallArgs{ &seen, { 100, 101, 102, 103, 104, 105, 106 } });
    CGR_EXPECT_OK(cgr_record_call(recorder, function, args.get(), sizeof *args));
    EXPECT_EQ(seen.calls, 1) << "an eager step calls at once";
    std::memset(static_cast<void *>(args.get()), 0xA5, sizeof *args);
  });
  EXPECT_EQ(seen.calls, 1);
}

// The copy is made at the call: what the function does to the original does not show in it.
TEST_P(RecordCalls, FunctionSeesACopy) {
  static int original;
  original = 5;
  InEagerStep([&](cgr_recorder *recorder, const cgr_record_info &) {
    auto function = [](cgr_recorder *, const void *raw) {
      EXPECT_NE(raw, &original);
      original = 6;
      EXPECT_EQ(*static_cast<const int *>(raw), 5);
      return CGR_OK;
    };
    CGR_EXPECT_OK(cgr_record_call(recorder, function, &original, sizeof original));
  });
  EXPECT_EQ(original, 6);
}

TEST_P(RecordCalls, ArgumentsMayBeOfAnySizeUpTo4096) {
  static int calls;
  calls = 0;
  auto count = [](cgr_recorder *, const void *) {
    calls++;
    return CGR_OK;
  };
  auto check = [](cgr_recorder *, const void *raw) {
    const unsigned char *bytes = static_cast<const unsigned char *>(raw);
    for (size_t i = 0; i < 4096; i++)
      EXPECT_EQ(bytes[i], i % 251);
    calls++;
    return CGR_OK;
  };
  std::vector<unsigned char> args(4097);
  for (size_t i = 0; i < args.size(); i++)
    args[i] = (unsigned char)(i % 251);
  InEagerStep([&](cgr_recorder *recorder, const cgr_record_info &) {
    CGR_EXPECT_OK(cgr_record_call(recorder, count, nullptr, 0));
    CGR_EXPECT_OK(cgr_record_call(recorder, count, args.data(), 0));
    CGR_EXPECT_OK(cgr_record_call(recorder, check, args.data(), 4096));
  });
  EXPECT_EQ(calls, 3);
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        ExpectMessage(cgr_record_call(recorder, count, args.data(), 4097), CGR_ERROR_INVALID_ARGUMENT, { "4097", "4096" });
      },
      CGR_ERROR_CALLBACK, { "args_size is 4097" });
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        ExpectMessage(cgr_record_call(recorder, count, nullptr, 8), CGR_ERROR_NULL_POINTER, { "args" });
      },
      CGR_ERROR_CALLBACK, { "args is NULL" });
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        ExpectMessage(cgr_record_call(recorder, nullptr, args.data(), 8), CGR_ERROR_NULL_POINTER, { "function" });
      },
      CGR_ERROR_CALLBACK, { "function is NULL" });
  EXPECT_EQ(calls, 3);
}

TEST_P(RecordCalls, CallsNestAndRunAtOnce) {
  static std::vector<int> order;
  order.clear();
  struct Level {
    int depth;
  };
  static cgr_call_function nested = [](cgr_recorder *recorder, const void *raw) {
    int depth = static_cast<const Level *>(raw)->depth;
    order.push_back(depth);
    Level deeper = { depth + 1 };
    cgr_status status = depth < 3 ? cgr_record_call(recorder, nested, &deeper, sizeof deeper) : CGR_OK;
    EXPECT_EQ(static_cast<const Level *>(raw)->depth, depth) << "the copy of the outer call stays";
    order.push_back(-depth);
    return status;
  };
  InEagerStep([&](cgr_recorder *recorder, const cgr_record_info &) {
    Level level = { 1 };
    CGR_EXPECT_OK(cgr_record_call(recorder, nested, &level, sizeof level));
  });
  EXPECT_EQ(order, (std::vector<int>{ 1, 2, 3, -3, -2, -1 }));
}

// A function may enqueue on the recorder's stream, here the tokens of the step; attention is refused, also after a nested call.
TEST_P(RecordCalls, AttentionIsRefusedInsideOne) {
  struct Args {
    Engine *engine;
    bool nested;
  };
  static cgr_call_function nothing = [](cgr_recorder *, const void *) { return CGR_OK; };
  auto function = [](cgr_recorder *recorder, const void *raw) {
    Args args = *static_cast<const Args *>(raw);
    if (args.nested)
      CGR_EXPECT_OK(cgr_record_call(recorder, nothing, nullptr, 0));
    cgr_attention attention = args.engine->state.call[0].attention;
    ExpectMessage(cgr_record_attention(recorder, &attention), CGR_ERROR_STATE, { "cgr_record_call" });
    return CGR_OK;
  };
  for (bool nested : { false, true })
    InEagerStep(
        [&](cgr_recorder *recorder, const cgr_record_info &) {
          Args args = { engine_.get(), nested };
          CGR_EXPECT_OK(cgr_record_call(recorder, function, &args, sizeof args));
        },
        CGR_ERROR_CALLBACK, { "CGR_ERROR_STATE", "cgr_record_attention" });
  // After the call it is allowed again.
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) { CGR_EXPECT_OK(cgr_record_call(recorder, nothing, nullptr, 0)); });
}

TEST_P(RecordCalls, FunctionThatFailsGivesTheStepUp) {
  auto function = [](cgr_recorder *, const void *raw) { return *static_cast<const cgr_status *>(raw); };
  for (cgr_status status : { CGR_ERROR_CALLBACK, CGR_ERROR_DEAD, CGR_NOT_READY })
    InEagerStep(
        [&](cgr_recorder *recorder, const cgr_record_info &) {
          ExpectMessage(cgr_record_call(recorder, function, &status, sizeof status), status, { cgr_status_name(status) });
        },
        CGR_ERROR_CALLBACK, { "cgr_record_call", cgr_status_name(status) });
}

// In a capture the function is called once for each key, and never at replay; what it enqueues is replayed.
TEST_P(RecordCalls, CapturesWhatItEnqueues) {
  EngineOptions options = OptionsFor(GetParam());
  options.buckets = { 4 };
  engine_ = std::make_unique<Engine>(options);
  int32_t *counters = static_cast<int32_t *>(engine_->Alloc(2 * 256)), zeros[65] = { 0 };
  engine_->Write(counters, zeros, sizeof zeros);
  struct Args {
    cgr_device *dev;
    int32_t *counters;
  };
  static int calls;
  calls = 0;
  auto function = [](cgr_recorder *recorder, const void *raw) {
    const Args &args = *static_cast<const Args *>(raw);
    const cgr_record_info info = InfoOf(recorder);
    calls += info.capturing;
    return cgr_fill(args.dev, args.counters + (info.capturing ? 0 : 64), 1, 4, info.stream);
  };
  engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
    Args args = { engine_->dev, counters };
    return at == 0 ? cgr_record_call(recorder, function, &args, sizeof args) : CGR_OK;
  };
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_EQ(calls, 1);
  rows_ = { engine_->Start(5, 1), engine_->Start(3, 2) };
  EXPECT_EQ(engine_->Read<int32_t>(counters, 1)[0], 0);
  EXPECT_NE(engine_->Read<int32_t>(counters + 64, 1)[0], 0);
  StepAs(*engine_, engine_->Decode(rows_), CGR_KIND_FULL);
  EXPECT_EQ(calls, 1);
  EXPECT_NE(engine_->Read<int32_t>(counters, 1)[0], 0);
}

// ---- what the recorder reports

TEST_P(RecordCalls, InfoTellsThePaddedAndTheRealCountsOfAnEagerStep) {
  cgr_key key = EagerKey(6, 24);
  engine_->records.clear();
  const std::vector<Item> items = EagerItems();
  int32_t longest = 0, most = 0;
  for (const Item &item : items) {
    longest = std::max(longest, engine_->requests[item.row]->num_tokens + int32_t(item.tokens.size()));
    most = std::max(most, int32_t(item.tokens.size()));
  }
  engine_->Step(items, &key);
  ASSERT_EQ(engine_->records.size(), 1u);
  const cgr_record_info &info = engine_->records[0];
  EXPECT_EQ(info.capturing, 0);
  EXPECT_EQ(info.max_seq_len, longest);
  EXPECT_EQ(info.max_query_len, most);
  EXPECT_EQ(info.num_decodes, -1);
  EXPECT_EQ(info.stream, engine_->stream);
  EXPECT_EQ(info.num_tokens, 24);
  EXPECT_EQ(info.num_requests, 6);
  EXPECT_EQ(info.real_tokens, 3);
  EXPECT_EQ(info.real_requests, 2);
  EXPECT_EQ(std::memcmp(&info.key, &key, sizeof key), 0);
}

TEST_P(RecordCalls, InfoTellsNoRealCountsInACapture) {
  Captured<Engine> fresh(OptionsFor(GetParam()));
  ASSERT_EQ(fresh.records.size(), 4u);
  for (const cgr_record_info &info : fresh.records) {
    EXPECT_EQ(info.capturing, 1);
    EXPECT_EQ(info.key.kind, CGR_KIND_FULL);
    EXPECT_EQ(info.real_tokens, -1);
    EXPECT_EQ(info.real_requests, -1);
    EXPECT_NE(info.stream, fresh.stream);
  }
  fresh.records.clear();
  CGR_ASSERT_OK(fresh.Warmup());
  ASSERT_EQ(fresh.records.size(), 4u);
  for (const cgr_record_info &info : fresh.records) {
    EXPECT_EQ(info.capturing, 0);
    EXPECT_EQ(info.key.kind, CGR_KIND_NONE) << "a warm-up runs eagerly";
    EXPECT_EQ(info.real_tokens, 0);
    EXPECT_EQ(info.real_requests, 0);
  }
}

// A failed call of the recorder gives the step up even if `record` ignores it; this call is no exception.
TEST_P(RecordCalls, InfoOfABadStructGivesTheStepUp) {
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        cgr_record_info bad = CGR_RECORD_INFO_INIT;
        bad.size = 3;
        ExpectMessage(cgr_record_get_info(recorder, &bad), CGR_ERROR_INVALID_STRUCT, { "info: size is 3" });
      },
      CGR_ERROR_CALLBACK, { "cgr_record_get_info" });
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        ExpectMessage(cgr_record_get_info(recorder, nullptr), CGR_ERROR_NULL_POINTER, { "info" });
      },
      CGR_ERROR_CALLBACK, { "cgr_record_get_info" });
}

TEST_P(RecordCalls, BuffersAreThoseOfTheRuntime) {
  InEagerStep([&](cgr_recorder *recorder, const cgr_record_info &) {
    for (int32_t buffer = 0; buffer < CGR_BUFFER_KV_INDICES; buffer++) { // those on demand: on_demand_test.cc
      cgr_buffer_view inside = CGR_BUFFER_VIEW_INIT, outside = engine_->View(cgr_buffer(buffer));
      CGR_EXPECT_OK(cgr_record_buffer(recorder, cgr_buffer(buffer), 0, &inside));
      EXPECT_EQ(std::memcmp(&inside, &outside, sizeof inside), 0) << cgr_buffer_name(cgr_buffer(buffer));
    }
  });
  InEagerStep(
      [&](cgr_recorder *recorder, const cgr_record_info &) {
        cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
        ExpectMessage(cgr_record_buffer(recorder, CGR_BUFFER_COUNTS, 3, &view), CGR_ERROR_INVALID_ARGUMENT, { "index" });
      },
      CGR_ERROR_CALLBACK, { "cgr_record_buffer: index of counts is 3" });
}

// ---- what is refused inside `record`

TEST_P(RecordCalls, CallsThatChangeTheRuntimeAreRefusedInsideRecord) {
  cgr_runtime *rt = engine_->rt;
  int32_t row = rows_[2], page = 5, opened = -1;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_capture capture = engine_->CaptureStruct();
  auto refused = [](cgr_status status, const char *name) { ExpectMessage(status, CGR_ERROR_STATE, { name, "record" }); };
  InEagerStep([&](cgr_recorder *, const cgr_record_info &) {
    refused(cgr_request_open(rt, 1, &opened), "cgr_request_open");
    refused(cgr_request_close(rt, row), "cgr_request_close");
    refused(cgr_request_set_pages(rt, row, 0, 0, &page, 1), "cgr_request_set_pages");
    refused(cgr_request_drop_pages(rt, row, 0, 0, 1), "cgr_request_drop_pages");
    refused(cgr_request_set_length(rt, row, 0), "cgr_request_set_length");
    refused(cgr_step_prepare(rt, &batch, &step), "cgr_step_prepare");
    refused(cgr_step_launch(rt, &step, engine_->stream), "cgr_step_launch");
    refused(cgr_step_cancel(rt, &step), "cgr_step_cancel");
    refused(cgr_runtime_flush(rt, nullptr, nullptr, engine_->stream), "cgr_runtime_flush");
    refused(cgr_runtime_capture(rt, &capture), "cgr_runtime_capture");
    refused(cgr_runtime_warmup(rt, &capture), "cgr_runtime_warmup");
    refused(cgr_runtime_destroy(rt), "cgr_runtime_destroy");
  });
  engine_->CheckRows();
}

// Not even a stream of the engine's that is not the step's: the rule covers everything that `record` and calls run on.
TEST_P(RecordCalls, NoStreamIsDestroyedInside) {
  Engine fresh(OptionsFor(GetParam()));
  auto refuse = [&](Engine &engine, const cgr_record_info &info, cudaStream_t spare) {
    for (cudaStream_t stream : { spare, engine.stream, info.stream })
      ExpectMessage(cgr_stream_destroy(engine.dev, stream), CGR_ERROR_STATE, { "cgr_stream_destroy: stream is 0x", "`record`" });
  };
  cudaStream_t spare, spare_of_fresh;
  CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &spare));
  CGR_ASSERT_OK(cgr_stream_create(fresh.dev, &spare_of_fresh));
  InEagerStep([&](cgr_recorder *, const cgr_record_info &info) { refuse(*engine_, info, spare); });
  int captures = 0;
  fresh.hook = [&](cgr_recorder *, const cgr_record_info &info, int32_t) {
    refuse(fresh, info, spare_of_fresh);
    captures += info.capturing;
    return CGR_OK;
  };
  CGR_EXPECT_OK(fresh.Capture()); // a refusal does it no harm
  EXPECT_GT(captures, 0);
  CGR_EXPECT_OK(cgr_stream_destroy(engine_->dev, spare));
  CGR_EXPECT_OK(cgr_stream_destroy(fresh.dev, spare_of_fresh));
  engine_->CheckRows();
}

// Calls that only read are allowed.
TEST_P(RecordCalls, CallsThatLookAreAllowedInsideRecord) {
  cgr_runtime *rt = engine_->rt;
  InEagerStep([&](cgr_recorder *, const cgr_record_info &) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    cgr_stats stats = CGR_STATS_INIT;
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    int32_t first = -1, end = -1;
    CGR_EXPECT_OK(cgr_request_get_info(rt, rows_[0], &info));
    CGR_EXPECT_OK(cgr_request_get_pages(rt, rows_[0], 0, &first, &end));
    CGR_EXPECT_OK(cgr_runtime_stats(rt, &stats));
    CGR_EXPECT_OK(cgr_buffer_get(rt, nullptr, CGR_BUFFER_COUNTS, 0, &view));
    EXPECT_EQ(info.num_tokens, 5);
  });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(RecordCalls);

} // namespace
} // namespace cgr_test

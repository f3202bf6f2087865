// What a capture captures: all keys or a list, the keys that steps have missed, those that have not failed too often, and as many
// as the budget allows; and what gives graphs up again.
#include <cstring>
#include <set>

#include "tests/support/refused.h"

namespace cgr_test {
namespace {

constexpr int32_t kNumKeys = 4; // of 1, 2, 4 and 8 requests

class CaptureLists : public ThreeRequests {
protected:
  // Requests of the keys, in the order in which `record` was called for them.
  std::vector<int32_t> Recorded() {
    std::vector<int32_t> requests;
    for (const auto &info : engine_->records)
      requests.push_back(info.num_requests);
    engine_->records.clear();
    return requests;
  }
  // Of the keys in a state.
  std::set<int32_t> In(cgr_graph_state state) {
    std::set<int32_t> requests;
    for (int32_t i = 0; i < kNumKeys; i++)
      if (engine_->GraphStats(i).state == state)
        requests.insert(engine_->GraphStats(i).key.num_requests);
    return requests;
  }
  cgr_status Capture(const std::vector<cgr_key> &keys, uint32_t flags = 0) {
    cgr_capture capture = engine_->CaptureStruct();
    capture.keys = keys.empty() ? nullptr : keys.data();
    capture.num_keys = int32_t(keys.size()), capture.flags = flags;
    return cgr_runtime_capture(engine_->rt, &capture);
  }
  void Release() {
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    engine_->records.clear();
  }
  void ExpectStep(int32_t count, cgr_graph_kind kind, cgr_reason reason) {
    engine_->Step(engine_->Decode({ rows_.begin(), rows_.begin() + count }));
    EXPECT_EQ(engine_->step.key.kind, kind);
    EXPECT_EQ(engine_->step.reason, reason);
  }
};

using List = std::vector<int32_t>;
using Set = std::set<int32_t>;

TEST_P(CaptureLists, AListIsCapturedInItsOrder) {
  Release();
  EXPECT_EQ(engine_->Stats().num_graphs, 0);
  ExpectStep(3, CGR_KIND_NONE, CGR_REASON_NOT_CAPTURED);
  engine_->records.clear();
  CGR_ASSERT_OK(Capture({ FullKey(1), FullKey(4), FullKey(1) }));
  EXPECT_EQ(Recorded(), (List{ 1, 4 })) << "each once";
  EXPECT_EQ(In(CGR_GRAPH_READY), (Set{ 1, 4 }));
  ExpectStep(3, CGR_KIND_FULL, CGR_REASON_PADDED);
  CGR_ASSERT_OK(Capture({}));
  EXPECT_EQ(Recorded(), (List{ 8, 2 })) << "the rest";
}

TEST_P(CaptureLists, AKeyThatIsNotThereIsRefused) {
  Release();
  cgr_key wrong = FullKey(4), variant = wrong, piecewise = wrong;
  variant.variant = 7;
  piecewise.kind = CGR_KIND_PIECEWISE;
  for (const cgr_key &key : { FullKey(3), FullKey(16), FullKey(-1), EagerKey(4, 4), variant, piecewise })
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_runtime_capture: capture.keys[1]", "no key of this runtime" }, [&] {
      return Capture({ FullKey(8), key });
    });
  cgr_key lane = wrong, reserved = wrong;
  lane.lane = 2;
  reserved.reserved[3] = 1;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_runtime_capture: capture.keys[0].lane is 2, expected 0" },
          [&] { return Capture({ lane }); });
  Refused(CGR_ERROR_NEWER_STRUCT, { "cgr_runtime_capture: capture.keys[1].reserved[3] is 1, expected 0" }, [&] {
    return Capture({ FullKey(8), reserved });
  });
  cgr_capture capture = engine_->CaptureStruct();
  const cgr_key key = FullKey(4);
  capture.keys = &key;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "capture.num_keys is 0" }, [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  capture.num_keys = -1;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "capture.num_keys is -1" }, [&] { return cgr_runtime_warmup(engine_->rt, &capture); });
  capture.keys = nullptr, capture.num_keys = 2;
  Refused(CGR_ERROR_NULL_POINTER, { "capture.keys is NULL", "2" }, [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  Refused(CGR_ERROR_INVALID_ENUM, { "capture.flags is 0x82" }, [&] { return Capture({}, 0x82); });
  for (double ms : { -1.0, double(NAN), double(INFINITY) }) {
    capture = engine_->CaptureStruct();
    capture.max_ms = ms;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "capture.max_ms is" }, [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  }
  EXPECT_TRUE(engine_->records.empty()) << "nothing was captured";
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(CaptureLists, WarmUpTakesAListToo) {
  cgr_capture capture = engine_->CaptureStruct();
  const cgr_key keys[] = { FullKey(2), FullKey(8) };
  capture.keys = keys, capture.num_keys = 2;
  engine_->records.clear();
  CGR_ASSERT_OK(cgr_runtime_warmup(engine_->rt, &capture));
  EXPECT_EQ(Recorded(), (List{ 2, 8 }));
}

// What an engine does when it wakes from sleep: steps run eagerly, and the graphs they miss are captured when there is time.
TEST_P(CaptureLists, WhatStepsHaveMissedIsCaptured) {
  Release();
  CGR_ASSERT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(Recorded(), List()) << "no step has missed any";
  for (int n = 0; n < 3; n++)
    ExpectStep(3, CGR_KIND_NONE, CGR_REASON_NOT_CAPTURED);
  ExpectStep(1, CGR_KIND_NONE, CGR_REASON_NOT_CAPTURED);
  EXPECT_EQ(engine_->GraphStats(2).misses, 3u);
  EXPECT_EQ(engine_->GraphStats(0).misses, 1u);
  cgr_batch batch = GoodBatch(); // asking or cancelling misses nothing
  cgr_key key;
  CGR_ASSERT_OK(cgr_step_choose(engine_->rt, &batch, &key));
  CGR_ASSERT_OK(engine_->Prepare(engine_->Decode({ rows_[0], rows_[1] })));
  CGR_ASSERT_OK(engine_->Cancel());
  engine_->records.clear();
  CGR_ASSERT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(Recorded(), (List{ 4, 1 }));
  EXPECT_EQ(engine_->GraphStats(2).misses, 0u);
  ExpectStep(3, CGR_KIND_FULL, CGR_REASON_PADDED);
  ExpectStep(2, CGR_KIND_FULL, CGR_REASON_PADDED); // in the graph of 4, but misses that of 2
  EXPECT_EQ(engine_->GraphStats(1).misses, 1u);
  engine_->records.clear();
  CGR_ASSERT_OK(Capture({ FullKey(8), FullKey(2) }, CGR_CAPTURE_MISSED));
  EXPECT_EQ(Recorded(), (List{ 2 }));
  ExpectStep(2, CGR_KIND_FULL, CGR_REASON_EXACT);
  CGR_ASSERT_OK(engine_->Capture());
}

// Steps that are refused because their graph is missing count as misses: a strict engine that was asleep gets its graphs back.
TEST_P(CaptureLists, RefusedStepsMissTheirGraphsToo) {
  Make(OptionsFor(GetParam(), [](cgr_config *config) { config->strict = 1; }));
  Release();
  const cgr_key eight = FullKey(8);
  CGR_EXPECT(CGR_ERROR_FALLBACK, engine_->Prepare(engine_->Decode(rows_)));
  CGR_EXPECT(CGR_ERROR_STATE, engine_->Prepare(engine_->Decode(rows_), &eight));
  CGR_ASSERT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(Recorded(), (List{ 8, 4 }));
  ExpectStep(3, CGR_KIND_FULL, CGR_REASON_PADDED);
  CGR_ASSERT_OK(engine_->Capture());
}

// Calls made whenever there is time do not retry a failing key forever; a call that asks for everything does.
TEST_P(CaptureLists, WhatHasFailedThreeTimesIsLeftAlone) {
  Release();
  ExpectStep(3, CGR_KIND_NONE, CGR_REASON_NOT_CAPTURED);
  engine_->hook = FailCaptures(4, 4);
  for (int n = 1; n <= 5; n++) {
    CGR_EXPECT(n <= 3 ? CGR_ERROR_CALLBACK : CGR_OK, Capture({}, CGR_CAPTURE_MISSED));
    EXPECT_EQ(engine_->GraphStats(2).failures, std::min(n, 3));
    EXPECT_EQ(engine_->GraphStats(2).state, CGR_GRAPH_FAILED);
    EXPECT_EQ(engine_->Stats().captures_failed, uint64_t(std::min(n, 3)));
    ExpectStep(3, CGR_KIND_NONE, CGR_REASON_CAPTURE_FAILED);
  }
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  EXPECT_EQ(engine_->GraphStats(2).failures, 4);
  engine_->hook = nullptr;
  engine_->records.clear();
  CGR_ASSERT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(Recorded(), List());
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_EQ(Recorded(), List{ 4 });
  EXPECT_EQ(engine_->GraphStats(2).failures, 0);
  ExpectStep(3, CGR_KIND_FULL, CGR_REASON_PADDED);
}

// Logged once by each call that leaves them out, and not by one that captures them.
TEST_P(CaptureLists, KeysThatAreGivenUpAreToldOf) {
  static std::vector<std::string> logged;
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    config->log = [](void *, cgr_log_level level, const char *text) {
      if (level == CGR_LOG_INFO && std::strstr(text, "is estimated") == nullptr) // where others use the device
        logged.push_back(text);
    };
  };
  Make(options);
  Release();
  engine_->hook = FailCaptures(4, 4);
  for (int n = 0; n < 3; n++)
    CGR_EXPECT(CGR_ERROR_CALLBACK, Capture({ FullKey(4) }, 0));
  ExpectStep(3, CGR_KIND_NONE, CGR_REASON_CAPTURE_FAILED);
  logged.clear();
  CGR_EXPECT_OK(Capture({}, CGR_CAPTURE_MISSED));
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_EQ(logged[0], "cgr_runtime_capture: 1 key that steps miss is left out after 3 failures in a row");
  engine_->hook = nullptr;
  CGR_EXPECT_OK(engine_->Capture());
  CGR_EXPECT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(logged.size(), 1u);
}

// What has no graph is missed as before.
TEST_P(CaptureLists, AReleaseKeepsWhatStepsHaveMissed) {
  Release();
  CGR_ASSERT_OK(Capture({ FullKey(8) }, 0));
  for (int32_t count : { 1, 3 }) // in the graph of 8, but they miss those of 1 and 4
    ExpectStep(count, CGR_KIND_FULL, CGR_REASON_PADDED);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_ASSERT_OK(Capture({}, CGR_CAPTURE_MISSED));
  EXPECT_EQ(In(CGR_GRAPH_READY), (Set{ 1, 4 }));
}

// Another model, and a release, begin anew.
TEST_P(CaptureLists, FailuresAreForgottenWithTheModel) {
  static cgr_capture first;
  first = engine_->CaptureStruct();
  Release();
  engine_->hook = FailCaptures();
  for (int n = 0; n < 3; n++)
    CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  Release();
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  EXPECT_EQ(engine_->GraphStats(0).failures, 1);
  engine_->hook = nullptr;
  ExpectStep(3, CGR_KIND_NONE, CGR_REASON_CAPTURE_FAILED);
  engine_->hook = FailCaptures();
  for (int n = 0; n < 3; n++)
    cgr_runtime_capture(engine_->rt, &first);
  engine_->hook = nullptr;
  cgr_capture other = first;
  other.record = [](cgr_recorder *recorder, void *model) { return first.record(recorder, model); };
  other.flags = CGR_CAPTURE_MISSED;
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &other));
  EXPECT_EQ(In(CGR_GRAPH_READY), Set{ 4 });
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &first));
}

// So little time that there is enough for one capture at most.
TEST_P(CaptureLists, ABudgetOfTimeEndsTheList) {
  static std::vector<std::string> logged;
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    config->log = [](void *, cgr_log_level level, const char *text) { logged.push_back(level == CGR_LOG_INFO ? text : ""); };
  };
  Make(options);
  Release();
  logged.clear();
  cgr_capture capture = engine_->CaptureStruct();
  capture.max_ms = 1e-6;
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_NE(logged[0].find("has left"), std::string::npos) << logged[0];
  const size_t captured = In(CGR_GRAPH_READY).size();
  EXPECT_LE(captured, 1u); // none, if asking for the time takes that long
  EXPECT_EQ(In(CGR_GRAPH_OVER_BUDGET).size(), kNumKeys - captured);
  ExpectStep(1, CGR_KIND_NONE, CGR_REASON_BUDGET);
  EXPECT_EQ(engine_->Stats().by_reason[CGR_KIND_NONE][CGR_REASON_BUDGET], 1u);
  capture.max_ms = 1e6;
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
  EXPECT_EQ(In(CGR_GRAPH_READY).size(), size_t(kNumKeys));
  ExpectStep(1, CGR_KIND_FULL, CGR_REASON_EXACT);
}

TEST_P(CaptureLists, StrictStepsWithoutABudgetAreRefusedByItsName) {
  Make(OptionsFor(GetParam(), [](cgr_config *config) { config->strict = 1; }));
  Release();
  cgr_capture capture = engine_->CaptureStruct();
  capture.max_ms = 1e-6;
  CGR_ASSERT_OK(cgr_runtime_capture(engine_->rt, &capture));
  ItemsRefused(CGR_ERROR_FALLBACK, { "budget", "strict" }, engine_->Decode({ rows_[0] }));
  CGR_ASSERT_OK(engine_->Capture());
}

TEST_P(CaptureLists, EveryGraphCanBeGivenUpAndCapturedAgain) {
  for (int n = 0; n < 3; n++) {
    ExpectStep(3, CGR_KIND_FULL, CGR_REASON_PADDED);
    const uint64_t held = engine_->Stats().graph_bytes;
    uint64_t released = ~uint64_t(0);
    CGR_ASSERT_OK(engine_->Prepare(engine_->Decode(rows_)));
    Refused(CGR_ERROR_STATE, { "cgr_runtime_release_graphs", "prepared" },
            [&] { return cgr_runtime_release_graphs(engine_->rt, 0, &released); });
    CGR_ASSERT_OK(engine_->Launch()); // may run while its graph goes
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, &released));
    EXPECT_EQ(released, held);
    EXPECT_EQ(engine_->Stats().num_graphs, 0);
    EXPECT_EQ(engine_->Stats().graph_bytes, 0u);
    EXPECT_EQ(engine_->Stats().capture_ms, 0.0);
    EXPECT_EQ(In(CGR_GRAPH_EMPTY).size(), size_t(kNumKeys));
    engine_->Sync();
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_GT(engine_->Stats().capture_ms, 0.0);
  }
}

TEST_P(CaptureLists, AnEstimateMeasuresAFewAndKeepsThem) {
  EngineOptions options = OptionsFor(GetParam());
  options.max_requests = options.max_rows = 64, options.max_tokens = 64;
  options.buckets.clear();
  for (int32_t n = 1; n <= 40; n++)
    options.buckets.push_back(n);
  engine_ = std::make_unique<Engine>(options);
  cgr_capture capture = engine_->CaptureStruct();
  cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate));
  EXPECT_EQ(estimate.num_keys, 40);
  EXPECT_EQ(estimate.num_measured, 8);
  EXPECT_EQ(Recorded(), (List{ 38, 33, 28, 23, 18, 13, 8, 3 })) << "the middles of eight stretches";
  EXPECT_NEAR(estimate.ms, engine_->Stats().capture_ms * 5, estimate.ms * 1e-9);
  EXPECT_NEAR(double(estimate.bytes), double(engine_->Stats().graph_bytes) * 5, 1.0);
  EXPECT_NEAR(double(estimate.bytes_left), double(engine_->Stats().graph_bytes) * 4, 1.0);
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_EQ(engine_->records.size(), 32u) << "what was measured stays";
  CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate));
  EXPECT_EQ(estimate.num_keys, 0);
  EXPECT_EQ(estimate.ms, 0.0);
  EXPECT_EQ(estimate.bytes_left, 0u);
  const cgr_key few[] = { FullKey(1), FullKey(2) };
  Release();
  capture.keys = few, capture.num_keys = 2;
  CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate));
  EXPECT_EQ(estimate.num_keys, 2);
  EXPECT_EQ(estimate.num_measured, 2);
  const cgr_key repeated[] = { FullKey(1), FullKey(2), FullKey(1), FullKey(1) };
  Release();
  capture.keys = repeated, capture.num_keys = 4;
  CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate));
  EXPECT_EQ(estimate.num_keys, 2) << "each once";
  Release();
  engine_->hook = [](cgr_recorder *, const cgr_record_info &, int32_t) { return CGR_ERROR_BUSY; };
  ExpectMessage(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate), CGR_ERROR_CALLBACK, { "CGR_ERROR_BUSY" });
  engine_->hook = nullptr;
  CGR_ASSERT_OK(engine_->Capture());
  rows_ = { engine_->Start(3, 1) };
}

// Chains side by side: a wide graph is reported.
TEST_P(CaptureLists, AWideGraphIsWarnedOf) {
  static std::vector<std::string> logged;
  constexpr int kChains = 40;
  EngineOptions options = OptionsFor(GetParam());
  options.adjust = [](cgr_config *config) {
    config->log = [](void *, cgr_log_level level, const char *text) {
      if (std::strstr(text, "is estimated") == nullptr) // where others use the device
        logged.push_back(level == CGR_LOG_WARNING ? text : "");
    };
  };
  engine_ = std::make_unique<Engine>(options);
  std::vector<cudaStream_t> sides(kChains);
  CGR_ASSERT_OK(cgr_event_create(engine_->dev, &engine_->fork));
  for (cudaStream_t &side : sides)
    CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &side));
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_LE(engine_->GraphStats(0).width, 4);
  Release();
  logged.clear();
  engine_->hook = [&](cgr_recorder *, const cgr_record_info &info, int32_t at) {
    if (at != 0 || info.num_requests != 2)
      return CGR_OK;
    CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, info.stream));
    for (cudaStream_t side : sides) {
      CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, side));
      CGR_EXPECT_OK(cgr_fill(engine_->dev, engine_->state.next_tokens, 0, 4, side));
    }
    for (cudaStream_t side : sides) {
      CGR_EXPECT_OK(cgr_event_record(engine_->dev, engine_->fork, side));
      CGR_EXPECT_OK(cgr_event_wait(engine_->dev, engine_->fork, info.stream));
    }
    return CGR_OK;
  };
  CGR_ASSERT_OK(engine_->Capture());
  engine_->hook = nullptr;
  for (int32_t i = 0; i < kNumKeys; i++)
    EXPECT_EQ(engine_->GraphStats(i).width >= kChains, i == 1) << i;
  ASSERT_EQ(logged.size(), 1u);
  const std::string width = std::to_string(engine_->GraphStats(1).width);
  EXPECT_NE(logged[0].find("2 requests, 2 tokens has up to " + width + " nodes side by side"), std::string::npos) << logged[0];
  for (cudaStream_t side : sides)
    CGR_EXPECT_OK(cgr_stream_destroy(engine_->dev, side));
  rows_ = { engine_->Start(3, 1) };
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(CaptureLists);

} // namespace
} // namespace cgr_test

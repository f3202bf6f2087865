// Calls that must be refused and leave everything as it was.
#pragma once

#include <cstring>

#include "tests/support/engine_case.h"
#include "tests/support/mistake.h"

namespace cgr_test {

// Everything that a refused call must leave alone.
struct Snapshot {
  explicit Snapshot(Engine &engine) : stats(engine.Stats()) {
    for (int32_t row = 0; row < engine.o.max_rows; row++)
      infos.push_back(engine.Info(row));
  }
  // `refused`: prepare calls that failed in between. One launch may have failed, which counts.
  void ExpectSame(const Snapshot &now, uint64_t refused = 0) const {
    EXPECT_EQ(now.stats.refused, stats.refused + refused);
    EXPECT_LE(now.stats.refused_launches, stats.refused_launches + 1);
    cgr_stats then = stats;
    then.refused = now.stats.refused;
    then.refused_launches = now.stats.refused_launches;
    then.guard_errors = now.stats.guard_errors; // steps in flight may report one meanwhile
    EXPECT_EQ(std::memcmp(&then, &now.stats, sizeof then), 0) << "statistics changed";
    for (size_t row = 0; row < infos.size(); row++)
      EXPECT_EQ(std::memcmp(&infos[row], &now.infos[row], sizeof infos[row]), 0) << "row " << row << " changed";
  }
  cgr_stats stats;
  std::vector<cgr_request_info> infos;
};

// A refusal names the public function that was called, and says what it expected. What a device, memory or the engine's own
// functions did is no refusal.
inline void ExpectRefusal(cgr_status status) {
  const std::string message = cgr_last_message();
  for (cgr_status other : { CGR_ERROR_CALLBACK, CGR_ERROR_DEVICE, CGR_ERROR_DEAD, CGR_ERROR_OUT_OF_MEMORY, CGR_NOT_READY })
    if (status == other)
      return;
  const std::string function = message.substr(0, message.find(": "));
  EXPECT_TRUE(function.rfind("cgr_", 0) == 0 && function.size() < 40) << message << ": names no function";
  EXPECT_EQ(message.find(function + ": ", 1), std::string::npos) << message << ": names it twice";
  EXPECT_NE(message.find("expected"), std::string::npos) << message;
}

// The call returns `status`, its message has all of `words`, and nothing about the engine's runtime changes. `refused`: prepare
// calls in it.
template <class Call> void ExpectRefused(Engine &engine, cgr_status status, const Words &words, Call call, uint64_t refused = 0) {
  Snapshot before(engine);
  ExpectMessage(call(), status, words);
  ExpectRefusal(status);
  before.ExpectSame(Snapshot(engine), refused);
}

// The same of a prepare.
template <class Call> void ExpectPrepareRefused(Engine &engine, cgr_status status, const Words &words, Call call) {
  ExpectRefused(engine, status, words, call, 1);
}
inline void ExpectItemsRefused(Engine &engine, cgr_status status, const Words &words, const std::vector<Item> &items,
                               const cgr_key *forced = nullptr) {
  ExpectPrepareRefused(engine, status, words, [&] { return engine.Prepare(items, forced); });
}

// A call that is refused.
struct BadCall {
  cgr_status status;
  std::string says; // see PartsOf
  std::function<cgr_status()> call;
  uint64_t refused = 0; // prepare calls in it
};

// Three requests in a captured engine. Whatever was refused in a test, the next good steps must be right.
class ThreeRequests : public OverDevices {
protected:
  void SetUpOnDevice() override { Make(OptionsFor(GetParam())); }
  void Make(const EngineOptions &options) {
    engine_.reset();
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(engine_->Capture());
    rows_ = { engine_->Start(5, 1), engine_->Start(17, 2), engine_->Start(31, 3) };
  }
  void TearDown() override {
    if (engine_ == nullptr)
      return;
    engine_->hook = nullptr;
    for (int n = 0; n < 3 && !HasFatalFailure(); n++)
      engine_->Step(engine_->Decode(rows_));
  }
  template <class Call> void Refused(cgr_status status, const Words &words, Call call, uint64_t refused = 0) {
    ExpectRefused(*engine_, status, words, call, refused);
  }
  void EachRefused(const std::vector<BadCall> &rows) {
    for (const BadCall &row : rows) {
      SCOPED_TRACE("row " + std::to_string(&row - rows.data()) + ": " + row.says);
      Refused(row.status, PartsOf(row.says), row.call, row.refused);
    }
  }
  // The same for a prepare, and for cgr_step_choose.
  void BatchRefused(cgr_status status, Words words, const cgr_batch &batch) {
    cgr_step step = CGR_STEP_INIT;
    cgr_key key;
    words.push_back("cgr_step_prepare: ");
    ExpectPrepareRefused(*engine_, status, words, [&] { return cgr_step_prepare(engine_->rt, &batch, &step); });
    EXPECT_EQ(step.state, CGR_STEP_NONE);
    words.back() = "cgr_step_choose: ";
    Refused(status, words, [&] { return cgr_step_choose(engine_->rt, &batch, &key); });
  }
  // The recorder of a step, after its `record` has returned.
  cgr_recorder *KeptRecorder() {
    cgr_recorder *kept = nullptr;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t) {
      kept = recorder;
      return CGR_OK;
    };
    engine_->Step(EagerItems());
    engine_->hook = nullptr;
    return kept;
  }
  void EachBatchRefused(const std::vector<Mistake<cgr_batch>> &rows) {
    EachMistake(
        rows, [&] { return GoodBatch(); },
        [&](const cgr_batch &batch, const auto &row) { BatchRefused(row.status, PartsOf(row.says), batch); });
  }
  // Each change of `good()` is refused by `call`, which is `function`, inside of `record`.
  template <class T, class Good, class Call>
  void EachRefusedInRecord(const std::string &function, const std::vector<Mistake<T>> &rows, const Good &good, const Call &call) {
    EachMistake(rows, good, [&](const T &bad, const Mistake<T> &row) {
      InRecord(row.status, PartsOf(function + ": ... " + row.says), [&](cgr_recorder *recorder) { return call(recorder, &bad); });
    });
    engine_->Step(EagerItems());
  }
  // `call` inside of an eager step's `record` returns `status`. The step is given up for an error, although `record` returns
  // none.
  void InRecord(cgr_status status, const Words &words, const std::function<cgr_status(cgr_recorder *)> &call) {
    bool called = false;
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at == 0)
        ExpectMessage(call(recorder), status, words);
      if (at == 0 && status != CGR_OK)
        ExpectRefusal(status);
      called = true;
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    Words launched = words;
    if (status != CGR_OK)
      launched.push_back(cgr_status_name(status));
    ExpectMessage(engine_->Launch(), status == CGR_OK ? CGR_OK : CGR_ERROR_CALLBACK, launched);
    EXPECT_EQ(engine_->step.state, status == CGR_OK ? CGR_STEP_LAUNCHED : CGR_STEP_ABANDONED);
    EXPECT_TRUE(called);
    engine_->hook = nullptr;
    engine_->CheckAll();
    engine_->WaitForAll();
  }
  void ItemsRefused(cgr_status status, const Words &words, const std::vector<Item> &items, const cgr_key *forced = nullptr) {
    ExpectItemsRefused(*engine_, status, words, items, forced);
  }
  // A batch over the three rows, good as it stands.
  cgr_batch GoodBatch() {
    engine_->Decode(rows_);
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = int32_t(rows_.size());
    batch.rows = rows_.data();
    return batch;
  }
  // An eager step: two query tokens for a row.
  std::vector<Item> EagerItems() {
    for (int32_t row : rows_)
      engine_->Reserve(row, engine_->requests[row]->num_tokens + 3);
    return { { rows_[0], { CGR_TOKEN_LAST, 4 } }, { rows_[1], { 5 } } };
  }
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> rows_;
};

inline cgr_key KeyOf(int32_t kind, int32_t num_requests, int32_t num_tokens) {
  cgr_key key = CGR_KEY_INIT;
  key.kind = kind;
  key.num_requests = num_requests;
  key.num_tokens = num_tokens;
  key.query_len = kind == CGR_KIND_FULL ? 1 : 0;
  return key;
}

// Of steps with any lengths, for up to 8 requests.
inline cgr_key KeyOfMode(cgr_graph_mode mode, int32_t tokens) {
  const int32_t kind = mode == CGR_MODE_FULL ? CGR_KIND_FULL : mode == CGR_MODE_PIECEWISE ? CGR_KIND_PIECEWISE : CGR_KIND_NONE;
  cgr_key key = KeyOf(kind, 8, tokens);
  key.query_len = 0;
  return key;
}
inline cgr_key FullKey(int32_t num_requests) { return KeyOf(CGR_KIND_FULL, num_requests, num_requests); }
inline cgr_key EagerKey(int32_t num_requests, int32_t num_tokens) { return KeyOf(CGR_KIND_NONE, num_requests, num_tokens); }

} // namespace cgr_test

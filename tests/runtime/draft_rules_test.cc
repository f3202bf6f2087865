// What a draft's steps take and refuse, what its rows have, and what its layers and backends are called for.
#include "cgr/ranks.h"
#include "tests/support/draft_engine.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

using namespace drafts;

const uint32_t kAll = CGR_REQUEST_DRAFTS(kMost);

class Rules {
public:
  explicit Rules(cgr_host_schedule schedule = CGR_SCHEDULE_EARLIEST, int32_t num_rows = 1, uint64_t on_demand = 0)
      : engine(HostParam(schedule), 100, false, CGR_MODE_FULL, on_demand) {
    for (int32_t i = 0; i < num_rows; i++) {
      rows.push_back(-1);
      CGR_EXPECT_OK(cgr_request_open(engine.rt, uint64_t(i), &rows.back()));
      for (int32_t program : { 0, 1 })
        for (int32_t p = 0; p < 4; p++) {
          const int32_t page = 2 + 4 * i + p;
          CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, rows.back(), program, p, &page, 1));
        }
    }
  }
  // Of all rows alike; without tokens where they are the device's.
  cgr_batch Batch(int32_t program, const List &tokens, int32_t query_len, uint32_t flags) {
    lens_.assign(rows.size(), query_len), flags_.assign(rows.size(), flags), tokens_.clear();
    for (size_t i = 0; i < rows.size(); i++)
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    cgr_batch batch = BatchOf(int32_t(rows.size()), rows.data(), tokens.empty() ? nullptr : tokens_.data(), lens_.data());
    batch.flags = flags_.data(), batch.program = program;
    return batch;
  }
  cgr_status Prepare(const cgr_batch &batch) {
    step = CGR_STEP_INIT;
    return cgr_step_prepare(engine.rt, &batch, &step);
  }
  void Launch(const cgr_batch &batch) {
    CGR_ASSERT_OK(Prepare(batch));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  }
  void Refuse(const cgr_batch &batch, cgr_status status, const std::vector<std::string> &words) {
    ExpectMessage(Prepare(batch), status, words);
    cgr_key key = CGR_KEY_INIT;
    ExpectMessage(cgr_step_choose(engine.rt, &batch, &key), status, words);
  }
  cgr_status Wait(cgr_step_result *result = nullptr) { return cgr_step_wait(engine.rt, step.mark, -1, result); }
  // Both programs have the prompt, and the target has sampled.
  void Begin(const List &prompt) {
    Launch(Batch(0, prompt, int32_t(prompt.size()), 0));
    Launch(Batch(1, prompt, int32_t(prompt.size()), CGR_REQUEST_PARTIAL));
    CGR_ASSERT_OK(Wait());
  }
  cgr_batch Follow() { return Batch(1, {}, 1 + kMost, kAll); }
  cgr_batch Verify() { return Batch(0, {}, 1 + kMost, kAll); }

  DraftEngine engine;
  List rows;
  cgr_step step;

private:
  List lens_, tokens_;
  std::vector<uint32_t> flags_;
};

// Where programs take turns with the same requests, the batch need not travel again.
TEST(DraftRules, TheSameBatchOfBothTravelsAsHeaders) {
  for (bool standing : { false, true }) {
    Rules rules(CGR_SCHEDULE_EARLIEST, 3);
    rules.Begin({ 5, 6, 7 });
    for (int32_t row : rules.rows)
      if (standing)
        CGR_ASSERT_OK(cgr_standing_add(rules.engine.rt, nullptr, row, 1 + kMost, nullptr, kAll));
    for (int32_t s = 0; s < 6; s++) {
      rules.Launch(rules.Follow());
      EXPECT_EQ(rules.step.bytes_staged, s == 0 ? 64u + 40u : 64u) << s;
      rules.Launch(standing ? StandingBatch() : rules.Verify());
      EXPECT_EQ(rules.step.bytes_staged, s == 0 && standing ? 64u + 40u : 64u) << s;
      CGR_ASSERT_OK(rules.Wait());
    }
    if (standing) // its place in the batch is another one
      CGR_ASSERT_OK(cgr_standing_swap(rules.engine.rt, nullptr, rules.rows[0], rules.rows[1]));
    rules.Launch(rules.Follow());
    EXPECT_EQ(rules.step.bytes_staged, standing ? 64u + 40u : 64u);
    cgr_batch fewer = rules.Verify();
    fewer.num_requests = 2;
    if (!standing) {
      rules.Launch(fewer);
      EXPECT_GT(rules.step.bytes_staged, 64u);
    }
    CGR_ASSERT_OK(rules.Wait());
    for (int32_t row : rules.rows)
      if (standing)
        CGR_ASSERT_OK(cgr_standing_remove(rules.engine.rt, nullptr, row));
  }
}

TEST(DraftRules, BatchesAreRefusedByName) {
  Rules rules;
  rules.Refuse(rules.Follow(), CGR_ERROR_INVALID_ARGUMENT, { "row 0 of program 1", "no step of program 0 has sampled" });
  rules.Begin({ 5, 6, 7 });
  rules.Refuse(rules.Batch(2, { 1 }, 1, 0), CGR_ERROR_INVALID_ARGUMENT, { "program is 2", "0 .. 1" });
  rules.Refuse(rules.Batch(-1, { 1 }, 1, 0), CGR_ERROR_INVALID_ARGUMENT, { "program is -1" });
  rules.Refuse(rules.Batch(1, {}, 2, 0), CGR_ERROR_NULL_POINTER, { "tokens is NULL", "program 1", "CGR_REQUEST_DRAFTS" });
  rules.Refuse(rules.Batch(1, {}, 1, 0), CGR_ERROR_NULL_POINTER, { "tokens is NULL", "program 1" });
  rules.Refuse(rules.Batch(1, { 4, CGR_TOKEN_LAST }, 2, 0), CGR_ERROR_INVALID_ARGUMENT,
               { "tokens[1] is -1", "only a request with" });
  rules.Refuse(rules.Batch(1, { CGR_TOKEN_LAST, 4 }, 2, CGR_REQUEST_DRAFTS(1)), CGR_ERROR_INVALID_ARGUMENT,
               { "tokens[1] is 4", "CGR_TOKEN_DRAFT", "follows" });
  rules.Refuse(rules.Batch(1, { 4, 5 }, 2, CGR_REQUEST_DRAFTS(1)), CGR_ERROR_INVALID_ARGUMENT,
               { "tokens[0] is 4", "CGR_TOKEN_LAST" });
  rules.Refuse(rules.Batch(1, {}, 3, CGR_REQUEST_DRAFTS(1)), CGR_ERROR_INVALID_ARGUMENT, { "query_lens[0] is 3", "expected 2" });
  rules.Refuse(rules.Batch(1, {}, 5, CGR_REQUEST_DRAFTS(4)), CGR_ERROR_INVALID_ARGUMENT, { "4 drafts", "at most 3" });
  rules.Refuse(rules.Batch(1, {}, 2, CGR_REQUEST_DRAFTS(1) | CGR_REQUEST_PARTIAL), CGR_ERROR_INVALID_ARGUMENT, { "partial" });
  rules.Refuse(rules.Batch(1, { 1 }, 1, 2), CGR_ERROR_INVALID_ENUM, { "flags[0] is 0x2" });
  rules.Refuse(rules.Batch(1, List(64, 1), 64, 0), CGR_ERROR_PAGES_MISSING, { "row 0", "program 1", "group 1", "64" });
  cgr_batch batch = rules.Batch(1, { 1 }, 1, 0);
  batch.variant = 7;
  rules.Refuse(batch, CGR_ERROR_UNSUPPORTED, { "variant is 7", "program 1" });
  batch = StandingBatch();
  batch.program = 1;
  rules.Refuse(batch, CGR_ERROR_UNSUPPORTED, { "CGR_BATCH_STANDING", "program 1" });
  cgr_key key = CGR_KEY_INIT;
  key.num_tokens = key.num_requests = 1;
  batch = rules.Batch(1, { 1 }, 1, 0);
  batch.forced_key = &key;
  rules.Refuse(batch, CGR_ERROR_INVALID_ARGUMENT, { "forced_key.program is 0", "expected 1" });
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  batch.forced_key = nullptr;
  ExpectMessage(cgr_step_count(rules.engine.rt, &batch, &counts), CGR_ERROR_UNSUPPORTED, { "program is 1" });
  const cgr_where draft = { 0, 1 }, none = { 0, 2 };
  ExpectMessage(cgr_standing_add(rules.engine.rt, &draft, rules.rows[0], 1, nullptr, 0), CGR_ERROR_UNSUPPORTED,
                { "program is 1" });
  ExpectMessage(cgr_standing_add(rules.engine.rt, &none, rules.rows[0], 1, nullptr, 0), CGR_ERROR_INVALID_ARGUMENT,
                { "program is 2" });
  cgr_capture capture = CaptureOf([](cgr_recorder *, void *) { return CGR_OK; }, nullptr);
  capture.program = 2;
  ExpectMessage(cgr_runtime_capture(rules.engine.rt, &capture), CGR_ERROR_INVALID_ARGUMENT, { "capture.program is 2", "0 .. 1" });
  capture.program = 1, capture.keys = &key, capture.num_keys = 1, key.kind = CGR_KIND_FULL, key.query_len = 1;
  ExpectMessage(cgr_runtime_capture(rules.engine.rt, &capture), CGR_ERROR_INVALID_ARGUMENT,
                { "keys[0].program is 0", "expected 1" });
}

TEST(DraftRules, LengthsAreThoseOfAProgram) {
  Rules rules(CGR_SCHEDULE_LATEST);
  cgr_runtime *rt = rules.engine.rt;
  const int32_t row = rules.rows[0];
  rules.Begin({ 5, 6, 7 });
  EXPECT_EQ(rules.engine.Bounds(row, 0), std::make_pair(3, 3));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(3, 3));
  rules.Launch(rules.Follow());
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(4, 4)) << "the target's length is exact, so this is";
  rules.Launch(rules.Verify());
  EXPECT_EQ(rules.engine.Bounds(row, 0), std::make_pair(7, 4));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(4, 4));
  rules.Launch(rules.Follow());
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(8, 5));
  CGR_ASSERT_OK(rules.Wait());
  const int32_t target = rules.engine.Most(row, 0);
  EXPECT_EQ(rules.engine.Bounds(row, 0), std::make_pair(target, target));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(target + 1, target + 1)) << "by the target's result";
  EXPECT_EQ(rules.engine.Length(row, 1), target + 1);
  CGR_ASSERT_OK(cgr_request_set_length(rt, row, 2));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(2, 2)) << "no more than the target";
  CGR_ASSERT_OK(cgr_program_set_length(rt, row, 1, 1));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(1, 1));
  EXPECT_EQ(rules.engine.Bounds(row, 0), std::make_pair(2, 2));
  CGR_ASSERT_OK(cgr_request_set_length(rt, row, 3));
  EXPECT_EQ(rules.engine.Bounds(row, 1), std::make_pair(1, 1)) << "it has fewer already";
  rules.Launch(rules.Batch(0, { 9 }, 1, 0));
  CGR_ASSERT_OK(rules.Wait());
  EXPECT_EQ(rules.engine.Length(row, 0), 4);
  EXPECT_EQ(rules.engine.Length(row, 1), 1) << "it was sent with the other";
  ExpectMessage(rules.Prepare(rules.Batch(1, {}, 3, CGR_REQUEST_DRAFTS(2))), CGR_ERROR_INVALID_ARGUMENT,
                { "4 tokens in program 0", "1 in program 1", "1 .. 3" });
}

TEST(DraftRules, SettingALengthIsRefusedByName) {
  Rules rules;
  cgr_runtime *rt = rules.engine.rt;
  const int32_t row = rules.rows[0];
  int32_t most = 0;
  for (int32_t program : { 0, -1, 2 })
    ExpectMessage(cgr_program_set_length(rt, row, program, 0), CGR_ERROR_INVALID_ARGUMENT,
                  { "program is " + std::to_string(program), "1 .. 1" });
  ExpectMessage(cgr_program_get_length(rt, row, 2, &most, nullptr), CGR_ERROR_INVALID_ARGUMENT, { "program is 2" });
  ExpectMessage(cgr_program_set_length(rt, row, 1, -1), CGR_ERROR_INVALID_ARGUMENT, { "num_tokens is -1" });
  ExpectMessage(cgr_program_set_length(rt, row, 1, kSeqLen + 1), CGR_ERROR_SEQUENCE_TOO_LONG, { "num_tokens is 161" });
  ExpectMessage(cgr_program_set_length(rt, row, 1, 65), CGR_ERROR_PAGES_MISSING, { "at most 64", "group 1", "program 1" });
  CGR_EXPECT_OK(cgr_request_drop_pages(rt, row, 0, 0, 4));
  CGR_EXPECT_OK(cgr_program_set_length(rt, row, 1, 64)); // which has pages of its own
  CGR_EXPECT_OK(cgr_request_drop_pages(rt, row, 1, 0, 1));
  ExpectMessage(cgr_program_set_length(rt, row, 1, 20), CGR_ERROR_PAGES_MISSING, { "from page 0 on", "group 1", "program 1" });
  rules.Refuse(rules.Batch(1, List(4, 1), 4, 0), CGR_ERROR_PAGES_MISSING, { "from page 0 on", "group 1", "program 1" });
  CGR_EXPECT_OK(cgr_program_set_length(rt, row, 1, 0));
  CGR_ASSERT_OK(rules.Prepare(rules.Batch(1, {}, 0, 0)));
  ExpectMessage(cgr_program_set_length(rt, row, 1, 0), CGR_ERROR_STATE, { "in the prepared step" });
  CGR_ASSERT_OK(cgr_step_cancel(rt, &rules.step));
  ExpectMessage(cgr_program_set_length(rt, 5, 1, 0), CGR_ERROR_ROW_CLOSED, { "row 5 is closed" });
  ExpectMessage(cgr_program_get_length(rt, 5, 1, nullptr, nullptr), CGR_ERROR_ROW_CLOSED, { "row 5 is closed" });
  GuessEngine one(HostParam(CGR_SCHEDULE_EARLIEST), kMost, 34);
  CGR_ASSERT_OK(cgr_request_open(one.rt, 1, &most));
  ExpectMessage(cgr_program_set_length(one.rt, most, 1, 0), CGR_ERROR_INVALID_ARGUMENT, { "num_programs is 1" });
}

// The validation layer follows who has which page of a draft's, and how far.
TEST(DraftRules, APageOfADraftIsWrittenByOneRow) {
  std::vector<std::string> told;
  DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
  param.config.layer = cgr_validation_layer();
  param.config.violation_context = &told;
  param.config.on_violation = [](void *context, const char *message) {
    static_cast<std::vector<std::string> *>(context)->push_back(message);
  };
  DraftEngine engine(param, 100);
  int32_t rows[2] = { -1, -1 };
  for (int32_t i = 0; i < 2; i++) {
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &rows[i]));
    for (int32_t p = 0; p < 2; p++) {
      const int32_t of_target = 2 + 2 * i + p, of_draft = p == 0 ? 2 : 3 + i; // the first one is that of both
      CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[i], 0, p, &of_target, 1));
      CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[i], 1, p, &of_draft, 1));
    }
  }
  const List tokens(20, 1);
  const auto prepare = [&](int32_t program, const int32_t *row, const int32_t &count, cgr_step *step) {
    cgr_batch batch = BatchOf(1, row, tokens.data(), &count);
    batch.program = program;
    return cgr_step_prepare(engine.rt, &batch, step);
  };
  for (const auto &[program, i, count] : std::vector<std::tuple<int32_t, int32_t, int32_t>>{ { 0, 1, 20 }, { 1, 0, 20 } }) {
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(prepare(program, &rows[i], count, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  }
  const int32_t four = 4;
  cgr_step step = CGR_STEP_INIT;
  ExpectMessage(prepare(1, &rows[1], four, &step), CGR_ERROR_INVALID_ARGUMENT,
                { "row 1 would write token 0", "page 2 of group 1" });
  EXPECT_EQ(told.size(), 1u);
  CGR_ASSERT_OK(cgr_program_set_length(engine.rt, rows[1], 1, 16)); // as a shared prefix
  CGR_ASSERT_OK(prepare(1, &rows[1], four, &step));
  CGR_ASSERT_OK(cgr_step_cancel(engine.rt, &step));
  EXPECT_EQ(told.size(), 1u);
}

// The host's bounds allow it, and the device alone knows better: two steps of the target since the draft followed.
TEST(DraftRules, ADraftThatHasFallenBehindIsEmptied) {
  Rules rules(CGR_SCHEDULE_LATEST);
  const int32_t row = rules.rows[0];
  rules.Begin({ 5, 6, 7 });
  rules.Launch(rules.Follow());
  rules.Launch(rules.Verify());
  rules.Launch(rules.Batch(0, {}, 1, 0));
  rules.Launch(rules.Follow());
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  ExpectMessage(rules.Wait(&result), CGR_ERROR_STEP, { "length at row 0" });
  EXPECT_EQ(result.guard.error, CGR_GUARD_LENGTH);
  EXPECT_EQ(result.guard.value, rules.engine.Length(row, 0) + 1 - 4);
  EXPECT_EQ(result.num_tokens[0], 0);
  EXPECT_EQ(rules.engine.Length(row, 1), 4);
  CGR_ASSERT_OK(cgr_program_set_length(rules.engine.rt, row, 1, 4));
  const List tokens = Continued({ 5, 6, 7 }, 20); // the draft has { 5, 6, 7 } and the first of these
  const int32_t missed = rules.engine.Most(row, 0) - 4;
  if (missed > 0)
    rules.Launch(rules.Batch(1, List(tokens.begin() + 1, tokens.begin() + 1 + missed), missed, 0));
  rules.Launch(rules.Follow());
  CGR_ASSERT_OK(rules.Wait(&result));
  List known = { 5, 6, 7 };
  known.insert(known.end(), tokens.begin(), tokens.begin() + rules.engine.Most(row, 0) - 2);
  EXPECT_EQ(result.tokens[0], GuessesAfter(known, 1)[0]);
}

// Of eager steps, too, and in a graph's name.
TEST(DraftRules, TheFlightRecorderTellsThePrograms) {
  Rules rules;
  rules.Begin({ 5, 6, 7 });
  for (int32_t enabled : { 0, 1 }) {
    CGR_ASSERT_OK(cgr_runtime_enable_graphs(rules.engine.rt, enabled));
    rules.Launch(enabled ? rules.Follow() : rules.Batch(1, { 9 }, 1, CGR_REQUEST_PARTIAL));
    CGR_ASSERT_OK(rules.Wait());
    if (!enabled)
      CGR_ASSERT_OK(cgr_program_set_length(rules.engine.rt, rules.rows[0], 1, 3));
    std::vector<cgr_flight_record> records(64, cgr_flight_record CGR_FLIGHT_RECORD_INIT);
    int32_t count = 0;
    CGR_ASSERT_OK(cgr_runtime_flight(rules.engine.rt, records.data(), 64, &count));
    const auto last = std::find_if(records.begin(), records.end(), [&](auto &r) { return r.seq == rules.step.mark.seq; });
    ASSERT_NE(last, records.end());
    EXPECT_EQ(last->key.program, 1);
    EXPECT_EQ(last->key.kind, enabled ? CGR_KIND_FULL : CGR_KIND_NONE);
    EXPECT_EQ(cgr__key_name(&last->key).text, std::string(enabled ? "full 1r 4t q4 v0 p1" : "none 1r 1t q0 v0 p1"));
  }
}

// What a draft may not sample is reported as the target's is, and is no token of the next step's.
TEST(DraftRules, AGuessOutsideTheVocabularyIsRefused) {
  Rules rules;
  rules.Begin({ 5, 6, 7 });
  *rules.engine.rubbish() = 4;
  rules.Launch(rules.Follow());
  ExpectMessage(rules.Wait(), CGR_ERROR_STEP, { "token", "row 0" });
  *rules.engine.rubbish() = 0;
  const cgr_buffer_view guesses = BufferOf(rules.engine.rt, CGR_BUFFER_ROW_DRAFT_TOKENS);
  EXPECT_EQ(static_cast<const int32_t *>(guesses.data)[rules.rows[0] * kMost], 0);
}

// Buffers of a group belong to its program.
TEST(DraftRules, AStepLeavesTheBuffersOfOtherProgramsGroupsAlone) {
  Rules rules(CGR_SCHEDULE_EARLIEST, 2, CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES));
  rules.Begin({ 5, 6, 7 });
  for (int32_t program : { 0, 1 }) {
    int32_t *indices[2];
    for (int32_t g = 0; g < 2; g++)
      indices[g] = static_cast<int32_t *>(BufferOf(rules.engine.rt, CGR_BUFFER_KV_INDICES, g).data);
    indices[0][0] = indices[1][0] = indices[0][1] = indices[1][1] = 77;
    rules.Launch(rules.Batch(program, { 9 }, 1, CGR_REQUEST_PARTIAL));
    CGR_ASSERT_OK(rules.Wait());
    for (int32_t i = 0; i < 2; i++) {
      EXPECT_EQ(indices[program][i], 2 + 4 * i);
      EXPECT_EQ(indices[1 - program][i], 77);
    }
  }
}

// As if there were no draft.
TEST(DraftRules, TheTargetsGraphsPassASelfTest) {
  Rules rules(CGR_SCHEDULE_EARLIEST, 0);
  List pages(64);
  for (int32_t p = 0; p < 64; p++)
    pages[size_t(p)] = 2 + p % 32;
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.num_pages = 32, test.pages = pages.data(), test.max_token = kVocab - 1;
  int32_t count = -1;
  CGR_EXPECT_OK(cgr_runtime_self_test(rules.engine.rt, &test, nullptr, 0, &count));
  EXPECT_EQ(count, 0);
  std::map<int32_t, int32_t> ready;
  for (int32_t i = 0; i < NumKeys(rules.engine.rt); i++) {
    const cgr_graph_stats stats = GraphStatsOf(rules.engine.rt, i);
    ready[stats.key.program] += stats.state == CGR_GRAPH_READY;
  }
  EXPECT_GT(ready[0], 10);
  EXPECT_EQ(ready[0], ready[1]);
}

// ---------------------------------------------------------------------------------------------------- layers and backends

struct Told {
  std::vector<int32_t> created, planned, on_host, attended; // programs
  List seq_lens;                                            // of the host's plans
};

cgr_backend BackendOf(const char *name, Told *told) {
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = name, backend.context = told, backend.plan_bytes = 64;
  backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  backend.create = [](void *context, const cgr_plan_key *key, void **) {
    if (key->kind != CGR_KIND_NONE)
      static_cast<Told *>(context)->created.push_back(key->program);
    return CGR_OK;
  };
  backend.plan_host = [](void *context, void *, const cgr_plan_step *step) {
    if (!(step->flags & CGR_PLAN_CAPTURE)) // which eager steps of every program have, too
      static_cast<Told *>(context)->on_host.push_back(step->program),
          static_cast<Told *>(context)->seq_lens.push_back(step->seq_lens[0]);
    return CGR_OK;
  };
  backend.plan = [](void *context, void *, cgr_recorder *recorder, uint32_t, int32_t draft) {
    EXPECT_EQ(draft, 0);
    static_cast<Told *>(context)->planned.push_back(InfoOf(recorder).key.program);
    return CGR_OK;
  };
  backend.record = [](void *context, cgr_recorder *recorder, const cgr_attention *) {
    static_cast<Told *>(context)->attended.push_back(InfoOf(recorder).key.program);
    return CGR_OK;
  };
  return backend;
}

// A model of one layer in each program: of the library's own attention, or of a backend for each.
class TwoModels {
public:
  enum { kDim = 16, kPages = 6, kHeads = 4 };

  // With `alone` the second model is the only one.
  TwoModels(cgr_host_schedule schedule, const cgr_backend *backends, bool alone) : device_(schedule), alone_(alone) {
    cgr_group groups[2] = { CGR_GROUP_INIT, CGR_GROUP_INIT };
    cgr_layer layers[2] = { CGR_LAYER_INIT, CGR_LAYER_INIT };
    CGR_EXPECT_OK(cgr_stream_create(device_, &stream_));
    for (int32_t p = 0; p < 2; p++) {
      groups[p].num_pages = kPages, groups[p].program = p;
      layers[p].program = layers[p].group = p, layers[p].backend = backends ? 1 + p : 0;
      layers[p].num_q_heads = kHeads, layers[p].num_kv_heads = p == 0 ? kHeads : 1, layers[p].head_dim = kDim;
      for (cgr_kv_view *view : { &layers[p].k, &layers[p].v })
        CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc(), CGR_DTYPE_FP32, 16, layers[p].num_kv_heads, kDim, view));
      for (int i = 0; i < 4; i++)
        CGR_EXPECT_OK(
            cgr_view_make(Alloc(), CGR_DTYPE_FP32, i == 0 || i == 3 ? kHeads : layers[p].num_kv_heads, kDim, &views_[p][i]));
    }
    groups[1].program = layers[1].program = alone ? 0 : 1, layers[1].group = alone ? 0 : 1;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = device_, config.num_draft_tokens = 1, config.num_programs = alone ? 1 : 2;
    config.groups = groups + alone, config.layers = layers + alone;
    config.num_groups = config.num_layers = alone ? 1 : 2;
    config.backends = backends, config.num_backends = backends ? 2 : 0;
    config.max_requests = 2, config.max_tokens = 16, config.max_seq_len = 48;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    for (int32_t p = 0; p < config.num_programs; p++) {
      cgr_capture capture = CaptureOf(Record, this);
      capture.program = p;
      CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
    }
  }
  ~TwoModels() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(device_, stream_));
    for (void *m : memory_)
      CGR_EXPECT_OK(cgr_memory_free(device_, m));
  }
  // A chunk of a row's tokens in a program's step.
  cgr_status Step(int32_t row, int32_t program, int32_t count) {
    const List tokens(size_t(count), 1);
    cgr_batch batch = BatchOf(1, &row, tokens.data(), &count);
    const uint32_t partial = CGR_REQUEST_PARTIAL;
    batch.program = program, batch.flags = &partial;
    cgr_step step = CGR_STEP_INIT;
    const cgr_status prepared = cgr_step_prepare(rt, &batch, &step);
    const cgr_status status = prepared == CGR_OK ? cgr_step_launch(rt, &step, stream_) : prepared;
    EXPECT_EQ(status == CGR_OK ? step.key.kind : CGR_KIND_FULL, CGR_KIND_FULL);
    return status == CGR_OK ? cgr_step_wait(rt, step.mark, -1, nullptr) : status;
  }
  // q, k and v of the second model, a value for each element.
  void Fill(uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < 3; i++)
      for (int32_t e = 0; e < 16 * kHeads * kDim; e++)
        static_cast<float *>(views_[1][i].data)[e] = float(random.Pick32(-100, 100)) / 64;
  }
  // The first word of a layer's plan.
  int32_t &PlanOf(int32_t layer) {
    const cgr__plans &plans = rt->setup.plans;
    return static_cast<int32_t *>(BufferOf(rt, CGR_BUFFER_PLAN).data)[plans.offset[plans.class_of[layer]]];
  }
  std::vector<float> Out() const {
    const float *out = static_cast<const float *>(views_[1][3].data);
    return std::vector<float>(out, out + 16 * kHeads * kDim);
  }
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(rt, 1, &row));
    for (int32_t g = 0; g < (alone_ ? 1 : 2); g++)
      for (int32_t p = 0; p < 3; p++) {
        const int32_t page = 2 + (p + g) % 3; // other pages in each
        CGR_EXPECT_OK(cgr_request_set_pages(rt, row, g, p, &page, 1));
      }
    return row;
  }

  cgr_runtime *rt = nullptr;
  int32_t other_layer = 0; // 1: `record` takes the other program's layer

private:
  void *Alloc() {
    void *memory = nullptr;
    const size_t bytes = size_t(kPages) * 16 * kHeads * kDim * 4;
    CGR_EXPECT_OK(cgr_memory_alloc(device_, bytes, &memory));
    std::memset(memory, 0, bytes);
    memory_.push_back(memory);
    return memory;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    TwoModels &self = *static_cast<TwoModels *>(engine);
    const int32_t program = InfoOf(recorder).key.program, layer = self.other_layer ? 1 - program : program;
    const cgr_view *views = self.views_[self.alone_ ? 1 : layer];
    cgr_attention a = CGR_ATTENTION_INIT;
    a.layer = layer, a.q = views[0], a.k = views[1], a.v = views[2], a.out = views[3];
    return cgr_record_attention(recorder, &a);
  }

  HostDevice device_;
  const bool alone_;
  cudaStream_t stream_ = nullptr;
  std::vector<void *> memory_;
  cgr_view views_[2][4];
};

void ExpectOnly(const std::vector<int32_t> &programs, int32_t program, const char *what) {
  EXPECT_FALSE(programs.empty()) << what;
  EXPECT_EQ(std::count(programs.begin(), programs.end(), program), int64_t(programs.size())) << what;
}

// A `record` that takes each layer of its own program once is complete, and one that takes another's is refused.
TEST(DraftLayers, AreOfStepsOfTheirProgramAlone) {
  Told told[2];
  const cgr_backend backends[2] = { BackendOf("of the target", &told[0]), BackendOf("of the draft", &told[1]) };
  TwoModels models(CGR_SCHEDULE_EARLIEST, backends, false);
  const int32_t row = models.Open();
  for (const auto &[program, count] : std::vector<std::pair<int32_t, int32_t>>{ { 0, 2 }, { 1, 3 }, { 1, 2 }, { 0, 1 } })
    CGR_EXPECT_OK(models.Step(row, program, count));
  EXPECT_EQ(told[0].seq_lens, (List{ 2, 3 }));
  EXPECT_EQ(told[1].seq_lens, (List{ 3, 5 }));
  for (int32_t program : { 0, 1 }) {
    ExpectOnly(told[program].created, program, "created");
    ExpectOnly(told[program].on_host, program, "planned on the host");
    ExpectOnly(told[program].planned, program, "planned");
    ExpectOnly(told[program].attended, program, "attended");
  }
  models.other_layer = 1;
  CGR_EXPECT_OK(cgr_runtime_enable_graphs(models.rt, 0));
  for (int32_t program : { 0, 1 }) {
    const int32_t token = 1;
    cgr_batch batch = BatchOf(1, &row, &token);
    cgr_step step = CGR_STEP_INIT;
    batch.program = program;
    CGR_ASSERT_OK(cgr_step_prepare(models.rt, &batch, &step));
    cudaStream_t stream = nullptr;
    cgr_device *device = nullptr;
    CGR_ASSERT_OK(cgr_runtime_device(models.rt, &device));
    CGR_ASSERT_OK(cgr_stream_create(device, &stream));
    ExpectMessage(cgr_step_launch(models.rt, &step, stream), CGR_ERROR_CALLBACK,
                  { "layer " + std::to_string(1 - program) + " of program " + std::to_string(1 - program),
                    "step of program " + std::to_string(program) });
    CGR_ASSERT_OK(cgr_step_wait(models.rt, step.mark, -1, nullptr));
    CGR_ASSERT_OK(cgr_stream_destroy(device, stream));
  }
}

// Next to the target's steps, of other lengths, the draft's attention has the bits that it has without them.
TEST(DraftLayers, AttendAsTheyDoAlone) {
  for (cgr_host_schedule schedule : { CGR_SCHEDULE_EARLIEST, CGR_SCHEDULE_LATEST }) {
    TwoModels both(schedule, nullptr, false), alone(schedule, nullptr, true);
    const int32_t row = both.Open(), same = alone.Open();
    for (int32_t s = 0; s < 8; s++) {
      both.Fill(uint64_t(s)), alone.Fill(uint64_t(s));
      both.PlanOf(1) = 12345678;
      CGR_ASSERT_OK(both.Step(row, 0, 1 + s % 5));
      EXPECT_EQ(both.PlanOf(1), 12345678) << "a step plans for its own program's layers";
      CGR_ASSERT_OK(both.Step(row, 1, 1 + s % 3));
      CGR_ASSERT_OK(alone.Step(same, 0, 1 + s % 3));
      const std::vector<float> out = both.Out();
      EXPECT_EQ(out, alone.Out()) << "step " << s;
      EXPECT_NE(std::count(out.begin(), out.end(), 0.0f), int64_t(out.size()));
    }
  }
}

} // namespace
} // namespace cgr_test

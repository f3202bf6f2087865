// The steps of a test's engine.
#include "cgr/names.h"
#include "tests/support/engine.h"

namespace cgr_test {

// ----------------------------------------------------------------------------------------------------------- around the steps

cgr_capture Engine::CaptureStruct() { return CaptureOf(record, record_engine); }

cgr_status Engine::Capture() {
  cgr_capture capture = CaptureStruct();
  return cgr_runtime_capture(rt, &capture);
}

cgr_status Engine::Warmup() {
  cgr_capture capture = CaptureStruct();
  cgr_status status = cgr_runtime_warmup(rt, &capture);
  launched += uint64_t(cgr_test::NumKeys(rt));
  return status;
}

cgr_status Engine::Flush() {
  uint64_t seq = 0;
  cgr_status status = cgr_test::Flush(rt, stream, &seq);
  EXPECT_GE(seq, launched);
  launched = seq;
  return status;
}

cgr_stats Engine::Stats() {
  const cgr_stats stats = StatsOf(rt);
  EXPECT_EQ(CountedSteps(stats), stats.steps) << "counters do not add up";
  return stats;
}

cgr_graph_stats Engine::GraphStats(int32_t index) { return GraphStatsOf(rt, index); }

std::vector<int32_t> Engine::Prompt(int32_t length, int32_t salt) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; i++)
    tokens.push_back((i * 7 + salt * 13 + 3) % kVocabulary);
  return tokens;
}

std::vector<Item> Engine::RandomItems(std::mt19937 &random, size_t num_rows, int32_t salt) {
  std::vector<Item> items;
  while (requests.size() < num_rows)
    Open();
  for (int32_t row : Rows()) {
    const Request &r = *requests[row];
    if (random() % 4 == 0)
      continue;
    int32_t length = random() % 3 == 0 ? int32_t(random() % 6) : 1;
    Reserve(row, r.num_tokens + length);
    items.push_back(Chunk(row, length, salt, random() % 4 == 0));
    if (length > 0 && r.has_token)
      items.back().tokens[0] = CGR_TOKEN_LAST;
  }
  return items;
}

Item Engine::Chunk(int32_t row, int32_t length, int32_t salt, bool partial) { return { row, Prompt(length, salt), partial }; }

int32_t Engine::Start(int32_t length, int32_t salt) {
  int32_t row = Open();
  Reserve(row, length);
  Step({ Chunk(row, length, salt) });
  return row;
}

std::vector<Item> Engine::Decode(const std::vector<int32_t> &rows) {
  std::vector<Item> items;
  for (int32_t row : rows) {
    Reserve(row, requests.at(row)->num_tokens + 1);
    items.push_back({ row, { CGR_TOKEN_LAST }, false });
  }
  return items;
}

std::vector<Item> Engine::Chunks(const std::vector<std::pair<int32_t, int32_t>> &chunks) {
  std::vector<Item> items;
  for (const auto &[row, length] : chunks) {
    Reserve(row, requests.at(row)->num_tokens + length);
    items.push_back(Chunk(row, length));
  }
  return items;
}

// --------------------------------------------------------------------------------------------------------------------- steps

cgr_status Engine::Prepare(const std::vector<Item> &items, const cgr_key *forced) {
  std::vector<int32_t> rows, lens, tokens;
  std::vector<uint32_t> flags;
  bool told = false, partial = false;
  items_ = items;
  for (const Item &item : items) {
    rows.push_back(item.row);
    lens.push_back(int32_t(item.tokens.size()));
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    flags.push_back(item.partial ? uint32_t(CGR_REQUEST_PARTIAL) : 0u);
    partial = partial || item.partial;
  }
  for (int32_t token : tokens)
    told = told || token != CGR_TOKEN_LAST;
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = int32_t(items.size());
  batch.rows = rows.data();
  batch.query_lens = lens.data();
  batch.tokens = told || tokens.size() % 2 == 1 ? tokens.data() : nullptr; // now and then an array of only LAST
  batch.flags = partial ? flags.data() : nullptr;
  batch.forced_key = forced;
  batch.variant = variant;
  batch.plan_flags = plan_flags;
  step = CGR_STEP_INIT;
  return prepare ? prepare(&batch, &step) : cgr_step_prepare(rt, &batch, &step);
}

// What the prepared step takes from its requests.
std::vector<InFlight::Taken> Engine::Take() const {
  std::vector<InFlight::Taken> taken;
  for (const Item &item : items_) {
    const std::shared_ptr<Request> &r = requests.at(item.row);
    const int32_t set = SetOfStep(), start = r->Length(set) - (set > 0 ? int32_t(item.tokens.size()) : 0);
    std::vector<std::vector<int32_t>> pages;
    for (size_t g = 0; g < o.groups.size(); g++)
      pages.push_back(r->Of(g).pages);
    taken.push_back({ item, r, start, r->tag, pages, {}, {}, r->other_length, {} });
  }
  return taken;
}

// q, k and v of the step's tokens; the others, and all that the calls write, become 0xff.
void Engine::Upload(InFlight *p, cudaStream_t on) {
  int32_t number = p->number;
  for (int32_t l = 0; l < state.num_layers; l++)
    for (Tensor which : kTensors) {
      const RecordLayer &layer = state.layer[l];
      p->uploads.emplace_back(layer.in_bytes[which]);
      FillInput(
          layer, which, step.num_tokens,
          [number](int32_t t) {
            return Entry{ number, t };
          },
          p->uploads.back().data());
      void *to = layer.given[which] != nullptr ? layer.given[which] : layer.in[which].data;
      if (to != layer.in[which].data) // the step copies them
        CGR_EXPECT_OK(cgr_fill(dev, layer.in[which].data, 0xff, layer.in_bytes[which], on));
      CGR_EXPECT_OK(cgr_copy(dev, to, p->uploads.back().data(), layer.in_bytes[which], on));
    }
  for (int32_t c = 0; c < state.num_calls; c++) {
    const RecordCall &call = state.call[c];
    if (call.out_bytes > 0)
      CGR_EXPECT_OK(cgr_fill(dev, call.attention.out.data, 0xff, call.out_bytes, on));
    if (call.lse_bytes > 0)
      CGR_EXPECT_OK(cgr_fill(dev, call.attention.lse.data, 0xff, call.lse_bytes, on));
  }
}

// A launch that failed. The step is still prepared, or over: then nothing of it counts, though it may have written its pages and
// may still do so until its number has completed.
cgr_status Engine::Failed(std::unique_ptr<InFlight> p, cgr_status status) {
  EXPECT_TRUE(step.state == CGR_STEP_PREPARED || step.state == CGR_STEP_ABANDONED)
      << cgr_step_state_name(cgr_step_state(step.state));
  std::string message = cgr_last_message();
  for (const InFlight::Taken &taken : p->items) {
    if (step.state != CGR_STEP_ABANDONED || dead)
      break;
    if (step.mark.seq > 0) {
      EXPECT_EQ(Info(taken.item.row).last.seq, step.mark.seq);
    }
    EXPECT_EQ(Info(taken.item.row).num_tokens, taken.request->num_tokens) << "an abandoned step counts";
    DoubtTokens(taken, p->set);
  }
  if (step.state == CGR_STEP_ABANDONED && step.mark.seq > 0) {
    EXPECT_GT(step.mark.seq, launched);
    launched = step.mark.seq;
  }
  EXPECT_EQ(message, cgr_last_message());
  failed_.push_back(std::move(p));
  return status;
}

void Engine::DoubtTokens(const InFlight::Taken &taken, int32_t set) {
  for (size_t g = 0; g < o.groups.size(); g++)
    for (int32_t t = taken.start; t < taken.start + int32_t(taken.item.tokens.size()); t++) {
      const int32_t size = o.groups[g].page_size;
      if (o.groups[g].length_set == set && !IsBad(taken.pages[g][size_t(t / size)], g))
        all_caches[g].Doubt(taken.pages[g][size_t(t / size)], t % size);
    }
}

cgr_status Engine::LaunchOn(cudaStream_t on) {
  auto p = std::make_unique<InFlight>();
  p->items = Take();
  p->set = SetOfStep();
  p->number = o.feed == Feed::kNodes ? uploads_ + 1 : ++uploads_;
  if ((o.feed == Feed::kUploads || o.feed == Feed::kCopies) && upload)
    Upload(p.get(), on);
  if (prelaunch)
    prelaunch();
  cgr_status status = cgr_step_launch(rt, &step, on);
  p->step = step;
  if (status != CGR_OK)
    return Failed(std::move(p), status);
  uploads_ = p->number;
  EXPECT_EQ(step.state, CGR_STEP_LAUNCHED);
  EXPECT_GT(step.mark.seq, launched);
  launched = step.mark.seq;
  for (const Item &item : items_) {
    Request &r = *requests.at(item.row);
    if (SetOfStep() > 0)
      continue;
    r.num_tokens += int32_t(item.tokens.size());
    if (!item.tokens.empty())
      r.has_token = !item.partial;
  }
  in_flight_.push_back(std::move(p));
  return status;
}

void Engine::PrepareAndLaunch(const std::vector<Item> &items, const cgr_key *forced) {
  CGR_ASSERT_OK(Prepare(items, forced));
  CGR_ASSERT_OK(Launch());
}

void Engine::Step(const std::vector<Item> &items, const cgr_key *forced) {
  ASSERT_NO_FATAL_FAILURE(PrepareAndLaunch(items, forced));
  CheckAll();
}

void Engine::CheckAll() {
  while (!in_flight_.empty() && !::testing::Test::HasFatalFailure())
    CheckOne();
}

void Engine::WaitForAll() {
  if (launched == 0)
    return;
  cgr_status status = cgr_step_wait(rt, cgr_mark{ 0, 0, launched }, -1, nullptr);
  EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_STEP) << cgr_status_name(status) << ": " << cgr_last_message();
}

void Engine::Forget() {
  for (auto &p : in_flight_)
    failed_.push_back(std::move(p));
  in_flight_.clear();
  forgot_ = true;
}

void Engine::ExpectGuarded(uint64_t seq, cgr_guard_error error) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(rt, cgr_mark{ 0, 0, seq }, -1, &result));
  EXPECT_EQ(std::string(cgr_guard_error_name(cgr_guard_error(result.guard.error))), cgr_guard_error_name(error));
  ExpectGuardMessage(seq, result.guard);
  EXPECT_EQ(result.mark.seq, seq);
  EXPECT_EQ(result.num_requests, 0);
  guard_errors++;
}

} // namespace cgr_test

#include "tests/support/simulation.h"

#include <algorithm>

#include "kernels/host/launchers.h"
#include "tests/support/expect.h"
#include "tests/support/record_buffers.h"
#include "tests/support/single_step.h"

namespace cgr_test {
namespace sim {

namespace {

enum { kLayers = 2, kDim = 64, kOneInterruption = 200, kOneLook = 30 };

struct SampleArgs {
  const int32_t *input_ids, *positions, *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests, reserved;
};

void Sample(const void *raw) {
  const SampleArgs &a = *static_cast<const SampleArgs *>(raw);
  for (int32_t i = 0; i < a.num_requests; i++)
    a.next_tokens[i] = NextToken(a.input_ids[a.logits_indices[i]], a.positions[a.logits_indices[i]]);
}

} // namespace

const char *PaceName(Pace pace) {
  static const char *const names[] = { "latest", "random", "fetch early", "fetch late" };
  return names[int(pace)];
}

void Counts::Add(const Counts &other) {
  const uint64_t *from = reinterpret_cast<const uint64_t *>(&other);
  uint64_t *to = reinterpret_cast<uint64_t *>(this);
  for (size_t i = 0; i < sizeof *this / sizeof *to; i++)
    to[i] += from[i];
}

// ------------------------------------------------------------------------------------------------------- making, and the end

Simulation::Simulation(const Options &options) : options_(options), random_(options.seed) {
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  cgr_device *inner = nullptr;
  config.host_schedule = CGR_SCHEDULE_EARLIEST;
  cgr__host_device_open(&config, &inner);
  dev_ = new SimDevice(inner, options.seed + 1);
  dev_->skipped = { cgr__host_attention }; // nothing of the protocol is in it
  for (cudaStream_t &stream : streams_)
    cgr_stream_create(dev_, &stream);
  for (void *&m : memory_)
    cgr_memory_alloc(dev_, size_t{ kPages } * 32 * kDim * 4, &m);
  MakeRuntime();
  model_ = std::make_unique<Model>(rt_);
  collected_ = model_->seq;
  dev_->enqueued = [this](const SimWork &work) { model_->Enqueued(work); };
  dev_->before = [this](const SimWork &work) { model_->Before(work); };
  dev_->after = [this](const SimWork &work) { model_->After(work); };
  dev_->moment = [this] { Moment(); };
}

Simulation::~Simulation() {
  dev_->moment = nullptr;
  dev_->enqueued = dev_->before = dev_->after = nullptr;
  dev_->RunAll();
  cgr_runtime_destroy(rt_);
  for (cudaStream_t stream : streams_)
    cgr_stream_destroy(dev_, stream);
  for (void *m : memory_)
    cgr_memory_free(dev_, m);
  cgr_device_close(dev_);
}

void Simulation::MakeRuntime() {
  static const int32_t decodes[] = { 1, 2, 4 };
  static const cgr_bucket mixed[] = { { 6, 3 }, { 16, 5 } };
  cgr_group groups[kGroups] = { CGR_GROUP_INIT, CGR_GROUP_INIT };
  cgr_layer layers[kLayers] = { CGR_LAYER_INIT, CGR_LAYER_INIT };
  cgr_buffer_decl buffers[2] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  for (int32_t l = 0; l < kLayers; l++) {
    groups[l].page_size = kPageSize[l];
    groups[l].num_pages = kPages;
    layers[l].group = l;
    layers[l].num_q_heads = layers[l].num_kv_heads = 1;
    layers[l].head_dim = kDim;
    cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[2 * l], CGR_DTYPE_FP32, kPageSize[l], 1, kDim, &layers[l].k);
    cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[2 * l + 1], CGR_DTYPE_FP32, kPageSize[l], 1, kDim, &layers[l].v);
    buffers[l].dimension = l == 0 ? CGR_DIMENSION_TOKENS : CGR_DIMENSION_ROWS;
    buffers[l].dtype = CGR_DTYPE_I32;
    buffers[l].source = CGR_SOURCE_STAGED;
    buffers[l].width = l == 0 ? 1 : kWords;
    buffers[l].name = l == 0 ? "of_tokens" : "of_rows";
    buffers[l].padding = kPadding;
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev_;
  config.groups = groups;
  config.num_groups = kGroups;
  config.layers = layers;
  config.num_layers = kLayers;
  config.buffers = buffers;
  config.num_buffers = 2;
  config.max_requests = kRequests;
  config.max_rows = kRows;
  config.max_tokens = kTokens;
  config.max_seq_len = kSeqLen;
  config.graph_mode = options_.mode;
  config.decode_buckets = decodes;
  config.num_decode_buckets = 3;
  config.mixed_buckets = mixed;
  config.num_mixed_buckets = 2;
  config.ring_depth = options_.depth;
  config.max_changes = options_.max_changes;
  config.num_parts = 2;
  config.wait_timeout_ms = 5000;
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = Record;
  capture.engine = this;
  CGR_EXPECT_OK(cgr_runtime_create(&config, &rt_));
  CGR_EXPECT_OK(cgr_runtime_capture(rt_, &capture));
  dev_->RunAll();
}

cgr_status Simulation::Call(cgr_recorder *, const void *args) {
  const Simulation &self = **static_cast<Simulation *const *>(args);
  return self.callback_fails_ ? CGR_ERROR_CALLBACK : CGR_OK;
}

cgr_status Simulation::Record(cgr_recorder *recorder, void *engine) {
  Simulation *self = static_cast<Simulation *>(engine);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
  const SampleArgs args = { buffer(CGR_BUFFER_INPUT_IDS),
                            buffer(CGR_BUFFER_POSITIONS),
                            buffer(CGR_BUFFER_LOGITS_INDICES),
                            buffer(CGR_BUFFER_NEXT_TOKENS),
                            info.num_requests,
                            0 };
  for (int32_t l = 0; l < kLayers && status == CGR_OK; l++) {
    cgr_attention a = CGR_ATTENTION_INIT;
    a.layer = l;
    cgr_view *const views[] = { &a.q, &a.k, &a.v, &a.out };
    for (size_t i = 0; i < 4; i++)
      cgr_view_make(self->memory_[4 + i], CGR_DTYPE_FP32, 1, kDim, views[i]);
    status = cgr_record_attention(recorder, &a);
    if (status == CGR_OK && l == 0)
      status = cgr_record_call(recorder, Call, &self, sizeof self);
  }
  return status == CGR_OK ? cgr_launch_host(self->dev_, Sample, &args, sizeof args, info.stream) : status;
}

void Simulation::Fail(const std::string &what) {
  if (model_->failure.empty())
    model_->failure = "host, after step " + std::to_string(rt_->lane.launched) + ": " + what;
}

bool Simulation::Ok(cgr_status status, const char *what) {
  if (status != CGR_OK)
    Fail(std::string(what) + ": " + cgr_status_name(status) + ": " + cgr_last_message());
  return status == CGR_OK;
}

// ------------------------------------------------------------------------------------------------------------------ the pace

// The device may run something here.
void Simulation::Moment() {
  if (nested_ || options_.pace == Pace::kLatest || OneIn(3))
    return;
  if (OneIn(kOneLook))
    InterruptedFetch();
  if (options_.pace == Pace::kFetchEarly)
    while (dev_->RunKernel(cgr__host_fetch) || (OneIn(4) && dev_->RunOldest()))
      continue;
  if (options_.pace == Pace::kFetchLate) // everything up to a fetch, which then waits
    while (!dev_->CanRun(cgr__host_fetch) && OneIn(12) == false && dev_->RunOldest())
      continue;
  if (options_.pace == Pace::kRandom)
    for (int32_t n = OneIn(2) ? Pick(0, 5) : OneIn(4) ? Pick(0, 60) : 0; n > 0 && dev_->RunAny(); n--)
      continue;
}

// Checks the inbox while a fetch runs.
void Simulation::InterruptedFetch() {
  dev_->run_with = [this](const SimWork &work) {
    counts_.in_fetch += Interrupted([&] { work.function(work.args); }, Pick(1, 120), [&] { model_->CheckInbox(work); });
  };
  dev_->RunKernel(cgr__host_fetch);
  dev_->run_with = nullptr;
}

// The commit of the prepared step falls into the fetch of the step before; or the prepared step is cancelled there, and another
// one is prepared and launched. False: there is no such fetch, or it had ended.
bool Simulation::LaunchInFetch(bool standing) {
  while (CanInterrupt() && !dev_->CanRun(cgr__host_fetch) && dev_->RunOldest())
    continue;
  if (!dev_->CanRun(cgr__host_fetch) || rt_->lane.prepared.seq != model_->seq + 2)
    return false;
  bool launched = false;
  const auto launch = [&] {
    launched = nested_ = model_->racing = true;
    bool is_standing = standing;
    if (OneIn(2)) {
      Cancel();
      is_standing = false;
      if (!Prepare(WholeBatch(), false))
        return;
    }
    Launch(is_standing);
  };
  Collect(model_->seq);
  dev_->run_with = [&](const SimWork &work) {
    counts_.torn_commits += Interrupted([&] { work.function(work.args); }, Pick(1, 120), launch);
  };
  dev_->RunKernel(cgr__host_fetch);
  nested_ = model_->racing = false;
  return launched;
}

// Runs until one more step has completed.
bool Simulation::RunToNextResult() {
  const uint64_t before = model_->seq;
  while (model_->seq == before && failure().empty())
    if (!(options_.pace == Pace::kRandom ? dev_->RunAny() : dev_->RunOldest()))
      return false;
  return failure().empty();
}

// -------------------------------------------------------------------------------------------------------------------- steps

Plan Simulation::MakePlan(const std::vector<Item> &items) const {
  Plan plan;
  plan.items = items;
  plan.staged = staged_;
  plan.generation = rt_->lane.ring.completion->generation;
  for (const auto &[row, view] : rows_)
    plan.rows[row] = view;
  return plan;
}

// A key that serves the batch but is not the one that would be chosen.
bool Simulation::ChooseForced(const std::vector<Item> &items, cgr_key *key) {
  int32_t tokens = 0, requests = int32_t(items.size());
  for (const Item &item : items)
    tokens += item.len;
  *key = CGR_KEY_INIT;
  key->kind = OneIn(2) ? CGR_KIND_NONE : options_.mode == CGR_MODE_FULL ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
  if (key->kind == CGR_KIND_NONE) {
    key->num_requests = Pick(std::max(requests, 1), kRequests);
    key->num_tokens = Pick(std::max(tokens, 1), kTokens);
    return true;
  }
  key->num_tokens = 16;
  key->num_requests = 5;
  const bool has_mixed = options_.mode != CGR_MODE_NONE && options_.mode != CGR_MODE_FULL_DECODE_ONLY;
  return has_mixed && requests <= 5 && tokens <= 16;
}

cgr_status Simulation::PrepareBatch(const std::vector<Item> &items, bool standing, const cgr_key *forced) {
  std::vector<int32_t> rows, lens, tokens;
  std::vector<uint32_t> flags;
  cgr_batch batch = CGR_BATCH_INIT;
  bool any_tokens = false;
  for (const Item &item : items) {
    rows.push_back(item.row);
    lens.push_back(item.len);
    flags.push_back(item.partial ? CGR_REQUEST_PARTIAL : 0);
    any_tokens = any_tokens || !item.tokens.empty();
    for (int32_t j = 0; j < item.len; j++)
      tokens.push_back(item.tokens.empty() ? int32_t{ CGR_TOKEN_LAST } : item.tokens[size_t(j)]);
  }
  const cgr_staged staged = { 0, 0, staged_.data() };
  batch.num_requests = standing ? int32_t{ CGR_BATCH_STANDING } : int32_t(items.size());
  batch.rows = standing ? nullptr : rows.data();
  batch.query_lens = standing ? nullptr : lens.data();
  batch.tokens = standing || !any_tokens ? nullptr : tokens.data();
  batch.flags = standing ? nullptr : flags.data();
  batch.staged = &staged;
  batch.num_staged = staged_.empty() ? 0 : 1;
  batch.forced_key = forced;
  if (nested_ || options_.pace == Pace::kLatest || !OneIn(kOneInterruption))
    return cgr_step_prepare(rt_, &batch, &step_);
  cgr_status status = CGR_OK; // the device runs something while the host is in the middle of writing the ring slot
  const int32_t kernels = Pick(1, 12);
  const bool fetches = OneIn(2);
  counts_.in_prepare += Interrupted([&] { status = cgr_step_prepare(rt_, &batch, &step_); }, Pick(1, OneIn(2) ? 300 : 1500),
                                    [&] {
                                      for (int32_t n = 0; n < kernels; n++)
                                        dev_->RunOldest();
                                      while (fetches && !dev_->CanRun(cgr__host_fetch) && dev_->RunOldest())
                                        continue;
                                      dev_->RunKernel(cgr__host_fetch);
                                    });
  return status;
}

bool Simulation::Prepare(const std::vector<Item> &items, bool standing) {
  cgr_key key;
  const bool forced = OneIn(12) && ChooseForced(items, &key);
  int32_t tokens = 0;
  for (const Item &item : items)
    tokens += item.len;
  staged_.clear();
  for (int32_t t = 0, count = OneIn(4) ? tokens : 0; t < count; t++)
    staged_.push_back(Pick(0, 999));
  for (;;) {
    step_ = CGR_STEP_INIT;
    const uint64_t done = model_->seq;
    const Plan plan = MakePlan(items);
    const cgr_status status = PrepareBatch(items, standing, forced ? &key : nullptr);
    const uint64_t told = rt_->lane.ring.completion->generation;
    if (nested_ && (status == CGR_ERROR_CHANGES_PENDING || status == CGR_ERROR_BUSY))
      return false;
    if (status == CGR_ERROR_CHANGES_PENDING) {
      Flush();
    } else if (status == CGR_ERROR_BUSY) { // the last legal moment for the oldest step
      counts_.busy++;
      if (model_->seq == done && !RunToNextResult()) {
        Fail("BUSY, and nothing is pending");
        return false;
      }
    } else {
      if (!Ok(status, "prepare"))
        return false;
      counts_.forced += forced;
      const uint64_t seen = cgr__ring_slot(&rt_->lane.ring, rt_->lane.prepared.seq)->generation;
      if (seen < plan.generation || seen > told)
        Fail("a ring slot bears another count of losses than the device has told");
      model_->plans[rt_->lane.prepared.seq] = plan;
      return true;
    }
    if (!failure().empty())
      return false;
  }
}

void Simulation::Cancel() {
  model_->plans.erase(rt_->lane.prepared.seq);
  Ok(cgr_step_cancel(rt_, &step_), "cancel");
  counts_.cancels++;
}

// One of the next calls that enqueue fails, with or without effect.
void Simulation::PlanFault() {
  static const int errors[] = { CGR__DEVICE_INVALID, CGR__DEVICE_FAILED, CGR__DEVICE_NO_MEMORY };
  const bool graph = step_.key.kind == CGR_KIND_FULL;
  dev_->fault.after = graph && !OneIn(3) ? 0 : Pick(0, 16);
  dev_->fault.error = errors[Pick(0, 2)];
  dev_->fault.has_effect = dev_->fault.error != CGR__DEVICE_INVALID && OneIn(2);
  dev_->fired = false;
}

void Simulation::CountKind() {
  const cgr_key &key = step_.key;
  counts_.change_steps += uint64_t(rt_->lane.prepared.num_change_steps);
  uint64_t &kind = key.kind == CGR_KIND_PIECEWISE ? counts_.piecewise
                   : key.kind == CGR_KIND_NONE    ? counts_.eager
                   : key.query_len == 1           ? counts_.full_decode
                                                  : counts_.full_mixed;
  kind++;
  counts_.dummy += step_.num_requests == 0;
}

void Simulation::Launch(bool standing) {
  const uint64_t number = rt_->lane.prepared.seq, before = rt_->lane.launched;
  const std::vector<Item> items = model_->plans[number].items;
  // No result is lost except those that the launch may take, which do not include that of the step before.
  if (number > uint64_t(options_.depth))
    Collect(std::min(number - uint64_t(options_.depth), before > 0 ? before - 1 : 0));
  CountKind();
  if (!nested_ && OneIn(14))
    PlanFault();
  callback_fails_ = !nested_ && step_.key.kind != CGR_KIND_FULL && OneIn(25);
  cgr_status status = cgr_step_launch(rt_, &step_, streams_[OneIn(5)]);
  while (status != CGR_OK && step_.state == CGR_STEP_PREPARED && dev_->fired) // before anything was committed
    status = cgr_step_launch(rt_, &step_, streams_[0]);
  const bool failed = status != CGR_OK;
  if (failed && !dev_->fired && !callback_fails_)
    Ok(status, "launch");
  if (failed && rt_->dead != 0)
    Fail(std::string("the runtime is dead: ") + cgr_last_message());
  counts_.callbacks += failed && !dev_->fired;
  counts_.failed += failed && dev_->fired;
  dev_->fault.after = -1;
  dev_->fired = callback_fails_ = false;
  failed ? Abandoned(number) : Commit(items, standing);
  if (before > 0 && cgr_step_wait(rt_, cgr_mark{ 0, 0, before }, 0, nullptr) == CGR_ERROR_EXPIRED)
    Fail("a launch took the result of the step before it");
}

void Simulation::Commit(const std::vector<Item> &items, bool standing) {
  Launched &launched = launched_[step_.mark.seq];
  launched.known = true;
  for (const Item &item : items) {
    launched.rows.push_back(item.row);
    launched.tags.push_back(rows_[item.row].tag);
    rows_[item.row].length += item.len;
  }
  (standing ? counts_.standing : counts_.whole)++;
  for (Item &member : members_)
    if (standing) {
      member.tokens.clear();
      member.used_up = member.len > 1 || (member.len == 1 && member.partial);
    }
  if (!standing)
    before_ = items;
}

// The step's changes are pending again, its rows keep their lengths, and its number is used up.
void Simulation::Abandoned(uint64_t number) {
  if (step_.state != CGR_STEP_ABANDONED || step_.mark.seq != rt_->lane.launched)
    Fail("a failed launch left its step otherwise than abandoned, or its number unused");
  if (step_.mark.seq != number || model_->seq >= number)
    model_->plans.erase(number);
  counts_.failed_ran += model_->seq >= step_.mark.seq;
}

void Simulation::Flush() {
  const uint64_t before = rt_->lane.launched;
  staged_.clear();
  const Plan plan = MakePlan({});
  counts_.flushes++;
  if (OneIn(3))
    Collect(rt_->lane.launched);
  for (;;) {
    uint64_t number = 0;
    const cgr_status status = cgr_test::Flush(rt_, streams_[OneIn(5)], &number);
    DropExpired();
    if (status == CGR_OK) {
      if (number > before && number > model_->seq + (model_->begun ? 1 : 0))
        model_->plans[number] = plan;
      return;
    }
    if (status != CGR_ERROR_BUSY) {
      Ok(status, "flush");
      return;
    }
    if (!RunToNextResult()) {
      Fail("BUSY, and nothing is pending");
      return;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------ results

void Simulation::CollectOne() {
  const uint64_t number = collected_ + 1;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  const cgr_status status = cgr_step_wait(rt_, cgr_mark{ 0, 0, number }, -1, &result);
  collected_ = number;
  counts_.results++;
  if (status != CGR_OK && status != CGR_ERROR_STEP) {
    Ok(status, "wait");
    return;
  }
  const auto outcome = model_->outcomes.find(number);
  if (outcome == model_->outcomes.end())
    return Fail("a result came of a step that has not run");
  const Outcome expected = std::move(outcome->second);
  const Launched launched = launched_[number];
  model_->outcomes.erase(outcome);
  launched_.erase(number);
  bool good = result.mark.seq == number && result.guard.error == expected.error;
  const size_t count = launched.known ? expected.counts.size() : 0; // an abandoned step may have run, which does not count
  if (expected.known || !launched.known)
    good = good && result.num_requests == int32_t(count);
  for (size_t i = 0; good && expected.known && i < count; i++) {
    good = result.num_tokens[i] == expected.counts[i] && (expected.counts[i] == 0 || result.tokens[i] == expected.tokens[i]);
    good = good && result.rows[i] == launched.rows[i] && result.tags[i] == launched.tags[i];
  }
  if (!good)
    Fail("the result of step " + std::to_string(number) + " differs");
}

// A flush takes as many numbers as it needs, and overwrites the results in their places.
void Simulation::DropExpired() {
  while (rt_->lane.launched - collected_ > uint64_t(options_.depth)) {
    collected_++;
    model_->outcomes.erase(collected_);
    launched_.erase(collected_);
    counts_.expired++;
  }
}

void Simulation::Collect(uint64_t up_to) {
  while (collected_ < up_to && failure().empty())
    CollectOne();
}

void Simulation::SomeResults() {
  if (OneIn(3))
    Collect(model_->seq);
  else if (OneIn(12) && collected_ < rt_->lane.launched)
    Collect(collected_ + uint64_t(Pick(1, int32_t(rt_->lane.launched - collected_))));
}

// ------------------------------------------------------------------------------------------------------------------ the host

void Simulation::Step() {
  Moment();
  SomeResults();
  for (int32_t n = OneIn(3) ? Pick(1, 4) : 0; n > 0; n--)
    Edit();
  if (rows_.size() < 2)
    return Open();
  if (OneIn(60))
    Flush();
  bool standing = false;
  std::vector<Item> items;
  const int32_t kind = Pick(0, 9);
  if (kind < 4) {
    MakeStandingReady();
    items = members_;
    standing = true;
  } else if (kind < 7 && !before_.empty()) {
    items = SameAgain();
  } else if (kind < 9) {
    items = WholeBatch();
  }
  if (!failure().empty() || !Prepare(items, standing))
    return;
  Moment();
  if (OneIn(6)) // a row, of the step or not, gets more pages meanwhile
    Reserve(AnyRow(), Pick(16, kSeqLen));
  if (OneIn(7))
    return Cancel();
  if (options_.pace == Pace::kLatest || !OneIn(20) || !LaunchInFetch(standing))
    Launch(standing);
  if (failure().empty() && OneIn(25))
    Spoil();
}

void Simulation::Run(uint64_t steps) {
  const uint64_t until = rt_->lane.launched + steps;
  while (rt_->lane.launched < until && failure().empty())
    Step();
  Collect(rt_->lane.launched);
  if (failure().empty() && dev_->NumPending() != 0)
    dev_->RunAll();
  if (failure().empty() && (model_->seq != rt_->lane.launched || collected_ != model_->seq))
    Fail("the counters of host and device have parted");
}

const Counts &Simulation::counts() {
  counts_.hits = model_->hits;
  counts_.append_first = model_->append_first;
  counts_.misses = model_->misses;
  counts_.from_inbox = model_->from_inbox;
  counts_.refused = model_->refused;
  counts_.empty = model_->empty;
  counts_.abandoned = model_->abandoned;
  counts_.steps = model_->seq;
  return counts_;
}

} // namespace sim
} // namespace cgr_test

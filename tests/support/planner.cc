#include "tests/support/planner.h"

#include <cstring>

#include "tests/support/split.h"

namespace cgr_test {

// ------------------------------------------------------------------------------------------------------------------- planner

cgr_backend Planner::Backend() {
  cgr_backend b = CGR_BACKEND_INIT;
  b.name = o.name;
  b.context = this;
  b.reorder_threshold = o.reorder_threshold;
  b.flags = o.flags;
  b.support = Support;
  b.record = Record;
  b.workspace_bytes = o.workspace_bytes;
  b.plan_bytes = o.plan_bytes;
  b.create = o.states ? Create : nullptr;
  b.destroy = o.states ? Destroy : nullptr;
  b.plan_host = o.on_host ? PlanHost : nullptr;
  b.plan = o.on_device ? PlanDevice : nullptr;
  return b;
}

void Planner::Attach(Engine *engine) {
  dev_ = engine->dev;
  pinned_ = static_cast<unsigned char *>(engine->Alloc(kCopied + 2 * o.plan_bytes + 1, true));
}

size_t Planner::Alive() const { return AliveOf(true) + AliveOf(false); }

size_t Planner::AliveOf(bool eager) const {
  size_t count = 0;
  for (const auto &state : states)
    count += state->destroyed == 0 && (state->key.kind == CGR_KIND_NONE) == eager;
  return count;
}

std::vector<Planner::Seen> Planner::TakeSeen() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Seen> seen;
  seen.swap(seen_);
  return seen;
}

cgr_graph_support Planner::Support(void *context, const cgr_device_info *, const cgr_group *) {
  return static_cast<Planner *>(context)->o.support;
}

cgr_status Planner::Create(void *context, const cgr_plan_key *key, void **state) {
  Planner &self = *static_cast<Planner *>(context);
  EXPECT_EQ(key->size, sizeof *key);
  EXPECT_EQ(*state, nullptr);
  self.asked++;
  if (self.on_create) {
    cgr_status status = self.on_create(*key);
    if (status != CGR_OK)
      return status;
  }
  self.states.push_back(std::make_unique<State>());
  self.states.back()->key = *key;
  *state = self.states.back().get();
  return CGR_OK;
}

void Planner::Destroy(void *context, void *state) {
  Planner &self = *static_cast<Planner *>(context);
  ASSERT_NE(state, nullptr);
  State &s = *static_cast<State *>(state);
  if (self.on_destroy)
    self.on_destroy(s);
  EXPECT_EQ(s.destroyed++, 0) << "destroyed once more";
}

// The plan is different each time, in every byte.
cgr_status Planner::PlanHost(void *context, void *state, const cgr_plan_step *step) {
  Planner &self = *static_cast<Planner *>(context);
  self.asked++;
  if (self.on_plan_host) {
    cgr_status status = self.on_plan_host(*step);
    if (status != CGR_OK)
      return status;
  }
  const size_t n = size_t(step->padded_requests);
  Host host = { static_cast<State *>(state), *step, {}, {}, {}, {} };
  host.rows.assign(step->rows, step->rows + n);
  host.starts.assign(step->query_start_loc, step->query_start_loc + n + 1);
  host.lens.assign(step->seq_lens, step->seq_lens + n);
  EXPECT_EQ(step->size, sizeof *step);
  EXPECT_EQ(step->plan_bytes, self.o.plan_bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(step->plan) % 64, 0u);
  unsigned char *plan = static_cast<unsigned char *>(step->plan);
  uint32_t word = ++self.written_ * 2654435761u;
  for (size_t i = 0; i < step->plan_bytes; i++) {
    word = word * 1664525u + 1013904223u;
    plan[i] = (unsigned char)(word >> 24);
  }
  host.plan.assign(plan, plan + step->plan_bytes);
  self.host.push_back(std::move(host));
  return CGR_OK;
}

Planner::Call Planner::CallOf(cgr_recorder *recorder, uint32_t flags) {
  Call call = { nullptr, CGR_PLAN_KEY_INIT, flags, InfoOf(recorder) };
  void *state = call.info.plan_state;
  call.key = *call.info.plan_key;
  call.state = static_cast<const State *>(state);
  if (o.states) {
    EXPECT_NE(state, nullptr);
    EXPECT_EQ(call.state->destroyed, 0);
    EXPECT_EQ(std::memcmp(&call.key, &call.state->key, sizeof call.key), 0) << "the key that its state was made for";
  }
  return call;
}

cgr_status Planner::PlanDevice(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  Planner &self = *static_cast<Planner *>(context);
  self.asked++;
  EXPECT_EQ(draft, 0);
  Call call = self.CallOf(recorder, flags);
  EXPECT_EQ(call.state, state);
  self.plans.push_back(call);
  if (self.on_plan) {
    cgr_status status = self.on_plan(recorder);
    if (status != CGR_OK)
      return status;
  }
  cgr_buffer_view lens = CGR_BUFFER_VIEW_INIT;
  cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_SEQ_LENS, 0, &lens);
  unsigned char *workspace = static_cast<unsigned char *>(call.key.workspace);
  if (status == CGR_OK && self.o.workspace_bytes > 0)
    status = cgr_copy(self.dev_, workspace, lens.data, size_t(call.info.num_requests) * 4, call.info.stream);
  if (status == CGR_OK && self.o.workspace_bytes >= kCopied + self.o.plan_bytes && self.o.plan_bytes > 0)
    status = cgr_copy(self.dev_, workspace + kCopied, call.key.plan, self.o.plan_bytes, call.info.stream);
  return status;
}

struct KeepArgs {
  Planner *self;
  size_t num_lens;
};

void Planner::Keep(const void *raw) {
  const KeepArgs &a = *static_cast<const KeepArgs *>(raw);
  Planner &self = *a.self;
  const unsigned char *plan = self.pinned_ + kCopied, *copied = plan + self.o.plan_bytes;
  Seen seen;
  seen.plan.assign(plan, plan + self.o.plan_bytes);
  if (self.o.on_device) {
    seen.copied.assign(copied, copied + self.o.plan_bytes);
    seen.lens.resize(a.num_lens);
    std::memcpy(seen.lens.data(), self.pinned_, a.num_lens * 4);
  }
  std::lock_guard<std::mutex> lock(self.mutex_);
  self.seen_.push_back(std::move(seen));
}

cgr_status Planner::Watch(const Call &call) {
  const unsigned char *workspace = static_cast<const unsigned char *>(call.key.workspace);
  const KeepArgs keep = { this, size_t(call.info.num_requests) };
  cudaStream_t stream = call.info.stream;
  cgr_status status = CGR_OK;
  if (o.plan_bytes > 0)
    status = cgr_copy(dev_, pinned_ + kCopied, call.key.plan, o.plan_bytes, stream);
  if (status == CGR_OK && o.on_device)
    status = cgr_copy(dev_, pinned_, workspace, keep.num_lens * 4, stream);
  if (status == CGR_OK && o.on_device && o.plan_bytes > 0)
    status = cgr_copy(dev_, pinned_ + kCopied + o.plan_bytes, workspace + kCopied, o.plan_bytes, stream);
  return status == CGR_OK ? cgr_launch_host(dev_, Keep, &keep, sizeof keep, stream) : status;
}

cgr_status Planner::Record(void *context, cgr_recorder *recorder, const cgr_attention *a) {
  Planner &self = *static_cast<Planner *>(context);
  const Call call = self.CallOf(recorder, 0);
  self.records.push_back(call);
  if (self.on_record) {
    cgr_status status = self.on_record(recorder);
    if (status != CGR_OK)
      return status;
  }
  const size_t bytes = size_t(call.info.num_tokens) * size_t(a->q.stride_token) * cgr_dtype_size(cgr_dtype(a->q.dtype));
  cgr_status status = cgr_copy(call.key.device, a->out.data, a->q.data, bytes, call.info.stream);
  if (status == CGR_OK && self.o.watches)
    status = self.Watch(call);
  if (status == CGR_OK && self.o.dirties)
    status = cgr_fill(call.key.device, call.key.workspace, 0x77, self.o.workspace_bytes, call.info.stream);
  return status;
}

// -------------------------------------------------------------------------------------------------------------------- engine

EngineOptions PlanningOptions(const DeviceParam &device, cgr_graph_mode mode) {
  EngineOptions options = OptionsFor(device);
  options.feed = Feed::kUploads;
  options.mode = mode;
  options.mixed = { { 8, 4 }, { 24, 8 }, { 64, 8 } };
  return options;
}

Planning::Planning(const EngineOptions &options, const std::vector<PlannerOptions> &list) {
  for (const PlannerOptions &o : list) {
    planners.push_back(std::make_unique<Planner>(o));
    backends_.push_back(planners.back()->Backend());
  }
  EngineOptions with = options;
  with.adjust = [this, options](cgr_config *config) {
    layers_.assign(config->layers, config->layers + config->num_layers);
    for (size_t i = 0; i < planners.size(); i++)
      if (planners[i]->o.layer >= 0)
        layers_[size_t(planners[i]->o.layer)].backend = int32_t(i) + 1;
    config->layers = layers_.data();
    config->backends = backends_.data();
    config->num_backends = int32_t(backends_.size());
    if (options.adjust)
      options.adjust(config);
  };
  engine = std::make_unique<Engine>(with);
  for (auto &planner : planners) {
    planner->Attach(engine.get());
    if (planner->o.layer >= 0)
      engine->check_call[size_t(planner->o.layer)] = false;
  }
  expected_.resize(planners.size());
}

// Whatever a test did, each state has been destroyed once.
Planning::~Planning() {
  engine.reset();
  for (auto &planner : planners)
    for (auto &state : planner->states)
      EXPECT_EQ(state->destroyed, 1) << planner->o.name << ", kind " << state->key.kind << ", " << state->key.num_requests
                                     << " requests";
}

void Planning::ExpectHost(const Planner &planner, const std::vector<Item> &items, const std::vector<int32_t> &lens) {
  ASSERT_EQ(planner.host.size(), 1u) << "once for each step";
  const Planner::Host &got = planner.host[0];
  const cgr_key &key = engine->step.key;
  std::vector<int32_t> rows(size_t(key.num_requests), engine->o.max_rows), starts = { 0 };
  int32_t longest = 1, tokens = 0, threshold = 0;
  bool uniform = false;
  for (const auto &each : planners)
    if (each->o.layer >= 0 && each->o.reorder_threshold > 0) {
      threshold = threshold == 0 ? each->o.reorder_threshold : std::min(threshold, each->o.reorder_threshold);
      uniform |= (each->o.flags & CGR_BACKEND_UNIFORM_SPLIT) != 0;
    }
  std::vector<int32_t> query_lens;
  for (size_t i = 0; i < items.size(); i++) {
    const int32_t length = int32_t(items[i].tokens.size());
    rows[i] = items[i].row;
    starts.push_back(tokens += length);
    longest = std::max(longest, length);
    query_lens.push_back(length);
  }
  const Split split = SplitOf(query_lens, threshold, uniform);
  starts.resize(size_t(key.num_requests) + 1, tokens);
  EXPECT_EQ(got.step.flags, items.empty() ? uint32_t(CGR_PLAN_FAST) : engine->plan_flags);
  EXPECT_EQ(got.step.draft, 0);
  EXPECT_EQ(got.step.num_requests, int32_t(items.size()));
  EXPECT_EQ(got.step.num_tokens, tokens);
  EXPECT_EQ(got.step.padded_requests, key.num_requests);
  EXPECT_EQ(got.step.padded_tokens, key.num_tokens);
  EXPECT_EQ(got.step.max_query_len, longest);
  EXPECT_EQ(got.step.max_seq_len, std::max(1, *std::max_element(lens.begin(), lens.end())));
  EXPECT_EQ(got.step.num_decodes, threshold > 0 ? split.decodes : -1);
  EXPECT_EQ(got.step.num_decode_tokens, threshold > 0 ? split.tokens : -1);
  const auto longest_of = [&](const std::vector<int32_t> &of, int32_t begin, int32_t end) {
    return threshold == 0 ? -1 : begin == end ? 0 : *std::max_element(of.begin() + begin, of.begin() + end);
  };
  EXPECT_EQ(got.step.max_decode_query_len, longest_of(query_lens, 0, split.decodes));
  EXPECT_EQ(got.step.max_prefill_query_len, longest_of(query_lens, split.decodes, int32_t(items.size())));
  EXPECT_EQ(got.step.max_decode_seq_len, longest_of(lens, 0, split.decodes));
  EXPECT_EQ(got.step.max_prefill_seq_len, longest_of(lens, split.decodes, int32_t(items.size())));
  EXPECT_EQ(got.rows, rows);
  EXPECT_EQ(got.starts, starts);
  EXPECT_EQ(got.lens, lens);
  if (planner.o.states) {
    EXPECT_EQ(got.state->key.kind, key.kind);
    EXPECT_EQ(got.state->destroyed, 0);
    if (key.kind != CGR_KIND_NONE) {
      EXPECT_EQ(got.state->key.num_requests, key.num_requests);
      EXPECT_EQ(got.state->key.num_tokens, key.num_tokens);
      EXPECT_EQ(got.state->key.query_len, key.query_len);
    }
  }
}

void Planning::Prepare(const std::vector<Item> &items, const cgr_key *forced, bool standing) {
  for (auto &planner : planners)
    planner->host.clear();
  CGR_ASSERT_OK(standing ? engine->PrepareStanding(items, forced) : engine->Prepare(items, forced));
  lens_.assign(size_t(engine->step.key.num_requests), 0);
  for (size_t i = 0; i < items.size(); i++)
    lens_[i] = engine->requests.at(items[i].row)->num_tokens + int32_t(items[i].tokens.size());
  for (auto &planner : planners)
    if (planner->o.on_host && planner->o.layer >= 0 && !::testing::Test::HasFatalFailure())
      ExpectHost(*planner, items, lens_);
}

void Planning::Launch() {
  CGR_ASSERT_OK(engine->Launch());
  for (size_t i = 0; i < planners.size(); i++) {
    const Planner &planner = *planners[i];
    if (!planner.o.watches)
      continue;
    Planner::Seen seen;
    seen.plan = planner.o.on_host ? planner.host[0].plan : Planner::Bytes(planner.o.plan_bytes, 0);
    if (planner.o.on_device) {
      seen.copied = seen.plan;
      seen.lens = lens_;
    }
    expected_[i].push_back(std::move(seen));
  }
}

void Planning::Run(const std::vector<Item> &items, const cgr_key *forced, bool standing) {
  ASSERT_NO_FATAL_FAILURE(Prepare(items, forced, standing));
  Launch();
}

void Planning::CheckSeen() {
  engine->CheckAll();
  for (size_t i = 0; i < planners.size(); i++) {
    const std::vector<Planner::Seen> got = planners[i]->TakeSeen();
    EXPECT_EQ(got.size(), expected_[i].size()) << planners[i]->o.name;
    for (size_t n = 0; n < std::min(got.size(), expected_[i].size()); n++) {
      EXPECT_EQ(got[n].plan, expected_[i][n].plan) << planners[i]->o.name << ", step " << n;
      EXPECT_EQ(got[n].copied, expected_[i][n].copied) << planners[i]->o.name << ", step " << n << ": the plan on the device";
      EXPECT_EQ(got[n].lens, expected_[i][n].lens) << planners[i]->o.name << ", step " << n;
    }
    expected_[i].clear();
  }
}

} // namespace cgr_test

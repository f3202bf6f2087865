// A backend that plans; it keeps its questions and what its steps found on the device.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/engine.h"
#include "tests/support/modes.h"

namespace cgr_test {

struct PlannerOptions {
  const char *name = "planner";
  int32_t layer = 1; // the layer that names it; -1: none does
  bool states = true;
  bool on_host = false, on_device = false;
  uint64_t plan_bytes = 0, workspace_bytes = 0;
  bool watches = false; // each of its steps keeps what is in its plan, and what the device plan made
  bool dirties = false; // its `record` fills the workspace
  int32_t reorder_threshold = 0;
  uint32_t flags = 0; // CGR_BACKEND_*
  cgr_graph_support support = CGR_SUPPORT_ALWAYS;
};

// Copies q to out, so that its layer's output is known without any attention. Its plan on the device copies the lengths of the
// batch and the host's plan to the workspace: it must find both, and `record` must find the copies.
class Planner {
public:
  using Bytes = std::vector<unsigned char>;
  struct State {
    cgr_plan_key key;
    int32_t destroyed = 0;
  };
  // A call of plan_host.
  struct Host {
    const State *state;
    cgr_plan_step step; // its pointers are those of the call
    std::vector<int32_t> rows, starts, lens;
    Bytes plan;
  };
  // A call of plan or record.
  struct Call {
    const State *state;
    cgr_plan_key key;
    uint32_t flags;
    cgr_record_info info;
  };
  // What a step found.
  struct Seen {
    Bytes plan, copied;
    std::vector<int32_t> lens;
    bool operator==(const Seen &other) const { return plan == other.plan && copied == other.copied && lens == other.lens; }
  };

  explicit Planner(const PlannerOptions &options) : o(options) {}
  Planner(const Planner &) = delete;
  Planner &operator=(const Planner &) = delete;

  cgr_backend Backend();
  // Pinned memory, before the first capture.
  void Attach(Engine *engine);
  size_t Alive() const;
  // Those of graphs, and of eager steps.
  size_t AliveOf(bool eager) const;
  std::vector<Seen> TakeSeen();

  const PlannerOptions o;
  std::vector<std::unique_ptr<State>> states; // ever made
  std::vector<Host> host;
  std::vector<Call> plans, records;
  int asked = 0; // calls of create, plan_host and plan
  // Each may fail the call.
  std::function<cgr_status(const cgr_plan_key &)> on_create;
  std::function<cgr_status(const cgr_plan_step &)> on_plan_host;
  std::function<cgr_status(cgr_recorder *)> on_plan, on_record;
  // Called before a state is destroyed.
  std::function<void(const State &)> on_destroy;

private:
  enum { kCopied = 1024 }; // place of the plan's copy in the workspace, behind the lengths
  static cgr_graph_support Support(void *context, const cgr_device_info *, const cgr_group *);
  static cgr_status Create(void *context, const cgr_plan_key *key, void **state);
  static void Destroy(void *context, void *state);
  static cgr_status PlanHost(void *context, void *state, const cgr_plan_step *step);
  static cgr_status PlanDevice(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft);
  static cgr_status Record(void *context, cgr_recorder *recorder, const cgr_attention *attention);
  static void Keep(const void *args);
  cgr_status Watch(const Call &call);
  // The key and the state that the recorder reports.
  Call CallOf(cgr_recorder *recorder, uint32_t flags);

  cgr_device *dev_ = nullptr;
  unsigned char *pinned_ = nullptr;
  uint32_t written_ = 0;
  std::mutex mutex_;
  std::vector<Seen> seen_;
};

// An engine whose layers use planners, and a model of what the planners are asked.
class Planning {
public:
  Planning(const EngineOptions &options, const std::vector<PlannerOptions> &planners);
  ~Planning();

  // Prepares; every planner on the host must have been asked once, for this very step.
  void Prepare(const std::vector<Item> &items, const cgr_key *forced = nullptr, bool standing = false);
  void Launch();
  void Run(const std::vector<Item> &items, const cgr_key *forced = nullptr, bool standing = false);
  // Every launched step must have found its own plans.
  void CheckSeen();
  Planner &operator[](size_t i) { return *planners[i]; }

  std::vector<std::unique_ptr<Planner>> planners;
  std::unique_ptr<Engine> engine;

private:
  void ExpectHost(const Planner &planner, const std::vector<Item> &items, const std::vector<int32_t> &lens);
  std::vector<cgr_backend> backends_;
  std::vector<cgr_layer> layers_;
  std::vector<std::vector<Planner::Seen>> expected_;
  std::vector<int32_t> lens_; // of the prepared step
};

// Few layers and small buckets; q, k and v are uploaded, because nothing attends to anything in a planner's layer.
EngineOptions PlanningOptions(const DeviceParam &device, cgr_graph_mode mode);

// Host and device plans, and a workspace; watched.
inline PlannerOptions OnBoth(const char *name = "planner", int32_t layer = 1) {
  PlannerOptions o;
  o.name = name;
  o.layer = layer;
  o.on_host = o.on_device = o.watches = true;
  o.plan_bytes = 1003;
  o.workspace_bytes = 4096;
  return o;
}

// Over devices and modes.
class PlanningTest : public ::testing::TestWithParam<DeviceAndMode> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
  // An engine with its graphs. `handle`: an open device instead of the engine's own.
  void Make(const std::vector<PlannerOptions> &planners, std::function<void(cgr_config *)> adjust = nullptr,
            cgr_device *handle = nullptr) {
    EngineOptions options = PlanningOptions(GetParam().device, GetParam().mode);
    options.adjust = std::move(adjust);
    options.handle = handle;
    p_.reset();
    p_ = std::make_unique<Planning>(options, planners);
    CGR_ASSERT_OK(p_->engine->Capture());
  }
  Engine &engine() { return *p_->engine; }
  std::unique_ptr<Planning> p_;
};

} // namespace cgr_test

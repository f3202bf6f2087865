// A simulation of the protocol of steps (buffers/PROTOCOL.md): a small engine on the public interface over a device that runs its
// kernels one by one, late, early or at random, while the host edits, prepares, cancels, launches, fails and spoils.
#pragma once

#include <memory>

#include "tests/support/simulation_model.h"

namespace cgr_test {
namespace sim {

// When the device runs what is pending.
enum class Pace { kLatest, kRandom, kFetchEarly, kFetchLate };
const char *PaceName(Pace pace);

struct Options {
  uint64_t seed = 1;
  int32_t depth = 4, mode = CGR_MODE_FULL, max_changes = 16;
  Pace pace = Pace::kRandom;
};

struct Counts {
  uint64_t full_decode = 0, full_mixed = 0, piecewise = 0, eager = 0, dummy = 0, standing = 0, whole = 0, forced = 0, flushes = 0;
  uint64_t change_steps = 0, busy = 0, cancels = 0, failed = 0, failed_ran = 0, callbacks = 0, spoiled = 0;
  uint64_t hits = 0, misses = 0, from_inbox = 0, refused = 0, empty = 0, abandoned = 0, steps = 0, results = 0, expired = 0;
  uint64_t in_prepare = 0, in_fetch = 0, torn_commits = 0, append_first = 0, above = 0;
  void Add(const Counts &other);
};

class Simulation {
public:
  explicit Simulation(const Options &options);
  ~Simulation();
  Simulation(const Simulation &) = delete;
  Simulation &operator=(const Simulation &) = delete;
  // Runs until this many numbers have been used, or something is wrong; then collects everything.
  void Run(uint64_t steps);
  const std::string &failure() const { return model_->failure; }
  const Counts &counts();

private:
  struct Row : RowView {
    uint64_t tag = 0;
  };
  struct Launched { // whose result it is
    std::vector<int32_t> rows;
    std::vector<uint64_t> tags;
    bool known = false;
  };

  // simulation.cc: the engine and its steps
  void MakeRuntime();
  static cgr_status Record(cgr_recorder *recorder, void *engine);
  static cgr_status Call(cgr_recorder *recorder, const void *args);
  void Moment();
  void InterruptedFetch();
  bool LaunchInFetch(bool standing);
  void Step();
  bool Prepare(const std::vector<Item> &items, bool standing);
  cgr_status PrepareBatch(const std::vector<Item> &items, bool standing, const cgr_key *forced);
  bool ChooseForced(const std::vector<Item> &items, cgr_key *key);
  void Cancel();
  void Launch(bool standing);
  void Commit(const std::vector<Item> &items, bool standing);
  void Abandoned(uint64_t number);
  void CountKind();
  void Flush();
  bool RunToNextResult();
  void Collect(uint64_t up_to);
  void CollectOne();
  void DropExpired();
  void SomeResults();
  void PlanFault();
  bool Ok(cgr_status status, const char *what);
  void Fail(const std::string &what);
  Plan MakePlan(const std::vector<Item> &items) const;

  // simulation_edits.cc: rows, batches, spoiled ring slots
  void Edit();
  void Open();
  void Close(int32_t row);
  void Reserve(int32_t row, int32_t tokens);
  void ReplacePage(int32_t row);
  void SetLength(int32_t row, int32_t length);
  void EditStanding(int32_t row);
  void SetMember(size_t i);
  void TakeMember(size_t i);
  cgr_status StandingLimits() const;
  void KeepToLimits();
  void MakeStandingReady();
  bool HasToken(int32_t row) const;
  int32_t FreshPage(int32_t row, int g);
  std::vector<int32_t> Tokens(int32_t row, int32_t len);
  std::vector<Item> WholeBatch();
  std::vector<Item> SameAgain();
  int32_t AnyRow();
  size_t FindMember(int32_t row) const;
  void Spoil();
  void SpoilSlot(uint64_t number, Shadow *shadow);
  int32_t Pick(int32_t low, int32_t high) { return random_.Pick32(low, high); }
  bool OneIn(int32_t n) { return random_.OneIn(n); }

  const Options options_;
  Random random_;
  SimDevice *dev_ = nullptr;
  cudaStream_t streams_[2] = {};
  void *memory_[2 * 2 + 4] = {}; // K and V of two layers; q, k, v, out
  cgr_runtime *rt_ = nullptr;
  std::unique_ptr<Model> model_;
  Counts counts_;
  std::map<int32_t, Row> rows_;
  std::vector<Item> members_; // of the standing batch
  std::vector<Item> before_;  // the last whole batch
  std::vector<int32_t> staged_;
  std::map<uint64_t, Launched> launched_;
  cgr_step step_ = CGR_STEP_INIT;
  uint64_t collected_ = 0, tags_ = 0;
  bool callback_fails_ = false;
  bool nested_ = false; // the device is in the middle of a kernel: it runs no other, and nothing fails
};

} // namespace sim
} // namespace cgr_test

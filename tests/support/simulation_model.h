// What the steps of a simulation must do, given what the host has prepared: a plain model of rows and tables next to the device,
// compared with the device's buffers before and after each step ends.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "tests/support/sim_device.h"

namespace cgr_test {
namespace sim {

enum { kRequests = 6, kRows = 9, kTokens = 24, kSeqLen = 96, kGroups = 2, kPages = 40, kWords = 2, kPadding = 77 };
const int32_t kPageSize[kGroups] = { 16, 32 };

// A request's part of a batch. `tokens` empty: the last one, or none if len is 0.
struct Item {
  int32_t row, len;
  bool partial;
  std::vector<int32_t> tokens;
  bool used_up = false; // of a member: it has run, and does not go on by itself
};

// A row as the host has it.
struct RowView {
  int32_t length = 0;
  std::vector<int32_t> pages[kGroups];
  std::array<int32_t, kWords> data{ { kPadding, kPadding } };
};

// What the host has prepared under a number: the requests, and the rows as they were before the step.
struct Plan {
  std::vector<Item> items;
  std::vector<int32_t> staged; // of the declared buffer of tokens; empty: none was given
  std::map<int32_t, RowView> rows;
  uint64_t generation = 0; // that the host has seen
};

// How a ring slot was spoiled after its commit.
enum class Spoiled { kNot, kNumber, kRefused, kChanges };

// A ring slot as it was committed.
struct Shadow {
  std::vector<unsigned char> bytes;
  Spoiled spoiled = Spoiled::kNot;
  int32_t error = 0; // that the step reports
  bool fetched = false;
  Spoiled fetched_spoiled = Spoiled::kNot; // when it was fetched
};

// What the result of a step must be.
struct Outcome {
  int32_t error = 0;
  bool known = true; // false: the step ran with what was left of its ring slot
  std::vector<int32_t> counts, tokens;
};

int32_t NextToken(int32_t token, int32_t position);

class Model {
public:
  explicit Model(cgr_runtime *runtime);
  void Enqueued(const SimWork &work);
  void Before(const SimWork &work);
  void After(const SimWork &work);
  // In the middle of a fetch: an inbox that bears the next number is whole.
  void CheckInbox(const SimWork &fetch);

  std::map<uint64_t, Plan> plans;
  std::map<uint64_t, Shadow> shadows; // of numbers that have not completed
  std::map<uint64_t, Outcome> outcomes;
  bool racing = false; // the commit of the next step falls into the fetch that runs: it may see it or not
  uint64_t seq = 0;    // of the last step that has completed
  bool begun = false;  // the prologue of the next has run
  uint64_t hits = 0, misses = 0, from_inbox = 0, refused = 0, empty = 0, abandoned = 0, append_first = 0;
  std::string failure; // the first difference; "": none

private:
  void Fail(const std::string &what);
  bool Check(bool good, const char *what) {
    if (!good)
      Fail(what);
    return good;
  }
  void CheckState(const cgr__step_args &args);
  void BeforePrologue(const cgr__step_args &args);
  void AfterPrologue(const cgr__step_args &args);
  void BeforeFetch(const cgr__step_args &args);
  void AfterFetch(const cgr__step_args &args);
  void BeforeEpilogue(const cgr__step_args &args);
  void AfterEpilogue(const cgr__step_args &args);
  bool Fits(const cgr__ring_slot_header &header) const;
  bool SameContent(const unsigned char *content, const Shadow &shadow) const;
  void Judge(const cgr__step_args &args);
  void Apply(const unsigned char *slot);
  void Adopt();
  void CheckTables();
  void CheckRecord();
  void CheckPlan();
  void CheckAppendFirst();
  void CheckRequests(const cgr__step_args &args);
  void CheckTokens(const cgr__step_args &args);
  void CheckPadding(const cgr__step_args &args, int32_t num_requests, int32_t num_tokens);
  void CheckStaged(const cgr__step_args &args, int32_t num_tokens);
  const unsigned char *SlotOf(uint64_t number) const;

  cgr_runtime *const rt_;
  const cgr__buffers &b_;
  const int32_t *staged_data_, *row_data_;
  int64_t row_stride_;
  // The device's tables.
  int32_t computed_[kRows + 1] = {}, last_[kRows + 1] = {};
  std::vector<int32_t> table_[kGroups];
  std::vector<int32_t> data_;
  uint64_t generation_ = 0, errors_ = 0, batch_ = 0;
  // The step that runs.
  bool accepted_ = false, loose_ = false, predicted_ = false;
  int32_t error_ = 0, lost_ = 0;
  Plan plan_;
  Outcome outcome_;
};

} // namespace sim
} // namespace cgr_test

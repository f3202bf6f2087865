// Faults of ranks in processes: whatever one does, the others name it within their timeout, none hangs, and all can be
// destroyed.
#include <sys/wait.h>

#include <chrono>

#include "tests/ranks/rank_engine.h"

namespace cgr_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const int kTimes = 4;
#else
const int kTimes = 100;
#endif
enum { kRanks = 3, kBad = 1, kSteps = 6, kTimeoutMs = 20000 };

// What a process leaves for its parent, which is the exit status of the good ones.
enum Outcome { kDone = 10, kNamed = 11, kOther = 12 };

// One rank that steps until it is told something.
class Rank {
public:
  Rank(const std::string &name, int rank) : e(name, rank, kRanks, CGR_RANKS_LARGEST, kTimeoutMs) {
    if (e.status != CGR_OK || e.Capture() != CGR_OK)
      _exit(20);
    e.Open();
  }
  cgr_status Agree() { return e.Agree(Work()); }
  void Run() { e.Run(Work(), e.agreed.key); }
  cgr_status Step() {
    const cgr_status status = Agree();
    if (status == CGR_OK)
      Run();
    return status;
  }
  RankEngine::Work Work() const { return { { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } }; }

  RankEngine e;
};

struct Fault {
  const char *name;
  // Of the bad rank, before step `at`, or as long as it lives. False: it ends.
  std::function<bool(Rank *)> does;
  std::string says; // what the others are told; "": nothing, they go on
};

const Fault kFaults[] = {
  { "SkipsAStep", [](Rank *r) { return r->Agree() == CGR_OK; }, "rank 1 has launched " },
  { "LaunchesAnotherKey",
    [](Rank *r) {
      cgr_key key = CGR_KEY_INIT;
      key.num_requests = 2, key.num_tokens = 3;
      if (r->Agree() == CGR_OK)
        r->e.Run(r->Work(), key);
      return true;
    },
    "rank 1 has launched other keys than rank 0 in " },
  { "Stalls", [](Rank *) { return usleep(100000) == 0; }, "" },
  { "LeavesInOrder", [](Rank *) { return false; }, "rank 1 (process " },
  { "FailsItsCapture",
    [](Rank *r) {
      cgr_capture bad = CGR_CAPTURE_INIT;
      bad.record = [](cgr_recorder *, void *) { return CGR_ERROR_UNSUPPORTED; };
      (void)cgr_ranks_capture(r->e.ranks, &bad);
      return false;
    },
    "the capture of rank 1 has failed: CGR_ERROR_CALLBACK" },
};

// A good rank's end: whether it was told what it should be.
int Judge(cgr_status status, const std::string &says) {
  if (status == CGR_OK)
    return says.empty() ? kDone : kOther;
  const bool named = status == CGR_ERROR_RANK && !says.empty() && std::string(cgr_last_message()).find(says) != std::string::npos;
  if (!named)
    std::fprintf(stderr, "%s: expected \"%s\"\n", cgr_last_message(), says.c_str());
  return named ? kNamed : kOther;
}

// The process of a rank, which meets with `fault` before step `at`.
int RunRank(const std::string &name, int rank, const Fault &fault, int at) {
  Rank r(name, rank);
  cgr_status status = CGR_OK;
  const bool captures = std::string(fault.name) == "FailsItsCapture";
  for (int s = 0; s < kSteps && status == CGR_OK; s++) {
    if (s == at && rank == kBad && !fault.does(&r))
      return kDone;
    if (s == at && rank != kBad && captures)
      status = r.e.Capture();
    else
      status = r.Step();
  }
  return rank == kBad ? int(kDone) : Judge(status, fault.says);
}

// What the ranks' processes end with, and how long they took together. The parent has no rank, and no threads.
std::vector<int> RunAll(const std::function<int(int)> &rank, double *seconds) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int r = 0; r < kRanks; r++) {
    children.push_back(fork());
    if (children.back() == 0)
      _exit(::testing::Test::HasFailure() ? 21 : rank(r));
  }
  std::vector<int> ends;
  for (const pid_t child : children) {
    int how = 0;
    waitpid(child, &how, 0);
    ends.push_back(WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how));
  }
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ends;
}

class Faults : public ::testing::TestWithParam<Fault> {};

TEST_P(Faults, OfARankAreToldByTheOthers) {
  SeededRandom random;
  for (int time = 0; time < kTimes && !HasFailure(); time++) {
    const std::string name = NewBoardName();
    const int at = random.Pick32(1, kSteps - 2);
    double seconds = 0;
    const std::vector<int> ends = RunAll([&](int rank) { return RunRank(name, rank, GetParam(), at); }, &seconds);
    const int good = GetParam().says.empty() ? kDone : kNamed;
    EXPECT_EQ(ends, (std::vector<int>{ good, kDone, good })) << "step " << at;
    EXPECT_LT(seconds, kTimeoutMs / 1000.0) << "none waits until the time is over";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Faults, ::testing::ValuesIn(kFaults),
                         [](const auto &fault) { return std::string(fault.param.name); });

// At any moment of agreements, steps, captures and meetings. Who is killed before all have met is missed by the others' timeout.
TEST(FaultsOfProcesses, DeathAtAnyMoment) {
  SeededRandom random;
  int named = 0;
  for (int time = 0; time < kTimes && !HasFailure(); time++) {
    const std::string name = NewBoardName();
    const useconds_t after = useconds_t(random.Pick(0, 4000));
    double seconds = 0;
    const auto end = [&](int rank) {
      Rank r(name, rank);
      if (rank == kBad)
        std::thread([&] {
          usleep(after);
          raise(SIGKILL);
        }).detach();
      cgr_status status = CGR_OK;
      while (status == CGR_OK) {
        status = cgr_ranks_barrier(r.e.ranks, "once more");
        status = status == CGR_OK ? r.Agree() : status;
        if (status == CGR_OK && r.e.requests[0].length < 31)
          r.Run();
        else if (status == CGR_OK)
          r.e.Run({}, r.e.agreed.key);
      }
      return Judge(status, "rank 1 (process ");
    };
    const std::vector<int> ends = RunAll(end, &seconds);
    EXPECT_EQ(ends, (std::vector<int>{ kNamed, -SIGKILL, kNamed })) << "after " << after << " us";
    EXPECT_LT(seconds, kTimeoutMs / 1000.0);
    named++;
  }
  EXPECT_EQ(named, kTimes);
}

} // namespace
} // namespace cgr_test

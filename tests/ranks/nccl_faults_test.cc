// Faults of ranks whose steps have collectives, in threads and in processes: a rank that skips a step, launches another key,
// ends, stalls, or fails its capture. The others name it in time, by the device's comparison, by the agreement or by their
// watchdogs, which abort what waits on the device. None hangs, and all can be destroyed.
#include <sys/wait.h>

#include <chrono>

#include "tests/ranks/nccl_engine.h"

namespace cgr_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const int kTimes = 10;
#else
const int kTimes = 100;
#endif
enum { kRanks = 3, kBad = 1, kSteps = 5, kAtOnce = 10, kTimeoutMs = 20000 };

enum Outcome { kDone = 10, kNamed = 11, kOther = 12 };

// One rank, with a watchdog that aborts.
class Rank {
public:
  Rank(FakeNccl *fake, const std::string &name, int rank, int watch_ms)
      : e(
            fake, name, rank, kRanks, [this](cgr_recorder *recorder, NcclEngine *) { return Record(recorder); }, CGR_MODE_FULL,
            CGR_NCCL_MARKS, kTimeoutMs),
        watch_ms_(watch_ms) {
    memory_ = e.New<unsigned char>((kRanks + 1) * CGR_FINGERPRINT_BYTES);
    y_ = e.New<int32_t>(4);
  }
  ~Rank() { CGR_EXPECT_OK(cgr_watchdog_stop(dog_)); }
  void Watch() {
    cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
    watch.timeout_ms = watch_ms_;
    watch.where = cgr_nccl_where;
    watch.where_context = e.nccl;
    watch.hangs = [](void *context, const char *report) {
      Rank *self = static_cast<Rank *>(context);
      CGR_EXPECT_OK(cgr_nccl_abort(self->e.nccl, std::string(report).substr(0, std::string(report).find('\n')).c_str()));
    };
    watch.hangs_context = this;
    CGR_EXPECT_OK(cgr_ranks_watch(e.engine->ranks, &watch, &dog_));
  }
  RankEngine::Work Work() {
    RankEngine &r = *e.engine;
    if (r.requests.empty())
      r.Open();
    return { { r.requests[0].row }, { 1 }, { r.requests[0].next }, { 0 } };
  }
  cgr_status Agree() { return e.engine->Agree(Work()); }
  cgr_status Run(const cgr_key &key) {
    const RankEngine::Work work = Work();
    cgr_batch batch = RankEngine::BatchOf(work);
    batch.forced_key = &key;
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    cgr_status status = cgr_step_prepare(e.rt(), &batch, &step);
    if (status == CGR_OK)
      status = cgr_step_launch(e.rt(), &step, e.engine->engine.stream);
    if (status == CGR_OK)
      status = cgr_step_wait(e.rt(), step.mark, kTimeoutMs, &result);
    if (status == CGR_OK)
      e.engine->requests[0].next = result.tokens[0];
    return status;
  }
  cgr_status Step() {
    const cgr_status status = Agree();
    return status == CGR_OK ? Run(e.engine->agreed.key) : status;
  }
  cgr_status Capture(bool fails) {
    fails_ = fails;
    return e.engine->Capture();
  }

  NcclEngine e;

private:
  cgr_status Record(cgr_recorder *recorder) {
    if (fails_)
      return CGR_ERROR_UNSUPPORTED;
    cgr_status status = cgr_nccl_record_comparison(recorder, e.nccl, memory_, 1, nullptr);
    void *next = RecordBuffer(recorder, CGR_BUFFER_NEXT_TOKENS, &status);
    cgr_nccl_call call = NcclEngine::Call(CGR_NCCL_ALL_REDUCE, next, y_, 1, "next", CGR_DTYPE_I32);
    call.op = CGR_NCCL_MAX;
    return status == CGR_OK ? cgr_nccl_record(recorder, e.nccl, &call, 1) : status;
  }
  int watch_ms_;
  bool fails_ = false;
  unsigned char *memory_ = nullptr;
  int32_t *y_ = nullptr;
  cgr_watchdog *dog_ = nullptr;
};

struct Fault {
  const char *name;
  int watch_ms;
  std::function<bool(Rank *, bool process)> does; // of the bad rank, in place of step `at`. False: it ends
  std::vector<std::string> says;                  // what the others are told, one of these; none: nothing, they go on
};

const Fault kFaults[] = {
  // It agrees, and then waits for the next agreement.
  { "SkipsAStep",
    1000,
    [](Rank *r, bool) {
      CGR_EXPECT_OK(r->Agree());
      (void)r->Agree();
      return false;
    },
    { "rank 1 is behind", "rank 1 has left or ended" } },
  { "LaunchesAnotherKey",
    2000,
    [](Rank *r, bool) {
      cgr_key key = CGR_KEY_INIT;
      key.num_requests = 2, key.num_tokens = 3;
      CGR_EXPECT_OK(r->Agree());
      EXPECT_EQ(r->Run(key), CGR_ERROR_STEP);
      return false;
    },
    { "rank 1 differs from this rank in the key of its step" } },
  // After it has agreed, so that the others wait for it on their devices.
  { "Ends",
    1000,
    [](Rank *r, bool process) {
      CGR_EXPECT_OK(r->Agree());
      if (process)
        raise(SIGKILL);
      return false;
    },
    { "rank 1 has left or ended" } },
  { "Stalls",
    5000,
    [](Rank *r, bool) {
      CGR_EXPECT_OK(r->Agree());
      usleep(100000);
      CGR_EXPECT_OK(r->Run(r->e.engine->agreed.key));
      return true;
    },
    {} },
  { "FailsItsCapture",
    2000,
    [](Rank *r, bool) {
      CGR_EXPECT_OK(cgr_runtime_release_graphs(r->e.rt(), 0, nullptr));
      EXPECT_EQ(r->Capture(true), CGR_ERROR_CALLBACK);
      return false;
    },
    { "the capture of rank 1 has failed: CGR_ERROR_CALLBACK" } },
};

int Judge(cgr_status status, const std::string &message, const Fault &fault) {
  if (status == CGR_OK)
    return fault.says.empty() ? kDone : kOther;
  for (const std::string &says : fault.says)
    if (message.find(says) != std::string::npos)
      return kNamed;
  std::fprintf(stderr, "%s: %s\n", fault.name, message.c_str());
  return kOther;
}

int RunRank(FakeNccl *fake, const std::string &name, int rank, const Fault &fault, int at, bool process) {
  Rank r(fake, name, rank, fault.watch_ms);
  cgr_status status = r.Capture(false);
  if (status != CGR_OK)
    return kOther;
  r.Watch();
  const bool captures = std::string(fault.name) == "FailsItsCapture";
  for (int s = 0; s < kSteps && status == CGR_OK; s++) {
    if (s == at && rank == kBad) {
      if (!fault.does(&r, process))
        return kDone;
      continue;
    }
    if (s == at && captures) {
      CGR_EXPECT_OK(cgr_runtime_release_graphs(r.e.rt(), 0, nullptr));
      status = r.Capture(false);
    } else {
      status = r.Step();
    }
  }
  const std::string message = status == CGR_OK ? "" : cgr_last_message();
  return rank == kBad ? int(kDone) : Judge(status, message, fault);
}

class NcclFaults : public ::testing::TestWithParam<std::tuple<Fault, bool>> {};

// Several worlds at once, most of which wait.
TEST_P(NcclFaults, AreNamedByTheOthers) {
  const Fault &fault = std::get<0>(GetParam());
  const bool process = std::get<1>(GetParam());
  SeededRandom random;
  for (int time = 0; time < kTimes && !HasFailure(); time += kAtOnce) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<FakeNccl>> fakes;
    std::vector<pid_t> children;
    std::vector<std::thread> threads;
    std::vector<int> ends(size_t(kAtOnce * kRanks), 0);
    for (int w = 0; w < kAtOnce; w++) {
      fakes.emplace_back(new FakeNccl(kRanks));
      const std::string name = NewBoardName();
      const int at = random.Pick32(1, kSteps - 2);
      for (int rank = 0; rank < kRanks; rank++) {
        FakeNccl *fake = fakes.back().get();
        int *end = &ends[size_t(w * kRanks + rank)];
        if (!process) {
          threads.emplace_back([=, &fault] { *end = RunRank(fake, name, rank, fault, at, false); });
          continue;
        }
        children.push_back(fork());
        if (children.back() == 0) {
          const int outcome = RunRank(fake, name, rank, fault, at, true);
          _exit(::testing::Test::HasFailure() ? 21 : outcome);
        }
      }
    }
    for (std::thread &thread : threads)
      thread.join();
    for (size_t i = 0; i < children.size(); i++) {
      int how = 0;
      waitpid(children[i], &how, 0);
      ends[i] = WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how) == SIGKILL ? int(kDone) : -WTERMSIG(how);
    }
    const int good = fault.says.empty() ? kDone : kNamed;
    for (int w = 0; w < kAtOnce; w++)
      EXPECT_EQ(std::vector<int>(ends.begin() + w * kRanks, ends.begin() + (w + 1) * kRanks),
                (std::vector<int>{ good, kDone, good }));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kTimeoutMs))
        << "none waits until the time is over";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, NcclFaults, ::testing::Combine(::testing::ValuesIn(kFaults), ::testing::Bool()), [](const auto &of) {
  return std::string(std::get<0>(of.param).name) + (std::get<1>(of.param) ? "_Processes" : "_Threads");
});

} // namespace
} // namespace cgr_test

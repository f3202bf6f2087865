// A device whose queue a test runs by hand. Enqueued work stays pending, a graph as its single nodes, until the test picks an
// operation whose dependencies have run, or until a wait. Memory is the inner host device's. For one thread; it supports
// captures as far as a correct caller needs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "devices/device.h"
#include "tests/support/seed.h"

namespace cgr_test {

// One thing to run. Its arguments are the operation's own, or the graph's.
struct SimWork {
  void (*function)(const void *args) = nullptr;
  const void *args = nullptr;
  std::shared_ptr<std::vector<unsigned char>> copy;
};

struct SimGraph {
  struct Node {
    SimWork work;
    std::vector<uint64_t> deps; // numbers of nodes
  };
  std::vector<Node> nodes;
};

struct SimStream {
  bool capturing = false;
  std::vector<uint64_t> tail; // what comes next waits for these: operations, or nodes while capturing
};

struct SimEvent {
  bool captured = false;
  std::vector<uint64_t> tail;
};

// What one of the enqueuing calls returns instead of success.
struct SimFault {
  int64_t after = -1; // this many such calls pass first; negative: no fault
  bool has_effect = false;
  int error = 0;
};

class SimDevice : public cgr_device {
public:
  // Closing it closes `inner`.
  SimDevice(cgr_device *inner, uint64_t seed);

  // ---- for the test
  // Runs a pending operation that can run: the oldest, or any. False: nothing is pending, or one is running.
  bool RunOldest();
  bool RunAny();
  // Runs until nothing is pending.
  void RunAll();
  size_t NumPending() const { return num_pending_; }
  bool CanRun(void (*function)(const void *)) const;
  // Runs a pending operation that is this kernel and can run. False: there is none.
  bool RunKernel(void (*function)(const void *));
  // Called with each operation: when it is enqueued, before and after it runs.
  std::function<void(const SimWork &)> enqueued, before, after;
  // Called when an enqueuing call begins (the host is in the middle of a launch) and when it has ended.
  std::function<void()> moment;
  // Runs the next operation in place of a plain call; used once.
  std::function<void(const SimWork &)> run_with;
  // Work that is not run.
  std::vector<void (*)(const void *)> skipped;
  SimFault fault;
  bool fired = false; // the fault

  // ---- for the table
  int Enqueue(cudaStream_t stream, const SimWork &work);
  int Launch(cgr__exec *exec, cudaStream_t stream);
  int Record(cgr__event *event, cudaStream_t stream);
  int Wait(cgr__event *event, cudaStream_t stream);
  bool IsDone(const std::vector<uint64_t> &tail) const;
  // Runs until the stream is done, sometimes no further.
  void Finish(const std::vector<uint64_t> &tail);
  int BeginCapture(cudaStream_t stream);
  std::unique_ptr<SimGraph> EndCapture(cudaStream_t stream);
  cgr_device *const inner;

private:
  struct Op {
    uint64_t id;
    SimWork work;
    std::vector<uint64_t> deps;
    bool done;
  };
  // The call's result; `passes` says whether it does anything.
  int Judge(bool *passes);
  bool IsDone(uint64_t id) const { return id < first_id_ || ops_[id - first_id_].done; }
  bool IsReady(const Op &op) const;
  uint64_t Push(const SimWork &work, std::vector<uint64_t> deps);
  void Run(Op *op);

  Random random_;
  std::deque<Op> ops_; // from the oldest that is pending on
  uint64_t first_id_ = 1;
  size_t num_pending_ = 0;
  bool running_ = false;               // in the middle of an operation
  std::unique_ptr<SimGraph> captured_; // by the capture that is under way
  std::vector<SimStream *> capturing_;
};

} // namespace cgr_test

// Changes one operation of a capture on its way to the device: what a graph lacks, or has in the wrong place, or keeps. It sees
// the engine's operations and the library's alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "devices/device.h"

namespace cgr_test {

enum class Mutation {
  kNone,
  kRemoved, // it is not enqueued
  kOnce,    // it goes to a stream outside of the capture, and executes once
  kEarlier, // it comes before operation `other`, of the same stream
  kStale // address number `other` of its arguments is that of a copy made at the capture: it reads old values, or writes nowhere
};

struct Mutant {
  Mutation mutation = Mutation::kNone;
  int op = -1, other = -1;
};

// An operation of a capture.
struct CapturedOp {
  std::string name; // a kernel's; "host", "copy", "fill"
  int num_addresses;
  int first; // the earliest operation that it can come before: none between them is on another stream, or an event
};

// Takes the place of the operations of a host device, whose memory it may copy. One at a time.
class Mutator {
public:
  explicit Mutator(cgr_device *dev);
  ~Mutator();
  Mutator(const Mutator &) = delete;
  Mutator &operator=(const Mutator &) = delete;

  // Counts operations from 0 again, and changes one of them.
  void Plan(const Mutant &mutant);
  // Of the captures since then.
  const std::vector<CapturedOp> &ops() const { return ops_; }

private:
  // An operation with its arguments; `words` are those that may be addresses.
  struct Op {
    std::string name;
    std::vector<uint64_t> words;
    std::function<int(const std::vector<uint64_t> &, cudaStream_t)> enqueue;
  };
  static int Launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream);
  static int HostCall(cgr_device *dev, cgr_host_function function, const void *args, size_t bytes, cudaStream_t stream);
  static int Copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream);
  static int Fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream);
  static int EventRecord(cgr_device *dev, cgr__event *event, cudaStream_t stream);
  static int EventWait(cgr_device *dev, cgr__event *event, cudaStream_t stream);
  static int CaptureEnd(cgr_device *dev, cudaStream_t stream, cgr__graph **graph);

  bool Captures(cudaStream_t stream) const;
  int Enqueue(Op op, cudaStream_t stream);
  bool FindAddress(uint64_t word, const void **base, size_t *bytes) const;
  void MakeStale(Op *op);
  // Nothing is moved across what comes now.
  int End();

  cgr_device *dev_;
  const cgr__device_ops *inner_;
  cgr__device_ops ops_table_;
  cudaStream_t outside_ = nullptr;
  Mutant mutant_;
  std::vector<CapturedOp> ops_;
  int first_ = 0;
  cudaStream_t stream_ = nullptr;                 // of the last operation
  std::vector<std::pair<Op, cudaStream_t>> held_; // until the mutant has come
  std::vector<std::vector<uint64_t>> copies_;     // of memory, for stale addresses
};

} // namespace cgr_test

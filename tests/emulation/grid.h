// Runs a grid: what a launcher calls, and the outcome.
//
// Blocks run on a few threads of their own, the "runners" (a function's __shared__ variables are thread_local, so each live block
// has its own). One runner works at a time and hands over at random. The order of the blocks, the order of a block's lanes, and
// the number of live blocks follow from a seed. One launch runs at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/emulation/vector_types.h"

namespace cgr_emulation {

// Random bits for what happens at every switch between lanes: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014).
class Draws {
public:
  using result_type = uint64_t;
  constexpr explicit Draws(uint64_t from) : state_(from) {}
  void seed(uint64_t from) { state_ = from; }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }
  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // 0 .. end - 1; `end` is much smaller than 2^32.
  uint32_t Below(uint32_t end) { return uint32_t(((*this)() >> 32) * end >> 32); }

private:
  uint64_t state_;
};

struct Launch {
  void (*call)(const void *kernel, const void *args); // calls the kernel for one lane
  const void *kernel, *args;
  dim3 grid, block;
  size_t shared; // bytes of dynamic shared memory
};

constexpr int kLaunched = 0, kInvalidValue = 1, kLaunchFailed = 719; // as in cudaError_t
constexpr size_t kMostShared = 227 * 1024;                           // the most a block may ask for
constexpr unsigned kMostThreads = 1024;

// Runs all blocks. Not 0: it broke a rule, and TakeFailure() tells which and where. Not from within a kernel.
int Run(const Launch &launch);

// The failure of the last launch of this process that failed, unless it was taken already; empty for none.
std::string TakeFailure();

// The seed of the next launches; it is mixed with each one's number.
void SetSeed(uint64_t seed);

// From now on blocks run in the order of their numbers, each to completion; false: at random again.
void SetInOrder(bool in_order);

// A kernel that the next launch begins alongside.
struct Previous {
  std::function<void()> finish; // does what it has done, once more
  std::function<void()> undo;
};

// The next launch begins alongside this one, which has run: for each block it ends when the block waits for it, or with the
// block. So blocks do not overlap.
void SetPrevious(const Previous &previous);

// ---------------------------------------------------------------------------------------------------- for a block that runs

bool PreviousRuns();
void EndPrevious();
// Of the thread that has the turn.
extern Draws draws;
inline Draws &Random() { return draws; }
// Lets another block run in place of this one, if there is one.
void HandOver();
// False once lanes of the launch have slept more often than in any kernel that makes progress.
bool MaySleep();
// Whether the launch has failed; then every lane must leave.
bool HasFailed();
void SetFailure(const std::string &text);
const Launch &Running();

} // namespace cgr_emulation

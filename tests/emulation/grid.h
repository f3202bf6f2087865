// How a grid is run: what a launcher calls, and what came of it.
//
// Blocks run on a few threads of their own ("runners": a function's __shared__ variables are thread_local, so each block that is
// alive has its own), of which one works at a time and hands over at random; the order of the blocks, of the lanes of a block,
// and how many blocks are alive at a time follow from a seed. One launch runs at a time.
#ifndef CGR_TESTS_EMULATION_GRID_H
#define CGR_TESTS_EMULATION_GRID_H

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "tests/emulation/vector_types.h"

namespace cgr_emulation {

struct Launch {
  void (*call)(const void *kernel, const void *args); // makes the call of one lane
  const void *kernel, *args;
  dim3 grid, block;
  size_t shared; // bytes of dynamic shared memory
};

constexpr int kLaunched = 0, kInvalidValue = 1, kLaunchFailed = 719; // as cudaError_t counts them
constexpr size_t kMostShared = 227 * 1024;                           // that a block may ask for
constexpr unsigned kMostThreads = 1024;

// Runs all blocks. Not 0: it broke a rule, and Failure() tells which and where. Not from within a kernel.
int Run(const Launch &launch);

// Of the last launch of this process that failed, and none since it was taken; empty for none.
std::string TakeFailure();

// What the next launches follow from; each has a number that it is mixed with.
void SetSeed(uint64_t seed);

// From now on blocks run in the order of their numbers, each to its end; false: at random again.
void SetInOrder(bool in_order);

// ---------------------------------------------------------------------------------------------------- for a block that runs

std::mt19937_64 &Random();
// Another block goes on in place of this one, where there is one.
void HandOver();
// False once lanes of the launch have slept more often than any kernel that gets on.
bool MaySleep();
// Whether the launch has failed, and everybody is to leave.
bool HasFailed();
void SetFailure(const std::string &text);
const Launch &Running();

} // namespace cgr_emulation

#endif // CGR_TESTS_EMULATION_GRID_H

// A running block. Its lanes are fibers; one runs at a time, until it waits for others or is made to give way. The next one is
// drawn at random, or is always the one that became ready last or first, depending on the launch's seed. So a warp may run far
// ahead of the others or far behind, and its lanes may run apart from each other.
//
// Meetings check what CUDA demands: every lane that a mask names comes to the same operation on the same line (__syncwarp: any
// line), and none of them has exited or waits elsewhere for lanes that wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/fiber.h"
#include "tests/emulation/grid.h"

namespace cgr_emulation {

// A place in a kernel's source. As a default argument, Site() is the caller's place.
struct Site {
  const char *file;
  int line;
  constexpr Site(const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()) : file(file_), line(line_) {}
};

// What lanes of a warp do together, with the `operands` of the lanes in `mask`.
struct WarpOperation {
  const char *name;
  void (*combine)(void *const *operands, uint32_t mask); // NULL: they only wait for each other
  bool any_line;
};

struct AsyncCopy {
  void *to;
  const void *from; // NULL: zeros
  size_t size;      // read from there; the rest becomes zeros
  bool is_read;     // `data` is what was there
  unsigned char data[16];
  uint64_t group;
};

class Block;

struct Lane {
  std::unique_ptr<Fiber> fiber;
  uint3 index = {};
  int number = 0;
  bool exited = false;
  void *operand = nullptr;       // at a meeting of its warp
  int vote = 0;                  // at a meeting of the block
  Site site = Site(nullptr, 0);  // where it waits
  std::vector<AsyncCopy> copies; // from `first_copy` on
  size_t first_copy = 0;
  uint64_t groups = 0; // closed groups of copies
};

// Lanes that can run, each at most once.
class ReadyLanes {
public:
  uint32_t size() const { return count_; }
  void Clear() { count_ = 0; }
  void PushBack(Lane *lane) { At(count_++) = lane; }
  void PushFront(Lane *lane) {
    first_--;
    count_++;
    At(0) = lane;
  }
  Lane *PopFront() {
    count_--;
    return lanes_[first_++ % kMostThreads];
  }
  Lane *PopBack() { return At(--count_); }
  Lane *&At(uint32_t i) { return lanes_[(first_ + i) % kMostThreads]; }
  void Shuffle() {
    for (uint32_t i = count_; i > 1; i--)
      std::swap(At(i - 1), At(Random().Below(i)));
  }

private:
  Lane *lanes_[kMostThreads];
  uint32_t first_ = 0, count_ = 0;
};

class Block {
public:
  // Runs block `index` on the calling thread, which reuses this object and its lanes for all blocks that it runs.
  void Run(uint3 index);

  // For the running lane:
  void MeetWarp(const WarpOperation &operation, uint32_t mask, void *operand, Site site);
  void MeetBlock(int vote, int *count, int *threads, Site site); // count: nonzero votes
  void GiveWay();                                                // others may run before it goes on
  void GiveWayAtTimes();
  void Sleep(Site site);                                   // until others have done something
  void CopyAsync(void *to, const void *from, size_t size); // 16 bytes
  void CommitCopies() { lane_->groups++; }
  void WaitForCopies(uint64_t pending);
  [[noreturn]] void Fail(const std::string &text);
  [[noreturn]] void Fail(const std::string &text, Site site);

  Lane &lane() { return *lane_; }

private:
  struct Meeting {
    const WarpOperation *operation;
    uint32_t mask, arrived;
    Site site;
  };
  struct Warp {
    uint32_t there = 0, exited = 0, at_barrier = 0;
    std::vector<Meeting> meetings;
  };
  enum class Order { kRandom, kLastReady, kFirstReady };

  static void Enter();
  void Prepare(uint3 index);
  void SwitchTo(Lane *lane, bool forever = false);
  Lane *Next();
  void Wait(bool forever = false);
  void Exit();
  [[noreturn]] void Leave();
  void CheckElsewhere(const Warp &warp, uint32_t mask, uint32_t arrived, const Meeting *joined, const char *name, Site site);
  std::string Waiting() const;
  std::string Name(const Lane &lane) const;
  Warp &WarpOf(const Lane &lane) { return warps_[size_t(lane.number / 32)]; }

  Fiber home_; // the runner's own stack
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Warp> warps_;
  ReadyLanes ready_;
  Lane *lane_ = nullptr;
  Order order_ = Order::kRandom;
  int num_threads_ = 0, num_exited_ = 0, at_barrier_ = 0;
  uint3 index_ = {};
};

// What kernels find in built-in variables.
struct Builtins {
  uint3 thread_index, block_index, block_size, grid_size;
  Block *block;

  int runner;                // of grid.cc
  char *shared, *shared_end; // of shared_memory.cc: the thread's shared memory
};
extern __thread Builtins builtins;

} // namespace cgr_emulation

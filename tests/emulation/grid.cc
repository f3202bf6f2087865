#include "tests/emulation/grid.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/emulation/block.h"

namespace cgr_emulation {
namespace {

constexpr int kRunners = 4, kNone = -1, kCaller = -2;
constexpr int64_t kMostSleeps = 200000; // per launch

// The state of the running launch. Only the thread that has the turn may touch it.
struct Grid {
  std::mutex mutex; // of the turn
  int turn = kCaller;
  std::condition_variable is_callers, is_runners[kRunners];
  bool alive[kRunners] = {};
  int num_runners = 0; // threads created so far
  pthread_t threads[kRunners];
  int cpu = -1; // the processor that they are on

  const Launch *launch = nullptr;
  std::vector<uint3> blocks; // not begun yet
  int64_t num_sleeps = 0;
  bool failed = false, in_order = false;
  Previous previous; // empty: there is none
  bool previous_ended = false;
  std::string failure;
  uint64_t seed = 1, number = 0;
};

Grid &The() {
  static Grid *grid = new Grid; // threads use it until the process ends
  return *grid;
}

std::mutex &OneAtATime() { // held by a launch
  static std::mutex *mutex = new std::mutex;
  return *mutex;
}

void Notify(Grid &grid, int to) {
  grid.turn = to;
  if (to == kCaller)
    grid.is_callers.notify_one();
  else
    grid.is_runners[to].notify_one();
}

int AnyAlive(Grid &grid, int but) {
  int others[kRunners], count = 0;
  for (int i = 0; i < kRunners; i++)
    if (grid.alive[i] && i != but)
      others[count++] = i;
  return count == 0 ? kNone : others[draws.Below(unsigned(count))];
}

// Before a block runs.
void BeginPrevious(Grid &grid) {
  if (grid.previous.undo && grid.previous_ended)
    grid.previous.undo();
  grid.previous_ended = false;
}

void RunBlocks(Grid &grid, int me) {
  Block block;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(grid.mutex);
      grid.is_runners[me].wait(lock, [&] { return grid.turn == me; });
    }
    while (!grid.failed && !grid.blocks.empty()) {
      uint3 index = grid.blocks.back();
      grid.blocks.pop_back();
      BeginPrevious(grid);
      block.Run(index);
      EndPrevious();
    }
    std::unique_lock<std::mutex> lock(grid.mutex);
    grid.alive[me] = false;
    int next = AnyAlive(grid, me);
    Notify(grid, next == kNone ? kCaller : next);
  }
}

bool IsPossible(const Launch &launch) {
  uint64_t threads = uint64_t{ 1 } * launch.block.x * launch.block.y * launch.block.z;
  uint64_t blocks = uint64_t{ 1 } * launch.grid.x * launch.grid.y * launch.grid.z;
  return threads >= 1 && threads <= kMostThreads && blocks >= 1 && launch.grid.x <= 0x7fffffffu && launch.grid.y <= 65535 &&
         launch.grid.z <= 65535 && launch.shared <= kMostShared;
}

// One thread works at a time, and a turn passes faster on one processor than between two.
void MoveRunners(Grid &grid, int cpu) {
  if (cpu == grid.cpu || cpu < 0)
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  for (int i = 0; i < grid.num_runners; i++)
    pthread_setaffinity_np(grid.threads[i], sizeof set, &set);
  grid.cpu = cpu;
}

void Begin(Grid &grid, const Launch &launch) {
  grid.launch = &launch;
  grid.failed = false;
  grid.num_sleeps = 0;
  draws.seed(grid.seed * 0xd1342543de82ef95u + ++grid.number * 0xaf251af3b0f025b5u);
  grid.blocks.clear();
  for (unsigned z = 0; z < launch.grid.z; z++)
    for (unsigned y = 0; y < launch.grid.y; y++)
      for (unsigned x = 0; x < launch.grid.x; x++)
        grid.blocks.push_back({ x, y, z });
  int runners = 1;
  if (grid.in_order) {
    std::reverse(grid.blocks.begin(), grid.blocks.end()); // the last one begins first
  } else {
    std::shuffle(grid.blocks.begin(), grid.blocks.end(), draws);
    runners = grid.previous.finish ? 1 : int(std::min<size_t>(grid.blocks.size(), 1 + draws.Below(kRunners)));
  }
  for (int i = 0; i < runners; i++)
    grid.alive[i] = true;
  for (; grid.num_runners < runners; grid.num_runners++) {
    std::thread runner([&grid, me = grid.num_runners] {
      builtins.runner = me;
      RunBlocks(grid, me);
    });
    grid.threads[grid.num_runners] = runner.native_handle();
    grid.cpu = -1;
    runner.detach();
  }
  MoveRunners(grid, sched_getcpu());
}

} // namespace

Draws draws{ 1 };

int Run(const Launch &launch) {
  std::lock_guard<std::mutex> only(OneAtATime());
  if (!IsPossible(launch))
    return kInvalidValue;
  Grid &grid = The();
  std::unique_lock<std::mutex> lock(grid.mutex);
  Begin(grid, launch);
  Notify(grid, AnyAlive(grid, kNone));
  grid.is_callers.wait(lock, [&] { return grid.turn == kCaller; });
  grid.previous = {};
  grid.launch = nullptr;
  return grid.failed ? kLaunchFailed : kLaunched;
}

std::string TakeFailure() {
  Grid &grid = The();
  std::lock_guard<std::mutex> lock(grid.mutex);
  std::string failure;
  failure.swap(grid.failure);
  return failure;
}

void SetSeed(uint64_t seed) {
  Grid &grid = The();
  std::lock_guard<std::mutex> lock(grid.mutex);
  grid.seed = seed;
  grid.number = 0;
}

void SetInOrder(bool in_order) {
  Grid &grid = The();
  std::lock_guard<std::mutex> lock(grid.mutex);
  grid.in_order = in_order;
}

void SetPrevious(const Previous &previous) {
  std::lock_guard<std::mutex> only(OneAtATime()); // no launch is running
  The().previous = previous;
  The().previous_ended = true;
}

bool PreviousRuns() { return The().previous.finish && !The().previous_ended; }

void EndPrevious() { // the caller has the turn
  if (PreviousRuns())
    The().previous.finish();
  The().previous_ended = true;
}

void HandOver() {
  Grid &grid = The();
  int me = builtins.runner;
  std::unique_lock<std::mutex> lock(grid.mutex);
  int next = AnyAlive(grid, me);
  if (next == kNone)
    return;
  Notify(grid, next);
  grid.is_runners[me].wait(lock, [&] { return grid.turn == me; });
}

bool MaySleep() { return ++The().num_sleeps <= kMostSleeps; }

bool HasFailed() { return The().failed; }

void SetFailure(const std::string &text) {
  Grid &grid = The();
  std::lock_guard<std::mutex> lock(grid.mutex);
  if (grid.failed)
    return;
  grid.failed = true;
  grid.failure = text + " (emulation seed " + std::to_string(grid.seed) + ", launch " + std::to_string(grid.number) + ")";
}

const Launch &Running() { return *The().launch; }

} // namespace cgr_emulation

// The emulation finds what it is meant to find: each kernel here breaks one rule, and a good one next to it keeps the rule.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/emulation/cuda.h"

#if !defined(__SANITIZE_THREAD__) // it does not know about fibers

namespace {

constexpr int kThreads = 128;

// Dynamic shared memory, declared as a kernel does.
CGR_EMULATED_SHARED(float, memory);

struct Args {
  int *out;
  const int *in;
  int mistake;
};

int RunKernel(void (*kernel)(Args), const Args &args, dim3 grid = 1, dim3 block = kThreads, size_t shared = 0) {
  return cgr_emulated::launch(kernel, &args, grid, block, shared, nullptr);
}

// Under each of some seeds.
int CountFailures(const std::function<bool(uint64_t seed)> &is_good) {
  int failures = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    cgr_emulation::SetSeed(seed);
    failures += !is_good(seed);
  }
  return failures;
}

void ExpectFailure(void (*kernel)(Args), const std::string &text, size_t shared = 0, dim3 block = kThreads) {
  std::vector<int> out(kThreads);
  cgr_emulation::TakeFailure();
  EXPECT_EQ(RunKernel(kernel, { out.data(), nullptr, 0 }, 1, block, shared), cgr_emulation::kLaunchFailed);
  std::string failure = cgr_emulation::TakeFailure();
  EXPECT_NE(failure.find(text), std::string::npos) << "'" << failure << "', not '" << text << "'";
  EXPECT_NE(failure.find("emulation seed"), std::string::npos) << failure;
}

// ----------------------------------------------------------------------------------------------------- indices and blocks

__global__ void index_kernel(Args a) {
  unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  a.out[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  for (dim3 grid : { dim3(1), dim3(7), dim3(2, 3, 2) })
    for (dim3 block : { dim3(1), dim3(33), dim3(4, 3, 5), dim3(1024) }) {
      std::vector<int> out(size_t(grid.x * grid.y * grid.z * block.x * block.y * block.z));
      ASSERT_EQ(RunKernel(index_kernel, { out.data(), nullptr, 0 }, grid, block), cgr_emulation::kLaunched);
      EXPECT_EQ(out, std::vector<int>(out.size(), 1));
    }
}

// out[0]: how many blocks have been here; then their numbers.
__global__ void number_kernel(Args a) {
  __syncthreads();
  if (threadIdx.x == 0)
    a.out[1 + atomicAdd(a.out, 1)] = (int)blockIdx.x;
}

TEST(Emulation, RunsBlocksInOrderWhereThatIsAsked) {
  const std::vector<int> in_order = { 6, 0, 1, 2, 3, 4, 5 };
  auto is_in_order = [&](uint64_t) {
    std::vector<int> out(in_order.size());
    EXPECT_EQ(RunKernel(number_kernel, { out.data(), nullptr, 0 }, 6), cgr_emulation::kLaunched);
    return out == in_order;
  };
  EXPECT_GT(CountFailures(is_in_order), 0);
  cgr_emulation::SetInOrder(true);
  EXPECT_EQ(CountFailures(is_in_order), 0);
  cgr_emulation::SetInOrder(false);
}

TEST(Emulation, RefusesLaunchesThatNoGpuTakes) {
  std::vector<int> out(1);
  Args args = { out.data(), nullptr, 0 };
  EXPECT_EQ(RunKernel(index_kernel, args, 0), cgr_emulation::kInvalidValue);
  EXPECT_EQ(RunKernel(index_kernel, args, 1, 0), cgr_emulation::kInvalidValue);
  EXPECT_EQ(RunKernel(index_kernel, args, 1, 1025), cgr_emulation::kInvalidValue);
  EXPECT_EQ(RunKernel(index_kernel, args, dim3(1, 65536), 1), cgr_emulation::kInvalidValue);
  EXPECT_EQ(RunKernel(index_kernel, args, 1, 1, cgr_emulation::kMostShared + 1), cgr_emulation::kInvalidValue);
  EXPECT_EQ(out[0], 0);
}

// ---------------------------------------------------------------------------------------------------------------- barriers

__global__ void rotate_kernel(Args a) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = (int)threadIdx.x;
  if (a.mistake == 0)
    __syncthreads();
  a.out[threadIdx.x] = values[(threadIdx.x + 1) % kThreads];
}

TEST(Emulation, ShowsAMissingBarrier) {
  auto is_good = [](int mistake) {
    return [=](uint64_t) {
      std::vector<int> out(kThreads);
      EXPECT_EQ(RunKernel(rotate_kernel, { out.data(), nullptr, mistake }), cgr_emulation::kLaunched);
      for (int i = 0; i < kThreads; i++)
        if (out[size_t(i)] != (i + 1) % kThreads)
          return false;
      return true;
    };
  };
  EXPECT_EQ(CountFailures(is_good(0)), 0);
  EXPECT_EQ(CountFailures(is_good(1)), 20);
}

// A value that is written again before all have read it.
__global__ void overwrite_kernel(Args a) {
  __shared__ int value;
  for (int round = 0; round < 3; round++) {
    if (threadIdx.x == 0)
      value = round;
    __syncthreads();
    a.out[round * kThreads + (int)threadIdx.x] = value;
    if (a.mistake == 0)
      __syncthreads();
  }
}

TEST(Emulation, ShowsABarrierThatIsMissingAfterReading) {
  auto is_good = [](int mistake) {
    return [=](uint64_t) {
      std::vector<int> out(3 * kThreads);
      EXPECT_EQ(RunKernel(overwrite_kernel, { out.data(), nullptr, mistake }), cgr_emulation::kLaunched);
      for (int i = 0; i < 3 * kThreads; i++)
        if (out[size_t(i)] != i / kThreads)
          return false;
      return true;
    };
  };
  EXPECT_EQ(CountFailures(is_good(0)), 0);
  EXPECT_GE(CountFailures(is_good(1)), 10);
}

__global__ void vote_kernel(Args a) {
  int one = __syncthreads_count(threadIdx.x % 3 == 0), none = __syncthreads_or(0), all = __syncthreads_and(1);
  int some = __syncthreads_or(threadIdx.x == 77), most = __syncthreads_and(threadIdx.x != 77);
  a.out[threadIdx.x] = one | none << 8 | all << 9 | some << 10 | most << 11;
}

TEST(Emulation, CountsVotesOfABlock) {
  std::vector<int> out(kThreads);
  ASSERT_EQ(RunKernel(vote_kernel, { out.data(), nullptr, 0 }), cgr_emulation::kLaunched);
  EXPECT_EQ(out, std::vector<int>(kThreads, 43 | 1 << 9 | 1 << 10));
}

__global__ void half_at_barrier_kernel(Args) {
  if (threadIdx.x < 64)
    __syncthreads();
}

TEST(Emulation, RefusesABarrierThatSomeNeverReach) { ExpectFailure(half_at_barrier_kernel, "exited"); }

// ------------------------------------------------------------------------------------------------------------------- warps

__global__ void shuffle_kernel(Args a) {
  int lane = (int)(threadIdx.x & 31), *out = a.out + threadIdx.x * 8;
  out[0] = __shfl_sync(~0u, lane, 5);
  out[1] = __shfl_up_sync(~0u, lane, 3);
  out[2] = __shfl_down_sync(~0u, lane, 3);
  out[3] = __shfl_xor_sync(~0u, lane, 9);
  out[4] = __shfl_xor_sync(~0u, lane, 4, 4);
  out[5] = __shfl_sync(~0u, lane, 2, 8);
  out[6] = (int)__reduce_add_sync(~0u, (unsigned)lane);
  out[7] = (int)__ballot_sync(~0u, lane % 5 == 0);
}

TEST(Emulation, ShufflesAsAWarpDoes) {
  std::vector<int> out(kThreads * 8);
  ASSERT_EQ(RunKernel(shuffle_kernel, { out.data(), nullptr, 0 }), cgr_emulation::kLaunched);
  for (int t = 0; t < kThreads; t++) {
    int lane = t % 32;
    std::vector<int> want = { 5,
                              lane < 3 ? lane : lane - 3,
                              lane > 28 ? lane : lane + 3,
                              lane ^ 9,
                              lane % 8 < 4 ? lane : lane ^ 4,
                              lane / 8 * 8 + 2,
                              496,
                              0x42108421 };
    if (lane % 8 < 4)
      want[4] = lane; // lane + 4 is in the next segment
    EXPECT_EQ(std::vector<int>(out.begin() + t * 8, out.begin() + t * 8 + 8), want) << t;
  }
}

__global__ void absent_lane_kernel(Args a) {
  if (threadIdx.x != 7)
    a.out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}

__global__ void parted_kernel(Args a) {
  if (threadIdx.x % 2 == 0)
    a.out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
  else
    a.out[threadIdx.x] = __shfl_sync(~0u, 2, 0);
}

__global__ void other_mask_kernel(Args) { __syncwarp(threadIdx.x % 32 < 16 ? 0x0000ffffu : ~0u); }

__global__ void not_named_kernel(Args) {
  if (threadIdx.x % 32 < 16)
    __syncwarp(0xffff0000u);
}

__global__ void at_barrier_kernel(Args) {
  if (threadIdx.x == 3)
    __syncthreads();
  else
    __syncwarp();
}

TEST(Emulation, RefusesLanesThatMissAMeeting) {
  for (uint64_t seed = 1; seed < 10; seed++) {
    cgr_emulation::SetSeed(seed);
    ExpectFailure(absent_lane_kernel, "exit");
    ExpectFailure(parted_kernel, "wait elsewhere");
    ExpectFailure(other_mask_kernel, "exit");
    ExpectFailure(not_named_kernel, "does not name the lane itself");
    ExpectFailure(at_barrier_kernel, "barrier");
    ExpectFailure([](Args) { __syncwarp(); }, "the warp does not have", 0, 40);
  }
}

// The halves of a warp may meet separately.
__global__ void halves_kernel(Args a) {
  unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  if (threadIdx.x % 32 < 16)
    a.out[threadIdx.x] = __shfl_sync(mask, (int)threadIdx.x, 3);
  else
    a.out[threadIdx.x] = __shfl_sync(mask, (int)threadIdx.x, 20);
  __syncwarp();
}

TEST(Emulation, LetsPartsOfAWarpMeet) {
  std::vector<int> out(kThreads);
  ASSERT_EQ(RunKernel(halves_kernel, { out.data(), nullptr, 0 }), cgr_emulation::kLaunched) << cgr_emulation::TakeFailure();
  for (int t = 0; t < kThreads; t++)
    EXPECT_EQ(out[size_t(t)], t / 32 * 32 + (t % 32 < 16 ? 3 : 20));
}

// ----------------------------------------------------------------------------------------------------------- shared memory

__global__ void unwritten_kernel(Args a) {
  __shared__ float own[4];
  extern __shared__ float memory[];
  a.out[0] = isnan(own[threadIdx.x]) && isnan(memory[threadIdx.x]);
  own[threadIdx.x] = memory[threadIdx.x] = 1.0f;
}

TEST(Emulation, SharedMemoryBeginsAsNan) {
  for (int i = 0; i < 10; i++) { // also after another block on the same runner
    int is_nan = 0;
    ASSERT_EQ(RunKernel(unwritten_kernel, { &is_nan, nullptr, 0 }, 1, 1, 64), cgr_emulation::kLaunched);
    EXPECT_TRUE(is_nan);
  }
}

// Each live block has its own.
__global__ void own_kernel(Args a) {
  __shared__ unsigned mine;
  extern __shared__ float memory[];
  if (threadIdx.x == 0) {
    mine = blockIdx.x;
    memory[0] = (float)blockIdx.x;
  }
  for (int i = 0; i < 20; i++) {
    __syncthreads();
    __nanosleep(1); // another block goes on
    if (mine != blockIdx.x || memory[0] != (float)blockIdx.x)
      atomicAdd(a.out, 1);
  }
}

TEST(Emulation, BlocksHaveSharedMemoryOfTheirOwn) {
  auto is_good = [](uint64_t) {
    int mixed = 0;
    EXPECT_EQ(RunKernel(own_kernel, { &mixed, nullptr, 0 }, 8, 32, 64), cgr_emulation::kLaunched);
    return mixed == 0;
  };
  EXPECT_EQ(CountFailures(is_good), 0);
}

#if !defined(__SANITIZE_ADDRESS__) // which would stop the process
__global__ void beyond_kernel(Args) {
  extern __shared__ float memory[];
  memory[16 + threadIdx.x] = 1.0f;
}

TEST(Emulation, FindsWritesAfterDynamicSharedMemory) {
  ExpectFailure(beyond_kernel, "wrote after its dynamic shared memory", 64);
}
#endif

// ------------------------------------------------------------------------------------------------------- several blocks

// What each block adds to, by itself or at once.
__global__ void count_kernel(Args a) {
  if (a.mistake == 0) {
    atomicAdd(a.out, 1);
    return;
  }
  int before = *a.out;
  __threadfence(); // others may come between
  *a.out = before + 1;
}

TEST(Emulation, BlocksComeBetweenEachOther) {
  auto is_good = [](int mistake) {
    return [=](uint64_t) {
      int sum = 0;
      EXPECT_EQ(RunKernel(count_kernel, { &sum, nullptr, mistake }, 40, 4), cgr_emulation::kLaunched);
      return sum == 160;
    };
  };
  EXPECT_EQ(CountFailures(is_good(0)), 0);
  EXPECT_GE(CountFailures(is_good(1)), 10);
}

__global__ void order_kernel(Args a) {
  if (threadIdx.x == 0)
    a.out[1 + atomicAdd(a.out, 1)] = (int)blockIdx.x;
}

TEST(Emulation, TheSeedDecidesTheOrder) {
  auto order = [](uint64_t seed) {
    cgr_emulation::SetSeed(seed);
    std::vector<int> out(41);
    EXPECT_EQ(RunKernel(order_kernel, { out.data(), nullptr, 0 }, 40, 4), cgr_emulation::kLaunched);
    return out;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
}

__global__ void wait_for_no_block_kernel(Args a) {
  while (atomicAdd(a.out, 0) == 0)
    __nanosleep(100);
}

TEST(Emulation, GivesUpOnABlockThatWaitsForever) { ExpectFailure(wait_for_no_block_kernel, "waits too long"); }

// The next launch after a failure works like any other.
TEST(Emulation, GoesOnAfterAFailure) {
  for (int i = 0; i < 20; i++) {
    std::vector<int> out(kThreads);
    EXPECT_EQ(RunKernel(absent_lane_kernel, { out.data(), nullptr, 0 }, 8), cgr_emulation::kLaunchFailed);
    EXPECT_FALSE(cgr_emulation::TakeFailure().empty());
    EXPECT_EQ(RunKernel(rotate_kernel, { out.data(), nullptr, 0 }, 8), cgr_emulation::kLaunched);
    EXPECT_TRUE(cgr_emulation::TakeFailure().empty());
  }
}

} // namespace

#endif

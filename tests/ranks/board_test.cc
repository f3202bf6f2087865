// A board: every rank gets every other's blocks, round after round; who is missing, has left or has ended is named; a name that a
// dead run has left behind is free.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/ranks/rig.h"

namespace cgr_test {
namespace {

struct Block {
  uint64_t rank, round, rest[6];
};

uint64_t ValueOf(uint64_t rank, uint64_t round) { return rank * 0x9e3779b97f4a7c15u + round * 31; }

cgr_status Gather(const cgr_exchange &e, uint64_t round, int timeout_ms, std::vector<Block> *all, uint64_t *missing) {
  Block mine = { uint64_t(e.rank), round, {} };
  for (uint64_t i = 0; i < 6; i++)
    mine.rest[i] = ValueOf(mine.rank + i, round);
  all->assign(size_t(e.num_ranks), Block{});
  return e.gather(e.context, &mine, sizeof mine, all->data(), timeout_ms, missing);
}

void CheckRound(const std::vector<Block> &all, uint64_t round) {
  for (size_t r = 0; r < all.size(); r++) {
    ASSERT_EQ(all[r].rank, r);
    ASSERT_EQ(all[r].round, round);
    for (uint64_t i = 0; i < 6; i++)
      ASSERT_EQ(all[r].rest[i], ValueOf(r + i, round));
  }
}

class Board : public ::testing::TestWithParam<int> {};

TEST_P(Board, GivesEveryRankTheBlocksOfAllRoundAfterRound) {
  const std::string name = NewBoardName();
  OnRanks(GetParam(), [&](int rank) {
    PlaceOnBoard place(name, rank, GetParam());
    ASSERT_EQ(place.status, CGR_OK) << place.message;
    std::vector<Block> all;
    uint64_t missing = 0;
    for (uint64_t round = 1; round <= (GetParam() < 64 ? 300 : 20); round++) {
      if (round % 7 == uint64_t(rank))
        std::this_thread::sleep_for(std::chrono::microseconds(30));
      ASSERT_EQ(Gather(place.exchange, round, 20000, &all, &missing), CGR_OK) << cgr_last_message();
      ASSERT_EQ(missing, 0u);
      CheckRound(all, round);
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Of, Board, ::testing::Values(1, 2, 3, 8, 64), ::testing::PrintToStringParamName());

// The block that waits is the one that counts, whatever is given while it waits.
TEST(BoardOfTwo, GoesOnWithARoundThatTimedOut) {
  const std::string name = NewBoardName();
  std::atomic<bool> timed_out{ false };
  OnRanks(2, [&](int rank) {
    PlaceOnBoard place(name, rank, 2);
    ASSERT_EQ(place.status, CGR_OK) << place.message;
    std::vector<Block> all;
    uint64_t missing = 0;
    if (rank == 1)
      while (!timed_out)
        std::this_thread::yield();
    if (rank == 0) {
      EXPECT_EQ(Gather(place.exchange, 1, 30, &all, &missing), CGR_NOT_READY);
      EXPECT_EQ(missing, 2u);
      EXPECT_STREQ(cgr_last_message(), "cgr_board_exchange: gather: not here within 30 ms: 1, expected all");
      timed_out = true;
    }
    ASSERT_EQ(Gather(place.exchange, rank == 0 ? 99 : 1, 20000, &all, &missing), CGR_OK) << cgr_last_message();
    CheckRound(all, 1);
    ASSERT_EQ(Gather(place.exchange, 2, 20000, &all, &missing), CGR_OK) << cgr_last_message();
    CheckRound(all, 2);
  });
}

TEST(BoardOfTwo, NamesARankThatHasLeft) {
  const std::string name = NewBoardName();
  OnRanks(2, [&](int rank) {
    PlaceOnBoard place(name, rank, 2);
    ASSERT_EQ(place.status, CGR_OK) << place.message;
    std::vector<Block> all;
    uint64_t missing = 0;
    ASSERT_EQ(Gather(place.exchange, 1, 20000, &all, &missing), CGR_OK) << cgr_last_message();
    if (rank == 1)
      return; // leaves
    EXPECT_EQ(Gather(place.exchange, 2, 20000, &all, &missing), CGR_ERROR_RANK);
    EXPECT_NE(std::string(cgr_last_message()).find("rank 1 (process "), std::string::npos) << cgr_last_message();
    EXPECT_NE(std::string(cgr_last_message()).find("has left"), std::string::npos) << cgr_last_message();
  });
}

// A child that meets this process and then does as `ends` says.
pid_t Child(const std::string &name, int rank, int num_ranks, const std::function<void(PlaceOnBoard &)> &ends) {
  const pid_t child = fork();
  if (child == 0) {
    PlaceOnBoard place(name, rank, num_ranks);
    if (place.status == CGR_OK)
      ends(place);
    _exit(place.status == CGR_OK ? 0 : 9);
  }
  return child;
}

TEST(BoardOfProcesses, NamesAProcessThatHasEnded) {
  for (int n = 0; n < 20; n++) {
    const std::string name = NewBoardName();
    const pid_t child = Child(name, 1, 2, [](PlaceOnBoard &) { raise(SIGKILL); });
    PlaceOnBoard place(name, 0, 2);
    ASSERT_EQ(place.status, CGR_OK) << place.message;
    int how = 0;
    waitpid(child, &how, 0);
    ASSERT_TRUE(WIFSIGNALED(how));
    std::vector<Block> all;
    uint64_t missing = 0;
    ASSERT_EQ(Gather(place.exchange, 1, 20000, &all, &missing), CGR_ERROR_RANK);
    const std::string says = "rank 1 (process " + std::to_string(child) + ") has ended";
    EXPECT_NE(std::string(cgr_last_message()).find(says), std::string::npos) << cgr_last_message();
  }
}

TEST(BoardOfProcesses, MeetAndGather) {
  const std::string name = NewBoardName();
  const auto work = [](PlaceOnBoard &place) {
    std::vector<Block> all;
    uint64_t missing = 0;
    for (uint64_t round = 1; round <= 300; round++)
      if (Gather(place.exchange, round, 20000, &all, &missing) != CGR_OK || all[2].rest[1] != ValueOf(3, round))
        _exit(8);
  };
  std::vector<pid_t> children = { Child(name, 1, 3, work), Child(name, 2, 3, work) };
  PlaceOnBoard place(name, 0, 3);
  ASSERT_EQ(place.status, CGR_OK) << place.message;
  std::vector<Block> all;
  uint64_t missing = 0;
  for (uint64_t round = 1; round <= 300; round++) {
    ASSERT_EQ(Gather(place.exchange, round, 20000, &all, &missing), CGR_OK) << cgr_last_message();
    CheckRound(all, round);
  }
  for (const pid_t child : children) {
    int how = 0;
    waitpid(child, &how, 0);
    EXPECT_EQ(how, 0);
  }
}

// The parent has not waited for it yet, but it has ended.
TEST(BoardOfProcesses, NamesAProcessThatIsNotWaitedFor) {
  const std::string name = NewBoardName();
  const pid_t child = Child(name, 1, 2, [](PlaceOnBoard &) { raise(SIGKILL); });
  PlaceOnBoard place(name, 0, 2);
  ASSERT_EQ(place.status, CGR_OK) << place.message;
  std::vector<Block> all;
  uint64_t missing = 0;
  EXPECT_EQ(Gather(place.exchange, 1, 20000, &all, &missing), CGR_ERROR_RANK);
  EXPECT_NE(std::string(cgr_last_message()).find("has ended"), std::string::npos) << cgr_last_message();
  waitpid(child, nullptr, 0);
}

// Until all have met; another one of the test may have the place for a moment.
void StayOnBoard(const std::string &name, int rank, int num_ranks) {
  for (cgr_status status = CGR_ERROR_STATE; status == CGR_ERROR_STATE;) {
    PlaceOnBoard place(name, rank, num_ranks);
    status = place.status;
    EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_STATE) << place.message;
  }
}

// The place of a rank that died while it waited is free; that of one which lives is not, and is not harmed.
TEST(BoardOfProcesses, GivesThePlaceOfADeadRankToAnother) {
  const std::string name = NewBoardName();
  std::thread first([&] {
    PlaceOnBoard place(name, 0, 3);
    EXPECT_EQ(place.status, CGR_OK) << place.message;
  });
  const pid_t dead = fork();
  if (dead == 0) { // takes the place of rank 1, and dies while it waits
    std::thread([&] { StayOnBoard(name, 1, 3); }).detach();
    cgr_board *board = nullptr;
    while (cgr_board_open(name.c_str(), 1, 3, 0, &board) != CGR_ERROR_STATE)
      usleep(100);
    raise(SIGKILL);
  }
  waitpid(dead, nullptr, 0);
  std::thread second([&] { StayOnBoard(name, 1, 3); });
  cgr_board *board = nullptr;
  while (cgr_board_open(name.c_str(), 1, 3, 0, &board) != CGR_ERROR_STATE)
    usleep(100);
  ExpectMessage(
      cgr_board_open(name.c_str(), 1, 3, 0, &board), CGR_ERROR_STATE,
      { "cgr_board_open: rank is 1, which process " + std::to_string(getpid()) + " has, expected one of its own for each" });
  PlaceOnBoard third(name, 2, 3);
  EXPECT_EQ(third.status, CGR_OK) << third.message;
  first.join();
  second.join();
}

// Nothing of the name is left once all have met; what a dead run has left is taken away.
TEST(BoardOfProcesses, FreesItsName) {
  const std::string name = NewBoardName(), path = "/cgr." + name;
  const pid_t child = fork();
  if (child == 0) { // makes the memory, and dies while it waits
    std::thread([&] { PlaceOnBoard(name, 0, 2); }).detach();
    for (int file = -1; file < 0;)
      file = shm_open(path.c_str(), O_RDWR, 0600);
    usleep(20000);
    raise(SIGKILL);
  }
  int how = 0;
  waitpid(child, &how, 0);
  ASSERT_TRUE(WIFSIGNALED(how));
  EXPECT_GE(shm_open(path.c_str(), O_RDWR, 0600), 0) << "the test does not leave the memory behind";
  OnRanks(2, [&](int rank) {
    PlaceOnBoard place(name, rank, 2);
    EXPECT_EQ(place.status, CGR_OK) << place.message;
    EXPECT_EQ(shm_open(path.c_str(), O_RDWR, 0600) < 0, true);
  });
}

TEST(BoardOfTwo, RefusesWhatCannotBeARankOfIt) {
  cgr_board *board = nullptr;
  const auto refused = [&](const char *name, int rank, int num_ranks, cgr_status status, const std::string &says) {
    EXPECT_EQ(cgr_board_open(name, rank, num_ranks, 20, &board), status) << says;
    EXPECT_EQ(std::string(cgr_last_message()), "cgr_board_open: " + says);
  };
  const std::string letters = "expected 1 .. 200 letters, digits, '.', '_' and '-'", name = NewBoardName();
  refused(nullptr, 0, 1, CGR_ERROR_NULL_POINTER, "name is NULL, expected an address");
  refused("", 0, 1, CGR_ERROR_INVALID_ARGUMENT, "name is \"\", " + letters);
  refused("a/b", 0, 1, CGR_ERROR_INVALID_ARGUMENT, "name is \"a/b\", " + letters);
  refused(name.c_str(), 0, 0, CGR_ERROR_INVALID_ARGUMENT, "num_ranks is 0, expected 1 .. 64");
  refused(name.c_str(), 0, 65, CGR_ERROR_INVALID_ARGUMENT, "num_ranks is 65, expected 1 .. 64");
  refused(name.c_str(), 2, 2, CGR_ERROR_INVALID_ARGUMENT, "rank is 2, expected 0 .. 1");
  refused(name.c_str(), -1, 2, CGR_ERROR_INVALID_ARGUMENT, "rank is -1, expected 0 .. 1");
  refused(name.c_str(), 1, 2, CGR_NOT_READY, "rank 0 has not come within 20 ms, expected it to");
  refused(name.c_str(), 0, 3, CGR_NOT_READY, "not here within 20 ms: ranks 1 and 2, expected all");
  EXPECT_EQ(board, nullptr);
  std::thread first([&] { PlaceOnBoard(name, 0, 2, 2000); });
  while (cgr_board_open(name.c_str(), 1, 3, 100, &board) != CGR_ERROR_INVALID_ARGUMENT)
    ASSERT_EQ(board, nullptr);
  EXPECT_STREQ(cgr_last_message(), "cgr_board_open: num_ranks is 3, expected 2 as on rank 0");
  EXPECT_EQ(cgr_board_open(name.c_str(), 0, 2, 20, &board), CGR_ERROR_STATE);
  { PlaceOnBoard second(name, 1, 2); }
  first.join();
  CGR_EXPECT_OK(cgr_board_close(nullptr));
}

// Whenever its process ends: what it showed last is whole, and says that it has ended.
TEST(BoardOfTwo, KeepsAWholeStateOfAProcessThatEndsWhileItShows) {
  for (int time = 0; time < 20; time++) {
    const std::string name = NewBoardName();
    const pid_t child = fork();
    if (child == 0) {
      PlaceOnBoard place(name, 1, 2);
      uint64_t state[CGR_EXCHANGE_BYTES / sizeof(uint64_t)];
      for (uint64_t number = 1; place.status == CGR_OK; number++) {
        std::fill(std::begin(state), std::end(state), number);
        place.exchange.show(place.exchange.context, state, sizeof state);
      }
      _exit(1);
    }
    PlaceOnBoard place(name, 0, 2);
    ASSERT_EQ(place.status, CGR_OK) << place.message;
    uint64_t state[CGR_EXCHANGE_BYTES / sizeof(uint64_t)] = { 0 };
    while (place.exchange.look(place.exchange.context, 1, state, sizeof state) != CGR_OK)
      usleep(10);
    usleep(100 + 37 * time);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_EQ(place.exchange.look(place.exchange.context, 1, state, sizeof state), CGR_ERROR_RANK);
    EXPECT_EQ(std::count(std::begin(state), std::end(state), state[0]), std::end(state) - std::begin(state));
  }
}

// A rank on a thread of a process whose first thread has ended.
TEST(BoardOfTwo, WaitsForAProcessWithoutItsFirstThread) {
  const std::string name = NewBoardName();
  const pid_t child = fork();
  if (child == 0) {
    std::thread([name] {
      PlaceOnBoard place(name, 1, 2);
      std::vector<Block> all;
      uint64_t missing = 0;
      usleep(100000);
      _exit(place.status == CGR_OK && Gather(place.exchange, 1, 5000, &all, &missing) == CGR_OK ? 0 : 1);
    }).detach();
    syscall(SYS_exit, 0); // of this thread
  }
  PlaceOnBoard place(name, 0, 2);
  ASSERT_EQ(place.status, CGR_OK) << place.message;
  std::vector<Block> all;
  uint64_t missing = 0;
  CGR_EXPECT_OK(Gather(place.exchange, 1, 5000, &all, &missing));
  int how = 0;
  waitpid(child, &how, 0);
  EXPECT_EQ(how, 0);
}

} // namespace
} // namespace cgr_test

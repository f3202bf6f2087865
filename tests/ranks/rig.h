// Ranks of one process: a thread each, with an engine over a host device of its own, and a board that all share.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cgr/ranks.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {

// Of this run alone: processes of two sandboxes may have the same number, and see the same shared memory.
inline std::string NewBoardName() {
  static std::atomic<int> number{ 0 };
  static const unsigned process = std::random_device()();
  return "test." + std::to_string(getpid()) + "." + std::to_string(process) + "." + std::to_string(number++);
}

// Calls work(rank) on a thread for each rank, and waits for all.
inline void OnRanks(int num_ranks, const std::function<void(int)> &work) {
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; r++)
    threads.emplace_back(work, r);
  for (std::thread &thread : threads)
    thread.join();
}

// A place on a board.
class PlaceOnBoard {
public:
  PlaceOnBoard(const std::string &name, int rank, int num_ranks, int timeout_ms = 20000) {
    status = cgr_board_open(name.c_str(), rank, num_ranks, timeout_ms, &board);
    message = status == CGR_OK ? "" : cgr_last_message();
    if (status == CGR_OK)
      CGR_EXPECT_OK(cgr_board_exchange(board, &exchange));
  }
  ~PlaceOnBoard() { CGR_EXPECT_OK(cgr_board_close(board)); }
  PlaceOnBoard(const PlaceOnBoard &) = delete;
  PlaceOnBoard &operator=(const PlaceOnBoard &) = delete;

  cgr_board *board = nullptr;
  cgr_exchange exchange = CGR_EXCHANGE_INIT;
  cgr_status status;
  std::string message;
};

} // namespace cgr_test

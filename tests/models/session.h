// Requests of a model, step by step: they share steps and wait for each other. Prompts come in chunks, the tokens after them one
// by one next to the chunks of others. An encoder gets whole requests, those of a decoder as they come. Pages are taken at
// random; pages that a window has passed go to other requests at once.
#pragma once

#include <deque>
#include <vector>

#include "tests/models/kit.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace models {

class Session {
public:
  // `seed`: for the choice of pages and for how much of a prompt a step takes.
  Session(Kit &kit, uint64_t seed);
  // Runs until every request has ended; returns what the model gave for each token.
  Rows Run();

private:
  struct Request {
    int32_t number, row, fed;
    bool encoded;
    std::vector<int32_t> tokens, source;
    std::vector<std::deque<int32_t>> pages; // of each group
    std::vector<int32_t> first;             // page that is the first of them
  };

  // A request's part of a batch.
  struct Item {
    Request *request;
    int32_t count;
  };

  void Admit();
  // The encoder's tokens, if any; false: nothing.
  bool Encode();
  void Decode();
  // How many tokens the request gets in the next step, out of `room`.
  int32_t Take(const Request &request, int32_t room);
  // Pages in the groups of a length set.
  void Reserve(Request *request, int32_t length_set, int32_t tokens);
  void GiveBack(Request *request, bool all);
  void Step(const std::vector<Item> &items, uint32_t variant);
  void Collect(const std::vector<Item> &items);

  Kit &kit_;
  Random random_;
  std::vector<std::vector<int32_t>> free_; // of each group
  size_t next_ = 0;
  std::vector<Request> running_;
  Rows rows_;
};

} // namespace models
} // namespace cgr_test

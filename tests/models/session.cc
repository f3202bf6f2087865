#include "tests/models/session.h"

#include <algorithm>

#include "tests/support/expect.h"

namespace cgr_test {
namespace models {

enum { kChunk = 24 }; // the most tokens of a prompt in a step

Session::Session(Kit &kit, uint64_t seed) : kit_(kit), random_(seed) {
  for (const Group &group : kit.groups) {
    free_.emplace_back();
    for (int32_t page = 2; page < group.num_pages; page++)
      free_.back().push_back(page);
  }
}

void Session::Admit() {
  const std::vector<Lengths> &requests = kit_.expected.requests;
  while (next_ < requests.size() && running_.size() < kMaxRequests) {
    Request request = {};
    request.number = static_cast<int32_t>(next_);
    request.tokens = kit_.expected.Tokens(next_, "", requests[next_].prompt + requests[next_].given);
    request.source = kit_.expected.Tokens(next_, ".source", requests[next_].source);
    request.pages.resize(kit_.groups.size());
    request.first.resize(kit_.groups.size());
    CGR_EXPECT_OK(cgr_request_open(kit_.runtime, next_ + 1, &request.row));
    running_.push_back(request);
    next_++;
  }
}

int32_t Session::Take(const Request &request, int32_t room) {
  if (kit_.groups.empty()) {
    const int32_t all = int32_t(request.tokens.size());
    return all <= room ? all : 0;
  }
  const int32_t prompt = kit_.expected.requests[size_t(request.number)].prompt;
  if (request.fed >= prompt)
    return std::min(1, room);
  return std::min({ random_.Pick32(1, kChunk), prompt - request.fed, room });
}

void Session::Reserve(Request *request, int32_t length_set, int32_t tokens) {
  for (size_t g = 0; g < free_.size(); g++) {
    std::deque<int32_t> &has = request->pages[g];
    while (kit_.groups[g].length_set == length_set &&
           (request->first[g] + int32_t(has.size())) * kit_.groups[g].page_size < tokens) {
      std::swap(free_[g].at(size_t(random_.Pick(0, int64_t(free_[g].size()) - 1))), free_[g].back());
      const int32_t page = free_[g].back(), index = request->first[g] + int32_t(has.size());
      free_[g].pop_back();
      has.push_back(page);
      CGR_EXPECT_OK(cgr_request_set_pages(kit_.runtime, request->row, int32_t(g), index, &page, 1));
    }
  }
}

// Gives back the pages that the next token does not see, or all pages. Every step has completed.
void Session::GiveBack(Request *request, bool all) {
  for (size_t g = 0; g < free_.size(); g++) {
    const Group &group = kit_.groups[g];
    const int32_t passed = group.window > 0 ? std::max(0, request->fed + 1 - group.window) / group.page_size : 0;
    while (!request->pages[g].empty() && (all || request->first[g] < passed)) {
      if (!all)
        CGR_EXPECT_OK(cgr_request_drop_pages(kit_.runtime, request->row, int32_t(g), request->first[g], 1));
      kit_.PoisonPage(int32_t(g), request->pages[g].front());
      free_[g].push_back(request->pages[g].front());
      request->pages[g].pop_front();
      request->first[g]++;
    }
  }
}

void Session::Collect(const std::vector<Item> &items) {
  int32_t count = 0, t = 0;
  for (const Item &item : items)
    count += item.count;
  const std::vector<std::vector<float>> result = kit_.Result(count);
  for (const Item &item : items)
    for (int32_t j = 0; j < item.count; j++)
      rows_[{ item.request->number, item.request->fed++ }] = result[size_t(t++)];
}

void Session::Step(const std::vector<Item> &items, uint32_t variant) {
  std::vector<int32_t> rows, tokens, counts;
  for (const Item &item : items) {
    const Request &request = *item.request;
    const auto first = variant == kEncoder ? request.source.begin() : request.tokens.begin() + request.fed;
    rows.push_back(request.row);
    counts.push_back(item.count);
    tokens.insert(tokens.end(), first, first + item.count);
  }
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = int32_t(rows.size());
  batch.rows = rows.data();
  batch.query_lens = counts.data();
  batch.tokens = tokens.data();
  batch.variant = variant;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  kit_.PoisonResult();
  CGR_ASSERT_OK(cgr_step_prepare(kit_.runtime, &batch, &step));
  CGR_ASSERT_OK(cgr_step_launch(kit_.runtime, &step, kit_.stream));
  CGR_ASSERT_OK(cgr_step_wait(kit_.runtime, step.mark, -1, &result));
}

bool Session::Encode() {
  std::vector<Item> items;
  int32_t room = kMaxTokens;
  for (Request &request : running_) {
    const int32_t count = int32_t(request.source.size());
    if (request.encoded || count == 0 || count > room)
      continue;
    request.encoded = true;
    room -= count;
    items.push_back({ &request, count });
    Reserve(&request, 1, count);
    CGR_EXPECT_OK(cgr_request_set_other_length(kit_.runtime, request.row, 1, count));
  }
  if (!items.empty())
    Step(items, kEncoder);
  return !items.empty();
}

void Session::Decode() {
  std::vector<Item> items;
  int32_t room = kMaxTokens;
  for (Request &request : running_) {
    const int32_t count = Take(request, room);
    room -= count;
    items.push_back({ &request, count });
    Reserve(&request, 0, request.fed + count);
  }
  Step(items, 0);
  Collect(items);
}

Rows Session::Run() {
  for (Admit(); !running_.empty() && !::testing::Test::HasFatalFailure(); Admit()) {
    while (Encode() && !::testing::Test::HasFatalFailure()) {
    }
    Decode();
    for (size_t i = running_.size(); i-- > 0;) {
      Request &request = running_[i];
      const bool done = request.fed == int32_t(request.tokens.size());
      if (done)
        CGR_EXPECT_OK(cgr_request_close(kit_.runtime, request.row));
      GiveBack(&request, done);
      if (done)
        running_.erase(running_.begin() + int64_t(i));
    }
  }
  return rows_;
}

} // namespace models
} // namespace cgr_test

// Requests and their pages.
#include "tests/support/engine.h"

namespace cgr_test {

// --------------------------------------------------------------------------------------------------------------------- pages

void Engine::ReturnPages() {
  uint64_t done = cgr_test::Completed(rt);
  for (size_t i = 0; i < retired_.size();) {
    if (retired_[i].seq <= done) {
      free_.insert(free_.begin(), retired_[i].pages.begin(), retired_[i].pages.end());
      retired_.erase(retired_.begin() + int64_t(i));
    } else {
      i++;
    }
  }
}

int32_t Engine::TakePage() {
  if (free_.empty())
    ReturnPages();
  EXPECT_FALSE(free_.empty()) << "the engine's pool is too small for this test";
  if (free_.empty())
    return 2;
  int32_t page = free_.back();
  free_.pop_back();
  return page;
}

size_t Engine::FreePages() {
  ReturnPages();
  return free_.size();
}

// Pages that a row no longer has. They are free once its last step has completed, except pages that another request uses.
void Engine::Retire(int32_t row, std::vector<int32_t> pages) {
  uint64_t seq = Info(row).last.seq;
  std::vector<int32_t> gone;
  for (int32_t page : pages) {
    if (IsBad(page))
      continue;
    Shared &shared = shared_[page];
    shared.seq = std::max(shared.seq, seq);
    if (shared.others-- > 0)
      continue;
    seq = shared.seq;
    shared_.erase(page);
    gone.push_back(page);
  }
  retired_.push_back({ seq, gone });
}

// Per page, the number of tokens that requests still need.
std::vector<int32_t> Engine::OwnedTokens() const {
  std::vector<int32_t> owned(size_t(o.num_pages), 0);
  owned[0] = o.page_size;
  for (const auto &[row, r] : requests)
    for (size_t p = size_t(r->first_page); p < r->pages.size(); p++) {
      int32_t &tokens = owned[size_t(r->pages[p])];
      tokens = std::max(tokens, std::clamp(r->num_tokens - int32_t(p) * o.page_size, 0, o.page_size));
    }
  return owned;
}

void Engine::PoisonUnowned(double value) {
  std::vector<int32_t> owned = OwnedTokens();
  for (int32_t page = 0; page < o.num_pages; page++)
    caches.Poison(page, owned[size_t(page)], value);
  Write(caches.memory(), caches.image().data(), caches.bytes());
}

// ------------------------------------------------------------------------------------------------------------------ requests

int32_t Engine::Open() {
  int32_t row = -1;
  auto request = std::make_shared<Request>();
  request->tag = 0xc0ffee0000000000u + ++tags_;
  CGR_EXPECT_OK(cgr_request_open(rt, request->tag, &row));
  EXPECT_EQ(requests.count(row), 0u) << "an open row was given out again";
  requests[row] = request;
  changes++;
  return row;
}

void Engine::Close(int32_t row) {
  Request &r = *requests.at(row);
  std::vector<int32_t> pages(r.pages.begin() + r.first_page, r.pages.end());
  CGR_EXPECT_OK(cgr_request_close(rt, row));
  Retire(row, pages); // after: a closed row still tells its last step
  requests.erase(row);
}

void Engine::Reserve(int32_t row, int32_t tokens) {
  Request &r = *requests.at(row);
  std::vector<int32_t> pages;
  int32_t first = int32_t(r.pages.size());
  while ((first + int32_t(pages.size())) * o.page_size < tokens)
    pages.push_back(TakePage());
  for (size_t p = 0; p < pages.size() && o.engine_table; p++)
    SetTable(row, first + int32_t(p), pages[p]);
  if (pages.empty() || o.engine_table)
    return;
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, first, pages.data(), int32_t(pages.size())));
  r.pages.insert(r.pages.end(), pages.begin(), pages.end());
  changes += pages.size();
}

void Engine::Adopt(int32_t row, const std::vector<int32_t> &pages) {
  ReturnPages();
  requests.at(row)->pages = pages;
  for (int32_t page : pages) {
    auto at = std::find(free_.begin(), free_.end(), page);
    ASSERT_NE(at, free_.end()) << "page " << page << " is in use";
    free_.erase(at);
  }
  changes += pages.size();
}

void Engine::SetTable(int32_t row, int32_t index, int32_t page) {
  Request &r = *requests.at(row);
  if (r.pages.size() <= size_t(index))
    r.pages.resize(size_t(index) + 1, INT32_MAX);
  r.pages[size_t(index)] = page;
  Write(table + int64_t(row) * TableStride() + index, &page, sizeof page);
}

void Engine::DropPages(int32_t row, int32_t first, int32_t count) {
  Request &r = *requests.at(row);
  CGR_EXPECT_OK(cgr_request_drop_pages(rt, row, 0, first, count));
  std::vector<int32_t> gone(r.pages.begin() + first, r.pages.begin() + first + count);
  Retire(row, gone);
  if (first == r.first_page) {
    std::fill_n(r.pages.begin() + first, count, -1);
    r.first_page += count;
  } else {
    r.pages.resize(size_t(first));
  }
  if (r.first_page == int32_t(r.pages.size())) {
    r.pages.clear();
    r.first_page = 0;
  }
  changes += uint64_t(count);
}

void Engine::GiveBack() {
  for (const auto &[row, r] : requests) {
    int32_t needed = std::min(FirstSeen(r->num_tokens) / o.page_size, int32_t(r->pages.size()));
    if (needed > r->first_page && !o.engine_table)
      DropPages(row, r->first_page, needed - r->first_page);
  }
}

void Engine::SetLength(int32_t row, int32_t tokens) {
  Request &r = *requests.at(row);
  CGR_EXPECT_OK(cgr_request_set_length(rt, row, tokens));
  r.num_tokens = tokens;
  r.has_token = false;
  r.cache.resize(size_t(tokens));
  changes++;
}

void Engine::SharePrefix(int32_t row, int32_t from, int32_t tokens) {
  Request &r = *requests.at(row), &source = *requests.at(from);
  ASSERT_EQ(tokens % o.page_size, 0) << "whole pages are shared";
  int32_t count = tokens / o.page_size;
  r.pages.assign(source.pages.begin(), source.pages.begin() + count);
  for (int32_t page : r.pages)
    shared_[page].others++;
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 0, r.pages.data(), count));
  CGR_EXPECT_OK(cgr_request_set_length(rt, row, tokens));
  r.cache.assign(source.cache.begin(), source.cache.begin() + tokens);
  r.num_tokens = tokens;
  changes += uint64_t(count) + 1;
}

// --------------------------------------------------------------------------------------------------------------------- state

cgr_request_info Engine::Info(int32_t row) {
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
  return info;
}

void Engine::CheckRows() {
  for (const auto &[row, r] : requests) {
    SCOPED_TRACE("row " + std::to_string(row));
    cgr_request_info info = Info(row);
    EXPECT_EQ(info.open, 1);
    EXPECT_EQ(info.tag, r->tag);
    EXPECT_EQ(info.num_tokens, r->num_tokens);
    EXPECT_EQ(info.has_token, r->has_token ? 1 : 0);
    EXPECT_LE(info.last.seq, launched);
    if (o.engine_table)
      continue;
    int32_t first = -1, end = -1;
    CGR_EXPECT_OK(cgr_request_get_pages(rt, row, 0, &first, &end));
    EXPECT_EQ(first, r->first_page);
    EXPECT_EQ(end, int32_t(r->pages.size()));
  }
}

std::vector<int32_t> Engine::Rows() const {
  std::vector<int32_t> rows;
  for (const auto &[row, r] : requests)
    rows.push_back(row);
  return rows;
}

} // namespace cgr_test

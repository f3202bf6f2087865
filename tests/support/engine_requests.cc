// Requests and their pages.
#include "tests/support/engine.h"

namespace cgr_test {

// --------------------------------------------------------------------------------------------------------------------- pages

void Engine::ReturnPages() {
  uint64_t done = cgr_test::Completed(rt);
  for (Pool &pool : pools_)
    for (size_t i = 0; i < pool.retired.size();) {
      const Retired &retired = pool.retired[i];
      if (retired.seq <= done) {
        pool.free.insert(pool.free.begin(), retired.pages.begin(), retired.pages.end());
        pool.retired.erase(pool.retired.begin() + int64_t(i));
      } else {
        i++;
      }
    }
}

int32_t Engine::TakePage(size_t group) {
  std::vector<int32_t> &free = pools_[group].free;
  if (free.empty())
    ReturnPages();
  EXPECT_FALSE(free.empty()) << "the engine's pool is too small for this test";
  if (free.empty())
    return 2;
  int32_t page = free.back();
  free.pop_back();
  return page;
}

size_t Engine::FreePages() {
  ReturnPages();
  return pools_[0].free.size();
}

std::vector<int32_t> Engine::SparePages(int32_t count, size_t group) {
  ReturnPages();
  const std::vector<int32_t> &free = pools_[group].free;
  EXPECT_GE(free.size(), size_t(count)) << "the engine's pool is too small for this test";
  return { free.begin(), free.begin() + std::min(count, int32_t(free.size())) };
}

// Pages that a row no longer has. They are free once its last step has completed, except pages that another request uses.
void Engine::Retire(int32_t row, const std::vector<int32_t> &pages, size_t group) {
  Pool &pool = pools_[group];
  uint64_t seq = Info(row).last.seq;
  std::vector<int32_t> gone;
  for (int32_t page : pages) {
    if (IsBad(page, group))
      continue;
    Shared &shared = pool.shared[page];
    shared.seq = std::max(shared.seq, seq);
    if (shared.others-- > 0)
      continue;
    seq = shared.seq;
    pool.shared.erase(page);
    gone.push_back(page);
  }
  pool.retired.push_back({ seq, gone });
}

// Per page, the number of tokens that requests still need.
std::vector<int32_t> Engine::OwnedTokens(size_t group) const {
  const GroupOptions &of = o.groups[group];
  std::vector<int32_t> owned(size_t(of.num_pages), 0);
  owned[size_t(of.read_trash)] = of.page_size;
  for (const auto &[row, r] : requests) {
    const RequestPages &has = r->Of(group);
    for (size_t p = size_t(has.first_page); p < has.pages.size(); p++) {
      int32_t &tokens = owned[size_t(has.pages[p])];
      tokens = std::max(tokens, std::clamp(r->Length(of.length_set) - int32_t(p) * of.page_size, 0, of.page_size));
    }
  }
  return owned;
}

void Engine::PoisonUnowned(double value) {
  for (size_t g = 0; g < o.groups.size(); g++) {
    std::vector<int32_t> owned = OwnedTokens(g);
    for (int32_t page = 0; page < o.groups[g].num_pages; page++)
      all_caches[g].Poison(page, owned[size_t(page)], value);
    Write(all_caches[g].memory(), all_caches[g].image().data(), all_caches[g].bytes());
  }
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
  CGR_EXPECT_OK(cgr_request_close(rt, row));
  for (size_t g = 0; g < o.groups.size(); g++) { // after: a closed row still tells its last step
    const RequestPages &has = r.Of(g);
    Retire(row, { has.pages.begin() + has.first_page, has.pages.end() }, g);
  }
  requests.erase(row);
}

void Engine::Reserve(int32_t row, int32_t tokens, int32_t set) {
  for (size_t g = 0; g < o.groups.size(); g++)
    if (o.groups[g].length_set == set)
      ReserveOf(row, tokens, g);
}

void Engine::ReserveOf(int32_t row, int32_t tokens, size_t group) {
  RequestPages &has = requests.at(row)->Of(group);
  std::vector<int32_t> pages;
  int32_t first = int32_t(has.pages.size());
  while ((first + int32_t(pages.size())) * o.groups[group].page_size < tokens)
    pages.push_back(TakePage(group));
  for (size_t p = 0; p < pages.size() && tables[group] != nullptr; p++)
    SetTable(row, first + int32_t(p), pages[p], group);
  if (pages.empty() || tables[group] != nullptr)
    return;
  CGR_EXPECT_OK(cgr_request_set_pages(rt, row, int32_t(group), first, pages.data(), int32_t(pages.size())));
  has.pages.insert(has.pages.end(), pages.begin(), pages.end());
  changes += pages.size();
}

void Engine::Adopt(int32_t row, const std::vector<int32_t> &pages) {
  std::vector<int32_t> &free = pools_[0].free;
  ReturnPages();
  requests.at(row)->pages = pages;
  for (int32_t page : pages) {
    auto at = std::find(free.begin(), free.end(), page);
    ASSERT_NE(at, free.end()) << "page " << page << " is in use";
    free.erase(at);
  }
  changes += pages.size();
}

void Engine::SetTable(int32_t row, int32_t index, int32_t page, size_t group) {
  std::vector<int32_t> &pages = requests.at(row)->Of(group).pages;
  if (pages.size() <= size_t(index))
    pages.resize(size_t(index) + 1, INT32_MAX);
  pages[size_t(index)] = page;
  Write(tables[group] + int64_t(row) * TableStride(group) + index, &page, sizeof page);
}

void Engine::DropPages(int32_t row, int32_t first, int32_t count, size_t group) {
  RequestPages &r = requests.at(row)->Of(group);
  CGR_EXPECT_OK(cgr_request_drop_pages(rt, row, int32_t(group), first, count));
  Retire(row, { r.pages.begin() + first, r.pages.begin() + first + count }, group);
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
  for (const auto &[row, r] : requests)
    for (size_t g = 0; g < o.groups.size(); g++)
      GiveBackOf(row, g);
}

void Engine::GiveBackOf(int32_t row, size_t group) {
  const int32_t tokens = requests.at(row)->num_tokens;
  RequestPages &has = requests.at(row)->Of(group);
  const int32_t first = has.first_page;
  const int32_t needed = std::min(FirstSeen(tokens, group) / o.groups[group].page_size, int32_t(has.pages.size()));
  if (needed <= first)
    return;
  if (tables[group] == nullptr) {
    DropPages(row, first, needed - first, group);
    return;
  }
  Retire(row, { has.pages.begin() + first, has.pages.begin() + needed }, group);
  for (int32_t p = first; p < needed; p++)
    SetTable(row, p, INT32_MAX, group);
  has.first_page = needed;
}

void Engine::SetLength(int32_t row, int32_t tokens) {
  Request &r = *requests.at(row);
  CGR_EXPECT_OK(cgr_request_set_length(rt, row, tokens));
  r.num_tokens = tokens;
  r.has_token = false;
  r.cache.resize(size_t(tokens));
  changes++;
}

void Engine::SetOther(int32_t row, int32_t set, int32_t tokens) {
  Reserve(row, tokens, set);
  CGR_EXPECT_OK(cgr_request_set_other_length(rt, row, set, tokens));
  requests.at(row)->other_length[size_t(set)] = tokens;
  changes++;
}

void Engine::SharePrefix(int32_t row, int32_t from, int32_t tokens) {
  Request &r = *requests.at(row), &source = *requests.at(from);
  for (size_t g = 0; g < o.groups.size(); g++) {
    ASSERT_EQ(tokens % o.groups[g].page_size, 0) << "whole pages are shared";
    const int32_t count = tokens / o.groups[g].page_size;
    const std::vector<int32_t> &has = source.Of(g).pages, pages(has.begin(), has.begin() + count);
    for (int32_t p = 0; p < count; p++) {
      pools_[g].shared[pages[size_t(p)]].others++;
      if (tables[g] != nullptr)
        SetTable(row, p, pages[size_t(p)], g);
    }
    if (tables[g] == nullptr)
      CGR_EXPECT_OK(cgr_request_set_pages(rt, row, int32_t(g), 0, pages.data(), count));
    r.Of(g).pages = pages;
    changes += uint64_t(count);
  }
  CGR_EXPECT_OK(cgr_request_set_length(rt, row, tokens));
  r.cache.assign(source.cache.begin(), source.cache.begin() + std::min(int64_t(source.cache.size()), int64_t(tokens)));
  r.num_tokens = tokens;
  changes++;
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
    for (int32_t set = 1; set < o.num_sets; set++)
      EXPECT_EQ(info.other_lengths[set], r->Length(set)) << "set " << set;
    for (size_t g = 0; g < o.groups.size(); g++) {
      int32_t first = -1, end = -1;
      if (tables[g] != nullptr)
        continue;
      CGR_EXPECT_OK(cgr_request_get_pages(rt, row, int32_t(g), &first, &end));
      EXPECT_EQ(first, r->Of(g).first_page) << "group " << g;
      EXPECT_EQ(end, int32_t(r->Of(g).pages.size())) << "group " << g;
    }
  }
}

std::vector<int32_t> Engine::Rows() const {
  std::vector<int32_t> rows;
  for (const auto &[row, r] : requests)
    rows.push_back(row);
  return rows;
}

} // namespace cgr_test

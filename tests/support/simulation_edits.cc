// What the simulated engine does between steps: rows, pages, batches, and spoiled ring slots.
#include <algorithm>

#include "tests/support/simulation.h"

namespace cgr_test {
namespace sim {

// --------------------------------------------------------------------------------------------------------------------- rows

int32_t Simulation::AnyRow() {
  auto it = rows_.begin();
  std::advance(it, Pick(0, int32_t(rows_.size()) - 1));
  return it->first;
}

bool Simulation::HasToken(int32_t row) const {
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  cgr_request_get_info(rt_, row, &info);
  return info.has_token != 0;
}

void Simulation::Open() {
  int32_t row = -1;
  if (!Ok(cgr_request_open(rt_, ++tags_, &row), "open"))
    return;
  rows_[row] = Row();
  rows_[row].tag = tags_;
}

void Simulation::Close(int32_t row) {
  const size_t i = FindMember(row);
  if (i < members_.size())
    TakeMember(i);
  Ok(cgr_request_close(rt_, row), "close");
  rows_.erase(row);
  before_.erase(std::remove_if(before_.begin(), before_.end(), [row](const Item &item) { return item.row == row; }),
                before_.end());
}

// Rows may share pages: their contents do not matter here.
int32_t Simulation::FreshPage(int32_t row, int g) {
  const std::vector<int32_t> &has = rows_[row].pages[g];
  int32_t page = Pick(2, kPages - 1);
  while (std::find(has.begin(), has.end(), page) != has.end())
    page = page + 1 < kPages ? page + 1 : 2;
  return page;
}

void Simulation::Reserve(int32_t row, int32_t tokens) {
  for (int g = 0; g < kGroups; g++) {
    std::vector<int32_t> &has = rows_[row].pages[g];
    const size_t first = has.size();
    while (int32_t(has.size()) * kPageSize[g] < std::min<int32_t>(tokens, kSeqLen))
      has.push_back(FreshPage(row, g));
    if (has.size() > first)
      Ok(cgr_request_set_pages(rt_, row, g, int32_t(first), has.data() + first, int32_t(has.size() - first)), "set pages");
  }
}

void Simulation::ReplacePage(int32_t row) {
  const int g = Pick(0, kGroups - 1);
  std::vector<int32_t> &has = rows_[row].pages[g];
  if (has.empty())
    return;
  const int32_t index = Pick(0, int32_t(has.size()) - 1), page = FreshPage(row, g);
  if (Ok(cgr_request_set_pages(rt_, row, g, index, &page, 1), "replace a page"))
    has[size_t(index)] = page;
}

void Simulation::SetLength(int32_t row, int32_t length) {
  if (Ok(cgr_request_set_length(rt_, row, length), "set length"))
    rows_[row].length = length;
}

void Simulation::Edit() {
  if (rows_.size() < size_t{ kRows } && (rows_.size() < 3 || OneIn(5)))
    return Open();
  const int32_t row = AnyRow();
  switch (Pick(0, 9)) {
  case 0:
    return Close(row);
  case 1:
    return ReplacePage(row);
  case 2:
    return Reserve(row, rows_[row].length + Pick(0, 40));
  case 3: { // back, or forward over its pages
    int32_t most = kSeqLen;
    for (int g = 0; g < kGroups; g++)
      most = std::min(most, int32_t(rows_[row].pages[g].size()) * kPageSize[g]);
    return SetLength(row, Pick(0, most));
  }
  case 4:
  case 5: {
    std::array<int32_t, kWords> &data = rows_[row].data;
    data[size_t(Pick(0, kWords - 1))] = Pick(0, 999);
    Ok(cgr_request_set_data(rt_, row, 1, data.data()), "set data");
    return;
  }
  default:
    return EditStanding(row);
  }
}

// ------------------------------------------------------------------------------------------------------------------ batches

std::vector<int32_t> Simulation::Tokens(int32_t row, int32_t len) {
  std::vector<int32_t> tokens;
  const bool has_token = HasToken(row);
  if (len == 1 && has_token && !OneIn(4))
    return tokens;
  for (int32_t j = 0; j < len; j++)
    tokens.push_back(j == 0 && has_token && OneIn(3) ? int32_t{ CGR_TOKEN_LAST } : Pick(0, 996));
  return tokens;
}

// Rows that are full start again.
std::vector<Item> Simulation::WholeBatch() {
  std::vector<Item> items;
  std::vector<int32_t> order;
  for (const auto &[row, view] : rows_)
    order.push_back(row);
  std::swap(order[0], order[size_t(Pick(0, int32_t(order.size()) - 1))]);
  const int32_t most = std::min<int32_t>(Pick(1, kRequests), int32_t(order.size()));
  const bool decode = OneIn(2);
  int32_t room = kTokens;
  for (int32_t i = 0; i < most; i++) {
    const int32_t row = order[size_t(i)];
    const int32_t len = std::min(decode ? 1 : OneIn(8) ? 0 : OneIn(3) ? 1 : Pick(2, 8), room);
    if (rows_[row].length + len > kSeqLen)
      SetLength(row, 0);
    Reserve(row, rows_[row].length + len);
    items.push_back({ row, len, OneIn(10), Tokens(row, len) });
    room -= len;
  }
  return items;
}

// The last whole batch again, each request with its last token: only a header if it was a batch of decodes.
std::vector<Item> Simulation::SameAgain() {
  std::vector<Item> items = before_;
  for (Item &item : items) {
    if (rows_[item.row].length + item.len > kSeqLen)
      SetLength(item.row, 0);
    Reserve(item.row, rows_[item.row].length + item.len);
    item.tokens = Tokens(item.row, item.len);
  }
  return items;
}

// ------------------------------------------------------------------------------------------------------- the standing batch

size_t Simulation::FindMember(int32_t row) const {
  size_t i = 0;
  while (i < members_.size() && members_[i].row != row)
    i++;
  return i;
}

// Perhaps more tokens than a step may have.
void Simulation::SetMember(size_t i) {
  Item &m = members_[i];
  m.len = OneIn(3) ? Pick(0, 6) : 1;
  m.partial = OneIn(10);
  m.tokens = Tokens(m.row, m.len);
  m.used_up = false;
  Ok(cgr_standing_update(rt_, nullptr, m.row, m.len, m.tokens.empty() ? nullptr : m.tokens.data(), m.partial ? 1u : 0u), "set");
}

void Simulation::EditStanding(int32_t row) {
  const size_t i = FindMember(row);
  if (i == members_.size()) { // perhaps one more than a step may have
    const int32_t len = OneIn(4) ? Pick(2, 6) : 1;
    const std::vector<int32_t> tokens = Tokens(row, len);
    if (Ok(cgr_standing_add(rt_, nullptr, row, len, tokens.empty() ? nullptr : tokens.data(), 0), "put"))
      members_.push_back({ row, len, false, tokens });
    return;
  }
  const size_t j = size_t(Pick(0, int32_t(members_.size()) - 1));
  if (OneIn(3)) {
    if (Ok(cgr_standing_swap(rt_, nullptr, row, members_[j].row), "swap"))
      std::swap(members_[i], members_[j]);
  } else if (OneIn(3)) {
    TakeMember(i);
  } else {
    SetMember(i);
  }
}

void Simulation::TakeMember(size_t i) {
  Ok(cgr_standing_remove(rt_, nullptr, members_[i].row), "take");
  members_[i] = members_.back();
  members_.pop_back();
}

// Which limit of a step the batch is above. Chunks that have run count nothing.
cgr_status Simulation::StandingLimits() const {
  int32_t tokens = 0;
  for (const Item &m : members_)
    tokens += m.used_up ? 0 : m.len;
  return members_.size() > size_t{ kRequests } ? CGR_ERROR_TOO_MANY_REQUESTS
         : tokens > kTokens                    ? CGR_ERROR_TOO_MANY_TOKENS
                                               : CGR_OK;
}

// A batch above a limit is refused, until edits have mended it.
void Simulation::KeepToLimits() {
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = CGR_BATCH_STANDING;
  for (cgr_status limits = StandingLimits(); limits != CGR_OK && failure().empty(); limits = StandingLimits()) {
    counts_.above++;
    step_ = CGR_STEP_INIT;
    if (cgr_step_prepare(rt_, &batch, &step_) != limits)
      Fail(std::string("a standing batch above a limit is not refused for that: ") + cgr_last_message());
    const size_t i = size_t(Pick(0, int32_t(members_.size()) - 1));
    OneIn(2) ? SetMember(i) : TakeMember(i);
  }
}

// Makes every member able to step, with its tokens, its pages and room. One that starts again has no last token.
void Simulation::MakeStandingReady() {
  KeepToLimits();
  for (size_t i = 0; i < members_.size(); i++) {
    Item &m = members_[i];
    const auto lacks = [&] {
      const bool wants_last = m.tokens.empty() || m.tokens[0] == CGR_TOKEN_LAST;
      return m.len > 0 && (m.used_up || (wants_last && !HasToken(m.row)));
    };
    if (rows_[m.row].length + 6 > kSeqLen) // the longest that SetMember gives
      SetLength(m.row, 0);
    if (lacks())
      SetMember(i);
    Reserve(m.row, rows_[m.row].length + m.len);
  }
  while (StandingLimits() != CGR_OK)
    TakeMember(members_.size() - 1);
}

// ------------------------------------------------------------------------------------------------------------------- spoils

// Alters the ring slot of a launched step whose prologue has not run: it is no longer what the host committed.
void Simulation::Spoil() {
  const uint64_t first = model_->seq + (model_->begun ? 2 : 1), last = rt_->lane.launched;
  if (first > last)
    return;
  const uint64_t number = first + uint64_t(Pick(0, int32_t(last - first)));
  const auto shadow = model_->shadows.find(number);
  if (shadow == model_->shadows.end() || shadow->second.spoiled != Spoiled::kNot)
    return;
  SpoilSlot(number, &shadow->second);
  counts_.spoiled += shadow->second.spoiled != Spoiled::kNot;
}

void Simulation::SpoilSlot(uint64_t number, Shadow *shadow) {
  const cgr__ring &ring = rt_->lane.ring;
  cgr__ring_slot_header *h = cgr__ring_slot(&ring, number);
  const bool batch = (h->flags & CGR__RING_SLOT_BATCH) != 0, edits = (h->flags & CGR__RING_SLOT_EDITS) != 0;
  const auto refused = [&](cgr_guard_error error) {
    shadow->spoiled = Spoiled::kRefused;
    shadow->error = error;
  };
  switch (Pick(0, 9)) {
  case 0:
    h->seq += OneIn(2) ? 100 : 1;
    shadow->spoiled = Spoiled::kNumber;
    return;
  case 1:
    h->seq = OneIn(2) ? 0 : number - uint64_t(options_.depth);
    shadow->spoiled = Spoiled::kNumber;
    return;
  case 2:
    h->num_requests = OneIn(2) ? kRequests + Pick(1, 3) : -1;
    return refused(CGR_GUARD_COUNT);
  case 3:
    h->num_tokens = OneIn(2) ? kTokens + Pick(1, 9) : -2;
    return refused(CGR_GUARD_COUNT);
  case 4:
    if (edits) {
      h->num_edits = kRequests + 1;
      return refused(CGR_GUARD_CHANGE);
    }
    return;
  case 5:
    if (edits) {
      cgr__ring_edits(&ring, h)[0].place = h->num_requests;
      return refused(CGR_GUARD_CHANGE);
    }
    return;
  case 6:
    if (batch && !edits) {
      cgr__ring_batch(&ring, h)[2 * h->num_requests] = h->num_tokens + 1;
      return refused(CGR_GUARD_COUNT);
    }
    return;
  case 7:
    h->num_changes = OneIn(2) ? rt_->lane.args.max_changes + Pick(1, 2) : -1;
    shadow->spoiled = Spoiled::kChanges;
    shadow->error = CGR_GUARD_CHANGE;
    return;
  default:
    if (!batch) {
      h->batch_seq--;
      return refused(CGR_GUARD_SEQUENCE);
    }
  }
}

} // namespace sim
} // namespace cgr_test

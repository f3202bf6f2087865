// Random edits of a standing batch, checked against a model and a second runtime that is given the same batches whole: outputs,
// results and page contents are the same, bit for bit. In between come edits that must be refused, batches above the limits,
// steps that are cancelled, abandoned or lost, whole batches, and rows that are set back; the second runtime is told only what it
// has to know.
// 2,500 edits per device; CGR_STANDING_EDITS in the environment sets another number.
#include <algorithm>
#include <cstdlib>

#include "buffers/ring_slot.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

using rows::Answer;
using rows::RowEngine;

enum { kTokens = 48, kSeqLen = 96, kPinned = 1 << 20 };

struct Member {
  int32_t row, query_len;
  bool partial;
  std::vector<int32_t> tokens; // empty: the last one
  bool used_up = false;        // it has run, and does not go on by itself
};

struct Row {
  int32_t computed = 0, reserved = 0, last = -1; // -1: no step has sampled one
};

class StandingRandom : public OverDevices {
protected:
  void SetUpOnDevice() override {
    seed_ = Seed();
    random_ = std::make_unique<Random>(seed_);
    const int32_t dtype = GetParam().IsCuda() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32, dim = GetParam().IsCuda() ? 64 : 16;
    rows::Options options;
    options.model = { { { 0, 2, 1, dim, dtype }, { 1, 2, 1, dim, dtype } }, kTokens, kSeqLen };
    options.batch_invariant = false, options.pinned_bytes = kPinned;
    options.adjust = [](cgr_config *config) { config->max_changes = 60; }; // pages go ahead now and then
    edited_ = std::make_unique<RowEngine>(GetParam(), 7, options);
    whole_ = std::make_unique<RowEngine>(GetParam(), 7, options);
    edited_->hook = [this](cgr_recorder *, const cgr_record_info &info) {
      return fails_ && info.capturing == 0 ? CGR_ERROR_CALLBACK : CGR_OK;
    };
  }
  static int64_t NumEdits() {
    const char *given = std::getenv("CGR_STANDING_EDITS");
    return given != nullptr ? std::atoll(given) : 2500;
  }
  int32_t Pick(int32_t low, int32_t high) { return random_->Pick32(low, high); }
  bool OneIn(int32_t n) { return random_->OneIn(n); }
  cgr_runtime *rt() { return edited_->rt; }

  // ---- the model
  size_t Find(int32_t row) const {
    size_t i = 0;
    while (i < members_.size() && members_[i].row != row)
      i++;
    return i;
  }
  int32_t AnyRow() {
    auto it = rows_.begin();
    std::advance(it, Pick(0, int32_t(rows_.size()) - 1));
    return it->first;
  }
  // Which limit the batch is above; a chunk that has run counts nothing until it is set again.
  cgr_status Limits() const {
    int32_t sum = 0;
    for (const Member &m : members_)
      sum += m.used_up ? 0 : m.query_len;
    return members_.size() > rows::kMaxRequests ? CGR_ERROR_TOO_MANY_REQUESTS
           : sum > kTokens                      ? CGR_ERROR_TOO_MANY_TOKENS
                                                : CGR_OK;
  }
  bool Lacks(const Member &m) const {
    if (m.query_len == 0)
      return false;
    return m.used_up || ((m.tokens.empty() || m.tokens[0] == CGR_TOKEN_LAST) && rows_.at(m.row).last < 0);
  }
  bool AnyLacks() const {
    for (const Member &m : members_)
      if (Lacks(m))
        return true;
    return false;
  }
  // The items of a step of the batch; the second runtime is now and then given a token that the device already knows.
  std::vector<Item> Items(bool tell) {
    std::vector<Item> items;
    for (const Member &m : members_) {
      Item item = { m.row, m.tokens, m.partial };
      if (m.tokens.empty() && m.query_len == 1)
        item.tokens = { CGR_TOKEN_LAST };
      if (tell && !item.tokens.empty() && item.tokens[0] == CGR_TOKEN_LAST && OneIn(3))
        item.tokens[0] = rows_.at(m.row).last;
      items.push_back(item);
    }
    return items;
  }

  // ---- edits
  Member AnyWork(int32_t row) {
    Member m = { row, OneIn(4) ? Pick(2, 20) : OneIn(6) ? 0 : 1, OneIn(10), {} };
    if (m.query_len > 1 || (m.query_len == 1 && (rows_.at(row).last < 0 || OneIn(2))))
      for (int32_t j = 0; j < m.query_len; j++)
        m.tokens.push_back(j == 0 && rows_.at(row).last >= 0 && OneIn(3) ? int32_t{ CGR_TOKEN_LAST } : Pick(0, 999));
    if (m.query_len == 1 && OneIn(8))
      m.tokens.clear(); // whether there is a last one or not
    return m;
  }
  const int32_t *TokensOf(const Member &m) { return m.tokens.empty() ? nullptr : m.tokens.data(); }
  void Open() {
    const int32_t row = edited_->Open();
    ASSERT_EQ(whole_->Open(), row);
    rows_[row] = Row();
  }
  void Reserve(int32_t row, int32_t tokens) {
    tokens = std::min<int32_t>(tokens, kSeqLen);
    edited_->Reserve(row, tokens);
    whole_->Reserve(row, tokens);
    rows_[row].reserved = std::max(rows_[row].reserved, (tokens + 15) / 16 * 16);
  }
  void Close(int32_t row) {
    if (Find(row) < members_.size()) {
      CGR_EXPECT(CGR_ERROR_STATE, cgr_request_close(rt(), row));
      Take(row);
    }
    edited_->Close(row);
    whole_->Close(row);
    rows_.erase(row);
  }
  void Put(int32_t row) {
    const Member m = AnyWork(row);
    cgr_status expected = Find(row) < members_.size() ? CGR_ERROR_ROW_REPEATED : CGR_OK;
    CGR_EXPECT(expected, cgr_standing_add(rt(), nullptr, row, m.query_len, TokensOf(m), m.partial ? 1u : 0u));
    if (expected == CGR_OK)
      members_.push_back(m);
  }
  void Set(int32_t row) {
    const Member m = AnyWork(row);
    const size_t i = Find(row);
    cgr_status expected = i == members_.size() ? CGR_ERROR_STATE : CGR_OK;
    CGR_EXPECT(expected, cgr_standing_update(rt(), nullptr, row, m.query_len, TokensOf(m), m.partial ? 1u : 0u));
    if (expected == CGR_OK)
      members_[i] = m;
  }
  void Take(int32_t row) {
    const size_t i = Find(row);
    CGR_EXPECT(i == members_.size() ? CGR_ERROR_STATE : CGR_OK, cgr_standing_remove(rt(), nullptr, row));
    if (i == members_.size())
      return;
    members_[i] = members_.back();
    members_.pop_back();
  }
  void Swap(int32_t row, int32_t other) {
    const size_t i = Find(row), j = Find(other);
    const bool good = i < members_.size() && j < members_.size();
    CGR_EXPECT(good ? CGR_OK : CGR_ERROR_STATE, cgr_standing_swap(rt(), nullptr, row, other));
    if (good)
      std::swap(members_[i], members_[j]);
  }
  // Back to fewer tokens, in both.
  void SetLength(int32_t row, int32_t length) {
    CGR_EXPECT_OK(cgr_request_set_length(rt(), row, length));
    CGR_EXPECT_OK(cgr_request_set_length(whole_->rt, row, length));
    rows_[row] = { length, rows_[row].reserved, -1 };
  }
  // Work for every row, mostly more than a step may have.
  void Crowd() {
    for (const auto &[row, state] : rows_)
      Find(row) < members_.size() ? Set(row) : Put(row);
  }
  void Edit() {
    edits_++;
    if (rows_.size() < rows::kMaxRows && (rows_.empty() || OneIn(6)))
      return Open();
    const int32_t row = AnyRow();
    switch (Pick(0, 9)) {
    case 0:
    case 1:
    case 2:
      return Put(row);
    case 3:
    case 4:
      return Set(row);
    case 5:
    case 6:
      return Take(row);
    case 7:
      return Swap(row, AnyRow());
    case 8:
      return OneIn(2) ? Reserve(row, rows_[row].computed + Pick(0, 40)) : Close(row);
    default:
      if (OneIn(2))
        SetLength(row, Pick(0, rows_[row].computed));
    }
  }

  // ---- steps
  // A batch above a limit is refused, however it became so, and is mended by any edits that bring it below.
  void KeepToLimits() {
    cgr_step step = CGR_STEP_INIT;
    while (Limits() != CGR_OK && !HasFatalFailure()) {
      above_++;
      CGR_EXPECT(Limits(), edited_->Prepare({}, true, &step));
      const int32_t row = members_[size_t(Pick(0, int32_t(members_.size()) - 1))].row;
      OneIn(2) ? Set(row) : OneIn(4) && members_.size() < 2 * rows::kMaxRequests ? Put(AnyRow()) : Take(row);
    }
  }
  // Members that cannot step are refused; then they are made able to, or are removed.
  void MakeReady() {
    cgr_step step = CGR_STEP_INIT;
    KeepToLimits();
    if (AnyLacks() && OneIn(3))
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, edited_->Prepare({}, true, &step));
    for (size_t i = members_.size(); i-- > 0;)
      for (int n = 0; i < members_.size() && Lacks(members_[i]); n++)
        n < 5 ? Set(members_[i].row) : Take(members_[i].row);
    while (Limits() != CGR_OK)
      Take(members_.back().row);
    for (size_t i = members_.size(); i-- > 0;)
      if (const Member m = members_[i]; rows_[m.row].computed + m.query_len > kSeqLen) {
        if (OneIn(2))
          ExpectShort();
        Close(m.row);
      }
    for (const Member &m : members_) {
      const int32_t needs = rows_[m.row].computed + m.query_len;
      if (needs <= rows_[m.row].reserved)
        continue;
      if (OneIn(4))
        ExpectShort();
      Reserve(m.row, needs + (OneIn(2) ? Pick(0, 60) : 0));
    }
  }
  // A member does not fit; which one is met first is unspecified.
  void ExpectShort() {
    cgr_step step = CGR_STEP_INIT;
    bool too_long = false, pages = false;
    for (const Member &m : members_) {
      const int32_t needs = rows_.at(m.row).computed + m.query_len;
      too_long = too_long || needs > kSeqLen;
      pages = pages || (needs > rows_.at(m.row).reserved && needs <= kSeqLen);
    }
    const cgr_status status = edited_->Prepare({}, true, &step);
    EXPECT_TRUE((too_long && status == CGR_ERROR_SEQUENCE_TOO_LONG) || (pages && status == CGR_ERROR_PAGES_MISSING))
        << cgr_status_name(status) << ": " << cgr_last_message();
  }
  // Steps that produce nothing.
  void Cancelled() {
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(edited_->Prepare({}, true, &step));
    if (!members_.empty())
      CGR_EXPECT(CGR_ERROR_STATE, cgr_standing_remove(rt(), nullptr, members_[0].row));
    CGR_EXPECT_OK(cgr_step_cancel(rt(), &step));
  }
  void Abandoned() {
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(edited_->Prepare({}, true, &step));
    if (step.key.kind != CGR_KIND_NONE || step.num_requests == 0) {
      CGR_EXPECT_OK(cgr_step_cancel(rt(), &step));
      return;
    }
    fails_ = true;
    CGR_EXPECT(CGR_ERROR_CALLBACK, cgr_step_launch(rt(), &step, edited_->stream));
    fails_ = false;
    CGR_EXPECT_OK(cgr_step_wait(rt(), step.mark, -1, nullptr));
    abandoned_++;
  }
  // The ring slot is corrupted before the device has read it. Lengths and tokens are then given again.
  void Lost() {
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(edited_->Prepare({}, true, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt(), &step, edited_->stream));
    cgr__ring_slot_header *slot = nullptr;
    for (size_t at = 128; at + sizeof *slot <= kPinned; at += 64) {
      cgr__ring_slot_header *header = reinterpret_cast<cgr__ring_slot_header *>(static_cast<char *>(edited_->rings) + at);
      if (header->seq == step.mark.seq && header->num_requests == step.num_requests && header->num_tokens == step.num_tokens)
        slot = header;
    }
    ASSERT_NE(slot, nullptr);
    slot->seq += 100;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT(CGR_ERROR_STEP, cgr_step_wait(rt(), step.mark, -1, &result));
    EXPECT_EQ(result.num_requests, 0);
    lost_++;
    const std::vector<Member> before = members_;
    for (const Member &m : before) {
      const Row &row = rows_[m.row];
      if (m.query_len == 0)
        continue;
      CGR_EXPECT_OK(cgr_request_set_length(rt(), m.row, row.computed));
      std::vector<int32_t> tokens = m.tokens;
      if (tokens.empty())
        tokens = { row.last };
      if (tokens[0] == CGR_TOKEN_LAST)
        tokens[0] = row.last;
      CGR_EXPECT_OK(cgr_standing_update(rt(), nullptr, m.row, m.query_len, tokens.data(), m.partial ? 1u : 0u));
      members_[Find(m.row)].tokens = tokens;
    }
  }
  void Learn(const std::vector<Item> &items, const std::vector<Answer> &answers) {
    for (size_t i = 0; i < items.size(); i++) {
      Row &row = rows_[items[i].row];
      row.computed += int32_t(items[i].tokens.size());
      if (!items[i].tokens.empty())
        row.last = answers[i].token;
    }
  }
  void Compare(const std::vector<Item> &items, const std::vector<Answer> &got, const std::vector<Answer> &expected) {
    ASSERT_EQ(got.size(), items.size());
    ASSERT_EQ(expected.size(), items.size());
    for (size_t i = 0; i < items.size(); i++)
      ASSERT_EQ(DifferenceOf(got[i], expected[i]), "") << "request " << i << " of " << items.size();
    for (const Item &item : items) {
      cgr_request_info mine = CGR_REQUEST_INFO_INIT, other = CGR_REQUEST_INFO_INIT;
      CGR_ASSERT_OK(cgr_request_get_info(rt(), item.row, &mine));
      CGR_ASSERT_OK(cgr_request_get_info(whole_->rt, item.row, &other));
      ASSERT_EQ(mine.num_tokens, other.num_tokens);
      ASSERT_EQ(mine.has_token, other.has_token);
    }
  }
  void Run() {
    std::vector<Item> items = Items(false);
    const int32_t *order = nullptr;
    int32_t count = -1;
    CGR_ASSERT_OK(cgr_standing_rows(rt(), nullptr, &order, &count));
    ASSERT_EQ(count, int32_t(items.size()));
    for (size_t i = 0; i < items.size(); i++)
      ASSERT_EQ(order[i], items[i].row);
    const std::vector<Answer> expected = whole_->Run(Items(true)), got = edited_->Run(items, true);
    Compare(items, got, expected);
    Learn(items, got);
    for (Member &m : members_) {
      m.tokens.clear();
      m.used_up = m.query_len > 1 || (m.query_len == 1 && m.partial);
    }
    steps_++;
  }
  // A batch given whole to both, of members and others.
  void RunWhole() {
    std::vector<Item> items;
    for (const auto &[row, state] : rows_)
      if (items.size() < rows::kMaxRequests && OneIn(2) && state.computed + 1 <= state.reserved)
        items.push_back({ row, { state.last >= 0 ? int32_t{ CGR_TOKEN_LAST } : Pick(0, 999) }, OneIn(8) });
    for (int32_t again = OneIn(2) ? 3 : 1; again > 0 && !HasFatalFailure(); again--) {
      for (const Item &item : items)
        if (rows_[item.row].computed + 1 > rows_[item.row].reserved)
          return;
      const std::vector<Answer> expected = whole_->Run(items), got = edited_->Run(items);
      Compare(items, got, expected);
      Learn(items, got);
      for (Item &item : items)
        item.tokens[0] = rows_[item.row].last >= 0 ? int32_t{ CGR_TOKEN_LAST } : Pick(0, 999);
    }
  }

  std::unique_ptr<RowEngine> edited_, whole_;
  std::unique_ptr<Random> random_;
  uint64_t seed_ = 0;
  std::vector<Member> members_;
  std::map<int32_t, Row> rows_;
  int64_t edits_ = 0, steps_ = 0, lost_ = 0, abandoned_ = 0, above_ = 0;
  bool fails_ = false;
};

TEST_P(StandingRandom, EditsGiveTheBitsOfWholeBatches) {
  SCOPED_TRACE(Repeat(seed_));
  const int64_t num_edits = NumEdits();
  const bool can_lose = !GetParam().IsCuda() && GetParam().config.host_schedule == CGR_SCHEDULE_LATEST;
  while (edits_ < num_edits && !HasFailure()) {
    for (int32_t n = Pick(0, 8); n > 0; n--)
      Edit();
    if (OneIn(12))
      Crowd();
    MakeReady();
    if (OneIn(10))
      Cancelled();
    if (can_lose && OneIn(20))
      Lost();
    if (OneIn(10))
      Abandoned();
    if (OneIn(20))
      CGR_EXPECT_OK(cgr_runtime_flush(rt(), nullptr, nullptr, edited_->stream));
    for (int32_t n = OneIn(4) ? Pick(1, 12) : 1; n > 0 && !HasFailure(); n--) {
      Run();
      MakeReady();
    }
    if (OneIn(15))
      RunWhole();
    if (!HasFailure() && (num_edits <= 10000 || steps_ % 64 == 0)) {
      ASSERT_TRUE(edited_->ReadPages() == whole_->ReadPages()) << "pages differ after step " << steps_;
    }
  }
  EXPECT_GT(abandoned_, 0);
  EXPECT_GT(above_, 20);
  EXPECT_EQ(lost_ > 0, can_lose);
  RecordProperty("steps", std::to_string(steps_));
  printf("%lld edits, %lld steps, %lld above a limit, %lld lost, %lld abandoned; %s\n", static_cast<long long>(edits_),
         static_cast<long long>(steps_), static_cast<long long>(above_), static_cast<long long>(lost_),
         static_cast<long long>(abandoned_), Repeat(seed_).c_str());
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(StandingRandom);

} // namespace
} // namespace cgr_test

// Edits and steps of a standing batch of three requests.
#pragma once

#include "tests/support/refused.h"

namespace cgr_test {

using Rows = std::vector<int32_t>;
const int32_t kLast = CGR_TOKEN_LAST;
enum { kHeader = 64, kEdit = 16 };

class Standing : public ThreeRequests {
protected:
  cgr_runtime *rt() { return engine_->rt; }
  cgr_status Put(int32_t row, int32_t query_len = 1, const Rows &tokens = {}, uint32_t flags = 0) {
    return cgr_standing_add(rt(), nullptr, row, query_len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Set(int32_t row, int32_t query_len = 1, const Rows &tokens = {}, uint32_t flags = 0) {
    return cgr_standing_update(rt(), nullptr, row, query_len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Take(int32_t row) { return cgr_standing_remove(rt(), nullptr, row); }
  cgr_status Swap(int32_t row, int32_t other) { return cgr_standing_swap(rt(), nullptr, row, other); }
  void PutAll() {
    for (int32_t row : rows_)
      CGR_ASSERT_OK(Put(row));
  }
  // Gives every row enough pages and sends them all, so from now on the bytes are those of edits.
  void PutAllWithPages() {
    for (int32_t row : rows_)
      engine_->Reserve(row, 80);
    CGR_ASSERT_OK(engine_->Flush());
    PutAll();
  }
  // A step of the standing batch, which must be these items, or a decode of each.
  void Step(const std::vector<Item> &items, const cgr_key *forced = nullptr) {
    CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items, forced));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
  void Step() { Step(engine_->Decode(engine_->StandingRows())); }
  // A step of all that sends so many bytes.
  void StepOf(uint64_t bytes) {
    Step();
    EXPECT_EQ(Bytes(), bytes);
  }
  uint64_t Bytes() const { return engine_->step.bytes_staged; }
  // An edit that is refused leaves the order as it is.
  template <class Call> void EditRefused(cgr_status status, const Words &words, Call call) {
    const Rows before = engine_->StandingRows();
    Refused(status, words, call);
    EXPECT_EQ(engine_->StandingRows(), before);
  }
  void StepRefused(cgr_status status, const Words &words) {
    ExpectPrepareRefused(*engine_, status, words, [&] { return engine_->PrepareStandingAsIs({}); });
  }
};

} // namespace cgr_test

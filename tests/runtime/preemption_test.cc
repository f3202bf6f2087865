// A request whose pages are taken for others comes back, computes its tokens once more, and goes on as if nothing had happened.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

const int32_t kLast = CGR_TOKEN_LAST;

class Preemption : public ThreeRequests {
protected:
  cgr_runtime *rt() { return engine_->rt; }
  void Step(const std::vector<Item> &items) {
    CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll(); // against the oracle
  }
};

// `kept`: tokens of its prefix whose pages stay. Its prompt is that of ThreeRequests.
TEST_P(Preemption, ARequestComesBackWithItsTokens) {
  Engine &e = *engine_;
  const int32_t row = rows_[2], page = e.o.page_size;
  for (int32_t r : rows_) {
    e.Reserve(r, 80);
    CGR_ASSERT_OK(cgr_standing_add(rt(), nullptr, r, 1, nullptr, 0));
  }
  for (const int32_t kept : { 0, page }) {
    SCOPED_TRACE(kept);
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, { kLast } } }));
    const Request &r = *e.requests[row];
    std::vector<int32_t> tokens = Engine::Prompt(31, 3);
    tokens.insert(tokens.end(), r.sampled.begin(), r.sampled.end()); // the last one is not in the cache yet
    ASSERT_EQ(int32_t(tokens.size()), r.num_tokens + 1);
    CGR_ASSERT_OK(cgr_standing_remove(rt(), nullptr, row));
    e.SetLength(row, kept);
    e.DropPages(row, kept / page, int32_t(r.pages.size()) - kept / page);
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } } }));
    e.Reserve(row, 80);
    const std::vector<int32_t> rest(tokens.begin() + kept, tokens.end());
    CGR_ASSERT_OK(cgr_standing_add(rt(), nullptr, row, int32_t(rest.size()), rest.data(), 0));
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, rest } }));
    CGR_ASSERT_OK(cgr_standing_update(rt(), nullptr, row, 1, nullptr, 0));
  }
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, { kLast } } }));
  e.CheckRows();
  e.CheckCaches();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Preemption);

} // namespace
} // namespace cgr_test

// A request whose pages are taken for others comes back, computes its tokens once more, and goes on as if nothing had happened.
#include "tests/support/standing_case.h"

namespace cgr_test {
namespace {

class Preemption : public Standing {};

// `kept`: tokens of its prefix whose pages stay. Its prompt is that of ThreeRequests.
TEST_P(Preemption, ARequestComesBackWithItsTokens) {
  const int32_t row = rows_[2], page = engine_->o.page_size;
  for (int32_t r : rows_) {
    engine_->Reserve(r, 80);
    CGR_ASSERT_OK(Put(r));
  }
  for (const int32_t kept : { 0, page }) {
    SCOPED_TRACE(kept);
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, { kLast } } }));
    const Request &r = *engine_->requests[row];
    std::vector<int32_t> tokens = Engine::Prompt(31, 3);
    tokens.insert(tokens.end(), r.sampled.begin(), r.sampled.end()); // the last one is not in the cache yet
    ASSERT_EQ(int32_t(tokens.size()), r.num_tokens + 1);
    CGR_ASSERT_OK(Take(row));
    engine_->SetLength(row, kept);
    engine_->DropPages(row, kept / page, int32_t(r.pages.size()) - kept / page);
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } } }));
    engine_->Reserve(row, 80);
    const std::vector<int32_t> rest(tokens.begin() + kept, tokens.end());
    CGR_ASSERT_OK(Put(row, int32_t(rest.size()), rest));
    ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, rest } }));
    CGR_ASSERT_OK(Set(row));
  }
  ASSERT_NO_FATAL_FAILURE(Step({ { rows_[0], { kLast } }, { rows_[1], { kLast } }, { row, { kLast } } }));
  engine_->CheckRows();
  engine_->CheckCaches();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Preemption);

} // namespace
} // namespace cgr_test

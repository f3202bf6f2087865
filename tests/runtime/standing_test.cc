// The standing batch: edits, what a step of it does, and what is refused.
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

class Standing : public ThreeRequests {
protected:
  cgr_status Put(int32_t row, int32_t query_len = 1, const std::vector<int32_t> &tokens = {}, uint32_t flags = 0) {
    return cgr_standing_put(engine_->rt, 0, 0, row, query_len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Set(int32_t row, int32_t query_len = 1, const std::vector<int32_t> &tokens = {}, uint32_t flags = 0) {
    return cgr_standing_set(engine_->rt, 0, 0, row, query_len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Take(int32_t row) { return cgr_standing_take(engine_->rt, 0, 0, row); }
  cgr_status Swap(int32_t row, int32_t other) { return cgr_standing_swap(engine_->rt, 0, 0, row, other); }
  // Steps without another edit; every member decodes.
  void Step() {
    std::vector<Item> items = engine_->Decode(engine_->StandingRows());
    CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
};

TEST_P(Standing, StepsAndEdits) {
  Engine &e = *engine_;
  for (int32_t row : rows_)
    CGR_ASSERT_OK(Put(row));
  for (int n = 0; n < 4; n++)
    ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(e.step.bytes_staged, 64u) << "a header alone";
  CGR_ASSERT_OK(Take(rows_[0]));
  EXPECT_EQ(e.StandingRows(), (std::vector<int32_t>{ rows_[2], rows_[1] }));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(e.step.bytes_staged, 64u + 16u);
  CGR_ASSERT_OK(Swap(rows_[2], rows_[1]));
  ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_EQ(e.step.bytes_staged, 64u + 32u);
  e.StepStanding({ { rows_[0], { 7, 8, 9 } }, { rows_[1], { CGR_TOKEN_LAST } } });
  e.StepStanding({ { rows_[1], { CGR_TOKEN_LAST } }, { rows_[0], {} } });
  e.StepStanding({ { rows_[1], { 3 }, true } });
  e.StepStanding({ { rows_[1], { 3, 4 } }, { rows_[0], { CGR_TOKEN_LAST, 2, 3 } } });
  e.CheckRows();
  e.CheckCaches();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Standing);

} // namespace
} // namespace cgr_test

// Agreements, barriers and reports allocate nothing, nor do those that are refused.
#include "tests/ranks/rank_engine.h"
#include "tests/support/count_allocations.h"

namespace cgr_test {
namespace {

TEST(Alloc, NothingIsAllocatedToAgree) {
#if !CGR_COUNT_MALLOC
  GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  const std::string name = NewBoardName();
  uint64_t before[2] = {}, after[2] = {};
  OnRanks(2, [&](int rank) {
    RankEngine e(name, rank, 2);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    CGR_ASSERT_OK(e.Capture());
    e.Open();
    const RankEngine::Work work = { { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } },
                           closed = { { 2 }, { 1 }, { 5 }, { 0 } };
    const RankEngine::Work nothing;
    static char text[2][4096];
    size_t length = 0;
    bool good = e.Agree(work) == CGR_OK && cgr_ranks_barrier(e.ranks, "before") == CGR_OK;
    before[rank] = num_allocations;
    good = good && cgr_ranks_barrier(e.ranks, "both have counted") == CGR_OK;
    for (int i = 0; i < 100 && good; i++) {
      good = e.Agree(rank == i % 2 ? work : nothing) == CGR_OK && cgr_ranks_barrier(e.ranks, "between") == CGR_OK;
      good = good && e.Agree(rank == 0 ? closed : work) == (rank == 0 ? CGR_ERROR_ROW_CLOSED : CGR_ERROR_RANK);
      good = good && cgr_ranks_report(e.ranks, text[rank], sizeof text[rank], &length) == CGR_OK && length > 100;
    }
    good = good && cgr_ranks_barrier(e.ranks, "after") == CGR_OK;
    after[rank] = num_allocations;
    EXPECT_TRUE(good && cgr_ranks_barrier(e.ranks, "both have counted again") == CGR_OK) << cgr_last_message();
  });
  EXPECT_GT(before[0], 0u) << "the test does not see allocations";
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
}

} // namespace
} // namespace cgr_test

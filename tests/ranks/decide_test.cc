// What ranks decide is the same on all of them and what a plain rule says; of what differs, the rank that has least company is
// named.
#include <algorithm>
#include <map>
#include <vector>

#include "cgr/names.h"
#include "cgr/ranks.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Proposals = std::vector<cgr_rank_proposal>;

// Counts that a batch can have; or none.
cgr_batch_counts RandomCounts(Random *random) {
  cgr_batch_counts c = CGR_BATCH_COUNTS_INIT;
  if (random->OneIn(4))
    return c;
  c.num_requests = random->Pick32(1, 6);
  c.variant = 3;
  if (random->OneIn(2)) {
    c.query_len = c.max_query_len = random->Pick32(1, 3);
    c.num_tokens = c.num_requests * c.query_len;
    return c;
  }
  for (int32_t i = 0; i < c.num_requests; i++) {
    const int32_t len = random->Pick32(1, 9);
    c.num_tokens += len;
    c.max_query_len = std::max(c.max_query_len, len);
  }
  return c;
}

Proposals Alike(int32_t num_ranks) {
  cgr_rank_proposal p = CGR_RANK_PROPOSAL_INIT;
  p.agreement = 12, p.keys = 0xabcdef, p.steps = 7, p.history = 0x1234;
  p.last.kind = CGR_KIND_FULL, p.last.num_requests = p.last.num_tokens = 4;
  return Proposals(size_t(num_ranks), p);
}

cgr_status Decide(const Proposals &p, int32_t rule, cgr_batch_counts *counts) {
  *counts = CGR_BATCH_COUNTS_INIT;
  return cgr_ranks_decide(p.data(), int32_t(p.size()), rule, counts);
}

cgr_batch_counts Largest(const Proposals &proposals) {
  cgr_batch_counts most = CGR_BATCH_COUNTS_INIT;
  std::map<int32_t, int> query_lens;
  for (const cgr_rank_proposal &p : proposals) {
    if (p.counts.num_requests == 0)
      continue;
    most.num_requests = std::max(most.num_requests, p.counts.num_requests);
    most.num_tokens = std::max(most.num_tokens, p.counts.num_tokens);
    most.max_query_len = std::max(most.max_query_len, p.counts.max_query_len);
    most.variant = p.counts.variant;
    query_lens[p.counts.query_len]++;
  }
  most.query_len = query_lens.size() == 1 ? query_lens.begin()->first : 0;
  return most;
}

TEST(Decide, TheLargestCountsOfRandomProposals) {
  ForSeeds(3000, [](Random &random) {
    Proposals p = Alike(random.Pick32(1, 8));
    for (cgr_rank_proposal &one : p)
      one.counts = RandomCounts(&random), one.usable = random.Bits(), one.last.num_tokens = random.Pick32(1, 9);
    const cgr_batch_counts expected = Largest(p);
    for (int turn = 0; turn < 2; turn++) { // the order of ranks does not matter
      cgr_batch_counts counts;
      CGR_ASSERT_OK(Decide(p, CGR_RANKS_LARGEST, &counts));
      ASSERT_EQ(std::memcmp(&counts, &expected, sizeof counts), 0);
      std::reverse(p.begin(), p.end());
    }
  });
}

TEST(Decide, TheSameCountsOfRandomProposals) {
  ForSeeds(1000, [](Random &random) {
    Proposals p = Alike(random.Pick32(2, 8));
    const cgr_batch_counts given = RandomCounts(&random);
    for (cgr_rank_proposal &one : p)
      one.counts = given;
    cgr_batch_counts counts;
    CGR_ASSERT_OK(Decide(p, CGR_RANKS_SAME, &counts));
    ASSERT_EQ(std::memcmp(&counts, &given, sizeof counts), 0);
    int32_t rank = random.Pick32(1, int32_t(p.size()) - 1);
    cgr_batch_counts &other = p[size_t(rank)].counts;
    int32_t *fields[] = { &other.num_requests, &other.num_tokens, &other.query_len, &other.max_query_len };
    ++*fields[random.Pick(0, 3)];
    ExpectMessage(Decide(p, CGR_RANKS_SAME, &counts), CGR_ERROR_RANK,
                  { "cgr_ranks_decide: rank " + std::to_string(rank) + " has a batch of " });
  });
}

// One number of one rank is another one: that rank is named, unless there are two.
TEST(Decide, NamesTheRankThatDiffers) {
  struct Number {
    uint64_t cgr_rank_proposal::*field;
    std::string says;
  };
  const Number numbers[] = { { &cgr_rank_proposal::agreement, " is at agreement 13, rank " },
                             { &cgr_rank_proposal::keys, " has keys, rules of dispatch or a model with the hash " },
                             { &cgr_rank_proposal::steps, " has launched 8 steps, rank " },
                             { &cgr_rank_proposal::history, " has launched other keys than rank " } };
  for (int32_t n = 2; n <= 8; n++)
    for (int32_t rank = 0; rank < n; rank++)
      for (const Number &number : numbers) {
        Proposals p = Alike(n);
        p[size_t(rank)].*number.field += 1;
        cgr_batch_counts counts;
        const int32_t named = n == 2 ? 1 : rank;
        std::string says = number.says;
        if (n == 2 && rank == 0 && says.find("13") != std::string::npos)
          says.replace(says.find("13"), 2, "12");
        if (n == 2 && rank == 0 && says.find("8 steps") != std::string::npos)
          says.replace(says.find("8 steps"), 7, "7 steps");
        ExpectMessage(Decide(p, CGR_RANKS_LARGEST, &counts), CGR_ERROR_RANK,
                      { "cgr_ranks_decide: rank " + std::to_string(named) + says });
      }
}

// What comes first tells most: a rank that has skipped an agreement differs in all of them.
TEST(Decide, NamesTheFirstOfManyDifferences) {
  Proposals p = Alike(3);
  p[2].agreement++, p[1].keys++, p[0].steps++, p[0].history++;
  cgr_batch_counts counts;
  ExpectMessage(Decide(p, 0, &counts), CGR_ERROR_RANK, { "rank 2 is at agreement 13, rank 0 at 12: expected calls in step" });
  p[2].agreement--;
  ExpectMessage(Decide(p, 0, &counts), CGR_ERROR_RANK, { "rank 1 has keys, rules of dispatch" });
  p[1].keys--;
  ExpectMessage(Decide(p, 0, &counts), CGR_ERROR_RANK, { "rank 0 has launched 8 steps, rank 1 7: expected every rank" });
  p[0].steps--;
  ExpectMessage(Decide(p, 0, &counts), CGR_ERROR_RANK,
                { "rank 0 has launched other keys than rank 1 in 7 steps, the last as full 4r 4t q0 v0 and full 4r 4t q0 v0" });
  p[0].history--;
  CGR_EXPECT_OK(Decide(p, 0, &counts));
}

// A rank that does not know its steps accuses none; nor does one that has failed, which is what all are told.
TEST(Decide, ComparesNoStepsThatARankDoesNotKnow) {
  Proposals p = Alike(4);
  cgr_batch_counts counts;
  p[1].steps = p[1].history = 0, p[2].history++;
  CGR_EXPECT_OK(Decide(p, CGR_RANKS_LARGEST, &counts));
  p = Alike(4);
  p[3].steps++, p[2].status = CGR_ERROR_DEAD, p[3].status = CGR_ERROR_STATE;
  ExpectMessage(Decide(p, CGR_RANKS_LARGEST, &counts), CGR_ERROR_RANK,
                { "cgr_ranks_decide: rank 2 cannot run its batch: CGR_ERROR_DEAD (" });
  p[0].keys++;
  ExpectMessage(Decide(p, CGR_RANKS_LARGEST, &counts), CGR_ERROR_RANK, { "rank 0 has keys, rules of dispatch" });
}

TEST(Decide, Refuses) {
  Proposals p = Alike(65);
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  const auto refused = [&](int32_t num_ranks, int32_t rule, cgr_status status, const std::string &says) {
    ExpectMessage(cgr_ranks_decide(p.data(), num_ranks, rule, &counts), status, { "cgr_ranks_decide: " + says });
  };
  CGR_EXPECT_OK(cgr_ranks_decide(p.data(), 64, CGR_RANKS_SAME, &counts));
  refused(0, 0, CGR_ERROR_INVALID_ARGUMENT, "num_ranks is 0, expected 1 .. 64");
  refused(65, 0, CGR_ERROR_INVALID_ARGUMENT, "num_ranks is 65, expected 1 .. 64");
  refused(2, 2, CGR_ERROR_INVALID_ENUM, "rule is 2, expected ");
  refused(2, -1, CGR_ERROR_INVALID_ENUM, "rule is -1, expected ");
  p[1].size += 8;
  refused(2, 0, CGR_ERROR_INVALID_STRUCT, "proposals[1]");
  p[1].size -= 8;
  p[1].counts.size = 24;
  refused(2, 0, CGR_ERROR_INVALID_STRUCT, "proposals[1].counts.size is 24, expected 0 or 32");
  p = Alike(3);
  p[1].counts.num_requests = p[1].counts.num_tokens = p[2].counts.num_requests = p[2].counts.num_tokens = 1;
  p[2].counts.variant = 5;
  refused(3, 0, CGR_ERROR_INVALID_ARGUMENT, "rank 2 has a batch of variant 5, rank 1 of variant 0: expected one");
  ExpectMessage(cgr_ranks_decide(nullptr, 1, 0, &counts), CGR_ERROR_NULL_POINTER, { "cgr_ranks_decide: proposals" });
  ExpectMessage(cgr_ranks_decide(p.data(), 1, 0, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_ranks_decide: counts" });
  counts.size = 0;
  refused(1, 0, CGR_ERROR_INVALID_STRUCT, "counts: size is 0");
}

} // namespace
} // namespace cgr_test

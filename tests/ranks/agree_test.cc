// Ranks that agree before each step run the same keys in the same order, whatever each of them has to do; a rank that goes astray
// is named by the others before the next step.
#include <chrono>

#include "tests/ranks/rank_engine.h"

namespace cgr_test {
namespace {

std::string TextOf(const cgr_key &key) {
  return std::to_string(key.kind) + " " + std::to_string(key.num_requests) + "r " + std::to_string(key.num_tokens) + "t q" +
         std::to_string(key.query_len);
}

std::string ReportOf(cgr_ranks *ranks) {
  size_t length = 0;
  CGR_EXPECT_OK(cgr_ranks_report(ranks, nullptr, 0, &length));
  std::string text(length + 1, 'x');
  CGR_EXPECT_OK(cgr_ranks_report(ranks, text.data(), text.size(), &length));
  text.resize(std::min(length, text.size() - 1));
  return text;
}

class Agreement : public ::testing::TestWithParam<int> {};

// A random step of one rank: requests come and go, and some ranks have nothing to do.
void RandomStep(RankEngine *e, Random *random, std::vector<std::string> *keys) {
  if (e->requests.size() < 2 && random->OneIn(3))
    e->Open();
  for (size_t i = 0; i < e->requests.size(); i++)
    if (e->requests[i].length == 32 || random->OneIn(40))
      return e->Close(i), RandomStep(e, random, keys);
  const RankEngine::Work work = e->Choose(random, random->OneIn(6), 3 * e->place.exchange.num_ranks);
  CGR_ASSERT_OK(e->Agree(work));
  keys->push_back(TextOf(e->agreed.key));
  if (e->agreed.idle < e->place.exchange.num_ranks)
    e->Run(work, e->agreed.key);
}

TEST_P(Agreement, GivesAllRanksTheSameKeysInTheSameOrder) {
  const int n = GetParam(), steps = 2000 / (n * n);
  const std::string name = NewBoardName();
  const uint64_t seed = Seed();
  std::vector<std::vector<std::string>> keys(static_cast<size_t>(n));
  OnRanks(n, [&](int rank) {
    RankEngine e(name, rank, n);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    CGR_ASSERT_OK(e.Capture());
    Random random(seed + uint64_t(rank) * 1000);
    for (int s = 0; s < steps && !::testing::Test::HasFatalFailure(); s++)
      RandomStep(&e, &random, &keys[size_t(rank)]);
  });
  ASSERT_EQ(keys[0].size(), size_t(steps)) << Repeat(seed);
  std::map<std::string, int> kinds;
  for (const std::string &key : keys[0])
    kinds[key]++;
  EXPECT_GE(kinds.size(), n < 4 ? 3u : 2u) << "the steps are too much alike";
  for (const auto &of_rank : keys)
    EXPECT_EQ(of_rank, keys[0]) << Repeat(seed);
}
INSTANTIATE_TEST_SUITE_P(Of, Agreement, ::testing::Values(1, 2, 4), ::testing::PrintToStringParamName());

// What a rank with two decodes and one with none agree on, with the counts of each.
TEST(AgreementOfTwo, IsOnTheLargestCounts) {
  OnCaptured(2, [&](int rank, RankEngine &e) {
    Random random(1);
    e.Open();
    e.Open();
    RankEngine::Work work;
    if (rank == 0)
      work = { { e.requests[0].row, e.requests[1].row }, { 1, 1 }, { e.requests[0].next, e.requests[1].next }, { 0, 1 } };
    CGR_ASSERT_OK(e.Agree(work));
    EXPECT_EQ(TextOf(e.agreed.key), "2 3r 3t q1");
    EXPECT_EQ(e.agreed.idle, 1);
    EXPECT_EQ(e.agreed.number, 1u);
    EXPECT_EQ(e.agreed.eager_rank, -1);
    for (int32_t r = 0; r < 2; r++) {
      cgr_rank_proposal p = CGR_RANK_PROPOSAL_INIT;
      CGR_ASSERT_OK(cgr_ranks_proposal(e.ranks, r, &p));
      EXPECT_EQ(p.counts.num_tokens, r == 0 ? 2 : 0);
    }
    e.Run(work, e.agreed.key);
  });
}

// A rank whose capture has failed keeps all from replaying, and is named; captured again, all replay.
TEST(AgreementOfThree, RunsEagerlyWhereARankHasNoGraph) {
  OnCaptured(3, [&](int rank, RankEngine &e) {
    e.Open();
    const RankEngine::Work work = { { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } };
    if (rank == 2)
      CGR_ASSERT_OK(cgr_runtime_release_graphs(e.engine.rt, 0, nullptr));
    CGR_ASSERT_OK(e.Agree(work));
    EXPECT_EQ(e.agreed.eager_rank, 2);
    EXPECT_EQ(TextOf(e.agreed.key), "0 1r 1t q0");
    e.Run(work, e.agreed.key);
    CGR_ASSERT_OK(e.Capture());
    const RankEngine::Work next = { work.rows, { 1 }, { e.requests[0].next }, { 0 } };
    CGR_ASSERT_OK(e.Agree(next));
    EXPECT_EQ(e.agreed.eager_rank, -1);
    EXPECT_EQ(TextOf(e.agreed.key), "2 1r 1t q1");
    e.Run(next, e.agreed.key);
  });
}

// ------------------------------------------------------------------------------------------------------------------ astray

// What rank 1 does between two agreements, and what all are told at the second.
struct Astray {
  const char *name;
  std::function<void(RankEngine *, const RankEngine::Work &)> does;
  std::string says;
};

void RunWith(RankEngine *e, const RankEngine::Work &work, int32_t requests, int32_t tokens) {
  cgr_key key = CGR_KEY_INIT;
  key.num_requests = requests, key.num_tokens = tokens;
  e->Run(work, key);
}

const Astray kAstray[] = {
  { "SkipsAStep", [](RankEngine *, const RankEngine::Work &) {}, "rank 1 has launched 1 step, rank 0 2: expected every rank to" },
  { "LaunchesAnotherKey", [](RankEngine *e, const RankEngine::Work &w) { RunWith(e, w, 2, 5); },
    "rank 1 has launched other keys than rank 0 in 2 steps, the last as none 2r 5t q0 v0 and full 1r 1t q1 v0" },
  { "LaunchesTwice",
    [](RankEngine *e, const RankEngine::Work &w) {
      e->Run(w, e->agreed.key);
      RunWith(e, { {}, {}, {}, {} }, 1, 1);
    },
    "rank 1 has launched 3 steps, rank 0 2" },
};

class RankAstray : public ::testing::TestWithParam<Astray> {};

TEST_P(RankAstray, IsNamedByAll) {
  OnCaptured(3, [&](int rank, RankEngine &e) {
    e.Open();
    const auto work = [&] { return RankEngine::Work{ { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } }; };
    CGR_ASSERT_OK(e.Agree(work()));
    e.Run(work(), e.agreed.key);
    CGR_ASSERT_OK(e.Agree(work()));
    if (rank == 1)
      GetParam().does(&e, work());
    else
      e.Run(work(), e.agreed.key);
    ExpectMessage(e.Agree(work()), CGR_ERROR_RANK, { "cgr_ranks_agree: " + GetParam().says });
    ExpectMessage(e.Agree(work()), CGR_ERROR_RANK,
                  { "cgr_ranks_agree: the ranks have parted: cgr_ranks_agree: ", GetParam().says });
    EXPECT_EQ(ReportOf(e.ranks).find("The ranks have parted: "), 0u);
  });
}
INSTANTIATE_TEST_SUITE_P(That, RankAstray, ::testing::ValuesIn(kAstray),
                         [](const auto &astray) { return std::string(astray.param.name); });

// Steps before the first agreement are a rank's own. A rank that has launched more than the flight recorder keeps accuses none,
// and all begin to count anew: a step that is skipped afterwards is seen.
TEST(AgreementOfTwo, CountsStepsAsFarAsTheyAreKnown) {
  const std::string name = NewBoardName();
  OnRanks(2, [&](int rank) {
    RankEngine e(name, rank, 2);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    cgr_key key = CGR_KEY_INIT;
    key.num_requests = key.num_tokens = 1;
    const auto run = [&](int times) {
      for (int i = 0; i < times; i++)
        e.Run({}, key);
    };
    bool known = true;
    const auto steps = [&](int32_t of) {
      cgr_rank_proposal p = CGR_RANK_PROPOSAL_INIT;
      CGR_EXPECT_OK(cgr_ranks_proposal(e.ranks, of, &p));
      known = p.history != 0;
      return p.steps;
    };
    run(rank == 0 ? 3 : 5);
    CGR_ASSERT_OK(e.Agree({}));
    EXPECT_EQ(steps(1), 0u);
    for (const int times : { 1, 9, 100, 256 }) {
      run(times);
      CGR_ASSERT_OK(e.Agree({}));
    }
    EXPECT_EQ(steps(1), 366u);
    run(rank == 0 ? 20 : 300);
    CGR_ASSERT_OK(e.Agree({}));
    EXPECT_EQ(steps(0), 386u);
    EXPECT_TRUE(known);
    EXPECT_EQ(steps(1), 0u);
    EXPECT_FALSE(known);
    run(2);
    CGR_ASSERT_OK(e.Agree({}));
    EXPECT_EQ(steps(0), 2u);
    run(rank);
    ExpectMessage(e.Agree({}), CGR_ERROR_RANK,
                  { "cgr_ranks_agree: rank 1 has launched 3 steps, rank 0 2: expected every rank to" });
  });
}

// A rank that waits tells who is missing, and goes on when that one comes.
TEST(AgreementOfTwo, NamesTheRankThatIsMissingAndGoesOnWhenItComes) {
  const std::string name = NewBoardName();
  std::atomic<bool> told{ false };
  OnRanks(2, [&](int rank) {
    RankEngine e(name, rank, 2, CGR_RANKS_LARGEST, 500);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    if (rank == 1) {
      CGR_EXPECT_OK(cgr_ranks_note(e.ranks, "loads its adapter"));
      while (!told)
        std::this_thread::yield();
    }
    cgr_status status = e.Agree({});
    if (rank == 0) {
      ExpectMessage(status, CGR_NOT_READY, { "cgr_ranks_agree: not here within 500 ms: rank 1 (cgr_ranks_report tells more)" });
      const std::string text = ReportOf(e.ranks);
      EXPECT_NE(text.find("rank 0 (this one): in cgr_ranks_agree for "), std::string::npos) << text;
      EXPECT_NE(text.find(", waits for rank 1; agreement 0; launched step 0"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1: in none of these calls for "), std::string::npos) << text;
      EXPECT_NE(text.find("\"loads its adapter\" for "), std::string::npos) << text;
      ExpectMessage(cgr_ranks_barrier(e.ranks, "other"), CGR_ERROR_STATE, { "cgr_ranks_agree waits for other ranks" });
      told = true;
    }
    while (status == CGR_NOT_READY)
      status = e.Agree({});
    CGR_EXPECT_OK(status);
    EXPECT_EQ(e.agreed.number, 1u);
    EXPECT_EQ(e.agreed.idle, 2);
  });
}

TEST(AgreementOfTwo, TellsAllOfABatchThatOneCannotRun) {
  OnCaptured(2, [&](int rank, RankEngine &e) {
    const RankEngine::Work bad = { { 2 }, { 1 }, { 5 }, { 0 } };
    const cgr_status status = e.Agree(rank == 1 ? bad : RankEngine::Work{});
    if (rank == 1)
      ExpectMessage(status, CGR_ERROR_ROW_CLOSED, { "cgr_ranks_agree: " });
    else
      ExpectMessage(status, CGR_ERROR_RANK, { "cgr_ranks_agree: rank 1 cannot run its batch: CGR_ERROR_ROW_CLOSED" });
    CGR_EXPECT_OK(e.Agree({})); // and all go on
  });
}

// Every rank returns, and the ranks that captured have their graphs.
TEST(AgreementOfTwo, TellsAllOfACaptureThatFails) {
  const std::string name = NewBoardName();
  OnRanks(2, [&](int rank) {
    RankEngine e(name, rank, 2);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    cgr_capture bad = CGR_CAPTURE_INIT;
    bad.record = [](cgr_recorder *, void *) { return CGR_ERROR_UNSUPPORTED; };
    if (rank == 1)
      ExpectMessage(cgr_ranks_capture(e.ranks, &bad), CGR_ERROR_CALLBACK, { "cgr_ranks_capture: " });
    else
      ExpectMessage(e.Capture(), CGR_ERROR_RANK, { "cgr_ranks_capture: the capture of rank 1 has failed: CGR_ERROR_CALLBACK" });
    CGR_EXPECT_OK(cgr_ranks_barrier(e.ranks, "afterwards"));
    CGR_EXPECT_OK(e.Capture());
  });
}

TEST(AgreementOfTwo, RefusesRanksThatAreNotAlike) {
  const auto differs = [](int32_t rank, cgr_ranks_rule rule, std::function<void(cgr_config *)> adjust, const std::string &name) {
    RankEngine e(name, rank, 2, rank == 1 ? rule : CGR_RANKS_LARGEST, 20000, rank == 1 ? std::move(adjust) : nullptr);
    EXPECT_EQ(e.status, CGR_ERROR_RANK);
    return e.message;
  };
  std::string name = NewBoardName();
  OnRanks(2, [&](int rank) {
    const auto other = [](cgr_config *config) { config->max_padding = 3.0f; };
    const std::string says = differs(rank, CGR_RANKS_LARGEST, other, name);
    EXPECT_EQ(says.find("cgr_ranks_create: rank 1 has keys, rules of dispatch or a model with the hash "), 0u) << says;
  });
  name = NewBoardName();
  OnRanks(2, [&](int rank) {
    const std::string says = differs(rank, CGR_RANKS_SAME, nullptr, name);
    EXPECT_NE(says.find("expected the same on all ranks"), std::string::npos) << says;
  });
  name = NewBoardName();
  OnRanks(2, [&](int rank) {
    RankEngine e(name, rank, 2, CGR_RANKS_SAME);
    ASSERT_EQ(e.status, CGR_OK) << e.message;
    e.Open();
    const RankEngine::Work one = { { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } };
    ExpectMessage(e.Agree(rank == 1 ? one : RankEngine::Work{}), CGR_ERROR_RANK,
                  { "rank 1 has a batch of 1 request and 1 token, rank 0 of 0 and 0: expected the same (CGR_RANKS_SAME)" });
    ExpectMessage(rank == 1 ? e.Agree({}) : cgr_ranks_barrier(e.ranks, "alone"), CGR_ERROR_RANK,
                  { "rank ", "cgr_ranks_agree", "cgr_ranks_barrier alone", "expected the same call" });
  });
}

} // namespace
} // namespace cgr_test

// A small mixture of experts, spread over ranks that each have requests of their own: what the key must pad to, what is set
// back before each replay, and experts that a mask takes out. Rows go to the experts' ranks and back in all-to-alls of the
// adapter for NCCL, in FULL and PIECEWISE graphs and eager steps, over a fake NCCL.
#include "tests/ranks/rank_engine.h"
#include "tests/support/fake_nccl.h"

namespace cgr_test {
namespace {

enum { kDim = 4, kExpertsEach = 2, kMost = TinyEngine::kTokens, kRanks = 4 };

// A token on its way. The words of its values are integers, so that all is exact.
struct Row {
  int32_t token, expert, value[kDim];
};

// What an expert makes of a token's vector.
int32_t Value(int32_t token, int32_t i) { return 17 * token + 3 * i; }
int32_t Expected(int32_t token, int32_t expert, int32_t i) { return (expert + 1) * Value(token, i) + expert; }

// The router's choice: the first expert from the token's own on whose rank the mask has.
int32_t ExpertOf(int32_t token, uint32_t mask, int32_t num_ranks) {
  const int32_t experts = kExpertsEach * num_ranks;
  int32_t expert = token * 5 % experts;
  while (!(mask >> expert / kExpertsEach & 1))
    expert = (expert + 1) % experts;
  return expert;
}

// Of one rank, on its device. Rows of one rank are `tokens` apart, which is the key's number: the same on all ranks.
struct Layer {
  Row *sent, *got, *back, *returned; // [ranks][tokens]
  int32_t *num_sent, *num_got;       // [ranks] dispatched so far in this step: set back before it
  int32_t *out;                      // [kMost][kDim]
  int32_t *bad, *computed;           // slots that there were none for; rows of this rank's experts
  uint32_t *mask;                    // of ranks whose experts may be chosen
  const int32_t *ids, *counts;
  int32_t rank, num_ranks, tokens, reserved;
};

void Dispatch(const void *args) {
  const Layer &l = *static_cast<const Layer *>(args);
  for (int32_t t = 0; t < l.counts[CGR_COUNT_TOKENS]; t++) {
    Row row = { t, ExpertOf(l.ids[t], *l.mask, l.num_ranks), {} };
    for (int32_t i = 0; i < kDim; i++)
      row.value[i] = Value(l.ids[t], i);
    const int32_t to = row.expert / kExpertsEach, slot = l.num_sent[to]++;
    if (slot < l.tokens)
      l.sent[to * l.tokens + slot] = row;
    else
      ++*l.bad;
  }
}

void Compute(const void *args) {
  const Layer &l = *static_cast<const Layer *>(args);
  for (int32_t from = 0; from < l.num_ranks; from++)
    for (int32_t slot = 0; slot < std::min(l.num_got[from], l.tokens); slot++) {
      Row &row = l.got[from * l.tokens + slot];
      *l.bad += row.expert / kExpertsEach != l.rank;
      ++*l.computed;
      for (int32_t &value : row.value)
        value = (row.expert + 1) * value + row.expert;
      l.back[from * l.tokens + slot] = row;
    }
}

void Combine(const void *args) {
  const Layer &l = *static_cast<const Layer *>(args);
  for (int32_t from = 0; from < l.num_ranks; from++)
    for (int32_t slot = 0; slot < std::min(l.num_sent[from], l.tokens); slot++) {
      const Row &row = l.returned[from * l.tokens + slot];
      std::memcpy(l.out + row.token * kDim, row.value, sizeof row.value);
    }
}

// One rank, with a batch of its own.
class ExpertRank {
public:
  ExpertRank(FakeNccl *fake, const std::string &name, int rank, int num_ranks, cgr_graph_mode mode)
      : num_ranks_(num_ranks), e(new RankEngine(name, rank, num_ranks, CGR_RANKS_LARGEST, 20000, nullptr, mode,
                                                [this](cgr_recorder *recorder) { return Record(recorder); })) {
    const size_t n = size_t(num_ranks);
    layer.rank = rank, layer.num_ranks = num_ranks;
    for (Row **rows : { &layer.sent, &layer.got, &layer.back, &layer.returned })
      *rows = New<Row>(n * kMost);
    layer.num_sent = New<int32_t>(n), layer.num_got = New<int32_t>(n);
    layer.out = New<int32_t>(kMost * kDim);
    layer.bad = New<int32_t>(1), layer.computed = New<int32_t>(1), layer.mask = New<uint32_t>(1);
    *layer.mask = (1u << num_ranks) - 1;
    MakeNccl(fake);
    CGR_EXPECT_OK(e->Capture());
  }
  ~ExpertRank() {
    e.reset(); // the runtime, and then the communicator
    CGR_EXPECT_OK(cgr_nccl_destroy(nccl_));
  }
  ExpertRank(const ExpertRank &) = delete;
  ExpertRank &operator=(const ExpertRank &) = delete;

  // The hook before a replay: what dispatch counts in is set back, and the mask is the step's. In the step's stream, so that it
  // waits for the step before.
  void BeforeStep(uint32_t mask) {
    CGR_EXPECT_OK(cgr_fill(e->device, layer.num_sent, 0, size_t(num_ranks_) * sizeof(int32_t), e->engine.stream));
    mask_ = mask;
    CGR_EXPECT_OK(cgr_copy(e->device, layer.mask, &mask_, sizeof mask_, e->engine.stream));
  }
  // Every token of the batch has what its expert makes of it.
  void Check(const RankEngine::Work &work, uint32_t mask) const {
    EXPECT_EQ(*layer.bad, 0);
    for (size_t t = 0; t < work.tokens.size(); t++)
      for (int32_t i = 0; i < kDim; i++)
        ASSERT_EQ(layer.out[t * kDim + size_t(i)], Expected(work.tokens[t], ExpertOf(work.tokens[t], mask, num_ranks_), i))
            << "token " << t << " of " << work.tokens.size();
  }

private:
  template <typename T> T *New(size_t count) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(e->device, count * sizeof(T), &memory));
    std::memset(memory, 0, count * sizeof(T));
    e->engine.memory.push_back(memory);
    return static_cast<T *>(memory);
  }
  void MakeNccl(FakeNccl *fake) {
    const cgr_nccl_functions functions = FakeNccl::Functions();
    cgr_nccl_config config = CGR_NCCL_CONFIG_INIT;
    config.functions = &functions;
    config.exchange = &e->place.exchange;
    config.name = "ep";
    fake->MakeCurrent(e->device);
    CGR_EXPECT_OK(cgr_nccl_create(e->engine.rt, &config, &nccl_));
  }
  cgr_status Swap(cgr_recorder *recorder, const Row *send, Row *receive, int32_t tokens, bool counts) const {
    cgr_nccl_call calls[2] = { CGR_NCCL_CALL_INIT, CGR_NCCL_CALL_INIT };
    calls[0].send = send, calls[0].recv = receive, calls[0].count = uint64_t(tokens) * sizeof(Row) / sizeof(int32_t);
    calls[1].send = layer.num_sent, calls[1].recv = layer.num_got, calls[1].count = 1;
    for (cgr_nccl_call &call : calls)
      call.kind = CGR_NCCL_ALL_TO_ALL, call.dtype = CGR_DTYPE_I32, call.label = counts ? "dispatch" : "combine";
    return cgr_nccl_record(recorder, nccl_, calls, counts ? 2 : 1);
  }
  cgr_status Record(cgr_recorder *recorder) {
    cgr_status status = CGR_OK;
    const auto ok = [&](cgr_status s) { return status = status == CGR_OK ? s : status; };
    const cudaStream_t stream = InfoOf(recorder).stream;
    Layer l = layer;
    l.tokens = InfoOf(recorder).num_tokens; // the key's: all ranks send and expect so much
    l.ids = RecordBuffer(recorder, CGR_BUFFER_INPUT_IDS, &status);
    l.counts = RecordBuffer(recorder, CGR_BUFFER_COUNTS, &status);
    ok(cgr_launch_host(e->device, Dispatch, &l, sizeof l, stream));
    ok(Swap(recorder, l.sent, l.got, l.tokens, true));
    ok(cgr_launch_host(e->device, Compute, &l, sizeof l, stream));
    ok(Swap(recorder, l.back, l.returned, l.tokens, false));
    return ok(cgr_launch_host(e->device, Combine, &l, sizeof l, stream));
  }

  const int num_ranks_;
  uint32_t mask_ = 0;
  cgr_nccl *nccl_ = nullptr;

public:
  Layer layer = {};
  std::unique_ptr<RankEngine> e;
};

// The same on all ranks: of every third agreement on, one rank's experts are out for a while.
uint32_t MaskOf(uint64_t agreement, int num_ranks) {
  const uint32_t all = (1u << num_ranks) - 1;
  return agreement / 16 % 3 != 2 ? all : all & ~(1u << agreement / 48 % uint64_t(num_ranks));
}

// What a rank has seen.
struct Seen {
  int steps = 0, idle = 0, masked = 0, padded = 0, tokens = 0;
};

// A random step of one rank, which may have nothing to do.
void RandomStep(ExpertRank *rank, Random *random, Seen *seen) {
  RankEngine &e = *rank->e;
  const int n = e.place.exchange.num_ranks;
  for (size_t i = e.requests.size(); i-- > 0;)
    if (e.requests[i].length == 32 || random->OneIn(30))
      e.Close(i);
  if (e.requests.size() < 2 && random->OneIn(3))
    e.Open();
  const RankEngine::Work work = e.Choose(random, random->OneIn(4));
  CGR_ASSERT_OK(e.Agree(work));
  if (e.agreed.idle == n)
    return;
  const uint32_t mask = MaskOf(e.agreed.number, n);
  const int32_t computed = *rank->layer.computed;
  rank->BeforeStep(mask);
  e.Run(work, e.agreed.key);
  rank->Check(work, mask);
  const bool out = !(mask >> rank->layer.rank & 1);
  if (out) {
    EXPECT_EQ(*rank->layer.computed, computed) << "an expert that the mask takes out has computed";
  }
  seen->steps++;
  seen->idle += work.tokens.empty();
  seen->masked += out;
  seen->padded += int32_t(work.tokens.size()) < e.agreed.key.num_tokens;
  seen->tokens += int(work.tokens.size());
}

class Experts : public ::testing::TestWithParam<cgr_graph_mode> {};

TEST_P(Experts, OfOtherRanksGetTheTokensOfAll) {
  const std::string name = NewBoardName();
  const uint64_t seed = Seed();
  FakeNccl fake(kRanks);
  std::vector<Seen> seen(kRanks);
  OnRanks(kRanks, [&](int rank) {
    ExpertRank r(&fake, name, rank, kRanks, GetParam());
    Random random(seed + uint64_t(rank) * 1000);
    for (int s = 0; s < 240 && !::testing::Test::HasFailure(); s++)
      RandomStep(&r, &random, &seen[size_t(rank)]);
  });
  EXPECT_FALSE(HasFailure()) << Repeat(seed);
  for (const Seen &s : seen) {
    EXPECT_EQ(s.steps, seen[0].steps) << "an idle rank runs the others' steps, too";
    EXPECT_TRUE(s.idle > 20 && s.masked > 0 && s.padded > 20 && s.tokens > 100)
        << s.idle << " " << s.masked << " " << s.padded << " " << s.tokens;
  }
}
INSTANTIATE_TEST_SUITE_P(In, Experts, ::testing::Values(CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE), [](const auto &mode) {
  return std::string(mode.param == CGR_MODE_FULL ? "Full" : mode.param == CGR_MODE_NONE ? "None" : "Piecewise");
});

// What the hook is for: without it slots are counted on from the step before, until there are none.
TEST(ExpertsAlone, RunOutOfSlotsThatAreNotSetBack) {
  FakeNccl fake(1);
  ExpertRank r(&fake, NewBoardName(), 0, 1, CGR_MODE_FULL);
  r.e->Open();
  for (int s = 0; s < 12; s++) {
    Random random(1);
    const RankEngine::Work work = r.e->Choose(&random, false, 1 << 30);
    CGR_ASSERT_OK(r.e->Agree(work));
    if (s < 4)
      r.BeforeStep(1);
    r.e->Run(work, r.e->agreed.key);
    if (s < 4) {
      EXPECT_EQ(*r.layer.bad, 0);
    }
  }
  EXPECT_GT(*r.layer.bad, 0);
}

} // namespace
} // namespace cgr_test

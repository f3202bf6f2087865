// The self-test names graphs in which any one operation, the engine's or the library's, is missing, executed once and for all at
// the capture, comes too early, or reads or writes a copy of memory. What it does not name changes no result: real replays are
// compared with another engine's eager steps.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tests/support/hash_engine.h"
#include "tests/support/mutator.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

HashOptions Plain() {
  HashOptions o;
  o.chunks = true;
  return o;
}
HashOptions Adapters() {
  HashOptions o;
  o.groups = o.staged = o.branch = o.copies = true;
  return o;
}
HashOptions States() {
  HashOptions o;
  o.mode = CGR_MODE_FULL_AND_PIECEWISE, o.state = o.call = o.variants = true;
  return o;
}

class SelfTestMutants : public ::testing::Test {
protected:
  struct Tally {
    int mutants = 0, named = 0, stopped = 0, harmless = 0;
    std::vector<std::string> missed, loud;
  };

  void SetUp() override {
    seed_ = Seed();
    random_ = std::make_unique<Random>(seed_);
  }
  void TearDown() override { mutator_.reset(); }
  void Make(const HashOptions &options) {
    options_ = options;
    mutator_.reset();
    model_ = std::make_unique<HashEngine>(HostParam(CGR_SCHEDULE_EARLIEST), options);
    CGR_ASSERT_OK(model_->Capture({ model_->Keys()[0] })); // keeps `record`; its steps are eager
    engine_ = std::make_unique<HashEngine>(HostParam(CGR_SCHEDULE_EARLIEST), options);
    mutator_ = std::make_unique<Mutator>(engine_->dev);
  }
  // Captures this key alone. Whether the capture or the self-test complains.
  bool IsNamed(const cgr_key &key, const Mutant &mutant) {
    std::vector<cgr_finding> findings;
    CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    mutator_->Plan(mutant);
    const cgr_status captured = engine_->Capture({ key });
    ops_ = mutator_->ops();
    mutator_->Plan({});
    if (captured != CGR_OK)
      return true;
    const cgr_status status = engine_->SelfTest(uint32_t(random_->Bits()), &findings);
    return status != CGR_OK;
  }
  std::vector<int32_t> Tokens(int32_t count) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; i++)
      tokens.push_back(random_->Pick32(0, HashEngine::kVocabulary - 1));
    return tokens;
  }
  // One step of both engines, whose rows have other numbers. Whether they agree.
  bool Agree(std::vector<HashEngine::Request> requests, const std::vector<int32_t> &models, const cgr_key *key,
             uint32_t variant) {
    int32_t tokens = 0;
    for (const HashEngine::Request &request : requests)
      tokens += int32_t(request.tokens.size());
    const cgr_key eager = { CGR_KIND_NONE, 0, 0, tokens, int32_t(requests.size()), 0, 0, variant, { 0, 0, 0, 0 } };
    const std::vector<int32_t> got = engine_->Step(requests, key != nullptr ? key : &eager, variant);
    for (size_t i = 0; i < models.size(); i++)
      requests[i].row = models[i];
    const std::vector<int32_t> expected = model_->Step(requests, &eager, variant);
    EXPECT_EQ(expected.size(), requests.size());
    return got == expected;
  }
  // Sequences of steps through the graph of `key`, after prompts that run eagerly.
  bool RepliesAreRight(const cgr_key &key) {
    bool right = true;
    for (int trial = 0; trial < 12 && right; trial++) {
      const int32_t n = random_->Pick32(1, key.num_requests);
      std::vector<HashEngine::Request> requests;
      std::vector<int32_t> models;
      for (int32_t i = 0; i < n; i++) {
        requests.push_back({ engine_->Open(), {}, 0 });
        models.push_back(model_->Open());
      }
      for (int step = 0; step < 5 && right; step++) {
        const bool prompt = step == 0 && trial % 4 > 0; // else the graph has the first tokens
        for (int32_t i = 0; i < n; i++) {
          const bool is_long = prompt || (key.query_len == 0 && i + 1 == n);
          requests[size_t(i)].tokens = Tokens(is_long ? random_->Pick32(1, prompt ? 5 : key.num_tokens - n + 1) : 1);
          requests[size_t(i)].data = random_->Pick32(0, 1 << 20);
        }
        bool full = false;
        for (int32_t i = 0; i < n; i++) { // no sequence grows too long
          const int32_t room = HashEngine::kMaxSeqLen - model_->Length(models[size_t(i)]);
          if (int32_t(requests[size_t(i)].tokens.size()) > room)
            requests[size_t(i)].tokens.resize(1);
          full = full || room == 0;
        }
        if (full)
          break;
        right = Agree(requests, models, prompt ? nullptr : &key, key.variant);
      }
      for (int32_t i = 0; i < n && right; i++) {
        engine_->Close(requests[size_t(i)].row);
        model_->Close(models[size_t(i)]);
      }
    }
    return right;
  }
  // In a process of its own: a plan that is missing or old may send the host's kernels anywhere, as it would a GPU's, whose
  // device would then be lost. And with engines of its own: a child's devices from before the fork only answer that they are
  // dead.
  void Try(const cgr_key &key, const Mutant &mutant, const std::string &what, Tally *tally) {
    enum { kNamed = 40, kHarmless, kMissed, kBroken };
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      random_ = std::make_unique<Random>(seed_ + uint64_t(tally->mutants));
      mutator_.reset();
      (void)engine_.release();
      (void)model_.release();
      Make(options_);
      const int answer = IsNamed(key, mutant) ? kNamed : RepliesAreRight(key) ? kHarmless : kMissed;
      _exit(HasFailure() ? kBroken : answer);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const int answer = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    ASSERT_NE(answer, kBroken) << what;
    tally->mutants++;
    tally->named += answer == kNamed;
    tally->harmless += answer == kHarmless;
    tally->stopped += answer < kNamed;
    if (answer == kMissed)
      tally->missed.push_back(what);
    if (answer < kNamed)
      tally->loud.push_back(what);
  }
  std::vector<Mutant> MutantsOf(const std::vector<CapturedOp> &ops, int op) {
    const bool is_engines = ops[size_t(op)].name == "host" || ops[size_t(op)].name == "copy" || ops[size_t(op)].name == "fill";
    std::vector<Mutant> mutants{ { Mutation::kRemoved, op, -1 }, { Mutation::kOnce, op, -1 } };
    if (ops[size_t(op)].first < op)
      mutants.push_back({ Mutation::kEarlier, op, op - 1 });
    if (ops[size_t(op)].first < op - 1)
      mutants.push_back({ Mutation::kEarlier, op, ops[size_t(op)].first });
    const int addresses = ops[size_t(op)].num_addresses;
    if (is_engines)
      for (int a = 0; a < addresses; a++)
        mutants.push_back({ Mutation::kStale, op, a });
    else // the library's name all its buffers: a few of them
      for (int n = 0; n < std::min(addresses, 3); n++)
        mutants.push_back({ Mutation::kStale, op, random_->Pick32(0, addresses - 1) });
    return mutants;
  }

  uint64_t seed_ = 0;
  HashOptions options_;
  std::unique_ptr<Random> random_;
  std::unique_ptr<HashEngine> model_, engine_;
  std::unique_ptr<Mutator> mutator_;
  std::vector<CapturedOp> ops_;
};

TEST_F(SelfTestMutants, AreNamedUnlessTheyAreHarmless) {
  SCOPED_TRACE(Repeat(seed_));
  Tally all;
  for (const HashOptions &options : { Plain(), Adapters(), States() }) {
    Make(options);
    Tally tally;
    std::vector<cgr_key> keys = model_->Keys();
    while (keys.size() > 3) // variants have keys of their own
      keys.erase(keys.begin() + random_->Pick(0, int64_t(keys.size()) - 1));
    for (const cgr_key &key : keys) {
      ASSERT_FALSE(IsNamed(key, {}));
      ASSERT_TRUE(RepliesAreRight(key));
      const std::vector<CapturedOp> ops = ops_;
      ASSERT_GT(ops.size(), 10u);
      for (int op = 0; op < int(ops.size()); op++)
        for (const Mutant &mutant : MutantsOf(ops, op))
          Try(key, mutant,
              "kind " + std::to_string(key.kind) + ", " + std::to_string(key.num_tokens) + " tokens, variant " +
                  std::to_string(key.variant) + ": " + ops[size_t(op)].name + " " + std::to_string(op) + ", mutation " +
                  std::to_string(int(mutant.mutation)) + " " + std::to_string(mutant.other),
              &tally);
    }
    std::printf("%d mutants of %zu keys: %d named, %d stopped the process, %d harmless, %zu missed\n", tally.mutants, keys.size(),
                tally.named, tally.stopped, tally.harmless, tally.missed.size());
    EXPECT_GT(tally.named, tally.mutants / 2);
    all.named += tally.named;
    all.missed.insert(all.missed.end(), tally.missed.begin(), tally.missed.end());
    all.loud.insert(all.loud.end(), tally.loud.begin(), tally.loud.end());
  }
  for (const std::string &missed : all.missed)
    std::printf("  missed: %s\n", missed.c_str());
  for (const std::string &loud : all.loud) // what the library lacks, not the engine
    EXPECT_TRUE(loud.find("planner") != std::string::npos || loud.find("prologue") != std::string::npos) << loud;
  EXPECT_GE(all.named, 99 * int(all.missed.size()));
}

} // namespace
} // namespace cgr_test

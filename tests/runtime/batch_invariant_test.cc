// Batch-invariant attention: a request's results in a batch have the same bits as its results alone.
#include "tests/support/row_engine.h"

#include <algorithm>
#include <memory>

namespace cgr_test {
namespace {

using rows::Answer;
using rows::RowEngine;

// Stretches after a prompt, and tokens of one of them.
enum { kMostMore = 24, kMostTurn = 12 };

// A stretch of a request's tokens that one step takes. `sampled`: the first one is the token that the stretch before gave.
struct Stretch {
  int32_t begin, length;
  bool partial, sampled;
};

// A request from its prompt to its end, and the results of each stretch when it runs alone.
struct Script {
  std::vector<int32_t> tokens;
  std::vector<Stretch> stretches;
  size_t prompt = 0; // stretches of the prompt
  std::vector<Answer> alone;

  void Add(int32_t length, bool partial, bool sampled, Random &random) {
    stretches.push_back({ int32_t(tokens.size()), length, partial, sampled });
    for (int32_t i = 0; i < length; i++)
      tokens.push_back(random.Pick32(0, 50000));
  }
};

// A script on its way through an engine. `has_token`: its last token is on the device.
struct Live {
  size_t script, next;
  int32_t row;
  bool has_token;
};

class BatchInvariant : public OverDevices {
protected:
  void SetUpOnDevice() override {
    seed_ = Seed();
    random_ = Random(seed_);
  }

  // ---- scripts
  Script MakeScript(int32_t prompt);
  int32_t PromptLength(size_t number);
  void MakeScripts(size_t count);
  Item ItemOf(const Live &live);
  void RunAlone(rows::Options options);

  // ---- batches
  size_t AnyShort() { return size_t(random_.Pick(1, int64_t(scripts_.size()) - 1)); }
  void Open(Live *live, size_t script);
  void Renew(Live *live);
  std::vector<Live *> Choose();
  void Batch(std::string *difference);
  std::string Batches(rows::Options options, int32_t count);

  uint64_t seed_ = 0;
  Random random_{ 0 };
  std::vector<Script> scripts_;
  std::unique_ptr<RowEngine> engine_;
  std::vector<Live> live_;
};

// ------------------------------------------------------------------------------------------------------------------- scripts

// A prompt in stretches of 1 token and more, then decodes; now and then some tokens at once, as a user's next turn has them.
Script BatchInvariant::MakeScript(int32_t prompt) {
  Script script;
  const int32_t most = rows::ModelFor(GetParam()).max_tokens / 2;
  for (int32_t left = prompt; left > 0;) {
    const int32_t length = std::min(left, random_.OneIn(4) ? random_.Pick32(1, 8) : random_.Pick32(1, most));
    left -= length;
    script.Add(length, left > 0, false, random_);
  }
  script.prompt = script.stretches.size();
  for (int32_t more = random_.Pick32(kMostMore / 3, kMostMore); more > 0; more--)
    script.Add(random_.OneIn(6) ? random_.Pick32(2, kMostTurn) : 1, false, true, random_);
  return script;
}

// The first one has enough KV tiles for a split to span several. On the host most are short: prompts cost time there.
int32_t BatchInvariant::PromptLength(size_t number) {
  const int32_t most = rows::ModelFor(GetParam()).max_seq_len - kMostMore * kMostTurn;
  if (number == 0)
    return most;
  if (random_.OneIn(4))
    return random_.Pick32(1, 64);
  return random_.OneIn(GetParam().IsCuda() ? 2 : 10) ? random_.Pick32(most / 4, most / 2) : random_.Pick32(64, most / 4);
}

void BatchInvariant::MakeScripts(size_t count) {
  for (size_t i = 0; i < count; i++)
    scripts_.push_back(MakeScript(PromptLength(i)));
}

Item BatchInvariant::ItemOf(const Live &live) {
  const Script &script = scripts_[live.script];
  const Stretch &stretch = script.stretches[live.next];
  const auto begin = script.tokens.begin() + stretch.begin;
  Item item = { live.row, { begin, begin + stretch.length }, stretch.partial };
  if (stretch.sampled)
    item.tokens[0] = live.has_token ? int32_t(CGR_TOKEN_LAST) : script.alone[live.next - 1].token;
  return item;
}

// Each script as the only request of every step.
void BatchInvariant::RunAlone(rows::Options options) {
  RowEngine engine(GetParam(), seed_, options);
  for (size_t s = 0; s < scripts_.size(); s++) {
    Script &script = scripts_[s];
    Live live = { s, 0, engine.Open(), false };
    for (; live.next < script.stretches.size(); live.next++) {
      const Stretch &stretch = script.stretches[live.next];
      engine.Reserve(live.row, stretch.begin + stretch.length);
      std::vector<Answer> answers = engine.Run({ ItemOf(live) });
      ASSERT_EQ(answers.size(), 1u);
      script.alone.push_back(std::move(answers[0]));
      live.has_token = !stretch.partial;
    }
    engine.Close(live.row);
  }
}

// ------------------------------------------------------------------------------------------------------------------- batches

void BatchInvariant::Open(Live *live, size_t script) { *live = { script, 0, engine_->Open(), false }; }

// A script at its end: usually it goes back to one of its decodes, which costs no prompt, and the long one always does;
// otherwise another takes its place, with other pages.
void BatchInvariant::Renew(Live *live) {
  const Script &script = scripts_[live->script];
  if (live->script != 0 && random_.OneIn(6)) {
    engine_->Close(live->row);
    Open(live, AnyShort());
    return;
  }
  live->next = size_t(random_.Pick(int64_t(script.prompt), int64_t(script.stretches.size()) - 1));
  live->has_token = false;
  CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, live->row, script.stretches[live->next].begin));
}

// Some of the requests in any order, as far as a step has room for them; in every other batch only those with one new token,
// which a graph can serve.
std::vector<Live *> BatchInvariant::Choose() {
  std::vector<Live *> all, chosen;
  for (Live &live : live_)
    all.push_back(&live);
  for (size_t i = all.size(); i > 1; i--)
    std::swap(all[i - 1], all[size_t(random_.Pick(0, int64_t(i) - 1))]);
  auto length_of = [this](const Live *live) { return scripts_[live->script].stretches[live->next].length; };
  const bool decodes =
      random_.OneIn(2) && std::any_of(all.begin(), all.end(), [&](const Live *live) { return length_of(live) == 1; });
  const size_t count = size_t(random_.Pick(1, rows::kMaxRequests));
  int32_t room = engine_->model.max_tokens;
  for (Live *live : all) {
    const int32_t length = length_of(live);
    if (chosen.size() == count || length > room || (decodes && length > 1))
      continue;
    chosen.push_back(live);
    room -= length;
  }
  return chosen;
}

void BatchInvariant::Batch(std::string *difference) {
  for (Live &live : live_)
    if (live.next == scripts_[live.script].stretches.size())
      Renew(&live);
  const std::vector<Live *> chosen = Choose();
  std::vector<Item> items;
  for (const Live *live : chosen) {
    const Stretch &stretch = scripts_[live->script].stretches[live->next];
    engine_->Reserve(live->row, stretch.begin + stretch.length);
    items.push_back(ItemOf(*live));
  }
  const std::vector<Answer> answers = engine_->Run(items);
  ASSERT_EQ(answers.size(), chosen.size());
  for (size_t i = 0; i < chosen.size(); i++) {
    Live &live = *chosen[i];
    const Script &script = scripts_[live.script];
    const Stretch &stretch = script.stretches[live.next];
    const std::string found = DifferenceOf(answers[i], script.alone[live.next]);
    if (!found.empty())
      *difference = found + " of request " + std::to_string(i) + " of " + std::to_string(chosen.size()) + ", " +
                    std::to_string(stretch.length) + " tokens at " + std::to_string(stretch.begin);
    live.has_token = !stretch.partial;
    live.next++;
  }
}

// Runs until a result differs from that of the request alone, and says where.
std::string BatchInvariant::Batches(rows::Options options, int32_t count) {
  engine_ = std::make_unique<RowEngine>(GetParam(), seed_ + 1, options);
  live_.resize(rows::kMaxRows);
  for (size_t i = 0; i < live_.size(); i++)
    Open(&live_[i], i == 0 ? 0 : AnyShort());
  std::string difference;
  for (int32_t b = 0; b < count && difference.empty() && !HasFailure(); b++) {
    SCOPED_TRACE("batch " + std::to_string(b));
    Batch(&difference);
    if (!difference.empty())
      difference = "batch " + std::to_string(b) + ": " + difference;
  }
  return difference;
}

// --------------------------------------------------------------------------------------------------------------------- cases

// A thousand on a GPU, and under both schedules of the host together, each with a seed of its own.
TEST_P(BatchInvariant, ARequestHasTheSameBitsAloneAndInAThousandBatches) {
  SCOPED_TRACE(Repeat(seed_));
  MakeScripts(GetParam().IsCuda() ? 32 : 16);
  ASSERT_NO_FATAL_FAILURE(RunAlone({ CGR_MODE_NONE, true, 0, {}, {} }));
  ASSERT_EQ(Batches({ CGR_MODE_FULL_DECODE_ONLY, true, 0, {}, {} }, GetParam().IsCuda() ? 1000 : 500), "");
  // Every way that a step can run has occurred.
  EXPECT_GT(engine_->Steps(CGR_KIND_FULL, CGR_REASON_EXACT), 20u);
  EXPECT_GT(engine_->Steps(CGR_KIND_FULL, CGR_REASON_PADDED), 20u);
  EXPECT_GT(engine_->Steps(CGR_KIND_NONE, CGR_REASON_NOT_UNIFORM), 20u);
  EXPECT_GT(engine_->Steps(CGR_KIND_NONE, CGR_REASON_ABOVE_REQUESTS), 20u);
}

// Each part then works on several requests, however many parts the GPU would have.
TEST_P(BatchInvariant, AloneInGraphsAndEagerlyInBatchesWithFewParts) {
  SCOPED_TRACE(Repeat(seed_));
  MakeScripts(6);
  ASSERT_NO_FATAL_FAILURE(RunAlone({ CGR_MODE_FULL_DECODE_ONLY, true, 3, {}, {} }));
  ASSERT_EQ(Batches({ CGR_MODE_NONE, true, 3, {}, {} }, 150), "");
}

// The comparison can fail.
TEST_P(BatchInvariant, OtherwiseBitsDependOnTheBatch) {
  SCOPED_TRACE(Repeat(seed_));
  MakeScripts(4);
  ASSERT_NO_FATAL_FAILURE(RunAlone({ CGR_MODE_FULL_DECODE_ONLY, false, 0, {}, {} }));
  EXPECT_NE(Batches({ CGR_MODE_FULL_DECODE_ONLY, false, 0, {}, {} }, 1000), "");
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(BatchInvariant);

} // namespace
} // namespace cgr_test

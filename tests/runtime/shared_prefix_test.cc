// Requests that get the pages of a prefix in the very step that computes it see it whole: whatever their order in the batch,
// given as a whole batch or as the standing one, eagerly and in graphs. In batch-invariant mode everybody's bits are those of a
// step after that of the prefix. Pages are NaN until then, and in the emulation the append ends only when attention waits for it.
#include <algorithm>

#include "tests/emulation/device.h"
#include "tests/support/checker.h"
#include "tests/support/modes.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

using rows::Answer;
using rows::RowEngine;

class SharedPrefix : public ::testing::TestWithParam<DeviceAndMode> {
protected:
  enum { kSharers = 3 };

  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam().device);
    random_ = Random(Seed());
    cgr_emulation::SetAppendsOverlap(GetParam().device.IsEmulated());
  }
  void TearDown() override { cgr_emulation::SetAppendsOverlap(false); }

  rows::Options Options(bool engine_tables = false) const {
    rows::Options options;
    options.engine_tables = engine_tables, options.mode = GetParam().mode;
    options.mixed = { { 24, 8 }, { GetParam().device.IsCuda() ? 2048 : 512, 8 } };
    if (GetParam().device.IsEmulated())
      options.model = { { { 0, 2, 2, 64, CGR_DTYPE_BF16 }, { 1, 4, 1, 64, CGR_DTYPE_BF16 } }, 512, 1344 };
    return options;
  }
  std::vector<int32_t> Tokens(int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    std::generate(tokens.begin(), tokens.end(), [&] { return random_.Pick32(0, 50000); });
    return tokens;
  }

  // The owner of a prefix of `length` tokens, and those that have its pages, with what they add in the step; all opened anew.
  std::vector<Item> OpenAll(RowEngine &engine, const std::vector<std::vector<int32_t>> &tokens) {
    const int32_t length = int32_t(tokens[0].size());
    std::vector<Item> items;
    for (const std::vector<int32_t> &own : tokens) {
      items.push_back({ engine.Open(), own, false });
      if (items.size() > 1)
        engine.SharePrefix(items.back().row, items[0].row, length);
      engine.Reserve(items.back().row, length + 8);
    }
    return items;
  }
  static std::vector<Answer> RunStanding(RowEngine &engine, const std::vector<Item> &items) {
    for (const Item &item : items)
      CGR_EXPECT_OK(cgr_standing_add(engine.rt, nullptr, item.row, int32_t(item.tokens.size()), item.tokens.data(), 0));
    std::vector<Answer> answers = engine.Run(items, true);
    for (const Item &item : items)
      CGR_EXPECT_OK(cgr_standing_remove(engine.rt, nullptr, item.row));
    return answers;
  }
  // One more token each, and the rows are closed.
  std::vector<Answer> End(RowEngine &engine, const std::vector<Item> &items) {
    std::vector<Item> decodes;
    for (const Item &item : items)
      decodes.push_back({ item.row, { CGR_TOKEN_LAST }, false });
    std::vector<Answer> answers = engine.Run(decodes);
    for (const Item &item : items)
      engine.Close(item.row);
    return answers;
  }
  static void ExpectAnswers(const std::vector<Answer> &got, const std::vector<Answer> &expected, const char *what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++)
      EXPECT_EQ(DifferenceOf(got[i], expected[i]), "") << what << ", request " << i << " (0: the prefix's own)";
  }

  void See(RowEngine &engine, const std::vector<int32_t> &lengths) {
    for (int32_t length : lengths) {
      SCOPED_TRACE("a prefix of " + std::to_string(length));
      std::vector<std::vector<int32_t>> tokens = { Tokens(length) };
      for (int32_t i = 0; i < kSharers; i++)
        tokens.push_back(Tokens(1 + i * 2));
      std::vector<Item> items = OpenAll(engine, tokens);
      std::vector<Answer> apart = engine.Run({ items[0] });
      for (Answer &answer : engine.Run({ items.begin() + 1, items.end() }))
        apart.push_back(std::move(answer));
      const std::vector<Answer> then = End(engine, items);
      for (int way = 0; way < 3 && !HasFailure(); way++) { // the owner first or last, and as the standing batch
        items = OpenAll(engine, tokens);
        std::vector<Item> batch = items;
        if (way == 0)
          std::rotate(batch.begin(), batch.begin() + 1, batch.end());
        std::vector<Answer> together = way == 2 ? RunStanding(engine, batch) : engine.Run(batch);
        if (way == 0)
          std::rotate(together.begin(), together.end() - 1, together.end());
        ExpectAnswers(together, apart, way == 0 ? "the owner comes last" : way == 1 ? "it comes first" : "the standing batch");
        ExpectAnswers(End(engine, items), then, "the step after");
      }
    }
  }

  Random random_{ 0 };
};

// Whoever keeps the page tables: cgr_request_set_length is what tells of the prefix.
TEST_P(SharedPrefix, IsSeenInTheStepThatComputesIt) {
  RowEngine engine(GetParam().device, Seed(), Options());
  if (GetParam().device.IsEmulated()) // which takes seconds for a long one
    See(engine, { 64, GetParam().mode == CGR_MODE_NONE ? 448 : 320 });
  else
    See(engine, { 64, 320, !GetParam().device.IsCuda() ? 448 : UnderChecker() ? 128 : 1984 });
}

TEST_P(SharedPrefix, IsSeenWithPageTablesOfTheEngine) {
  RowEngine engine(GetParam().device, Seed(), Options(true));
  See(engine, { 64 });
}

// Steps of decodes alone: the owner's last token of the prefix, and a token of each that shares it.
TEST_P(SharedPrefix, IsSeenInAStepOfDecodes) {
  RowEngine engine(GetParam().device, Seed(), Options());
  for (int32_t length : { 64, 128, 384 }) {
    SCOPED_TRACE("a prefix of " + std::to_string(length));
    const std::vector<int32_t> first = Tokens(length - 1), last = Tokens(1);
    std::vector<Answer> expected;
    for (bool together : { false, true }) {
      std::vector<std::vector<int32_t>> tokens = { first };
      tokens.insert(tokens.end(), kSharers, last);
      tokens[0].push_back(last[0]); // for its pages
      std::vector<Item> items = OpenAll(engine, tokens);
      engine.Run({ { items[0].row, first, true } });
      items[0].tokens = last;
      std::vector<Answer> answers = together ? engine.Run(items) : engine.Run({ items[0] });
      if (!together)
        for (Answer &answer : engine.Run({ items.begin() + 1, items.end() }))
          answers.push_back(std::move(answer));
      End(engine, items);
      if (together)
        ExpectAnswers(answers, expected, "decodes");
      expected = answers;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DevicesAndModes, SharedPrefix,
                         ::testing::ValuesIn(EveryPair(FewDevices(), { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE })),
                         ModeLabel);

} // namespace
} // namespace cgr_test

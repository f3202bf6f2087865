// Edits of the standing batch may come in any order, by way of batches that no step could run: what they lead to is judged when a
// step is prepared or chosen, and nothing before.
#include "tests/support/seed.h"
#include "tests/support/standing_case.h"

namespace cgr_test {
namespace {

class EditOrder : public Standing {
protected:
  int32_t MaxTokens() const { return engine_->o.max_tokens; }
  cgr_status Put(int32_t row, const Rows &tokens) { return Standing::Put(row, int32_t(tokens.size()), tokens); }
  cgr_status Set(int32_t row, const Rows &tokens) { return Standing::Set(row, int32_t(tokens.size()), tokens); }
  static Rows Tokens(int32_t count, int32_t first = 3) { return Rows(size_t(count), first); }
  // Rows with room for a prompt, which the engine's model follows.
  Rows Open(int32_t count) {
    Rows rows;
    for (int32_t i = 0; i < count; i++) {
      rows.push_back(engine_->Open());
      engine_->Reserve(rows.back(), 16);
    }
    return rows;
  }
};

// A chunk of one token less than the limit has run. The next step gives most tokens to another row.
TEST_P(EditOrder, AChunkThatHasRunCountsNothing) {
  const int32_t most = MaxTokens(), a = rows_[0], b = rows_[1], c = rows_[2];
  for (bool b_first : { true, false }) {
    SCOPED_TRACE(b_first);
    for (int32_t row : rows_)
      engine_->Reserve(row, engine_->requests[row]->num_tokens + most);
    CGR_ASSERT_OK(Put(a, Tokens(most - 1)));
    CGR_ASSERT_OK(Put(b, { kLast }));
    ASSERT_NO_FATAL_FAILURE(Step({ { a, Tokens(most - 1) }, { b, { kLast } } }));
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(a), "no tokens" });
    CGR_ASSERT_OK(b_first ? Set(b, Tokens(20)) : Set(a, { kLast }));
    CGR_ASSERT_OK(b_first ? Set(a, { kLast }) : Set(b, Tokens(20)));
    ASSERT_NO_FATAL_FAILURE(Step({ { a, { kLast } }, { b, Tokens(20) } }));
    CGR_ASSERT_OK(Put(c, Tokens(most - 1))); // b has run: as many tokens as a step may have, and still it lacks its own
    StepRefused(CGR_ERROR_INVALID_ARGUMENT, { "row " + std::to_string(b), "no tokens" });
    CGR_ASSERT_OK(Set(b, { kLast }));
    BatchRefused(CGR_ERROR_TOO_MANY_TOKENS, { "max_tokens" }, StandingBatch());
    for (int32_t row : rows_)
      CGR_ASSERT_OK(Take(row));
    for (int32_t row : rows_) {
      engine_->SetLength(row, 1);
      engine_->Step({ { row, { 4 } } });
    }
  }
}

// What is too large is told by number, limit and row, and stays until edits mend it.
TEST_P(EditOrder, AStepAboveALimitIsRefused) {
  const int32_t most = engine_->o.max_requests, tokens = MaxTokens();
  Rows rows = rows_;
  for (int32_t row : rows)
    engine_->Reserve(row, 80);
  for (int32_t row : Open(most + 2 - 3))
    rows.push_back(row);
  for (int32_t row : rows)
    CGR_ASSERT_OK(Put(row, { 5 }));
  const std::string has = std::to_string(most + 2) + " requests";
  for (int n = 0; n < 2; n++)
    BatchRefused(CGR_ERROR_TOO_MANY_REQUESTS, { has, std::to_string(most), "max_requests", "cgr_standing_remove 2 " },
                 StandingBatch());
  EXPECT_EQ(engine_->StandingRows(), rows);
  CGR_ASSERT_OK(Take(rows[0]));
  CGR_ASSERT_OK(Take(rows[1])); // the last two take their places
  std::swap(rows[0], rows[most + 1]);
  std::swap(rows[1], rows[most]);
  rows.resize(size_t(most));
  EXPECT_EQ(engine_->StandingRows(), rows);
  CGR_ASSERT_OK(Set(rows[1], Tokens(4)));
  CGR_ASSERT_OK(Set(rows[2], Tokens(tokens)));
  const std::string largest = "row " + std::to_string(rows[2]), sum = std::to_string(tokens + 4 + most - 2);
  for (int n = 0; n < 2; n++)
    BatchRefused(CGR_ERROR_TOO_MANY_TOKENS, { sum + " tokens", std::to_string(tokens), "max_tokens", largest }, StandingBatch());
  std::vector<Item> items;
  for (int32_t row : rows)
    items.push_back({ row, { 5 } });
  CGR_ASSERT_OK(Set(rows[2], items[2].tokens = { 6, 7 }));
  items[1].tokens = Tokens(4);
  ASSERT_NO_FATAL_FAILURE(Step(items));
  for (int32_t row : rows)
    CGR_ASSERT_OK(Take(row));
  for (int32_t row : rows)
    if (std::find(rows_.begin(), rows_.end(), row) == rows_.end())
      engine_->Close(row);
  engine_->Step({ { rows_[0], { 4 } }, { rows_[1], { 4 } }, { rows_[2], { 4 } } });
}

// Requests come before others go, in a batch that is full.
TEST_P(EditOrder, PutsMayComeBeforeTakes) {
  const int32_t most = engine_->o.max_requests;
  Rows old = Open(most), young = Open(engine_->o.max_rows - most - 3);
  std::vector<Item> items;
  for (int32_t row : old)
    CGR_ASSERT_OK(Put(row, { 7 }));
  for (int32_t row : old)
    items.push_back({ row, { 7 } });
  ASSERT_NO_FATAL_FAILURE(Step(items));
  for (int32_t row : young)
    CGR_ASSERT_OK(Put(row, { 8 }));
  for (size_t i = 0; i < young.size(); i++)
    CGR_ASSERT_OK(Take(old[i]));
  items.clear();
  for (size_t i = 0; i < young.size(); i++)
    items.push_back({ young[young.size() - 1 - i], { 8 } }); // each time the last took the place
  for (size_t i = young.size(); i < old.size(); i++)
    items.push_back({ old[i], { kLast } });
  ASSERT_NO_FATAL_FAILURE(Step(items));
  for (int32_t row : engine_->StandingRows())
    CGR_ASSERT_OK(Take(row));
  for (const Rows &rows : { old, young })
    for (int32_t row : rows)
      engine_->Close(row);
}

// What a row is to be after a set of edits: a member with these tokens, or none.
struct Wish {
  int32_t row;
  bool was, is;
  Rows tokens;
};

// A set of edits leads to the same status in whatever order its edits come, and to the same batch but for its order.
TEST_P(EditOrder, AnyOrderLeadsToTheSameBatch) {
  SeededRandom random;
  const int32_t most = engine_->o.max_requests;
  int counts[3] = {}; // good, too many requests, too many tokens
  for (int n = 0; n < 120 && !HasFailure(); n++) {
    while (int32_t(engine_->requests.size()) < engine_->o.max_rows)
      engine_->Open();
    const int32_t kind = random.Pick32(0, 2); // perhaps too many requests, or tokens
    std::vector<Wish> wishes;
    Rows before = engine_->StandingRows();
    int32_t requests = 0, tokens = 0;
    for (int32_t row : engine_->Rows()) {
      Wish w = { row, std::find(before.begin(), before.end(), row) != before.end(), random.OneIn(2), {} };
      if (kind != 1 && requests == most)
        w.is = false;
      if (w.is)
        w.tokens = Tokens(random.OneIn(2) ? random.Pick32(2, kind == 2 ? 40 : 9) : 1, random.Pick32(0, 99));
      if (engine_->requests[row]->num_tokens > 60)
        engine_->SetLength(row, 0);
      engine_->Reserve(row, engine_->requests[row]->num_tokens + int32_t(w.tokens.size()));
      requests += w.is;
      tokens += int32_t(w.tokens.size());
      wishes.push_back(w);
    }
    const cgr_status expected = requests > most        ? CGR_ERROR_TOO_MANY_REQUESTS
                                : tokens > MaxTokens() ? CGR_ERROR_TOO_MANY_TOKENS
                                                       : CGR_OK;
    counts[requests > most ? 1 : tokens > MaxTokens() ? 2 : 0]++;
    cgr_batch batch = StandingBatch();
    for (int again = 0; again < 4; again++) { // and back, in any order too
      cgr_key key;
      for (size_t i = wishes.size(); i > 1; i--)
        std::swap(wishes[i - 1], wishes[size_t(random.Pick(0, int64_t(i) - 1))]);
      if (again > 0) {
        for (const Wish &w : wishes)
          CGR_ASSERT_OK(w.was == w.is ? CGR_OK : w.was ? Put(w.row, { 1 }) : Take(w.row));
        for (size_t i = wishes.size(); i > 1; i--)
          std::swap(wishes[i - 1], wishes[size_t(random.Pick(0, int64_t(i) - 1))]);
      }
      for (const Wish &w : wishes)
        CGR_ASSERT_OK(!w.is ? w.was ? Take(w.row) : CGR_OK : w.was ? Set(w.row, w.tokens) : Put(w.row, w.tokens));
      CGR_ASSERT(expected, cgr_step_choose(rt(), &batch, &key));
    }
    std::vector<Item> items;
    for (int32_t row : engine_->StandingRows())
      for (const Wish &w : wishes)
        if (w.row == row)
          items.push_back({ row, w.tokens });
    ASSERT_EQ(int32_t(items.size()), requests);
    if (expected == CGR_OK)
      ASSERT_NO_FATAL_FAILURE(Step(items));
    else
      CGR_ASSERT(expected, engine_->PrepareStandingAsIs(items));
  }
  for (int count : counts)
    EXPECT_GT(count, 3);
  for (int32_t row : engine_->StandingRows())
    CGR_ASSERT_OK(Take(row));
  for (int32_t row : engine_->Rows())
    if (std::find(rows_.begin(), rows_.end(), row) == rows_.end())
      engine_->Close(row);
  for (int32_t row : rows_) {
    engine_->SetLength(row, 0);
    engine_->Step({ { row, { 4 } } });
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(EditOrder);

} // namespace
} // namespace cgr_test

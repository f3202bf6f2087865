// The standing batch below the runtime, against the same batch given whole and against a device that knows only the edits.
#include <string>
#include <vector>

#include "requests/standing.h"
#include "tests/requests/told.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

// A member as a test knows it. `tokens` empty: the last one, or those that it had are used up.
struct Member {
  int32_t row, len;
  uint32_t flags;
  List tokens;
  bool used_up = false;
};

// Six open rows with pages for 100 tokens, of which 10 are in the cache and have a last token.
struct Case {
  enum { kRequests = 4, kTokens = 32 };
  Rows rows;
  Pool pool{ rows, kRequests, kTokens, 3 };
  List open;
  cgr__checked_batch checked;
  uint64_t launched = 0;

  explicit Case(int32_t seq_len = 100) : rows(6, seq_len, { { 16, 10000 } }, kRequests, kTokens) {
    for (int32_t i = 0; i < 6; i++)
      open.push_back(rows.OpenWithPages((seq_len + 15) / 16, 10 + 1000 * i, 100 + static_cast<uint64_t>(i)));
    for (int32_t i = 0; i < 6; i += 2)
      EXPECT_EQ(pool.Step(rows, Batch::Prefill({ open[size_t(i)], open[size_t(i) + 1] }, { 10, 10 }), ++launched), CGR_OK);
  }
  cgr_status Put(int32_t row, int32_t len = 1, const List &tokens = {}, uint32_t flags = 0) {
    return cgr__standing_add(rows, &rows.batches, row, len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Set(int32_t row, int32_t len = 1, const List &tokens = {}, uint32_t flags = 0) {
    return cgr__standing_update(rows, &rows.batches, row, len, tokens.empty() ? nullptr : tokens.data(), flags);
  }
  cgr_status Validate(int32_t threshold = 0) { return cgr__standing_validate(rows, &rows.batches, threshold, &checked); }
  // Which limit these are above. Chunks that have used up their tokens count none.
  static cgr_status Limits(const std::vector<Member> &members) {
    int32_t tokens = 0;
    for (const Member &m : members)
      tokens += m.used_up ? 0 : m.len;
    return members.size() > kRequests ? CGR_ERROR_TOO_MANY_REQUESTS : tokens > kTokens ? CGR_ERROR_TOO_MANY_TOKENS : CGR_OK;
  }
  void Launch() {
    cgr__batch_layout *copy = cgr__members_snapshot(&rows.batches);
    const cgr__batch_layout &members = rows.batches.members.layout;
    const auto n = members.num_requests;
    EXPECT_EQ(List(copy->rows, copy->rows + n), List(members.rows, members.rows + n));
    EXPECT_EQ(std::vector<uint64_t>(copy->tags, copy->tags + n), std::vector<uint64_t>(members.tags, members.tags + n));
    cgr__batch_layouts_launch(&pool.pool, ++launched, copy);
    cgr__members_commit(rows, &rows.batches, launched, launched);
  }
  const cgr__row &Row(int32_t row) {
    cgr__members_sync(rows, row);
    return rows.rows.row[row];
  }
};

TEST(Standing, RowsAreBroughtUpToDateWhenTheyAreRead) {
  Case c;
  ASSERT_EQ(c.Put(c.open[0]), CGR_OK);
  ASSERT_EQ(c.Put(c.open[1], 0), CGR_OK);
  for (int n = 0; n < 5; n++) {
    ASSERT_EQ(c.Validate(), CGR_OK) << cgr_last_message();
    c.Launch();
  }
  EXPECT_EQ(cgr__rows_computed(c.rows, c.open[0]), 15);
  EXPECT_EQ(c.Row(c.open[0]).computed, 15);
  EXPECT_EQ(c.Row(c.open[0]).last_seq, c.launched);
  EXPECT_EQ(c.Row(c.open[1]).computed, 10);
  EXPECT_EQ(c.Row(c.open[1]).last_seq, c.launched) << "it is in the step all the same";
  EXPECT_EQ(c.Row(c.open[2]).last_seq, 2u);
  ASSERT_EQ(cgr__standing_remove(c.rows, &c.rows.batches, c.open[0]), CGR_OK);
  ASSERT_EQ(c.Validate(), CGR_OK);
  c.Launch();
  EXPECT_EQ(c.Row(c.open[0]).computed, 15);
  EXPECT_EQ(c.Row(c.open[0]).last_seq, c.launched - 1);
}

// The lengths that are sent are the current ones.
TEST(Standing, ChangesCarryTheLengthsOfNow) {
  Case c;
  c.rows.Collect();
  ASSERT_EQ(c.Put(c.open[0]), CGR_OK);
  for (int n = 0; n < 3; n++) {
    ASSERT_EQ(c.Validate(), CGR_OK);
    c.Launch();
  }
  cgr__changes_mark_all(c.rows);
  for (const cgr__change &change : c.rows.Collect())
    if (change.kind == CGR__CHANGE_COMPUTED) {
      EXPECT_EQ(change.value, change.row == c.open[0] ? 13 : 10);
    }
}

TEST(Standing, AFailedStepMarksTheUseOfItsRows) {
  Case c;
  ASSERT_EQ(c.Put(c.open[0]), CGR_OK);
  ASSERT_EQ(c.Put(c.open[1]), CGR_OK);
  ASSERT_EQ(c.Validate(), CGR_OK);
  c.Launch();
  ASSERT_EQ(c.Validate(), CGR_OK);
  c.rows.Collect();
  cgr__batch_abandon(c.rows, &c.checked, 9);
  EXPECT_EQ(c.Row(c.open[1]).last_seq, 9u);
  EXPECT_EQ(c.Row(c.open[1]).computed, 11);
  EXPECT_EQ(c.Validate(), CGR_OK);
  cgr__rows_forget_tokens(c.rows, c.checked.batch_layout);
  EXPECT_EQ(cgr__changes_pending(c.rows), 2);
  ExpectMessage(c.Validate(), CGR_ERROR_INVALID_ARGUMENT, { "CGR_TOKEN_LAST" });
  ASSERT_EQ(c.Set(c.open[0], 1, { 3 }), CGR_OK);
  ASSERT_EQ(c.Set(c.open[1], 1, { 3 }), CGR_OK);
  EXPECT_EQ(c.Validate(), CGR_OK);
}

// A row's pages may last for much longer than the schedule reaches.
TEST(Standing, TheScheduleKnowsTheEndOfPages) {
  for (int32_t len : { 1, 2, 3 })
    for (int32_t seq_len : { 4095 + 10, 4096 + 10, 4097 + 10, 2 * 4096 + 10, 9000, 1000, 30, 11, 10 }) {
      SCOPED_TRACE(std::to_string(len) + " of " + std::to_string(seq_len));
      Case c(seq_len);
      const List tokens(size_t(len), 5);
      int32_t steps = 0;
      ASSERT_EQ(c.Put(c.open[0], len, tokens), CGR_OK);
      while (c.Validate() == CGR_OK) {
        c.Launch();
        steps++;
        ASSERT_EQ(c.Set(c.open[0], len, tokens), CGR_OK);
        if (steps % 7 == 0) // cancelled, say
          (void)c.Validate();
      }
      EXPECT_EQ(steps, (seq_len - 10) / len);
      ExpectMessage(c.Validate(), CGR_ERROR_SEQUENCE_TOO_LONG, { "max_seq_len" });
      ASSERT_EQ(c.Put(c.open[1]), CGR_OK);
      EXPECT_EQ(c.Validate(), CGR_ERROR_SEQUENCE_TOO_LONG);
      ASSERT_EQ(c.Set(c.open[0], 0), CGR_OK);
      EXPECT_EQ(c.Validate(), seq_len > 10 ? CGR_OK : CGR_ERROR_SEQUENCE_TOO_LONG);
    }
}

// The same without a word from the engine in between.
TEST(Standing, TheScheduleKnowsTheEndOfPagesOfADecode) {
  for (int32_t seq_len : { 2000, 4105, 4106, 4107, 8201, 8202, 8203, 10000 }) {
    Case c(seq_len);
    int32_t steps = 0;
    ASSERT_EQ(c.Put(c.open[0]), CGR_OK);
    ASSERT_EQ(c.Put(c.open[1], 0), CGR_OK);
    for (; c.Validate() == CGR_OK; steps++)
      c.Launch();
    EXPECT_EQ(steps, seq_len - 10);
    ASSERT_EQ(cgr__rows_set_length(c.rows, c.open[0], 20), CGR_OK);
    ASSERT_EQ(c.Set(c.open[0], 1, { 4 }), CGR_OK);
    for (steps = 0; c.Validate() == CGR_OK; steps++)
      c.Launch();
    EXPECT_EQ(steps, seq_len - 20);
  }
}

// Tokens that are given again and again before a step fill their store and are compacted.
TEST(Standing, TokensAreKeptUntilAStepUsesThem) {
  Case c;
  Told told;
  for (int32_t i = 0; i < 3; i++)
    ASSERT_EQ(c.Put(c.open[size_t(i)], 2, { 100 + i, 200 + i }), CGR_OK);
  for (int32_t n = 0; n < 50; n++) {
    const int32_t row = c.open[size_t(n % 3)], len = 2 + n % 9;
    ASSERT_EQ(c.Set(row, len, List(size_t(len), n)), CGR_OK);
    told.Hear(c.rows, n % 2 == 0);
    ASSERT_FALSE(::testing::Test::HasFatalFailure());
    EXPECT_EQ(told.tokens.size(), 3u);
    EXPECT_EQ(told.tokens[row], List(size_t(len), n));
    if (n >= 2) {
      EXPECT_EQ(told.tokens[c.open[size_t((n - 2) % 3)]], List(size_t(2 + (n - 2) % 9), n - 2));
    }
  }
  ASSERT_EQ(c.Validate(), CGR_OK);
  c.Launch();
  told.Hear(c.rows, false);
  EXPECT_EQ(told.num_edits, 0);
}

// Between two steps there is room for the tokens of two of them, and for more where it takes little memory.
TEST(Standing, TokensThatWaitForAStepAreLimited) {
  enum { kRows = 40, kMany = 100000, kFew = 10000, kKept = 1 << 18 };
  for (const int32_t max_tokens : { int32_t{ kMany }, int32_t{ kFew } }) {
    SCOPED_TRACE(max_tokens);
    const List tokens(size_t(max_tokens), 3);
    const int32_t fit = std::max(kKept / max_tokens, 2);
    Rows rows(kRows, 100, { { 16, 1000 } }, kRows, max_tokens);
    cgr__checked_batch checked;
    const auto put = [&](int32_t row, int32_t len) { return cgr__standing_add(rows, &rows.batches, row, len, tokens.data(), 0); };
    for (int32_t i = 0; i < kRows; i++)
      ASSERT_EQ(rows.Open(), i);
    for (int32_t i = 0; i < fit; i++)
      ASSERT_EQ(put(i, max_tokens), CGR_OK) << i << ": " << cgr_last_message();
    ExpectMessage(put(fit, max_tokens), CGR_ERROR_TOO_MANY_TOKENS,
                  { "cgr_standing_add", "query_len is " + std::to_string(max_tokens),
                    "tokens of the standing batch wait for a step", std::to_string(kKept) });
    EXPECT_EQ(rows.rows.row[fit].place, -1);
    ExpectMessage(put(fit, max_tokens + 1), CGR_ERROR_TOO_MANY_TOKENS, { "max_tokens" });
    EXPECT_EQ(cgr__standing_update(rows, &rows.batches, 0, max_tokens, tokens.data(), 0), CGR_OK) << "its own make room";
    ExpectMessage(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_ERROR_TOO_MANY_TOKENS,
                  { std::to_string(int64_t{ fit } * max_tokens) + " tokens", "row 0", std::to_string(max_tokens) });
    ASSERT_EQ(cgr__standing_remove(rows, &rows.batches, 1), CGR_OK);
    EXPECT_EQ(put(fit, max_tokens), CGR_OK) << cgr_last_message();
    for (int32_t i = 0; i <= fit; i++)
      ASSERT_EQ(cgr__standing_update(rows, &rows.batches, i, 0, nullptr, 0), i == 1 ? CGR_ERROR_STATE : CGR_OK);
    EXPECT_EQ(rows.batches.members.num_kept, 0);
  }
}

// Every row may be a member between two steps, also where a step of the schedule cannot count them.
TEST(Standing, EveryRowMayBeAMember) {
  enum { kRows = (1 << 16) + 3, kRequests = 2 };
  Rows rows(kRows, 16, { { 16, 1000 } }, kRequests, kRequests);
  Pool pool{ rows, kRequests, kRequests, 2 };
  cgr__checked_batch checked;
  const int32_t token = 3;
  uint64_t launched = 0;
  for (int32_t i = 0; i < kRows; i++)
    ASSERT_EQ(rows.Open(), i);
  for (int round = 0; round < 3; round++) {
    for (int32_t i = 0; i < kRows; i++)
      ASSERT_EQ(cgr__standing_add(rows, &rows.batches, i, 1, &token, 0),
                round > 0 && i >= kRows - kRequests ? CGR_ERROR_ROW_REPEATED : CGR_OK);
    ExpectMessage(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_ERROR_TOO_MANY_REQUESTS,
                  { std::to_string(kRows) });
    for (int32_t i = 0; i < kRows - kRequests; i++)
      ASSERT_EQ(cgr__standing_remove(rows, &rows.batches, i), CGR_OK);
    const cgr_status expected = round == 0 ? CGR_ERROR_PAGES_MISSING : CGR_OK;
    ASSERT_EQ(cgr__standing_validate(rows, &rows.batches, 0, &checked), expected) << cgr_last_message();
    for (int32_t i = 0; i < kRequests; i++)
      ASSERT_EQ(rows.SetPages(kRows - 1 - i, 0, { 5 + i }), CGR_OK);
    ASSERT_EQ(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_OK) << cgr_last_message();
    cgr__batch_layout *copy = cgr__members_snapshot(&rows.batches); // in memory of exactly a step's size
    EXPECT_EQ(List(copy->rows, copy->rows + kRequests),
              List(rows.batches.members.layout.rows, rows.batches.members.layout.rows + kRequests));
    cgr__batch_layouts_launch(&pool.pool, ++launched, copy);
    cgr__members_commit(rows, &rows.batches, launched, launched);
  }
}

// A result's copy of the batch is brought up to date by the edits since, as far as they are remembered.
TEST(Standing, ResultsReferToTheBatchAsItWas) {
  for (int32_t swaps : { 0, 1, 100, 126, 127, 128, 129, 254, 255, 256, 257, 600 })
    for (bool again : { false, true }) {
      SCOPED_TRACE(swaps);
      Case c;
      for (int32_t i = 0; i < 4; i++)
        ASSERT_EQ(c.Put(c.open[size_t(i)]), CGR_OK);
      ASSERT_EQ(c.Validate(), CGR_OK);
      c.Launch();
      if (again) { // a copy no longer in use is there to be brought up to date
        ASSERT_EQ(cgr__standing_swap(c.rows, &c.rows.batches, c.open[2], c.open[3]), CGR_OK);
        for (int n = 0; n < 4; n++)
          c.Launch();
      }
      ASSERT_EQ(cgr__standing_swap(c.rows, &c.rows.batches, c.open[0], c.open[1]), CGR_OK);
      for (int32_t n = 0; n < swaps; n++)
        ASSERT_EQ(cgr__standing_swap(c.rows, &c.rows.batches, c.open[2], c.open[3]), CGR_OK);
      ASSERT_EQ(c.Validate(), CGR_OK);
      c.Launch(); // compares
    }
}

// Results' copies have places for a step's requests, whatever places edits have passed through since.
TEST(Standing, ResultsHaveNoPlacesPastAStep) {
  enum { kRows = 24, kRequests = 2, kDepth = 2, kAll = kDepth + CGR__SPARE_BATCH_LAYOUTS };
  Rows rows(kRows, 16, { { 16, 1000 } }, kRequests, kRequests);
  Pool pool{ rows, kRequests, kRequests, kDepth };
  cgr__checked_batch checked;
  const int32_t token = 3;
  const auto rest = [&] { // of the copies; no result reads it
    std::vector<uint32_t> words;
    for (int32_t i = 0; i < kAll; i++)
      words.insert(words.end(), reinterpret_cast<uint32_t *>(pool.pool.all[i].query_lens),
                   reinterpret_cast<uint32_t *>(pool.pool.all[i].tags));
    return words;
  };
  for (int32_t i = 0; i < kRows; i++)
    ASSERT_EQ(rows.OpenWithPages(1, 10 + i, 100 + uint64_t(i)), i);
  const std::vector<uint32_t> before = rest();
  for (int32_t round = 1; round <= 9; round++) {
    for (int32_t i = 0; i < kRows; i++)
      ASSERT_EQ(cgr__standing_add(rows, &rows.batches, i, 1, &token, 0), CGR_OK);
    for (int32_t i = kRows - 1; i >= kRequests; i--)
      ASSERT_EQ(cgr__standing_remove(rows, &rows.batches, i), CGR_OK);
    ASSERT_EQ(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_OK) << cgr_last_message();
    cgr__batch_layout *copy = cgr__members_snapshot(&rows.batches);
    EXPECT_EQ(List(copy->rows, copy->rows + kRequests), (List{ 0, 1 }));
    EXPECT_EQ(copy->tags[1], 101u);
    cgr__batch_layouts_launch(&pool.pool, uint64_t(round), copy);
    cgr__members_commit(rows, &rows.batches, uint64_t(round), uint64_t(round));
    EXPECT_EQ(rest(), before);
    for (int32_t i = 0; i < kRequests; i++)
      ASSERT_EQ(cgr__standing_remove(rows, &rows.batches, i), CGR_OK);
  }
}

// Random edits: counts, shape and order are those of the same batch given whole, the device hears all of it whatever was
// cancelled, and results refer to rows and tags as they were.
TEST(Standing, IsTheBatchThatWasEdited) {
  SeededRandom random;
  Case c(2000);
  Told told;
  std::vector<Member> members;
  bool on_device = false;
  int refused = 0, uniform = 0, few = 0, above = 0;
  for (int n = 0; n < 4000 && !::testing::Test::HasFailure(); n++) {
    for (int edits = random.Pick32(0, 3) * (n % 500 < 490) + (n % 500 == 499) * 400; edits > 0; edits--) {
      const int32_t row = c.open[size_t(random.Pick(0, 5))], other = c.open[size_t(random.Pick(0, 5))];
      size_t i = 0, j = 0;
      while (i < members.size() && members[i].row != row)
        i++;
      while (j < members.size() && members[j].row != other)
        j++;
      Member m = { row, random.OneIn(3) ? random.Pick32(0, 9) : 1, random.OneIn(9) ? 1u : 0u, {} };
      m.tokens = List(size_t(m.len), random.Pick32(0, 99));
      switch (random.Pick(0, 3)) {
      case 0:
        if (c.Put(row, m.len, m.tokens, m.flags) == CGR_OK) // perhaps more than a step may have
          members.push_back(m);
        break;
      case 1:
        if (c.Set(row, m.len, m.tokens, m.flags) == CGR_OK)
          members[i] = m;
        break;
      case 2:
        if (cgr__standing_remove(c.rows, &c.rows.batches, row) == CGR_OK) {
          members[i] = members.back();
          members.pop_back();
        }
        break;
      default:
        if (cgr__standing_swap(c.rows, &c.rows.batches, row, other) == CGR_OK)
          std::swap(members[i], members[j]);
      }
    }
    Batch batch;
    batch.has_query_lens = batch.has_flags = true;
    if (const cgr_status limits = c.Limits(members); limits != CGR_OK) {
      above++;
      ASSERT_EQ(c.Validate(), limits) << cgr_last_message();
      if (random.OneIn(2)) // further edits mend it, or make it worse
        continue;
      while (c.Limits(members) != CGR_OK) {
        ASSERT_EQ(c.Validate(), c.Limits(members)) << cgr_last_message();
        ASSERT_EQ(cgr__standing_remove(c.rows, &c.rows.batches, members[0].row), CGR_OK);
        members[0] = members.back();
        members.pop_back();
      }
    }
    for (Member &m : members) {
      if (c.Row(m.row).computed > 1900) {
        ASSERT_EQ(cgr__rows_set_length(c.rows, m.row, 10), CGR_OK);
      }
      if (m.used_up || (m.tokens.empty() && m.len > 0 && !c.Row(m.row).has_token)) {
        m.used_up = false;
        m.tokens = List(size_t(m.len), 5);
        if (c.Limits(members) != CGR_OK) // with what it had when it last ran
          m.tokens = List(size_t(m.len = 1), 5);
        ASSERT_EQ(c.Set(m.row, m.len, m.tokens, m.flags), CGR_OK);
      }
      batch.rows.push_back(m.row);
      batch.query_lens.push_back(m.len);
      batch.flags.push_back(m.flags);
    }
    batch.WithIds();
    const int32_t threshold = random.Pick32(0, 4);
    cgr__checked_batch whole;
    ASSERT_EQ(c.pool.Validate(c.rows, batch, &whole), CGR_OK) << cgr_last_message();
    cgr_status ordered = threshold > 0 ? cgr__batch_check_order(whole.batch_layout, threshold) : CGR_OK;
    ASSERT_EQ(c.Validate(threshold), ordered) << cgr_last_message();
    if (ordered != CGR_OK) {
      refused++;
      continue;
    }
    EXPECT_EQ(c.checked.num_requests, whole.num_requests);
    EXPECT_EQ(c.checked.num_tokens, whole.num_tokens);
    EXPECT_EQ(c.checked.query_len, whole.query_len);
    EXPECT_EQ(c.checked.max_query_len, whole.max_query_len);
    uniform += whole.query_len > 0;
    if (random.OneIn(20)) { // a whole batch goes instead
      c.pool.Prepare(&whole);
      c.pool.Launch(c.rows, &whole, ++c.launched);
      on_device = false;
      continue;
    }
    Told next = told;
    next.Hear(c.rows, !on_device);
    EXPECT_EQ(next.rows, batch.rows);
    EXPECT_EQ(next.lens, batch.query_lens);
    EXPECT_EQ(next.flags, batch.flags);
    few += on_device && next.num_edits < whole.num_requests;
    for (const Member &m : members) {
      const bool has = m.len > 1 || (m.len == 1 && !m.tokens.empty());
      EXPECT_EQ(next.tokens.count(m.row), has ? 1u : 0u);
      if (has) {
        EXPECT_EQ(next.tokens[m.row], m.tokens);
      }
    }
    if (random.OneIn(5)) // cancelled
      continue;
    told = next;
    on_device = !random.OneIn(20); // or lost
    c.Launch();
    for (Member &m : members) {
      m.tokens.clear();
      m.used_up = m.len > 1 || (m.len == 1 && m.flags != 0);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(uniform, 100);
  EXPECT_GT(few, 100);
  EXPECT_GT(above, 100);
}

} // namespace

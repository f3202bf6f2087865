// Rows whose steps have guesses: bounds of their lengths until the results are taken, against a device that accepts at random.
#include <deque>
#include <map>
#include <string>

#include "requests/guesses.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;

enum { kRows = 10, kRequests = 6, kTokens = 40, kSeqLen = 200, kGuesses = 5, kDepth = 4, kPage = 16, kPages = 160 };

// A launched step: what it samples of each request, known to the device alone until the host takes it.
struct Launched {
  uint64_t seq;
  std::vector<int32_t> num_tokens;
  bool lost; // the device refused it
};

class Driver {
public:
  explicit Driver(uint64_t seed, bool standing)
      : random_(seed), standing_(standing),
        rows_(kRows, kSeqLen, { GroupSpec{ kPage, kPages, 0, 1, false, {}, 0 } }, kRequests, kTokens, false, kGuesses, kDepth),
        pool_(rows_, kRequests, kTokens, kDepth) {
    for (int32_t r = 0; r < kRows; r++)
      Open();
  }

  void Round() {
    switch (random_.Pick(0, 9)) {
    case 0:
      return Replace();
    case 1:
      return SetLength();
    case 2:
    case 3:
      Take(static_cast<size_t>(random_.Pick(0, kDepth)));
      return;
    case 4:
      Take(launched_.size());
      return ExpectExact();
    default:
      return Step();
    }
  }
  int64_t steps() const { return steps_; }
  int64_t guessed() const { return guessed_; }
  int64_t rejected() const { return rejected_; }

private:
  struct Row {
    int32_t length = 0; // of the device, once the launched steps have run
    bool has_token = false;
  };

  void Open() {
    int32_t row = rows_.OpenWithPages(kSeqLen / kPage, 2);
    truth_[row] = {};
  }
  void Replace() {
    int32_t row = Any();
    if (Member(row)) {
      EXPECT_EQ(cgr__standing_remove(rows_, &rows_.batches, row), CGR_OK);
    }
    ASSERT_EQ(cgr__rows_close(rows_, row), CGR_OK) << cgr_last_message();
    Open();
  }
  void SetLength() {
    int32_t row = Any(), length = static_cast<int32_t>(random_.Pick(0, truth_[row].length));
    ASSERT_EQ(cgr__rows_set_length(rows_, row, length), CGR_OK) << cgr_last_message();
    truth_[row] = { length, false };
  }
  int32_t Any() { return random_.Pick32(0, kRows - 1); }
  bool Member(int32_t row) const { return rows_.rows.row[row].place >= 0 && !rows_.batches.members.follows; }

  // The lengths that travel are exact.
  void Send() {
    for (const cgr__change &change : rows_.Collect(64))
      if (change.kind == CGR__CHANGE_COMPUTED) {
        ASSERT_EQ(change.value, truth_[change.row].length) << "row " << change.row;
      }
  }
  void Take(size_t count) {
    for (; count > 0 && !launched_.empty(); count--) {
      const Launched step = launched_.front();
      launched_.pop_front();
      cgr__guesses_take(rows_, step.seq, step.num_tokens.data(), static_cast<int32_t>(step.num_tokens.size()));
    }
    ExpectBounds();
  }
  void ExpectBounds() {
    for (int32_t row = 0; row < kRows; row++) {
      const int32_t most = rows_.Computed(row), least = cgr__row_least_computed(&rows_.rows.row[row]);
      ASSERT_LE(least, truth_[row].length) << "row " << row;
      ASSERT_GE(most, truth_[row].length) << "row " << row;
    }
  }
  void ExpectExact() {
    for (int32_t row = 0; row < kRows; row++) {
      ASSERT_EQ(rows_.rows.row[row].slack, 0);
      ASSERT_EQ(rows_.Computed(row), truth_[row].length) << "row " << row;
    }
    ASSERT_EQ(rows_.rows.guesses.num_notes, 0);
  }

  // Up to as many tokens as its bound leaves room for.
  struct Work {
    int32_t row, query_len, guesses;
    uint32_t flags;
    std::vector<int32_t> tokens;
  };
  Work WorkOf(int32_t row) {
    const int32_t room = std::min(kSeqLen - rows_.Computed(row) - 16, 6);
    Work work = { row, room <= 0 ? 0 : random_.Pick32(0, room), 0, 0, {} };
    const bool partial = random_.OneIn(5);
    if (!partial && work.query_len > 1)
      work.guesses = random_.Pick32(0, std::min<int32_t>(work.query_len - 1, kGuesses));
    work.flags = partial ? uint32_t{ CGR_REQUEST_PARTIAL } : CGR_REQUEST_DRAFTS(work.guesses);
    for (int32_t j = 0; j < work.query_len; j++)
      work.tokens.push_back(j);
    if (truth_[row].has_token && work.query_len > 0 && random_.OneIn(2)) {
      work.tokens[0] = CGR_TOKEN_LAST;
      for (int32_t j = work.query_len - work.guesses; j < work.query_len; j++)
        work.tokens[static_cast<size_t>(j)] = CGR_TOKEN_DRAFT(random_.Pick32(0, kGuesses - 1));
    }
    return work;
  }
  // What the device makes of it.
  void Run(const Work &work, Launched *step) {
    int32_t accepted = random_.Pick32(0, work.guesses);
    guessed_ += work.guesses;
    rejected_ += work.guesses - accepted;
    truth_[work.row].length += work.query_len - work.guesses + accepted;
    const bool samples = work.query_len > 0 && !(work.flags & CGR_REQUEST_PARTIAL);
    if (work.query_len > 0)
      truth_[work.row].has_token = samples;
    step->num_tokens.push_back(samples ? 1 + accepted : 0);
  }
  void Step() {
    if (launched_.size() == kDepth) // its slot would be written again
      Take(1);
    std::vector<int32_t> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    for (size_t i = all.size(); i > 1; i--)
      std::swap(all[i - 1], all[static_cast<size_t>(random_.Pick(0, static_cast<int64_t>(i) - 1))]);
    all.resize(static_cast<size_t>(random_.Pick(1, kRequests)));
    std::vector<Work> works;
    for (int32_t row : all)
      works.push_back(WorkOf(row));
    Launched step = { ++seq_, {}, false };
    if (standing_ && random_.OneIn(2))
      StepStanding(works, &step);
    else
      StepGiven(works, &step);
    launched_.push_back(step);
    steps_++;
    ExpectBounds();
  }
  void StepGiven(const std::vector<Work> &works, Launched *step) {
    Batch batch;
    batch.has_query_lens = batch.has_tokens = batch.has_flags = true;
    for (const Work &work : works) {
      batch.rows.push_back(work.row);
      batch.query_lens.push_back(work.query_len);
      batch.flags.push_back(work.flags);
      batch.tokens.insert(batch.tokens.end(), work.tokens.begin(), work.tokens.end());
    }
    cgr__checked_batch checked;
    ASSERT_EQ(pool_.Validate(rows_, batch, &checked), CGR_OK) << cgr_last_message();
    pool_.Prepare(&checked);
    Send();
    pool_.Launch(rows_, &checked, seq_);
    for (const Work &work : works)
      Run(work, step);
  }
  // Members that are not in `works` stand still; some that go on by themselves are left to do so.
  void StepStanding(std::vector<Work> works, Launched *step) {
    cgr__members *s = &rows_.batches.members;
    for (Work &work : works) {
      const bool goes_on = work.guesses > 0 && work.query_len == 1 + work.guesses && work.tokens[0] == CGR_TOKEN_LAST;
      auto *edit = Member(work.row) ? cgr__standing_update : cgr__standing_add;
      if (s->layout.num_requests == kRequests && !Member(work.row)) {
        ASSERT_EQ(cgr__standing_remove(rows_, &rows_.batches, s->layout.rows[0]), CGR_OK);
      }
      ASSERT_EQ(edit(rows_, &rows_.batches, work.row, work.query_len, goes_on ? nullptr : work.tokens.data(), work.flags), CGR_OK)
          << cgr_last_message();
    }
    for (int32_t i = 0; i < s->layout.num_requests; i++) {
      const int32_t row = s->layout.rows[i];
      if (std::none_of(works.begin(), works.end(), [&](const Work &work) { return work.row == row; })) {
        ASSERT_EQ(cgr__standing_update(rows_, &rows_.batches, row, 0, nullptr, 0), CGR_OK);
      }
    }
    std::vector<Work> in_order;
    for (int32_t i = 0; i < s->layout.num_requests; i++) {
      Work none = { s->layout.rows[i], 0, 0, 0, {} };
      auto found = std::find_if(works.begin(), works.end(), [&](const Work &work) { return work.row == none.row; });
      in_order.push_back(found == works.end() ? none : *found);
    }
    cgr__checked_batch checked;
    ASSERT_EQ(cgr__standing_validate(rows_, &rows_.batches, 0, &checked), CGR_OK) << cgr_last_message();
    Send();
    cgr__batch_layouts_launch(&pool_.pool, seq_, cgr__members_snapshot(&rows_.batches));
    cgr__members_commit(rows_, &rows_.batches, seq_, seq_);
    for (const Work &work : in_order)
      Run(work, step);
  }

  Random random_;
  const bool standing_;
  Rows rows_;
  Pool pool_;
  std::map<int32_t, Row> truth_;
  std::deque<Launched> launched_;
  uint64_t seq_ = 0;
  int64_t steps_ = 0, guessed_ = 0, rejected_ = 0;
};

void Drive(bool standing) {
  SeededRandom seed;
  Driver driver(seed.Bits(), standing);
  while (driver.steps() < 500000 && !::testing::Test::HasFailure())
    driver.Round();
  EXPECT_GT(driver.guessed(), 100000);
  EXPECT_GT(driver.rejected(), 50000);
}

TEST(Guesses, BoundsHoldTheDevicesLengths) { Drive(false); }
TEST(Guesses, BoundsHoldThoseOfTheStandingBatch) { Drive(true); }

// By hand: two steps under way, of which the first rejects all; then nothing is open any more.
TEST(Guesses, CountUntilTheyAreTaken) {
  Rows rows(2, kSeqLen, { GroupSpec{} }, 2, kTokens, false, 3, 2);
  Pool pool(rows, 2, kTokens, 2);
  const int32_t row = rows.OpenWithPages(2, 2);
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 10 }), 1), CGR_OK);
  const cgr__row &r = rows.rows.row[row];
  Batch batch = Batch::Prefill({ row }, { 4 }).WithFlags({ CGR_REQUEST_DRAFTS(3) });
  ASSERT_EQ(pool.Step(rows, batch, 2), CGR_OK);
  EXPECT_EQ((std::vector<int32_t>{ r.computed, cgr__row_least_computed(&r) }), (std::vector<int32_t>{ 14, 11 }));
  ASSERT_EQ(pool.Step(rows, batch, 3), CGR_OK);
  EXPECT_EQ((std::vector<int32_t>{ r.computed, cgr__row_least_computed(&r) }), (std::vector<int32_t>{ 18, 12 }));
  const int32_t one = 1, three = 3;
  cgr__guesses_take(rows, 2, &one, 1);
  EXPECT_EQ((std::vector<int32_t>{ r.computed, cgr__row_least_computed(&r) }), (std::vector<int32_t>{ 15, 12 }));
  cgr__guesses_take(rows, 3, &three, 1);
  EXPECT_EQ((std::vector<int32_t>{ r.computed, cgr__row_least_computed(&r) }), (std::vector<int32_t>{ 14, 14 }));
  EXPECT_EQ(rows.rows.guesses.num_notes, 0);
}

// Pages have to be there for the upper bound, and come back with the result.
TEST(Guesses, PagesAreNeededForTheUpperBound) {
  Rows rows(1, kSeqLen, { GroupSpec{} }, 1, kTokens, false, 3, 2);
  Pool pool(rows, 1, kTokens, 2);
  const int32_t row = rows.OpenWithPages(1, 2), one = 1;
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 10 }), 1), CGR_OK);
  Batch batch = Batch::Prefill({ row }, { 4 }).WithFlags({ CGR_REQUEST_DRAFTS(3) });
  ASSERT_EQ(pool.Step(rows, batch, 2), CGR_OK);
  EXPECT_EQ(pool.Step(rows, batch, 3), CGR_ERROR_PAGES_MISSING);
  EXPECT_NE(std::string(cgr_last_message()).find("row 0 would hold 18 tokens"), std::string::npos) << cgr_last_message();
  cgr__guesses_take(rows, 2, &one, 1);
  EXPECT_EQ(pool.Step(rows, batch, 3), CGR_OK) << cgr_last_message();
}

// A refused step accepts nothing, and so do those after it; a row that is another request's by then is left alone.
TEST(Guesses, AreRejectedWithTheirSteps) {
  Rows rows(2, kSeqLen, { GroupSpec{} }, 2, kTokens, false, 3, 4);
  Pool pool(rows, 2, kTokens, 4);
  const int32_t one = rows.OpenWithPages(3, 2), two = rows.OpenWithPages(3, 9);
  Batch batch = Batch::Prefill({ one, two }, { 4, 4 }).WithFlags({ CGR_REQUEST_DRAFTS(3), CGR_REQUEST_DRAFTS(2) });
  ASSERT_EQ(pool.Step(rows, batch, 1), CGR_OK);
  ASSERT_EQ(pool.Step(rows, batch, 2), CGR_OK);
  ASSERT_EQ(cgr__rows_set_length(rows, two, 7), CGR_OK);
  cgr__guesses_take(rows, 1, nullptr, 0);
  EXPECT_EQ(rows.Computed(one), 5);
  cgr__guesses_reject(rows);
  EXPECT_EQ(rows.Computed(one), 2);
  EXPECT_EQ(rows.Computed(two), 7);
  EXPECT_EQ(rows.rows.guesses.num_notes, 0);
}

struct Refused {
  uint32_t flags;
  int32_t query_len;
  std::vector<int32_t> tokens;
  cgr_status status;
  const char *says;
};

// In a batch that is given whole and in the standing batch alike.
TEST(Guesses, AreRefusedByName) {
  const cgr_status bad = CGR_ERROR_INVALID_ARGUMENT;
  for (const Refused &c : {
           Refused{
               CGR_REQUEST_DRAFTS(4), 6, { 1, 2, 3, 4, 5, 6 }, bad, "tells of 4 drafts, expected at most 3 (num_draft_tokens)" },
           Refused{ CGR_REQUEST_DRAFTS(1), 1, { 1 }, bad, "tells of 1 draft among 1 token, expected fewer" },
           Refused{ CGR_REQUEST_DRAFTS(2), 0, {}, bad, "tells of 2 drafts among 0 tokens" },
           Refused{ CGR_REQUEST_DRAFTS(1) | CGR_REQUEST_PARTIAL, 2, { 1, 2 }, bad, "partial chunk" },
           Refused{ 0x10000, 2, { 1, 2 }, CGR_ERROR_INVALID_ENUM, "0x10000" },
           Refused{ CGR_REQUEST_DRAFTS(1) | 4, 2, { 1, 2 }, CGR_ERROR_INVALID_ENUM, "0x4" },
           Refused{
               CGR_REQUEST_DRAFTS(1), 3, { CGR_TOKEN_LAST, CGR_TOKEN_DRAFT(0), 5 }, bad, "tokens[1] is -2, expected a token id" },
           Refused{ CGR_REQUEST_DRAFTS(1), 2, { CGR_TOKEN_DRAFT(0), 5 }, bad, "tokens[0] is -2, expected a token id" },
           Refused{ CGR_REQUEST_DRAFTS(2), 3, { CGR_TOKEN_LAST, CGR_TOKEN_DRAFT(3), 5 }, bad, "which is draft 3, expected" },
           Refused{ CGR_REQUEST_DRAFTS(2), 3, { CGR_TOKEN_LAST, INT32_MIN, 5 }, bad, "which is draft 2147483646, expected" },
           Refused{
               CGR_REQUEST_DRAFTS(2), 3, { 8, CGR_TOKEN_DRAFT(1), 5 }, bad, "draft 1 of the device's, expected a token id, or" },
           Refused{ CGR_REQUEST_DRAFTS(2), 3, { CGR_TOKEN_LAST, CGR_TOKEN_LAST, 5 }, bad, "tokens[1] is CGR_TOKEN_LAST" },
           Refused{ 0, 1, { CGR_TOKEN_DRAFT(0) }, bad, "tokens[0] is -2" },
       }) {
    SCOPED_TRACE(c.says);
    Rows rows(2, kSeqLen, { GroupSpec{} }, 2, kTokens, false, 3, 4);
    Pool pool(rows, 2, kTokens, 4);
    const int32_t row = rows.OpenWithPages(3, 2);
    ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 4 }), 1), CGR_OK);
    Batch batch = Batch::Prefill({ row }, { c.query_len }).WithFlags({ c.flags });
    batch.tokens = c.tokens;
    EXPECT_EQ(pool.Step(rows, batch, 2), c.status);
    EXPECT_NE(std::string(cgr_last_message()).find(c.says), std::string::npos) << cgr_last_message();
    EXPECT_EQ(cgr__standing_add(rows, &rows.batches, row, c.query_len, c.tokens.data(), c.flags), c.status);
    EXPECT_NE(std::string(cgr_last_message()).find(c.says), std::string::npos) << cgr_last_message();
    EXPECT_EQ(rows.Computed(row), 4);
  }
}

// Without tokens of the host's: the last token and the device's guesses, which need one.
TEST(Guesses, GoOnByThemselves) {
  Rows rows(2, kSeqLen, { GroupSpec{} }, 2, kTokens, false, 3, 4);
  Pool pool(rows, 2, kTokens, 4);
  const int32_t row = rows.OpenWithPages(3, 2);
  Batch batch;
  batch.rows = { row };
  batch.query_lens = { 3 };
  batch.has_query_lens = true;
  batch.WithFlags({ CGR_REQUEST_DRAFTS(2) });
  EXPECT_EQ(pool.Step(rows, batch, 1), CGR_ERROR_INVALID_ARGUMENT) << "there is no last token";
  ASSERT_EQ(pool.Step(rows, Batch::Prefill({ row }, { 4 }), 1), CGR_OK);
  EXPECT_EQ(pool.Step(rows, batch, 2), CGR_OK) << cgr_last_message();
  batch.WithFlags({ CGR_REQUEST_DRAFTS(1) });
  EXPECT_EQ(pool.Step(rows, batch, 3), CGR_ERROR_NULL_POINTER);
  ASSERT_EQ(cgr__standing_add(rows, &rows.batches, row, 3, nullptr, CGR_REQUEST_DRAFTS(2)), CGR_OK) << cgr_last_message();
  for (uint64_t seq = 3; seq < 6; seq++) {
    cgr__checked_batch checked;
    ASSERT_EQ(cgr__standing_validate(rows, &rows.batches, 0, &checked), CGR_OK) << cgr_last_message();
    EXPECT_EQ(checked.query_len, 3);
    cgr__members_commit(rows, &rows.batches, seq, seq);
    EXPECT_EQ(rows.Computed(row), 7 + 3 * int32_t(seq - 2));
  }
  EXPECT_EQ(rows.rows.row[row].slack, 8);
  EXPECT_EQ(cgr__standing_update(rows, &rows.batches, row, 3, nullptr, CGR_REQUEST_DRAFTS(1)), CGR_ERROR_NULL_POINTER);
}

} // namespace

// The ledger of pages against a model that knows each token of each row: what rows may not do with their pages is refused by
// name, and nothing else.
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "tests/requests/ledger_case.h"

namespace {

using namespace cgr_test;
using namespace cgr_test::ledger;

TEST(Ledger, NamesTwoWritersOfAPage) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 2, 3 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 20 })), CGR_OK);
  c.SetLength(b, 20);
  ExpectMessage(c.Check(Batch::Prefill({ b, a }, { 1, 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "page 3 of group 0", "rows 0 and 1 in step 2" });
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 1 })), CGR_OK) << "it takes a free place";
  ExpectMessage(c.Check(Batch::Prefill({ a }, { 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 0 would write token 20 in step 3", "page 3 of group 0", "row 1 has" });
  EXPECT_EQ(c.SetPages(a, 0, 1, { 4 }), CGR_OK) << "the copy of the page";
  EXPECT_EQ(c.Step(Batch::Prefill({ b, a }, { 1, 1 })), CGR_OK);
}

TEST(Ledger, LetsAPrefixBeSharedInTheStepThatComputesIt) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 2, 3, 4 }, { 2, 3 });
  c.SetLength(b, 32);
  EXPECT_EQ(c.Check(Batch::Prefill({ a, b }, { 32, 5 })), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 10 })), CGR_OK) << "in chunks, and the other one waits";
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 22, 5 })), CGR_OK);
  c.SetLength(a, 31);
  ExpectMessage(c.Check(Batch::Prefill({ a }, { 1 })), CGR_ERROR_INVALID_ARGUMENT, { "row 1 has a token at that place" });
}

// Rows that have not had a step of their own yet rely on what they were given.
TEST(Ledger, KnowsTokensThatRowsTookOverAndHaveNotUsed) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 20 })), CGR_OK);
  const int32_t b = c.OpenWith({ 2, 3 }, { 2 }), d = c.OpenWith({ 2, 3 }, { 2 });
  c.SetLength(b, 20);
  EXPECT_EQ(cgr__rows_close(c.rows, a), CGR_OK);
  c.SetLength(d, 18);
  ExpectMessage(c.Check(Batch::Prefill({ d }, { 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 2 would write token 18", "page 3 of group 0", "row 1 has" });
}

TEST(Ledger, NamesAPageThatIsHandedOnTooEarly) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 20, 4 })), CGR_OK);
  EXPECT_EQ(c.rows.DropPages(a, 1, 1, 0), CGR_OK);
  ExpectMessage(c.SetPages(b, 0, 1, { 3 }), CGR_ERROR_STATE,
                { "pages[0] is 3 of group 0", "(row 0) until step 1", "has not completed (0 has)", "row 1" });
  EXPECT_EQ(c.SetPages(a, 0, 1, { 3 }), CGR_OK) << "its own";
  EXPECT_EQ(cgr__rows_close(c.rows, a), CGR_OK);
  const int32_t again = c.rows.Open();
  EXPECT_EQ(again, a);
  ExpectMessage(c.SetPages(again, 1, 0, { 2 }), CGR_ERROR_STATE, { "group 1", "(row 0) until step 1" });
  c.completed = 1;
  EXPECT_EQ(c.SetPages(again, 1, 0, { 2 }), CGR_OK);
  EXPECT_EQ(c.SetPages(b, 0, 1, { 3 }), CGR_OK);
}

// The pages of a request that never had a step are free at once; so are those that another row still has.
TEST(Ledger, LetsUnusedAndSharedPagesGo) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 32 })), CGR_OK);
  const int32_t b = c.OpenWith({ 2, 3, 4 }, { 2, 3 });
  EXPECT_EQ(cgr__rows_close(c.rows, a), CGR_OK);
  const int32_t d = c.OpenWith({ 2, 3 }, { 2 });
  EXPECT_EQ(cgr__rows_close(c.rows, b), CGR_OK);
  EXPECT_EQ(c.SetPages(d, 0, 2, { 4 }), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__rows_close(c.rows, d), CGR_OK);
  const int32_t e = c.rows.Open();
  ExpectMessage(c.SetPages(e, 0, 0, { 2 }), CGR_ERROR_STATE, { "until step 1" });
}

TEST(Ledger, SeesTheStandingBatchAndOtherSets) {
  Case c;
  const int32_t a = c.OpenWith({ 2 }, { 2 }), b = c.OpenWith({ 2 }, { 3 }), token = 7;
  for (int32_t row : { a, b })
    EXPECT_EQ(cgr__standing_add(c.rows, &c.rows.batches, row, 1, &token, 0), CGR_OK);
  EXPECT_EQ(cgr__standing_validate(c.rows, &c.rows.batches, 0, &c.checked), CGR_OK);
  ExpectMessage(cgr__ledger_check_step(c.rows, &c.checked, 9), CGR_ERROR_INVALID_ARGUMENT,
                { "page 2 of group 0", "rows 0 and 1 in step 9" });
  EXPECT_EQ(cgr__standing_remove(c.rows, &c.rows.batches, b), CGR_OK);
  EXPECT_EQ(cgr__standing_validate(c.rows, &c.rows.batches, 0, &c.checked), CGR_OK);
  EXPECT_EQ(cgr__ledger_check_step(c.rows, &c.checked, 9), CGR_OK);

  for (int32_t row : { a, b }) {
    EXPECT_EQ(c.SetPages(row, 2, 0, { 5, 6 }), CGR_OK);
    EXPECT_EQ(cgr__rows_set_other_length(c.rows, row, 1, 24), CGR_OK);
  }
  ExpectMessage(c.Check(Batch::Prefill({ a, b }, { 24, 24 }), 1), CGR_ERROR_INVALID_ARGUMENT,
                { "page 5 of group 2", "rows 0 and 1" });
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 24 }), 1), CGR_OK) << "the other one reads what it encodes";
  ExpectMessage(c.Check(Batch::Prefill({ b }, { 24 }), 1), CGR_ERROR_INVALID_ARGUMENT, { "row 0 has a token at that place" });
}

// A page that is put below a row's length is filled before the row's next step: by another row's step, or by the engine.
TEST(Ledger, LetsAPagePutBelowALengthBeFilled) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 20, 16 })), CGR_OK);
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK) << "where row 1 writes its next tokens";
  ExpectMessage(c.Check(Batch::Prefill({ a, b }, { 1, 1 })), CGR_ERROR_INVALID_ARGUMENT, { "page 5 of group 0", "rows 0 and 1" });
  EXPECT_EQ(c.Check(Batch::Prefill({ a, b }, { 0, 4 })), CGR_OK) << cgr_last_message() << ": without tokens it reads nothing";
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 4 })), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 1 })), CGR_OK) << cgr_last_message();
  ExpectMessage(c.Check(Batch::Prefill({ b }, { 1 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 1 would write token 20 in step 4", "page 5 of group 0", "row 0 has a token at that place" });
  c.SetLength(a, 20);
  EXPECT_EQ(c.rows.DropPages(a, 1, 1, 0), CGR_OK);
  c.SetLength(b, 18);
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK) << "it comes back";
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 2 })), CGR_OK) << cgr_last_message();
}

// The row reads the page in its next step, which does not wait for appends of that step.
TEST(Ledger, NamesAPagePutBelowALengthThatTheStepFills) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3, 6 }, { 2, 4 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 36, 16 })), CGR_OK);
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK);
  ExpectMessage(c.Check(Batch::Prefill({ a, b }, { 1, 8 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 1 would write token 16 in step 2", "page 5 of group 0", "which row 0 reads in the same step",
                  "expected row 0 in a later step" });
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 8 })), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__rows_close(c.rows, b), CGR_OK);
  const int32_t d = c.OpenWith({ 7, 5 }, { 5 });
  c.SetLength(d, 16);
  EXPECT_EQ(c.Check(Batch::Prefill({ d }, { 8 })), CGR_OK) << cgr_last_message() << ": row 0 does not know of the tokens";
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 1 })), CGR_OK) << cgr_last_message();
  ExpectMessage(c.Check(Batch::Prefill({ d }, { 8 })), CGR_ERROR_INVALID_ARGUMENT, { "row 0 has a token at that place" });
}

// Setting the length looks again at what other rows have.
TEST(Ledger, KnowsTokensThatCameToAPagePutBelowALength) {
  Case c;
  const int32_t a = c.OpenWith({ 2, 3 }, { 2 }), b = c.OpenWith({ 4, 5 }, { 3 });
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 32, 16 })), CGR_OK);
  EXPECT_EQ(c.SetPages(a, 0, 1, { 5 }), CGR_OK);
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 8 })), CGR_OK) << cgr_last_message();
  c.SetLength(a, 31);
  EXPECT_EQ(cgr__rows_close(c.rows, b), CGR_OK);
  const int32_t d = c.OpenWith({ 7, 5 }, { 5 });
  c.SetLength(d, 16);
  ExpectMessage(c.Check(Batch::Prefill({ d }, { 8 })), CGR_ERROR_INVALID_ARGUMENT,
                { "row 1 would write token 16", "row 0 has a token at that place" });
  c.SetLength(d, 24);
  EXPECT_EQ(c.Check(Batch::Prefill({ d }, { 8 })), CGR_OK) << cgr_last_message() << ": row 0 knows eight";
}

// The same with another set, whose tokens the sequences' steps read.
TEST(Ledger, LetsAnEncodersPageBeFilled) {
  Case c;
  const int32_t a = c.OpenWith({ 2 }, { 2 }), b = c.OpenWith({ 3 }, { 3 });
  for (int32_t row : { a, b }) {
    EXPECT_EQ(c.SetPages(row, 2, 0, { 4 + 2 * row, 5 + 2 * row }), CGR_OK);
    EXPECT_EQ(cgr__rows_set_other_length(c.rows, row, 1, row == a ? 32 : 16), CGR_OK);
  }
  EXPECT_EQ(c.Step(Batch::Prefill({ a, b }, { 32, 16 }), 1), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.SetPages(a, 2, 1, { 7 }), CGR_OK);
  EXPECT_EQ(cgr__rows_set_other_length(c.rows, b, 1, 20), CGR_OK);
  EXPECT_EQ(c.Step(Batch::Prefill({ b }, { 4 }), 1), CGR_OK) << cgr_last_message();
  EXPECT_EQ(cgr__rows_set_other_length(c.rows, b, 1, 24), CGR_OK);
  EXPECT_EQ(c.Check(Batch::Prefill({ b }, { 4 }), 1), CGR_OK) << cgr_last_message();
  EXPECT_EQ(c.Step(Batch::Prefill({ a }, { 5 })), CGR_OK) << "reads all of it";
  ExpectMessage(c.Check(Batch::Prefill({ b }, { 4 }), 1), CGR_ERROR_INVALID_ARGUMENT, { "row 0 has a token at that place" });
}

// ------------------------------------------------------------------------------------------------------------------- random

// What the rows are known to have, token by token.
struct Holder {
  bool open = false;
  int32_t request = 0, length[2] = { 0, 0 };
  int32_t open_guesses = 0; // the last so many tokens of the sequence may turn out to be fewer
  uint64_t last_seq = 0;
  std::map<int32_t, int32_t> pages[3]; // by index
  std::vector<bool> sure[2];           // tokens of each set
  std::set<int32_t> missing[3];        // tokens of the pages that were put below the length and are not known to have them
};

struct Loss {
  int32_t request;
  uint64_t seq;
};

// A launched step with guesses: what the device makes of them, which the host takes later.
struct Guessing {
  uint64_t seq;
  std::vector<int32_t> rows, guesses, num_tokens; // a row of -1 has another length by now
};

struct World {
  Case c;
  Holder rows[kRows];
  std::vector<Loss> lost[3][64];                  // by group and page
  std::pair<int32_t, uint64_t> taken[3][64] = {}; // the request that took it last, and its row's step by then
  int32_t requests = 0;
  std::deque<Guessing> guessing;
  static int32_t Size(int32_t g) { return Groups()[size_t(g)].page_size; }
  static int32_t Set(int32_t g) { return Groups()[size_t(g)].length_set; }

  std::vector<int32_t> Open() const {
    std::vector<int32_t> open;
    for (int32_t i = 0; i < kRows; i++)
      if (rows[i].open)
        open.push_back(i);
    return open;
  }
  bool Has(int32_t g, int32_t page) const {
    for (const Holder &row : rows)
      for (const auto &[index, has] : row.pages[g])
        if (has == page)
          return true;
    return false;
  }
  bool MayTake(int32_t row, int32_t g, int32_t page) const {
    for (const Loss &loss : lost[g][page])
      if (loss.request != rows[row].request && loss.seq > c.completed && !Has(g, page))
        return false;
    return true;
  }
  void Take(int32_t row, int32_t g, int32_t index, int32_t page) {
    Holder &r = rows[row];
    if (r.pages[g].count(index) && r.pages[g][index] == page)
      return;
    taken[g][page] = { r.request, r.last_seq };
    if (r.pages[g].count(index))
      Give(row, g, index);
    r.pages[g][index] = page;
    for (int32_t place = 0; place < Size(g); place++) {
      r.missing[g].erase(index * Size(g) + place);
      if (index * Size(g) < r.length[Set(g)] && !OthersHave(row, g, page, place))
        r.missing[g].insert(index * Size(g) + place);
    }
  }
  void Give(int32_t row, int32_t g, int32_t index) {
    Holder &r = rows[row];
    const int32_t page = r.pages[g][index];
    if (taken[g][page] != std::make_pair(r.request, r.last_seq))
      lost[g][page].push_back({ r.request, r.last_seq });
    r.pages[g].erase(index);
  }
  // Whether another row surely has a token in this place of the page. For a step, which may not write over guesses either; of
  // rows that it reads, any of their tokens is sure that was at the place before the page.
  bool OthersHave(int32_t row, int32_t g, int32_t page, int32_t place, const std::set<int32_t> *step = nullptr) const {
    for (int32_t i = 0; i < kRows; i++)
      for (const auto &[index, has] : rows[i].pages[g]) {
        const int32_t token = index * Size(g) + place, set = Set(g), guesses = set == 0 && !step ? rows[i].open_guesses : 0;
        if (i != row && has == page && token < int32_t(rows[i].sure[set].size()) && rows[i].sure[set][size_t(token)] &&
            token < rows[i].length[set] - guesses && ((step && step->count(i) > 0) || rows[i].missing[g].count(token) == 0))
          return true;
      }
    return false;
  }
  bool OthersHaveToken(int32_t row, int32_t set, int32_t token) const {
    for (int32_t g = 0; g < 3; g++) {
      const auto &pages = rows[row].pages[g];
      const int32_t index = token / Size(g);
      if (Set(g) != set || (!pages.empty() && index < pages.begin()->first))
        continue;
      if (!pages.count(index) || !OthersHave(row, g, pages.at(index), token % Size(g)))
        return false;
    }
    return true;
  }
  void SetLength(int32_t row, int32_t set, int32_t length) {
    Holder &r = rows[row];
    std::vector<bool> &sure = r.sure[set];
    length = set == 0 ? SettleAll(row, length) : length;
    if (sure.size() > size_t(length))
      sure.resize(size_t(length));
    for (auto token = int32_t(sure.size()); token < length && OthersHaveToken(row, set, token); token++)
      sure.push_back(true);
    r.length[set] = length;
    for (int32_t g = 0; g < 3; g++)
      for (const auto &[index, page] : r.pages[g])
        for (int32_t place = 0; place < Size(g) && Set(g) == set; place++)
          if (OthersHave(row, g, page, place))
            r.missing[g].erase(index * Size(g) + place);
  }
  // The length is set: no result concerns it any more, and guesses that had none are not sure.
  int32_t SettleAll(int32_t row, int32_t length) {
    for (Guessing &step : guessing)
      std::replace(step.rows.begin(), step.rows.end(), row, -1);
    if (rows[row].open_guesses > 0)
      rows[row].sure[0].resize(size_t(rows[row].length[0] - rows[row].open_guesses));
    rows[row].open_guesses = 0;
    return length;
  }
  // The host takes the results of steps with guesses.
  void TakeResults(uint64_t up_to) {
    for (; !guessing.empty() && guessing.front().seq <= up_to; guessing.pop_front()) {
      const Guessing &step = guessing.front();
      cgr__guesses_take(c.rows, step.seq, step.num_tokens.data(), int32_t(step.num_tokens.size()));
      for (size_t i = 0; i < step.rows.size(); i++) {
        if (step.rows[i] < 0)
          continue;
        Holder &r = rows[step.rows[i]];
        r.length[0] -= step.guesses[i] - std::max(step.num_tokens[i] - 1, 0);
        r.open_guesses -= step.guesses[i];
        r.sure[0].resize(size_t(r.length[0]));
      }
    }
  }
  // Whether it writes each page by one row, and no token of another.
  bool MayStep(const Batch &batch, int32_t set) const {
    std::map<int32_t, int32_t> writer[3];
    std::set<int32_t> reading;
    for (size_t i = 0; i < batch.rows.size(); i++)
      if (batch.QueryLen(i) > 0)
        reading.insert(batch.rows[i]);
    for (size_t i = 0; i < batch.rows.size(); i++) {
      const Holder &r = rows[batch.rows[i]];
      const int32_t start = set == 0 ? r.length[0] : r.length[1] - batch.QueryLen(i),
                    first = set == 0 ? start - r.open_guesses : start;
      for (int32_t token = first; token < start + batch.QueryLen(i) && batch.QueryLen(i) > 0; token++)
        for (int32_t g = 0; g < 3; g++) {
          if (Set(g) != set)
            continue;
          const int32_t page = r.pages[g].at(token / Size(g));
          if (writer[g].emplace(page, batch.rows[i]).first->second != batch.rows[i] ||
              OthersHave(batch.rows[i], g, page, token % Size(g), &reading))
            return false;
        }
    }
    return true;
  }
  void Launch(const Batch &batch, int32_t set, Random &random) {
    Guessing step = { c.launched, {}, {}, {} };
    for (size_t i = 0; i < batch.rows.size(); i++) {
      Holder &r = rows[batch.rows[i]];
      const int32_t guesses = batch.has_flags ? cgr__flags_guesses(batch.flags[i]) : 0;
      step.rows.push_back(guesses > 0 ? batch.rows[i] : -1), step.guesses.push_back(guesses);
      step.num_tokens.push_back(batch.QueryLen(i) > 0 ? 1 + random.Pick32(0, guesses) : 0);
      r.last_seq = c.launched;
      r.open_guesses += guesses;
      if (batch.QueryLen(i) == 0)
        continue;
      r.length[0] += set == 0 ? batch.QueryLen(i) : 0;
      r.sure[set].assign(size_t(r.length[set]), true);
      for (int32_t g = 0; g < 3; g++) // the sequences' steps read every set
        if (set == 0 || Set(g) == set)
          r.missing[g].clear();
    }
    if (batch.has_flags)
      guessing.push_back(step);
  }
};

struct Counts {
  int steps = 0, refused_steps = 0, given = 0, refused_pages = 0;
};

void OpenOne(World &w) {
  if (w.Open().size() == kRows)
    return;
  const int32_t row = w.c.rows.Open();
  const uint64_t last_seq = w.rows[row].last_seq;
  w.rows[row] = Holder();
  w.rows[row].open = true;
  w.rows[row].request = ++w.requests;
  w.rows[row].last_seq = last_seq;
}

void CloseOne(World &w, int32_t row) {
  if (cgr__rows_close(w.c.rows, row) != CGR_OK)
    return; // in the standing batch
  w.SettleAll(row, 0);
  for (int32_t g = 0; g < 3; g++)
    while (!w.rows[row].pages[g].empty())
      w.Give(row, g, w.rows[row].pages[g].begin()->first);
  w.rows[row].open = false;
}

// Some pages at the end, or in place of others; often those of another row, at the same places.
void GivePages(World &w, Random &random, int32_t row, Counts *counts) {
  const int32_t g = random.Pick32(0, 2);
  auto &has = w.rows[row].pages[g];
  const int32_t end = has.empty() ? 0 : has.rbegin()->first + 1, other = random.Pick32(0, kRows - 1);
  const int32_t first = has.empty() || random.OneIn(3) ? (has.empty() ? 0 : has.begin()->first) : end;
  std::vector<int32_t> pages;
  for (int32_t i = first; i < first + random.Pick32(1, 3) && (i + 1) * World::Size(g) <= kLength; i++) {
    const auto shared = w.rows[other].pages[g].find(i);
    int32_t page = shared != w.rows[other].pages[g].end() && !random.OneIn(4)
                       ? shared->second
                       : random.Pick32(2, int32_t(Groups()[size_t(g)].num_pages) - 1);
    bool is_new = std::find(pages.begin(), pages.end(), page) == pages.end();
    for (const auto &[index, p] : has)
      is_new &= p != page || index == i;
    if (!is_new)
      break;
    pages.push_back(page);
  }
  if (pages.empty())
    return;
  bool legal = true;
  for (size_t i = 0; i < pages.size(); i++)
    legal &= (has.count(first + int32_t(i)) && has[first + int32_t(i)] == pages[i]) || w.MayTake(row, g, pages[i]);
  const cgr_status status = w.c.SetPages(row, g, first, pages);
  ASSERT_EQ(status, legal ? CGR_OK : CGR_ERROR_STATE) << cgr_last_message();
  counts->given += legal;
  counts->refused_pages += !legal;
  for (size_t i = 0; i < pages.size() && legal; i++)
    w.Take(row, g, first + int32_t(i), pages[i]);
}

void DropPages(World &w, Random &random, int32_t row) {
  const int32_t g = random.Pick32(0, 2);
  auto &has = w.rows[row].pages[g];
  if (has.empty())
    return;
  const int32_t count = random.Pick32(1, int32_t(has.size()));
  const int32_t first = random.OneIn(2) ? has.begin()->first : has.rbegin()->first + 1 - count;
  if (w.c.rows.DropPages(row, first, count, g) != CGR_OK)
    return; // an encoder's length needs them
  for (int32_t i = 0; i < count; i++)
    w.Give(row, g, first + i);
}

void SetLength(World &w, Random &random, int32_t row) {
  const int32_t set = random.OneIn(3), length = random.Pick32(0, kLength);
  const cgr_status status =
      set == 0 ? cgr__rows_set_length(w.c.rows, row, length) : cgr__rows_set_other_length(w.c.rows, row, set, length);
  if (status == CGR_OK)
    w.SetLength(row, set, length);
}

// Flags of guesses, for some of its requests.
void AddGuesses(Random &random, Batch *batch) {
  batch->has_flags = !random.OneIn(4);
  for (size_t i = 0; i < batch->rows.size() && batch->has_flags; i++)
    batch->flags.push_back(CGR_REQUEST_DRAFTS(random.Pick32(0, std::clamp(batch->QueryLen(i) - 1, 0, int32_t(kGuesses)))));
}

// Launched, cancelled or abandoned.
void Step(World &w, Random &random, Counts *counts) {
  const int32_t set = random.OneIn(4);
  Batch batch = Batch::Prefill({}, {});
  for (int32_t row : w.Open())
    if (!random.OneIn(3)) {
      batch.rows.push_back(row);
      batch.query_lens.push_back(random.OneIn(2) ? random.Pick32(0, 12) : 1);
    }
  std::shuffle(batch.rows.begin(), batch.rows.end(), std::mt19937(uint32_t(random.Bits())));
  batch.WithIds();
  if (set == 0)
    AddGuesses(random, &batch);
  if (w.c.launched >= kDepth) // a readback slot is used again
    w.TakeResults(w.c.launched + 1 - kDepth);
  if (w.c.pool.Validate(w.c.rows, batch.Get(), &w.c.checked, set) != CGR_OK)
    return; // for want of pages
  const bool legal = w.MayStep(batch, set);
  const cgr_status status = cgr__ledger_check_step(w.c.rows, &w.c.checked, w.c.launched + 1);
  ASSERT_EQ(status, legal ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT) << cgr_last_message();
  counts->steps += legal;
  counts->refused_steps += !legal;
  if (!legal || random.OneIn(5))
    return;
  w.c.launched++;
  if (random.OneIn(6)) {
    cgr__batch_abandon(w.c.rows, &w.c.checked, w.c.launched);
    for (int32_t row : batch.rows)
      w.rows[row].last_seq = w.c.launched;
    return;
  }
  w.c.pool.Prepare(&w.c.checked);
  w.c.pool.Launch(w.c.rows, &w.c.checked, w.c.launched);
  w.Launch(batch, set, random);
}

// The same with the standing batch: all open rows, or some.
void StepStanding(World &w, Random &random, Counts *counts) {
  Batch batch = Batch::Prefill({}, {});
  cgr__follow_end(w.c.rows, &w.c.rows.batches); // a row is a member only of the standing batch
  if (w.c.launched >= kDepth)
    w.TakeResults(w.c.launched + 1 - kDepth);
  batch.has_flags = true;
  for (int32_t row : w.Open()) {
    const bool is_in = w.c.rows.rows.row[row].place >= 0;
    const int32_t query_len = random.OneIn(3) ? random.Pick32(0, 9) : 1;
    const uint32_t flags = CGR_REQUEST_DRAFTS(random.Pick32(0, std::clamp(query_len - 1, 0, int32_t(kGuesses))));
    const std::vector<int32_t> tokens(size_t(query_len), 3);
    if (is_in && random.OneIn(4))
      ASSERT_EQ(cgr__standing_remove(w.c.rows, &w.c.rows.batches, row), CGR_OK);
    else
      ASSERT_EQ(
          (is_in ? cgr__standing_update : cgr__standing_add)(w.c.rows, &w.c.rows.batches, row, query_len, tokens.data(), flags),
          CGR_OK)
          << cgr_last_message();
  }
  const cgr__batch_layout &members = w.c.rows.batches.members.layout;
  for (int32_t i = 0; i < members.num_requests; i++) {
    batch.rows.push_back(members.rows[i]);
    batch.query_lens.push_back(members.query_lens[i]);
    batch.flags.push_back(members.flags[i]);
  }
  if (cgr__standing_validate(w.c.rows, &w.c.rows.batches, 0, &w.c.checked) == CGR_OK) {
    const bool legal = w.MayStep(batch, 0);
    const cgr_status status = cgr__ledger_check_step(w.c.rows, &w.c.checked, w.c.launched + 1);
    ASSERT_EQ(status, legal ? CGR_OK : CGR_ERROR_INVALID_ARGUMENT) << cgr_last_message();
    counts->steps += legal;
    counts->refused_steps += !legal;
    if (legal && !random.OneIn(5)) {
      cgr__batch_layouts_launch(&w.c.pool.pool, ++w.c.launched, cgr__members_snapshot(&w.c.rows.batches));
      cgr__members_commit(w.c.rows, &w.c.rows.batches, w.c.launched, w.c.launched);
      w.Launch(batch, 0, random);
    }
  }
  while (members.num_requests > 0)
    ASSERT_EQ(cgr__standing_remove(w.c.rows, &w.c.rows.batches, members.rows[0]), CGR_OK);
}

TEST(Ledger, AgreesWithAModelOfEveryToken) {
  SeededRandom random;
  Counts counts;
  for (int run = 0; run < 700 && !::testing::Test::HasFatalFailure(); run++) {
    World w;
    for (int n = 0; n < 400 && !::testing::Test::HasFatalFailure(); n++) {
      const std::vector<int32_t> open = w.Open();
      if (open.empty() || random.OneIn(12)) {
        OpenOne(w);
        continue;
      }
      const int32_t row = open[size_t(random.Pick(0, int64_t(open.size()) - 1))];
      const int64_t what = random.Pick(0, 19);
      if (what == 0)
        CloseOne(w, row);
      else if (what < 8)
        GivePages(w, random, row, &counts);
      else if (what == 8)
        DropPages(w, random, row);
      else if (what < 11)
        SetLength(w, random, row);
      else if (what < 16)
        Step(w, random, &counts);
      else if (what < 18)
        StepStanding(w, random, &counts);
      else
        w.c.completed = uint64_t(random.Pick(int64_t(w.c.completed), int64_t(w.c.launched)));
      if (random.OneIn(25)) // the host looks when it prepares or waits
        w.TakeResults(w.c.completed);
    }
  }
  for (int count : { counts.steps, counts.refused_steps, counts.given, counts.refused_pages })
    EXPECT_GT(count, 100) << counts.steps << " " << counts.refused_steps << " " << counts.given << " " << counts.refused_pages;
}

} // namespace

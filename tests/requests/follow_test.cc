// Batches that are given whole and nearly repeat. Three worlds make the same calls: one whose members follow, one that looks at
// every request, one that edits a standing batch. All must agree, and so must a device that is told only the differences.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/requests/told.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

enum { kMaxLen = 400, kPages = kMaxLen / 16 };
const uint32_t kPartial = CGR_REQUEST_PARTIAL;

struct Size {
  int32_t rows, requests, tokens;
};

// A request as the engine that makes the batches knows it.
struct Work {
  int32_t row, len = 1;
  uint32_t flags = 0;
};

// The same calls in rows whose members follow, in rows without any, and in rows whose members the engine edits.
struct Worlds {
  Size size;
  Rows following{ size.rows, kMaxLen, { { 16, 1 << 20 } }, size.requests, size.tokens },
      plain{ size.rows, kMaxLen, { { 16, 1 << 20 } } },
      edited{ size.rows, kMaxLen, { { 16, 1 << 20 } }, size.requests, size.tokens };
  Pool pool{ following, size.requests, size.tokens, 3 }, plain_pool{ plain, size.requests, size.tokens, 3 },
      edited_pool{ edited, size.requests, size.tokens, 3 };
  uint64_t launched = 0, tags = 0;
  Told device; // of `following`
  bool lost = true;

  explicit Worlds(const Size &s) : size(s) {}
  std::vector<Rows *> All() { return { &following, &plain, &edited }; }
  int32_t Open() {
    int32_t row = -1;
    tags++;
    for (Rows *rows : All())
      row = rows->OpenWithPages(2, 10, tags);
    return row;
  }
  void Close(int32_t row) {
    if (edited.rows.row[row].place >= 0) {
      EXPECT_EQ(cgr__standing_remove(edited, &edited.batches, row), CGR_OK);
    }
    for (Rows *rows : All())
      EXPECT_EQ(cgr__rows_close(*rows, row), CGR_OK) << cgr_last_message();
  }
  void GivePages(int32_t row, int32_t count) {
    for (Rows *rows : All()) {
      const int32_t end = rows->rows.group[0].row[row].end;
      List pages(size_t(std::min(count, kPages - end)));
      std::iota(pages.begin(), pages.end(), 100 + end);
      EXPECT_EQ(rows->SetPages(row, end, pages), CGR_OK) << cgr_last_message();
    }
  }
  void SetLength(int32_t row, int32_t length) {
    for (Rows *rows : All())
      EXPECT_EQ(cgr__rows_set_length(*rows, row, length), CGR_OK) << cgr_last_message();
  }
  const cgr__row &Row(Rows &rows, int32_t row) {
    cgr__members_sync(rows, row);
    return rows.rows.row[row];
  }
  // The edited batch becomes the given one. Statuses are not compared: an edit may be refused for what the batch is refused for.
  bool Edit(const Batch &batch) {
    cgr__members &s = edited.batches.members;
    bool good = true;
    for (int32_t i = s.layout.num_requests - 1; i >= 0; i--)
      if (std::find(batch.rows.begin(), batch.rows.end(), s.layout.rows[i]) == batch.rows.end())
        good &= cgr__standing_remove(edited, &edited.batches, s.layout.rows[i]) == CGR_OK;
    int64_t at = 0;
    for (size_t i = 0; i < batch.rows.size() && good; i++) {
      const int32_t row = batch.rows[i];
      const int32_t *tokens = batch.has_tokens ? batch.tokens.data() + at : nullptr;
      const bool is_in = row >= 0 && row < size.rows && edited.rows.row[row].place >= 0;
      good &= (is_in ? cgr__standing_update : cgr__standing_add)(edited, &edited.batches, row, batch.QueryLen(i), tokens,
                                                                 batch.has_flags ? batch.flags[i] : 0) == CGR_OK;
      good = good && cgr__standing_swap(edited, &edited.batches, row, s.layout.rows[i]) == CGR_OK;
      at += batch.QueryLen(i);
    }
    return good && s.layout.num_requests == int32_t(batch.rows.size());
  }
  void CompareRows() {
    for (int32_t i = 0; i < size.rows; i++) {
      const cgr__row &expected = plain.rows.row[i];
      for (Rows *rows : { &following, &edited }) {
        const cgr__row &row = Row(*rows, i);
        ASSERT_EQ(row.computed, expected.computed) << "row " << i;
        ASSERT_EQ(row.last_seq, expected.last_seq) << "row " << i;
        ASSERT_EQ(row.shared_prefix, expected.shared_prefix) << "row " << i;
        if (expected.open) {
          ASSERT_EQ(row.has_token, expected.has_token) << "row " << i;
        }
      }
    }
  }
};

// An engine whose batches change a little from step to step, in all the ways in which engines change them.
struct Engine {
  Random &random;
  Worlds w;
  std::vector<Work> running;
  List waiting;        // open, and in no batch
  int closed_rows = 0; // batches to come that name no row where one was closed
  size_t closed_place = 0;
  int64_t launched = 0, followed = 0, few = 0, refused = 0;

  Engine(Random &r, const Size &size) : random(r), w(size) {}
  size_t Any(size_t count) { return size_t(random.Pick(0, int64_t(count) - 1)); }

  void Leave() {
    const size_t i = Any(running.size());
    waiting.push_back(running[i].row);
    if (random.OneIn(4)) {
      running.erase(running.begin() + std::ptrdiff_t(i));
      closed_rows = random.Pick32(1, 3);
      closed_place = i;
      w.Close(waiting.back());
      waiting.pop_back();
      return;
    }
    if (random.OneIn(2)) { // the last takes its place
      running[i] = running.back();
      running.pop_back();
    } else {
      running.erase(running.begin() + std::ptrdiff_t(i));
    }
    if (random.OneIn(2)) {
      w.Close(waiting.back());
      waiting.pop_back();
    }
  }
  void Come() {
    int32_t row;
    if (w.plain.rows.num_open < w.size.rows && (waiting.empty() || random.OneIn(2))) {
      row = w.Open();
    } else if (waiting.empty()) {
      return;
    } else {
      const size_t i = Any(waiting.size());
      row = waiting[i];
      waiting.erase(waiting.begin() + std::ptrdiff_t(i));
    }
    const auto place = random.OneIn(3) ? running.begin() + std::ptrdiff_t(Any(running.size() + 1)) : running.end();
    running.insert(place, { row, random.OneIn(2) ? random.Pick32(0, 20) : 1, random.OneIn(3) ? kPartial : 0u });
  }
  void Change() {
    for (int32_t i = random.OneIn(20) ? w.size.requests : 1; i > 0; i--) { // now and then very many
      if (random.OneIn(5) || running.empty())
        Come();
      if (random.OneIn(8) && !running.empty())
        Leave();
    }
    if (random.OneIn(12) && running.size() > 1)
      std::swap(running[Any(running.size())], running[Any(running.size())]);
    if (random.OneIn(50))
      std::reverse(running.begin(), running.end());
    for (Work &work : running) {
      const cgr__row &row = w.Row(w.plain, work.row);
      if (work.len > 1 || work.flags != 0 || random.OneIn(40)) // one more chunk, or the last
        work = { work.row, random.OneIn(3) ? random.Pick32(0, 20) : 1, random.OneIn(6) ? kPartial : 0u };
      if (row.computed + work.len > row.capacity && !random.OneIn(200))
        w.GivePages(work.row, random.Pick32(1, 3));
      if (row.computed > 300 || random.OneIn(300))
        w.SetLength(work.row, random.Pick32(0, std::min(row.capacity, 100)));
    }
  }
  Batch Make() {
    Batch batch;
    bool given = random.OneIn(3), ones = true, flags = false;
    if (closed_rows-- > 0)
      return WithClosedRow();
    for (const Work &work : running) {
      batch.rows.push_back(work.row);
      batch.query_lens.push_back(work.len);
      batch.flags.push_back(work.flags);
      ones &= work.len == 1;
      flags |= work.flags != 0;
      given |= work.len > 1 || (work.len == 1 && !w.Row(w.plain, work.row).has_token);
    }
    batch.has_query_lens = !ones || random.OneIn(4);
    batch.has_flags = flags || random.OneIn(4);
    if (given)
      batch.WithIds();
    const bool last = random.OneIn(2); // where the device has one
    for (size_t i = 0, at = 0; given && i < running.size(); at += size_t(batch.QueryLen(i++)))
      if (last && batch.QueryLen(i) > 0 && w.Row(w.plain, batch.rows[i]).has_token)
        batch.tokens[at] = CGR_TOKEN_LAST;
    return random.OneIn(30) ? Invalid(batch) : batch;
  }
  // Decodes, and one of row -1 among them: what the members that follow have where a row was closed.
  Batch WithClosedRow() {
    Batch batch;
    for (const Work &work : running)
      batch.rows.push_back(work.row);
    batch.rows.insert(batch.rows.begin() + std::ptrdiff_t(std::min(closed_place, batch.rows.size())), -1);
    return random.OneIn(2) ? batch.WithIds() : batch;
  }
  Batch Invalid(Batch batch) {
    const size_t i = batch.rows.empty() ? 0 : Any(batch.rows.size());
    switch (batch.rows.empty() ? 9 : random.Pick(0, 7)) {
    case 0:
      batch.rows[i] = random.Pick32(-2, w.size.rows);
      break;
    case 1:
      batch.rows[i] = batch.rows[Any(batch.rows.size())];
      break;
    case 2:
      batch.has_query_lens = true;
      batch.query_lens[i] = random.OneIn(2) ? -1 : INT32_MAX;
      batch.has_tokens = false;
      break;
    case 3:
      batch.WithFlags(std::vector<uint32_t>(batch.rows.size(), 6));
      break;
    case 4:
      batch.has_tokens = false;
      break;
    default:
      if (batch.has_tokens && !batch.tokens.empty())
        batch.tokens[Any(batch.tokens.size())] = random.Pick32(-3, -1);
    }
    return batch;
  }
  void CompareChecked(const Batch &batch, const cgr__checked_batch &got, const cgr__checked_batch &expected) {
    const size_t n = batch.rows.size();
    const cgr__batch_layout *a = got.batch_layout, *b = expected.batch_layout;
    ASSERT_EQ(got.num_requests, expected.num_requests);
    ASSERT_EQ(got.num_tokens, expected.num_tokens);
    ASSERT_EQ(got.query_len, expected.query_len);
    ASSERT_EQ(got.max_query_len, expected.max_query_len);
    ASSERT_EQ(got.append_first, expected.append_first);
    ASSERT_EQ(List(a->rows, a->rows + n), List(b->rows, b->rows + n));
    ASSERT_EQ(List(a->query_lens, a->query_lens + n), List(b->query_lens, b->query_lens + n));
    ASSERT_EQ(std::vector<uint32_t>(a->flags, a->flags + n), std::vector<uint32_t>(b->flags, b->flags + n));
    ASSERT_EQ(std::vector<uint64_t>(a->tags, a->tags + n), std::vector<uint64_t>(b->tags, b->tags + n));
  }
  // What the device is told, as the runtime tells it, is the batch.
  void CompareDevice(const Batch &batch, const cgr__checked_batch &checked, Told *told) {
    const cgr__members &s = w.following.batches.members;
    const cgr__batch_layout *c = checked.batch_layout;
    const size_t n = batch.rows.size();
    const bool whole = w.lost || s.device_seq != w.launched || s.all_dirty;
    told->Hear(w.following, whole);
    ASSERT_EQ(told->rows, batch.rows);
    ASSERT_EQ(told->lens, List(c->query_lens, c->query_lens + n));
    ASSERT_EQ(told->flags, std::vector<uint32_t>(c->flags, c->flags + n));
    few += !whole && told->num_edits > 0;
  }
  void Launch(const Batch &batch, cgr__checked_batch *checked, cgr__checked_batch *expected) {
    Told told = w.device;
    if (checked->follows)
      ASSERT_NO_FATAL_FAILURE(CompareDevice(batch, *checked, &told));
    else
      told.Take(*checked->batch_layout);
    if (random.OneIn(10)) // cancelled
      return;
    w.pool.Prepare(checked);
    w.plain_pool.Prepare(expected);
    w.pool.Launch(w.following, checked, ++w.launched);
    w.plain_pool.Launch(w.plain, expected, w.launched);
    cgr__batch_layouts_launch(&w.edited_pool.pool, w.launched, cgr__members_snapshot(&w.edited.batches));
    cgr__members_commit(w.edited, &w.edited.batches, w.launched, w.launched);
    w.device = told;
    w.lost = random.OneIn(20);
    launched++;
    followed += checked->follows;
    for (Work &work : running)
      work.flags = random.OneIn(2) ? work.flags : 0;
    const cgr__batch_layout *c = cgr__batch_layout_of(&w.pool.pool, w.launched);
    ASSERT_EQ(List(c->rows, c->rows + batch.rows.size()), batch.rows);
  }
  void Step() {
    Change();
    const Batch batch = Make();
    cgr__checked_batch checked, expected, standing;
    const bool repeats = !batch.rows.empty() && [&] {
      const cgr_batch given = batch.Get();
      return cgr__follow_repeats(&w.following.batches, &given, &checked);
    }();
    const cgr_status status = repeats ? CGR_OK : w.pool.Validate(w.following, batch, &checked);
    const std::string message = cgr_last_message();
    ASSERT_EQ(status, w.plain_pool.Validate(w.plain, batch, &expected)) << message << "\n" << cgr_last_message();
    if (status != CGR_OK) {
      ASSERT_EQ(message, cgr_last_message());
      refused++;
      if (int32_t(batch.rows.size()) > w.size.requests || status == CGR_ERROR_TOO_MANY_TOKENS)
        Leave();
    } else if (!batch.rows.empty()) {
      ASSERT_NO_FATAL_FAILURE(CompareChecked(batch, checked, expected));
      ASSERT_TRUE(w.Edit(batch)) << cgr_last_message();
      ASSERT_EQ(cgr__standing_validate(w.edited, &w.edited.batches, 0, &standing), CGR_OK) << cgr_last_message();
      ASSERT_NO_FATAL_FAILURE(Launch(batch, &checked, &expected));
    }
    ASSERT_NO_FATAL_FAILURE(w.CompareRows());
  }
};

// The place of a row that was closed is like no row, whatever a batch has there.
TEST(Follow, ABadRowIsNotTakenForAClosedOne) {
  for (uint64_t steps : { 1, 2, 4 }) // the batch was looked at whole; then the members began to follow; then they followed
    for (int32_t bad : { -1, -2, 1 }) {
      Rows rows(4, 100, { {} }, 4, 60);
      Pool pool(rows, 4, 60, 3);
      const List open = { rows.OpenWithPages(4, 10), rows.OpenWithPages(4, 20), rows.OpenWithPages(4, 30) };
      Batch batch = Batch::Decode(open);
      for (uint64_t seq = 1; seq <= steps; seq++)
        ASSERT_EQ(pool.Step(rows, seq == 1 ? Batch(batch).WithIds() : batch, seq), CGR_OK) << cgr_last_message();
      ASSERT_EQ(cgr__rows_close(rows, open[1]), CGR_OK);
      batch.rows[1] = bad;
      cgr__checked_batch checked;
      for (int n = 0; n < 3; n++) {
        const cgr_batch given = batch.Get();
        EXPECT_FALSE(cgr__follow_repeats(&rows.batches, &given, &checked));
        EXPECT_EQ(pool.Validate(rows, batch, &checked), bad == 1 ? CGR_ERROR_ROW_CLOSED : CGR_ERROR_INVALID_ARGUMENT);
      }
      batch.rows = { open[0], open[2] };
      ASSERT_EQ(pool.Step(rows, batch, steps + 1), CGR_OK) << cgr_last_message();
      EXPECT_EQ(rows.Computed(open[2]), int32_t(steps) + 1);
    }
}

// A call that is refused does not make the standing batch the engine's.
TEST(Follow, RefusedEditsOfTheStandingBatchChangeNothing) {
  Rows rows(4, 100, { {} }, 4, 60);
  Pool pool(rows, 4, 60, 3);
  const List open = { rows.OpenWithPages(4, 10), rows.OpenWithPages(4, 20) };
  ASSERT_EQ(pool.Step(rows, Batch::Decode(open).WithIds(), 1), CGR_OK);
  ASSERT_EQ(pool.Step(rows, Batch::Decode(open), 2), CGR_OK);
  ASSERT_TRUE(rows.batches.members.follows);
  EXPECT_EQ(cgr__standing_update(rows, &rows.batches, open[0], 1, nullptr, 0), CGR_ERROR_STATE)
      << "it is no member of the engine's";
  EXPECT_EQ(cgr__standing_remove(rows, &rows.batches, open[0]), CGR_ERROR_STATE);
  EXPECT_EQ(cgr__standing_swap(rows, &rows.batches, open[0], open[1]), CGR_ERROR_STATE);
  EXPECT_EQ(cgr__standing_add(rows, &rows.batches, open[0], 1, nullptr, 2), CGR_ERROR_INVALID_ENUM);
  EXPECT_TRUE(rows.batches.members.follows);
  EXPECT_EQ(cgr__standing_add(rows, &rows.batches, open[0], 1, nullptr, 0), CGR_OK) << cgr_last_message();
  EXPECT_FALSE(rows.batches.members.follows);
  EXPECT_EQ(rows.batches.members.layout.num_requests, 1);
}

TEST(Follow, AgreesWithALookAtAllAndWithEdits) {
  const char *count = getenv("CGR_TEST_BATCHES"); // for longer runs
  const int64_t batches = count ? atoll(count) : 30000;
  SeededRandom random;
  int64_t launched = 0, followed = 0, few = 0, refused = 0;
  for (int64_t done = 0; done < batches && !HasFailure(); done += 500) {
    Engine engine(random, random.OneIn(10) ? Size{ 300, 250, 1500 } : Size{ 12, 9, 60 });
    for (int i = 0; i < 500 && !HasFatalFailure(); i++)
      engine.Step();
    launched += engine.launched;
    followed += engine.followed;
    few += engine.few;
    refused += engine.refused;
  }
  std::cout << launched << " steps, " << followed << " followed, " << few << " told by edits, " << refused << " refused\n";
  EXPECT_GT(launched, batches / 2);
  EXPECT_GT(followed, launched / 2);
  EXPECT_GT(few, launched / 10);
  EXPECT_GT(refused, batches / 100);
}

} // namespace

// What results refer to: the batch layout of a step keeps its rows, lengths, flags and tags until as many newer steps were
// launched as the ring is deep, whatever is validated, launched, closed and opened in between.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

// A batch layout as it was when its step was prepared.
struct Kept {
  List rows, query_lens;
  std::vector<uint32_t> flags;
  std::vector<uint64_t> tags;
  bool followed = false;

  static Kept Of(const cgr__batch_layout *c) {
    auto n = c->num_requests;
    return { List(c->rows, c->rows + n), List(c->query_lens, c->query_lens + n), std::vector<uint32_t>(c->flags, c->flags + n),
             std::vector<uint64_t>(c->tags, c->tags + n), false };
  }
  bool operator==(const Kept &other) const {
    return rows == other.rows && query_lens == other.query_lens && flags == other.flags && tags == other.tags;
  }
  // The result of a step that members followed refers to rows and tags alone.
  bool IsToldBy(const cgr__batch_layout *c) const {
    if (!followed)
      return Of(c) == *this;
    return rows == List(c->rows, c->rows + rows.size()) && tags == std::vector<uint64_t>(c->tags, c->tags + rows.size());
  }
};

// A host at work, which remembers what each result must tell.
struct Host {
  Rows rows;
  Pool pool;
  uint64_t depth, launched = 0;
  std::map<uint64_t, std::unique_ptr<Kept>> expected; // NULL: a step without requests of its own
  std::unique_ptr<Kept> prepared_kept;
  cgr__checked_batch prepared;
  List open;
  uint64_t tags = 0;

  Host(int32_t max_rows, int32_t ring_depth)
      : rows(max_rows, 1 << 20, { {} }, max_rows, 1000), pool(rows, max_rows, 1000, ring_depth),
        depth(static_cast<uint64_t>(ring_depth)) {}

  void Open() {
    open.push_back(rows.OpenWithPages(100, 10, ++tags));
    ASSERT_LT(open.back(), rows.rows.limits->max_rows);
  }
  void Close(size_t i) {
    ASSERT_EQ(cgr__rows_close(rows, open[i]), CGR_OK);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // A row of the prepared step may not be closed.
  bool IsPrepared(int32_t row) const {
    const List &rows_of_step = prepared_kept->rows;
    return std::find(rows_of_step.begin(), rows_of_step.end(), row) != rows_of_step.end();
  }
  // The batch layout must be exactly the batch.
  void Prepare(const Batch &batch) {
    ASSERT_EQ(pool.Validate(rows, batch, &prepared), CGR_OK) << cgr_last_message();
    ASSERT_TRUE(prepared.follows || prepared.batch_layout < pool.pool.all + pool.pool.depth + CGR__SPARE_BATCH_LAYOUTS)
        << "the pool has run out";
    pool.Prepare(&prepared);
    prepared_kept = std::make_unique<Kept>(Kept::Of(prepared.batch_layout));
    std::vector<uint64_t> now;
    for (int32_t row : batch.rows)
      now.push_back(rows.rows.row[row].tag);
    ASSERT_EQ(prepared_kept->rows, batch.rows);
    ASSERT_EQ(prepared_kept->tags, now) << "the tags are those of now";
  }
  void Cancel() {
    pool.Cancel(&prepared);
    prepared_kept.reset();
  }
  void Launch() {
    pool.Launch(rows, &prepared, ++launched);
    prepared_kept->followed = prepared.follows;
    expected[launched] = std::move(prepared_kept);
  }
  // Changes sent ahead, or a number that is used up.
  void LaunchWithoutRequests() {
    cgr__batch_layouts_launch(&pool.pool, ++launched, nullptr);
    expected[launched] = nullptr;
  }
  void GiveUp() {
    pool.Cancel(&prepared);
    LaunchWithoutRequests();
    cgr__batch_abandon(rows, &prepared, launched);
    prepared_kept.reset();
  }
  // A look at another batch, as cgr_step_choose takes.
  void Choose(const Batch &batch) {
    cgr__checked_batch checked;
    ASSERT_EQ(pool.Choose(rows, batch, prepared_kept != nullptr, &checked), CGR_OK) << cgr_last_message();
    ASSERT_TRUE(checked.follows || checked.batch_layout < pool.pool.all + pool.pool.depth + CGR__SPARE_BATCH_LAYOUTS)
        << "the pool has run out";
  }
  void Check() {
    for (uint64_t seq = launched; seq > 0 && seq + depth > launched; seq--) {
      const cgr__batch_layout *kept = cgr__batch_layout_of(&pool.pool, seq);
      ASSERT_EQ(kept != nullptr, expected[seq] != nullptr) << "step " << seq;
      if (kept != nullptr) {
        ASSERT_TRUE(expected[seq]->IsToldBy(kept)) << "step " << seq << " of " << launched;
      }
    }
    if (prepared_kept != nullptr) {
      ASSERT_TRUE(Kept::Of(prepared.batch_layout) == *prepared_kept) << "the prepared step";
    }
  }
};

TEST(BatchLayouts, AResultIsKeptForAsManyStepsAsTheRingIsDeep) {
  for (int32_t depth = 2; depth <= 8; depth++) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    Host host(6, depth);
    for (int i = 0; i < 6; i++)
      host.Open();
    for (int step = 0; step < 40; step++) {
      List rows = { host.open[static_cast<size_t>(step % 6)], host.open[static_cast<size_t>((step + 1) % 6)] };
      host.Prepare(Batch::Prefill(rows, { step % 4, 1 + step % 3 }).WithFlags({ 0, static_cast<uint32_t>(step % 2) }));
      host.Launch();
      host.Check();
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(BatchLayouts, ABatchThatRepeatsIsWrittenDownOnce) {
  Host host(4, 8);
  for (int i = 0; i < 4; i++)
    host.Open();
  host.Prepare(Batch::Prefill(host.open, { 3, 3, 3, 3 }));
  host.Launch();
  host.Prepare(Batch::Decode(host.open));
  const cgr__batch_layout *first = host.prepared.batch_layout;
  for (int step = 0; step < 30; step++) {
    host.Launch();
    host.Check();
    host.Prepare(Batch::Decode(host.open));
    ASSERT_EQ(host.prepared.batch_layout, first);
  }
}

// The row number stays, the request does not.
TEST(BatchLayouts, AReopenedRowInARepeatedBatchHasItsNewTagInNewStepsAlone) {
  for (int32_t depth = 2; depth <= 8; depth++) {
    Host host(3, depth);
    for (int i = 0; i < 3; i++)
      host.Open();
    host.Prepare(Batch::Prefill(host.open, { 5, 5, 5 }));
    host.Launch();
    for (int round = 0; round < 20; round++) {
      List rows = host.open;
      for (int i = 0; i < round % 3; i++) {
        host.Prepare(Batch::Decode(rows));
        host.Launch();
      }
      int32_t left = rows[1];
      ASSERT_EQ(cgr__rows_close(host.rows, left), CGR_OK);
      ASSERT_EQ(host.rows.OpenWithPages(100, 10, ++host.tags), left);
      host.Prepare(Batch::Decode(rows).WithIds());
      EXPECT_EQ(host.prepared.batch_layout->tags[1], host.tags);
      host.Launch();
      host.Check();
      EXPECT_EQ(cgr__batch_layout_of(&host.pool.pool, host.launched)->tags[1], host.tags);
      if (round % 3 > 0) {
        EXPECT_EQ(cgr__batch_layout_of(&host.pool.pool, host.launched - 1)->tags[1], host.tags - 1);
      }
      EXPECT_EQ(host.rows.Computed(left), 1) << "the steps of the request before do not count";
      EXPECT_EQ(host.rows.rows.row[left].last_seq, host.launched);
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST(BatchLayouts, LookingAtOtherBatchesLeavesThePreparedOneAsItIs) {
  for (int32_t depth = 2; depth <= 8; depth++) {
    Host host(4, depth);
    for (int i = 0; i < 4; i++)
      host.Open();
    for (int step = 0; step < 3 * depth; step++) { // all batch layouts are in use
      host.Prepare(Batch::Prefill({ host.open[static_cast<size_t>(step % 4)] }, { 1 + step }));
      for (int other = 0; other < 5; other++) {
        host.Choose(Batch::Prefill({ host.open[static_cast<size_t>(other % 4)], host.open[static_cast<size_t>((other + 1) % 4)] },
                                   { other, 7 }));
        host.Check();
      }
      host.Launch();
      host.Check();
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(BatchLayouts, StepsWithoutRequestsOfTheirOwnHaveNone) {
  Host host(2, 3);
  host.Open();
  host.Open();
  host.Prepare(Batch::Prefill(host.open, { 3, 3 }));
  host.Launch();
  for (int step = 0; step < 12; step++) {
    host.LaunchWithoutRequests();
    host.Check();
    host.Prepare(Batch::Decode(host.open));
    host.Launch();
    host.Check();
    host.Prepare(Batch()); // a dummy step
    host.Launch();
    host.Check();
    EXPECT_EQ(cgr__batch_layout_of(&host.pool.pool, host.launched)->num_requests, 0);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// ------------------------------------------------------------------------------------------------------------------ random

Batch RandomBatch(Random &random, Host &host, const Batch &last) {
  bool alive = !last.rows.empty();
  for (int32_t row : last.rows)
    alive &= std::find(host.open.begin(), host.open.end(), row) != host.open.end();
  if (alive && random.OneIn(2))
    return last; // again, perhaps with rows that were closed and opened
  List chosen = host.open, lengths;
  for (size_t i = chosen.size(); i > 1; i--)
    std::swap(chosen[i - 1], chosen[static_cast<size_t>(random.Pick(0, static_cast<int64_t>(i) - 1))]);
  chosen.resize(static_cast<size_t>(random.Pick(0, static_cast<int64_t>(chosen.size()))));
  int32_t uniform = random.OneIn(2) ? random.Pick32(1, 2) : 0;
  for (size_t i = 0; i < chosen.size(); i++)
    lengths.push_back(uniform ? uniform : random.Pick32(0, 2));
  Batch batch = Batch::Prefill(chosen, lengths);
  if (random.OneIn(3)) {
    std::vector<uint32_t> flags;
    for (size_t i = 0; i < chosen.size(); i++)
      flags.push_back(static_cast<uint32_t>(random.Pick(0, 1)));
    batch.WithFlags(flags);
  }
  return batch;
}

void RandomEvent(Random &random, Host &host, Batch *last) {
  bool prepared = host.prepared_kept != nullptr;
  int64_t choice = random.Pick(0, 9);
  if (choice == 0 && host.open.size() < 5) {
    host.Open();
  } else if (choice == 1 && !host.open.empty()) {
    size_t i = static_cast<size_t>(random.Pick(0, static_cast<int64_t>(host.open.size()) - 1));
    if (prepared && host.IsPrepared(host.open[i]))
      return;
    host.Close(i);
    if (random.OneIn(2))
      host.Open();
  } else if (choice == 2) {
    host.Choose(RandomBatch(random, host, *last));
  } else if (choice == 3 && !prepared) {
    host.LaunchWithoutRequests();
  } else if (!prepared) {
    *last = RandomBatch(random, host, *last);
    host.Prepare(*last);
  } else {
    choice == 4 ? host.Cancel() : choice == 5 ? host.GiveUp() : host.Launch();
  }
}

TEST(BatchLayouts, RandomStepsKeepWhatTheirResultsReferTo) {
  SeededRandom random;
  for (int32_t depth = 2; depth <= 8; depth++) {
    SCOPED_TRACE("depth " + std::to_string(depth));
    Host host(5, depth);
    Batch last;
    for (int event = 0; event < 1500; event++) {
      RandomEvent(random, host, &last);
      host.Check();
      ASSERT_FALSE(HasFatalFailure());
    }
    if (host.prepared_kept != nullptr)
      host.Cancel();
    for (uint64_t i = 0; i < host.depth; i++)
      host.LaunchWithoutRequests();
    for (int32_t i = 0; i < host.pool.pool.depth + CGR__SPARE_BATCH_LAYOUTS; i++)
      EXPECT_EQ(host.pool.pool.all[i].uses, 0) << "nothing refers to it any more";
  }
}

} // namespace

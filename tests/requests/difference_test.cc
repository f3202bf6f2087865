// How a batch that is given whole differs from one that was: every difference is found, and no more than may be.
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "requests/difference.h"
}

#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// A batch layout, and a batch that is given whole.
class Lists {
public:
  explicit Lists(int32_t count) : rows_(size_t(count)), lens_(size_t(count), 1), flags_(size_t(count), 0) {
    for (int32_t i = 0; i < count; i++)
      rows_[size_t(i)] = i;
    rows = rows_, lens = lens_, flags = flags_;
  }
  bool Find(bool with_work) {
    cgr__batch_layout old = {};
    old.num_requests = int32_t(rows_.size()), old.rows = rows_.data(), old.query_lens = lens_.data(), old.flags = flags_.data();
    old.query_len = 1;
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = int32_t(rows.size()), batch.rows = rows.data();
    if (with_work)
      batch.query_lens = lens.data(), batch.flags = flags.data();
    return cgr__find_difference(&old, &batch, &d);
  }
  // The new lists, made of the old ones and what was found.
  void ExpectRepeats() const {
    std::vector<int32_t> made_rows, made_lens;
    std::vector<uint32_t> made_flags;
    int32_t old = 0;
    auto keep = [&](int32_t end) {
      for (; old < end; old++) {
        made_rows.push_back(rows_[size_t(old)]);
        made_lens.push_back(lens_[size_t(old)]), made_flags.push_back(flags_[size_t(old)]);
      }
    };
    for (int32_t k = 0; k < d.num_stretches; k++) {
      const cgr__stretch &s = d.stretch[k];
      keep(s.old_first);
      ASSERT_EQ(s.first, int32_t(made_rows.size()));
      for (int32_t i = s.first; i < s.end; i++) {
        made_rows.push_back(rows[size_t(i)]);
        made_lens.push_back(lens[size_t(i)]), made_flags.push_back(flags[size_t(i)]);
      }
      old = s.old_end;
    }
    keep(int32_t(rows_.size()));
    for (int32_t k = 0; k < d.num_updates; k++) {
      const size_t i = size_t(d.update[k]);
      EXPECT_TRUE(made_lens[i] != lens[i] || made_flags[i] != flags[i]) << i << " has the work that it had";
      made_lens[i] = lens[i], made_flags[i] = flags[i];
    }
    EXPECT_EQ(made_rows, rows);
    EXPECT_EQ(made_lens, lens);
    EXPECT_EQ(made_flags, flags);
  }

  std::vector<int32_t> rows, lens;
  std::vector<uint32_t> flags;
  cgr__difference d;

private:
  std::vector<int32_t> rows_, lens_;
  std::vector<uint32_t> flags_;
};

// Differences that are close together may not be found: few places are tried at which the lists meet again.
TEST(Difference, OfRandomListsLeadsFromOneToTheOther) {
  int found = 0;
  ForSeeds(500, [&](Random &random) {
    Lists lists(random.Pick32(0, 400));
    for (int32_t i = random.Pick32(0, 12), next = 1000; i > 0; i--) {
      const size_t size = lists.rows.size(), at = size_t(random.Pick32(0, int32_t(size)));
      if (at < size && random.OneIn(3)) {
        lists.lens[at] = random.Pick32(0, 9), lists.flags[at] = uint32_t(random.Pick32(0, 1));
      } else if (at < size && random.OneIn(2)) {
        lists.rows.erase(lists.rows.begin() + int64_t(at));
        lists.lens.erase(lists.lens.begin() + int64_t(at)), lists.flags.erase(lists.flags.begin() + int64_t(at));
      } else {
        lists.rows.insert(lists.rows.begin() + int64_t(at), next++);
        lists.lens.insert(lists.lens.begin() + int64_t(at), 3), lists.flags.insert(lists.flags.begin() + int64_t(at), 0);
      }
    }
    if (!lists.Find(true))
      return;
    lists.ExpectRepeats();
    found++;
  });
  EXPECT_GT(found, 400);
}

TEST(Difference, OfArraysThatAreMissingIsThatOfTheirDefaults) {
  Lists lists(300);
  ASSERT_TRUE(lists.Find(false));
  EXPECT_EQ(lists.d.num_stretches + lists.d.num_updates, 0);
  lists.lens[7] = 2, lists.flags[299] = CGR_REQUEST_PARTIAL;
  ASSERT_TRUE(lists.Find(true));
  ASSERT_EQ(lists.d.num_updates, 2);
  EXPECT_EQ(lists.d.update[0], 7);
  EXPECT_EQ(lists.d.update[1], 299);
}

// Requests move only where the number of requests before them changes.
TEST(Difference, SaysWhetherRequestsMove) {
  struct Change {
    bool moves;
    void (*make)(std::vector<int32_t> &rows);
  };
  const Change changes[] = {
    { false, [](std::vector<int32_t> &rows) { rows[3] = 900; } },
    { false, [](std::vector<int32_t> &rows) { rows.push_back(900); } },
    { false, [](std::vector<int32_t> &rows) { rows.pop_back(); } },
    { false, [](std::vector<int32_t> &rows) { rows[3] = rows.back(), rows.pop_back(); } },
    { true, [](std::vector<int32_t> &rows) { rows.erase(rows.begin()); } },
    { true, [](std::vector<int32_t> &rows) { rows.erase(rows.end() - 2); } },
    { true, [](std::vector<int32_t> &rows) { rows.insert(rows.begin() + 5, 900); } },
    { true, [](std::vector<int32_t> &rows) { rows.erase(rows.begin()), rows.push_back(900); } },
  };
  for (const Change &change : changes) {
    SCOPED_TRACE(&change - changes);
    Lists lists(40);
    change.make(lists.rows);
    ASSERT_TRUE(lists.Find(false));
    EXPECT_EQ(lists.d.moves, change.moves);
  }
}

TEST(Difference, OfMoreRequestsThanAreFewIsNotFound) {
  for (int32_t count : { 8, 64, 1024 }) {
    const int32_t few = cgr__few_of(count);
    for (int32_t differ : { few, few + 1 }) {
      Lists lists(count);
      for (int32_t i = 0; i < differ && i < count; i++)
        lists.lens[size_t(i)] = 2;
      EXPECT_EQ(lists.Find(true), differ == few) << differ << " of " << count << " have other work";
      Lists replaced(count); // in stretches of four. Each counts twice
      for (int32_t i = 0; i < (differ + 1) / 2; i++)
        replaced.rows[size_t(i / 4 * 8 + i % 4)] = 2000 + i;
      EXPECT_EQ(replaced.Find(false), (differ + 1) / 2 * 2 <= few) << (differ + 1) / 2 << " of " << count << " are others";
    }
  }
}

TEST(Difference, OfMoreStretchesThanFitIsNotFound) {
  for (int32_t stretches : { CGR__MAX_STRETCHES, CGR__MAX_STRETCHES + 1 }) {
    Lists lists(1024);
    for (int32_t i = 0; i < stretches; i++)
      lists.rows[size_t(20 * i)] = 2000 + i;
    EXPECT_EQ(lists.Find(false), stretches == CGR__MAX_STRETCHES) << stretches;
  }
}

} // namespace
} // namespace cgr_test

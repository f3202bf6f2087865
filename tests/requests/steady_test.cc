// A repeated whole batch is looked at rarely, but never too late: a step is good exactly while every row has room for it, however
// many steps are between the last look and the end of a row's pages.
#include <algorithm>
#include <string>

#include "requests/schedule.h"
#include "tests/requests/rig.h"

namespace {

using namespace cgr_test;

struct Steady {
  static constexpr int32_t kPage = 16;
  Rows rows;
  Pool pool;
  std::vector<int32_t> open, tokens, capacity; // of each row
  uint64_t seq = 0;
  int32_t next_page = 2;

  Steady(int32_t count, int32_t max_seq_len)
      : rows(count, max_seq_len, { { kPage, 1 << 20 } }, count, count), pool(rows, count, 1 << 20, 2) {
    for (int32_t i = 0; i < count; i++) {
      open.push_back(rows.Open());
      tokens.push_back(0);
      capacity.push_back(0);
    }
  }
  void AddPages(size_t i, int32_t pages) {
    std::vector<int32_t> numbers(static_cast<size_t>(pages));
    std::iota(numbers.begin(), numbers.end(), next_page);
    next_page += pages;
    ASSERT_EQ(rows.SetPages(open[i], capacity[i] / kPage, numbers), CGR_OK) << cgr_last_message();
    capacity[i] = std::min(capacity[i] + pages * kPage, rows.rows.limits->max_lens[0]);
  }
  bool HasRoom() const {
    for (size_t i = 0; i < open.size(); i++)
      if (tokens[i] >= capacity[i])
        return false;
    return true;
  }
  // One token for each row; `ids`: the host gives them, so that the batch is looked at for them.
  cgr_status Step(bool ids) {
    Batch batch = Batch::Decode(open);
    if (ids)
      batch.WithIds();
    cgr_status status = pool.Step(rows, batch, seq + 1);
    if (status != CGR_OK)
      return status;
    seq++;
    for (int32_t &count : tokens)
      count++;
    return CGR_OK;
  }
};

// All the room comes at once, after the first looks.
TEST(Steady, SeesTheEndOfManyPagesThatCameLate) {
  const int32_t steps = CGR__SCHEDULE_STEPS;
  for (int32_t pages : { 1, 200, steps / 16 - 1, steps / 16, steps / 16 + 1, 300, 2 * steps / 16, 3 * steps / 16 + 1 })
    for (int32_t at : { 1, 10, 32 }) {
      SCOPED_TRACE(std::to_string(pages) + " pages at step " + std::to_string(at));
      Steady s(1, 1 << 20);
      s.AddPages(0, 2);
      for (int32_t step = 0; step < (2 + pages) * 16; step++) {
        if (step == at)
          s.AddPages(0, pages);
        ASSERT_EQ(s.Step(step == 0), CGR_OK) << step << ": " << cgr_last_message();
      }
      for (int32_t again = 0; again < 3; again++)
        ExpectMessage(s.Step(false), CGR_ERROR_PAGES_MISSING, { "its pages of group 0" });
    }
}

TEST(Steady, SeesMaxSeqLen) {
  for (int32_t max_seq_len : { 4100, 5000, 9001 }) {
    SCOPED_TRACE(max_seq_len);
    Steady s(1, max_seq_len);
    s.AddPages(0, 2);
    for (int32_t step = 0; step < max_seq_len; step++) {
      if (step == 20)
        s.AddPages(0, (max_seq_len + 15) / 16 - 2);
      ASSERT_EQ(s.Step(step == 0), CGR_OK) << step << ": " << cgr_last_message();
    }
    ExpectMessage(s.Step(false), CGR_ERROR_SEQUENCE_TOO_LONG, { "max_seq_len" });
  }
}

// Rows get pages at any time, a few or very many; some steps give their tokens.
TEST(Steady, IsGoodExactlyWhileThereIsRoom) {
  ForSeeds(30, [&](Random &random) {
    Steady s(random.Pick32(1, 3), 1 << 20);
    const int32_t ids_every = random.OneIn(2) ? 1 << 30 : random.Pick32(1, 3000);
    for (int32_t step = 0; step < 20000 && !::testing::Test::HasFatalFailure(); step++) {
      if (random.OneIn(400))
        s.AddPages(static_cast<size_t>(random.Pick32(0, static_cast<int32_t>(s.open.size()) - 1)),
                   random.OneIn(2) ? random.Pick32(1, 20) : random.Pick32(200, 700));
      const bool good = s.HasRoom();
      ASSERT_EQ(s.Step(s.seq == 0 || step % ids_every == 0), good ? CGR_OK : CGR_ERROR_PAGES_MISSING)
          << "step " << step << ": " << cgr_last_message();
    }
  });
}

} // namespace

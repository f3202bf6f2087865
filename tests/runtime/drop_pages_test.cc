// Pages that are taken away from a row: a step that needs them is refused, and whenever the steps in flight run, they overwrite
// nothing of the request that gets the pages.
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class DropPages : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    engine_ = std::make_unique<Engine>(OptionsFor(GetParam()));
    CGR_ASSERT_OK(engine_->Capture());
  }
  void ExpectPages(int32_t row, int32_t first, int32_t end) {
    int32_t got_first = -1, got_end = -1;
    CGR_ASSERT_OK(cgr_request_get_pages(engine_->rt, row, 0, &got_first, &got_end));
    EXPECT_EQ(got_first, first);
    EXPECT_EQ(got_end, end);
  }
  void ExpectMissing(int32_t row) {
    for (const std::vector<int32_t> &tokens : { std::vector<int32_t>{ 3 }, std::vector<int32_t>{ 3, 4, 5 } })
      ExpectRefused(
          *engine_, CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row) },
          [&] {
            return engine_->Prepare({ { row, tokens } });
          },
          1);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(DropPages, AtTheEnd) {
  Engine &engine = *engine_;
  int32_t row = engine.Start(20, 1);
  engine.Reserve(row, 80);
  ExpectPages(row, 0, 5);
  engine.DropPages(row, 2, 3); // beyond its tokens
  ExpectPages(row, 0, 2);
  for (int n = 0; n < 12; n++)
    engine.Step(engine.Decode({ row }));
  ExpectTables(engine);
  engine.DropPages(row, 1, 1); // with the last 16 of its 32 tokens
  ExpectPages(row, 0, 1);
  ExpectMissing(row);
  engine.SetLength(row, 10);
  engine.Step({ { row, { 4 } } });
  ExpectTables(engine);
  engine.Reserve(row, 32);
  engine.Step(engine.Chunks({ { row, 9 } }));
}

TEST_P(DropPages, AtTheFront) {
  Engine &engine = *engine_;
  int32_t row = engine.Start(40, 1), other = engine.Start(5, 2);
  std::vector<int32_t> pages = engine.requests[row]->pages;
  engine.DropPages(row, 0, 1);
  ExpectPages(row, 1, 3);
  ExpectMissing(row);
  engine.Step(engine.Decode({ other }));
  ExpectTables(engine);
  engine.DropPages(row, 1, 1);
  ExpectPages(row, 2, 3);
  ExpectMissing(row);
  EXPECT_EQ(engine.Info(row).num_tokens, 40);
  engine.Step(engine.Decode({ other }));
  ExpectTables(engine);
  // Given back, they serve again: they were not written meanwhile.
  engine.FreePages();
  CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, pages.data(), 2));
  engine.requests[row]->pages.clear();
  engine.requests[row]->first_page = 0;
  engine.Adopt(row, { pages[0], pages[1] });
  engine.requests[row]->pages = pages;
  ExpectPages(row, 0, 3);
  engine.Step(engine.Decode({ row, other }));
  ExpectTables(engine);
}

TEST_P(DropPages, All) {
  Engine &engine = *engine_;
  int32_t row = engine.Start(40, 1), other = engine.Start(5, 2);
  engine.DropPages(row, 0, 3);
  ExpectPages(row, 0, 0);
  ExpectMissing(row);
  engine.Step(engine.Decode({ other }));
  ExpectTables(engine);
  engine.SetLength(row, 0);
  engine.Reserve(row, 20);
  engine.Step({ Engine::Chunk(row, 20, 7) });
  engine.Step(engine.Decode({ row, other }));
  ExpectTables(engine);
}

// Where a row has no page, its table on the device holds the read-trash page.
TEST_P(DropPages, TheTableThenHoldsTheTrashPage) {
  Engine &engine = *engine_;
  int32_t row = engine.Start(60, 1), width = int32_t(engine.View(CGR_BUFFER_PAGE_TABLE).shape[1]);
  engine.Reserve(row, 80);
  engine.DropPages(row, 4, 1);
  engine.DropPages(row, 0, 2);
  CGR_ASSERT_OK(engine.Flush());
  engine.WaitForAll();
  std::vector<int64_t> table = engine.Buffer(CGR_BUFFER_PAGE_TABLE);
  for (int32_t p = 0; p < width; p++)
    EXPECT_EQ(table[size_t(row * width + p)], p == 2 || p == 3 ? engine.requests[row]->pages[size_t(p)] : 0) << p;
}

// A repeating batch is checked less closely: pages taken away in between must still be noticed.
TEST_P(DropPages, InTheMiddleOfARepeatedBatch) {
  Engine &engine = *engine_;
  std::vector<int32_t> rows = { engine.Start(20, 1), engine.Start(30, 2) };
  for (int32_t row : rows)
    engine.Reserve(row, 96);
  for (int n = 0; n < 4; n++)
    engine.Step(engine.Decode(rows));
  engine.DropPages(rows[1], 2, 4);
  ExpectRefused(
      engine, CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(rows[1]), "35", "32" },
      [&] {
        return engine.Prepare({ { rows[0], { CGR_TOKEN_LAST } }, { rows[1], { CGR_TOKEN_LAST } } });
      },
      1);
  engine.Step(engine.Decode({ rows[0] }));
  engine.SetLength(rows[1], 32);
  engine.Step(engine.Chunks({ { rows[0], 1 }, { rows[1], 1 } }));
}

// Preemption: a request loses its pages with its steps in flight, and another gets them as soon as they may be reused. The new
// owner's content must stay as written. The engine takes pages when last_seq allows it, and compares every byte.
TEST_P(DropPages, TheNextOwnerIsNotOverwritten) {
  Engine &engine = *engine_;
  engine.check_outputs = false; // outputs are compared at the end of each round
  for (int round = 0; round < 8 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    int32_t victim = engine.Start(33, round), keeper = engine.Start(7, 10 + round);
    engine.Reserve(victim, 64);
    engine.Reserve(keeper, 64);
    for (int n = 0; n < 3; n++)
      ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(engine.Decode({ victim, keeper })));
    std::vector<int32_t> pages = engine.requests[victim]->pages;
    uint64_t last = engine.Info(victim).last.seq;
    EXPECT_EQ(last, engine.launched);
    engine.DropPages(victim, round % 2 == 0 ? 0 : 2, round % 2 == 0 ? 4 : 2);
    engine.CheckAll();
    ASSERT_GE(cgr_test::Completed(engine.rt), last);
    std::vector<int32_t> gone(pages.begin() + (round % 2 == 0 ? 0 : 2), pages.end());
    int32_t owner = engine.Open();
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, owner, 0, 0, gone.data(), int32_t(gone.size())));
    engine.Adopt(owner, gone);
    engine.PrepareAndLaunch({ Engine::Chunk(owner, int32_t(gone.size()) * 16 - 3, 20 + round) });
    ExpectMissing(victim);
    ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch({ { owner, { CGR_TOKEN_LAST } }, { keeper, { CGR_TOKEN_LAST } } }));
    engine.check_outputs = true;
    engine.CheckAll();
    engine.check_outputs = false;
    engine.CheckCaches();
    for (int32_t row : engine.Rows())
      engine.Close(row);
  }
}

// Any order of setting, dropping, stepping and closing keeps tables, caches and results.
TEST_P(DropPages, AtRandomAmongAllOtherCalls) {
  Engine &engine = *engine_;
  const uint32_t seed = 23;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int n = 0; n < 150 && !HasFatalFailure(); n++) {
    SCOPED_TRACE("iteration " + std::to_string(n));
    std::vector<int32_t> rows = engine.Rows();
    if (rows.size() < 6 && random() % 3 == 0)
      rows.push_back(engine.Open());
    std::vector<Item> items;
    for (int32_t row : rows) {
      Request &r = *engine.requests[row];
      int32_t first = r.first_page, end = int32_t(r.pages.size()), pages = end - first;
      if (pages > 0 && random() % 5 == 0) {
        int32_t count = 1 + int32_t(random() % uint32_t(pages));
        engine.DropPages(row, random() % 2 == 0 ? first : end - count, count);
      }
      if (r.first_page > 0 || int32_t(r.pages.size()) * 16 < r.num_tokens) { // start again, or go back
        if (r.first_page > 0 || random() % 2 == 0) {
          engine.Close(row);
          continue;
        }
        engine.CheckAll();
        engine.SetLength(row, int32_t(r.pages.size()) * 16);
      }
      int32_t length = random() % 3 == 0 ? int32_t(random() % 20) : 1;
      if (r.num_tokens + length > 120 || items.size() == 8 || random() % 6 == 0)
        continue;
      engine.Reserve(row, r.num_tokens + length + int32_t(random() % 40));
      items.push_back(Engine::Chunk(row, length, n, random() % 8 == 0));
    }
    if (engine.NumInFlight() == 3)
      engine.CheckAll();
    ASSERT_NO_FATAL_FAILURE(engine.PrepareAndLaunch(items));
    if (n % 10 == 9) {
      engine.CheckAll();
      engine.Step({});
      ExpectTables(engine);
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(DropPages);

} // namespace
} // namespace cgr_test

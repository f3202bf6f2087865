// Pages that are taken away from a row: a step that needs them is refused, and whenever the steps in flight run, they overwrite
// nothing of the request that gets the pages.
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class DropPages : public CapturedTest {
protected:
  void ExpectPages(int32_t row, int32_t first, int32_t end) {
    int32_t got_first = -1, got_end = -1;
    CGR_ASSERT_OK(cgr_request_get_pages(engine_->rt, row, 0, &got_first, &got_end));
    EXPECT_EQ(got_first, first);
    EXPECT_EQ(got_end, end);
  }
  void ExpectMissing(int32_t row) {
    for (const std::vector<int32_t> &tokens : { std::vector<int32_t>{ 3 }, std::vector<int32_t>{ 3, 4, 5 } })
      ExpectItemsRefused(*engine_, CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row) }, { { row, tokens } });
  }
};

TEST_P(DropPages, AtTheEnd) {
  int32_t row = engine_->Start(20, 1);
  engine_->Reserve(row, 80);
  ExpectPages(row, 0, 5);
  engine_->DropPages(row, 2, 3); // beyond its tokens
  ExpectPages(row, 0, 2);
  for (int n = 0; n < 12; n++)
    engine_->Step(engine_->Decode({ row }));
  ExpectTables(*engine_);
  engine_->DropPages(row, 1, 1); // with the last 16 of its 32 tokens
  ExpectPages(row, 0, 1);
  ExpectMissing(row);
  engine_->SetLength(row, 10);
  engine_->Step({ { row, { 4 } } });
  ExpectTables(*engine_);
  engine_->Reserve(row, 32);
  engine_->Step(engine_->Chunks({ { row, 9 } }));
}

TEST_P(DropPages, AtTheFront) {
  int32_t row = engine_->Start(40, 1), other = engine_->Start(5, 2);
  std::vector<int32_t> pages = engine_->requests[row]->pages;
  engine_->DropPages(row, 0, 1);
  ExpectPages(row, 1, 3);
  ExpectMissing(row);
  engine_->Step(engine_->Decode({ other }));
  ExpectTables(*engine_);
  engine_->DropPages(row, 1, 1);
  ExpectPages(row, 2, 3);
  ExpectMissing(row);
  EXPECT_EQ(engine_->Info(row).num_tokens, 40);
  engine_->Step(engine_->Decode({ other }));
  ExpectTables(*engine_);
  // Given back, they serve again: they were not written meanwhile.
  engine_->FreePages();
  CGR_ASSERT_OK(cgr_request_set_pages(engine_->rt, row, 0, 0, pages.data(), 2));
  engine_->requests[row]->pages.clear();
  engine_->requests[row]->first_page = 0;
  engine_->Adopt(row, { pages[0], pages[1] });
  engine_->requests[row]->pages = pages;
  ExpectPages(row, 0, 3);
  engine_->Step(engine_->Decode({ row, other }));
  ExpectTables(*engine_);
}

TEST_P(DropPages, All) {
  int32_t row = engine_->Start(40, 1), other = engine_->Start(5, 2);
  engine_->DropPages(row, 0, 3);
  ExpectPages(row, 0, 0);
  ExpectMissing(row);
  engine_->Step(engine_->Decode({ other }));
  ExpectTables(*engine_);
  engine_->SetLength(row, 0);
  engine_->Reserve(row, 20);
  engine_->Step({ Engine::Chunk(row, 20, 7) });
  engine_->Step(engine_->Decode({ row, other }));
  ExpectTables(*engine_);
}

// Where a row has no page, its table on the device holds the read-trash page.
TEST_P(DropPages, TheTableThenHoldsTheTrashPage) {
  int32_t row = engine_->Start(60, 1), width = int32_t(engine_->View(CGR_BUFFER_PAGE_TABLE).shape[1]);
  engine_->Reserve(row, 80);
  engine_->DropPages(row, 4, 1);
  engine_->DropPages(row, 0, 2);
  CGR_ASSERT_OK(engine_->Flush());
  engine_->WaitForAll();
  std::vector<int64_t> table = engine_->Buffer(CGR_BUFFER_PAGE_TABLE);
  for (int32_t p = 0; p < width; p++)
    EXPECT_EQ(table[size_t(row * width + p)], p == 2 || p == 3 ? engine_->requests[row]->pages[size_t(p)] : 0) << p;
}

// A repeating batch is checked less closely: pages taken away in between must still be noticed.
TEST_P(DropPages, InTheMiddleOfARepeatedBatch) {
  std::vector<int32_t> rows = { engine_->Start(20, 1), engine_->Start(30, 2) };
  for (int32_t row : rows)
    engine_->Reserve(row, 96);
  for (int n = 0; n < 4; n++)
    engine_->Step(engine_->Decode(rows));
  engine_->DropPages(rows[1], 2, 4);
  ExpectItemsRefused(*engine_, CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(rows[1]), "35", "32" },
                     { { rows[0], { CGR_TOKEN_LAST } }, { rows[1], { CGR_TOKEN_LAST } } });
  engine_->Step(engine_->Decode({ rows[0] }));
  engine_->SetLength(rows[1], 32);
  engine_->Step(engine_->Chunks({ { rows[0], 1 }, { rows[1], 1 } }));
}

// Preemption: a request loses its pages with its steps in flight, and another gets them as soon as they may be reused. The new
// owner's content must stay as written. The engine takes pages when last_seq allows it, and compares every byte.
TEST_P(DropPages, TheNextOwnerIsNotOverwritten) {
  engine_->check_outputs = false; // outputs are compared at the end of each round
  for (int round = 0; round < 8 && !HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    int32_t victim = engine_->Start(33, round), keeper = engine_->Start(7, 10 + round);
    engine_->Reserve(victim, 64);
    engine_->Reserve(keeper, 64);
    for (int n = 0; n < 3; n++)
      ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(engine_->Decode({ victim, keeper })));
    std::vector<int32_t> pages = engine_->requests[victim]->pages;
    uint64_t last = engine_->Info(victim).last.seq;
    EXPECT_EQ(last, engine_->launched);
    engine_->DropPages(victim, round % 2 == 0 ? 0 : 2, round % 2 == 0 ? 4 : 2);
    engine_->CheckAll();
    ASSERT_GE(cgr_test::Completed(engine_->rt), last);
    std::vector<int32_t> gone(pages.begin() + (round % 2 == 0 ? 0 : 2), pages.end());
    int32_t owner = engine_->Open();
    CGR_ASSERT_OK(cgr_request_set_pages(engine_->rt, owner, 0, 0, gone.data(), int32_t(gone.size())));
    engine_->Adopt(owner, gone);
    engine_->PrepareAndLaunch({ Engine::Chunk(owner, int32_t(gone.size()) * 16 - 3, 20 + round) });
    ExpectMissing(victim);
    ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch({ { owner, { CGR_TOKEN_LAST } }, { keeper, { CGR_TOKEN_LAST } } }));
    engine_->check_outputs = true;
    engine_->CheckAll();
    engine_->check_outputs = false;
    engine_->CheckCaches();
    for (int32_t row : engine_->Rows())
      engine_->Close(row);
  }
}

// Any order of setting, dropping, stepping and closing keeps tables, caches and results.
TEST_P(DropPages, AtRandomAmongAllOtherCalls) {
  const uint32_t seed = 23;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int n = 0; n < 150 && !HasFatalFailure(); n++) {
    SCOPED_TRACE("iteration " + std::to_string(n));
    std::vector<int32_t> rows = engine_->Rows();
    if (rows.size() < 6 && random() % 3 == 0)
      rows.push_back(engine_->Open());
    std::vector<Item> items;
    for (int32_t row : rows) {
      Request &r = *engine_->requests[row];
      int32_t first = r.first_page, end = int32_t(r.pages.size()), pages = end - first;
      if (pages > 0 && random() % 5 == 0) {
        int32_t count = 1 + int32_t(random() % uint32_t(pages));
        engine_->DropPages(row, random() % 2 == 0 ? first : end - count, count);
      }
      if (r.first_page > 0 || int32_t(r.pages.size()) * 16 < r.num_tokens) { // start again, or go back
        if (r.first_page > 0 || random() % 2 == 0) {
          engine_->Close(row);
          continue;
        }
        engine_->CheckAll();
        engine_->SetLength(row, int32_t(r.pages.size()) * 16);
      }
      int32_t length = random() % 3 == 0 ? int32_t(random() % 20) : 1;
      if (r.num_tokens + length > 120 || items.size() == 8 || random() % 6 == 0)
        continue;
      engine_->Reserve(row, r.num_tokens + length + int32_t(random() % 40));
      items.push_back(Engine::Chunk(row, length, n, random() % 8 == 0));
    }
    if (engine_->NumInFlight() == 3)
      engine_->CheckAll();
    ASSERT_NO_FATAL_FAILURE(engine_->PrepareAndLaunch(items));
    if (n % 10 == 9) {
      engine_->CheckAll();
      engine_->Step({});
      ExpectTables(*engine_);
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(DropPages);

} // namespace
} // namespace cgr_test

// Steps that are prepared and cancelled lose no change and leave nothing behind.
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class Cancel : public CapturedTest {
protected:
  void PrepareAndCancel(const std::vector<Item> &items) {
    uint64_t cancelled = engine_->Stats().cancelled;
    CGR_ASSERT_OK(engine_->Prepare(items));
    CGR_ASSERT_OK(engine_->Cancel());
    ASSERT_EQ(engine_->Stats().cancelled, cancelled + 1);
  }
};

TEST_P(Cancel, CancelledStepLosesNeitherPagesNorRows) {
  int32_t a = engine_->Open(), b = engine_->Open();
  engine_->Reserve(a, 40);
  engine_->Reserve(b, 20);
  for (int n = 0; n < 3; n++)
    PrepareAndCancel({ Engine::Chunk(a, 30, 1), Engine::Chunk(b, 20, 2) });
  EXPECT_EQ(engine_->Info(a).num_tokens, 0);
  EXPECT_EQ(engine_->Info(a).last.seq, 0u);
  engine_->Step({ Engine::Chunk(b, 20, 2) });
  engine_->Step({ Engine::Chunk(a, 30, 1) });
  engine_->Step(engine_->Decode({ a, b }));
  ExpectTables(*engine_);
}

TEST_P(Cancel, CancelledBatchIsNotTakenForTheLastOne) {
  std::vector<int32_t> rows = { engine_->Start(5, 1), engine_->Start(9, 2), engine_->Start(30, 3), engine_->Start(16, 4) };
  engine_->Step(engine_->Decode(rows));
  engine_->Step(engine_->Decode(rows)); // unchanged: nothing but a header travels
  EXPECT_EQ(engine_->step.bytes_staged, 64u);
  PrepareAndCancel(engine_->Decode({ rows[2], rows[0], rows[1] }));
  engine_->Step(engine_->Decode(rows));
  PrepareAndCancel(engine_->Decode({ rows[2], rows[0] }));
  engine_->Step(engine_->Decode({ rows[2], rows[0] }));
  PrepareAndCancel(engine_->Decode(rows));
  PrepareAndCancel({});
  engine_->Step(engine_->Decode({ rows[2], rows[0] }));
  engine_->Step(engine_->Decode(rows));
  ExpectTables(*engine_);
}

TEST_P(Cancel, AnyInterleavingOfChangesStepsAndCancels) {
  for (uint32_t seed : { 1u, 2u, 3u }) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SetUp();
    std::mt19937 random(seed);
    for (int n = 0; n < 150 && !HasFatalFailure(); n++) {
      SCOPED_TRACE("iteration " + std::to_string(n));
      std::vector<int32_t> rows = engine_->Rows();
      if (rows.size() < 6 && random() % 3 == 0)
        engine_->Open();
      if (!rows.empty() && random() % 12 == 0)
        engine_->Close(rows[random() % rows.size()]);
      rows = engine_->Rows();
      if (!rows.empty() && random() % 10 == 0) {
        int32_t row = rows[random() % rows.size()], length = engine_->requests[row]->num_tokens;
        engine_->SetLength(row, int32_t(random() % uint32_t(length + 1)));
      }
      std::vector<Item> items;
      for (int32_t row : rows) {
        const Request &r = *engine_->requests[row];
        int32_t length = random() % 4 == 0 ? int32_t(random() % 8) : 1;
        if (random() % 5 == 0 || r.num_tokens + 8 > engine_->o.max_seq_len)
          continue;
        engine_->Reserve(row, r.num_tokens + length);
        items.push_back(Engine::Chunk(row, length, n, random() % 8 == 0));
      }
      std::shuffle(items.begin(), items.end(), random);
      uint32_t what = random() % 4;
      if (what <= 1)
        PrepareAndCancel(what == 0 ? items : std::vector<Item>());
      if (what != 0)
        engine_->Step(items);
      if (n % 10 == 9) {
        engine_->Step({});
        ExpectTables(*engine_);
      }
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Cancel);

} // namespace
} // namespace cgr_test

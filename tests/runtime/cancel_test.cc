// Steps that are prepared and cancelled lose no change and leave nothing behind.
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class Cancel : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    engine_.reset();
    engine_ = std::make_unique<Engine>(OptionsFor(GetParam()));
    CGR_ASSERT_OK(engine_->Capture());
  }
  void PrepareAndCancel(const std::vector<Item> &items) {
    uint64_t cancelled = engine_->Stats().cancelled;
    CGR_ASSERT_OK(engine_->Prepare(items));
    CGR_ASSERT_OK(engine_->Cancel());
    ASSERT_EQ(engine_->Stats().cancelled, cancelled + 1);
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(Cancel, CancelledStepLosesNeitherPagesNorRows) {
  Engine &engine = *engine_;
  int32_t a = engine.Open(), b = engine.Open();
  engine.Reserve(a, 40);
  engine.Reserve(b, 20);
  for (int n = 0; n < 3; n++)
    PrepareAndCancel({ Engine::Chunk(a, 30, 1), Engine::Chunk(b, 20, 2) });
  EXPECT_EQ(engine.Info(a).num_tokens, 0);
  EXPECT_EQ(engine.Info(a).last.seq, 0u);
  engine.Step({ Engine::Chunk(b, 20, 2) });
  engine.Step({ Engine::Chunk(a, 30, 1) });
  engine.Step(engine.Decode({ a, b }));
  ExpectTables(engine);
}

TEST_P(Cancel, CancelledBatchIsNotTakenForTheLastOne) {
  Engine &engine = *engine_;
  std::vector<int32_t> rows = { engine.Start(5, 1), engine.Start(9, 2), engine.Start(30, 3), engine.Start(16, 4) };
  engine.Step(engine.Decode(rows));
  engine.Step(engine.Decode(rows)); // unchanged: nothing but a header travels
  EXPECT_EQ(engine.step.bytes_staged, 64u);
  PrepareAndCancel(engine.Decode({ rows[2], rows[0], rows[1] }));
  engine.Step(engine.Decode(rows));
  PrepareAndCancel(engine.Decode({ rows[2], rows[0] }));
  engine.Step(engine.Decode({ rows[2], rows[0] }));
  PrepareAndCancel(engine.Decode(rows));
  PrepareAndCancel({});
  engine.Step(engine.Decode({ rows[2], rows[0] }));
  engine.Step(engine.Decode(rows));
  ExpectTables(engine);
}

TEST_P(Cancel, AnyInterleavingOfChangesStepsAndCancels) {
  for (uint32_t seed : { 1u, 2u, 3u }) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SetUp();
    Engine &engine = *engine_;
    std::mt19937 random(seed);
    for (int n = 0; n < 150 && !HasFatalFailure(); n++) {
      SCOPED_TRACE("iteration " + std::to_string(n));
      std::vector<int32_t> rows = engine.Rows();
      if (rows.size() < 6 && random() % 3 == 0)
        engine.Open();
      if (!rows.empty() && random() % 12 == 0)
        engine.Close(rows[random() % rows.size()]);
      rows = engine.Rows();
      if (!rows.empty() && random() % 10 == 0) {
        int32_t row = rows[random() % rows.size()], length = engine.requests[row]->num_tokens;
        engine.SetLength(row, int32_t(random() % uint32_t(length + 1)));
      }
      std::vector<Item> items;
      for (int32_t row : rows) {
        const Request &r = *engine.requests[row];
        int32_t length = random() % 4 == 0 ? int32_t(random() % 8) : 1;
        if (random() % 5 == 0 || r.num_tokens + 8 > engine.o.max_seq_len)
          continue;
        engine.Reserve(row, r.num_tokens + length);
        items.push_back(Engine::Chunk(row, length, n, random() % 8 == 0));
      }
      std::shuffle(items.begin(), items.end(), random);
      uint32_t what = random() % 4;
      if (what <= 1)
        PrepareAndCancel(what == 0 ? items : std::vector<Item>());
      if (what != 0)
        engine.Step(items);
      if (n % 10 == 9) {
        engine.Step({});
        ExpectTables(engine);
      }
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Cancel);

} // namespace
} // namespace cgr_test

// The ledger of pages in a runtime over the validation layer: what rows may not do with their pages is refused and reported, by
// group, page, rows and step; nothing is lost by it. Without the layer there is no ledger.
#include "tests/support/engine_case.h"
#include "tests/support/gate.h"
#include "tests/support/violations.h"

namespace cgr_test {
namespace {

class PageLedger : public EngineTest {
protected:
  void SetUpOnDevice() override {
    EngineOptions options = OptionsFor(GetParam());
    options.handle = violations_.Open(GetParam());
    engine_ = MakeCaptured(options);
  }
  // Refused, reported once in the same words.
  void ExpectFound(cgr_status got, cgr_status status, const Words &words) {
    ExpectMessage(got, status, words);
    EXPECT_EQ(violations_.size(), ++found_);
    EXPECT_EQ(violations_.Last(), cgr_last_message());
  }
  cgr_status SetPages(int32_t row, int32_t first, const std::vector<int32_t> &pages) {
    return cgr_request_set_pages(engine_->rt, row, 0, first, pages.data(), int32_t(pages.size()));
  }
  std::vector<int32_t> Pages(int32_t row) const { return engine_->requests.at(row)->pages; }
  // A row that has the pages and the tokens of another.
  int32_t Copy(int32_t from, int32_t tokens) {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(engine_->rt, 9, &row));
    CGR_EXPECT_OK(SetPages(row, 0, Pages(from)));
    CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, tokens));
    return row;
  }
  cgr_status Prepare(const std::vector<int32_t> &rows) {
    const std::vector<int32_t> tokens(rows.size(), 3);
    cgr_batch batch = BatchOf(int32_t(rows.size()), rows.data(), tokens.data());
    return cgr_step_prepare(engine_->rt, &batch, &step_);
  }
  Violations violations_;
  size_t found_ = 0;
  cgr_step step_ = CGR_STEP_INIT;
};

TEST_P(PageLedger, TwoWritersAreNamed) {
  const int32_t a = engine_->Start(20), page = Pages(a)[1];
  const int32_t b = Copy(a, 20);
  const std::string named = "page " + std::to_string(page) + " of group 0 would be written by rows 0 and 1 in step 2";
  ExpectFound(Prepare({ b, a }), CGR_ERROR_INVALID_ARGUMENT, { named });
  const int32_t token = 3;
  for (int32_t row : { a, b })
    CGR_EXPECT_OK(cgr_standing_add(engine_->rt, nullptr, row, 1, &token, 0));
  cgr_batch batch = StandingBatch();
  ExpectFound(cgr_step_prepare(engine_->rt, &batch, &step_), CGR_ERROR_INVALID_ARGUMENT, { named });
  for (int32_t row : { a, b })
    CGR_EXPECT_OK(cgr_standing_remove(engine_->rt, nullptr, row));
  CGR_EXPECT_OK(cgr_request_close(engine_->rt, b));
  for (int n = 0; n < 3; n++)
    engine_->Step(engine_->Decode({ a }));
  EXPECT_EQ(violations_.size(), found_);
}

// Right by chance: each may write alone, until the other one comes to its place.
TEST_P(PageLedger, AnotherRowsTokenIsNamed) {
  const int32_t a = engine_->Start(20), b = Copy(a, 18);
  ExpectFound(Prepare({ b }), CGR_ERROR_INVALID_ARGUMENT,
              { "row 1 would write token 18 in step 2 into page " + std::to_string(Pages(a)[1]), "row 0 has a token" });
  CGR_EXPECT_OK(cgr_request_close(engine_->rt, b));
  engine_->Step(engine_->Decode({ a }));
}

// By a step of another row before the row's next one, and not in that one.
TEST_P(PageLedger, APagePutBelowALengthMayBeFilled) {
  const int32_t a = engine_->Start(36), b = engine_->Start(16, 9), own = Pages(a)[1];
  const std::vector<Item> next = engine_->Decode({ b });
  const int32_t page = Pages(b)[1];
  CGR_EXPECT_OK(SetPages(a, 1, { page }));
  ExpectFound(Prepare({ a, b }), CGR_ERROR_INVALID_ARGUMENT,
              { "row 1 would write token 16 in step 3 into page " + std::to_string(page), "which row 0 reads in the same step" });
  engine_->Step(next);
  CGR_EXPECT_OK(SetPages(a, 1, { own }));
  engine_->Step(engine_->Decode({ a, b }));
  EXPECT_EQ(violations_.size(), found_);
}

TEST_P(PageLedger, APageThatIsHandedOnTooEarlyIsNamed) {
  if (!GetParam().IsCuda() && GetParam().config.host_schedule == CGR_SCHEDULE_EARLIEST)
    GTEST_SKIP() << "steps complete as they are launched";
  const int32_t a = engine_->Start(20), b = engine_->Start(5, 9);
  const std::vector<int32_t> pages = Pages(a);
  std::unique_ptr<Gate> gate;
  if (GetParam().HasThreads())
    gate = std::make_unique<Gate>(engine_->dev, engine_->stream);
  engine_->PrepareAndLaunch(engine_->Decode({ a, b }));
  CGR_EXPECT_OK(cgr_request_drop_pages(engine_->rt, a, 0, 1, 1));
  ExpectFound(SetPages(b, 1, { pages[1] }), CGR_ERROR_STATE,
              { "pages[0] is " + std::to_string(pages[1]) + " of group 0", "(row 0) until step 3", "(2 has)" });
  const int32_t first = 1;
  ExpectFound(cgr_requests_set_pages(engine_->rt, 0, 1, &b, &first, nullptr, &pages[1]), CGR_ERROR_STATE,
              { "cgr_requests_set_pages: pages[0] (of rows[0]) is", "(row 0) until step 3", "(2 has)" });
  CGR_EXPECT_OK(cgr_requests_set_pages(engine_->rt, 0, 1, &a, &first, nullptr, &pages[1]));
  if (gate != nullptr)
    gate->Open();
  engine_->CheckAll();
  CGR_EXPECT_OK(cgr_request_drop_pages(engine_->rt, a, 0, 1, 1));
  CGR_EXPECT_OK(SetPages(b, 1, { pages[1] }));
  CGR_EXPECT_OK(cgr_request_drop_pages(engine_->rt, b, 0, 1, 1));
  CGR_EXPECT_OK(SetPages(a, 1, { pages[1] }));
  engine_->Step(engine_->Decode({ a, b }));
}

INSTANTIATE_TEST_SUITE_P(Devices, PageLedger,
                         ::testing::Values(HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_EARLIEST),
                                           HostParam(CGR_SCHEDULE_LATEST), CudaParam()),
                         DeviceLabel);

TEST(PageLedgerMemory, IsTakenOnlyForTheLayer) {
  uint64_t bytes[2][2];
  for (bool checks : { false, true })
    for (int32_t pages : { 1000, 3000 }) {
      EngineOptions options;
      options.validation = checks, options.num_pages = pages;
      Engine engine(options);
      const cgr_config config = engine.Config();
      cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
      CGR_ASSERT_OK(cgr_runtime_memory(&config, &sizes));
      bytes[checks][pages == 3000] = sizes.host_bytes;
    }
  EXPECT_EQ(bytes[0][0], bytes[0][1]) << "without the layer nothing is kept by page";
  EXPECT_EQ(bytes[1][1] - bytes[1][0], 2000u * 64);
}

} // namespace
} // namespace cgr_test

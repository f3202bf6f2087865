// A draft next to a target whose rows end: what a row that has ended needs, and what the host says of a draft's length.
#include "cgr/stops.h"
#include "tests/support/draft_engine.h"

namespace cgr_test {
namespace {

using namespace drafts;

const List kPrompt = { 1, 2, 3, 4 };
const uint32_t kOne = CGR_REQUEST_DRAFTS(1);

// One row.
class DraftOfOne {
public:
  explicit DraftOfOne(DeviceParam param, int32_t num_pages = kSeqLen / kPage)
      : engine(param, 2 + 2 * kSeqLen / kPage, false, CGR_MODE_FULL, 0, 1) {
    CGR_EXPECT_OK(cgr_request_open(engine.rt, 77, &row));
    Take(row, num_pages);
  }
  void Take(int32_t of, int32_t num_pages) {
    for (int32_t p = 0; p < num_pages; p++)
      for (int32_t group : { 0, 1 }) {
        const int32_t page = 2 + p;
        CGR_EXPECT_OK(cgr_request_set_pages(engine.rt, of, group, p, &page, 1));
      }
  }
  void EndAt(int32_t max_length) {
    cgr_stops stops = CGR_STOPS_INIT;
    stops.max_length = max_length;
    CGR_EXPECT_OK(cgr_request_set_stops(engine.rt, row, &stops));
  }
  cgr_status Prepare(int32_t program, const List &tokens, uint32_t flags) {
    const int32_t len = tokens.empty() ? 2 : int32_t(tokens.size());
    cgr_batch batch = BatchOf(1, &row, tokens.empty() ? nullptr : tokens.data(), &len);
    batch.program = program, batch.flags = &flags, step = CGR_STEP_INIT;
    return cgr_step_prepare(engine.rt, &batch, &step);
  }
  void Launch(int32_t program, const List &tokens, uint32_t flags) {
    CGR_ASSERT_OK(Prepare(program, tokens, flags));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  }
  void Wait() { CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr)); }
  void ExpectExact(int32_t draft) {
    cgr_mark last = { 0, 0, 0 };
    CGR_ASSERT_OK(cgr_runtime_flush(engine.rt, nullptr, &last, engine.stream));
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, last, -1, nullptr));
    EXPECT_EQ(engine.Bounds(row, 1), std::make_pair(draft, draft));
    EXPECT_EQ(engine.Length(row, 1), draft);
  }

  DraftEngine engine;
  int32_t row = -1;
  cgr_step step = CGR_STEP_INIT;
};

TEST(DraftOfAnEndedRow, NeedsNoPages) {
  DraftOfOne d(HostParam(CGR_SCHEDULE_EARLIEST), 1);
  d.EndAt(5);
  d.Launch(1, kPrompt, CGR_REQUEST_PARTIAL);
  d.Launch(0, kPrompt, 0);
  d.Wait();
  ASSERT_EQ(d.engine.Info(d.row).ended, CGR_END_LENGTH);
  for (int32_t group : { 0, 1 })
    CGR_ASSERT_OK(cgr_request_drop_pages(d.engine.rt, d.row, group, 0, 1));
  d.Launch(0, {}, kOne);
  d.Launch(1, {}, kOne);
  d.Wait();
  d.ExpectExact(4);
}

TEST(DraftOfAnEndedRow, IsNotTooLong) {
  DraftOfOne d(HostParam(CGR_SCHEDULE_EARLIEST));
  d.EndAt(kSeqLen + 1);
  for (int32_t at = 0; at < kSeqLen; at += 40)
    for (int32_t program : { 1, 0 })
      d.Launch(program, List(40, 3), at + 40 < kSeqLen || program == 1 ? CGR_REQUEST_PARTIAL : 0);
  d.Wait();
  ASSERT_EQ(d.engine.Info(d.row).ended, CGR_END_LENGTH);
  d.Launch(0, {}, kOne);
  d.Launch(1, {}, kOne);
  d.Wait();
  d.ExpectExact(kSeqLen);
}

// The draft's step is empty if the one before it ended the row, which the host does not know when it sets the length.
TEST(DraftOfAnEndedRow, IsNotLongerThanItsCache) {
  for (int32_t length : { 4, 5, 8 }) {
    DraftOfOne d(HostParam(CGR_SCHEDULE_LATEST));
    d.EndAt(5);
    d.Launch(1, kPrompt, CGR_REQUEST_PARTIAL);
    d.Wait();
    d.Launch(0, kPrompt, 0);
    d.Launch(1, {}, kOne);
    ASSERT_LT(Completed(d.engine.rt), d.step.mark.seq);
    CGR_ASSERT_OK(cgr_request_set_length(d.engine.rt, d.row, length));
    d.Wait();
    d.ExpectExact(0);
  }
}

// Ids of a draft are no business of stops: they are written, and the ledger looks at them.
TEST(DraftOfAnEndedRow, WritesNoPageOfAnother) {
  DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
  param.config.layer = cgr_validation_layer();
  param.config.on_violation = [](void *, const char *) {};
  DraftOfOne d(param, 1);
  d.EndAt(5);
  d.Launch(0, kPrompt, 0);
  d.Launch(1, kPrompt, CGR_REQUEST_PARTIAL);
  d.Wait();
  ASSERT_EQ(d.engine.Info(d.row).ended, CGR_END_LENGTH);
  CGR_ASSERT_OK(cgr_program_set_length(d.engine.rt, d.row, 1, 0));
  const int32_t first = d.row;
  CGR_ASSERT_OK(cgr_request_open(d.engine.rt, 78, &d.row));
  d.Take(d.row, 1);
  CGR_ASSERT_OK(cgr_program_set_length(d.engine.rt, first, 1, 4));
  CGR_ASSERT_OK(cgr_program_set_length(d.engine.rt, first, 1, 0));
  d.Launch(1, kPrompt, CGR_REQUEST_PARTIAL); // the second row has these tokens
  d.Wait();
  d.row = first;
  ExpectMessage(d.Prepare(1, { 5 }, CGR_REQUEST_PARTIAL), CGR_ERROR_INVALID_ARGUMENT,
                { "row 0 would write token 0", "page 2 of group 1, where row 1 has a token" });
}

} // namespace
} // namespace cgr_test

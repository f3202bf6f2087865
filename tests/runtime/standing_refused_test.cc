// Edits and steps of the standing batch that are refused; they change nothing.
#include "tests/support/standing_case.h"

namespace cgr_test {
namespace {

class StandingRefused : public Standing {};

TEST_P(StandingRefused, EditsOfWhatIsNoMemberAreRefused) {
  const int32_t bad = rows_[0], max = engine_->o.max_rows;
  int32_t closed = engine_->Open();
  engine_->Close(closed);
  CGR_ASSERT_OK(Put(rows_[1]));
  CGR_ASSERT_OK(Put(rows_[2]));
  for (int32_t row : { -1, max, INT32_MIN, INT32_MAX }) {
    const std::string is = "row is " + std::to_string(row);
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_standing_add", is }, [&] { return Put(row); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_standing_update", is }, [&] { return Set(row); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_standing_remove", is }, [&] { return Take(row); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_standing_swap", is }, [&] { return Swap(row, rows_[1]); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { "cgr_standing_swap: other", is.substr(is.find(" is")) },
                [&] { return Swap(rows_[1], row); });
  }
  EditRefused(CGR_ERROR_ROW_CLOSED, { "cgr_standing_add", "closed" }, [&] { return Put(closed); });
  EditRefused(CGR_ERROR_ROW_CLOSED, { "cgr_standing_update", "closed" }, [&] { return Set(closed); });
  EditRefused(CGR_ERROR_ROW_CLOSED, { "cgr_standing_remove", "closed" }, [&] { return Take(closed); });
  EditRefused(CGR_ERROR_ROW_CLOSED, { "cgr_standing_swap", "closed" }, [&] { return Swap(rows_[1], closed); });
  const std::string row = "row " + std::to_string(bad);
  EditRefused(CGR_ERROR_STATE, { "cgr_standing_update", row, "not in the standing batch" }, [&] { return Set(bad); });
  EditRefused(CGR_ERROR_STATE, { "cgr_standing_remove", row, "not in the standing batch" }, [&] { return Take(bad); });
  EditRefused(CGR_ERROR_STATE, { "cgr_standing_swap", row }, [&] { return Swap(bad, rows_[1]); });
  EditRefused(CGR_ERROR_STATE, { "cgr_standing_swap", row }, [&] { return Swap(rows_[1], bad); });
  EditRefused(CGR_ERROR_ROW_REPEATED, { "cgr_standing_add", "already" }, [&] { return Put(rows_[1]); });
  ASSERT_NO_FATAL_FAILURE(Step());
}

TEST_P(StandingRefused, WorkThatIsNoneIsRefused) {
  CGR_ASSERT_OK(Put(rows_[0]));
  struct Bad {
    const char *word;
    cgr_status status;
    int32_t query_len;
    Rows tokens;
    uint32_t flags;
  };
  const int32_t max = engine_->o.max_tokens;
  for (const Bad &bad : { Bad{ "query_len is -1", CGR_ERROR_INVALID_ARGUMENT, -1, {}, 0 },
                          Bad{ "query_len is -2147483648", CGR_ERROR_INVALID_ARGUMENT, INT32_MIN, {}, 0 },
                          Bad{ "flags is 0x2", CGR_ERROR_INVALID_ENUM, 1, {}, 2 },
                          Bad{ "flags is 0x80000001", CGR_ERROR_INVALID_ENUM, 1, {}, 0x80000001u },
                          Bad{ "tokens is NULL", CGR_ERROR_NULL_POINTER, 2, {}, 0 },
                          Bad{ "tokens[1] is CGR_TOKEN_LAST", CGR_ERROR_INVALID_ARGUMENT, 2, { 4, kLast }, 0 },
                          Bad{ "tokens[0] is -2", CGR_ERROR_INVALID_ARGUMENT, 1, { -2 }, 0 },
                          Bad{ "tokens[2] is -7", CGR_ERROR_INVALID_ARGUMENT, 3, { 1, 2, -7 }, 0 },
                          Bad{ "max_tokens", CGR_ERROR_TOO_MANY_TOKENS, max + 1, Rows(size_t(max) + 1, 3), 0 },
                          Bad{ "max_tokens", CGR_ERROR_TOO_MANY_TOKENS, INT32_MAX, { 3 }, 0 } }) {
    EditRefused(bad.status, { "cgr_standing_add", bad.word },
                [&] { return Put(rows_[1], bad.query_len, bad.tokens, bad.flags); });
    EditRefused(bad.status, { "cgr_standing_update", bad.word },
                [&] { return Set(rows_[0], bad.query_len, bad.tokens, bad.flags); });
  }
  ASSERT_NO_FATAL_FAILURE(Step());
}

TEST_P(StandingRefused, LaneAndProgramAreReserved) {
  const int32_t row = rows_[0], token = 3, *rows = nullptr;
  int32_t count = 0;
  for (auto [lane, program, word] :
       { std::tuple<int32_t, int32_t, const char *>{ 1, 0, "lane is 1" }, { 0, -1, "program is -1" } }) {
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { word },
                [&, w = cgr_where{ lane, program }] { return cgr_standing_add(rt(), &w, row, 1, &token, 0); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { word },
                [&, w = cgr_where{ lane, program }] { return cgr_standing_update(rt(), &w, row, 1, &token, 0); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { word },
                [&, w = cgr_where{ lane, program }] { return cgr_standing_remove(rt(), &w, row); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { word },
                [&, w = cgr_where{ lane, program }] { return cgr_standing_swap(rt(), &w, row, row); });
    EditRefused(CGR_ERROR_INVALID_ARGUMENT, { word },
                [&, w = cgr_where{ lane, program }] { return cgr_standing_rows(rt(), &w, &rows, &count); });
  }
}

// A prepared step holds the batch as it is, and its rows are in use.
TEST_P(StandingRefused, NothingIsEditedWhileAStepIsPrepared) {
  CGR_ASSERT_OK(Put(rows_[0]));
  CGR_ASSERT_OK(Put(rows_[1]));
  for (bool whole : { false, true }) {
    std::vector<Item> items = engine_->Decode({ rows_[0], rows_[1] });
    if (whole)
      CGR_ASSERT_OK(engine_->Prepare(items));
    else
      CGR_ASSERT_OK(engine_->PrepareStandingAsIs(items));
    EditRefused(CGR_ERROR_STATE, { "cgr_standing_add", "prepared" }, [&] { return Put(rows_[2]); });
    EditRefused(CGR_ERROR_STATE, { "cgr_standing_update", "prepared" }, [&] { return Set(rows_[0]); });
    EditRefused(CGR_ERROR_STATE, { "cgr_standing_remove", "prepared" }, [&] { return Take(rows_[0]); });
    EditRefused(CGR_ERROR_STATE, { "cgr_standing_swap", "prepared" }, [&] { return Swap(rows_[0], rows_[1]); });
    Refused(CGR_ERROR_STATE, { "cgr_request_set_length", "prepared" }, [&] { return cgr_request_set_length(rt(), rows_[1], 1); });
    Refused(CGR_ERROR_STATE, { "cgr_request_drop_pages", "prepared" },
            [&] { return cgr_request_drop_pages(rt(), rows_[1], 0, 0, 1); });
    Refused(CGR_ERROR_STATE, { "cgr_request_close", "prepared" }, [&] { return cgr_request_close(rt(), rows_[0]); });
    CGR_EXPECT_OK(cgr_request_set_length(rt(), rows_[2], engine_->requests[rows_[2]]->num_tokens)); // the row is not in the step
    engine_->requests[rows_[2]]->has_token = false;
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
  }
  engine_->StepStanding({ { rows_[2], { 4 } } });
}

TEST_P(StandingRefused, NothingIsEditedInsideRecord) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  int calls = 0;
  engine_->hook = [&](cgr_recorder *, const cgr_record_info &, int32_t) {
    calls++;
    ExpectMessage(Put(rows_[0]), CGR_ERROR_STATE, { "cgr_standing_add", "record" });
    ExpectMessage(Set(rows_[0]), CGR_ERROR_STATE, { "cgr_standing_update", "record" });
    ExpectMessage(Take(rows_[0]), CGR_ERROR_STATE, { "cgr_standing_remove", "record" });
    ExpectMessage(Swap(rows_[0], rows_[1]), CGR_ERROR_STATE, { "cgr_standing_swap", "record" });
    EXPECT_EQ(engine_->StandingRows(), rows_);
    return CGR_OK;
  };
  const cgr_key eager = EagerKey(3, 3);
  ASSERT_NO_FATAL_FAILURE(Step(engine_->Decode(rows_), &eager));
  EXPECT_GT(calls, 0);
}

TEST_P(StandingRefused, AMemberIsNotClosed) {
  ASSERT_NO_FATAL_FAILURE(PutAll());
  Refused(CGR_ERROR_STATE, { "cgr_request_close", "row " + std::to_string(rows_[1]), "cgr_standing_remove" },
          [&] { return cgr_request_close(rt(), rows_[1]); });
  ASSERT_NO_FATAL_FAILURE(Step());
  CGR_ASSERT_OK(Take(rows_[1]));
  engine_->Close(rows_[1]);
  ASSERT_NO_FATAL_FAILURE(Step());
  rows_ = { rows_[0], rows_[2] };
}

TEST_P(StandingRefused, ABatchHasNoArrays) {
  const int32_t row = rows_[0], one = 1, token = 3;
  const uint32_t flag = 0;
  CGR_ASSERT_OK(Put(row));
  struct Bad {
    const char *name;
    std::function<void(cgr_batch *)> set;
  };
  for (const Bad &bad :
       { Bad{ "rows", [&](cgr_batch *b) { b->rows = &row; } }, Bad{ "query_lens", [&](cgr_batch *b) { b->query_lens = &one; } },
         Bad{ "tokens", [&](cgr_batch *b) { b->tokens = &token; } }, Bad{ "flags", [&](cgr_batch *b) { b->flags = &flag; } } }) {
    engine_->Decode(rows_);
    cgr_batch batch = StandingBatch();
    bad.set(&batch);
    BatchRefused(CGR_ERROR_INVALID_ARGUMENT, { std::string("batch: ") + bad.name, "CGR_BATCH_STANDING" }, batch);
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(StandingRefused);

} // namespace
} // namespace cgr_test

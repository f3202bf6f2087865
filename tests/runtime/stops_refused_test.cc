// Stops that cannot be, and configurations that cannot have any.
#include "cgr/stops.h"
#include "tests/support/guess_engine.h"

namespace cgr_test {
namespace {

using namespace guesses;

constexpr const char *kFunction = "cgr_request_set_stops: ";

class StopsRefused : public ::testing::Test {
protected:
  void SetUp() override {
    CGR_ASSERT_OK(cgr_request_open(engine_.rt, 77, &row_));
    stops_.num_tokens = 2, stops_.tokens = tokens_, stops_.max_length = kSeqLen + 1, stops_.min_length = kSeqLen + 1;
    CGR_ASSERT_OK(cgr_request_set_stops(engine_.rt, row_, &stops_));
  }
  void TearDown() override { CGR_ASSERT_OK(cgr_request_close(engine_.rt, row_)); }
  void Refused(cgr_status status, const Words &words) {
    Words all = words;
    all.insert(all.begin(), kFunction);
    ExpectMessage(cgr_request_set_stops(engine_.rt, row_, &stops_), status, all);
  }

  GuessEngine engine_{ HostParam(CGR_SCHEDULE_EARLIEST), 0, 34, false, CGR_MODE_FULL, 2 };
  int32_t row_ = -1, tokens_[3] = { 0, kVocab - 1, 1 };
  cgr_stops stops_ = CGR_STOPS_INIT;
};

TEST_F(StopsRefused, NumbersOutOfRange) {
  const cgr_stops good = stops_;
  for (int32_t count : { -1, 3, INT32_MAX }) {
    stops_.num_tokens = count;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "stops->num_tokens is " + std::to_string(count), "0 .. 2 (max_stop_tokens)" });
  }
  stops_ = good;
  for (int32_t length : { -1, kSeqLen + 2, INT32_MAX }) {
    stops_.max_length = length;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "stops->max_length is " + std::to_string(length), "0 .. 161 (max_seq_len" });
  }
  stops_ = good, stops_.max_length = 7, stops_.min_length = 8;
  Refused(CGR_ERROR_INVALID_ARGUMENT, { "stops->min_length is 8", "at most max_length, 7" });
  for (int32_t length : { -1, kSeqLen + 2 }) {
    stops_.max_length = 0, stops_.min_length = length;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "stops->min_length is " + std::to_string(length), "0 .. 161" });
  }
}

TEST_F(StopsRefused, TokensOutOfTheVocabulary) {
  for (int32_t token : { -1, int32_t(kVocab), INT32_MIN }) {
    tokens_[1] = token;
    Refused(CGR_ERROR_INVALID_ARGUMENT, { "stops->tokens[1] is " + std::to_string(token), "0 .. 39 (vocab_size)" });
  }
  stops_.tokens = nullptr;
  Refused(CGR_ERROR_NULL_POINTER, { "stops->tokens is NULL, expected 2 tokens" });
  stops_.num_tokens = 0;
  CGR_EXPECT_OK(cgr_request_set_stops(engine_.rt, row_, &stops_));
}

TEST_F(StopsRefused, OfRowsThatCannotHaveThem) {
  ExpectMessage(cgr_request_set_stops(engine_.rt, kRows, &stops_), CGR_ERROR_INVALID_ARGUMENT, { kFunction, "row is 12" });
  ExpectMessage(cgr_request_set_stops(engine_.rt, row_ + 1, &stops_), CGR_ERROR_ROW_CLOSED, { kFunction, "is closed" });
  ExpectMessage(cgr_request_set_stops(engine_.rt, row_, nullptr), CGR_ERROR_NULL_POINTER, { kFunction, "stops is NULL" });
  stops_.size = 4;
  Refused(CGR_ERROR_INVALID_STRUCT, { "stops: size is 4", "CGR_STOPS_INIT" });
  stops_.size = sizeof stops_;
  const int32_t page = 2, token = 1;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_request_set_pages(engine_.rt, row_, 0, 0, &page, 1));
  const cgr_batch batch = BatchOf(1, &row_, &token);
  CGR_ASSERT_OK(cgr_step_prepare(engine_.rt, &batch, &step));
  Refused(CGR_ERROR_STATE, { "row 0 is in the prepared step" });
  CGR_ASSERT_OK(cgr_step_cancel(engine_.rt, &step));
}

TEST(StopsOfNoRuntime, AreRefused) {
  GuessEngine engine(HostParam(CGR_SCHEDULE_EARLIEST), 0, 34);
  const cgr_stops stops = CGR_STOPS_INIT;
  int32_t row = -1;
  CGR_ASSERT_OK(cgr_request_open(engine.rt, 77, &row));
  ExpectMessage(cgr_request_set_stops(engine.rt, row, &stops), CGR_ERROR_INVALID_ARGUMENT,
                { kFunction, "max_stop_tokens is 0, expected a runtime whose cgr_config.max_stop_tokens is more" });
  CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
}

// A row's stops take one of the buffers that an engine can declare.
TEST(StopsOfAConfiguration, TakeTheRoomOfABuffer) {
  std::vector<std::string> names;
  std::vector<cgr_buffer_decl> buffers(64, CGR_BUFFER_DECL_INIT);
  for (size_t i = 0; i < buffers.size(); i++)
    names.push_back("b" + std::to_string(i));
  for (size_t i = 0; i < buffers.size(); i++)
    buffers[i].dimension = CGR_DIMENSION_ROWS, buffers[i].dtype = CGR_DTYPE_I32, buffers[i].name = names[i].c_str();
  cgr_group group = CGR_GROUP_INIT;
  group.page_size = 16, group.num_pages = 8;
  for (int32_t count : { 63, 64 }) {
    cgr_config config = CGR_CONFIG_INIT;
    cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
    config.device = "host", config.groups = &group, config.num_groups = 1, config.max_requests = config.max_tokens = 4;
    config.max_seq_len = 32, config.buffers = buffers.data(), config.num_buffers = count, config.max_stop_tokens = 1;
    const cgr_status status = cgr_runtime_memory(&config, &sizes);
    if (count == 63)
      CGR_EXPECT_OK(status);
    else
      ExpectMessage(status, CGR_ERROR_UNSUPPORTED, { "num_buffers is 64, expected one less with max_stop_tokens 1" });
  }
}

} // namespace
} // namespace cgr_test
